//! Artifacts, and the runs each needs.

use super::each::chosen;
use super::loads::{self, Load};
use super::open::OPEN;
use super::paper::Paper;
use super::{Request, Run};
use crate::config::machine::Config;
use crate::controller::lookup::{Backup, Placement};
use crate::schemes::SchemeName;
use std::collections::BTreeMap;
use twinpage_baselines::SchemeKind;

/// How a run's machine differs from the paper's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Variant {
    /// Not at all.
    Plain,
    /// Checkpoints overlap with execution.
    Overlap,
    /// A pool of that many mebibytes, at the paper's size.
    Pool(u64),
    /// The table elsewhere: which of [`PLACES`].
    Place(usize),
    /// Millions of cycles between checkpoints, at the paper's size.
    Interval(u64),
    /// One of [`CHOICES`].
    Choice(usize),
    /// One core, for a program by itself.
    Alone,
    /// As DPC 5.3 runs software: with so many instructions of its own before each access.
    Software(u32),
    /// Another choice where the papers leave one: which of [`OPEN`].
    Open(usize),
}

/// One run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Key {
    pub(super) workload: usize,
    pub(super) scheme: SchemeName,
    pub(super) variant: Variant,
}

/// DPC 5.5.2: name, where entries are, how many are cached at the paper's pool of 76,800.
pub(super) const PLACES: [(&str, Placement, usize); 7] = [
    ("all in the controller", Placement::Controller, 0),
    ("optimized", Placement::Split, 1),
    ("optimized, 10K cached", Placement::Split, 10_000),
    ("40K cached", Placement::Dram, 40_000),
    ("20K cached", Placement::Dram, 20_000),
    ("10K cached", Placement::Dram, 10_000),
    ("all in DRAM", Placement::Dram, 0),
];

/// What the text leaves open and matters most, together: channels of NVM, how the table is backed up.
pub(super) const CHOICES: [(u32, Backup, &str); 6] = [
    (1, Backup::Whole, "1 channel, whole table"),
    (2, Backup::Whole, "2 channels, whole table"),
    (4, Backup::Whole, "4 channels, whole table"),
    (1, Backup::Journal, "1 channel, journal"),
    (2, Backup::Journal, "2 channels, journal"),
    (4, Backup::Journal, "4 channels, journal"),
];

/// The workloads of DPC's Figure 10.
pub(super) const FIGURE_10: [&str; 2] = ["tatp", "tpcc"];
/// Its systems. The instructions that they have for each access of a transaction are open: the text has none.
pub(super) const SOFTWARE: [(SchemeKind, &str); 2] =
    [(SchemeKind::DudeTm, "DudeTM"), (SchemeKind::Nvml, "NVML")];
pub(super) const INSTRUCTIONS: [u32; 3] = [0, 100, 1000];
const POOLS: [u64; 5] = [100, 200, 300, 400, 500];
const INTERVALS: [u64; 5] = [10, 20, 30, 40, 50];

impl Key {
    /// What its machine runs.
    pub(super) fn program(&self, load: &Load) -> String {
        match self.variant {
            Variant::Software(instructions) if instructions > 0 => {
                format!("busy:{instructions}:{}", load.workload)
            }
            _ => load.workload.clone(),
        }
    }

    pub(super) fn apply(&self, config: &mut Config) {
        let plan = &mut config.plan;
        match self.variant {
            Variant::Plain => {}
            Variant::Overlap => config.overlap = true,
            // The paper's pool is 300.
            Variant::Pool(mebibytes) => plan.pool_pages = plan.pool_pages * mebibytes / 300,
            Variant::Place(place) => {
                let (_, placement, cached) = PLACES[place];
                plan.controller.placement = placement;
                plan.controller.cached_entries = match cached {
                    0 | 1 => cached,
                    many => (many as u64 * plan.pool_pages / 76_800).max(1) as usize,
                };
            }
            // The paper's interval is 30.
            Variant::Interval(millions) => plan.interval_fs = plan.interval_fs * millions / 30,
            Variant::Choice(choice) => {
                let (channels, backup, _) = CHOICES[choice];
                plan.controller.nvm.set_channels(channels);
                plan.controller.backup = backup;
            }
            Variant::Alone => plan.shape.cores = 1,
            // A context is the dual page's; what software keeps of a core it keeps in memory.
            Variant::Software(_) => {
                plan.shape.state_bytes = 0;
                match self.scheme == SchemeKind::Nvml {
                    // Every transaction is acknowledged synchronously: a commit as soon as all cores have ended a batch.
                    true => plan.interval_fs = 1,
                    // "we give it 4GB DRAM": for the 256 MB of the others.
                    false => plan.controller.dram_bytes *= 16,
                }
            }
            Variant::Open(which) => (OPEN[which].change)(config),
        }
    }
}

/// The runs that were done.
#[derive(Default)]
pub(super) struct Runs(pub(super) BTreeMap<Key, Run>);

impl Runs {
    /// Epochs of the run of a workload that has fewest.
    pub(super) fn fewest_epochs(&self, workload: usize) -> usize {
        let mine = self.0.iter().filter(|(key, _)| key.workload == workload);
        let epochs = mine.map(|(_, run)| run.outcome.epochs.len());
        epochs.min().unwrap_or(0)
    }

    /// A run, if it was done.
    pub(super) fn find(
        &self,
        workload: usize,
        scheme: impl Into<SchemeName>,
        variant: Variant,
    ) -> Option<&Run> {
        self.0.get(&Key {
            workload,
            scheme: scheme.into(),
            variant,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Workloads whose run on the dual page had fewer than ten epochs: they say little.
    pub(super) fn short(&self, loads: &[Load]) -> Vec<String> {
        let epochs = |(key, run): (&Key, &Run)| {
            let is_plain = (key.scheme, key.variant) == (SchemeName::DUAL_PAGE, Variant::Plain);
            let count = run.outcome.checkpoints;
            let epochs = if count == 1 { "epoch" } else { "epochs" };
            (is_plain && count < 10).then(|| format!("{}, {count} {epochs}", loads[key.workload].name))
        };
        self.0.iter().filter_map(epochs).collect()
    }

    pub(super) fn get(&self, workload: usize, scheme: SchemeName, variant: Variant) -> &Run {
        &self.0[&Key {
            workload,
            scheme,
            variant,
        }]
    }
}

/// What can be asked for: name, paper, title.
pub const ARTIFACTS: [(&str, Paper, &str); 29] = [
    ("fig1", Paper::Dpc, "DPC Figure 1: clean lines in dirty pages"),
    (
        "fig9a",
        Paper::Dpc,
        "DPC Figure 9a: execution time over the dual page's",
    ),
    (
        "fig9b",
        Paper::Dpc,
        "DPC Figure 9b: NVM writes over the dual page's",
    ),
    (
        "fig10",
        Paper::Dpc,
        "DPC Figure 10: software systems over the dual page, by transaction; and how long until one is durable",
    ),
    (
        "fig11a",
        Paper::Dpc,
        "DPC Figure 11a: execution time by pool size, over the largest",
    ),
    (
        "fig11b",
        Paper::Dpc,
        "DPC Figure 11b: NVM writes by pool size, over the largest",
    ),
    (
        "fig12",
        Paper::Dpc,
        "DPC Figure 12: execution time by the table's place, over all in the controller",
    ),
    (
        "fig13",
        Paper::Dpc,
        "DPC Figure 13: execution time by interval, over the dual page's at 10 M cycles",
    ),
    ("table1", Paper::Dpc, "DPC Table 1: extra writes against metadata"),
    ("table3", Paper::Dpc, "DPC Table 3: metadata in the controller"),
    ("table5", Paper::Dpc, "DPC Table 5: the workloads"),
    (
        "table6",
        Paper::Dpc,
        "DPC Table 6: checkpoints and their share of the time",
    ),
    ("preallocation", Paper::Dpc, "DPC 4.4.3: pre-allocation failures"),
    (
        "sensitivity",
        Paper::Dpc,
        "What the papers leave open: execution time over the dual page's, one choice changed at a time",
    ),
    (
        "sensitivity-writes",
        Paper::Dpc,
        "What the papers leave open: NVM writes over the dual page's, one choice changed at a time",
    ),
    (
        "range",
        Paper::Dpc,
        "DPC Figure 9a over what the text leaves open: average execution time over the dual page's",
    ),
    (
        "range-writes",
        Paper::Dpc,
        "DPC Figure 9b over what the text leaves open: average NVM writes over the dual page's",
    ),
    ("claims", Paper::Dpc, "DPC's evaluation, sentence by sentence"),
    (
        "range",
        Paper::Twins,
        "Twins Figure 7a over what the text leaves open: average execution time over Twins'",
    ),
    (
        "range-writes",
        Paper::Twins,
        "Twins Figure 7b over what the text leaves open: average NVM writes over Twins'",
    ),
    ("claims", Paper::Twins, "Twins' evaluation, sentence by sentence"),
    ("fig2", Paper::Twins, "Twins Figure 2: clean lines in dirty pages"),
    ("table2", Paper::Twins, "Twins Table II: the mixes"),
    (
        "fig7a",
        Paper::Twins,
        "Twins Figure 7a: execution time over Twins'",
    ),
    ("fig7b", Paper::Twins, "Twins Figure 7b: NVM writes over Twins'"),
    (
        "fig8a",
        Paper::Twins,
        "Twins Figure 8a: execution time by pool size, over the largest",
    ),
    (
        "fig8b",
        Paper::Twins,
        "Twins Figure 8b: NVM writes by pool size, over the largest",
    ),
    (
        "sensitivity",
        Paper::Twins,
        "What the paper leaves open: execution time over Twins', one choice changed at a time",
    ),
    (
        "sensitivity-writes",
        Paper::Twins,
        "What the paper leaves open: NVM writes over Twins', one choice changed at a time",
    ),
];

/// The title of an artifact.
pub(super) fn title(paper: Paper, name: &str) -> &'static str {
    ARTIFACTS
        .iter()
        .find(|artifact| artifact.0 == name && artifact.1 == paper)
        .map_or("", |artifact| artifact.2)
}

/// The artifacts asked for.
pub(super) fn choose(request: &Request) -> Result<Vec<Artifact>, String> {
    let mine = ARTIFACTS.iter().filter(|artifact| artifact.1 == request.paper);
    let mine: Vec<_> = mine.map(|&(name, _, title)| (name, title)).collect();
    let chosen = chosen(request.paper.name(), &mine, &request.artifacts)?;
    Ok(chosen.into_iter().map(Artifact).collect())
}

/// One figure or table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Artifact(pub(super) &'static str);

/// What is compared, in the order of the figures; what was asked for beside the paper's schemes comes last.
pub(super) fn compared(request: &Request) -> Vec<(SchemeName, Variant, &'static str)> {
    let with = request
        .with
        .iter()
        .map(|&scheme| (scheme, Variant::Plain, scheme.name()));
    let of_the_paper = of_the_paper(request.paper).into_iter();
    let named = of_the_paper.map(|(scheme, variant, name)| (scheme.into(), variant, name));
    named.chain(with).collect()
}

fn of_the_paper(paper: Paper) -> Vec<(SchemeKind, Variant, &'static str)> {
    let mut all = vec![
        (SchemeKind::InPlace, Variant::Plain, "baseline"),
        (SchemeKind::DualPage, Variant::Plain, "dual page"),
        (SchemeKind::UndoLog, Variant::Plain, "logging"),
        (SchemeKind::CopyOnWrite, Variant::Plain, "copy-on-write"),
    ];
    if paper == Paper::Dpc {
        all.push((SchemeKind::ThyNvm, Variant::Plain, "ThyNVM"));
        all.push((SchemeKind::PageOverlay, Variant::Plain, "page overlays"));
        all.push((SchemeKind::DualPage, Variant::Overlap, "dual page, overlapped"));
    }
    all
}

impl Artifact {
    /// The workloads it is done for. Sweeps take those asked for, and a few when they must be quick.
    pub(super) fn workloads(self, request: &Request, loads: &[Load]) -> Vec<usize> {
        let few: &[&str] = match self.0 {
            "fig11a" | "fig11b" | "fig8a" | "fig8b" => &["pagerank", "echo"],
            "fig12" => &["tatp", "tpcc"],
            "fig13" => &["echo"],
            "sensitivity" | "sensitivity-writes" => &["tpcc"],
            "fig10" => {
                return (0..loads.len())
                    .filter(|&load| FIGURE_10.contains(&&*loads[load].name))
                    .collect();
            }
            // Where there are traces, Twins' Figure 2 is of programs by themselves; all else is of mixes.
            _ => {
                let single = self.0 == "fig2" && loads.iter().any(|load| load.is_single);
                let mine = |&load: &usize| loads[load].is_single == single;
                return (0..loads.len()).filter(mine).collect();
            }
        };
        let whole = || (0..loads.len()).filter(|&load| !loads[load].is_single).collect();
        let among = |names: &mut dyn Iterator<Item = &str>| -> Vec<usize> {
            names
                .filter_map(|name| loads.iter().position(|load| load.name == name))
                .collect()
        };
        let chosen = match (&request.sweep[..], request.quick) {
            ([], false) => whole(),
            ([], true) => among(&mut few.iter().copied()),
            (names, _) => among(&mut names.iter().map(String::as_str)),
        };
        match chosen.is_empty() {
            true => vec![0],
            false => chosen,
        }
    }

    /// Schemes and variants it needs of each workload.
    pub(super) fn series(self, request: &Request) -> Vec<(SchemeName, Variant, String)> {
        let dual = |variant, name: String| (SchemeName::DUAL_PAGE, variant, name);
        let named = |(scheme, variant, name): (SchemeName, Variant, &str)| (scheme, variant, name.to_owned());
        match self.0 {
            "fig2" if loads::has_singles(request) => {
                vec![named((
                    SchemeKind::CopyOnWrite.into(),
                    Variant::Alone,
                    "copy-on-write",
                ))]
            }
            "fig1" | "fig2" | "table1" => {
                vec![named((
                    SchemeKind::CopyOnWrite.into(),
                    Variant::Plain,
                    "copy-on-write",
                ))]
            }
            "table2" | "table5" | "preallocation" => vec![dual(Variant::Plain, "dual page".into())],
            "fig11a" | "fig11b" | "fig8a" | "fig8b" => POOLS
                .iter()
                .map(|&size| dual(Variant::Pool(size), format!("{size} MB")))
                .collect(),
            "fig10" => {
                let systems = SOFTWARE.into_iter().flat_map(|(scheme, name)| {
                    INSTRUCTIONS.map(|number| {
                        (
                            scheme.into(),
                            Variant::Software(number),
                            software_name(name, number),
                        )
                    })
                });
                std::iter::once(dual(Variant::Plain, "dual page".into()))
                    .chain(systems)
                    .collect()
            }
            "fig12" => (0..PLACES.len())
                .map(|place| dual(Variant::Place(place), PLACES[place].0.into()))
                .collect(),
            "fig13" => checkpointing(request)
                .flat_map(|(scheme, _, name)| {
                    INTERVALS.map(|interval| {
                        (
                            scheme,
                            Variant::Interval(interval),
                            format!("{name}, {interval} M"),
                        )
                    })
                })
                .collect(),
            "sensitivity" | "sensitivity-writes" => {
                let variants = std::iter::once(Variant::Plain).chain((0..OPEN.len()).map(Variant::Open));
                let all = compared(request);
                let schemes = all.into_iter().filter(|one| one.1 == Variant::Plain);
                schemes
                    .flat_map(|one| {
                        variants
                            .clone()
                            .map(move |variant| named((one.0, variant, one.2)))
                    })
                    .collect()
            }
            "range" | "range-writes" => compared(request)
                .into_iter()
                .filter(|one| one.1 == Variant::Plain)
                .flat_map(|one| {
                    (0..CHOICES.len()).map(move |choice| named((one.0, made(one.0, choice), one.2)))
                })
                .collect(),
            "claims" => {
                let all = of_the_paper(request.paper).into_iter();
                let plain = all.filter(|one| one.1 == Variant::Plain);
                plain.map(|one| named((one.0.into(), one.1, one.2))).collect()
            }
            "table3" => Vec::new(),
            _ => compared(request).into_iter().map(named).collect(),
        }
    }

    /// The runs it needs.
    pub(super) fn keys(self, request: &Request, loads: &[Load]) -> Vec<Key> {
        let series = self.series(request);
        let of = |workload| {
            series.iter().map(move |&(scheme, variant, _)| Key {
                workload,
                scheme,
                variant,
            })
        };
        let mut keys: Vec<Key> = self.workloads(request, loads).into_iter().flat_map(of).collect();
        if self.0 == "claims" {
            keys.extend(of_sentences(request, loads));
        }
        keys
    }
}

/// Of other artifacts, the runs that sentences are about.
fn of_sentences(request: &Request, loads: &[Load]) -> Vec<Key> {
    let is_asked = |key: &Key| match key.variant {
        Variant::Pool(size) => [100, 500].contains(&size) || request.paper == Paper::Dpc && size == 300,
        Variant::Place(place) => [0, 1, 3, 6].contains(&place),
        Variant::Interval(millions) => key.scheme == SchemeKind::DualPage && [10, 50].contains(&millions),
        Variant::Open(0) => key.scheme == SchemeKind::DualPage,
        Variant::Alone | Variant::Software(_) => true,
        _ => false,
    };
    let swept: &[&'static str] = match request.paper {
        Paper::Dpc => &["fig10", "fig11a", "fig12", "fig13", "sensitivity"],
        Paper::Twins => &["fig8a", "fig2"],
    };
    let swept = swept.iter().flat_map(|name| Artifact(name).keys(request, loads));
    swept.filter(is_asked).collect()
}

fn software_name(system: &str, instructions: u32) -> String {
    match instructions {
        0 => format!("{system}, its log alone"),
        some => format!("{system}, {some} instructions an access"),
    }
}

/// A choice as a scheme is run with it: of the house's schemes the dual page alone has a table to back up; one of one's own
/// may have.
pub(super) fn made(scheme: SchemeName, choice: usize) -> Variant {
    let alike = |&other: &usize| {
        let backup_matters = scheme.house().is_none_or(|kind| kind == SchemeKind::DualPage);
        CHOICES[other].0 == CHOICES[choice].0 && (!backup_matters || CHOICES[other].1 == CHOICES[choice].1)
    };
    match (0..CHOICES.len()).find(alike) {
        Some(0) | None => Variant::Plain,
        Some(other) => Variant::Choice(other),
    }
}

/// The schemes that have checkpoints, whether the cores stop for them or not (DPC 5.6: "all the systems").
fn checkpointing(request: &Request) -> impl Iterator<Item = (SchemeName, Variant, &'static str)> {
    let all = compared(request).into_iter();
    all.filter(|one| one.0 != SchemeKind::InPlace && one.1 == Variant::Plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_of_ones_own_is_compared_with_the_table_backed_up_as_its_own() {
        let journal = CHOICES
            .iter()
            .position(|choice| choice.1 == Backup::Journal)
            .unwrap();
        assert_eq!(made(SchemeKind::UndoLog.into(), journal), Variant::Plain);
        for scheme in [SchemeName::DUAL_PAGE, SchemeName::Own("mine")] {
            assert_eq!(made(scheme, journal), Variant::Choice(journal));
        }
    }
}
