//! Making the streams: what stands for what at the start, and the same again at a resume.

use super::context::{ChannelContext, InputContext, LineEnd, OutputContext, StdioContext, Typed};
use super::error::{Error, Result};
use super::flight::{self, Flight};
use super::input::{Inlet, Input};
use super::inside::{self, Id, Inside, Made};
use super::log::Log;
use super::outlet::Outlet;
use super::output::Output;
use super::outside::{Kind, RealStreams};
use super::queue;
use super::relay::{ChannelEnd, Relay, eventfd};
use super::released::{Released, SLOTS};
use super::state::{Channel, State};
use super::{Options, Shared, Stdio, Stream};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::OFlags;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use twinpage_os::terminal;

const STREAMS: [Stream; 3] = [Stream::Stdin, Stream::Stdout, Stream::Stderr];

/// The streams of a program that starts: which descriptors are relayed, and which are one.
pub(super) fn plan(outside: &RealStreams, dir: &Path) -> Result<StdioContext> {
    let mut plan = StdioContext::default();
    for n in 0..3 {
        let relayed = match outside.kind(n)? {
            None | Some(Kind::Memory) => false,
            // A file to read from is the program's own: its offset is captured with it.
            Some(Kind::Regular) => n != 0,
            Some(_) => true,
        };
        if !relayed {
            continue;
        }
        let terminal = outside.kind(n)? == Some(Kind::Terminal);
        let mut twin = None;
        for m in 0..n {
            // Only a terminal goes both ways.
            if plan.fds[m].is_some() && (m > 0 || terminal) && outside.same(m, n)? {
                twin = plan.fds[m];
                break;
            }
        }
        if twin.is_none() {
            let terminal = match &outside.fds[n] {
                Some(real) if terminal => Some(inside::like(real.as_fd(), dir, n == 0)?),
                _ => None,
            };
            let output = (n > 0 || terminal.is_some()).then(OutputContext::default);
            twin = Some(plan.channels.len() as u8);
            plan.channels.push(ChannelContext { terminal, output });
        }
        plan.fds[n] = twin;
    }
    plan.input = plan.fds[0].map(|_| InputContext::default());
    Ok(plan)
}

/// Refuses a context that no stop point can have made.
pub(super) fn check(context: &StdioContext) -> Result<()> {
    let refuse = |why: &str| Err(Error::Context(why.into()));
    if context.channels.len() > SLOTS {
        return refuse("more channels than streams");
    }
    for n in 0..context.channels.len() {
        if !context.fds.contains(&Some(n as u8)) {
            return refuse("a channel that stands for no stream");
        }
    }
    for (n, channel) in context.fds.iter().enumerate() {
        let Some(channel) = channel else { continue };
        let Some(channel) = context.channels.get(*channel as usize) else {
            return refuse("a stream on a channel that does not exist");
        };
        let is_output = channel.output.is_some();
        if (n > 0 && !is_output) || (n == 0 && is_output && channel.terminal.is_none()) {
            return refuse("a channel of the wrong direction");
        }
        let bad = |o: &OutputContext| o.safe > o.end || o.tail.len() as u64 > o.end - o.safe;
        if channel.output.as_ref().is_some_and(bad) {
            return refuse("more held than printed");
        }
        let queue = channel.terminal.iter().flat_map(|t| &t.queue);
        if queue
            .into_iter()
            .any(|piece| piece.bytes.len() > queue::LINE_BYTES && piece.end != LineEnd::Open)
        {
            return refuse("a longer line than a terminal holds");
        }
    }
    match (&context.input, context.fds[0]) {
        (Some(input), Some(_))
            if input.fed <= input.end && input.tail.len() as u64 <= input.end - input.fed =>
        {
            Ok(())
        }
        (None, None) => Ok(()),
        _ => refuse("more read than there was"),
    }
}

/// Makes the streams `context` tells of, between the program and `outside`.
pub(super) fn build(
    outside: RealStreams,
    options: Options,
    context: &StdioContext,
    resumed: bool,
) -> Result<Stdio> {
    let released = Released::open(&options.dir, !resumed)?;
    let (mut channels, mut lanes) = (Vec::new(), Vec::new());
    let mut ends = [None, None, None];
    let mut ids = Vec::new();
    let mut ahead = Vec::new();
    for n in 0..context.channels.len() {
        let opened = open_channel(n, context, &outside, &options.dir, &released, resumed)?;
        for stream in opened.streams() {
            let dup = opened.end.try_clone();
            let dup = dup.map_err(|e| Error::io(format!("duplicate {stream:?}"), e))?;
            ends[stream as usize] = Some(dup);
        }
        ids.extend(opened.streams().next().map(|first| (opened.id, first)));
        channels.push(opened.channel);
        lanes.push(opened.lane);
        ahead.extend(opened.ahead);
    }
    let terminal = STREAMS
        .into_iter()
        .find(|s| context.fds[*s as usize].is_some_and(|n| context.channels[n as usize].terminal.is_some()));
    let input = open_input(&outside, &options.dir, context, ahead, &released, resumed)?;
    released.vouch(options.disk)?;
    let resize = match channels.iter().any(|c| c.real.is_some()) {
        true => Some(eventfd()?),
        false => None,
    };
    if let Some(resize) = &resize {
        terminal::watch_size(resize.as_fd());
    }
    let state = State {
        fds: context.fds,
        channels,
        input,
        input_channel: context.fds[0].unwrap_or(0).into(),
        begun: false,
        size_later: None,
        stopping: false,
        held_max: 0,
        limit_reached: 0,
        at_limit: false,
        ends_at_stop: None,
        trouble: None,
    };
    let shared = Arc::new(share(state, released, outside.own, options)?);
    let relay = spawn(Relay {
        shared: Arc::clone(&shared),
        lanes,
        feed_full: false,
        feed_at: None,
        resize,
    })?;
    Ok(Stdio {
        shared,
        ends: Mutex::new(ends),
        ids,
        terminal,
        relay: Mutex::new(Some(relay)),
    })
}

/// The state shared by the relay and the rest of twinpage.
fn share(state: State, released: Released, own: bool, options: Options) -> Result<Shared> {
    Ok(Shared {
        state: Mutex::new(state),
        changed: Condvar::new(),
        released,
        wake: eventfd()?,
        limit_bytes: options.limit_bytes.max(1),
        lifted: AtomicBool::new(false),
        disk: options.disk,
        own,
        pressure: options.pressure,
        wanted: AtomicBool::new(false),
        told: AtomicBool::new(false),
        stopped: AtomicBool::new(false),
    })
}

/// A new channel, with both of its ends.
struct Opened {
    channel: Channel,
    lane: ChannelEnd,
    /// The program's end.
    end: OwnedFd,
    id: Id,
    /// Typed input that did not fit.
    ahead: Vec<Typed>,
}

impl Opened {
    /// The streams that it stands for.
    fn streams(&self) -> impl Iterator<Item = Stream> + use<> {
        let is_of = self.channel.streams;
        STREAMS.into_iter().filter(move |stream| is_of[*stream as usize])
    }
}

/// Makes channel `n` of `context`, with where its output goes.
fn open_channel(
    n: usize,
    context: &StdioContext,
    outside: &RealStreams,
    dir: &Path,
    released: &Released,
    resumed: bool,
) -> Result<Opened> {
    let wanted = &context.channels[n];
    let streams = context.fds.map(|fd| fd == Some(n as u8));
    let (Made { inside, end, id }, ahead) = make(wanted)?;
    let first = streams.iter().position(|s| *s).unwrap_or(0);
    if !resumed && let Some(real) = &outside.fds[first] {
        like_flags(real.as_fd(), end.as_fd())?;
    }
    let (output, outlet) = match &wanted.output {
        None => (None, None),
        Some(output) => {
            let real = real_output(outside, streams)?;
            let (output, outlet) = open_output(dir, n, output, real, released, resumed)?;
            (Some(output), outlet)
        }
    };
    let real = match wanted.terminal {
        Some(_) => real_terminal(outside, streams)?,
        None => None,
    };
    let channel = Channel {
        streams,
        inside: Some(inside),
        terminal: wanted.terminal.clone(),
        real,
        output,
        file: outlet.as_ref().and_then(Outlet::file),
        stuck: None,
    };
    let lane = ChannelEnd::new(outlet);
    Ok(Opened {
        channel,
        lane,
        end,
        id,
        ahead,
    })
}

/// A pipe or pseudo-terminal as the context wants it, and what was typed that it has no room for.
fn make(wanted: &ChannelContext) -> Result<(Made, Vec<Typed>)> {
    let Some(context) = &wanted.terminal else {
        let made = if wanted.output.is_some() {
            inside::output_pipe()
        } else {
            inside::input_pipe()
        };
        return Ok((made?, Vec::new()));
    };
    let made = inside::pty(&context.modes, context.size)?;
    let Inside::Terminal { master, slave } = &made.inside else {
        return Ok((made, Vec::new()));
    };
    let rest = queue::put(
        master.as_fd(),
        slave.as_fd(),
        &context.modes,
        context.queue.clone(),
    )
    .map_err(|e| Error::io("put back what was typed", e))?;
    Ok((made, rest))
}

/// The program's end is non-blocking if what it stands for was: some programs rely on it.
fn like_flags(real: BorrowedFd<'_>, end: BorrowedFd<'_>) -> Result<()> {
    let failed = |e| Error::io("look at a standard stream", e);
    if rustix::fs::fcntl_getfl(real)
        .map_err(failed)?
        .contains(OFlags::NONBLOCK)
    {
        let flags = rustix::fs::fcntl_getfl(end).map_err(failed)?;
        rustix::fs::fcntl_setfl(end, flags | OFlags::NONBLOCK).map_err(failed)?;
    }
    Ok(())
}

/// Where the output of a channel goes: to the real stdout before the real stderr; to the real stdin
/// when that is a terminal (its echo).
fn real_output(outside: &RealStreams, streams: [bool; 3]) -> Result<Option<BorrowedFd<'_>>> {
    for n in [1, 2] {
        if let (true, Some(fd)) = (streams[n], &outside.fds[n]) {
            return Ok(Some(fd.as_fd()));
        }
    }
    let keys = streams[0] && outside.kind(0)? == Some(Kind::Terminal);
    Ok(if keys {
        outside.fds[0].as_ref().map(AsFd::as_fd)
    } else {
        None
    })
}

/// A real terminal among the streams of a channel.
fn real_terminal(outside: &RealStreams, streams: [bool; 3]) -> Result<Option<OwnedFd>> {
    for n in (0..3).filter(|n| streams[*n]) {
        if let (Some(Kind::Terminal), Some(fd)) = (outside.kind(n)?, &outside.fds[n]) {
            let dup = fd
                .try_clone()
                .map_err(|e| Error::io("duplicate a terminal's descriptor", e))?;
            return Ok(Some(dup));
        }
    }
    Ok(None)
}

fn open_output(
    dir: &Path,
    n: usize,
    context: &OutputContext,
    real: Option<BorrowedFd<'_>>,
    released: &Released,
    resumed: bool,
) -> Result<(Output, Option<Outlet>)> {
    let name = format!("output-{n}");
    let log = if resumed {
        Log::open(dir, &name, context.kept(), false)?
    } else {
        Log::create(dir, &name)?
    };
    let found = resumed.then_some((&log, context.safe));
    let outlet = real
        .map(|real| Outlet::new(real, n, released, found))
        .transpose()?;
    if outlet.is_none() {
        released.set(n, context.end);
    }
    Ok((Output::new(log, context), outlet))
}

fn open_input(
    outside: &RealStreams,
    dir: &Path,
    context: &StdioContext,
    ahead: Vec<Typed>,
    released: &Released,
    resumed: bool,
) -> Result<Option<Input>> {
    let (Some(input), Some(n)) = (&context.input, context.fds[0]) else {
        return Ok(None);
    };
    // After a power cut only what the context vouches for is known to be input.
    let known = resumed && released.trusted();
    let mut log = if resumed {
        Log::open(dir, "input", input.kept(), known)?
    } else {
        Log::create(dir, "input")?
    };
    if known && input.sums.is_some() {
        flight::check(dir, &log, input.end)?;
    }
    let mut flight = Flight::open(dir, !known)?;
    flight.land(&mut log)?;
    let terminal = context.channels[n as usize].terminal.is_some();
    let mut inlet = outside.fds[0]
        .as_ref()
        .map(|real| Inlet::new(real.as_fd(), terminal, dir))
        .transpose()?;
    if let Some(inlet) = &mut inlet {
        // Before the first byte of output: from now on the program's terminal makes the line ends.
        inlet.ready()?;
    }
    Ok(Some(Input::new(log, flight, inlet, terminal, ahead, input)))
}

/// Starts the relay thread, with every signal blocked: they are for the threads that await them.
fn spawn(relay: Relay) -> Result<JoinHandle<()>> {
    let spawned = twinpage_os::signals::with_signals_blocked(|| {
        std::thread::Builder::new()
            .name("stdio".into())
            .spawn(move || relay.run())
    });
    spawned.map_err(|e| Error::io("start the relay thread", e))
}
