//! `twinpage lab eval`: a paper's evaluation, repeated.

use super::bar;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use twinpage_lab::eval::{Evaluation, Paper, Request, evaluate};

pub(super) const EXAMPLES: &str = "Example:
  twinpage lab eval dpc --quick
  twinpage lab eval dpc --artifact fig9a fig9b --smaller 16 --out results --json
  twinpage lab eval twins --smaller 16 --out results

Writes PAPER.json, PAPER.html and an SVG for each artifact into --out.";

#[derive(Args, Debug)]
pub(crate) struct Eval {
    /// The paper: dpc or twins
    paper: Paper,
    /// Artifacts, such as fig9a; all if none is named
    #[arg(long, value_name = "NAME", num_args = 1..)]
    artifact: Vec<String>,
    /// A small machine, short runs, few workloads for the sweeps
    #[arg(long)]
    quick: bool,
    /// Make machine, workloads and runs smaller by this power of two (64 with --quick)
    #[arg(long, value_name = "N")]
    smaller: Option<u64>,
    /// Everything random follows from it
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Where to write the report and its figures
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// One JSON document on standard output
    #[arg(long)]
    json: bool,
}

pub(super) fn eval(arguments: &Eval) -> Result<ExitCode, String> {
    let request = Request {
        paper: arguments.paper,
        artifacts: arguments.artifact.clone(),
        smaller: arguments.smaller.unwrap_or(if arguments.quick { 64 } else { 1 }),
        quick: arguments.quick,
        seed: arguments.seed,
    };
    let shown = bar(1, "runs");
    let evaluation = evaluate(&request, &|done, all, last| {
        shown.set_length(all as u64);
        shown.set_position(done as u64);
        shown.set_message(last.to_owned());
    })?;
    shown.finish_and_clear();
    if let Some(folder) = &arguments.out {
        write(&evaluation, folder)?;
    }
    match arguments.json {
        true => println!(
            "{}",
            serde_json::to_string(&evaluation).map_err(|why| why.to_string())?
        ),
        false => show(&evaluation),
    }
    Ok(ExitCode::SUCCESS)
}

fn write(evaluation: &Evaluation, folder: &std::path::Path) -> Result<(), String> {
    let put = |name: String, text: String| {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(|why| format!("{}: {why}", path.display()))
    };
    std::fs::create_dir_all(folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    let json = serde_json::to_string_pretty(evaluation).map_err(|why| why.to_string())?;
    put(format!("{}.json", evaluation.paper), json + "\n")?;
    put(format!("{}.html", evaluation.paper), evaluation.html()?)?;
    for artifact in evaluation.artifacts() {
        put(
            format!("{}-{artifact}.svg", evaluation.paper),
            evaluation.figure(artifact)?,
        )?;
    }
    Ok(())
}

/// What the paper's text has a number for, and every average.
fn show(evaluation: &Evaluation) {
    let mut table = comfy_table::Table::new();
    table.load_preset(comfy_table::presets::NOTHING);
    table.set_header(["artifact", "series", "workload", "paper", "ours", "unit"]);
    for row in &evaluation.rows {
        if row.paper.is_some() || row.workload == "average" || row.workload == "worst" {
            let paper = row.paper.map_or(String::new(), |paper| format!("{paper:.2}"));
            let ours = format!("{:.2}", row.ours);
            table.add_row([row.artifact, &row.series, &row.workload, &paper, &ours, row.unit]);
        }
    }
    println!("{table}");
}
