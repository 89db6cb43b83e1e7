//! Any key-value store as an engine: maps and arrays are its tables, values its byte strings.

use crate::engine::{Engine, Kind, Name, Plain, Result, StoreOptions};
use std::marker::PhantomData;

/// A key-value store with ordered tables and transactions.
pub(crate) trait Store: Sync + Sized + 'static {
    /// A write transaction; tables are named by their number.
    type Tx<'t>;

    fn open(place: &StoreOptions) -> Result<Self>;

    /// Makes the table when it is not there.
    fn table(&self, table: u32) -> Result<()>;

    /// A transaction, durable when it returns.
    fn group(&self, work: &mut dyn FnMut(&mut Self::Tx<'_>) -> Result<()>) -> Result<()>;

    fn load(&self, work: &mut dyn FnMut(&mut Self::Tx<'_>) -> Result<()>) -> Result<()> {
        self.group(work)
    }

    /// What `look` makes of the value.
    fn get<R>(tx: &Self::Tx<'_>, table: u32, key: u64, look: impl FnOnce(&[u8]) -> R) -> Result<Option<R>>;

    fn put(tx: &mut Self::Tx<'_>, table: u32, key: u64, value: &[u8]) -> Result<()>;

    /// Whether it was there.
    fn remove(tx: &mut Self::Tx<'_>, table: u32, key: u64) -> Result<bool>;

    fn close(self) -> Result<()> {
        Ok(())
    }
}

/// A store as an engine.
pub(crate) struct Stored<S>(S);

/// The number of a table, and what is in it.
pub(crate) struct Table<V> {
    number: u32,
    holds: PhantomData<V>,
}

impl<V> Table<V> {
    fn of(name: Name) -> Table<V> {
        Table {
            number: name.number(),
            holds: PhantomData,
        }
    }
}

/// Values put in one transaction while an array is filled.
const LOAD: u64 = 10_000;

fn plain<V: Plain>(bytes: &[u8]) -> Result<V> {
    V::read_from_bytes(bytes)
        .map_err(|_| format!("a value of {} bytes came back as {}", size_of::<V>(), bytes.len()))
}

impl<S: Store> Stored<S> {
    fn fill<V: Plain>(&self, number: u32, len: u64, first: impl Fn(u64) -> V) -> Result<()> {
        for begin in (0..len).step_by(LOAD as usize) {
            self.0.load(&mut |tx| {
                (begin..len.min(begin + LOAD)).try_for_each(|at| S::put(tx, number, at, first(at).as_bytes()))
            })?;
        }
        Ok(())
    }
}

impl<S: Store> Engine for Stored<S> {
    type Tx<'t, 'r> = S::Tx<'t>;
    type Map<V: Plain> = Table<V>;
    type Array<V: Plain> = Table<V>;

    const WRITES_BY_CALLS: bool = true;

    fn open(place: &StoreOptions) -> Result<Self> {
        S::open(place).map(Stored)
    }

    fn map<V: Plain>(&self, name: Name, _: Kind, _: u64) -> Result<Table<V>> {
        self.0.table(name.number())?;
        Ok(Table::of(name))
    }

    fn array<V: Plain>(&self, name: Name, len: u64, first: impl Fn(u64) -> V) -> Result<Table<V>> {
        let table = Table::of(name);
        self.0.table(table.number)?;
        let mut filled = false;
        self.0.load(&mut |tx| {
            filled = S::get(tx, table.number, len - 1, |_| ())?.is_some();
            Ok(())
        })?;
        if !filled {
            self.fill(table.number, len, first)?;
        }
        Ok(table)
    }

    fn group(&self, work: &mut dyn FnMut(&mut S::Tx<'_>) -> Result<()>) -> Result<()> {
        self.0.group(work)
    }

    fn load(&self, work: &mut dyn FnMut(&mut S::Tx<'_>) -> Result<()>) -> Result<()> {
        self.0.load(work)
    }

    fn get<V: Plain>(tx: &S::Tx<'_>, map: &Table<V>, key: u64) -> Result<Option<V>> {
        S::get(tx, map.number, key, plain)?.transpose()
    }

    fn insert<V: Plain>(tx: &mut S::Tx<'_>, map: &mut Table<V>, key: u64, value: &V) -> Result<()> {
        S::put(tx, map.number, key, value.as_bytes())
    }

    fn toggle<V: Plain>(tx: &mut S::Tx<'_>, map: &mut Table<V>, key: u64, value: &V) -> Result<bool> {
        let removed = S::remove(tx, map.number, key)?;
        if !removed {
            S::put(tx, map.number, key, value.as_bytes())?;
        }
        Ok(!removed)
    }

    fn modify<V: Plain>(
        tx: &mut S::Tx<'_>,
        map: &mut Table<V>,
        key: u64,
        change: impl FnOnce(&mut V),
    ) -> Result<bool> {
        let Some(mut value) = Self::get(tx, map, key)? else {
            return Ok(false);
        };
        change(&mut value);
        S::put(tx, map.number, key, value.as_bytes())?;
        Ok(true)
    }

    fn at<V: Plain>(tx: &S::Tx<'_>, array: &Table<V>, index: u64) -> Result<V> {
        Self::get(tx, array, index)?.ok_or_else(|| format!("value {index} of an array is gone"))
    }

    fn swap<V: Plain>(tx: &mut S::Tx<'_>, array: &mut Table<V>, a: u64, b: u64) -> Result<()> {
        let (was_a, was_b) = (Self::at(tx, array, a)?, Self::at(tx, array, b)?);
        S::put(tx, array.number, a, was_b.as_bytes())?;
        S::put(tx, array.number, b, was_a.as_bytes())
    }

    fn change<V: Plain>(
        tx: &mut S::Tx<'_>,
        array: &mut Table<V>,
        index: u64,
        change: impl FnOnce(&mut V),
    ) -> Result<()> {
        match Self::modify(tx, array, index, change)? {
            true => Ok(()),
            false => Err(format!("value {index} of an array is gone")),
        }
    }

    fn close(self) -> Result<()> {
        self.0.close()
    }
}
