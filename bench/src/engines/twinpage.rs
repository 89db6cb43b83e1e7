//! The library: collections in a region, each operation in an update.
//!
//! At a pace the region makes its own checkpoints, behind the program's back; with each operation durable
//! the program waits for one after every update.

use crate::engine::{Account, Engine, Kind, Name, Pace, Place, Plain, Result};
use std::alloc::Layout;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use twinpage::collections::hash::Entry;
use twinpage::collections::{HashMap, Vec};
use twinpage::heap::Heap;
use twinpage::{Region, marks};

pub(crate) struct Twinpage {
    region: Region,
    heap: Heap,
    pace: Pace,
    /// Where each table is, and the file that says so in the next life.
    tables: Mutex<std::vec::Vec<(u32, usize)>>,
    names: PathBuf,
}

/// A collection in the region. The thread that has it is the only one to use it.
pub(crate) struct Held<T>(*mut T);

// SAFETY: it stands for the collection it points to, which lives as long as the region.
unsafe impl<T: Send> Send for Held<T> {}

impl<T> Held<T> {
    fn get(&self) -> &T {
        // SAFETY: the collection is there, and changed through `self` only.
        unsafe { &*self.0 }
    }

    /// In an update.
    #[inline]
    fn get_mut(&mut self) -> &mut T {
        marks::touch(self.0, size_of::<T>());
        // SAFETY: as above; what is about to be written is marked.
        unsafe { &mut *self.0 }
    }
}

pub(crate) fn failed(error: impl std::fmt::Display) -> String {
    format!("twinpage: {error}")
}

impl Twinpage {
    /// The collection `name`, made by `make` when it is not there.
    fn held<T>(&self, name: Name, make: impl FnOnce(Heap) -> T) -> Result<Held<T>> {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&(_, at)) = tables.iter().find(|(number, _)| *number == name.number()) {
            return Ok(Held(std::ptr::with_exposed_provenance_mut(at)));
        }
        let made = self.region.update(|_| {
            let made = make(self.heap);
            let at = self.heap.try_allocate(Layout::new::<T>()).map_err(failed)?;
            let at = at.as_ptr().cast::<T>();
            marks::touch(at, size_of::<T>());
            // SAFETY: a new block of this layout.
            unsafe { at.write(made) };
            Ok::<_, String>(at)
        })?;
        tables.push((name.number(), made.expose_provenance()));
        let text = serde_json::to_string(&*tables).expect("numbers");
        std::fs::write(&self.names, text).map_err(failed)?;
        Ok(Held(made))
    }
}

impl Engine for Twinpage {
    type Tx<'t> = &'t Region;
    type Map<V: Plain> = Held<HashMap<u64, V>>;
    type Array<V: Plain> = Held<Vec<V>>;

    const WRITES_BY_CALLS: bool = false;

    fn open(place: &Place) -> Result<Self> {
        let names = place.directory.join("names");
        let mut options = Region::options().scheme(place.scheme);
        if let Pace::Every(every) = place.pace {
            options = options.every(every);
        }
        let region = options.open(place.directory.join("region")).map_err(failed)?;
        let (heap, tables) = match std::fs::read_to_string(&names) {
            Ok(text) => (
                Heap::open(region.place()).map_err(failed)?,
                serde_json::from_str(&text).map_err(failed)?,
            ),
            Err(_) => {
                let made = region.update(|_| Heap::create(region.place(), 1));
                (made.map_err(failed)?, std::vec::Vec::new())
            }
        };
        Ok(Twinpage {
            region,
            heap,
            pace: place.pace,
            tables: Mutex::new(tables),
            names,
        })
    }

    fn map<V: Plain>(&self, name: Name, kind: Kind, _: u64) -> Result<Self::Map<V>> {
        match kind {
            Kind::Hash => self.held(name, HashMap::new_in),
            Kind::Tree => Err("twinpage: this version has no ordered maps yet".into()),
        }
    }

    fn array<V: Plain>(&self, name: Name, len: u64, first: impl Fn(u64) -> V) -> Result<Self::Array<V>> {
        self.held(name, |heap| {
            let mut values = Vec::with_capacity_in(len as usize, heap);
            values.extend((0..len).map(first));
            values
        })
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
    fn operate<R>(tx: &mut &Region, work: impl FnOnce(&mut &Region) -> Result<R>) -> Result<R> {
        let region = *tx;
        region.update(|_| work(tx))
    }

    fn get<V: Plain>(_: &&Region, map: &Self::Map<V>, key: u64) -> Result<Option<V>> {
        Ok(map.get().get(&key).copied())
    }

    fn insert<V: Plain>(_: &mut &Region, map: &mut Self::Map<V>, key: u64, value: &V) -> Result<()> {
        map.get_mut().insert(key, *value);
        Ok(())
    }

    fn toggle<V: Plain>(_: &mut &Region, map: &mut Self::Map<V>, key: u64, value: &V) -> Result<bool> {
        match map.get_mut().entry(key) {
            Entry::Occupied(there) => {
                there.remove();
                Ok(false)
            }
            Entry::Vacant(room) => {
                room.insert(*value);
                Ok(true)
            }
        }
    }

    fn modify<V: Plain>(
        _: &mut &Region,
        map: &mut Self::Map<V>,
        key: u64,
        change: impl FnOnce(&mut V),
    ) -> Result<bool> {
        Ok(map.get_mut().get_mut(&key).map(change).is_some())
    }

    fn at<V: Plain>(_: &&Region, array: &Self::Array<V>, index: u64) -> Result<V> {
        Ok(array.get()[index as usize])
    }

    fn swap<V: Plain>(_: &mut &Region, array: &mut Self::Array<V>, a: u64, b: u64) -> Result<()> {
        array.get_mut().swap(a as usize, b as usize);
        Ok(())
    }

    fn change<V: Plain>(
        _: &mut &Region,
        array: &mut Self::Array<V>,
        index: u64,
        change: impl FnOnce(&mut V),
    ) -> Result<()> {
        change(&mut array.get_mut()[index as usize]);
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        self.region.durable().map_err(failed)
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
