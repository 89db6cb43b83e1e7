//! Changed lines of the epoch that have no place yet: it is decided when many are known.

use super::layout::Layout;
use crate::geometry::LineMask;
use std::collections::BTreeMap;

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

/// The lines that wait, by page.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pages: BTreeMap<u64, Page>,
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

    pub(super) fn get(&self, page: u64) -> Option<&Page> {
        self.pages.get(&page)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Page)> {
        self.pages.iter().map(|(&number, page)| (number, page))
    }

    /// `lines` of a page wait; `bytes` begins at line `first`.
    pub(super) fn put(
        &mut self,
        number: u64,
        first: usize,
        bytes: &[u8],
        lines: LineMask,
        born: bool,
        layout: Layout,
    ) {
        let Waiting { pages, spare, .. } = self;
        let page = pages.entry(number).or_insert_with(|| Page {
            lines: LineMask::NONE,
            born,
            bytes: spare.pop().unwrap_or_else(|| vec![0; layout.page_bytes()].into()),
        });
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
        if let Some(page) = self.pages.remove(&number) {
            self.lines -= page.lines.count();
            self.spare.push(page.bytes);
        }
    }

    /// The lines of every page in the range wait no more.
    pub(super) fn remove_range(&mut self, pages: std::ops::Range<u64>) {
        let gone: Vec<u64> = self.pages.range(pages).map(|(&number, _)| number).collect();
        gone.into_iter().for_each(|number| self.remove(number));
    }

    /// The lowest page.
    pub(super) fn first(&self) -> Option<(u64, &Page)> {
        self.iter().next()
    }

    /// Takes the lowest page away.
    pub(super) fn pop(&mut self) -> Option<u64> {
        let number = *self.pages.first_key_value()?.0;
        self.remove(number);
        Some(number)
    }
}
