//! Which pieces of a file surely have their space on the file system, so that storing into them
//! cannot run out of room.
//!
//! * An allocated piece has all its space. An unallocated one may have some, none, or all of it.
//! * Space is taken a piece at a time, before the first byte of the piece is written.

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a piece. Reserving one on tmpfs costs about 40 µs, an unwritten line can waste one.
pub(crate) const PIECE: u64 = 256 << 10;

/// Some of the pieces of a file.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    bits: Vec<AtomicU64>,
}

impl Pieces {
    /// Room for those of a file of `len` bytes.
    pub(crate) fn make_room(&mut self, len: u64) {
        let words = len.div_ceil(PIECE * 64) as usize;
        if self.bits.len() < words {
            self.bits.resize_with(words, AtomicU64::default);
        }
    }

    /// Whether all that `range` touches are among them.
    pub(crate) fn have(&self, range: Range<u64>) -> bool {
        pieces(range).all(|piece| self.has(piece))
    }

    /// Adds all that `range` touches. Room was made for them.
    pub(crate) fn add(&self, range: Range<u64>) {
        for piece in pieces(range) {
            // It guards no memory of ours: what a piece holds comes to a thread through its own loads.
            self.bits[(piece / 64) as usize].fetch_or(1 << (piece % 64), Ordering::Relaxed);
        }
    }

    /// Takes away all that `range` touches.
    pub(crate) fn remove(&mut self, range: Range<u64>) {
        for piece in pieces(range) {
            if let Some(word) = self.bits.get_mut((piece / 64) as usize) {
                *word.get_mut() &= !(1 << (piece % 64));
            }
        }
    }

    fn has(&self, piece: u64) -> bool {
        let word = self.bits.get((piece / 64) as usize);
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (piece % 64) & 1 == 1)
    }
}

/// The pieces that have all their space.
#[derive(Debug, Default)]
pub(crate) struct Space {
    allocated: Pieces,
}

impl Space {
    /// Asks the file system where the file has data (`lseek(2)`, `SEEK_DATA`). One that keeps no
    /// holes answers "everywhere".
    pub(crate) fn of(file: &File, len: u64) -> io::Result<Space> {
        let mut space = Space::default();
        let mut at = 0;
        while at < len {
            let data = match seek(file, SeekFrom::Data(at)) {
                Ok(data) => data,
                Err(Errno::NXIO) => break,
                Err(e) => return Err(e.into()),
            };
            at = match seek(file, SeekFrom::Hole(data)) {
                Ok(hole) => hole,
                Err(Errno::NXIO) => len,
                Err(e) => return Err(e.into()),
            };
            space.set_allocated(data..at.min(len), len);
        }
        Ok(space)
    }

    /// Whether every piece that `range` touches is allocated.
    pub(crate) fn is_allocated(&self, range: Range<u64>) -> bool {
        self.allocated.have(range)
    }

    /// The first unallocated pieces that `range` touches, as bytes of a file of `len` bytes.
    pub(crate) fn missing(&self, range: Range<u64>, len: u64) -> Option<Range<u64>> {
        let mut unallocated = pieces(range).skip_while(|&piece| self.allocated.has(piece));
        let first = unallocated.next()?;
        let last = unallocated
            .take_while(|&piece| !self.allocated.has(piece))
            .last()
            .unwrap_or(first);
        Some(first * PIECE..((last + 1) * PIECE).min(len))
    }

    /// The bytes of the pieces that lie whole in `range`. The last piece ends at `len`.
    pub(crate) fn whole(&self, range: Range<u64>, len: u64) -> Range<u64> {
        let end = if range.end >= len {
            len
        } else {
            range.end / PIECE * PIECE
        };
        range.start.min(len).next_multiple_of(PIECE)..end
    }

    /// The pieces that lie whole in `range` have their space.
    pub(crate) fn set_allocated(&mut self, range: Range<u64>, len: u64) {
        self.allocated.make_room(len);
        self.allocated.add(self.whole(range, len));
    }

    /// The pieces that `range` touches may have lost their space.
    pub(crate) fn forget_allocation(&mut self, range: Range<u64>) {
        self.allocated.remove(range);
    }
}

/// The pieces that `range` touches.
fn pieces(range: Range<u64>) -> Range<u64> {
    if range.is_empty() {
        0..0
    } else {
        range.start / PIECE..range.end.div_ceil(PIECE)
    }
}

/// Takes the space of `range`, inside the file: `fallocate(2)`. What is there stays, the rest reads as zero.
pub(crate) fn reserve(file: &File, range: &Range<u64>) -> io::Result<()> {
    again(|| {
        fallocate(
            file,
            FallocateFlags::KEEP_SIZE,
            range.start,
            range.end - range.start,
        )
    })
}

/// Writes zeros wherever `range`, inside the file, has no data yet (`lseek(2)`, `SEEK_DATA`): a hole, or
/// space that was reserved and never written.
pub(crate) fn fill_holes(file: &File, range: &Range<u64>) -> io::Result<()> {
    static ZEROS: [u8; PIECE as usize] = [0; PIECE as usize];
    let mut at = range.start;
    while at < range.end {
        let data = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => data.min(range.end),
            Err(Errno::NXIO) => range.end,
            Err(e) => return Err(e.into()),
        };
        while at < data {
            let bytes = (data - at).min(PIECE);
            file.write_all_at(&ZEROS[..bytes as usize], at)?;
            at += bytes;
        }
        at = match seek(file, SeekFrom::Hole(data)) {
            Ok(hole) => hole,
            Err(Errno::NXIO) => range.end,
            Err(e) => return Err(e.into()),
        };
    }
    Ok(())
}

/// Gives the space of `range` back: `fallocate(2)`, `FALLOC_FL_PUNCH_HOLE`. It reads as zero then.
/// False where the file system cannot.
pub(crate) fn punch(file: &File, range: &Range<u64>) -> io::Result<bool> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match again(|| fallocate(file, flags, range.start, range.end - range.start)) {
        Ok(()) => Ok(true),
        Err(e) if is_unsupported(&e) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Whether the file system does not know the operation at all.
pub(crate) fn is_unsupported(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS))
}

/// Repeats a call that a signal interrupted.
pub(crate) fn again<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_pieces_count_as_allocated() {
        let len = 10 * PIECE + 100;
        let mut space = Space::default();
        space.set_allocated(1..3 * PIECE, len);
        assert!(!space.is_allocated(0..1));
        assert!(space.is_allocated(PIECE..3 * PIECE));
        assert!(!space.is_allocated(2 * PIECE..3 * PIECE + 1));
        space.set_allocated(10 * PIECE..len, len);
        assert!(space.is_allocated(10 * PIECE..len), "the last piece is short");
        assert_eq!(space.missing(0..len, len), Some(0..PIECE));
        assert_eq!(space.missing(PIECE..len, len), Some(3 * PIECE..10 * PIECE));
        space.forget_allocation(2 * PIECE - 1..2 * PIECE);
        assert_eq!(space.missing(PIECE..3 * PIECE, len), Some(PIECE..2 * PIECE));
        assert_eq!(space.missing(5..5, len), None);
    }

    #[test]
    fn an_opened_file_says_where_its_data_is() {
        let file = tempfile::tempfile().unwrap();
        let len = 8 * PIECE;
        file.set_len(len).unwrap();
        file.write_all_at(&vec![1; 2 * PIECE as usize], 3 * PIECE)
            .unwrap();
        let space = Space::of(&file, len).unwrap();
        assert!(space.is_allocated(3 * PIECE..5 * PIECE));
        assert!(!space.is_allocated(0..1), "this file system keeps no holes");
        assert!(!space.is_allocated(5 * PIECE..len));
    }

    #[test]
    fn only_holes_are_filled() {
        let file = tempfile::tempfile().unwrap();
        let len = 3 * PIECE + 5000;
        file.set_len(len).unwrap();
        file.write_all_at(&[1; 8192], PIECE + 4096).unwrap();
        fill_holes(&file, &(4096..len)).unwrap();
        let mut bytes = vec![9; len as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let (start, end) = (PIECE as usize + 4096, PIECE as usize + 4096 + 8192);
        assert!(bytes[start..end].iter().all(|&byte| byte == 1));
        assert!(bytes[..start].iter().chain(&bytes[end..]).all(|&byte| byte == 0));
        let space = Space::of(&file, len).unwrap();
        assert!(!space.is_allocated(0..1), "not asked for");
        assert!(space.is_allocated(PIECE..len));
    }
}
