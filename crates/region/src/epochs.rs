//! Epochs of a region: the cut, and what it leaves to be captured in the background.
//!
//! ```text
//! updates   | running | wait |  running ...                 (the wait: drain, swap two maps)
//! cut                 |close, swap, open|
//! engine                      | sweep frozen lines, write, commit | durable
//! ```
//!
//! * No cut is made when nothing was written.

mod moving;
mod progress;

pub use progress::Ticket;
pub(crate) use progress::{Progress, not_run};

use crate::address::{PAGE, Place};
use crate::error::{Error, Result};
use crate::gate::Busy;
use crate::marks::{self, Frozen, LINE};
use crate::next_level::{NextLevel, Upkeep};
use crate::paging;
use crate::statistics::{Counters, Stop};
use crate::store::Shared;
use crate::superblock::{LevelMap, LogPosition, Superblock};
use moving::Moving;
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use twinpage_core::engine::{EngineError, Inline, Report};
use twinpage_core::geometry::LINES_PER_PAGE;
use twinpage_core::scheme::FoldHints;
use twinpage_core::{Capture, Epoch, Geometry, Idle, Later, LineMask, Outcome, PageId, Piece, Source};

/// Bytes captured before they are handed to the scheme: they are still in the processor's cache then.
const PART_BYTES: usize = 128 << 10;

/// Makes checkpoints, whatever the scheme and the medium.
pub(crate) trait Checkpoints: Send {
    /// Cuts, if anything was written since the last cut, and waits until it is durable.
    fn checkpoint(&mut self) -> Result<Epoch>;

    /// Moves those of some pages to the next level that the last checkpoint has in the store, as pages of an object.
    /// Says how many.
    fn move_out(&mut self, object: u64, pages: &[PageId]) -> Result<usize> {
        let _ = (object, pages);
        Ok(0)
    }

    /// Moves an object's pages back. Says how many.
    fn move_back(&mut self, object: u64) -> Result<usize> {
        let _ = object;
        Ok(0)
    }
}

/// An engine and its source. A checkpoint is made on the thread that asks for it, which waits for it.
pub(crate) struct Checkpointer<S: Idle + Send> {
    engine: Inline<Shared<S>, Upkeep>,
    scheme: Shared<S>,
    source: MarkedLines,
}

impl<S: Idle + Send + 'static> Checkpointer<S> {
    pub(crate) fn new(scheme: Shared<S>, source: MarkedLines) -> Checkpointer<S> {
        Checkpointer {
            engine: Inline::new(scheme.clone(), Upkeep(source.next.clone())),
            scheme,
            source,
        }
    }

    fn run(&mut self) -> Result<Epoch, EngineError<Interrupted>> {
        let fold_hints = self.scheme.lock().fold_hints();
        self.source.fold_hints = fold_hints.map_err(EngineError::Store)?;
        Ok(self.engine.checkpoint(&mut self.source)?.epoch)
    }

    /// An epoch that was lost found no room, or could not use the next level.
    fn lost(&self, cause: &twinpage_core::Error) -> Error {
        let failed = self.source.next.as_ref().and_then(|next| next.take_failure());
        failed.map_or_else(|| Error::Full(cause.to_string()), of_level)
    }

    /// Commits the last checkpoint once more, with pages elsewhere.
    fn move_pages(&mut self, next: Arc<NextLevel>, out: &[PageId], back: Vec<PageId>) -> Result<()> {
        let progress = self.source.progress.clone();
        let (_, superblock) = progress.last();
        let none = || Error::Invalid("nothing of the region is durable yet: make a checkpoint first".into());
        let superblock = superblock.ok_or_else(none)?;
        let mut moving = Moving {
            next,
            out: moving::runs(out),
            back,
            context: superblock.over(self.source.level()).encode(),
        };
        match self.engine.checkpoint(&mut moving) {
            Ok(report) => {
                progress.publish(|told| {
                    told.epoch = report.epoch;
                    told.superblock = Some(superblock.over(self.source.level()));
                });
                Ok(())
            }
            Err(EngineError::Lost { cause, .. }) => Err(self.lost(&cause)),
            Err(EngineError::Store(error)) => Err(progress.set_poison(error)),
            Err(other) => Err(Error::Invalid(other.to_string())),
        }
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
            EngineError::Lost { cause, .. } => self.lost(&cause),
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

    fn move_out(&mut self, object: u64, pages: &[PageId]) -> Result<usize> {
        let Some(next) = self.source.next.clone() else {
            return Ok(0);
        };
        self.source.progress.check_poison()?;
        let mut content = vec![0; self.source.geometry.page_bytes()];
        let mut moved = Vec::new();
        for &page in pages {
            let scheme = self.scheme.lock();
            if !scheme.is_present(page) {
                continue;
            }
            let read = scheme.read(page, 0, &mut content);
            drop(scheme);
            let written = read.and_then(|()| next.take_in(object, page, &content));
            written.map_err(|error| {
                next.lost();
                of_level(error)
            })?;
            moved.push(page);
        }
        if !moved.is_empty() {
            self.move_pages(next, &moved, Vec::new())?;
        }
        Ok(moved.len())
    }

    fn move_back(&mut self, object: u64) -> Result<usize> {
        let Some(next) = self.source.next.clone() else {
            return Ok(0);
        };
        self.source.progress.check_poison()?;
        let pages = next.pages_of(object);
        let count = pages.len();
        if count > 0 {
            self.move_pages(next, &[], pages)?;
        }
        Ok(count)
    }
}

/// What a store or the next level says of a move.
fn of_level(error: twinpage_core::Error) -> Error {
    match error {
        twinpage_core::Error::Full { .. } => Error::Full(error.to_string()),
        other => Error::Store(other),
    }
}

/// The marks of a window as a source of changed lines.
pub(crate) struct MarkedLines {
    pub(crate) place: Place,
    pub(crate) geometry: Geometry,
    pub(crate) progress: Arc<Progress>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) next: Option<Arc<NextLevel>>,
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
            next: None,
            patience: Duration::MAX,
            saved_bytes,
            saved_log: log,
            owed: Vec::new(),
            fold_hints: FoldHints::default(),
        }
    }

    /// The last durable epoch, if it covers everything: then the next cut's number counts as durable
    /// without a cut. A thread that took a ticket for it before saw all its writes marked, so they
    /// would have been found, or takes it inside an update, whose cut is owed; one that takes it later gets the number
    /// after it.
    fn nothing_to_do(&mut self) -> Option<Epoch> {
        let mut told = self.progress.told();
        let made = self.progress.cuts.load(Ordering::Relaxed);
        let clean = told.durable == made
            && !told.owes_cut
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

    /// The map of the next level that the last commit names.
    fn level(&self) -> LevelMap {
        self.next
            .as_ref()
            .map_or_else(LevelMap::default, |next| next.named())
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
            told.superblock = Some(sweep.superblock.over(self.level()));
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
        if let Some(next) = &self.next {
            next.cut(&into.discarded);
        }
        let asked_lines = self.mark_wanted(&into.discarded);
        let frozen = marks::cut(place).wanting(self.fold_hints.whole_from, asked_lines);
        if let Some(pager) = paging::of(place) {
            pager.cut();
        }
        let (bytes, log) = (place.bytes(), self.progress.log());
        let mut told = self.progress.told();
        told.owes_cut = false; // no update is running
        self.progress.cuts.fetch_add(1, Ordering::Release);
        drop(told);
        drop(closed);
        stop(drained - begun, drained.elapsed());
        (self.saved_bytes, self.saved_log) = (bytes, log);
        let superblock = Superblock::now(place.base().addr(), bytes, place.bound())
            .at(log)
            .over(self.level());
        into.context.extend_from_slice(&superblock.encode());
        into.later = Some(Box::new(Sweep {
            frozen,
            geometry: self.geometry,
            superblock,
            next: self.next.clone(),
        }));
        Ok(())
    }

    fn settled(&mut self, capture: &mut Capture, outcome: Outcome<'_>) {
        let later: Option<Box<dyn Any>> = capture.later.take().map(|later| later as Box<dyn Any>);
        let sweep = later
            .and_then(|later| later.downcast::<Sweep>().ok())
            .expect("a region's capture has a sweep until it is settled");
        if let Some(next) = &self.next {
            moving::settle(next, outcome);
        }
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
    next: Option<Arc<NextLevel>>,
}

impl Sweep {
    /// What the next level has of a page whose lines were captured last comes before them.
    fn whole_again(&self, next: &NextLevel, page: usize, begin: usize, into: &mut Capture) {
        let id = PageId((page * PAGE / self.geometry.page_bytes()) as u64);
        if next.has(id) {
            let lines = into.bytes[begin..].to_vec();
            into.bytes.truncate(begin);
            moving::whole_again(next, id, into);
            into.bytes.extend_from_slice(&lines);
        }
    }
}

impl Later for Sweep {
    fn more(&mut self, into: &mut Capture) -> bool {
        while into.bytes.len() < PART_BYTES {
            let begin = into.bytes.len();
            let Some((page, lines)) = self.frozen.next_page(&mut into.bytes) else {
                break;
            };
            if let Some(next) = self.next.as_ref().filter(|next| !next.is_empty()) {
                self.whole_again(next, page, begin, into);
            }
            piece(&mut into.pieces, self.geometry, page, LineMask(lines));
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
