//! What is measured: each workload computes for real, and checks at its end what it computed.
//!
//! * Everything a workload does follows from its seed and how many operations it did: the check draws them
//!   again on a model of its own, and compares it with the content of the engine, reopened where it is durable.
//! * Each thread has structures of its own, in the same engine.

mod pairs;
mod sps;
mod sweep;
mod tatp;
mod tpcc;

pub(crate) use pairs::Pairs;
pub(crate) use sps::Sps;
pub(crate) use sweep::Sweep;
pub(crate) use tatp::Tatp;
pub(crate) use tpcc::Tpcc;

use crate::args::WorkloadName;
use crate::engine::{Engine, Name, Result};

/// The engine that runs, and the size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) workload: WorkloadName,
    pub(crate) thread: u32,
    /// How many keys, strings, rows: 1 is what the workload's description says.
    pub(crate) scale: f64,
    pub(crate) seed: u64,
}

impl Setting {
    /// `count` scaled, and at least `least`.
    fn scaled(&self, count: u64, least: u64) -> u64 {
        ((count as f64 * self.scale) as u64).max(least)
    }

    fn random(&self) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.seed ^ (u64::from(self.thread) << 32))
    }

    fn name(&self, table: u32) -> Name {
        Name {
            table,
            thread: self.thread,
        }
    }
}

/// One thread's share of a workload on an engine.
pub(crate) trait Workload<E: Engine>: Send + Sized {
    /// Operations between two looks at the clock.
    const BETWEEN: u64;

    /// Opens the structures; when `fresh`, fills them.
    fn open(engine: &E, setting: Setting, fresh: bool) -> Result<Self>;

    /// One operation: the bytes it changed, as the program that called for it counts.
    fn operate(&mut self, tx: &mut E::Tx<'_, '_>) -> Result<u64>;

    /// Compares what is in `engine` with what `operations` operations must have made of it.
    fn check(&self, engine: &E, operations: u64) -> Result<()>;
}

/// Numbers in another order, each once: hot ones do not lie together, and no key is small.
fn scattered(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// Calls `put` for every number below `count`, a few thousand in each group.
fn load<E: Engine>(
    engine: &E,
    count: u64,
    mut put: impl FnMut(&mut E::Tx<'_, '_>, u64) -> Result<()>,
) -> Result<()> {
    const TOGETHER: u64 = 20_000;
    for begin in (0..count).step_by(TOGETHER as usize) {
        engine.load(&mut |tx| (begin..count.min(begin + TOGETHER)).try_for_each(|at| put(tx, at)))?;
    }
    Ok(())
}

/// What is there is what must be there.
fn same<T: PartialEq + std::fmt::Debug>(what: &str, there: &T, expected: &T) -> Result<()> {
    if there == expected {
        return Ok(());
    }
    Err(format!(
        "wrong result: {what} is {there:?}, and must be {expected:?}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Form;
    use crate::engine::{Pace, StoreOptions};
    use crate::engines::Native;

    /// The check agrees after as many operations as there were, and with no other number.
    fn is_checked<W: Workload<Native>>(workload: WorkloadName) {
        let place = StoreOptions {
            directory: "/".into(),
            pace: Pace::Each,
            form: Form::default(),
            in_memory: true,
            scale: 0.001,
        };
        let engine = Native::open(&place).unwrap();
        let setting = Setting {
            workload,
            thread: 3,
            scale: 0.001,
            seed: 7,
        };
        let mut workload = W::open(&engine, setting, true).unwrap();
        workload.check(&engine, 0).unwrap();
        for done in 1..=500 {
            workload.operate(&mut ()).unwrap();
            if done % 100 == 0 {
                workload.check(&engine, done).unwrap();
            }
        }
        for wrong in [499, 501] {
            assert!(workload.check(&engine, wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_lost_operation_is_noticed() {
        is_checked::<Sps<Native>>(WorkloadName::Sps);
        is_checked::<Pairs<Native>>(WorkloadName::HashRand);
        is_checked::<Pairs<Native>>(WorkloadName::HashZipf);
        is_checked::<Pairs<Native>>(WorkloadName::BtreeRand);
        is_checked::<Pairs<Native>>(WorkloadName::BtreeZipf);
        is_checked::<Tatp<Native>>(WorkloadName::Tatp);
        is_checked::<Tpcc<Native>>(WorkloadName::Tpcc);
        is_checked::<Sweep<Native>>(WorkloadName::Sweep);
    }
}
