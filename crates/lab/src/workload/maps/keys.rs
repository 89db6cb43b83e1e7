//! Which keys a program asks for.

use std::sync::Arc;

/// Of "80% of the updates are applied to 15% of the keys" (SSP 5.1), the updates.
const UPDATES: f64 = 0.8;
/// And the keys.
const HOT: f64 = 0.15;

/// How keys are drawn. Those asked for most are the smallest.
#[derive(Clone, Debug)]
pub(super) enum Draw {
    /// Each as often as any.
    Uniform(u64),
    /// By Zipf's law: for each key how often it, or a smaller one, is drawn.
    Zipf(Arc<[f64]>),
}

impl Draw {
    /// Zipf's law with the exponent that gives the paper's share of the updates to its share of the keys.
    pub(super) fn zipf(keys: u64) -> Draw {
        let (mut low, mut high) = (0.0, 4.0);
        for _ in 0..30 {
            let middle = (low + high) / 2.0;
            match share(keys, middle) < UPDATES {
                true => low = middle,
                false => high = middle,
            }
        }
        let mut sum = 0.0;
        let shares = weights(keys, low).map(|weight| {
            sum += weight;
            sum
        });
        let mut shares: Vec<f64> = shares.collect();
        shares.iter_mut().for_each(|share| *share /= sum);
        Draw::Zipf(shares.into())
    }

    pub(super) fn key(&self, random: &mut fastrand::Rng) -> u64 {
        match self {
            Draw::Uniform(keys) => random.u64(..keys),
            Draw::Zipf(shares) => {
                let drawn = random.f64();
                shares
                    .partition_point(|share| *share <= drawn)
                    .min(shares.len() - 1) as u64
            }
        }
    }
}

fn weights(keys: u64, exponent: f64) -> impl Iterator<Item = f64> {
    (1..=keys).map(move |rank| (rank as f64).powf(-exponent))
}

/// Of the draws, those of the hot keys.
fn share(keys: u64, exponent: f64) -> f64 {
    let hot = (keys as f64 * HOT) as usize;
    let mut weights = weights(keys, exponent);
    let of_hot: f64 = weights.by_ref().take(hot).sum();
    of_hot / (of_hot + weights.sum::<f64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_fifths_of_the_updates_go_to_three_of_twenty_keys() {
        for keys in [200, 20_000] {
            let draw = Draw::zipf(keys);
            let mut random = fastrand::Rng::with_seed(1);
            let drawn: Vec<u64> = (0..100_000).map(|_| draw.key(&mut random)).collect();
            let hot = drawn.iter().filter(|key| **key < keys * 3 / 20).count();
            assert!((79_000..81_000).contains(&hot), "{hot}");
            let first = drawn.iter().filter(|key| **key == 0).count();
            let second = drawn.iter().filter(|key| **key == 1).count();
            assert!(first > second && drawn.iter().all(|key| *key < keys));
        }
    }
}
