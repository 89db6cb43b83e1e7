//! The log at work: batches appended at its head, pages folded at its tail.
//!
//! ```text
//!      tail                                head
//!  ... | batch | batch |      ...  | batch | to the end of the sheet: free | next sheet ...  (a ring)
//!        oldest: its live pages are folded, then it goes
//! ```
//!
//! * Before a batch is put together, the rest of the sheet it goes to is free.
//! * Everything here is done to the newest version below, one thing after the other; only the commit
//!   below makes any of it count.

use super::batch::{Directory, Header};
use super::fault::Fault;
use super::index::Batch;
use super::layout::SHEET;
use super::{Packed, batch};
use crate::error::{Error, Result};
use crate::geometry::{LineMask, PageLines};
use crate::medium::Cause;
use crate::scheme::{Pressure, Scheme};
use crate::shell::Mechanism;
use std::collections::BTreeSet;

impl<S: Mechanism> Packed<S> {
    /// Lays `lines` of a page, all of them live in the log, over `into`, which begins at line `first`.
    pub(super) fn read_strips(
        &self,
        page: u64,
        lines: LineMask,
        first: usize,
        into: &mut [u8],
    ) -> Result<()> {
        let (line, page_bytes) = (self.layout.line_bytes(), self.layout.page_bytes());
        let mut slots = [(0, 0); SHEET as usize];
        let mut count = 0;
        for (at, (k, slot)) in slots.iter_mut().zip(self.index.slots(page, lines)) {
            *at = (u64::from(slot), k);
            count += 1;
        }
        let slots = &mut slots[..count];
        slots.sort_unstable();
        let mut bytes = Vec::new();
        // Those in one line of the log, or in neighbours of one sheet, are read at once.
        let together = |a: &(u64, usize), b: &(u64, usize)| {
            let (a, b) = (a.0 / SHEET, b.0 / SHEET);
            b - a <= 1 && a / SHEET == b / SHEET
        };
        for group in slots.chunk_by(together) {
            let (from, to) = (group[0].0 / SHEET, group[group.len() - 1].0 / SHEET);
            let (sheet, place) = self.root.log(from);
            bytes.resize((to - from + 1) as usize * page_bytes, 0);
            self.below.read(sheet, place, &mut bytes)?;
            for &(slot, k) in group {
                let at = (slot - from * SHEET) as usize * line;
                into[(k - first) * line..(k - first + 1) * line].copy_from_slice(&bytes[at..at + line]);
            }
        }
        Ok(())
    }

    /// Gives every page that waits its place: whole to its own, or a strip in the log.
    pub(super) fn place_waiting(&mut self) -> Result<Pressure> {
        let mut room = self.place_whole()?;
        while !self.waiting.is_empty() || !self.drops.is_empty() {
            self.enter_sheet()?;
            if self.append()? == Pressure::Commit {
                room = Pressure::Commit;
            }
        }
        Ok(room)
    }

    /// Writes those pages that wait whole that are better written so.
    fn place_whole(&mut self) -> Result<Pressure> {
        let most = self.tuning.whole_lines as usize;
        let few = self.waiting.len() <= 2 && self.appended == 0 && self.drops.is_empty();
        let few = few && self.waiting.iter().all(|page| !self.index.has(page.lines.page.0));
        let whole: Vec<u64> = self
            .waiting
            .iter()
            .filter(|page| few || page.born || page.lines.held.count() >= most)
            .map(|page| page.lines.page.0)
            .collect();
        let mut room = Pressure::None;
        for page in whole {
            if self.write_newest_whole(page)? == Pressure::Commit {
                room = Pressure::Commit;
            }
        }
        Ok(room)
    }

    /// Writes the newest version of a page to its own place.
    fn write_newest_whole(&mut self, page: u64) -> Result<Pressure> {
        let mut bytes = std::mem::take(&mut self.page);
        bytes.resize(self.layout.page_bytes(), 0);
        let read = match self.faulty(Fault::NoZeroFill) {
            true => self.read_without_birth(page, &mut bytes),
            false => self.read_page(page, 0, &mut bytes),
        };
        let written = read.and_then(|()| self.write_whole(page, &bytes));
        self.page = bytes;
        self.waiting.remove(page);
        written
    }

    /// The fault [`Fault::NoZeroFill`]: a new page over the old bytes of its place.
    fn read_without_birth(&self, page: u64, bytes: &mut [u8]) -> Result<()> {
        self.read_own_place(page, 0, bytes)?;
        if let Some(waiting) = self.waiting.get(page) {
            let line = self.layout.line_bytes();
            for run in waiting.lines.held.runs() {
                bytes[run.start * line..run.end * line].copy_from_slice(waiting.lines.run(run));
            }
        }
        Ok(())
    }

    /// Makes the rest of the sheet at the head free: its lines in the ring are folded.
    fn enter_sheet(&mut self) -> Result<()> {
        let end = (self.head / SHEET + 1) * SHEET;
        while end - self.tail > self.root.lines() {
            if self.faulty(Fault::ForgetFold) {
                self.forget_oldest();
            }
            self.fold_oldest(u64::MAX)?;
        }
        Ok(())
    }

    /// The fault [`Fault::ForgetFold`]: the oldest batch is lost.
    fn forget_oldest(&mut self) {
        if let Some(&batch) = self.index.batches.front() {
            let mut pages: Vec<u64> = self.index.pages().collect();
            pages.retain(|&page| self.index.is_in(page, batch));
            pages.into_iter().for_each(|page| self.void(page));
        }
    }

    /// Puts one batch together, of drops and waiting lines, and writes it.
    fn append(&mut self) -> Result<Pressure> {
        let sizes = self.sizes();
        let limit = (SHEET - self.head % SHEET) as usize * sizes.page;
        self.builder.clear(sizes);
        while let Some(&page) = self.drops.first() {
            if !self.builder.drop_page(page, sizes, limit) {
                break;
            }
            self.drops.pop_first();
        }
        // A strip may not come before the drop of older lines of its page.
        while self.drops.is_empty() {
            let Some(page) = self.waiting.first() else {
                break;
            };
            if !self.builder.strip(page.lines, sizes, limit) {
                break;
            }
            self.waiting.pop();
        }
        let (bytes, content) = self.builder.finish(self.head, self.root.seed(), sizes);
        let lines = bytes.len() / sizes.page;
        let (page, first) = self.root.log(self.head);
        let before = self.below.written();
        let room = self
            .below
            .write(PageLines::from(page, first, bytes, sizes.page))?;
        self.count(Cause::Log, before);
        self.index.push(self.head, lines as u32);
        let mut at = content;
        for &(page, mask) in &self.builder.packed {
            self.index.insert(page, mask, at, sizes.line);
            at += mask.count() * sizes.line;
        }
        self.head += lines as u64;
        self.appended += lines as u64;
        Ok(room)
    }

    /// Finds the pages that the next epoch will fold: those with live lines in the oldest batches, as many as
    /// are earned, and so many that what it appends finds room if it is no more than twice that of the last.
    pub(super) fn find_wanted(&mut self) -> Result<()> {
        let earned = (self.credit / self.layout.page_bytes() as u64) as usize;
        let most = (self.root.lines() / 2) as usize;
        let free = self.root.lines() - (self.head - self.tail);
        let needed = self.tail + (2 * self.lately).saturating_sub(free);
        let mut wanted = BTreeSet::new();
        for &batch in &self.index.batches {
            let least = if batch.line < needed {
                most
            } else {
                earned.min(most)
            };
            if wanted.len() >= least {
                break;
            }
            if self.index.live_in(batch) > 0 {
                let strips = self.read_directory(batch)?.strips.into_iter();
                let live = strips
                    .map(|(page, _)| page)
                    .filter(|&page| self.index.is_in(page, batch));
                let new = live
                    .filter(|page| !wanted.contains(page))
                    .take(least - wanted.len());
                let new: Vec<u64> = new.collect();
                wanted.extend(new);
            }
        }
        self.wanted.clear();
        self.wanted.extend(wanted);
        Ok(())
    }

    /// Folds a page that is given whole.
    pub(super) fn fold_given(&mut self, page: u64, bytes: &[u8]) -> Result<Pressure> {
        let before = self.below.written();
        let room = self.write_whole(page, bytes)?;
        self.count(Cause::WriteBack, before);
        self.credit = self.credit.saturating_sub(bytes.len() as u64);
        Ok(room)
    }

    /// Folds as much as the appended pages of earlier epochs earned.
    pub(super) fn fold_some(&mut self) -> Result<()> {
        let page = self.layout.page_bytes() as u64;
        while self.credit >= page {
            self.let_go();
            if self.index.batches.is_empty() {
                self.credit = 0;
            } else {
                let folded = self.fold_oldest(self.credit / page)?;
                self.credit = self.credit.saturating_sub(folded * page);
            }
        }
        Ok(())
    }

    /// Pages appended in the last epoch earn folding for the next.
    pub(super) fn earn(&mut self) {
        let fitting = self.fitting_lines();
        let (used, all) = (self.head - self.tail, self.root.lines().min(fitting));
        let bytes = u128::from(self.appended * self.layout.page_bytes() as u64);
        let percent = u128::from(self.tuning.pressure_percent);
        let earned = bytes * percent * u128::from(used) / (100 * u128::from(all.saturating_sub(used).max(1)));
        let most = all * self.layout.page_bytes() as u64;
        self.credit = (self.credit + earned.min(most.into()) as u64).min(most);
        self.lately = self.appended;
        self.appended = 0;
        self.wanted.clear();
    }

    /// Folds up to `most` pages that have live lines in the oldest batch, and lets it go when there
    /// are none left. Says how many pages it folded.
    fn fold_oldest(&mut self, most: u64) -> Result<u64> {
        let mut folded = 0;
        let line = self.index.batches.front().map_or(self.head, |batch| batch.line);
        let oldest = self.index.batches.front();
        if let Some(&batch) = oldest.filter(|&&batch| self.index.live_in(batch) > 0) {
            let directory = self.read_directory(batch)?;
            let mut pages = directory.strips.iter().map(|&(page, _)| page);
            while let Some(page) = pages.next().filter(|_| folded < most) {
                if self.index.is_in(page, batch) {
                    self.fold(page)?;
                    folded += 1;
                }
            }
        }
        self.let_go();
        match self.index.batches.front() {
            Some(batch) if folded < most && batch.line == line => {
                let (sheet, place) = self.root.log(line);
                let at = self.below.newest_place(sheet, place).unwrap_or_default();
                let why = format!("line {line} of the log: there are lines in it of no page");
                Err(Error::damaged("batch of packed lines", at, why))
            }
            _ => Ok(folded),
        }
    }

    /// A page goes whole to its own place, with its lines in the log and in the waiting list.
    fn fold(&mut self, page: u64) -> Result<()> {
        if self.faulty(Fault::FoldOld) {
            self.index.drop_page(page);
            self.drops.insert(page);
        }
        let before = self.below.written();
        let _ = self.write_newest_whole(page)?;
        self.count(Cause::WriteBack, before);
        Ok(())
    }

    /// The oldest batches that have no live line go.
    pub(super) fn let_go(&mut self) {
        while let Some(&batch) = self.index.batches.front() {
            if self.index.live_in(batch) > 0 {
                break;
            }
            self.index.batches.pop_front();
        }
        self.tail = self.index.batches.front().map_or(self.head, |batch| batch.line);
    }

    /// The directory of a batch.
    pub(super) fn read_directory(&self, batch: Batch) -> Result<Directory> {
        let (_, directory) = read_directory(&self.below, self, batch.line)?;
        Ok(directory)
    }
}

/// The batch at line `line` of the log: how many lines it takes, and its directory.
pub(super) fn read_directory<S: Mechanism>(
    below: &S,
    packed: &Packed<S>,
    line: u64,
) -> Result<(u32, Directory)> {
    let sizes = packed.sizes();
    let (sheet, place) = packed.root.log(line);
    let damaged = |why: String| {
        let at = below.newest_place(sheet, place).unwrap_or_default();
        Error::damaged(
            "batch of packed lines",
            at,
            format!("line {line} of the log: {why}"),
        )
    };
    let mut bytes = vec![0; sizes.page];
    below.read(sheet, place, &mut bytes)?;
    let header = Header::read(&bytes, line, sizes).map_err(damaged)?;
    if header.directory > sizes.page {
        bytes.resize(header.directory.next_multiple_of(sizes.page), 0);
        below.read(sheet, place + 1, &mut bytes[sizes.page..])?;
    }
    bytes.truncate(header.directory);
    let pages = packed.layout.page_limit();
    let directory =
        batch::Directory::read(header, &bytes, packed.root.seed(), pages, sizes).map_err(damaged)?;
    Ok((header.lines, directory))
}
