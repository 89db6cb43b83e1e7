//! What a program printed and the outside has not seen yet.
//!
//! One stream, by position:
//!
//! ```text
//!   0 ......... safe ......... released ......... allowed ......... end
//!     outside     outside, and   durable: may       printed since:
//!     for good    counted        go outside now     waits for its epoch
//! ```
//!
//! Invariants:
//! * `safe <= released <= allowed <= end`.
//! * `allowed` only moves when an epoch is durable, to the end of the stream at that epoch's stop.
//! * A checkpoint can give back everything from its `safe` on: from the log, or from its context.

use super::context::OutputContext;
use super::error::{Error, Result};
use super::inside::Inside;
use super::log::Log;
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::collections::VecDeque;

/// What one drain takes at most in one system call.
const DRAIN_BYTES: usize = 1 << 20;

/// More than the kernel's buffers of a pseudo-terminal hold.
const TERMINAL_BYTES: u64 = 1 << 20;

/// How much of what a file outside got a checkpoint may hold rather than have the file flushed, bytes.
const UNSAFE_BYTES: u64 = 4096;

/// What an epoch covers.
#[derive(Clone, Copy, Debug)]
struct EpochEnd {
    epoch: u64,
    /// The end of the stream at its stop.
    end: u64,
    /// The bytes from here on can be given back by its checkpoint; those below are not needed.
    safe: u64,
    /// Below this the checkpoint relies on the log.
    logged: u64,
    closed: bool,
}

/// One output of a program.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) log: Log,
    /// Bytes outside for good.
    pub(super) safe: u64,
    allowed: u64,
    /// The program closed it, and an epoch that says so is durable.
    allowed_close: bool,
    /// Nothing can be printed any more.
    closed: bool,
    /// Read from the program's terminal, and not in the log, whose disk is full.
    unlogged: Vec<u8>,
    /// The outside has no reader any more.
    broken: bool,
    /// Where the stream ended when a flush of the file outside was last considered.
    end_at_sync: u64,
    marks: VecDeque<EpochEnd>,
}

impl Output {
    /// An output that starts, or goes on as the checkpoint left it.
    pub(super) fn new(log: Log, context: &OutputContext) -> Output {
        Output {
            safe: context.safe,
            allowed: log.end(),
            allowed_close: context.closed,
            closed: context.closed,
            unlogged: Vec::new(),
            broken: false,
            end_at_sync: log.end(),
            marks: VecDeque::new(),
            log,
        }
    }

    /// The position below which everything may go outside.
    pub(super) fn allowed(&self) -> u64 {
        self.allowed
    }

    /// Bytes printed since the last stop.
    pub(super) fn uncovered(&self) -> u64 {
        self.log.end() - self.marks.back().map_or(self.allowed, |m| m.end)
    }

    pub(super) fn closed(&self) -> bool {
        self.closed
    }

    /// Whether the outside is to be told that the program closed it.
    pub(super) fn close_allowed(&self) -> bool {
        self.allowed_close
    }

    pub(super) fn broken(&self) -> bool {
        self.broken
    }

    /// The outside has no reader any more: what is held, and what may still come, is dropped.
    pub(super) fn break_off(&mut self) {
        self.broken = true;
    }

    /// Takes what the program printed, up to `most` bytes, without waiting. Says how much there was.
    pub(super) fn drain(&mut self, inside: &Inside, most: u64) -> Result<u64> {
        let mut taken = 0;
        while taken < most && !self.closed {
            let len = (most - taken).min(DRAIN_BYTES as u64) as usize;
            let n = match inside {
                Inside::Output(pipe) => match self.log.splice_from(&**pipe, len)? {
                    Some(0) => {
                        self.closed = true;
                        break;
                    }
                    Some(n) => n,
                    None => break,
                },
                Inside::Terminal { master, .. } => match self.read(&**master, len)? {
                    0 => break,
                    n => n,
                },
                Inside::Input(_) | Inside::Ended(_) => break,
            };
            taken += n as u64;
        }
        Ok(taken)
    }

    /// The program is stopped: takes everything it printed. What a program prints that is not
    /// stopped after all is taken later.
    pub(super) fn drain_all(&mut self, inside: &Inside) -> Result<()> {
        let there = match inside {
            Inside::Output(pipe) => rustix::io::ioctl_fionread(&**pipe)
                .map_err(|e| Error::io("look into the pipe of standard output", e))?,
            _ => TERMINAL_BYTES,
        };
        // One byte more, to hear that there are no more, or no more writers.
        self.drain(inside, there + 1).map(|_| ())
    }

    fn read(&mut self, master: impl AsFd, len: usize) -> Result<usize> {
        let mut bytes = [0; 4096];
        let len = len.min(bytes.len());
        self.log_rest()?;
        loop {
            match rustix::io::read(&master, &mut bytes[..len]) {
                Ok(n) => {
                    self.unlogged.extend_from_slice(&bytes[..n]);
                    return self.log_rest().map(|()| n);
                }
                // No side but ours has it open, or there is nothing.
                Err(Errno::AGAIN | Errno::IO) => return Ok(0),
                Err(Errno::INTR) => {}
                Err(e) => return Err(Error::io("read from the program's terminal", e)),
            }
        }
    }

    fn log_rest(&mut self) -> Result<()> {
        self.log.append(&self.unlogged)?;
        self.unlogged.clear();
        Ok(())
    }

    /// The program is stopped and drained: everything printed belongs to `epoch`. `released` bytes
    /// are outside; `most` is how much of a log that is not flushed the context may hold instead.
    pub(super) fn stop(
        &mut self,
        epoch: u64,
        released: u64,
        for_good: bool,
        most: Option<usize>,
    ) -> Result<OutputContext> {
        if for_good {
            self.safe = released;
        }
        let end = self.log.end();
        let from = self.safe.max(self.log.synced()).min(end);
        let mut tail = Vec::new();
        if let Some(most) = most
            && from < end
            && end - from <= most as u64
        {
            tail = vec![0; (end - from) as usize];
            self.log.read(from, &mut tail)?;
        }
        let mark = EpochEnd {
            epoch,
            end,
            safe: self.safe,
            logged: end - tail.len() as u64,
            closed: self.closed,
        };
        let sums = self.log.sums(self.safe.min(end), end)?;
        self.marks.push_back(mark);
        Ok(OutputContext {
            safe: self.safe,
            end,
            tail,
            closed: self.closed,
            sums: Some(sums),
        })
    }

    /// Whether the checkpoint of `epoch` relies on bytes of the log that are not on the disk.
    pub(super) fn needs_sync(&self, epoch: u64) -> bool {
        self.marks
            .iter()
            .any(|m| m.epoch <= epoch && m.logged > self.log.synced().max(m.safe))
    }

    /// Whether the file outside is to be flushed now: when much of what it got is not safe, or when
    /// nothing new was printed (so that a silent program's checkpoint holds nothing).
    pub(super) fn outside_needs_sync(&mut self, released: u64) -> bool {
        let quiet = self.log.end() == self.end_at_sync;
        self.end_at_sync = self.log.end();
        released > self.safe && (quiet || released - self.safe >= UNSAFE_BYTES)
    }

    /// The epoch is durable: what it covers may go outside, and what it no longer holds is forgotten.
    pub(super) fn durable(&mut self, epoch: u64) -> Result<()> {
        let mut last = None;
        while self.marks.front().is_some_and(|m| m.epoch <= epoch) {
            last = self.marks.pop_front();
        }
        let Some(mark) = last else { return Ok(()) };
        self.allowed = mark.end;
        self.allowed_close = mark.closed;
        self.log.trim(mark.safe)
    }
}
