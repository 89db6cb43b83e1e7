//! Changed lines that have no place yet: it is decided when many are known. Those of earlier epochs are durable as
//! payloads (`payload.rs`).
//!
//! * What they hold lies back to back in one buffer, which stays in the processor's cache: from there it is
//!   copied once, to its strip.
//! * Pages are in order, what they hold in the order it came.

use super::layout::Layout;
use crate::geometry::{LineMask, PageId, PageLines};
use std::collections::VecDeque;
use std::ops::Range;

/// Pages that may wait.
const MOST_PAGES: usize = 4096;

/// Lines of one page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page<'a> {
    /// What waits.
    pub(super) lines: PageLines<'a>,
    /// Whether the page was not there before: its other lines are zero.
    pub(super) born: bool,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    mask: LineMask,
    born: bool,
    /// Those written since the last commit.
    fresh: LineMask,
    /// Where its content begins.
    at: usize,
}

/// The lines that wait, by page. Writes come page by page and mostly in order, so the last page is
/// looked at first.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Ascending.
    pages: VecDeque<Entry>,
    /// Their content, and the part without a use.
    bytes: Vec<u8>,
    line: usize,
    /// Pages with lines written since the last commit, as they came.
    fresh: Vec<u64>,
    /// Those lines, at most.
    fresh_lines: usize,
}

impl Waiting {
    pub(super) fn clear(&mut self) {
        self.pages.clear();
        self.bytes.clear();
        self.end_epoch();
    }

    /// What waits is durable.
    pub(super) fn end_epoch(&mut self) {
        let mut fresh = std::mem::take(&mut self.fresh);
        for number in fresh.drain(..) {
            if let Ok(at) = self.find(number) {
                self.pages[at].fresh = LineMask::NONE;
            }
        }
        (self.fresh, self.fresh_lines) = (fresh, 0);
    }

    /// How many lines were written since the last commit, at most.
    pub(super) fn fresh_lines(&self) -> usize {
        self.fresh_lines
    }

    /// Visits the pages with lines written since the last commit, ascending, and says which those are.
    pub(super) fn each_fresh(&mut self, mut each: impl FnMut(Page<'_>, LineMask)) {
        self.fresh.sort_unstable();
        self.fresh.dedup();
        for &number in &self.fresh {
            if let Ok(at) = self.find(number) {
                let entry = &self.pages[at];
                each(self.page(entry), entry.fresh);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// How many pages wait.
    pub(super) fn len(&self) -> usize {
        self.pages.len()
    }

    /// Whether it is time to write: there is enough for a sheet of the log.
    pub(super) fn is_full(&self, layout: Layout) -> bool {
        let entries = self.pages.len() * 4;
        self.pages.len() >= MOST_PAGES || self.bytes.len() + entries >= 63 * layout.page_bytes()
    }

    /// Where the page is, or where it would be.
    fn find(&self, number: u64) -> Result<usize, usize> {
        match self.pages.back() {
            Some(last) if last.number == number => Ok(self.pages.len() - 1),
            Some(last) if last.number > number => {
                self.pages.binary_search_by_key(&number, |page| page.number)
            }
            _ => Err(self.pages.len()),
        }
    }

    fn page(&self, entry: &Entry) -> Page<'_> {
        let end = entry.at + entry.mask.count() * self.line;
        let lines = PageLines {
            page: PageId(entry.number),
            held: entry.mask,
            changed: entry.mask,
            line_bytes: self.line,
            bytes: &self.bytes[entry.at..end],
        };
        Page {
            lines,
            born: entry.born,
        }
    }

    pub(super) fn get(&self, number: u64) -> Option<Page<'_>> {
        self.find(number).ok().map(|at| self.page(&self.pages[at]))
    }

    /// Ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = Page<'_>> {
        self.pages.iter().map(|entry| self.page(entry))
    }

    /// Lines of a page wait. `born` is asked when nothing of the page waited yet: whether it was not there
    /// before.
    pub(super) fn put(&mut self, lines: PageLines<'_>, born: impl FnOnce() -> bool) {
        let number = lines.page.0;
        self.line = lines.line_bytes;
        self.fresh_lines += lines.held.count();
        let end = self.bytes.len();
        match self.find(number) {
            Err(at) => {
                self.bytes.extend_from_slice(lines.bytes);
                let entry = Entry {
                    number,
                    mask: lines.held,
                    born: born(),
                    fresh: lines.held,
                    at: end,
                };
                self.fresh.push(number);
                match at == self.pages.len() {
                    true => self.pages.push_back(entry),
                    false => self.pages.insert(at, entry),
                }
            }
            Ok(at) => self.add(at, lines),
        }
    }

    /// More lines of a page that waits: newer than those that do.
    fn add(&mut self, at: usize, lines: PageLines<'_>) {
        let Entry {
            number,
            mask,
            fresh,
            at: start,
            ..
        } = self.pages[at];
        if fresh.is_empty() {
            self.fresh.push(number);
        }
        self.pages[at].fresh = fresh | lines.held;
        let (line, end) = (self.line, self.bytes.len());
        let follow = mask.0.leading_zeros() + lines.held.0.trailing_zeros() >= u64::BITS;
        if (lines.held & !mask).is_empty() {
            for run in lines.held.runs() {
                let before = (mask & LineMask::run(0, run.start)).count();
                let to = start + before * line;
                self.bytes[to..to + run.len() * line].copy_from_slice(lines.run(run));
            }
        } else if follow && start + mask.count() * line == end {
            self.bytes.extend_from_slice(lines.bytes);
        } else {
            self.pages[at].at = end;
            let mut old = start;
            for k in (mask | lines.held).runs().flatten() {
                match lines.held.has(k) {
                    true => self.bytes.extend_from_slice(lines.run(k..k + 1)),
                    false => self.bytes.extend_from_within(old..old + line),
                }
                old += if mask.has(k) { line } else { 0 };
            }
        }
        self.pages[at].mask = mask | lines.held;
    }

    /// The lines of the page no longer wait.
    pub(super) fn remove(&mut self, number: u64) {
        if let Ok(at) = self.find(number) {
            self.pages.remove(at);
            self.recycle();
        }
    }

    /// The lines of every page in the range no longer wait.
    pub(super) fn remove_range(&mut self, pages: Range<u64>) {
        self.pages.retain(|page| !pages.contains(&page.number));
        self.recycle();
    }

    /// The lowest page.
    pub(super) fn first(&self) -> Option<Page<'_>> {
        self.pages.front().map(|entry| self.page(entry))
    }

    /// Takes the lowest page away.
    pub(super) fn pop(&mut self) {
        self.pages.pop_front();
        self.recycle();
    }

    /// Once nothing waits, its memory is used again.
    fn recycle(&mut self) {
        if self.pages.is_empty() {
            self.bytes.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Against a map of every line.
        #[test]
        fn the_newest_lines_wait(puts in prop::collection::vec((0_u64..5, 1_u64.., any::<bool>()), 1..40)) {
            let mut waiting = Waiting::default();
            let mut model = BTreeMap::new();
            for (round, (page, mask, few)) in puts.into_iter().enumerate() {
                let mask = LineMask(if few { mask & mask >> 7 & mask << 9 | 1 << (mask % 64) } else { mask });
                let bytes: Vec<u8> = mask.runs().flatten().flat_map(|k| [round as u8, k as u8]).collect();
                let was = model.keys().any(|&(number, _)| number == page);
                let mut asked = false;
                let page_lines = PageLines { page: PageId(page), held: mask, changed: mask, line_bytes: 2, bytes: &bytes };
                waiting.put(page_lines, || { asked = true; true });
                prop_assert_eq!(asked, !was);
                model.extend(mask.runs().flatten().map(|k| ((page, k), [round as u8, k as u8])));
                if round % 7 == 6 {
                    waiting.remove(page);
                    model.retain(|&(number, _), _| number != page);
                }
            }
            let mut found = BTreeMap::new();
            for page in waiting.iter() {
                for k in page.lines.held.runs().flatten() {
                    let line = page.lines.run(k..k + 1);
                    found.insert((page.lines.page.0, k), [line[0], line[1]]);
                }
            }
            prop_assert_eq!(&found, &model);
            prop_assert!(waiting.iter().zip(waiting.iter().skip(1)).all(|(a, b)| a.lines.page < b.lines.page));
            waiting.remove_range(0..3);
            prop_assert!(waiting.iter().all(|page| page.lines.page.0 >= 3));
            while waiting.first().is_some() {
                waiting.pop();
            }
            prop_assert!(waiting.is_empty() && waiting.bytes.is_empty());
        }
    }
}
