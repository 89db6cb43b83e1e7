//! A region: memory of this process that survives it.

mod view;

pub use view::{Update, View};

use crate::address::{PAGE, Place};
use crate::control_socket::Listening;
use crate::epochs::{Checkpoints, Progress, Ticket};
use crate::error::{Error, Result, RootError};
use crate::heap::{Heap, HeapError, RawHeap};
use crate::held_locks::held_lock;
use crate::lock::lock;
use crate::next_level::NextLevel;
use crate::options::KeptCalls;
use crate::paging::Serving;
use crate::root_table;
use crate::sections::{self, Behind, Sections};
use crate::statistics::{Counters, Statistics};
use crate::store::Store;
use crate::timer::Timer;
use crate::window::Window;
use std::any::Any;
use std::fmt::Debug;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;
use twinpage_core::Epoch;
use twinpage_core::scheme::Info;
use twinpage_os::{Durability, Lock};

/// Memory of this process that survives it, in a file.
///
/// What is written inside [`Region::update`] survives from the first checkpoint after it; a
/// checkpoint is never cut inside an update. Reading needs no update.
///
/// Dropping a region makes a last checkpoint, unless the thread is panicking;
/// [`Region::close`] does the same and tells how it went. Roots that are still there keep the memory and
/// the lock on the file.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use twinpage::Region;
///
/// let region = Region::open("visits.twin")?; // made if it is not there
/// let mut visits = region.root::<u64>("visits")?; // 0 at first
/// region.update(|u| *visits.get_mut(u) += 1);
/// assert_eq!(region.read(|v| *visits.get(v)), 1);
/// drop(visits);
/// region.close()?; // with a last checkpoint
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Region {
    pub(crate) inner: Arc<Inner>,
    pub(crate) timer: Option<Timer>,
    pub(crate) is_timed: bool,
    /// Makes sections durable in time that no thread waits for (`sections/deadline.rs`).
    pub(crate) behind: OnceLock<Behind>,
    pub(crate) listening: Option<Listening>,
    /// What is built on the region and ends with it.
    pub(crate) attached: Mutex<Option<Arc<dyn Attached>>>,
    /// Its file, and what a checkpoint in it outlives.
    pub(crate) file: Option<(PathBuf, Durability)>,
}

/// What is built on a region and ends with it: its objects.
pub(crate) trait Attached: Any + Debug + Send + Sync {
    /// Does what waits to be done.
    fn sync(&self) -> Result<()>;
    /// Does what waits, and nothing more from now on. A last checkpoint follows.
    fn end(&self) -> Result<()>;
    /// That checkpoint is durable.
    fn ended(&self);
    /// Does nothing more from now on, and leaves what waits.
    fn abandon(&self);
    /// Moves some of the region, all of which `is_durable` or not, to its next level. Whether there was anything to move.
    fn make_room(&self, is_durable: bool) -> bool;
}

/// What the region's threads share. Parts are dropped in this order.
pub(crate) struct Inner {
    pub(crate) checkpoints: Mutex<Box<dyn Checkpoints>>,
    /// How long a cut waits for an update.
    pub(crate) patience: Duration,
    /// Threads that run the lanes of objects; as many as the machine has processors if not said.
    pub(crate) server_threads: Option<usize>,
    /// Where calls of objects are kept.
    pub(crate) kept: Option<KeptCalls>,
    /// Where objects go that have no room.
    pub(crate) next: Option<Arc<NextLevel>>,
    /// Who moves them.
    pub(crate) room: OnceLock<Weak<dyn Attached>>,
    pub(crate) heap: OnceLock<RawHeap>,
    /// Of a region that was opened for sections; epochs have none.
    pub(crate) sections: Option<Sections>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) store: Box<dyn Store>,
    pub(crate) serving: Serving,
    pub(crate) window: Window,
    pub(crate) _lock: Option<Lock>,
    /// The process that opened it. A child made by fork(2) has neither its threads nor its memory.
    pub(crate) process: u32,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}, epoch {}", self.window.place(), self.progress.epoch())
    }
}

impl Region {
    /// Changes the region: what `change` writes is in a checkpoint as a whole or not at all.
    ///
    /// Several threads may be in updates at once. An update inside another is part of it. A checkpoint
    /// waits for the updates that run and holds new ones back for some microseconds, so an update
    /// should not wait for anything slow.
    ///
    /// What is in the region has the brand of the update in its type, so that none of it leaves `change`: copy out
    /// what is to leave.
    ///
    /// ```compile_fail
    /// # fn example(region: &twinpage::Region, mut list: twinpage::Root<twinpage::collections::Vec<'static, u64>>) {
    /// let first = region.update(|u| &mut list.get_mut(u)[0]); // error: lifetime may not live long enough
    /// *first = 7;
    /// # }
    /// ```
    ///
    /// When `change` panics, what it wrote until then stays written, and a later checkpoint makes it
    /// durable: a program that goes on after a panic must mend its data as it would in plain memory.
    ///
    /// # Panics
    /// In a region that was opened for sections: use [`Region::atomic`].
    #[inline]
    #[track_caller]
    pub fn update<R>(&self, change: impl for<'r> FnOnce(&Update<'r>) -> R) -> R {
        if self.inner.sections.is_some() {
            has_sections();
        }
        let view = self.view();
        let _inside = view.place().enter();
        change(&Update::new(view))
    }

    /// Reads the region: roots are read with the view that `look` is given. It costs two stores of a count of this thread's.
    ///
    /// An update inside it lasts until the reading ends, as what it made may, and no checkpoint is made before: keep such a
    /// reading short.
    ///
    /// A region that was opened for sections is read between two of them: no section runs meanwhile, and other readings
    /// may.
    ///
    /// # Panics
    /// Inside a section of the region: read with the section.
    #[inline]
    #[track_caller]
    pub fn read<R>(&self, look: impl for<'r> FnOnce(&View<'r>) -> R) -> R {
        match &self.inner.sections {
            None => {
                let _reading = self.place().begin_reading();
                look(&self.view())
            }
            Some(sections) => {
                let _reading = sections.reading();
                look(&self.view())
            }
        }
    }

    pub(crate) fn sections(&self) -> Option<&Sections> {
        self.inner.sections.as_ref()
    }

    #[inline]
    pub(crate) fn view<'r>(&self) -> View<'r> {
        View::new(self.place(), Arc::as_ptr(&self.inner))
    }

    /// Makes all that was done so far durable, and returns the epoch it is in.
    ///
    /// # Errors
    /// [`Error::Full`] when the medium has no room, [`Error::Busy`] when an update does not end: nothing is lost,
    /// and the next checkpoint has it all. [`Error::Poisoned`] after any other failure of the medium, for good. [`Error::Invalid`]
    /// inside an update, where this thread holds the lock of a [`Shared`](crate::Shared) root, and in a region that was
    /// opened for sections.
    pub fn checkpoint(&self) -> Result<Epoch> {
        self.outside_update("a checkpoint")?;
        if self.inner.sections.is_some() {
            let why = "a region that was opened for sections has no epochs: each section is a commit; `durable` waits";
            return Err(Error::Invalid(why.into()));
        }
        self.sync_attached()?;
        self.inner.checkpoint()
    }

    /// Waits until all that was done so far is on the medium: external synchrony. Makes a checkpoint
    /// unless one that covers it was made in the meantime; threads that wait together share one.
    ///
    /// # Errors
    /// As [`Region::checkpoint`].
    pub fn durable(&self) -> Result<()> {
        self.outside_update("waiting for a checkpoint")?;
        self.sync_attached()?;
        self.inner.make_durable(self.ticket().cut)
    }

    /// A ticket for what was done so far, to be waited for later with [`Region::wait`]: acknowledge to
    /// the world when it is durable. Inside an update the ticket covers the update.
    pub fn ticket(&self) -> Ticket {
        let progress = &self.inner.progress;
        match &self.inner.sections {
            None => progress.ticket(self.place().is_inside()),
            // Inside a section the next number is its own: no other thread has the turn.
            Some(_) => progress.ticket_of(progress.sections() + u64::from(self.place().is_inside())),
        }
    }

    /// Whether what the ticket covers is on the medium.
    ///
    /// # Errors
    /// As [`Region::checkpoint`], when the checkpoint that should have covered it failed. [`Error::Invalid`]
    /// for a ticket of another region.
    pub fn is_durable(&self, ticket: Ticket) -> Result<bool> {
        let progress = &self.inner.progress;
        progress.is_durable(progress.cut_of(ticket)?)
    }

    /// Waits until what the ticket covers is on the medium. With [`Options::every`] that is at most a
    /// period away; without, this makes the checkpoint.
    ///
    /// # Errors
    /// As [`Region::is_durable`].
    pub fn wait(&self, ticket: Ticket) -> Result<()> {
        self.outside_update("waiting for a checkpoint")?;
        let cut = self.inner.progress.cut_of(ticket)?;
        match self.is_timed {
            true => match self.inner.progress.wait(cut) {
                // The timer's next one finds room, or this.
                Err(Error::Full(_)) if self.inner.next.is_some() => self.inner.make_durable(cut),
                waited => waited,
            },
            false => self.inner.make_durable(cut),
        }
    }

    /// The last durable epoch.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.inner.progress.epoch()
    }

    /// Where the region lies in memory.
    #[must_use]
    #[inline]
    pub fn place(&self) -> Place {
        self.inner.window.place()
    }

    /// Whether a system call that is given memory of the region waits until it is loaded. Where the
    /// kernel may not wait (no privilege and `vm.unprivileged_userfaultfd` 0) such a call fails with
    /// `EFAULT`: [`Region::load`] it before.
    #[must_use]
    pub fn kernel_loads_pages(&self) -> bool {
        self.inner.serving.kernel_waits()
    }

    /// Loads these bytes, from the region's base, before they are touched.
    ///
    /// # Errors
    /// [`Error::Invalid`] when they lie past the end; [`Error::Store`] when one of their pages is damaged or cannot be
    /// read, which would end the process that touches it.
    pub fn load(&self, range: std::ops::Range<usize>) -> Result<()> {
        let (place, end) = (self.place(), self.place().bytes());
        if range.end > end {
            return Err(Error::Invalid(format!(
                "loading bytes {range:?} of a region of {end}"
            )));
        }
        for page in range.start / PAGE..range.end.div_ceil(PAGE) {
            self.inner.serving.verify(page, &*self.inner.store)?;
            let at = place.base().wrapping_add(page * PAGE);
            // SAFETY: a usable byte; volatile, since it may be written meanwhile.
            unsafe { at.read_volatile() };
        }
        Ok(())
    }

    /// What the checkpoints cost since the region was opened.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.inner.statistics()
    }

    /// [`Region::statistics`] begin again: after a program has filled its region, say.
    pub fn forget_statistics(&self) {
        self.inner.forget_statistics();
    }

    /// What the store below says of itself.
    #[must_use]
    pub fn info(&self) -> Info {
        self.inner.store.info()
    }

    /// Makes a last checkpoint and closes the region.
    ///
    /// # Errors
    /// As [`Region::checkpoint`]; the region is closed all the same. [`Error::Invalid`] in a child made by fork(2), which
    /// leaves it to its parent, and where this thread is inside an update for ever, because it forgot what ends one: there
    /// is no last checkpoint then.
    pub fn close(mut self) -> Result<()> {
        match self.is_ours() {
            true if self.place().is_inside() => self.outside_update("closing a region"),
            true => self.finish(),
            false => Err(Error::Invalid(
                "a child made by fork(2) cannot close a region of its parent".into(),
            )),
        }
    }

    /// Whether this process opened it.
    fn is_ours(&self) -> bool {
        self.inner.process == std::process::id()
    }

    /// Others can ask about the region in `file` ([`crate::control_socket`]).
    pub(crate) fn listen(&mut self, file: &Path, durability: Durability) {
        // The program may change its directory.
        self.file = std::path::absolute(file).ok().map(|file| (file, durability));
        // Where sockets are forbidden there are no questions.
        let listening = Listening::start(self.inner.clone(), file);
        if listening
            .as_ref()
            .is_err_and(|e| e.kind() == ErrorKind::AddrInUse)
        {
            eprintln!(
                "twinpage: {}: another process has taken the name of the region's socket: nobody can ask about it, or \
                 share its objects",
                file.display()
            );
        }
        self.listening = listening.ok();
    }

    fn finish(&mut self) -> Result<()> {
        drop(self.listening.take());
        drop(self.behind.take());
        drop(self.timer.take());
        let attached = self.take_attached();
        let ended = attached.as_ref().map_or(Ok(()), |attached| attached.end());
        self.give_back();
        self.inner.checkpoint()?;
        ended?;
        if let Some(attached) = attached {
            attached.ended();
        }
        while self.inner.give_back_step()? {}
        Ok(())
    }

    /// What is free in the heap takes no space on the medium after a last checkpoint.
    fn give_back(&self) {
        if self.inner.heap.get().is_none() {
            return; // not looked at in this life: there may be none, and a look would make one
        }
        // Of a heap that is damaged, nothing: the check says so. Nor where a store takes nothing more.
        let _ = self.change(|update| {
            let heap = self.inner.heap(update);
            Ok(heap.and_then(Heap::give_back).map_err(RootError::Heap)?)
        });
    }

    fn take_attached(&self) -> Option<Arc<dyn Attached>> {
        let mut attached = lock(&self.attached);
        attached.take()
    }

    /// What is built on the region does what waits: it is part of what was done so far.
    pub(crate) fn sync_attached(&self) -> Result<()> {
        let attached = {
            let attached = lock(&self.attached);
            attached.clone()
        };
        attached.map_or(Ok(()), |attached| attached.sync())
    }

    /// Refuses what waits for a cut, or for other threads' updates, where this thread keeps them from ending.
    pub(crate) fn outside_update(&self, what: &str) -> Result<()> {
        if let Some(lock) = held_lock() {
            return Err(Error::Invalid(format!(
                "{what} while this thread holds the lock of {lock}, may wait for an update that waits for that lock: \
                 let the lock go first"
            )));
        }
        let inside = match &self.inner.sections {
            None if self.place().is_reading() && self.place().is_inside() => {
                Some(("a reading with an update in it", "reading"))
            }
            None => self.place().is_inside().then_some(("an update", "update")),
            Some(_) if self.place().is_inside() => Some(("a section", "section")),
            Some(_) => sections::is_reading(self.place()).then_some(("a reading", "reading")),
        };
        match inside {
            None => Ok(()),
            Some((inside, it)) => Err(Error::Invalid(format!(
                "{what} inside {inside} would wait for itself: call it after the {it}"
            ))),
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if !self.is_ours() {
            // It is the parent's: nothing is waited for here, and nothing is written.
            std::mem::forget(self.listening.take());
            std::mem::forget((self.timer.take(), self.behind.take(), self.inner.clone()));
            if let Ok(attached) = self.attached.try_lock() {
                std::mem::forget(attached.clone());
            }
            return;
        }
        drop(self.listening.take());
        if std::thread::panicking() {
            drop(self.timer.take());
            drop(self.behind.take());
        }
        let inside = self.place().is_inside();
        if !std::thread::panicking() && !inside {
            // `close` tells of errors.
            let _ = self.finish();
        }
        if let Some(attached) = self.take_attached() {
            attached.abandon();
        }
    }
}

impl Inner {
    /// Runs `change` in an update, outside of any other.
    pub(crate) fn in_update<R>(&self, change: impl FnOnce(&Update<'_>) -> R) -> R {
        let _inside = self.place().enter();
        change(&Update::new(View::new(self.place(), self)))
    }

    /// The heap of the region, made if there is none.
    pub(crate) fn heap<'r>(&self, _: &Update<'r>) -> Result<Heap<'r>, HeapError> {
        let found = match self.heap.get() {
            Some(found) => *found,
            None => root_table::heap_of(self.place()).map(|found| *self.heap.get_or_init(|| found))?,
        };
        // SAFETY: the brand is of an update of this region.
        Ok(unsafe { Heap::branded(found) })
    }

    /// As [`Region::give_back`], from the next checkpoint on; in a region of epochs.
    fn give_back(&self) {
        if let Some(heap) = self.heap.get() {
            let _inside = self.place().enter();
            // Of a heap that is damaged, nothing: the check says so.
            let _ = heap.give_back();
        }
    }

    /// Gives back a little of the store's space that it can do without: whether there may be more.
    pub(crate) fn give_back_step(&self) -> Result<bool> {
        let _none_in_flight = self.checkpoints();
        let stepped = self.store.give_back();
        stepped.map_err(|error| self.progress.set_poison(error))
    }

    pub(crate) fn checkpoint(&self) -> Result<Epoch> {
        self.checkpoint_making(|is_durable| {
            let attached = self.room.get().and_then(Weak::upgrade);
            attached.is_some_and(|attached| attached.make_room(is_durable))
        })
    }

    /// A checkpoint. Where the region's file is full, what is free in the heap is given back, and then `make_room` moves
    /// something to the next level, until it cannot.
    pub(crate) fn checkpoint_making(&self, mut make_room: impl FnMut(bool) -> bool) -> Result<Epoch> {
        let mut has_given_back = false;
        loop {
            let made = self.checkpoints().checkpoint();
            if let Some(sections) = &self.sections {
                sections.undo_any_lost();
            }
            let is_short = match &made {
                Err(Error::Full(_)) => self.next.is_some(),
                Ok(_) => self.is_over_limit(),
                Err(_) => false,
            };
            if !is_short {
                return made;
            }
            if !has_given_back {
                self.give_back();
                has_given_back = true;
            } else if !make_room(made.is_ok()) {
                return made;
            }
        }
    }

    /// Whether the region's file has more than its share.
    pub(crate) fn is_over_limit(&self) -> bool {
        let limit = self.next.as_ref().and_then(|next| next.limit());
        limit.is_some_and(|limit| {
            let info = self.store.info();
            info.pages * info.geometry.page_bytes() as u64 > limit
        })
    }

    pub(crate) fn make_durable(&self, cut: u64) -> Result<()> {
        if self.sections.is_some() {
            return self.make_sections_durable(cut);
        }
        let made = {
            let mut checkpoints = self.checkpoints();
            // Another thread may have made it while this one waited for its turn.
            match self.progress.is_durable(cut) {
                Ok(true) => Ok(()),
                _ => checkpoints.checkpoint().map(drop),
            }
        };
        match made {
            Err(Error::Full(_)) if self.next.is_some() => self.checkpoint().map(drop),
            Ok(()) if self.is_over_limit() => self.checkpoint().map(drop),
            made => made,
        }
    }

    /// All sections up to number `last` are durable when this returns. Threads that wait share a commit.
    fn make_sections_durable(&self, last: u64) -> Result<()> {
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
            sections.undo_any_lost();
        }
        // A commit has all sections that had ended when it began.
        match committed.is_ok() || progress.is_durable(last)? {
            true => Ok(()),
            // Of a section that did not come to its end there is nothing to wait for.
            false => committed.map(|_| ()),
        }
    }

    pub(crate) fn statistics(&self) -> Statistics {
        Statistics {
            paging: self.serving.paging(),
            ..self.counters.read()
        }
    }

    fn forget_statistics(&self) {
        self.counters.forget();
    }

    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    pub(crate) fn place(&self) -> Place {
        self.window.place()
    }

    /// With it no epoch is in flight, and none begins.
    pub(crate) fn checkpoints(&self) -> std::sync::MutexGuard<'_, Box<dyn Checkpoints>> {
        lock(&self.checkpoints)
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn has_sections() -> ! {
    panic!("a region that was opened for sections is changed by `atomic`, not by `update`")
}
