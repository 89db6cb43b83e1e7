//! The stock of TPC-C, on which StockLevel's transactions read alone or write alone (4.4): a search tree of rows.
//!
//! * A call is for one row, drawn at random: get is instant, put deferrable. Reads exclude no other.
//! * The tree's nodes and rows are really walked, read and written. Instructions are those of Berkeley DB, which the
//!   paper ran: counted, not simulated.

use super::structures::NOTHING;
use super::{Call, Class, Objects, Step};
use crate::space::{Plain, Port};

/// What StockLevel does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reads a row.
    Get,
    /// Writes a row.
    Put,
}

/// Such transactions on a stock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StockLevel {
    /// All of them read, or all of them write.
    pub access: Access,
    /// Rows of the stock.
    pub rows: u64,
}

/// Entries of a node, each a key and where the node or the row of that key and those after it lies.
const FANOUT: u64 = 64;
const ENTRY: u64 = 16;
const NODE: u64 = FANOUT * ENTRY;
/// A row: item, quantity and TPC-C's other columns, in whole lines.
const ROW: u64 = 320;
/// The key of an entry that a node lacks.
const NO_KEY: u64 = u64::MAX;
/// Instructions of `DB->get` and `DB->put` in Berkeley DB 5.3: a B-tree of 10,000 rows of 304 bytes, in an environment of
/// one process with many threads. 10,000 calls and none were counted by callgrind.
const GET: u32 = 5768;
const PUT: u32 = 6623;

impl StockLevel {
    /// Rows, where nothing else is said (open: the paper does not say how large its objects are).
    pub const ROWS: u64 = 1000;

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.access {
            Access::Get => "StockLevel get",
            Access::Put => "StockLevel put",
        }
    }

    /// Levels of nodes above the rows.
    fn levels(self) -> u32 {
        1 + (1..).take_while(|level| FANOUT.pow(*level) < self.rows).count() as u32
    }

    /// Rows below an entry of a level; level 0 has the rows themselves.
    fn below(level: u32) -> u64 {
        FANOUT.pow(level)
    }

    /// Where the nodes of a level begin: the root's is the first.
    fn nodes(self, level: u32) -> u64 {
        let above = (level + 1..self.levels()).map(|level| self.rows.div_ceil(Self::below(level + 1)));
        above.sum::<u64>() * NODE
    }

    fn place(self, item: u64) -> u64 {
        self.nodes(0) + self.rows.div_ceil(FANOUT) * NODE + item * ROW
    }

    /// What an entry leads to: the first item below it, and the place of the node or the row.
    fn entry(self, level: u32, number: u64) -> Option<(u64, u64)> {
        let item = number * Self::below(level);
        let place = match level {
            0 => self.place(item),
            _ => self.nodes(level - 1) + number * NODE,
        };
        (item < self.rows).then_some((item, place))
    }

    fn row(item: u64, quantity: u64) -> [u8; ROW as usize] {
        let mut row = [0; ROW as usize];
        for (number, word) in (0..).zip(row.chunks_exact_mut(8)) {
            let data = item.wrapping_mul(31).wrapping_add(number);
            [item, quantity].get(number as usize).unwrap_or(&data).put(word);
        }
        row
    }

    /// The object that its threads have in common.
    fn fill(self, bytes: &mut [u8]) {
        for level in 0..self.levels() {
            let entries = self.rows.div_ceil(Self::below(level)).next_multiple_of(FANOUT);
            for number in 0..entries {
                let (key, place) = self.entry(level, number).unwrap_or((NO_KEY, 0));
                let at = (self.nodes(level) + number * ENTRY) as usize;
                key.put(&mut bytes[at..at + 8]);
                place.put(&mut bytes[at + 8..at + 16]);
            }
        }
        for item in 0..self.rows {
            let at = self.place(item) as usize;
            bytes[at..at + ROW as usize].copy_from_slice(&Self::row(item, item % 91 + 10));
        }
    }

    /// The place of the entry of a node for an item: the last one whose key is not after it.
    fn search(node: u64, item: u64, port: &mut Port<'_>) -> u64 {
        let (mut from, mut to) = (0, FANOUT);
        while to - from > 1 {
            let middle = (from + to) / 2;
            let key: u64 = port.follow(node + middle * ENTRY);
            match key <= item {
                true => from = middle,
                false => to = middle,
            }
        }
        node + from * ENTRY
    }

    /// Reads or writes a row of the stock at `at`; what is written is the argument's upper half. Gives what was read.
    fn call(self, argument: u64, at: u64, port: &mut Port<'_>) -> u64 {
        let (item, quantity) = (argument & u64::from(u32::MAX), argument >> 32);
        let mut place = at;
        for _ in 0..self.levels() {
            let entry = Self::search(place, item, port);
            place = at + port.follow::<u64>(entry + 8);
        }
        if self.access == Access::Put {
            port.work(PUT);
            port.store_bytes(place, &Self::row(item, quantity));
            return 0;
        }
        port.work(GET);
        let mut row = [0; ROW as usize];
        port.load_bytes(place, &mut row);
        match u64::get(&row[..8]) == item {
            true => u64::get(&row[8..16]),
            false => NOTHING,
        }
    }
}

/// Threads that read rows of a stock, or write them.
pub struct Stock {
    level: StockLevel,
    random: Vec<fastrand::Rng>,
}

impl Stock {
    /// For a number of threads.
    #[must_use]
    pub fn new(level: StockLevel, threads: usize) -> Stock {
        let random = |thread| fastrand::Rng::with_seed(thread as u64);
        Stock {
            level,
            random: (0..threads).map(random).collect(),
        }
    }
}

impl Objects for Stock {
    fn name(&self) -> &'static str {
        self.level.name()
    }

    fn bytes(&self) -> u64 {
        self.level.place(self.level.rows)
    }

    fn fill(&self, bytes: &mut [u8]) {
        self.level.fill(bytes);
    }

    fn next(&mut self, thread: usize) -> Step {
        let random = &mut self.random[thread];
        let (item, quantity) = (random.u64(..self.level.rows), random.u64(10..=100));
        let is_get = self.level.access == Access::Get;
        Step::Call(Call {
            object: 0,
            function: u16::from(!is_get),
            argument: item | quantity << 32,
            class: if is_get { Class::Instant } else { Class::Deferrable },
            is_apart: is_get,
            before: 0,
        })
    }

    fn run(&self, call: &Call, at: u64, port: &mut Port<'_>) -> u64 {
        self.level.call(call.argument, at, port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::Space;
    use std::collections::BTreeMap;

    /// Rows of one node, of several and of several levels, beside a map.
    #[test]
    fn rows_are_where_the_tree_says() {
        for rows in [1, 63, 64, 65, 4096, 5000] {
            let [get, put] = [Access::Get, Access::Put].map(|access| StockLevel { access, rows });
            let stock = Stock::new(get, 1);
            let mut space = Space::new(stock.bytes());
            stock.fill(space.bytes_mut());
            let mut model: BTreeMap<u64, u64> = (0..rows).map(|item| (item, item % 91 + 10)).collect();
            let mut batch = Vec::new();
            for number in 0..2000 {
                let item = fastrand::u64(..rows);
                let quantity = number % 100;
                let mut port = Port::new(&mut space, &mut batch);
                put.call(item | quantity << 32, 0, &mut port);
                model.insert(item, quantity);
                let asked = fastrand::u64(..rows);
                let found = get.call(asked, 0, &mut port);
                assert_eq!(found, model[&asked], "item {asked} of {rows}");
                drop(port);
                batch.clear();
            }
            let all: Vec<u64> = (0..rows)
                .map(|item| get.call(item, 0, &mut Port::new(&mut space, &mut batch)))
                .collect();
            assert!(all.iter().eq(model.values()), "{rows} rows");
        }
    }
}
