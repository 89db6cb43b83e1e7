//! Single operations of each collection.

use std::hint::black_box;

use twinpage::collections::{self as ours, Box as RegionBox};

use crate::{Bench, keys, timed};

const KEYS: usize = 200_000;

pub(crate) fn vectors(bench: &mut Bench) {
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

pub(crate) fn rings(bench: &mut Bench) {
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

pub(crate) fn text(bench: &mut Bench) {
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

pub(crate) fn boxes(bench: &mut Bench) {
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

pub(crate) fn hashes(bench: &mut Bench) {
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

pub(crate) fn trees(bench: &mut Bench) {
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
