//! The times of the cores that can go on, side by side: at each step the one furthest behind is looked for.

use crate::machine::core::{Core, State};

/// Of a core that waits, or whose program is over.
const NEVER: u64 = u64::MAX;

/// A time for each core, in femtoseconds.
#[derive(Debug)]
pub(super) struct Clocks(Vec<u64>);

impl Clocks {
    pub(super) fn of<'c>(cores: impl Iterator<Item = &'c Core>) -> Clocks {
        Clocks(cores.map(time).collect())
    }

    /// A core went on, or can or cannot from now on.
    pub(super) fn see(&mut self, number: usize, core: &Core) {
        self.0[number] = time(core);
    }

    /// The core furthest behind, the first of several, and its time.
    pub(super) fn behind(&self) -> Option<(usize, u64)> {
        let least = self.0.iter().copied().min().filter(|at| *at < NEVER)?;
        let number = self.0.iter().position(|at| *at == least)?;
        Some((number, least))
    }
}

fn time(core: &Core) -> u64 {
    match core.state {
        State::Ready => core.now,
        _ => NEVER,
    }
}
