//! The middle of the repetitions, and how far apart they are.

use twinpage_commands::report::median;

/// The middle of the repetitions, the least and the most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    pub(crate) fn of(numbers: impl Iterator<Item = f64>) -> Spread {
        let mut numbers: Vec<f64> = numbers.collect();
        let median = median(&mut numbers);
        Spread {
            median,
            min: numbers[0],
            max: numbers[numbers.len() - 1],
        }
    }
}
