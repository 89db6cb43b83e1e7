//! Machine files of machines with their memory on the bus (`mss.toml`).

use super::outcome::{Disk, Prices};
use crate::config::Described;
use crate::config::layers::Kind;
use crate::config::processor::{Caches, Cpu, shape};
use crate::device::Device;
use crate::machine::Shape;
use crate::machine::distances::Distances;
use crate::quantity::{self, Quantity, Span};
use crate::text::{ConfigError, SourceText};
use serde::Deserialize;

/// Cores that such a machine can have: a line knows each core that may hold it.
pub const MOST_CORES: usize = 64;

/// When a write counts as durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DurableIn {
    /// When the memory controller has taken it.
    Queue,
    /// When it is safe in the cells.
    Cells,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[doc(hidden)]
pub struct File {
    name: String,
    #[serde(rename = "source")]
    _source: String,
    cpu: Cpu,
    cache: Caches,
    memory: Memory,
    fence: Fence,
    energy: Energies,
    disk: DiskTable,
    study: StudyTable,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Memory {
    #[serde(rename = "source")]
    _source: String,
    device: String,
    channels: u32,
    path: Quantity<Span>,
    durable: DurableIn,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fence {
    #[serde(rename = "source")]
    _source: String,
    sfence: Quantity<Span>,
    mfence: Quantity<Span>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Energies {
    row: Rows,
    processor: Processor,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rows {
    #[serde(rename = "source")]
    _source: String,
    hit_read: Quantity<quantity::Energy>,
    hit_write: Quantity<quantity::Energy>,
    array_read: Quantity<quantity::Energy>,
    array_write: Quantity<quantity::Energy>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Processor {
    #[serde(rename = "source")]
    _source: String,
    instruction: Quantity<quantity::Energy>,
    l1: Quantity<quantity::Energy>,
    shared: Quantity<quantity::Energy>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DiskTable {
    #[serde(rename = "source")]
    _source: String,
    access: Quantity<quantity::Time>,
    bandwidth_mb_per_s: u64,
    power: Quantity<quantity::Power>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StudyTable {
    #[serde(rename = "source")]
    _source: String,
    strings: u64,
    swaps: Vec<u64>,
    warm_up: u64,
    threshold: f64,
    thresholds: Vec<f64>,
    log_entries: u64,
}

/// What the programs of the study are run with.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Study {
    /// Strings of 256 bytes.
    pub strings: u64,
    /// Swaps counted, of each run.
    pub swaps: Vec<u64>,
    /// Swaps before.
    pub warm_up: u64,
    /// Persists for each swap, of the programs with a persistence thread.
    pub threshold: f64,
    /// The same, of the sweep.
    pub thresholds: Vec<f64>,
    /// Entries of a log.
    pub log_entries: u64,
}

/// A machine as its file says.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Config {
    /// Its name.
    pub name: String,
    /// Cores, caches and memory.
    #[serde(flatten)]
    pub hardware: Hardware,
    /// What accesses cost.
    pub prices: Prices,
    /// The disk.
    pub disk: Disk,
    /// What is run.
    pub study: Study,
}

/// What a program runs on.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Hardware {
    /// Cores and caches.
    pub shape: Shape,
    /// The memory.
    pub memory: Device,
    /// From the last cache to a memory's queue, in femtoseconds, each way.
    pub path_fs: u64,
    /// When a write counts as durable.
    pub durable: DurableIn,
    /// A fence with nothing to wait for, in femtoseconds.
    pub sfence_fs: u64,
    /// The same of a full fence.
    pub mfence_fs: u64,
    /// NVM beside the memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvm: Option<Nvm>,
    /// Nodes with a last cache each; one last cache without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distances: Option<Distances>,
    /// What waiting for a lock costs, where programs have locks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locks: Option<Locks>,
}

/// NVM on the bus, beside the memory.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Nvm {
    /// The device.
    pub device: Device,
    /// When a write counts as durable.
    pub durable: DurableIn,
}

/// A mutex: a waiter spins, then sleeps until it is woken. All in femtoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Locks {
    /// How long a waiter spins.
    pub spin_fs: u64,
    /// A waiter's call that puts it to sleep.
    pub sleep_fs: u64,
    /// The holder's call that wakes one.
    pub wake_fs: u64,
    /// From the beginning of that call until the woken one goes on.
    pub turnaround_fs: u64,
}

impl Hardware {
    /// What the tables of a machine file say of it.
    pub(crate) fn read(
        source: SourceText<'_>,
        cpu: &Cpu,
        cache: &Caches,
        memory: &Memory,
        fence: &Fence,
    ) -> Result<Hardware, ConfigError> {
        if !(memory.channels.is_power_of_two() && memory.channels <= 16) {
            return Err(source.wrong("memory", "channels", "1, 2, 4, 8 or 16"));
        }
        let cycle_fs = cpu.clock.is.cycle_fs;
        for (place, latency) in [
            (("memory", "path"), &memory.path),
            (("fence", "sfence"), &fence.sfence),
            (("fence", "mfence"), &fence.mfence),
        ] {
            latency.check_latency(source, place, cycle_fs)?;
        }
        let mut device = Device::find(&memory.device).map_err(|why| source.wrong("memory", "device", why))?;
        device.channels = memory.channels;
        Ok(Hardware {
            shape: shape(source, cpu, cache, MOST_CORES as u64)?,
            memory: device,
            path_fs: memory.path.is.fs(cycle_fs),
            durable: memory.durable,
            sfence_fs: fence.sfence.is.fs(cycle_fs),
            mfence_fs: fence.mfence.is.fs(cycle_fs),
            nvm: None,
            distances: None,
            locks: None,
        })
    }
}

impl Described for Config {
    type File = File;

    const KIND: Kind = Kind {
        machines: "machines with memory on the bus",
        built_in: &[("mss", include_str!("../../configs/mss.toml"))],
    };

    fn resolve(source: SourceText<'_>, said: File) -> Result<Config, ConfigError> {
        check(source, &said)?;
        let (row, processor) = (&said.energy.row, &said.energy.processor);
        Ok(Config {
            hardware: Hardware::read(source, &said.cpu, &said.cache, &said.memory, &said.fence)?,
            prices: Prices {
                hit_read_j: row.hit_read.is.0,
                hit_write_j: row.hit_write.is.0,
                array_read_j: row.array_read.is.0,
                array_write_j: row.array_write.is.0,
                instruction_j: processor.instruction.is.0,
                l1_j: processor.l1.is.0,
                shared_j: processor.shared.is.0,
            },
            disk: Disk {
                access_fs: said.disk.access.is.0,
                byte_fs: 1_000_000_000 / said.disk.bandwidth_mb_per_s,
                power_w: said.disk.power.is.0,
            },
            study: Study {
                strings: said.study.strings,
                swaps: said.study.swaps,
                warm_up: said.study.warm_up,
                threshold: said.study.threshold,
                thresholds: said.study.thresholds,
                log_entries: said.study.log_entries,
            },
            name: said.name,
        })
    }
}

impl Config {
    /// The same study, smaller by a power of two in strings, log, seeks and shared cache, and in the first cache by four at
    /// most; swaps and warm-up are fewer by more: they must be some times as many as the shared cache has lines.
    ///
    /// # Errors
    /// When a part would be too small to be one.
    pub fn smaller(&self, by: u64) -> Result<Config, ConfigError> {
        let refused = ConfigError::too_small(&self.name, "study", by, "strings and caches");
        if !by.is_power_of_two() {
            return Err(refused);
        }
        let mut config = self.clone();
        let study = &mut config.study;
        study.strings /= by;
        study.log_entries /= by;
        study.warm_up /= by;
        study
            .swaps
            .iter_mut()
            .for_each(|swaps| *swaps = *swaps / by / by.min(4));
        // A smaller log on the same disk would be all seeks.
        config.disk.access_fs /= by;
        let levels = &mut config.hardware.shape.levels;
        let last = levels.len() - 1;
        for (number, level) in levels.iter_mut().enumerate() {
            level.bytes /= if number == last { by } else { by.min(4) };
        }
        let fits = study.strings >= 64
            && study.log_entries >= 4
            && levels
                .iter()
                .all(|level| level.bytes >= 64 * u64::from(level.ways))
            && levels[last].bytes > levels[last - 1].bytes * config.hardware.shape.cores as u64 / 4;
        match fits {
            true => Ok(config),
            false => Err(refused),
        }
    }
}

fn check(source: SourceText<'_>, said: &File) -> Result<(), ConfigError> {
    let study = &said.study;
    let is_threshold = |threshold: &f64| *threshold > 0.0 && *threshold <= 1.0;
    source.check([
        (
            "disk",
            "bandwidth_mb_per_s",
            (1..=100_000).contains(&said.disk.bandwidth_mb_per_s),
            "1 to 100000",
        ),
        (
            "study",
            "strings",
            (64..=1 << 22).contains(&study.strings),
            "64 to 4194304",
        ),
        (
            "study",
            "swaps",
            !study.swaps.is_empty() && study.swaps.iter().all(|swaps| *swaps > 0),
            "one number of swaps at least, none of them 0",
        ),
        (
            "study",
            "threshold",
            is_threshold(&study.threshold),
            "above 0, and 1 at most",
        ),
        (
            "study",
            "thresholds",
            !study.thresholds.is_empty() && study.thresholds.iter().all(is_threshold),
            "above 0, and 1 at most",
        ),
        (
            "study",
            "log_entries",
            (4..=1 << 22).contains(&study.log_entries),
            "4 to 4194304",
        ),
    ])
}
