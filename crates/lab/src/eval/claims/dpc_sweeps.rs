//! The sentences of DPC's evaluation on sizes, failures and intervals.

use super::{Court, Finding, Verdict, number};
use crate::controller::lookup::{BACKUP_BITS, VECTOR_BITS};
use crate::eval::Run;
use crate::eval::evidence::is_far;
use crate::eval::paper;
use crate::eval::plan::Variant;
use crate::eval::precision::Measure;
use twinpage_baselines::SchemeKind::DualPage;
use twinpage_core::dual_page::BITS_PER_PAGE;

impl Court<'_> {
    pub(super) fn dpc_sweeps(&mut self) {
        let pools = |size| [size, 500].map(Variant::Pool);
        let turned = |run: &Run| run.pool.failures + run.pool.reclaimed > 0;
        let finding = self.bounded(pools(100), Measure::Time, 1.032, turned, "fig11a");
        self.claims.say(
            "5.4",
            "A pool of 100 MB costs at most 3.2% of performance",
            finding,
        );
        let finding = self.bounded(pools(100), Measure::Writes, 1.44, turned, "fig11b");
        self.claims.say("5.4", "and up to 1.44 times the writes", finding);
        let finding = self.bounded(pools(300), Measure::Writes, 1.20, turned, "fig11b");
        self.claims
            .say("5.4", "300 MB incurs up to 20% extra writes", finding);
        let kilobytes = |bits: u64| (76_800 * bits) as f64 / 8.0 / 1024.0;
        let sizes = [BACKUP_BITS, VECTOR_BITS, BITS_PER_PAGE].map(kilobytes);
        let said = [947.0, 1.17 * 1024.0, 347.0];
        let holds = sizes
            .iter()
            .zip(said)
            .all(|(ours, said)| (ours / said - 1.0).abs() < 0.01);
        let told = format!(
            "{:.0}, {:.0} and {:.0} KB for 76,800 pages",
            sizes[0], sizes[1], sizes[2]
        );
        self.claims.say(
            "5.5.1",
            "The table takes 947 KB of NVM, 1.17 MB of DRAM and 347 KB of the controller",
            (
                if holds {
                    Verdict::Arithmetic
                } else {
                    Verdict::DoesNotHold
                },
                told,
            ),
        );
        let mut told = Vec::new();
        let mut verdict = Verdict::Holds;
        for name in ["tatp", "tpcc"] {
            let workload = self.loads.iter().position(|load| load.name == name);
            let ratio = workload.and_then(|workload| {
                let [one, other] =
                    [6, 0].map(|which| self.runs.find(workload, DualPage, Variant::Place(which)));
                Some(self.compare(workload, [one?, other?], Measure::Time).0)
            });
            match ratio {
                None => verdict = Verdict::CannotBeSaid,
                Some(ratio) => {
                    let said = paper::all_in_dram(name).unwrap_or(1.0);
                    let holds = (ratio - 1.0) / (said - 1.0);
                    if verdict == Verdict::Holds && !(0.85..=1.15).contains(&holds) {
                        verdict = Verdict::DoesNotHold;
                    }
                    told.push(format!("{name} {ratio:.3} for {said}"));
                }
            }
        }
        if told.is_empty() {
            told.push("neither was run".into());
        }
        self.claims.say(
            "5.5.2",
            "All metadata in DRAM makes TATP and TPCC 1.13 and 1.15 times slower",
            (verdict, told.join(", ")),
        );
        let places = [[1, 0], [1, 3]].map(|both| both.map(Variant::Place));
        let asks_dram = |run: &Run| run.outcome.table_reads > 0;
        let finding = self.bounded(places[0], Measure::Time, paper::OPTIMIZED, asks_dram, "fig12");
        self.claims.say(
            "5.5.2",
            "The optimized case is within 3% of all metadata in the controller",
            finding,
        );
        let finding = self.bounded(places[1], Measure::Time, 1.0, asks_dram, "fig12");
        self.claims
            .say("5.5.2", "and better than 40K cached entries", finding);
        let intervals = [50, 10].map(Variant::Interval);
        let stops = |run: &Run| run.outcome.checkpoints > 0;
        let finding = self.bounded(intervals, Measure::Time, 1.0, stops, "fig13");
        self.claims.say(
            "5.6",
            "Performance rises with the interval (here the dual page's, 50 M cycles beside 10 M)",
            finding,
        );
        let slower = [Variant::Open(0), Variant::Plain];
        let finding = self.bounded(slower, Measure::Time, 1.02, |_| true, "sensitivity");
        self.claims
            .say("5.1.1", "A look-up of 32 cycles costs around 2%", finding);
    }

    pub(super) fn failures(&self, all: &[usize]) -> Finding {
        let runs: Vec<&Run> = all
            .iter()
            .filter_map(|&workload| self.plain(workload, DualPage))
            .collect();
        let sum = |of: fn(&Run) -> u64| runs.iter().map(|run| of(run)).sum::<u64>() as f64;
        let failures = sum(|run| run.outcome.controller.prepare_failures);
        let epochs = sum(|run| run.outcome.checkpoints);
        let prepared = sum(|run| run.outcome.controller.prepared);
        let each = failures / epochs.max(1.0);
        let (verdict, _) = number(Some(1.17), each, "");
        (
            verdict,
            format!("{each:.2} in an epoch, {failures:.0} of {prepared:.0}"),
        )
    }

    /// The average stop over the interval: between the workloads, and on average.
    pub(super) fn interval(&self, all: &[usize]) -> Finding {
        let share = |&workload: &usize| Some(self.plain(workload, DualPage)?.stop_share() * 100.0);
        let mut shares: Vec<f64> = all.iter().filter_map(share).collect();
        shares.sort_by(f64::total_cmp);
        let (Some(&least), Some(&most)) = (shares.first(), shares.last()) else {
            return (Verdict::CannotBeSaid, "not run".into());
        };
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        let [(_, low), (_, high)] = paper::CHECKPOINT_SHARES;
        let holds = !is_far(Some(low), least) && !is_far(Some(high), most);
        (
            Verdict::of(holds),
            format!("{least:.1}% to {most:.1}%, {mean:.1}% on average"),
        )
    }
}
