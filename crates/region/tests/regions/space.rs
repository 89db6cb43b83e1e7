//! How much space the file of a region takes, in blocks of the file system: in memory and on a disk.

use crate::support::folders;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};
use twinpage::Region;
use twinpage::collections::{HashMap, Vec};

const MIB: u64 = 1 << 20;

/// Bytes the file takes on its file system.
fn taken(path: &Path) -> u64 {
    path.metadata().unwrap().blocks() * 512
}

/// Says how much the file takes, and that it is at most `most`.
#[track_caller]
fn at_most(path: &Path, most: u64, when: &str) {
    let taken = taken(path);
    println!("{}, {when}: {} KiB", path.display(), taken >> 10);
    assert!(
        taken <= most,
        "{}, {when}: {taken} bytes, not {most}",
        path.display()
    );
}

#[test]
fn an_empty_region_takes_at_most_a_mebibyte() {
    for folder in folders() {
        let path = folder.path().join("empty");
        let region = Region::open(&path).unwrap();
        at_most(&path, MIB, "open");
        region.close().unwrap();
        at_most(&path, MIB, "closed");
        // Without an interval: each commit more may take a derivative page of 256 KiB.
        let region = Region::open(&path).unwrap();
        let _count = region.root::<u64>("count").unwrap();
        region.durable().unwrap();
        drop(region);
        at_most(&path, 2 * MIB, "with a root of a word");
    }
}

/// More lines than the longest log holds go through the log of a small region.
#[test]
fn the_log_of_a_small_region_stays_short() {
    const WORDS: usize = 10 << 17;
    for folder in folders() {
        let path = folder.path().join("small");
        let region = Region::open(&path).unwrap();
        let mut list = region.root::<Vec<u64>>("list").unwrap();
        region.update(|u| list.get_mut(u).resize(WORDS, 1));
        region.durable().unwrap();
        let (mut sum, mut written) = (WORDS as u64, 0);
        for round in 0.. {
            region.update(|u| {
                // A word in every 32nd, 16th, ... 2nd line: few lines of many pages.
                let (list, step) = (list.get_mut(u), 8 << (5 - round % 5));
                for at in (round % 8..WORDS).step_by(step) {
                    list[at] += 1;
                    sum += 1;
                    written += 64;
                }
            });
            region.durable().unwrap();
            at_most(&path, 40 * MIB, "written");
            if written > 96 * MIB {
                break;
            }
        }
        drop(list);
        region.close().unwrap();
        at_most(&path, 40 * MIB, "closed");
        let region = Region::options().checked().open(&path).unwrap();
        let list = region.root::<Vec<u64>>("list").unwrap();
        assert_eq!(region.read(|v| list.get(v).iter().sum::<u64>()), sum);
    }
}

/// Every page of a map that is filled at random has two homes for a while. In the end most have one.
#[test]
fn a_filled_region_takes_little_more_than_it_holds() {
    let inserts = twinpage_campaign::either(1_000_000, 10_000_000);
    for folder in folders() {
        let path = folder.path().join("filled");
        let fill = || {
            let region = Region::options()
                .every(Duration::from_millis(16))
                .open(&path)
                .unwrap();
            let mut map = region.root::<HashMap<u64, u64>>("map").unwrap();
            let mut random = fastrand::Rng::with_seed(1);
            for _ in 0..inserts / 10_000 {
                region.update(|u| {
                    let map = map.get_mut(u);
                    for _ in 0..10_000 {
                        map.insert(random.u64(..), 1);
                    }
                });
            }
            region.durable().unwrap();
            drop(map);
            // An eighth of the pages may have a second home; beside them are the log, two snapshots and journals.
            let info = region.info();
            let log = info.log.map_or(0, |log| log.limit_bytes);
            let most = info.pages * 4096 * 19 / 16 + log + 8 * MIB;
            assert!(log <= info.pages * 4096 + MIB, "a log of {log} bytes");
            match inserts {
                10_000_000 => (region, most.min(info.pages * 4096 * 450 / 305)),
                _ => (region, most),
            }
        };
        let (region, most) = fill();
        println!("{} KiB filled, {} KiB allowed", taken(&path) >> 10, most >> 10);
        let begun = Instant::now();
        region.close().unwrap();
        println!("closed in {} ms", begun.elapsed().as_millis());
        at_most(&path, most, "closed");
        let (region, most) = fill();
        println!("{} KiB filled, {} KiB allowed", taken(&path) >> 10, most >> 10);
        while taken(&path) > most {
            std::thread::sleep(Duration::from_millis(20));
        }
        at_most(&path, most, "open, at rest");
        region.close().unwrap();
        let region = Region::options().checked().open(&path).unwrap();
        let map = region.root::<HashMap<u64, u64>>("map").unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        region.read(|v| (0..inserts).for_each(|_| assert_eq!(map.get(v).get(&random.u64(..)), Some(&1))));
    }
}

#[test]
fn removed_values_give_their_space_back() {
    for folder in folders() {
        let path = folder.path().join("removed");
        let region = Region::open(&path).unwrap();
        let mut list = region.root::<Vec<u64>>("list").unwrap();
        for value in 1..3 {
            region.update(|u| {
                list.get_mut(u).clear();
                list.get_mut(u).resize(4 << 20, value);
            });
            region.durable().unwrap();
        }
        drop(list);
        assert!(taken(&path) > 32 * MIB);
        region.remove_root("list").unwrap();
        region.durable().unwrap();
        at_most(&path, 12 * MIB, "removed");
        region.close().unwrap();
        at_most(&path, 12 * MIB, "closed");
        Region::options().checked().open(&path).unwrap();
    }
}

#[test]
fn a_commit_of_a_word_writes_a_line_of_the_disk() {
    const COMMITS: u64 = 100;
    let [_, disk] = folders();
    let region = Region::open(disk.path().join("word")).unwrap();
    let mut count = region.root::<u64>("count").unwrap();
    region.durable().unwrap();
    let (before, start) = (region.info().traffic, Instant::now());
    for _ in 0..COMMITS {
        region.update(|u| *count.get_mut(u) += 1);
        region.durable().unwrap();
    }
    let spent = region.info().traffic - before;
    println!("{} bytes a commit: {spent:?}", spent.total_bytes() / COMMITS);
    // The context has the time of the checkpoint in it, to a second.
    assert!(
        spent.context_bytes <= 4096 * (start.elapsed().as_secs() + 2),
        "{spent:?}"
    );
    let rest = (spent.total_bytes() - spent.context_bytes) / COMMITS;
    assert!(rest <= 4096 + 128, "{rest} bytes a commit: {spent:?}");
}
