//! The hash of the tables: fixed, so that it is the same in every build and every process.
//!
//! ```text
//! fold(a, b) = low 64 bits of a * b  xor  high 64 bits of a * b
//!
//! an integer x:       state = fold(state xor x, K0)         (128 bits: its low half, then its high half)
//! bytes, n of them:   state = state xor n * K2; then for each 16 of them, as numbers a and b,
//!                     state = fold(state xor a, K1 xor b)
//!                     the rest, if any: a, b = its first and last 8 bytes, or 4, or (1 to 3 bytes)
//!                     a = the bytes, b = 0
//! ```
//!
//! Numbers are little-endian. The state begins as the table's seed, and the hash is the state.
//! K0, K1, K2 are digits of pi.

use std::hash::{Hash, Hasher};

const K0: u64 = 0x243f_6a88_85a3_08d3;
const K1: u64 = 0x1319_8a2e_0370_7344;
const K2: u64 = 0xa409_3822_299f_31d1;

/// The state of a hash.
pub(crate) struct Fold(u64);

#[inline]
pub(super) fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl Fold {
    #[inline]
    pub(super) fn new(seed: u64) -> Fold {
        Fold(seed)
    }

    /// The hash of some values of `std`'s types: it changes if their `Hash` does, which makes tables
    /// of an earlier build unreadable.
    pub(super) fn witness() -> u64 {
        let mut state = Fold::new(K2);
        (1_u8, 2_u16, 3_u32, 4_u64, 5_u128, 6_usize).hash(&mut state);
        (-1_i8, -2_i16, -3_i32, -4_i64, -5_i128, -6_isize).hash(&mut state);
        (
            true,
            'x',
            "twinpage",
            [7_u8; 20],
            [8_u32, 9].as_slice(),
            Some(3_u8),
            None::<u8>,
            (),
        )
            .hash(&mut state);
        state.finish()
    }
}

fn number(bytes: &[u8]) -> u64 {
    let mut whole = [0; 8];
    whole[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(whole)
}

impl Hasher for Fold {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let mut state = self.0 ^ (bytes.len() as u64).wrapping_mul(K2);
        let (wholes, rest) = bytes.as_chunks::<16>();
        for whole in wholes {
            state = fold(state ^ number(&whole[..8]), K1 ^ number(&whole[8..]));
        }
        let n = rest.len();
        let (a, b) = match n {
            0 => {
                self.0 = state;
                return;
            }
            1..4 => (number(rest), 0),
            4..8 => (number(&rest[..4]), number(&rest[n - 4..])),
            _ => (number(&rest[..8]), number(&rest[n - 8..])),
        };
        self.0 = fold(state ^ a, K1 ^ b);
    }

    #[inline]
    fn write_u8(&mut self, i: u8) {
        self.write_u64(i.into());
    }
    #[inline]
    fn write_u16(&mut self, i: u16) {
        self.write_u64(i.into());
    }
    #[inline]
    fn write_u32(&mut self, i: u32) {
        self.write_u64(i.into());
    }
    #[inline]
    fn write_u64(&mut self, i: u64) {
        self.0 = fold(self.0 ^ i, K0);
    }
    #[inline]
    fn write_u128(&mut self, i: u128) {
        self.write_u64(i as u64);
        self.write_u64((i >> 64) as u64);
    }
    #[inline]
    fn write_usize(&mut self, i: usize) {
        self.write_u64(i as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_what_the_format_says() {
        let hash = |f: &dyn Fn(&mut Fold)| {
            let mut state = Fold::new(7);
            f(&mut state);
            state.finish()
        };
        assert_eq!(hash(&|s| s.write_u64(5)), fold(7 ^ 5, K0));
        assert_eq!(
            hash(&|s| s.write_u128(5 | 9 << 64)),
            fold(fold(7 ^ 5, K0) ^ 9, K0)
        );
        assert_eq!(
            hash(&|s| s.write(&[1, 2, 3])),
            fold(7 ^ K2.wrapping_mul(3) ^ 0x030201, K1)
        );
        let bytes: Vec<u8> = (0..20).collect();
        let first = fold(
            7 ^ K2.wrapping_mul(20) ^ number(&bytes[..8]),
            K1 ^ number(&bytes[8..16]),
        );
        let all = fold(first ^ number(&bytes[16..]), K1 ^ number(&bytes[16..]));
        assert_eq!(hash(&|s| s.write(&bytes)), all);
        // Fixed for ever: tables in regions depend on it.
        assert_eq!(Fold::witness(), 15_359_929_120_067_041_231);
    }

    #[test]
    fn near_keys_spread() {
        for shift in [0, 12, 32, 48] {
            let mut low = std::collections::HashSet::new();
            let mut high = [0_u32; 128];
            for key in 0..4096_u64 {
                let mut state = Fold::new(0x5eed);
                state.write_u64(key << shift);
                low.insert(state.finish() & 0xffff);
                high[(state.finish() >> 57) as usize] += 1;
            }
            assert!(low.len() > 3700, "{} of 4096 at shift {shift}", low.len());
            assert!(high.iter().all(|&n| n < 120), "{high:?} at shift {shift}");
        }
    }
}
