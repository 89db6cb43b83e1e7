//! Rows: what follows from the runs.

use super::evidence::{self, Pair, is_far};
use super::loads::Load;
use super::open::{self, OPEN};
use super::paper;
use super::plan::{Artifact, CHOICES, PLACES, Runs, Variant, compared, made};
use super::precision::{self, Measure};
use super::{Request, Row, Run};
use crate::schemes::SchemeName;
use twinpage_baselines::SchemeKind;
use twinpage_baselines::{page_overlay, thynvm};
use twinpage_core::dual_page;

/// A scheme and what is other than on the paper's machine.
pub(super) type Which = (SchemeName, Variant);

pub(super) const DUAL: Which = (SchemeName::DUAL_PAGE, Variant::Plain);

/// A workload's value.
#[derive(Clone, Copy)]
pub(super) struct Value {
    pub(super) workload: usize,
    pub(super) is: f64,
    pub(super) plus_minus: Option<f64>,
}

impl Value {
    fn new(workload: usize, is: f64) -> Value {
        Value {
            workload,
            is,
            plus_minus: None,
        }
    }
}

/// The interval of a sum of independent values, over a number.
fn together(values: &[Value], over: f64) -> Option<f64> {
    let squares = values
        .iter()
        .map(|value| value.plus_minus.map(|width| width * width));
    squares.sum::<Option<f64>>().map(|sum| sum.sqrt() / over)
}

/// The mean of those that are numbers, and its interval.
fn mean(values: &[Value]) -> Option<(f64, Option<f64>)> {
    let values: Vec<Value> = values
        .iter()
        .copied()
        .filter(|value| value.is.is_finite())
        .collect();
    let count = values.len() as f64;
    let sum: f64 = values.iter().map(|value| value.is).sum();
    (!values.is_empty()).then(|| (sum / count, together(&values, count)))
}

/// How the numbers of several workloads become one.
#[derive(Clone, Copy)]
pub(super) enum Summary {
    Average,
    Worst,
}

impl Artifact {
    /// Its rows.
    pub(super) fn rows(self, request: &Request, runs: &Runs, loads: &[Load]) -> Vec<Row> {
        self.rows_of(&self.workloads(request, loads), request, runs, loads)
    }

    /// The same of these workloads alone.
    pub(super) fn rows_of(
        self,
        workloads: &[usize],
        request: &Request,
        runs: &Runs,
        loads: &[Load],
    ) -> Vec<Row> {
        let table = Table {
            artifact: self,
            workloads,
            request,
            runs,
            loads,
        };
        let paper = request.paper;
        let pool = |which: usize| {
            move |_: SchemeName, variant: Variant| match variant {
                Variant::Pool(size) => paper::pool_worst(paper, size)[which],
                _ => None,
            }
        };
        let largest = (SchemeName::DUAL_PAGE, Variant::Pool(500));
        match self.0 {
            "fig1" | "fig2" => table.clean(),
            "table1" => table.extra(),
            "fig9a" | "fig7a" => {
                let said = |scheme: SchemeName, _: Variant| paper::slowdown(paper, scheme.house()?);
                table.averages_and_most(Measure::Time, &said)
            }
            "fig9b" | "fig7b" => {
                let said = |scheme: SchemeName, _: Variant| paper::writes(paper, scheme.house()?);
                table.averages_and_most(Measure::Writes, &said)
            }
            "fig10" => table.software(),
            "fig11a" | "fig8a" => table.ratios(largest, Measure::Time, &pool(0), Summary::Worst),
            "fig11b" | "fig8b" => table.ratios(largest, Measure::Writes, &pool(1), Summary::Worst),
            "fig12" => {
                let all = (SchemeName::DUAL_PAGE, Variant::Place(0));
                let mut rows = table.ratios(all, Measure::Time, &|_, _| None, Summary::Average);
                let said =
                    |_: SchemeName, variant| (variant == Variant::Place(1)).then_some(paper::OPTIMIZED);
                let worst = table.ratios(all, Measure::Time, &said, Summary::Worst);
                rows.extend(worst.into_iter().filter(|row| row.workload == "worst"));
                rows
            }
            "fig13" => {
                let shortest = (SchemeName::DUAL_PAGE, Variant::Interval(10));
                table.ratios(shortest, Measure::Time, &|_, _| None, Summary::Average)
            }
            "table3" => metadata(),
            "table2" => table.mixes(),
            "table5" => table.characteristics(),
            "table6" => table.checkpoints(),
            "range" => table.range(Measure::Time),
            "range-writes" => table.range(Measure::Writes),
            "claims" => Vec::new(),
            "sensitivity" => table.sensitivity(Measure::Time),
            "sensitivity-writes" => table.sensitivity(Measure::Writes),
            _ => table.failures(),
        }
    }
}

/// DPC Table 3, from the entries the schemes here keep.
fn metadata() -> Vec<Row> {
    let row = |series, unit, paper, bits: u64| {
        Row::new("table3", series, "metadata", Some(paper), bits as f64, unit)
    };
    vec![
        row("ThyNVM", "bits a line", 42.0, thynvm::BLOCK_INDEX_BITS),
        row("page overlays", "bits a page", 352.0, page_overlay::BITS_PER_PAGE),
        row("dual page", "bits a page", 37.0, dual_page::BITS_PER_PAGE),
    ]
}

/// Rows of one artifact.
pub(super) struct Table<'a> {
    pub(super) artifact: Artifact,
    pub(super) workloads: &'a [usize],
    pub(super) request: &'a Request,
    runs: &'a Runs,
    pub(super) loads: &'a [Load],
}

type Said<'a> = &'a dyn Fn(SchemeName, Variant) -> Option<f64>;

impl<'a> Table<'a> {
    pub(super) fn row(
        &self,
        series: &str,
        workload: &str,
        paper: Option<f64>,
        ours: f64,
        unit: &'static str,
    ) -> Row {
        Row::new(self.artifact.0, series, workload, paper, ours, unit)
    }

    pub(super) fn run(&self, workload: usize, which: Which) -> &'a Run {
        self.runs.get(workload, which.0, which.1)
    }

    pub(super) fn pairs(&self, workloads: &[usize], which: Which, over: Which) -> Vec<Pair<'a>> {
        workloads
            .iter()
            .map(|&workload| Pair {
                name: &self.loads[workload].name,
                run: self.run(workload, which),
                reference: self.run(workload, over),
            })
            .collect()
    }

    /// A value of each workload, and what they are together; where that is not the paper's, why.
    pub(super) fn each(
        &self,
        series: &str,
        unit: &'static str,
        values: &[Value],
        (paper, summary): (Option<f64>, Summary),
        why: &dyn Fn(&[usize]) -> String,
    ) -> Vec<Row> {
        let values: Vec<Value> = values
            .iter()
            .copied()
            .filter(|value| value.is.is_finite())
            .collect();
        if values.is_empty() {
            return Vec::new();
        }
        let mut rows: Vec<Row> = values
            .iter()
            .map(|value| Row {
                plus_minus: value.plus_minus,
                ..self.row(series, &self.loads[value.workload].name, None, value.is, unit)
            })
            .collect();
        let all = values.iter().map(|value| value.is);
        let count = values.len() as f64;
        let worst = all.clone().fold(0.0, f64::max);
        let is_worst = |value: &&Value| value.is >= worst;
        let (name, ours, plus_minus) = match summary {
            Summary::Average => ("average", all.sum::<f64>() / count, together(&values, count)),
            Summary::Worst => {
                let width = values.iter().find(is_worst).and_then(|value| value.plus_minus);
                ("worst", worst, width)
            }
        };
        let mut row = self.row(series, name, paper, ours, unit);
        row.plus_minus = plus_minus;
        if is_far(paper, ours) {
            let behind: Vec<usize> = match summary {
                Summary::Average => values.iter().map(|value| value.workload).collect(),
                Summary::Worst => {
                    let worst = values.iter().find(is_worst);
                    worst.map(|value| value.workload).into_iter().collect()
                }
            };
            row.note = Some(why(&behind));
        }
        rows.push(row);
        rows
    }

    /// A measure of each run over that of the same workload's reference. Workloads whose reference has
    /// nothing (no write at all) are left out.
    fn ratios(&self, over: Which, measure: Measure, said: Said<'_>, summary: Summary) -> Vec<Row> {
        let mut rows = Vec::new();
        for (scheme, variant, series) in self.artifact.series(self.request) {
            let which = (scheme, variant);
            let values = self.values(measure, which, over);
            let why = |behind: &[usize]| {
                let pairs = self.pairs(behind, which, over);
                match measure {
                    Measure::Time => evidence::of_time(&pairs),
                    Measure::Writes => evidence::of_writes(&pairs),
                }
            };
            let mut some = self.each(&series, "ratio", &values, (said(scheme, variant), summary), &why);
            if matches!(variant, Variant::Place(place) if place + 1 == PLACES.len()) {
                for row in &mut some {
                    row.paper = paper::all_in_dram(&row.workload);
                    if is_far(row.paper, row.ours) {
                        let of = |load: &Load| load.name == row.workload;
                        let behind: Vec<usize> = self.loads.iter().position(of).into_iter().collect();
                        row.note = Some(why(&behind));
                    }
                }
            }
            if matches!(summary, Summary::Average) {
                some.extend(self.means(&series, measure, which, over));
            }
            rows.append(&mut some);
        }
        rows
    }

    /// The ratio of each workload, and its interval.
    fn values(&self, measure: Measure, which: Which, over: Which) -> Vec<Value> {
        self.workloads
            .iter()
            .map(|&workload| {
                let [mine, reference] = [which, over].map(|which| &self.run(workload, which).outcome);
                Value {
                    workload,
                    is: measure.of(mine) / measure.of(reference),
                    plus_minus: precision::half_width(mine, reference, measure),
                }
            })
            .collect()
    }

    /// The other means the papers may mean: of the ratios' logarithms, and the ratio of the sums. Sums are of instructions,
    /// for with a precision the runs of one workload are longer than those of another. A ratio of 0 has no logarithm: then
    /// there is no geometric mean.
    fn means(&self, series: &str, measure: Measure, which: Which, over: Which) -> Vec<Row> {
        let mut values = self.values(measure, which, over);
        values.retain(|value| value.is.is_finite());
        if values.is_empty() {
            return Vec::new();
        }
        let count = values.len() as f64;
        let logarithms: Vec<Value> = values
            .iter()
            .map(|value| Value {
                is: value.is.ln(),
                plus_minus: value.plus_minus.map(|width| width / value.is),
                ..*value
            })
            .collect();
        let geometric = (logarithms.iter().map(|value| value.is).sum::<f64>() / count).exp();
        let each = |value: &Value, which: Which| {
            let outcome = &self.run(value.workload, which).outcome;
            measure.of(outcome) / outcome.instructions as f64
        };
        let sum = |which: Which| values.iter().map(|value| each(value, which)).sum::<f64>();
        let reference = sum(over);
        let weighted: Vec<Value> = values
            .iter()
            .map(|value| {
                let weight = each(value, over) / reference;
                let plus_minus = value.plus_minus.map(|width| width * weight);
                Value { plus_minus, ..*value }
            })
            .collect();
        let geometric = values.iter().all(|value| value.is > 0.0).then(|| Row {
            plus_minus: together(&logarithms, count).map(|width| width * geometric),
            ..self.row(series, "geometric mean", None, geometric, "ratio")
        });
        let of_sums = Row {
            plus_minus: together(&weighted, 1.0),
            ..self.row(series, "ratio of sums", None, sum(which) / reference, "ratio")
        };
        geometric.into_iter().chain([of_sums]).collect()
    }

    /// Average ratios over the dual page's with each choice, and the least and the most of them.
    fn range(&self, measure: Measure) -> Vec<Row> {
        let mut rows = Vec::new();
        for (scheme, _, name) in compared(self.request)
            .into_iter()
            .filter(|one| one.1 == Variant::Plain)
        {
            let mut averages = Vec::new();
            for (choice, (_, _, chosen)) in CHOICES.iter().enumerate() {
                let [which, over] =
                    [scheme, SchemeName::DUAL_PAGE].map(|scheme| (scheme, made(scheme, choice)));
                let Some((average, plus_minus)) = mean(&self.values(measure, which, over)) else {
                    continue;
                };
                let mut row = self.row(name, chosen, None, average, "ratio");
                row.plus_minus = plus_minus;
                rows.push(row.clone());
                averages.push(row);
            }
            averages.sort_by(|one: &Row, other| one.ours.total_cmp(&other.ours));
            for (end, row) in [("least", averages.first()), ("most", averages.last())] {
                rows.extend(row.map(|row| Row {
                    workload: end.into(),
                    ..row.clone()
                }));
            }
        }
        rows
    }

    /// Over the dual page: each workload, their average, and where the paper's text has it the most.
    fn averages_and_most(&self, measure: Measure, said: Said<'_>) -> Vec<Row> {
        let mut rows = self.ratios(DUAL, measure, said, Summary::Average);
        let most = |scheme: SchemeName, _: Variant| {
            paper::most(self.request.paper, scheme.house()?)[measure as usize]
        };
        let worst = self.ratios(DUAL, measure, &most, Summary::Worst);
        rows.extend(
            worst
                .into_iter()
                .filter(|row| row.workload == "worst" && row.paper.is_some()),
        );
        rows
    }

    /// Clean lines of dirty pages.
    fn clean(&self) -> Vec<Row> {
        let which = self.copies();
        let clean = |&workload: &usize| Value::new(workload, self.clean_share(workload) * 100.0);
        let values: Vec<_> = self.workloads.iter().map(clean).collect();
        let why = |behind: &[usize]| evidence::of_pages(&self.pairs(behind, which, which));
        let said = Some(paper::clean_percent(self.request.paper));
        self.each("copy-on-write", "%", &values, (said, Summary::Average), &why)
    }

    fn clean_share(&self, workload: usize) -> f64 {
        let run = self.run(workload, self.copies());
        run.outcome.clean_share.unwrap_or(f64::NAN)
    }

    /// Copy-on-write as the artifact runs it.
    fn copies(&self) -> Which {
        let all = self.artifact.series(self.request).into_iter();
        let mut copies = all.filter(|one| one.0 == SchemeKind::CopyOnWrite);
        copies
            .next()
            .map_or((SchemeKind::CopyOnWrite.into(), Variant::Plain), |one| {
                (one.0, one.1)
            })
    }

    /// Lines a page-grain copy writes for each that is dirty.
    fn extra(&self) -> Vec<Row> {
        let extra = |&workload: &usize| {
            let clean = self.clean_share(workload);
            Value::new(workload, clean / (1.0 - clean).max(1.0 / 64.0))
        };
        let values: Vec<_> = self.workloads.iter().map(extra).collect();
        let unit = "extra lines for each dirty one";
        self.each("copy-on-write", unit, &values, (None, Summary::Average), &|_| {
            String::new()
        })
    }

    /// Twins Table II. Its miss rates are those of another machine, for programs with all of their input.
    fn mixes(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for &workload in self.workloads {
            let load = &self.loads[workload];
            let run = self.run(workload, DUAL);
            let (caches, outcome) = (&run.outcome.caches, &run.outcome);
            let missed = caches.last_misses as f64 / caches.first_misses.max(1) as f64 * 100.0;
            let said = load.mix.map(|said| said.last_miss_percent);
            let mut row = self.row("last cache miss rate", &load.name, said, missed, "%");
            row.note = is_far(said, missed).then(|| {
                format!(
                    "{} of {} accesses to the last cache miss, in {} instructions; the paper's rates are another machine's",
                    caches.last_misses, caches.first_misses, outcome.instructions
                )
            });
            rows.push(row);
            let said = load
                .mix
                .map(|said| said.footprint_mb / self.request.smaller as f64);
            let touched = outcome.footprint_bytes as f64 / 1e6;
            let mut row = self.row("footprint", &load.name, said, touched, "MB");
            row.note = is_far(said, touched).then(|| {
                format!(
                    "what the traces touch: {:.1} times the DRAM cache",
                    outcome.footprint_bytes as f64 / run.dram_bytes as f64
                )
            });
            rows.push(row);
        }
        rows
    }

    /// DPC Table 5. Its text does not say where reads and writes are counted: both places are shown.
    fn characteristics(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for &workload in self.workloads {
            let load = &self.loads[workload];
            let run = self.run(workload, DUAL);
            let outcome = &run.outcome;
            let said = |of: fn(&crate::workload::list::Characteristics) -> f64| load.said.as_ref().map(of);
            let miss = said(|said| said.miss_percent);
            let mut row = self.row(
                "DRAM cache miss rate",
                &load.name,
                miss,
                outcome.dram_miss_rate * 100.0,
                "%",
            );
            if let Some(paper) = miss.filter(|_| is_far(miss, row.ours)) {
                row.note = Some(evidence::of_misses(run, paper));
            }
            rows.push(row);
            let ratio = said(|said| said.read_write_ratio);
            let mix = run.mix.unwrap_or_default();
            let program = mix.loads as f64 / mix.stores.max(1) as f64;
            let counted = format!(
                "{} lines read and {} written at DRAM, {} loads and {} stores of the program",
                outcome.controller.reads, outcome.controller.writes, mix.loads, mix.stores
            );
            for (series, ours) in [
                ("read/write ratio at DRAM", outcome.read_write_ratio),
                ("read/write ratio of the program", program),
            ] {
                let mut row = self.row(series, &load.name, ratio, ours, "ratio");
                row.note = is_far(ratio, ours).then(|| counted.clone());
                rows.push(row);
            }
            let footprint = said(|said| said.footprint_mb).map(|said| said / self.request.smaller as f64);
            let mut row = self.row(
                "footprint",
                &load.name,
                footprint,
                outcome.footprint_bytes as f64 / 1e6,
                "MB",
            );
            row.note = is_far(footprint, row.ours).then(|| {
                format!(
                    "{:.1} MB are touched while it runs; {} times the DRAM cache",
                    mix.touched_bytes as f64 / 1e6,
                    (outcome.footprint_bytes as f64 / run.dram_bytes as f64).round()
                )
            });
            rows.push(row);
        }
        rows
    }

    /// DPC Table 6: its numbers are not in the text, but for the range of the stops over workloads, of the interval (5.6).
    fn checkpoints(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for (scheme, variant, series) in self.artifact.series(self.request) {
            let mut stops = Vec::new();
            for &workload in self.workloads {
                let run = self.run(workload, (scheme, variant));
                let name = &self.loads[workload].name;
                stops.push((run.stop_share() * 100.0, workload));
                let (count, share) = (
                    run.outcome.checkpoints as f64,
                    run.outcome.checkpoint_share * 100.0,
                );
                rows.push(self.row(&format!("{series}, count"), name, None, count, "checkpoints"));
                rows.push(self.row(&format!("{series}, share"), name, None, share, "%"));
            }
            if (scheme, variant) == DUAL {
                stops.sort_by(|one, other| one.0.total_cmp(&other.0));
                let ends = [stops.first(), stops.last()];
                for ((name, paper), end) in paper::CHECKPOINT_SHARES.into_iter().zip(ends) {
                    let Some(&(stop, workload)) = end else { continue };
                    let series = format!("{series}, stop");
                    let mut row = self.row(&series, name, Some(paper), stop, "% of the interval");
                    let outcome = &self.run(workload, DUAL).outcome;
                    row.note = is_far(row.paper, stop).then(|| {
                        format!(
                            "{}: {:.0} lines are written to NVM at a checkpoint, which stops the cores for {:.0} us",
                            self.loads[workload].name,
                            outcome.nvm_writes.total as f64 / outcome.checkpoints.max(1) as f64,
                            outcome.latency_ns.stop.p50 / 1000.0
                        )
                    });
                    rows.push(row);
                }
            }
        }
        rows
    }

    /// The main ratios with each open choice changed: for each scheme over the dual page with the same
    /// change, and the dual page over itself without.
    fn sensitivity(&self, measure: Measure) -> Vec<Row> {
        let variants = std::iter::once(Variant::Plain).chain((0..OPEN.len()).map(Variant::Open));
        let mut rows = Vec::new();
        for variant in variants {
            let name = match variant {
                Variant::Open(which) => OPEN[which].name,
                _ => "as it is",
            };
            let schemes = compared(self.request).into_iter();
            for (scheme, _, series) in schemes.filter(|one| one.1 == Variant::Plain) {
                let is_dual = scheme == SchemeName::DUAL_PAGE;
                let over = |variant| match is_dual {
                    true => DUAL,
                    false => (SchemeName::DUAL_PAGE, variant),
                };
                let mean = |variant| mean(&self.values(measure, (scheme, variant), over(variant)));
                // Where the dual page writes nothing there is no ratio.
                let (Some((ours, plus_minus)), Some((plain, _))) = (mean(variant), mean(Variant::Plain))
                else {
                    continue;
                };
                let paper = match measure {
                    Measure::Time if is_dual => open::said(self.request.paper, name),
                    _ => None,
                };
                let mut row = self.row(name, series, paper, ours, "ratio");
                row.plus_minus = plus_minus;
                row.note = (variant != Variant::Plain)
                    .then(|| format!("{:+.1}% beside {plain:.2} as it is", (ours / plain - 1.0) * 100.0));
                rows.push(row);
            }
        }
        rows
    }

    /// DPC 4.4.3.
    fn failures(&self) -> Vec<Row> {
        let runs: Vec<&Run> = self
            .workloads
            .iter()
            .map(|&workload| self.run(workload, DUAL))
            .collect();
        let sum = |value: fn(&Run) -> u64| runs.iter().map(|run| value(run)).sum::<u64>() as f64;
        let failures = sum(|run| run.outcome.controller.prepare_failures);
        let prepared = sum(|run| run.outcome.controller.prepared);
        let epochs = sum(|run| run.outcome.checkpoints);
        let pages = sum(|run| run.outcome.controller.pages_written);
        let pool = runs.iter().map(|run| run.pool.pages).max().unwrap_or(0);
        let why = format!(
            "{failures} of {prepared} pre-allocations in {epochs} epochs found no page: an epoch writes {:.0} pages on average, and the pool has {pool}",
            pages / epochs.max(1.0)
        );
        [
            ("failures an epoch", 1.17, failures / epochs.max(1.0), "pages"),
            (
                "failures",
                0.01,
                failures / prepared.max(1.0) * 100.0,
                "% of pre-allocations",
            ),
        ]
        .into_iter()
        .map(|(series, paper, ours, unit)| {
            let mut row = self.row(series, "all", Some(paper), ours, unit);
            row.note = is_far(row.paper, ours).then(|| why.clone());
            row
        })
        .collect()
    }
}
