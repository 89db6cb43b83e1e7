//! The machine: cores and their caches over the memory controller, in one time.
//!
//! Reading order: `core.rs`, `tlb.rs`, `cache.rs`, `sharers.rs`, `distances.rs`, `hierarchy.rs`, `miss_file.rs` are the
//! parts; `run.rs` moves them in time
//! order; `checkpoint.rs` ends epochs; `crash.rs` stops it anywhere and checks what is recovered;
//! `outcome.rs` is what a run says.
//!
//! * The core that is furthest behind goes next; none runs ahead of the others by more than a window.
//! * A checkpoint falls when every core is at the end of a batch: the space is then exactly what the
//!   caches, DRAM and NVM together hold.
//! * The order of batches is the only thing that passes from the machine to the workload.

pub mod cache;
mod checkpoint;
pub mod core;
pub mod crash;
pub mod distances;
pub mod hierarchy;
pub(crate) mod miss_file;
mod outcome;
mod run;
pub mod sharers;
pub mod tlb;

pub use outcome::{Ended, Outcome, Sample, Traffic};
pub use run::Stop;

use crate::controller::{Controller, Setting};
use crate::schemes::SchemeName;
use crate::space::Space;
use crate::workload::Workload;
use hierarchy::{Hierarchy, Level};
use miss_file::MissFile;
use outcome::Ledger;
use twinpage_baselines::Tables;

/// Who waits for a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// No checkpoints at all: the unprotected baseline.
    None,
    /// The cores, until it is durable.
    Stall,
    /// None: the scheme overlaps its checkpoint with execution.
    Scheme,
    /// None: the machine captures the epoch and overlaps the writing with execution.
    Overlap,
}

/// Cores and caches, resolved.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Shape {
    /// Cores.
    pub cores: usize,
    /// A cycle, in femtoseconds.
    pub cycle_fs: u64,
    /// An instruction at full width, in femtoseconds.
    pub instruction_fs: u64,
    /// What mispredicted branches and missed fetches cost an instruction on average, in femtoseconds.
    pub events_fs: u64,
    /// The TLB of a core, where translation takes time.
    pub tlb: Option<tlb::TlbShape>,
    /// Instructions in the reorder buffer.
    pub reorder: u64,
    /// Stores that may miss at a time.
    pub store_buffer: usize,
    /// Lines a core may wait for at a time.
    pub misses: usize,
    /// The caches; the last is shared.
    pub levels: Vec<Level>,
    /// Bytes of registers and buffers a core saves at a checkpoint.
    pub state_bytes: u64,
}

/// A machine, resolved.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Plan {
    /// Cores and caches.
    pub shape: Shape,
    /// Memories and their controller.
    pub controller: Setting,
    /// Bytes of NVM.
    pub nvm_bytes: u64,
    /// Derivative pages of the dual page.
    pub pool_pages: u64,
    /// Bytes of journal for schemes that keep one.
    pub journal_bytes: u64,
    /// The tables of ThyNVM.
    pub tables: Tables,
    /// Execution between checkpoints, in femtoseconds.
    pub interval_fs: u64,
    /// Who waits for checkpoints.
    pub mode: Mode,
    /// Instructions before anything is counted, of all cores together.
    pub warm_up: u64,
    /// Instructions counted.
    pub instructions: u64,
}

/// A machine with a program in it.
pub struct Machine<'w> {
    plan: Plan,
    scheme: SchemeName,
    cores: Vec<core::Core>,
    caches: Hierarchy,
    controller: Controller,
    space: Space,
    workload: &'w mut dyn Workload,
    asked: MissFile,
    epoch_end: u64,
    parking: bool,
    ledger: Ledger,
    /// Batches run, and by which core each, where a crash is to be checked.
    batches: u64,
    order: Vec<u8>,
    remember: bool,
    crash_at: u64,
    /// One program of a mix is over.
    mix_is_over: bool,
}
