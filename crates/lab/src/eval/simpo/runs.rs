//! The runs.

use crate::bus::config::DurableIn;
use crate::bus::{self, Counts};
use crate::eval::Tell;
use crate::eval::each::each;
use crate::eval::precision::BATCHES;
use crate::objects::{Calls, Config, Program, Scan, Variant};
use std::collections::BTreeMap;

/// A platform of the paper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Machine {
    Amd,
    Intel,
}

impl Machine {
    pub(super) fn name(self) -> &'static str {
        match self {
            Machine::Amd => "AMD",
            Machine::Intel => "Intel",
        }
    }
}

/// What is run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Load {
    Variant(Variant, Calls),
    /// Recovery of the object.
    Object,
    /// Recovery of the application: entries are looked at.
    Application,
}

impl Load {
    pub(super) fn variant(name: &str, calls: Calls) -> Load {
        Load::Variant(Variant::find(name).expect("a variant of the study"), calls)
    }
}

/// What is other than on the machine of the study.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Other {
    Nothing,
    /// Waiters spin for ever.
    Spin,
    /// Instructions for an element.
    Element(u32),
    /// A write to NVRAM is durable in the queue of the memory controller.
    Queue,
    /// Microseconds of a write to the SSD.
    Ssd(u64),
    /// All cores are as near to one another as those of a node.
    OneNode,
}

/// A run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Key {
    pub(super) machine: Machine,
    pub(super) load: Load,
    pub(super) threads: usize,
    pub(super) other: Other,
}

impl Key {
    pub(super) fn new(machine: Machine, load: Load, threads: usize) -> Key {
        Key {
            machine,
            load,
            threads,
            other: Other::Nothing,
        }
    }

    pub(super) fn with(self, other: Other) -> Key {
        Key { other, ..self }
    }

    pub(super) fn name(&self) -> String {
        let load = match self.load {
            Load::Variant(variant, Calls::AllInc) => format!("{}/all-inc", variant.name),
            Load::Variant(variant, Calls::RowInc) => format!("{}/row-inc", variant.name),
            Load::Object => "recovery/object".into(),
            Load::Application => "recovery/application".into(),
        };
        let run = format!("{}/{load}/threads={}", self.machine.name(), self.threads);
        match self.other {
            Other::Nothing => run,
            Other::Spin => format!("{run}/spin"),
            Other::Element(instructions) => format!("{run}/element={instructions}"),
            Other::Queue => format!("{run}/durable=queue"),
            Other::Ssd(us) => format!("{run}/ssd={us}us"),
            Other::OneNode => format!("{run}/one-node"),
        }
    }

    /// The machine of the study, with what is other in this run and as many cores as it needs.
    fn config(&self, machines: &[Config; 2]) -> Config {
        let mut config = machines[self.machine as usize].clone();
        config.hardware.shape.cores = self.threads + 1;
        let hardware = &mut config.hardware;
        match self.other {
            Other::Nothing => {}
            Other::Spin => {
                if let Some(locks) = &mut hardware.locks {
                    locks.spin_fs = u64::MAX;
                }
            }
            Other::Element(instructions) => config.call.element = instructions,
            Other::Queue => {
                if let Some(nvm) = &mut hardware.nvm {
                    nvm.durable = DurableIn::Queue;
                }
            }
            Other::Ssd(us) => config.ssd.access_fs = us * 1_000_000_000,
            Other::OneNode => {
                if let Some(distances) = &mut hardware.distances {
                    distances.node = bus::config::MOST_CORES;
                }
            }
        }
        config
    }

    fn run(&self, machines: &[Config; 2]) -> Result<Run, String> {
        let config = self.config(machines);
        let study = &config.study;
        let wrong = |why: String| format!("{}: {why}", self.name());
        let scanned = |mut scan: Scan| {
            let batches = scan.batches();
            let mut machine = bus::Machine::new(config.hardware.clone(), None, &mut scan);
            let parts = machine.run_parts(0, batches, 1).map_err(wrong)?;
            machine.check().map_err(wrong)?;
            Ok::<_, String>((parts, None))
        };
        let (parts, checkpoints) = match self.load {
            Load::Object => scanned(Scan::object(&config))?,
            Load::Application => scanned(Scan::application(&config, self.threads, study.functions))?,
            Load::Variant(variant, calls) => {
                let mut program = Program::new(variant, calls, self.threads, &config);
                let mut machine = bus::Machine::new(config.hardware.clone(), Some(config.ssd), &mut program);
                let has_batches = study.functions / config.sizes.group >= BATCHES as u64;
                let batches = if has_batches { BATCHES as u64 } else { 1 };
                let parts = machine
                    .run_parts(study.warm_up, study.functions, batches)
                    .map_err(wrong)?;
                machine.check().map_err(wrong)?;
                drop(machine);
                (parts, Some(program.checkpoints()))
            }
        };
        Ok(Run {
            name: self.name(),
            machine: parts.last().copied().unwrap_or_default(),
            checkpoints,
            parts,
        })
    }
}

/// What a run counted.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Run {
    /// Machine, variant, what is called, threads, and what is other than on the machine of the study.
    pub name: String,
    /// What the machine counted; a transaction is a function.
    pub machine: Counts,
    /// Checkpoints made, with those of the warm-up; none for recovery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<u64>,
    /// What the machine had counted after each of some equal parts.
    #[serde(skip)]
    parts: Vec<Counts>,
}

impl Run {
    /// How much of the time falls into each part.
    pub(super) fn times(&self) -> Vec<f64> {
        let mut before = 0;
        let part = |counts: &Counts| (counts.time_fs - std::mem::replace(&mut before, counts.time_fs)) as f64;
        self.parts.iter().map(part).collect()
    }

    /// Misses of the last cache of the core's own node, for each function.
    pub(super) fn misses(&self) -> f64 {
        let counts = &self.machine;
        (counts.last_misses + counts.remote) as f64 / counts.transactions as f64
    }
}

/// All of them.
pub(super) struct Runs(BTreeMap<String, Run>);

impl Runs {
    /// Does the runs.
    pub(super) fn all(
        machines: &[Config; 2],
        keys: &[Key],
        jobs: Option<usize>,
        tell: Tell<'_>,
    ) -> Result<Runs, String> {
        let runs = each(keys, jobs, tell, |key| {
            let run = key.run(machines)?;
            Ok((run.name.clone(), run))
        })?;
        Ok(Runs(runs))
    }

    /// A run that an artifact asked for.
    pub(super) fn get(&self, key: &Key) -> &Run {
        &self.0[&key.name()]
    }

    pub(super) fn into_all(self) -> Vec<Run> {
        self.0.into_values().collect()
    }
}
