//! The runs.

use crate::bus::config::DurableIn;
use crate::bus::{self, Counts};
use crate::eval::Tell;
use crate::eval::each::each;
use crate::eval::precision::BATCHES;
use crate::objects::library::{Application, Objects, Stock, StockLevel, Structure, Structures};
use crate::objects::{Calls, Config, Large, Mixed, Pass, Passes, Pool, Program, Scan, Times, Variant};
use crate::workload::Workload;
use std::collections::BTreeMap;

/// The pool of 4.1.3: 6 GiB of objects of 4 MiB.
const OBJECT_BYTES: u64 = 4 << 20;
const OBJECTS: u64 = (6 << 30) / OBJECT_BYTES;
/// Groups that each thread runs before anything is counted, and counted, of a pool.
const GROUPS: [u64; 2] = [1, 3];
/// Passes of each thread that are counted.
const PASSES: u64 = 2;
/// Functions of the library's programs are longer than allInc: runs have fewer, but some groups.
const FEWER: u64 = 16;

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

/// A program with functions of both classes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Both {
    Structure(Structure),
    Application(Application),
    StockLevel(StockLevel),
}

impl Both {
    pub(super) fn name(self) -> &'static str {
        match self {
            Both::Structure(structure) => structure.name(),
            Both::Application(application) => application.name(),
            Both::StockLevel(level) => level.name(),
        }
    }

    /// Functions before anything is counted, and counted.
    fn lengths(self, threads: usize, config: &Config) -> [u64; 2] {
        let study = &config.study;
        match self {
            Both::Structure(_) | Both::StockLevel(_) => [study.warm_up, study.functions],
            // Threads of these programs go in step, and a part of a round would be as good as a whole one to one
            // mechanism, and nothing to another.
            Both::Application(_) => {
                let round = 2 * threads as u64;
                let functions = (study.functions / FEWER).max(config.sizes.group);
                [round, functions.next_multiple_of(round)]
            }
        }
    }

    fn objects(self, threads: usize, config: &Config) -> Box<dyn Objects> {
        let element = config.call.element;
        match self {
            Both::Structure(structure) => Box::new(Structures::new(structure, threads, element)),
            Both::Application(application) => application.objects(threads, element),
            Both::StockLevel(level) => Box::new(Stock::new(level, threads)),
        }
    }
}

/// What a pool of objects is kept in (4.1.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Keeping {
    /// DRAM alone.
    Native,
    /// NVM with room for all.
    NvramAll,
    /// NVM with room for some, and an SSD.
    NvramDisk,
}

impl Keeping {
    pub(super) const ALL: [Keeping; 3] = [Keeping::Native, Keeping::NvramAll, Keeping::NvramDisk];

    pub(super) fn name(self) -> &'static str {
        match self {
            Keeping::Native => "native",
            Keeping::NvramAll => "nvramall",
            Keeping::NvramDisk => "nvram-disk",
        }
    }

    fn nvm_bytes(self) -> u64 {
        match self {
            Keeping::NvramDisk => 8 << 30,
            Keeping::Native | Keeping::NvramAll => 16 << 30,
        }
    }
}

/// What is run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Load {
    Mixed(Both, Variant),
    /// Passes over large objects, which a pool's functions take the time of.
    Passes(Pass),
    /// A pool of large objects, and how often an object is called before the next one is drawn.
    Pool(Keeping, u64),
    /// An object of such a program is read back.
    Copy(Both),
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

    pub(super) fn mixed(both: Both, name: &str) -> Load {
        Load::Mixed(both, Variant::find(name).expect("a variant of the study"))
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
    /// The file on the SSD is flushed after each function.
    FlushEach,
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
            Load::Mixed(Both::StockLevel(level), variant) => {
                format!("{}/{}/rows={}", variant.name, level.name(), level.rows)
            }
            Load::Mixed(both, variant) => format!("{}/{}", variant.name, both.name()),
            Load::Passes(Pass::Others) => "passes/others".into(),
            Load::Passes(Pass::Same) => "passes/same".into(),
            Load::Passes(Pass::Copy) => "passes/copy".into(),
            Load::Pool(keeping, 1) => format!("{}/pool", keeping.name()),
            Load::Pool(keeping, calls) => format!("{}/pool/calls={calls}", keeping.name()),
            Load::Copy(both) => format!("recovery/{}", both.name()),
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
            Other::FlushEach => format!("{run}/ssd=each"),
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
            Other::FlushEach => config.ssd_flushes_each = true,
            Other::OneNode => {
                if let Some(distances) = &mut hardware.distances {
                    distances.node = bus::config::MOST_CORES;
                }
            }
        }
        config
    }

    fn run(&self, machines: &[Config; 2], passes: &BTreeMap<String, Run>) -> Result<Run, String> {
        let config = self.config(machines);
        self.counted(&config, passes)
            .map_err(|why| format!("{}: {why}", self.name()))
    }

    fn counted(&self, config: &Config, passes: &BTreeMap<String, Run>) -> Result<Run, String> {
        let study = &config.study;
        let scanned = |mut scan: Scan| {
            let batches = scan.batches();
            let mut machine = bus::Machine::new(config.hardware.clone(), None, &mut scan);
            let parts = machine.run_parts(0, batches, 1)?;
            machine.check()?;
            Ok::<Run, String>(self.ran(parts))
        };
        match self.load {
            Load::Object => scanned(Scan::object(config)),
            Load::Application => scanned(Scan::application(config, self.threads, study.functions)),
            Load::Copy(both) => scanned(Scan::copy(config, both.objects(1, config).bytes())),
            Load::Variant(variant, calls) => {
                let mut program = Program::new(variant, calls, self.threads, config);
                let parts = parts(config, &mut program, study.warm_up, study.functions)?;
                let checkpoints = Some(program.checkpoints());
                Ok(Run {
                    checkpoints,
                    ..self.ran(parts)
                })
            }
            Load::Mixed(both, variant) => {
                let objects = both.objects(self.threads, config);
                let [warm_up, functions] = both.lengths(self.threads, config);
                let mut program = Mixed::new(variant, objects, self.threads, config);
                let parts = parts(config, &mut program, warm_up, functions)?;
                let checkpoints = Some(program.checkpoints());
                Ok(Run {
                    checkpoints,
                    ..self.ran(parts)
                })
            }
            Load::Passes(pass) => {
                let mut passes = Passes::new(pass, self.threads, OBJECT_BYTES, config);
                let (warm_up, count) = (passes.warm_up(), PASSES * self.threads as u64);
                let mut machine =
                    bus::Machine::new(Passes::hardware(self.threads, config), None, &mut passes);
                Ok(self.ran(machine.run_parts(warm_up, count, 1)?))
            }
            Load::Pool(keeping, calls) => self.pool(config, self.times(passes), keeping, calls),
        }
    }

    fn pool(&self, config: &Config, times: Times, keeping: Keeping, calls: u64) -> Result<Run, String> {
        let is_persistent = keeping != Keeping::Native;
        let large = Large {
            objects: OBJECTS,
            bytes: OBJECT_BYTES,
            nvm_bytes: keeping.nvm_bytes(),
            calls,
        };
        let mut pool = Pool::new(is_persistent, self.threads, large, times, config);
        let each = self.threads as u64 * if is_persistent { config.sizes.group } else { 10 };
        let [warm_up, functions] = GROUPS.map(|groups| groups * each);
        let mut machine = bus::Machine::new(config.hardware.clone(), Some(config.ssd), &mut pool);
        let parts = machine.run_parts(warm_up, functions, 1)?;
        machine.check()?;
        drop(machine);
        Ok(Run {
            swaps: Some(pool.swaps()),
            ..self.ran(parts)
        })
    }

    /// The passes that a pool's functions take the time of.
    pub(super) fn passes(&self) -> [Key; 3] {
        [Pass::Others, Pass::Same, Pass::Copy].map(|pass| Key {
            load: Load::Passes(pass),
            ..*self
        })
    }

    /// How long each of that many threads is at a large object.
    fn times(&self, passes: &BTreeMap<String, Run>) -> Times {
        let [other, same, copy] = self.passes().map(|key| {
            let run = &passes[&key.name()].machine;
            run.time_fs * self.threads as u64 * Passes::SMALLER / run.transactions
        });
        Times { other, same, copy }
    }

    fn ran(&self, parts: Vec<Counts>) -> Run {
        Run {
            name: self.name(),
            machine: parts.last().copied().unwrap_or_default(),
            checkpoints: None,
            swaps: None,
            parts,
        }
    }
}

/// Runs a program in parts that intervals are made of, where it is long enough.
fn parts(
    config: &Config,
    program: &mut dyn Workload,
    warm_up: u64,
    functions: u64,
) -> Result<Vec<Counts>, String> {
    let mut machine = bus::Machine::new(config.hardware.clone(), Some(config.ssd), program);
    let has_batches = functions / config.sizes.group >= BATCHES as u64;
    let batches = if has_batches { BATCHES as u64 } else { 1 };
    let parts = machine.run_parts(warm_up, functions, batches)?;
    machine.check()?;
    Ok(parts)
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
    /// Objects that came in from a file, with those of the warm-up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swaps: Option<u64>,
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
        let is_pass = |key: &&Key| matches!(key.load, Load::Passes(_));
        let (first, then): (Vec<&Key>, Vec<&Key>) = keys.iter().partition(is_pass);
        let mut runs = BTreeMap::new();
        for keys in [first, then] {
            let more = each(&keys, jobs, tell, |key| {
                let run = key.run(machines, &runs)?;
                Ok((run.name.clone(), run))
            })?;
            runs.extend(more);
        }
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
