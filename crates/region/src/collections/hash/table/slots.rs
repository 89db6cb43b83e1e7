//! Going through the entries of a table.

use super::group::{Bits, GROUP, Group};
use super::{Slot, Table};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// The slots of a table that have an entry, in order.
#[derive(Clone)]
pub(crate) struct Slots {
    pub(super) controls: NonNull<u8>,
    pub(super) at: usize,
    pub(super) bits: Bits,
    /// How many are to come.
    pub(super) left: usize,
}

impl Iterator for Slots {
    type Item = Slot;
    #[inline]
    fn next(&mut self) -> Option<Slot> {
        if self.left == 0 {
            return None;
        }
        loop {
            if let Some(bit) = self.bits.next() {
                self.left -= 1;
                return Some(Slot(self.at + bit));
            }
            self.at += GROUP;
            // SAFETY: entries are left, so there is a further group.
            self.bits = unsafe { Group::at(self.controls.as_ptr().wrapping_add(self.at)) }.used();
        }
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

/// [`Table::drain`].
pub(crate) struct Drain<'a, T> {
    pub(super) table: &'a mut Table<T>,
    pub(super) slots: Slots,
}

impl<T> Iterator for Drain<'_, T> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        // Out of the table at once: when the drain is forgotten, the table has all that was not taken.
        Some(self.table.take(self.slots.next()?))
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.slots.size_hint()
    }
}

impl<T> Drop for Drain<'_, T> {
    fn drop(&mut self) {
        self.table.clear();
    }
}

/// [`Table::into_entries`].
pub(crate) struct IntoEntries<T> {
    pub(super) table: ManuallyDrop<Table<T>>,
    pub(super) slots: Slots,
}

// SAFETY: it owns its entries.
unsafe impl<T: Send> Send for IntoEntries<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for IntoEntries<T> {}

impl<T> Iterator for IntoEntries<T> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        let slot = self.slots.next()?;
        // SAFETY: the entry is read once; the table is never dropped.
        Some(unsafe { self.table.entry(slot).read() })
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.slots.size_hint()
    }
}

impl<T> Drop for IntoEntries<T> {
    fn drop(&mut self) {
        let _block = self.table.raw_block();
        // SAFETY: what was not taken is not used any more.
        unsafe { self.table.drop_entries(self.slots.clone()) };
    }
}
