//! `twinpage bench objects`: the microbenchmark of SIMPO (4.1), an array of 500 elements whose methods are called by
//! many threads; instant calls beside other stores; what a deferrable call costs its caller; recovery; and the stock of
//! TPC-C (4.4).
//!
//! Each run is a process of its own that calls for some time, opens its store again, compares it with the calls it
//! counted, and says what it did. Runs of all variants take turns.

mod arguments;
mod grid;
mod native;
mod peers;
mod recovery;
mod redis;
mod report;
mod stock;
mod team;
mod variant;

use crate::engine::{Result, StoreOptions};
use crate::engines::{BerkeleyDb, Stored};
use crate::medium;
use crate::subject::{answer, own};
use indicatif::ProgressBar;
use report::{Absent, Report, Setting};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;

pub(crate) use arguments::{ObjectArguments, ObjectsArguments};
use variant::{Variant, Workload};

/// What one run did.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub(crate) struct Done {
    /// Until all calls are as durable as the variant makes them.
    seconds: f64,
    calls: u64,
    /// Nanoseconds of an appended deferrable call, the median of its batches.
    append_ns: Option<f64>,
    /// Bytes of the log for a call: of a hundred that are flushed together, and of one alone.
    logged: Option<[f64; 2]>,
    recovered: Option<recovery::Recovered>,
}

impl Done {
    fn speed(&self) -> f64 {
        self.calls as f64 / self.seconds
    }
}

pub(crate) fn bench(arguments: &ObjectsArguments) -> Result<()> {
    let mut report = Report::default();
    let settings = settings(arguments)?;
    let steps: usize = settings.iter().map(|setting| setting.variants.len()).sum();
    let progress = ProgressBar::new((steps * usize::from(arguments.repeat)) as u64);
    for setting in settings {
        let mut all: Vec<(Variant, Vec<Done>)> = setting
            .variants
            .iter()
            .map(|&variant| (variant, Vec::new()))
            .collect();
        for _ in 0..arguments.repeat {
            for (variant, runs) in &mut all {
                progress.inc(1);
                if report.is_absent(*variant) {
                    continue;
                }
                match run(*variant, &setting, arguments) {
                    Ok(done) => runs.push(done),
                    Err(why) if variant.may_be_absent() && runs.is_empty() => {
                        progress
                            .suspend(|| eprintln!("twinpage bench: ABSENT: {}: {why}", variant.name(false)));
                        report.absent.push(Absent {
                            engine: variant.name(setting.in_memory),
                            why,
                        });
                    }
                    Err(why) => return Err(format!("{}: {why}", variant.name(setting.in_memory))),
                }
            }
        }
        report.add(&setting, &all);
    }
    progress.finish_and_clear();
    report.print(arguments);
    Ok(())
}

/// Every workload on every medium with every number of threads, and the variants that have a place there.
fn settings(arguments: &ObjectsArguments) -> Result<Vec<Setting>> {
    let mut places = Vec::new();
    for medium in arguments.media() {
        let in_memory = medium::is_memory(&medium)?;
        let slower = arguments.line_delay.filter(|_| in_memory);
        let delays = [None].into_iter().chain(slower.map(Some));
        places.extend(delays.map(|line_delay| (medium.clone(), in_memory, line_delay)));
    }
    let mut settings = Vec::new();
    for &workload in &arguments.workload {
        for (medium, in_memory, line_delay) in &places {
            for &threads in workload.threads(arguments) {
                let there = |variant: &Variant| {
                    variant.has_place(workload, *in_memory) && !(line_delay.is_some() && variant.is_peer())
                };
                settings.push(Setting {
                    workload,
                    medium: medium.clone(),
                    in_memory: *in_memory,
                    line_delay: *line_delay,
                    threads,
                    variants: arguments.variant.iter().copied().filter(there).collect(),
                });
            }
        }
    }
    Ok(settings)
}

/// One run, in a process of its own.
fn run(variant: Variant, setting: &Setting, arguments: &ObjectsArguments) -> Result<Done> {
    let place = tempfile::tempdir_in(&setting.medium)
        .map_err(|error| format!("cannot make a directory in {}: {error}", setting.medium.display()))?;
    let mut command = own(&["object", "--variant", &crate::args::spelled(variant)])?;
    command
        .args(["--workload", &crate::args::spelled(setting.workload)])
        .args(["--threads", &setting.threads.to_string()])
        .args(["--items", &arguments.items.to_string()])
        .args(["--calls", &arguments.calls.to_string()])
        .args(["--seconds", &arguments.seconds.to_string()])
        .args(["--line-delay", &setting.line_delay.unwrap_or(0).to_string()])
        .arg("--place")
        .arg(place.path())
        // libpmemobj flushes cache lines on any memory then.
        .env("PMEM_IS_PMEM_FORCE", "1");
    answer(&mut command)
}

/// Does the one run that `arguments` ask for.
pub(crate) fn object(arguments: &ObjectArguments) -> Result<()> {
    twinpage_os::memory::delay_lines(Duration::from_nanos(arguments.line_delay.into()));
    let done = match (arguments.workload, arguments.variant) {
        (Workload::Append, _) => grid::append(arguments)?,
        (Workload::Recovery, _) if arguments.is_killed => recovery::first_life(arguments)?,
        (Workload::Recovery, _) => recovery::run(arguments)?,
        (Workload::StockGet | Workload::StockPut, variant) => match variant {
            Variant::Native => stock::native(arguments)?,
            Variant::BerkeleyDb => stock::peer::<Stored<BerkeleyDb>>(arguments)?,
            _ => stock::object(arguments)?,
        },
        (_, Variant::Native) => native::run(arguments)?,
        (_, Variant::Simpo | Variant::SimpoAll | Variant::Fc | Variant::MServer) => grid::object(arguments)?,
        (_, Variant::Each | Variant::Grouped | Variant::GroupedCow | Variant::Hybrid | Variant::Cow) => {
            grid::region(arguments)?
        }
        (_, Variant::Redis) => redis::run(arguments)?,
        (_, peer) => peers::run(peer, arguments)?,
    };
    println!("{}", serde_json::json!(done));
    Ok(())
}

fn place(directory: &Path) -> Result<StoreOptions> {
    Ok(StoreOptions {
        directory: directory.to_owned(),
        pace: crate::engine::Pace::Each,
        form: crate::args::Form::default(),
        in_memory: medium::is_memory(directory)?,
        scale: 1.0,
    })
}
