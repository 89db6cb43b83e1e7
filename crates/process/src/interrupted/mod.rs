//! Calls that a stop cuts short, taken up again so that the program never notices: neither `EINTR`, nor a
//! short count, nor a wait that lasts longer.
//!
//! A stop makes a thread look as if a signal waited for it (signal(7), "Interruption of system calls by
//! stop signals"). What a call does then decides what is done about it here:
//!
//! | the call answers | the kernel, in the same process | here |
//! | --- | --- | --- |
//! | `ERESTARTSYS`, `ERESTARTNOHAND`, `ERESTARTNOINTR` | begins it again | nothing: after a resume it does the same |
//! | `ERESTART_RESTARTBLOCK` (relative waits) | goes on waiting | which call it was, and until when, are kept; after a resume it is begun with what is left |
//! | `EINTR` (epoll_wait(2), sigtimedwait(2)) | nothing | begun again with what is left |
//! | fewer bytes than it was asked for | nothing | begun again for the rest |
//! | `ERESTARTSYS` (a read of a terminal with a time limit) | begins it again, with all of its time | begun again with what is left |
//!
//! * A call that is begun with other arguments than its own (what is left, the rest) is **altered**: its
//!   thread stops at the call's end, where its registers are put right: the program's own, and the whole
//!   result. Until then the program's own are what a checkpoint keeps.
//! * A signal with a handler ends an altered call as it would have ended the call alone: with what was done,
//!   or `EINTR`. A signal that is ignored does not, though it wakes a traced thread.
//! * A signal that a call blocks by a mask of its own waits until the call has ended, also while it is begun again.
//! * What must be in the program's memory for an altered call (a time, a list of buffers) is in a slot of the
//!   page that is twinpage's own there.

mod limits;
mod masks;
mod rest;
mod terminals;

use crate::clocks::Clocks;
use crate::error::{Error, Result};
use limits::Limit;
use rest::Wanted;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use terminals::Reading;
use twinpage_os::inject::{SLOT_BYTES, SLOTS, SLOTS_END};
use twinpage_os::remote::Process;
use twinpage_os::trace::{NO_CALL, Registers, SYSCALL_BYTES, Tid};

/// What is kept of a call that was cut.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Unfinished {
    /// The thread.
    pub tid: Tid,
    /// The call. In the registers it may be restart_syscall(2) by now.
    pub number: i64,
    /// When its time is up, by `CLOCK_MONOTONIC`; `None`: it has no limit, or one the kernel keeps.
    pub until_ns: Option<u64>,
    /// Bytes done, and bytes that it was asked for; both 0 for a wait. A read of a terminal may have both a time and
    /// a number of bytes.
    pub done: u64,
    /// See `done`.
    pub wanted: u64,
    /// At its end the program is told what is left of its time, where the limit stands.
    pub tells: bool,
}

impl Unfinished {
    fn wait(tid: Tid, number: i64, until_ns: Option<u64>) -> Unfinished {
        Unfinished {
            tid,
            number,
            until_ns,
            done: 0,
            wanted: 0,
            tells: false,
        }
    }

    /// Whether it is a read of a terminal with a time limit.
    fn is_timed_read(&self) -> bool {
        self.until_ns.is_some() && self.wanted > 0
    }
}

/// The calls in flight that must be taken up again.
#[derive(Debug, Default)]
pub struct Calls {
    /// When the time of watched waits is up that threads began.
    until_ns: HashMap<Tid, u64>,
    unfinished: BTreeMap<Tid, Unfinished>,
    /// The program's own registers at an altered call.
    altered: HashMap<Tid, Registers>,
    slots: BTreeMap<Tid, u64>,
    /// Threads that stop as they enter and leave a call, though nothing of it is altered.
    told_of: HashSet<Tid>,
}

/// The kernel's own codes: begin the call again, unless a handler runs.
const ERESTARTSYS: i64 = -512;
const ERESTARTNOINTR: i64 = -513;
const ERESTARTNOHAND: i64 = -514;
const ERESTART_RESTARTBLOCK: i64 = -516;
const EINTR: i64 = -(libc::EINTR as i64);

const SYSCALL: [u8; 2] = [0x0f, 0x05];

fn now_ns() -> u64 {
    Clocks::now().monotonic_ns
}

impl Calls {
    /// The thread is about to wait, in a call that is watched.
    pub fn begin(&mut self, tid: Tid, registers: &Registers, process: &Process) {
        if self.is_altered(tid) {
            return; // it began before
        }
        // The kernel refuses a limit that cannot be read.
        match limits::limit_ns(registers, process).ok().flatten() {
            Some(limit) => self.until_ns.insert(tid, now_ns() + limit),
            None => self.until_ns.remove(&tid),
        };
    }

    /// The thread is gone.
    pub fn forget(&mut self, tid: Tid) {
        self.until_ns.remove(&tid);
        self.told_of.remove(&tid);
        self.finish(tid);
    }

    /// The thread stops as it enters and leaves its next call, or no longer.
    pub fn tell_of(&mut self, tid: Tid, tell: bool) {
        if tell {
            self.told_of.insert(tid);
        } else {
            self.told_of.remove(&tid);
        }
    }

    /// Whether it stops there, for whatever reason.
    #[must_use]
    pub fn stops_at_call(&self, tid: Tid) -> bool {
        self.is_altered(tid) || self.told_of.contains(&tid)
    }

    /// Whether something of a call of the thread is kept.
    #[must_use]
    pub fn is_unfinished(&self, tid: Tid) -> bool {
        self.unfinished.contains_key(&tid)
    }

    /// Whether the thread must stop at the end of its call.
    #[must_use]
    pub fn is_altered(&self, tid: Tid) -> bool {
        self.altered.contains_key(&tid)
    }

    /// The thread stopped, and no handler is about to run: the call that was cut by it, if any, is taken up.
    /// True when `registers` changed.
    ///
    /// # Errors
    /// When the program is gone.
    pub fn take_up(&mut self, tid: Tid, registers: &mut Registers, process: &Process) -> Result<bool> {
        if self.is_altered(tid) {
            return self.go_on(tid, registers, process);
        }
        let (number, result) = (registers.orig_rax as i64, registers.rax as i64);
        let goes_on = number == libc::SYS_restart_syscall && result == ERESTART_RESTARTBLOCK;
        if goes_on || begins_again(registers, process)? {
            return Ok(false);
        }
        self.unfinished.remove(&tid);
        if number < 0 {
            return Ok(false);
        }
        match result {
            ERESTART_RESTARTBLOCK => {
                let until_ns = limits::left_ns(registers, process)?.map(|left| now_ns() + left);
                self.keep(Unfinished::wait(tid, number, until_ns));
                Ok(false)
            }
            // What was left at the stop stands where the limit stood. The stop itself takes time too.
            ERESTARTNOHAND if limits::tells(number) => match limits::limit_ns(registers, process)? {
                None => Ok(false),
                Some(left) => {
                    self.keep(Unfinished {
                        tells: true,
                        ..Unfinished::wait(tid, number, Some(now_ns() + left))
                    });
                    self.alter(tid, *registers, registers, process)
                }
            },
            ERESTARTSYS => match rest::reading(registers, process) {
                Some(Reading {
                    at_least: 0,
                    within_ns: Some(within),
                }) => {
                    self.keep(Unfinished {
                        wanted: 1,
                        ..Unfinished::wait(tid, number, Some(now_ns() + within))
                    });
                    self.alter(tid, *registers, registers, process)
                }
                _ => Ok(false),
            },
            // The descriptor is closed all the same.
            EINTR if number != libc::SYS_close => self.wait_on(tid, registers, process),
            done if done > 0 => match rest::wanted(registers, process)? {
                Some(Wanted { count, within_ns }) if (done as u64) < count => {
                    self.keep(Unfinished {
                        done: done as u64,
                        wanted: count,
                        ..Unfinished::wait(tid, number, within_ns.map(|within| now_ns() + within))
                    });
                    self.alter(tid, *registers, registers, process)
                }
                _ => Ok(false),
            },
            _ => Ok(false),
        }
    }

    /// A wait that ended with `EINTR` for no reason the program knows.
    fn wait_on(&mut self, tid: Tid, registers: &mut Registers, process: &Process) -> Result<bool> {
        let number = registers.orig_rax as i64;
        let Some(limit) = limits::limit_ns(registers, process)? else {
            registers.rax = ERESTARTNOHAND as u64; // the kernel begins it again
            return Ok(true);
        };
        let watched = crate::syscalls::call(number).is_some_and(crate::syscalls::Call::is_watched_wait);
        let known = watched.then(|| self.until_ns.remove(&tid)).flatten();
        let until_ns = Some(known.unwrap_or_else(|| now_ns() + limit));
        self.keep(Unfinished::wait(tid, number, until_ns));
        self.alter(tid, *registers, registers, process)
    }

    /// An altered call was stopped once more, before its end or at it.
    fn go_on(&mut self, tid: Tid, registers: &mut Registers, process: &Process) -> Result<bool> {
        let own = self.altered[&tid];
        match registers.rax as i64 {
            EINTR => self.alter(tid, own, registers, process),
            ERESTARTNOHAND if self.unfinished[&tid].tells => self.alter(tid, own, registers, process),
            _ => Ok(false), // the kernel begins it again with what we gave it
        }
    }

    /// An altered call ended. True when it ended for good: `registers` are the program's own again, with the
    /// whole result; otherwise it goes on.
    ///
    /// # Errors
    /// When the program is gone.
    pub fn end(&mut self, tid: Tid, registers: &mut Registers, process: &Process) -> Result<bool> {
        let (Some(own), Some(call)) = (self.altered.get(&tid).copied(), self.unfinished.get_mut(&tid)) else {
            return Ok(true);
        };
        let result = registers.rax as i64;
        let polls = call.until_ns.is_some() && matches!(Limit::of(&own), Some(Limit::Polled(_)));
        let whole = match result {
            ERESTARTNOHAND if call.tells => {
                self.alter(tid, own, registers, process)?;
                return Ok(false);
            }
            // What cut it before was noted as an error of the socket, which nothing begins again.
            ERESTARTSYS if call.number == libc::SYS_recvmmsg => {
                self.alter(tid, own, registers, process)?;
                return Ok(false);
            }
            ERESTARTSYS | ERESTARTNOINTR | ERESTARTNOHAND | ERESTART_RESTARTBLOCK => return Ok(false),
            EINTR => {
                self.alter(tid, own, registers, process)?;
                return Ok(false);
            }
            _ if call.is_timed_read() => match self.end_timed_read(tid, &own, registers, process)? {
                Some(done) => done as i64,
                None => return Ok(!self.is_altered(tid)),
            },
            0 if polls => -i64::from(libc::EAGAIN),
            _ if polls => {
                *registers = begun(&own);
                self.finish(tid);
                return Ok(true);
            }
            error if error < 0 && call.done > 0 => call.done as i64,
            part if part > 0
                && call.done + (part as u64) < call.wanted
                && !rest::is_time_up(&own, process)? =>
            {
                call.done += part as u64;
                self.alter(tid, own, registers, process)?;
                return Ok(false);
            }
            last => call.done as i64 + last,
        };
        // It is over: a count below what was asked for is not to be taken for a call that was cut. A reader that left sends
        // a signal with it (SIGPIPE).
        *registers = Registers {
            rax: whole as u64,
            orig_rax: NO_CALL,
            ..own
        };
        self.tell(tid, process)?;
        self.finish(tid);
        Ok(true)
    }

    /// A part of a read of a terminal with a time limit ended: a poll, or the read of a single byte. Its result, or
    /// `None` when something is begun with `registers`.
    fn end_timed_read(
        &mut self,
        tid: Tid,
        own: &Registers,
        registers: &mut Registers,
        process: &Process,
    ) -> Result<Option<u64>> {
        let Some(call) = self.unfinished.get_mut(&tid) else {
            return Ok(None);
        };
        let is_poll = registers.orig_rax as i64 == libc::SYS_ppoll;
        match (is_poll, registers.rax as i64) {
            (true, 0) => Ok(Some(call.done)),
            (true, _) if call.done == 0 => {
                *registers = begun(own);
                self.finish(tid);
                Ok(None)
            }
            (true, 1) => {
                *registers = rest::next_byte(own, call.done, process)?;
                Ok(None)
            }
            (false, 1) => {
                call.done += 1;
                let within_ns = rest::reading(own, process).and_then(|reading| reading.within_ns);
                match within_ns {
                    Some(within) if call.done < call.wanted => {
                        call.until_ns = Some(now_ns() + within);
                        self.alter(tid, *own, registers, process)?;
                        Ok(None)
                    }
                    _ => Ok(Some(call.done)),
                }
            }
            _ => Ok(Some(call.done)), // an error is told by the next read
        }
    }

    /// What is left of its time is written where the program looks for it, if the call does so.
    fn tell(&self, tid: Tid, process: &Process) -> Result<()> {
        let (Some(own), Some(slot)) = (self.altered.get(&tid), self.slots.get(&tid)) else {
            return Ok(());
        };
        if !self.unfinished.get(&tid).is_some_and(|call| call.tells) {
            return Ok(());
        }
        limits::copy(own, *slot, process)
            .map_err(|source| Error::target("cannot write what is left of a wait", source))
    }

    /// A handler is about to run in a thread: an altered call ends here. True when `registers` changed.
    ///
    /// # Errors
    /// When the program is gone.
    pub fn end_by_signal(&mut self, tid: Tid, registers: &mut Registers, process: &Process) -> Result<bool> {
        self.tell(tid, process)?;
        let (Some(own), Some(call)) = (self.altered.get(&tid), self.unfinished.get(&tid)) else {
            return Ok(false);
        };
        let result = match call.done {
            0 if call.is_timed_read() => ERESTARTSYS,
            0 => ERESTARTNOHAND,
            done => done as i64,
        };
        *registers = Registers {
            rax: result as u64,
            ..*own
        };
        self.finish(tid);
        Ok(true)
    }

    /// Whether a signal that comes to a thread is one that its call, which is yet to be begun again, blocks.
    ///
    /// # Errors
    /// When the program is gone.
    pub fn blocks(&self, tid: Tid, registers: &Registers, signal: i32, process: &Process) -> Result<bool> {
        const AGAIN: [i64; 3] = [ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND];
        let own = self.altered.get(&tid);
        let call = own.unwrap_or(registers);
        let Some(mask) = masks::of_call(call, process) else {
            return Ok(false);
        };
        let is_blocked = mask >> (signal - 1) & 1 == 1;
        let is_again = own.is_some() || AGAIN.contains(&(registers.rax as i64));
        Ok(is_blocked && (is_again || begins_again(registers, process)?))
    }

    /// The registers that a checkpoint keeps of a thread: the program's own, at a call that is begun again.
    #[must_use]
    pub fn kept(&self, tid: Tid, registers: &Registers) -> Registers {
        match (self.altered.get(&tid), self.unfinished.get(&tid)) {
            (Some(own), Some(_)) => Registers {
                rax: ERESTARTNOHAND as u64,
                ..*own
            },
            (None, Some(call)) => {
                let before = registers.rax as i64 == libc::SYS_restart_syscall;
                Registers {
                    orig_rax: call.number as u64,
                    rax: ERESTART_RESTARTBLOCK as u64,
                    rip: registers.rip + if before { SYSCALL_BYTES } else { 0 },
                    ..*registers
                }
            }
            _ => *registers,
        }
    }

    /// All of them, for the context.
    #[must_use]
    pub fn list(&self) -> Vec<Unfinished> {
        self.unfinished.values().cloned().collect()
    }

    /// A thread is put together again in a new process, with the `registers` that were kept of it; `call` was
    /// unfinished. `registers` become those it begins with.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn resume(
        &mut self,
        tid: Tid,
        registers: &mut Registers,
        call: Option<&Unfinished>,
        process: &Process,
    ) -> Result<()> {
        if registers.orig_rax as i64 >= 0 && registers.rax as i64 == ERESTART_RESTARTBLOCK {
            registers.rax = ERESTARTNOHAND as u64; // the block was the old process's
        }
        let Some(call) = call.filter(|call| call.until_ns.is_some() || call.done > 0) else {
            return Ok(());
        };
        self.keep(call.clone());
        self.alter(tid, *registers, registers, process).map(drop)
    }

    fn keep(&mut self, call: Unfinished) {
        self.unfinished.insert(call.tid, call);
    }

    fn finish(&mut self, tid: Tid) {
        self.unfinished.remove(&tid);
        self.altered.remove(&tid);
        self.slots.remove(&tid);
    }

    /// `registers` begin the unfinished call of a thread, whose own registers are `own`, with what is left of
    /// it.
    fn alter(
        &mut self,
        tid: Tid,
        own: Registers,
        registers: &mut Registers,
        process: &Process,
    ) -> Result<bool> {
        let own = Registers {
            orig_rax: self.unfinished[&tid].number as u64,
            ..own
        };
        let slot = self.slot(tid)?;
        let call = &self.unfinished[&tid];
        *registers = begun(&own);
        let placed = match call.until_ns {
            Some(until) => Limit::of(&own).map_or(Ok(()), |limit| {
                limit.set(registers, until.saturating_sub(now_ns()), slot, process)
            }),
            None => rest::set(registers, &own, call, slot, process),
        };
        placed.map_err(|source| Error::target("cannot take a call up again", source))?;
        self.altered.insert(tid, own);
        Ok(true)
    }

    /// The thread's slot, perhaps given to it now.
    fn slot(&mut self, tid: Tid) -> Result<u64> {
        if let Some(slot) = self.slots.get(&tid) {
            return Ok(*slot);
        }
        let taken: std::collections::BTreeSet<u64> = self.slots.values().copied().collect();
        let free = (SLOTS..SLOTS_END)
            .step_by(SLOT_BYTES)
            .find(|slot| !taken.contains(slot));
        let slot = free.ok_or_else(|| {
            Error::Unsupported(format!(
                "more than {} threads are in calls that a stop cut; checkpoint less often (--every)",
                taken.len()
            ))
        })?;
        self.slots.insert(tid, slot);
        Ok(slot)
    }
}

/// The registers that begin a call, from those at its end.
fn begun(own: &Registers) -> Registers {
    Registers {
        rax: own.orig_rax,
        orig_rax: u64::MAX,
        rip: own.rip - SYSCALL_BYTES,
        ..*own
    }
}

/// Whether a thread that stands at the end of a call may see that something cut it.
#[must_use]
pub fn may_be_cut(registers: &Registers) -> bool {
    let result = registers.rax as i64;
    result == EINTR || result > 0 && rest::may_be_short(registers)
}

/// Whether the thread stands before a call that the kernel begins again: what looks like a result is none.
fn begins_again(registers: &Registers, process: &Process) -> Result<bool> {
    let number = registers.rax as i64;
    if number != libc::SYS_restart_syscall && number != registers.orig_rax as i64 {
        return Ok(false);
    }
    let mut code = [0; 2];
    process
        .read(registers.rip, &mut code)
        .map_err(|source| Error::target("cannot read the program's code", source))?;
    Ok(code == SYSCALL)
}

/// The argument of a call, from 0, in its register.
fn argument(registers: &mut Registers, index: usize) -> &mut u64 {
    match index {
        0 => &mut registers.rdi,
        1 => &mut registers.rsi,
        2 => &mut registers.rdx,
        3 => &mut registers.r10,
        4 => &mut registers.r8,
        _ => &mut registers.r9,
    }
}
