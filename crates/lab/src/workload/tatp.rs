//! TATP (Telecom Application Transaction Processing, Nokia 2009) on hash tables.
//!
//! By default UPDATE_LOCATION alone, as transactional-memory papers run it, and the two tables it knows;
//! `tatp-mix` is the benchmark's mix of seven transactions, 80% of which only read. Cores share the tables; a row that is
//! written is locked by a word in it. A transaction is never cut by the end of a batch.
//!
//! ```text
//! subscriber 64        | head 16 | number 16 | bits u16 | lock u16 | hex 10 | bytes 10 | msc u32 | vlr u32 |
//! index 32             | head 16 | subscriber u64 | 0 |              by subscriber number
//! access info 32       | head 16 | data 10 | 0 |                     by subscriber and type 1 to 4
//! special facility 32  | head 16 | active u8 | error u8 | data a u8 | 0 | data b 5 |
//! call forwarding 48   | head 16 | end u64 | number 16 |             by facility and start 0, 8, 16
//! ```
//!
//! Check: every subscriber's row is what an ordinary map says after the same transactions, every
//! forwarding there is should be there, and what transactions read was right.

use super::layout::{Layout, peek, poke};
use super::table::{Table, scramble};
use super::{Progress, Workload};
use crate::space::{Port, Space};
use std::collections::{HashMap, HashSet};

const BATCH: usize = 256;
const BITS: u64 = 32;
const LOCK: u64 = 34;
const VLR: u64 = 60;
const FACILITY_DATA_A: u64 = 18;

pub(super) struct Tatp {
    mix: bool,
    seed: u64,
    subscribers: u64,
    subscriber: Table,
    index: Table,
    access: Table,
    facility: Table,
    forwarding: Table,
    footprint: u64,
    lanes: Vec<fastrand::Rng>,
    /// What was written, in order: the oracle does it again.
    log: Vec<Written>,
    wrong_reads: u64,
}

#[derive(Clone, Copy)]
enum Written {
    Location { subscriber: u32, vlr: u32 },
    Bit { subscriber: u32, bit: u16 },
    DataA { facility: u64, data: u8 },
    Forward { key: u64 },
    Unforward { key: u64 },
}

/// The number a subscriber is called by: a permutation of the subscribers, so that the index is looked up
/// elsewhere than the table.
fn number(subscriber: u64) -> u64 {
    scramble(0x7a79, subscriber)
}

fn typed(subscriber: u64, kind: u64) -> u64 {
    subscriber << 2 | kind
}

fn timed(facility: u64, start: u64) -> u64 {
    facility << 2 | start
}

impl Tatp {
    pub(super) fn new(bytes: u64, cores: usize, seed: u64, mix: bool) -> Tatp {
        let row = Table::bytes_per_row;
        // 2.5 access infos and facilities a subscriber, 1.5 forwardings a facility and room for more.
        let others = if mix { 5 * row(32) + 15 * row(48) / 2 } else { 0 };
        let each = row(64) + row(32) + others;
        let subscribers = (bytes / each).clamp(64, u32::MAX.into());
        let mut layout = Layout::default();
        let mut table = |rows, bytes| Table::new(&mut layout, rows, bytes);
        let other = if mix { subscribers } else { 1 };
        Tatp {
            mix,
            seed,
            subscribers,
            subscriber: table(subscribers, 64),
            index: table(subscribers, 32),
            access: table(4 * other, 32),
            facility: table(4 * other, 32),
            forwarding: table(12 * other, 48),
            footprint: layout.bytes(),
            lanes: (0..cores as u64)
                .map(|core| fastrand::Rng::with_seed(scramble(seed, core)))
                .collect(),
            log: Vec::new(),
            wrong_reads: 0,
        }
    }

    /// Types 1 to 4 that a subscriber has: 1 to 4 of them, as the benchmark draws them; none where only
    /// locations are updated.
    fn kinds(&self, subscriber: u64, salt: u64) -> impl Iterator<Item = u64> + use<> {
        let drawn = scramble(self.seed ^ salt, subscriber);
        let (count, first) = if self.mix {
            (1 + drawn % 4, drawn >> 8)
        } else {
            (0, 0)
        };
        (0..count).map(move |i| (first + i) % 4)
    }

    /// Start times at which a facility forwards at first: none to three.
    fn starts(&self, facility: u64) -> impl Iterator<Item = u64> + use<> {
        let count = scramble(self.seed ^ 3, facility) % 4;
        0..count
    }

    /// The benchmark's skewed draw of a subscriber.
    fn draw(&mut self, core: usize) -> u64 {
        let a = match self.subscribers {
            0..=1_000_000 => 65_535,
            1_000_001..=10_000_000 => 1_048_575,
            _ => 2_097_151,
        };
        let random = &mut self.lanes[core];
        (random.u64(0..=a) | random.u64(1..=self.subscribers)) % self.subscribers
    }

    fn lock(port: &mut Port<'_>, row: u64) {
        port.work(2); // a compare and swap, and its branch
        let _: u16 = port.load(row + LOCK);
        port.store(row + LOCK, 1u16);
    }

    fn unlock(port: &mut Port<'_>, row: u64) {
        port.store(row + LOCK, 0u16);
    }

    /// A row that must be there.
    fn there(&mut self, row: Option<u64>) -> u64 {
        self.wrong_reads += u64::from(row.is_none());
        row.unwrap_or(self.subscriber.first_row())
    }

    fn update_location(&mut self, core: usize, port: &mut Port<'_>) {
        let subscriber = self.draw(core);
        let vlr = self.lanes[core].u32(..);
        port.work(60); // drawing, building the number, begin and end of the transaction
        let index = self.index.find(port, number(subscriber));
        let index = self.there(index);
        let id: u64 = port.load(index + 16);
        let row = self.subscriber.find(port, id);
        let row = self.there(row);
        Self::lock(port, row);
        port.store(row + VLR, vlr);
        Self::unlock(port, row);
        self.wrong_reads += u64::from(id != subscriber);
        let subscriber = subscriber as u32;
        self.log.push(Written::Location { subscriber, vlr });
    }

    fn get_subscriber(&mut self, core: usize, port: &mut Port<'_>) {
        let subscriber = self.draw(core);
        port.work(50);
        let row = self.subscriber.find(port, subscriber);
        let row = self.there(row);
        let mut fields = [0; 48];
        port.load_bytes(row + 16, &mut fields);
        port.work(40); // unpacking into the result
        self.wrong_reads += u64::from(fields[..8] != number(subscriber).to_le_bytes());
    }

    fn get_access(&mut self, core: usize, port: &mut Port<'_>) {
        let subscriber = self.draw(core);
        let kind = self.lanes[core].u64(..4);
        port.work(50);
        let row = self.access.find(port, typed(subscriber, kind));
        let expected = self.kinds(subscriber, 1).any(|one| one == kind);
        self.wrong_reads += u64::from(row.is_some() != expected);
        if let Some(row) = row {
            let mut data = [0; 10];
            port.load_bytes(row + 16, &mut data);
            port.work(10);
        }
    }

    fn get_destination(&mut self, core: usize, port: &mut Port<'_>) {
        let facility = typed(self.draw(core), self.lanes[core].u64(..4));
        let from = self.lanes[core].u64(..3);
        port.work(60);
        let Some(row) = self.facility.find(port, facility) else {
            return;
        };
        if port.load::<u8>(row + 16) == 0 {
            return; // not active
        }
        for start in 0..=from {
            if let Some(row) = self.forwarding.find(port, timed(facility, start)) {
                let end: u64 = port.load(row + 16);
                let number: u64 = port.load(row + 24);
                port.work(6);
                self.wrong_reads += u64::from(number != scramble(end, timed(facility, start)));
            }
        }
    }

    fn update_subscriber(&mut self, core: usize, port: &mut Port<'_>) {
        let subscriber = self.draw(core);
        let random = &mut self.lanes[core];
        let (bit, data, kind) = (random.u16(..2), random.u8(..), random.u64(..4));
        port.work(60);
        let row = self.subscriber.find(port, subscriber);
        let row = self.there(row);
        Self::lock(port, row);
        let bits: u16 = port.load(row + BITS);
        port.store(row + BITS, bits & !1 | bit);
        let facility = typed(subscriber, kind);
        if let Some(row) = self.facility.find(port, facility) {
            port.store(row + FACILITY_DATA_A, data);
            self.log.push(Written::DataA { facility, data });
        }
        Self::unlock(port, row);
        let subscriber = subscriber as u32;
        self.log.push(Written::Bit { subscriber, bit });
    }

    fn change_forwarding(&mut self, core: usize, port: &mut Port<'_>, insert: bool) {
        let subscriber = self.draw(core);
        let random = &mut self.lanes[core];
        let (kind, start) = (random.u64(..4), random.u64(..3));
        let end = start * 8 + random.u64(1..=8);
        port.work(70);
        let index = self.index.find(port, number(subscriber));
        let index = self.there(index);
        let _: u64 = port.load(index + 16);
        let facility = typed(subscriber, kind);
        let key = timed(facility, start);
        if !insert {
            if self.forwarding.remove(port, key) {
                self.log.push(Written::Unforward { key });
            }
        } else if self.facility.find(port, facility).is_some() && self.forwarding.find(port, key).is_none() {
            // Every facility has room for its three.
            if let Some(row) = self.forwarding.insert(port, key) {
                port.store(row + 16, end);
                port.store_bytes(row + 24, &[scramble(end, key).to_le_bytes(), [0; 8]].concat());
                self.log.push(Written::Forward { key });
            }
        }
    }

    fn transaction(&mut self, core: usize, port: &mut Port<'_>) {
        match if self.mix { self.lanes[core].u8(..100) } else { 82 } {
            0..35 => self.get_subscriber(core, port),
            35..70 => self.get_access(core, port),
            70..80 => self.get_destination(core, port),
            80..82 => self.update_subscriber(core, port),
            82..96 => self.update_location(core, port),
            96..98 => self.change_forwarding(core, port, true),
            _ => self.change_forwarding(core, port, false),
        }
        port.commit();
    }

    /// What ordinary maps say after the same transactions.
    fn expected(&self) -> Expected {
        let mut expected = Expected {
            forwardings: HashSet::new(),
            ..Expected::default()
        };
        for subscriber in 0..self.subscribers {
            for kind in self.kinds(subscriber, 2) {
                let facility = typed(subscriber, kind);
                expected
                    .forwardings
                    .extend(self.starts(facility).map(|start| timed(facility, start)));
            }
        }
        for &written in &self.log {
            match written {
                Written::Location { subscriber, vlr } => {
                    expected.locations.insert(subscriber, vlr);
                }
                Written::Bit { subscriber, bit } => {
                    expected.bits.insert(subscriber, bit);
                }
                Written::DataA { facility, data } => {
                    expected.data.insert(facility, data);
                }
                Written::Forward { key } => {
                    expected.forwardings.insert(key);
                }
                Written::Unforward { key } => {
                    expected.forwardings.remove(&key);
                }
            }
        }
        expected
    }
}

#[derive(Default)]
struct Expected {
    locations: HashMap<u32, u32>,
    bits: HashMap<u32, u16>,
    data: HashMap<u64, u8>,
    forwardings: HashSet<u64>,
}

impl Workload for Tatp {
    fn name(&self) -> &str {
        if self.mix { "tatp-mix" } else { "tatp" }
    }

    fn footprint_bytes(&self) -> u64 {
        self.footprint
    }

    fn fill(&self, space: &mut Space) {
        for subscriber in 0..self.subscribers {
            let row = self.subscriber.fill(space, subscriber);
            let drawn = scramble(self.seed, subscriber);
            poke(space, row + 16, number(subscriber));
            poke(space, row + BITS, drawn as u16);
            poke(space, row + 36, drawn);
            poke(space, row + VLR, drawn as u32);
            let index = self.index.fill(space, number(subscriber));
            poke(space, index + 16, subscriber);
            for kind in self.kinds(subscriber, 1) {
                let row = self.access.fill(space, typed(subscriber, kind));
                poke(space, row + 16, drawn);
            }
            for kind in self.kinds(subscriber, 2) {
                let facility = typed(subscriber, kind);
                let row = self.facility.fill(space, facility);
                // 85% are active.
                poke(
                    space,
                    row + 16,
                    u8::from(scramble(self.seed ^ 4, facility) % 100 < 85),
                );
                for start in self.starts(facility) {
                    let (key, end) = (timed(facility, start), start * 8 + 8);
                    let row = self.forwarding.fill(space, key);
                    poke(space, row + 16, end);
                    poke(space, row + 24, scramble(end, key));
                }
            }
        }
    }

    fn run(&mut self, core: usize, port: &mut Port<'_>) -> Progress {
        while port.batched() < BATCH {
            self.transaction(core, port);
        }
        Progress::More
    }

    fn check(&self, space: &Space) -> Result<(), String> {
        if self.wrong_reads > 0 {
            return Err(format!("{} reads found what is not there", self.wrong_reads));
        }
        let expected = self.expected();
        for subscriber in 0..self.subscribers {
            let row = self.subscriber.peek(space, subscriber);
            let row = row.ok_or_else(|| format!("subscriber {subscriber} is gone"))?;
            let drawn = scramble(self.seed, subscriber);
            let key = subscriber as u32;
            let vlr = expected.locations.get(&key).copied().unwrap_or(drawn as u32);
            let bits = drawn as u16;
            let bits = expected.bits.get(&key).map_or(bits, |bit| bits & !1 | bit);
            let found = (peek::<u32>(space, row + VLR), peek::<u16>(space, row + BITS));
            if found != (vlr, bits) || peek::<u64>(space, row + 16) != number(subscriber) {
                return Err(format!(
                    "subscriber {subscriber} has location and bits {found:x?}, not {:x?}",
                    (vlr, bits)
                ));
            }
        }
        for (&facility, &data) in &expected.data {
            let row = self.facility.peek(space, facility);
            if row.map(|row| peek::<u8>(space, row + FACILITY_DATA_A)) != Some(data) {
                return Err(format!(
                    "facility {facility} has not the data {data} written last"
                ));
            }
        }
        let forwardings = self.forwarding.count(space)?;
        let missing = expected
            .forwardings
            .iter()
            .find(|&&key| self.forwarding.peek(space, key).is_none());
        if missing.is_some() || forwardings != expected.forwardings.len() as u64 {
            return Err(format!(
                "{forwardings} forwardings, {} expected; {missing:?} is missing",
                expected.forwardings.len()
            ));
        }
        Ok(())
    }
}
