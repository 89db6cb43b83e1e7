//! Artifacts: the figures and sentences that are repeated, the runs and the rows of each.

use super::choices::{DEVICES, HEADLINES, OPEN, SHOWN, SWEPT, compared};
use super::measure::Measure;
use super::rows::{Row, Table};
use super::runs::{Key, Other, Runs};
use crate::bus::Config;
use crate::eval::each;

/// All artifacts, and what they show.
pub const ARTIFACTS: [(&str, &str); 11] = [
    (
        "fig1",
        "No fault tolerance, redo logging, and redo logging with checkpoints",
    ),
    (
        "fig2",
        "Write-order control: a log with flushes and fences over one without",
    ),
    ("disk", "Logging in memory over logging to a disk (4.1)"),
    ("fig4a", "Swaps a second, over Logging"),
    ("fig4b", "L1 miss rate, over Logging"),
    ("fig4c", "Memory accesses, over Logging"),
    ("fig5", "Dynamic energy, over Logging"),
    (
        "fig6",
        "Persistence threshold, fewer swaps: energy and swaps a second over 0.2",
    ),
    (
        "fig7",
        "Persistence threshold, more swaps: energy and swaps a second over 0.2",
    ),
    (
        "devices",
        "Other memories: swaps a second, and energy by the device's own model",
    ),
    (
        "open",
        "What the paper leaves open: the same ratios by each choice",
    ),
];

/// What an artifact shows.
pub(super) fn title(artifact: &str) -> &'static str {
    let found = ARTIFACTS.iter().find(|(name, _)| *name == artifact);
    found.map_or("", |(_, title)| title)
}

/// One of [`ARTIFACTS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Artifact(&'static str);

/// The artifacts named; all if none is.
pub(super) fn chosen(names: &[String]) -> Result<Vec<Artifact>, String> {
    let names = each::chosen("mss", &ARTIFACTS, names)?;
    Ok(names.into_iter().map(Artifact).collect())
}

impl Artifact {
    /// The runs it needs.
    pub(super) fn keys(self, config: &Config) -> Vec<Key> {
        let swaps = &config.study.swaps;
        let (least, most) = (swaps[0], swaps[swaps.len() - 1]);
        let each = |names: Vec<&str>| -> Vec<Key> {
            let of = |&swaps: &u64| {
                names
                    .iter()
                    .map(move |name| Key::plain(name, swaps))
                    .collect::<Vec<_>>()
            };
            swaps.iter().flat_map(of).collect()
        };
        let sweep = |swaps: u64| -> Vec<Key> {
            let all = config.study.thresholds.iter();
            let of = |&threshold: &f64| {
                SWEPT.map(|name| Key::plain(name, swaps).with(Other::Threshold(threshold)))
            };
            all.flat_map(of).collect()
        };
        match self.0 {
            "fig1" => each(vec!["none", "l", "l-ckpt"]),
            "fig2" => each(vec!["l", "lcm"]),
            "disk" => each(vec!["l", "dl"]),
            "fig6" => sweep(least),
            "fig7" => sweep(most),
            "devices" => {
                let of = |device| SHOWN.map(|name| Key::plain(name, most).with(Other::Device(device)));
                let own = SHOWN.map(|name| Key::plain(name, most));
                own.into_iter().chain(DEVICES.into_iter().flat_map(of)).collect()
            }
            "open" => {
                let both = |other| move |(a, b)| [a, b].map(|name| Key::plain(name, most).with(other));
                OPEN.into_iter()
                    .flat_map(|(_, other)| HEADLINES.into_iter().flat_map(both(other)))
                    .collect()
            }
            _ => each(compared().collect()),
        }
    }

    pub(super) fn rows(self, config: &Config, runs: &Runs) -> Vec<Row> {
        use Measure as M;
        let table = Table {
            artifact: self.0,
            config,
            runs,
        };
        let swaps = &config.study.swaps;
        match self.0 {
            "fig1" => table.over(
                "none",
                &["l", "l-ckpt"],
                &[M::Time, M::MemoryEnergy, M::Reads, M::Writes],
            ),
            "fig2" => table.over(
                "l",
                &["lcm"],
                &[M::Time, M::MemoryEnergy, M::L1Misses, M::Accesses],
            ),
            "disk" => table.over("dl", &["l"], &[M::Throughput, M::Energy]),
            "fig4a" => table.figure(M::Throughput, &[("tcs", "lcs"), ("tcm", "lcm")]),
            "fig4b" => table.figure(
                M::L1MissRate,
                &[("ics", "lcs"), ("icm", "lcm"), ("tcs", "lcs"), ("tcm", "lcm")],
            ),
            "fig4c" => {
                let pairs = [("ics", "lcs"), ("tcs", "lcs"), ("im", "icm"), ("ts", "tcs")];
                let mut rows = table.figure(M::Accesses, &pairs);
                for measure in [M::Reads, M::Writes] {
                    rows.extend(table.over("lcs", &["ics", "icm"], &[measure]));
                }
                rows
            }
            "fig5" => {
                let mut rows = Vec::new();
                for measure in [M::MemoryEnergy, M::ProcessorEnergy, M::Energy] {
                    rows.extend(table.shares(measure));
                }
                rows.extend(table.pairs(M::Energy, &[("lcs", "tcs"), ("lcs-clwb", "tcs-clwb")]));
                rows.extend(table.pairs(M::MemoryEnergy, &[("ics", "lcs"), ("icm", "lcs")]));
                rows
            }
            "fig6" => table.sweep(swaps[0]),
            "fig7" => table.sweep(swaps[swaps.len() - 1]),
            "devices" => table.devices(),
            _ => table.open(),
        }
    }
}
