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
use crate::gate::{self, Busy, Closed, Gate, MarkState, Pinned};
use crate::lock::lock;
use crate::zone::{self, DATA_BYTES, Reserved, WINDOWS, base_of, locate};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// Bytes in a page of the system, and of the maps.
pub const PAGE: usize = 4096;

/// What is written often, apart from what is read often.
#[repr(align(128))]
pub(crate) struct CachePadded<T>(pub(crate) T);

/// Groups of pages that a list has without a lock: of nearly every section all.
pub(crate) const FEW_GROUPS: usize = 30;

/// The groups of pages with a mark, in the order of their first, for the one thread that writes (`marks/listed.rs`).
pub(crate) struct Listed {
    /// How many there are, but for the rest.
    pub(crate) count: AtomicUsize,
    pub(crate) few: [AtomicU32; FEW_GROUPS],
    pub(crate) rest: Mutex<Vec<u32>>,
}

impl Listed {
    const fn new() -> Listed {
        Listed {
            count: AtomicUsize::new(0),
            few: [const { AtomicU32::new(0) }; FEW_GROUPS],
            rest: Mutex::new(Vec::new()),
        }
    }
}

/// One window's state, there whether or not the window is in use.
#[repr(C, align(128))]
pub(crate) struct State {
    /// What updates mark with, and what keeps them out of cuts (`gate.rs`).
    pub(crate) here: MarkState,
    pub(crate) gate: Gate,
    pub(crate) bytes: AtomicUsize,
    pub(crate) bound: AtomicUsize,
    /// Plain memory: no epochs, no store.
    pub(crate) volatile: AtomicBool,
    /// Bytes are captured by whole pages, not by lines (`marks.rs`).
    pub(crate) by_page: AtomicBool,
    /// Bytes in a page of the store below.
    pub(crate) stored_page: AtomicUsize,
    /// Bytes from the base that were given back since the last cut (`marks.rs`), and whether any were: to be asked where
    /// no other thread writes.
    pub(crate) discarded: Mutex<Vec<Range<usize>>>,
    pub(crate) has_discarded: AtomicBool,
    /// Whether groups of pages are put on the list when their first line is marked, and the list (`marks/listed.rs`).
    pub(crate) lists: AtomicBool,
    pub(crate) groups: Listed,
    /// Slots for saved lines given out since the last cut (`marks/saved.rs`).
    pub(crate) saved: CachePadded<AtomicUsize>,
    /// Whether pages may be evicted (`paging.rs`).
    pub(crate) takes_away: AtomicBool,
    /// The table of roots was looked at since the window was taken (`root_table.rs`).
    pub(crate) has_sound_roots: AtomicBool,
    reserved: Mutex<Option<Reserved>>,
    /// When it was last left, counted in windows left; 0: never.
    pub(crate) left: AtomicU64,
}

static STATES: [State; WINDOWS] = [const {
    State {
        here: MarkState::new(),
        gate: Gate::new(),
        bytes: AtomicUsize::new(0),
        bound: AtomicUsize::new(0),
        volatile: AtomicBool::new(false),
        by_page: AtomicBool::new(false),
        stored_page: AtomicUsize::new(0),
        discarded: Mutex::new(Vec::new()),
        has_discarded: AtomicBool::new(false),
        lists: AtomicBool::new(false),
        groups: Listed::new(),
        saved: CachePadded(AtomicUsize::new(0)),
        takes_away: AtomicBool::new(false),
        has_sound_roots: AtomicBool::new(false),
        reserved: Mutex::new(None),
        left: AtomicU64::new(0),
    }
}; WINDOWS];

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

    /// Forgets what pages of the data hold, as [`Reserved::forget`].
    ///
    /// # Safety
    /// They are brought again before anybody sees them.
    pub(crate) unsafe fn forget(self, range: Range<usize>) -> Result<()> {
        let pages = base_of(self.index) + range.start..base_of(self.index) + range.end;
        // SAFETY: the range lies in the window's data, and the caller has it loaded before it is read.
        unsafe { zone::forget(pages) }.map_err(|e| Error::system("giving memory back", e))
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

    /// This thread begins an update of the region; it waits while a cut is made.
    #[inline]
    pub(crate) fn enter(self) -> Pinned {
        gate::enter(&self.state.gate, &self.state.here, self.index())
    }

    /// This thread becomes part of an update that another thread is in, and stays in for longer: [`gate::enter_beside`].
    pub(crate) fn enter_beside(self) -> Pinned {
        gate::enter_beside(&self.state.gate, &self.state.here, self.index())
    }

    /// Whether this thread is in a reading of the region.
    pub(crate) fn is_reading(self) -> bool {
        gate::is_reading(self.index())
    }

    /// This thread begins a reading of the region, which waits for nothing.
    #[inline]
    pub(crate) fn begin_reading(self) -> gate::Reading {
        gate::begin_reading(&self.state.gate, self.index())
    }

    /// How many cuts there were. In an update none is made.
    #[inline]
    pub(crate) fn cuts(self) -> u64 {
        self.state.here.cuts.load(Ordering::Relaxed)
    }

    /// Whether a cut waits for the updates that are in.
    #[inline]
    pub(crate) fn is_cut_wanted(self) -> bool {
        self.state.gate.is_wanted()
    }

    /// Whether this thread is in an update of the region.
    #[inline]
    pub(crate) fn is_inside(self) -> bool {
        gate::is_inside(self.index())
    }

    /// Whether a thread that has a `&mut` into the region may write there: it is inside an update, or the thread is that lent
    /// it the reference (`std::thread::scope`). The types allow no other.
    pub(crate) fn may_be_written(self) -> bool {
        self.is_inside() || gate::anybody_inside(self.index())
    }

    /// Keeps updates out and waits for those that are in: [`Gate::close`].
    pub(crate) fn close_gate(self, limit: Duration, gave_up: impl FnMut(Duration)) -> Result<Closed, Busy> {
        self.state.gate.close(self.index(), limit, gave_up)
    }

    pub(crate) fn reserved(self) -> MutexGuard<'static, Option<Reserved>> {
        lock(&self.state().reserved)
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
