//! The cut, and the sweep that copies what it froze while the writers go on.

use super::saved::Found;
use super::{FLIP, GROUP, LINE, LINES_PER_PAGE, MARKED, any, copy, lines_of, mark, marks, mask, note};
use super::{page_marks, set, summary};
use crate::address::{PAGE, Place};
use crate::{prefetch, residence};
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
    state.here.cuts.fetch_add(1, Ordering::Relaxed);
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
        is_swept: false,
        found: Found::new(place),
        whole_from: u32::MAX,
        asked_lines: 0,
        taken: Vec::new(),
        saved_lines: 0,
    }
}

/// Marks whole pages, so that the next cut has all of their lines, and says how many of them were not
/// marked. No update is running.
pub(crate) fn mark_whole(place: Place, pages: impl Iterator<Item = usize>) -> u64 {
    let map = place.state().here.current.load(Ordering::Relaxed);
    let mut more = 0;
    for lines in pages.map(lines_of) {
        // SAFETY: the caller asks for pages that are usable, of a window in use.
        let marks = unsafe { marks(map, lines.clone()) };
        more += u64::from(mask(marks).count_zeros());
        // SAFETY: as above.
        unsafe { note(map, &lines) };
        set(marks, MARKED);
    }
    more
}

/// The lines of a cut, to be swept while the writers go on.
#[derive(Debug)]
pub(crate) struct Frozen {
    place: Place,
    map: usize,
    /// The next page to look at, and the last.
    page: usize,
    end: usize,
    /// All pages were looked at.
    is_swept: bool,
    /// What writers saved.
    found: Found,
    /// Of a page with that many lines all are wanted, if they can be had.
    whole_from: u32,
    /// Lines that were marked because the scheme wanted them.
    asked_lines: u64,
    /// What the sweep took, in case its epoch is lost.
    taken: Vec<(usize, u64)>,
    /// Lines that writers saved.
    saved_lines: u64,
}

impl Frozen {
    /// The same, and of a page with at least `whole_from` lines all are wanted that were not written since
    /// the cut. `asked_lines` were marked without a write ([`mark_whole`]).
    pub(crate) fn wanting(mut self, whole_from: u32, asked_lines: u64) -> Frozen {
        self.whole_from = whole_from;
        self.asked_lines = asked_lines;
        self
    }

    /// The next page with lines of the cut: its number, and the lines, which were appended to `into` one
    /// after the other.
    ///
    /// Where pages are wanted whole, each comes once, with what its writers saved. Where not, what was saved
    /// comes after all pages: to look at the slots while writers take them slows both down.
    pub(crate) fn next_page(&mut self, into: &mut Buffer) -> Option<(usize, u64)> {
        match self.weaves() {
            true => self.next_merged(into),
            false => self.next_swept(into).or_else(|| self.next_saved(into)),
        }
    }

    fn weaves(&self) -> bool {
        self.whole_from != u32::MAX
    }

    /// The next page with lines that the sweep was first to have.
    fn next_swept(&mut self, into: &mut Buffer) -> Option<(usize, u64)> {
        let by_page = self.place.state().by_page.load(Ordering::Relaxed);
        while let Some((page, waiting)) = self.next_waiting() {
            let lines = if by_page { !0 } else { waiting };
            let start = into.len();
            let had = self.sweep(page, lines, into);
            let taken = match had {
                0 => 0,
                _ if by_page => !0,
                had => had,
            };
            if taken != lines {
                self.merge_saved(page, start, lines, taken, taken, into);
            }
            if taken != 0 {
                return Some((page, taken));
            }
        }
        None
    }

    /// The next page with lines that writers saved. Only after all pages.
    fn next_saved(&mut self, into: &mut Buffer) -> Option<(usize, u64)> {
        let page = self.found.next_page()?;
        let saved = self.found.lines(page);
        self.saved_lines += u64::from(saved.count_ones());
        self.taken.push((page, 0));
        self.merge_saved(page, into.len(), 0, 0, saved, into);
        Some((page, saved))
    }

    /// Copies lines of a page and clears its marks, and says which stood after the copy.
    fn sweep(&mut self, page: usize, lines: u64, into: &mut Buffer) -> u64 {
        self.fetch(page + AHEAD);
        self.copy(page, lines, into);
        if self.place.state().takes_away.load(Ordering::Relaxed) {
            // SAFETY: pages may go, so the window has a pager; the page is one of the cut.
            unsafe { residence::set_in_flight(self.place, page) };
        }
        // The copy is done before the marks are looked at again.
        fence(Ordering::Acquire);
        // SAFETY: the page was usable at the cut, and stays so.
        let standing = unsafe { page_marks(self.map, page) };
        let had = mask(standing);
        set(standing, 0);
        // What the writers took is in the list too: its flight ends with the others'.
        self.taken.push((page, had));
        had
    }

    /// The next page with lines of the cut, of either side.
    fn next_merged(&mut self, into: &mut Buffer) -> Option<(usize, u64)> {
        let by_page = self.place.state().by_page.load(Ordering::Relaxed);
        while let Some((page, waiting)) = self.next_waiting() {
            let many = (waiting | self.found.lines(page)).count_ones() >= self.whole_from;
            let lines = match waiting {
                0 => 0,
                _ if by_page || many => !0,
                some => some,
            };
            let start = into.len();
            let had = self.sweep(page, lines, into);
            let copied = match had {
                0 => 0,
                _ if by_page => !0,
                _ if many => had | self.untouched(page, waiting),
                had => had,
            };
            // The place of a line is told before its mark is cleared.
            let saved = self.found.lines(page);
            // Unless they make the page whole, lines that did not change are of no use.
            let all = if copied | saved == !0 { !0 } else { had | saved };
            self.saved_lines += u64::from((saved & !had).count_ones());
            if all != lines || all & !copied != 0 {
                self.merge_saved(page, start, lines, copied, all, into);
            }
            if all != 0 {
                return Some((page, all));
            }
        }
        None
    }

    /// Those lines of a page that did not wait at the cut and were not written since either, as of the
    /// copies made so far. A frozen mark still stood after them, so the page was not given back before.
    fn untouched(&self, page: usize, waiting: u64) -> u64 {
        // SAFETY: the page was usable at the cut, and stays so.
        let written = mask(unsafe { page_marks(self.map ^ FLIP, page) });
        !waiting & !written
    }

    /// In `into` are `lines` from `start` on, and those `copied` count. Puts `all` in their place: the others
    /// are as writers saved them.
    fn merge_saved(&self, page: usize, start: usize, lines: u64, copied: u64, all: u64, into: &mut Buffer) {
        let mut woven = [0; PAGE];
        let at = |of: u64, line: usize| (of & !(!0 << line)).count_ones() as usize * LINE;
        for (line, bytes) in self.found.each(page) {
            if all & !copied & 1 << line != 0 {
                let at = at(all, line);
                woven[at..at + LINE].copy_from_slice(bytes);
            }
        }
        for run in LineMask(all & copied).runs() {
            let (to, from, bytes) = (at(all, run.start), start + at(lines, run.start), run.len() * LINE);
            woven[to..to + bytes].copy_from_slice(&into[from..from + bytes]);
        }
        into.truncate(start);
        into.extend_from_slice(&woven[..all.count_ones() as usize * LINE]);
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
        let mut lines = mask(unsafe { page_marks(self.map, page) });
        while lines != 0 {
            let at = page * PAGE + lines.trailing_zeros() as usize * LINE;
            prefetch::fetch(self.place.base().wrapping_add(at));
            lines &= lines - 1;
        }
    }

    /// Pages of the cut that were marked, once all are swept.
    pub(crate) fn pages(&self) -> impl Iterator<Item = usize> {
        self.taken.iter().map(|&(page, _)| page)
    }

    /// Lines of the cut that were marked, once all are swept.
    pub(crate) fn changed_lines(&self) -> u64 {
        let taken = self.taken.iter().map(|(_, lines)| u64::from(lines.count_ones()));
        (taken.sum::<u64>() + self.saved_lines).saturating_sub(self.asked_lines)
    }

    /// The epoch is durable, or marked again: what was swept is no longer on its way.
    pub(crate) fn clear_in_flight(&self) {
        if self.place.state().takes_away.load(Ordering::Relaxed) {
            for &(page, _) in &self.taken {
                // SAFETY: as in `sweep`.
                unsafe { residence::end_flight(self.place, page) };
            }
        }
    }

    /// The epoch is lost: every line of the cut is marked again, so that the next one has it. Lines that
    /// writers saved they have marked.
    pub(crate) fn requeue(mut self) {
        for (page, lines) in std::mem::take(&mut self.taken) {
            self.mark_again(page, lines);
            self.taken.push((page, 0));
        }
        while let Some((page, lines)) = self.next_waiting() {
            self.mark_again(page, lines);
            // SAFETY: the page was usable at the cut, and stays so.
            set(unsafe { page_marks(self.map, page) }, 0);
        }
        self.clear_in_flight();
    }

    fn mark_again(&self, page: usize, mut lines: u64) {
        let current = self.map ^ FLIP;
        // SAFETY: the window is in use until its sweep ends.
        unsafe { note(current, &lines_of(page)) };
        while lines != 0 {
            let line = page * LINES_PER_PAGE + lines.trailing_zeros() as usize;
            // SAFETY: the page was usable at the cut, and stays so.
            unsafe { mark(current, line) }.store(MARKED, Ordering::Release);
            lines &= lines - 1;
        }
    }

    /// The next page with a line of the cut, and those that are frozen still. Summaries are emptied on the way, each when
    /// the last page of its group was swept: until then a discard must find it (`discard::unmark`).
    #[inline]
    pub(super) fn next_waiting(&mut self) -> Option<(usize, u64)> {
        loop {
            let group = self.page / GROUP;
            if self.page.is_multiple_of(GROUP) && group > 0 {
                // Bytes of a frozen summary are not set any more.
                // SAFETY: the window is in use until its sweep ends, and has groups up to that of its last page.
                set(unsafe { summary(self.map, group - 1..group) }, 0);
            }
            if self.page >= self.end {
                break;
            }
            // SAFETY: as above.
            if self.page.is_multiple_of(GROUP) && !any(unsafe { summary(self.map, group..group + 1) }) {
                self.page = self.next_group(group);
                continue;
            }
            let page = self.page;
            self.page += 1;
            // SAFETY: the page was usable at the cut, and stays so.
            let waiting = mask(unsafe { page_marks(self.map, page) });
            if waiting != 0 || self.weaves() && self.found.has(page) {
                return Some((page, waiting));
            }
        }
        // From here on writers need not look at the frozen map. They read this at every update, so it is said once.
        if !self.is_swept {
            self.is_swept = true;
            let here = &self.place.state().here;
            here.frozen.store(0, Ordering::Release);
            here.set_simple(Some(self.place.base().addr()));
        }
        None
    }

    /// The first page of the next group that has its byte in the summary.
    fn next_group(&self, mut group: usize) -> usize {
        // Groups that are looked at by words first.
        const STRIDE: usize = 64;
        let groups = self.end.div_ceil(GROUP);
        while group < groups {
            let end = (group / STRIDE * STRIDE + STRIDE).min(groups);
            // SAFETY: the window is in use until its sweep ends; `end` is no more than it has.
            let bytes = unsafe { summary(self.map, group..end) };
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
