//! A terminal's modes, given back as they were found whatever ends the process but SIGKILL; and its
//! changes of size. ioctl_tty(2), sigaction(2).
//!
//! * What a signal handler does here is async-signal-safe, signal-safety(7): loads, ioctl, write, raise.
//! * A handler is installed only where there is none: a program that handles a signal already goes on to.

#![allow(unsafe_code)]

pub use libc::termios2 as Termios;

use crate::stat::Stat;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};
use std::sync::{Once, OnceLock};

/// The modes of a terminal (for the master of a pseudo-terminal: those of its other end).
///
/// # Errors
/// `ENOTTY` when it is none.
pub fn modes(fd: BorrowedFd<'_>) -> io::Result<Termios> {
    let mut termios = std::mem::MaybeUninit::<Termios>::uninit();
    // SAFETY: TCGETS2 fills one termios2.
    if unsafe { libc::ioctl(fd.as_raw_fd(), libc::TCGETS2, termios.as_mut_ptr()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: filled.
    Ok(unsafe { termios.assume_init() })
}

/// The number of a pseudo-terminal, asked at its master: ioctl_tty(2), `TIOCGPTN`.
///
/// # Errors
/// `ENOTTY` when it is none.
pub fn number(master: BorrowedFd<'_>) -> io::Result<u32> {
    ask(master, libc::TIOCGPTN)
}

/// Whether the other end of a master may not be opened yet: `TIOCGPTLCK`.
///
/// # Errors
/// `ENOTTY` when it is none.
pub fn is_locked(master: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(ask(master, libc::TIOCGPTLCK)? != 0)
}

/// Keeps the other end of a master from being opened, or no longer: `TIOCSPTLCK`.
///
/// # Errors
/// `ENOTTY` when it is none.
pub fn lock(master: BorrowedFd<'_>, is_locked: bool) -> io::Result<()> {
    switch(master, libc::TIOCSPTLCK, is_locked)
}

/// Whether reads of a master begin with a byte that tells of the flow at its other end: packet mode, `TIOCGPKT`.
///
/// # Errors
/// `ENOTTY` when it is none.
pub fn is_in_packet_mode(master: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(ask(master, libc::TIOCGPKT)? != 0)
}

/// Turns packet mode on or off: `TIOCPKT`. News of the flow that were not read are gone then.
///
/// # Errors
/// `ENOTTY` when it is none.
pub fn set_packet_mode(master: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    switch(master, libc::TIOCPKT, on)
}

/// The device of a terminal, major and minor number, also where it was opened as /dev/tty: `TIOCGDEV`.
///
/// # Errors
/// `ENOTTY` when it is none.
pub fn device(fd: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
    ask(fd, libc::TIOCGDEV).map(numbers)
}

/// The major and the minor number of a device number of 32 bits, as in ioctl_tty(2) and proc_pid_stat(5).
fn numbers(device: u32) -> (u32, u32) {
    (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xf_ff00)
}

/// An ioctl that turns something on or off.
fn switch(fd: BorrowedFd<'_>, request: libc::Ioctl, on: bool) -> io::Result<()> {
    let on = libc::c_int::from(on);
    // SAFETY: the requests given here read one int.
    if unsafe { libc::ioctl(fd.as_raw_fd(), request, &raw const on) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// An ioctl that answers with a number of 32 bits.
fn ask(fd: BorrowedFd<'_>, request: libc::Ioctl) -> io::Result<u32> {
    let mut answer = 0u32;
    // SAFETY: the requests given here write one number of 32 bits.
    if unsafe { libc::ioctl(fd.as_raw_fd(), request, &raw mut answer) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(answer)
}

/// Sets the modes of a terminal at once.
///
/// # Errors
/// `ENOTTY` when it is none, `EIO` when it is gone.
pub fn set_modes(fd: BorrowedFd<'_>, modes: &Termios) -> io::Result<()> {
    set(fd.as_raw_fd(), modes)
}

fn set(fd: RawFd, modes: &Termios) -> io::Result<()> {
    // SAFETY: TCSETS2 reads one termios2.
    if unsafe { libc::ioctl(fd, libc::TCSETS2, ptr::from_ref(modes)) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The process whose place on its terminal this one shares: /proc/PID/stat, opened outside of a PID namespace.
static OUTER: OnceLock<File> = OnceLock::new();

/// From now on [`in_foreground`] asks for the process of this open proc_pid_stat(5), which is in the terminal's session
/// while this one left it. The first call counts.
pub fn share_foreground(stat: File) {
    let _ = OUTER.set(stat);
}

/// Whether this process may read and change the terminal: in the background that would stop it (SIGTTIN, SIGTTOU),
/// credentials(7), and the keys are those of another. A terminal that does not control it never stops it.
#[must_use]
pub fn in_foreground(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: numbers only.
    let (front, own) = unsafe { (libc::tcgetpgrp(fd.as_raw_fd()), libc::getpgrp()) };
    if front > 0 && own > 0 {
        return front == own;
    }
    OUTER.get().is_none_or(|stat| {
        let device = rustix::fs::fstat(fd).map_or(0, |stat| stat.st_rdev);
        !is_in_background(&Stat::of_open(stat).unwrap_or_default(), device)
    })
}

/// Whether a process is in the background of the terminal `device`.
fn is_in_background(stat: &Stat, device: u64) -> bool {
    /// /dev/tty: whichever terminal controls the process.
    const OWN: (u32, u32) = (5, 0);
    let [group, terminal, front] = [5, 7, 8].map(|field| stat.field::<i64>(field).unwrap_or(0));
    let terminal = numbers(terminal as u32);
    let device = (rustix::fs::major(device), rustix::fs::minor(device));
    (device == terminal || device == OWN) && front > 0 && front != group
}

/// What a signal handler needs to give the terminal back. Never freed: a handler may be looking.
struct Taken {
    fd: RawFd,
    modes: Termios,
}

static TAKEN: AtomicPtr<Taken> = AtomicPtr::new(ptr::null_mut());
/// The eventfds told of a change of size; -1 for none. More than one only where
/// one process holds the streams of several programs.
static RESIZED: [AtomicI32; 16] = [const { AtomicI32::new(-1) }; 16];
static HANDLERS: Once = Once::new();

/// A promise to give a terminal back: kept when this is dropped, at exit(3), and on the signals that
/// end a process and were not handled when it was made. The terminal stays open until then.
pub struct GiveBack(&'static Taken);

impl GiveBack {
    /// Promises that `fd` will have `modes`.
    #[must_use]
    pub fn promise(fd: BorrowedFd<'_>, modes: Termios) -> GiveBack {
        let fd = fd.as_raw_fd();
        let taken: &Taken = Box::leak(Box::new(Taken { fd, modes }));
        TAKEN.store(ptr::from_ref(taken).cast_mut(), Ordering::SeqCst);
        HANDLERS.call_once(install_handlers);
        GiveBack(taken)
    }
}

impl std::fmt::Debug for GiveBack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GiveBack")
            .field("fd", &self.0.fd)
            .finish_non_exhaustive()
    }
}

impl Drop for GiveBack {
    fn drop(&mut self) {
        let own = ptr::from_ref(self.0).cast_mut();
        let _ = TAKEN.compare_exchange(own, ptr::null_mut(), Ordering::SeqCst, Ordering::SeqCst);
        // Nothing can be done about a terminal that is gone.
        let _ = set(self.0.fd, &self.0.modes);
    }
}

/// Gives a terminal that was promised back now. Safe in a signal handler, and twice.
pub fn give_back() {
    let taken = TAKEN.swap(ptr::null_mut(), Ordering::SeqCst);
    // SAFETY: null, or leaked by `promise` and never freed.
    if let Some(taken) = unsafe { taken.as_ref() } {
        // Nothing can be done about a terminal that is gone.
        let _ = set(taken.fd, &taken.modes);
    }
}

/// From now on a change of the terminal's size adds 1 to `eventfd`.
pub fn watch_size(eventfd: BorrowedFd<'_>) {
    let place = |slot: &&AtomicI32| {
        slot.compare_exchange(-1, eventfd.as_raw_fd(), Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    };
    // With all places taken, this one keeps its size.
    let _ = RESIZED.iter().find(place);
    // SAFETY: the handler only calls write(2).
    unsafe { handle(libc::SIGWINCH, on_resize, libc::SA_RESTART) };
}

/// Ends [`watch_size`]; to be called before the eventfd is closed.
pub fn forget_size(eventfd: BorrowedFd<'_>) {
    for slot in &RESIZED {
        let _ = slot.compare_exchange(eventfd.as_raw_fd(), -1, Ordering::SeqCst, Ordering::SeqCst);
    }
}

fn install_handlers() {
    // SAFETY: `give_back_at_exit` may be called at any exit.
    unsafe { libc::atexit(give_back_at_exit) };
    for signal in [
        libc::SIGHUP,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGTERM,
        libc::SIGABRT,
    ] {
        // SAFETY: the handler only calls ioctl(2) and raise(3).
        unsafe { handle(signal, on_deadly, libc::SA_RESETHAND | libc::SA_NODEFER) };
    }
}

/// Installs a handler where there is none.
///
/// # Safety
/// The handler must be async-signal-safe.
unsafe fn handle(signal: libc::c_int, handler: extern "C" fn(libc::c_int), flags: libc::c_int) {
    // SAFETY: zeros are a valid sigaction (the default action), which the first call overwrites.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(signal, ptr::null(), &raw mut now) == 0 && now.sa_sigaction == libc::SIG_DFL {
            now.sa_sigaction = handler as *const () as libc::sighandler_t;
            now.sa_flags = flags;
            libc::sigaction(signal, &raw const now, ptr::null_mut());
        }
    }
}

extern "C" fn give_back_at_exit() {
    give_back();
}

extern "C" fn on_deadly(signal: libc::c_int) {
    give_back();
    // SAFETY: the default action is back (SA_RESETHAND).
    unsafe { libc::raise(signal) };
}

extern "C" fn on_resize(_: libc::c_int) {
    for slot in &RESIZED {
        let fd = slot.load(Ordering::SeqCst);
        if fd >= 0 {
            // SAFETY: errno belongs to the interrupted code; eight bytes for an eventfd.
            unsafe {
                let errno = *libc::__errno_location();
                libc::write(fd, ptr::from_ref(&1u64).cast(), 8);
                *libc::__errno_location() = errno;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_in_the_background_of_its_own_terminal_only() {
        let (own, other, any) = (
            rustix::fs::makedev(136, 3),
            rustix::fs::makedev(136, 4),
            rustix::fs::makedev(5, 0),
        );
        let line = |group, front| format!("7 (a) b) S 1 {group} 5 34819 {front} 4194304 0");
        for (group, front, device, holds) in [
            (7, 9, own, true),
            (7, 9, any, true),
            (7, 9, other, false),
            (7, 7, own, false),
            (7, -1, own, false),
        ] {
            assert_eq!(
                is_in_background(&Stat::parse(line(group, front).as_bytes()), device),
                holds,
                "{group} {front} {device}"
            );
        }
        assert!(!is_in_background(&Stat::default(), own));
    }
}
