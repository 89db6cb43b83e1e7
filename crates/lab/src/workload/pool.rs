//! Records of one size in simulated memory, taken and given back one by one.
//!
//! ```text
//! spare   | records ever used u64 | first free record u64 |           free records are chained by their second word
//! ```

use super::layout::{Array, Layout, Records, peek};
use crate::space::{Port, Space};

/// Where a free record names the next one.
const NEXT: u64 = 8;

#[derive(Clone, Copy, Debug)]
pub(super) struct Pool {
    spare: Array<u64>,
    records: Records,
}

impl Pool {
    /// `capacity` records of `each` bytes.
    pub(super) fn new(layout: &mut Layout, capacity: u64, each: u64) -> Pool {
        Pool {
            spare: layout.array(2),
            records: layout.records(capacity, each),
        }
    }

    /// A record, as it was left. None when all are taken.
    pub(super) fn take(&self, port: &mut Port<'_>) -> Option<u64> {
        port.work(3);
        let free: u64 = self.spare.load(port, 1);
        if free != 0 {
            let next: u64 = port.follow(free + NEXT);
            self.spare.store(port, 1, next);
            return Some(free);
        }
        let used = self.spare.load(port, 0);
        if used == self.records.len() {
            return None;
        }
        self.spare.store(port, 0, used + 1);
        Some(self.records.at(used))
    }

    /// Gives a record back.
    pub(super) fn give(&self, port: &mut Port<'_>, record: u64) {
        let free: u64 = self.spare.load(port, 1);
        port.store(record + NEXT, free);
        self.spare.store(port, 1, record);
    }

    /// [`Self::take`] outside the simulation, of a pool to which nothing was given back.
    pub(super) fn fill(&self, space: &mut Space) -> u64 {
        let used = self.spare.peek(space, 0);
        self.spare.poke(space, 0, used + 1);
        self.records.at(used)
    }

    /// Records that are free.
    ///
    /// # Errors
    /// The chain of those given back leads elsewhere, or round.
    pub(super) fn free(&self, space: &Space) -> Result<u64, String> {
        let capacity = self.records.len();
        let used = self.spare.peek(space, 0);
        let mut record = self.spare.peek(space, 1);
        let mut given = 0;
        while record != 0 {
            given += 1;
            if !self.records.is_one(record) || given > capacity {
                return Err(format!("the chain of free records leads to {record:#x}"));
            }
            record = peek(space, record + NEXT);
        }
        capacity
            .checked_sub(used)
            .map(|fresh| fresh + given)
            .ok_or_else(|| format!("{used} of {capacity} records were used"))
    }

    /// Whether a record begins there.
    pub(super) fn is_one(&self, at: u64) -> bool {
        self.records.is_one(at)
    }

    /// Records there are, taken and free.
    pub(super) fn capacity(&self) -> u64 {
        self.records.len()
    }

    /// The first of them.
    pub(super) fn first(&self) -> u64 {
        self.records.at(0)
    }
}
