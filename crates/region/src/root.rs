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
use crate::heap::{Heap, HeapError, RawHeap, Report};
use crate::marks::{touch, touch_value};
use crate::persist::{Description, Empty, Of, Persist};
use crate::region::{Inner, Region, Update, View};
use crate::window::{Place, WINDOWS};
use std::alloc::Layout;
use std::any::TypeId;
use std::collections::BTreeSet;
use std::fmt;
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

/// The table of the roots.
type Table<'r> = Vec<'r, RootEntry<'r>>;

/// One root, as it is kept in the region.
#[derive(Persist)]
#[repr(C)]
pub(crate) struct RootEntry<'r> {
    pub(crate) name: collections::String<'r>,
    /// The text of the description of its type.
    pub(crate) layout: collections::String<'r>,
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
/// let count = region.root::<u64>("count")?;
/// let second = region.root::<u64>("count").unwrap_err();
/// assert!(matches!(second, Error::Root(RootError::InUse { name }) if name == "count"));
/// drop(count);
/// let other_type = region.root::<i32>("count").unwrap_err();
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
    #[error("{}", other_layout(name, stored, asked))]
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

fn other_layout(name: &str, stored: &Description, asked: &Description) -> String {
    let moved = stored.moved(asked);
    let Some((was, is)) = moved.last() else {
        return format!(
            "root {name:?} was made as\n\n{stored}\nand cannot be opened as\n\n{asked}\nOpen it with the type it was made \
             with, or give the new type `#[persist(version = .., from = ..)]`"
        );
    };
    format!(
        "root {name:?} was made with the type `{was}` and cannot be opened as `{is}`, which has the same layout but is \
         another type. If it is the same one, moved or renamed, let it say so: `#[persist(was = \"{was}\")]`"
    )
}

/// A root, told of by [`Region::roots`].
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use twinpage::Region;
///
/// let region = Region::open("counts.twin")?;
/// let count = region.root::<u64>("count")?;
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
/// It is a handle: read with the view that [`Region::read`] gives, changed with the update that [`Region::update`]
/// gives. The value's type is named by its `'static` form: `Root<Vec<'static, u64>>`. The memory it lies in stays as
/// long as the handle does, even if the region is dropped first.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use twinpage::collections::Vec;
/// use twinpage::{Region, Root};
///
/// let region = Region::open("tasks.twin")?;
/// let mut tasks: Root<Vec<u64>> = region.root("tasks")?; // empty at first
/// region.update(|u| tasks.get_mut(u).push(17));
/// assert_eq!(region.read(|v| tasks.get(v).first().copied()), Some(17));
/// assert_eq!(tasks.name(), "tasks");
/// region.update(|u| tasks.remove(u))?; // with all it holds
/// assert!(region.roots()?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Root<T: Persist> {
    at: NonNull<T>,
    /// Dropped in this order: the name is free again before the memory goes.
    lease: Lease,
    region: Arc<Inner>,
}

// SAFETY: it is the one owner of the value.
unsafe impl<T: Persist + Send> Send for Root<T> {}
// SAFETY: as above.
unsafe impl<T: Persist + Sync> Sync for Root<T> {}

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
    /// The root `name`: the one there is, or a new one that holds nothing yet.
    ///
    /// A root that was made with a type `T` was before ([`Persist::Previous`]) becomes a `T` now, all of
    /// it at once. A panic in that conversion ends the process, before anything of it is durable.
    ///
    /// # Errors
    /// [`RootError`]: it is in use, it is of another type, or the heap has no memory or is damaged.
    pub fn root<T: Empty>(&self, name: &str) -> crate::Result<Root<T>> {
        self.root_with::<T>(name, |update| T::empty(update.heap()))
    }

    /// As [`Region::root`], with a value to begin with.
    ///
    /// # Errors
    /// As [`Region::root`].
    pub fn root_with<T: Persist>(
        &self,
        name: &str,
        make: impl for<'r> FnOnce(&Update<'r>) -> T::In<'r>,
    ) -> crate::Result<Root<T>> {
        let place = self.place();
        let lease = Lease::take(place, name)?;
        self.update(|update| self.inner.heap(update).map(|_| ()))
            .map_err(RootError::Heap)?;
        let at = self.update(|update| {
            let heap = update.heap();
            match find(heap, name)? {
                Some(found) => open::<T>(heap, name, found),
                None => create::<T>(heap, name, make(update)),
            }
        })?;
        Ok(Root {
            at,
            lease,
            region: self.inner.clone(),
        })
    }

    /// Looks at all of the heap and at every root: what is in use, leaked or damaged.
    ///
    /// # Errors
    /// [`RootError::Heap`] when there is no heap to be looked at.
    pub fn check(&self) -> crate::Result<Report> {
        let report = self.update(|update| self.inner.heap(update).map(Heap::check));
        Ok(report.map_err(RootError::Heap)?)
    }

    /// The roots there are, in the order they were made.
    ///
    /// # Errors
    /// [`RootError::Heap`] when the heap is damaged.
    pub fn roots(&self) -> crate::Result<std::vec::Vec<RootInfo>> {
        self.update(|update| self.roots_of(update))
    }

    fn roots_of(&self, update: &Update<'_>) -> crate::Result<std::vec::Vec<RootInfo>> {
        let heap = self.inner.heap(update).map_err(RootError::Heap)?;
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
        self.update(|update| -> Result<(), RootError> {
            let heap = self.inner.heap(update)?;
            let found = find(heap, name)?.ok_or_else(|| RootError::Missing { name: name.into() })?;
            let owned = heap.raw().blocks_of(&found.description, found.at);
            let owned = owned.map_err(|finding| HeapError::damaged(format!("root {name:?}, {finding}")))?;
            for (block, bytes) in owned {
                // SAFETY: nobody uses the root, and these are the blocks it owns.
                unsafe { heap.raw().free_block(block, bytes) };
            }
            remove_entry(heap, name)
        })?;
        Ok(())
    }
}

impl<T: Persist> Root<T> {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.lease.name
    }

    /// The value, to read.
    ///
    /// # Panics
    /// In an update or a reading of another region.
    #[must_use]
    #[inline]
    #[track_caller]
    pub fn get<'a, 'r>(&'a self, view: &'a View<'r>) -> &'a T::In<'r> {
        self.assert_in(view);
        // SAFETY: the value is there as long as the root, and of this type (`open`). The brand is of this region, and
        // for now only.
        unsafe { self.at.cast().as_ref() }
    }

    /// The value, to change. Its own bytes are marked as written.
    ///
    /// # Panics
    /// In an update of another region.
    #[inline]
    #[track_caller]
    pub fn get_mut<'a, 'r>(&'a mut self, update: &'a Update<'r>) -> &'a mut T::In<'r> {
        self.assert_in(update);
        touch_value(self.at.as_ptr());
        // SAFETY: as above, and this is the only root of the name.
        unsafe { self.at.cast().as_mut() }
    }

    /// Drops the value and removes the root.
    ///
    /// # Errors
    /// [`RootError::Heap`] when the table of roots is damaged.
    ///
    /// # Panics
    /// In an update of another region.
    pub fn remove(self, update: &Update<'_>) -> crate::Result<()> {
        self.assert_in(update);
        let heap = update.heap();
        remove_entry(heap, &self.lease.name)?;
        touch_value(self.at.as_ptr());
        // SAFETY: the root is not used any more, and found no more.
        unsafe {
            self.at.drop_in_place();
            heap.deallocate(self.at.cast(), Layout::new::<T>());
        }
        Ok(())
    }

    #[inline]
    #[track_caller]
    fn assert_in(&self, view: &View<'_>) {
        if view.place() != self.lease.place {
            self.is_elsewhere();
        }
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn is_elsewhere(&self) -> ! {
        panic!(
            "root {:?} is of another region than this update or reading",
            self.lease.name
        )
    }
}

impl<T: Persist> fmt::Debug for Root<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Root")
            .field("name", &self.name())
            .field("region", &self.region)
            .finish()
    }
}

/// A root that was found.
pub(crate) struct Found {
    pub(crate) at: u64,
    description: Description,
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
    let table = &NAMES[place.index()].table;
    let _lock = table.lock().unwrap_or_else(PoisonError::into_inner);
    let header = place.base().cast::<Header>();
    // SAFETY: the first unit is usable if the region has so many bytes; any bytes are a header.
    let is_empty = place.bytes() < size_of::<Header>()
        || unsafe { (*header).state.magic == 0 && (*header).state.top == 0 };
    match is_empty {
        true => RawHeap::create(place, RandomState::new().hash_one(place.index())),
        false => RawHeap::open(place),
    }
}

fn lock_table(heap: Heap<'_>) -> MutexGuard<'static, ()> {
    NAMES[heap.raw().place().index()]
        .table
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// The table, looked at before it is used; `None`: there is none yet.
///
/// # Safety
/// The lock of the table is held for as long as it is used.
unsafe fn table<'r>(heap: Heap<'r>) -> Result<Option<&'r Table<'r>>, HeapError> {
    // SAFETY: the header is there as long as the heap.
    let at = unsafe { (*heap.raw().header()).roots };
    if at == 0 {
        return Ok(None);
    }
    if !heap.raw().has_root_table(at) {
        return Err(HeapError::damaged(format!("the table of roots at {at:#x}")));
    }
    // SAFETY: it is a vector of entries with sound texts, which nobody changes while the lock is held.
    Ok(Some(unsafe { &*std::ptr::with_exposed_provenance(at as usize) }))
}

/// As [`table`], to change it: marked as written.
///
/// # Safety
/// As [`table`].
unsafe fn table_mut<'r>(heap: Heap<'r>) -> Result<Option<&'r mut Table<'r>>, HeapError> {
    // SAFETY: the caller's word.
    if unsafe { table(heap) }?.is_none() {
        return Ok(None);
    }
    // SAFETY: the header is there as long as the heap.
    let at = std::ptr::with_exposed_provenance_mut(unsafe { (*heap.raw().header()).roots } as usize);
    touch(at, size_of::<Table<'r>>());
    // SAFETY: as in `table`; the lock makes it ours alone.
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

/// Adds a root to the table.
fn create<'r, T: Persist>(heap: Heap<'r>, name: &str, value: Of<'r, T>) -> Result<NonNull<T>, RootError> {
    let _lock = lock_table(heap);
    let layout = Description::of::<T>();
    let at = heap.try_allocate(Layout::new::<T>())?.cast::<T>();
    touch(at.as_ptr(), size_of::<T>());
    // SAFETY: the block is new and fits.
    unsafe { at.cast().write(value) };
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

fn new_table<'r>(heap: Heap<'r>) -> Result<&'r mut Table<'r>, RootError> {
    let mut at = heap
        .try_allocate(Layout::new::<Vec<RootEntry>>())?
        .cast::<Vec<RootEntry>>();
    touch(at.as_ptr(), size_of::<Table<'r>>());
    // SAFETY: the block is new and fits; the header is there, and this is the only place that sets the field.
    unsafe {
        at.write(Vec::new_in(heap));
        let roots = &raw mut (*heap.raw().header()).roots;
        touch(roots, 8);
        roots.write(at.expose_provenance().get() as u64);
        Ok(at.as_mut())
    }
}

/// Takes a root out of the table. What it is stays.
fn remove_entry(heap: Heap<'_>, name: &str) -> Result<(), RootError> {
    let _lock = lock_table(heap);
    // SAFETY: the lock is held.
    if let Some(table) = unsafe { table_mut(heap) }? {
        table.retain(|entry| entry.name != *name);
    }
    Ok(())
}

/// A root there is, as a `T`: it is one, or becomes one.
fn open<T: Persist>(heap: Heap<'_>, name: &str, found: Found) -> Result<NonNull<T>, RootError> {
    let asked = Description::of::<T>();
    let at = std::ptr::with_exposed_provenance_mut::<T>(found.at as usize);
    if found.description.is_of::<T>() {
        let at = NonNull::new(at).ok_or_else(|| HeapError::damaged(format!("root {name:?} at address 0")))?;
        if asked != found.description {
            set_entry(heap, name, at, &asked)?; // it has another name now, or a fuller one
        }
        return Ok(at);
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
    unsafe { block.cast().write(new) };
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
fn set_entry<T>(
    heap: Heap<'_>,
    name: &str,
    at: NonNull<T>,
    description: &Description,
) -> Result<(), RootError> {
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
    if depth > 0 && stored.is_of::<T>() {
        return true;
    }
    let has_previous = TypeId::of::<T>() != TypeId::of::<T::Previous>();
    has_previous && depth < MOST_VERSIONS && can_migrate::<T::Previous>(stored, depth + 1)
}

/// The value, as a `T`.
///
/// # Safety
/// [`can_migrate`], or its description is that of a `T`; the value is not used any more.
unsafe fn migrate<'r, T: Persist>(found: &Found, heap: Heap<'r>) -> Of<'r, T> {
    if found.description.is_of::<T>() {
        // SAFETY: by the caller's word.
        return unsafe { std::ptr::with_exposed_provenance::<Of<'r, T>>(found.at as usize).read() };
    }
    // SAFETY: by the caller's word.
    T::migrate(unsafe { migrate::<T::Previous>(found, heap) }, heap)
}
