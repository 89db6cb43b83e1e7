//! A hash table of rows in simulated memory, chained.
//!
//! ```text
//! heads   | first row of chain 0 u64 | of chain 1 u64 | ...     0: none; twice as many as rows, a power of two
//! row     | key u64 | next row u64 | fields ... |
//! spare   | of the pool of rows |                                     free rows are chained by `next`
//! ```
//!
//! Instructions: hashing takes a multiplication, a shift and an address computation; a row looked at, a
//! comparison and two branches beside its loads.

use super::layout::{Array, Layout, peek, poke};
use super::pool::Pool;
use crate::space::{Port, Space};

/// Bytes of a row before its fields.
pub(super) const ROW_HEAD: u64 = 16;

#[derive(Clone, Copy, Debug)]
pub(super) struct Table {
    heads: Array<u64>,
    shift: u32,
    rows: Pool,
}

impl Table {
    /// A table for at most `capacity` rows of `row_bytes`, head included.
    pub(super) fn new(layout: &mut Layout, capacity: u64, row_bytes: u64) -> Table {
        let heads = capacity.next_power_of_two().max(2);
        Table {
            heads: layout.array(heads),
            shift: 64 - heads.trailing_zeros(),
            rows: Pool::new(layout, capacity, row_bytes),
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
        let row = self.rows.take(port)?;
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
                self.rows.give(port, row);
                return true;
            }
            link = row + 8;
        }
    }

    /// [`Self::insert`] outside the simulation, into a table from which nothing was removed.
    pub(super) fn fill(&self, space: &mut Space, key: u64) -> u64 {
        let row = self.rows.fill(space);
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
        for _ in 0..=self.rows.capacity() {
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
        self.rows.first()
    }

    /// Rows in use, counted along the chains; an error where a chain is broken.
    pub(super) fn count(&self, space: &Space) -> Result<u64, String> {
        let mut rows = 0;
        for chain in 0..1 << (64 - self.shift) {
            let mut row = self.heads.peek(space, chain);
            while row != 0 {
                rows += 1;
                if row < self.rows.first() || row + ROW_HEAD > space.len() || rows > self.rows.capacity() {
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
