//! What the `twinpage` command shares with programs beside it: how benchmarks report, and the lab's commands, for
//! programs that add schemes and workloads of their own.

#[macro_use]
pub mod output;

pub mod lab;
pub mod report;
pub mod show;

/// The exit code when twinpage itself fails, as `env` and `timeout` use it.
pub const FAILED: u8 = 125;
