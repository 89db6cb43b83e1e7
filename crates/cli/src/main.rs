//! The `twinpage` command.

#[macro_use]
extern crate twinpage_commands;

mod args;
mod array;
mod bench;
mod check;
mod classify;
mod explain;
mod info;
mod log;
mod program;
mod prove;
mod region;
mod states;
mod values;

use args::{Arguments, Command};
use std::process::ExitCode;
use twinpage_commands::output::parse;
use twinpage_commands::{FAILED, lab, show};
use twinpage_os::messages;

fn main() -> ExitCode {
    let arguments: Arguments = parse();
    twinpage_os::signals::fail_at_file_limits();
    // A program's end of its output is that program's to feel.
    let forwards = match &arguments.command {
        Command::Run(run) => !run.explain,
        Command::Resume(_) => true,
        _ => false,
    };
    if !forwards {
        twinpage_os::signals::end_when_nobody_reads();
    }
    let done = match arguments.command {
        Command::Run(run) => program::run(run),
        Command::Resume(resume) => program::resume(resume),
        Command::Attach(attach) => program::attach(&attach),
        Command::List(list) => states::list(&list),
        Command::Stop(stop) => states::stop(&stop),
        Command::Fork(fork) => states::fork(&fork),
        Command::Clean(clean) => states::clean(&clean),
        Command::Info(look) if array::is_array(&look.state) => array::info(&look),
        Command::Info(look) if region::is_region(&look.state) => region::info(&look),
        Command::Info(look) => info::info(&look),
        Command::Check(look) if array::is_array(&look.state) => array::check(&look),
        Command::Check(look) if region::is_region(&look.state) => region::check(&look),
        Command::Check(look) => check::check(&look),
        Command::Stats(stats) => region::stats(&stats),
        Command::Log(log) => log::log(&log),
        Command::Backup(backup) if array::is_array(&backup.region) => array::backup(&backup),
        Command::Backup(backup) => region::backup(&backup),
        Command::Classify(sources) => classify::classify(&sources),
        Command::Prove(prove) => prove::prove(&prove),
        Command::Bench(bench) => bench::bench(bench),
        Command::Lab(lab) => lab::lab(lab),
    };
    done.unwrap_or_else(|why| {
        messages::tell(&why);
        ExitCode::from(FAILED)
    })
}
