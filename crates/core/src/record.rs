//! Records: structs whose bytes lie on the medium as they are, sealed and opened here.
//!
//! * A record is `repr(C)`, little-endian, without padding; its size is asserted where it is declared.
//! * Its checksum is CRC-32C, begun with a seed that tells the record's store from others on the same medium.
//! * What follows a record, where something does, may be covered by the same checksum.

use crc32c::crc32c_append;
use std::ops::Range;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A sealed record.
pub trait Record: FromBytes + IntoBytes + Immutable + Copy {
    /// Where the checksum lies: 4 bytes.
    const SUM_AT: usize;
    /// The bytes it covers: those before it, unless a record says otherwise.
    const COVERED: Range<usize> = 0..Self::SUM_AT;
}

/// The checksum is not that of the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mismatch {
    /// The record.
    pub found: u32,
    /// What its bytes have.
    pub expected: u32,
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "checksum {:08x}, expected {:08x}", self.found, self.expected)
    }
}

fn sum<R: Record>(bytes: &[u8], rest: &[u8], seed: u32) -> u32 {
    const { assert!(R::SUM_AT + 4 <= R::COVERED.start || R::COVERED.end <= R::SUM_AT) };
    crc32c_append(crc32c_append(seed, &bytes[R::COVERED]), rest)
}

/// The record with its checksum, which covers `rest`, the bytes that follow it, too.
#[must_use]
pub fn seal<R: Record>(mut record: R, rest: &[u8], seed: u32) -> R {
    let sum = sum::<R>(record.as_bytes(), rest, seed);
    record.as_mut_bytes()[R::SUM_AT..][..4].copy_from_slice(&sum.to_le_bytes());
    record
}

/// The record in the first bytes of `bytes`, not verified yet; `None` where they are too few.
#[must_use]
pub fn peek<R: Record>(bytes: &[u8]) -> Option<R> {
    R::read_from_prefix(bytes).ok().map(|(record, _)| record)
}

/// Verifies the checksum of a record, which covers `rest`, the bytes that follow it, too.
///
/// # Errors
/// [`Mismatch`].
pub fn verify<R: Record>(record: &R, rest: &[u8], seed: u32) -> Result<(), Mismatch> {
    let bytes = record.as_bytes();
    let said = bytes[R::SUM_AT..].first_chunk().copied().unwrap_or_default();
    let (found, expected) = (u32::from_le_bytes(said), sum::<R>(bytes, rest, seed));
    match found == expected {
        true => Ok(()),
        false => Err(Mismatch { found, expected }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::KnownLayout;
    use zerocopy::little_endian::{U32, U64};

    #[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
    #[repr(C)]
    struct Example {
        magic: [u8; 4],
        crc: U32,
        number: U64,
    }

    const _: () = assert!(size_of::<Example>() == 16);

    impl Record for Example {
        const SUM_AT: usize = 4;
        const COVERED: Range<usize> = 8..16;
    }

    #[test]
    fn every_flip_of_what_is_covered_is_noticed() {
        let (magic, rest) = (*b"TpEx", [1, 2, 3]);
        let record = Example {
            magic,
            crc: 0.into(),
            number: 7.into(),
        };
        let sealed = seal(record, &rest, 5);
        assert_eq!((sealed.magic, sealed.number.get()), (magic, 7));
        assert!(verify(&sealed, &rest, 5).is_ok());
        assert!(verify(&sealed, &rest, 6).is_err() && verify(&sealed, &rest[1..], 5).is_err());
        for at in 4..16 {
            let mut bytes = sealed.as_bytes().to_vec();
            bytes[at] ^= 1;
            let flipped: Example = peek(&bytes).unwrap();
            let Mismatch { found, expected } = verify(&flipped, &rest, 5).unwrap_err();
            assert!(found != expected, "byte {at}");
        }
        assert!(peek::<Example>(&sealed.as_bytes()[1..]).is_none());
    }
}
