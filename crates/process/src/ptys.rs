//! Pseudo-terminals that the program and its processes make for themselves: pty(7). tmux, script and expect are such
//! programs.
//!
//! * One is known by its number. Its state is looked at by its master: modes, size, whose terminal it is.
//! * What was printed at the other end and not read yet is read out and printed again, without the changes that the
//!   terminal makes to output, as those were made.
//! * What was typed and not read yet can be looked at in the same way alone ([`queue`]), which wakes who reads. So it is
//!   done where something was typed since the queue was found empty last, or the kernel says that something can be read.
//! * In packet mode, which is off for a look, reads of the master tell of the flow as well: what is not told yet cannot be
//!   looked at, and is waited for.
//! * Meanwhile no process is in a read of either end: all of those stand still.

use crate::error::{Error, Result};
use crate::stdio::context::{Modes, Typed};
use crate::stdio::{queue, terminal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, OFlags, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use twinpage_os::terminal as os;

/// The device numbers of a master before it has one, of other ends, and of /dev/tty: the kernel's list of devices.
const MASTERS: (u32, u32) = (5, 2);
const OTHERS: u32 = 136;
const OWN: (u32, u32) = (5, 0);
/// Larger than what waits at either end.
const ROOM_BYTES: usize = 1 << 13;

/// An end of a pseudo-terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The end that types and sees what is printed.
    Master(u32),
    /// The end that programs take for a terminal.
    Other(u32),
}

/// The end that a file is, if it is one.
#[must_use]
pub fn end(fd: BorrowedFd<'_>, stat: &Stat) -> Option<End> {
    if FileType::from_raw_mode(stat.st_mode) != FileType::CharacterDevice {
        return None;
    }
    let device = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    match device {
        MASTERS => os::number(fd).ok().map(End::Master),
        (OTHERS, number) => Some(End::Other(number)),
        OWN => match os::device(fd).ok()? {
            (OTHERS, number) => Some(End::Other(number)),
            _ => None,
        },
        _ => None,
    }
}

/// Whether each open(2) of a file makes a new one: /dev/ptmx.
#[must_use]
pub fn makes_masters(stat: &Stat) -> bool {
    (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev)) == MASTERS
}

/// The number of the pseudo-terminal of which the file in /dev/pts is the other end.
#[must_use]
pub fn named(stat: &Stat) -> Option<u32> {
    (rustix::fs::major(stat.st_rdev) == OTHERS).then(|| rustix::fs::minor(stat.st_rdev))
}

/// What a pseudo-terminal held at a stop.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Terminal {
    modes: Modes,
    size: [u16; 4],
    typed: Vec<Typed>,
    printed: Vec<u8>,
    is_locked: bool,
    /// Its other end was open, and is no longer.
    hung_up: bool,
    /// The session whose terminal it is, and the process group in its foreground; 0: none.
    pub session: i32,
    /// See `session`.
    pub foreground: i32,
}

impl Terminal {
    /// Whether something that was typed was not read yet.
    #[must_use]
    pub fn has_typed(&self) -> bool {
        !self.typed.is_empty()
    }
}

/// What the pseudo-terminal of a master holds, which is descriptor `number`, and whether that is in packet mode.
/// `is_open`: a process has its other end open; `may_have_typed`: something was typed since that was found read. Nothing
/// of the program runs.
///
/// # Errors
/// When the system refuses a look, and where what was taken out could not be put back.
pub fn held(number: i32, master: &OwnedFd, is_open: bool, may_have_typed: bool) -> Result<(Terminal, bool)> {
    let failed = |source| {
        let what = format!("cannot look into the pseudo-terminal of descriptor {number}");
        Error::target(what, source)
    };
    let in_packets = os::is_in_packet_mode(master.as_fd()).map_err(failed)?;
    if in_packets && has(master, PollFlags::PRI).map_err(failed)? {
        return Err(Error::NotYet(format!(
            "the master of descriptor {number} is in packet mode and has not read that the flow changed"
        )));
    }
    let held =
        without_packets(master, in_packets, || look(master, is_open, may_have_typed)).map_err(failed)?;
    if held.session != 0 && !is_open {
        return Err(Error::NotYet(format!(
            "the pseudo-terminal of descriptor {number} is that of a session in which no process has it open"
        )));
    }
    Ok((held, in_packets))
}

/// Does something while a master is not in packet mode.
fn without_packets<T>(
    master: &OwnedFd,
    in_packets: bool,
    work: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    if !in_packets {
        return work();
    }
    os::set_packet_mode(master.as_fd(), false)?;
    let done = work();
    os::set_packet_mode(master.as_fd(), true)?;
    done
}

fn look(master: &OwnedFd, is_open: bool, may_have_typed: bool) -> io::Result<Terminal> {
    let is_locked = os::is_locked(master.as_fd())?;
    let mut held = Terminal {
        modes: terminal::modes(master.as_fd())?,
        size: terminal::size(master.as_fd())?,
        typed: Vec::new(),
        printed: Vec::new(),
        is_locked,
        hung_up: !is_open && is_hung_up(master)?,
        session: rustix::termios::tcgetsid(master).map_or(0, |pid| pid.as_raw_nonzero().get()),
        foreground: rustix::termios::tcgetpgrp(master).map_or(0, |pid| pid.as_raw_nonzero().get()),
    };
    let printed = has(master, PollFlags::IN)?;
    if !is_open && !printed {
        return Ok(held); // it may never have been open, and an end of ours would change that
    }
    let own = own_end(master, is_locked)?;
    let typed = is_open && (may_have_typed || queue::readable(own.as_fd())? > 0);
    if !typed && !printed {
        return Ok(held);
    }
    without_waiting(master, || {
        if typed {
            (held.modes, held.typed) = queue::take(own.as_fd())?;
        }
        held.printed = read_all(master)?;
        held.put_back(master.as_fd(), own.as_fd())
    })?;
    Ok(held)
}

impl Terminal {
    /// Types and prints again what is not read yet. `own` is an other end that does not wait, and is not the program's.
    fn put_back(&self, master: BorrowedFd<'_>, own: BorrowedFd<'_>) -> io::Result<()> {
        if self.modes.lines() {
            self.type_lines(master, own)?;
        } else if self.has_typed() {
            let bytes = self.typed.iter().flat_map(|piece| &piece.bytes);
            terminal::set_modes(own, &queue::neutral_to_bytes(&self.modes))?;
            let typed = fill(own, master, &bytes.copied().collect::<Vec<u8>>());
            terminal::set_modes(own, &self.modes)?;
            typed?;
        }
        if self.printed.is_empty() {
            return Ok(());
        }
        terminal::set_modes(own, &self.modes.plain_output())?;
        let printed = fill(master, own, &self.printed);
        terminal::set_modes(own, &self.modes)?;
        printed
    }

    fn type_lines(&self, master: BorrowedFd<'_>, own: BorrowedFd<'_>) -> io::Result<()> {
        const ROUNDS: usize = 8;
        let mut left = self.typed.clone();
        for _ in 0..ROUNDS {
            if left.is_empty() {
                return Ok(());
            }
            left = queue::put(master, own, &self.modes, left)?;
        }
        Err(io::Error::other("there is no room for what was typed"))
    }

    /// A master as this one was, and its other end where it had one. With its number, if that is free.
    ///
    /// # Errors
    /// When the system refuses one.
    pub fn again(&self, number: u32, has_other: bool) -> io::Result<(OwnedFd, Option<OwnedFd>)> {
        let master = numbered(number)?;
        terminal::set_modes(master.as_fd(), &self.modes)?;
        terminal::set_size(master.as_fd(), self.size)?;
        let mut other = None;
        if has_other || self.hung_up || !self.printed.is_empty() {
            let own = own_end(&master, false)?;
            self.put_back(master.as_fd(), own.as_fd())?;
            other = has_other.then_some(own);
        }
        if self.is_locked {
            os::lock(master.as_fd(), true)?;
        }
        Ok((master, other))
    }
}

/// An other end whose master is closed.
///
/// # Errors
/// When the system refuses one.
pub fn hung_up() -> io::Result<OwnedFd> {
    let master = terminal::master()?;
    terminal::other_end(&master)
}

/// A new master with this number, if it is free: the kernel gives the lowest that is.
fn numbered(number: u32) -> io::Result<OwnedFd> {
    let mut lower = Vec::new();
    loop {
        let master = terminal::master()?;
        let given = os::number(master.as_fd())?;
        if given >= number {
            return Ok(master);
        }
        lower.push(master);
    }
}

/// An other end of our own, which does not wait.
fn own_end(master: &OwnedFd, is_locked: bool) -> io::Result<OwnedFd> {
    if is_locked {
        os::lock(master.as_fd(), false)?;
    }
    let own = terminal::other_end(master);
    if is_locked {
        os::lock(master.as_fd(), true)?;
    }
    let own = own?;
    rustix::io::ioctl_fionbio(&own, true)?;
    Ok(own)
}

/// Does something while reads of a master do not wait.
fn without_waiting(master: &OwnedFd, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(master)?;
    rustix::fs::fcntl_setfl(master, flags | OFlags::NONBLOCK)?;
    let done = work();
    rustix::fs::fcntl_setfl(master, flags)?;
    done
}

/// Whether an end is in a state: `IN`: something can be read; `PRI`: that the flow changed; `HUP`: the other end is closed.
fn has(end: &OwnedFd, state: PollFlags) -> io::Result<bool> {
    let mut asked = [PollFd::new(end, state)];
    rustix::io::retry_on_intr(|| poll(&mut asked, Some(&Timespec::default())))?;
    Ok(asked[0].revents().contains(state))
}

/// Whether the end at the other side is closed.
///
/// # Errors
/// When the system refuses a look.
pub fn is_hung_up(end: &OwnedFd) -> io::Result<bool> {
    has(end, PollFlags::HUP)
}

/// All that can be read of a master that does not wait.
fn read_all(master: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    let mut room = vec![0; ROOM_BYTES];
    loop {
        match rustix::io::retry_on_intr(|| rustix::io::read(master, &mut room[..])) {
            Ok(0) | Err(Errno::AGAIN | Errno::IO) => return Ok(all), // EIO: the other end is closed
            Ok(length) => all.extend_from_slice(&room[..length]),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Gives to an end that does not wait what the other end had not read, which fits when it is packed as well as it may have
/// been: the kernel's buffers between both ends (`tty_buffer.c`) take pieces of a power of two, eight of them and a last
/// one that is larger, behind what the queue of the reader takes.
fn fill(reader: BorrowedFd<'_>, writer: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    const QUEUE_BYTES: usize = 4095;
    const PIECE_BYTES: usize = 1024;
    const PACKED_BYTES: usize = 16 * PIECE_BYTES;
    const LAST_BYTES: usize = 2016;
    let (first, rest) = bytes.split_at(bytes.len().min(QUEUE_BYTES));
    for piece in first.chunks(PIECE_BYTES) {
        give(writer, piece)?;
    }
    let begun = Instant::now();
    while queue::readable(reader)? < first.len() as u64 && begun.elapsed() < PATIENCE {
        std::thread::yield_now(); // the kernel moves it from one to the other
    }
    let (packed, last) = rest.split_at(rest.len().min(PACKED_BYTES));
    for piece in packed.chunks(PIECE_BYTES).chain(last.chunks(LAST_BYTES)) {
        give(writer, piece)?;
    }
    Ok(())
}

/// How long the kernel may take.
const PATIENCE: Duration = Duration::from_secs(2);

fn give(writer: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    let begun = Instant::now();
    while !bytes.is_empty() {
        match rustix::io::retry_on_intr(|| rustix::io::write(writer, bytes)) {
            Ok(given) => bytes = &bytes[given..],
            Err(Errno::AGAIN) if begun.elapsed() < PATIENCE => std::thread::yield_now(),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::{read, write};

    fn pair() -> (OwnedFd, OwnedFd) {
        let master = terminal::master().unwrap();
        let other = terminal::other_end(&master).unwrap();
        (master, other)
    }

    fn take(fd: &OwnedFd) -> Vec<u8> {
        let mut room = [0; 200];
        let length = read(fd, &mut room[..]).unwrap();
        room[..length].to_vec()
    }

    #[test]
    fn ends_are_told_apart() {
        let (master, other) = pair();
        let number = os::number(master.as_fd()).unwrap();
        let end = |fd: &OwnedFd| end(fd.as_fd(), &rustix::fs::fstat(fd).unwrap());
        assert_eq!(end(&master), Some(End::Master(number)));
        assert_eq!(end(&other), Some(End::Other(number)));
        assert_eq!(
            end(&rustix::io::dup(std::io::stderr()).unwrap()).filter(|end| matches!(end, End::Master(_))),
            None
        );
        assert!(!is_hung_up(&other).unwrap());
        drop(master);
        assert!(is_hung_up(&other).unwrap());
        assert!(is_hung_up(&super::hung_up().unwrap()).unwrap());
    }

    /// A line, a half line, and what was printed, with the changes that output undergoes, are there after looks and
    /// after being made again.
    #[test]
    fn what_waits_stays_and_comes_back() {
        let (master, other) = pair();
        write(&other, b"printed\n").unwrap();
        write(&master, b"a line\nhalf").unwrap();
        let printed = b"printed\r\na line\r\nhalf"; // with the echo
        let mut looks = Vec::new();
        for _ in 0..3 {
            looks.push(super::look(&master, true, true).unwrap());
        }
        assert_eq!(looks[0].printed, printed);
        assert!(looks[0].has_typed() && looks.iter().all(|look| *look == looks[0]));
        let number = os::number(master.as_fd()).unwrap();
        let (again, end) = looks[0].again(number, true).unwrap();
        let end = end.unwrap();
        rustix::io::ioctl_fionbio(&end, false).unwrap();
        for (master, other) in [(master, other), (again, end)] {
            assert_eq!(take(&master), printed);
            assert_eq!(take(&other), b"a line\n");
            write(&master, b" and more\n").unwrap();
            assert_eq!(take(&other), b"half and more\n");
            assert_eq!(take(&master), b" and more\r\n");
        }
    }

    /// However it was printed.
    #[test]
    fn as_much_as_there_may_be_stays_and_comes_back() {
        for piece in [1, 100, 255, 256, 1000, 1008, 1024, 2016, 2048, 4096, 100_000] {
            let (master, other) = pair();
            rustix::io::ioctl_fionbio(&other, true).unwrap();
            let mut printed = 0;
            for length in [piece, 1024, 2016, 1] {
                while let Ok(more) = write(&other, &vec![b'x'; length]) {
                    printed += more;
                }
            }
            for _ in 0..3 {
                let look = super::look(&master, true, false).unwrap();
                assert_eq!(look.printed.len(), printed, "pieces of {piece}");
            }
            let look = super::look(&master, true, false).unwrap();
            let (again, end) = look.again(0, true).unwrap();
            let found = super::look(&again, end.is_some(), false).unwrap();
            assert_eq!(found.printed.len(), printed, "pieces of {piece}");
        }
    }

    /// More than the reader's queue holds, however it was typed, where there are no lines. Not as much as fits: the last
    /// bytes of the kernel's buffers depend on how they were packed.
    #[test]
    fn much_that_is_typed_stays_and_comes_back() {
        const MUCH: usize = 6 << 10;
        for piece in [1, 100, 255, 256, 1000, 1008, 1024, 2016, 2048] {
            let (master, other) = pair();
            let mut modes = rustix::termios::tcgetattr(&other).unwrap();
            modes.make_raw();
            rustix::termios::tcsetattr(&other, rustix::termios::OptionalActions::Now, &modes).unwrap();
            rustix::io::ioctl_fionbio(&master, true).unwrap();
            let mut typed = 0;
            while typed < MUCH {
                match write(&master, &vec![b'x'; piece]) {
                    Ok(more) => typed += more,
                    Err(_) => std::thread::yield_now(), // the kernel moves it on
                }
            }
            let bytes = |look: &Terminal| look.typed.iter().map(|piece| piece.bytes.len()).sum::<usize>();
            for _ in 0..3 {
                assert_eq!(
                    bytes(&super::look(&master, true, true).unwrap()),
                    typed,
                    "pieces of {piece}"
                );
            }
            let look = super::look(&master, true, true).unwrap();
            let (again, _end) = look.again(0, true).unwrap();
            assert_eq!(
                bytes(&super::look(&again, true, true).unwrap()),
                typed,
                "pieces of {piece}"
            );
        }
    }

    /// What is told of the flow is waited for; then looks change nothing, and what is made again is in packet mode, too.
    #[test]
    fn packet_mode_stays_and_comes_back() {
        let (master, other) = pair();
        os::set_packet_mode(master.as_fd(), true).unwrap();
        rustix::termios::tcflush(&other, rustix::termios::QueueSelector::IFlush).unwrap();
        let told = held(7, &master, true, true).unwrap_err();
        assert!(matches!(told, Error::NotYet(_)), "{told}");
        assert_eq!(take(&master).len(), 1, "which queue was emptied");
        write(&other, b"printed").unwrap();
        for _ in 0..3 {
            let (terminal, in_packets) = held(7, &master, true, true).unwrap();
            assert_eq!((&terminal.printed[..], in_packets), (&b"printed"[..], true));
            let (again, _other) = terminal.again(0, true).unwrap();
            os::set_packet_mode(again.as_fd(), true).unwrap();
            assert_eq!(take(&again), b"\0printed");
        }
        assert_eq!(take(&master), b"\0printed");
    }

    #[test]
    fn what_was_printed_before_the_end_comes_back() {
        let (master, other) = pair();
        write(&other, b"last words").unwrap();
        drop(other);
        let look = super::look(&master, false, false).unwrap();
        assert!(look.hung_up && look == super::look(&master, false, false).unwrap());
        let (again, end) = look.again(0, false).unwrap();
        assert!(end.is_none());
        for master in [master, again] {
            assert_eq!(take(&master), b"last words");
            assert_eq!(read(&master, &mut [0; 8][..]), Err(Errno::IO));
        }
    }

    #[test]
    fn a_master_whose_other_end_was_never_opened_waits_for_it() {
        let master = terminal::master().unwrap();
        let look = super::look(&master, false, false).unwrap();
        assert!(!look.hung_up);
        let (again, _) = look.again(0, false).unwrap();
        for master in [&master, &again] {
            assert!(!is_hung_up(master).unwrap() && !has(master, PollFlags::IN).unwrap());
        }
    }
}
