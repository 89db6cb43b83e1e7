//! The turn of a region: one section, or readings that share it.

use super::{Sections, poison, undo};
use crate::address::Place;
use crate::error::Result;
use crate::gate::Pinned;
use crate::lock::{read, write};
use crate::zone::WINDOWS;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{RwLockReadGuard, RwLockWriteGuard};

thread_local! {
    /// The windows that this thread reads with a share of the turn, a bit each.
    static READING: Cell<u64> = const { Cell::new(0) };
}

const _: () = assert!(WINDOWS <= 64);

/// Whether this thread has a share of the turn of the region.
pub(crate) fn is_reading(place: Place) -> bool {
    READING.get() & 1 << place.index() != 0
}

/// This thread reads a region, until dropped.
pub(crate) struct Reading<'a> {
    place: Place,
    _turn: RwLockReadGuard<'a, ()>,
}

impl Reading<'_> {
    fn begin(place: Place, turn: RwLockReadGuard<'_, ()>) -> Reading<'_> {
        READING.set(READING.get() | 1 << place.index());
        Reading { place, _turn: turn }
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        READING.set(READING.get() & !(1 << self.place.index()));
    }
}

/// The closure of a section is running. Its end without success dooms the section.
pub(crate) struct Scope<'a> {
    sections: &'a Sections,
    pub(crate) number: u64,
    pub(crate) is_good: bool,
}

impl Drop for Scope<'_> {
    fn drop(&mut self) {
        self.sections.scopes.close(self.number);
        if !self.is_good {
            self.sections.doomed.store(true, Ordering::Relaxed);
        }
    }
}

/// A section that is not inside another has the turn. Undone when dropped, unless it was ended.
pub(crate) struct Outermost<'a> {
    sections: &'a Sections,
    is_ended: bool,
    _inside: Pinned,
    _turn: RwLockWriteGuard<'a, ()>,
}

impl Outermost<'_> {
    /// Hands what changed over to be made durable. Says the number of the last section that changed anything.
    pub(crate) fn end(mut self) -> u64 {
        self.is_ended = true;
        let sections = self.sections;
        sections.lent.mark_changed(sections.place);
        sections.queue.capture(sections.place, &sections.progress)
    }

    pub(crate) fn undo(mut self) -> Result<()> {
        self.is_ended = true;
        self.undo_changes()
    }

    fn undo_changes(&self) -> Result<()> {
        let sections = self.sections;
        sections.lent.mark_changed(sections.place);
        let undone = undo::undo_section(sections.place, &*sections.store, &sections.queue);
        undone.map_err(|error| poison(&sections.progress, error))
    }
}

impl Drop for Outermost<'_> {
    /// The closure panicked. A failure has poisoned the store: the next call tells it.
    fn drop(&mut self) {
        if !self.is_ended {
            let _ = self.undo_changes();
        }
    }
}

impl Sections {
    /// The turn. What found no room was undone.
    pub(super) fn take_turn(&self) -> Result<RwLockWriteGuard<'_, ()>> {
        let turn = write(&self.turn);
        if self.queue.is_lost() {
            self.undo_lost()?;
        }
        Ok(turn)
    }

    /// A share of the turn.
    fn share_turn(&self) -> RwLockReadGuard<'_, ()> {
        loop {
            let turn = read(&self.turn);
            if !self.queue.is_lost() || self.progress.is_poisoned() {
                return turn;
            }
            drop(turn);
            // An error poisons the store.
            drop(self.take_turn());
        }
    }

    /// This thread reads until what this gives is dropped; none where it does already.
    ///
    /// # Panics
    /// Inside a section of the region.
    #[track_caller]
    pub(crate) fn reading(&self) -> Option<Reading<'_>> {
        assert!(
            !self.place.is_inside(),
            "`Region::read` inside a section of the same region: read with the section, `handle.read(section)`"
        );
        match is_reading(self.place) {
            true => None,
            false => Some(Reading::begin(self.place, self.share_turn())),
        }
    }

    /// A section begins that is inside no other.
    ///
    /// # Errors
    /// When the store is poisoned.
    pub(crate) fn begin_section(&self) -> Result<Outermost<'_>> {
        self.progress.check_poison()?;
        let turn = self.take_turn()?;
        let outermost = Outermost {
            sections: self,
            is_ended: false,
            _inside: self.place.enter(),
            _turn: turn,
        };
        self.doomed.store(false, Ordering::Relaxed);
        Ok(outermost)
    }

    /// One more scope, inside those there are.
    pub(crate) fn open_scope(&self) -> Scope<'_> {
        Scope {
            sections: self,
            number: self.scopes.open(),
            is_good: false,
        }
    }

    /// Whether the closure that the number was given to is running.
    pub(crate) fn is_open(&self, scope: u64) -> bool {
        self.scopes.is_open(scope)
    }

    /// A value of the region is handed out to be changed.
    ///
    /// # Safety
    /// It is there, and nothing refers to it.
    pub(crate) unsafe fn lend(&self, at: *const u8, bytes: usize) {
        // SAFETY: by the caller's word.
        unsafe { self.lent.add(self.place, at, bytes) };
    }

    /// Whether the section that has the turn will be undone, and how to say so.
    pub(crate) fn doomed(&self) -> &AtomicBool {
        &self.doomed
    }

    /// Whether so much waits to be durable that a commit should not wait any longer.
    pub(crate) fn is_long(&self) -> bool {
        self.queue.is_long()
    }
}
