//! Calls that make a process, replace its program, or kill one.
//!
//! * A process is made with everything of its own, or, until it executes a program, with its maker's memory. What
//!   would be shared for longer is refused by name.
//! * The program makes none while a checkpoint is under way: the call is begun again after it.

use super::{Decision, Stopped, do_without, fail};
use crate::descriptors::pidfds;
use crate::error::{Error, Result};
use crate::program::{Program, group_of};
use crate::syscalls::THREAD_FLAGS;
use rustix::fs::{Access, access};
use twinpage_os::name;
use twinpage_os::proc_file;
use twinpage_os::trace::Tid;

/// What makes a namespace: clone(2).
const NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u64
    | CLONE_NEWTIME;
const CLONE_NEWTIME: u64 = 0x80;
/// clone3(2).
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

impl Program {
    pub(super) fn before_clone(&mut self, call: &Stopped) -> Result<Decision> {
        let Some(flags) = self.clone_flags(call) else {
            return Ok(Decision::Run); // the kernel will refuse it
        };
        if flags & libc::CLONE_THREAD as u64 != 0 {
            return Ok(thread(flags));
        }
        if let Some(refused) = self.refuse_process(flags) {
            return Ok(refused);
        }
        if self.caller.is_none() && self.puts_off_making() {
            return Ok(Decision::Again);
        }
        if flags & libc::CLONE_PIDFD as u64 != 0 {
            self.gives_descriptor();
        }
        self.descendants.begin_making(call.tid, flags);
        Ok(Decision::Run)
    }

    /// What is shared with the process or thread that a call makes: clone(2).
    pub(super) fn clone_flags(&self, call: &Stopped) -> Option<u64> {
        match call.name {
            "fork" => Some(libc::SIGCHLD as u64),
            "vfork" => Some((libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD) as u64),
            "clone" => Some(call.arguments[0]),
            _ => self.caller().read_u64(call.arguments[0]).ok(),
        }
    }

    fn refuse_process(&self, flags: u64) -> Option<Decision> {
        let has = |flag: i32| flags & flag as u64 != 0;
        if flags & NAMESPACES != 0 {
            return Some(fail(
                libc::EPERM,
                "a process in a namespace of its own is not followed; run what makes it outside",
            ));
        }
        if flags & CLONE_INTO_CGROUP != 0 {
            return Some(do_without(
                libc::EINVAL,
                "a process in another control group (CLONE_INTO_CGROUP) is not captured; the program can go on without",
            ));
        }
        if has(libc::CLONE_FILES) || has(libc::CLONE_FS) || has(libc::CLONE_SIGHAND) {
            return Some(fail(
                libc::EINVAL,
                "a process that shares descriptors, directory or signal actions with another (CLONE_FILES, CLONE_FS, CLONE_SIGHAND) is not captured",
            ));
        }
        if has(libc::CLONE_PARENT) || has(libc::CLONE_UNTRACED) || has(libc::CLONE_PTRACE) {
            return Some(fail(
                libc::EINVAL,
                "a process that is another's child, or is not to be traced (CLONE_PARENT, CLONE_UNTRACED, CLONE_PTRACE), cannot be followed",
            ));
        }
        None
    }

    pub(super) fn before_exec(&mut self, call: &Stopped) -> Decision {
        let (dirfd, at) = match call.name {
            "execveat" => (call.int(0), 1),
            _ => (libc::AT_FDCWD, 0),
        };
        let Some((start, name)) = self.named((dirfd, call.arguments[at])) else {
            return Decision::Run; // the kernel will refuse it
        };
        let start = name::of_open(&start);
        let path = if name.as_os_str().is_empty() {
            start // AT_EMPTY_PATH
        } else {
            start.join(name)
        };
        // A program that looks along PATH by trying expects to hear what is not there.
        let is_program = path.is_file() && access(&path, Access::EXEC_OK).is_ok();
        if !is_program {
            return Decision::Run;
        }
        let checked = match self.caller {
            Some(_) => crate::launch::check_descendant(&path),
            None => crate::launch::check_program(&path),
        };
        match checked {
            Ok(()) => Decision::Run,
            Err(Error::Unsupported(why)) => fail(libc::EPERM, why),
            Err(_) => Decision::Run, // the kernel will say what is wrong with it
        }
    }

    /// A SIGKILL is about to be sent. The program that kills itself, or that a descendant kills, has ended; one that the
    /// kernel does not let the descendant kill has not.
    pub(super) fn before_kill(&mut self, call: &Stopped) {
        let first = self.pid();
        let target = match call.name {
            // The kernel refuses it where there is none.
            "pidfd_send_signal" => pidfds::process_of(call.tid, call.int(0))
                .ok()
                .flatten()
                .unwrap_or_default(),
            _ => call.int(0),
        };
        let kills = match (call.name, target) {
            ("pidfd_send_signal", target) => target == first, // itself, or the group that it leads
            ("tkill", tid) => self.threads.iter().any(|thread| thread.tid == tid),
            (_, 0) => group_of(self.caller().pid()) == Some(first),
            (_, -1) => self.caller.is_some(),     // all but the sender
            (_, target) => target.abs() == first, // it leads its group
        };
        self.kills_itself |= kills && (self.caller.is_none() || may_signal(call.tid, self.process.thread()));
    }
}

/// Whether the kernel lets one thread send signals to another, by their users: kill(2). One that is gone gets none.
fn may_signal(from: Tid, to: Tid) -> bool {
    const CAP_KILL: u64 = 1 << 5;
    let status = |tid: Tid| proc_file::text(format!("/proc/{tid}/status")).ok();
    let (Some(from), Some(to)) = (status(from), status(to)) else {
        return false;
    };
    // Real, effective, saved.
    let users = |status: &str| -> Vec<u32> {
        let line = proc_file::field(status, "Uid").unwrap_or_default();
        line.split_ascii_whitespace()
            .filter_map(|id| id.parse().ok())
            .collect()
    };
    let (sender, receiver) = (users(&from), users(&to));
    let is_same = |one: &u32| receiver.first() == Some(one) || receiver.get(2) == Some(one);
    let capable = proc_file::mask(&from, "CapEff").is_some_and(|mask| mask & CAP_KILL != 0);
    capable || sender.iter().take(2).any(is_same)
}

/// Exactly what a thread of the same program is made of; ids and storage may come along.
fn thread(flags: u64) -> Decision {
    let storage = libc::CLONE_SETTLS
        | libc::CLONE_PARENT_SETTID
        | libc::CLONE_CHILD_CLEARTID
        | libc::CLONE_CHILD_SETTID
        | libc::CLONE_DETACHED;
    if flags & !(storage as u64) == THREAD_FLAGS {
        return Decision::Run;
    }
    fail(
        libc::EINVAL,
        "a thread that does not share all with the others is not captured",
    )
}
