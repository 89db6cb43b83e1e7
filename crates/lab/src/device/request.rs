//! A request to a channel, and what is told when it is done.

use super::bank::{Command, Run};

/// Reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A read.
    Read,
    /// A write.
    Write,
}

impl Kind {
    /// The command that moves its data.
    pub(super) fn column(self) -> Command {
        match self {
            Kind::Read => Command::Read,
            Kind::Write => Command::Write,
        }
    }
}

/// Whether a core waits for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    /// A core, or something a core waits for.
    Demand,
    /// No core: a checkpoint, or room that is made.
    Background,
}

/// A run of lines in one row buffer of one bank.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Told back when it is done.
    pub id: u64,
    /// What it is.
    pub kind: Kind,
    /// For whom.
    pub class: Class,
    /// The bank, over all ranks of the channel.
    pub bank: u16,
    /// Lines, one at least.
    pub lines: u16,
    /// The row buffer.
    pub row: u64,
    /// When it came, in cycles.
    pub arrival: u64,
    /// Runs of other row buffers that follow it; see [`Channel::push_sweep`](super::channel::Channel::push_sweep).
    pub(super) sweep: u32,
}

impl Request {
    /// A request for a run of lines.
    #[inline]
    pub(super) fn new(id: u64, kind: Kind, class: Class, run: Run, arrival: u64) -> Request {
        let Run { bank, lines, row } = run;
        Request {
            id,
            kind,
            class,
            bank,
            lines,
            row,
            arrival,
            sweep: NO_SWEEP,
        }
    }
}

/// The id of a request whose end is not told.
pub const UNTOLD: u64 = u64::MAX;

/// Nothing follows.
pub(super) const NO_SWEEP: u32 = u32::MAX;

/// A request whose last command was issued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// The request.
    pub id: u64,
    /// The cycle its last data arrives, or is safe in the cells.
    pub at: u64,
}
