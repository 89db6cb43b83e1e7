//! Which lines were written, known without a fault, a copy or a handle: the explicit tracker.
//!
//! A line is 64 bytes, a page 64 lines, so a page has one word in a *line map*. There are two maps a
//! window; a cut swaps them, and that is all a checkpoint does while nobody may write. The map that
//! was current is now *frozen*: it names the lines whose content, as of the cut, belongs to the
//! checkpoint. A sweep copies them in the background while writers go on.
//!
//! ```text
//! base + 512 GiB      + 1 GiB          + 2 GiB        + 3 GiB          + 8 GiB
//! | map A             | summary A  ... | map B        | summary B  ... | saved lines       |
//!   a word a page       a byte a step                                     (64 MiB of slots)
//! ```
//!
//! # Who owns the content of a frozen line
//!
//! Whoever clears its frozen bit. A writer and the sweep race for it, and neither waits:
//!
//! * The **sweep** copies the line, then clears the bit. If the bit was still set, its copy is the
//!   checkpoint's; if not, a writer has saved the line, and the copy is thrown away.
//! * A **writer**, before the first write to a line in an epoch ([`touch`]), looks at the bit. If it
//!   is set the writer copies the line into a slot and then clears the bit. If it was still set, the
//!   slot is the checkpoint's; if not, somebody else was first, and the slot is void.
//!
//! Why the copy of the one who clears is whole, and of the cut: the line is written only after its
//! bit was seen clear (in the fast path: after its current bit was seen set, which is set with
//! release after that). So as long as the bit is set nobody has written the line since the cut, and
//! a copy finished before the bit goes from set to clear was of the cut. The clearing is one atomic
//! operation with release, every look at the bit is one with acquire: all loads of a copy come
//! before the clearing that makes it count, and all writes to the line after it. A copy that does not
//! count may be torn; it is read word by word, atomically, and its content is never looked at.
//!
//! Why no saved line is missed: a slot is taken before the bit is cleared, so who finds all frozen
//! bits clear finds all slots that count. One whose writer was interrupted between the clearing and
//! the last word is waited for; it has a tag that no earlier cut can have left.
//!
//! Where a store keeps lines as large as pages (disks), all of this happens by page: every bit of
//! the frozen word is claimed at once, and the unit that is copied is the page.
//!
//! # Invariants
//! * Bits of the current map are set only inside updates; a cut happens only outside all of them.
//! * Bits of the frozen map are set only by a cut. A cut finds the frozen map empty.
//! * A page with a bit in a map has its step's byte in the summary, so that a look at a map costs what
//!   was written, not what there is.

use crate::gate;
use crate::window::{DATA_BYTES, PAGE, Place, Reserved, SAVED_BYTES, SIDE, STEP, locate};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{MutexGuard, PoisonError};
use twinpage_core::{Geometry, PageId};

/// Bytes in a line of the maps.
pub const LINE: usize = 64;

const MAP_A: usize = DATA_BYTES;
/// The bit that tells the maps' addresses apart.
const FLIP: usize = 2 * SIDE;
/// From a map to its summary.
const SUMMARY: usize = SIDE;
/// Saved lines. A writer that finds no room left for one waits for the sweep.
const SAVED: usize = DATA_BYTES + 8 * SIDE;

/// How many pages ahead of the sweep lines are fetched.
const AHEAD: usize = 8;

const PAGES_PER_STEP: usize = STEP / PAGE;
const LINES_PER_PAGE: usize = PAGE / LINE;

/// These bytes are about to be written by this thread, inside an update of the region they lie in.
/// Outside every region nothing happens.
///
/// # Panics
/// When the thread is not inside an update of the region: the write would be torn by a crash.
#[inline]
pub fn touch<T: ?Sized>(at: *const T, bytes: usize) {
    let Some((index, offset)) = locate(at.addr()).filter(|_| bytes > 0) else {
        return;
    };
    let place = Place::numbered(index);
    let map = place.state().current.load(Ordering::Acquire);
    if map == 0 {
        return;
    }
    let (first, page) = (offset / LINE, offset / PAGE);
    if offset % LINE + bytes <= LINE {
        // Most often it is on one line.
        // SAFETY: the address is usable, so its word of the map is (`grow`).
        let word = unsafe { word(map, page) }.load(Ordering::Acquire);
        if (word >> (first % LINES_PER_PAGE)) & 1 == 0 {
            touch_lines(place, first, first);
        }
        return;
    }
    let last = (offset + bytes - 1) / LINE;
    if page == last / LINES_PER_PAGE {
        let lines = run(first % LINES_PER_PAGE, last - first + 1);
        // SAFETY: as above.
        let word = unsafe { word(map, page) };
        if word.load(Ordering::Acquire) & lines == lines {
            return;
        }
    }
    touch_lines(place, first, last);
}

/// Whether this thread may write at `at`: it is inside an update of the region, or there is none.
#[inline]
#[must_use]
pub fn may_write<T: ?Sized>(at: *const T) -> bool {
    Place::of(at).is_none_or(|place| gate::is_inside(place) || place.is_volatile())
}

/// Tells whoever writes outside an update what to do.
///
/// # Panics
/// When the thread is not inside an update of the region `at` points into.
#[inline]
#[track_caller]
pub fn assert_may_write<T: ?Sized>(at: *const T) {
    if !may_write(at) {
        outside_update();
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn outside_update() -> ! {
    panic!("a region is written outside an update: put the change into `region.update(|_| ...)`")
}

/// The first touch of some of the lines in this epoch.
#[inline(never)]
fn touch_lines(place: Place, first: usize, last: usize) {
    let state = place.state();
    if !(gate::is_inside(place) || place.is_volatile()) {
        outside_update();
    }
    let map = state.current.load(Ordering::Acquire);
    for page in first / LINES_PER_PAGE..=last / LINES_PER_PAGE {
        let start = first.max(page * LINES_PER_PAGE);
        let end = last.min(page * LINES_PER_PAGE + LINES_PER_PAGE - 1);
        let lines = run(start % LINES_PER_PAGE, end - start + 1);
        // SAFETY: the caller is about to write there, so the page is usable and its words are.
        let (current, frozen) = unsafe { (word(map, page), word(map ^ FLIP, page)) };
        let had = current.load(Ordering::Acquire);
        if had & lines == lines {
            continue;
        }
        let waiting = frozen.load(Ordering::Acquire);
        if waiting != 0 {
            save(place, page, frozen, waiting & lines & !had);
        }
        if had == 0 {
            note(map, page);
        }
        // After the lines are saved: who sees the bits writes at once.
        current.fetch_or(lines, Ordering::Release);
    }
}

/// Saves the frozen lines of `wanted`, so that they can be written.
#[cold]
#[inline(never)]
fn save(place: Place, page: usize, frozen: &AtomicU64, wanted: u64) {
    let state = place.state();
    if state.by_page.load(Ordering::Relaxed) {
        return save_unit(place, page * PAGE, PAGE, frozen, !0);
    }
    let mut rest = wanted;
    while rest != 0 {
        let line = rest.trailing_zeros() as usize;
        save_unit(place, page * PAGE + line * LINE, LINE, frozen, 1 << line);
        rest &= rest - 1;
    }
}

/// Copies one unit to a slot and claims it by clearing `bits`.
fn save_unit(place: Place, offset: usize, bytes: usize, frozen: &AtomicU64, bits: u64) {
    let state = place.state();
    let index = state.saved.fetch_add(1, Ordering::Relaxed);
    let Some(slot) = Slot::at(place, index, bytes) else {
        // The sweep comes by without our help.
        while frozen.load(Ordering::Acquire) & bits != 0 {
            std::thread::yield_now();
        }
        return;
    };
    let from = place.base().wrapping_add(offset);
    // SAFETY: the unit is usable memory of the window, the slot is ours alone.
    unsafe { copy(from, slot.bytes, bytes) };
    slot.offset.store(offset as u64, Ordering::Relaxed);
    let won = (frozen.fetch_and(!bits, Ordering::AcqRel) & bits).count_ones();
    let cuts = state.cuts.load(Ordering::Relaxed);
    slot.state.store(cuts << 8 | u64::from(won), Ordering::Release);
}

/// Room for one saved unit.
struct Slot {
    /// The number of the cut, and in the lowest byte how many marked lines the slot holds; 0 when it
    /// does not count.
    state: &'static AtomicU64,
    offset: &'static AtomicU64,
    bytes: *mut u8,
}

impl Slot {
    fn at(place: Place, index: usize, bytes: usize) -> Option<Slot> {
        let at = index.checked_mul(16 + bytes)?;
        if at + 16 + bytes > SAVED_BYTES {
            return None;
        }
        let at = place.base().wrapping_add(SAVED + at);
        // SAFETY: the slots are open since `begin`; two atomic words, then bytes, 16-aligned.
        unsafe {
            Some(Slot {
                state: &*at.cast(),
                offset: &*at.add(8).cast(),
                bytes: at.add(16),
            })
        }
    }
}

/// Sets the bytes of a new window up.
pub(crate) fn begin(place: Place, reserved: &Reserved) -> crate::Result<()> {
    let base = place.base().addr();
    for map in [MAP_A, MAP_A ^ FLIP] {
        let summary = base + map + SUMMARY;
        let opened = reserved.open(summary..summary + DATA_BYTES / STEP);
        opened.map_err(|e| crate::Error::system("opening a region's maps", e))?;
    }
    let opened = reserved.open(base + SAVED..base + SAVED + SAVED_BYTES);
    opened.map_err(|e| crate::Error::system("opening a region's saved lines", e))?;
    let state = place.state();
    state.by_page.store(false, Ordering::Relaxed);
    state.stored_page.store(PAGE, Ordering::Relaxed);
    discarded(place).clear();
    state.saved.store(0, Ordering::Relaxed);
    state.cuts.store(1, Ordering::Relaxed);
    state.current.store(base + MAP_A, Ordering::Release);
    Ok(())
}

/// The window is in use no longer.
pub(crate) fn end(place: Place) {
    place.state().current.store(0, Ordering::Release);
}

/// Opens the words of new data.
pub(crate) fn grow(place: Place, reserved: &Reserved, data: Range<usize>) -> io::Result<()> {
    let base = place.base().addr();
    for map in [base + MAP_A, base + (MAP_A ^ FLIP)] {
        reserved.open(map + data.start / PAGE * 8..map + data.end / PAGE * 8)?;
    }
    Ok(())
}

/// The whole pages of `range` are about to lose what they hold: what is frozen of them is saved, and
/// they count as not written.
fn unmark(place: Place, range: &Range<usize>) {
    let map = place.state().current.load(Ordering::Acquire);
    let mut page = range.start / PAGE;
    while page < range.end / PAGE {
        let step = page / PAGES_PER_STEP;
        // SAFETY: the range is usable, so its words and bytes are.
        let written = unsafe { summary(map, step) | summary(map ^ FLIP, step) };
        if written == 0 {
            page = (step + 1) * PAGES_PER_STEP;
            continue;
        }
        // SAFETY: as above.
        let (current, frozen) = unsafe { (word(map, page), word(map ^ FLIP, page)) };
        let waiting = frozen.load(Ordering::Acquire);
        if waiting != 0 {
            save(place, page, frozen, waiting);
        }
        current.store(0, Ordering::Release);
        page += 1;
    }
}

/// Makes the whole pages of `range` zero with `zero`, and remembers it for the next cut: pages of the
/// store that are gone altogether are discarded there, the rest is written.
pub(crate) fn discard<E>(
    place: Place,
    range: Range<usize>,
    zero: impl FnOnce() -> Result<(), E>,
) -> Result<(), E> {
    if place.is_volatile() {
        return zero();
    }
    assert_may_write(place.base());
    unmark(place, &range);
    zero()?;
    let stored = place.state().stored_page.load(Ordering::Relaxed);
    let first = range.start.next_multiple_of(stored).min(range.end);
    let whole = first..(range.end / stored * stored).max(first);
    for rest in [range.start..whole.start, whole.end..range.end] {
        touch(place.base().wrapping_add(rest.start), rest.len());
    }
    if !whole.is_empty() {
        discarded(place).push(whole);
    }
    Ok(())
}

/// Whether a line of the page is marked or frozen.
pub(crate) fn is_marked(place: Place, page: usize) -> bool {
    let map = place.state().current.load(Ordering::SeqCst);
    // SAFETY: the pager asks for pages that are usable.
    unsafe { word(map, page).load(Ordering::SeqCst) | word(map ^ FLIP, page).load(Ordering::SeqCst) != 0 }
}

/// Whether nothing was marked, grown or given back since the last cut.
pub(crate) fn is_clean(place: Place) -> bool {
    let map = place.state().current.load(Ordering::Acquire);
    let steps = place.bytes() / STEP;
    // SAFETY: summaries are open since `begin`.
    (0..steps).all(|step| unsafe { summary(map, step) } == 0) && discarded(place).is_empty()
}

/// What was given back since the last cut, in bytes from the base.
fn discarded(place: Place) -> MutexGuard<'static, Vec<Range<usize>>> {
    let held = place.state().discarded.lock();
    held.unwrap_or_else(PoisonError::into_inner)
}

/// The pages of `geometry` that were given back since the last cut.
pub(crate) fn take_discarded(place: Place, geometry: Geometry) -> Vec<Range<PageId>> {
    let page = geometry.page_bytes();
    let ranges = std::mem::take(&mut *discarded(place));
    let pages = ranges
        .into_iter()
        .map(|range| PageId((range.start / page) as u64)..PageId((range.end / page) as u64));
    pages.collect()
}

/// Swaps the maps: what was marked is frozen, nothing is marked. The stop, and all of it.
///
/// No update is running, and the frozen map of the cut before is empty.
pub(crate) fn cut(place: Place) -> Frozen {
    let state = place.state();
    let map = state.current.load(Ordering::Relaxed);
    state.saved.store(0, Ordering::Relaxed);
    state.cuts.fetch_add(1, Ordering::Relaxed);
    state.current.store(map ^ FLIP, Ordering::Release);
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
    /// The next page with frozen lines: its number and the lines of it that are now in `into`. Lines
    /// a writer was faster with come later, from [`Frozen::next_saved`].
    pub(crate) fn next_page(&mut self, into: &mut [u8; PAGE]) -> Option<(usize, u64)> {
        let by_page = self.place.state().by_page.load(Ordering::Relaxed);
        let takes_away = self.place.state().takes_away.load(Ordering::Relaxed);
        while let Some(page) = self.next_waiting() {
            // SAFETY: the page was usable at the cut, and stays so.
            let word = unsafe { word(self.map, page) };
            let waiting = word.load(Ordering::Acquire);
            let lines = if by_page { !0 } else { waiting };
            self.fetch(page + AHEAD);
            let from = self.place.base().wrapping_add(page * PAGE);
            for run in twinpage_core::LineMask(lines).runs() {
                let bytes = &mut into[run.start * LINE..run.end * LINE];
                // SAFETY: the page is usable memory of the window, `into` is ours.
                unsafe {
                    copy(
                        from.wrapping_add(run.start * LINE),
                        bytes.as_mut_ptr(),
                        bytes.len(),
                    )
                };
            }
            if takes_away {
                crate::paging::set_in_flight(self.place, page);
            }
            let had = word.fetch_and(!lines, Ordering::AcqRel);
            let taken = match by_page {
                true if had != 0 => !0,
                true => 0,
                false => had & lines,
            };
            // What the writers took is in the list too: its flight ends with the others'.
            self.taken.push((page, had & lines));
            if taken != 0 {
                return Some((page, taken));
            }
        }
        None
    }

    /// Brings the frozen lines of a page nearer, which will soon be looked at.
    fn fetch(&self, page: usize) {
        if page >= self.end || page / PAGES_PER_STEP != (page - AHEAD) / PAGES_PER_STEP {
            return;
        }
        // SAFETY: the page is usable.
        let mut lines = unsafe { word(self.map, page) }.load(Ordering::Relaxed);
        // Many lines side by side the processor finds by itself.
        if lines.count_ones() > 16 {
            return;
        }
        while lines != 0 {
            let at = page * PAGE + lines.trailing_zeros() as usize * LINE;
            prefetch(self.place.base().wrapping_add(at));
            lines &= lines - 1;
        }
    }

    /// The next unit that a writer saved, and its offset from the base. Only after all pages.
    pub(crate) fn next_saved(&mut self) -> Option<(usize, &[u8])> {
        let state = self.place.state();
        let unit = match state.by_page.load(Ordering::Relaxed) {
            true => PAGE,
            false => LINE,
        };
        let cuts = state.cuts.load(Ordering::Relaxed);
        while self.slot < state.saved.load(Ordering::Acquire) {
            let slot = Slot::at(self.place, self.slot, unit)?;
            self.slot += 1;
            let mut tag = slot.state.load(Ordering::Acquire);
            while tag >> 8 != cuts {
                std::thread::yield_now();
                tag = slot.state.load(Ordering::Acquire);
            }
            if tag & 0xff != 0 {
                self.saved_lines += tag & 0xff;
                let offset = slot.offset.load(Ordering::Relaxed) as usize;
                self.taken.push((offset / PAGE, 0));
                // SAFETY: the slot's writer is done with it (acquire above), and slots are given out
                // anew only after the next cut, which waits for the end of this sweep.
                return Some((offset, unsafe { std::slice::from_raw_parts(slot.bytes, unit) }));
            }
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

    /// The epoch is lost: every line of the cut is marked again, so that the next one has it.
    pub(crate) fn thaw(mut self) {
        let current = self.map ^ FLIP;
        for &(page, lines) in &self.taken {
            note(current, page);
            // SAFETY: the page was usable at the cut, and stays so.
            unsafe { word(current, page) }.fetch_or(lines, Ordering::AcqRel);
        }
        while let Some(page) = self.next_waiting() {
            note(current, page);
            // SAFETY: as above.
            let (current, frozen) = unsafe { (word(current, page), word(self.map, page)) };
            let lines = frozen.load(Ordering::Acquire);
            current.fetch_or(lines, Ordering::AcqRel);
            frozen.fetch_and(!lines, Ordering::AcqRel);
        }
        self.land();
    }

    /// The next page with a frozen line. Summaries are emptied on the way.
    fn next_waiting(&mut self) -> Option<usize> {
        while self.page < self.end {
            let step = self.page / PAGES_PER_STEP;
            let next = (step + 1) * PAGES_PER_STEP;
            // SAFETY: the step was usable at the cut, and stays so.
            if unsafe { summary(self.map, step) } != 0 {
                while self.page < next {
                    let page = self.page;
                    self.page += 1;
                    // SAFETY: as above.
                    if unsafe { word(self.map, page) }.load(Ordering::Acquire) != 0 {
                        return Some(page);
                    }
                }
                // SAFETY: as above; nobody sets bytes of a frozen summary.
                unsafe { &*summary_at(self.map, step) }.store(0, Ordering::Relaxed);
            }
            self.page = next;
        }
        None
    }
}

#[inline]
fn prefetch(at: *const u8) {
    #[cfg(not(miri))]
    // SAFETY: a hint, which is defined for any address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast())
    }
}

/// A page of the map has its first bit.
fn note(map: usize, page: usize) {
    // SAFETY: summaries are open since `begin`.
    let byte = unsafe { &*summary_at(map, page / PAGES_PER_STEP) };
    if byte.load(Ordering::Relaxed) == 0 {
        byte.store(1, Ordering::Relaxed);
    }
}

/// `count` bits from bit `first` on.
#[inline]
fn run(first: usize, count: usize) -> u64 {
    (!0 >> (LINES_PER_PAGE - count)) << first
}

/// The word of a page.
///
/// # Safety
/// `map` is a map of a window in use, and the page usable.
#[inline]
unsafe fn word(map: usize, page: usize) -> &'static AtomicU64 {
    let at = std::ptr::with_exposed_provenance::<AtomicU64>(map + page * 8);
    // SAFETY: by the caller's word; maps are opened with the data they speak of and stay open.
    unsafe { &*at }
}

fn summary_at(map: usize, step: usize) -> *const AtomicU8 {
    std::ptr::with_exposed_provenance(map + SUMMARY + step)
}

/// The byte of a step.
///
/// # Safety
/// As [`word`].
unsafe fn summary(map: usize, step: usize) -> u8 {
    // SAFETY: summaries are open since `begin`.
    unsafe { &*summary_at(map, step) }.load(Ordering::Relaxed)
}

/// Copies whole words that somebody may be writing: a copy that was raced with is torn, not undefined.
///
/// # Safety
/// Both are usable for so many bytes, a multiple of 8; `from` is 8-aligned, `to` is the caller's alone.
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    let (from, to) = (from.cast::<AtomicU64>(), to.cast::<u64>());
    for k in 0..bytes / 8 {
        // SAFETY: by the caller's word.
        unsafe { to.add(k).write_unaligned((*from.add(k)).load(Ordering::Relaxed)) };
    }
}

/// How the window's store is cut. Before its first write.
pub(crate) fn set_geometry(place: Place, geometry: Geometry) {
    let state = place.state();
    state
        .by_page
        .store(geometry.line_bytes() == PAGE, Ordering::Relaxed);
    state.stored_page.store(geometry.page_bytes(), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::Window;
    use std::sync::atomic::AtomicBool;

    /// Marked lines of a page in the current map.
    fn marked(place: Place, page: usize) -> u64 {
        let map = place.state().current.load(Ordering::Relaxed);
        // SAFETY: tests ask for usable pages.
        unsafe { word(map, page) }.load(Ordering::Relaxed)
    }

    fn updating<R>(place: Place, f: impl FnOnce() -> R) -> R {
        let _inside = gate::enter(place);
        f()
    }

    fn fill(place: Place, offset: usize, bytes: usize, value: u8) {
        let at = place.base().wrapping_add(offset);
        touch(at, bytes);
        // SAFETY: tests write usable memory of their own window.
        unsafe { at.write_bytes(value, bytes) };
    }

    /// What a sweep yields, applied to `image`.
    fn apply(frozen: &mut Frozen, image: &mut [u8]) -> usize {
        let (mut page, mut lines_swept) = ([0; PAGE], 0);
        while let Some((number, lines)) = frozen.next_page(&mut page) {
            for run in twinpage_core::LineMask(lines).runs() {
                let (start, end) = (run.start * LINE, run.end * LINE);
                image[number * PAGE + start..number * PAGE + end].copy_from_slice(&page[start..end]);
                lines_swept += run.len();
            }
        }
        while let Some((offset, bytes)) = frozen.next_saved() {
            image[offset..offset + bytes.len()].copy_from_slice(bytes);
            lines_swept += bytes.len() / LINE;
        }
        lines_swept
    }

    #[test]
    fn lines_are_marked_where_bytes_are_touched() {
        let window = Window::volatile().unwrap();
        let place = window.place();
        place.grow(STEP).unwrap();
        let at = |offset| place.base().wrapping_add(offset);
        touch(at(0), 0);
        assert_eq!(marked(place, 0), 0);
        touch(at(63), 1);
        assert_eq!(marked(place, 0), 1);
        touch(at(64 * 5 + 60), 5);
        assert_eq!(marked(place, 0), 1 | 0b11 << 5);
        touch(at(PAGE - 1), PAGE + 2);
        assert_eq!(
            (marked(place, 0) >> 63, marked(place, 1), marked(place, 2)),
            (1, !0, 1)
        );
        let on_stack = 5_u64;
        touch(&raw const on_stack, 8);
        let on_heap = Box::new(5_u64);
        touch(&raw const *on_heap, 8);
        assert!(may_write(&raw const on_stack) && may_write(at(0)));
    }

    #[test]
    fn a_write_outside_an_update_is_told_what_to_do() {
        let window = Window::reserve(None).unwrap();
        let place = window.place();
        place.grow(STEP).unwrap();
        assert!(!may_write(place.base()));
        let message = *std::panic::catch_unwind(|| touch(place.base(), 8))
            .unwrap_err()
            .downcast::<&str>()
            .unwrap();
        assert!(message.contains("region.update("), "{message}");
        assert!(std::panic::catch_unwind(|| assert_may_write(place.base())).is_err());
        updating(place, || {
            touch(place.base(), 8);
            assert_may_write(place.base());
        });
        assert_eq!(marked(place, 0), 1);
    }

    #[test]
    fn a_cut_keeps_what_was_there() {
        for by_page in [false, true] {
            let window = Window::reserve(None).unwrap();
            let place = window.place();
            place.grow(2 * STEP).unwrap();
            set_geometry(place, if by_page { Geometry::DISK } else { Geometry::MEMORY });
            let mut image = vec![0; 2 * STEP];
            updating(place, || {
                fill(place, 0, 64, 1);
                fill(place, STEP + 100, 5000, 2);
            });
            let mut frozen = cut(place);
            updating(place, || fill(place, 32, 64, 3));
            apply(&mut frozen, &mut image);
            assert!(image[..64].iter().all(|&b| b == 1) && image[64..STEP].iter().all(|&b| b == 0));
            assert!(image[STEP + 100..STEP + 5100].iter().all(|&b| b == 2));
            let mut frozen = cut(place);
            let lines = apply(&mut frozen, &mut image);
            assert_eq!(lines, if by_page { 64 } else { 2 });
            assert!(image[..32].iter().all(|&b| b == 1) && image[32..96].iter().all(|&b| b == 3));
        }
    }

    #[test]
    fn a_lost_cut_comes_with_the_next() {
        let window = Window::reserve(None).unwrap();
        let place = window.place();
        place.grow(2 * STEP).unwrap();
        let mut image = vec![0; 2 * STEP];
        updating(place, || {
            for page in [0, 3, 600] {
                fill(place, page * PAGE + 7, 60, 1 + page as u8);
            }
        });
        let mut frozen = cut(place);
        frozen.next_page(&mut [0; PAGE]).unwrap();
        updating(place, || fill(place, 3 * PAGE + 7, 60, 9));
        frozen.thaw();
        let mut frozen = cut(place);
        assert_eq!(apply(&mut frozen, &mut image), 6);
        assert_eq!(
            [0, 3, 600].map(|page| image[page * PAGE + 66]),
            [1, 9, 1 + 600_usize as u8]
        );
    }

    #[test]
    fn forgotten_pages_are_saved_and_no_longer_marked() {
        let window = Window::reserve(None).unwrap();
        let place = window.place();
        place.grow(STEP).unwrap();
        let mut image = vec![0; STEP];
        updating(place, || fill(place, 0, 4 * PAGE, 1));
        let mut frozen = cut(place);
        updating(place, || {
            fill(place, PAGE, 3 * PAGE, 2);
            // SAFETY: nothing lives there.
            unsafe { place.discard(PAGE..3 * PAGE) }.unwrap();
        });
        apply(&mut frozen, &mut image);
        assert!(image[..4 * PAGE].iter().all(|&b| b == 1));
        assert_eq!([0, 1, 2, 3].map(|page| marked(place, page)), [0, 0, 0, !0]);
        assert_eq!(take_discarded(place, Geometry::MEMORY), [PageId(1)..PageId(3)]);
    }

    #[test]
    fn a_part_of_a_stored_page_is_written_with_zeros() {
        let window = Window::reserve(None).unwrap();
        let place = window.place();
        place.grow(STEP).unwrap();
        set_geometry(place, Geometry::DISK);
        updating(place, || {
            fill(place, 0, STEP, 1);
            // SAFETY: nothing lives there.
            unsafe { place.discard(60 * PAGE..130 * PAGE) }.unwrap();
        });
        assert_eq!(take_discarded(place, Geometry::DISK), [PageId(1)..PageId(2)]);
        assert_eq!(
            [60, 63, 64, 127, 128].map(|page| marked(place, page)),
            [!0, !0, 0, 0, !0]
        );
    }

    /// Threads write their own words of shared lines while sweeps run; every cut must be a picture of
    /// its instant.
    #[test]
    fn every_sweep_is_the_picture_of_its_cut() {
        let cuts = if std::env::var_os("TWINPAGE_LONG").is_some() {
            20_000
        } else {
            400
        };
        for by_page in [false, true] {
            pictures(by_page, cuts, fastrand::u64(..));
        }
    }

    fn pictures(by_page: bool, cuts: u32, seed: u64) {
        const BYTES: usize = 48 * PAGE;
        let window = Window::reserve(None).unwrap();
        let place = window.place();
        place.grow(STEP).unwrap();
        set_geometry(place, if by_page { Geometry::DISK } else { Geometry::MEMORY });
        let done = AtomicBool::new(false);
        let words = place.base().cast::<AtomicU64>();
        // SAFETY: the words are usable for as long as the window is, and only used atomically.
        let words: &[AtomicU64] = unsafe { std::slice::from_raw_parts(words, BYTES / 8) };
        let mut image = vec![0; BYTES];
        let mut random = fastrand::Rng::with_seed(seed);
        std::thread::scope(|scope| {
            for own in 0..3 {
                let (done, mut random) = (&done, random.fork());
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        updating(place, || {
                            for _ in 0..random.usize(1..40) {
                                let word =
                                    &words[random.usize(..BYTES / 64) * 8 + own + random.usize(..2) * 4];
                                touch(word, 8);
                                word.fetch_add(random.u64(..), Ordering::Relaxed);
                            }
                        });
                    }
                });
            }
            for cut_number in 0..cuts {
                let (mut frozen, picture) = {
                    let _stop = place.state().gate.close(place);
                    let words = words.iter().flat_map(|w| w.load(Ordering::Relaxed).to_ne_bytes());
                    (cut(place), words.collect::<Vec<_>>())
                };
                apply(&mut frozen, &mut image);
                if image != picture {
                    done.store(true, Ordering::Relaxed);
                    let at = image.iter().zip(&picture).position(|(a, b)| a != b);
                    panic!("seed {seed}, cut {cut_number}: not the picture at byte {at:?}");
                }
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}
