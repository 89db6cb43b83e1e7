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
//! More can be typed ahead than is put back at once; the rest follows at later stops, when the program
//! has read what is there.
//!
//! Bytes written to the master arrive at the queue later, by a kernel worker. The barrier says when:
//! in line mode one more character and its erasure, whose echo (`x\b \b`) comes back behind all
//! others; without lines, the number of bytes in the queue.

use super::context::{LineEnd, Modes, Typed};
use super::terminal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use std::io;

/// Larger than the kernel's queue, N_TTY_BUF_SIZE.
const QUEUE_BYTES: usize = 8192;

/// What is put in at once: half of the kernel's queue, so that it all arrives without being read.
const BATCH_BYTES: usize = 2048;

/// The longest line a terminal holds, N_TTY_BUF_SIZE.
pub(super) const LINE_BYTES: usize = 4096;

/// What a terminal looks like to its reader.
pub(crate) type Look = (Modes, Vec<Typed>);

/// Bytes that can be read now, ioctl_tty(2).
pub(crate) fn readable(slave: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(rustix::io::ioctl_fionread(slave)?)
}

/// Reads the queue out. The program is stopped. On return everything written to the master has been
/// processed: echoed, and made into signals where it was meant so.
pub(crate) fn take(slave: BorrowedFd<'_>) -> io::Result<Look> {
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
/// read from the master before. Returns what there is no room for: more lines can be typed ahead than
/// the queue takes, and what is put in must all arrive.
pub(crate) fn put(
    master: BorrowedFd<'_>,
    slave: BorrowedFd<'_>,
    modes: &Modes,
    queue: Vec<Typed>,
) -> io::Result<Vec<Typed>> {
    let (now, later) = if modes.lines() {
        some_lines(queue)
    } else {
        some_bytes(queue)
    };
    if now.is_empty() {
        // Nothing to put.
    } else if modes.lines() {
        put_lines(master, slave, modes, &now)?;
    } else {
        put_bytes(master, slave, modes, &now)?;
    }
    terminal::set_modes(slave, modes)?;
    Ok(later)
}

/// As many pieces as surely fit; at least one, which came out of such a queue and fits.
fn some_lines(mut queue: Vec<Typed>) -> (Vec<Typed>, Vec<Typed>) {
    let mut total = 0;
    let fits = queue.iter().position(|piece| {
        total += piece.bytes.len() + 1;
        total > BATCH_BYTES
    });
    let later = queue.split_off(fits.unwrap_or(queue.len()).max(1).min(queue.len()));
    (queue, later)
}

/// As many bytes as surely fit.
fn some_bytes(queue: Vec<Typed>) -> (Vec<Typed>, Vec<Typed>) {
    let mut bytes: Vec<u8> = queue.into_iter().flat_map(|piece| piece.bytes).collect();
    let later = bytes.split_off(bytes.len().min(BATCH_BYTES));
    let open = |bytes: Vec<u8>| match bytes.is_empty() {
        true => vec![],
        false => vec![Typed {
            bytes,
            end: LineEnd::Open,
        }],
    };
    (open(bytes), open(later))
}

fn put_bytes(master: BorrowedFd<'_>, slave: BorrowedFd<'_>, modes: &Modes, now: &[Typed]) -> io::Result<()> {
    terminal::set_modes(slave, &neutral_to_bytes(modes))?;
    let mut total = 0;
    for piece in now {
        write(master, &piece.bytes)?;
        total += piece.bytes.len() as u64;
    }
    while readable(slave)? < total {
        std::thread::yield_now();
    }
    Ok(())
}

fn put_lines(master: BorrowedFd<'_>, slave: BorrowedFd<'_>, modes: &Modes, now: &[Typed]) -> io::Result<()> {
    let mut free = (1..=255u8).filter(|b| *b != b'\n' && !now.iter().any(|t| t.bytes.contains(b)));
    let (Some(eof), Some(erase)) = (free.next(), free.next()) else {
        return Err(io::Error::other("typed input uses every byte there is"));
    };
    let mut neutral = neutral(modes);
    neutral.cc[libc::VEOF] = eof;
    neutral.cc[libc::VERASE] = erase;
    let other_end = |t: &&Typed| t.end == LineEnd::Line && t.bytes.last() != Some(&b'\n');
    if let Some(&end) = now.iter().find(other_end).and_then(|t| t.bytes.last()) {
        neutral.cc[libc::VEOL] = end;
    }
    terminal::set_modes(slave, &neutral)?;
    for piece in now {
        write(master, &piece.bytes)?;
        if piece.end == LineEnd::Eof {
            write(master, &[eof])?;
        }
    }
    match now {
        // One piece may fill the queue and leave no room for a barrier. It can be read when its end
        // is there; and where it has none, looking whether anything can be read waits for it.
        [
            Typed {
                end: LineEnd::Open, ..
            },
        ] => look(slave, PollFlags::IN)?,
        [_] => wait(slave, PollFlags::IN)?,
        _ => {
            write(master, &[b'x', erase])?;
            return wait_for_echo(master, b"x\x08 \x08");
        }
    }
    // The echo of what was put is dropped.
    while read(master)?.is_some() {}
    Ok(())
}

fn wait_for_echo(master: BorrowedFd<'_>, last: &[u8]) -> io::Result<()> {
    let mut echo = Vec::new();
    while !echo.ends_with(last) {
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

/// The same without lines and echo.
pub(crate) fn neutral_to_bytes(modes: &Modes) -> Modes {
    let neutral = neutral(modes);
    Modes {
        lflag: neutral.lflag & !(libc::ICANON | libc::ECHO | libc::ECHOE),
        ..neutral
    }
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
    ask(fd, what, None)
}

/// poll(2) without waiting. The kernel first lets its worker finish when there is nothing to read.
fn look(fd: BorrowedFd<'_>, what: PollFlags) -> io::Result<()> {
    ask(
        fd,
        what,
        Some(&Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        }),
    )
}

fn ask(fd: BorrowedFd<'_>, what: PollFlags, timeout: Option<&Timespec>) -> io::Result<()> {
    match poll(&mut [PollFd::from_borrowed_fd(fd.as_fd(), what)], timeout) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::inside::{Inside, pty};
    use super::*;

    fn modes(lines: bool) -> Modes {
        let (iflag, oflag) = (libc::ICRNL | libc::IXON, libc::OPOST | libc::ONLCR);
        let mut lflag = libc::ISIG | libc::ECHO | libc::ECHOE | libc::ECHOCTL | libc::IEXTEN;
        if lines {
            lflag |= libc::ICANON;
        }
        let mut cc = [0; 19];
        (cc[libc::VINTR], cc[libc::VERASE], cc[libc::VEOF], cc[libc::VMIN]) = (3, 127, 4, 1);
        cc[libc::VEOL] = b';';
        let (line, ispeed, ospeed) = (0, 38400, 38400);
        Modes {
            iflag,
            oflag,
            cflag: libc::CS8 | libc::CREAD | libc::B38400,
            lflag,
            line,
            cc,
            ispeed,
            ospeed,
        }
    }

    fn typed(bytes: &[u8], end: LineEnd) -> Typed {
        Typed {
            bytes: bytes.to_vec(),
            end,
        }
    }

    /// Puts `queue` into a terminal and takes it out again, as often as it takes.
    fn through(lines: bool, queue: Vec<Typed>) -> Vec<Typed> {
        let modes = modes(lines);
        let made = pty(&modes, [24, 80, 0, 0]).unwrap();
        let Inside::Terminal { master, slave } = &made.inside else {
            panic!("a terminal")
        };
        let (mut left, mut all) = (queue, vec![]);
        while !left.is_empty() {
            left = put(master.as_fd(), slave.as_fd(), &modes, left).unwrap();
            assert_eq!(read(master.as_fd()).unwrap(), None, "nothing shows");
            let (found, mut some) = take(slave.as_fd()).unwrap();
            assert_eq!(found.lflag, modes.lflag);
            all.append(&mut some);
        }
        all
    }

    #[test]
    fn every_kind_of_piece_comes_back() {
        use LineEnd::{Eof, Line, Open};
        for queue in [
            vec![
                typed(b"\n", Line),
                typed(b"a\x03\x7f\x04b\x00\n", Line),
                typed(b"part", Open),
            ],
            vec![
                typed(b"", Eof),
                typed(b"", Eof),
                typed(b"x", Eof),
                typed(b"", Eof),
            ],
            vec![typed(b"by another end;", Line), typed(b"and\n", Line)],
            vec![typed(b"\xff\xfe", Open)],
            vec![typed(b"", Eof)],
            vec![typed(&[b'l'; 4095], Open)],
            vec![
                typed(&[[b'l'; 4095].as_slice(), b"\n"].concat(), Line),
                typed(b"more\n", Line),
            ],
            vec![typed(&[b'l'; 4095], Eof), typed(b"more", Open)],
        ] {
            assert_eq!(through(true, queue.clone()), queue);
        }
    }

    #[test]
    fn more_than_fits_comes_back_bit_by_bit() {
        let lines = (0..900).map(|i| typed(format!("line {i}\n").as_bytes(), LineEnd::Line));
        let lines: Vec<_> = lines.chain([typed(b"and a", LineEnd::Open)]).collect();
        assert_eq!(through(true, lines.clone()), lines);
        let bytes: Vec<u8> = (0..9000).map(|i| (i % 251) as u8).collect();
        let found = through(false, vec![typed(&bytes, LineEnd::Open)]);
        assert_eq!(
            found.iter().flat_map(|t| t.bytes.clone()).collect::<Vec<_>>(),
            bytes
        );
    }
}
