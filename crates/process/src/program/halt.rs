//! Every thread stands still, of the program and of its descendants, and goes on.
//!
//! * Any stop answers a request to stand still, also one for a signal or a call: that is dealt with, and the
//!   thread is asked again before it goes on.
//! * No thread is left at an instruction whose fault has not reached its handler.
//! * Descendants that sleep are left alone: see `asleep.rs`.
//! * Threads that a signal had stopped stay stopped when the others go on.
//! * The program may end meanwhile: that is an answer, not an error. Descendants that live on stand still without it.
//! * A thread that waits for a child it made by vfork(2) cannot be stopped. Then nothing is: those that stand go on as
//!   if they had not been asked.

use super::cut::way_on;
use super::place::{has_ended, is_over};
use super::{Program, State, ignore_gone, is_gone};
use crate::context::Ending;
use crate::descendants::process_of;
use crate::error::{Error, Result};
use std::collections::BTreeSet;
use twinpage_os::siginfo::SignalInfo;
use twinpage_os::trace::{self, Status, Tid};

impl Program {
    /// Stops every thread. False when the program ended instead, and no descendant lives on.
    pub(super) fn stop_all(&mut self) -> Result<bool> {
        if !self.halt()? {
            return Ok(false);
        }
        while let Some(tid) = self.faulting()? {
            self.let_fault_through(tid)?;
            if self.is_over() || !self.halt()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A stopped thread whose fault has not reached its handler yet. The fault belongs to the
    /// instruction the thread stands at, so it cannot be kept for later.
    fn faulting(&self) -> Result<Option<Tid>> {
        let own = self.threads.iter().map(|thread| thread.tid);
        let others = self
            .descendants
            .threads()
            .filter(|(.., state)| *state != State::Asleep);
        for tid in own.chain(others.map(|(_, tid, _)| tid)) {
            let pending = match trace::pending_signals(tid, false) {
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => continue, // it was killed: wait tells
                pending => pending.map_err(|source| Error::target("cannot read waiting signals", source))?,
            };
            if pending.iter().any(SignalInfo::is_fault) {
                return Ok(Some(tid));
            }
        }
        Ok(None)
    }

    /// Delivers a thread's fault, and stops it again at the first instruction of the handler.
    fn let_fault_through(&mut self, tid: Tid) -> Result<()> {
        self.go_on(tid, 0)?;
        let waited =
            trace::wait(tid, true).map_err(|source| Error::target("cannot wait for the program", source))?;
        let Some((tid, status)) = waited else {
            return Ok(());
        };
        if matches!(status, Status::Signal(_)) {
            let _ = trace::interrupt(tid);
        }
        self.handle(tid, status)
    }

    /// Asks every thread to stand still, and waits. False when the program ended instead.
    fn halt(&mut self) -> Result<bool> {
        self.give_processors_back();
        self.asked = Some(BTreeSet::new());
        let halted = self.ask_all();
        self.asked = None;
        halted
    }

    fn ask_all(&mut self) -> Result<bool> {
        self.look_for_lost();
        loop {
            if !self.stop_running()? {
                return Ok(false);
            }
            // A sleeper that woke before stands at the end of its call.
            if self.members.sleepers.pids.is_empty() || !self.await_stop(false)? {
                return Ok(true);
            }
        }
    }

    fn stop_running(&mut self) -> Result<bool> {
        while self.awaits_end() || !self.running().is_empty() {
            if let Some(why) = self.descendants.obstacle() {
                self.asked = None;
                self.go_on_as_before()?;
                return Err(Error::NotYet(why.to_string()));
            }
            for tid in self.running() {
                if self.asked.get_or_insert_default().insert(tid) {
                    self.ask(tid);
                }
            }
            if self.running().is_empty() && !self.awaits_end() {
                break;
            }
            self.await_stop(true)?;
            if self.is_over() {
                break;
            }
        }
        Ok(!self.is_over())
    }

    /// Whether the program has no thread left: it ends as soon as its main thread is told of.
    pub(super) fn awaits_end(&self) -> bool {
        self.threads.is_empty() && self.ending.is_none()
    }

    /// A thread that just died is told by wait. One that was told already, before the event of its making was, is none.
    fn ask(&mut self, tid: Tid) {
        if !is_gone(&trace::interrupt(tid)) {
            return;
        }
        if self.descendants.of_thread(tid).is_none() {
            if tid != self.process.pid() {
                self.threads.retain(|thread| thread.tid != tid);
                self.steady.remove(&tid);
            } else {
                self.end_if_told(tid);
            }
        } else if process_of(tid).is_none() {
            self.descendants.forget_thread(tid);
        } else {
            self.end_if_told(tid);
        }
    }

    /// A process that was killed while a call was made in its main thread, which was told of its end. Nothing will tell
    /// of it again: its parent, which would wait for it, stands still, and so do the descendants of the program.
    fn end_if_told(&mut self, tid: Tid) {
        if trace::is_traced(tid) {
            return;
        }
        if tid == self.process.pid() {
            if is_over(tid) {
                self.gone(tid, Ending::Signal(libc::SIGKILL));
            }
        } else if self.descendants.of_thread(tid) == Some(tid) && has_ended(tid) {
            self.killed_in_its_call(tid);
        }
    }

    /// A thread is gone. If it is met once more, by the event of its making, it is asked once more, and is none then.
    pub(super) fn forget_asked(&mut self, tid: Tid) {
        if let Some(asked) = &mut self.asked {
            asked.remove(&tid);
        }
    }

    /// The threads that cannot be looked at: they run, or wait in a group stop.
    fn running(&self) -> Vec<Tid> {
        let is_running = |pid: i32, state: State| match state {
            State::Running | State::Returning | State::Listening => true,
            State::Asleep => !self.members.sleepers.pids.contains(&pid),
            _ => false,
        };
        let own = self
            .threads
            .iter()
            .map(|thread| (self.pid(), thread.tid, thread.state));
        own.chain(self.descendants.threads())
            .filter(|(pid, _, state)| is_running(*pid, *state))
            .map(|(_, tid, _)| tid)
            .collect()
    }

    /// Waits for a thread to stop for our request; what threads stop for before is answered. Any thread: a
    /// leader that died is told only after the others. Without `block`, whether one had stopped already.
    fn await_stop(&mut self, block: bool) -> Result<bool> {
        match trace::wait(-1, block) {
            Ok(Some((tid, status))) => {
                let descendant = self.descendant_of(tid);
                if let Some(pid) = descendant.filter(|pid| self.members.sleepers.pids.contains(pid)) {
                    self.members.disturb(pid);
                }
                let halted = self.halt_for(tid, status, descendant.is_some());
                self.unless_thread_was_killed(tid, halted)?;
            }
            Ok(None) if !block => return Ok(false),
            Ok(None) => {
                self.look_for_lost();
                self.running().into_iter().for_each(|tid| self.end_if_told(tid));
            }
            Err(error) if self.are_last_lost(&error) => {}
            Err(source) => return Err(Error::target("cannot wait for the program", source)),
        }
        Ok(true)
    }

    /// A thread stopped while all are asked to.
    fn halt_for(&mut self, tid: Tid, status: Status, of_descendant: bool) -> Result<()> {
        match status {
            Status::Interrupted => {
                self.descendants.end_making(tid);
                if of_descendant {
                    self.begin_descendant(tid)?;
                } else {
                    self.know(tid)?;
                }
                self.set_state(tid, State::Stopped);
            }
            Status::GroupStop(_) => self.set_state(tid, State::GroupStopped),
            Status::Call => self.halt_at_call(tid)?,
            status => self.handle(tid, status)?,
        }
        Ok(())
    }

    /// Lets every thread that stands still go on.
    ///
    /// # Errors
    /// When a thread refuses to.
    pub fn go_on_all(&mut self) -> Result<()> {
        for thread in &mut self.threads {
            thread.state = let_go(thread.tid, thread.state, way_on(&self.calls, thread.tid))?;
        }
        let others: Vec<_> = self.descendants.threads().collect();
        for (_, tid, state) in others {
            let state = let_go(tid, state, way_on(&self.calls, tid))?;
            self.descendants.set_state(tid, state);
        }
        Ok(())
    }

    /// The same when nothing was captured: what their stop cut is taken up again.
    pub(super) fn go_on_as_before(&mut self) -> Result<()> {
        let own = self.threads.iter().map(|thread| (thread.tid, thread.state));
        let others = self.descendants.threads().map(|(_, tid, state)| (tid, state));
        let stopped: Vec<Tid> = own
            .chain(others)
            .filter(|(_, state)| matches!(state, State::Stopped | State::GroupStopped))
            .map(|(tid, _)| tid)
            .collect();
        for tid in stopped {
            self.take_up_cut(tid)?;
        }
        self.go_on_all()
    }
}

/// Lets a thread go on, if it stands still. Its state from then on.
fn let_go(tid: Tid, state: State, go_on: fn(Tid, i32) -> std::io::Result<()>) -> Result<State> {
    match state {
        State::Stopped => {
            ignore_gone(go_on(tid, 0))?;
            Ok(State::Running)
        }
        State::GroupStopped => match trace::listen(tid) {
            // Calls were injected in it: it reaches its group stop again by itself.
            Err(error) if error.raw_os_error() == Some(libc::EIO) => {
                ignore_gone(trace::interrupt(tid))?;
                ignore_gone(trace::go_on(tid, 0))?;
                Ok(State::Returning)
            }
            listening => {
                ignore_gone(listening)?;
                Ok(State::Listening)
            }
        },
        State::Asleep => Ok(State::Running),
        running => Ok(running),
    }
}
