//! Changed lines of the epoch that have no place yet: it is decided when many are known.

use super::layout::Layout;
use crate::geometry::LineMask;
use std::collections::VecDeque;
use std::ops::Range;

/// Pages that may wait: so many times a page of memory.
const MOST_PAGES: usize = 1024;

/// Lines of one page.
#[derive(Debug)]
pub(super) struct Page {
    /// Which lines wait.
    pub(super) lines: LineMask,
    /// Whether the page was not there before: its other lines are zero.
    pub(super) born: bool,
    /// A page of memory; the lines that wait are at their places.
    pub(super) bytes: Box<[u8]>,
}

/// The lines that wait, by page. Writes come page by page and mostly in order, so the last page is
/// looked at first.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Ascending.
    pages: VecDeque<(u64, Page)>,
    lines: usize,
    spare: Vec<Box<[u8]>>,
}

impl Waiting {
    pub(super) fn clear(&mut self) {
        while self.pop().is_some() {}
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
        let bytes = self.lines * layout.line_bytes() + entries;
        self.pages.len() >= MOST_PAGES || bytes >= 63 * layout.page_bytes()
    }

    /// Where the page is, or where it would be.
    fn find(&self, number: u64) -> Result<usize, usize> {
        match self.pages.back() {
            Some(&(last, _)) if last == number => Ok(self.pages.len() - 1),
            Some(&(last, _)) if last > number => self.pages.binary_search_by_key(&number, |page| page.0),
            _ => Err(self.pages.len()),
        }
    }

    pub(super) fn get(&self, number: u64) -> Option<&Page> {
        self.find(number).ok().map(|at| &self.pages[at].1)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Page)> {
        self.pages.iter().map(|(number, page)| (*number, page))
    }

    /// `lines` of a page wait; `bytes` begins at line `first`. `born` is asked when nothing of the page
    /// waited yet: whether it was not there before.
    pub(super) fn put(
        &mut self,
        number: u64,
        (first, bytes): (usize, &[u8]),
        lines: LineMask,
        born: impl FnOnce() -> bool,
        layout: Layout,
    ) {
        let at = self.find(number).unwrap_or_else(|at| {
            let bytes = self.spare.pop();
            let bytes = bytes.unwrap_or_else(|| vec![0; layout.page_bytes()].into());
            let page = Page {
                lines: LineMask::NONE,
                born: born(),
                bytes,
            };
            self.pages.insert(at, (number, page));
            at
        });
        let page = &mut self.pages[at].1;
        let line = layout.line_bytes();
        for run in lines.runs() {
            let from = &bytes[(run.start - first) * line..(run.end - first) * line];
            page.bytes[run.start * line..run.end * line].copy_from_slice(from);
        }
        self.lines += (lines & !page.lines).count();
        page.lines = page.lines | lines;
    }

    /// The lines of the page wait no more.
    pub(super) fn remove(&mut self, number: u64) {
        if let Ok(at) = self.find(number) {
            let gone = self.pages.remove(at);
            self.recycle(gone);
        }
    }

    /// The lines of every page in the range wait no more.
    pub(super) fn remove_range(&mut self, pages: Range<u64>) {
        let waiting = self.pages.iter().map(|page| page.0);
        let gone: Vec<u64> = waiting.filter(|number| pages.contains(number)).collect();
        gone.into_iter().for_each(|number| self.remove(number));
    }

    /// The lowest page.
    pub(super) fn first(&self) -> Option<(u64, &Page)> {
        self.iter().next()
    }

    /// Takes the lowest page away.
    pub(super) fn pop(&mut self) -> Option<u64> {
        let page = self.pages.pop_front();
        self.recycle(page)
    }

    /// Keeps the memory of a page that waits no more.
    fn recycle(&mut self, page: Option<(u64, Page)>) -> Option<u64> {
        let (number, page) = page?;
        self.lines -= page.lines.count();
        self.spare.push(page.bytes);
        Some(number)
    }
}
