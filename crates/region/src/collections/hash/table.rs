//! The table below maps and sets: open addressing in segments, a byte a place, sixteen looked at at once.
//!
//! ```text
//! 0          8          16       24     32     40     48
//! | controls | places   | items  | left | seed | heap |        one segment (`segment.rs`)
//! | address  | 1, depth | items  | left | seed | heap |        a directory of 2^depth segments (`directory.rs`)
//!                                                     \
//!            the directory:   | controls, places | controls, places | ... |
//! ```
//!
//! * A small table is one segment, rebuilt when it grows. A larger one has a directory: the upper bits of an
//!   entry's hash say in which segment it is, and one segment that is full is split in two. So no insertion moves
//!   more than a segment.
//! * `places` of a segment is 0 (no block), 4, 8, or 16 times a power of two. Of 16 and more, 7 of 8 are used, of 8
//!   seven, of 4 three. In a directory a segment whose entries are all near their groups may have a few more.
//! * `left` is how many more may be used before a table of one segment must grow; of a directory [`DIVIDED`] more.
//! * A control is `EMPTY`, `DELETED`, `BEYOND` (after the last place of a table of 4 or 8), or the top
//!   7 bits of the hash of the entry that is there.
//! * An entry is looked for in group `hash mod groups` of 16 of its segment, then 1 further, then 2 further, and so
//!   on, until a group has an `EMPTY` or all were looked at. So a deleted entry's control is `EMPTY` again where its
//!   group has one.
//! * An insertion writes one control and one entry.
//! * In its group an entry is put at its *favourite* place, which its hash says, or at the next free one
//!   after it. Nothing depends on that; but the line of the favourite is asked for while the controls are
//!   still on their way, so that a table larger than the caches costs one wait for memory, not two.

pub(crate) mod directory;
mod group;
mod grow;
mod segment;
mod slots;

pub(crate) use group::{BEYOND, DELETED, EMPTY, GROUP};
pub(crate) use segment::{Slot, block, usable};
pub(crate) use slots::{Drain, IntoEntries, Slots};

use super::hasher::Fold;
use crate::heap::RawHeap;
use crate::heap::marking::{drop_values, element};
use crate::marks::{Span, mark_spans};
use crate::prefetch;
use directory::DIVIDED;
use group::{Group, Probe, control_of};
use segment::Segment;
use std::marker::PhantomData;

/// A hash table of entries `T`. What is hashed and compared is its users' business.
#[repr(C)]
pub(crate) struct Table<T> {
    /// The one segment; or the address of the directory, and its depth.
    root: Segment,
    items: usize,
    left: usize,
    seed: u64,
    heap: RawHeap,
    owned: PhantomData<T>,
}

// SAFETY: it owns its entries.
unsafe impl<T: Send> Send for Table<T> {}
// SAFETY: a shared table gives access to its entries by shared references only.
unsafe impl<T: Sync> Sync for Table<T> {}

const _: () = assert!(size_of::<Table<u64>>() == 48);

/// What a search ends with.
pub(crate) enum Found {
    Here(Slot),
    /// It is not there; this is where it would be put.
    Free(Slot),
}

/// Groups that a search for a free place may look at before its segment is asked whether it is full.
const CROWDED: usize = 8;

impl<T> Table<T> {
    pub(crate) const fn new_in(heap: RawHeap) -> Table<T> {
        Table {
            root: Segment::NONE,
            items: 0,
            left: 0,
            seed: 0,
            heap,
            owned: PhantomData,
        }
    }

    pub(crate) fn heap(&self) -> RawHeap {
        self.heap
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.items
    }

    pub(crate) fn capacity(&self) -> usize {
        let left = match self.is_divided() {
            true => self.left.saturating_sub(DIVIDED),
            false => self.left,
        };
        self.items + left
    }

    /// A hash to be given this table's seed first.
    #[inline]
    pub(crate) fn hasher(&self) -> Fold {
        Fold::new(self.seed)
    }

    /// The entry at a slot that has one.
    #[inline]
    pub(crate) fn get(&self, slot: Slot) -> &T {
        // SAFETY: slots come from this table, which has not changed since (it is borrowed).
        unsafe { &*slot.entry() }
    }

    /// Where the entry of a slot is, not marked.
    #[inline]
    pub(crate) fn entry(&self, slot: Slot) -> *mut T {
        slot.entry()
    }

    /// The slot of the entry of that hash that `is` it.
    #[inline]
    pub(crate) fn find(&self, hash: u64, mut is: impl FnMut(&T) -> bool) -> Option<Slot> {
        if self.items == 0 {
            return None;
        }
        let (segment, mask) = self.segment(hash);
        let mut probe = Probe::new(hash, mask);
        prefetch::fetch(segment.favourite::<T>(&probe));
        loop {
            // SAFETY: there are entries, so every segment has places.
            let group = unsafe { segment.group(probe.at) };
            for bit in group.with(control_of(hash)) {
                let slot = segment.slot(probe.at + bit);
                if is(self.get(slot)) {
                    return Some(slot);
                }
            }
            if group.with(EMPTY).0 != 0 {
                return None;
            }
            probe.step();
            if probe.was_everywhere() {
                return None;
            }
        }
    }

    /// As [`Table::find`]; if it is not there, where to put it: nothing may change between. The hash was made after
    /// [`Table::reserve_one`].
    ///
    /// # Panics
    /// When there is no memory, or `rehash` does; nothing is lost then.
    #[inline]
    #[track_caller]
    pub(crate) fn find_or_free(
        &mut self,
        hash: u64,
        mut is: impl FnMut(&T) -> bool,
        rehash: impl Fn(&T, Fold) -> u64,
    ) -> Found {
        let (segment, mask) = self.segment(hash);
        let probe = Probe::new(hash, mask);
        prefetch::fetch_to_write(segment.favourite::<T>(&probe));
        // SAFETY: there is room, so every segment has places.
        let group = unsafe { segment.group(probe.at) };
        for bit in group.with(control_of(hash)) {
            let slot = segment.slot(probe.at + bit);
            if is(self.get(slot)) {
                return Found::Here(slot);
            }
        }
        // A group that has an `EMPTY` never was full, so it has no `DELETED` that would do as well.
        match group.with(EMPTY).first_from(probe.favourite) {
            Some(bit) => Found::Free(segment.slot(probe.at + bit)),
            None => self.find_or_free_beyond(hash, is, rehash),
        }
    }

    /// [`Table::find_or_free`] where the first group does not tell.
    #[inline(never)]
    #[track_caller]
    fn find_or_free_beyond(
        &mut self,
        hash: u64,
        mut is: impl FnMut(&T) -> bool,
        rehash: impl Fn(&T, Fold) -> u64,
    ) -> Found {
        loop {
            let (found, steps) = self.search(hash, &mut is);
            if steps < CROWDED || !self.is_divided() {
                return found.expect("there is room");
            }
            match found {
                Some(Found::Here(slot)) => return Found::Here(slot),
                _ if self.relieve_or_panic(hash, &rehash) => {}
                found => return found.expect("a segment that is not full has a free place"),
            }
        }
    }

    /// Where the entry is or may be put, and how many groups were looked at before that was known. Nowhere: all
    /// places of its segment are used.
    fn search(&self, hash: u64, is: &mut impl FnMut(&T) -> bool) -> (Option<Found>, usize) {
        let (segment, mask) = self.segment(hash);
        let mut probe = Probe::new(hash, mask);
        let mut free = None;
        loop {
            // SAFETY: there is room, so every segment has places.
            let group = unsafe { segment.group(probe.at) };
            for bit in group.with(control_of(hash)) {
                let slot = segment.slot(probe.at + bit);
                if is(self.get(slot)) {
                    return (Some(Found::Here(slot)), probe.steps());
                }
            }
            if free.is_none() {
                let bit = group.free().first_from(probe.favourite);
                free = bit.map(|bit| segment.slot(probe.at + bit));
            }
            if let Some(free) = free
                && group.with(EMPTY).0 != 0
            {
                return (Some(Found::Free(free)), probe.steps());
            }
            probe.step();
            if probe.was_everywhere() {
                // Beyond any number of steps that is few.
                return (free.map(Found::Free), probe.steps() + CROWDED);
            }
        }
    }

    /// Puts an entry where [`Table::find_or_free`] said.
    #[inline(always)]
    pub(crate) fn put(&mut self, slot: Slot, hash: u64, entry: T) {
        let (at, control) = (self.entry(slot), slot.control());
        mark_spans([element(at), Span::of_line(control)]);
        // SAFETY: the slot is free, and its control one of the table's.
        let was = unsafe {
            at.write(entry);
            control.replace(control_of(hash))
        };
        self.left -= usize::from(was == EMPTY);
        self.items += 1;
    }

    /// Takes the entry of a slot out.
    #[inline]
    pub(crate) fn take(&mut self, slot: Slot) -> T {
        // SAFETY: the slot has an entry, which is not there any more.
        let entry = unsafe { self.entry(slot).read() };
        self.forget(slot);
        entry
    }

    /// The entry of a slot has another owner from now on.
    fn forget(&mut self, slot: Slot) {
        // SAFETY: the slot is one of the table's.
        unsafe {
            let group = slot.controls.as_ptr().wrapping_add(slot.place & !(GROUP - 1));
            let has_empty = Group::at(group).with(EMPTY).0 != 0;
            mark_spans([Span::of_line(slot.control())]);
            slot.control().write(if has_empty { EMPTY } else { DELETED });
            self.left += usize::from(has_empty);
        }
        self.items -= 1;
    }

    /// Drops all entries. The room stays.
    pub(crate) fn clear(&mut self) {
        /// Empties the table also when an entry's drop panics.
        struct Emptied<'a, T>(&'a mut Table<T>);
        impl<T> Drop for Emptied<'_, T> {
            fn drop(&mut self) {
                self.0.clear_controls();
            }
        }
        let table = Emptied(self);
        // SAFETY: the entries are not used any more.
        unsafe { table.0.drop_entries(table.0.slots()) };
    }

    /// Drops the entries of some slots. The controls stay.
    unsafe fn drop_entries(&self, slots: Slots) {
        if std::mem::needs_drop::<T>() {
            for slot in slots {
                // SAFETY: the slots have entries, which the caller no longer uses.
                unsafe { drop_values(self.entry(slot), 1) };
            }
        }
    }

    /// Keeps the entries `keep` says yes to. It gets their places, not marked.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(*mut T) -> bool) {
        for slot in self.slots() {
            let entry = self.entry(slot);
            if !keep(entry) {
                self.forget(slot);
                // SAFETY: it has no owner any more.
                unsafe { drop_values(entry, 1) };
            }
        }
    }

    /// All entries, taken out one by one. The room stays.
    pub(crate) fn drain(&mut self) -> Drain<'_, T> {
        let slots = self.slots();
        Drain { table: self, slots }
    }

    /// All entries, and then the blocks are freed.
    pub(crate) fn into_entries(self) -> IntoEntries<T> {
        let slots = self.slots();
        IntoEntries {
            table: std::mem::ManuallyDrop::new(self),
            slots,
        }
    }

    /// A table with the entries of this one through `clone`.
    pub(crate) fn clone_with(&self, clone: impl Fn(&T) -> T, hash: impl Fn(&T, Fold) -> u64) -> Table<T> {
        let mut new = Table::new_in(self.heap);
        new.reserve(self.items, &hash);
        for slot in self.slots() {
            let entry = clone(self.get(slot));
            let hashed = hash(&entry, new.hasher());
            match new.find_or_free(hashed, |_| false, &hash) {
                Found::Here(slot) | Found::Free(slot) => new.put(slot, hashed, entry),
            }
        }
        new
    }
}

impl<T> Drop for Table<T> {
    fn drop(&mut self) {
        // Frees the blocks also when an entry's drop panics.
        let _blocks = self.blocks();
        // SAFETY: the entries are ours and not used any more.
        unsafe { self.drop_entries(self.slots()) };
    }
}
