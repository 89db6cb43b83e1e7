//! The cut, and the sweep that copies what it froze while the writers go on.

use super::{FLIP, GROUP, LINE, LINES_PER_PAGE, MARKED, any, copy, lines_of, mark, marks, mask, note};
use super::{saved, set, summary};
use crate::ahead;
use crate::window::{PAGE, Place};
use std::sync::atomic::{Ordering, fence};
use twinpage_core::LineMask;
use twinpage_core::buffer::Buffer;

/// How many pages ahead of the sweep lines are fetched.
const AHEAD: usize = 4;

/// Swaps the maps: what was marked is frozen, nothing is marked. The stop, and all of it.
///
/// No update is running, and the frozen map of the cut before is empty.
pub(crate) fn cut(place: Place) -> Frozen {
    let state = place.state();
    let map = state.here.current.load(Ordering::Relaxed);
    state.saved.0.store(0, Ordering::Relaxed);
    state.cuts.fetch_add(1, Ordering::Relaxed);
    // Where whole pages are saved, a writer must look at more than his lines.
    if state.by_page.load(Ordering::Relaxed) {
        state.here.set_simple(None);
    }
    state.here.frozen.store(map, Ordering::Relaxed);
    state.here.current.store(map ^ FLIP, Ordering::Release);
    Frozen {
        place,
        map,
        page: 0,
        end: place.bytes() / PAGE,
        slot: 0,
        taken: Vec::new(),
        saved_lines: 0,
    }
}

/// The lines of a cut, to be swept while the writers go on: all pages, then all saved lines.
#[derive(Debug)]
pub(crate) struct Frozen {
    place: Place,
    map: usize,
    /// The next page to look at, and the last.
    page: usize,
    end: usize,
    /// The next saved unit to look at.
    slot: usize,
    /// What the sweep took, in case its epoch is lost.
    taken: Vec<(usize, u64)>,
    /// Lines that writers saved.
    saved_lines: u64,
}

impl Frozen {
    /// The next page with frozen lines: its number, and those of its lines that were appended to `into`,
    /// one after the other. Lines a writer was faster with come later, from [`Frozen::next_saved`].
    pub(crate) fn next_page(&mut self, into: &mut Buffer) -> Option<(usize, u64)> {
        let state = self.place.state();
        let by_page = state.by_page.load(Ordering::Relaxed);
        let takes_away = state.takes_away.load(Ordering::Relaxed);
        while let Some((page, waiting)) = self.next_waiting() {
            self.fetch(page + AHEAD);
            let lines = if by_page { !0 } else { waiting };
            let start = into.len();
            self.copy(page, lines, into);
            if takes_away {
                crate::paging::set_in_flight(self.place, page);
            }
            // The copy is done before the marks are looked at again.
            fence(Ordering::Acquire);
            // SAFETY: the page was usable at the cut, and stays so.
            let standing = unsafe { marks(self.map, lines_of(page)) };
            let had = mask(standing);
            set(standing, 0);
            // What the writers took is in the list too: its flight ends with the others'.
            self.taken.push((page, had));
            let taken = match had {
                0 => 0,
                _ if by_page => !0,
                had => had,
            };
            if taken != lines {
                keep(into, start, lines, taken);
            }
            if taken != 0 {
                return Some((page, taken));
            }
        }
        None
    }

    /// Appends lines of a page to `into`.
    #[inline]
    fn copy(&self, page: usize, lines: u64, into: &mut Buffer) {
        let from = self.place.base().wrapping_add(page * PAGE);
        let mut to = into.append(lines.count_ones() as usize * LINE);
        for run in LineMask(lines).runs() {
            let (now, rest) = to.split_at_mut(run.len() * LINE);
            // SAFETY: the page is usable memory of the window; `now` is ours.
            unsafe { copy(from.wrapping_add(run.start * LINE), now.as_mut_ptr(), now.len()) };
            to = rest;
        }
    }

    /// Brings the frozen lines of a page nearer, which will soon be copied.
    #[inline]
    fn fetch(&self, page: usize) {
        if page >= self.end {
            return;
        }
        // SAFETY: the page is usable.
        let mut lines = mask(unsafe { marks(self.map, lines_of(page)) });
        while lines != 0 {
            let at = page * PAGE + lines.trailing_zeros() as usize * LINE;
            ahead::fetch(self.place.base().wrapping_add(at));
            lines &= lines - 1;
        }
    }

    /// The next lines that a writer saved, neighbours together, and their offset from the base. Only
    /// after all pages.
    pub(crate) fn next_saved(&mut self) -> Option<(usize, &[u8])> {
        let (state, unit) = (self.place.state(), saved::unit(self.place));
        let cut = state.cuts.load(Ordering::Relaxed);
        // What does not fit was not saved: its writer waited for the sweep.
        let given = state.saved.0.load(Ordering::Acquire).min(saved::count(unit));
        while self.slot < given {
            let first = self.slot;
            let (tags, content) = saved::slots(self.place, first..first + 1, unit);
            self.slot += 1;
            let Some(offset) = tags[0].offset(cut) else {
                continue;
            };
            let mut end = offset + unit;
            while self.slot < given && !end.is_multiple_of(PAGE) {
                let (tags, _) = saved::slots(self.place, self.slot..self.slot + 1, unit);
                if tags[0].offset(cut) != Some(end) {
                    break;
                }
                (self.slot, end) = (self.slot + 1, end + unit);
            }
            self.saved_lines += ((end - offset) / LINE) as u64;
            self.taken.push((offset / PAGE, 0));
            // SAFETY: the slots' writers are done with them (`Tag::offset`), and slots are given out anew
            // only after the next cut, which waits for the end of this sweep.
            let bytes = unsafe { std::slice::from_raw_parts(content, end - offset) };
            return Some((offset, bytes));
        }
        None
    }

    /// Pages of the cut that were marked, once all are swept; some more than once.
    pub(crate) fn pages(&self) -> impl Iterator<Item = usize> {
        self.taken.iter().map(|&(page, _)| page)
    }

    /// Lines of the cut that were marked, once all are swept.
    pub(crate) fn changed_lines(&self) -> u64 {
        let taken = self.taken.iter().map(|(_, lines)| u64::from(lines.count_ones()));
        taken.sum::<u64>() + self.saved_lines
    }

    /// The epoch is durable, or marked again: what was swept is no longer on its way.
    pub(crate) fn land(&self) {
        if self.place.state().takes_away.load(Ordering::Relaxed) {
            for &(page, _) in &self.taken {
                crate::paging::end_flight(self.place, page);
            }
        }
    }

    /// The epoch is lost: every line of the cut is marked again, so that the next one has it. Lines that
    /// writers saved they have marked.
    pub(crate) fn thaw(mut self) {
        for (page, lines) in std::mem::take(&mut self.taken) {
            self.mark_again(page, lines);
            self.taken.push((page, 0));
        }
        while let Some((page, lines)) = self.next_waiting() {
            self.mark_again(page, lines);
            // SAFETY: the page was usable at the cut, and stays so.
            set(unsafe { marks(self.map, lines_of(page)) }, 0);
        }
        self.land();
    }

    fn mark_again(&self, page: usize, mut lines: u64) {
        let current = self.map ^ FLIP;
        note(current, &lines_of(page));
        while lines != 0 {
            let line = page * LINES_PER_PAGE + lines.trailing_zeros() as usize;
            // SAFETY: the page was usable at the cut, and stays so.
            unsafe { mark(current, line) }.store(MARKED, Ordering::Release);
            lines &= lines - 1;
        }
    }

    /// The next page with a frozen line, and its frozen lines. Summaries are emptied on the way.
    #[inline]
    fn next_waiting(&mut self) -> Option<(usize, u64)> {
        while self.page < self.end {
            let group = self.page / GROUP;
            if self.page.is_multiple_of(GROUP) && !any(summary(self.map, group..group + 1)) {
                self.page = self.next_group(group);
                continue;
            }
            let page = self.page;
            self.page += 1;
            if self.page.is_multiple_of(GROUP) {
                // Nobody sets bytes of a frozen summary.
                set(summary(self.map, group..group + 1), 0);
            }
            // SAFETY: the page was usable at the cut, and stays so.
            let waiting = mask(unsafe { marks(self.map, lines_of(page)) });
            if waiting != 0 {
                return Some((page, waiting));
            }
        }
        // From here on writers need not look at the frozen map.
        let here = &self.place.state().here;
        here.frozen.store(0, Ordering::Release);
        here.set_simple(Some(self.place.base().addr()));
        None
    }

    /// The first page of the next group that has its byte in the summary.
    fn next_group(&self, mut group: usize) -> usize {
        // So many are looked at by words first.
        const STRIDE: usize = 64;
        let groups = self.end.div_ceil(GROUP);
        while group < groups {
            let end = (group / STRIDE * STRIDE + STRIDE).min(groups);
            let bytes = summary(self.map, group..end);
            let mut set = bytes.iter().map(|byte| byte.load(Ordering::Relaxed) != 0);
            if any(bytes)
                && let Some(at) = set.position(|set| set)
            {
                return (group + at) * GROUP;
            }
            group = end;
        }
        self.end
    }
}

/// Of the lines `had`, which lie in `into` from `start` on, keeps those `wanted`.
#[cold]
fn keep(into: &mut Buffer, start: usize, had: u64, wanted: u64) {
    let mut end = start;
    for (k, line) in LineMask(had).runs().flatten().enumerate() {
        if wanted >> line & 1 == 1 {
            let from = start + k * LINE;
            into.copy_within(from..from + LINE, end);
            end += LINE;
        }
    }
    into.truncate(end);
}
