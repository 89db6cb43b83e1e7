//! The heap of a region: blocks of any size, all of whose bookkeeping lies in the region.
//!
//! ```text
//! | unit 0         | unit 1       | unit 2 ...   |                  |              |
//! | header, table  | slab: blocks | free run     | large block      | slab         |  top
//!   64 KiB           of one size                   whole units
//! ```
//!
//! * All state is in the region and changes inside updates only, so a crash takes the heap back to a
//!   commit with everything else: no block is lost and none is in use twice, without a log. Nothing is
//!   cached outside.
//! * Locks are outside (`locks.rs`): after a crash none is held.
//! * Threads take blocks from shards of their own; a block may be freed by any thread.
//! * Every byte is marked before it is written; free blocks hold nothing, and are not written to.
//! * Links are looked at before they are followed: a damaged heap is an error ([`HeapError::Damaged`]),
//!   not undefined behaviour. [`Heap::check`] walks all of it.
//!
//! Reading order: [`format`](self), `classes.rs`, `slabs.rs`, `units.rs`; then [`crate::check`].

mod brand;
pub(crate) mod classes;
pub(crate) mod format;
pub(crate) mod locks;
pub(crate) mod marking;
mod slabs;
pub(crate) mod stats;
pub(crate) mod units;

pub use crate::error::HeapError;
pub use brand::{Brand, Heap};
pub use stats::{ClassStats, HeapStats};

use crate::address::Place;
use crate::gate;
use crate::marks::{self, mark_bytes};
use crate::zone::DATA_BYTES;
use format::{FIRST_ENTRIES, Header, LARGE, MAGIC, REST, SLAB, Slab, UNIT, VERSION};
use slabs::Slabs;
use std::alloc::Layout;
use std::fmt;
use std::ptr::NonNull;
use units::Units;

/// A heap, whatever it belongs to: what [`Heap`] and the collections work with.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct RawHeap(NonNull<Header>);

// SAFETY: a handle; whatever it is used for takes the locks.
unsafe impl Send for RawHeap {}
// SAFETY: a handle is a number; what it is used for takes the locks.
unsafe impl Sync for RawHeap {}

impl RawHeap {
    /// Makes a heap in an empty window. Its hash tables are seeded from `seed`: keep it from those that
    /// choose the keys.
    ///
    /// # Errors
    /// [`HeapError::Grow`]; [`HeapError::Exists`] when there is one already.
    ///
    /// # Panics
    /// Outside an update of the region.
    pub(crate) fn create(place: Place, seed: u64) -> Result<RawHeap, HeapError> {
        place.grow(UNIT)?;
        let header = place.base().cast::<Header>();
        let _lock = locks::units(header.addr());
        // SAFETY: the first unit is usable, and any bytes are a header; the lock is held.
        if unsafe { (*header).state.magic != 0 || (*header).state.top != 0 } {
            return Err(HeapError::Exists);
        }
        mark_bytes(header, size_of::<Header>());
        // SAFETY: the window's first unit is usable, reads as zero, and has no owner yet. All fields may be zero.
        unsafe {
            let state = &raw mut (*header).state;
            (*state).magic = MAGIC;
            (*state).version = VERSION;
            (*state).unit_bytes = UNIT as u32;
            (*state).top = 1;
            (*state).entries = FIRST_ENTRIES;
            (*header).seed = seed;
            Units::new(header).create();
            Ok(RawHeap(NonNull::new_unchecked(header)))
        }
    }

    /// The heap that is in a window already.
    ///
    /// # Errors
    /// [`HeapError::Damaged`] when there is none, or one of another version.
    pub(crate) fn open(place: Place) -> Result<RawHeap, HeapError> {
        if place.bytes() < UNIT {
            return Err(HeapError::damaged("the region is too small to hold one"));
        }
        let header = place.base().cast::<Header>();
        // Others may be taking blocks.
        let _lock = locks::units(header.addr());
        // SAFETY: the first unit is usable, and any bytes are a header.
        let state = unsafe { &(*header).state };
        let (magic, version, unit) = (state.magic, state.version, state.unit_bytes);
        if magic != MAGIC {
            return Err(HeapError::damaged(format!(
                "it begins with {magic:#x}, not with `TpHeap`"
            )));
        }
        if version != VERSION || unit as usize != UNIT {
            return Err(HeapError::damaged(format!(
                "version {version} with units of {unit} bytes; this build reads version {VERSION} with {UNIT}"
            )));
        }
        let (top, entries, table) = (state.top as usize, state.entries, state.table as usize);
        let room = if table == 0 {
            FIRST_ENTRIES as usize
        } else {
            top.saturating_sub(table) * (UNIT / 16)
        };
        if top == 0 || top * UNIT > place.bytes() || entries as usize > room || top > entries as usize {
            return Err(HeapError::damaged(format!(
                "{top} units and a table of {entries} entries in {} bytes",
                place.bytes()
            )));
        }
        NonNull::new(header)
            .map(RawHeap)
            .ok_or_else(|| HeapError::damaged("no window"))
    }

    /// A block for `layout`, with whatever bytes it last had. Of no bytes: no block, and nothing to free.
    ///
    /// # Errors
    /// [`HeapError`]; nothing has changed then.
    ///
    /// # Panics
    /// Outside an update of the region.
    #[inline]
    pub(crate) fn try_allocate(self, layout: Layout) -> Result<NonNull<u8>, HeapError> {
        if layout.size() == 0 {
            return Ok(layout.dangling_ptr());
        }
        // Before anything has changed: a panic is all it takes.
        marks::assert_may_write(self.header());
        let Some(class) = classes::of(layout) else {
            return self.allocate_large(layout);
        };
        let thread = locks::Thread::current();
        let _lock = locks::shard(self.address(), thread.shard(), thread);
        // SAFETY: the heap is in a usable window (of which it is a handle), and the lock is held.
        let slabs = unsafe { Slabs::new(self.header(), thread.shard(), class) };
        match slabs.take_simply() {
            Some(block) => Ok(block),
            None => self.allocate_otherwise(slabs, class),
        }
    }

    /// As [`Heap::try_allocate`], for collections whose methods return no error.
    ///
    /// # Panics
    /// When there is no memory: the region keeps its state, and the update goes on after `catch_unwind`.
    #[inline]
    #[track_caller]
    pub(crate) fn allocate(self, layout: Layout) -> NonNull<u8> {
        match self.try_allocate(layout) {
            Ok(block) => block,
            Err(error) => no_memory(&error),
        }
    }

    /// Frees a block. Of no bytes: nothing to do.
    ///
    /// # Safety
    /// The block is this heap's, allocated with the same layout, and not used any more.
    ///
    /// Outside an update of the region the process ends: a panic would leave a change half done.
    ///
    /// # Panics
    /// When the heap is damaged. While another panic unwinds the
    /// block is left as a leak instead.
    #[inline]
    pub(crate) unsafe fn deallocate(self, block: NonNull<u8>, layout: Layout) {
        if layout.size() == 0 {
            return;
        }
        if !marks::may_write(self.header()) {
            if std::thread::panicking() {
                return;
            }
            marks::outside_update();
        }
        // SAFETY: this function's own contract.
        unsafe { self.free(block, layout) };
    }

    /// As [`Heap::deallocate`] on the heap the block is of.
    ///
    /// # Safety
    /// As [`Heap::deallocate`].
    ///
    /// # Panics
    /// As [`Heap::deallocate`].
    #[inline]
    pub(crate) unsafe fn deallocate_from_its_own(block: NonNull<u8>, layout: Layout) {
        let [offset] = gate::here().offsets_of([block.addr().get()]);
        if offset >= DATA_BYTES || layout.size() == 0 {
            // SAFETY: this function's own contract.
            return unsafe { RawHeap::of(block).deallocate(block, layout) };
        }
        // In the window of the innermost update, whose base is that of its heap.
        let header = NonNull::new(std::ptr::with_exposed_provenance_mut(block.addr().get() - offset));
        // SAFETY: this function's own contract; a window's base is not null.
        unsafe { RawHeap(header.unwrap_unchecked()).free(block, layout) };
    }

    /// # Safety
    /// As [`Heap::deallocate`], of some bytes.
    #[inline]
    unsafe fn free(self, block: NonNull<u8>, layout: Layout) {
        let done = match classes::of(layout) {
            // SAFETY: this function's own contract.
            Some(class) => unsafe { self.free_in_slab(block, class) },
            None => self.free_large(block, layout),
        };
        if let Err(error) = done {
            no_memory(&error);
        }
    }

    /// Makes a block of whole units longer where it is, if what follows it is free. Returns whether it
    /// was; the block then fits `new` instead of `old`.
    ///
    /// # Errors
    /// [`HeapError::Damaged`].
    ///
    /// # Safety
    /// As [`Heap::deallocate`]; `new` is not smaller and no stricter aligned.
    pub(crate) unsafe fn try_extend(
        self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<bool, HeapError> {
        if old.size() == 0 || new.align() > UNIT {
            return Ok(false);
        }
        if let Some(class) = classes::of(old) {
            return Ok(classes::of(new) == Some(class));
        }
        let (had, wanted) = (units_of(old)?, units_of(new)?);
        if had == wanted {
            return Ok(true);
        }
        let _lock = locks::units(self.address());
        // SAFETY: the heap is in a usable window, and the lock is held.
        let mut units = unsafe { Units::new(self.header()) };
        units.extend(self.unit(block), had, wanted)
    }

    /// Gives the memory of all free units back, to the region's file and to the system. It happens by
    /// itself when there is much.
    ///
    /// # Errors
    /// [`HeapError`].
    pub(crate) fn give_back(self) -> Result<u64, HeapError> {
        marks::assert_may_write(self.header());
        let _lock = locks::units(self.address());
        // SAFETY: the heap is in a usable window, and the lock is held.
        unsafe { Units::new(self.header()) }.give_back()
    }

    /// Frees a block of `bytes` bytes that a check listed. Where there is none, nothing happens.
    ///
    /// # Safety
    /// The block is not used any more.
    pub(crate) unsafe fn free_block(self, at: u64, bytes: u64) {
        let block = NonNull::new(std::ptr::with_exposed_provenance_mut::<u8>(at as usize));
        if let (Some(block), Ok(layout)) = (block, Layout::from_size_align(bytes as usize, 1)) {
            // SAFETY: this function's own contract; any layout of a block's whole size is of its class.
            unsafe { self.deallocate(block, layout) };
        }
    }

    /// The heap of the block at `at`.
    #[inline]
    pub(crate) fn of<T>(at: NonNull<T>) -> RawHeap {
        Place::of(at.as_ptr())
            .and_then(|place| NonNull::new(place.base().cast()))
            .map(RawHeap)
            .expect("a block lies in a window")
    }

    /// What hash tables are seeded from.
    pub(crate) fn hash_seed(self) -> u64 {
        // SAFETY: the heap is in a usable window; the seed is written once, when the heap is made.
        unsafe { (*self.header()).seed }
    }

    pub(crate) fn place(self) -> Place {
        Place::of(self.header()).expect("a heap lies in a window")
    }

    /// No thread takes or frees a block while this lives.
    pub(crate) fn lock_all(self) -> (Vec<locks::Locked>, locks::Locked) {
        (locks::all_shards(self.address()), locks::units(self.address()))
    }

    #[inline]
    pub(crate) fn header(self) -> *mut Header {
        self.0.as_ptr()
    }

    #[inline]
    fn address(self) -> usize {
        self.0.as_ptr().addr()
    }

    fn unit(self, at: NonNull<u8>) -> u32 {
        ((at.addr().get() - self.address()) / UNIT) as u32
    }

    #[inline(never)]
    fn allocate_otherwise(self, slabs: Slabs, class: usize) -> Result<NonNull<u8>, HeapError> {
        match slabs.take()? {
            Some(block) => Ok(block),
            None => self.allocate_in_new_slab(slabs, class),
        }
    }

    #[cold]
    fn allocate_in_new_slab(self, slabs: Slabs, class: usize) -> Result<NonNull<u8>, HeapError> {
        let length = classes::units(class) as u32;
        let run = {
            let _lock = locks::units(self.address());
            // SAFETY: the heap is in a usable window, and the lock is held.
            let mut units = unsafe { Units::new(self.header()) };
            let run = units.take(length)?;
            for back in 1..length {
                units.put(
                    run + back,
                    format::Entry {
                        kind: REST,
                        back: back as u16,
                        ..units::EMPTY
                    },
                );
            }
            units.put(
                run,
                format::Entry {
                    kind: SLAB,
                    length,
                    ..units::EMPTY
                },
            );
            run
        };
        // SAFETY: the run was just taken for it.
        unsafe { slabs.add(run) }?;
        slabs
            .take()?
            .ok_or_else(|| HeapError::damaged("a new slab has no room"))
    }

    /// # Safety
    /// As [`Heap::deallocate`].
    #[inline]
    unsafe fn free_in_slab(self, block: NonNull<u8>, class: usize) -> Result<(), HeapError> {
        let slab = self.slab_of(block, class)?;
        // SAFETY: the block is in use, so its slab is there and stays with its shard.
        let (is_slab, shard) = unsafe { (slabs::is_of(slab, class), usize::from((*slab).shard)) };
        if !is_slab {
            return Err(in_no_slab(block));
        }
        let _lock = locks::shard(self.address(), shard, locks::Thread::current());
        // SAFETY: the heap is in a usable window, the shard's lock is held, and `slab` is a slab of it.
        unsafe {
            let slabs = Slabs::new(self.header(), shard, class);
            if slabs.put_simply(slab, block.as_ptr()) {
                return Ok(());
            }
            self.free_otherwise(slabs, slab, block, class)
        }
    }

    /// # Safety
    /// As [`Slabs::put`].
    #[inline(never)]
    unsafe fn free_otherwise(
        self,
        slabs: Slabs,
        slab: *mut Slab,
        block: NonNull<u8>,
        class: usize,
    ) -> Result<(), HeapError> {
        // SAFETY: this function's own contract.
        match unsafe { slabs.put(slab, block.as_ptr()) }? {
            Some(run) => self.release(run, classes::units(class) as u32),
            None => Ok(()),
        }
    }

    /// The slab a block lies in.
    #[inline]
    fn slab_of(self, block: NonNull<u8>, class: usize) -> Result<*mut Slab, HeapError> {
        let mut unit = self.unit(block);
        if classes::units(class) > 1 {
            let _lock = locks::units(self.address());
            // SAFETY: the heap is in a usable window, and the lock is held.
            let entry = unsafe { Units::new(self.header()) }.get(unit)?;
            if entry.kind == REST {
                unit = unit.saturating_sub(entry.back.into());
            }
        }
        Ok(self.slab_at(unit))
    }

    #[inline]
    fn slab_at(self, unit: u32) -> *mut Slab {
        self.header()
            .cast::<u8>()
            .wrapping_add(unit as usize * UNIT)
            .cast()
    }

    fn allocate_large(self, layout: Layout) -> Result<NonNull<u8>, HeapError> {
        let length = units_of(layout)?;
        let _lock = locks::units(self.address());
        // SAFETY: the heap is in a usable window, and the lock is held.
        let mut units = unsafe { Units::new(self.header()) };
        let run = units.take(length)?;
        units.put(
            run,
            format::Entry {
                kind: LARGE,
                length,
                ..units::EMPTY
            },
        );
        let block = self.header().cast::<u8>().wrapping_add(run as usize * UNIT);
        NonNull::new(block).ok_or_else(|| HeapError::damaged("a block at address 0"))
    }

    fn free_large(self, block: NonNull<u8>, layout: Layout) -> Result<(), HeapError> {
        let (run, length) = (self.unit(block), units_of(layout)?);
        {
            let _lock = locks::units(self.address());
            // SAFETY: the heap is in a usable window, and the lock is held.
            let entry = unsafe { Units::new(self.header()) }.get(run)?;
            if entry.kind != LARGE || entry.length != length {
                return Err(HeapError::damaged(format!(
                    "no block of {length} units begins at {block:p}"
                )));
            }
        }
        self.release(run, length)
    }

    fn release(self, run: u32, length: u32) -> Result<(), HeapError> {
        let _lock = locks::units(self.address());
        // SAFETY: the heap is in a usable window, and the lock is held.
        unsafe { Units::new(self.header()) }.release(run, length)
    }
}

impl fmt::Debug for RawHeap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Heap({:p})", self.0)
    }
}

/// Units of a large block.
fn units_of(layout: Layout) -> Result<u32, HeapError> {
    if layout.align() > UNIT {
        return Err(HeapError::Alignment {
            align: layout.align() as u64,
            most: UNIT as u64,
        });
    }
    let units = u32::try_from(layout.size().div_ceil(UNIT));
    units.map_err(|_| HeapError::TooLarge {
        bytes: layout.size() as u64,
    })
}

#[cold]
#[inline(never)]
fn in_no_slab(block: NonNull<u8>) -> HeapError {
    HeapError::damaged(format!("the block at {block:p} is in no slab of its size"))
}

#[cold]
#[inline(never)]
#[track_caller]
fn no_memory(error: &HeapError) -> ! {
    panic!("{error}")
}
