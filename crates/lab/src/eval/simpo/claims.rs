//! Which sentences of the paper's evaluation hold here.
//!
//! * A number of the text holds if ours is within 15% of it, as in the tables; "up to" is the most of all numbers of
//!   threads.
//! * A sentence about both platforms holds if it holds on each.
//! * Where a sentence has no number for "similar" or "worst", what it is taken for is in the sentence.

use super::artifact::STOCK;
use super::paper::{APPLICATION, LITTLE, OBJECT, RECOVERY, STOCK_RECOVERY, said};
use super::rows::{Over, Table};
use super::runs::{Both, Keeping, Machine, Runs};
use super::stock::compared as series;
use crate::eval::claims::{Claims, Finding, number};
use crate::eval::{Claim, Verdict};
use crate::objects::library::{Access, Application, Structure};
use crate::objects::{Calls, Config};

const PLATFORMS: [Machine; 2] = [Machine::Amd, Machine::Intel];

struct Court<'a> {
    table: Table<'a>,
    claims: Claims,
}

/// All of them.
pub(super) fn all(machines: &[Config; 2], runs: &Runs) -> Vec<Claim> {
    let mut court = Court {
        table: Table {
            artifact: "claims",
            machines,
            runs,
        },
        claims: Claims::default(),
    };
    court.checkpointing();
    court.execution();
    court.programming();
    court.recovery();
    court.large();
    court.structures();
    court.programs();
    court.stock();
    court.not_simulated();
    court.claims.0
}

/// Of both platforms, or of several numbers.
fn together(all: impl IntoIterator<Item = Finding>) -> Finding {
    let all: Vec<Finding> = all.into_iter().collect();
    let is = |verdict| all.iter().any(|(found, _)| *found == verdict);
    let verdict = match () {
        () if is(Verdict::DoesNotHold) => Verdict::DoesNotHold,
        () if is(Verdict::CannotBeSaid) => Verdict::CannotBeSaid,
        () => Verdict::Holds,
    };
    let numbers: Vec<String> = all.into_iter().map(|(_, numbers)| numbers).collect();
    (verdict, numbers.join(", "))
}

/// A number of a machine, and where it is reached, beside the paper's.
fn beside(machine: Machine, said: Option<f64>, (ours, at): (f64, Option<usize>)) -> Finding {
    let (verdict, numbers) = number(said, ours, "");
    let at = at.map_or(String::new(), |at| format!(" at {at} threads"));
    (verdict, format!("{} {numbers}{at}", machine.name()))
}

impl Court<'_> {
    /// A comparison of throughputs on both platforms, beside the numbers of two figures.
    fn both(&self, figures: [&str; 2], calls: Calls, name: &str, over: &str, how: Over) -> Finding {
        together(PLATFORMS.into_iter().zip(figures).map(|(machine, figure)| {
            let found = how.of(&self.table.ratios(machine, calls, name, over));
            let series = format!("{name} over {over}, {}", how.name());
            beside(machine, said(figure, &series), found)
        }))
    }

    /// Whether it holds for every number of threads on both platforms.
    fn always(&self, calls: Calls, name: &str, over: &str, holds: impl Fn(f64) -> bool) -> Finding {
        together(PLATFORMS.map(|machine| {
            let all = self.table.ratios(machine, calls, name, over);
            let [least, most] = [Over::Least, Over::Most].map(|how| how.of(&all).0);
            (
                Verdict::of(all.iter().all(|(_, ratio)| holds(*ratio))),
                format!("{} {name} over {over} {least:.2} to {most:.2}", machine.name()),
            )
        }))
    }

    fn checkpointing(&mut self) {
        let figures = ["fig10", "fig11"];
        let slower = ["native", "nvram", "cow", "hybrid", "simpo"];
        let finding =
            together(slower.map(|name| self.always(Calls::AllInc, "ssd", name, |ratio| ratio < 1.0)));
        self.claims.say(
            "4.1.1",
            "ssd has the worst performance (at every number of threads)",
            finding,
        );
        for (name, over, how, sentence) in [
            (
                "nvram",
                "ssd",
                Over::Most,
                "nvram performs up to 4.4 and 2.6 times better than ssd",
            ),
            (
                "hybrid",
                "nvram",
                Over::Most,
                "hybrid is up to 2.2 and 2.1 times faster than nvram",
            ),
            (
                "hybrid",
                "native",
                Over::Mean,
                "hybrid shows about 9% overhead over native on both platforms (the mean)",
            ),
            (
                "hybrid",
                "cow",
                Over::Most,
                "Compared with cow, hybrid shows up to 51% and 54% throughput increase",
            ),
            (
                "simpo",
                "native",
                Over::Most,
                "simpo shows 2.5 times and 84% more throughput than native (the most)",
            ),
        ] {
            let finding = self.both(figures, Calls::AllInc, name, over, how);
            self.claims.say("4.1.1", sentence, finding);
        }
        for (name, over, sentence) in [
            (
                "hybrid",
                "cow",
                "hybrid runs with up to 29% fewer cache misses than cow",
            ),
            (
                "simpo",
                "native",
                "SIMPO runs with up to 56% fewer cache misses than native",
            ),
        ] {
            let all = PLATFORMS.map(|machine| Over::Most.of(&self.table.saved(machine, name, over)).0);
            let most = all.into_iter().fold(f64::NEG_INFINITY, f64::max);
            let paper = said("misses", &format!("saved by {name} over {over}, most"));
            self.claims.say("4.1.1", sentence, number(paper, most, ""));
        }
    }

    fn execution(&mut self) {
        let figures = ["fig12", "fig13"];
        for (name, sentence) in [
            ("fc", "fc shows up to 47% and 42% more throughput than native"),
            (
                "m-server",
                "m-server shows up to 2.17 times and 76% more throughput than native",
            ),
        ] {
            let finding = self.both(figures, Calls::RowInc, name, "native", Over::Most);
            self.claims.say("4.1.1", sentence, finding);
        }
        let finding = together(PLATFORMS.map(|machine| {
            let all = self.table.ratios(machine, Calls::RowInc, "m-server", "fc");
            let (mean, _) = Over::Mean.of(&all);
            (Verdict::of(mean > 1.0), format!("{} {mean:.2}", machine.name()))
        }));
        self.claims.say(
            "4.1.1",
            "m-server is more efficient than fc (in the mean over threads)",
            finding,
        );
    }

    fn programming(&mut self) {
        let finding = self.always(Calls::AllInc, "simpo", "m-server", |ratio| {
            (ratio - 1.0).abs() < 0.05
        });
        self.claims.say(
            "4.1.1",
            "simpo-no and simpo-group show similar performance (within 5%)",
            finding,
        );
        let finding = self.both(
            ["fig14", "fig15"],
            Calls::AllInc,
            "simpo-all",
            "simpo",
            Over::Least,
        );
        self.claims.say(
            "4.1.1",
            "The flush of each entry causes 20% overhead on both platforms",
            finding,
        );
        let finding = self.always(Calls::AllInc, "simpo-all", "simpo", |ratio| ratio < 1.02);
        self.claims.say(
            "4.1.1",
            "simpo-group lies between simpo-no and simpo-all (nowhere 2% below simpo-all)",
            finding,
        );
    }

    fn recovery(&mut self) {
        let threads = self.table.machines[0].study.threads.clone();
        let shares = |which: usize| -> Vec<(usize, f64)> {
            let share =
                |threads: &usize| self.table.recovery_s(*threads)[which] / self.table.native_s(*threads);
            threads.iter().map(|threads| (*threads, share(threads))).collect()
        };
        let range = |all: &[(usize, f64)], [least, most]: [f64; 2]| -> Finding {
            let [low, high] = [Over::Least, Over::Most].map(|how| how.of(all).0);
            let holds = low >= least * 0.85 && high <= most * 1.15;
            let ours = format!("{:.2}% to {:.2}%", low * 100.0, high * 100.0);
            (Verdict::of(holds), ours)
        };
        let (object, application) = (range(&shares(0), OBJECT), range(&shares(1), APPLICATION));
        let as_good = shares(0).iter().all(|(_, share)| *share <= OBJECT[1]);
        let [seconds, one] = self.table.recovery_s(1);
        self.claims.say(
            "4.1.2",
            "Recovery of persistent objects takes 0.8% to 3% of the native run",
            object,
        );
        self.claims.say(
            "4.1.2",
            "It takes less than 40 ms and no more than 3% of the native run",
            (
                Verdict::of(seconds < 0.04 && as_good),
                format!("{:.2} ms", seconds * 1e3),
            ),
        );
        self.claims.say(
            "4.1.2",
            "SIMPO takes 4% to 10% to recover the program",
            application,
        );
        let million = one * 1e3 * 1e6 / self.table.machines[0].study.recovered as f64;
        let finding = number(said("fig16", "a million resilient entries"), million, " ms");
        self.claims.say(
            "4.5",
            "SIMPO spends 7.5 ms on checking every million resilient entries",
            finding,
        );
    }

    fn large(&mut self) {
        // Threads each are as fast as one alone.
        let finding = together([Keeping::Native, Keeping::NvramAll].map(|keeping| {
            let speeds = self.table.pool_speeds(keeping);
            let (first, one) = speeds[0];
            let each = |(threads, speed): &(usize, f64)| speed / *threads as f64 / (one / first as f64);
            let all: Vec<(usize, f64)> = speeds.iter().map(|of| (of.0, each(of))).collect();
            let (least, at) = Over::Least.of(&all);
            let at = at.unwrap_or(first);
            let numbers = format!("{} {least:.2} at {at} threads", keeping.name());
            (Verdict::of(least >= 0.85), numbers)
        }));
        self.claims.say(
            "4.1.3",
            "native and nvramall show a throughput that grows with the core count (a thread has 85% of one alone)",
            finding,
        );
        for (over, sentence) in [
            (
                Keeping::Native,
                "nvramall shows 41% to 73% more throughput than native",
            ),
            (
                Keeping::NvramDisk,
                "When the data is larger than NVRAM it runs 4 to 20 times slower",
            ),
        ] {
            let all = self.table.pools(Keeping::NvramAll, over);
            let finding = together([Over::Least, Over::Most].map(|how| {
                let series = format!("nvramall over {}, {}", over.name(), how.name());
                number(said("fig17", &series), how.of(&all).0, "")
            }));
            self.claims.say("4.1.3", sentence, finding);
        }
    }

    /// The time of simpo over native's on both platforms: whether it is as it is to be for each of these programs.
    fn overheads(&self, programs: &[Both], holds: impl Fn(f64) -> bool) -> Finding {
        let each = |machine: Machine| {
            let table = &self.table;
            let of = move |both: &Both| (both.name(), table.over_native(machine, *both, "simpo"));
            programs.iter().map(of)
        };
        together(PLATFORMS.map(|machine| {
            let numbers: Vec<String> = each(machine)
                .map(|(name, ratio)| format!("{name} {ratio:.2}"))
                .collect();
            let verdict = Verdict::of(each(machine).all(|(_, ratio)| holds(ratio)));
            (verdict, format!("{} {}", machine.name(), numbers.join(", ")))
        }))
    }

    fn structures(&mut self) {
        let finding = self.overheads(
            &[Structure::Queue, Structure::Stack].map(Both::Structure),
            |ratio| ratio > 1.0,
        );
        self.claims.say(
            "4.2",
            "SIMPO has some overhead for short instant functions (Queue, Stack)",
            finding,
        );
        let finding = self.overheads(
            &[Structure::Tree, Structure::Graph].map(Both::Structure),
            |ratio| ratio < LITTLE,
        );
        self.claims.say(
            "4.2",
            "SIMPO has negligible overhead for Tree and Graph (below 5%)",
            finding,
        );
        let finding = together(PLATFORMS.map(|machine| {
            let of = |structure| {
                self.table
                    .over_native(machine, Both::Structure(structure), "simpo")
            };
            let short = of(Structure::Queue).min(of(Structure::Stack));
            let long = of(Structure::Tree);
            let numbers = format!("{} {long:.2} beside {short:.2}", machine.name());
            (Verdict::of(long < short), numbers)
        }));
        self.claims.say(
            "4.2",
            "The overhead depends on the length of functions (Tree's is below that of Queue and Stack)",
            finding,
        );
    }

    fn programs(&mut self) {
        let finding = self.overheads(&Application::ALL.map(Both::Application), |ratio| ratio < LITTLE);
        self.claims.say(
            "4.3",
            "RBM, Linpack, Pbzip2 and Floyd-Warshall have little overhead (below 5%)",
            finding,
        );
        let all = Application::ALL.map(|program| (program, self.table.recovered(program).all()));
        let numbers = all.map(|(program, share)| format!("{} {:.2}%", program.name(), share * 100.0));
        let verdict = Verdict::of(all.iter().all(|(_, share)| *share < RECOVERY));
        self.claims.say(
            "4.3",
            "Their recovery takes less than 3% of the run",
            (verdict, numbers.join(", ")),
        );
    }

    fn stock(&mut self) {
        let compared = |access, how: Over| {
            together(STOCK.map(|(figure, machine)| {
                let found = how.of(&self.table.stock_ratios(machine, access));
                beside(machine, said(figure, &series(access, how)), found)
            }))
        };
        let get = compared(Access::Get, Over::Mean);
        let put = together([Over::Mean, Over::Most].map(|how| compared(Access::Put, how)));
        let share = self.table.recovered_stock().1.all();
        let recovery = (
            Verdict::of(share < STOCK_RECOVERY),
            format!("{:.2}%", share * 100.0),
        );
        for (sentence, finding) in [
            ("For get, SIMPO is 2% and 5% below native", get),
            (
                "For put, SIMPO shows 33% (up to 88%) and 73% (up to 103%) more throughput than native",
                put,
            ),
            (
                "Recovery of Berkeley DB takes less than 0.2% of the run",
                recovery,
            ),
        ] {
            self.claims.say("4.4", sentence, finding);
        }
    }

    fn not_simulated(&mut self) {
        for (place, sentence) in [
            (
                "4.1.2",
                "Rerunning without persistence takes as long as the native run: there is nothing to compare it with",
            ),
            ("4.4", "For get, BDB-FT is 21% and 29% slower than native"),
        ] {
            let finding = (Verdict::CannotBeSaid, "not simulated".into());
            self.claims.say(place, sentence, finding);
        }
    }
}
