//! Memory as it was before: of a section that failed, and of groups that found no room.
//!
//! * Nothing is copied before it is written. What a line was is in a group on its way, else in the store.
//! * Everything is read before the first byte is put back: where that fails, memory stays a value of its types, and the
//!   store is poisoned.
//! * The thread has the turn.

use super::queue::{Group, Queue, stored_lines};
use crate::address::{PAGE, Place};
use crate::error::Result;
use crate::marks::{self, LINE};
use crate::store::Store;
use std::collections::BTreeMap;
use std::ops::Range;
use twinpage_core::LineMask;

/// A page of the system some lines of which are put back.
#[derive(Clone, Copy, Debug, Default)]
struct Old {
    lines: LineMask,
    /// Those that were found in a group.
    found: LineMask,
}

/// The pages, by number.
#[derive(Debug, Default)]
struct Pages(BTreeMap<usize, Old>);

impl Pages {
    fn add(&mut self, page: usize, lines: LineMask) {
        let old = self.0.entry(page).or_default();
        old.lines = old.lines | lines;
    }

    /// The content of the pages as the groups left them, as far as they say.
    fn overlay(&mut self, queue: &Queue, groups: [&Group; 2], content: &mut [u8]) {
        let index: BTreeMap<usize, usize> = self.0.keys().copied().zip(0..).collect();
        for group in groups {
            for gone in group.discarded_pages(queue.geometry) {
                for (page, old) in self.0.range_mut(gone) {
                    content[index[page] * PAGE..][..PAGE].fill(0);
                    old.found = LineMask::ALL;
                }
            }
            for (page, lines, bytes) in group.small_lines(queue.geometry) {
                if let Some(old) = self.0.get_mut(&page) {
                    let to = &mut content[index[&page] * PAGE..][..PAGE];
                    for (line, bytes) in lines.runs().flatten().zip(bytes.chunks_exact(LINE)) {
                        to[line * LINE..][..LINE].copy_from_slice(bytes);
                    }
                    old.found = old.found | lines;
                }
            }
        }
    }

    /// Reads the lines that no group has.
    fn read(&self, store: &dyn Store, content: &mut [u8]) -> Result<()> {
        for ((&page, old), content) in self.0.iter().zip(content.chunks_exact_mut(PAGE)) {
            for run in (old.lines & !old.found).runs() {
                let (from, to) = (run.start * LINE, run.end * LINE);
                store.read_bytes(page * PAGE + from, &mut content[from..to])?;
            }
        }
        Ok(())
    }

    fn put(&self, place: Place, content: &[u8]) {
        for ((&page, old), content) in self.0.iter().zip(content.chunks_exact(PAGE)) {
            for run in old.lines.runs() {
                let bytes = &content[run.start * LINE..run.end * LINE];
                // SAFETY: pages that were written are usable. No reference into the region is left: those of the
                // section ended with its closure, and the turn keeps all others out. The bytes are those of the last
                // section that counts.
                unsafe { marks::put_lines(place, page, LineMask::run(run.start, run.len()), bytes) };
            }
        }
    }
}

/// Undoes what is marked and given back: the section that had the turn.
pub(super) fn undo_section(place: Place, store: &dyn Store, queue: &Queue) -> Result<()> {
    let mut pages = Pages::default();
    let given_back = marks::take_given_back(place);
    marks::take_marks(place, |page, lines| {
        pages.add(page, stored_lines(queue.geometry, lines));
    });
    if pages.0.is_empty() && given_back.is_empty() {
        return Ok(());
    }
    let content = queue.with_groups(|groups| {
        add_given_back(&mut pages, given_back, store, queue, groups);
        let mut content = vec![0; pages.0.len() * PAGE];
        pages.overlay(queue, groups, &mut content);
        content
    });
    restore(&pages, content, place, store)
}

/// Pages that were given back are zero now. They are put back where there is anything of them.
fn add_given_back(
    pages: &mut Pages,
    given_back: Vec<Range<usize>>,
    store: &dyn Store,
    queue: &Queue,
    groups: [&Group; 2],
) {
    for range in given_back {
        let range = range.start / PAGE..range.end / PAGE;
        for group in groups {
            let written = group.small_lines(queue.geometry).map(|(page, ..)| page);
            written
                .filter(|page| range.contains(page))
                .for_each(|page| pages.add(page, LineMask::ALL));
        }
        range
            .filter(|page| store.has_bytes(page * PAGE))
            .for_each(|page| pages.add(page, LineMask::ALL));
    }
}

/// Undoes the groups, of which the store has nothing.
pub(super) fn undo_groups(place: Place, store: &dyn Store, queue: &Queue) -> Result<()> {
    let mut pages = Pages::default();
    queue.with_groups(|groups| {
        for group in groups {
            for (page, lines, _) in group.small_lines(queue.geometry) {
                pages.add(page, lines);
            }
            let gone = group.discarded_pages(queue.geometry).flatten();
            gone.filter(|page| store.has_bytes(page * PAGE))
                .for_each(|page| pages.add(page, LineMask::ALL));
        }
    });
    let content = vec![0; pages.0.len() * PAGE];
    restore(&pages, content, place, store)
}

fn restore(pages: &Pages, mut content: Vec<u8>, place: Place, store: &dyn Store) -> Result<()> {
    pages.read(store, &mut content)?;
    pages.put(place, &content);
    Ok(())
}
