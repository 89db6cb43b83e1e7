//! What a region's checkpoints cost, since it was opened.

use crate::lock::lock;
use crate::paging::Paging;
use serde::Serialize;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use twinpage_core::Traffic;
use twinpage_core::engine::Report;
use twinpage_measure::{Histogram, Percentiles};

/// What a region's checkpoints cost, since it was opened.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use twinpage::Region;
///
/// let region = Region::open("counts.twin")?;
/// let mut count = region.root::<u64>("count")?;
/// region.checkpoint()?;
/// region.forget_statistics(); // what was filled in is not of interest
/// region.update(|u| *count.get_mut(u) += 1);
/// region.checkpoint()?;
/// let statistics = region.statistics();
/// assert_eq!((statistics.epochs, statistics.changed_bytes), (1, 64));
/// println!("stopped for {} us", statistics.stop_us.p99);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Statistics {
    /// Checkpoints that became durable; commits, in a region of sections.
    pub epochs: u64,
    /// Microseconds during which no update could begin: waiting for those that ran, and the cut. A thread that is
    /// in an update for long is waited for several times, with pauses in which others can; each counts.
    pub stop_us: Percentiles,
    /// Of them, waiting for the updates that ran.
    pub drain_us: Percentiles,
    /// Milliseconds from a cut until it was durable, in the background. Sections are not timed.
    pub durable_ms: Percentiles,
    /// 64-byte lines that were written, once for every epoch they were written in.
    pub changed_lines: u64,
    /// Bytes of those lines.
    pub changed_bytes: u64,
    /// Lines of the medium that were written for them.
    pub lines: u64,
    /// Bytes written to the medium, by cause.
    pub traffic: Traffic,
    /// Bytes written to the medium for every changed byte.
    pub bytes_per_changed_byte: f64,
    /// Pages brought and taken.
    pub paging: Paging,
}

/// How long a stop was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stop {
    pub(crate) drain: Duration,
    pub(crate) held: Duration,
}

/// Counts.
#[derive(Debug, Default)]
pub(crate) struct Counters(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    epochs: u64,
    stop_us: Histogram,
    drain_us: Histogram,
    durable_ms: Histogram,
    changed_lines: u64,
    lines: u64,
    traffic: Traffic,
}

impl Counts {
    fn add_commit(&mut self, report: &Report, changed_lines: u64) {
        self.epochs += 1;
        self.changed_lines += changed_lines;
        self.lines += report.lines;
        self.traffic = [self.traffic, report.traffic].into_iter().sum();
    }
}

impl Counters {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        lock(&self.0)
    }

    pub(crate) fn add_stop(&self, stop: Stop) {
        let mut counts = self.counts();
        counts.stop_us.add(micros(stop.drain + stop.held));
        counts.drain_us.add(micros(stop.drain));
    }

    pub(crate) fn add_epoch(&self, report: &Report, changed_lines: u64) {
        let mut counts = self.counts();
        counts.add_commit(report, changed_lines);
        let durable_us = report.write_us + report.witness_us + report.commit_us;
        counts.durable_ms.add(durable_us as f64 / 1000.0);
    }

    /// A commit of sections, which looks at no clock.
    pub(crate) fn add_commit(&self, report: &Report, changed_lines: u64) {
        self.counts().add_commit(report, changed_lines);
    }

    pub(crate) fn forget(&self) {
        *self.counts() = Counts::default();
    }

    pub(crate) fn read(&self) -> Statistics {
        let counts = self.counts();
        let changed_bytes = counts.changed_lines * crate::marks::LINE as u64;
        Statistics {
            epochs: counts.epochs,
            stop_us: counts.stop_us.percentiles(),
            drain_us: counts.drain_us.percentiles(),
            durable_ms: counts.durable_ms.percentiles(),
            changed_lines: counts.changed_lines,
            changed_bytes,
            lines: counts.lines,
            traffic: counts.traffic,
            paging: Paging::default(),
            bytes_per_changed_byte: counts.traffic.total_bytes() as f64 / changed_bytes.max(1) as f64,
        }
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
