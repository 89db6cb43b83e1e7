//! The bytes of a next level: its header, and the map that says which pages lie where.
//!
//! ```text
//! | slot 0: header | slot: a page | slot: a page | map | free | slot: a page | ...
//! ```
//!
//! * A slot has the bytes of a page of the region's store, and holds one page, or a part of a map.
//! * Nothing in the file says which map counts: the region's last commit does, with the map's place and checksum. So a
//!   map, and a page, is written where the last commit needs nothing, and counts with the next.

use crate::superblock::LevelMap;
use crc32c::crc32c_append;
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::ops::Range;
use twinpage_core::PageId;
use twinpage_core::record::{self, Mismatch, Record};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const MAGIC: [u8; 8] = *b"tpnextlv";
const MAP_MAGIC: [u8; 8] = *b"tpnextmp";
const VERSION: u32 = 1;

/// The first bytes of the file.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(super) struct Header {
    magic: [u8; 8],
    version: U32,
    crc: U32,
    id: U64,
    base: U64,
    page_bytes: U32,
    zero: [u8; 4],
}

/// The first bytes of a map.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct MapHead {
    magic: [u8; 8],
    id: U64,
    pages: U64,
}

/// A page, in a map.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct MapEntry {
    page: U64,
    object: U64,
    slot: U32,
    sum: U32,
}

// In step with docs/format.md.
const _: () = assert!(size_of::<Header>() == 40 && size_of::<MapHead>() == 24 && size_of::<MapEntry>() == 24);

impl Record for Header {
    const SUM_AT: usize = offset_of!(Header, crc);
    const COVERED: Range<usize> = offset_of!(Header, id)..40;
}

impl Header {
    pub(super) fn new(id: u64, base: u64, page_bytes: usize) -> Header {
        let header = Header {
            magic: MAGIC,
            version: VERSION.into(),
            crc: U32::ZERO,
            id: id.into(),
            base: base.into(),
            page_bytes: (page_bytes as u32).into(),
            zero: [0; 4],
        };
        record::seal(header, &[], 0)
    }

    /// Reads a header.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read(bytes: &[u8]) -> Result<Header, String> {
        let header = record::peek::<Header>(bytes).filter(|header| header.magic == MAGIC);
        let header = header.ok_or("it is something else, not the next level of a region")?;
        if header.version.get() != VERSION {
            let version = header.version.get();
            return Err(format!("it has version {version}; this build reads {VERSION}"));
        }
        match record::verify(&header, &[], 0) {
            Ok(()) => Ok(header),
            Err(Mismatch { found, expected }) => Err(format!(
                "its header is damaged: checksum {found:08x}, expected {expected:08x}"
            )),
        }
    }

    /// Whether it is that of the region at `base` with this number and page size.
    pub(super) fn is_of(&self, id: u64, base: u64, page_bytes: usize) -> bool {
        (self.id.get(), self.base.get()) == (id, base) && self.page_bytes.get() as usize == page_bytes
    }
}

/// Where a page is, what its bytes have as checksum, and which object it is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Held {
    pub(super) object: u64,
    pub(super) slot: u32,
    pub(super) sum: u32,
}

/// The pages of a level.
pub(super) type Map = BTreeMap<PageId, Held>;

/// The checksum of a page.
pub(super) fn sum_of(id: u64, page: PageId, bytes: &[u8]) -> u32 {
    let seed = crc32c_append(0, &id.to_le_bytes());
    crc32c_append(crc32c_append(seed, &page.0.to_le_bytes()), bytes)
}

pub(super) fn encode(id: u64, map: &Map) -> Vec<u8> {
    let head = MapHead {
        magic: MAP_MAGIC,
        id: id.into(),
        pages: (map.len() as u64).into(),
    };
    let mut bytes = head.as_bytes().to_vec();
    for (page, held) in map {
        let entry = MapEntry {
            page: page.0.into(),
            object: held.object.into(),
            slot: held.slot.into(),
            sum: held.sum.into(),
        };
        bytes.extend_from_slice(entry.as_bytes());
    }
    bytes
}

/// The size in bytes of a map of `pages` pages.
pub(super) fn map_bytes(pages: usize) -> usize {
    size_of::<MapHead>() + pages * size_of::<MapEntry>()
}

/// The map that a commit names.
///
/// # Errors
/// What is wrong with it.
pub(super) fn decode(named: &LevelMap, bytes: &[u8]) -> Result<Map, String> {
    let found = crc32c_append(0, bytes);
    if found != named.sum {
        return Err(format!(
            "its map at byte {} is damaged: checksum {found:08x}, expected {:08x}",
            named.at, named.sum
        ));
    }
    let odd = || format!("its map at byte {} is none", named.at);
    let (head, rest) = MapHead::read_from_prefix(bytes).map_err(|_| odd())?;
    if head.magic != MAP_MAGIC || head.id.get() != named.id {
        return Err(odd());
    }
    let entries = <[MapEntry]>::ref_from_bytes(rest).map_err(|_| odd())?;
    let held = |entry: &MapEntry| Held {
        object: entry.object.get(),
        slot: entry.slot.get(),
        sum: entry.sum.get(),
    };
    let map: Map = (entries.iter())
        .map(|entry| (PageId(entry.page.get()), held(entry)))
        .collect();
    match map.len() as u64 == head.pages.get() && map.len() == entries.len() {
        true => Ok(map),
        false => Err(odd()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(bytes: &[u8]) -> LevelMap {
        LevelMap {
            id: 7,
            at: 4096,
            bytes: bytes.len() as u64,
            sum: crc32c_append(0, bytes),
        }
    }

    #[test]
    fn a_map_is_read_as_it_was_written_and_every_flip_is_noticed() {
        let held = |slot| Held {
            object: 3,
            slot,
            sum: 9,
        };
        let map = Map::from([(PageId(1), held(1)), (PageId(70), held(2))]);
        let bytes = encode(7, &map);
        assert_eq!(bytes.len(), map_bytes(2));
        let named = named(&bytes);
        assert_eq!(decode(&named, &bytes), Ok(map));
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            assert!(decode(&named, &flipped).is_err(), "byte {at}");
        }
        assert!(decode(&LevelMap { id: 8, ..named }, &bytes).is_err());
    }

    #[test]
    fn a_map_with_a_right_checksum_and_wrong_counts_is_refused() {
        let bytes = encode(7, &Map::new());
        for cut in 0..bytes.len() {
            assert!(decode(&named(&bytes[..cut]), &bytes[..cut]).is_err());
        }
        let mut more = bytes;
        more[16] = 1;
        assert!(decode(&named(&more), &more).is_err());
    }

    #[test]
    fn every_flip_of_a_header_is_noticed() {
        let header = Header::new(7, 1 << 44, 4096);
        assert!(Header::read(header.as_bytes()).unwrap().is_of(7, 1 << 44, 4096));
        for at in 0..40 {
            let mut bytes = header.as_bytes().to_vec();
            bytes[at] ^= 1;
            assert!(Header::read(&bytes).is_err(), "byte {at}");
        }
    }
}
