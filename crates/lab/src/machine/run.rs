//! The machine in motion.

use super::core::{Core, NO_REQUEST, Pending, Stall, State, Waiter};
use super::hierarchy::{Access, Hierarchy};
use super::miss_file::MissFile;
use super::outcome::{Ended, Ledger, Outcome};
use super::{Machine, Mode, Plan};
use crate::controller::nvm::Nvm;
use crate::controller::{Answer, Controller, Source};
use crate::op::{self, Kind, Op};
use crate::quantity::in_time;
use crate::schemes::{SchemeName, Setup};
use crate::space::{Port, Space};
use crate::workload::image::filled;
use crate::workload::{Progress, Workload};
use twinpage_core::dual_page::PoolLimit;
use twinpage_core::{Error, Geometry, PageId, PageLines};

/// A core may be so far ahead of memory, and of the core furthest behind: a few hundred instructions.
const WINDOW_FS: u64 = 100_000_000;

/// When to stop before the plan says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stop {
    /// The power fails at this time, in femtoseconds after the start of the counted run.
    pub crash_fs: Option<u64>,
}

impl<'w> Machine<'w> {
    /// Fills memory with the workload's data, as a checkpoint, and switches the machine on. With
    /// `remember` it can be crashed.
    ///
    /// # Errors
    /// When the scheme cannot be made or the data does not fit.
    pub fn new(
        plan: Plan,
        scheme: impl Into<SchemeName>,
        workload: &'w mut dyn Workload,
        remember: bool,
    ) -> Result<Machine<'w>, Error> {
        let space = filled(workload);
        Machine::with_space(plan, scheme.into(), workload, space, remember)
    }

    /// The same, where what the workload fills memory with is known already.
    ///
    /// # Errors
    /// As [`Machine::new`].
    pub(crate) fn with_space(
        plan: Plan,
        scheme: SchemeName,
        workload: &'w mut dyn Workload,
        space: Space,
        remember: bool,
    ) -> Result<Machine<'w>, Error> {
        let remember = remember || scheme.reads_data();
        let nvm = Nvm::new(plan.nvm_bytes, remember);
        let setup = Setup {
            pool: PoolLimit::Pages(scheme.pool_pages(plan.pool_pages)),
            journal_bytes: plan.journal_bytes,
            tables: plan.tables,
            id: Some(1),
            ..Setup::new(Geometry::MEMORY)
        };
        let mut store = scheme.create(nvm.clone(), &setup)?;
        let context = context(&plan, 0);
        for (page, bytes) in (0..).zip(space.bytes().chunks_exact(op::PAGE_BYTES as usize)) {
            let _ = store.write(PageLines::from(PageId(page), 0, bytes, 64))?;
        }
        store.commit(&context)?;
        store.defer_reclaim();
        nvm.forget_wear();
        nvm.start();
        let pages = space.len() / op::PAGE_BYTES;
        let cores = (0..plan.shape.cores).map(|_| Core::new(&plan.shape)).collect();
        Ok(Machine {
            scheme,
            cores,
            caches: Hierarchy::new(plan.shape.cores, &plan.shape.levels),
            controller: Controller::new(plan.controller.clone(), store, nvm, pages),
            space,
            workload,
            asked: MissFile::new(),
            epoch_end: plan.interval_fs,
            parking: false,
            ledger: Ledger::default(),
            batches: 0,
            order: Vec::new(),
            remember,
            crash_at: u64::MAX,
            mix_is_over: false,
            plan,
        })
    }

    /// Warms up, then runs and counts.
    ///
    /// # Errors
    /// The scheme's: a medium that is full, say.
    pub fn run(&mut self, stop: Stop) -> Result<Outcome, Error> {
        let mut ended = self.go(self.plan.warm_up)?;
        self.start_counting();
        if ended == Ended::Instructions {
            self.crash_at = stop.crash_fs.map_or(u64::MAX, |after| self.ledger.begun + after);
            ended = self.go(self.plan.warm_up.saturating_add(self.plan.instructions))?;
        }
        Ok(self.outcome(ended))
    }

    /// The workload's own check of what it computed.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<(), String> {
        self.workload.check(&self.space)
    }

    /// Instructions of all cores.
    pub(super) fn instructions(&self) -> u64 {
        self.cores.iter().map(|core| core.index).sum()
    }

    /// The time everything has reached.
    pub(super) fn now(&self) -> u64 {
        let behind = self
            .cores
            .iter()
            .filter(|core| core.state == State::Ready)
            .map(|core| core.now)
            .min();
        behind.unwrap_or(0).max(self.controller.now())
    }

    /// Runs until that many instructions.
    fn go(&mut self, instructions: u64) -> Result<Ended, Error> {
        while self.instructions() < instructions {
            if let Some(error) = self.controller.failed.take() {
                return Err(error);
            }
            in_time(self.controller.now()).map_err(Error::Invalid)?;
            if self.controller.now() >= self.crash_at {
                return Ok(Ended::Crash);
            }
            if self.mix_is_over {
                return Ok(Ended::Programs);
            }
            match self.behind() {
                Some(core) => self.advance(core),
                None if self.cores.iter().any(|core| core.state == State::Parked) => {
                    if self.asked.is_empty() {
                        if !self.checkpoint()? {
                            return Ok(Ended::Crash);
                        }
                    } else if !self.step_to_answer() {
                        unreachable!("open requests are under way");
                    }
                }
                None if self.step_to_answer() => {}
                None => return self.all_are_over(),
            }
        }
        Ok(Ended::Instructions)
    }

    /// The programs have ended, unless some wait for others that will not move.
    fn all_are_over(&self) -> Result<Ended, Error> {
        let cores = self.cores.iter().enumerate();
        let waiting = cores.filter(|(_, core)| core.state == State::Waiting);
        let waiting: Vec<String> = waiting.map(|(number, _)| number.to_string()).collect();
        match waiting.is_empty() {
            true => Ok(Ended::Programs),
            false => Err(Error::Invalid(format!(
                "{}: no core is left that could wake those that wait ({})",
                self.workload.name(),
                waiting.join(", ")
            ))),
        }
    }

    /// The ready core that is furthest behind.
    fn behind(&self) -> Option<usize> {
        let ready = self
            .cores
            .iter()
            .enumerate()
            .filter(|(_, core)| core.state == State::Ready);
        ready.min_by_key(|(_, core)| core.now).map(|(number, _)| number)
    }

    /// Memory catches up with the core, then the core runs.
    fn advance(&mut self, core: usize) {
        let until = self.cores[core].now.min(self.crash_at);
        self.controller.advance(until, &self.space);
        if !self.controller.answers.is_empty() {
            self.take_answers();
            return;
        }
        if until >= self.crash_at {
            return;
        }
        self.run_core(core, until + WINDOW_FS);
    }

    /// The next thing in memory happens.
    pub(super) fn step(&mut self) -> bool {
        let any = self.controller.step(self.crash_at, &self.space);
        self.take_answers();
        if !any && self.crash_at != u64::MAX && self.controller.next_event() != u64::MAX {
            self.controller.advance(self.crash_at, &self.space);
            return true;
        }
        any
    }

    /// Things in memory happen until a line comes, or nothing is left to happen.
    fn step_to_answer(&mut self) -> bool {
        while self.controller.step(self.crash_at, &self.space) {
            if !self.controller.answers.is_empty() {
                self.take_answers();
                return true;
            }
        }
        self.step()
    }

    /// Lines that came go into the caches, and cores go on.
    fn take_answers(&mut self) {
        while let Some(Answer { token, at, source }) = self.controller.answers.pop() {
            let (line, waiters) = self.asked.end(token);
            for waiter in &waiters {
                let core = waiter.core as usize;
                if let Some(evicted) = self.caches.fill(core, line, waiter.write) {
                    self.controller.write(evicted, at, &self.space);
                }
                self.cores[core].complete(waiter, token, at, source);
            }
            self.asked.reuse(token, waiters);
        }
    }

    /// The core runs until it is past the horizon, blocked, or at the end of a batch.
    fn run_core(&mut self, number: usize, horizon: u64) {
        loop {
            let core = &mut self.cores[number];
            let Some(&op) = core.batch.get(core.next) else {
                match self.next_batch(number) {
                    true => continue,
                    false => return,
                }
            };
            if core.now > horizon {
                return;
            }
            let done = core.enter(&op, &self.plan.shape).and_then(|()| match op.kind {
                Kind::Load => self.load(number, &op),
                Kind::Store => self.store(number, &op),
                Kind::Persist | Kind::FlushOpt | Kind::Flush | Kind::Stream => {
                    self.write_back(number, &op);
                    Ok(())
                }
                Kind::Commit => {
                    self.transaction(number);
                    Ok(())
                }
                Kind::Fence | Kind::FullFence | Kind::Work => Ok(()),
                Kind::Disk | Kind::Remap | Kind::Wait | Kind::Lock | Kind::Unlock | Kind::Atomic => {
                    unreachable!("a program for a machine with its memory on the bus, on another one")
                }
            });
            let core = &mut self.cores[number];
            if let Err(request) = done {
                core.state = State::Blocked(request);
                return;
            }
            core.next += 1;
            core.entered = false;
        }
    }

    /// Fetches a batch. False if the core does not go on now.
    fn next_batch(&mut self, number: usize) -> bool {
        let now = self.cores[number].now;
        if self.plan.mode == Mode::None && now >= self.epoch_end {
            self.epoch_end = now + self.plan.interval_fs;
            self.sample();
        }
        let core = &mut self.cores[number];
        let due = self.plan.mode != Mode::None && core.now >= self.epoch_end;
        if self.parking || due || self.controller.wants_checkpoint && self.plan.mode != Mode::None {
            self.parking = true;
            core.state = State::Parked;
            return false;
        }
        core.batch.clear();
        core.next = 0;
        let progress = self
            .workload
            .run(number, &mut Port::new(&mut self.space, &mut core.batch));
        self.batches += 1;
        if self.remember {
            self.order.push(number as u8);
        }
        let now = core.now;
        match progress {
            Progress::More => {}
            Progress::Waiting => core.state = State::Waiting,
            Progress::Done => {
                core.state = State::Over;
                self.mix_is_over = self.workload.is_mix();
            }
        }
        if progress != Progress::Waiting {
            for other in &mut self.cores {
                if other.state == State::Waiting {
                    other.state = State::Ready;
                    other.stall(now, Stall::Idle);
                }
            }
        }
        progress == Progress::More
    }

    #[inline]
    fn load(&mut self, number: usize, op: &Op) -> Result<(), u32> {
        let core = &mut self.cores[number];
        let begin = core.begin(op)?;
        let line = op.at / op::LINE_BYTES;
        let shape = &self.plan.shape;
        let pending = match self.caches.access(number, line, false) {
            Access::Hit(cycles) => Pending {
                index: core.index,
                request: NO_REQUEST,
                done: begin + u64::from(cycles) * shape.cycle_fs,
                source: Source::Dram,
            },
            Access::Miss => {
                core.miss_room(shape)?;
                Pending {
                    index: core.index,
                    request: self.request(line, begin),
                    done: 0,
                    source: Source::Dram,
                }
            }
        };
        let core = &mut self.cores[number];
        core.loaded(pending);
        let soon = core.now + u64::from(self.caches.first_cycles()) * self.plan.shape.cycle_fs;
        if pending.request != NO_REQUEST {
            let place = core.loads.push(pending);
            self.join(pending.request, number, false, place);
        } else if pending.done > soon {
            core.loads.push(pending);
        }
        Ok(())
    }

    #[inline]
    fn store(&mut self, number: usize, op: &Op) -> Result<(), u32> {
        let line = op.at / op::LINE_BYTES;
        let core = &mut self.cores[number];
        core.store_room(&self.plan.shape)?;
        if self.caches.access(number, line, true) == Access::Miss {
            core.miss_room(&self.plan.shape)?;
            let (index, now) = (core.index, core.now);
            let request = self.request(line, now);
            let pending = Pending {
                index,
                request,
                done: 0,
                source: Source::Dram,
            };
            let place = self.cores[number].stores.push(pending);
            self.join(request, number, true, place);
        }
        Ok(())
    }

    /// Asks memory for a line, unless it was asked already.
    fn request(&mut self, line: u64, at: u64) -> u32 {
        let (number, new) = self.asked.ask(line);
        self.caches.missed(new);
        if new {
            self.controller.read(number, line, at);
        }
        number
    }

    fn join(&mut self, request: u32, core: usize, write: bool, number: u64) {
        let core = core as u32;
        self.asked.wait(request, Waiter { core, write, number });
    }

    /// A line is written back to DRAM; durable it is with the epoch, as everything else.
    fn write_back(&mut self, number: usize, op: &Op) {
        let line = op.at / op::LINE_BYTES;
        let is_dirty = match op.kind {
            Kind::Persist => self.caches.clean(line),
            _ => self.caches.evict(line),
        };
        if is_dirty || op.kind == Kind::Stream {
            self.controller.write(line, self.cores[number].now, &self.space);
        }
    }

    /// A transaction ended.
    fn transaction(&mut self, number: usize) {
        let core = &mut self.cores[number];
        let took = core.now.saturating_sub(core.committed);
        core.committed = core.now;
        self.ledger.transaction(took, core.now);
    }
}

/// What a checkpoint keeps beside memory: how far the programs are, and what stands for every core's
/// state, which is another each time.
pub(super) fn context(plan: &Plan, batches: u64) -> Vec<u8> {
    let mut context = vec![0; 8 + plan.shape.cores * plan.shape.state_bytes as usize];
    let (count, state) = context.split_at_mut(8);
    count.copy_from_slice(&batches.to_le_bytes());
    fastrand::Rng::with_seed(batches).fill(state);
    context
}
