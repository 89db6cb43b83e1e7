//! Artifacts: the runs each needs, and the rows that follow.

use super::paper::{self, Paper};
use super::{Request, Row};
use crate::config::machine::Config;
use crate::controller::lookup::Placement;
use crate::experiment::Report;
use crate::workload::list;
use std::collections::BTreeMap;
use twinpage_core::any::SchemeKind;
use twinpage_core::baseline::{page_overlay, thynvm};
use twinpage_core::dual_page;

/// How a run's machine differs from the paper's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Variant {
    /// Not at all.
    Plain,
    /// Checkpoints overlap with execution.
    Overlap,
    /// A pool of so many mebibytes, at the paper's size.
    Pool(u64),
    /// The table elsewhere: which of [`PLACES`].
    Place(usize),
    /// Millions of cycles between checkpoints, at the paper's size.
    Interval(u64),
}

/// One run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Key {
    pub(super) workload: usize,
    pub(super) scheme: SchemeKind,
    pub(super) variant: Variant,
}

/// DPC 5.5.2: name, where entries are, how many are cached at the paper's pool of 76,800.
const PLACES: [(&str, Placement, usize); 7] = [
    ("all in the controller", Placement::Controller, 0),
    ("optimized", Placement::Split, 1),
    ("optimized, 10K cached", Placement::Split, 10_000),
    ("40K cached", Placement::Dram, 40_000),
    ("20K cached", Placement::Dram, 20_000),
    ("10K cached", Placement::Dram, 10_000),
    ("all in DRAM", Placement::Dram, 0),
];

const POOLS: [u64; 5] = [100, 200, 300, 400, 500];
const INTERVALS: [u64; 5] = [10, 20, 30, 40, 50];

impl Key {
    pub(super) fn apply(&self, config: &mut Config) {
        let plan = &mut config.plan;
        match self.variant {
            Variant::Plain => {}
            Variant::Overlap => config.overlap = true,
            // The paper's pool is 300.
            Variant::Pool(mebibytes) => plan.pool_pages = plan.pool_pages * mebibytes / 300,
            Variant::Place(place) => {
                let (_, placement, cached) = PLACES[place];
                plan.controller.placement = placement;
                plan.controller.cached_entries = match cached {
                    0 | 1 => cached,
                    many => (many as u64 * plan.pool_pages / 76_800).max(1) as usize,
                };
            }
            // The paper's interval is 30.
            Variant::Interval(millions) => plan.interval_fs = plan.interval_fs * millions / 30,
        }
    }
}

/// The runs that were done.
pub(super) struct Runs(BTreeMap<Key, Report>);

impl Runs {
    pub(super) fn new(keys: Vec<Key>, reports: Vec<Report>) -> Runs {
        Runs(keys.into_iter().zip(reports).collect())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, workload: usize, scheme: SchemeKind, variant: Variant) -> &Report {
        &self.0[&Key {
            workload,
            scheme,
            variant,
        }]
    }
}

/// The workloads of DPC's Table 5 that are free.
pub(super) fn workloads() -> Vec<&'static str> {
    list::ALL
        .iter()
        .filter(|entry| entry.paper.is_some())
        .map(|entry| entry.name)
        .collect()
}

/// What can be asked for: name, paper, title.
pub const ARTIFACTS: [(&str, Paper, &str); 17] = [
    ("fig1", Paper::Dpc, "DPC Figure 1: clean lines in dirty pages"),
    (
        "fig9a",
        Paper::Dpc,
        "DPC Figure 9a: execution time over the dual page's",
    ),
    (
        "fig9b",
        Paper::Dpc,
        "DPC Figure 9b: NVM writes over the dual page's",
    ),
    (
        "fig11a",
        Paper::Dpc,
        "DPC Figure 11a: execution time by pool size, over the largest",
    ),
    (
        "fig11b",
        Paper::Dpc,
        "DPC Figure 11b: NVM writes by pool size, over the largest",
    ),
    (
        "fig12",
        Paper::Dpc,
        "DPC Figure 12: execution time by the table's place, over all in the controller",
    ),
    (
        "fig13",
        Paper::Dpc,
        "DPC Figure 13: execution time by interval, over the dual page's at 10 M cycles",
    ),
    ("table1", Paper::Dpc, "DPC Table 1: extra writes against metadata"),
    ("table3", Paper::Dpc, "DPC Table 3: metadata in the controller"),
    ("table5", Paper::Dpc, "DPC Table 5: the workloads"),
    (
        "table6",
        Paper::Dpc,
        "DPC Table 6: checkpoints and their share of the time",
    ),
    ("preallocation", Paper::Dpc, "DPC 4.4.3: pre-allocation failures"),
    ("fig2", Paper::Twins, "Twins Figure 2: clean lines in dirty pages"),
    (
        "fig7a",
        Paper::Twins,
        "Twins Figure 7a: execution time over Twins'",
    ),
    ("fig7b", Paper::Twins, "Twins Figure 7b: NVM writes over Twins'"),
    (
        "fig8a",
        Paper::Twins,
        "Twins Figure 8a: execution time by pool size, over the largest",
    ),
    (
        "fig8b",
        Paper::Twins,
        "Twins Figure 8b: NVM writes by pool size, over the largest",
    ),
];

/// The title of an artifact.
pub(super) fn title(name: &str) -> &'static str {
    ARTIFACTS
        .iter()
        .find(|artifact| artifact.0 == name)
        .map_or("", |artifact| artifact.2)
}

/// The artifacts asked for.
pub(super) fn choose(request: &Request) -> Result<Vec<Artifact>, String> {
    let mine: Vec<&'static str> = ARTIFACTS
        .iter()
        .filter(|artifact| artifact.1 == request.paper)
        .map(|artifact| artifact.0)
        .collect();
    if let Some(unknown) = request
        .artifacts
        .iter()
        .find(|name| !mine.contains(&name.as_str()))
    {
        return Err(format!(
            "{} has no {unknown}; there are {}",
            request.paper.name(),
            mine.join(", ")
        ));
    }
    let wanted =
        |name: &&str| request.artifacts.is_empty() || request.artifacts.iter().any(|asked| asked == name);
    Ok(mine.into_iter().filter(wanted).map(Artifact).collect())
}

/// One figure or table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Artifact(&'static str);

/// What is compared, in the order of the figures.
fn compared(paper: Paper) -> Vec<(SchemeKind, Variant, &'static str)> {
    let mut all = vec![
        (SchemeKind::InPlace, Variant::Plain, "baseline"),
        (SchemeKind::DualPage, Variant::Plain, "dual page"),
        (SchemeKind::UndoLog, Variant::Plain, "logging"),
        (SchemeKind::CopyOnWrite, Variant::Plain, "copy-on-write"),
    ];
    if paper == Paper::Dpc {
        all.push((SchemeKind::ThyNvm, Variant::Plain, "ThyNVM"));
        all.push((SchemeKind::PageOverlay, Variant::Plain, "page overlays"));
        all.push((SchemeKind::DualPage, Variant::Overlap, "dual page, overlapped"));
    }
    all
}

impl Artifact {
    /// The workloads it is done for: sweeps take a few when they must be quick.
    fn workloads(self, request: &Request, all: &[&'static str]) -> Vec<usize> {
        let few: &[&str] = match self.0 {
            "fig11a" | "fig11b" | "fig8a" | "fig8b" => &["pagerank", "echo"],
            "fig12" => &["tatp", "tpcc"],
            "fig13" => &["echo"],
            _ => return (0..all.len()).collect(),
        };
        (0..all.len())
            .filter(|&number| !request.quick || few.contains(&all[number]))
            .collect()
    }

    /// Schemes and variants it needs of each workload.
    fn series(self, request: &Request) -> Vec<(SchemeKind, Variant, String)> {
        let dual = |variant, name: String| (SchemeKind::DualPage, variant, name);
        let named = |(scheme, variant, name): (SchemeKind, Variant, &str)| (scheme, variant, name.to_owned());
        match self.0 {
            "fig1" | "fig2" | "table1" => {
                vec![named((SchemeKind::CopyOnWrite, Variant::Plain, "copy-on-write"))]
            }
            "table5" | "preallocation" => vec![dual(Variant::Plain, "dual page".into())],
            "fig11a" | "fig11b" | "fig8a" | "fig8b" => POOLS
                .iter()
                .map(|&size| dual(Variant::Pool(size), format!("{size} MB")))
                .collect(),
            "fig12" => (0..PLACES.len())
                .map(|place| dual(Variant::Place(place), PLACES[place].0.into()))
                .collect(),
            "fig13" => {
                let schemes = compared(request.paper)
                    .into_iter()
                    .filter(|one| one.0 != SchemeKind::InPlace && one.1 == Variant::Plain);
                schemes
                    .flat_map(|(scheme, _, name)| {
                        INTERVALS.map(|interval| {
                            (
                                scheme,
                                Variant::Interval(interval),
                                format!("{name}, {interval} M"),
                            )
                        })
                    })
                    .collect()
            }
            "table3" => Vec::new(),
            _ => compared(request.paper).into_iter().map(named).collect(),
        }
    }

    /// The runs it needs.
    pub(super) fn keys(self, request: &Request, all: &[&'static str]) -> Vec<Key> {
        let series = self.series(request);
        let of = |workload| {
            series.iter().map(move |&(scheme, variant, _)| Key {
                workload,
                scheme,
                variant,
            })
        };
        self.workloads(request, all).into_iter().flat_map(of).collect()
    }

    /// Its rows.
    pub(super) fn rows(self, request: &Request, runs: &Runs, all: &[&'static str]) -> Vec<Row> {
        let time = |report: &Report| report.outcome.time_ns as f64;
        let writes = |report: &Report| report.outcome.nvm_writes.total as f64;
        let dual = (SchemeKind::DualPage, Variant::Plain);
        let largest = (SchemeKind::DualPage, Variant::Pool(500));
        let paper = request.paper;
        let said = |which: fn(Paper, SchemeKind) -> Option<f64>| {
            move |scheme: SchemeKind, _: Variant| which(paper, scheme)
        };
        let worst = |which: usize| {
            move |_: SchemeKind, variant: Variant| match variant {
                Variant::Pool(size) => paper::pool_worst(paper, size)[which],
                _ => None,
            }
        };
        let table = Table {
            artifact: self,
            request,
            runs,
            all,
        };
        match self.0 {
            "fig1" | "fig2" => {
                let clean = |report: &Report| report.outcome.clean_share * 100.0;
                table.values("%", clean, &|_, _| Some(paper::clean_percent(paper)))
            }
            "fig9a" | "fig7a" => table.ratios(dual, time, &said(paper::slowdown), false),
            "fig9b" | "fig7b" => table.ratios(dual, writes, &said(paper::writes), false),
            "fig11a" | "fig8a" => table.ratios(largest, time, &worst(0), true),
            "fig11b" | "fig8b" => table.ratios(largest, writes, &worst(1), true),
            "fig12" => table.ratios(
                (SchemeKind::DualPage, Variant::Place(0)),
                time,
                &|_, _| None,
                false,
            ),
            "fig13" => table.ratios(
                (SchemeKind::DualPage, Variant::Interval(10)),
                time,
                &|_, _| None,
                false,
            ),
            "table1" => table.values("extra lines for each dirty one", extra, &|_, _| None),
            "table3" => metadata(),
            "table5" => table.characteristics(),
            "table6" => table.checkpoints(),
            _ => table.failures(),
        }
    }
}

/// Lines a page-grain copy writes for each that is dirty.
fn extra(report: &Report) -> f64 {
    let clean = report.outcome.clean_share;
    clean / (1.0 - clean).max(1.0 / 64.0)
}

/// DPC Table 3, from the entries the schemes here keep.
fn metadata() -> Vec<Row> {
    let row = |series: &str, unit, paper: f64, bits: u64| Row {
        artifact: "table3",
        series: series.into(),
        workload: "metadata".into(),
        paper: Some(paper),
        ours: bits as f64,
        unit,
        note: None,
    };
    vec![
        row("ThyNVM", "bits a line", 42.0, thynvm::BLOCK_INDEX_BITS),
        row("page overlays", "bits a page", 352.0, page_overlay::BITS_PER_PAGE),
        row("dual page", "bits a page", 37.0, dual_page::BITS_PER_PAGE),
    ]
}

/// Rows of one artifact.
struct Table<'a> {
    artifact: Artifact,
    request: &'a Request,
    runs: &'a Runs,
    all: &'a [&'static str],
}

type Said<'a> = &'a dyn Fn(SchemeKind, Variant) -> Option<f64>;

impl Table<'_> {
    fn row(&self, series: &str, workload: &str, paper: Option<f64>, ours: f64, unit: &'static str) -> Row {
        Row {
            artifact: self.artifact.0,
            series: series.into(),
            workload: workload.into(),
            paper,
            ours,
            unit,
            note: None,
        }
    }

    /// A value of each run, and their mean beside the paper's.
    fn values(&self, unit: &'static str, value: impl Fn(&Report) -> f64, said: Said<'_>) -> Vec<Row> {
        self.each(
            unit,
            &|scheme, variant, workload| value(self.runs.get(workload, scheme, variant)),
            said,
            false,
        )
    }

    /// A value of each run over that of the same workload's reference, and the mean. Workloads whose
    /// reference has nothing (no write at all) are left out.
    fn ratios(
        &self,
        over: (SchemeKind, Variant),
        value: impl Fn(&Report) -> f64,
        said: Said<'_>,
        worst: bool,
    ) -> Vec<Row> {
        let ratio = |scheme, variant, workload| {
            let reference = value(self.runs.get(workload, over.0, over.1));
            value(self.runs.get(workload, scheme, variant)) / reference
        };
        self.each("ratio", &ratio, said, worst)
    }

    fn each(
        &self,
        unit: &'static str,
        value: &dyn Fn(SchemeKind, Variant, usize) -> f64,
        said: Said<'_>,
        worst: bool,
    ) -> Vec<Row> {
        let mut rows = Vec::new();
        let workloads = self.artifact.workloads(self.request, self.all);
        for (scheme, variant, series) in self.artifact.series(self.request) {
            let values: Vec<f64> = workloads
                .iter()
                .map(|&workload| value(scheme, variant, workload))
                .collect();
            for (&workload, &value) in workloads.iter().zip(&values) {
                let name = self.all[workload];
                let paper = match variant {
                    Variant::Place(place) if place + 1 == PLACES.len() => paper::all_in_dram(name),
                    _ => None,
                };
                if value.is_finite() {
                    let row = self.row(&series, name, paper, value, unit);
                    rows.push(self.explained(row, scheme, variant, &[workload]));
                }
            }
            let found: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
            let (name, summary) = match worst {
                true => ("worst", found.iter().copied().fold(0.0, f64::max)),
                false => ("average", found.iter().sum::<f64>() / found.len().max(1) as f64),
            };
            let row = self.row(&series, name, said(scheme, variant), summary, unit);
            rows.push(self.explained(row, scheme, variant, &workloads));
        }
        rows
    }

    /// Where ours is more than 15% off, what was measured beside it.
    fn explained(&self, mut row: Row, scheme: SchemeKind, variant: Variant, workloads: &[usize]) -> Row {
        let off = |paper: f64| (row.ours / paper - 1.0).abs() > 0.15;
        if row.paper.is_some_and(off) {
            let count = workloads.len().max(1) as f64;
            let mean = |value: &dyn Fn(&Report) -> f64, scheme, variant| {
                workloads
                    .iter()
                    .map(|&workload| value(self.runs.get(workload, scheme, variant)))
                    .sum::<f64>()
                    / count
            };
            let of = |value: &dyn Fn(&Report) -> f64| mean(value, scheme, variant);
            let share = of(&|report| report.outcome.checkpoint_share * 100.0);
            let misses = of(&|report| report.outcome.dram_miss_rate * 100.0);
            let clean = of(&|report| report.outcome.clean_share * 100.0);
            let evicted = of(&|report| {
                report.outcome.nvm_writes.eviction as f64 / report.outcome.nvm_writes.total.max(1) as f64
                    * 100.0
            });
            row.note = Some(format!(
                "measured beside it, on average: checkpoints take {share:.1}% of the time, {misses:.1}% of requests miss the DRAM cache, {clean:.0}% of the lines of dirty pages are clean, {evicted:.0}% of NVM writes are evictions"
            ));
        }
        row
    }

    fn characteristics(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for workload in self.artifact.workloads(self.request, self.all) {
            let name = self.all[workload];
            let outcome = &self
                .runs
                .get(workload, SchemeKind::DualPage, Variant::Plain)
                .outcome;
            let said = list::ALL
                .iter()
                .find(|entry| entry.name == name)
                .and_then(|entry| entry.paper);
            let scale = 1.0 / self.request.smaller as f64;
            let values = [
                (
                    "DRAM cache miss rate",
                    said.map(|said| said.miss_percent),
                    outcome.dram_miss_rate * 100.0,
                    "%",
                ),
                (
                    "read/write ratio",
                    said.map(|said| said.read_write_ratio),
                    outcome.read_write_ratio,
                    "ratio",
                ),
                (
                    "footprint",
                    said.map(|said| said.footprint_mb * scale),
                    outcome.footprint_bytes as f64 / 1e6,
                    "MB",
                ),
            ];
            for (series, paper, ours, unit) in values {
                let mut row = self.row(series, name, paper, ours, unit);
                if paper.is_some_and(|paper| (ours / paper - 1.0).abs() > 0.15) {
                    row.note = Some(
                        "the program stands in for the paper's: same algorithm, its own data and layout"
                            .into(),
                    );
                }
                rows.push(row);
            }
        }
        rows
    }

    fn checkpoints(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for (scheme, variant, series) in self.artifact.series(self.request) {
            for workload in self.artifact.workloads(self.request, self.all) {
                let outcome = &self.runs.get(workload, scheme, variant).outcome;
                let name = self.all[workload];
                rows.push(self.row(
                    &format!("{series}, count"),
                    name,
                    None,
                    outcome.checkpoints as f64,
                    "checkpoints",
                ));
                rows.push(self.row(
                    &format!("{series}, share"),
                    name,
                    None,
                    outcome.checkpoint_share * 100.0,
                    "%",
                ));
            }
        }
        rows
    }

    fn failures(&self) -> Vec<Row> {
        let workloads = self.artifact.workloads(self.request, self.all);
        let sum = |value: &dyn Fn(&Report) -> u64| -> f64 {
            workloads
                .iter()
                .map(|&workload| value(self.runs.get(workload, SchemeKind::DualPage, Variant::Plain)))
                .sum::<u64>() as f64
        };
        let failures = sum(&|report| report.outcome.controller.prepare_failures);
        let prepared = sum(&|report| report.outcome.controller.prepared);
        let epochs = sum(&|report| report.outcome.checkpoints);
        let note = format!(
            "{failures} of {prepared} pre-allocations in {epochs} epochs found no page: the pool is large enough for what an epoch makes dirty here"
        );
        let mut rows = vec![
            self.row(
                "failures an epoch",
                "all",
                Some(1.17),
                failures / epochs.max(1.0),
                "pages",
            ),
            self.row(
                "failures",
                "all",
                Some(0.01),
                failures / prepared.max(1.0) * 100.0,
                "% of pre-allocations",
            ),
        ];
        for row in &mut rows {
            row.note = Some(note.clone());
        }
        rows
    }
}
