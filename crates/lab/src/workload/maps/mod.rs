//! Maps of SSP, Table 3: a section searches for a key, and deletes it if it is there or inserts it if it is not.
//!
//! * Keys and values are 8-byte integers. Half of the keys are there at first, inserted in random order.
//! * A thread has a map of its own with its share of the keys; or all threads have one, and a lock, which is held until its
//!   thread's next batch. The paper does not say which.
//! * A value is the number of the section that inserted it.
//!
//! Check: every map has exactly the keys and values that an ordinary one has after the same sections, and its own
//! invariants hold.

mod bplus;
mod hash;
mod keys;
pub(super) mod rbtree;

use super::layout::Layout;
use super::{Progress, Workload};
use crate::space::{Port, Space};
use keys::Draw;
use std::collections::BTreeMap;

/// Instructions of a section that touch no memory of the map: the loop, the key, the lock. Open: the paper does not say.
const WORK: u32 = 50;
/// Instructions of a step of a search beside its loads: comparison, branch, address.
const SEARCH: u32 = 3;

/// Sizes that a node of the B+-tree may have, in bytes. Open: the paper does not say.
pub const NODES: [u64; 3] = [512, 1024, 2048];

/// Keys and values, in order.
type Contents = Vec<(u64, u64)>;

/// A map in simulated memory.
trait Map: Send {
    /// Makes it: memory is zeros.
    fn create(&self, port: &mut Port<'_>);

    /// Deletes the key if it is there, or inserts it with this value.
    fn toggle(&self, port: &mut Port<'_>, key: u64, value: u64);

    /// What is in it.
    ///
    /// # Errors
    /// An invariant does not hold.
    fn contents(&self, space: &Space) -> Result<Contents, String>;
}

/// Which map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Structure {
    /// B+-tree.
    BTree,
    /// Red-black tree.
    RedBlack,
    /// Hash table.
    Hash,
}

/// A program, and its size.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Program {
    /// Which map.
    pub structure: Structure,
    /// Bytes of a node of the B+-tree: one of [`NODES`].
    pub node_bytes: u64,
    /// Keys are drawn by Zipf's law, else each as often as any.
    pub zipf: bool,
    /// Keys that can be in the maps, all together.
    pub keys: u64,
    /// Threads.
    pub threads: usize,
    /// All threads have one map, and a lock.
    pub shared: bool,
}

/// The program of some threads.
pub struct Maps {
    program: Program,
    maps: Vec<Box<dyn Map>>,
    draw: Draw,
    threads: Vec<fastrand::Rng>,
    /// Which thread holds the lock of a shared map.
    holder: Option<usize>,
    /// What each map should hold.
    expected: Vec<BTreeMap<u64, u64>>,
    sections: u64,
    footprint: u64,
    seed: u64,
}

impl Maps {
    /// For these threads.
    ///
    /// # Panics
    /// With less than eight keys a thread, or other nodes than [`NODES`].
    #[must_use]
    pub fn new(program: Program, seed: u64) -> Maps {
        let Program {
            structure,
            node_bytes,
            zipf,
            threads,
            shared,
            ..
        } = program;
        let number = if shared { 1 } else { threads };
        let keys = program.keys / number as u64;
        assert!(keys >= 8, "a map needs some keys");
        let mut layout = Layout::default();
        // No record lies at address 0, which stands for none.
        layout.region(1);
        let map = |_| -> Box<dyn Map> {
            match structure {
                Structure::BTree => b_plus(node_bytes, &mut layout, keys),
                Structure::RedBlack => Box::new(rbtree::RedBlack::new(&mut layout, keys)),
                Structure::Hash => Box::new(hash::Hash::new(&mut layout, keys)),
            }
        };
        let maps: Vec<_> = (0..number).map(map).collect();
        let mut random = fastrand::Rng::with_seed(seed);
        Maps {
            draw: if zipf {
                Draw::zipf(keys)
            } else {
                Draw::Uniform(keys)
            },
            threads: (0..threads).map(|_| random.fork()).collect(),
            holder: None,
            expected: (0..number)
                .map(|map| {
                    first_keys(seed, map, keys)
                        .into_iter()
                        .map(|key| (key, 0))
                        .collect()
                })
                .collect(),
            sections: 0,
            footprint: layout.bytes(),
            maps,
            program,
            seed,
        }
    }
}

fn b_plus(node_bytes: u64, layout: &mut Layout, keys: u64) -> Box<dyn Map> {
    match node_bytes {
        512 => Box::new(bplus::BPlus::<512>::new(layout, keys)),
        1024 => Box::new(bplus::BPlus::<1024>::new(layout, keys)),
        2048 => Box::new(bplus::BPlus::<2048>::new(layout, keys)),
        other => panic!("a node has one of {NODES:?} bytes, not {other}"),
    }
}

/// Half of the keys, in random order.
fn first_keys(seed: u64, map: usize, keys: u64) -> Vec<u64> {
    let mut random = fastrand::Rng::with_seed(seed ^ (map as u64 + 1) << 32);
    let mut all: Vec<u64> = (0..keys).collect();
    random.shuffle(&mut all);
    all.truncate(keys as usize / 2);
    all
}

impl Workload for Maps {
    fn name(&self) -> &str {
        match (self.program.structure, self.program.zipf) {
            (Structure::BTree, false) => "btree-rand",
            (Structure::BTree, true) => "btree-zipf",
            (Structure::RedBlack, false) => "rbtree-rand",
            (Structure::RedBlack, true) => "rbtree-zipf",
            (Structure::Hash, false) => "hash-rand",
            (Structure::Hash, true) => "hash-zipf",
        }
    }

    fn footprint_bytes(&self) -> u64 {
        self.footprint
    }

    fn fill(&self, space: &mut Space) {
        let keys = self.program.keys / self.maps.len() as u64;
        let mut batch = Vec::new();
        for (number, map) in self.maps.iter().enumerate() {
            map.create(&mut Port::new(space, &mut batch));
            for key in first_keys(self.seed, number, keys) {
                batch.clear();
                map.toggle(&mut Port::new(space, &mut batch), key, 0);
            }
        }
    }

    fn run(&mut self, core: usize, port: &mut Port<'_>) -> Progress {
        if core >= self.threads.len() {
            return Progress::Done;
        }
        let map = if self.program.shared { 0 } else { core };
        if self.program.shared {
            if self.holder.is_some_and(|holder| holder != core) {
                // The lock is free when its holder asks for its next batch, and a waiting thread is asked first.
                return Progress::Waiting;
            }
            self.holder = match self.holder {
                None => Some(core),
                Some(_) if self.threads.len() > 1 => {
                    self.holder = None;
                    return Progress::Waiting;
                }
                some => some,
            };
        }
        let key = self.draw.key(&mut self.threads[core]);
        self.sections += 1;
        port.work(WORK);
        self.maps[map].toggle(port, key, self.sections);
        port.commit();
        let expected = &mut self.expected[map];
        if expected.remove(&key).is_none() {
            expected.insert(key, self.sections);
        }
        Progress::More
    }

    fn check(&self, space: &Space) -> Result<(), String> {
        for (number, (map, expected)) in self.maps.iter().zip(&self.expected).enumerate() {
            let found = map
                .contents(space)
                .map_err(|why| format!("map {number}: {why}"))?;
            if !found
                .iter()
                .copied()
                .eq(expected.iter().map(|(key, value)| (*key, *value)))
            {
                let missing = expected.len() as i64 - found.len() as i64;
                return Err(format!(
                    "map {number} has other keys or values than it should, and {missing} less"
                ));
            }
        }
        Ok(())
    }
}
