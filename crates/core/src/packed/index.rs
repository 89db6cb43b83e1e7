//! Which lines of which pages are in the log, and where: in memory only, rebuilt at recovery.
//!
//! * A line of a page is live in one place of the log at most: the newest.
//! * A line of the log counts the lines that are live in it; a batch without any is free to go.
//! * The memory is bounded by the log: a live line takes 4 to 8 bytes here and 64 there, a page with
//!   live lines some 50 here.

use super::layout::SHEET;
use crate::geometry::{LINES_PER_PAGE, LineMask};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

/// Where the live lines of a page are.
#[derive(Clone, Default, Debug)]
struct Lines {
    mask: LineMask,
    /// For each of them in order: lines of 64 to a line of the log, from the start of the ring.
    slots: Vec<u32>,
}

/// A batch in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Batch {
    /// Its first line of the log.
    pub(super) line: u64,
    /// How many.
    pub(super) lines: u32,
}

/// Spreads page numbers; no adversary chooses them.
#[derive(Default)]
pub(super) struct PageHasher(u64);

impl Hasher for PageHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }
    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}

/// The live lines of every page, and the batches they are in, oldest first.
#[derive(Debug)]
pub(super) struct Index {
    pages: HashMap<u64, Lines, BuildHasherDefault<PageHasher>>,
    pub(super) batches: VecDeque<Batch>,
    /// For each line of the ring, the lines live in it.
    live_in: Vec<u16>,
    /// Live lines in all.
    pub(super) live: u64,
}

impl Lines {
    /// The lines of `mask` are in these slots now.
    fn put(&mut self, mask: LineMask, slots: Range<u32>) {
        let old = self.mask & !mask;
        if old.is_empty() {
            self.slots.clear();
            self.slots.extend(slots);
        } else {
            let mut merged = [0; LINES_PER_PAGE];
            let (mut had, mut new) = (self.slots.iter().zip(self.mask.runs().flatten()), slots);
            let mut had = had
                .by_ref()
                .filter(|&(_, line)| !mask.has(line))
                .map(|(&slot, _)| slot);
            let all = self.mask | mask;
            for (slot, line) in merged.iter_mut().zip(all.runs().flatten()) {
                let next = if mask.has(line) { new.next() } else { had.next() };
                *slot = next.unwrap_or_default();
            }
            self.slots.clear();
            self.slots.extend_from_slice(&merged[..all.count()]);
        }
        self.mask = self.mask | mask;
    }
}

impl Index {
    pub(super) fn new(ring_lines: u64) -> Index {
        Index {
            pages: HashMap::default(),
            batches: VecDeque::new(),
            live_in: vec![0; ring_lines as usize],
            live: 0,
        }
    }

    /// The ring has that many lines now; those that it no longer has are not in use.
    pub(super) fn fit(&mut self, ring_lines: u64) {
        self.live_in.resize(ring_lines as usize, 0);
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        let slots: usize = self.pages.values().map(|lines| lines.slots.capacity() * 4).sum();
        let map = self.pages.capacity() * (size_of::<(u64, Lines)>() + 1);
        (slots + map + self.live_in.len() * 2 + self.batches.capacity() * size_of::<Batch>()) as u64
    }

    /// Pages with a live line in the log.
    pub(super) fn pages(&self) -> impl ExactSizeIterator<Item = u64> {
        self.pages.keys().copied()
    }

    /// Whether the page has a live line in the log.
    pub(super) fn has(&self, page: u64) -> bool {
        self.pages.contains_key(&page)
    }

    /// The live lines of a page.
    pub(super) fn lines(&self, page: u64) -> LineMask {
        self.pages.get(&page).map_or(LineMask::NONE, |lines| lines.mask)
    }

    /// Where those of `wanted` are that are live: lines and slots, in order of the lines.
    pub(super) fn slots(&self, page: u64, wanted: LineMask) -> impl Iterator<Item = (usize, u32)> {
        let lines = self.pages.get(&page);
        let all = lines.into_iter().flat_map(|lines| {
            let numbers = lines.mask.runs().flatten();
            numbers.zip(lines.slots.iter().copied())
        });
        all.filter(move |&(line, _)| wanted.has(line))
    }

    fn first_slot(&self, batch: Batch) -> u32 {
        (batch.line % self.live_in.len() as u64 * SHEET) as u32
    }

    /// Whether a live line of the page is in the batch.
    pub(super) fn is_in(&self, page: u64, batch: Batch) -> bool {
        let start = self.first_slot(batch);
        let slots = start..start + batch.lines * SHEET as u32;
        let lines = self.pages.get(&page);
        lines.is_some_and(|lines| lines.slots.iter().any(|slot| slots.contains(slot)))
    }

    /// Lines live in the batch.
    pub(super) fn live_in(&self, batch: Batch) -> u64 {
        let first = self.first_slot(batch) as usize / SHEET as usize;
        let lines = &self.live_in[first..first + batch.lines as usize];
        lines.iter().map(|&live| u64::from(live)).sum()
    }

    /// A batch was appended, without a strip yet.
    pub(super) fn push(&mut self, line: u64, lines: u32) {
        self.batches.push_back(Batch { line, lines });
    }

    /// The batch that was appended last holds lines `mask` of a page, from byte `at` of it on.
    pub(super) fn insert(&mut self, page: u64, mask: LineMask, at: usize, line_bytes: usize) {
        let Some(&batch) = self.batches.back() else {
            return;
        };
        let first = self.first_slot(batch) + (at / line_bytes) as u32;
        let count = mask.count() as u32;
        let lines = self.pages.entry(page).or_default();
        for (slot, line) in lines.slots.iter().zip(lines.mask.runs().flatten()) {
            self.live_in[(slot / SHEET as u32) as usize] -= u16::from(mask.has(line));
        }
        self.live += (mask & !lines.mask).count() as u64;
        lines.put(mask, first..first + count);
        for slot in first..first + count {
            self.live_in[(slot / SHEET as u32) as usize] += 1;
        }
    }

    /// Nothing of the page is in the log any more. Whether something was.
    pub(super) fn drop_page(&mut self, page: u64) -> bool {
        let Some(lines) = self.pages.remove(&page) else {
            return false;
        };
        for slot in &lines.slots {
            self.live_in[(slot / SHEET as u32) as usize] -= 1;
        }
        self.live -= lines.slots.len() as u64;
        true
    }

    /// Every live line with its slot, in order: to compare.
    pub(super) fn in_order(&self) -> Vec<(u64, usize, u32)> {
        let slots = |page| {
            let slots = self.slots(page, LineMask::ALL);
            slots.map(move |(line, slot)| (page, line, slot))
        };
        let mut all: Vec<_> = self.pages().flat_map(slots).collect();
        all.sort_unstable();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_strips_win_and_batches_empty() {
        let mut index = Index::new(128);
        let live = |index: &Index| {
            let batches = index.batches.iter();
            batches.map(|&batch| index.live_in(batch)).collect::<Vec<_>>()
        };
        index.push(120, 3);
        index.insert(7, LineMask(0b1111), 64 * 3, 64);
        index.insert(9, LineMask(0b1), 64 * 7, 64);
        index.push(123, 5);
        index.insert(7, LineMask(0b0110), 64, 64);
        assert_eq!(
            (index.lines(7), index.live, live(&index)),
            (LineMask(0b1111), 5, vec![3, 2])
        );
        let (first, second) = (120 * 64, 123 * 64);
        let expected = [
            (7, 0, first + 3),
            (7, 1, second + 1),
            (7, 2, second + 2),
            (7, 3, first + 6),
            (9, 0, first + 7),
        ];
        assert_eq!(index.in_order(), expected);
        assert!(index.is_in(7, index.batches[0]) && index.is_in(7, index.batches[1]));
        assert!(!index.is_in(9, index.batches[1]));
        index.push(128, 2);
        index.insert(7, LineMask::ALL, 64, 64);
        assert_eq!(live(&index), [1, 0, 64]);
        assert!(index.drop_page(7) && !index.drop_page(7));
        assert_eq!((index.live, index.pages().len()), (1, 1));
        assert_eq!(live(&index), [1, 0, 0], "round the ring");
    }
}
