//! The machine in motion.

use super::clocks::Clocks;
use super::config::Hardware;
use super::flushes::{Flushes, When};
use super::locks::{Held, is_atomic};
use super::memory::{Event, EventKind, Memory};
use super::outcome::{Counts, Disk};
use super::{Machine, Wait};
use crate::controller::Source;
use crate::machine::Shape;
use crate::machine::core::{Core, NO_REQUEST, Pending, Stall, State, Waiter};
use crate::machine::hierarchy::{Access, Hierarchy};
use crate::machine::miss_file::MissFile;
use crate::op::{Kind, LINE_BYTES, Op};
use crate::quantity::{FS_PER_NS, in_time};
use crate::space::Port;
use crate::workload::image::filled;
use crate::workload::{Progress, Workload};
use std::collections::HashMap;
use std::time::Duration;

/// A core may be so far ahead of the core furthest behind.
const WINDOW_FS: u64 = 50_000_000;

/// Who wants to hear of a write, and whether it goes in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    core: usize,
    in_order: bool,
}

/// A core and its write-backs.
#[derive(Debug, Default)]
pub(super) struct BusCore {
    pub(super) core: Core,
    flushes: Flushes,
    /// It waits for a write-back.
    wants_write_back: bool,
    /// It waits for a miss register.
    wants_room: bool,
    /// The lock it waited for is its own.
    pub(super) is_granted: bool,
}

impl BusCore {
    fn new(shape: &Shape) -> BusCore {
        BusCore {
            core: Core::new(shape),
            ..BusCore::default()
        }
    }
}

/// Lines that are fetched by one name and get another when they come.
#[derive(Debug, Default)]
pub(super) struct Remaps {
    new: HashMap<u64, u64>,
    old: HashMap<u64, u64>,
}

impl Remaps {
    fn add(&mut self, old: u64, new: u64) {
        self.new.insert(old, new);
        self.old.insert(new, old);
    }

    /// The name by which the line is fetched.
    fn fetched(&self, line: u64) -> u64 {
        self.old.get(&line).copied().unwrap_or(line)
    }

    /// The fetched line has come: its name from here on, and whether that is another.
    fn end(&mut self, line: u64) -> (u64, bool) {
        match self.new.remove(&line) {
            Some(new) => {
                self.old.remove(&new);
                (new, true)
            }
            None => (line, false),
        }
    }
}

fn clocks(cores: &[BusCore]) -> Clocks {
    Clocks::of(cores.iter().map(|this| &this.core))
}

impl<'w> Machine<'w> {
    /// Fills memory with the workload's data and switches the machine on.
    pub fn new(config: Hardware, disk: Option<Disk>, workload: &'w mut dyn Workload) -> Machine<'w> {
        let cores: Vec<_> = (0..config.shape.cores)
            .map(|_| BusCore::new(&config.shape))
            .collect();
        Machine {
            clocks: clocks(&cores),
            cores,
            caches: Hierarchy::of(config.shape.cores, &config.shape.levels, config.distances),
            memory: Memory::new(&config, workload.persistent_from()),
            asked: MissFile::new(),
            owners: HashMap::new(),
            remaps: Remaps::default(),
            space: filled(workload),
            disk,
            workload,
            counts: Counts::default(),
            locks: Held::default(),
            ended: 0,
            until: 0,
            crash_at: u64::MAX,
            config,
        }
    }

    /// Runs `warm_up` transactions, then counts `transactions` more.
    ///
    /// # Errors
    /// The program ends before, or its cores wait for one another.
    pub fn run(&mut self, warm_up: u64, transactions: u64) -> Result<Counts, String> {
        let parts = self.run_parts(warm_up, transactions, 1)?;
        Ok(parts.into_iter().next_back().unwrap_or_default())
    }

    /// The same, in equal parts: what is counted from the start of the first to the end of each.
    ///
    /// # Errors
    /// The program ends before, or its cores wait for one another.
    pub fn run_parts(&mut self, warm_up: u64, transactions: u64, parts: u64) -> Result<Vec<Counts>, String> {
        self.go(warm_up)?;
        let before = self.totals();
        let part = |number: u64| {
            self.go(warm_up + transactions * number / parts)?;
            Ok(self.totals().since(&before))
        };
        (1..=parts).map(part).collect()
    }

    /// Runs `warm_up` transactions, then `transactions` more until the power fails `after_fs` femtoseconds later. Says what
    /// was counted in this time, and how many operations of its last batch each core has done.
    ///
    /// # Errors
    /// The program ends before, or its cores wait for one another.
    pub fn run_to_crash(
        &mut self,
        warm_up: u64,
        transactions: u64,
        after_fs: u64,
    ) -> Result<(Counts, Vec<usize>), String> {
        self.go(warm_up)?;
        let before = self.totals();
        self.crash_at = before.time_fs.saturating_add(after_fs);
        let end = warm_up.saturating_add(transactions);
        self.go(end)?;
        if self.counts.transactions >= end {
            let took = Duration::from_nanos((self.totals().time_fs - before.time_fs) / FS_PER_NS);
            return Err(format!(
                "the run ended before the power failed, after {took:.1?}; cut earlier"
            ));
        }
        let done = self.cores.iter().map(|this| this.core.next).collect();
        let counts = Counts {
            time_fs: after_fs,
            ..self.totals().since(&before)
        };
        Ok((counts, done))
    }

    /// When the power fails; `u64::MAX` if it does not.
    pub(crate) fn crash_fs(&self) -> u64 {
        self.crash_at
    }

    /// The workload's own check of what it computed.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<(), String> {
        self.workload.check(&self.space)
    }

    fn totals(&self) -> Counts {
        let sum = |of: fn(&Core) -> u64| self.cores.iter().map(|this| of(&this.core)).sum();
        let at_locks = (self.cores.iter()).map(|this| u128::from(this.core.stalls[Stall::Lock as usize]));
        // A commit is within the window of the core furthest behind; a core in a long wait may be seconds ahead.
        let now = self.ended;
        let last = self.cores.last().expect("a machine has a core");
        let last = |of: Stall| last.core.stalls[of as usize];
        let counts = Counts {
            time_fs: now,
            instructions: sum(|core| core.index),
            fence_stall_fs: sum(|core| core.stalls[Stall::Fence as usize]),
            lock_stall_fs: at_locks.sum(),
            last_fence_fs: last(Stall::Fence),
            last_idle_fs: last(Stall::Idle),
            remote: self.caches.counts.remote,
            nvm_writes: self.memory.nvm_writes(),
            device_j: self.memory.energy_j(now.max(self.memory.now())),
            ..self.counts
        };
        counts.device(&self.memory.commands())
    }

    fn go(&mut self, transactions: u64) -> Result<(), String> {
        self.until = transactions;
        while self.counts.transactions < transactions {
            let behind = self.clocks.behind();
            debug_assert_eq!(behind, clocks(&self.cores).behind());
            let limit = behind.map_or(u64::MAX, |(_, at)| at);
            if behind.is_some() {
                in_time(limit).map_err(|why| format!("{}: {why}", self.workload.name()))?;
            }
            match (self.memory.next(limit.min(self.crash_at)), behind) {
                (Some(event), _) => self.take(event),
                (None, _) if self.is_crashed(limit) => return Ok(()),
                (None, Some((this, _))) => {
                    self.run_core(this, limit);
                    self.clocks.see(this, &self.cores[this].core);
                }
                (None, None) => {
                    return Err(format!(
                        "{}: no core can go on after {} transactions of {transactions}",
                        self.workload.name(),
                        self.counts.transactions
                    ));
                }
            }
        }
        Ok(())
    }

    /// Whether all that happens before the power fails has happened, where the core furthest behind is at `limit`. A program
    /// that is over does not get there.
    fn is_crashed(&self, limit: u64) -> bool {
        let goes_on = |this: &BusCore| matches!(this.core.state, State::Ready | State::Blocked(_));
        self.crash_at < u64::MAX && limit >= self.crash_at && self.cores.iter().any(goes_on)
    }

    /// Something happened in memory: caches fill, cores go on.
    fn take(&mut self, Event { at, kind }: Event) {
        match kind {
            EventKind::Read(request) => self.line_came(request, at),
            EventKind::Durable(number) => {
                let Some(Owner { core, in_order }) = self.owners.remove(&number) else {
                    return;
                };
                let this = &mut self.cores[core];
                match in_order {
                    true => this.flushes.in_order_ends(at),
                    false => this.flushes.closes(),
                }
                if std::mem::take(&mut this.wants_write_back) {
                    self.goes_on(core, at, Stall::Fence);
                }
                if in_order {
                    self.go_on_in_order(core);
                }
            }
            EventKind::Left(..) => {}
        }
    }

    /// A core that waited, and not for a line, goes on at a time.
    pub(super) fn goes_on(&mut self, number: usize, at: u64, why: Stall) {
        let core = &mut self.cores[number].core;
        debug_assert_eq!(core.state, State::Blocked(NO_REQUEST));
        core.state = State::Ready;
        core.stall(at, why);
        self.clocks.see(number, core);
    }

    fn line_came(&mut self, request: u32, at: u64) {
        let (line, waiters) = self.asked.end(request);
        let (line, is_new) = self.remaps.end(line);
        for waiter in &waiters {
            let number = waiter.core as usize;
            if let Some(evicted) = self.caches.fill(number, line, waiter.write || is_new) {
                self.memory.write(evicted, at);
            }
            self.cores[number].core.complete(waiter, request, at, Source::Nvm);
        }
        self.asked.reuse(request, waiters);
        // A core may wait for a line that another one asked for.
        for (number, this) in self.cores.iter_mut().enumerate() {
            if this.core.state == State::Blocked(request) {
                this.core.state = State::Ready;
            }
            if this.core.state == State::Ready && std::mem::take(&mut this.wants_room) {
                this.core.stall(at, Stall::Nvm);
            }
            self.clocks.see(number, &this.core);
        }
    }

    /// The core, furthest behind at `limit`, runs until it is past its window, blocked, at the end of its program, or at
    /// that of the run. What other cores can see of it it does when it is furthest behind: accesses to locks, and on
    /// machines with locks the beginning of a batch.
    fn run_core(&mut self, number: usize, limit: u64) {
        let has_locks = self.config.locks.is_some();
        loop {
            let core = &mut self.cores[number].core;
            let Some(&op) = core.batch.get(core.next) else {
                if has_locks && core.now > limit {
                    return;
                }
                match self.next_batch(number) {
                    true => continue,
                    false => return,
                }
            };
            let is_over = self.counts.transactions >= self.until || core.now >= self.crash_at;
            if core.now > limit + WINDOW_FS || is_over {
                return;
            }
            let entered = core.enter(&op, &self.config.shape).map_err(Wait::Line);
            if entered.is_ok() && is_atomic(op.kind) && core.now > limit {
                return;
            }
            let done = entered.and_then(|()| self.operation(number, &op));
            let this = &mut self.cores[number];
            let Err(wait) = done else {
                this.core.next += 1;
                this.core.entered = false;
                continue;
            };
            this.core.state = match wait {
                Wait::Line(request) => State::Blocked(request),
                Wait::Room(request) => {
                    this.wants_room = true;
                    State::Blocked(request)
                }
                Wait::WriteBack => {
                    this.wants_write_back = true;
                    State::Blocked(NO_REQUEST)
                }
                Wait::Lock => State::Blocked(NO_REQUEST),
            };
            return;
        }
    }

    fn operation(&mut self, number: usize, op: &Op) -> Result<(), Wait> {
        match op.kind {
            Kind::Load => self.load(number, op),
            Kind::Store => self.store(number, op),
            Kind::Persist | Kind::FlushOpt | Kind::Stream => self.write_back(number, op),
            Kind::Flush => self.flush(number, op),
            Kind::Fence => self.fence(number, self.config.sfence_fs),
            Kind::FullFence => {
                let loads = self.cores[number].core.leave_loads(Stall::Fence);
                loads.map_err(Wait::Line)?;
                self.fence(number, self.config.mfence_fs)
            }
            Kind::Disk => {
                let disk = self
                    .disk
                    .expect("a program with a disk, on a machine that has one");
                let busy = disk.write_fs(op.at);
                self.counts.disk_writes += 1;
                self.counts.disk_bytes += op.at;
                self.counts.disk_fs += busy;
                let core = &mut self.cores[number].core;
                core.stall(core.now + busy, Stall::Disk);
                Ok(())
            }
            Kind::Remap => self.remap(number, op.at >> 32, op.at & 0xffff_ffff),
            Kind::Wait => {
                let core = &mut self.cores[number].core;
                core.stall(core.now + op.at, Stall::Dram);
                Ok(())
            }
            Kind::Lock => self.lock(number, op.at / LINE_BYTES),
            Kind::Unlock => self.unlock(number, op.at / LINE_BYTES),
            Kind::Atomic => self.own(number, op.at / LINE_BYTES),
            Kind::Commit => {
                self.counts.transactions += 1;
                self.ended = self.ended.max(self.cores[number].core.now);
                Ok(())
            }
            Kind::Work => Ok(()),
        }
    }

    /// Fetches a batch. False if the core does not go on now. Cores that wait for others look again when one of them
    /// has done a batch.
    fn next_batch(&mut self, number: usize) -> bool {
        let Core { now, next, .. } = self.cores[number].core;
        let waiting = (self.cores.iter_mut().enumerate())
            .filter(|(_, this)| next > 0 && this.core.state == State::Waiting);
        for (woken, this) in waiting {
            this.core.state = State::Ready;
            this.core.stall(now, Stall::Idle);
            self.clocks.see(woken, &this.core);
        }
        let core = &mut self.cores[number].core;
        core.batch.clear();
        core.next = 0;
        let mut port = Port::new(&mut self.space, &mut core.batch);
        let progress = self.workload.run(number, &mut port);
        drop(port);
        match progress {
            Progress::More => {}
            Progress::Waiting => core.state = State::Waiting,
            Progress::Done => core.state = State::Over,
        }
        progress == Progress::More
    }

    pub(super) fn cycles(&self, cycles: u32) -> u64 {
        u64::from(cycles) * self.config.shape.cycle_fs
    }

    /// Counts an access to the first cache that was done.
    pub(super) fn accessed(&mut self, access: Access) {
        self.counts.l1_accesses += 1;
        self.counts.l1_misses += u64::from(access != Access::Hit(self.caches.first_cycles()));
    }

    fn load(&mut self, number: usize, op: &Op) -> Result<(), Wait> {
        let core = &self.cores[number].core;
        let begin = core.begin(op).map_err(Wait::Line)?;
        let line = op.at / LINE_BYTES;
        let index = core.index;
        let access = self.caches.access(number, line, false);
        let mut pending = Pending {
            index,
            request: NO_REQUEST,
            done: begin,
            source: Source::Dram,
        };
        match access {
            Access::Hit(cycles) => pending.done += self.cycles(cycles),
            Access::Miss => pending.request = self.request(number, line, begin)?,
        }
        self.accessed(access);
        let soon = self.cores[number].core.now + self.cycles(self.caches.first_cycles());
        let core = &mut self.cores[number].core;
        core.loaded(pending);
        if pending.request != NO_REQUEST {
            let place = core.loads.push(pending);
            self.join(pending.request, number, false, place);
        } else if pending.done > soon {
            core.loads.push(pending);
        }
        Ok(())
    }

    fn store(&mut self, number: usize, op: &Op) -> Result<(), Wait> {
        let core = &mut self.cores[number].core;
        core.store_room(&self.config.shape).map_err(Wait::Line)?;
        let (index, now) = (core.index, core.now);
        let line = op.at / LINE_BYTES;
        let access = self.caches.access(number, line, true);
        match access {
            Access::Miss => {
                let request = self.request(number, line, now)?;
                self.store_waits(number, index, request);
            }
            // Where cores are far apart, the right to write a line takes its time.
            Access::Hit(cycles) if self.config.distances.is_some() && cycles > self.caches.first_cycles() => {
                let pending = Pending {
                    index,
                    request: NO_REQUEST,
                    done: now + self.cycles(cycles),
                    source: Source::Dram,
                };
                self.cores[number].core.stores.push(pending);
            }
            Access::Hit(_) => {}
        }
        self.accessed(access);
        Ok(())
    }

    /// A line gets another name and is written: nothing is copied.
    fn remap(&mut self, number: usize, old: u64, new: u64) -> Result<(), Wait> {
        let core = &mut self.cores[number].core;
        core.store_room(&self.config.shape).map_err(Wait::Line)?;
        let (index, now) = (core.index, core.now);
        if self.asked.find(old).is_none() {
            let access = self.caches.access(number, old, true);
            if access != Access::Miss {
                self.caches.evict(old);
                self.caches.evict(new);
                if let Some(evicted) = self.caches.fill(number, new, true) {
                    self.memory.write(evicted, now);
                }
                return Ok(());
            }
        }
        let request = self.request(number, old, now)?;
        self.remaps.add(old, new);
        self.store_waits(number, index, request);
        Ok(())
    }

    /// The store of instruction `index` waits for its line.
    pub(super) fn store_waits(&mut self, number: usize, index: u64, request: u32) {
        let pending = Pending {
            index,
            request,
            done: 0,
            source: Source::Dram,
        };
        let place = self.cores[number].core.stores.push(pending);
        self.join(request, number, true, place);
    }

    /// Asks memory for a line of a core, unless it was asked already.
    pub(super) fn request(&mut self, number: usize, line: u64, at: u64) -> Result<u32, Wait> {
        let this = &mut self.cores[number];
        this.core.miss_room(&self.config.shape).map_err(Wait::Room)?;
        let lookup = self.caches.last_cycles();
        let (request, new) = self.asked.ask(self.remaps.fetched(line));
        if new {
            self.counts.last_misses += 1;
            self.memory.read(request, line, at + self.cycles(lookup));
        }
        Ok(request)
    }

    fn join(&mut self, request: u32, core: usize, write: bool, number: u64) {
        let core = core as u32;
        self.asked.wait(request, Waiter { core, write, number });
    }

    /// `clwb`, `clflushopt`, or a store past the caches.
    fn write_back(&mut self, number: usize, op: &Op) -> Result<(), Wait> {
        let line = op.at / LINE_BYTES;
        self.line_is_here(line)?;
        let this = &mut self.cores[number];
        let (misses, taken) = (self.config.shape.misses, this.core.open_misses());
        match this.flushes.room(this.core.now, misses, taken) {
            When::At(at) => this.core.stall(at, Stall::Fence),
            When::Unknown if this.flushes.all_done() == When::Unknown => return Err(Wait::WriteBack),
            When::Unknown => {
                let room = this.core.miss_room(&self.config.shape);
                room.map_err(Wait::Room)?;
            }
        }
        let now = self.cores[number].core.now;
        match self.begin(number, line, op.kind, now) {
            When::At(at) => self.cores[number].flushes.ends(at),
            When::Unknown => self.cores[number].flushes.opens(),
        }
        Ok(())
    }

    /// `clflush`.
    fn flush(&mut self, number: usize, op: &Op) -> Result<(), Wait> {
        let line = op.at / LINE_BYTES;
        self.line_is_here(line)?;
        let this = &mut self.cores[number];
        if !this.flushes.has_room_in_order(self.config.shape.store_buffer) {
            return Err(Wait::WriteBack);
        }
        this.flushes.queue(line, this.core.now);
        self.go_on_in_order(number);
        Ok(())
    }

    /// The next `clflush`s of a core begin, as far as it is known when.
    fn go_on_in_order(&mut self, number: usize) {
        while let Some((line, at)) = self.cores[number].flushes.next_in_order() {
            let ends = self.begin(number, line, Kind::Flush, at);
            let flushes = &mut self.cores[number].flushes;
            match ends {
                When::At(at) => flushes.in_order_ends(at),
                When::Unknown => flushes.in_order_opens(),
            }
        }
    }

    /// A write-back begins. Says when it ends, if the memory has no part in it.
    fn begin(&mut self, number: usize, line: u64, kind: Kind, at: u64) -> When {
        let after = at + self.cycles(self.caches.last_cycles());
        let is_dirty = match kind {
            Kind::Persist => self.caches.clean(line),
            _ => self.caches.evict(line),
        };
        match kind {
            Kind::Stream => self.counts.streams += 1,
            _ => {
                self.counts.write_backs += 1;
                self.counts.dirty_write_backs += u64::from(is_dirty);
            }
        }
        if !is_dirty && kind != Kind::Stream {
            return When::At(after);
        }
        let write = self.memory.write(line, after);
        let in_order = kind == Kind::Flush;
        self.owners.insert(
            write,
            Owner {
                core: number,
                in_order,
            },
        );
        When::Unknown
    }

    /// A line that is on its way to a cache is written back when it has come.
    fn line_is_here(&self, line: u64) -> Result<(), Wait> {
        match self.asked.find(self.remaps.fetched(line)) {
            Some(request) => Err(Wait::Line(request)),
            None => Ok(()),
        }
    }

    /// Stores and write-backs of the core are done before it goes on.
    fn fence(&mut self, number: usize, cost_fs: u64) -> Result<(), Wait> {
        let this = &mut self.cores[number];
        let stores = this.core.leave_stores(1, Stall::Fence);
        stores.map_err(Wait::Line)?;
        match this.flushes.all_done() {
            When::Unknown => Err(Wait::WriteBack),
            When::At(at) => {
                let until = at.max(this.core.now) + cost_fs;
                this.core.stall(until, Stall::Fence);
                self.counts.fences += 1;
                Ok(())
            }
        }
    }
}
