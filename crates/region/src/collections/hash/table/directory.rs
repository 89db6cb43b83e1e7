//! A directory: which segment the entries of a hash are in.
//!
//! ```text
//! bits of a hash:  | 63 .. 57 | 56 ..       |  ..  | .. 0  |
//!                  | control  | its segment |      | group |
//!
//! depth 2:   | 00: a | 01: a | 10: b | 11: c |      a has entries of both, and has not been split yet
//! ```
//!
//! * Of depth d it has 2^d words of two: the controls and the places of a segment. A segment that has not been split
//!   so often is there several times in a row.
//! * All hashes have the seed of the table: it stays when segments are split.
//! * It is at most 16 times as long as evenly filled segments need: where hashes collide, a segment becomes larger.

use super::segment::Segment;
use super::{GROUP, Table};
use crate::collections::vec::RawBlock;
use crate::heap::{HeapError, RawHeap};
use crate::marks::mark_bytes;
use std::alloc::Layout;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;

/// The bit of `places` that says: a directory.
pub(crate) const DIRECTORY: usize = 1 << 63;
/// What `left` has more in a table with a directory, which never must grow before an insertion.
pub(crate) const DIVIDED: usize = 1 << 48;
/// The deepest directory.
pub(crate) const DEEPEST: usize = 32;
/// Bytes that the entries of a segment have at most, where 64 of them are not more.
const SEGMENT_BYTES: usize = 1 << 20;

/// Places of the segments of a directory, unless hashes collide.
pub(super) fn segment_places<T>() -> usize {
    #[cfg(test)]
    if let Some(places) = PLACES.get() {
        assert!(places >= GROUP);
        return places;
    }
    let places = SEGMENT_BYTES / size_of::<T>().clamp(16, SEGMENT_BYTES);
    (1 << places.ilog2()).max(64)
}

/// The block of a directory.
pub(crate) fn block(depth: usize) -> Layout {
    Layout::array::<Segment>(1 << depth).expect("it is not so deep")
}

impl<T> Table<T> {
    /// Whether it has a directory.
    #[inline]
    pub(super) fn is_divided(&self) -> bool {
        self.root.places & DIRECTORY != 0
    }

    pub(super) fn depth(&self) -> usize {
        self.root.places & !DIRECTORY
    }

    /// The segment in which an entry of that hash is, and the mask of its groups ([`Probe::new`]).
    ///
    /// [`Probe::new`]: super::group::Probe::new
    #[inline(always)]
    pub(super) fn segment(&self, hash: u64) -> (Segment, usize) {
        match self.is_divided() {
            false => (self.root, self.root.places.max(GROUP) - 1),
            true => {
                // SAFETY: the number is below that of the directory's segments.
                let segment = unsafe { *self.root.directory().add(self.number_of(hash)) };
                (segment, segment.places - 1) // whole groups
            }
        }
    }

    /// The number in the directory of the segment of a hash.
    #[inline(always)]
    pub(super) fn number_of(&self, hash: u64) -> usize {
        // The shift is by 64 less the depth, of which the upper bits do not count.
        (hash << 7).wrapping_shr((self.root.places as u32).wrapping_neg()) as usize
    }

    /// Where the directory has the segment that is at `number`.
    pub(super) fn run(&self, number: usize) -> Range<usize> {
        // SAFETY: the directory is there, and does not change meanwhile.
        let all = unsafe { std::slice::from_raw_parts(self.root.directory(), 1 << self.depth()) };
        let mut run = number..number + 1;
        loop {
            let length = 2 * run.len();
            let start = number & !(length - 1);
            match all.get(start..start + length) {
                Some(wider) if wider.iter().all(|segment| *segment == all[number]) => {
                    run = start..start + length;
                }
                _ => return run,
            }
        }
    }

    /// Puts segments into the directory.
    pub(super) fn set_run(&mut self, run: Range<usize>, segment: Segment) {
        let at = self.root.directory().wrapping_add(run.start);
        mark_bytes(at, run.len() * size_of::<Segment>());
        for index in 0..run.len() {
            // SAFETY: the directory has the run.
            unsafe { at.add(index).write(segment) };
        }
    }

    /// Makes the directory twice as long, each segment twice in it.
    pub(super) fn deepen(&mut self) -> Result<(), HeapError> {
        let depth = self.depth();
        let old = RawBlock {
            at: self.root.controls,
            layout: block(depth),
            heap: self.heap,
        };
        let from = self.root.directory();
        self.root = match Segment::directory_of(depth + 1, self.heap) {
            Ok(root) => root,
            Err(e) => {
                std::mem::forget(old);
                return Err(e);
            }
        };
        for number in 0..1 << depth {
            // SAFETY: the old directory is there until the end.
            self.set_run(2 * number..2 * number + 2, unsafe { *from.add(number) });
        }
        Ok(())
    }

    /// Its blocks, to be freed.
    pub(super) fn blocks(&self) -> Blocks<T> {
        Blocks {
            root: self.root,
            heap: self.heap,
            entries: PhantomData,
        }
    }

    /// Its segments, each once.
    pub(super) fn segments(&self) -> Segments {
        Segments::of(self.root)
    }
}

impl Segment {
    /// A new directory, of segments without places.
    pub(super) fn directory_of(depth: usize, heap: RawHeap) -> Result<Segment, HeapError> {
        let controls = heap.try_allocate(block(depth))?;
        let at = controls.as_ptr().cast::<Segment>();
        mark_bytes(at, block(depth).size());
        for number in 0..1 << depth {
            // SAFETY: the block has room for that many.
            unsafe { at.add(number).write(Segment::NONE) };
        }
        let places = DIRECTORY | depth;
        Ok(Segment { controls, places })
    }

    #[inline(always)]
    pub(super) fn directory(self) -> *mut Segment {
        self.controls.as_ptr().cast()
    }
}

/// Segments of a table, each once.
#[derive(Clone)]
pub(super) struct Segments {
    next: *const Segment,
    end: *const Segment,
    /// The one of a table without a directory.
    only: Option<Segment>,
    last: NonNull<u8>,
}

impl Segments {
    fn of(root: Segment) -> Segments {
        let (first, length, only) = match root.places & DIRECTORY {
            0 => (std::ptr::null_mut(), 0, Some(root)),
            _ => (root.directory(), 1 << (root.places & !DIRECTORY), None),
        };
        Segments {
            next: first,
            end: first.wrapping_add(length),
            only,
            last: NonNull::dangling(),
        }
    }

    pub(super) fn one(segment: Segment) -> Segments {
        Segments::of(segment)
    }
}

impl Iterator for Segments {
    type Item = Segment;
    fn next(&mut self) -> Option<Segment> {
        if let Some(only) = self.only.take() {
            return Some(only);
        }
        while self.next != self.end {
            // SAFETY: the directory is there as long as the table is not changed.
            let segment = unsafe { *self.next };
            self.next = self.next.wrapping_add(1);
            if segment.places > 0 && segment.controls != self.last {
                self.last = segment.controls;
                return Some(segment);
            }
        }
        None
    }
}

/// All blocks of a table, freed when dropped. Of its entries none is.
pub(super) struct Blocks<T> {
    root: Segment,
    heap: RawHeap,
    entries: PhantomData<T>,
}

impl<T> Drop for Blocks<T> {
    fn drop(&mut self) {
        for segment in Segments::of(self.root) {
            drop(segment.raw_block::<T>(self.heap));
        }
        if self.root.places & DIRECTORY != 0 {
            drop(RawBlock {
                at: self.root.controls,
                layout: block(self.root.places & !DIRECTORY),
                heap: self.heap,
            });
        }
    }
}

#[cfg(test)]
thread_local! {
    /// Places of a segment on this thread, so that few entries have a directory.
    pub(crate) static PLACES: std::cell::Cell<Option<usize>> = const { std::cell::Cell::new(None) };
}
