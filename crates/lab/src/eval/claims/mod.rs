//! Which sentences of a paper's evaluation hold here.
//!
//! * A comparison is made for each workload it speaks of. It is decided where it is further from equal than its
//!   interval; without an interval (a short run) as it stands.
//! * A sentence about all its workloads holds if it holds for each, does not if it fails for one, and cannot be
//!   said otherwise. "Most" are more than half. All are the paper's, run or not.
//! * A number of the text holds if ours is within 15% of it, as in the tables, and on the same side of equal. 15% of a
//!   ratio may be all of a gain, so the gain stands beside it. An average is of all the paper's workloads or cannot be said.
//! * What a variant costs cannot be said where no run did what it varies.
//! * What follows from the paper's own constants is arithmetic, and no finding.
//! * Of other artifacts those runs are done that a sentence is about.

mod dpc;
mod dpc_sweeps;
mod twins;

use super::evidence::is_far;
use super::loads::{Load, names};
use super::paper::Paper;
use super::plan::{Runs, Variant};
use super::precision;
use super::precision::Measure;
use super::{Request, Run};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write;
use twinpage_baselines::SchemeKind::{self, CopyOnWrite, DualPage};

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
    /// It is right, and nothing was run for it.
    #[serde(rename = "arithmetic")]
    Arithmetic,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Verdict::Holds => "holds",
            Verdict::DoesNotHold => "does not hold",
            Verdict::CannotBeSaid => "cannot be said",
            Verdict::Arithmetic => "arithmetic",
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
    Court::decided(request, runs, loads).claims.0
}

/// The widest interval of the ratios that sentences compare for a workload, relative to the ratio.
pub(super) fn widest(request: &Request, runs: &Runs, loads: &[Load], workload: usize) -> Option<f64> {
    let court = Court::decided(request, runs, loads);
    court.widest.into_inner().remove(&workload)
}

/// What is said of one sentence after the other.
#[derive(Default)]
pub(super) struct Claims(pub(super) Vec<Claim>);

impl Claims {
    pub(super) fn say(&mut self, place: &'static str, sentence: &'static str, (verdict, numbers): Finding) {
        self.0.push(Claim {
            place,
            sentence,
            verdict,
            numbers,
        });
    }
}

/// A verdict and its numbers.
pub(super) type Finding = (Verdict, String);

/// How many of the workloads a sentence must hold for.
#[derive(Clone, Copy)]
enum Extent {
    All,
    Most,
}

/// A number, and half of its interval where it has one.
type Known = (f64, Option<f64>);

/// For each workload whether it holds; `None` where that cannot be said.
type Votes = Vec<(usize, Option<bool>, String)>;

struct Court<'a> {
    runs: &'a Runs,
    loads: &'a [Load],
    paper: Paper,
    /// Its workloads.
    names: Vec<&'static str>,
    claims: Claims,
    /// Of the ratios asked for so far, the widest interval of each workload, relative to the ratio.
    widest: RefCell<BTreeMap<usize, f64>>,
}

impl<'a> Court<'a> {
    fn decided(request: &Request, runs: &'a Runs, loads: &'a [Load]) -> Court<'a> {
        let mut court = Court {
            runs,
            loads,
            paper: request.paper,
            names: names(request.paper),
            claims: Claims::default(),
            widest: RefCell::default(),
        };
        match request.paper {
            Paper::Dpc => court.dpc(),
            Paper::Twins => court.twins(),
        }
        court
    }

    /// The ratio of one run of a workload to another, and its interval.
    fn compare(&self, workload: usize, [one, other]: [&Run; 2], measure: Measure) -> (f64, f64) {
        let (one, other) = (&one.outcome, &other.outcome);
        let ratio = measure.of(one) / measure.of(other);
        let width = precision::half_width(one, other, measure);
        let (ratio, width) = self.note(workload, (ratio, width));
        (ratio, width.unwrap_or(0.0))
    }

    /// Notes how well a ratio is known that a sentence is about.
    fn note(&self, workload: usize, (ratio, width): Known) -> Known {
        let relative = width.unwrap_or(0.0) / ratio;
        if relative.is_finite() {
            let mut all = self.widest.borrow_mut();
            let widest = all.entry(workload).or_default();
            *widest = widest.max(relative);
        }
        (ratio, width)
    }

    fn plain(&self, workload: usize, scheme: SchemeKind) -> Option<&'a Run> {
        self.runs.find(workload, scheme, Variant::Plain)
    }

    /// The workloads that were run, of those named, or of all the paper's.
    fn among(&self, names: Option<&[&str]>) -> Vec<usize> {
        let names = names.unwrap_or(&self.names);
        (0..self.loads.len())
            .filter(|&load| names.contains(&self.loads[load].name.as_str()))
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
        Some(self.compare(workload, [one?, other?], measure))
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
            if !agrees(said, mean) {
                verdict = Verdict::DoesNotHold;
            }
            told.push(format!("{scheme} {mean:.2} for {said:.2}{}", gain(said, mean)));
        }
        self.of_all(workloads.len(), (verdict, told.join(", ")))
    }

    /// A finding over the workloads of which `ran` were run.
    fn of_all(&self, ran: usize, (verdict, numbers): Finding) -> Finding {
        match self.names.len() {
            all if all == ran => (verdict, numbers),
            all => (
                Verdict::CannotBeSaid,
                format!("{numbers}; {ran} of {all} workloads were run"),
            ),
        }
    }

    /// The most over all workloads, within 15% of the text's.
    fn most(&self, scheme: SchemeKind, said: f64, measure: Measure) -> Finding {
        let all = self.among(None);
        let most = all
            .iter()
            .filter_map(|&workload| Some((workload, self.ratio(workload, scheme, DualPage, measure)?.0)))
            .max_by(|one, other| one.1.total_cmp(&other.1));
        match most {
            Some((workload, most)) => {
                let place = format!(", {}", self.loads[workload].name);
                self.of_all(all.len(), number(Some(said), most, &place))
            }
            None => (Verdict::CannotBeSaid, "not run".into()),
        }
    }

    /// Whether the measure of a variant's runs is below `said` times another's, for each workload; it cannot be said where
    /// none of them `did` what the variant is about.
    fn bounded(
        &self,
        [variant, over]: [Variant; 2],
        measure: Measure,
        said: f64,
        did: fn(&Run) -> bool,
        artifact: &str,
    ) -> Finding {
        let pair = |workload| {
            let [one, other] = [variant, over].map(|variant| self.runs.find(workload, DualPage, variant));
            Some((workload, one?, other?))
        };
        let pairs: Vec<_> = (0..self.loads.len()).filter_map(pair).collect();
        if pairs.is_empty() {
            let why = format!("no workload has the runs of {artifact}");
            return (Verdict::CannotBeSaid, why);
        }
        let is_shown = pairs.iter().any(|(_, one, _)| did(one));
        let vote = |&(workload, one, other): &(usize, &Run, &Run)| {
            let (ratio, width) = self.compare(workload, [one, other], measure);
            let is_decided = is_shown && (ratio - said).abs() > width;
            (
                workload,
                is_decided.then_some(ratio < said),
                format!("{ratio:.3}"),
            )
        };
        let votes: Votes = pairs.iter().map(vote).collect();
        let ratios = pairs
            .iter()
            .map(|(_, one, other)| measure.of(&one.outcome) / measure.of(&other.outcome));
        let most = ratios.fold(f64::NEG_INFINITY, f64::max);
        let (verdict, numbers) = self.count(&votes, self.names.len(), Extent::All);
        let why = if is_shown {
            ""
        } else {
            "; no run did what is varied"
        };
        (
            verdict,
            format!("{numbers}; {most:.3} at most, {said} in the text{why}"),
        )
    }

    fn clean(&self, scheme_variant: Variant, workloads: &[usize]) -> Vec<f64> {
        let share = |&workload: &usize| {
            let run = self.runs.find(workload, CopyOnWrite, scheme_variant)?;
            run.outcome.clean_share.map(|share| share * 100.0)
        };
        workloads.iter().filter_map(share).collect()
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

/// Whether ours is what the text says: within 15%, and faster where that says faster.
fn agrees(said: f64, ours: f64) -> bool {
    !is_far(Some(said), ours) && (said == 1.0 || (said - 1.0) * (ours - 1.0) > 0.0)
}

/// How much of a gain below twofold ours is.
fn gain(said: f64, ours: f64) -> String {
    match said > 1.0 && said < 2.0 {
        true => format!(" ({:.0}% of the gain)", (ours - 1.0) / (said - 1.0) * 100.0),
        false => String::new(),
    }
}

/// Our number beside the paper's, and whether they agree ([`agrees`]).
pub(super) fn number(said: Option<f64>, ours: f64, unit: &str) -> Finding {
    let verdict = match said {
        Some(_) if !ours.is_finite() => Verdict::CannotBeSaid,
        Some(said) => Verdict::of(agrees(said, ours)),
        None => Verdict::CannotBeSaid,
    };
    let beside = |said| match unit.is_empty() {
        true => gain(said, ours),
        false => String::new(),
    };
    let said = said.map_or(String::new(), |said| format!(" for {said}{}", beside(said)));
    (verdict, format!("{ours:.2}{unit}{said}"))
}

/// The same of what is not run, but follows from constants.
pub(super) fn arithmetic(said: Option<f64>, ours: f64, unit: &str) -> Finding {
    match number(said, ours, unit) {
        (Verdict::Holds, numbers) => (Verdict::Arithmetic, numbers),
        finding => finding,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slower_is_not_faster() {
        let verdict = |said, ours| number(Some(said), ours, "").0;
        assert_eq!(verdict(1.13, 1.05), Verdict::Holds);
        assert_eq!(verdict(1.13, 0.97), Verdict::DoesNotHold);
        assert_eq!(verdict(0.86, 0.77), Verdict::Holds);
        assert_eq!(verdict(0.95, 1.02), Verdict::DoesNotHold);
        assert_eq!(verdict(1.0, 0.9), Verdict::Holds);
        // No difference is no gain.
        assert_eq!(verdict(1.13, 1.0), Verdict::DoesNotHold);
        assert_eq!(verdict(1.27, 1.60), Verdict::DoesNotHold);
        assert_eq!(number(Some(1.13), 1.05, "").1, "1.05 for 1.13 (38% of the gain)");
        assert_eq!(arithmetic(Some(832.0), 832.0, " bytes").0, Verdict::Arithmetic);
    }
}
