//! The machine file of sections (`ssp.toml`).

use crate::bus::Hardware;
use crate::bus::config::{Fence, MOST_CORES, Memory};
use crate::config::Described;
use crate::config::layers::Kind;
use crate::config::processor::{Caches, Cpu};
use crate::quantity::{Bytes, Quantity, Span};
use crate::text::{ConfigError, SourceText};
use crate::workload::maps::NODES;
use serde::Deserialize;

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
    tlb: Tlb,
    ssp: Ssp,
    log: Log,
    study: StudyTable,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StudyTable {
    #[serde(rename = "source")]
    _source: String,
    keys: u64,
    nodes: Quantity<Bytes>,
    elements: u64,
    items: u64,
    tuples: u64,
    outside: u32,
    warm_up: u64,
    sections: u64,
    dram: Quantity<Span>,
    latencies: Vec<u64>,
    cache_cycles: Vec<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tlb {
    #[serde(rename = "source")]
    _source: String,
    entries: usize,
    walk: Quantity<Span>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ssp {
    #[serde(rename = "source")]
    _source: String,
    write_set_pages: usize,
    spare_slots: usize,
    near_entries: usize,
    near: Quantity<Span>,
    far: Quantity<Span>,
    flip: Quantity<Span>,
    interrupt: Quantity<Span>,
    journal: Quantity<Bytes>,
    sub_page: Quantity<Bytes>,
    consolidation: Consolidation,
    handler_work: u32,
}

/// When a page that is not in use is consolidated (3.4).
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Consolidation {
    /// At once.
    Eager,
    /// When slots of the SSP cache are short.
    Lazy,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Log {
    #[serde(rename = "source")]
    _source: String,
    undo_entry: Quantity<Bytes>,
    redo_entry: Quantity<Bytes>,
    size: Quantity<Bytes>,
}

/// Sizes and costs of what the designs keep.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct Setting {
    /// Cores that run the program. One more does what runs in the background.
    pub cores: usize,
    /// Pages in the TLB of a core.
    pub tlb_entries: usize,
    /// A page walk, in femtoseconds.
    pub walk_fs: u64,
    /// Pages in the write-set buffer of a core.
    pub write_set_pages: usize,
    /// Slots of the SSP cache above one for each entry of each TLB.
    pub spare_slots: usize,
    /// Entries of the SSP cache that lie in the last cache.
    pub near_entries: usize,
    /// Fetching one of those, in femtoseconds.
    pub near_fs: u64,
    /// Fetching another.
    pub far_fs: u64,
    /// A flip-current-bit message, in femtoseconds of the core that sends it.
    pub flip_fs: u64,
    /// What a shoot-down costs each core that it interrupts, in femtoseconds; its sender waits for it as `flip_fs` says. 0:
    /// there are none, flip-current-bit messages keep the TLBs coherent.
    pub interrupt_fs: u64,
    /// Lines that are remapped together.
    pub sub_page_lines: u32,
    /// Pages are consolidated when slots of the SSP cache are short, else at once.
    pub lazy: bool,
    /// Instructions of the fall-back path's handler for each line that it logs.
    pub handler_work: u32,
    /// Bytes of the metadata journal.
    pub journal_bytes: u64,
    /// Bytes of an undo log's entry.
    pub undo_entry_bytes: u64,
    /// Bytes of a redo log's entry.
    pub redo_entry_bytes: u64,
    /// Bytes of the log of a core.
    pub log_bytes: u64,
    /// Lines from one line of a log or journal to the next. Open: they are neighbours, and share a bank as far as its row
    /// goes.
    pub log_stride: u64,
}

/// What is run.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Study {
    /// Keys that can be in a map.
    pub keys: u64,
    /// Bytes of a node of the B+-tree.
    pub node_bytes: u64,
    /// Elements of the array of SPS.
    pub elements: u64,
    /// Keys that clients of Memcached ask for.
    pub items: u64,
    /// Tuples of Vacation.
    pub tuples: u64,
    /// Instructions of both outside their data, for each access to it.
    pub outside: u32,
    /// Sections before anything is counted.
    pub warm_up: u64,
    /// Sections counted.
    pub sections: u64,
    /// The latency that Figure 8 gives others in multiples of, in femtoseconds.
    pub dram_fs: u64,
    /// Those multiples.
    pub latencies: Vec<u64>,
    /// Latencies of the SSP cache, in cycles.
    pub cache_cycles: Vec<u64>,
}

/// A machine as its file says.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Config {
    /// Its name.
    pub name: String,
    /// Cores, caches and memory. One core more than the file says: the background's.
    pub hardware: Hardware,
    /// What the designs keep.
    pub setting: Setting,
    /// What is run.
    pub study: Study,
}

impl Described for Config {
    type File = File;

    const KIND: Kind = Kind {
        machines: "machines with sections",
        built_in: &[("ssp", include_str!("../../configs/ssp.toml"))],
    };

    fn resolve(source: SourceText<'_>, said: File) -> Result<Config, ConfigError> {
        check(source, &said)?;
        let cycle_fs = said.cpu.clock.is.cycle_fs;
        for (place, latency) in [
            (("tlb", "walk"), &said.tlb.walk),
            (("ssp", "near"), &said.ssp.near),
            (("ssp", "far"), &said.ssp.far),
            (("ssp", "flip"), &said.ssp.flip),
            (("ssp", "interrupt"), &said.ssp.interrupt),
            (("study", "dram"), &said.study.dram),
        ] {
            latency.check_latency(source, place, cycle_fs)?;
        }
        let fs = |span: &Quantity<Span>| span.is.fs(cycle_fs);
        let mut hardware = Hardware::read(source, &said.cpu, &said.cache, &said.memory, &said.fence)?;
        let cores = hardware.shape.cores;
        if cores == MOST_CORES {
            return Err(source.wrong("cpu", "cores", "63 at most: one more works in the background"));
        }
        hardware.shape.cores += 1;
        Ok(Config {
            name: said.name,
            hardware,
            setting: Setting {
                cores,
                tlb_entries: said.tlb.entries,
                walk_fs: fs(&said.tlb.walk),
                write_set_pages: said.ssp.write_set_pages,
                spare_slots: said.ssp.spare_slots,
                near_entries: said.ssp.near_entries,
                near_fs: fs(&said.ssp.near),
                far_fs: fs(&said.ssp.far),
                flip_fs: fs(&said.ssp.flip),
                interrupt_fs: fs(&said.ssp.interrupt),
                sub_page_lines: (said.ssp.sub_page.is.0 / 64) as u32,
                lazy: said.ssp.consolidation == Consolidation::Lazy,
                handler_work: said.ssp.handler_work,
                journal_bytes: said.ssp.journal.is.0,
                undo_entry_bytes: said.log.undo_entry.is.0,
                redo_entry_bytes: said.log.redo_entry.is.0,
                log_bytes: said.log.size.is.0,
                log_stride: 1,
            },
            study: Study {
                keys: said.study.keys,
                node_bytes: said.study.nodes.is.0,
                elements: said.study.elements,
                items: said.study.items,
                tuples: said.study.tuples,
                outside: said.study.outside,
                warm_up: said.study.warm_up,
                sections: said.study.sections,
                dram_fs: fs(&said.study.dram),
                latencies: said.study.latencies,
                cache_cycles: said.study.cache_cycles,
            },
        })
    }
}

impl Config {
    /// The same machine with an agency and runs that are smaller by a power of two. Maps, array and cache stay as large:
    /// the part of one of four threads is only a few times larger than its TLB, and consolidation begins where pages leave
    /// that (3.4).
    ///
    /// # Errors
    /// When a part would be too small to be one.
    pub fn smaller(&self, by: u64) -> Result<Config, ConfigError> {
        let mut config = self.clone();
        let study = &mut config.study;
        for size in [&mut study.tuples, &mut study.warm_up, &mut study.sections] {
            *size /= by.max(1);
        }
        match by.is_power_of_two() && study.tuples >= 1024 && study.sections >= 100 {
            true => Ok(config),
            false => Err(ConfigError::too_small(
                &self.name,
                "study",
                by,
                "1024 tuples and 100 sections",
            )),
        }
    }
}

fn check(source: SourceText<'_>, said: &File) -> Result<(), ConfigError> {
    let log = 4096..=1 << 30;
    let study = &said.study;
    let size = 1024..=1 << 26;
    source.check([
        (
            "tlb",
            "entries",
            (1..=1024).contains(&said.tlb.entries),
            "1 to 1024",
        ),
        (
            "ssp",
            "write_set_pages",
            (1..=1024).contains(&said.ssp.write_set_pages),
            "1 to 1024",
        ),
        (
            "ssp",
            "sub_page",
            [64, 128, 256].contains(&said.ssp.sub_page.is.0),
            "64, 128 or 256 B: the programs' locks cover no more",
        ),
        (
            "ssp",
            "spare_slots",
            said.ssp.spare_slots <= 1 << 16,
            "at most 65536",
        ),
        (
            "ssp",
            "near_entries",
            said.ssp.near_entries <= 1 << 16,
            "at most 65536",
        ),
        (
            "ssp",
            "journal",
            log.contains(&said.ssp.journal.is.0),
            "4 KiB to 1 GiB",
        ),
        ("log", "size", log.contains(&said.log.size.is.0), "4 KiB to 1 GiB"),
        (
            "log",
            "undo_entry",
            (72..=4096).contains(&said.log.undo_entry.is.0),
            "72 B (a line and its address) to 4 KiB",
        ),
        (
            "log",
            "redo_entry",
            (72..=4096).contains(&said.log.redo_entry.is.0),
            "72 B (a line and its address) to 4 KiB",
        ),
        ("study", "keys", size.contains(&study.keys), "1024 to 67108864"),
        (
            "study",
            "nodes",
            NODES.contains(&study.nodes.is.0),
            "512 B, 1 KiB or 2 KiB",
        ),
        (
            "study",
            "elements",
            size.contains(&study.elements),
            "1024 to 67108864",
        ),
        ("study", "items", size.contains(&study.items), "1024 to 67108864"),
        (
            "study",
            "tuples",
            size.contains(&study.tuples),
            "1024 to 67108864",
        ),
        ("study", "outside", study.outside <= 10_000, "at most 10000"),
        ("study", "sections", study.sections >= 100, "100 at least"),
        (
            "study",
            "latencies",
            !study.latencies.is_empty() && study.latencies.iter().all(|times| (1..=100).contains(times)),
            "one at least, each 1 to 100",
        ),
        (
            "study",
            "cache_cycles",
            !study.cache_cycles.is_empty(),
            "one at least",
        ),
    ])
}
