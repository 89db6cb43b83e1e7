//! What a run says.

use super::Machine;
use super::core::{Core, STALLS, Stall, State};
use crate::controller::Counts;
use crate::controller::nvm::Wear;
use crate::machine::hierarchy::Counts as CacheCounts;
use crate::quantity::FS_PER_NS;
use std::collections::{BTreeMap, VecDeque};
use twinpage_core::medium::Cause;
use twinpage_measure::{Histogram, Percentiles};

/// Why the machine stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// As many instructions as were asked for.
    #[default]
    Instructions,
    /// Every core's program is over, or one of a mix.
    Programs,
    /// The power failed.
    Crash,
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Ended::Instructions => "instructions",
            Ended::Programs => "programs",
            Ended::Crash => "crash",
        })
    }
}

/// What is noted while the machine runs. Times are femtoseconds.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// When counting began.
    pub(super) begun: u64,
    base: Base,
    checkpoints: u64,
    early: u64,
    /// The cores stood still for checkpoints, one core's time.
    stalled: u64,
    ended: VecDeque<u64>,
    samples: Vec<Sample>,
    checkpoint_ns: Histogram,
    stop_ns: Histogram,
    transaction_ns: Histogram,
    durable_ns: Histogram,
    /// Transactions no durable checkpoint covers yet: how many ended when.
    waiting: Vec<u64>,
    covered: VecDeque<usize>,
}

/// Where the counters stood when counting began.
#[derive(Debug, Default)]
struct Base {
    counts: Counts,
    caches: CacheCounts,
    instructions: u64,
    stalls: [u64; STALLS],
    energy: [f64; 2],
    table: [u64; 2],
}

impl Ledger {
    pub(super) fn transaction(&mut self, took: u64, now: u64) {
        self.transaction_ns.add(ns(took));
        self.waiting.push(now);
    }

    /// An epoch ended: what waits now is in it.
    pub(super) fn ended(&mut self, now: u64, early: bool) {
        self.checkpoints += 1;
        self.early += u64::from(early);
        self.ended.push_back(now);
        self.covered.push_back(self.waiting.len());
    }

    /// The oldest epoch that ended is durable.
    pub(super) fn durable(&mut self, at: u64) {
        if let Some(ended) = self.ended.pop_front() {
            self.checkpoint_ns.add(ns(at - ended));
        }
        if let Some(count) = self.covered.pop_front() {
            for ended in self.waiting.drain(..count) {
                self.durable_ns.add(ns(at.saturating_sub(ended)));
            }
            self.covered.iter_mut().for_each(|later| *later -= count);
        }
    }

    pub(super) fn stalled(&mut self, time: u64) {
        self.stalled += time;
        self.stop_ns.add(ns(time));
    }
}

fn ns(femtoseconds: u64) -> f64 {
    femtoseconds as f64 * 1e-6
}

/// NVM lines written, by cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Traffic {
    /// Pages that left the DRAM cache.
    pub eviction: u64,
    /// Room made for pages that got dirty.
    pub pre_allocation: u64,
    /// Pages at checkpoints.
    pub checkpoint: u64,
    /// Commits: context and metadata.
    pub commit: u64,
    /// All of it.
    pub total: u64,
}

/// A run up to the end of an epoch, or of an interval where there are no epochs: sums since counting began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Sample {
    /// Instructions of all cores.
    pub instructions: u64,
    /// How long they took.
    pub time_ns: u64,
    /// How long the cores stopped for checkpoints.
    pub stop_ns: u64,
    /// NVM lines written.
    pub nvm_writes: u64,
    /// NVM lines read.
    pub nvm_reads: u64,
    /// Requests to the DRAM cache that found their page.
    pub dram_hits: u64,
    /// Requests that brought in a page.
    pub dram_misses: u64,
    /// Pages written in their epoch.
    pub pages: u64,
    /// Lines of them that were dirty.
    pub lines: u64,
}

/// Nanoseconds cores stood still, all cores together, by cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Stalls {
    /// For data in the caches or the DRAM cache.
    pub dram: u64,
    /// For data that came from NVM.
    pub nvm: u64,
    /// For room in the store buffer.
    pub store: u64,
    /// For checkpoints.
    pub checkpoint: u64,
    /// For other cores' programs.
    pub idle: u64,
}

/// Joules.
#[derive(Clone, Copy, PartialEq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Energy {
    /// The DRAM cache.
    pub dram: f64,
    /// The NVM.
    pub nvm: f64,
}

/// Latencies, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Latencies {
    /// From the end of one transaction of a core to the end of the next.
    pub transaction: Percentiles,
    /// From a transaction's end to the durable checkpoint that covers it.
    pub durable: Percentiles,
    /// How long the cores stopped at a checkpoint.
    pub stop: Percentiles,
    /// From the end of an epoch to its commit's being durable.
    pub checkpoint: Percentiles,
}

/// A run, measured after its warm-up.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Outcome {
    /// Instructions of all cores.
    pub instructions: u64,
    /// How long they took.
    pub time_ns: u64,
    /// Instructions a core and cycle.
    pub ipc: f64,
    /// Transactions or requests that ended.
    pub transactions: u64,
    /// Epochs ended.
    pub checkpoints: u64,
    /// Of them, those the scheme asked for before their time.
    pub early_checkpoints: u64,
    /// The part of the time the cores stood still for checkpoints.
    pub checkpoint_share: f64,
    /// Core time lost, by cause.
    pub stall_ns: Stalls,
    /// NVM lines written, by cause.
    pub nvm_writes: Traffic,
    /// The same lines, by what the scheme wrote them for; what it never did is left out.
    pub nvm_causes: BTreeMap<Cause, u64>,
    /// NVM lines read.
    pub nvm_reads: u64,
    /// How NVM wore, since the machine was switched on.
    pub wear: Wear,
    /// Joules.
    pub energy_j: Energy,
    /// Latencies.
    pub latency_ns: Latencies,
    /// The part of the requests to the DRAM cache that missed.
    pub dram_miss_rate: f64,
    /// Lines read for every line written, as the DRAM cache saw them.
    pub read_write_ratio: f64,
    /// Bytes the workload computes on.
    pub footprint_bytes: u64,
    /// Of the lines of pages written in an epoch, the part that stayed clean in it (DPC Figure 1); none
    /// without epochs.
    pub clean_share: Option<f64>,
    /// DRAM reads for table entries.
    pub table_reads: u64,
    /// DRAM writes of table entries.
    pub table_writes: u64,
    /// What the controller counted.
    pub controller: Counts,
    /// What the caches counted.
    pub caches: CacheCounts,
    /// How it ended.
    pub ended: Ended,
    /// The run at the end of each epoch.
    pub epochs: Vec<Sample>,
}

impl Machine<'_> {
    /// From here on it counts.
    pub(super) fn start_counting(&mut self) {
        let base = self.totals();
        self.ledger.base = base;
        let kept = std::mem::take(&mut self.ledger);
        self.ledger = Ledger {
            begun: self.now(),
            base: kept.base,
            ended: kept.ended,
            covered: kept.covered,
            waiting: kept.waiting,
            ..Ledger::default()
        };
    }

    fn totals(&mut self) -> Base {
        let energy = self.controller.energy_j();
        let sum = |which: usize| self.cores.iter().map(|core: &Core| core.stalls[which]).sum();
        let mut stalls: [u64; STALLS] = std::array::from_fn(sum);
        // One that waits for another core's program is told of it when it goes on; until now it stood still as well.
        let now = self.now();
        let waiting = self.cores.iter().filter(|core| core.state == State::Waiting);
        stalls[Stall::Idle as usize] += waiting.map(|core| now.saturating_sub(core.now)).sum::<u64>();
        Base {
            counts: self.controller.counts.clone(),
            caches: self.caches.counts,
            instructions: self.instructions(),
            stalls,
            energy,
            table: self.controller.table_accesses(),
        }
    }

    /// Notes where the run is, at the end of an epoch.
    pub(super) fn sample(&mut self) {
        let base = &self.ledger.base;
        let counts = self.controller.counts.since(&base.counts);
        let sample = Sample {
            instructions: self.instructions() - base.instructions,
            time_ns: self.now().saturating_sub(self.ledger.begun) / FS_PER_NS,
            stop_ns: self.ledger.stalled / FS_PER_NS,
            nvm_writes: counts.nvm_writes.iter().sum(),
            nvm_reads: counts.nvm_reads,
            dram_hits: counts.hits,
            dram_misses: counts.misses,
            pages: counts.epoch_pages,
            lines: counts.epoch_lines,
        };
        self.ledger.samples.push(sample);
    }

    /// The run so far, since counting began.
    pub(super) fn outcome(&mut self, ended: Ended) -> Outcome {
        self.durable();
        let (now, end) = (self.now(), self.totals());
        let ledger = &self.ledger;
        let base = &ledger.base;
        let counts = end.counts.since(&base.counts);
        let time = now - ledger.begun;
        let instructions = end.instructions - base.instructions;
        let stall = |which: usize| end.stalls[which].saturating_sub(base.stalls[which]) / FS_PER_NS;
        let [dram, nvm, store, checkpoint, idle, ..]: [u64; STALLS] = std::array::from_fn(stall);
        let [eviction, pre_allocation, pages, commit] = counts.nvm_writes;
        let cycles = (time / self.plan.shape.cycle_fs).max(1) * self.plan.shape.cores as u64;
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        Outcome {
            instructions,
            time_ns: time / FS_PER_NS,
            ipc: share(instructions, cycles),
            transactions: ledger.transaction_ns.count(),
            checkpoints: ledger.checkpoints,
            early_checkpoints: ledger.early,
            checkpoint_share: share(ledger.stalled, time),
            stall_ns: Stalls {
                dram,
                nvm,
                store,
                checkpoint,
                idle,
            },
            nvm_writes: Traffic {
                eviction,
                pre_allocation,
                checkpoint: pages,
                commit,
                total: eviction + pre_allocation + pages + commit,
            },
            nvm_causes: Cause::ALL
                .into_iter()
                .zip(counts.nvm_causes)
                .filter(|&(_, lines)| lines > 0)
                .collect(),
            nvm_reads: counts.nvm_reads,
            wear: self.controller.nvm().wear(),
            energy_j: Energy {
                dram: end.energy[0] - base.energy[0],
                nvm: end.energy[1] - base.energy[1],
            },
            latency_ns: Latencies {
                transaction: ledger.transaction_ns.percentiles(),
                durable: ledger.durable_ns.percentiles(),
                stop: ledger.stop_ns.percentiles(),
                checkpoint: ledger.checkpoint_ns.percentiles(),
            },
            dram_miss_rate: share(counts.misses, counts.hits + counts.misses),
            read_write_ratio: share(counts.reads, counts.writes),
            footprint_bytes: self.space.len(),
            clean_share: (counts.epoch_pages > 0)
                .then(|| 1.0 - share(counts.epoch_lines, counts.epoch_pages * 64)),
            table_reads: end.table[0] - base.table[0],
            table_writes: end.table[1] - base.table[1],
            controller: counts,
            caches: end.caches.since(&base.caches),
            ended,
            epochs: ledger.samples.clone(),
        }
    }

    /// What the scheme says of itself.
    #[must_use]
    pub fn info(&self) -> twinpage_core::Info {
        self.controller.scheme().info()
    }
}
