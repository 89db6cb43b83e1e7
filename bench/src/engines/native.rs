//! The same structures, volatile: what nothing durable can be faster than.

use crate::engine::{Engine, Kind, Name, Plain, Result, StoreOptions};
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry as TreeEntry;

pub(crate) struct Native;

pub(crate) enum Map<V> {
    Hash(HashMap<u64, V>),
    Tree(BTreeMap<u64, V>),
}

impl Engine for Native {
    type Tx<'t, 'r> = ();
    type Map<V: Plain> = Map<V>;
    type Array<V: Plain> = Vec<V>;

    const LASTS: bool = false;
    const WRITES_BY_CALLS: bool = false;

    fn open(_: &StoreOptions) -> Result<Self> {
        Ok(Native)
    }

    fn map<V: Plain>(&self, _: Name, kind: Kind, _: u64) -> Result<Map<V>> {
        Ok(match kind {
            Kind::Hash => Map::Hash(HashMap::new()),
            Kind::Tree => Map::Tree(BTreeMap::new()),
        })
    }

    fn array<V: Plain>(&self, _: Name, len: u64, first: impl Fn(u64) -> V) -> Result<Vec<V>> {
        Ok((0..len).map(first).collect())
    }

    fn group(&self, work: &mut dyn FnMut(&mut ()) -> Result<()>) -> Result<()> {
        work(&mut ())
    }

    fn get<V: Plain>((): &(), map: &Map<V>, key: u64) -> Result<Option<V>> {
        Ok(match map {
            Map::Hash(map) => map.get(&key).copied(),
            Map::Tree(map) => map.get(&key).copied(),
        })
    }

    fn insert<V: Plain>((): &mut (), map: &mut Map<V>, key: u64, value: &V) -> Result<()> {
        match map {
            Map::Hash(map) => map.insert(key, *value),
            Map::Tree(map) => map.insert(key, *value),
        };
        Ok(())
    }

    fn toggle<V: Plain>((): &mut (), map: &mut Map<V>, key: u64, value: &V) -> Result<bool> {
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
        (): &mut (),
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

    fn at<V: Plain>((): &(), array: &Vec<V>, index: u64) -> Result<V> {
        Ok(array[index as usize])
    }

    fn swap<V: Plain>((): &mut (), array: &mut Vec<V>, a: u64, b: u64) -> Result<()> {
        array.swap(a as usize, b as usize);
        Ok(())
    }

    fn change<V: Plain>(
        (): &mut (),
        array: &mut Vec<V>,
        index: u64,
        change: impl FnOnce(&mut V),
    ) -> Result<()> {
        change(&mut array[index as usize]);
        Ok(())
    }
}
