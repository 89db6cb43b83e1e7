//! `twinpage lab memory`: a memory alone, driven by a trace of requests.

use super::bar;
use crate::output::print_json;
use crate::show::Rows;
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use twinpage_lab::device::Device;
use twinpage_lab::drive::{Outcome, Request, drive};
use twinpage_lab::trace::{Event, Form, Trace};

pub(super) const EXAMPLES: &str = "Example:
  twinpage lab memory --trace requests.csv --config ddr3-1600k
  twinpage lab memory --trace ls.trc --form dramsim3 --config pcm --json

Devices: ddr3-1600k, pcm, pcm-mlc, stt-ram, rram, optane-like, ssp-nvram, simpo-nvram,
or a device file. Cycles of
the trace are cycles of the device.";

#[derive(Args, Debug)]
pub(crate) struct Drive {
    /// The requests: a trace in any form
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    /// Its form, where its content does not tell
    #[arg(long, value_name = "FORM")]
    form: Option<Form>,
    /// The device: a name or a device file
    #[arg(long, value_name = "FILE")]
    config: String,
    /// One JSON document on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    device: String,
    config_hash: String,
    #[serde(flatten)]
    outcome: Outcome,
    requests_per_cpu_s: f64,
}

pub(super) fn memory(arguments: &Drive) -> Result<ExitCode, String> {
    let device = Device::find(&arguments.config).map_err(|why| why.to_string())?;
    let requests = read(arguments)?;
    let begun = cpu_time();
    let outcome = drive(&device, requests);
    let seconds = (cpu_time() - begun).as_secs_f64();
    let resolved = serde_json::to_string(&device).map_err(|why| why.to_string())?;
    let report = Report {
        device: device.name.clone(),
        config_hash: twinpage_lab::config::hash(&resolved),
        requests_per_cpu_s: outcome.requests as f64 / seconds,
        outcome,
    };
    match arguments.json {
        true => print_json(&report)?,
        false => show(&report),
    }
    Ok(ExitCode::SUCCESS)
}

/// What this process has used of processors so far.
fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Loads and stores of the trace, one request a line, in its time.
fn read(arguments: &Drive) -> Result<Vec<Request>, String> {
    let trace = Trace::open(&arguments.trace, arguments.form).map_err(|why| why.to_string())?;
    let progress = trace.progress();
    let shown = bar(progress.total(), "bytes");
    let (mut requests, mut cycle) = (Vec::new(), 0);
    for record in trace {
        let record = record.map_err(|why| why.to_string())?;
        cycle += u64::from(record.after);
        let (at, size, write) = match record.event {
            Event::Load { at, size } | Event::Follow { at, size, .. } => (at, size, false),
            Event::Store { at, size, .. } => (at, size, true),
            Event::Persist { .. } | Event::Fence | Event::Commit => continue,
        };
        let last = at.saturating_add(u64::from(size).max(1) - 1);
        requests.extend((at / 64..=last / 64).map(|line| Request {
            cycle,
            at: line * 64,
            write,
        }));
        if requests.len() % (1 << 16) == 0 {
            shown.set_position(progress.read());
        }
    }
    shown.finish_and_clear();
    Ok(requests)
}

fn show(report: &Report) {
    let outcome = &report.outcome;
    let mut rows = Rows::default();
    rows.add("device", format!("{} {}", report.device, report.config_hash));
    rows.add(
        "requests",
        format!("{} in {:.3} ms", outcome.requests, outcome.time_ns / 1e6),
    );
    for (name, latency) in [("read", outcome.read_ns), ("write", outcome.write_ns)] {
        rows.add(
            name,
            format!(
                "mean {:.2} ns, median {:.2} ns, 99% {:.2} ns",
                latency.mean, latency.p50, latency.p99
            ),
        );
    }
    rows.add("bandwidth", format!("{:.2} GB/s", outcome.gb_per_s));
    rows.add("rows opened", outcome.activates.to_string());
    rows.add("energy", format!("{:.6} J", outcome.energy_j));
    rows.add(
        "simulated",
        format!("{:.2} M requests a CPU second", report.requests_per_cpu_s / 1e6),
    );
    rows.print();
}
