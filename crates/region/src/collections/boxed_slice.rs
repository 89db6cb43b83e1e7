//! Boxes of slices and of text: as long for ever as they were made.

use super::{Box, String, Vec};
use crate::heap::{Heap, RawHeap};
use crate::marks::mark_bytes;
use crate::persist::{Empty, Kind, Name, Of, Persist, Types};
use std::alloc::Layout;
use std::mem::ManuallyDrop;
use std::ops::{Index, IndexMut};
use std::ptr::NonNull;
use std::slice::SliceIndex;

impl<'r, T> Box<'r, [T]> {
    /// The values, in a vector on the heap they are in, where they are; on `heap` if they have no bytes.
    #[must_use]
    pub fn into_vec(self, heap: Heap<'r>) -> Vec<'r, T> {
        let this = ManuallyDrop::new(self);
        let heap = own_heap(this.as_ptr(), size_of_val(&**this), heap);
        // SAFETY: the block is no longer the box's, of this heap, and has room for the values and no more.
        unsafe { Vec::from_block(this.as_ptr(), this.len(), heap) }
    }

    fn as_ptr(&self) -> NonNull<T> {
        NonNull::from_ref(&**self).cast()
    }

    /// A value or a part, to change. Only that is marked as written.
    #[inline]
    pub fn get_mut<I: SliceIndex<[T]>>(&mut self, index: I) -> Option<&mut I::Output> {
        let found = self.unmarked().get_mut(index)?;
        mark_bytes((&raw const *found).cast::<T>(), size_of_val(found));
        Some(found)
    }
}

impl<'r> Box<'r, str> {
    /// A copy of `text`.
    ///
    /// # Panics
    /// When there is no memory.
    #[must_use]
    #[track_caller]
    pub fn from_text_in(text: &str, heap: Heap<'r>) -> Box<'r, str> {
        let mut string = String::new_in(heap);
        string.reserve_exact(text.len());
        string.push_str(text);
        string.into_boxed_str()
    }

    /// The text, in a string on the heap it is in, where it is; on `heap` if it is empty.
    #[must_use]
    pub fn into_string(self, heap: Heap<'r>) -> String<'r> {
        let this = ManuallyDrop::new(self);
        let first = NonNull::from_ref(&**this).cast();
        let heap = own_heap(first, this.len(), heap);
        // SAFETY: the box owned a block of this heap of exactly these bytes, is no longer used, and its bytes are UTF-8.
        unsafe { String::from_utf8_unchecked(Vec::from_block(first, this.len(), heap)) }
    }
}

/// The heap of a block, if there is one.
fn heap_of<'r, T>(at: NonNull<T>) -> Heap<'r> {
    // SAFETY: the caller has a box in it with this brand.
    unsafe { Heap::branded(RawHeap::of(at)) }
}

/// The heap of a block of `bytes` bytes, or `heap` where there is none. The brand does not say it: two volatile windows
/// may have heaps of one lifetime.
fn own_heap<'r, T>(at: NonNull<T>, bytes: usize, heap: Heap<'r>) -> Heap<'r> {
    match bytes {
        0 => heap,
        _ => heap_of(at),
    }
}

impl<'r, T: Clone> Clone for Box<'r, [T]> {
    fn clone(&self) -> Box<'r, [T]> {
        if Layout::for_value(&**self).size() > 0 {
            let mut vec = Vec::with_capacity_in(self.len(), heap_of::<T>(self.as_ptr()));
            vec.extend_from_slice(self);
            return vec.into_boxed_slice();
        }
        // No block: values without bytes, if any. Each clone is its box's.
        self.iter().for_each(|value| std::mem::forget(value.clone()));
        // SAFETY: such values need no block.
        unsafe { Box::from_block(NonNull::slice_from_raw_parts(NonNull::dangling(), self.len())) }
    }
}

impl<'r> Clone for Box<'r, str> {
    fn clone(&self) -> Box<'r, str> {
        let at = NonNull::from_ref(&**self).cast::<u8>();
        match self.is_empty() {
            // SAFETY: no bytes need no block, and are text.
            true => unsafe { Box::from_block(NonNull::from_ref("")) },
            false => Box::from_text_in(self, heap_of(at)),
        }
    }
}

impl<T, I: SliceIndex<[T]>> Index<I> for Box<'_, [T]> {
    type Output = I::Output;
    #[inline]
    fn index(&self, index: I) -> &I::Output {
        &(**self)[index]
    }
}

impl<T, I: SliceIndex<[T]>> IndexMut<I> for Box<'_, [T]> {
    #[inline]
    fn index_mut(&mut self, index: I) -> &mut I::Output {
        let found = &mut self.unmarked()[index];
        mark_bytes((&raw const *found).cast::<T>(), size_of_val(found));
        found
    }
}

impl<'a, T> IntoIterator for &'a Box<'_, [T]> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;
    fn into_iter(self) -> std::slice::Iter<'a, T> {
        self.iter()
    }
}

impl<'a, T> IntoIterator for &'a mut Box<'_, [T]> {
    type Item = &'a mut T;
    type IntoIter = std::slice::IterMut<'a, T>;
    fn into_iter(self) -> std::slice::IterMut<'a, T> {
        self.iter_mut()
    }
}

// SAFETY: it owns its block, and its values may live in a region.
unsafe impl<T: Persist> Persist for Box<'static, [T]> {
    type In<'r> = Box<'r, [T::In<'r>]>;
    type Previous = Box<'static, [T::Previous]>;
    fn name() -> Name {
        Name::new("Box<[").list([T::name()]).then("]>")
    }
    fn layout(types: &mut Types) -> Kind {
        Kind::Slice { of: types.of::<T>() }
    }
    fn migrate<'r>(old: Box<'r, [Of<'r, T::Previous>]>, heap: Heap<'r>) -> Box<'r, [T::In<'r>]> {
        let values = old.into_vec(heap).into_iter();
        Vec::from_iter_in(values.map(|one| T::migrate(one, heap)), heap).into_boxed_slice()
    }
}

impl<T: Persist> Empty for Box<'static, [T]> {
    fn empty<'r>(heap: Heap<'r>) -> Box<'r, [T::In<'r>]> {
        Vec::new_in(heap).into_boxed_slice()
    }
}

// SAFETY: it owns a block of bytes that are UTF-8, and bytes may live in a region.
unsafe impl Persist for Box<'static, str> {
    type In<'r> = Box<'r, str>;
    type Previous = Self;
    fn name() -> Name {
        Name::new("Box<str>")
    }
    fn layout(types: &mut Types) -> Kind {
        Kind::Slice { of: types.of::<u8>() }
    }
    fn migrate<'r>(old: Box<'r, str>, _: Heap<'r>) -> Box<'r, str> {
        old
    }
}

impl Empty for Box<'static, str> {
    fn empty<'r>(heap: Heap<'r>) -> Box<'r, str> {
        Box::from_text_in("", heap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a description says of it, which the language does not promise.
    #[test]
    fn the_address_of_a_slice_comes_before_its_length() {
        let slice: &[u64] = &[1, 2, 3];
        // SAFETY: a reference to a slice is two words.
        let words: [usize; 2] = unsafe { std::mem::transmute(slice) };
        assert_eq!(words, [slice.as_ptr().addr(), 3]);
        assert_eq!(size_of::<Box<'_, [u64]>>(), 16);
    }
}
