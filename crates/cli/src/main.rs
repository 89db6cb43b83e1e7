//! The `twinpage` command.

mod args;
mod explain;
mod program;

use args::{Arguments, Command};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match arguments.command {
        Command::Run(run) => program::run(run),
        Command::Resume(resume) => program::resume(resume),
    };
    done.unwrap_or_else(|why| {
        eprintln!("twinpage: {why}");
        ExitCode::from(FAILED)
    })
}

/// The exit code when twinpage itself fails, as `env` and `timeout` use it.
const FAILED: u8 = 125;
