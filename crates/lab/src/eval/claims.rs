//! Which sentences of a paper's evaluation hold here.
//!
//! * A comparison is made for each workload it speaks of. It is decided where it is further from equal than its
//!   interval; without an interval (a short run) as it stands.
//! * A sentence about all its workloads holds if it holds for each, does not if it fails for one, and cannot be
//!   said otherwise. "Most" are more than half.
//! * A number of the text holds if ours is within 15% of it, as in the tables.
//! * Of other artifacts those runs are done that a sentence is about.

use super::evidence::is_far;
use super::loads::Load;
use super::paper::{self, Paper};
use super::plan::{FIGURE_10, Runs, Variant};
use super::precision;
use super::rows::Measure;
use super::{Request, Run};
use crate::controller::lookup::{BACKUP_BITS, VECTOR_BITS};
use std::fmt::Write;
use twinpage_baselines::SchemeKind::{
    self, CopyOnWrite, DualPage, DudeTm, InPlace, Nvml, PageOverlay, ThyNvm, UndoLog,
};
use twinpage_core::dual_page::BITS_PER_PAGE;

/// What came of a sentence.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub enum Verdict {
    /// It holds here.
    #[serde(rename = "holds")]
    Holds,
    /// It does not.
    #[serde(rename = "does not hold")]
    DoesNotHold,
    /// What was run does not decide it.
    #[serde(rename = "cannot be said")]
    CannotBeSaid,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Verdict::Holds => "holds",
            Verdict::DoesNotHold => "does not hold",
            Verdict::CannotBeSaid => "cannot be said",
        })
    }
}

/// A sentence of the paper, and whether it holds.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Claim {
    /// Its section.
    pub place: &'static str,
    /// What it says.
    pub sentence: &'static str,
    /// Whether it holds here.
    pub verdict: Verdict,
    /// By which numbers.
    pub numbers: String,
}

/// The sentences of the paper that was asked for.
pub(super) fn all(request: &Request, runs: &Runs, loads: &[Load]) -> Vec<Claim> {
    let mut court = Court {
        runs,
        loads,
        paper: request.paper,
        claims: Vec::new(),
    };
    match request.paper {
        Paper::Dpc => court.dpc(),
        Paper::Twins => court.twins(),
    }
    court.claims
}

/// A verdict and its numbers.
pub(super) type Finding = (Verdict, String);

/// DPC's workloads by the names its text has, and what they are called here.
const LOGGING_WINS: [&str; 7] = ["SPEC1", "pagerank", "community", "tatp", "tpcc", "echo", "nstore"];
const COW_WINS: [&str; 2] = ["SPEC2", "components"];
const OVERLAYS: [&str; 3] = ["SPEC2", "pagerank", "community"];
const SPARSE: [&str; 4] = ["tatp", "tpcc", "echo", "nstore"];
const PROTECTED: [SchemeKind; 4] = [UndoLog, CopyOnWrite, ThyNvm, PageOverlay];

/// How many of the workloads a sentence must hold for.
#[derive(Clone, Copy)]
enum Extent {
    All,
    Most,
}

/// For each workload whether it holds; `None` where that cannot be said.
type Votes = Vec<(usize, Option<bool>, String)>;

struct Court<'a> {
    runs: &'a Runs,
    loads: &'a [Load],
    paper: Paper,
    claims: Vec<Claim>,
}

impl<'a> Court<'a> {
    fn say(&mut self, place: &'static str, sentence: &'static str, (verdict, numbers): Finding) {
        self.claims.push(Claim {
            place,
            sentence,
            verdict,
            numbers,
        });
    }

    fn plain(&self, workload: usize, scheme: SchemeKind) -> Option<&'a Run> {
        self.runs.find(workload, scheme, Variant::Plain)
    }

    /// The workloads that were run, of those named, or all.
    fn among(&self, names: Option<&[&str]>) -> Vec<usize> {
        (0..self.loads.len())
            .filter(|&load| names.is_none_or(|names| names.contains(&self.loads[load].name.as_str())))
            .filter(|&load| self.plain(load, DualPage).is_some())
            .collect()
    }

    /// Ratio of one scheme to another, and its interval.
    fn ratio(
        &self,
        workload: usize,
        one: SchemeKind,
        other: SchemeKind,
        measure: Measure,
    ) -> Option<(f64, f64)> {
        let [one, other] = [one, other].map(|scheme| self.plain(workload, scheme));
        let (one, other) = (&one?.outcome, &other?.outcome);
        let width = precision::half_width(one, other, measure).unwrap_or(0.0);
        Some((measure.of(one) / measure.of(other), width))
    }

    /// For each workload: whether the measure of `one` is below `factor` times the other's.
    fn below(
        &self,
        workloads: &[usize],
        (one, other): (SchemeKind, SchemeKind),
        measure: Measure,
        factor: f64,
    ) -> Votes {
        workloads
            .iter()
            .map(|&workload| {
                let Some((ratio, width)) = self.ratio(workload, one, other, measure) else {
                    return (workload, None, String::new());
                };
                if !ratio.is_finite() {
                    return (workload, None, "nothing to compare".into());
                }
                let decided = (ratio - factor).abs() > width;
                (workload, decided.then_some(ratio < factor), format!("{ratio:.2}"))
            })
            .collect()
    }

    /// The same for a number of each run, which is known as it is.
    fn fewer(
        &self,
        workloads: &[usize],
        (one, other): (SchemeKind, SchemeKind),
        of: fn(&Run) -> f64,
    ) -> Votes {
        workloads
            .iter()
            .map(|&workload| {
                let both = [one, other].map(|scheme| self.plain(workload, scheme).map(of));
                let [Some(one), Some(other)] = both else {
                    return (workload, None, String::new());
                };
                (workload, Some(one < other), format!("{one:.3} and {other:.3}"))
            })
            .collect()
    }

    /// Votes of several comparisons of the same workloads: all must hold.
    fn each(&self, all: Vec<Votes>) -> Votes {
        let mut all = all.into_iter();
        let mut sum = all.next().unwrap_or_default();
        for votes in all {
            for (mine, other) in sum.iter_mut().zip(votes) {
                mine.1 = match (mine.1, other.1) {
                    (Some(false), _) | (_, Some(false)) => Some(false),
                    (Some(true), Some(true)) => Some(true),
                    _ => None,
                };
                let _ = write!(mine.2, ", {}", other.2);
            }
        }
        sum
    }

    /// The verdict; the numbers are those of the workloads that do not agree, or of all where they are few.
    fn count(&self, votes: &Votes, asked: usize, extent: Extent) -> Finding {
        let yes = votes.iter().filter(|vote| vote.1 == Some(true)).count();
        let no = votes.iter().filter(|vote| vote.1 == Some(false)).count();
        let verdict = match extent {
            Extent::All if no > 0 => Verdict::DoesNotHold,
            Extent::All if yes == asked => Verdict::Holds,
            Extent::Most if 2 * yes > asked => Verdict::Holds,
            Extent::Most if 2 * no >= asked && asked > 0 => Verdict::DoesNotHold,
            _ => Verdict::CannotBeSaid,
        };
        let mut numbers = format!("{yes} of {asked}");
        if votes.len() < asked {
            let _ = write!(numbers, " ({} not run)", asked - votes.len());
        }
        let name = |vote: &(usize, Option<bool>, String)| {
            let open = if vote.1.is_none() { ", not decided" } else { "" };
            format!("{} {}{open}", self.loads[vote.0].name, vote.2)
        };
        let others: Vec<String> = votes
            .iter()
            .filter(|vote| vote.1 != Some(true))
            .map(name)
            .collect();
        if !others.is_empty() {
            let _ = write!(numbers, "; not: {}", others.join("; "));
        }
        (verdict, numbers)
    }

    /// Averages over all workloads beside the text's, each within 15%.
    fn averages(&self, said: &[(SchemeKind, f64)], measure: Measure) -> Finding {
        let workloads = self.among(None);
        let mut verdict = Verdict::Holds;
        let mut told = Vec::new();
        for &(scheme, said) in said {
            let ratios: Vec<f64> = workloads
                .iter()
                .filter_map(|&workload| self.ratio(workload, scheme, DualPage, measure))
                .map(|(ratio, _)| ratio)
                .filter(|ratio| ratio.is_finite())
                .collect();
            if ratios.is_empty() {
                return (Verdict::CannotBeSaid, "not run".into());
            }
            let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
            if is_far(Some(said), mean) {
                verdict = Verdict::DoesNotHold;
            }
            told.push(format!("{scheme} {mean:.2} for {said:.2}"));
        }
        (verdict, told.join(", "))
    }

    /// The most over all workloads, within 15% of the text's.
    fn most(&self, scheme: SchemeKind, said: f64, measure: Measure) -> Finding {
        let all = self.among(None).into_iter();
        let most = all
            .filter_map(|workload| Some((workload, self.ratio(workload, scheme, DualPage, measure)?.0)))
            .max_by(|one, other| one.1.total_cmp(&other.1));
        match most {
            Some((workload, most)) => number(Some(said), most, &format!(", {}", self.loads[workload].name)),
            None => (Verdict::CannotBeSaid, "not run".into()),
        }
    }

    /// The worst of runs of a variant over those of another, at most what the text says.
    fn worst(&self, variant: Variant, over: Variant, measure: Measure, said: f64, artifact: &str) -> Finding {
        let of = |workload| {
            let [one, other] = [variant, over].map(|variant| self.runs.find(workload, DualPage, variant));
            Some((workload, measure.of(&one?.outcome) / measure.of(&other?.outcome)))
        };
        let found = (0..self.loads.len()).filter_map(of);
        match found.max_by(|one, other| one.1.total_cmp(&other.1)) {
            None => (
                Verdict::CannotBeSaid,
                format!("no workload has the runs of {artifact}"),
            ),
            Some((workload, worst)) => {
                let holds = worst <= said * 1.005;
                let verdict = if holds {
                    Verdict::Holds
                } else {
                    Verdict::DoesNotHold
                };
                (
                    verdict,
                    format!("{worst:.3} at {}, {said} in the text", self.loads[workload].name),
                )
            }
        }
    }

    fn clean(&self, scheme_variant: Variant, workloads: &[usize]) -> Vec<f64> {
        let share = |&workload: &usize| {
            let run = self.runs.find(workload, CopyOnWrite, scheme_variant)?;
            run.outcome.clean_share.map(|share| share * 100.0)
        };
        workloads.iter().filter_map(share).collect()
    }

    fn dpc(&mut self) {
        let all = self.among(None);
        let clean = self.clean(Variant::Plain, &all);
        let mean = clean.iter().sum::<f64>() / clean.len() as f64;
        self.say(
            "2.2",
            "On average 61.1% of a dirty page is clean",
            number(Some(61.1), mean, "%"),
        );
        let above = clean.iter().filter(|&&share| share > 70.0).count();
        let five = (
            Verdict::of(above == 5 && clean.len() == 11),
            format!("{above} of {}", clean.len()),
        );
        self.say("2.2", "5 of the 11 workloads have more than 70% clean", five);
        let failures = self.failures(&all);
        self.say(
            "4.4.3",
            "1.17 pre-allocations fail in an epoch, 0.01% of all",
            failures,
        );
        let averages = |paper: fn(Paper, SchemeKind) -> Option<f64>| -> Vec<(SchemeKind, f64)> {
            let said = |scheme| Some((scheme, paper(Paper::Dpc, scheme)?));
            PROTECTED.into_iter().filter_map(said).collect()
        };
        let time = self.averages(&averages(paper::slowdown), Measure::Time);
        self.say(
            "5.2",
            "Logging, CoW, ThyNVM and PageOverlay are 1.41, 1.47, 1.18 and 1.37 times slower on average",
            time,
        );
        let overhead: Vec<f64> = all
            .iter()
            .filter_map(|&workload| Some(self.ratio(workload, DualPage, InPlace, Measure::Time)?.0))
            .collect();
        let overhead = overhead.iter().sum::<f64>() / overhead.len() as f64;
        self.say(
            "5.2",
            "Dual-page checkpointing takes 14% more than the baseline",
            number(Some(1.14), overhead, ""),
        );
        let writes = self.averages(&averages(paper::writes), Measure::Writes);
        self.say(
            "5.2",
            "They write 1.80, 2.68, 1.40 and 1.62 times as much to NVM on average",
            writes,
        );
        self.logging_and_copies();
        self.thynvm_and_overlays();
        self.dual_page_best(&all);
        self.software();
        self.dpc_sweeps();
        let interval = self.interval(&all);
        self.say(
            "5.6",
            "The average checkpointing delay is 12.4% to 15.9% of the interval",
            interval,
        );
    }

    /// DudeTM and NVML are run as schemes of the controller: what their logs write, in epochs as long as the dual page's.
    fn software(&mut self) {
        let both = self.among(Some(&FIGURE_10));
        let faster = |other| {
            let ratios = both
                .iter()
                .filter_map(|&workload| self.ratio(workload, other, DualPage, Measure::Time));
            let ratios: Vec<f64> = ratios.map(|(ratio, _)| ratio).collect();
            ratios.iter().sum::<f64>() / ratios.len().max(1) as f64
        };
        let numbers = format!(
            "their transactions are software, which takes no time here; with their logs alone the dual page is {:.2} and {:.2} \
             times faster",
            faster(DudeTm),
            faster(Nvml)
        );
        self.say(
            "5.3",
            "Dual-page checkpointing is 13.6 and 24.9 times faster than DudeTM and NVML",
            (Verdict::CannotBeSaid, numbers),
        );
        let votes = self.below(&both, (DudeTm, DualPage), Measure::Writes, 1.0);
        let finding = self.count(&votes, FIGURE_10.len(), Extent::All);
        self.say(
            "5.3",
            "It writes more to NVM than DudeTM (its log, brought home every 16 epochs)",
            finding,
        );
        let votes = self.each(vec![
            self.below(&both, (DualPage, Nvml), Measure::Writes, 1.0),
            self.below(&both, (DudeTm, Nvml), Measure::Writes, 1.0),
        ]);
        let finding = self.count(&votes, FIGURE_10.len(), Extent::All);
        self.say("5.3", "NVML writes most (its log, of epochs)", finding);
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
                self.say("5.2", sentence, finding);
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
        self.say(
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
        let finding = self.count(&votes, all.len(), Extent::Most);
        self.say(
            "5.2",
            "Under most workloads ThyNVM and PageOverlay outperform Logging and CoW",
            finding,
        );
        let votes = self.below(&all, (DualPage, ThyNvm), Measure::Time, 1.0);
        let finding = self.count(&votes, all.len(), Extent::All);
        self.say("5.2", "Dual-Page outperforms ThyNVM", finding);
        let votes = self.below(&all, (DualPage, ThyNvm), Measure::Writes, 1.0);
        let finding = self.count(&votes, all.len(), Extent::Most);
        self.say(
            "5.2",
            "ThyNVM writes more than Dual-Page in most workloads",
            finding,
        );
        let sparse = self.among(Some(&SPARSE));
        let votes = self.below(&sparse, (DualPage, ThyNvm), Measure::Writes, 1.0);
        let finding = self.count(&votes, SPARSE.len(), Extent::All);
        self.say(
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
        self.say(
            "5.2",
            "In SPEC2, PR and CD PageOverlay writes about as much as ThyNVM and Dual-Page (within 15%)",
            finding,
        );
        let pair = (DualPage, PageOverlay);
        let counts = self.fewer(&dense, pair, |run| run.outcome.checkpoints as f64);
        let shares = self.fewer(&dense, pair, |run| run.outcome.checkpoint_share);
        let votes = self.each(vec![counts, shares]);
        let finding = self.count(&votes, OVERLAYS.len(), Extent::All);
        self.say(
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
            let finding = self.count(&votes, all.len(), Extent::All);
            self.say("5.2", sentence, finding);
        }
    }

    fn dpc_sweeps(&mut self) {
        let pool = |size| Variant::Pool(size);
        let finding = self.worst(pool(100), pool(500), Measure::Time, 1.032, "fig11a");
        self.say(
            "5.4",
            "A pool of 100 MB costs at most 3.2% of performance",
            finding,
        );
        let finding = self.worst(pool(100), pool(500), Measure::Writes, 1.44, "fig11b");
        self.say("5.4", "and up to 1.44 times the writes", finding);
        let finding = self.worst(pool(300), pool(500), Measure::Writes, 1.20, "fig11b");
        self.say("5.4", "300 MB incurs up to 20% extra writes", finding);
        let kilobytes = |bits: u64| (76_800 * bits) as f64 / 8.0 / 1024.0;
        let sizes = [BACKUP_BITS, VECTOR_BITS, BITS_PER_PAGE].map(kilobytes);
        let said = [947.0, 1.17 * 1024.0, 347.0];
        let holds = sizes
            .iter()
            .zip(said)
            .all(|(ours, said)| (ours / said - 1.0).abs() < 0.01);
        let told = format!(
            "{:.0}, {:.0} and {:.0} KB for 76,800 pages",
            sizes[0], sizes[1], sizes[2]
        );
        self.say(
            "5.5.1",
            "The table takes 947 KB of NVM, 1.17 MB of DRAM and 347 KB of the controller",
            (Verdict::of(holds), told),
        );
        let place = |place| Variant::Place(place);
        let mut told = Vec::new();
        let mut verdict = Verdict::Holds;
        for name in ["tatp", "tpcc"] {
            let workload = self.loads.iter().position(|load| load.name == name);
            let ratio = workload.and_then(|workload| {
                let [one, other] = [6, 0].map(|which| self.runs.find(workload, DualPage, place(which)));
                Some(Measure::Time.of(&one?.outcome) / Measure::Time.of(&other?.outcome))
            });
            match ratio {
                None => verdict = Verdict::CannotBeSaid,
                Some(ratio) => {
                    let said = paper::all_in_dram(name).unwrap_or(1.0);
                    let holds = (ratio - 1.0) / (said - 1.0);
                    if verdict == Verdict::Holds && !(0.85..=1.15).contains(&holds) {
                        verdict = Verdict::DoesNotHold;
                    }
                    told.push(format!("{name} {ratio:.3} for {said}"));
                }
            }
        }
        if told.is_empty() {
            told.push("neither was run".into());
        }
        self.say(
            "5.5.2",
            "All metadata in DRAM makes TATP and TPCC 1.13 and 1.15 times slower",
            (verdict, told.join(", ")),
        );
        let finding = self.worst(place(1), place(0), Measure::Time, paper::OPTIMIZED, "fig12");
        self.say(
            "5.5.2",
            "The optimized case is within 3% of all metadata in the controller",
            finding,
        );
        let finding = self.worst(place(1), place(3), Measure::Time, 1.0, "fig12");
        self.say("5.5.2", "and better than 40K cached entries", finding);
        let finding = self.worst(
            Variant::Interval(50),
            Variant::Interval(10),
            Measure::Time,
            1.0,
            "fig13",
        );
        self.say(
            "5.6",
            "Performance rises with the interval (here the dual page's, 50 M cycles beside 10 M)",
            finding,
        );
        let finding = self.worst(
            Variant::Open(0),
            Variant::Plain,
            Measure::Time,
            1.02,
            "sensitivity",
        );
        self.say("5.1.1", "A look-up of 32 cycles costs around 2%", finding);
    }

    fn failures(&self, all: &[usize]) -> Finding {
        let runs: Vec<&Run> = all
            .iter()
            .filter_map(|&workload| self.plain(workload, DualPage))
            .collect();
        let sum = |of: fn(&Run) -> u64| runs.iter().map(|run| of(run)).sum::<u64>() as f64;
        let failures = sum(|run| run.outcome.controller.prepare_failures);
        let epochs = sum(|run| run.outcome.checkpoints);
        let prepared = sum(|run| run.outcome.controller.prepared);
        let each = failures / epochs.max(1.0);
        let (verdict, _) = number(Some(1.17), each, "");
        (
            verdict,
            format!("{each:.2} in an epoch, {failures:.0} of {prepared:.0}"),
        )
    }

    /// The average stop over the interval: between the workloads, and on average.
    fn interval(&self, all: &[usize]) -> Finding {
        let share = |&workload: &usize| {
            let run = self.plain(workload, DualPage)?;
            let outcome = &run.outcome;
            let stopped = outcome.checkpoint_share * outcome.time_ns as f64;
            let stop = stopped / outcome.checkpoints.max(1) as f64;
            Some(stop / (run.interval_fs as f64 * 1e-6) * 100.0)
        };
        let mut shares: Vec<f64> = all.iter().filter_map(share).collect();
        shares.sort_by(f64::total_cmp);
        let (Some(&least), Some(&most)) = (shares.first(), shares.last()) else {
            return (Verdict::CannotBeSaid, "not run".into());
        };
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        let holds = !is_far(Some(12.4), least) && !is_far(Some(15.9), most);
        (
            Verdict::of(holds),
            format!("{least:.1}% to {most:.1}%, {mean:.1}% on average"),
        )
    }

    fn twins(&mut self) {
        let singles: Vec<usize> = (0..self.loads.len())
            .filter(|&load| self.loads[load].is_single)
            .collect();
        let clean = self.clean(Variant::Alone, &singles);
        let mean = clean.iter().sum::<f64>() / clean.len() as f64;
        let not_run = || {
            (
                Verdict::CannotBeSaid,
                "there are no traces of single programs".to_owned(),
            )
        };
        let count = |above: bool| {
            clean
                .iter()
                .filter(|&&share| if above { share > 90.0 } else { share <= 10.0 })
                .count()
        };
        let told = format!("{mean:.1}% over {} programs", clean.len());
        let (average, above, few) = match clean.is_empty() {
            true => (not_run(), not_run(), not_run()),
            false => (
                (number(Some(51.3), mean, "").0, told),
                (
                    Verdict::of(count(true) == 4),
                    format!("{} of {}", count(true), clean.len()),
                ),
                (
                    Verdict::of(count(false) <= 5),
                    format!("{} of {}", count(false), clean.len()),
                ),
            ),
        };
        self.say(
            "II",
            "51.3% of what page-grain copying writes is unmodified, on average over 28 applications",
            average,
        );
        self.say("II", "Four applications have more than 90%", above);
        self.say("II", "Only 5 have 10%", few);
        let said = |measure: fn(Paper, SchemeKind) -> Option<f64>| -> Vec<(SchemeKind, f64)> {
            let of = |scheme| Some((scheme, measure(Paper::Twins, scheme)?));
            [UndoLog, CopyOnWrite].into_iter().filter_map(of).collect()
        };
        let all = self.among(None);
        let votes = self.each(
            [UndoLog, CopyOnWrite]
                .map(|other| self.below(&all, (DualPage, other), Measure::Time, 1.0))
                .into(),
        );
        let finding = self.count(&votes, all.len(), Extent::All);
        self.say("V-B", "A speedup for all workloads is observed", finding);
        let finding = self.averages(&said(paper::slowdown), Measure::Time);
        self.say(
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
            self.say("V-B", sentence, finding);
        }
        let finding = self.averages(&said(paper::writes), Measure::Writes);
        self.say(
            "V-B",
            "They write 1.89 and 4.11 times as much on average",
            finding,
        );
        let near_two = self.each(vec![
            self.below(&all, (UndoLog, DualPage), Measure::Writes, 2.0 * 1.15),
            self.below(&all, (DualPage, UndoLog), Measure::Writes, 1.0 / (2.0 * 0.85)),
        ]);
        let finding = self.count(&near_two, all.len(), Extent::All);
        self.say(
            "V-B",
            "Writes incurred by logging are about 2x (within 15%)",
            finding,
        );
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
            self.say("V-B", sentence, finding);
        }
        let worst = self.among(Some(&["WD1"]));
        let votes = self.each(
            [UndoLog, CopyOnWrite]
                .map(|other| self.below(&worst, (DualPage, other), Measure::Writes, 1.0))
                .into(),
        );
        let finding = self.count(&votes, 1, Extent::All);
        self.say(
            "V-B",
            "Even in the worst case, WD1, PCM writes are clearly reduced",
            finding,
        );
        let pool = |size| Variant::Pool(size);
        let finding = self.worst(pool(100), pool(500), Measure::Time, 1.024, "fig8a");
        self.say(
            "V-C",
            "The smallest pool, 100 MB, slows the system by at most 2.4%",
            finding,
        );
        let finding = self.worst(pool(100), pool(500), Measure::Writes, 1.49, "fig8b");
        self.say(
            "V-C",
            "In the worst case it produces 1.49 times the writes",
            finding,
        );
        let evicted = all.iter().filter_map(|&workload| {
            let writes = &self.plain(workload, DualPage)?.outcome.nvm_writes;
            let share = writes.eviction as f64 / writes.total.max(1) as f64;
            Some((workload, Some(share < 0.05), format!("{:.1}%", share * 100.0)))
        });
        let votes: Votes = evicted.collect();
        let finding = self.count(&votes, all.len(), Extent::All);
        self.say(
            "V-C",
            "The execution period incurs only negligible PCM writes (evictions, below 5%)",
            finding,
        );
    }
}

impl Verdict {
    pub(super) fn of(holds: bool) -> Verdict {
        if holds {
            Verdict::Holds
        } else {
            Verdict::DoesNotHold
        }
    }
}

/// A number beside the text's, which holds within 15%.
pub(super) fn number(said: Option<f64>, ours: f64, unit: &str) -> Finding {
    let verdict = match said {
        Some(_) if !ours.is_finite() => Verdict::CannotBeSaid,
        Some(_) => Verdict::of(!is_far(said, ours)),
        None => Verdict::CannotBeSaid,
    };
    let said = said.map_or(String::new(), |said| format!(" for {said}"));
    (verdict, format!("{ours:.2}{unit}{said}"))
}
