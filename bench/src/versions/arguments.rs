//! What `twinpage bench versions` can be told.

use super::variant::Variant;
use crate::args::{each_once, positive, whole};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// What is measured.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    Sps,
    Planes,
    Open,
}

/// A part of `twinpage bench versions` that is not SPS.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Task {
    /// Steps in a memory file, which needs no write-back.
    PlanesMemory,
    /// The same, with every line written back, as on persistent memory.
    PlanesClwb,
    /// Steps on a disk.
    PlanesDisk,
    FillPlanes,
    FillVersions,
    OpenPlanes,
    OpenVersions,
}
#[derive(Args, Debug)]
pub(crate) struct VersionsArguments {
    /// What is run [default: all]
    #[arg(long, value_enum, value_delimiter = ',', hide_default_value = true, default_values_t = Variant::value_variants().to_vec())]
    variant: Vec<Variant>,
    /// What is measured: the SPS programs, steps of planes, openings after a kill
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Part::value_variants().to_vec())]
    pub(crate) part: Vec<Part>,
    /// Swaps of a run
    #[arg(long, value_delimiter = ',', default_values_t = [100_000, 1_000_000], value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) swaps: Vec<u64>,
    /// Runs of each variant; medians are shown, and the least and the most
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) repeat: u16,
    /// Runs of the other parts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) repeat_arrays: u16,
    /// MiB of a plane, of which there are three
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=65536))]
    pub(crate) planes_mib: u64,
    /// MiB of the arrays that are opened after a kill; their files have twice as many
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=65536))]
    pub(crate) open_mib: u64,
    /// Strings of 256 bytes
    #[arg(long, default_value_t = 100_000, value_parser = strings)]
    pub(crate) strings: usize,
    /// Hand-overs to the persistence thread for each swap, of the variants with a thread
    #[arg(long, default_value_t = 0.6, value_parser = threshold)]
    pub(crate) threshold: f64,
    /// Entries of a redo log, 576 bytes each, before it begins again
    #[arg(long, default_value_t = 16_384, value_parser = entries)]
    pub(crate) log_entries: usize,
    /// A directory on a memory file system
    #[arg(long, value_name = "PATH", default_value = "/dev/shm")]
    pub(crate) memory: PathBuf,
    /// A directory on a disk, for dl and planes [default: the one for temporary files]
    #[arg(long, value_name = "PATH")]
    disk: Option<PathBuf>,
    /// What the swaps are drawn from
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

impl VersionsArguments {
    /// Each once, in the order asked for.
    pub(crate) fn variants(&self) -> Vec<Variant> {
        each_once(self.variant.iter().copied())
    }

    pub(crate) fn disk(&self) -> PathBuf {
        self.disk.clone().unwrap_or_else(std::env::temp_dir)
    }
}

#[derive(Args, Clone, Debug)]
pub(crate) struct SpsArguments {
    #[arg(long, value_enum)]
    pub(crate) variant: Variant,
    #[arg(long)]
    pub(crate) swaps: u64,
    #[arg(long, value_parser = strings)]
    pub(crate) strings: usize,
    #[arg(long, value_parser = threshold)]
    pub(crate) threshold: f64,
    #[arg(long, value_parser = entries)]
    pub(crate) log_entries: usize,
    #[arg(long)]
    pub(crate) seed: u64,
    #[arg(long)]
    pub(crate) place: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct ArrayArguments {
    #[arg(long, value_enum)]
    pub(crate) task: Task,
    #[arg(long)]
    pub(crate) mib: u64,
    #[arg(long)]
    pub(crate) place: PathBuf,
}

fn threshold(text: &str) -> Result<f64, String> {
    positive(text, 1.0)
}

fn strings(text: &str) -> Result<usize, String> {
    whole(text, 2, 1 << 24)
}

fn entries(text: &str) -> Result<usize, String> {
    whole(text, 1, 1 << 24)
}
