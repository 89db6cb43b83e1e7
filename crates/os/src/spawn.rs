//! A private place for a program to run in, and the way to start it there: namespaces(7), clone3(2).
//!
//! * A program resumed needs the process and thread ids it had, so it lives in a process-id
//!   namespace of its own, with a `/proc` that agrees.
//! * Its clocks go on from where they were, so it lives in a time namespace.
//! * Without privileges all of that happens in a user namespace that maps the user to itself.

#![allow(unsafe_code)]

use libc::{c_int, pid_t};
use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

/// What [`enter`] could not do, and its reason.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}; {advice}")]
pub struct NamespaceError {
    what: &'static str,
    advice: &'static str,
    source: io::Error,
}

fn refused(what: &'static str, advice: &'static str) -> impl FnOnce(io::Error) -> NamespaceError {
    move |source| NamespaceError { what, advice, source }
}

/// Prepares new namespaces for the children of this process. Call while single-threaded; the next
/// [`fork`] makes the first process of them. `clocks` says how far `CLOCK_MONOTONIC` and
/// `CLOCK_BOOTTIME` are moved, in nanoseconds; 0 leaves them.
///
/// # Errors
/// Names the namespace that could not be had, and the way out.
pub fn enter(monotonic_shift_ns: i128) -> Result<(), NamespaceError> {
    let wanted = libc::CLONE_NEWPID | libc::CLONE_NEWNS;
    match unshare(wanted) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => enter_user_namespace(wanted)?,
        result => result.map_err(refused(
            "cannot make a process-id namespace",
            "the kernel needs CONFIG_PID_NS",
        ))?,
    }
    if monotonic_shift_ns == 0 {
        return Ok(());
    }
    unshare(libc::CLONE_NEWTIME).map_err(refused(
        "cannot make a time namespace",
        "without it a resumed program would see its clock jump; the kernel needs CONFIG_TIME_NS",
    ))?;
    let seconds = monotonic_shift_ns.div_euclid(1_000_000_000);
    let nanoseconds = monotonic_shift_ns.rem_euclid(1_000_000_000);
    let offsets = format!("monotonic {seconds} {nanoseconds}\nboottime {seconds} {nanoseconds}\n");
    fs::write("/proc/self/timens_offsets", offsets).map_err(refused(
        "cannot set the clocks of the time namespace",
        "report this kernel",
    ))
}

fn enter_user_namespace(wanted: c_int) -> Result<(), NamespaceError> {
    // SAFETY: getuid and getgid cannot fail and touch no memory.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    unshare(libc::CLONE_NEWUSER | wanted).map_err(refused(
        "cannot make a user namespace",
        "allow them (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces) or run as root",
    ))?;
    let written = fs::write("/proc/self/setgroups", "deny")
        .and_then(|()| fs::write("/proc/self/uid_map", format!("{user} {user} 1\n")))
        .and_then(|()| fs::write("/proc/self/gid_map", format!("{group} {group} 1\n")));
    written.map_err(refused(
        "cannot map the user into its namespace",
        "AppArmor or a container may restrict user namespaces; run as root",
    ))
}

fn unshare(flags: c_int) -> io::Result<()> {
    // SAFETY: unshare takes one integer; single-threaded callers only, as documented.
    if unsafe { libc::unshare(flags) } == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Mounts a `/proc` that shows this process-id namespace. Call in its first process.
///
/// # Errors
/// Names the call that the container or kernel refused.
pub fn mount_proc() -> Result<(), NamespaceError> {
    let advice = "a container that hides parts of /proc forbids it; run twinpage outside it, or with --security-opt systempaths=unconfined";
    mount(c"none", c"/", None, libc::MS_REC | libc::MS_PRIVATE)
        .and_then(|()| {
            mount(
                c"proc",
                c"/proc",
                Some(c"proc"),
                libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC,
            )
        })
        .map_err(refused("cannot mount a private /proc", advice))
}

fn mount(
    source: &std::ffi::CStr,
    target: &std::ffi::CStr,
    kind: Option<&std::ffi::CStr>,
    flags: libc::c_ulong,
) -> io::Result<()> {
    let kind = kind.map_or(std::ptr::null(), std::ffi::CStr::as_ptr);
    // SAFETY: all pointers are NUL-terminated strings that outlive the call, or null.
    let result = unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind, flags, std::ptr::null()) };
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// The next process or thread of this namespace gets the id after `last`.
///
/// # Errors
/// `EPERM` outside a namespace of one's own.
pub fn set_last_pid(last: pid_t) -> io::Result<()> {
    fs::write("/proc/sys/kernel/ns_last_pid", last.to_string())
}

/// fork(2): 0 in the child. Call while single-threaded: the child is a whole program.
///
/// # Errors
/// `EAGAIN` at the limit of processes.
pub fn fork() -> io::Result<pid_t> {
    // SAFETY: documented: no other thread exists that could hold a lock.
    let pid = unsafe { libc::fork() };
    if pid == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(pid)
    }
}

/// Makes a child process with the id `pid`; it runs `body` and never returns.
///
/// The caller may have threads: `body` must not allocate, lock or panic, and must end in
/// [`exec`] or [`exit_now`].
///
/// # Errors
/// `EEXIST` when the id is taken, `EPERM` outside a namespace of one's own.
pub fn clone_with_pid(pid: pid_t, body: impl FnOnce()) -> io::Result<pid_t> {
    let wanted = [pid];
    // SAFETY: all-zero is a valid clone_args.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.exit_signal = libc::SIGCHLD as u64;
    arguments.set_tid = wanted.as_ptr() as u64;
    arguments.set_tid_size = 1;
    // SAFETY: without CLONE_VM this is fork(2): the child has its own copy of everything, on the
    // same stack; `body` keeps to what is safe after a fork of a threaded process, as documented.
    let child = unsafe {
        libc::syscall(
            libc::SYS_clone3,
            &raw const arguments,
            size_of::<libc::clone_args>(),
        )
    };
    match child {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            body();
            exit_now(127)
        }
        child => Ok(child as pid_t),
    }
}

/// _exit(2): ends this process at once, running no destructor.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit does not return and touches no memory.
    unsafe { libc::_exit(code) }
}

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

/// Stops this process until its tracer lets it go on. Safe after a fork.
pub fn stop_self() {
    // SAFETY: raise with a valid signal.
    unsafe { libc::raise(libc::SIGSTOP) };
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

/// execve(2) with the prepared arrays; returns the error if it fails. Safe after a fork.
#[must_use]
pub fn exec(program: &std::ffi::CStr, arguments: &CStrings, environment: &CStrings) -> io::Error {
    // SAFETY: both arrays end with a null pointer and their strings live as long as they do.
    unsafe {
        libc::execve(
            program.as_ptr(),
            arguments.pointers.as_ptr(),
            environment.pointers.as_ptr(),
        )
    };
    io::Error::last_os_error()
}

/// An array of C strings, ready for [`exec`] before a fork.
#[derive(Debug)]
pub struct CStrings {
    pointers: Vec<*const libc::c_char>,
    _strings: Vec<std::ffi::CString>,
}

impl CStrings {
    /// The array of `strings`, ended by a null pointer.
    #[must_use]
    pub fn new(strings: Vec<std::ffi::CString>) -> CStrings {
        let mut pointers: Vec<_> = strings.iter().map(|string| string.as_ptr()).collect();
        pointers.push(std::ptr::null());
        CStrings {
            pointers,
            _strings: strings,
        }
    }
}

/// A ticking alarm for one thread: it interrupts the thread's blocking system calls with `signal`,
/// first after `delay` and then every `repeat`, so that no tick is lost in a race.
#[derive(Debug)]
pub struct Ticker {
    timer: libc::timer_t,
}

impl Ticker {
    /// An alarm for the calling thread, not yet set. Installs an empty handler for `signal`.
    ///
    /// # Errors
    /// `EAGAIN` when the system has no timer left.
    pub fn for_this_thread(signal: c_int) -> io::Result<Ticker> {
        extern "C" fn nothing(_: c_int) {}
        // SAFETY: all-zero sigaction and sigevent are valid; the handler does nothing; the kernel
        // writes the timer's id into `timer`.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as extern "C" fn(c_int) as usize;
            if libc::sigaction(signal, &raw const action, std::ptr::null_mut()) == -1 {
                return Err(io::Error::last_os_error());
            }
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = signal;
            event.sigev_notify_thread_id = libc::gettid();
            let mut timer: libc::timer_t = std::mem::zeroed();
            unblock(&[signal]);
            WATCHER.store(event.sigev_notify_thread_id, Ordering::Relaxed);
            if libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) == -1 {
                return Err(io::Error::last_os_error());
            }
            Ok(Ticker { timer })
        }
    }

    /// Rings after `delay`, then every `repeat`.
    pub fn set(&self, delay: Duration, repeat: Duration) {
        let time = |duration: Duration| libc::timespec {
            tv_sec: duration.as_secs() as i64,
            tv_nsec: i64::from(duration.subsec_nanos()),
        };
        let setting = libc::itimerspec {
            it_value: time(delay.max(Duration::from_nanos(1))),
            it_interval: time(repeat),
        };
        // SAFETY: the timer is ours and alive; `setting` outlives the call.
        unsafe { libc::timer_settime(self.timer, 0, &raw const setting, std::ptr::null_mut()) };
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        // SAFETY: the timer is ours and not used after.
        unsafe { libc::timer_delete(self.timer) };
    }
}

/// The signal of a [`Ticker`], chosen among those no program sends by itself.
pub const ALARM: c_int = 40;

/// The signal by which one twinpage asks another to suspend its program.
pub const SUSPEND: c_int = 41;

/// Signals that are passed on to the program: all that a user may send to it.
const FORWARDED: [c_int; 15] = [
    SUSPEND,
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
];

static FORWARD_TO: AtomicI32 = AtomicI32::new(0);
/// SIGCONT came, and was passed on.
static CONTINUED: AtomicBool = AtomicBool::new(false);
/// The thread that the alarm wakes.
static WATCHER: AtomicI32 = AtomicI32::new(0);
/// The signals that are not passed on but ask for a suspension, one bit each.
static SUSPENDING: AtomicU64 = AtomicU64::new(0);
/// The signal that asked for it.
static SUSPENSION: AtomicI32 = AtomicI32::new(0);

/// From now on these signals and [`SUSPEND`] are not passed on: they ask for a suspension.
pub fn suspend_on(signals: &[c_int]) {
    let mask = signals
        .iter()
        .chain([&SUSPEND])
        .fold(0u64, |mask, signal| mask | 1 << (signal - 1));
    SUSPENDING.store(mask, Ordering::Relaxed);
}

/// Whether a signal asks for a suspension.
pub fn suspends(signal: c_int) -> bool {
    SUSPENDING.load(Ordering::Relaxed) >> (signal - 1) & 1 == 1
}

/// Asks this process for a suspension, as a signal would. Safe in a signal handler.
pub fn ask_to_suspend(signal: c_int) {
    SUSPENSION.store(signal, Ordering::Relaxed);
    ring();
}

/// The alarm of this process rings now: see [`Ticker`]. Safe in a signal handler, and on any thread.
pub fn ring() {
    let watcher = WATCHER.load(Ordering::Relaxed);
    if watcher > 0 {
        // SAFETY: getpid and tgkill take integers, and are safe in a handler.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), watcher, ALARM) };
    }
}

/// Whether the process is a twinpage that takes [`SUSPEND`]: it has a handler for it, proc_pid_status(5).
#[must_use]
pub fn can_be_suspended(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask >> (SUSPEND - 1) & 1 == 1)
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

/// Continues a process if a signal stopped it, proc_pid_stat(5): it takes no other signal before. One that is gone is
/// left to its caller.
pub fn continue_stopped(pid: u32) {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().unwrap_or_default();
    if state.starts_with('T') {
        // SAFETY: kill takes integers.
        unsafe { libc::kill(pid as pid_t, libc::SIGCONT) };
    }
}

/// The signal that asked for a suspension, if one did.
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
        if suspends(signal) {
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
            // One that is ignored, or looked after already (the terminal's size), stays so.
            if before.sa_sigaction != libc::SIG_DFL && before.sa_sigaction != action.sa_sigaction {
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

/// This thread takes `signals` even if it was started with them blocked: pthread_sigmask(3).
fn unblock(signals: &[c_int]) {
    // SAFETY: all-zero is an empty set; the calls read and write a live set.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
    }
}

/// Begins a session of its own, away from the terminal's signals.
pub fn leave_session() {
    // SAFETY: setsid takes nothing; it fails only for a group leader, which a forked child is not.
    unsafe { libc::setsid() };
}

/// Waits for a child to end. Its exit code, or the signal that killed it.
///
/// # Errors
/// `ECHILD` when there is no such child.
pub fn wait_for(pid: pid_t) -> io::Result<Result<c_int, c_int>> {
    loop {
        let mut status = 0;
        // SAFETY: `status` is a live c_int.
        match unsafe { libc::waitpid(pid, &raw mut status, 0) } {
            -1 => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            _ if libc::WIFEXITED(status) => return Ok(Ok(libc::WEXITSTATUS(status))),
            _ => return Ok(Err(libc::WTERMSIG(status))),
        }
    }
}

/// close(2). Safe after a fork.
pub fn close(fd: c_int) {
    // SAFETY: close takes an integer; callers own the descriptor.
    unsafe { libc::close(fd) };
}

/// A descriptor by number, for as long as a call.
///
/// # Errors
/// `EBADF` when it is not open.
pub fn borrow(fd: c_int) -> io::Result<std::os::fd::BorrowedFd<'static>> {
    // SAFETY: fcntl takes integers. The descriptor is open now; if it is closed later, system calls
    // on it fail, and no memory depends on it.
    unsafe {
        if fd < 0 || libc::fcntl(fd, libc::F_GETFD) == -1 {
            return Err(io::Error::last_os_error());
        }
        Ok(std::os::fd::BorrowedFd::borrow_raw(fd))
    }
}

/// Waits until the other end of a pipe is closed. Safe after a fork.
pub fn wait_for_gate(gate: c_int) {
    let mut byte = 0u8;
    // SAFETY: reads at most one byte into a live byte.
    while unsafe { libc::read(gate, (&raw mut byte).cast(), 1) } == -1 {}
}

/// Puts `ends` in the places of standard input, output and error (-1: left as it is), and makes
/// `terminal`, one of those places, the controlling terminal. Safe after a fork.
pub fn place_streams(ends: &[c_int; 3], terminal: Option<c_int>) {
    for (place, end) in ends.iter().enumerate().filter(|(_, end)| **end >= 0) {
        // SAFETY: dup2 takes integers.
        unsafe { libc::dup2(*end, place as c_int) };
    }
    if let Some(terminal) = terminal {
        // SAFETY: TIOCSCTTY takes an integer.
        unsafe { libc::ioctl(terminal, libc::TIOCSCTTY, 0) };
    }
}

/// Puts a copy of `source` at `place`: dup3(2). Safe after a fork.
pub fn place(source: c_int, place: c_int, cloexec: bool) {
    // SAFETY: dup3 takes integers.
    unsafe { libc::dup3(source, place, if cloexec { libc::O_CLOEXEC } else { 0 }) };
}

/// Closes the descriptors from `first` to `last`: close_range(2). Safe after a fork.
pub fn close_range(first: u32, last: u32) {
    // SAFETY: close_range takes integers.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}

/// Makes `directory` the working directory and `umask` the file mode mask. Safe after a fork.
///
/// # Errors
/// When the directory cannot be entered.
pub fn enter_directory(directory: &std::ffi::CStr, umask: u32) -> io::Result<()> {
    // SAFETY: chdir reads a NUL-terminated string; umask takes an integer.
    unsafe {
        libc::umask(umask);
        if libc::chdir(directory.as_ptr()) == -1 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Waits until a tracer takes over. Safe after a fork.
pub fn wait_for_ever() -> ! {
    loop {
        // SAFETY: pause takes nothing.
        unsafe { libc::pause() };
    }
}

/// Lets this process open as many files as its hard limit allows: setrlimit(2).
///
/// # Errors
/// Never in practice.
pub fn raise_descriptor_limit() -> io::Result<()> {
    let (_, hard) = crate::remote::limit(0, libc::RLIMIT_NOFILE)?;
    crate::remote::set_limit(0, libc::RLIMIT_NOFILE, hard, hard)
}
