//! The crash explorer as a scheme's conformance test (`twinpage lab verify`).
//!
//! * A run follows from its seed and its medium alone, so that a broken promise can be seen again.

use crate::ground::{Exploration, KINDS};
use crate::schemes::SchemeName;
use twinpage_core::crash::{Counts, Seen};

/// What to verify, and how long.
#[derive(Clone, Copy, Debug)]
pub struct Verify {
    /// The scheme.
    pub scheme: SchemeName,
    /// Random runs on each kind of medium.
    pub runs: u64,
    /// The seed of the first; the next has the next number.
    pub seed: u64,
}

/// A promise that was broken.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Broken {
    /// The run: `--runs 1 --seed SEED` does it again.
    pub seed: u64,
    /// The kind of medium.
    pub medium: &'static str,
    /// Which promise, and where.
    pub promise: String,
}

/// What the explorer did on one kind of medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Row {
    /// The kind of medium.
    pub medium: &'static str,
    /// Runs, each with its own seed.
    pub runs: u64,
    /// Epochs committed.
    pub epochs: u64,
    /// Epochs that found no room and were abandoned.
    pub abandoned: u64,
    /// Writes and fences that a run was stopped after.
    pub points: u64,
    /// What a crash there may leave.
    pub images: u64,
    /// Recoveries: of the images, of crashed recoveries, of second lives.
    pub recoveries: u64,
}

/// All of it.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Verified {
    /// The scheme.
    pub scheme: SchemeName,
    /// A row a kind of medium, as far as the verification went.
    pub rows: Vec<Row>,
    /// The first promise that does not hold.
    pub broken: Option<Broken>,
}

impl Verify {
    /// Runs on each kind of medium.
    #[must_use]
    pub fn all_runs(&self) -> u64 {
        self.runs * KINDS.len() as u64
    }

    /// Explores all runs, or up to the first broken promise. `tell` hears of each run that is done.
    pub fn run(&self, tell: &dyn Fn()) -> Verified {
        let mut verified = Verified {
            scheme: self.scheme,
            rows: Vec::new(),
            broken: None,
        };
        for kind in &KINDS {
            let (mut counts, mut seen, mut runs) = (Counts::default(), Seen::default(), 0);
            for seed in (0..self.runs).map(|run| self.seed.wrapping_add(run)) {
                let overlaps = self.scheme.overlaps();
                let (done, through, held) = self.scheme.explore(&mut Exploration { kind, seed, overlaps });
                counts += done;
                seen += through;
                runs += 1;
                tell();
                if let Err(promise) = held {
                    let medium = kind.name;
                    verified.broken = Some(Broken {
                        seed,
                        medium,
                        promise,
                    });
                    break;
                }
            }
            verified.rows.push(Row {
                medium: kind.name,
                runs,
                epochs: seen.epochs,
                abandoned: seen.lost,
                points: counts.points,
                images: counts.images,
                recoveries: counts.recoveries,
            });
            if verified.broken.is_some() {
                break;
            }
        }
        verified
    }
}
