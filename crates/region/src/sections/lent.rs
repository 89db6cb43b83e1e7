//! Roots that a section was handed out to be changed: which of their lines it did change.
//!
//! * A root is handed out as a `&mut`, so any of it may change without a mark. Most often only what it owns does: the
//!   elements of a vector, the values of a table. So its lines are not marked: they are copied, and marked at the end if
//!   they differ. A line less in the commit, and often a page, pays for that: `costs.rs` counts them.
//! * Marking after the write is right where nothing is ever frozen, and no page is evicted meanwhile.

use crate::address::Place;
use crate::lock::lock;
use crate::marks::{self, LINE};
use std::mem::MaybeUninit;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

/// A value of more bytes is marked at once.
const MOST: usize = 4 * LINE;

/// The values that the section which has the turn was handed out.
#[derive(Debug, Default)]
pub(super) struct Lent(Mutex<Vec<Part>>);

/// What a line held of a value.
#[derive(Debug)]
struct Part {
    /// The line, by its number in the window.
    line: usize,
    /// The bytes of it that are the value's.
    from: usize,
    to: usize,
    held: Held,
}

/// A line, of which only the value's bytes are known. They may be between its fields, and hold nothing.
#[derive(Debug)]
#[repr(C, align(64))]
struct Held([MaybeUninit<u8>; LINE]);

const _: () = assert!(size_of::<Held>() == LINE);

impl Lent {
    /// The value of `bytes` bytes at `at` may be changed until the section ends.
    ///
    /// # Safety
    /// It is there, in the region, and nothing refers to it.
    pub(super) unsafe fn add(&self, place: Place, at: *const u8, bytes: usize) {
        if bytes > MOST || place.state().takes_away.load(Ordering::Relaxed) {
            return marks::mark_bytes(at, bytes);
        }
        let (start, mut parts) = (place.offset_of(at), lock(&self.0));
        let mut done = 0;
        while done < bytes {
            let (line, from) = ((start + done) / LINE, (start + done) % LINE);
            let to = LINE.min(from + bytes - done);
            let mut held = Held([MaybeUninit::zeroed(); LINE]);
            // SAFETY: the value is there, by the caller's word, and these are bytes of it.
            let value = unsafe { std::slice::from_raw_parts(at.add(done).cast(), to - from) };
            held.0[from..to].copy_from_slice(value);
            parts.push(Part { line, from, to, held });
            done += to - from;
        }
    }

    /// Marks the lines in which a value differs. The section is over, and nothing refers to the values.
    pub(super) fn mark_changed(&self, place: Place) {
        for Part { line, from, to, held } in lock(&self.0).drain(..) {
            let at = place.base().wrapping_add(line * LINE);
            // SAFETY: a line of the region, which only this thread writes, and one of its own.
            let (now, before) = unsafe { (marks::line_at(at), marks::line_at((&raw const held).cast())) };
            if now[from..to] != before[from..to] {
                marks::mark_spans([marks::Span::of_line(at)]);
            }
        }
    }
}
