//! The program's descendants as they run: their stops are answered, and the program knows when it is alone.
//!
//! * A stop of a descendant never waits for the program, nor does one of the program for a descendant.
//! * A program makes no process before the first checkpoint of its life was begun.
//! * What descendants share with the program, they may have changed: it is all looked at again at a checkpoint.
//! * The program ended for its user when it and all its descendants did. Until then checkpoints are made.

use super::cut::is_in_mask;
use super::place::has_ended;
use super::{Program, hide_processor, ignore_gone, is_gone, leave_exec};
use crate::advice::AdviceInForce;
use crate::context::Ending;
use crate::descendants::{Described, Obstacle, State, process_of};
use crate::error::{Error, Result};
use crate::interrupted::may_be_cut;
use rustix::process::{Pid, Signal};
use std::collections::BTreeSet;
use twinpage_os::trace::{self, Registers, Status, Tid};

impl Program {
    /// The descendant that stopped, if it was none of the program's threads.
    pub(super) fn descendant_of(&mut self, tid: Tid) -> Option<i32> {
        let known = self.descendants.of_thread(tid);
        let is_first = tid == self.pid() && self.ending.is_none();
        if known.is_some() || is_first || self.threads.iter().any(|thread| thread.tid == tid) {
            return known;
        }
        // Its first stop comes before the event of its making; or it ended before both.
        let (pid, parent) = process_of(tid)?;
        if pid == self.pid() && self.ending.is_none() {
            return None;
        }
        if tid == pid {
            self.descendants.meet(pid, parent);
        } else {
            self.descendants.add_thread(tid, pid);
        }
        Some(pid)
    }

    /// Answers what a thread of a descendant stopped for, and lets it run.
    pub(super) fn handle_descendant(&mut self, tid: Tid, pid: i32, status: Status) -> Result<()> {
        let is_known = match status {
            Status::Call | Status::Event(trace::EVENT_SECCOMP) => true, // looked at one by one
            Status::GroupStop(_) => self.descendants.returns(tid),
            _ => false,
        };
        if !is_known {
            self.members.disturb(pid);
        }
        match status {
            Status::Exited(code) => self.end_descendant(tid, Ending::Exit(code)),
            Status::Killed(signal) => self.end_descendant(tid, Ending::Signal(signal)),
            Status::Signal(signal) => return self.signal_descendant(tid, pid, signal),
            Status::GroupStop(_) => {
                self.set_state(tid, State::Listening);
                return ignore_gone(trace::listen(tid));
            }
            Status::Interrupted => {
                if self.begin_descendant(tid)? {
                    self.take_up_cut(tid)?; // a request that came to nothing may have cut a call
                }
                return self.go_on(tid, 0);
            }
            Status::Event(event) => {
                match event {
                    trace::EVENT_CLONE | trace::EVENT_FORK | trace::EVENT_VFORK => self.made(tid, event),
                    trace::EVENT_EXEC => {
                        for tid in self.descendants.tids_of(pid) {
                            self.calls.forget(tid);
                            self.ipc.forget_call(tid);
                            self.standing.forget(tid);
                        }
                        self.leave_memory(pid);
                        self.objects.begin(pid);
                        self.descendants.execute(pid);
                        self.members.leave(pid);
                        self.descriptors.executes(pid);
                        self.hide_from_descendant(tid)?;
                    }
                    trace::EVENT_SECCOMP => self.answer_descendant(tid, pid)?,
                    _ => {}
                }
                if self.stands(tid) {
                    return Ok(());
                }
                return self.go_on(tid, 0);
            }
            Status::Call => return self.at_call(tid),
        }
        Ok(())
    }

    /// A signal is about to be delivered to a descendant.
    fn signal_descendant(&mut self, tid: Tid, pid: i32, signal: i32) -> Result<()> {
        if self.is_for_cpuid(tid, signal)? || self.is_request(tid, signal)? {
            return self.go_on(tid, 0);
        }
        let Ok(registers) = trace::registers(tid) else {
            return self.go_on(tid, signal); // it was killed
        };
        if self.waits_for_call(tid, signal, &registers)? {
            return Ok(());
        }
        let signal = self.signal_for_descendant(tid, pid, signal);
        if self.calls.is_unfinished(tid) || self.is_cut_unheard(tid, signal, &registers) {
            self.end_or_take_up(tid, signal)?;
        }
        self.go_on(tid, signal)
    }

    /// Whether a signal that a descendant does not hear of may have cut its call.
    fn is_cut_unheard(&self, tid: Tid, signal: i32, registers: &Registers) -> bool {
        let is_cut = self.calls.is_altered(tid) || may_be_cut(registers);
        is_cut && is_in_mask(tid, "SigCgt", signal).is_ok_and(|is_caught| !is_caught)
    }

    /// A descendant that stopped in its exec sees no more of the processor than the program does.
    fn hide_from_descendant(&mut self, tid: Tid) -> Result<()> {
        if self.cpu_floor.is_none() {
            return Ok(());
        }
        let hidden = match leave_exec(tid) {
            Ok(()) => self.with_calls(tid, |_, process| hide_processor(process, tid))?,
            Err(_) => None,
        };
        if hidden.is_none() && !trace::is_traced(tid) {
            self.killed_in_its_call(tid);
        }
        Ok(())
    }

    fn end_descendant(&mut self, tid: Tid, ending: Ending) {
        self.forget_asked(tid);
        self.calls.forget(tid);
        self.ipc.forget(tid);
        self.standing.forget(tid);
        self.leave_memory(tid);
        self.descendants.end_thread(tid, ending);
        self.members.leave(tid);
        self.members.lose_parent(tid);
    }

    /// A thread of a descendant was killed while calls were made in it, which may have been told of its end. One that is
    /// told of it once more is only met once more.
    pub(crate) fn killed_in_its_call(&mut self, tid: Tid) {
        self.end_descendant(tid, Ending::Signal(libc::SIGKILL));
    }

    /// Drops the error of handling a thread that was killed since it stopped. Parents kill their children, and a process
    /// that exits or executes a program takes its other threads along, also inside of watched calls.
    pub(super) fn unless_thread_was_killed(&mut self, tid: Tid, handled: Result<()>) -> Result<()> {
        match handled {
            Err(Error::Target { .. }) if trace::stands_no_longer(tid) => {
                if self.descendants.of_thread(tid).is_some() {
                    self.killed_in_its_call(tid);
                } else if tid == self.pid() {
                    self.set_state(tid, State::Running); // how the program ended is still told
                } else {
                    self.gone(tid, Ending::Signal(libc::SIGKILL));
                }
                Ok(())
            }
            handled => handled,
        }
    }

    /// A descendant is in its memory no longer. One that used that of its maker is tracked with it.
    fn leave_memory(&mut self, pid: i32) {
        if !self.descendants.shares_memory(pid) {
            self.objects.leave(pid);
        }
    }

    /// A thread of a descendant stopped because it was asked to, or because it is new. Whether it had stopped before.
    pub(super) fn begin_descendant(&mut self, tid: Tid) -> Result<bool> {
        let had_begun = self.descendants.has_begun(tid);
        if !had_begun {
            ignore_gone(trace::end_freely(tid))?; // what it inherited from the program's main thread
            if self.descendants.has(tid) {
                self.processor.began(tid);
            }
        }
        Ok(had_begun)
    }

    /// A thread of the program or a descendant made a thread or a process.
    pub(super) fn made(&mut self, tid: Tid, event: i32) {
        let making = self.descendants.end_making(tid);
        let Ok(new) = trace::event_message(tid) else {
            return; // it was killed
        };
        let new = new as Tid;
        self.last_id = new;
        self.fixed_changed = true;
        let maker = self.descendants.of_thread(tid);
        match maker {
            _ if event != trace::EVENT_CLONE || making.is_some() => {
                self.descendants.add(new, maker.unwrap_or(self.pid()), making);
                self.inherit_advice(maker, new);
            }
            Some(pid) => self.descendants.add_thread(new, pid),
            None => self.note(new),
        }
    }

    /// Advice on memory is inherited with the memory: madvise(2).
    fn inherit_advice(&mut self, maker: Option<i32>, new: i32) {
        let known = match maker {
            None => self.memory.marks().to_vec(),
            Some(maker) => match (self.members.memory(maker), self.descendants.get_mut(maker)) {
                (Some(memory), _) => memory.marks().to_vec(),
                (None, Some(maker)) => maker.advice.list().to_vec(),
                (None, None) => Vec::new(),
            },
        };
        if let Some(new) = self.descendants.get_mut(new) {
            new.advice = AdviceInForce::new(known);
        }
    }

    /// Why no checkpoint can be made now, as far as that is known without a stop.
    #[must_use]
    pub fn obstacle(&self) -> Option<Obstacle> {
        self.descendants.obstacle()
    }

    /// Whether the program has no descendant: all ended, and were waited for.
    pub fn is_alone(&mut self) -> bool {
        self.descendants.are_gone(is_waited_for)
    }

    /// The alarm rang: descendants that ended unseen are forgotten, and main threads of those whose others live on: the
    /// end of such a thread is told with theirs.
    pub(crate) fn look_for_lost(&mut self) {
        self.descendants.forget_lost(is_waited_for);
        let threads: Vec<_> = self.descendants.threads().collect();
        let several = threads.iter().filter(|(pid, tid, _)| pid != tid);
        let several: BTreeSet<i32> = several.map(|(pid, ..)| *pid).collect();
        for (pid, tid, _) in threads.into_iter().filter(|(pid, ..)| several.contains(pid)) {
            let is_first_of_several = tid == pid && self.descendants.threads_of(pid) > 1;
            if is_first_of_several && has_ended(pid) {
                self.descendants.forget_thread(pid);
            }
        }
    }

    /// There is nothing left to wait for: whether that is because the last descendants ended unseen.
    pub(crate) fn are_last_lost(&mut self, error: &std::io::Error) -> bool {
        let before = self.descendants.living().len();
        if error.raw_os_error() == Some(libc::ECHILD) {
            self.look_for_lost();
        }
        self.descendants.living().len() < before
    }

    /// A process that keeps the program from being captured.
    #[must_use]
    pub fn company(&self) -> Option<Described> {
        self.descendants.oldest(self.pid())
    }

    /// A thread that is in a call that may make a process has it end, if it failed: there is no other event of that.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub fn ask_makers(&self) -> Result<()> {
        for tid in self.descendants.makers() {
            ignore_gone(trace::interrupt(tid))?;
        }
        Ok(())
    }

    /// From now on a thread that is about to make a process, while there is none, stands at the beginning of its
    /// call for a checkpoint (`true`), or is not kept (`false`).
    pub fn await_checkpoint(&mut self, awaited: bool) {
        self.checkpoint_awaited = awaited;
    }

    /// A checkpoint is begun, or tried.
    pub fn begin_checkpoint(&mut self) {
        self.is_new = false;
        self.begins_tree = false;
    }

    /// Whether a call that makes a process is to be begun again later: a checkpoint comes first.
    pub(crate) fn puts_off_making(&mut self) -> bool {
        self.begins_tree |= self.is_new;
        self.begins_tree || self.asked.is_some() || (self.checkpoint_awaited && self.is_alone())
    }

    /// Descendants were there since the last checkpoint: what they share with the program is looked at again.
    pub(super) fn take_back_shared(&mut self) {
        let came = self.descendants.changed();
        if !self.descendants.take_lived() {
            return;
        }
        self.stale.brk |= came; // until they execute a program, they may share the memory
        self.stale.directory = true;
        self.descriptors.touch_shared();
        self.fixed_changed = true;
    }

    /// Whether the program has ended, and its descendants with it: no checkpoint but the last is made any more. A program
    /// that was killed leaves none.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.ending.is_some() && (self.was_killed() || !self.descendants.any_lives())
    }

    /// Kills the program and every descendant.
    pub fn kill_all(&self) {
        for pid in self.descendants.living().into_iter().chain([self.pid()]) {
            send(pid, Signal::KILL);
        }
    }

    /// The signal as a descendant gets it. One that a user's `^Z` stops with the program is stopped as that is.
    fn signal_for_descendant(&self, tid: Tid, pid: i32, signal: i32) -> i32 {
        let is_handled = |line| is_in_mask(tid, line, signal).unwrap_or(true); // it was killed
        let stops = signal == libc::SIGTSTP
            && self.streams.terminal().is_some()
            && group_of(pid) == Some(self.pid())
            && !is_handled("SigCgt")
            && !is_handled("SigIgn");
        if stops { libc::SIGSTOP } else { signal }
    }

    /// Descendants that were stopped with the program go on with it.
    pub(super) fn continue_descendants(&self) {
        for pid in self.descendants.living() {
            if group_of(pid) == Some(self.pid()) {
                send(pid, Signal::CONT);
            }
        }
    }
}

fn send(pid: i32, signal: Signal) {
    // One that is gone is told by wait.
    let _ = Pid::from_raw(pid).map(|pid| rustix::process::kill_process(pid, signal));
}

/// The process group that a process is in.
pub(crate) fn group_of(pid: i32) -> Option<i32> {
    let group = rustix::process::getpgid(Pid::from_raw(pid)).ok()?;
    Some(group.as_raw_nonzero().get())
}

/// Whether a process that ended was waited for by its parent: its id is free.
fn is_waited_for(pid: i32) -> bool {
    let Some(pid) = Pid::from_raw(pid) else {
        return true;
    };
    is_gone(&rustix::process::test_kill_process(pid).map_err(Into::into))
}
