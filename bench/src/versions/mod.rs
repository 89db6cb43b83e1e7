//! `twinpage bench versions`: the SPS programs of MSS (4), every variant and its peers, in one run.
//!
//! And beside them: steps of planes, and the opening of arrays after a kill.
//!
//! Each run is a process of its own that swaps, checks that the strings are the permutation that the swaps make of the
//! first, and says what it did. Runs of all variants take turns.

mod arguments;
mod arrays;
mod peers;
mod programs;
mod ratios;
mod strings;
mod tables;
mod variant;

use crate::engine::Result;
use crate::spread::Spread;
use crate::subject::{answer, own};
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use twinpage_commands::report::document;

use arguments::Part;
pub(crate) use arguments::{ArrayArguments, SpsArguments, VersionsArguments};
pub(crate) use arrays::array;
pub(crate) use ratios::Ratio;
pub(crate) use variant::Variant;

/// What one run did.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    /// Of the swaps, until all are durable where they are made so.
    seconds: f64,
    /// Swaps that changed something: two different strings.
    swaps: u64,
    /// Instructions: cache lines written back or streamed, and fences.
    write_backs: u64,
    fences: u64,
    /// Bytes stored into strings, versions, logs and checkpoints.
    stored_bytes: u64,
    /// Hand-overs to the persistence thread, and how often an update waited.
    persists: Option<u64>,
    version_waits: Option<u64>,
    pace_waits: Option<u64>,
}

/// One variant at one number of swaps.
#[derive(Serialize, Debug)]
struct Row {
    workload: &'static str,
    engine: &'static str,
    medium: &'static str,
    durability: &'static str,
    threads: u32,
    write_back: Option<&'static str>,
    fence: Option<&'static str>,
    swaps: u64,
    runs: usize,
    ops_per_s: f64,
    ops_per_s_min: f64,
    ops_per_s_max: f64,
    /// Throughput over that of L, and of LCS, run by run.
    over_l: Option<f64>,
    over_lcs: Option<f64>,
    /// For each swap.
    write_backs: f64,
    fences: f64,
    stored_bytes: f64,
    /// Hand-overs for each swap: the persistence threshold reached.
    threshold: Option<f64>,
    version_waits: Option<u64>,
    pace_waits: Option<u64>,
    /// Every run compared its strings with what the swaps make of the first.
    checked: bool,
}

#[derive(Serialize)]
struct Absent {
    engine: &'static str,
    why: String,
}

/// All that was measured.
#[derive(Serialize, Default)]
struct Report {
    absent: Vec<Absent>,
    rows: Vec<Row>,
    ratios: Vec<ratios::Row>,
    planes: Vec<arrays::PlanesRow>,
    opens: Vec<arrays::OpenRow>,
}

pub(crate) fn bench(arguments: &VersionsArguments) -> Result<()> {
    let mut report = Report::default();
    let wanted = |part| arguments.part.contains(&part);
    if wanted(Part::Sps) {
        programs_of_sps(arguments, &mut report)?;
    }
    if wanted(Part::Planes) {
        report.planes = arrays::planes(arguments)?;
    }
    if wanted(Part::Open) {
        report.opens = arrays::opens(arguments)?;
    }
    if arguments.json {
        let mut measured = serde_json::json!({
            "strings": arguments.strings,
            "seed": arguments.seed,
            "threshold": arguments.threshold,
            "log_entries": arguments.log_entries,
        });
        let serde_json::Value::Object(fields) = serde_json::json!(report) else {
            return Err("a report has fields".into());
        };
        measured.as_object_mut().expect("an object").extend(fields);
        println!("{:#}", document(measured));
    } else {
        tables::show(&report, arguments);
    }
    Ok(())
}

fn programs_of_sps(arguments: &VersionsArguments, report: &mut Report) -> Result<()> {
    let variants = arguments.variants();
    let steps = variants.len() * arguments.swaps.len() * usize::from(arguments.repeat);
    let progress = ProgressBar::new(steps as u64);
    for &swaps in &arguments.swaps {
        let mut all: Vec<(Variant, Vec<Done>)> =
            variants.iter().map(|&variant| (variant, Vec::new())).collect();
        for _ in 0..arguments.repeat {
            for (variant, runs) in &mut all {
                progress.set_message(variant.name());
                if !is_absent(&report.absent, *variant) {
                    match run(*variant, swaps, arguments) {
                        Ok(done) => runs.push(done),
                        Err(why) if variant.may_be_absent() => {
                            progress
                                .suspend(|| eprintln!("twinpage bench: ABSENT: {}: {why}", variant.name()));
                            report.absent.push(Absent {
                                engine: variant.name(),
                                why,
                            });
                        }
                        Err(why) => return Err(format!("{}: {why}", variant.name())),
                    }
                }
                progress.inc(1);
            }
        }
        let of = |wanted: Variant| all.iter().find(|(variant, _)| *variant == wanted);
        let [l, lcs] = [Variant::L, Variant::Lcs].map(|wanted| of(wanted).map(|(_, runs)| &runs[..]));
        let there = all.iter().filter(|(_, runs)| !runs.is_empty());
        let rows = there.map(|(variant, runs)| row(*variant, runs, l, lcs, arguments));
        report.rows.extend(rows);
        report.ratios.extend(ratios::rows(swaps, &all));
    }
    progress.finish_and_clear();
    Ok(())
}

fn is_absent(absent: &[Absent], variant: Variant) -> bool {
    absent.iter().any(|one| one.engine == variant.name())
}

/// One run, in a process of its own.
fn run(variant: Variant, swaps: u64, arguments: &VersionsArguments) -> Result<Done> {
    let at = if variant.is_on_disk() {
        arguments.disk()
    } else {
        arguments.memory.clone()
    };
    let place = tempfile::tempdir_in(&at)
        .map_err(|error| format!("cannot make a directory in {}: {error}", at.display()))?;
    let mut command = own(&["sps", "--variant", variant.name()])?;
    command
        .args(["--swaps", &swaps.to_string()])
        .args(["--strings", &arguments.strings.to_string()])
        .args(["--threshold", &arguments.threshold.to_string()])
        .args(["--log-entries", &arguments.log_entries.to_string()])
        .args(["--seed", &arguments.seed.to_string()])
        .arg("--place")
        .arg(place.path())
        // libpmemobj flushes cache lines on any memory then.
        .env("PMEM_IS_PMEM_FORCE", "1");
    answer(&mut command)
}

/// Does the one run that `arguments` ask for.
pub(crate) fn sps(arguments: &SpsArguments) -> Result<()> {
    let done = programs::run(arguments)?;
    println!("{}", serde_json::json!(done));
    Ok(())
}

fn speed(done: &Done) -> f64 {
    done.swaps as f64 / done.seconds
}

fn row(
    variant: Variant,
    runs: &[Done],
    l: Option<&[Done]>,
    lcs: Option<&[Done]>,
    arguments: &VersionsArguments,
) -> Row {
    let speeds = Spread::of(runs.iter().map(speed));
    let over = |other: Option<&[Done]>| {
        let other = other.filter(|other| !other.is_empty())?;
        let ratios = runs
            .iter()
            .zip(other)
            .map(|(own, other)| speed(own) / speed(other));
        Some(Spread::of(ratios).median)
    };
    let swaps = runs[0].swaps;
    let sum = |of: fn(&Done) -> u64| runs.iter().map(of).sum::<u64>();
    let each = |of: fn(&Done) -> u64| sum(of) as f64 / sum(|done| done.swaps) as f64;
    let known = |of: fn(&Done) -> Option<u64>| runs.iter().map(of).sum::<Option<u64>>();
    let instructions = variant.instructions();
    Row {
        workload: "sps",
        engine: variant.name(),
        medium: if variant.is_on_disk() {
            "disk file"
        } else {
            "memory file"
        },
        durability: variant.durability(),
        threads: 1,
        write_back: instructions.write_back,
        fence: instructions.fence,
        swaps,
        runs: runs.len(),
        ops_per_s: speeds.median,
        ops_per_s_min: speeds.min,
        ops_per_s_max: speeds.max,
        over_l: over(l),
        over_lcs: over(lcs),
        write_backs: each(|done| done.write_backs),
        fences: each(|done| done.fences),
        stored_bytes: each(|done| done.stored_bytes),
        threshold: known(|done| done.persists)
            .map(|persists| persists as f64 / sum(|done| done.swaps) as f64),
        version_waits: known(|done| done.version_waits),
        pace_waits: known(|done| done.pace_waits),
        checked: arguments.repeat > 0,
    }
}
