//! Figures 23 and 24: StockLevel's transactions, as reads alone and as writes alone.

use super::artifact::{ACCESSES, SIZES, STOCK_VARIANTS, most, stock, stock_of};
use super::programs::Shares;
use super::row::Row;
use super::rows::{Over, Table};
use super::runs::{Both, Load, Machine};
use crate::eval::precision::of_batches;
use crate::objects::library::{Access, StockLevel};

/// The comparisons of the text.
const COMPARISONS: [(Access, Over); 3] = [
    (Access::Get, Over::Mean),
    (Access::Put, Over::Mean),
    (Access::Put, Over::Most),
];

fn name(access: Access) -> &'static str {
    match access {
        Access::Get => "get",
        Access::Put => "put",
    }
}

/// The name of a comparison's series.
pub(super) fn compared(access: Access, how: Over) -> String {
    format!("{}: simpo over native, {}", name(access), how.name())
}

impl Table<'_> {
    /// Simpo's throughput over native's, by threads.
    pub(super) fn stock_ratios(&self, machine: Machine, access: Access) -> Vec<(usize, f64)> {
        let of = |threads: &usize| (*threads, self.stock_ratio(machine, stock_of(access), *threads));
        self.threads(machine).iter().map(of).collect()
    }

    fn stock_ratio(&self, machine: Machine, level: StockLevel, threads: usize) -> f64 {
        let speed = |name| {
            self.runs
                .get(&stock(machine, level, name, threads))
                .machine
                .per_second()
        };
        speed("simpo") / speed("native")
    }

    /// Throughput by threads, what the text compares, then the same of other sizes.
    pub(super) fn stock_level(&self, machine: Machine) -> Vec<Row> {
        let mut rows = Vec::new();
        for access in ACCESSES {
            for variant in STOCK_VARIANTS {
                for threads in self.threads(machine) {
                    let run = self
                        .runs
                        .get(&stock(machine, stock_of(access), variant, *threads));
                    let series = format!("{}: {variant}", name(access));
                    let speed = run.machine.per_second() / 1e3;
                    rows.push(self.simulated(&series, &threads.to_string(), speed, "1000/s", &[]));
                }
            }
        }
        rows.extend(COMPARISONS.map(|(access, how)| self.stock_compared(machine, access, how)));
        let most = most(self.machines, machine);
        for access in ACCESSES {
            for size in SIZES {
                let level = StockLevel { access, rows: size };
                let series = format!("{}: simpo over native, {most} threads", name(access));
                let ours = self.stock_ratio(machine, level, most);
                rows.push(self.simulated(&series, &format!("{size} rows"), ours, "ratio", &[]));
            }
        }
        rows
    }

    /// Of a run of StockLevel's writes, the time of its recovery. The program is not deterministic: it is not run again, so
    /// its entries are not looked at, and one thread runs what there is after a checkpoint.
    pub(super) fn recovered_stock(&self) -> (&'static str, Shares) {
        let config = &self.machines[Machine::Intel as usize];
        let level = stock_of(Access::Put);
        let per_second = |name, threads| {
            let run = self.runs.get(&stock(Machine::Intel, level, name, threads));
            run.machine.per_second()
        };
        let total = config.study.recovered as f64 / per_second("simpo", most(self.machines, Machine::Intel));
        let shares = Shares {
            read: self.recovery_part_s(Load::Copy(Both::StockLevel(level)), 1) / total,
            run: config.sizes.group as f64 / per_second("native", 1) / total,
            looked_at: 0.0,
        };
        (level.name(), shares)
    }

    fn stock_compared(&self, machine: Machine, access: Access, how: Over) -> Row {
        let all = self.stock_ratios(machine, access);
        let (ours, at) = how.of(&all);
        let place = at.unwrap_or_else(|| most(self.machines, machine));
        let of =
            ["simpo", "native"].map(|name| self.runs.get(&stock(machine, stock_of(access), name, place)));
        let mut row = self.simulated(&compared(access, how), "comparisons", ours, "ratio", &of);
        if let Some(at) = at {
            row.row.workload = format!("at {at} threads");
            row.row.plus_minus = of_batches(&of[1].times(), &of[0].times());
        }
        row
    }
}
