//! A batch: strips of changed lines packed together, written to the log in one piece.
//!
//! ```text
//! | header 40 B | dropped pages | pages and masks of strips | zeros | lines of the strips, back to back | zeros |
//! '------------------ directory ------------------------'   to a line                                 to a page
//! ```
//!
//! * A batch is a whole number of lines of the log and lies in one sheet of it.
//! * Its directory says all there is to know without reading its lines: recovery reads directories.
//! * Dropped pages apply first: what older batches hold of them is no more. Then its own strips.
//! * The directory has a checksum that recovery verifies, the lines another that `check` does.

use super::layout::SHEET;
use crate::dual_page::codec::{Cursor, put_mask, put_number};
use crate::geometry::{LineMask, PageLines};
use crate::record::{self, Record};
use crc32c::crc32c_append;
use std::mem::offset_of;
use std::ops::Range;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of the header.
pub(super) const HEADER: usize = 40;
const MAGIC: [u8; 4] = *b"TpSt";

/// The bytes of the header.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 4],
    crc: U32,
    line: U64,
    lines: U32,
    directory: U32,
    drops: U32,
    strips: U32,
    content_crc: U32,
    zero_36: [u8; 4],
}

impl Record for RawHeader {
    const SUM_AT: usize = offset_of!(RawHeader, crc);
    const COVERED: Range<usize> = offset_of!(RawHeader, line)..HEADER;
}

// In step with docs/format.md.
const _: () = assert!(size_of::<RawHeader>() == HEADER);

/// Sizes of lines and pages here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) line: usize,
    pub(super) page: usize,
}

impl Sizes {
    /// The longest batch, and so the longest directory.
    fn most(self) -> usize {
        self.page * SHEET as usize
    }
}

/// A batch being put together.
#[derive(Debug, Default)]
pub(super) struct Builder {
    drops: Vec<u8>,
    strips: Vec<u8>,
    /// Room for the directory and, right behind it, the content of the strips.
    bytes: Vec<u8>,
    dropped: u32,
    /// The strips so far.
    pub(super) packed: Vec<(u64, LineMask)>,
    /// One past the last dropped page, and the page of the last strip.
    next: [u64; 2],
}

impl Builder {
    /// Empties it and keeps its memory.
    pub(super) fn clear(&mut self, sizes: Sizes) {
        self.drops.clear();
        self.strips.clear();
        self.bytes.resize(sizes.most(), 0);
        self.packed.clear();
        self.dropped = 0;
        self.next = [0; 2];
    }

    /// Bytes the batch takes so far, before it is padded.
    fn len(&self, sizes: Sizes) -> usize {
        self.directory().next_multiple_of(sizes.line) + self.bytes.len() - sizes.most()
    }

    /// Bytes of the directory.
    fn directory(&self) -> usize {
        HEADER + self.drops.len() + self.strips.len()
    }

    /// Adds a dropped page, if it fits `limit` bytes. Pages ascend.
    pub(super) fn drop_page(&mut self, page: u64, sizes: Sizes, limit: usize) -> bool {
        let had = self.drops.len();
        put_number(&mut self.drops, page - self.next[0]);
        if self.len(sizes) > limit {
            self.drops.truncate(had);
            return false;
        }
        self.next[0] = page + 1;
        self.dropped += 1;
        true
    }

    /// Adds lines of a page, if they fit `limit` bytes. Pages ascend.
    pub(super) fn strip(&mut self, lines: PageLines<'_>, sizes: Sizes, limit: usize) -> bool {
        let page = lines.page.0;
        let had = self.strips.len();
        put_number(&mut self.strips, page - self.next[1]);
        put_mask(&mut self.strips, lines.held);
        if self.len(sizes) + lines.bytes.len() > limit {
            self.strips.truncate(had);
            return false;
        }
        self.bytes.extend_from_slice(lines.bytes);
        self.next[1] = page + 1;
        self.packed.push((page, lines.held));
        true
    }

    /// The bytes of the batch, to be written from line `line` of the log on, and where in them the
    /// lines of the strips begin.
    pub(super) fn finish(&mut self, line: u64, seed: u32, sizes: Sizes) -> (&[u8], usize) {
        let sum = crc32c_append(seed, &self.bytes[sizes.most()..]);
        let directory = self.directory();
        let content = directory.next_multiple_of(sizes.line);
        let lines = self.len(sizes).div_ceil(sizes.page);
        let start = sizes.most() - content;
        self.bytes.resize(start + lines * sizes.page, 0);
        let out = &mut self.bytes[start..];
        let mut end = HEADER;
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        for entries in [&self.drops, &self.strips] {
            put(end, entries);
            end += entries.len();
        }
        out[directory..content].fill(0);
        let header = RawHeader {
            magic: MAGIC,
            crc: U32::ZERO,
            line: line.into(),
            lines: (lines as u32).into(),
            directory: (directory as u32).into(),
            drops: self.dropped.into(),
            strips: (self.packed.len() as u32).into(),
            content_crc: sum.into(),
            zero_36: [0; 4],
        };
        let header = record::seal(header, &out[HEADER..directory], seed);
        out[..HEADER].copy_from_slice(header.as_bytes());
        (out, content)
    }
}

/// The first bytes of a batch, not verified yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    raw: RawHeader,
    /// Lines of the log it takes.
    pub(super) lines: u32,
    /// Bytes of its directory, header included.
    pub(super) directory: usize,
}

impl Header {
    /// The header of the batch at line `line` of the log.
    ///
    /// # Errors
    /// What makes it impossible.
    pub(super) fn read(bytes: &[u8], line: u64, sizes: Sizes) -> Result<Header, String> {
        let raw = record::peek::<RawHeader>(bytes).filter(|raw| raw.magic == MAGIC);
        let raw = raw.ok_or("no batch begins here")?;
        if raw.line.get() != line {
            return Err(format!(
                "it says it is for line {} of the log, not {line}",
                raw.line
            ));
        }
        let header = Header {
            raw,
            lines: raw.lines.get(),
            directory: raw.directory.get() as usize,
        };
        let room = SHEET - line % SHEET;
        if header.lines == 0
            || u64::from(header.lines) > room
            || !(HEADER..=header.lines as usize * sizes.page).contains(&header.directory)
        {
            return Err(format!(
                "a directory of {} bytes in {} lines, {room} are left of the sheet",
                header.directory, header.lines
            ));
        }
        Ok(header)
    }
}

/// What a directory says.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Directory {
    /// Pages of which older batches hold nothing any more.
    pub(super) drops: Vec<u64>,
    /// Pages and their lines.
    pub(super) strips: Vec<(u64, LineMask)>,
    /// Where the lines of the strips begin, in bytes from the start of the batch.
    pub(super) content: usize,
    /// Bytes of the lines of the strips.
    pub(super) content_len: usize,
    /// Their checksum.
    pub(super) content_crc: u32,
}

impl Directory {
    /// The directory in `bytes`, all of it, of which `header` is the beginning.
    ///
    /// # Errors
    /// Its fault.
    pub(super) fn read(
        header: Header,
        bytes: &[u8],
        seed: u32,
        pages: u64,
        sizes: Sizes,
    ) -> Result<Directory, String> {
        record::verify(&header.raw, &bytes[HEADER..], seed).map_err(|mismatch| mismatch.to_string())?;
        let mut body = Cursor::new(&bytes[HEADER..]);
        Directory::entries(header, &mut body, pages, sizes).ok_or_else(|| body.refuse())
    }

    fn entries(header: Header, body: &mut Cursor<'_>, pages: u64, sizes: Sizes) -> Option<Directory> {
        let mut directory = Directory {
            content: header.directory.next_multiple_of(sizes.line),
            content_crc: header.raw.content_crc.get(),
            ..Directory::default()
        };
        let below = |next: u64, gap: u64| next.checked_add(gap).filter(|&page| page < pages);
        let mut next = 0;
        for _ in 0..header.raw.drops.get() {
            let page = below(next, body.named("list of dropped pages").number()?)?;
            directory.drops.push(page);
            next = page + 1;
        }
        next = 0;
        for _ in 0..header.raw.strips.get() {
            let page = below(next, body.named("list of strips").number()?)?;
            let mask = body.mask().filter(|mask| !mask.is_empty())?;
            directory.content_len += mask.count() * sizes.line;
            directory.strips.push((page, mask));
            next = page + 1;
        }
        let lines = (directory.content + directory.content_len).div_ceil(sizes.page);
        (body.named("number of lines").left() == 0 && lines == header.lines as usize).then_some(directory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::PageId;
    use proptest::collection::{btree_map, btree_set};
    use proptest::prelude::*;
    use zerocopy::FromZeros;

    const SIZES: Sizes = Sizes { line: 64, page: 4096 };
    const PAGES: u64 = 1 << 33;

    fn parse(bytes: &[u8], line: u64) -> Result<Directory, String> {
        let header = Header::read(bytes, line, SIZES)?;
        Directory::read(header, &bytes[..header.directory], 5, PAGES, SIZES)
    }

    proptest! {
        #[test]
        fn what_is_packed_is_read(
            drops in btree_set(0..PAGES, 0..30),
            strips in btree_map(0..PAGES, 1_u64.., 0..30),
            limit in 1_usize..20,
            line in 0_u64..1 << 40,
            flip: prop::sample::Index,
        ) {
            let mut builder = Builder::default();
            let limit = limit * 4096;
            builder.clear(SIZES);
            let dropped: Vec<u64> = drops.into_iter().filter(|&page| builder.drop_page(page, SIZES, limit)).collect();
            for (&number, &mask) in &strips {
                let mask = LineMask(mask);
                let bytes: Vec<u8> = mask.runs().flatten().flat_map(|k| [k as u8; 64]).collect();
                let page = PageId(number);
                builder.strip(PageLines { page, held: mask, changed: mask, line_bytes: 64, bytes: &bytes }, SIZES, limit);
            }
            let packed = builder.packed.clone();
            let (out, content) = builder.finish(line & !63, 5, SIZES);
            let mut out = out.to_vec();
            prop_assert!(out.len() <= limit && out.len().is_multiple_of(4096));
            let read = parse(&out, line & !63).unwrap();
            prop_assert_eq!((&read.drops, &read.strips, read.content), (&dropped, &packed, content));
            let lines: Vec<u8> = packed.iter()
                .flat_map(|(_, mask)| mask.runs().flatten().flat_map(|k| vec![k as u8; 64]))
                .collect();
            prop_assert_eq!(&out[content..content + read.content_len], &lines[..]);
            prop_assert_eq!(crc32c_append(5, &lines), read.content_crc);
            let at = flip.index(Header::read(&out, line & !63, SIZES).unwrap().directory);
            out[at] ^= 0x10;
            prop_assert!(parse(&out, line & !63).is_err());
        }

        #[test]
        fn any_bytes_are_read_or_refused(body in prop::collection::vec(any::<u8>(), 0..200), drops in 0_u32..9, strips in 0_u32..9) {
            let raw = RawHeader { drops: drops.into(), strips: strips.into(), ..RawHeader::new_zeroed() };
            let header = Header { raw, lines: 1, directory: HEADER + body.len() };
            let _ = Directory::entries(header, &mut Cursor::new(&body), PAGES, SIZES);
        }
    }
}
