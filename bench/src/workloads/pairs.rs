//! `hash-rand`, `hash-zipf`, `btree-rand`, `btree-zipf`: inserts and deletes of 8-byte pairs among 1 M keys.
//!
//! An operation draws a key and puts it in when it is not there, takes it out when it is: half of the keys
//! are there at the beginning, and about half at any time. `zipf` draws 80% of its keys from 15% of them.

use super::{Setting, Workload, load, same, scattered};
use crate::args::WorkloadName::{BtreeRand, BtreeZipf, HashZipf};
use crate::engine::{Engine, Kind, Result};

const KEYS: u64 = 1_000_000;
/// A key and its value.
const CHANGED: u64 = 16;

pub(crate) struct Pairs<E: Engine> {
    map: E::Map<u64>,
    draw: Draw,
    setting: Setting,
}

/// The keys of the operations, one after the other, and the values they would have.
struct Draw {
    zipf: bool,
    random: fastrand::Rng,
    keys: u64,
    hot: u64,
}

impl Draw {
    fn new(setting: &Setting) -> Draw {
        let keys = setting.scaled(KEYS, 1000);
        Draw {
            zipf: matches!(setting.workload, HashZipf | BtreeZipf),
            random: setting.random(),
            keys,
            hot: keys * 15 / 100,
        }
    }

    /// The number of a key, and a value.
    fn next(&mut self) -> (u64, u64) {
        let drawn = self.random.u64(..);
        let below = if self.zipf && drawn % 10 < 8 {
            self.hot
        } else {
            self.keys
        };
        let number = (u128::from(self.random.u64(..)) * u128::from(below)) >> 64;
        (number as u64, drawn)
    }
}

/// Every second key is there at the beginning.
fn at_first(number: u64) -> Option<u64> {
    number.is_multiple_of(2).then_some(!number)
}

impl<E: Engine> Workload<E> for Pairs<E> {
    const BETWEEN: u64 = 32;

    fn open(engine: &E, setting: Setting, fresh: bool) -> Result<Self> {
        let draw = Draw::new(&setting);
        let kind = match setting.workload {
            BtreeRand | BtreeZipf => Kind::Tree,
            _ => Kind::Hash,
        };
        let mut map = engine.map(setting.name(0), kind, draw.keys / 2)?;
        if fresh {
            load(engine, draw.keys, |tx, number| match at_first(number) {
                Some(value) => E::insert(tx, &mut map, scattered(number), &value),
                None => Ok(()),
            })?;
        }
        Ok(Pairs { map, draw, setting })
    }

    fn operate(&mut self, tx: &mut E::Tx<'_, '_>) -> Result<u64> {
        let (number, value) = self.draw.next();
        E::toggle(tx, &mut self.map, scattered(number), &value)?;
        Ok(CHANGED)
    }

    fn check(&self, engine: &E, operations: u64) -> Result<()> {
        let mut draw = Draw::new(&self.setting);
        let mut model: Vec<Option<u64>> = (0..draw.keys).map(at_first).collect();
        for _ in 0..operations {
            let (number, value) = draw.next();
            let there = &mut model[number as usize];
            *there = there.is_none().then_some(value);
        }
        engine.group(&mut |tx| {
            let mut keys = model.iter().zip(0..);
            keys.try_for_each(|(expected, number)| {
                same("a pair", &E::get(tx, &self.map, scattered(number))?, expected)
            })
        })
    }
}
