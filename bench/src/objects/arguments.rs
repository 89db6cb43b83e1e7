//! The command line of `twinpage bench objects`.

use super::variant::{Variant, Workload};
use super::{recovery, stock};
use crate::args::seconds;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

#[derive(Args, Debug)]
pub(crate) struct ObjectsArguments {
    /// What is run [default: all]
    #[arg(long, value_enum, value_delimiter = ',', hide_default_value = true, default_values_t = Variant::value_variants().to_vec())]
    pub(crate) variant: Vec<Variant>,
    /// What is called [default: all]
    #[arg(long, value_enum, value_delimiter = ',', hide_default_value = true, default_values_t = Workload::value_variants().to_vec())]
    pub(crate) workload: Vec<Workload>,
    /// Threads that call, but of append and instant
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 8], value_parser = clap::value_parser!(u32).range(1..=60))]
    pub(crate) threads: Vec<u32>,
    /// Threads that call, of instant
    #[arg(long, value_delimiter = ',', default_values_t = [8], value_parser = clap::value_parser!(u32).range(1..=60))]
    pub(crate) instant_threads: Vec<u32>,
    /// Rows of the stock
    #[arg(long, default_value_t = stock::ITEMS, value_parser = clap::value_parser!(u64).range(60..=10_000_000))]
    pub(crate) items: u64,
    /// Calls before the kill, of recovery
    #[arg(long, default_value_t = recovery::CALLS, value_parser = clap::value_parser!(u64).range(60..))]
    pub(crate) calls: u64,
    /// Seconds of each run
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Runs of each variant; medians are shown, and the least and the most
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) repeat: u16,
    /// Directories to make the stores in: on tmpfs they are memory files, elsewhere files on a disk
    /// [default: /dev/shm and the directory for temporary files]
    #[arg(long, value_name = "PATH", value_delimiter = ',')]
    medium: Vec<PathBuf>,
    /// Also on memory files whose writes are slower: nanoseconds that each line takes longer, without peers, which write past
    /// us. SIMPO's NVRAM writes half as fast as DRAM (4): 14, where a line takes 14 (crates/os/src/flush.rs)
    #[arg(long, value_name = "NS", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) line_delay: Option<u32>,
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

impl ObjectsArguments {
    pub(crate) fn media(&self) -> Vec<PathBuf> {
        match self.medium.is_empty() {
            true => vec!["/dev/shm".into(), std::env::temp_dir()],
            false => self.medium.clone(),
        }
    }
}

/// One run.
#[derive(Args, Debug)]
pub(crate) struct ObjectArguments {
    #[arg(long, value_enum)]
    pub(crate) variant: Variant,
    #[arg(long, value_enum)]
    pub(crate) workload: Workload,
    #[arg(long)]
    pub(crate) threads: u32,
    #[arg(long)]
    pub(crate) items: u64,
    #[arg(long, value_parser = seconds)]
    pub(crate) seconds: f64,
    #[arg(long, default_value_t = recovery::CALLS)]
    pub(crate) calls: u64,
    #[arg(long, default_value_t = 0)]
    pub(crate) line_delay: u32,
    /// Makes calls until it is killed, for the run that recovers
    #[arg(long)]
    pub(crate) is_killed: bool,
    #[arg(long)]
    pub(crate) place: PathBuf,
}
