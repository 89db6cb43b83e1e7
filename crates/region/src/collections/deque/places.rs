//! Where the values of a ring are: places of its block.
//!
//! * Values that follow each other lie in two parts at most: up to the end of the block, and from its start.
//! * Values without bytes are all at place 0, and in the first part.
//! * What is written here is marked here; [`VecDeque::value`] is an address and no more.

use super::VecDeque;
use crate::collections::vec::RawBlock;
use crate::heap::HeapError;
use crate::heap::marking::element;
use crate::marks::{mark_append, mark_bytes};
use std::alloc::Layout;
use std::ops::Range;
use std::ptr::NonNull;
use std::slice;

impl<'r, T> VecDeque<'r, T> {
    /// Moves the values to a block with room for at least as many as there are, from its start.
    pub(super) fn move_to(&mut self, room: usize) -> Result<(), HeapError> {
        let layout = Layout::array::<T>(room).map_err(|_| HeapError::TooLarge { bytes: u64::MAX })?;
        let at = if room == 0 {
            NonNull::dangling()
        } else {
            self.heap.try_allocate(layout)?.cast::<T>()
        };
        mark_bytes(at.as_ptr(), self.length * Self::BYTES);
        let [front, back] = self.parts(0..self.length);
        // SAFETY: the new block has room for both parts; they are not used in the old one any more.
        unsafe {
            at.copy_from_nonoverlapping(self.at.add(front.start), front.len());
            at.add(front.len())
                .copy_from_nonoverlapping(self.at.add(back.start), back.len());
        }
        drop(self.block());
        (self.at, self.head, self.room) = (at, 0, room);
        Ok(())
    }

    /// The block, to be freed.
    pub(super) fn block(&self) -> RawBlock {
        let layout = match Self::BYTES {
            0 => Layout::new::<T>(),
            _ => Layout::array::<T>(self.room).expect("it was allocated with this layout"),
        };
        RawBlock {
            at: self.at.cast(),
            layout,
            heap: self.heap.raw(),
        }
    }

    /// The place of value `index`, or of the one that would be there.
    #[inline]
    pub(super) fn place(&self, index: usize) -> usize {
        if Self::BYTES == 0 {
            return 0;
        }
        let place = self.head + index;
        if place >= self.room {
            place - self.room
        } else {
            place
        }
    }

    /// The address of value `index`, or of the one that would be there.
    #[inline]
    pub(super) fn value(&self, index: usize) -> *mut T {
        self.at.as_ptr().wrapping_add(self.place(index))
    }

    /// The places of some values: up to the end of the block, and from its start on.
    pub(super) fn parts(&self, values: Range<usize>) -> [Range<usize>; 2] {
        if Self::BYTES == 0 {
            return [0..values.len(), 0..0];
        }
        if values.is_empty() {
            return [0..0, 0..0];
        }
        let start = self.place(values.start);
        let front = values.len().min(self.room - start);
        [start..start + front, 0..values.len() - front]
    }

    /// Marks some values as written.
    fn mark(&self, values: Range<usize>) {
        for part in self.parts(values) {
            mark_bytes(
                self.at.as_ptr().wrapping_add(part.start),
                part.len() * Self::BYTES,
            );
        }
    }

    /// Some values, as two slices.
    pub(super) fn slices(&self, values: Range<usize>) -> (&[T], &[T]) {
        // SAFETY: the values are there.
        let [front, back] = self.parts(values).map(|part| unsafe {
            slice::from_raw_parts(self.at.as_ptr().wrapping_add(part.start), part.len())
        });
        (front, back)
    }

    /// Some values, as two slices that can be changed. They are marked as written.
    pub(super) fn slices_mut(&mut self, values: Range<usize>) -> (&mut [T], &mut [T]) {
        self.mark(values.clone());
        // SAFETY: the values are there, marked, and the parts are apart.
        let [front, back] = self.parts(values).map(|part| unsafe {
            slice::from_raw_parts_mut(self.at.as_ptr().wrapping_add(part.start), part.len())
        });
        (front, back)
    }

    /// Puts a value at `index`, where none is.
    #[inline]
    pub(super) unsafe fn write(&mut self, index: usize, value: T) {
        let at = self.value(index);
        mark_append([element(at)]);
        // SAFETY: the caller passes a place of the block that holds no value.
        unsafe { at.write(value) };
    }
}
