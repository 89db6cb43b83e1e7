//! Input on its way from a terminal or a socket into the log.
//!
//! Only a pipe can be moved into a file by one system call. From anywhere else bytes are read and
//! then written, and a kill between the two would lose them. So they are read into a page of the
//! state directory, mapped shared: what the kernel put there survives this process.
//!
//! ```text
//!  byte 0   where in the input the bytes go (the log's end before the read)
//!       8   how many bytes the read may give; 0 when none is under way
//!      16   the bytes; all 0xff before the read
//! ```
//!
//! Invariant: the page is blank before a read, so that what is not blank was read. Bytes 0xff at the
//! very end of a read, where no text has them, are the ones that a kill can still lose.

use super::error::{Error, Result};
use super::log::Log;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::fs::OpenOptions;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use twinpage_os::shared_page::{PAGE_BYTES, SharedPage};

const HEAD_BYTES: usize = 16;
const BLANK: u8 = 0xff;

/// The most one read takes.
const READ_BYTES: usize = PAGE_BYTES - HEAD_BYTES;

/// A page for one read at a time.
#[derive(Debug)]
pub(super) struct Flight {
    page: SharedPage,
}

impl Flight {
    /// The page of a state directory, blank when `fresh`.
    pub(super) fn open(dir: &Path, fresh: bool) -> Result<Flight> {
        let path = dir.join("input-flight");
        let failed = |e| Error::io(format!("open {}", path.display()), e);
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(fresh)
            .open(&path)
            .map_err(failed)?;
        file.set_len(PAGE_BYTES as u64).map_err(failed)?;
        let page = SharedPage::map(&file).map_err(|e| Error::io(format!("map {}", path.display()), e))?;
        Ok(Flight { page })
    }

    fn word(&self, n: usize) -> &AtomicU64 {
        assert!(n < HEAD_BYTES / 8);
        self.page.word(8 * n)
    }

    fn bytes(&mut self) -> &mut [u8] {
        self.page.bytes_mut(HEAD_BYTES..PAGE_BYTES)
    }

    /// Moves what `from` has ready into the log. `Ok(0)` at the end of the input.
    ///
    /// # Errors
    /// What read(2) says.
    pub(super) fn take(&mut self, from: BorrowedFd<'_>, log: &mut Log) -> Result<Result<usize, Errno>> {
        // What a full disk kept from the log.
        self.land(log)?;
        let ready = rustix::io::ioctl_fionread(from).map_or(0, |n| n as usize);
        // Nothing ready is a read of one byte: it hears of the end.
        let want = ready.clamp(1, READ_BYTES);
        self.bytes()[..want].fill(BLANK);
        self.word(0).store(log.end(), Ordering::Release);
        self.word(1).store(want as u64, Ordering::Release);
        let read = rustix::io::read(from, &mut self.bytes()[..want]);
        if let Ok(n) = read {
            log.append(&self.bytes()[..n])?;
        }
        self.word(1).store(0, Ordering::Release);
        Ok(read)
    }

    /// A read that a kill interrupted: what of it the log does not have yet is appended.
    pub(super) fn land(&mut self, log: &mut Log) -> Result<()> {
        let (at, want) = (
            self.word(0).load(Ordering::Acquire),
            self.word(1).load(Ordering::Acquire),
        );
        let (end, want) = (log.end(), (want as usize).min(READ_BYTES));
        let read = self.bytes()[..want]
            .iter()
            .rposition(|b| *b != BLANK)
            .map_or(0, |last| last + 1);
        if (at..at.saturating_add(read as u64)).contains(&end) {
            log.append(&self.bytes()[(end - at) as usize..read])?;
        }
        self.word(1).store(0, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn what_was_read_and_not_written_is_written_later() {
        let dir = tempfile::tempdir().unwrap();
        let (mut keys, input) = UnixStream::pair().unwrap();
        let mut log = Log::create(dir.path(), "input").unwrap();
        let mut flight = Flight::open(dir.path(), true).unwrap();
        keys.write_all(b"landed ").unwrap();
        assert_eq!(flight.take(input.as_fd(), &mut log).unwrap().unwrap(), 7);
        keys.write_all(b"in the air").unwrap();
        // Killed after the read, with none, some and all of it in the log.
        for have in [0, 3, 10] {
            flight.bytes()[..10].copy_from_slice(b"in the air");
            flight.word(0).store(7, Ordering::Release);
            flight.word(1).store(10, Ordering::Release);
            drop(log);
            log = Log::open(dir.path(), "input", 0, 7, &[], false).unwrap();
            log.append(&b"in the air"[..have]).unwrap();
            let mut later = Flight::open(dir.path(), false).unwrap();
            later.land(&mut log).unwrap();
            let mut all = [0; 30];
            let n = log.read(0, &mut all).unwrap();
            assert_eq!(&all[..n], b"landed in the air");
            // Once is enough.
            later.land(&mut log).unwrap();
            assert_eq!(log.end(), 17);
        }
    }

    #[test]
    fn a_read_that_did_not_happen_adds_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::create(dir.path(), "input").unwrap();
        let mut flight = Flight::open(dir.path(), true).unwrap();
        flight.bytes()[..10].fill(BLANK);
        flight.word(1).store(10, Ordering::Release);
        flight.land(&mut log).unwrap();
        assert_eq!(log.end(), 0);
        let (keys, input) = UnixStream::pair().unwrap();
        drop(keys);
        assert_eq!(flight.take(input.as_fd(), &mut log).unwrap().unwrap(), 0);
    }
}
