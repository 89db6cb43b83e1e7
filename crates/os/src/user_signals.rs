//! Signals that a user sends to twinpage: they go to the program, ask for its suspension, or stop the job.
//!
//! * What handlers do here is safe in a handler: they load and store atomics and call kill(2).

#![allow(unsafe_code)]

use crate::proc_file;
use crate::signals::unblock;
use crate::stat::Stat;
use crate::ticker::ring;
use libc::{c_int, pid_t};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

/// The signal by which one twinpage asks another to suspend its program.
pub const SUSPEND: c_int = 41;

/// Signals that are passed on to the program: all that a user may send to it. [`SUSPEND`] is the last: a process that takes
/// it takes all.
const FORWARDED: [c_int; 15] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGTSTP,
    libc::SIGCONT,
    libc::SIGWINCH,
    libc::SIGIO,
    libc::SIGPWR,
    SUSPEND,
];

static FORWARD_TO: AtomicI32 = AtomicI32::new(0);
/// SIGCONT came, and was passed on.
static CONTINUED: AtomicBool = AtomicBool::new(false);
/// The signals that are not passed on but ask for a suspension, one bit each.
static SUSPENDING: AtomicU64 = AtomicU64::new(0);
/// Those that ask for the end, once the process is gone that they would be passed on to.
static ENDING: AtomicU64 = AtomicU64::new(0);
/// The signal that asked for it.
static SUSPENSION: AtomicI32 = AtomicI32::new(0);

/// From now on these signals and [`SUSPEND`] are not passed on: they ask for a suspension.
pub fn suspend_on(signals: &[c_int]) {
    SUSPENDING.store(mask_of(signals) | mask_of(&[SUSPEND]), Ordering::Relaxed);
}

/// From now on these signals are not passed on either: they ask for the end, where they do not for a suspension.
pub fn end_on(signals: &[c_int]) {
    ENDING.store(mask_of(signals), Ordering::Relaxed);
}

fn mask_of(signals: &[c_int]) -> u64 {
    let bits = signals.iter().map(|signal| 1 << (signal - 1));
    bits.fold(0, |mask, bit| mask | bit)
}

fn is_in(mask: &AtomicU64, signal: c_int) -> bool {
    mask.load(Ordering::Relaxed) >> (signal - 1) & 1 == 1
}

/// Whether a signal asks for a suspension.
pub fn suspends(signal: c_int) -> bool {
    is_in(&SUSPENDING, signal)
}

/// Asks this process for a suspension, as a signal would. Safe in a signal handler.
pub fn ask_to_suspend(signal: c_int) {
    SUSPENSION.store(signal, Ordering::Relaxed);
    ring();
}

/// Whether the process is a twinpage that takes [`SUSPEND`]: it has a handler for it, proc_pid_status(5).
#[must_use]
pub fn can_be_suspended(pid: u32) -> bool {
    let status = proc_file::text(format!("/proc/{pid}/status")).unwrap_or_default();
    proc_file::mask(&status, "SigCgt").is_some_and(|mask| mask >> (SUSPEND - 1) & 1 == 1)
}

/// Asks another twinpage to suspend its program.
///
/// # Errors
/// `EPERM` when it is another user's, `ESRCH` when it is gone.
pub fn ask_other_to_suspend(pid: u32) -> io::Result<()> {
    // SAFETY: kill takes integers.
    if unsafe { libc::kill(pid as pid_t, SUSPEND) } == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Continues a process if a signal stopped it: it takes no other signal before. One that is gone is
/// left to its caller.
pub fn continue_stopped(pid: u32) {
    if Stat::of(pid as i32).is_ok_and(|stat| stat.state() == Some('T')) {
        // SAFETY: kill takes integers.
        unsafe { libc::kill(pid as pid_t, libc::SIGCONT) };
    }
}

/// The signal that asked for a suspension, or for the end, if one did.
pub fn suspension() -> Option<c_int> {
    Some(SUSPENSION.load(Ordering::Relaxed)).filter(|signal| *signal > 0)
}

/// From now on the signals a user sends to a program go to process `pid` instead of ending this one.
/// Call after that process was made: it inherits the signal mask, which this changes.
///
/// # Errors
/// Never in practice.
pub fn forward_signals(pid: pid_t) -> io::Result<()> {
    extern "C" fn forward(signal: c_int) {
        let pid = FORWARD_TO.load(Ordering::Relaxed);
        if signal == libc::SIGCONT {
            CONTINUED.store(true, Ordering::Relaxed);
        }
        if suspends(signal) || is_in(&ENDING, signal) {
            ask_to_suspend(signal);
        } else if pid > 0 {
            // SAFETY: kill is safe in a signal handler.
            unsafe { libc::kill(pid, signal) };
        }
    }
    FORWARD_TO.store(pid, Ordering::Relaxed);
    unblock(&FORWARDED);
    for signal in FORWARDED {
        // SAFETY: the handler only loads an atomic and calls kill; an all-zero sigaction is valid.
        let result = unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &raw mut before);
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = forward as extern "C" fn(c_int) as usize;
            action.sa_flags = libc::SA_RESTART;
            // One that is ignored stays so, and so does the look at the terminal's size. A terminal that is to be given
            // back when a signal ends this process need not be: none of these does any more.
            let is_watched = signal == libc::SIGWINCH && before.sa_sigaction != libc::SIG_DFL;
            if before.sa_sigaction == libc::SIG_IGN || is_watched {
                continue;
            }
            libc::sigaction(signal, &raw const action, std::ptr::null_mut())
        };
        if result == -1 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The job of this process stops, as its terminal stops one: every process of its group. Returns when a shell
/// continues it, and process `pid`, to which signals are passed on, has SIGCONT then. A job that no shell looks after
/// does not stop, setpgid(2). Call from the only thread.
pub fn stop_job(pid: pid_t) {
    CONTINUED.store(false, Ordering::Relaxed);
    stop_group();
    if !CONTINUED.load(Ordering::Relaxed) {
        // SAFETY: kill takes integers.
        unsafe { libc::kill(pid, libc::SIGCONT) };
    }
}

/// Sends SIGTSTP, with its default action here, to every process of the group. Returns when this one is continued: a
/// process that sends itself a signal takes it before kill(2) returns.
fn stop_group() {
    let signal = libc::SIGTSTP;
    unblock(&[signal]);
    // SAFETY: an all-zero sigaction is the default action; the calls read and write live ones.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        let default: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut before);
        if before.sa_sigaction != libc::SIG_IGN {
            libc::sigaction(signal, &raw const default, std::ptr::null_mut());
        }
        libc::kill(0, signal);
        libc::sigaction(signal, &raw const before, std::ptr::null_mut());
    }
}
