//! The heap as the types of a region see it: with the brand of the region.
//!
//! * A brand is a lifetime of its own, made for each update and each reading. It is invariant, so two never become
//!   one: a value with a brand stays in its region, and in the closure that the brand was made for.
//! * A [`Heap`] of memory that is not kept has a brand of its own as well, for a closure ([`Window::with_heap`]). The
//!   borrow of its window would be none: one that is leaked lends for every lifetime, also for that of an update.

use super::{HeapError, HeapStats, RawHeap};
use crate::window::Window;
use std::alloc::Layout;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// The mark of a region in a type: `'r`, invariant.
///
/// ```
/// use twinpage::Brand;
///
/// struct Number<'r>(u64, Brand<'r>); // nothing but a type that stays where it was made
/// # let _ = Number(1, Brand::default()).0;
/// ```
pub type Brand<'r> = PhantomData<fn(&'r ()) -> &'r ()>;

/// The heap of a region, where its collections take their memory from: `Vec::new_in(heap)`.
///
/// A handle: cheap to copy, and itself at home in the region, so that a collection keeps the one it
/// was made with. It is of one region, by its type, and of one update or reading of it.
///
/// ```
/// use twinpage::collections::Vec;
/// use twinpage::window::Window;
///
/// let window = Window::volatile()?; // memory like any other; a region's is kept
/// window.with_heap(7, |heap| {
///     let mut numbers = Vec::new_in(heap);
///     numbers.extend([3, 1, 2]);
///     numbers.sort();
///     assert_eq!(numbers, [1, 2, 3]);
///     assert_eq!(heap.stats().used_blocks, 1);
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// What is in a window does not leave the closure:
///
/// ```compile_fail
/// # use twinpage::{collections::Vec, window::Window};
/// let window = Window::volatile().unwrap();
/// let numbers = window.with_heap(7, |heap| Vec::from_iter_in([1, 2, 3], heap)).unwrap(); // error: lifetime may not live
/// drop(window);
/// assert_eq!(numbers[0], 1);
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Heap<'r> {
    raw: RawHeap,
    brand: Brand<'r>,
}

impl<'r> Heap<'r> {
    /// The same heap, with a brand.
    ///
    /// # Safety
    /// Nothing that gets the brand is used longer than the heap, or put into another.
    pub(crate) const unsafe fn branded(raw: RawHeap) -> Heap<'r> {
        let brand = PhantomData;
        Heap { raw, brand }
    }

    #[inline]
    pub(crate) const fn raw(self) -> RawHeap {
        self.raw
    }

    /// Makes a heap in an empty window, as [`Window::with_heap`] does, where a closure does not fit.
    ///
    /// # Errors
    /// [`HeapError::Grow`]; [`HeapError::Exists`] when there is one already.
    ///
    /// # Safety
    /// `'r` is no brand of an update or a reading, or of another heap whose values meet this one's.
    pub unsafe fn create(window: &'r Window, seed: u64) -> Result<Heap<'r>, HeapError> {
        let raw = RawHeap::create(window.place(), seed)?;
        // SAFETY: the window stays while it is borrowed; the rest is this function's own contract.
        Ok(unsafe { Heap::branded(raw) })
    }

    /// The heap that is in a window already.
    ///
    /// # Errors
    /// [`HeapError::Damaged`] when there is none, or one of another version.
    ///
    /// # Safety
    /// As [`Heap::create`].
    pub unsafe fn open(window: &'r Window) -> Result<Heap<'r>, HeapError> {
        let raw = RawHeap::open(window.place())?;
        // SAFETY: the window stays while it is borrowed; the rest is this function's own contract.
        Ok(unsafe { Heap::branded(raw) })
    }

    /// A block for `layout`, with whatever bytes it last had. Of no bytes: no block, and nothing to free.
    ///
    /// # Errors
    /// [`HeapError`]; nothing has changed then.
    ///
    /// # Panics
    /// Outside an update of the region.
    pub fn try_allocate(self, layout: Layout) -> Result<NonNull<u8>, HeapError> {
        self.raw.try_allocate(layout)
    }

    /// As [`Heap::try_allocate`], for collections whose methods return no error.
    ///
    /// # Panics
    /// When there is no memory: the region keeps its state, and the update goes on after `catch_unwind`.
    #[track_caller]
    pub fn allocate(self, layout: Layout) -> NonNull<u8> {
        self.raw.allocate(layout)
    }

    /// Frees a block. Of no bytes: nothing to do. Outside an update of the region the process ends.
    ///
    /// # Safety
    /// The block is this heap's, allocated with the same layout, and not used any more.
    ///
    /// # Panics
    /// When the heap is damaged.
    pub unsafe fn deallocate(self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: this function's own contract.
        unsafe { self.raw.deallocate(block, layout) }
    }

    /// Makes a block of whole units longer where it is, if what follows it is free. Returns whether it
    /// was; the block then fits `new` instead of `old`.
    ///
    /// # Errors
    /// [`HeapError::Damaged`].
    ///
    /// # Safety
    /// As [`Heap::deallocate`]; `new` is not smaller and no stricter aligned.
    pub unsafe fn try_extend(self, block: NonNull<u8>, old: Layout, new: Layout) -> Result<bool, HeapError> {
        // SAFETY: this function's own contract.
        unsafe { self.raw.try_extend(block, old, new) }
    }

    /// Gives the memory of all free units back, to the region's file and to the system. It happens by
    /// itself when there is much.
    ///
    /// # Errors
    /// [`HeapError`].
    pub fn give_back(self) -> Result<u64, HeapError> {
        self.raw.give_back()
    }

    /// What is in use.
    #[must_use]
    pub fn stats(self) -> HeapStats {
        self.raw.stats()
    }
}

impl Window {
    /// Makes a heap in this empty window for `work`. Its hash tables are seeded from `seed`: keep it from those that choose
    /// the keys.
    ///
    /// # Errors
    /// [`HeapError::Grow`]; [`HeapError::Exists`] when there is one already.
    pub fn with_heap<T>(&self, seed: u64, work: impl for<'h> FnOnce(Heap<'h>) -> T) -> Result<T, HeapError> {
        let raw = RawHeap::create(self.place(), seed)?;
        // SAFETY: the window stays while it is borrowed. The brand is this closure's alone, so nothing with it is longer
        // there, or gets into another heap.
        Ok(work(unsafe { Heap::branded(raw) }))
    }

    /// The same with the heap that is in the window already.
    ///
    /// # Errors
    /// [`HeapError::Damaged`] when there is none, or one of another version.
    pub fn with_open_heap<T>(&self, work: impl for<'h> FnOnce(Heap<'h>) -> T) -> Result<T, HeapError> {
        let raw = RawHeap::open(self.place())?;
        // SAFETY: as in `with_heap`.
        Ok(work(unsafe { Heap::branded(raw) }))
    }
}

impl fmt::Debug for Heap<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.raw.fmt(f)
    }
}
