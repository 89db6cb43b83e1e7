//! One value in a block of its own, or a slice or text of a fixed length.
//!
//! ```text
//! 0         8
//! | address |            of the block; dangling when the value has no bytes
//! | address | length |   of a slice or text
//! ```

use crate::heap::marking::block;
use crate::heap::{Brand, Heap, HeapError, RawHeap};
use crate::marks::{LINE, Span, mark_append, mark_bytes, mark_spans};
use crate::persist::{Empty, Kind, Name, Of, Persist, Types};
use std::alloc::Layout;
use std::borrow::{Borrow, BorrowMut};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// A value in a block of the region's heap, as [`std::boxed::Box`]; also what makes a type that holds
/// itself possible.
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::Persist;
/// use twinpage::collections::Box;
///
/// #[derive(Persist)]
/// struct Node<'r> {
///     value: u32,
///     next: Option<Box<'r, Node<'r>>>,
/// }
/// let last = Box::new_in(Node { value: 2, next: None }, heap);
/// let mut first = Box::new_in(Node { value: 1, next: Some(last) }, heap);
/// first.value += 10;
/// assert_eq!(first.next.as_ref().map(|node| node.value), Some(2));
/// # })?;
/// # Ok::<(), std::boxed::Box<dyn std::error::Error>>(())
/// ```
#[repr(transparent)]
pub struct Box<'r, T: ?Sized> {
    at: NonNull<T>,
    owned: PhantomData<T>,
    brand: Brand<'r>,
}

// SAFETY: it owns its value.
unsafe impl<'r, T: Send + ?Sized> Send for Box<'r, T> {}
// SAFETY: a shared box gives access to its value by a shared reference only.
unsafe impl<'r, T: Sync + ?Sized> Sync for Box<'r, T> {}

impl<'r, T: ?Sized> Box<'r, T> {
    /// # Safety
    /// The values are there, in a block of the heap with this brand that has room for no more, or need none; and
    /// of no other owner.
    pub(crate) const unsafe fn from_block(at: NonNull<T>) -> Box<'r, T> {
        Box {
            at,
            owned: PhantomData,
            brand: PhantomData,
        }
    }

    /// What is in the block, of which the caller marks what it changes.
    #[inline]
    pub(super) fn unmarked(&mut self) -> &mut T {
        // SAFETY: the box owns it, and is borrowed alone.
        unsafe { self.at.as_mut() }
    }
}

impl<'r, T> Box<'r, T> {
    /// Puts a value into a block of the heap.
    ///
    /// # Panics
    /// When there is no memory ([`Heap::allocate`]).
    #[inline]
    #[track_caller]
    pub fn new_in(value: T, heap: Heap<'r>) -> Box<'r, T> {
        Box::fill(heap.raw().allocate(Layout::new::<T>()).cast(), value)
    }

    /// As [`Box::new_in`].
    ///
    /// # Errors
    /// [`HeapError`] when there is no memory; the value is dropped.
    pub fn try_new_in(value: T, heap: Heap<'r>) -> Result<Box<'r, T>, HeapError> {
        Ok(Box::fill(heap.try_allocate(Layout::new::<T>())?.cast(), value))
    }

    #[inline]
    fn fill(at: NonNull<T>, value: T) -> Box<'r, T> {
        mark_append([block(at.as_ptr())]);
        // SAFETY: the block is new and fits a `T`.
        unsafe { at.write(value) };
        Box {
            at,
            owned: PhantomData,
            brand: PhantomData,
        }
    }

    /// The value, out of its block.
    #[must_use]
    pub fn into_inner(this: Box<'r, T>) -> T {
        let this = std::mem::ManuallyDrop::new(this);
        // SAFETY: the box is not used any more, so the value is read once and the block freed once.
        unsafe {
            let value = this.at.read();
            free(this.at.cast(), Layout::new::<T>());
            value
        }
    }
}

/// Frees the block, not the value.
///
/// # Safety
/// The block is a box's that is not used any more, and was allocated with this layout.
unsafe fn free(at: NonNull<u8>, layout: Layout) {
    if layout.size() != 0 {
        // SAFETY: the block was allocated with this layout, and its box is no longer used.
        unsafe { RawHeap::deallocate_from_its_own(at, layout) };
    }
}

impl<'r, T: ?Sized> Drop for Box<'r, T> {
    #[inline]
    fn drop(&mut self) {
        /// Frees the block also when the value's drop panics.
        struct Freed(NonNull<u8>, Layout);
        impl Drop for Freed {
            fn drop(&mut self) {
                // SAFETY: the box is being dropped.
                unsafe { free(self.0, self.1) };
            }
        }
        let layout = Layout::for_value(&**self);
        let _freed = Freed(self.at.cast(), layout);
        if std::mem::needs_drop::<T>() {
            // The drop may write into it (`drop_values`).
            mark_bytes(self.at.as_ptr().cast::<u8>(), layout.size());
        }
        // SAFETY: the box owns the value and is being dropped.
        unsafe { self.at.drop_in_place() };
    }
}

impl<'r, T: ?Sized> Deref for Box<'r, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the box owns a value there.
        unsafe { self.at.as_ref() }
    }
}

impl<'r, T: ?Sized> DerefMut for Box<'r, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        let (bytes, align) = (size_of_val(&**self), align_of_val(&**self));
        match (1..=align.min(LINE)).contains(&bytes) {
            true => mark_spans([Span::of_line(self.at.as_ptr().cast::<u8>())]),
            false => mark_bytes(self.at.as_ptr().cast::<u8>(), bytes),
        }
        // SAFETY: the box owns a value there, and is borrowed mutably.
        unsafe { self.at.as_mut() }
    }
}

impl<'r, T: Clone> Clone for Box<'r, T> {
    fn clone(&self) -> Box<'r, T> {
        let value = T::clone(self);
        match size_of::<T>() {
            0 => Box::fill(NonNull::dangling(), value),
            _ => Box::fill(RawHeap::of(self.at).allocate(Layout::new::<T>()).cast(), value),
        }
    }
}

// SAFETY: it owns its block, and its value may live in a region.
unsafe impl<T: Persist> Persist for Box<'static, T> {
    type In<'r> = Box<'r, T::In<'r>>;
    type Previous = Box<'static, T::Previous>;
    fn name() -> Name {
        Name::new("Box").with([T::name()])
    }
    fn layout(types: &mut Types) -> Kind {
        Kind::Box { of: types.of::<T>() }
    }
    fn migrate<'r>(old: Box<'r, Of<'r, T::Previous>>, heap: Heap<'r>) -> Box<'r, T::In<'r>> {
        Box::new_in(T::migrate(Box::into_inner(old), heap), heap)
    }
}

impl<T: Empty> Empty for Box<'static, T> {
    fn empty<'r>(heap: Heap<'r>) -> Box<'r, T::In<'r>> {
        Box::new_in(T::empty(heap), heap)
    }
}

impl<'r, T: fmt::Debug + ?Sized> fmt::Debug for Box<'r, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, f)
    }
}

impl<'r, T: fmt::Display + ?Sized> fmt::Display for Box<'r, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, f)
    }
}

impl<'r, T: PartialEq + ?Sized> PartialEq for Box<'r, T> {
    fn eq(&self, other: &Box<'r, T>) -> bool {
        T::eq(self, other)
    }
}

impl<'r, T: Eq + ?Sized> Eq for Box<'r, T> {}

impl<'r, T: PartialOrd + ?Sized> PartialOrd for Box<'r, T> {
    fn partial_cmp(&self, other: &Box<'r, T>) -> Option<Ordering> {
        T::partial_cmp(self, other)
    }
}

impl<'r, T: Ord + ?Sized> Ord for Box<'r, T> {
    fn cmp(&self, other: &Box<'r, T>) -> Ordering {
        T::cmp(self, other)
    }
}

impl<'r, T: Hash + ?Sized> Hash for Box<'r, T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        T::hash(self, state);
    }
}

impl<'r, T: ?Sized> AsRef<T> for Box<'r, T> {
    fn as_ref(&self) -> &T {
        self
    }
}

impl<'r, T: ?Sized> AsMut<T> for Box<'r, T> {
    fn as_mut(&mut self) -> &mut T {
        self
    }
}

impl<'r, T: ?Sized> Borrow<T> for Box<'r, T> {
    fn borrow(&self) -> &T {
        self
    }
}

impl<'r, T: ?Sized> BorrowMut<T> for Box<'r, T> {
    fn borrow_mut(&mut self) -> &mut T {
        self
    }
}
