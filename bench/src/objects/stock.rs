//! TPC-C's stock, of which SIMPO's Berkeley DB runs StockLevel's transactions as reads alone and as writes alone (4.4).
//!
//! * A call reads or writes one row, of a random item. Each thread has items of its own, so that what a store must hold
//!   follows from how often each of them called.

use super::native::lock;
use super::variant::{Variant, Workload};
use super::{Done, ObjectArguments, place, team};
use crate::engine::{Engine, Kind, Name, Result};
use crate::engines::failed;
use fastrand::Rng;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use twinpage::collections::BTreeMap as Tree;
use twinpage::{Persist, Region, Update};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// As many as a warehouse of TPC-C has.
pub(super) const ITEMS: u64 = 100_000;

/// As long as TPC-C's row.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Debug,
    Persist,
    Serialize,
    Deserialize,
    IntoBytes,
    FromBytes,
    Immutable,
    KnownLayout,
)]
#[repr(C)]
pub(super) struct Row {
    item: u64,
    quantity: u64,
    districts: [[u8; 24]; 10],
    data: [[u8; 24]; 2],
}

impl Row {
    fn new(item: u64, quantity: u64) -> Row {
        let letter = |at: usize| b'a' + (item.wrapping_add(at as u64) % 26) as u8;
        Row {
            item,
            quantity,
            districts: std::array::from_fn(|district| [letter(district); 24]),
            data: [[letter(10); 24]; 2],
        }
    }

    /// As it is at first.
    fn first(item: u64) -> Row {
        Row::new(item, item % 91 + 10)
    }
}

#[derive(Persist)]
struct Stock<'r> {
    rows: Tree<'r, u64, Row>,
}

/// Its methods are the handle's.
#[allow(unreachable_pub)]
#[twinpage::object]
impl<'r> Stock<'r> {
    fn new_in(u: &Update<'r>, items: u64) -> Stock<'r> {
        Stock {
            rows: u.collect((0..items).map(|item| (item, Row::first(item)))),
        }
    }

    pub fn put(&mut self, row: Row) {
        self.rows.insert(row.item, row);
    }

    #[instant]
    pub fn put_now(&mut self, row: Row) {
        self.rows.insert(row.item, row);
    }

    pub fn get(&self, item: u64) -> Option<Row> {
        self.rows.get(&item).copied()
    }
}

/// The calls of one thread: which items, and what is written to them.
#[derive(Clone)]
struct Calls {
    random: Rng,
    thread: u64,
    threads: u64,
    items: u64,
    calls: u64,
}

impl Calls {
    fn of(thread: u32, arguments: &ObjectArguments) -> Calls {
        Calls {
            random: Rng::with_seed(u64::from(thread)),
            thread: u64::from(thread),
            threads: u64::from(arguments.threads),
            items: arguments.items,
            calls: 0,
        }
    }

    /// The next item, and the row it gets if it is written.
    fn next(&mut self) -> Row {
        self.calls += 1;
        let item = self.random.u64(0..self.items / self.threads) * self.threads + self.thread;
        Row::new(item, self.calls)
    }
}

fn is_right(found: Option<Row>, item: u64) -> Result<()> {
    match found == Some(Row::first(item)) {
        true => Ok(()),
        false => Err(format!(
            "wrong result: the row of item {item} is not as it was written"
        )),
    }
}

/// All rows after that many calls of each thread.
fn expected(arguments: &ObjectArguments, counts: &[u64]) -> Vec<Row> {
    let mut rows: Vec<Row> = (0..arguments.items).map(Row::first).collect();
    if arguments.workload == Workload::StockPut {
        for (thread, &count) in (0..).zip(counts) {
            let mut calls = Calls::of(thread, arguments);
            for row in (0..count).map(|_| calls.next()) {
                rows[row.item as usize] = row;
            }
        }
    }
    rows
}

/// `call`s one row after the other in each thread, then `finish`es.
fn run_threads(
    arguments: &ObjectArguments,
    call: &(impl Fn(Row) -> Result<()> + Sync),
    finish: impl FnOnce() -> Result<()>,
) -> Result<(Done, Vec<u64>)> {
    let member = |thread| {
        let mut calls = Calls::of(thread, arguments);
        move || call(calls.next())
    };
    let members = (0..arguments.threads).map(member).collect();
    team::call(arguments, members, finish)
}

/// A tree in memory alone, under a lock.
pub(super) fn native(arguments: &ObjectArguments) -> Result<Done> {
    let rows = (0..arguments.items).map(|item| (item, Row::first(item)));
    let tree: Mutex<BTreeMap<u64, Row>> = Mutex::new(rows.collect());
    let call = |row: Row| {
        let mut tree = lock(&tree);
        match arguments.workload {
            Workload::StockGet => is_right(tree.get(&row.item).copied(), row.item),
            _ => {
                tree.insert(row.item, row);
                Ok(())
            }
        }
    };
    let (done, counts) = run_threads(arguments, &call, || Ok(()))?;
    let found: Vec<Row> = lock(&tree).values().copied().collect();
    team::compared(&found, &expected(arguments, &counts))?;
    Ok(done)
}

fn opened(path: &Path, items: u64) -> Result<(Region, StockHandle)> {
    let region = Region::options().open(path).map_err(failed)?;
    let stock = region.object::<Stock>("stock", |u| Stock::new_in(u, items));
    let stock = stock.map_err(failed)?;
    Ok((region, stock))
}

/// A persistent object with a tree.
pub(super) fn object(arguments: &ObjectArguments) -> Result<Done> {
    let path = arguments.place.join("stock.twin");
    let (region, stock) = opened(&path, arguments.items)?;
    let call = |row: Row| match (arguments.workload, arguments.variant) {
        (Workload::StockGet, _) => is_right(stock.get(row.item).map_err(failed)?, row.item),
        (_, Variant::SimpoAll) => stock.put_now(row).map_err(failed),
        _ => {
            stock.put(row);
            Ok(())
        }
    };
    let (done, counts) = run_threads(arguments, &call, || stock.sync().map_err(failed))?;
    drop(stock);
    region.close().map_err(failed)?;
    let (_region, stock) = opened(&path, arguments.items)?;
    let found = (0..arguments.items).map(|item| stock.get(item).map_err(failed));
    let found: Vec<Option<Row>> = found.collect::<Result<_>>()?;
    let expected = expected(arguments, &counts).into_iter().map(Some);
    team::compared(&found, &expected.collect::<Vec<_>>())?;
    Ok(done)
}

/// Another store, a transaction for each call.
pub(super) fn peer<E: Engine>(arguments: &ObjectArguments) -> Result<Done> {
    let place = place(&arguments.place)?;
    let store = E::open(&place)?;
    let table = |store: &E| store.map::<Row>(Name { table: 0, thread: 0 }, Kind::Tree, arguments.items);
    let mut map = table(&store)?;
    let items: Vec<u64> = (0..arguments.items).collect();
    for some in items.chunks(1000) {
        store.load(&mut |tx| {
            some.iter()
                .try_for_each(|&item| E::insert(tx, &mut map, item, &Row::first(item)))
        })?;
    }
    let store_of = &store;
    let member = |thread| -> Result<_> {
        let (mut calls, mut map) = (Calls::of(thread, arguments), table(store_of)?);
        Ok(move || {
            let row = calls.next();
            store_of.group(&mut |tx| match arguments.workload {
                Workload::StockGet => is_right(E::get(tx, &map, row.item)?, row.item),
                _ => E::operate(tx, |tx| E::insert(tx, &mut map, row.item, &row)),
            })
        })
    };
    let members = (0..arguments.threads).map(member).collect::<Result<_>>()?;
    let (done, counts) = team::call(arguments, members, || Ok(()))?;
    drop(map);
    store.close()?;
    let store = E::open(&place)?;
    let map = table(&store)?;
    let mut found = Vec::new();
    store.group(&mut |tx| {
        found = items
            .iter()
            .map(|&item| E::get(tx, &map, item))
            .collect::<Result<_>>()?;
        Ok(())
    })?;
    let expected = expected(arguments, &counts).into_iter().map(Some);
    team::compared(&found, &expected.collect::<Vec<Option<Row>>>())?;
    Ok(done)
}
