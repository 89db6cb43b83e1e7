//! The explorer: stops a recorded run at every point, recovers what a crash may have left there, and
//! compares it with the promises.
//!
//! Checked of every image:
//! * Recovery finds the last commit reported durable, or the one in flight, whole, with its context.
//!   While a store is being made it may also find none.
//! * `check` finds nothing to complain about.
//! * When recovery itself crashes, at every point of it, recovery finds the same state again.
//! * The recovered store works: it takes another epoch, is recovered again; and (for a sample of the
//!   images) that second life crashes at every point too.

use super::image::Image;
use super::images::{Choice, Crash};
use super::random::Random;
use super::recorder::{Log, Op, Recorder};
use super::run::{Run, State, Step, differs_after_recovery};
use crate::error::{Error, Result};
use crate::geometry::LineMask;
use crate::scheme::{Epoch, Recovered, Simulated};
use std::collections::BTreeMap;
use std::ops::{AddAssign, RangeInclusive};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What an exploration did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Points a run was stopped at.
    pub points: u64,
    /// Images that a crash there may leave.
    pub images: u64,
    /// Recoveries: of the images, of crashed recoveries and of second lives.
    pub recoveries: u64,
    /// Epochs committed by recovered stores.
    pub second_lives: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, more: Counts) {
        self.points += more.points;
        self.images += more.images;
        self.recoveries += more.recoveries;
        self.second_lives += more.second_lives;
    }
}

/// The paths that the runs took: proof that they took all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    /// Epochs committed.
    pub epochs: u64,
    /// Epochs that found no room and were abandoned.
    pub lost: u64,
    /// Bytes of snapshots.
    pub snapshot_bytes: u64,
    /// Bytes through the fall-back.
    pub fallback_bytes: u64,
    /// Derivative pages reclaimed.
    pub reclaimed: u64,
    /// Bytes of a log.
    pub log_bytes: u64,
    /// Bytes written home after the commit that made them durable.
    pub write_back_bytes: u64,
}

impl AddAssign for Seen {
    fn add_assign(&mut self, more: Seen) {
        self.epochs += more.epochs;
        self.lost += more.lost;
        self.snapshot_bytes += more.snapshot_bytes;
        self.fallback_bytes += more.fallback_bytes;
        self.reclaimed += more.reclaimed;
        self.log_bytes += more.log_bytes;
        self.write_back_bytes += more.write_back_bytes;
    }
}

/// A promise that was broken, and where.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what}, after operation {point} of {points}{}", if *deep { ", in a second life" } else { "" })]
pub struct Broken {
    /// The fault.
    pub what: String,
    /// The operation the run was stopped after.
    pub point: usize,
    /// Operations there are.
    pub points: usize,
    /// The crash was of a recovered store.
    pub deep: bool,
}

/// How thoroughly to look.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Random images at a point with too many to build all.
    pub samples: usize,
    /// One image of this number gets a second life.
    pub lives: u64,
    /// One second life of this number is crashed everywhere itself; 0 for none.
    pub deep: u64,
    /// Recoveries that write so often or less are always crashed everywhere, longer ones for the
    /// images that get a second life.
    pub short_recovery: usize,
    /// Skips the comparison without a crash: for planted faults that it would find already.
    pub only_crashes: bool,
}

/// How to make and recover the scheme under test.
pub struct Subject<S> {
    /// Makes a store.
    pub create: Box<dyn Fn(Recorder) -> Result<S>>,
    /// Recovers one.
    pub recover: Box<dyn Fn(Recorder) -> Result<(S, Recovered)>>,
}

/// A run, recorded.
struct Recorded {
    start: Image,
    ops: Vec<Op>,
    states: BTreeMap<Epoch, State>,
}

/// Explores runs of one scheme.
pub struct Explorer<S> {
    subject: Subject<S>,
    effort: Effort,
    random: Random,
    /// The counts so far.
    pub counts: Counts,
    /// The paths that the runs took.
    pub seen: Seen,
}

impl<S: Simulated> Explorer<S> {
    /// An explorer of one scheme; `seed` fixes which images are sampled.
    pub fn new(subject: Subject<S>, effort: Effort, seed: u64) -> Explorer<S> {
        Explorer {
            subject,
            effort,
            random: Random::new(seed),
            counts: Counts::default(),
            seen: Seen::default(),
        }
    }

    /// Runs `steps` on a new store that begins on `medium`, and crashes it everywhere.
    ///
    /// # Errors
    /// The first promise that does not hold.
    pub fn explore(&mut self, medium: Image, steps: &[Step]) -> Result<(), Broken> {
        let explored = catch_unwind(AssertUnwindSafe(|| {
            let recorded = self.record(medium, steps)?;
            self.crash_everywhere(&recorded, steps, false)
        }));
        explored.unwrap_or_else(|panic| {
            let what = panic.downcast_ref::<String>().cloned();
            let what = what.or_else(|| panic.downcast_ref::<&str>().map(|what| (*what).to_string()));
            Err(broken(format!("panic: {}", what.unwrap_or_default())))
        })
    }

    /// The run without a crash, which must agree with the model as well.
    fn record(&mut self, medium: Image, steps: &[Step]) -> Result<Recorded, Broken> {
        let recorder = Recorder::new(medium.clone());
        let log = recorder.log();
        let scheme = (self.subject.create)(recorder).map_err(failed("it cannot be made"))?;
        log.borrow_mut().push(Op::Durable(0));
        let run = self.live(scheme, &log, State::default(), steps)?;
        let info = run.scheme.info();
        self.seen += Seen {
            epochs: info.epoch,
            lost: run.lost,
            snapshot_bytes: info.traffic.snapshot_bytes,
            fallback_bytes: info.traffic.fallback_bytes,
            reclaimed: info.pool.reclaimed,
            log_bytes: info.traffic.log_bytes,
            write_back_bytes: info.traffic.write_back_bytes,
        };
        Ok(Recorded {
            start: medium,
            ops: log.take(),
            states: run.states,
        })
    }

    /// Does `steps` and compares.
    fn live(&mut self, scheme: S, log: &Log, state: State, steps: &[Step]) -> Result<Run<S>, Broken> {
        let mut run = Run::new(scheme, Log::clone(log), state);
        run.go(steps).map_err(failed("a step fails"))?;
        if !self.effort.only_crashes {
            if let Some(what) = run.differs().map_err(failed("reading fails"))? {
                return Err(broken(format!("without a crash {what}")));
            }
            self.check(&run.scheme)?;
        }
        Ok(run)
    }

    fn check(&self, scheme: &S) -> Result<(), Broken> {
        let damage = scheme.check().map_err(failed("checking fails"))?;
        match damage.first() {
            None => Ok(()),
            Some(first) => Err(broken(format!(
                "check finds a damaged {} at byte {}: {}",
                first.what, first.at, first.why
            ))),
        }
    }

    /// Stops the run after every operation.
    fn crash_everywhere(&mut self, run: &Recorded, steps: &[Step], deep: bool) -> Result<(), Broken> {
        let mut crash = Crash::new(&run.start);
        let first = *run.states.first_key_value().map_or(&0, |(epoch, _)| epoch);
        let mut allowed = first..=first;
        let mut made = deep;
        for (point, op) in run.ops.iter().enumerate() {
            match op {
                Op::Committing(epoch) => allowed = *allowed.start()..=*epoch,
                Op::Durable(epoch) => {
                    allowed = *epoch..=*epoch;
                    made = true;
                }
                _ => {}
            }
            if !crash.advance(op) {
                continue;
            }
            self.counts.points += 1;
            for image in crash.images(Choice::many(self.effort.samples), &mut self.random) {
                self.counts.images += 1;
                let checked = self.check_image(&image, &allowed, made, run, steps, deep);
                checked.map_err(|broken| Broken {
                    point,
                    points: run.ops.len(),
                    deep: deep || broken.deep,
                    ..broken
                })?;
            }
        }
        Ok(())
    }

    /// Recovers an image and compares.
    fn check_image(
        &mut self,
        image: &dyn Fn() -> Image,
        allowed: &RangeInclusive<Epoch>,
        made: bool,
        run: &Recorded,
        steps: &[Step],
        deep: bool,
    ) -> Result<(), Broken> {
        let recorder = Recorder::new(image());
        let log = recorder.log();
        let (scheme, found) = match self.recover(recorder) {
            Err(Error::Foreign(_) | Error::Damaged { .. }) if !made => return Ok(()),
            other => other.map_err(failed("recovery refuses"))?,
        };
        let Some(state) = run
            .states
            .get(&found.epoch)
            .filter(|_| allowed.contains(&found.epoch))
        else {
            let what = format!("epoch {} is found, {allowed:?} was promised", found.epoch);
            return Err(broken(what));
        };
        self.compare(&scheme, &found, state)?;
        let ops = log.borrow().clone();
        // A long recovery is crashed for a sample of the images only.
        let is_short = ops.len() <= self.effort.short_recovery;
        if !ops.is_empty() && (is_short || self.random.once_in(self.effort.lives)) {
            self.crash_recovery(image, &ops, found.epoch, state)?;
        }
        if self.random.once_in(self.effort.lives) {
            let life = self.second_life(image(), scheme, &log, state, steps, deep);
            life.map_err(|broken| Broken { deep: true, ..broken })?;
        }
        Ok(())
    }

    fn recover(&mut self, recorder: Recorder) -> Result<(S, Recovered)> {
        self.counts.recoveries += 1;
        (self.subject.recover)(recorder)
    }

    fn compare(&self, scheme: &S, found: &Recovered, state: &State) -> Result<(), Broken> {
        match differs_after_recovery(scheme, found, state).map_err(failed("reading fails"))? {
            Some(what) => Err(broken(format!("epoch {}: {what}", found.epoch))),
            None => self.check(scheme),
        }
    }

    /// Crashes the recovery of `image` after everything it did.
    fn crash_recovery(
        &mut self,
        image: &dyn Fn() -> Image,
        ops: &[Op],
        epoch: Epoch,
        state: &State,
    ) -> Result<(), Broken> {
        let mut crash = Crash::new(&image());
        for op in ops {
            if !crash.advance(op) {
                continue;
            }
            for image in crash.images(Choice::FEW, &mut self.random) {
                let again = self.recover(Recorder::new(image()));
                let (scheme, found) = again.map_err(failed("recovery after a crashed recovery refuses"))?;
                if found.epoch != epoch {
                    let again = found.epoch;
                    let what = format!("epoch {again} is found after a crashed recovery of {epoch}");
                    return Err(broken(what));
                }
                self.compare(&scheme, &found, state)?;
            }
        }
        Ok(())
    }

    /// A recovered store takes the epochs that came next, not quite as they were the first time, and
    /// is recovered again; a sample is crashed everywhere, from the start of its recovery.
    fn second_life(
        &mut self,
        start: Image,
        scheme: S,
        log: &Log,
        state: &State,
        steps: &[Step],
        deep: bool,
    ) -> Result<(), Broken> {
        let next = next_steps(steps, scheme.epoch(), &mut self.random);
        let run = self.live(scheme, log, state.clone(), &next)?;
        self.counts.second_lives += 1;
        let last = run.scheme.epoch();
        let lived = Recorded {
            start,
            ops: log.take(),
            states: run.states,
        };
        let mut end = Crash::new(&lived.start);
        for op in &lived.ops {
            end.advance(op);
        }
        let (scheme, found) = self
            .recover(Recorder::new(end.whole()))
            .map_err(failed("recovery refuses"))?;
        if found.epoch != last {
            let epoch = found.epoch;
            return Err(broken(format!("epoch {epoch} is found, {last} was durable")));
        }
        self.compare(&scheme, &found, &lived.states[&last])?;
        if !deep && self.effort.deep > 0 && self.random.once_in(self.effort.deep) {
            self.crash_everywhere(&lived, steps, true)?;
        }
        Ok(())
    }
}

/// What a store recovered to `epoch` does next: what came next the first time, the same again, with
/// a step left out, or with other contexts.
fn next_steps(steps: &[Step], epoch: Epoch, random: &mut Random) -> Vec<Step> {
    let is_commit = |step: &&Step| matches!(step, Step::Commit(..) | Step::Begin(..));
    let commits = |steps: &[Step]| steps.iter().filter(is_commit).count() as u64;
    let skip = (0..steps.len()).find(|&k| commits(&steps[..k]) >= epoch);
    let mut next: Vec<Step> = Vec::new();
    for step in &steps[skip.unwrap_or(steps.len())..] {
        next.push(step.clone());
        if commits(&next) == 2 {
            break;
        }
    }
    if next.is_empty() {
        let (page, lines) = (random.below(4), LineMask(random.number() | 1));
        let value = random.number();
        next.push(Step::Write { page, lines, value });
        next.push(Step::Commit(9, random.number()));
    }
    match random.below(3) {
        0 => drop(next.remove(random.below(next.len() as u64) as usize)),
        1 => next.iter_mut().for_each(|step| {
            if let Step::Commit(_, value) | Step::Begin(_, value) = step {
                *value ^= 1;
            }
        }),
        _ => {}
    }
    next
}

fn broken(what: String) -> Broken {
    Broken {
        what,
        point: 0,
        points: 0,
        deep: false,
    }
}

fn failed(what: &'static str) -> impl Fn(Error) -> Broken {
    move |error| broken(format!("{what}: {error}"))
}
