//! A cache that outlives its program and is larger than the memory it may take: the least recently used value goes.
//!
//! ```text
//! cargo run --release --example cache -- cache.twin 200000     # so many requests; run it twice
//! cargo run --release --example cache -- cache.twin check
//! ```
//!
//! In a package of its own it needs the edition of 2024, `twinpage`, and `fastrand`.
//!
//! Values of 4 KiB that are slow to make are kept in a map, linked from the newest use to the oldest. The region holds
//! 64 MiB of them and has a memory budget of 8 MiB: pages that were not used for long go, and are loaded from the file
//! when they are touched. A second run, or one after a kill, begins with a full cache.

use std::error::Error;
use std::path::Path;
use std::time::Duration;
use twinpage::collections::{HashMap, Vec};
use twinpage::{Persist, Region, Root};

/// Bytes of a value, values in the cache, and bytes of memory for them.
const VALUE: usize = 4096;
const VALUES: usize = 16 << 10;
const BUDGET: usize = 8 << 20;

/// A value, between those that were used after and before it.
#[derive(Persist)]
struct Entry<'r> {
    value: Vec<'r, u8>,
    newer: Option<u64>,
    older: Option<u64>,
}

/// The cache.
#[derive(Persist)]
struct Cache<'r> {
    entries: HashMap<'r, u64, Entry<'r>>,
    newest: Option<u64>,
    oldest: Option<u64>,
    hits: u64,
    misses: u64,
}

impl<'r> Cache<'r> {
    /// The value of a key, which is the newest from now on.
    fn get(&mut self, key: u64) -> Option<&[u8]> {
        let mut entry = self.unlink(key)?;
        entry.older = self.newest;
        self.link(key, entry);
        self.hits += 1;
        Some(&self.entries[&key].value)
    }

    /// Keeps a value, in the place of the oldest ones.
    fn put(&mut self, key: u64, value: Vec<'r, u8>) {
        self.unlink(key);
        while self.entries.len() >= VALUES
            && let Some(oldest) = self.oldest
        {
            self.unlink(oldest);
        }
        let (newer, older) = (None, self.newest);
        self.link(key, Entry { value, newer, older });
        self.misses += 1;
    }

    fn link(&mut self, key: u64, entry: Entry<'r>) {
        match entry.older.and_then(|older| self.entries.get_mut(&older)) {
            Some(older) => older.newer = Some(key),
            None => self.oldest = Some(key),
        }
        self.newest = Some(key);
        self.entries.insert(key, entry);
    }

    fn unlink(&mut self, key: u64) -> Option<Entry<'r>> {
        let entry = self.entries.remove(&key)?;
        match entry.newer.and_then(|newer| self.entries.get_mut(&newer)) {
            Some(newer) => newer.older = entry.older,
            None => self.newest = entry.older,
        }
        match entry.older.and_then(|older| self.entries.get_mut(&older)) {
            Some(older) => older.newer = entry.newer,
            None => self.oldest = entry.newer,
        }
        Some(Entry { newer: None, ..entry })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: std::vec::Vec<_> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [file, word] if word == "check" => {
            let requests = check(Path::new(file))?;
            println!("every value is right, after {requests} requests");
            Ok(())
        }
        [file, requests] => ask(Path::new(file), requests.parse()?),
        _ => Err("usage: cache FILE REQUESTS, cache FILE check".into()),
    }
}

fn open(file: &Path) -> twinpage::Result<(Region, Root<Cache<'static>>)> {
    let options = Region::options().every(Duration::from_millis(16));
    let region = options.memory_budget(BUDGET).open(file)?;
    let cache = region.root("cache")?;
    Ok((region, cache))
}

/// Asks for so many values, small keys more often than large ones, and says how many were there.
pub(crate) fn ask(file: &Path, requests: u64) -> Result<(), Box<dyn Error>> {
    let (region, mut cache) = open(file)?;
    let (mut random, mut hits) = (fastrand::Rng::new(), 0);
    for _ in 0..requests {
        let key = random.u64(..).trailing_zeros() as u64 * 4096 + random.u64(..4096);
        // Asked and answered in updates; what is slow to make is made between them.
        let found = region.update(|u| cache.get_mut(u).get(key).map(<[u8]>::to_vec));
        match found {
            Some(found) => {
                assert_eq!(found, make(key));
                hits += 1;
            }
            None => {
                let value = make(key);
                region.update(|u| {
                    let value = u.collect(value.iter().copied());
                    cache.get_mut(u).put(key, value);
                });
            }
        }
    }
    let kept = region.read(|v| cache.get(v).entries.len());
    println!(
        "{hits} of {requests} were there; {kept} values are kept: {} MiB",
        (kept * VALUE) >> 20
    );
    println!("{:?}", region.statistics().paging);
    Ok(region.close()?)
}

/// Looks at everything there is: how many requests it has seen, or what is wrong.
pub(crate) fn check(file: &Path) -> Result<u64, Box<dyn Error>> {
    let (region, cache) = open(file)?;
    region.read(|v| {
        let cache = cache.get(v);
        let (mut newer, mut at, mut seen) = (None, cache.newest, 0);
        while let Some(key) = at {
            let entry = cache
                .entries
                .get(&key)
                .ok_or("a use of a value that is not there")?;
            if entry.newer != newer || entry.value[..] != make(key) {
                return Err(format!("the value of {key} is not right").into());
            }
            (newer, at, seen) = (Some(key), entry.older, seen + 1);
            if seen > cache.entries.len() {
                return Err("the uses go round".into());
            }
        }
        match (cache.oldest == newer, seen == cache.entries.len(), seen <= VALUES) {
            (true, true, true) => Ok(cache.hits + cache.misses),
            _ => Err(format!("{seen} of {} values are linked", cache.entries.len()).into()),
        }
    })
}

/// The value of a key, which stands for one that is slow to make.
fn make(key: u64) -> std::vec::Vec<u8> {
    let mut random = fastrand::Rng::with_seed(key);
    (0..VALUE / 8)
        .flat_map(|_| random.u64(..).to_le_bytes())
        .collect()
}
