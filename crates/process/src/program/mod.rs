//! A running program, as a [`Source`](twinpage_core::Source) of checkpoints.
//!
//! * All of it happens on one thread, the tracer: ptrace allows no other.
//! * Whatever a thread stops for is answered before it goes on, also while all are asked to stand still.
//! * The main thread may end before the others. The process is then looked at by another thread, which is
//!   alive whenever that is done: the one that stopped for a call, or one that stands still for a checkpoint.
//!   So it is while threads have descriptors of their own, each seen by the thread itself.
//!
//! `asleep.rs` leaves descendants alone that sleep; `halt.rs` has every other thread stand still; `capture.rs` reads what
//! a checkpoint holds meanwhile; `cut.rs` takes up the calls that this cut; `rest.rs` tells when nothing ran since;
//! `standing.rs` has threads wait for a durable epoch; `executable.rs` keeps the program's own file; `job.rs` follows a
//! user's `^Z`; `processor.rs` makes calls cheap; `tree.rs` answers the program's descendants; `members.rs` has those
//! that a checkpoint found alive; `followed.rs` reads one of them; `place.rs` finds where a process is in the tree;
//! `told.rs` has processes know of their resume.

mod asleep;
mod capture;
mod cut;
mod executable;
mod followed;
mod free_writes;
mod halt;
mod identity;
mod job;
mod members;
mod place;
mod processor;
mod rest;
mod slumber;
mod standing;
mod told;
mod tree;
mod turns;

use job::Job;
use members::Members;
use processor::SharedProcessor;

pub use capture::Stop;
pub use executable::forget_copies_but;
pub(crate) use free_writes::FreeWrites;
pub(crate) use members::{Adopted, plant};
pub use standing::Until;
pub(crate) use tree::group_of;

use crate::clocks::Clocks;
use crate::context::{self, Context, Ending};
use crate::descendants::{Descendants, State};
use crate::descriptors::Descriptors;
use crate::error::{Error, Result, lacks_files};
use crate::files::{EpochFiles, Recorder};
use crate::interrupted::Calls;
use crate::ipc::Ipc;
use crate::kernel::{Dirty, Kernel, Settings};
use crate::layout::Layout;
use crate::machine::Machine;
use crate::memory::Memory;
use crate::notes::Notes;
use crate::objects::Objects;
use crate::segments::Segments;
use crate::sockets::Sockets;
use crate::stdio::Stdio;
use crate::threads::{self, ThreadState};
use crate::timers::Dues;
use identity::Identity;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use twinpage_core::{Buffer, PageId};
use twinpage_os::cpuid::{self, Level};
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

/// A program under twinpage.
pub struct Program {
    pub(crate) process: Process,
    pub(crate) threads: Vec<Thread>,
    pub(crate) memory: Memory,
    /// Files whose content the checkpoint holds, of the whole tree.
    pub(crate) objects: Objects,
    /// System V shared memory, of the whole tree.
    pub(crate) segments: Segments,
    /// System V semaphores and message queues, of the whole tree.
    pub(crate) ipc: Ipc,
    /// The id that a process or thread of the tree got last.
    pub(crate) last_id: i32,
    pub(crate) descriptors: Descriptors,
    pub(crate) sockets: Sockets,
    pub(crate) stale: Dirty,
    pub(crate) files: Recorder,
    /// Named pipes that it made, by absolute name.
    pub(crate) fifos: BTreeSet<PathBuf>,
    pub(crate) notes: Notes,
    pub(crate) kernel: Kernel,
    steady: BTreeMap<Tid, Option<ThreadState>>,
    /// The steady part of the context is not as it was written last.
    pub(crate) fixed_changed: bool,
    pub(crate) dues: Dues,
    timers_set: bool,
    pub(crate) calls: Calls,
    rest: rest::Rest,
    standing: standing::Standing,
    /// As it sees it.
    machine: Machine,
    cpu_floor: Option<Level>,
    command: Vec<String>,
    pub(crate) streams: Arc<Stdio>,
    /// Files of epochs that were lost, which the next one makes durable.
    unsynced: EpochFiles,
    /// Pages of the store that hold nothing any more, of epochs that were lost.
    discarded: Vec<Range<PageId>>,
    writer: context::Writer,
    /// The clocks of the last checkpoint.
    cut_at: Clocks,
    /// How its first process ended. Descendants may live on.
    ending: Option<Ending>,
    /// What a resume gives to all processes alike, as the first one had it last.
    identity: Option<Identity>,
    /// The exit code of the main thread, when it ended before the others.
    main_thread_ended: Option<i32>,
    /// It sent SIGKILL to itself, or a descendant did.
    pub(crate) kills_itself: bool,
    pub(crate) descendants: Descendants,
    /// What is known of descendants that a checkpoint found alive.
    pub(crate) members: Members,
    /// The descendant whose call is answered; none: the program itself.
    pub(crate) caller: Option<Process>,
    /// A checkpoint is due, and waits for the program to be alone.
    checkpoint_awaited: bool,
    /// No checkpoint was begun yet.
    is_new: bool,
    /// A thread of a new program is about to make a process.
    begins_tree: bool,
    /// While all threads are asked to stand still: those that were.
    asked: Option<BTreeSet<Tid>>,
    job: Job,
    processor: SharedProcessor,
    /// Whether it stands still after a capture, until [`Program::release`]; and whether that one is durable.
    held: Option<bool>,
    /// The thread that was asked for by its id last: see `turns.rs`.
    turn: Tid,
    /// What threads stopped for before the first of them went on.
    unanswered: Vec<(Tid, Status)>,
    /// While its writes do not stop.
    pub(crate) free_writes: Option<FreeWrites>,
    /// Where the disk of its state is full, its calls wait until there is room; it ends otherwise.
    pub(crate) goes_on_when_full: bool,
    /// Buffers for early copies.
    spare: Vec<Buffer>,
    /// The time pre-copy has taken since the last stop.
    early_us: f64,
    /// The stops that are not noted yet.
    pub stops: Vec<Stop>,
    /// Programs on its terminal are to draw their screen again when it goes on: it was resumed.
    draws_again: bool,
}

/// What a program needs besides its process.
pub struct Surroundings {
    /// The command, for people.
    pub command: Vec<String>,
    /// The relayed standard streams.
    pub streams: Arc<Stdio>,
    /// The recorder of changed files.
    pub files: Recorder,
    /// Where messages for the user go.
    pub notes: Notes,
    /// Its sockets to the outside.
    pub sockets: Sockets,
    /// The level above which the processor's features are hidden from it.
    pub cpu_floor: Option<Level>,
    /// What it was resumed with.
    pub carried: Carried,
}

/// What a resumed program has that cannot be read from its process again.
#[derive(Default)]
pub struct Carried {
    /// How its first process ended, when descendants live on.
    pub ended: Option<Ending>,
    /// The exit code of the main thread, when it ended before the others.
    pub main_thread_ended: Option<i32>,
    /// Values it wrote to files of its own in `/proc`.
    pub settings: Settings,
    /// When its timers ring.
    pub dues: Dues,
    /// Files whose content the checkpoint holds.
    pub objects: Objects,
    /// System V shared memory.
    pub segments: Segments,
    /// What the kernel keeps of System V objects.
    pub ipc: Ipc,
    /// The last process id that was given.
    pub last_id: i32,
    /// What is known of its descriptors beside what the kernel says.
    pub descriptors: Descriptors,
    /// Named pipes of its own.
    pub fifos: BTreeSet<PathBuf>,
    /// The calls that it and its descendants were in.
    pub calls: Calls,
    /// What its threads stopped for before it was put together: to be answered.
    pub stops: Vec<(Tid, Status)>,
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
        let carried = surroundings.carried;
        let unanswered = carried.stops;
        let mut program = Program {
            process,
            threads: tids
                .iter()
                .map(|tid| Thread {
                    tid: *tid,
                    state: match unanswered.iter().any(|(stopped, _)| stopped == tid) {
                        true => State::Running, // as far as is known: its stop is yet to be told
                        false => State::Stopped,
                    },
                })
                .collect(),
            memory,
            objects: carried.objects,
            segments: carried.segments,
            ipc: carried.ipc,
            last_id: carried.last_id,
            descriptors: carried.descriptors,
            sockets: surroundings.sockets,
            stale: Dirty::ALL,
            files: surroundings.files,
            fifos: carried.fifos,
            notes: surroundings.notes,
            kernel: Kernel {
                settings: carried.settings,
                ..Kernel::default()
            },
            steady: tids.iter().map(|tid| (*tid, None)).collect(),
            fixed_changed: true,
            dues: carried.dues,
            timers_set: false,
            calls: carried.calls,
            rest: rest::Rest::default(),
            standing: standing::Standing::default(),
            machine: Machine::this()?.with_floor(surroundings.cpu_floor)?,
            cpu_floor: surroundings.cpu_floor,
            command: surroundings.command,
            streams: surroundings.streams,
            unsynced: EpochFiles::default(),
            discarded: Vec::new(),
            free_writes: None,
            goes_on_when_full: false,
            writer: context::Writer::default(),
            cut_at: Clocks::default(),
            ending: None,
            identity: None,
            main_thread_ended: carried.main_thread_ended,
            kills_itself: false,
            descendants: Descendants::default(),
            members: Members::default(),
            caller: None,
            checkpoint_awaited: false,
            is_new: true,
            begins_tree: false,
            asked: None,
            job: Job::Runs,
            processor: SharedProcessor::NONE,
            held: None,
            turn: 0,
            unanswered,
            spare: Vec::new(),
            early_us: 0.0,
            stops: Vec::new(),
            draws_again: false,
        };
        if let Some(ending) = carried.ended {
            program.end(ending);
            program.kills_itself = true; // it is known how it ended
        }
        Ok(program)
    }

    /// It goes on from a checkpoint, with its descendants: what sees that from outside is told, by `signal` where the user
    /// chose one.
    pub(crate) fn resume(&mut self, context: &Context, descendants: Vec<Adopted>, signal: Option<i32>) {
        self.redraw(context);
        if let Some(signal) = signal {
            self.tell_resumed(signal, context);
        }
        let mut processes = context.processes();
        if processes.any(|one| one.fixed.kernel.settings != Settings::default()) {
            self.members.renew_settings(None);
        }
        self.members.disarms = context.disarms();
        self.adopt_all(descendants, &context.tree);
        for one in context.processes() {
            let threads = one.threads.iter();
            threads.for_each(|thread| self.begins_at(thread.tid, &thread.registers));
        }
    }

    /// Reads what is known of the program from the start: its file, and where its parts are.
    ///
    /// # Errors
    /// When it is gone.
    pub fn read_program(&mut self) -> Result<()> {
        match self.ending {
            None => self.kernel.read_program(self.process.thread()),
            Some(_) => Ok(()),
        }
    }

    /// From the next capture on it stands still.
    pub fn hold(&mut self) {
        self.held = Some(false);
    }

    /// Whether it stands still at a checkpoint that is durable.
    #[must_use]
    pub fn is_held_at_checkpoint(&self) -> bool {
        self.held == Some(true) && !self.is_over()
    }

    /// It goes on, for the first time here.
    ///
    /// # Errors
    /// When a thread refuses to, or what one had stopped for cannot be answered.
    pub fn begin(&mut self) -> Result<()> {
        self.go_on_all()?;
        if std::mem::take(&mut self.draws_again) {
            self.streams.draw_again();
        }
        let mut stops = std::mem::take(&mut self.unanswered).into_iter();
        stops.try_for_each(|(tid, status)| self.handle(tid, status))
    }

    /// It goes on.
    ///
    /// # Errors
    /// When a thread refuses to.
    pub fn release(&mut self) -> Result<()> {
        self.held = None;
        self.go_on_all()
    }

    /// Whether an early checkpoint would help: held output or kept file contents pile up, or a new program is about
    /// to make its first process.
    #[must_use]
    pub fn wants_checkpoint(&self) -> bool {
        self.begins_tree || self.files.pressure() || self.streams.wants_checkpoint()
    }

    /// The clocks of its last checkpoint.
    #[must_use]
    pub fn cut_at(&self) -> Clocks {
        self.cut_at
    }

    /// How the program ended, if it did. Descendants may live on: [`Program::is_over`].
    #[must_use]
    pub fn ending(&self) -> Option<Ending> {
        self.ending
    }

    /// Whether it was killed from outside, or by the kernel for want of memory: it has not finished,
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
        // A thread that stands still can be looked at, unless it was killed. One that runs cannot either way,
        // so all are asked to stand still first.
        if self.stop_all().is_ok_and(|stopped| stopped) {
            while self.stands_no_longer() || self.awaits_end() {
                match trace::wait(-1, true) {
                    Ok(Some((tid, status))) => self.handle(tid, status)?,
                    Ok(None) => {}
                    Err(source) => return Err(Error::target("cannot wait for the program", source)),
                }
            }
        }
        if self.was_killed() { Ok(()) } else { Err(error) }
    }

    /// The alarm rang while it runs.
    pub(crate) fn look_at_processor(&mut self) {
        self.processor.look();
    }

    /// The processors of its threads are those that it chose.
    pub(crate) fn give_processors_back(&mut self) {
        self.processor.part();
    }

    /// Whether a thread that stood still was killed.
    pub(crate) fn stands_no_longer(&self) -> bool {
        let mut threads = self.threads.iter();
        threads.any(|thread| trace::stands_no_longer(thread.tid))
    }

    /// The process id, in its namespace.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// Whether a process is the program, or a descendant that was not waited for.
    pub(crate) fn is_of_tree(&self, pid: i32) -> bool {
        pid == self.pid() && self.ending.is_none() || self.descendants.has(pid)
    }

    /// The thread's steady state is read again at the next stop.
    pub(crate) fn renew_thread(&mut self, tid: Tid) {
        self.steady.insert(tid, None);
    }

    /// The steady state of all threads is, also of descendants, and so are limits.
    pub(crate) fn renew_threads(&mut self) {
        self.members.renew_threads();
        self.stale.limits = true;
        self.steady.values_mut().for_each(|steady| *steady = None);
    }

    /// Answers what a thread stopped for, and lets it run.
    ///
    /// # Errors
    /// When the event cannot be handled; the program is then to be ended.
    pub fn handle(&mut self, tid: Tid, status: Status) -> Result<()> {
        let handled = self.handle_stop(tid, status);
        let handled = self.unless_thread_was_killed(tid, handled);
        if handled.is_err() {
            self.set_state(tid, State::Stopped); // it was not let go, and stops no second time
        }
        handled
    }

    fn handle_stop(&mut self, tid: Tid, status: Status) -> Result<()> {
        const MAKING: [i32; 3] = [trace::EVENT_CLONE, trace::EVENT_FORK, trace::EVENT_VFORK];
        if !matches!(status, Status::Event(event) if MAKING.contains(&event)) {
            self.descendants.end_making(tid); // with none made
        }
        if matches!(status, Status::Event(trace::EVENT_SECCOMP)) && self.asked.is_none() {
            self.processor.called(tid);
        }
        if !matches!(status, Status::Event(trace::EVENT_SECCOMP)) {
            self.standing.end(tid); // one that is killed stops once more
        }
        if let Some(pid) = self.descendant_of(tid) {
            return self.handle_descendant(tid, pid, status);
        }
        if !matches!(status, Status::Call | Status::Event(trace::EVENT_SECCOMP)) {
            self.rest.disturb(); // calls are looked at one by one
        }
        match status {
            Status::Exited(code) => self.gone(tid, Ending::Exit(code)),
            Status::Killed(signal) => self.gone(tid, Ending::Signal(signal)),
            Status::Signal(signal) => return self.signalled(tid, signal),
            Status::Call => return self.at_call(tid),
            Status::GroupStop(_) => {
                self.set_state(tid, State::Listening);
                return ignore_gone(trace::listen(tid));
            }
            Status::Interrupted => {
                // A request that came to nothing may have cut a call.
                if self.threads.iter().any(|thread| thread.tid == tid) {
                    self.take_up_cut(tid)?;
                }
                self.know(tid)?;
                return self.go_on(tid, 0);
            }
            Status::Event(trace::EVENT_EXIT) if tid == self.process.pid() && self.threads.len() > 1 => {
                return self.main_thread_ends();
            }
            Status::Event(event) => {
                match event {
                    trace::EVENT_CLONE | trace::EVENT_FORK | trace::EVENT_VFORK => self.made(tid, event),
                    trace::EVENT_EXEC => self.replaced(tid)?,
                    trace::EVENT_SECCOMP => self.answer(tid)?,
                    trace::EVENT_EXIT => self.note_growth_of_all()?,
                    _ => {}
                }
                if self.stands(tid) {
                    return Ok(());
                }
                return self.go_on(tid, 0);
            }
        }
        Ok(())
    }

    /// While all threads are asked to stand still this one is asked again first: its stop took the request
    /// with it, but left the thread marked as one that a signal waits for, so that a wait it now begins would
    /// end with `EINTR` and no stop after it.
    fn go_on(&mut self, tid: Tid, signal: i32) -> Result<()> {
        self.set_state(tid, State::Running);
        if let Some(asked) = &mut self.asked {
            asked.insert(tid);
            ignore_gone(trace::interrupt(tid))?;
        }
        let go_on = self.way_on(tid);
        ignore_gone(go_on(tid, signal))
    }

    fn set_state(&mut self, tid: Tid, state: State) {
        self.descendants.set_state(tid, state);
        if let Some(thread) = self.threads.iter_mut().find(|thread| thread.tid == tid) {
            thread.state = state;
        }
    }

    /// A thread that stopped: perhaps the first that is heard of it.
    fn know(&mut self, tid: Tid) -> Result<()> {
        if self.job == Job::Stopped {
            self.continue_job(); // a thread that stands by a signal is not told of in this way
        }
        self.note(tid);
        if tid == self.process.pid() {
            return Ok(());
        }
        ignore_gone(trace::end_freely(tid)) // what it inherited from the main thread
    }

    fn note(&mut self, tid: Tid) {
        if !self.threads.iter().any(|thread| thread.tid == tid) {
            self.threads.push(Thread {
                tid,
                state: State::Running,
            });
            self.steady.insert(tid, None);
        }
    }

    fn gone(&mut self, tid: Tid, ending: Ending) {
        self.forget_asked(tid);
        self.threads.retain(|thread| thread.tid != tid);
        self.steady.remove(&tid);
        self.fixed_changed = true;
        self.calls.forget(tid);
        self.standing.forget(tid);
        self.ipc.forget(tid);
        if tid == self.process.pid() {
            self.end(ending);
        }
    }

    /// The first process ended. Descendants may live on: a checkpoint then holds nothing of it but how it ended.
    fn end(&mut self, ending: Ending) {
        self.ending = Some(ending);
        self.threads.clear();
        self.steady.clear();
        self.main_thread_ended = None;
        self.memory.end();
        self.objects.leave(self.pid());
        self.members.lose_parent(self.pid());
        self.descriptors.end_first();
        self.continue_job(); // it is none any more
    }

    /// The main thread ends before others: it is none of the threads any more, and its id stays taken until
    /// the others ended too. Returns when it has left the program's memory.
    fn main_thread_ends(&mut self) -> Result<()> {
        self.note_growth_of_all()?;
        let pid = self.process.pid();
        let status = trace::event_message(pid).unwrap_or_default() as i32;
        ignore_gone(trace::go_on(pid, 0))?;
        self.threads.retain(|thread| thread.tid != pid);
        self.steady.remove(&pid);
        self.fixed_changed = true;
        self.calls.forget(pid);
        self.main_thread_ended = Some(status >> 8);
        threads::wait_for_end(pid)
    }

    /// Whether the thread that the process began with has not ended.
    pub(crate) fn main_thread_lives(&self) -> bool {
        self.main_thread_ended.is_none()
    }

    /// From now on the process is looked at by this thread, which stands still, if its main thread ended or threads
    /// have descriptors of their own.
    pub(crate) fn look_through(&mut self, tid: Tid) -> Result<()> {
        let by_any = self.main_thread_ended.is_none() && !self.descriptors.may_be_apart();
        if by_any || self.process.thread() == tid {
            return Ok(());
        }
        self.process = Process::open_by(self.process.pid(), tid).map_err(|source| {
            Error::target(
                "cannot look at the program by one of its threads (this needs Linux 6.9)",
                source,
            )
        })?;
        Ok(())
    }

    /// The program replaced itself by exec: one thread is left, in a new memory.
    fn replaced(&mut self, tid: Tid) -> Result<()> {
        let pid = self.process.pid();
        for thread in &self.threads {
            self.calls.forget(thread.tid);
            self.ipc.forget_call(thread.tid);
        }
        self.threads = vec![Thread {
            tid,
            state: State::Stopped,
        }];
        self.steady = BTreeMap::from([(tid, None)]);
        self.main_thread_ended = None;
        self.dues = Dues::default();
        self.stale = Dirty::ALL;
        self.standing = standing::Standing::default();
        self.descriptors.close(0, i32::MAX);
        self.descriptors.touch_all();
        self.process =
            Process::open(pid).map_err(|source| Error::target("cannot open the program", source))?;
        let layout =
            Layout::open(pid).map_err(|source| Error::target("cannot look at the program", source))?;
        let tracker = plant_and_track(&self.process, tid, self.cpu_floor)?;
        self.memory.replace(layout, tracker);
        self.kernel.read_program(pid)
    }
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

/// Plants the code for injected calls in a process that stopped in its exec, hides the processor from it where there is a
/// floor, and begins to track its writes.
pub(crate) fn plant_and_track(process: &Process, tid: Tid, cpu_floor: Option<Level>) -> Result<Tracker> {
    leave_exec(tid)
        .map_err(|source| Error::target("cannot bring the program to its first instruction", source))?;
    inject::plant(process, tid).map_err(not_planted)?;
    if cpu_floor.is_some() {
        hide_processor(process, tid)?;
    }
    track(process, tid)
}

/// Why no calls can be made in a process.
fn not_planted(source: std::io::Error) -> Error {
    match source.kind() {
        ErrorKind::AlreadyExists => {}
        ErrorKind::OutOfMemory => {
            return Error::Unsupported(
                "it has used the addresses that it may have (RLIMIT_AS, ulimit -v), and twinpage needs 600 KiB of them".into(),
            );
        }
        _ => return Error::target("cannot place code in a process of the program", source),
    }
    Error::Unsupported(format!(
        "it has memory of its own between the addresses {:#x} and {:#x}, which twinpage needs; programs linked to so low addresses (GNU Common Lisp) are not supported",
        inject::HOME,
        inject::END
    ))
}

/// From now on a process and all that it makes are told by its tracer what the processor is.
fn hide_processor(process: &Process, tid: Tid) -> Result<()> {
    cpuid::set_off_in(process, tid)
        .map_err(|source| Error::target("cannot turn cpuid off for a process", source))
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
    let failed = |source: std::io::Error| {
        if source.raw_os_error() == Some(libc::ESRCH) || lacks_files(&source) {
            return Error::target("cannot track the writes of a process", source);
        }
        Error::Machine(format!(
            "the kernel cannot track writes (userfaultfd with asynchronous write protection): Linux 6.7 or later is needed: {source}"
        ))
    };
    let made = inject::call(process, tid, libc::SYS_userfaultfd, &[USERFAULTFD_FLAGS]);
    let fd = made.map_err(failed)?;
    let ours = process
        .duplicate_fd(fd as i32)
        .map_err(|source| Error::target("cannot take the tracker over", source));
    inject::call(process, tid, libc::SYS_close, &[fd])
        .map_err(|source| Error::target("cannot clean up", source))?;
    Tracker::new(ours?, process.pid()).map_err(failed)
}
