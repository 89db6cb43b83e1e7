//! An N-Store-like store (Arulraj et al., SIGMOD 2015; in WHISPER): tuples updated in place on
//! non-volatile memory, with a write-ahead log of what they held.
//!
//! The load is YCSB's as WHISPER runs it: 80% updates of one field, 20% reads of a tuple, keys skewed
//! (Zipf, 0.5). Each core executes the transactions of its own partition. An update logs the old field and
//! flushes it, writes the new one and flushes it, marks the log entry as committed and flushes that.
//!
//! ```text
//! index row 32    | head 16 | tuple u64 | 0 |
//! tuple 1088      | key u64 | updates u64 | 72 | 10 fields of 100 |
//! log entry 128   | state u64 | tuple u64 | field u64 | old field 100 | 4 |     a ring
//! ```
//!
//! Check: every field holds what its last update wrote, the log's last entry is that update's.

use super::layout::{Layout, Records, peek, poke};
use super::table::{Table, scramble};
use super::{Progress, Workload};
use crate::space::{Port, Space};

const BATCH: usize = 256;
const TUPLE_BYTES: u64 = 1088;
const FIELDS: u64 = 10;
const FIELD_BYTES: usize = 100;
const FIRST_FIELD: u64 = 88;
/// Entries in the ring of a partition's log.
const LOG: u64 = 8192;

pub(super) struct NStore {
    partitions: Vec<Partition>,
    footprint: u64,
}

struct Partition {
    random: fastrand::Rng,
    tuples: u64,
    index: Table,
    heap: Records,
    log: Records,
    /// Fields updated, in order: tuple times 10 plus field.
    updates: Vec<u32>,
    wrong_reads: u64,
}

/// What a field holds after so many updates of its tuple.
fn content(key: u64, field: u64, updates: u64) -> [u8; FIELD_BYTES] {
    let mut bytes = [0; FIELD_BYTES];
    let first = scramble(key * FIELDS + field, updates);
    for (i, word) in bytes.chunks_mut(8).enumerate() {
        let number = first.wrapping_add(i as u64).to_le_bytes();
        word.copy_from_slice(&number[..word.len()]);
    }
    bytes
}

impl NStore {
    pub(super) fn new(bytes: u64, cores: usize, seed: u64) -> NStore {
        let mut layout = Layout::default();
        let share = bytes / cores as u64;
        let tuples = share.saturating_sub(LOG * 128) / (Table::bytes_per_row(32) + TUPLE_BYTES);
        let tuples = tuples.clamp(64, u64::from(u32::MAX) / FIELDS);
        let partitions = (0..cores as u64)
            .map(|core| Partition {
                random: fastrand::Rng::with_seed(scramble(seed, core)),
                tuples,
                index: Table::new(&mut layout, tuples, 32),
                heap: layout.records(tuples, TUPLE_BYTES),
                log: layout.records(LOG, 128),
                updates: Vec::new(),
                wrong_reads: 0,
            })
            .collect();
        NStore {
            partitions,
            footprint: layout.bytes(),
        }
    }
}

impl Partition {
    /// Zipf with exponent 0.5: so many keys have a share that grows as the root of their number.
    fn draw(&mut self) -> u64 {
        let uniform = self.random.f64();
        (uniform * uniform * self.tuples as f64) as u64
    }

    /// Where a key's tuple is at first: those often drawn lie apart.
    fn place(&self, key: u64) -> u64 {
        let slots = self.tuples.next_power_of_two();
        // An odd factor permutes the slots; those past the end are walked over.
        let mut slot = key;
        loop {
            slot = slot.wrapping_mul(0x9e37_79b1) & (slots - 1);
            if slot < self.tuples {
                return slot;
            }
        }
    }

    fn tuple(&mut self, port: &mut Port<'_>, key: u64) -> u64 {
        match self.index.find(port, key) {
            Some(row) => port.load(row + 16),
            None => {
                self.wrong_reads += 1;
                self.heap.at(0)
            }
        }
    }

    fn read(&mut self, port: &mut Port<'_>) {
        let key = self.draw();
        port.work(60); // request, plan, begin and end of the transaction
        let tuple = self.tuple(port, key);
        let found: u64 = port.follow(tuple);
        self.wrong_reads += u64::from(found != key);
        let mut field = [0; FIELD_BYTES];
        for i in 0..FIELDS {
            port.load_bytes(tuple + FIRST_FIELD + i * FIELD_BYTES as u64, &mut field);
            port.work(8);
        }
    }

    fn update(&mut self, port: &mut Port<'_>) {
        let key = self.draw();
        let field = self.random.u64(..FIELDS);
        port.work(80);
        let tuple = self.tuple(port, key);
        let at = tuple + FIRST_FIELD + field * FIELD_BYTES as u64;
        let entry = self.log.at(self.updates.len() as u64 % LOG);

        let mut old = [0; FIELD_BYTES];
        let updates: u64 = port.follow(tuple + 8);
        port.load_bytes(at, &mut old);
        port.store(entry, 1u64);
        port.store(entry + 8, tuple);
        port.store(entry + 16, field);
        port.store_bytes(entry + 24, &old);
        port.persist(entry);
        port.persist(entry + 64);
        port.fence();

        port.work(20); // making the new value
        port.store(tuple + 8, updates + 1);
        port.store_bytes(at, &content(key, field, updates + 1));
        port.persist(tuple);
        port.persist(at);
        port.persist(at + FIELD_BYTES as u64 - 1);
        port.fence();

        port.store(entry, 2u64);
        port.persist(entry);
        port.fence();
        port.commit();
        self.updates.push((key * FIELDS + field) as u32);
    }

    fn fill(&self, space: &mut Space) {
        for key in 0..self.tuples {
            let tuple = self.heap.at(self.place(key));
            let row = self.index.fill(space, key);
            poke(space, row + 16, tuple);
            poke(space, tuple, key);
            for field in 0..FIELDS {
                let at = (tuple + FIRST_FIELD) as usize + field as usize * FIELD_BYTES;
                space.bytes_mut()[at..at + FIELD_BYTES].copy_from_slice(&content(key, field, 0));
            }
        }
    }

    fn check(&self, space: &Space) -> Result<(), String> {
        if self.wrong_reads > 0 {
            return Err(format!(
                "{} transactions found no tuple or another's",
                self.wrong_reads
            ));
        }
        let mut updates = vec![0u64; self.tuples as usize];
        let mut written = vec![0u64; (self.tuples * FIELDS) as usize];
        for &update in &self.updates {
            let count = &mut updates[update as usize / FIELDS as usize];
            *count += 1;
            written[update as usize] = *count;
        }
        for key in 0..self.tuples {
            let row = self
                .index
                .peek(space, key)
                .ok_or_else(|| format!("key {key} is gone"))?;
            let tuple = self.heap.at(self.place(key));
            if peek::<u64>(space, row + 16) != tuple || peek::<u64>(space, tuple) != key {
                return Err(format!("key {key} leads to another tuple"));
            }
            let (found, expected) = (peek::<u64>(space, tuple + 8), updates[key as usize]);
            if found != expected {
                return Err(format!("tuple {key} says {found} updates, not {expected}"));
            }
            for field in 0..FIELDS {
                let at = tuple + FIRST_FIELD + field * FIELD_BYTES as u64;
                let expected = content(key, field, written[(key * FIELDS + field) as usize]);
                if space.at(at, FIELD_BYTES) != expected {
                    return Err(format!(
                        "field {field} of tuple {key} is not what was written last"
                    ));
                }
            }
        }
        let Some(last) = self.updates.len().checked_sub(1) else {
            return Ok(());
        };
        let entry = self.log.at(last as u64 % LOG);
        let (state, tuple): (u64, u64) = (peek(space, entry), peek(space, entry + 8));
        let expected = self.heap.at(self.place(u64::from(self.updates[last]) / FIELDS));
        match (state, tuple) == (2, expected) {
            true => Ok(()),
            false => Err(format!(
                "the log's last entry is {state}, {tuple:#x}, not 2, {expected:#x}"
            )),
        }
    }
}

impl Workload for NStore {
    fn name(&self) -> &str {
        "nstore"
    }

    fn footprint_bytes(&self) -> u64 {
        self.footprint
    }

    fn fill(&self, space: &mut Space) {
        for partition in &self.partitions {
            partition.fill(space);
        }
    }

    fn run(&mut self, core: usize, port: &mut Port<'_>) -> Progress {
        let partition = &mut self.partitions[core];
        while port.batched() < BATCH {
            match partition.random.u8(..100) {
                0..80 => partition.update(port),
                _ => partition.read(port),
            }
        }
        Progress::More
    }

    fn check(&self, space: &Space) -> Result<(), String> {
        for (core, partition) in self.partitions.iter().enumerate() {
            partition
                .check(space)
                .map_err(|why| format!("partition {core}: {why}"))?;
        }
        Ok(())
    }
}
