//! Runs of units: what slabs, large blocks and the table itself are made of.
//!
//! * Runs cover the units below `top` without a gap; no two free runs are neighbours.
//! * Free runs are in bins by length, four bins between a power of two and the next, so that a run
//!   long enough is found by looking at two words.
//! * All of it happens under the lock of the units.

use super::HeapError;
use super::format::{BINS, Bins, Entry, FIRST_TABLE, FREE, FREE_END, Header, OWN, REST, State, UNIT};
use crate::address::Place;
use crate::marks::mark_bytes;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes that are kept at hand before free units are given back: this, or a quarter of the heap.
const HELD_BYTES: usize = 4 << 20;

/// The units of a heap, while their lock is held.
pub(super) struct Units {
    header: *mut Header,
    place: Place,
}

impl Units {
    /// # Safety
    /// `header` is that of a heap in a usable window, and the lock of its units is held by the caller.
    pub(super) unsafe fn new(header: *mut Header) -> Units {
        let place = Place::of(header).expect("a heap lies in a window");
        Units { header, place }
    }

    /// Makes the first runs of a new heap: unit 0.
    pub(super) fn create(&mut self) {
        self.put(
            0,
            Entry {
                kind: OWN,
                length: 1,
                ..EMPTY
            },
        );
    }

    /// A run of `length` units, of a kind the caller sets with [`Units::put`].
    pub(super) fn take(&mut self, length: u32) -> Result<u32, HeapError> {
        if length as usize > crate::zone::DATA_BYTES / UNIT {
            return Err(HeapError::TooLarge {
                bytes: u64::from(length) * UNIT as u64,
            });
        }
        if let Some(run) = self.find(length)? {
            self.split(run, length)?;
            return Ok(run);
        }
        self.reserve_entries(length)?;
        let top = self.state().top;
        // A free run at the top need only be made longer.
        let (start, had) = match self.run_before(top)? {
            Some(free) => (free, top - free),
            None => (top, 0),
        };
        let end = start + length;
        self.place.grow(end as usize * UNIT)?;
        if had > 0 {
            self.unlink(start)?;
        }
        self.set_top(end);
        self.claim(start, length);
        Ok(start)
    }

    /// Makes a run of `length` units longer, if what follows is free. Returns whether it was.
    pub(super) fn extend(&mut self, run: u32, length: u32, wanted: u32) -> Result<bool, HeapError> {
        let next = run + length;
        if next >= self.state().top {
            return Ok(false);
        }
        let entry = self.get(next)?;
        if entry.kind != FREE || entry.length < wanted - length {
            return Ok(false);
        }
        self.split(next, wanted - length)?;
        let head = self.get(run)?;
        self.put(run + wanted - 1, EMPTY);
        self.put(
            run,
            Entry {
                length: wanted,
                ..head
            },
        );
        Ok(true)
    }

    /// A run is in use no longer.
    pub(super) fn release(&mut self, run: u32, length: u32) -> Result<(), HeapError> {
        let (mut start, mut end) = (run, run.saturating_add(length));
        if end > self.state().top || run == 0 || length == 0 {
            return Err(HeapError::damaged(format!(
                "a run of {length} units at unit {run}, past the top"
            )));
        }
        if let Some(before) = self.run_before(start)? {
            self.unlink(before)?;
            start = before;
        }
        if end < self.state().top && self.get(end)?.kind == FREE {
            let after = self.get(end)?.length;
            if after > self.state().top - end {
                return Err(HeapError::damaged(format!(
                    "a free run at unit {end}, past the top"
                )));
            }
            self.unlink(end)?;
            end += after;
        }
        self.link(start, end - start, true);
        let (held, top) = (self.state().held as usize, self.state().top as usize);
        if held * UNIT > HELD_BYTES.max(top * UNIT / 4) {
            self.give_back()?;
        }
        Ok(())
    }

    /// Gives the bytes of all free units back. Returns how many bytes.
    pub(super) fn give_back(&mut self) -> Result<u64, HeapError> {
        let (mut given, mut looked) = (0, 0);
        for bin in 0..BINS {
            let mut run = self.bins().first[bin];
            while run != 0 {
                let entry = self.get(run)?;
                looked += 1;
                if entry.kind != FREE || looked > self.state().top {
                    return Err(HeapError::damaged(format!("unit {run} in a list of free runs")));
                }
                if entry.held != 0 {
                    given += self.give_back_run(run, entry)?;
                }
                run = entry.next;
            }
        }
        Ok(given)
    }

    fn give_back_run(&mut self, run: u32, entry: Entry) -> Result<u64, HeapError> {
        if entry.length > self.state().top - run {
            return Err(HeapError::damaged(format!(
                "a free run at unit {run}, past the top"
            )));
        }
        let range = run as usize * UNIT..(run + entry.length) as usize * UNIT;
        let bytes = range.len() as u64;
        // SAFETY: the units are free: nothing in them is in use.
        unsafe { self.place.discard(range) }?;
        self.put(run, Entry { held: 0, ..entry });
        self.change(|h| h.held -= entry.length.min(h.held));
        Ok(bytes)
    }

    /// The entry of a unit.
    pub(super) fn get(&self, unit: u32) -> Result<Entry, HeapError> {
        if unit >= self.state().top {
            return Err(HeapError::damaged(format!("a link to unit {unit}, past the top")));
        }
        // SAFETY: the unit is below the top, so the table has an entry for it.
        let entry = unsafe { self.entry(unit).read() };
        if entry.length > self.state().top {
            return Err(HeapError::damaged(format!(
                "a run of {} units at unit {unit}",
                entry.length
            )));
        }
        Ok(entry)
    }

    /// Sets the entry of a unit below the top.
    pub(super) fn put(&mut self, unit: u32, entry: Entry) {
        let at = self.entry(unit);
        mark_bytes(at, size_of::<Entry>());
        // SAFETY: callers name units below the top; the table has an entry for each.
        unsafe { at.write(entry) };
    }

    pub(super) fn state(&self) -> &State {
        // SAFETY: by the word given to `new`; only the holder of the lock looks at it or changes it.
        unsafe { &(*self.header).state }
    }

    fn change(&mut self, f: impl FnOnce(&mut State)) {
        mark_bytes(self.header, size_of::<State>());
        // SAFETY: `new` was given a usable header and the lock of the units, which is held as long as this value.
        f(unsafe { &mut (*self.header).state });
    }

    /// Slabs look at the top without this lock.
    fn set_top(&mut self, top: u32) {
        mark_bytes(self.header, size_of::<State>());
        // SAFETY: the lock of the units is held, and `&mut self` is the one way to change the state under it.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.header).state.top) }.store(top, Ordering::Relaxed);
    }

    fn bins(&self) -> &Bins {
        // SAFETY: the header is usable; slabs read the word without the lock, atomically as it is stored here.
        unsafe { &(*self.header).bins }
    }

    fn entry(&self, unit: u32) -> *mut Entry {
        let start = match self.state().table {
            0 => FIRST_TABLE,
            table => table as usize * UNIT,
        };
        self.place
            .base()
            .wrapping_add(start)
            .cast::<Entry>()
            .wrapping_add(unit as usize)
    }

    /// Units `start..start + length` become a run without a kind yet.
    fn claim(&mut self, start: u32, length: u32) {
        self.put(start, Entry { length, ..EMPTY });
        if length > 1 {
            self.put(start + length - 1, EMPTY);
        }
    }

    /// A free run of at least `length` units, taken out of its bin.
    fn find(&mut self, length: u32) -> Result<Option<u32>, HeapError> {
        let own = self.bins().first[bin(length)];
        if own != 0 && self.get(own)?.length >= length {
            return Ok(Some(own));
        }
        let [low, high] = self.bins().used;
        let used = u128::from(low) | u128::from(high) << 64;
        let fits = used >> bin_up(length) << bin_up(length);
        match fits.trailing_zeros() as usize {
            bin if bin < BINS => Ok(Some(self.bins().first[bin])),
            _ => Ok(None),
        }
    }

    /// Claims the first `length` units of the free run, and frees the rest.
    fn split(&mut self, run: u32, length: u32) -> Result<(), HeapError> {
        let entry = self.get(run)?;
        if entry.kind != FREE || entry.length < length || entry.length > self.state().top - run {
            return Err(HeapError::damaged(format!(
                "unit {run} is not a free run of {length} units"
            )));
        }
        self.unlink(run)?;
        if entry.length > length {
            self.link(run + length, entry.length - length, entry.held != 0);
        }
        self.claim(run, length);
        Ok(())
    }

    /// The free run that ends where `unit` begins.
    fn run_before(&self, unit: u32) -> Result<Option<u32>, HeapError> {
        let last = self.get(unit - 1)?;
        match last.kind {
            FREE => Ok(Some(unit - 1)),
            FREE_END if last.length < unit => Ok(Some(unit - last.length)),
            FREE_END => Err(HeapError::damaged(format!(
                "the free run before unit {unit} begins before the heap"
            ))),
            _ => Ok(None),
        }
    }

    fn link(&mut self, run: u32, length: u32, held: bool) {
        let bin = bin(length);
        let next = self.bins().first[bin];
        let entry = Entry {
            kind: FREE,
            held: held.into(),
            length,
            next,
            ..EMPTY
        };
        if length > 1 {
            self.put(
                run + length - 1,
                Entry {
                    kind: FREE_END,
                    length,
                    ..EMPTY
                },
            );
        }
        self.put(run, entry);
        if next != 0
            && let Ok(after) = self.get(next)
        {
            self.put(next, Entry { prev: run, ..after });
        }
        self.set_bin(bin, run);
        self.change(|h| {
            h.free += length;
            h.held += if held { length } else { 0 };
        });
    }

    fn unlink(&mut self, run: u32) -> Result<(), HeapError> {
        let entry = self.get(run)?;
        let bin = bin(entry.length);
        match entry.prev {
            0 if self.bins().first[bin] != run => {
                return Err(HeapError::damaged(format!("free run {run} is in no list")));
            }
            0 => self.set_bin(bin, entry.next),
            prev => {
                let before = self.get(prev)?;
                self.put(
                    prev,
                    Entry {
                        next: entry.next,
                        ..before
                    },
                );
            }
        }
        if entry.next != 0 {
            let after = self.get(entry.next)?;
            self.put(
                entry.next,
                Entry {
                    prev: entry.prev,
                    ..after
                },
            );
        }
        self.change(|h| {
            h.free -= entry.length.min(h.free);
            h.held -= if entry.held != 0 {
                entry.length.min(h.held)
            } else {
                0
            };
        });
        Ok(())
    }

    fn set_bin(&mut self, bin: usize, run: u32) {
        // SAFETY: by the word given to `new`; the bin is one of those there are.
        unsafe {
            let bins = &raw mut (*self.header).bins;
            let (used, first) = (&raw mut (*bins).used[bin / 64], &raw mut (*bins).first[bin]);
            mark_bytes(used, 8);
            mark_bytes(first, 4);
            first.write(run);
            let bit = 1 << (bin % 64);
            used.write(if run == 0 { *used & !bit } else { *used | bit });
        }
    }

    /// Makes room in the table for `length` more units at the top: by a table twice as long.
    fn reserve_entries(&mut self, length: u32) -> Result<(), HeapError> {
        let (top, entries, old) = (self.state().top, self.state().entries, self.state().table);
        let needed = top + length;
        if needed <= entries {
            return Ok(());
        }
        let per_unit = (UNIT / size_of::<Entry>()) as u32;
        let units = (2 * needed).div_ceil(per_unit);
        self.place.grow((top + units) as usize * UNIT)?;
        let from = self.entry(0);
        let to = self
            .place
            .base()
            .wrapping_add(top as usize * UNIT)
            .cast::<Entry>();
        mark_bytes(to, (top as usize) * size_of::<Entry>());
        // SAFETY: both tables hold `top` entries, and the new one lies past all that is in use.
        unsafe { std::ptr::copy_nonoverlapping(from, to, top as usize) };
        self.change(|h| {
            h.table = top;
            h.entries = units * per_unit;
        });
        self.set_top(top + units);
        self.claim(top, units);
        self.put(
            top,
            Entry {
                kind: OWN,
                length: units,
                ..EMPTY
            },
        );
        if old != 0 {
            self.release(old, entries.div_ceil(per_unit))?;
        }
        Ok(())
    }
}

/// A unit that is the rest of a run.
pub(super) const EMPTY: Entry = Entry {
    kind: REST,
    held: 0,
    back: 0,
    length: 0,
    next: 0,
    prev: 0,
};

/// The bin of free runs of that length.
pub(crate) fn bin(length: u32) -> usize {
    match length {
        0..4 => length as usize,
        _ => {
            let power = length.ilog2() as usize;
            power * 4 + (length as usize >> (power - 2) & 3) - 4
        }
    }
}

/// The first bin all of whose runs have that length.
fn bin_up(length: u32) -> usize {
    match length {
        0..8 => bin(length),
        _ => bin(length.saturating_add((1 << (length.ilog2() - 2)) - 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_by_length() {
        let mut last = 0;
        for length in 1..100_000 {
            let bin = bin(length);
            assert!(bin == last || bin == last + 1);
            last = bin;
            assert!(bin_up(length) == bin || bin_up(length) == bin + 1);
            assert!(self::bin(length - 1) < bin_up(length) || bin_up(length - 1) == bin_up(length));
        }
        assert!(bin(u32::MAX >> 8) < BINS);
    }
}
