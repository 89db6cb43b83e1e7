//! The memory behind the caches, by the clock of the machine.
//!
//! * A write goes to the memory when the queue of its channel has room, and waits before it otherwise, in order.
//! * What happens at one time happens in the order in which it became known.

use super::config::DurableIn;
use crate::controller::timed::Timed;
use crate::device::energy::Commands;
use crate::device::{Class, Device, Kind};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Something that happened in memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum What {
    /// The line of this request is there.
    Read(u32),
    /// The write with this number is durable.
    Durable(u64),
    /// A write to this channel has left its queue.
    Left(usize),
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

/// The memory.
pub(super) struct Memory {
    timed: Timed,
    path_fs: u64,
    durable: DurableIn,
    room: usize,
    channels: Vec<Channel>,
    events: BinaryHeap<Reverse<(u64, u64, What)>>,
    sequence: u64,
    writes: u64,
    now: u64,
}

impl Memory {
    pub(super) fn new(device: &Device, path_fs: u64, durable: DurableIn) -> Memory {
        Memory {
            timed: Timed::new(device),
            path_fs,
            durable,
            room: device.queue.writes,
            channels: vec![Channel::default(); device.channels as usize],
            events: BinaryHeap::new(),
            sequence: 0,
            writes: 0,
            now: 0,
        }
    }

    /// The time everything known has happened up to.
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// Asks for a line that left the last cache at `at`.
    pub(super) fn read(&mut self, request: u32, line: u64, at: u64) {
        let arrives = (at + self.path_fs).max(self.now);
        let _ = self
            .timed
            .push(request.into(), Kind::Read, Class::Demand, line * 64, 1, arrives);
    }

    /// Writes a line that left the last cache at `at`, and returns the number of the write.
    pub(super) fn write(&mut self, line: u64, at: u64) -> u64 {
        let arrives = (at + self.path_fs).max(self.now);
        let number = self.writes;
        self.writes += 1;
        let place = self.timed.memory().place(line * 64).channel;
        let channel = &mut self.channels[place];
        match channel.taken < self.room && channel.before.is_empty() {
            true => self.take(place, number, line, arrives),
            false => channel.before.push_back((number, line)),
        }
        number
    }

    /// A write enters the queue of its channel.
    fn take(&mut self, place: usize, number: u64, line: u64, at: u64) {
        self.channels[place].taken += 1;
        let name = WRITE | (place as u64) << CHANNEL_SHIFT | number;
        let _ = self
            .timed
            .push(name, Kind::Write, Class::Demand, line * 64, 1, at);
        if self.durable == DurableIn::Queue {
            self.happens(at + self.path_fs, What::Durable(number));
        }
    }

    fn happens(&mut self, at: u64, what: What) {
        self.events.push(Reverse((at, self.sequence, what)));
        self.sequence += 1;
    }

    /// The next thing that happens, if it does by `limit`.
    pub(super) fn next(&mut self, limit: u64) -> Option<Event> {
        loop {
            let known = self.events.peek().map_or(u64::MAX, |Reverse((at, ..))| *at);
            let bound = self.timed.bound();
            if known.min(bound) > limit || known == u64::MAX && bound == u64::MAX {
                return None;
            }
            if bound < known {
                self.work(bound);
                continue;
            }
            let Reverse((at, _, what)) = self.events.pop()?;
            self.now = self.now.max(at);
            if let What::Left(place) = what {
                self.channels[place].taken -= 1;
                if let Some((number, line)) = self.channels[place].before.pop_front() {
                    self.take(place, number, line, at);
                }
                continue;
            }
            return Some(Event { at, what });
        }
    }

    /// The device works up to a time.
    fn work(&mut self, until: u64) {
        let Memory {
            timed,
            events,
            sequence,
            path_fs,
            durable,
            ..
        } = self;
        let mut happens = |at: u64, what: What| {
            events.push(Reverse((at, *sequence, what)));
            *sequence += 1;
        };
        timed.run_until(until, |name, at| {
            if name & WRITE == 0 {
                happens(at + *path_fs, What::Read(name as u32));
                return;
            }
            let number = name & ((1 << CHANNEL_SHIFT) - 1);
            happens(at, What::Left((name & !WRITE) as usize >> CHANNEL_SHIFT));
            if *durable == DurableIn::Cells {
                happens(at + *path_fs, What::Durable(number));
            }
        });
        self.now = self.now.max(until);
    }

    /// Commands issued.
    pub(super) fn commands(&self) -> Commands {
        self.timed.memory().commands()
    }

    /// Joules of the device's own model until `now`.
    pub(super) fn energy_j(&self, now: u64) -> f64 {
        self.timed.energy_j(now)
    }
}
