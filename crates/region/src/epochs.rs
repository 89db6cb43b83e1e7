//! Epochs of a region: the cut, what it leaves to be captured in the background, and its waiters.
//!
//! ```text
//! updates   | running | wait |  running ...                 (the wait: drain, swap two maps)
//! cut                 |close, swap, open|
//! engine                      | sweep frozen lines, write, commit | durable
//! ```
//!
//! * Cuts are numbered. A [`Ticket`] has the number of the first cut that covers what was done when
//!   it was taken; it is durable when that cut or a later one is.
//! * If a checkpoint fails for lack of room, the next one includes its changes. Threads that
//!   wait for it are told. After any other failure nothing is durable any more, and all are told.
//! * No cut is made when nothing was written.

use crate::address::{PAGE, Place};
use crate::error::{Error, Result};
use crate::gate::Busy;
use crate::marks::{self, Frozen, LINE};
use crate::paging;
use crate::statistics::{Counters, Stop};
use crate::store::Shared;
use crate::superblock::{LogPosition, Superblock};
use std::any::Any;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use twinpage_core::engine::{EngineError, Inline, Report};
use twinpage_core::geometry::LINES_PER_PAGE;
use twinpage_core::scheme::FoldHints;
use twinpage_core::{
    Capture, Epoch, Geometry, Idle, Later, LineMask, Outcome, PageId, Piece, Poison, Source,
};

/// Bytes captured before they are handed to the scheme: they are still in the processor's cache then.
const PART_BYTES: usize = 128 << 10;

/// The progress of a region's epochs: shared by the threads that cut and those that wait.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Its number among those of this process: tickets are of one region.
    region: u64,
    /// Cuts made.
    cuts: AtomicU64,
    told: Mutex<DurableState>,
    /// The store's: it is set before the waiters are told.
    poison: Poison,
    changed: Condvar,
    watch: Watch,
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

    fn add(&self, changed: impl IntoIterator<Item = usize>) {
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
struct DurableState {
    /// The last cut that is durable, and the epoch it is on the medium.
    durable: u64,
    epoch: Epoch,
    /// What was kept with it.
    superblock: Option<Superblock>,
    /// The last cut that found no room, and why.
    lost: Option<(u64, String)>,
    /// Sections that found no room and were undone, and why.
    undone: Vec<(Range<u64>, String)>,
    /// Threads that wait for any of this to change.
    waiting: u32,
    /// How many cuts were given up because of an update that did not end, and what the last one waited for.
    given_up: u64,
    busy: Option<Busy>,
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

    fn told(&self) -> MutexGuard<'_, DurableState> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waking takes a call of the system, also where no thread waits.
    fn publish(&self, change: impl FnOnce(&mut DurableState)) {
        let mut told = self.told();
        change(&mut told);
        let is_awaited = told.waiting > 0;
        drop(told);
        if is_awaited {
            self.changed.notify_all();
        }
    }

    /// A ticket for the next cut. With the lock: see [`MarkedLines::nothing_to_do`].
    pub(crate) fn ticket(&self) -> Ticket {
        let _told = self.told();
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
            told = self.changed.wait(told).unwrap_or_else(PoisonError::into_inner);
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

/// Makes checkpoints, whatever the scheme and the medium.
pub(crate) trait Checkpoints: Send {
    /// Cuts, if anything was written since the last cut, and waits until it is durable.
    fn checkpoint(&mut self) -> Result<Epoch>;
}

/// An engine and its source. A checkpoint is made on the thread that asks for it, which waits for it.
pub(crate) struct Checkpointer<S: Idle + Send> {
    engine: Inline<Shared<S>, ()>,
    scheme: Shared<S>,
    source: MarkedLines,
}

impl<S: Idle + Send + 'static> Checkpointer<S> {
    pub(crate) fn new(scheme: Shared<S>, source: MarkedLines) -> Checkpointer<S> {
        Checkpointer {
            engine: Inline::new(scheme.clone(), ()),
            scheme,
            source,
        }
    }

    fn run(&mut self) -> Result<Epoch, EngineError<Interrupted>> {
        let fold_hints = self.scheme.lock().fold_hints();
        self.source.fold_hints = fold_hints.map_err(EngineError::Store)?;
        Ok(self.engine.checkpoint(&mut self.source)?.epoch)
    }
}

impl<S: Idle + Send + 'static> Checkpoints for Checkpointer<S> {
    fn checkpoint(&mut self) -> Result<Epoch> {
        let progress = self.source.progress.clone();
        progress.check_poison()?;
        if let Some(epoch) = self.source.nothing_to_do() {
            return Ok(epoch);
        }
        self.run().map_err(|error| match error {
            EngineError::Lost { cause, .. } => Error::Full(cause.to_string()),
            EngineError::Store(error) => progress.set_poison(error),
            EngineError::Source(Interrupted(busy)) => {
                let error = busy.error();
                progress.publish(|told| {
                    told.given_up += 1;
                    told.busy = Some(busy);
                });
                error
            }
            other => Error::Invalid(other.to_string()),
        })
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

/// The marks of a window as a source of changed lines.
pub(crate) struct MarkedLines {
    pub(crate) place: Place,
    pub(crate) geometry: Geometry,
    pub(crate) progress: Arc<Progress>,
    pub(crate) counters: Arc<Counters>,
    /// How long a cut waits for an update.
    pub(crate) patience: Duration,
    /// The size that the last cut saved.
    saved_bytes: usize,
    /// The place in the operation log that it saved.
    saved_log: LogPosition,
    /// Discards of lost epochs, in pages of the geometry.
    owed: Vec<Range<PageId>>,
    /// What the scheme would rather have whole in the next cut.
    fold_hints: FoldHints,
}

impl MarkedLines {
    pub(crate) fn new(
        place: Place,
        geometry: Geometry,
        progress: Arc<Progress>,
        counters: Arc<Counters>,
        saved_bytes: usize,
    ) -> MarkedLines {
        let log = progress.log();
        MarkedLines {
            place,
            geometry,
            progress,
            counters,
            patience: Duration::MAX,
            saved_bytes,
            saved_log: log,
            owed: Vec::new(),
            fold_hints: FoldHints::default(),
        }
    }

    /// The last durable epoch, if it covers everything: then the next cut's number counts as durable
    /// without a cut. A thread that took a ticket for it before saw all its writes marked, so they
    /// would have been found; one that takes it later gets the number after it.
    fn nothing_to_do(&mut self) -> Option<Epoch> {
        let mut told = self.progress.told();
        let made = self.progress.cuts.load(Ordering::Relaxed);
        let clean = told.durable == made
            && marks::is_clean(self.place)
            && self.place.bytes() == self.saved_bytes
            && self.progress.log() == self.saved_log
            && self.owed.is_empty();
        clean.then(|| {
            self.progress.cuts.store(made + 1, Ordering::Release);
            told.durable = made + 1;
            let epoch = told.epoch;
            drop(told);
            self.progress.changed.notify_all();
            epoch
        })
    }

    /// Marks whole what the scheme wants so and is in memory, and says how many lines that are more. No
    /// update is running.
    fn mark_wanted(&mut self, discarded: &[Range<PageId>]) -> u64 {
        let mut wanted = std::mem::take(&mut self.fold_hints.pages);
        for gone in discarded {
            let at = |id| wanted.partition_point(|&page| page < id);
            let gone = at(gone.start)..at(gone.end);
            wanted.drain(gone);
        }
        let (place, stored) = (self.place, self.geometry.page_bytes() / PAGE);
        let pager = paging::of(place);
        let is_here = |&page: &usize| pager.as_ref().is_none_or(|pager| pager.is_here(page));
        let pages = wanted
            .into_iter()
            .flat_map(|page| page.0 as usize * stored..(page.0 as usize + 1) * stored)
            .take_while(|page| (page + 1) * PAGE <= place.bytes());
        marks::mark_whole(place, pages.filter(is_here))
    }

    /// The epoch is durable: its lines are no longer in flight, and the waiters are told.
    fn landed(&mut self, sweep: Sweep, discarded: &[Range<PageId>], report: &Report) {
        let cut = self.progress.cuts.load(Ordering::Relaxed);
        if let Some(pager) = paging::of(self.place) {
            pager.landed();
        }
        sweep.frozen.clear_in_flight();
        self.progress.watch.add(sweep.frozen.pages());
        let stored = self.geometry.page_bytes() / PAGE;
        let pages = |pages: &Range<PageId>| pages.start.0 as usize * stored..pages.end.0 as usize * stored;
        self.progress.watch.add(discarded.iter().flat_map(pages));
        self.counters.add_epoch(report, sweep.frozen.changed_lines());
        self.progress.publish(|told| {
            told.durable = cut;
            told.epoch = report.epoch;
            told.superblock = Some(sweep.superblock);
        });
    }

    /// The epoch found no room: the next one makes up for it.
    fn owe(&mut self, discarded: &[Range<PageId>], cause: &twinpage_core::Error) {
        if let Some(pager) = paging::of(self.place) {
            pager.lost();
        }
        self.owed.extend_from_slice(discarded);
        self.saved_bytes = 0;
        let cut = self.progress.cuts.load(Ordering::Relaxed);
        self.progress
            .publish(|told| told.lost = Some((cut, cause.to_string())));
    }
}

/// A cut that was given up.
#[derive(Debug)]
pub(crate) struct Interrupted(Busy);

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0.error())
    }
}

impl std::error::Error for Interrupted {}

impl Source for MarkedLines {
    type Error = Interrupted;

    fn capture(&mut self, into: &mut Capture) -> Result<(), Interrupted> {
        let place = self.place;
        let counters = self.counters.clone();
        let stop = |drain, held| counters.add_stop(Stop { drain, held });
        let closed = place.close_gate(self.patience, |held| stop(held, Duration::ZERO));
        let closed = closed.map_err(Interrupted)?;
        let (begun, drained) = (closed.since, Instant::now());
        into.discarded = marks::take_discarded(place, self.geometry);
        into.discarded.append(&mut self.owed);
        let asked_lines = self.mark_wanted(&into.discarded);
        let frozen = marks::cut(place).wanting(self.fold_hints.whole_from, asked_lines);
        if let Some(pager) = paging::of(place) {
            pager.cut();
        }
        let (bytes, log) = (place.bytes(), self.progress.log());
        self.progress.cuts.fetch_add(1, Ordering::Release);
        drop(closed);
        stop(drained - begun, drained.elapsed());
        (self.saved_bytes, self.saved_log) = (bytes, log);
        let superblock = Superblock::now(place.base().addr(), bytes, place.bound()).at(log);
        into.context.extend_from_slice(&superblock.encode());
        into.later = Some(Box::new(Sweep {
            frozen,
            geometry: self.geometry,
            superblock,
        }));
        Ok(())
    }

    fn settled(&mut self, capture: &mut Capture, outcome: Outcome<'_>) {
        let later: Option<Box<dyn Any>> = capture.later.take().map(|later| later as Box<dyn Any>);
        let sweep = later
            .and_then(|later| later.downcast::<Sweep>().ok())
            .expect("a region's capture has a sweep until it is settled");
        match outcome {
            Outcome::Durable { report, .. } => self.landed(*sweep, &capture.discarded, report),
            Outcome::Lost(cause) => {
                sweep.frozen.requeue();
                self.owe(&capture.discarded, cause);
            }
            Outcome::Poisoned(_) => sweep.frozen.requeue(),
        }
    }
}

/// The lines of a cut, captured while the writers go on.
#[derive(Debug)]
struct Sweep {
    frozen: Frozen,
    geometry: Geometry,
    /// What is kept with the epoch.
    superblock: Superblock,
}

impl Later for Sweep {
    fn more(&mut self, into: &mut Capture) -> bool {
        while into.bytes.len() < PART_BYTES {
            match self.frozen.next_page(&mut into.bytes) {
                Some((page, lines)) => piece(&mut into.pieces, self.geometry, page, LineMask(lines)),
                None => break,
            }
        }
        !into.pieces.is_empty()
    }
}

/// The last bytes captured are lines of 64 bytes of a page of the region: they go to the piece before where
/// they follow it. A store of larger lines is given whole pages.
#[inline]
pub(crate) fn piece(pieces: &mut Vec<Piece>, geometry: Geometry, page: usize, lines: LineMask) {
    let (page, held) = match geometry.line_bytes() == LINE {
        true => (PageId(page as u64), lines),
        false => {
            // Lines are a power of two, and a division costs as much as copying one.
            let line_bits = geometry.line_bytes().trailing_zeros();
            let number = (page * PAGE) >> line_bits;
            let page = PageId((number / LINES_PER_PAGE) as u64);
            (page, LineMask::run(number % LINES_PER_PAGE, PAGE >> line_bits))
        }
    };
    let follow = |before: LineMask| before.0.leading_zeros() + held.0.trailing_zeros() >= u64::BITS;
    match pieces.last_mut() {
        Some(last) if last.page == page && follow(last.held) => last.held = last.held | held,
        _ => pieces.push(Piece {
            page,
            held,
            compare: false,
        }),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

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
