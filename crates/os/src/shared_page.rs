//! A page of a file, mapped shared: its stores survive this process, by any death.
//!
//! * Words are only ever reached through atomics, and by the kernel, which may move one in the same
//!   call that moves bytes ([`SharedPage::send`]).
//! * The page is locked in memory where that is allowed, so that the kernel's stores meet no fault.

#![allow(unsafe_code)]

use rustix::mm::{MapFlags, ProtFlags, mlock, mmap, munmap};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the page.
pub const PAGE_BYTES: usize = 4096;

/// The first page of a file. See the [module](self).
#[derive(Debug)]
pub struct SharedPage {
    page: NonNull<u8>,
}

// SAFETY: the mapping is this value's alone; through a shared reference only atomics reach it.
unsafe impl Send for SharedPage {}
// SAFETY: through a shared reference only atomics of the page are reached.
unsafe impl Sync for SharedPage {}

impl SharedPage {
    /// Maps the first page of a file, which must have it.
    ///
    /// # Errors
    /// What mmap(2) says.
    pub fn map(file: &File) -> io::Result<SharedPage> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address of the system's choice replaces nothing.
        let page = unsafe { mmap(std::ptr::null_mut(), PAGE_BYTES, protection, flags, file, 0) }?;
        // SAFETY: the page was just mapped. Not allowed is no harm.
        let _ = unsafe { mlock(page, PAGE_BYTES) };
        let page = NonNull::new(page.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(SharedPage { page })
    }

    /// The word at byte `at`, a multiple of 8.
    #[must_use]
    pub fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at < PAGE_BYTES);
        // SAFETY: inside the page and aligned (asserted), mapped as long as self lives.
        unsafe { AtomicU64::from_ptr(self.page.as_ptr().add(at).cast()) }
    }

    /// Bytes of the page.
    pub fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        assert!(range.start <= range.end && range.end <= PAGE_BYTES);
        // SAFETY: inside the page (asserted), and borrowed through self, which owns it.
        unsafe { std::slice::from_raw_parts_mut(self.page.as_ptr().add(range.start), range.len()) }
    }

    /// Moves up to `len` bytes of `from` to `to` in one sendfile(2): from the offset in the word at
    /// `at`, where the kernel stores the new one. Killed at any instant, the two agree.
    ///
    /// # Errors
    /// What the call says.
    pub fn send(&self, to: impl AsFd, from: &File, len: usize, at: usize) -> io::Result<usize> {
        let word = self.word(at);
        word.fetch_add(0, Ordering::AcqRel); // writable and present now: the kernel's store meets no fault
        let (to, from) = (to.as_fd().as_raw_fd(), from.as_raw_fd());
        // SAFETY: the word is eight bytes of a mapping that outlives the call; all accesses to it use
        // atomics.
        let sent = unsafe { libc::sendfile64(to, from, word.as_ptr().cast::<i64>(), len) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

impl Drop for SharedPage {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and no reference into it outlives self.
        let _ = unsafe { munmap(self.page.as_ptr().cast(), PAGE_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn what_is_stored_is_in_the_file() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(PAGE_BYTES as u64).unwrap();
        let mut page = SharedPage::map(&file).unwrap();
        page.word(16).store(7, Ordering::Release);
        page.bytes_mut(4090..4096).fill(9);
        drop(page);
        let mut found = [0; PAGE_BYTES];
        file.read_exact_at(&mut found, 0).unwrap();
        assert_eq!((found[16], &found[4089..]), (7, &[0, 9, 9, 9, 9, 9, 9][..]));
    }

    #[test]
    fn the_kernel_counts_what_it_sends() {
        let (log, out, file) = (
            tempfile::tempfile().unwrap(),
            tempfile::tempfile().unwrap(),
            tempfile::tempfile().unwrap(),
        );
        log.write_all_at(b"some words", 0).unwrap();
        file.set_len(PAGE_BYTES as u64).unwrap();
        let page = SharedPage::map(&file).unwrap();
        page.word(8).store(5, Ordering::Release);
        assert_eq!(page.send(&out, &log, 100, 8).unwrap(), 5);
        assert_eq!(page.word(8).load(Ordering::Acquire), 10);
        let mut sent = [0; 5];
        out.read_exact_at(&mut sent, 0).unwrap();
        assert_eq!(&sent, b"words");
    }
}
