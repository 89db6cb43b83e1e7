//! One run: a scheme, a workload, a machine (`twinpage lab run`).

use crate::config::Described;
use crate::config::machine::Config;
use crate::machine::crash::Recovery;
use crate::machine::{Ended, Machine, Outcome, Stop};
use crate::schemes::SchemeName;
use crate::space::Space;
use crate::workload::Workload;
use crate::workload::image::{Images, filled};
use crate::workload::list::{self, Setting};
use twinpage_core::Error;

/// What to run.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// On which machine.
    pub config: Config,
    /// Which scheme.
    pub scheme: SchemeName,
    /// Which workload.
    pub workload: String,
    /// Its footprint, as a share of the paper's.
    pub scale: f64,
    /// Everything random follows from it.
    pub seed: u64,
    /// The power fails so many femtoseconds into the counted run.
    pub crash_fs: Option<u64>,
}

/// What a run says.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Report {
    /// The machine's name.
    pub config: String,
    /// A short name for exactly this machine.
    pub config_hash: String,
    /// The scheme.
    pub scheme: SchemeName,
    /// The workload.
    pub workload: String,
    /// What was measured.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Derivative pages reclaimed since the machine was switched on.
    pub pool: twinpage_core::PoolInfo,
    /// What the crash left, where there was one.
    pub recovery: Option<Recovery>,
}

/// A full memory is the machine's here, and not one to free space on.
fn told(error: Error) -> String {
    match error {
        Error::Full { needed, .. } => format!(
            "the simulated NVM is full: {needed} more bytes are needed; give it more (--set \"nvm.size=...\"), or fewer \
             derivative pages (--set \"pool.size=...\")"
        ),
        other => other.to_string(),
    }
}

impl Experiment {
    /// Runs it.
    ///
    /// # Errors
    /// No such workload, a medium that is full, a workload that found its own results wrong.
    pub fn run(&self) -> Result<Report, String> {
        self.run_from(|_, workload| filled(workload))
    }

    /// The same, and what memory holds at first is shared with other runs that begin as this does.
    ///
    /// # Errors
    /// As [`Experiment::run`].
    pub fn run_among(&self, images: &Images) -> Result<Report, String> {
        self.run_from(|setting, workload| images.filled(&self.workload, setting, workload))
    }

    /// The same; a run that does not go its length is an error, for it says nothing of the experiment it was for.
    ///
    /// # Errors
    /// As [`Experiment::run`]; a trace or a program that ends before.
    pub fn run_whole_among(&self, images: &Images) -> Result<Report, String> {
        let report = self.run_among(images)?;
        match report.outcome.ended {
            Ended::Instructions => Ok(report),
            ended => Err(format!(
                "the run ended by its {ended} after {} of {} instructions; ask for fewer (--instructions), or record traces \
                 longer (record DIR SMALLER LIMIT)",
                report.outcome.instructions, self.config.plan.instructions
            )),
        }
    }

    fn run_from(&self, begin: impl FnOnce(&Setting, &dyn Workload) -> Space) -> Result<Report, String> {
        let setting = Setting {
            scale: self.scale,
            cores: self.config.plan.shape.cores,
            seed: self.seed,
        };
        let mut workload = list::make(&self.workload, &setting)?;
        let plan = self.config.plan(self.scheme);
        let crash = self.crash_fs.is_some();
        let space = begin(&setting, &*workload);
        let mut machine =
            Machine::with_space(plan, self.scheme, &mut *workload, space, crash).map_err(told)?;
        let outcome = machine
            .run(Stop {
                crash_fs: self.crash_fs,
            })
            .map_err(told)?;
        if outcome.ended == Ended::Instructions && outcome.instructions == 0 {
            return Err(
                "the last batch of the warm-up was longer than the run, of which nothing was counted; ask for more \
                 instructions"
                    .into(),
            );
        }
        let pool = machine.info().pool;
        machine.check()?;
        let recovery = match outcome.ended {
            Ended::Crash => Some(machine.crash(&mut *list::make(&self.workload, &setting)?)),
            _ => None,
        };
        Ok(Report {
            config: self.config.name.clone(),
            config_hash: self.config.hash(),
            scheme: self.scheme,
            workload: self.workload.clone(),
            outcome,
            pool,
            recovery,
        })
    }
}
