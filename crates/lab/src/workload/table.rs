//! A hash table of rows in simulated memory, chained.
//!
//! ```text
//! heads   | first row of chain 0 u64 | of chain 1 u64 | ...     0: none; twice as many as rows, a power of two
//! row     | key u64 | next row u64 | fields ... |
//! spare   | rows ever used u64 | first free row u64 |           free rows are chained by `next`
//! ```
//!
//! Instructions: hashing takes a multiplication, a shift and an address computation; a row looked at, a
//! comparison and two branches beside its loads.

use super::layout::{Array, Layout, Records, peek, poke};
use crate::space::{Port, Space};

/// Bytes of a row before its fields.
pub(super) const ROW_HEAD: u64 = 16;

#[derive(Clone, Copy, Debug)]
pub(super) struct Table {
    heads: Array<u64>,
    shift: u32,
    spare: Array<u64>,
    rows: Records,
}

impl Table {
    /// A table for at most `capacity` rows of `row_bytes`, head included.
    pub(super) fn new(layout: &mut Layout, capacity: u64, row_bytes: u64) -> Table {
        let heads = capacity.next_power_of_two().max(2);
        Table {
            heads: layout.array(heads),
            shift: 64 - heads.trailing_zeros(),
            spare: layout.array(2),
            rows: layout.records(capacity, row_bytes),
        }
    }

    /// Bytes that each row costs, its share of the heads included.
    pub(super) fn bytes_per_row(row_bytes: u64) -> u64 {
        row_bytes + 12
    }

    #[inline]
    fn chain(&self, key: u64) -> u64 {
        self.heads
            .at(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift)
    }

    /// Where the row with this key is.
    #[inline]
    pub(super) fn find(&self, port: &mut Port<'_>, key: u64) -> Option<u64> {
        port.work(4);
        let mut row: u64 = port.load(self.chain(key));
        while row != 0 {
            port.work(3);
            if port.follow::<u64>(row) == key {
                return Some(row);
            }
            row = port.load(row + 8);
        }
        None
    }

    /// A new row for a key that has none; its fields are as they were left. None when the table is full.
    pub(super) fn insert(&self, port: &mut Port<'_>, key: u64) -> Option<u64> {
        port.work(3);
        let free: u64 = self.spare.load(port, 1);
        let row = if free != 0 {
            let next: u64 = port.follow(free + 8);
            self.spare.store(port, 1, next);
            free
        } else {
            let used = self.spare.load(port, 0);
            if used == self.rows.len() {
                return None;
            }
            self.spare.store(port, 0, used + 1);
            self.rows.at(used)
        };
        port.work(4);
        let chain = self.chain(key);
        let first: u64 = port.load(chain);
        port.store(row, key);
        port.store(row + 8, first);
        port.store(chain, row);
        Some(row)
    }

    /// Frees the row with this key; false when there is none.
    pub(super) fn remove(&self, port: &mut Port<'_>, key: u64) -> bool {
        port.work(4);
        let mut link = self.chain(key);
        loop {
            let row: u64 = port.load(link);
            if row == 0 {
                return false;
            }
            port.work(3);
            if port.follow::<u64>(row) == key {
                let next: u64 = port.load(row + 8);
                port.store(link, next);
                let free: u64 = self.spare.load(port, 1);
                port.store(row + 8, free);
                self.spare.store(port, 1, row);
                return true;
            }
            link = row + 8;
        }
    }

    /// [`Self::insert`] outside the simulation, into a table from which nothing was removed.
    pub(super) fn fill(&self, space: &mut Space, key: u64) -> u64 {
        let used = self.spare.peek(space, 0);
        self.spare.poke(space, 0, used + 1);
        let row = self.rows.at(used);
        let chain = self.chain(key);
        let first: u64 = peek(space, chain);
        poke(space, row, key);
        poke(space, row + 8, first);
        poke(space, chain, row);
        row
    }

    /// [`Self::find`] outside the simulation.
    pub(super) fn peek(&self, space: &Space, key: u64) -> Option<u64> {
        let mut row: u64 = peek(space, self.chain(key));
        // A damaged chain may be a circle, or lead anywhere.
        for _ in 0..=self.rows.len() {
            if row == 0 || row + ROW_HEAD > space.len() {
                return None;
            }
            if peek::<u64>(space, row) == key {
                return Some(row);
            }
            row = peek(space, row + 8);
        }
        None
    }

    /// Any row.
    pub(super) fn first_row(&self) -> u64 {
        self.rows.at(0)
    }

    /// Rows in use, counted along the chains; an error where a chain is broken.
    pub(super) fn count(&self, space: &Space) -> Result<u64, String> {
        let mut rows = 0;
        for chain in 0..1 << (64 - self.shift) {
            let mut row = self.heads.peek(space, chain);
            while row != 0 {
                rows += 1;
                if row < self.rows.at(0) || row + ROW_HEAD > space.len() || rows > self.rows.len() {
                    return Err(format!("chain {chain} leads to {row:#x}, which is no row"));
                }
                row = peek(space, row + 8);
            }
        }
        Ok(rows)
    }
}

/// A number that follows from two: what fields hold at first, and what stands for real text.
#[inline]
pub(super) fn scramble(seed: u64, key: u64) -> u64 {
    let mut x = seed ^ key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}
