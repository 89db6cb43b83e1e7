//! The way to start a program in a place of its own: clone3(2), execve(2).
//!
//! * What runs between a fork and the program is safe there: it allocates nothing and takes no lock.

#![allow(unsafe_code)]

use libc::{c_int, pid_t};
use std::io;

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
