//! Calls on pseudo-terminals that the program and its processes make for themselves.

use super::Stopped;
use crate::program::Program;
use crate::ptys::{self, End};
use rustix::fs::Stat;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use twinpage_os::remote::Process;
use twinpage_os::terminal;

/// What a look finds, or changes nothing: number, lock, packet mode, session and controlling terminal, flow, and a
/// wait for output.
pub(super) const OF_PTYS: [u64; 12] = [
    libc::TIOCGPTN,
    libc::TIOCSPTLCK,
    libc::TIOCGPTLCK,
    libc::TIOCGSID,
    libc::TIOCSCTTY,
    libc::TIOCNOTTY,
    libc::TCXONC,
    libc::TCSBRK,
    libc::TCSBRKP,
    libc::TIOCGDEV,
    libc::TIOCPKT,
    libc::TIOCGPKT,
];

impl Program {
    /// Whether the tree has the master of a pseudo-terminal.
    pub(super) fn has_terminal(&self, number: u32) -> bool {
        let mut living = self.descendants.living().into_iter();
        has_master(&self.process, number)
            || living.any(|pid| Process::open(pid).is_ok_and(|process| has_master(&process, number)))
    }

    /// Whether a call asks for a pseudo-terminal of the tree.
    pub(super) fn is_own_terminal(&self, call: &Stopped) -> bool {
        let Ok(ours) = self.caller().duplicate_fd(call.int(0)) else {
            return false; // the kernel will refuse it
        };
        let stat = rustix::fs::fstat(&ours);
        match stat.ok().and_then(|stat| ptys::end(ours.as_fd(), &stat)) {
            Some(End::Master(_)) => true,
            Some(End::Other(number)) => self.has_terminal(number),
            None => false,
        }
    }

    /// Bytes go to a descriptor of which fstat(2) says `stat`: if it is a master, its other end has something to read.
    pub(super) fn before_typing(&mut self, ours: &OwnedFd, stat: &Stat) {
        if let Some(End::Master(number)) = ptys::end(ours.as_fd(), stat) {
            self.descriptors.types_at(number);
        }
    }
}

/// Whether a process has the master of a pseudo-terminal.
fn has_master(process: &Process, number: u32) -> bool {
    let directory = format!("/proc/{}/fd", process.thread());
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut masters = entries.filter(|entry| {
        let link = fs::read_link(entry.path()).unwrap_or_default();
        link.starts_with("/dev") && link.file_name() == Path::new("ptmx").file_name()
    });
    masters.any(|entry| {
        let fd = entry.file_name().to_str().and_then(|number| number.parse().ok());
        let ours = fd.and_then(|fd: i32| process.duplicate_fd(fd).ok());
        ours.is_some_and(|ours| terminal::number(ours.as_fd()).is_ok_and(|found| found == number))
    })
}
