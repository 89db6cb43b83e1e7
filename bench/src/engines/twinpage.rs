//! The library: collections in a region, each operation in an update.
//!
//! At a pace the region makes its own checkpoints, behind the program's back; with each operation durable
//! the program waits for one after every update.

use crate::engine::{Account, Engine, Kind, Name, Pace, Place, Plain, Result};
use twinpage::collections::btree::Entry as TreeEntry;
use twinpage::collections::hash::Entry;
use twinpage::collections::{BTreeMap, HashMap, Vec};
use twinpage::{Options, Region, Root};
use twinpage_core::SchemeKind;

pub(crate) struct Twinpage {
    region: Region,
    pace: Pace,
}

pub(crate) enum Map<V: Plain> {
    Hash(Root<HashMap<u64, V>>),
    Tree(Root<BTreeMap<u64, V>>),
}

pub(crate) fn failed(error: impl std::fmt::Display) -> String {
    format!("twinpage: {error}")
}

/// With the scheme, or as the library chooses.
pub(crate) fn options(scheme: Option<SchemeKind>) -> Options {
    let options = Region::options();
    match scheme {
        Some(scheme) => options.scheme(scheme),
        None => options,
    }
}

fn root(name: Name) -> String {
    format!("{} of thread {}", name.table, name.thread)
}

impl Engine for Twinpage {
    type Tx<'t> = &'t Region;
    type Map<V: Plain> = Map<V>;
    type Array<V: Plain> = Root<Vec<V>>;

    const WRITES_BY_CALLS: bool = false;

    fn open(place: &Place) -> Result<Self> {
        let mut options = options(place.scheme);
        if let Pace::Every(every) = place.pace {
            options = options.every(every);
        }
        Ok(Twinpage {
            region: options.open(place.directory.join("region")).map_err(failed)?,
            pace: place.pace,
        })
    }

    fn map<V: Plain>(&self, name: Name, kind: Kind, _: u64) -> Result<Map<V>> {
        let name = root(name);
        Ok(match kind {
            Kind::Hash => Map::Hash(self.region.root(&name, HashMap::new_in).map_err(failed)?),
            Kind::Tree => Map::Tree(self.region.root(&name, BTreeMap::new_in).map_err(failed)?),
        })
    }

    fn array<V: Plain>(&self, name: Name, len: u64, first: impl Fn(u64) -> V) -> Result<Self::Array<V>> {
        let made = self.region.root(&root(name), |heap| {
            let mut values = Vec::with_capacity_in(len as usize, heap);
            values.extend((0..len).map(first));
            values
        });
        made.map_err(failed)
    }

    fn group(&self, work: &mut dyn FnMut(&mut &Region) -> Result<()>) -> Result<()> {
        work(&mut &self.region)?;
        match self.pace {
            Pace::Each => self.region.durable().map_err(failed),
            Pace::Every(_) => Ok(()),
        }
    }

    fn load(&self, work: &mut dyn FnMut(&mut &Region) -> Result<()>) -> Result<()> {
        self.region.update(|_| work(&mut &self.region))
    }

    #[inline]
    fn operate<R: 'static>(tx: &mut &Region, work: impl FnOnce(&mut &Region) -> Result<R>) -> Result<R> {
        let region = *tx;
        region.update(|_| work(tx))
    }

    fn get<V: Plain>(_: &&Region, map: &Map<V>, key: u64) -> Result<Option<V>> {
        Ok(match map {
            Map::Hash(map) => map.get(&key).copied(),
            Map::Tree(map) => map.get(&key).copied(),
        })
    }

    fn insert<V: Plain>(_: &mut &Region, map: &mut Map<V>, key: u64, value: &V) -> Result<()> {
        match map {
            Map::Hash(map) => map.insert(key, *value),
            Map::Tree(map) => map.insert(key, *value),
        };
        Ok(())
    }

    fn toggle<V: Plain>(_: &mut &Region, map: &mut Map<V>, key: u64, value: &V) -> Result<bool> {
        match map {
            Map::Hash(map) => match map.entry(key) {
                Entry::Occupied(there) => drop(there.remove()),
                Entry::Vacant(room) => {
                    room.insert(*value);
                    return Ok(true);
                }
            },
            Map::Tree(map) => match map.entry(key) {
                TreeEntry::Occupied(there) => drop(there.remove()),
                TreeEntry::Vacant(room) => {
                    room.insert(*value);
                    return Ok(true);
                }
            },
        }
        Ok(false)
    }

    fn modify<V: Plain>(
        _: &mut &Region,
        map: &mut Map<V>,
        key: u64,
        change: impl FnOnce(&mut V),
    ) -> Result<bool> {
        let value = match map {
            Map::Hash(map) => map.get_mut(&key),
            Map::Tree(map) => map.get_mut(&key),
        };
        Ok(value.map(change).is_some())
    }

    fn at<V: Plain>(_: &&Region, array: &Self::Array<V>, index: u64) -> Result<V> {
        Ok(array[index as usize])
    }

    fn swap<V: Plain>(_: &mut &Region, array: &mut Self::Array<V>, a: u64, b: u64) -> Result<()> {
        array.swap(a as usize, b as usize);
        Ok(())
    }

    fn change<V: Plain>(
        _: &mut &Region,
        array: &mut Self::Array<V>,
        index: u64,
        change: impl FnOnce(&mut V),
    ) -> Result<()> {
        change(&mut array[index as usize]);
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        self.region.durable().map_err(failed)
    }

    fn filled(&self) {
        self.region.forget_statistics();
    }

    fn account(&self) -> Result<Option<Account>> {
        let all = self.region.statistics();
        Ok(Some(Account {
            written_bytes: all.traffic.total_bytes(),
            changed_line_bytes: all.changed_bytes,
            commits: all.epochs,
            stops: all.stop_us.into(),
        }))
    }

    fn close(self) -> Result<()> {
        self.region.close().map_err(failed)
    }
}
