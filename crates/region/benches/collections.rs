//! The collections beside those of `std` (and hashbrown), in one run: processor time for the same operations.
//!
//! `cargo bench -p twinpage --bench collections [-- --json] [-- --fresh] [-- NAME]`. Ours are in an update of a
//! region in memory that is kept, so every write is marked; no checkpoint falls in between. With `--fresh` there
//! is a checkpoint before each round, so that no line is marked already when it begins. Each pair runs in turns;
//! the ratio is the median over the rounds.

use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::time::Duration;

use twinpage::collections::{self as ours, Box as RegionBox};
use twinpage::{Persist, Region, Root, Update};

const ROUNDS: usize = 9;
const KEYS: usize = 200_000;

#[derive(serde::Serialize)]
struct Row {
    operation: &'static str,
    peer: &'static str,
    peer_ns_per_op: f64,
    ours_ns_per_op: f64,
    over_peer: f64,
    over_peer_min: f64,
    over_peer_max: f64,
}

struct Bench {
    region: Region,
    only: Option<String>,
    /// A checkpoint before each round.
    fresh: bool,
    rows: Vec<Row>,
}

/// What a side did: how long it took, and a number that both must agree on.
type Run = (Duration, u64);

/// The time of the processor, not of the clock: others that run meanwhile do not count.
fn timed(f: impl FnOnce() -> u64) -> Run {
    let now =
        || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).expect("a time since the thread began");
    let start = now();
    let result = black_box(f());
    (now() - start, result)
}

impl Bench {
    /// A vector that several rounds use.
    fn make<T: Persist>(&self, make: impl for<'r> FnOnce(&Update<'r>) -> T::In<'r>) -> Root<T> {
        self.region.root_with("made", make).expect("a root")
    }

    fn drop(&self, made: Root<impl Persist>) {
        self.region.update(|u| made.remove(u)).expect("it is removed");
    }

    fn compare(
        &mut self,
        operation: &'static str,
        peer: &'static str,
        ops: usize,
        mut theirs: impl FnMut() -> Run,
        mut ours: impl for<'r> FnMut(&Update<'r>) -> Run,
    ) {
        if self
            .only
            .as_ref()
            .is_some_and(|only| !operation.contains(only.as_str()))
        {
            return;
        }
        let mut rounds = Vec::new();
        for round in 0..=ROUNDS {
            let first = theirs();
            if self.fresh {
                self.region.checkpoint().expect("a checkpoint");
            }
            let second = self.region.update(&mut ours);
            assert_eq!(first.1, second.1, "{operation}");
            if round > 0 {
                let ns = |d: Duration| d.as_secs_f64() * 1e9 / ops as f64;
                rounds.push((ns(first.0), ns(second.0)));
            }
        }
        let median = |mut all: Vec<f64>| {
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        let ratios: Vec<f64> = rounds.iter().map(|(a, b)| b / a).collect();
        self.rows.push(Row {
            operation,
            peer,
            peer_ns_per_op: median(rounds.iter().map(|r| r.0).collect()),
            ours_ns_per_op: median(rounds.iter().map(|r| r.1).collect()),
            over_peer_min: ratios.iter().copied().fold(f64::MAX, f64::min),
            over_peer_max: ratios.iter().copied().fold(0.0, f64::max),
            over_peer: median(ratios),
        });
    }
}

/// Keys in no order, the same in every run.
fn keys(count: usize, seed: u64) -> Vec<u64> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..count).map(|_| random.u64(..)).collect()
}

fn rows(bench: &mut Bench) {
    vectors(bench);
    rings(bench);
    text(bench);
    boxes(bench);
    hashes(bench);
    trees(bench);
}

fn vectors(bench: &mut Bench) {
    let n = 1_000_000;
    bench.compare(
        "vec push",
        "std",
        n,
        || {
            let mut v = Vec::new();
            timed(|| {
                (0..n as u64).for_each(|k| v.push(black_box(k)));
                v.len() as u64
            })
        },
        |u| {
            let heap = u.heap();
            let mut v = ours::Vec::new_in(heap);
            timed(|| {
                (0..n as u64).for_each(|k| v.push(black_box(k)));
                v.len() as u64
            })
        },
    );
    let at: Vec<usize> = keys(n, 1).into_iter().map(|k| k as usize % n).collect();
    let (mut a, mut b) = (
        vec![0_u64; n],
        bench.make::<ours::Vec<u64>>(|u| ours::Vec::from_iter_in((0..n).map(|_| 0), u.heap())),
    );
    bench.compare(
        "vec set at random",
        "std",
        n,
        || {
            timed(|| {
                at.iter().for_each(|&k| a[k] = a[k].wrapping_add(k as u64));
                a[at[0]]
            })
        },
        |u| {
            let b = b.get_mut(u);
            timed(|| {
                at.iter().for_each(|&k| b[k] = b[k].wrapping_add(k as u64));
                b[at[0]]
            })
        },
    );
    bench.drop(b);
    let strings = 100_000;
    let (mut a, mut b) = (
        vec![[1_u8; 256]; strings],
        bench.make::<ours::Vec<[u8; 256]>>(|u| {
            ours::Vec::from_iter_in((0..strings).map(|_| [1_u8; 256]), u.heap())
        }),
    );
    let pairs: Vec<(usize, usize)> = at
        .windows(2)
        .map(|w| (w[0] % strings, w[1] % strings))
        .take(200_000)
        .collect();
    bench.compare(
        "vec swap 256 bytes",
        "std",
        pairs.len(),
        || {
            timed(|| {
                pairs.iter().for_each(|&(x, y)| a.swap(x, y));
                a[0][0].into()
            })
        },
        |u| {
            let b = b.get_mut(u);
            timed(|| {
                pairs.iter().for_each(|&(x, y)| b.swap(x, y));
                b[0][0].into()
            })
        },
    );
    bench.drop(b);
    let all = keys(200_000, 2);
    bench.compare(
        "vec sort",
        "std",
        all.len(),
        || {
            let mut v = all.clone();
            timed(|| {
                v.sort();
                v[0]
            })
        },
        |u| {
            let heap = u.heap();
            let mut v = ours::Vec::from_iter_in(all.iter().copied(), heap);
            timed(|| {
                v.sort();
                v[0]
            })
        },
    );
}

fn rings(bench: &mut Bench) {
    let n = 1_000_000;
    bench.compare(
        "deque push and pop",
        "std",
        n,
        || {
            let mut ring: std::collections::VecDeque<u64> = (0..1000).collect();
            timed(|| {
                (0..n as u64).for_each(|k| {
                    ring.push_back(black_box(k));
                    black_box(ring.pop_front());
                });
                ring[0]
            })
        },
        |u| {
            let heap = u.heap();
            let mut ring = ours::VecDeque::from_iter_in(0..1000, heap);
            timed(|| {
                (0..n as u64).for_each(|k| {
                    ring.push_back(black_box(k));
                    black_box(ring.pop_front());
                });
                ring[0]
            })
        },
    );
}

fn text(bench: &mut Bench) {
    let n = 500_000;
    bench.compare(
        "string push_str",
        "std",
        n,
        || {
            let mut text = String::new();
            timed(|| {
                (0..n).for_each(|_| text.push_str(black_box("a few words ")));
                text.len() as u64
            })
        },
        |u| {
            let heap = u.heap();
            let mut text = ours::String::new_in(heap);
            timed(|| {
                (0..n).for_each(|_| text.push_str(black_box("a few words ")));
                text.len() as u64
            })
        },
    );
}

fn boxes(bench: &mut Bench) {
    let n = 200_000;
    bench.compare(
        "box make, drop at random",
        "std",
        n,
        || {
            let mut kept: Vec<Box<[u64; 4]>> = (0..1000).map(|k| Box::new([k; 4])).collect();
            timed(|| {
                (0..n).for_each(|k| {
                    drop(std::mem::replace(
                        &mut kept[k * 7919 % 1000],
                        Box::new([k as u64; 4]),
                    ))
                });
                kept[0][0]
            })
        },
        |u| {
            let heap = u.heap();
            let mut kept: Vec<RegionBox<'_, [u64; 4]>> =
                (0..1000).map(|k| RegionBox::new_in([k; 4], heap)).collect();
            timed(|| {
                (0..n).for_each(|k| {
                    drop(std::mem::replace(
                        &mut kept[k * 7919 % 1000],
                        RegionBox::new_in([k as u64; 4], heap),
                    ))
                });
                kept[0][0]
            })
        },
    );
}

/// The same operations on any map: `$make` makes an empty one.
macro_rules! map_operations {
    ($bench:expr, $peer:literal, [$insert:literal, $get:literal, $miss:literal, $mix:literal, $iter:literal],
     $theirs:expr, $ours:expr) => {{
        let (all, others) = (keys(KEYS, 3), keys(KEYS, 4));
        macro_rules! side {
            ($map:ident, $make:expr, $body:expr) => {{
                let mut $map = $make;
                all.iter().for_each(|&k| {
                    $map.insert(k, k);
                });
                timed(|| $body)
            }};
        }
        macro_rules! both {
            ($name:literal, $map:ident, $body:expr) => {
                $bench.compare(
                    $name,
                    $peer,
                    KEYS,
                    || side!($map, $theirs, $body),
                    |u| side!($map, $ours(u.heap()), $body),
                )
            };
        }
        $bench.compare(
            $insert,
            $peer,
            KEYS,
            || {
                let mut map = $theirs;
                timed(|| {
                    all.iter().for_each(|&k| {
                        map.insert(k, k);
                    });
                    map.len() as u64
                })
            },
            |u| {
                let heap = u.heap();
                let mut map = $ours(heap);
                timed(|| {
                    all.iter().for_each(|&k| {
                        map.insert(k, k);
                    });
                    map.len() as u64
                })
            },
        );
        both!(
            $get,
            map,
            all.iter().rev().map(|k| map[k]).fold(0, u64::wrapping_add)
        );
        both!(
            $miss,
            map,
            others.iter().filter(|k| map.contains_key(*k)).count() as u64
        );
        both!($mix, map, {
            for (old, new) in all.iter().zip(&others) {
                map.remove(old);
                map.insert(*new, *old);
            }
            map.len() as u64
        });
        both!($iter, map, map.values().copied().fold(0, u64::wrapping_add));
    }};
}

fn hashes(bench: &mut Bench) {
    map_operations!(
        bench,
        "std",
        [
            "hash insert",
            "hash get",
            "hash get, not there",
            "hash remove and insert",
            "hash iterate"
        ],
        std::collections::HashMap::<u64, u64>::new(),
        ours::HashMap::<u64, u64>::new_in
    );
    map_operations!(
        bench,
        "hashbrown",
        [
            "hash insert",
            "hash get",
            "hash get, not there",
            "hash remove and insert",
            "hash iterate"
        ],
        hashbrown::HashMap::<u64, u64>::new(),
        ours::HashMap::<u64, u64>::new_in
    );
}

fn trees(bench: &mut Bench) {
    map_operations!(
        bench,
        "std",
        [
            "btree insert",
            "btree get",
            "btree get, not there",
            "btree remove and insert",
            "btree iterate"
        ],
        std::collections::BTreeMap::<u64, u64>::new(),
        ours::BTreeMap::<u64, u64>::new_in
    );
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let region = Region::options()
        .open(directory.path().join("region"))
        .expect("a region");
    let only = arguments.iter().find(|a| !a.starts_with("--")).cloned();
    let mut bench = Bench {
        region,
        only,
        fresh: arguments.iter().any(|a| a == "--fresh"),
        rows: Vec::new(),
    };
    rows(&mut bench);
    if arguments.iter().any(|a| a == "--json") {
        println!("{}", serde_json::json!({ "rows": bench.rows }));
        return;
    }
    let mut table = comfy_table::Table::new();
    table.set_header([
        "operation",
        "peer",
        "peer ns",
        "ours ns",
        "over peer",
        "least",
        "most",
    ]);
    for row in &bench.rows {
        table.add_row([
            row.operation.to_string(),
            row.peer.to_string(),
            format!("{:.1}", row.peer_ns_per_op),
            format!("{:.1}", row.ours_ns_per_op),
            format!("{:.2}", row.over_peer),
            format!("{:.2}", row.over_peer_min),
            format!("{:.2}", row.over_peer_max),
        ]);
    }
    println!("{table}");
}
