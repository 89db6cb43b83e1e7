//! What lies in blocks: whether its place says that it is on one line, for marking it; and dropping it.
//!
//! A block lies at the end of a slab, or begins with a unit, so it is aligned to whatever power of two divides
//! its class, and to 16 bytes at least.

use super::classes::{self, BYTES};
use crate::marks::{LINE, Span, mark_bytes};
use std::alloc::Layout;
use std::ops::Range;

/// What blocks are aligned to at least.
const ALIGN: usize = 16;

/// Whether a `T` is on one line, in a row of them that begins or ends at a multiple of [`ALIGN`].
const fn is_on_a_line<T>() -> bool {
    size_of::<T>() != 0 && ALIGN.is_multiple_of(size_of::<T>())
}

/// A block allocated for a `T`.
#[inline(always)]
pub(crate) fn block<T>(at: *const T) -> Span {
    match const { classes::of(Layout::new::<T>()) } {
        Some(class) if size_of::<T>() != 0 && LINE.is_multiple_of(BYTES[class] as usize) => Span::of_line(at),
        _ => Span::of_value(at),
    }
}

/// A `T` in a row of them.
#[inline(always)]
pub(crate) fn element<T>(at: *const T) -> Span {
    match is_on_a_line::<T>() {
        true => Span::of_line(at),
        false => Span::of_value(at),
    }
}

/// Values of more bytes are dropped where they lie: a stack may be small, and drops lie within drops.
const MOST_MOVED: usize = 4 * LINE;

/// Drops values that lie in a row; the others also when a drop panics.
///
/// A drop may write into its own value, as `fn drop(&mut self) { self.log.clear() }`, and no type says whether it does. A
/// section that fails takes back what is marked, and a sweep copies a frozen line while it stands, so that nothing may be
/// written unmarked. A small value is moved out and dropped elsewhere: that costs no mark, and no line of a checkpoint,
/// where drops write nothing, as nearly all. A large one is marked.
///
/// # Safety
/// The values are there, and have no owner any more.
#[inline]
pub(crate) unsafe fn drop_values<T>(at: *mut T, count: usize) {
    struct Left<T>(*mut T, Range<usize>);
    impl<T> Left<T> {
        #[inline]
        fn drop_all(&mut self) {
            for index in self.1.by_ref() {
                // SAFETY: it is there, and comes once.
                drop(unsafe { self.0.add(index).read() });
            }
        }
    }
    impl<T> Drop for Left<T> {
        fn drop(&mut self) {
            self.drop_all();
        }
    }
    if !std::mem::needs_drop::<T>() {
        return;
    }
    if size_of::<T>() > MOST_MOVED {
        mark_bytes(at, count * size_of::<T>());
        // SAFETY: by the caller's word.
        return unsafe { std::ptr::slice_from_raw_parts_mut(at, count).drop_in_place() };
    }
    Left(at, 0..count).drop_all();
}
