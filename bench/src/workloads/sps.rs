//! `sps`: swaps of two random 256-byte strings of 100,000.

use super::{Setting, Workload, same, scattered};
use crate::engine::{Engine, Result};

const STRINGS: u64 = 100_000;

type Text = [u8; 256];

pub(crate) struct Sps<E: Engine> {
    strings: E::Array<Text>,
    count: u64,
    random: fastrand::Rng,
    setting: Setting,
}

/// The string that number `number` is at the beginning: no two are the same.
fn first(number: u64) -> Text {
    let mut text = [0; 256];
    for (at, word) in text.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&scattered(number << 5 | at as u64).to_le_bytes());
    }
    text
}

fn draw(random: &mut fastrand::Rng, count: u64) -> (u64, u64) {
    (random.u64(..count), random.u64(..count))
}

impl<E: Engine> Workload<E> for Sps<E> {
    const BETWEEN: u64 = 32;

    fn open(engine: &E, setting: Setting, _: bool) -> Result<Self> {
        let count = setting.scaled(STRINGS, 100);
        Ok(Sps {
            strings: engine.array(setting.name(0), count, first)?,
            count,
            random: setting.random(),
            setting,
        })
    }

    fn operate(&mut self, tx: &mut E::Tx<'_, '_>) -> Result<u64> {
        let (a, b) = draw(&mut self.random, self.count);
        E::swap(tx, &mut self.strings, a, b)?;
        Ok(2 * size_of::<Text>() as u64)
    }

    fn check(&self, engine: &E, operations: u64) -> Result<()> {
        let mut random = self.setting.random();
        let mut model: Vec<u64> = (0..self.count).collect();
        for _ in 0..operations {
            let (a, b) = draw(&mut random, self.count);
            model.swap(a as usize, b as usize);
        }
        engine.group(&mut |tx| {
            let mut strings = model.iter().zip(0..);
            strings.try_for_each(|(&from, at)| same("a string", &E::at(tx, &self.strings, at)?, &first(from)))
        })
    }
}
