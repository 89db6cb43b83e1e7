//! What was measured, as tables and as JSON.

use super::variant::{Variant, Workload};
use super::{Done, ObjectsArguments};
use crate::args::spelled;
use crate::medium;
use crate::report::Spread;
use crate::versions::Ratio;
use serde::Serialize;
use std::path::PathBuf;
use twinpage_commands::report::{document, table};

/// What is run in turns.
pub(super) struct Setting {
    pub(super) workload: Workload,
    pub(super) medium: PathBuf,
    pub(super) in_memory: bool,
    /// Nanoseconds that a line written takes longer.
    pub(super) line_delay: Option<u32>,
    pub(super) threads: u32,
    pub(super) variants: Vec<Variant>,
}

impl Setting {
    fn medium_name(&self) -> &'static str {
        match self.line_delay {
            Some(_) => "slower memory",
            None => medium::name(self.in_memory),
        }
    }
}

/// One variant in one setting.
#[derive(Serialize, Debug)]
struct Row {
    workload: String,
    engine: &'static str,
    medium: &'static str,
    durability: &'static str,
    threads: u32,
    runs: usize,
    ops_per_s: f64,
    ops_per_s_min: f64,
    ops_per_s_max: f64,
    /// Medians, of a deferrable call.
    #[serde(skip_serializing_if = "Option::is_none")]
    append_ns: Option<f64>,
    /// Bytes of the log for a call of a group of 100, and for one flushed alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_logged: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_logged_alone: Option<f64>,
    /// Of recovery, milliseconds: of the object, of the program; and of a million entries of calls that survived.
    #[serde(skip_serializing_if = "Option::is_none")]
    object_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    program_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    million_ms: Option<f64>,
    /// The same of object and program, as shares of the time that the calls took.
    #[serde(skip_serializing_if = "Option::is_none")]
    object_share: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    program_share: Option<f64>,
    /// Every run compared what it opened again with the calls it had counted.
    checked: bool,
}

/// The throughput of one variant over that of another.
#[derive(Serialize, Debug)]
struct Over {
    workload: String,
    of: &'static str,
    over: &'static str,
    medium: &'static str,
    threads: u32,
    #[serde(flatten)]
    ratio: Ratio,
}

#[derive(Serialize)]
pub(super) struct Absent {
    pub(super) engine: &'static str,
    pub(super) why: String,
}

/// All that was measured.
#[derive(Serialize, Default)]
pub(super) struct Report {
    pub(super) absent: Vec<Absent>,
    rows: Vec<Row>,
    ratios: Vec<Over>,
}

/// Which over which, what the paper says (AMD) and what is to be reached.
type Compared = (Variant, Variant, Option<f64>, Option<f64>);

/// Of the array (4.1.1).
#[rustfmt::skip]
const ARRAY: &[Compared] = {
    use Variant as V;
    &[
        (V::Grouped, V::Each, Some(2.2), None),
        (V::Grouped, V::GroupedCow, Some(1.51), None),
        (V::Grouped, V::Native, Some(0.91), Some(0.91)),
        (V::Fc, V::Grouped, Some(1.47), None),
        (V::Hybrid, V::Each, Some(2.2), None),
        (V::Hybrid, V::Cow, Some(1.51), None),
        (V::Hybrid, V::Native, Some(0.91), Some(0.91)),
        (V::Fc, V::Native, Some(1.47), None),
        (V::MServer, V::Native, Some(2.17), None),
        (V::MServer, V::Fc, None, Some(1.3)),
        (V::Simpo, V::Native, Some(2.5), Some(1.0)),
        (V::Simpo, V::Fc, None, None),
        (V::SimpoAll, V::Simpo, Some(0.8), None),
    ]
};

/// Of the stock (4.4), where Berkeley DB with transactions is the paper's BDB-FT.
const STOCK_GET: &[Compared] = &[
    (Variant::Simpo, Variant::Native, Some(0.98), Some(0.95)),
    (Variant::BerkeleyDb, Variant::Native, Some(0.79), None),
    (Variant::Simpo, Variant::BerkeleyDb, Some(0.98 / 0.79), Some(1.0)),
];
const STOCK_PUT: &[Compared] = &[
    (Variant::Simpo, Variant::Native, Some(1.33), None),
    (Variant::Simpo, Variant::BerkeleyDb, None, Some(5.0)),
];

fn compared(workload: Workload) -> &'static [Compared] {
    match workload {
        Workload::StockGet => STOCK_GET,
        Workload::StockPut => STOCK_PUT,
        _ => ARRAY,
    }
}

/// How much faster instant calls on a disk are to be than those of the best peer.
const OVER_PEER: f64 = 1.5;

type Runs = (Variant, Vec<Done>);

impl Report {
    pub(super) fn is_absent(&self, variant: Variant) -> bool {
        self.absent.iter().any(|one| one.engine == variant.name(false))
    }

    /// The runs of a setting.
    pub(super) fn add(&mut self, setting: &Setting, all: &[Runs]) {
        let there: Vec<&Runs> = all.iter().filter(|(_, runs)| !runs.is_empty()).collect();
        self.rows
            .extend(there.iter().map(|(variant, runs)| row(setting, *variant, runs)));
        let of = |wanted: Variant| there.iter().find(|(variant, _)| *variant == wanted).copied();
        let pairs = compared(setting.workload)
            .iter()
            .filter_map(|&(first, second, paper, reach)| {
                // The paper's are of NVRAM.
                let [paper, reach] = [paper, reach].map(|number| number.filter(|_| setting.in_memory));
                Some(over(setting, of(first)?, of(second)?, paper, reach))
            });
        self.ratios.extend(pairs);
        let median = |(_, runs): &&&Runs| Spread::of(runs.iter().map(Done::speed)).median;
        let peers = there.iter().filter(|(variant, _)| variant.is_peer());
        let best = peers.max_by(|a, b| median(a).total_cmp(&median(b)));
        if let (Some(own), Some(best)) = (of(Variant::SimpoAll), best) {
            let is_reached = setting.workload == Workload::Instant && !setting.in_memory;
            let reach = is_reached.then_some(OVER_PEER);
            self.ratios.push(over(setting, own, best, None, reach));
        }
    }

    pub(super) fn print(&self, arguments: &ObjectsArguments) {
        if arguments.json {
            let measured = serde_json::json!({
                "seconds": arguments.seconds,
                "repeat": arguments.repeat,
                "line_delay_ns": arguments.line_delay,
                "absent": self.absent,
                "rows": self.rows,
                "ratios": self.ratios,
            });
            println!("{:#}", document(measured));
            return;
        }
        self.show_rows();
        self.show_ratios();
        println!(
            "Medians of {}. Every run compared its store, opened again, with its calls.",
            arguments.repeat
        );
    }

    fn show_rows(&self) {
        let mut table = table([
            "workload",
            "medium",
            "threads",
            "variant",
            "K calls/s",
            "least",
            "most",
            "ns appended",
            "bytes logged",
            "alone",
            "ms object",
            "ms program",
            "durable",
        ]);
        for row in &self.rows {
            table.add_row([
                row.workload.clone(),
                row.medium.to_owned(),
                row.threads.to_string(),
                row.engine.to_owned(),
                format!("{:.1}", row.ops_per_s / 1e3),
                format!("{:.1}", row.ops_per_s_min / 1e3),
                format!("{:.1}", row.ops_per_s_max / 1e3),
                said(row.append_ns),
                said(row.bytes_logged),
                said(row.bytes_logged_alone),
                said(row.object_ms),
                said(row.program_ms),
                row.durability.to_owned(),
            ]);
        }
        println!("{table}");
    }

    fn show_ratios(&self) {
        let mut table = table([
            "calls/s of",
            "over",
            "workload",
            "medium",
            "threads",
            "ratio",
            "least",
            "most",
            "paper",
            "reach",
        ]);
        for row in &self.ratios {
            table.add_row([
                row.of.to_owned(),
                row.over.to_owned(),
                row.workload.clone(),
                row.medium.to_owned(),
                row.threads.to_string(),
                said(Some(row.ratio.ratio)),
                said(Some(row.ratio.ratio_min)),
                said(Some(row.ratio.ratio_max)),
                said(row.ratio.paper),
                said(row.ratio.reach),
            ]);
        }
        println!("{table}");
    }
}

fn said(number: Option<f64>) -> String {
    number.map_or(String::new(), |number| format!("{number:.2}"))
}

fn row(setting: &Setting, variant: Variant, runs: &[Done]) -> Row {
    let speeds = Spread::of(runs.iter().map(Done::speed));
    let median = |of: fn(&Done) -> Option<f64>| {
        let known: Vec<f64> = runs.iter().filter_map(of).collect();
        (!known.is_empty()).then(|| Spread::of(known.into_iter()).median)
    };
    Row {
        workload: spelled(setting.workload),
        engine: variant.name(setting.in_memory),
        medium: setting.medium_name(),
        durability: variant.durability(),
        threads: setting.threads,
        runs: runs.len(),
        ops_per_s: speeds.median,
        ops_per_s_min: speeds.min,
        ops_per_s_max: speeds.max,
        append_ns: median(|done| done.append_ns),
        bytes_logged: median(|done| Some(done.logged?[0])),
        bytes_logged_alone: median(|done| Some(done.logged?[1])),
        object_ms: median(|done| Some(done.recovered?.object_s * 1e3)),
        program_ms: median(|done| Some(done.recovered?.program_s * 1e3)),
        million_ms: median(|done| done.recovered?.million_ms()),
        object_share: median(|done| Some(done.recovered?.object_s / done.seconds)),
        program_share: median(|done| Some(done.recovered?.program_s / done.seconds)),
        checked: !runs.is_empty(),
    }
}

fn over(setting: &Setting, of: &Runs, over: &Runs, paper: Option<f64>, reach: Option<f64>) -> Over {
    let pairs = of.1.iter().zip(&over.1);
    Over {
        workload: spelled(setting.workload),
        of: of.0.name(setting.in_memory),
        over: over.0.name(setting.in_memory),
        medium: setting.medium_name(),
        threads: setting.threads,
        ratio: Ratio {
            paper,
            reach,
            ..Ratio::of(pairs.map(|(of, over)| of.speed() / over.speed()))
        },
    }
}
