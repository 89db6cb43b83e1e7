//! Roots: the values of a region that have a name, and so can be found again.
//!
//! * The table of the roots is a [`Vec`] of `RootEntry` in a block whose address is in the heap's
//!   header. Each root is a value in a block of its own.
//! * An entry has the description of the root's type, which must be that of the type it is opened as, or
//!   of one that type was before ([`Persist::Previous`]).
//! * Of each root there is at most one [`Root`] at a time: it hands out `&mut`.
//! * Nothing of the table is used before it was looked at byte by byte (`heap/check`), and no root is
//!   handed out before its own bytes and the blocks it owns itself were: what lies in those is not.

use crate::collections::{self, Vec};
use crate::heap::format::Header;
use crate::heap::{Heap, HeapError};
use crate::marks::{self, touch};
use crate::persist::{Description, Persist};
use crate::region::{Inner, Region};
use crate::window::{Place, WINDOWS};
use std::alloc::Layout;
use std::any::TypeId;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is volatile about the roots of a window.
struct Names {
    /// Held while the table is looked at or changed.
    table: Mutex<()>,
    /// Those that are open.
    open: Mutex<BTreeSet<String>>,
}

static NAMES: [Names; WINDOWS] = [const {
    Names {
        table: Mutex::new(()),
        open: Mutex::new(BTreeSet::new()),
    }
}; WINDOWS];

/// One root, as it is kept in the region.
#[derive(Persist)]
#[repr(C)]
pub(crate) struct RootEntry {
    pub(crate) name: collections::String,
    /// The text of the description of its type.
    pub(crate) layout: collections::String,
    /// Its address, and the size and alignment of its block.
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    pub(crate) align: u64,
}

/// Why there is no such root.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use twinpage::{Error, Region, RootError};
///
/// let region = Region::open("counts.twin")?;
/// let count = region.root("count", |_| 7_u64)?;
/// let second = region.root("count", |_| 7_u64).unwrap_err();
/// assert!(matches!(second, Error::Root(RootError::InUse { name }) if name == "count"));
/// drop(count);
/// let other_type = region.root("count", |_| 7_i32).unwrap_err();
/// assert!(matches!(other_type, Error::Root(RootError::Layout { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RootError {
    /// Its [`Root`] is still there.
    #[error("root {name:?} is in use: there is one `Root` of a name at a time; drop the other first")]
    InUse {
        /// The root.
        name: String,
    },
    /// It was made with another type, or with another layout of the type.
    #[error(
        "root {name:?} was made as\n\n{stored}\nand cannot be opened as\n\n{asked}\nOpen it with the type it was made \
         with, or give the new type `#[persist(version = .., from = ..)]`"
    )]
    Layout {
        /// The root.
        name: String,
        /// What is in the region.
        stored: Box<Description>,
        /// What it was to be opened as.
        asked: Box<Description>,
    },
    /// There is none of that name.
    #[error("there is no root {name:?}")]
    Missing {
        /// The root.
        name: String,
    },
    /// The heap has no memory, or is damaged.
    #[error(transparent)]
    Heap(#[from] HeapError),
}

/// A root, told of by [`Region::roots`].
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use twinpage::Region;
///
/// let region = Region::open("counts.twin")?;
/// let count = region.root("count", |_| 7_u64)?;
/// let root = &region.roots()?[0];
/// assert_eq!((&root.name[..], root.open), ("count", true));
/// assert_eq!(root.description.types[0].name, "u64");
/// # drop(count);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct RootInfo {
    /// Its name.
    pub name: String,
    /// Its type, as it was when it was made.
    pub description: Description,
    /// Whether its [`Root`] is there.
    pub open: bool,
}

/// A named value of a region: [`Region::root`].
///
/// It is read anywhere, and changed inside [`Region::update`]; a change outside panics. The memory it
/// lies in stays as long as it does, even if the region is dropped first.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use twinpage::collections::Vec;
/// use twinpage::{Region, Root};
///
/// let region = Region::open("tasks.twin")?;
/// let mut tasks = region.root("tasks", Vec::<u64>::new_in)?;
/// region.update(|_| tasks.push(17));
/// assert_eq!(tasks.first(), Some(&17));
/// assert_eq!(Root::name(&tasks), "tasks");
/// region.update(|_| Root::remove(tasks))?; // with all it holds
/// assert!(region.roots()?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Root<T> {
    at: NonNull<T>,
    /// Dropped in this order: the name is free again before the memory goes.
    lease: Lease,
    region: Arc<Inner>,
}

// SAFETY: it is the one owner of the value.
unsafe impl<T: Send> Send for Root<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Root<T> {}

/// The right to a name while it is open.
struct Lease {
    place: Place,
    name: String,
}

impl Lease {
    fn take(place: Place, name: &str) -> Result<Lease, RootError> {
        let name = name.to_owned();
        if !open_names(place).insert(name.clone()) {
            return Err(RootError::InUse { name });
        }
        Ok(Lease { place, name })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        open_names(self.place).remove(&self.name);
    }
}

fn open_names(place: Place) -> MutexGuard<'static, BTreeSet<String>> {
    NAMES[place.index()]
        .open
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

impl Region {
    /// The heap of the region, made when it is first asked for.
    ///
    /// # Errors
    /// [`RootError::Heap`] when it is damaged, or the region cannot grow.
    pub fn heap(&self) -> crate::Result<Heap> {
        let place = self.place();
        let table = &NAMES[place.index()].table;
        Ok(self.update(|_| {
            let _lock = table.lock().unwrap_or_else(PoisonError::into_inner);
            heap_of(place)
        })?)
    }

    /// The root `name`: the one there is, or what `make` makes. Collections are made with the heap it is
    /// given: `region.root("orders", |heap| HashMap::new_in(heap))`.
    ///
    /// A root that was made with a type `T` was before ([`Persist::Previous`]) becomes a `T` now, all of
    /// it at once. A panic in that conversion ends the process, before anything of it is durable.
    ///
    /// # Errors
    /// [`RootError`]: it is in use, it is of another type, or the heap has no memory or is damaged.
    pub fn root<T: Persist>(&self, name: &str, make: impl FnOnce(Heap) -> T) -> crate::Result<Root<T>> {
        let place = self.place();
        let lease = Lease::take(place, name)?;
        let heap = self.heap()?;
        let at = self.update(|_| match find(heap, name)? {
            Some(found) => open(heap, name, found),
            None => {
                let value = make(heap);
                create(heap, name, value)
            }
        })?;
        Ok(Root {
            at,
            lease,
            region: self.inner.clone(),
        })
    }

    /// The roots there are, in the order they were made.
    ///
    /// # Errors
    /// [`RootError::Heap`] when the heap is damaged.
    pub fn roots(&self) -> crate::Result<std::vec::Vec<RootInfo>> {
        let heap = self.heap()?;
        let open = open_names(self.place()).clone();
        let _lock = lock_table(heap);
        let mut infos = std::vec::Vec::new();
        // SAFETY: the lock is held.
        let table = unsafe { table(heap) }.map_err(RootError::Heap)?;
        for entry in table.into_iter().flat_map(|table| table.iter()) {
            infos.push(RootInfo {
                name: entry.name.to_string(),
                description: parse(entry)?,
                open: open.contains(entry.name.as_str()),
            });
        }
        Ok(infos)
    }

    /// Removes a root and frees all it owns, whatever its type. No `Drop` of the program's own types is
    /// run: use [`Root::remove`] for that.
    ///
    /// # Errors
    /// [`RootError`]: it is in use, there is none, or it is damaged.
    pub fn remove_root(&self, name: &str) -> crate::Result<()> {
        let _lease = Lease::take(self.place(), name)?;
        let heap = self.heap()?;
        self.update(|_| -> Result<(), RootError> {
            let found = find(heap, name)?.ok_or_else(|| RootError::Missing { name: name.into() })?;
            let owned = heap.blocks_of(&found.description, found.at);
            let owned = owned.map_err(|finding| HeapError::damaged(format!("root {name:?}, {finding}")))?;
            for (block, bytes) in owned {
                // SAFETY: nobody uses the root, and these are the blocks it owns.
                unsafe { heap.free_block(block, bytes) };
            }
            remove_entry(heap, name)
        })?;
        Ok(())
    }
}

/// These are called as `Root::name(&root)`, so that they hide no method of the value.
impl<T> Root<T> {
    /// Its name.
    #[must_use]
    pub fn name(this: &Root<T>) -> &str {
        &this.lease.name
    }

    /// Drops the value and removes the root. Inside an update, as any change.
    ///
    /// # Errors
    /// [`RootError::Heap`] when the table of roots is damaged.
    ///
    /// # Panics
    /// Outside an update of the region.
    pub fn remove(this: Root<T>) -> crate::Result<()> {
        marks::assert_may_write(this.lease.place.base());
        let heap = heap_of(this.lease.place)?;
        remove_entry(heap, &this.lease.name)?;
        touch(this.at.as_ptr(), size_of::<T>());
        // SAFETY: the root is nobody else's, and found no more.
        unsafe {
            this.at.drop_in_place();
            heap.deallocate(this.at.cast(), Layout::new::<T>());
        }
        Ok(())
    }
}

impl<T> Deref for Root<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the value is there as long as the root, and of this type (`open`).
        unsafe { self.at.as_ref() }
    }
}

impl<T> DerefMut for Root<T> {
    /// # Panics
    /// Outside an update of the region.
    #[inline]
    #[track_caller]
    fn deref_mut(&mut self) -> &mut T {
        marks::touch_for_caller(self.at.as_ptr());
        // SAFETY: as above, and this is the only root of the name.
        unsafe { self.at.as_mut() }
    }
}

impl<T: fmt::Debug> fmt::Debug for Root<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Root")
            .field("name", &Root::name(self))
            .field("value", &**self)
            .field("region", &self.region)
            .finish()
    }
}

/// A root that was found.
struct Found {
    at: u64,
    description: Description,
}

/// The heap of a window, made if there is none. The caller is in an update.
fn heap_of(place: Place) -> Result<Heap, RootError> {
    use std::hash::{BuildHasher, RandomState};
    let header = place.base().cast::<Header>();
    // SAFETY: the first unit is usable if the region has so many bytes; any bytes are a header.
    let is_empty = place.bytes() < size_of::<Header>()
        || unsafe { (*header).state.magic == 0 && (*header).state.top == 0 };
    match is_empty {
        true => Ok(Heap::create(place, RandomState::new().hash_one(place.index()))?),
        false => Ok(Heap::open(place)?),
    }
}

fn lock_table(heap: Heap) -> MutexGuard<'static, ()> {
    NAMES[heap.place().index()]
        .table
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// The table, looked at before it is used; `None`: there is none yet.
///
/// # Safety
/// The lock of the table is held for as long as it is used.
unsafe fn table<'a>(heap: Heap) -> Result<Option<&'a Vec<RootEntry>>, HeapError> {
    // SAFETY: the header is there as long as the heap.
    let at = unsafe { (*heap.header()).roots };
    if at == 0 {
        return Ok(None);
    }
    if !heap.has_root_table(at) {
        return Err(HeapError::damaged(format!("the table of roots at {at:#x}")));
    }
    // SAFETY: it is a vector of entries with sound texts, which nobody changes while the lock is held.
    Ok(Some(unsafe { &*std::ptr::with_exposed_provenance(at as usize) }))
}

/// As [`table`], to change it: marked as written.
///
/// # Safety
/// As [`table`].
unsafe fn table_mut<'a>(heap: Heap) -> Result<Option<&'a mut Vec<RootEntry>>, HeapError> {
    // SAFETY: the caller's word.
    if unsafe { table(heap) }?.is_none() {
        return Ok(None);
    }
    // SAFETY: the header is there as long as the heap.
    let at = std::ptr::with_exposed_provenance_mut(unsafe { (*heap.header()).roots } as usize);
    touch(at, size_of::<Vec<RootEntry>>());
    // SAFETY: as in `table`; the lock makes it ours alone.
    Ok(Some(unsafe { &mut *at }))
}

fn parse(entry: &RootEntry) -> Result<Description, RootError> {
    let bad = |e| HeapError::damaged(format!("root {:?}: {e}", entry.name));
    Ok(Description::parse(&entry.layout).map_err(bad)?)
}

fn find(heap: Heap, name: &str) -> Result<Option<Found>, RootError> {
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
    let checked = heap.check_head(&description, entry.at);
    checked.map_err(|finding| HeapError::damaged(format!("root {name:?}, {finding}")))?;
    Ok(Some(Found {
        at: entry.at,
        description,
    }))
}

/// Adds a root to the table.
fn create<T: Persist>(heap: Heap, name: &str, value: T) -> Result<NonNull<T>, RootError> {
    let _lock = lock_table(heap);
    let layout = Description::of::<T>();
    let at = heap.try_allocate(Layout::new::<T>())?.cast::<T>();
    touch(at.as_ptr(), size_of::<T>());
    // SAFETY: the block is new and fits.
    unsafe { at.write(value) };
    // SAFETY: the lock is held.
    let table = match unsafe { table_mut(heap) }? {
        Some(table) => table,
        None => new_table(heap)?,
    };
    table.try_reserve(1)?;
    table.push(RootEntry {
        name: collections::String::from_in(name, heap),
        layout: collections::String::from_in(&layout.text(), heap),
        at: at.addr().get() as u64,
        bytes: size_of::<T>() as u64,
        align: align_of::<T>() as u64,
    });
    Ok(at)
}

fn new_table<'a>(heap: Heap) -> Result<&'a mut Vec<RootEntry>, RootError> {
    let mut at = heap
        .try_allocate(Layout::new::<Vec<RootEntry>>())?
        .cast::<Vec<RootEntry>>();
    touch(at.as_ptr(), size_of::<Vec<RootEntry>>());
    // SAFETY: the block is new and fits; the header is there, and this is the only place that sets the field.
    unsafe {
        at.write(Vec::new_in(heap));
        let roots = &raw mut (*heap.header()).roots;
        touch(roots, 8);
        roots.write(at.expose_provenance().get() as u64);
        Ok(at.as_mut())
    }
}

/// Takes a root out of the table. What it is stays.
fn remove_entry(heap: Heap, name: &str) -> Result<(), RootError> {
    let _lock = lock_table(heap);
    // SAFETY: the lock is held.
    if let Some(table) = unsafe { table_mut(heap) }? {
        table.retain(|entry| entry.name != *name);
    }
    Ok(())
}

/// A root there is, as a `T`: it is one, or becomes one.
fn open<T: Persist>(heap: Heap, name: &str, found: Found) -> Result<NonNull<T>, RootError> {
    let asked = Description::of::<T>();
    let at = std::ptr::with_exposed_provenance_mut::<T>(found.at as usize);
    if asked == found.description {
        return NonNull::new(at)
            .ok_or_else(|| HeapError::damaged(format!("root {name:?} at address 0")).into());
    }
    if !can_migrate::<T>(&found.description, 0) {
        return Err(RootError::Layout {
            name: name.into(),
            stored: found.description.into(),
            asked: asked.into(),
        });
    }
    let block = heap.try_allocate(Layout::new::<T>())?.cast::<T>();
    let on_panic = AbortOnPanic(name);
    // SAFETY: what is there has the description of one of the types `T` was; it is used no more.
    let new = unsafe { migrate::<T>(&found, heap) };
    touch(block.as_ptr(), size_of::<T>());
    // SAFETY: the block is new and fits.
    unsafe { block.write(new) };
    let old = &found.description.get(0);
    let layout = Layout::from_size_align(old.bytes as usize, old.align as usize);
    if let (Ok(layout), Some(old)) = (layout, NonNull::new(at.cast())) {
        // SAFETY: the old value was moved out of its block.
        unsafe { heap.deallocate(old, layout) };
    }
    set_entry(heap, name, block, &asked)?;
    std::mem::forget(on_panic);
    Ok(block)
}

/// The root is at another place now, and of another type.
fn set_entry<T>(heap: Heap, name: &str, at: NonNull<T>, description: &Description) -> Result<(), RootError> {
    let _lock = lock_table(heap);
    // SAFETY: the lock is held.
    let table = unsafe { table_mut(heap) }?;
    let index = table
        .as_ref()
        .and_then(|table| table.iter().position(|entry| entry.name == *name));
    if let (Some(table), Some(index)) = (table, index) {
        let entry = &mut table[index];
        entry.layout = collections::String::from_in(&description.text(), heap);
        entry.at = at.expose_provenance().get() as u64;
        (entry.bytes, entry.align) = (size_of::<T>() as u64, align_of::<T>() as u64);
    }
    Ok(())
}

/// Half a migration cannot be taken back in memory; on the medium nothing has happened yet.
struct AbortOnPanic<'a>(&'a str);

impl Drop for AbortOnPanic<'_> {
    fn drop(&mut self) {
        eprintln!(
            "twinpage: the conversion of root {:?} panicked; the process ends, and the region stays as it was",
            self.0
        );
        std::process::abort();
    }
}

/// How many types a type may have been before.
const MOST_VERSIONS: u32 = 64;

/// Whether something of that description is what a `T` once was.
fn can_migrate<T: Persist>(stored: &Description, depth: u32) -> bool {
    if depth > 0 && Description::of::<T>() == *stored {
        return true;
    }
    let has_previous = TypeId::of::<T>() != TypeId::of::<T::Previous>();
    has_previous && depth < MOST_VERSIONS && can_migrate::<T::Previous>(stored, depth + 1)
}

/// The value, as a `T`.
///
/// # Safety
/// [`can_migrate`], or its description is that of a `T`; the value is not used any more.
unsafe fn migrate<T: Persist>(found: &Found, heap: Heap) -> T {
    if Description::of::<T>() == found.description {
        // SAFETY: by the caller's word.
        return unsafe { std::ptr::with_exposed_provenance::<T>(found.at as usize).read() };
    }
    // SAFETY: by the caller's word.
    T::migrate(unsafe { migrate::<T::Previous>(found, heap) }, heap)
}
