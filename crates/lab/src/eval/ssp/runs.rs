//! The runs.

use super::Request;
use crate::bus::{Counts, Machine};
use crate::eval::Tell;
use crate::eval::each::each;
use crate::eval::precision::BATCHES;
use crate::op::LINE_BYTES;
use crate::sections::config::Study;
use crate::sections::{self, Config, Name, Sections};
use crate::workload::Workload;
use crate::workload::maps::{Maps, Program, Structure};
use crate::workload::swaps::Swaps;
use std::collections::BTreeMap;

/// A program of Table 3: its name, the map, and whether keys are drawn by Zipf's law.
pub(super) type Load = (&'static str, Option<Structure>, bool);

/// All of them, as the figures order them.
pub(super) const LOADS: [Load; 7] = [
    ("btree-rand", Some(Structure::BTree), false),
    ("rbtree-rand", Some(Structure::RedBlack), false),
    ("hash-rand", Some(Structure::Hash), false),
    ("sps", None, false),
    ("btree-zipf", Some(Structure::BTree), true),
    ("rbtree-zipf", Some(Structure::RedBlack), true),
    ("hash-zipf", Some(Structure::Hash), true),
];

/// The program, of the size of the study.
fn make(
    (_, structure, zipf): Load,
    study: &Study,
    threads: usize,
    shared: bool,
    seed: u64,
) -> Box<dyn Workload> {
    match structure {
        None => Box::new(Swaps::new(study.elements, threads, seed)),
        Some(structure) => {
            let program = Program {
                structure,
                zipf,
                keys: study.keys,
                threads,
                shared,
            };
            Box::new(Maps::new(program, seed))
        }
    }
}

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
    /// All threads have one map and a lock.
    Shared,
    /// Consecutive lines are in different banks.
    Interleaved,
    /// Instructions between two sections, beside the program's own; a write takes this number of DRAM's latencies.
    Between(u32, u64),
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
            Other::Shared => format!("{run}/one-map"),
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
            Other::Nothing | Other::Shared => {}
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
            Other::Tlb(entries) => setting.tlb_entries = entries,
            Other::Queue => config.hardware.durable = crate::bus::config::DurableIn::Queue,
        }
        config
    }

    fn run(&self, config: &Config, seed: u64) -> Result<Run, String> {
        let config = self.machine(config);
        let study = &config.study;
        let is_shared = self.other == Other::Shared;
        let mut workload = make(self.load, study, self.threads, is_shared, seed);
        let between = match self.other {
            Other::Between(instructions, _) => instructions,
            _ => 0,
        };
        let program = Sections::new(self.design, &config.setting, &mut *workload);
        let mut program = program.after(study.warm_up).apart(between);
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
        })
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
}

impl Run {
    /// How much of a count falls into each part.
    pub(super) fn parts(&self, of: impl Fn(&Counts) -> u64) -> Vec<f64> {
        let mut before = 0;
        let part = |counts: &Counts| (of(counts) - std::mem::replace(&mut before, of(counts))) as f64;
        self.parts.iter().map(part).collect()
    }
}

/// All of them.
pub(super) struct Runs(BTreeMap<String, Run>);

impl Runs {
    /// Does the runs.
    pub(super) fn all(
        config: &Config,
        keys: &[Key],
        request: &Request,
        tell: Tell<'_>,
    ) -> Result<Runs, String> {
        let runs = each(keys, request.jobs, tell, |key| {
            let run = key.run(config, request.seed)?;
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
