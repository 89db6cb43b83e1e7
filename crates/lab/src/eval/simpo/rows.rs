//! Rows: what follows from the runs, beside what the paper says.

use super::artifact::{FIGURES, FORMS, OPEN, most};
use super::paper::{APPLICATION, OBJECT, said};
use super::row::{Origin, Row, row};
use super::runs::{Key, Load, Machine, Other, Run, Runs};
use super::{measured, tables};
use crate::eval::evidence::is_far;
use crate::eval::precision::of_batches;
use crate::objects::{Calls, Config};

/// How a comparison over all numbers of threads becomes one number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Over {
    Most,
    Least,
    Mean,
}

impl Over {
    pub(super) fn name(self) -> &'static str {
        match self {
            Over::Most => "most",
            Over::Least => "least",
            Over::Mean => "mean",
        }
    }

    /// The number, and where it is reached.
    pub(super) fn of(self, all: &[(usize, f64)]) -> (f64, Option<usize>) {
        let at = |found: Option<&(usize, f64)>| {
            found.map_or((f64::NAN, None), |(threads, is)| (*is, Some(*threads)))
        };
        match self {
            Over::Most => at(all.iter().max_by(|one, other| one.1.total_cmp(&other.1))),
            Over::Least => at(all.iter().min_by(|one, other| one.1.total_cmp(&other.1))),
            Over::Mean => (all.iter().map(|(_, is)| is).sum::<f64>() / all.len() as f64, None),
        }
    }
}

/// What each pair of figures compares.
pub(super) fn comparisons(artifact: &str) -> &'static [(&'static str, &'static str, Over)] {
    match artifact {
        "fig10" | "fig11" => &[
            ("nvram", "ssd", Over::Most),
            ("hybrid", "nvram", Over::Most),
            ("hybrid", "native", Over::Mean),
            ("hybrid", "cow", Over::Most),
            ("simpo", "native", Over::Most),
        ],
        "fig12" | "fig13" => &[
            ("fc", "native", Over::Most),
            ("m-server", "native", Over::Most),
            ("m-server", "fc", Over::Mean),
        ],
        "fig14" | "fig15" => &[
            ("simpo-all", "simpo", Over::Least),
            ("simpo", "m-server", Over::Mean),
        ],
        _ => &[],
    }
}

/// Rows of one artifact.
pub(super) struct Table<'a> {
    pub(super) artifact: &'static str,
    pub(super) machines: &'a [Config; 2],
    pub(super) runs: &'a Runs,
}

impl Table<'_> {
    pub(super) fn rows(&self) -> Result<Vec<Row>, String> {
        if let Some((_, machine, variants, calls)) = FIGURES.iter().find(|(name, ..)| *name == self.artifact)
        {
            return Ok(self.figure(*machine, variants, *calls));
        }
        Ok(match self.artifact {
            "fig6" => self.forms(),
            "fig16" => self.recovery(),
            "fig17" => self.large(),
            "fig18" | "fig19" | "fig20" | "fig21" => self.mixed(),
            "fig22" => self.recoveries(),
            "fig23" => self.stock_level(Machine::Amd),
            "fig24" => self.stock_level(Machine::Intel),
            "misses" => self.misses(),
            "table3" => tables::structures()?,
            "table4" => tables::programs()?,
            "table7" => tables::variants(),
            "measured" => measured::rows()?,
            "open" => self.open(),
            _ => Vec::new(),
        })
    }

    pub(super) fn threads(&self, machine: Machine) -> &[usize] {
        &self.machines[machine as usize].study.threads
    }

    fn run(&self, machine: Machine, name: &str, calls: Calls, threads: usize) -> &Run {
        self.runs
            .get(&Key::new(machine, Load::variant(name, calls), threads))
    }

    pub(super) fn simulated(
        &self,
        series: &str,
        workload: &str,
        ours: f64,
        unit: &'static str,
        of: &[&Run],
    ) -> Row {
        let paper = said(self.artifact, series);
        let mut row = row(
            Origin::Simulated,
            self.artifact,
            series,
            workload,
            paper,
            ours,
            unit,
        );
        let evidence = || of.iter().map(|run| evidence(run)).collect::<Vec<_>>().join("; ");
        row.row.note = (is_far(paper, ours) && !of.is_empty()).then(evidence);
        row
    }

    /// Whether ours is so far from the paper's that it is explained.
    pub(super) fn is_explained(&self, series: &str, ours: f64) -> bool {
        is_far(said(self.artifact, series), ours)
    }

    /// A variant's throughput over another's, by threads.
    pub(super) fn ratios(&self, machine: Machine, calls: Calls, name: &str, over: &str) -> Vec<(usize, f64)> {
        let of = |threads: &usize| {
            let [run, over] = [name, over].map(|name| self.run(machine, name, calls, *threads));
            (*threads, run.machine.per_second() / over.machine.per_second())
        };
        self.threads(machine).iter().map(of).collect()
    }

    /// Throughput by threads, then what the text compares.
    fn figure(&self, machine: Machine, variants: &[&str], calls: Calls) -> Vec<Row> {
        let mut rows = Vec::new();
        for name in variants {
            for threads in self.threads(machine) {
                let run = self.run(machine, name, calls, *threads);
                let speed = run.machine.per_second() / 1e3;
                rows.push(self.simulated(name, &threads.to_string(), speed, "1000/s", &[]));
            }
        }
        for (name, over, how) in comparisons(self.artifact) {
            let all = self.ratios(machine, calls, name, over);
            let (ours, at) = how.of(&all);
            let series = format!("{name} over {over}, {}", how.name());
            let at = at.unwrap_or(all[all.len() - 1].0);
            let of = [name, over].map(|name| self.run(machine, name, calls, at));
            let mut row = self.simulated(&series, "comparisons", ours, "ratio", &of);
            if *how != Over::Mean {
                row.row.workload = format!("at {at} threads");
                row.row.plus_minus = of_batches(&of[1].times(), &of[0].times());
            }
            rows.push(row);
        }
        rows
    }

    fn forms(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for machine in [Machine::Amd, Machine::Intel] {
            for name in FORMS {
                let run = self.run(machine, name, Calls::AllInc, 1);
                let place = format!("{}, one thread", machine.name());
                let speed = run.machine.per_second() / 1e3;
                let series = match name {
                    "hybrid" => "dual",
                    other => other,
                };
                rows.push(self.simulated(&format!("{series}: throughput"), &place, speed, "1000/s", &[]));
                let lines = run.machine.nvm_writes as f64 / run.machine.transactions as f64;
                let series = format!("{series}: lines to NVRAM for each function");
                rows.push(self.simulated(&series, &place, lines, "lines", &[]));
            }
        }
        rows
    }

    /// Seconds that native took for the functions before the fault.
    pub(super) fn native_s(&self, threads: usize) -> f64 {
        let run = self.run(Machine::Amd, "native", Calls::AllInc, threads);
        self.machines[0].study.recovered as f64 / run.machine.per_second()
    }

    /// Seconds to recover the object, and the application of that many threads.
    pub(super) fn recovery_s(&self, threads: usize) -> [f64; 2] {
        let study = &self.machines[0].study;
        let time = |load, threads| {
            self.runs
                .get(&Key::new(Machine::Amd, load, threads))
                .machine
                .time_fs as f64
        };
        let looked_at = time(Load::Application, threads) * study.recovered as f64 / study.functions as f64;
        [time(Load::Object, 1) * 1e-15, looked_at * 1e-15]
    }

    fn recovery(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for threads in self.threads(Machine::Amd) {
            let native = self.native_s(*threads);
            let of = self.recovery_s(*threads);
            let place = threads.to_string();
            rows.push(self.simulated("native", &place, native * 1e3, "ms", &[]));
            let both = [("object", OBJECT), ("application", APPLICATION)];
            for ((series, _), seconds) in both.iter().zip(of) {
                rows.push(self.simulated(series, &place, seconds * 1e3, "ms", &[]));
                let share = format!("{series} over native");
                rows.push(self.simulated(&share, &place, seconds / native, "ratio", &[]));
            }
        }
        let [_, one] = self.recovery_s(1);
        let million = one * 1e3 * 1e6 / self.machines[0].study.recovered as f64;
        rows.push(self.simulated("a million resilient entries", "1", million, "ms", &[]));
        rows
    }

    /// Of a variant's misses the part that another saves, by threads, where there are any.
    pub(super) fn saved(&self, machine: Machine, name: &str, over: &str) -> Vec<(usize, f64)> {
        let of = |threads: &usize| {
            let [run, over] =
                [name, over].map(|name| self.run(machine, name, Calls::AllInc, *threads).misses());
            (over > 0.0).then(|| (*threads, 1.0 - run / over))
        };
        self.threads(machine).iter().filter_map(of).collect()
    }

    fn misses(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for machine in [Machine::Amd, Machine::Intel] {
            for name in ["native", "cow", "hybrid", "simpo"] {
                for threads in self.threads(machine) {
                    let misses = self.run(machine, name, Calls::AllInc, *threads).misses();
                    let series = format!("{}: {name}", machine.name());
                    rows.push(self.simulated(&series, &threads.to_string(), misses, "misses", &[]));
                }
            }
            for (name, over) in [("simpo", "native"), ("hybrid", "cow")] {
                let all = self.saved(machine, name, over);
                let (ours, Some(at)) = Over::Most.of(&all) else {
                    continue;
                };
                let series = format!("saved by {name} over {over}, most");
                let place = format!("{}, at {at} threads", machine.name());
                let of = [name, over].map(|name| self.run(machine, name, Calls::AllInc, at));
                rows.push(self.simulated(&series, &place, ours, "share", &of));
            }
        }
        rows
    }

    fn open(&self) -> Vec<Row> {
        let most = most(self.machines, Machine::Amd);
        let mut rows = Vec::new();
        for (name, over) in [
            ("nvram", "ssd"),
            ("hybrid", "nvram"),
            ("hybrid", "native"),
            ("hybrid", "cow"),
            ("simpo", "native"),
            ("simpo-all", "simpo"),
        ] {
            for (choice, other) in OPEN {
                let speed = |name| self.open_run(name, most, other).machine.per_second();
                let series = format!("{name} over {over}, {most} threads");
                rows.push(self.simulated(&series, choice, speed(name) / speed(over), "ratio", &[]));
            }
        }
        rows
    }

    fn open_run(&self, name: &str, threads: usize, other: Other) -> &Run {
        let key = Key::new(Machine::Amd, Load::variant(name, Calls::AllInc), threads);
        self.runs.get(&key.with(other))
    }
}

/// What was counted in a run, for each function.
pub(super) fn evidence(run: &Run) -> String {
    let counts = &run.machine;
    let each = |count: u64| count as f64 / counts.transactions as f64;
    format!(
        "{}: {:.0} ns a function; of all cores {:.0} ns at locks, {:.0} at fences; {:.2} lines missed the caches, {:.2} \
         came from another node, {:.2} written to NVRAM, {:.0} instructions, {:.0} ns of the SSD",
        run.name,
        each(counts.time_fs) * 1e-6,
        counts.lock_stall_fs as f64 / counts.transactions as f64 * 1e-6,
        each(counts.fence_stall_fs) * 1e-6,
        each(counts.last_misses),
        each(counts.remote),
        each(counts.nvm_writes),
        each(counts.instructions),
        each(counts.disk_fs) * 1e-6,
    )
}
