//! Machines with their memory on the bus: no page cache and no scheme; programs make their data durable by
//! instructions of their own (MSS, section 4; `mss.toml`).
//!
//! Reading order: `config.rs` is what a machine file says; `memory.rs` the memory and when a write to it is durable;
//! `flushes.rs` the write-backs of a core that are under way; `locks.rs` locks and atomic accesses; `machine.rs` moves all of it in time; `outcome.rs` is
//! what is counted, and the energy that follows.
//!
//! * Cores, caches and devices are those of the other machines ([`crate::machine`], [`crate::device`]).
//! * `clwb`, `clflushopt` and non-temporal stores overlap, as many as there are line fill buffers. `clflush` goes one
//!   after the other.
//! * A fence waits until the stores before it are in the caches and the lines written back before it are durable; a
//!   full fence waits for loads too. Stores behind a `clflush` do not wait for it without a fence.
//! * A line waits for its read before it is written back.
//! * Up to 64 cores, in nodes with a last cache each where the machine file says so; NVM may lie beside DRAM.

pub mod config;
mod flushes;
mod locks;
mod machine;
mod memory;
mod outcome;

pub use config::{Config, Hardware, Locks, Nvm};
pub use machine::Machine;
pub use outcome::{Counts, Disk, Energy, Prices};
