//! The epoch engine: stop, capture, go on; write and commit in the background.
//!
//! ```text
//!   caller      | capture 1 |  program runs ...      | capture 2 |  program runs ...
//!   background              | compare, write, commit |           | compare, write, commit |
//!                           '- witness.before_commit -' durable     (ThyNVM's overlap, DPC 3.1)
//! ```
//!
//! * The stop lasts as long as the source's capture; nothing is written inside it. What a source can
//!   capture after its stop ([`Capture::later`]) is captured piece by piece in the background.
//! * One epoch is in flight at a time: a checkpoint waits for the one before.
//! * [`Witness::durable`] is called only after the commit is durable, so what the outside world is
//!   told waits for the epoch that covers it (external synchrony, DPC 3.6).
//! * An epoch that finds no room is abandoned whole and owed by the source to the next one. Any
//!   other failure poisons the store: nothing later is called durable.
//! * Buffers go round between the two threads; the steady state allocates nothing.

mod inline;

pub use inline::Inline;

use crate::error::{Error, Result};
use crate::poison::Poison;
pub use crate::report::Report;
use crate::scheme::{Epoch, Pressure, Scheme};
use crate::source::{Capture, Outcome, Source};
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

/// Observes a commit: just before it, and when it is durable. Called on the thread that commits.
pub trait Witness: Send {
    /// All of the epoch's lines are written and its commit is next: makes durable what must not be
    /// behind it (the program's own files). Called again with the same number when the epoch was
    /// lost and another takes its number.
    ///
    /// # Errors
    /// [`Error::Full`] loses this epoch; any other error poisons the store.
    fn before_commit(&mut self, capture: &mut Capture) -> Result<()> {
        let _ = capture;
        Ok(())
    }

    /// The epoch is durable: held output may go out.
    fn durable(&mut self, epoch: Epoch) {
        let _ = epoch;
    }
}

/// Commits without a witness.
impl Witness for () {}

/// How the engine gets at its scheme: its own, or one that others read at the same time.
pub trait Lease: Send {
    /// The scheme.
    type Scheme: Scheme;

    /// Does something with the scheme, without another user of it meanwhile.
    fn with<R>(&mut self, operation: impl FnOnce(&mut Self::Scheme) -> R) -> R;

    /// As [`Scheme::commit`]. Others may read while a device is waited for.
    ///
    /// # Errors
    /// As [`Scheme::commit`].
    fn commit(&mut self, context: &[u8]) -> Result<Epoch> {
        self.with(|scheme| scheme.commit(context))
    }
}

impl<S: Scheme + Send> Lease for S {
    type Scheme = S;

    #[inline]
    fn with<R>(&mut self, operation: impl FnOnce(&mut S) -> R) -> R {
        operation(self)
    }
}

/// A checkpoint that was started: the capture is done and the program runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Started {
    /// The epoch now in flight.
    pub epoch: Epoch,
    /// Microseconds spent waiting for the epoch before it.
    pub waited_us: u64,
    /// Microseconds in the source's capture.
    pub capture_us: u64,
    /// The epoch before it, durable now.
    pub last: Option<Report>,
}

/// Why a checkpoint did not happen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError<E: std::error::Error + 'static> {
    /// The epoch in flight found no room. It was abandoned and the source owes it to the next one:
    /// free some room and checkpoint again, or stop. The last checkpoint is whole.
    #[error("epoch {epoch} was lost, the checkpoint before it is whole: {cause}")]
    Lost {
        /// Its number, which the next one takes.
        epoch: Epoch,
        /// [`Error::Full`], with the full part.
        cause: Error,
    },
    /// The store failed. Nothing later will be durable.
    #[error(transparent)]
    Store(Error),
    /// The source failed; no epoch was started.
    #[error(transparent)]
    Source(E),
}

/// A finished engine, taken apart.
#[derive(Debug)]
pub struct Finished<S, W> {
    /// The scheme, at its last commit.
    pub scheme: S,
    /// The witness.
    pub witness: W,
    /// How the epoch in flight ended, if its end was not waited for.
    pub last: Result<Option<Report>>,
}

/// An epoch to commit, and its buffers. The background thread is given it, and gives it back.
#[derive(Default)]
struct Job {
    capture: Capture,
    /// Lines changed, for each piece.
    changed: Vec<u8>,
    /// The rest of a capture, read after the stop, a part at a time.
    part: Capture,
    capture_us: u64,
}

/// The end of every epoch, on any thread: a scheme and its observers.
struct Committer<S, W> {
    scheme: S,
    witness: W,
    poison: Poison,
}

/// And back again.
struct Done {
    job: Job,
    outcome: Result<Report>,
}

/// Joins a source, a scheme and observers. See the [module](self).
pub struct Engine<S: Lease, W: Witness> {
    jobs: Option<SyncSender<Job>>,
    done: Receiver<Done>,
    thread: Option<JoinHandle<Committer<S, W>>>,
    /// The buffers, while no epoch is in flight.
    idle: Option<Job>,
    /// The finished epoch that [`Engine::is_idle`] found and no call has waited for yet.
    arrived: Option<Done>,
    epoch: Epoch,
    poison: Poison,
}

impl<S, W> Engine<S, W>
where
    S: Lease + 'static,
    W: Witness + 'static,
{
    /// Takes the scheme to a background thread.
    ///
    /// # Errors
    /// [`Error::Io`] when the system refuses a thread.
    pub fn start(mut scheme: S, witness: W) -> Result<Self> {
        let epoch = scheme.with(|scheme| scheme.epoch());
        let committer = Committer::new(scheme, witness);
        let poison = committer.poison.clone();
        let (jobs, work) = sync_channel::<Job>(1);
        let (results, done) = sync_channel::<Done>(1);
        let thread = Builder::new()
            .name("twinpage-epoch".into())
            .spawn(move || background(committer, &work, &results))
            .map_err(|source| Error::Io {
                what: "start the epoch thread".into(),
                at: 0,
                source,
            })?;
        Ok(Engine {
            jobs: Some(jobs),
            done,
            thread: Some(thread),
            idle: Some(Job::default()),
            arrived: None,
            epoch,
            poison,
        })
    }

    /// Waits for the epoch in flight, captures the next and hands it over. Returns as soon as the
    /// capture is done; what became of it is told by the next call, or by [`Engine::wait`].
    ///
    /// # Errors
    /// [`EngineError::Lost`]: the epoch in flight was, and nothing was captured: call again to try
    /// with what is owed. [`EngineError::Store`] is for good. [`EngineError::Source`] is the source's.
    pub fn checkpoint<Src>(&mut self, source: &mut Src) -> Result<Started, EngineError<Src::Error>>
    where
        Src: Source,
        Src::Error: std::error::Error + 'static,
    {
        let begun = Instant::now();
        let last = self.wait(source)?;
        let waited_us = micros(begun);
        let mut job = self
            .idle
            .take()
            .expect("the buffers are here when no epoch is in flight");
        if let Err(error) = job.capture(self.epoch + 1, source) {
            self.idle = Some(job);
            return Err(EngineError::Source(error));
        }
        let started = Started {
            epoch: job.capture.epoch,
            waited_us,
            capture_us: job.capture_us,
            last,
        };
        if self.jobs.as_ref().is_none_or(|jobs| jobs.send(job).is_err()) {
            self.fail();
        }
        Ok(started)
    }

    /// Waits for the epoch in flight, if there is one that was not waited for yet.
    ///
    /// # Errors
    /// As [`Engine::checkpoint`].
    pub fn wait<Src>(&mut self, source: &mut Src) -> Result<Option<Report>, EngineError<Src::Error>>
    where
        Src: Source,
        Src::Error: std::error::Error + 'static,
    {
        let Some(Done { mut job, outcome }) = self.take_done() else {
            return self.poison.check().map(|()| None).map_err(EngineError::Store);
        };
        let settled = job.settle(source, outcome);
        self.idle = Some(job);
        let report = settled?;
        assert_eq!(
            report.epoch,
            self.epoch + 1,
            "epochs become durable one after the other"
        );
        self.epoch = report.epoch;
        Ok(Some(report))
    }

    /// Whether no epoch is in flight, so that a checkpoint would not wait.
    pub fn is_idle(&mut self) -> bool {
        if self.idle.is_none() && self.arrived.is_none() {
            match self.done.try_recv() {
                Ok(done) => self.arrived = Some(done),
                Err(TryRecvError::Empty) => return false,
                Err(TryRecvError::Disconnected) => self.fail(),
            }
        }
        true
    }

    /// Waits for the epoch in flight and gives everything back.
    pub fn finish(mut self) -> Finished<S, W> {
        let last = match self.take_done() {
            Some(done) => done.outcome.map(Some),
            None => self.poison.check().map(|()| None),
        };
        self.jobs = None;
        let thread = self.thread.take().expect("taken only here and when dropped");
        let Committer { scheme, witness, .. } = thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        Finished {
            scheme,
            witness,
            last,
        }
    }

    /// The epoch in flight, waited for.
    fn take_done(&mut self) -> Option<Done> {
        if self.idle.is_some() {
            return None;
        }
        self.arrived.take().or_else(|| match self.done.recv() {
            Ok(done) => Some(done),
            Err(_) => self.fail(),
        })
    }

    /// The background thread ended before it was told to, which only a panic does: the panic goes on here.
    fn fail(&mut self) -> ! {
        match self.thread.take().map(JoinHandle::join) {
            Some(Err(panic)) => resume_unwind(panic),
            _ => unreachable!("the epoch thread runs until its engine lets it go"),
        }
    }
}

impl<S: Lease, W: Witness> Drop for Engine<S, W> {
    /// The epoch in flight is committed before the thread ends.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// The background thread: one epoch after the other, until the engine hangs up.
fn background<S: Lease, W: Witness>(
    mut committer: Committer<S, W>,
    work: &Receiver<Job>,
    results: &SyncSender<Done>,
) -> Committer<S, W> {
    while let Ok(mut job) = work.recv() {
        let outcome = committer.run(&mut job);
        if results.send(Done { job, outcome }).is_err() {
            break;
        }
    }
    committer
}

impl Job {
    /// Stops the source and captures epoch number `epoch`.
    fn capture<Src: Source>(&mut self, epoch: Epoch, source: &mut Src) -> Result<(), Src::Error> {
        self.capture.clear();
        self.changed.clear();
        self.capture.epoch = epoch;
        let begun = Instant::now();
        source.capture(&mut self.capture)?;
        self.capture_us = micros(begun);
        Ok(())
    }

    /// What became of the epoch, told to its source.
    fn settle<Src>(
        &mut self,
        source: &mut Src,
        outcome: Result<Report>,
    ) -> Result<Report, EngineError<Src::Error>>
    where
        Src: Source,
        Src::Error: std::error::Error + 'static,
    {
        let capture = &mut self.capture;
        match outcome {
            Ok(report) => {
                let (report_of, changed) = (&report, &self.changed[..]);
                let durable = Outcome::Durable {
                    report: report_of,
                    changed,
                };
                source.settled(capture, durable);
                Ok(report)
            }
            Err(cause @ Error::Full { .. }) => {
                let epoch = capture.epoch;
                source.settled(capture, Outcome::Lost(&cause));
                Err(EngineError::Lost { epoch, cause })
            }
            Err(error) => {
                source.settled(capture, Outcome::Poisoned(&error));
                Err(EngineError::Store(error))
            }
        }
    }
}

impl<S: Lease, W: Witness> Committer<S, W> {
    fn new(mut scheme: S, witness: W) -> Committer<S, W> {
        let poison = scheme.with(|scheme| scheme.info().poison);
        Committer {
            scheme,
            witness,
            poison,
        }
    }

    /// One epoch, or nothing of it. Any failure but a lack of room poisons the store.
    fn run(&mut self, job: &mut Job) -> Result<Report> {
        let outcome = self.poison.check().and_then(|()| self.commit(job));
        if let Err(error) = &outcome {
            self.scheme.with(Scheme::abandon);
            if !matches!(error, Error::Full { .. }) {
                self.poison.set(error);
            }
        }
        outcome
    }

    /// One epoch: write what changed, make it durable, say so.
    fn commit(&mut self, job: &mut Job) -> Result<Report> {
        let Job {
            capture,
            part,
            changed,
            ..
        } = job;
        let mut report = Report {
            capture_us: job.capture_us,
            ..Report::default()
        };
        let begun = Instant::now();
        let before = self.scheme.with(|scheme| {
            let before = scheme.info().traffic;
            for pages in &capture.discarded {
                scheme.discard(pages.clone())?;
            }
            write(scheme, capture, &mut report, |lines| changed.push(lines))?;
            Ok(before)
        })?;
        if let Some(later) = &mut capture.later {
            part.clear();
            while later.more(part) {
                self.scheme
                    .with(|scheme| write(scheme, part, &mut report, |_| {}))?;
                part.clear();
            }
        }
        report.write_us = micros(begun);
        let begun = Instant::now();
        self.witness.before_commit(capture)?;
        report.witness_us = micros(begun);
        let begun = Instant::now();
        report.epoch = Lease::commit(&mut self.scheme, &capture.context)?;
        report.traffic = self.scheme.with(|scheme| scheme.info().traffic) - before;
        report.commit_us = micros(begun);
        assert_eq!(
            report.epoch, capture.epoch,
            "the scheme committed another epoch than was captured"
        );
        self.witness.durable(report.epoch);
        Ok(report)
    }
}

/// Writes a capture or a part of one: the lines that changed, or those that differ where a piece asks to compare.
fn write<S: Scheme>(
    scheme: &mut S,
    capture: &Capture,
    report: &mut Report,
    mut changed: impl FnMut(u8),
) -> Result<()> {
    report.pieces += capture.pieces.len() as u64;
    report.captured_bytes += capture.bytes.len() as u64;
    for piece in capture.lines(scheme.geometry()) {
        let (piece, mut lines) = piece?;
        if piece.compare {
            lines.changed = scheme.diff(&lines)?;
        }
        let count = lines.changed.count();
        report.lines += count as u64;
        changed(count as u8);
        if count > 0 && scheme.write(lines)? == Pressure::Commit {
            report.fallback = true;
        }
    }
    Ok(())
}

fn micros(since: Instant) -> u64 {
    since.elapsed().as_micros() as u64
}
