//! A file in memory (tmpfs): it survives the death of the program, not of the machine.
//!
//! * The program may die between any two instructions. A store that was executed is in the system's
//!   page cache then, and every earlier one too, since a dying program's memory is looked at only
//!   after its processor has given it up, and the interrupt that takes it away empties its buffers.
//! * Whole cache lines go past the caches, as they do to persistent memory: scattered ones are not read
//!   first, which is most of the cost of writing them.
//!
//! Any file system that can reserve space will do (`fallocate(2)`: tmpfs, ext4, XFS, Btrfs); its own
//! writing back to a disk is neither needed nor waited for.

#![allow(unsafe_code)]

use crate::flush::{CACHE_LINE, Native, Processor, store};
use crate::mapped::{MappedMedium, Persistence};
use crate::space::reserve;
use rustix::mm::MapFlags;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use twinpage_core::Result;

/// Up to here an aligned write goes word by word. A longer one is left to `memcpy`, whose stores are
/// vectors, that is, more than words.
const WORDWISE_BYTES: usize = 64;

/// A file in memory. See the [module](self).
pub type MemoryMedium = MappedMedium<PageCache>;

/// Stores are in the system's page cache, which outlives the program.
#[derive(Debug)]
pub struct PageCache(Native);

impl Persistence for PageCache {
    const MAPPING: MapFlags = MapFlags::SHARED;
    const OUTLIVES_MACHINE: bool = false;
    /// tmpfs looks at every page; a piece that is there is soon taken again instead.
    const TELLS_HOLES: bool = false;

    fn of(_: &File, _: &Path) -> Result<PageCache> {
        Ok(PageCache(Native::new()))
    }

    unsafe fn copy(&mut self, bytes: &[u8], to: *mut u8) {
        let (lines, rest) = bytes.as_chunks::<CACHE_LINE>();
        if rest.is_empty() && to.addr().is_multiple_of(CACHE_LINE) {
            for (k, line) in lines.iter().enumerate() {
                // SAFETY: whole lines of what the caller promises; `before_read` and `fence` drain.
                unsafe { self.0.stream(line, to.add(k * CACHE_LINE)) };
            }
        } else if bytes.len() > WORDWISE_BYTES || !bytes.len().is_multiple_of(8) {
            // SAFETY: the caller's.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        } else {
            // SAFETY: the caller's.
            unsafe { store(bytes, to) };
        }
    }

    fn before_read(&self) {
        self.0.drain();
    }

    fn fence(&self) {
        self.0.drain();
    }

    fn take_space(file: &File, range: &Range<u64>) -> io::Result<()> {
        reserve(file, range)
    }
}
