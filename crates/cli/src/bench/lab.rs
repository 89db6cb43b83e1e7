//! `twinpage bench lab`: how fast the simulator simulates.

use crate::args::LabArguments;
use serde::Serialize;
use std::process::ExitCode;
use twinpage_commands::report::{document, median, table};
use twinpage_lab::speed::{self, Load, RAMULATOR_KILO, Ran};

/// Workloads that miss the DRAM cache seldom, sometimes, and often.
const WORKLOADS: [&str; 3] = ["flann", "pagerank", "tatp"];
/// Requests of a run of a memory.
const REQUESTS: u64 = 1_000_000;

/// One measured setting: medians over the repeats.
#[derive(Serialize)]
struct Row {
    what: &'static str,
    unit: &'static str,
    per_cpu_s: f64,
    slowest: f64,
    fastest: f64,
    /// What Ramulator 2.1 does of the same.
    ramulator_per_cpu_s: Option<f64>,
    /// Pages missed, and lines read from the DRAM cache, for every 1000 instructions.
    page_misses: Option<f64>,
    line_reads: Option<f64>,
}

pub(crate) fn bench(arguments: &LabArguments) -> Result<ExitCode, String> {
    let rows = measure(arguments)?;
    match arguments.json {
        true => {
            let measured = serde_json::json!({
                "smaller": arguments.smaller,
                "instructions": arguments.instructions,
                "rows": rows,
            });
            println!("{:#}", document(measured));
        }
        false => show(&rows, arguments),
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(arguments: &LabArguments) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for (what, load, peer) in [
        (
            "random reads, saturated",
            Load::Saturated,
            Some(RAMULATOR_KILO * 1e3),
        ),
        ("random reads, light", Load::Light, None),
    ] {
        let speeds = repeat(arguments, || speed::requests(load, REQUESTS))?;
        rows.push(Row {
            ramulator_per_cpu_s: peer,
            ..row(what, "requests", speeds)
        });
    }
    for workload in WORKLOADS {
        let runs = repeat(arguments, || {
            speed::instructions(workload, arguments.smaller, arguments.instructions)
        })?;
        let Ran {
            page_misses,
            line_reads,
            ..
        } = runs[0];
        let speeds = runs.iter().map(|run| run.instructions_per_s).collect();
        rows.push(Row {
            page_misses: Some(page_misses),
            line_reads: Some(line_reads),
            ..row(workload, "instructions", speeds)
        });
    }
    Ok(rows)
}

fn repeat<T>(arguments: &LabArguments, run: impl Fn() -> Result<T, String>) -> Result<Vec<T>, String> {
    (0..arguments.repeat).map(|_| run()).collect()
}

fn row(what: &'static str, unit: &'static str, mut speeds: Vec<f64>) -> Row {
    let per_cpu_s = median(&mut speeds);
    Row {
        what,
        unit,
        per_cpu_s,
        slowest: speeds[0],
        fastest: speeds[speeds.len() - 1],
        ramulator_per_cpu_s: None,
        page_misses: None,
        line_reads: None,
    }
}

fn show(rows: &[Row], arguments: &LabArguments) {
    let millions = |number: f64| format!("{:.2}", number / 1e6);
    let said = |number: Option<f64>, digits: usize| {
        number.map_or(String::new(), |number| format!("{number:.digits$}"))
    };
    let mut table = table([
        "simulated",
        "unit",
        "M a CPU second",
        "slowest",
        "fastest",
        "Ramulator 2.1",
        "over it",
        "pages missed / 1000",
        "lines read / 1000",
    ]);
    for row in rows {
        table.add_row([
            row.what.to_owned(),
            row.unit.to_owned(),
            millions(row.per_cpu_s),
            millions(row.slowest),
            millions(row.fastest),
            row.ramulator_per_cpu_s.map_or(String::new(), millions),
            said(row.ramulator_per_cpu_s.map(|peer| row.per_cpu_s / peer), 1),
            said(row.page_misses, 1),
            said(row.line_reads, 1),
        ]);
    }
    println!("{table}");
    println!(
        "Medians of {}. Memory: DDR3-1600K, {REQUESTS} requests. Machine: DPC's, {} times smaller, the dual page, {} M\n\
         instructions after a warm-up. Ramulator's number is not of this run.",
        arguments.repeat,
        arguments.smaller,
        arguments.instructions / 1_000_000,
    );
}
