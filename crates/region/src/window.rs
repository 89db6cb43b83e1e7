//! Where regions live: windows of one tebibyte at fixed addresses, found from any pointer into them.
//!
//! ```text
//! 0x1000_0000_0000                   the zone: 64 windows                    0x5000_0000_0000
//! |  window 0  |  window 1  |  ...                                        |  window 63  |
//!
//! base                                base + 512 GiB                                  base + 1 TiB
//! |  data: the region's pages         |  side: line maps, saved lines (`marks.rs`)      |
//! |<- usable ->|<- no access, grows ->|
//! ```
//!
//! * A window is aligned to its size, so the window of an address is some of its bits: a write is
//!   marked without any handle.
//! * The zone is far from where Linux puts programs, heaps, stacks and libraries. What is taken all
//!   the same is never replaced: it is an error.
//! * No memory is used but what is written; no address is usable but what was grown into.
//! * The states of all windows are static: one found from an address is alive.

use crate::error::{Error, Result};
use crate::gate::{Gate, Here};
use crate::paging::Pager;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

#[cfg_attr(any(miri, twinpage_plain), path = "window/plain.rs")]
mod fixed;

use fixed::base_of;
pub use fixed::{DATA_BYTES, STEP, WINDOW_BYTES, WINDOWS, ZONE};
pub(crate) use fixed::{HAS_FAULTS, Reserved, SAVED_BYTES, SIDE, locate};

/// Bytes in a page of the system, and of the maps.
pub const PAGE: usize = 4096;

/// What is written often, apart from what is read often.
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

/// One window's state, there whether or not the window is in use.
#[repr(C, align(128))]
pub(crate) struct State {
    /// What updates mark with, and what keeps them out of cuts (`gate.rs`).
    pub(crate) here: Here,
    pub(crate) gate: Gate,
    bytes: AtomicUsize,
    bound: AtomicUsize,
    /// Plain memory: no epochs, no store.
    volatile: AtomicBool,
    /// Bytes are captured by whole pages, not by lines (`marks.rs`).
    pub(crate) by_page: AtomicBool,
    /// Bytes in a page of the store below.
    pub(crate) stored_page: AtomicUsize,
    /// Bytes from the base that were given back since the last cut (`marks.rs`).
    pub(crate) discarded: Mutex<Vec<Range<usize>>>,
    /// Whether groups of pages are put on the list when their first line is marked, and the list (`marks/listed.rs`).
    pub(crate) lists: AtomicBool,
    pub(crate) groups: Mutex<Vec<u32>>,
    /// How many cuts there were (`marks.rs`).
    pub(crate) cuts: AtomicU64,
    /// Slots for saved lines given out since the last cut (`marks/saved.rs`).
    pub(crate) saved: Apart<AtomicUsize>,
    /// Brings and takes pages, where they are not all in memory (`paging.rs`).
    pager: Mutex<Option<Arc<Pager>>>,
    /// Whether pages may go.
    pub(crate) takes_away: AtomicBool,
    reserved: Mutex<Option<Reserved>>,
    /// When it was last left, counted in windows left; 0: never.
    left: AtomicU64,
}

static STATES: [State; WINDOWS] = [const {
    State {
        here: Here::new(),
        gate: Gate::new(),
        bytes: AtomicUsize::new(0),
        bound: AtomicUsize::new(0),
        volatile: AtomicBool::new(false),
        by_page: AtomicBool::new(false),
        stored_page: AtomicUsize::new(0),
        discarded: Mutex::new(Vec::new()),
        lists: AtomicBool::new(false),
        groups: Mutex::new(Vec::new()),
        cuts: AtomicU64::new(0),
        saved: Apart(AtomicUsize::new(0)),
        pager: Mutex::new(None),
        takes_away: AtomicBool::new(false),
        reserved: Mutex::new(None),
        left: AtomicU64::new(0),
    }
}; WINDOWS];

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

/// A window found from an address, or borrowed from its owner: cheap to copy, valid while the
/// [`Window`] is.
///
/// ```
/// use twinpage::window::{Place, Window};
///
/// let window = Window::volatile()?;
/// let place = window.place();
/// place.grow(4096)?;
/// let at = place.base().wrapping_add(17);
/// assert_eq!(Place::of(at), Some(place)); // found by arithmetic
/// assert_eq!(place.offset_of(at), 17);
/// assert_eq!(Place::of(&raw const window), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct Place {
    index: usize,
    /// That of the number: an update is not to look for it.
    state: &'static State,
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
            .map(|index| (STATES[index].left.load(Ordering::Relaxed), index))
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
        state.gate.set_free(twinpage_os::barrier::light_is_free());
        crate::marks::begin(place, &reserved)?;
        *held = Some(reserved);
        Ok(Window { place })
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        crate::marks::end(self.place);
        let left = LEFT.fetch_add(1, Ordering::Relaxed) + 1;
        self.place.state().left.store(left, Ordering::Relaxed);
        *self.place.reserved() = None;
    }
}

impl Place {
    /// The window in use that `at` points into, wherever in it.
    #[must_use]
    #[inline]
    pub fn of<T: ?Sized>(at: *const T) -> Option<Place> {
        let place = Place::numbered(index_of(at.addr())?);
        (place.state().here.current.load(Ordering::Acquire) != 0).then_some(place)
    }

    /// Its first byte.
    #[must_use]
    #[inline]
    pub fn base(self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(base_of(self.index))
    }

    /// Bytes from the base on that can be used.
    #[must_use]
    pub fn bytes(self) -> usize {
        self.state().bytes.load(Ordering::Acquire)
    }

    /// Bytes it may have at most.
    #[must_use]
    pub fn bound(self) -> usize {
        self.state().bound.load(Ordering::Relaxed)
    }

    /// Whether it is plain memory, without a store.
    #[must_use]
    #[inline]
    pub fn is_volatile(self) -> bool {
        self.state().volatile.load(Ordering::Relaxed)
    }

    /// The most bytes it may have, from now on.
    pub fn set_bound(self, bound: usize) {
        self.state().bound.store(bound.min(DATA_BYTES), Ordering::Relaxed);
    }

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
        let base = base_of(self.index);
        let refused = |e| Error::system(format!("growing a region to {new} bytes"), e);
        crate::marks::grow(self, reserved, old..new).map_err(refused)?;
        reserved.open(base + old..base + new).map_err(refused)?;
        match self.pager() {
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
        crate::marks::touch(self.base().wrapping_add(range.start), range.len());
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
        let pages = base_of(self.index) + range.start..base_of(self.index) + range.end;
        let zero = || {
            // SAFETY: by the caller's word nothing in the range is in use.
            unsafe { reserved.forget(pages) }.map_err(|e| Error::system("giving memory back", e))
        };
        match self.pager() {
            Some(pager) => {
                let offsets = range.clone();
                crate::marks::discard(self, range, || pager.discard(offsets, zero))
            }
            None => crate::marks::discard(self, range, zero),
        }
    }

    /// Forgets what pages of the data hold, as [`Reserved::forget`].
    ///
    /// # Safety
    /// They are brought again before anybody sees them.
    pub(crate) unsafe fn forget(self, range: Range<usize>) -> Result<()> {
        let pages = base_of(self.index) + range.start..base_of(self.index) + range.end;
        // SAFETY: by the caller's word.
        unsafe { fixed::forget(pages) }.map_err(|e| Error::system("giving memory back", e))
    }

    /// Opens a part of the side.
    pub(crate) fn open_side(self, range: Range<usize>) -> Result<()> {
        let base = base_of(self.index);
        match self.reserved().as_ref() {
            Some(reserved) => reserved
                .open(base + range.start..base + range.end)
                .map_err(|e| Error::system("opening a region's side", e)),
            None => Err(Error::Invalid("the region is closed".into())),
        }
    }

    pub(crate) fn set_pager(self, pager: Option<Arc<Pager>>) {
        let takes_away = pager.as_ref().is_some_and(|pager| pager.takes_away());
        let state = self.state();
        *state.pager.lock().unwrap_or_else(PoisonError::into_inner) = pager;
        state.takes_away.store(takes_away, Ordering::Release);
    }

    pub(crate) fn pager(self) -> Option<Arc<Pager>> {
        let pager = self.state().pager.lock();
        pager.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Bytes from the base to `at`, which points into the window.
    #[must_use]
    #[inline]
    pub fn offset_of<T: ?Sized>(self, at: *const T) -> usize {
        at.addr() - base_of(self.index)
    }

    /// The window of that number, whether or not it is in use.
    #[inline]
    pub(crate) fn numbered(index: usize) -> Place {
        let index = index % WINDOWS; // always less: spares a check
        Place {
            index,
            state: &STATES[index],
        }
    }

    /// Its number in the zone.
    #[inline]
    pub(crate) fn index(self) -> usize {
        self.index % WINDOWS // always less: spares a check
    }

    #[inline]
    pub(crate) fn state(self) -> &'static State {
        self.state
    }

    fn reserved(self) -> std::sync::MutexGuard<'static, Option<Reserved>> {
        let held = self.state().reserved.lock();
        held.unwrap_or_else(PoisonError::into_inner)
    }
}

impl PartialEq for Place {
    fn eq(&self, other: &Place) -> bool {
        self.index == other.index
    }
}

impl Eq for Place {}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:p}", self.bytes(), self.base())
    }
}

/// The number of the window that holds `address`.
#[inline]
pub(crate) fn index_of(address: usize) -> Option<usize> {
    locate(address).map(|(index, _)| index)
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
