//! The memory of a window: taken, grown and given back, with its marks and its pages together.
//!
//! * What is taken by anything else is never replaced: it is an error.
//! * New memory is usable only when its marks are.

pub use crate::address::{PAGE, Place};
pub use crate::zone::{DATA_BYTES, STEP, WINDOW_BYTES, WINDOWS, ZONE};

use crate::address::index_of;
use crate::error::{Error, Result};
use crate::zone::{Reserved, base_of};
use crate::{marks, paging};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Windows left so far.
static LEFT: AtomicU64 = AtomicU64::new(0);

/// A window in use, until dropped.
///
/// ```
/// use twinpage::window::Window;
///
/// let window = Window::volatile()?;
/// let place = window.place();
/// place.grow(1)?;
/// assert!(place.bytes() >= 1 && place.is_volatile());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Window {
    place: Place,
}

impl Window {
    /// Takes the window whose first address is `at`, or any that is free. It has no usable bytes yet.
    ///
    /// # Errors
    /// [`Error::Taken`] when anything else lies there, [`Error::NoWindow`] when all are in use,
    /// [`Error::Invalid`] for an address that no window begins at.
    pub fn reserve(at: Option<usize>) -> Result<Window> {
        match at {
            Some(base) => {
                let index = index_of(base).filter(|&index| base_of(index) == base);
                let index = index.ok_or_else(|| {
                    Error::Invalid(format!(
                        "a region at {base:#x}: expected a multiple of {WINDOW_BYTES:#x} from {:#x} to {:#x}",
                        ZONE.start, ZONE.end
                    ))
                })?;
                Window::take(index, false, None)
            }
            None => Window::take_any(false),
        }
    }

    /// Any free window, as plain memory: nothing of it survives, and nothing needs an update.
    ///
    /// # Errors
    /// [`Error::NoWindow`] when all are in use.
    pub fn volatile() -> Result<Window> {
        Window::take_any(true)
    }

    /// The window itself, to be handed round.
    #[must_use]
    pub fn place(&self) -> Place {
        self.place
    }

    /// Begins at a random window, so that regions made by different programs rarely want the same; but takes
    /// last what was left last: the region that lies there may be opened again.
    fn take_any(volatile: bool) -> Result<Window> {
        use std::hash::{BuildHasher, RandomState};
        let first = RandomState::new().hash_one(0) as usize % WINDOWS;
        let all = (first..WINDOWS).chain(0..first);
        // Looked at once: others leave theirs meanwhile, and an order that changes is none.
        let mut all: Vec<(u64, usize)> = all
            .map(|index| (Place::numbered(index).state().left.load(Ordering::Relaxed), index))
            .collect();
        all.sort_by_key(|&(left, _)| left);
        let unchanged = all.iter().map(|&(left, index)| (Some(left), index));
        let whatever = all.iter().map(|&(_, index)| (None, index));
        for (left, index) in unchanged.chain(whatever) {
            match Window::take(index, volatile, left) {
                Err(Error::Taken { .. }) => {}
                other => return other,
            }
        }
        Err(Error::NoWindow { windows: WINDOWS })
    }

    /// Takes a window; with `left`, only if it was not left since.
    fn take(index: usize, volatile: bool, left: Option<u64>) -> Result<Window> {
        let (place, base) = (Place::numbered(index), base_of(index));
        let state = place.state();
        let mut held = place.reserved();
        let taken = || Error::Taken {
            base,
            end: base + WINDOW_BYTES,
        };
        // It was left before its lock was free.
        let since = left.is_some_and(|left| left != state.left.load(Ordering::Relaxed));
        if held.is_some() || since {
            return Err(taken());
        }
        let reserved = Reserved::at(base, WINDOW_BYTES).map_err(|e| match e.kind() {
            std::io::ErrorKind::AlreadyExists => taken(),
            _ => Error::system("reserving 1 TiB of addresses (is there a limit, ulimit -v?)", e),
        })?;
        state.bytes.store(0, Ordering::Relaxed);
        state.bound.store(DATA_BYTES, Ordering::Relaxed);
        state.volatile.store(volatile, Ordering::Relaxed);
        state.has_sound_roots.store(false, Ordering::Relaxed);
        state.gate.set_free(twinpage_os::barrier::light_is_free());
        marks::begin(place, &reserved)?;
        *held = Some(reserved);
        Ok(Window { place })
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        marks::end(self.place);
        let left = LEFT.fetch_add(1, Ordering::Relaxed) + 1;
        self.place.state().left.store(left, Ordering::Relaxed);
        *self.place.reserved() = None;
    }
}

impl Place {
    /// Makes at least the first `bytes` bytes usable; new ones read as zero. Never shrinks.
    ///
    /// # Errors
    /// [`Error::Bound`]; [`Error::System`] when the system has no room.
    pub fn grow(self, bytes: usize) -> Result<()> {
        let bound = self.bound();
        if bytes > bound {
            return Err(Error::Bound { needed: bytes, bound });
        }
        let held = self.reserved();
        let old = self.bytes();
        if bytes <= old {
            return Ok(());
        }
        let Some(reserved) = held.as_ref() else {
            return Err(Error::Invalid("growing a region that is closed".into()));
        };
        // A step of data is a page of either line map, so what is opened is whole pages.
        let new = bytes.next_multiple_of(STEP);
        let base = base_of(self.index());
        let refused = |e| Error::system(format!("growing a region to {new} bytes"), e);
        marks::grow(self, reserved, old..new).map_err(refused)?;
        reserved.open(base + old..base + new).map_err(refused)?;
        match paging::of(self) {
            Some(pager) => pager.adopt(old..new, || reserved.prefer_large(base + old..base + new))?,
            None if self.is_volatile() => reserved.prefer_large(base + old..base + new),
            // What was there before is brought by small pages.
            None => {}
        }
        self.state().bytes.store(new, Ordering::Release);
        Ok(())
    }

    /// The bytes of `range`, from the base, are about to be written by this thread: for memory that no collection
    /// manages.
    ///
    /// # Panics
    /// In a region, outside an update: a crash would tear the write.
    ///
    /// # Safety
    /// The bytes are usable ([`Place::bytes`]), and the window stays in use meanwhile.
    pub unsafe fn touch(self, range: Range<usize>) {
        marks::mark_bytes(self.base().wrapping_add(range.start), range.len());
    }

    /// `range` (bytes from the base, whole pages) holds nothing any more: it reads as zero, and its
    /// memory goes back to the system.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a range that is not whole pages or lies past the end.
    ///
    /// # Panics
    /// In a region, outside an update.
    ///
    /// # Safety
    /// Nothing that lies in the range is used any more.
    pub unsafe fn discard(self, range: Range<usize>) -> Result<()> {
        let whole = range.start.is_multiple_of(PAGE) && range.end.is_multiple_of(PAGE);
        if !whole || range.end > self.bytes() {
            let bytes = self.bytes();
            return Err(Error::Invalid(format!(
                "discarding bytes {range:?} of a region of {bytes}: expected whole pages inside it"
            )));
        }
        let held = self.reserved();
        let Some(reserved) = held.as_ref() else {
            return Err(Error::Invalid("discarding in a region that is closed".into()));
        };
        let pages = base_of(self.index()) + range.start..base_of(self.index()) + range.end;
        let zero = || {
            // SAFETY: the pages lie in the reservation, and the caller uses nothing in them.
            unsafe { reserved.forget(pages) }.map_err(|e| Error::system("giving memory back", e))
        };
        match paging::of(self) {
            Some(pager) => {
                let offsets = range.clone();
                marks::discard(self, range, || pager.discard(offsets, zero))
            }
            None => marks::discard(self, range, zero),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_found_from_any_address_in_it() {
        let window = Window::volatile().unwrap();
        let place = window.place();
        assert_eq!(place.bytes(), 0);
        place.grow(1).unwrap();
        assert_eq!(place.bytes(), STEP);
        assert_eq!(Place::of(place.base()), Some(place));
        assert_eq!(
            Place::of(place.base().wrapping_add(WINDOW_BYTES - 1)),
            Some(place)
        );
        assert_eq!(Place::of(&raw const window), None);
        assert_eq!(place.offset_of(place.base().wrapping_add(77)), 77);
        let base = place.base();
        drop(window);
        assert_eq!(Place::of(base), None);
    }

    #[test]
    fn memory_is_zero_kept_and_given_back() {
        let window = Window::volatile().unwrap();
        let place = window.place();
        place.grow(3 * STEP).unwrap();
        // SAFETY: three steps are usable, and only this test uses them.
        unsafe {
            let bytes = std::slice::from_raw_parts_mut(place.base(), 3 * STEP);
            assert!(bytes.iter().all(|&b| b == 0));
            bytes.fill(5);
            place.grow(4 * STEP).unwrap();
            assert!(bytes.iter().all(|&b| b == 5));
            place.discard(PAGE..STEP).unwrap();
            assert!(bytes[..PAGE].iter().all(|&b| b == 5));
            assert!(bytes[PAGE..STEP].iter().all(|&b| b == 0));
            assert!(bytes[STEP..].iter().all(|&b| b == 5));
            assert!(matches!(place.discard(0..5), Err(Error::Invalid(_))));
            assert!(matches!(place.discard(0..8 * STEP), Err(Error::Invalid(_))));
        }
    }

    #[test]
    fn what_is_taken_is_refused() {
        let window = Window::reserve(None).unwrap();
        let base = window.place().base().addr();
        let taken = Window::reserve(Some(base)).unwrap_err();
        assert!(
            matches!(taken, Error::Taken { base: b, .. } if b == base),
            "{taken}"
        );
        assert!(matches!(
            Window::reserve(Some(base + 4096)),
            Err(Error::Invalid(_))
        ));
        assert!(matches!(Window::reserve(Some(0)), Err(Error::Invalid(_))));
        drop(window);
        Window::reserve(Some(base)).unwrap();
    }

    #[test]
    fn who_left_a_window_finds_it_free() {
        for _ in 0..8 {
            let base = Window::reserve(None).unwrap().place().base().addr();
            let other = Window::reserve(None).unwrap();
            assert_ne!(other.place().base().addr(), base);
            Window::reserve(Some(base)).unwrap();
        }
    }

    #[test]
    fn a_bound_is_kept() {
        let window = Window::volatile().unwrap();
        let place = window.place();
        place.set_bound(2 * STEP);
        place.grow(2 * STEP).unwrap();
        let error = place.grow(2 * STEP + 1).unwrap_err();
        assert!(
            matches!(error, Error::Bound { bound, .. } if bound == 2 * STEP),
            "{error}"
        );
    }
}
