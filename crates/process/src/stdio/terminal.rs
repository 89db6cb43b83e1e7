//! Terminals: their modes and size, and the real one in raw mode while its input is relayed.
//!
//! The real terminal is given back as it was found: at the end, when the relay is dropped, at
//! exit(3), and on the signals that end a process and were not handled when it was taken. `SIGKILL`
//! cannot be helped: most shells then repair their terminal themselves, and a resume that finds it as
//! a killed process left it gives back what that process found.

#![allow(unsafe_code)]

use super::context::Modes;
use super::error::{Error, Result};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::termios::Winsize;
use std::io;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

/// The modes of a terminal (for the master of a pseudo-terminal: those of its other end),
/// ioctl_tty(2).
pub(super) fn modes(fd: BorrowedFd<'_>) -> io::Result<Modes> {
    let t = get(fd.as_raw_fd())?;
    Ok(Modes {
        iflag: t.c_iflag,
        oflag: t.c_oflag,
        cflag: t.c_cflag,
        lflag: t.c_lflag,
        line: t.c_line,
        cc: t.c_cc,
        ispeed: t.c_ispeed,
        ospeed: t.c_ospeed,
    })
}

impl From<Modes> for libc::termios2 {
    fn from(modes: Modes) -> libc::termios2 {
        libc::termios2 {
            c_iflag: modes.iflag,
            c_oflag: modes.oflag,
            c_cflag: modes.cflag,
            c_lflag: modes.lflag,
            c_line: modes.line,
            c_cc: modes.cc,
            c_ispeed: modes.ispeed,
            c_ospeed: modes.ospeed,
        }
    }
}

/// Sets the modes of a terminal at once, ioctl_tty(2).
pub(super) fn set_modes(fd: BorrowedFd<'_>, modes: &Modes) -> io::Result<()> {
    set(fd.as_raw_fd(), &(*modes).into())
}

fn get(fd: RawFd) -> io::Result<libc::termios2> {
    let mut termios = std::mem::MaybeUninit::<libc::termios2>::uninit();
    // SAFETY: TCGETS2 fills one termios2.
    if unsafe { libc::ioctl(fd, libc::TCGETS2, termios.as_mut_ptr()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: filled.
    Ok(unsafe { termios.assume_init() })
}

fn set(fd: RawFd, termios: &libc::termios2) -> io::Result<()> {
    // SAFETY: TCSETS2 reads one termios2.
    if unsafe { libc::ioctl(fd, libc::TCSETS2, ptr::from_ref(termios)) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

impl Modes {
    /// Every byte passes as it is, both ways, cfmakeraw(3).
    pub(super) fn raw(mut self) -> Modes {
        self.iflag &= !(libc::IGNBRK
            | libc::BRKINT
            | libc::PARMRK
            | libc::ISTRIP
            | libc::INLCR
            | libc::IGNCR
            | libc::ICRNL
            | libc::IXON);
        self.oflag &= !libc::OPOST;
        self.lflag &= !(libc::ECHO | libc::ECHONL | libc::ICANON | libc::ISIG | libc::IEXTEN);
        self.cflag = self.cflag & !(libc::CSIZE | libc::PARENB) | libc::CS8;
        self.cc[libc::VMIN] = 1;
        self.cc[libc::VTIME] = 0;
        self
    }

    /// Output passes as it is.
    pub(super) fn plain_output(mut self) -> Modes {
        self.oflag &= !libc::OPOST;
        self
    }

    /// Whether input comes in lines.
    pub(super) fn lines(&self) -> bool {
        self.lflag & libc::ICANON != 0
    }
}

/// The size of a terminal: rows, columns, pixels.
pub(super) fn size(fd: BorrowedFd<'_>) -> io::Result<[u16; 4]> {
    let s = rustix::termios::tcgetwinsize(fd)?;
    Ok([s.ws_row, s.ws_col, s.ws_xpixel, s.ws_ypixel])
}

/// Sets the size; the programs in its foreground get `SIGWINCH` when it changed.
pub(super) fn set_size(
    fd: BorrowedFd<'_>,
    [ws_row, ws_col, ws_xpixel, ws_ypixel]: [u16; 4],
) -> io::Result<()> {
    Ok(rustix::termios::tcsetwinsize(
        fd,
        Winsize {
            ws_row,
            ws_col,
            ws_xpixel,
            ws_ypixel,
        },
    )?)
}

/// What a signal handler needs to give the terminal back. Never freed: a handler may be looking.
struct Taken {
    fd: RawFd,
    termios: libc::termios2,
}

static TAKEN: AtomicPtr<Taken> = AtomicPtr::new(ptr::null_mut());
/// The eventfds of those who want to know of a change of size; -1 for none. More than one only where
/// one process holds the streams of several programs.
static RESIZED: [AtomicI32; 16] = [const { AtomicI32::new(-1) }; 16];
static HANDLERS: Once = Once::new();

impl std::fmt::Debug for Taken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Taken")
            .field("fd", &self.fd)
            .finish_non_exhaustive()
    }
}

/// The real terminal, whose input is relayed. Its modes are given back when this is dropped.
#[derive(Debug)]
pub(super) struct RealTerminal {
    fd: OwnedFd,
    /// Where the modes it was found with are kept, for a resume that finds it raw after a kill.
    note: PathBuf,
    /// As it was found, once it is in raw mode.
    taken: Option<&'static Taken>,
}

impl RealTerminal {
    /// Takes a terminal, without changing it yet.
    pub(super) fn new(fd: OwnedFd, dir: &Path) -> RealTerminal {
        RealTerminal {
            fd,
            note: dir.join("terminal"),
            taken: None,
        }
    }

    /// Raw mode, when this process is in the terminal's foreground. Says whether it is in raw mode.
    pub(super) fn take(&mut self) -> Result<bool> {
        if self.taken.is_some() {
            return Ok(true);
        }
        if !in_foreground(self.fd.as_fd()) {
            return Ok(false);
        }
        let failed = |e| Error::io("put the terminal in raw mode", e);
        let found = modes(self.fd.as_fd()).map_err(failed)?;
        let before = match self.noted() {
            Some(noted) if noted.raw() == found => noted,
            _ => {
                self.take_note(found)?;
                found
            }
        };
        let taken: &Taken = Box::leak(Box::new(Taken {
            fd: self.fd.as_raw_fd(),
            termios: before.into(),
        }));
        TAKEN.store(ptr::from_ref(taken).cast_mut(), Ordering::SeqCst);
        HANDLERS.call_once(install_handlers);
        set_modes(self.fd.as_fd(), &found.raw()).map_err(failed)?;
        self.taken = Some(taken);
        Ok(true)
    }

    /// What a process that was killed found.
    fn noted(&self) -> Option<Modes> {
        serde_json::from_slice(&std::fs::read(&self.note).ok()?).ok()
    }

    /// In place at once, or not at all.
    fn take_note(&self, found: Modes) -> Result<()> {
        let note = serde_json::to_vec(&found).map_err(|e| Error::Context(e.to_string()))?;
        let new = self.note.with_extension("new");
        std::fs::write(&new, note)
            .and_then(|()| std::fs::rename(&new, &self.note))
            .map_err(|e| Error::io(format!("write {}", self.note.display()), e))
    }
}

impl Drop for RealTerminal {
    fn drop(&mut self) {
        if let Some(taken) = self.taken {
            let own = ptr::from_ref(taken).cast_mut();
            let _ = TAKEN.compare_exchange(own, ptr::null_mut(), Ordering::SeqCst, Ordering::SeqCst);
            // Nothing can be done about a terminal that is gone.
            let _ = set(taken.fd, &taken.termios);
            let _ = std::fs::remove_file(&self.note);
        }
    }
}

/// Whether this process may touch the terminal: in the background that would stop it (SIGTTOU),
/// credentials(7). A terminal that does not control this process never stops it. In a PID namespace
/// the groups outside have no number (0): then nothing is known, and job control takes its course.
fn in_foreground(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: numbers only.
    let (front, own) = unsafe { (libc::tcgetpgrp(fd.as_raw_fd()), libc::getpgrp()) };
    front <= 0 || own == 0 || front == own
}

/// Gives the real terminal back as it was found. Safe in a signal handler, and twice.
pub(super) fn restore() {
    let taken = TAKEN.swap(ptr::null_mut(), Ordering::SeqCst);
    // SAFETY: null, or leaked by `take` and never freed.
    if let Some(taken) = unsafe { taken.as_ref() } {
        // Nothing can be done about a terminal that is gone.
        let _ = set(taken.fd, &taken.termios);
    }
}

/// From now on a change of the real terminal's size adds 1 to `eventfd`.
pub(super) fn watch_size(eventfd: BorrowedFd<'_>) {
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
pub(super) fn forget_size(eventfd: BorrowedFd<'_>) {
    for slot in &RESIZED {
        let _ = slot.compare_exchange(eventfd.as_raw_fd(), -1, Ordering::SeqCst, Ordering::SeqCst);
    }
}

fn install_handlers() {
    // SAFETY: `restore_at_exit` may be called at any exit.
    unsafe { libc::atexit(restore_at_exit) };
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

/// Installs a handler where there is none, sigaction(2).
///
/// # Safety
/// The handler must be async-signal-safe, signal-safety(7).
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

extern "C" fn restore_at_exit() {
    restore();
}

extern "C" fn on_deadly(signal: libc::c_int) {
    restore();
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
