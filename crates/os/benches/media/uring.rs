//! The roads to a disk that the file medium does not take: io_uring over the page cache, io_uring past it.

use io_uring::{IoUring, opcode, types};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes in flight at once; more did not make it faster.
const DEPTH: u32 = 64;

/// A file written through a ring.
pub(crate) struct Ring {
    ring: IoUring,
    file: File,
}

impl Ring {
    /// Opens `path`; `direct` goes past the page cache (`O_DIRECT`).
    pub(crate) fn open(path: &Path, direct: bool) -> io::Result<Ring> {
        let flags = if direct { libc::O_DIRECT } else { 0 };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(path)?;
        let ring = IoUring::new(DEPTH)?;
        Ok(Ring { ring, file })
    }

    /// Writes `line`, aligned for `O_DIRECT`, to all places, and then syncs.
    pub(crate) fn write(&mut self, places: &[u64], line: &[u8]) -> io::Result<()> {
        let fd = types::Fd(self.file.as_raw_fd());
        for places in places.chunks(DEPTH as usize) {
            for &at in places {
                let write = opcode::Write::new(fd, line.as_ptr(), line.len() as u32)
                    .offset(at)
                    .build();
                // SAFETY: `line` outlives the wait below, and no other code writes to it meanwhile.
                unsafe { self.ring.submission().push(&write) }.map_err(io::Error::other)?;
            }
            self.wait(places.len(), line.len() as i32)?;
        }
        let sync = opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build();
        // SAFETY: it refers to no memory.
        unsafe { self.ring.submission().push(&sync) }.map_err(io::Error::other)?;
        self.wait(1, 0)
    }

    /// Waits for `count` results, each of which must be `expected`.
    fn wait(&mut self, count: usize, expected: i32) -> io::Result<()> {
        self.ring.submit_and_wait(count)?;
        for result in self.ring.completion().map(|done| done.result()) {
            if result < 0 {
                return Err(io::Error::from_raw_os_error(-result));
            }
            assert_eq!(result, expected, "a short write");
        }
        Ok(())
    }
}
