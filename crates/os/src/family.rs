//! A command together with everything it starts: one family that ends as a whole.
//!
//! ```text
//! this process
//!   └─ guard        a child subreaper: orphans of the family become its children, prctl(2)
//!        └─ command  in a session of its own, with the signal mask and actions this process was given
//! ```
//!
//! * The family ends when the command does, when [`Family::end`] is called, and when this process dies,
//!   also by SIGKILL.
//! * The command sees nothing of the guard: no parent-death signal, no blocked signals.

#![allow(unsafe_code)]

use crate::signals::die_of;
use crate::spawn::exit_now;
use libc::{c_int, pid_t};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// A running command and its descendants.
#[derive(Debug)]
pub struct Family {
    guard: Child,
}

impl Family {
    /// Starts `command` under a guard.
    ///
    /// # Errors
    /// When the command cannot be started.
    pub fn start(command: &mut Command) -> io::Result<Family> {
        let parent = std::process::id() as pid_t;
        // SAFETY: between fork and exec only system calls on memory of this function's own are made;
        // nothing is allocated and no lock is taken.
        unsafe { command.pre_exec(move || guard(parent)) };
        Ok(Family {
            guard: command.spawn()?,
        })
    }

    /// The guard: it ends with the status of the command, when the whole family is gone.
    pub fn guard(&mut self) -> &mut Child {
        &mut self.guard
    }

    /// Kills the whole family and waits until it is gone.
    ///
    /// # Errors
    /// Never in practice.
    pub fn end(mut self) -> io::Result<()> {
        let guard = rustix::process::Pid::from_child(&self.guard);
        // Not SIGKILL: the guard has a family to end.
        rustix::process::kill_process(guard, rustix::process::Signal::TERM)?;
        self.guard.wait().map(drop)
    }
}

/// Splits the forked child in two: this call returns in the command's process only.
fn guard(parent: pid_t) -> io::Result<()> {
    // SAFETY: all-zero is a valid set; the calls read and write live sets and take integers; the raw
    // clone is fork(2) without handlers of the C library, in a process with one thread.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
        if libc::getppid() != parent {
            exit_now(1); // it died before the signal was asked for
        }
        match libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as pid_t {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                libc::setsid();
                libc::sigprocmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
                Ok(())
            }
            command => watch(command, &all),
        }
    }
}

/// Waits for the command to end or for SIGTERM, ends the rest of the family, and ends like the command.
fn watch(command: pid_t, all: &libc::sigset_t) -> ! {
    // The parent waits on a pipe for the exec; no descriptor of it may stay open here.
    crate::spawn::close_range(0, u32::MAX);
    let mut status = None;
    while status.is_none() {
        // SAFETY: reads a live set; no signal information is asked for.
        let signal = unsafe { libc::sigwaitinfo(all, std::ptr::null_mut()) };
        if signal == libc::SIGTERM {
            break;
        }
        while let Some((pid, ended)) = reap(libc::WNOHANG) {
            if pid == command {
                status = Some(ended);
            }
        }
    }
    end_children();
    match status {
        Some(status) if libc::WIFEXITED(status) => exit_now(libc::WEXITSTATUS(status)),
        Some(status) => die_of(libc::WTERMSIG(status)),
        None => die_of(libc::SIGTERM),
    }
}

/// A child that ended and its status; `None` when there is none.
fn reap(flags: c_int) -> Option<(pid_t, c_int)> {
    let mut status = 0;
    // SAFETY: `status` is a live c_int.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, flags) };
    (pid > 0).then_some((pid, status))
}

/// Kills the children until there are none: those of a killed child become children of this process.
fn end_children() {
    loop {
        let mut listed = [0u8; 4096];
        // SAFETY: a NUL-terminated path; the buffer is live and as long as stated.
        let length = unsafe {
            let fd = libc::open(c"/proc/thread-self/children".as_ptr(), libc::O_RDONLY);
            let length = libc::read(fd, listed.as_mut_ptr().cast(), listed.len());
            libc::close(fd);
            usize::try_from(length).unwrap_or(0)
        };
        // The last word may be cut off; the next round has it.
        let whole = listed[..length].rsplitn(2, |byte| *byte == b' ').nth(1);
        for word in whole.unwrap_or_default().split(|byte| *byte == b' ') {
            let pid = word
                .iter()
                .fold(0, |number, digit| number * 10 + pid_t::from(digit - b'0'));
            if pid > 0 {
                // SAFETY: takes integers; `pid` is a child not yet waited for, so the id is its own.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
        }
        if reap(0).is_none() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::process::Stdio;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        command
    }

    fn is_alive(pid: &str) -> bool {
        Path::new("/proc").join(pid.trim()).exists()
    }

    #[test]
    fn the_command_ends_as_it_would_alone() {
        for (script, code, signal) in [
            ("exit 3", Some(3), None),
            ("kill -TERM $$", None, Some(libc::SIGTERM)),
            ("kill -KILL $$", None, Some(libc::SIGKILL)),
        ] {
            use std::os::unix::process::ExitStatusExt;
            let mut family = Family::start(&mut shell(script)).unwrap();
            let status = family.guard().wait().unwrap();
            assert_eq!((status.code(), status.signal()), (code, signal), "{script}");
        }
        let error = Family::start(&mut Command::new("/no/such/program")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn nothing_of_the_family_is_left() {
        // One that left its session and whose parent is gone.
        let script = "(setsid sh -c 'echo $$; exec sleep 1000' >&4 &) 4>&1 >/dev/null; sleep .1";
        let mut family = Family::start(shell(script).stdout(Stdio::piped())).unwrap();
        let mut orphan = String::new();
        let mut stdout = family.guard().stdout.take().unwrap();
        io::Read::read_to_string(&mut stdout, &mut orphan).unwrap();
        assert!(family.guard().wait().unwrap().success());
        assert!(!orphan.trim().is_empty() && !is_alive(&orphan), "{orphan}");
    }

    #[test]
    fn a_family_that_is_ended() {
        let script = "sleep 1000 & echo $!; exec sleep 1000";
        let mut family = Family::start(shell(script).stdout(Stdio::piped())).unwrap();
        let mut line = String::new();
        let stdout = family.guard().stdout.take().unwrap();
        io::BufRead::read_line(&mut io::BufReader::new(stdout), &mut line).unwrap();
        assert!(is_alive(&line));
        family.end().unwrap();
        assert!(!is_alive(&line));
    }
}
