//! Latencies by the million: buckets whose width is a 32nd of their value.

/// Counts of values.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    sum: u128,
    max: u64,
}

/// What a person wants to know of them.
#[derive(Clone, Copy, PartialEq, Debug, Default, serde::Serialize)]
pub struct Percentiles {
    /// How many there were.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// The largest.
    pub max: u64,
}

fn bucket(value: u64) -> usize {
    let top = 63 - (value | 31).leading_zeros() as u64;
    let shift = top.saturating_sub(5);
    (shift * 32 + (value >> shift)) as usize
}

fn value(bucket: usize) -> u64 {
    let (shift, rest) = ((bucket as u64 / 32).saturating_sub(1), bucket as u64);
    (rest - shift * 32) << shift
}

impl Histogram {
    /// One more value.
    pub fn add(&mut self, value: u64) {
        let bucket = bucket(value);
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.count += 1;
        self.sum += u128::from(value);
        self.max = self.max.max(value);
    }

    /// The summary.
    #[must_use]
    pub fn percentiles(&self) -> Percentiles {
        let at = |percent: u64| {
            let mut left = (self.count * percent).div_ceil(100).max(1);
            let found = self.buckets.iter().position(|&count| {
                let here = left <= count;
                left = left.saturating_sub(count);
                here
            });
            found.map_or(0, value)
        };
        Percentiles {
            count: self.count,
            mean: self.sum as f64 / self.count.max(1) as f64,
            p50: at(50),
            p90: at(90),
            p99: at(99),
            max: self.max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_keep_order_and_five_bits() {
        let mut last = 0;
        for number in (0..100_000).chain([1 << 40, (1 << 40) + (1 << 35), u64::MAX >> 1]) {
            assert!(bucket(number) >= last, "{number}");
            last = bucket(number);
            let low = value(last);
            assert!(
                low <= number && number - low <= number / 32,
                "{number} in a bucket from {low}"
            );
        }
        let mut histogram = Histogram::default();
        (1..=1000).for_each(|value| histogram.add(value));
        let found = histogram.percentiles();
        assert_eq!((found.count, found.max, found.p50), (1000, 1000, 496));
        assert!((found.mean - 500.5).abs() < 1e-9 && found.p99 >= 960);
        assert_eq!(Histogram::default().percentiles(), Percentiles::default());
    }
}
