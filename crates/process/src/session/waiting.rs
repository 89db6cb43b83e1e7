//! Checkpoints wait while the program has descendants.
//!
//! * A checkpoint is of the program alone: one that is due waits until every descendant ended and was waited for.
//! * A program that just became alone makes no process before it.
//! * It is told once when a kill may lose more than the limit because of that, with the process that it waits for.
//! * What is printed meanwhile is held without a limit: a writer that waited for room would wait for itself.
//! * A request to suspend waits for a bounded time. After it the last checkpoint is what a resume goes on from.

use super::Drive;
use crate::descendants::Described;
use crate::error::Result;
use crate::notes;
use crate::pace::Every;
use std::time::{Duration, Instant};
use twinpage_os::spawn;

/// A checkpoint is to be made, and the program has descendants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    since: Instant,
    /// When a suspension was asked for.
    asked: Option<Instant>,
}

/// What the descendants of a program mean for its next checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Company {
    /// There are none: it can be made.
    None,
    /// It waits for them.
    Waits,
    /// A suspension has waited long enough.
    GivesUp,
}

/// How long a suspension waits for descendants to end.
const PATIENCE: Duration = Duration::from_secs(5);
/// With a fixed interval, what a kill may lose before it is told; and how long a program that ended waits for its
/// descendants before that is.
const UNTOLD: Duration = Duration::from_secs(2);

impl Drive<'_> {
    /// Whether a checkpoint can be made, as far as descendants go. One that is due waits for them.
    pub(super) fn company(&mut self, asked: bool) -> Result<Company> {
        if self.program.ending().is_some() {
            self.outlived(asked);
            return Ok(Company::Waits);
        }
        if self.program.is_alone() {
            return Ok(Company::None);
        }
        let now = Instant::now();
        if now < self.look_at && !self.program.wants_checkpoint() && !asked {
            return Ok(Company::Waits);
        }
        let idle = self.engine.is_idle();
        self.program.await_checkpoint(idle);
        self.program.ask_makers()?;
        let waiting = self.waiting.get_or_insert(Waiting {
            since: now,
            asked: None,
        });
        if asked && waiting.asked.get_or_insert(now).elapsed() > PATIENCE {
            self.give_up();
            return Ok(Company::GivesUp);
        }
        if self.program.streams.wants_checkpoint() {
            self.program.streams.hold_everything(true);
        }
        self.say_what_it_waits_for();
        Ok(Company::Waits)
    }

    /// The checkpoint that waited is made now.
    pub(super) fn end_waiting(&mut self) {
        self.program.await_checkpoint(false);
        let Some(waiting) = self.waiting.take() else {
            return;
        };
        self.ledger.waited(waiting.since.elapsed());
        self.program.streams.hold_everything(false);
        if std::mem::take(&mut self.told_waits_for).is_some() {
            notes::tell("checkpoints are made again");
        }
    }

    fn say_what_it_waits_for(&mut self) {
        let limit = match self.pace.every {
            Every::Auto(limits) => limits.lose_at_most,
            Every::StableState(every) => every.max(UNTOLD),
        };
        let lost = self.last.elapsed();
        if lost < limit {
            return;
        }
        let Some(process) = self.program.company() else {
            return;
        };
        self.ledger.waits_for(&process.to_string());
        if self.complained_of_company {
            return;
        }
        self.complained_of_company = true;
        self.told_waits_for = Some(process.pid);
        let said = too_long(&process, lost);
        self.program.notes.say(&said);
    }

    fn give_up(&mut self) {
        let lost = self.last.elapsed().as_secs_f64();
        let process = self.program.company();
        let process = process.map_or_else(
            || "another process has not ended".to_owned(),
            |process| process.to_string(),
        );
        self.program.notes.say(&format!(
            "{process}, so no checkpoint could be made: a resume does the last {lost:.1}s again"
        ));
    }

    /// The program ended, and processes that it made live on. They belong to it: its user waits for them, or ends them.
    fn outlived(&mut self, asked: bool) {
        let since = self.ended.get_or_insert_with(Instant::now);
        spawn::suspend_on(&[libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT]);
        if asked {
            self.program.kill_all();
        } else if since.elapsed() > UNTOLD && !self.complained_of_company {
            self.complained_of_company = true;
            if let Some(process) = self.program.company() {
                self.program.notes.say(&format!(
                    "the program ended, and {}, which it made, runs on; twinpage waits for it (^C ends it)",
                    process.name()
                ));
            }
        }
    }
}

fn too_long(process: &Described, lost: Duration) -> String {
    format!(
        "no checkpoint for {:.1}s: {process}, and checkpoints are made while the program has no other process; a kill now loses that work, and what was printed since is held",
        lost.as_secs_f64()
    )
}
