//! A private place for a program to run in: namespaces(7).
//!
//! * A program resumed needs the process and thread ids it had, so it lives in a process-id
//!   namespace of its own, with a `/proc` that agrees.
//! * Its clocks go on from where they were, so it lives in a time namespace.
//! * Without privileges all of that happens in a user namespace that maps the user to itself.

#![allow(unsafe_code)]

use libc::{c_int, pid_t};
use std::fs;
use std::io;

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
