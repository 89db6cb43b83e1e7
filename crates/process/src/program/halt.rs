//! Every thread stands still, and goes on.
//!
//! * Any stop answers a request to stand still, also one for a signal or a call: that is dealt with, and the
//!   thread is asked again before it goes on.
//! * No thread is left at an instruction whose fault has not reached its handler.
//! * Threads that a signal had stopped stay stopped when the others go on.
//! * The program may end meanwhile: that is an answer, not an error.

use super::cut::way_on;
use super::{Program, State, ignore_gone, is_gone};
use crate::error::{Error, Result};
use crate::threads;
use std::collections::BTreeSet;
use twinpage_os::trace::{self, Status, Tid};

impl Program {
    /// Stops every thread. False when the program ended instead.
    pub(super) fn stop_all(&mut self) -> Result<bool> {
        if !self.halt()? {
            return Ok(false);
        }
        while let Some(tid) = self.faulting()? {
            self.let_fault_through(tid)?;
            if self.ending.is_some() || !self.halt()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A stopped thread whose fault has not reached its handler yet. The fault belongs to the
    /// instruction the thread stands at, so it cannot be kept for later.
    fn faulting(&self) -> Result<Option<Tid>> {
        for thread in &self.threads {
            let look = |source| Error::target("cannot read waiting signals", source);
            let pending = trace::pending_signals(thread.tid, false).map_err(look)?;
            if pending.iter().any(threads::is_fault) {
                return Ok(Some(thread.tid));
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
        // A program with no thread left ends as soon as its main thread is told of.
        while self.threads.is_empty() || !self.running().is_empty() {
            for tid in self.running() {
                if !self.asked.get_or_insert_default().insert(tid) {
                    continue;
                }
                // A thread that just died is told by wait. One that was told already, before the event
                // of its making was, is none.
                if is_gone(&trace::interrupt(tid)) && tid != self.process.pid() {
                    self.threads.retain(|thread| thread.tid != tid);
                    self.steady.remove(&tid);
                }
            }
            if self.running().is_empty() && !self.threads.is_empty() {
                break;
            }
            self.await_stop()?;
            if self.ending.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The threads that cannot be looked at: they run, or wait in a group stop.
    fn running(&self) -> Vec<Tid> {
        let running = self
            .threads
            .iter()
            .filter(|thread| matches!(thread.state, State::Running | State::Listening));
        running.map(|thread| thread.tid).collect()
    }

    /// Waits for a thread to stop for our request; what threads stop for before is answered. Any thread: a
    /// leader that died is told only after the others.
    fn await_stop(&mut self) -> Result<()> {
        match trace::wait(-1, true) {
            Ok(Some((tid, status))) if self.descendant_of(tid).is_some() => self.handle(tid, status)?,
            Ok(Some((tid, Status::Interrupted))) => {
                self.descendants.end_making(tid);
                self.know(tid)?;
                self.set_state(tid, State::Stopped);
            }
            Ok(Some((tid, Status::GroupStop(_)))) => self.set_state(tid, State::GroupStopped),
            Ok(Some((tid, Status::Call))) => self.halt_at_call(tid)?,
            Ok(Some((tid, status))) => self.handle(tid, status)?,
            Ok(None) => {}
            Err(source) => return Err(Error::target("cannot wait for the program", source)),
        }
        Ok(())
    }

    /// Lets every thread that stands still go on.
    ///
    /// # Errors
    /// When a thread refuses to.
    pub fn go_on_all(&mut self) -> Result<()> {
        for thread in &mut self.threads {
            match thread.state {
                State::Stopped => {
                    thread.state = State::Running;
                    ignore_gone(way_on(&self.calls, thread.tid)(thread.tid, 0))?;
                }
                State::GroupStopped => {
                    thread.state = State::Listening;
                    match trace::listen(thread.tid) {
                        // Calls were injected in it: it reaches its group stop again by itself.
                        Err(error) if error.raw_os_error() == Some(libc::EIO) => {
                            thread.state = State::Running;
                            ignore_gone(trace::interrupt(thread.tid))?;
                            ignore_gone(trace::go_on(thread.tid, 0))?;
                        }
                        listening => ignore_gone(listening)?,
                    }
                }
                State::Running | State::Listening | State::Standing => {}
            }
        }
        Ok(())
    }
}
