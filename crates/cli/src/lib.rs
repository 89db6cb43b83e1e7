//! What the command shares with the benchmarks beside it: see [`report`].

pub mod report;
