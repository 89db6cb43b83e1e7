//! "Exploring Memory-Style Storage" (MSS), repeated (`twinpage lab eval mss`): Figures 1, 2, 4a to 4c, 5, 6 and 7.
//!
//! * A run is a program of [`crate::workload::sps`] on the machine of `mss.toml` ([`crate::bus`]); each is done once.
//! * A row names the runs it follows from, and a row of energy has their counts: it can be computed again.
//! * No number of the paper goes into a run.

mod artifact;
mod measure;
mod paper;
mod rows;
mod runs;

pub use artifact::ARTIFACTS;
pub use rows::Row;
pub use runs::Run;

use super::{Document, Tell, html, store};
use crate::bus::Config;
use artifact::Artifact;
use runs::{Key, Runs};

/// What to repeat, and how large.
#[derive(Clone, Debug)]
pub struct Request {
    /// The machine: a built-in one, or a file.
    pub machine: String,
    /// Which artifacts; all if empty.
    pub artifacts: Vec<String>,
    /// Strings, swaps, log and caches are smaller by this.
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
    /// `mss`.
    pub paper: &'static str,
    /// The command that asked.
    pub command: String,
    /// The commit the program was built from, where it is known.
    pub commit: Option<String>,
    /// The machine: its hash, and all of it.
    pub config_hash: String,
    /// That machine.
    pub machine: Config,
    /// Strings, swaps, log and caches are smaller by this.
    pub smaller: u64,
    /// The numbers.
    pub rows: Vec<Row>,
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
        .flat_map(|artifact| artifact.keys(&config))
        .collect();
    keys.sort_by_cached_key(|key| key.name(&config));
    keys.dedup_by_key(|key| key.name(&config));
    let runs = Runs::all(&config, &keys, request, tell)?;
    let of = |artifact: &Artifact| artifact.rows(&config, &runs);
    Ok(Evaluation {
        paper: "mss",
        command: request.command.clone(),
        commit: store::commit(),
        config_hash: crate::config::hash(&serde_json::to_string(&config).map_err(|why| why.to_string())?),
        smaller: request.smaller,
        rows: artifacts.iter().flat_map(of).collect(),
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

    fn all_rows(&self) -> Vec<&super::Row> {
        self.rows.iter().map(|row| &row.row).collect()
    }

    fn preface(&self) -> String {
        let machine = format!(
            "<p>Machine {}; strings, swaps, log and caches {} times smaller than the paper's; {} runs. {}</p>",
            self.config_hash,
            self.smaller,
            self.runs.len(),
            html::ABOUT_ROWS
        );
        machine + &html::made_by(&self.command, self.commit.as_deref())
    }
}
