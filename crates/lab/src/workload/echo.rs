//! An Echo-like store (WHISPER, ASPLOS 2017): a versioned key-value store with snapshots.
//!
//! A worker gathers a transaction of puts in its local store, then merges it into the master store: a
//! new version of each key, chained before the older ones. As in WHISPER, what must survive is flushed and
//! fenced: the transaction's log before the merge, the merged versions after. A key has four versions; the
//! oldest is freed when a new one comes.
//!
//! ```text
//! master table row 32   | head 16 | newest version u64 | 0 |
//! version 128           | time u64 | older version u64 | key u64 | value 104 |
//! log of a worker       | entries u64 | 0 | then each: key u64, version u64 |
//! ```
//!
//! Half the operations get a key's newest version; keys are drawn evenly. Check: each key's chain holds its
//! last versions, newest first, with the values put.

use super::layout::{Array, Layout, Records, peek, poke};
use super::table::{Table, scramble};
use super::{Progress, Workload};
use crate::space::{Port, Space};
use std::collections::HashMap;

const BATCH: usize = 256;
const VERSION_BYTES: u64 = 128;
const VALUE_BYTES: usize = 104;
/// Versions of a key.
const KEPT: u64 = 4;
/// Puts in a transaction, and as many gets.
const PUTS: u64 = 8;

pub(super) struct Echo {
    keys: u64,
    master: Table,
    versions: Records,
    /// Of each core: the first free version, and how many it has used of its own share.
    spare: Vec<Array<u64>>,
    logs: Vec<Array<u64>>,
    clock: Array<u64>,
    footprint: u64,
    lanes: Vec<fastrand::Rng>,
    /// Keys put, in order. The first is put at time [`KEPT`]: before, each key has versions of all times.
    puts: Vec<u32>,
    wrong_reads: u64,
}

/// The value put for a key at a time.
fn value(key: u64, time: u64) -> [u8; VALUE_BYTES] {
    let mut bytes = [0; VALUE_BYTES];
    let first = scramble(key, time);
    for (i, word) in bytes.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&first.wrapping_add(i as u64).to_le_bytes());
    }
    bytes
}

impl Echo {
    pub(super) fn new(bytes: u64, cores: usize, seed: u64) -> Echo {
        let each = Table::bytes_per_row(32) + KEPT * VERSION_BYTES;
        let keys = (bytes / each).clamp(64, u32::MAX.into());
        let mut layout = Layout::default();
        let master = Table::new(&mut layout, keys, 32);
        Echo {
            keys,
            master,
            versions: layout.records(KEPT * keys + 2 * PUTS * cores as u64, VERSION_BYTES),
            spare: (0..cores).map(|_| layout.array(2)).collect(),
            logs: (0..cores).map(|_| layout.array(2 + 2 * PUTS)).collect(),
            clock: layout.array(1),
            footprint: layout.bytes(),
            lanes: (0..cores as u64)
                .map(|core| fastrand::Rng::with_seed(scramble(seed, core)))
                .collect(),
            puts: Vec::new(),
            wrong_reads: 0,
        }
    }

    /// A free version: one freed by this core, else one never used.
    fn allocate(&self, core: usize, port: &mut Port<'_>) -> u64 {
        let spare = &self.spare[core];
        port.work(5);
        let free: u64 = spare.load(port, 0);
        if free != 0 {
            let next: u64 = port.follow(free + 8);
            spare.store(port, 0, next);
            return free;
        }
        // The first core's counter is everybody's: there are as many versions as can be kept.
        let used: u64 = self.spare[0].load(port, 1);
        self.spare[0].store(port, 1, used + 1);
        self.versions.at(used)
    }

    fn free(&self, core: usize, port: &mut Port<'_>, version: u64) {
        let next: u64 = self.spare[core].load(port, 0);
        port.store(version + 8, next);
        self.spare[core].store(port, 0, version);
    }

    fn get(&mut self, core: usize, port: &mut Port<'_>) {
        let key = self.lanes[core].u64(..self.keys);
        port.work(20);
        let Some(row) = self.master.find(port, key) else {
            self.wrong_reads += 1;
            return;
        };
        let version: u64 = port.load(row + 16);
        let time: u64 = port.follow(version);
        let mut found = [0; VALUE_BYTES];
        port.load_bytes(version + 24, &mut found);
        port.work(10);
        self.wrong_reads += u64::from(found != value(key, time));
    }

    /// Writes the new version and its log entry; the master does not know of it yet.
    fn put(&mut self, core: usize, port: &mut Port<'_>, entry: u64, time: u64) {
        let key = self.lanes[core].u64(..self.keys);
        port.work(40); // drawing, the local store's look-up and its bookkeeping
        let version = self.allocate(core, port);
        port.store(version, time);
        port.store(version + 16, key);
        port.store_bytes(version + 24, &value(key, time));
        port.persist(version);
        port.persist(version + 64);
        let log = &self.logs[core];
        log.store(port, 2 + 2 * entry, key);
        log.store(port, 3 + 2 * entry, version);
        port.persist(log.at(2 + 2 * entry));
        self.puts.push(key as u32);
    }

    /// The master learns of one logged version.
    fn merge(&mut self, core: usize, port: &mut Port<'_>, entry: u64) {
        let log = &self.logs[core];
        let key: u64 = log.load(port, 2 + 2 * entry);
        let version: u64 = log.load(port, 3 + 2 * entry);
        let Some(row) = self.master.find(port, key) else {
            self.wrong_reads += 1;
            return;
        };
        let newest: u64 = port.load(row + 16);
        port.store(version + 8, newest);
        port.persist(version);
        port.store(row + 16, version);
        let mut last = version;
        for _ in 1..KEPT {
            port.work(2);
            last = port.follow(last + 8);
        }
        let dropped: u64 = port.follow(last + 8);
        port.store(last + 8, 0u64);
        port.persist(last);
        self.free(core, port, dropped);
        port.persist(row);
    }

    fn transaction(&mut self, core: usize, port: &mut Port<'_>) {
        for _ in 0..PUTS {
            self.get(core, port);
        }
        let begin: u64 = self.clock.load(port, 0);
        self.clock.store(port, 0, begin + PUTS);
        for entry in 0..PUTS {
            self.put(core, port, entry, begin + entry);
        }
        port.fence();
        self.logs[core].store(port, 0, PUTS);
        port.persist(self.logs[core].at(0));
        port.fence();
        for entry in 0..PUTS {
            self.merge(core, port, entry);
        }
        port.fence();
        self.logs[core].store(port, 0, 0);
        port.persist(self.logs[core].at(0));
        port.fence();
        port.commit();
    }
}

impl Workload for Echo {
    fn name(&self) -> &str {
        "echo"
    }

    fn footprint_bytes(&self) -> u64 {
        self.footprint
    }

    fn fill(&self, space: &mut Space) {
        for key in 0..self.keys {
            let row = self.master.fill(space, key);
            let mut older = 0;
            for time in 0..KEPT {
                let version = self.versions.at(KEPT * key + time);
                for (field, number) in [time, older, key].into_iter().enumerate() {
                    poke(space, version + 8 * field as u64, number);
                }
                let at = version as usize + 24;
                space.bytes_mut()[at..at + VALUE_BYTES].copy_from_slice(&value(key, time));
                older = version;
            }
            poke(space, row + 16, older);
        }
        self.spare[0].poke(space, 1, KEPT * self.keys);
        self.clock.poke(space, 0, KEPT);
    }

    fn run(&mut self, core: usize, port: &mut Port<'_>) -> Progress {
        while port.batched() < BATCH {
            self.transaction(core, port);
        }
        Progress::More
    }

    fn check(&self, space: &Space) -> Result<(), String> {
        if self.wrong_reads > 0 {
            return Err(format!("{} gets found no value or another's", self.wrong_reads));
        }
        let mut times: HashMap<u64, Vec<u64>> = HashMap::new();
        for (put, &key) in self.puts.iter().enumerate() {
            times.entry(key.into()).or_default().push(put as u64 + KEPT);
        }
        for key in 0..self.keys {
            let row = self
                .master
                .peek(space, key)
                .ok_or_else(|| format!("key {key} is gone"))?;
            let put = times.get(&key).into_iter().flatten().rev().copied();
            let mut version: u64 = peek(space, row + 16);
            for time in put.chain((0..KEPT).rev()).take(KEPT as usize) {
                let is_there = version != 0 && version + VERSION_BYTES <= space.len();
                if !is_there
                    || peek::<u64>(space, version) != time
                    || space.at(version + 24, VALUE_BYTES) != value(key, time)
                {
                    return Err(format!("key {key} lacks its version of time {time}"));
                }
                version = peek(space, version + 8);
            }
            if version != 0 {
                return Err(format!("key {key} has a version too many"));
            }
        }
        Ok(())
    }
}
