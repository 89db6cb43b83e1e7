//! External synchrony: what a checkpointed program says and hears (DPC 3.6).
//!
//! A program that is killed and resumed does again what it did since its last checkpoint. What it
//! printed meanwhile must not have been seen, and what it read must be there to be read again:
//!
//! ```text
//!                       the program
//!             stdin |       | stdout   | stderr          its ends: pipes, or one pseudo-terminal
//!                   |       v          v
//!      input log ---+    output logs, in the state directory
//!          ^                |          |                 held until the epoch is durable
//!          |                v          v
//!     real stdin       real stdout, real stderr          released: counted by the kernel itself
//! ```
//!
//! Invariants:
//! * Nothing goes outside that is not covered by a durable epoch.
//! * What went outside is counted in the state directory in the same system call (`outlet`), so that
//!   a resume repeats nothing and skips nothing.
//! * Each stream keeps its order; where stdout and stderr are one file, the order between them too.
//! * Memory stays small whatever is held: held bytes are in files, up to a limit, and at the limit
//!   the program waits as it would for a slow reader.
//! * A checkpoint of a silent program adds a few numbers.
//!
//! The life of a [`Stdio`]: [`Stdio::run`] or [`Stdio::resume`], the program is started with
//! [`Stdio::program_ends`], [`Stdio::begin`]; at each stop [`Stdio::stop_point`]; in the background
//! [`Stdio::before_commit`], the commit, [`Stdio::durable`]; and when the program ended, a last stop point and commit, and
//! [`Stdio::finish`].
//!
//! What it does not do: keep apart what other programs write to the same terminal or pipe meanwhile;
//! give back to the shell what was typed ahead and not read. `/dev/null`, closed descriptors, and a
//! regular file on standard input are left to the program.

mod build;
pub(crate) mod context;
mod error;
mod flight;
mod input;
mod inside;
mod log;
mod look;
mod outlet;
mod output;
mod outside;
pub(crate) mod queue;
mod relay;
mod released;
mod state;
mod sums;
pub(crate) mod terminal;

pub use context::StdioContext;
pub use error::{Error, Result};
pub use outside::RealStreams;

use inside::Id;
use released::Released;
use rustix::fd::OwnedFd;
use state::{Channel, State};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use twinpage_core::Epoch;

/// How many bytes may be held by default.
pub const DEFAULT_LIMIT_BYTES: u64 = 64 << 20;

/// A standard stream of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum Stream {
    /// File descriptor 0.
    Stdin,
    /// File descriptor 1.
    Stdout,
    /// File descriptor 2.
    Stderr,
}

/// Called, from the relay thread, when a checkpoint would let a waiting program go on.
pub type OnPressure = Box<dyn Fn() + Send + Sync>;

/// How to hold output.
pub struct Options {
    /// The state directory. It exists, and belongs to this program alone.
    pub dir: PathBuf,
    /// Whether checkpoints survive a power cut: then so must what they hold of the streams.
    pub disk: bool,
    /// How many bytes may be held before the program waits.
    pub limit_bytes: u64,
    /// Told when a checkpoint is wanted early.
    pub pressure: Option<OnPressure>,
}

impl Options {
    /// The usual: everything held in `dir`, up to [`DEFAULT_LIMIT_BYTES`].
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>, disk: bool) -> Options {
        Options {
            dir: dir.into(),
            disk,
            limit_bytes: DEFAULT_LIMIT_BYTES,
            pressure: None,
        }
    }
}

/// What went through, for people and scripts.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// Bytes printed and not yet outside.
    pub held_bytes: u64,
    /// The most that was ever held.
    pub held_bytes_max: u64,
    /// Bytes that went outside, on all outputs, in the program's whole life.
    pub released_bytes: u64,
    /// Bytes of input the program was given, in its whole life.
    pub input_bytes: u64,
    /// Times the program had to wait because the limit was reached.
    pub limit_reached: u64,
    /// What keeps output from going outside, or from being held, if anything does.
    pub trouble: Option<String>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    released: Released,
    wake: Arc<OwnedFd>,
    limit_bytes: u64,
    /// Everything is held, however much.
    lifted: AtomicBool,
    disk: bool,
    own: bool,
    pressure: Option<OnPressure>,
    wanted: AtomicBool,
    told: AtomicBool,
    stopped: AtomicBool,
}

impl Shared {
    /// How many bytes may be held now.
    fn limit(&self) -> u64 {
        if self.lifted.load(Ordering::Acquire) {
            u64::MAX
        } else {
            self.limit_bytes
        }
    }
}

/// The standard streams of one checkpointed program.
pub struct Stdio {
    shared: Arc<Shared>,
    ends: Mutex<[Option<OwnedFd>; 3]>,
    ids: Vec<(Id, Stream)>,
    terminal: Option<Stream>,
    relay: Mutex<Option<JoinHandle<()>>>,
}

impl Stdio {
    /// The streams of a program that is about to start.
    ///
    /// # Errors
    /// [`Error::Io`] when the state directory cannot be written or there are no descriptors left.
    pub fn run(outside: RealStreams, options: Options) -> Result<Stdio> {
        let plan = build::plan(&outside, &options.dir)?;
        build::build(outside, options, &plan, false)
    }

    /// The streams as `context`, that of the last durable epoch, left them. What that epoch held and
    /// the outside has not seen goes out at once.
    ///
    /// # Errors
    /// [`Error::Damaged`] when the state directory lost what the context relies on, [`Error::Context`]
    /// when the context makes no sense, [`Error::Io`].
    pub fn resume(outside: RealStreams, options: Options, context: &StdioContext) -> Result<Stdio> {
        build::check(context)?;
        build::build(outside, options, context, true)
    }

    /// The program's ends for file descriptors 0, 1 and 2: to be given to the program, and kept
    /// nowhere else (the end of output is seen when all are closed). `None`: leave the descriptor
    /// as it is. Those of one channel are one open file. Can be taken once.
    pub fn program_ends(&self) -> [Option<OwnedFd>; 3] {
        std::mem::take(&mut *self.ends.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The stream whose terminal should control the program: it calls `setsid`, and `TIOCSCTTY` on
    /// that descriptor (ioctl_tty(2)). `None` when no stream is a terminal.
    pub fn terminal(&self) -> Option<Stream> {
        self.terminal
    }

    /// Whether the program reads keys, not lines, from its terminal, as one does that draws on all of it.
    pub fn takes_whole_terminal(&self) -> bool {
        self.shared.lock().reads_keys()
    }

    /// Whether a file the program has open is the end of one of its streams, by device and inode as
    /// fstat(2) shows them. On resume such a descriptor is the end [`Stdio::program_ends`] has for
    /// that stream.
    pub fn identify(&self, dev: u64, ino: u64) -> Option<Stream> {
        self.ids
            .iter()
            .find(|(id, _)| *id == (dev, ino))
            .map(|(_, stream)| *stream)
    }

    /// Programs on its terminals are to draw their screen again, which most do only where the size changes.
    pub fn draw_again(&self) {
        let mut state = self.shared.lock();
        state.size_later = Some(Instant::now() + terminal::OTHER_SIZE);
        state.resize();
        drop(state);
        self.shared.wake();
    }

    /// The program runs: from now on it is fed, and sees its terminal change size. What is taken from
    /// outside before the first epoch is durable is lost with a kill, so that epoch comes first.
    pub fn begin(&self) {
        let mut state = self.shared.lock();
        state.begun = true;
        state.resize();
        drop(state);
        self.shared.wake();
    }

    /// The program is stopped, every thread of it outside of system calls: takes what it printed,
    /// and returns what its checkpoint must keep. To be called before the program's pending signals
    /// are captured: a key may become one here.
    ///
    /// # Errors
    /// [`Error::Io`] when the log cannot be written. The epoch must then fail; nothing is lost.
    pub fn stop_point(&self, epoch: Epoch) -> Result<StdioContext> {
        let mut state = self.shared.lock();
        let context = state.stop(epoch, &self.shared)?;
        self.shared.wanted.store(false, Ordering::Release);
        drop(state);
        self.shared.told.store(false, Ordering::Release);
        Ok(context)
    }

    /// Whether nothing was printed or typed since the last stop point, and nothing waits for the next one.
    ///
    /// # Errors
    /// [`Error::Io`] when what was printed cannot be taken.
    pub fn is_as_at_stop(&self) -> Result<bool> {
        self.shared.lock().is_as_at_stop(&self.shared)
    }

    /// To be called before the commit of `epoch`, from the background: flushes what its context
    /// relies on. Does nothing where a power cut need not be survived.
    ///
    /// # Errors
    /// [`Error::Io`]: the epoch must not commit.
    pub fn before_commit(&self, epoch: Epoch) -> Result<()> {
        if !self.shared.disk {
            return Ok(());
        }
        let count = self.shared.lock().channels.len();
        for n in 0..count {
            self.sync_log(n, epoch)?;
            self.sync_outside(n)?;
        }
        self.sync_input(epoch)
    }

    fn sync_log(&self, n: usize, epoch: Epoch) -> Result<()> {
        let output = |state: &State| {
            let output = state.channels[n].output.as_ref()?;
            if output.needs_sync(epoch) {
                output.log.sync_later()
            } else {
                None
            }
        };
        let Some(unsynced) = output(&self.shared.lock()) else {
            return Ok(());
        };
        let to = unsynced.sync()?;
        if let Some(output) = &mut self.shared.lock().channels[n].output {
            output.log.note_synced(to);
        }
        Ok(())
    }

    fn sync_outside(&self, n: usize) -> Result<()> {
        let (file, released) = {
            let mut state = self.shared.lock();
            let Channel {
                file: Some(file),
                output: Some(output),
                ..
            } = &mut state.channels[n]
            else {
                return Ok(());
            };
            let released = self.shared.released.get(n);
            if !output.outside_needs_sync(released) {
                return Ok(());
            }
            (Arc::clone(file), released)
        };
        outlet::sync(&file)?;
        if let Some(output) = &mut self.shared.lock().channels[n].output {
            output.safe = output.safe.max(released);
        }
        Ok(())
    }

    fn sync_input(&self, epoch: Epoch) -> Result<()> {
        let unsynced = match &self.shared.lock().input {
            Some(input) if input.needs_sync(epoch) => input.log.sync_later(),
            _ => None,
        };
        let Some(unsynced) = unsynced else { return Ok(()) };
        let to = unsynced.sync()?;
        if let Some(input) = &mut self.shared.lock().input {
            input.log.note_synced(to);
        }
        Ok(())
    }

    /// The epoch is durable: what was printed up to it goes outside, soon.
    ///
    /// # Errors
    /// [`Error::Io`] when the logs cannot be trimmed; what is allowed is allowed all the same.
    pub fn durable(&self, epoch: Epoch) -> Result<()> {
        let mut done = Ok(());
        {
            let mut state = self.shared.lock();
            for output in state.channels.iter_mut().filter_map(|c| c.output.as_mut()) {
                done = done.and(output.durable(epoch));
            }
            if let Some(input) = &mut state.input {
                done = done.and(input.durable(epoch));
            }
        }
        self.shared.wake();
        done
    }

    /// From now on everything is held, however much, because no checkpoint may come (`true`); or no more
    /// than the limit again. True when it was not so before.
    pub fn hold_everything(&self, everything: bool) -> bool {
        let changed = self.shared.lifted.swap(everything, Ordering::AcqRel) != everything;
        if changed {
            self.shared.wake();
        }
        changed
    }

    /// Whether a checkpoint now would let the program go on, or keep it from having to wait soon.
    pub fn wants_checkpoint(&self) -> bool {
        self.shared.wanted.load(Ordering::Acquire)
    }

    /// The program ended, and the epoch of its last stop point is durable: returns when everything
    /// it covers is outside, or has no reader, and gives the terminal back. It may take
    /// as long as the reader takes.
    ///
    /// # Errors
    /// [`Error::RealStreams`] when the outside refuses (a full disk): what was printed is kept, and a
    /// resume tries again.
    pub fn finish(&self) -> Result<Stats> {
        self.finish_within(None)
    }

    /// The same, but no longer than `at_most`: what is not outside then goes there at a resume.
    ///
    /// # Errors
    /// As [`Stdio::finish`].
    pub fn finish_within(&self, at_most: Option<Duration>) -> Result<Stats> {
        let until = at_most.map(|most| Instant::now() + most);
        let mut state = self.shared.lock();
        // Keys are no longer read; the terminal stays as it is until the last byte is out.
        state.begun = false;
        self.shared.wake();
        let refused = loop {
            if let Some(refused) = state.refused() {
                break Some(refused);
            }
            if self.shared.stopped.load(Ordering::Acquire) || state.all_outside(&self.shared) {
                break None;
            }
            let left = until.map_or(Duration::MAX, |until| {
                until.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                break None;
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        let stats = state.stats(&self.shared);
        drop(state);
        self.stop_relay();
        refused.map_or(Ok(stats), Err)
    }

    /// Keys are no longer read, and the real terminal is as it was found, until [`Stdio::begin`].
    pub fn give_terminal_back(&self) {
        let mut state = self.shared.lock();
        state.begun = false;
        if let Some(input) = &mut state.input {
            input.give_terminal_back();
        }
        drop(state);
        self.shared.wake();
    }

    /// The program has left its terminal: what is typed there is its user's. Input from elsewhere goes on.
    pub fn leave_terminal(&self) {
        let state = self.shared.lock();
        let is_read = (state.input.as_ref()).is_some_and(|input| input.is_at_terminal());
        drop(state);
        if is_read {
            self.give_terminal_back();
        }
    }

    /// Waits until everything that may go outside is there, but no longer than `at_most`.
    pub fn let_out_within(&self, at_most: Duration) {
        let until = Instant::now() + at_most;
        let mut state = self.shared.lock();
        while !state.all_outside(&self.shared) && !self.shared.stopped.load(Ordering::Acquire) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// What went through so far.
    pub fn stats(&self) -> Stats {
        self.shared.lock().stats(&self.shared)
    }

    /// Gives the real terminal back as it was found. Safe in a signal handler; [`Stdio::finish`] and
    /// dropping do it too.
    pub fn restore_terminal() {
        twinpage_os::terminal::give_back();
    }

    fn stop_relay(&self) {
        self.shared.lock().stopping = true;
        self.shared.wake();
        let relay = self.relay.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(relay) = relay {
            // A relay that panicked has nothing more to say.
            let _ = relay.join();
        }
        self.shared.lock().input = None;
    }
}

impl Drop for Stdio {
    fn drop(&mut self) {
        self.stop_relay();
    }
}

impl std::fmt::Debug for Stdio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stdio")
            .field("ids", &self.ids)
            .field("stats", &self.stats())
            .finish()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // A full eventfd wakes as well.
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }

    /// Calls for a checkpoint, once for each time it is wanted.
    fn tell_pressure(&self) {
        if self.wanted.load(Ordering::Acquire)
            && !self.told.swap(true, Ordering::AcqRel)
            && let Some(pressure) = &self.pressure
        {
            pressure();
        }
    }
}
