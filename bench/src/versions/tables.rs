//! Tables of what was measured.

use super::Report;
use super::arguments::VersionsArguments;
use twinpage_commands::report::table;

/// The report, for a person.
pub(crate) fn show(report: &Report, arguments: &VersionsArguments) {
    if !report.rows.is_empty() {
        sps(report, arguments);
        ratios(report);
    }
    if !report.planes.is_empty() {
        planes(report);
    }
    for row in &report.opens {
        println!(
            "open of {} MiB of {} after a kill, to the first value read: {:.1} ms ({:.1} to {:.1}; reach {:.0})",
            row.array_mib, row.engine, row.open_ms, row.open_ms_min, row.open_ms_max, row.reach_ms
        );
    }
}

fn said(number: Option<f64>) -> String {
    number.map_or(String::new(), |number| format!("{number:.2}"))
}

fn ratios(report: &Report) {
    let mut table = table([
        "throughput of",
        "over",
        "swaps",
        "ratio",
        "least",
        "most",
        "paper",
        "reach",
    ]);
    for row in &report.ratios {
        table.add_row([
            row.of.to_owned(),
            row.over.to_owned(),
            row.swaps.to_string(),
            said(Some(row.ratio.ratio)),
            said(Some(row.ratio.ratio_min)),
            said(Some(row.ratio.ratio_max)),
            said(row.ratio.paper),
            said(row.ratio.reach),
        ]);
    }
    println!("{table}");
}

fn planes(report: &Report) {
    let mut table = table([
        "planes", "MiB", "step ms", "base ms", "ratio", "least", "most", "reach",
    ]);
    for row in &report.planes {
        table.add_row([
            row.engine.to_owned(),
            row.plane_mib.to_string(),
            format!("{:.1}", row.step_ms),
            format!("{:.1}", row.base_ms),
            said(Some(row.ratio.ratio)),
            said(Some(row.ratio.ratio_min)),
            said(Some(row.ratio.ratio_max)),
            said(row.ratio.reach),
        ]);
    }
    println!("{table}");
}

fn sps(report: &Report, arguments: &VersionsArguments) {
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
    for row in &report.rows {
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
