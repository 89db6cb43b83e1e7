//! "SSP: Eliminating Redundant Writes in Failure-Atomic NVRAMs via Shadow Sub-Paging", repeated (`twinpage lab eval ssp`).
//!
//! * A run is a program of Table 3 with one design ([`crate::sections`]) on the machine of `ssp.toml`; each is done once.
//! * All designs run the same sections: the programs draw their keys before the run.
//! * No number of the paper goes into a run.
//!
//! Reading order: `artifact.rs` says which runs a figure needs, `runs.rs` does them, `measure.rs` and `rows.rs` are what
//! follows from them, `paper.rs` what the paper says, `claims.rs` which of its sentences hold.

mod artifact;
mod claims;
mod cost;
mod measure;
mod paper;
mod rows;
mod runs;
pub mod single;

pub use artifact::ARTIFACTS;
pub use runs::Run;

use super::{Claim, Document, Row, Tell, html, store};
use crate::sections::Config;
use rows::Table;
use runs::{Key, Runs};

/// What to repeat, and how large.
#[derive(Clone, Debug)]
pub struct Request {
    /// The machine: a built-in one, or a file.
    pub machine: String,
    /// Which artifacts; all if empty.
    pub artifacts: Vec<String>,
    /// Data and runs are smaller by this.
    pub smaller: u64,
    /// Everything random follows from it.
    pub seed: u64,
    /// Runs at a time; as many as there are processors if none is given.
    pub jobs: Option<usize>,
    /// The command that asked, for the report.
    pub command: String,
}

/// What came of it.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Evaluation {
    /// `ssp`.
    pub paper: &'static str,
    /// The command that asked.
    pub command: String,
    /// The commit the program was built from, where it is known.
    pub commit: Option<String>,
    /// The machine: its hash, and all of it.
    pub config_hash: String,
    /// That machine.
    pub machine: Config,
    /// Data and runs are smaller by this.
    pub smaller: u64,
    /// The numbers.
    pub rows: Vec<Row>,
    /// The paper's sentences, where they are asked for.
    pub claims: Vec<Claim>,
    /// Every run, with what it counted.
    pub runs: Vec<Run>,
}

/// Repeats it.
///
/// # Errors
/// No such artifact or machine, or a run that failed.
pub fn evaluate(request: &Request, tell: Tell<'_>) -> Result<Evaluation, String> {
    let config = Config::find(&request.machine).map_err(|why| why.to_string())?;
    let config = config.smaller(request.smaller).map_err(|why| why.to_string())?;
    let artifacts = artifact::chosen(&request.artifacts)?;
    let mut keys: Vec<Key> = artifacts
        .iter()
        .flat_map(|artifact| artifact::keys(artifact, &config))
        .collect();
    keys.sort_by_cached_key(Key::name);
    keys.dedup_by_key(|key| key.name());
    let runs = Runs::all(&config, &keys, request, tell)?;
    let rows = |artifact: &&'static str| {
        let table = Table {
            artifact,
            config: &config,
            runs: &runs,
        };
        table.rows()
    };
    Ok(Evaluation {
        paper: "ssp",
        command: request.command.clone(),
        commit: store::commit(),
        config_hash: config.hash()?,
        smaller: request.smaller,
        rows: artifacts.iter().flat_map(rows).collect(),
        claims: match artifacts.contains(&"claims") {
            true => claims::all(&config, &runs),
            false => Vec::new(),
        },
        runs: runs.into_all(),
        machine: config,
    })
}

impl Document for Evaluation {
    fn paper(&self) -> &'static str {
        self.paper
    }

    fn title(&self, artifact: &str) -> &'static str {
        artifact::title(artifact)
    }

    fn all_rows(&self) -> Vec<&Row> {
        self.rows.iter().collect()
    }

    fn preface(&self) -> String {
        let machine = format!(
            "<p>Machine {}; data and runs {} times smaller than the study's; {} runs. {}</p>",
            self.config_hash,
            self.smaller,
            self.runs.len(),
            html::ABOUT_ROWS
        );
        [
            machine,
            html::made_by(&self.command, self.commit.as_deref()),
            html::claims(&self.claims),
        ]
        .concat()
    }
}
