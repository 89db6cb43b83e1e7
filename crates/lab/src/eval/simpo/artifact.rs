//! Artifacts: the figures and tables that are repeated, and the runs of each.

use super::runs::{Key, Load, Machine, Other};
use crate::eval::each;
use crate::objects::{Calls, Config};

/// All artifacts, and what they show.
pub const ARTIFACTS: [(&str, &str); 15] = [
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
pub(super) const OPEN: [(&str, Other); 6] = [
    ("as in the machine file", Other::Nothing),
    ("waiters spin and do not sleep", Other::Spin),
    ("four times the instructions for an element", Other::Element(20)),
    ("a write to NVRAM is durable in the queue", Other::Queue),
    ("a write to the SSD takes 20 us", Other::Ssd(20)),
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
    match artifact {
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
            let most = machines[0].study.threads.iter().copied().max().unwrap_or(1);
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
                .chain(["fig16"])
                .flat_map(|name| keys(name, machines))
                .collect()
        }
        _ => Vec::new(),
    }
}
