//! Taking some values of a vector out as they are asked for, putting others in their place, and several at once.

use super::{Drain, Vec, in_bounds};
use crate::collections::Box;
use crate::marks::mark_value;
use std::iter::FusedIterator;
use std::mem::ManuallyDrop;
use std::ops::{Range, RangeBounds};
use std::slice::GetDisjointMutError;

impl<'r, T> Vec<'r, T> {
    /// Takes the values of `range` that `take` says yes to out, one when each is asked for. What was not asked for
    /// stays. Each value it looks at is marked as written: it may change it.
    ///
    /// # Panics
    /// When the range does not lie in it.
    #[track_caller]
    pub fn extract_if<F: FnMut(&mut T) -> bool>(
        &mut self,
        range: impl RangeBounds<usize>,
        take: F,
    ) -> ExtractIf<'_, 'r, T, F> {
        let range = in_bounds(range, self.length);
        let length = std::mem::take(&mut self.length);
        ExtractIf {
            vec: self,
            range,
            taken: 0,
            length,
            take,
        }
    }

    /// Takes the values of `range` out, as an iterator; when that is dropped the values of another are put in their
    /// place.
    ///
    /// # Panics
    /// When the range does not lie in it; when it is dropped and there is no memory.
    #[track_caller]
    pub fn splice<I: IntoIterator<Item = T>>(
        &mut self,
        range: impl RangeBounds<usize>,
        values: I,
    ) -> Splice<'_, 'r, I::IntoIter> {
        Splice {
            drain: self.drain(range),
            values: values.into_iter(),
        }
    }

    /// Several values at once, to change. Only they are marked as written.
    ///
    /// # Errors
    /// An index is past the end, or there twice.
    pub fn get_disjoint_mut<const N: usize>(
        &mut self,
        indices: [usize; N],
    ) -> Result<[&mut T; N], GetDisjointMutError> {
        let values = self.unmarked().get_disjoint_mut(indices)?;
        values.iter().for_each(|value| mark_value(&raw const **value));
        Ok(values)
    }

    /// The values in a block that has room for no more.
    ///
    /// # Panics
    /// When there is no memory for a smaller block.
    #[must_use]
    #[track_caller]
    pub fn into_boxed_slice(mut self) -> Box<'r, [T]> {
        self.shrink_to_fit();
        let vec = ManuallyDrop::new(self);
        // SAFETY: the block has room for the values and no more, and is no longer the vector's.
        unsafe { Box::from_block(std::ptr::NonNull::slice_from_raw_parts(vec.at, vec.length)) }
    }

    /// Puts values in before that at `index`.
    #[track_caller]
    fn insert_all(&mut self, index: usize, values: std::vec::Vec<T>) {
        if values.is_empty() {
            return; // else the values after it would be marked, and moved to where they are
        }
        let (more, tail) = (values.len(), self.length - index);
        self.reserve(more);
        self.mark(index..self.length + more);
        let values = ManuallyDrop::new(values);
        // SAFETY: there is room; the values are no longer the other vector's. Its block is freed below.
        unsafe {
            self.place(index).copy_to(self.place(index + more), tail);
            self.place(index).copy_from_nonoverlapping(values.as_ptr(), more);
        }
        self.length += more;
        let mut block = ManuallyDrop::into_inner(values);
        // SAFETY: none is there any more.
        unsafe { block.set_len(0) };
    }
}

/// Values taken out of a vector if a function says so: [`Vec::extract_if`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::Vec;
///
/// let mut numbers = Vec::from_iter_in(0..8, heap);
/// assert!(numbers.extract_if(2.., |n| *n % 3 == 0).eq([3, 6]));
/// assert_eq!(numbers, [0, 1, 2, 4, 5, 7]);
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ExtractIf<'a, 'r, T, F> {
    /// Has no values while this lives.
    vec: &'a mut Vec<'r, T>,
    /// What was not looked at.
    range: Range<usize>,
    /// How many were taken: so far before the rest is what was kept last.
    taken: usize,
    length: usize,
    take: F,
}

impl<T, F: FnMut(&mut T) -> bool> Iterator for ExtractIf<'_, '_, T, F> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        while self.range.start < self.range.end {
            let index = self.range.start;
            let value = self.vec.place(index);
            self.vec.mark(index..index + 1);
            // SAFETY: the value is there, without another owner. If `take` panics it stays there.
            let is_taken = unsafe { (self.take)(&mut *value) };
            self.range.start += 1;
            if is_taken {
                self.taken += 1;
                // SAFETY: it is not there any more.
                return Some(unsafe { value.read() });
            }
            if self.taken > 0 {
                let to = index - self.taken;
                self.vec.mark(to..to + 1);
                // SAFETY: the place is one that was left.
                unsafe { value.copy_to_nonoverlapping(self.vec.place(to), 1) };
            }
        }
        None
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.range.len()))
    }
}

impl<T, F: FnMut(&mut T) -> bool> FusedIterator for ExtractIf<'_, '_, T, F> {}

impl<T, F> Drop for ExtractIf<'_, '_, T, F> {
    fn drop(&mut self) {
        let (from, rest) = (self.range.start, self.length - self.range.start);
        let to = from - self.taken;
        if self.taken > 0 {
            self.vec.mark(to..to + rest);
            // SAFETY: the rest is there; what was between is gone.
            unsafe { self.vec.place(from).copy_to(self.vec.place(to), rest) };
        }
        self.vec.length = to + rest;
    }
}

/// Values taken out of a vector, and others put in their place: [`Vec::splice`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::Vec;
///
/// let mut numbers = Vec::from_iter_in([1, 2, 3, 4], heap);
/// assert!(numbers.splice(1..3, [7, 8, 9]).eq([2, 3]));
/// assert_eq!(numbers, [1, 7, 8, 9, 4]);
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Splice<'a, 'r, I: Iterator> {
    drain: Drain<'a, 'r, I::Item>,
    values: I,
}

impl<I: Iterator> Iterator for Splice<'_, '_, I> {
    type Item = I::Item;
    fn next(&mut self) -> Option<I::Item> {
        self.drain.next()
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.drain.size_hint()
    }
}

impl<I: Iterator> DoubleEndedIterator for Splice<'_, '_, I> {
    fn next_back(&mut self) -> Option<I::Item> {
        self.drain.next_back()
    }
}

impl<I: Iterator> ExactSizeIterator for Splice<'_, '_, I> {}
impl<I: Iterator> FusedIterator for Splice<'_, '_, I> {}

impl<I: Iterator> Drop for Splice<'_, '_, I> {
    fn drop(&mut self) {
        self.drain.by_ref().for_each(drop);
        // What is between the values before the range and those after it is free. The drain closes what is left of
        // it, also after a panic.
        while self.drain.vec.length < self.drain.tail.start {
            let Some(value) = self.values.next() else { return };
            let vec = &mut *self.drain.vec;
            let at = vec.place(vec.length);
            mark_value(at);
            // SAFETY: the place is free.
            unsafe { at.write(value) };
            vec.length += 1;
        }
        let more: std::vec::Vec<I::Item> = self.values.by_ref().collect();
        let end = self.drain.tail.end;
        let index = std::mem::replace(&mut self.drain.tail, end..end).start;
        // The values after the range are the vector's again, and no longer the drain's.
        self.drain.vec.length = end;
        self.drain.vec.insert_all(index, more);
    }
}
