//! A memory by the clock of the machine: cycles of its own inside, femtoseconds outside.

use crate::device::{Class, Device, Kind, Memory};

/// A memory, and what it asks of whoever drives it.
pub(crate) struct Timed {
    memory: Memory,
    cycle_fs: u64,
    bound: u64,
}

impl Timed {
    pub(crate) fn new(device: &Device) -> Timed {
        Timed {
            memory: Memory::new(device.clone()),
            cycle_fs: device.cycle_fs,
            bound: u64::MAX,
        }
    }

    /// Before this time nothing is done that was not told; `u64::MAX` when nothing waits.
    #[inline]
    pub(crate) fn bound(&self) -> u64 {
        self.bound
    }

    /// Asks for lines. Returns how many requests of this name will be told of.
    pub(crate) fn push(
        &mut self,
        name: u64,
        kind: Kind,
        class: Class,
        at: u64,
        lines: u64,
        time: u64,
    ) -> u32 {
        let cycle = time.div_ceil(self.cycle_fs);
        let requests = self.memory.push(name, kind, class, at, lines, cycle);
        self.find_bound();
        requests
    }

    /// Asks to read pieces, each so many lines from an address, one after the other.
    pub(crate) fn push_sweep(&mut self, name: u64, class: Class, pieces: &[(u64, u64)], time: u64) -> u32 {
        let cycle = time.div_ceil(self.cycle_fs);
        let requests = self.memory.push_sweep(name, class, pieces, cycle);
        self.find_bound();
        requests
    }

    /// Works up to a time, and tells the name of each request that is done, and when.
    pub(crate) fn run_until(&mut self, until: u64, mut told: impl FnMut(u64, u64)) {
        let cycle_fs = self.cycle_fs;
        self.memory
            .run_until(until / cycle_fs, |done| told(done.id, done.at * cycle_fs));
        self.find_bound();
    }

    /// Joules used until now.
    pub(crate) fn energy_j(&self, now: u64) -> f64 {
        self.memory.energy_j(now / self.cycle_fs)
    }

    /// The memory.
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    fn find_bound(&mut self) {
        self.bound = self.memory.bound().saturating_mul(self.cycle_fs);
    }
}
