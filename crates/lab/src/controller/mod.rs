//! The memory controller: a DRAM cache of NVM pages, and a scheme that keeps NVM consistent.
//!
//! Reading order: `nvm.rs` is the medium the scheme writes to; `frames.rs` the DRAM cache and its
//! page table (CPT); `lookup.rs` what finding a page's entry costs; `stream.rs` the accesses nobody
//! waits for, and `call.rs` those somebody does; `requests.rs` asks the memories; `flow.rs` puts time to
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

pub use counts::{Counts, Why};
pub use epoch::Capture;
pub use fill::Growth;
pub use flow::{Answer, Controller, Order, Setting, Source};
