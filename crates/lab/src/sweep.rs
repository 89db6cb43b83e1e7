//! Runs over values of a machine: schemes times workloads times values, one table (`twinpage lab run --sweep`).
//!
//! What differs from run to run is a ratio, with its interval: each run over the first one of its workload, which has the
//! first scheme and the first of all values.

use crate::config::Described;
use crate::config::machine::Config;
use crate::eval::{Measure, Row, chart, half_width, store};
use crate::experiment::{Experiment, Report};
use crate::machine::Outcome;
use crate::provenance::Provenance;
use crate::schemes::SchemeName;
use crate::threads;
use crate::workload::image::Images;
use crate::workload::list;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A value of the machine, and what it is set to in turn: `nvm.channels=1,2,4`.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Axis {
    /// The value, as `TABLE.KEY`.
    pub key: String,
    /// What it is set to.
    pub values: Vec<String>,
}

impl std::str::FromStr for Axis {
    type Err = String;
    fn from_str(text: &str) -> Result<Axis, String> {
        let wrong = || "expected TABLE.KEY=VALUE,VALUE, such as nvm.channels=1,2,4".to_owned();
        let (key, values) = text.split_once('=').ok_or_else(wrong)?;
        let values: Vec<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
        if key.is_empty() || values.iter().any(String::is_empty) {
            return Err(wrong());
        }
        once(key, &values)?;
        Ok(Axis {
            key: key.trim().to_owned(),
            values,
        })
    }
}

/// An error if something is named twice: it would be run twice, and shown as if it were two.
pub(crate) fn once<T: Ord + Display>(option: &str, named: &[T]) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    match named.iter().find(|one| !seen.insert(*one)) {
        Some(twice) => Err(format!("{option} names {twice} twice")),
        None => Ok(()),
    }
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The machine: a built-in one, or a file.
    pub machine: String,
    /// Values of it that are other in all runs.
    pub set: Vec<String>,
    /// Values that change.
    pub axes: Vec<Axis>,
    /// Schemes.
    pub schemes: Vec<SchemeName>,
    /// Workloads.
    pub workloads: Vec<String>,
    /// Machine, workloads and runs are smaller by this.
    pub smaller: u64,
    /// Checkpoints overlap with execution.
    pub overlap: bool,
    /// Instructions of a run, if other than the machine's.
    pub instructions: Option<u64>,
    /// Instructions before counting begins, if other than the machine's.
    pub warm_up: Option<u64>,
    /// Everything random follows from it.
    pub seed: u64,
    /// Runs at a time; as many as there are processors if none is given.
    pub jobs: Option<usize>,
}

/// One run.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Point {
    /// The scheme.
    pub scheme: SchemeName,
    /// The workload.
    pub workload: String,
    /// What each axis was set to.
    pub values: Vec<String>,
    /// Exactly which machine.
    pub config_hash: String,
    /// Its time over that of its workload's first run.
    pub time: Ratio,
    /// The same of NVM writes.
    pub writes: Ratio,
    /// What was measured.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// A ratio to another run.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct Ratio {
    /// What it is; not a number over nothing.
    pub is: f64,
    /// Half of its interval: 95 of 100 times the ratio of longer runs is not further away. None where a run has fewer than
    /// 20 epochs.
    pub plus_minus: Option<f64>,
}

impl Ratio {
    fn new(run: &Outcome, over: &Outcome, measure: Measure) -> Ratio {
        Ratio {
            is: measure.of(run) / measure.of(over),
            plus_minus: half_width(run, over, measure),
        }
    }
}

/// All runs.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Grid {
    /// Where it comes from.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// What changed.
    pub axes: Vec<Axis>,
    /// The machines, by their hashes.
    pub machines: BTreeMap<String, serde_json::Value>,
    /// The content of each trace, by its file's name.
    pub traces: BTreeMap<String, String>,
    /// The runs, the last axis changing first.
    pub points: Vec<Point>,
}

type Column = (&'static str, fn(&Outcome) -> String);

/// The columns of ratios.
const RATIOS: [&str; 4] = [
    "time_over_first",
    "time_plus_minus",
    "writes_over_first",
    "writes_plus_minus",
];

/// The columns of the table after those that say which run it is.
const COLUMNS: [Column; 14] = [
    ("instructions", |outcome| outcome.instructions.to_string()),
    ("time_ns", |outcome| outcome.time_ns.to_string()),
    ("ipc", |outcome| outcome.ipc.to_string()),
    ("checkpoints", |outcome| outcome.checkpoints.to_string()),
    ("checkpoint_share", |outcome| outcome.checkpoint_share.to_string()),
    ("stop_ns_p50", |outcome| outcome.latency_ns.stop.p50.to_string()),
    ("stop_ns_p99", |outcome| outcome.latency_ns.stop.p99.to_string()),
    ("nvm_writes", |outcome| outcome.nvm_writes.total.to_string()),
    ("nvm_reads", |outcome| outcome.nvm_reads.to_string()),
    ("dram_miss_rate", |outcome| outcome.dram_miss_rate.to_string()),
    ("clean_share", |outcome| {
        outcome
            .clean_share
            .map_or(String::new(), |share| share.to_string())
    }),
    ("energy_dram_j", |outcome| outcome.energy_j.dram.to_string()),
    ("energy_nvm_j", |outcome| outcome.energy_j.nvm.to_string()),
    ("ended", |outcome| outcome.ended.to_string()),
];

impl Sweep {
    /// Runs all. `tell` hears how many of how many are done.
    ///
    /// # Errors
    /// A machine that cannot be, a run that failed, or one that did not go its length.
    pub fn run(&self, provenance: Provenance, tell: &(dyn Fn(usize, usize) + Sync)) -> Result<Grid, String> {
        once("--scheme", &self.schemes)?;
        once("--workload", &self.workloads)?;
        let keys = self.axes.iter().map(|axis| &axis.key);
        let mut seen = BTreeSet::new();
        if let Some(twice) = keys.into_iter().find(|key| !seen.insert(*key)) {
            return Err(format!(
                "--sweep {twice} is there twice: name all its values at once"
            ));
        }
        let mut asked = Vec::new();
        for values in self.combinations() {
            let config = self.config(&values)?;
            for workload in &self.workloads {
                for &scheme in &self.schemes {
                    asked.push((values.clone(), config.clone(), workload, scheme));
                }
            }
        }
        let (images, done) = (Images::default(), AtomicUsize::new(0));
        let run = |(values, config, workload, scheme): &(Vec<String>, Config, &String, SchemeName)| {
            let experiment = Experiment {
                config: config.clone(),
                scheme: *scheme,
                workload: (*workload).clone(),
                scale: 1.0 / self.smaller as f64,
                seed: self.seed,
                crash_fs: None,
            };
            let report = experiment
                .run_whole_among(&images)
                .map_err(|why| format!("{scheme} {workload} {}: {why}", values.join(" ")))?;
            tell(done.fetch_add(1, Ordering::Relaxed) + 1, asked.len());
            Ok(report)
        };
        let reports = threads(self.jobs)?
            .install(|| asked.par_iter().map(run).collect::<Result<Vec<Report>, String>>())?;
        let mut machines = BTreeMap::new();
        for (_, config, ..) in &asked {
            let machine = serde_json::to_value(config).map_err(|why| why.to_string())?;
            machines.insert(config.hash(), machine);
        }
        let paths = self.workloads.iter().flat_map(|workload| list::traces(workload));
        let values = asked.into_iter().map(|(values, ..)| values);
        Ok(Grid {
            provenance,
            axes: self.axes.clone(),
            machines,
            traces: store::contents(paths)?,
            points: points(values, &reports),
        })
    }

    /// Every choice of a value for each axis.
    fn combinations(&self) -> Vec<Vec<String>> {
        let mut all = vec![Vec::new()];
        for axis in &self.axes {
            let longer = |before: &Vec<String>| {
                let with = |value: &String| [&before[..], std::slice::from_ref(value)].concat();
                axis.values.iter().map(with).collect::<Vec<_>>()
            };
            all = all.iter().flat_map(longer).collect();
        }
        all
    }

    /// The machine with these values of the axes.
    ///
    /// # Errors
    /// What is wrong with the machine or with a value.
    pub fn config(&self, values: &[String]) -> Result<Config, String> {
        let swept = self
            .axes
            .iter()
            .zip(values)
            .map(|(axis, value)| format!("{}={value}", axis.key));
        let set: Vec<String> = self.set.iter().cloned().chain(swept).collect();
        let config = Config::with(&self.machine, &set).map_err(|why| why.to_string())?;
        let mut config = match self.smaller {
            1 => config,
            by => config.smaller(by).map_err(|why| why.to_string())?,
        };
        config.overlap |= self.overlap;
        config.plan.instructions = self.instructions.unwrap_or(config.plan.instructions);
        config.plan.warm_up = self.warm_up.unwrap_or(config.plan.warm_up);
        Ok(config)
    }
}

/// Runs as they are told, in their order.
fn points(values: impl Iterator<Item = Vec<String>>, reports: &[Report]) -> Vec<Point> {
    let point = |(values, report): (Vec<String>, &Report)| {
        let first = reports.iter().find(|other| other.workload == report.workload);
        let first = &first.expect("it is one of them").outcome;
        Point {
            scheme: report.scheme,
            workload: report.workload.clone(),
            values,
            config_hash: report.config_hash.clone(),
            time: Ratio::new(&report.outcome, first, Measure::Time),
            writes: Ratio::new(&report.outcome, first, Measure::Writes),
            outcome: Outcome {
                epochs: Vec::new(),
                ..report.outcome.clone()
            },
        }
    };
    values.zip(reports).map(point).collect()
}

impl Grid {
    /// The names of the columns, and a line of fields for each run.
    #[must_use]
    pub fn table(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let mut names = vec!["scheme".to_owned(), "workload".to_owned()];
        names.extend(self.axes.iter().map(|axis| axis.key.clone()));
        names.extend(RATIOS.map(str::to_owned));
        names.extend(COLUMNS.iter().map(|column| column.0.to_owned()));
        let line = |point: &Point| {
            let mut fields = vec![point.scheme.name().to_owned(), point.workload.clone()];
            fields.extend(point.values.iter().cloned());
            for ratio in [point.time, point.writes] {
                let width = ratio.plus_minus.map_or(String::new(), |width| width.to_string());
                fields.extend([ratio.is.to_string(), width]);
            }
            fields.extend(COLUMNS.iter().map(|column| (column.1)(&point.outcome)));
            fields
        };
        (names, self.points.iter().map(line).collect())
    }

    /// The table as CSV (RFC 4180).
    #[must_use]
    pub fn csv(&self) -> String {
        let (names, lines) = self.table();
        let quoted = |field: &String| match field.contains([',', '"', '\n']) {
            true => format!("\"{}\"", field.replace('"', "\"\"")),
            false => field.clone(),
        };
        std::iter::once(&names)
            .chain(&lines)
            .map(|line| line.iter().map(quoted).collect::<Vec<_>>().join(",") + "\n")
            .collect()
    }

    /// Execution time of each run over its workload's first, as SVG.
    ///
    /// # Errors
    /// It cannot be drawn.
    pub fn figure(&self) -> Result<String, String> {
        let axes: Vec<&str> = self.axes.iter().map(|axis| &axis.key[..]).collect();
        let bar = |point: &Point| Row {
            artifact: "sweep",
            series: format!("{} {}", point.scheme, point.workload),
            workload: point.values.join(" "),
            paper: None,
            ours: point.time.is,
            plus_minus: point.time.plus_minus,
            unit: "ratio",
            note: None,
        };
        let rows: Vec<Row> = self.points.iter().map(bar).collect();
        let rows: Vec<&Row> = rows.iter().collect();
        let title = match axes.is_empty() {
            true => "Execution time over the first run of each workload".to_owned(),
            false => format!(
                "Execution time by {}, over the first run of each workload",
                axes.join(", ")
            ),
        };
        chart::bars(&title, &rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_of_every_axis_is_run_with_each_scheme() {
        let sweep = Sweep {
            machine: "dpc".into(),
            set: vec!["thynvm.pages=16384".into()],
            axes: ["nvm.channels=1,2", "table.backup=whole,journal"]
                .map(|axis| axis.parse().unwrap())
                .into(),
            schemes: vec![SchemeName::DUAL_PAGE, "undo-log".parse().unwrap()],
            workloads: vec!["tatp".into()],
            smaller: 64,
            overlap: false,
            instructions: Some(800_000),
            warm_up: Some(20_000),
            seed: 1,
            jobs: Some(2),
        };
        let grid = sweep.run(Provenance::default(), &|_, _| ()).unwrap();
        assert_eq!(grid.points.len(), 8);
        let time = |scheme, values: [&str; 2]| {
            let of = |point: &&Point| point.scheme == scheme && point.values == values;
            grid.points.iter().find(of).unwrap().outcome.time_ns
        };
        let dual = SchemeName::DUAL_PAGE;
        assert!(time(dual, ["2", "whole"]) < time(dual, ["1", "whole"]));
        let writes = |values: [&str; 2]| {
            let of = |point: &&Point| point.scheme == dual && point.values == values;
            grid.points.iter().find(of).unwrap().outcome.nvm_writes.total
        };
        assert!(writes(["1", "journal"]) < writes(["1", "whole"]));
        let first = &grid.points[0];
        for point in &grid.points {
            let ratio = point.outcome.time_ns as f64 / first.outcome.time_ns as f64;
            assert_eq!(point.time.is, ratio);
            assert!(
                point.time.plus_minus.is_some() && point.writes.plus_minus.is_some(),
                "{point:?}"
            );
            assert_eq!(grid.machines[&point.config_hash]["name"], "dpc");
        }
        let csv = grid.csv();
        assert!(csv.starts_with("scheme,workload,nvm.channels,table.backup,time_over_first,time_plus_minus"));
        assert_eq!(csv.lines().count(), 9);
        assert!(grid.figure().unwrap().starts_with("<svg"));
        let twice = Sweep {
            axes: ["nvm.channels=1", "nvm.channels=2"]
                .map(|axis| axis.parse().unwrap())
                .into(),
            ..sweep.clone()
        };
        let why = twice.run(Provenance::default(), &|_, _| ()).unwrap_err();
        assert!(why.contains("nvm.channels is there twice"), "{why}");
        let wrong = Sweep {
            axes: vec!["nvm.channels=1,3".parse().unwrap()],
            ..sweep
        };
        assert!(
            wrong
                .run(Provenance::default(), &|_, _| ())
                .unwrap_err()
                .contains("nvm.channels=3")
        );
        assert!("nvm.channels".parse::<Axis>().is_err() && "a=1,".parse::<Axis>().is_err());
        let twice = "nvm.channels=2,1,2".parse::<Axis>().unwrap_err();
        assert_eq!(twice, "nvm.channels names 2 twice");
        let workloads = vec!["tatp".into(), "echo".into(), "tatp".into()];
        let twice = Sweep { workloads, ..wrong };
        let why = twice.run(Provenance::default(), &|_, _| ()).unwrap_err();
        assert_eq!(why, "--workload names tatp twice");
    }
}
