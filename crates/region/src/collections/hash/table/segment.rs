//! A segment: places for entries, and a control for each.
//!
//! ```text
//! the block:   | entry n-1 | ... | entry 1 | entry 0 | controls: a byte a place, at least 16 |
//!                                                    ^ `controls`, 16-aligned
//! ```

use super::group::{BEYOND, Bits, EMPTY, GROUP, Group, Probe, Tally};
use crate::collections::vec::RawBlock;
use crate::heap::{HeapError, RawHeap};
use crate::marks::{LINE, mark_bytes};
use std::alloc::Layout;
use std::ptr::NonNull;

/// Where a segment lies; two words of the format.
#[derive(Clone, Copy, PartialEq, Debug)]
#[repr(C)]
pub(super) struct Segment {
    pub(super) controls: NonNull<u8>,
    pub(super) places: usize,
}

const _: () = assert!(size_of::<Segment>() == 16);

/// Where an entry is or may be put: a place of a segment.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    pub(super) controls: NonNull<u8>,
    pub(super) place: usize,
}

/// How the places of a segment are used.
pub(super) struct Count {
    pub(super) used: usize,
    pub(super) deleted: usize,
}

/// How many of `places` may be used.
pub(crate) fn usable(places: usize) -> usize {
    if places < 8 {
        places.saturating_sub(1)
    } else {
        places / 8 * 7
    }
}

/// How many places `items` need.
pub(super) fn places_for(items: usize) -> Option<usize> {
    match items {
        0 => Some(0),
        1..4 => Some(4),
        4..8 => Some(8),
        _ => items.checked_mul(8)?.div_ceil(7).checked_next_power_of_two(),
    }
}

/// The block of a segment of `places`, and where its controls begin.
pub(crate) fn block(places: usize, entry: Layout) -> Option<(Layout, usize)> {
    let align = entry.align().max(GROUP);
    let controls = places
        .checked_mul(entry.size())?
        .checked_next_multiple_of(align)?;
    let bytes = controls.checked_add(places.max(GROUP))?;
    Some((Layout::from_size_align(bytes, align).ok()?, controls))
}

impl Segment {
    /// No places, and no block.
    pub(super) const NONE: Segment = Segment {
        controls: NonNull::dangling(),
        places: 0,
    };

    /// A new one, all places empty. Most of it is to be filled at once, if `filled`: its entries are marked, where
    /// nearly every line will have one.
    pub(super) fn make<T>(places: usize, filled: bool, heap: RawHeap) -> Result<Segment, HeapError> {
        if places == 0 {
            return Ok(Segment::NONE);
        }
        let (layout, start) = block(places, Layout::new::<T>()).ok_or_else(|| too_large::<T>(places))?;
        let at = heap.try_allocate(layout)?;
        // SAFETY: the controls lie in the block.
        let controls = unsafe { at.add(start) };
        let segment = Segment { controls, places };
        segment.clear();
        if filled && size_of::<T>() < LINE {
            mark_bytes(segment.entry::<T>(places - 1), places * size_of::<T>());
        }
        Ok(segment)
    }

    /// Where the entry of a place is, not marked.
    #[inline]
    pub(super) fn entry<T>(self, place: usize) -> *mut T {
        self.slot(place).entry()
    }

    #[inline]
    pub(super) fn slot(self, place: usize) -> Slot {
        Slot {
            controls: self.controls,
            place,
        }
    }

    /// The favourite place in the group looked at.
    #[inline]
    pub(super) fn favourite<T>(self, probe: &Probe) -> *const T {
        self.entry(probe.at + probe.favourite)
    }

    /// The group that begins at a place.
    ///
    /// # Safety
    /// The segment is there, and has the place.
    #[inline]
    pub(super) unsafe fn group(self, at: usize) -> Group {
        debug_assert!(at.is_multiple_of(GROUP) && at < self.places.max(GROUP));
        // SAFETY: the caller passes a place of the segment, so a whole aligned group of controls begins there.
        unsafe { Group::at(self.controls.as_ptr().wrapping_add(at)) }
    }

    /// A free place for an entry of that hash that is not there; `None` when all are used.
    ///
    /// # Safety
    /// The segment is there and has places.
    #[inline]
    pub(super) unsafe fn free_slot(self, hash: u64) -> Option<Slot> {
        let mut probe = Probe::new(hash, self.places.max(GROUP) - 1);
        while !probe.was_everywhere() {
            // SAFETY: the segment is there, and a probe stays below its places.
            if let Some(bit) = unsafe { self.group(probe.at) }.free().first_from(probe.favourite) {
                return Some(self.slot(probe.at + bit));
            }
            probe.step();
        }
        None
    }

    /// Counts.
    ///
    /// # Safety
    /// The segment is there.
    pub(super) unsafe fn count(self) -> Count {
        let mut tally = Tally::new();
        for at in (0..self.places).step_by(GROUP) {
            // SAFETY: the segment is there, and `at` is one of its places.
            tally.add(unsafe { self.group(at) });
        }
        let (used, deleted) = tally.totals();
        Count { used, deleted }
    }

    /// The places of the first group that have an entry.
    ///
    /// # Safety
    /// The segment is there.
    pub(super) unsafe fn first_used(self) -> Bits {
        match self.places {
            0 => Bits(0),
            // SAFETY: there are places, so there is a group.
            _ => unsafe { self.group(0) }.used(),
        }
    }

    /// All places become empty.
    pub(super) fn clear(self) {
        let (at, bytes) = (self.controls.as_ptr(), self.places.max(GROUP));
        if self.places > 0 {
            mark_bytes(at, bytes);
            // SAFETY: that many controls are there.
            unsafe {
                at.write_bytes(EMPTY, self.places);
                at.wrapping_add(self.places)
                    .write_bytes(BEYOND, bytes - self.places);
            }
        }
    }

    /// The block, to be freed; no block is none.
    pub(super) fn raw_block<T>(self, heap: RawHeap) -> RawBlock {
        let (at, layout) = match self.places {
            0 => (NonNull::dangling(), Layout::new::<()>()),
            places => {
                let (layout, start) =
                    block(places, Layout::new::<T>()).expect("it was allocated with this layout");
                // SAFETY: the block begins that many bytes before the controls.
                (unsafe { self.controls.sub(start) }, layout)
            }
        };
        RawBlock { at, layout, heap }
    }
}

impl Slot {
    /// Where its entry is, not marked.
    #[inline]
    pub(crate) fn entry<T>(self) -> *mut T {
        self.controls.as_ptr().cast::<T>().wrapping_sub(self.place + 1)
    }

    /// Where its control is, not marked.
    #[inline]
    pub(super) fn control(self) -> *mut u8 {
        self.controls.as_ptr().wrapping_add(self.place)
    }
}

/// The error for more entries than a region can hold.
pub(super) fn too_large<T>(entries: usize) -> HeapError {
    HeapError::TooLarge {
        bytes: (entries as u64).saturating_mul(size_of::<T>() as u64),
    }
}
