//! What vectors have as `std`'s do: growing from iterators, going through, cloning, comparing, printing.

use super::{IntoIter, RawBlock, Vec};
use crate::heap::Heap;
use crate::persist::{Empty, Kind, Name, Of, Persist, Types};
use std::borrow::{Borrow, BorrowMut};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::mem::ManuallyDrop;
use std::slice;

impl<'r, T> Extend<T> for Vec<'r, T> {
    #[track_caller]
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        let mut values = values.into_iter();
        let least = values.size_hint().0;
        self.reserve(least);
        // Those that are sure to come are marked all at once.
        self.mark(self.length..self.length + least);
        for _ in 0..least {
            let Some(value) = values.next() else { return };
            // SAFETY: there is room for that many.
            unsafe { self.place(self.length).write(value) };
            self.length += 1;
        }
        values.for_each(|value| self.push(value));
    }
}

impl<'a, 'r, T: Copy + 'a> Extend<&'a T> for Vec<'r, T> {
    #[track_caller]
    fn extend<I: IntoIterator<Item = &'a T>>(&mut self, values: I) {
        self.extend(values.into_iter().copied());
    }
}

impl<'r, T> IntoIterator for Vec<'r, T> {
    type Item = T;
    type IntoIter = IntoIter<'r, T>;
    fn into_iter(self) -> IntoIter<'r, T> {
        let vec = ManuallyDrop::new(self);
        let block = RawBlock {
            at: vec.at.cast(),
            layout: vec.block(),
            heap: vec.heap.raw(),
        };
        IntoIter::new(vec.at, vec.length, block)
    }
}

impl<'a, 'r, T> IntoIterator for &'a Vec<'r, T> {
    type Item = &'a T;
    type IntoIter = slice::Iter<'a, T>;
    fn into_iter(self) -> slice::Iter<'a, T> {
        self.iter()
    }
}

impl<'a, 'r, T> IntoIterator for &'a mut Vec<'r, T> {
    type Item = &'a mut T;
    type IntoIter = slice::IterMut<'a, T>;
    fn into_iter(self) -> slice::IterMut<'a, T> {
        self.iter_mut()
    }
}

impl<'r, T: Clone> Clone for Vec<'r, T> {
    /// A clone on the same heap.
    fn clone(&self) -> Vec<'r, T> {
        let mut vec = Vec::with_capacity_in(self.length, self.heap);
        vec.extend_from_slice(self);
        vec
    }
}

// SAFETY: it owns its block, and its values may live in a region.
unsafe impl<T: Persist> Persist for Vec<'static, T> {
    type In<'r> = Vec<'r, T::In<'r>>;
    type Previous = Vec<'static, T::Previous>;
    fn name() -> Name {
        Name::new("Vec").with([T::name()])
    }
    fn layout(types: &mut Types) -> Kind {
        Kind::Vec { of: types.of::<T>() }
    }
    fn migrate<'r>(old: Vec<'r, Of<'r, T::Previous>>, heap: Heap<'r>) -> Vec<'r, T::In<'r>> {
        Vec::from_iter_in(old.into_iter().map(|one| T::migrate(one, heap)), heap)
    }
}

impl<T: Persist> Empty for Vec<'static, T> {
    fn empty<'r>(heap: Heap<'r>) -> Vec<'r, T::In<'r>> {
        Vec::new_in(heap)
    }
}

impl<'r, T: fmt::Debug> fmt::Debug for Vec<'r, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

impl<'r, T: Hash> Hash for Vec<'r, T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_slice().hash(state);
    }
}

impl<'r, T: Eq> Eq for Vec<'r, T> {}

impl<'r, T: PartialOrd> PartialOrd for Vec<'r, T> {
    fn partial_cmp(&self, other: &Vec<'r, T>) -> Option<Ordering> {
        self.as_slice().partial_cmp(other.as_slice())
    }
}

impl<'r, T: Ord> Ord for Vec<'r, T> {
    fn cmp(&self, other: &Vec<'r, T>) -> Ordering {
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
    [] Vec<'_, T>, Vec<'_, U>;
    [] Vec<'_, T>, [U];
    [] Vec<'_, T>, &[U];
    [] Vec<'_, T>, &mut [U];
    [] Vec<'_, T>, std::vec::Vec<U>;
    [] std::vec::Vec<T>, Vec<'_, U>;
    [] [T], Vec<'_, U>;
    [const N: usize] Vec<'_, T>, [U; N];
    [const N: usize] Vec<'_, T>, &[U; N];
}

impl<T> AsRef<[T]> for Vec<'_, T> {
    fn as_ref(&self) -> &[T] {
        self
    }
}

impl<T> AsMut<[T]> for Vec<'_, T> {
    fn as_mut(&mut self) -> &mut [T] {
        self
    }
}

impl<T> Borrow<[T]> for Vec<'_, T> {
    fn borrow(&self) -> &[T] {
        self
    }
}

impl<T> BorrowMut<[T]> for Vec<'_, T> {
    fn borrow_mut(&mut self) -> &mut [T] {
        self
    }
}

impl std::io::Write for Vec<'_, u8> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self.try_reserve(bytes.len()) {
            Ok(()) => self.extend_from_copies(bytes),
            Err(error) => return Err(std::io::Error::new(std::io::ErrorKind::OutOfMemory, error)),
        }
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
