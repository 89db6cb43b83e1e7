//! A file mapped shared: writing is a copy into the mapping, reading is the mapping itself.
//!
//! * Growing may map the file elsewhere: a view lasts until then, which its borrow says.
//! * No store and no load can meet a full file system, where it would raise SIGBUS: a piece of the
//!   file is touched only after its space was taken, or it was brought for reading (`madvise(2)`,
//!   `MADV_POPULATE_READ`); otherwise it is read with `pread`.
//! * No other process may shorten the file or write to it meanwhile (SIGBUS, torn views). Hold a
//!   [`crate::Lock`] on it; a process that ignores locks is out of scope.
//! * How a copy becomes durable is the [`Persistence`]: [`crate::memory`] and [`crate::dax`] differ in
//!   that and in nothing else.

#![allow(unsafe_code)]

use crate::file::{create_private, open_regular, sync_name};
use crate::health::{Access, Health, full, refused};
use crate::mapping::{Mapping, ROOM_TO_MOVE};
use crate::space::{PIECE, Pieces, Space, punch};
use rustix::mm::MapFlags;
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use twinpage_core::{Error, LineMask, Medium, Offset, PageLines, Result};

/// The size of a page. A longer read is of a journal or a table.
const PAGE_BYTES: u64 = 4096;

/// How bytes that were copied into the mapping become durable.
pub trait Persistence: Debug + Sized {
    /// How the file is mapped.
    const MAPPING: MapFlags;
    /// Whether the file's name must be durable, too.
    const OUTLIVES_MACHINE: bool;
    /// Whether the file system quickly tells where a file has its data.
    const TELLS_HOLES: bool;

    /// Whether the file can be kept so.
    ///
    /// # Errors
    /// [`Error::Invalid`] names the missing part, and the way out.
    fn of(file: &File, path: &Path) -> Result<Self>;

    /// Copies so that no aligned word tears, and the bytes are durable after the next fence.
    ///
    /// # Safety
    /// `to` is valid for writes of `bytes.len()` bytes, and not borrowed. This thread calls
    /// [`Persistence::before_read`] before they are read.
    unsafe fn copy(&mut self, bytes: &[u8], to: *mut u8);

    /// Copied bytes may be read now.
    fn before_read(&self) {}

    /// Copied bytes are durable now.
    fn fence(&self);

    /// Takes space for `range` of the file, so that storing into it cannot fail. What is there stays,
    /// the rest reads as zero.
    ///
    /// # Errors
    /// The file system's error.
    fn take_space(file: &File, range: &Range<u64>) -> io::Result<()>;

    /// Makes the file's length and its holes durable, and what others stored.
    ///
    /// # Errors
    /// The file system's error.
    fn sync(file: &File) -> io::Result<()> {
        let _ = file;
        Ok(())
    }
}

/// A mapped file. See the [module](self).
#[derive(Debug)]
pub struct MappedMedium<P> {
    file: File,
    health: Health,
    len: u64,
    space: Space,
    /// The pieces that were brought for reading.
    readable: Pieces,
    mapping: Mapping,
    persistence: P,
    /// Length or holes changed since the last sync.
    unsynced: bool,
    written_bytes: u64,
}

impl<P: Persistence> MappedMedium<P> {
    /// Makes a new, empty file that only its owner can read.
    ///
    /// # Errors
    /// [`Error::Io`], also when there is such a file already; [`Error::Invalid`] where a file cannot be
    /// mapped so, and none is left behind.
    pub fn create(path: impl AsRef<Path>) -> Result<MappedMedium<P>> {
        let path = path.as_ref();
        let file = create_private(path)?;
        let made = MappedMedium::over(file, path).and_then(|medium| {
            if P::OUTLIVES_MACHINE {
                sync_name(path)?;
            }
            Ok(medium)
        });
        if made.is_err() {
            // Best effort: it is empty, and the error says more.
            let _ = std::fs::remove_file(path);
        }
        made
    }

    /// Opens a file that is there. To look at one, [`crate::FileMedium`] is better: reading through a
    /// mapping may allocate holes.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Foreign`] when it is not a regular file; [`Error::Invalid`] where it
    /// cannot be mapped so.
    pub fn open(path: impl AsRef<Path>) -> Result<MappedMedium<P>> {
        let path = path.as_ref();
        MappedMedium::over(open_regular(path, Access::ReadWrite)?, path)
    }

    /// As [`crate::FileMedium::rename`].
    pub fn rename(&mut self, path: &Path) {
        self.health.rename(path);
    }

    /// Bytes written since the file was opened.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    pub(crate) fn over(file: File, path: &Path) -> Result<MappedMedium<P>> {
        let persistence = P::of(&file, path)?;
        let failed = |what| move |e| refused(what, path, 0, e);
        let len = file.metadata().map_err(failed("asking for the size of"))?.len();
        if len > 0 {
            // What a killed process stored may still be in flight. A recovery sees it, and builds on it.
            P::sync(&file).map_err(failed("syncing"))?;
        }
        let space = if P::TELLS_HOLES {
            Space::of(&file, len).map_err(failed("looking for holes in"))?
        } else {
            Space::default()
        };
        let mut mapping = Mapping::keep_free(P::MAPPING, ROOM_TO_MOVE.max(2 * len))
            .map_err(failed("keeping addresses free for"))?;
        make_room(path, &file, &mut mapping, 0..len)?;
        mapping.extend(&file, len).map_err(failed("mapping"))?;
        let mut readable = Pieces::default();
        readable.make_room(len);
        let health = Health::new(path, Access::ReadWrite);
        Ok(MappedMedium {
            file,
            health,
            len,
            space,
            readable,
            mapping,
            persistence,
            unsynced: false,
            written_bytes: 0,
        })
    }

    /// Whether loads of `range`, in the file, cannot fail. For up to a page the pieces around it are brought, and a hole in
    /// them may take its space; a journal or a table is read once, and nothing is brought for it.
    fn can_load(&self, range: Range<u64>) -> bool {
        if self.space.is_allocated(range.clone()) || self.readable.have(range.clone()) {
            return true;
        }
        let (first, end) = (range.start / PIECE, range.end.div_ceil(PIECE));
        let pieces = first * PIECE..(end * PIECE).min(self.len);
        let brought = range.end - range.start <= PAGE_BYTES && self.mapping.populate_to_read(&pieces).is_ok();
        if brought {
            self.readable.add(pieces);
        }
        brought
    }

    /// Makes sure that `len` bytes at `at` are in the file, and storing there cannot fail.
    fn make_ready(&mut self, at: Offset, len: usize) -> Result<()> {
        self.health.writable()?;
        let end = self.health.inside(at, len, self.len)?;
        if !self.space.is_allocated(at..end) {
            self.take_space(at..end)?;
        }
        Ok(())
    }

    /// Takes space for the pieces that `range` touches, so that storing into them cannot fail.
    fn take_space(&mut self, range: Range<u64>) -> Result<()> {
        while let Some(missing) = self.space.missing(range.clone(), self.len) {
            if let Err(e) = P::take_space(&self.file, &missing) {
                return Err(self.health.failed(
                    "taking space in",
                    missing.start,
                    missing.end - missing.start,
                    e,
                ));
            }
            match self.mapping.populate(&missing) {
                // EFAULT: the store would have raised SIGBUS.
                Err(e) if e.raw_os_error() == Some(libc::EFAULT) => {
                    return Err(self.health.poisoned("touching", missing.start, e));
                }
                _ => self.space.set_allocated(missing, self.len),
            }
        }
        Ok(())
    }
}

impl<P: Persistence> Medium for MappedMedium<P> {
    fn len(&self) -> u64 {
        self.len
    }

    /// Takes addresses, not space: that is taken when a piece is first written.
    fn grow(&mut self, len: u64) -> Result<()> {
        self.health.writable()?;
        if len <= self.len {
            return Ok(());
        }
        let path = self.health.path();
        make_room(path, &self.file, &mut self.mapping, self.len..len)?;
        let failed = |e: io::Error| {
            full(path, len - self.len, &e).unwrap_or_else(|| refused("growing", path, self.len, e))
        };
        self.file.set_len(len).map_err(failed)?;
        if let Err(e) = self.mapping.extend(&self.file, len) {
            // Best effort: a file that stays too long is still a right file.
            let _ = self.file.set_len(self.len);
            return Err(refused("mapping more of", path, self.len, e));
        }
        self.unsynced = true;
        // The last piece was short, and what it gained has no space yet.
        self.space.forget_allocation(self.len..self.len + 1);
        self.readable.remove(self.len..self.len + 1);
        self.readable.make_room(len);
        self.len = len;
        Ok(())
    }

    fn read(&self, at: Offset, into: &mut [u8]) -> Result<()> {
        if let Some(bytes) = self.view(at, into.len()) {
            into.copy_from_slice(bytes);
            return Ok(());
        }
        self.health.inside(at, into.len(), self.len)?;
        let read = self.file.read_exact_at(into, at);
        read.map_err(|e| refused("reading", self.health.path(), at, e))
    }

    fn view(&self, at: Offset, len: usize) -> Option<&[u8]> {
        let end = at.checked_add(len as u64).filter(|&end| end <= self.len)?;
        if !self.can_load(at..end) {
            return None;
        }
        self.persistence.before_read();
        // SAFETY: the bytes lie in the file and in the mapping, and loads of them cannot fail; they are
        // not written while `self` is borrowed, and the mapping lives as long as `self` and moves only
        // by `&mut self`.
        Some(unsafe { std::slice::from_raw_parts(self.mapping.at(at), len) })
    }

    fn write(&mut self, at: Offset, bytes: &[u8]) -> Result<()> {
        self.make_ready(at, bytes.len())?;
        // SAFETY: the bytes lie in the file and in the mapping, and their space is reserved, so storing
        // cannot fault; `&mut self` makes this the only access, and `bytes`, a shared borrow,
        // cannot be part of what only we reach.
        unsafe { self.persistence.copy(bytes, self.mapping.at(at)) };
        self.written_bytes += bytes.len() as u64;
        Ok(())
    }

    fn write_lines(&mut self, page_at: Offset, chosen: LineMask, from: &PageLines<'_>) -> Result<()> {
        if chosen.is_empty() {
            return Ok(());
        }
        let line = from.line_bytes as u64;
        let (first, last) = (chosen.0.trailing_zeros(), 63 - chosen.0.leading_zeros());
        self.make_ready(
            page_at + u64::from(first) * line,
            (last + 1 - first) as usize * from.line_bytes,
        )?;
        for run in chosen.runs() {
            let bytes = from.run(run.clone());
            // SAFETY: `make_ready` saw that the run lies in the file and in the mapping, and reserved its space.
            unsafe {
                self.persistence
                    .copy(bytes, self.mapping.at(page_at + run.start as u64 * line));
            }
            self.written_bytes += bytes.len() as u64;
        }
        Ok(())
    }

    /// Gives whole pieces of 256 KiB back; what is left over at the ends stays as it was.
    fn discard(&mut self, range: Range<Offset>) -> Result<()> {
        self.health.writable()?;
        let whole = self.space.whole(range, self.len);
        if whole.is_empty() {
            return Ok(());
        }
        // First: from here on nothing may be touched through the mapping.
        self.space.forget_allocation(whole.clone());
        self.readable.remove(whole.clone());
        self.persistence.before_read();
        self.unsynced = true;
        match punch(&self.file, &whole) {
            Ok(_) => Ok(()),
            Err(e) => Err(self.health.poisoned("giving back space of", whole.start, e)),
        }
    }

    fn fence(&mut self) -> Result<()> {
        self.health.writable()?;
        self.persistence.fence();
        if self.unsynced {
            // Out of room here means that the file is shorter than was said: never `Full`.
            P::sync(&self.file).map_err(|e| self.health.poisoned("syncing", 0, e))?;
            self.unsynced = false;
        }
        Ok(())
    }

    /// 8: an aligned word is one store, and a program or a machine dies between stores.
    fn atom(&self) -> usize {
        8
    }
}

/// Finds addresses for a file that grows as `range` says.
fn make_room(path: &Path, file: &File, mapping: &mut Mapping, range: Range<u64>) -> Result<()> {
    if range.end <= mapping.room() {
        return Ok(());
    }
    mapping.widen(file, range.end).map_err(|_| Error::Full {
        what: format!(
            "the address range of {} MiB for {} (see ulimit -v)",
            mapping.room() >> 20,
            path.display()
        ),
        needed: range.end - range.start,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    static SYNCS: AtomicU64 = AtomicU64::new(0);

    /// As on persistent memory, in any file.
    #[derive(Debug)]
    struct Counted;

    impl Persistence for Counted {
        const MAPPING: MapFlags = MapFlags::SHARED;
        const OUTLIVES_MACHINE: bool = true;
        const TELLS_HOLES: bool = true;

        fn of(_: &File, _: &Path) -> Result<Counted> {
            Ok(Counted)
        }

        unsafe fn copy(&mut self, bytes: &[u8], to: *mut u8) {
            // SAFETY: the caller's.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        }

        fn fence(&self) {}

        fn take_space(file: &File, range: &Range<u64>) -> io::Result<()> {
            crate::space::reserve(file, range)
        }

        fn sync(_: &File) -> io::Result<()> {
            SYNCS.fetch_add(1, Relaxed);
            Ok(())
        }
    }

    #[test]
    fn what_a_killed_process_stored_is_synced_when_the_file_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let mut medium = MappedMedium::<Counted>::create(&path).unwrap();
        assert_eq!(SYNCS.load(Relaxed), 0, "it is empty");
        medium.grow(4096).unwrap();
        medium.write(0, b"stored").unwrap();
        drop(medium);
        MappedMedium::<Counted>::open(&path).unwrap();
        assert_eq!(SYNCS.load(Relaxed), 1);
    }
}
