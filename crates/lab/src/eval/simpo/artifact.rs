//! Artifacts: the figures and tables that are repeated, and the runs of each.

use super::runs::{Both, Keeping, Key, Load, Machine, Other};
use crate::eval::each;
use crate::objects::library::{Access, Application, StockLevel, Structure};
use crate::objects::{Calls, Config};

/// All artifacts, and what they show.
pub const ARTIFACTS: [(&str, &str); 23] = [
    (
        "fig6",
        "Three ways to make a checkpoint: allInc by one thread, and lines written to NVRAM",
    ),
    ("fig10", "allInc on the AMD machine: checkpointing (simulated)"),
    ("fig11", "allInc on the Intel machine: checkpointing (simulated)"),
    (
        "fig12",
        "rowInc of two rows on the AMD machine: execution (simulated)",
    ),
    (
        "fig13",
        "rowInc of two rows on the Intel machine: execution (simulated)",
    ),
    (
        "fig14",
        "allInc on the AMD machine: when the log is flushed (simulated)",
    ),
    (
        "fig15",
        "allInc on the Intel machine: when the log is flushed (simulated)",
    ),
    (
        "fig16",
        "Recovery after 640,000 functions, in the time that native ran (simulated)",
    ),
    (
        "fig17",
        "6 GiB of objects of 4 MiB on the AMD machine: NVRAM with room for all and for two thirds (simulated)",
    ),
    (
        "fig18",
        "Six structures on the AMD machine, over native's time (simulated)",
    ),
    (
        "fig19",
        "Six structures on the Intel machine, over native's time (simulated)",
    ),
    (
        "fig20",
        "Four programs on the AMD machine, over native's time (simulated)",
    ),
    (
        "fig21",
        "Four programs on the Intel machine, over native's time (simulated)",
    ),
    (
        "fig22",
        "Recovery of the four programs and of StockLevel's writes on the Intel machine, in the time of the run (simulated)",
    ),
    (
        "fig23",
        "TPC-C's StockLevel on the AMD machine: reads alone, writes alone (simulated)",
    ),
    (
        "fig24",
        "TPC-C's StockLevel on the Intel machine: reads alone, writes alone (simulated)",
    ),
    (
        "misses",
        "Misses of the last cache for each function, allInc (simulated)",
    ),
    (
        "table3",
        "Functions of six structures: 1 is deferrable, 0 instant",
    ),
    (
        "table4",
        "Eight programs of BigDataBench: deferrable functions for each instant one",
    ),
    ("table7", "Mechanisms that each variant has"),
    ("measured", "Measured on real cores by `twinpage bench objects`"),
    (
        "open",
        "What the paper leaves open: throughput by each choice (simulated)",
    ),
    ("claims", "The sentences of the evaluation: which hold"),
];

/// Variants of Figures 10 and 11, 12 and 13, 14 and 15.
pub(super) const CHECKPOINTING: [&str; 6] = ["native", "ssd", "nvram", "cow", "hybrid", "simpo"];
pub(super) const EXECUTION: [&str; 4] = ["native", "hybrid", "fc", "m-server"];
pub(super) const FLUSHING: [&str; 4] = ["native", "m-server", "simpo-all", "simpo"];
/// The three forms of Figure 6.
pub(super) const FORMS: [&str; 3] = ["hybrid", "double", "cow"];
/// What the paper leaves open.
pub(super) const OPEN: [(&str, Other); 7] = [
    ("as in the machine file", Other::Nothing),
    ("waiters spin and do not sleep", Other::Spin),
    ("four times the instructions for an element", Other::Element(20)),
    ("a write to NVRAM is durable in the queue", Other::Queue),
    ("a write to the SSD takes 20 us", Other::Ssd(20)),
    ("ssd flushes its file after each function", Other::FlushEach),
    ("an interconnect of one node", Other::OneNode),
];

/// The figures of a kind of comparison: the artifact, its machine, its variants and what is called.
pub(super) const FIGURES: [(&str, Machine, &[&str], Calls); 6] = [
    ("fig10", Machine::Amd, &CHECKPOINTING, Calls::AllInc),
    ("fig11", Machine::Intel, &CHECKPOINTING, Calls::AllInc),
    ("fig12", Machine::Amd, &EXECUTION, Calls::RowInc),
    ("fig13", Machine::Intel, &EXECUTION, Calls::RowInc),
    ("fig14", Machine::Amd, &FLUSHING, Calls::AllInc),
    ("fig15", Machine::Intel, &FLUSHING, Calls::AllInc),
];

/// Variants of Figures 18 and 19, and of 20 and 21; the first is what the others are over.
pub(super) const STRUCTURES: [&str; 3] = ["native", "simpo", "hybrid"];
pub(super) const PROGRAMS: [&str; 2] = ["native", "simpo"];
/// Calls of a large object before the next one is drawn: the first is Figure 17's, the others what the paper leaves open.
pub(super) const CALLS: [u64; 3] = [1, 10, 100];

/// The figures of StockLevel, and their machines; its transactions; what carries them out.
pub(super) const STOCK: [(&str, Machine); 2] = [("fig23", Machine::Amd), ("fig24", Machine::Intel)];
pub(super) const ACCESSES: [Access; 2] = [Access::Get, Access::Put];
pub(super) const STOCK_VARIANTS: [&str; 2] = ["native", "simpo"];
/// Rows of the stock: the figures', then other sizes that the object may have had (open).
pub(super) const SIZES: [u64; 3] = [StockLevel::ROWS, 100, 10_000];

/// The figures of programs with functions of both classes: the artifact, its machine, its variants and its programs.
pub(super) fn both(artifact: &str) -> Option<(Machine, &'static [&'static str], Vec<Both>)> {
    let structures = || Structure::ALL.map(Both::Structure).to_vec();
    let programs = || Application::ALL.map(Both::Application).to_vec();
    Some(match artifact {
        "fig18" => (Machine::Amd, &STRUCTURES, structures()),
        "fig19" => (Machine::Intel, &STRUCTURES, structures()),
        "fig20" => (Machine::Amd, &PROGRAMS, programs()),
        "fig21" => (Machine::Intel, &PROGRAMS, programs()),
        _ => return None,
    })
}

/// What is other in the runs of such a figure: structures are all about their locks, so their waiters also spin.
pub(super) fn others(artifact: &str) -> &'static [Other] {
    match artifact {
        "fig18" | "fig19" => &[Other::Nothing, Other::Spin],
        _ => &[Other::Nothing],
    }
}

/// The most threads of a machine's study.
pub(super) fn most(machines: &[Config; 2], machine: Machine) -> usize {
    let threads = &machines[machine as usize].study.threads;
    threads.iter().copied().max().unwrap_or(1)
}

/// What an artifact shows.
pub(super) fn title(artifact: &str) -> &'static str {
    let found = ARTIFACTS.iter().find(|(name, _)| *name == artifact);
    found.map_or("", |(_, title)| title)
}

/// The artifacts named; all if none is.
pub(super) fn chosen(names: &[String]) -> Result<Vec<&'static str>, String> {
    each::chosen("simpo", &ARTIFACTS, names)
}

/// The runs that an artifact needs.
pub(super) fn keys(artifact: &str, machines: &[Config; 2]) -> Vec<Key> {
    let threads = |machine: Machine| machines[machine as usize].study.threads.clone();
    if let Some((_, machine, variants, calls)) = FIGURES.iter().find(|(name, ..)| *name == artifact) {
        let of = |name: &&'static str| {
            let load = Load::variant(name, *calls);
            threads(*machine)
                .into_iter()
                .map(move |threads| Key::new(*machine, load, threads))
        };
        return variants.iter().flat_map(of).collect();
    }
    if let Some((machine, variants, programs)) = both(artifact) {
        let most = most(machines, machine);
        let of = |both: Both| {
            let key = move |name| Key::new(machine, Load::mixed(both, name), most);
            let with = move |other: &Other| {
                let other = *other;
                variants.iter().map(move |name| key(name).with(other))
            };
            others(artifact).iter().flat_map(with)
        };
        return programs.into_iter().flat_map(of).collect();
    }
    if let Some((_, machine)) = STOCK.iter().find(|(name, _)| *name == artifact) {
        return stock_keys(*machine, machines);
    }
    match artifact {
        "fig17" => {
            let of = |threads| {
                let pools = Keeping::ALL.map(|keeping| pool(keeping, CALLS[0], threads));
                pools.into_iter().chain(pools[0].passes())
            };
            let open = |calls| {
                let most = most(machines, Machine::Amd);
                [Keeping::NvramAll, Keeping::NvramDisk].map(|keeping| pool(keeping, calls, most))
            };
            let all = threads(Machine::Amd).into_iter().flat_map(of);
            all.chain(CALLS.into_iter().flat_map(open)).collect()
        }
        "fig22" => {
            let most = most(machines, Machine::Intel);
            let of = |both| Key::new(Machine::Intel, Load::Copy(both), 1);
            let stock = Both::StockLevel(stock_of(Access::Put));
            let programs = Application::ALL.map(Both::Application).into_iter();
            let copies = programs.chain([stock]).map(of);
            let entries = Key::new(Machine::Intel, Load::Application, most);
            let all = ["fig21", "fig24"]
                .into_iter()
                .flat_map(|name| keys(name, machines));
            all.chain(copies).chain([entries]).collect()
        }
        "fig6" => {
            let of = |machine| FORMS.map(|name| Key::new(machine, Load::variant(name, Calls::AllInc), 1));
            [Machine::Amd, Machine::Intel].into_iter().flat_map(of).collect()
        }
        "fig16" => {
            let of = |threads| {
                [Load::variant("native", Calls::AllInc), Load::Application]
                    .map(|load| Key::new(Machine::Amd, load, threads))
            };
            let all = threads(Machine::Amd).into_iter().flat_map(of);
            all.chain([
                Key::new(Machine::Amd, Load::Object, 1),
                Key::new(Machine::Amd, Load::Application, 1),
            ])
            .collect()
        }
        "misses" => [keys("fig10", machines), keys("fig11", machines)].concat(),
        "open" => {
            let most = most(machines, Machine::Amd);
            let of = |(_, other)| {
                CHECKPOINTING.into_iter().chain(["simpo-all"]).map(move |name| {
                    Key::new(Machine::Amd, Load::variant(name, Calls::AllInc), most).with(other)
                })
            };
            OPEN.into_iter().flat_map(of).collect()
        }
        "claims" => {
            let figures = FIGURES.iter().map(|(name, ..)| *name);
            figures
                .chain([
                    "fig16", "fig17", "fig18", "fig19", "fig20", "fig21", "fig22", "fig23", "fig24",
                ])
                .flat_map(|name| keys(name, machines))
                .collect()
        }
        _ => Vec::new(),
    }
}

/// The stock of the figures.
pub(super) fn stock_of(access: Access) -> StockLevel {
    StockLevel {
        access,
        rows: SIZES[0],
    }
}

/// A run of StockLevel.
pub(super) fn stock(machine: Machine, level: StockLevel, name: &str, threads: usize) -> Key {
    Key::new(machine, Load::mixed(Both::StockLevel(level), name), threads)
}

/// The runs of a figure of StockLevel: all numbers of threads, then other sizes with the most.
fn stock_keys(machine: Machine, machines: &[Config; 2]) -> Vec<Key> {
    let threads = &machines[machine as usize].study.threads;
    let most = most(machines, machine);
    let runs = threads.iter().map(|threads| (SIZES[0], *threads));
    let of = |(rows, threads)| {
        let levels = ACCESSES.map(|access| StockLevel { access, rows });
        levels.map(|level| STOCK_VARIANTS.map(|name| stock(machine, level, name, threads)))
    };
    let runs = runs.chain(SIZES[1..].iter().map(|rows| (*rows, most)));
    runs.flat_map(of).flatten().collect()
}

/// A run of a pool of large objects.
pub(super) fn pool(keeping: Keeping, calls: u64, threads: usize) -> Key {
    Key::new(Machine::Amd, Load::Pool(keeping, calls), threads)
}
