//! `twinpage bench versions`: the SPS programs of MSS (4), every variant and its peers, in one run.
//!
//! Each run is a process of its own that swaps, checks that the strings are the permutation that the swaps make of the
//! first, and says what it did. Runs of all variants take turns.

mod programs;
mod variant;

use crate::args::{SpsArguments, VersionsArguments};
use crate::engine::Result;
use crate::report::Spread;
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use std::process::Command;
use twinpage_cli::report::{machine, table};
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

pub(crate) fn bench(arguments: &VersionsArguments) -> Result<()> {
    let variants = arguments.variants();
    let steps = variants.len() * arguments.swaps.len() * usize::from(arguments.repeat);
    let progress = ProgressBar::new(steps as u64);
    let (mut rows, mut absent) = (Vec::new(), Vec::new());
    for &swaps in &arguments.swaps {
        let mut all: Vec<(Variant, Vec<Done>)> =
            variants.iter().map(|&variant| (variant, Vec::new())).collect();
        for _ in 0..arguments.repeat {
            for (variant, runs) in &mut all {
                progress.set_message(variant.name());
                if !is_absent(&absent, *variant) {
                    match run(*variant, swaps, arguments) {
                        Ok(done) => runs.push(done),
                        Err(why) if variant.may_be_absent() => {
                            progress
                                .suspend(|| eprintln!("twinpage bench: ABSENT: {}: {why}", variant.name()));
                            absent.push(Absent {
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
        rows.extend(there.map(|(variant, runs)| row(*variant, runs, l, lcs, arguments)));
    }
    progress.finish_and_clear();
    if arguments.json {
        let document = serde_json::json!({
            "machine": machine(),
            "strings": arguments.strings,
            "seed": arguments.seed,
            "threshold": arguments.threshold,
            "log_entries": arguments.log_entries,
            "absent": absent,
            "rows": rows,
        });
        println!("{document:#}");
    } else {
        show(&rows, arguments);
    }
    Ok(())
}

fn is_absent(absent: &[Absent], variant: Variant) -> bool {
    absent.iter().any(|one| one.engine == variant.name())
}

/// One run, in a process of its own.
fn run(variant: Variant, swaps: u64, arguments: &VersionsArguments) -> Result<Done> {
    let program = std::env::current_exe().map_err(|error| format!("cannot find itself: {error}"))?;
    let at = if variant.is_on_disk() {
        arguments.disk()
    } else {
        arguments.memory.clone()
    };
    let place = tempfile::tempdir_in(&at)
        .map_err(|error| format!("cannot make a directory in {}: {error}", at.display()))?;
    let output = Command::new(program)
        .args(["sps", "--variant", variant.name()])
        .args(["--swaps", &swaps.to_string()])
        .args(["--strings", &arguments.strings.to_string()])
        .args(["--threshold", &arguments.threshold.to_string()])
        .args(["--log-entries", &arguments.log_entries.to_string()])
        .args(["--seed", &arguments.seed.to_string()])
        .arg("--place")
        .arg(place.path())
        // libpmemobj flushes cache lines on any memory then.
        .env("PMEM_IS_PMEM_FORCE", "1")
        .output()
        .map_err(|error| format!("cannot start a process: {error}"))?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        return Err(told.trim().trim_start_matches("twinpage bench: ").to_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("it said something else: {error}"))
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

fn show(rows: &[Row], arguments: &VersionsArguments) {
    let mut table = table([
        "variant",
        "swaps",
        "K swaps/s",
        "least",
        "most",
        "over L",
        "over LCS",
        "write-backs/swap",
        "fences/swap",
        "bytes stored/swap",
        "threshold",
        "waits",
        "durability",
    ]);
    let said = |number: Option<f64>| number.map_or(String::new(), |number| format!("{number:.2}"));
    for row in rows {
        table.add_row([
            row.engine.to_owned(),
            row.swaps.to_string(),
            format!("{:.1}", row.ops_per_s / 1e3),
            format!("{:.1}", row.ops_per_s_min / 1e3),
            format!("{:.1}", row.ops_per_s_max / 1e3),
            said(row.over_l),
            said(row.over_lcs),
            format!("{:.2}", row.write_backs),
            format!("{:.2}", row.fences),
            format!("{:.0}", row.stored_bytes),
            said(row.threshold),
            row.version_waits.map_or(String::new(), |waits| waits.to_string()),
            row.durability.to_owned(),
        ]);
    }
    println!("{table}");
    println!(
        "Medians of {}; {} strings of 256 bytes. Every run checked its strings.",
        arguments.repeat, arguments.strings
    );
}
