//! Configuration files of machines.
//!
//! * Unknown keys, numbers without units and values that cannot be are errors, never ignored.
//! * Every table names the `source` of its values; a value may name its own.

pub(crate) mod layers;
pub mod machine;
pub(crate) mod processor;

/// A short name for the exact content of a resolved configuration: 16 hexadecimal digits.
#[must_use]
pub fn hash(resolved: &str) -> String {
    format!("{:016x}", hash_more(HASH_BEGIN, resolved.as_bytes()))
}

/// The hash of nothing.
pub(crate) const HASH_BEGIN: u64 = 0xcbf2_9ce4_8422_2325;

/// The hash with more bytes in it: FNV-1a, the same on every machine; not meant against forgery.
pub(crate) fn hash_more(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
