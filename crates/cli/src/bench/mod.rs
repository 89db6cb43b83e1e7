//! `twinpage bench`: what checkpoints cost here, in one run with what they are compared to.

mod lab;
mod process;
pub(crate) mod programs;
mod region;
mod writer;

use crate::args::{Bench, BenchCommand};
use std::process::ExitCode;

pub(crate) fn bench(bench: Bench) -> Result<ExitCode, String> {
    match bench.command {
        BenchCommand::Lab(arguments) => lab::bench(&arguments),
        BenchCommand::Process(arguments) => process::bench(&arguments),
        BenchCommand::Programs(arguments) => programs::bench(&arguments),
        BenchCommand::Region(arguments) => region::bench("region", &arguments),
        BenchCommand::Sections(arguments) => region::bench("sections", &arguments),
        BenchCommand::Versions(arguments) => region::bench("versions", &arguments),
        BenchCommand::Objects(arguments) => region::bench("objects", &arguments),
        BenchCommand::Writer(arguments) => writer::write(&arguments),
    }
}
