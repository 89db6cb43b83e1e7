//! Terminals: their modes and size, and the real one in raw mode while its input is relayed.
//!
//! The real terminal is given back as it was found, whatever ends this process ([`GiveBack`]) but
//! `SIGKILL`. Most shells then repair their terminal themselves, and a resume that finds it as a killed
//! process left it gives back what that process found.

use super::context::Modes;
use super::error::{Error, Result};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, FdFlags};
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use twinpage_os::terminal::{self, GiveBack, Termios, in_foreground};

/// The master of a new pseudo-terminal, pty(7).
pub(crate) fn master() -> io::Result<OwnedFd> {
    let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    rustix::pty::grantpt(&master)?;
    rustix::pty::unlockpt(&master)?;
    rustix::io::ioctl_fionbio(&master, true)?;
    Ok(master)
}

/// The other end of a master, an open file of its own. Not opened with `O_CLOEXEC`: TIOCGPTPEER leaves it among the
/// flags of the open file, where a program would see it (F_GETFL), and where fdinfo shows a descriptor that no exec keeps.
pub(crate) fn other_end(master: &OwnedFd) -> io::Result<OwnedFd> {
    let end = rustix::pty::ioctl_tiocgptpeer(master, OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    rustix::io::fcntl_setfd(&end, FdFlags::CLOEXEC)?;
    Ok(end)
}

/// Reads what was printed at the other end of a master: 0 bytes when that is closed and all was read. A read that waits for
/// a processor while the last is printed may get `EIO` before that (Linux 6.18, n_tty_read); the next one gets it.
pub(crate) fn printed(master: &OwnedFd, room: &mut [u8]) -> io::Result<usize> {
    let mut read = rustix::io::read(master, &mut *room);
    if read == Err(Errno::IO) {
        read = rustix::io::read(master, room);
    }
    match read {
        Err(Errno::IO) => Ok(0),
        read => Ok(read?),
    }
}

/// The modes of a terminal (for the master of a pseudo-terminal: those of its other end).
pub(crate) fn modes(fd: BorrowedFd<'_>) -> io::Result<Modes> {
    let t = terminal::modes(fd)?;
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

impl From<Modes> for Termios {
    fn from(modes: Modes) -> Termios {
        Termios {
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

/// Sets the modes of a terminal at once.
pub(crate) fn set_modes(fd: BorrowedFd<'_>, modes: &Modes) -> io::Result<()> {
    terminal::set_modes(fd, &(*modes).into())
}

impl Modes {
    /// Every byte passes as it is, both ways, cfmakeraw(3).
    pub(crate) fn raw(mut self) -> Modes {
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
    pub(crate) fn plain_output(mut self) -> Modes {
        self.oflag &= !libc::OPOST;
        self
    }

    /// Whether input comes in lines.
    pub(crate) fn lines(&self) -> bool {
        self.lflag & libc::ICANON != 0
    }
}

/// A program draws its screen again when the size changes. To have it drawn for the same size, its terminal is
/// [`narrower`] for this time.
pub(crate) const OTHER_SIZE: Duration = Duration::from_millis(50);

/// One column less.
pub(crate) fn narrower([rows, columns, ..]: [u16; 4]) -> [u16; 4] {
    [rows, columns.saturating_sub(1).max(1), 0, 0]
}

/// The size of a terminal: rows, columns, pixels.
pub(crate) fn size(fd: BorrowedFd<'_>) -> io::Result<[u16; 4]> {
    let s = rustix::termios::tcgetwinsize(fd)?;
    Ok([s.ws_row, s.ws_col, s.ws_xpixel, s.ws_ypixel])
}

/// Sets the size; the programs in its foreground get `SIGWINCH` when it changed.
pub(crate) fn set_size(
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

/// The modes that a terminal had before it was put in raw mode by a process that worked in this directory and was
/// killed; else those that it has.
pub(super) fn found(fd: BorrowedFd<'_>, dir: &Path) -> io::Result<Modes> {
    let now = modes(fd)?;
    Ok(noted(&dir.join(NOTE))
        .filter(|noted| noted.raw() == now)
        .unwrap_or(now))
}

/// What a process that was killed found.
fn noted(note: &Path) -> Option<Modes> {
    serde_json::from_slice(&std::fs::read(note).ok()?).ok()
}

/// The name of the modes that the real terminal was found with, in the directory of the streams.
const NOTE: &str = "terminal";

/// The real terminal, whose input is relayed. Its modes are given back when this is dropped.
#[derive(Debug)]
pub(super) struct RealTerminal {
    /// As it was found, once it is in raw mode. Dropped first: it needs the terminal open.
    taken: Option<GiveBack>,
    fd: OwnedFd,
    /// Where the modes it was found with are kept, for a resume that finds it raw after a kill.
    note: PathBuf,
}

impl RealTerminal {
    /// Takes a terminal, without changing it yet.
    pub(super) fn new(fd: OwnedFd, dir: &Path) -> RealTerminal {
        RealTerminal {
            fd,
            note: dir.join(NOTE),
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
        let before = match noted(&self.note) {
            Some(noted) if noted.raw() == found => noted,
            _ => {
                self.take_note(found)?;
                found
            }
        };
        let taken = GiveBack::promise(self.fd.as_fd(), before.into());
        set_modes(self.fd.as_fd(), &found.raw()).map_err(failed)?;
        self.taken = Some(taken);
        Ok(true)
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

impl RealTerminal {
    /// It is as it was found, until it is taken again.
    pub(super) fn give_back(&mut self) {
        if let Some(taken) = self.taken.take() {
            drop(taken);
            let _ = std::fs::remove_file(&self.note);
        }
    }
}

impl Drop for RealTerminal {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As after a process that was killed before it had a checkpoint: the next one begins with the modes it had found.
    #[test]
    fn a_terminal_that_was_left_raw_is_known_as_it_was_found() {
        let dir = tempfile::tempdir().unwrap();
        let master = master().unwrap();
        let end = other_end(&master).unwrap();
        let before = modes(end.as_fd()).unwrap();
        assert_eq!(found(end.as_fd(), dir.path()).unwrap(), before);
        let real = RealTerminal::new(end.try_clone().unwrap(), dir.path());
        real.take_note(before).unwrap();
        set_modes(end.as_fd(), &before.raw()).unwrap();
        std::mem::forget(real);
        assert_eq!(found(end.as_fd(), dir.path()).unwrap(), before);
        // One that a shell repaired is as the shell left it.
        let repaired = before.plain_output();
        set_modes(end.as_fd(), &repaired).unwrap();
        assert_eq!(found(end.as_fd(), dir.path()).unwrap(), repaired);
    }
}
