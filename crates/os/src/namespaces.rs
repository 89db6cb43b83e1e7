//! A private place for a program to run in: namespaces(7).
//!
//! * A program resumed needs the process and thread ids it had, so it lives in a process-id
//!   namespace of its own, with a `/proc` that agrees.
//! * Its clocks go on from where they were, so it lives in a time namespace.
//! * Semaphores and message queues of System V come back under their numbers, so it lives in an IPC namespace.
//! * Where its network is its own, it lives in a network namespace with nothing but a loopback.
//! * Without `CAP_SYS_ADMIN` all of that happens in a user namespace, which maps each user to itself: all of them where
//!   this user may change to any, as root in most containers, else its own alone.

#![allow(unsafe_code)]

use crate::proc_file;
use crate::spawn::{self, CStrings};
use libc::{c_int, pid_t};
use std::ffi::{CString, OsString};
use std::fs;
use std::io::{self, Read, Write};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;

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

/// Root without the right to make namespaces, as in many containers, gets a user namespace of its own, and executes this
/// program again there. The kernel checks access to a process (ptrace(2)) in the user namespace in which its program was
/// executed; for a process that a resume makes that is twinpage's. Without this, root could not look at one that must
/// not be dumped. Call first of all, with one thread.
///
/// # Errors
/// Names what is refused, and the way out.
pub fn begin_with_rights() -> Result<(), NamespaceError> {
    if !rustix::process::geteuid().is_root() || may(SYS_ADMIN) {
        return Ok(());
    }
    enter_user_namespace(0)?;
    let again = || {
        refused(
            "cannot start twinpage in its user namespace",
            "start it from a file",
        )
    };
    let program = std::env::current_exe().map_err(again())?;
    let strings = |strings: &mut dyn Iterator<Item = OsString>| {
        let strings: Result<_, _> = strings.map(|string| CString::new(string.into_vec())).collect();
        strings.map(CStrings::new).map_err(io::Error::other)
    };
    let path = CString::new(program.into_os_string().into_vec()).map_err(|error| again()(error.into()))?;
    let words = strings(&mut std::env::args_os()).map_err(again())?;
    let environment = strings(&mut std::env::vars_os().map(|(mut name, value)| {
        name.push("=");
        name.push(value);
        name
    }));
    Err(again()(spawn::exec(
        &path,
        &words,
        &environment.map_err(again())?,
    )))
}

/// How a private place differs from one program to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Place {
    /// How far `CLOCK_MONOTONIC` and `CLOCK_BOOTTIME` are moved, in nanoseconds; 0 leaves them.
    pub clock_shift_ns: i128,
    /// Whether it has a network of its own.
    pub own_network: bool,
}

/// Prepares new namespaces for the children of this process. Call while single-threaded; the next
/// [`spawn::fork`] makes the first process of them.
///
/// # Errors
/// Names the namespace that could not be had, and the way out.
pub fn enter(place: Place) -> Result<(), NamespaceError> {
    let wanted = libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWIPC;
    match unshare(wanted) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => enter_user_namespace(wanted)?,
        result => result.map_err(refused(
            "cannot make namespaces of process ids and System V IPC",
            "the kernel needs CONFIG_PID_NS and CONFIG_IPC_NS",
        ))?,
    }
    if place.own_network {
        enter_network()?;
    }
    enter_time(place.clock_shift_ns)
}

/// A network of this process and its children, with a loopback. The ports that take a right are those of the machine.
fn enter_network() -> Result<(), NamespaceError> {
    const FIRST_FREE_PORT: &str = "/proc/sys/net/ipv4/ip_unprivileged_port_start";
    let first_free_port = fs::read_to_string(FIRST_FREE_PORT);
    unshare(libc::CLONE_NEWNET).map_err(refused(
        "cannot make a network of the program's own",
        "the kernel needs CONFIG_NET_NS; without --network keep the program has the machine's network",
    ))?;
    let prepared = start_loopback().and_then(|()| match first_free_port {
        Ok(port) => fs::write(FIRST_FREE_PORT, port),
        Err(_) => Ok(()), // kernels before 4.11 have none, and the same ports in all networks
    });
    prepared.map_err(refused(
        "cannot prepare the program's network",
        "without --network keep the program has the machine's network",
    ))
}

/// Sets the loopback of this network up, which gives it its addresses: netdevice(7).
fn start_loopback() -> io::Result<()> {
    let any = UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: zeros are a valid request, which is numbers and addresses alone.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, letter) in request.ifr_name.iter_mut().zip(*b"lo") {
        *place = libc::c_char::from_ne_bytes([letter]);
    }
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(libc::IFF_UP).unwrap_or_default();
    // SAFETY: the call reads the request, a whole one, and keeps nothing of it.
    let result = unsafe { libc::ioctl(any.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn enter_time(monotonic_shift_ns: i128) -> Result<(), NamespaceError> {
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
    let mapper = if may(SETGID_SETUID_SETFCAP) {
        Some(Mapper::start()?)
    } else {
        None
    };
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid()); // inside they have no number yet
    unshare(libc::CLONE_NEWUSER | wanted).map_err(refused(
        "cannot make a user namespace",
        "allow them (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces) or run as root",
    ))?;
    let mapped = mapper.map_or_else(|| map_one(user.as_raw(), group.as_raw()), Mapper::map);
    mapped.map_err(refused(
        "cannot map the users into their namespace",
        "AppArmor or a container may restrict user namespaces; run as root",
    ))
}

/// Capabilities that user_namespaces(7) asks of a user who gives a new namespace all the users that there are here.
const SETGID_SETUID_SETFCAP: u64 = 1 << 6 | 1 << 7 | 1 << 31;
const SYS_ADMIN: u64 = 1 << 21;

/// Whether all these capabilities are in force.
fn may(wanted: u64) -> bool {
    let status = proc_file::text("/proc/self/status").unwrap_or_default();
    proc_file::mask(&status, "CapEff").is_some_and(|effective| effective & wanted == wanted)
}

fn map_one(user: u32, group: u32) -> io::Result<()> {
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1\n"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1\n"))
}

/// A process that stays outside a new user namespace, and maps all users into it: inside, there is no right to do so.
struct Mapper {
    pid: pid_t,
    /// It waits for a byte, and ends without one.
    go: io::PipeWriter,
}

impl Mapper {
    fn start() -> Result<Mapper, NamespaceError> {
        let started = || {
            refused(
                "cannot start a process that maps the users",
                "the machine may have too many",
            )
        };
        let (mut gate, go) = io::pipe().map_err(started())?;
        let unshared = std::process::id();
        let pid = spawn::fork().map_err(started())?;
        if pid == 0 {
            drop(go);
            let mapped = gate.read_exact(&mut [0]).and_then(|()| map_all_users(unshared));
            let code = |error: io::Error| error.raw_os_error().unwrap_or(libc::EIO);
            spawn::exit_now(mapped.err().map_or(0, code));
        }
        Ok(Mapper { pid, go })
    }

    /// Lets it do its work for this process, whose namespace is new.
    fn map(self) -> io::Result<()> {
        let Mapper { pid, mut go } = self;
        go.write_all(&[1])?;
        match spawn::wait_for(pid)? {
            Ok(0) => Ok(()),
            Ok(code) => Err(io::Error::from_raw_os_error(code)),
            Err(signal) => Err(io::Error::other(format!(
                "what does it was killed by signal {signal}"
            ))),
        }
    }
}

/// Gives the namespace that process `unshared` made all users and groups of this one.
fn map_all_users(unshared: u32) -> io::Result<()> {
    for map in ["uid_map", "gid_map"] {
        let here = fs::read_to_string(format!("/proc/self/{map}"))?;
        let lines = here.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let (first, count) = (words.next()?, words.nth(1)?);
            Some(format!("{first} {first} {count}\n"))
        });
        fs::write(format!("/proc/{unshared}/{map}"), lines.collect::<String>())?;
    }
    Ok(())
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
