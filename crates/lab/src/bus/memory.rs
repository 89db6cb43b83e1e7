//! The memory behind the caches, by the clock of the machine: one device, or DRAM and NVM beside it.
//!
//! * A write goes to the memory when the queue of its channel has room, and waits before it otherwise, in order.
//! * What happens at one time happens in the order in which it became known.

use super::config::{DurableIn, Hardware};
use crate::controller::timed::Timed;
use crate::device::energy::Commands;
use crate::device::{Class, Device, Kind};
use crate::op::LINE_BYTES;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Something that happened in memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum What {
    /// The line of this request is there.
    Read(u32),
    /// The write with this number is durable.
    Durable(u64),
    /// A write to this channel of this part has left its queue.
    Left(usize, usize),
}

/// It, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Event {
    pub(super) at: u64,
    pub(super) what: What,
}

#[derive(Clone, Debug, Default)]
struct Channel {
    /// Writes in its queue.
    taken: usize,
    /// Those before it: the write's number and its line.
    before: VecDeque<(u64, u64)>,
}

/// A write is called by its channel and its number from here on up; a read by its request.
const WRITE: u64 = 1 << 63;
const CHANNEL_SHIFT: u32 = 48;

/// A part of the memory: the lines of one device.
struct Part {
    first_line: u64,
    timed: Timed,
    durable: DurableIn,
    room: usize,
    channels: Vec<Channel>,
}

impl Part {
    fn new(first_line: u64, device: &Device, durable: DurableIn) -> Part {
        Part {
            first_line,
            timed: Timed::new(device),
            durable,
            room: device.queue.writes,
            channels: vec![Channel::default(); device.channels as usize],
        }
    }

    /// The line's first byte in the device.
    fn byte(&self, line: u64) -> u64 {
        (line - self.first_line) * LINE_BYTES
    }
}

/// Things that will happen, the first first; those of one time in the order in which they became known.
#[derive(Default)]
struct Events {
    all: BinaryHeap<Reverse<(u64, u64, What)>>,
    sequence: u64,
}

impl Events {
    fn add(&mut self, at: u64, what: What) {
        self.all.push(Reverse((at, self.sequence, what)));
        self.sequence += 1;
    }
}

/// The memory.
pub(super) struct Memory {
    /// In order of their lines.
    parts: Vec<Part>,
    path_fs: u64,
    events: Events,
    writes: u64,
    now: u64,
}

impl Memory {
    /// The lines from `nvm_from` on lie in the NVM, if there is one.
    pub(super) fn new(config: &Hardware, nvm_from: u64) -> Memory {
        let mut parts = vec![Part::new(0, &config.memory, config.durable)];
        if let Some(nvm) = &config.nvm {
            parts.push(Part::new(nvm_from / LINE_BYTES, &nvm.device, nvm.durable));
        }
        Memory {
            parts,
            path_fs: config.path_fs,
            events: Events::default(),
            writes: 0,
            now: 0,
        }
    }

    /// The time everything known has happened up to.
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// The part that a line lies in.
    fn part(&self, line: u64) -> usize {
        let later = self.parts[1..].iter();
        later.take_while(|part| part.first_line <= line).count()
    }

    /// Asks for a line that left the last cache at `at`.
    pub(super) fn read(&mut self, request: u32, line: u64, at: u64) {
        let arrives = (at + self.path_fs).max(self.now);
        let number = self.part(line);
        let part = &mut self.parts[number];
        let byte = part.byte(line);
        let _ = part
            .timed
            .push(request.into(), Kind::Read, Class::Demand, byte, 1, arrives);
    }

    /// Writes a line that left the last cache at `at`, and returns the number of the write.
    pub(super) fn write(&mut self, line: u64, at: u64) -> u64 {
        let arrives = (at + self.path_fs).max(self.now);
        let number = self.writes;
        self.writes += 1;
        let which = self.part(line);
        let part = &mut self.parts[which];
        let place = part.timed.memory().place(part.byte(line)).channel;
        let channel = &mut part.channels[place];
        match channel.taken < part.room && channel.before.is_empty() {
            true => self.take(which, place, number, line, arrives),
            false => channel.before.push_back((number, line)),
        }
        number
    }

    /// A write enters the queue of its channel.
    fn take(&mut self, which: usize, place: usize, number: u64, line: u64, at: u64) {
        let part = &mut self.parts[which];
        part.channels[place].taken += 1;
        let name = WRITE | (place as u64) << CHANNEL_SHIFT | number;
        let byte = part.byte(line);
        let _ = part.timed.push(name, Kind::Write, Class::Demand, byte, 1, at);
        if part.durable == DurableIn::Queue {
            self.events.add(at + self.path_fs, What::Durable(number));
        }
    }

    /// The next thing that happens, if it does by `limit`.
    pub(super) fn next(&mut self, limit: u64) -> Option<Event> {
        loop {
            let known = self.events.all.peek().map_or(u64::MAX, |Reverse((at, ..))| *at);
            let bound = self.parts.iter().map(|part| part.timed.bound()).min();
            let bound = bound.unwrap_or(u64::MAX);
            if known.min(bound) > limit || known == u64::MAX && bound == u64::MAX {
                return None;
            }
            if bound < known {
                self.work(bound);
                continue;
            }
            let Reverse((at, _, what)) = self.events.all.pop()?;
            self.now = self.now.max(at);
            if let What::Left(which, place) = what {
                let channel = &mut self.parts[which].channels[place];
                channel.taken -= 1;
                if let Some((number, line)) = channel.before.pop_front() {
                    self.take(which, place, number, line, at);
                }
                continue;
            }
            return Some(Event { at, what });
        }
    }

    /// The devices work up to a time.
    fn work(&mut self, until: u64) {
        let (events, path_fs) = (&mut self.events, self.path_fs);
        for (which, part) in self.parts.iter_mut().enumerate() {
            let durable = part.durable;
            part.timed.run_until(until, |name, at| {
                if name & WRITE == 0 {
                    events.add(at + path_fs, What::Read(name as u32));
                    return;
                }
                let number = name & ((1 << CHANNEL_SHIFT) - 1);
                let place = (name & !WRITE) as usize >> CHANNEL_SHIFT;
                events.add(at, What::Left(which, place));
                if durable == DurableIn::Cells {
                    events.add(at + path_fs, What::Durable(number));
                }
            });
        }
        self.now = self.now.max(until);
    }

    /// Commands issued, of all parts.
    pub(super) fn commands(&self) -> Commands {
        self.parts.iter().map(|part| part.timed.memory().commands()).sum()
    }

    /// Lines written to the NVM beside DRAM.
    pub(super) fn nvm_writes(&self) -> u64 {
        let nvm = self.parts[1..].iter();
        nvm.map(|part| part.timed.memory().commands().writes).sum()
    }

    /// Joules of the devices' own models until `now`.
    pub(super) fn energy_j(&self, now: u64) -> f64 {
        self.parts.iter().map(|part| part.timed.energy_j(now)).sum()
    }
}
