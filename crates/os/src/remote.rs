//! Another process's memory and descriptors: process_vm_readv(2), /proc/PID/mem, pidfd_getfd(2).
//!
//! * The caller may trace the target (the kernel checks it on each call).
//! * Content is consistent only while the target's threads are stopped.

#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;

/// A range of a target's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remote {
    /// First address.
    pub start: u64,
    /// Length in bytes.
    pub len: usize,
}

/// `process_vm_readv` takes at most this many ranges.
const MOST_RANGES: usize = 1024;

/// A process whose memory can be read and written.
#[derive(Debug)]
pub struct Process {
    pid: i32,
    memory: File,
    pidfd: OwnedFd,
}

impl Process {
    /// Opens the process `pid`.
    ///
    /// # Errors
    /// `EACCES` when it may not be traced, `ENOENT` when it is gone.
    pub fn open(pid: i32) -> io::Result<Process> {
        let memory = OpenOptions::new()
            .read(true)
            .write(true)
            .open(format!("/proc/{pid}/mem"))?;
        // SAFETY: pidfd_open takes two integers and returns a descriptor that is ours.
        let pidfd = unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd as RawFd)
        };
        Ok(Process { pid, memory, pidfd })
    }

    /// The process's id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Reads at `address`, whatever the protection there.
    ///
    /// # Errors
    /// `EIO` where nothing is mapped.
    pub fn read(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
        self.memory.read_exact_at(into, address)
    }

    /// Writes at `address`, whatever the protection there (private copies are made of file pages).
    ///
    /// # Errors
    /// `EIO` where nothing is mapped.
    pub fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.memory.write_all_at(bytes, address)
    }

    /// Reads one value.
    ///
    /// # Errors
    /// As [`Process::read`].
    pub fn read_u64(&self, address: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Fills `into` with the content of `ranges`, back to back; they are `into.len()` bytes together.
    /// Ranges the fast way refuses (no read permission) are read one by one through /proc/PID/mem.
    ///
    /// # Errors
    /// As [`Process::read`].
    pub fn gather(&self, ranges: &[Remote], into: &mut [MaybeUninit<u8>]) -> io::Result<()> {
        debug_assert_eq!(ranges.iter().map(|range| range.len).sum::<usize>(), into.len());
        let mut filled = 0;
        for batch in ranges.chunks(MOST_RANGES) {
            let bytes: usize = batch.iter().map(|range| range.len).sum();
            let target = &mut into[filled..filled + bytes];
            if self.gather_batch(batch, target)? != bytes {
                self.gather_slowly(batch, target)?;
            }
            filled += bytes;
        }
        Ok(())
    }

    fn gather_batch(&self, batch: &[Remote], into: &mut [MaybeUninit<u8>]) -> io::Result<usize> {
        let mut remote = [libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        }; MOST_RANGES];
        for (slot, range) in remote.iter_mut().zip(batch) {
            *slot = libc::iovec {
                iov_base: range.start as *mut _,
                iov_len: range.len,
            };
        }
        let local = libc::iovec {
            iov_base: into.as_mut_ptr().cast(),
            iov_len: into.len(),
        };
        // SAFETY: `local` is exactly `into`; the remote addresses are only looked up by the kernel
        // in the other process.
        let read = unsafe {
            libc::process_vm_readv(
                self.pid,
                &raw const local,
                1,
                remote.as_ptr(),
                batch.len() as u64,
                0,
            )
        };
        if read >= 0 {
            return Ok(read as usize);
        }
        match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::EFAULT) => Ok(0),
            error => Err(error),
        }
    }

    fn gather_slowly(&self, batch: &[Remote], into: &mut [MaybeUninit<u8>]) -> io::Result<()> {
        let mut filled = 0;
        for range in batch {
            let target = &mut into[filled..filled + range.len];
            // SAFETY: zeroing makes every byte of `target` initialised; u8 has no other rule.
            let target = unsafe {
                target.as_mut_ptr().write_bytes(0, target.len());
                std::slice::from_raw_parts_mut(target.as_mut_ptr().cast::<u8>(), target.len())
            };
            self.read(range.start, target)?;
            filled += range.len;
        }
        Ok(())
    }

    /// A duplicate, in this process, of the target's descriptor `fd`: the same open file, so the
    /// same offset and flags. See pidfd_getfd(2).
    ///
    /// # Errors
    /// `EBADF` when the target has no such descriptor.
    pub fn duplicate_fd(&self, fd: i32) -> io::Result<OwnedFd> {
        // SAFETY: pidfd_getfd takes integers and returns a descriptor that is ours.
        unsafe {
            let copy = libc::syscall(libc::SYS_pidfd_getfd, self.pidfd.as_raw_fd(), fd, 0);
            if copy < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(OwnedFd::from_raw_fd(copy as RawFd))
        }
    }
}

/// Whether two descriptors of one process are the same open file (and so share an offset): kcmp(2).
///
/// # Errors
/// `ENOSYS` where the kernel lacks kcmp.
pub fn same_open_file(pid: i32, one: i32, other: i32) -> io::Result<bool> {
    const KCMP_FILE: i32 = 0;
    // SAFETY: kcmp takes five integers.
    match unsafe { libc::syscall(libc::SYS_kcmp, pid, pid, KCMP_FILE, one, other) } {
        -1 => Err(io::Error::last_os_error()),
        order => Ok(order == 0),
    }
}
