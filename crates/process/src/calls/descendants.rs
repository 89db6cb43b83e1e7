//! Calls of descendants.
//!
//! * What they do to files is recorded as the program's own calls are: it is rolled back with the rest.
//! * What ends with the process that made it runs freely, also where it cannot be captured: checkpoints wait for the
//!   end of that process then. What acts on the outside, or outlives its maker, is refused as it is to the program.
//! * Names and descriptors are the caller's; what has the program look again at something of its own is the program's.

use super::{Caller, Decision, FIOSETOWN, QUESTIONS, SIOCSPGRP, Stopped, do_without, ioctl_name, not_there};
use crate::error::{Error, Result};
use crate::program::Program;
use twinpage_os::notice;
use twinpage_os::remote::Process;
use twinpage_os::trace::{self, Tid};

impl Program {
    /// Answers the call that thread `tid` of descendant `pid` is about to make.
    ///
    /// # Errors
    /// When the file it changes cannot be kept.
    pub(crate) fn answer_descendant(&mut self, tid: Tid, pid: i32) -> Result<()> {
        let Ok(call) = trace::watched_call(tid) else {
            return Ok(()); // it was killed
        };
        self.members.calls(pid, tid, &call);
        self.may_leave(tid, &call);
        let Some(process) = self.open_descendant(tid, pid) else {
            return Ok(()); // the same
        };
        self.caller = Some(process);
        let by = Caller::Descendant {
            pid,
            shares_memory: self.descendants.shares_memory(pid),
        };
        let decided = self.decide(tid, by, &call);
        let process = self.caller.take();
        if let Some(descendant) = self.descendants.get_mut(pid) {
            descendant.process = process;
        }
        let (name, decision) = decided?;
        match self.carry_out(tid, &call, name, decision) {
            Err(error) if error.raw_os_error() != Some(libc::ESRCH) => {
                Err(Error::target("cannot answer a system call", error))
            }
            _ => Ok(()),
        }
    }

    /// By the thread that calls: a main thread that ended has no descriptors any more.
    pub(crate) fn open_descendant(&mut self, tid: Tid, pid: i32) -> Option<Process> {
        let known = self.descendants.get_mut(pid).and_then(|one| one.process.take());
        match known {
            Some(known) if known.thread() == tid => Some(known), // any other may have ended
            _ => Process::open_by(pid, tid).or_else(|_| Process::open(pid)).ok(),
        }
    }

    /// It makes what is refused to the program: a checkpoint waits for the end of its process, unless a look finds it.
    pub(super) fn is_unfit_for(&mut self, pid: i32, call: &Stopped) {
        if !LEAVES_A_SIGN.contains(&call.name) {
            self.descendants.is_unfit(pid, call.name);
        }
    }

    /// What it maps shared becomes an object, as where the program does. Huge pages are waited for.
    pub(super) fn before_descendant_maps(&mut self, call: &Stopped, shares_memory: bool) -> Result<Decision> {
        let flags = call.int(3);
        let is_special = flags & (libc::MAP_HUGETLB | libc::MAP_GROWSDOWN) != 0;
        let is_shared = [libc::MAP_SHARED, libc::MAP_SHARED_VALIDATE].contains(&(flags & libc::MAP_TYPE));
        if shares_memory && (is_shared || is_special) {
            return Ok(not_there(libc::ENOMEM)); // it would stay in the program's memory
        }
        if is_special || !is_shared {
            return Ok(Decision::Run);
        }
        match self.before_shared_map(call, call.int(2), flags) {
            Err(Error::Unsupported(_)) => Ok(Decision::Run), // the next checkpoint names it, and waits
            decided => decided,
        }
    }

    /// Options that a look would not find keep the descendant from being captured.
    pub(super) fn before_descendant_controls(&mut self, pid: i32, call: &Stopped) -> Decision {
        /// ioctl_tty(2): of terminals, but those that type, log, or load code.
        const TERMINAL: std::ops::RangeInclusive<u64> = 0x5401..=0x545f;
        const NOT_THESE: [u64; 4] = [libc::TIOCSTI, libc::TIOCCONS, 0x541c, libc::TIOCSETD];
        /// Whose terminal it is. Of one that the tree made, a look finds it.
        const OWNERSHIP: [u64; 2] = [libc::TIOCSCTTY, libc::TIOCNOTTY];
        const EXCLUSION: [u64; 2] = [libc::TIOCEXCL, libc::TIOCNXCL];
        match call.name {
            "ioctl" => {
                let request = call.arguments[1] & 0xffff_ffff;
                let is_terminal = TERMINAL.contains(&request) && !NOT_THESE.contains(&request);
                let of_pty = request >> 8 & 0xff == u64::from(b'T') && request >> 30 != 0;
                let is_foreign = OWNERSHIP.contains(&request) && !self.is_own_terminal(call);
                if is_foreign || EXCLUSION.contains(&request) {
                    self.descendants.is_unfit(pid, "ioctl (ownership of a terminal)");
                }
                let is_known = QUESTIONS.contains(&request) || [FIOSETOWN, SIOCSPGRP].contains(&request);
                if is_terminal || of_pty || is_known {
                    return Decision::Run;
                }
                do_without(
                    libc::ENOTTY,
                    format!(
                        "what ioctl {} changes cannot be rolled back; the program can go on without it",
                        ioctl_name(request)
                    ),
                )
            }
            "prctl" if call.int(0) == libc::PR_SET_DUMPABLE => self.before_prctl(call),
            _ => {
                if !is_seen(call) {
                    self.descendants.is_unfit(pid, call.name);
                }
                Decision::Run
            }
        }
    }
}

/// Refused to the program, and found by a look at a descendant: what they make has a descriptor, or is its session.
const LEAVES_A_SIGN: [&str; 3] = ["fanotify_init", "fanotify_mark", "setsid"];

/// Whether a look at the descendant finds what an option changes, or it changes nothing.
fn is_seen(call: &Stopped) -> bool {
    const CET_STATUS: i32 = 0x3001;
    match call.name {
        "prctl" => [
            libc::PR_SET_NAME,
            libc::PR_SET_PDEATHSIG,
            libc::PR_SET_TIMERSLACK,
            libc::PR_SET_KEEPCAPS,
            // In a line of its status that the look compares.
            libc::PR_CAP_AMBIENT,
            libc::PR_CAPBSET_DROP,
            libc::PR_SET_CHILD_SUBREAPER,
            libc::PR_SET_THP_DISABLE,
        ]
        .contains(&call.int(0)),
        // Segment bases are registers; questions.
        "arch_prctl" => {
            matches!(
                call.int(0),
                0x1001..=0x1004 | 0x1011 | 0x1021 | 0x1022 | 0x1024 | CET_STATUS
            )
        }
        "fcntl" => {
            let command = call.int(1);
            notice::SETTERS.contains(&command)
                || [
                    libc::F_SETFL,
                    libc::F_DUPFD,
                    libc::F_DUPFD_CLOEXEC,
                    libc::F_SETFD,
                    libc::F_SETPIPE_SZ,
                    libc::F_ADD_SEALS,
                    libc::F_SETLK,
                    libc::F_SETLKW,
                    libc::F_OFD_SETLK,
                    libc::F_OFD_SETLKW,
                ]
                .contains(&command)
        }
        "memfd_create" => call.arguments[1] & u64::from(libc::MFD_HUGETLB) == 0,
        _ => false,
    }
}

/// A filter that only takes more calls away, seccomp(2): what it lets pass is watched as before. One that asks
/// another process could let calls pass unseen.
pub(super) fn is_plain_filter(call: &Stopped) -> bool {
    const NEW_LISTENER: u64 = 1 << 3;
    call.name == "seccomp"
        && (call.arguments[0] & 0xffff_ffff == u64::from(libc::SECCOMP_SET_MODE_STRICT)
            || call.arguments[1] & NEW_LISTENER == 0)
}
