//! More objects than NVM has room for: the table with its swap, and the threads that share the pool.

use twinpage_lab::bus::{Counts, Machine};
use twinpage_lab::config::Described;
use twinpage_lab::objects::{Config, Large, ObjectTable, Pass, Passes, Pool, Times};

/// Objects in NVM, the latest used last.
#[derive(Default)]
struct Naive {
    recent: Vec<usize>,
}

impl Naive {
    fn new(objects: usize, room: usize) -> Naive {
        Naive {
            recent: (0..objects.min(room)).collect(),
        }
    }

    fn use_it(&mut self, poid: usize, room: usize) -> (Vec<usize>, bool) {
        let found = self.recent.iter().position(|other| *other == poid);
        let mut out = Vec::new();
        match found {
            Some(place) => drop(self.recent.remove(place)),
            None => {
                while self.recent.len() >= room {
                    out.push(self.recent.remove(0));
                }
            }
        }
        self.recent.push(poid);
        (out, found.is_none())
    }
}

#[test]
fn the_least_recently_used_leave() {
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    for (objects, room) in [(1, 1), (5, 1), (9, 6), (40, 27), (12, 30)] {
        let (mut table, mut naive) = (ObjectTable::new(objects, room), Naive::new(objects, room));
        for _ in 0..3000 {
            let poid = random.usize(..objects);
            let swap = table.begin(poid).unwrap();
            table.end(poid);
            assert_eq!((swap.out, swap.is_in), naive.use_it(poid, room), "seed {seed}");
            // Nothing is lost, nothing in two places.
            assert_eq!(table.in_nvm(), naive.recent.len());
            assert!(table.in_nvm() <= room);
            let there = (0..objects).filter(|poid| table.is_in_nvm(*poid));
            assert_eq!(there.count(), table.in_nvm());
        }
    }
}

#[test]
fn more_room_is_never_more_swaps() {
    let mut random = fastrand::Rng::with_seed(7);
    let uses: Vec<usize> = (0..4000)
        .map(|_| random.usize(..30).min(random.usize(..30)))
        .collect();
    let swaps = |room| {
        let mut table = ObjectTable::new(30, room);
        let swapped = uses.iter().filter(|&&poid| {
            let swap = table.begin(poid).unwrap();
            table.end(poid);
            swap.is_in
        });
        swapped.count()
    };
    let all: Vec<usize> = (1..=30).map(swaps).collect();
    assert!(all.windows(2).all(|pair| pair[1] <= pair[0]), "{all:?}");
    assert!(all[0] > 3000 && all[29] == 0, "{all:?}");
}

#[test]
fn an_object_in_use_never_leaves() {
    let mut table = ObjectTable::new(4, 2);
    assert!(table.begin(0).unwrap().out.is_empty());
    // 0 was used before 1, and is in use.
    table.begin(1).unwrap();
    table.end(1);
    let swap = table.begin(2).unwrap();
    assert_eq!((swap.out, swap.is_in), (vec![1], true));
    assert_eq!(table.begin(3), None);
    assert!(table.is_in_nvm(0) && table.is_in_nvm(2) && !table.is_in_nvm(3));
    table.end(0);
    assert_eq!(table.begin(3).unwrap().out, [0]);
}

fn small() -> Config {
    let mut config = Config::find("simpo").unwrap();
    config.sizes.group = 10;
    config.sizes.log_entries = 256;
    config
}

const TIMES: Times = Times {
    other: 3_000_000_000,
    same: 2_000_000_000,
    copy: 5_000_000_000,
};

/// A pool of 24 objects with room for some.
fn pooled(is_persistent: bool, threads: usize, room: u64, calls: u64) -> (Counts, u64, u64) {
    let config = small();
    let mut large = Large {
        objects: 24,
        bytes: 64 << 10,
        nvm_bytes: 0,
        calls,
    };
    let kept = large.kept_bytes(config.sizes.log_entries);
    large.nvm_bytes = kept * room;
    let mut pool = Pool::new(is_persistent, threads, large, TIMES, &config);
    let mut machine = Machine::new(config.hardware.clone(), Some(config.ssd), &mut pool);
    // From the first call on, so that transfers and swaps are of the same calls.
    let counts = machine.run(0, 3000).unwrap();
    machine.check().unwrap();
    drop(machine);
    (counts, pool.swaps(), kept)
}

#[test]
fn what_moves_is_what_is_swapped() {
    for threads in [1, 7, 60] {
        for room in [8, 16, 23] {
            let (counts, swaps, kept) = pooled(true, threads, room, 1);
            assert_eq!(counts.disk_bytes, counts.disk_writes * kept, "{threads} {room}");
            // One out and one in, but for those under way at the end.
            let (least, most) = ((2 * swaps).saturating_sub(2 * threads as u64), 2 * swaps);
            assert!((least..=most).contains(&counts.disk_writes), "{counts:?} {swaps}");
            // An object is not there with the chance that there is no room for it. Threads that wait for the same one share
            // its way in.
            let missed = swaps as f64 / 3000.0;
            let expected = 1.0 - room as f64 / 24.0;
            assert!(missed < expected + 0.05, "{missed} beside {expected}");
            assert!(
                threads > 1 || missed > expected - 0.05,
                "{missed} beside {expected}"
            );
        }
        let (counts, swaps, _) = pooled(true, threads, 24, 1);
        assert_eq!((counts.disk_writes, swaps), (0, 0));
    }
}

#[test]
fn more_room_is_never_slower_and_more_calls_of_an_object_are_fewer_swaps() {
    for threads in [1, 7] {
        let time = |room| pooled(true, threads, room, 1).0.time_fs;
        let all = [6, 12, 18, 23, 24].map(time);
        assert!(all.windows(2).all(|pair| pair[1] < pair[0]), "{all:?}");
        let swaps = |calls| pooled(true, threads, 12, calls).1;
        let all = [1, 10, 100].map(swaps);
        assert!(all.windows(2).all(|pair| pair[1] * 5 < pair[0]), "{all:?}");
    }
}

#[test]
fn a_call_takes_the_time_of_its_function() {
    for (is_persistent, expected) in [(false, TIMES.other), (true, TIMES.same + TIMES.copy / 10)] {
        let (counts, ..) = pooled(is_persistent, 1, 24, 1);
        let each = counts.time_fs as f64 / counts.transactions as f64;
        let ratio = each / expected as f64;
        assert!((1.0..1.25).contains(&ratio), "{is_persistent}: {ratio}");
    }
}

#[test]
fn passes_are_of_lines_and_a_copy_writes_each_once() {
    let config = Config::find("simpo").unwrap();
    let run = |pass, bytes: u64, count| {
        let mut passes = Passes::new(pass, 1, bytes * Passes::SMALLER, &config);
        let warm_up = passes.warm_up();
        Machine::new(Passes::hardware(1, &config), None, &mut passes)
            .run(warm_up, count)
            .unwrap()
    };
    let bytes = 128 << 10;
    let [others, same, copy] = [Pass::Others, Pass::Same, Pass::Copy].map(|pass| run(pass, bytes, 4));
    assert_eq!(copy.nvm_writes, 4 * bytes / 64);
    assert_eq!((others.nvm_writes, same.nvm_writes), (0, 0));
    // No cache has another object; of the same one the last cache has all.
    assert!(others.last_misses >= 4 * bytes / 64 * 9 / 10, "{others:?}");
    assert!(same.last_misses < bytes / 64 / 10, "{same:?}");
    assert!(same.time_fs < others.time_fs);
}

#[test]
fn threads_have_the_last_caches_of_their_nodes() {
    let config = Config::find("simpo").unwrap();
    let last = |threads| {
        let levels = Passes::hardware(threads, &config).shape.levels;
        let last = levels.last().unwrap();
        (last.bytes * Passes::SMALLER, last.ways)
    };
    let found = [1, 8, 9, 24, 60].map(last);
    let mib = [(8, 16), (8, 16), (16, 16), (24, 48), (64, 16)];
    assert_eq!(found, mib.map(|(mib, ways)| (mib << 20, ways)));
    // One object of 4 MiB fits into a node's, those of all of its threads do not.
    let misses = |threads: usize| {
        let mut passes = Passes::new(Pass::Same, threads, 4 << 20, &config);
        let warm_up = passes.warm_up();
        let mut machine = Machine::new(Passes::hardware(threads, &config), None, &mut passes);
        let counts = machine.run(warm_up, 2 * threads as u64).unwrap();
        counts.last_misses as f64 / counts.transactions as f64 * 64.0 * Passes::SMALLER as f64
            / f64::from(4 << 20)
    };
    let [alone, together] = [1, 8].map(misses);
    assert!(alone < 0.1 && together > 0.9, "{alone} {together}");
}
