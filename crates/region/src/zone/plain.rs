//! Windows of plain memory, small, wherever the allocator puts them: for tools that know no other, Miri
//! and the thread sanitizer. The bases are the same from the first use of a window to the program's end.

use std::alloc::{Layout, alloc_zeroed};
use std::io;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// The addresses windows may have: any.
pub const ZONE: Range<usize> = 0..usize::MAX;
/// Bytes in a window, and its alignment.
pub const WINDOW_BYTES: usize = 16 << 20;
/// Bytes in a window that a region can have at most.
pub const DATA_BYTES: usize = 8 << 20;
/// Windows in the zone.
pub const WINDOWS: usize = 4;
/// What a window grows by.
pub const STEP: usize = 128 << 10;

/// Bytes in a line map: the parts of the side lie at multiples of it (`marks.rs`).
pub(crate) const SIDE: usize = 128 << 10;
/// Whether the kernel can tell of pages that are missing (`paging.rs`).
pub(crate) const HAS_FAULTS: bool = false;
/// Memory for saved lines, besides what is known of them.
pub(crate) const SAVED_BYTES: usize = 512 << 10;

/// Pointers, so that the memory is not taken for a leak.
static BASES: [AtomicPtr<u8>; WINDOWS] = [const { AtomicPtr::new(null_mut()) }; WINDOWS];
static MADE: [Once; WINDOWS] = [const { Once::new() }; WINDOWS];
static TAKEN: [AtomicBool; WINDOWS] = [const { AtomicBool::new(false) }; WINDOWS];

/// The number of the window that holds an address, and the address from its base on.
#[inline]
pub(crate) fn locate(address: usize) -> Option<(usize, usize)> {
    BASES.iter().enumerate().find_map(|(index, base)| {
        let base = base.load(Ordering::Acquire).addr();
        let offset = address.checked_sub(base)?;
        (base != 0 && offset < WINDOW_BYTES).then_some((index, offset))
    })
}

pub(crate) fn base_of(index: usize) -> usize {
    MADE[index].call_once(|| {
        let layout = Layout::from_size_align(WINDOW_BYTES, WINDOW_BYTES).expect("a power of two");
        // SAFETY: the layout is not of size zero.
        let base = unsafe { alloc_zeroed(layout) };
        assert!(!base.is_null(), "no memory for a window");
        BASES[index].store(base, Ordering::Release);
    });
    BASES[index].load(Ordering::Acquire).expose_provenance()
}

/// As `twinpage_os::Reserved`, of one window.
#[derive(Debug)]
pub(crate) struct Reserved {
    index: usize,
}

impl Reserved {
    pub(crate) fn at(base: usize, bytes: usize) -> io::Result<Reserved> {
        let (index, _) = locate(base).ok_or(io::ErrorKind::InvalidInput)?;
        if TAKEN[index].swap(true, Ordering::Acquire) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        // SAFETY: the window had no owner until now.
        unsafe { forget(base..base + bytes) }?;
        Ok(Reserved { index })
    }

    pub(crate) fn open(&self, _range: Range<usize>) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn prefer_large(&self, _range: Range<usize>) {}

    pub(crate) unsafe fn forget(&self, range: Range<usize>) -> io::Result<()> {
        // SAFETY: this function's own contract.
        unsafe { forget(range) }
    }
}

/// As `twinpage_os::reserve::forget`.
pub(crate) unsafe fn forget(range: Range<usize>) -> io::Result<()> {
    let at = std::ptr::with_exposed_provenance_mut::<u8>(range.start);
    // SAFETY: the caller passes a range of a window, which is one allocation here, and no longer needs its content.
    unsafe { at.write_bytes(0, range.len()) };
    Ok(())
}

impl Drop for Reserved {
    fn drop(&mut self) {
        TAKEN[self.index].store(false, Ordering::Release);
    }
}
