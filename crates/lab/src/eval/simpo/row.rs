//! A number beside the paper's, and where it comes from.

use crate::eval;

/// Where a number comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// A simulated machine.
    Simulated,
    /// Sources, or what a variant is.
    Counted,
    /// Real cores.
    Measured,
}

/// A number beside the paper's.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    /// The number.
    #[serde(flatten)]
    pub row: eval::Row,
    /// Where it comes from.
    pub origin: Origin,
}

/// A row without an interval.
pub(super) fn row(
    origin: Origin,
    artifact: &'static str,
    series: &str,
    workload: &str,
    paper: Option<f64>,
    ours: f64,
    unit: &'static str,
) -> Row {
    Row {
        row: eval::Row::new(artifact, series, workload, paper, ours, unit),
        origin,
    }
}
