//! Failure-atomic sections, as a program writes them (SSP).

use crate::error::{Error, Result};
use crate::region::{Region, Update, View};
use crate::sections::{Behind, Sections, is_reading};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A section in progress: proof that it has the turn, and that writing is allowed. It is an [`Update`] too, so that it
/// makes what a region holds.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use twinpage::collections::Vec;
/// use twinpage::{Handle, Region, Section};
///
/// fn add<'r>(names: &Handle<Vec<'static, twinpage::collections::String<'static>>>, section: &Section<'r>) {
///     names.write(section).push(section.string("Ada"));
/// }
/// let region = Region::options().sections().open("names.twin")?;
/// let names = region.shared("names")?;
/// region.atomic(|section| -> twinpage::Result<()> {
///     add(&names, section);
///     Ok(())
/// })?;
/// assert_eq!(region.read(|view| names.read(view).len()), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Section<'r> {
    update: Update<'r>,
    doomed: &'r AtomicBool,
}

impl<'r> Deref for Section<'r> {
    type Target = Update<'r>;
    #[inline]
    fn deref(&self) -> &Update<'r> {
        &self.update
    }
}

impl Section<'_> {
    /// The section will be undone, whatever its closure returns. Gives the error to leave it with.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # std::env::set_current_dir(folder.path())?;
    /// use twinpage::{Error, Region};
    ///
    /// let region = Region::options().sections().open("count.twin")?;
    /// let count = region.shared::<u64>("count")?;
    /// let undone = region.atomic(|section| -> twinpage::Result<()> {
    ///     *count.write(section) = 7;
    ///     Err(section.abort())
    /// });
    /// assert!(matches!(undone, Err(Error::Aborted)));
    /// assert_eq!(region.read(|view| *count.read(view)), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn abort(&self) -> Error {
        self.doomed.store(true, Ordering::Relaxed);
        Error::Aborted
    }
}

impl Region {
    /// Runs a failure-atomic section: all that `change` does is durable when this returns, or nothing of it was ever
    /// done. An error that `change` returns, and a panic, undo everything: memory is as it was.
    ///
    /// The sections of a region take turns, and [`Region::read`] sees the state between two of them. So a section should
    /// not wait for anything slow; the commit is outside the turn, and threads that wait for one share it. A section
    /// inside another is part of it, durable when the outer one is; one that fails makes the outer one fail.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # std::env::set_current_dir(folder.path())?;
    /// use twinpage::{Error, Region, collections::HashMap};
    ///
    /// #[derive(Debug)]
    /// enum Refused { NoAccount, Broke, Region(Error) }
    /// impl From<Error> for Refused {
    ///     fn from(error: Error) -> Refused { Refused::Region(error) }
    /// }
    ///
    /// let bank = Region::options().sections().open("bank.twin")?;
    /// let accounts = bank.shared::<HashMap<u64, i64>>("accounts")?; // one handle, all threads
    /// let pay = |from, to, amount| bank.atomic(|section| {
    ///     let accounts = accounts.write(section);
    ///     let from: &mut i64 = accounts.get_mut(&from).ok_or(Refused::NoAccount)?;
    ///     *from -= amount;
    ///     if *from < 0 {
    ///         return Err(Refused::Broke); // undoes everything
    ///     }
    ///     *accounts.get_mut(&to).ok_or(Refused::NoAccount)? += amount;
    ///     Ok(())
    /// });
    /// bank.atomic(|section| -> twinpage::Result<()> {
    ///     accounts.write(section).extend([(7, 80), (9, 0)]);
    ///     Ok(())
    /// })?;
    /// pay(7, 9, 50).unwrap(); // it is on the medium
    /// assert!(matches!(pay(7, 9, 50), Err(Refused::Broke)));
    /// assert!(matches!(pay(7, 8, 10), Err(Refused::NoAccount)));
    /// assert_eq!(bank.read(|view| (accounts.read(view)[&7], accounts.read(view)[&9])), (30, 50));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// No value of the region leaves a section, so none is left of one that was undone:
    ///
    /// ```compile_fail
    /// # fn example(bank: &twinpage::Region, list: &twinpage::Handle<twinpage::collections::Vec<'static, u64>>) {
    /// let mut first = None;
    /// bank.atomic(|section| -> twinpage::Result<()> {
    ///     first = Some(&mut list.write(section)[0]); // error: borrowed data escapes
    ///     Ok(())
    /// });
    /// # }
    /// ```
    ///
    /// # Errors
    /// What `change` returns. [`Error::Aborted`] after [`Section::abort`] or a failure inside; [`Error::Undone`] when the
    /// medium has no room; [`Error::Poisoned`] after any other failure of the medium, for good. [`Error::Invalid`] in a
    /// region that was not opened for sections, and inside [`Region::read`] of the same region.
    pub fn atomic<R, E: From<Error>>(
        &self,
        change: impl for<'r> FnOnce(&Section<'r>) -> Result<R, E>,
    ) -> Result<R, E> {
        let (value, last) = self.section(change)?;
        if let Some(last) = last {
            self.inner.make_durable(last)?;
        }
        Ok(value)
    }

    /// As [`Region::atomic`], but does not wait: the section is done when this returns, and a commit that makes it durable
    /// begins `bound` later at most. [`Region::ticket`] and [`Region::durable`] wait for it.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # std::env::set_current_dir(folder.path())?;
    /// use std::time::Duration;
    /// use twinpage::{Error, Region};
    ///
    /// let region = Region::options().sections().open("hits.twin")?;
    /// let hits = region.shared::<u64>("hits")?;
    /// for _ in 0..100 {
    ///     region.atomic_within(Duration::from_millis(20), |section| {
    ///         *hits.write(section) += 1;
    ///         Ok::<_, Error>(())
    ///     })?;
    /// }
    /// let ticket = region.ticket();
    /// region.wait(ticket)?; // all hundred, by one commit or a few
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Region::atomic`]. A medium without room is told to the waiters of the ticket.
    pub fn atomic_within<R, E: From<Error>>(
        &self,
        bound: Duration,
        change: impl for<'r> FnOnce(&Section<'r>) -> Result<R, E>,
    ) -> Result<R, E> {
        let sections = self.expect_sections()?;
        let behind = self.behind()?;
        let (value, last) = self.section(change)?;
        if last.is_some() {
            behind.within(bound);
            if sections.is_long() {
                self.inner.checkpoint()?;
            }
        }
        Ok(value)
    }

    /// The thread that makes sections durable in time, started by the first that asks for it.
    fn behind(&self) -> Result<&Behind> {
        if let Some(behind) = self.behind.get() {
            return Ok(behind);
        }
        let started = {
            let inner = self.inner.clone();
            Behind::start(move || inner.checkpoint().map(drop))?
        };
        // Of two that start at once one has nothing to do, and ends.
        Ok(self.behind.get_or_init(|| started))
    }

    /// What a region of sections has.
    fn expect_sections(&self) -> Result<&Sections> {
        let why = "the region was opened for epochs: change it with `update`, or open it with `sections()`";
        self.sections().ok_or_else(|| Error::Invalid(why.into()))
    }

    /// Runs a section. Says the number that must be durable for it to be; none where it is part of another.
    fn section<R, E: From<Error>>(
        &self,
        change: impl for<'r> FnOnce(&Section<'r>) -> Result<R, E>,
    ) -> Result<(R, Option<u64>), E> {
        let place = self.place();
        let sections = self.expect_sections()?;
        if place.is_inside() {
            return Ok((self.scope(sections, change)?, None));
        }
        if is_reading(place) {
            let why =
                "a section inside a reading of the same region would wait for itself: end the reading first";
            return Err(Error::Invalid(why.into()).into());
        }
        let outermost = sections.begin_section()?;
        match self.scope(sections, change) {
            Ok(value) if !sections.doomed().load(Ordering::Relaxed) => Ok((value, Some(outermost.end()))),
            Ok(_) => {
                outermost.undo()?;
                Err(Error::Aborted.into())
            }
            Err(error) => {
                outermost.undo()?;
                Err(error)
            }
        }
    }

    /// Runs the closure of a section.
    fn scope<R, E>(
        &self,
        sections: &Sections,
        change: impl for<'r> FnOnce(&Section<'r>) -> Result<R, E>,
    ) -> Result<R, E> {
        let mut scope = sections.open_scope();
        let outcome = change(&Section {
            update: Update::new(View::in_scope(self.place(), &*self.inner, scope.number)),
            doomed: sections.doomed(),
        });
        scope.is_good = outcome.is_ok();
        outcome
    }

    /// A change that the library makes itself: an update, or a section that is durable when this returns.
    pub(crate) fn change<R>(&self, change: impl for<'r> FnOnce(&Update<'r>) -> Result<R>) -> Result<R> {
        match self.sections() {
            None => self.update(change),
            Some(_) => {
                self.outside_update("looking for a root, or changing one,")?;
                self.atomic(|section| change(section))
            }
        }
    }
}
