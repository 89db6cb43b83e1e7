//! The block of a vector: how it grows and shrinks.

use super::Vec;
use crate::heap::{HeapError, RawHeap};
use crate::marks::mark_bytes;
use std::alloc::Layout;
use std::ptr::NonNull;

impl<'r, T> Vec<'r, T> {
    /// Makes room for at least `additional` more values, and for some more after those.
    ///
    /// # Panics
    /// When there is no memory.
    #[inline]
    #[track_caller]
    pub fn reserve(&mut self, additional: usize) {
        if additional > self.room - self.length {
            self.grow(additional, true);
        }
    }

    /// Makes room for `additional` more values.
    ///
    /// # Panics
    /// When there is no memory.
    #[track_caller]
    pub fn reserve_exact(&mut self, additional: usize) {
        if additional > self.room - self.length {
            self.grow(additional, false);
        }
    }

    /// As [`Vec::reserve`].
    ///
    /// # Errors
    /// [`HeapError`] when there is no memory; nothing has changed then.
    pub fn try_reserve(&mut self, additional: usize) -> Result<(), HeapError> {
        if additional <= self.room - self.length {
            return Ok(());
        }
        self.try_grow(additional, true)
    }

    /// As [`Vec::reserve_exact`].
    ///
    /// # Errors
    /// [`HeapError`] when there is no memory; nothing has changed then.
    pub fn try_reserve_exact(&mut self, additional: usize) -> Result<(), HeapError> {
        if additional <= self.room - self.length {
            return Ok(());
        }
        self.try_grow(additional, false)
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    pub(super) fn grow(&mut self, additional: usize, some_more: bool) {
        if let Err(error) = self.try_grow(additional, some_more) {
            panic!("{error}");
        }
    }

    fn try_grow(&mut self, additional: usize, some_more: bool) -> Result<(), HeapError> {
        let too_large = || HeapError::TooLarge {
            bytes: additional as u64,
        };
        let needed = self.length.checked_add(additional).ok_or_else(too_large)?;
        if Self::BYTES == 0 {
            return Err(too_large()); // there is always room but for a sum of more than `usize::MAX`
        }
        let least = match Self::BYTES {
            1 => 8,
            2..=1024 => 4,
            _ => 1,
        };
        match some_more {
            true => self.resize_block(needed.max(self.room * 2).max(least)),
            false => self.resize_block(needed),
        }
    }

    /// Moves the values to a block with `room` for at least as many as there are.
    fn resize_block(&mut self, room: usize) -> Result<(), HeapError> {
        let too_large = |_| HeapError::TooLarge { bytes: u64::MAX };
        let (old, new) = (self.block(), Layout::array::<T>(room).map_err(too_large)?);
        // SAFETY: the block is ours, with the layout it was allocated with.
        let longer = new.size() >= old.size() && unsafe { self.heap.try_extend(self.at.cast(), old, new) }?;
        if !longer {
            let at = self.heap.try_allocate(new)?.cast::<T>();
            mark_bytes(at.as_ptr(), self.length * Self::BYTES);
            // SAFETY: the new block has room for the values, which are not used in the old one any more.
            unsafe {
                at.copy_from_nonoverlapping(self.at, self.length);
                self.heap.deallocate(self.at.cast(), old);
            }
            self.at = at;
        }
        self.room = room;
        Ok(())
    }

    /// The layout of the block there is.
    pub(super) fn block(&self) -> Layout {
        match Self::BYTES {
            0 => Layout::new::<T>(),
            bytes => Layout::from_size_align(self.room * bytes, align_of::<T>())
                .expect("it was allocated with this layout"),
        }
    }

    /// Gives back the room there is too much.
    ///
    /// # Panics
    /// When there is no memory for a smaller block.
    pub fn shrink_to_fit(&mut self) {
        self.shrink_to(0);
    }

    /// Gives back the room past `capacity` values, or past those there are.
    ///
    /// # Panics
    /// When there is no memory for a smaller block.
    #[track_caller]
    pub fn shrink_to(&mut self, capacity: usize) {
        let room = self.length.max(capacity);
        if Self::BYTES == 0 || room >= self.room {
            return;
        }
        if room == 0 {
            // SAFETY: the block holds no values.
            unsafe { self.heap.deallocate(self.at.cast(), self.block()) };
            (self.at, self.room) = (NonNull::dangling(), 0);
        } else if let Err(error) = self.resize_block(room) {
            panic!("{error}");
        }
    }
}

/// A block that is freed when this is dropped.
pub(in crate::collections) struct RawBlock {
    pub(in crate::collections) at: NonNull<u8>,
    pub(in crate::collections) layout: Layout,
    pub(in crate::collections) heap: RawHeap,
}

impl Drop for RawBlock {
    fn drop(&mut self) {
        // SAFETY: the maker of one has it from this heap, with this layout, and uses it no longer.
        unsafe { self.heap.deallocate(self.at, self.layout) };
    }
}
