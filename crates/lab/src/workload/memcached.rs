//! A Memcached-like cache (SSP, Table 3: four clients, 90% of the requests SET): a hash table of items on one list from the
//! latest used to the one that goes next, in a memory of fixed size.
//!
//! A request is several sections, as Memcached 1.2 has several functions that each hold the lock of the cache: SET
//! takes room for an item, stores it in the place of the one with its key, and lets go of it; GET finds an item and lets go
//! of it. An item that a thread holds is neither freed nor evicted. Memcached moves an item that was read to the front of
//! the list once a minute at most: never in these runs.
//!
//! ```text
//! ends    | latest u64 | oldest u64 |                     of the list; 0: none
//! heads   | first item of chain 0 u64 | of chain 1 u64 | ...
//! item 64 | older u64 | newer u64 | next of chain u64 | holders u32 | is linked u32 | key u64 | value 24 |
//! spare   | of the pool of items |
//! ```
//!
//! Open: the paper gives neither the sizes of keys and values nor how they are drawn. Keys are drawn alike, a value is
//! short: Table 3's three lines leave no room for more. Memory holds three quarters of the keys, and is full at first.
//!
//! Check: list, chains, values and holders are what an ordinary map and list give after the same requests, and no item is
//! lost.

use super::layout::{Array, Layout, peek, poke};
use super::pool::Pool;
use super::table::scramble;
use super::turns::{Outside, Turns};
use super::{Progress, Workload};
use crate::space::{Port, Space};
use std::collections::{BTreeMap, HashMap};

const ITEM: u64 = 64;
const OLDER: u64 = 0;
const NEWER: u64 = 8;
const CHAIN: u64 = 16;
const HOLDERS: u64 = 24;
const LINKED: u64 = 28;
const KEY: u64 = 32;
const VALUE: u64 = 40;
/// Of the requests.
const SET_PERCENT: u8 = 90;

type Value = [u64; 3];

/// What a value is: it follows from the number of the store that wrote it.
fn value(store: u64) -> Value {
    [store, scramble(store, 1), scramble(store, 2)]
}

/// What a thread does next.
#[derive(Clone, Copy)]
enum Stage {
    Request,
    /// It has room for an item of this key.
    Room {
        item: u64,
        key: u64,
    },
    /// It lets go of this item, if it is there: `stamp` names it in the oracle.
    Release {
        item: u64,
        stamp: u64,
    },
}

struct Thread {
    random: fastrand::Rng,
    stage: Stage,
}

/// What the cache should hold.
#[derive(Default)]
struct Oracle {
    /// The list, the oldest first: each store has a stamp.
    items: BTreeMap<u64, (u64, Value)>,
    stamps: HashMap<u64, u64>,
    wrong: u64,
}

/// The program of some threads.
pub struct Memcached {
    keys: u64,
    ends: Array<u64>,
    heads: Array<u64>,
    items: Pool,
    footprint: u64,
    turns: Turns,
    threads: Vec<Thread>,
    oracle: Oracle,
    stores: u64,
    seed: u64,
}

impl Memcached {
    /// For clients that ask for that many keys, with instructions outside the cache for each access of a section.
    /// Its memory begins `at` a page.
    ///
    /// # Panics
    /// With less than 64 keys.
    #[must_use]
    pub fn new(keys: u64, threads: usize, outside: Outside, at: u64, seed: u64) -> Memcached {
        assert!(keys >= 64, "a cache needs some keys");
        let room = keys / 4 * 3;
        let mut layout = Layout::from(at);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut thread = |_| Thread {
            random: random.fork(),
            stage: Stage::Request,
        };
        let threads: Vec<Thread> = (0..threads).map(&mut thread).collect();
        let mut oracle = Oracle::default();
        for (stamp, key) in first_keys(seed, keys, room).into_iter().enumerate() {
            oracle.items.insert(stamp as u64, (key, value(0)));
            oracle.stamps.insert(key, stamp as u64);
        }
        Memcached {
            keys,
            ends: layout.array(2),
            heads: layout.array(room.next_power_of_two()),
            items: Pool::new(&mut layout, room, ITEM),
            footprint: layout.bytes(),
            turns: Turns::new(threads.len(), outside),
            threads,
            oracle,
            stores: room,
            seed,
        }
    }

    fn chain(&self, key: u64) -> u64 {
        self.heads.at(scramble(0x6d63, key) & (self.heads.len() - 1))
    }

    /// The word that leads to the item of a key, and the item; 0 if it is not there.
    fn find(&self, port: &mut Port<'_>, key: u64) -> (u64, u64) {
        port.work(8); // hashing
        let mut link = self.chain(key);
        let mut item: u64 = port.load(link);
        while item != 0 {
            port.work(3);
            if port.follow::<u64>(item + KEY) == key {
                break;
            }
            link = item + CHAIN;
            item = port.load(link);
        }
        (link, item)
    }

    /// Takes an item from chain and list.
    fn unlink(&self, port: &mut Port<'_>, link: u64, item: u64) {
        let next: u64 = port.load(item + CHAIN);
        port.store(link, next);
        let [older, newer] = [OLDER, NEWER].map(|field| port.load::<u64>(item + field));
        let [latest, oldest] = [0, 1].map(|end| self.ends.at(end));
        port.store(if newer == 0 { latest } else { newer + OLDER }, older);
        port.store(if older == 0 { oldest } else { older + NEWER }, newer);
        port.store(item + LINKED, 0u32);
    }

    /// Puts an item into its chain and at the front of the list.
    fn link(&self, port: &mut Port<'_>, key: u64, item: u64) {
        let chain = self.chain(key);
        let first: u64 = port.load(chain);
        port.store(item + CHAIN, first);
        port.store(chain, item);
        let latest = self.ends.load(port, 0);
        port.store(item + OLDER, latest);
        port.store(item + NEWER, 0u64);
        match latest {
            0 => self.ends.store(port, 1, item),
            latest => port.store(latest + NEWER, item),
        }
        self.ends.store(port, 0, item);
        port.store(item + LINKED, 1u32);
    }

    /// Takes the oldest item that no thread holds out of the cache, and returns it.
    fn evict(&mut self, port: &mut Port<'_>) -> u64 {
        let mut item = self.ends.load(port, 1);
        while port.load::<u32>(item + HOLDERS) != 0 {
            item = port.follow(item + NEWER);
        }
        let key: u64 = port.load(item + KEY);
        let (link, found) = self.find(port, key);
        self.unlink(port, link, found);
        self.evicted(key);
        item
    }

    /// The oracle evicts too: the oldest that no thread holds.
    fn evicted(&mut self, key: u64) {
        let held = self.held();
        let oldest = self.oracle.items.iter().find(|(stamp, _)| !held.contains(stamp));
        let oldest = oldest.map(|(&stamp, &(key, _))| (stamp, key));
        match oldest.filter(|(_, oldest)| *oldest == key) {
            Some((stamp, _)) => drop(self.oracle.items.remove(&stamp)),
            None => self.oracle.wrong += 1,
        }
        self.oracle.stamps.remove(&key);
    }

    /// Stamps of the items that threads hold.
    fn held(&self) -> Vec<u64> {
        let of = |thread: &Thread| match thread.stage {
            Stage::Release { stamp, .. } => Some(stamp),
            _ => None,
        };
        self.threads.iter().filter_map(of).collect()
    }

    fn room(&mut self, port: &mut Port<'_>) -> u64 {
        let item = match self.items.take(port) {
            Some(item) => item,
            None => self.evict(port),
        };
        port.store(item + HOLDERS, 1u32);
        port.store(item + LINKED, 0u32);
        item
    }

    fn set(&mut self, port: &mut Port<'_>, key: u64, item: u64) -> u64 {
        let stamp = self.stores;
        self.stores += 1;
        let value = value(stamp);
        let bytes: Vec<u8> = [key]
            .iter()
            .chain(&value)
            .flat_map(|word| word.to_le_bytes())
            .collect();
        port.store_bytes(item + KEY, &bytes);
        let (link, old) = self.find(port, key);
        if old != 0 {
            self.unlink(port, link, old);
            if port.load::<u32>(old + HOLDERS) == 0 {
                self.items.give(port, old);
            }
        }
        self.link(port, key, item);
        if let Some(old) = self.oracle.stamps.insert(key, stamp) {
            self.oracle.items.remove(&old);
        }
        self.oracle.items.insert(stamp, (key, value));
        stamp
    }

    /// Finds an item, holds it, and reads its value. The item and its stamp.
    fn get(&mut self, port: &mut Port<'_>, key: u64) -> Option<(u64, u64)> {
        let (_, item) = self.find(port, key);
        let stamp = self.oracle.stamps.get(&key).copied();
        self.oracle.wrong += u64::from(stamp.is_some() != (item != 0));
        let stamp = stamp.filter(|_| item != 0)?;
        let holders: u32 = port.load(item + HOLDERS);
        port.store(item + HOLDERS, holders + 1);
        let mut bytes = [0; 24];
        port.load_bytes(item + VALUE, &mut bytes);
        let found = std::array::from_fn(|word| u64::from_le_bytes(bytes.as_chunks().0[word]));
        self.oracle.wrong += u64::from(self.oracle.items[&stamp].1 != found);
        Some((item, stamp))
    }

    fn release(&self, port: &mut Port<'_>, item: u64) {
        let holders: u32 = port.load(item + HOLDERS);
        port.store(item + HOLDERS, holders - 1);
        if holders == 1 && port.load::<u32>(item + LINKED) == 0 {
            self.items.give(port, item);
        }
    }

    fn section(&mut self, thread: usize, port: &mut Port<'_>) -> Stage {
        match self.threads[thread].stage {
            Stage::Request => {
                let random = &mut self.threads[thread].random;
                let key = random.u64(..self.keys);
                if random.u8(..100) < SET_PERCENT {
                    let item = self.room(port);
                    return Stage::Room { item, key };
                }
                match self.get(port, key) {
                    Some((item, stamp)) => Stage::Release { item, stamp },
                    None => Stage::Request,
                }
            }
            Stage::Room { item, key } => {
                let stamp = self.set(port, key, item);
                Stage::Release { item, stamp }
            }
            Stage::Release { item, .. } => {
                self.release(port, item);
                Stage::Request
            }
        }
    }
}

/// The keys that are there at first, the oldest first.
fn first_keys(seed: u64, keys: u64, room: u64) -> Vec<u64> {
    let mut random = fastrand::Rng::with_seed(seed ^ 0x6d65_6d63);
    let mut all: Vec<u64> = (0..keys).collect();
    random.shuffle(&mut all);
    all.truncate(room as usize);
    all
}

impl Workload for Memcached {
    fn name(&self) -> &str {
        "memcached"
    }

    fn footprint_bytes(&self) -> u64 {
        self.footprint
    }

    fn fill(&self, space: &mut Space) {
        let mut latest = 0;
        for key in first_keys(self.seed, self.keys, self.items.capacity()) {
            let item = self.items.fill(space);
            let chain = self.chain(key);
            let first: u64 = peek(space, chain);
            poke(space, item + CHAIN, first);
            poke(space, chain, item);
            poke(space, item + OLDER, latest);
            match latest {
                0 => self.ends.poke(space, 1, item),
                latest => poke(space, latest + NEWER, item),
            }
            poke(space, item + LINKED, 1u32);
            poke(space, item + KEY, key);
            for (word, number) in value(0).into_iter().enumerate() {
                poke(space, item + VALUE + word as u64 * 8, number);
            }
            latest = item;
        }
        self.ends.poke(space, 0, latest);
    }

    fn run(&mut self, core: usize, port: &mut Port<'_>) -> Progress {
        if let Some(progress) = self.turns.begin(core, port) {
            return progress;
        }
        port.work(20); // the lock
        self.threads[core].stage = self.section(core, port);
        self.turns.end(core, port);
        Progress::More
    }

    fn check(&self, space: &Space) -> Result<(), String> {
        if self.oracle.wrong > 0 {
            return Err(format!(
                "{} requests found or evicted a wrong item",
                self.oracle.wrong
            ));
        }
        let held = self.held();
        let is_item = |item: u64| self.items.is_one(item);
        let mut chained = HashMap::new();
        for chain in 0..self.heads.len() {
            let mut item = self.heads.peek(space, chain);
            while item != 0 {
                if !is_item(item) || chained.insert(item, chain).is_some() {
                    return Err(format!(
                        "chain {chain} leads to {item:#x}, which is no item of its own"
                    ));
                }
                item = peek(space, item + CHAIN);
            }
        }
        let mut item = self.ends.peek(space, 0);
        let mut newer = 0;
        for (stamp, (key, value)) in self.oracle.items.iter().rev() {
            if !is_item(item) || peek::<u64>(space, item + NEWER) != newer {
                return Err(format!("the list is broken at the item of key {key}"));
            }
            let found: Value = std::array::from_fn(|word| peek(space, item + VALUE + word as u64 * 8));
            if peek::<u64>(space, item + KEY) != *key || found != *value {
                return Err(format!("the item of key {key} is another, or has another value"));
            }
            let holders = held.iter().filter(|of| *of == stamp).count() as u32;
            if peek::<u32>(space, item + LINKED) != 1 || peek::<u32>(space, item + HOLDERS) != holders {
                return Err(format!("the item of key {key}: {holders} threads hold it"));
            }
            if chained.get(&item).map(|chain| self.heads.at(*chain)) != Some(self.chain(*key)) {
                return Err(format!("the item of key {key} is not in its chain"));
            }
            newer = item;
            item = peek(space, item + OLDER);
        }
        if (item, self.ends.peek(space, 1)) != (0, newer) || chained.len() != self.oracle.items.len() {
            return Err("list and chains have items that should not be there".into());
        }
        self.none_is_lost(space, chained.len() as u64)
    }
}

impl Memcached {
    /// Items are linked, free, or held by a thread alone.
    fn none_is_lost(&self, space: &Space, linked: u64) -> Result<(), String> {
        let mut alone: Vec<u64> = Vec::new();
        for thread in &self.threads {
            match thread.stage {
                Stage::Room { item, .. } => alone.push(item),
                Stage::Release { item, stamp } if !self.oracle.items.contains_key(&stamp) => alone.push(item),
                _ => {}
            }
        }
        alone.sort_unstable();
        alone.dedup();
        let free = self.items.free(space)?;
        let all = linked + free + alone.len() as u64;
        match all == self.items.capacity() {
            true => Ok(()),
            false => Err(format!(
                "{all} of {} items are accounted for",
                self.items.capacity()
            )),
        }
    }
}
