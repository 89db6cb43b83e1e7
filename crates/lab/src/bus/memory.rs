//! The memory behind the caches, by the clock of the machine: one device, or DRAM and NVM beside it.
//!
//! * A write goes to the memory when the queue of its channel has room, and waits before it otherwise, in order.
//! * One line is written once at a time: writes of a line that is being written wait for that, and then go together, as a
//!   controller's queue merges them.
//! * What happens at one time happens in the order in which it became known.

use super::config::{DurableIn, Hardware};
use crate::controller::timed::Timed;
use crate::device::energy::Commands;
use crate::device::{Class, Device, Kind};
use crate::op::LINE_BYTES;
use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BinaryHeap, HashMap, VecDeque};

/// Something that happens in memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum EventKind {
    /// The line of this request is there.
    Read(u32),
    /// The write with this number is durable.
    Durable(u64),
    /// The write of this line, to this channel of this part, has left its queue.
    Left(usize, usize, u64),
}

/// It, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Event {
    pub(super) at: u64,
    pub(super) kind: EventKind,
}

#[derive(Clone, Debug, Default)]
struct Channel {
    /// Writes in its queue.
    taken: usize,
    /// Lines whose writes are before it.
    before: VecDeque<u64>,
}

/// The writes of a line, by their numbers.
#[derive(Debug)]
struct Writes {
    /// Those that go, or will: together.
    now: Vec<u64>,
    is_taken: bool,
    /// Those that wait for them.
    next: Vec<u64>,
}

/// A write is called by its channel and its line from here on up; a read by its request.
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
    all: BinaryHeap<Reverse<(u64, u64, EventKind)>>,
    sequence: u64,
}

impl Events {
    fn add(&mut self, at: u64, kind: EventKind) {
        self.all.push(Reverse((at, self.sequence, kind)));
        self.sequence += 1;
    }
}

/// The memory.
pub(super) struct Memory {
    /// In order of their lines.
    parts: Vec<Part>,
    path_fs: u64,
    events: Events,
    lines: HashMap<u64, Writes>,
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
            lines: HashMap::new(),
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
        match self.lines.entry(line) {
            Entry::Occupied(mut writes) if writes.get().is_taken => {
                writes.get_mut().next.push(number);
                // The queue has the line, and room for what merges with it.
                if part.durable == DurableIn::Queue {
                    self.events
                        .add(arrives + self.path_fs, EventKind::Durable(number));
                }
            }
            Entry::Occupied(mut writes) => writes.get_mut().now.push(number),
            Entry::Vacant(none) => {
                none.insert(Writes {
                    now: vec![number],
                    is_taken: false,
                    next: Vec::new(),
                });
                let place = part.timed.memory().place(part.byte(line)).channel;
                part.channels[place].before.push_back(line);
                self.take(which, place, arrives);
            }
        }
        number
    }

    /// The queue of a channel takes what it has room for.
    fn take(&mut self, which: usize, place: usize, at: u64) {
        let part = &mut self.parts[which];
        while part.channels[place].taken < part.room {
            let Some(line) = part.channels[place].before.pop_front() else {
                return;
            };
            part.channels[place].taken += 1;
            let name = WRITE | (place as u64) << CHANNEL_SHIFT | line;
            let byte = part.byte(line);
            let _ = part.timed.push(name, Kind::Write, Class::Demand, byte, 1, at);
            let writes = self.lines.get_mut(&line).expect("a line that is written");
            writes.is_taken = true;
            // Writes that merged with a line in the queue were durable there, and their cores hear it once.
            if part.durable == DurableIn::Queue {
                for &number in &writes.now {
                    self.events.add(at + self.path_fs, EventKind::Durable(number));
                }
            }
        }
    }

    /// A line is written; what waited for that goes now.
    fn left(&mut self, which: usize, place: usize, line: u64, at: u64) {
        self.parts[which].channels[place].taken -= 1;
        let writes = self.lines.get_mut(&line).expect("a line that is written");
        if self.parts[which].durable == DurableIn::Cells {
            for &number in &writes.now {
                self.events.add(at + self.path_fs, EventKind::Durable(number));
            }
        }
        writes.now = std::mem::take(&mut writes.next);
        writes.is_taken = false;
        match writes.now.is_empty() {
            true => drop(self.lines.remove(&line)),
            false => self.parts[which].channels[place].before.push_back(line),
        }
        self.take(which, place, at);
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
            let Reverse((at, _, kind)) = self.events.all.pop()?;
            self.now = self.now.max(at);
            if let EventKind::Left(which, place, line) = kind {
                self.left(which, place, line, at);
                continue;
            }
            return Some(Event { at, kind });
        }
    }

    /// The devices work up to a time.
    fn work(&mut self, until: u64) {
        let (events, path_fs) = (&mut self.events, self.path_fs);
        for (which, part) in self.parts.iter_mut().enumerate() {
            part.timed.run_until(until, |name, at| {
                if name & WRITE == 0 {
                    events.add(at + path_fs, EventKind::Read(name as u32));
                    return;
                }
                let line = name & ((1 << CHANNEL_SHIFT) - 1);
                let place = (name & !WRITE) as usize >> CHANNEL_SHIFT;
                events.add(at, EventKind::Left(which, place, line));
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
