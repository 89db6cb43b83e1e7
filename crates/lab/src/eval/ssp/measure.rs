//! Measures: what of a run, or of two, is shown, and how well it is known.

use super::runs::Run;
use crate::eval::precision::of_batches;
use crate::sections::Counts;

/// A number, and half of its interval where it has one.
pub(super) type Known = (f64, Option<f64>);

/// Whether one number is less than another; nothing where they are no further apart than their intervals. A number without
/// an interval counts as it stands.
pub(super) fn is_less((one, around): Known, (other, around_other): Known) -> Option<bool> {
    let apart = around.unwrap_or(0.0).hypot(around_other.unwrap_or(0.0));
    ((one - other).abs() > apart).then_some(one < other)
}

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

    /// The ratio of one run to another. Both are cut into as many parts of as many sections.
    pub(super) fn ratio(self, run: &Run, over: &Run) -> Known {
        let width = match self {
            Measure::Throughput => of_batches(&over.parts(|c| c.time_fs), &run.parts(|c| c.time_fs)),
            Measure::Writes => of_batches(&run.parts(|c| c.writes), &over.parts(|c| c.writes)),
            Measure::LogWrites => of_batches(&run.made(|c| c.log_writes), &over.made(|c| c.log_writes)),
        };
        (self.of(run) / self.of(over), width)
    }

    /// Thousand sections a second.
    pub(super) fn thousands(run: &Run) -> Known {
        let times = run.parts(|counts| counts.time_fs);
        let parts = times.len() as f64;
        let total: f64 = times.iter().sum();
        let speed = Measure::Throughput.of(run) / 1e3;
        let width = of_batches(&vec![1.0; times.len()], &times);
        (speed, width.map(|width| speed * width * total / parts))
    }
}

/// Of what a design did in a run, one count over another.
pub(super) fn share(run: &Run, part: impl Fn(&Counts) -> u64, all: impl Fn(&Counts) -> u64) -> Known {
    let is = part(&run.design) as f64 / all(&run.design) as f64;
    (is, of_batches(&run.made(part), &run.made(all)))
}

/// Of what SSP writes, the shares of its kinds.
pub(super) fn kinds(run: &Run) -> [(&'static str, Known); 4] {
    let of = |part: fn(&Counts) -> u64| share(run, part, Counts::writes);
    [
        ("data", of(|counts| counts.data_writes)),
        ("journaling", of(|counts| counts.log_writes)),
        ("consolidation", consolidation(run)),
        ("checkpointing", of(|counts| counts.checkpoint_writes)),
    ]
}

/// Of what SSP writes, the share of consolidation.
pub(super) fn consolidation(run: &Run) -> Known {
    share(run, |counts| counts.consolidation_writes, Counts::writes)
}
