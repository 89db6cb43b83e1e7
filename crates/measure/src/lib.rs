//! Percentiles of a running measurement, in a fixed amount of memory.
//!
//! Numbers are counted in buckets, exact to 1.6%, so nothing grows with a run.

#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};

/// Buckets of one factor of two.
const STEPS: u64 = 32;
/// Numbers are counted in tenths.
const UNITS: f64 = 10.0;
/// The bucket of the largest number there can be.
const LAST_BUCKET: usize = bucket(u64::MAX);

/// The first [`STEPS`] numbers have a bucket each, then every factor of two has as many.
const fn bucket(number: u64) -> usize {
    if number < STEPS {
        return number as usize;
    }
    let shift = number.ilog2() - STEPS.ilog2();
    (shift as u64 * STEPS + (number >> shift)) as usize
}

/// The number in the middle of a bucket.
fn middle(bucket: usize) -> f64 {
    let (shift, step) = ((bucket as u64 / STEPS).saturating_sub(1), bucket as u64 % STEPS);
    let first = if (bucket as u64) < STEPS {
        step
    } else {
        STEPS + step
    };
    (first as f64 + if shift == 0 { 0.0 } else { 0.5 }) * (1u64 << shift) as f64
}

/// How often numbers of which size came.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Histogram {
    counts: Vec<u64>,
    max: f64,
}

impl Histogram {
    /// Counts a number; those below zero as zero.
    pub fn add(&mut self, number: f64) {
        let bucket = bucket((number * UNITS).round() as u64);
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.max = self.max.max(number);
    }

    /// Counts what another one counted.
    pub fn merge(&mut self, other: &Histogram) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count = count.saturating_add(*more);
        }
        self.max = self.max.max(other.max);
    }

    /// The values since an earlier look. The largest is then that of the buckets.
    #[must_use]
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let before = |bucket: usize| earlier.counts.get(bucket).copied().unwrap_or(0);
        let counts: Vec<u64> = self
            .counts
            .iter()
            .enumerate()
            .map(|(bucket, count)| count.saturating_sub(before(bucket)))
            .collect();
        let last = counts.iter().rposition(|count| *count > 0);
        let max = last.map_or(0.0, |bucket| (middle(bucket) / UNITS).min(self.max));
        Histogram { counts, max }
    }

    /// How many numbers were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts
            .iter()
            .fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The number that a share of all others is below; 0 when there are none.
    fn at(&self, share: f64) -> f64 {
        let mut before = ((self.count() as f64 - 1.0) * share).round().max(0.0) as u64;
        for (bucket, count) in self.counts.iter().enumerate() {
            if before < *count {
                return (middle(bucket) / UNITS).min(self.max);
            }
            before -= count;
        }
        self.max
    }

    /// The middle, the tail, the largest.
    #[must_use]
    pub fn percentiles(&self) -> Percentiles {
        Percentiles {
            p50: self.at(0.5),
            p99: self.at(0.99),
            max: self.max,
        }
    }

    /// Whether it can have been counted: for one that was read from a file.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.counts.len() <= LAST_BUCKET + 1 && self.max.is_finite()
    }
}

/// Percentiles of a list of numbers.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Percentiles {
    /// The middle.
    pub p50: f64,
    /// One in a hundred is above.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_close() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.percentiles(), Percentiles::default());
        let mut numbers: Vec<f64> = (0..5000).map(|n| 0.3 + f64::from(n * n) / 70.0).collect();
        numbers.iter().for_each(|number| histogram.add(*number));
        numbers.sort_by(f64::total_cmp);
        for share in [0.0_f64, 0.01, 0.5, 0.99, 1.0] {
            let right = numbers[(4999.0 * share).round() as usize];
            let found = histogram.at(share);
            assert!(
                (found - right).abs() <= 0.05 + right * 0.016,
                "{share}: {found}, not {right}"
            );
        }
        assert_eq!(histogram.percentiles().max, *numbers.last().unwrap());
    }

    #[test]
    fn any_number_has_a_bucket() {
        let mut histogram = Histogram::default();
        for number in [-1.0, 0.0, 1e-9, 1.0, 1e300, f64::NAN] {
            histogram.add(number);
        }
        assert_eq!(histogram.count(), 6);
        for number in (0..10_000).chain([1 << 40, u64::MAX - 1, u64::MAX]) {
            let (found, right) = (middle(bucket(number)), number as f64);
            assert!((found - right).abs() <= right * 0.016, "{number}: {found}");
        }
    }
}
