//! What is in a region is reached with a view, and changed with an update.

use super::Inner;
use crate::address::Place;
use crate::collections;
use crate::heap::{Brand, Heap};
use crate::persist::Empty;
use std::marker::PhantomData;

/// A look at a region: what its roots are read with. It also is part of every [`Update`].
///
/// It has the region's brand: a lifetime made for this reading only, which is in the type of all that is reached with
/// it. So none of it leaves.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use twinpage::Region;
///
/// let region = Region::open("counts.twin")?;
/// let count = region.root::<u64>("count")?;
/// assert_eq!(region.read(|view| *count.get(view)), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct View<'r> {
    place: Place,
    /// There as long as the view, where it is part of an update; looked at in no other.
    inner: *const Inner,
    /// The number of the section's closure it is for; 0 in an update or a reading.
    scope: u64,
    brand: Brand<'r>,
}

impl<'r> View<'r> {
    pub(crate) const fn new(place: Place, inner: *const Inner) -> View<'r> {
        let brand = PhantomData;
        View {
            place,
            inner,
            scope: 0,
            brand,
        }
    }

    /// That of a section's closure.
    pub(crate) const fn in_scope(place: Place, inner: *const Inner, scope: u64) -> View<'r> {
        View {
            scope,
            ..View::new(place, inner)
        }
    }

    pub(crate) const fn scope(&self) -> u64 {
        self.scope
    }

    /// For the view of a section: whether the closure of that number is running, which is it or one around it.
    pub(crate) fn is_scope_open(&self, scope: u64) -> bool {
        debug_assert!(self.scope != 0);
        // SAFETY: the region is there as long as its section.
        let sections = unsafe { &(*self.inner).sections };
        sections.as_ref().is_some_and(|sections| sections.is_open(scope))
    }

    /// For the view of a section: a value of the region is handed out to be changed.
    ///
    /// # Safety
    /// It is there, and nothing refers to it.
    pub(crate) unsafe fn lend(&self, at: *const u8, bytes: usize) {
        // SAFETY: the region is there as long as its section; the rest by the caller's word.
        unsafe {
            if let Some(sections) = &(*self.inner).sections {
                sections.lend(at, bytes);
            }
        }
    }

    /// Where the region lies.
    #[must_use]
    #[inline]
    pub fn place(&self) -> Place {
        self.place
    }
}

/// An update of a region in progress: proof that writing is allowed.
///
/// It stays on its thread. It has the region's brand, as a [`View`].
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use twinpage::Region;
/// use twinpage::collections::{String, Vec};
///
/// let region = Region::open("names.twin")?;
/// let mut names = region.root::<Vec<String>>("names")?;
/// region.update(|u| {
///     let ada = u.string("Ada");
///     names.get_mut(u).push(ada);
/// });
/// assert_eq!(region.read(|v| names.get(v).len()), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Update<'r> {
    view: View<'r>,
}

impl<'r> std::ops::Deref for Update<'r> {
    type Target = View<'r>;
    #[inline]
    fn deref(&self) -> &View<'r> {
        &self.view
    }
}

impl<'r> Update<'r> {
    pub(crate) const fn new(view: View<'r>) -> Update<'r> {
        Update { view }
    }

    /// The heap of the region: `Vec::new_in(u.heap())`.
    ///
    /// # Panics
    /// When the heap is damaged, or there is none and no memory for one.
    #[must_use]
    #[inline]
    #[track_caller]
    pub fn heap(&self) -> Heap<'r> {
        // SAFETY: the region is there as long as its update.
        let inner = unsafe { &*self.view.inner };
        match inner.heap(self) {
            Ok(heap) => heap,
            Err(error) => panic!("{error}"),
        }
    }

    /// A copy of `text` in the region.
    ///
    /// # Panics
    /// When there is no memory.
    #[must_use]
    #[track_caller]
    pub fn string(&self, text: &str) -> collections::String<'r> {
        collections::String::from_in(text, self.heap())
    }

    /// Text, as [`format!`] makes it: `u.format(format_args!("{name}: {count}"))`.
    ///
    /// # Panics
    /// When there is no memory, or a value's own formatting says that it failed.
    #[must_use]
    #[track_caller]
    pub fn format(&self, text: std::fmt::Arguments<'_>) -> collections::String<'r> {
        let mut string = self.empty::<collections::String<'static>>();
        std::fmt::Write::write_fmt(&mut string, text).expect("a value's formatting failed");
        string
    }

    /// The values of an iterator in a collection: `u.collect::<Vec<_>>(0..3)`.
    ///
    /// # Panics
    /// When there is no memory.
    #[must_use]
    #[track_caller]
    pub fn collect<C>(&self, values: impl collections::CollectInto<'r, C>) -> C {
        values.collect_into_in(self.heap())
    }

    /// A value to begin with: an empty collection, or the default of its type.
    ///
    /// # Panics
    /// When there is no memory.
    #[must_use]
    #[track_caller]
    pub fn default<T: collections::DefaultIn<'r>>(&self) -> T {
        T::default_in(self.heap())
    }

    /// A value in a block of its own.
    ///
    /// # Panics
    /// When there is no memory.
    #[must_use]
    #[track_caller]
    pub fn boxed<T>(&self, value: T) -> collections::Box<'r, T> {
        collections::Box::new_in(value, self.heap())
    }

    /// A value that holds nothing yet: `u.empty::<Vec<u64>>()`.
    ///
    /// # Panics
    /// When there is no memory.
    #[must_use]
    #[track_caller]
    pub fn empty<T: Empty>(&self) -> T::In<'r> {
        T::empty(self.heap())
    }
}
