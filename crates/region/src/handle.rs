//! Roots that sections read and write: one handle for all threads, whose lock is the turn.
//!
//! * A section hands a root out to be written once, and to be read only while it was not handed out to be written, so
//!   that no two references to it are there of which one changes it.
//! * What a section inside another was handed out is over when that one ends.

use crate::atomic::Section;
use crate::error::Result;
use crate::persist::{Empty, Persist};
use crate::region::{Region, Update, View};
use crate::root::Root;
use std::marker::PhantomData;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A root of a region of sections, for all threads: [`Region::shared`].
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use twinpage::{Handle, Region, collections::Vec};
///
/// let region = Region::options().sections().open("list.twin")?;
/// let list: Handle<Vec<u64>> = region.shared("list")?;
/// std::thread::scope(|threads| {
///     for number in 0..4 {
///         let (region, list) = (&region, &list);
///         threads.spawn(move || region.atomic(|section| -> twinpage::Result<()> {
///             list.write(section).push(number);
///             Ok(())
///         }));
///     }
/// });
/// assert_eq!(region.read(|view| list.read(view).len()), 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Handle<T: Persist> {
    root: Root<T>,
    /// The scope that it was last handed out in, and whether to be written: the lowest bit.
    taken: AtomicU64,
    /// Threads have it by turns, as what is in such a lock.
    by_turns: PhantomData<RwLock<T>>,
}

impl Region {
    /// The root `name` of a region of sections: the one there is, or a new one that holds nothing yet. It is durable when
    /// this returns.
    ///
    /// # Errors
    /// As [`Region::root`]; [`Error::Invalid`](crate::Error::Invalid) inside a section, and in a region that was opened
    /// for epochs.
    pub fn shared<T: Empty>(&self, name: &str) -> Result<Handle<T>> {
        self.shared_with(name, |update| T::empty(update.heap()))
    }

    /// As [`Region::shared`], with a value to begin with.
    ///
    /// # Errors
    /// As [`Region::shared`].
    pub fn shared_with<T: Persist>(
        &self,
        name: &str,
        make: impl for<'r> FnOnce(&Update<'r>) -> T::In<'r>,
    ) -> Result<Handle<T>> {
        if self.sections().is_none() {
            let why = "the region was opened for epochs: its roots are had with `root`, or open it with `sections()`";
            return Err(crate::Error::Invalid(why.into()));
        }
        Ok(Handle {
            root: self.take_root(name, make)?,
            taken: AtomicU64::new(0),
            by_turns: PhantomData,
        })
    }
}

impl<T: Persist> Handle<T> {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.root.name()
    }

    /// The value, to read: in [`Region::read`], or in a section.
    ///
    /// # Panics
    /// In a section or a reading of another region, and in a section that has it to be written.
    #[must_use]
    #[track_caller]
    pub fn read<'a, 'r>(&'a self, view: &'a View<'r>) -> &'a T::In<'r> {
        // First, since it refuses views of other regions: their scopes say nothing of this one's.
        let value = self.root.get(view);
        let scope = view.scope();
        if scope != 0 {
            let taken = self.taken.load(Ordering::Relaxed);
            match taken != 0 && self.is_open(view, taken) {
                true if taken & 1 == 1 => self.is_taken("written"),
                // The reference is there until the outer of the two ends, which has the lower number.
                true => self.taken.store(taken.min(scope << 1), Ordering::Relaxed),
                false => self.taken.store(scope << 1, Ordering::Relaxed),
            }
        }
        value
    }

    /// The value, to change. A section has it once.
    ///
    /// # Panics
    /// In a section of another region, and in a section that has it already.
    #[track_caller]
    #[expect(
        clippy::mut_from_ref,
        reason = "the turn is the lock, and `taken` lets it be had once"
    )]
    pub fn write<'a, 'r>(&'a self, section: &'a Section<'r>) -> &'a mut T::In<'r> {
        let taken = self.taken.load(Ordering::Relaxed);
        if taken != 0 && self.is_open(section, taken) {
            self.is_taken(if taken & 1 == 1 { "written" } else { "read" });
        }
        let at = self.root.address(section);
        self.taken.store(section.scope() << 1 | 1, Ordering::Relaxed);
        // SAFETY: the value is there as long as the handle, and of this type (`root::open`). The section has the turn, so
        // no other thread has a reference; this one has none, since no scope that was handed one is running.
        unsafe {
            section.lend(at.as_ptr().cast(), size_of::<T>());
            at.cast().as_mut()
        }
    }

    /// Whether the closure it was handed out in is running still.
    fn is_open(&self, view: &View<'_>, taken: u64) -> bool {
        view.is_scope_open(taken >> 1)
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn is_taken(&self, how: &str) -> ! {
        panic!(
            "root {:?} was taken to be {how} in this section already: take it once, and hand on the reference",
            self.name()
        )
    }
}
