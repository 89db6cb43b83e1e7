//! Values in a ring.
//!
//! ```text
//! 0         8      16       24     32     40
//! | address | head | length | room | heap |
//! ```
//!
//! * Value `k` is at place `head + k` of the block, or at that less `room` where it is past the end.
//! * No block when there is no room, or when a value has no bytes (the room is then `usize::MAX`, and
//!   the head 0).

mod more;
mod places;
mod traits;

pub use traits::IntoIter;

use super::vec::in_bounds;
use crate::heap::marking::{drop_values, element};
use crate::heap::{Heap, HeapError};
use crate::marks::mark_spans;
use std::iter::Chain;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut, Range, RangeBounds};
use std::ptr::NonNull;
use std::slice;

/// Values in a ring, to be added and taken at both ends, as [`std::collections::VecDeque`], in a region.
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::VecDeque;
///
/// let mut queue = VecDeque::new_in(heap);
/// queue.extend([1, 2, 3]);
/// queue.push_front(0);
/// assert_eq!(queue.pop_back(), Some(3));
/// queue[0] = 9;
/// assert_eq!(queue, [9, 1, 2]);
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[repr(C)]
pub struct VecDeque<'r, T> {
    at: NonNull<T>,
    head: usize,
    length: usize,
    room: usize,
    heap: Heap<'r>,
    owned: PhantomData<T>,
}

// SAFETY: it owns its values.
unsafe impl<'r, T: Send> Send for VecDeque<'r, T> {}
// SAFETY: a shared deque gives access to its values by shared references only.
unsafe impl<'r, T: Sync> Sync for VecDeque<'r, T> {}

const _: () = assert!(size_of::<VecDeque<'_, u64>>() == 40);

/// The values of a [`VecDeque`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::VecDeque;
///
/// let mut queue = VecDeque::from_iter_in([2, 3], heap);
/// queue.push_front(1);
/// assert!(queue.iter().rev().eq(&[3, 2, 1]));
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Iter<'a, T> = Chain<slice::Iter<'a, T>, slice::Iter<'a, T>>;
/// The values of a [`VecDeque`], to change.
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::VecDeque;
///
/// let mut queue = VecDeque::from_iter_in([2, 3], heap);
/// queue.iter_mut().for_each(|number| *number *= 2);
/// assert_eq!(queue, [4, 6]);
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type IterMut<'a, T> = Chain<slice::IterMut<'a, T>, slice::IterMut<'a, T>>;

impl<'r, T> VecDeque<'r, T> {
    const BYTES: usize = size_of::<T>();

    /// An empty ring. It takes no memory yet.
    #[must_use]
    pub const fn new_in(heap: Heap<'r>) -> VecDeque<'r, T> {
        VecDeque {
            at: NonNull::dangling(),
            head: 0,
            length: 0,
            room: if Self::BYTES == 0 { usize::MAX } else { 0 },
            heap,
            owned: PhantomData,
        }
    }

    /// An empty ring with room for `capacity` values.
    ///
    /// # Panics
    /// When there is no memory.
    #[must_use]
    #[track_caller]
    pub fn with_capacity_in(capacity: usize, heap: Heap<'r>) -> VecDeque<'r, T> {
        let mut ring = VecDeque::new_in(heap);
        ring.reserve(capacity);
        ring
    }

    /// The values of an iterator.
    #[track_caller]
    pub fn from_iter_in(values: impl IntoIterator<Item = T>, heap: Heap<'r>) -> VecDeque<'r, T> {
        let mut ring = VecDeque::new_in(heap);
        ring.extend(values);
        ring
    }

    /// The heap it takes its memory from.
    #[must_use]
    pub fn heap(&self) -> Heap<'r> {
        self.heap
    }

    /// How many values there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// How many values there is room for.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.room
    }

    /// Makes room for `additional` more values.
    ///
    /// # Panics
    /// When there is no memory.
    #[track_caller]
    pub fn reserve(&mut self, additional: usize) {
        if let Err(error) = self.try_reserve(additional) {
            panic!("{error}");
        }
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn grow(&mut self) {
        self.reserve(1);
    }

    /// As [`VecDeque::reserve`].
    ///
    /// # Errors
    /// [`HeapError`] when there is no memory; nothing has changed then.
    pub fn try_reserve(&mut self, additional: usize) -> Result<(), HeapError> {
        if additional <= self.room - self.length {
            return Ok(());
        }
        let too_large = HeapError::TooLarge {
            bytes: additional as u64,
        };
        match self.length.checked_add(additional) {
            Some(needed) if Self::BYTES > 0 => self.move_to(needed.max(self.room * 2).max(4)),
            _ => Err(too_large),
        }
    }

    /// Gives back the room there is too much.
    ///
    /// # Panics
    /// When there is no memory for a smaller block.
    #[track_caller]
    pub fn shrink_to_fit(&mut self) {
        if Self::BYTES > 0
            && self.room > self.length
            && let Err(error) = self.move_to(self.length)
        {
            panic!("{error}");
        }
    }

    /// The values as two slices, one after the other.
    #[must_use]
    pub fn as_slices(&self) -> (&[T], &[T]) {
        self.slices(0..self.length)
    }

    /// The values as two slices that can be changed. All are marked as written.
    #[must_use]
    pub fn as_mut_slices(&mut self) -> (&mut [T], &mut [T]) {
        self.slices_mut(0..self.length)
    }

    /// The values as one slice. They are moved if need be, and all marked as written.
    #[track_caller]
    pub fn make_contiguous(&mut self) -> &mut [T] {
        if self.head > 0
            && Self::BYTES > 0
            && let Err(error) = self.move_to(self.room)
        {
            panic!("{error}");
        }
        self.as_mut_slices().0
    }

    /// The values.
    pub fn iter(&self) -> Iter<'_, T> {
        let (front, back) = self.as_slices();
        front.iter().chain(back)
    }

    /// The values, to change. All are marked as written.
    pub fn iter_mut(&mut self) -> IterMut<'_, T> {
        let (front, back) = self.as_mut_slices();
        front.iter_mut().chain(back)
    }

    /// Some of the values.
    ///
    /// # Panics
    /// When the range does not lie in it.
    #[track_caller]
    pub fn range(&self, range: impl RangeBounds<usize>) -> Iter<'_, T> {
        let (front, back) = self.slices(in_bounds(range, self.length));
        front.iter().chain(back)
    }

    /// Some of the values, to change. They are marked as written.
    ///
    /// # Panics
    /// When the range does not lie in it.
    #[track_caller]
    pub fn range_mut(&mut self, range: impl RangeBounds<usize>) -> IterMut<'_, T> {
        let (front, back) = self.slices_mut(in_bounds(range, self.length));
        front.iter_mut().chain(back)
    }

    /// The value at `index`.
    #[must_use]
    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        // SAFETY: the value is there.
        (index < self.length).then(|| unsafe { &*self.value(index) })
    }

    /// The value at `index`, to change. Only it is marked as written.
    #[inline]
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        if index >= self.length {
            return None;
        }
        let at = self.value(index);
        mark_spans([element(at)]);
        // SAFETY: the value is there, and the ring borrowed alone.
        Some(unsafe { &mut *at })
    }

    /// The first value.
    #[must_use]
    pub fn front(&self) -> Option<&T> {
        self.get(0)
    }

    /// The last value.
    #[must_use]
    pub fn back(&self) -> Option<&T> {
        self.get(self.length.wrapping_sub(1))
    }

    /// The first value, to change.
    pub fn front_mut(&mut self) -> Option<&mut T> {
        self.get_mut(0)
    }

    /// The last value, to change.
    pub fn back_mut(&mut self) -> Option<&mut T> {
        self.get_mut(self.length.wrapping_sub(1))
    }

    /// Whether a value is there.
    #[must_use]
    pub fn contains(&self, value: &T) -> bool
    where
        T: PartialEq,
    {
        self.iter().any(|one| one == value)
    }

    /// Adds a value at the end.
    ///
    /// # Panics
    /// When there is no memory.
    #[inline]
    #[track_caller]
    pub fn push_back(&mut self, value: T) {
        if self.length == self.room {
            self.grow();
        }
        let length = self.length;
        // SAFETY: there is room.
        unsafe { self.write(length, value) };
        self.length = length + 1;
    }

    /// Adds a value at the start.
    ///
    /// # Panics
    /// When there is no memory.
    #[inline]
    #[track_caller]
    pub fn push_front(&mut self, value: T) {
        if self.length == self.room {
            self.grow();
        }
        if Self::BYTES > 0 {
            self.head = self.head.checked_sub(1).unwrap_or(self.room - 1);
        }
        // SAFETY: there is room, so the place before the first is free.
        unsafe { self.write(0, value) };
        self.length += 1;
    }

    /// The last value, taken out.
    #[inline]
    pub fn pop_back(&mut self) -> Option<T> {
        self.length = self.length.checked_sub(1)?;
        // SAFETY: the value was there, and is not any more.
        Some(unsafe { self.value(self.length).read() })
    }

    /// The first value, taken out.
    #[inline]
    pub fn pop_front(&mut self) -> Option<T> {
        self.length = self.length.checked_sub(1)?;
        // SAFETY: the value was there, and is not any more.
        let value = unsafe { self.at.add(self.head).read() };
        self.head = self.place(1);
        Some(value)
    }

    /// Swaps two values. Only they are marked as written.
    ///
    /// # Panics
    /// When there is no such value.
    #[track_caller]
    pub fn swap(&mut self, a: usize, b: usize) {
        let length = self.length;
        assert!(
            a < length && b < length,
            "swapping values {a} and {b} of {length}"
        );
        mark_spans([a, b].map(|index| element(self.value(index))));
        // SAFETY: both values are there.
        unsafe { std::ptr::swap(self.value(a), self.value(b)) };
    }

    /// Puts a value before that at `index`. The shorter side moves.
    ///
    /// # Panics
    /// When `index` is past the end, or there is no memory.
    #[track_caller]
    pub fn insert(&mut self, index: usize, value: T) {
        let length = self.length;
        assert!(index <= length, "inserting at {index} into {length} values");
        if index < length / 2 {
            self.push_front(value);
            (0..index).for_each(|k| self.swap(k, k + 1));
        } else {
            self.push_back(value);
            (index..length).rev().for_each(|k| self.swap(k, k + 1));
        }
    }

    /// The value at `index`, taken out. The shorter side moves.
    pub fn remove(&mut self, index: usize) -> Option<T> {
        if index >= self.length {
            return None;
        }
        if index < self.length / 2 {
            (0..index).rev().for_each(|k| self.swap(k, k + 1));
            self.pop_front()
        } else {
            (index..self.length - 1).for_each(|k| self.swap(k, k + 1));
            self.pop_back()
        }
    }

    /// The value at `index`, taken out; the last takes its place.
    pub fn swap_remove_back(&mut self, index: usize) -> Option<T> {
        if index >= self.length {
            return None;
        }
        self.swap(index, self.length - 1);
        self.pop_back()
    }

    /// The value at `index`, taken out; the first takes its place.
    pub fn swap_remove_front(&mut self, index: usize) -> Option<T> {
        if index >= self.length {
            return None;
        }
        self.swap(index, 0);
        self.pop_front()
    }

    /// Keeps the first `length` values.
    pub fn truncate(&mut self, length: usize) {
        if length >= self.length {
            return;
        }
        let dropped = length..std::mem::replace(&mut self.length, length);
        // SAFETY: they were there, and are the ring's no longer.
        unsafe { self.drop_range(dropped) };
    }

    /// Drops some values.
    ///
    /// # Safety
    /// They are there, and the ring's no longer.
    unsafe fn drop_range(&self, values: Range<usize>) {
        /// Drops the second part also when a drop in the first panics.
        struct Part<T>(*mut T, usize);
        impl<T> Drop for Part<T> {
            fn drop(&mut self) {
                // SAFETY: by the caller's word.
                unsafe { drop_values(self.0, self.1) };
            }
        }
        let part = |part: Range<usize>| Part(self.at.as_ptr().wrapping_add(part.start), part.len());
        let [front, _back] = self.parts(values).map(part);
        drop(front);
    }

    /// Drops all values. The room stays.
    pub fn clear(&mut self) {
        self.truncate(0);
        self.head = 0;
    }

    /// Keeps the values `keep` says yes to.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        let mut kept = 0;
        for index in 0..self.length {
            if keep(&self[index]) {
                if kept != index {
                    self.swap(kept, index);
                }
                kept += 1;
            }
        }
        self.truncate(kept);
    }

    /// Makes it `length` values long, with new ones from `make`.
    ///
    /// # Panics
    /// When there is no memory.
    #[track_caller]
    pub fn resize_with(&mut self, length: usize, mut make: impl FnMut() -> T) {
        self.truncate(length);
        self.reserve(length - self.length);
        while self.length < length {
            self.push_back(make());
        }
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

    /// Moves the first `by` values to the end.
    ///
    /// # Panics
    /// When there are fewer, or no memory.
    #[track_caller]
    pub fn rotate_left(&mut self, by: usize) {
        assert!(by <= self.length, "rotating {} values by {by}", self.length);
        for _ in 0..by {
            let first = self.pop_front();
            self.extend(first);
        }
    }

    /// Moves the last `by` values to the start.
    ///
    /// # Panics
    /// When there are fewer, or no memory.
    #[track_caller]
    pub fn rotate_right(&mut self, by: usize) {
        assert!(by <= self.length, "rotating {} values by {by}", self.length);
        for _ in 0..by {
            if let Some(last) = self.pop_back() {
                self.push_front(last);
            }
        }
    }

    /// Moves all values of another ring to the end of this.
    ///
    /// # Panics
    /// When there is no memory.
    #[track_caller]
    pub fn append(&mut self, other: &mut VecDeque<'r, T>) {
        self.reserve(other.length);
        while let Some(value) = other.pop_front() {
            self.push_back(value);
        }
    }

    /// The values from `at` on, in a ring of their own on the same heap.
    ///
    /// # Panics
    /// When `at` is past the end, or there is no memory.
    #[track_caller]
    pub fn split_off(&mut self, at: usize) -> VecDeque<'r, T> {
        let length = self.length;
        assert!(at <= length, "splitting {length} values at {at}");
        let mut rest = VecDeque::with_capacity_in(length - at, self.heap);
        for index in at..length {
            // SAFETY: the value is there; it is the other's from now on, as the length tells below.
            rest.push_back(unsafe { self.value(index).read() });
        }
        self.length = at;
        rest
    }

    /// Takes the values of `range` out, in a ring of their own.
    ///
    /// # Panics
    /// When the range does not lie in it, or there is no memory.
    #[track_caller]
    pub fn drain(&mut self, range: impl RangeBounds<usize>) -> IntoIter<'r, T> {
        let range = in_bounds(range, self.length);
        let (taken_length, length) = (range.len(), self.length);
        let mut taken = VecDeque::with_capacity_in(taken_length, self.heap);
        if range.is_empty() {
            return taken.into_iter();
        }
        for index in range.clone() {
            // SAFETY: the value is there; it is the other's from now on, as the fewer of those around take its place. Nothing
            // panics before they do: there is room.
            taken.push_back(unsafe { self.value(index).read() });
        }
        if range.start < length - range.end {
            for index in (0..range.start).rev() {
                // SAFETY: the value is there, and the place after it was left.
                unsafe { self.write(index + taken_length, self.value(index).read()) };
            }
            self.head = self.place(taken_length);
        } else {
            for index in range.end..length {
                // SAFETY: the value is there, and the place before it was left.
                unsafe { self.write(index - taken_length, self.value(index).read()) };
            }
        }
        self.length = length - taken_length;
        taken.into_iter()
    }
}

impl<'r, T> Drop for VecDeque<'r, T> {
    fn drop(&mut self) {
        // Frees the block also when a value's drop panics.
        let _block = self.block();
        // Without a word of it in the ring itself, which lies in the region, too.
        // SAFETY: the values are the ring's, and not used any more.
        unsafe { self.drop_range(0..self.length) };
    }
}

impl<'r, T> Index<usize> for VecDeque<'r, T> {
    type Output = T;
    #[inline]
    #[track_caller]
    fn index(&self, index: usize) -> &T {
        self.get(index).expect("Out of bounds access")
    }
}

impl<'r, T> IndexMut<usize> for VecDeque<'r, T> {
    #[inline]
    #[track_caller]
    fn index_mut(&mut self, index: usize) -> &mut T {
        self.get_mut(index).expect("Out of bounds access")
    }
}
