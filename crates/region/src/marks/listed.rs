//! The marks of a section, found by a list: its end looks at the groups of pages that it wrote, and at no others.
//!
//! * While a window lists, the first mark in a group of pages puts the group on the list.
//! * One thread writes at a time, so no mark is set while they are taken; nothing is ever frozen.

use super::{GROUP, LINE, LINES_PER_PAGE, MARKED, copy, lines_of, marks, mask, set, summary};
use crate::address::{FEW_GROUPS, Listed, PAGE, Place};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use twinpage_core::LineMask;

impl Listed {
    fn rest(&self) -> MutexGuard<'_, Vec<u32>> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, group: u32) {
        let count = self.count.load(Ordering::Relaxed);
        match self.few.get(count) {
            Some(place) => {
                place.store(group, Ordering::Relaxed);
                self.count.store(count + 1, Ordering::Relaxed);
            }
            None => self.rest().push(group),
        }
    }

    fn clear(&self) {
        self.count.store(0, Ordering::Relaxed);
        self.rest().clear();
    }

    /// Visits them, ascending, and forgets them.
    fn drain(&self, each: impl FnMut(usize)) {
        let count = self.count.swap(0, Ordering::Relaxed);
        let few = self.few[..count]
            .iter()
            .map(|group| group.load(Ordering::Relaxed));
        if count < FEW_GROUPS {
            let mut sorted = [0; FEW_GROUPS];
            sorted.iter_mut().zip(few).for_each(|(to, group)| *to = group);
            sorted[..count].sort_unstable();
            return sorted[..count].iter().map(|&group| group as usize).for_each(each);
        }
        let mut rest = self.rest();
        rest.extend(few);
        rest.sort_unstable();
        rest.drain(..).map(|group| group as usize).for_each(each);
    }
}

/// From now on the first mark in a group puts it on the list. Nothing is marked.
pub(crate) fn start(place: Place) {
    place.state().lists.store(true, Ordering::Release);
}

/// The window lists no longer.
pub(super) fn stop(place: Place) {
    let state = place.state();
    state.lists.store(false, Ordering::Release);
    state.groups.clear();
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
    for (group, noted) in (first..).zip(noted) {
        if noted.load(Ordering::Relaxed) != MARKED {
            state.groups.push(group as u32);
        }
    }
}

/// Takes all marks: `each` is told of every page with marked lines, in ascending order.
///
/// The caller is the only one who writes.
pub(crate) fn take_marks(place: Place, mut each: impl FnMut(usize, LineMask)) {
    let state = place.state();
    let map = state.here.current.load(Ordering::Relaxed);
    state.groups.drain(|group| {
        for page in group * GROUP..(group + 1) * GROUP {
            // SAFETY: a page of the group is usable, and a region grows by whole groups. No other thread writes.
            if unsafe { any_alone(map, page) } {
                // SAFETY: as above.
                let marks = unsafe { marks(map, lines_of(page)) };
                let lines = LineMask(mask(marks));
                set(marks, 0);
                each(page, lines);
            }
        }
        set(summary(map, group..group + 1), 0);
    });
}

/// Whether a line of the page is marked, where no other thread sets marks: plain loads, which the compiler makes few of.
///
/// # Safety
/// The page is usable, and this thread is the only one that changes marks.
#[inline]
unsafe fn any_alone(map: usize, page: usize) -> bool {
    let at = map + page * LINES_PER_PAGE;
    // SAFETY: by the caller's word. The marks of a page are a multiple of eight bytes, at a multiple of their number.
    let words: [u64; LINES_PER_PAGE / 8] = unsafe { *std::ptr::with_exposed_provenance(at) };
    words.into_iter().fold(0, |all, word| all | word) != 0
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

/// Appends a line that no other thread has to `into`, whatever of it holds anything.
///
/// # Safety
/// It is usable, and begins at a multiple of a line.
pub(crate) unsafe fn copy_line(from: *const u8, into: &mut Vec<u8>) {
    into.reserve(LINE);
    let to = into.spare_capacity_mut()[..LINE].as_mut_ptr().cast();
    // SAFETY: by the caller's word; the room behind the vector is its own, and what was copied there is then there.
    unsafe {
        copy(from, to, LINE);
        into.set_len(into.len() + LINE);
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
