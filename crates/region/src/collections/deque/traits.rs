//! What deques have as `std`'s do: growing from iterators, going through, cloning, comparing, printing.

use super::{Iter, IterMut, VecDeque};
use crate::heap::Heap;
use crate::persist::{Kind, Persist, Types};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::iter::FusedIterator;
use std::mem::ManuallyDrop;

impl<T> Extend<T> for VecDeque<T> {
    #[track_caller]
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        let values = values.into_iter();
        self.reserve(values.size_hint().0);
        values.for_each(|value| self.push_back(value));
    }
}

impl<'a, T: Copy + 'a> Extend<&'a T> for VecDeque<T> {
    #[track_caller]
    fn extend<I: IntoIterator<Item = &'a T>>(&mut self, values: I) {
        self.extend(values.into_iter().copied());
    }
}

/// The values of a ring, moved out: [`VecDeque::into_iter`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # let window = Window::volatile()?;
/// # let heap = Heap::create(window.place(), 1)?;
/// use twinpage::collections::VecDeque;
///
/// let queue = VecDeque::from_iter_in([1, 2, 3], heap);
/// let mut numbers = queue.into_iter();
/// assert_eq!((numbers.next(), numbers.next_back(), numbers.len()), (Some(1), Some(3), 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct IntoIter<T>(ManuallyDrop<VecDeque<T>>);

impl<T> Iterator for IntoIter<T> {
    type Item = T;
    #[inline]
    fn next(&mut self) -> Option<T> {
        self.0.pop_front()
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.0.length, Some(self.0.length))
    }
}

impl<T> DoubleEndedIterator for IntoIter<T> {
    fn next_back(&mut self) -> Option<T> {
        self.0.pop_back()
    }
}

impl<T> ExactSizeIterator for IntoIter<T> {}
impl<T> FusedIterator for IntoIter<T> {}

impl<T> Drop for IntoIter<T> {
    fn drop(&mut self) {
        // SAFETY: the ring is dropped here and nowhere else.
        unsafe { ManuallyDrop::drop(&mut self.0) };
    }
}

impl<T> IntoIterator for VecDeque<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;
    fn into_iter(self) -> IntoIter<T> {
        IntoIter(ManuallyDrop::new(self))
    }
}

impl<'a, T> IntoIterator for &'a VecDeque<T> {
    type Item = &'a T;
    type IntoIter = Iter<'a, T>;
    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<'a, T> IntoIterator for &'a mut VecDeque<T> {
    type Item = &'a mut T;
    type IntoIter = IterMut<'a, T>;
    fn into_iter(self) -> IterMut<'a, T> {
        self.iter_mut()
    }
}

impl<T: Clone> Clone for VecDeque<T> {
    /// A clone on the same heap.
    fn clone(&self) -> VecDeque<T> {
        VecDeque::from_iter_in(self.iter().cloned(), self.heap)
    }
}

impl<T: PartialEq> PartialEq for VecDeque<T> {
    fn eq(&self, other: &VecDeque<T>) -> bool {
        self.length == other.length && self.iter().eq(other)
    }
}

impl<T: PartialEq, const N: usize> PartialEq<[T; N]> for VecDeque<T> {
    fn eq(&self, other: &[T; N]) -> bool {
        self.length == N && self.iter().eq(other)
    }
}

impl<T: PartialEq> PartialEq<std::collections::VecDeque<T>> for VecDeque<T> {
    fn eq(&self, other: &std::collections::VecDeque<T>) -> bool {
        self.length == other.len() && self.iter().eq(other)
    }
}

impl<T: Eq> Eq for VecDeque<T> {}

impl<T: PartialOrd> PartialOrd for VecDeque<T> {
    fn partial_cmp(&self, other: &VecDeque<T>) -> Option<Ordering> {
        self.iter().partial_cmp(other)
    }
}

impl<T: Ord> Ord for VecDeque<T> {
    fn cmp(&self, other: &VecDeque<T>) -> Ordering {
        self.iter().cmp(other)
    }
}

impl<T: Hash> Hash for VecDeque<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.length.hash(state);
        self.iter().for_each(|value| value.hash(state));
    }
}

impl<T: fmt::Debug> fmt::Debug for VecDeque<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

// SAFETY: it owns its block, and its values may live in a region.
unsafe impl<T: Persist> Persist for VecDeque<T> {
    type Previous = VecDeque<T::Previous>;
    fn name() -> String {
        format!("VecDeque<{}>", T::name())
    }
    fn layout(types: &mut Types) -> Kind {
        Kind::Deque { of: types.of::<T>() }
    }
    fn migrate(old: Self::Previous, heap: Heap) -> Self {
        VecDeque::from_iter_in(old.into_iter().map(|one| T::migrate(one, heap)), heap)
    }
}
