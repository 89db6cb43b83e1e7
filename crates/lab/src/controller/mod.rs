//! The memory controller: a DRAM cache of NVM pages, and a scheme that keeps NVM consistent.
//!
//! Reading order: `nvm.rs` is the medium the scheme writes to; `frames.rs` the DRAM cache and its
//! page table (CPT); `lookup.rs` what finding a page's entry costs; `stream.rs` the asynchronous
//! accesses, and `call.rs` the synchronous ones; `requests.rs` asks the memories; `flow.rs` puts time to
//! all of it; `fill.rs` moves pages between DRAM and NVM; `epoch.rs` ends epochs.
//!
//! * What the scheme does it does at once, on real bytes; the accesses it made are then timed.
//! * Accesses on the critical path make a *call*: whoever caused it waits until they are done.
//!   Others go to the stream.
//! * All times are femtoseconds.

mod call;
mod counts;
mod epoch;
mod fill;
mod flow;
pub mod frames;
pub mod lookup;
pub mod nvm;
mod requests;
mod stream;
pub(crate) mod timed;

pub use counts::{Counts, Purpose};
pub use epoch::Capture;
pub use fill::Growth;
pub use flow::{Order, Setting};
pub use requests::{Answer, Source};

use crate::slab::Slab;
use call::Calls;
use counts::Written;
use fill::Fill;
use frames::Frames;
use lookup::Lookup;
use nvm::{Entry, Nvm};
use requests::Groups;
use std::collections::VecDeque;
use stream::Stream;
use timed::Timed;
use twinpage_core::{Error, Simulated};

/// The memory controller.
pub struct Controller {
    setting: Setting,
    dram: Timed,
    nvm_device: Timed,
    nvm: Nvm,
    scheme: Box<dyn Simulated>,
    frames: Frames,
    lookup: Lookup,
    stream: Stream,
    fills: Slab<Fill>,
    /// Fills that wait for a frame, or for room to evict.
    held_fills: VecDeque<u32>,
    capture: Capture,
    /// Pages written in this epoch, and which of their lines were dirty.
    written: Written,
    groups: Groups,
    calls: Calls,
    now: u64,
    log: Vec<Entry>,
    /// What is left to read of a page: address and lines of each piece.
    pieces: Vec<(u64, u64)>,
    /// Lines that came, for the machine to take.
    pub answers: Vec<Answer>,
    /// The scheme asked for a checkpoint: it has no room left.
    pub wants_checkpoint: bool,
    /// DRAM writes of a flush that are not done.
    flushing: u32,
    /// What happened.
    pub counts: Counts,
    /// What went wrong in the scheme: the run is over.
    pub failed: Option<Error>,
}
