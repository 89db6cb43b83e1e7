//! Machines with their memory on the bus: no page cache and no scheme; programs make their data durable by
//! instructions of their own (MSS, section 4; `mss.toml`).
//!
//! Reading order: `config.rs` is what a machine file says; `memory.rs` the memory and when a write to it is durable;
//! `flushes.rs` the write-backs of a core that are under way; `locks.rs` locks and atomic accesses; `clocks.rs` how far each core is; `machine.rs` moves all of it in time; `outcome.rs` is
//! what is counted, and the energy that follows.
//!
//! * Cores, caches and devices are those of the other machines ([`crate::machine`], [`crate::device`]).
//! * `clwb`, `clflushopt` and non-temporal stores overlap, as many as there are line fill buffers. `clflush` goes one
//!   after the other.
//! * A fence waits until the stores before it are in the caches and the lines written back before it are durable; a
//!   full fence waits for loads too. Stores behind a `clflush` do not wait for it without a fence.
//! * A line waits for its read before it is written back.
//! * Up to 64 cores, in nodes with a last cache each where the machine file says so; NVM may lie beside DRAM.

mod clocks;
pub mod config;
mod flushes;
mod locks;
mod machine;
mod memory;
mod outcome;

pub use config::{Config, Hardware, Locks, Nvm};
pub use outcome::{Counts, Disk, Energy, Prices};

use crate::machine::hierarchy::Hierarchy;
use crate::machine::miss_file::MissFile;
use crate::space::Space;
use crate::workload::Workload;
use clocks::Clocks;
use locks::Held;
use machine::{BusCore, Owner, Remaps};
use memory::Memory;
use std::collections::HashMap;

/// A machine with a program in it.
pub struct Machine<'w> {
    config: Hardware,
    disk: Option<Disk>,
    cores: Vec<BusCore>,
    clocks: Clocks,
    caches: Hierarchy<u64>,
    memory: Memory,
    asked: MissFile,
    owners: HashMap<u64, Owner>,
    remaps: Remaps,
    space: Space,
    workload: &'w mut dyn Workload,
    counts: Counts,
    locks: Held,
    /// When the last transaction ended.
    ended: u64,
    /// The run ends after this number of transactions.
    until: u64,
    /// The power fails at this time.
    crash_at: u64,
}

/// What an operation waits for before it can be done.
enum Wait {
    /// A line.
    Line(u32),
    /// A line, and the core's time with it: there is no register for one more miss.
    Room(u32),
    /// A write-back.
    WriteBack,
    /// A lock.
    Lock,
}
