//! What the papers' texts say: averages and extremes. Figures themselves are not in the text.

use twinpage_baselines::SchemeKind;

/// A paper whose evaluation can be repeated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Paper {
    /// Dual-Page Checkpointing.
    Dpc,
    /// Twins Page Mapping.
    Twins,
}

impl Paper {
    /// Its name, and its machine's.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Paper::Dpc => "dpc",
            Paper::Twins => "twins",
        }
    }
}

impl std::str::FromStr for Paper {
    type Err = String;
    fn from_str(name: &str) -> Result<Paper, String> {
        match name {
            "dpc" => Ok(Paper::Dpc),
            "twins" => Ok(Paper::Twins),
            _ => Err(format!("no paper is called {name}: there are dpc and twins")),
        }
    }
}

/// Execution time over the dual page's, on average: DPC 5.2 and Twins V-B.
pub(super) fn slowdown(paper: Paper, scheme: SchemeKind) -> Option<f64> {
    match (paper, scheme) {
        (Paper::Dpc, SchemeKind::UndoLog) => Some(1.41),
        (Paper::Dpc, SchemeKind::CopyOnWrite) => Some(1.47),
        (Paper::Dpc, SchemeKind::ThyNvm) => Some(1.18),
        (Paper::Dpc, SchemeKind::PageOverlay) => Some(1.37),
        // "only 14% overhead compared to the baseline"
        (Paper::Dpc, SchemeKind::InPlace) => Some(1.0 / 1.14),
        (Paper::Twins, SchemeKind::UndoLog) => Some(1.29),
        (Paper::Twins, SchemeKind::CopyOnWrite) => Some(1.19),
        _ => None,
    }
}

/// NVM writes over the dual page's, on average: DPC 5.2 and Twins V-B.
pub(super) fn writes(paper: Paper, scheme: SchemeKind) -> Option<f64> {
    match (paper, scheme) {
        (Paper::Dpc, SchemeKind::UndoLog) => Some(1.80),
        (Paper::Dpc, SchemeKind::CopyOnWrite) => Some(2.68),
        (Paper::Dpc, SchemeKind::ThyNvm) => Some(1.40),
        (Paper::Dpc, SchemeKind::PageOverlay) => Some(1.62),
        (Paper::Twins, SchemeKind::UndoLog) => Some(1.89),
        (Paper::Twins, SchemeKind::CopyOnWrite) => Some(4.11),
        _ => None,
    }
}

/// The most of all workloads, in time and in writes: Twins' abstract and V-B.
pub(super) fn most(paper: Paper, scheme: SchemeKind) -> [Option<f64>; 2] {
    match (paper, scheme) {
        (Paper::Twins, SchemeKind::UndoLog) => [Some(1.4), None],
        (Paper::Twins, SchemeKind::CopyOnWrite) => [Some(1.88), Some(5.99)],
        _ => [None, None],
    }
}

/// Clean lines in dirty pages, in percent, on average: DPC 2.2, Twins II.
pub(super) fn clean_percent(paper: Paper) -> f64 {
    match paper {
        Paper::Dpc => 61.1,
        Paper::Twins => 51.3,
    }
}

/// Pools of this size over the largest: the worst time and the worst writes the text gives.
pub(super) fn pool_worst(paper: Paper, mebibytes: u64) -> [Option<f64>; 2] {
    match (paper, mebibytes) {
        (Paper::Dpc, 100) => [Some(1.032), Some(1.44)],
        (Paper::Dpc, 300) => [None, Some(1.20)],
        (Paper::Twins, 100) => [Some(1.024), Some(1.49)],
        _ => [None, None],
    }
}

/// Time over the dual page's, "13.6x and 24.9x faster than DudeTM and NVML" (DPC 5.3).
pub(super) fn software(scheme: SchemeKind) -> Option<f64> {
    match scheme {
        SchemeKind::DudeTm => Some(13.6),
        SchemeKind::Nvml => Some(24.9),
        _ => None,
    }
}

/// "The latency on NVML is much lower (96-323 us)": the least and the most, in microseconds (DPC 5.3).
pub(super) const NVML_LATENCY: [f64; 2] = [96.0, 323.0];

/// All entries in DRAM over all in the controller, in time: DPC 5.5.2.
pub(super) fn all_in_dram(workload: &str) -> Option<f64> {
    match workload {
        "tatp" => Some(1.13),
        "tpcc" => Some(1.15),
        _ => None,
    }
}

/// "for all workloads, the performance difference is within 3% between the ideal case and the optimized
/// case": the worst time of that over this, DPC 5.5.2.
pub(super) const OPTIMIZED: f64 = 1.03;

/// "the average checkpointing delay among workloads is between 3.7M and 4.8M cycles (12.4%-15.9% of the
/// interval)": the least and the most, in percent, DPC 5.6.
pub(super) const CHECKPOINT_SHARES: [(&str, f64); 2] = [("least", 12.4), ("most", 15.9)];
