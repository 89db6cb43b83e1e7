//! What vectors have as `std`'s do: growing from iterators, going through, cloning, comparing, printing.

use super::{IntoIter, RawBlock, Vec};
use crate::heap::Heap;
use crate::persist::{Kind, Persist, Types};
use std::borrow::{Borrow, BorrowMut};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::mem::ManuallyDrop;
use std::slice;

impl<T> Extend<T> for Vec<T> {
    #[track_caller]
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        let mut values = values.into_iter();
        let least = values.size_hint().0;
        self.reserve(least);
        // Those that are sure to come are marked all at once.
        self.mark(self.length..self.length + least);
        for _ in 0..least {
            let Some(value) = values.next() else { return };
            // SAFETY: there is room for so many.
            unsafe { self.place(self.length).write(value) };
            self.length += 1;
        }
        values.for_each(|value| self.push(value));
    }
}

impl<'a, T: Copy + 'a> Extend<&'a T> for Vec<T> {
    #[track_caller]
    fn extend<I: IntoIterator<Item = &'a T>>(&mut self, values: I) {
        self.extend(values.into_iter().copied());
    }
}

impl<T> IntoIterator for Vec<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;
    fn into_iter(self) -> IntoIter<T> {
        let vec = ManuallyDrop::new(self);
        let block = RawBlock {
            at: vec.at.cast(),
            layout: vec.block(),
            heap: vec.heap,
        };
        IntoIter::new(vec.at, vec.length, block)
    }
}

impl<'a, T> IntoIterator for &'a Vec<T> {
    type Item = &'a T;
    type IntoIter = slice::Iter<'a, T>;
    fn into_iter(self) -> slice::Iter<'a, T> {
        self.iter()
    }
}

impl<'a, T> IntoIterator for &'a mut Vec<T> {
    type Item = &'a mut T;
    type IntoIter = slice::IterMut<'a, T>;
    fn into_iter(self) -> slice::IterMut<'a, T> {
        self.iter_mut()
    }
}

impl<T: Clone> Clone for Vec<T> {
    /// A clone on the same heap.
    fn clone(&self) -> Vec<T> {
        let mut vec = Vec::with_capacity_in(self.length, self.heap);
        vec.extend_from_slice(self);
        vec
    }
}

// SAFETY: it owns its block, and its values may live in a region.
unsafe impl<T: Persist> Persist for Vec<T> {
    type Previous = Vec<T::Previous>;
    fn name() -> String {
        format!("Vec<{}>", T::name())
    }
    fn layout(types: &mut Types) -> Kind {
        Kind::Vec { of: types.of::<T>() }
    }
    fn migrate(old: Self::Previous, heap: Heap) -> Self {
        Vec::from_iter_in(old.into_iter().map(|one| T::migrate(one, heap)), heap)
    }
}

impl<T: fmt::Debug> fmt::Debug for Vec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

impl<T: Hash> Hash for Vec<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_slice().hash(state);
    }
}

impl<T: Eq> Eq for Vec<T> {}

impl<T: PartialOrd> PartialOrd for Vec<T> {
    fn partial_cmp(&self, other: &Vec<T>) -> Option<Ordering> {
        self.as_slice().partial_cmp(other.as_slice())
    }
}

impl<T: Ord> Ord for Vec<T> {
    fn cmp(&self, other: &Vec<T>) -> Ordering {
        self.as_slice().cmp(other.as_slice())
    }
}

macro_rules! equal {
    ($([$($generics:tt)*] $left:ty, $right:ty);* $(;)?) => {$(
        impl<T: PartialEq<U>, U, $($generics)*> PartialEq<$right> for $left {
            fn eq(&self, other: &$right) -> bool {
                self[..] == other[..]
            }
        }
    )*};
}

equal! {
    [] Vec<T>, Vec<U>;
    [] Vec<T>, [U];
    [] Vec<T>, &[U];
    [] Vec<T>, &mut [U];
    [] Vec<T>, std::vec::Vec<U>;
    [] std::vec::Vec<T>, Vec<U>;
    [] [T], Vec<U>;
    [const N: usize] Vec<T>, [U; N];
    [const N: usize] Vec<T>, &[U; N];
}

impl<T> AsRef<[T]> for Vec<T> {
    fn as_ref(&self) -> &[T] {
        self
    }
}

impl<T> AsMut<[T]> for Vec<T> {
    fn as_mut(&mut self) -> &mut [T] {
        self
    }
}

impl<T> Borrow<[T]> for Vec<T> {
    fn borrow(&self) -> &[T] {
        self
    }
}

impl<T> BorrowMut<[T]> for Vec<T> {
    fn borrow_mut(&mut self) -> &mut [T] {
        self
    }
}
