//! The programs without the machine's time: any interleaving of their operations, a crash after any of them, and what
//! is recovered.
//!
//! * A core does one operation at a time; which core is next is chosen at random. Locks are held as on the machine.
//! * A line that was flushed is durable once the core that flushed it has fenced. Until then, and for a dirty line in a
//!   cache, every eight bytes of it are durable or not, each by itself.
//! * A dirty line may leave the caches at any time, as they please.
//! * Recovery sees what is durable alone. A write to the file is durable when it is over; in a crash any 512 bytes of it
//!   are there or not.

use super::program::Program;
use super::recovery::{Recovered, recover};
use crate::op::{Kind, LINE_BYTES, Op};
use crate::space::{Plain, Port, Space};
use crate::workload::{Progress, Workload};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// Bytes that memory writes whole.
const ATOM: usize = 8;
/// Bytes that an SSD writes whole.
const SECTOR: usize = 512;

type Line = [u8; LINE_BYTES as usize];

/// One operation, with what it writes.
#[derive(Clone, Debug)]
pub struct Step {
    /// The operation.
    pub op: Op,
    /// What it writes; the file's address is before the bytes of a write to it.
    pub bytes: Vec<u8>,
}

/// A line that is being flushed: by which flush, and its number.
#[derive(Clone, Copy, Debug)]
struct Flushed {
    core: usize,
    line: u64,
    bytes: Line,
    order: u64,
}

/// What memory holds for good, and what is under way to it.
#[derive(Clone, Debug, Default)]
struct Memory {
    /// Each line's bytes, and the order of the write that they came with.
    durable: BTreeMap<u64, (u64, Line)>,
    newest: BTreeMap<u64, Line>,
    /// Lines whose newest bytes are in a cache alone.
    dirty: BTreeSet<u64>,
    /// Lines flushed and not fenced.
    under_way: Vec<Flushed>,
    writes: u64,
    /// The write to the file that is under way.
    to_file: Option<(u64, Vec<u8>)>,
    file: BTreeMap<u64, u8>,
}

impl Memory {
    fn line(&self, line: u64) -> Line {
        self.newest
            .get(&line)
            .copied()
            .unwrap_or([0; LINE_BYTES as usize])
    }

    fn store(&mut self, at: u64, bytes: &[u8]) {
        let mut line = self.line(at / LINE_BYTES);
        line[(at % LINE_BYTES) as usize..][..bytes.len()].copy_from_slice(bytes);
        self.newest.insert(at / LINE_BYTES, line);
        self.dirty.insert(at / LINE_BYTES);
    }

    /// A line in flight from another core is waited for too.
    fn flush(&mut self, core: usize, line: u64) {
        let flushed = match self.dirty.remove(&line) {
            true => {
                self.writes += 1;
                let (bytes, order) = (self.line(line), self.writes);
                Some(Flushed {
                    core,
                    line,
                    bytes,
                    order,
                })
            }
            false => {
                let others = self.under_way.iter().rev().find(|flushed| flushed.line == line);
                others.map(|flushed| Flushed { core, ..*flushed })
            }
        };
        self.under_way.extend(flushed);
    }

    /// A dirty line leaves the caches.
    fn evict(&mut self, line: u64) {
        self.dirty.remove(&line);
        self.writes += 1;
        self.durable.insert(line, (self.writes, self.line(line)));
    }

    fn fence(&mut self, core: usize) {
        for flushed in std::mem::take(&mut self.under_way) {
            match flushed.core == core {
                true => self.keep(&flushed),
                false => self.under_way.push(flushed),
            }
        }
    }

    /// Writes to a line do not overtake one another.
    fn keep(&mut self, flushed: &Flushed) {
        let old = self.durable.entry(flushed.line).or_insert((0, flushed.bytes));
        if old.0 < flushed.order {
            *old = (flushed.order, flushed.bytes);
        }
    }

    fn write_file(&mut self) {
        if let Some((at, bytes)) = self.to_file.take() {
            self.file.extend((at..).zip(bytes));
        }
    }

    /// Power fails: a part of what is under way, and of what is dirty, is durable.
    fn crash(&self, random: &mut fastrand::Rng) -> Memory {
        let mut after = Memory {
            durable: self.durable.clone(),
            file: self.file.clone(),
            ..Memory::default()
        };
        let chance = random.f64();
        let written = self
            .under_way
            .iter()
            .map(|flushed| (flushed.line, flushed.bytes, flushed.order));
        let dirty = self.dirty.iter().map(|line| (*line, self.line(*line), u64::MAX));
        for (line, bytes, order) in written.chain(dirty) {
            let (durable, old) = after.durable.entry(line).or_insert((0, [0; LINE_BYTES as usize]));
            if *durable > order {
                continue;
            }
            for (old, new) in old.chunks_mut(ATOM).zip(bytes.chunks(ATOM)) {
                if random.f64() < chance {
                    old.copy_from_slice(new);
                }
            }
        }
        if let Some((at, bytes)) = &self.to_file {
            for (number, sector) in bytes.chunks(SECTOR).enumerate() {
                if random.f64() < chance {
                    let from = at + (number * SECTOR) as u64;
                    after.file.extend((from..).zip(sector.iter().copied()));
                }
            }
        }
        after
    }
}

/// A program that keeps an object.
pub trait Recoverable: Workload {
    /// From which address on the space stands for a file.
    fn file_from(&self) -> u64;
    /// The object, from what `read` says that memory and file hold.
    ///
    /// # Errors
    /// It cannot be recovered.
    fn recovered(&self, read: &dyn Fn(u64, usize) -> Vec<u8>) -> Result<Recovered, String>;
    /// Everything up to this function survives a crash.
    fn acknowledged(&self) -> u64;
    /// Functions and ends of groups that have a number.
    fn numbered(&self) -> u64;
    /// The object after the functions up to one.
    fn after(&self, number: u64) -> Vec<u8>;
}

impl Recoverable for Program {
    fn file_from(&self) -> u64 {
        self.places.file
    }

    fn recovered(&self, read: &dyn Fn(u64, usize) -> Vec<u8>) -> Result<Recovered, String> {
        recover(&self.variant, &self.places, read)
    }

    fn acknowledged(&self) -> u64 {
        self.acknowledged()
    }

    fn numbered(&self) -> u64 {
        self.numbered()
    }

    fn after(&self, number: u64) -> Vec<u8> {
        self.after(number)
    }
}

struct Core {
    steps: VecDeque<Step>,
    progress: Progress,
}

/// A program that can be crashed.
pub struct Crashed<P> {
    program: P,
    space: Space,
    cores: Vec<Core>,
    locks: HashMap<u64, usize>,
    memory: Memory,
    random: fastrand::Rng,
}

impl<P: Recoverable> Crashed<P> {
    /// The program, on `cores` cores.
    #[must_use]
    pub fn new(program: P, cores: usize, seed: u64) -> Crashed<P> {
        let mut space = Space::new(program.footprint_bytes());
        program.fill(&mut space);
        Crashed {
            space,
            cores: (0..cores)
                .map(|_| Core {
                    steps: VecDeque::new(),
                    progress: Progress::More,
                })
                .collect(),
            program,
            locks: HashMap::new(),
            memory: Memory::default(),
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// The program.
    #[must_use]
    pub fn program(&self) -> &P {
        &self.program
    }

    /// One operation of one core. `fault` may change what the core does next.
    ///
    /// # Errors
    /// No core can go on.
    pub fn step(&mut self, fault: &mut dyn FnMut(&mut VecDeque<Step>)) -> Result<(), String> {
        for _ in 0..100_000 {
            let core = self.random.usize(..self.cores.len());
            if self.cores[core].steps.is_empty() {
                self.fetch(core, fault);
                continue;
            }
            let op = self.cores[core].steps[0].op;
            if op.kind == Kind::Lock && self.locks.contains_key(&op.at) {
                continue;
            }
            let step = self.cores[core].steps.pop_front().expect("one at least");
            self.does(core, step);
            return Ok(());
        }
        Err(format!("{}: no core can go on", self.program.name()))
    }

    fn fetch(&mut self, core: usize, fault: &mut dyn FnMut(&mut VecDeque<Step>)) {
        if self.cores[core].progress == Progress::Done {
            return;
        }
        let (mut batch, mut written) = (Vec::new(), Vec::new());
        let mut port = Port::recording(&mut self.space, &mut batch, &mut written);
        self.cores[core].progress = self.program.run(core, &mut port);
        drop(port);
        let mut rest = written.as_slice();
        let mut take = |bytes: usize| {
            let (some, left) = rest.split_at(bytes);
            rest = left;
            some.to_vec()
        };
        let mut steps: VecDeque<Step> = batch
            .into_iter()
            .map(|op| {
                let bytes = match op.kind {
                    Kind::Store | Kind::Stream => take(op.bytes.into()),
                    Kind::Disk => {
                        let place = take(8);
                        let count = u64::get(&take(8));
                        [place, take(count as usize)].concat()
                    }
                    _ => Vec::new(),
                };
                Step { op, bytes }
            })
            .collect();
        fault(&mut steps);
        self.cores[core].steps = steps;
    }

    fn does(&mut self, core: usize, Step { op, bytes }: Step) {
        let is_persistent = op.at >= self.program.persistent_from();
        match op.kind {
            Kind::Store | Kind::Stream if is_persistent => self.memory.store(op.at, &bytes),
            Kind::FlushOpt | Kind::Persist | Kind::Flush => self.memory.flush(core, op.at / LINE_BYTES),
            Kind::Fence | Kind::FullFence => self.memory.fence(core),
            Kind::Lock => drop(self.locks.insert(op.at, core)),
            Kind::Unlock => drop(self.locks.remove(&op.at)),
            Kind::Disk => {
                self.memory.write_file();
                self.memory.to_file = Some((u64::get(&bytes[..8]), bytes[8..].to_vec()));
                // Its end is a step of its own, which a crash may come before.
                let end = Op {
                    kind: Kind::Wait,
                    at: 0,
                    ..op
                };
                self.cores[core].steps.push_front(Step {
                    op: end,
                    bytes: Vec::new(),
                });
            }
            Kind::Wait => self.memory.write_file(),
            _ => {}
        }
        // The caches evict as they please.
        let dirty = self.memory.dirty.len();
        if dirty > 0 && self.random.u8(..16) == 0 {
            let which = self.random.usize(..dirty);
            let line = self.memory.dirty.iter().nth(which).copied();
            line.into_iter().for_each(|line| self.memory.evict(line));
        }
    }

    /// Goes on until `is_enough`, and crashes after each operation. How many functions were run again, in all.
    ///
    /// # Errors
    /// As [`Crashed::step`] and [`Crashed::crash`].
    pub fn crash_everywhere(
        &mut self,
        fault: &mut dyn FnMut(&mut VecDeque<Step>),
        is_enough: impl Fn(&P) -> bool,
    ) -> Result<u64, String> {
        let mut replayed = 0;
        while !is_enough(&self.program) {
            self.step(fault)?;
            replayed += self.crash()?.replayed;
        }
        Ok(replayed)
    }

    /// A crash here: what is recovered must be what the functions up to some number make, and that none that was
    /// acknowledged is beyond.
    ///
    /// # Errors
    /// What is recovered, and what was to be.
    pub fn crash(&mut self) -> Result<Recovered, String> {
        let memory = self.memory.crash(&mut self.random);
        let file = self.program.file_from();
        let read = |at: u64, bytes: usize| -> Vec<u8> {
            let byte = |at: u64| match at >= file {
                true => memory.file.get(&at).copied().unwrap_or(0),
                false => {
                    let line = memory.durable.get(&(at / LINE_BYTES));
                    line.map_or(0, |(_, line)| line[(at % LINE_BYTES) as usize])
                }
            };
            (at..at + bytes as u64).map(byte).collect()
        };
        let program = &self.program;
        let found = program.recovered(&read)?;
        let (least, most) = (program.acknowledged(), program.numbered());
        if !(least..=most).contains(&found.position) {
            return Err(format!(
                "{}: recovered up to {}; {least} were acknowledged, {most} called",
                program.name(),
                found.position
            ));
        }
        match found.array == program.after(found.position) {
            true => Ok(found),
            false => Err(format!(
                "{}: recovered up to {}, and the array is not what the functions up to there make",
                program.name(),
                found.position
            )),
        }
    }
}
