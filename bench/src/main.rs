//! `twinpage bench region`, `sections`, `versions` and `objects`: the library beside what it is compared to.
//!
//! A program of its own, so that the `twinpage` command has no peer in it; the command starts it.

mod args;
mod command;
mod engine;
mod engines;
mod medium;
mod objects;
mod open;
mod region;
mod report;
mod spread;
mod subject;
mod team;
mod versions;
mod worker;
mod workloads;

use command::{Arguments, Command};
use std::process::ExitCode;
use std::time::Instant;
use twinpage_commands::FAILED;
use twinpage_commands::output::parse;

fn main() -> ExitCode {
    let begun = Instant::now();
    let done = match parse::<Arguments>().command {
        Command::Region(arguments) => region::bench(&arguments),
        Command::Sections(arguments) => region::bench_sections(&arguments),
        Command::Versions(arguments) => versions::bench(&arguments),
        Command::Sps(arguments) => versions::sps(&arguments),
        Command::Array(arguments) => versions::array(&arguments, begun),
        Command::Objects(arguments) => objects::bench(&arguments),
        Command::Object(arguments) => objects::object(&arguments),
        Command::Worker(arguments) => worker::work(&arguments),
        Command::Fill(arguments) => open::fill(&arguments),
        Command::Look(arguments) => open::look(&arguments, begun),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("twinpage bench: {why}");
            ExitCode::from(FAILED)
        }
    }
}
