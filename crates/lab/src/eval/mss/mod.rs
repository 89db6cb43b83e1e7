//! "Exploring Memory-Style Storage" (MSS), repeated (`twinpage lab eval mss`): Figures 1, 2, 4a to 4c, 5, 6 and 7.
//!
//! * A run is a program of [`crate::workload::sps`] on the machine of `mss.toml` ([`crate::bus`]); each is done once.
//! * A row names the runs it follows from, and a row of energy has their counts: it can be computed again.
//! * No number of the paper goes into a run.

mod artifact;
mod choices;
mod measure;
mod paper;
mod rows;
mod runs;

use crate::config::Described;
pub use artifact::ARTIFACTS;
pub use rows::Row;
pub use runs::Run;

use super::{Document, StudyRequest, Tell, html};
use crate::bus::Config;
use crate::provenance::Provenance;
use artifact::Artifact;
use runs::{Key, Runs};

/// What came of it.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Evaluation {
    /// `mss`.
    pub paper: &'static str,
    /// Where it comes from.
    #[serde(flatten)]
    pub provenance: Provenance,
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
/// No such artifact, a value that the machine cannot have, or a run that failed.
pub fn evaluate(asked: &StudyRequest, tell: Tell<'_>) -> Result<Evaluation, String> {
    let config = Config::with("mss", &asked.set).and_then(|config| config.smaller(asked.smaller));
    let config = config.map_err(|why| why.to_string())?;
    let artifacts = artifact::chosen(&asked.artifacts)?;
    let mut keys: Vec<Key> = artifacts
        .iter()
        .flat_map(|artifact| artifact.keys(&config))
        .collect();
    keys.sort_by_cached_key(|key| key.name(&config));
    keys.dedup_by_key(|key| key.name(&config));
    let runs = Runs::all(&config, &keys, asked, tell)?;
    let of = |artifact: &Artifact| artifact.rows(&config, &runs);
    Ok(Evaluation {
        paper: "mss",
        provenance: asked.provenance.clone(),
        config_hash: config.hash(),
        smaller: asked.smaller,
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
        machine + &self.provenance.html()
    }
}
