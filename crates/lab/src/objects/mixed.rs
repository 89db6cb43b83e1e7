//! Threads that call deferrable and instant functions, mixed, of one object or several: native, hybrid and simpo.
//!
//! * Functions take effect in the order of their numbers in their object's log, as far as they touch the same bytes. So a
//!   function that needs the object for itself gets its number with the lock where it is run by its caller.
//! * An instant function first makes all entries before its own durable, then its own, the commit mark (3.1.1); then it
//!   runs what was deferred, then itself, and leaves its result in its context.
//! * Functions of an object that read alone, or touch their thread's part alone, take no lock. All of its functions are such,
//!   or none.
//! * A checkpoint begins when every instant function that has a number is done, and none gets one before its end.
//! * One server runs what was deferred, the thread that ends the group: the object has one lock.

use super::config::{Call as Costs, Config, Sizes};
use super::crash::Recoverable;
use super::library::{Call, Class, Objects, Step};
use super::places::{COPY_HEADER, MASK, Places, State};
use super::recovery::Recovered;
use super::variant::{Execution, Log, Variant};
use crate::op::PAGE_BYTES;
use crate::space::{Plain, Port, Space};
use crate::workload::{Progress, Workload};
use std::collections::{BTreeSet, VecDeque};

/// What entries say for the end of a group, which is of no function.
const END: u64 = 0xffff;
/// What entries say that are commit marks, beside their function.
const MARK: u64 = 1 << 16;

/// One thing that a thread does. Those of an object say which one.
#[derive(Clone, Copy, Debug)]
enum Act {
    Step,
    Arrive,
    AwaitRound(u64),
    Lock(usize),
    Unlock(usize),
    /// The function is run without a log.
    RunUnlogged(Call),
    /// The function gets its number, and what follows from it.
    Log(Call),
    /// A deferrable function is logged, after a group if one is due.
    Defer(Call),
    Write(usize, u64),
    /// The entry is written: what was written in an act is so when the next one begins.
    Published(usize, u64),
    AwaitPublished(usize, u64),
    /// Entries not yet durable, up to one.
    FlushUpTo(usize, u64),
    Flush(usize, u64, u64),
    Fence,
    Flushed(usize, u64),
    /// A commit mark is durable.
    Acknowledged(usize, u64),
    /// What was deferred before an entry.
    RunDeferred(usize, u64),
    /// A function that ran without the lock is done.
    Left(usize),
    Run(usize, u64),
    Result(usize, u64),
    /// Under the lock: a group ends and a checkpoint is made if it is full.
    GroupIfFull(usize),
    LockIfFull(usize),
    AwaitIdle(usize),
    AppendEnd(usize),
    CopyOut(usize, u64, u64),
    Put(u64, u64),
    SetState(usize, u64, State),
    Taken(usize, u64, u64),
    Ended,
}

#[derive(Clone, Copy, Debug)]
struct Called {
    /// None of the end of a group.
    call: Option<Call>,
    thread: usize,
    result: u64,
    has_run: bool,
}

/// An object, its log and its copies.
struct Kept {
    places: Places,
    /// Entry n is the n-th here, from 1 on.
    called: Vec<Called>,
    /// Entries up to this one are written; and those beyond that are.
    published: u64,
    beyond: BTreeSet<u64>,
    /// Entries up to this one are durable.
    flushed: u64,
    /// What a crash may not lose: everything up to this entry.
    acknowledged: u64,
    deferred: VecDeque<u64>,
    /// The last entry of the last group.
    group: u64,
    /// Whether a group is ending.
    is_cut: bool,
    /// Functions that run without the lock.
    running: u64,
    /// Which copy is the resilient one.
    resilient: u64,
    checkpoints: u64,
}

impl Kept {
    fn new(places: Places) -> Kept {
        Kept {
            places,
            called: Vec::new(),
            published: 0,
            beyond: BTreeSet::new(),
            flushed: 0,
            acknowledged: 0,
            deferred: VecDeque::new(),
            group: 0,
            is_cut: false,
            running: 0,
            resilient: 0,
            checkpoints: 0,
        }
    }

    fn is_full(&self) -> bool {
        !self.is_cut && self.called.len() as u64 - self.group >= self.places.sizes.group
    }

    fn of(&self, number: u64) -> &Called {
        &self.called[number as usize - 1]
    }

    fn published(&mut self, number: u64) {
        self.beyond.insert(number);
        while self.beyond.remove(&(self.published + 1)) {
            self.published += 1;
        }
    }
}

/// The workload.
pub struct Mixed {
    name: String,
    variant: Variant,
    threads: usize,
    costs: Costs,
    objects: Box<dyn Objects>,
    kept: Vec<Kept>,
    barrier: u64,
    arrived: usize,
    round: u64,
    persistent_from: u64,
    acts: Vec<VecDeque<Act>>,
    failed: Option<String>,
}

impl Mixed {
    /// The threads of these objects, under a mechanism: native, hybrid or simpo.
    ///
    /// # Panics
    /// Under another.
    #[must_use]
    pub fn new(variant: Variant, objects: Box<dyn Objects>, threads: usize, config: &Config) -> Mixed {
        assert!(
            matches!(variant.name, "native" | "hybrid" | "simpo"),
            "{} has no functions of both classes",
            variant.name
        );
        let sizes = Sizes {
            rows: 1,
            columns: objects.bytes() / 4,
            others: [0, 0],
            ..config.sizes
        };
        let each = Places::dram_bytes(sizes);
        let count = objects.count() as u64;
        // The barrier is in the first page.
        let nvm = PAGE_BYTES + count * each;
        let nvm_each = Places::at(sizes, 0, nvm).bytes - nvm;
        let places = |number| Places::at(sizes, PAGE_BYTES + number * each, nvm + number * nvm_each);
        Mixed {
            name: format!("{} under {} with {threads} threads", objects.name(), variant.name),
            variant,
            threads,
            costs: config.call,
            objects,
            kept: (0..count).map(|number| Kept::new(places(number))).collect(),
            barrier: 0,
            arrived: 0,
            round: 0,
            persistent_from: nvm,
            acts: vec![VecDeque::new(); threads],
            failed: None,
        }
    }

    /// Checkpoints made, of all objects.
    #[must_use]
    pub fn checkpoints(&self) -> u64 {
        self.kept.iter().map(|kept| kept.checkpoints).sum()
    }

    /// What each function of an object returned, by number, as far as it has run; none of the ends of groups.
    #[must_use]
    pub fn results(&self, object: usize) -> Vec<(Call, Option<u64>)> {
        let called = self.kept[object].called.iter();
        let of = |called: &Called| Some((called.call?, called.has_run.then_some(called.result)));
        called.filter_map(of).collect()
    }

    fn is_deferring(&self) -> bool {
        matches!(self.variant.execution, Execution::Servers(_))
    }

    /// These acts come next, in this order.
    fn next(&mut self, thread: usize, acts: &[Act]) {
        for act in acts.iter().rev() {
            self.acts[thread].push_front(*act);
        }
    }

    fn again(&mut self, thread: usize, act: Act) -> Progress {
        self.next(thread, &[act]);
        Progress::Waiting
    }

    fn step(&mut self, thread: usize, port: &mut Port<'_>) {
        let call = match self.objects.next(thread) {
            Step::Barrier => return self.next(thread, &[Act::Arrive]),
            Step::Call(call) => call,
        };
        port.work(call.before);
        port.work(self.costs.caller);
        let of = call.object;
        let is_logged = self.variant.log != Log::None;
        if is_logged {
            port.work(self.costs.wrapper);
        }
        match (is_logged, self.is_deferring(), call.is_apart) {
            (false, _, true) => self.next(thread, &[Act::RunUnlogged(call), Act::Ended]),
            (false, _, false) => self.next(
                thread,
                &[Act::Lock(of), Act::RunUnlogged(call), Act::Unlock(of), Act::Ended],
            ),
            (true, true, _) if call.class == Class::Deferrable => self.next(thread, &[Act::Defer(call)]),
            (true, _, true) => self.next(thread, &[Act::Log(call)]),
            (true, _, false) => self.next(thread, &[Act::Lock(of), Act::Log(call)]),
        }
    }

    /// An entry gets its number.
    fn append(&mut self, thread: usize, object: usize, call: Option<Call>, port: &mut Port<'_>) -> u64 {
        let kept = &mut self.kept[object];
        port.fetch_add(kept.places.tail, 1);
        kept.called.push(Called {
            call,
            thread,
            result: 0,
            has_run: false,
        });
        let number = kept.called.len() as u64;
        if number - kept.group >= kept.places.sizes.log_entries {
            self.failed = Some(format!("entry {number} of thread {thread} finds the log full"));
        }
        number
    }

    fn defer(&mut self, thread: usize, call: Call, port: &mut Port<'_>) {
        let of = call.object;
        let _: u64 = port.load(self.kept[of].places.done);
        let kept = &self.kept[of];
        // While a group ends, callers wait for the lock as soon as the next one is full.
        if kept.called.len() as u64 - kept.group >= kept.places.sizes.group {
            let acts = [
                Act::Lock(of),
                Act::GroupIfFull(of),
                Act::Unlock(of),
                Act::Defer(call),
            ];
            return self.next(thread, &acts);
        }
        let number = self.append(thread, of, Some(call), port);
        self.kept[of].deferred.push_back(number);
        self.next(
            thread,
            &[Act::Write(of, number), Act::Published(of, number), Act::Ended],
        );
    }

    /// A function that its caller runs is logged.
    fn log(&mut self, thread: usize, call: Call, port: &mut Port<'_>) {
        let of = call.object;
        let number = self.append(thread, of, Some(call), port);
        let mut acts = vec![Act::Write(of, number), Act::Published(of, number)];
        if self.is_deferring() {
            acts.extend(Self::commit(of, number));
        }
        match call.is_apart {
            true => {
                self.kept[of].running += 1;
                acts.extend([
                    Act::Run(of, number),
                    Act::Result(of, number),
                    Act::Left(of),
                    Act::Ended,
                    Act::LockIfFull(of),
                ]);
            }
            false => acts.extend([
                Act::RunDeferred(of, number),
                Act::Run(of, number),
                Act::Result(of, number),
                Act::GroupIfFull(of),
                Act::Unlock(of),
                Act::Ended,
            ]),
        }
        self.next(thread, &acts);
    }

    /// A group and its commit mark become durable, one after the other.
    fn commit(of: usize, number: u64) -> [Act; 6] {
        [
            Act::AwaitPublished(of, number - 1),
            Act::FlushUpTo(of, number - 1),
            Act::Flush(of, number, number),
            Act::Fence,
            Act::Flushed(of, number),
            Act::Acknowledged(of, number),
        ]
    }

    /// The function of an entry, and whether it is a commit mark: the end of a group is, and where functions are deferred
    /// every instant one.
    fn word(&self, called: &Called) -> (u64, u64) {
        let Some(call) = called.call else {
            return (END | MARK, 0);
        };
        let is_mark = self.is_deferring() && call.class == Class::Instant;
        let function = u64::from(call.function);
        (if is_mark { function | MARK } else { function }, call.argument)
    }

    fn write(&self, of: usize, number: u64, port: &mut Port<'_>) {
        let called = *self.kept[of].of(number);
        let (function, argument) = self.word(&called);
        let word = function | (called.thread as u64) << 32;
        let kept = &self.kept[of];
        let (entry, context) = kept.places.encode_words(number, word, argument);
        port.store_bytes(kept.places.context(number), &context);
        port.store_bytes(kept.places.entry(number), &entry);
    }

    /// Under the lock: the group's end gets its number.
    fn append_end(&mut self, thread: usize, of: usize, port: &mut Port<'_>) {
        let end = self.append(thread, of, None, port);
        let mut acts = vec![Act::Write(of, end), Act::Published(of, end)];
        match self.variant.log {
            Log::Marked => acts.extend(Self::commit(of, end)),
            _ => acts.extend([
                Act::AwaitPublished(of, end - 1),
                Act::FlushUpTo(of, end),
                Act::Acknowledged(of, end),
            ]),
        }
        acts.push(Act::RunDeferred(of, end));
        // A function without the lock that began before may still run.
        acts.push(Act::AwaitIdle(of));
        let Kept {
            places, resilient, ..
        } = &self.kept[of];
        let copy = 1 - resilient;
        acts.extend([
            Act::CopyOut(of, copy, end),
            Act::Put(places.index, copy | MASK),
            Act::SetState(of, end, State::Resilient),
            Act::Put(places.cursor, end),
            Act::Put(places.index, copy),
            Act::Taken(of, copy, end),
        ]);
        self.next(thread, &acts);
    }

    fn run_call(&mut self, of: usize, number: u64, port: &mut Port<'_>) {
        let kept = &mut self.kept[of];
        let called = &mut kept.called[number as usize - 1];
        if let Some(call) = &called.call {
            called.result = self.objects.run(call, kept.places.array, port);
        }
        called.has_run = true;
    }

    fn run_unlogged(&mut self, thread: usize, call: Call, port: &mut Port<'_>) {
        self.kept[call.object].called.push(Called {
            call: Some(call),
            thread,
            result: 0,
            has_run: false,
        });
        let number = self.kept[call.object].called.len() as u64;
        self.run_call(call.object, number, port);
    }

    fn run_deferred(&mut self, thread: usize, of: usize, before: u64, port: &mut Port<'_>) {
        let kept = &mut self.kept[of];
        let places = kept.places;
        match kept.deferred.front().copied() {
            Some(number) if number < before => {
                kept.deferred.pop_front();
                let _: u64 = port.load(places.entry(number));
                let _: u64 = port.follow(places.context(number));
                port.work(self.costs.wrapper);
                self.run_call(of, number, port);
                self.next(thread, &[Act::RunDeferred(of, before)]);
            }
            _ if self.is_deferring() => port.store(places.done, before),
            _ => {}
        }
    }

    fn result(&mut self, of: usize, number: u64, port: &mut Port<'_>) {
        let Kept { places, called, .. } = &self.kept[of];
        let called = &called[number as usize - 1];
        if called.call.is_some_and(|call| call.class == Class::Instant) {
            port.store(places.context(number) + 8, called.result);
        }
        places.set_state(number, State::Done, false, port);
    }

    fn flush_up_to(&mut self, thread: usize, of: usize, last: u64) {
        let first = self.kept[of].flushed + 1;
        if first <= last {
            let acts = [Act::Flush(of, first, last), Act::Fence, Act::Flushed(of, last)];
            self.next(thread, &acts);
        }
    }

    /// The acts that only say what comes next.
    fn decide(&mut self, thread: usize, act: Act) {
        match act {
            Act::LockIfFull(of) if self.kept[of].is_full() => {
                self.next(thread, &[Act::Lock(of), Act::GroupIfFull(of), Act::Unlock(of)]);
            }
            Act::GroupIfFull(of) if self.kept[of].is_full() => {
                self.kept[of].is_cut = true;
                self.next(thread, &[Act::AppendEnd(of)]);
            }
            _ => {}
        }
    }

    /// Whether the thread has to wait before the act.
    fn waits(&self, act: Act) -> bool {
        match act {
            Act::AwaitRound(round) => self.round == round,
            Act::AwaitPublished(of, number) => self.kept[of].published < number,
            // No function begins between the end of a group and that of its checkpoint.
            Act::Log(call) => call.is_apart && self.kept[call.object].is_cut,
            Act::AwaitIdle(of) => self.kept[of].running > 0,
            _ => false,
        }
    }

    fn arrive(&mut self, thread: usize, port: &mut Port<'_>) {
        port.fetch_add(self.barrier, 1);
        let round = self.round;
        self.arrived += 1;
        if self.arrived == self.threads {
            (self.arrived, self.round) = (0, round + 1);
        }
        self.next(thread, &[Act::AwaitRound(round)]);
    }

    fn act(&mut self, thread: usize, act: Act, port: &mut Port<'_>) -> Progress {
        if self.waits(act) {
            return self.again(thread, act);
        }
        match act {
            Act::Step => self.step(thread, port),
            Act::Arrive => self.arrive(thread, port),
            Act::AwaitRound(_) => {
                let _: u64 = port.load(self.barrier);
            }
            Act::Lock(of) => port.lock(self.kept[of].places.lock(0)),
            Act::Unlock(of) => port.unlock(self.kept[of].places.lock(0)),
            Act::RunUnlogged(call) => self.run_unlogged(thread, call, port),
            Act::Log(call) => self.log(thread, call, port),
            Act::Defer(call) => self.defer(thread, call, port),
            Act::Write(of, number) => self.write(of, number, port),
            Act::Published(of, number) => self.kept[of].published(number),
            Act::FlushUpTo(of, last) => self.flush_up_to(thread, of, last),
            Act::Flush(of, first, last) => {
                if let Some(rest) = self.kept[of].places.flush(first, last, port) {
                    self.next(thread, &[Act::Flush(of, rest, last)]);
                }
            }
            Act::Fence => port.fence(),
            Act::Flushed(of, number) => self.kept[of].flushed = self.kept[of].flushed.max(number),
            Act::Acknowledged(of, number) => {
                self.kept[of].acknowledged = self.kept[of].acknowledged.max(number);
            }
            Act::RunDeferred(of, before) => self.run_deferred(thread, of, before, port),
            Act::Left(of) => self.kept[of].running -= 1,
            Act::Run(of, number) => self.run_call(of, number, port),
            Act::Result(of, number) => self.result(of, number, port),
            Act::AppendEnd(of) => self.append_end(thread, of, port),
            Act::CopyOut(of, copy, number) => self.kept[of].places.copy_out(copy, number, port),
            Act::Put(at, value) => Places::put(at, value, port),
            Act::SetState(of, number, state) => self.kept[of].places.set_state(number, state, true, port),
            Act::Taken(of, copy, end) => {
                let kept = &mut self.kept[of];
                (kept.resilient, kept.group, kept.is_cut) = (copy, end, false);
                kept.checkpoints += 1;
            }
            Act::Ended => port.commit(),
            Act::AwaitPublished(..) | Act::AwaitIdle(_) => {}
            Act::LockIfFull(_) | Act::GroupIfFull(_) => self.decide(thread, act),
        }
        Progress::More
    }

    /// What functions make of an object's bytes, one after the other.
    fn made_of(&self, bytes: &[u8], calls: impl Iterator<Item = Call>) -> Vec<u8> {
        let mut space = Space::new(bytes.len() as u64);
        space.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        let mut batch = Vec::new();
        for call in calls {
            batch.clear();
            self.objects.run(&call, 0, &mut Port::new(&mut space, &mut batch));
        }
        space.at(0, bytes.len()).to_vec()
    }

    /// What an object begins with.
    fn first(&self, of: usize) -> Vec<u8> {
        let mut bytes = vec![0; self.kept[of].places.array_bytes() as usize];
        self.objects.fill(&mut bytes);
        bytes
    }

    /// What the functions that have run make of an object.
    fn expected(&self, of: usize) -> Vec<u8> {
        let run = self.kept[of].called.iter().filter(|called| called.has_run);
        self.made_of(&self.first(of), run.filter_map(|called| called.call))
    }
}

/// Where there is one object.
impl Recoverable for Mixed {
    fn file_from(&self) -> u64 {
        self.kept[0].places.file
    }

    fn recovered(&self, read: &dyn Fn(u64, usize) -> Vec<u8>) -> Result<Recovered, String> {
        let places = &self.kept[0].places;
        let word = |at: u64| u64::get(&read(at, 8));
        let entries = |from: u64| {
            let valid = move |number| Some((number, places.decode_words(number, read)?));
            (from + 1..=from + places.sizes.log_entries).map_while(valid)
        };
        let last = |from: u64, is_such: &dyn Fn(u64) -> bool| {
            let such = entries(from).filter(|(_, (word, _))| is_such(*word));
            such.last().map_or(from, |(number, _)| number)
        };
        let (index, cursor) = (word(places.index), word(places.cursor));
        let copy = index & !MASK;
        if copy > 1 {
            return Err(format!("the resilient index is {index}"));
        }
        // A masked copy is of the last group that ended: none ends before the mask is gone.
        let position = match index & MASK {
            0 => cursor,
            _ => last(cursor, &|word| word & 0xffff == END),
        };
        let until = last(position, &|word| word & MARK != 0);
        let calls = entries(position).take_while(|(number, _)| *number <= until);
        let calls: Vec<Call> = calls
            .filter(|(_, (word, _))| word & 0xffff != END)
            .map(|(_, (word, argument))| Call {
                object: 0,
                function: word as u16,
                argument,
                class: Class::Deferrable,
                is_apart: false,
                before: 0,
            })
            .collect();
        let array = match cursor == 0 && index == 0 {
            true => self.first(0),
            false => read(places.copy(copy) + COPY_HEADER, places.array_bytes() as usize),
        };
        Ok(Recovered {
            position: until,
            replayed: calls.len() as u64,
            array: self.made_of(&array, calls.into_iter()),
        })
    }

    fn acknowledged(&self) -> u64 {
        self.kept[0].acknowledged
    }

    fn numbered(&self) -> u64 {
        self.kept[0].called.len() as u64
    }

    fn after(&self, number: u64) -> Vec<u8> {
        let calls = self.kept[0].called[..number as usize].iter();
        self.made_of(&self.first(0), calls.filter_map(|called| called.call))
    }
}

impl Workload for Mixed {
    fn name(&self) -> &str {
        &self.name
    }

    fn footprint_bytes(&self) -> u64 {
        self.kept.last().map_or(0, |kept| kept.places.bytes)
    }

    fn persistent_from(&self) -> u64 {
        self.persistent_from
    }

    fn fill(&self, space: &mut Space) {
        for kept in &self.kept {
            let (from, bytes) = (kept.places.array as usize, kept.places.array_bytes() as usize);
            self.objects.fill(&mut space.bytes_mut()[from..from + bytes]);
        }
    }

    fn run(&mut self, core: usize, port: &mut Port<'_>) -> Progress {
        if self.failed.is_some() || core >= self.threads {
            return Progress::Done;
        }
        let act = self.acts[core].pop_front().unwrap_or(Act::Step);
        self.act(core, act, port)
    }

    fn check(&self, space: &Space) -> Result<(), String> {
        if let Some(why) = &self.failed {
            return Err(why.clone());
        }
        for (number, kept) in self.kept.iter().enumerate() {
            let expected = self.expected(number);
            if space.at(kept.places.array, expected.len()) != expected {
                return Err(format!("object {number} is not what its functions make"));
            }
        }
        Ok(())
    }
}
