//! What the nearest-neighbour workloads share: clustered points, a partition that can be paused, a heap,
//! the nearest found so far, and the oracle that looks at every point.

use super::layout::{Array, Records, peek, poke};
use super::table::scramble;
use crate::space::{Port, Space};

/// A set of points and the order an index puts them in.
#[derive(Clone, Debug)]
pub(super) struct Points {
    pub(super) coordinates: Records,
    pub(super) count: u32,
    pub(super) dimensions: u32,
    pub(super) seed: u64,
}

/// Points lie about so many centres.
const CLUSTERS: u64 = 64;

impl Points {
    /// Where a coordinate is.
    #[inline]
    pub(super) fn at(&self, point: u32, dimension: u32) -> u64 {
        self.coordinates.at(point.into()) + 4 * u64::from(dimension)
    }

    /// The point that a number stands for: a centre, and something near it.
    pub(super) fn draw(&self, number: u64) -> Vec<f32> {
        let drawn = scramble(self.seed, number);
        let centre = scramble(self.seed ^ 0xc3, drawn % CLUSTERS);
        let coordinate = |dimension: u64| {
            let far = unit(scramble(centre, dimension)) * 100.0;
            let near: f32 = (0..3)
                .map(|part| unit(scramble(drawn, dimension << 2 | part)))
                .sum();
            far + (near - 1.5) * 12.0
        };
        (0..u64::from(self.dimensions)).map(coordinate).collect()
    }

    pub(super) fn fill(&self, space: &mut Space) {
        for point in 0..self.count {
            for (dimension, coordinate) in (0..).zip(self.draw(point.into())) {
                poke(space, self.at(point, dimension), coordinate);
            }
        }
    }

    /// The square of the distance from a point to `query`: vector instructions, four numbers each.
    pub(super) fn distance(&self, port: &mut Port<'_>, point: u32, query: &[f32]) -> f32 {
        let mut bytes = [0; 512];
        let bytes = &mut bytes[..4 * query.len()];
        port.load_bytes(self.at(point, 0), bytes);
        port.work(3 * query.len() as u32 / 4 + 4); // subtract, multiply, add; the sum across
        squares(bytes, query)
    }

    /// The squares of the distances to the nearest points, all looked at; outside the simulation.
    pub(super) fn nearest(&self, space: &Space, query: &[f32], count: usize) -> Vec<f32> {
        let mut all: Vec<f32> = (0..self.count)
            .map(|point| self.peek_distance(space, point, query))
            .collect();
        all.sort_unstable_by(f32::total_cmp);
        all.truncate(count);
        all
    }

    pub(super) fn peek_distance(&self, space: &Space, point: u32, query: &[f32]) -> f32 {
        squares(space.at(self.at(point, 0), 4 * query.len()), query)
    }
}

fn squares(bytes: &[u8], query: &[f32]) -> f32 {
    let coordinates = bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|bytes| f32::from_le_bytes(*bytes));
    coordinates
        .zip(query)
        .map(|(one, other)| (one - other) * (one - other))
        .sum()
}

/// From 0 up to 1.
fn unit(drawn: u64) -> f32 {
    (drawn >> 40) as f32 / (1 << 24) as f32
}

/// Brings the points below a cut to the front of their part of the order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Partition {
    dimension: u32,
    cut: f32,
    next: u32,
    end: u32,
    /// The first that is not below.
    pub(super) middle: u32,
}

impl Partition {
    pub(super) fn new(part: std::ops::Range<u32>, dimension: u32, cut: f32) -> Partition {
        Partition {
            dimension,
            cut,
            next: part.start,
            end: part.end,
            middle: part.start,
        }
    }

    /// Goes on until the batch is full; true when done.
    pub(super) fn advance(
        &mut self,
        port: &mut Port<'_>,
        points: &Points,
        order: &Array<u32>,
        batch: usize,
    ) -> bool {
        while self.next < self.end {
            if port.batched() >= batch {
                return false;
            }
            port.work(4); // addresses, comparison, branches
            let point = order.load(port, self.next.into());
            if port.follow::<f32>(points.at(point, self.dimension)) < self.cut {
                let other = order.load(port, self.middle.into());
                order.store(port, self.middle.into(), point);
                order.store(port, self.next.into(), other);
                port.work(1);
                self.middle += 1;
            }
            self.next += 1;
        }
        true
    }
}

/// Distances are not negative, so that their bits sort as they do; beside them a number.
pub(super) fn keyed(distance: f32, number: u32) -> u64 {
    u64::from(distance.to_bits()) << 32 | u64::from(number)
}

/// What [`keyed`] joined.
pub(super) fn unkeyed(key: u64) -> (f32, u32) {
    (f32::from_bits((key >> 32) as u32), key as u32)
}

/// A heap in simulated memory, the least key first; full, it drops what is pushed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heap {
    pub(super) keys: Array<u64>,
    pub(super) capacity: u32,
    pub(super) len: u32,
}

impl Heap {
    pub(super) fn push(&mut self, port: &mut Port<'_>, key: u64) {
        if self.len == self.capacity {
            return;
        }
        let mut at = u64::from(self.len);
        self.len += 1;
        port.work(2);
        while at > 0 {
            let parent = (at - 1) / 2;
            let above = self.keys.load(port, parent);
            port.work(3);
            if above <= key {
                break;
            }
            self.keys.store(port, at, above);
            at = parent;
        }
        self.keys.store(port, at, key);
    }

    pub(super) fn pop(&mut self, port: &mut Port<'_>) -> Option<u64> {
        if self.len == 0 {
            return None;
        }
        let least = self.keys.load(port, 0);
        self.len -= 1;
        let len = u64::from(self.len);
        let last = self.keys.load(port, len);
        let mut at = 0;
        loop {
            let mut child = 2 * at + 1;
            port.work(3);
            if child >= len {
                break;
            }
            let mut below = self.keys.load(port, child);
            if child + 1 < len {
                let other = self.keys.load(port, child + 1);
                port.work(1);
                if other < below {
                    (child, below) = (child + 1, other);
                }
            }
            if last <= below {
                break;
            }
            self.keys.store(port, at, below);
            at = child;
        }
        self.keys.store(port, at, last);
        Some(least)
    }
}

/// The nearest found so far, sorted, in simulated memory: unused places hold the largest key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nearest {
    pub(super) at: u64,
    pub(super) count: u64,
}

impl Nearest {
    pub(super) fn clear(&self, port: &mut Port<'_>) {
        for i in 0..self.count {
            port.store(self.at + 8 * i, u64::MAX);
        }
    }

    /// The key of the farthest.
    pub(super) fn farthest(&self, port: &mut Port<'_>) -> u64 {
        port.load(self.at + 8 * (self.count - 1))
    }

    pub(super) fn add(&self, port: &mut Port<'_>, key: u64) {
        port.work(2);
        if key >= self.farthest(port) {
            return;
        }
        let mut i = self.count - 1;
        while i > 0 {
            let before: u64 = port.load(self.at + 8 * (i - 1));
            port.work(2);
            if before <= key {
                break;
            }
            port.store(self.at + 8 * i, before);
            i -= 1;
        }
        port.store(self.at + 8 * i, key);
    }

    pub(super) fn peek(&self, space: &Space) -> Vec<(f32, u32)> {
        (0..self.count)
            .map(|i| unkeyed(peek(space, self.at + 8 * i)))
            .collect()
    }
}
