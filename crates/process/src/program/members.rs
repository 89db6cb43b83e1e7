//! What a checkpoint holds of the program's descendants, read while the whole tree stands still.
//!
//! * A descendant is followed from the first checkpoint that finds it alive: code for injected calls is planted in it
//!   and its writes are tracked. One that comes and goes between two checkpoints costs none of that.
//! * Its kernel state is read again where a call may have changed it, or where that takes no call in it.
//! * Descriptors are the tree's: open files are shared between processes, and listed once. So is shared memory: what each
//!   process wrote to it is noted as it is looked at, and what it holds is captured afterwards.
//! * What cannot be captured of it, or put together again, is an error that names it; the checkpoint waits then.
//! * A descendant that is killed meanwhile has the checkpoint wait as well, and is no error.

use super::asleep::Sleepers;
use super::followed::{Followed, Look};
use super::identity::Identity;
use super::job::Job;
use super::place::Place;
use super::rest::Rest;
use super::slumber::Slumber;
use super::{Program, group_of, not_planted};
use crate::clocks::Clocks;
use crate::command_line::of_process;
use crate::context::{self, MemberState, Tree};
use crate::descendants::{Descendants, State};
use crate::error::{Error, Result};
use crate::files::Ident;
use crate::kernel::{Dirty, Kernel};
use crate::layout::Layout;
use crate::machine::Machine;
use crate::memory::{Maker, Memory};
use crate::pages::Pages;
use crate::syscalls::Watch;
use crate::threads::{self, ThreadRegisters};
use crate::timers::Dues;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use twinpage_core::{Buffer, Capture};
use twinpage_os::inject::{self, ROOM};
use twinpage_os::remote::Process;
use twinpage_os::siginfo;
use twinpage_os::trace::{self, Tid, WatchedCall};

/// The descendants that are followed.
#[derive(Default)]
pub(crate) struct Members {
    list: BTreeMap<i32, Followed>,
    /// Pages of those that are followed no longer, until the next checkpoint forgets them.
    left: Vec<Pages>,
    /// When the POSIX timers of each ring, from the call on that sets the first.
    dues: BTreeMap<i32, Dues>,
    /// A process of the tree wrote to its files in `/proc`: what it set is inherited by those that it makes.
    has_settings: bool,
    /// A thread of the tree set an alternate stack that a delivery disarms, which those that it makes inherit: at each stop
    /// that of all threads is read.
    pub(crate) disarms: bool,
    pub(super) sleepers: Sleepers,
}

/// A descendant of a checkpoint that is there again, its threads stopped.
pub(crate) struct Adopted {
    pub(crate) process: Process,
    pub(crate) tids: Vec<Tid>,
    pub(crate) memory: Memory,
    /// When its timers ring.
    pub(crate) dues: Dues,
    /// A signal stopped it.
    pub(crate) stopped: bool,
}

impl Members {
    /// It ended, or executes another program.
    pub(super) fn leave(&mut self, pid: i32) {
        if let Some(followed) = self.list.remove(&pid) {
            self.left.push(followed.memory.into_pages());
        }
        self.dues.remove(&pid);
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

    /// When the timers of one ring.
    pub(crate) fn dues(&mut self, pid: i32) -> &mut Dues {
        self.dues.entry(pid).or_default()
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
        followed.touches |= !watch.leaves_descriptors();
        match watch {
            Watch::Actions => followed.stale.actions = true,
            Watch::Break => followed.stale.brk = true,
            Watch::Membarrier => followed.stale.membarrier = true,
            Watch::Umask => followed.stale.umask = true,
            Watch::Timers => followed.stale.timers = true,
            Watch::IntervalTimers => followed.timers_set = true,
            Watch::Thread => drop(followed.steady.remove(&tid)),
            Watch::Control | Watch::Identity => {
                followed.stale.options = true;
                followed.steady.remove(&tid);
            }
            _ => {}
        }
    }

    /// One is about to make a call that gives it a descriptor, perhaps.
    pub(crate) fn may_touch(&mut self, pid: i32) {
        if let Some(followed) = self.list.get_mut(&pid) {
            followed.touches = true;
        }
    }

    /// Those that sleep, or made no call that touches a descriptor since [`Self::were_listed`].
    pub(super) fn untouched(&self) -> BTreeSet<i32> {
        let is_untouched =
            |pid: &i32, followed: &Followed| !followed.touches || self.sleepers.pids.contains(pid);
        let untouched = self
            .list
            .iter()
            .filter(|(pid, followed)| is_untouched(pid, followed));
        untouched.map(|(pid, _)| *pid).collect()
    }

    /// The descriptors of all were looked at. A call in which one sleeps ends without another stop, and may give it one.
    pub(super) fn were_listed(&mut self) {
        for (pid, followed) in &mut self.list {
            followed.touches = self.sleepers.pids.contains(pid);
        }
    }

    /// The program or a descendant, the `caller`, wrote to its files in `/proc`.
    pub(crate) fn renew_settings(&mut self, caller: Option<i32>) {
        self.has_settings = true;
        if let Some(followed) = caller.and_then(|pid| self.list.get_mut(&pid)) {
            followed.stale.settings = true;
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

    /// Begins pre-copy for the processes that may have run. True when there are pages to copy.
    pub(super) fn begin_precopy(&mut self, spare: &mut Vec<Buffer>) -> bool {
        let asleep = &self.sleepers.pids;
        let mut any = false;
        for (pid, followed) in self.list.iter_mut().filter(|(pid, _)| !asleep.contains(pid)) {
            any |= followed.memory.begin_precopy(*pid, spare);
        }
        any
    }

    /// Copies some more pages. True when some are left.
    pub(super) fn precopy(&mut self) -> bool {
        (self.list.values_mut()).any(|followed| followed.memory.precopy(&followed.process))
    }

    /// Follows none any more, which closes their files. The next checkpoint captures each of them whole.
    pub(super) fn follow_none(&mut self) {
        for followed in std::mem::take(&mut self.list).into_values() {
            self.left.push(followed.memory.into_pages());
        }
        self.sleepers.wake_all();
    }

    /// Takes one out, to be looked at beside its maker.
    fn take(&mut self, pid: i32) -> Result<Followed> {
        let followed = self.list.remove(&pid);
        followed.ok_or_else(|| Error::Internal(format!("process {pid} is not followed")))
    }

    fn forget_left(&mut self, into: &mut Capture) {
        for mut pages in self.left.drain(..) {
            pages.forget(0..u64::MAX, &mut into.discarded, |_| true);
        }
    }

    fn add(&mut self, process: Process, memory: Memory, maker: Option<i32>) {
        let followed = Followed {
            memory,
            maker,
            kernel: Kernel::default(),
            stale: Dirty {
                settings: self.has_settings,
                ..Dirty::ALL
            },
            touches: true,
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

impl Program {
    /// The descendants of a checkpoint were made again: `living`, and those that had ended.
    pub(super) fn adopt_all(&mut self, living: Vec<Adopted>, tree: &Tree) {
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
            *self.members.dues(pid) = adopted.dues;
            self.members.add(adopted.process, adopted.memory, None);
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
        let identity = known.map_or_else(|| self.identity(), Ok)?;
        let mut captured = BTreeSet::new();
        for pid in living {
            let slept = self.members.sleepers.pids.contains(&pid);
            let kept = self
                .members
                .get(pid)
                .filter(|_| slept)
                .and_then(|followed| followed.slumber.kept());
            if let Some(kept) = kept {
                found.members.push(kept.clone());
                captured.insert(pid);
                continue;
            }
            let looked = self.look_at_descendant(pid, &captured, into, clocks, &machine, &identity);
            captured.insert(pid);
            found
                .members
                .push(looked.map_err(|error| of_process(pid, error))?);
        }
        for (pid, ending) in ended {
            // One that was waited for is none.
            if let Some(Place {
                state: 'Z', dumped, ..
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
        let first = self
            .threads
            .first()
            .and_then(|_| Place::of(self.process.thread()));
        found.foreground = first.map_or(0, |place| place.foreground.max(0));
        found.pages = (into.pieces.len() - before) as u64;
        Ok(found)
    }

    /// A descendant that stood still, and was killed.
    pub(super) fn killed_descendant(&self) -> Option<i32> {
        let stands = |state: State| matches!(state, State::Stopped | State::GroupStopped | State::Standing);
        let mut threads = self.descendants.threads().filter(|(.., state)| stands(*state));
        let killed = threads.find(|(_, tid, _)| trace::stands_no_longer(*tid));
        killed.map(|(pid, ..)| pid)
    }

    fn look_at_descendant(
        &mut self,
        pid: i32,
        captured: &BTreeSet<i32>,
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
                "it has other limits of capabilities than the program, or filters of its own".into(),
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
            disarms: self.members.disarms,
        };
        let mut followed = self.members.take(pid)?;
        let maker = match followed.maker.take() {
            Some(maker) if maker == self.process.pid() && self.ending.is_none() => Some(Maker {
                process: &self.process,
                memory: &mut self.memory,
            }),
            // One that is looked at later may write to what would be shared.
            Some(maker) if captured.contains(&maker) => {
                let maker = self.members.list.get_mut(&maker);
                maker.map(|maker| Maker {
                    process: &maker.process,
                    memory: &mut maker.memory,
                })
            }
            _ => None,
        };
        let dues = self.members.dues.entry(pid).or_default();
        let bytes = followed.look(&look, dues, &mut self.objects, maker, into);
        self.members.list.insert(pid, followed);
        let found = (member, bytes?.into());
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
        self.members.add(process, memory, self.descendants.maker(pid));
        Ok(())
    }

    /// Whether the parent of a descendant that a signal stopped has not been told: asked in the parent, without taking
    /// the news. wait(2).
    fn is_stop_untold(&mut self, pid: i32) -> Result<bool> {
        const ASKED: i32 = libc::WSTOPPED | libc::WNOHANG | libc::WNOWAIT;
        let Some(Place { parent, .. }) = Place::of(pid) else {
            return Ok(false);
        };
        if self.members.sleepers.pids.contains(&parent) {
            self.members.disturb(parent);
            return Err(Error::NotYet(format!(
                "process {parent}, which sleeps, is to be asked for its news"
            )));
        }
        let ask = |process: &Process, tid: Tid| {
            process.write(ROOM, &[0; siginfo::SIZE])?;
            let arguments = [libc::P_PID as u64, pid as u64, ROOM, ASKED as u64, 0];
            inject::call(process, tid, libc::SYS_waitid, &arguments)?;
            process.read_u64(ROOM)
        };
        let told = if parent == self.pid() && self.ending.is_none() {
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
        if pid == self.pid() {
            let why = "it has the id that the first process of the program had, which has ended";
            return Err(Error::Unsupported(why.into()));
        }
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

/// Plants the code for injected calls, where it is not yet.
pub(crate) fn plant(process: &Process, tid: Tid) -> Result<()> {
    if inject::is_planted(process) {
        return Ok(());
    }
    inject::plant(process, tid).map_err(not_planted)
}
