//! Marking what lies in blocks, where their places say that it is on one line.
//!
//! A block lies at the end of a slab, or begins with a unit, so it is aligned to whatever power of two divides
//! its class, and to 16 bytes at least.

use super::classes::{self, BYTES};
use crate::marks::{LINE, touch_ends, touch_value};
use std::alloc::Layout;

/// What blocks are aligned to at least.
const ALIGN: usize = 16;

/// The line of an address is about to be written, and no other.
#[inline(always)]
pub(crate) fn touch_line<T>(at: *const T) {
    touch_value(at.cast::<u8>());
}

/// The line of an address is about to be written, and likely was in this epoch.
#[inline(always)]
pub(crate) fn touch_line_again<T>(at: *const T) {
    touch_ends(at, 1);
}

/// A block allocated for a `T` is about to be written.
#[inline(always)]
pub(crate) fn touch_block<T>(at: *const T) {
    match const { classes::of(Layout::new::<T>()) } {
        Some(class) if size_of::<T>() != 0 && LINE.is_multiple_of(BYTES[class] as usize) => {
            touch_line_again(at);
        }
        _ => touch_value(at),
    }
}

/// A `T` is about to be written that lies in a row of them, which begins or ends at a multiple of [`ALIGN`].
#[inline(always)]
pub(crate) fn touch_in_row<T>(at: *const T) {
    if size_of::<T>() != 0 && ALIGN.is_multiple_of(size_of::<T>()) {
        touch_line(at);
    } else {
        touch_value(at);
    }
}

/// As [`touch_in_row`], at the end of what grows: the line is likely marked already.
#[inline(always)]
pub(crate) fn touch_at_end<T>(at: *const T) {
    if size_of::<T>() != 0 && ALIGN.is_multiple_of(size_of::<T>()) {
        touch_line_again(at);
    } else {
        touch_value(at);
    }
}
