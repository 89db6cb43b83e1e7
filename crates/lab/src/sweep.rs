//! Runs over values of a machine: schemes times workloads times values, one table (`twinpage lab run --sweep`).

use crate::config::machine::Config;
use crate::eval::{Row, chart, store};
use crate::experiment::Experiment;
use crate::machine::Outcome;
use crate::schemes::SchemeName;
use crate::workload::image::Images;
use rayon::prelude::*;
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
        match key.is_empty() || values.iter().any(String::is_empty) {
            true => Err(wrong()),
            false => Ok(Axis {
                key: key.trim().to_owned(),
                values,
            }),
        }
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
    /// What was measured.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// All runs.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Grid {
    /// The command that asked.
    pub command: String,
    /// The commit the program was built from, where it is known.
    pub commit: Option<String>,
    /// What changed.
    pub axes: Vec<Axis>,
    /// The runs, the last axis changing first.
    pub points: Vec<Point>,
}

type Column = (&'static str, fn(&Outcome) -> String);

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
    /// A machine that cannot be, or a run that failed.
    pub fn run(&self, command: String, tell: &(dyn Fn(usize, usize) + Sync)) -> Result<Grid, String> {
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
                .run_among(&images)
                .map_err(|why| format!("{scheme} {workload} {}: {why}", values.join(" ")))?;
            tell(done.fetch_add(1, Ordering::Relaxed) + 1, asked.len());
            let mut outcome = report.outcome;
            outcome.epochs.clear();
            Ok(Point {
                scheme: *scheme,
                workload: (*workload).clone(),
                values: values.clone(),
                config_hash: report.config_hash,
                outcome,
            })
        };
        let threads = rayon::ThreadPoolBuilder::new().num_threads(self.jobs.unwrap_or(0));
        let threads = threads.build().map_err(|why| why.to_string())?;
        let points = threads.install(|| asked.par_iter().map(run).collect::<Result<Vec<Point>, String>>());
        Ok(Grid {
            command,
            commit: store::commit(),
            axes: self.axes.clone(),
            points: points?,
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

impl Grid {
    /// The names of the columns, and a line of fields for each run.
    #[must_use]
    pub fn table(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let mut names = vec!["scheme".to_owned(), "workload".to_owned()];
        names.extend(self.axes.iter().map(|axis| axis.key.clone()));
        names.extend(COLUMNS.iter().map(|column| column.0.to_owned()));
        let line = |point: &Point| {
            let mut fields = vec![point.scheme.name().to_owned(), point.workload.clone()];
            fields.extend(point.values.iter().cloned());
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

    /// Execution time of each run, as SVG.
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
            ours: point.outcome.time_ns as f64 * 1e-6,
            plus_minus: None,
            unit: "ms",
            note: None,
        };
        let rows: Vec<Row> = self.points.iter().map(bar).collect();
        let rows: Vec<&Row> = rows.iter().collect();
        chart::bars(&format!("Execution time by {}", axes.join(", ")), &rows)
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
            instructions: Some(100_000),
            warm_up: Some(20_000),
            seed: 1,
            jobs: Some(2),
        };
        let grid = sweep.run("a test".into(), &|_, _| ()).unwrap();
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
        let csv = grid.csv();
        assert!(csv.starts_with("scheme,workload,nvm.channels,table.backup,instructions,time_ns"));
        assert_eq!(csv.lines().count(), 9);
        assert!(grid.figure().unwrap().starts_with("<svg"));
        let wrong = Sweep {
            axes: vec!["nvm.channels=1,3".parse().unwrap()],
            ..sweep
        };
        assert!(
            wrong
                .run(String::new(), &|_, _| ())
                .unwrap_err()
                .contains("nvm.channels=3")
        );
        assert!("nvm.channels".parse::<Axis>().is_err() && "a=1,".parse::<Axis>().is_err());
    }
}
