//! A file in memory (tmpfs), mapped shared: it survives the death of the program, not of the machine.
//!
//! * A write is a copy into the mapping; a view is the mapping itself. Neither moves as the file grows.
//! * The program may die between any two instructions. A store that was executed is in the system's
//!   page cache then, and every earlier one too, since a dying program's memory is looked at only
//!   after its processor has given it up. So a fence has only the compiler to hold back.
//! * No store and no load can meet a full file system, where it would raise SIGBUS: a piece of the
//!   file is touched only after its space was reserved; until then it is read with `pread`.
//! * Nobody else may shorten the file or write to it meanwhile (SIGBUS, torn views). Hold a
//!   [`crate::Lock`] on it; a stranger who ignores locks is out of scope.
//!
//! Any file system that can reserve space will do (`fallocate(2)`: tmpfs, ext4, XFS, Btrfs); its own
//! writing back to a disk is neither needed nor waited for.

#![allow(unsafe_code)]

use crate::file::{create_private, open_regular};
use crate::health::{Access, Health, full, refused};
use crate::mapping::Mapping;
use crate::space::{Space, punch, reserve};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};
use twinpage_core::{Error, Medium, Offset, Result};

/// Up to here an aligned write goes word by word. A longer one is left to `memcpy`, whose stores are
/// vectors, that is, more than words.
const WORDWISE_BYTES: usize = 64;

/// A file in memory. See the module.
#[derive(Debug)]
pub struct MemoryMedium {
    file: File,
    health: Health,
    len: u64,
    space: Space,
    mapping: Mapping,
    written_bytes: u64,
}

impl MemoryMedium {
    /// Makes a new, empty file that only its owner can read.
    ///
    /// # Errors
    /// [`Error::Io`], also when there is such a file already.
    pub fn create(path: impl AsRef<Path>) -> Result<MemoryMedium> {
        let path = path.as_ref();
        MemoryMedium::over(create_private(path)?, path)
    }

    /// Opens a file that is there. To look at one, [`crate::FileMedium`] is better: reading through a
    /// mapping may allocate holes.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Foreign`] when it is not a regular file.
    pub fn open(path: impl AsRef<Path>) -> Result<MemoryMedium> {
        let path = path.as_ref();
        MemoryMedium::over(open_regular(path, Access::ReadWrite)?, path)
    }

    /// Bytes written since the file was opened.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    fn over(file: File, path: &Path) -> Result<MemoryMedium> {
        let failed = |what| move |e| refused(what, path, 0, e);
        let len = file.metadata().map_err(failed("asking for the size of"))?.len();
        let space = Space::of(&file, len).map_err(failed("looking for holes in"))?;
        let mut mapping = Mapping::keep_free().map_err(failed("keeping addresses free for"))?;
        fits(path, &mapping, 0, len)?;
        mapping.extend(&file, len).map_err(failed("mapping"))?;
        let health = Health::new(path, Access::ReadWrite);
        Ok(MemoryMedium {
            file,
            health,
            len,
            space,
            mapping,
            written_bytes: 0,
        })
    }

    /// Takes space for the pieces that `range` touches, so that storing into them cannot fail.
    fn take_space(&mut self, range: Range<u64>) -> Result<()> {
        while let Some(missing) = self.space.missing(range.clone(), self.len) {
            if let Err(e) = reserve(&self.file, &missing) {
                return Err(self.health.failed(
                    "reserving space in",
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
                _ => self.space.settle(missing, self.len),
            }
        }
        Ok(())
    }
}

impl Medium for MemoryMedium {
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
        fits(path, &self.mapping, self.len, len)?;
        let failed = |e: io::Error| {
            full(path, len - self.len, &e).unwrap_or_else(|| refused("growing", path, self.len, e))
        };
        self.file.set_len(len).map_err(failed)?;
        if let Err(e) = self.mapping.extend(&self.file, len) {
            // Best effort: a file that stays too long is still a right file.
            let _ = self.file.set_len(self.len);
            return Err(refused("mapping more of", path, self.len, e));
        }
        // The last piece was short, and what it gained has no space yet.
        self.space.unsettle(self.len..self.len + 1);
        self.len = len;
        Ok(())
    }

    fn read(&self, at: Offset, into: &mut [u8]) -> Result<()> {
        match self.view(at, into.len()) {
            Some(bytes) => into.copy_from_slice(bytes),
            None => {
                self.health.inside(at, into.len(), self.len)?;
                let read = self.file.read_exact_at(into, at);
                read.map_err(|e| refused("reading", self.health.path(), at, e))?;
            }
        }
        Ok(())
    }

    fn view(&self, at: Offset, len: usize) -> Option<&[u8]> {
        let end = at.checked_add(len as u64).filter(|&end| end <= self.len)?;
        if !self.space.is_settled(at..end) {
            return None;
        }
        // SAFETY: the bytes lie in the file and in the mapping, their space is reserved, so reading
        // them cannot fault; nobody writes them while `self` is borrowed, and the mapping never moves
        // and lives as long as `self`.
        Some(unsafe { std::slice::from_raw_parts(self.mapping.at(at), len) })
    }

    fn write(&mut self, at: Offset, bytes: &[u8]) -> Result<()> {
        self.health.writable()?;
        let end = self.health.inside(at, bytes.len(), self.len)?;
        if !self.space.is_settled(at..end) {
            self.take_space(at..end)?;
        }
        // SAFETY: the bytes lie in the file and in the mapping, and their space is reserved, so storing
        // cannot fault; `&mut self` makes us the only one who looks, and `bytes`, a shared borrow,
        // cannot be part of what only we reach.
        unsafe { copy(bytes, self.mapping.at(at)) };
        self.written_bytes += bytes.len() as u64;
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
        self.space.unsettle(whole.clone());
        match punch(&self.file, &whole) {
            Ok(_) => Ok(()),
            Err(e) => Err(self.health.poisoned("giving back space of", whole.start, e)),
        }
    }

    /// Only an order, for the compiler. See the module.
    fn fence(&mut self) -> Result<()> {
        self.health.writable()?;
        compiler_fence(Ordering::SeqCst);
        Ok(())
    }

    /// 8: an aligned word is one store, and a program dies between stores.
    fn atom(&self) -> usize {
        8
    }
}

/// Copies so that no aligned word tears when the program dies in the middle.
///
/// # Safety
/// `bytes.len()` bytes at `to` are valid for writes, and are not borrowed.
unsafe fn copy(bytes: &[u8], to: *mut u8) {
    if bytes.len() > WORDWISE_BYTES || !bytes.len().is_multiple_of(8) || !to.cast::<u64>().is_aligned() {
        // SAFETY: the caller's.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        return;
    }
    for (k, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
        // SAFETY: the word lies inside what the caller promised, and `to` is aligned for it.
        let to = unsafe { AtomicU64::from_ptr(to.cast::<u64>().add(k)) };
        to.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
    }
}

/// Refuses a length that the addresses kept free cannot hold.
fn fits(path: &Path, mapping: &Mapping, old: u64, len: u64) -> Result<()> {
    if len <= mapping.room() {
        return Ok(());
    }
    let (path, room) = (path.display(), mapping.room() >> 20);
    let what = format!("the address range of {room} MiB for {path} (see ulimit -v)");
    Err(Error::Full {
        what,
        needed: len - old,
    })
}
