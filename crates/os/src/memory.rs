//! A file in memory (tmpfs): it survives the death of the program, not of the machine.
//!
//! * The program may die between any two instructions. A store that was executed is in the system's
//!   page cache then, and every earlier one too, since a dying program's memory is looked at only
//!   after its processor has given it up. So a fence has only the compiler to hold back.
//!
//! Any file system that can reserve space will do (`fallocate(2)`: tmpfs, ext4, XFS, Btrfs); its own
//! writing back to a disk is neither needed nor waited for.

#![allow(unsafe_code)]

use crate::flush::store;
use crate::mapped::{MappedMedium, Persistence};
use crate::space::reserve;
use rustix::mm::MapFlags;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{Ordering, compiler_fence};
use twinpage_core::Result;

/// Up to here an aligned write goes word by word. A longer one is left to `memcpy`, whose stores are
/// vectors, that is, more than words.
const WORDWISE_BYTES: usize = 64;

/// A file in memory. See the [module](self).
pub type MemoryMedium = MappedMedium<PageCache>;

/// Stores are in the system's page cache, which outlives the program.
#[derive(Debug)]
pub struct PageCache;

impl Persistence for PageCache {
    const MAPPING: MapFlags = MapFlags::SHARED;
    const OUTLIVES_MACHINE: bool = false;

    fn of(_: &File, _: &Path) -> Result<PageCache> {
        Ok(PageCache)
    }

    unsafe fn copy(&mut self, bytes: &[u8], to: *mut u8) {
        if bytes.len() > WORDWISE_BYTES || !bytes.len().is_multiple_of(8) {
            // SAFETY: the caller's.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        } else {
            // SAFETY: the caller's.
            unsafe { store(bytes, to) };
        }
    }

    fn fence(&self) {
        compiler_fence(Ordering::SeqCst);
    }

    fn take_space(file: &File, range: &Range<u64>) -> io::Result<()> {
        reserve(file, range)
    }
}
