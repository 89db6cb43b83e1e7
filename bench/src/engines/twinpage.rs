//! The library: collections in a region, each operation in an update.
//!
//! At a pace the region makes its own checkpoints, behind the program's back; with each operation durable
//! the program waits for one after every update.

use super::schemes::open;
use crate::engine::{Account, Engine, Kind, Name, Pace, Plain, Result, StoreOptions};
use twinpage::collections::btree::Entry as TreeEntry;
use twinpage::collections::hash::Entry;
use twinpage::collections::{BTreeMap, HashMap, Vec};
use twinpage::{Region, Root, Update, View};

pub(crate) struct Twinpage {
    region: Region,
    pace: Pace,
}

pub(crate) enum Map<V: Plain> {
    Hash(Root<HashMap<'static, u64, V>>),
    Tree(Root<BTreeMap<'static, u64, V>>),
}

/// The region, and the update an operation is in.
pub(crate) struct Tx<'t, 'r> {
    region: &'t Region,
    update: Option<Update<'r>>,
}

impl<'r> Tx<'_, 'r> {
    #[inline]
    fn update(&self) -> &Update<'r> {
        self.update
            .as_ref()
            .expect("changes are made in `operate` and `load`")
    }

    #[inline]
    fn read<R>(&self, look: impl for<'v> FnOnce(&View<'v>) -> R) -> R {
        match &self.update {
            Some(update) => look(update),
            None => self.region.read(look),
        }
    }
}

pub(crate) fn failed(error: impl std::fmt::Display) -> String {
    format!("twinpage: {error}")
}

pub(super) fn root(name: Name) -> String {
    format!("{} of thread {}", name.table, name.thread)
}

impl Engine for Twinpage {
    type Tx<'t, 'r> = Tx<'t, 'r>;
    type Map<V: Plain> = Map<V>;
    type Array<V: Plain> = Root<Vec<'static, V>>;

    const WRITES_BY_CALLS: bool = false;

    fn open(place: &StoreOptions) -> Result<Self> {
        let mut options = Region::options();
        if let Pace::Every(every) = place.pace {
            options = options.every(every);
        }
        Ok(Twinpage {
            region: open(options, &place.directory.join("region"), place.form)?,
            pace: place.pace,
        })
    }

    fn map<V: Plain>(&self, name: Name, kind: Kind, _: u64) -> Result<Map<V>> {
        let name = root(name);
        Ok(match kind {
            Kind::Hash => Map::Hash(self.region.root(&name).map_err(failed)?),
            Kind::Tree => Map::Tree(self.region.root(&name).map_err(failed)?),
        })
    }

    fn array<V: Plain>(&self, name: Name, len: u64, first: impl Fn(u64) -> V) -> Result<Self::Array<V>> {
        let made = self.region.root_with::<Vec<V>>(&root(name), |update| {
            let mut values = Vec::with_capacity_in(len as usize, update.heap());
            values.extend((0..len).map(first));
            values
        });
        made.map_err(failed)
    }

    fn group(&self, work: &mut dyn FnMut(&mut Tx<'_, '_>) -> Result<()>) -> Result<()> {
        work(&mut Tx {
            region: &self.region,
            update: None,
        })?;
        match self.pace {
            Pace::Each => self.region.durable().map_err(failed),
            Pace::Every(_) => Ok(()),
        }
    }

    fn load(&self, work: &mut dyn FnMut(&mut Tx<'_, '_>) -> Result<()>) -> Result<()> {
        self.region.update(|update| {
            work(&mut Tx {
                region: &self.region,
                update: Some(*update),
            })
        })
    }

    #[inline]
    fn operate<R: 'static>(
        tx: &mut Tx<'_, '_>,
        work: impl FnOnce(&mut Tx<'_, '_>) -> Result<R>,
    ) -> Result<R> {
        let region = tx.region;
        region.update(|update| {
            work(&mut Tx {
                region,
                update: Some(*update),
            })
        })
    }

    fn get<V: Plain>(tx: &Tx<'_, '_>, map: &Map<V>, key: u64) -> Result<Option<V>> {
        Ok(tx.read(|view| match map {
            Map::Hash(map) => map.get(view).get(&key).copied(),
            Map::Tree(map) => map.get(view).get(&key).copied(),
        }))
    }

    fn insert<V: Plain>(tx: &mut Tx<'_, '_>, map: &mut Map<V>, key: u64, value: &V) -> Result<()> {
        match map {
            Map::Hash(map) => map.get_mut(tx.update()).insert(key, *value),
            Map::Tree(map) => map.get_mut(tx.update()).insert(key, *value),
        };
        Ok(())
    }

    fn toggle<V: Plain>(tx: &mut Tx<'_, '_>, map: &mut Map<V>, key: u64, value: &V) -> Result<bool> {
        match map {
            Map::Hash(map) => match map.get_mut(tx.update()).entry(key) {
                Entry::Occupied(there) => drop(there.remove()),
                Entry::Vacant(room) => {
                    room.insert(*value);
                    return Ok(true);
                }
            },
            Map::Tree(map) => match map.get_mut(tx.update()).entry(key) {
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
        tx: &mut Tx<'_, '_>,
        map: &mut Map<V>,
        key: u64,
        change: impl FnOnce(&mut V),
    ) -> Result<bool> {
        let value = match map {
            Map::Hash(map) => map.get_mut(tx.update()).get_mut(&key),
            Map::Tree(map) => map.get_mut(tx.update()).get_mut(&key),
        };
        Ok(value.map(change).is_some())
    }

    fn at<V: Plain>(tx: &Tx<'_, '_>, array: &Self::Array<V>, index: u64) -> Result<V> {
        Ok(tx.read(|view| array.get(view)[index as usize]))
    }

    fn swap<V: Plain>(tx: &mut Tx<'_, '_>, array: &mut Self::Array<V>, a: u64, b: u64) -> Result<()> {
        array.get_mut(tx.update()).swap(a as usize, b as usize);
        Ok(())
    }

    fn change<V: Plain>(
        tx: &mut Tx<'_, '_>,
        array: &mut Self::Array<V>,
        index: u64,
        change: impl FnOnce(&mut V),
    ) -> Result<()> {
        change(&mut array.get_mut(tx.update())[index as usize]);
        Ok(())
    }

    fn flush_behind(&self) -> Result<()> {
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
            stops: Some(all.stop_us.into()),
            fences: None,
        }))
    }

    fn close(self) -> Result<()> {
        self.region.close().map_err(failed)
    }
}
