//! A memory alone, driven by a trace of requests (`twinpage lab memory`).
//!
//! Requests go in the order of the trace, at most one a cycle, none before its cycle; one that finds
//! its queue full holds back all after it. Latency counts from the cycle a request was let in.

use crate::device::{Class, Device, Kind, Memory};

/// One request of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The cycle of the memory's clock before which it does not come.
    pub cycle: u64,
    /// Any byte of the line.
    pub at: u64,
    /// Write or read.
    pub write: bool,
}

/// Latencies, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, serde::Serialize)]
pub struct Latency {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
}

/// What a run of a memory says.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Outcome {
    /// Requests served.
    pub requests: u64,
    /// Cycles of the memory's clock until the last was done.
    pub cycles: u64,
    /// The same, in nanoseconds.
    pub time_ns: f64,
    /// Latency of reads.
    pub read_ns: Latency,
    /// Latency of writes, until safe in the cells.
    pub write_ns: Latency,
    /// Bytes moved over the time, 1e9 a second.
    pub gb_per_s: f64,
    /// Joules.
    pub energy_j: f64,
    /// Rows opened: the others were hits.
    pub activates: u64,
}

/// Drives the device with the requests.
pub fn drive(device: &Device, requests: impl IntoIterator<Item = Request>) -> Outcome {
    let mut memory = Memory::new(device.clone());
    let mut run = Run {
        entered: Vec::new(),
        latencies: [Vec::new(), Vec::new()],
        last: 0,
    };
    let mut cycle = 0;
    for Request {
        cycle: wanted,
        at,
        write,
    } in requests
    {
        let kind = if write { Kind::Write } else { Kind::Read };
        cycle = wanted.max(cycle);
        memory.run_until(cycle, |done| run.note(done.id, done.at));
        while !memory.has_room(kind, at) {
            cycle = memory.next_cycle();
            memory.run_until(cycle, |done| run.note(done.id, done.at));
        }
        let id = run.entered.len() as u64;
        run.entered.push((cycle, write));
        memory.push(id, kind, Class::Demand, at & !63, 1, cycle);
        cycle += 1;
    }
    while memory.waiting() > 0 {
        let next = memory.next_cycle();
        memory.run_until(next, |done| run.note(done.id, done.at));
    }
    run.outcome(&memory)
}

struct Run {
    entered: Vec<(u64, bool)>,
    latencies: [Vec<u32>; 2],
    last: u64,
}

impl Run {
    fn note(&mut self, id: u64, at: u64) {
        let (entered, write) = self.entered[id as usize];
        self.latencies[usize::from(write)].push((at - entered) as u32);
        self.last = self.last.max(at);
    }

    fn outcome(mut self, memory: &Memory) -> Outcome {
        let ns = memory.device().cycle_fs as f64 * 1e-6;
        let time_ns = self.last as f64 * ns;
        let requests = self.entered.len() as u64;
        let [reads, writes] = &mut self.latencies;
        Outcome {
            requests,
            cycles: self.last,
            time_ns,
            read_ns: latency(reads, ns),
            write_ns: latency(writes, ns),
            gb_per_s: if time_ns > 0.0 {
                (requests * 64) as f64 / time_ns
            } else {
                0.0
            },
            energy_j: memory.energy_j(self.last),
            activates: memory.commands().activates,
        }
    }
}

fn latency(cycles: &mut [u32], ns: f64) -> Latency {
    if cycles.is_empty() {
        return Latency::default();
    }
    cycles.sort_unstable();
    let at = |percent: usize| f64::from(cycles[(cycles.len() - 1) * percent / 100]) * ns;
    let sum: u64 = cycles.iter().map(|&cycles| u64::from(cycles)).sum();
    Latency {
        mean: sum as f64 / cycles.len() as f64 * ns,
        p50: at(50),
        p99: at(99),
    }
}
