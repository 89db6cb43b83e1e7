//! Rows: what follows from the runs, beside what the paper says.

use super::artifact::{
    BETWEEN, OPEN, REAL_OPEN, SMALL_TLB, SWEPT, THREADS, TREES, VARIANTS, background, writes,
};
use super::cost;
use super::measure::{Known, Measure, consolidation, kinds, share};
use super::paper::said;
use super::runs::{Key, LOADS, Load, Other, REAL, Run, Runs};
use crate::eval::Row;
use crate::eval::evidence::is_far;
use crate::eval::precision::of_batches;
use crate::sections::{Config, Counts, Name};
use crate::workload::maps::NODES;

/// The designs that SSP is compared with.
pub(super) const OTHERS: [Name; 2] = [Name::UndoLog, Name::RedoLog];

/// A number of SSP's run and of another design's.
pub(super) type Comparison = Box<dyn Fn(&Run, &Run) -> Known>;

/// The mean, and half of its interval if each number has one.
pub(super) fn average(all: &[Known]) -> Known {
    let n = all.len() as f64;
    let squares: Option<f64> = all
        .iter()
        .map(|(_, width)| width.map(|width| width * width))
        .sum();
    let sum: f64 = all.iter().map(|(number, _)| number).sum();
    (sum / n, squares.map(|squares| squares.sqrt() / n))
}

/// The geometric mean.
fn geometric(all: &[Known]) -> Known {
    let logarithms: Vec<Known> = all
        .iter()
        .map(|(number, width)| (number.ln(), width.map(|width| width / number)))
        .collect();
    let (mean, width) = average(&logarithms);
    (mean.exp(), width.map(|width| width * mean.exp()))
}

/// The mean, each number as much as its weight.
fn weighted(all: &[Known], weights: &[f64]) -> Known {
    let sum: f64 = weights.iter().sum();
    let one = |((number, width), weight): (&Known, &f64)| {
        let scale = weight * all.len() as f64 / sum;
        (number * scale, width.map(|width| width * scale))
    };
    average(&all.iter().zip(weights).map(one).collect::<Vec<_>>())
}

/// Groups of Table 3's programs that the text speaks of, by name.
pub(super) fn groups() -> [(&'static str, Vec<Load>); 4] {
    let of = |is: &dyn Fn(&Load) -> bool| LOADS.into_iter().filter(is).collect();
    let those = |ending: &str| of(&|load| load.0.ends_with(ending));
    [
        ("average", LOADS.to_vec()),
        ("average of zipf", those("zipf")),
        ("average of random", those("rand")),
        // The size of its nodes is open, and moves the average.
        ("average without btree", of(&|load| !load.0.starts_with("btree"))),
    ]
}

/// Rows of one artifact.
pub(super) struct Table<'a> {
    pub(super) artifact: &'static str,
    pub(super) config: &'a Config,
    pub(super) runs: &'a Runs,
}

impl Table<'_> {
    pub(super) fn rows(&self) -> Vec<Row> {
        match self.artifact {
            "fig5a" => self.figure(Measure::Throughput, 1),
            "fig5b" => self.figure(Measure::Throughput, THREADS),
            "fig6" => self.figure(Measure::LogWrites, 1),
            "fig7a" => self.figure(Measure::Writes, 1),
            "fig7b" => self.shares(&LOADS, 1),
            "fig8" => self.latencies(),
            "fig9" => self.cache(),
            "table3" => self.write_sets(),
            "table4" => self.real_speed(),
            "table5" => self.real(Measure::Writes),
            "real" => {
                let mut rows = self.real(Measure::LogWrites);
                rows.extend(self.shares(&REAL, THREADS));
                rows
            }
            "tlb" => self.tlb(),
            "background" => background().flat_map(|key| self.background(key)).collect(),
            "variants" => self.variants(),
            "open" => self.open(),
            "cost" => cost::parts(&self.config.setting)
                .into_iter()
                .map(|(part, place, bytes)| self.row(part.into(), place.into(), (bytes, None), "bytes", &[]))
                .collect(),
            _ => Vec::new(),
        }
    }

    fn run(&self, load: Load, design: Name, threads: usize, other: Other) -> &Run {
        self.runs.get(&Key::new(load, design, threads, other))
    }

    fn row(
        &self,
        series: String,
        workload: String,
        (ours, plus_minus): Known,
        unit: &'static str,
        of: &[&Run],
    ) -> Row {
        let paper = said(self.artifact, &series, &workload);
        let evidence = || of.iter().map(|run| evidence(run)).collect::<Vec<_>>().join("; ");
        Row {
            plus_minus,
            note: (is_far(paper, ours) && !of.is_empty()).then(evidence),
            ..Row::new(self.artifact, series, workload, paper, ours, unit)
        }
    }

    /// Every design over UNDO-LOG, then SSP against both.
    fn figure(&self, measure: Measure, threads: usize) -> Vec<Row> {
        let run = |load, design| self.run(load, design, threads, Other::Nothing);
        let mut rows = Vec::new();
        for design in Name::ALL {
            for load in LOADS {
                let (run, over) = (run(load, design), run(load, Name::UndoLog));
                rows.push(self.row(
                    design.name().into(),
                    load.0.into(),
                    measure.ratio(run, over),
                    "ratio",
                    &[],
                ));
            }
        }
        for other in OTHERS {
            let (series, of) = comparison(measure, other);
            for load in LOADS {
                let (ssp, other) = (run(load, Name::Ssp), run(load, other));
                rows.push(self.row(
                    series.clone(),
                    load.0.into(),
                    of(ssp, other),
                    "ratio",
                    &[ssp, other],
                ));
            }
            for (name, loads) in groups() {
                let all: Vec<Known> = loads
                    .iter()
                    .map(|&load| of(run(load, Name::Ssp), run(load, other)))
                    .collect();
                rows.push(self.row(series.clone(), name.into(), average(&all), "ratio", &[]));
            }
            if measure != Measure::Writes {
                let ratios = LOADS.map(|load| of(run(load, Name::Ssp), run(load, other)));
                // What the ratios are over, as the figure's bars.
                let below = match measure {
                    Measure::Throughput => other,
                    _ => Name::Ssp,
                };
                let bar = |load| measure.ratio(run(load, below), run(load, Name::UndoLog)).0;
                for (name, mean) in [
                    ("geometric mean", geometric(&ratios)),
                    ("ratio of the figure's means", weighted(&ratios, &LOADS.map(bar))),
                ] {
                    rows.push(self.row(series.clone(), name.into(), mean, "ratio", &[]));
                }
            }
        }
        rows
    }

    fn shares(&self, loads: &[Load], threads: usize) -> Vec<Row> {
        let mut rows = Vec::new();
        for &load in loads {
            let run = self.run(load, Name::Ssp, threads, Other::Nothing);
            for (series, share) in kinds(run) {
                rows.push(self.row(series.into(), load.0.into(), share, "share", &[]));
            }
        }
        rows
    }

    /// SSP against the others in the real workloads, by a measure.
    fn real(&self, measure: Measure) -> Vec<Row> {
        let of = |other| {
            let all: Vec<Row> = REAL
                .into_iter()
                .map(|load| self.real_ratio(measure, load, other, ("", Other::Nothing)))
                .collect();
            let ours: Vec<Known> = all.iter().map(|row| (row.ours, row.plus_minus)).collect();
            let series = all[0].series.clone();
            let mean = self.row(series, "average".into(), average(&ours), "ratio", &[]);
            all.into_iter().chain([mean])
        };
        OTHERS.into_iter().flat_map(of).collect()
    }

    fn real_ratio(&self, measure: Measure, load: Load, other: Name, (choice, at): (&str, Other)) -> Row {
        let [ssp, over] = [Name::Ssp, other].map(|design| self.run(load, design, THREADS, at));
        let (mut series, of) = match measure {
            Measure::LogWrites => saved(measure, other),
            _ => comparison(measure, other),
        };
        if !choice.is_empty() {
            series = format!("{series}: {choice}");
        }
        self.row(series, load.0.into(), of(ssp, over), "ratio", &[ssp, over])
    }

    /// Throughput, also by what is open.
    fn real_speed(&self) -> Vec<Row> {
        let mut rows = self.real(Measure::Throughput);
        for choice in REAL_OPEN {
            for other in OTHERS {
                rows.extend(REAL.map(|load| self.real_ratio(Measure::Throughput, load, other, choice)));
            }
        }
        rows
    }

    fn latencies(&self) -> Vec<Row> {
        let pairs = SWEPT
            .into_iter()
            .flat_map(|load| BETWEEN.map(|between| (load, between)));
        pairs
            .flat_map(|(load, between)| self.by_latency(load, between))
            .collect()
    }

    fn by_latency(&self, load: Load, between: u32) -> Vec<Row> {
        let mut rows = Vec::new();
        let program = match between {
            0 => load.0.to_owned(),
            _ => format!("{}, {between} instructions between sections", load.0),
        };
        for &times in &self.config.study.latencies {
            let run = |design| self.run(load, design, 1, writes(between, times));
            let place = format!("x{times}");
            for design in Name::ALL {
                let series = format!("{program}: {}", design.name());
                let speed = Measure::thousands(run(design));
                rows.push(self.row(series, place.clone(), speed, "1000/s", &[]));
            }
            for other in OTHERS {
                let (ssp, other_run) = (run(Name::Ssp), run(other));
                let series = format!("{program}: ssp over {}", other.name());
                let ratio = Measure::Throughput.ratio(ssp, other_run);
                rows.push(self.row(series, place.clone(), ratio, "ratio", &[ssp, other_run]));
            }
        }
        rows
    }

    fn cache(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for load in LOADS {
            let redo = self.run(load, Name::RedoLog, 1, Other::Nothing);
            for &cycles in &self.config.study.cache_cycles {
                let ssp = self.run(load, Name::Ssp, 1, Other::Cache(cycles));
                let ratio = Measure::Throughput.ratio(ssp, redo);
                rows.push(self.row(load.0.into(), format!("{cycles} cycles"), ratio, "ratio", &[]));
            }
        }
        rows
    }

    /// Table 3, and the B+-tree's by the size of its nodes.
    fn write_sets(&self) -> Vec<Row> {
        let real = REAL.map(|load| (load, THREADS));
        let all = LOADS.map(|load| (load, 1)).into_iter().chain(real);
        let mut rows: Vec<Row> = all
            .flat_map(|(load, threads)| self.write_set(load, threads, ("", Other::Nothing)))
            .collect();
        for bytes in NODES {
            let choice = (&*format!(", nodes of {bytes} bytes"), Other::Nodes(bytes));
            rows.extend(TREES.into_iter().flat_map(|load| self.write_set(load, 1, choice)));
        }
        rows
    }

    fn write_set(&self, load: Load, threads: usize, (choice, other): (&str, Other)) -> [Row; 3] {
        let run = self.run(load, Name::Ssp, threads, other);
        let sections = |counts: &Counts| counts.sections;
        [
            ("lines", share(run, |counts| counts.lines, sections)),
            ("pages", share(run, |counts| counts.pages, sections)),
            ("most pages", (run.design.most_pages as f64, None)),
        ]
        .map(|(series, number)| {
            let paper = said("table3", series, load.0);
            let row = self.row(
                format!("{series}{choice}"),
                load.0.into(),
                number,
                "a section",
                &[],
            );
            Row { paper, ..row }
        })
    }

    fn tlb(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        let entries = self.config.setting.tlb_entries;
        for load in LOADS {
            for (entries, other) in [(entries, Other::Nothing), (SMALL_TLB, Other::Tlb(SMALL_TLB))] {
                let run = self.run(load, Name::Ssp, 1, other);
                let share = consolidation(run);
                rows.push(self.row(format!("{entries} entries"), load.0.into(), share, "share", &[]));
            }
        }
        rows
    }

    /// Whether the background thread keeps up: otherwise the run is not stationary, and its writes lack what is queued.
    fn background(&self, key: Key) -> Vec<Row> {
        let run = self.runs.get(&key);
        let (machine, design) = (&run.machine, &run.design);
        let until = design.last_added as f64 / design.sections as f64;
        let program = format!("{}, {} threads", key.load.0, key.threads);
        let idle = of_batches(&run.parts(|c| c.last_idle_fs), &run.parts(|c| c.time_fs));
        let rows = [
            (
                "idle",
                (machine.last_idle_fs as f64 / machine.time_fs as f64, idle),
                "share",
            ),
            ("queued at the end", (design.queued as f64, None), "pages"),
            (
                "added to the SSP cache",
                (design.slots_added as f64, None),
                "slots",
            ),
            ("added until", (until, None), "share of the run"),
        ];
        rows.map(|(series, number, unit)| Row {
            note: (until > 0.9).then(|| {
                "slots are still added in the last tenth of the run: it may not be stationary".into()
            }),
            ..self.row(series.into(), program.clone(), number, unit, &[])
        })
        .into()
    }

    /// Throughput and NVRAM writes of SSP otherwise over SSP as it is, and how many sections fall back.
    fn variants(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for (variant, other) in VARIANTS {
            for (measure, name) in [
                (Measure::Throughput, "throughput"),
                (Measure::Writes, "NVRAM writes"),
            ] {
                for load in LOADS {
                    let [it, as_it_is] =
                        [other, Other::Nothing].map(|other| self.run(load, Name::Ssp, THREADS, other));
                    let ratio = measure.ratio(it, as_it_is);
                    rows.push(self.row(format!("{variant}: {name}"), load.0.into(), ratio, "ratio", &[]));
                }
            }
            for load in LOADS {
                let run = self.run(load, Name::Ssp, THREADS, other);
                let share = share(run, |counts| counts.fallbacks, |counts| counts.sections);
                let series = format!("{variant}: on the fall-back path");
                rows.push(self.row(series, load.0.into(), share, "share", &[]));
            }
        }
        rows
    }

    fn open(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for (choice, other, threads) in OPEN {
            for than in OTHERS {
                let of = |load: &Load| {
                    let [ssp, than] = [Name::Ssp, than].map(|design| self.run(*load, design, threads, other));
                    Measure::Throughput.ratio(ssp, than)
                };
                let series = format!("ssp over {}: {choice}", than.name());
                for load in LOADS {
                    rows.push(self.row(series.clone(), load.0.into(), of(&load), "ratio", &[]));
                }
                let all: Vec<Known> = LOADS.iter().map(of).collect();
                rows.push(self.row(series, "average".into(), average(&all), "ratio", &[]));
            }
        }
        rows
    }
}

/// How SSP is compared with another design by a measure: the series' name, and the number of two runs.
pub(super) fn comparison(measure: Measure, design: Name) -> (String, Comparison) {
    let other = design.name();
    match measure {
        Measure::Throughput => (
            format!("ssp over {other}"),
            Box::new(move |ssp, other| measure.ratio(ssp, other)),
        ),
        Measure::LogWrites => (
            format!("{other} over ssp"),
            Box::new(move |ssp, other| measure.ratio(other, ssp)),
        ),
        Measure::Writes => saved(measure, design),
    }
}

/// The share of another design's writes that SSP saves.
pub(super) fn saved(measure: Measure, other: Name) -> (String, Comparison) {
    let series = format!("saved over {}", other.name());
    let of = move |ssp: &Run, other: &Run| {
        let (ratio, width) = measure.ratio(ssp, other);
        (1.0 - ratio, width)
    };
    (series, Box::new(of))
}

/// What was counted in a run, for each section.
fn evidence(run: &Run) -> String {
    let (machine, design) = (&run.machine, &run.design);
    let each = |count: u64| count as f64 / machine.transactions as f64;
    let made = |count: u64| count as f64 / design.sections as f64;
    format!(
        "{}: {:.0} ns a section, {:.0} ns of a core at its fences; {:.1} lines and {:.1} pages written, {:.1} log lines, {:.1} \
         lines consolidated, {:.2} TLB misses, {:.1} lines read from memory, {:.1} written, {:.0} instructions; {} pages queued at the end, {} slots added",
        run.name,
        each(machine.time_fs) * 1e-6,
        each(machine.fence_stall_fs - machine.last_fence_fs) * 1e-6,
        made(design.lines),
        made(design.pages),
        made(design.log_writes),
        made(design.consolidation_writes),
        made(design.tlb_misses),
        each(machine.reads),
        each(machine.writes),
        each(machine.instructions),
        design.queued,
        design.slots_added,
    )
}
