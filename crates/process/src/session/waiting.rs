//! Checkpoints wait while a descendant of the program does, or is, something that cannot be captured.
//!
//! * One that is due is tried, more and more rarely, until it succeeds. A program that is alone is not waited for, but
//!   where it has itself what cannot be captured.
//! * A program that just became alone makes no process before it.
//! * It is told once when a kill may lose more than the limit because of that, with the process that it waits for.
//! * What is printed meanwhile is held without a limit: a writer that waited for room would wait for itself.
//! * A request to suspend waits for a bounded time. After it the last checkpoint is what a resume goes on from.

use super::{Drive, ENDING};
use crate::error::Result;
use crate::pace::Every;
use std::time::{Duration, Instant};
use twinpage_os::messages;
use twinpage_os::user_signals;

/// A checkpoint is to be made, and the program has descendants.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    since: Instant,
    /// What it waits for.
    obstacle: String,
    /// It is not tried before, and then not for so long.
    retry_at: Instant,
    pause: Duration,
    /// The program was alone when it was tried last: what it waits for is not of a descendant.
    is_own: bool,
}

/// What the descendants of a program mean for its next checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Company {
    /// There are none that prevent it, as far as is known.
    None,
    /// It waits for them.
    Waits,
    /// A suspension has waited long enough.
    GivesUp,
}

/// How long a suspension waits for a checkpoint that cannot be made.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a checkpoint has waited before it is told, and with a fixed interval what a kill may lose before that; and how
/// long a program has ended before it is told that descendants live on.
const UNTOLD: Duration = Duration::from_secs(2);
/// Between two tries: each stops all processes.
const PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

impl Drive<'_> {
    /// Whether a checkpoint can be made, as far as descendants go. One that is due waits for them.
    pub(super) fn company(&mut self, asked: Option<i32>) -> Result<Company> {
        let has_ended = self.program.ending().is_some();
        if has_ended && (self.program.is_over() || self.outlived(asked)) {
            return Ok(Company::Waits);
        }
        let asked = asked.is_some();
        let now = Instant::now();
        if asked && self.waiting.is_some() && self.asked_for_long() {
            self.give_up();
            return Ok(Company::GivesUp);
        }
        let pauses = (self.waiting.as_ref()).is_some_and(|waiting| now < waiting.retry_at);
        if self.program.is_alone() {
            if !self.waits_for_its_own() || !pauses {
                return Ok(Company::None);
            }
            self.program.await_checkpoint(false); // a process that it makes may be what ends the waiting
            return Ok(Company::Waits);
        }
        let obstacle = self.program.obstacle();
        if obstacle.is_none() && !pauses {
            return Ok(Company::None);
        }
        if now < self.look_at && !self.program.wants_checkpoint() && !asked {
            return Ok(Company::Waits);
        }
        let idle = self.engine.is_idle();
        self.program.await_checkpoint(idle);
        self.program.ask_makers()?;
        if let Some(obstacle) = obstacle {
            self.waits_for(obstacle.to_string());
        }
        Ok(Company::Waits)
    }

    /// A checkpoint was tried, and could not be made.
    pub(super) fn put_off(&mut self, obstacle: String) {
        self.waits_for(obstacle);
        let is_own = self.program.is_alone();
        if let Some(waiting) = &mut self.waiting {
            waiting.is_own = is_own;
            waiting.retry_at = Instant::now() + waiting.pause;
            waiting.pause = (waiting.pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn waits_for(&mut self, obstacle: String) {
        let now = Instant::now();
        let waiting = self.waiting.get_or_insert(Waiting {
            since: now,
            obstacle: String::new(),
            retry_at: now,
            pause: PAUSE,
            is_own: false,
        });
        waiting.obstacle = obstacle;
        if self.program.streams.wants_checkpoint() {
            self.program.streams.hold_everything(true);
        }
        self.say_what_it_waits_for();
    }

    /// Whether it waits for something of the program, which has no descendants.
    fn waits_for_its_own(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.is_own)
    }

    /// The last descendant has ended, and with it what a checkpoint waited for.
    pub(super) fn waits_no_more(&mut self) {
        if self.program.is_alone() && !self.waits_for_its_own() {
            self.end_waiting();
        }
    }

    /// The checkpoint that waited is made now.
    pub(super) fn end_waiting(&mut self) {
        self.program.await_checkpoint(false);
        let Some(waiting) = self.waiting.take() else {
            return;
        };
        self.ledger.waited(waiting.since.elapsed());
        self.program.streams.hold_everything(false);
        if std::mem::take(&mut self.told_that_it_waits) {
            messages::tell("checkpoints are made again");
        }
    }

    fn say_what_it_waits_for(&mut self) {
        let limit = match self.pace.every {
            Every::Auto(limits) => limits.lose_at_most,
            Every::Fixed(every) => every.max(UNTOLD),
        };
        let lost = self.last.elapsed();
        let Some(Waiting { since, obstacle, .. }) = &self.waiting else {
            return;
        };
        // A checkpoint may come as rarely as that, with nothing in its way until now.
        if lost < limit || since.elapsed() < UNTOLD {
            return;
        }
        self.ledger.waits_for(obstacle);
        if self.complained_of_company {
            return;
        }
        self.complained_of_company = true;
        self.told_that_it_waits = true;
        let said = format!(
            "no checkpoint for {:.1}s: {obstacle}; checkpoints wait until that is over, a kill now loses that work, and what was printed since is held",
            lost.as_secs_f64()
        );
        self.program.notes.say(&said);
    }

    /// Whether a suspension, which was asked for, has waited long enough.
    pub(super) fn asked_for_long(&mut self) -> bool {
        self.asked.get_or_insert_with(Instant::now).elapsed() > PATIENCE
    }

    fn give_up(&mut self) {
        let obstacle = self.waiting.take().map(|waiting| waiting.obstacle);
        self.say_what_is_lost(&obstacle.unwrap_or_default());
    }

    /// The program is suspended without a checkpoint.
    pub(super) fn say_what_is_lost(&mut self, why: &str) {
        let lost = self.durable.elapsed().as_secs_f64();
        self.program.notes.say(&format!(
            "{why}, so no checkpoint could be made: a resume does the last {lost:.1}s again"
        ));
    }

    /// The program ended, and processes that it made live on. They belong to it: checkpoints go on, and its user waits for
    /// them, suspends them, or ends them. Signals that would go to the program have them end. Whether one does.
    fn outlived(&mut self, asked: Option<i32>) -> bool {
        let since = match self.ended {
            Some(since) => since,
            None => {
                user_signals::end_on(&ENDING);
                self.program.streams.leave_terminal(); // with its session's leader
                *self.ended.insert(Instant::now())
            }
        };
        if asked.is_some_and(|signal| !user_signals::suspends(signal)) {
            self.program.kill_all();
            return true;
        }
        if since.elapsed() > UNTOLD && !self.told_that_it_runs_on {
            self.told_that_it_runs_on = true;
            if let Some(process) = self.program.company() {
                self.program.notes.say(&format!(
                    "the program ended, and {}, which it made, runs on with checkpoints; twinpage waits for it (^C ends it)",
                    process.name()
                ));
            }
        }
        false
    }
}
