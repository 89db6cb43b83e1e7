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

use crate::config::Described;
pub use artifact::ARTIFACTS;
pub use runs::Run;

use super::{Claim, Document, Row, StudyRequest, Tell, html};
use crate::provenance::Provenance;
use crate::sections::Config;
use rows::Table;
use runs::{Key, Runs};

/// What came of it.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Evaluation {
    /// `ssp`.
    pub paper: &'static str,
    /// Where it comes from.
    #[serde(flatten)]
    pub provenance: Provenance,
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
/// No such artifact, a value that the machine cannot have, or a run that failed.
pub fn evaluate(asked: &StudyRequest, tell: Tell<'_>) -> Result<Evaluation, String> {
    let config = Config::with("ssp", &asked.set).and_then(|config| config.smaller(asked.smaller));
    let config = config.map_err(|why| why.to_string())?;
    let artifacts = artifact::chosen(&asked.artifacts)?;
    let mut keys: Vec<Key> = artifacts
        .iter()
        .flat_map(|artifact| artifact::keys(artifact, &config))
        .collect();
    keys.sort_by_cached_key(Key::name);
    keys.dedup_by_key(|key| key.name());
    let runs = Runs::all(&config, &keys, asked, tell)?;
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
        provenance: asked.provenance.clone(),
        config_hash: config.hash(),
        smaller: asked.smaller,
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
        [machine, self.provenance.html(), html::claims(&self.claims)].concat()
    }
}
