//! Values in a row.
//!
//! ```text
//! 0         8          16     24
//! | address | length   | room | heap |     room: how many values the block has room for
//! ```
//!
//! * The first `length` values of the block are there; the rest of it holds nothing.
//! * No block when there is no room, or when a value has no bytes (the room is then `usize::MAX`).

mod drain;
mod extract;
mod room;
mod traits;

pub use drain::{Drain, IntoIter};
pub use extract::{ExtractIf, Splice};
pub(super) use room::RawBlock;

use crate::heap::Heap;
use crate::heap::marking::{drop_values, element};
use crate::marks::{LINE, Span, mark_append, mark_bytes, mark_spans};
use std::marker::PhantomData;
use std::ops::{Bound, Deref, DerefMut, Index, IndexMut, Range, RangeBounds};
use std::ptr::NonNull;
use std::slice::{self, SliceIndex};

/// Values in a row, as [`std::vec::Vec`], in a region.
///
/// It also is a slice. Through [`Vec::get_mut`], indexing, [`Vec::swap`] and the like only the elements
/// in question are marked as written; through slice methods that change it (`sort`, `reverse`) all are.
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::Vec;
///
/// let mut primes = Vec::new_in(heap);
/// primes.extend([5, 2, 3]);
/// primes.push(7);
/// primes.sort();
/// primes[0] += 9;
/// assert_eq!(primes, [11, 3, 5, 7]);
/// assert_eq!(primes.iter().sum::<i32>(), 26);
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[repr(C)]
pub struct Vec<'r, T> {
    at: NonNull<T>,
    length: usize,
    room: usize,
    heap: Heap<'r>,
    owned: PhantomData<T>,
}

// SAFETY: it owns its values.
unsafe impl<'r, T: Send> Send for Vec<'r, T> {}
// SAFETY: as above.
unsafe impl<'r, T: Sync> Sync for Vec<'r, T> {}

const _: () = assert!(size_of::<Vec<'_, u64>>() == 32);

impl<'r, T> Vec<'r, T> {
    const BYTES: usize = size_of::<T>();

    /// An empty vector. It takes no memory yet.
    #[must_use]
    pub const fn new_in(heap: Heap<'r>) -> Vec<'r, T> {
        Vec {
            at: NonNull::dangling(),
            length: 0,
            room: if Self::BYTES == 0 { usize::MAX } else { 0 },
            heap,
            owned: PhantomData,
        }
    }

    /// An empty vector with room for `capacity` values.
    ///
    /// # Panics
    /// When there is no memory.
    #[must_use]
    #[track_caller]
    pub fn with_capacity_in(capacity: usize, heap: Heap<'r>) -> Vec<'r, T> {
        let mut vec = Vec::new_in(heap);
        vec.reserve_exact(capacity);
        vec
    }

    /// The values of an iterator.
    #[track_caller]
    pub fn from_iter_in(values: impl IntoIterator<Item = T>, heap: Heap<'r>) -> Vec<'r, T> {
        let mut vec = Vec::new_in(heap);
        vec.extend(values);
        vec
    }

    /// # Safety
    /// There are `length` values, in a block of that heap with room for just them, or they need none; they have no
    /// other owner.
    pub(super) unsafe fn from_block(at: NonNull<T>, length: usize, heap: Heap<'r>) -> Vec<'r, T> {
        let mut vec = Vec::new_in(heap);
        if vec.room < length {
            vec.room = length;
        }
        (vec.at, vec.length) = (at, length);
        vec
    }

    /// The heap it takes its memory from.
    #[must_use]
    pub fn heap(&self) -> Heap<'r> {
        self.heap
    }

    /// How many values there is room for without taking more memory.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.room
    }

    /// How many values there are.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there is none.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The values as a slice.
    #[must_use]
    #[inline]
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: that many values are there.
        unsafe { slice::from_raw_parts(self.at.as_ptr(), self.length) }
    }

    /// The values as a slice that can be changed. All of it is marked as written.
    #[must_use]
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        mark_bytes(self.at.as_ptr(), self.length * Self::BYTES);
        self.unmarked()
    }

    /// The values, of which the caller marks what it changes.
    #[inline]
    fn unmarked(&mut self) -> &mut [T] {
        // SAFETY: that many values are there.
        unsafe { slice::from_raw_parts_mut(self.at.as_ptr(), self.length) }
    }

    /// Marks `range` of the block: places, whether or not a value is there.
    #[inline]
    fn mark(&self, range: Range<usize>) {
        let at = self.at.as_ptr().wrapping_add(range.start);
        mark_bytes(at, range.len() * Self::BYTES);
    }

    /// The place of value `index`.
    #[inline]
    fn place(&self, index: usize) -> *mut T {
        self.at.as_ptr().wrapping_add(index)
    }

    /// A value or a part, to change. Only that is marked as written.
    #[inline]
    pub fn get_mut<I: SliceIndex<[T]>>(&mut self, index: I) -> Option<&mut I::Output> {
        let found = self.unmarked().get_mut(index)?;
        mark_bytes((&raw const *found).cast::<T>(), size_of_val(found));
        Some(found)
    }

    /// The first value, to change.
    pub fn first_mut(&mut self) -> Option<&mut T> {
        self.get_mut(0)
    }

    /// The last value, to change.
    pub fn last_mut(&mut self) -> Option<&mut T> {
        self.get_mut(self.length.wrapping_sub(1))
    }

    /// Swaps two values. Only they are marked as written.
    ///
    /// # Panics
    /// When there is no such value.
    #[inline]
    #[track_caller]
    pub fn swap(&mut self, a: usize, b: usize) {
        let length = self.length;
        assert!(
            a < length && b < length,
            "swapping values {a} and {b} of {length}"
        );
        let (a, b) = (self.place(a), self.place(b));
        mark_spans([element(a), element(b)]);
        // SAFETY: both values are there.
        unsafe { a.swap(b) };
    }

    /// Adds a value at the end.
    ///
    /// # Panics
    /// When there is no memory.
    #[inline]
    #[track_caller]
    pub fn push(&mut self, value: T) {
        if self.length == self.room {
            self.grow(1, true);
        }
        let (length, at) = (self.length, self.place(self.length));
        mark_append([element(at)]);
        // SAFETY: there is room.
        unsafe { at.write(value) };
        self.length = length + 1;
    }

    /// The last value, taken out.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        self.length = self.length.checked_sub(1)?;
        // SAFETY: the value was there, and is not any more.
        Some(unsafe { self.place(self.length).read() })
    }

    /// The last value, taken out if `test` says so.
    pub fn pop_if(&mut self, test: impl FnOnce(&mut T) -> bool) -> Option<T> {
        if test(self.last_mut()?) { self.pop() } else { None }
    }

    /// Puts a value before that at `index`.
    ///
    /// # Panics
    /// When `index` is past the end, or there is no memory.
    #[track_caller]
    pub fn insert(&mut self, index: usize, value: T) {
        let length = self.length;
        assert!(index <= length, "inserting at {index} into {length} values");
        self.reserve(1);
        self.mark(index..length + 1);
        // SAFETY: there is room for one more, and `index` is at most the length.
        unsafe {
            self.place(index).copy_to(self.place(index + 1), length - index);
            self.place(index).write(value);
        }
        self.length += 1;
    }

    /// The value at `index`, taken out; those after it move up.
    ///
    /// # Panics
    /// When there is none.
    #[track_caller]
    pub fn remove(&mut self, index: usize) -> T {
        let length = self.length;
        assert!(index < length, "removing value {index} of {length}");
        self.mark(index..length - 1);
        self.length -= 1;
        // SAFETY: the value is there, and those after it are.
        unsafe {
            let value = self.place(index).read();
            self.place(index + 1)
                .copy_to(self.place(index), length - index - 1);
            value
        }
    }

    /// The value at `index`, taken out; the last takes its place.
    ///
    /// # Panics
    /// When there is none.
    #[track_caller]
    pub fn swap_remove(&mut self, index: usize) -> T {
        let last = self.length.checked_sub(1).filter(|&last| index <= last);
        let last = last.unwrap_or_else(|| panic!("removing value {index} of {}", self.length));
        self.length = last;
        // SAFETY: both values are there; the last place holds nothing from now on.
        unsafe {
            let value = self.place(index).read();
            if index != last {
                mark_spans([element(self.place(index))]);
                self.place(last).copy_to_nonoverlapping(self.place(index), 1);
            }
            value
        }
    }

    /// Keeps the first `length` values.
    pub fn truncate(&mut self, length: usize) {
        if length >= self.length {
            return;
        }
        let dropped = std::mem::replace(&mut self.length, length) - length;
        // SAFETY: they were there, and are the vector's no longer.
        unsafe { drop_values(self.place(length), dropped) };
    }

    /// Drops all values. The room stays.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// Moves all values of another vector to the end of this.
    ///
    /// # Panics
    /// When there is no memory.
    #[track_caller]
    pub fn append(&mut self, other: &mut Vec<'r, T>) {
        self.reserve(other.length);
        let moved = std::mem::take(&mut other.length);
        self.mark(self.length..self.length + moved);
        // SAFETY: there is room, and the values are no longer the other's.
        unsafe {
            self.place(self.length)
                .copy_from_nonoverlapping(other.at.as_ptr(), moved)
        };
        self.length += moved;
    }

    /// The values from `at` on, in a vector of their own on the same heap.
    ///
    /// # Panics
    /// When `at` is past the end, or there is no memory.
    #[track_caller]
    pub fn split_off(&mut self, at: usize) -> Vec<'r, T> {
        let length = self.length;
        assert!(at <= length, "splitting {length} values at {at}");
        let mut rest = Vec::<T>::with_capacity_in(length - at, self.heap);
        rest.mark(0..length - at);
        // SAFETY: there is room, and the values are no longer this vector's.
        unsafe {
            rest.place(0)
                .copy_from_nonoverlapping(self.place(at), length - at)
        };
        (self.length, rest.length) = (at, length - at);
        rest
    }

    /// Keeps the values `keep` says yes to.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        drain::keep(self, |value, _| keep(value));
    }

    /// As [`Vec::retain`], and `keep` may change them; all are marked as written.
    pub fn retain_mut(&mut self, mut keep: impl FnMut(&mut T) -> bool) {
        self.mark(0..self.length);
        drain::keep(self, |value, _| keep(value));
    }

    /// Keeps the first of each run of values that are the same to `same`.
    pub fn dedup_by(&mut self, mut same: impl FnMut(&mut T, &mut T) -> bool) {
        self.mark(0..self.length);
        drain::keep(self, |value, last| last.is_none_or(|last| !same(value, last)));
    }

    /// Keeps the first of each run of values with the same key.
    pub fn dedup_by_key<K: PartialEq>(&mut self, mut key: impl FnMut(&mut T) -> K) {
        self.dedup_by(|a, b| key(a) == key(b));
    }

    /// Keeps the first of each run of equal values.
    pub fn dedup(&mut self)
    where
        T: PartialEq,
    {
        drain::keep(self, |value, last| last.is_none_or(|last| *value != *last));
    }

    /// Makes it `length` values long, with new ones from `make`.
    ///
    /// # Panics
    /// When there is no memory.
    #[track_caller]
    pub fn resize_with(&mut self, length: usize, make: impl FnMut() -> T) {
        self.truncate(length);
        self.extend(std::iter::repeat_with(make).take(length - self.length));
    }

    /// Makes it `length` values long, with clones of `value`.
    ///
    /// # Panics
    /// When there is no memory.
    #[track_caller]
    pub fn resize(&mut self, length: usize, value: T)
    where
        T: Clone,
    {
        self.resize_with(length, || value.clone());
    }

    /// Adds clones of the values of a slice.
    ///
    /// # Panics
    /// When there is no memory.
    #[track_caller]
    pub fn extend_from_slice(&mut self, values: &[T])
    where
        T: Clone,
    {
        /// As many values as were written are there, also after a panic.
        struct Grown<'a, 'r, T>(&'a mut Vec<'r, T>, usize);
        impl<T> Drop for Grown<'_, '_, T> {
            fn drop(&mut self) {
                self.0.length = self.1;
            }
        }
        self.reserve(values.len());
        self.mark(self.length..self.length + values.len());
        let (start, length) = (self.place(self.length), self.length);
        let mut grown = Grown(self, length);
        for (index, value) in values.iter().enumerate() {
            let value = value.clone();
            // SAFETY: there is room for all of them.
            unsafe { start.add(index).write(value) };
            grown.1 += 1;
        }
    }

    /// Adds copies of the values of a slice, all at once.
    ///
    /// # Panics
    /// When there is no memory.
    #[inline]
    #[track_caller]
    pub(super) fn extend_from_copies(&mut self, values: &[T])
    where
        T: Copy,
    {
        let (length, more) = (self.length, values.len());
        self.reserve(more);
        let at = self.place(length);
        match more * Self::BYTES {
            bytes @ 1..=LINE => {
                let last = at.cast::<u8>().wrapping_add(bytes - 1);
                mark_append([Span::of_line(at.cast::<u8>()), Span::of_line(last)]);
            }
            bytes => mark_bytes(at, bytes),
        }
        // SAFETY: there is room for all of them, marked; there is no other slice of this vector's block.
        unsafe { at.copy_from_nonoverlapping(values.as_ptr(), more) };
        self.length = length + more;
    }

    /// Puts copies of `values` in place of a range that lies in the vector.
    ///
    /// # Panics
    /// When there is no memory; nothing has changed then.
    #[track_caller]
    pub(super) fn replace_copies(&mut self, range: Range<usize>, values: &[T])
    where
        T: Copy,
    {
        self.reserve(values.len().saturating_sub(range.len()));
        let (from, to, tail) = (range.end, range.start + values.len(), self.length - range.end);
        match values.len() == range.len() {
            true => self.mark(range.start..to),
            false => self.mark(range.start..to + tail),
        }
        // SAFETY: there is room for all, marked; there is no other slice of this vector's block.
        unsafe {
            self.place(from).copy_to(self.place(to), tail);
            self.place(range.start)
                .copy_from_nonoverlapping(values.as_ptr(), values.len());
        }
        self.length = to + tail;
    }

    /// Adds clones of a part of itself.
    ///
    /// # Panics
    /// When the range does not lie in it, or there is no memory.
    #[track_caller]
    pub fn extend_from_within(&mut self, range: impl RangeBounds<usize>)
    where
        T: Clone,
    {
        let range = in_bounds(range, self.length);
        self.reserve(range.len());
        for index in range {
            let value = self[index].clone();
            self.push(value);
        }
    }

    /// Takes the values of `range` out, as an iterator. Those after it move up when that is dropped.
    ///
    /// # Panics
    /// When the range does not lie in it.
    #[track_caller]
    pub fn drain(&mut self, range: impl RangeBounds<usize>) -> Drain<'_, 'r, T> {
        let range = in_bounds(range, self.length);
        Drain::new(self, range)
    }
}

/// The range, which must lie in `length` values.
#[track_caller]
pub(super) fn in_bounds(range: impl RangeBounds<usize>, length: usize) -> Range<usize> {
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => last.saturating_add(1),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => length,
    };
    assert!(start <= end && end <= length, "values {start}..{end} of {length}");
    start..end
}

impl<'r, T> Drop for Vec<'r, T> {
    fn drop(&mut self) {
        // Frees the block also when a value's drop panics.
        let _block = RawBlock {
            at: self.at.cast(),
            layout: self.block(),
            heap: self.heap.raw(),
        };
        // SAFETY: the values are ours and not used any more.
        unsafe { drop_values(self.at.as_ptr(), self.length) };
    }
}

impl<'r, T> Deref for Vec<'r, T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        self.as_slice()
    }
}

impl<'r, T> DerefMut for Vec<'r, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        self.as_mut_slice()
    }
}

impl<'r, T, I: SliceIndex<[T]>> Index<I> for Vec<'r, T> {
    type Output = I::Output;
    #[inline]
    fn index(&self, index: I) -> &I::Output {
        &self.as_slice()[index]
    }
}

impl<'r, T, I: SliceIndex<[T]>> IndexMut<I> for Vec<'r, T> {
    #[inline]
    fn index_mut(&mut self, index: I) -> &mut I::Output {
        let found = &mut self.unmarked()[index];
        mark_bytes((&raw const *found).cast::<T>(), size_of_val(found));
        found
    }
}
