//! What lies at fixed places of the medium: the superblock, the two switch records, the mark.
//!
//! ```text
//! extent 0     0                 stride             2 stride           3 stride
//!              | superblock 64 B | switch 0, 64 B   | switch 1, 64 B   | mark 8 B
//!                                  stride = min(4096, extent bytes / 4)
//! ```
//!
//! * The superblock is written once, last of all when a store is made; no superblock, no store.
//! * Generation `g` of the mapping is switched to by writing switch record `g % 2`. The valid record
//!   with the highest generation wins, so one write switches, and a torn one switches nothing.
//! * The mark is the number of the last record that was durable. It is posted after that record's
//!   fence, and the next fence makes it durable: before the next record is written, or with it where that
//!   one has no fence before it (`slots.rs`).
//! * Every checksum begins with the store's id, so what an earlier store left on the same medium is
//!   not taken for this one's.
//!
//! `docs/format.md` has the same, byte by byte.

use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::kind::SchemeKind;
use crate::medium::Offset;
use crate::record::{self, Record};
use crate::scheme::Epoch;
use crc32c::{crc32c, crc32c_append};
use std::mem::offset_of;
use std::ops::Range;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, transmute};

/// The versions of the format this build reads: without checksums of lines, with them, with records that are
/// valid by them, and with payloads in records. It makes stores of the first and the last.
const VERSION: u32 = 1;
const VERSION_CHECKSUMS: u32 = 2;
const VERSION_UNFENCED: u32 = 3;
const VERSION_PAYLOADS: u32 = 4;

/// The longest journal a store can be made for: a tebibyte.
pub(super) const JOURNAL_LIMIT: u64 = 1 << 40;

/// Bytes of the superblock, and of a switch record.
pub(super) const BLOCK: usize = 64;

pub(crate) const MAGIC: [u8; 8] = SchemeKind::DualPage.magic();
const SWITCH_MAGIC: [u8; 4] = *b"TpSw";

/// The bytes of the superblock.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct RawSuperblock {
    magic: [u8; 8],
    version: U32,
    line_bytes: U32,
    extent_bytes: U32,
    zero_20: [u8; 4],
    id: U64,
    pool_pages: U64,
    journal_bytes: U64,
    zero_48: [u8; 12],
    crc: U32,
}

impl Record for RawSuperblock {
    const SUM_AT: usize = offset_of!(RawSuperblock, crc);
}

/// The bytes of a switch record.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct RawSwitch {
    magic: [u8; 4],
    crc: U32,
    generation: U32,
    slot_first: U32,
    slot_count: U32,
    snapshot_crc: U32,
    snapshot_len: U64,
    sequence: U64,
    epoch: U64,
    zero_48: [u8; 16],
}

impl Record for RawSwitch {
    const SUM_AT: usize = offset_of!(RawSwitch, crc);
    const COVERED: Range<usize> = offset_of!(RawSwitch, generation)..BLOCK;
}

// In step with docs/format.md.
const _: () = assert!(size_of::<RawSuperblock>() == BLOCK && size_of::<RawSwitch>() == BLOCK);

/// A run of whole extents that holds a snapshot of the mapping and the journal since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot {
    pub(super) first: u32,
    pub(super) count: u32,
}

impl Slot {
    /// Its extents.
    pub(super) fn extents(self) -> Range<u32> {
        self.first..self.first.saturating_add(self.count)
    }
}

/// What never changes in the life of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Superblock {
    pub(super) geometry: Geometry,
    /// Tells this store from others that were on the same medium.
    pub(super) id: u64,
    /// Derivative pages at most; `u64::MAX` when the pool grows as needed.
    pub(super) pool_pages: u64,
    /// Bytes a journal has at least.
    pub(super) journal_bytes: u64,
    /// Whether lines have checksums.
    pub(super) checksums: bool,
    /// Whether a record may be written without a fence after its lines, valid by their checksums.
    pub(super) unfenced: bool,
    /// Whether a record may have a payload.
    pub(super) payloads: bool,
}

impl Superblock {
    /// What every checksum of this store begins with.
    pub(super) fn seed(&self) -> u32 {
        crc32c(&self.id.to_le_bytes())
    }

    /// The version of the format.
    pub(super) fn version(&self) -> u32 {
        match self {
            Superblock { checksums: false, .. } => VERSION,
            Superblock { unfenced: false, .. } => VERSION_CHECKSUMS,
            Superblock { payloads: false, .. } => VERSION_UNFENCED,
            _ => VERSION_PAYLOADS,
        }
    }

    fn stride(&self) -> u64 {
        (self.geometry.extent_bytes() as u64 / 4).min(4096)
    }

    /// Where switch record `generation % 2` lies.
    pub(super) fn switch_at(&self, generation: u32) -> Offset {
        self.stride() * u64::from(1 + generation % 2)
    }

    /// Where the mark lies.
    pub(super) fn mark_at(&self) -> Offset {
        self.stride() * 3
    }

    pub(super) fn encode(&self) -> [u8; BLOCK] {
        let raw = RawSuperblock {
            magic: MAGIC,
            version: self.version().into(),
            line_bytes: (self.geometry.line_bytes() as u32).into(),
            extent_bytes: (self.geometry.extent_bytes() as u32).into(),
            zero_20: [0; 4],
            id: self.id.into(),
            pool_pages: self.pool_pages.into(),
            journal_bytes: self.journal_bytes.into(),
            zero_48: [0; 12],
            crc: U32::ZERO,
        };
        transmute!(record::seal(raw, &[], 0))
    }

    /// # Errors
    /// [`Error::Foreign`] for anything but a store of this version, [`Error::Damaged`] for a bad one.
    pub(super) fn decode(block: &[u8; BLOCK]) -> Result<Superblock> {
        if block.iter().all(|&byte| byte == 0) {
            return Err(Error::Foreign(
                "it begins with zeros: its making was never finished".into(),
            ));
        }
        let raw: RawSuperblock = transmute!(*block);
        if raw.magic != MAGIC {
            return Err(Error::Foreign(match SchemeKind::of_magic(raw.magic) {
                Some(baseline) => baseline.is_elsewhere(),
                None => "it does not begin with \"twinpage\"".into(),
            }));
        }
        let version = raw.version.get();
        if !(VERSION..=VERSION_PAYLOADS).contains(&version) {
            return Err(Error::Foreign(format!(
                "format version {version}, this build reads {VERSION} to {VERSION_PAYLOADS}"
            )));
        }
        let damaged = |why: String| Error::damaged("superblock", 0, why);
        record::verify(&raw, &[], 0).map_err(|mismatch| damaged(mismatch.to_string()))?;
        let geometry = Geometry::new(raw.line_bytes.get(), raw.extent_bytes.get())
            .map_err(|error| damaged(error.to_string()))?;
        let journal_bytes = raw.journal_bytes.get();
        if journal_bytes > JOURNAL_LIMIT {
            return Err(damaged(format!(
                "a journal of {journal_bytes} bytes: at most {JOURNAL_LIMIT}"
            )));
        }
        Ok(Superblock {
            geometry,
            id: raw.id.get(),
            pool_pages: raw.pool_pages.get(),
            journal_bytes,
            checksums: version >= VERSION_CHECKSUMS,
            unfenced: version >= VERSION_UNFENCED,
            payloads: version >= VERSION_PAYLOADS,
        })
    }
}

/// Which slot holds the mapping (DPC 3.4: the switch pointer).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Switch {
    pub(super) generation: u32,
    pub(super) slot: Slot,
    pub(super) snapshot_crc: u32,
    pub(super) snapshot_len: u64,
    /// The number of the record the snapshot stands for.
    pub(super) sequence: u64,
    /// The commit the snapshot holds.
    pub(super) epoch: Epoch,
}

impl Switch {
    pub(super) fn encode(&self, seed: u32) -> [u8; BLOCK] {
        let raw = RawSwitch {
            magic: SWITCH_MAGIC,
            crc: U32::ZERO,
            generation: self.generation.into(),
            slot_first: self.slot.first.into(),
            slot_count: self.slot.count.into(),
            snapshot_crc: self.snapshot_crc.into(),
            snapshot_len: self.snapshot_len.into(),
            sequence: self.sequence.into(),
            epoch: self.epoch.into(),
            zero_48: [0; 16],
        };
        transmute!(record::seal(raw, &[], seed))
    }

    /// Whether a store can come to these numbers: every snapshot and every commit is a record, and
    /// the mark has room for the number of the last.
    pub(super) fn is_possible(&self) -> bool {
        let (generation, last) = (u64::from(self.generation), self.sequence.saturating_add(1));
        self.epoch < last && generation <= last && last >> MARK_BITS == 0 && self.generation < u32::MAX
    }

    /// The record, unless it is torn, damaged or was never written.
    pub(super) fn decode(block: &[u8; BLOCK], seed: u32) -> Option<Switch> {
        let raw: RawSwitch = transmute!(*block);
        let is_ours = raw.magic == SWITCH_MAGIC && record::verify(&raw, &[], seed).is_ok();
        is_ours.then(|| Switch {
            generation: raw.generation.get(),
            slot: Slot {
                first: raw.slot_first.get(),
                count: raw.slot_count.get(),
            },
            snapshot_crc: raw.snapshot_crc.get(),
            snapshot_len: raw.snapshot_len.get(),
            sequence: raw.sequence.get(),
            epoch: raw.epoch.get(),
        })
    }
}

/// Bits of the mark that hold the number; the others check it.
const MARK_BITS: u32 = 48;

/// The mark for record `sequence`.
pub(super) fn mark(sequence: u64, seed: u32) -> [u8; 8] {
    let number = sequence & ((1 << MARK_BITS) - 1);
    let crc = crc32c_append(seed, &number.to_le_bytes());
    (number | u64::from(crc as u16 ^ (crc >> 16) as u16) << MARK_BITS).to_le_bytes()
}

/// The number in a mark, unless it is damaged.
pub(super) fn read_mark(word: [u8; 8], seed: u32) -> Option<u64> {
    let number = u64::from_le_bytes(word) & ((1 << MARK_BITS) - 1);
    (mark(number, seed) == word).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn superblock() -> Superblock {
        Superblock {
            geometry: Geometry::MEMORY,
            id: 77,
            pool_pages: u64::MAX,
            journal_bytes: 1 << 20,
            checksums: false,
            unfenced: false,
            payloads: false,
        }
    }

    #[test]
    fn every_flip_of_the_superblock_is_noticed() {
        let block = superblock().encode();
        assert_eq!(Superblock::decode(&block).unwrap(), superblock());
        for (byte, bit) in (0..BLOCK).flat_map(|byte| (0..8).map(move |bit| (byte, bit))) {
            let mut flipped = block;
            flipped[byte] ^= 1 << bit;
            assert!(Superblock::decode(&flipped).is_err(), "byte {byte} bit {bit}");
        }
        assert!(matches!(Superblock::decode(&[0; BLOCK]), Err(Error::Foreign(_))));
    }

    #[test]
    fn every_flip_of_a_switch_record_is_noticed() {
        let slot = Slot { first: 3, count: 2 };
        let (generation, snapshot_crc, snapshot_len, sequence, epoch) = (9, 5, 1234, 80, 70);
        let switch = Switch {
            generation,
            slot,
            snapshot_crc,
            snapshot_len,
            sequence,
            epoch,
        };
        let block = switch.encode(1);
        assert_eq!(Switch::decode(&block, 1), Some(switch));
        assert_eq!(Switch::decode(&block, 2), None, "another store's");
        for (byte, bit) in (0..BLOCK).flat_map(|byte| (0..8).map(move |bit| (byte, bit))) {
            let mut flipped = block;
            flipped[byte] ^= 1 << bit;
            assert_eq!(Switch::decode(&flipped, 1), None, "byte {byte} bit {bit}");
        }
    }

    #[test]
    fn numbers_no_store_comes_to_are_refused() {
        let slot = Slot { first: 1, count: 1 };
        let switch = |generation, sequence, epoch| Switch {
            generation,
            slot,
            snapshot_crc: 0,
            snapshot_len: 0,
            sequence,
            epoch,
        };
        assert!(switch(1, 0, 0).is_possible() && switch(2, 1, 1).is_possible());
        for (generation, sequence, epoch) in [(1, 0, 1), (3, 1, 0), (1, u64::MAX, 0), (u32::MAX, 1 << 40, 0)]
        {
            assert!(
                !switch(generation, sequence, epoch).is_possible(),
                "{generation} {sequence} {epoch}"
            );
        }
    }

    #[test]
    fn places_do_not_meet() {
        for extent in [4096, 16384, 2 << 20] {
            let superblock = Superblock {
                geometry: Geometry::new(64, extent).unwrap(),
                ..superblock()
            };
            let mut places = [
                0,
                superblock.switch_at(0),
                superblock.switch_at(1),
                superblock.mark_at(),
            ];
            places.sort_unstable();
            assert!(places.windows(2).all(|pair| pair[0] + BLOCK as u64 <= pair[1]));
            assert!(places[3] + 8 <= u64::from(extent));
        }
    }

    #[test]
    fn a_mark_checks_itself() {
        for sequence in [0, 1, 12345, (1 << 48) - 1] {
            assert_eq!(read_mark(mark(sequence, 4), 4), Some(sequence));
        }
        assert_eq!(read_mark([0; 8], 4), None);
    }
}
