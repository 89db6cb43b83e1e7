//! The runs of an evaluation, done.
//!
//! * Runs are independent: any number of threads, processes and machines gives the same numbers.
//! * With a precision, the runs of a workload are done short and then longer, all of them to the same length,
//!   until each ratio is known well enough or the length is the full one.

use super::loads::{self, Load};
use super::plan::{self, Artifact, Key, Runs, Variant};
use super::precision::{self, FEWEST};
use super::rows::Measure;
use super::store::{self, Store};
use super::{Instructions, Request, Run, Tell};
use crate::characteristics::{Caches, Measured, measure};
use crate::config::machine::Config;
use crate::experiment::Experiment;
use crate::machine::{Ended, Outcome};
use crate::schemes::SchemeName;
use crate::workload::image::Images;
use crate::workload::list::{self, Setting};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// With a precision, the first runs are shorter than the full ones by this.
const SHORTER: u64 = 16;

/// What is to be run, and with what.
pub(super) struct Work<'a> {
    pub(super) config: Config,
    pub(super) artifacts: Vec<Artifact>,
    pub(super) loads: Vec<Load>,
    pub(super) left_out: Vec<String>,
    pub(super) keys: Vec<Key>,
    request: &'a Request,
    with_mix: bool,
    store: Option<Store>,
    images: Images,
    tell: Tell<'a>,
    done: AtomicUsize,
}

impl<'a> Work<'a> {
    pub(super) fn new(request: &'a Request, tell: Tell<'a>) -> Result<Work<'a>, String> {
        let config = config(request)?;
        let artifacts = plan::choose(request)?;
        let (loads, left_out) = loads::choose(request);
        let known = |name: &String| loads.iter().any(|load| load.name == *name);
        if let Some(unknown) = request.sweep.iter().find(|name| !known(name)) {
            let names: Vec<&str> = loads.iter().map(|load| load.name.as_str()).collect();
            return Err(format!(
                "no workload is called {unknown} here; there are {}",
                names.join(", ")
            ));
        }
        if request
            .precision
            .is_some_and(|precision| !(1e-4..1.0).contains(&precision))
        {
            return Err("a precision is a share between 0.01% and 100%".into());
        }
        let keys: BTreeSet<Key> = artifacts
            .iter()
            .flat_map(|artifact| artifact.keys(request, &loads))
            .collect();
        Ok(Work {
            with_mix: artifacts.iter().any(|artifact| artifact.0 == "table5"),
            keys: keys.into_iter().collect(),
            store: request.runs.as_deref().map(Store::open).transpose()?,
            images: Images::default(),
            done: AtomicUsize::new(0),
            config,
            artifacts,
            loads,
            left_out,
            request,
            tell,
        })
    }

    /// Keeps the runs that `only` names.
    pub(super) fn restrict(&mut self, only: &[String]) -> Result<(), String> {
        let mut chosen = BTreeSet::new();
        for pattern in only {
            let (scheme, workload) = pattern
                .split_once('/')
                .ok_or_else(|| format!("{pattern}: expected SCHEME/WORKLOAD, * for any"))?;
            let fits = |key: &&Key| {
                (scheme == "*" || scheme == key.scheme.name())
                    && (workload == "*" || workload == self.loads[key.workload].name)
            };
            let fitting: Vec<Key> = self.keys.iter().filter(fits).copied().collect();
            if fitting.is_empty() {
                return Err(format!("{pattern}: the evaluation has no such run"));
            }
            chosen.extend(fitting);
        }
        let of = |keys: &mut dyn Iterator<Item = &Key>, workload| {
            keys.filter(|key| key.workload == workload).count()
        };
        let cut = |key: &&Key| of(&mut chosen.iter(), key.workload) < of(&mut self.keys.iter(), key.workload);
        if let (Some(_), Some(key)) = (self.request.precision, chosen.iter().find(cut)) {
            let name = &self.loads[key.workload].name;
            return Err(format!(
                "how long a run must be follows from all runs of its workload: with --precision say --only '*/{name}'"
            ));
        }
        self.keys = chosen.into_iter().collect();
        Ok(())
    }

    /// Does all runs. Says how long those of each workload were.
    pub(super) fn all(&self) -> Result<(Runs, BTreeMap<String, u64>), String> {
        let full = self.config.plan.instructions;
        let first = match self.request.precision {
            Some(_) => (full / SHORTER).max(1),
            None => full,
        };
        let mut lengths: BTreeMap<usize, u64> = self.keys.iter().map(|key| (key.workload, first)).collect();
        let mut runs: BTreeMap<Key, Run> = BTreeMap::new();
        let mut open = self.keys.clone();
        let threads = rayon::ThreadPoolBuilder::new().num_threads(self.request.jobs.unwrap_or(0));
        let threads = threads.build().map_err(|why| why.to_string())?;
        while !open.is_empty() {
            let all = || {
                let runs = open.par_iter().map(|key| self.run(key, lengths[&key.workload]));
                runs.collect::<Result<Vec<Run>, String>>()
            };
            let done = threads.install(all);
            runs.extend(open.iter().copied().zip(done?));
            let again: BTreeSet<usize> = open.iter().map(|key| key.workload).collect();
            open.clear();
            for workload in again {
                let length = lengths[&workload];
                if let Some(next) = self.longer(workload, &runs).filter(|_| length < full) {
                    // The last stretch to the full length is not worth a run of its own.
                    let next = (length as f64 * next) as u64;
                    let next = if next * 5 > full * 4 { full } else { next };
                    lengths.insert(workload, next);
                    open.extend(self.keys.iter().filter(|key| key.workload == workload));
                    self.done.fetch_sub(open.len(), Ordering::Relaxed);
                }
            }
        }
        let named = lengths
            .into_iter()
            .map(|(workload, length)| (self.loads[workload].name.clone(), length));
        Ok((Runs::new(runs), named.collect()))
    }

    /// How much longer the runs of a workload must be.
    fn longer(&self, workload: usize, runs: &BTreeMap<Key, Run>) -> Option<f64> {
        let wanted = self.request.precision?;
        let mine = || runs.iter().filter(|(key, _)| key.workload == workload);
        let plain =
            |(key, _): &(&Key, &Run)| (key.scheme, key.variant) == (SchemeName::DUAL_PAGE, Variant::Plain);
        let (_, reference) = mine().find(plain).or_else(|| mine().next())?;
        let epochs = mine().map(|(_, run)| run.outcome.epochs.len()).min()?;
        let mut worst: Option<f64> = (epochs >= FEWEST).then_some(0.0);
        for measure in measures(&self.artifacts) {
            for (_, run) in mine() {
                let over = measure.of(&run.outcome) / measure.of(&reference.outcome);
                let width = precision::half_width(&run.outcome, &reference.outcome, measure);
                if let Some(relative) = width.map(|width| width / over).filter(|width| width.is_finite()) {
                    worst = Some(worst.unwrap_or(0.0).max(relative));
                }
            }
        }
        precision::longer(worst, epochs, wanted)
    }

    /// One run, or what was kept of it.
    fn run(&self, key: &Key, instructions: u64) -> Result<Run, String> {
        let mut config = self.config.clone();
        config.plan.instructions = instructions;
        key.apply(&mut config);
        let load = &self.loads[key.workload];
        let name = format!("{}-{}", key.scheme, load.name);
        let what = match &self.store {
            Some(store) => {
                let what = self.describe(key, load, &config)?;
                if let Some(run) = store.find(&name, &what)? {
                    self.tell(key, load);
                    return Ok(run);
                }
                what
            }
            None => String::new(),
        };
        let run = self
            .do_run(key, load, config)
            .map_err(|why| format!("{} {}: {why}", key.scheme, load.name))?;
        if let Some(store) = &self.store {
            store.keep(&name, &what, &run)?;
        }
        self.tell(key, load);
        store::read(&store::write(&run)?)
    }

    fn tell(&self, key: &Key, load: &Load) {
        let count = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        (self.tell)(count, self.keys.len(), &format!("{} {}", key.scheme, load.name));
    }

    /// All that a run depends on.
    fn describe(&self, key: &Key, load: &Load, config: &Config) -> Result<String, String> {
        let mut workload = load.workload.clone();
        for path in load.traces() {
            workload += &format!(" {}", store::content(path)?);
        }
        let (smaller, seed) = (self.request.smaller, self.request.seed);
        let (scheme, mix) = (key.scheme, self.wants_mix(key));
        Ok(format!(
            "{}\n{scheme} {workload} {smaller} {seed} {mix}",
            config.resolved()
        ))
    }

    fn wants_mix(&self, key: &Key) -> bool {
        self.with_mix && (key.scheme, key.variant) == (SchemeName::DUAL_PAGE, Variant::Plain)
    }

    fn do_run(&self, key: &Key, load: &Load, config: Config) -> Result<Run, String> {
        let plan = config.plan(key.scheme);
        let experiment = Experiment {
            config: config.clone(),
            scheme: key.scheme,
            workload: load.workload.clone(),
            scale: 1.0 / self.request.smaller as f64,
            seed: self.request.seed,
            crash_fs: None,
        };
        let report = experiment.run_among(&self.images)?;
        not_cut_short(&report.outcome, plan.instructions)?;
        let mix = match self.wants_mix(key) {
            true => Some(instructions(&config, self.request, load)?),
            false => None,
        };
        Ok(Run {
            report,
            dram_bytes: plan.controller.dram_bytes,
            interval_fs: plan.interval_fs,
            mix,
        })
    }

    /// The content of every trace that is played.
    pub(super) fn traces(&self) -> Result<BTreeMap<String, String>, String> {
        let used: BTreeSet<usize> = self.keys.iter().map(|key| key.workload).collect();
        let paths: BTreeSet<&Path> = used.iter().flat_map(|&load| self.loads[load].traces()).collect();
        let name = |path: &Path| {
            path.file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned()
        };
        paths
            .into_iter()
            .map(|path| Ok((name(path), store::content(path)?)))
            .collect()
    }
}

/// What artifacts compare: sentences compare both.
fn measures(artifacts: &[Artifact]) -> Vec<Measure> {
    let is_claims = artifacts.iter().any(|artifact| artifact.0 == "claims");
    let is_of_writes = |artifact: &&Artifact| plan::is_of_writes(artifact.0);
    match artifacts.iter().filter(is_of_writes).count() {
        0 if !is_claims => vec![Measure::Time],
        all if all == artifacts.len() => vec![Measure::Writes],
        _ => vec![Measure::Time, Measure::Writes],
    }
}

fn config(request: &Request) -> Result<Config, String> {
    let config = Config::with(request.paper.name(), &request.set).map_err(|why| why.to_string())?;
    let mut config = match request.smaller {
        1 => config,
        by => config.smaller(by).map_err(|why| why.to_string())?,
    };
    if request.quick {
        config.plan.warm_up = 300_000;
        config.plan.instructions = 1_000_000;
    }
    config.plan.instructions = request.instructions.unwrap_or(config.plan.instructions);
    Ok(config)
}

/// A run that did not go its length says nothing of the experiment it was for.
fn not_cut_short(outcome: &Outcome, asked: u64) -> Result<(), String> {
    match outcome.ended {
        Ended::Instructions => Ok(()),
        ended => Err(format!(
            "the run ended by its {ended} after {} of {asked} instructions; traces must be recorded longer (record DIR SMALLER LIMIT)",
            outcome.instructions
        )),
    }
}

/// The workload without the machine, as far as a run goes.
fn instructions(config: &Config, request: &Request, load: &Load) -> Result<Instructions, String> {
    let plan = &config.plan;
    let setting = Setting {
        scale: 1.0 / request.smaller as f64,
        cores: plan.shape.cores,
        seed: request.seed,
    };
    let mut workload = list::make(&load.workload, &setting)?;
    let caches = Caches::paper(setting.scale);
    let measured = measure(
        &mut *workload,
        setting.cores,
        &caches,
        plan.warm_up,
        plan.instructions,
        |_| (),
    );
    let Measured {
        loads,
        stores,
        touched_bytes,
        ..
    } = measured.map_err(|why| format!("{}: {why}", load.name))?;
    Ok(Instructions {
        loads,
        stores,
        touched_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_about_time_and_writes() {
        let of = |names: &[&'static str]| measures(&names.iter().copied().map(Artifact).collect::<Vec<_>>());
        assert_eq!(of(&["fig9a"]), [Measure::Time]);
        assert_eq!(of(&["fig9b"]), [Measure::Writes]);
        assert_eq!(of(&["fig9a", "claims"]), [Measure::Time, Measure::Writes]);
        assert_eq!(of(&["claims"]), [Measure::Time, Measure::Writes]);
    }
}
