//! "SIMPO: A Scalable In-Memory Persistent Object Framework", repeated (`twinpage lab eval simpo`).
//!
//! * A run is a mechanism of Table 7 ([`crate::objects`]) on the machine of `simpo.toml` or `simpo-intel.toml`; each is
//!   done once.
//! * A row says whether its number was simulated, counted in sources, or measured on real cores by `bench objects`.
//! * No number of the paper goes into a run.
//!
//! Reading order: `artifact.rs` says which runs a figure needs, `runs.rs` does them, `rows.rs` is what follows from them
//! (of Figures 17 to 22 `programs.rs`, of 23 and 24 `stock.rs`), `tables.rs` what follows from sources, `measured.rs` what was measured, `paper.rs` what the paper says, `claims.rs` which
//! of its sentences hold.

mod artifact;
mod claims;
mod measured;
mod paper;
mod programs;
mod row;
mod rows;
mod runs;
mod stock;
mod tables;

use crate::config::Described;
pub use artifact::ARTIFACTS;
pub use row::{Origin, Row};
pub use runs::Run;

use super::{Claim, Document, StudyRequest, Tell, html};
use crate::objects::Config;
use crate::provenance::Provenance;
use rows::Table;
use runs::{Key, Runs};

/// What came of it.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Evaluation {
    /// `simpo`.
    pub paper: &'static str,
    /// Where it comes from.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// The machines: a hash of both.
    pub config_hash: String,
    /// The machine of the paper's AMD platform, and of its Intel platform.
    pub machines: [Config; 2],
    /// Runs are shorter by this.
    pub smaller: u64,
    /// Of the paper's figures those that are not among the rows, and why.
    pub left_out: Vec<String>,
    /// The numbers.
    pub rows: Vec<Row>,
    /// The paper's sentences, where they are asked for.
    pub claims: Vec<Claim>,
    /// Every run, with what it counted.
    pub runs: Vec<Run>,
}

const LEFT_OUT: [&str; 3] = [
    "Figures 23 and 24: BDB-FT. What its transactions cost follows from code that is not simulated; it is among what is \
     measured",
    "Figure 22: what a program does before its first call is not in its recovery",
    "that resilient entries go to an SSD: it is not timed",
];

/// Repeats it.
///
/// # Errors
/// No such artifact, a value that the machines cannot have, or a run that failed.
pub fn evaluate(asked: &StudyRequest, tell: Tell<'_>) -> Result<Evaluation, String> {
    let find = |name| Config::with(name, &asked.set).and_then(|config| config.smaller(asked.smaller));
    let machines = [find("simpo"), find("simpo-intel")];
    let [amd, intel] = machines.map(|config| config.map_err(|why| why.to_string()));
    let machines = [amd?, intel?];
    let artifacts = artifact::chosen(&asked.artifacts)?;
    let mut keys: Vec<Key> = artifacts
        .iter()
        .flat_map(|artifact| artifact::keys(artifact, &machines))
        .collect();
    keys.sort_by_cached_key(Key::name);
    keys.dedup_by_key(|key| key.name());
    let runs = Runs::all(&machines, &keys, asked.jobs, tell)?;
    let mut rows = Vec::new();
    for artifact in &artifacts {
        let table = Table {
            artifact,
            machines: &machines,
            runs: &runs,
        };
        rows.extend(table.rows()?);
    }
    Ok(Evaluation {
        paper: "simpo",
        provenance: asked.provenance.clone(),
        config_hash: crate::config::hash(&serde_json::to_string(&machines).map_err(|why| why.to_string())?),
        smaller: asked.smaller,
        left_out: LEFT_OUT.map(String::from).to_vec(),
        rows,
        claims: match artifacts.contains(&"claims") {
            true => claims::all(&machines, &runs),
            false => Vec::new(),
        },
        runs: runs.into_all(),
        machines,
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
            "<p>Machines {}; runs {} times shorter than the study's; {} runs. All is simulated but the tables, which are \
             counted in sources, and <a href=#measured>what was measured</a>. {}</p>",
            self.config_hash,
            self.smaller,
            self.runs.len(),
            html::ABOUT_ROWS
        );
        [
            machine,
            html::left_out(&self.left_out),
            self.provenance.html(),
            html::claims(&self.claims),
        ]
        .concat()
    }
}
