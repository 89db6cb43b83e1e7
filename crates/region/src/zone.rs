//! Where windows lie: at fixed addresses, in memory reserved from the system.

use std::ops::Range;

pub(crate) use twinpage_os::reserve::{Reserved, forget};

/// The addresses windows may have.
pub const ZONE: Range<usize> = 0x1000_0000_0000..0x5000_0000_0000;
/// Bytes in a window, and its alignment.
pub const WINDOW_BYTES: usize = 1 << 40;
/// Bytes in a window that a region can have at most.
pub const DATA_BYTES: usize = 1 << 39;
/// Windows in the zone.
pub const WINDOWS: usize = (ZONE.end - ZONE.start) / WINDOW_BYTES;
/// What a window grows by.
pub const STEP: usize = 2 << 20;

/// Bytes in a line map: the parts of the side lie at multiples of it (`marks.rs`).
pub(crate) const SIDE: usize = 8 << 30;
/// Whether the kernel can tell of pages that are missing (`paging.rs`).
pub(crate) const HAS_FAULTS: bool = true;
/// Memory for saved lines, besides what is known of them.
pub(crate) const SAVED_BYTES: usize = 64 << 20;

/// The number of the window that holds an address, and the address from its base on.
#[inline(always)]
pub(crate) fn locate(address: usize) -> Option<(usize, usize)> {
    // One comparison, and the window's number is the upper bits.
    let in_zone = address.wrapping_sub(ZONE.start);
    (in_zone < ZONE.end - ZONE.start).then_some((in_zone / WINDOW_BYTES, in_zone % WINDOW_BYTES))
}

#[inline]
pub(crate) fn base_of(index: usize) -> usize {
    ZONE.start + index * WINDOW_BYTES
}
