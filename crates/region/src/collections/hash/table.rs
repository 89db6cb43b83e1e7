//! The table below maps and sets: open addressing, a byte a place, sixteen looked at at once.
//!
//! ```text
//! 0          8          16       24     32     40     48
//! | controls | places   | items  | left | seed | heap |
//!
//! the block:   | entry n-1 | ... | entry 1 | entry 0 | controls: a byte a place, at least 16 |
//!                                                    ^ `controls`, 16-aligned
//! ```
//!
//! * `places` is 0 (no block), 4, 8, or 16 times a power of two. Of 16 and more, 7 of 8 may be used, of
//!   8 seven, of 4 three; `left` is how many more may be used before the table must grow.
//! * A control is `EMPTY`, `DELETED`, `BEYOND` (after the last place of a table of 4 or 8), or the top
//!   7 bits of the hash of the entry that is there.
//! * An entry is looked for in group `hash mod groups` of 16, then 1 further, then 2 further, and so on,
//!   until a group has an `EMPTY`. So a deleted entry's control is `EMPTY` again where its group has one.
//! * An insertion writes one control and one entry.
//! * In its group an entry is put at its *favourite* place, which its hash says, or at the next free one
//!   after it. Nobody counts on that; but the line of the favourite is asked for while the controls are
//!   still on their way, so that a table larger than the caches costs one wait for memory, not two.

mod group;
mod slots;

pub(crate) use group::{BEYOND, DELETED, EMPTY, GROUP};
pub(crate) use slots::{Drain, IntoEntries, Slots};

use super::hasher::{Fold, fold};
use crate::ahead;
use crate::collections::vec::RawBlock;
use crate::heap::touching::{touch_in_row, touch_line};
use crate::heap::{HeapError, RawHeap};
use crate::marks::{LINE, touch, touch_value};
use group::{Bits, Group, Probe, control_of};
use std::alloc::Layout;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// A hash table of entries `T`. What is hashed and compared is its users' business.
#[repr(C)]
pub(crate) struct Table<T> {
    controls: NonNull<u8>,
    places: usize,
    items: usize,
    left: usize,
    seed: u64,
    heap: RawHeap,
    owned: PhantomData<T>,
}

// SAFETY: it owns its entries.
unsafe impl<T: Send> Send for Table<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Table<T> {}

const _: () = assert!(size_of::<Table<u64>>() == 48);

/// Where an entry is or may be put.
#[derive(Clone, Copy)]
pub(crate) struct Slot(usize);

/// What a search ends with.
pub(crate) enum Found {
    Here(Slot),
    /// It is not there; this is where it would be put.
    Free(Slot),
}

/// How many of so many places may be used.
pub(crate) fn usable(places: usize) -> usize {
    if places < 8 {
        places.saturating_sub(1)
    } else {
        places / 8 * 7
    }
}

/// How many places so many items need.
fn places_for(items: usize) -> Option<usize> {
    match items {
        0 => Some(0),
        1..4 => Some(4),
        4..8 => Some(8),
        _ => items.checked_mul(8)?.div_ceil(7).checked_next_power_of_two(),
    }
}

/// The block of a table of so many places, and where its controls begin.
pub(crate) fn block(places: usize, entry: Layout) -> Option<(Layout, usize)> {
    let align = entry.align().max(GROUP);
    let controls = places
        .checked_mul(entry.size())?
        .checked_next_multiple_of(align)?;
    let bytes = controls.checked_add(places.max(GROUP))?;
    Some((Layout::from_size_align(bytes, align).ok()?, controls))
}

impl<T> Table<T> {
    pub(crate) const fn new_in(heap: RawHeap) -> Table<T> {
        Table {
            controls: NonNull::dangling(),
            places: 0,
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
        self.items + self.left
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
        unsafe { &*self.entry(slot) }
    }

    /// Where the entry of a slot is, not marked.
    #[inline]
    pub(crate) fn entry(&self, slot: Slot) -> *mut T {
        self.controls.as_ptr().cast::<T>().wrapping_sub(slot.0 + 1)
    }

    /// The favourite place in the group looked at.
    #[inline]
    fn favourite(&self, probe: &Probe) -> *const T {
        self.entry(Slot(probe.at + probe.favourite))
    }

    /// The slot of the entry of that hash that `is` it.
    #[inline]
    pub(crate) fn find(&self, hash: u64, mut is: impl FnMut(&T) -> bool) -> Option<Slot> {
        if self.items == 0 {
            return None;
        }
        let mut probe = Probe::new(hash, self.places);
        ahead::fetch(self.favourite(&probe));
        loop {
            // SAFETY: there are places, so there is a group.
            let group = unsafe { self.group(probe.at) };
            for bit in group.with(control_of(hash)) {
                let slot = Slot(probe.at + bit);
                if is(self.get(slot)) {
                    return Some(slot);
                }
            }
            if group.with(EMPTY).0 != 0 {
                return None;
            }
            probe.step();
        }
    }

    /// As [`Table::find`]; if it is not there, where to put it. There must be room ([`Table::reserve`]).
    #[inline]
    pub(crate) fn find_or_free(&self, hash: u64, mut is: impl FnMut(&T) -> bool) -> Found {
        let mut probe = Probe::new(hash, self.places);
        let mut free = None;
        ahead::fetch_to_write(self.favourite(&probe));
        loop {
            // SAFETY: there is room, so there are places and a group.
            let group = unsafe { self.group(probe.at) };
            for bit in group.with(control_of(hash)) {
                let slot = Slot(probe.at + bit);
                if is(self.get(slot)) {
                    return Found::Here(slot);
                }
            }
            if free.is_none() {
                let bit = group.free().first_from(probe.favourite);
                free = bit.map(|bit| Slot(probe.at + bit));
            }
            if let Some(free) = free
                && group.with(EMPTY).0 != 0
            {
                return Found::Free(free);
            }
            probe.step();
        }
    }

    /// Puts an entry where [`Table::find_or_free`] said.
    #[inline(always)]
    pub(crate) fn put(&mut self, slot: Slot, hash: u64, entry: T) {
        let at = self.entry(slot);
        touch_in_row(at);
        // SAFETY: the slot is free, and its control one of the table's.
        let was = unsafe {
            at.write(entry);
            self.set(slot, control_of(hash))
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

    /// The entry of a slot is somebody else's from now on.
    fn forget(&mut self, slot: Slot) {
        // SAFETY: the slot is one of the table's.
        unsafe {
            let has_empty = self.group(slot.0 & !(GROUP - 1)).with(EMPTY).0 != 0;
            self.set(slot, if has_empty { EMPTY } else { DELETED });
            self.left += usize::from(has_empty);
        }
        self.items -= 1;
    }

    /// Sets a control, and returns what it was.
    #[inline]
    unsafe fn set(&mut self, slot: Slot, control: u8) -> u8 {
        let at = self.controls.as_ptr().wrapping_add(slot.0);
        touch_line(at);
        // SAFETY: by the caller's word the control is there.
        unsafe { at.replace(control) }
    }

    #[inline]
    unsafe fn group(&self, at: usize) -> Group {
        debug_assert!(at.is_multiple_of(GROUP));
        // SAFETY: by the caller's word there are controls, aligned and a whole number of groups.
        unsafe { Group::at(self.controls.as_ptr().wrapping_add(at)) }
    }

    /// Makes room for `additional` more entries.
    ///
    /// # Panics
    /// When there is no memory, or `hash` does; nothing has changed then.
    #[inline]
    #[track_caller]
    pub(crate) fn reserve(&mut self, additional: usize, hash: impl Fn(&T, Fold) -> u64) {
        if additional > self.left {
            self.reserve_slow(additional, hash);
        }
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn reserve_slow(&mut self, additional: usize, hash: impl Fn(&T, Fold) -> u64) {
        if let Err(error) = self.try_reserve(additional, hash) {
            panic!("{error}");
        }
    }

    pub(crate) fn try_reserve(
        &mut self,
        additional: usize,
        hash: impl Fn(&T, Fold) -> u64,
    ) -> Result<(), HeapError> {
        if additional <= self.left {
            return Ok(());
        }
        let needed = self
            .items
            .checked_add(additional)
            .ok_or_else(|| too_large(additional))?;
        // A table that is half deleted entries is made anew at the same size, which is work, but not
        // more than a table twice the size; one that is full doubles.
        let full = usable(self.places);
        let wanted = if needed <= full / 2 {
            full
        } else {
            needed.max(full + 1)
        };
        self.rebuild(wanted, hash)
    }

    /// Gives back the room past `capacity` entries, or past those there are.
    pub(crate) fn shrink_to(&mut self, capacity: usize, hash: impl Fn(&T, Fold) -> u64) {
        let wanted = self.items.max(capacity);
        if places_for(wanted).is_some_and(|places| places < self.places)
            && let Err(error) = self.rebuild(wanted, hash)
        {
            panic!("{error}");
        }
    }

    /// Moves the entries to a new block with room for `capacity`.
    fn rebuild(&mut self, capacity: usize, hash: impl Fn(&T, Fold) -> u64) -> Result<(), HeapError> {
        let places = places_for(capacity).ok_or_else(|| too_large(capacity))?;
        // If `hash` panics the new block is freed, and its entries are not dropped: they are still here.
        let mut new = std::mem::ManuallyDrop::new(Table::<T>::with_places(places, self.heap)?);
        let block = new.raw_block();
        // Small entries will be on nearly every line of the block: all are marked at once.
        let by_entry = size_of::<T>() >= LINE;
        if new.places > 0 && !by_entry {
            touch(new.entry(Slot(new.places - 1)), new.places * size_of::<T>());
        }
        for slot in self.slots() {
            let entry = self.entry(slot);
            // SAFETY: the slot has an entry. It is moved: the old block is freed without dropping any. The
            // controls of the new block are marked, as they were just written.
            unsafe {
                let hash = hash(&*entry, new.hasher());
                let free = new.free_slot(hash);
                let to = new.entry(free);
                if by_entry {
                    touch_value(to);
                }
                to.copy_from_nonoverlapping(entry, 1);
                new.controls.add(free.0).write(control_of(hash));
            }
        }
        (new.items, new.left) = (self.items, new.left - self.items);
        std::mem::forget(block);
        let _old = self.raw_block();
        // SAFETY: `new` is not used any more, and the old block holds nothing any more.
        unsafe { std::ptr::from_mut(self).write(std::mem::ManuallyDrop::take(&mut new)) };
        Ok(())
    }

    /// Where to put an entry that is known not to be there, in a table without deleted ones.
    #[inline]
    unsafe fn free_slot(&self, hash: u64) -> Slot {
        let mut probe = Probe::new(hash, self.places);
        loop {
            // SAFETY: the caller knows that there is room.
            if let Some(bit) = unsafe { self.group(probe.at) }.free().first_from(probe.favourite) {
                return Slot(probe.at + bit);
            }
            probe.step();
        }
    }

    fn with_places(places: usize, heap: RawHeap) -> Result<Table<T>, HeapError> {
        let mut table = Table::new_in(heap);
        if places == 0 {
            return Ok(table);
        }
        let (layout, controls) = block(places, Layout::new::<T>()).ok_or_else(|| too_large(places))?;
        let at = heap.try_allocate(layout)?;
        // SAFETY: the controls lie in the block.
        table.controls = unsafe { at.add(controls) };
        table.places = places;
        // Another seed for each block: what fills one group of a table does not fill one of another.
        table.seed = fold(heap.hash_seed() ^ at.addr().get() as u64, 0x452821e638d01377);
        table.clear_controls();
        Ok(table)
    }

    /// All places become empty.
    fn clear_controls(&mut self) {
        let (at, bytes) = (self.controls.as_ptr(), self.places.max(GROUP));
        if self.places > 0 {
            touch(at, bytes);
            // SAFETY: so many controls are there.
            unsafe {
                at.write_bytes(EMPTY, self.places);
                at.wrapping_add(self.places)
                    .write_bytes(BEYOND, bytes - self.places);
            }
        }
        (self.items, self.left) = (0, usable(self.places));
    }

    /// The block, to be freed; no block is none.
    fn raw_block(&self) -> RawBlock {
        let (at, layout) = match self.places {
            0 => (NonNull::dangling(), Layout::new::<()>()),
            places => {
                let (layout, controls) =
                    block(places, Layout::new::<T>()).expect("it was allocated with this layout");
                // SAFETY: the block begins so many bytes before the controls.
                (unsafe { self.controls.sub(controls) }, layout)
            }
        };
        RawBlock {
            at,
            layout,
            heap: self.heap,
        }
    }

    /// The slots that have an entry.
    pub(crate) fn slots(&self) -> Slots {
        let bits = match self.places {
            0 => Bits(0),
            // SAFETY: there are places, so there is a group.
            _ => unsafe { self.group(0) }.used(),
        };
        Slots {
            controls: self.controls,
            at: 0,
            bits,
            left: self.items,
        }
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
                // SAFETY: by the caller's word the entries are not used any more.
                unsafe { self.entry(slot).drop_in_place() };
            }
        }
    }

    /// Keeps the entries `keep` says yes to. It gets their places, not marked.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(*mut T) -> bool) {
        for slot in self.slots() {
            let entry = self.entry(slot);
            if !keep(entry) {
                self.forget(slot);
                // SAFETY: it is nobody's any more.
                unsafe { entry.drop_in_place() };
            }
        }
    }

    /// All entries, taken out one by one. The room stays.
    pub(crate) fn drain(&mut self) -> Drain<'_, T> {
        let slots = self.slots();
        Drain { table: self, slots }
    }

    /// All entries, and then the block is freed.
    pub(crate) fn into_entries(self) -> IntoEntries<T> {
        let slots = self.slots();
        IntoEntries {
            table: std::mem::ManuallyDrop::new(self),
            slots,
        }
    }

    /// A table with the entries of this one through `clone`, at the same places.
    pub(crate) fn clone_with(&self, clone: impl Fn(&T) -> T, hash: impl Fn(&T, Fold) -> u64) -> Table<T> {
        let mut new = Table::new_in(self.heap);
        new.reserve(self.items, &hash);
        for slot in self.slots() {
            let entry = clone(self.get(slot));
            let hash = hash(&entry, new.hasher());
            // SAFETY: there is room for all.
            let free = unsafe { new.free_slot(hash) };
            new.put(free, hash, entry);
        }
        new
    }
}

impl<T> Drop for Table<T> {
    fn drop(&mut self) {
        // Frees the block also when an entry's drop panics.
        let _block = self.raw_block();
        // SAFETY: the entries are ours and not used any more.
        unsafe { self.drop_entries(self.slots()) };
    }
}

fn too_large(entries: usize) -> HeapError {
    HeapError::TooLarge {
        bytes: entries as u64,
    }
}
