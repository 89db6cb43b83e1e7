//! What deques have as `std`'s do: growing from iterators, going through, cloning, comparing, printing.

use super::{Iter, IterMut, VecDeque};
use crate::heap::Heap;
use crate::persist::{Empty, Kind, Name, Of, Persist, Types};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::iter::FusedIterator;
use std::mem::ManuallyDrop;

impl<'r, T> Extend<T> for VecDeque<'r, T> {
    #[track_caller]
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        let values = values.into_iter();
        self.reserve(values.size_hint().0);
        values.for_each(|value| self.push_back(value));
    }
}

impl<'a, 'r, T: Copy + 'a> Extend<&'a T> for VecDeque<'r, T> {
    #[track_caller]
    fn extend<I: IntoIterator<Item = &'a T>>(&mut self, values: I) {
        self.extend(values.into_iter().copied());
    }
}

/// The values of a ring, moved out: [`VecDeque::into_iter`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::VecDeque;
///
/// let queue = VecDeque::from_iter_in([1, 2, 3], heap);
/// let mut numbers = queue.into_iter();
/// assert_eq!((numbers.next(), numbers.next_back(), numbers.len()), (Some(1), Some(3), 1));
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct IntoIter<'r, T>(ManuallyDrop<VecDeque<'r, T>>);

impl<'r, T> Iterator for IntoIter<'r, T> {
    type Item = T;
    #[inline]
    fn next(&mut self) -> Option<T> {
        self.0.pop_front()
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.0.length, Some(self.0.length))
    }
}

impl<'r, T> DoubleEndedIterator for IntoIter<'r, T> {
    fn next_back(&mut self) -> Option<T> {
        self.0.pop_back()
    }
}

impl<'r, T> ExactSizeIterator for IntoIter<'r, T> {}
impl<'r, T> FusedIterator for IntoIter<'r, T> {}

impl<'r, T> Drop for IntoIter<'r, T> {
    fn drop(&mut self) {
        // SAFETY: the ring is dropped here and nowhere else.
        unsafe { ManuallyDrop::drop(&mut self.0) };
    }
}

impl<'r, T> IntoIterator for VecDeque<'r, T> {
    type Item = T;
    type IntoIter = IntoIter<'r, T>;
    fn into_iter(self) -> IntoIter<'r, T> {
        IntoIter(ManuallyDrop::new(self))
    }
}

impl<'a, 'r, T> IntoIterator for &'a VecDeque<'r, T> {
    type Item = &'a T;
    type IntoIter = Iter<'a, T>;
    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<'a, 'r, T> IntoIterator for &'a mut VecDeque<'r, T> {
    type Item = &'a mut T;
    type IntoIter = IterMut<'a, T>;
    fn into_iter(self) -> IterMut<'a, T> {
        self.iter_mut()
    }
}

impl<'r, T: Clone> Clone for VecDeque<'r, T> {
    /// A clone on the same heap.
    fn clone(&self) -> VecDeque<'r, T> {
        VecDeque::from_iter_in(self.iter().cloned(), self.heap)
    }
}

impl<'r, T: PartialEq> PartialEq for VecDeque<'r, T> {
    fn eq(&self, other: &VecDeque<'r, T>) -> bool {
        self.length == other.length && self.iter().eq(other)
    }
}

impl<'r, T: PartialEq, const N: usize> PartialEq<[T; N]> for VecDeque<'r, T> {
    fn eq(&self, other: &[T; N]) -> bool {
        self.length == N && self.iter().eq(other)
    }
}

impl<'r, T: PartialEq> PartialEq<std::collections::VecDeque<T>> for VecDeque<'r, T> {
    fn eq(&self, other: &std::collections::VecDeque<T>) -> bool {
        self.length == other.len() && self.iter().eq(other)
    }
}

impl<'r, T: Eq> Eq for VecDeque<'r, T> {}

impl<'r, T: PartialOrd> PartialOrd for VecDeque<'r, T> {
    fn partial_cmp(&self, other: &VecDeque<'r, T>) -> Option<Ordering> {
        self.iter().partial_cmp(other)
    }
}

impl<'r, T: Ord> Ord for VecDeque<'r, T> {
    fn cmp(&self, other: &VecDeque<'r, T>) -> Ordering {
        self.iter().cmp(other)
    }
}

impl<'r, T: Hash> Hash for VecDeque<'r, T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.length.hash(state);
        self.iter().for_each(|value| value.hash(state));
    }
}

impl<'r, T: fmt::Debug> fmt::Debug for VecDeque<'r, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

// SAFETY: it owns its block, and its values may live in a region.
unsafe impl<T: Persist> Persist for VecDeque<'static, T> {
    type In<'r> = VecDeque<'r, T::In<'r>>;
    type Previous = VecDeque<'static, T::Previous>;
    fn name() -> Name {
        Name::new("VecDeque").with([T::name()])
    }
    fn layout(types: &mut Types) -> Kind {
        Kind::Deque { of: types.of::<T>() }
    }
    fn migrate<'r>(old: VecDeque<'r, Of<'r, T::Previous>>, heap: Heap<'r>) -> VecDeque<'r, T::In<'r>> {
        VecDeque::from_iter_in(old.into_iter().map(|one| T::migrate(one, heap)), heap)
    }
}

impl<T: Persist> Empty for VecDeque<'static, T> {
    fn empty<'r>(heap: Heap<'r>) -> VecDeque<'r, T::In<'r>> {
        VecDeque::new_in(heap)
    }
}
