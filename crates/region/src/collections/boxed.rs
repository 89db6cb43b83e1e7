//! One value in a block of its own.
//!
//! ```text
//! 0         8
//! | address |   of the block; dangling when the value has no bytes
//! ```

use crate::heap::touching::touch_block;
use crate::heap::{Heap, HeapError};
use crate::marks::touch_value;
use crate::persist::{Kind, Persist, Types};
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
/// # let window = Window::volatile()?;
/// # let heap = Heap::create(window.place(), 1)?;
/// use twinpage::Persist;
/// use twinpage::collections::Box;
///
/// #[derive(Persist)]
/// struct Node {
///     value: u32,
///     next: Option<Box<Node>>,
/// }
/// let last = Box::new_in(Node { value: 2, next: None }, heap);
/// let mut first = Box::new_in(Node { value: 1, next: Some(last) }, heap);
/// first.value += 10;
/// assert_eq!(first.next.as_ref().map(|node| node.value), Some(2));
/// # Ok::<(), std::boxed::Box<dyn std::error::Error>>(())
/// ```
#[repr(transparent)]
pub struct Box<T> {
    at: NonNull<T>,
    owned: PhantomData<T>,
}

// SAFETY: it owns its value.
unsafe impl<T: Send> Send for Box<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Box<T> {}

impl<T> Box<T> {
    /// Puts a value into a block of the heap.
    ///
    /// # Panics
    /// When there is no memory ([`Heap::allocate`]).
    #[inline]
    #[track_caller]
    pub fn new_in(value: T, heap: Heap) -> Box<T> {
        Box::fill(heap.allocate(Layout::new::<T>()).cast(), value)
    }

    /// As [`Box::new_in`].
    ///
    /// # Errors
    /// [`HeapError`] when there is no memory; the value is dropped.
    pub fn try_new_in(value: T, heap: Heap) -> Result<Box<T>, HeapError> {
        Ok(Box::fill(heap.try_allocate(Layout::new::<T>())?.cast(), value))
    }

    #[inline]
    fn fill(at: NonNull<T>, value: T) -> Box<T> {
        touch_block(at.as_ptr());
        // SAFETY: the block is new and fits a `T`.
        unsafe { at.write(value) };
        Box {
            at,
            owned: PhantomData,
        }
    }

    /// The value, out of its block.
    #[must_use]
    pub fn into_inner(this: Box<T>) -> T {
        let this = std::mem::ManuallyDrop::new(this);
        // SAFETY: the box is not used any more, so the value is read once and the block freed once.
        unsafe {
            let value = this.at.read();
            free(this.at);
            value
        }
    }
}

/// Frees the block, not the value.
///
/// # Safety
/// The block is a box's that is not used any more.
unsafe fn free<T>(at: NonNull<T>) {
    if size_of::<T>() != 0 {
        // SAFETY: by the caller's word; it was allocated with this layout.
        unsafe { Heap::deallocate_from_its_own(at.cast(), Layout::new::<T>()) };
    }
}

impl<T> Drop for Box<T> {
    #[inline]
    fn drop(&mut self) {
        /// Frees the block also when the value's drop panics.
        struct Freed<T>(NonNull<T>);
        impl<T> Drop for Freed<T> {
            fn drop(&mut self) {
                // SAFETY: the box is being dropped.
                unsafe { free(self.0) };
            }
        }
        let freed = Freed(self.at);
        // SAFETY: the box owns the value and is being dropped.
        unsafe { freed.0.drop_in_place() };
    }
}

impl<T> Deref for Box<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the box owns a value there.
        unsafe { self.at.as_ref() }
    }
}

impl<T> DerefMut for Box<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        touch_value(self.at.as_ptr());
        // SAFETY: as above, and it is borrowed alone.
        unsafe { self.at.as_mut() }
    }
}

impl<T: Clone> Clone for Box<T> {
    fn clone(&self) -> Box<T> {
        let value = T::clone(self);
        match size_of::<T>() {
            0 => Box::fill(NonNull::dangling(), value),
            _ => Box::new_in(value, Heap::of(self.at)),
        }
    }
}

// SAFETY: it owns its block, and its value may live in a region.
unsafe impl<T: Persist> Persist for Box<T> {
    type Previous = Box<T::Previous>;
    fn name() -> String {
        format!("Box<{}>", T::name())
    }
    fn layout(types: &mut Types) -> Kind {
        Kind::Box { of: types.of::<T>() }
    }
    fn migrate(old: Self::Previous, heap: Heap) -> Self {
        Box::new_in(T::migrate(Box::into_inner(old), heap), heap)
    }
}

impl<T: fmt::Debug> fmt::Debug for Box<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, f)
    }
}

impl<T: fmt::Display> fmt::Display for Box<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, f)
    }
}

impl<T: PartialEq> PartialEq for Box<T> {
    fn eq(&self, other: &Box<T>) -> bool {
        T::eq(self, other)
    }
}

impl<T: Eq> Eq for Box<T> {}

impl<T: PartialOrd> PartialOrd for Box<T> {
    fn partial_cmp(&self, other: &Box<T>) -> Option<Ordering> {
        T::partial_cmp(self, other)
    }
}

impl<T: Ord> Ord for Box<T> {
    fn cmp(&self, other: &Box<T>) -> Ordering {
        T::cmp(self, other)
    }
}

impl<T: Hash> Hash for Box<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        T::hash(self, state);
    }
}

impl<T> AsRef<T> for Box<T> {
    fn as_ref(&self) -> &T {
        self
    }
}

impl<T> AsMut<T> for Box<T> {
    fn as_mut(&mut self) -> &mut T {
        self
    }
}

impl<T> Borrow<T> for Box<T> {
    fn borrow(&self) -> &T {
        self
    }
}

impl<T> BorrowMut<T> for Box<T> {
    fn borrow_mut(&mut self) -> &mut T {
        self
    }
}
