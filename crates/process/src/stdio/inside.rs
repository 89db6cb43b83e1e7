//! The program's ends: a pipe or a pseudo-terminal in the place of each stream that is relayed.

use super::context::{Modes, TerminalContext};
use super::error::{Error, Result};
use super::outside::{reopen, stat};
use super::terminal;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::pipe::PipeFlags;
use std::path::Path;
use std::sync::Arc;

/// How large a pipe the program prints into, bytes; less where pipe(7) limits a user.
const OUTPUT_PIPE_BYTES: usize = 1 << 20;

/// What names a file of the system: device and inode.
pub(super) type Id = (u64, u64);

/// Our end of a pipe or pseudo-terminal.
#[derive(Debug)]
pub(super) enum Inside {
    /// The read end of a pipe the program writes to.
    Output(Arc<OwnedFd>),
    /// The write end of a pipe the program reads from.
    Input(Arc<OwnedFd>),
    /// A pipe the program reads from, without a writer: a read end, to see how much is
    /// left in it.
    Ended(OwnedFd),
    /// A pseudo-terminal. The program's side stays open here too: to inspect its input queue, and to keep
    /// the master from a hang-up after the program's last close.
    Terminal {
        master: Arc<OwnedFd>,
        slave: Arc<OwnedFd>,
    },
}

/// A new pipe or pseudo-terminal: our end, the program's end, and the inode the program's end shows.
pub(super) struct Made {
    pub(super) inside: Inside,
    pub(super) end: OwnedFd,
    pub(super) id: Id,
}

/// A pipe for the program to write to.
pub(super) fn output_pipe() -> Result<Made> {
    let (read, write) = pipe()?;
    nonblocking(read.as_fd())?;
    let mut size = OUTPUT_PIPE_BYTES;
    while size > 65536 && rustix::pipe::fcntl_setpipe_size(&read, size).is_err() {
        size /= 2;
    }
    Ok(Made {
        id: id(write.as_fd())?,
        inside: Inside::Output(Arc::new(read)),
        end: write,
    })
}

/// A pipe for the program to read from.
pub(super) fn input_pipe() -> Result<Made> {
    let (read, write) = pipe()?;
    nonblocking(write.as_fd())?;
    Ok(Made {
        id: id(read.as_fd())?,
        inside: Inside::Input(Arc::new(write)),
        end: read,
    })
}

/// A pseudo-terminal with these modes and size, pty(7).
pub(super) fn pty(modes: &Modes, size: [u16; 4]) -> Result<Made> {
    let failed = |e| Error::io("make a pseudo-terminal", e);
    let master = terminal::master().map_err(failed)?;
    let open = || terminal::other_end(&master).map_err(failed);
    let (slave, end) = (open()?, open()?);
    nonblocking(slave.as_fd())?;
    let failed = |e| Error::io("set up a pseudo-terminal", e);
    terminal::set_modes(slave.as_fd(), modes).map_err(failed)?;
    terminal::set_size(slave.as_fd(), size).map_err(failed)?;
    let inside = Inside::Terminal {
        master: Arc::new(master),
        slave: Arc::new(slave),
    };
    Ok(Made {
        id: id(end.as_fd())?,
        inside,
        end,
    })
}

/// The modes and size a program's terminal starts with: those of the real one, as it was found. Where no input is
/// relayed the real one stays as it is and does all the work on output.
pub(super) fn like(real: BorrowedFd<'_>, dir: &Path, relayed: bool) -> Result<TerminalContext> {
    let failed = |e| Error::io("read the modes of the terminal", e);
    let modes = terminal::found(real, dir).map_err(failed)?;
    let modes = if relayed { modes } else { modes.plain_output() };
    Ok(TerminalContext {
        modes,
        size: terminal::size(real).map_err(failed)?,
        queue: Vec::new(),
    })
}

impl Inside {
    /// What the program prints is read here.
    pub(super) fn output(&self) -> Option<&Arc<OwnedFd>> {
        match self {
            Inside::Output(fd) | Inside::Terminal { master: fd, .. } => Some(fd),
            Inside::Input(_) | Inside::Ended(_) => None,
        }
    }

    /// What the program shall read is written here.
    pub(super) fn input(&self) -> Option<&Arc<OwnedFd>> {
        match self {
            Inside::Input(fd) | Inside::Terminal { master: fd, .. } => Some(fd),
            Inside::Output(_) | Inside::Ended(_) => None,
        }
    }
}

/// The pipe of an input that ended, without the write end: the program reads to its end.
pub(super) fn ended(write: BorrowedFd<'_>) -> Option<Inside> {
    reopen(write, OFlags::RDONLY | OFlags::NONBLOCK)
        .ok()
        .map(Inside::Ended)
}

fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(|e| Error::io("make a pipe", e))
}

/// Only our end: the program's end is another open file, with flags of its own.
fn nonblocking(fd: BorrowedFd<'_>) -> Result<()> {
    let set = |flags| rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK);
    rustix::fs::fcntl_getfl(fd)
        .and_then(set)
        .map_err(|e| Error::io("set up a pipe", e))
}

fn id(fd: BorrowedFd<'_>) -> Result<Id> {
    let stat = stat(fd)?;
    Ok((stat.st_dev, stat.st_ino))
}
