//! Artifacts: the figures and tables that are repeated, and the runs of each.

use super::runs::{Key, LOADS, Load, Other, REAL};
use crate::eval::each;
use crate::sections::{Config, Name};
use crate::workload::maps::NODES;

/// All artifacts, and what they show.
pub const ARTIFACTS: [(&str, &str); 17] = [
    ("fig5a", "Sections a second, one thread: over UNDO-LOG"),
    ("fig5b", "Sections a second, four threads: over UNDO-LOG"),
    ("fig6", "Logging writes of a section: over UNDO-LOG"),
    ("fig7a", "NVRAM writes of a section: over UNDO-LOG"),
    ("fig7b", "What SSP writes: share of all its writes"),
    (
        "fig8",
        "Latency of NVRAM, in that of DRAM: thousand sections a second",
    ),
    (
        "fig9",
        "Latency of the SSP cache, in cycles: throughput over REDO-LOG",
    ),
    (
        "table3",
        "Write sets: lines and pages of a section, and the most pages",
    ),
    (
        "table4",
        "Real workloads, four clients: throughput of SSP over the others",
    ),
    ("table5", "Real workloads: NVRAM writes saved by SSP"),
    (
        "real",
        "Real workloads: logging writes saved, and what SSP writes",
    ),
    ("tlb", "A smaller TLB: consolidation's share of SSP's writes"),
    ("background", "SSP's background thread: whether it keeps up"),
    (
        "variants",
        "SSP otherwise: over SSP as it is; sections on the fall-back path",
    ),
    ("open", "What the paper leaves open: throughput by each choice"),
    ("cost", "Hardware cost, in bytes"),
    ("claims", "The sentences of the evaluation: which hold"),
];

/// The programs of a B+-tree.
pub(super) const TREES: [Load; 2] = [LOADS[0], LOADS[4]];
/// Threads of Figure 5b.
pub(super) const THREADS: usize = 4;
/// Programs of Figure 8.
pub(super) const SWEPT: [Load; 2] = [LOADS[1], LOADS[0]];
/// Table 2's latency of a write, in that of DRAM.
const TABLE: u64 = 4;
/// Instructions between sections in Figure 8, beside the programs' own. The paper's axis ends at 200 thousand sections a
/// second, 5 µs each: its sections have more code around them than the programs here.
pub(super) const BETWEEN: [u32; 3] = [0, 5_000, 20_000];
/// What the paper leaves open of the real workloads: instructions outside their data, for each access to it; whether these
/// are within sections; and whether clients ever wait for one another.
pub(super) const REAL_OPEN: [(&str, Other); 5] = [
    ("no code outside the data", Other::Outside(0)),
    ("250 instructions for each access", Other::Outside(250)),
    ("2500 instructions for each access", Other::Outside(2500)),
    (
        "code within Memcached's sections, behind Vacation's",
        Other::Moved,
    ),
    ("one lock", Other::Shared),
];
/// Entries of the smaller TLB.
pub(super) const SMALL_TLB: usize = 8;
/// SSP as it could be otherwise, with four threads: sub-pages as large as Optane's writes, shoot-downs for messages (4.3),
/// consolidation when slots are short (3.4), and the fall-back path (3.5), with a write-set buffer so small that programs
/// need it.
pub(super) const VARIANTS: [(&str, Other); 4] = [
    ("sub-pages of 256 bytes", Other::SubPages(4)),
    ("shoot-downs", Other::ShootDowns),
    ("lazy consolidation", Other::Lazy),
    ("a write-set buffer of 2 pages", Other::Buffer(2)),
];
/// What the paper leaves open, the threads it is shown with, and the programs.
pub(super) const OPEN: [(&str, Other, usize); 17] = [
    ("as in the machine file", Other::Nothing, 1),
    ("durable in the queue", Other::Queue, 1),
    ("NVRAM reads as slow as writes", Other::Latency(4), 1),
    ("lines interleaved over banks", Other::Interleaved, 1),
    ("lines of logs in different banks", Other::Spread, 1),
    ("nodes of 512 bytes in the B+-tree", Other::Nodes(NODES[0]), 1),
    ("nodes of 1 KiB in the B+-tree", Other::Nodes(NODES[1]), 1),
    ("nodes of 2 KiB in the B+-tree", Other::Nodes(NODES[2]), 1),
    (
        "5000 instructions between sections",
        Other::Between(5_000, TABLE),
        1,
    ),
    (
        "20000 instructions between sections",
        Other::Between(20_000, TABLE),
        1,
    ),
    ("a map for each of four threads", Other::Nothing, THREADS),
    (
        "nodes of 512 bytes in the B+-tree, four threads",
        Other::Nodes(NODES[0]),
        THREADS,
    ),
    (
        "nodes of 1 KiB in the B+-tree, four threads",
        Other::Nodes(NODES[1]),
        THREADS,
    ),
    (
        "nodes of 2 KiB in the B+-tree, four threads",
        Other::Nodes(NODES[2]),
        THREADS,
    ),
    ("one map and a lock for four threads", Other::Shared, THREADS),
    (
        "lines interleaved over banks, four threads",
        Other::Interleaved,
        THREADS,
    ),
    (
        "lines of logs in different banks, four threads",
        Other::Spread,
        THREADS,
    ),
];

/// What an artifact shows.
pub(super) fn title(artifact: &str) -> &'static str {
    let found = ARTIFACTS.iter().find(|(name, _)| *name == artifact);
    found.map_or("", |(_, title)| title)
}

/// The artifacts named; all if none is.
pub(super) fn chosen(names: &[String]) -> Result<Vec<&'static str>, String> {
    each::chosen("ssp", &ARTIFACTS, names)
}

/// Every microbenchmark with these designs.
fn all(designs: &[Name], threads: usize, other: Other) -> Vec<Key> {
    these(&LOADS, designs, threads, other)
}

/// The real workloads with every design.
fn real(other: Other) -> Vec<Key> {
    these(&REAL, &Name::ALL, THREADS, other)
}

fn these(loads: &[Load], designs: &[Name], threads: usize, other: Other) -> Vec<Key> {
    let of = |&load: &Load| {
        designs
            .iter()
            .map(move |&design| Key::new(load, design, threads, other))
    };
    loads.iter().flat_map(of).collect()
}

/// Runs with a background thread.
pub(super) fn background() -> impl Iterator<Item = Key> {
    let of = |loads: &[Load], threads| these(loads, &[Name::Ssp], threads, Other::Nothing);
    [of(&LOADS, 1), of(&LOADS, THREADS), of(&REAL, THREADS)]
        .into_iter()
        .flatten()
}

/// A run of Figure 8.
pub(super) fn writes(between: u32, times: u64) -> Other {
    match between {
        0 => Other::Writes(times),
        _ => Other::Between(between, times),
    }
}

/// The runs that an artifact needs.
pub(super) fn keys(artifact: &str, config: &Config) -> Vec<Key> {
    let one = |other| all(&Name::ALL, 1, other);
    match artifact {
        "fig5a" | "fig6" | "fig7a" => one(Other::Nothing),
        "fig5b" => all(&Name::ALL, THREADS, Other::Nothing),
        "fig7b" => all(&[Name::Ssp], 1, Other::Nothing),
        "table3" => {
            let real = these(&REAL, &[Name::Ssp], THREADS, Other::Nothing);
            let trees = NODES.map(|bytes| these(&TREES, &[Name::Ssp], 1, Other::Nodes(bytes)));
            let mut all = all(&[Name::Ssp], 1, Other::Nothing);
            all.extend(real.into_iter().chain(trees.concat()));
            all
        }
        "table4" => {
            let others = REAL_OPEN.into_iter().map(|(_, other)| other);
            std::iter::once(Other::Nothing)
                .chain(others)
                .flat_map(real)
                .collect()
        }
        "table5" | "real" => real(Other::Nothing),
        "fig8" => {
            let latencies = &config.study.latencies;
            let of = |load: Load, between: u32| {
                latencies.iter().flat_map(move |&times| {
                    Name::ALL.map(|design| Key::new(load, design, 1, writes(between, times)))
                })
            };
            let pairs = SWEPT
                .into_iter()
                .flat_map(|load| BETWEEN.map(|between| (load, between)));
            pairs.flat_map(|(load, between)| of(load, between)).collect()
        }
        "fig9" => {
            let sweep = config.study.cache_cycles.iter();
            let sweep = sweep.flat_map(|&cycles| all(&[Name::Ssp], 1, Other::Cache(cycles)));
            sweep.chain(all(&[Name::RedoLog], 1, Other::Nothing)).collect()
        }
        "tlb" => {
            let small = all(&[Name::Ssp], 1, Other::Tlb(SMALL_TLB));
            small
                .into_iter()
                .chain(all(&[Name::Ssp], 1, Other::Nothing))
                .collect()
        }
        "background" => background().collect(),
        "variants" => {
            let others = VARIANTS.into_iter().map(|(_, other)| other);
            let all = std::iter::once(Other::Nothing).chain(others);
            all.flat_map(|other| self::all(&[Name::Ssp], THREADS, other))
                .collect()
        }
        "open" => OPEN
            .into_iter()
            .flat_map(|(_, other, threads)| all(&Name::ALL, threads, other))
            .collect(),
        "claims" => ["fig5a", "fig5b", "fig8", "fig9", "table4"]
            .into_iter()
            .flat_map(|artifact| keys(artifact, config))
            .collect(),
        _ => Vec::new(),
    }
}
