//! The marks of a section, found by a list: its end looks at the groups of pages that it wrote, and at no others.
//!
//! * While a window lists, the first mark in a group of pages puts the group on the list.
//! * One thread writes at a time, so no mark is set while they are taken; nothing is ever frozen.

use super::{GROUP, LINE, LINES_PER_PAGE, MARKED, any, copy, lines_of, marks, mask, set, summary};
use crate::address::{PAGE, Place};
use std::ops::Range;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use twinpage_core::LineMask;

/// From now on the first mark in a group puts it on the list. Nothing is marked.
pub(crate) fn start(place: Place) {
    place.state().lists.store(true, Ordering::Release);
}

/// The window lists no longer.
pub(super) fn stop(place: Place) {
    let state = place.state();
    state.lists.store(false, Ordering::Release);
    let mut groups = state.groups.lock().unwrap_or_else(PoisonError::into_inner);
    groups.clear();
}

/// Puts the groups of these lines on the list that have no mark yet, if the window lists.
pub(super) fn list(place: Place, map: usize, lines: &Range<usize>) {
    const LINES: usize = GROUP * LINES_PER_PAGE;
    let state = place.state();
    if !state.lists.load(Ordering::Relaxed) {
        return;
    }
    let first = lines.start / LINES;
    let noted = summary(map, first..(lines.end - 1) / LINES + 1);
    let mut groups = state.groups.lock().unwrap_or_else(PoisonError::into_inner);
    for (group, noted) in (first..).zip(noted) {
        if noted.load(Ordering::Relaxed) != MARKED {
            groups.push(group as u32);
        }
    }
}

/// Takes all marks: `each` is told of every page with marked lines, in ascending order.
///
/// The caller is the only one who writes.
pub(crate) fn take_marks(place: Place, mut each: impl FnMut(usize, LineMask)) {
    let state = place.state();
    let map = state.here.current.load(Ordering::Relaxed);
    let mut groups = state.groups.lock().unwrap_or_else(PoisonError::into_inner);
    groups.sort_unstable();
    for group in groups.drain(..).map(|group| group as usize) {
        for page in group * GROUP..(group + 1) * GROUP {
            // SAFETY: a page of the group is usable, and a region grows by whole groups.
            let marks = unsafe { marks(map, lines_of(page)) };
            if any(marks) {
                let lines = LineMask(mask(marks));
                set(marks, 0);
                each(page, lines);
            }
        }
        set(summary(map, group..group + 1), 0);
    }
}

/// Puts bytes where they were: those of whole lines of a page, one line after the other.
///
/// # Safety
/// The page is usable, nothing refers to what lies in the lines, and the bytes are what was there once.
pub(crate) unsafe fn put_lines(place: Place, page: usize, lines: LineMask, bytes: &[u8]) {
    let to = place.base().wrapping_add(page * PAGE);
    let words = |line| to.wrapping_add(line * LINE).cast::<*mut u8>();
    for (line, bytes) in lines.runs().flatten().zip(bytes.chunks_exact(LINE)) {
        // As addresses, so that those into the region are pointers again (`std::ptr`, exposed provenance).
        for (k, word) in bytes.as_chunks().0.iter().enumerate() {
            let word = std::ptr::with_exposed_provenance_mut(usize::from_ne_bytes(*word));
            // SAFETY: by the caller's word.
            unsafe { words(line).add(k).write(word) };
        }
    }
}

/// Appends lines of a page to `into`.
///
/// The caller is the only one who writes.
pub(crate) fn copy_lines(place: Place, page: usize, lines: LineMask, into: &mut Vec<u8>) {
    let from = place.base().wrapping_add(page * PAGE);
    into.reserve(lines.count() * LINE);
    for run in lines.runs() {
        let bytes = run.len() * LINE;
        let to = into.spare_capacity_mut()[..bytes].as_mut_ptr().cast();
        // SAFETY: the page is usable memory of the window, the room behind the vector its own; what was copied there
        // is then there.
        unsafe {
            copy(from.wrapping_add(run.start * LINE), to, bytes);
            into.set_len(into.len() + bytes);
        }
    }
}
