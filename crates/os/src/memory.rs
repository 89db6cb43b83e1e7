//! A file in memory (tmpfs): it survives the death of the program, not of the machine.
//!
//! * The program may die between any two instructions. A store that was executed is in the system's
//!   page cache then, and every earlier one too, since a dying program's memory is looked at only
//!   after its processor has given it up, and the interrupt that takes it away empties its buffers.
//! * Whole cache lines go past the caches, as they do to persistent memory: scattered ones are not read
//!   first, which is most of the cost of writing them.
//!
//! Any file system that can reserve space will do (`fallocate(2)`: tmpfs, ext4, XFS, Btrfs); its own
//! writing back to a disk is neither needed nor waited for.

#![allow(unsafe_code)]

use crate::flush::{CACHE_LINE, Native, Processor, store};
use crate::mapped::{MappedMedium, Persistence};
use crate::space::reserve;
use rustix::mm::MapFlags;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use twinpage_core::Result;

/// Up to here an aligned write goes word by word. A longer one is left to `memcpy`, whose stores are
/// vectors, that is, more than words.
const WORDWISE_BYTES: usize = 64;

/// A file in memory. See the [module](self).
pub type MemoryMedium = MappedMedium<PageCache>;

/// Nanoseconds that each line takes longer, in all memory files of this process.
static LINE_DELAY_NS: AtomicU64 = AtomicU64::new(0);

/// Makes memory files of this process as slow as a memory whose writes take longer than DRAM's: a fence waits that much
/// longer for each line written since the fence before. For measurements; at first it does not.
pub fn delay_lines(each: Duration) {
    let ns = u64::try_from(each.as_nanos()).unwrap_or(u64::MAX);
    LINE_DELAY_NS.store(ns, Ordering::Relaxed);
}

/// Stores are in the system's page cache, which outlives the program.
#[derive(Debug)]
pub struct PageCache {
    processor: Native,
    /// Written since the last fence.
    lines: AtomicU64,
}

/// By spinning: it is shorter than a sleep can be.
fn wait(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        std::hint::spin_loop();
    }
}

impl Persistence for PageCache {
    const MAPPING: MapFlags = MapFlags::SHARED;
    const OUTLIVES_MACHINE: bool = false;
    /// tmpfs looks at every page; a piece that is there is soon taken again instead.
    const TELLS_HOLES: bool = false;

    fn of(_: &File, _: &Path) -> Result<PageCache> {
        Ok(PageCache {
            processor: Native::new(),
            lines: AtomicU64::new(0),
        })
    }

    unsafe fn copy(&mut self, bytes: &[u8], to: *mut u8) {
        *self.lines.get_mut() += bytes.len().div_ceil(CACHE_LINE) as u64;
        let (lines, rest) = bytes.as_chunks::<CACHE_LINE>();
        if rest.is_empty() && to.addr().is_multiple_of(CACHE_LINE) {
            for (k, line) in lines.iter().enumerate() {
                // SAFETY: whole lines of what the caller promises; `before_read` and `fence` drain.
                unsafe { self.processor.stream(line, to.add(k * CACHE_LINE)) };
            }
        } else if bytes.len() > WORDWISE_BYTES || !bytes.len().is_multiple_of(8) {
            // SAFETY: the caller's.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        } else {
            // SAFETY: the caller's.
            unsafe { store(bytes, to) };
        }
    }

    fn before_read(&self) {
        self.processor.drain();
    }

    fn fence(&self) {
        self.processor.drain();
        let lines = self.lines.load(Ordering::Relaxed);
        self.lines.store(0, Ordering::Relaxed);
        let each = LINE_DELAY_NS.load(Ordering::Relaxed);
        if each > 0 {
            wait(Duration::from_nanos(each.saturating_mul(lines)));
        }
    }

    fn take_space(file: &File, range: &Range<u64>) -> io::Result<()> {
        reserve(file, range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::PIECE;
    use twinpage_core::Medium;

    #[test]
    fn a_file_that_was_opened_is_read_in_place() {
        const PAGE: usize = 4096;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("opened");
        let mut medium = MemoryMedium::create(&path).unwrap();
        medium.grow(4 * PIECE + 5000).unwrap();
        medium.write(PIECE, &[7; PAGE]).unwrap();
        medium.write(4 * PIECE, &[8; 5000]).unwrap();
        medium.fence().unwrap();
        drop(medium);
        let mut medium = MemoryMedium::open(&path).unwrap();
        assert_eq!(
            medium.view(0, 2 * PAGE),
            None,
            "nothing is brought for a long one"
        );
        assert_eq!(medium.view(PIECE, PAGE), Some(&[7; PAGE][..]));
        assert_eq!(
            medium.view(4 * PIECE + 1000, 4000),
            Some(&[8; 4000][..]),
            "the last piece"
        );
        assert_eq!(medium.view(4 * PIECE + 1001, 4000), None, "it ends before");
        assert_eq!(
            medium.view(2 * PIECE - 64, 128),
            Some(&[0; 128][..]),
            "of two pieces, holes"
        );
        assert_eq!(medium.view(PIECE, 2 * PAGE).unwrap()[PAGE - 1..=PAGE], [7, 0]);
        medium.discard(PIECE..2 * PIECE).unwrap();
        assert_eq!(medium.view(PIECE, PAGE), Some(&[0; PAGE][..]));
        medium.write(PIECE + 64, &[9; 64]).unwrap();
        assert_eq!(medium.view(PIECE, 65).unwrap()[63..], [0, 9]);
        medium.grow(6 * PIECE).unwrap();
        assert_eq!(medium.view(4 * PIECE + 4999, 2), Some(&[8, 0][..]));
        assert_eq!(medium.view(6 * PIECE - 8, 8), Some(&[0; 8][..]));
    }

    #[test]
    fn slower_memory_takes_longer_for_each_line() {
        let folder = tempfile::tempdir().unwrap();
        let mut medium = MemoryMedium::create(folder.path().join("slow")).unwrap();
        medium.grow(1 << 20).unwrap();
        medium.write(0, &[7; 1000 * CACHE_LINE]).unwrap();
        delay_lines(Duration::from_micros(2));
        let begin = Instant::now();
        medium.fence().unwrap();
        let fenced = begin.elapsed();
        delay_lines(Duration::ZERO);
        assert!(fenced >= Duration::from_millis(2), "{fenced:?}");
    }
}
