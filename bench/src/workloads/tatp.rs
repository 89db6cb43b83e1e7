//! `tatp`: update location, of the Telecom Application Transaction Processing benchmark, with 1 M subscribers.
//!
//! An operation finds a subscriber by number and writes where it was seen last.

use super::{Setting, Workload, load, same};
use crate::engine::{Engine, Kind, Result};
use twinpage::Persist;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const SUBSCRIBERS: u64 = 1_000_000;

/// A row of the benchmark's subscriber table.
#[derive(Clone, Copy, PartialEq, Debug, IntoBytes, FromBytes, Immutable, KnownLayout, Persist)]
#[repr(C)]
pub(crate) struct Subscriber {
    id: u32,
    msc_location: u32,
    vlr_location: u32,
    number: [u8; 15],
    bits: [u8; 10],
    hexes: [u8; 10],
    bytes: [u8; 10],
    rest: [u8; 3],
}

pub(crate) struct Tatp<E: Engine> {
    /// From a subscriber's number to the id.
    numbers: E::Map<u64>,
    /// From the id to the row.
    rows: E::Map<Subscriber>,
    count: u64,
    random: fastrand::Rng,
    setting: Setting,
}

/// The fifteen digits that number a subscriber, as a number.
fn number(id: u64) -> u64 {
    id * 982_451_653 % 1_000_000_000_000_000
}

fn first(id: u64) -> Subscriber {
    let mut digits = [b'0'; 15];
    digits.copy_from_slice(format!("{:015}", number(id)).as_bytes());
    Subscriber {
        id: id as u32,
        msc_location: !(id as u32),
        vlr_location: id as u32,
        number: digits,
        bits: [(id & 1) as u8; 10],
        hexes: [(id & 15) as u8; 10],
        bytes: [id as u8; 10],
        rest: [0; 3],
    }
}

fn draw(random: &mut fastrand::Rng, count: u64) -> (u64, u32) {
    (1 + random.u64(..count), random.u32(..))
}

impl<E: Engine> Workload<E> for Tatp<E> {
    const BETWEEN: u64 = 32;

    fn open(engine: &E, setting: Setting, fresh: bool) -> Result<Self> {
        let count = setting.scaled(SUBSCRIBERS, 1000);
        let mut numbers = engine.map(setting.name(0), Kind::Hash, count)?;
        let mut rows = engine.map(setting.name(1), Kind::Hash, count)?;
        if fresh {
            load(engine, count, |tx, at| {
                E::insert(tx, &mut numbers, number(at + 1), &(at + 1))?;
                E::insert(tx, &mut rows, at + 1, &first(at + 1))
            })?;
        }
        Ok(Tatp {
            numbers,
            rows,
            count,
            random: setting.random(),
            setting,
        })
    }

    fn operate(&mut self, tx: &mut E::Tx<'_, '_>) -> Result<u64> {
        let (id, location) = draw(&mut self.random, self.count);
        let id = E::get(tx, &self.numbers, number(id))?.ok_or("a subscriber's number is gone")?;
        if !E::modify(tx, &mut self.rows, id, |row| row.vlr_location = location)? {
            return Err("a subscriber's row is gone".into());
        }
        Ok(size_of::<u32>() as u64)
    }

    fn check(&self, engine: &E, operations: u64) -> Result<()> {
        let mut random = self.setting.random();
        let mut model: Vec<u32> = (1..=self.count as u32).collect();
        for _ in 0..operations {
            let (id, location) = draw(&mut random, self.count);
            model[id as usize - 1] = location;
        }
        engine.group(&mut |tx| {
            let mut rows = model.iter().zip(1..);
            rows.try_for_each(|(&vlr_location, id)| {
                let expected = Subscriber {
                    vlr_location,
                    ..first(id)
                };
                same("a row", &E::get(tx, &self.rows, id)?, &Some(expected))
            })
        })
    }
}
