//! Calls that a stop cut, taken up again: what [`crate::interrupted`] knows, done to the threads.

use super::job::Job;
use super::members::plant;
use super::{Program, State, ignore_gone};
use crate::error::{Error, Result};
use crate::interrupted::{Calls, Unfinished};
use crate::threads::{self, ThreadRegisters};
use rustix::process::Pid;
use twinpage_os::cpuid;
use twinpage_os::proc_file;
use twinpage_os::remote::Process;
use twinpage_os::siginfo::SignalInfo;
use twinpage_os::trace::{self, Registers, Status, Tid};
use twinpage_os::user_signals;

/// How a thread goes on: one whose call is altered, or that may sleep, stops at the call's end.
pub(super) fn way_on(calls: &Calls, tid: Tid) -> fn(Tid, i32) -> std::io::Result<()> {
    if calls.stops_at_call(tid) {
        trace::go_on_to_call
    } else {
        trace::go_on
    }
}

impl Program {
    pub(super) fn way_on(&self, tid: Tid) -> fn(Tid, i32) -> std::io::Result<()> {
        way_on(&self.calls, tid)
    }

    /// Takes up the call that the stop cut, if it cut one. What a checkpoint keeps of the thread is put into
    /// `thread`.
    pub(super) fn take_up(&mut self, thread: &mut ThreadRegisters) -> Result<()> {
        let tid = thread.tid;
        let registers = &mut thread.registers;
        self.with_calls(tid, |calls, process| {
            if calls.take_up(tid, registers, process)? {
                set(tid, registers)?;
            }
            Ok(())
        })?;
        match self.descendants.of_thread(tid) {
            None => self.rest.let_go(thread),
            Some(pid) => self.members.let_go(pid, thread),
        }
        thread.registers = self.calls.kept(tid, &thread.registers);
        Ok(())
    }

    /// The same where nothing is kept: the thread stopped, and there is no checkpoint.
    pub(super) fn take_up_cut(&mut self, tid: Tid) -> Result<()> {
        let Ok(mut registers) = trace::registers(tid) else {
            return Ok(()); // it was killed
        };
        if self.is_in_call(tid, &registers) {
            self.with_calls(tid, |calls, process| {
                if calls.take_up(tid, &mut registers, process)? {
                    set(tid, &registers)?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Does something about the calls of a thread that stands still, in its process. `None` when it is a descendant's
    /// and was killed, or no code can be planted in it: it goes on, and no checkpoint is made while it lives.
    pub(super) fn with_calls<T>(
        &mut self,
        tid: Tid,
        act: impl FnOnce(&mut Calls, &Process) -> Result<T>,
    ) -> Result<Option<T>> {
        let is_descendant = self.descendants.of_thread(tid).is_some();
        let acted = self.look_at_calls(tid, |calls, process| {
            let planted = match is_descendant {
                true => plant(process, tid),
                false => Ok(()), // at its start
            };
            match planted {
                Err(Error::Unsupported(_)) => Ok(None),
                planted => planted.and_then(|()| act(calls, process)).map(Some),
            }
        });
        Ok(acted?.flatten())
    }

    /// The same where nothing is put into the process: no code is planted for it, at each signal that comes to a call.
    fn look_at_calls<T>(
        &mut self,
        tid: Tid,
        look: impl FnOnce(&mut Calls, &Process) -> Result<T>,
    ) -> Result<Option<T>> {
        let Some(pid) = self.descendants.of_thread(tid) else {
            self.look_through(tid)?;
            return look(&mut self.calls, &self.process).map(Some);
        };
        let Some(process) = self.open_descendant(tid, pid) else {
            return Ok(None);
        };
        let looked = look(&mut self.calls, &process);
        if let Some(descendant) = self.descendants.get_mut(pid) {
            descendant.process = Some(process);
        }
        match looked {
            Err(_) if trace::stands_no_longer(tid) => Ok(None),
            looked => looked.map(Some),
        }
    }

    /// What is kept of the calls in flight.
    pub(super) fn unfinished(&self) -> Vec<Unfinished> {
        self.calls.list()
    }

    /// A signal is about to be delivered. One that a handler takes ends a call that was cut; one that is
    /// ignored only woke the thread because it is traced, and must not be noticed. (Signals that stop are: a wait
    /// ends with `EINTR` when the program goes on, also alone.)
    pub(super) fn signalled(&mut self, tid: Tid, signal: i32) -> Result<()> {
        let Ok(registers) = trace::registers(tid) else {
            return self.go_on(tid, signal); // it was killed
        };
        if self.is_for_cpuid(tid, signal)? {
            return self.go_on(tid, 0);
        }
        if self.is_request(tid, signal)? {
            return self.go_on(tid, 0);
        }
        if signal == libc::SIGCONT {
            self.continue_job();
        }
        if self.waits_for_call(tid, signal, &registers)? {
            return Ok(());
        }
        if self.stops_job(tid, signal)? {
            self.job = Job::Stopping;
            // Its process group is an orphan here, which SIGTSTP does not stop.
            return self.go_on(tid, libc::SIGSTOP);
        }
        if self.is_in_call(tid, &registers) {
            self.end_or_take_up(tid, signal)?;
        }
        self.go_on(tid, signal)
    }

    /// Whether a signal asks for a suspension, whichever process of the tree it meets: then twinpage has it, and the
    /// thread notices nothing. `^C` at a terminal that the tree made is for those at that terminal.
    pub(super) fn is_request(&mut self, tid: Tid, signal: i32) -> Result<bool> {
        let session = |pid: i32| rustix::process::getsid(Pid::from_raw(pid)).ok();
        let is_here = |info: &SignalInfo| {
            !threads::is_interrupt(info) || session(tid).is_some_and(|own| Some(own) == session(self.pid()))
        };
        let asks =
            trace::signal_info(tid).is_ok_and(|info| threads::asks_to_suspend(&info) && is_here(&info));
        if asks {
            user_signals::ask_to_suspend(signal);
            self.take_up_cut(tid)?;
        }
        Ok(asks)
    }

    /// Whether a thread that stopped with these registers is in a call.
    fn is_in_call(&self, tid: Tid, registers: &Registers) -> bool {
        registers.orig_rax as i64 >= 0 || self.calls.is_altered(tid)
    }

    /// Whether the thread's call, which is yet to be begun again, blocks a signal. Then the signal is pending again, and
    /// the thread goes on in its call.
    pub(super) fn waits_for_call(&mut self, tid: Tid, signal: i32, registers: &Registers) -> Result<bool> {
        if !self.is_in_call(tid, registers) {
            return Ok(false);
        }
        let blocks = |calls: &mut Calls, process: &Process| calls.blocks(tid, registers, signal, process);
        if self.look_at_calls(tid, blocks)? != Some(true) {
            return Ok(false);
        }
        match enter_call(tid, signal) {
            Ok(Status::Call) => self.at_call(tid)?,
            // It stops so again, where that is looked for.
            Ok(Status::GroupStop(_) | Status::Interrupted) => {
                ignore_gone(trace::interrupt(tid))?;
                self.go_on(tid, 0)?;
            }
            Ok(other) => self.handle(tid, other)?,
            entered => ignore_gone(entered.map(drop))?,
        }
        Ok(true)
    }

    /// Whether a signal came of cpuid, which is off for the thread: then it was answered.
    pub(super) fn is_for_cpuid(&mut self, tid: Tid, signal: i32) -> Result<bool> {
        let Some(level) = self.cpu_floor.filter(|_| signal == libc::SIGSEGV) else {
            return Ok(false);
        };
        let answered = self.with_calls(tid, |_, process| {
            cpuid::take_over(process, tid, level)
                .map_err(|source| Error::target("cannot tell a thread what the processor is", source))
        })?;
        Ok(answered.unwrap_or_default())
    }

    /// A signal is about to be delivered to a thread in a call.
    pub(super) fn end_or_take_up(&mut self, tid: Tid, signal: i32) -> Result<()> {
        const STOPS: [i32; 4] = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
        let (Ok(mut registers), Ok(is_caught)) = (trace::registers(tid), is_in_mask(tid, "SigCgt", signal))
        else {
            return Ok(()); // it was killed
        };
        self.with_calls(tid, |calls, process| {
            let changed = if is_caught {
                calls.end_by_signal(tid, &mut registers, process)?
            } else if STOPS.contains(&signal) {
                false
            } else {
                calls.take_up(tid, &mut registers, process)?
            };
            if changed {
                set(tid, &registers)?;
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Whether the program handles the signal.
    pub(super) fn is_caught(&self, signal: i32) -> Result<bool> {
        self.is_in_mask("SigCgt", signal)
    }

    /// Whether a line of proc_pid_status(5) names the signal.
    pub(super) fn is_in_mask(&self, line: &str, signal: i32) -> Result<bool> {
        is_in_mask(self.process.thread(), line, signal)
    }

    /// A thread with an altered call stopped at the beginning or the end of it.
    pub(super) fn at_call(&mut self, tid: Tid) -> Result<()> {
        if !self.end_call(tid)?
            && let Some(pid) = self.descendants.of_thread(tid)
        {
            self.members.enters(pid, tid);
        }
        self.go_on(tid, 0)
    }

    /// The same while all threads are asked to stand still. The stop took the request with it: at its end the
    /// call stands still, at its beginning it is asked again, so that it ends at once.
    pub(super) fn halt_at_call(&mut self, tid: Tid) -> Result<()> {
        if self.end_call(tid)? {
            self.set_state(tid, State::Stopped);
            return Ok(());
        }
        self.go_on(tid, 0)
    }

    /// True when the thread is at the end of its call, which is then put right.
    fn end_call(&mut self, tid: Tid) -> Result<bool> {
        let Ok(true) = trace::call_ends(tid) else {
            return Ok(false);
        };
        let Ok(mut registers) = trace::registers(tid) else {
            return Ok(true); // it was killed
        };
        match self.descendants.of_thread(tid) {
            None => self.rest.disturb(),
            Some(pid) => self.members.disturb(pid),
        }
        self.calls.tell_of(tid, false);
        self.with_calls(tid, |calls, process| {
            calls.end(tid, &mut registers, process)?;
            set(tid, &registers)
        })?;
        self.ipc.ends_call(tid, registers.rax as i64);
        Ok(true)
    }
}

/// Has a thread begin its call with all signals blocked, so that the one it stopped for waits. There, or where it stopped
/// instead, it has its own mask again.
fn enter_call(tid: Tid, signal: i32) -> std::io::Result<Status> {
    let mask = trace::signal_mask(tid)?;
    trace::set_signal_mask(tid, u64::MAX)?;
    trace::go_on_to_call(tid, signal)?;
    loop {
        let Some((_, status)) = trace::wait(tid, true)? else {
            continue;
        };
        if !status.is_end() {
            trace::set_signal_mask(tid, mask)?;
        }
        return Ok(status);
    }
}

/// Whether a line of proc_pid_status(5) of a thread names the signal.
pub(super) fn is_in_mask(tid: Tid, line: &str, signal: i32) -> Result<bool> {
    let path = format!("/proc/{tid}/status");
    let status = proc_file::text(&path).map_err(Error::file("cannot read", path))?;
    Ok(proc_file::mask(&status, line).is_some_and(|mask| mask >> (signal - 1) & 1 == 1))
}

fn set(tid: Tid, registers: &Registers) -> Result<()> {
    match trace::set_registers(tid, registers) {
        Err(error) if error.raw_os_error() != Some(libc::ESRCH) => {
            Err(Error::target("cannot take a call up again", error))
        }
        _ => Ok(()),
    }
}
