//! The papers' evaluation, repeated (`twinpage lab eval`).
//!
//! Reading order: `paper.rs` is what the papers say; `loads.rs` what the machines run; `plan.rs` which runs
//! an artifact needs, with `open.rs` for what the papers leave open; `work.rs` does them, `precision.rs` says how
//! long, and `store.rs` keeps them; `rows.rs` is what follows from them, `evidence.rs` why it is not what the
//! paper says, `software.rs` its Figure 10, `claims.rs` which of its sentences hold; `chart.rs` and `html.rs` draw. `mss/`, `ssp/` and `simpo/` are the
//! papers whose machines have their memory on the bus; `each.rs` is what they share.
//!
//! * A run that several artifacts need is done once.
//! * Runs are independent and deterministic: the number of threads changes nothing but the time.
//! * No number of a paper goes into a run; they stand beside ours, and are `null` where the text has none.

pub(crate) mod chart;
mod claims;
mod each;
mod evidence;
mod html;
mod loads;
pub mod mss;
mod open;
mod paper;
mod plan;
mod precision;
mod rows;
pub mod simpo;
mod software;
pub mod ssp;
pub(crate) mod store;
mod work;

use crate::config::Described;
pub use each::StudyRequest;
pub use html::Document;
pub use paper::Paper;
pub use plan::ARTIFACTS;

use crate::experiment::Report;
use crate::provenance::Provenance;
use crate::schemes::SchemeName;
pub use claims::{Claim, Verdict};
use plan::Artifact;
pub(crate) use precision::Measure;
pub(crate) use precision::half_width;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::PathBuf;
use work::Work;

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
    /// Half of its interval: 95 of 100 times the whole run's value is not further away. None where the run was
    /// too short to say, or where it does not apply.
    pub plus_minus: Option<f64>,
    /// Its unit.
    pub unit: &'static str,
    /// What was measured beside it, where the two differ by more than 15%.
    pub note: Option<String>,
}

impl Row {
    /// A number beside that of the paper, if it has one.
    pub(crate) fn new(
        artifact: &'static str,
        series: impl Into<String>,
        workload: impl Into<String>,
        paper: Option<f64>,
        ours: f64,
        unit: &'static str,
    ) -> Row {
        Row {
            artifact,
            series: series.into(),
            workload: workload.into(),
            paper,
            ours,
            plus_minus: None,
            unit,
            note: None,
        }
    }

    /// Whether it is of several workloads together.
    #[must_use]
    pub fn is_summary(&self) -> bool {
        let names = [
            "average",
            "geometric mean",
            "ratio of sums",
            "worst",
            "least",
            "most",
        ];
        names.contains(&self.workload.as_str())
    }
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
    /// A run ends when the ratios it is for are known so well (0.01 is 1%), or at its full length; always at
    /// its full length if none is given.
    pub precision: Option<f64>,
    /// Where runs are kept, and found again.
    pub runs: Option<PathBuf>,
    /// Values of the machine that are other than the paper's, each as `nvm.channels=2`.
    pub set: Vec<String>,
    /// Runs at a time; as many as there are processors if none is given.
    pub jobs: Option<usize>,
    /// Schemes beside the paper's, with a bar each.
    pub with: Vec<SchemeName>,
    /// For the report.
    pub provenance: Provenance,
}

/// What came of it.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Evaluation {
    /// `dpc` or `twins`.
    pub paper: &'static str,
    /// Where it comes from.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// The machine everything ran on, but for what an artifact varies.
    pub config_hash: String,
    /// That machine.
    pub machine: serde_json::Value,
    /// The content of each trace, by its file's name.
    pub traces: BTreeMap<String, String>,
    /// Machine, workloads and runs are smaller by this.
    pub smaller: u64,
    /// Instructions of a run before it is counted, and counted.
    pub warm_up: u64,
    /// Those counted.
    pub instructions: u64,
    /// How well the ratios were to be known.
    pub precision: Option<f64>,
    /// Instructions counted in the runs of each workload.
    pub lengths: BTreeMap<String, u64>,
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
    /// The paper's sentences, where they are asked for.
    pub claims: Vec<Claim>,
}

/// One run, and what else is known of its workload.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
struct Run {
    report: Report,
    /// Bytes of its DRAM cache.
    dram_bytes: u64,
    /// Femtoseconds of an epoch's execution.
    interval_fs: u64,
    /// Its cores.
    cores: usize,
    /// The program by itself, where it is asked for.
    mix: Option<Instructions>,
}

impl Run {
    /// The average stop over the interval (DPC 5.6).
    fn stop_share(&self) -> f64 {
        let outcome = &self.report.outcome;
        let stopped = outcome.checkpoint_share * outcome.time_ns as f64;
        stopped / outcome.checkpoints.max(1) as f64 / (self.interval_fs as f64 * 1e-6)
    }
}

impl Deref for Run {
    type Target = Report;
    fn deref(&self) -> &Report {
        &self.report
    }
}

/// What a program does, whatever the machine.
#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
struct Instructions {
    loads: u64,
    stores: u64,
    touched_bytes: u64,
}

/// Hears how many runs of how many are done, and which was the last.
pub type Tell<'a> = &'a (dyn Fn(usize, usize, &str) + Sync);

/// Repeats it. Runs that `request.runs` has are not done again.
///
/// # Errors
/// No such artifact, or a run that failed.
pub fn evaluate(request: &Request, tell: Tell<'_>) -> Result<Evaluation, String> {
    let work = Work::new(request, tell)?;
    let (runs, lengths) = work.all()?;
    let of = |artifact: &Artifact| artifact.rows(request, &runs, &work.loads);
    let rows = work.artifacts.iter().flat_map(of).collect();
    let claims = match work.has("claims") {
        true => claims::all(request, &runs, &work.loads),
        false => Vec::new(),
    };
    Ok(Evaluation {
        paper: request.paper.name(),
        provenance: request.provenance.clone(),
        config_hash: work.config.hash(),
        machine: serde_json::to_value(&work.config).map_err(|why| why.to_string())?,
        traces: work.traces()?,
        smaller: request.smaller,
        warm_up: work.config.plan.warm_up,
        instructions: work.config.plan.instructions,
        precision: request.precision,
        lengths,
        runs: runs.len(),
        short: runs.short(&work.loads),
        workloads: work.loads.into_iter().map(|load| load.name).collect(),
        left_out: work.left_out,
        rows,
        claims,
    })
}

/// Does those runs of an evaluation that `only` names, as `SCHEME/WORKLOAD` with `*` for any, and keeps them
/// in `request.runs`. Says how many were done or there, of how many.
///
/// # Errors
/// No folder for them, a name that fits no run, or a run that failed.
pub fn do_only(request: &Request, only: &[String], tell: Tell<'_>) -> Result<(usize, usize), String> {
    if request.runs.is_none() {
        return Err("--only keeps its runs for an evaluation to come: --runs DIR says where".into());
    }
    let mut work = Work::new(request, tell)?;
    let all = work.keys.len();
    work.restrict(only)?;
    let (runs, _) = work.all()?;
    Ok((runs.len(), all))
}

impl Document for Evaluation {
    fn paper(&self) -> &'static str {
        self.paper
    }

    fn title(&self, artifact: &str) -> &'static str {
        self.paper
            .parse()
            .map_or("", |paper| plan::title(paper, artifact))
    }

    fn all_rows(&self) -> Vec<&Row> {
        self.rows.iter().collect()
    }

    fn preface(&self) -> String {
        let lengths = format!(
            "<p>Machine {}, {} times smaller than the paper's; {} instructions a run after {} to warm up, {} runs of {}. {}</p>",
            self.config_hash,
            self.smaller,
            self.instructions,
            self.warm_up,
            self.runs,
            self.workloads.join(", "),
            html::ABOUT_ROWS
        );
        [
            lengths,
            html::left_out(&self.left_out),
            html::short(&self.short),
            self.provenance.html(),
            html::claims(&self.claims),
        ]
        .concat()
    }
}
