//! `twinpage bench region`: starts the program beside this one that knows the stores compared with.
//!
//! It is a program of its own so that this one has no part of them.

use crate::args::RegionArguments;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

const PROGRAM: &str = "twinpage-bench";

pub(crate) fn bench(arguments: &RegionArguments) -> Result<ExitCode, String> {
    let own =
        std::env::current_exe().map_err(|error| format!("cannot find the twinpage program: {error}"))?;
    let program = own.with_file_name(PROGRAM);
    if !program.exists() {
        return Err(format!(
            "{} is not there: it comes with the source, cargo build --release -p {PROGRAM}",
            program.display()
        ));
    }
    let error = Command::new(&program)
        .arg("region")
        .args(&arguments.options)
        .exec();
    Err(format!("cannot start {}: {error}", program.display()))
}
