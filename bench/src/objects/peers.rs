//! The stores of `twinpage bench region`: each thread adds one to a number of its own, durable before the next time.

use super::variant::Variant;
use super::{Done, ObjectArguments, place, team};
use crate::engine::{Engine, Name, Result};
use crate::engines::{BerkeleyDb, Lmdb, Pmemobj, Redb, RocksDb, Sqlite, Stored};

pub(super) fn run(peer: Variant, arguments: &ObjectArguments) -> Result<Done> {
    match peer {
        Variant::Rocksdb => count::<Stored<RocksDb>>(arguments),
        Variant::Sqlite => count::<Stored<Sqlite>>(arguments),
        Variant::BerkeleyDb => count::<Stored<BerkeleyDb>>(arguments),
        Variant::Lmdb => count::<Stored<Lmdb>>(arguments),
        Variant::Redb => count::<Stored<Redb>>(arguments),
        Variant::Pmemobj => count::<Pmemobj>(arguments),
        _ => Err("it is no store".into()),
    }
}

fn numbers<E: Engine>(store: &E, arguments: &ObjectArguments) -> Result<Vec<E::Array<u64>>> {
    (0..arguments.threads)
        .map(|thread| store.array(Name { table: 0, thread }, 1, |_| 0))
        .collect()
}

fn count<E: Engine>(arguments: &ObjectArguments) -> Result<Done> {
    let place = place(&arguments.place)?;
    let store = E::open(&place)?;
    let store_of = &store;
    let member = |mut number: E::Array<u64>| {
        move || {
            store_of.group(&mut |tx| {
                E::operate(tx, |tx| {
                    E::change(tx, &mut number, 0, |value| *value += 1)?;
                    E::at(tx, &number, 0).map(drop)
                })
            })
        }
    };
    let members = numbers(store_of, arguments)?.into_iter().map(member).collect();
    let (done, counts) = team::call(arguments, members, || Ok(()))?;
    store.close()?;
    let store = E::open(&place)?;
    let numbers = numbers(&store, arguments)?;
    let mut found = Vec::new();
    store.group(&mut |tx| {
        found = numbers
            .iter()
            .map(|number| E::at(tx, number, 0))
            .collect::<Result<_>>()?;
        Ok(())
    })?;
    team::compared(&found, &counts)?;
    Ok(done)
}
