//! Descendants that sleep through a checkpoint: they are not stopped, and what the last one held of them holds again.
//!
//! * A descendant that was asleep before a stop, and waits in a call that does nothing until it ends, is let go so that
//!   each thread stops as it enters that call again and as it leaves it. While none has left it, none has run in the
//!   program's own code: also one that only counts in a register would be seen.
//! * Before the stop its threads are seen asleep, and the kernel's count of their turns on a processor is kept
//!   (`rest.rs`). All others stop; what they left to be told is heard. When everything has been looked at, the counts are
//!   the same: the descendant did not run meanwhile. From then on one that wakes stops as it leaves its call, before it
//!   does anything that another process or a file would show.
//! * A stop that a sleeper woke in comes to nothing, and is made again without it. While a signal has stopped one of the
//!   tree, or the program is to stand still for longer, none is left alone.
//!
//! What changes of a process that does not run, and where that is noticed:
//!
//! | what | changed by | noticed |
//! | --- | --- | --- |
//! | signals that wait | kill(2) | none is blocked and no timer runs, so each wakes it, and is told |
//! | stopped by a signal, continued, killed | kill(2) | the same |
//! | a child ends | itself | its signal wakes the parent, also where it is ignored |
//! | memory | process_vm_writev(2), ptrace(2) | refused in the tree; from outside: written pages are kept when it runs again |
//! | pages of mapped files | truncate(2) | the call is watched, and wakes all |
//! | shared memory | any process that maps it | it is captured with the objects, and what others wrote is found in them |
//! | its wait in shared memory ends | futex(2) of any that maps it | such a thread sleeps at the end of the stop, too |
//! | names of mapped files, program, directory | rename(2), unlink(2), of anyone | each name is looked up at each stop |
//! | process group | setpgid(2) of its parent | asked for at each stop |
//! | parent, and the signal at its end | the parent's end | is told, and wakes its children |
//! | session of its parent | setsid(2) | asked for at each stop |
//! | identity of the program | setuid(2) and others | compared at each stop |
//! | limits, niceness, processors | prlimit(2), setpriority(2), sched_setaffinity(2) | the call is watched, and wakes all |
//! | open files: flags, locks, offsets, names | any process that shares one | one descriptor of each is looked at at each stop, but of devices and the like that only sleepers have |
//! | what is in pipes, sockets, event counters, timers, poll descriptors | any process that shares one | the same |

use super::followed::Followed;
use super::identity::Identity;
use super::rest::is_asleep;
use super::slumber::Slumber;
use super::{Program, group_of};
use crate::context::Member;
use crate::descendants::{Descendants, State};
use crate::error::Result;
use crate::files::Ident;
use crate::layout::Kind;
use crate::stdio::Stdio;
use crate::threads::ThreadRegisters;
use rustix::process::Pid;
use rustix::termios::{LocalModes, SpecialCodeIndex};
use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use twinpage_os::remote::Process;
use twinpage_os::socket;
use twinpage_os::trace::{Registers, Tid};

/// The processes that sleep, and what must stay as it is meanwhile.
#[derive(Default)]
pub(super) struct Sleepers {
    /// Those that are left alone at this stop.
    pub(super) pids: BTreeSet<i32>,
    /// Files and directories that any of them shows or stands in.
    names: HashMap<PathBuf, Ident>,
    /// The program's, when they were looked at.
    identity: Option<Identity>,
    /// The program's, at this stop.
    pub(super) identity_now: Option<Identity>,
}

impl Sleepers {
    /// It may have run, or is to be looked at for another reason.
    pub(super) fn wake(&mut self, pid: i32) {
        self.pids.remove(&pid);
    }

    pub(super) fn wake_all(&mut self) {
        self.pids.clear();
    }

    /// Whether each name still leads where it did.
    fn are_names_as_before(&self) -> bool {
        let mut names = self.names.iter();
        names.all(|(path, ident)| ident_of(path) == Some(*ident))
    }
}

fn ident_of(path: &Path) -> Option<Ident> {
    rustix::fs::stat(path).ok().map(|stat| Ident::from(&stat))
}

impl Program {
    /// Stops every thread but those of descendants that sleep. False when the program ended instead.
    pub(super) fn stop_but_sleepers(&mut self) -> Result<bool> {
        self.let_sleep();
        loop {
            if !self.stop_all()? {
                return Ok(false);
            }
            if !self.wake_changed()? {
                return Ok(true);
            }
        }
    }

    /// Finds the descendants that sleep.
    fn let_sleep(&mut self) {
        self.members.sleepers.wake_all();
        let is_stopped = |state| !matches!(state, State::Running);
        // Whether the news of a stop was told is asked in the parent, which may be one that sleeps.
        if self.held.is_some() || self.descendants.threads().any(|(.., state)| is_stopped(state)) {
            return;
        }
        self.members.find_sleepers(&self.descendants);
        for (pid, tid, _) in self.descendants.threads().collect::<Vec<_>>() {
            if self.members.sleepers.pids.contains(&pid) {
                self.descendants.set_state(tid, State::Asleep);
            }
        }
    }

    /// Wakes those of which something is not as it was, though they did not run. True when there are any.
    fn wake_changed(&mut self) -> Result<bool> {
        if self.members.sleepers.pids.is_empty() {
            return Ok(false);
        }
        let identity = self.identity()?;
        let sleepers = &mut self.members.sleepers;
        let is_same = sleepers.identity.as_ref() == Some(&identity);
        sleepers.identity_now = Some(identity);
        if !is_same || !sleepers.are_names_as_before() {
            sleepers.names.clear();
            sleepers.identity = None;
            self.members.disturb_sleepers(|_| true);
            return Ok(true);
        }
        let mut sessions: HashMap<i32, Option<Pid>> = HashMap::new();
        let (descendants, first, ended) = (&self.descendants, self.pid(), self.ending.is_some());
        let changed = |member: &Member| {
            let parent = member.parent;
            let lives = parent == first && !ended || descendants.of_thread(parent) == Some(parent);
            let session = sessions
                .entry(parent)
                .or_insert_with(|| rustix::process::getsid(Pid::from_raw(parent)).ok());
            let in_session = session.map(|session| session.as_raw_nonzero().get()) == Some(member.session);
            group_of(member.pid) != Some(member.group)
                || parent != 1 && !(lives && (in_session || member.session == member.pid))
        };
        Ok(self.members.disturb_sleepers(changed))
    }

    /// A descendant was looked at: whether its threads are let go so that it may sleep through the next stop.
    pub(super) fn put_to_sleep(
        &mut self,
        found: &(Member, Arc<[u8]>),
        moving: &[ThreadRegisters],
        identity: &Identity,
    ) {
        let Some(followed) = self.members.get_mut(found.0.pid) else {
            return;
        };
        let waits = |thread: &ThreadRegisters| {
            thread.mask == 0
                && (does_nothing_meanwhile(&thread.registers)
                    || waits_for_input(&followed.process, &thread.registers, &self.streams))
                && !self.calls.is_altered(thread.tid)
        };
        let all_wait = moving.iter().all(waits);
        let names = (all_wait && followed.may_sleep())
            .then(|| names(followed))
            .flatten();
        let told = names.is_some();
        let in_shared = moving
            .iter()
            .filter(|thread| waits_in_shared_memory(&thread.registers));
        followed.slumber = Slumber {
            kept: told.then(|| found.clone()),
            in_shared_futexes: in_shared.map(|thread| thread.tid).collect(),
            entered: BTreeSet::new(),
        };
        for thread in moving {
            self.calls.tell_of(thread.tid, told);
        }
        if let Some(names) = names {
            let sleepers = &mut self.members.sleepers;
            sleepers.names.extend(names);
            sleepers.identity = Some(identity.clone());
        }
    }
}

impl super::Members {
    /// Finds those that sleep where the last checkpoint left them.
    fn find_sleepers(&mut self, descendants: &Descendants) {
        let mut threads: HashMap<i32, Vec<(Tid, State)>> = HashMap::new();
        for (pid, tid, state) in descendants.threads() {
            threads.entry(pid).or_default().push((tid, state));
        }
        let mut found = BTreeSet::new();
        for (pid, threads) in &threads {
            let Some(followed) = self.get_mut(*pid) else {
                continue;
            };
            let looked = followed.slumber.holds(threads.iter().copied()) && !followed.memory.owes();
            if looked && (followed.rest.is_asleep() || followed.rests(descendants)) {
                found.insert(*pid);
            }
        }
        self.sleepers.pids = found;
    }

    /// Wakes sleepers of which that is true. True when there are any.
    fn disturb_sleepers(&mut self, mut changed: impl FnMut(&Member) -> bool) -> bool {
        let mut woken = Vec::new();
        for pid in &self.sleepers.pids {
            let kept = self.get(*pid).and_then(|followed| followed.slumber.kept());
            if kept.is_none_or(|(member, _)| changed(member)) {
                woken.push(*pid);
            }
        }
        woken.iter().for_each(|pid| self.disturb(*pid));
        !woken.is_empty()
    }

    /// A process ended: its children have another parent.
    pub(super) fn lose_parent(&mut self, parent: i32) {
        let children = self
            .all()
            .filter(|(_, followed)| followed.slumber.is_of_child(parent));
        let children: Vec<i32> = children.map(|(pid, _)| pid).collect();
        children.into_iter().for_each(|pid| self.disturb(pid));
    }

    /// Whether no sleeper ran since it was seen asleep. Those that did are looked at the next time.
    pub(super) fn slept_through(&mut self) -> bool {
        let is_awake = |pid: &i32| self.get(*pid).is_none_or(|followed| !followed.slept());
        let woken: Vec<i32> = self.sleepers.pids.iter().copied().filter(is_awake).collect();
        woken.iter().for_each(|pid| self.disturb(*pid));
        woken.is_empty()
    }
}

impl Followed {
    /// Whether no thread of it ran since it was seen asleep, and none is about to. A thread may begin between both looks,
    /// so the count of turns comes last.
    fn slept(&self) -> bool {
        let mut waiting = self.slumber.in_shared_futexes.iter();
        waiting.all(|tid| is_asleep(self.process.pid(), *tid)) && self.rest.is_still()
    }
}

/// Whether a thread waits in a futex that other processes may wake: one that is not private, futex(2).
fn waits_in_shared_memory(registers: &Registers) -> bool {
    registers.orig_rax as i64 == libc::SYS_futex && registers.rsi as i32 & libc::FUTEX_PRIVATE_FLAG == 0
}

/// Whether a thread waits in a call that is begun again as it is, and that does nothing before its end: to its own
/// process, to another, or to a file. Nor does it block signals meanwhile.
fn does_nothing_meanwhile(registers: &Registers) -> bool {
    const FUTEX_COMMAND: u64 = 0x7f;
    let plain = match registers.orig_rax as i64 {
        libc::SYS_pause
        | libc::SYS_nanosleep
        | libc::SYS_clock_nanosleep
        | libc::SYS_wait4
        | libc::SYS_waitid
        | libc::SYS_poll
        | libc::SYS_select
        | libc::SYS_epoll_wait
        | libc::SYS_accept
        | libc::SYS_accept4 => true,
        libc::SYS_ppoll => registers.r10 == 0,
        libc::SYS_pselect6 => registers.r9 == 0,
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => registers.r8 == 0,
        libc::SYS_futex => {
            let command = (registers.rsi & FUTEX_COMMAND) as i32;
            command == libc::FUTEX_WAIT || command == libc::FUTEX_WAIT_BITSET
        }
        _ => false,
    };
    plain && BEGUN_AGAIN.contains(&(registers.rax as i64))
}

/// ERESTARTSYS, ERESTARTNOHAND, ERESTART_RESTARTBLOCK.
const BEGUN_AGAIN: [i64; 3] = [-512, -514, -516];

/// Whether a thread waits for input, of which the call takes nothing before its end: not where it waits for a number of
/// bytes, and takes those that come meanwhile (`MSG_WAITALL`, `SO_RCVLOWAT`, `VMIN` of a terminal).
fn waits_for_input(process: &Process, registers: &Registers, streams: &Stdio) -> bool {
    let wants_all = |flags: u64| flags as i32 & libc::MSG_WAITALL != 0;
    let at_once = match registers.orig_rax as i64 {
        libc::SYS_read | libc::SYS_readv => true,
        libc::SYS_recvfrom => !wants_all(registers.r10),
        libc::SYS_recvmsg => !wants_all(registers.rdx),
        _ => false,
    };
    at_once
        && BEGUN_AGAIN.contains(&(registers.rax as i64))
        && process
            .duplicate_fd(registers.rdi as i32)
            .is_ok_and(|fd| gives_single_bytes(fd.as_fd(), streams))
}

/// Whether a read of it ends with the first byte that comes, and a look into it adds none: of a pseudo-terminal that the
/// tree made it does ([`crate::ptys`]).
fn gives_single_bytes(fd: BorrowedFd<'_>, streams: &Stdio) -> bool {
    if let Ok(terminal) = rustix::termios::tcgetattr(fd) {
        let stat = rustix::fs::fstat(fd);
        if !stat.is_ok_and(|stat| streams.identify(stat.st_dev, stat.st_ino).is_some()) {
            return false;
        }
        let lines = terminal.local_modes.contains(LocalModes::ICANON);
        return lines || terminal.special_codes[SpecialCodeIndex::VMIN] <= 1;
    }
    match socket::option(fd, libc::SO_RCVLOWAT) {
        Ok(bytes) => bytes == 1i32.to_le_bytes(),
        Err(error) => error.raw_os_error() == Some(libc::ENOTSOCK),
    }
}

/// The files and directories whose names are kept of a descendant. `None` where a look at the names would not tell
/// whether they are as they were.
fn names(followed: &Followed) -> Option<HashMap<PathBuf, Ident>> {
    let mut names = HashMap::new();
    for mapping in followed.memory.mappings() {
        match mapping.kind {
            Kind::GoneFile => return None,
            _ if mapping.object.is_some() => {} // looked at with the objects
            Kind::PrivateFile | Kind::SharedFile if !names.contains_key(&mapping.path) => {
                let stat = rustix::fs::stat(&mapping.path).ok()?;
                if stat.st_ino != mapping.inode {
                    return None;
                }
                names.insert(mapping.path.clone(), Ident::from(&stat));
            }
            _ => {}
        }
    }
    let pid = followed.process.pid();
    let (exe, directory) = (&followed.kernel.memory.exe, &followed.kernel.directory);
    for (link, path) in [("exe", exe), ("cwd", directory)] {
        let ident = ident_of(format!("/proc/{pid}/{link}").as_ref())?;
        if ident_of(path) != Some(ident) {
            return None;
        }
        names.insert(path.clone(), ident);
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_without_effects_are_slept_in() {
        let mut registers = twinpage_os::trace::from_words(&[0; 27]);
        let mut waits = |number: i64, result: i64, mask: u64, command: u64| {
            registers.orig_rax = number as u64;
            registers.rax = result as u64;
            (registers.r10, registers.r9, registers.rsi) = (mask, mask, command);
            does_nothing_meanwhile(&registers)
        };
        assert!(waits(libc::SYS_pause, -514, 0, 0));
        assert!(waits(libc::SYS_futex, -512, 0, 128), "a private wait");
        assert!(waits(libc::SYS_ppoll, -514, 0, 0));
        assert!(
            !waits(libc::SYS_ppoll, -514, 0x7000, 0),
            "other signals are blocked"
        );
        assert!(!waits(libc::SYS_pselect6, -514, 0x7000, 0));
        assert!(!waits(libc::SYS_futex, -512, 0, 6), "a lock is noted in memory");
        assert!(!waits(libc::SYS_write, -512, 0, 0), "a part may be written");
        assert!(waits(libc::SYS_accept, -512, 0, 0) && waits(libc::SYS_epoll_wait, -514, 0, 0));
        assert!(!waits(libc::SYS_pause, 0, 0, 0), "it ended");
        assert!(!waits(-1, -514, 0, 0), "it is in no call");
    }
}
