//! The machine files of persistent objects (`simpo.toml`, `simpo-intel.toml`).

use crate::bus::config::{DurableIn, Fence, MOST_CORES, Memory};
use crate::bus::{Disk, Hardware, Locks, Nvm};
use crate::config::Described;
use crate::config::layers::Kind;
use crate::config::processor::{Caches, Cpu};
use crate::device::Device;
use crate::machine::distances::Distances;
use crate::quantity::{Quantity, Span, Time};
use crate::text::{ConfigError, SourceText};
use serde::Deserialize;

/// Runs that many times shorter are much shorter.
const MUCH: u64 = 16;
/// Entries of the longest log.
const MOST_ENTRIES: u64 = 1 << 22;
/// Functions of the least group.
const LEAST_GROUP: u64 = 2;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[doc(hidden)]
pub struct File {
    name: String,
    #[serde(rename = "source")]
    _source: String,
    cpu: Cpu,
    cache: Caches,
    coherence: Coherence,
    lock: LockTable,
    memory: Memory,
    nvm: NvmTable,
    fence: Fence,
    ssd: Ssd,
    call: CallTable,
    study: StudyTable,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Coherence {
    #[serde(rename = "source")]
    _source: String,
    node: usize,
    package: usize,
    line: [u32; 4],
    shared: [u32; 4],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LockTable {
    #[serde(rename = "source")]
    _source: String,
    spin: Quantity<Span>,
    sleep: Quantity<Span>,
    wake: Quantity<Span>,
    turnaround: Quantity<Span>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NvmTable {
    #[serde(rename = "source")]
    _source: String,
    device: String,
    channels: u32,
    durable: DurableIn,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ssd {
    #[serde(rename = "source")]
    _source: String,
    access: Quantity<Time>,
    bandwidth_mb_per_s: u64,
    flush_each: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallTable {
    #[serde(rename = "source")]
    _source: String,
    element: u32,
    caller: u32,
    wrapper: u32,
    checked: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StudyTable {
    #[serde(rename = "source")]
    _source: String,
    rows: u64,
    columns: u64,
    others: [u64; 2],
    group: u64,
    log_entries: u64,
    threads: Vec<usize>,
    warm_up: u64,
    functions: u64,
    recovered: u64,
}

/// Instructions around memory accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Call {
    /// For each element of a row.
    pub element: u32,
    /// Of the caller, around a call.
    pub caller: u32,
    /// Of a persistent function's interface.
    pub wrapper: u32,
    /// For each entry that recovery looks at.
    pub checked: u32,
}

/// The object and its log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Sizes {
    /// Rows of the array.
    pub rows: u64,
    /// Elements of a row, four bytes each.
    pub columns: u64,
    /// The two rows that rowInc is called for.
    pub others: [u64; 2],
    /// Functions after which the log is flushed and a checkpoint made.
    pub group: u64,
    /// Entries of the cyclic log.
    pub log_entries: u64,
}

/// What is run.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Study {
    /// Threads that call, one run for each.
    pub threads: Vec<usize>,
    /// Functions before anything is counted.
    pub warm_up: u64,
    /// Functions counted.
    pub functions: u64,
    /// Functions run before the fault that recovery follows; it is as many in shorter runs.
    pub recovered: u64,
}

/// A machine as its file says.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Config {
    /// Its name.
    pub name: String,
    /// Cores, caches and memories. A core for each thread, and one more for the second server.
    pub hardware: Hardware,
    /// The SSD.
    pub ssd: Disk,
    /// Whether `ssd` flushes its file after each function, not with its log.
    pub ssd_flushes_each: bool,
    /// Instructions.
    pub call: Call,
    /// The object.
    pub sizes: Sizes,
    /// What is run.
    pub study: Study,
}

impl Described for Config {
    type File = File;

    const KIND: Kind = Kind {
        machines: "machines with objects",
        built_in: &[
            ("simpo", include_str!("../../configs/simpo.toml")),
            ("simpo-intel", include_str!("../../configs/simpo-intel.toml")),
        ],
    };

    fn resolve(source: SourceText<'_>, said: File) -> Result<Config, ConfigError> {
        let mut hardware = Hardware::read(source, &said.cpu, &said.cache, &said.memory, &said.fence)?;
        check(source, &said, hardware.shape.cores)?;
        let cycle_fs = said.cpu.clock.is.cycle_fs;
        for (key, latency) in [
            ("spin", &said.lock.spin),
            ("sleep", &said.lock.sleep),
            ("wake", &said.lock.wake),
            ("turnaround", &said.lock.turnaround),
        ] {
            latency.check_latency(source, ("lock", key), cycle_fs)?;
        }
        let fs = |span: &Quantity<Span>| span.is.fs(cycle_fs);
        hardware.shape.cores = said.study.threads.iter().copied().max().unwrap_or(1) + 1;
        let mut device = Device::find(&said.nvm.device).map_err(|why| source.wrong("nvm", "device", why))?;
        device.channels = said.nvm.channels;
        hardware.nvm = Some(Nvm {
            device,
            durable: said.nvm.durable,
        });
        hardware.distances = Some(Distances {
            node: said.coherence.node,
            package: said.coherence.package,
            line: said.coherence.line,
            shared: said.coherence.shared,
        });
        hardware.locks = Some(Locks {
            spin_fs: fs(&said.lock.spin),
            sleep_fs: fs(&said.lock.sleep),
            wake_fs: fs(&said.lock.wake),
            turnaround_fs: fs(&said.lock.turnaround),
        });
        Ok(Config {
            name: said.name,
            hardware,
            ssd: Disk {
                access_fs: said.ssd.access.is.0,
                byte_fs: 1_000_000_000 / said.ssd.bandwidth_mb_per_s,
                power_w: 0.0,
            },
            ssd_flushes_each: said.ssd.flush_each,
            call: Call {
                element: said.call.element,
                caller: said.call.caller,
                wrapper: said.call.wrapper,
                checked: said.call.checked,
            },
            sizes: Sizes {
                rows: said.study.rows,
                columns: said.study.columns,
                others: said.study.others,
                group: said.study.group,
                log_entries: said.study.log_entries,
            },
            study: Study {
                threads: said.study.threads,
                warm_up: said.study.warm_up,
                functions: said.study.functions,
                recovered: said.study.recovered,
            },
        })
    }
}

impl Config {
    /// The same machine and object with shorter runs; much shorter ones for the least, a middle and the largest number of
    /// threads alone.
    ///
    /// # Errors
    /// When less than a group would be counted.
    pub fn smaller(&self, by: u64) -> Result<Config, ConfigError> {
        let mut config = self.clone();
        let study = &mut config.study;
        for number in [&mut study.warm_up, &mut study.functions] {
            *number /= by.max(1);
        }
        if by >= MUCH {
            let all = &study.threads;
            let mut some = vec![all[0], all[all.len() / 2], all[all.len() - 1]];
            some.dedup();
            study.threads = some;
        }
        match by.is_power_of_two() && study.functions >= self.sizes.group {
            true => Ok(config),
            false => Err(ConfigError::too_small(
                &self.name,
                "study",
                by,
                "a group of functions",
            )),
        }
    }
}

fn check(source: SourceText<'_>, said: &File, cores: usize) -> Result<(), ConfigError> {
    let study = &said.study;
    let most = cores.min(MOST_CORES - 1);
    let is_row = |row: &u64| *row < study.rows;
    source.check([
        ("coherence", "node", said.coherence.node > 0, "1 at least"),
        ("coherence", "package", said.coherence.package > 0, "1 at least"),
        (
            "nvm",
            "channels",
            said.nvm.channels.is_power_of_two() && said.nvm.channels <= 16,
            "1, 2, 4, 8 or 16",
        ),
        (
            "ssd",
            "bandwidth_mb_per_s",
            (1..=100_000).contains(&said.ssd.bandwidth_mb_per_s),
            "1 to 100000",
        ),
        ("study", "rows", (1..=1024).contains(&study.rows), "1 to 1024"),
        (
            "study",
            "columns",
            (1..=1 << 16).contains(&study.columns),
            "1 to 65536",
        ),
        (
            "study",
            "others",
            study.others.iter().all(is_row) && study.others[0] != study.others[1],
            "two different rows",
        ),
        (
            "study",
            "group",
            (LEAST_GROUP..=1 << 16).contains(&study.group),
            "2 to 65536",
        ),
        (
            "study",
            "log_entries",
            study.log_entries.is_power_of_two()
                && study.log_entries >= 2 * study.group + 4 * MOST_CORES as u64
                && study.log_entries <= MOST_ENTRIES,
            "a power of two that holds two groups and four entries for each of 64 cores, and 4194304 at most",
        ),
        (
            "study",
            "threads",
            !study.threads.is_empty() && study.threads.iter().all(|threads| (1..=most).contains(threads)),
            "one number at least, each from 1 to the number of cores, and 63 at most",
        ),
        (
            "study",
            "functions",
            study.functions >= study.group,
            "a group at least",
        ),
    ])
}
