//! Pseudo-terminals that the program and its processes make for themselves: pty(7). tmux, script and expect are such
//! programs.
//!
//! * One is known by its number. Its state is looked at by its master: modes, size, whose terminal it is.
//! * What was printed at the other end and not read yet is read out and printed again, without the changes that the
//!   terminal makes to output, as those were made.
//! * What was typed and not read yet can be looked at in the same way alone ([`queue`]), which wakes who reads. So it is
//!   done where something was typed since the queue was found empty last, or the kernel says that something can be read.
//! * One that is full is filled again: bytes between both ends as the kernel packs them best ([`packed`]), and lines that
//!   the queue has no room for as they are typed. Their echo comes when they are read.
//! * In packet mode, which is off for a look, reads of the master tell of the flow as well: what is not told yet cannot be
//!   looked at, and is waited for.
//! * Meanwhile no process is in a read of either end: all of those stand still.

mod packed;

use crate::error::{Error, Result};
use crate::stdio::context::{Modes, Typed};
use crate::stdio::{queue, terminal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, OFlags, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
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
        held.printed = read_all(master)?;
        if typed {
            (held.modes, held.typed) = queue::take(own.as_fd())?;
            let echo = read_all(master)?;
            // What the queue has no room for is echoed when it comes there.
            if queue::has_room(&held.typed) {
                held.printed.extend(echo);
            }
        }
        held.put_back(master.as_fd(), own.as_fd())
    })?;
    Ok(held)
}

impl Terminal {
    /// Types and prints again what is not read yet. `own` is an other end that does not wait, and is not the program's.
    fn put_back(&self, master: BorrowedFd<'_>, own: BorrowedFd<'_>) -> io::Result<()> {
        if self.has_typed() && self.modes.lines() {
            let bytes = self.typed.iter().map(|piece| piece.bytes.len()).sum();
            terminal::set_modes(own, &queue::neutral_to_bytes(&self.modes))?;
            packed::prepare(own, master, bytes)?;
            let left = queue::put_lines(master, own, &self.modes, &self.typed)?;
            terminal::set_modes(own, &self.modes)?;
            packed::fill_buffers(master, &left)?;
        } else if self.has_typed() {
            let bytes = self.typed.iter().flat_map(|piece| &piece.bytes);
            terminal::set_modes(own, &queue::neutral_to_bytes(&self.modes))?;
            let typed = packed::fill(own, master, &bytes.copied().collect::<Vec<u8>>());
            terminal::set_modes(own, &self.modes)?;
            typed?;
        }
        if self.printed.is_empty() {
            return Ok(());
        }
        terminal::set_modes(own, &self.modes.plain_output())?;
        let printed = packed::fill(master, own, &self.printed);
        terminal::set_modes(own, &self.modes)?;
        printed
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
            without_waiting(&master, || self.put_back(master.as_fd(), own.as_fd()))?;
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

/// All that can be read of an end that does not wait.
fn read_all(end: impl AsFd) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    let mut room = vec![0; ROOM_BYTES];
    loop {
        match rustix::io::retry_on_intr(|| rustix::io::read(&end, &mut room[..])) {
            Ok(0) | Err(Errno::AGAIN | Errno::IO) => return Ok(all), // EIO: the other end is closed
            Ok(length) => all.extend_from_slice(&room[..length]),
            Err(error) => return Err(error.into()),
        }
    }
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

    /// Writes until there is no room, in pieces of all lengths. What was taken.
    fn fill_up(to: &OwnedFd, chance: &mut fastrand::Rng) -> Vec<u8> {
        rustix::io::ioctl_fionbio(to, true).unwrap();
        let lengths = [1, 3, 64, 256, 500, 1024, 2016, 4096, 9000];
        let (mut most, is_mixed) = (*chance.choice(&lengths).unwrap(), chance.bool());
        let (mut all, mut refused) = (Vec::new(), 0);
        while refused < 20 {
            if is_mixed && chance.u8(..10) == 0 {
                most = *chance.choice(&lengths).unwrap();
            }
            let piece: Vec<u8> = (0..chance.usize(1..=most))
                .map(|_| *chance.choice(b"abc;\n").unwrap())
                .collect();
            match write(to, &piece) {
                Ok(taken) => all.extend(&piece[..taken]),
                Err(_) => {
                    (refused, most) = (refused + 1, (most / 2).max(1));
                    std::thread::sleep(std::time::Duration::from_millis(1)); // the kernel's worker makes room
                }
            }
        }
        rustix::io::ioctl_fionbio(to, false).unwrap();
        all
    }

    /// Reads both ends until nothing comes.
    fn read_up(master: &OwnedFd, other: &OwnedFd) -> [Vec<u8>; 2] {
        let mut all = [Vec::new(), Vec::new()];
        let mut idle = 0;
        while idle < 20 {
            idle += 1;
            for (end, all) in [master, other].into_iter().zip(&mut all) {
                rustix::io::ioctl_fionbio(end, true).unwrap();
                let more = read_all(end).unwrap();
                if !more.is_empty() {
                    idle = 0;
                }
                all.extend(more);
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        all
    }

    /// Full to the brim, by bytes or by lines, with an echo or without: looks and being made again change nothing.
    #[test]
    fn a_full_one_stays_full_and_comes_back() {
        for seed in 0..24 {
            let mut chance = fastrand::Rng::with_seed(seed);
            let (master, other) = pair();
            let mut modes = rustix::termios::tcgetattr(&other).unwrap();
            let (by_lines, echoes) = (seed % 4 > 0, seed % 4 > 1);
            if !by_lines {
                modes.make_raw();
            } else if !echoes {
                modes.local_modes.remove(rustix::termios::LocalModes::ECHO);
            }
            rustix::termios::tcsetattr(&other, rustix::termios::OptionalActions::Now, &modes).unwrap();
            let as_printed = |bytes: &[u8]| match by_lines {
                true => String::from_utf8_lossy(bytes).replace('\n', "\r\n").into_bytes(),
                false => bytes.to_vec(),
            };
            let mut printed = Vec::new();
            if !echoes && chance.bool() {
                printed = as_printed(&fill_up(&other, &mut chance));
            }
            let mut typed = fill_up(&master, &mut chance);
            for _ in 0..3 {
                super::look(&master, true, true).unwrap();
            }
            let look = super::look(&master, true, true).unwrap();
            let (again, end) = look.again(0, true).unwrap();
            let end = end.unwrap();
            for _ in 0..2 {
                super::look(&again, true, true).unwrap();
            }
            if by_lines {
                // The last is no line yet.
                typed.push(b'\n');
            }
            if echoes {
                printed = as_printed(&typed);
            }
            for (master, other) in [(master, other), (again, end)] {
                let mut found = read_up(&master, &other);
                if by_lines {
                    write(&master, b"\n").unwrap();
                    let [printed, typed] = read_up(&master, &other);
                    found[0].extend(printed);
                    found[1].extend(typed);
                }
                let lengths = [found[0].len(), found[1].len(), printed.len(), typed.len()];
                // The kernel drops an echo that comes too fast.
                let is_shown = found[0] == printed || echoes && found[0].len() < printed.len();
                assert!(is_shown && found[1] == typed, "seed {seed}: {lengths:?}");
            }
        }
    }

    /// Looks pack what waits, so that there is room for more: of lines for more than a new one has in large buffers.
    #[test]
    fn lines_that_were_packed_again_and_again_come_back() {
        let (master, other) = pair();
        let mut modes = rustix::termios::tcgetattr(&other).unwrap();
        modes.local_modes.remove(rustix::termios::LocalModes::ECHO);
        rustix::termios::tcsetattr(&other, rustix::termios::OptionalActions::Now, &modes).unwrap();
        rustix::io::ioctl_fionbio(&master, true).unwrap();
        let (mut typed, line) = (Vec::new(), [b"a".repeat(59), vec![b'\n']].concat());
        for _ in 0..2 {
            let mut refused = 0;
            while refused < 20 {
                match write(&master, &line) {
                    Ok(taken) => typed.extend(&line[..taken]),
                    Err(_) => {
                        refused += 1;
                        std::thread::sleep(std::time::Duration::from_millis(1)); // the kernel's worker makes room
                    }
                }
            }
            super::look(&master, true, true).unwrap();
        }
        rustix::io::ioctl_fionbio(&master, false).unwrap();
        assert!(typed.len() > 30_000, "{}", typed.len());
        let look = super::look(&master, true, true).unwrap();
        let (again, end) = look.again(0, true).unwrap();
        let end = end.unwrap();
        typed.push(b'\n');
        for (master, other) in [(master, other), (again, end)] {
            let mut found = read_up(&master, &other);
            write(&master, b"\n").unwrap();
            found[1].extend(read_up(&master, &other)[1].iter());
            assert_eq!(found[1].len(), typed.len());
            assert!(found[1] == typed);
        }
    }
}
