//! `twinpage lab run`: one scheme, one workload, one machine.

use crate::output::print_json;
use crate::show::{Rows, bytes};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use twinpage_lab::config::Described;
use twinpage_lab::experiment::{Experiment, Report};
use twinpage_lab::machine::Sample;
use twinpage_lab::quantity::Time;
use twinpage_lab::schemes::SchemeName;
use twinpage_lab::sweep::{Axis, Sweep};
use twinpage_lab::whole_file;

pub(super) const EXAMPLES: &str = "Example:
  twinpage lab run --scheme dual-page --workload tatp --smaller 16
  twinpage lab run --scheme dual-page --workload pagerank --smaller 64 --overlap --json
  twinpage lab run --scheme dual-page --workload echo --smaller 64 --crash-at 3.5ms
  twinpage lab run --scheme dual-page undo-log --workload tatp --smaller 64 --sweep nvm.channels=1,2,4 --out channels

Machines: dpc, twins, or a file. The exit code is 1 when what a crash left is not a checkpoint.";

#[derive(Args, Debug)]
pub(crate) struct Run {
    /// The scheme that keeps NVM consistent; several give a table of runs
    #[arg(long, value_name = "SCHEME", num_args = 1.., required = true)]
    pub(super) scheme: Vec<SchemeName>,
    /// The workload, or several
    #[arg(long, value_name = "WORKLOAD", num_args = 1.., required = true)]
    pub(super) workload: Vec<String>,
    /// Change a value of the machine, such as nvm.channels=2
    #[arg(long, value_name = "KEY=VALUE")]
    pub(super) set: Vec<String>,
    /// Run with each of these values, such as nvm.channels=1,2,4; several --sweep run every combination
    #[arg(long, value_name = "KEY=VALUE,...")]
    pub(super) sweep: Vec<Axis>,
    /// Of several runs, write sweep.csv, sweep.json and sweep.svg into this folder
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// Of several runs, that many at a time [default: one on each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub(super) jobs: Option<u64>,
    /// The machine: dpc, twins, or a machine file
    #[arg(long, value_name = "FILE", default_value = "dpc")]
    pub(super) config: String,
    /// Make the machine, the workload and the run smaller by this power of two
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) smaller: u64,
    /// Instructions to count, of all cores together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) instructions: Option<u64>,
    /// Instructions before counting begins
    #[arg(long, value_name = "N")]
    pub(super) warm_up: Option<u64>,
    /// Overlap checkpoints with execution
    #[arg(long)]
    pub(super) overlap: bool,
    /// Everything random follows from it
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub(super) seed: u64,
    /// Cut the power so long after counting began, recover, and check
    #[arg(long, value_name = "TIME")]
    pub(super) crash_at: Option<Time>,
    /// Print the resolved machine and stop
    #[arg(long)]
    pub(super) print_config: bool,
    /// Write what each epoch had to this file, as CSV
    #[arg(long, value_name = "FILE")]
    pub(super) epochs: Option<PathBuf>,
    /// One JSON document on standard output
    #[arg(long)]
    pub(super) json: bool,
}

impl Run {
    /// Whether more than one run is asked for.
    pub(super) fn is_sweep(&self) -> bool {
        !self.sweep.is_empty() || self.scheme.len() > 1 || self.workload.len() > 1
    }

    /// What the arguments ask for.
    pub(super) fn asked(&self) -> Sweep {
        Sweep {
            machine: self.config.clone(),
            set: self.set.clone(),
            axes: self.sweep.clone(),
            schemes: self.scheme.clone(),
            workloads: self.workload.clone(),
            smaller: self.smaller,
            overlap: self.overlap,
            instructions: self.instructions,
            warm_up: self.warm_up,
            seed: self.seed,
            jobs: self.jobs.map(|jobs| jobs as usize),
        }
    }
}

pub(super) fn run(arguments: &Run) -> Result<ExitCode, String> {
    if arguments.out.is_some() {
        return Err("--out is for several runs; of one, --json tells all and --epochs its epochs".into());
    }
    let config = arguments.asked().config(&[])?;
    if arguments.print_config {
        println!("{}", config.resolved());
        return Ok(ExitCode::SUCCESS);
    }
    let experiment = Experiment {
        scheme: arguments.scheme[0],
        workload: arguments.workload[0].clone(),
        scale: 1.0 / arguments.smaller as f64,
        seed: arguments.seed,
        crash_fs: arguments.crash_at.map(|Time(fs)| fs),
        config,
    };
    if let Some(path) = &arguments.epochs {
        whole_file::check(path)?;
    }
    let report = experiment.run()?;
    let took = Duration::from_nanos(report.outcome.time_ns);
    cut_in_time(arguments.crash_at, report.recovery.is_some(), took)?;
    match arguments.json {
        true => print_json(&report)?,
        false => show(&report),
    }
    if let Some(path) = &arguments.epochs {
        whole_file::write(path, &series(&report.outcome.epochs))?;
    }
    let whole = report
        .recovery
        .as_ref()
        .is_none_or(|recovery| recovery.consistent);
    Ok(if whole {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

/// An error if the run ended before the power failure that was asked for: no recovery was checked.
fn cut_in_time(crash_at: Option<Time>, was_cut: bool, took: Duration) -> Result<(), String> {
    match crash_at {
        Some(Time(fs)) if !was_cut => Err(format!(
            "--crash-at {:.1?}: the run ended before, after {took:.1?}; cut earlier, or ask for a longer run",
            Duration::from_nanos(fs / 1_000_000),
        )),
        _ => Ok(()),
    }
}

/// A line for each epoch: what it alone had.
fn series(epochs: &[Sample]) -> String {
    let mut text =
        "epoch,instructions,time_ns,stop_ns,nvm_writes,nvm_reads,dram_hits,dram_misses,pages,dirty_lines\n"
            .to_owned();
    let mut before = [0; 9];
    for (number, sample) in epochs.iter().enumerate() {
        let now = [
            sample.instructions,
            sample.time_ns,
            sample.stop_ns,
            sample.nvm_writes,
            sample.nvm_reads,
            sample.dram_hits,
            sample.dram_misses,
            sample.pages,
            sample.lines,
        ];
        let own = now
            .iter()
            .zip(before)
            .map(|(now, before)| format!(",{}", now - before));
        text += &format!("{}{}\n", number + 1, own.collect::<String>());
        before = now;
    }
    text
}

fn show(report: &Report) {
    let outcome = &report.outcome;
    let time = |ns: f64| format!("{:.1?}", Duration::from_nanos(ns as u64));
    let mut rows = Rows::default();
    rows.add("machine", format!("{} {}", report.config, report.config_hash));
    rows.add("scheme", report.scheme.name());
    rows.add(
        "workload",
        format!("{}, {}", report.workload, bytes(outcome.footprint_bytes)),
    );
    rows.add("ended by", outcome.ended.to_string());
    rows.add(
        "instructions",
        format!("{} in {}", outcome.instructions, time(outcome.time_ns as f64)),
    );
    rows.add("instructions a core and cycle", format!("{:.3}", outcome.ipc));
    rows.add(
        "DRAM cache misses",
        format!("{:.2}%", outcome.dram_miss_rate * 100.0),
    );
    rows.add(
        "lines read for each written",
        format!("{:.2}", outcome.read_write_ratio),
    );
    let share = outcome.checkpoint_share * 100.0;
    rows.add(
        "checkpoints",
        format!(
            "{}, {} early, {share:.1}% of the time",
            outcome.checkpoints, outcome.early_checkpoints
        ),
    );
    let latency = &outcome.latency_ns;
    rows.add(
        "stop, median and 99%",
        format!("{}, {}", time(latency.stop.p50), time(latency.stop.p99)),
    );
    rows.add(
        "end of epoch to durable",
        format!(
            "{}, {}",
            time(latency.checkpoint.p50),
            time(latency.checkpoint.p99)
        ),
    );
    rows.add(
        "transaction",
        format!(
            "{}, {}",
            time(latency.transaction.p50),
            time(latency.transaction.p99)
        ),
    );
    let writes = &outcome.nvm_writes;
    rows.add(
        "NVM lines written",
        format!(
            "{}: {} evicted, {} for room, {} at checkpoints, {} in commits",
            writes.total, writes.eviction, writes.pre_allocation, writes.checkpoint, writes.commit
        ),
    );
    let stall = &outcome.stall_ns;
    rows.add(
        "core time lost",
        format!(
            "{} to DRAM, {} to NVM, {} to stores, {} to checkpoints, {} idle",
            time(stall.dram as f64),
            time(stall.nvm as f64),
            time(stall.store as f64),
            time(stall.checkpoint as f64),
            time(stall.idle as f64)
        ),
    );
    let wear = &outcome.wear;
    rows.add(
        "wear, writes of a line",
        format!("median {}, 99% {}, most {}", wear.p50, wear.p99, wear.max),
    );
    rows.add(
        "energy",
        format!(
            "{:.3} J DRAM, {:.3} J NVM",
            outcome.energy_j.dram, outcome.energy_j.nvm
        ),
    );
    if let Some(recovery) = &report.recovery {
        let found = match &recovery.why {
            None => "exactly that checkpoint".to_owned(),
            Some(why) => format!("WRONG: {why}"),
        };
        rows.add("power cut after", time(outcome.time_ns as f64));
        rows.add(
            "recovered",
            format!(
                "epoch {}, {} of {} batches: {found}",
                recovery.epoch, recovery.batches, recovery.batches_run
            ),
        );
    }
    rows.print();
}
