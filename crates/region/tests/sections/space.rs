//! How much space the file of a region of sections takes: while it is at rest, and closed.

use super::sections;
use super::support::{folders, when_free};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use twinpage::collections::Vec as List;
use twinpage::{Consolidation, Error, Handle, Options, Region};

const MIB: u64 = 1 << 20;
/// Words of 16 MiB.
const WORDS: usize = 2 << 20;

/// Bytes the file takes on its file system.
fn taken(path: &Path) -> u64 {
    path.metadata().unwrap().blocks() * 512
}

/// A region with a list, all of which was written by two sections: each of its pages has two homes.
fn filled(options: Options, path: &Path) -> (Region, Handle<List<'static, u64>>) {
    let region = options.open(path).unwrap();
    let list = region.shared::<List<u64>>("list").unwrap();
    for value in 1..3 {
        let fill = region.atomic(|section| {
            let list = list.write(section);
            list.clear();
            list.resize(WORDS, value);
            Ok::<_, Error>(())
        });
        fill.unwrap();
    }
    (region, list)
}

/// In the background most pages get one home again while no section is committed; where it was not wished for, when the
/// region is closed.
#[test]
fn pages_get_one_home_again_at_rest() {
    for folder in folders() {
        let (quiet, busy) = (folder.path().join("quiet"), folder.path().join("busy"));
        let most = 16 * MIB * 19 / 16 + 8 * MIB;
        let when_needed = sections().consolidation(Consolidation::WhenNeeded);
        let (first, list) = filled(when_needed, &quiet);
        let full = taken(&quiet);
        assert!(full > most, "{} MiB", full / MIB);
        let (second, rest) = filled(sections(), &busy);
        while taken(&busy) > most {
            std::thread::yield_now();
        }
        assert_eq!(taken(&quiet), full, "nothing was wished for here");
        drop(list);
        first.close().unwrap();
        assert!(taken(&quiet) <= most, "{} MiB", taken(&quiet) / MIB);
        // It goes on as before, and what it has is whole.
        let change = second.atomic(|section| {
            rest.write(section)[7] = 7;
            Ok::<_, Error>(())
        });
        change.unwrap();
        drop(rest);
        second.close().unwrap();
        let again = when_free(|| sections().checked().open(&busy));
        let list = again.shared::<List<u64>>("list").unwrap();
        let sum = again.read(|view| list.read(view).iter().sum::<u64>());
        assert_eq!(sum, 2 * WORDS as u64 + 5);
    }
}

/// What is free in the heap takes no space once the region is closed.
#[test]
fn a_closed_region_has_no_free_memory() {
    for folder in folders() {
        let path = folder.path().join("removed");
        let (region, list) = filled(sections(), &path);
        // Too little to be given back at once.
        let used = region.atomic(|section| {
            drop(section.collect::<List<u64>>(0..2 * MIB / 8));
            Ok::<_, Error>(section.heap().stats())
        });
        let used = used.unwrap();
        assert!(used.held_bytes > MIB, "{used:?}");
        drop(list);
        region.close().unwrap();
        let region = when_free(|| sections().checked().open(&path));
        let now = region
            .atomic(|section| Ok::<_, Error>(section.heap().stats()))
            .unwrap();
        assert_eq!((now.used_bytes, now.held_bytes), (used.used_bytes, 0), "{now:?}");
    }
}
