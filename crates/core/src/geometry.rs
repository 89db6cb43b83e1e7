//! Pages, lines and the masks that name them.
//!
//! * A page is 64 lines, so a set of its lines is one `u64`.
//! * A line is the smallest piece a scheme keeps apart: 64 bytes on memory, 4096 on a disk.
//! * A [`PageId`] is a place in the page space, not an address: the owner of the space decides what
//!   a page means.

use crate::error::{Error, Result};
use std::fmt;
use std::ops::{BitAnd, BitOr, BitXor, BitXorAssign, Not, Range};

/// Lines in a page, and bits in a [`LineMask`].
pub const LINES_PER_PAGE: usize = 64;

/// A page of the page space. Dense numbers from zero keep the table small.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PageId(pub u64);

/// A set of the lines of one page; bit `k` is line `k`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct LineMask(pub u64);

impl LineMask {
    /// No line.
    pub const NONE: LineMask = LineMask(0);
    /// Every line of a page.
    pub const ALL: LineMask = LineMask(!0);

    /// `count` lines from line `first`. They must lie in one page.
    #[must_use]
    pub fn run(first: usize, count: usize) -> LineMask {
        debug_assert!(first + count <= LINES_PER_PAGE);
        match count {
            0 => LineMask::NONE,
            _ => LineMask((!0 >> (LINES_PER_PAGE - count)) << first),
        }
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many lines are in the set.
    #[must_use]
    pub fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether line `line` is in the set.
    #[must_use]
    pub fn has(self, line: usize) -> bool {
        self.0 >> line & 1 == 1
    }

    /// The lines, joined where they touch: the ranges to read or write at once.
    pub fn runs(self) -> impl Iterator<Item = Range<usize>> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            if rest == 0 {
                return None;
            }
            let start = rest.trailing_zeros() as usize;
            let length = (rest >> start).trailing_ones() as usize;
            rest &= !LineMask::run(start, length).0;
            Some(start..start + length)
        })
    }
}

impl fmt::Debug for LineMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", self.0)
    }
}

impl BitAnd for LineMask {
    type Output = LineMask;
    fn bitand(self, other: LineMask) -> LineMask {
        LineMask(self.0 & other.0)
    }
}

impl BitOr for LineMask {
    type Output = LineMask;
    fn bitor(self, other: LineMask) -> LineMask {
        LineMask(self.0 | other.0)
    }
}

impl BitXor for LineMask {
    type Output = LineMask;
    fn bitxor(self, other: LineMask) -> LineMask {
        LineMask(self.0 ^ other.0)
    }
}

impl BitXorAssign for LineMask {
    fn bitxor_assign(&mut self, other: LineMask) {
        self.0 ^= other.0;
    }
}

impl Not for LineMask {
    type Output = LineMask;
    fn not(self) -> LineMask {
        LineMask(!self.0)
    }
}

/// How a medium is cut: bytes a line, and bytes an extent (the piece the file grows by).
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Geometry {
    line_bytes: u32,
    extent_bytes: u32,
}

impl Geometry {
    /// Memory files and DAX: 64-byte lines, 4 KiB pages, 2 MiB extents.
    pub const MEMORY: Geometry = Geometry {
        line_bytes: 64,
        extent_bytes: 2 << 20,
    };
    /// Files on a disk: 4 KiB lines, 256 KiB pages, 2 MiB extents.
    pub const DISK: Geometry = Geometry {
        line_bytes: 4096,
        extent_bytes: 2 << 20,
    };

    /// Lines of `line_bytes` (a power of two from 64 to 65536) and extents that hold a whole number of pages.
    ///
    /// # Errors
    /// [`Error::Invalid`] names the number that does not fit.
    pub fn new(line_bytes: u32, extent_bytes: u32) -> Result<Geometry> {
        if !line_bytes.is_power_of_two() || !(64..=65536).contains(&line_bytes) {
            return Err(Error::Invalid(format!(
                "a line of {line_bytes} bytes: expected a power of two from 64 to 65536"
            )));
        }
        let page = line_bytes * LINES_PER_PAGE as u32;
        if extent_bytes == 0 || !extent_bytes.is_multiple_of(page) {
            return Err(Error::Invalid(format!(
                "an extent of {extent_bytes} bytes: expected a multiple of the {page}-byte page"
            )));
        }
        Ok(Geometry {
            line_bytes,
            extent_bytes,
        })
    }

    /// Bytes in a line.
    #[must_use]
    pub fn line_bytes(self) -> usize {
        self.line_bytes as usize
    }

    /// Bytes in a page: 64 lines.
    #[must_use]
    pub fn page_bytes(self) -> usize {
        self.line_bytes() * LINES_PER_PAGE
    }

    /// Bytes in an extent.
    #[must_use]
    pub fn extent_bytes(self) -> usize {
        self.extent_bytes as usize
    }

    /// Pages in an extent.
    #[must_use]
    pub fn extent_pages(self) -> u64 {
        (self.extent_bytes() / self.page_bytes()) as u64
    }
}

/// Some lines of one page: what they hold lies in `bytes`, in ascending order without gaps.
#[derive(Clone, Copy, Debug)]
pub struct PageLines<'a> {
    /// The page.
    pub page: PageId,
    /// The lines that `bytes` holds.
    pub held: LineMask,
    /// Those of them that are newer than the store's. The others are as the store has them, so that a scheme
    /// of a coarser grain need not read them.
    pub changed: LineMask,
    /// Bytes of a line.
    pub line_bytes: usize,
    /// The content of the lines of `held`.
    pub bytes: &'a [u8],
}

impl<'a> PageLines<'a> {
    /// Consecutive lines of a page from line `first` on, all of them changed. They must lie in the page.
    #[must_use]
    pub fn from(page: PageId, first: usize, bytes: &'a [u8], line_bytes: usize) -> PageLines<'a> {
        let held = LineMask::run(first, bytes.len() / line_bytes);
        PageLines {
            page,
            held,
            changed: held,
            line_bytes,
            bytes,
        }
    }

    /// The same lines, of which only `changed` are newer than the store's.
    #[must_use]
    pub fn only(self, changed: LineMask) -> PageLines<'a> {
        PageLines { changed, ..self }
    }

    /// The content of neighbours among the lines: all of `run` must be held.
    #[must_use]
    #[inline]
    pub fn run(&self, run: Range<usize>) -> &'a [u8] {
        let before = self.held & LineMask::run(0, run.start);
        let start = before.count() * self.line_bytes;
        &self.bytes[start..start + run.len() * self.line_bytes]
    }

    /// The content of one line that is held.
    #[must_use]
    pub fn line(&self, line: usize) -> &'a [u8] {
        self.run(line..line + 1)
    }

    /// Neighbours among the lines by themselves, changed. All of `run` must be held.
    #[must_use]
    pub fn part(&self, run: Range<usize>) -> PageLines<'a> {
        PageLines::from(self.page, run.start, self.run(run), self.line_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_join_neighbours() {
        let mask = LineMask(0b1011_0110);
        assert_eq!(mask.runs().collect::<Vec<_>>(), [1..3, 4..6, 7..8]);
        assert!(LineMask::ALL.runs().eq(std::iter::once(0..64)));
        assert_eq!(LineMask::NONE.runs().count(), 0);
        assert!(LineMask::run(63, 1).runs().eq(std::iter::once(63..64)));
    }

    #[test]
    fn packed_lines_are_found() {
        let bytes: Vec<u8> = (0..40).collect();
        let lines = PageLines {
            page: PageId(0),
            held: LineMask(0b1011_0110),
            changed: LineMask::NONE,
            line_bytes: 8,
            bytes: &bytes,
        };
        assert_eq!(lines.run(1..3), &bytes[..16]);
        assert_eq!(lines.run(2..3), &bytes[8..16]);
        assert_eq!(lines.run(7..8), &bytes[32..]);
    }

    #[test]
    fn geometry_refuses_what_cannot_be() {
        assert!(Geometry::new(64, 4096).is_ok());
        assert!(Geometry::new(63, 4096).is_err());
        assert!(Geometry::new(32, 4096).is_err());
        assert!(Geometry::new(64, 4095).is_err());
        assert!(Geometry::new(64, 0).is_err());
    }
}
