//! A range of addresses that is ours alone: reserved without memory, opened piece by piece.
//!
//! ```text
//! |<------------------------------ reserved, no access, no memory ----------------------------->|
//!        |<-- opened -->|                          |<-- opened -->|
//! ```
//!
//! * A reservation stays at its address until dropped; no other mapping is ever replaced.
//! * Opened memory reads as zero, and takes room only where it was written.
//! * A child made by fork(2) has none of it, so that it cannot take a copy for the original:
//!   madvise(2), `MADV_DONTFORK`.

#![allow(unsafe_code)]

use crate::space::again;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};
use std::io;
use std::ops::Range;

/// Reserved addresses. See the module.
#[derive(Debug)]
pub struct Reserved {
    base: usize,
    bytes: usize,
}

impl Reserved {
    /// Reserves `bytes` addresses from `base` on, both whole system pages: mmap(2),
    /// `MAP_FIXED_NOREPLACE`.
    ///
    /// # Errors
    /// `EEXIST` when a part of them is in use; `ENOMEM` under a limit of addresses (`ulimit -v`).
    pub fn at(base: usize, bytes: usize) -> io::Result<Reserved> {
        // SAFETY: with FIXED_NOREPLACE a mapping that is there is never replaced.
        let got = unsafe {
            mmap_anonymous(
                base as *mut _,
                bytes,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE,
            )?
        } as usize;
        let reserved = Reserved { base: got, bytes };
        // Kernels before 4.17 take the address as a hint.
        if got != base {
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        // SAFETY: our own mapping, without users yet.
        unsafe { madvise(base as *mut _, bytes, Advice::LinuxDontFork)? };
        Ok(reserved)
    }

    /// Reserves `bytes` addresses where the system likes.
    ///
    /// # Errors
    /// `ENOMEM` under a limit of addresses (`ulimit -v`).
    pub fn anywhere(bytes: usize) -> io::Result<Reserved> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the system's choice replaces nothing.
        let base =
            unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::empty(), flags)? } as usize;
        let reserved = Reserved { base, bytes };
        // SAFETY: our own mapping, without users yet.
        unsafe { madvise(base as *mut _, bytes, Advice::LinuxDontFork)? };
        Ok(reserved)
    }

    /// The addresses.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.base..self.base + self.bytes
    }

    /// Lets `range`, whole system pages of ours, be read and written.
    ///
    /// # Errors
    /// `ENOMEM` when the system has no room for it, or too many mappings.
    pub fn open(&self, range: Range<usize>) -> io::Result<()> {
        self.assert_ours(&range);
        if range.is_empty() {
            return Ok(());
        }
        let access = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: the range is ours; more access takes nothing away from its users.
        Ok(unsafe { mprotect(range.start as *mut _, range.len(), access) }?)
    }

    /// Asks for large pages (2 MiB) behind `range`, where the system has them: madvise(2),
    /// `MADV_HUGEPAGE`. Only an improvement, which a system may refuse.
    pub fn prefer_large(&self, range: Range<usize>) {
        self.assert_ours(&range);
        // SAFETY: the range is ours; it changes no byte of it.
        let _ = unsafe { madvise(range.start as *mut _, range.len(), Advice::LinuxHugepage) };
    }

    /// As the free [`forget`], of pages of ours.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn forget(&self, range: Range<usize>) -> io::Result<()> {
        self.assert_ours(&range);
        // SAFETY: the caller no longer needs the content, and `assert_ours` saw that the range is reserved.
        unsafe { forget(range) }
    }

    fn assert_ours(&self, range: &Range<usize>) {
        let ours = self.range();
        assert!(
            range.is_empty() || ours.start <= range.start && range.end <= ours.end,
            "{range:x?} is not in the reserved {ours:x?}"
        );
    }
}

/// Forgets what `range`, whole system pages of an opened part, holds: it reads as zero again (or is
/// brought again, where it is registered for that) and takes no room. So do pages that the program has locked in memory
/// (mlockall(2)): they go all the same, and stay locked when they are there again.
///
/// # Errors
/// What madvise(2) says of `MADV_DONTNEED_LOCKED`; with locked pages `EINVAL` before Linux 5.18.
///
/// # Safety
/// The range is of a [`Reserved`], and its content is no longer needed.
pub unsafe fn forget(range: Range<usize>) -> io::Result<()> {
    if range.is_empty() {
        return Ok(());
    }
    // SAFETY: the caller passes a range of a reservation whose content is no longer needed.
    let advise = |how| again(|| unsafe { madvise(range.start as *mut _, range.len(), how) });
    match advise(Advice::LinuxDontNeed) {
        // It spares locked pages.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => advise(Advice::LinuxDontneedLocked),
        done => done,
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // SAFETY: the range is ours since `at`. Failing would only leave addresses in use.
        let _ = unsafe { munmap(self.base as *mut _, self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: usize = 0x4fff_0000_0000;

    #[test]
    fn what_is_taken_is_not_replaced() {
        let reserved = Reserved::at(BASE, 1 << 30).unwrap();
        let taken = Reserved::at(BASE + (1 << 29), 1 << 30).unwrap_err();
        assert_eq!(taken.raw_os_error(), Some(libc::EEXIST));
        reserved.open(BASE..BASE + 8192).unwrap();
        let word = BASE as *mut u64;
        // SAFETY: the page was opened above and has no other user.
        unsafe {
            assert_eq!(word.read_volatile(), 0);
            word.write_volatile(7);
            reserved.forget(BASE..BASE + 4096).unwrap();
            assert_eq!(word.read_volatile(), 0);
        }
        drop(reserved);
        Reserved::at(BASE, 1 << 30).unwrap();
    }

    #[test]
    fn what_is_locked_in_memory_is_forgotten_too() {
        let reserved = Reserved::anywhere(4 * 4096).unwrap();
        let range = reserved.range();
        reserved.open(range.clone()).unwrap();
        let bytes = range.start as *mut u8;
        // SAFETY: the pages were opened above and have no other user.
        unsafe {
            bytes.write_bytes(7, range.len());
            // As by mlockall(2), of one page in the middle.
            rustix::mm::mlock(bytes.add(4096).cast(), 4096).unwrap();
            reserved.forget(range.clone()).unwrap();
            let bytes = std::slice::from_raw_parts(bytes, range.len());
            assert!(bytes.iter().all(|&byte| byte == 0));
        }
    }
}
