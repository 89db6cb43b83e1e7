//! A descendant that is followed, and what a checkpoint reads of it.

use super::rest::{Rest, Subject};
use super::slumber::Slumber;
use crate::clocks::Clocks;
use crate::context::{self, Beside, StableState, Threads, VolatileState};
use crate::descendants::Descendants;
use crate::error::{Error, Result};
use crate::files::Ident;
use crate::kernel::{Dirty, Kernel, Running};
use crate::machine::Machine;
use crate::memory::{Maker, Memory, Parts};
use crate::objects::Objects;
use crate::threads::{self, Pending, ThreadRegisters, ThreadState};
use crate::timers::Dues;
use std::collections::BTreeMap;
use twinpage_core::Capture;
use twinpage_os::remote::Process;
use twinpage_os::trace::Tid;

/// A descendant that a checkpoint found alive, with what was read of it last.
pub(super) struct Followed {
    pub(super) process: Process,
    pub(super) memory: Memory,
    /// The process that made it, until its memory has been compared with that one's.
    pub(super) maker: Option<i32>,
    pub(super) kernel: Kernel,
    pub(super) stale: Dirty,
    /// It made a call that may have touched its descriptors.
    pub(super) touches: bool,
    pub(super) timers_set: bool,
    pub(super) steady: BTreeMap<Tid, ThreadState>,
    pub(super) writer: context::Writer,
    pub(super) rest: Rest,
    pub(super) slumber: Slumber,
    /// It was asleep when it was stopped.
    pub(super) was_asleep: bool,
    /// Signals wait for it.
    pub(super) has_pending: bool,
    /// Something happened in it since it was last asked for what only it can tell.
    pub(super) may_have_run: bool,
}

/// What is to be looked at of a followed descendant.
pub(super) struct Look<'a> {
    pub(super) tids: &'a [Tid],
    pub(super) moving: &'a [ThreadRegisters],
    pub(super) stopped: bool,
    pub(super) clocks: Clocks,
    pub(super) machine: &'a Machine,
    /// Whether alternate stacks may change without a call: sigaltstack(2), `SS_AUTODISARM`.
    pub(super) disarms: bool,
}

impl Followed {
    /// Its part of a checkpoint: a whole context.
    pub(super) fn look(
        &mut self,
        look: &Look<'_>,
        dues: &mut Dues,
        objects: &mut Objects,
        maker: Option<Maker<'_>>,
        into: &mut Capture,
    ) -> Result<Vec<u8>> {
        let (process, pid) = (&self.process, self.process.pid());
        if self.stale.options {
            self.kernel.read_program(pid)?;
        }
        let asked_outside = Dirty {
            directory: true, // others may move it
            ..self.stale
        };
        self.kernel.refresh(process, pid, asked_outside)?;
        if self.stale.settings {
            self.kernel.settings.leave_group();
        }
        // A call that is made in one that a signal stopped disturbs it.
        let may_have_run = !look.stopped || std::mem::take(&mut self.may_have_run);
        if may_have_run || asked_outside.actions {
            (self.kernel).refresh_actions(process, pid, asked_outside.actions)?;
        }
        self.stale = Dirty::NOTHING;
        check(pid, &self.kernel)?;
        (self.memory).capture(process, objects, maker, into, &mut Parts::default())?;
        self.rest.keep_doubtful(process);
        self.steady.retain(|tid, _| look.tids.contains(tid));
        for tid in look.tids {
            if look.disarms || !self.steady.contains_key(tid) {
                let steady = threads::steady(process, *tid, look.disarms)?;
                self.steady.insert(*tid, steady);
            }
        }
        let (timers, pending) = self.timers(look, dues)?;
        self.has_pending = !pending.is_empty() || look.stopped;
        self.writer.set_fixed(&StableState {
            pid,
            mappings: self.memory.mappings().to_vec(),
            marks: self.memory.marks().to_vec(),
            kernel: self.kernel.clone(),
            threads: self.steady.values().cloned().collect(),
            ..StableState::of_descendant(look.machine.clone())
        })?;
        let live = VolatileState {
            timers,
            stopped: look.stopped && !threads::is_to_continue(&pending),
            guards: self.memory.guards()?,
            pending,
            ..VolatileState::default()
        };
        let mut bytes = Vec::new();
        let threads = Threads {
            moving: look.moving,
            unfinished: &[],
        };
        let beside = Beside {
            pages: self.memory.pages().table(),
            ..Beside::default()
        };
        self.writer
            .write(&mut bytes, look.clocks, threads, &live, beside)?;
        Ok(bytes)
    }

    /// Whether it did nothing since the last checkpoint. One that cannot be looked at was killed.
    pub(super) fn rests(&mut self, descendants: &Descendants) -> bool {
        let pid = self.process.pid();
        let threads = descendants.threads().filter(|(of, ..)| *of == pid);
        let holds = self.rest.holds(&mut Subject {
            process: &self.process,
            memory: &mut self.memory,
            threads: threads.map(|(_, tid, state)| (tid, state)).collect(),
        });
        holds.unwrap_or(false)
    }

    /// Whether it was asleep, and no pending signal or timer will change it without waking it.
    pub(super) fn may_sleep(&self) -> bool {
        self.was_asleep && !self.has_pending && !self.timers_set && self.kernel.timers.is_empty()
    }

    /// What its timers have left, and the signals that wait beside them: a timer that rings between the two looks has
    /// both look again.
    fn timers(&mut self, look: &Look<'_>, dues: &mut Dues) -> Result<(Running, Vec<Pending>)> {
        let waiting = || threads::pending(look.tids.iter().copied());
        let mut pending = waiting()?;
        loop {
            let pid = self.process.pid();
            let mut timers = (self.kernel).running(&self.process, pid, self.timers_set, look.clocks)?;
            let after = match timers != Running::default() {
                true => waiting()?,
                false => pending.clone(),
            };
            if after == pending {
                self.timers_set = timers.interval_timers.iter().any(|timer| *timer != [0; 4]);
                timers.waiting = dues.waiting(&self.kernel.timers, &timers.timers, &pending, look.clocks);
                return Ok((timers, pending));
            }
            pending = after;
        }
    }
}

/// Whether the kernel state of a descendant is one that is made again.
fn check(pid: i32, kernel: &Kernel) -> Result<()> {
    let refused = |why: &str| Err(Error::Unsupported(why.into()));
    if kernel.directory_gone.is_some() {
        return refused("its working directory was removed");
    }
    let ident = |path: &std::path::Path| rustix::fs::stat(path).ok().map(|stat| Ident::from(&stat));
    let runs = ident(format!("/proc/{pid}/exe").as_ref());
    if runs.is_none() || runs != ident(&kernel.memory.exe) {
        return refused("its program file was removed or replaced");
    }
    Ok(())
}
