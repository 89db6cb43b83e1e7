//! The sentences of Twins' evaluation.

use super::{Court, Extent, Verdict, Votes, number};
use crate::eval::Run;
use crate::eval::paper::{self, Paper};
use crate::eval::plan::Variant;
use crate::eval::precision::Measure;
use twinpage_baselines::SchemeKind::{self, CopyOnWrite, DualPage, UndoLog};

/// Programs of Twins' Figure 2.
const PROGRAMS: usize = 28;

/// What Twins is measured against.
const OTHERS: [SchemeKind; 2] = [UndoLog, CopyOnWrite];

/// What the paper says of each of them.
fn said(measure: fn(Paper, SchemeKind) -> Option<f64>) -> Vec<(SchemeKind, f64)> {
    let of = |scheme| Some((scheme, measure(Paper::Twins, scheme)?));
    OTHERS.into_iter().filter_map(of).collect()
}

impl Court<'_> {
    pub(super) fn twins(&mut self) {
        let all = self.among(None);
        self.unmodified();
        self.speedups(&all);
        self.twice_the_writes(&all);
        self.which_copies_win();
        self.worst_case();
        self.small_pools();
        self.few_evictions(&all);
    }

    /// How much of what copying by pages writes is as it was.
    fn unmodified(&mut self) {
        let singles: Vec<usize> = (0..self.loads.len())
            .filter(|&load| self.loads[load].is_single)
            .collect();
        let clean = self.clean(Variant::Alone, &singles);
        let mean = clean.iter().sum::<f64>() / clean.len() as f64;
        let count = |fits: fn(f64) -> bool| clean.iter().filter(|&&share| fits(share)).count();
        let [above, few] = [count(|share| share > 90.0), count(|share| share <= 10.0)];
        // Stand-ins for some of the paper's programs say nothing of how many of all it has.
        let of_all = |holds: bool, numbers: String| match clean.len() {
            0 => (
                Verdict::CannotBeSaid,
                "there are no traces of single programs".to_owned(),
            ),
            PROGRAMS => (Verdict::of(holds), numbers),
            some => (
                Verdict::CannotBeSaid,
                format!("{numbers} of {some} programs; the paper has {PROGRAMS}"),
            ),
        };
        let is_near = number(Some(51.3), mean, "").0 == Verdict::Holds;
        let average = of_all(is_near, format!("{mean:.1}% in the mean"));
        let above = of_all(above == 4, format!("{above}"));
        let few = of_all(few == 5, format!("{few}"));
        self.claims.say(
            "II",
            "51.3% of what page-grain copying writes is unmodified, on average over 28 applications",
            average,
        );
        self.claims
            .say("II", "Four applications have more than 90%", above);
        self.claims.say("II", "Only 5 have 10%", few);
    }

    fn speedups(&mut self, all: &[usize]) {
        let votes = OTHERS.map(|other| self.below(all, (DualPage, other), Measure::Time, 1.0));
        let votes = self.each(votes.into());
        let finding = self.count(&votes, self.names.len(), Extent::All);
        self.claims
            .say("V-B", "A speedup for all workloads is observed", finding);
        let finding = self.averages(&said(paper::slowdown), Measure::Time);
        self.claims.say(
            "V-B",
            "The average speedup is 1.29 over logging and 1.19 over copy-on-write",
            finding,
        );
        for (scheme, sentence) in [
            (UndoLog, "At most it is 1.4 over logging"),
            (CopyOnWrite, "At most it is 1.88 over copy-on-write"),
        ] {
            let said = paper::most(self.paper, scheme)[0].unwrap_or(f64::NAN);
            let finding = self.most(scheme, said, Measure::Time);
            self.claims.say("V-B", sentence, finding);
        }
    }

    fn twice_the_writes(&mut self, all: &[usize]) {
        let finding = self.averages(&said(paper::writes), Measure::Writes);
        self.claims.say(
            "V-B",
            "They write 1.89 and 4.11 times as much on average",
            finding,
        );
        let near_two = self.each(vec![
            self.below(all, (UndoLog, DualPage), Measure::Writes, 2.0 * 1.15),
            self.below(all, (DualPage, UndoLog), Measure::Writes, 1.0 / (2.0 * 0.85)),
        ]);
        let finding = self.count(&near_two, self.names.len(), Extent::All);
        self.claims.say(
            "V-B",
            "Writes incurred by logging are about 2x (within 15%)",
            finding,
        );
    }

    fn which_copies_win(&mut self) {
        for (names, pair, sentence) in [
            (
                &["WD1", "WD3", "WD4", "WD5", "WD6", "WD7"][..],
                (UndoLog, CopyOnWrite),
                "Logging performs better for WD1 and WD3 to WD7",
            ),
            (
                &["WD2", "WD8"][..],
                (CopyOnWrite, UndoLog),
                "Copy-on-write wins for WD2 and WD8",
            ),
        ] {
            let workloads = self.among(Some(names));
            let votes = self.below(&workloads, pair, Measure::Time, 1.0);
            let finding = self.count(&votes, names.len(), Extent::All);
            self.claims.say("V-B", sentence, finding);
        }
    }

    fn worst_case(&mut self) {
        let worst = self.among(Some(&["WD1"]));
        let votes = OTHERS.map(|other| self.below(&worst, (DualPage, other), Measure::Writes, 1.0));
        let votes = self.each(votes.into());
        let finding = self.count(&votes, 1, Extent::All);
        self.claims.say(
            "V-B",
            "Even in the worst case, WD1, PCM writes are clearly reduced",
            finding,
        );
    }

    fn small_pools(&mut self) {
        let pools = [100, 500].map(Variant::Pool);
        let turned = |run: &Run| run.pool.failures + run.pool.reclaimed > 0;
        let finding = self.bounded(pools, Measure::Time, 1.024, turned, "fig8a");
        self.claims.say(
            "V-C",
            "The smallest pool, 100 MB, slows the system by at most 2.4%",
            finding,
        );
        let finding = self.bounded(pools, Measure::Writes, 1.49, turned, "fig8b");
        self.claims.say(
            "V-C",
            "In the worst case it produces 1.49 times the writes",
            finding,
        );
    }

    fn few_evictions(&mut self, all: &[usize]) {
        let evicted = all.iter().filter_map(|&workload| {
            let writes = &self.plain(workload, DualPage)?.outcome.nvm_writes;
            let share = writes.eviction as f64 / writes.total.max(1) as f64;
            Some((workload, Some(share < 0.05), format!("{:.1}%", share * 100.0)))
        });
        let votes: Votes = evicted.collect();
        let finding = self.count(&votes, self.names.len(), Extent::All);
        self.claims.say(
            "V-C",
            "The execution period incurs only negligible PCM writes (evictions, below 5%)",
            finding,
        );
    }
}
