//! An ordinary file on an ordinary file system, durable against a power cut.
//!
//! * A posted write waits in memory, and reads see it there. A fence sorts what waits, joins
//!   neighbours, hands it to the system with `pwritev` and calls `fdatasync`.
//! * What waits is bounded: past [`FileMedium::BATCH_BYTES`] it is handed over early, without a sync.
//! * Space is taken from the file system before a write is posted, where the file system can do that,
//!   so that a full disk is met by `grow` or `write` and not in the middle of a fence. Where it cannot, a
//!   full disk is met by `hand_over`, which loses nothing: what waits goes on waiting, and can be handed
//!   over again. A store that meets it in a fence all the same is poisoned.
//! * A file that is opened to be written is synced first: what a killed process handed to the system is seen by the
//!   recovery that follows, and must not be lost by a power cut once that has built on it.
//! * After a failed write or sync the file's pages in the system's memory are in no known state
//!   (`fsync(2)`, notes), so the medium is poisoned; opening the file again shows what stayed.
//!
//! Not io_uring. Measured on ext4 over a virtual disk, scattered lines of 4 KiB and an `fdatasync`, medians
//! in milliseconds (`cargo bench -p twinpage-os`, Linux 6.18):
//!
//! | lines | this medium | `pwrite` each | io_uring | io_uring, `O_DIRECT` | read again: here | after `O_DIRECT` |
//! | --- | --- | --- | --- | --- | --- | --- |
//! | 1 | 3.8 | 4.0 | 4.0 | 4.0 | 0.01 | 0.09 |
//! | 65 | 2.4 | 5.2 | 7.9 | 7.8 | 0.09 | 1.9 |
//! | 655 | 19 | 19 | 23 | 17 | 0.7 | 20 |
//! | 6553 | 100 | 123 | 195 | 102 | 15 | 228 |
//!
//! The disk's own flush is most of it (4 ms here, on other days 0.1), and from run to run the figures differ
//! by half; io_uring over the page cache was never clearly faster. Past the page cache it was at times, by up
//! to two fifths, and then nothing stays there, which is what a resume and a reclaim read from.
//!
//! A file on a limit of file sizes gets SIGXFSZ from the system, which ends a program that does not
//! ignore it (`setrlimit(2)`); a program that ignores it gets `Error::Full`.

use crate::batch::Batch;
use crate::folder::{folder_of, sync_folder_of};
use crate::health::{Access, Health, full, refused};
use crate::space::{Space, again, is_unsupported, punch, reserve};
use rustix::fs::fdatasync;
use rustix::io::{Errno, pwritev};
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use twinpage_core::{Error, Flush, Medium, Offset, Result};

/// A file on a disk. See the module.
#[derive(Debug)]
pub struct FileMedium {
    file: Arc<Synced>,
    health: Health,
    len: u64,
    space: Space,
    batch: Batch,
    /// Something was handed to the system since the last `fdatasync`.
    unsynced: bool,
    written_bytes: u64,
    #[cfg(test)]
    faults: tests::Faults,
}

impl FileMedium {
    /// Bytes of posted writes kept in memory before they are handed to the system.
    pub const BATCH_BYTES: usize = 4 << 20;

    /// Makes a new, empty file that only its owner can read, and makes its name durable.
    ///
    /// # Errors
    /// [`Error::Io`], also when there is such a file already.
    pub fn create(path: impl AsRef<Path>) -> Result<FileMedium> {
        let path = path.as_ref();
        let file = create_private(path)?;
        sync_name(path)?;
        FileMedium::over(file, path, Access::ReadWrite)
    }

    /// Opens a file that is there.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Foreign`] when it is not a regular file.
    pub fn open(path: impl AsRef<Path>, access: Access) -> Result<FileMedium> {
        let path = path.as_ref();
        FileMedium::over(open_regular(path, access)?, path, access)
    }

    /// Errors name the file so from now on: for one that gets its name when it is whole
    /// ([`crate::name::give`]).
    pub fn rename(&mut self, path: &Path) {
        self.health.rename(path);
    }

    /// Bytes handed to the system since the file was opened.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    pub(crate) fn over(file: File, path: &Path, access: Access) -> Result<FileMedium> {
        let len = file
            .metadata()
            .map_err(|e| refused("asking for the size of", path, 0, e))?
            .len();
        let space = Space::of(&file, len).map_err(|e| refused("looking for holes in", path, 0, e))?;
        let mut medium = FileMedium {
            file: Arc::new(Synced(file)),
            health: Health::new(path, access),
            len,
            space,
            batch: Batch::default(),
            // What a killed process wrote may still be in flight. A recovery sees it, and builds on it.
            unsynced: len > 0 && access == Access::ReadWrite,
            written_bytes: 0,
            #[cfg(test)]
            faults: tests::Faults::default(),
        };
        if medium.unsynced {
            medium.fence()?;
        }
        Ok(medium)
    }

    /// Takes space for `range`, which may be partly a hole.
    fn take_space(&mut self, range: Range<u64>) -> Result<()> {
        while let Some(missing) = self.space.missing(range.clone(), self.len) {
            match self
                .call(Call::Reserve)
                .and_then(|()| reserve(&self.file.0, &missing))
            {
                Ok(()) => self.unsynced = true,
                // Without reservations a full disk is met when the batch is handed over.
                Err(e) if is_unsupported(&e) => {}
                Err(e) => {
                    let needed = missing.end - missing.start;
                    return Err(self.health.failed("reserving space in", missing.start, needed, e));
                }
            }
            self.space.set_allocated(missing, self.len);
        }
        Ok(())
    }

    /// Hands what waits to the system. Out of room, all of it goes on waiting.
    fn write_batch(&mut self) -> Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.unsynced = true;
        for (at, mut slices) in self.batch.runs() {
            let bytes: usize = slices.iter().map(|s| s.len()).sum();
            let written = self
                .call(Call::Write)
                .and_then(|()| write_all(&self.file.0, at, &mut slices));
            if let Err(e) = written {
                return Err(self.health.failed("writing", at, bytes as u64, e));
            }
            self.written_bytes += bytes as u64;
        }
        self.batch.clear();
        Ok(())
    }

    /// Where tests make a system call fail.
    #[cfg(test)]
    fn call(&self, call: Call) -> io::Result<()> {
        self.faults.answer(call)
    }

    #[cfg(not(test))]
    fn call(&self, _: Call) -> io::Result<()> {
        Ok(())
    }
}

/// The file, and how it becomes durable.
#[derive(Debug)]
struct Synced(File);

impl Flush for Synced {
    fn flush(&self) -> io::Result<()> {
        again(|| fdatasync(&self.0))
    }
}

/// The system calls that can fail after the file is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Call {
    Grow,
    Reserve,
    Write,
    Sync,
    Punch,
}

impl Medium for FileMedium {
    fn len(&self) -> u64 {
        self.len
    }

    /// Takes a length, not space: that is taken when a piece is first written.
    fn grow(&mut self, len: u64) -> Result<()> {
        self.health.writable()?;
        if len <= self.len {
            return Ok(());
        }
        let (old, more) = (self.len, len - self.len);
        if let Err(e) = self.call(Call::Grow).and_then(|()| self.file.0.set_len(len)) {
            return Err(full(self.health.path(), more, &e)
                .unwrap_or_else(|| refused("growing", self.health.path(), old, e)));
        }
        self.unsynced = true;
        self.len = len;
        // The last piece was short, and what it gained has no space yet.
        self.space.forget_allocation(old..old + 1);
        Ok(())
    }

    fn read(&self, at: Offset, into: &mut [u8]) -> Result<()> {
        self.health.inside(at, into.len(), self.len)?;
        if !self.batch.covers(at, into.len()) {
            let read = self.file.0.read_exact_at(into, at);
            read.map_err(|e| refused("reading", self.health.path(), at, e))?;
        }
        self.batch.overlay(at, into);
        Ok(())
    }

    fn write(&mut self, at: Offset, bytes: &[u8]) -> Result<()> {
        self.health.sound()?;
        let end = self.health.inside(at, bytes.len(), self.len)?;
        if !self.health.is_read_only() {
            self.take_space(at..end)?;
            if self.batch.bytes() + bytes.len() > FileMedium::BATCH_BYTES {
                self.write_batch()?;
            }
        }
        self.batch.insert(at, bytes);
        Ok(())
    }

    fn discard(&mut self, range: Range<Offset>) -> Result<()> {
        self.health.writable()?;
        let range = range.start..range.end.min(self.len);
        if range.is_empty() {
            return Ok(());
        }
        match self.call(Call::Punch).and_then(|()| punch(&self.file.0, &range)) {
            Ok(true) => {
                self.unsynced = true;
                self.space.forget_allocation(range.clone());
                self.batch.remove(range);
                Ok(())
            }
            Ok(false) => Ok(()),
            Err(e) => Err(self.health.poisoned("giving back space of", range.start, e)),
        }
    }

    fn hand_over(&mut self) -> Result<()> {
        self.health.writable()?;
        self.write_batch()
    }

    fn fence(&mut self) -> Result<()> {
        match self.begin_fence()? {
            Some(file) => self.end_fence(file.flush()),
            None => Ok(()),
        }
    }

    fn begin_fence(&mut self) -> Result<Option<Arc<dyn Flush>>> {
        self.health.writable()?;
        self.write_batch()?;
        Ok(self.unsynced.then(|| self.file.clone() as Arc<dyn Flush>))
    }

    fn end_fence(&mut self, flushed: io::Result<()>) -> Result<()> {
        // Out of room here means that written bytes are lost already: never `Full`.
        if let Err(e) = self.call(Call::Sync).and(flushed) {
            return Err(self.health.poisoned("syncing", 0, e));
        }
        self.unsynced = false;
        Ok(())
    }

    /// 512: every disk Linux drives writes whole sectors of at least that, and the page cache hands
    /// it whole blocks. A sector written again before a fence may be in the disk's hands just then,
    /// so do not count on the atom of bytes written twice between two fences.
    fn atom(&self) -> usize {
        512
    }
}

/// Writes all of `slices`, which lie one after another in the file: `pwritev(2)`.
fn write_all(file: &File, mut at: u64, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    while !slices.is_empty() {
        match pwritev(file, slices, at) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                at += written as u64;
                IoSlice::advance_slices(&mut slices, written);
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// A new file that only its owner can read: it will hold a program's memory.
pub(crate) fn create_private(path: &Path) -> Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    file.map_err(|e| refused("making", path, 0, e))
}

/// Makes the name of a new file durable: syncs its directory.
pub(crate) fn sync_name(path: &Path) -> Result<()> {
    sync_folder_of(path).map_err(|e| refused("syncing the directory", folder_of(path), 0, e))
}

/// An existing regular file.
pub(crate) fn open_regular(path: &Path, access: Access) -> Result<File> {
    // Without O_NONBLOCK, opening a named pipe would wait for its other end.
    let file = OpenOptions::new()
        .read(true)
        .write(access == Access::ReadWrite)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .map_err(|e| refused("opening", path, 0, e))?;
    let kind = file
        .metadata()
        .map_err(|e| refused("looking at", path, 0, e))?
        .file_type();
    if !kind.is_file() {
        return Err(Error::Foreign(format!(
            "{} is not a regular file",
            path.display()
        )));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Answers that tests give in place of the system: the call, how many of its kind go well
    /// before it, and the error number.
    #[derive(Debug, Default)]
    pub(super) struct Faults(RefCell<Vec<(Call, usize, i32)>>);

    impl Faults {
        fn fail(&self, call: Call, after: usize, errno: i32) {
            self.0.borrow_mut().push((call, after, errno));
        }

        pub(super) fn answer(&self, call: Call) -> io::Result<()> {
            let mut planned = self.0.borrow_mut();
            let Some(k) = planned.iter().position(|&(planned, ..)| planned == call) else {
                return Ok(());
            };
            if planned[k].1 > 0 {
                planned[k].1 -= 1;
                return Ok(());
            }
            Err(io::Error::from_raw_os_error(planned.remove(k).2))
        }
    }

    fn medium(len: u64) -> (tempfile::TempDir, FileMedium) {
        let folder = tempfile::tempdir().unwrap();
        let mut medium = FileMedium::create(folder.path().join("store")).unwrap();
        medium.grow(len).unwrap();
        medium.fence().unwrap();
        (folder, medium)
    }

    fn bytes<M: Medium>(medium: &M, at: u64, len: usize) -> Vec<u8> {
        let mut into = vec![0; len];
        medium.read(at, &mut into).unwrap();
        into
    }

    #[test]
    fn an_io_error_poisons_for_good() {
        for call in [Call::Write, Call::Sync, Call::Punch, Call::Reserve] {
            for errno in [libc::EIO, libc::EROFS] {
                let (folder, mut medium) = medium(1 << 20);
                medium.write(0, b"durable").unwrap();
                medium.fence().unwrap();
                medium.discard(1 << 19..1 << 20).unwrap();
                medium.faults.fail(call, 0, errno);
                let mut run = || -> Result<()> {
                    medium.write(0, b"no more")?;
                    medium.discard(4096..8192)?;
                    medium.write((1 << 20) - 8, b"in hole")?;
                    medium.fence()
                };
                let error = run().unwrap_err();
                assert!(matches!(error, Error::Io { .. }), "{call:?}: {error}");
                assert!(error.to_string().contains("store"), "{error} names the file");
                assert!(matches!(medium.write(0, b"x"), Err(Error::Poisoned(_))));
                assert!(matches!(medium.fence(), Err(Error::Poisoned(_))));
                assert!(matches!(medium.grow(2 << 20), Err(Error::Poisoned(_))));
                assert!(matches!(medium.discard(0..1), Err(Error::Poisoned(_))));
                drop(medium);
                let again = FileMedium::open(folder.path().join("store"), Access::ReadWrite).unwrap();
                let kept = bytes(&again, 0, 7);
                assert!(kept == b"durable" || call == Call::Sync, "{call:?} {errno}");
            }
        }
    }

    #[test]
    fn no_room_while_handing_over_loses_nothing() {
        for errno in [libc::ENOSPC, libc::EDQUOT, libc::EFBIG] {
            let (folder, mut medium) = medium(1 << 20);
            for at in [0, 8192, 65536] {
                medium.write(at, &[at as u8 ^ 7; 4096]).unwrap();
            }
            medium.faults.fail(Call::Write, 1, errno);
            let error = medium.fence().unwrap_err();
            assert!(matches!(error, Error::Full { needed: 4096, .. }), "{error}");
            assert_eq!(bytes(&medium, 65536, 4096), [7; 4096]);
            medium.fence().unwrap();
            drop(medium);
            let again = FileMedium::open(folder.path().join("store"), Access::ReadOnly).unwrap();
            for at in [0, 8192, 65536] {
                assert_eq!(bytes(&again, at, 4096), [at as u8 ^ 7; 4096]);
            }
        }
    }

    #[test]
    fn no_room_while_reserving_touches_nothing() {
        let (_folder, mut medium) = medium(1 << 20);
        medium.faults.fail(Call::Grow, 0, libc::EFBIG);
        let error = medium.grow(4 << 20).unwrap_err();
        assert!(matches!(error, Error::Full { needed: 3145728, .. }), "{error}");
        assert_eq!(medium.len(), 1 << 20);
        medium.write(0, b"z").unwrap();
        for written in [b"z\0", b"\0\0"] {
            medium.faults.fail(Call::Reserve, 0, libc::EDQUOT);
            let in_hole = medium.write(1 << 19, b"x");
            assert!(matches!(in_hole, Err(Error::Full { .. })), "{in_hole:?}");
            assert_eq!(
                (bytes(&medium, 0, 2), bytes(&medium, 1 << 19, 1)),
                (written.into(), vec![0])
            );
            medium.discard(0..1 << 20).unwrap();
        }
        medium.write(0, b"y").unwrap();
        medium.fence().unwrap();
        assert_eq!(bytes(&medium, 0, 2), b"y\0");
    }

    #[test]
    fn what_is_not_written_takes_no_space() {
        use std::os::unix::fs::MetadataExt;
        let (_folder, mut medium) = medium(0);
        medium.grow(1 << 30).unwrap();
        medium.write(1 << 29, b"x").unwrap();
        medium.fence().unwrap();
        medium.grow(2 << 30).unwrap();
        medium.write((1 << 30) - 1, b"xx").unwrap();
        medium.fence().unwrap();
        let taken = medium.file.0.metadata().unwrap().blocks() * 512;
        assert!(taken <= 2 << 20, "{taken} bytes for three");
    }

    #[test]
    fn no_room_in_a_sync_poisons() {
        let (_folder, mut medium) = medium(4096);
        medium.write(0, b"x").unwrap();
        medium.faults.fail(Call::Sync, 0, libc::ENOSPC);
        assert!(matches!(medium.fence(), Err(Error::Io { .. })));
        assert!(matches!(medium.fence(), Err(Error::Poisoned(_))));
    }

    #[test]
    fn a_file_system_without_reservations_works() {
        let (_folder, mut medium) = medium(0);
        medium.faults.fail(Call::Reserve, 0, libc::EOPNOTSUPP);
        medium.grow(1 << 20).unwrap();
        medium.write(4096, b"fine").unwrap();
        medium.fence().unwrap();
        assert_eq!(bytes(&medium, 4096, 5), b"fine\0");
    }

    #[test]
    fn memory_is_bounded_and_early_bytes_are_seen() {
        let len = 3 * FileMedium::BATCH_BYTES as u64;
        let (_folder, mut medium) = medium(len);
        for at in (0..len).step_by(8192) {
            medium.write(at, &(at as u32).to_le_bytes()).unwrap();
            medium.write(at + 4096, &[3; 4096]).unwrap();
            assert!(medium.batch.bytes() <= FileMedium::BATCH_BYTES);
        }
        assert!(medium.written_bytes() > len / 4, "some went early");
        medium.write(0, &[9; 4]).unwrap();
        assert_eq!(bytes(&medium, 0, 4), [9; 4]);
        for at in (8192..len).step_by(8192) {
            assert_eq!(bytes(&medium, at, 4), (at as u32).to_le_bytes());
        }
        medium.fence().unwrap();
        assert_eq!(bytes(&medium, 0, 4), [9; 4]);
    }
}
