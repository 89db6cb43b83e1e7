//! The sentences of DPC's evaluation.

use super::{Court, Extent, Finding, Known, Verdict, Votes, number};
use crate::eval::evidence::is_far;
use crate::eval::paper::{self, Paper};
use crate::eval::plan::{FIGURE_10, INSTRUCTIONS, SOFTWARE, Variant};
use crate::eval::precision::Measure;
use crate::eval::software::{by_transaction, until_durable};
use twinpage_baselines::SchemeKind::{
    self, CopyOnWrite, DualPage, DudeTm, InPlace, Nvml, PageOverlay, ThyNvm, UndoLog,
};

/// DPC's workloads by the names its text has, and what they are called here.
const LOGGING_WINS: [&str; 7] = ["SPEC1", "pagerank", "community", "tatp", "tpcc", "echo", "nstore"];
const COW_WINS: [&str; 2] = ["SPEC2", "components"];
const OVERLAYS: [&str; 3] = ["SPEC2", "pagerank", "community"];
const SPARSE: [&str; 4] = ["tatp", "tpcc", "echo", "nstore"];
const PROTECTED: [SchemeKind; 4] = [UndoLog, CopyOnWrite, ThyNvm, PageOverlay];

impl Court<'_> {
    pub(super) fn dpc(&mut self) {
        let all = self.among(None);
        let clean = self.clean(Variant::Plain, &all);
        let mean = clean.iter().sum::<f64>() / clean.len() as f64;
        let average = self.of_all(clean.len(), number(Some(61.1), mean, "%"));
        self.claims
            .say("2.2", "On average 61.1% of a dirty page is clean", average);
        let above = clean.iter().filter(|&&share| share > 70.0).count();
        let five = (Verdict::of(above == 5), format!("{above} of {}", clean.len()));
        let five = self.of_all(clean.len(), five);
        self.claims
            .say("2.2", "5 of the 11 workloads have more than 70% clean", five);
        let failures = self.of_all(all.len(), self.failures(&all));
        self.claims.say(
            "4.4.3",
            "1.17 pre-allocations fail in an epoch, 0.01% of all",
            failures,
        );
        let averages = |paper: fn(Paper, SchemeKind) -> Option<f64>| -> Vec<(SchemeKind, f64)> {
            let said = |scheme| Some((scheme, paper(Paper::Dpc, scheme)?));
            PROTECTED.into_iter().filter_map(said).collect()
        };
        let time = self.averages(&averages(paper::slowdown), Measure::Time);
        self.claims.say(
            "5.2",
            "Logging, CoW, ThyNVM and PageOverlay are 1.41, 1.47, 1.18 and 1.37 times slower on average",
            time,
        );
        let overhead: Vec<f64> = all
            .iter()
            .filter_map(|&workload| Some(self.ratio(workload, DualPage, InPlace, Measure::Time)?.0))
            .collect();
        let mean = overhead.iter().sum::<f64>() / overhead.len() as f64;
        let finding = self.of_all(overhead.len(), number(Some(1.14), mean, ""));
        self.claims.say(
            "5.2",
            "Dual-page checkpointing takes 14% more than the baseline",
            finding,
        );
        let writes = self.averages(&averages(paper::writes), Measure::Writes);
        self.claims.say(
            "5.2",
            "They write 1.80, 2.68, 1.40 and 1.62 times as much to NVM on average",
            writes,
        );
        self.logging_and_copies();
        self.thynvm_and_overlays();
        self.dual_page_best(&all);
        self.software();
        self.dpc_sweeps();
        let interval = self.of_all(all.len(), self.interval(&all));
        self.claims.say(
            "5.6",
            "The average checkpointing delay is 12.4% to 15.9% of the interval",
            interval,
        );
    }

    fn software(&mut self) {
        let both = self.among(Some(&FIGURE_10));
        let times = self.times_of_software(&both);
        let latencies = self.latency_of_dudetm(&both);
        let synchronous = self.latency_of_nvml(&both);
        let [more, most] = self.writes_of_software(&both);
        for (sentence, finding) in [
            (
                "Dual-page checkpointing is 13.6 and 24.9 times faster than DudeTM and NVML",
                times,
            ),
            (
                "The latency on DudeTM is basically that on dual-page checkpointing (until durable, within 15%)",
                latencies,
            ),
            ("The latency on NVML is 96 to 323 us", synchronous),
            (
                "Dual-page checkpointing writes more to NVM than DudeTM (by transaction, its log and what it brings home)",
                more,
            ),
            ("NVML writes most (by transaction)", most),
        ] {
            self.claims.say("5.3", sentence, finding);
        }
    }

    /// The ratio of a software scheme to the dual page for each workload, at a given cost in instructions per access.
    fn over_dual_page(
        &self,
        workloads: &[usize],
        scheme: SchemeKind,
        instructions: u32,
        measure: Measure,
    ) -> Vec<(usize, Known)> {
        let ratio = |&workload: &usize| {
            let run = self
                .runs
                .find(workload, scheme, Variant::Software(instructions))?;
            let dual = self.plain(workload, DualPage)?;
            Some((workload, self.note(workload, by_transaction(run, dual, measure))))
        };
        workloads.iter().filter_map(ratio).collect()
    }

    /// Software takes as long as its code has instructions, which the text does not say: what lies inside the range of them
    /// cannot be said.
    fn times_of_software(&self, workloads: &[usize]) -> Finding {
        let mut verdict = Verdict::CannotBeSaid;
        let mut told = Vec::new();
        for (scheme, name) in SOFTWARE {
            let average = |instructions| {
                let all = self.over_dual_page(workloads, scheme, instructions, Measure::Time);
                all.iter().map(|(_, (ratio, _))| ratio).sum::<f64>() / all.len() as f64
            };
            let all = INSTRUCTIONS.map(average);
            let said = paper::software(scheme).unwrap_or(f64::NAN);
            let [least, most] = [f64::INFINITY, f64::NEG_INFINITY];
            let (least, most) = all.iter().fold((least, most), |(least, most), &one| {
                (least.min(one), most.max(one))
            });
            if least.is_finite() && !(least * 0.85..=most * 1.15).contains(&said) {
                verdict = Verdict::DoesNotHold;
            }
            let all = all.map(|ratio| format!("{ratio:.2}")).join(", ");
            told.push(format!("{name} {all} for {said}"));
        }
        let choices = INSTRUCTIONS.map(|number| number.to_string()).join(", ");
        let told = told.join("; ");
        (
            verdict,
            format!("{told} (with {choices} instructions for each access)"),
        )
    }

    /// How long software takes until a transaction is durable, of each workload.
    fn latency(&self, workloads: &[usize], scheme: SchemeKind, instructions: u32) -> Vec<(usize, f64)> {
        let took = |&workload: &usize| {
            let run = self
                .runs
                .find(workload, scheme, Variant::Software(instructions))?;
            Some((workload, until_durable(run)))
        };
        workloads.iter().filter_map(took).collect()
    }

    fn latency_of_nvml(&self, workloads: &[usize]) -> Finding {
        let [least, most] = paper::NVML_LATENCY;
        let mut times: Vec<f64> = INSTRUCTIONS
            .into_iter()
            .flat_map(|instructions| self.latency(workloads, Nvml, instructions))
            .map(|(_, time)| time)
            .collect();
        times.sort_by(f64::total_cmp);
        let (Some(&first), Some(&last)) = (times.first(), times.last()) else {
            return (Verdict::CannotBeSaid, "not run".into());
        };
        let verdict = match last < least * 0.85 || first > most * 1.15 {
            true => Verdict::DoesNotHold,
            false => Verdict::CannotBeSaid,
        };
        (verdict, format!("{first:.0} to {last:.0} us, by instructions"))
    }

    fn latency_of_dudetm(&self, workloads: &[usize]) -> Finding {
        let all = self.latency(workloads, DudeTm, INSTRUCTIONS[0]);
        let alike = all.into_iter().map(|(workload, took)| {
            let dual = self.plain(workload, DualPage).map_or(f64::NAN, until_durable);
            let is = !is_far(Some(dual), took);
            (workload, Some(is), format!("{took:.0} for {dual:.0} us"))
        });
        self.count(&alike.collect(), FIGURE_10.len(), Extent::All)
    }

    /// Whether the dual page writes more than DudeTM, and NVML most.
    fn writes_of_software(&self, workloads: &[usize]) -> [Finding; 2] {
        let below = |one: Vec<(usize, Known)>, other: Vec<(usize, Known)>| -> Votes {
            let vote = |((workload, one), (_, other)): ((usize, Known), (usize, Known))| {
                let width = one.1.unwrap_or(0.0).hypot(other.1.unwrap_or(0.0));
                let decided = (one.0 - other.0).abs() > width;
                (
                    workload,
                    decided.then_some(one.0 < other.0),
                    format!("{:.2} and {:.2}", one.0, other.0),
                )
            };
            one.into_iter().zip(other).map(vote).collect()
        };
        let writes = |scheme| self.over_dual_page(workloads, scheme, INSTRUCTIONS[0], Measure::Writes);
        let dual: Vec<(usize, Known)> = workloads
            .iter()
            .map(|&workload| (workload, (1.0, None)))
            .collect();
        let most = self.each(vec![
            below(dual.clone(), writes(Nvml)),
            below(writes(DudeTm), writes(Nvml)),
        ]);
        let more = below(writes(DudeTm), dual);
        [more, most].map(|votes| self.count(&votes, FIGURE_10.len(), Extent::All))
    }

    fn logging_and_copies(&mut self) {
        let (logging, copies) = ((UndoLog, CopyOnWrite), (CopyOnWrite, UndoLog));
        let mut both = |names: &[&str], pair, sentences: [&'static str; 4]| {
            let workloads = self.among(Some(names));
            let asked = names.len();
            let time = self.below(&workloads, pair, Measure::Time, 1.0);
            let writes = self.below(&workloads, pair, Measure::Writes, 1.0);
            let count = self.fewer(&workloads, pair, |run| run.outcome.checkpoints as f64);
            let share = self.fewer(&workloads, pair, |run| run.outcome.checkpoint_share);
            for (sentence, votes) in sentences.into_iter().zip([time, writes, count, share]) {
                let finding = self.count(&votes, asked, Extent::All);
                self.claims.say("5.2", sentence, finding);
            }
        };
        both(
            &LOGGING_WINS,
            logging,
            [
                "Logging is faster than CoW in SPEC1, PR, CD, TATP, TPCC, Echo and N-Store",
                "because it writes less there",
                "Its checkpointing count is less there",
                "and its checkpointing time ratio is lower",
            ],
        );
        both(
            &COW_WINS,
            copies,
            [
                "CoW is faster than Logging in SPEC2 and CC",
                "because it writes less there",
                "Its checkpointing count is less there",
                "and its checkpointing time ratio is lower",
            ],
        );
        let calm = self.among(Some(&["ann", "flann"]));
        let similar = self.each(
            PROTECTED
                .map(|scheme| {
                    let pair = (scheme, DualPage);
                    let low = self.below(&calm, pair, Measure::Time, 1.1);
                    let high = self.below(&calm, pair, Measure::Time, 0.9);
                    let between = |(low, high): (_, (usize, Option<bool>, String))| {
                        let (workload, low, told): (usize, Option<bool>, String) = low;
                        let is = low.zip(high.1).map(|(low, high)| low && !high);
                        (workload, is, told)
                    };
                    low.into_iter().zip(high).map(between).collect()
                })
                .into(),
        );
        let finding = self.count(&similar, 2, Extent::All);
        self.claims.say(
            "5.2",
            "In Ann and Flann all systems perform alike (within 10%)",
            finding,
        );
    }

    fn thynvm_and_overlays(&mut self) {
        let all = self.among(None);
        let faster =
            |one| [UndoLog, CopyOnWrite].map(|other| self.below(&all, (one, other), Measure::Time, 1.0));
        let votes = self.each([faster(ThyNvm), faster(PageOverlay)].concat());
        let finding = self.count(&votes, self.names.len(), Extent::Most);
        self.claims.say(
            "5.2",
            "Under most workloads ThyNVM and PageOverlay outperform Logging and CoW",
            finding,
        );
        let votes = self.below(&all, (DualPage, ThyNvm), Measure::Time, 1.0);
        let finding = self.count(&votes, self.names.len(), Extent::All);
        self.claims.say("5.2", "Dual-Page outperforms ThyNVM", finding);
        let votes = self.below(&all, (DualPage, ThyNvm), Measure::Writes, 1.0);
        let finding = self.count(&votes, self.names.len(), Extent::Most);
        self.claims.say(
            "5.2",
            "ThyNVM writes more than Dual-Page in most workloads",
            finding,
        );
        let sparse = self.among(Some(&SPARSE));
        let votes = self.below(&sparse, (DualPage, ThyNvm), Measure::Writes, 1.0);
        let finding = self.count(&votes, SPARSE.len(), Extent::All);
        self.claims.say(
            "5.2",
            "ThyNVM suffers from additional writes in TATP, TPCC, Echo and N-Store",
            finding,
        );
        let dense = self.among(Some(&OVERLAYS));
        let alike = |other| {
            let ratios = dense.iter().map(|&workload| {
                let ratio = self.ratio(workload, PageOverlay, other, Measure::Writes);
                let is = ratio.map(|(ratio, _)| !is_far(Some(1.0), ratio));
                (
                    workload,
                    is,
                    ratio.map_or(String::new(), |ratio| format!("{:.2}", ratio.0)),
                )
            });
            ratios.collect::<Votes>()
        };
        let votes = self.each(vec![alike(ThyNvm), alike(DualPage)]);
        let finding = self.count(&votes, OVERLAYS.len(), Extent::All);
        self.claims.say(
            "5.2",
            "In SPEC2, PR and CD PageOverlay writes about as much as ThyNVM and Dual-Page (within 15%)",
            finding,
        );
        let pair = (DualPage, PageOverlay);
        let counts = self.fewer(&dense, pair, |run| run.outcome.checkpoints as f64);
        let shares = self.fewer(&dense, pair, |run| run.outcome.checkpoint_share);
        let votes = self.each(vec![counts, shares]);
        let finding = self.count(&votes, OVERLAYS.len(), Extent::All);
        self.claims.say(
            "5.2",
            "Dual-Page has fewer checkpoints and a lower ratio than PageOverlay there",
            finding,
        );
    }

    fn dual_page_best(&mut self, all: &[usize]) {
        let time = PROTECTED.map(|other| self.below(all, (DualPage, other), Measure::Time, 1.0));
        let writes = PROTECTED.map(|other| self.below(all, (DualPage, other), Measure::Writes, 1.0));
        let stalling = [UndoLog, CopyOnWrite, PageOverlay];
        let counts =
            stalling.map(|other| self.fewer(all, (DualPage, other), |run| run.outcome.checkpoints as f64));
        let shares =
            stalling.map(|other| self.fewer(all, (DualPage, other), |run| run.outcome.checkpoint_share));
        for (sentence, votes) in [
            (
                "In all workloads dual-page checkpointing is the fastest",
                time.to_vec(),
            ),
            ("writes least to NVM", writes.to_vec()),
            ("has the least checkpointing count", counts.to_vec()),
            ("and the least checkpointing time ratio", shares.to_vec()),
        ] {
            let votes = self.each(votes);
            let finding = self.count(&votes, self.names.len(), Extent::All);
            self.claims.say("5.2", sentence, finding);
        }
    }
}
