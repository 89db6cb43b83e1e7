//! The papers' evaluation, repeated (`twinpage lab eval`).
//!
//! Reading order: `paper.rs` is what the papers say; `loads.rs` what the machines run; `plan.rs` which runs
//! an artifact needs, with `open.rs` for what the papers leave open; `rows.rs` what follows from them, and
//! `evidence.rs` why it is not what the paper says; `chart.rs` and `html.rs` draw.
//!
//! * A run that several artifacts need is done once.
//! * Runs are independent and deterministic: the number of threads changes nothing but the time.
//! * No number of a paper goes into a run; they stand beside ours, and are `null` where the text has none.

mod chart;
mod evidence;
mod html;
mod loads;
mod open;
mod paper;
mod plan;
mod rows;

pub use paper::Paper;
pub use plan::ARTIFACTS;

use crate::characteristics::{Caches, Measured, measure};
use crate::config::machine::Config;
use crate::experiment::{Experiment, Report};
use crate::machine::{Ended, Outcome};
use crate::workload::image::Images;
use crate::workload::list::{self, Setting};
use loads::Load;
use plan::{Key, Runs, Variant};
use rayon::prelude::*;
use std::collections::BTreeSet;
use std::ops::Deref;
use std::path::PathBuf;
use twinpage_core::any::SchemeKind;

/// One number beside the paper's.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Row {
    /// `fig9a`, `table5`.
    pub artifact: &'static str,
    /// A scheme, or a setting.
    pub series: String,
    /// A workload, or `average`.
    pub workload: String,
    /// What the paper's text says.
    pub paper: Option<f64>,
    /// What was measured here.
    pub ours: f64,
    /// Its unit.
    pub unit: &'static str,
    /// What was measured beside it, where the two differ by more than 15%.
    pub note: Option<String>,
}

/// What to repeat, and how large.
#[derive(Clone, Debug)]
pub struct Request {
    /// Which paper.
    pub paper: Paper,
    /// Which artifacts; all if empty.
    pub artifacts: Vec<String>,
    /// Machine, workloads and runs are smaller by this.
    pub smaller: u64,
    /// Few instructions and few workloads for the sweeps.
    pub quick: bool,
    /// Instructions of a run, if other than the machine file's share.
    pub instructions: Option<u64>,
    /// Where the traces of programs are that stand in for SPEC's.
    pub traces: Option<PathBuf>,
    /// Workloads of the sweeps (over pools, places of the table, intervals, open choices); all if empty.
    pub sweep: Vec<String>,
    /// Everything random follows from it.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Evaluation {
    /// `dpc` or `twins`.
    pub paper: &'static str,
    /// The machine everything ran on, but for what an artifact varies.
    pub config_hash: String,
    /// Machine, workloads and runs are smaller by this.
    pub smaller: u64,
    /// Instructions of a run before it is counted, and counted.
    pub warm_up: u64,
    /// Those counted.
    pub instructions: u64,
    /// Runs done.
    pub runs: usize,
    /// The workloads, in the order of the figures.
    pub workloads: Vec<String>,
    /// Of the paper's workloads those that are not among them, and why.
    pub left_out: Vec<String>,
    /// Workloads whose runs were too short to say much: fewer than ten epochs.
    pub short: Vec<String>,
    /// The numbers.
    pub rows: Vec<Row>,
}

/// One run, and what else is known of its workload.
struct Run {
    report: Report,
    /// Bytes of its DRAM cache.
    dram_bytes: u64,
    /// The program by itself, where it is asked for.
    mix: Option<Instructions>,
}

impl Deref for Run {
    type Target = Report;
    fn deref(&self) -> &Report {
        &self.report
    }
}

/// What a program does, whatever the machine.
#[derive(Clone, Copy, Default)]
struct Instructions {
    loads: u64,
    stores: u64,
    touched_bytes: u64,
}

/// Repeats it. `tell` hears how many runs of how many are done, and which was the last.
///
/// # Errors
/// No such artifact, or a run that failed.
pub fn evaluate(request: &Request, tell: &(dyn Fn(usize, usize, &str) + Sync)) -> Result<Evaluation, String> {
    let config = config(request)?;
    let artifacts = plan::choose(request)?;
    let (loads, left_out) = loads::choose(request);
    let unknown = request
        .sweep
        .iter()
        .find(|name| !loads.iter().any(|load| load.name == **name));
    if let Some(unknown) = unknown {
        let names: Vec<&str> = loads.iter().map(|load| load.name.as_str()).collect();
        return Err(format!(
            "no workload is called {unknown} here; there are {}",
            names.join(", ")
        ));
    }
    let keys: BTreeSet<Key> = artifacts
        .iter()
        .flat_map(|artifact| artifact.keys(request, &loads))
        .collect();
    let keys: Vec<Key> = keys.into_iter().collect();
    let with_mix = artifacts.iter().any(|artifact| artifact.0 == "table5");
    let images = Images::default();
    let done = std::sync::atomic::AtomicUsize::new(0);
    let reports: Result<Vec<Run>, String> = keys
        .par_iter()
        .map(|key| {
            let mut run = run(&config, key, request, &loads, &images)?;
            if with_mix && (key.scheme, key.variant) == (SchemeKind::DualPage, Variant::Plain) {
                run.mix = Some(instructions(&config, request, &loads[key.workload])?);
            }
            let count = done.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
            let last = format!("{} {}", run.scheme, loads[key.workload].name);
            tell(count, keys.len(), &last);
            Ok(run)
        })
        .collect();
    let runs = Runs::new(keys, reports?);
    let cores = config.plan.shape.cores;
    let rows = artifacts
        .iter()
        .flat_map(|artifact| artifact.rows(request, &runs, &loads, cores))
        .collect();
    Ok(Evaluation {
        paper: request.paper.name(),
        config_hash: config.hash(),
        smaller: request.smaller,
        warm_up: config.plan.warm_up,
        instructions: config.plan.instructions,
        runs: runs.len(),
        short: runs.short(&loads),
        workloads: loads.into_iter().map(|load| load.name).collect(),
        left_out,
        rows,
    })
}

fn config(request: &Request) -> Result<Config, String> {
    let config = Config::find(request.paper.name()).map_err(|why| why.to_string())?;
    let mut config = match request.smaller {
        1 => config,
        by => config.smaller(by).map_err(|why| why.to_string())?,
    };
    if request.quick {
        config.plan.warm_up = 300_000;
        config.plan.instructions = 1_000_000;
    }
    config.plan.instructions = request.instructions.unwrap_or(config.plan.instructions);
    Ok(config)
}

fn run(
    config: &Config,
    key: &Key,
    request: &Request,
    loads: &[Load],
    images: &Images,
) -> Result<Run, String> {
    let mut config = config.clone();
    key.apply(&mut config);
    let load = &loads[key.workload];
    let dram_bytes = config.plan.controller.dram_bytes;
    let config_length = config.plan.instructions;
    let experiment = Experiment {
        config,
        scheme: key.scheme,
        workload: load.workload.clone(),
        scale: 1.0 / request.smaller as f64,
        seed: request.seed,
        crash_fs: None,
    };
    let report = experiment
        .run_among(images)
        .map_err(|why| format!("{} {}: {why}", key.scheme, load.name))?;
    cut_short(&report.outcome, config_length)
        .map_err(|why| format!("{} {}: {why}", key.scheme, load.name))?;
    Ok(Run {
        report,
        dram_bytes,
        mix: None,
    })
}

/// A run that did not go its length says nothing of the experiment it was for.
fn cut_short(outcome: &Outcome, asked: u64) -> Result<(), String> {
    match outcome.ended {
        Ended::Instructions => Ok(()),
        ended => Err(format!(
            "the run ended by its {ended} after {} of {asked} instructions; traces must be recorded longer (record DIR SMALLER LIMIT)",
            outcome.instructions
        )),
    }
}

/// The workload without the machine, as far as a run goes.
fn instructions(config: &Config, request: &Request, load: &Load) -> Result<Instructions, String> {
    let plan = &config.plan;
    let setting = Setting {
        scale: 1.0 / request.smaller as f64,
        cores: plan.shape.cores,
        seed: request.seed,
    };
    let mut workload = list::make(&load.workload, &setting)?;
    let caches = Caches::paper(setting.scale);
    let measured = measure(
        &mut *workload,
        setting.cores,
        &caches,
        plan.warm_up,
        plan.instructions,
        |_| (),
    );
    let Measured {
        loads,
        stores,
        touched_bytes,
        ..
    } = measured.map_err(|why| format!("{}: {why}", load.name))?;
    Ok(Instructions {
        loads,
        stores,
        touched_bytes,
    })
}

impl Evaluation {
    /// A report a person can read: one HTML document, with its figures inside.
    ///
    /// # Errors
    /// A figure that cannot be drawn.
    pub fn html(&self) -> Result<String, String> {
        html::document(self)
    }

    /// The figure of an artifact, as SVG.
    ///
    /// # Errors
    /// It cannot be drawn.
    pub fn figure(&self, artifact: &str) -> Result<String, String> {
        let rows: Vec<&Row> = self.rows.iter().filter(|row| row.artifact == artifact).collect();
        chart::bars(self.title(artifact), &rows)
    }

    /// What an artifact shows.
    #[must_use]
    pub fn title(&self, artifact: &str) -> &'static str {
        self.paper
            .parse()
            .map_or("", |paper| plan::title(paper, artifact))
    }

    /// The artifacts in it, in order.
    #[must_use]
    pub fn artifacts(&self) -> Vec<&'static str> {
        let mut names: Vec<&'static str> = self.rows.iter().map(|row| row.artifact).collect();
        names.dedup();
        names
    }
}
