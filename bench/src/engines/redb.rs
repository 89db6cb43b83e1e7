//! redb: a copy-on-write B-tree in pure Rust.
//!
//! A group is one write transaction with `Durability::Immediate`; tables are opened once in each.

use super::store::Store;
use crate::engine::{Result, StoreOptions};
use redb::{Database, Durability, ReadableTable, Table, TableDefinition, WriteTransaction};
use std::cell::RefCell;
use std::collections::BTreeMap;

pub(crate) struct Redb(Database);

type Values<'t> = Table<'t, u64, &'static [u8]>;

pub(crate) struct Tx<'t> {
    transaction: &'t WriteTransaction,
    /// Those used so far.
    tables: RefCell<BTreeMap<u32, Values<'t>>>,
}

fn failed(error: impl std::fmt::Display) -> String {
    format!("redb: {error}")
}

impl<'t> Tx<'t> {
    fn with<R>(&self, table: u32, work: impl FnOnce(&mut Values<'t>) -> R) -> Result<R> {
        let mut tables = self.tables.borrow_mut();
        if let Some(open) = tables.get_mut(&table) {
            return Ok(work(open));
        }
        let name = format!("table {table}");
        let opened = self.transaction.open_table(TableDefinition::new(&name));
        let opened = tables.entry(table).or_insert(opened.map_err(failed)?);
        Ok(work(opened))
    }
}

impl Store for Redb {
    type Tx<'t> = Tx<'t>;

    fn open(place: &StoreOptions) -> Result<Self> {
        let mut builder = Database::builder();
        builder.set_cache_size(1 << 30);
        builder
            .create(place.directory.join("data.redb"))
            .map(Redb)
            .map_err(failed)
    }

    fn table(&self, table: u32) -> Result<()> {
        self.group(&mut |tx| tx.with(table, |_| ()))
    }

    fn group(&self, work: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        let mut transaction = self.0.begin_write().map_err(failed)?;
        transaction
            .set_durability(Durability::Immediate)
            .map_err(failed)?;
        work(&mut Tx {
            transaction: &transaction,
            tables: RefCell::default(),
        })?;
        transaction.commit().map_err(failed)
    }

    fn get<R>(tx: &Tx<'_>, table: u32, key: u64, look: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        tx.with(table, |values| {
            let found = values.get(key).map_err(failed)?;
            Ok(found.map(|value| look(value.value())))
        })?
    }

    fn put(tx: &mut Tx<'_>, table: u32, key: u64, value: &[u8]) -> Result<()> {
        tx.with(table, |values| {
            values.insert(key, value).map(drop).map_err(failed)
        })?
    }

    fn remove(tx: &mut Tx<'_>, table: u32, key: u64) -> Result<bool> {
        tx.with(table, |values| {
            let was = values.remove(key).map_err(failed)?;
            Ok(was.is_some())
        })?
    }
}
