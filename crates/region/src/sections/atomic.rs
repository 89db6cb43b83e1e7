//! A section from its beginning to its end, what a reading is beside it, and who waits for the commit.

use super::{Reading, Section, Sections, is_reading, lock, poison, undo};
use crate::error::{Error, Result};
use crate::gate::{self, Inside};
use crate::region::{Inner, Region, Update, View};
use std::sync::RwLockWriteGuard;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The closure of a section is running. Its end without success dooms the section.
struct Scope<'a> {
    sections: &'a Sections,
    number: u64,
    is_good: bool,
}

impl Sections {
    /// One more scope, inside those there are.
    fn open_scope(&self) -> Scope<'_> {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        lock(&self.scopes).push(number);
        Scope {
            sections: self,
            number,
            is_good: false,
        }
    }
}

impl Drop for Scope<'_> {
    fn drop(&mut self) {
        lock(&self.sections.scopes).pop();
        if !self.is_good {
            self.sections.doomed.store(true, Ordering::Relaxed);
        }
    }
}

/// A section that is not inside another has the turn. Undone when dropped, unless it was ended.
struct Outermost<'a> {
    inner: &'a Inner,
    sections: &'a Sections,
    is_ended: bool,
    _inside: Inside,
    _turn: RwLockWriteGuard<'a, ()>,
}

impl Outermost<'_> {
    /// Hands what changed over to be made durable. Says the number of the last section that changed anything.
    fn end(mut self) -> u64 {
        self.is_ended = true;
        self.sections
            .queue
            .capture(self.inner.place(), self.inner.progress())
    }

    fn undo(mut self) -> Result<()> {
        self.is_ended = true;
        self.undo_changes()
    }

    fn undo_changes(&self) -> Result<()> {
        let (place, store) = (self.inner.place(), self.inner.store());
        let undone = undo::undo_section(place, store, &self.sections.queue);
        undone.map_err(|error| poison(self.inner.progress(), error))
    }
}

impl Drop for Outermost<'_> {
    /// The closure panicked. A failure has poisoned the store: the next call tells it.
    fn drop(&mut self) {
        if !self.is_ended {
            let _ = self.undo_changes();
        }
    }
}

impl Inner {
    /// All sections up to number `last` are durable when this returns. Threads that wait share a commit.
    pub(crate) fn make_sections_durable(&self, last: u64) -> Result<()> {
        let progress = self.progress();
        if progress.is_durable(last)? {
            return Ok(());
        }
        let committed = {
            let mut checkpoints = self.checkpoints();
            // Another thread may have done it while this one waited for its turn.
            match progress.is_durable(last)? {
                true => return Ok(()),
                false => checkpoints.checkpoint(),
            }
        };
        if let Some(sections) = &self.sections {
            sections.settle_loss(self);
        }
        match progress.is_durable(last)? {
            true => Ok(()),
            // Of a section that did not come to its end there is nothing to wait for.
            false => committed.map(|_| ()),
        }
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
    /// As [`Region::atomic`]. That there was no room is told to those who wait for the ticket.
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
            if sections.queue.is_long() {
                self.inner.checkpoint()?;
            }
        }
        Ok(value)
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
        let (inner, place) = (&*self.inner, self.place());
        let sections = self.expect_sections()?;
        if gate::is_inside(place) {
            return Ok((self.scope(sections, change)?, None));
        }
        if is_reading(place) {
            let why =
                "a section inside a reading of the same region would wait for itself: end the reading first";
            return Err(Error::Invalid(why.into()).into());
        }
        inner.progress().check_poison()?;
        let turn = sections.take_turn(inner)?;
        let outermost = Outermost {
            inner,
            sections,
            is_ended: false,
            _inside: gate::enter(place),
            _turn: turn,
        };
        sections.doomed.store(false, Ordering::Relaxed);
        match self.scope(sections, change) {
            Ok(value) if !sections.doomed.load(Ordering::Relaxed) => Ok((value, Some(outermost.end()))),
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
            doomed: &sections.doomed,
        });
        scope.is_good = outcome.is_ok();
        outcome
    }

    /// Reads a region of sections.
    ///
    /// # Panics
    /// Inside a section of it.
    #[track_caller]
    pub(crate) fn read_shared<R>(&self, sections: &Sections, look: impl for<'r> FnOnce(&View<'r>) -> R) -> R {
        let place = self.place();
        assert!(
            !gate::is_inside(place),
            "`Region::read` inside a section of the same region: read with the section, `handle.read(section)`"
        );
        if is_reading(place) {
            return look(&self.view());
        }
        let _reading = Reading::begin(place, sections.share_turn(&self.inner));
        look(&self.view())
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
