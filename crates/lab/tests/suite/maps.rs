//! The maps of SSP's Table 3: what is in them, and that a fault is found.

use twinpage_lab::workload::maps::{Maps, NODES, Program, Structure};
use twinpage_lab::workload::{Progress, Workload};
use twinpage_lab::{Kind, Port, Space};

/// Maps, and the bytes of a tree's nodes.
const ALL: [(Structure, u64); 5] = [
    (Structure::BTree, NODES[0]),
    (Structure::BTree, NODES[1]),
    (Structure::BTree, NODES[2]),
    (Structure::RedBlack, NODES[0]),
    (Structure::Hash, NODES[0]),
];

fn made(program: Program, seed: u64) -> (Maps, Space) {
    let maps = Maps::new(program, seed);
    let mut space = Space::new(maps.footprint_bytes());
    maps.fill(&mut space);
    (maps, space)
}

fn one((structure, node_bytes): (Structure, u64), keys: u64, zipf: bool) -> Program {
    Program {
        structure,
        node_bytes,
        zipf,
        keys,
        threads: 1,
        shared: false,
    }
}

/// Runs sections of the threads in turn.
fn run(maps: &mut Maps, space: &mut Space, threads: usize, sections: usize) {
    let mut batch = Vec::new();
    let mut done = 0;
    for turn in 0.. {
        batch.clear();
        let progress = maps.run(turn % threads, &mut Port::new(space, &mut batch));
        if progress == Progress::More {
            assert_eq!(batch.last().map(|op| op.kind), Some(Kind::Commit));
            done += 1;
        }
        if done == sections {
            return;
        }
    }
}

#[test]
fn maps_hold_what_they_should() {
    let seed = fastrand::u64(..);
    for structure in ALL {
        // From few keys, so that maps are nearly empty at times, to trees of three levels.
        for keys in [8, 300, 20_000] {
            for zipf in [false, true] {
                let (mut maps, mut space) = made(one(structure, keys, zipf), seed);
                for round in 0..20 {
                    maps.check(&space).unwrap_or_else(|why| {
                        panic!("seed {seed}, {structure:?}, {keys} keys, round {round}: {why}")
                    });
                    run(&mut maps, &mut space, 1, 500);
                }
            }
        }
    }
}

#[test]
fn threads_have_maps_of_their_own_or_one_and_a_lock() {
    for structure in ALL {
        for shared in [false, true] {
            let program = Program {
                keys: 4000,
                threads: 4,
                shared,
                ..one(structure, 0, true)
            };
            let (mut maps, mut space) = made(program, 7);
            run(&mut maps, &mut space, 4, 5000);
            maps.check(&space).unwrap();
        }
    }
}

#[test]
fn a_changed_byte_is_found() {
    let mut random = fastrand::Rng::with_seed(3);
    for structure in ALL {
        let (mut maps, mut space) = made(one(structure, 2000, false), 3);
        run(&mut maps, &mut space, 1, 1000);
        // What a section writes and no later one: one of its stores is taken back.
        let mut found = 0;
        for _ in 0..20 {
            let before = space.clone();
            let mut batch = Vec::new();
            maps.run(0, &mut Port::new(&mut space, &mut batch));
            let changed: Vec<usize> = (0..space.len() as usize)
                .filter(|&at| before.bytes()[at] != space.bytes()[at])
                .collect();
            let at = changed[random.usize(..changed.len())];
            let now = std::mem::replace(&mut space.bytes_mut()[at], before.bytes()[at]);
            found += usize::from(maps.check(&space).is_err());
            space.bytes_mut()[at] = now;
            maps.check(&space).unwrap();
        }
        // The rest are words that nothing reads any more.
        assert!(found >= 5, "{structure:?}: {found} of 20");
    }
}
