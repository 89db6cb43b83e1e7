//! Pages copied while the program still runs, so that a stop copies those that were written last: pre-copy, as in the
//! live migration of virtual machines.
//!
//! * A page is protected first, and copied then. One that is written meanwhile is found at the stop, like any other: its
//!   copy does not count. Nor does that of a page that is gone by then.
//! * The copies that count are given to the engine after the stop ([`Precopied`]).
//! * It is done for anonymous memory, in chunks without hot pages: a hot page would be written again before the stop.
//! * Mappings made since the last stop are tracked first. One that takes the place of such a mapping before the stop is
//!   not tracked, so the stop finds it. A mapping that is no longer anonymous memory, or whose tracking failed, is registered
//!   again at the stop, and all of its pages are captured.
//! * What cannot be protected or copied is captured at the stop, which also tells the error.
//! * All is protected at once and copied a little at a time, so that the program's calls are answered in between.

use super::{Found, Memory, overlaps};
use crate::files::Ranges;
use crate::layout::{self, Kind, Mapping};
use crate::pages::page_index;
use std::ops::Range;
use twinpage_core::{Buffer, Capture, Later, PageId, Piece};
use twinpage_os::proc_file;
use twinpage_os::remote::{Process, Remote};
use twinpage_os::tracker::{END_OF_MEMORY, PAGE};

/// Fewer cold pages are copied at the stop: looking for them twice takes longer. How many there are is told by the last
/// stop, and by how much larger the process is since the last look.
const WORTHWHILE: u64 = 128;

/// Pages that are copied before a look at the program's calls: some 100 µs.
const SOME: usize = 128;

/// Copies of pages of one process.
#[derive(Debug, Default)]
pub struct Copies {
    /// The pages, in order, each once.
    pages: Vec<u64>,
    /// What the first of them held, back to back: all of them, once the copying is over.
    bytes: Buffer,
    /// Pages of the store that hold nothing more.
    discarded: Vec<Range<PageId>>,
    /// Where each goes in the store, if its copy counts. Empty before the stop.
    pieces: Vec<Option<Piece>>,
}

impl Copies {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// How many count.
    pub(super) fn count(&self) -> u64 {
        self.pieces.iter().flatten().count() as u64
    }

    /// Leaves out those that do not count.
    fn compact(&mut self) {
        const BYTES: usize = PAGE as usize;
        let mut kept = 0;
        for at in (0..self.pieces.len()).filter(|at| self.pieces[*at].is_some()) {
            if at > kept {
                self.bytes.copy_within(at * BYTES..(at + 1) * BYTES, kept * BYTES);
            }
            kept += 1;
        }
        self.bytes.truncate(kept * BYTES);
        self.pieces.retain(Option::is_some);
    }
}

/// A mapping that was tracked before the stop.
#[derive(Debug)]
pub(super) struct Tracked {
    range: Range<u64>,
    /// The kernel refused none of it.
    is_tracked: bool,
}

impl Tracked {
    /// At the stop: whether it leaves `mapping` in doubt.
    pub(super) fn is_doubtful(&self, mapping: &Mapping) -> bool {
        let overlaps = self.range.start < mapping.end && mapping.start < self.range.end;
        overlaps && (!self.is_tracked || mapping.kind != Kind::Anonymous)
    }
}

/// The copies of a checkpoint, of all processes: what the engine is given after the stop.
#[derive(Debug, Default)]
pub struct Precopied {
    all: Vec<Copies>,
    given: usize,
}

impl Precopied {
    /// Adds those of a process.
    pub fn add(&mut self, copies: Option<Copies>) {
        self.all.extend(copies);
    }

    /// How many count.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.all.iter().map(Copies::count).sum()
    }

    /// Nothing when there are none.
    #[must_use]
    pub fn into_later(self) -> Option<Box<dyn Later>> {
        (!self.all.is_empty()).then(|| Box::new(self) as Box<dyn Later>)
    }

    /// Their places in the store.
    pub fn pieces(&self) -> Vec<Piece> {
        let pieces = self.all.iter().flat_map(|copies| &copies.pieces);
        pieces.copied().flatten().collect()
    }

    /// The memory they lay in.
    pub fn into_buffers(self) -> impl Iterator<Item = Buffer> {
        self.all.into_iter().map(|copies| copies.bytes)
    }
}

impl Later for Precopied {
    fn more(&mut self, into: &mut Capture) -> bool {
        let Some(copies) = self.all.get_mut(self.given) else {
            return false;
        };
        self.given += 1;
        copies.compact();
        into.pieces.extend(copies.pieces.iter().flatten());
        std::mem::swap(&mut into.bytes, &mut copies.bytes);
        true
    }
}

impl Memory {
    /// Protects pages that were written, to be copied while the program runs. `spare` has memory for copies. Whether there
    /// are any.
    pub fn begin_precopy(&mut self, pid: i32, spare: &mut Vec<Buffer>) -> bool {
        self.owe_copies();
        if self.owes() {
            return false; // the last try failed, and the next may fail as well
        }
        let resident = resident_pages(pid);
        let grown = resident.saturating_sub(std::mem::replace(&mut self.resident, resident));
        if self.cold.max(grown) < WORTHWHILE {
            return false;
        }
        let mut parts = self.cold_parts();
        if grown >= WORTHWHILE {
            self.track_fresh(pid, &mut parts);
        }
        self.regions.clear();
        let taken = (parts.within(0..END_OF_MEMORY))
            .try_for_each(|range| self.tracker.take_content(range, &mut self.regions));
        for region in &self.regions {
            for address in (region.start..region.end).step_by(PAGE as usize) {
                let _ = self.pages.piece(address, false, &mut self.early.discarded);
                self.early.pages.push(address);
            }
        }
        assert!(
            self.early.pages.is_sorted_by(|a, b| a < b),
            "each page once, in order"
        );
        if taken.is_err() {
            self.owe_copies();
        }
        if self.early.pages.is_empty() {
            return false;
        }
        self.early.bytes = spare.pop().unwrap_or_default();
        self.early.bytes.clear();
        true
    }

    /// Copies some more of those pages. Whether there are others.
    pub fn precopy(&mut self, process: &Process) -> bool {
        const BYTES: usize = PAGE as usize;
        let done = self.early.bytes.len() / BYTES;
        let some = &self.early.pages[done..self.early.pages.len().min(done + SOME)];
        self.ranges.clear();
        for &start in some {
            match self.ranges.last_mut() {
                Some(last) if last.start + last.len as u64 == start => last.len += BYTES,
                _ => self.ranges.push(Remote { start, len: BYTES }),
            }
        }
        let place = self.early.bytes.append(some.len() * BYTES);
        if process.gather(&self.ranges, place).is_err() {
            self.owe_copies();
        }
        self.early.bytes.len() < self.early.pages.len() * BYTES
    }

    /// At the stop: what was not copied in time must be captured.
    pub(super) fn end_precopy(&mut self, into: &mut Capture) {
        into.discarded.append(&mut self.early.discarded);
        if self.early.bytes.len() < self.early.pages.len() * PAGE as usize {
            self.owe_copies();
        }
    }

    /// Anonymous memory in chunks without hot pages, as of the last stop.
    fn cold_parts(&self) -> Ranges {
        let cold = (self.strategies().into_iter()).filter(|(_, stays_writable)| !stays_writable);
        let cold: Ranges = cold.map(|(range, _)| range).collect();
        let mappings = self.mappings().iter();
        let anonymous = mappings.filter(|mapping| mapping.kind == Kind::Anonymous);
        anonymous
            .flat_map(|mapping| cold.within(mapping.range()))
            .collect()
    }

    /// Begins to track anonymous memory that was mapped since the last stop, and adds it to `parts`.
    fn track_fresh(&mut self, pid: i32, parts: &mut Ranges) {
        if self.find_untracked().is_err() {
            return;
        }
        let anonymous = (layout::mappings(pid).into_iter()).filter(|mapping| mapping.kind == Kind::Anonymous);
        for mapping in anonymous.filter(|mapping| overlaps(&self.regions, mapping)) {
            let range = mapping.range();
            (self.pages).forget(range.clone(), &mut self.early.discarded, |_| true);
            let is_tracked = self.tracker.register_as_written(range.clone()).is_ok();
            if is_tracked {
                parts.add(range.clone());
            }
            self.tracked_early.push(Tracked { range, is_tracked });
        }
    }

    /// At the stop: which copies count. Those of pages that were found written do not, nor those of pages that are
    /// stored no longer.
    pub(super) fn settle_copies(&mut self, into: &mut Capture) {
        let mut found = self.found.iter().peekable();
        for &address in &self.early.pages {
            let ends_before = |found: &&Found| found.start + found.pages * PAGE <= address;
            while found.next_if(|next| ends_before(next)).is_some() {}
            let written = found.peek().is_some_and(|next| next.start <= address);
            let piece = (!written && self.pages.find(address).is_some()).then(|| {
                let was_left = self.pages.chunk(address).find_written(page_index(address));
                self.pages
                    .piece(address, self.compare || was_left, &mut into.discarded)
            });
            self.early.pieces.push(piece);
        }
    }

    /// The copies, after a stop at which this memory was captured. If it was not, their pages must be captured.
    pub fn take_copies(&mut self) -> Option<Copies> {
        if self.early.pieces.is_empty() {
            self.owe_copies();
            return None;
        }
        Some(std::mem::take(&mut self.early))
    }

    /// The capture failed: where the store would have had the copies. All memories owe those pages: one may share pages of
    /// its maker from this very stop on.
    pub fn lose_copies(&mut self) -> Vec<Piece> {
        let mut copies = std::mem::take(&mut self.early);
        self.early.discarded = std::mem::take(&mut copies.discarded);
        let stored = copies
            .pages
            .iter()
            .filter_map(|address| self.pages.find(*address));
        stored.collect()
    }

    fn owe_copies(&mut self) {
        let lost = self.lose_copies();
        self.owe(&lost);
    }
}

/// Pages of a process in memory; none of one that is gone. proc_pid_statm(5).
fn resident_pages(pid: i32) -> u64 {
    let sizes = proc_file::text(format!("/proc/{pid}/statm")).unwrap_or_default();
    let resident = sizes.split(' ').nth(1);
    resident.and_then(|pages| pages.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_that_do_not_count_are_left_out() {
        let piece = |page| Piece {
            page: twinpage_core::PageId(page),
            held: twinpage_core::LineMask::run(0, 64),
            compare: true,
        };
        let mut copies = Copies::default();
        for (page, counts) in [
            (0, false),
            (1, true),
            (2, false),
            (3, true),
            (4, true),
            (5, false),
        ] {
            copies.pages.push(page * PAGE);
            copies.bytes.append(PAGE as usize).fill(page as u8);
            copies.pieces.push(counts.then(|| piece(page)));
        }
        assert_eq!(copies.count(), 3);
        let mut all = Precopied::default();
        all.add(Some(copies));
        assert_eq!(all.pieces(), [piece(1), piece(3), piece(4)]);
        let mut into = Capture::default();
        assert!(all.more(&mut into));
        assert_eq!(into.pieces, [piece(1), piece(3), piece(4)]);
        let held: Vec<u8> = into.bytes.chunks(PAGE as usize).map(|page| page[7]).collect();
        assert_eq!((into.bytes.len(), held), (3 * PAGE as usize, vec![1, 3, 4]));
        assert!(!all.more(&mut into));
        assert_eq!(
            all.pieces(),
            [piece(1), piece(3), piece(4)],
            "they may be lost yet"
        );
    }
}
