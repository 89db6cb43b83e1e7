//! Work on many entries at once: growth under checkpoints, ordered loads, scans, and trees that are divided and joined.

use std::hint::black_box;
use std::time::{Duration, Instant};

use twinpage::Region;
use twinpage::collections as ours;

use crate::{Bench, keys, timed};

const INSERTS: usize = 10_000_000;
/// Entries in an update.
const TOGETHER: usize = 1000;
/// Rounds of what takes seconds.
const FEW: usize = 3;

/// A map grows from nothing, with a checkpoint every 16 ms. By the clock: who waits for a checkpoint, waits.
pub(crate) fn growth(bench: &mut Bench) {
    const NAME: &str = "hash insert, 10 M, checkpoints";
    if !bench.is_asked(NAME) {
        return;
    }
    let all = keys(INSERTS, 5);
    let mut rounds = Vec::new();
    for _ in 0..FEW {
        let mut map = std::collections::HashMap::<u64, u64>::new();
        let theirs = stepwise(&all, |some| {
            map.extend(some.iter().map(|k| (*k, *k)));
        });
        assert_eq!(map.len(), all.len());
        drop(map);
        let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
        let options = Region::options().every(Duration::from_millis(16));
        let region = options.open(directory.path().join("region")).expect("a region");
        let mut map = region
            .root::<ours::HashMap<u64, u64>>("map")
            .expect("an empty map");
        let ours = stepwise(&all, |some| {
            region.update(|u| {
                let map = map.get_mut(u);
                some.iter().for_each(|k| {
                    map.insert(*k, *k);
                });
            });
        });
        assert_eq!(region.read(|v| map.get(v).len()), all.len());
        rounds.push((theirs, ours));
    }
    let times: Vec<_> = rounds.iter().map(|(theirs, ours)| (theirs.0, ours.0)).collect();
    bench.row(NAME, "std", INSERTS, &times);
    let longest: Vec<_> = rounds.iter().map(|(theirs, ours)| (theirs.1, ours.1)).collect();
    bench.row("the longest thousand of them", "std", TOGETHER, &longest);
}

/// How long it took in all, and the longest step.
fn stepwise(all: &[u64], mut step: impl FnMut(&[u64])) -> (Duration, Duration) {
    let (begun, mut longest) = (Instant::now(), Duration::ZERO);
    for some in all.chunks(TOGETHER) {
        let begun = Instant::now();
        step(black_box(some));
        longest = longest.max(begun.elapsed());
    }
    (begun.elapsed(), longest)
}

pub(crate) fn trees(bench: &mut Bench) {
    type Theirs = std::collections::BTreeMap<u64, u64>;
    let n = 1_000_000;
    let sorted = || (0..n as u64).map(|k| (black_box(k), k));
    let loaded = |len: usize| {
        assert_eq!(len, n);
        len as u64
    };
    bench.compare(
        "btree load, sorted",
        "std",
        n,
        || timed(|| loaded(Theirs::from_iter(sorted()).len())),
        |u| timed(|| loaded(ours::BTreeMap::from_iter_in(sorted(), u.heap()).len())),
    );
    /// The same work on a loaded map of either side.
    macro_rules! both {
        ($name:literal, $ops:expr, |$map:ident| $work:expr) => {
            bench.compare(
                $name,
                "std",
                $ops,
                || {
                    let $map = &mut Theirs::from_iter(sorted());
                    timed(|| $work)
                },
                |u| {
                    let $map = &mut ours::BTreeMap::from_iter_in(sorted(), u.heap());
                    timed(|| $work)
                },
            )
        };
    }
    both!("btree scan, all", n, |map| map
        .iter()
        .map(|(k, v)| k ^ v)
        .fold(0, u64::wrapping_add));
    let starts: Vec<u64> = keys(10_000, 6).into_iter().map(|k| k % n as u64).collect();
    both!("btree scan, 100", 100 * starts.len(), |map| {
        let scan = |from: &u64| map.range(from..).take(100).map(|(_, v)| *v).sum::<u64>();
        starts.iter().map(scan).sum()
    });
    both!("btree split_off and append", n, |map| {
        let mut upper = map.split_off(&(n as u64 / 3));
        map.append(&mut upper);
        loaded(map.len())
    });
}
