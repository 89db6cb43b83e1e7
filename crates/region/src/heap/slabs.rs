//! Slabs: runs cut into blocks of one size.
//!
//! * A free block is a bit, and a word with free bits is a bit in the slab's summary: the lowest free
//!   block is found in two steps. So freeing writes nothing into the block, a block freed twice is
//!   noticed, and the blocks in use stay together.
//! * Most of it writes one line: the header of a slab and its first 256 free bits share it.
//! * A slab belongs to a shard and changes under that shard's lock.

use super::HeapError;
use super::classes::{self, BLOCKS, BYTES};
use super::format::{Header, SHARDS, SLAB_HEADER, SLAB_MAGIC, Slab, UNIT};
use crate::marks::{Span, mark_append, mark_bytes};
use std::num::NonZero;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// The slabs of one shard and class, while the shard's lock is held.
#[derive(Clone, Copy)]
pub(super) struct Slabs {
    header: *mut Header,
    shard: usize,
    class: usize,
}

impl Slabs {
    /// # Safety
    /// `header` is that of a heap in a usable window, and the caller holds the lock of the shard.
    #[inline]
    pub(super) unsafe fn new(header: *mut Header, shard: usize, class: usize) -> Slabs {
        Slabs {
            header,
            shard: shard % SHARDS,
            class,
        }
    }

    /// A block, where its bit, the summary and a count are all that changes, as nearly always. `None`: ask [`Slabs::take`].
    #[inline]
    pub(super) fn take_simply(self) -> Option<NonNull<u8>> {
        // SAFETY: by the word given to `new`; `slab_at` looked at the slab. There is none in unit 0.
        unsafe {
            let slab = self.slab_at(*self.first())?;
            let summary = NonZero::new((*slab).summary)?;
            let word = summary.trailing_zeros() as usize;
            if word * 64 >= BLOCKS[self.class] as usize {
                return None;
            }
            let bits = bits(slab, word);
            let free_here = NonZero::new(*bits)?;
            let block = word * 64 + free_here.trailing_zeros() as usize;
            let free = (*slab).free;
            if block >= BLOCKS[self.class] as usize || free <= 1 {
                return None;
            }
            mark_bits(slab, word);
            let left = free_here.get() & (free_here.get() - 1);
            *bits = left;
            if left == 0 {
                (*slab).summary = summary.get() & (summary.get() - 1);
            }
            (*slab).free = free - 1;
            NonNull::new(self.block(slab, block))
        }
    }

    /// A block, from a slab that has room; `None`: there is none.
    pub(super) fn take(self) -> Result<Option<NonNull<u8>>, HeapError> {
        // SAFETY: by the word given to `new`.
        let first = unsafe { *self.first() };
        if first == 0 {
            return Ok(None);
        }
        let slab = self.slab(first)?;
        // SAFETY: `slab` looked at it: a slab of this class, with its bits behind it.
        unsafe {
            let none = || damaged(slab, "it is said to have room and has none");
            let summary = NonZero::new((*slab).summary).ok_or_else(none)?;
            let word = summary.trailing_zeros() as usize;
            if word * 64 >= BLOCKS[self.class] as usize {
                return Err(none());
            }
            let bits = bits(slab, word);
            let free_here = NonZero::new(*bits).ok_or_else(none)?;
            let block = word * 64 + free_here.trailing_zeros() as usize;
            if block >= BLOCKS[self.class] as usize {
                return Err(damaged(slab, "a block past its last is said to be free"));
            }
            let free = (*slab).free;
            if free == 0 {
                return Err(none());
            }
            mark_bits(slab, word);
            let left = free_here.get() & (free_here.get() - 1);
            *bits = left;
            (*slab).free = free - 1;
            if left == 0 {
                (*slab).summary = summary.get() & (summary.get() - 1);
                if free == 1 {
                    self.unlink(slab)?;
                }
            }
            Ok(NonNull::new(self.block(slab, block)))
        }
    }

    /// A block is free, where its bit, the summary and a count are all that changes, as nearly always. Where not,
    /// nothing has: [`Slabs::put`] does it.
    ///
    /// # Safety
    /// As [`Slabs::put`].
    #[inline]
    pub(super) unsafe fn put_simply(self, slab: *mut Slab, block: *mut u8) -> bool {
        let index = classes::divide(self.end(slab) - block.addr() - 1, self.class);
        if self.block(slab, index) != block || index >= BLOCKS[self.class] as usize {
            return false;
        }
        let (word, bit) = (index / 64, 1_u64 << (index % 64));
        // SAFETY: the caller holds the shard's lock and names a slab of it; the index is below its blocks, so the bit
        // is its own.
        unsafe {
            let (bits, free) = (bits(slab, word), (*slab).free);
            let was = *bits;
            if was & bit != 0 || (*slab).linked == 0 || free + 1 >= BLOCKS[self.class] {
                return false;
            }
            mark_bits(slab, word);
            *bits = was | bit;
            (*slab).summary |= 1 << word;
            (*slab).free = free + 1;
        }
        true
    }

    /// A block is free. Returns the slab's number if none of it is in use any more and it may go.
    ///
    /// # Safety
    /// `slab` is a slab of this shard and class, and `block` a block of it that is not used any more.
    pub(super) unsafe fn put(self, slab: *mut Slab, block: *mut u8) -> Result<Option<u32>, HeapError> {
        let (bytes, end) = (BYTES[self.class] as usize, self.end(slab));
        let index = classes::divide(end - block.addr() - 1, self.class);
        if self.block(slab, index) != block || index >= BLOCKS[self.class] as usize {
            return Err(damaged(
                slab,
                &format!("no block of {bytes} bytes begins at {block:p}"),
            ));
        }
        let (word, bit) = (index / 64, 1_u64 << (index % 64));
        // SAFETY: the caller holds the shard's lock and names a slab of it; the index is below its blocks, so the bit
        // is its own.
        unsafe {
            let bits = bits(slab, word);
            if *bits & bit != 0 {
                return Err(damaged(
                    slab,
                    &format!("the block at {block:p} is freed a second time"),
                ));
            }
            mark_bits(slab, word);
            *bits |= bit;
            (*slab).summary |= 1 << word;
            (*slab).free += 1;
            if (*slab).linked == 0 {
                self.link(slab)?;
            }
            // One empty slab is kept: the next block may be asked for at once.
            if (*slab).free == BLOCKS[self.class] && ((*slab).next | (*slab).prev) != 0 {
                self.unlink(slab)?;
                return Ok(Some(self.number(slab)));
            }
        }
        Ok(None)
    }

    /// A run becomes a slab of free blocks.
    ///
    /// # Safety
    /// The run has [`classes::units`] units, and no other thread uses it.
    pub(super) unsafe fn add(self, run: u32) -> Result<(), HeapError> {
        let slab = self.at(run);
        let blocks = BLOCKS[self.class];
        let words = (blocks as usize).div_ceil(64);
        mark_bytes(slab, SLAB_HEADER + words * 8);
        // SAFETY: the run is this thread's alone, and has room for the header and its bits before the first block.
        unsafe {
            slab.write(Slab {
                summary: !0 >> (64 - words),
                free: blocks,
                blocks,
                next: 0,
                prev: 0,
                magic: SLAB_MAGIC,
                class: self.class as u8,
                shard: self.shard as u8,
                linked: 0,
                reserved: 0,
            });
            for word in 0..words {
                let count = (blocks as usize - word * 64).min(64);
                bits(slab, word).write(!0 >> (64 - count));
            }
            self.link(slab)
        }
    }

    /// The slab of that number, looked at: it is one of this class, or the heap is damaged.
    fn slab(self, number: u32) -> Result<*mut Slab, HeapError> {
        self.slab_at(number).ok_or_else(|| {
            HeapError::damaged(format!(
                "unit {number} is not a slab of blocks of {} bytes, as is said",
                BYTES[self.class]
            ))
        })
    }

    #[inline]
    fn slab_at(self, number: u32) -> Option<*mut Slab> {
        // SAFETY: by the word given to `new`; where it is changed that is done atomically too. The top
        // only grows, and the slabs of this shard lie below any that was seen under its lock.
        let top = unsafe { AtomicU32::from_ptr(&raw mut (*self.header).state.top) }.load(Ordering::Relaxed);
        let slab = self.at(number);
        let is_there = u64::from(number) + classes::units(self.class) as u64 <= u64::from(top);
        // SAFETY: a unit below the top is usable.
        (is_there && unsafe { is_of(slab, self.class) }).then_some(slab)
    }

    unsafe fn link(self, slab: *mut Slab) -> Result<(), HeapError> {
        let number = self.number(slab);
        // SAFETY: callers name a slab of this shard and class; `slab` looks at its neighbours.
        unsafe {
            let first = self.first();
            let next = *first;
            if next != 0 {
                let next = self.slab(next)?;
                mark_bytes(next, SLAB_HEADER);
                (*next).prev = number;
            }
            mark_bytes(slab, SLAB_HEADER);
            ((*slab).next, (*slab).prev, (*slab).linked) = (next, 0, 1);
            mark_bytes(first, 4);
            *first = number;
        }
        Ok(())
    }

    unsafe fn unlink(self, slab: *mut Slab) -> Result<(), HeapError> {
        // SAFETY: callers name a slab of this shard and class, and hold its lock; `slab` checks its neighbours.
        unsafe {
            let (next, prev) = ((*slab).next, (*slab).prev);
            if prev == 0 {
                let first = self.first();
                mark_bytes(first, 4);
                *first = next;
            } else {
                let before = self.slab(prev)?;
                mark_bytes(before, SLAB_HEADER);
                (*before).next = next;
            }
            if next != 0 {
                let after = self.slab(next)?;
                mark_bytes(after, SLAB_HEADER);
                (*after).prev = prev;
            }
            mark_bytes(slab, SLAB_HEADER);
            ((*slab).next, (*slab).prev, (*slab).linked) = (0, 0, 0);
        }
        Ok(())
    }

    #[inline]
    fn first(self) -> *mut u32 {
        // SAFETY: by the word given to `new`; the class is one of those there are.
        unsafe { &raw mut (*self.header).shards[self.shard].partial[self.class] }
    }

    #[inline]
    fn at(self, number: u32) -> *mut Slab {
        self.header
            .cast::<u8>()
            .wrapping_add(number as usize * UNIT)
            .cast()
    }

    fn number(self, slab: *mut Slab) -> u32 {
        ((slab.addr() - self.header.addr()) / UNIT) as u32
    }

    #[inline]
    fn end(self, slab: *mut Slab) -> usize {
        slab.addr() + classes::units(self.class) * UNIT
    }

    /// Blocks lie from the end of the slab backwards.
    #[inline]
    fn block(self, slab: *mut Slab, index: usize) -> *mut u8 {
        let end = slab.cast::<u8>().wrapping_add(classes::units(self.class) * UNIT);
        end.wrapping_sub((index + 1) * BYTES[self.class] as usize)
    }
}

/// The header and a word are about to be written. The first words are on the header's line.
#[inline(always)]
fn mark_bits(slab: *mut Slab, word: usize) {
    let first = slab.cast::<u8>();
    let last = first.wrapping_add(SLAB_HEADER + (word + 1) * 8 - 1);
    mark_append([Span::of_line(first), Span::of_line(last)]);
}

/// Whether it is a slab, and of that class.
///
/// # Safety
/// `slab` is the first byte of a usable unit.
#[inline]
pub(super) unsafe fn is_of(slab: *const Slab, class: usize) -> bool {
    // SAFETY: the caller passes a usable unit, and any bytes are a slab's header.
    unsafe { (*slab).magic == SLAB_MAGIC && usize::from((*slab).class) == class }
}

#[inline]
pub(super) fn bits(slab: *mut Slab, word: usize) -> *mut u64 {
    slab.wrapping_add(1).cast::<u64>().wrapping_add(word)
}

#[cold]
fn damaged(slab: *mut Slab, why: &str) -> HeapError {
    HeapError::damaged(format!("slab at {slab:p}: {why}"))
}
