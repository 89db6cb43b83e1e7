//! What was typed at a pseudo-terminal and not yet read: the line discipline's input queue.
//!
//! The kernel has no way to look at that queue, so it is read out and put back while the program is
//! stopped. Putting back must add nothing (no echo, no signal, no editing), so the terminal is set
//! to modes in which every byte stands for itself, and back when the last byte has arrived:
//!
//! ```text
//!   take:  read lines until none | leave line mode | read the line in the making | line mode
//!   put:   neutral modes | bytes, line by line | barrier | the modes that were
//! ```
//!
//! Bytes written to the master arrive at the queue later, by a kernel worker. The barrier says when:
//! in line mode one more character and its erasure, whose echo (`x\b \b`) comes back behind all
//! others; without lines, the number of bytes in the queue.

use super::context::{LineEnd, Modes, Typed};
use super::terminal;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use std::io;

/// Larger than the kernel's queue, N_TTY_BUF_SIZE.
const QUEUE_BYTES: usize = 8192;

/// What a terminal looks like to its reader.
pub(super) type Look = (Modes, Vec<Typed>);

/// Bytes that can be read now, ioctl_tty(2).
pub(super) fn readable(slave: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(rustix::io::ioctl_fionread(slave)?)
}

/// Reads the queue out. The program is stopped. On return everything written to the master has been
/// processed: echoed, and made into signals where it was meant so.
pub(super) fn take(slave: BorrowedFd<'_>) -> io::Result<Look> {
    let modes = terminal::modes(slave)?;
    let mut queue = Vec::new();
    if modes.lines() {
        // Each piece takes a place in the queue; a terminal that hung up reads empty for ever.
        while queue.len() < QUEUE_BYTES
            && let Some(bytes) = read(slave)?
        {
            let line = bytes.last().is_some_and(|&b| {
                b == b'\n' || b != 0 && (b == modes.cc[libc::VEOL] || b == modes.cc[libc::VEOL2])
            });
            let end = if line { LineEnd::Line } else { LineEnd::Eof };
            queue.push(Typed { bytes, end });
        }
        let mut open = modes;
        open.lflag &= !(libc::ICANON | libc::ECHO | libc::ECHONL);
        open.cc[libc::VMIN] = 1;
        open.cc[libc::VTIME] = 0;
        terminal::set_modes(slave, &open)?;
    }
    let mut bytes = Vec::new();
    while let Some(more) = read(slave)? {
        if more.is_empty() {
            break;
        }
        bytes.extend(more);
    }
    if modes.lines() {
        terminal::set_modes(slave, &modes)?;
    }
    if !bytes.is_empty() {
        queue.push(Typed {
            bytes,
            end: LineEnd::Open,
        });
    }
    Ok((modes, queue))
}

/// Fills an empty queue as `take` found it, and sets the modes. What the program printed has been
/// read from the master before.
pub(super) fn put(
    master: BorrowedFd<'_>,
    slave: BorrowedFd<'_>,
    modes: &Modes,
    queue: &[Typed],
) -> io::Result<()> {
    if queue.is_empty() {
        return terminal::set_modes(slave, modes);
    }
    let total: usize = queue.iter().map(|t| t.bytes.len()).sum();
    if modes.lines() {
        put_lines(master, slave, modes, queue)?;
    } else {
        let mut neutral = neutral(modes);
        neutral.lflag &= !(libc::ICANON | libc::ECHO | libc::ECHOE);
        terminal::set_modes(slave, &neutral)?;
        for typed in queue {
            write(master, &typed.bytes)?;
        }
        // The queue is smaller than the kernel's buffers: all of it arrives without our help.
        while readable(slave)? < total as u64 {
            std::thread::yield_now();
        }
    }
    terminal::set_modes(slave, modes)
}

fn put_lines(
    master: BorrowedFd<'_>,
    slave: BorrowedFd<'_>,
    modes: &Modes,
    queue: &[Typed],
) -> io::Result<()> {
    let mut free = (1..=255u8).filter(|b| *b != b'\n' && !queue.iter().any(|t| t.bytes.contains(b)));
    let (Some(eof), Some(erase)) = (free.next(), free.next()) else {
        return Err(io::Error::other("typed input uses every byte there is"));
    };
    let mut neutral = neutral(modes);
    neutral.cc[libc::VEOF] = eof;
    neutral.cc[libc::VERASE] = erase;
    let other_end = |t: &&Typed| t.end == LineEnd::Line && t.bytes.last() != Some(&b'\n');
    if let Some(&end) = queue.iter().find(other_end).and_then(|t| t.bytes.last()) {
        neutral.cc[libc::VEOL] = end;
    }
    terminal::set_modes(slave, &neutral)?;
    for typed in queue {
        write(master, &typed.bytes)?;
        if typed.end == LineEnd::Eof {
            write(master, &[eof])?;
        }
    }
    write(master, &[b'x', erase])?;
    let mut echo = Vec::new();
    while !echo.ends_with(b"x\x08 \x08") {
        match read(master)? {
            Some(bytes) => echo.extend(bytes),
            None => wait(master, PollFlags::IN)?,
        }
    }
    Ok(())
}

/// Line mode, echo, and nothing else: no signals, no flow control, no character with a meaning.
fn neutral(modes: &Modes) -> Modes {
    let mut neutral = *modes;
    neutral.iflag = 0;
    neutral.oflag &= !libc::OPOST;
    neutral.lflag = libc::ICANON | libc::ECHO | libc::ECHOE;
    neutral.cc = [0; 19];
    neutral.cc[libc::VMIN] = 1;
    neutral
}

/// What one read gives; `None` when there is nothing.
fn read(fd: BorrowedFd<'_>) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; QUEUE_BYTES];
    loop {
        match rustix::io::read(fd, &mut bytes[..]) {
            Ok(n) => {
                bytes.truncate(n);
                return Ok(Some(bytes));
            }
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

fn write(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(fd, bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::AGAIN) => wait(fd, PollFlags::OUT)?,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

fn wait(fd: BorrowedFd<'_>, what: PollFlags) -> io::Result<()> {
    match poll(&mut [PollFd::from_borrowed_fd(fd.as_fd(), what)], None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}
