//! Roots that several threads change.
//!
//! * The lock is held inside an update only: one to read begins an update, which lasts as long. So no thread holds it
//!   while it waits to enter one, and no order of locks and cuts can stop both.
//! * A thread knows which locks it holds: it cannot take one twice, nor wait for a checkpoint meanwhile, as an update
//!   may wait for the lock.
//! * It lies outside the region: after a crash no thread holds it.

use crate::gate::Pinned;
use crate::held_locks::Held;
use crate::lock::lock;
use crate::persist::Persist;
use crate::region::{Update, View};
use crate::root::Root;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A [`Root`] for many threads, behind a lock that is taken inside an update.
///
/// With a `std::sync::Mutex<Root<T>>` a thread can hold the lock while it waits to enter an update, and another wait
/// for it inside one: a checkpoint then finds its moment only after both had to be let in again. Here that cannot
/// happen: a thread holds the lock inside an update only, also where it takes it to read.
///
/// Locks of several roots are taken in one order, as all locks are: threads that take two in opposite orders wait for
/// each other for ever.
///
/// A thread that panics while it holds the lock leaves the value as it is then, as an update that panics does; the
/// lock goes on to work.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use twinpage::collections::HashMap;
/// use twinpage::{Region, Shared};
///
/// let region = Region::open("stock.twin")?;
/// let stock = Shared::new(region.root::<HashMap<u64, u64>>("stock")?);
/// std::thread::scope(|scope| {
///     for thread in 0..4 {
///         let (region, stock) = (&region, &stock);
///         scope.spawn(move || region.update(|u| *stock.lock(u).entry(thread % 2).or_insert(0) += 1));
///     }
/// });
/// assert_eq!(region.read(|v| stock.lock_to_read(v)[&1]), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Shared<T: Persist> {
    /// Of the root. Where it lies tells this lock from others.
    name: Arc<str>,
    root: Mutex<Root<T>>,
}

/// The lock of a [`Shared`] root, held: [`Shared::lock`].
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use twinpage::collections::Vec;
/// use twinpage::{Locked, Region, Shared, Update};
///
/// fn add(list: &mut Locked<'_, '_, Vec<'static, u64>>) {
///     list.push(7);
/// }
/// let region = Region::open("list.twin")?;
/// let list = Shared::new(region.root::<Vec<u64>>("list")?);
/// region.update(|u| add(&mut list.lock(u)));
/// assert_eq!(region.read(|v| list.lock_to_read(v).len()), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Locked<'a, 'r, T: Persist> {
    root: MutexGuard<'a, Root<T>>,
    _held: Held<'a>,
    update: Update<'r>,
}

/// The lock of a [`Shared`] root, held to read: [`Shared::lock_to_read`].
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use twinpage::{Region, Shared};
///
/// let region = Region::open("count.twin")?;
/// let count = Shared::new(region.root::<u64>("count")?);
/// assert_eq!(region.read(|v| *count.lock_to_read(v)), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LockedToRead<'a, 'r, T: Persist> {
    root: MutexGuard<'a, Root<T>>,
    _held: Held<'a>,
    /// Dropped after the lock.
    _inside: Pinned,
    view: View<'r>,
}

impl<T: Persist> Shared<T> {
    /// Shares a root.
    #[must_use]
    pub fn new(root: Root<T>) -> Shared<T> {
        Shared {
            name: root.name().into(),
            root: Mutex::new(root),
        }
    }

    /// Waits until no other thread holds the lock, and takes it.
    ///
    /// # Panics
    /// In an update of another region, and when this thread holds the lock already.
    #[track_caller]
    pub fn lock<'a, 'r>(&'a self, update: &Update<'r>) -> Locked<'a, 'r, T> {
        let held = Held::take(&self.name);
        let mut root = lock(&self.root);
        let update = *update;
        let _ = root.get_mut(&update);
        Locked {
            root,
            _held: held,
            update,
        }
    }

    /// As [`Shared::lock`], to read only. In a reading it begins an update, which lasts until the reading ends, as a copy of
    /// what is locked may: no checkpoint is made before.
    ///
    /// # Panics
    /// In an update or a reading of another region, and when this thread holds the lock already.
    #[track_caller]
    pub fn lock_to_read<'a, 'r>(&'a self, view: &View<'r>) -> LockedToRead<'a, 'r, T> {
        let held = Held::take(&self.name);
        let inside = view.place().enter();
        let root = lock(&self.root);
        let view = *view;
        let _ = root.get(&view);
        LockedToRead {
            root,
            _held: held,
            _inside: inside,
            view,
        }
    }

    /// The root, no longer shared.
    #[must_use]
    pub fn into_root(self) -> Root<T> {
        self.root.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'r, T: Persist> Deref for Locked<'_, 'r, T> {
    type Target = T::In<'r>;
    #[inline]
    fn deref(&self) -> &T::In<'r> {
        self.root.get(&self.update)
    }
}

impl<'r, T: Persist> DerefMut for Locked<'_, 'r, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T::In<'r> {
        self.root.get_mut(&self.update)
    }
}

impl<'r, T: Persist> Deref for LockedToRead<'_, 'r, T> {
    type Target = T::In<'r>;
    #[inline]
    fn deref(&self) -> &T::In<'r> {
        self.root.get(&self.view)
    }
}
