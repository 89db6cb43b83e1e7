//! Signals of this process and of those it starts: signal(7).

#![allow(unsafe_code)]

use crate::spawn::exit_now;
use libc::{c_int, pid_t};
use std::io;

/// Gives every signal the action that was meant for the program: the default, but for those that were
/// ignored, as nohup(1) does with SIGHUP. (SIGPIPE is ignored by our own runtime, so it is not known how
/// it was.) The signal mask is the one this thread was given. Safe after a fork.
pub fn reset_actions() {
    // SAFETY: plain system calls on valid, initialised structures.
    unsafe {
        for signal in 1..=64 {
            let mut before: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &raw mut before);
            if before.sa_sigaction != libc::SIG_IGN || signal == libc::SIGPIPE {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
    }
}

/// Printing to a pipe without readers ends the process, signal(7), as it does for any command
/// that only prints.
pub fn end_when_nobody_reads() {
    // SAFETY: a plain system call; the default action runs no code of ours.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// A write past the limit of file sizes fails with `EFBIG` and does not end this process, unless it was asked to ignore
/// SIGXFSZ anyway: setrlimit(2). A program that it executes has the default action again.
pub fn fail_at_file_limits() {
    extern "C" fn write_fails(_signal: c_int) {}
    let handler = write_fails as extern "C" fn(c_int);
    // SAFETY: the handler does nothing.
    unsafe {
        if libc::signal(libc::SIGXFSZ, handler as libc::sighandler_t) == libc::SIG_IGN {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        }
    }
}

/// Calls `make` with every signal blocked, pthread_sigmask(3): a thread it starts has none delivered.
pub fn with_signals_blocked<T>(make: impl FnOnce() -> T) -> T {
    let mut all = std::mem::MaybeUninit::uninit();
    let mut before = std::mem::MaybeUninit::uninit();
    // SAFETY: sigfillset fills the set, pthread_sigmask the old one.
    let before = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    };
    let made = make();
    // SAFETY: the mask this thread had.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    made
}

/// A descriptor that reads the signals of `mask`, one bit each: signalfd(2).
///
/// # Errors
/// `EMFILE` when there are too many.
pub fn signal_descriptor(mask: u64) -> io::Result<std::os::fd::OwnedFd> {
    let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
    // SAFETY: the kernel reads the eight bytes of a live mask and returns a descriptor that is ours.
    unsafe {
        let fd = libc::syscall(libc::SYS_signalfd4, -1, &raw const mask, size_of::<u64>(), flags);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(std::os::fd::FromRawFd::from_raw_fd(fd as std::os::fd::RawFd))
    }
}

/// Sends a signal to a process: kill(2).
///
/// # Errors
/// `ESRCH` when it is gone.
pub fn send(pid: pid_t, signal: c_int) -> io::Result<()> {
    // SAFETY: kill takes integers.
    match unsafe { libc::kill(pid, signal) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Kills this process as `signal` would have, so that its parent sees the same death.
pub fn die_of(signal: i32) -> ! {
    let no_core = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: plain system calls; `no_core` and `none` outlive their use; all-zero is an empty set.
    unsafe {
        let none: libc::sigset_t = std::mem::zeroed();
        libc::signal(signal, libc::SIG_DFL);
        libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core);
        libc::raise(signal); // it waits while it is blocked
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
    exit_now(128 + signal)
}

/// This process is killed when its parent dies: prctl(2), `PR_SET_PDEATHSIG`.
pub fn die_with_parent() {
    // SAFETY: prctl with integers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// What `command` starts is killed when the thread that starts it ends: prctl(2), `PR_SET_PDEATHSIG`.
pub fn end_with_parent(command: &mut std::process::Command) {
    use std::os::unix::process::CommandExt;
    // SAFETY: between fork and exec only prctl is called, which allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(|| {
            die_with_parent();
            Ok(())
        });
    }
}

/// Asked to end (SIGINT, SIGTERM, SIGHUP), this process calls `tidy` and then ends with the exit code a
/// shell shows for that signal. No signal is blocked for it, and programs started later have the actions
/// this process was given: execve(2) resets handlers and keeps what is ignored.
///
/// # Errors
/// When no pipe or thread can be had.
pub fn tidy_when_asked_to_end(tidy: impl FnOnce() + Send + 'static) -> io::Result<()> {
    use std::io::{Read, Write};
    static ASKED: std::sync::OnceLock<io::PipeWriter> = std::sync::OnceLock::new();
    extern "C" fn asked(signal: c_int) {
        // SAFETY: errno belongs to the interrupted code.
        let errno = unsafe { *libc::__errno_location() };
        if let Some(mut end) = ASKED.get() {
            let _ = end.write(&[signal as u8]); // a single write(2): safe in a handler
        }
        // SAFETY: errno is a thread's own variable, which lives as long as the thread.
        unsafe { *libc::__errno_location() = errno };
    }
    let (mut signals, end) = std::io::pipe()?;
    let _ = ASKED.set(end); // the first call counts
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            let mut signal = [0];
            while !matches!(signals.read(&mut signal), Ok(1)) {}
            tidy();
            exit_now(128 + i32::from(signal[0]))
        })?;
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: an all-zero sigaction is valid; the handler only loads a static and calls write.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &raw mut action);
            if action.sa_sigaction == libc::SIG_DFL {
                action.sa_sigaction = asked as extern "C" fn(c_int) as usize;
                action.sa_flags = libc::SA_RESTART;
                libc::sigaction(signal, &raw const action, std::ptr::null_mut());
            }
        }
    }
    Ok(())
}

/// This thread takes `signals` even if it was started with them blocked: pthread_sigmask(3).
pub(crate) fn unblock(signals: &[c_int]) {
    // SAFETY: all-zero is an empty set; the calls read and write a live set.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
    }
}
