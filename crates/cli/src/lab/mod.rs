//! `twinpage lab`: traces, workloads and experiments in simulated time. Each subcommand has a file.

mod convert;
mod eval;
mod memory;
mod mss;
mod record;
mod run;
mod sweep;
mod workloads;

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::process::ExitCode;

#[derive(Args, Debug)]
pub(crate) struct Lab {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Subcommand, Debug)]
enum LabCommand {
    /// Run a workload on a simulated machine, and crash it if you like
    #[command(after_help = run::EXAMPLES)]
    Run(run::Run),
    /// Drive a memory alone with a trace of requests
    #[command(after_help = memory::EXAMPLES)]
    Memory(memory::Drive),
    /// Repeat a paper's evaluation
    #[command(after_help = eval::EXAMPLES)]
    Eval(eval::Eval),
    /// Record the memory accesses of a real program
    #[command(after_help = record::EXAMPLES)]
    Record(record::Record),
    /// Rewrite a trace in another form
    #[command(after_help = convert::EXAMPLES)]
    Convert(convert::Convert),
    /// List the workloads, and measure what they are like
    #[command(after_help = workloads::EXAMPLES)]
    Workloads(workloads::Workloads),
}

pub(crate) fn lab(lab: Lab) -> Result<ExitCode, String> {
    match lab.command {
        LabCommand::Run(arguments) => run::run(&arguments),
        LabCommand::Memory(arguments) => memory::memory(&arguments),
        LabCommand::Eval(arguments) => eval::eval(&arguments),
        LabCommand::Record(arguments) => record::record(&arguments),
        LabCommand::Convert(arguments) => convert::convert(&arguments),
        LabCommand::Workloads(arguments) => workloads::workloads(&arguments),
    }
}

/// What was asked, as one types it.
fn command() -> String {
    let arguments = std::env::args().skip(1);
    std::iter::once("twinpage".to_owned())
        .chain(arguments)
        .collect::<Vec<_>>()
        .join(" ")
}

/// A bar on standard error that goes to `total` of a `unit`.
fn bar(total: u64, unit: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    let template = format!("{{bar:30}} {{percent}}% of {{human_len}} {unit}, {{elapsed}}: {{msg}}");
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style);
    }
    bar
}
