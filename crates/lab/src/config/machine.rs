//! Machine files: a whole machine, from cores to NVM (`dpc.toml`, `twins.toml`).

use super::Described;
use super::layers::Kind;
use super::processor::{Caches, Cpu, shape};
use crate::controller::lookup::{Backup, Placement};
use crate::controller::{Growth, Order, Setting};
use crate::device::Device;
use crate::machine::hierarchy::Level;
use crate::machine::{Mode, Plan};
use crate::op::PAGE_BYTES;
use crate::quantity::{Bytes, Quantity, Span};
use crate::schemes::SchemeName;
use crate::text::{ConfigError, SourceText};
use serde::Deserialize;
use twinpage_baselines::{Switching, Tables};

/// Cores that such a machine can have.
const MOST_CORES: u64 = 16;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[doc(hidden)]
pub struct File {
    name: String,
    #[serde(rename = "source")]
    _source: String,
    cpu: Cpu,
    cache: Caches,
    dram: Dram,
    nvm: NvmTable,
    table: Table,
    pool: Pool,
    thynvm: ThyNvm,
    undo_log: First,
    copy_on_write: Option<First>,
    page_overlay: Option<PageOverlay>,
    checkpoint: Checkpoint,
    run: Run,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Dram {
    #[serde(rename = "source")]
    _source: String,
    device: String,
    size: Quantity<Bytes>,
    lookup: Quantity<Span>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NvmTable {
    #[serde(rename = "source")]
    _source: String,
    device: String,
    /// Instead of the device's own; the bytes stay.
    channels: Option<u32>,
    size: Quantity<Bytes>,
    write_buffer: Quantity<Bytes>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(rename = "source")]
    _source: String,
    lookup: Quantity<Span>,
    placement: Placement,
    backup: Backup,
    cached_entries: usize,
    pre_allocate: bool,
    journal: Quantity<Bytes>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pool {
    #[serde(rename = "source")]
    _source: String,
    size: Quantity<Bytes>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ThyNvm {
    #[serde(rename = "source")]
    _source: String,
    blocks: u32,
    pages: u32,
    dram: TablesIn,
    switching: Thresholds,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct First {
    #[serde(rename = "source")]
    _source: String,
    order: Order,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PageOverlay {
    #[serde(rename = "source")]
    _source: String,
    grows: Growth,
}

/// Where the pages and lines of ThyNVM's tables lie.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum TablesIn {
    /// In the machine's DRAM, of which the cache has what they do not hold.
    Cache,
    /// In DRAM of their own.
    Beside,
}

/// When ThyNVM's pages change their grain: as the paper says, or as its code does.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Thresholds {
    Paper,
    Code,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Checkpoint {
    #[serde(rename = "source")]
    _source: String,
    interval: Quantity<Span>,
    overlap: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    #[serde(rename = "source")]
    _source: String,
    warm_up: u64,
    instructions: u64,
}

/// A machine as its file says.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Config {
    /// Its name.
    pub name: String,
    /// What it resolves to; the mode is for the dual page.
    pub plan: Plan,
    /// Whether checkpoints overlap with execution where the scheme does not do it by itself.
    pub overlap: bool,
}

impl Described for Config {
    type File = File;

    const KIND: Kind = Kind {
        machines: "machines with a memory controller",
        built_in: &[
            ("dpc", include_str!("../../configs/dpc.toml")),
            ("twins", include_str!("../../configs/twins.toml")),
        ],
    };

    fn resolve(source: SourceText<'_>, said: File) -> Result<Config, ConfigError> {
        let cycle_fs = said.cpu.clock.is.cycle_fs;
        let shape = shape(source, &said.cpu, &said.cache, MOST_CORES)?;
        let controller = controller(source, &said, cycle_fs)?;
        check(source, &said)?;
        check_devices(source, &controller, said.nvm.size.is.0)?;
        for (place, latency) in [
            (("dram", "lookup"), &said.dram.lookup),
            (("table", "lookup"), &said.table.lookup),
        ] {
            latency.check_latency(source, place, cycle_fs)?;
        }
        Ok(Config {
            overlap: said.checkpoint.overlap,
            plan: Plan {
                shape,
                controller,
                nvm_bytes: said.nvm.size.is.0,
                pool_pages: said.pool.size.is.0 / crate::op::PAGE_BYTES,
                journal_bytes: said.table.journal.is.0,
                tables: Tables {
                    blocks: said.thynvm.blocks,
                    pages: said.thynvm.pages,
                    switching: match said.thynvm.switching {
                        Thresholds::Paper => Switching::Paper,
                        Thresholds::Code => Switching::Code,
                    },
                },
                interval_fs: said.checkpoint.interval.is.fs(cycle_fs),
                mode: Mode::Stall,
                warm_up: said.run.warm_up,
                instructions: said.run.instructions,
            },
            name: said.name,
        })
    }

    fn resolved(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data")
    }
}

impl Config {
    /// The plan for a scheme: who waits for its checkpoints.
    #[must_use]
    pub fn plan(&self, scheme: impl Into<SchemeName>) -> Plan {
        let scheme = scheme.into();
        let mode = match scheme.name() {
            "in-place" => Mode::None,
            _ if scheme.overlaps() => Mode::Scheme,
            _ if self.overlap => Mode::Overlap,
            _ => Mode::Stall,
        };
        Plan {
            mode,
            ..self.plan.clone()
        }
    }

    /// DRAM for the pages and lines of ThyNVM's tables, in whole pages.
    fn thynvm_bytes(&self) -> u64 {
        let Tables { blocks, pages, .. } = self.plan.tables;
        thynvm_bytes(blocks, pages)
    }

    /// The same machine, smaller by a power of two: DRAM, NVM, pool, journal, tables, cached entries,
    /// cores' state, epochs and run, so that a footprint smaller by as much meets the same rates. Caches shrink to a quarter at most: smaller
    /// ones would no longer filter anything.
    ///
    /// # Errors
    /// When a part would be too small to be one.
    pub fn smaller(&self, by: u64) -> Result<Config, ConfigError> {
        let refused = ConfigError::too_small(
            &self.name,
            "machine",
            by,
            "each cache a set, and epochs that last",
        );
        if !by.is_power_of_two() {
            return Err(refused);
        }
        let mut config = self.clone();
        let plan = &mut config.plan;
        for level in &mut plan.shape.levels {
            level.bytes /= by.min(4);
        }
        plan.shape.state_bytes /= by;
        plan.controller.dram_bytes /= by;
        plan.nvm_bytes /= by;
        plan.pool_pages /= by;
        plan.journal_bytes /= by;
        let cached = &mut plan.controller.cached_entries;
        *cached = cached.div_ceil(by as usize);
        for entries in [&mut plan.tables.blocks, &mut plan.tables.pages] {
            *entries = u32::try_from(u64::from(*entries) / by).unwrap_or(1).max(1);
        }
        plan.interval_fs /= by;
        plan.warm_up /= by;
        plan.instructions /= by;
        let sets = |level: &Level| level.bytes >= 64 * u64::from(level.ways);
        let fits = plan.shape.levels.iter().all(sets)
            && plan.interval_fs > 0
            && plan.controller.dram_bytes >= 64 * 4096
            && (config.plan.controller.tables_beside
                || config.thynvm_bytes() + 64 * 4096 <= config.plan.controller.dram_bytes);
        match fits {
            true => Ok(config),
            false => Err(refused),
        }
    }
}

/// DRAM for a page of each entry of the page table and a line of each of the block table.
fn thynvm_bytes(blocks: u32, pages: u32) -> u64 {
    u64::from(pages) * PAGE_BYTES + (u64::from(blocks) * 64).next_multiple_of(PAGE_BYTES)
}

fn controller(source: SourceText<'_>, said: &File, cycle_fs: u64) -> Result<Setting, ConfigError> {
    let device = |table: &str, name: &str| {
        Device::find(name).map_err(|why| match std::path::Path::new(name).exists() {
            true => why,
            false => source.wrong(table, "device", why),
        })
    };
    let mut nvm = device("nvm", &said.nvm.device)?;
    if let Some(channels) = said.nvm.channels {
        if !(channels.is_power_of_two() && channels <= 16) {
            return Err(source.wrong(
                "nvm",
                "channels",
                format!("{channels} cannot be: 1, 2, 4, 8 or 16"),
            ));
        }
        if nvm.rows * u64::from(nvm.channels) < u64::from(channels) {
            let why = format!(
                "{channels} cannot be: {} has less rows than that in a bank",
                nvm.name
            );
            return Err(source.wrong("nvm", "channels", why));
        }
        nvm.set_channels(channels);
    }
    Ok(Setting {
        dram: device("dram", &said.dram.device)?,
        dram_bytes: said.dram.size.is.0,
        nvm,
        cpt_fs: said.dram.lookup.is.fs(cycle_fs),
        table_fs: said.table.lookup.is.fs(cycle_fs),
        placement: said.table.placement,
        backup: said.table.backup,
        tables_beside: said.thynvm.dram == TablesIn::Beside,
        undo: said.undo_log.order,
        copies: said
            .copy_on_write
            .as_ref()
            .map_or(Order::Posted, |said| said.order),
        overlays: said
            .page_overlay
            .as_ref()
            .map_or(Growth::default(), |said| said.grows),
        cached_entries: said.table.cached_entries,
        write_buffer_lines: said.nvm.write_buffer.is.0 / 64,
        pre_allocate: said.table.pre_allocate,
    })
}

/// Both memories hold what they are to hold: past its end a device would begin again at its first row.
fn check_devices(source: SourceText<'_>, setting: &Setting, nvm_bytes: u64) -> Result<(), ConfigError> {
    for (table, device, bytes) in [
        ("dram", &setting.dram, setting.dram_bytes),
        ("nvm", &setting.nvm, nvm_bytes),
    ] {
        if bytes > device.bytes() {
            let (name, most) = (&device.name, device.bytes());
            return Err(source.wrong(table, "size", format!("its device, {name}, holds {most} bytes")));
        }
    }
    Ok(())
}

fn check(source: SourceText<'_>, said: &File) -> Result<(), ConfigError> {
    let pages =
        |bytes: &Quantity<Bytes>, least: u64| bytes.is.0.is_multiple_of(4096) && bytes.is.0 / 4096 >= least;
    source.check([
        (
            "dram",
            "size",
            pages(&said.dram.size, 64) && said.dram.size.is.0 <= 64 << 30,
            "64 pages of 4 KiB at least, 64 GiB at most",
        ),
        (
            "nvm",
            "size",
            pages(&said.nvm.size, 1024) && said.nvm.size.is > said.dram.size.is,
            "more than DRAM, in pages of 4 KiB",
        ),
        (
            "nvm",
            "write_buffer",
            said.nvm.write_buffer.is.0 >= 64,
            "a line at least",
        ),
        (
            "pool",
            "size",
            pages(&said.pool.size, 1) && said.pool.size.is < said.nvm.size.is,
            "pages of 4 KiB, and less than NVM",
        ),
        (
            "thynvm",
            "blocks",
            (1..=1 << 20).contains(&said.thynvm.blocks),
            "1 to 1048576 entries",
        ),
        (
            "thynvm",
            "pages",
            (1..=1 << 24).contains(&said.thynvm.pages),
            "1 to 16777216 entries",
        ),
        (
            "thynvm",
            "dram",
            said.thynvm.dram == TablesIn::Beside
                || thynvm_bytes(said.thynvm.blocks, said.thynvm.pages) + 64 * PAGE_BYTES
                    <= said.dram.size.is.0,
            "its tables leave the cache less than 64 pages of DRAM",
        ),
        (
            "table",
            "journal",
            said.table.journal.is.0 <= 1 << 30,
            "at most 1 GiB",
        ),
        (
            "table",
            "cached_entries",
            said.table.cached_entries as u64 <= said.nvm.size.is.0 / PAGE_BYTES,
            "at most one for each page of NVM",
        ),
        (
            "checkpoint",
            "interval",
            said.checkpoint.interval.is.fs(1) > 0,
            "an epoch must last",
        ),
        (
            "run",
            "instructions",
            said.run.instructions > 0,
            "there must be some",
        ),
    ])
}
