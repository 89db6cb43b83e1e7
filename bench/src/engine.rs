//! What a workload is run on: tables and arrays of plain values, in groups of operations.
//!
//! * A group is durable, all of it, when [`Engine::group`] returns; engines that write behind the program's
//!   back (twinpage) keep the same bound on what a crash can lose.
//! * Workloads are compiled for each engine: no call through a pointer stands between an operation and the
//!   structure, or the volatile side would be measured slower than it is.

use crate::args::Form;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use twinpage::Persist;
use twinpage_measure::Percentiles;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Why something could not be measured.
pub(crate) type Result<T, E = String> = std::result::Result<T, E>;

/// A value without pointers or padding, the same bytes in every engine.
pub(crate) trait Plain:
    Copy + Send + Sync + IntoBytes + FromBytes + Immutable + KnownLayout + for<'r> Persist<In<'r> = Self>
{
}

impl<T> Plain for T where
    T: Copy + Send + Sync + IntoBytes + FromBytes + Immutable + KnownLayout + for<'r> Persist<In<'r> = Self>
{
}

/// What a map is made of, where the engine has a choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A hash table.
    Hash,
    /// A tree in the order of its keys.
    Tree,
}

/// When what was done is durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pace {
    /// At most this long after it was done.
    Every(Duration),
    /// Before the next operation begins.
    Each,
}

/// Where a store is made, and how it is to behave.
#[derive(Clone, Debug)]
pub(crate) struct StoreOptions {
    /// An empty directory, or the one of an earlier [`Engine::open`].
    pub(crate) directory: PathBuf,
    pub(crate) pace: Pace,
    pub(crate) form: Form,
    /// Whether the directory is on a memory file system.
    pub(crate) in_memory: bool,
    /// How much data all threads have together: 1 is as described for one.
    pub(crate) scale: f64,
}

/// Names a map or an array of a workload: its number, and the thread whose own it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Name {
    pub(crate) table: u32,
    pub(crate) thread: u32,
}

/// The most tables a workload has for one thread.
pub(crate) const TABLES: u32 = 16;

impl Name {
    /// A small number of its own.
    pub(crate) fn number(self) -> u32 {
        self.thread * TABLES + self.table
    }
}

/// What an engine that knows itself says it did.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    /// Bytes written to the medium.
    pub(crate) written_bytes: u64,
    /// Bytes of the lines that changed.
    pub(crate) changed_line_bytes: u64,
    /// Times that something became durable.
    pub(crate) commits: u64,
    /// How long writers stood still, where the engine knows better than the program that waits.
    pub(crate) stops: Option<Stops>,
    /// Fences of the medium, where they are counted.
    pub(crate) fences: Option<u64>,
}

/// Microseconds that something was waited for.
#[derive(Serialize, Deserialize, Clone, Copy, Default, Debug)]
pub(crate) struct Stops {
    pub(crate) us_p50: f64,
    pub(crate) us_p99: f64,
}

impl From<Percentiles> for Stops {
    fn from(all: Percentiles) -> Stops {
        Stops {
            us_p50: all.p50,
            us_p99: all.p99,
        }
    }
}

/// One engine, open.
pub(crate) trait Engine: Sync + Sized + 'static {
    /// What operations happen in: a transaction, where the engine has them.
    type Tx<'t, 'r>;
    /// A map from numbers to values.
    type Map<V: Plain>: Send;
    /// Values by their number.
    type Array<V: Plain>: Send;

    /// Whether [`Engine::open`] finds what was there before: what is volatile does not.
    const LASTS: bool = true;

    /// Whether it writes by system calls, which the system counts: stores to a mapping are not.
    const WRITES_BY_CALLS: bool;

    /// Opens the store in `place`, or makes it.
    fn open(place: &StoreOptions) -> Result<Self>;

    /// The map `name`, or a new one for about `expected` values.
    fn map<V: Plain>(&self, name: Name, kind: Kind, expected: u64) -> Result<Self::Map<V>>;

    /// The array `name`, or a new one of `len` values.
    fn array<V: Plain>(&self, name: Name, len: u64, first: impl Fn(u64) -> V) -> Result<Self::Array<V>>;

    /// A group of operations, durable together as the place's pace asks.
    fn group(&self, work: &mut dyn FnMut(&mut Self::Tx<'_, '_>) -> Result<()>) -> Result<()>;

    /// Many operations at once, before anything is measured: durable when it returns, quick above all.
    fn load(&self, work: &mut dyn FnMut(&mut Self::Tx<'_, '_>) -> Result<()>) -> Result<()> {
        self.group(work)
    }

    /// One operation of a group, which no crash may split.
    fn operate<R: 'static>(
        tx: &mut Self::Tx<'_, '_>,
        work: impl FnOnce(&mut Self::Tx<'_, '_>) -> Result<R>,
    ) -> Result<R> {
        work(tx)
    }

    fn get<V: Plain>(tx: &Self::Tx<'_, '_>, map: &Self::Map<V>, key: u64) -> Result<Option<V>>;

    fn insert<V: Plain>(tx: &mut Self::Tx<'_, '_>, map: &mut Self::Map<V>, key: u64, value: &V)
    -> Result<()>;

    /// Takes the key out when it is there, puts it in when it is not. Whether it is there now.
    fn toggle<V: Plain>(
        tx: &mut Self::Tx<'_, '_>,
        map: &mut Self::Map<V>,
        key: u64,
        value: &V,
    ) -> Result<bool>;

    /// Changes a value where it is; whether there was one.
    fn modify<V: Plain>(
        tx: &mut Self::Tx<'_, '_>,
        map: &mut Self::Map<V>,
        key: u64,
        change: impl FnOnce(&mut V),
    ) -> Result<bool>;

    fn at<V: Plain>(tx: &Self::Tx<'_, '_>, array: &Self::Array<V>, index: u64) -> Result<V>;

    fn swap<V: Plain>(tx: &mut Self::Tx<'_, '_>, array: &mut Self::Array<V>, a: u64, b: u64) -> Result<()>;

    fn change<V: Plain>(
        tx: &mut Self::Tx<'_, '_>,
        array: &mut Self::Array<V>,
        index: u64,
        change: impl FnOnce(&mut V),
    ) -> Result<()>;

    /// Makes what was done durable, for engines that do so behind the program's back.
    fn flush_behind(&self) -> Result<()> {
        Ok(())
    }

    /// All is filled: from here on it is measured.
    fn filled(&self) {}

    /// What was written and how long it stood still since [`Engine::filled`], of an engine that knows.
    fn account(&self) -> Result<Option<Account>> {
        Ok(None)
    }

    /// Makes everything durable and lets go of the store.
    fn close(self) -> Result<()> {
        Ok(())
    }
}
