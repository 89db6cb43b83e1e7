//! Which lines were written, known without a fault, a copy or a handle: the explicit tracker.
//!
//! A line is 64 bytes and has one byte in a *line map*: its mark. A page is 64 lines, so its marks are
//! one line of the processor's cache. There are two maps a window; a cut swaps them, and that is all a
//! checkpoint does while no thread may write. The map that was current is now *frozen*: it names the lines
//! whose content, as of the cut, belongs to the checkpoint. A sweep copies them in the background while
//! writers go on.
//!
//! ```text
//! base + 512 GiB   + 8 GiB     + 16 GiB      + 24 GiB      + 32 GiB          (+ 128 GiB: paging.rs)
//! | map A          | map B     | summary A   | summary B   | saved lines     |
//!   a byte a line                a byte for every 8 pages    (`saved.rs`)
//! ```
//!
//! # The place of a frozen line's content
//!
//! The one that finished a copy of it while its frozen mark stood. A writer and the sweep race for it, with
//! plain loads and stores, and neither waits:
//!
//! * The **sweep** copies the line and looks at the mark again. If it still stands, the copy is the
//!   checkpoint's, and the sweep clears the mark; if not, a writer has saved the line, and the copy is
//!   thrown away.
//! * A **writer**, before he writes to a line ([`mark_bytes`]), looks at the frozen mark, while a sweep is on its
//!   way. If it stands the writer copies the line into a slot and looks again. If it still stands, the slot is the
//!   checkpoint's; if not, the line is saved elsewhere, and the slot is void. Then it clears the frozen
//!   mark, sets the current one, and writes.
//!
//! Why a copy that counts is whole, and of the cut: no thread writes a line before its frozen mark is clear
//! for him to see, or that nothing is frozen, which is said once all marks are clear. So if the
//! mark stands when the copy is done, no thread had written the line by then. All loads of the copy come
//! before the second look, and all writes to the line after the clearing: an acquire fence and a release
//! fence, for which x86-64 needs no instruction. A copy that does not count may be torn; its
//! content is never looked at (`copy` says what the language has to do with it).
//!
//! Why nothing need be claimed: two may find the mark standing, each with a copy that is done. Both count,
//! and they are the same, so the checkpoint may have either. Until the next cut a frozen mark is only ever
//! cleared, so the order of clearing does not matter, nor that a late thread does so again.
//!
//! Why no saved line is missed: a slot is taken before the mark is cleared, so a thread that finds the frozen marks of
//! a page clear finds all of its slots that count, and the sweep hands a page on once, with all of its lines.
//! A slot whose writer was interrupted before the last word is waited for; it has a tag that no earlier cut
//! can have left.
//!
//! Lines that were not frozen and have no current mark after they were copied did not change since the
//! cut either: the sweep can have a page whole where little of it is written meanwhile.
//!
//! Where a store keeps lines as large as pages (disks), all of this happens by page: the unit that is
//! copied is the page, its mark stands while that of any of its lines does, and all are cleared at once.
//!
//! # Invariants
//! * Marks of the current map are set only inside updates; a cut happens only outside all of them.
//! * Marks of the frozen map are set only by a cut. A cut finds the frozen map empty.
//! * A line whose current mark is set has no frozen mark.
//! * A page with a mark in a map has its group's byte in the summary, so that a look at a map costs what
//!   was written, not what there is.

mod barrier;
mod discard;
mod listed;
mod saved;
mod sweep;
#[cfg(test)]
mod tests;
mod wide_marks;

pub(crate) use barrier::{Span, mark_append, mark_bytes, mark_spans, mark_value};
pub(crate) use discard::{discard, take_discarded, take_given_back};
pub(crate) use listed::{copy_lines, line_at, put_lines, start as start_listing, take_marks};
pub(crate) use sweep::{Frozen, cut, mark_whole};

use crate::address::{PAGE, Place};
use crate::gate;
use crate::zone::{DATA_BYTES, Reserved, SIDE};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};
use twinpage_core::Geometry;

/// Bytes in a line of the maps.
pub const LINE: usize = 64;

const MAP_A: usize = DATA_BYTES;
/// The bit that tells the maps' addresses apart.
const FLIP: usize = SIDE;
/// From a map to its summary.
const SUMMARY: usize = 2 * SIDE;
const SAVED: usize = DATA_BYTES + 4 * SIDE;

const MARKED: u8 = 1;
const LINES_PER_PAGE: usize = PAGE / LINE;
/// Pages that share a byte of the summary.
const GROUP: usize = 8;
/// Bytes of a summary.
const SUMMARY_BYTES: usize = DATA_BYTES / PAGE / GROUP;
/// From this number of lines on, marks are read and set by words.
const MANY: usize = 16;

/// Whether this thread may write at `at`: no region is there, or a thread is inside an update of the region, this one or
/// the one that lent it the memory.
#[inline]
#[must_use]
pub fn may_write<T: ?Sized>(at: *const T) -> bool {
    gate::here().offsets_of([at.addr()])[0] < DATA_BYTES
        || Place::of(at).is_none_or(|place| place.is_volatile() || place.may_be_written())
}

/// Tells a thread that writes outside an update what to do.
///
/// # Panics
/// When no thread is inside an update of the region `at` points into.
#[inline]
#[track_caller]
pub fn assert_may_write<T: ?Sized>(at: *const T) {
    if !may_write(at) {
        panic!("{OUTSIDE}")
    }
}

const OUTSIDE: &str = "a region is written outside an update: put the change into `region.update(|_| ...)`";

/// A change is under way: a panic would leave it half done, for others to read and free what is no longer there.
#[cold]
#[inline(never)]
pub(crate) fn outside_update() -> ! {
    twinpage_os::messages::tell(&format!("{OUTSIDE}; the process ends"));
    std::process::abort()
}

/// Sets the bytes of a new window up.
pub(crate) fn begin(place: Place, reserved: &Reserved) -> crate::Result<()> {
    let base = place.base().addr();
    for map in [MAP_A, MAP_A ^ FLIP] {
        let summary = base + map + SUMMARY;
        let opened = reserved.open(summary..summary + SUMMARY_BYTES);
        opened.map_err(|e| crate::Error::system("opening a region's maps", e))?;
    }
    let opened = reserved.open(base + SAVED..base + SAVED + saved::BYTES);
    opened.map_err(|e| crate::Error::system("opening a region's saved lines", e))?;
    let state = place.state();
    state.by_page.store(false, Ordering::Relaxed);
    state.stored_page.store(PAGE, Ordering::Relaxed);
    discard::forget(place);
    listed::stop(place);
    state.saved.0.store(0, Ordering::Relaxed);
    state.here.cuts.store(1, Ordering::Relaxed);
    state.here.frozen.store(0, Ordering::Relaxed);
    state.here.current.store(base + MAP_A, Ordering::Release);
    state.here.set_simple(Some(base));
    Ok(())
}

/// The window is in use no longer.
pub(crate) fn end(place: Place) {
    let here = &place.state().here;
    here.set_simple(None);
    here.current.store(0, Ordering::Release);
}

/// Opens the marks of new data.
pub(crate) fn grow(place: Place, reserved: &Reserved, data: Range<usize>) -> io::Result<()> {
    let base = place.base().addr();
    for map in [base + MAP_A, base + (MAP_A ^ FLIP)] {
        reserved.open(map + data.start / LINE..map + data.end / LINE)?;
    }
    Ok(())
}

/// How the window's store is cut. Before its first write.
pub(crate) fn set_geometry(place: Place, geometry: Geometry) {
    let state = place.state();
    state
        .by_page
        .store(geometry.line_bytes() == PAGE, Ordering::Relaxed);
    state.stored_page.store(geometry.page_bytes(), Ordering::Relaxed);
}

/// Whether a line of the page is marked or frozen.
pub(crate) fn is_marked(place: Place, page: usize) -> bool {
    // The caller has changed what the writers see (`paging.rs`), and looks at the marks after that.
    fence(Ordering::SeqCst);
    let map = place.state().here.current.load(Ordering::SeqCst);
    // SAFETY: the pager asks for pages that are usable, of a window that is in use as long as it is.
    [map, map ^ FLIP]
        .into_iter()
        .any(|map| any(unsafe { page_marks(map, page) }))
}

/// Whether nothing was marked, grown or given back since the last cut.
pub(crate) fn is_clean(place: Place) -> bool {
    let map = place.state().here.current.load(Ordering::Acquire);
    // SAFETY: the region that asks has the window in use, so `map` is its map.
    let groups = unsafe { summary(map, 0..(place.bytes() / PAGE).div_ceil(GROUP)) };
    !any(groups) && !discard::is_owed(place)
}

/// The lines of a page.
fn lines_of(page: usize) -> Range<usize> {
    page * LINES_PER_PAGE..(page + 1) * LINES_PER_PAGE
}

/// The groups of these lines have a mark in the map.
///
/// # Safety
/// As [`summary`], meanwhile.
#[inline]
unsafe fn note(map: usize, lines: &Range<usize>) {
    const LINES: usize = GROUP * LINES_PER_PAGE;
    // SAFETY: `map` is a map of a window in use, by the caller's word.
    for byte in unsafe { summary(map, lines.start / LINES..(lines.end - 1) / LINES + 1) } {
        if byte.load(Ordering::Relaxed) != MARKED {
            byte.store(MARKED, Ordering::Relaxed);
        }
    }
}

/// What the summary has of the group of a line: [`MARKED`] or 0.
///
/// # Safety
/// As [`summary`], meanwhile.
#[inline(always)]
unsafe fn noted(map: usize, line: usize) -> u8 {
    let group = line / (GROUP * LINES_PER_PAGE);
    // SAFETY: `map` is a map of a window in use, by the caller's word.
    let noted = unsafe { summary(map, group..group + 1) };
    noted[0].load(Ordering::Relaxed)
}

/// The summary of some groups of pages.
///
/// # Safety
/// `map` is a map of a window that stays in use for `'w`, and has such groups: of usable lines or not.
#[inline]
unsafe fn summary<'w>(map: usize, groups: Range<usize>) -> &'w [AtomicU8] {
    let at = std::ptr::with_exposed_provenance(map + SUMMARY + groups.start);
    // SAFETY: summaries are open as long as a window is in use, for all groups there can be.
    unsafe { std::slice::from_raw_parts(at, groups.len()) }
}

/// The mark of a line.
///
/// # Safety
/// As [`marks`].
#[inline]
unsafe fn mark<'w>(map: usize, line: usize) -> &'w AtomicU8 {
    // SAFETY: the line is usable, so its mark is there as long as the window is in use, by the caller's word for `'w`.
    unsafe { &*std::ptr::with_exposed_provenance(map + line) }
}

/// The marks of some lines.
///
/// # Safety
/// `map` is a map of a window that stays in use for `'w`, and the lines are usable.
#[inline]
unsafe fn marks<'w>(map: usize, lines: Range<usize>) -> &'w [AtomicU8] {
    let at = std::ptr::with_exposed_provenance(map + lines.start);
    // SAFETY: maps are opened with the data they speak of and stay open as long as the window is in use.
    unsafe { std::slice::from_raw_parts(at, lines.len()) }
}

/// The marks of a page: a line of the cache.
///
/// # Safety
/// As [`marks`].
#[inline]
unsafe fn page_marks<'w>(map: usize, page: usize) -> &'w [AtomicU8] {
    // SAFETY: maps begin with a page of the system. The compiler makes plain words of aligned marks.
    unsafe { std::hint::assert_unchecked((map + page * LINES_PER_PAGE).is_multiple_of(LINES_PER_PAGE)) };
    // SAFETY: the lines of a usable page, in a map of a window that stays in use for `'w`, by the caller's word.
    unsafe { marks(map, lines_of(page)) }
}

/// Some marks as words of eight, and those around. A word is looked at, or stored, where a mark would be.
#[inline]
fn words(marks: &[AtomicU8]) -> (&[AtomicU8], &[AtomicU64], &[AtomicU8]) {
    if marks.len() < MANY || cfg!(any(miri, twinpage_plain)) {
        return (marks, &[], &[]);
    }
    // SAFETY: eight atomic bytes, aligned, are an atomic word: on x86-64 accesses of different sizes to
    // the same bytes are each atomic, and in the order of the marks' own.
    unsafe { marks.align_to() }
}

/// Whether any is set.
#[inline]
fn any(marks: &[AtomicU8]) -> bool {
    let (head, middle, tail) = words(marks);
    let mut sides = head.iter().chain(tail);
    sides.any(|mark| mark.load(Ordering::Acquire) != 0)
        || middle.iter().any(|word| word.load(Ordering::Acquire) != 0)
}

/// Whether all are set.
#[inline]
fn all(marks: &[AtomicU8]) -> bool {
    let (head, middle, tail) = words(marks);
    let mut sides = head.iter().chain(tail);
    sides.all(|mark| mark.load(Ordering::Acquire) == MARKED)
        && middle
            .iter()
            .all(|word| word.load(Ordering::Acquire) == u64::from_ne_bytes([MARKED; 8]))
}

#[inline]
fn set(marks: &[AtomicU8], value: u8) {
    let (head, middle, tail) = words(marks);
    for mark in head.iter().chain(tail) {
        mark.store(value, Ordering::Release);
    }
    for word in middle {
        word.store(u64::from_ne_bytes([value; 8]), Ordering::Release);
    }
}

/// The marks of a page, a bit each.
#[inline]
fn mask(marks: &[AtomicU8]) -> u64 {
    debug_assert_eq!(marks.len(), LINES_PER_PAGE);
    // Of a word of bytes that are 0 or 1, bit 8 k goes to bit 56 + k.
    const GATHER: u64 = 0x0102_0408_1020_4080;
    let (bytes, words, _) = words(marks);
    let bytes = bytes.iter().enumerate();
    let bytes = bytes.fold(0, |bits, (k, mark)| {
        bits | u64::from(mark.load(Ordering::Acquire)) << k
    });
    let words = words.iter().enumerate();
    words.fold(bytes, |bits, (k, word)| {
        bits | word.load(Ordering::Acquire).wrapping_mul(GATHER) >> 56 << (8 * k)
    })
}

/// Copies whole lines that a thread may be writing: of one that was raced with the copy holds anything.
///
/// No access of the language does that. Of a race between ordinary writes and a read of whatever kind it says
/// nothing, nor of bytes between fields, which need not be initialized. So the read is the processor's own:
/// to the compiler the bytes come from somewhere it cannot look, and are what they are.
///
/// # Safety
/// Both are usable for `bytes` bytes, whole lines; `from` begins a line, `to` is the caller's alone.
#[inline]
#[cfg(not(miri))]
unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    debug_assert!(from.addr().is_multiple_of(LINE) && bytes.is_multiple_of(LINE));
    let (past, left) = (from.wrapping_add(bytes), bytes.wrapping_neg());
    if bytes == 0 {
        return;
    }
    // SAFETY: by the caller's word; a line is four vectors, read aligned. The compiler takes it for an access
    // to any memory, and x86-64 does loads in their order, so the marks are looked at before and after.
    unsafe {
        std::arch::asm!(
            "2:",
            "movaps {a}, [{from} + {left}]",
            "movaps {b}, [{from} + {left} + 16]",
            "movaps {c}, [{from} + {left} + 32]",
            "movaps {d}, [{from} + {left} + 48]",
            "movups [{to} + {left}], {a}",
            "movups [{to} + {left} + 16], {b}",
            "movups [{to} + {left} + 32], {c}",
            "movups [{to} + {left} + 48], {d}",
            "add {left}, 64",
            "jnz 2b",
            from = in(reg) past,
            to = in(reg) to.wrapping_add(bytes),
            left = inout(reg) left => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack),
        );
    }
}

/// The same for an interpreter: word by word, atomically. It tells of races, and of bytes not initialized.
#[cfg(miri)]
unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    let (from, to) = (from.cast::<AtomicU64>(), to.cast::<u64>());
    for k in 0..bytes / 8 {
        // SAFETY: by the caller's word.
        unsafe { to.add(k).write_unaligned((*from.add(k)).load(Ordering::Relaxed)) };
    }
}
