//! The library by failure-atomic sections: each operation is a section.
//!
//! * With each operation durable it is `Region::atomic`; at a pace `Region::atomic_within`, whose commits
//!   are made behind the program's back.
//! * A structure is taken once in a section. What is loaded is one section, with one inside for every value.

use super::failed;
use super::schemes::{Fences, open_counted};
use super::twinpage::root;
use crate::engine::{Account, Engine, Kind, Name, Pace, Plain, Result, StoreOptions};
use std::time::Duration;
use twinpage::collections::btree::Entry as TreeEntry;
use twinpage::collections::hash::Entry;
use twinpage::collections::{BTreeMap, HashMap, Vec};
use twinpage::{Handle, Region, Section, View};

pub(crate) struct Sections {
    region: Region,
    pace: Pace,
    fences: Fences,
}

pub(crate) enum Map<V: Plain> {
    Hash(Handle<HashMap<'static, u64, V>>),
    Tree(Handle<BTreeMap<'static, u64, V>>),
}

/// The region, and the section an operation is in.
pub(crate) struct Tx<'t, 'r> {
    region: &'t Region,
    pace: Pace,
    section: Option<Section<'r>>,
}

/// Why a section failed.
struct Failed(String);

impl From<twinpage::Error> for Failed {
    fn from(error: twinpage::Error) -> Failed {
        Failed(failed(error))
    }
}

impl<'r> Tx<'_, 'r> {
    /// In the section that the operation is in, or in one of its own.
    #[inline]
    fn change<R>(&self, change: impl for<'s> FnOnce(&Section<'s>) -> R) -> Result<R> {
        match &self.section {
            Some(section) => Ok(change(section)),
            None => atomic(self.region, |section| Ok(change(section))),
        }
    }

    #[inline]
    fn read<R>(&self, look: impl for<'v> FnOnce(&View<'v>) -> R) -> R {
        match &self.section {
            Some(section) => look(section),
            None => self.region.read(look),
        }
    }
}

fn atomic<R>(region: &Region, change: impl for<'s> FnOnce(&Section<'s>) -> Result<R>) -> Result<R> {
    let done = region.atomic(|section| change(section).map_err(Failed));
    done.map_err(|Failed(why)| why)
}

fn atomic_within<R>(
    region: &Region,
    bound: Duration,
    change: impl for<'s> FnOnce(&Section<'s>) -> Result<R>,
) -> Result<R> {
    let done = region.atomic_within(bound, |section| change(section).map_err(Failed));
    done.map_err(|Failed(why)| why)
}

impl Engine for Sections {
    type Tx<'t, 'r> = Tx<'t, 'r>;
    type Map<V: Plain> = Map<V>;
    type Array<V: Plain> = Handle<Vec<'static, V>>;

    const WRITES_BY_CALLS: bool = false;

    fn open(place: &StoreOptions) -> Result<Self> {
        let fences = Fences::default();
        let options = Region::options().sections();
        Ok(Sections {
            region: open_counted(options, &place.directory.join("region"), place.form, &fences)?,
            pace: place.pace,
            fences,
        })
    }

    fn map<V: Plain>(&self, name: Name, kind: Kind, _: u64) -> Result<Map<V>> {
        let name = root(name);
        Ok(match kind {
            Kind::Hash => Map::Hash(self.region.shared(&name).map_err(failed)?),
            Kind::Tree => Map::Tree(self.region.shared(&name).map_err(failed)?),
        })
    }

    fn array<V: Plain>(&self, name: Name, len: u64, first: impl Fn(u64) -> V) -> Result<Self::Array<V>> {
        let made = self.region.shared_with::<Vec<V>>(&root(name), |update| {
            let mut values = Vec::with_capacity_in(len as usize, update.heap());
            values.extend((0..len).map(first));
            values
        });
        made.map_err(failed)
    }

    fn group(&self, work: &mut dyn FnMut(&mut Tx<'_, '_>) -> Result<()>) -> Result<()> {
        let (region, pace) = (&self.region, self.pace);
        let section = None;
        match pace {
            Pace::Every(_) => work(&mut Tx {
                region,
                pace,
                section,
            }),
            Pace::Each => atomic(region, |section| {
                work(&mut Tx {
                    region,
                    pace,
                    section: Some(*section),
                })
            }),
        }
    }

    fn load(&self, work: &mut dyn FnMut(&mut Tx<'_, '_>) -> Result<()>) -> Result<()> {
        let (region, pace) = (&self.region, self.pace);
        atomic(region, |_| {
            work(&mut Tx {
                region,
                pace,
                section: None,
            })
        })
    }

    #[inline]
    fn operate<R: 'static>(
        tx: &mut Tx<'_, '_>,
        work: impl FnOnce(&mut Tx<'_, '_>) -> Result<R>,
    ) -> Result<R> {
        let (region, pace) = (tx.region, tx.pace);
        match pace {
            Pace::Each => work(tx),
            Pace::Every(bound) => atomic_within(region, bound, |section| {
                work(&mut Tx {
                    region,
                    pace,
                    section: Some(*section),
                })
            }),
        }
    }

    fn get<V: Plain>(tx: &Tx<'_, '_>, map: &Map<V>, key: u64) -> Result<Option<V>> {
        Ok(tx.read(|view| match map {
            Map::Hash(map) => map.read(view).get(&key).copied(),
            Map::Tree(map) => map.read(view).get(&key).copied(),
        }))
    }

    fn insert<V: Plain>(tx: &mut Tx<'_, '_>, map: &mut Map<V>, key: u64, value: &V) -> Result<()> {
        tx.change(|section| {
            match map {
                Map::Hash(map) => map.write(section).insert(key, *value),
                Map::Tree(map) => map.write(section).insert(key, *value),
            };
        })
    }

    fn toggle<V: Plain>(tx: &mut Tx<'_, '_>, map: &mut Map<V>, key: u64, value: &V) -> Result<bool> {
        tx.change(|section| {
            match map {
                Map::Hash(map) => match map.write(section).entry(key) {
                    Entry::Occupied(there) => drop(there.remove()),
                    Entry::Vacant(room) => {
                        room.insert(*value);
                        return true;
                    }
                },
                Map::Tree(map) => match map.write(section).entry(key) {
                    TreeEntry::Occupied(there) => drop(there.remove()),
                    TreeEntry::Vacant(room) => {
                        room.insert(*value);
                        return true;
                    }
                },
            }
            false
        })
    }

    fn modify<V: Plain>(
        tx: &mut Tx<'_, '_>,
        map: &mut Map<V>,
        key: u64,
        change: impl FnOnce(&mut V),
    ) -> Result<bool> {
        tx.change(|section| {
            let value = match map {
                Map::Hash(map) => map.write(section).get_mut(&key),
                Map::Tree(map) => map.write(section).get_mut(&key),
            };
            value.map(change).is_some()
        })
    }

    fn at<V: Plain>(tx: &Tx<'_, '_>, array: &Self::Array<V>, index: u64) -> Result<V> {
        Ok(tx.read(|view| array.read(view)[index as usize]))
    }

    fn swap<V: Plain>(tx: &mut Tx<'_, '_>, array: &mut Self::Array<V>, a: u64, b: u64) -> Result<()> {
        tx.change(|section| array.write(section).swap(a as usize, b as usize))
    }

    fn change<V: Plain>(
        tx: &mut Tx<'_, '_>,
        array: &mut Self::Array<V>,
        index: u64,
        change: impl FnOnce(&mut V),
    ) -> Result<()> {
        tx.change(|section| change(&mut array.write(section)[index as usize]))
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
            stops: None,
            fences: Some(self.fences.count()),
        }))
    }

    fn close(self) -> Result<()> {
        self.region.close().map_err(failed)
    }
}
