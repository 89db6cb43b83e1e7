//! `twinpage lab workloads`: which there are, and what they are like.

use super::bar;
use clap::Args;
use comfy_table::Table;
use serde::Serialize;
use std::process::ExitCode;
use twinpage_lab::characteristics::{Caches, Measured, measure};
use twinpage_lab::workload::list::{self, Characteristics, Setting};

pub(super) const EXAMPLES: &str = "Example:
  twinpage lab workloads
  twinpage lab workloads --measure --scale 0.1 pagerank tatp
  twinpage lab workloads --measure trace:bzip2.trace,cc1.trace
  twinpage lab workloads --measure sps:lcs

Measured as DPC's Table 5 has it: at a DRAM cache of pages (256 MB at scale 1) behind 128 KB of cache for each
core and 2 MB shared. The paper's numbers are in brackets. Every run checks its own results.";

#[derive(Args, Debug)]
pub(crate) struct Workloads {
    /// Measure them, do not only list them
    #[arg(long)]
    measure: bool,
    /// Footprint, and caches, as a share of the paper's
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    scale: f64,
    /// Cores
    #[arg(long, value_name = "N", default_value_t = 4)]
    cores: usize,
    /// Everything random follows from it
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Instructions measured of each, all cores together
    #[arg(long, value_name = "N", default_value_t = 1_500_000_000)]
    instructions: u64,
    /// Instructions that run before
    #[arg(long, value_name = "N", default_value_t = 500_000_000)]
    warm_up: u64,
    /// One JSON document on standard output
    #[arg(long)]
    json: bool,
    /// Which [default: all]
    #[arg(value_name = "WORKLOAD")]
    names: Vec<String>,
}

#[derive(Serialize)]
struct Row {
    workload: String,
    about: Option<&'static str>,
    paper: Option<Numbers>,
    ours: Option<Ours>,
}

#[derive(Serialize)]
struct Numbers {
    miss_percent: f64,
    read_write_ratio: f64,
    footprint_mb: f64,
}

#[derive(Serialize)]
struct Ours {
    #[serde(flatten)]
    numbers: Numbers,
    instructions: u64,
    loads: u64,
    stores: u64,
    dram_reads: u64,
    dram_writes: u64,
    touched_mb: f64,
    accesses_per_s: f64,
}

impl From<Characteristics> for Numbers {
    fn from(found: Characteristics) -> Numbers {
        Numbers {
            miss_percent: found.miss_percent,
            read_write_ratio: found.read_write_ratio,
            footprint_mb: found.footprint_mb,
        }
    }
}

impl From<Measured> for Ours {
    fn from(measured: Measured) -> Ours {
        Ours {
            numbers: measured.characteristics().into(),
            instructions: measured.instructions,
            loads: measured.loads,
            stores: measured.stores,
            dram_reads: measured.reads,
            dram_writes: measured.writes,
            touched_mb: measured.touched_bytes as f64 / 1e6,
            accesses_per_s: measured.accesses_per_s,
        }
    }
}

pub(super) fn workloads(arguments: &Workloads) -> Result<ExitCode, String> {
    let names: Vec<String> = match &arguments.names[..] {
        [] => list::all().iter().map(|entry| entry.name.to_owned()).collect(),
        names => names.to_vec(),
    };
    let mut rows = Vec::new();
    for name in names {
        let entry = list::find(&name);
        // Made also where it is only listed: a wrong name is an error.
        let mut ours = None;
        if arguments.measure {
            ours = Some(measured(arguments, &name)?);
        } else if entry.is_none() {
            list::make(&name, &setting(arguments))?;
        }
        rows.push(Row {
            workload: name,
            about: entry.map(|entry| entry.about),
            paper: entry.and_then(|entry| entry.paper).map(Numbers::from),
            ours,
        });
    }
    if arguments.json {
        let document = serde_json::json!({
            "scale": arguments.scale, "cores": arguments.cores, "seed": arguments.seed, "rows": rows,
        });
        println!("{document}");
    } else {
        println!("{}", table(arguments, &rows));
    }
    Ok(ExitCode::SUCCESS)
}

fn setting(arguments: &Workloads) -> Setting {
    Setting {
        scale: arguments.scale,
        cores: arguments.cores,
        seed: arguments.seed,
    }
}

fn measured(arguments: &Workloads, name: &str) -> Result<Ours, String> {
    let mut workload = list::make(name, &setting(arguments))?;
    let bar = bar(
        arguments.warm_up.saturating_add(arguments.instructions),
        "instructions",
    );
    bar.set_message(name.to_owned());
    let found = measure(
        &mut *workload,
        arguments.cores,
        &Caches::paper(arguments.scale),
        arguments.warm_up,
        arguments.instructions,
        |done| bar.set_position(done),
    );
    bar.finish_and_clear();
    let why = |why| format!("{name} (seed {}): its result is wrong: {why}", arguments.seed);
    Ok(found.map_err(why)?.into())
}

fn table(arguments: &Workloads, rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::UTF8_HORIZONTAL_ONLY);
    if !arguments.measure {
        table.set_header(["workload", "what it does"]);
        for row in rows {
            table.add_row([&row.workload, row.about.unwrap_or("a trace")]);
        }
        return table;
    }
    table.set_header([
        "workload",
        "DRAM cache miss %",
        "DRAM read/write",
        "footprint MB",
        "touched MB",
        "load/store",
        "M accesses/s",
    ]);
    for row in rows {
        let Some(ours) = &row.ours else { continue };
        let beside = |ours: f64, paper: fn(&Numbers) -> f64, digits: usize| match &row.paper {
            Some(numbers) => format!("{ours:.digits$} ({:.digits$})", paper(numbers)),
            None => format!("{ours:.digits$}"),
        };
        table.add_row([
            row.workload.clone(),
            beside(ours.numbers.miss_percent, |paper| paper.miss_percent, 2),
            beside(ours.numbers.read_write_ratio, |paper| paper.read_write_ratio, 2),
            beside(ours.numbers.footprint_mb, |paper| paper.footprint_mb, 0),
            format!("{:.0}", ours.touched_mb),
            format!("{:.2}", ours.loads as f64 / ours.stores.max(1) as f64),
            format!("{:.0}", ours.accesses_per_s / 1e6),
        ]);
    }
    table
}
