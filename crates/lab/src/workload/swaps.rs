//! SPS of SSP, Table 3: two elements of an array are swapped; each swap is a section.
//!
//! * Elements are 8-byte integers. A lock covers 256 bytes of them, the largest sub-page that a design makes durable as a
//!   whole: two sections under way never write the same one. It is held until its core's next batch.
//! * Positions are drawn before the run, as "the key/value pairs are generated prior to each run" (5.1).

use super::{Progress, Workload};
use crate::space::{Port, Space};

const ELEMENT: u64 = 8;
const LOCK_BYTES: u64 = 256;
/// Instructions of a swap that touch no memory of the array: the loop, the positions, the locks. Open: the paper does not
/// say.
const WORK: u32 = 50;

/// The program of some threads.
pub struct Swaps {
    elements: u64,
    threads: Vec<Thread>,
    seed: u64,
}

struct Thread {
    random: fastrand::Rng,
    /// What it swaps next, or has swapped.
    pair: [u64; 2],
    /// It holds their locks.
    holds: bool,
}

impl Swaps {
    /// For an array of `elements` elements.
    ///
    /// # Panics
    /// With less than two elements.
    #[must_use]
    pub fn new(elements: u64, threads: usize, seed: u64) -> Swaps {
        assert!(elements > 1, "a swap needs two elements");
        let mut random = fastrand::Rng::with_seed(seed);
        let thread = |_| {
            let mut random = random.fork();
            Thread {
                pair: pair(&mut random, elements),
                random,
                holds: false,
            }
        };
        Swaps {
            elements,
            threads: (0..threads).map(thread).collect(),
            seed,
        }
    }
}

fn lock(element: u64) -> u64 {
    element * ELEMENT / LOCK_BYTES
}

fn pair(random: &mut fastrand::Rng, elements: u64) -> [u64; 2] {
    let one = random.u64(..elements);
    [one, (one + random.u64(1..elements)) % elements]
}

impl Workload for Swaps {
    fn name(&self) -> &str {
        "swaps"
    }

    fn footprint_bytes(&self) -> u64 {
        self.elements * ELEMENT
    }

    fn fill(&self, space: &mut Space) {
        for element in 0..self.elements {
            let mut batch = Vec::new();
            Port::new(space, &mut batch).store(element * ELEMENT, element ^ self.seed);
        }
    }

    fn run(&mut self, core: usize, port: &mut Port<'_>) -> Progress {
        let Some(thread) = self.threads.get_mut(core) else {
            return Progress::Done;
        };
        if std::mem::take(&mut thread.holds) {
            thread.pair = pair(&mut thread.random, self.elements);
        }
        let wanted = thread.pair;
        let mut holders = self.threads.iter().filter(|other| other.holds);
        let locks = wanted.map(lock);
        if holders.any(|other| other.pair.iter().any(|element| locks.contains(&lock(*element)))) {
            return Progress::Waiting;
        }
        self.threads[core].holds = true;
        let [one, other] = wanted.map(|element| element * ELEMENT);
        port.work(WORK);
        let (a, b): (u64, u64) = (port.load(one), port.load(other));
        port.store(one, b);
        port.store(other, a);
        port.commit();
        Progress::More
    }

    fn check(&self, space: &Space) -> Result<(), String> {
        let element = |at: u64| {
            let bytes = space.at(at * ELEMENT, ELEMENT as usize).try_into();
            u64::from_le_bytes(bytes.expect("eight bytes")) ^ self.seed
        };
        let mut found = vec![false; self.elements as usize];
        for at in 0..self.elements {
            match found.get_mut(element(at) as usize) {
                Some(known) if !*known => *known = true,
                _ => {
                    return Err(format!(
                        "element {at} of the array is there twice, or was never there"
                    ));
                }
            }
        }
        Ok(())
    }
}
