//! A program and its checkpoints, from start or resume to its end.
//!
//! One thread traces and keeps time; the engine's writes in the background; relays carry the
//! streams. An alarm interrupts the tracer's wait when an epoch is due.

use crate::error::{Error, Result};
use crate::files::EpochFiles;
use crate::notes;
use crate::program::Program;
use crate::state::Store;
use crate::statistics::Ledger;
pub use crate::statistics::{Parts, Percentiles, Summary};
use crate::stdio::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};
use twinpage_core::engine::{Engine, EngineError, Witness};
use twinpage_core::{Capture, Epoch};
use twinpage_os::spawn::{ALARM, Ticker};
use twinpage_os::trace;

/// What to do when an epoch finds the medium full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnFull {
    /// End the program; the last checkpoint is whole and can be resumed.
    #[default]
    Stop,
    /// Let it go on and try again at the next epoch.
    Continue,
}

/// What to do when the program has something that cannot be captured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnUncapturable {
    /// End the program; the last checkpoint is whole and can be resumed.
    #[default]
    Stop,
    /// Say so, let it go on without new checkpoints, and try again at the next epoch.
    Warn,
}

/// How a session runs.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// From the start of one epoch to the next.
    pub every: Duration,
    /// What to do when the medium is full.
    pub on_full: OnFull,
    /// What to do when something cannot be captured.
    pub on_uncapturable: OnUncapturable,
}

/// Makes durable what must not be behind a commit, and lets out what waited for one.
pub struct Outside {
    streams: Arc<Stdio>,
    /// What kept output from going out, if anything did.
    trouble: Option<String>,
}

impl Outside {
    /// For a program with these streams.
    #[must_use]
    pub fn new(streams: Arc<Stdio>) -> Outside {
        Outside {
            streams,
            trouble: None,
        }
    }
}

impl Witness for Outside {
    fn before_commit(&mut self, capture: &mut Capture) -> twinpage_core::Result<()> {
        let attached = capture.attachment.as_mut();
        if let Some(files) = attached.and_then(|files| files.downcast_mut::<EpochFiles>()) {
            files
                .sync_before_commit()
                .map_err(|error| outside_failed(&error))?;
            *files = EpochFiles::default();
        }
        self.streams
            .before_commit(capture.epoch)
            .map_err(|error| outside_failed(&error))
    }

    fn durable(&mut self, epoch: Epoch) {
        if let Err(error) = self.streams.durable(epoch) {
            self.trouble.get_or_insert_with(|| error.to_string());
        }
    }
}

/// What could not be made durable poisons the epoch, and the engine with it.
fn outside_failed(error: &(dyn std::error::Error + 'static)) -> twinpage_core::Error {
    twinpage_core::Error::poisoned(twinpage_core::Error::Invalid(error.to_string()))
}

/// Runs the program, stopped now, until it ends.
///
/// # Errors
/// When a checkpoint cannot be made; the program is killed then, and the last one is whole.
pub fn run(
    mut program: Program,
    store: Store,
    witness: Outside,
    pace: Pace,
    mut ledger: Ledger,
) -> Result<Summary> {
    let streams = witness.streams.clone();
    let mut engine = Engine::start(store, witness)?;
    let ended = drive(&mut program, &mut engine, pace, &mut ledger);
    let ended = ended.or_else(|error| program.unless_killed(error));
    if ended.is_err() {
        kill(&program);
    }
    if program.was_killed() {
        program.notes.say(&Error::Killed.to_string());
    }
    let finished = engine.finish();
    if ended.is_err() {
        Stdio::restore_terminal();
        notes::hold_back(false);
    }
    ended?;
    ledger.add(&mut program.stops, finished.last?.as_ref());
    let finishing = streams.finish();
    notes::hold_back(false);
    finishing?;
    if let Some(trouble) = finished.witness.trouble {
        return Err(Error::State(format!("output could not be passed on: {trouble}")));
    }
    drop(finished.scheme);
    Ok(ledger.session().summary(program.ending()))
}

/// A program that does nothing still has its clocks run on: a wait that is begun again after a resume lasts
/// longer by as much at most.
const LONGEST_REST: Duration = Duration::from_secs(600);

type ProgramEngine = Engine<Store, Outside>;

fn drive(program: &mut Program, engine: &mut ProgramEngine, pace: Pace, ledger: &mut Ledger) -> Result<()> {
    let alarm =
        Ticker::for_this_thread(ALARM).map_err(|source| Error::target("cannot set an alarm", source))?;
    let wait = |next: Instant| {
        alarm.set(
            next.saturating_duration_since(Instant::now()),
            Duration::from_millis(1),
        )
    };
    let mut last = Instant::now();
    let mut next = last + pace.every;
    wait(next);
    program.go_on_all()?;
    while program.ending().is_none() {
        match trace::wait(-1, true) {
            Ok(Some((tid, status))) => program.handle(tid, status)?,
            Ok(None) => {}
            Err(source) => return Err(Error::target("cannot wait for the program", source)),
        }
        // While the last epoch is still being written, the program goes on: the alarm rings again.
        let due = Instant::now() >= next || program.wants_checkpoint();
        if due && program.ending().is_none() && engine.is_idle() {
            let began = Instant::now();
            if began < last + LONGEST_REST && rests(program, engine, pace, ledger)? {
                next = began + pace.every;
                wait(next);
                continue;
            }
            checkpoint(program, engine, pace, ledger)?;
            last = began;
            next = (began + pace.every).max(Instant::now() + pace.every / 8);
            wait(next);
        }
    }
    alarm.set(Duration::ZERO, Duration::ZERO);
    checkpoint(program, engine, pace, ledger)
}

/// Whether the last checkpoint has all there is, and is durable: another would hold the same.
fn rests(program: &mut Program, engine: &mut ProgramEngine, pace: Pace, ledger: &mut Ledger) -> Result<bool> {
    if program.wants_checkpoint() || !program.is_at_rest()? {
        return Ok(false);
    }
    match engine.wait(program) {
        Ok(Some(report)) => ledger.add(&mut program.stops, Some(&report)),
        Ok(None) => {}
        Err(error) => failed(program, pace, error)?, // what was lost is owed: no rest
    }
    program.is_at_rest()
}

/// Something cannot be captured: the program ends, or goes on without checkpoints until it can be.
fn uncapturable(program: &mut Program, choice: OnUncapturable, why: String) -> Result<()> {
    if choice == OnUncapturable::Stop {
        return Err(Error::Uncapturable(why));
    }
    program.notes.say(&format!(
        "{why}; the program goes on without new checkpoints, and what it prints is held, until that changes or it ends"
    ));
    program.streams.hold_everything(true);
    Ok(())
}

fn checkpoint(
    program: &mut Program,
    engine: &mut ProgramEngine,
    pace: Pace,
    ledger: &mut Ledger,
) -> Result<()> {
    loop {
        match engine.checkpoint(program) {
            Ok(started) => {
                if program.streams.hold_everything(false) {
                    notes::tell("checkpoints are made again");
                }
                ledger.add(&mut program.stops, started.last.as_ref());
                return Ok(());
            }
            Err(EngineError::Source(Error::Unsupported(why))) => {
                return uncapturable(program, pace.on_uncapturable, why);
            }
            Err(error) => failed(program, pace, error)?,
        }
        if program.ending().is_none() {
            return Ok(());
        }
        std::thread::sleep(pace.every); // its last epoch must be kept: wait for room
    }
}

/// A checkpoint failed. Ok when the program is to go on until there is room for the next.
fn failed(program: &mut Program, pace: Pace, error: EngineError<Error>) -> Result<()> {
    match error {
        EngineError::Source(error) => Err(error),
        EngineError::Lost { cause, .. } if pace.on_full == OnFull::Continue => {
            program.notes.say(&format!(
                "{cause}; the program goes on without new checkpoints until there is room"
            ));
            Ok(())
        }
        EngineError::Lost { cause, .. } => Err(Error::State(format!(
            "{cause}; the last checkpoint is whole: make room, then twinpage resume"
        ))),
        EngineError::Store(error) => Err(error.into()),
        error => Err(Error::Internal(error.to_string())),
    }
}

fn kill(program: &Program) {
    let _ = rustix::process::Pid::from_raw(program.pid())
        .map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL));
}
