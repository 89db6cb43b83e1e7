//! Input on its way from a terminal or a socket into the log.
//!
//! Only a pipe can be moved into a file by one system call. From anywhere else bytes are read and
//! then written, and a kill between the two would lose them. So they are read into a page of the
//! state directory, mapped shared: what the kernel put there survives this process.
//!
//! ```text
//!  byte 0     where in the input the bytes go (the log's end before the read)
//!       8     how many bytes the read may give, and a checksum of both numbers; IDLE when none is under way
//!      16     the bytes; all 0xff before the read
//!    4080     how far the log is summed, and its running sum there
//!    4088     the same again
//! ```
//!
//! What came after the last checkpoint is in no context: the last two words say its checksum.
//!
//! Invariants:
//! * The page is blank before a read, so that what is not blank was read. Bytes 0xff at the very end of a read,
//!   where no text has them, are the ones that a kill can still lose.
//! * The log is summed before the program is fed from it. So a kill leaves at most one read without a checksum,
//!   and the program saw nothing of it.
//! * One of the two last words is right at every instant.

use super::error::{Error, Result};
use super::log::{Log, SPLICE_BYTES};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::fs::OpenOptions;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use twinpage_os::shared_page::{PAGE_BYTES, SharedPage};

const HEAD_BYTES: usize = 16;
const BLANK: u8 = 0xff;
/// Where the words are that say how far the log is summed.
const SUMMED: [usize; 2] = [PAGE_BYTES - 16, PAGE_BYTES - 8];

/// The most one read takes. (Earlier builds took all there is behind the head, and summed nothing.)
const READ_BYTES: usize = SUMMED[0] - HEAD_BYTES;
const READ_BYTES_BEFORE: usize = PAGE_BYTES - HEAD_BYTES;

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
        let flight = Flight { page };
        if fresh {
            flight.word(1).store(under_way(0, 0), Ordering::Release);
        }
        Ok(flight)
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
        self.word(1)
            .store(under_way(log.end(), want as u64), Ordering::Release);
        let read = rustix::io::read(from, &mut self.bytes()[..want]);
        if let Ok(n) = read {
            log.append(&self.bytes()[..n])?;
        }
        self.word(1).store(under_way(0, 0), Ordering::Release);
        self.note_sum(log)?;
        Ok(read)
    }

    /// Notes how far the log is summed: to its end.
    pub(super) fn note_sum(&self, log: &Log) -> Result<()> {
        let word = summed(log, log.end())?;
        for at in SUMMED {
            self.page.word(at).store(word, Ordering::Release);
        }
        Ok(())
    }

    /// A read that a kill interrupted: what of it the log does not have yet is appended.
    ///
    /// # Errors
    /// [`Error::Damaged`] when it is not clear whether there was one.
    pub(super) fn land(&mut self, log: &mut Log) -> Result<()> {
        let at = self.word(0).load(Ordering::Acquire);
        let want = wanted(at, self.word(1).load(Ordering::Acquire)).map_err(|why| log.damaged(why))?;
        let end = log.end();
        let read = self.bytes()[..want]
            .iter()
            .rposition(|b| *b != BLANK)
            .map_or(0, |last| last + 1);
        if (at..at.saturating_add(read as u64)).contains(&end) {
            log.append(&self.bytes()[(end - at) as usize..read])?;
        }
        self.word(1).store(under_way(0, 0), Ordering::Release);
        self.note_sum(log)
    }
}

/// The word that says which read is under way: of how many bytes (0: none), and to which position.
fn under_way(at: u64, want: u64) -> u64 {
    let sum = crc32c::crc32c([at, want].map(u64::to_le_bytes).as_flattened());
    u64::from(sum) << 32 | want
}

/// How many bytes the read that is under way may give. Earlier builds wrote no checksum.
fn wanted(at: u64, word: u64) -> Result<usize, String> {
    let want = word & u64::from(u32::MAX);
    let right = if want == 0 {
        under_way(0, 0)
    } else {
        under_way(at, want)
    };
    if word != right && word >> 32 != 0 {
        return Err("what input-flight says of the last read does not have its checksum".into());
    }
    Ok((want as usize).min(READ_BYTES_BEFORE))
}

/// The word that says the running sum of a log at a position.
fn summed(log: &Log, at: u64) -> Result<u64> {
    Ok(u64::from(log.sum(at)?) << 32 | at & u64::from(u32::MAX))
}

/// Whether the page in `dir` and the log, as they were left, agree on all that came after the checkpoint, which
/// needs the log up to `end`.
///
/// # Errors
/// [`Error::Damaged`] when they do not, [`Error::Io`].
pub(super) fn check(dir: &Path, log: &Log, end: u64) -> Result<()> {
    let path = dir.join("input-flight");
    let page = std::fs::read(&path).map_err(|e| Error::io(format!("read {}", path.display()), e))?;
    if page.len() != PAGE_BYTES {
        return Err(log.damaged(format!("{} has {} bytes", path.display(), page.len())));
    }
    let word = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().expect("eight bytes"));
    wanted(word(0), word(8)).map_err(|why| log.damaged(why))?;
    for word in SUMMED.map(word) {
        // The low half of a position is enough to find it near the end.
        let after = u64::from((log.end() as u32).wrapping_sub(word as u32));
        if after <= SPLICE_BYTES as u64
            && let Some(at) = log.end().checked_sub(after).filter(|at| *at >= end)
            && summed(log, at)? == word
        {
            return Ok(());
        }
    }
    Err(log.damaged(format!(
        "bytes {end} to {} of the stream do not have the checksum that input-flight says",
        log.end()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stdio::log::Kept;
    use rustix::fd::AsFd;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    fn kept(all: &[u8]) -> Kept<'static> {
        Kept {
            floor: 0,
            end: all.len() as u64,
            tail: &[],
            sums: Some([0, crc32c::crc32c(all)]),
        }
    }

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
            let killed = if have == 0 { 10 } else { under_way(7, 10) };
            flight.word(1).store(killed, Ordering::Release);
            drop(log);
            log = Log::open(dir.path(), "input", kept(b"landed "), false).unwrap();
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
        flight.word(1).store(under_way(0, 10), Ordering::Release);
        flight.land(&mut log).unwrap();
        assert_eq!(log.end(), 0);
        let (keys, input) = UnixStream::pair().unwrap();
        drop(keys);
        assert_eq!(flight.take(input.as_fd(), &mut log).unwrap().unwrap(), 0);
    }

    /// A checkpoint of 7 bytes, 13 bytes after it, and any bit of what is kept of them.
    #[test]
    fn a_flipped_bit_after_the_checkpoint_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (mut keys, input) = UnixStream::pair().unwrap();
        let mut log = Log::create(dir.path(), "input").unwrap();
        let mut flight = Flight::open(dir.path(), true).unwrap();
        for part in [&b"landed "[..], b"and ", b"some more"] {
            keys.write_all(part).unwrap();
            flight.take(input.as_fd(), &mut log).unwrap().unwrap();
        }
        drop((log, flight));
        let found = || {
            let mut log = Log::look(dir.path(), "input", kept(b"landed "), true)?;
            check(dir.path(), &log, 7)?;
            let mut all = [0; 30];
            let n = log.read(0, &mut all)?;
            log = Log::open(dir.path(), "input", kept(b"landed "), true)?;
            Flight::open(dir.path(), false)?.land(&mut log)?;
            assert_eq!(log.end(), 20);
            Ok::<_, Error>(all[..n].to_vec())
        };
        assert_eq!(found().unwrap(), b"landed and some more");
        for name in ["input.0000000000000000", "input-flight"] {
            let path = dir.path().join(name);
            let whole = std::fs::read(&path).unwrap();
            for at in (0..40).chain(4070..PAGE_BYTES).filter(|at| *at < whole.len()) {
                let mut flipped = whole.clone();
                flipped[at] ^= 1 << (at % 8);
                std::fs::write(&path, &flipped).unwrap();
                match found() {
                    Ok(all) => assert_eq!(all, b"landed and some more", "byte {at} of {name}"),
                    Err(error) => assert!(matches!(error, Error::Damaged { .. }), "{error}"),
                }
                assert!(name != "input.0000000000000000" || found().is_err(), "byte {at}");
            }
            std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
            assert!(found().is_err(), "{name} was cut");
            std::fs::write(&path, &whole).unwrap();
        }
    }

    #[test]
    fn what_a_kill_kept_from_being_summed_is_taken_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::create(dir.path(), "input").unwrap();
        let flight = Flight::open(dir.path(), true).unwrap();
        log.append(b"landed ").unwrap();
        flight.note_sum(&log).unwrap();
        // Killed after the splice, and between the two words.
        log.append(b"more").unwrap();
        check(dir.path(), &log, 7).unwrap();
        let word = summed(&log, log.end()).unwrap();
        flight.page.word(SUMMED[0]).store(word, Ordering::Release);
        check(dir.path(), &log, 7).unwrap();
        // No kill leaves that much.
        log.append(&[7; SPLICE_BYTES]).unwrap();
        flight.note_sum(&log).unwrap();
        log.append(&[7; SPLICE_BYTES + 1]).unwrap();
        assert!(check(dir.path(), &log, 7).is_err());
    }
}
