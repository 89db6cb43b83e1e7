//! The input of a program: kept in a log before the program sees it.
//!
//! Invariants:
//! * A byte taken from outside is in the log, with a checksum, before it is fed.
//! * From a pipe it is moved by one splice(2): a kill leaves it there or in the log. From a terminal
//!   or a socket it goes through a page that survives a kill ([`super::flight`]).
//! * A checkpoint knows how much the program consumed. What it did not is fed again on resume, and
//!   what comes from the new outside follows.

use super::context::{InputContext, Modes, Typed};
use super::error::{Error, Result};
use super::flight::Flight;
use super::inside::Inside;
use super::log::{Log, SPLICE_BYTES};
use super::outside::{Kind, kind, reopen};
use super::queue::{self, Look};
use super::terminal::RealTerminal;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

/// How far the log may run ahead of what the program was fed, bytes.
const AHEAD_BYTES: u64 = 65536;
/// How many bytes a terminal is fed at once, and how many unread ones are enough for it.
const KEYS_BYTES: u64 = 1024;

/// Where input comes from.
#[derive(Debug)]
pub(super) struct Inlet {
    pub(super) fd: Arc<OwnedFd>,
    kind: Kind,
    /// The real terminal, when its keys go to a pseudo-terminal.
    real: Option<RealTerminal>,
}

impl Inlet {
    /// The inlet from `real`; `keys` when it feeds a pseudo-terminal. `dir` is the state directory.
    pub(super) fn new(real: BorrowedFd<'_>, keys: bool, dir: &Path) -> Result<Inlet> {
        let dup =
            || rustix::io::fcntl_dupfd_cloexec(real, 0).map_err(|e| Error::io("duplicate standard input", e));
        let kind = kind(real)?;
        let fd = match kind {
            Kind::Terminal => reopen(real, OFlags::RDONLY | OFlags::NONBLOCK).or_else(|_| dup())?,
            _ => dup()?,
        };
        let real = if keys && kind == Kind::Terminal {
            Some(RealTerminal::new(dup()?, dir))
        } else {
            None
        };
        Ok(Inlet {
            fd: Arc::new(fd),
            kind,
            real,
        })
    }

    /// Whether it may be read now: a terminal only from its foreground.
    pub(super) fn ready(&mut self) -> Result<bool> {
        self.real.as_mut().map_or(Ok(true), RealTerminal::take)
    }
}

/// What a program reads.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) log: Log,
    flight: Flight,
    /// Bytes of the log that were written to the program's end.
    fed: u64,
    /// `None` when there is nothing more to be had from outside.
    pub(super) inlet: Option<Inlet>,
    /// The log's end is the end of the input.
    eof: bool,
    /// The program was told, or closed its end.
    over: bool,
    /// The end-of-file character was typed.
    told: bool,
    /// The pseudo-terminal's queue at the last stop, and what it depended on.
    queue: Vec<Typed>,
    queue_of: Option<(u64, u64, Modes)>,
    /// What was typed before all that is in the log, and is not in the pseudo-terminal's queue yet.
    ahead: Vec<Typed>,
    /// What checkpoints that are not yet durable rely on.
    marks: VecDeque<EpochEnd>,
}

#[derive(Clone, Copy, Debug)]
struct EpochEnd {
    epoch: u64,
    consumed: u64,
    /// From `consumed` to here the checkpoint relies on the log.
    logged: u64,
}

/// What a look at the outside gave.
pub(super) enum Taken {
    Some,
    Nothing,
    /// Nothing more will come.
    End,
}

/// How feeding went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fed {
    /// There is nothing more to feed.
    All,
    /// The program's end takes no more now.
    Full,
    /// Enough for a moment.
    Enough,
}

impl Input {
    /// Whether it comes from a real terminal.
    pub(super) fn is_at_terminal(&self) -> bool {
        self.inlet.as_ref().is_some_and(|inlet| inlet.real.is_some())
    }

    /// The real terminal is as it was found until it is read again.
    pub(super) fn give_terminal_back(&mut self) {
        if let Some(real) = self.inlet.as_mut().and_then(|inlet| inlet.real.as_mut()) {
            real.give_back();
        }
    }

    pub(super) fn new(
        log: Log,
        flight: Flight,
        inlet: Option<Inlet>,
        terminal: bool,
        ahead: Vec<Typed>,
        context: &InputContext,
    ) -> Input {
        // A closed standard input ends at once.
        let eof = context.eof || inlet.is_none() && !terminal;
        Input {
            log,
            flight,
            fed: context.fed,
            inlet: if eof { None } else { inlet },
            eof,
            over: context.told,
            told: context.told,
            queue: Vec::new(),
            queue_of: None,
            ahead,
            marks: VecDeque::new(),
        }
    }

    /// Whether the outside is worth reading.
    pub(super) fn wants(&self) -> bool {
        !self.over && !self.eof && self.inlet.is_some() && self.log.end() - self.fed < AHEAD_BYTES
    }

    /// Whether there is something to feed.
    pub(super) fn feeds(&self) -> bool {
        !self.over && self.ahead.is_empty() && (self.fed < self.log.end() || self.eof)
    }

    /// Where the log ends, and whether for good.
    pub(super) fn end(&self) -> (u64, bool) {
        (self.log.end(), self.eof)
    }

    /// Whether only a stop can feed what is there.
    pub(super) fn waits_for_stop(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// Bytes the program consumed or was fed.
    pub(super) fn fed(&self) -> u64 {
        self.fed
    }

    /// Takes what the outside has into the log. Only when it is ready: this may block otherwise.
    pub(super) fn take(&mut self) -> Result<Taken> {
        let Some(inlet) = &self.inlet else {
            return Ok(Taken::End);
        };
        let fd = Arc::clone(&inlet.fd);
        if inlet.kind == Kind::Pipe {
            let taken = self.log.splice_from(&*fd, SPLICE_BYTES)?;
            self.flight.note_sum(&self.log)?;
            return Ok(match taken {
                None => Taken::Nothing,
                Some(0) => Taken::End,
                Some(_) => Taken::Some,
            });
        }
        match self.flight.take(fd.as_fd(), &mut self.log)? {
            Ok(0) => Ok(Taken::End),
            Ok(_) => Ok(Taken::Some),
            Err(Errno::AGAIN | Errno::INTR) => Ok(Taken::Nothing),
            // A terminal that went away, a connection that broke: nothing more will come.
            Err(_) => Ok(Taken::End),
        }
    }

    /// The outside has nothing more. A terminal that went away is no end of input: the program waits
    /// for a resume on another one.
    pub(super) fn end_of_outside(&mut self) {
        self.eof = self.inlet.take().is_some_and(|inlet| inlet.real.is_none());
    }

    /// Feeds the program what it takes now.
    pub(super) fn feed(&mut self, inside: &Inside) -> Result<Fed> {
        let Some(end) = inside.input() else {
            return Ok(Fed::All);
        };
        let mut bytes = [0; 4096];
        let mut most = u64::MAX;
        if let Inside::Terminal { slave, .. } = inside {
            // A terminal's queue is looked at in every stop: it is kept short.
            if queue::readable(slave.as_fd()).is_ok_and(|n| n >= KEYS_BYTES) {
                return Ok(Fed::Enough);
            }
            most = self.fed + KEYS_BYTES;
        }
        while self.fed < self.log.end() {
            if self.fed >= most {
                return Ok(Fed::Enough);
            }
            let n = self
                .log
                .read(self.fed, &mut bytes)?
                .min((most - self.fed) as usize);
            match rustix::io::write(&**end, &bytes[..n]) {
                Ok(n) => self.fed += n as u64,
                Err(Errno::AGAIN) => return Ok(Fed::Full),
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::IO) => {
                    self.over = true;
                    return Ok(Fed::All);
                }
                Err(e) => return Err(Error::io("write to the program's standard input", e)),
            }
        }
        if self.eof && !self.over {
            self.over = true;
            if let Inside::Terminal { master, .. } = inside {
                self.told = true;
                self.type_eof(master.as_fd());
            }
        }
        Ok(Fed::All)
    }

    /// The end of an input that is no terminal, on a terminal: the end-of-file character.
    fn type_eof(&self, master: BorrowedFd<'_>) {
        if let Ok(modes) = super::terminal::modes(master)
            && modes.lines()
        {
            // A full queue loses it, as it would lose a key.
            let _ = rustix::io::write(master, &[modes.cc[libc::VEOF]]);
        }
    }

    /// Whether the program's end of a pipe is to be closed.
    pub(super) fn over(&self) -> bool {
        self.over
    }

    /// The program is stopped: how far it read. `most` is how much of a log that is not flushed the
    /// context may hold instead; `drain` takes what was printed from the pseudo-terminal.
    pub(super) fn stop(
        &mut self,
        epoch: u64,
        inside: Option<&Inside>,
        most: Option<usize>,
        drain: &mut dyn FnMut() -> Result<()>,
    ) -> Result<(InputContext, Option<Look>)> {
        let mut consumed = self.fed;
        let mut queue = None;
        match inside {
            Some(Inside::Input(pipe)) => consumed -= left_in(pipe.as_fd())?,
            Some(Inside::Ended(pipe)) => consumed -= left_in(pipe.as_fd())?,
            Some(Inside::Terminal { master, slave }) => {
                queue = Some(self.look(master.as_fd(), slave.as_fd(), drain)?);
            }
            _ => {}
        }
        let end = self.log.end();
        let from = consumed.max(self.log.synced());
        let mut tail = Vec::new();
        if let Some(most) = most
            && from < end
            && end - from <= most as u64
        {
            tail = vec![0; (end - from) as usize];
            self.log.read(from, &mut tail)?;
        }
        let sums = self.log.sums(consumed, end)?;
        self.marks.push_back(EpochEnd {
            epoch,
            consumed,
            logged: end - tail.len() as u64,
        });
        Ok((
            InputContext {
                fed: consumed,
                end,
                tail,
                eof: self.eof,
                told: self.told,
                sums: Some(sums),
            },
            queue,
        ))
    }

    /// The queue of the pseudo-terminal. Looked at only when something was typed or read since.
    fn look(
        &mut self,
        master: BorrowedFd<'_>,
        slave: BorrowedFd<'_>,
        drain: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Look> {
        let failed = |e| Error::io("look at what was typed", e);
        let modes = super::terminal::modes(slave).map_err(failed)?;
        let now = (self.fed, queue::readable(slave).map_err(failed)?, modes);
        if self.queue_of != Some(now) {
            let (modes, mut queue) = queue::take(slave).map_err(failed)?;
            queue.append(&mut self.ahead);
            self.queue.clone_from(&queue);
            if !queue.is_empty() {
                // Putting back reads its own echo from there.
                drain()?;
                self.ahead = queue::put(master, slave, &modes, queue).map_err(failed)?;
            }
            let readable = queue::readable(slave).map_err(failed)?;
            self.queue_of = Some((self.fed, readable, modes));
        }
        Ok((modes, self.queue.clone()))
    }

    /// Whether the checkpoint of `epoch` relies on bytes of the log that are not on the disk.
    pub(super) fn needs_sync(&self, epoch: u64) -> bool {
        self.marks
            .iter()
            .any(|m| m.epoch <= epoch && m.logged > self.log.synced().max(m.consumed))
    }

    /// The epoch is durable: what it consumed is never fed again.
    pub(super) fn durable(&mut self, epoch: u64) -> Result<()> {
        let mut to = None;
        while self.marks.front().is_some_and(|m| m.epoch <= epoch) {
            to = self.marks.pop_front().map(|m| m.consumed);
        }
        to.map_or(Ok(()), |to| self.log.trim(to))
    }
}

/// Bytes in a pipe, pipe(7).
fn left_in(pipe: BorrowedFd<'_>) -> Result<u64> {
    rustix::io::ioctl_fionread(pipe).map_err(|e| Error::io("look into the pipe of standard input", e))
}
