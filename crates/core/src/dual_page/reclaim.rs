//! Derivative pages handed out and taken back (DPC 4.4): allocation, reclaim, consolidation.
//!
//! * A clean page's derivative lines are copied home, a fence, a record that says so, a fence: only
//!   then is its derivative page free. The base lines overwritten by the copy hold no version.
//! * A limited pool is replenished by every commit for the needs of the next epoch, in the commit's
//!   own record and fences, so that an allocation rarely has to wait for a reclaim; or by its owner
//!   between commits, where a commit is waited for and reclaim is not.
//! * At rest the extents of a growing pool are emptied in the same way, from the last on, until the pool takes an
//!   eighth of what is stored; each goes back to the medium after the record that frees its pages.
//! * When neither a free nor a clean page is left the allocation fails, and lines go to the fall-back.

use super::fault::Fault;
use super::map::{EntryIndex, Flags, Frame, Key, Life};
use super::snapshot::Version;
use super::{Cause, DualPage};
use crate::error::{Error, Result};
use crate::medium::{Medium, Path};
use crate::scheme::{Pressure, Scheme};
use std::sync::PoisonError;

/// Pages reclaimed at once at least, when an allocation has to wait for it.
const BATCH: u64 = 64;

impl<M: Medium> DualPage<M> {
    /// A derivative page for a page that has none; `None` is an allocation failure.
    /// A reclaim it has to wait for is on `path`.
    pub(super) fn allocate(&mut self, key: Key, place: EntryIndex, path: Path) -> Result<Option<Frame>> {
        if self.exhausted {
            return Ok(None);
        }
        let frame = match self.take_or_grow(key)? {
            Some(frame) => Some(frame),
            None => {
                let before = self.medium.waits(path);
                self.free_pages(BATCH.max(self.pool.info().pages / 8))?;
                self.medium.waits(before);
                self.pool.take(key)
            }
        };
        match frame {
            Some(_) => {
                self.table[place].frame = frame;
                self.table[place].set(Flags::FRESH, true);
            }
            None => {
                self.pool.failures += 1;
                self.exhausted = true;
            }
        }
        Ok(frame)
    }

    /// A derivative page that is free, or can be had by growing the pool.
    fn take_or_grow(&mut self, key: Key) -> Result<Option<Frame>> {
        if let Some(frame) = self.pool.take(key) {
            return Ok(Some(frame));
        }
        if self.pool.may_grow() {
            match self.space.claim(&mut self.medium, self.pool.next_role()) {
                Ok((extent, _)) => self.pool.add(extent),
                Err(Error::Full { .. }) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(self.pool.take(key))
    }

    /// Makes a derivative page ready for a page that will be written (DPC 4.4.3).
    pub(super) fn make_ready(&mut self, key: Key) -> Result<Pressure> {
        let Some(place) = self.table.find(key) else {
            return Ok(Pressure::None);
        };
        let entry = self.table[place];
        if entry.life() == Life::Present && entry.frame.is_none() && !entry.is(Flags::FALLBACK) {
            return Ok(self
                .allocate(key, place, Path::Background)?
                .map_or(Pressure::Commit, |_| Pressure::None));
        }
        Ok(Pressure::None)
    }

    /// Frees up to `wanted` derivative pages of clean pages, with a record of its own.
    pub(super) fn free_pages(&mut self, wanted: u64) -> Result<u64> {
        let keys = self.reclaim_pages(wanted)?;
        self.record_home(&keys)
    }

    /// A record of its own says that the pages, brought home, have no derivative page. Says how many they are.
    fn record_home(&mut self, keys: &[Key]) -> Result<u64> {
        if keys.is_empty() {
            return Ok(0);
        }
        self.change.clear();
        keys.iter().for_each(|&key| self.change.home.push(key));
        match self.persist(self.epoch, Version::Checkpoint) {
            Ok(()) => {
                self.finish_reclaim(keys);
                Ok(keys.len() as u64)
            }
            Err(Error::Full { .. }) => {
                self.abort_reclaim(keys);
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }

    /// Picks clean pages and posts copies of their derivative lines to their bases. They are flagged
    /// as on their way home until [`DualPage::finish_reclaim`] or [`DualPage::abort_reclaim`].
    pub(super) fn reclaim_pages(&mut self, wanted: u64) -> Result<Vec<Key>> {
        let keys = self.pool.victims(wanted, &mut self.table);
        self.copy_all_home(keys)
    }

    /// Empties the last extent of a growing pool that is not small, and gives it back to the medium with those that
    /// were empty. Says whether it did.
    pub(super) fn empty_last_extent(&mut self) -> Result<bool> {
        if self.pool.is_limited() || self.pool.is_small(self.table.pages()) {
            return Ok(false);
        }
        let had = self.pool.info().pages;
        let owners = self.pool.last_owners(&self.table);
        let home = self.copy_all_home(owners)?;
        if self.faulty(Fault::GiveBackEarly) {
            self.give_back_early(&home)?;
        }
        self.record_home(&home)?;
        self.pool.give_back(0, &mut self.space, &mut self.medium)?;
        Ok(self.pool.info().pages < had)
    }

    /// Gives back most extents of a growing pool that have no used page.
    pub(super) fn trim_pool(&mut self) -> Result<()> {
        let spare = self.pool.spare_extents();
        self.pool.give_back(spare, &mut self.space, &mut self.medium)
    }

    /// The mistake [`Fault::GiveBackEarly`].
    fn give_back_early(&mut self, home: &[Key]) -> Result<()> {
        let place = home.first().and_then(|&key| self.table.find(key));
        let Some(frame) = place.and_then(|place| self.table[place].frame) else {
            return Ok(());
        };
        let extent = frame.number() / self.geometry().extent_pages();
        self.medium.discard(self.space.bytes(extent as u32))
    }

    fn copy_all_home(&mut self, mut keys: Vec<Key>) -> Result<Vec<Key>> {
        keys.sort_unstable();
        let mut home = Vec::with_capacity(keys.len());
        for key in keys {
            let Some(place) = self.table.find(key) else {
                continue;
            };
            if self.table[place].is(Flags::FRESH) {
                // Pre-allocated and never written: no other record refers to it.
                let frame = self.table[place].consolidate();
                frame
                    .into_iter()
                    .for_each(|frame| self.pool.free(frame, &self.space));
                continue;
            }
            match self.copy_home(place) {
                Ok(()) => {
                    self.table[place].set(Flags::RECLAIMING, true);
                    home.push(key);
                }
                Err(Error::Full { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(home)
    }

    /// Posts a copy of the page's derivative lines to its base.
    fn copy_home(&mut self, place: EntryIndex) -> Result<()> {
        let (cpbv, base) = (self.table[place].cpbv, self.table.base(place));
        let Some(frame) = self.table[place].frame else {
            return Ok(());
        };
        for run in cpbv.runs() {
            let len = run.len() * self.geometry().line_bytes();
            self.copy(
                self.at(frame.number(), run.start),
                self.at(base, run.start),
                len,
                Cause::Reclaim,
            )?;
        }
        Ok(())
    }

    /// Posts a copy of `len` bytes of lines from one place of the medium to another, with their checksums.
    pub(super) fn copy(&mut self, from: u64, to: u64, len: usize, cause: Cause) -> Result<()> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let buffer = scratch.get_mut().unwrap_or_else(PoisonError::into_inner);
        buffer.clear();
        let bytes = buffer.append(len);
        self.medium.on(cause);
        let copied = self
            .medium
            .read(from, bytes)
            .and_then(|()| self.post(to, bytes, cause));
        self.scratch = scratch;
        if !self.faulty(Fault::LeaveSum)
            && let (Ok(()), Some(sums)) = (&copied, &mut self.sums)
        {
            sums.copied_bytes(from, to, len);
        }
        copied
    }

    /// The record is durable: the pages have one home, their derivative pages are free.
    pub(super) fn finish_reclaim(&mut self, keys: &[Key]) {
        for &key in keys {
            let Some(place) = self.table.find(key) else {
                continue;
            };
            self.table[place].set(Flags::RECLAIMING, false);
            if let Some(frame) = self.table[place].consolidate() {
                self.pool.free(frame, &self.space);
                self.pool.reclaimed += 1;
            }
        }
        self.exhausted &= keys.is_empty();
    }

    /// The record did not come about: the pages stay as they were.
    pub(super) fn abort_reclaim(&mut self, keys: &[Key]) {
        for &key in keys {
            if let Some(place) = self.table.find(key) {
                self.table[place].set(Flags::RECLAIMING, false);
            }
        }
    }

    /// Pages to free so that a limited pool has as many as were handed out since the last time.
    pub(super) fn find_shortage(&mut self) -> u64 {
        let demand = std::mem::take(&mut self.pool.demand);
        match self.pool.is_limited() {
            true => demand.saturating_sub(self.pool.room()),
            false => 0,
        }
    }
}
