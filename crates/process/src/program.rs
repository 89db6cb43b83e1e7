//! A running program, as a [`Source`] of checkpoints.
//!
//! * All of it happens on one thread, the tracer: ptrace allows no other.
//! * A capture stops every thread, reads what changed, and lets them go on; encoding the context and
//!   everything that writes comes after.
//! * A system call that the stop interrupted is finished or begun again so that the program never
//!   notices: see [`crate::interrupted`].

use crate::context::{self, Clocks, Ending, Fixed, Live};
use crate::descriptors::Descriptors;
use crate::error::{Error, Result};
use crate::files::{EpochFiles, OpenFile, Recorder};
use crate::interrupted::{self, Waits};
use crate::kernel::{Kernel, Running, Stale};
use crate::layout::Layout;
use crate::machine::Machine;
use crate::memory::{Memory, Parts};
use crate::notes::Notes;
use crate::stdio::Stdio;
use crate::threads::{self, Moving, Pending, Steady};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Instant;
use twinpage_core::{Capture, Piece, Source};
use twinpage_os::inject;
use twinpage_os::remote::Process;
use twinpage_os::trace::{self, Status, Tid};
use twinpage_os::tracker::{Tracker, USERFAULTFD_FLAGS};

/// One thread and whether it runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thread {
    pub(crate) tid: Tid,
    /// Stopped, by us or by a signal that stops the group.
    pub(crate) state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Running,
    Stopped,
    GroupStopped,
}

/// Microseconds the parts of a stop took.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Stop {
    /// All of it: from the request to the last thread going on.
    pub total_us: f64,
    /// Until every thread stood still.
    pub interrupt_us: f64,
    /// Looking for changed mappings.
    pub layout_us: f64,
    /// Finding written pages.
    pub scan_us: f64,
    /// Copying them.
    pub copy_us: f64,
    /// Registers, descriptors, timers, streams.
    pub state_us: f64,
    /// Pages captured.
    pub pages: u64,
}

/// A program under twinpage.
pub struct Program {
    pub(crate) process: Process,
    pub(crate) threads: Vec<Thread>,
    pub(crate) memory: Memory,
    pub(crate) descriptors: Descriptors,
    pub(crate) stale: Stale,
    pub(crate) files: Recorder,
    pub(crate) notes: Notes,
    pub(crate) kernel: Kernel,
    steady: BTreeMap<Tid, Option<Steady>>,
    timers_set: bool,
    pub(crate) waits: Waits,
    machine: Machine,
    command: Vec<String>,
    pub(crate) streams: Arc<Stdio>,
    epoch_files: Sender<EpochFiles>,
    writer: context::Writer,
    ending: Option<Ending>,
    /// It sent SIGKILL: to itself, for nobody else is there.
    pub(crate) kills_itself: bool,
    /// The stops that nobody took note of yet.
    pub stops: Vec<Stop>,
}

/// What a program needs besides its process.
pub struct Surroundings {
    /// The command, for people.
    pub command: Vec<String>,
    /// The relayed standard streams.
    pub streams: Arc<Stdio>,
    /// The recorder of changed files.
    pub files: Recorder,
    /// Where each epoch's changed files are sent, to be synced before its commit.
    pub epoch_files: Sender<EpochFiles>,
    /// Where messages for the user go.
    pub notes: Notes,
}

impl Program {
    /// A program whose threads are all stopped and known, whose memory is tracked by `memory`.
    ///
    /// # Errors
    /// When this machine cannot be described.
    pub fn new(
        process: Process,
        tids: &[Tid],
        memory: Memory,
        surroundings: Surroundings,
    ) -> Result<Program> {
        Ok(Program {
            process,
            threads: tids
                .iter()
                .map(|tid| Thread {
                    tid: *tid,
                    state: State::Stopped,
                })
                .collect(),
            memory,
            descriptors: Descriptors::default(),
            stale: Stale::ALL,
            files: surroundings.files,
            notes: surroundings.notes,
            kernel: Kernel::default(),
            steady: tids.iter().map(|tid| (*tid, None)).collect(),
            timers_set: false,
            waits: Waits::default(),
            machine: Machine::this()?,
            command: surroundings.command,
            streams: surroundings.streams,
            epoch_files: surroundings.epoch_files,
            writer: context::Writer::default(),
            ending: None,
            kills_itself: false,
            stops: Vec::new(),
        })
    }

    /// Reads what is known of the program from the start: its file, and where its parts are.
    ///
    /// # Errors
    /// When it is gone.
    pub fn read_program(&mut self) -> Result<()> {
        self.kernel.read_program(self.process.pid())
    }

    /// Whether an early checkpoint would help: held output or kept file contents pile up.
    #[must_use]
    pub fn wants_checkpoint(&self) -> bool {
        self.files.pressure() || self.streams.wants_checkpoint()
    }

    /// How the program ended, if it did.
    #[must_use]
    pub fn ending(&self) -> Option<Ending> {
        self.ending
    }

    /// Whether it was killed by somebody else, or by the kernel for want of memory: it has not finished,
    /// and goes on from its last checkpoint.
    #[must_use]
    pub fn was_killed(&self) -> bool {
        self.ending == Some(Ending::Signal(libc::SIGKILL)) && !self.kills_itself
    }

    /// Something failed: perhaps because the program was just killed, which is no error.
    ///
    /// # Errors
    /// The same, when that was not why.
    pub fn unless_killed(&mut self, error: Error) -> Result<()> {
        while self.ending.is_none() && is_gone(&trace::registers(self.process.pid()).map(drop)) {
            let waited = trace::wait(-1, true);
            let waited = waited.map_err(|source| Error::target("cannot wait for the program", source))?;
            match waited {
                Some((tid, Status::Exited(code))) => self.gone(tid, Ending::Exit(code)),
                Some((tid, Status::Killed(signal))) => self.gone(tid, Ending::Signal(signal)),
                _ => {}
            }
        }
        if self.was_killed() { Ok(()) } else { Err(error) }
    }

    /// The process id, in its namespace.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// The thread's steady state is read again at the next stop.
    pub(crate) fn renew_thread(&mut self, tid: Tid) {
        self.steady.insert(tid, None);
    }

    /// The steady state of all threads is.
    pub(crate) fn renew_threads(&mut self) {
        self.steady.values_mut().for_each(|steady| *steady = None);
    }

    /// Answers what a thread stopped for, and lets it run.
    ///
    /// # Errors
    /// When the event cannot be handled; the program is then to be ended.
    pub fn handle(&mut self, tid: Tid, status: Status) -> Result<()> {
        match status {
            Status::Exited(code) => self.gone(tid, Ending::Exit(code)),
            Status::Killed(signal) => self.gone(tid, Ending::Signal(signal)),
            Status::Signal(signal) => return self.go_on(tid, signal),
            Status::GroupStop(_) => {
                self.set_state(tid, State::GroupStopped);
                return ignore_gone(trace::listen(tid));
            }
            Status::Interrupted => {
                self.know(tid);
                return self.go_on(tid, 0);
            }
            Status::Event(event) => {
                match event {
                    trace::EVENT_CLONE => {
                        if let Ok(new) = trace::event_message(tid) {
                            self.know(new as Tid);
                        }
                    }
                    trace::EVENT_EXEC => self.replaced(tid)?,
                    trace::EVENT_SECCOMP => self.answer(tid)?,
                    _ => {}
                }
                return self.go_on(tid, 0);
            }
        }
        Ok(())
    }

    fn go_on(&mut self, tid: Tid, signal: i32) -> Result<()> {
        self.set_state(tid, State::Running);
        ignore_gone(trace::go_on(tid, signal))
    }

    fn set_state(&mut self, tid: Tid, state: State) {
        if let Some(thread) = self.threads.iter_mut().find(|thread| thread.tid == tid) {
            thread.state = state;
        }
    }

    fn know(&mut self, tid: Tid) {
        if !self.threads.iter().any(|thread| thread.tid == tid) {
            self.threads.push(Thread {
                tid,
                state: State::Running,
            });
            self.steady.insert(tid, None);
        }
    }

    fn gone(&mut self, tid: Tid, ending: Ending) {
        self.threads.retain(|thread| thread.tid != tid);
        self.steady.remove(&tid);
        self.waits.forget(tid);
        if tid == self.process.pid() {
            self.ending = Some(ending);
        }
    }

    /// The program replaced itself by exec: one thread is left, in a new memory.
    fn replaced(&mut self, tid: Tid) -> Result<()> {
        let pid = self.process.pid();
        self.threads = vec![Thread {
            tid,
            state: State::Stopped,
        }];
        self.steady = BTreeMap::from([(tid, None)]);
        self.stale = Stale::ALL;
        self.descriptors.release(0, i32::MAX);
        self.process =
            Process::open(pid).map_err(|source| Error::target("cannot open the program", source))?;
        let layout =
            Layout::open(pid).map_err(|source| Error::target("cannot look at the program", source))?;
        let tracker = settle(&self.process, tid)?;
        self.memory.replace(layout, tracker);
        self.kernel.read_program(pid)
    }

    /// Stops every thread. False when the program ended instead.
    fn stop_all(&mut self) -> Result<bool> {
        if !self.halt()? {
            return Ok(false);
        }
        while let Some(tid) = self.faulting()? {
            self.let_fault_through(tid)?;
            if self.ending.is_some() || !self.halt()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A stopped thread whose fault has not reached its handler yet. The fault belongs to the
    /// instruction the thread stands at, so it cannot be kept for later.
    fn faulting(&self) -> Result<Option<Tid>> {
        for thread in &self.threads {
            let look = |source| Error::target("cannot read waiting signals", source);
            let pending = trace::pending_signals(thread.tid, false).map_err(look)?;
            if pending.iter().any(threads::is_fault) {
                return Ok(Some(thread.tid));
            }
        }
        Ok(None)
    }

    /// Delivers a thread's fault, and stops it again at the first instruction of the handler.
    fn let_fault_through(&mut self, tid: Tid) -> Result<()> {
        self.go_on(tid, 0)?;
        let waited =
            trace::wait(tid, true).map_err(|source| Error::target("cannot wait for the program", source))?;
        let Some((tid, status)) = waited else {
            return Ok(());
        };
        if matches!(status, Status::Signal(_)) {
            let _ = trace::interrupt(tid);
        }
        self.handle(tid, status)
    }

    /// Asks every thread to stand still, and waits. False when the program ended instead.
    fn halt(&mut self) -> Result<bool> {
        let mut asked = Vec::with_capacity(self.threads.len());
        while self.threads.iter().any(|thread| thread.state == State::Running) {
            for tid in self.running() {
                if asked.contains(&tid) {
                    continue;
                }
                asked.push(tid);
                // A thread that just died is told by wait. One that was told already, before the event
                // of its making was, is none.
                if is_gone(&trace::interrupt(tid)) && tid != self.process.pid() {
                    self.threads.retain(|thread| thread.tid != tid);
                    self.steady.remove(&tid);
                }
            }
            if self.running().is_empty() {
                break;
            }
            // Any stop answers the request, also one for a signal or a call: a thread that goes on from
            // such a one must be asked again.
            if let Some(gone_on) = self.await_stop()? {
                asked.retain(|tid| *tid != gone_on);
            }
            if self.ending.is_some() {
                return Ok(false);
            }
        }
        Ok(!self.threads.is_empty())
    }

    fn running(&self) -> Vec<Tid> {
        let running = self
            .threads
            .iter()
            .filter(|thread| thread.state == State::Running);
        running.map(|thread| thread.tid).collect()
    }

    /// Waits for a thread to stop for our request; what threads stop for before is answered, and the
    /// thread that then went on is told. Any thread: a leader that died is told only after the others.
    fn await_stop(&mut self) -> Result<Option<Tid>> {
        match trace::wait(-1, true) {
            Ok(Some((tid, Status::Interrupted))) => {
                self.know(tid);
                self.set_state(tid, State::Stopped);
            }
            Ok(Some((tid, status))) => {
                self.handle(tid, status)?;
                return Ok(Some(tid));
            }
            Ok(None) => {}
            Err(source) => return Err(Error::target("cannot wait for the program", source)),
        }
        Ok(None)
    }

    /// Lets every thread that stands still go on.
    ///
    /// # Errors
    /// When a thread refuses to.
    pub fn go_on_all(&mut self) -> Result<()> {
        for thread in &mut self.threads {
            match thread.state {
                State::Stopped => {
                    thread.state = State::Running;
                    ignore_gone(trace::go_on(thread.tid, 0))?;
                }
                State::GroupStopped => ignore_gone(trace::listen(thread.tid))?,
                State::Running => {}
            }
        }
        Ok(())
    }

    /// Everything a checkpoint holds, read while nothing moves.
    fn look(&mut self, into: &mut Capture, stop: &mut Stop) -> Result<Still> {
        let mut parts = Parts::default();
        let layout_changed = self.memory.capture(&self.process, into, &mut parts)?;
        (stop.layout_us, stop.scan_us, stop.copy_us) = (parts.layout_us, parts.scan_us, parts.copy_us);
        stop.pages = parts.pages;
        let leader = self.process.pid();
        if !self.threads.iter().any(|thread| thread.tid == leader) {
            return Err(Error::Unsupported(
                "the program's main thread ended before the others, which cannot be captured".into(),
            ));
        }
        let clocks = clocks();
        let pending = threads::pending(self.threads.iter().map(|thread| thread.tid))?;
        let moving = self.registers(&pending)?;
        let fixed_changed = self.refresh(layout_changed)?;
        let (timers, pending) = self.timers(pending)?;
        let held = self.descriptors.held(&self.process)?;
        let live = Live {
            held,
            timers,
            pending,
            files: Vec::new(),
        };
        let streams = self.streams.stop_point(into.epoch)?;
        let files = self.begin_files(into.epoch)?;
        let live = Live { files, ..live };
        Ok(Still {
            clocks,
            moving,
            live,
            streams,
            fixed_changed,
        })
    }

    /// What the timers have left, and the signals that wait beside them. Timers run on while nothing else
    /// does: one that rings between the two looks would be in neither, or in both, so both look again.
    fn timers(&mut self, mut pending: Vec<Pending>) -> Result<(Running, Vec<Pending>)> {
        loop {
            let timers = self
                .kernel
                .running(&self.process, self.process.pid(), self.timers_set)?;
            if timers != Running::default() {
                let after = threads::pending(self.threads.iter().map(|thread| thread.tid))?;
                if after != pending {
                    pending = after;
                    continue;
                }
            }
            self.timers_set = timers.interval_timers.iter().any(|timer| *timer != [0; 4]);
            return Ok((timers, pending));
        }
    }

    /// Registers of every thread; calls that the stop broke are mended first.
    fn registers(&mut self, pending: &[Pending]) -> Result<Vec<Moving>> {
        let mut all = Vec::with_capacity(self.threads.len());
        for thread in &self.threads {
            let mut moving = threads::moving(thread.tid)?;
            let awaited = pending.iter().any(|pending| pending.reaches(&moving));
            if !awaited
                && interrupted::mend(
                    &mut moving,
                    &self.process,
                    &mut self.waits,
                    &self.streams,
                    &self.descriptors,
                )?
            {
                trace::set_registers(thread.tid, &moving.registers)
                    .map_err(|source| Error::target("cannot mend an interrupted call", source))?;
            }
            all.push(moving);
        }
        Ok(all)
    }

    /// Reads what is stale. True when the steady part of the context changed.
    fn refresh(&mut self, layout_changed: bool) -> Result<bool> {
        let stale = std::mem::replace(&mut self.stale, Stale::NOTHING);
        let leader = self.process.pid();
        self.kernel.refresh(&self.process, leader, stale)?;
        self.timers_set |= stale.interval_timers;
        if stale.descriptors {
            self.descriptors.list_again(&self.process, &self.streams)?;
        }
        let mut renewed = false;
        for (tid, steady) in &mut self.steady {
            if steady.is_none() {
                *steady = Some(threads::steady(&self.process, *tid)?);
                renewed = true;
            }
        }
        Ok(layout_changed || renewed || stale.is_any())
    }

    /// From here on, changes of files belong to the next epoch.
    fn begin_files(&mut self, epoch: u64) -> Result<Vec<OpenFile>> {
        let open = self.descriptors.writable_files()?;
        let finished =
            self.files
                .begin_epoch(epoch, epoch - 1, open.iter().map(|open| (open.file, open.size)))?;
        // The receiver is gone only when the engine failed, which is told by the engine.
        let _ = self.epoch_files.send(finished);
        Ok(open)
    }

    fn fixed(&self) -> Fixed {
        Fixed {
            machine: self.machine.clone(),
            pid: self.process.pid(),
            command: self.command.clone(),
            mappings: self.memory.mappings().to_vec(),
            marks: self.memory.marks().to_vec(),
            kernel: self.kernel.clone(),
            descriptors: self.descriptors.list().to_vec(),
            threads: self.steady.values().flatten().cloned().collect(),
            ended: self.ending,
        }
    }

    /// The context of a program that ended: how it did, and what it printed last.
    fn capture_ending(&mut self, into: &mut Capture) -> Result<()> {
        let streams = self.streams.stop_point(into.epoch)?;
        let finished = self.files.begin_epoch(into.epoch, into.epoch - 1, [])?;
        let _ = self.epoch_files.send(finished);
        self.writer.set_fixed(&self.fixed())?;
        self.writer.write(
            &mut into.context,
            clocks(),
            &[],
            &Live::default(),
            &[],
            &encode_streams(&streams)?,
        )
    }
}

/// What was read while nothing moved.
struct Still {
    clocks: Clocks,
    moving: Vec<Moving>,
    live: Live,
    streams: crate::stdio::StdioContext,
    fixed_changed: bool,
}

impl Source for Program {
    type Error = Error;

    fn capture(&mut self, into: &mut Capture) -> Result<()> {
        let clock = Instant::now();
        let micros = |clock: Instant| clock.elapsed().as_secs_f64() * 1e6;
        let mut stop = Stop::default();
        if self.ending.is_some() || !self.stop_all()? {
            if self.was_killed() {
                return Err(Error::Killed);
            }
            return self.capture_ending(into);
        }
        stop.interrupt_us = micros(clock);
        let still = self.look(into, &mut stop);
        self.go_on_all()?;
        let still = still?;
        stop.total_us = micros(clock);
        stop.state_us = stop.total_us - stop.interrupt_us - stop.layout_us - stop.scan_us - stop.copy_us;
        self.stops.push(stop);
        if still.fixed_changed {
            self.writer.set_fixed(&self.fixed())?;
        }
        let streams = encode_streams(&still.streams)?;
        let pages = self.memory.pages().table();
        self.writer.write(
            &mut into.context,
            still.clocks,
            &still.moving,
            &still.live,
            pages,
            &streams,
        )
    }

    fn learn(&mut self, piece: Piece, changed: u32) {
        self.memory.learn(piece, changed > 0);
    }

    fn owe(&mut self, lost: &Capture) {
        self.memory.owe(&lost.pieces);
    }
}

fn encode_streams(streams: &crate::stdio::StdioContext) -> Result<Vec<u8>> {
    serde_json::to_vec(streams)
        .map_err(|error| Error::Internal(format!("cannot encode the streams: {error}")))
}

fn is_gone(result: &std::io::Result<()>) -> bool {
    matches!(result, Err(error) if error.raw_os_error() == Some(libc::ESRCH))
}

/// A thread that died meanwhile is told by wait.
fn ignore_gone(result: std::io::Result<()>) -> Result<()> {
    match result {
        Err(error) if error.raw_os_error() != Some(libc::ESRCH) => {
            Err(Error::target("cannot let the program go on", error))
        }
        _ => Ok(()),
    }
}

/// The clocks as the program sees them.
pub(crate) fn clocks() -> Clocks {
    let now = |clock| {
        let time = rustix::time::clock_gettime(clock);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    };
    Clocks {
        monotonic_ns: now(rustix::time::ClockId::Monotonic),
        realtime_ns: now(rustix::time::ClockId::Realtime),
    }
}

/// Plants the code for injected calls in a process that stopped in its exec, and begins to track its
/// writes.
pub(crate) fn settle(process: &Process, tid: Tid) -> Result<Tracker> {
    leave_exec(tid)
        .map_err(|source| Error::target("cannot bring the program to its first instruction", source))?;
    inject::plant(process, tid)
        .map_err(|source| Error::target("cannot place code in the program", source))?;
    track(process, tid)
}

/// From the stop inside execve(2), whose way out still changes registers, to the one after it.
fn leave_exec(tid: Tid) -> std::io::Result<()> {
    trace::interrupt(tid)?;
    trace::go_on(tid, 0)?;
    loop {
        match trace::wait(tid, true)? {
            Some((_, Status::Interrupted)) => return Ok(()),
            Some((_, Status::Signal(signal))) => trace::go_on(tid, signal)?,
            Some((_, Status::Exited(_) | Status::Killed(_))) => {
                return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
            }
            Some(_) => trace::go_on(tid, 0)?,
            None => {}
        }
    }
}

/// A tracker for the memory of a stopped process where the code is planted.
pub(crate) fn track(process: &Process, tid: Tid) -> Result<Tracker> {
    let old = "the kernel cannot track writes (userfaultfd with asynchronous write protection): Linux 6.7 or later is needed";
    let made = inject::call(process, tid, libc::SYS_userfaultfd, &[USERFAULTFD_FLAGS]);
    let fd = made.map_err(|error| Error::Machine(format!("{old}: {error}")))?;
    let ours = process
        .duplicate_fd(fd as i32)
        .map_err(|source| Error::target("cannot take the tracker over", source))?;
    inject::call(process, tid, libc::SYS_close, &[fd])
        .map_err(|source| Error::target("cannot clean up", source))?;
    Tracker::new(ours, process.pid()).map_err(|error| Error::Machine(format!("{old}: {error}")))
}

impl crate::descriptors::Descriptors {
    /// The regular files that are open for writing, as the file recorder wants them.
    pub(crate) fn writable_files(&self) -> Result<Vec<OpenFile>> {
        let mut files = Vec::new();
        for fd in self.writable() {
            files.extend(OpenFile::of(fd)?);
        }
        Ok(files)
    }
}
