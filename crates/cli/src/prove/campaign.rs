//! Runs with kills: a program from its first instruction to its end, through as many lives as it takes.
//!
//! * The first run has no kills: it says what twinpage itself changes, and how long a run takes.
//! * A kill hits `twinpage` with SIGKILL, and with it the kernel ends the program at once.
//! * How long a life may last is drawn evenly from nothing to [`Campaign::reach`], so that some kills come while
//!   twinpage starts or restores. The reach grows when lives are too short to get on, and shrinks to
//!   what a whole run takes.
//! * A kill before the first checkpoint leaves nothing to resume: the program is run again, as a user
//!   would. One after the program's end leaves only output to pass on. Such kills are counted apart, and
//!   are not among those that were asked for.

use super::compare::Difference;
use super::progress::Progress;
use super::report::Tally;
use super::scratch::{Killed, Scratch, Settings, describe, ending};
use super::waiting;
use crate::args::Prove;
use crate::show;
use crate::values::Every;
use std::fs;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant, SystemTime};
use twinpage_process::context::Ending;
use twinpage_process::inspect::{self, Inspection};

/// The shortest reach: a few epochs, and what starting takes.
const START: Duration = Duration::from_millis(100);
/// The longest to begin with, when the program itself is short.
const SHORT: Duration = Duration::from_millis(400);
/// How long what was killed may take to be gone.
const DYING: Duration = Duration::from_secs(60);
/// A program that ends too soon to be killed is given up after that many tries for each kill.
const TRIES_PER_KILL: u32 = 20;

/// Kills still to be made, and what they came to so far.
pub(super) struct Campaign<'a> {
    scratch: &'a Scratch,
    progress: &'a Progress,
    settings: Settings,
    kills: u32,
    chance: fastrand::Rng,
    /// The longest a life may last before it is killed.
    reach: Duration,
    /// How long the run without kills took.
    whole_took: Duration,
    /// The longest a run may take, with all its lives.
    timeout: Option<Duration>,
    until: Option<Instant>,
    pub(super) tally: Tally,
}

/// How one life ended.
enum End {
    Finished(Ending),
    /// There is a checkpoint to go on from.
    Resumable,
    /// There is none.
    NothingYet,
    /// Twinpage failed, and says why.
    Failed(String),
    /// The run took longer than this, which is the most it may.
    TooLong(Duration),
}

/// What became of a process.
struct Death {
    status: ExitStatus,
    /// When the kill was sent.
    killed_at: Option<SystemTime>,
    /// It was killed because the run took too long.
    too_long: bool,
}

impl<'a> Campaign<'a> {
    pub(super) fn new(
        arguments: &Prove,
        seed: u64,
        scratch: &'a Scratch,
        progress: &'a Progress,
    ) -> Campaign<'a> {
        Campaign {
            scratch,
            progress,
            settings: Settings {
                every: match arguments.every {
                    Every::Auto => "auto".into(),
                    Every::Fixed(every) => format!("{}us", every.as_micros()),
                },
                durability: arguments.durability.name(),
            },
            kills: 0,
            chance: fastrand::Rng::with_seed(seed),
            reach: Duration::ZERO,
            whole_took: Duration::ZERO,
            timeout: arguments.timeout,
            until: None,
            tally: Tally::default(),
        }
    }

    /// One run under twinpage without a kill. The runs after it have as many as `arguments` ask for.
    pub(super) fn run_whole(&mut self, kills: u32) -> Result<Result<Ending, Difference>, String> {
        let began = Instant::now();
        let ended = self.run()?;
        self.whole_took = began.elapsed();
        let share = self.whole_took * 2 / (kills + 1);
        self.reach = share.max((self.whole_took + START).min(SHORT));
        self.kills = kills;
        Ok(ended)
    }

    /// How long the run without kills took.
    pub(super) fn whole_took(&self) -> Duration {
        self.whole_took
    }

    /// One run of the program to its end. `Err`: what was lost on the way.
    pub(super) fn run(&mut self) -> Result<Result<Ending, Difference>, String> {
        self.tally.runs += 1;
        self.until = self.timeout.map(|timeout| Instant::now() + timeout);
        let mut killed = self.scratch.begin()?;
        let mut epoch = 0;
        let mut resumed = false;
        loop {
            self.give_up_in_time()?;
            let end = self.live(&killed, resumed, &mut epoch)?;
            self.note_refusals(&killed);
            match end {
                End::Finished(ended) => {
                    self.collect(&killed);
                    return Ok(Ok(ended));
                }
                End::Resumable => resumed = true,
                End::NothingYet => {
                    killed = self.scratch.begin()?;
                    resumed = false;
                }
                End::Failed(why) if resumed => {
                    self.collect(&killed);
                    return Ok(Err(Difference::new("resume", "goes on", why)));
                }
                End::TooLong(longest) => {
                    self.collect(&killed);
                    let still = format!("still runs after {}", show::time(longest));
                    return Ok(Err(Difference::new("time", "ends", still)));
                }
                End::Failed(why) => return Err(why),
            }
        }
    }

    /// A program that ends at its first checkpoint cannot be killed after it.
    fn give_up_in_time(&self) -> Result<(), String> {
        let Tally {
            kills,
            kills_before_checkpoint: early,
            kills_after_end: late,
            runs,
            ..
        } = self.tally;
        if runs + early + late <= (kills + 1).saturating_mul(TRIES_PER_KILL) {
            return Ok(());
        }
        Err(format!(
            "the program ends too soon: in {runs} runs {early} kills came before its first checkpoint, {kills} after it, {late} after its end; prove one that takes longer, or checkpoint it more often (--every)"
        ))
    }

    /// One life: until the program ends, or is killed.
    fn live(&mut self, killed: &Killed, resumed: bool, epoch: &mut u64) -> Result<End, String> {
        let wanted = self.tally.kills < self.kills;
        let patience = wanted.then(|| self.reach.mul_f64(self.chance.f64()));
        let life = if resumed { "resumed" } else { "running" };
        self.progress.now(format!("run {}, {life}", self.tally.runs));
        self.tally.resumes += u32::from(resumed);
        let command = self.scratch.life(killed, resumed, &self.settings)?;
        let (began, began_at) = (Instant::now(), SystemTime::now());
        let death = watch(command, patience, self.until)?;
        if let (true, Some(longest)) = (death.too_long, self.timeout) {
            return Ok(End::TooLong(longest));
        }
        let Some(killed_at) = death.killed_at else {
            if !resumed {
                self.reach = self.reach.min(began.elapsed());
            }
            return Ok(self.finished(killed, death.status));
        };
        self.bury(killed, killed_at, began_at, epoch)
    }

    /// The program ended by itself, or twinpage gave up.
    fn finished(&mut self, killed: &Killed, status: ExitStatus) -> End {
        let found = inspect::inspect(&killed.state).ok();
        match found.and_then(|found| found.context?.ending()) {
            Some(ended) => End::Finished(ended),
            None => {
                let messages = fs::read_to_string(&killed.messages).unwrap_or_default();
                let last = messages
                    .lines()
                    .last()
                    .map(|line| line.trim_start_matches("twinpage: "));
                let silent = || {
                    format!(
                        "twinpage ended with {} and said nothing",
                        describe(ending(status))
                    )
                };
                End::Failed(last.map_or_else(silent, str::to_owned))
            }
        }
    }

    /// Looks at what a kill left.
    fn bury(
        &mut self,
        killed: &Killed,
        killed_at: SystemTime,
        began_at: SystemTime,
        epoch: &mut u64,
    ) -> Result<End, String> {
        let found = match wait_until_free(killed) {
            Ok(found) => found,
            // Killed before the state directory was complete.
            Err(twinpage_process::Error::State(_)) => None,
            Err(error) => return Ok(End::Failed(error.to_string())),
        };
        let reached = found.as_ref().map_or(0, |found| found.epoch);
        if reached == *epoch {
            self.reach = self.reach.mul_f64(1.5);
        }
        *epoch = reached;
        let context = found.and_then(|found| found.context);
        let since = context.as_ref().map_or(began_at, |context| {
            let checkpoint_at = SystemTime::UNIX_EPOCH + Duration::from_nanos(context.clocks.realtime_ns);
            checkpoint_at.max(began_at) // what earlier kills lost is not counted again
        });
        let lost = killed_at.duration_since(since).unwrap_or_default();
        self.tally.lost_ms.add(lost.as_secs_f64() * 1e3);
        match context {
            None => {
                self.tally.kills_before_checkpoint += 1;
                return Ok(End::NothingYet);
            }
            Some(context) if context.ending().is_some() => self.tally.kills_after_end += 1,
            Some(_) => {
                self.tally.kills += 1;
                self.progress.killed();
            }
        }
        Ok(End::Resumable)
    }

    /// Calls that were refused, each once.
    fn note_refusals(&mut self, killed: &Killed) {
        let messages = fs::read_to_string(&killed.messages).unwrap_or_default();
        let tally = &mut self.tally;
        for line in messages.lines() {
            let (list, refusal) = if let Some(refusal) = line.strip_prefix("twinpage: refused ") {
                (&mut tally.refused, refusal)
            } else if let Some(refusal) = line.strip_prefix("twinpage: went without ") {
                (&mut tally.went_without, refusal)
            } else {
                continue;
            };
            if !list.iter().any(|known| known == refusal) {
                list.push(refusal.to_owned());
            }
        }
    }

    /// What the checkpoints of a run cost.
    fn collect(&mut self, killed: &Killed) {
        if let Some(statistics) = twinpage_process::statistics::read(&killed.state) {
            self.tally.statistics.merge(&statistics);
        }
    }
}

/// Runs a command and kills it after `patience`, or at `until` at the latest, or lets it end.
fn watch(mut command: Command, patience: Option<Duration>, until: Option<Instant>) -> Result<Death, String> {
    let told = |error: std::io::Error| format!("cannot run twinpage: {error}");
    let mut child = command.spawn().map_err(told)?;
    let kill_at = patience.map(|patience| Instant::now() + patience);
    let first = kill_at.into_iter().chain(until).min();
    if let Some(status) = waiting::until(&mut child, first).map_err(told)? {
        return Ok(Death {
            status,
            killed_at: None,
            too_long: false,
        });
    }
    let now = SystemTime::now();
    child.kill().map_err(told)?;
    let status = child.wait().map_err(told)?;
    let by_us = ending(status) == Ending::Signal(9); // it may have ended just before
    Ok(Death {
        status,
        killed_at: by_us.then_some(now),
        too_long: by_us && first == until,
    })
}

/// The state, once no process holds it: a killed process needs a moment to be gone. `None` when
/// there is none.
fn wait_until_free(killed: &Killed) -> twinpage_process::Result<Option<Inspection>> {
    let until = Instant::now() + DYING;
    loop {
        let found = inspect::inspect(&killed.state)?;
        match &found.in_use {
            Some(holder) if Instant::now() > until => {
                return Err(twinpage_process::Error::Internal(format!(
                    "{holder} outlives the twinpage that was killed"
                )));
            }
            Some(_) => std::thread::sleep(Duration::from_millis(1)),
            None => return Ok(Some(found)),
        }
    }
}
