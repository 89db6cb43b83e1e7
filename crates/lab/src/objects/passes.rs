//! How long a function is at a large object, line by line: what `pool.rs` then waits for.
//!
//! * Each thread goes over objects again and again; a transaction is a pass. All threads are at it at once.
//! * Threads are at different places of their objects, as those that began at different times. Objects lie a page and a line
//!   further apart than they are large, so that their first lines are not all of one set of a cache.
//! * Objects and caches are made smaller together ([`Passes::SMALLER`]): lines and their latencies stay what they are.

use super::config::{Call, Config};
use crate::bus::Hardware;
use crate::bus::config::MOST_CORES;
use crate::op::{Kind, LINE_BYTES, PAGE_BYTES};
use crate::space::{Port, Space};
use crate::workload::{Progress, Workload};

/// Lines of a batch.
const BATCH: u64 = 32;

/// What a pass does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pass {
    /// Adds to every element of an object that is another one each time.
    Others,
    /// The same, of one object again and again: functions that are run together.
    Same,
    /// Copies an object to NVM, as a checkpoint does.
    Copy,
}

/// The workload.
pub struct Passes {
    pass: Pass,
    threads: usize,
    call: Call,
    bytes: u64,
    /// Objects of a thread.
    objects: u64,
    /// Of each thread, lines that it has gone over.
    at: Vec<u64>,
}

impl Passes {
    /// Objects and caches are smaller by this.
    pub const SMALLER: u64 = 32;

    /// Passes of threads over objects that are `bytes` large on the machine as it is.
    #[must_use]
    pub fn new(pass: Pass, threads: usize, bytes: u64, config: &Config) -> Passes {
        let bytes = (bytes / Passes::SMALLER).next_multiple_of(LINE_BYTES);
        let last = config.hardware.shape.levels.last().map_or(0, |level| level.bytes);
        Passes {
            pass,
            threads,
            call: config.call,
            bytes,
            // Another one is one that no cache has any more.
            objects: match pass {
                Pass::Others => (2 * last / Passes::SMALLER)
                    .div_ceil(bytes * threads as u64)
                    .max(2),
                Pass::Same | Pass::Copy => 1,
            },
            at: (0..threads as u64)
                .map(|thread| thread * (bytes / LINE_BYTES) / threads as u64)
                .collect(),
        }
    }

    /// From an object to the next.
    fn apart(&self) -> u64 {
        self.bytes + PAGE_BYTES + LINE_BYTES
    }

    /// The machine that they are run on. Threads fill one node after the other, and have the last caches of those alone.
    #[must_use]
    pub fn hardware(threads: usize, config: &Config) -> Hardware {
        let mut hardware = config.hardware.clone();
        let node = hardware.distances.map_or(MOST_CORES, |distances| distances.node);
        let (nodes, of) = (threads.div_ceil(node) as u64, MOST_CORES.div_ceil(node) as u64);
        if let Some(last) = hardware.shape.levels.last_mut() {
            last.bytes = last.bytes * nodes / of;
            // Sets are a power of two: what is odd in the number of nodes are ways.
            last.ways *= (nodes >> nodes.trailing_zeros()) as u32;
        }
        for level in &mut hardware.shape.levels {
            level.bytes /= Passes::SMALLER;
        }
        hardware
    }

    /// Passes before anything is counted: all objects of all threads, once, after what the first pass lacks.
    #[must_use]
    pub fn warm_up(&self) -> u64 {
        self.threads as u64 * (self.objects + 1)
    }

    fn nvm(&self) -> u64 {
        (self.threads as u64 * self.objects * self.apart()).next_multiple_of(PAGE_BYTES)
    }

    /// A line of an object of a thread.
    fn line(&self, thread: usize, object: u64, offset: u64, port: &mut Port<'_>) {
        let at = (thread as u64 * self.objects + object) * self.apart() + offset;
        let mut line = [0; LINE_BYTES as usize];
        if self.pass == Pass::Copy {
            port.load_bytes(at, &mut line);
            let to = self.nvm() + thread as u64 * self.apart() + offset;
            port.store_bytes(to, &line);
            port.write_back(Kind::FlushOpt, to, LINE_BYTES);
            return;
        }
        port.work(self.call.element * LINE_BYTES as u32 / 4);
        port.load_bytes(at, &mut line);
        port.store_bytes(at, &line);
    }
}

impl Workload for Passes {
    fn name(&self) -> &str {
        "passes over large objects"
    }

    fn footprint_bytes(&self) -> u64 {
        self.nvm() + self.threads as u64 * self.apart()
    }

    fn persistent_from(&self) -> u64 {
        self.nvm()
    }

    fn fill(&self, _: &mut Space) {}

    fn run(&mut self, core: usize, port: &mut Port<'_>) -> Progress {
        if core >= self.threads {
            return Progress::Done;
        }
        let lines = self.bytes / LINE_BYTES;
        for _ in 0..BATCH {
            let number = self.at[core];
            let (object, line) = (number / lines % self.objects, number % lines);
            self.line(core, object, line * LINE_BYTES, port);
            self.at[core] += 1;
            if self.at[core].is_multiple_of(lines) {
                if self.pass == Pass::Copy {
                    port.fence();
                }
                port.commit();
                break;
            }
        }
        Progress::More
    }

    fn check(&self, _: &Space) -> Result<(), String> {
        Ok(())
    }
}
