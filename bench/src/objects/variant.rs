//! The variants of SIMPO's Table 7, and the peers.

use super::ObjectsArguments;
use clap::ValueEnum;

/// What is called, by every thread again and again.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Workload {
    /// Adds one to each of the 500 elements
    AllInc,
    /// Adds one to each element of one of two rows, half of the threads to each
    RowInc,
    /// Adds one to a number of the thread's own, and returns it durable
    Instant,
    /// A deferrable call: what it costs its caller, and the log
    Append,
    /// Reads a row of TPC-C's stock, in a tree of 100,000 (SIMPO 4.4)
    StockGet,
    /// Writes one
    StockPut,
    /// A process is killed after 640,000 calls; its object, and its program, are recovered
    Recovery,
}

impl Workload {
    pub(crate) fn threads(self, arguments: &ObjectsArguments) -> &[u32] {
        match self {
            Workload::Instant => &arguments.instant_threads,
            Workload::Append => &[1],
            _ => &arguments.threads,
        }
    }
}

/// How calls are made durable.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Variant {
    /// Under a `Mutex`, in memory alone
    Native,
    /// ssd on a disk, nvram on a memory file: a checkpoint after each call
    Each,
    /// A region, its calls run by their callers and not logged; a checkpoint every 1000 calls
    Grouped,
    /// The same, with copy-on-write checkpoints
    GroupedCow,
    /// Calls that are logged and run by their callers; the log is flushed, and a checkpoint made, every 1000 calls
    Hybrid,
    /// The same, with copy-on-write checkpoints
    Cow,
    /// An object, its calls run by one thread at a time; the log is flushed every 1000 calls
    Fc,
    /// The same, and calls of different lanes run by several threads where they take long enough
    MServer,
    /// An object of instant calls, each durable before it returns
    SimpoAll,
    /// An object: flushed by instant calls, and where a group is full
    Simpo,
    Rocksdb,
    Sqlite,
    Lmdb,
    Redb,
    /// Berkeley DB with transactions
    BerkeleyDb,
    /// Memory files only: it makes nothing durable on a disk
    Pmemobj,
    /// An append-only file, synced always
    Redis,
}

impl Variant {
    pub(super) fn name(self, in_memory: bool) -> &'static str {
        match self {
            Variant::Native => "native",
            Variant::Each if in_memory => "nvram",
            Variant::Each => "ssd",
            Variant::Grouped => "grouped",
            Variant::GroupedCow => "grouped-cow",
            Variant::Hybrid => "hybrid",
            Variant::Cow => "cow",
            Variant::Fc => "fc",
            Variant::MServer => "m-server",
            Variant::SimpoAll => "simpo-all",
            Variant::Simpo => "simpo",
            Variant::Rocksdb => "rocksdb",
            Variant::Sqlite => "sqlite",
            Variant::Lmdb => "lmdb",
            Variant::Redb => "redb",
            Variant::BerkeleyDb => "berkeley-db",
            Variant::Pmemobj => "pmemobj",
            Variant::Redis => "redis",
        }
    }

    pub(super) fn durability(self) -> &'static str {
        match self {
            Variant::Native => "none",
            Variant::Grouped | Variant::GroupedCow | Variant::Hybrid | Variant::Cow => "1000 calls",
            Variant::Fc | Variant::MServer => "1000 calls",
            Variant::Simpo => "at the end, and where a group is full",
            _ => "each call",
        }
    }

    pub(super) fn is_peer(self) -> bool {
        use Variant::{BerkeleyDb, Lmdb, Pmemobj, Redb, Redis, Rocksdb, Sqlite};
        matches!(
            self,
            Rocksdb | Sqlite | Lmdb | Redb | BerkeleyDb | Pmemobj | Redis
        )
    }

    /// Whether it needs what a machine may not have: a library, a program.
    pub(super) fn may_be_absent(self) -> bool {
        self.is_peer() && self != Variant::Redb
    }

    /// Whether it is run in a setting.
    pub(super) fn has_place(self, workload: Workload, in_memory: bool) -> bool {
        match workload {
            Workload::AllInc | Workload::RowInc => !self.is_peer(),
            Workload::Append | Workload::Recovery => self == Variant::Simpo,
            Workload::StockGet => matches!(self, Variant::Native | Variant::Simpo | Variant::BerkeleyDb),
            Workload::StockPut => {
                let all = [
                    Variant::Native,
                    Variant::Simpo,
                    Variant::SimpoAll,
                    Variant::BerkeleyDb,
                ];
                all.contains(&self)
            }
            Workload::Instant => {
                self == Variant::SimpoAll || self.is_peer() && (in_memory || self != Variant::Pmemobj)
            }
        }
    }
}
