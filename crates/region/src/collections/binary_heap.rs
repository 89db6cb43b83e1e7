//! A queue of which the greatest value comes first: a vector, ordered as a binary heap.
//!
//! ```text
//! value k is at least as great as values 2k + 1 and 2k + 2
//! ```
//!
//! Values only change places, so an `Ord` that lies or panics misplaces some and loses none.

use super::Vec;
use super::vec::{Drain, IntoIter};
use crate::heap::{Heap, HeapError};
use crate::persist::{Empty, Kind, Name, Persist, Types};
use std::fmt;
use std::ops::{Deref, DerefMut};

/// A queue of which the greatest value comes first, as [`std::collections::BinaryHeap`], in a region.
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::BinaryHeap;
///
/// let mut jobs = BinaryHeap::from_iter_in([2, 9, 4], heap);
/// jobs.push(7);
/// *jobs.peek_mut().unwrap() = 3; // was 9
/// assert_eq!((jobs.pop(), jobs.len()), (Some(7), 3));
/// assert_eq!(jobs.into_sorted_vec(), [2, 3, 4]);
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[repr(transparent)]
pub struct BinaryHeap<'r, T> {
    values: Vec<'r, T>,
}

impl<'r, T> BinaryHeap<'r, T> {
    /// An empty queue. It takes no memory yet.
    #[must_use]
    pub const fn new_in(heap: Heap<'r>) -> BinaryHeap<'r, T> {
        BinaryHeap {
            values: Vec::new_in(heap),
        }
    }

    /// An empty queue with room for `capacity` values.
    ///
    /// # Panics
    /// When there is no memory.
    #[must_use]
    #[track_caller]
    pub fn with_capacity_in(capacity: usize, heap: Heap<'r>) -> BinaryHeap<'r, T> {
        BinaryHeap {
            values: Vec::with_capacity_in(capacity, heap),
        }
    }

    /// The heap it takes its memory from.
    #[must_use]
    pub fn heap(&self) -> Heap<'r> {
        self.values.heap()
    }

    /// How many values there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// How many values there is room for.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.values.capacity()
    }

    /// Makes room for `additional` more values.
    ///
    /// # Panics
    /// When there is no memory.
    #[track_caller]
    pub fn reserve(&mut self, additional: usize) {
        self.values.reserve(additional);
    }

    /// As [`BinaryHeap::reserve`].
    ///
    /// # Errors
    /// [`HeapError`] when there is no memory; nothing has changed then.
    pub fn try_reserve(&mut self, additional: usize) -> Result<(), HeapError> {
        self.values.try_reserve(additional)
    }

    /// As [`BinaryHeap::reserve`], and no more.
    ///
    /// # Panics
    /// When there is no memory.
    #[track_caller]
    pub fn reserve_exact(&mut self, additional: usize) {
        self.values.reserve_exact(additional);
    }

    /// As [`BinaryHeap::reserve_exact`].
    ///
    /// # Errors
    /// [`HeapError`] when there is no memory; nothing has changed then.
    pub fn try_reserve_exact(&mut self, additional: usize) -> Result<(), HeapError> {
        self.values.try_reserve_exact(additional)
    }

    /// Gives back the room there is too much.
    pub fn shrink_to_fit(&mut self) {
        self.values.shrink_to_fit();
    }

    /// Gives back the room past `capacity` values, or past those there are.
    pub fn shrink_to(&mut self, capacity: usize) {
        self.values.shrink_to(capacity);
    }

    /// The greatest value.
    #[must_use]
    pub fn peek(&self) -> Option<&T> {
        self.values.first()
    }

    /// The values, in no order that means anything.
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        &self.values
    }

    /// The values, in no order that means anything.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.values.iter()
    }

    /// The values, in no order that means anything.
    #[must_use]
    pub fn into_vec(self) -> Vec<'r, T> {
        self.values
    }

    /// Drops all values. The room stays.
    pub fn clear(&mut self) {
        self.values.clear();
    }

    /// All values, taken out in no order that means anything. The room stays.
    pub fn drain(&mut self) -> Drain<'_, 'r, T> {
        self.values.drain(..)
    }
}

impl<'r, T: Ord> BinaryHeap<'r, T> {
    /// The values of an iterator.
    #[track_caller]
    pub fn from_iter_in(values: impl IntoIterator<Item = T>, heap: Heap<'r>) -> BinaryHeap<'r, T> {
        Vec::from_iter_in(values, heap).into()
    }

    /// Adds a value.
    ///
    /// # Panics
    /// When there is no memory.
    #[track_caller]
    pub fn push(&mut self, value: T) {
        self.values.push(value);
        self.move_up(self.len() - 1);
    }

    /// The greatest value, taken out.
    pub fn pop(&mut self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let greatest = self.values.swap_remove(0);
        self.move_down(0);
        Some(greatest)
    }

    /// The greatest value, to change: it finds its place when the borrow ends.
    pub fn peek_mut(&mut self) -> Option<PeekMut<'_, 'r, T>> {
        let is_there = !self.is_empty();
        is_there.then_some(PeekMut {
            heap: self,
            is_changed: false,
        })
    }

    /// The values, the least first.
    #[must_use]
    pub fn into_sorted_vec(self) -> Vec<'r, T> {
        let mut values = self.values;
        values.sort_unstable();
        values
    }

    /// Moves all values of another queue to this one.
    ///
    /// # Panics
    /// When there is no memory; nothing has changed then.
    #[track_caller]
    pub fn append(&mut self, other: &mut BinaryHeap<'r, T>) {
        let first = self.len();
        self.values.append(&mut other.values);
        self.order_from(first);
    }

    /// Keeps the values `keep` says yes to.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        let first = self.len();
        let mut ordered = Ordered { heap: self, first };
        let (values, mut index) = (&mut ordered.heap.values, 0);
        values.retain(|value| {
            let stays = keep(value);
            if !stays {
                ordered.first = ordered.first.min(index);
            }
            index += 1;
            stays
        });
    }

    /// Orders the values, of which those before `first` are in order.
    fn order_from(&mut self, first: usize) {
        let length = self.len();
        // Each new one up costs its depth; all down costs a step for each value.
        if (length - first).saturating_mul(length.max(2).ilog2() as usize) < length {
            (first..length).for_each(|index| self.move_up(index));
        } else {
            (0..length / 2).rev().for_each(|index| self.move_down(index));
        }
    }

    fn move_up(&mut self, mut index: usize) {
        while index > 0 {
            let above = (index - 1) / 2;
            if self.values[index] <= self.values[above] {
                return;
            }
            self.values.swap(index, above);
            index = above;
        }
    }

    fn move_down(&mut self, mut index: usize) {
        loop {
            let (left, right) = (2 * index + 1, 2 * index + 2);
            let values = self.values.as_slice();
            let Some(mut greatest) = values.get(left) else {
                return;
            };
            let mut child = left;
            if let Some(other) = values.get(right)
                && other > greatest
            {
                (greatest, child) = (other, right);
            }
            if *greatest <= values[index] {
                return;
            }
            self.values.swap(index, child);
            index = child;
        }
    }
}

/// Orders the values of a queue, of which those before `first` are in order, when it is dropped: also after a panic of the
/// program's code.
struct Ordered<'a, 'r, T: Ord> {
    heap: &'a mut BinaryHeap<'r, T>,
    first: usize,
}

impl<T: Ord> Drop for Ordered<'_, '_, T> {
    fn drop(&mut self) {
        self.heap.order_from(self.first.min(self.heap.len()));
    }
}

/// The greatest value of a queue, to change: [`BinaryHeap::peek_mut`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::{BinaryHeap, PeekMut};
///
/// let mut jobs = BinaryHeap::from_iter_in([2, 9, 4], heap);
/// let job = jobs.peek_mut().unwrap();
/// assert_eq!(PeekMut::pop(job), 9);
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PeekMut<'a, 'r, T: Ord> {
    heap: &'a mut BinaryHeap<'r, T>,
    is_changed: bool,
}

impl<T: Ord> PeekMut<'_, '_, T> {
    /// Takes the value out.
    #[must_use]
    pub fn pop(mut this: Self) -> T {
        this.is_changed = false; // it leaves, and the value that takes its place is moved down
        this.heap.pop().expect("a value was there when it was borrowed")
    }
}

impl<T: Ord> Deref for PeekMut<'_, '_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.heap.values[0]
    }
}

impl<T: Ord> DerefMut for PeekMut<'_, '_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.is_changed = true;
        &mut self.heap.values[0]
    }
}

impl<T: Ord> Drop for PeekMut<'_, '_, T> {
    fn drop(&mut self) {
        if self.is_changed {
            self.heap.move_down(0);
        }
    }
}

impl<'r, T: Ord> From<Vec<'r, T>> for BinaryHeap<'r, T> {
    fn from(values: Vec<'r, T>) -> BinaryHeap<'r, T> {
        let mut heap = BinaryHeap { values };
        heap.order_from(0);
        heap
    }
}

impl<T: Ord> Extend<T> for BinaryHeap<'_, T> {
    #[track_caller]
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        let first = self.len();
        let ordered = Ordered { heap: self, first };
        ordered.heap.values.extend(values);
    }
}

impl<'a, T: Ord + Copy + 'a> Extend<&'a T> for BinaryHeap<'_, T> {
    #[track_caller]
    fn extend<I: IntoIterator<Item = &'a T>>(&mut self, values: I) {
        self.extend(values.into_iter().copied());
    }
}

impl<'r, T> IntoIterator for BinaryHeap<'r, T> {
    type Item = T;
    type IntoIter = IntoIter<'r, T>;
    fn into_iter(self) -> IntoIter<'r, T> {
        self.values.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a BinaryHeap<'_, T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;
    fn into_iter(self) -> std::slice::Iter<'a, T> {
        self.iter()
    }
}

impl<T: fmt::Debug> fmt::Debug for BinaryHeap<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

// SAFETY: it is a vector of its values, and a vector may live in a region.
unsafe impl<T: Persist> Persist for BinaryHeap<'static, T>
where
    for<'r> T::In<'r>: Ord,
{
    type In<'r> = BinaryHeap<'r, T::In<'r>>;
    type Previous = Self; // another type may be ordered otherwise
    fn name() -> Name {
        Name::new("BinaryHeap").with([T::name()])
    }
    fn layout(types: &mut Types) -> Kind {
        Kind::Vec { of: types.of::<T>() }
    }
    fn migrate<'r>(old: BinaryHeap<'r, T::In<'r>>, _: Heap<'r>) -> BinaryHeap<'r, T::In<'r>> {
        old
    }
}

impl<T: Persist> Empty for BinaryHeap<'static, T>
where
    for<'r> T::In<'r>: Ord,
{
    fn empty<'r>(heap: Heap<'r>) -> BinaryHeap<'r, T::In<'r>> {
        BinaryHeap::new_in(heap)
    }
}
