//! Which lines of which pages are in the log, and where: in memory only, rebuilt at recovery.
//!
//! * A strip is what one batch holds of one page. Its live lines are those no later strip has; the
//!   strips of a page have no live line in common.
//! * A strip without a live line is forgotten, a batch without one is free to go.
//! * The memory is bounded by the log: a strip takes 24 bytes here and at least a line there.

use super::layout::SHEET;
use crate::geometry::LineMask;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

const NONE: u32 = u32::MAX;

/// What one batch holds of one page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strip {
    /// The lines it was packed with.
    mask: LineMask,
    /// Those no later strip has.
    pub(super) live: LineMask,
    /// Where its first line lies: lines of 64 to a line of the log, from the start of the ring.
    first: u32,
    /// The next strip of the page, or of the free ones.
    next: u32,
}

impl Strip {
    /// Where the line lies, as `first`.
    pub(super) fn slot(&self, line: usize) -> u32 {
        self.first + LineMask(self.mask.0 & !(!0 << line)).count() as u32
    }
}

/// A batch in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Batch {
    /// Its first line of the log.
    pub(super) line: u64,
    /// How many.
    pub(super) lines: u32,
    /// Live lines of its strips.
    pub(super) live: u32,
}

/// Spreads page numbers; nobody chooses them to collide.
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

/// The strips of every page, and the batches they are in, oldest first.
#[derive(Debug)]
pub(super) struct Index {
    ring_lines: u64,
    pages: HashMap<u64, u32, BuildHasherDefault<PageHasher>>,
    strips: Vec<Strip>,
    free: u32,
    pub(super) batches: VecDeque<Batch>,
    /// Live lines in all.
    pub(super) live: u64,
}

impl Index {
    pub(super) fn new(ring_lines: u64) -> Index {
        Index {
            ring_lines,
            pages: HashMap::default(),
            strips: Vec::new(),
            free: NONE,
            batches: VecDeque::new(),
            live: 0,
        }
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        let map = self.pages.capacity() * (size_of::<(u64, u32)>() + 1);
        let strips = self.strips.capacity() * size_of::<Strip>();
        (map + strips + self.batches.capacity() * size_of::<Batch>()) as u64
    }

    /// Pages with a live line in the log.
    pub(super) fn pages(&self) -> impl ExactSizeIterator<Item = u64> {
        self.pages.keys().copied()
    }

    /// Whether the page has a live line in the log.
    pub(super) fn has(&self, page: u64) -> bool {
        self.pages.contains_key(&page)
    }

    /// The strips of a page, the newest first.
    pub(super) fn strips(&self, page: u64) -> impl Iterator<Item = &Strip> {
        let mut at = self.pages.get(&page).copied().unwrap_or(NONE);
        std::iter::from_fn(move || {
            let strip = self.strips.get(at as usize)?;
            at = strip.next;
            Some(strip)
        })
    }

    /// The live lines of a page.
    pub(super) fn lines(&self, page: u64) -> LineMask {
        self.strips(page)
            .fold(LineMask::NONE, |all, strip| all | strip.live)
    }

    /// Whether a live line of the page is in the batch.
    pub(super) fn is_in(&self, page: u64, batch: Batch) -> bool {
        let start = (batch.line % self.ring_lines * SHEET) as u32;
        let slots = start..start + batch.lines * SHEET as u32;
        self.strips(page).any(|strip| slots.contains(&strip.first))
    }

    /// A batch was appended, without a strip yet.
    pub(super) fn push(&mut self, line: u64, lines: u32) {
        self.batches.push_back(Batch { line, lines, live: 0 });
    }

    /// The batch that was appended last holds lines `mask` of a page, from byte `at` of it on.
    pub(super) fn insert(&mut self, page: u64, mask: LineMask, at: usize, line_bytes: usize) {
        self.supersede(page, mask);
        let Some(batch) = self.batches.back_mut() else {
            return;
        };
        batch.live += mask.count() as u32;
        self.live += mask.count() as u64;
        let strip = Strip {
            mask,
            live: mask,
            first: (batch.line % self.ring_lines * SHEET) as u32 + (at / line_bytes) as u32,
            next: self.pages.get(&page).copied().unwrap_or(NONE),
        };
        let place = match self.free {
            NONE => {
                self.strips.push(strip);
                self.strips.len() as u32 - 1
            }
            place => {
                self.free = self.strips[place as usize].next;
                self.strips[place as usize] = strip;
                place
            }
        };
        self.pages.insert(page, place);
    }

    /// Nothing of the page is in the log any more. Whether something was.
    pub(super) fn drop_page(&mut self, page: u64) -> bool {
        let there = self.has(page);
        self.supersede(page, LineMask::ALL);
        there
    }

    /// The lines `mask` of the page are newer elsewhere.
    fn supersede(&mut self, page: u64, mask: LineMask) {
        let Some(&head) = self.pages.get(&page) else {
            return;
        };
        let (mut kept, mut last, mut at) = (NONE, NONE, head);
        while at != NONE {
            let strip = &mut self.strips[at as usize];
            let (gone, first, next) = (strip.live & mask, strip.first, strip.next);
            strip.live = strip.live & !mask;
            if strip.live.is_empty() {
                strip.next = self.free;
                self.free = at;
            } else {
                strip.next = NONE;
                match last {
                    NONE => kept = at,
                    last => self.strips[last as usize].next = at,
                }
                last = at;
            }
            self.forget(first, gone.count() as u32);
            at = next;
        }
        match kept {
            NONE => drop(self.pages.remove(&page)),
            kept => drop(self.pages.insert(page, kept)),
        }
    }

    /// So many lines of the batch that holds `slot` are not live any more.
    fn forget(&mut self, slot: u32, lines: u32) {
        self.live -= u64::from(lines);
        let Some(tail) = self.batches.front().map(|batch| batch.line) else {
            return;
        };
        let place = u64::from(slot) / SHEET + self.ring_lines;
        let line = tail + (place - tail % self.ring_lines) % self.ring_lines;
        let after = self.batches.partition_point(|batch| batch.line <= line);
        self.batches[after - 1].live -= lines;
    }

    /// Every live line with its slot, in order: to compare.
    pub(super) fn in_order(&self) -> Vec<(u64, u8, u32)> {
        let mut all: Vec<_> = self
            .pages()
            .flat_map(|page| {
                self.strips(page).flat_map(move |strip| {
                    let lines = strip.live.runs().flatten();
                    lines.map(move |line| (page, line as u8, strip.slot(line)))
                })
            })
            .collect();
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
        index.push(120, 3);
        index.insert(7, LineMask(0b1111), 64 * 3, 64);
        index.insert(9, LineMask(0b1), 64 * 7, 64);
        index.push(123, 5);
        index.insert(7, LineMask(0b0110), 64, 64);
        assert_eq!(index.lines(7), LineMask(0b1111));
        assert_eq!(
            (index.live, index.batches[0].live, index.batches[1].live),
            (5, 3, 2)
        );
        let slots = [(7, 0), (7, 1), (7, 2), (7, 3), (9, 0)];
        let found: Vec<_> = index
            .in_order()
            .iter()
            .map(|&(page, line, _)| (page, line))
            .collect();
        assert_eq!(found, slots);
        let slot = |page, line| {
            let found = index.in_order();
            found
                .iter()
                .find(|at| (at.0, at.1) == (page, line))
                .map(|at| at.2)
        };
        assert_eq!(
            [slot(7, 0), slot(7, 1), slot(7, 3)],
            [Some(120 * 64 + 3), Some(123 * 64 + 1), Some(120 * 64 + 6)]
        );
        assert!(index.is_in(7, index.batches[0]) && index.is_in(7, index.batches[1]));
        index.push(128, 1);
        index.insert(7, LineMask::ALL, 64, 64);
        assert_eq!(
            index.batches.iter().map(|batch| batch.live).collect::<Vec<_>>(),
            [1, 0, 64]
        );
        assert!(index.drop_page(7) && !index.drop_page(7));
        assert_eq!((index.live, index.pages().len()), (1, 1));
        assert_eq!(index.batches[2].live, 0, "round the ring");
    }
}
