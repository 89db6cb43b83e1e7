//! Roots: the values of a region that have a name, and so can be found again.
//!
//! * The table of the roots is a [`Vec`] of `RootEntry` in a block whose address is in the heap's
//!   header. Each root is a value in a block of its own.
//! * An entry has the description of the root's type, which must be that of the type it is opened as, or
//!   of one that type was before ([`Persist::Previous`]).
//! * Of each root there is at most one [`Root`] at a time: it hands out `&mut`.
//! * Nothing of the table is used before it was looked at byte by byte (`check.rs`), and no root is
//!   handed out before its own bytes and the blocks it owns itself were: what lies in those is not.
//! * An error leaves every root as it was, also when memory runs out.

mod migrate;

pub use crate::error::RootError;

use crate::address::Place;
use crate::check::Report;
use crate::collections::Box;
use crate::heap::{Heap, HeapError};
use crate::lock::lock;
use crate::marks::mark_value;
use crate::persist::{Description, Empty, Persist};
use crate::region::{Inner, Region, Update, View};
use crate::root_table::{self, find};
use crate::zone::WINDOWS;
use std::collections::BTreeSet;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard};
use twinpage_core::PageId;

/// The names of the roots that are open, of each window.
static OPEN: [Mutex<BTreeSet<String>>; WINDOWS] = [const { Mutex::new(BTreeSet::new()) }; WINDOWS];

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
    /// How many cuts there were when its own bytes were last marked ([`Place::cuts`]).
    marked: u64,
    /// Dropped in this order: the name is free again before the memory goes.
    lease: Lease,
    region: Arc<Inner>,
}

// SAFETY: it is the one owner of the value.
unsafe impl<T: Persist + Send> Send for Root<T> {}
// SAFETY: a shared root hands out shared references to its value only.
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
    lock(&OPEN[place.index()])
}

impl Region {
    /// The root `name`: the one there is, or a new one that holds nothing yet.
    ///
    /// A root that was made with a type `T` was before ([`Persist::Previous`]) becomes a `T` now, all of
    /// it at once. A panic in that conversion ends the process, before anything of it is durable.
    ///
    /// A region has a few roots, or some thousand: an opening compares its name with those of all, so that the time to
    /// make many grows with the square of their number. What there are many of belongs in one root, a map.
    ///
    /// # Errors
    /// [`RootError`]: it is in use, it is of another type, its type is nested too deep, or the heap has no memory or is
    /// damaged.
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
        if self.sections().is_some() {
            let why =
                "a region that was opened for sections has roots for all threads: ask for it with `shared`";
            return Err(crate::Error::Invalid(why.into()));
        }
        self.take_root(name, make)
    }

    /// The root of that name, in a region of either mode.
    pub(crate) fn take_root<T: Persist>(
        &self,
        name: &str,
        make: impl for<'r> FnOnce(&Update<'r>) -> T::In<'r>,
    ) -> crate::Result<Root<T>> {
        let place = self.place();
        let lease = Lease::take(place, name)?;
        self.change(|update| Ok(self.inner.heap(update).map(|_| ()).map_err(RootError::Heap)?))?;
        let at = self.change(|update| {
            let heap = update.heap();
            Ok(match find(heap, name)? {
                Some(found) => migrate::open::<T>(heap, name, found),
                None => {
                    let layout = root_table::kept_layout::<T>(name)?;
                    root_table::create::<T>(heap, name, &layout, make(update))
                }
            }?)
        })?;
        Ok(Root {
            at,
            marked: 0,
            lease,
            region: self.inner.clone(),
        })
    }

    /// Looks at all of the heap and at every root: what is in use, leaked or damaged. Updates wait until it is done.
    ///
    /// # Errors
    /// [`RootError::Heap`] when there is no heap to be looked at. [`Error::Invalid`](crate::Error::Invalid) inside an
    /// update, and [`Error::Busy`](crate::Error::Busy) when another one does not end: what it is changing looks like damage.
    pub fn check(&self) -> crate::Result<Report> {
        self.outside_update("a check")?;
        if let Some(next) = &self.inner.next {
            // All of it is about to be touched.
            next.pages().try_for_each(|page| next.verify_page(page))?;
        }
        let heap_of = |update: &Update<'_>| self.inner.heap(update).map(Heap::raw).map_err(RootError::Heap);
        if self.sections().is_some() {
            return self.change(|update| Ok(heap_of(update)?.check())); // it has the turn
        }
        let heap = self.change(|update| Ok(heap_of(update)?))?;
        let _idle = self.inner.checkpoints();
        let closed = self.place().close_gate(self.inner.patience, |_| ());
        let _closed = closed.map_err(|busy| busy.error())?;
        Ok(heap.check())
    }

    /// The roots there are, in the order they were made.
    ///
    /// # Errors
    /// [`RootError::Heap`] when the heap is damaged.
    pub fn roots(&self) -> crate::Result<std::vec::Vec<RootInfo>> {
        self.change(|update| self.roots_of(update))
    }

    fn roots_of(&self, update: &Update<'_>) -> crate::Result<std::vec::Vec<RootInfo>> {
        let heap = self.inner.heap(update).map_err(RootError::Heap)?;
        let open = open_names(self.place()).clone();
        let all = root_table::all(heap)?.into_iter();
        Ok(all
            .map(|(name, description)| RootInfo {
                open: open.contains(&name),
                name,
                description,
            })
            .collect())
    }

    /// Removes a root and frees all it owns, whatever its type. No `Drop` of the program's own types is
    /// run: use [`Root::remove`] for that.
    ///
    /// # Errors
    /// [`RootError`]: it is in use, there is none, or it is damaged.
    pub fn remove_root(&self, name: &str) -> crate::Result<()> {
        let _lease = Lease::take(self.place(), name)?;
        self.change(|update| {
            let heap = self.inner.heap(update).map_err(RootError::Heap)?;
            let found = find(heap, name)?.ok_or_else(|| RootError::Missing { name: name.into() })?;
            let owned = heap.raw().blocks_of(&found.description, found.at);
            let damaged = |finding| RootError::from(HeapError::damaged(format!("root {name:?}, {finding}")));
            let owned = owned.map_err(damaged)?;
            for (block, bytes) in owned {
                // SAFETY: the root is not in use, and these are the blocks it owns.
                unsafe { heap.raw().free_block(block, bytes) };
            }
            Ok(root_table::remove(heap, name)?)
        })
    }
}

/// The pages of the region's store that a root's blocks fill. With `is_held` the caller has the root, and nothing changes
/// it meanwhile; one that another has fills none.
pub(crate) fn filled_pages(inner: &Inner, name: &str, is_held: bool) -> crate::Result<Vec<PageId>> {
    let place = inner.place();
    let lease = (!is_held).then(|| Lease::take(place, name)).transpose();
    let Ok(_lease) = lease else {
        return Ok(Vec::new());
    };
    let _inside = place.enter();
    let update = Update::new(View::new(place, inner));
    let heap = inner.heap(&update).map_err(RootError::Heap)?;
    let Some(found) = find(heap, name)? else {
        return Ok(Vec::new());
    };
    let owned = heap.raw().blocks_of(&found.description, found.at);
    let damaged = |finding| RootError::from(HeapError::damaged(format!("root {name:?}, {finding}")));
    let mut owned = owned.map_err(damaged)?;
    owned.sort_unstable();
    let (base, bytes) = (
        place.base().addr() as u64,
        inner.store().info().geometry.page_bytes() as u64,
    );
    let (mut pages, mut run) = (Vec::new(), 0..0);
    for (at, length) in owned
        .into_iter()
        .map(|(at, length)| (at - base, length))
        .chain([(u64::MAX, 0)])
    {
        if at != run.end {
            pages.extend((run.start.div_ceil(bytes)..run.end / bytes).map(PageId));
            run.start = at;
        }
        run.end = at.saturating_add(length);
    }
    Ok(pages)
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
        // They stay marked until the next cut: 20 instructions less, of 330 of an operation of hash-rand.
        let cuts = update.place().cuts();
        if self.marked != cuts {
            self.mark(cuts);
        }
        // SAFETY: the value is there as long as the root and of this type; a name has one root, which is borrowed
        // mutably.
        unsafe { self.at.cast().as_mut() }
    }

    /// Marks the value's own bytes; `cuts` is how many cuts there were.
    #[cold]
    #[inline(never)]
    fn mark(&mut self, cuts: u64) {
        mark_value(self.at.as_ptr());
        self.marked = cuts;
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
        root_table::remove(update.heap(), &self.lease.name)?;
        // SAFETY: the root is not used any more, and found no more: its block is this box's, which frees it also when the
        // value's drop panics.
        drop(unsafe { Box::from_block(self.at) });
        Ok(())
    }

    /// The region it is of.
    pub(crate) fn inner(&self) -> &Inner {
        &self.region
    }

    /// Where the value is.
    ///
    /// # Panics
    /// With the view of another region.
    #[track_caller]
    pub(crate) fn address(&self, view: &View<'_>) -> NonNull<T> {
        self.assert_in(view);
        self.at
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
