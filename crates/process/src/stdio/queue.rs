//! What was typed at a pseudo-terminal and not yet read: the line discipline's input queue.
//!
//! The kernel has no way to look at that queue, so it is read out and put back while the program is
//! stopped. Putting back must add nothing (no echo, no signal, no editing), so the terminal is set
//! to modes in which every byte stands for itself, and back when the last byte has arrived:
//!
//! ```text
//!   take:  read lines until none | leave line mode | read the line in the making | line mode
//!   put:   neutral modes | bytes, a few at a time, and their echo | the modes that were
//! ```
//!
//! More can be typed ahead than is put back at once; the rest follows at later stops, when the program
//! has read what is there.
//!
//! Bytes written to the master arrive at the queue later, by a kernel worker. In line mode their echo
//! shows that they are there; without lines, the number of bytes in the queue. One more character and
//! its erasure, whose echo is `x\b \b`, go before them, as an earlier echo may not be out yet, and follow
//! an end of input (`VEOF`), which has no echo.

use super::context::{LineEnd, Modes, Typed};
use super::terminal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use std::io;
use std::time::{Duration, Instant};

/// What one read asks for: more than the kernel's queue takes.
const READ_BYTES: usize = 8192;
/// More pieces than can be typed ahead.
const MOST_PIECES: usize = 1 << 16;

/// What is put in at once: half of the kernel's queue, so that it all arrives without being read.
const BATCH_BYTES: usize = 2048;

/// The longest line a terminal holds, N_TTY_BUF_SIZE.
pub(super) const LINE_BYTES: usize = 4096;
/// What it holds of several lines.
const LINES_BYTES: usize = LINE_BYTES - 1;

/// What is typed before its echo is read: the kernel keeps the echo of some thousands.
const ECHO_BYTES: usize = 256;

/// How long the kernel's worker may take.
const PATIENCE: Duration = Duration::from_secs(5);

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
        while queue.len() < MOST_PIECES
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
        total += piece.bytes.len();
    }
    await_readable(slave, total, Duration::MAX)
}

/// Types lines into an empty queue, until it is full. Returns what it has no room for, as it is to be typed in the modes
/// that are to be set then. What the program printed has been read from the master before.
pub(crate) fn put_lines(
    master: BorrowedFd<'_>,
    slave: BorrowedFd<'_>,
    modes: &Modes,
    queue: &[Typed],
) -> io::Result<Vec<u8>> {
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
    let mut bytes = Vec::new();
    for piece in queue {
        bytes.extend(&piece.bytes);
        bytes.extend((piece.end == LineEnd::Eof).then_some(eof));
    }
    let (now, later) = bytes.split_at(bytes.len().min(room(queue)));
    terminal::set_modes(slave, &neutral)?;
    pass_mark(master, erase)?; // an echo that the output had no room for comes before it
    for some in now.chunks(ECHO_BYTES) {
        write(master, some)?;
        await_echo(master, some.iter().filter(|byte| **byte != eof).count())?;
    }
    if now.last() == Some(&eof) {
        await_end_of_input(master, slave, now, eof, erase)?;
    }
    let mut again = Vec::new();
    for &byte in later {
        if byte == eof {
            again.push(modes.cc[libc::VEOF]);
            continue;
        }
        again.extend(has_meaning(byte, modes).then_some(modes.cc[libc::VLNEXT]));
        again.push(byte);
    }
    Ok(again)
}

/// Whether the queue has room for all of what was typed.
pub(crate) fn has_room(queue: &[Typed]) -> bool {
    queue.iter().map(places).sum::<usize>() <= room(queue)
}

/// Places that a piece takes in the queue.
fn places(piece: &Typed) -> usize {
    piece.bytes.len() + usize::from(piece.end == LineEnd::Eof)
}

/// How many places the queue has.
fn room(queue: &[Typed]) -> usize {
    queue.first().map_or(0, places).clamp(LINES_BYTES, LINE_BYTES)
}

/// Whether a byte of a line, typed in these modes, needs `VLNEXT` before it to stand for itself.
fn has_meaning(byte: u8, modes: &Modes) -> bool {
    use libc::{VERASE, VINTR, VKILL, VLNEXT, VQUIT, VREPRINT, VSTART, VSTOP, VSUSP, VWERASE};
    let is_one = |of: &[usize]| byte != 0 && of.iter().any(|n| modes.cc[*n] == byte);
    modes.lflag & libc::IEXTEN != 0
        && modes.cc[VLNEXT] != 0
        && (is_one(&[VERASE, VKILL, libc::VEOF, VWERASE, VREPRINT, VLNEXT])
            || modes.lflag & libc::ISIG != 0 && is_one(&[VINTR, VQUIT, VSUSP])
            || modes.iflag & libc::IXON != 0 && is_one(&[VSTART, VSTOP])
            || modes.iflag & (libc::ICRNL | libc::IGNCR) != 0 && byte == b'\r')
}

/// Reads this many bytes of echo. It is dropped.
fn await_echo(master: BorrowedFd<'_>, mut left: usize) -> io::Result<()> {
    while left > 0 {
        match read(master)? {
            Some(echo) => left = left.saturating_sub(echo.len()),
            None => wait_for_input(master)?,
        }
    }
    Ok(())
}

/// Types one character and its erasure, and waits for their echo, which comes after all others. Those are dropped.
fn pass_mark(master: BorrowedFd<'_>, erase: u8) -> io::Result<()> {
    write(master, &[b'x', erase])?;
    let mut echo = Vec::new();
    while !echo.ends_with(b"x\x08 \x08") {
        match read(master)? {
            Some(more) => echo.extend(more),
            None => wait_for_input(master)?,
        }
    }
    Ok(())
}

/// Waits until an end of input, the last of `typed`, is in the queue.
fn await_end_of_input(
    master: BorrowedFd<'_>,
    slave: BorrowedFd<'_>,
    typed: &[u8],
    eof: u8,
    erase: u8,
) -> io::Result<()> {
    if typed.len() + 2 <= LINES_BYTES {
        return pass_mark(master, erase);
    }
    // Without room for more, the bytes before it can be read when it is there.
    let bytes = typed.iter().filter(|byte| **byte != eof).count();
    await_readable(slave, bytes, PATIENCE)
}

/// Waits until this many bytes can be read, but no longer than `most`: the kernel's worker moves them to the queue.
pub(crate) fn await_readable(reader: BorrowedFd<'_>, bytes: usize, most: Duration) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        let there = readable(reader)?;
        if there >= bytes as u64 {
            return Ok(());
        }
        if begun.elapsed() >= most {
            let why =
                format!("after {most:?} a terminal shows {there} of {bytes} bytes that were typed again");
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        pause(begun);
    }
}

/// Lets the kernel's worker run, for which something waits since `begun`.
pub(crate) fn pause(begun: Instant) {
    match begun.elapsed() < Duration::from_millis(1) {
        true => std::thread::yield_now(),
        false => std::thread::sleep(Duration::from_micros(100)),
    }
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
    let mut bytes = vec![0; READ_BYTES];
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
            Err(Errno::AGAIN) => drop(ask(fd, PollFlags::OUT, None)?),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

fn wait_for_input(fd: BorrowedFd<'_>) -> io::Result<()> {
    let patience = Timespec::try_from(PATIENCE).map_err(io::Error::other)?;
    match ask(fd, PollFlags::IN, Some(&patience))? {
        true => Ok(()),
        false => Err(io::Error::other(
            "typed input that was put back does not arrive in the queue",
        )),
    }
}

/// Whether poll(2) told of something, in time.
fn ask(fd: BorrowedFd<'_>, what: PollFlags, timeout: Option<&Timespec>) -> io::Result<bool> {
    match poll(&mut [PollFd::from_borrowed_fd(fd.as_fd(), what)], timeout) {
        Ok(told) => Ok(told > 0),
        Err(Errno::INTR) => Ok(true), // it is looked at once more
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
