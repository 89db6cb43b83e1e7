//! How well a ratio of two runs is known: batch means.
//!
//! * Both runs are cut into batches of the same instructions, so that a phase of the workload is in the
//!   same batch of both; a batch has an epoch at least.
//! * The ratio is of the sums. Its interval follows from how the batches scatter about it (the ratio
//!   estimator, with Student's distribution), and holds 95 of 100 times.
//! * With fewer than [`FEWEST`] epochs there is no interval.

use crate::machine::{Outcome, Sample};

/// What of a run is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Measure {
    Time = 0,
    Writes = 1,
}

impl Measure {
    pub(crate) fn of(self, run: &Outcome) -> f64 {
        match self {
            Measure::Time => run.time_ns as f64,
            Measure::Writes => run.nvm_writes.total as f64,
        }
    }
}

/// Batches a run is cut into, at most.
pub(super) const BATCHES: usize = 20;
/// Epochs without which nothing is said.
pub(super) const FEWEST: usize = 20;

/// Student's t at 97.5%, for 9 degrees of freedom and more.
const STUDENT: [f64; 11] = [
    2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093,
];

/// Half of the interval of the ratio of `run` to `reference`; `None` where there are too few epochs.
pub(crate) fn half_width(run: &Outcome, reference: &Outcome, measure: Measure) -> Option<f64> {
    let epochs = run.epochs.len().min(reference.epochs.len());
    if epochs < FEWEST {
        return None;
    }
    let count = epochs.min(BATCHES);
    let total = run.instructions.min(reference.instructions) as f64;
    let [mine, theirs] = [run, reference].map(|run| batches(run, measure, total, count));
    of_batches(&mine, &theirs)
}

/// Half of the interval of the ratio of sums of these batches; `None` with fewer than ten.
pub(super) fn of_batches(mine: &[f64], theirs: &[f64]) -> Option<f64> {
    let count = mine.len().min(theirs.len());
    let student = STUDENT.get(count.checked_sub(10)?)?;
    let sum: f64 = theirs.iter().sum();
    let ratio = mine.iter().sum::<f64>() / sum;
    let squares = mine
        .iter()
        .zip(theirs)
        .map(|(mine, theirs)| (mine - ratio * theirs).powi(2))
        .sum::<f64>();
    let n = count as f64;
    let error = (squares / (n * (n - 1.0))).sqrt() / (sum / n);
    error.is_finite().then_some(error * student)
}

/// How much of the measure falls into each of `count` batches of the first `total` instructions.
fn batches(run: &Outcome, measure: Measure, total: f64, count: usize) -> Vec<f64> {
    let value = |sample: &Sample| match measure {
        Measure::Time => sample.time_ns as f64,
        Measure::Writes => sample.nvm_writes as f64,
    };
    let ends = run
        .epochs
        .iter()
        .map(|sample| (sample.instructions as f64, value(sample)));
    let last = (run.instructions as f64, measure.of(run));
    let mut points = std::iter::once((0.0, 0.0)).chain(ends).chain([last]).peekable();
    let mut before = (0.0, 0.0);
    let mut reached = 0.0;
    (1..=count)
        .map(|batch| {
            let end = total * batch as f64 / count as f64;
            while let Some(point) = points.next_if(|point| point.0 < end) {
                before = point;
            }
            let here = match points.peek() {
                Some(next) => before.1 + (next.1 - before.1) * (end - before.0) / (next.0 - before.0),
                None => before.1,
            };
            let part = here - reached;
            reached = here;
            part
        })
        .collect()
}

/// The length of runs that will be precise enough, as a multiple of what it is; `None` if it is. `widest` is the widest
/// interval of their ratios, relative to the ratio; `epochs` are those of the run that has fewest. Where no ratio is asked
/// for, nothing but the full length is enough.
pub(super) fn longer(widest: Option<f64>, epochs: usize, precision: f64) -> Option<f64> {
    match widest {
        _ if epochs < FEWEST => Some((1.2 * FEWEST as f64 / epochs.max(1) as f64).min(8.0)),
        None => Some(f64::INFINITY),
        Some(relative) if relative > precision => {
            Some(((relative / precision).powi(2) * 1.1).clamp(1.3, 8.0))
        }
        Some(_) => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A run of `epochs` epochs of 1000 instructions, each of a time that `time` says.
    pub(in crate::eval) fn run(epochs: u64, time: impl Fn(u64) -> u64) -> Outcome {
        let mut sum = 0;
        let samples = (0..epochs).map(|epoch| {
            sum += time(epoch);
            Sample {
                instructions: (epoch + 1) * 1000,
                time_ns: sum,
                ..Sample::default()
            }
        });
        let epochs: Vec<Sample> = samples.collect();
        Outcome {
            instructions: epochs.last().map_or(0, |last| last.instructions),
            time_ns: sum,
            epochs,
            ..Outcome::default()
        }
    }

    #[test]
    fn a_phase_that_both_runs_have_does_not_count_as_noise() {
        let reference = run(100, |epoch| 1000 + 900 * (epoch / 50));
        let twice = run(100, |epoch| 2000 + 1800 * (epoch / 50));
        let width = half_width(&twice, &reference, Measure::Time).unwrap();
        assert!(width < 1e-9, "{width}");
        assert_eq!(half_width(&run(19, |_| 5), &reference, Measure::Time), None);
    }

    /// Of many runs that differ by chance alone, the interval holds the true ratio some 95 times of 100.
    #[test]
    fn the_interval_holds_the_truth_as_often_as_it_says() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut noisy = |mean: u64| {
            let times: Vec<u64> = (0..200).map(|_| random.u64(mean / 2..=mean * 3 / 2)).collect();
            run(200, |epoch| times[epoch as usize])
        };
        let held = (0..1000).filter(|_| {
            let (mine, theirs) = (noisy(3000), noisy(2000));
            let ratio = mine.time_ns as f64 / theirs.time_ns as f64;
            (ratio - 1.5).abs() <= half_width(&mine, &theirs, Measure::Time).unwrap()
        });
        let held = held.count();
        assert!((910..=985).contains(&held), "{held} of 1000, seed {seed}");
    }

    #[test]
    fn a_run_goes_on_until_it_is_known_well_enough() {
        assert_eq!(longer(Some(0.009), 40, 0.01), None);
        assert!(longer(Some(0.02), 40, 0.01).unwrap() > 4.0);
        assert_eq!(longer(None, 10, 0.01), Some(2.4));
        // One ratio is known, but the run of another has too few epochs to have an interval.
        assert_eq!(longer(Some(0.0), 10, 0.01), Some(2.4));
        assert_eq!(longer(None, 40, 0.01), Some(f64::INFINITY));
    }
}
