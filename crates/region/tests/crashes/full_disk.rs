//! A file system that is really full: the checkpoint fails and says so, the last one stays whole, what is
//! in memory can be saved elsewhere, and with room all goes on.

use crate::support::{again, on_small_disk};
use std::path::Path;
use std::time::Duration;
use twinpage::collections::Vec as List;
use twinpage::inspect::inspect;
use twinpage::{Durability, Error, Options, Region, Root, SchemeKind};

const CHILD: &str = "TWINPAGE_TEST_FULL_DISK";
const DISK_BYTES: usize = 24 << 20;
const LONG: usize = 40 << 20;

/// Runs this test's child in a mount namespace with a small file system at `disk`, in a new folder.
#[test]
fn a_disk_that_fills_up_loses_a_checkpoint_and_nothing_else() {
    if std::env::var_os(CHILD).is_some() {
        for scheme in [SchemeKind::DualPage, SchemeKind::Packed] {
            for durability in [Durability::Disk, Durability::Memory] {
                fill_up(scheme, durability);
            }
        }
        a_timed_checkpoint_is_told();
        return a_new_region_has_no_room();
    }
    let folder = tempfile::tempdir().unwrap();
    let mut child = again(
        module_path!(),
        "a_disk_that_fills_up_loses_a_checkpoint_and_nothing_else",
    );
    on_small_disk(child.env(CHILD, "1"), folder.path(), DISK_BYTES);
}

fn options(scheme: SchemeKind, durability: Durability) -> Options {
    Region::options().scheme(scheme).durability(durability)
}

type Values = Root<List<'static, u64>>;

fn values(region: &Region) -> Values {
    region.root("values").unwrap()
}

/// So many bytes of `value`.
fn fill(region: &Region, list: &mut Values, bytes: usize, value: u64) {
    region.update(|u| {
        let list = list.get_mut(u);
        list.clear();
        list.resize(bytes / 8, value);
    });
}

fn assert_all(region: &Region, list: &Values, bytes: usize, value: u64) {
    region.read(|v| {
        assert_eq!(list.get(v).len(), bytes / 8);
        assert!(list.get(v).iter().all(|&found| found == value));
    });
}

fn assert_full(outcome: Result<impl std::fmt::Debug, Error>) {
    let error = outcome.unwrap_err();
    let Error::Full(why) = error else {
        panic!("{error:?}")
    };
    // By the name that its user gave it.
    assert!(why.contains(" disk/region"), "{why}");
}

fn fill_up(scheme: SchemeKind, durability: Durability) {
    let (path, saved) = (Path::new("disk/region"), Path::new("saved"));
    let region = options(scheme, durability).open(path).unwrap();
    let mut list = values(&region);
    fill(&region, &mut list, 4 << 20, 1);
    let epoch = region.checkpoint().unwrap();
    fill(&region, &mut list, LONG, 2);
    let ticket = region.ticket();
    for _ in 0..3 {
        assert_full(region.checkpoint());
        assert_full(region.is_durable(ticket));
    }
    assert_eq!(region.epoch(), epoch);
    // Memory is as it was, and can be saved where there is room.
    assert_all(&region, &list, LONG, 2);
    assert_full(region.backup("backup"));
    let no_room = region.save_as("disk/copy").unwrap_err().to_string();
    assert!(
        no_room.contains("the file system of disk/copy is full"),
        "{no_room}"
    );
    region.save_as(saved).unwrap();
    // With less to keep there is room again.
    region.update(|u| {
        let list = list.get_mut(u);
        list.truncate((2 << 20) / 8);
        list.shrink_to_fit();
        list[0] = 3;
    });
    region.update(|u| u.heap().give_back()).unwrap();
    let smaller = region.checkpoint();
    if let Err(error) = &smaller {
        assert!(matches!(error, Error::Full(_)), "{error:?}");
    }
    fill(&region, &mut list, LONG, 4);
    assert_full(region.checkpoint());
    drop(list);
    assert_full(region.close());

    // The last checkpoint is whole, and is opened where there is no room at all.
    let rest = Path::new("disk/rest");
    std::fs::write(rest, vec![1; 2 * DISK_BYTES]).unwrap_err();
    let checked = inspect(path).unwrap().check().unwrap();
    assert!(checked.0.is_empty() && checked.1.unwrap().damage.is_empty());
    let region = options(scheme, durability).checked().open(path).unwrap();
    let list = values(&region);
    match smaller {
        Ok(_) => region.read(|v| {
            let list = list.get(v);
            assert_eq!((list.len(), list[0], list[1]), ((2 << 20) / 8, 3, 2));
        }),
        Err(_) => assert_all(&region, &list, 4 << 20, 1),
    }
    drop(list);
    drop(region);
    std::fs::remove_file(rest).unwrap();
    let region = Region::options().checked().open(saved).unwrap();
    assert_all(&region, &values(&region), LONG, 2);
    drop(region);
    // With room it goes on.
    let region = options(scheme, durability).open(path).unwrap();
    let mut list = values(&region);
    fill(&region, &mut list, 1 << 20, 5);
    region.checkpoint().unwrap();
    drop(list);
    region.close().unwrap();
    for file in [path, saved] {
        std::fs::remove_file(file).unwrap();
    }
    assert_eq!(
        std::fs::read_dir("disk").unwrap().count(),
        0,
        "something was left behind"
    );
}

fn a_timed_checkpoint_is_told() {
    let region = Region::options()
        .every(Duration::from_millis(1))
        .open("disk/region")
        .unwrap();
    let mut list = values(&region);
    fill(&region, &mut list, 1 << 20, 1);
    region.durable().unwrap();
    fill(&region, &mut list, LONG, 2);
    let ticket = region.ticket();
    assert_full(region.wait(ticket));
    assert_full(region.durable());
    drop(list);
    assert!(region.close().is_err());
    std::fs::remove_file("disk/region").unwrap();
}

fn a_new_region_has_no_room() {
    std::fs::write("disk/rest", vec![1; 2 * DISK_BYTES]).unwrap_err();
    let error = Region::open("disk/region").unwrap_err().to_string();
    assert!(
        error.contains("the file system of disk/region is full"),
        "{error}"
    );
    let names: Vec<_> = std::fs::read_dir("disk")
        .unwrap()
        .map(|file| file.unwrap().file_name())
        .collect();
    assert_eq!(names, ["rest"], "a draft was left behind");
}
