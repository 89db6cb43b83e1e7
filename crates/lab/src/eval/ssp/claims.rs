//! Which sentences of the paper's evaluation hold here.
//!
//! * A number of the text holds if ours is within 15% of it, as in the tables, and on the same side of equal.
//! * A comparison is decided where it is further from equal than its interval; without one as it stands. Of a sentence of
//!   several comparisons all must hold; one that fails decides it, and one that is not decided leaves it open.
//! * Where a sentence has no number for "little" or "most", the number it is taken for is in the sentence.

use super::artifact::{BETWEEN, THREADS, writes};
use super::cost;
use super::measure::{Known, Measure, consolidation, is_less, share};
use super::paper::said;
use super::rows::{Comparison, OTHERS, average, comparison, groups, saved};
use super::runs::{Key, LOADS, Load, Other, REAL, Run, Runs};
use crate::eval::claims::{Claims, Finding, arithmetic, number};
use crate::eval::{Claim, Verdict};
use crate::sections::{Config, Name};

struct Court<'a> {
    config: &'a Config,
    runs: &'a Runs,
    claims: Claims,
}

/// All of them.
pub(super) fn all(config: &Config, runs: &Runs) -> Vec<Claim> {
    let mut court = Court {
        config,
        runs,
        claims: Claims::default(),
    };
    court.microbenchmarks();
    court.latency();
    court.cache();
    court.real();
    court.cost();
    court.claims.0
}

impl Court<'_> {
    fn run(&self, load: Load, design: Name, threads: usize, other: Other) -> &Run {
        self.runs.get(&Key::new(load, design, threads, other))
    }

    /// A comparison of SSP with the others, averaged over a group of programs, beside the text's numbers.
    fn averages(&self, artifact: &str, measure: Measure, threads: usize, group: usize) -> Finding {
        let (name, loads) = groups().into_iter().nth(group).expect("one of the groups");
        let both = OTHERS.map(|other| {
            let (series, of) = comparison(measure, other);
            let run = |load, design| self.run(load, design, threads, Other::Nothing);
            let all: Vec<Known> = loads
                .iter()
                .map(|&load| of(run(load, Name::Ssp), run(load, other)))
                .collect();
            (said(artifact, &series, name), average(&all).0, series)
        });
        let (verdict, mut numbers) = together(both);
        // Nothing leaves a TLB that has all: consolidation costs nothing there.
        let stays = |load: &&Load| {
            self.run(**load, Name::Ssp, threads, Other::Nothing)
                .design
                .tlb_misses
                == 0
        };
        let inside: Vec<&str> = loads.iter().filter(stays).map(|load| load.0).collect();
        if inside.is_empty() {
            return (verdict, numbers);
        }
        numbers += &format!("; within the TLB: {}", inside.join(", "));
        (Verdict::CannotBeSaid, numbers)
    }

    /// SSP's throughput over another design's.
    fn speedup(&self, load: Load, other: Name, at: Other) -> Known {
        let [ssp, other] = [Name::Ssp, other].map(|design| self.run(load, design, 1, at));
        Measure::Throughput.ratio(ssp, other)
    }

    fn microbenchmarks(&mut self) {
        let finding = self.averages("fig5a", Measure::Throughput, 1, 0);
        self.claims.say(
            "5.2",
            "With one thread SSP outperforms UNDO-LOG and REDO-LOG by 1.9 and 1.3 on average",
            finding,
        );
        let finding = self.averages("fig6", Measure::LogWrites, 1, 0);
        self.claims.say(
            "5.2",
            "It decreases the writes of logging by 7.6 and 4.7 times",
            finding,
        );
        let [ssp, undo] =
            [Name::Ssp, Name::UndoLog].map(|design| self.run(LOADS[0], design, 1, Other::Nothing));
        let share = Measure::LogWrites.ratio(ssp, undo);
        let finding = (
            decided([is_less(share, bound(0.1))]),
            format!("{:.1}% of UNDO-LOG's", share.0 * 100.0),
        );
        self.claims.say(
            "5.2",
            "Under BTree-Rand it nearly eliminates the logging writes (below 10% of UNDO-LOG's)",
            finding,
        );
        let finding = number(
            Some(1.5),
            self.speedup(LOADS[0], Name::RedoLog, Other::Nothing).0,
            "",
        );
        self.claims.say(
            "5.2",
            "There this is a 1.5 times improvement of throughput (taken as over REDO-LOG)",
            finding,
        );
        let finding = self.averages("fig5b", Measure::Throughput, THREADS, 0);
        self.claims.say(
            "5.2",
            "With four threads SSP improves performance by 2.4 and 1.4 on average",
            finding,
        );
        let finding = self.scaling();
        self.claims.say(
            "5.2",
            "SSP scales well (four threads gain it 3 times on average at least)",
            finding,
        );
        for (group, sentence) in [
            "SSP saves 45% and 28% of the write traffic on average",
            "Under Zipf it saves 56% and 42%",
            "Under random workloads it saves 43% and 23%",
        ]
        .into_iter()
        .enumerate()
        {
            let finding = self.averages("fig7a", Measure::Writes, 1, group);
            self.claims.say("5.2", sentence, finding);
        }
        let finding = self.consolidation();
        self.claims.say(
            "5.2",
            "Writes of consolidation are fewer than of data under most workloads except for SPS",
            finding,
        );
        let shares = groups()[1]
            .1
            .iter()
            .map(|&load| {
                (
                    load.0,
                    consolidation(self.run(load, Name::Ssp, 1, Other::Nothing)),
                )
            })
            .collect::<Vec<_>>();
        let finding = (below(&shares, 0.1), listed(&shares));
        self.claims.say(
            "5.2",
            "Under workloads with locality they are negligible (below 10% of all)",
            finding,
        );
    }

    fn scaling(&self) -> Finding {
        let gains: Vec<Known> = LOADS
            .into_iter()
            .map(|load| {
                let [four, one] =
                    [THREADS, 1].map(|threads| self.run(load, Name::Ssp, threads, Other::Nothing));
                Measure::Throughput.ratio(four, one)
            })
            .collect();
        let mean = average(&gains);
        let is_less = is_less(mean, bound(3.0));
        (
            decided([is_less.map(|less| !less)]),
            format!("{:.2} times on average", mean.0),
        )
    }

    fn consolidation(&self) -> Finding {
        let over = |load: Load| {
            let run = self.run(load, Name::Ssp, 1, Other::Nothing);
            share(
                run,
                |counts| counts.consolidation_writes,
                |counts| counts.data_writes,
            )
        };
        let all = LOADS.map(|load| (load.0, over(load)));
        let is_fewer = |(_, ratio): &(&str, Known)| is_less(*ratio, bound(1.0));
        let (sps, rest): (Vec<_>, Vec<_>) = all.iter().partition(|(name, _)| *name == "sps");
        let count = |is| rest.iter().filter(|one| is_fewer(one) == Some(is)).count();
        let most = match (count(true) * 2 > rest.len(), count(false) * 2 >= rest.len()) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        };
        let not_sps = sps.iter().map(|one| is_fewer(one).map(|fewer| !fewer));
        let verdict = decided(not_sps.chain([most]));
        let numbers = all.map(|(name, (ratio, _))| format!("{name} {ratio:.2}"));
        (verdict, format!("over data: {}", numbers.join(", ")))
    }

    fn latency(&mut self) {
        let all = self.config.study.latencies.clone();
        let [least, most] = [all[0], all[all.len() - 1]].map(Other::Writes);
        let [rbtree, btree] = [LOADS[1], LOADS[0]];
        let slower = [rbtree, btree]
            .into_iter()
            .flat_map(|load| Name::ALL.map(|design| (load, design)));
        let kept = slower.map(|(load, design)| {
            let [most, least] = [most, least].map(|at| self.run(load, design, 1, at));
            Measure::Throughput.ratio(most, least)
        });
        let kept: Vec<Known> = kept.collect();
        let worst = kept.iter().fold(0.0, |worst: f64, (kept, _)| worst.max(*kept));
        let finding = (
            decided(kept.iter().map(|&kept| is_less(kept, bound(1.0)))),
            format!("the least degraded keeps {worst:.2}"),
        );
        self.claims.say(
            "5.3",
            "All designs degrade when the NVRAM latency increases",
            finding,
        );
        let pairs = [rbtree, btree]
            .into_iter()
            .flat_map(|load| OTHERS.map(|other| (load, other)));
        let gaps: Vec<(String, Known, Known)> = pairs
            .map(|(load, other)| {
                let [near, far] = [least, most].map(|at| self.speedup(load, other, at));
                (format!("{} over {}", load.0, other.name()), near, far)
            })
            .collect();
        let numbers: Vec<String> = gaps
            .iter()
            .map(|(name, near, far)| format!("{name} {:.2} to {:.2}", near.0, far.0))
            .collect();
        let verdict = decided(gaps.iter().map(|(_, near, far)| is_less(*near, *far)));
        self.claims.say(
            "5.3",
            "The gap between SSP and the others increases with it",
            (verdict, numbers.join(", ")),
        );
        for (at, said, sentence) in [
            (
                least,
                1.1,
                "The speedup over REDO-LOG under BTree is 1.1 at DRAM's latency",
            ),
            (most, 1.8, "It is 1.8 at the longest"),
        ] {
            let finding = number(Some(said), self.speedup(btree, Name::RedoLog, at).0, "");
            self.claims.say("5.3", sentence, finding);
        }
        let (ratio, width) = self.speedup(rbtree, Name::RedoLog, least);
        let verdict = decided([is_less((ratio, width), bound(1.0))]);
        self.claims.say(
            "5.3",
            "When NVRAM is as fast as DRAM, REDO-LOG outperforms SSP under RBTree",
            (verdict, format!("REDO-LOG over SSP {:.3}", 1.0 / ratio)),
        );
        let ahead = (1.0 / ratio - 1.0) * 100.0;
        self.claims
            .say("5.3", "It does so by 8%", number(Some(8.0), ahead, "%"));
        let times = all[0];
        let at = BETWEEN.map(|between| {
            (
                between,
                self.speedup(rbtree, Name::RedoLog, writes(between, times)),
            )
        });
        let verdict = decided([is_less(at[at.len() - 1].1, at[0].1)]);
        let numbers = at.map(|(between, (ratio, _))| {
            format!("{:.3} with {between} instructions between sections", 1.0 / ratio)
        });
        self.claims.say(
            "5.3",
            "The reason is that REDO-LOG hides the delay of persisting data (code between sections brings it nearer)",
            (verdict, format!("REDO-LOG over SSP {}", numbers.join(", "))),
        );
    }

    fn cache(&mut self) {
        let all = &self.config.study.cache_cycles;
        let [least, most] = [all[0], all[all.len() - 1]].map(Other::Cache);
        let loss = |load: Load| {
            let [most, least] = [most, least].map(|at| self.run(load, Name::Ssp, 1, at));
            let (kept, width) = Measure::Throughput.ratio(most, least);
            (load.0, (1.0 - kept, width))
        };
        let losses = LOADS.map(loss);
        let numbers = format!("lost: {}", listed(&losses));
        let rest = losses.iter().filter(|(name, _)| *name != "sps").copied();
        let finding = (below(&rest.collect::<Vec<_>>(), 0.15), numbers.clone());
        self.claims.say(
            "5.3",
            "For all workloads besides SPS the SSP cache's latency has limited impact (below 15%)",
            finding,
        );
        let of = |name: &str| {
            let one = losses.iter().find(|(other, _)| *other == name);
            one.map_or((f64::NAN, None), |(_, loss)| *loss)
        };
        let pairs = ["btree", "rbtree", "hash"].map(|structure| {
            let [zipf, rand] = ["zipf", "rand"].map(|ending| of(&format!("{structure}-{ending}")));
            is_less(zipf, rand)
        });
        self.claims.say(
            "5.3",
            "The zipfian workloads are less sensitive to it than the random ones",
            (decided(pairs), numbers.clone()),
        );
        let most = ["sps", "hash-rand"];
        let others = losses.iter().filter(|(name, _)| !most.contains(name));
        let pairs = others.flat_map(|(_, other)| most.map(|name| is_less(*other, of(name))));
        self.claims.say(
            "5.3",
            "It is critical for SPS and Hash-Rand (they lose most)",
            (decided(pairs), numbers),
        );
    }

    fn real(&mut self) {
        let [memcached, vacation] = REAL;
        for (load, sentence) in [
            (
                memcached,
                "For Memcached SSP is 75% faster than UNDO-LOG and 35% than REDO-LOG (74% in the text, 75% in Table 4)",
            ),
            (vacation, "For Vacation it is 27% and 13% faster"),
        ] {
            let finding = self.compared("table4", Measure::Throughput, load);
            self.claims.say("5.4", sentence, finding);
        }
        let saved = OTHERS.map(|other| {
            let (series, of) = saved(Measure::LogWrites, other);
            let mean = average(&REAL.map(|load| self.of_real(&of, load, other))).0;
            (said("real", &series, "average"), mean, series)
        });
        self.claims.say(
            "5.4",
            "It saves 86% and 82% of the logging writes under the real workloads",
            together(saved),
        );
        let finding = self.volatile(vacation);
        self.claims.say(
            "5.4",
            "The volatile execution is most of the overhead of Vacation (more than half of its time without sections)",
            finding,
        );
        for (load, sentence) in [
            (
                memcached,
                "It saves 49% and 46% of the NVRAM writes under Memcached",
            ),
            (vacation, "It saves 38% and 17% under Vacation"),
        ] {
            let finding = self.compared("table5", Measure::Writes, load);
            self.claims.say("5.4", sentence, finding);
        }
        let shares = REAL.map(|load| {
            let share = consolidation(self.run(load, Name::Ssp, THREADS, Other::Nothing)).0;
            (said("real", "consolidation", load.0), share, load.0.to_owned())
        });
        self.claims.say(
            "5.4",
            "Consolidation is 15% and 31% of the write traffic",
            together(shares),
        );
    }

    fn of_real(&self, of: &Comparison, load: Load, other: Name) -> Known {
        let [ssp, other] = [Name::Ssp, other].map(|design| self.run(load, design, THREADS, Other::Nothing));
        of(ssp, other)
    }

    /// SSP against both others in a real workload, beside the text's numbers.
    fn compared(&self, artifact: &str, measure: Measure, load: Load) -> Finding {
        together(OTHERS.map(|other| {
            let (series, of) = comparison(measure, other);
            let ours = self.of_real(&of, load, other).0;
            (said(artifact, &series, load.0), ours, series)
        }))
    }

    /// What is left of a run's time where its code outside the data takes none.
    fn volatile(&self, load: Load) -> Finding {
        let [with, without] =
            [Other::Nothing, Other::Outside(0)].map(|at| self.run(load, Name::RedoLog, THREADS, at));
        let rest = Measure::Throughput.ratio(with, without);
        (
            decided([is_less(rest, bound(0.5))]),
            format!(
                "with REDO-LOG {:.0}% of the time is left without it",
                rest.0 * 100.0
            ),
        )
    }

    fn cost(&mut self) {
        let parts = cost::parts(&self.config.setting);
        let sentences = [
            "Expanding the 64-entry TLB costs 832 bytes",
            "A 1024-entry second TLB adds 13 kilobytes",
            "A 64-entry write-set buffer is 800 bytes",
            "The overall hardware cost is 14.6 kilobytes",
        ];
        for ((series, place, bytes), sentence) in parts.into_iter().zip(sentences) {
            let finding = arithmetic(said("cost", series, place), bytes, " bytes");
            self.claims.say("4.3", sentence, finding);
        }
    }
}

/// Numbers beside the text's, each with its name: all must hold.
fn together<const N: usize>(all: [(Option<f64>, f64, String); N]) -> Finding {
    let all = all.map(|(said, ours, name)| {
        let (verdict, numbers) = number(said, ours, "");
        (verdict == Verdict::Holds, format!("{name} {numbers}"))
    });
    let holds = all.iter().all(|(holds, _)| *holds);
    (Verdict::of(holds), all.map(|(_, numbers)| numbers).join(", "))
}

/// A number that is not measured.
fn bound(number: f64) -> Known {
    (number, None)
}

/// What comes of a sentence that says all of these; nothing is said of one that is not decided.
fn decided(all: impl IntoIterator<Item = Option<bool>>) -> Verdict {
    let mut verdict = Verdict::Holds;
    for one in all {
        match one {
            Some(false) => return Verdict::DoesNotHold,
            None => verdict = Verdict::CannotBeSaid,
            Some(true) => {}
        }
    }
    verdict
}

/// Whether all are below a bound. Where all are 0 the runs were too short to show any.
fn below(all: &[(&str, Known)], most: f64) -> Verdict {
    if all.iter().all(|(_, (share, _))| *share == 0.0) {
        return Verdict::CannotBeSaid;
    }
    decided(all.iter().map(|(_, share)| is_less(*share, bound(most))))
}

fn listed(all: &[(&str, Known)]) -> String {
    let each = |(name, (share, _)): &(&str, Known)| format!("{name} {:.1}%", share * 100.0);
    all.iter().map(each).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a gap was, and what it is, with the intervals of both: 0.001 is no difference between numbers known to 0.015.
    #[test]
    fn what_is_within_the_intervals_is_not_decided() {
        let gap = |near, far, width| is_less((near, Some(width)), (far, Some(width)));
        assert_eq!(gap(2.63, 2.629, 0.015), None);
        assert_eq!(gap(2.63, 2.60, 0.015), Some(false));
        assert_eq!(gap(2.60, 2.63, 0.015), Some(true));
        assert_eq!(is_less((0.09, Some(0.02)), bound(0.1)), None);
        assert_eq!(is_less((0.09, None), bound(0.1)), Some(true));
        let [yes, no, open] = [Some(true), Some(false), None];
        assert_eq!(decided([yes, yes]), Verdict::Holds);
        assert_eq!(decided([yes, open]), Verdict::CannotBeSaid);
        assert_eq!(decided([open, no, yes]), Verdict::DoesNotHold);
    }
}
