//! The runs of an evaluation, done.
//!
//! * Runs are independent: any number of threads, processes and machines gives the same numbers.
//! * With a precision, the runs of a workload are done short and then longer, all of them to the same length,
//!   until each ratio is known well enough or the length is the full one.

use super::loads::{self, Load};
use super::plan::{self, Artifact, Key, Runs, Variant};
use super::precision;
use super::store::{self, Store};
use super::{Instructions, Request, Run, Tell, claims};
use crate::characteristics::{Caches, Measured, measure};
use crate::config::Described;
use crate::config::machine::Config;
use crate::experiment::Experiment;
use crate::schemes::SchemeName;
use crate::sweep::once;
use crate::threads;
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
        once("--with", &request.with)?;
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
        let mut runs = Runs::default();
        let mut open = self.keys.clone();
        let threads = threads(self.request.jobs)?;
        while !open.is_empty() {
            let all = || {
                let runs = open.par_iter().map(|key| self.run(key, lengths[&key.workload]));
                runs.collect::<Result<Vec<Run>, String>>()
            };
            let done = threads.install(all);
            runs.0.extend(open.iter().copied().zip(done?));
            let again: BTreeSet<usize> = open.iter().map(|key| key.workload).collect();
            open.clear();
            for workload in again {
                let length = lengths[&workload];
                if let Some(next) = self.longer(workload, &runs).filter(|_| length < full) {
                    // The last stretch to the full length is not worth a run of its own.
                    let next = (length as f64 * next).min(full as f64) as u64;
                    let next = if next > full / 5 * 4 { full } else { next };
                    lengths.insert(workload, next);
                    open.extend(self.keys.iter().filter(|key| key.workload == workload));
                }
            }
            self.done.fetch_sub(open.len(), Ordering::Relaxed);
        }
        let named = lengths
            .into_iter()
            .map(|(workload, length)| (self.loads[workload].name.clone(), length));
        Ok((runs, named.collect()))
    }

    /// How much longer the runs of a workload must be.
    fn longer(&self, workload: usize, runs: &Runs) -> Option<f64> {
        let wanted = self.request.precision?;
        precision::longer(self.widest(workload, runs), runs.fewest_epochs(workload), wanted)
    }

    /// The widest interval, relative to its ratio, of all that is shown of a workload: in rows, and in sentences.
    fn widest(&self, workload: usize, runs: &Runs) -> Option<f64> {
        let rows = |artifact: &Artifact| artifact.rows_of(&[workload], self.request, runs, &self.loads);
        let mine = |artifact: &&Artifact| {
            let all = artifact.workloads(self.request, &self.loads);
            all.contains(&workload)
        };
        let rows = self.artifacts.iter().filter(mine).flat_map(rows);
        let shown = rows.filter_map(|row| Some(row.plus_minus? / row.ours));
        let said = match self.has("claims") {
            true => claims::widest(self.request, runs, &self.loads, workload),
            false => None,
        };
        let finite = shown.chain(said).filter(|width| width.is_finite());
        finite.reduce(f64::max)
    }

    pub(super) fn has(&self, artifact: &str) -> bool {
        self.artifacts.iter().any(|one| one.0 == artifact)
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
        let mut workload = key.program(load);
        for path in list::traces(&load.workload) {
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
            workload: key.program(load),
            scale: 1.0 / self.request.smaller as f64,
            seed: self.request.seed,
            crash_fs: None,
        };
        let report = experiment.run_whole_among(&self.images)?;
        let mix = match self.wants_mix(key) {
            true => Some(instructions(&config, self.request, load)?),
            false => None,
        };
        Ok(Run {
            report,
            dram_bytes: plan.controller.dram_bytes,
            interval_fs: plan.interval_fs,
            cores: plan.shape.cores,
            mix,
        })
    }

    /// The content of every trace that is played.
    pub(super) fn traces(&self) -> Result<BTreeMap<String, String>, String> {
        let used: BTreeSet<usize> = self.keys.iter().map(|key| key.workload).collect();
        let paths: BTreeSet<&Path> = used
            .iter()
            .flat_map(|&load| list::traces(&self.loads[load].workload))
            .collect();
        store::contents(paths)
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
    use super::super::Paper;
    use super::super::precision::tests::run;
    use super::*;
    use crate::experiment::Report;
    use crate::machine::Outcome;
    use crate::provenance::Provenance;

    fn request(artifact: &str, precision: f64) -> Request {
        Request {
            paper: Paper::Twins,
            artifacts: vec![artifact.into()],
            smaller: 64,
            quick: true,
            instructions: None,
            traces: None,
            sweep: vec!["echo".into()],
            seed: 1,
            precision: Some(precision),
            runs: None,
            set: Vec::new(),
            jobs: None,
            with: Vec::new(),
            provenance: Provenance::default(),
        }
    }

    /// Runs that came out so.
    fn done(work: &Work<'_>, outcome: impl Fn(&Key) -> Outcome) -> Runs {
        let of = |key: &Key| {
            let report = Report {
                config: String::new(),
                config_hash: String::new(),
                scheme: key.scheme,
                workload: String::new(),
                outcome: outcome(key),
                pool: twinpage_core::PoolInfo::default(),
                recovery: None,
            };
            let run = Run {
                report,
                dram_bytes: 0,
                interval_fs: 0,
                cores: 4,
                mix: None,
            };
            (*key, run)
        };
        Runs(work.keys.iter().map(of).collect())
    }

    /// Pools are shown over the largest. The one of 200 MB takes turns with that in being slow, so their ratio is known half
    /// as well as that of either to the smallest, which never changes.
    #[test]
    fn what_is_judged_is_what_is_shown() {
        let request = request("fig8a", 0.1);
        let work = Work::new(&request, &|_, _, _| ()).unwrap();
        let workload = work.keys[0].workload;
        let runs = |epochs: u64, swing: u64| {
            done(&work, |key| {
                run(epochs, |epoch| match (key.variant, epoch % 2) {
                    (Variant::Pool(200), 0) | (Variant::Pool(500), 1) => 1000 + swing,
                    (Variant::Pool(200 | 500), _) => 1000 - swing,
                    _ => 1000,
                })
            })
        };
        let width = |swing| work.widest(workload, &runs(20, swing)).unwrap();
        assert!(
            width(0) == 0.0 && width(150) > 0.1 && width(150) < 0.2,
            "{}",
            width(150)
        );
        assert_eq!(work.longer(workload, &runs(20, 0)), None);
        assert!(work.longer(workload, &runs(20, 150)).is_some());
        assert!(
            work.longer(workload, &runs(19, 0)).is_some(),
            "too few epochs to be known"
        );
    }

    /// Where no ratio is shown, nothing ends a run early.
    #[test]
    fn without_a_ratio_runs_have_their_full_length() {
        let request = request("fig2", 0.1);
        let work = Work::new(&request, &|_, _, _| ()).unwrap();
        let runs = done(&work, |_| run(40, |_| 1000));
        let workload = work.keys[0].workload;
        assert_eq!(work.widest(workload, &runs), None);
        assert!(
            work.longer(workload, &runs)
                .is_some_and(|more| more.is_infinite())
        );
    }
}
