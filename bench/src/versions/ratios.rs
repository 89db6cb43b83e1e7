//! The ratios that the study is about: what the paper says, what is to be reached, and what was measured.

use super::variant::Variant;
use super::{Done, speed};
use crate::spread::Spread;
use serde::Serialize;

/// A ratio: the median of those of the runs, taken in pairs, the least and the most.
#[derive(Serialize, Clone, Copy, Debug)]
pub(crate) struct Ratio {
    pub(crate) ratio: f64,
    pub(crate) ratio_min: f64,
    pub(crate) ratio_max: f64,
    pub(crate) paper: Option<f64>,
    pub(crate) reach: Option<f64>,
}

impl Ratio {
    pub(crate) fn of(ratios: impl Iterator<Item = f64>) -> Ratio {
        let ratios = Spread::of(ratios);
        Ratio {
            ratio: ratios.median,
            ratio_min: ratios.min,
            ratio_max: ratios.max,
            paper: None,
            reach: None,
        }
    }
}

/// The throughput of one variant over that of another.
#[derive(Serialize, Debug)]
pub(crate) struct Row {
    pub(crate) of: &'static str,
    pub(crate) over: &'static str,
    pub(crate) swaps: u64,
    #[serde(flatten)]
    pub(crate) ratio: Ratio,
}

/// Which over which, what the paper says and what is to be reached.
#[rustfmt::skip]
const ALL: [(Variant, Variant, Option<f64>, Option<f64>); 19] = {
    use Variant as V;
    [
        (V::L, V::Dl, Some(23.7), None),
        (V::L, V::LCkpt, Some(1.0), None),
        (V::L, V::Lcm, Some(1.6), None),
        (V::L, V::Lcs, Some(1.6), None),
        (V::Lcs, V::Lcm, Some(1.0), None),
        (V::Ics, V::Lcs, None, None),
        (V::Tcs, V::Lcs, Some(2.3), Some(2.3)),
        (V::Bare, V::Lcs, None, None),
        (V::Tcm, V::Lcm, Some(2.3), None),
        (V::IcsClwb, V::LcsClwb, None, None),
        (V::TcsClwb, V::LcsClwb, None, None),
        (V::InsNt, V::LnsNt, None, None),
        (V::TnsNt, V::LnsNt, None, None),
        (V::TnsNt, V::TcsClwb, None, None),
        (V::TcsClwbEach, V::Pmemobj, None, Some(3.0)),
        (V::BareClwb, V::Pmemobj, None, None),
        (V::TcsClwbEach, V::Msync, None, Some(2.0)),
        (V::TcsClwbEach, V::RegionSections, None, None),
        (V::TcsClwb, V::Region16ms, None, None),
    ]
};

/// The ratios of variants that both ran.
pub(crate) fn rows(swaps: u64, all: &[(Variant, Vec<Done>)]) -> Vec<Row> {
    let runs = |wanted: Variant| {
        let found = all.iter().find(|(variant, _)| *variant == wanted);
        found.map(|(_, runs)| runs).filter(|runs| !runs.is_empty())
    };
    ALL.into_iter()
        .filter_map(|(of, over, paper, reach)| {
            let pairs = runs(of)?.iter().zip(runs(over)?);
            let ratio = Ratio::of(pairs.map(|(of, over)| speed(of) / speed(over)));
            Some(Row {
                of: of.name(),
                over: over.name(),
                swaps,
                ratio: Ratio {
                    paper,
                    reach,
                    ..ratio
                },
            })
        })
        .collect()
}
