//! Controls, a byte a place, sixteen looked at at once.

use std::arch::x86_64::{
    __m128i, _mm_add_epi64, _mm_and_si128, _mm_cmpeq_epi8, _mm_cmpgt_epi8, _mm_cvtsi128_si64, _mm_load_si128,
    _mm_movemask_epi8, _mm_sad_epu8, _mm_set1_epi8, _mm_setzero_si128, _mm_unpackhi_epi64,
};

pub(crate) const EMPTY: u8 = 0x80;
pub(crate) const DELETED: u8 = 0xFE;
pub(crate) const BEYOND: u8 = 0xFF;
/// Controls looked at at once.
pub(crate) const GROUP: usize = 16;

#[inline]
pub(super) fn control_of(hash: u64) -> u8 {
    (hash >> 57) as u8
}

/// Sixteen controls.
#[derive(Clone, Copy)]
pub(super) struct Group(__m128i);

/// Bits of the places of a group.
#[derive(Clone, Copy)]
pub(super) struct Bits(pub(super) u32);

impl Group {
    /// The group that begins at a control.
    ///
    /// # Safety
    /// Sixteen controls are there, aligned.
    #[inline]
    pub(super) unsafe fn at(controls: *const u8) -> Group {
        // SAFETY: the caller passes sixteen aligned controls; SSE2 is part of x86-64.
        Group(unsafe { _mm_load_si128(controls.cast()) })
    }

    #[inline]
    pub(super) fn with(self, control: u8) -> Bits {
        // SAFETY: SSE2 is part of x86-64.
        Bits(
            unsafe { _mm_movemask_epi8(_mm_cmpeq_epi8(self.0, _mm_set1_epi8(control.cast_signed()))) } as u32,
        )
    }

    /// Those that are `EMPTY` or `DELETED`.
    #[inline]
    pub(super) fn free(self) -> Bits {
        // SAFETY: SSE2 is part of x86-64. As signed numbers these are the ones below `BEYOND`.
        Bits(unsafe { _mm_movemask_epi8(_mm_cmpgt_epi8(_mm_set1_epi8(BEYOND.cast_signed()), self.0)) } as u32)
    }

    #[inline]
    pub(super) fn used(self) -> Bits {
        // SAFETY: SSE2 is part of x86-64.
        Bits(!unsafe { _mm_movemask_epi8(self.0) } as u32 & 0xFFFF)
    }
}

impl Iterator for Bits {
    type Item = usize;
    #[inline]
    fn next(&mut self) -> Option<usize> {
        let lowest = self.first()?;
        self.0 &= self.0 - 1;
        Some(lowest)
    }
}

impl Bits {
    #[inline]
    pub(super) fn first(self) -> Option<usize> {
        (self.0 != 0).then(|| self.0.trailing_zeros() as usize)
    }

    /// The first from a place on, and round.
    #[inline]
    pub(super) fn first_from(self, place: usize) -> Option<usize> {
        let turned = (self.0 as u16).rotate_right(place as u32);
        (turned != 0).then(|| (turned.trailing_zeros() as usize + place) % GROUP)
    }
}

/// How the places of many groups are used, in two halves each.
pub(super) struct Tally {
    used: __m128i,
    deleted: __m128i,
}

impl Tally {
    pub(super) fn new() -> Tally {
        // SAFETY: SSE2 is part of x86-64.
        let none = unsafe { _mm_setzero_si128() };
        Tally {
            used: none,
            deleted: none,
        }
    }

    /// A fifth of the instructions that it takes to count bits, which x86-64 cannot without an extension: counts of
    /// segments that were nearly full were a fifth of the instructions of tpcc.
    #[inline]
    pub(super) fn add(&mut self, group: Group) {
        // SAFETY: SSE2 is part of x86-64. As signed numbers the controls of entries are those above -1.
        unsafe {
            let (one, none) = (_mm_set1_epi8(1), _mm_setzero_si128());
            let count = |such| _mm_sad_epu8(_mm_and_si128(such, one), none);
            let used = _mm_cmpgt_epi8(group.0, _mm_set1_epi8(-1));
            let deleted = _mm_cmpeq_epi8(group.0, _mm_set1_epi8(DELETED.cast_signed()));
            self.used = _mm_add_epi64(self.used, count(used));
            self.deleted = _mm_add_epi64(self.deleted, count(deleted));
        }
    }

    /// Places with an entry, and those of deleted ones.
    pub(super) fn totals(&self) -> (usize, usize) {
        // SAFETY: SSE2 is part of x86-64.
        let total = |halves| unsafe {
            _mm_cvtsi128_si64(halves) + _mm_cvtsi128_si64(_mm_unpackhi_epi64(halves, halves))
        };
        (total(self.used) as usize, total(self.deleted) as usize)
    }
}

/// The groups to look at for a hash.
pub(super) struct Probe {
    pub(super) at: usize,
    /// Where in each of them an entry is best put: the upper bits of the hash.
    pub(super) favourite: usize,
    step: usize,
    mask: usize,
}

impl Probe {
    /// `mask` is the number of places, of whole groups, less one.
    #[inline]
    pub(super) fn new(hash: u64, mask: usize) -> Probe {
        // The group from the lower bits of the hash, and the place in it from the upper four.
        let place = (hash as usize).rotate_left(GROUP.ilog2()) & mask;
        Probe {
            at: place & !(GROUP - 1),
            favourite: place % GROUP,
            step: 0,
            mask,
        }
    }

    /// Groups looked at before this one.
    #[inline]
    pub(super) fn steps(&self) -> usize {
        self.step / GROUP
    }

    /// Whether all groups were looked at.
    #[inline]
    pub(super) fn was_everywhere(&self) -> bool {
        self.step > self.mask
    }

    #[inline]
    pub(super) fn step(&mut self) {
        self.step += GROUP;
        self.at = (self.at + self.step) & self.mask;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_counts_each_place() {
        #[repr(align(16))]
        struct Controls([u8; GROUP]);
        let mut random = fastrand::Rng::with_seed(5);
        let (mut tally, mut used, mut deleted) = (Tally::new(), 0, 0);
        for _ in 0..5000 {
            let controls = Controls(std::array::from_fn(|_| match random.u8(..8) {
                0 => EMPTY,
                1 => DELETED,
                2 => BEYOND,
                _ => random.u8(..0x80),
            }));
            // SAFETY: sixteen controls, aligned.
            tally.add(unsafe { Group::at(controls.0.as_ptr()) });
            used += controls.0.iter().filter(|&&control| control < 0x80).count();
            deleted += controls.0.iter().filter(|&&control| control == DELETED).count();
        }
        assert_eq!(tally.totals(), (used, deleted));
    }
}
