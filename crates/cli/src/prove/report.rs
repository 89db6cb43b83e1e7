//! What a proof came to, for people and scripts.

use super::compare::Difference;
use super::scratch::{Sizes, Undisturbed, describe};
use crate::show::{self, Rows};
use serde::Serialize;
use serde_json::{Value, json};
use twinpage_process::context::Ending;
use twinpage_process::statistics::{Histogram, Statistics};

/// What was done to the program.
#[derive(Default)]
pub(super) struct Tally {
    /// After a checkpoint.
    pub(super) kills: u32,
    /// Before there was anything to resume.
    pub(super) kills_before_checkpoint: u32,
    /// When the program had ended, and its output was being written.
    pub(super) kills_after_end: u32,
    /// Runs with kills.
    pub(super) runs: u32,
    /// Resumes begun; some are killed before the program is back.
    pub(super) resumes: u32,
    /// Work that each kill cost, in milliseconds.
    pub(super) lost_ms: Histogram,
    /// What checkpoints and restores cost.
    pub(super) statistics: Statistics,
    /// Calls that were refused, and why.
    pub(super) refused: Vec<String>,
    /// The same of those that programs usually go on without.
    pub(super) went_without: Vec<String>,
}

/// All there is to say.
pub(super) struct Report {
    seed: u64,
    ended: Ending,
    undisturbed_ms: f64,
    pub(super) tally: Tally,
    pub(super) sizes: Sizes,
    pub(super) difference: Option<Difference>,
    /// Why, when there is one.
    pub(super) cause: Option<Cause>,
}

/// What a difference comes from, as far as runs can tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Cause {
    /// Two undisturbed runs differ as well.
    Program,
    /// A run without kills differs, in which calls were refused.
    Refusal,
    /// A run without kills differs, and nothing was refused but what programs usually go on without.
    Twinpage,
    /// Only a run with kills differs.
    Kill,
}

impl Report {
    pub(super) fn new(seed: u64, undisturbed: &Undisturbed) -> Report {
        Report {
            seed,
            ended: undisturbed.ended,
            undisturbed_ms: undisturbed.took.as_secs_f64() * 1e3,
            tally: Tally::default(),
            sizes: Sizes::default(),
            difference: None,
            cause: None,
        }
    }

    /// Bytes written to the store for each byte that changed; `None` when nothing did.
    fn amplification(&self) -> Option<f64> {
        let statistics = &self.tally.statistics;
        let written = statistics.traffic.total_bytes() as f64;
        (statistics.changed_bytes > 0).then(|| written / statistics.changed_bytes as f64)
    }

    pub(super) fn to_json(&self) -> Value {
        let tally = &self.tally;
        let statistics = &tally.statistics;
        let two = |histogram: &Histogram| {
            let found = histogram.percentiles();
            json!({ "p50": found.p50, "max": found.max })
        };
        json!({
            "identical": self.difference.is_none(),
            "difference": self.difference,
            "repeatable": self.cause.map(|cause| cause != Cause::Program),
            "cause": self.cause,
            "kills": tally.kills,
            "kills_before_checkpoint": tally.kills_before_checkpoint,
            "kills_after_end": tally.kills_after_end,
            "resumes": tally.resumes,
            "restores": statistics.restores.count(),
            "runs": tally.runs,
            "seed": self.seed,
            "undisturbed_ms": self.undisturbed_ms,
            "ended": self.ended,
            "stdout_bytes": self.sizes.stdout_bytes,
            "stderr_bytes": self.sizes.stderr_bytes,
            "files": self.sizes.files,
            "file_bytes": self.sizes.file_bytes,
            "epochs": statistics.epochs,
            "stop_us": statistics.stops.percentiles(),
            "restore_ms": two(&statistics.restores),
            "lost_ms": two(&tally.lost_ms),
            "changed_bytes": statistics.changed_bytes,
            "bytes_written": statistics.traffic.total_bytes(),
            "bytes_per_changed_byte": self.amplification(),
            "refused": tally.refused,
            "went_without": tally.went_without,
        })
    }

    pub(super) fn print(&self) {
        match (&self.difference, self.cause) {
            (None, _) => println!("identical: {}\n", self.what_was_compared()),
            (Some(difference), Some(Cause::Refusal | Cause::Twinpage)) => {
                println!(
                    "DIFFERENT without any kill: {}\n",
                    difference.beside("under twinpage")
                );
            }
            (Some(difference), _) => println!("DIFFERENT: {}\n", difference.beside("with kills")),
        }
        match self.cause {
            Some(Cause::Program) => println!(
                "Two undisturbed runs differ as well: the program depends on time, chance or its surroundings,\nso this says nothing of the kills.\n"
            ),
            Some(Cause::Refusal) => {
                println!("The program did something else because calls were refused:");
                print_list(&self.tally.refused);
            }
            Some(Cause::Twinpage) if !self.tally.went_without.is_empty() => {
                println!(
                    "No call was refused but those below, which programs usually go on without. Otherwise the program\nnotices twinpage in another way. Please report it."
                );
                print_list(&self.tally.went_without);
            }
            Some(Cause::Twinpage) => println!(
                "No call was refused: the program notices twinpage in another way. Please report it.\n"
            ),
            Some(Cause::Kill) if !self.tally.refused.is_empty() => {
                println!("A run without kills is the same. Calls were refused, which may still be why:");
                print_list(&self.tally.refused);
            }
            Some(Cause::Kill) => println!("A run without kills is the same. Please report it.\n"),
            None => {}
        }
        self.rows().print();
    }

    fn what_was_compared(&self) -> String {
        let sizes = &self.sizes;
        format!(
            "stdout ({}), stderr ({}), {} ({}), {}",
            show::bytes(sizes.stdout_bytes),
            show::bytes(sizes.stderr_bytes),
            show::count(sizes.files, "file"),
            show::bytes(sizes.file_bytes),
            describe(self.ended),
        )
    }

    fn rows(&self) -> Rows {
        let tally = &self.tally;
        let statistics = &tally.statistics;
        let (stop, restore) = (statistics.stops.percentiles(), statistics.restores.percentiles());
        let lost = tally.lost_ms.percentiles();
        let mut rows = Rows::default();
        let mut others = String::new();
        if tally.kills_before_checkpoint > 0 {
            let early = tally.kills_before_checkpoint;
            others.push_str(&format!(
                "; {early} more before a first checkpoint, and begun anew"
            ));
        }
        if tally.kills_after_end > 0 {
            others.push_str(&format!("; {} more after the end", tally.kills_after_end));
        }
        rows.add(
            "kills",
            format!(
                "{} in {}, {}{others}; seed {}",
                tally.kills,
                show::count(tally.runs.into(), "run"),
                show::count(tally.resumes.into(), "resume"),
                self.seed
            ),
        );
        rows.add("undisturbed", show::ms(self.undisturbed_ms));
        let three = [stop.p50, stop.p99, stop.max].map(show::ms_of_us);
        if statistics.stops.count() > 0 {
            rows.add(
                "stops",
                format!("{} (p50), {} (p99), {} (max)", three[0], three[1], three[2]),
            );
        }
        let p50_max = |p50, max| format!("{} (p50), {} (max)", show::ms(p50), show::ms(max));
        if statistics.restores.count() > 0 {
            rows.add("restores", p50_max(restore.p50, restore.max));
        }
        if tally.lost_ms.count() > 0 {
            rows.add("work lost", p50_max(lost.p50, lost.max));
        }
        if let Some(amplification) = self.amplification() {
            rows.add(
                "written",
                format!(
                    "{amplification:.2} bytes for each byte changed ({} in {})",
                    show::bytes(statistics.traffic.total_bytes()),
                    show::count(statistics.epochs, "epoch")
                ),
            );
        }
        if self.difference.is_none() {
            for refusal in &tally.refused {
                rows.add("refused", refusal.clone());
            }
        }
        rows
    }
}

fn print_list(refusals: &[String]) {
    refusals.iter().for_each(|refusal| println!("  {refusal}"));
    println!();
}
