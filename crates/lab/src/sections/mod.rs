//! Failure-atomic sections on a machine with its memory on the bus (SSP; `ssp.toml`): shadow sub-paging, undo logging
//! and redo logging.
//!
//! Reading order: `config.rs` is what the machine file says; `step.rs` the steps that a design turns a program's
//! accesses into; `design.rs` the contract; `logs.rs` and `ssp.rs` the designs; `program.rs` runs a workload through one of
//! them; `crash.rs` is a memory that loses power between steps, and what each design recovers; `power.rs` has the power of
//! the machine fail.
//!
//! * A section is all that a core does up to a [`crate::Kind::Commit`]. Programs keep sections apart by locks of their own,
//!   held until the core asks for its next batch.
//! * A design's tables change in the order in which batches are made; the machine gives the steps their times.
//! * What is counted as logging, data, consolidation or checkpoint is counted where its step is made.

pub mod config;
pub mod crash;
mod design;
mod logs;
mod lru;
pub mod power;
mod program;
mod ssp;
pub mod step;

pub use config::{Config, Setting};
pub use design::{Counts, Name};
pub use program::Sections;
