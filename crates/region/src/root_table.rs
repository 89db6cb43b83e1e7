//! The table of the roots, as it is kept in the region.
//!
//! * Only this file looks at it or changes it, with its lock held.
//! * All memory that a change needs is taken before anything changes.

use crate::address::Place;
use crate::collections::{self, Vec};
use crate::error::RootError;
use crate::heap::format::Header;
use crate::heap::{Heap, HeapError, RawHeap};
use crate::lock::lock;
use crate::marks::mark_bytes;
use crate::persist::{Description, Of, Persist};
use crate::root_entry::RootEntry;
use crate::zone::WINDOWS;
use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard};

/// Held while the table of a window is looked at or changed.
static LOCKS: [Mutex<()>; WINDOWS] = [const { Mutex::new(()) }; WINDOWS];

/// The table of the roots.
type Table<'r> = Vec<'r, RootEntry<'r>>;

/// A root that was found.
pub(crate) struct Found {
    pub(crate) at: u64,
    pub(crate) description: Description,
}

impl Found {
    /// Refuses what is not a `T` as it is.
    pub(crate) fn is_read_as<T: Persist>(&self, name: &str) -> Result<(), RootError> {
        match self.description.is_of::<T>() {
            true => Ok(()),
            false => Err(RootError::Layout {
                name: name.into(),
                stored: self.description.clone().into(),
                asked: Description::of::<T>().into(),
            }),
        }
    }
}

/// The heap of a window, made if there is none. The caller is in an update.
pub(crate) fn heap_of(place: Place) -> Result<RawHeap, HeapError> {
    use std::hash::{BuildHasher, RandomState};
    let _lock = lock_of(place);
    let header = place.base().cast::<Header>();
    // SAFETY: the first unit is usable if the region is as long as a header; any bytes are a header.
    let is_empty = place.bytes() < size_of::<Header>()
        || unsafe { (*header).state.magic == 0 && (*header).state.top == 0 };
    match is_empty {
        true => RawHeap::create(place, RandomState::new().hash_one(place.index())),
        false => RawHeap::open(place),
    }
}

fn lock_of(place: Place) -> MutexGuard<'static, ()> {
    lock(&LOCKS[place.index()])
}

fn lock_table(heap: Heap<'_>) -> MutexGuard<'static, ()> {
    lock_of(heap.raw().place())
}

/// The table, looked at before it is used first: what is changed later is changed here. `None`: there is none yet.
///
/// # Safety
/// The lock of the table is held for as long as it is used.
unsafe fn table<'r>(heap: Heap<'r>) -> Result<Option<&'r Table<'r>>, HeapError> {
    // SAFETY: the header is there as long as the heap.
    let at = unsafe { (*heap.raw().header()).roots };
    if at == 0 {
        return Ok(None);
    }
    let is_sound = &heap.raw().place().state().has_sound_roots;
    if !is_sound.load(Ordering::Relaxed) {
        if !heap.raw().has_root_table(at) {
            return Err(HeapError::damaged(format!("the table of roots at {at:#x}")));
        }
        is_sound.store(true, Ordering::Relaxed);
    }
    // SAFETY: it is a vector of entries with sound texts, which do not change while the lock is held.
    Ok(Some(unsafe { &*std::ptr::with_exposed_provenance(at as usize) }))
}

/// As [`table`], to change it: marked as written.
///
/// # Safety
/// As [`table`].
unsafe fn table_mut<'r>(heap: Heap<'r>) -> Result<Option<&'r mut Table<'r>>, HeapError> {
    // SAFETY: this function's own contract.
    if unsafe { table(heap) }?.is_none() {
        return Ok(None);
    }
    // SAFETY: the header is there as long as the heap.
    let at = std::ptr::with_exposed_provenance_mut(unsafe { (*heap.raw().header()).roots } as usize);
    mark_bytes(at, size_of::<Table<'r>>());
    // SAFETY: `table` checked that a table is there; the caller holds its lock, so there is no other reference.
    Ok(Some(unsafe { &mut *at }))
}

fn parse(entry: &RootEntry<'_>) -> Result<Description, RootError> {
    let bad = |e| HeapError::damaged(format!("root {:?}: {e}", entry.name));
    Ok(Description::parse(&entry.layout).map_err(bad)?)
}

pub(crate) fn find(heap: Heap<'_>, name: &str) -> Result<Option<Found>, RootError> {
    let _lock = lock_table(heap);
    // SAFETY: the lock is held.
    let Some(table) = (unsafe { table(heap) })? else {
        return Ok(None);
    };
    let Some(entry) = table.iter().find(|entry| entry.name == *name) else {
        return Ok(None);
    };
    let description = parse(entry)?;
    let ty = description.get(0);
    if (entry.bytes, entry.align) != (ty.bytes, ty.align) {
        let why = format!("root {name:?} of {} bytes at {:#x}", entry.bytes, entry.at);
        return Err(HeapError::damaged(why).into());
    }
    let checked = heap.raw().check_head(&description, entry.at);
    checked.map_err(|finding| HeapError::damaged(format!("root {name:?}, {finding}")))?;
    Ok(Some(Found {
        at: entry.at,
        description,
    }))
}

/// Every root: its name, and the description of its type.
pub(crate) fn all(heap: Heap<'_>) -> Result<std::vec::Vec<(String, Description)>, RootError> {
    let _lock = lock_table(heap);
    // SAFETY: the lock is held.
    let table = unsafe { table(heap) }?;
    let entries = table.into_iter().flat_map(|table| table.iter());
    entries
        .map(|entry| Ok((entry.name.to_string(), parse(entry)?)))
        .collect()
}

/// The description of `T` as it is kept, if it can be read again.
pub(crate) fn kept_layout<T: Persist>(name: &str) -> Result<String, RootError> {
    let description = Description::of::<T>();
    let name = name.to_owned();
    match description.validate() {
        Ok(()) => Ok(description.text()),
        Err(why) => Err(RootError::Type { name, why }),
    }
}

/// Adds a root to the table.
pub(crate) fn create<'r, T: Persist>(
    heap: Heap<'r>,
    name: &str,
    layout: &str,
    value: Of<'r, T>,
) -> Result<NonNull<T>, RootError> {
    let _lock = lock_table(heap);
    let (name, layout) = (text(heap, name)?, text(heap, layout)?);
    // SAFETY: the lock is held.
    let table = match unsafe { table_mut(heap) }? {
        Some(table) => table,
        None => new_table(heap)?,
    };
    table.try_reserve(1)?;
    let at = heap.try_allocate(Layout::new::<T>())?.cast::<T>();
    mark_bytes(at.as_ptr(), size_of::<T>());
    // SAFETY: the block is new and fits.
    unsafe { at.cast().write(value) };
    table.push(RootEntry {
        name,
        layout,
        at: at.addr().get() as u64,
        bytes: size_of::<T>() as u64,
        align: align_of::<T>() as u64,
    });
    Ok(at)
}

fn text<'r>(heap: Heap<'r>, text: &str) -> Result<collections::String<'r>, HeapError> {
    let mut copy = collections::String::new_in(heap);
    copy.try_reserve(text.len())?;
    copy.push_str(text);
    Ok(copy)
}

fn new_table<'r>(heap: Heap<'r>) -> Result<&'r mut Table<'r>, RootError> {
    let mut at = heap
        .try_allocate(Layout::new::<Vec<RootEntry>>())?
        .cast::<Vec<RootEntry>>();
    mark_bytes(at.as_ptr(), size_of::<Table<'r>>());
    // SAFETY: the block is new and fits; the header is there, and this is the only place that sets the field.
    unsafe {
        at.write(Vec::new_in(heap));
        let roots = &raw mut (*heap.raw().header()).roots;
        mark_bytes(roots, 8);
        roots.write(at.expose_provenance().get() as u64);
        Ok(at.as_mut())
    }
}

/// What an entry becomes when its root is of another type now.
pub(crate) struct Change<'r> {
    layout: collections::String<'r>,
    bytes: u64,
    align: u64,
}

impl<'r> Change<'r> {
    /// Takes the memory it needs.
    pub(crate) fn to<T: Persist>(heap: Heap<'r>, name: &str) -> Result<Change<'r>, RootError> {
        Ok(Change {
            layout: text(heap, &kept_layout::<T>(name)?)?,
            bytes: size_of::<T>() as u64,
            align: align_of::<T>() as u64,
        })
    }

    /// Root `name` is of that type now, at `at`.
    pub(crate) fn apply<T>(self, heap: Heap<'r>, name: &str, at: NonNull<T>) -> Result<(), RootError> {
        let _lock = lock_table(heap);
        // SAFETY: the lock is held.
        let Some(table) = (unsafe { table_mut(heap) })? else {
            return Err(RootError::Missing { name: name.into() });
        };
        let Some(index) = table.iter().position(|entry| entry.name == *name) else {
            return Err(RootError::Missing { name: name.into() });
        };
        let entry = &mut table[index];
        entry.at = at.expose_provenance().get() as u64;
        (entry.layout, entry.bytes, entry.align) = (self.layout, self.bytes, self.align);
        Ok(())
    }
}

/// Takes a root out of the table. What it is stays.
pub(crate) fn remove(heap: Heap<'_>, name: &str) -> Result<(), RootError> {
    let _lock = lock_table(heap);
    // SAFETY: the lock is held.
    if let Some(table) = unsafe { table_mut(heap) }?
        && let Some(found) = table.iter().position(|entry| entry.name == *name)
    {
        table.remove(found);
    }
    Ok(())
}
