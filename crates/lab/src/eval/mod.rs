//! The papers' evaluation, repeated (`twinpage lab eval`).
//!
//! Reading order: `paper.rs` is what the papers say; `plan.rs` which runs an artifact needs and how its
//! rows follow from them; `chart.rs` and `html.rs` draw.
//!
//! * A run that several artifacts need is done once.
//! * Runs are independent and deterministic: the number of threads changes nothing but the time.
//! * No number of a paper goes into a run; they stand beside ours, and are `null` where the text has none.

mod chart;
mod html;
mod paper;
mod plan;

pub use paper::Paper;
pub use plan::ARTIFACTS;

use crate::config::machine::Config;
use crate::experiment::{Experiment, Report};
use plan::{Key, Runs};
use rayon::prelude::*;
use std::collections::BTreeSet;

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
    /// Instructions of a run.
    pub instructions: u64,
    /// Runs done.
    pub runs: usize,
    /// The numbers.
    pub rows: Vec<Row>,
}

/// Repeats it. `tell` hears how many runs of how many are done, and which was the last.
///
/// # Errors
/// No such artifact, or a run that failed.
pub fn evaluate(request: &Request, tell: &(dyn Fn(usize, usize, &str) + Sync)) -> Result<Evaluation, String> {
    let config = config(request)?;
    let artifacts = plan::choose(request)?;
    let workloads = plan::workloads();
    let keys: BTreeSet<Key> = artifacts
        .iter()
        .flat_map(|artifact| artifact.keys(request, &workloads))
        .collect();
    let keys: Vec<Key> = keys.into_iter().collect();
    let done = std::sync::atomic::AtomicUsize::new(0);
    let reports: Result<Vec<Report>, String> = keys
        .par_iter()
        .map(|key| {
            let report = run(&config, key, request, &workloads)?;
            let count = done.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
            tell(
                count,
                keys.len(),
                &format!("{} {}", report.scheme, report.workload),
            );
            Ok(report)
        })
        .collect();
    let runs = Runs::new(keys, reports?);
    let rows = artifacts
        .iter()
        .flat_map(|artifact| artifact.rows(request, &runs, &workloads))
        .collect();
    Ok(Evaluation {
        paper: request.paper.name(),
        config_hash: config.hash(),
        smaller: request.smaller,
        instructions: config.plan.instructions,
        runs: runs.len(),
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
    Ok(config)
}

fn run(config: &Config, key: &Key, request: &Request, workloads: &[&'static str]) -> Result<Report, String> {
    let mut config = config.clone();
    key.apply(&mut config);
    let experiment = Experiment {
        config,
        scheme: key.scheme,
        workload: workloads[key.workload].into(),
        scale: 1.0 / request.smaller as f64,
        seed: request.seed,
        crash_fs: None,
    };
    experiment
        .run()
        .map_err(|why| format!("{} {}: {why}", key.scheme, workloads[key.workload]))
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
        chart::bars(plan::title(artifact), &rows)
    }

    /// The artifacts in it, in order.
    #[must_use]
    pub fn artifacts(&self) -> Vec<&'static str> {
        let mut names: Vec<&'static str> = self.rows.iter().map(|row| row.artifact).collect();
        names.dedup();
        names
    }
}
