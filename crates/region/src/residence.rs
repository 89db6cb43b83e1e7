//! What is known of each page, one byte a page in the side of its window: set by the pager and by the sweep.

use crate::address::{PAGE, Place};
use crate::zone::{DATA_BYTES, SIDE};
use std::sync::atomic::{AtomicU8, Ordering};

/// From the base to the flags, one byte a page.
pub(crate) const FLAGS: usize = DATA_BYTES + 16 * SIDE;
/// Bytes of all flags.
pub(crate) const FLAGS_BYTES: usize = DATA_BYTES / PAGE;

/// It was brought and did not go.
pub(crate) const LOADED: u8 = 1;
/// It reads as zero, whatever the store has: discarded in an even phase, in an odd one.
pub(crate) const DISCARDED: [u8; 2] = [2, 0x40];
/// Lines of it are on their way to the store.
pub(crate) const IN_FLIGHT: u8 = 4;
/// It went once.
pub(crate) const WENT: u8 = 8;
/// How often the clock passes it over: two bits.
pub(crate) const HEAT: u8 = 0x30;
pub(crate) const HEAT_ONE: u8 = 0x10;
/// It could not be read: a thread that touches it gets SIGBUS.
pub(crate) const LOST: u8 = 0x80;

/// Lines of the page are on their way to the store.
///
/// # Safety
/// As [`flags`], meanwhile.
pub(crate) unsafe fn set_in_flight(place: Place, page: usize) {
    // SAFETY: by the caller's word the window has a pager, and the page.
    unsafe { flags(place, page) }.fetch_or(IN_FLIGHT | HEAT_ONE, Ordering::SeqCst);
}

/// They are there.
///
/// # Safety
/// As [`flags`], meanwhile.
pub(crate) unsafe fn end_flight(place: Place, page: usize) {
    // SAFETY: by the caller's word the window has a pager, and the page.
    unsafe { flags(place, page) }.fetch_and(!IN_FLIGHT, Ordering::SeqCst);
}

/// The flags of a page.
///
/// # Safety
/// The window has a pager, stays in use for `'w`, and the page is one that its data may have.
pub(crate) unsafe fn flags<'w>(place: Place, page: usize) -> &'w AtomicU8 {
    debug_assert!(page < FLAGS_BYTES);
    let at = place.base().wrapping_add(FLAGS + page);
    // SAFETY: the flags are open since `Pager::start`, and stay so while the window is in use.
    unsafe { &*at.cast_const().cast() }
}
