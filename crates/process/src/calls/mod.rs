//! What to do when a watched call is about to run: let it, or refuse it by name.
//!
//! * The calling thread is stopped at the entry of its call; its arguments cannot change any more,
//!   except those in memory other threads write.
//! * What a call may change is marked to be looked at again; what a file held is recorded first
//!   (`files.rs`).
//! * The program sees an ordinary error; the user reads once which call it was and what to do.

mod children;
mod descendants;
mod files;
mod free_writes;
mod growing;
mod identity;
mod ipc;
mod memory;
mod pairs;
mod pidfds;
mod replies;
mod segments;
mod shared;
mod shown;
mod sockets;
mod terminals;
mod watches;
mod within;

use self::descendants::is_plain_filter;
use crate::error::{Error, Result};
use crate::program::{Program, Thread, Until};
use crate::syscalls::{self, Policy, Watch};
use crate::threads::SS_AUTODISARM;
use crate::timers::Dues;
use rustix::fs::{FileType, OFlags};
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use twinpage_os::messages;
use twinpage_os::notice;
use twinpage_os::proc_file;
use twinpage_os::remote::Process;
use twinpage_os::seccomp;
use twinpage_os::trace::{self, Tid, WatchedCall};
use twinpage_os::tracker::PAGE;

/// What becomes of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision {
    /// It runs.
    Run,
    /// It was done on the program's behalf, or has nothing to do; this is its result.
    Done(i64),
    /// It is begun again later: a checkpoint comes first.
    Again,
    /// Its thread stands there, and begins it again when it need not wait any longer.
    Stand(Until),
    /// What it destroys finds no room in the state: it fails (`ENOSPC`), unless its thread can wait for some.
    Unkeepable {
        /// The bound of the undo log is reached, and not the disk's.
        by_bound: bool,
        /// Which part of the state is full.
        why: String,
    },
    /// It fails with this error.
    Fail {
        /// The error the program sees.
        errno: i32,
        /// The message to the user.
        message: Message,
    },
}

/// The message to the user about a call that fails, told once for each call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// None: a probe that programs make in passing.
    Probe,
    /// It is listed, and told at the end if the program fails: programs usually go on without the call.
    Listed(String),
    /// It is told at once.
    Told(String),
}

fn fail(errno: i32, why: impl Into<String>) -> Decision {
    Decision::Fail {
        errno,
        message: Message::Told(why.into()),
    }
}

/// Programs usually go on without it.
fn do_without(errno: i32, why: impl Into<String>) -> Decision {
    Decision::Fail {
        errno,
        message: Message::Listed(why.into()),
    }
}

fn refuse(refusal: syscalls::Refusal) -> Decision {
    if refusal.is_optional {
        do_without(refusal.errno, refusal.why)
    } else {
        fail(refusal.errno, refusal.why)
    }
}

/// As an older kernel would answer: programs ask, and go on without.
const fn not_there(errno: i32) -> Decision {
    Decision::Fail {
        errno,
        message: Message::Probe,
    }
}

/// The process that makes a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Caller {
    /// The program's first.
    First,
    Descendant {
        pid: i32,
        /// The memory is the program's: vfork(2).
        shares_memory: bool,
    },
}

/// A stopped call and its arguments.
struct Stopped {
    tid: Tid,
    by: Caller,
    name: &'static str,
    arguments: [u64; 6],
    made: WatchedCall,
}

impl Stopped {
    /// The argument as the kernel takes an int.
    fn int(&self, index: usize) -> i32 {
        self.arguments[index] as i32
    }

    /// The flags of a call that sends, as send(2) has them; none of a write.
    fn send_flags(&self) -> i32 {
        match self.name {
            "sendto" | "sendmmsg" => self.int(3),
            "sendmsg" => self.int(2),
            _ => 0,
        }
    }

    /// Whether it sends nothing out of band, and makes no connection by sending.
    fn sends_plain_bytes(&self) -> bool {
        self.send_flags() & (libc::MSG_OOB | libc::MSG_FASTOPEN) == 0
    }

    /// Whether a descendant makes it whose memory is the program's.
    fn shares_memory(&self) -> bool {
        matches!(
            self.by,
            Caller::Descendant {
                shares_memory: true,
                ..
            }
        )
    }
}

impl Program {
    /// Answers the call that thread `tid` is about to make.
    ///
    /// # Errors
    /// When the thread is gone or the file it changes cannot be kept.
    pub fn answer(&mut self, tid: Tid) -> Result<()> {
        let gone = |source| Error::target("cannot look at a system call", source);
        let call = trace::watched_call(tid).map_err(gone)?;
        self.look_through(tid)?;
        self.is_about_to_call(tid, &call);
        let (name, decision) = self.decide(tid, Caller::First, &call)?;
        self.carry_out(tid, &call, name, decision).map_err(gone)
    }

    /// Has the kernel do with the call what was decided.
    fn carry_out(
        &mut self,
        tid: Tid,
        call: &WatchedCall,
        name: &str,
        decision: Decision,
    ) -> std::io::Result<()> {
        if !matches!(decision, Decision::Stand(_)) {
            self.tries_no_longer(tid);
        }
        let (result, message) = match decision {
            Decision::Run => return Ok(()),
            Decision::Done(result) => (result, Message::Probe),
            Decision::Again => return trace::begin_call_again(tid, call),
            Decision::Stand(until) => {
                trace::begin_call_again(tid, call)?;
                self.stand(tid, until, call);
                return Ok(());
            }
            Decision::Unkeepable { ref why, .. } => {
                let way_out = "checkpoint more often (--every), or change less of a file at once";
                (
                    -i64::from(libc::ENOSPC),
                    Message::Told(format!("{why}; {way_out}")),
                )
            }
            Decision::Fail { errno, ref message } => (-i64::from(errno), message.clone()),
        };
        trace::skip_call(tid, result)?;
        match message {
            Message::Probe => {}
            Message::Listed(why) => self.notes.went_without(name, &why),
            Message::Told(why) => {
                messages::hold_back(self.streams.takes_whole_terminal());
                self.notes.refused(name, &why);
            }
        }
        Ok(())
    }

    fn decide(&mut self, tid: Tid, by: Caller, made: &WatchedCall) -> Result<(&'static str, Decision)> {
        if u64::from(made.message) == seccomp::FOREIGN {
            let why = "32-bit system calls of a 64-bit program are not captured; use the 64-bit ones";
            return Ok(("int 0x80", fail(libc::ENOSYS, why)));
        }
        let Some(call) = syscalls::call(made.number as i64) else {
            let why = format!(
                "system call {} is not known to this version; the program may go on without it",
                made.number
            );
            return Ok(("an unknown call", do_without(libc::ENOSYS, why)));
        };
        let stopped = Stopped {
            tid,
            by,
            name: call.name,
            arguments: made.arguments,
            made: *made,
        };
        let decision = match (call.policy, by) {
            (Policy::Free, _) => Decision::Run,
            (Policy::Refused(_), Caller::Descendant { .. }) if is_plain_filter(&stopped) => Decision::Run,
            (Policy::RefusedToFirst(_), Caller::Descendant { pid, .. }) => {
                self.is_unfit_for(pid, &stopped);
                self.members.may_touch(pid);
                Decision::Run
            }
            (Policy::Refused(refusal) | Policy::RefusedToFirst(refusal), _) => refuse(refusal),
            (Policy::Watched(watch) | Policy::FreeWhen(_, watch), _) => match self.watch(watch, &stopped)? {
                Decision::Unkeepable { by_bound, why } => self.without_room(&stopped, by_bound, why)?,
                decision => decision,
            },
        };
        Ok((call.name, decision))
    }

    fn watch(&mut self, watch: Watch, call: &Stopped) -> Result<Decision> {
        if let Some(decision) = self.ends_free_writes(watch, call)? {
            return Ok(decision);
        }
        self.before_processors(watch);
        if call.name == "sigaltstack" {
            self.before_alternate_stack(call);
        }
        if let Caller::Descendant { pid, .. } = call.by {
            self.members.about_to_change(pid, call.tid, watch);
            if watch.changes_the_first_alone() {
                return Ok(Decision::Run);
            }
        }
        match watch {
            Watch::Processors | Watch::Seek => {}
            Watch::Actions => self.stale.actions = true,
            Watch::Thread => self.renew_thread(call.tid),
            Watch::Break => self.stale.brk = true,
            Watch::Umask => self.stale.umask = true,
            Watch::Directory => self.stale.directory = true,
            Watch::IntervalTimers => self.stale.interval_timers = true,
            Watch::Timers => self.before_timer(call),
            Watch::Limits => self.stale.limits = true,
            Watch::Remap => return self.before_remap(call),
            Watch::Membarrier => self.stale.membarrier = true,
            Watch::Kill => self.before_kill(call),
            Watch::Wait => self.before_wait(call),
            Watch::Descriptors => self.before_descriptor(call),
            Watch::Close => return Ok(self.before_close(call)),
            Watch::Open => return self.before_open(call),
            Watch::Write => return self.before_write(call),
            Watch::Change => return self.before_change(call),
            Watch::Advise => return Ok(self.before_advise(call)),
            Watch::Map => match call.by {
                Caller::First => return self.before_map(call),
                Caller::Descendant { shares_memory, .. } => {
                    return self.before_descendant_maps(call, shares_memory);
                }
            },
            Watch::Clone => {
                if call.by == Caller::First {
                    self.descriptors.expect_copy();
                }
                return self.before_clone(call);
            }
            Watch::Exec => return Ok(self.before_exec(call)),
            Watch::Control => match call.by {
                Caller::First => return Ok(self.before_control(call)),
                Caller::Descendant { pid, .. } => return Ok(self.before_descendant_controls(pid, call)),
            },
            Watch::Pair => return self.before_socketpair(call),
            Watch::Send => return Ok(self.before_send(call)),
            Watch::Socket => return Ok(self.before_socket_change(call)),
            Watch::RealStreams => return self.before_outside(call),
            Watch::Sync => return Ok(self.before_sync(call)),
            Watch::SocketQuery => return Ok(self.before_socket_query(call)),
            Watch::Pidfd => return Ok(self.before_pidfd(call)),
            Watch::Identity => return Ok(self.before_identity(call)),
            // It would stay in the program's memory.
            Watch::Segments if call.shares_memory() && call.name == "shmat" => {
                return Ok(not_there(libc::ENOMEM));
            }
            Watch::Segments => return self.before_segments(call),
            Watch::Ipc => return Ok(self.before_ipc(call)),
            Watch::Inotify if call.shares_memory() => {}
            Watch::Inotify => return self.before_inotify(call),
            Watch::Nothing => return Ok(Decision::Done(0)),
        }
        Ok(Decision::Run)
    }

    /// Processors are asked for, chosen, or handed on to a new thread or process.
    fn before_processors(&mut self, watch: Watch) {
        if matches!(watch, Watch::Processors | Watch::Limits | Watch::Clone) {
            self.give_processors_back();
        }
        if watch == Watch::Limits {
            self.renew_threads(); // those of another process, perhaps
        }
    }

    /// A call may wait: its time limit is counted from here.
    fn before_wait(&mut self, call: &Stopped) {
        // A thread that was killed has no registers, and waits no longer.
        if let Ok(registers) = trace::registers(call.tid) {
            let process = self.caller.as_ref().unwrap_or(&self.process);
            self.calls.begin(call.tid, &registers, process);
        }
    }

    /// A timer is made, set or ended. When it will ring is known only now, if it rings before the next stop.
    fn before_timer(&mut self, call: &Stopped) {
        if self.caller.is_none() {
            self.stale.timers = true;
        }
        let value = call.arguments[2] + 16; // behind the period
        let word = |at: u64| self.caller().read_u64(at);
        if call.name == "timer_settime"
            && let (Ok(seconds), Ok(nanoseconds)) = (word(value), word(value + 8))
        {
            let first = seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds);
            let absolute = call.int(1) & libc::TIMER_ABSTIME != 0;
            self.callers_dues().set(call.int(0), first, absolute);
        }
    }

    /// When the timers ring of the process whose call is answered.
    fn callers_dues(&mut self) -> &mut Dues {
        match &self.caller {
            None => &mut self.dues,
            Some(process) => self.members.dues(process.pid()),
        }
    }

    fn before_close(&mut self, call: &Stopped) -> Decision {
        const UNSHARE: i32 = libc::CLOSE_RANGE_UNSHARE as i32;
        if call.name == "close_range" && call.int(2) & UNSHARE != 0 && self.threads.len() > 1 {
            let mut others = self.threads.iter().filter(|thread| thread.tid != self.pid());
            // One that ends meanwhile is no reason.
            let is_unknown = |error: &std::io::Error| error.raw_os_error() == Some(libc::EINVAL);
            let opened = |thread: &Thread| Process::open_by(self.pid(), thread.tid);
            if others.any(|thread| opened(thread).is_err_and(|error| is_unknown(&error))) {
                return fail(
                    libc::ENOMEM,
                    "threads with descriptors of their own (CLOSE_RANGE_UNSHARE) need Linux 6.9; close without it",
                );
            }
            self.descriptors.part();
        }
        match call.name {
            "close" => self.descriptors.close(call.int(0), call.int(0)),
            "close_range" => {
                let [first, last] = [0, 1].map(|index| i32::try_from(call.arguments[index] as u32));
                let first = first.unwrap_or(i32::MAX);
                self.descriptors.close(first, last.unwrap_or(i32::MAX));
            }
            _ => self.descriptors.put(call.int(1)), // dup2, dup3
        }
        Decision::Run
    }

    /// A descriptor is made, or something that is listed with it changes.
    fn before_descriptor(&mut self, call: &Stopped) {
        match call.name {
            "flock" => self.descriptors.touch_file_of(&self.process, call.int(0)),
            "signalfd" | "signalfd4" if call.int(0) >= 0 => {
                self.descriptors.touch_open_file_of(&self.process, call.int(0));
            }
            "pipe" | "pipe2" => {
                self.descriptors.give(0);
                self.descriptors.give(0);
            }
            _ => self.descriptors.give(0),
        }
    }

    fn before_advise(&mut self, call: &Stopped) -> Decision {
        const GUARD_INSTALL: i32 = 102;
        const GUARD_REMOVE: i32 = 103;
        let [address, length, ..] = call.arguments;
        let end = address
            .saturating_add(length)
            .checked_next_multiple_of(PAGE)
            .unwrap_or(u64::MAX);
        if call.int(2) == libc::MADV_REMOVE && self.caller.is_some() {
            self.objects.all_changed(); // a hole in one of them
            return Decision::Run;
        }
        let Some(memory) = self.callers_memory() else {
            return self.before_first_look(call, address..end);
        };
        match call.int(2) {
            libc::MADV_DONTNEED | libc::MADV_DONTNEED_LOCKED => {
                memory.may_drop(address..end);
                Decision::Run
            }
            libc::MADV_REMOVE | libc::MADV_HWPOISON | libc::MADV_SOFT_OFFLINE => fail(
                libc::EINVAL,
                "this advice reaches beyond the program's own memory",
            ),
            GUARD_INSTALL | GUARD_REMOVE if memory.may_guard(address..end) => Decision::Run,
            GUARD_INSTALL | GUARD_REMOVE => not_there(libc::EINVAL),
            advice if memory.advise(address..end, advice) => Decision::Run,
            advice => do_without(
                libc::EINVAL,
                format!("advice {advice} is not known, so what it changes cannot be captured"),
            ),
        }
    }

    fn before_map(&mut self, call: &Stopped) -> Result<Decision> {
        const DROPPABLE: i32 = 0x08;
        let (protection, flags) = (call.int(2), call.int(3));
        let kind = flags & libc::MAP_TYPE;
        if flags & libc::MAP_HUGETLB != 0 {
            return Ok(do_without(
                libc::ENOMEM,
                "huge page mappings are not captured; the program can use ordinary pages",
            ));
        }
        if flags & libc::MAP_GROWSDOWN != 0 {
            return Ok(fail(
                libc::EINVAL,
                "a mapping that grows down is not captured; map it whole",
            ));
        }
        if kind == DROPPABLE {
            return Ok(do_without(
                libc::EINVAL,
                "memory that the kernel may drop (MAP_DROPPABLE) is not captured: a resume would repeat the random numbers that are kept there; programs ask the kernel for them by themselves then",
            ));
        }
        if kind == libc::MAP_PRIVATE {
            return Ok(Decision::Run);
        }
        self.before_shared_map(call, protection, flags)
    }

    fn before_control(&mut self, call: &Stopped) -> Decision {
        match call.name {
            "fcntl" => self.before_fcntl(call),
            "ioctl" => self.before_ioctl(call),
            "memfd_create" => {
                if call.arguments[1] & u64::from(libc::MFD_HUGETLB) != 0 {
                    let why = "huge pages are not captured; the program can use ordinary ones";
                    return do_without(libc::ENOMEM, why);
                }
                self.descriptors.give(0);
                Decision::Run
            }
            "prctl" => self.before_prctl(call),
            "arch_prctl" => match call.int(0) {
                0x1001..=0x1004 => Decision::Run, // segment bases are registers
                0x1023 | 0x1025 => do_without(
                    libc::EINVAL,
                    "larger register files (AMX) are not captured; the program can go on without",
                ),
                _ => not_there(libc::EINVAL),
            },
            _ => do_without(
                libc::EINVAL,
                "this option is not captured; the program can go on without it",
            ),
        }
    }

    /// A delivery may disarm the thread's alternate stack from now on, which no call tells.
    fn before_alternate_stack(&mut self, call: &Stopped) {
        let flags = self.caller().read_u64(call.arguments[0] + 8).unwrap_or(0); // else the kernel refuses it
        self.members.disarms |= flags as u32 & SS_AUTODISARM != 0;
    }

    fn before_prctl(&mut self, call: &Stopped) -> Decision {
        match call.int(0) {
            libc::PR_SET_NAME | libc::PR_SET_PDEATHSIG | libc::PR_SET_TIMERSLACK | libc::PR_SET_KEEPCAPS => {
                self.renew_thread(call.tid);
                Decision::Run
            }
            // What must not be dumped cannot be looked at by a tracer without privilege, after a resume.
            libc::PR_SET_DUMPABLE if call.arguments[1] == 0 && !rustix::process::getuid().is_root() => {
                do_without(
                    libc::EINVAL,
                    "a program that may not be looked at (PR_SET_DUMPABLE) is captured for root only; the program can go on without it",
                )
            }
            libc::PR_CAP_AMBIENT if self.empties_nothing(call) => Decision::Run,
            libc::PR_SET_CHILD_SUBREAPER | libc::PR_SET_THP_DISABLE | libc::PR_SET_DUMPABLE => {
                self.stale.options = true;
                Decision::Run
            }
            option => do_without(
                libc::EINVAL,
                format!("prctl option {option} is not captured; the program can go on without it"),
            ),
        }
    }

    /// Whether a thread drops all of its ambient capabilities and has none, as programs do that drop what they may have.
    fn empties_nothing(&self, call: &Stopped) -> bool {
        let ambient = || {
            let status = proc_file::text(format!("/proc/{}/status", call.tid)).ok()?;
            proc_file::mask(&status, "CapAmb")
        };
        call.int(1) == libc::PR_CAP_AMBIENT_CLEAR_ALL && ambient() == Some(0)
    }

    fn before_fcntl(&mut self, call: &Stopped) -> Decision {
        match call.int(1) {
            libc::F_SETFL if call.int(2) & libc::O_ASYNC != 0 => self.before_notices(call),
            command if notice::SETTERS.contains(&command) => self.before_notices(call),
            libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
                self.descriptors.give(call.int(2));
                Decision::Run
            }
            libc::F_SETFD => {
                self.descriptors.touch(call.int(0));
                Decision::Run
            }
            libc::F_SETFL => {
                self.descriptors.touch_open_file_of(&self.process, call.int(0));
                Decision::Run
            }
            libc::F_SETPIPE_SZ
            | libc::F_ADD_SEALS
            | libc::F_SETLK
            | libc::F_SETLKW
            | libc::F_OFD_SETLK
            | libc::F_OFD_SETLKW => {
                self.descriptors.touch_file_of(&self.process, call.int(0));
                Decision::Run
            }
            command => do_without(
                libc::EINVAL,
                format!(
                    "fcntl {} is not captured; the program can go on without it",
                    fcntl_name(command)
                ),
            ),
        }
    }

    fn before_ioctl(&mut self, call: &Stopped) -> Decision {
        match call.arguments[1] as u32 as u64 {
            libc::FIOCLEX | libc::FIONCLEX => {
                self.descriptors.touch(call.int(0));
                Decision::Run
            }
            // A program that is alone has the terminal. The size is that of the terminal outside, from its next change on.
            libc::TIOCSPGRP | libc::TIOCSWINSZ => Decision::Run,
            libc::FIONBIO => {
                self.descriptors.touch_open_file_of(&self.process, call.int(0));
                Decision::Run
            }
            libc::FIOASYNC | FIOSETOWN | SIOCSPGRP => self.before_notices(call),
            libc::TIOCGPTPEER => {
                self.descriptors.give(0);
                Decision::Run
            }
            request if terminals::OF_PTYS.contains(&request) => Decision::Run,
            request if QUESTIONS.contains(&request) => Decision::Run,
            request => do_without(
                libc::ENOTTY,
                format!(
                    "what ioctl {} changes is not captured; the program can go on without it",
                    ioctl_name(request)
                ),
            ),
        }
    }

    /// An open file is to send signals when it becomes ready, or another process is to get them: captured of pipes and
    /// sockets of the program's own.
    fn before_notices(&mut self, call: &Stopped) -> Decision {
        let Ok(fd) = self.process.duplicate_fd(call.int(0)) else {
            return Decision::Run; // the kernel will refuse it
        };
        let is_own = rustix::fs::fstat(&fd).is_ok_and(|stat| {
            let kind = FileType::from_raw_mode(stat.st_mode);
            [FileType::Fifo, FileType::Socket].contains(&kind)
                && self.streams.identify(stat.st_dev, stat.st_ino).is_none()
        });
        if is_own {
            self.descriptors.touch_open_file_of(&self.process, call.int(0));
            return Decision::Run;
        }
        fail(
            libc::EINVAL,
            "signals about input (O_ASYNC, F_SETOWN) are captured of the program's own pipes and sockets alone; the program may have a setting to wait in another way",
        )
    }

    /// The process whose call is answered: the program, or a descendant.
    fn caller(&self) -> &Process {
        self.caller.as_ref().unwrap_or(&self.process)
    }

    /// A string of the program's memory.
    fn text(&self, address: u64) -> Option<PathBuf> {
        let mut bytes = Vec::new();
        while bytes.len() < libc::PATH_MAX as usize {
            let at = address + bytes.len() as u64;
            let mut piece = vec![0; (4096 - at % 4096).min(256) as usize];
            self.caller().read(at, &mut piece).ok()?;
            if let Some(end) = piece.iter().position(|byte| *byte == 0) {
                bytes.extend_from_slice(&piece[..end]);
                return Some(PathBuf::from(OsString::from_vec(bytes)));
            }
            bytes.extend_from_slice(&piece);
        }
        None
    }

    fn directory(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/cwd", self.caller().thread()))
    }

    /// The directory that a name given with descriptor `fd` starts from. An absolute name has none, whatever the
    /// descriptor is.
    fn start(&self, fd: i32, name: &Path) -> Option<Start> {
        if name.is_absolute() {
            return Some(Start::Root);
        }
        if fd == libc::AT_FDCWD {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let opened = rustix::fs::open(self.directory(), flags, rustix::fs::Mode::empty());
            return opened.ok().map(Start::At);
        }
        self.caller().duplicate_fd(fd).ok().map(Start::At)
    }

    /// A name given with a call, as it is called from here: the directory that it starts from, and the name.
    fn named(&self, (dirfd, name): (i32, u64)) -> Option<(Start, PathBuf)> {
        let name = called_from_here(self.text(name)?, self.caller().thread());
        Some((self.start(dirfd, &name)?, name))
    }

    /// The caller's descriptor that a name leads to, as [`Self::named`] gives it.
    fn descriptor_named(&self, name: &Path) -> Option<i32> {
        let all = format!("/proc/{}/fd", self.caller().thread());
        name.strip_prefix(all).ok()?.to_str()?.parse().ok()
    }
}

/// A name that means something else to every process, proc(5), as another one calls what it means to process `pid`.
fn called_from_here(name: PathBuf, pid: Tid) -> PathBuf {
    const OWN: [(&str, &str); 6] = [
        ("/proc/self", ""),
        ("/proc/thread-self", ""),
        ("/dev/fd", "fd"),
        ("/dev/stdin", "fd/0"),
        ("/dev/stdout", "fd/1"),
        ("/dev/stderr", "fd/2"),
    ];
    let mut found = OWN
        .into_iter()
        .filter_map(|(own, means)| Some((name.strip_prefix(own).ok()?, means)));
    match found.next() {
        Some((rest, means)) => Path::new("/proc").join(pid.to_string()).join(means).join(rest),
        None => name,
    }
}

/// Where a name starts.
enum Start {
    /// At the root: the name is absolute.
    Root,
    /// In this directory.
    At(OwnedFd),
}

impl AsFd for Start {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Start::Root => rustix::fs::CWD, // which is not looked at
            Start::At(directory) => directory.as_fd(),
        }
    }
}

// ioctl(2): other names of F_SETOWN.
const FIOSETOWN: u64 = 0x8901;
const SIOCSPGRP: u64 = 0x8902;
/// Questions about sockets and interfaces, sockatmark(3), netdevice(7): the mark; names, lists, flags, addresses of an
/// interface, of its other end, for all, and its mask; its metric, largest packet, hardware address, number and queue.
/// Questions about files, ioctl_fs(2) as lsattr(1) and filefrag(8) ask them: the size of a block, flags and version of an
/// inode, its project, the label of the file system, where the bytes of a file lie. About disks: bytes of a sector, of all.
const QUESTIONS: [u64; 21] = [
    0x8905, 0x8910, 0x8912, 0x8913, 0x8915, 0x8917, 0x8919, 0x891b, 0x891d, 0x8921, 0x8927, 0x8933, 0x8942,
    0x2, 0x80086601, 0x80087601, 0x801c581f, 0x81009431, 0xc020660b, 0x1268, 0x80081272,
];

/// A command as fcntl(2) has it.
fn fcntl_name(command: i32) -> String {
    let name = match command {
        libc::F_SETLEASE => "F_SETLEASE",
        libc::F_NOTIFY => "F_NOTIFY",
        libc::F_ADD_SEALS => "F_ADD_SEALS",
        1036 => "F_SET_RW_HINT",
        _ => return format!("command {command}"),
    };
    name.into()
}

/// A request as the manual has it: those that programs are known to make.
fn ioctl_name(request: u64) -> String {
    let name = match request {
        0x4004_9409 => "FICLONE",
        0x4020_940d => "FICLONERANGE",
        0xc018_9436 => "FIDEDUPERANGE",
        0x4008_6602 => "FS_IOC_SETFLAGS",
        0x401c_5820 => "FS_IOC_FSSETXATTR",
        libc::TIOCSTI => "TIOCSTI",
        libc::TIOCCONS => "TIOCCONS",
        libc::TIOCSETD => "TIOCSETD",
        libc::TIOCEXCL => "TIOCEXCL",
        _ => return format!("{request:#x}"),
    };
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_callers_own_are_called_by_its_id() {
        for (name, from_here) in [
            ("/proc/self/fd/5", "/proc/300/fd/5"),
            ("/proc/self", "/proc/300"),
            ("/proc/thread-self/status", "/proc/300/status"),
            ("/dev/fd/7", "/proc/300/fd/7"),
            ("/dev/stdout", "/proc/300/fd/1"),
            ("/proc/selfish", "/proc/selfish"),
            ("/dev/fdisk", "/dev/fdisk"),
            ("proc/self", "proc/self"),
        ] {
            assert_eq!(called_from_here(name.into(), 300), Path::new(from_here), "{name}");
        }
    }
}
