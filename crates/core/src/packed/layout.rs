//! Where everything lies in the scheme below, and the root that says how far the log reaches.
//!
//! ```text
//! pages below:   0 .. 1024        1024 .. 2048       2048 ..
//!                | the log, a ring | the map          | sheets: 64 pages each, one a line   |
//! ```
//!
//! * A page here is a line below: a *sheet* is a page below, and holds 64 pages.
//! * The log and the map have their sheets set apart; those never written cost nothing.
//! * The root is the first 64 bytes of the context below, so it changes exactly when a commit does.
//!
//! `docs/format.md` has the same, byte by byte.

use crate::error::{Error, Result};
use crate::geometry::{Geometry, LINES_PER_PAGE, PageId};
use crate::record::{self, Record};
use crc32c::crc32c;
use std::mem::offset_of;
use std::ops::{Range, RangeInclusive};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, transmute};

/// The version of the format this build writes and reads.
pub(super) const VERSION: u32 = 1;
/// Sheets set apart for the log: it may not be longer.
pub(super) const LOG_SHEETS: u64 = 1 << 10;
/// Sheets set apart for the map.
pub(super) const MAP_SHEETS: u64 = 1 << 10;
/// The sheet of page 0.
const DATA: u64 = LOG_SHEETS + MAP_SHEETS;
/// Sheets of the log of a store with few pages.
pub(super) const FIRST_SHEETS: u64 = 4;
/// Lines in a sheet, and pages.
pub(super) const SHEET: u64 = LINES_PER_PAGE as u64;

/// How many sheets a log may have.
const POSSIBLE: RangeInclusive<u64> = super::LEAST_SHEETS..=LOG_SHEETS;

/// Bytes of the root.
pub(super) const ROOT: usize = 64;
const MAGIC: [u8; 4] = *b"TpPk";

/// The bytes of the root.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct RawRoot {
    magic: [u8; 4],
    crc: U32,
    version: U32,
    log_sheets: U32,
    id: U64,
    tail: U64,
    head: U64,
    pages: U64,
    limit_sheets: U32,
    zero_52: [u8; 12],
}

impl Record for RawRoot {
    const SUM_AT: usize = offset_of!(RawRoot, crc);
    const COVERED: Range<usize> = offset_of!(RawRoot, version)..ROOT;
}

// In step with docs/format.md.
const _: () = assert!(size_of::<RawRoot>() == ROOT);

/// How pages here are cut, and where they lie below.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    pub(super) geometry: Geometry,
}

impl Layout {
    /// Pages over a scheme whose lines are as large as they are.
    ///
    /// # Errors
    /// [`Error::Invalid`] where its lines are too small to be cut into 64.
    pub(super) fn over(below: Geometry) -> Result<Layout> {
        let (line, extent) = (below.line_bytes(), below.extent_bytes());
        let Ok(geometry) = Geometry::new((line / LINES_PER_PAGE) as u32, extent as u32) else {
            return Err(Error::Invalid(format!(
                "lines of {line} bytes have nothing to gain from packing: use the scheme below as it is, \
                 or one with lines of 4096 bytes or more"
            )));
        };
        Ok(Layout { geometry })
    }

    /// Bytes of a line.
    pub(super) fn line_bytes(self) -> usize {
        self.geometry.line_bytes()
    }

    /// Bytes of a page, which is a line below.
    pub(super) fn page_bytes(self) -> usize {
        self.geometry.page_bytes()
    }

    /// Where a page lies below.
    pub(super) fn page(self, page: u64) -> (PageId, usize) {
        (Layout::sheet(page / SHEET), (page % SHEET) as usize)
    }

    /// The page below of a sheet.
    pub(super) fn sheet(sheet: u64) -> PageId {
        PageId(DATA + sheet)
    }

    /// Masks in a line of the map.
    pub(super) fn masks(self) -> u64 {
        self.page_bytes() as u64 / 8 - 1
    }

    /// Where line `number` of the map lies below.
    pub(super) fn map(number: u64) -> (PageId, usize) {
        (PageId(LOG_SHEETS + number / SHEET), (number % SHEET) as usize)
    }

    /// One past the last page there can be: the map has no room for more.
    pub(super) fn page_limit(self) -> u64 {
        MAP_SHEETS * SHEET * self.masks() * SHEET
    }
}

/// What every commit says of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Root {
    /// Sheets of the log.
    pub(super) log_sheets: u32,
    /// Sheets it may grow to.
    pub(super) limit_sheets: u32,
    /// Tells this store's log from others that were on the same medium.
    pub(super) id: u64,
    /// The first line of the log in use. Lines are numbered on for ever; line `n` lies at `n` modulo
    /// the lines there are.
    pub(super) tail: u64,
    /// The line after the last.
    pub(super) head: u64,
    /// Pages that hold something.
    pub(super) pages: u64,
}

impl Root {
    /// What every checksum of the log and the map begins with.
    pub(super) fn seed(&self) -> u32 {
        crc32c(&self.id.to_le_bytes())
    }

    /// Lines of the log.
    pub(super) fn lines(&self) -> u64 {
        u64::from(self.log_sheets) * SHEET
    }

    /// Lines of a log that has `percent` of the lines that the pages have below, in whole sheets.
    pub(super) fn fitting_lines(&self, pages: u64, percent: u32) -> u64 {
        let limit = u64::from(self.limit_sheets);
        let sheets = pages.saturating_mul(percent.into()) / 100 / SHEET;
        sheets.clamp(FIRST_SHEETS.min(limit), limit) * SHEET
    }

    /// The same root with a log twice or half as long, if that is nearer to `fitting` lines and every line in use
    /// has the same place in both.
    pub(super) fn fitted(self, fitting: u64) -> Root {
        let now = self.lines();
        let log_sheets = match self.log_sheets {
            sheets if fitting >= 2 * now => 2 * sheets,
            sheets if 4 * fitting <= now => sheets / 2,
            sheets => sheets,
        };
        let fitted = Root { log_sheets, ..self };
        let last = self.head.max(self.tail + 1) - 1;
        let lap = |root: &Root| {
            (
                self.tail / root.lines() == last / root.lines(),
                self.tail % root.lines(),
            )
        };
        let stays = self.tail == self.head || lap(&self) == lap(&fitted) && lap(&self).0;
        if stays { fitted } else { self }
    }

    /// Where line `line` of the log lies below.
    pub(super) fn log(&self, line: u64) -> (PageId, usize) {
        let place = line % self.lines();
        (PageId(place / SHEET), (place % SHEET) as usize)
    }

    pub(super) fn encode(&self) -> [u8; ROOT] {
        let raw = RawRoot {
            magic: MAGIC,
            crc: U32::ZERO,
            version: VERSION.into(),
            log_sheets: self.log_sheets.into(),
            id: self.id.into(),
            tail: self.tail.into(),
            head: self.head.into(),
            pages: self.pages.into(),
            limit_sheets: self.limit_sheets.into(),
            zero_52: [0; 12],
        };
        transmute!(record::seal(raw, &[], 0))
    }

    /// The root at the beginning of a context.
    ///
    /// # Errors
    /// [`Error::Foreign`] for any other context, [`Error::Damaged`] for a root that cannot be.
    pub(super) fn decode(context: &[u8]) -> Result<Root> {
        let Some(raw) = record::peek::<RawRoot>(context).filter(|raw| raw.magic == MAGIC) else {
            return Err(Error::Foreign(
                "its pages are not packed: open it with the scheme it was made with".into(),
            ));
        };
        let damaged = |why: String| Error::damaged("root of the packed lines", 0, why);
        record::verify(&raw, &[], 0).map_err(|mismatch| damaged(mismatch.to_string()))?;
        let version = raw.version.get();
        if version != VERSION {
            return Err(Error::Foreign(format!(
                "packed lines of version {version}, this build reads version {VERSION}"
            )));
        }
        let root = Root {
            log_sheets: raw.log_sheets.get(),
            id: raw.id.get(),
            tail: raw.tail.get(),
            head: raw.head.get(),
            pages: raw.pages.get(),
            // Earlier builds had logs of one length, and zero here.
            limit_sheets: match raw.limit_sheets.get() {
                0 => raw.log_sheets.get(),
                limit => limit,
            },
        };
        let used = root.head.checked_sub(root.tail);
        let sheets = [root.log_sheets, root.limit_sheets];
        let possible = sheets
            .map(u64::from)
            .iter()
            .all(|sheets| POSSIBLE.contains(sheets));
        if !possible || used.is_none_or(|used| used > root.lines()) {
            return Err(damaged(format!(
                "a log of {} sheets in use from line {} to {}",
                root.log_sheets, root.tail, root.head
            )));
        }
        Ok(root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_lines_are_refused() {
        let why = Layout::over(Geometry::MEMORY).unwrap_err().to_string();
        assert!(why.contains("nothing to gain"), "{why}");
        let layout = Layout::over(Geometry::DISK).unwrap();
        assert_eq!(layout.geometry, Geometry::MEMORY);
        assert_eq!(layout.page(64 * 7 + 5), (PageId(2048 + 7), 5));
    }

    #[test]
    fn a_log_changes_its_length_where_no_line_in_use_moves() {
        let root = |log_sheets, tail, head| Root {
            log_sheets,
            limit_sheets: 16,
            id: 1,
            tail,
            head,
            pages: 0,
        };
        let few = 2 * 4 * SHEET;
        for (sheets, tail, head, pages, expected) in [
            (4, 0, 0, 2 * few, 8),
            (4, 10, 250, 2 * few, 8),
            (4, 300, 500, 2 * few, 4), // An odd lap of the ring: line 300 would lie elsewhere.
            (4, 520, 700, 2 * few, 8),
            (4, 250, 270, 2 * few, 4), // Around its end.
            (4, 250, 256, 2 * few, 8),
            (4, 10, 250, 2 * few - 2, 4),
            (16, 10, 250, u64::MAX, 16), // The limit.
            (16, 10, 250, few, 8),
            (16, 600, 650, few, 16),
            (16, 1030, 1100, few, 8),
            (16, 77, 77, few, 8),
            (8, 10, 250, few, 8), // A half would be enough, and soon too little.
        ] {
            let before = root(sheets, tail, head);
            let fitted = before.fitted(before.fitting_lines(pages, 50));
            assert_eq!(
                fitted.log_sheets, expected,
                "{sheets} sheets, {tail}..{head}, {pages} pages"
            );
            let moved = (tail..head).find(|&line| fitted.log(line) != before.log(line));
            assert_eq!(moved, None);
        }
    }

    #[test]
    fn a_root_of_an_earlier_build_has_a_log_of_one_length() {
        let root = Root {
            log_sheets: 8,
            limit_sheets: 0,
            id: 3,
            tail: 0,
            head: 5,
            pages: 12,
        };
        assert_eq!(Root::decode(&root.encode()).unwrap().limit_sheets, 8);
    }

    #[test]
    fn a_root_is_read_as_written() {
        let root = Root {
            log_sheets: 8,
            limit_sheets: 16,
            id: 0x1122_3344_5566_7788,
            tail: 70,
            head: 300,
            pages: 12,
        };
        let bytes = root.encode();
        assert_eq!(Root::decode(&bytes).unwrap(), root);
        for at in 0..ROOT {
            let mut flipped = bytes;
            flipped[at] ^= 1;
            assert!(Root::decode(&flipped).is_err(), "byte {at}");
            assert!(Root::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
    }
}
