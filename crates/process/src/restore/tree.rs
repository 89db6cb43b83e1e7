//! The processes of a tree, made before any of them is what it was: copies of the first one, each with its id, its
//! parent, its session and its process group.
//!
//! * A process is made by its parent; an orphan by a **helper**, which ends, so that init becomes the parent.
//! * A session leader begins its session when it is made: what it makes then is in it. An orphan is made from within its
//!   session; where the leader of that has ended, the helper leads it.
//! * A process group whose leader has ended is made by a helper with its id.
//! * Those that had ended come to the same end when all are there, and wait for their parents. The signals of that are
//!   taken away: those that a process had not been given yet are given again with the others.

use super::in_process::{words, write};
use crate::context::{Context, Ending, Member, MemberState};
use crate::error::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use twinpage_os::inject::{self, Call, ROOM};
use twinpage_os::remote::{self, Process};
use twinpage_os::trace::{self, Status, Tid};

/// Where injected code looks for a set of signals and a time.
const SIGNALS: u64 = ROOM + 256;

/// Makes all processes of `context` from the first one, which is stopped, and still a copy of this one. Returns the
/// descendants that live in the order of their making: parents before children.
pub(super) fn grow(first: &Process, context: &Context) -> Result<Vec<Process>> {
    let members = &context.tree.members;
    let mut growing = Growing::new(first, context);
    let mut left: Vec<&Member> = members.iter().collect();
    while !left.is_empty() {
        let before = left.len();
        let mut later = Vec::new();
        for member in left {
            if !growing.make(member)? {
                later.push(member);
            }
        }
        if later.len() == before {
            return Err(Error::Damaged("context: processes that nothing can make".into()));
        }
        left = later;
    }
    growing.group(members)?;
    growing.end_helpers()?;
    for member in members {
        if let MemberState::Ended(ending) = member.state {
            growing.end(member, ending)?;
        }
    }
    let mut living = Vec::new();
    for pid in std::mem::take(&mut growing.order) {
        let process = growing.made.remove(&pid);
        living.extend(process.filter(|_| members.iter().any(|member| member.pid == pid && member.lives())));
    }
    Ok(living)
}

/// The first process had ended: it ends again once it has made the others, before these are what they were.
pub(super) fn end_first(first: &Process) -> Result<()> {
    exit(first, 0)
}

/// Forgets signals that the making of others left in a process: each thread of it blocks all of them meanwhile.
pub(super) fn forget_signals(process: &Process) -> Result<()> {
    loop {
        write(process, SIGNALS, &words(&[u64::MAX, 0, 0]))?;
        let take = [SIGNALS, 0, SIGNALS + 8, 8];
        match inject::call(process, process.pid(), libc::SYS_rt_sigtimedwait, &take) {
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => return Ok(()),
            Err(source) => return Err(Error::target("cannot take a signal away", source)),
        }
    }
}

/// Has a process stop as a signal had stopped it. Its parent, which is as it will be but for its signals, has the news
/// if it had not.
pub(super) fn stop_again(process: &Process, tids: &[Tid]) -> Result<()> {
    let failed = |source| Error::target("cannot stop a process as it was", source);
    trace::send_stop(process.pid()).map_err(failed)?;
    for tid in tids {
        trace::go_on(*tid, 0).map_err(failed)?;
    }
    for tid in tids {
        loop {
            match trace::wait(*tid, true).map_err(failed)?.map(|(_, status)| status) {
                Some(Status::GroupStop(_)) => break,
                Some(Status::Signal(signal)) => trace::go_on(*tid, signal).map_err(failed)?,
                Some(Status::Interrupted) => trace::go_on(*tid, 0).map_err(failed)?,
                Some(status) if status.is_end() => return Err(Error::Killed),
                Some(status) => {
                    return Err(Error::Internal(format!("process {tid} stopped with {status:?}")));
                }
                None => {}
            }
        }
    }
    Ok(())
}

/// Takes the news of the stops that the parent `process` knew of: wait(2).
pub(super) fn take_stops(process: &Process, context: &Context) -> Result<()> {
    let members = context.tree.members.iter();
    for member in members.filter(|member| member.parent == process.pid()) {
        let MemberState::Lives { stop_untold, .. } = member.state else {
            continue;
        };
        let own = context.members.iter().find(|own| own.fixed.pid == member.pid);
        if !stop_untold && own.is_some_and(|own| own.live.stopped) {
            let options = (libc::WSTOPPED | libc::WNOHANG) as u64;
            let arguments = [libc::P_PID as u64, member.pid as u64, ROOM, options, 0];
            inject::call(process, process.pid(), libc::SYS_waitid, &arguments)
                .map_err(|source| Error::target("cannot take the news of a stop", source))?;
        }
    }
    Ok(())
}

struct Growing<'a> {
    first: &'a Process,
    context: &'a Context,
    made: BTreeMap<i32, Process>,
    order: Vec<i32>,
    /// Helpers, each with its maker, to end and be waited for.
    helpers: BTreeMap<i32, (Process, i32)>,
    /// Ids that no helper may have.
    taken: BTreeSet<i32>,
}

impl<'a> Growing<'a> {
    fn new(first: &'a Process, context: &'a Context) -> Growing<'a> {
        let mut taken: BTreeSet<i32> = (context.processes())
            .flat_map(|context| context.threads.iter().map(|thread| thread.tid))
            .collect();
        for member in &context.tree.members {
            taken.extend([member.pid, member.group, member.session]);
        }
        Growing {
            first,
            context,
            made: BTreeMap::new(),
            order: Vec::new(),
            helpers: BTreeMap::new(),
            taken,
        }
    }

    fn get(&self, pid: i32) -> Option<&Process> {
        if pid == self.first.pid() {
            return Some(self.first);
        }
        let helper = || self.helpers.get(&pid).map(|(helper, _)| helper);
        self.made.get(&pid).or_else(helper)
    }

    /// Makes a process, if what makes it is there.
    fn make(&mut self, member: &Member) -> Result<bool> {
        let leads = member.session == member.pid;
        let maker = match member.parent {
            1 if leads => self.helper(self.first.pid(), None)?,
            1 => match self.get(member.session).map(Process::pid) {
                Some(leader) if self.helpers.contains_key(&leader) => leader,
                Some(leader) => self.helper(leader, None)?,
                None if self.will_be_made(member.session) => return Ok(false),
                None => self.helper(self.first.pid(), Some(member.session))?,
            },
            parent => parent,
        };
        let Some(maker) = self.get(maker) else {
            return Ok(false);
        };
        let process = fork(maker, member.pid, member.exit_signal)?;
        if leads {
            begin_session(&process)?;
        }
        self.order.push(member.pid);
        self.made.insert(member.pid, process);
        Ok(true)
    }

    fn will_be_made(&self, pid: i32) -> bool {
        self.context.tree.members.iter().any(|member| member.pid == pid)
    }

    /// A helper, made by `maker`: the leader of `session`, or a free id in that of its maker.
    fn helper(&mut self, maker: i32, session: Option<i32>) -> Result<i32> {
        let pid = match session {
            Some(session) => session,
            None => (self.first.pid() + 1..)
                .find(|pid| !self.taken.contains(pid))
                .unwrap_or_default(),
        };
        let by = self
            .get(maker)
            .ok_or_else(|| Error::Internal(format!("process {maker} is not there")))?;
        let process = fork(by, pid, 0)?;
        if session.is_some() {
            begin_session(&process)?;
        }
        self.taken.insert(pid);
        self.helpers.insert(pid, (process, maker));
        Ok(pid)
    }

    /// Puts every process into its group: leaders first.
    fn group(&mut self, members: &[Member]) -> Result<()> {
        for member in members {
            let leads_session = member.session == member.pid;
            if member.group == member.pid && !leads_session {
                join(self.made.get(&member.pid), 0)?;
            }
        }
        for member in members {
            let group = member.group;
            if group == member.pid || group == member.session {
                continue; // done, or where it was made
            }
            if self.get(group).is_none() {
                self.lead_group(group, member.session)?;
            }
            join(self.made.get(&member.pid), group)?;
        }
        Ok(())
    }

    /// A helper that leads a group whose leader has ended, in its session.
    fn lead_group(&mut self, group: i32, session: i32) -> Result<()> {
        let maker = self.get(session).map_or(self.first.pid(), Process::pid);
        let by = self
            .get(maker)
            .ok_or_else(|| Error::Internal(format!("process {maker} is not there")))?;
        let process = fork(by, group, 0)?;
        join(Some(&process), 0)?;
        self.helpers.insert(group, (process, maker));
        Ok(())
    }

    /// Helpers end, and those that made them wait for them: first those that helpers made.
    fn end_helpers(&mut self) -> Result<()> {
        while !self.helpers.is_empty() {
            let by_helper = |(_, maker): &(Process, i32)| self.helpers.contains_key(maker);
            let first = self.helpers.iter().find(|(_, helper)| by_helper(helper));
            let next = first.or(self.helpers.iter().next()).map(|(pid, _)| *pid);
            let Some((process, maker)) = next.and_then(|pid| self.helpers.remove(&pid)) else {
                break;
            };
            exit(&process, 0)?;
            let maker = self
                .get(maker)
                .ok_or_else(|| Error::Internal(format!("process {maker} is not there")))?;
            let wait = [process.pid() as u64, 0, libc::__WALL as u64, 0];
            inject::call(maker, maker.pid(), libc::SYS_wait4, &wait)
                .map_err(|source| Error::target("cannot wait for a helper", source))?;
        }
        Ok(())
    }

    fn end(&mut self, member: &Member, ending: Ending) -> Result<()> {
        let process = self.made.get(&member.pid);
        let process = process.ok_or_else(|| Error::Internal(format!("{member:?} is not there")))?;
        match ending {
            Ending::Exit(code) => exit(process, code),
            Ending::Signal(signal) => die(process, signal),
        }
    }
}

/// Has a stopped process make another, with everything of its own.
fn fork(maker: &Process, pid: i32, exit_signal: i32) -> Result<Process> {
    let made = |source| Error::target(format!("cannot make process {pid}"), source);
    // struct clone_args: the fifth word is the signal, the last but two name the id.
    let mut arguments = [0; 11];
    arguments[4] = exit_signal as u64;
    arguments[8] = ROOM + 128;
    arguments[9] = 1;
    write(maker, ROOM, &words(&arguments))?;
    write(maker, ROOM + 128, &pid.to_le_bytes())?;
    inject::call(maker, maker.pid(), libc::SYS_clone3, &[ROOM, 88]).map_err(made)?;
    trace::await_first_stop(pid).map_err(made)?;
    trace::end_freely(pid).map_err(made)?;
    Process::open(pid).map_err(made)
}

fn begin_session(process: &Process) -> Result<()> {
    let begun = inject::call(process, process.pid(), libc::SYS_setsid, &[]);
    begun
        .map(drop)
        .map_err(|source| Error::target("cannot begin a session", source))
}

/// Puts a process into a group; 0: into its own.
fn join(process: Option<&Process>, group: i32) -> Result<()> {
    let Some(process) = process else {
        return Ok(());
    };
    let mut call = [Call::new(libc::SYS_setpgid, &[0, group as u64])];
    let joined = inject::run(process, process.pid(), &mut call).and_then(|()| call[0].result());
    joined.map(drop).map_err(|source| {
        let what = format!("cannot put process {} into group {group}", process.pid());
        Error::target(what, source)
    })
}

fn exit(process: &Process, code: i32) -> Result<()> {
    let pid = process.pid();
    inject::end_thread(process, pid, code).map_err(cannot_end)?;
    await_end(pid)
}

/// By a signal that nothing handles, and without a dump.
fn die(process: &Process, signal: i32) -> Result<()> {
    let pid = process.pid();
    let (_, hard) = remote::limit(pid, libc::RLIMIT_CORE).map_err(cannot_end)?;
    remote::set_limit(pid, libc::RLIMIT_CORE, 0, hard).map_err(cannot_end)?;
    trace::set_signal_mask(pid, 0).map_err(cannot_end)?;
    twinpage_os::signals::send(pid, signal).map_err(cannot_end)?;
    match trace::go_on(pid, 0) {
        Err(error) if error.raw_os_error() != Some(libc::ESRCH) => Err(cannot_end(error)),
        _ => await_end(pid), // killed at once, perhaps
    }
}

fn cannot_end(source: std::io::Error) -> Error {
    Error::target("cannot end a process as it had ended", source)
}

fn await_end(pid: i32) -> Result<()> {
    loop {
        match trace::wait(pid, true)
            .map_err(cannot_end)?
            .map(|(_, status)| status)
        {
            Some(Status::Exited(_) | Status::Killed(_)) => return Ok(()),
            Some(Status::Signal(signal)) => trace::go_on(pid, signal).map_err(cannot_end)?,
            Some(_) => trace::go_on(pid, 0).map_err(cannot_end)?,
            None => {}
        }
    }
}
