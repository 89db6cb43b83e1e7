//! Controls, a byte a place, sixteen looked at at once.

use std::arch::x86_64::{
    __m128i, _mm_cmpeq_epi8, _mm_cmpgt_epi8, _mm_load_si128, _mm_movemask_epi8, _mm_set1_epi8,
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

    pub(super) fn number(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The first from a place on, and round.
    #[inline]
    pub(super) fn first_from(self, place: usize) -> Option<usize> {
        let turned = (self.0 as u16).rotate_right(place as u32);
        (turned != 0).then(|| (turned.trailing_zeros() as usize + place) % GROUP)
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
