//! A program and its checkpoints, from start or resume to its end.
//!
//! One thread traces and keeps time; the engine's writes in the background; relays carry the
//! streams. An alarm interrupts the tracer's wait when an epoch is due. `waiting.rs` has a checkpoint wait for what
//! cannot be captured of the program's descendants.

mod waiting;

use crate::clocks::Clocks;
use crate::context::Ending;
use crate::error::{Error, Result};
use crate::files::EpochFiles;
use crate::launch;
use crate::older::{self, Keep};
use crate::outbox::Outbox;
use crate::pace::{Controller, Cost, Every};
use crate::program::Program;
use crate::rested::Rested;
use crate::state::{Store, read_kind};
use crate::statistics::Ledger;
pub use crate::statistics::{Parts, Percentiles, Summary};
use crate::stdio::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};
use twinpage_core::engine::{Engine, EngineError, Report, Witness};
use twinpage_core::{Capture, Epoch};
use twinpage_os::Durability;
use twinpage_os::messages;
use twinpage_os::ticker::{ALARM, Ticker};
use twinpage_os::user_signals;
use waiting::{Company, Waiting};

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

/// What to do when this process is asked to end: SIGTERM, SIGHUP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnTerm {
    /// Make a checkpoint and end; a resume goes on.
    #[default]
    Suspend,
    /// Pass the signal on to the program.
    Forward,
}

/// How a session runs.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// When checkpoints come.
    pub every: Every,
    /// What to do when the medium is full.
    pub on_full: OnFull,
    /// What to do when something cannot be captured.
    pub on_uncapturable: OnUncapturable,
    /// What to do when asked to end.
    pub on_term: OnTerm,
    /// What to do when interrupted, by `^C` or SIGINT.
    pub on_interrupt: OnTerm,
    /// Which older checkpoints are kept, if any.
    pub keep: Option<Keep>,
}

impl Pace {
    /// The same for a state that survives no power cut: what is written there wears nothing out.
    pub(crate) fn on(mut self, durability: Durability) -> Pace {
        if let (Every::Auto(limits), false) = (&mut self.every, durability.outlives_machine()) {
            limits.bytes_per_s = f64::INFINITY;
        }
        self
    }

    /// From now on signals do what was chosen. Called once, in the process that traces.
    pub(crate) fn prepare_signals(&self) {
        let signals = [
            (libc::SIGTERM, self.on_term),
            (libc::SIGHUP, self.on_term),
            (libc::SIGINT, self.on_interrupt),
        ];
        let suspending = signals.iter().filter(|(_, choice)| *choice == OnTerm::Suspend);
        user_signals::suspend_on(&suspending.map(|(signal, _)| *signal).collect::<Vec<_>>());
    }
}

/// Makes durable what must not be behind a commit, and lets out what waited for one.
pub struct OutputCommit {
    streams: Arc<Stdio>,
    replies: Option<Arc<Outbox>>,
    /// What kept output from going out, if anything did.
    trouble: Option<String>,
}

impl OutputCommit {
    /// For a program with these streams, and what it sends if that is held.
    #[must_use]
    pub fn new(streams: Arc<Stdio>, replies: Option<Arc<Outbox>>) -> OutputCommit {
        OutputCommit {
            streams,
            replies,
            trouble: None,
        }
    }
}

impl Witness for OutputCommit {
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
        if let Some(replies) = &self.replies {
            replies.durable(epoch);
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
    witness: OutputCommit,
    pace: Pace,
    mut ledger: Ledger,
) -> Result<Summary> {
    let (streams, replies) = (witness.streams.clone(), witness.replies.clone());
    let mut engine = Engine::start(store, witness)?;
    let mut drive = Drive::new(&mut program, &mut engine, pace, &mut ledger)?;
    let ended = drive.run();
    let ended = ended.or_else(|error| program.unless_killed(error).map(|()| None));
    if !matches!(ended, Ok(None)) || program.was_killed() {
        program.kill_all();
    }
    if program.was_killed() {
        program.notes.say(&Error::Killed.to_string());
    }
    let finished = engine.finish();
    if ended.is_err() {
        Stdio::restore_terminal();
        messages::hold_back(false);
    }
    let suspended = ended?;
    ledger.add(&mut program.stops, finished.last?.as_ref());
    if let Some(replies) = replies {
        let patience = suspended.map_or(PEER_PATIENCE, |_| PATIENCE);
        let left = replies.finish(patience);
        if left > 0 {
            messages::tell(&format!(
                "{left} bytes were not sent: their receivers took nothing for {}s",
                patience.as_secs()
            ));
        }
    }
    let finishing = streams.finish_within(suspended.map(|_| PATIENCE));
    messages::hold_back(false);
    if program.ending().is_some_and(|ending| ending != Ending::Exit(0)) {
        program.notes.failed();
    }
    if suspended.is_none() {
        finishing?;
    }
    if let Some(trouble) = finished.witness.trouble {
        return Err(Error::State(format!("output could not be passed on: {trouble}")));
    }
    drop(finished.scheme);
    if program.is_over() && !program.was_killed() {
        Rested::of(program.files.state()).remove();
    }
    Ok(Summary {
        suspended,
        ..ledger.summary(program.ending())
    })
}

/// Signals that end what lives on after the first process, where they do not suspend it.
pub(crate) const ENDING: [i32; 4] = [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT];

/// How long a suspension waits for readers of what was printed. The rest is printed at the resume.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long a program that ended waits for peers that take nothing of what it sent.
const PEER_PATIENCE: Duration = Duration::from_secs(10);

type ProgramEngine = Engine<Store, OutputCommit>;

/// A program that does nothing still has its clocks run on: a wait that is begun again after a power cut lasts
/// longer by as much at most.
const LONGEST_REST: Duration = Duration::from_secs(600);
/// Where the limits choose the pace: how often it is looked whether something waits for a checkpoint, and the
/// same while the program does nothing.
const LOOK: Duration = Duration::from_millis(20);
const LOOK_AT_REST: Duration = Duration::from_millis(40);
/// While the outside waits for a checkpoint it is looked so often whether the program has answered all there is. A
/// checkpoint for each reply would leave a server of many clients no time to answer the others.
const AWAITED_LOOK: Duration = Duration::from_micros(250);
/// The alarm rings at least this often: a signal that comes just before a wait is noticed by then.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// How long a checkpoint that is to be kept, and a program that its user stopped, wait for readers of what was printed.
/// Of a kept one, the rest is printed again by a resume that goes back to it.
const OUTPUT_PATIENCE: Duration = Duration::from_millis(200);
/// The most calls that are answered between two steps of pre-copy.
const ANSWERS: u32 = 16;
/// What a page costs that is written first after a checkpoint.
const FAULT: Duration = Duration::from_nanos(900);

/// One session's loop: answers the program, and looks from time to time whether a checkpoint is due.
struct Drive<'a> {
    program: &'a mut Program,
    engine: &'a mut ProgramEngine,
    pace: Pace,
    ledger: &'a mut Ledger,
    controller: Controller,
    alarm: Ticker,
    started: Instant,
    /// When the last checkpoint began.
    last: Instant,
    /// When the last one began that is durable.
    durable: Instant,
    /// What it cost the program, until it is known what it wrote.
    in_flight: Duration,
    look_at: Instant,
    /// What the outside waited for at the last look.
    awaited: usize,
    /// When an older checkpoint was kept last.
    kept: Instant,
    /// Checkpoints wait for something of the program's descendants.
    waiting: Option<Waiting>,
    /// When a suspension was asked for.
    asked: Option<Instant>,
    /// Its user was told that a checkpoint waits.
    told_that_it_waits: bool,
    complained_of_company: bool,
    told_that_it_runs_on: bool,
    /// When the program ended, if descendants live on.
    ended: Option<Instant>,
    rested: Rested,
}

impl<'a> Drive<'a> {
    fn new(
        program: &'a mut Program,
        engine: &'a mut ProgramEngine,
        pace: Pace,
        ledger: &'a mut Ledger,
    ) -> Result<Drive<'a>> {
        let alarm =
            Ticker::for_this_thread(ALARM).map_err(|source| Error::target("cannot set an alarm", source))?;
        let now = Instant::now();
        let mut controller = Controller::new(pace.every, Duration::ZERO);
        controller.begins(Duration::ZERO);
        let rested = Rested::of(program.files.state());
        program.goes_on_when_full = pace.on_full == OnFull::Continue;
        Ok(Drive {
            rested,
            program,
            engine,
            pace,
            ledger,
            controller,
            alarm,
            started: now,
            last: now,
            durable: now,
            in_flight: Duration::ZERO,
            look_at: now,
            awaited: 0,
            kept: now,
            waiting: None,
            asked: None,
            told_that_it_waits: false,
            complained_of_company: false,
            told_that_it_runs_on: false,
            ended: None,
        })
    }

    /// Until the program ended, or was suspended by the signal that is returned.
    fn run(&mut self) -> Result<Option<i32>> {
        let first = self.controller.due();
        self.look_in(first);
        self.program.begin()?;
        while !self.program.is_over() {
            self.answer(true)?;
            self.program.let_standing_go()?;
            self.hurry();
            self.follow_job()?;
            let asked = user_signals::suspension();
            match self.company(asked)? {
                Company::None => {}
                Company::Waits => continue,
                Company::GivesUp => {
                    self.settle()?;
                    return Ok(asked);
                }
            }
            let due = Instant::now() >= self.look_at || self.program.wants_checkpoint() || asked.is_some();
            // While the last epoch is still being written, the program goes on: the alarm rings again.
            if (due || self.waiting.is_some()) && self.engine.is_idle() {
                self.waits_no_more();
                if asked.is_none() {
                    self.look()?;
                } else if self.suspend()? {
                    return Ok(asked);
                }
            }
        }
        self.alarm.set(Duration::ZERO, Duration::ZERO);
        self.checkpoint()?;
        Ok(None)
    }

    /// Handles the next stop of the program; `waits` for one, or for the alarm. True when there was one.
    fn answer(&mut self, waits: bool) -> Result<bool> {
        match self.program.next_stop(waits) {
            Ok(Some((tid, status))) => {
                let began = Instant::now();
                self.program.handle(tid, status)?;
                self.ledger.watched(began.elapsed());
                return Ok(true);
            }
            Ok(None) if waits => {
                self.program.look_at_processor();
                self.program.look_for_lost();
            }
            Ok(None) => {}
            Err(error) if self.program.are_last_lost(&error) => {}
            Err(source) => return Err(Error::target("cannot wait for the program", source)),
        }
        Ok(false)
    }

    /// Pre-copy, a step at a time, so that the program's calls are answered meanwhile.
    fn precopy(&mut self) -> Result<()> {
        let mut is_copying = self.program.begin_precopy();
        while is_copying {
            is_copying = self.program.precopy();
            for _ in 0..ANSWERS {
                if self.program.is_over() || !self.answer(false)? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// The alarm rings then, and goes on ringing.
    fn look_in(&mut self, time: Duration) {
        self.look_at = Instant::now() + time;
        self.alarm.set(
            time.min(LONGEST_WAIT),
            Duration::from_millis(1).max(time.min(LONGEST_WAIT) / 8),
        );
    }

    /// The next look is near while the outside waits for a checkpoint, or a thread for the one under way.
    fn hurry(&mut self) {
        let awaited = self.program.awaited();
        if awaited > 0 && self.look_at > Instant::now() + AWAITED_LOOK {
            self.awaited = awaited;
            self.look_in(AWAITED_LOOK);
        }
        self.program.await_durable();
    }

    /// Whether the outside waits for a checkpoint, for nothing more than at the last look, and the program does nothing:
    /// a checkpoint takes it no time.
    fn has_answered(&mut self, awaited: usize, now: Duration) -> bool {
        let before = std::mem::replace(&mut self.awaited, awaited);
        awaited > 0 && awaited == before && self.controller.is_free(now) && self.program.sleeps_all()
    }

    /// Makes a checkpoint if one is due.
    fn look(&mut self) -> Result<()> {
        self.settle()?;
        let is_auto = matches!(self.pace.every, Every::Auto(_));
        let wanted = self.program.wants_checkpoint();
        let rests = self.rests()?;
        if let Some(keep) = self.pace.keep
            && self.kept.elapsed() >= keep.every
            && (!rests || self.last > self.kept)
        {
            return self.keep(keep);
        }
        if rests {
            self.rested
                .write(self.program.cut_at(), Clocks::now().monotonic_ns);
            let time = if is_auto {
                LOOK_AT_REST
            } else {
                self.controller.interval().0
            };
            self.look_in(time);
            return Ok(());
        }
        let awaited = self.program.awaited();
        let early = is_auto && (awaited > 0 || self.program.waits()?);
        let now = self.started.elapsed();
        let answered = self.has_answered(awaited, now);
        if wanted || answered || self.controller.is_due(now, early) {
            self.checkpoint_with(!answered)?;
        }
        let left = self.controller.due().saturating_sub(self.started.elapsed());
        self.look_in(match self.pace.every {
            _ if self.program.is_awaited() => left.min(AWAITED_LOOK),
            Every::Fixed(every) => left.max(every / 8),
            Every::Auto(_) => left.clamp(Duration::from_millis(1), LOOK),
        });
        Ok(())
    }

    /// Whether the last checkpoint has all there is, and is durable: another would hold the same.
    fn rests(&mut self) -> Result<bool> {
        let long = self.last.elapsed() > LONGEST_REST;
        let wanted = self.program.wants_checkpoint() || self.program.is_awaited();
        Ok(!long && !wanted && self.program.is_at_rest()?)
    }

    /// Takes note of what became of the last checkpoint. Why it was lost, if it was.
    fn settle(&mut self) -> Result<Option<String>> {
        match self.engine.wait(self.program) {
            Ok(report) => self.learn(report.as_ref()),
            Err(error) => return failed(self.program, self.pace, error).map(Some),
        }
        Ok(None)
    }

    fn learn(&mut self, report: Option<&Report>) {
        if report.is_some() {
            self.durable = self.last;
        }
        if let Some(stop) = self.program.stops.last() {
            let ours_us = stop.early_us + stop.total_us;
            self.in_flight = Duration::from_secs_f64(ours_us / 1e6) + FAULT * stop.pages as u32;
        }
        if let Some(report) = report {
            let took_us = report.capture_us + report.write_us + report.witness_us + report.commit_us;
            let cost = Cost {
                program: self.in_flight,
                bytes: report.traffic.total_bytes(),
                took: Duration::from_micros(took_us),
            };
            self.controller.learn(self.started.elapsed(), cost);
            self.ledger.chosen(self.controller.interval(), cost.program);
        }
        if self.ledger.has_news(&self.program.stops, report) {
            self.ledger.add(&mut self.program.stops, report);
        }
        if let Some(complaint) = self.controller.complaint(&self.ledger.spent()) {
            self.program.notes.say(&complaint);
        }
        self.look_for_state();
    }

    /// What is written to files that were removed is lost with the program, and no write fails.
    fn look_for_state(&mut self) {
        let state = self.program.files.state();
        if !state.exists() {
            self.program.notes.say(&format!(
                "there is no state at {} any more: where it was removed, a kill loses the program",
                state.display()
            ));
        }
    }

    /// Begins a checkpoint, unless it is put off. Why none could be begun, if none could.
    fn checkpoint(&mut self) -> Result<Option<String>> {
        self.checkpoint_with(true)
    }

    /// The same, with pre-copy or without: that of a program which does nothing would only take longer.
    fn checkpoint_with(&mut self, precopy: bool) -> Result<Option<String>> {
        loop {
            let since = self.started.elapsed();
            if precopy {
                self.precopy()?;
            }
            let began = Instant::now();
            self.program.begin_checkpoint();
            let made = self.engine.checkpoint(self.program);
            if let Err(EngineError::Source(Error::NotYet(why))) = made {
                self.put_off(why);
                return Ok(None);
            }
            self.controller.begins(since);
            match made {
                Ok(started) => {
                    self.end_waiting();
                    if self.program.streams.hold_everything(false) {
                        messages::tell("checkpoints are made again");
                    }
                    self.learn(started.last.as_ref());
                    self.last = began;
                    return Ok(None);
                }
                Err(EngineError::Source(Error::Unsupported(why))) => {
                    return uncapturable(self.program, self.pace.on_uncapturable, why).map(Some);
                }
                Err(error) => {
                    let why = failed(self.program, self.pace, error)?;
                    if !self.program.is_over() {
                        return Ok(Some(why));
                    }
                }
            }
            std::thread::sleep(LOOK); // its last epoch must be kept: wait for room
        }
    }

    /// A user's ^Z stops the program, and then twinpage as the user's shell sees it; both go on together. What the
    /// program did until then is durable and what it printed outside, for it may be killed meanwhile.
    fn follow_job(&mut self) -> Result<()> {
        if self.program.job_stops() {
            self.settle()?;
            if self.program.is_alone() || self.program.obstacle().is_none() {
                self.checkpoint()?;
            }
            self.settle()?;
            self.program.streams.let_out_within(OUTPUT_PATIENCE);
            if self.program.job_goes_on() {
                return Ok(()); // it was continued meanwhile
            }
            self.program.streams.give_terminal_back();
            launch::tell_job_stops();
        }
        if self.program.job_goes_on() {
            self.program.streams.begin();
        }
        Ok(())
    }

    /// Makes a checkpoint and keeps a copy of it. The program stands still until it is copied.
    fn keep(&mut self, keep: Keep) -> Result<()> {
        self.program.hold();
        let kept = self.keep_held(keep);
        let released = self.program.release();
        self.kept = Instant::now();
        self.look_in(LOOK.min(self.controller.interval().0));
        kept.and(released)
    }

    fn keep_held(&mut self, keep: Keep) -> Result<()> {
        self.checkpoint()?;
        self.settle()?;
        if !self.program.is_held_at_checkpoint() {
            return Ok(());
        }
        let began = Instant::now();
        self.program.streams.let_out_within(OUTPUT_PATIENCE);
        let state = self.program.files.state().to_owned();
        let kept = read_kind(&state).and_then(|durability| older::keep(&state, durability, false, &[]));
        let dropped = kept.and_then(|_| older::drop_beyond(&state, keep.most));
        self.ledger.watched(began.elapsed());
        if let Err(error) = dropped {
            self.program
                .notes
                .say(&format!("an older checkpoint could not be kept: {error}"));
        }
        Ok(())
    }

    /// Makes what the program did so far durable. It is killed then. False when that must wait.
    fn suspend(&mut self) -> Result<bool> {
        self.look_in(LONGEST_WAIT); // it rings on: nothing else ends the wait for a first thread that is killed
        self.settle()?;
        // Also of a program at rest: its clock may be far from its last checkpoint's.
        let hindrance = match self.checkpoint()? {
            None if self.waiting.is_none() => self.settle()?,
            hindrance => hindrance,
        };
        match hindrance {
            None if self.waiting.is_none() => return Ok(true),
            Some(why) if self.asked_for_long() => {
                self.say_what_is_lost(&why);
                return Ok(true);
            }
            _ => self.look_in(LOOK),
        }
        Ok(false)
    }
}

/// Something cannot be captured: the program ends, or goes on without checkpoints until it can be.
fn uncapturable(program: &mut Program, choice: OnUncapturable, why: String) -> Result<String> {
    if choice == OnUncapturable::Stop {
        return Err(Error::Uncapturable(why));
    }
    program.notes.say(&format!(
        "{why}; the program goes on without new checkpoints, and what it prints is held, until that changes or it ends"
    ));
    program.streams.hold_everything(true);
    Ok(why)
}

/// A checkpoint failed. Its cause, when the program is to go on until there is room for the next.
fn failed(program: &mut Program, pace: Pace, error: EngineError<Error>) -> Result<String> {
    let cause = match error {
        EngineError::Lost { cause, .. } => cause.to_string(),
        EngineError::Source(error) if error.is_full() => error.to_string(),
        EngineError::Source(error) => return Err(error),
        EngineError::Store(error) => return Err(error.into()),
        error => return Err(Error::Internal(error.to_string())),
    };
    if pace.on_full == OnFull::Stop {
        return Err(Error::no_room(cause));
    }
    program.notes.say(&format!(
        "{cause}; the program goes on without new checkpoints until there is room"
    ));
    Ok(cause)
}
