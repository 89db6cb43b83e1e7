//! Programs that really compute on the simulated memory and check their own results.
//!
//! * Deterministic: the same seed, and the same order of batches between cores, gives the same bytes.
//!   A crash is checked by running the batches again, without the machine, up to the checkpoint.
//! * All state that a resumed program needs lies in the space, or follows from the batches it ran.
//! * Batches are short (a few hundred operations): a checkpoint waits for the batch each core is in.

mod ann;
pub mod apart;
mod busy;
mod community;
mod components;
mod echo;
mod flann;
mod graph;
pub mod image;
mod layout;
pub mod list;
pub mod maps;
pub mod memcached;
mod nstore;
mod pagerank;
mod points;
mod pool;
mod replay;
pub mod sps;
pub mod swaps;
mod sweep;
mod table;
mod tatp;
mod tpcc;
pub mod turns;
pub mod uniform;
pub mod vacation;

use crate::op::Op;
use crate::space::{Port, Space};

/// Whether a core has more to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// There is more.
    More,
    /// Nothing for this core until others move (a barrier): ask again after another core's batch.
    Waiting,
    /// This core is done.
    Done,
}

/// A program for some cores.
pub trait Workload: Send {
    /// The name it is chosen by.
    fn name(&self) -> &str;

    /// Bytes of memory it computes on.
    fn footprint_bytes(&self) -> u64;

    /// Puts its data into the space: what memory holds before the first measured instruction, which follows
    /// from what the workload was made with alone. Not simulated.
    fn fill(&self, space: &mut Space);

    /// Runs `core` for a batch, through the port. Batches of different cores come in the machine's
    /// time order.
    fn run(&mut self, core: usize, port: &mut Port<'_>) -> Progress;

    /// The first byte of its data that is to lie in NVM, on a machine that has NVM beside DRAM; the whole of it lies in
    /// the one memory of other machines.
    fn persistent_from(&self) -> u64 {
        u64::MAX
    }

    /// Whether each core runs a program of its own: a mix, which is over when the first of them is.
    fn is_mix(&self) -> bool {
        false
    }

    /// Checks the results so far, from the space alone or together with what the program remembers.
    ///
    /// # Errors
    /// What was expected and what was found.
    fn check(&self, space: &Space) -> Result<(), String>;
}

/// One batch of `core`, appended to `batch` (emptied first).
pub fn next(workload: &mut dyn Workload, core: usize, space: &mut Space, batch: &mut Vec<Op>) -> Progress {
    batch.clear();
    workload.run(core, &mut Port::new(space, batch))
}
