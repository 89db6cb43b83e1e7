//! What a checkpoint holds of a program, read while nothing moves.
//!
//! * Where much was written, most of it is copied before ([`crate::memory`], pre-copy).
//! * A capture stops every thread, reads what changed, and lets them go on; encoding the context and
//!   everything that writes comes after.
//! * The threads go on also when something cannot be read. What cannot be captured is found before anything
//!   is taken from the memory's marks, and what was taken after all is owed to the next capture.
//! * A system call that the stop cut is taken up again so that the program never notices: see
//!   [`crate::interrupted`].
//! * Descendants are read in the same stop; while there are some, what cannot be captured is waited for.
//! * Of a program that ended, a checkpoint says how. It holds the descendants that live on, and what was printed last.

use super::members::Found;
use super::{Job, Program, State};
use crate::clocks::Clocks;
use crate::context::{Beside, StableState, Threads, VolatileState};
use crate::descriptors::{self, Held, Look};
use crate::error::{Error, Result};
use crate::files::{EpochFiles, OpenFile};
use crate::interrupted::Unfinished;
use crate::kernel::{Dirty, Running};
use crate::memory::{Memory, Parts, Precopied};
use crate::stdio::StdioContext;
use crate::threads::{self, Pending, ThreadRegisters};
use std::any::Any;
use std::collections::HashSet;
use std::time::Instant;
use twinpage_core::{Capture, Outcome, Piece, Source};
use twinpage_os::remote;
use twinpage_os::trace::Tid;

/// The number of buffers for early copies that are kept for the next checkpoint.
const SPARE_BUFFERS: usize = 4;

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
    /// Those of them that were copied before the stop.
    pub early_pages: u64,
    /// How long copying before it took, while the program ran. Not part of it.
    pub early_us: f64,
    /// Descriptors looked at.
    pub descriptors: u64,
}

impl Program {
    /// Everything a checkpoint holds, read while nothing moves.
    fn look(&mut self, into: &mut Capture, stop: &mut Stop) -> Result<StopSnapshot> {
        self.take_back_shared();
        let tid = self.threads.first().map(|thread| thread.tid);
        if let Some(tid) = tid {
            self.look_through(tid)?;
        }
        self.update_descriptors()?; // it tells which files memory shows
        match tid {
            Some(tid) => {
                self.refresh(tid)?;
                self.look_at_memory(into, stop)?;
            }
            None => self.memory.forget(into),
        }
        let pending = threads::pending(self.threads.iter().map(|thread| thread.tid))?;
        let moving = self.registers()?;
        self.rest.keep_doubtful(&self.process);
        let clocks = Clocks::now(); // here: what timers have left is from now on
        let tree = self.look_at_descendants(into, clocks)?;
        stop.pages += tree.pages;
        self.capture_objects(into)?; // it is known what each process wrote to them
        self.fixed_changed |= self.ipc.look()?;
        let unfinished = self.unfinished();
        let (timers, pending) = match tid {
            Some(tid) => self.timers(tid, pending, clocks)?,
            None => Default::default(),
        };
        let held = self.look_into_descriptors(tid, clocks)?;
        self.check_all_lived(&held)?;
        let continues = threads::is_to_continue(&pending);
        let live = VolatileState {
            held,
            timers,
            pending,
            files: Vec::new(),
            objects: self.objects.saved().to_vec(),
            links: self.files.links(),
            // A resume goes on with a job that its user stopped: there is no shell that would.
            stopped: self.job == Job::Runs
                && !continues
                && (self.threads.iter()).any(|thread| thread.state == State::GroupStopped),
            guards: self.memory.guards()?,
        };
        if !self.members.slept_through() {
            return Err(Error::NotYet("a process woke meanwhile".into()));
        }
        let streams = self.streams.stop_point(into.epoch)?;
        self.cut_replies(into.epoch);
        let files = self.begin_files(into)?;
        let live = VolatileState { files, ..live };
        Ok(StopSnapshot {
            clocks,
            moving,
            unfinished,
            live,
            streams,
            tree,
        })
    }

    fn look_at_memory(&mut self, into: &mut Capture, stop: &mut Stop) -> Result<()> {
        let mut parts = Parts::default();
        if (self.memory).capture(&self.process, &mut self.objects, None, into, &mut parts)? {
            self.fixed_changed = true;
            self.follow_executable()?;
        }
        (stop.layout_us, stop.scan_us, stop.copy_us) = (parts.layout_us, parts.scan_us, parts.copy_us);
        stop.pages = parts.pages;
        Ok(())
    }

    /// What the timers have left, and the signals that wait beside them. Timers run on while nothing else
    /// does: one that rings between the two looks would be in neither, or in both, so both look again.
    fn timers(
        &mut self,
        tid: Tid,
        mut pending: Vec<Pending>,
        stopped: Clocks,
    ) -> Result<(Running, Vec<Pending>)> {
        loop {
            let mut timers = self
                .kernel
                .running(&self.process, tid, self.timers_set, stopped)?;
            if timers != Running::default() {
                let after = threads::pending(self.threads.iter().map(|thread| thread.tid))?;
                if after != pending {
                    pending = after;
                    continue;
                }
            }
            self.timers_set = timers.interval_timers.iter().any(|timer| *timer != [0; 4]);
            timers.waiting = self
                .dues
                .waiting(&self.kernel.timers, &timers.timers, &pending, stopped);
            return Ok((timers, pending));
        }
    }

    /// Registers of every thread, as a checkpoint keeps them; calls that the stop cut are taken up.
    fn registers(&mut self) -> Result<Vec<ThreadRegisters>> {
        let tids: Vec<Tid> = self.threads.iter().map(|thread| thread.tid).collect();
        let mut all = Vec::with_capacity(tids.len());
        for tid in tids {
            let mut moving = threads::moving(tid)?;
            self.take_up(&mut moving)?;
            all.push(moving);
        }
        if let Some(first) = all.first() {
            self.look_through(first.tid)?;
        }
        Ok(all)
    }

    /// Reads what is stale, by the thread `tid`. It stays stale when it cannot be captured.
    fn refresh(&mut self, tid: Tid) -> Result<()> {
        if self.free_writes.as_ref().is_some_and(|free| free.open_names > 0) {
            self.renew_threads();
        }
        let stale = self.stale;
        self.fixed_changed |= stale.is_any();
        self.kernel.refresh(&self.process, tid, stale)?;
        self.fixed_changed |= (self.kernel).refresh_actions(&self.process, tid, stale.actions)?;
        self.timers_set |= stale.interval_timers;
        for (tid, steady) in &mut self.steady {
            let disarms = self.members.disarms;
            if steady.is_none() || disarms {
                let now = Some(threads::steady(&self.process, *tid, disarms)?);
                self.fixed_changed |= now != *steady;
                *steady = now;
            }
        }
        self.stale = Dirty::NOTHING;
        Ok(())
    }

    /// Looks again at the descriptors that calls touched.
    fn update_descriptors(&mut self) -> Result<()> {
        self.may_open_enough()?;
        let mut files = descriptors::Files {
            streams: &self.streams,
            objects: &mut self.objects,
            recorder: &self.files,
            sockets: &self.sockets,
        };
        let own = self.threads.iter().map(|thread| (self.process.pid(), thread.tid));
        let others = self.descendants.threads().map(|(pid, tid, _)| (pid, tid));
        let threads: Vec<(i32, Tid)> = own.chain(others).collect();
        let (asleep, untouched) = (&self.members.sleepers.pids, self.members.untouched());
        self.fixed_changed |=
            (self.descriptors).update(&self.process, &threads, (asleep, untouched), &mut files)?;
        self.members.were_listed();
        Ok(())
    }

    /// So that enough is left for the program's calls, which are answered by files that are open here as well.
    fn may_open_enough(&self) -> Result<()> {
        const OF_EACH: u64 = 11; // to follow a process
        const OF_ALL: u64 = 32; // the store, logs, streams
        let living = self.descendants.living().len() as u64;
        if living == 0 {
            return Ok(());
        }
        let limit = remote::limit(0, libc::RLIMIT_NOFILE);
        let (limit, _) = limit.map_err(|source| Error::target("cannot ask for a limit", source))?;
        if OF_ALL + living * OF_EACH <= limit {
            return Ok(());
        }
        Err(too_few_files())
    }

    /// What descriptors hold.
    fn look_into_descriptors(&mut self, tid: Option<Tid>, stopped: Clocks) -> Result<Vec<Held>> {
        let threads = self.descendants.threads();
        let stands = threads.filter(|(.., state)| *state == State::GroupStopped);
        let stands = stands.map(|(pid, ..)| pid);
        let calls_nothing = stands.chain(self.members.sleepers.pids.iter().copied()).collect();
        self.sockets.within.clear(); // descriptors may move on between programs
        let recorder = &self.files;
        self.descriptors
            .note_nameless(|file| recorder.is_nameless_now(file));
        let held = self.descriptors.held(&Look {
            process: &self.process,
            tid: tid.unwrap_or_default(), // the first table is empty then
            calls_nothing,
            stopped,
            replies: self.sockets.replies,
            awaits_accepts: !self.standing.is_long_uncut(),
        })?;
        self.check_pidfds(&held)?;
        Ok(held)
    }

    /// Whether every process was alive until all of them were captured, where there are several or they share objects.
    /// When one is killed, its children become init's, which waits for those that ended; its ends of sockets and
    /// terminals are closed; and the kernel marks the robust mutexes that it had in shared memory (set_robust_list(2)).
    /// The others would see that before its end.
    fn check_all_lived(&self, held: &[Held]) -> Result<()> {
        let is_shared = |held: &Held| {
            let is_socket = matches!(held, Held::Queue(_) | Held::Within(_) | Held::Messages(_));
            is_socket || held.terminal().is_some()
        };
        if self.descendants.is_empty() && self.objects.saved().is_empty() && !held.iter().any(is_shared) {
            return Ok(());
        }
        if self.stands_no_longer() {
            return Err(Error::Killed);
        }
        match self.killed_descendant() {
            Some(pid) => Err(Error::NotYet(format!("process {pid} ends"))),
            None => Ok(()),
        }
    }

    /// Descriptors of processes are of those of the tree, which are there again after a resume.
    fn check_pidfds(&self, held: &[Held]) -> Result<()> {
        let mut strangers = held.iter().filter_map(|held| match held {
            Held::Process(Some(pid)) if !self.is_of_tree(*pid) => Some(pid),
            _ => None,
        });
        strangers.next().map_or(Ok(()), |pid| {
            Err(Error::Unsupported(format!(
                "a descriptor (pidfd) is of process {pid}, which is none of the program's and would be another after a resume; start that process in the run, too, or go on without checkpoints while the program holds it: --on-uncapturable warn"
            )))
        })
    }

    /// Captures the files whose content the checkpoint holds.
    fn capture_objects(&mut self, into: &mut Capture) -> Result<()> {
        let others = self.members.all().map(|(_, followed)| &followed.memory);
        let mappings = std::iter::once(&self.memory)
            .chain(others)
            .flat_map(Memory::mappings);
        let mapped: HashSet<_> = mappings.filter_map(|mapping| mapping.object).collect();
        self.segments
            .forget_removed(|segment| mapped.contains(&segment.object));
        self.fixed_changed |= self.segments.take_changed();
        let used = self.descriptors.objects().chain(self.segments.objects());
        let used = used.chain(mapped).collect();
        let pages = self.memory.pages();
        for file in self.objects.capture(&used, &self.files, pages, into)? {
            self.files.sync(file);
        }
        Ok(())
    }

    /// From here on, changes of files belong to the next epoch.
    fn begin_files(&mut self, into: &mut Capture) -> Result<Vec<OpenFile>> {
        let epoch = into.epoch;
        let mut open = Vec::new();
        for (path, fd) in self.descriptors.writable() {
            if self.grows() {
                self.files.note_growth(fd)?;
            }
            open.extend(self.files.open_file(fd, Some(path))?);
        }
        let finished =
            self.files
                .begin_epoch(epoch, epoch - 1, open.iter().map(|open| (open.file, open.size)))?;
        self.attach_files(finished, into);
        self.let_grow()?;
        Ok(open)
    }

    /// Files that only grow may do so in the epoch that begins.
    fn let_grow(&mut self) -> Result<()> {
        let Some(free) = self.free_writes.as_mut().filter(|free| free.grows) else {
            return Ok(());
        };
        // One whose name others removed has its content in the checkpoint. It grows all the same.
        free.grows = self.descriptors.objects().next().is_some();
        for (_, fd) in self.descriptors.writable() {
            free.grows = true;
            self.files.expect_growth(fd)?;
        }
        Ok(())
    }

    /// The files that the epoch changed ride with it, and those of epochs that were lost.
    fn attach_files(&mut self, mut changed: EpochFiles, into: &mut Capture) {
        changed.take_over(std::mem::take(&mut self.unsynced));
        into.attachment = Some(Box::new(changed));
    }

    /// The epoch is lost: the next one makes its files durable.
    fn owe_files(&mut self, lost: &mut Capture) {
        let attached = lost.attachment.take();
        if let Some(files) = attached.and_then(|files| files.downcast::<EpochFiles>().ok()) {
            self.unsynced.take_over(*files);
        }
    }

    fn fixed(&self) -> StableState {
        StableState {
            machine: self.machine.clone(),
            pid: self.process.pid(),
            command: self.command.clone(),
            mappings: self.memory.mappings().to_vec(),
            marks: self.memory.marks().to_vec(),
            kernel: self.kernel.clone(),
            descriptors: self.descriptors.list().values().cloned().collect(),
            threads: self.steady.values().flatten().cloned().collect(),
            ended: self.ending,
            fifos: self.fifos.iter().cloned().collect(),
            main_thread_ended: self.main_thread_ended,
            apart: self.descriptors.apart().to_vec(),
            segments: self.segments.saved(),
            ipc: self.ipc.saved(),
            last_id: self.last_id,
        }
    }

    /// The context of a program that ended: how it did, and what it printed last.
    fn capture_ending(&mut self, into: &mut Capture) -> Result<()> {
        let streams = self.streams.stop_point(into.epoch)?;
        self.cut_replies(into.epoch);
        let finished = self.files.begin_epoch(into.epoch, into.epoch - 1, [])?;
        self.attach_files(finished, into);
        self.writer.set_fixed(&self.fixed())?;
        self.writer.write(
            &mut into.context,
            Clocks::now(),
            Threads::default(),
            &VolatileState::default(),
            Beside {
                streams: &encode_streams(&streams)?,
                ..Beside::default()
            },
        )
    }
}

/// What was read while nothing moved.
struct StopSnapshot {
    clocks: Clocks,
    moving: Vec<ThreadRegisters>,
    unfinished: Vec<Unfinished>,
    live: VolatileState,
    streams: StdioContext,
    tree: Found,
}

impl Source for Program {
    type Error = Error;

    fn capture(&mut self, into: &mut Capture) -> Result<()> {
        into.discarded.append(&mut self.discarded);
        let captured = self.capture_stopped(into);
        if captured.is_err() {
            self.discarded.append(&mut into.discarded);
            self.owe_files(into);
            let lost: Vec<Piece> = self.memories().flat_map(Memory::lose_copies).collect();
            self.owe(&lost);
        }
        captured
    }

    fn settled(&mut self, capture: &mut Capture, outcome: Outcome<'_>) {
        self.settle_copies(capture, matches!(outcome, Outcome::Lost(_)));
        match outcome {
            Outcome::Durable { changed, .. } => {
                self.note_durable(capture.epoch);
                self.held = self.held.map(|_| true);
                let pieces = capture.pieces.iter().zip(changed);
                pieces
                    .filter(|(piece, _)| piece.compare)
                    .for_each(|(&piece, &changed)| self.learn(piece, changed > 0));
            }
            Outcome::Lost(_) => {
                self.rest.disturb();
                self.owe(&capture.pieces);
                self.discarded.append(&mut capture.discarded);
                self.owe_files(capture);
            }
            Outcome::Poisoned(_) => {}
        }
    }
}

impl Program {
    /// The memories of all processes that are followed.
    fn memories(&mut self) -> impl Iterator<Item = &mut Memory> {
        std::iter::once(&mut self.memory).chain(self.members.memories())
    }

    /// Begins pre-copy where a stop would copy many pages. True when there are pages to copy.
    pub fn begin_precopy(&mut self) -> bool {
        if self.is_over() || rayon::current_num_threads() == 1 {
            return false;
        }
        let begun = Instant::now();
        self.give_processors_back();
        let own = self.ending.is_none() && self.memory.begin_precopy(self.process.pid(), &mut self.spare);
        let others = self.members.begin_precopy(&mut self.spare);
        self.early_us += micros(begun);
        own || others
    }

    /// Copies some more pages. True when some are left.
    pub fn precopy(&mut self) -> bool {
        let begun = Instant::now();
        let more = self.memory.precopy(&self.process) || self.members.precopy();
        self.early_us += micros(begun);
        more
    }

    /// The copies that were made before the stop, and count.
    fn copies(&mut self) -> Precopied {
        let mut all = Precopied::default();
        self.memories().for_each(|memory| all.add(memory.take_copies()));
        all
    }

    /// The engine has done with the copies. Where their epoch is lost, their pages are captured again.
    fn settle_copies(&mut self, capture: &mut Capture, is_lost: bool) {
        let later = capture.later.take().map(|later| later as Box<dyn Any>);
        let Some(copies) = later.and_then(|later| later.downcast::<Precopied>().ok()) else {
            return;
        };
        if is_lost {
            self.owe(&copies.pieces());
        }
        self.spare.extend(copies.into_buffers());
        self.spare.truncate(SPARE_BUFFERS);
    }

    /// Pieces of a capture that failed: their owner captures them again.
    fn owe(&mut self, pieces: &[Piece]) {
        self.memories().for_each(|memory| memory.owe(pieces));
    }

    /// A piece was compared: it had changed, or not.
    fn learn(&mut self, piece: Piece, changed: bool) {
        let _ = self.memories().any(|memory| memory.learn(piece, changed)); // else it is of a process that is gone
    }

    /// Something cannot be captured. While there are other processes that passes: what they share with the program is
    /// theirs too, and one that is looked at may be killed.
    fn while_in_company(&mut self, error: Error) -> Error {
        let error = if error.lacks_files() {
            self.members.follow_none();
            too_few_files()
        } else {
            error
        };
        match error {
            Error::Unsupported(why) if self.descendants.any_lives() => Error::NotYet(why),
            error if !self.was_killed() && !self.stands_no_longer() => match self.killed_descendant() {
                Some(pid) => Error::NotYet(format!("process {pid} ends")),
                // One that sleeps is not stopped: it may be killed, and be gone, while it is looked at.
                None if error.is_kill() => Error::NotYet("a process ends".into()),
                None => error,
            },
            error => error,
        }
    }

    /// Stops every thread, captures, and lets them go on.
    fn capture_stopped(&mut self, into: &mut Capture) -> Result<()> {
        let clock = Instant::now();
        let mut stop = Stop {
            early_us: std::mem::take(&mut self.early_us),
            ..Stop::default()
        };
        if self.is_over() || !self.stop_but_sleepers()? {
            if self.was_killed() {
                return Err(Error::Killed);
            }
            return self.capture_ending(into);
        }
        stop.interrupt_us = micros(clock);
        self.rest.begin();
        let still = self.look(into, &mut stop);
        let still = still.map_err(|error| self.while_in_company(error));
        if self.descendants.any_lives() {
            self.descriptors.let_go();
        }
        if still.is_err() {
            self.rest.disturb();
            self.owe(&into.pieces);
        }
        if matches!(still, Err(Error::NotYet(_) | Error::Unsupported(_))) {
            self.go_on_as_before()?;
        } else if self.held.is_none() {
            self.go_on_all()?;
        }
        let still = still?;
        self.cut_at = still.clocks;
        stop.total_us = micros(clock);
        stop.descriptors = self.descriptors.take_looked_at();
        stop.state_us = stop.total_us - stop.interrupt_us - stop.layout_us - stop.scan_us - stop.copy_us;
        let copies = self.copies();
        stop.early_pages = copies.count();
        stop.pages += stop.early_pages;
        into.later = copies.into_later();
        self.stops.push(stop);
        if std::mem::take(&mut self.fixed_changed) {
            self.writer.set_fixed(&self.fixed())?;
        }
        let streams = encode_streams(&still.streams)?;
        let pages = self.memory.pages().table();
        self.writer.write(
            &mut into.context,
            still.clocks,
            Threads {
                moving: &still.moving,
                unfinished: &still.unfinished,
            },
            &still.live,
            Beside {
                pages,
                streams: &streams,
                members: &still.tree.members,
                foreground: still.tree.foreground,
            },
        )
    }
}

fn micros(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}

fn too_few_files() -> Error {
    let why = "a look at all processes takes more files than twinpage may open: raise the limit (ulimit -Hn) and start it again";
    Error::Unsupported(why.into())
}

fn encode_streams(streams: &StdioContext) -> Result<Vec<u8>> {
    serde_json::to_vec(streams)
        .map_err(|error| Error::Internal(format!("cannot encode the streams: {error}")))
}
