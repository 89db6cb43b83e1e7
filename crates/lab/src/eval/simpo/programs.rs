//! Rows of Figures 17 to 22: large objects, structures, programs and their recovery.

use super::artifact::{CALLS, both, most, others, pool};
use super::row::Row;
use super::rows::{Over, Table, evidence};
use super::runs::{Both, Keeping, Key, Load, Machine, Other, Run};
use crate::eval::evidence::is_far;
use crate::eval::precision::of_batches;
use crate::objects::Passes;
use crate::objects::library::Application;

/// What Figure 17 compares: settings, and how a comparison over all numbers of threads becomes one number.
const POOLS: [(Keeping, Keeping, Over); 4] = [
    (Keeping::NvramAll, Keeping::Native, Over::Least),
    (Keeping::NvramAll, Keeping::Native, Over::Most),
    (Keeping::NvramAll, Keeping::NvramDisk, Over::Least),
    (Keeping::NvramAll, Keeping::NvramDisk, Over::Most),
];

/// Of the time of a program's run, what its recovery takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shares {
    /// The objects are read back.
    pub(super) read: f64,
    /// The functions of a group, the most there can be after a checkpoint, are run again.
    pub(super) run: f64,
    /// All entries are looked at, of a program that is run again.
    pub(super) looked_at: f64,
}

impl Shares {
    pub(super) fn all(&self) -> f64 {
        self.read + self.run + self.looked_at
    }
}

impl Table<'_> {
    fn pool_run(&self, keeping: Keeping, calls: u64, threads: usize) -> &Run {
        self.runs.get(&pool(keeping, calls, threads))
    }

    /// Calls a second of a setting of Figure 17, by threads.
    pub(super) fn pool_speeds(&self, keeping: Keeping) -> Vec<(usize, f64)> {
        let speed = |threads: &usize| self.pool_run(keeping, CALLS[0], *threads).machine.per_second();
        let threads = self.threads(Machine::Amd).iter();
        threads.map(|threads| (*threads, speed(threads))).collect()
    }

    /// One setting's calls a second over another's, by threads.
    pub(super) fn pools(&self, keeping: Keeping, over: Keeping) -> Vec<(usize, f64)> {
        let speeds = self.pool_speeds(keeping).into_iter();
        let both = speeds.zip(self.pool_speeds(over));
        both.map(|((threads, speed), (_, over))| (threads, speed / over))
            .collect()
    }

    pub(super) fn large(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for keeping in Keeping::ALL {
            for (threads, speed) in self.pool_speeds(keeping) {
                rows.push(self.simulated(keeping.name(), &threads.to_string(), speed / 1e3, "1000/s", &[]));
            }
        }
        for (keeping, over, how) in POOLS {
            let (ours, at) = how.of(&self.pools(keeping, over));
            let at = at.unwrap_or(1);
            let series = format!("{} over {}, {}", keeping.name(), over.name(), how.name());
            let mut row = self.simulated(&series, &format!("at {at} threads"), ours, "ratio", &[]);
            let pools = [keeping, over].map(|keeping| pool_evidence(self.pool_run(keeping, CALLS[0], at)));
            let evidence = || format!("{}; {}", pools.join("; "), self.pass_evidence(at));
            row.row.note = self.is_explained(&series, ours).then(evidence);
            rows.push(row);
        }
        let most = most(self.machines, Machine::Amd);
        for calls in CALLS {
            let [all, disk] = [Keeping::NvramAll, Keeping::NvramDisk]
                .map(|keeping| self.pool_run(keeping, calls, most).machine.per_second());
            let series = format!("nvramall over nvram-disk, {most} threads");
            let place = format!("{calls} calls before the next object");
            rows.push(self.simulated(&series, &place, all / disk, "ratio", &[]));
        }
        rows
    }

    /// How long threads are at a large object.
    fn pass_evidence(&self, threads: usize) -> String {
        let passes = pool(Keeping::Native, CALLS[0], threads).passes();
        let [other, same, copy] = passes.map(|key| {
            let run = &self.runs.get(&key).machine;
            run.time_fs as f64 * 1e-9 * threads as f64 * Passes::SMALLER as f64 / run.transactions as f64
        });
        format!(
            "a function takes {other:.0} us of another object each time, {same:.0} us of the same one; a checkpoint {copy:.0} us"
        )
    }

    fn mixed_run(&self, machine: Machine, both: Both, name: &str, other: Other) -> &Run {
        let threads = most(self.machines, machine);
        let key = Key::new(machine, Load::mixed(both, name), threads);
        self.runs.get(&key.with(other))
    }

    /// The time of a program's functions under a mechanism, over that of native.
    pub(super) fn over_native(&self, machine: Machine, both: Both, name: &str) -> f64 {
        let [native, this] = ["native", name].map(|name| self.mixed_run(machine, both, name, Other::Nothing));
        native.machine.per_second() / this.machine.per_second()
    }

    /// Rows of Figures 18 to 21.
    pub(super) fn mixed(&self) -> Vec<Row> {
        let Some((machine, variants, programs)) = both(self.artifact) else {
            return Vec::new();
        };
        let mut rows = Vec::new();
        for other in others(self.artifact) {
            for name in &variants[1..] {
                let row = |program: &Both| self.over_native_row(machine, *program, name, *other);
                rows.extend(programs.iter().map(row));
            }
        }
        rows
    }

    fn over_native_row(&self, machine: Machine, both: Both, name: &str, other: Other) -> Row {
        let of = ["native", name].map(|name| self.mixed_run(machine, both, name, other));
        let ours = of[0].machine.per_second() / of[1].machine.per_second();
        let series = match other {
            Other::Spin => format!("{name}, waiters spin"),
            _ => name.to_owned(),
        };
        let mut row = self.simulated(&series, both.name(), ours, "ratio", &[]);
        row.row.plus_minus = of_batches(&of[1].times(), &of[0].times());
        // The text has no number for one of them: what is far from native is explained.
        let evidence = || of.map(evidence).join("; ");
        row.row.note = is_far(Some(1.0), ours).then(evidence);
        row
    }

    /// Of a program's run of as many functions as 4.1.2 has, what its recovery takes.
    pub(super) fn recovered(&self, program: Application) -> Shares {
        let both = Both::Application(program);
        let config = &self.machines[Machine::Intel as usize];
        let threads = most(self.machines, Machine::Intel);
        let functions = config.study.recovered as f64;
        let a_function = 1.0
            / self
                .mixed_run(Machine::Intel, both, "simpo", Other::Nothing)
                .machine
                .per_second();
        let total = functions * a_function;
        let look = self.recovery_part_s(Load::Application, threads) / config.study.functions as f64;
        Shares {
            read: self.recovery_part_s(Load::Copy(both), 1) / total,
            run: config.sizes.group as f64 * a_function * threads as f64 / total,
            looked_at: look * functions / total,
        }
    }

    /// Seconds of a part of recovery that Figure 22 is made of.
    pub(super) fn recovery_part_s(&self, load: Load, threads: usize) -> f64 {
        let run = self.runs.get(&Key::new(Machine::Intel, load, threads));
        run.machine.time_fs as f64 * 1e-15
    }

    pub(super) fn recoveries(&self) -> Vec<Row> {
        let programs = Application::ALL.map(|program| (program.name(), self.recovered(program)));
        let of = |(name, shares): (&str, Shares)| {
            [
                ("recovery", shares.all()),
                ("objects are read", shares.read),
                ("functions are run again", shares.run),
                ("entries are looked at", shares.looked_at),
            ]
            .map(|(series, share)| self.simulated(series, name, share * 100.0, "% of the run", &[]))
        };
        programs
            .into_iter()
            .chain([self.recovered_stock()])
            .flat_map(of)
            .collect()
    }
}

/// What was counted in a run of a pool, for each call.
fn pool_evidence(run: &Run) -> String {
    let counts = &run.machine;
    let each = |count: u64| count as f64 / counts.transactions as f64;
    format!(
        "{}: {:.0} us a call; of all threads {:.0} us at locks; {:.0} us of the SSD, {:.2} transfers",
        run.name,
        each(counts.time_fs) * 1e-9,
        counts.lock_stall_fs as f64 / counts.transactions as f64 * 1e-9,
        each(counts.disk_fs) * 1e-9,
        each(counts.disk_writes),
    )
}
