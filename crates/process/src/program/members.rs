//! What a checkpoint holds of the program's descendants, read while the whole tree stands still.
//!
//! * A descendant is followed from the first checkpoint that finds it alive: code for injected calls is planted in it
//!   and its writes are tracked. One that comes and goes between two checkpoints costs none of that.
//! * Its kernel state is read again where a call may have changed it, or where that takes no call in it.
//! * Descriptors are the tree's: open files are shared between processes, and listed once. So is shared memory: what each
//!   process wrote to it is noted as it is looked at, and what it holds is captured afterwards.
//! * What cannot be captured of it, or put together again, is an error that names it; the checkpoint waits then.
//! * A descendant that is killed meanwhile has the checkpoint wait as well, and is no error.

use super::asleep::{Sleepers, Slumber};
use super::identity::Identity;
use super::job::Job;
use super::rest::{Rest, Subject};
use super::{Program, group_of, is_gone};
use crate::clocks::Clocks;
use crate::command_line::of_process;
use crate::context::{self, Beside, MemberState, StableState, Threads, Tree, VolatileState};
use crate::descendants::{Descendants, State};
use crate::error::{Error, Result};
use crate::files::Ident;
use crate::kernel::{Dirty, Kernel, Running};
use crate::layout::Layout;
use crate::machine::Machine;
use crate::memory::{Memory, Parts};
use crate::objects::Objects;
use crate::pages::Pages;
use crate::syscalls::Watch;
use crate::threads::{self, Pending, ThreadRegisters, ThreadState};
use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use twinpage_core::{Capture, Piece};
use twinpage_os::inject::{self, ROOM};
use twinpage_os::remote::Process;
use twinpage_os::trace::{self, Tid, WatchedCall};

/// The descendants that are followed.
#[derive(Default)]
pub(crate) struct Members {
    list: BTreeMap<i32, Followed>,
    /// Pages of those that are followed no longer, until the next checkpoint forgets them.
    left: Vec<Pages>,
    pub(super) sleepers: Sleepers,
}

/// One of them.
pub(super) struct Followed {
    pub(super) process: Process,
    pub(super) memory: Memory,
    pub(super) kernel: Kernel,
    stale: Dirty,
    timers_set: bool,
    steady: BTreeMap<Tid, ThreadState>,
    writer: context::Writer,
    pub(super) rest: Rest,
    pub(super) slumber: Slumber,
    /// It was asleep when it was stopped.
    was_asleep: bool,
    /// Signals wait for it.
    has_pending: bool,
    /// Something happened in it since it was last asked for what only it can tell.
    may_have_run: bool,
}

/// A descendant of a checkpoint that is there again, its threads stopped.
pub(crate) struct Adopted {
    pub(crate) process: Process,
    pub(crate) tids: Vec<Tid>,
    pub(crate) memory: Memory,
    /// A signal stopped it.
    pub(crate) stopped: bool,
}

impl Members {
    /// It ended, or executes another program.
    pub(super) fn leave(&mut self, pid: i32) {
        if let Some(followed) = self.list.remove(&pid) {
            self.left.push(followed.memory.into_pages());
        }
        self.sleepers.wake(pid);
    }

    pub(super) fn get(&self, pid: i32) -> Option<&Followed> {
        self.list.get(&pid)
    }

    pub(super) fn get_mut(&mut self, pid: i32) -> Option<&mut Followed> {
        self.list.get_mut(&pid)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (i32, &Followed)> {
        self.list.iter().map(|(pid, followed)| (*pid, followed))
    }

    /// The memory of one, if it is followed.
    pub(crate) fn memory(&mut self, pid: i32) -> Option<&mut Memory> {
        self.list.get_mut(&pid).map(|followed| &mut followed.memory)
    }

    /// The memory of each.
    pub(crate) fn memories(&mut self) -> impl Iterator<Item = &mut Memory> {
        self.list.values_mut().map(|followed| &mut followed.memory)
    }

    /// A thread of one is about to make a call that changes what is known of it.
    pub(crate) fn about_to_change(&mut self, pid: i32, tid: Tid, watch: Watch) {
        let Some(followed) = self.list.get_mut(&pid) else {
            return;
        };
        match watch {
            Watch::Actions => followed.stale.actions = true,
            Watch::Break => followed.stale.brk = true,
            Watch::Membarrier => followed.stale.membarrier = true,
            Watch::Umask => followed.stale.umask = true,
            Watch::Timers => followed.stale.timers = true,
            Watch::IntervalTimers => followed.timers_set = true,
            Watch::Thread => drop(followed.steady.remove(&tid)),
            Watch::Control => {
                followed.stale.options = true;
                followed.steady.remove(&tid);
            }
            _ => {}
        }
    }

    /// The steady state of all threads is read again at the next stop.
    pub(super) fn renew_threads(&mut self) {
        for followed in self.list.values_mut() {
            followed.steady.clear();
            followed.stale.limits = true;
            followed.rest.disturb();
        }
        self.sleepers.wake_all();
    }

    /// A call that may truncate `file` is about to run: private copies of its pages may be gone, and nothing wakes those
    /// that have them.
    pub(crate) fn may_truncate(&mut self, file: Ident) {
        for followed in self.list.values_mut() {
            followed.memory.may_truncate(file);
            followed.rest.disturb();
        }
        self.sleepers.wake_all();
    }

    /// Something happened in one.
    pub(super) fn disturb(&mut self, pid: i32) {
        if let Some(followed) = self.list.get_mut(&pid) {
            followed.rest.disturb();
            followed.may_have_run = true;
        }
        self.sleepers.wake(pid);
    }

    /// A thread of one enters a call.
    pub(super) fn enters(&mut self, pid: i32, tid: Tid) {
        if let Some(followed) = self.list.get_mut(&pid) {
            followed.slumber.enters(tid);
        }
    }

    /// A thread of one is about to make a watched call.
    pub(crate) fn calls(&mut self, pid: i32, tid: Tid, call: &WatchedCall) {
        if let Some(followed) = self.list.get_mut(&pid) {
            followed.rest.calls(tid, call);
            followed.may_have_run = true;
        }
    }

    /// A thread of one is about to be let go with these registers.
    pub(super) fn let_go(&mut self, pid: i32, thread: &ThreadRegisters) {
        if let Some(followed) = self.list.get_mut(&pid) {
            followed.rest.let_go(thread);
        }
    }

    /// Whether all that live are what the last checkpoint holds of them. Each is looked at, also after one that is not:
    /// the first look of each finds what the second needs.
    pub(super) fn all_rest(&mut self, descendants: &Descendants) -> bool {
        let rests = |pid: i32| (self.list.get_mut(&pid)).is_some_and(|followed| followed.rests(descendants));
        let looked: Vec<bool> = descendants.living().into_iter().map(rests).collect();
        !looked.contains(&false)
    }

    /// These pieces must be captured again, whosever they are.
    pub(super) fn owe(&mut self, pieces: &[Piece]) {
        self.memories().for_each(|memory| memory.owe(pieces));
    }

    fn forget_left(&mut self, into: &mut Capture) {
        for mut pages in self.left.drain(..) {
            pages.forget(0..u64::MAX, &mut into.discarded, |_| true);
        }
    }

    fn add(&mut self, process: Process, memory: Memory) {
        let followed = Followed {
            memory,
            kernel: Kernel::default(),
            stale: Dirty::ALL,
            timers_set: true,
            steady: BTreeMap::new(),
            writer: context::Writer::default(),
            rest: Rest::default(),
            slumber: Slumber::default(),
            was_asleep: false,
            has_pending: false,
            may_have_run: true,
            process,
        };
        self.list.insert(followed.process.pid(), followed);
    }
}

/// What descendants have been found to be at a stop.
#[derive(Default)]
pub(super) struct Found {
    pub(super) members: Vec<(context::Member, Arc<[u8]>)>,
    pub(super) foreground: i32,
    pub(super) pages: u64,
}

/// What is to be looked at of a followed descendant.
struct Look<'a> {
    tids: &'a [Tid],
    moving: &'a [ThreadRegisters],
    stopped: bool,
    clocks: Clocks,
    machine: &'a Machine,
}

impl Program {
    /// The descendants of a checkpoint were made again: `living`, and those that had ended.
    pub(crate) fn adopt_all(&mut self, living: Vec<Adopted>, tree: &Tree) {
        for member in &tree.members {
            if let MemberState::Ended(ending) = member.state {
                self.descendants.restored(member.pid, member.parent, Err(ending));
            }
        }
        for adopted in living {
            let pid = adopted.process.pid();
            let member = tree.members.iter().find(|member| member.pid == pid);
            let parent = member.map_or(1, |member| member.parent);
            self.descendants.restored(pid, parent, Ok(&adopted.tids));
            for tid in adopted.tids.iter().filter(|_| adopted.stopped) {
                self.descendants.set_state(*tid, State::GroupStopped);
            }
            self.members.add(adopted.process, adopted.memory);
        }
    }

    /// Everything that a checkpoint holds of the descendants.
    pub(super) fn look_at_descendants(&mut self, into: &mut Capture, clocks: Clocks) -> Result<Found> {
        self.members.forget_left(into);
        let mut found = Found::default();
        let before = into.pieces.len();
        let living = self.descendants.living();
        let ended: Vec<_> = self.descendants.ended().collect();
        if living.is_empty() && ended.is_empty() {
            return Ok(found);
        }
        let machine = self.machine.clone();
        let known = self.members.sleepers.identity_now.take();
        let identity = known.map_or_else(|| Identity::of(self.process.thread()), Ok)?;
        for pid in living {
            let slept = self.members.sleepers.pids.contains(&pid);
            let kept = self
                .members
                .get(pid)
                .filter(|_| slept)
                .and_then(|followed| followed.slumber.kept());
            if let Some(kept) = kept {
                found.members.push(kept.clone());
                continue;
            }
            let looked = self.look_at_descendant(pid, into, clocks, &machine, &identity);
            found
                .members
                .push(looked.map_err(|error| of_process(pid, error))?);
        }
        for (pid, ending) in ended {
            // One that was waited for is none.
            if let Some(Place {
                state: b'Z', dumped, ..
            }) = Place::of(pid)
            {
                if dumped {
                    let why = "ended and left a core dump, which is told to its parent".to_owned();
                    return Err(of_process(pid, Error::Unsupported(why)));
                }
                let member = self.member(pid, MemberState::Ended(ending))?;
                found.members.push((member, Arc::default()));
            }
        }
        found.foreground = Place::of(self.process.thread()).map_or(0, |place| place.foreground.max(0));
        found.pages = (into.pieces.len() - before) as u64;
        Ok(found)
    }

    /// A descendant that stood still, and was killed.
    pub(super) fn killed_descendant(&self) -> Option<i32> {
        let stands = |state: State| matches!(state, State::Stopped | State::GroupStopped | State::Standing);
        let mut threads = self.descendants.threads().filter(|(.., state)| stands(*state));
        let killed = threads.find(|(_, tid, _)| is_gone(&trace::registers(*tid).map(drop)));
        killed.map(|(pid, ..)| pid)
    }

    fn look_at_descendant(
        &mut self,
        pid: i32,
        into: &mut Capture,
        clocks: Clocks,
        machine: &Machine,
        identity: &Identity,
    ) -> Result<(context::Member, Arc<[u8]>)> {
        let tids = self.descendants.tids_of(pid);
        if tids.first() != Some(&pid) {
            return Err(Error::Unsupported("its main thread ended before others".into()));
        }
        if Identity::of(pid)? != *identity {
            return Err(Error::Unsupported(
                "it has another identity than the program, or filters of its own".into(),
            ));
        }
        // A resume goes on with a job that its user stopped.
        let with_job = self.job != Job::Runs && group_of(pid) == Some(self.pid());
        let stopped = !with_job
            && (self.descendants.threads()).any(|(of, _, state)| of == pid && state == State::GroupStopped);
        let stop_untold = stopped && self.is_stop_untold(pid)?;
        self.follow(pid)?;
        if let Some(followed) = self.members.list.get_mut(&pid) {
            followed.was_asleep = followed.rest.is_asleep();
            followed.rest.begin();
        }
        let mut moving = Vec::with_capacity(tids.len());
        for tid in &tids {
            let mut registers = threads::moving(*tid)?;
            self.take_up(&mut registers)?;
            moving.push(registers);
        }
        let member = self.member(
            pid,
            MemberState::Lives {
                context_bytes: 0,
                stop_untold,
            },
        )?;
        let look = Look {
            tids: &tids,
            moving: &moving,
            stopped,
            clocks,
            machine,
        };
        let followed = self.members.list.get_mut(&pid);
        let followed = followed.ok_or_else(|| Error::Internal(format!("process {pid} is not followed")))?;
        let found = (member, followed.look(&look, &mut self.objects, into)?.into());
        self.put_to_sleep(&found, &moving, identity);
        Ok(found)
    }

    /// Plants code in a descendant, and begins to track its writes.
    fn follow(&mut self, pid: i32) -> Result<()> {
        if self.members.list.contains_key(&pid) {
            return Ok(());
        }
        let look = |source| Error::target("cannot look at a process of the program", source);
        let process = Process::open(pid).map_err(look)?;
        plant(&process, pid)?;
        let tracker = super::track(&process, pid)?;
        let layout = Layout::open(pid).map_err(look)?;
        let advice = self.descendants.get_mut(pid).map(|one| one.advice.clone());
        let pages = self.memory.pages().beside();
        let memory = Memory::of_descendant(layout, tracker, pages, advice.unwrap_or_default());
        self.members.add(process, memory);
        Ok(())
    }

    /// Whether the parent of a descendant that a signal stopped has not been told: asked in the parent, without taking
    /// the news. wait(2).
    fn is_stop_untold(&mut self, pid: i32) -> Result<bool> {
        const ASKED: i32 = libc::WSTOPPED | libc::WNOHANG | libc::WNOWAIT;
        let Some(Place { parent, .. }) = Place::of(pid) else {
            return Ok(false);
        };
        let ask = |process: &Process, tid: Tid| {
            process.write(ROOM, &[0; 128])?;
            let arguments = [libc::P_PID as u64, pid as u64, ROOM, ASKED as u64, 0];
            inject::call(process, tid, libc::SYS_waitid, &arguments)?;
            process.read_u64(ROOM)
        };
        let told = if parent == self.pid() {
            ask(&self.process, self.process.thread())
        } else if self.descendants.of_thread(parent) == Some(parent) {
            self.follow(parent)?;
            ask(&self.members.list[&parent].process, parent)
        } else {
            return Ok(false); // an orphan
        };
        let found = told.map_err(|source| Error::target("cannot ask what a process was told", source))?;
        Ok(found & 0xffff_ffff != 0)
    }

    /// Where a descendant is in the tree, if that can be made again.
    fn member(&self, pid: i32, state: MemberState) -> Result<context::Member> {
        let gone = || Error::NotYet(format!("process {pid} ends"));
        let place = Place::of(pid).ok_or_else(gone)?;
        let parent = match place.parent {
            1 => None,
            parent => Some(Place::of(parent).ok_or_else(gone)?),
        };
        if place.session != pid && parent.is_some_and(|parent| parent.session != place.session) {
            return Err(Error::Unsupported(
                "it is in another session than its parent, which began one later".into(),
            ));
        }
        Ok(context::Member {
            pid,
            parent: place.parent,
            group: place.group,
            session: place.session,
            exit_signal: place.exit_signal,
            state,
        })
    }
}

impl Followed {
    fn look(&mut self, look: &Look<'_>, objects: &mut Objects, into: &mut Capture) -> Result<Vec<u8>> {
        let (process, pid) = (&self.process, self.process.pid());
        if self.stale.options {
            self.kernel.read_program(pid)?;
        }
        let asked_outside = Dirty {
            directory: true, // others may move it
            ..self.stale
        };
        self.kernel.refresh(process, pid, asked_outside)?;
        self.stale = Dirty::NOTHING;
        // A call that is made in one that a signal stopped disturbs it.
        if !look.stopped || std::mem::take(&mut self.may_have_run) {
            self.kernel.refresh_fault_action(process, pid)?;
        }
        check(pid, &self.kernel)?;
        (self.memory).capture(process, objects, into, &mut Parts::default())?;
        self.rest.keep_doubtful(process);
        self.steady.retain(|tid, _| look.tids.contains(tid));
        for tid in look.tids {
            if !self.steady.contains_key(tid) {
                self.steady.insert(*tid, threads::steady(process, *tid)?);
            }
        }
        let (timers, pending) = self.timers(look)?;
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
        self.was_asleep && !self.has_pending && !self.timers_set
    }

    /// What its timers have left, and the signals that wait beside them: a timer that rings between the two looks has
    /// both look again.
    fn timers(&mut self, look: &Look<'_>) -> Result<(Running, Vec<Pending>)> {
        let waiting = || threads::pending(look.tids.iter().copied());
        let mut pending = waiting()?;
        loop {
            let pid = self.process.pid();
            let timers = (self.kernel).running(&self.process, pid, self.timers_set, look.clocks)?;
            let after = match self.timers_set {
                true => waiting()?,
                false => pending.clone(),
            };
            if after == pending {
                self.timers_set = timers.interval_timers.iter().any(|timer| *timer != [0; 4]);
                return Ok((timers, pending));
            }
            pending = after;
        }
    }
}

/// Plants the code for injected calls, where it is not yet.
pub(crate) fn plant(process: &Process, tid: Tid) -> Result<()> {
    if inject::is_planted(process) {
        return Ok(());
    }
    inject::plant(process, tid).map_err(|source| match source.raw_os_error() {
        Some(libc::EEXIST) => Error::Unsupported("it uses memory at 20000, where calls are planted".into()),
        _ => Error::target("cannot place code in a process of the program", source),
    })
}

/// Whether the kernel state of a descendant is one that is made again.
fn check(pid: i32, kernel: &Kernel) -> Result<()> {
    let refused = |why: &str| Err(Error::Unsupported(why.into()));
    if !kernel.timers.is_empty() {
        return refused("it has a POSIX timer (timer_create), which is captured of the program alone");
    }
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

/// Whether a process, or its main thread alone, ended and was not waited for.
pub(super) fn has_ended(pid: i32) -> bool {
    Place::of(pid).is_some_and(|place| place.state == b'Z')
}

/// Where a process is in the tree: proc_pid_stat(5).
#[derive(Clone, Copy, Debug)]
struct Place {
    state: u8,
    parent: i32,
    group: i32,
    session: i32,
    foreground: i32,
    exit_signal: i32,
    /// It ended, and left a core dump.
    dumped: bool,
}

impl Place {
    /// `None` when it is gone.
    fn of(pid: i32) -> Option<Place> {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        // The name is in brackets and may hold any byte.
        let after_name = stat.iter().rposition(|byte| *byte == b')')?;
        Place::parse(std::str::from_utf8(&stat[after_name + 1..]).ok()?)
    }

    fn parse(text: &str) -> Option<Place> {
        const CORE: i32 = 0x80;
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        // Fields are numbered from 1; the first word is the third.
        let number = |field: usize| words.get(field - 3)?.parse::<i32>().ok();
        Some(Place {
            state: *words.first()?.as_bytes().first()?,
            parent: number(4)?,
            group: number(5)?,
            session: number(6)?,
            foreground: number(8)?,
            exit_signal: number(38)?,
            dumped: number(52)? & CORE != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_understood() {
        let own = Place::of(std::process::id() as i32).unwrap();
        assert_eq!((own.exit_signal, own.dumped), (libc::SIGCHLD, false));
        let line = " Z 7 8 9 0 10 4228100 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 139";
        let place = Place::parse(line).unwrap();
        assert_eq!((place.state, place.parent, place.group), (b'Z', 7, 8));
        assert_eq!((place.session, place.foreground, place.exit_signal), (9, 10, 17));
        assert!(place.dumped && Place::parse(" Z 7").is_none());
    }
}
