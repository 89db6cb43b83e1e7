//! The mechanisms as programs: threads that call again and again, and the servers.
//!
//! * What a core still has to do is a list of acts. An act is a batch: what it does to memory, and what it counts as done
//!   is so when the act after it begins.
//! * A function's argument follows from its number, so that what a prefix of the log makes of the array is the prefix's
//!   alone.
//! * Group ends of callers that run functions themselves hold every lock; those of combined calls one lock.

use super::config::{Call, Config};
use super::places::{Function, Places, State, add};
use super::variant::{Execution, Form, Log, Variant};
use crate::op::LINE_BYTES;
use crate::space::{Port, Space};
use crate::workload::{Progress, Workload};
use std::collections::{BTreeSet, VecDeque};

/// What threads call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Calls {
    /// allInc, under one lock where it runs at once.
    AllInc,
    /// rowInc: half of the threads for one row, half for another, each under its row's lock.
    RowInc,
}

/// One thing that a core does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Act {
    Call,
    Lock(usize),
    Unlock(usize),
    /// A number for a function's entry, which is written next.
    Append(Function),
    /// The end of a group gets its number.
    AppendEnd,
    Write(u64),
    Published(u64),
    /// What the group's flush covers has been written by its callers.
    AwaitPublished(u64),
    /// Entries from one to another.
    Flush(u64, u64),
    Fence,
    Acknowledged(u64),
    /// The caller runs the function itself.
    Run(u64),
    RunUnlogged(Function),
    Ended,
    /// The end of a group, if it is full.
    GroupIfFull,
    GroupOver(u64),
    /// The pending functions are handed to the servers.
    HandOver(u64),
    Serve(usize),
    Served(usize),
    AwaitServers,
    Done(u64),
    /// The array goes to a copy, as the state after an entry.
    CopyOut(u64, u64),
    CopyAside,
    /// The array goes to the page cache, where nothing is durable.
    ToCache,
    ToFile(u64),
    /// A word is written, flushed and fenced.
    Put(u64, u64),
    SetState(u64, State),
    Taken(u64, u64),
}

/// A function that was called.
#[derive(Clone, Copy, Debug)]
struct Called {
    function: Function,
    has_run: bool,
}

/// The workload.
pub struct Program {
    name: String,
    pub(super) variant: Variant,
    calls: Calls,
    threads: usize,
    call: Call,
    ssd_flushes_each: bool,
    pub(super) places: Places,
    acts: Vec<VecDeque<Act>>,
    /// Function n is the n-th here, from 1 on.
    called: Vec<Called>,
    /// Entries up to this one are written; and those beyond that are.
    published: u64,
    beyond: BTreeSet<u64>,
    /// The last entry of the last group.
    group: u64,
    is_group_ending: bool,
    /// The last function that was run with its group.
    done: u64,
    queues: [VecDeque<u64>; 2],
    is_serving: [bool; 2],
    /// Which copy is the resilient one.
    pub(super) resilient: u64,
    pub(super) checkpoints: u64,
    /// What a crash may not lose: everything up to this entry.
    acknowledged: u64,
    flushed: BTreeSet<u64>,
    failed: Option<String>,
}

impl Program {
    /// A mechanism, called by that many threads. The core after theirs is the second server.
    #[must_use]
    pub fn new(variant: Variant, calls: Calls, threads: usize, config: &Config) -> Program {
        Program {
            name: format!("{} with {threads} threads", variant.name),
            variant,
            calls,
            threads,
            call: config.call,
            ssd_flushes_each: config.ssd_flushes_each,
            places: Places::new(config.sizes),
            acts: vec![VecDeque::new(); threads],
            called: Vec::new(),
            published: 0,
            beyond: BTreeSet::new(),
            group: 0,
            is_group_ending: false,
            done: 0,
            queues: [VecDeque::new(), VecDeque::new()],
            is_serving: [false; 2],
            resilient: 0,
            checkpoints: 0,
            acknowledged: 0,
            flushed: BTreeSet::new(),
            failed: None,
        }
    }

    /// Checkpoints made.
    #[must_use]
    pub fn checkpoints(&self) -> u64 {
        self.checkpoints
    }

    /// Everything up to this function survives a crash.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Functions and ends of groups that have a number.
    #[must_use]
    pub fn numbered(&self) -> u64 {
        self.called.len() as u64
    }

    /// The array after the functions up to one.
    pub(super) fn after(&self, number: u64) -> Vec<u8> {
        self.sum(self.called[..number as usize].iter())
    }

    fn sum<'a>(&self, called: impl Iterator<Item = &'a Called>) -> Vec<u8> {
        let mut array = vec![0; self.places.array_bytes() as usize];
        for called in called {
            let (from, bytes) = self.places.part(called.function);
            add(
                &mut array[from as usize..(from + bytes) as usize],
                called.function,
            );
        }
        array
    }

    fn locks(&self) -> usize {
        match (self.variant.execution, self.calls) {
            // A checkpoint after each function is of the whole array.
            (Execution::Direct, Calls::RowInc) if !self.variant.each => 2,
            _ => 1,
        }
    }

    fn servers(&self) -> usize {
        match self.variant.execution {
            Execution::Direct => 0,
            Execution::Servers(servers) => servers,
        }
    }

    fn function(&self, core: usize) -> Function {
        // Odd, so that no sum of them is another sum's soon.
        let by = (self.called.len() as u32).wrapping_mul(0x9e37_79b1) | 1;
        match self.calls {
            Calls::AllInc => Function::All(by),
            Calls::RowInc => Function::Row(core % 2, by),
        }
    }

    fn new_number(&mut self, function: Function) -> u64 {
        self.called.push(Called {
            function,
            has_run: false,
        });
        self.called.len() as u64
    }

    fn of(&self, number: u64) -> Function {
        self.called[number as usize - 1].function
    }

    /// These acts come next, in this order.
    fn next(&mut self, core: usize, acts: &[Act]) {
        for act in acts.iter().rev() {
            self.acts[core].push_front(*act);
        }
    }

    /// Whether checkpoints go to the page cache, and to the file when the log is flushed.
    fn is_cached(&self) -> bool {
        self.variant.form == Some(Form::File) && !self.ssd_flushes_each
    }

    fn pending(&self) -> u64 {
        self.called.len() as u64 - self.done
    }

    fn call(&mut self, core: usize, port: &mut Port<'_>) {
        port.work(self.call.caller);
        if self.variant.log != Log::None {
            port.work(self.call.wrapper);
        }
        let lock = if self.locks() == 2 { core % 2 } else { 0 };
        match self.variant.execution {
            Execution::Direct if self.variant.log == Log::None => {
                let function = self.function(core);
                self.next(
                    core,
                    &[
                        Act::Lock(lock),
                        Act::RunUnlogged(function),
                        Act::Unlock(lock),
                        Act::Ended,
                    ],
                );
            }
            Execution::Direct => {
                self.next(core, &[Act::Lock(lock), Act::Append(self.function(core))]);
                self.acts[core].extend([Act::GroupIfFull, Act::Unlock(lock), Act::Ended]);
            }
            Execution::Servers(_) => {
                let _: u64 = port.load(self.places.done);
                match self.pending() > self.places.sizes.group {
                    true => self.next(core, &[Act::Lock(0), Act::GroupIfFull, Act::Unlock(0)]),
                    false => self.next(core, &[Act::Append(self.function(core))]),
                }
            }
        }
    }

    /// An entry gets its number.
    fn append(&mut self, core: usize, function: Function, port: &mut Port<'_>) -> u64 {
        port.fetch_add(self.places.tail, 1);
        let number = self.new_number(function);
        let held = number - self.group.min(number);
        if held >= self.places.sizes.log_entries {
            self.failed = Some(format!("entry {number} of core {core} finds the log full"));
        }
        number
    }

    fn append_call(&mut self, core: usize, function: Function, port: &mut Port<'_>) {
        let number = self.append(core, function, port);
        let mut acts = vec![Act::Write(number)];
        if self.variant.log == Log::Each {
            acts.extend([Act::Flush(number, number), Act::Fence]);
        }
        acts.push(Act::Published(number));
        if self.variant.execution == Execution::Direct {
            acts.push(Act::Run(number));
            if self.variant.each {
                match self.is_cached() {
                    true => acts.push(Act::ToCache),
                    false => acts.extend(
                        self.checkpoint(number)
                            .into_iter()
                            .chain([Act::Acknowledged(number)]),
                    ),
                }
            }
        }
        self.next(core, &acts);
    }

    fn write(&mut self, core: usize, number: u64, port: &mut Port<'_>) {
        let (entry, context) = self.places.encode(number, self.of(number), core);
        port.store_bytes(self.places.context(number), &context);
        port.store_bytes(self.places.entry(number), &entry);
    }

    fn published(&mut self, number: u64) {
        self.beyond.insert(number);
        while self.beyond.remove(&(self.published + 1)) {
            self.published += 1;
        }
        if self.variant.log == Log::Each {
            self.flushed.insert(number);
            while self.flushed.remove(&(self.acknowledged + 1)) {
                self.acknowledged += 1;
            }
        }
    }

    fn group_if_full(&mut self, core: usize) {
        let is_full = match self.variant.execution {
            Execution::Direct => self.called.len() as u64 - self.group >= self.places.sizes.group,
            Execution::Servers(_) => self.pending() > self.places.sizes.group,
        };
        if !is_full || self.is_group_ending {
            return;
        }
        self.is_group_ending = true;
        match self.locks() {
            2 => self.next(
                core,
                &[Act::Lock(1 - core % 2), Act::AppendEnd, Act::Unlock(1 - core % 2)],
            ),
            _ => self.next(core, &[Act::AppendEnd]),
        }
    }

    /// The group's end has its number: what follows from there.
    fn append_end(&mut self, core: usize, port: &mut Port<'_>) {
        let end = self.append(core, Function::Sync, port);
        let first = self.group + 1;
        let mut acts = vec![Act::AwaitPublished(end - 1)];
        match self.variant.log {
            Log::None => {}
            Log::Group => acts.extend([Act::Write(end), Act::Flush(first, end), Act::Fence]),
            Log::Marked => acts.extend([
                Act::Flush(first, end - 1),
                Act::Fence,
                Act::Write(end),
                Act::Flush(end, end),
                Act::Fence,
            ]),
            Log::Each => acts.extend([Act::Write(end), Act::Flush(end, end), Act::Fence]),
        }
        acts.extend([Act::Published(end), Act::Acknowledged(end)]);
        if self.servers() > 0 {
            acts.extend([Act::HandOver(end), Act::Serve(0), Act::AwaitServers]);
        }
        acts.push(Act::Done(end));
        if !self.variant.each || self.is_cached() {
            acts.extend(self.checkpoint(end));
        }
        acts.push(Act::GroupOver(end));
        self.next(core, &acts);
    }

    fn flush(&mut self, core: usize, first: u64, last: u64, port: &mut Port<'_>) {
        if let Some(rest) = self.places.flush(first, last, port) {
            self.next(core, &[Act::Flush(rest, last)]);
        }
    }

    /// Runs a function on the copy in DRAM.
    fn body(&mut self, function: Function, port: &mut Port<'_>) {
        let (from, bytes) = self.places.part(function);
        let (mut at, end) = (self.places.array + from, self.places.array + from + bytes);
        while at < end {
            let some = (LINE_BYTES - at % LINE_BYTES).min(end - at);
            let mut part = vec![0; some as usize];
            port.work(self.call.element * some as u32 / 4);
            port.load_bytes(at, &mut part);
            add(&mut part, function);
            port.store_bytes(at, &part);
            at += some;
        }
    }

    fn run(&mut self, number: u64, port: &mut Port<'_>) {
        let function = self.of(number);
        self.called[number as usize - 1].has_run = true;
        self.body(function, port);
    }

    fn hand_over(&mut self, end: u64, port: &mut Port<'_>) {
        let servers = self.servers();
        let pending = self.done + 1..=end;
        // A function for all of the array stands between those before and after it: the main server runs such groups.
        let is_split = servers > 1
            && pending
                .clone()
                .all(|number| !matches!(self.of(number), Function::All(_)));
        for number in pending {
            match self.of(number) {
                Function::Sync => {}
                Function::Row(1, _) if is_split => self.queues[1].push_back(number),
                _ => self.queues[0].push_back(number),
            }
        }
        self.is_serving[1] = !self.queues[1].is_empty();
        if self.is_serving[1] {
            port.store(self.places.server(1), end);
        }
    }

    fn serve(&mut self, core: usize, lane: usize, port: &mut Port<'_>) {
        let Some(number) = self.queues[lane].pop_front() else {
            port.store(self.places.server(lane), 0_u64);
            self.next(core, &[Act::Served(lane)]);
            return;
        };
        let _: u64 = port.load(self.places.entry(number));
        let _: u64 = port.follow(self.places.context(number));
        port.work(self.call.wrapper);
        self.run(number, port);
        port.commit();
        self.next(core, &[Act::Serve(lane)]);
    }

    fn act(&mut self, core: usize, act: Act, port: &mut Port<'_>) -> Progress {
        match act {
            // The end of a group needs both locks, and a thread that goes on calling would take its own again and again.
            Act::Call if self.is_group_ending && self.locks() == 2 => return self.again(core, act),
            Act::Call => self.call(core, port),
            Act::Lock(lock) => port.lock(self.places.lock(lock)),
            Act::Unlock(lock) => port.unlock(self.places.lock(lock)),
            Act::Append(function) => self.append_call(core, function, port),
            Act::AppendEnd => self.append_end(core, port),
            Act::Write(number) => self.write(core, number, port),
            Act::Published(number) => self.published(number),
            Act::Flush(first, last) => self.flush(core, first, last, port),
            Act::Fence => port.fence(),
            Act::Acknowledged(number) => self.acknowledged = self.acknowledged.max(number),
            Act::Run(number) => self.run(number, port),
            Act::RunUnlogged(function) => {
                let number = self.new_number(function);
                self.run(number, port);
            }
            Act::Ended => port.commit(),
            Act::GroupIfFull => self.group_if_full(core),
            Act::GroupOver(end) => {
                self.group = end;
                self.is_group_ending = false;
            }
            Act::HandOver(end) => self.hand_over(end, port),
            Act::Serve(lane) => self.serve(core, lane, port),
            Act::Served(lane) => self.is_serving[lane] = false,
            Act::Done(end) => {
                self.done = end;
                port.store(self.places.done, end);
                self.places.set_state(end, State::Done, false, port);
            }
            Act::CopyOut(copy, number) => self.places.copy_out(copy, number, port),
            Act::CopyAside => self.copy_aside(port),
            Act::ToCache => self.to_cache(port),
            Act::ToFile(number) => self.to_file(number, port),
            Act::Put(at, value) => Places::put(at, value, port),
            Act::SetState(number, state) => self.places.set_state(number, state, true, port),
            Act::Taken(copy, _) => {
                self.resilient = copy;
                self.checkpoints += 1;
            }
            Act::AwaitPublished(number) if self.published < number => return self.again(core, act),
            Act::AwaitServers if self.is_serving[1] => return self.again(core, act),
            Act::AwaitPublished(_) => {}
            Act::AwaitServers => {
                let _: u64 = port.load(self.places.server(1));
            }
        }
        Progress::More
    }

    fn again(&mut self, core: usize, act: Act) -> Progress {
        self.next(core, &[act]);
        Progress::Waiting
    }

    /// The second server: its queue, when it has one.
    fn second_server(&mut self, port: &mut Port<'_>) -> Progress {
        let core = self.threads;
        if self.acts.len() == core {
            self.acts.push(VecDeque::new());
        }
        if self.acts[core].is_empty() {
            if !self.is_serving[1] {
                return Progress::Waiting;
            }
            let _: u64 = port.load(self.places.server(1));
            self.next(core, &[Act::Serve(1)]);
            return Progress::More;
        }
        let act = self.acts[core].pop_front().expect("one at least");
        self.act(core, act, port)
    }
}

impl Workload for Program {
    fn name(&self) -> &str {
        &self.name
    }

    fn footprint_bytes(&self) -> u64 {
        self.places.bytes
    }

    fn persistent_from(&self) -> u64 {
        self.places.nvm
    }

    fn fill(&self, _: &mut Space) {}

    fn run(&mut self, core: usize, port: &mut Port<'_>) -> Progress {
        if self.failed.is_some() || core > self.threads || core == self.threads && self.servers() < 2 {
            return Progress::Done;
        }
        if core == self.threads {
            return self.second_server(port);
        }
        let act = self.acts[core].pop_front().unwrap_or(Act::Call);
        self.act(core, act, port)
    }

    fn check(&self, space: &Space) -> Result<(), String> {
        if let Some(why) = &self.failed {
            return Err(why.clone());
        }
        let expected = self.sum(self.called.iter().filter(|called| called.has_run));
        let found = space.at(self.places.array, expected.len());
        match found == expected {
            true => Ok(()),
            false => Err("the array is not what its functions make".into()),
        }
    }
}
