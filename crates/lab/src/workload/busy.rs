//! A program with more code: so many instructions before each of its accesses. What a library of transactions does between
//! a program and its memory is such code, as far as it touches nothing but what the caches have.

use super::{Progress, Workload};
use crate::op::Kind;
use crate::space::{Port, Space};

/// The program, and the instructions.
pub(super) struct Busy {
    inner: Box<dyn Workload>,
    instructions: u32,
}

impl Busy {
    /// The program with so many instructions more before each load and store.
    pub(super) fn new(inner: Box<dyn Workload>, instructions: u32) -> Busy {
        Busy { inner, instructions }
    }
}

impl Workload for Busy {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn footprint_bytes(&self) -> u64 {
        self.inner.footprint_bytes()
    }

    fn fill(&self, space: &mut Space) {
        self.inner.fill(space);
    }

    fn run(&mut self, core: usize, port: &mut Port<'_>) -> Progress {
        let before = port.batched();
        let progress = self.inner.run(core, port);
        let (_, batch) = port.parts();
        for op in &mut batch[before..] {
            if matches!(op.kind, Kind::Load | Kind::Store) {
                op.work = op.work.saturating_add(self.instructions);
            }
        }
        progress
    }

    fn persistent_from(&self) -> u64 {
        self.inner.persistent_from()
    }

    fn is_mix(&self) -> bool {
        self.inner.is_mix()
    }

    fn check(&self, space: &Space) -> Result<(), String> {
        self.inner.check(space)
    }
}
