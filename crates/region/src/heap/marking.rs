//! Marking what lies in blocks, where their places say that it is on one line.
//!
//! A block lies at the end of a slab, or begins with a unit, so it is aligned to whatever power of two divides
//! its class, and to 16 bytes at least.

use super::classes::{self, BYTES};
use crate::marks::{LINE, Span, mark_append, mark_both, mark_line, mark_value};
use std::alloc::Layout;

/// What blocks are aligned to at least.
const ALIGN: usize = 16;

/// Whether a `T` is on one line, in a row of them that begins or ends at a multiple of [`ALIGN`].
const fn is_on_a_line<T>() -> bool {
    size_of::<T>() != 0 && ALIGN.is_multiple_of(size_of::<T>())
}

/// A block allocated for a `T` is about to be written.
#[inline(always)]
pub(crate) fn mark_block<T>(at: *const T) {
    match const { classes::of(Layout::new::<T>()) } {
        Some(class) if size_of::<T>() != 0 && LINE.is_multiple_of(BYTES[class] as usize) => {
            mark_append(at, 1);
        }
        _ => mark_value(at),
    }
}

/// A `T` in a row of them.
#[inline(always)]
fn element<T>(at: *const T) -> Span {
    match is_on_a_line::<T>() {
        true => Span::of_line(at),
        false => Span::of_value(at),
    }
}

/// A `T` in a row of them is about to be written.
#[inline(always)]
pub(crate) fn mark_element<T>(at: *const T) {
    match is_on_a_line::<T>() {
        true => mark_line(at),
        false => mark_value(at),
    }
}

/// Two of a row are about to be written.
#[inline(always)]
pub(crate) fn mark_elements<T>(one: *const T, other: *const T) {
    mark_both(element(one), element(other));
}

/// A `T` in a row of them is about to be written, and a byte that lies elsewhere.
#[inline(always)]
pub(crate) fn mark_element_and<T>(at: *const T, byte: *const u8) {
    mark_both(element(at), Span::of_line(byte));
}

/// As [`mark_element`], at the end of what grows: the line is likely marked already.
#[inline(always)]
pub(crate) fn mark_last<T>(at: *const T) {
    match is_on_a_line::<T>() {
        true => mark_append(at, 1),
        false => mark_value(at),
    }
}
