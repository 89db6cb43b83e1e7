//! Memory asked for before it is needed: code that knows two addresses waits once for both, and not for one after the
//! other.

/// Asks for the line of an address, if there is one.
#[inline]
pub(crate) fn fetch<T>(at: *const T) {
    #[cfg(not(miri))]
    // SAFETY: a hint, which is defined for any address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(miri)]
    let _ = at;
}

/// [`fetch`] of a line that will be written: no other processor keeps a copy.
#[inline]
pub(crate) fn fetch_to_write<T>(at: *const T) {
    #[cfg(not(miri))]
    // SAFETY: a hint, which is defined for any address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_ET0 }>(at.cast());
    }
    #[cfg(miri)]
    let _ = at;
}
