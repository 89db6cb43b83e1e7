//! Checksums of lines, one beside every home.
//!
//! ```text
//!                  line 0   line 1   line 2   line 3
//! base page         sum      sum      sum      sum      CPBV xor DBV says which home holds the newest
//! derivative page            sum      sum      sum      version, and with it which sum is the newest's
//! ```
//!
//! * A sum belongs to a place on the medium. The bits that choose a home choose its sum, so a commit flips
//!   both at once and an abandoned epoch leaves the sums of the checkpoint as they were.
//! * A sum is made of the bytes that are written, never of bytes that were read: a line copied home takes
//!   its sum along, so damage is not made valid by moving it.
//! * The record of a commit carries the sums of its lines, a snapshot those of all pages. A sum is valid
//!   from the instant on at which its line is in the checkpoint.
//! * A sum is the CRC-32C of the line xor that of a line of zeros. A line of zeros has 0, which takes no
//!   room in records and snapshots, and a place never written needs no sum.

use super::codec::Cursor;
use super::codec::put_mask;
use crate::geometry::{Geometry, LINES_PER_PAGE, LineMask};
use crate::medium::Offset;
use crc32c::crc32c;

/// From lines of this size on, lines have checksums unless said otherwise: four bytes for 4096.
const DEFAULT_FROM_BYTES: usize = 4096;

/// Whether lines of this size have checksums unless said otherwise.
pub(super) fn are_default(geometry: Geometry) -> bool {
    geometry.line_bytes() >= DEFAULT_FROM_BYTES
}

/// The line of the medium that is line `line` of its page `number`.
pub(super) fn line_of(number: u64, line: usize) -> u64 {
    number * LINES_PER_PAGE as u64 + line as u64
}

/// A sum for every line of the medium that may hold a line of a page.
#[derive(Debug)]
pub(super) struct Sums {
    line_bytes: usize,
    extent_lines: u64,
    /// The CRC of a line of zeros.
    zeros: u32,
    /// By extent of the medium; none where all are 0.
    extents: Vec<Option<Box<[u32]>>>,
}

impl Sums {
    /// All 0, for a medium of this number of extents.
    pub(super) fn new(geometry: Geometry, extents: u32) -> Sums {
        Sums {
            line_bytes: geometry.line_bytes(),
            extent_lines: geometry.extent_pages() * LINES_PER_PAGE as u64,
            zeros: crc32c(&vec![0; geometry.line_bytes()]),
            extents: vec![None; extents as usize],
        }
    }

    /// The sum at line `line` of the medium.
    pub(super) fn get(&self, line: u64) -> u32 {
        let extent = self.extents.get((line / self.extent_lines) as usize);
        let sums = extent.and_then(|extent| extent.as_deref());
        sums.map_or(0, |sums| sums[(line % self.extent_lines) as usize])
    }

    fn set(&mut self, line: u64, sum: u32) {
        let extent = (line / self.extent_lines) as usize;
        if extent >= self.extents.len() {
            self.extents.resize(extent + 1, None);
        }
        let lines = self.extent_lines as usize;
        let sums = &mut self.extents[extent];
        if sum != 0 || sums.is_some() {
            sums.get_or_insert_with(|| vec![0; lines].into())[(line % self.extent_lines) as usize] = sum;
        }
    }

    /// As [`Sums::set`], for a line that a record or a snapshot names; one past the end of the medium, which
    /// recovery refuses, is left out.
    pub(super) fn restore(&mut self, line: u64, sum: u32) {
        if line / self.extent_lines < self.extents.len() as u64 {
            self.set(line, sum);
        }
    }

    /// Lines were written at byte `at`.
    pub(super) fn wrote(&mut self, at: Offset, bytes: &[u8]) {
        let first = at / self.line_bytes as u64;
        for (line, bytes) in (first..).zip(bytes.chunks_exact(self.line_bytes)) {
            self.set(line, crc32c(bytes) ^ self.zeros);
        }
    }

    /// `count` lines were copied from line `from` of the medium to line `to`.
    pub(super) fn copied(&mut self, from: u64, to: u64, count: usize) {
        for line in 0..count as u64 {
            self.set(to + line, self.get(from + line));
        }
    }

    /// As [`Sums::copied`] by bytes.
    pub(super) fn copied_bytes(&mut self, from: Offset, to: Offset, len: usize) {
        let line = self.line_bytes as u64;
        self.copied(from / line, to / line, len / self.line_bytes);
    }

    /// All lines of page `number` of the medium are zero.
    pub(super) fn zeroed(&mut self, number: u64) {
        (0..LINES_PER_PAGE).for_each(|line| self.restore(line_of(number, line), 0));
    }

    /// The CRC that line `line` of the medium must have.
    pub(super) fn crc(&self, line: u64) -> u32 {
        self.get(line) ^ self.zeros
    }

    /// Of the lines at byte `at`, at most a page, those that are not as they were written.
    pub(super) fn wrong(&self, at: Offset, bytes: &[u8]) -> LineMask {
        let lines = (at / self.line_bytes as u64..).zip(bytes.chunks_exact(self.line_bytes));
        let wrong = lines.map(|(line, bytes)| u64::from(crc32c(bytes) != self.crc(line)));
        LineMask(wrong.enumerate().fold(0, |all, (k, wrong)| all | wrong << k))
    }
}

/// Sums of lines of pages, page after page, without those that are 0.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct PageSums {
    masks: Vec<LineMask>,
    sums: Vec<u32>,
}

impl PageSums {
    pub(super) fn clear(&mut self) {
        self.masks.clear();
        self.sums.clear();
    }

    /// How many pages there are.
    pub(super) fn len(&self) -> usize {
        self.masks.len()
    }

    /// Adds a page: the sums of those `lines` of it.
    pub(super) fn push(&mut self, lines: impl Iterator<Item = (usize, u32)>) {
        let mut mask = LineMask::NONE;
        for (line, sum) in lines.filter(|&(_, sum)| sum != 0) {
            mask = mask | LineMask::run(line, 1);
            self.sums.push(sum);
        }
        self.masks.push(mask);
    }

    /// The pages, each with its lines and their sums.
    pub(super) fn pages(&self) -> impl Iterator<Item = (LineMask, &[u32])> {
        let mut rest = &self.sums[..];
        self.masks.iter().map(move |&mask| {
            let (sums, later) = rest.split_at(mask.count());
            rest = later;
            (mask, sums)
        })
    }

    /// Appends every page: its mask and its sums.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        for (mask, sums) in self.pages() {
            put_mask(out, mask);
            sums.iter().for_each(|sum| out.extend(sum.to_le_bytes()));
        }
    }

    /// What [`PageSums::encode`] wrote of `count` pages.
    pub(super) fn decode(body: &mut Cursor<'_>, count: u64) -> Option<PageSums> {
        let mut found = PageSums::default();
        for _ in 0..count {
            let mask = body.mask()?;
            for _ in 0..mask.count() {
                found.sums.push(body.u32()?);
            }
            found.masks.push(mask);
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_have_none_and_a_flipped_bit_is_found() {
        let geometry = Geometry::new(64, 8192).unwrap();
        let mut sums = Sums::new(geometry, 2);
        assert!(sums.wrong(8192, &[0; 128]).is_empty());
        let mut bytes = [7; 192];
        sums.wrote(8192 + 64, &bytes);
        assert!(sums.wrong(8192 + 64, &bytes).is_empty());
        bytes[130] ^= 1;
        assert_eq!(sums.wrong(8192 + 64, &bytes), LineMask(1 << 2));
        sums.copied_bytes(8192 + 64, 0, 192);
        assert!(sums.wrong(0, &[7; 192]).is_empty());
        sums.zeroed(2);
        assert!(sums.wrong(8192, &[0; 4096]).is_empty());
        sums.wrote(8192 * 5, &[1; 64]);
        assert!(sums.wrong(8192 * 5, &[1; 64]).is_empty(), "the medium grew");
        sums.restore(u64::MAX, 3);
        assert_eq!(sums.extents.len(), 6);
    }

    #[test]
    fn sums_of_pages_are_read_as_written() {
        let mut sums = PageSums::default();
        sums.push([(0, 5), (3, 0), (9, 6)].into_iter());
        sums.push(std::iter::empty());
        sums.push((0..64).map(|line| (line, line as u32)));
        let mut out = Vec::new();
        sums.encode(&mut out);
        assert_eq!(PageSums::decode(&mut Cursor::new(&out), 3), Some(sums.clone()));
        let pages: Vec<_> = sums.pages().collect();
        assert_eq!(
            (pages[0].0.count(), pages[0].1, pages[2].1.len()),
            (2, &[5, 6][..], 63)
        );
        for cut in 0..out.len() {
            assert!(PageSums::decode(&mut Cursor::new(&out[..cut]), 3).is_none());
        }
    }
}
