//! Measures: what of two runs is compared, and how well their ratio is known.

use super::runs::Run;
use crate::eval::precision::of_batches;

/// What of a run is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Measure {
    /// Sections a second.
    Throughput,
    /// Lines of logs and journals, of a section.
    LogWrites,
    /// Lines written to memory, of a section.
    Writes,
}

impl Measure {
    /// Of a section; throughput of a second.
    pub(super) fn of(self, run: &Run) -> f64 {
        match self {
            Measure::Throughput => run.machine.per_second(),
            Measure::LogWrites => run.design.log_writes as f64 / run.design.sections as f64,
            Measure::Writes => run.machine.writes as f64 / run.machine.transactions as f64,
        }
    }

    /// The ratio of one run to another, with half of its interval. Logging writes follow from the sections alone, and the
    /// designs have the same sections.
    pub(super) fn ratio(self, run: &Run, over: &Run) -> (f64, Option<f64>) {
        let width = match self {
            Measure::Throughput => of_batches(&over.parts(|c| c.time_fs), &run.parts(|c| c.time_fs)),
            Measure::Writes => of_batches(&run.parts(|c| c.writes), &over.parts(|c| c.writes)),
            Measure::LogWrites => None,
        };
        (self.of(run) / self.of(over), width)
    }
}
