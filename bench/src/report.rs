//! Rows: what was measured, as a table and as JSON.

use crate::args::{Common, Contestant, EngineName, spelled};
use crate::medium::{self, Bandwidth};
use crate::open;
pub(crate) use crate::spread::Spread;
use crate::team::Task;
use crate::worker::{Slice, Waits};
use indicatif::ProgressBar;
use serde::Serialize;
use twinpage_commands::report::{document, table};

/// All that was measured.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) media: Vec<Bandwidth>,
    pub(crate) absent: Vec<Absent>,
    pub(crate) rows: Vec<Row>,
    pub(crate) opens: Vec<open::Row>,
}

/// An engine that is not measured, where it was asked for.
#[derive(Serialize)]
pub(crate) struct Absent {
    #[serde(flatten)]
    who: Contestant,
    workload: String,
    medium: &'static str,
    why: String,
}

impl Report {
    pub(crate) fn is_absent(&self, who: Contestant, task: Task<'_>) -> bool {
        let (workload, medium) = (spelled(task.workload), medium::name(task.in_memory));
        let mut all = self.absent.iter();
        all.any(|one| one.who == who && one.workload == workload && one.medium == medium)
    }

    /// Says at once that an engine is not measured, and why; the table says it again.
    pub(crate) fn leave_out(&mut self, who: Contestant, task: Task<'_>, why: String, progress: &ProgressBar) {
        let workload = spelled(task.workload);
        let medium = medium::name(task.in_memory);
        progress.suspend(|| eprintln!("twinpage bench: ABSENT: {who}, {workload} on a {medium}: {why}"));
        self.absent.push(Absent {
            who,
            workload,
            medium,
            why,
        });
    }

    pub(crate) fn json(&self, arguments: &Common) -> serde_json::Value {
        let rows = self.rows.iter().map(|row| serde_json::json!(row));
        let rows = rows.chain(self.opens.iter().map(|row| serde_json::json!(row)));
        document(serde_json::json!({
            "seconds": arguments.seconds,
            "repeat": arguments.repeat,
            "scale": arguments.scale,
            "seed": arguments.seed,
            "media": self.media,
            "absent": self.absent,
            "rows": rows.collect::<Vec<_>>(),
        }))
    }
}

/// One engine's repetitions in one setting.
pub(crate) struct Run<'a> {
    pub(crate) task: Task<'a>,
    pub(crate) who: Contestant,
    pub(crate) slices: &'a [Slice],
    /// Native's, in the same repetitions.
    pub(crate) native: &'a [Slice],
    pub(crate) waits: Waits,
}

/// One line of the table.
#[derive(Serialize, Clone, Debug)]
pub(crate) struct Row {
    workload: String,
    #[serde(flatten)]
    who: Contestant,
    medium: &'static str,
    /// `none`, `16ms`, `each operation`.
    durability: String,
    threads: u32,
    operations: u64,
    ops_per_s: f64,
    ops_per_s_min: f64,
    ops_per_s_max: f64,
    /// The median of the repetitions' ratios, and their spread.
    over_native: f64,
    over_native_min: f64,
    over_native_max: f64,
    /// How long writers stood still: in a commit, or for a capture.
    stop_us_p50: Option<f64>,
    stop_us_p99: Option<f64>,
    /// From the beginning of an operation until it was durable, where each is before the next.
    latency_us_p50: Option<f64>,
    latency_us_p99: Option<f64>,
    /// Fences of a memory file, over the sections.
    #[serde(skip_serializing_if = "Option::is_none")]
    fences_per_section: Option<f64>,
    /// Flushes of a disk, over the sections.
    #[serde(skip_serializing_if = "Option::is_none")]
    flushes_per_section: Option<f64>,
    commits_per_s: f64,
    written_bytes: Option<u64>,
    /// Over the bytes the operations changed.
    bytes_per_changed_byte: Option<f64>,
    /// Over the bytes of the lines that changed.
    bytes_per_changed_line_byte: Option<f64>,
    /// What the medium would carry of this engine's traffic, written one after the other.
    medium_ops_per_s: Option<f64>,
    /// The same, scattered over 256 MiB.
    medium_scattered_ops_per_s: Option<f64>,
    /// Whether 0.6 of native is more than what the medium carries, scattered.
    limit: Option<&'static str>,
    /// The result was compared with a model, after the store was closed and opened again.
    checked: bool,
}

fn ops(slice: &Slice) -> f64 {
    slice.operations as f64 / slice.seconds
}

impl Row {
    pub(crate) fn of(run: &Run<'_>, bandwidth: &Bandwidth) -> Row {
        let (slices, native) = (run.slices, run.native);
        let sum = |of: fn(&Slice) -> u64| slices.iter().map(of).sum::<u64>();
        let known = |of: fn(&Slice) -> Option<u64>| slices.iter().map(of).sum::<Option<u64>>();
        let speed = Spread::of(slices.iter().map(ops));
        let ratio = Spread::of(
            slices
                .iter()
                .zip(native)
                .map(|(own, native)| ops(own) / ops(native)),
        );
        let is_native = run.who.engine == EngineName::Native;
        let written = known(|slice| slice.written_bytes).filter(|_| !is_native);
        let lines = known(|slice| slice.changed_line_bytes).filter(|&bytes| bytes > 0);
        let operations = sum(|slice| slice.operations);
        let per = |bytes: u64| move |written: u64| written as f64 / bytes.max(1) as f64;
        let fences = known(|slice| slice.fences).map(per(operations));
        let carried = |bytes_per_s: f64| {
            let bytes = written.filter(|&bytes| bytes > 0)?;
            Some(bytes_per_s / per(operations)(bytes))
        };
        let scattered = carried(bandwidth.scattered_bytes_per_s);
        let native_ops_per_s = Spread::of(native.iter().map(ops)).median;
        let limit = scattered.map(|medium| match medium < 0.6 * native_ops_per_s {
            true => "medium",
            false => "native",
        });
        Row {
            workload: spelled(run.task.workload),
            who: run.who,
            medium: if is_native { "none" } else { bandwidth.medium },
            durability: match run.task.every {
                _ if is_native => "none".into(),
                Some(every) => format!("{}ms", every.as_secs_f64() * 1e3),
                None => "each operation".into(),
            },
            threads: run.task.threads,
            operations,
            ops_per_s: speed.median,
            ops_per_s_min: speed.min,
            ops_per_s_max: speed.max,
            over_native: ratio.median,
            over_native_min: ratio.min,
            over_native_max: ratio.max,
            stop_us_p50: run.waits.stops.map(|stops| stops.us_p50),
            stop_us_p99: run.waits.stops.map(|stops| stops.us_p99),
            latency_us_p50: run.waits.latency.map(|latency| latency.us_p50),
            latency_us_p99: run.waits.latency.map(|latency| latency.us_p99),
            fences_per_section: fences.filter(|_| run.task.in_memory),
            flushes_per_section: fences.filter(|_| !run.task.in_memory),
            commits_per_s: sum(|slice| slice.commits) as f64
                / slices.iter().map(|slice| slice.seconds).sum::<f64>(),
            written_bytes: written,
            bytes_per_changed_byte: written.map(per(sum(|slice| slice.changed_bytes))),
            bytes_per_changed_line_byte: lines.and_then(|lines| written.map(per(lines))),
            medium_ops_per_s: carried(bandwidth.sequential_bytes_per_s),
            medium_scattered_ops_per_s: scattered,
            limit,
            checked: true,
        }
    }
}

/// A number with three digits that count.
fn short(number: f64) -> String {
    match number {
        n if n >= 1e9 => format!("{:.2} G", n / 1e9),
        n if n >= 1e6 => format!("{:.2} M", n / 1e6),
        n if n >= 1e4 => format!("{:.0} k", n / 1e3),
        n if n >= 100.0 => format!("{n:.0}"),
        n if n >= 10.0 => format!("{n:.1}"),
        n => format!("{n:.3}"),
    }
}

fn maybe(number: Option<f64>) -> String {
    number.map_or_else(|| "-".into(), short)
}

pub(crate) fn print(report: &Report) {
    let mut media = table(["medium", "", "sequential B/s", "scattered 4 KiB B/s", "flush µs"]);
    for medium in &report.media {
        media.add_row([
            medium.path.clone(),
            medium.medium.to_owned(),
            short(medium.sequential_bytes_per_s),
            short(medium.scattered_bytes_per_s),
            short(medium.flush_us),
        ]);
    }
    println!("{media}\n");
    for absent in &report.absent {
        let Absent {
            who,
            workload,
            medium,
            why,
        } = absent;
        println!("ABSENT: {who}, {workload} on a {medium}: {why}");
    }
    let mut rows = table([
        "workload",
        "engine",
        "medium",
        "durable",
        "threads",
        "ops/s",
        "over native",
        "least to most",
        "stop p50 µs",
        "p99",
        "latency p50 µs",
        "p99",
        "fences/section",
        "written/changed",
        "written/line",
        "medium's ops/s",
        "limit",
    ]);
    for row in &report.rows {
        rows.add_row([
            row.workload.clone(),
            row.who.to_string(),
            row.medium.to_owned(),
            row.durability.clone(),
            row.threads.to_string(),
            short(row.ops_per_s),
            short(row.over_native),
            format!("{} to {}", short(row.over_native_min), short(row.over_native_max)),
            maybe(row.stop_us_p50),
            maybe(row.stop_us_p99),
            maybe(row.latency_us_p50),
            maybe(row.latency_us_p99),
            maybe(row.fences_per_section.or(row.flushes_per_section)),
            maybe(row.bytes_per_changed_byte),
            maybe(row.bytes_per_changed_line_byte),
            maybe(row.medium_scattered_ops_per_s),
            row.limit.unwrap_or("-").to_owned(),
        ]);
    }
    if !report.rows.is_empty() {
        println!("{rows}");
    }
    for open in &report.opens {
        println!(
            "\nopen of {} MiB after a kill, {}, {}, to the first read: {} ms ({} to {})",
            open.region_mib,
            open.who,
            open.medium,
            short(open.open_ms),
            short(open.open_ms_min),
            short(open.open_ms_max)
        );
    }
}
