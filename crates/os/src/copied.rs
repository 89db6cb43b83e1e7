//! [`Direct`] memory that is a copy of a file on a disk: what is written back is written to the file, in order.
//!
//! * The program's stores are to memory, so the system writes nothing to the disk on its own, and no store waits for it.
//! * What was written back has reached the disk when the fence returns: one `fdatasync`.
//! * Memory is zero until it is loaded ([`Direct::load`]): a program loads what it needs.
//! * A range does not change while it is written back.

#![allow(unsafe_code)]

use crate::direct::{Counts, Direct};
use crate::file::FileMedium;
use crate::health::{Access, refused};
use crate::reserve::Reserved;
use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use twinpage_core::{Error, Medium, Offset, Result};

/// Addresses to keep free, where no limit (`ulimit -v`) forbids it: the largest file.
const ROOM_MAX: usize = 1 << 40;
const ROOM_MIN: usize = 64 << 20;
/// Bytes handed to the system at once.
const CHUNK: usize = 1 << 20;
/// Bytes that the disk is told to begin with at once, while more are on their way: a fence waits for less then.
const BEGUN: u64 = 8 << 20;

/// A file and its copy in memory. See the [module](self).
#[derive(Debug)]
pub struct CopiedFile {
    memory: Reserved,
    len: AtomicU64,
    medium: Mutex<Written>,
    fences: AtomicU64,
    /// For what others are to see at once.
    published: File,
}

#[derive(Debug)]
struct Written {
    medium: FileMedium,
    /// What was written last and in order, and the disk was not told to begin with.
    waiting: Range<Offset>,
    /// Why something was not written: the next fence says so.
    failed: Option<Error>,
}

impl CopiedFile {
    /// Makes a new, empty file that only its owner can read.
    ///
    /// # Errors
    /// As [`FileMedium::create`].
    pub fn create(path: &Path) -> Result<CopiedFile> {
        CopiedFile::over(FileMedium::create(path)?, path)
    }

    /// Opens a file that is there; nothing of it is loaded.
    ///
    /// # Errors
    /// As [`FileMedium::open`].
    pub fn open(path: &Path) -> Result<CopiedFile> {
        CopiedFile::over(FileMedium::open(path, Access::ReadWrite)?, path)
    }

    fn over(medium: FileMedium, path: &Path) -> Result<CopiedFile> {
        let mut room = ROOM_MAX;
        let memory = loop {
            match Reserved::anywhere(room) {
                Ok(memory) => break memory,
                Err(_) if room > ROOM_MIN => room /= 2,
                Err(e) => return Err(refused("keeping addresses free for", path, 0, e)),
            }
        };
        let published = OpenOptions::new().write(true).open(path);
        let file = CopiedFile {
            memory,
            len: AtomicU64::new(0),
            fences: AtomicU64::new(0),
            published: published.map_err(|e| refused("opening", path, 0, e))?,
            medium: Mutex::new(Written {
                medium,
                waiting: 0..0,
                failed: None,
            }),
        };
        let len = file.written().medium.len();
        file.lengthen(len)?;
        Ok(file)
    }

    fn written(&self) -> std::sync::MutexGuard<'_, Written> {
        self.medium.lock().expect("no panic holds it")
    }

    /// `range` was written. The system would begin with it when it is synced; a disk is sooner done that begins before.
    fn begin(&self, written: &mut Written, range: Range<Offset>) {
        let waiting = &mut written.waiting;
        if waiting.end == range.start {
            waiting.end = range.end;
        } else {
            *waiting = range;
        }
        let bytes = waiting.end - waiting.start;
        if bytes >= BEGUN {
            let (fd, how) = (self.published.as_raw_fd(), libc::SYNC_FILE_RANGE_WRITE);
            // SAFETY: no memory is passed. Best effort: the fence tells of what fails.
            let _ = unsafe { libc::sync_file_range(fd, waiting.start as i64, bytes as i64, how) };
            waiting.start = waiting.end;
        }
    }

    /// Lets the memory of the first `len` bytes be used.
    fn lengthen(&self, len: u64) -> Result<()> {
        let (start, all) = (self.memory.range().start, self.memory.range().len());
        let end = (len as usize).next_multiple_of(rustix::param::page_size());
        if end > all {
            return Err(Error::Full {
                what: format!(
                    "the address range of {} MiB for the array (see ulimit -v)",
                    all >> 20
                ),
                needed: len,
            });
        }
        let opened = if end == 0 {
            Ok(())
        } else {
            self.memory.open(start..start + end)
        };
        opened.map_err(|source| Error::Io {
            what: "taking memory for the array".into(),
            at: 0,
            source,
        })?;
        self.len.store(len, Relaxed);
        Ok(())
    }

    fn check(&self, range: &Range<Offset>) {
        assert!(
            range.start <= range.end && range.end <= self.len(),
            "{range:?} of {}",
            self.len()
        );
    }

    /// The bytes of `range`.
    ///
    /// # Safety
    /// They do not change meanwhile.
    unsafe fn bytes(&self, range: &Range<Offset>) -> &[u8] {
        self.check(range);
        // SAFETY: inside the memory, which was opened; the caller's.
        unsafe {
            let at = self.base().add(range.start as usize);
            std::slice::from_raw_parts(at, (range.end - range.start) as usize)
        }
    }
}

impl Direct for CopiedFile {
    fn base(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.memory.range().start)
    }

    fn len(&self) -> u64 {
        self.len.load(Relaxed)
    }

    fn grow(&self, len: u64) -> Result<()> {
        self.written().medium.grow(len)?;
        self.lengthen(len.max(self.len()))
    }

    fn load(&self, range: Range<Offset>) -> Result<()> {
        self.check(&range);
        // SAFETY: inside the memory; the caller uses none of it meanwhile.
        let into = unsafe {
            let at = self.base().add(range.start as usize);
            std::slice::from_raw_parts_mut(at, (range.end - range.start) as usize)
        };
        self.written().medium.read(range.start, into)
    }

    fn publish(&self, range: Range<Offset>) {
        // SAFETY: words, which their one writer publishes.
        let bytes = unsafe { self.bytes(&range) };
        // A reader of the file sees it later.
        let _ = self.published.write_all_at(bytes, range.start);
    }

    fn discard(&self, range: Range<Offset>) {
        // Best effort: the bytes are of no use, and only take room.
        let _ = self.written().medium.discard(range.clone());
        let page = rustix::param::page_size() as u64;
        let whole = range.start.next_multiple_of(page) as usize..(range.end / page * page) as usize;
        if !whole.is_empty() {
            let start = self.memory.range().start;
            // SAFETY: the content is no longer needed.
            let _ = unsafe { self.memory.forget(start + whole.start..start + whole.end) };
        }
    }

    fn write_back(&self, range: Range<Offset>) {
        // SAFETY: a range does not change while it is written back.
        let bytes = unsafe { self.bytes(&range) };
        let mut written = self.written();
        for (k, chunk) in bytes.chunks(CHUNK).enumerate() {
            let at = range.start + (k * CHUNK) as u64;
            if let Err(error) = written.medium.write(at, chunk) {
                written.failed.get_or_insert(error);
            }
            self.begin(&mut written, at..at + chunk.len() as u64);
        }
    }

    fn fence(&self) -> Result<()> {
        let mut written = self.written();
        if let Some(error) = written.failed.take() {
            // It is not known which ranges are missing, so no later fence can speak for them.
            written.failed = Some(Error::poisoned(error.clone()));
            return Err(error);
        }
        self.fences.fetch_add(1, Relaxed);
        written.medium.fence()
    }

    fn fence_is_flush(&self) -> bool {
        true
    }

    fn counts(&self) -> Counts {
        Counts {
            write_backs: 0,
            fences: self.fences.load(Relaxed),
        }
    }

    fn rename(&self, path: &Path) {
        self.written().medium.rename(path);
    }
}
