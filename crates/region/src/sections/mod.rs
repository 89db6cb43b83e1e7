//! Failure-atomic sections (SSP): a change is all or nothing after any crash, and durable when its call returns.
//!
//! ```text
//! turn:    | section 1 | section 2 |  readers  | section 3 |
//! commits:             | group: 1  | group: 2            | group: 3
//! ```
//!
//! * The sections of a region take turns, and readers share: what runs has the state between two sections.
//! * A section's changed lines are taken while it has the turn (`queue.rs`); they become durable after it, in order, and
//!   threads that wait share a commit (`commit.rs`).
//! * A section that fails leaves memory as it was (`undo.rs`), before anyone else has the turn.
//! * Locks are taken in this order: the turn, or the right to commit; then the open group, the group on its way, the
//!   store. A thread that has the turn never asks for the right to commit.

mod atomic;
mod commit;
mod deadline;
mod handle;
mod queue;
mod undo;

pub use handle::Handle;

use crate::epochs::{Checkpoints, Progress};
use crate::error::{Error, Result};
use crate::marks;
use crate::region::{Inner, Update};
use crate::statistics::Counters;
use crate::store::Shared;
use crate::superblock::Superblock;
use crate::window::{Place, WINDOWS};
use commit::Committer;
pub(crate) use deadline::Behind;
use queue::Queue;
use std::cell::Cell;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use twinpage_core::Scheme;

/// A section in progress: proof that it has the turn, and that writing is allowed. It is an [`Update`] too, so that it
/// makes what a region holds.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use twinpage::collections::Vec;
/// use twinpage::{Handle, Region, Section};
///
/// fn add<'r>(names: &Handle<Vec<'static, twinpage::collections::String<'static>>>, section: &Section<'r>) {
///     names.write(section).push(section.string("Ada"));
/// }
/// let region = Region::options().sections().open("names.twin")?;
/// let names = region.shared("names")?;
/// region.atomic(|section| -> twinpage::Result<()> {
///     add(&names, section);
///     Ok(())
/// })?;
/// assert_eq!(region.read(|view| names.read(view).len()), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Section<'r> {
    update: Update<'r>,
    doomed: &'r AtomicBool,
}

impl<'r> Deref for Section<'r> {
    type Target = Update<'r>;
    #[inline]
    fn deref(&self) -> &Update<'r> {
        &self.update
    }
}

impl Section<'_> {
    /// The section will be undone, whatever its closure returns. Gives the error to leave it with.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # std::env::set_current_dir(folder.path())?;
    /// use twinpage::{Error, Region};
    ///
    /// let region = Region::options().sections().open("count.twin")?;
    /// let count = region.shared::<u64>("count")?;
    /// let undone = region.atomic(|section| -> twinpage::Result<()> {
    ///     *count.write(section) = 7;
    ///     Err(section.abort())
    /// });
    /// assert!(matches!(undone, Err(Error::Aborted)));
    /// assert_eq!(region.read(|view| *count.read(view)), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn abort(&self) -> Error {
        self.doomed.store(true, Ordering::Relaxed);
        Error::Aborted
    }
}

/// What a region of sections has besides its store.
#[derive(Debug)]
pub(crate) struct Sections {
    turn: RwLock<()>,
    queue: Arc<Queue>,
    /// The scopes of the section that has the turn, one inside the other.
    scopes: Mutex<Vec<u64>>,
    /// That section will be undone.
    doomed: AtomicBool,
}

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
struct Reading<'a> {
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

impl Sections {
    /// Sections of a region whose store is as it is in memory, and what makes them durable.
    pub(crate) fn begin<S: Scheme + Send + 'static>(
        scheme: Shared<S>,
        place: Place,
        progress: &Arc<Progress>,
        counters: &Arc<Counters>,
    ) -> (Sections, Box<dyn Checkpoints>) {
        let queue = Arc::new(Queue::new(scheme.lock().geometry()));
        let (_, last) = progress.last();
        let superblock =
            last.unwrap_or_else(|| Superblock::now(place.base().addr(), place.bytes(), place.bound()));
        marks::start_listing(place);
        let committer = Committer {
            scheme,
            queue: queue.clone(),
            progress: progress.clone(),
            counters: counters.clone(),
            place,
            superblock,
            context: superblock.encode(),
        };
        let sections = Sections {
            turn: RwLock::new(()),
            queue,
            scopes: Mutex::default(),
            doomed: AtomicBool::new(false),
        };
        (sections, Box::new(committer))
    }

    /// The turn. What found no room was undone.
    fn take_turn(&self, inner: &Inner) -> Result<RwLockWriteGuard<'_, ()>> {
        let turn = write(&self.turn);
        if self.queue.is_lost() {
            self.undo_lost(inner)?;
        }
        Ok(turn)
    }

    /// A share of the turn.
    fn share_turn(&self, inner: &Inner) -> RwLockReadGuard<'_, ()> {
        loop {
            let turn = read(&self.turn);
            if !self.queue.is_lost() || inner.progress().is_poisoned() {
                return turn;
            }
            drop(turn);
            // An error poisons the store.
            drop(self.take_turn(inner));
        }
    }

    /// Undoes the groups that found no room, if there are any. Not while this thread has the turn or a share.
    pub(crate) fn settle_loss(&self, inner: &Inner) {
        if self.queue.is_lost() {
            // An error poisons the store.
            drop(self.take_turn(inner));
        }
    }

    /// With the turn: undoes the groups that found no room.
    #[cold]
    fn undo_lost(&self, inner: &Inner) -> Result<()> {
        let progress = inner.progress();
        progress.check_poison()?;
        let why = self.queue.why_lost().unwrap_or_default();
        let undone = undo::undo_groups(inner.place(), inner.store(), &self.queue);
        undone.map_err(|error| poison(progress, error))?;
        progress.sections_undone(&why);
        self.queue.forget();
        Ok(())
    }

    /// Whether the closure that the number was given to is running.
    pub(crate) fn is_open(&self, scope: u64) -> bool {
        lock(&self.scopes).contains(&scope)
    }
}

/// Memory could not be put back: nothing later may become durable.
fn poison(progress: &Progress, error: Error) -> Error {
    progress.set_poison(match error {
        Error::Store(error) => error,
        other => twinpage_core::Error::Invalid(other.to_string()),
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
