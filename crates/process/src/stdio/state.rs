//! What the relay thread, the tracer and the engine's background share, behind one lock.

use super::context::{ChannelContext, StdioContext, TerminalContext};
use super::error::{Error, Result};
use super::input::Input;
use super::inside::Inside;
use super::output::Output;
use super::queue::Look;
use super::{Shared, Stats, terminal};
use rustix::fd::{AsFd, OwnedFd};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use twinpage_core::Epoch;

/// Where durability is on a disk, up to this many held bytes go with the checkpoint itself; more are
/// flushed in the log before it commits.
const CONTEXT_BYTES: usize = 16 << 10;

/// After taking fewer bytes than this from a pipe or a terminal, the next look can wait.
const PLENTY_PIPE_BYTES: u64 = 256 << 10;
const PLENTY_TERMINAL_BYTES: u64 = 2 << 10;

/// One pipe or pseudo-terminal between the program and the outside.
#[derive(Debug)]
pub(super) struct Channel {
    /// Which of file descriptors 0, 1 and 2 it stands for.
    pub(super) streams: [bool; 3],
    /// Our end; `None` once nothing can pass any more.
    pub(super) inside: Option<Inside>,
    /// The program sees a terminal.
    pub(super) terminal: Option<TerminalContext>,
    /// The real terminal whose size the program sees.
    pub(super) real: Option<OwnedFd>,
    pub(super) output: Option<Output>,
    /// The file outside, where only a flush keeps it over a power cut.
    pub(super) file: Option<Arc<OwnedFd>>,
    /// Why the outside refuses what is released.
    pub(super) stuck: Option<io::Error>,
}

/// The streams of a program.
#[derive(Debug)]
pub(super) struct State {
    pub(super) fds: [Option<u8>; 3],
    pub(super) channels: Vec<Channel>,
    pub(super) input: Option<Input>,
    pub(super) input_channel: usize,
    /// The program runs and can be fed.
    pub(super) begun: bool,
    /// Until when the program's terminals have another size than the real one: [`terminal::narrower`].
    pub(super) size_later: Option<Instant>,
    pub(super) stopping: bool,
    pub(super) held_max: u64,
    pub(super) limit_reached: u64,
    pub(super) at_limit: bool,
    pub(super) trouble: Option<String>,
    /// Where the streams ended at the last stop.
    pub(super) ends_at_stop: Option<Vec<(u64, bool)>>,
}

impl Channel {
    /// The lowest stream it stands for.
    pub(super) fn name(&self) -> &'static str {
        ["stdin", "stdout", "stderr"][self.streams.iter().position(|s| *s).unwrap_or(0)]
    }

    /// After how many bytes at once the next look should come soon.
    pub(super) fn plenty(&self) -> u64 {
        if self.terminal.is_some() {
            PLENTY_TERMINAL_BYTES
        } else {
            PLENTY_PIPE_BYTES
        }
    }

    /// The terminal as it is now; as it was where it hung up.
    fn look(&mut self, typed: Option<Look>) -> Result<Option<TerminalContext>> {
        if let (Some(context), Some(Inside::Terminal { slave, .. })) = (&mut self.terminal, &self.inside) {
            let failed = |e| Error::io("look at the program's terminal", e);
            match typed {
                Some((modes, queue)) => (context.modes, context.queue) = (modes, queue),
                None => context.modes = terminal::modes(slave.as_fd()).map_err(failed)?,
            }
            context.size = terminal::size(slave.as_fd()).map_err(failed)?;
        }
        Ok(self.terminal.clone())
    }
}

impl State {
    /// Bytes printed and not yet outside.
    pub(super) fn held(&self, shared: &Shared) -> u64 {
        let of = |(n, c): (usize, &Channel)| {
            c.output
                .as_ref()
                .filter(|o| !o.broken())
                .map_or(0, |o| o.log.end().saturating_sub(shared.released.get(n)))
        };
        self.channels.iter().enumerate().map(of).sum()
    }

    /// Takes what was printed to a channel, as far as the limit allows.
    pub(super) fn drain(&mut self, n: usize, shared: &Shared) -> Result<u64> {
        let room = shared.limit().saturating_sub(self.held(shared));
        let Channel {
            inside: Some(inside),
            output: Some(output),
            ..
        } = &mut self.channels[n]
        else {
            return Ok(0);
        };
        let taken = output.drain(inside, room)?;
        self.held_max = self.held_max.max(self.held(shared));
        Ok(taken)
    }

    /// Whether so much is held that a checkpoint should come early.
    pub(super) fn watch_limit(&mut self, shared: &Shared) {
        let uncovered: u64 = self
            .channels
            .iter()
            .filter_map(|c| c.output.as_ref())
            .map(Output::uncovered)
            .sum();
        let full = self.held(shared) >= shared.limit();
        if full && !self.at_limit {
            self.limit_reached += 1;
        }
        self.at_limit = full;
        if uncovered > 0 && (full || uncovered >= shared.limit() / 2) {
            shared.wanted.store(true, Ordering::Release);
        }
    }

    /// Whether the program's terminal gives it keys instead of lines: termios(3), `ICANON`.
    pub(super) fn reads_keys(&self) -> bool {
        self.channels.iter().any(|channel| match &channel.inside {
            Some(Inside::Terminal { slave, .. }) => {
                terminal::modes(slave.as_fd()).is_ok_and(|modes| !modes.lines())
            }
            _ => false,
        })
    }

    /// The program's terminals get the size of the real one, when it is time.
    pub(super) fn resize(&mut self) {
        self.size_later = self.size_later.filter(|when| *when > Instant::now());
        for channel in self.channels.iter().filter(|_| self.begun) {
            if let (Some(real), Some(Inside::Terminal { master, .. })) = (&channel.real, &channel.inside)
                && let Ok(size) = terminal::size(real.as_fd())
            {
                let size = match self.size_later {
                    Some(_) => terminal::narrower(size),
                    None => size,
                };
                // A size that cannot be set leaves the old one.
                let _ = terminal::set_size(master.as_fd(), size);
            }
        }
    }

    /// The program is stopped: everything printed belongs to `epoch`.
    pub(super) fn stop(&mut self, epoch: Epoch, shared: &Shared) -> Result<StdioContext> {
        let most = shared.disk.then_some(CONTEXT_BYTES);
        let (mut read, mut typed) = (None, None);
        if let Some(input) = &mut self.input {
            let Channel { inside, output, .. } = &mut self.channels[self.input_channel];
            let mut drain = || match (inside.as_ref(), output.as_mut()) {
                (Some(inside), Some(output)) => output.drain_all(inside),
                _ => Ok(()),
            };
            let (context, queue) = input.stop(epoch, inside.as_ref(), most, &mut drain)?;
            (read, typed) = (Some(context), queue);
        }
        let mut channels = Vec::new();
        for (n, channel) in self.channels.iter_mut().enumerate() {
            let mut context = None;
            if let Some(output) = &mut channel.output {
                if let Some(inside) = &channel.inside {
                    output.drain_all(inside)?;
                }
                let for_good = !(shared.disk && channel.file.is_some());
                context = Some(output.stop(epoch, shared.released.get(n), for_good, most)?);
            }
            let typed = if n == self.input_channel {
                typed.take()
            } else {
                None
            };
            channels.push(ChannelContext {
                terminal: channel.look(typed)?,
                output: context,
            });
        }
        self.held_max = self.held_max.max(self.held(shared));
        self.ends_at_stop = Some(self.ends());
        Ok(StdioContext {
            fds: self.fds,
            channels,
            input: read,
        })
    }

    /// Where each log ends, and whether for good.
    fn ends(&self) -> Vec<(u64, bool)> {
        let outputs = self.channels.iter().filter_map(|channel| channel.output.as_ref());
        let outputs = outputs.map(|output| (output.log.end(), output.closed()));
        outputs.chain(self.input.as_ref().map(Input::end)).collect()
    }

    /// Whether the last stop has all there is. A terminal shows what is typed without its program's doing.
    pub(super) fn is_as_at_stop(&mut self, shared: &Shared) -> Result<bool> {
        for n in 0..self.channels.len() {
            match self.drain(n, shared) {
                Err(error) if error.is_full() => return Ok(false), // more was printed than there is room for
                drained => drained?,
            };
        }
        let waits = self.input.as_ref().is_some_and(Input::waits_for_stop);
        Ok(!waits && self.ends_at_stop == Some(self.ends()))
    }

    /// What an outside refused, if one does.
    pub(super) fn refused(&mut self) -> Option<Error> {
        let refused = |c: &mut Channel| {
            c.stuck.take().map(|source| Error::RealStreams {
                stream: c.name(),
                source,
            })
        };
        self.channels.iter_mut().find_map(refused)
    }

    /// Whether everything that may go outside is there.
    pub(super) fn all_outside(&self, shared: &Shared) -> bool {
        self.channels.iter().enumerate().all(|(n, c)| {
            c.output
                .as_ref()
                .is_none_or(|o| o.broken() || shared.released.get(n) >= o.allowed())
        })
    }

    pub(super) fn stats(&self, shared: &Shared) -> Stats {
        let stuck = |c: &Channel| {
            c.stuck
                .as_ref()
                .map(|e| format!("cannot write to {}: {e}", c.name()))
        };
        Stats {
            held_bytes: self.held(shared),
            held_bytes_max: self.held_max,
            released_bytes: (0..self.channels.len()).map(|n| shared.released.get(n)).sum(),
            input_bytes: self.input.as_ref().map_or(0, Input::fed),
            limit_reached: self.limit_reached,
            trouble: self
                .trouble
                .clone()
                .or_else(|| self.channels.iter().find_map(stuck)),
        }
    }
}
