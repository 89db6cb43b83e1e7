//! `twinpage lab`: traces, workloads and experiments in simulated time. Each subcommand has a file.

mod convert;
mod eval;
mod memory;
mod record;
mod run;
mod sections;
mod study;
mod sweep;
mod verify;
mod workloads;

use crate::output::parse;
use clap::{Args, Parser, Subcommand};
use eval::Study;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::process::ExitCode;
use twinpage_os::messages;

/// The papers' memory controllers in simulated time: traces, workloads, experiments.
#[derive(Args, Debug)]
pub struct Lab {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Subcommand, Debug)]
enum LabCommand {
    /// Run a workload on a simulated machine, and crash it if you like
    #[command(after_help = run::EXAMPLES)]
    Run(run::Run),
    /// Run a program whose sections are made atomic (SSP), and crash it if you like
    #[command(after_help = sections::EXAMPLES)]
    Sections(sections::SectionsRun),
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
    /// Crash a scheme at every write and fence of random runs, and check what is recovered
    #[command(after_help = verify::EXAMPLES)]
    Verify(verify::Verify),
    /// List the workloads, and measure what they are like
    #[command(after_help = workloads::EXAMPLES)]
    Workloads(workloads::Workloads),
}

/// A command that is the lab alone, for a program that has added schemes or workloads of its own:
/// `mine run --scheme mine ...` is `twinpage lab run ...`.
#[must_use]
pub fn main() -> ExitCode {
    #[derive(Parser)]
    #[command(
        version,
        about = "The papers' memory controllers in simulated time, and schemes of one's own"
    )]
    struct Alone {
        #[command(flatten)]
        lab: Lab,
    }
    twinpage_os::signals::end_when_nobody_reads();
    lab(parse::<Alone>().lab).unwrap_or_else(|why| {
        messages::tell(&why);
        ExitCode::from(crate::FAILED)
    })
}

/// Does what was asked.
///
/// # Errors
/// What is wrong with the request, or with what was found.
pub fn lab(lab: Lab) -> Result<ExitCode, String> {
    match lab.command {
        LabCommand::Run(arguments) if arguments.is_sweep() => sweep::sweep(&arguments),
        LabCommand::Run(arguments) => run::run(&arguments),
        LabCommand::Sections(arguments) => sections::sections(&arguments),
        LabCommand::Memory(arguments) => memory::memory(&arguments),
        LabCommand::Eval(arguments) => match arguments.paper {
            Study::Scheme(paper) => eval::eval(&arguments, paper),
            Study::Mss => study::mss(&arguments),
            Study::Ssp => study::ssp(&arguments),
            Study::Simpo => study::simpo(&arguments),
        },
        LabCommand::Record(arguments) => record::record(&arguments),
        LabCommand::Convert(arguments) => convert::convert(&arguments),
        LabCommand::Verify(arguments) => verify::verify(&arguments),
        LabCommand::Workloads(arguments) => workloads::workloads(&arguments),
    }
}

/// A bar on standard error that goes to `total` of a `unit`.
#[must_use]
pub fn bar(total: u64, unit: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    let template = format!("{{bar:30}} {{percent}}% of {{human_len}} {unit}, {{elapsed}}: {{msg}}");
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style);
    }
    bar
}
