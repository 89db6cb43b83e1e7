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
use crc32c::crc32c;

/// The version of the format this build writes and reads.
pub(super) const VERSION: u32 = 1;
/// Sheets set apart for the log: it may not be longer.
pub(super) const LOG_SHEETS: u64 = 1 << 10;
/// Sheets set apart for the map.
pub(super) const MAP_SHEETS: u64 = 1 << 10;
/// The sheet of page 0.
const DATA: u64 = LOG_SHEETS + MAP_SHEETS;
/// Lines in a sheet, and pages.
pub(super) const SHEET: u64 = LINES_PER_PAGE as u64;

/// Bytes of the root.
pub(super) const ROOT: usize = 64;
const MAGIC: [u8; 4] = *b"TpPk";

/// Where the fields of the root begin.
mod at {
    pub(super) const MAGIC: usize = 0;
    pub(super) const CRC: usize = 4;
    pub(super) const VERSION: usize = 8;
    pub(super) const LOG: usize = 12;
    pub(super) const ID: usize = 16;
    pub(super) const TAIL: usize = 24;
    pub(super) const HEAD: usize = 32;
    pub(super) const PAGES: usize = 40;
    pub(super) const ZERO: usize = 48;
}

// In step with docs/format.md.
const _: () = {
    assert!(at::CRC == at::MAGIC + 4 && at::VERSION == at::CRC + 4 && at::LOG == at::VERSION + 4);
    assert!(at::ID == at::LOG + 4 && at::TAIL == at::ID + 8 && at::HEAD == at::TAIL + 8);
    assert!(at::PAGES == at::HEAD + 8 && at::ZERO == at::PAGES + 8 && at::ZERO < ROOT);
};

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

    /// Where line `line` of the log lies below.
    pub(super) fn log(&self, line: u64) -> (PageId, usize) {
        let place = line % self.lines();
        (PageId(place / SHEET), (place % SHEET) as usize)
    }

    pub(super) fn encode(&self) -> [u8; ROOT] {
        let mut root = [0; ROOT];
        let mut put = |at: usize, bytes: &[u8]| root[at..at + bytes.len()].copy_from_slice(bytes);
        put(at::MAGIC, &MAGIC);
        put(at::VERSION, &VERSION.to_le_bytes());
        put(at::LOG, &self.log_sheets.to_le_bytes());
        put(at::ID, &self.id.to_le_bytes());
        put(at::TAIL, &self.tail.to_le_bytes());
        put(at::HEAD, &self.head.to_le_bytes());
        put(at::PAGES, &self.pages.to_le_bytes());
        let crc = crc32c(&root[at::VERSION..]);
        root[at::CRC..at::VERSION].copy_from_slice(&crc.to_le_bytes());
        root
    }

    /// The root at the beginning of a context.
    ///
    /// # Errors
    /// [`Error::Foreign`] for any other context, [`Error::Damaged`] for a root that cannot be.
    pub(super) fn decode(context: &[u8]) -> Result<Root> {
        let Some(root) = context
            .first_chunk::<ROOT>()
            .filter(|root| root.starts_with(&MAGIC))
        else {
            return Err(Error::Foreign(
                "its pages are not packed: open it with the scheme it was made with".into(),
            ));
        };
        let u32_at = |at: usize| u32::from_le_bytes([root[at], root[at + 1], root[at + 2], root[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let damaged = |why: String| Error::Damaged {
            what: "root of the packed lines",
            at: 0,
            why,
        };
        if u32_at(at::CRC) != crc32c(&root[at::VERSION..]) {
            return Err(damaged("its checksum does not fit".into()));
        }
        let version = u32_at(at::VERSION);
        if version != VERSION {
            return Err(Error::Foreign(format!(
                "packed lines of version {version}, this build reads version {VERSION}"
            )));
        }
        let root = Root {
            log_sheets: u32_at(at::LOG),
            id: u64_at(at::ID),
            tail: u64_at(at::TAIL),
            head: u64_at(at::HEAD),
            pages: u64_at(at::PAGES),
        };
        let used = root.head.checked_sub(root.tail);
        let possible = (super::LEAST_SHEETS..=LOG_SHEETS).contains(&root.log_sheets.into());
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
    fn a_root_is_read_as_written() {
        let root = Root {
            log_sheets: 8,
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
