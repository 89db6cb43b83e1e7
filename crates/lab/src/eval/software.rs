//! DPC's Figure 10: software systems beside the dual page.
//!
//! * A run has as many instructions as any; software's are more for a transaction, so all is by transaction.
//! * What their code does between a program and its memory is instructions before each access; how many is open, and shown
//!   as a range.
//! * NVML commits as soon as every core has ended a batch, DudeTM as often as the dual page has checkpoints.

use super::evidence;
use super::paper;
use super::plan::Variant;
use super::precision;
use super::precision::Measure;
use super::rows::{DUAL, Summary, Table, Value, Which};
use super::{Row, Run};
use twinpage_baselines::SchemeKind;

/// The measure of a run's transaction over that of another's, and half of its interval: both runs are cut into as many
/// batches.
pub(super) fn by_transaction(run: &Run, over: &Run, measure: Measure) -> (f64, Option<f64>) {
    let [one, other] = [run, over].map(|run| {
        let outcome = &run.outcome;
        measure.of(outcome) / outcome.transactions as f64
    });
    let plain = measure.of(&run.outcome) / measure.of(&over.outcome);
    let width = precision::half_width(&run.outcome, &over.outcome, measure);
    (one / other, width.map(|width| width / plain * one / other))
}

/// Microseconds from a transaction's end until it is durable: half of them take longer.
pub(super) fn until_durable(run: &Run) -> f64 {
    run.outcome.latency_ns.durable.p50 / 1000.0
}

impl Table<'_> {
    pub(super) fn software(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for (scheme, variant, series) in self.artifact.series(self.request) {
            if variant != Variant::Plain {
                let said = scheme.house().and_then(paper::software);
                rows.extend(self.transactions(
                    &format!("{series}: time"),
                    (scheme, variant),
                    Measure::Time,
                    said,
                ));
                rows.extend(self.transactions(
                    &format!("{series}: NVM writes"),
                    (scheme, variant),
                    Measure::Writes,
                    None,
                ));
            }
            let durable = format!("{series}: until durable");
            for &workload in self.workloads {
                let took = until_durable(self.run(workload, (scheme, variant)));
                let mut row = self.row(&durable, &self.loads[workload].name, None, took, "us");
                let [least, most] = paper::NVML_LATENCY;
                row.note = (scheme == SchemeKind::Nvml).then(|| format!("{least} to {most} us in the paper"));
                rows.push(row);
            }
        }
        rows
    }

    /// Over the dual page, by transaction.
    fn transactions(&self, series: &str, which: Which, measure: Measure, said: Option<f64>) -> Vec<Row> {
        let value = |&workload: &usize| {
            let (is, plus_minus) =
                by_transaction(self.run(workload, which), self.run(workload, DUAL), measure);
            Value {
                workload,
                is,
                plus_minus,
            }
        };
        let values: Vec<Value> = self.workloads.iter().map(value).collect();
        let why = |behind: &[usize]| evidence::of_time(&self.pairs(behind, which, DUAL));
        self.each(series, "ratio", &values, (said, Summary::Average), &why)
    }
}
