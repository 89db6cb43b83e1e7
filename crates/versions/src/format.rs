//! What is in a file, byte for byte: `docs/format.md`, "Versioned arrays".
//!
//! * A header in one of two slots says what the array is; the valid one of the higher generation counts.
//! * One word says up to which update, or which step, all is durable.
//! * Every number has 16 bits that depend on it and on its place, so that a flipped one is noticed.

use crate::error::{Error, Result};
use std::mem::offset_of;
use std::path::Path;
use twinpage_core::Error as Damage;
use twinpage_core::record::{self, Record};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, transmute};

/// The first bytes of a header.
pub(crate) const MAGIC: [u8; 8] = *b"tp-array";
/// The newest version of the format: that of planes, whose steps may have seals. Elements have version 1, and planes of
/// version 1 are read.
pub const VERSION: u32 = 2;
/// Bytes of a header.
pub(crate) const HEADER_BYTES: usize = 256;
/// Where the headers are.
pub(crate) const HEADERS: [u64; 2] = [0, 2048];
/// Where the durable word is.
pub(crate) const WORD: u64 = 4096;
/// Where readers see which word is durable: it is set when the word is known to have arrived.
pub(crate) const CONFIRMED: u64 = 4096 + 64;
/// Where the seals of steps are: a durable word, and a sum of its plane.
pub(crate) const SEALS: [u64; 2] = [4096 + 128, 4096 + 192];
/// Bytes of a seal.
pub(crate) const SEAL_BYTES: u64 = 16;
/// Where elements or planes begin.
pub(crate) const FIRST: u64 = 8192;
/// What everything begins at a multiple of: no medium writes more at once.
pub(crate) const GRAIN: u64 = 4096;
/// The byte order of an array of a little-endian machine.
const LITTLE_ENDIAN: u8 = 1;
const NAME_BYTES: usize = 128;
/// Values of one version that lie together are about this many bytes.
const CHUNK_BYTES: u64 = 64 << 10;

/// What an array is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Each element has versions.
    Elements,
    /// The whole array has versions.
    Planes,
}

const ELEMENTS: u8 = 1;
const PLANES: u8 = 2;

/// The bytes of a header.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    version: U32,
    kind: u8,
    versions: u8,
    order: u8,
    zero_15: u8,
    align: U32,
    name_bytes: U32,
    value_bytes: U64,
    count: U64,
    per_block: U64,
    first: U64,
    stride: U64,
    generation: U64,
    name: [u8; NAME_BYTES],
    zero_200: [u8; 52],
    crc: U32,
}

impl Record for RawHeader {
    const SUM_AT: usize = offset_of!(RawHeader, crc);
}

// In step with docs/format.md.
const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES);

/// What a file says of its array.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Header {
    /// Of the format.
    pub version: u32,
    /// Elements or planes.
    pub kind: Kind,
    /// Versions of each element, or planes: 2 or 3.
    pub versions: u8,
    /// Bytes of a value.
    pub value_bytes: u64,
    /// What a value's address is a multiple of.
    pub align: u32,
    /// Values.
    pub count: u64,
    /// Elements of a block; 0 for planes.
    pub per_block: u64,
    /// Where the first block or plane begins, in bytes from the start of the file.
    pub first: u64,
    /// From the beginning of a block or plane to that of the next.
    pub stride: u64,
    /// Counts the headers written.
    pub generation: u64,
    /// The type of the values, without modules.
    pub type_name: String,
}

impl Header {
    /// That of a new array of `T`.
    pub(crate) fn of<T>(kind: Kind, versions: usize, count: u64, per_block: Option<u64>) -> Header {
        let value_bytes = size_of::<T>() as u64;
        let header = Header {
            version: Header::newest_version(kind),
            kind,
            versions: versions as u8,
            value_bytes,
            align: align_of::<T>() as u32,
            count,
            per_block: match kind {
                Kind::Elements => per_block.unwrap_or_else(|| suits(value_bytes)),
                Kind::Planes => 0,
            },
            first: FIRST,
            stride: 0,
            generation: 1,
            type_name: shortened(crate::value::name_of::<T>()),
        };
        Header {
            stride: match kind {
                Kind::Elements => Blocks::of(&header).bytes(),
                Kind::Planes => {
                    let bytes = count.saturating_mul(value_bytes);
                    // That of no plane (`is_possible`).
                    bytes.checked_next_multiple_of(GRAIN).unwrap_or(u64::MAX)
                }
            },
            ..header
        }
    }

    /// The version that new arrays have.
    fn newest_version(kind: Kind) -> u32 {
        match kind {
            Kind::Elements => 1,
            Kind::Planes => VERSION,
        }
    }

    /// Bytes of the file, of an array that is possible.
    pub(crate) fn file_bytes(&self) -> u64 {
        let pieces = match self.kind {
            Kind::Elements => self.count.div_ceil(self.per_block),
            Kind::Planes => u64::from(self.versions),
        };
        self.first + pieces * self.stride
    }

    /// What a person calls it.
    #[must_use]
    pub fn describe(&self) -> String {
        let (versions, what) = match self.kind {
            Kind::Elements => ("versions", "elements"),
            Kind::Planes => ("planes", "values in planes"),
        };
        format!(
            "{} {what} of type {} ({} bytes, aligned to {}) in {} {versions}",
            self.count, self.type_name, self.value_bytes, self.align, self.versions
        )
    }

    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut name = [0; NAME_BYTES];
        name[..self.type_name.len()].copy_from_slice(self.type_name.as_bytes());
        let raw = RawHeader {
            magic: MAGIC,
            version: self.version.into(),
            kind: match self.kind {
                Kind::Elements => ELEMENTS,
                Kind::Planes => PLANES,
            },
            versions: self.versions,
            order: LITTLE_ENDIAN,
            zero_15: 0,
            align: self.align.into(),
            name_bytes: (self.type_name.len() as u32).into(),
            value_bytes: self.value_bytes.into(),
            count: self.count.into(),
            per_block: self.per_block.into(),
            first: self.first.into(),
            stride: self.stride.into(),
            generation: self.generation.into(),
            name,
            zero_200: [0; 52],
            crc: U32::ZERO,
        };
        transmute!(record::seal(raw, &[], 0))
    }

    /// A header, if the bytes are a sealed one, and its byte order.
    fn decode(record: &[u8; HEADER_BYTES]) -> Option<(Header, u8)> {
        let raw: RawHeader = transmute!(*record);
        if raw.magic != MAGIC || record::verify(&raw, &[], 0).is_err() {
            return None;
        }
        let name = raw.name.get(..raw.name_bytes.get() as usize)?;
        let header = Header {
            version: raw.version.get(),
            kind: match raw.kind {
                ELEMENTS => Kind::Elements,
                PLANES => Kind::Planes,
                _ => return None,
            },
            versions: raw.versions,
            value_bytes: raw.value_bytes.get(),
            align: raw.align.get(),
            count: raw.count.get(),
            per_block: raw.per_block.get(),
            first: raw.first.get(),
            stride: raw.stride.get(),
            generation: raw.generation.get(),
            type_name: String::from_utf8_lossy(name).into_owned(),
        };
        Some((header, raw.order))
    }

    /// Reads the header of an array that lies in `bytes`.
    ///
    /// # Errors
    /// When they are something else, of another version, damaged, or too few.
    pub fn read(bytes: &[u8]) -> Result<Header> {
        Header::find(bytes, bytes.len() as u64, Path::new("the array"))
    }

    /// The header that counts, of a file whose first bytes are `start` and that has `len` bytes in all.
    ///
    /// # Errors
    /// [`Damage::Foreign`] when the file is something else or of another version, [`Damage::Damaged`] when no header
    /// is whole or the file is too short.
    pub(crate) fn find(start: &[u8], len: u64, path: &Path) -> Result<Header> {
        let slots = HEADERS.map(|at| start.get(at as usize..at as usize + HEADER_BYTES));
        let slots: Vec<&[u8; HEADER_BYTES]> = slots
            .into_iter()
            .flatten()
            .filter_map(|slot| slot.first_chunk())
            .collect();
        let is_ours = slots.iter().any(|slot| slot[..8] == MAGIC);
        if !is_ours {
            let why = format!("{} is not a versioned array", path.display());
            return Err(Damage::Foreign(why).into());
        }
        let damaged = |why: String| {
            Error::from(Damage::Damaged {
                what: "header",
                at: 0,
                why: format!("{}: {why}", path.display()),
            })
        };
        let newest = slots
            .iter()
            .filter_map(|slot| Header::decode(slot))
            .max_by_key(|(header, _)| header.generation);
        let Some((header, order)) = newest else {
            return Err(damaged("the checksum of neither header is right".into()));
        };
        let version = header.version;
        let newest = Header::newest_version(header.kind);
        if !(1..=newest).contains(&version) || order != LITTLE_ENDIAN {
            return Err(Damage::Foreign(format!(
                "{} has version {version} and byte order {}; this build reads versions up to {newest} and byte order {LITTLE_ENDIAN} (little-endian)",
                path.display(),
                order
            ))
            .into());
        }
        if !header.is_possible() {
            return Err(damaged(format!("no array is like that: {}", header.describe())));
        }
        if len < header.file_bytes() {
            return Err(damaged(format!(
                "the file was cut: it has {len} bytes, and its array takes {}",
                header.file_bytes()
            )));
        }
        Ok(header)
    }

    /// Refuses what is wanted where no file can hold it: its sizes are no numbers to reckon with.
    pub(crate) fn check_possible(&self, path: &Path) -> Result<()> {
        match self.is_possible() {
            true => Ok(()),
            false => Err(Error::TooLarge {
                path: path.to_owned(),
                wanted: self.describe(),
            }),
        }
    }

    fn is_possible(&self) -> bool {
        let sane = matches!(self.versions, 2 | 3)
            && self.value_bytes > 0
            && self.align.is_power_of_two()
            && u64::from(self.align) <= GRAIN
            && self.value_bytes.is_multiple_of(u64::from(self.align))
            && self.first >= FIRST
            && self.first.is_multiple_of(GRAIN)
            && self.stride.is_multiple_of(GRAIN)
            && self.count < 1 << 44
            && self.value_bytes < 1 << 40
            && u128::from(self.count) * u128::from(self.value_bytes) < 1 << 44
            && self.first < 1 << 48
            && self.stride < 1 << 46;
        sane && match self.kind {
            Kind::Elements => {
                self.per_block.is_power_of_two()
                    && self.per_block <= 1 << 20
                    && self.stride == Blocks::of(self).bytes()
            }
            Kind::Planes => self.per_block == 0 && self.stride >= self.count * self.value_bytes,
        }
    }
}

/// As much of a name as there is room for.
fn shortened(mut name: String) -> String {
    name.truncate(name.floor_char_boundary(NAME_BYTES));
    name
}

/// How many elements of this size a block has.
fn suits(value_bytes: u64) -> u64 {
    let most = (CHUNK_BYTES / value_bytes.max(1)).max(1);
    1 << most.ilog2()
}

/// Where things are in a block of elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Blocks {
    first: u64,
    shift: u32,
    value_bytes: u64,
    versions: u64,
    /// Bytes of the numbers of a block, and of one version of its values.
    numbers: u64,
    chunk: u64,
    bytes: u64,
    /// Bytes of the numbers of an element.
    row: u64,
}

impl Blocks {
    pub(crate) fn of(header: &Header) -> Blocks {
        let versions = u64::from(header.versions);
        let row = (versions * 8).next_power_of_two();
        let numbers = (header.per_block * row).next_multiple_of(GRAIN);
        let chunk = (header.per_block * header.value_bytes).next_multiple_of(GRAIN);
        Blocks {
            first: header.first,
            shift: header.per_block.max(1).trailing_zeros(),
            value_bytes: header.value_bytes,
            versions,
            numbers,
            chunk,
            bytes: numbers + versions * chunk,
            row,
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Elements of a block.
    pub(crate) fn per_block(&self) -> u64 {
        1 << self.shift
    }

    fn split(&self, index: u64) -> (u64, u64) {
        let block = index >> self.shift;
        (self.first + block * self.bytes, index & (self.per_block() - 1))
    }

    /// Where the numbers of an element are; those of its versions lie one after another.
    #[inline]
    pub(crate) fn numbers(&self, index: u64) -> u64 {
        let (block, within) = self.split(index);
        block + within * self.row
    }

    /// Where a version of an element is.
    #[inline]
    pub(crate) fn value(&self, index: u64, version: usize) -> u64 {
        let (block, within) = self.split(index);
        block + self.numbers + version as u64 * self.chunk + within * self.value_bytes
    }
}

/// The largest number an update can have.
pub(crate) const LAST_NUMBER: u64 = (1 << 48) - 1;
/// The place of a seal's word, for its check.
pub(crate) const SEAL_PLACE: u64 = u64::MAX - 1;
/// The place of the durable word, for its check.
pub(crate) const WORD_PLACE: u64 = u64::MAX;

/// The place of a version's number, for its check.
#[inline]
pub(crate) fn place(index: u64, version: usize) -> u64 {
    index << 2 | version as u64
}

/// A number with its check; 0 stands for none.
#[inline]
pub(crate) fn encode(number: u64, place: u64) -> u64 {
    debug_assert!(number <= LAST_NUMBER);
    if number == 0 {
        return 0;
    }
    number << 16 | check(number, place)
}

/// The number, unchecked.
#[inline]
pub(crate) fn number(raw: u64) -> u64 {
    raw >> 16
}

/// The number, if its check is right.
pub(crate) fn checked(raw: u64, place: u64) -> Option<u64> {
    (encode(number(raw), place) == raw).then_some(number(raw))
}

/// 16 bits of a product: a flip of any one bit of the number changes them (shown by a test).
#[inline]
fn check(number: u64, place: u64) -> u64 {
    let mixed = number ^ place.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 48
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flipped_bit_of_a_number_is_noticed() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut missed = 0;
        for _ in 0..20_000 {
            let (number, place) = (random.u64(1..=LAST_NUMBER), random.u64(..));
            let raw = encode(number, place);
            assert_eq!(checked(raw, place), Some(number));
            assert_eq!(super::number(raw), number);
            for bit in 0..64 {
                missed += usize::from(checked(raw ^ 1 << bit, place).is_some());
            }
        }
        assert_eq!(missed, 0);
        assert_eq!(checked(0, 7), Some(0));
        assert_eq!(checked(1, 7), None);
    }

    /// Byte by byte as `docs/format.md` draws it: files of every build have it there.
    #[test]
    fn a_header_lies_as_it_is_drawn() {
        let header = Header {
            generation: 9,
            ..Header::of::<[u32; 3]>(Kind::Planes, 3, 1000, None)
        };
        let record = header.encode();
        let long = |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().unwrap());
        let word = |at: usize| u32::from_le_bytes(record[at..at + 4].try_into().unwrap());
        assert_eq!(
            (&record[..8], word(8), &record[12..16]),
            (&b"tp-array"[..], 2, &[2, 3, 1, 0][..])
        );
        assert_eq!((word(16), word(20), &record[72..80]), (4, 8, &b"[u32; 3]"[..]));
        let numbers: Vec<u64> = (24..72).step_by(8).map(long).collect();
        assert_eq!(numbers, [12, 1000, 0, 8192, 12288, 9]);
        assert!(record[80..252].iter().all(|&byte| byte == 0));
        assert_eq!(word(252), crc32c::crc32c(&record[..252]));
        // Another byte order, another version: sealed as well, and refused.
        for (at, value, why) in [(14, 2, "byte order 2"), (8, 9, "version 9")] {
            let mut other = record;
            other[at] = value;
            let crc = crc32c::crc32c(&other[..252]);
            other[252..].copy_from_slice(&crc.to_le_bytes());
            let error = Header::find(&other, header.file_bytes(), Path::new("field")).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(why) && text.contains("field"), "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let header = Header::of::<[u8; 256]>(Kind::Elements, 3, 100_000, None);
        let mut file = vec![0; 8192];
        file[..HEADER_BYTES].copy_from_slice(&header.encode());
        let path = Path::new("x");
        let found = Header::find(&file, header.file_bytes(), path).unwrap();
        assert_eq!(found, header);
        // The next generation counts, wherever it is.
        let larger = Header {
            count: 100_001,
            generation: 2,
            ..header.clone()
        };
        file[2048..2048 + HEADER_BYTES].copy_from_slice(&larger.encode());
        assert_eq!(Header::find(&file, u64::MAX, path).unwrap(), larger);
        // One that is flipped does not count.
        file[2060] ^= 4;
        assert_eq!(Header::find(&file, u64::MAX, path).unwrap(), header);
        file[33] ^= 4;
        let error = Header::find(&file, u64::MAX, path).unwrap_err().to_string();
        assert!(error.contains("checksum of neither"), "{error}");
        file[33] ^= 4;
        let error = Header::find(&file, 9000, path).unwrap_err().to_string();
        assert!(error.contains("was cut"), "{error}");
        let error = Header::find(&[7; 100], 9000, path).unwrap_err().to_string();
        assert!(error.contains("not a versioned array"), "{error}");
    }

    #[test]
    fn versions_of_an_element_lie_apart() {
        for header in [
            Header::of::<u8>(Kind::Elements, 2, 100_000, None),
            Header::of::<[u8; 256]>(Kind::Elements, 3, 1000, None),
            Header::of::<[u64; 20_000]>(Kind::Elements, 3, 10, None),
        ] {
            let blocks = Blocks::of(&header);
            let mut ranges = Vec::new();
            for index in 0..header.count {
                let numbers = blocks.numbers(index);
                ranges.push(numbers..numbers + 8 * u64::from(header.versions));
                for version in 0..usize::from(header.versions) {
                    let at = blocks.value(index, version);
                    ranges.push(at..at + header.value_bytes);
                    let next = blocks.value(index, (version + 1) % usize::from(header.versions));
                    assert!(at.abs_diff(next) >= GRAIN);
                }
            }
            ranges.sort_by_key(|range| range.start);
            assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start));
            assert!(ranges[0].start >= FIRST && ranges.last().unwrap().end <= header.file_bytes());
        }
    }
}
