//! Job control: a user stops a program with `^Z`, and continues it.
//!
//! * The process group of the program is orphaned, and SIGTSTP stops none (setpgid(2)): SIGSTOP stops it instead.
//! * Descendants in the same group are stopped in the same way, and continued with it.
//! * When all threads stand still, twinpage is told once. It stops then, as the user's shell sees it.
//! * The program continues when SIGCONT reaches it.

use super::{Program, State, Thread};
use crate::error::Result;
use crate::threads;
use twinpage_os::trace::{self, Tid};

/// The state of the job that the program is for its user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Job {
    Runs,
    /// A signal stops it.
    Stopping,
    /// All threads stand still, and its user was told.
    Stopped,
    /// It was stopped, and runs again.
    Continued,
}

impl Program {
    /// Whether the signal stops the job that the program is for its user: on a terminal SIGTSTP, with its default
    /// action, and SIGSTOP; elsewhere SIGTSTP where the user's terminal sent it to twinpage.
    pub(super) fn stops_job(&self, tid: Tid, signal: i32) -> Result<bool> {
        let on_terminal = self.streams.terminal().is_some();
        Ok(match signal {
            libc::SIGSTOP => on_terminal,
            libc::SIGTSTP => {
                let sent =
                    on_terminal || trace::signal_info(tid).is_ok_and(|info| threads::is_passed_on(&info));
                sent && !self.is_caught(signal)? && !self.is_in_mask("SigIgn", signal)?
            }
            _ => false,
        })
    }

    /// Whether a signal stopped the whole program, and the user's shell is to know. True once.
    pub fn job_stops(&mut self) -> bool {
        let stops = self.job == Job::Stopping && self.stands_by_signal();
        if stops {
            self.job = Job::Stopped;
        }
        stops
    }

    /// Whether such a program goes on. True once.
    pub fn job_goes_on(&mut self) -> bool {
        let goes_on = self.job == Job::Continued;
        if goes_on {
            self.job = Job::Runs;
        }
        goes_on
    }

    /// SIGCONT reached it, or a thread of it that a signal had stopped is not any more.
    pub(super) fn continue_job(&mut self) {
        if self.job == Job::Stopped {
            self.continue_descendants();
        }
        self.job = match self.job {
            Job::Stopped | Job::Continued => Job::Continued,
            Job::Runs | Job::Stopping => Job::Runs,
        };
    }

    fn stands_by_signal(&self) -> bool {
        let stands = |thread: &Thread| matches!(thread.state, State::Listening | State::GroupStopped);
        self.threads.iter().all(stands)
    }
}
