//! `twinpage lab eval`: a paper's evaluation, repeated.

use super::bar;
use crate::output::{make_folder, print_json};
use crate::report::provenance;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use twinpage_lab::eval::{Claim, Document, Evaluation, Paper, Request, do_only, evaluate};
use twinpage_lab::schemes::SchemeName;
use twinpage_lab::whole_file;
use twinpage_os::messages;

pub(super) const EXAMPLES: &str = "Example:
  twinpage lab eval dpc --quick
  twinpage lab eval dpc --artifact fig9a fig9b --smaller 16 --out results --json
  twinpage lab eval twins --smaller 16 --traces target/traces --out results
  twinpage lab eval dpc --artifact fig9a claims --precision 1% --runs runs --out results
  twinpage lab eval dpc --artifact fig9a --runs runs --only '*/tatp' '*/echo'
  twinpage lab eval mss --quick
  twinpage lab eval ssp --artifact fig5a claims
  twinpage lab eval ssp --artifact fig6 --set tlb.entries=8 --smaller 64
  twinpage lab eval simpo --quick

Writes PAPER.json, PAPER.html and an SVG for each artifact into --out. The papers' mixes of SPEC programs are
played with traces of free ones that stand in for them: make traces records them into target/traces.";

#[derive(Args, Debug)]
pub(crate) struct Eval {
    /// The paper: dpc, twins, mss, ssp or simpo
    pub(super) paper: Study,
    /// Artifacts, such as fig9a; all if none is named
    #[arg(long, value_name = "NAME", num_args = 1..)]
    pub(super) artifact: Vec<String>,
    /// A small machine, short runs, few workloads for the sweeps
    #[arg(long)]
    quick: bool,
    /// Make machine, workloads and runs smaller by this power of two (64 with --quick)
    #[arg(long, value_name = "N")]
    smaller: Option<u64>,
    /// Instructions of a run [default: the papers' 1.5 billion, smaller as the rest is]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    instructions: Option<u64>,
    /// Traces that stand in for SPEC's programs [default: target/traces, if it is there]
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Workloads of the sweeps over pools, places, intervals and open choices; all if none is named
    #[arg(long, value_name = "NAME", num_args = 1..)]
    sweep: Vec<String>,
    /// Everything random follows from it [default: 1]
    #[arg(long, value_name = "SEED")]
    pub(super) seed: Option<u64>,
    /// End runs when their ratios are known so well, such as 1%; without it each goes its full length
    #[arg(long, value_name = "SHARE", value_parser = share)]
    precision: Option<f64>,
    /// Change a value of the paper's machine, such as nvm.channels=2
    #[arg(long, value_name = "KEY=VALUE")]
    pub(super) set: Vec<String>,
    /// Schemes beside the paper's, with a bar each
    #[arg(long, value_name = "SCHEME", num_args = 1..)]
    with: Vec<SchemeName>,
    /// Runs at a time [default: one on each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=4096))]
    jobs: Option<u64>,
    /// Keep runs in this folder, and do none again that is there
    #[arg(long, value_name = "DIR")]
    runs: Option<PathBuf>,
    /// Only do these runs, for an evaluation to come: SCHEME/WORKLOAD, * for any
    #[arg(long, value_name = "RUN", num_args = 1.., requires = "runs", conflicts_with = "out")]
    only: Vec<String>,
    /// Where to write the report and its figures
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// One JSON document on standard output
    #[arg(long)]
    pub(super) json: bool,
}

/// A paper.
#[derive(Clone, Copy, Debug)]
pub(super) enum Study {
    /// One of a memory controller's scheme.
    Scheme(Paper),
    /// Programs that persist by themselves.
    Mss,
    /// Failure-atomic sections.
    Ssp,
    /// Persistent objects.
    Simpo,
}

impl FromStr for Study {
    type Err = String;
    fn from_str(text: &str) -> Result<Study, String> {
        match text {
            "mss" => Ok(Study::Mss),
            "ssp" => Ok(Study::Ssp),
            "simpo" => Ok(Study::Simpo),
            _ => text
                .parse()
                .map(Study::Scheme)
                .map_err(|_| "the papers are dpc, twins, mss, ssp and simpo".into()),
        }
    }
}

impl Eval {
    /// An option that was given and is for the papers of schemes alone, and what there is for the others.
    pub(super) fn for_schemes(&self) -> Option<(&'static str, &'static str)> {
        let full = "each program runs its full length, which --smaller divides";
        [
            (self.instructions.is_some(), "--instructions", full),
            (self.precision.is_some(), "--precision", full),
            (self.traces.is_some(), "--traces", "no trace is played"),
            (
                !self.sweep.is_empty(),
                "--sweep",
                "--artifact says what is varied, and --set changes a value of the machine",
            ),
            (
                !self.with.is_empty(),
                "--with",
                "its machine has no memory controller with a scheme",
            ),
            (self.runs.is_some(), "--runs", "all runs are done by one command"),
        ]
        .into_iter()
        .find_map(|(is_given, name, instead)| is_given.then_some((name, instead)))
    }

    pub(super) fn smaller(&self) -> u64 {
        let quick = if self.quick { 64 } else { 1 };
        self.smaller.unwrap_or(quick)
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed.unwrap_or(1)
    }

    pub(super) fn jobs(&self) -> Option<usize> {
        self.jobs.map(|jobs| jobs as usize)
    }
}

pub(super) fn eval(arguments: &Eval, paper: Paper) -> Result<ExitCode, String> {
    let request = Request {
        instructions: arguments.instructions,
        traces: traces(arguments)?,
        sweep: arguments.sweep.clone(),
        paper,
        artifacts: arguments.artifact.clone(),
        smaller: arguments.smaller(),
        quick: arguments.quick,
        seed: arguments.seed(),
        precision: arguments.precision,
        runs: arguments.runs.clone(),
        set: arguments.set.clone(),
        with: arguments.with.clone(),
        jobs: arguments.jobs(),
        provenance: provenance(),
    };
    let shown = bar(1, "runs");
    let tell = |done: usize, all: usize, last: &str| {
        shown.set_length(all as u64);
        shown.set_position(done as u64);
        shown.set_message(last.to_owned());
    };
    if !arguments.only.is_empty() {
        let (done, all) = do_only(&request, &arguments.only, &tell)?;
        shown.finish_and_clear();
        match arguments.json {
            true => println!("{{\"done\":{done},\"runs\":{all}}}"),
            false => println!("{done} of {all} runs are done"),
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(folder) = &arguments.out {
        make_folder(folder)?;
    }
    let evaluation = evaluate(&request, &tell)?;
    shown.finish_and_clear();
    for left_out in &evaluation.left_out {
        messages::tell(&format!("left out: {left_out}"));
    }
    if !evaluation.short.is_empty() {
        let short = evaluation.short.join("; ");
        messages::tell(&format!("too short to say much: {short}"));
    }
    match arguments.json {
        true => print_json(&evaluation)?,
        false => show(&evaluation),
    }
    if let Some(folder) = &arguments.out {
        write(&evaluation, folder)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// `1%` or `0.01`.
fn share(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.strip_suffix('%') {
        Some(percent) => (percent, 100.0),
        None => (text, 1.0),
    };
    let number: f64 = number
        .trim()
        .parse()
        .map_err(|_| "expected a share such as 1% or 0.01".to_owned())?;
    Ok(number / unit)
}

/// The folder named, which must be there, or the one that `make traces` fills, if it is.
fn traces(arguments: &Eval) -> Result<Option<PathBuf>, String> {
    match &arguments.traces {
        Some(folder) if folder.is_dir() => Ok(Some(folder.clone())),
        Some(folder) => Err(format!(
            "{}: no such folder; make traces records into target/traces",
            folder.display()
        )),
        None => Ok(Some(PathBuf::from("target/traces")).filter(|folder| folder.is_dir())),
    }
}

/// `PAPER.json`, `PAPER.html` and an SVG for each artifact, in a folder.
pub(super) fn write(evaluation: &impl Document, folder: &Path) -> Result<(), String> {
    let paper = evaluation.paper();
    let put = |name: String, text: String| whole_file::write(&folder.join(name), &text);
    let json = serde_json::to_string_pretty(evaluation).map_err(|why| why.to_string())?;
    put(format!("{paper}.json"), json + "\n")?;
    put(format!("{paper}.html"), evaluation.html()?)?;
    for artifact in evaluation.artifacts() {
        put(format!("{paper}-{artifact}.svg"), evaluation.figure(artifact)?)?;
    }
    Ok(())
}

/// What the paper's text has a number for, and every average.
fn show(evaluation: &Evaluation) {
    let mut table = comfy_table::Table::new();
    table.load_preset(comfy_table::presets::NOTHING);
    table.set_header(["artifact", "series", "workload", "paper", "ours", "±", "unit"]);
    for row in &evaluation.rows {
        let is_said = row.paper.is_some() || row.artifact.starts_with("sensitivity");
        if is_said || row.artifact.starts_with("range") || row.is_summary() {
            let paper = row.paper.map_or(String::new(), |paper| format!("{paper:.2}"));
            let ours = format!("{:.2}", row.ours);
            let width = row
                .plus_minus
                .map_or(String::new(), |width| format!("{width:.3}"));
            table.add_row([
                row.artifact,
                &row.series,
                &row.workload,
                &paper,
                &ours,
                &width,
                row.unit,
            ]);
        }
    }
    if !evaluation.rows.is_empty() {
        println!("{table}");
    }
    show_claims(&evaluation.claims);
}

pub(super) fn show_claims(claims: &[Claim]) {
    for claim in claims {
        println!(
            "{:6} {:15} {}: {}",
            claim.place,
            claim.verdict.to_string(),
            claim.sentence,
            claim.numbers
        );
    }
}
