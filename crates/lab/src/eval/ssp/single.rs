//! One program on one design (`twinpage lab sections`), to its end or until the power fails.

use super::runs::{Key, LOADS, Load, Other, REAL};
use crate::bus::Counts;
use crate::config::Described;
use crate::sections::power::Recovery;
use crate::sections::{self, Config, Name};

/// What to run.
#[derive(Clone, Debug)]
pub struct Single {
    /// The machine: a built-in one, or a file.
    pub machine: String,
    /// Values of it that are other, each as `tlb.entries=8`.
    pub set: Vec<String>,
    /// What makes sections atomic.
    pub design: Name,
    /// A program of Table 3, by its name.
    pub program: String,
    /// Threads that run it.
    pub threads: usize,
    /// All threads have one map, cache or agency, and a lock.
    pub shared: bool,
    /// Data and run are smaller by this.
    pub smaller: u64,
    /// Everything random follows from it.
    pub seed: u64,
    /// When the power fails, in femtoseconds after the warm-up.
    pub crash_fs: Option<u64>,
}

/// What came of it.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Report {
    /// The machine's hash.
    pub config_hash: String,
    /// Design, program, threads.
    pub name: String,
    /// What the machine counted.
    pub machine: Counts,
    /// What the design did.
    pub design: sections::Counts,
    /// What the crash left, where there was one.
    pub recovery: Option<Recovery>,
}

/// The programs, by name.
pub fn programs() -> impl Iterator<Item = &'static str> {
    all().map(|(name, _)| name)
}

fn all() -> impl Iterator<Item = Load> {
    LOADS.into_iter().chain(REAL)
}

impl Single {
    /// Runs it.
    ///
    /// # Errors
    /// No such program or machine, or a run that failed.
    pub fn run(&self) -> Result<Report, String> {
        let config = Config::with(&self.machine, &self.set).and_then(|config| config.smaller(self.smaller));
        let config = config.map_err(|why| why.to_string())?;
        let load = all().find(|(name, _)| *name == self.program).ok_or_else(|| {
            let names: Vec<_> = programs().collect();
            format!(
                "no program is called {}; there are {}",
                self.program,
                names.join(", ")
            )
        })?;
        let most = config.setting.cores;
        if !(1..=most).contains(&self.threads) {
            return Err(format!(
                "{} has 1 to {most} threads, not {}",
                self.machine, self.threads
            ));
        }
        let other = match self.shared {
            true => Other::Shared,
            false => Other::Nothing,
        };
        let key = Key::new(load, self.design, self.threads, other);
        let config_hash = config.hash();
        let (machine, design, recovery) = match self.crash_fs {
            None => {
                let run = key.run(&config, self.seed)?;
                (run.machine, run.design, None)
            }
            Some(after_fs) => {
                let cut = key.crash(&config, self.seed, after_fs)?;
                (cut.machine, cut.design, Some(cut.recovery))
            }
        };
        Ok(Report {
            config_hash,
            name: key.name(),
            machine,
            design,
            recovery,
        })
    }
}
