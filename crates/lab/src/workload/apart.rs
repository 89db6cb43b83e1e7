//! Programs of one thread side by side, each with memory of its own: what programs with locks do where no two threads
//! ever want the same one.

use super::{Progress, Workload};
use crate::space::{Port, Space};

/// Thread `i` runs program `i`.
pub struct Apart<W>(Vec<W>);

impl<W: Workload> Apart<W> {
    /// For some threads: `make` is told a thread's number and where its memory begins.
    pub fn new(threads: usize, make: impl Fn(usize, u64) -> W) -> Apart<W> {
        let mut all: Vec<W> = Vec::with_capacity(threads);
        for thread in 0..threads {
            let at = all.last().map_or(0, W::footprint_bytes);
            all.push(make(thread, at));
        }
        Apart(all)
    }
}

impl<W: Workload> Workload for Apart<W> {
    fn name(&self) -> &str {
        self.0.first().map_or("", W::name)
    }

    fn footprint_bytes(&self) -> u64 {
        self.0.last().map_or(0, W::footprint_bytes)
    }

    fn fill(&self, space: &mut Space) {
        self.0.iter().for_each(|program| program.fill(space));
    }

    fn run(&mut self, core: usize, port: &mut Port<'_>) -> Progress {
        self.0
            .get_mut(core)
            .map_or(Progress::Done, |program| program.run(0, port))
    }

    fn check(&self, space: &Space) -> Result<(), String> {
        let one = |(number, program): (usize, &W)| {
            let told = program.check(space);
            told.map_err(|why| format!("thread {number}: {why}"))
        };
        self.0.iter().enumerate().try_for_each(one)
    }
}
