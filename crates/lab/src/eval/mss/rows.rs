//! Rows: what follows from the runs, beside what the paper says.

use super::choices::{DEVICES, HEADLINES, OPEN, SHOWN, SWEPT, compared};
use super::measure::Measure;
use super::paper::said;
use super::runs::{Key, Other, Run, Runs};
use crate::bus::{Config, Counts};
use crate::eval;
use crate::eval::evidence::is_far;
use std::collections::BTreeMap;

/// A number beside the paper's.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    /// The number. `workload` is how many swaps.
    #[serde(flatten)]
    pub row: eval::Row,
    /// The run it is of, and the one it is relative to.
    pub of: Vec<String>,
    /// What those counted, where the row is of energy: it can be computed again.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, Counts>,
}

/// Rows of one artifact.
pub(super) struct Table<'a> {
    pub(super) artifact: &'static str,
    pub(super) config: &'a Config,
    pub(super) runs: &'a Runs,
}

impl Table<'_> {
    fn swaps(&self) -> &[u64] {
        &self.config.study.swaps
    }

    fn run(&self, key: &Key) -> &Run {
        self.runs.get(self.config, key)
    }

    /// What the paper says of a series, at so many swaps.
    fn paper(&self, series: &str, swaps: u64) -> Option<f64> {
        let is_last = swaps == self.swaps()[self.swaps().len() - 1];
        said(self.artifact, series, is_last)
    }

    fn row(
        &self,
        series: &str,
        workload: &str,
        paper: Option<f64>,
        ours: f64,
        unit: &'static str,
        of: &[&Run],
    ) -> Row {
        Row {
            row: eval::Row {
                note: is_far(paper, ours)
                    .then(|| of.iter().map(|run| evidence(run)).collect::<Vec<_>>().join("; ")),
                ..eval::Row::new(self.artifact, series, workload, paper, ours, unit)
            },
            of: of.iter().map(|run| run.name.clone()).collect(),
            counts: BTreeMap::new(),
        }
    }

    /// A measure of a run over that of another.
    fn ratio(&self, series: &str, measure: Measure, key: &Key, over: &Key) -> Row {
        let (run, over) = (self.run(key), self.run(over));
        let ours = measure.of(run) / measure.of(over);
        let paper = self.paper(series, key.swaps);
        let mut row = self.row(
            series,
            &format!("{} swaps", key.swaps),
            paper,
            ours,
            "ratio",
            &[run, over],
        );
        if measure.is_energy() {
            row.counts = [run, over]
                .into_iter()
                .map(|run| (run.name.clone(), run.counts))
                .collect();
        }
        row
    }

    /// Each measure of some programs over another's.
    pub(super) fn over(&self, base: &str, names: &[&str], measures: &[Measure]) -> Vec<Row> {
        let mut rows = Vec::new();
        for &swaps in self.swaps() {
            for measure in measures {
                for name in names {
                    let series = format!("{name} over {base}: {}", measure.name());
                    rows.push(self.ratio(
                        &series,
                        *measure,
                        &Key::plain(name, swaps),
                        &Key::plain(base, swaps),
                    ));
                }
            }
        }
        rows
    }

    /// Pairs of programs.
    pub(super) fn pairs(&self, measure: Measure, pairs: &[(&str, &str)]) -> Vec<Row> {
        pairs
            .iter()
            .flat_map(|(name, base)| self.over(base, &[name], &[measure]))
            .collect()
    }

    /// Every program over Logging, then some pairs.
    pub(super) fn figure(&self, measure: Measure, pairs: &[(&str, &str)]) -> Vec<Row> {
        let mut rows = Vec::new();
        for &swaps in self.swaps() {
            for name in compared() {
                rows.push(self.ratio(name, measure, &Key::plain(name, swaps), &Key::plain("l", swaps)));
            }
        }
        rows.extend(self.pairs(measure, pairs));
        rows
    }

    /// A part of every program's energy over all of Logging's.
    pub(super) fn shares(&self, measure: Measure) -> Vec<Row> {
        let mut rows = Vec::new();
        for &swaps in self.swaps() {
            let base = self.run(&Key::plain("l", swaps));
            for name in compared() {
                let run = self.run(&Key::plain(name, swaps));
                let ours = measure.of(run) / Measure::Energy.of(base);
                let series = format!("{name}: {}", measure.name());
                let mut row = self.row(
                    &series,
                    &format!("{swaps} swaps"),
                    None,
                    ours,
                    "ratio",
                    &[run, base],
                );
                row.counts = [run, base]
                    .into_iter()
                    .map(|run| (run.name.clone(), run.counts))
                    .collect();
                rows.push(row);
            }
        }
        rows
    }

    /// Energy and throughput by threshold, over the first; then the threshold of the least energy.
    pub(super) fn sweep(&self, swaps: u64) -> Vec<Row> {
        let thresholds = &self.config.study.thresholds;
        let mut rows = Vec::new();
        for name in SWEPT {
            let key = |threshold: f64| Key::plain(name, swaps).with(Other::Threshold(threshold));
            let mut least = (f64::INFINITY, 0.0);
            for &threshold in thresholds {
                let run = self.run(&key(threshold));
                let energy = Measure::Energy.of(run);
                if energy < least.0 {
                    least = (energy, threshold);
                }
                for measure in [Measure::Energy, Measure::Throughput] {
                    let series = format!("{name}: {}", measure.name());
                    let mut row = self.ratio(&series, measure, &key(threshold), &key(thresholds[0]));
                    row.row.workload = format!("threshold {threshold}");
                    rows.push(row);
                }
                let reached = run.threshold.unwrap_or(0.0);
                let series = format!("{name}: persists for each swap");
                let workload = format!("threshold {threshold}");
                rows.push(self.row(&series, &workload, Some(threshold), reached, "ratio", &[run]));
            }
            let series = format!("{name}: threshold of the least energy");
            let workload = format!("{swaps} swaps");
            rows.push(self.row(
                &series,
                &workload,
                Some(0.6),
                least.1,
                "ratio",
                &[self.run(&key(least.1))],
            ));
        }
        rows
    }

    /// Each device's swaps a second, and its energy a swap.
    pub(super) fn devices(&self) -> Vec<Row> {
        let swaps = self.swaps()[self.swaps().len() - 1];
        let own = std::iter::once((self.config.hardware.memory.name.as_str(), Other::Nothing));
        let all = own.chain(DEVICES.into_iter().map(|device| (device, Other::Device(device))));
        let mut rows = Vec::new();
        for (device, other) in all {
            for name in SHOWN {
                let run = self.run(&Key::plain(name, swaps).with(other));
                let speed = Measure::Throughput.of(run) / 1e3;
                rows.push(self.row(
                    &format!("{device}: throughput"),
                    name,
                    None,
                    speed,
                    "1000/s",
                    &[run],
                ));
                for measure in [Measure::MemoryEnergy, Measure::DeviceEnergy] {
                    let series = format!("{device}: {}", measure.name());
                    let mut row = self.row(&series, name, None, measure.of(run), "nJ/swap", &[run]);
                    row.counts.insert(run.name.clone(), run.counts);
                    rows.push(row);
                }
            }
        }
        rows
    }

    /// The main ratios of throughput and energy by each choice.
    pub(super) fn open(&self) -> Vec<Row> {
        let swaps = self.swaps()[self.swaps().len() - 1];
        let mut rows = Vec::new();
        for (name, base) in HEADLINES {
            for measure in [Measure::Throughput, Measure::Energy] {
                for (choice, other) in OPEN {
                    let [key, over] = [name, base].map(|name| Key::plain(name, swaps).with(other));
                    let series = format!("{name} over {base}: {}", measure.name());
                    let mut row = self.ratio(&series, measure, &key, &over);
                    row.row.workload = choice.into();
                    rows.push(row);
                }
            }
        }
        rows
    }
}

/// What was counted in a run, for each swap.
fn evidence(run: &Run) -> String {
    let counts = &run.counts;
    let each = |count: u64| count as f64 / counts.transactions as f64;
    format!(
        "{}: {:.0} ns a swap, {:.0} of them at fences, {:.1} lines read, {:.1} written, {:.1} written back by \
         instructions, {:.1} L1 misses of {:.1} accesses, {:.0} instructions, {:.0} ns of the disk",
        run.name,
        each(counts.time_fs) * 1e-6,
        each(counts.fence_stall_fs) * 1e-6,
        each(counts.reads),
        each(counts.writes),
        each(counts.write_backs + counts.streams),
        each(counts.l1_misses),
        each(counts.l1_accesses),
        each(counts.instructions),
        each(counts.disk_fs) * 1e-6,
    )
}
