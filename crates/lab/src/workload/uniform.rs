//! Counters picked at random: each core adds to its own, and the sum is known.
//!
//! The simplest workload that checks itself, with knobs for footprint and share of writes.

use super::{Progress, Workload};
use crate::op::PAGE_BYTES;
use crate::space::{Port, Space};

/// Operations in a batch.
const BATCH: usize = 256;

/// The workload. Page `p` belongs to core `p % cores`.
#[derive(Clone, Debug)]
pub struct Uniform {
    pages: u64,
    write_percent: u8,
    cores: Vec<Client>,
}

#[derive(Clone, Debug)]
struct Client {
    random: fastrand::Rng,
    added: u64,
}

impl Uniform {
    /// Counters on `pages` pages for `cores` cores; `write_percent` of the visits add one.
    #[must_use]
    pub fn new(pages: u64, cores: usize, write_percent: u8, seed: u64) -> Uniform {
        let client = |core: usize| Client {
            random: fastrand::Rng::with_seed(seed.wrapping_add(core as u64)),
            added: 0,
        };
        Uniform {
            pages: pages.next_multiple_of(cores as u64),
            write_percent,
            cores: (0..cores).map(client).collect(),
        }
    }
}

impl Workload for Uniform {
    fn name(&self) -> &str {
        "uniform"
    }

    fn footprint_bytes(&self) -> u64 {
        self.pages * PAGE_BYTES
    }

    fn fill(&self, _: &mut Space) {}

    fn run(&mut self, core: usize, port: &mut Port<'_>) -> Progress {
        let cores = self.cores.len() as u64;
        let Client { random, added } = &mut self.cores[core];
        while port.batched() < BATCH {
            let page = random.u64(..self.pages / cores) * cores + core as u64;
            let at = page * PAGE_BYTES + random.u64(..PAGE_BYTES / 8) * 8;
            port.work(8);
            let value: u64 = port.load(at);
            if random.u8(..100) < self.write_percent {
                port.store(at, value + 1);
                *added += 1;
            }
        }
        Progress::More
    }

    fn check(&self, space: &Space) -> Result<(), String> {
        let expected: u64 = self.cores.iter().map(|client| client.added).sum();
        let counters = space.bytes().as_chunks::<8>().0;
        let found: u64 = counters.iter().map(|bytes| u64::from_le_bytes(*bytes)).sum();
        match found == expected {
            true => Ok(()),
            false => Err(format!("{expected} were added, and the counters say {found}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload;

    #[test]
    fn it_checks_itself() {
        let mut uniform = Uniform::new(10, 2, 50, 1);
        let mut space = Space::new(uniform.footprint_bytes());
        let mut batch = Vec::new();
        for core in [0, 1, 1, 0] {
            assert_eq!(
                workload::next(&mut uniform, core, &mut space, &mut batch),
                Progress::More
            );
            assert!(batch.len() >= BATCH);
        }
        uniform.check(&space).unwrap();
        space.bytes_mut()[0] ^= 1;
        assert!(uniform.check(&space).unwrap_err().contains("the counters say"));
    }
}
