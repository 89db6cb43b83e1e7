//! Rows: what follows from the runs, beside what the paper says.

use super::runs::{Key, Other, Run, Runs};
use crate::bus::{Config, Counts};
use crate::eval;
use crate::workload::sps::ALL;
use std::collections::BTreeMap;

/// A number beside the paper's.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    /// The number. `workload` is how many swaps.
    #[serde(flatten)]
    pub row: eval::Row,
    /// The run it is of, and the one it is relative to.
    pub of: Vec<String>,
    /// What those counted, where the row is of energy: it can be computed again.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, Counts>,
}

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

/// The lab's other memories.
const DEVICES: [&str; 5] = ["stt-ram", "rram", "pcm", "pcm-mlc", "optane-like"];
/// Programs shown on them.
const SHOWN: [&str; 4] = ["lcs", "ics", "tcs", "tcs-clwb"];
/// Programs of the sweeps.
const SWEPT: [&str; 2] = ["tcm", "tcs"];
/// What the paper leaves open.
const OPEN: [(&str, Other); 5] = [
    ("as in the machine file", Other::Nothing),
    ("durable in the cells", Other::Cells),
    ("only the last swap persisted", Other::Last),
    ("a log of an eighth", Other::Log(0.125)),
    ("a log of eight times", Other::Log(8.0)),
];
/// The ratios shown for each choice.
const HEADLINES: [(&str, &str); 4] = [
    ("lcs", "l"),
    ("ics", "lcs"),
    ("tcs", "lcs"),
    ("tcs-clwb", "lcs-clwb"),
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
    let known = |name: &String| ARTIFACTS.iter().any(|(known, _)| known == name);
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        let known: Vec<&str> = ARTIFACTS.iter().map(|(name, _)| *name).collect();
        return Err(format!(
            "mss has no artifact {unknown}; it has {}",
            known.join(", ")
        ));
    }
    let is_chosen = |name: &&'static str| names.is_empty() || names.iter().any(|chosen| chosen == name);
    Ok(ARTIFACTS
        .iter()
        .map(|(name, _)| *name)
        .filter(is_chosen)
        .map(Artifact)
        .collect())
}

/// Programs of Figures 4 and 5: all but those without a log and with a disk or checkpoints.
fn compared() -> impl Iterator<Item = &'static str> {
    let is_compared = |name: &&str| !["none", "dl", "l-ckpt"].contains(name);
    ALL.iter().map(|variant| variant.name).filter(is_compared)
}

/// What of a run is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Measure {
    Time,
    Throughput,
    L1Misses,
    L1MissRate,
    Accesses,
    Reads,
    Writes,
    MemoryEnergy,
    ProcessorEnergy,
    Energy,
    DeviceEnergy,
}

impl Measure {
    fn name(self) -> &'static str {
        match self {
            Measure::Time => "time",
            Measure::Throughput => "throughput",
            Measure::L1Misses => "L1 misses",
            Measure::L1MissRate => "L1 miss rate",
            Measure::Accesses => "memory accesses",
            Measure::Reads => "memory reads",
            Measure::Writes => "memory writes",
            Measure::MemoryEnergy => "memory energy",
            Measure::ProcessorEnergy => "processor energy",
            Measure::Energy => "energy",
            Measure::DeviceEnergy => "energy by the device",
        }
    }

    /// Of a swap; a rate as it is.
    fn of(self, run: &Run) -> f64 {
        let counts = &run.counts;
        let whole = match self {
            Measure::Throughput => return counts.per_second(),
            Measure::L1MissRate => return counts.l1_miss_rate(),
            Measure::Time => counts.time_fs as f64 * 1e-6,
            Measure::L1Misses => counts.l1_misses as f64,
            Measure::Accesses => counts.accesses() as f64,
            Measure::Reads => counts.reads as f64,
            Measure::Writes => counts.writes as f64,
            Measure::MemoryEnergy => run.energy_j.memory_j * 1e9,
            Measure::ProcessorEnergy => run.energy_j.processor_j * 1e9,
            Measure::Energy => run.energy_j.total_j() * 1e9,
            Measure::DeviceEnergy => counts.device_j * 1e9,
        };
        whole / counts.transactions as f64
    }

    fn is_energy(self) -> bool {
        use Measure as M;
        matches!(
            self,
            M::MemoryEnergy | M::ProcessorEnergy | M::Energy | M::DeviceEnergy
        )
    }
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

/// Rows of one artifact.
struct Table<'a> {
    artifact: &'static str,
    config: &'a Config,
    runs: &'a Runs,
}

impl Table<'_> {
    fn swaps(&self) -> &[u64] {
        &self.config.study.swaps
    }

    fn run(&self, key: &Key) -> &Run {
        self.runs.get(self.config, key)
    }

    /// What the paper says of a series, at so many swaps.
    fn paper(&self, series: &str, swaps: u64) -> Option<f64> {
        let is_last = swaps == self.swaps()[self.swaps().len() - 1];
        said(self.artifact, series, is_last)
    }

    fn row(
        &self,
        series: &str,
        workload: &str,
        paper: Option<f64>,
        ours: f64,
        unit: &'static str,
        of: &[&Run],
    ) -> Row {
        let is_far = paper.is_some_and(|paper| (ours / paper - 1.0).abs() > 0.15);
        Row {
            row: eval::Row {
                artifact: self.artifact,
                series: series.into(),
                workload: workload.into(),
                paper,
                ours,
                plus_minus: None,
                unit,
                note: is_far.then(|| of.iter().map(|run| evidence(run)).collect::<Vec<_>>().join("; ")),
            },
            of: of.iter().map(|run| run.name.clone()).collect(),
            counts: BTreeMap::new(),
        }
    }

    /// A measure of a run over that of another.
    fn ratio(&self, series: &str, measure: Measure, key: &Key, over: &Key) -> Row {
        let (run, over) = (self.run(key), self.run(over));
        let ours = measure.of(run) / measure.of(over);
        let paper = self.paper(series, key.swaps);
        let mut row = self.row(
            series,
            &format!("{} swaps", key.swaps),
            paper,
            ours,
            "ratio",
            &[run, over],
        );
        if measure.is_energy() {
            row.counts = [run, over]
                .into_iter()
                .map(|run| (run.name.clone(), run.counts))
                .collect();
        }
        row
    }

    /// Each measure of some programs over another's.
    fn over(&self, base: &str, names: &[&str], measures: &[Measure]) -> Vec<Row> {
        let mut rows = Vec::new();
        for &swaps in self.swaps() {
            for measure in measures {
                for name in names {
                    let series = format!("{name} over {base}: {}", measure.name());
                    rows.push(self.ratio(
                        &series,
                        *measure,
                        &Key::plain(name, swaps),
                        &Key::plain(base, swaps),
                    ));
                }
            }
        }
        rows
    }

    /// Pairs of programs.
    fn pairs(&self, measure: Measure, pairs: &[(&str, &str)]) -> Vec<Row> {
        pairs
            .iter()
            .flat_map(|(name, base)| self.over(base, &[name], &[measure]))
            .collect()
    }

    /// Every program over Logging, then some pairs.
    fn figure(&self, measure: Measure, pairs: &[(&str, &str)]) -> Vec<Row> {
        let mut rows = Vec::new();
        for &swaps in self.swaps() {
            for name in compared() {
                rows.push(self.ratio(name, measure, &Key::plain(name, swaps), &Key::plain("l", swaps)));
            }
        }
        rows.extend(self.pairs(measure, pairs));
        rows
    }

    /// A part of every program's energy over all of Logging's.
    fn shares(&self, measure: Measure) -> Vec<Row> {
        let mut rows = Vec::new();
        for &swaps in self.swaps() {
            let base = self.run(&Key::plain("l", swaps));
            for name in compared() {
                let run = self.run(&Key::plain(name, swaps));
                let ours = measure.of(run) / Measure::Energy.of(base);
                let series = format!("{name}: {}", measure.name());
                let mut row = self.row(
                    &series,
                    &format!("{swaps} swaps"),
                    None,
                    ours,
                    "ratio",
                    &[run, base],
                );
                row.counts = [run, base]
                    .into_iter()
                    .map(|run| (run.name.clone(), run.counts))
                    .collect();
                rows.push(row);
            }
        }
        rows
    }

    /// Energy and throughput by threshold, over the first; then the threshold of the least energy.
    fn sweep(&self, swaps: u64) -> Vec<Row> {
        let thresholds = &self.config.study.thresholds;
        let mut rows = Vec::new();
        for name in SWEPT {
            let key = |threshold: f64| Key::plain(name, swaps).with(Other::Threshold(threshold));
            let mut least = (f64::INFINITY, 0.0);
            for &threshold in thresholds {
                let run = self.run(&key(threshold));
                let energy = Measure::Energy.of(run);
                if energy < least.0 {
                    least = (energy, threshold);
                }
                for measure in [Measure::Energy, Measure::Throughput] {
                    let series = format!("{name}: {}", measure.name());
                    let mut row = self.ratio(&series, measure, &key(threshold), &key(thresholds[0]));
                    row.row.workload = format!("threshold {threshold}");
                    rows.push(row);
                }
                let reached = run.threshold.unwrap_or(0.0);
                let series = format!("{name}: persists for each swap");
                let workload = format!("threshold {threshold}");
                rows.push(self.row(&series, &workload, Some(threshold), reached, "ratio", &[run]));
            }
            let series = format!("{name}: threshold of the least energy");
            let workload = format!("{swaps} swaps");
            rows.push(self.row(
                &series,
                &workload,
                Some(0.6),
                least.1,
                "ratio",
                &[self.run(&key(least.1))],
            ));
        }
        rows
    }

    /// Each device's swaps a second, and its energy a swap.
    fn devices(&self) -> Vec<Row> {
        let swaps = self.swaps()[self.swaps().len() - 1];
        let own = std::iter::once((self.config.memory.name.as_str(), Other::Nothing));
        let all = own.chain(DEVICES.into_iter().map(|device| (device, Other::Device(device))));
        let mut rows = Vec::new();
        for (device, other) in all {
            for name in SHOWN {
                let run = self.run(&Key::plain(name, swaps).with(other));
                let speed = Measure::Throughput.of(run) / 1e3;
                rows.push(self.row(
                    &format!("{device}: throughput"),
                    name,
                    None,
                    speed,
                    "1000/s",
                    &[run],
                ));
                for measure in [Measure::MemoryEnergy, Measure::DeviceEnergy] {
                    let series = format!("{device}: {}", measure.name());
                    let mut row = self.row(&series, name, None, measure.of(run), "nJ/swap", &[run]);
                    row.counts.insert(run.name.clone(), run.counts);
                    rows.push(row);
                }
            }
        }
        rows
    }

    /// The main ratios of throughput and energy by each choice.
    fn open(&self) -> Vec<Row> {
        let swaps = self.swaps()[self.swaps().len() - 1];
        let mut rows = Vec::new();
        for (name, base) in HEADLINES {
            for measure in [Measure::Throughput, Measure::Energy] {
                for (choice, other) in OPEN {
                    let [key, over] = [name, base].map(|name| Key::plain(name, swaps).with(other));
                    let series = format!("{name} over {base}: {}", measure.name());
                    let mut row = self.ratio(&series, measure, &key, &over);
                    row.row.workload = choice.into();
                    rows.push(row);
                }
            }
        }
        rows
    }
}

/// What the paper's text says: of the larger number of swaps where it does not say which.
fn said(artifact: &str, series: &str, is_last: bool) -> Option<f64> {
    if !is_last {
        return None;
    }
    let all: &[(&str, f64)] = match artifact {
        // "introduces 3x energy overhead ...; execution time remains similar"
        "fig1" => &[
            ("l-ckpt over none: memory energy", 3.0),
            ("l-ckpt over none: time", 1.0),
        ],
        // "23.7x operation throughput improvement and 16.1x energy reduction"
        "disk" => &[("l over dl: throughput", 23.7), ("l over dl: energy", 1.0 / 16.1)],
        // "degrade system performance by more than 1.6x"; "TCS ... achieves 2.3x throughput of logging mechanisms"
        "fig4a" => &[
            ("lcm", 1.0 / 1.6),
            ("lcs", 1.0 / 1.6),
            ("tcs over lcs: throughput", 2.3),
        ],
        // "increases L1 cache miss rate by 10% compared with LCS"; "TCM and TCS reduce L1 cache miss rate by 53%"
        "fig4b" => &[
            ("ics over lcs: L1 miss rate", 1.10),
            ("tcs over lcs: L1 miss rate", 0.47),
        ],
        // "LCM and LCS result in more than doubled memory access"
        "fig4c" => &[("lcm", 2.0), ("lcs", 2.0)],
        // "2.4x energy reduction compared with LCS"
        "fig5" => &[("lcs over tcs: energy", 2.4)],
        _ => &[],
    };
    all.iter()
        .find(|(name, _)| *name == series)
        .map(|(_, number)| *number)
}

/// What was counted in a run, for each swap.
fn evidence(run: &Run) -> String {
    let counts = &run.counts;
    let each = |count: u64| count as f64 / counts.transactions as f64;
    format!(
        "{}: {:.0} ns a swap, {:.0} of them at fences, {:.1} lines read, {:.1} written, {:.1} written back by \
         instructions, {:.1} L1 misses of {:.1} accesses, {:.0} instructions, {:.0} ns of the disk",
        run.name,
        each(counts.time_fs) * 1e-6,
        each(counts.fence_stall_fs) * 1e-6,
        each(counts.reads),
        each(counts.writes),
        each(counts.write_backs + counts.streams),
        each(counts.l1_misses),
        each(counts.l1_accesses),
        each(counts.instructions),
        each(counts.disk_fs) * 1e-6,
    )
}
