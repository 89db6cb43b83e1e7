//! Reads of terminals that do not give lines, termios(3): `VMIN` and `VTIME`.
//!
//! | bytes | time | a read ends | cut by a stop |
//! | --- | --- | --- | --- |
//! | n | none | with n bytes | the rest is read |
//! | 0 | t | with some bytes, or after t | what is left of t is spent in a poll |
//! | n | t | with n bytes, or when none followed another for t | the same before each further byte |
//!
//! * The kernel begins a read that waited again, with all of its time: a stop each 16 ms would let none end.
//! * It gives 64 bytes in one read at most where a number is waited for.

use crate::ptys::{self, End};
use rustix::fs::{FileType, Stat};
use rustix::termios::{LocalModes, SpecialCodeIndex, tcgetattr};
use std::os::fd::{AsFd, OwnedFd};

const MOST_AT_ONCE: u64 = 64;
/// `VTIME` is in tenths of a second.
const TENTH_NS: u64 = 100_000_000;

/// How a read of a terminal ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Reading {
    /// With this number of bytes.
    pub(super) at_least: u64,
    /// When none came for so long; `None`: there is no limit.
    pub(super) within_ns: Option<u64>,
}

/// How reads of a file end, if it is a terminal that does not give lines. At a master nothing is waited for, though it
/// shows what was set at the other end.
pub(super) fn reading(fd: &OwnedFd, stat: &Stat) -> Option<Reading> {
    let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
    if !is_device || matches!(ptys::end(fd.as_fd(), stat), Some(End::Master(_))) {
        return None;
    }
    let terminal = tcgetattr(fd).ok()?;
    let code = |index| u64::from(terminal.special_codes[index]);
    let tenths = code(SpecialCodeIndex::VTIME);
    (!terminal.local_modes.contains(LocalModes::ICANON)).then(|| Reading {
        at_least: code(SpecialCodeIndex::VMIN).min(MOST_AT_ONCE),
        within_ns: (tenths > 0).then_some(tenths * TENTH_NS),
    })
}
