//! The thread between a program and the outside.
//!
//! It takes what the program prints (so that the program never waits for a small pipe), writes what
//! is allowed outside, and feeds the program its input. One poll(2) loop; nothing in it blocks but
//! the disk.
//!
//! Invariants:
//! * The lock is never held while something is written outside: a stop does not wait for a slow disk
//!   or a slow reader.
//! * Only this thread closes our ends of pipes.

use super::error::{Error, Result};
use super::input::{Fed, Taken};
use super::inside::{self, Inside};
use super::outlet::{Outcome, Outlet};
use super::{Shared, State};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};
use twinpage_os::terminal;

/// After taking little, how long the next look at a program's output can wait: it is held for its
/// epoch anyway, and a look costs the program a wake-up.
const PAUSE: Duration = Duration::from_millis(2);
/// After a refusal of the outside, or of the disk the logs are on.
const RETRY: Duration = Duration::from_millis(500);
/// How often to see whether this process came to the foreground of its terminal.
const FOREGROUND: Duration = Duration::from_millis(200);
/// The most that is released before the program's ends are looked at again, bytes.
const TURN_BYTES: u64 = 4 << 20;

/// What there is to wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    Wake,
    Resize,
    /// The program printed to a channel.
    Printed(usize),
    /// The outside of a channel takes more.
    RealStreams(usize),
    /// There is input.
    Input,
    /// The program's input takes more.
    Feed,
}

/// The real end of one channel, and when to look at it next.
#[derive(Debug)]
pub(super) struct ChannelEnd {
    pub(super) outlet: Option<Outlet>,
    /// The outside took no more at the last try.
    full: bool,
    /// When to look at the program's output again.
    look: Option<Instant>,
    /// When to try the outside again after a refusal.
    retry: Option<Instant>,
}

impl ChannelEnd {
    pub(super) fn new(outlet: Option<Outlet>) -> ChannelEnd {
        let full = outlet.as_ref().is_some_and(Outlet::gated);
        ChannelEnd {
            outlet,
            full,
            look: None,
            retry: None,
        }
    }
}

/// The relay thread's own state.
pub(super) struct Relay {
    pub(super) shared: Arc<Shared>,
    pub(super) lanes: Vec<ChannelEnd>,
    /// The program's input took no more at the last try.
    pub(super) feed_full: bool,
    /// When to feed the program more.
    pub(super) feed_at: Option<Instant>,
    /// A resize of the real terminal, when one is watched.
    pub(super) resize: Option<Arc<OwnedFd>>,
}

/// What to wait for, and for how long at most.
#[derive(Default)]
struct Wait {
    events: Vec<(Event, Arc<OwnedFd>, PollFlags)>,
    until: Option<Instant>,
}

impl Wait {
    fn on(&mut self, event: Event, fd: &Arc<OwnedFd>, flags: PollFlags) {
        self.events.push((event, Arc::clone(fd), flags));
    }

    fn by(&mut self, when: Instant) {
        self.until = Some(self.until.map_or(when, |until| until.min(when)));
    }
}

impl Relay {
    /// Runs until the shared state says stop.
    pub(super) fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let mut ready = vec![];
        loop {
            let wait = {
                let mut state = shared.lock();
                if state.stopping {
                    return;
                }
                let turned = self.turn(&mut state, &ready);
                let failed = turned.is_err();
                state.trouble = turned.err().map(|e| e.to_string());
                let mut wait = self.plan(&mut state, failed);
                if failed {
                    wait.by(Instant::now() + RETRY);
                }
                wait
            };
            shared.tell_pressure();
            let again = self.release_all();
            ready = self.wait(wait, again);
        }
    }

    /// Takes what the program printed, and feeds it.
    fn turn(&mut self, state: &mut State, ready: &[Event]) -> Result<()> {
        for event in ready {
            match event {
                Event::Wake => drain_eventfd(&self.shared.wake),
                Event::Resize => {
                    self.resize.iter().for_each(|fd| drain_eventfd(fd));
                    state.resize();
                }
                Event::Printed(n) => {
                    let taken = state.drain(*n, &self.shared)?;
                    let lane = &mut self.lanes[*n];
                    let little = taken < state.channels[*n].plenty();
                    lane.look = little.then(|| Instant::now() + PAUSE);
                }
                Event::RealStreams(n) => self.lanes[*n].full = false,
                Event::Feed => self.feed_full = false,
                Event::Input => self.take_input(state)?,
            }
        }
        if state.begun && state.size_later.is_some_and(|when| when <= Instant::now()) {
            state.resize();
        }
        self.feed(state)?;
        state.watch_limit(&self.shared);
        Ok(())
    }

    fn take_input(&mut self, state: &mut State) -> Result<()> {
        let State {
            input: Some(input),
            begun: true,
            ..
        } = state
        else {
            return Ok(()); // keys are the shell's meanwhile
        };
        if input.wants() && matches!(input.take()?, Taken::End) {
            input.end_of_outside();
        }
        Ok(())
    }

    fn feed(&mut self, state: &mut State) -> Result<()> {
        let State {
            input: Some(input),
            channels,
            begun: true,
            input_channel,
            ..
        } = state
        else {
            return Ok(());
        };
        let inside = &mut channels[*input_channel].inside;
        let later = self.feed_at.is_some_and(|when| when > Instant::now());
        if !self.feed_full
            && !later
            && input.feeds()
            && let Some(end) = inside
        {
            let fed = input.feed(end)?;
            self.feed_full = fed == Fed::Full;
            self.feed_at = (fed == Fed::Enough).then(|| Instant::now() + PAUSE);
        }
        if input.over()
            && let Some(Inside::Input(pipe)) = inside
        {
            *inside = inside::ended(pipe.as_fd());
        }
        Ok(())
    }

    /// What to wait for next.
    fn plan(&mut self, state: &mut State, failed: bool) -> Wait {
        let now = Instant::now();
        let mut wait = Wait::default();
        wait.on(Event::Wake, &self.shared.wake, PollFlags::IN);
        if let Some(fd) = &self.resize {
            wait.on(Event::Resize, fd, PollFlags::IN);
        }
        if let (true, Some(when)) = (state.begun, state.size_later) {
            wait.by(when);
        }
        let room = state.held(&self.shared) < self.shared.limit();
        for (n, lane) in self.lanes.iter_mut().enumerate() {
            let channel = &state.channels[n];
            let Some(output) = &channel.output else { continue };
            if let (Some(end), true) = (channel.inside.as_ref().and_then(Inside::output), room && !failed)
                && !output.closed()
            {
                match lane.look {
                    Some(when) if when > now => wait.by(when),
                    _ => wait.on(Event::Printed(n), end, PollFlags::IN),
                }
            }
            if let Some(when) = lane.retry {
                wait.by(when);
            } else if lane.full
                && self.shared.released.get(n) < output.allowed()
                && let Some(outlet) = &lane.outlet
            {
                wait.on(Event::RealStreams(n), outlet.fd(), PollFlags::OUT);
            }
        }
        if state.begun && !failed {
            self.plan_input(state, &mut wait);
        }
        wait
    }

    fn plan_input(&self, state: &mut State, wait: &mut Wait) {
        let Some(input) = &mut state.input else { return };
        if input.wants()
            && let Some(inlet) = &mut input.inlet
        {
            match inlet.ready() {
                Ok(true) => wait.on(Event::Input, &inlet.fd, PollFlags::IN),
                Ok(false) => wait.by(Instant::now() + FOREGROUND),
                // A terminal that cannot be taken is gone.
                Err(_) => input.end_of_outside(),
            }
        }
        if let Some(when) = self.feed_at
            && input.feeds()
        {
            wait.by(when);
        }
        if self.feed_full
            && input.feeds()
            && let Some(end) = state.channels[state.input_channel]
                .inside
                .as_ref()
                .and_then(Inside::input)
        {
            wait.on(Event::Feed, end, PollFlags::OUT);
        }
    }

    /// Writes outside what may go there. True when what to wait for must be thought over.
    fn release_all(&mut self) -> bool {
        (0..self.lanes.len()).fold(false, |again, n| self.release(n) | again)
    }

    fn release(&mut self, n: usize) -> bool {
        let lane = &mut self.lanes[n];
        let released = &self.shared.released;
        if lane.full || lane.retry.is_some_and(|when| when > Instant::now()) {
            return false;
        }
        lane.retry = None;
        let from = released.get(n);
        let next = {
            let state = self.shared.lock();
            let Some(output) = &state.channels[n].output else {
                return false;
            };
            let allowed = output.allowed();
            let unread = output.broken() || lane.outlet.is_none();
            if unread && from < allowed {
                released.set(n, allowed);
            }
            if unread || from >= allowed {
                Relay::at_rest(&self.shared, lane, n, state);
                return false;
            }
            let Some((file, stop)) = output.log.segment(from) else {
                return false;
            };
            (file, stop.min(allowed).min(from + TURN_BYTES))
        };
        let Some(outlet) = &mut lane.outlet else {
            return false;
        };
        let outcome = outlet.release(&next.0, next.1, released);
        let mut state = self.shared.lock();
        let channel = &mut state.channels[n];
        channel.stuck = None;
        match outcome {
            Outcome::Done => {}
            Outcome::Full => lane.full = true,
            Outcome::Broken => {
                // The program's next write must fail, as it would without us.
                channel.inside = None;
                if let Some(output) = &mut channel.output {
                    output.break_off();
                }
            }
            Outcome::Stuck(e) => {
                channel.stuck = Some(e);
                lane.retry = Some(Instant::now() + RETRY);
            }
        }
        self.shared.changed.notify_all();
        // What to wait for has changed.
        true
    }

    /// Everything allowed is outside, or there is no outside: tells those who wait, and passes on
    /// that the program closed its end.
    fn at_rest(shared: &Shared, lane: &mut ChannelEnd, n: usize, state: MutexGuard<'_, State>) {
        if let Some(output) = &state.channels[n].output
            && output.close_allowed()
            && let Some(outlet) = lane.outlet.take()
            && outlet.has_reader()
            && shared.own
            && state.channels[n].streams[1]
        {
            give_up_stdout();
        }
        shared.changed.notify_all();
    }

    fn wait(&mut self, wait: Wait, again: bool) -> Vec<Event> {
        let mut fds: Vec<_> = wait
            .events
            .iter()
            .map(|(_, fd, flags)| PollFd::from_borrowed_fd(fd.as_fd(), *flags))
            .collect();
        let left = if again {
            Some(Duration::ZERO)
        } else {
            wait.until
                .map(|until| until.saturating_duration_since(Instant::now()))
        };
        let timeout = left.map(|d| Timespec {
            tv_sec: d.as_secs() as i64,
            tv_nsec: d.subsec_nanos().into(),
        });
        if poll(&mut fds, timeout.as_ref()).is_err() {
            return vec![];
        }
        let ready: Vec<_> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        wait.events
            .iter()
            .zip(ready)
            .filter(|(_, ready)| *ready)
            .map(|(event, _)| event.0)
            .collect()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if let Some(resize) = &self.resize {
            terminal::forget_size(resize.as_fd());
        }
        self.shared.stopped.store(true, Ordering::Release);
        self.shared.changed.notify_all();
    }
}

/// What this process's own standard output was holds no waiting reader any longer.
fn give_up_stdout() {
    if let Ok(null) = std::fs::OpenOptions::new().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(null);
    }
}

fn drain_eventfd(fd: &OwnedFd) {
    let _ = rustix::io::read(fd, &mut [0; 8]);
}

/// Makes an eventfd, eventfd(2).
pub(super) fn eventfd() -> Result<Arc<OwnedFd>> {
    use rustix::event::EventfdFlags;
    rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map(Arc::new)
        .map_err(|e| Error::io("make an eventfd", e))
}
