//! Going through the entries of a table.

use super::Table;
use super::directory::Segments;
use super::group::{Bits, GROUP};
use super::segment::{Segment, Slot};
use std::mem::ManuallyDrop;

/// The slots of a table that have an entry, in order.
#[derive(Clone)]
pub(crate) struct Slots {
    segment: Segment,
    at: usize,
    bits: Bits,
    /// Segments after this one.
    rest: Segments,
    /// How many are to come.
    left: usize,
}

impl Slots {
    /// The `used` slots of one segment.
    pub(super) fn of(segment: Segment, used: usize) -> Slots {
        Slots::through(Segments::one(segment), used)
    }

    fn through(mut rest: Segments, left: usize) -> Slots {
        let segment = rest.next().unwrap_or(Segment::NONE);
        Slots {
            // SAFETY: the segment is there as long as the table is not changed.
            bits: unsafe { segment.first_used() },
            segment,
            at: 0,
            rest,
            left,
        }
    }
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
                return Some(self.segment.slot(self.at + bit));
            }
            self.at += GROUP;
            if self.at >= self.segment.places {
                (self.segment, self.at) = (self.rest.next()?, 0);
            }
            // SAFETY: the segment has the place.
            self.bits = unsafe { self.segment.group(self.at) }.used();
        }
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<T> Table<T> {
    /// The slots that have an entry.
    pub(crate) fn slots(&self) -> Slots {
        Slots::through(self.segments(), self.items)
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
// SAFETY: a shared one gives access to its entries by shared references only.
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
        let _blocks = self.table.blocks();
        // SAFETY: what was not taken is not used any more.
        unsafe { self.table.drop_entries(self.slots.clone()) };
    }
}
