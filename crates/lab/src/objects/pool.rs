//! Threads that share objects, more than NVM may have room for (4.1.3).
//!
//! * Each call is of an object that is drawn from the pool; objects are of one size, and each has a log of its own.
//! * A function, a group of them and a checkpoint take the time that `passes.rs` found for the same number of threads: what
//!   the objects hold is not simulated. Logs, locks and flushes are.
//! * One manager swaps, under a lock: an object goes out as it lies in NVM, and one comes in, by the SSD's bandwidth.
//! * At the beginning logs are filled to all degrees, as after a long run, so that groups end all the time.

use super::config::{Call, Config};
use super::places::{ENTRY, State};
use super::table::ObjectTable;
use crate::op::{Kind, LINE_BYTES, PAGE_BYTES};
use crate::space::{Plain, Port, Space};
use crate::workload::{Progress, Workload};
use std::collections::VecDeque;

/// The pool and its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Large {
    /// Objects.
    pub objects: u64,
    /// Bytes of an object.
    pub bytes: u64,
    /// Bytes of NVM.
    pub nvm_bytes: u64,
    /// Calls of an object before the next one is drawn.
    pub calls: u64,
}

impl Large {
    /// Bytes that an object has in NVM: two copies and its log.
    #[must_use]
    pub fn kept_bytes(&self, log_entries: u64) -> u64 {
        2 * self.bytes + 2 * log_entries * ENTRY
    }
}

/// How long a thread is at an object, in femtoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// A function of an object that is another one each time.
    pub other: u64,
    /// One of a group.
    pub same: u64,
    /// A checkpoint.
    pub copy: u64,
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Draw,
    /// The object is in NVM from here on.
    Use(usize),
    /// A copy goes to a file or comes from one.
    Transfer,
    SwappedIn,
    Append(usize),
    Written(usize),
    GroupIfFull(usize),
    Flush(usize, u64),
    Wait(u64),
    Put(u64),
    Lock(u64),
    Unlock(u64),
    Over(usize),
    Ended,
}

/// An object's log.
#[derive(Clone, Copy, Debug, Default)]
struct Logged {
    entries: u64,
    group: u64,
}

/// The workload.
pub struct Pool {
    name: String,
    is_persistent: bool,
    threads: usize,
    large: Large,
    /// Bytes of an object in NVM.
    kept_bytes: u64,
    times: Times,
    group: u64,
    /// Entries of a log as it lies in memory: two groups.
    log_entries: u64,
    call: Call,
    table: ObjectTable,
    logs: Vec<Logged>,
    random: Vec<fastrand::Rng>,
    /// Of each thread, its object and the calls of it to come.
    drawn: Vec<(usize, u64)>,
    acts: Vec<VecDeque<Act>>,
    swaps: u64,
    run: u64,
}

impl Pool {
    /// Threads that share a pool; without persistence (native), or with objects kept by simpo.
    #[must_use]
    pub fn new(is_persistent: bool, threads: usize, large: Large, times: Times, config: &Config) -> Pool {
        let (objects, group) = (large.objects as usize, config.sizes.group);
        let log_entries = (2 * group).next_power_of_two();
        let kept_bytes = large.kept_bytes(config.sizes.log_entries);
        let room = large.nvm_bytes / kept_bytes;
        let filled = |number: usize| Logged {
            entries: number as u64 * group / large.objects,
            group: 0,
        };
        Pool {
            name: format!("a pool of {objects} objects with {threads} threads"),
            is_persistent,
            threads,
            large,
            kept_bytes,
            times,
            group,
            log_entries,
            call: config.call,
            table: ObjectTable::new(objects, room as usize),
            logs: (0..objects).map(filled).collect(),
            random: (0..threads)
                .map(|thread| fastrand::Rng::with_seed(thread as u64))
                .collect(),
            drawn: vec![(0, 0); threads],
            acts: vec![VecDeque::new(); threads],
            swaps: 0,
            run: 0,
        }
    }

    /// Objects that came in from a file.
    #[must_use]
    pub fn swaps(&self) -> u64 {
        self.swaps
    }

    /// Functions that were run.
    #[must_use]
    pub fn functions(&self) -> u64 {
        self.run
    }

    fn manager(&self) -> u64 {
        0
    }

    /// A line of DRAM of each object: its lock, its log's tail.
    fn lock(&self, object: usize) -> u64 {
        (1 + 2 * object as u64) * LINE_BYTES
    }

    fn tail(&self, object: usize) -> u64 {
        self.lock(object) + LINE_BYTES
    }

    /// NVM: a line of the table for each object, then its words, then its log.
    fn nvm(&self) -> u64 {
        ((1 + 2 * self.large.objects) * LINE_BYTES).next_multiple_of(PAGE_BYTES)
    }

    fn words(&self, object: usize) -> u64 {
        self.nvm() + object as u64 * 2 * LINE_BYTES
    }

    fn entry(&self, object: usize, number: u64) -> u64 {
        let logs = self.nvm() + self.large.objects * 2 * LINE_BYTES;
        // Its context lies behind it.
        logs + (object as u64 * self.log_entries + number % self.log_entries) * 2 * ENTRY
    }

    fn next(&mut self, thread: usize, acts: &[Act]) {
        for act in acts.iter().rev() {
            self.acts[thread].push_front(*act);
        }
    }

    fn draw(&mut self, thread: usize, port: &mut Port<'_>) {
        let (object, left) = &mut self.drawn[thread];
        if *left == 0 {
            *object = self.random[thread].usize(..self.large.objects as usize);
            *left = self.large.calls;
        }
        *left -= 1;
        let object = *object;
        port.work(self.call.caller);
        let lock = self.lock(object);
        if !self.is_persistent {
            self.run += 1;
            let acts = [
                Act::Lock(lock),
                Act::Wait(self.times.other),
                Act::Unlock(lock),
                Act::Ended,
            ];
            return self.next(thread, &acts);
        }
        port.work(self.call.wrapper);
        self.next(thread, &[Act::Use(object)]);
        self.acts[thread].extend([Act::Append(object), Act::Over(object), Act::Ended]);
    }

    /// The object's entry in the table is looked at; where it lies in a file it is brought in under the manager's lock.
    fn use_object(&mut self, thread: usize, object: usize, port: &mut Port<'_>) -> Progress {
        let is_locked = matches!(self.acts[thread].front(), Some(Act::SwappedIn));
        let _: u64 = port.load(self.words(object));
        if !self.table.is_in_nvm(object) && !is_locked {
            let acts = [
                Act::Lock(self.manager()),
                Act::Use(object),
                Act::SwappedIn,
                Act::Unlock(self.manager()),
            ];
            self.next(thread, &acts);
            return Progress::More;
        }
        let Some(swap) = self.table.begin(object) else {
            self.next(thread, &[Act::Use(object)]);
            return Progress::Waiting;
        };
        self.swaps += u64::from(swap.is_in);
        for gone in &swap.out {
            self.next(thread, &[Act::Transfer, Act::Put(self.words(*gone))]);
        }
        if swap.is_in {
            let transfers = 2 * swap.out.len();
            let come = [Act::Transfer, Act::Put(self.words(object))];
            for (place, act) in come.into_iter().enumerate() {
                self.acts[thread].insert(transfers + place, act);
            }
        }
        Progress::More
    }

    fn append(&mut self, thread: usize, object: usize, port: &mut Port<'_>) {
        // A group is never more than the log holds: callers wait for the one that ends it.
        let log = self.logs[object];
        if log.entries - log.group >= self.group {
            let lock = self.lock(object);
            let acts = [
                Act::Lock(lock),
                Act::GroupIfFull(object),
                Act::Unlock(lock),
                Act::Append(object),
            ];
            return self.next(thread, &acts);
        }
        port.fetch_add(self.tail(object), 1);
        self.logs[object].entries += 1;
        self.next(thread, &[Act::Written(object)]);
    }

    fn written(&self, object: usize, port: &mut Port<'_>) {
        let mut entry = [0; 2 * ENTRY as usize];
        (State::New as u64).put(&mut entry[..8]);
        port.store_bytes(self.entry(object, self.logs[object].entries), &entry);
    }

    /// Under the object's lock: its group is flushed, run and checkpointed.
    fn group_if_full(&mut self, thread: usize, object: usize) {
        let log = self.logs[object];
        let functions = log.entries - log.group;
        if functions < self.group {
            return;
        }
        self.logs[object].group = log.entries;
        self.run += functions;
        let words = self.words(object) + LINE_BYTES;
        let mut acts = vec![
            Act::Flush(object, log.group),
            // The commit mark.
            Act::Put(self.entry(object, log.entries)),
            Act::Wait(functions * self.times.same),
            Act::Wait(self.times.copy),
        ];
        // The masked index, the last entry's state, the cursor, the index.
        acts.extend([words, self.entry(object, log.entries), words, words].map(Act::Put));
        self.next(thread, &acts);
    }

    fn flush(&mut self, thread: usize, object: usize, from: u64, port: &mut Port<'_>) {
        let last = self.logs[object].group;
        let until = last.min(from + LINE_BYTES);
        for number in from + 1..=until {
            port.write_back(Kind::FlushOpt, self.entry(object, number), LINE_BYTES);
        }
        match until < last {
            true => self.next(thread, &[Act::Flush(object, until)]),
            false => port.fence(),
        }
    }

    fn act(&mut self, thread: usize, act: Act, port: &mut Port<'_>) -> Progress {
        match act {
            Act::Draw => self.draw(thread, port),
            Act::Use(object) => return self.use_object(thread, object, port),
            Act::Transfer => port.disk(self.kept_bytes),
            Act::SwappedIn => {}
            Act::Append(object) => self.append(thread, object, port),
            Act::Written(object) => self.written(object, port),
            Act::GroupIfFull(object) => self.group_if_full(thread, object),
            Act::Flush(object, from) => self.flush(thread, object, from, port),
            Act::Wait(fs) => port.wait(fs),
            Act::Put(at) => {
                port.store(at, 1_u64);
                port.write_back(Kind::FlushOpt, at, 8);
                port.fence();
            }
            Act::Lock(at) => port.lock(at),
            Act::Unlock(at) => port.unlock(at),
            Act::Over(object) => self.table.end(object),
            Act::Ended => port.commit(),
        }
        Progress::More
    }
}

impl Workload for Pool {
    fn name(&self) -> &str {
        &self.name
    }

    fn footprint_bytes(&self) -> u64 {
        self.entry(self.large.objects as usize, 0)
    }

    fn persistent_from(&self) -> u64 {
        self.nvm()
    }

    fn fill(&self, _: &mut Space) {}

    fn run(&mut self, core: usize, port: &mut Port<'_>) -> Progress {
        if core >= self.threads {
            return Progress::Done;
        }
        let act = self.acts[core].pop_front().unwrap_or(Act::Draw);
        self.act(core, act, port)
    }

    fn check(&self, _: &Space) -> Result<(), String> {
        let waiting: u64 = self.logs.iter().map(|log| log.entries - log.group).sum();
        let most = self.large.objects * self.group;
        match waiting <= most && self.logs.iter().all(|log| log.entries - log.group <= self.group) {
            true => Ok(()),
            false => Err(format!("{waiting} functions wait, {most} at most may")),
        }
    }
}
