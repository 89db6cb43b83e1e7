//! The runs.

use super::StudyRequest;
use crate::bus::{Counts, Machine};
use crate::eval::Tell;
use crate::eval::each::each;
use crate::eval::precision::BATCHES;
use crate::op::LINE_BYTES;
use crate::sections::config::Study;
use crate::sections::power::{Cut, PowerCut};
use crate::sections::{self, Config, Name, Sections};
use crate::workload::Workload;
use crate::workload::apart::Apart;
use crate::workload::maps::{Maps, Program, Structure};
use crate::workload::memcached::Memcached;
use crate::workload::swaps::Swaps;
use crate::workload::turns::Outside;
use crate::workload::vacation::Vacation;
use std::collections::BTreeMap;

/// The kind of a program.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum LoadKind {
    /// A map, and whether keys are drawn by Zipf's law.
    Map(Structure, bool),
    Swaps,
    Memcached,
    Vacation,
}

/// A program of Table 3, and its name.
pub(super) type Load = (&'static str, LoadKind);

/// The microbenchmarks, as the figures order them.
pub(super) const LOADS: [Load; 7] = [
    ("btree-rand", LoadKind::Map(Structure::BTree, false)),
    ("rbtree-rand", LoadKind::Map(Structure::RedBlack, false)),
    ("hash-rand", LoadKind::Map(Structure::Hash, false)),
    ("sps", LoadKind::Swaps),
    ("btree-zipf", LoadKind::Map(Structure::BTree, true)),
    ("rbtree-zipf", LoadKind::Map(Structure::RedBlack, true)),
    ("hash-zipf", LoadKind::Map(Structure::Hash, true)),
];

/// The real workloads (5.4), each with four clients.
pub(super) const REAL: [Load; 2] = [
    ("memcached", LoadKind::Memcached),
    ("vacation", LoadKind::Vacation),
];

/// The program, of the size of the study.
fn make((_, kind): Load, study: &Study, threads: usize, other: Other, seed: u64) -> Box<dyn Workload> {
    let outside = match other {
        Other::Outside(instructions) => instructions,
        _ => study.outside,
    };
    // Memcached reads requests and writes answers without its lock. STAMP's sessions do nearly all within a transaction.
    let [of_memcached, of_vacation] = match other {
        Other::Moved => [Outside::Within(outside), Outside::Behind(outside)],
        _ => [Outside::Behind(outside), Outside::Within(outside)],
    };
    match kind {
        LoadKind::Swaps => Box::new(Swaps::new(study.elements, threads, seed)),
        LoadKind::Memcached if other == Other::Shared => {
            Box::new(Memcached::new(study.items, threads, of_memcached, 0, seed))
        }
        LoadKind::Vacation if other == Other::Shared => {
            Box::new(Vacation::new(study.tuples, threads, of_vacation, 0, seed))
        }
        LoadKind::Memcached => Box::new(Apart::new(threads, |thread, at| {
            Memcached::new(
                study.items / threads as u64,
                1,
                of_memcached,
                at,
                seed + thread as u64,
            )
        })),
        LoadKind::Vacation => Box::new(Apart::new(threads, |thread, at| {
            Vacation::new(
                study.tuples / threads as u64,
                1,
                of_vacation,
                at,
                seed + thread as u64,
            )
        })),
        LoadKind::Map(structure, zipf) => {
            let program = Program {
                structure,
                node_bytes: match other {
                    Other::Nodes(bytes) => bytes,
                    _ => study.node_bytes,
                },
                zipf,
                keys: study.keys,
                threads,
                shared: other == Other::Shared,
            };
            Box::new(Maps::new(program, seed))
        }
    }
}

/// A shoot-down, for the core that asks for it and for each it interrupts. Open: the paper gives no number; on today's
/// servers an interrupt and its answer take some microseconds.
const SHOOT_DOWN_FS: u64 = 2_000_000_000;
const INTERRUPT_FS: u64 = 1_000_000_000;

/// What is other than on the machine of the study.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Other {
    Nothing,
    /// A write to NVRAM takes this number of DRAM's latencies.
    Writes(u64),
    /// A read as well.
    Latency(u64),
    /// Cycles of any access to the SSP cache.
    Cache(u64),
    /// Pages of a TLB.
    Tlb(usize),
    /// A write is durable in the queue of the memory controller.
    Queue,
    /// All threads have one map, cache or agency, and a lock.
    Shared,
    /// Consecutive lines are in different banks.
    Interleaved,
    /// Instructions between two sections, beside the program's own; a write takes this number of DRAM's latencies.
    Between(u32, u64),
    /// Lines that are remapped together.
    SubPages(u32),
    /// TLBs are kept coherent by shoot-downs.
    ShootDowns,
    /// Pages are consolidated when slots are short.
    Lazy,
    /// Pages of the write-set buffer; larger sections fall back.
    Buffer(usize),
    /// Instructions outside the data of Memcached and Vacation, for each access to it.
    Outside(u32),
    /// That of Memcached within its sections, that of Vacation behind them.
    Moved,
    /// Consecutive lines of logs and journals are in different banks.
    Spread,
    /// Bytes of a node of the B+-tree.
    Nodes(u64),
}

/// A run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Key {
    pub(super) load: Load,
    pub(super) design: Name,
    pub(super) threads: usize,
    pub(super) other: Other,
}

impl Key {
    pub(super) fn new(load: Load, design: Name, threads: usize, other: Other) -> Key {
        let other = match (load.1, other) {
            (LoadKind::Map(Structure::BTree, _), other) => other,
            // All others have no such nodes.
            (_, Other::Nodes(_)) => Other::Nothing,
            (_, other) => other,
        };
        Key {
            load,
            design,
            threads,
            other,
        }
    }

    pub(super) fn name(&self) -> String {
        let run = format!("{}/{}/threads={}", self.design.name(), self.load.0, self.threads);
        match self.other {
            Other::Nothing => run,
            Other::Writes(times) => format!("{run}/writes=x{times}"),
            Other::Latency(times) => format!("{run}/latency=x{times}"),
            Other::Cache(cycles) => format!("{run}/ssp-cache={cycles}"),
            Other::Interleaved => format!("{run}/interleaved"),
            Other::Tlb(entries) => format!("{run}/tlb={entries}"),
            Other::Queue => format!("{run}/durable=queue"),
            Other::Shared => format!("{run}/one-lock"),
            Other::SubPages(lines) => format!("{run}/sub-page={lines}"),
            Other::ShootDowns => format!("{run}/shoot-downs"),
            Other::Lazy => format!("{run}/lazy"),
            Other::Buffer(pages) => format!("{run}/write-set-buffer={pages}"),
            Other::Outside(instructions) => format!("{run}/outside={instructions}"),
            Other::Moved => format!("{run}/outside=moved"),
            Other::Spread => format!("{run}/spread"),
            Other::Nodes(bytes) => format!("{run}/nodes={bytes}"),
            Other::Between(instructions, times) => format!("{run}/between={instructions}/writes=x{times}"),
        }
    }

    /// The machine of the study, with what is other in this run.
    fn machine(&self, config: &Config) -> Config {
        let mut config = config.clone();
        let dram_fs = config.study.dram_fs;
        let (memory, setting) = (&mut config.hardware.memory, &mut config.setting);
        let cycles = |times: u64| (dram_fs * times).div_ceil(memory.cycle_fs);
        match self.other {
            Other::Nothing | Other::Shared | Other::Outside(_) | Other::Moved | Other::Nodes(_) => {}
            Other::Writes(times) | Other::Between(_, times) => memory.timing.write_pulse = cycles(times),
            Other::Latency(times) => {
                let all = cycles(times);
                memory.timing.write_pulse = all;
                // What of a read is not the array's is the interface's.
                memory.timing.rcd = all.saturating_sub(memory.timing.cl + memory.timing.burst);
            }
            Other::Cache(number) => {
                let fs = number * config.hardware.shape.cycle_fs;
                (setting.near_fs, setting.far_fs) = (fs, fs);
            }
            Other::Interleaved => {
                memory.rows *= memory.row_bytes / LINE_BYTES;
                (memory.row_bytes, memory.buffer_bytes) = (LINE_BYTES, LINE_BYTES);
            }
            Other::Spread => setting.log_stride = memory.row_bytes / LINE_BYTES,
            Other::SubPages(lines) => setting.sub_page_lines = lines,
            Other::ShootDowns => (setting.flip_fs, setting.interrupt_fs) = (SHOOT_DOWN_FS, INTERRUPT_FS),
            Other::Lazy => setting.lazy = true,
            Other::Buffer(pages) => setting.write_set_pages = pages,
            Other::Tlb(entries) => setting.tlb_entries = entries,
            Other::Queue => config.hardware.durable = crate::bus::config::DurableIn::Queue,
        }
        config
    }

    pub(super) fn run(&self, config: &Config, seed: u64) -> Result<Run, String> {
        let config = self.machine(config);
        let study = &config.study;
        let mut workload = make(self.load, study, self.threads, self.other, seed);
        let between = match self.other {
            Other::Between(instructions, _) => instructions,
            _ => 0,
        };
        let program = Sections::new(self.design, &config.setting, &mut *workload);
        let program = program
            .after(study.warm_up)
            .in_parts(study.sections, BATCHES as u64);
        let mut program = program.apart(between);
        let mut machine = Machine::new(config.hardware.clone(), None, &mut program);
        let wrong = |why: String| format!("{}: {why}", self.name());
        let parts = machine
            .run_parts(study.warm_up, study.sections, BATCHES as u64)
            .map_err(wrong)?;
        machine.check().map_err(wrong)?;
        drop(machine);
        Ok(Run {
            name: self.name(),
            machine: parts.last().copied().unwrap_or_default(),
            design: program.counts(),
            parts,
            made: program.parts().to_vec(),
        })
    }

    /// The same run; the power fails `after_fs` femtoseconds after the warm-up.
    pub(super) fn crash(&self, config: &Config, seed: u64, after_fs: u64) -> Result<Cut, String> {
        let config = self.machine(config);
        let cut = PowerCut {
            design: self.design,
            hardware: &config.hardware,
            setting: &config.setting,
            warm_up: config.study.warm_up,
            sections: config.study.sections,
            after_fs,
            seed,
            fault: None,
        };
        let mut workload = make(self.load, &config.study, self.threads, self.other, seed);
        cut.run(&mut *workload)
            .map_err(|why| format!("{}: {why}", self.name()))
    }
}

/// What a run counted.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Run {
    /// Design, program, threads, and what is other than on the machine of the study.
    pub name: String,
    /// What the machine counted.
    pub machine: Counts,
    /// What the design did.
    pub design: sections::Counts,
    /// What the machine had counted after each of some equal parts.
    #[serde(skip)]
    parts: Vec<Counts>,
    /// What the design had done after each of as many sections.
    #[serde(skip)]
    made: Vec<sections::Counts>,
}

impl Run {
    /// How much of a count of the machine's falls into each part.
    pub(super) fn parts(&self, of: impl Fn(&Counts) -> u64) -> Vec<f64> {
        differences(&self.parts, of)
    }

    /// How much of a count of the design's falls into each part.
    pub(super) fn made(&self, of: impl Fn(&sections::Counts) -> u64) -> Vec<f64> {
        differences(&self.made, of)
    }
}

fn differences<C>(sums: &[C], of: impl Fn(&C) -> u64) -> Vec<f64> {
    let mut before = 0;
    let part = |sum: &C| (of(sum) - std::mem::replace(&mut before, of(sum))) as f64;
    sums.iter().map(part).collect()
}

/// All of them.
pub(super) struct Runs(BTreeMap<String, Run>);

impl Runs {
    /// Does the runs.
    pub(super) fn all(
        config: &Config,
        keys: &[Key],
        asked: &StudyRequest,
        tell: Tell<'_>,
    ) -> Result<Runs, String> {
        let runs = each(keys, asked.jobs, tell, |key| {
            let run = key.run(config, asked.seed)?;
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
