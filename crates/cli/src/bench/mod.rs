//! `twinpage bench`: what checkpoints cost here, in one run with what they are compared to.

mod lab;
mod process;
pub(crate) mod programs;
mod region;
pub(crate) mod trees;
mod writer;

use crate::args::{Bench, BenchCommand};
use std::path::PathBuf;
use std::process::ExitCode;

pub(crate) fn bench(bench: Bench) -> Result<ExitCode, String> {
    match bench.command {
        BenchCommand::Lab(arguments) => lab::bench(&arguments),
        BenchCommand::Process(arguments) => process::bench(&arguments),
        BenchCommand::Programs(arguments) => programs::bench(&arguments),
        BenchCommand::Trees(arguments) => trees::bench(&arguments),
        BenchCommand::Region(arguments) => region::bench("region", &arguments),
        BenchCommand::Sections(arguments) => region::bench("sections", &arguments),
        BenchCommand::Versions(arguments) => region::bench("versions", &arguments),
        BenchCommand::Objects(arguments) => region::bench("objects", &arguments),
        BenchCommand::Writer(arguments) => writer::write(&arguments),
    }
}

/// This program, which the benchmarks start.
fn own_program() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|error| format!("cannot find the twinpage program: {error}"))
}
