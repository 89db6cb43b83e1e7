//! Where ours is not the paper's: what was measured in the very runs the number is made of.

use super::Run;
use std::fmt::Write;

/// A difference larger than this is explained.
const FAR: f64 = 0.15;

/// Whether the two differ by more than 15%.
pub(super) fn is_far(paper: Option<f64>, ours: f64) -> bool {
    paper.is_some_and(|paper| (ours / paper - 1.0).abs() > FAR)
}

/// A run, and the one it is compared with.
#[derive(Clone, Copy)]
pub(super) struct Pair<'a> {
    pub(super) name: &'a str,
    pub(super) run: &'a Run,
    pub(super) reference: &'a Run,
}

fn mean(pairs: &[Pair<'_>], value: impl Fn(&Pair<'_>) -> f64) -> f64 {
    let values: Vec<f64> = pairs
        .iter()
        .map(value)
        .filter(|value| value.is_finite())
        .collect();
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The pair with the largest value, where there are several.
fn furthest(pairs: &[Pair<'_>], value: impl Fn(&Pair<'_>) -> f64) -> String {
    let most = pairs
        .iter()
        .map(|pair| (value(pair), pair))
        .filter(|(value, _)| value.is_finite())
        .max_by(|one, other| one.0.total_cmp(&other.0));
    match most {
        Some((value, pair)) if pairs.len() > 1 => format!("; most at {}, {value:.2}", pair.name),
        _ => String::new(),
    }
}

/// Dirty lines of a page that is written.
fn dirty_lines(pair: &Pair<'_>) -> f64 {
    let counts = &pair.run.outcome.controller;
    counts.dirty_lines as f64 / counts.pages_written as f64
}

/// Which stalls the difference in time is made of.
pub(super) fn of_time(pairs: &[Pair<'_>]) -> String {
    let time = |pair: &Pair<'_>| pair.run.outcome.time_ns as f64 / pair.reference.outcome.time_ns as f64;
    let mut said = format!(
        "{:+.0}% of time, of it in points:",
        (mean(pairs, time) - 1.0) * 100.0
    );
    let mut rest = mean(pairs, time) - 1.0;
    type Cause = fn(&crate::machine::Outcome) -> u64;
    let causes: [(&str, Cause); 5] = [
        ("checkpoints", |outcome| outcome.stall_ns.checkpoint),
        ("waiting for NVM", |outcome| outcome.stall_ns.nvm),
        ("for DRAM", |outcome| outcome.stall_ns.dram),
        ("for stores", |outcome| outcome.stall_ns.store),
        ("for other cores", |outcome| outcome.stall_ns.idle),
    ];
    for (name, of) in causes {
        let points = mean(pairs, |pair| {
            let [mine, other] = [pair.run, pair.reference].map(|run| of(&run.outcome) as f64);
            (mine - other) / (pair.reference.outcome.time_ns as f64 * pair.reference.cores as f64)
        });
        rest -= points;
        let _ = write!(said, " {name} {:+.1},", points * 100.0);
    }
    let count = |of: fn(&Pair<'_>) -> u64| mean(pairs, |pair| of(pair) as f64);
    let _ = write!(
        said,
        " running {:+.1}; {:.0} checkpoints beside {:.0}",
        rest * 100.0,
        count(|pair| pair.run.outcome.checkpoints),
        count(|pair| pair.reference.outcome.checkpoints),
    );
    said + &furthest(pairs, time)
}

/// What the lines were written for, over what the reference wrote in all.
pub(super) fn of_writes(pairs: &[Pair<'_>]) -> String {
    let total = |pair: &Pair<'_>| pair.reference.outcome.nvm_writes.total as f64;
    let share = |of_reference: bool| {
        let mut shares: Vec<(String, f64)> = twinpage_core::medium::Cause::ALL
            .iter()
            .map(|cause| {
                let lines = |pair: &Pair<'_>| {
                    let run = if of_reference { pair.reference } else { pair.run };
                    run.outcome.nvm_causes.get(cause).copied().unwrap_or(0) as f64 / total(pair)
                };
                (
                    format!("{cause:?}")
                        .to_lowercase()
                        .replace("writeback", "write-back"),
                    mean(pairs, lines),
                )
            })
            .filter(|(_, share)| *share >= 0.005)
            .collect();
        shares.sort_by(|one, other| other.1.total_cmp(&one.1));
        let told: Vec<String> = shares
            .iter()
            .map(|(cause, share)| format!("{cause} {share:.2}"))
            .collect();
        told.join(", ")
    };
    let lines = mean(pairs, dirty_lines);
    let ratio = |pair: &Pair<'_>| pair.run.outcome.nvm_writes.total as f64 / total(pair);
    format!(
        "lines by cause: {}; of the reference: {}; {lines:.1} of 64 lines are dirty in a page that is written{}",
        share(false),
        share(true),
        furthest(pairs, ratio)
    )
}

/// How dense what is written lies.
pub(super) fn of_pages(pairs: &[Pair<'_>]) -> String {
    let fills = |pair: &Pair<'_>| {
        pair.run.outcome.controller.misses as f64 / pair.run.outcome.checkpoints.max(1) as f64
    };
    let least = pairs.iter().map(|pair| (dirty_lines(pair), pair.name));
    let least = least
        .filter(|least| least.0.is_finite())
        .min_by(|one, other| one.0.total_cmp(&other.0));
    let (least, name) = least.unwrap_or((0.0, "none"));
    format!(
        "{:.1} of 64 lines are dirty in a page that is written (fewest at {name}, {least:.1}); {:.0} pages come to DRAM in an epoch",
        mean(pairs, dirty_lines),
        mean(pairs, fills)
    )
}

/// Why so many requests miss the DRAM cache, or so few.
pub(super) fn of_misses(run: &Run, paper: f64) -> String {
    let counts = &run.outcome.controller;
    let requests = (counts.reads + counts.writes) as f64;
    format!(
        "a page that is brought in serves {:.1} requests (the paper's, {:.1}); {:.1} requests reach DRAM in 1000 instructions",
        requests / counts.misses.max(1) as f64,
        100.0 / paper,
        requests * 1000.0 / run.outcome.instructions.max(1) as f64
    )
}
