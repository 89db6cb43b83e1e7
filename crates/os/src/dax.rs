//! A file on persistent memory, mapped with nothing in between (DAX): durable against a power cut by
//! the processor's own stores, with no system call in a fence.
//!
//! * The mapping is `MAP_SHARED_VALIDATE | MAP_SYNC` (`mmap(2)`): while a page is mapped for writing, the
//!   file system's own record of where it lies is durable. Where the kernel cannot promise that, it refuses
//!   the mapping, and so does this medium.
//! * Bytes are durable by the processor's instructions ([`crate::flush`]) once the fence is behind them.
//! * A piece that was a hole is filled with zeros and synced (`fdatasync`) before its first store, so
//!   that no store waits for the file system. Length and holes are synced by the fence.
//! * Bytes that the memory itself lost (an uncorrectable error) end the program with SIGBUS when they are
//!   read, as anywhere in memory.

#![allow(unsafe_code)]

use crate::flush::{Native, Processor, persist};
use crate::folder::folder_of;
use crate::mapped::{MappedMedium, Persistence};
use crate::space::{again, fill_holes};
use rustix::fs::{AtFlags, StatxAttributes, StatxFlags, fdatasync, statx};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::param::page_size;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use twinpage_core::{Error, Result};

/// A file on persistent memory. See the [module](self).
pub type DaxMedium = MappedMedium<PastTheCaches<Native>>;

/// Stores are durable when they have left the caches.
#[derive(Debug)]
pub struct PastTheCaches<P> {
    processor: P,
    /// Something is in flight since the last drain.
    under_way: AtomicBool,
}

impl<P: Processor> PastTheCaches<P> {
    /// By the instructions of `processor`.
    pub fn new(processor: P) -> PastTheCaches<P> {
        PastTheCaches {
            processor,
            under_way: AtomicBool::new(false),
        }
    }

    /// The processor.
    pub fn processor(&mut self) -> &mut P {
        &mut self.processor
    }

    /// Copies so that the bytes are durable after [`PastTheCaches::arrive`].
    ///
    /// # Safety
    /// `to` is valid for writes of `bytes.len()` bytes, and not borrowed. This thread calls
    /// [`PastTheCaches::arrive`] before they are accessed.
    pub unsafe fn send(&mut self, bytes: &[u8], to: *mut u8) {
        self.under_way.store(true, Ordering::Relaxed);
        // SAFETY: the caller's.
        unsafe { persist(&mut self.processor, bytes, to) };
    }

    /// Waits until all that was sent is durable.
    pub fn arrive(&self) {
        if self.under_way.load(Ordering::Relaxed) {
            self.under_way.store(false, Ordering::Relaxed);
            self.processor.drain();
        }
    }
}

impl Persistence for PastTheCaches<Native> {
    const MAPPING: MapFlags = MapFlags::SHARED_VALIDATE.union(MapFlags::SYNC);
    const OUTLIVES_MACHINE: bool = true;
    const TELLS_HOLES: bool = true;

    fn of(file: &File, path: &Path) -> Result<Self> {
        match obstacle(file) {
            Ok(None) => Ok(PastTheCaches::new(Native::new())),
            _ => Err(not_dax(file, path)),
        }
    }

    unsafe fn copy(&mut self, bytes: &[u8], to: *mut u8) {
        // SAFETY: the caller's; every reader asks `before_read` first. To reach another thread the medium
        // passes through a locked instruction, which drains as well (SDM volume 3, "Write Combining").
        unsafe { self.send(bytes, to) };
    }

    fn before_read(&self) {
        self.arrive();
    }

    fn fence(&self) {
        self.arrive();
    }

    fn take_space(file: &File, range: &Range<u64>) -> io::Result<()> {
        fill_holes(file, range)?;
        Self::sync(file)
    }

    fn sync(file: &File) -> io::Result<()> {
        again(|| fdatasync(file))
    }
}

/// Whether the file lies on persistent memory that can be mapped: the kernel says so (`statx(2)`,
/// `STATX_ATTR_DAX`) and allows a synchronous mapping.
///
/// # Errors
/// What the system says when it cannot be asked.
pub fn is_dax(file: &File) -> io::Result<bool> {
    Ok(obstacle(file)?.is_none())
}

/// Why a file cannot be used as persistent memory, and the way out. Its folder is named: the file may be one that has a
/// hidden name until it is whole.
pub(crate) fn not_dax(file: &File, path: &Path) -> Error {
    let folder = folder_of(path).display();
    match obstacle(file) {
        Ok(why) => Error::Invalid(format!(
            "a file in {folder} cannot be used as persistent memory: {}; put it on ext4 or XFS on persistent memory, mounted with -o dax, or choose the durability disk",
            why.unwrap_or("it was not when it was asked before")
        )),
        Err(source) => Error::Io {
            what: format!("asking whether a file in {folder} is on persistent memory"),
            at: 0,
            source,
        },
    }
}

/// What keeps the file from being mapped as persistent memory.
fn obstacle(file: &File) -> io::Result<Option<&'static str>> {
    let found = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::empty());
    match found {
        Ok(found) if found.stx_attributes.contains(StatxAttributes::DAX) => {}
        Ok(_) | Err(Errno::NOSYS) => return Ok(Some("its file system does not give direct access (DAX)")),
        Err(e) => return Err(e.into()),
    }
    // SAFETY: a new mapping at an address of the system's choice replaces nothing; it is never touched.
    let trial = unsafe {
        let flags = PastTheCaches::<Native>::MAPPING;
        mmap(null_mut(), page_size(), ProtFlags::READ, flags, file, 0)
    };
    match trial {
        Ok(at) => {
            // SAFETY: the mapping made above.
            unsafe { munmap(at, page_size())? };
            Ok(None)
        }
        Err(Errno::OPNOTSUPP | Errno::INVAL) => {
            Ok(Some("its memory cannot be mapped synchronously (MAP_SYNC)"))
        }
        Err(e) => Err(e.into()),
    }
}
