//! The marks of a section, found by a list: its end looks at the groups of pages that it wrote, and at no others.
//!
//! * While a window lists, the first mark in a group of pages puts the group on the list.
//! * One thread writes at a time, so no mark is set while they are taken; nothing is ever frozen.

use super::{GROUP, LINE, LINES_PER_PAGE, MARKED, copy, page_marks, set, summary};
use crate::address::{FEW_GROUPS, Listed, PAGE, Place};
use crate::lock::lock;
use std::arch::x86_64::{__m128i, _mm_movemask_epi8, _mm_or_si128, _mm_setzero_si128, _mm_slli_epi16};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use twinpage_core::LineMask;

impl Listed {
    fn rest(&self) -> MutexGuard<'_, Vec<u32>> {
        lock(&self.rest)
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

/// Notes the groups of these lines in a window that lists, and puts those on the list that have no mark yet.
///
/// # Safety
/// `map` is the map of the window, which stays in use meanwhile.
pub(super) unsafe fn note(place: Place, map: usize, lines: &Range<usize>) {
    const LINES: usize = GROUP * LINES_PER_PAGE;
    let first = lines.start / LINES;
    // SAFETY: `map` is a map of a window in use, by the caller's word.
    let noted = unsafe { summary(map, first..(lines.end - 1) / LINES + 1) };
    for (group, noted) in (first..).zip(noted) {
        if noted.load(Ordering::Relaxed) != MARKED {
            noted.store(MARKED, Ordering::Relaxed);
            place.state().groups.push(group as u32);
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
            let lines = unsafe { mask_alone(map, page) };
            if lines != 0 {
                // SAFETY: as above.
                set(unsafe { page_marks(map, page) }, 0);
                each(page, LineMask(lines));
            }
        }
        // SAFETY: the region that takes them has the window in use; the group was noted in it.
        set(unsafe { summary(map, group..group + 1) }, 0);
    });
}

/// The marks of a page, a bit each, where no other thread sets marks: plain loads, sixteen marks at once.
///
/// # Safety
/// The page is usable, and this thread is the only one that changes marks.
#[inline]
unsafe fn mask_alone(map: usize, page: usize) -> u64 {
    let at = std::ptr::with_exposed_provenance(map + page * LINES_PER_PAGE);
    // SAFETY: by the caller's word. A page has as many marks as four vectors have bytes, at a multiple of that. SSE2 is
    // part of x86-64.
    unsafe {
        let marks: [__m128i; LINES_PER_PAGE / 16] = *at;
        // A mark is the lowest bit of its byte, and the highest ones are gathered.
        let bits = |marks| u64::from(_mm_movemask_epi8(_mm_slli_epi16(marks, 7)).cast_unsigned());
        match bits(
            marks
                .into_iter()
                .fold(_mm_setzero_si128(), |all, some| _mm_or_si128(all, some)),
        ) {
            0 => 0, // as most pages of a group
            _ => (0..)
                .zip(marks)
                .fold(0, |lines, (k, marks)| lines | bits(marks) << (16 * k)),
        }
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

/// A line that no other thread writes, whatever of it holds anything.
///
/// # Safety
/// It is usable, and begins at a multiple of a line.
#[inline]
pub(crate) unsafe fn line_at(from: *const u8) -> [u8; LINE] {
    let mut line = MaybeUninit::<[u8; LINE]>::uninit();
    // SAFETY: by the caller's word; what was copied is then there.
    unsafe {
        copy(from, line.as_mut_ptr().cast(), LINE);
        line.assume_init()
    }
}

/// Appends lines of a page to `into`.
///
/// The caller is the only one who writes.
pub(crate) fn copy_lines(place: Place, page: usize, lines: LineMask, into: &mut Vec<u8>) {
    let from = place.base().wrapping_add(page * PAGE);
    into.reserve(PAGE); // for any number of lines
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
