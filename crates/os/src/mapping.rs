//! A range of addresses kept free, into which a file is mapped piece by piece as it grows.
//!
//! ```text
//! |<-------------------------- kept free, no memory behind -------------------------->|
//! |<-- mapped: the file's bytes, shared -->|                                          |
//! ^ base                                   ^ mapped                                   ^ room
//! ```
//!
//! * Only [`Mapping::widen`] moves it, and only the owner can ask for that.
//! * A process has 128 TiB of addresses, and half of them are the zone of regions: a mapping keeps so few free that
//!   those of all regions fit beside the zone.

#![allow(unsafe_code)]

use crate::space::again;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use rustix::param::page_size;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::ptr::{NonNull, null_mut};

/// Addresses to keep free for a mapping that may move ([`Mapping::widen`]).
pub(crate) const ROOM_TO_MOVE: u64 = 64 << 30;
/// Addresses to keep free for a mapping that must stay where it is.
pub(crate) const ROOM_TO_STAY: u64 = 512 << 30;
/// Fewer are not worth trying.
const ROOM_MIN: u64 = 64 << 20;

/// A growing shared mapping of a file. See the module.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    room: u64,
    /// Bytes from `base` on that are the file's; a whole number of system pages.
    mapped: u64,
    flags: MapFlags,
    protection: ProtFlags,
}

// SAFETY: the mapping is this value's alone, as a boxed slice would be; no thread owns addresses.
unsafe impl Send for Mapping {}
// SAFETY: through a shared reference it is only read.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Keeps `room` addresses free, or the most that the limits of the process (`ulimit -v`) allow. `flags` say how
    /// the file will be shared.
    pub(crate) fn keep_free(flags: MapFlags, room: u64) -> io::Result<Mapping> {
        let (base, room) = reserve(room, ROOM_MIN)?;
        Ok(Mapping {
            base,
            room,
            mapped: 0,
            flags,
            protection: ProtFlags::READ | ProtFlags::WRITE,
        })
    }

    /// Makes room for `len` bytes of the file: maps it at another place, with twice that room if the limits allow it.
    /// Every address handed out before is void.
    pub(crate) fn widen(&mut self, file: &File, len: u64) -> io::Result<()> {
        let least = len.next_multiple_of(page_size() as u64);
        let (base, room) = reserve(least.saturating_mul(2), least)?;
        let mut wider = Mapping {
            base,
            room,
            mapped: 0,
            flags: self.flags,
            protection: self.protection,
        };
        wider.extend(file, self.mapped)?;
        *self = wider;
        Ok(())
    }

    /// The same, for reading only.
    pub(crate) fn read_only(mut self) -> Mapping {
        self.protection = ProtFlags::READ;
        self
    }

    /// The longest file that can be mapped.
    pub(crate) fn room(&self) -> u64 {
        self.room
    }

    /// Maps the file's bytes up to `len`, which it must have and which must fit into the room.
    pub(crate) fn extend(&mut self, file: &File, len: u64) -> io::Result<()> {
        let end = len.next_multiple_of(page_size() as u64);
        assert!(
            end <= self.room,
            "{end} bytes do not fit into the {} kept free",
            self.room
        );
        if end <= self.mapped {
            return Ok(());
        }
        let (at, bytes) = (self.at(self.mapped), (end - self.mapped) as usize);
        // SAFETY: `mapped..end` lies in the range kept free above and is unused yet, so MAP_FIXED
        // replaces only our own empty reservation.
        unsafe {
            mmap(
                at.cast(),
                bytes,
                self.protection,
                self.flags | MapFlags::FIXED,
                file,
                self.mapped,
            )?;
        }
        self.mapped = end;
        Ok(())
    }

    /// Brings pages of `range` into the page table for writing, all at once: half the price of
    /// faulting them one by one. Their space must be reserved. Only an improvement, so a kernel older
    /// than 5.14 may refuse it.
    pub(crate) fn populate(&self, range: &Range<u64>) -> io::Result<()> {
        self.bring(range, Advice::LinuxPopulateWrite)
    }

    /// The same for reading. What is not there yet is brought; where that fails this does, and not a load.
    pub(crate) fn populate_to_read(&self, range: &Range<u64>) -> io::Result<()> {
        self.bring(range, Advice::LinuxPopulateRead)
    }

    fn bring(&self, range: &Range<u64>, how: Advice) -> io::Result<()> {
        let page = page_size() as u64;
        let start = range.start / page * page;
        let end = range.end.next_multiple_of(page);
        assert!(end <= self.mapped);
        // SAFETY: the range is mapped and ours; populating changes no byte of it.
        again(|| unsafe { madvise(self.at(start).cast(), (end - start) as usize, how) })
    }

    /// The address of byte `at` of the file.
    pub(crate) fn at(&self, at: u64) -> *mut u8 {
        debug_assert!(at <= self.room);
        // SAFETY: `at` is inside the range kept free, which is one mapped object below isize::MAX.
        unsafe { self.base.as_ptr().add(at as usize) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the whole range is ours since it was reserved, and with the mapping no borrow of its
        // bytes is left. Failing would only leave addresses in use.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.room as usize) };
    }
}

/// Reserves `bytes` addresses, or half as many and so on, but at least `least`.
fn reserve(bytes: u64, least: u64) -> io::Result<(NonNull<u8>, u64)> {
    let mut room = bytes.max(least);
    loop {
        // SAFETY: a new mapping at an address of the system's choice replaces nothing.
        let base = unsafe {
            mmap_anonymous(
                null_mut(),
                room as usize,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        };
        match base {
            Ok(base) => {
                let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
                return Ok((base, room));
            }
            Err(_) if room > least => room = (room / 2).max(least),
            Err(e) => return Err(e.into()),
        }
    }
}
