//! How a table gets room: it is rebuilt whole where it is small or asked for, one segment at a time where it is large.
//!
//! * What has a new place is moved bit by bit. Until all is moved the old blocks have all entries, and the new ones
//!   none that is dropped: so a `hash` that panics changes nothing.
//! * A `hash` that lies puts an entry where it will not be found. Each segment has room for all that is moved into it.

use super::directory::{DEEPEST, DIVIDED, segment_places};
use super::group::{DELETED, EMPTY};
use super::segment::{Count, Segment, Slot, block, places_for, too_large, usable};
use super::slots::Slots;
use super::{Fold, Table, control_of};
use crate::collections::hash::hasher::fold;
use crate::collections::vec::RawBlock;
use crate::heap::{HeapError, RawHeap};
use crate::marks::{LINE, mark_value};
use crate::zone::DATA_BYTES;
use std::alloc::Layout;
use std::mem::ManuallyDrop;
use std::ops::Range;

/// A segment that is full is split where each half gets one of that many entries.
const EVEN: usize = 16;

impl<T> Table<T> {
    /// Makes room for one more entry: before its hash is made, since the seed may change.
    ///
    /// # Panics
    /// When there is no memory, or `hash` does; nothing has changed then.
    #[inline]
    #[track_caller]
    pub(crate) fn reserve_one(&mut self, hash: impl Fn(&T, Fold) -> u64) {
        if self.left == 0 {
            self.reserve(1, hash);
        }
    }

    /// Makes room for `additional` more entries.
    ///
    /// # Panics
    /// As [`Table::reserve_one`].
    #[cold]
    #[inline(never)]
    #[track_caller]
    pub(crate) fn reserve(&mut self, additional: usize, hash: impl Fn(&T, Fold) -> u64) {
        if let Err(error) = self.try_reserve(additional, hash) {
            panic!("{error}");
        }
    }

    /// About that many entries will come: makes room for them where that moves few.
    #[track_caller]
    pub(crate) fn expect(&mut self, additional: usize, hash: impl Fn(&T, Fold) -> u64) {
        if !self.is_divided() || additional > self.items {
            self.reserve(additional, hash);
        }
    }

    pub(crate) fn try_reserve(
        &mut self,
        additional: usize,
        hash: impl Fn(&T, Fold) -> u64,
    ) -> Result<(), HeapError> {
        if additional <= self.capacity() - self.items {
            return Ok(());
        }
        let needed = self
            .items
            .checked_add(additional)
            .ok_or_else(|| too_large::<T>(additional))?;
        if self.is_divided() {
            return self.rebuild(needed, hash);
        }
        // A table that is half deleted entries is rebuilt at the same size, which is work, but not
        // more than a table twice the size; one that is full doubles.
        let full = usable(self.root.places);
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
        let places = self.segments().map(|segment| segment.places).sum();
        if places_for(wanted).is_some_and(|needed| needed < places)
            && let Err(error) = self.rebuild(wanted, hash)
        {
            panic!("{error}");
        }
    }

    /// All places become empty.
    pub(super) fn clear_controls(&mut self) {
        let mut left = if self.is_divided() { DIVIDED } else { 0 };
        for segment in self.segments() {
            segment.clear();
            left += usable(segment.places);
        }
        (self.items, self.left) = (0, left);
    }

    /// Moves the entries to new blocks with room for `capacity`.
    fn rebuild(&mut self, capacity: usize, hash: impl Fn(&T, Fold) -> u64) -> Result<(), HeapError> {
        let mut new = Moving::<T>::with_capacity(capacity, self.heap)?;
        for slot in self.slots() {
            let entry = self.entry(slot);
            // SAFETY: the slot has an entry. It is moved: the old blocks are freed without dropping any.
            unsafe {
                let hashed = hash(&*entry, new.0.hasher());
                let free = new.0.vacancy(hashed, &hash)?;
                new.0.left -= usize::from(move_to(entry, free, hashed) == EMPTY);
                new.0.items += 1;
            }
        }
        // The old blocks go, and of their entries none is dropped.
        std::mem::swap(self, &mut new.0);
        Ok(())
    }

    /// Where to put an entry of that hash that is known not to be there.
    fn vacancy(&mut self, hash: u64, rehash: &impl Fn(&T, Fold) -> u64) -> Result<Slot, HeapError> {
        loop {
            // SAFETY: it has room, so every segment has places.
            if let Some(slot) = unsafe { self.segment(hash).0.free_slot(hash) } {
                return Ok(slot);
            }
            self.relieve(hash, rehash)?;
        }
    }

    /// As [`Table::relieve`].
    ///
    /// # Panics
    /// When there is no memory, or `rehash` does.
    #[cold]
    #[inline(never)]
    #[track_caller]
    pub(super) fn relieve_or_panic(&mut self, hash: u64, rehash: &impl Fn(&T, Fold) -> u64) -> bool {
        match self.relieve(hash, rehash) {
            Ok(changed) => changed,
            Err(error) => panic!("{error}"),
        }
    }

    /// Makes room in the segment of a hash, in a table with a directory, if it is full. Says whether it was.
    fn relieve(&mut self, hash: u64, rehash: &impl Fn(&T, Fold) -> u64) -> Result<bool, HeapError> {
        assert!(
            self.is_divided(),
            "a table of one segment grows before it is full"
        );
        let run = self.run(self.number_of(hash));
        let (old, _) = self.segment(hash);
        // SAFETY: the segment is the table's.
        let count = unsafe { old.count() };
        if count.used + count.deleted < usable(old.places) {
            return Ok(false);
        }
        if count.used <= usable(old.places) / 2 {
            self.remake(old, &count, run, old.places, rehash)?;
        } else if !self.split(old, &count, run.clone(), rehash)? {
            let places = old
                .places
                .checked_mul(2)
                .ok_or_else(|| too_large::<T>(old.places))?;
            self.remake(old, &count, run, places, rehash)?;
        }
        Ok(true)
    }

    /// Moves the entries of a segment to two new ones, by the next bit of their hashes. Not where nearly all would be
    /// in one of them, or the directory would be long: says whether it did.
    fn split(
        &mut self,
        old: Segment,
        count: &Count,
        run: Range<usize>,
        rehash: &impl Fn(&T, Fold) -> u64,
    ) -> Result<bool, HeapError> {
        let deepens = run.len() == 1;
        let evenly = (2 << self.depth()) * usable(segment_places::<T>());
        if deepens && (self.depth() == DEEPEST || evenly > EVEN * self.items) {
            return Ok(false);
        }
        let bit = 7 + self.depth() as u32 - run.len().ilog2();
        let halves = [
            Fresh::make::<T>(old.places, self.heap)?,
            Fresh::make::<T>(old.places, self.heap)?,
        ];
        let mut counts = [0; 2];
        for slot in Slots::of(old, count.used) {
            // SAFETY: the slot has an entry. It is moved, as in `rebuild`; a half has as many places as there are
            // entries at least.
            unsafe {
                let entry = slot.entry::<T>();
                let hash = rehash(&*entry, self.hasher());
                let half = (hash << bit >> 63) as usize;
                counts[half] += 1;
                let free = halves[half].segment.free_slot(hash);
                move_to(entry, free.expect("it has places for all"), hash);
            }
        }
        if counts[0].min(counts[1]) < count.used / EVEN {
            return Ok(false);
        }
        let mut run = run;
        if deepens {
            self.deepen()?;
            run = 2 * run.start..2 * run.end;
        }
        let middle = run.start + run.len() / 2;
        let [low, high] = halves.map(Fresh::keep);
        self.set_run(run.start..middle, low);
        self.set_run(middle..run.end, high);
        self.left += 2 * usable(old.places) + count.deleted - usable(old.places);
        drop(old.raw_block::<T>(self.heap));
        Ok(true)
    }

    /// Moves the entries of a segment to a new one of that many places.
    fn remake(
        &mut self,
        old: Segment,
        count: &Count,
        run: Range<usize>,
        places: usize,
        rehash: &impl Fn(&T, Fold) -> u64,
    ) -> Result<(), HeapError> {
        let new = Fresh::make::<T>(places, self.heap)?;
        for slot in Slots::of(old, count.used) {
            // SAFETY: the slot has an entry, which is moved once; the new segment has a place for every entry.
            unsafe {
                let entry = slot.entry::<T>();
                let hash = rehash(&*entry, self.hasher());
                let free = new.segment.free_slot(hash);
                move_to(entry, free.expect("it has places for all"), hash);
            }
        }
        self.set_run(run, new.keep());
        self.left += usable(places) + count.deleted - usable(old.places);
        drop(old.raw_block::<T>(self.heap));
        Ok(())
    }
}

/// Copies an entry to a free slot of a segment made for it, whose controls are marked. Returns the control that was
/// there.
///
/// # Safety
/// The entry is there, the slot is free.
#[inline]
unsafe fn move_to<T>(entry: *const T, slot: Slot, hash: u64) -> u8 {
    let to = slot.entry::<T>();
    // Small ones are marked with their segment.
    if size_of::<T>() >= LINE {
        mark_value(to);
    }
    let control = slot.controls.as_ptr().wrapping_add(slot.place);
    // SAFETY: the caller passes an entry and a free slot, which do not overlap.
    let was = unsafe {
        to.copy_from_nonoverlapping(entry, 1);
        control.replace(control_of(hash))
    };
    debug_assert!(was == EMPTY || was == DELETED);
    was
}

/// A new table with copies of entries that are another's: none of them is dropped.
struct Moving<T>(ManuallyDrop<Table<T>>);

impl<T> Moving<T> {
    /// With places for `capacity` entries, and none yet.
    fn with_capacity(capacity: usize, heap: RawHeap) -> Result<Moving<T>, HeapError> {
        let places = places_for(capacity).ok_or_else(|| too_large::<T>(capacity))?;
        match block(places, Layout::new::<T>()) {
            Some((layout, _)) if layout.size() <= DATA_BYTES => {}
            _ => return Err(too_large::<T>(capacity)),
        }
        let mut new = Moving(ManuallyDrop::new(Table::new_in(heap)));
        let table = &mut *new.0;
        let each = segment_places::<T>();
        if places <= each {
            table.root = Segment::make::<T>(places, true, heap)?;
            table.left = usable(places);
        } else {
            let depth = (places / each).ilog2() as usize;
            table.root = Segment::directory_of(depth, heap)?;
            for number in 0..1 << depth {
                let segment = Segment::make::<T>(each, true, heap)?;
                table.set_run(number..number + 1, segment);
            }
            table.left = DIVIDED + usable(each) * (1 << depth);
        }
        // Another seed for each block: what fills one group of a table does not fill one of another.
        table.seed = fold(
            heap.hash_seed() ^ table.root.controls.addr().get() as u64,
            0x452821e638d01377,
        );
        Ok(new)
    }
}

impl<T> Drop for Moving<T> {
    fn drop(&mut self) {
        drop(self.0.blocks());
    }
}

/// A segment that no table has yet.
struct Fresh {
    segment: Segment,
    block: RawBlock,
}

impl Fresh {
    fn make<T>(places: usize, heap: RawHeap) -> Result<Fresh, HeapError> {
        let segment = Segment::make::<T>(places, true, heap)?;
        let block = segment.raw_block::<T>(heap);
        Ok(Fresh { segment, block })
    }

    fn keep(self) -> Segment {
        std::mem::forget(self.block);
        self.segment
    }
}
