//! The progress of a region's epochs, and those that wait for it.
//!
//! * Cuts are numbered. A [`Ticket`] has the number of the first cut that covers what was done when
//!   it was taken; it is durable when that cut or a later one is.
//! * If a checkpoint fails for lack of room, the next one includes its changes. Threads that
//!   wait for it are told. After any other failure nothing is durable any more, and all are told.

use crate::error::{Error, Result};
use crate::gate::Busy;
use crate::lock::{lock, wait};
use crate::superblock::{LogPosition, Superblock};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use twinpage_core::{Epoch, Poison};

/// What was done in a region up to now, to be waited for: taken by `Region::ticket`.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use twinpage::Region;
///
/// let region = Region::open("counts.twin")?;
/// let mut count = region.root::<u64>("count")?;
/// let ticket = region.update(|u| {
///     *count.get_mut(u) += 1;
///     region.ticket()
/// });
/// assert!(!region.is_durable(ticket)?);
/// region.wait(ticket)?; // and now the world may be told
/// assert!(region.is_durable(ticket)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[must_use = "a ticket is there to be waited for"]
pub struct Ticket {
    region: u64,
    pub(crate) cut: u64,
}

/// The progress of a region's epochs: shared by the threads that cut and those that wait.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Its number among those of this process: tickets are of one region.
    region: u64,
    /// Cuts made.
    pub(super) cuts: AtomicU64,
    told: Mutex<DurableState>,
    /// The store's: it is set before the waiters are told.
    poison: Poison,
    pub(super) changed: Condvar,
    pub(super) watch: Watch,
    log: Mutex<LogPosition>,
    /// An earlier process has left calls in the operation log that this one has not run.
    is_log_unrun: AtomicBool,
}

/// Pages of 4 KiB that epochs changed, for a backup.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// One backup at a time.
    turn: Mutex<()>,
    pages: Mutex<Option<BTreeSet<usize>>>,
}

impl Watch {
    pub(crate) fn take(&self) -> Vec<usize> {
        let mut pages = lock(&self.pages);
        pages
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
            .into_iter()
            .collect()
    }

    pub(super) fn add(&self, changed: impl IntoIterator<Item = usize>) {
        if let Some(pages) = &mut *lock(&self.pages) {
            pages.extend(changed);
        }
    }
}

/// Pages are watched until this is dropped.
pub(crate) struct Watching<'a> {
    pub(crate) watch: &'a Watch,
    _turn: MutexGuard<'a, ()>,
}

impl Watching<'_> {
    /// From now on epochs tell. To be called while none is in flight.
    pub(crate) fn start(&self) {
        *lock(&self.watch.pages) = Some(BTreeSet::new());
    }
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        *lock(&self.watch.pages) = None;
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct DurableState {
    /// The last cut that is durable, and the epoch it is on the medium.
    pub(super) durable: u64,
    pub(super) epoch: Epoch,
    /// What was kept with it.
    pub(super) superblock: Option<Superblock>,
    /// The last cut that found no room, and why.
    pub(super) lost: Option<(u64, String)>,
    /// Sections that found no room and were undone, and why.
    undone: Vec<(Range<u64>, String)>,
    /// Threads that wait for any of this to change.
    waiting: u32,
    /// How many cuts were given up because of an update that did not end, and what the last one waited for.
    pub(super) given_up: u64,
    pub(super) busy: Option<Busy>,
    /// A ticket was taken inside an update since the last cut: the next one is made, though nothing may be marked.
    pub(super) owes_cut: bool,
}

impl Progress {
    pub(crate) fn new(epoch: Epoch, superblock: Option<Superblock>, poison: Poison) -> Progress {
        static REGIONS: AtomicU64 = AtomicU64::new(0);
        let log = superblock.map(|found| found.log).unwrap_or_default();
        Progress {
            region: REGIONS.fetch_add(1, Ordering::Relaxed),
            cuts: AtomicU64::new(0),
            told: Mutex::new(DurableState {
                epoch,
                superblock,
                ..DurableState::default()
            }),
            poison,
            changed: Condvar::new(),
            watch: Watch::default(),
            log: Mutex::new(log),
            is_log_unrun: AtomicBool::new(log.id != 0),
        }
    }

    /// The flag that says whether anything will be durable.
    pub(crate) fn poison(&self) -> Poison {
        self.poison.clone()
    }

    /// The place in the operation log that the next cut keeps.
    pub(crate) fn log(&self) -> LogPosition {
        *lock(&self.log)
    }

    /// From now on cuts keep this place in the operation log: all calls before it were run, in updates that ended.
    pub(crate) fn set_log(&self, place: LogPosition) {
        *lock(&self.log) = place;
    }

    /// All that earlier processes left in the operation log was run.
    pub(crate) fn log_was_run(&self) {
        self.is_log_unrun.store(false, Ordering::Release);
    }

    /// Refuses what must not leave calls behind.
    pub(crate) fn check_log_was_run(&self) -> Result<()> {
        match self.is_log_unrun.load(Ordering::Acquire) {
            true => Err(not_run()),
            false => Ok(()),
        }
    }

    pub(super) fn told(&self) -> MutexGuard<'_, DurableState> {
        lock(&self.told)
    }

    /// Waking takes a call of the system, also where no thread waits.
    pub(super) fn publish(&self, change: impl FnOnce(&mut DurableState)) {
        let mut told = self.told();
        change(&mut told);
        let is_awaited = told.waiting > 0;
        drop(told);
        if is_awaited {
            self.changed.notify_all();
        }
    }

    /// A ticket for the next cut, which must be one that waits for the update if it `is_inside` of one: what that writes
    /// later is not marked yet. With the lock: see [`MarkedLines::nothing_to_do`].
    pub(crate) fn ticket(&self, is_inside: bool) -> Ticket {
        let mut told = self.told();
        told.owes_cut |= is_inside;
        Ticket {
            region: self.region,
            cut: self.cuts.load(Ordering::Acquire) + 1,
        }
    }

    /// The cut a ticket of this region waits for.
    pub(crate) fn cut_of(&self, ticket: Ticket) -> Result<u64> {
        if ticket.region != self.region {
            return Err(Error::Invalid(
                "the ticket was taken from another region: ask that one whether it is durable".into(),
            ));
        }
        Ok(ticket.cut)
    }

    /// The last durable epoch.
    pub(crate) fn epoch(&self) -> Epoch {
        self.told().epoch
    }

    /// The last durable epoch, and what was kept with it.
    pub(crate) fn last(&self) -> (Epoch, Option<Superblock>) {
        let told = self.told();
        (told.epoch, told.superblock)
    }

    /// Waits for its turn to watch what epochs change.
    pub(crate) fn watch(&self) -> Watching<'_> {
        Watching {
            watch: &self.watch,
            _turn: lock(&self.watch.turn),
        }
    }

    /// Counts a section that ended and has `changed` something. Says the number of the last one that had.
    ///
    /// In a region of sections a section is what a cut is in one of epochs.
    pub(crate) fn count_section(&self, changed: bool) -> u64 {
        let before = self.cuts.fetch_add(u64::from(changed), Ordering::AcqRel);
        before + u64::from(changed)
    }

    /// The number of the last section that changed something.
    pub(crate) fn sections(&self) -> u64 {
        self.cuts.load(Ordering::Acquire)
    }

    /// A ticket for the section of that number and all before it.
    pub(crate) fn ticket_of(&self, section: u64) -> Ticket {
        let region = self.region;
        Ticket { region, cut: section }
    }

    /// All sections up to number `last` are durable.
    pub(crate) fn section_landed(
        &self,
        last: u64,
        epoch: Epoch,
        superblock: Superblock,
        pages: impl IntoIterator<Item = usize>,
    ) {
        self.watch.add(pages);
        self.publish(|told| {
            told.durable = last;
            told.epoch = epoch;
            told.superblock = Some(superblock);
        });
    }

    /// All sections that are not durable were undone. What there is now is durable.
    pub(crate) fn sections_undone(&self, why: &str) {
        let last = self.count_section(true);
        self.publish(|told| {
            told.undone.push((told.durable + 1..last, why.to_owned()));
            told.durable = last;
        });
    }

    /// The error of a store that is poisoned, if it is.
    pub(crate) fn check_poison(&self) -> Result<()> {
        self.poison.check().map_err(poisoned)
    }

    /// Poisons the store, and tells the waiters.
    pub(crate) fn set_poison(&self, error: twinpage_core::Error) -> Error {
        self.poison.set(&error);
        self.publish(|_| {});
        poisoned(error)
    }

    /// Whether nothing will be durable any more.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poison.is_set()
    }

    /// Whether cut number `cut` is durable; an error if it will not be without a new checkpoint.
    pub(crate) fn is_durable(&self, cut: u64) -> Result<bool> {
        self.told().answer(cut, &self.poison)
    }

    /// Waits until cut number `cut` is durable, which another thread makes.
    pub(crate) fn wait(&self, cut: u64) -> Result<()> {
        let mut told = self.told();
        let given_up = told.given_up;
        while !told.answer(cut, &self.poison)? {
            if let Some(busy) = &told.busy
                && told.given_up > given_up
            {
                return Err(busy.error());
            }
            told.waiting += 1;
            told = wait(&self.changed, told);
            told.waiting -= 1;
        }
        Ok(())
    }
}

impl DurableState {
    fn answer(&self, cut: u64, poison: &Poison) -> Result<bool> {
        if let Some((_, why)) = self.undone.iter().find(|(sections, _)| sections.contains(&cut)) {
            return Err(Error::Undone(why.clone()));
        }
        if self.durable >= cut {
            return Ok(true);
        }
        poison.check().map_err(poisoned)?;
        match &self.lost {
            Some((lost, why)) if *lost >= cut => Err(Error::Full(why.clone())),
            _ => Ok(false),
        }
    }
}

/// A copy would lack calls that are in the operation log only.
pub(crate) fn not_run() -> Error {
    Error::Invalid(
        "calls of an earlier process are in the operation log and were not run again yet: open the region's objects \
         first, and then copy it"
            .into(),
    )
}

/// What the store says of a failure, without saying twice that it is poisoned.
fn poisoned(error: twinpage_core::Error) -> Error {
    Error::Poisoned(match error {
        twinpage_core::Error::Poisoned(cause) => cause,
        cause => Arc::new(cause),
    })
}
