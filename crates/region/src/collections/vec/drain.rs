//! Taking values out of a vector: all, a range, or those that are not kept.

use super::{RawBlock, Vec};
use crate::heap::Brand;
use crate::heap::marking::drop_values;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;

/// The values of a vector, moved out: [`Vec::into_iter`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::Vec;
///
/// let numbers = Vec::from_iter_in([1, 2, 3], heap);
/// assert!(numbers.into_iter().rev().eq([3, 2, 1]));
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct IntoIter<'r, T> {
    at: NonNull<T>,
    /// What is left.
    left: Range<usize>,
    _block: RawBlock,
    owned: PhantomData<T>,
    brand: Brand<'r>,
}

// SAFETY: it owns its values.
unsafe impl<'r, T: Send> Send for IntoIter<'r, T> {}
// SAFETY: as above.
unsafe impl<'r, T: Sync> Sync for IntoIter<'r, T> {}

impl<'r, T> IntoIter<'r, T> {
    pub(super) fn new(at: NonNull<T>, length: usize, block: RawBlock) -> IntoIter<'r, T> {
        IntoIter {
            at,
            left: 0..length,
            _block: block,
            owned: PhantomData,
            brand: PhantomData,
        }
    }

    /// What is left, as a slice.
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: these values are still there.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr().wrapping_add(self.left.start), self.left.len()) }
    }
}

impl<'r, T> Iterator for IntoIter<'r, T> {
    type Item = T;
    #[inline]
    fn next(&mut self) -> Option<T> {
        let index = self.left.next()?;
        // SAFETY: the value was still there, and is not any more.
        Some(unsafe { self.at.add(index).read() })
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }
}

impl<'r, T> DoubleEndedIterator for IntoIter<'r, T> {
    fn next_back(&mut self) -> Option<T> {
        let index = self.left.next_back()?;
        // SAFETY: as above.
        Some(unsafe { self.at.add(index).read() })
    }
}

impl<'r, T> ExactSizeIterator for IntoIter<'r, T> {}
impl<'r, T> FusedIterator for IntoIter<'r, T> {}

impl<'r, T> Drop for IntoIter<'r, T> {
    fn drop(&mut self) {
        let left = std::mem::take(&mut self.left);
        // SAFETY: what is left is ours and not used any more.
        unsafe { drop_values(self.at.as_ptr().wrapping_add(left.start), left.len()) };
    }
}

/// The values of a range, taken out: [`Vec::drain`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::Vec;
///
/// let mut numbers = Vec::from_iter_in([1, 2, 3, 4], heap);
/// assert!(numbers.drain(1..3).eq([2, 3]));
/// assert_eq!(numbers, [1, 4]);
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Drain<'a, 'r, T> {
    /// While this lives, it is as long as what is before the range.
    pub(super) vec: &'a mut Vec<'r, T>,
    /// What is left of the range.
    left: Range<usize>,
    /// What is after the range.
    pub(super) tail: Range<usize>,
}

impl<'a, 'r, T> Drain<'a, 'r, T> {
    pub(super) fn new(vec: &'a mut Vec<'r, T>, range: Range<usize>) -> Drain<'a, 'r, T> {
        let tail = range.end..vec.length;
        vec.length = range.start;
        Drain {
            vec,
            left: range,
            tail,
        }
    }
}

impl<T> Iterator for Drain<'_, '_, T> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        let index = self.left.next()?;
        // SAFETY: the value is there, and is not any more.
        Some(unsafe { self.vec.place(index).read() })
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }
}

impl<T> DoubleEndedIterator for Drain<'_, '_, T> {
    fn next_back(&mut self) -> Option<T> {
        let index = self.left.next_back()?;
        // SAFETY: as above.
        Some(unsafe { self.vec.place(index).read() })
    }
}

impl<T> ExactSizeIterator for Drain<'_, '_, T> {}
impl<T> FusedIterator for Drain<'_, '_, T> {}

impl<T> Drop for Drain<'_, '_, T> {
    fn drop(&mut self) {
        /// Moves the tail up, also when a value's drop panics.
        struct Close<'a, 'r, T>(&'a mut Vec<'r, T>, Range<usize>);
        impl<T> Drop for Close<'_, '_, T> {
            fn drop(&mut self) {
                let (vec, tail) = (&mut *self.0, self.1.clone());
                let start = vec.length;
                if start != tail.start {
                    vec.mark(start..start + tail.len());
                    // SAFETY: the tail is there; what was between is gone.
                    unsafe { vec.place(tail.start).copy_to(vec.place(start), tail.len()) };
                }
                vec.length += tail.len();
            }
        }
        let left = std::mem::take(&mut self.left);
        let close = Close(self.vec, self.tail.clone());
        // SAFETY: the rest of the range has no other user.
        unsafe { drop_values(close.0.place(left.start), left.len()) };
    }
}

/// Keeps the values `keep` says yes to, in order. It is given the value in question and the last one
/// kept; what it changes in them it must have marked. Values that move are marked here.
pub(super) fn keep<T>(vec: &mut Vec<'_, T>, mut keep: impl FnMut(&mut T, Option<&mut T>) -> bool) {
    /// Puts what was not looked at behind what was kept, also after a panic.
    struct Hole<'a, 'r, T> {
        vec: &'a mut Vec<'r, T>,
        length: usize,
        kept: usize,
        next: usize,
    }
    impl<T> Drop for Hole<'_, '_, T> {
        fn drop(&mut self) {
            let (kept, next, rest) = (self.kept, self.next, self.length - self.next);
            if kept != next {
                self.vec.mark(kept..kept + rest);
                // SAFETY: the rest is there; what is between is gone.
                unsafe { self.vec.place(next).copy_to(self.vec.place(kept), rest) };
            }
            self.vec.length = kept + rest;
        }
    }
    let length = std::mem::take(&mut vec.length);
    let mut hole = Hole {
        vec,
        length,
        kept: 0,
        next: 0,
    };
    while hole.next < length {
        let (value, free) = (hole.vec.place(hole.next), hole.vec.place(hole.kept));
        // SAFETY: the value in question is there, and so is the one before the first free place; they
        // are not the same.
        let stays = unsafe {
            let last = (hole.kept > 0).then(|| &mut *hole.vec.place(hole.kept - 1));
            keep(&mut *value, last)
        };
        hole.next += 1;
        if !stays {
            // SAFETY: it has no owner any more.
            unsafe { drop_values(value, 1) };
            continue;
        }
        if value != free || size_of::<T>() == 0 {
            hole.vec.mark(hole.kept..hole.kept + 1);
            // SAFETY: the place is free, as one before it was not kept.
            unsafe { value.copy_to(free, 1) };
        }
        hole.kept += 1;
    }
}
