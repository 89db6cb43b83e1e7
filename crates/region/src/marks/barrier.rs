//! The write barrier: what is about to be written is marked first.
//!
//! * Nearly always that is a store for each few lines, by arithmetic on the address: in the window of the innermost
//!   update, in groups that are noted, with nothing of the lines frozen ([`mark_simply`]). All else is [`mark_any`].
//! * How many operations are under way at once is limited by their instructions, so every one counts: sizes known to
//!   the compiler make few of them, and what several marks have in common is done once ([`mark_spans`]).

use super::wide_marks::Few;
use super::{FLIP, LINE, LINES_PER_PAGE, MARKED, all, listed, mark, marks, note, outside_update, saved, set};
use crate::address::Place;
use crate::gate::{self, MarkState};
use crate::zone::{DATA_BYTES, locate};
use std::ops::Range;
use std::sync::atomic::{Ordering, fence};

/// Bytes whose lines are marked by two stores at most ([`Few`]).
const FEW: usize = 15 * LINE;

/// Bytes that are about to be written.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    at: usize,
    bytes: usize,
    /// Known to be on one line.
    is_one: bool,
}

impl Span {
    /// A whole value.
    #[inline(always)]
    pub(crate) fn of_value<T>(at: *const T) -> Span {
        Span::new(at, size_of::<T>())
    }

    /// What lies on the line of an address, and on no other.
    #[inline(always)]
    pub(crate) fn of_line<T>(at: *const T) -> Span {
        Span {
            at: at.addr(),
            bytes: 1,
            is_one: true,
        }
    }

    /// Bytes that begin as a `T` does: on one line, if they are as aligned as long.
    #[inline(always)]
    fn new<T>(at: *const T, bytes: usize) -> Span {
        Span {
            at: at.addr(),
            bytes,
            is_one: bytes <= align_of::<T>().min(LINE),
        }
    }

    #[inline(always)]
    fn is_few(self) -> bool {
        (1..=FEW).contains(&self.bytes)
    }
}

/// These bytes are about to be written by this thread, inside an update of the region they lie in.
/// Outside every region nothing happens.
///
/// # Panics
/// When the thread is not inside an update of the region: the write would be torn by a crash.
#[inline(always)]
pub(crate) fn mark_bytes<T>(at: *const T, bytes: usize) {
    match bytes {
        0 => {}
        1..=LINE => mark_few([Span::new(at, bytes)]),
        _ => mark_more(at.addr(), bytes),
    }
}

/// [`mark_bytes`] of a whole value.
///
/// # Panics
/// As [`mark_bytes`].
#[inline(always)]
pub(crate) fn mark_value<T>(at: *const T) {
    mark_spans([Span::of_value(at)]);
}

/// [`mark_bytes`] of several, at once.
///
/// # Panics
/// As [`mark_bytes`].
#[inline(always)]
pub(crate) fn mark_spans<const N: usize>(spans: [Span; N]) {
    // Of two a quarter of the instructions less than one by one: 3% of those of hash-rand and of sps.
    if spans.iter().all(|span| span.is_few()) {
        return mark_few(spans);
    }
    for Span { at, bytes, .. } in spans {
        mark_bytes(std::ptr::without_provenance::<u8>(at), bytes);
    }
}

/// [`mark_spans`] of lines that are probably marked already, as the end of a growing vector or a counter. A look is
/// cheaper than the marks where the processor predicts its answer.
///
/// # Panics
/// As [`mark_bytes`].
#[inline(always)]
pub(crate) fn mark_append<const N: usize>(spans: [Span; N]) {
    if !spans.iter().all(|span| span.is_one) {
        return mark_spans(spans);
    }
    let here = gate::here();
    let offsets = here.offsets_of(spans.map(|span| span.at));
    if offsets.iter().fold(0, |all, offset| all | offset) < DATA_BYTES {
        let map = here.current.load(Ordering::Relaxed);
        // SAFETY: as in `mark_simply`. A mark that is seen was set when nothing of the line was frozen.
        let is_marked = |at: &usize| unsafe { mark(map, at / LINE) }.load(Ordering::Acquire) == MARKED;
        if offsets.iter().all(is_marked) {
            fence(Ordering::Release); // as in `mark_lines`
            return;
        }
    }
    mark_anew(spans);
}

/// What is left when one is not.
#[inline(never)]
fn mark_anew<const N: usize>(spans: [Span; N]) {
    mark_few(spans);
}

/// [`mark_bytes`] of more than a line, not worth a copy wherever it is called.
#[inline(never)]
fn mark_more(at: usize, bytes: usize) {
    match bytes {
        ..=FEW => mark_few([Span {
            at,
            bytes,
            is_one: false,
        }]),
        _ => mark_any(at, bytes),
    }
}

/// [`mark_bytes`] of bytes on few lines each.
#[inline(always)]
fn mark_few<const N: usize>(spans: [Span; N]) {
    const {
        assert!(
            DATA_BYTES.is_power_of_two(),
            "offsets are below it if their bits are"
        )
    };
    let here = gate::here();
    let offsets = here.offsets_of(spans.map(|span| span.at));
    let are_here = offsets.iter().fold(0, |all, offset| all | offset) < DATA_BYTES;
    let lines = |k: usize| Few::of(offsets[k], spans[k].bytes, spans[k].is_one);
    if !are_here || !mark_simply(here, std::array::from_fn::<_, N, _>(lines)) {
        for Span { at, bytes, .. } in spans {
            mark_any(at, bytes);
        }
    }
}

/// Marks lines in the window of the innermost update where it is simple: their groups are noted, and none is frozen.
/// Says whether it was.
#[inline(always)]
fn mark_simply<const N: usize>(here: &MarkState, few: [Few; N]) -> bool {
    let map = here.current.load(Ordering::Relaxed);
    let frozen = here.frozen.load(Ordering::Acquire);
    let noted = few.iter().fold(MARKED, |all, lines| {
        // SAFETY: an update runs in the window, which is in use therefore, and the lines are in it.
        all & unsafe { lines.noted(map) }
    });
    if noted == 0 {
        return false;
    }
    if frozen != 0 {
        std::hint::cold_path();
        // By number: the closure of an iterator would be called here, as cold code is, and what a call borrows lies in
        // memory, for the common path too: a random write took twice as long.
        #[expect(clippy::needless_range_loop)]
        for k in 0..N {
            // SAFETY: as below.
            if unsafe { few[k].any(frozen) } {
                return false;
            }
        }
    }
    // Without a look whether they are marked: in a large structure that is hard to foretell, and a wrong
    // guess costs more than the stores.
    for lines in few {
        // SAFETY: the caller is about to write there, so the lines are usable and their marks are (`grow`), in both maps.
        unsafe { lines.set(map) };
    }
    // The writes come after it.
    fence(Ordering::Release);
    true
}

/// [`mark_bytes`] where it may be anything: outside the innermost update, of many lines, of frozen ones.
#[inline(never)]
fn mark_any(at: usize, bytes: usize) {
    let Some((index, offset)) = locate(at) else { return };
    let place = Place::numbered(index);
    let map = place.state().here.current.load(Ordering::Acquire);
    if map == 0 {
        return;
    }
    if !(place.is_volatile() || place.may_be_written()) {
        outside_update();
    }
    mark_lines(place, map, offset / LINE..(offset + bytes - 1) / LINE + 1);
}

/// Lines of which some may not be marked in this epoch.
#[inline(never)]
fn mark_lines(place: Place, map: usize, lines: Range<usize>) {
    // SAFETY: the caller is about to write there, so the lines are usable and their marks are.
    let current = unsafe { marks(map, lines.clone()) };
    if place.state().lists.load(Ordering::Relaxed) {
        // SAFETY: the caller is about to write in the window, which is in use therefore.
        unsafe { listed::note(place, map, &lines) }; // nothing is ever frozen
    } else if all(current) {
        // Another thread saved them and set the marks: a sweep that sees what this one writes sees that, too.
        fence(Ordering::Release);
        return;
    } else {
        saved::save_frozen(place, map ^ FLIP, &lines);
        // SAFETY: as above.
        unsafe { note(map, &lines) };
    }
    // After the lines are saved: a thread that sees the marks writes at once.
    set(current, MARKED);
    // The writes come after it. Stores that go past the caches, which large copies are made of, are not
    // in order by themselves.
    match lines.len() > LINES_PER_PAGE {
        true => fence(Ordering::SeqCst),
        false => fence(Ordering::Release),
    }
}
