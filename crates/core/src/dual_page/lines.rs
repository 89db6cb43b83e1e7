//! Reading, comparing and writing lines: the mapping at work (DPC figure 8).
//!
//! * A read goes to `CPBV xor DBV`, a write to `not CPBV`.
//! * The first write of a page that is in no checkpoint goes straight to its base, and makes every
//!   other line of the page zero there.
//! * A page enters the dirty list once an epoch, so the cost of a commit grows with its writes.

use super::fault::Fault;
use super::map::{Entry, EntryIndex, Flags, HOT, Key, Life};
use super::space::Role;
use super::{Cause, DualPage};
use crate::compare::{differing_in_homes, differing_lines, nonzero_lines};
use crate::error::{Error, Result};
use crate::geometry::{LineMask, PageId, PageLines};
use crate::medium::{Medium, Offset, Path};
use crate::scheme::{Pressure, Scheme};
use crc32c::crc32c;
use std::ops::Range;
use std::sync::PoisonError;

impl<M: Medium> DualPage<M> {
    /// The key of a page that can be.
    #[inline]
    pub(super) fn key(&self, page: PageId) -> Key {
        Key(page.0 + self.table.context_keys())
    }

    /// Where a line of page `number` of the medium lies.
    pub(super) fn at(&self, number: u64, line: usize) -> Offset {
        number * self.geometry().page_bytes() as u64 + (line * self.geometry().line_bytes()) as u64
    }

    /// The entry of a page that is there.
    pub(super) fn newest(&self, key: Key) -> Option<EntryIndex> {
        let place = self.table.find(key)?;
        self.table[place].is(Flags::NEWEST).then_some(place)
    }

    /// Visits the newest version of `lines`, in runs that lie together on the medium.
    fn newest_runs(
        &self,
        key: Key,
        place: EntryIndex,
        lines: LineMask,
        mut visit: impl FnMut(Offset, Range<usize>) -> Result<()>,
    ) -> Result<()> {
        let entry = &self.table[place];
        let mut base = lines;
        if entry.is(Flags::FALLBACK) {
            if let Some(redo) = self.fallback.pages.get(&key) {
                redo.runs(lines, self.geometry().line_bytes())
                    .into_iter()
                    .try_for_each(|(at, run)| visit(at, run))?;
                base = lines & !redo.lines;
            }
        } else if let Some(frame) = entry.frame {
            let derivative = lines & entry.newest();
            derivative
                .runs()
                .try_for_each(|run| visit(self.at(frame.number(), run.start), run))?;
            base = lines & !derivative;
        }
        base.runs()
            .try_for_each(|run| visit(self.at(self.table.base(place), run.start), run))
    }

    /// Fills `into` with the newest version of the lines from `first` on, verified where they have checksums.
    pub(super) fn read_key(&self, key: Key, first: usize, into: &mut [u8]) -> Result<()> {
        let lines = LineMask::run(first, into.len() / self.geometry().line_bytes());
        self.read_lines(key, first, lines, into)
    }

    /// As [`DualPage::read_key`], only `lines` of them.
    pub(super) fn read_lines(&self, key: Key, first: usize, lines: LineMask, into: &mut [u8]) -> Result<()> {
        let line = self.geometry().line_bytes();
        let Some(place) = self.newest(key) else {
            into.fill(0);
            return Ok(());
        };
        self.newest_runs(key, place, lines, |at, run| {
            let into = &mut into[(run.start - first) * line..(run.end - first) * line];
            self.medium.read(at, into)?;
            self.verify(key, at, run.start, into)
        })
    }

    /// That the lines from line `first` of a page on, read at byte `at`, have their checksums.
    fn verify(&self, key: Key, at: Offset, first: usize, bytes: &[u8]) -> Result<()> {
        let wrong = self.wrong(at, bytes);
        let Some(sums) = self.sums.as_ref().filter(|_| !wrong.is_empty()) else {
            return Ok(());
        };
        let (k, line_bytes) = (wrong.0.trailing_zeros() as usize, self.geometry().line_bytes());
        let at = at + (k * line_bytes) as u64;
        let found = crc32c(&bytes[k * line_bytes..(k + 1) * line_bytes]);
        let why = format!(
            "line {} of {}: checksum {found:08x}, its commit says {:08x}",
            first + k,
            self.name(key),
            sums.crc(at / line_bytes as u64)
        );
        Err(Error::damaged("line of a page", at, why))
    }

    /// Which of the lines read at byte `at` have another checksum than they must.
    fn wrong(&self, at: Offset, bytes: &[u8]) -> LineMask {
        let sums = self.sums.as_ref();
        sums.map_or(LineMask::NONE, |sums| sums.wrong(at, bytes))
    }

    /// What a page is called.
    pub(super) fn name(&self, key: Key) -> String {
        match key.0.checked_sub(self.table.context_keys()) {
            Some(page) => format!("page {page}"),
            None => format!("page {} of the context", key.0),
        }
    }

    /// Where the newest version of a line lies, if the page is there.
    pub(super) fn place_of(&self, key: Key, line: usize) -> Option<Offset> {
        let place = self.newest(key)?;
        let mut found = None;
        let looked = self.newest_runs(key, place, LineMask::run(line, 1), |at, _| {
            found = Some(at);
            Ok(())
        });
        looked.ok().and(found)
    }

    /// The newest version in place, where it lies in one home.
    pub(super) fn view_key(&self, key: Key, first: usize, len: usize) -> Option<&[u8]> {
        let place = self.newest(key)?;
        let lines = LineMask::run(first, len / self.geometry().line_bytes());
        let at = self.at(self.single_home(place, lines)?, first);
        let bytes = self.medium.view(at, len)?;
        // A damaged one must be read, which says so.
        self.verify(key, at, first, bytes).ok().map(|()| bytes)
    }

    /// The page of the medium that holds the newest version of all of `lines`, if one does.
    fn single_home(&self, place: EntryIndex, lines: LineMask) -> Option<u64> {
        let entry = &self.table[place];
        let derivative = lines & entry.newest();
        match entry.frame {
            _ if entry.is(Flags::FALLBACK) => None,
            _ if derivative.is_empty() => Some(self.table.base(place)),
            Some(frame) if derivative == lines => Some(frame.number()),
            _ => None,
        }
    }

    /// The lines of `bytes`, from line `first` on, that differ from the newest version. One that is damaged differs:
    /// writing it mends it.
    pub(super) fn diff_key(&self, key: Key, first: usize, bytes: &[u8]) -> Result<LineMask> {
        let line = self.geometry().line_bytes();
        if bytes.is_empty() {
            return Ok(LineMask::NONE);
        }
        let Some(place) = self.newest(key) else {
            return Ok(LineMask(nonzero_lines(bytes, line) << first));
        };
        if let Some(differ) = self.diff_views(place, first, bytes) {
            return Ok(differ);
        }
        let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        scratch.clear();
        let old = scratch.append(bytes.len());
        let mut wrong = LineMask::NONE;
        self.newest_runs(key, place, LineMask::run(first, bytes.len() / line), |at, run| {
            let old = &mut old[(run.start - first) * line..(run.end - first) * line];
            self.medium.read(at, old)?;
            wrong = wrong | LineMask(self.wrong(at, old).0 << run.start);
            Ok(())
        })?;
        Ok(wrong | LineMask(differing_lines(old, bytes, line) << first))
    }

    /// As [`DualPage::diff_key`], on the medium's own memory where it is memory.
    fn diff_views(&self, place: EntryIndex, first: usize, bytes: &[u8]) -> Option<LineMask> {
        let entry = &self.table[place];
        let line = self.geometry().line_bytes();
        let lines = LineMask::run(first, bytes.len() / line);
        if let Some(number) = self.single_home(place, lines) {
            let old = self.medium.view(self.at(number, first), bytes.len())?;
            return Some(LineMask(differing_lines(old, bytes, line) << first));
        }
        if entry.is(Flags::FALLBACK) {
            return None;
        }
        let base = self
            .medium
            .view(self.at(self.table.base(place), first), bytes.len())?;
        let derivative = self
            .medium
            .view(self.at(entry.frame?.number(), first), bytes.len())?;
        let there = (entry.newest() & lines).0 >> first;
        Some(LineMask(
            differing_in_homes(base, derivative, there, bytes, line) << first,
        ))
    }

    /// Newer versions of the changed lines of a page. The key says which page it is: one of the page space, or of
    /// the context.
    pub(super) fn write_key(&mut self, key: Key, lines: &PageLines<'_>, cause: Cause) -> Result<Pressure> {
        let place = match self.table.find(key) {
            Some(place) => place,
            None => self.claim_base(key)?,
        };
        match self.table[place].life() {
            Life::Present => self.write_other_home(key, place, lines, cause),
            Life::Absent => self.write_birth(key, place, lines, cause),
            Life::Born => {
                self.post_lines(self.table.base(place), lines.changed, lines, cause)?;
                Ok(Pressure::None)
            }
            Life::Dead => self.write_rebirth(key, place, lines, cause),
        }
    }

    /// The heart: each line of a page of the checkpoint goes to the home that does not hold its checkpoint.
    fn write_other_home(
        &mut self,
        key: Key,
        place: EntryIndex,
        lines: &PageLines<'_>,
        cause: Cause,
    ) -> Result<Pressure> {
        let (entry, changed) = (self.table[place], lines.changed);
        let derivative = changed & entry.target();
        if !derivative.is_empty() {
            let frame = match entry.frame {
                _ if entry.is(Flags::FALLBACK) => None,
                None => self.allocate(key, place, Path::Critical)?,
                frame => frame,
            };
            let Some(frame) = frame else {
                return self.write_fallback(key, place, lines);
            };
            self.post_lines(frame.number(), derivative, lines, cause)?;
            if self.faulty(Fault::WriteBothHomes) {
                self.post_lines(self.table.base(place), derivative, lines, cause)?;
            }
        }
        let base = changed & !derivative;
        if !base.is_empty() {
            self.post_lines(self.table.base(place), base, lines, cause)?;
        }
        self.mark_dirty(key, place, changed);
        Ok(Pressure::None)
    }

    /// An extent for the base page of `key` and its neighbours.
    fn claim_base(&mut self, key: Key) -> Result<EntryIndex> {
        let (extent, virgin) = self.space.claim(&mut self.medium, Role::Base)?;
        let logical = self.table.logical(key);
        self.table.insert(logical, extent, virgin);
        self.claimed.push(logical);
        self.table
            .find(key)
            .ok_or_else(|| Error::Invalid(format!("logical extent {logical} was not claimed")))
    }

    /// The first write of a page that no checkpoint has: straight to its base, all other lines zero.
    fn write_birth(
        &mut self,
        key: Key,
        place: EntryIndex,
        lines: &PageLines<'_>,
        cause: Cause,
    ) -> Result<Pressure> {
        let (base, changed) = (self.table.base(place), lines.changed);
        let virgin = self.table[place].is(Flags::VIRGIN) || self.faulty(Fault::NoZeroFill);
        self.table[place].set(Flags::VIRGIN, false);
        if let Some(sums) = &mut self.sums {
            sums.zeroed(base);
        }
        self.post_lines(base, changed, lines, cause)?;
        if !virgin && changed != LineMask::ALL {
            self.zero_lines(base, !changed, cause)?;
        }
        self.table[place].set(Flags::NEWEST, true);
        self.touch(key, place);
        Ok(Pressure::None)
    }

    /// Makes `lines` of page `number` of the medium zero, those that are not.
    fn zero_lines(&mut self, number: u64, lines: LineMask, cause: Cause) -> Result<()> {
        let page_bytes = self.geometry().page_bytes();
        let mut scratch = std::mem::take(&mut self.scratch);
        let buffer = scratch.get_mut().unwrap_or_else(PoisonError::into_inner);
        buffer.clear();
        let page = buffer.append(page_bytes);
        let mut zeroed = self.medium.read(self.at(number, 0), page);
        if zeroed.is_ok() {
            let dirty = lines & LineMask(nonzero_lines(page, self.geometry().line_bytes()));
            page.fill(0);
            let zeros = PageLines::from(PageId(number), 0, page, self.geometry().line_bytes());
            zeroed = self.post_lines(number, dirty, &zeros, cause);
        }
        self.scratch = scratch;
        zeroed
    }

    /// A page that was discarded in this epoch comes back: both versions exist, and differ in all lines.
    fn write_rebirth(
        &mut self,
        key: Key,
        place: EntryIndex,
        lines: &PageLines<'_>,
        cause: Cause,
    ) -> Result<Pressure> {
        let line_bytes = lines.line_bytes;
        let mut whole = vec![0; self.geometry().page_bytes()];
        for run in lines.changed.runs() {
            whole[run.start * line_bytes..run.end * line_bytes].copy_from_slice(lines.run(run));
        }
        let whole = PageLines::from(lines.page, 0, &whole, line_bytes);
        let room = self.write_other_home(key, place, &whole, cause)?;
        self.table[place].set(Flags::NEWEST, true);
        Ok(room)
    }

    /// No derivative page: the lines go to the fall-back buffer.
    fn write_fallback(&mut self, key: Key, place: EntryIndex, lines: &PageLines<'_>) -> Result<Pressure> {
        let (geometry, changed) = (self.geometry(), lines.changed);
        self.fallback
            .reserve(key, changed, geometry, &mut self.space, &mut self.medium)?;
        self.table[place].set(Flags::FALLBACK, true);
        let redo = self.fallback.pages.get(&key);
        let runs = redo.map(|redo| redo.runs(changed, geometry.line_bytes()));
        for (at, run) in runs.unwrap_or_default() {
            let bytes = lines.run(run);
            self.post(at, bytes, Cause::Fallback)?;
            self.sum(at, bytes);
        }
        self.mark_dirty(key, place, changed);
        Ok(Pressure::Commit)
    }

    /// The lines are written: they are in no checkpoint yet.
    fn mark_dirty(&mut self, key: Key, place: EntryIndex, lines: LineMask) {
        let entry = &mut self.table[place];
        entry.dbv = entry.dbv | lines;
        entry.heat = HOT;
        self.touch(key, place);
    }

    /// The page has something to look at when the epoch ends.
    pub(super) fn touch(&mut self, key: Key, place: EntryIndex) {
        let entry: &mut Entry = &mut self.table[place];
        if !entry.is(Flags::TOUCHED) {
            entry.set(Flags::TOUCHED, true);
            self.touched.push((key, place));
        }
    }

    /// The pages hold nothing from the next commit on.
    pub(super) fn discard_keys(&mut self, keys: Range<Key>) {
        for (key, place) in self.table.places(keys) {
            let entry = &mut self.table[place];
            if !entry.is(Flags::NEWEST) {
                continue;
            }
            entry.set(Flags::NEWEST, false);
            entry.dbv = LineMask::NONE;
            if entry.is(Flags::FALLBACK) {
                entry.set(Flags::FALLBACK, false);
                self.fallback.pages.remove(&key);
            }
            if self.faulty(Fault::FreeAtDiscard) {
                let frame = self.table[place].frame.take();
                frame
                    .into_iter()
                    .for_each(|frame| self.pool.free(frame, &self.space));
            }
            self.touch(key, place);
        }
    }
}
