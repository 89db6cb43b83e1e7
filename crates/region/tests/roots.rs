//! Roots: found again with what they held, of the type they were made with, or refused.

use std::path::PathBuf;
use std::time::Duration;
use twinpage::collections::{BTreeMap, BTreeSet, Box, HashMap, HashSet, String, Vec, VecDeque};
use twinpage::{Error, Heap, Persist, Region, Root, RootError};

struct Dir(tempfile::TempDir);

impl Dir {
    fn new() -> Dir {
        Dir(tempfile::tempdir().unwrap())
    }
    fn file(&self) -> PathBuf {
        self.0.path().join("test.twin")
    }
    fn open(&self) -> Region {
        Region::open(self.file()).unwrap()
    }
}

#[derive(Persist, Clone, Copy, PartialEq, Debug)]
struct Order {
    price: u64,
    amount: u32,
}

#[test]
fn what_is_durable_is_there_again() {
    let dir = Dir::new();
    let order = |id: u64| Order {
        price: id * 10,
        amount: id as u32,
    };
    {
        let region = Region::options()
            .every(Duration::from_millis(16))
            .open(dir.file())
            .unwrap();
        let mut orders = region.root("orders", HashMap::<u64, Order>::new_in).unwrap();
        for id in 0..1000 {
            region.update(|_| orders.insert(id, order(id)));
        }
        region.durable().unwrap();
    }
    let region = dir.open();
    let orders = region
        .root("orders", |_| -> HashMap<u64, Order> { panic!("it is there") })
        .unwrap();
    assert_eq!(orders.len(), 1000);
    assert!((0..1000).all(|id| orders.get(&id) == Some(&order(id))));
    assert!(region.heap().unwrap().check().is_sound());
}

/// One of everything, each inside another.
#[derive(Persist)]
struct Everything {
    names: Vec<String>,
    by_name: BTreeMap<u32, Vec<u16>>,
    seen: HashSet<u64>,
    sorted: BTreeSet<[u8; 3]>,
    queue: VecDeque<Option<String>>,
    list: Option<Box<Node>>,
    shape: Shape,
    flags: (bool, char, Option<Option<bool>>),
}

#[derive(Persist)]
struct Node {
    value: u32,
    next: Option<Box<Node>>,
}

#[derive(Persist)]
#[repr(u8)]
enum Shape {
    #[allow(dead_code)] // described
    Dot,
    Named {
        name: String,
        corners: Vec<(f64, f64)>,
    },
}

fn everything(heap: Heap) -> Everything {
    let mut all = Everything {
        names: Vec::new_in(heap),
        by_name: BTreeMap::new_in(heap),
        seen: HashSet::from_iter_in(0..500, heap),
        sorted: BTreeSet::from_iter_in((0..100).map(|k| [k, 1, 2]), heap),
        queue: VecDeque::new_in(heap),
        list: None,
        shape: Shape::Named {
            name: String::from_in("square", heap),
            corners: Vec::from_iter_in([(0.0, 0.0), (0.0, 1.0), (1.0, 1.0), (1.0, 0.0)], heap),
        },
        flags: (true, 'ß', Some(None)),
    };
    for k in 0..200 {
        all.names.push(String::from_in(&format!("name {k}"), heap));
        all.by_name.insert(k, Vec::from_iter_in(0..k as u16 % 7, heap));
        all.queue
            .push_front((k % 3 > 0).then(|| String::from_in("waits", heap)));
        all.list = Some(Box::new_in(
            Node {
                value: k,
                next: all.list.take(),
            },
            heap,
        ));
    }
    all
}

fn verify(all: &Everything) {
    assert!(
        all.names
            .iter()
            .enumerate()
            .all(|(k, name)| *name == format!("name {k}"))
    );
    assert!(all.by_name.iter().all(|(k, v)| v.len() == *k as usize % 7));
    assert_eq!(
        (
            all.names.len(),
            all.by_name.len(),
            all.seen.len(),
            all.sorted.len()
        ),
        (200, 200, 500, 100)
    );
    assert_eq!(
        all.queue.iter().flatten().filter(|one| **one == *"waits").count(),
        133
    );
    let nodes = std::iter::successors(all.list.as_deref_node(), |node| node.next.as_deref_node());
    assert!(nodes.map(|node| node.value).eq((0..200).rev()));
    let Shape::Named { name, corners } = &all.shape else {
        panic!()
    };
    assert_eq!((name.as_str(), corners.len()), ("square", 4));
    assert_eq!(all.flags, (true, 'ß', Some(None)));
}

trait AsNode {
    fn as_deref_node(&self) -> Option<&Node>;
}

impl AsNode for Option<Box<Node>> {
    fn as_deref_node(&self) -> Option<&Node> {
        self.as_ref().map(|node| &**node)
    }
}

#[test]
fn everything_inside_everything_survives_and_is_walked() {
    let dir = Dir::new();
    let blocks = {
        let region = dir.open();
        let all = region.root("all", everything).unwrap();
        verify(&all);
        let report = region.heap().unwrap().check();
        assert!(report.is_sound(), "{report:?}");
        assert_eq!(report.roots.len(), 1);
        assert_eq!(
            (report.roots[0].name.as_str(), report.roots[0].type_name.as_str()),
            ("all", "Everything")
        );
        assert!(report.roots[0].blocks > 700);
        report.roots[0].blocks
    };
    let region = dir.open();
    let mut all = region
        .root("all", |_| -> Everything { panic!("it is there") })
        .unwrap();
    verify(&all);
    region.update(|_| {
        all.names.truncate(100);
        all.list.as_mut().unwrap().next = None;
    });
    let report = region.heap().unwrap().check();
    assert!(report.is_sound(), "{report:?}");
    assert!(report.roots[0].blocks < blocks - 290, "{report:?}");
    let roots = region.roots().unwrap();
    assert_eq!(
        (roots.len(), roots[0].name.as_str(), roots[0].open),
        (1, "all", true)
    );
    drop(all);
    region.remove_root("all").unwrap();
    let report = region.heap().unwrap().check();
    assert!(report.is_sound() && report.roots.is_empty(), "{report:?}");
    assert!(matches!(
        region.remove_root("all"),
        Err(Error::Root(RootError::Missing { .. }))
    ));
    let again: Root<u64> = region.root("all", |_| 5).unwrap();
    assert_eq!(*again, 5);
}

#[test]
fn roots_made_and_removed_in_any_epoch_are_kept() {
    let dir = Dir::new();
    let names = |region: &Region| {
        region
            .roots()
            .unwrap()
            .into_iter()
            .map(|root| root.name)
            .collect::<std::vec::Vec<_>>()
    };
    let mut expected = std::vec::Vec::new();
    for round in 0..6_u64 {
        let region = dir.open();
        for k in 0..4 {
            let name = format!("{round} {k}");
            drop(
                region
                    .root(&name, |heap| Vec::from_iter_in([round, k], heap))
                    .unwrap(),
            );
            expected.push(name);
            region.checkpoint().unwrap();
        }
        let gone = expected.remove(round as usize);
        region.remove_root(&gone).unwrap();
        region.checkpoint().unwrap();
        drop(region);
        let region = dir.open();
        assert_eq!(names(&region), expected);
        let report = region.heap().unwrap().check();
        assert!(report.is_sound(), "{report:?}");
    }
}

#[test]
fn there_is_one_root_of_a_name_at_a_time() {
    let dir = Dir::new();
    let region = dir.open();
    let first = region.root("n", |_| 1_u64).unwrap();
    assert!(matches!(
        region.root("n", |_| 1_u64),
        Err(Error::Root(RootError::InUse { .. }))
    ));
    assert!(matches!(
        region.remove_root("n"),
        Err(Error::Root(RootError::InUse { .. }))
    ));
    let other = region.root("m", |_| 2_u64).unwrap();
    drop(first);
    let mut first = region.root("n", |_| 7_u64).unwrap();
    assert_eq!((*first, *other), (1, 2));
    region.update(|_| *first += 5);
    assert_eq!(*first, 6);
    region.update(|_| Root::remove(first)).unwrap();
    assert_eq!(region.roots().unwrap().len(), 1);
    assert_eq!(*region.root("n", |_| 9_u64).unwrap(), 9);
}

#[test]
fn a_root_is_changed_inside_an_update_only() {
    let dir = Dir::new();
    let region = dir.open();
    let mut numbers = region
        .root("numbers", |heap| Vec::from_iter_in([1, 2, 3], heap))
        .unwrap();
    region.checkpoint().unwrap();
    let outside = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| numbers.push(4)));
    let message = *outside.unwrap_err().downcast::<&str>().unwrap();
    assert!(message.contains("region.update("), "{message}");
    let heap = region.heap().unwrap();
    assert!(std::panic::catch_unwind(|| drop(Box::new_in(5, heap))).is_err());
    assert_eq!(*numbers, [1, 2, 3]);
    region.update(|_| numbers.push(4));
    assert_eq!(*numbers, [1, 2, 3, 4]);
}

#[test]
fn a_panic_while_it_is_made_leaves_no_root() {
    let dir = Dir::new();
    let region = dir.open();
    let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        region.root("n", |heap| -> Vec<u8> {
            panic!("{}", Vec::<u8>::from_iter_in([1], heap).len())
        })
    }));
    assert!(made.is_err());
    assert!(region.roots().unwrap().is_empty());
    assert!(region.root("n", Vec::<u8>::new_in).is_ok());
    assert!(region.heap().unwrap().check().is_sound());
}

#[test]
fn a_root_outlives_the_region_it_is_of() {
    let dir = Dir::new();
    let region = dir.open();
    let numbers = region
        .root("numbers", |heap| Vec::from_iter_in(0..1000, heap))
        .unwrap();
    drop(region);
    assert_eq!(numbers.len(), 1000);
    drop(numbers);
    assert_eq!(
        dir.open().root("numbers", Vec::<i32>::new_in).unwrap().len(),
        1000
    );
}

#[test]
fn another_type_is_refused_and_both_are_shown() {
    let dir = Dir::new();
    let region = dir.open();
    drop(region.root("orders", HashMap::<u64, Order>::new_in).unwrap());
    #[derive(Persist, Debug)]
    #[persist(name = "Order")]
    struct Changed {
        _price: u32,
        _amount: u32,
    }
    let error = region
        .root("orders", HashMap::<u64, Changed>::new_in)
        .unwrap_err()
        .to_string();
    for part in [
        "root \"orders\"",
        "price, u64 (8 bytes)",
        "_price, u32 (4 bytes)",
        "#[persist(version",
    ] {
        assert!(error.contains(part), "{error}");
    }
    assert!(region.root("orders", HashMap::<u32, Order>::new_in).is_err());
    assert!(region.root("orders", HashMap::<u64, Order>::new_in).is_ok());
}

#[derive(Persist)]
#[persist(name = "Item")]
struct ItemV1 {
    cents: u32,
}

#[derive(Persist)]
#[persist(name = "Item", version = 2, from = ItemV1)]
struct ItemV2 {
    cents: u64,
}

impl From<ItemV1> for ItemV2 {
    fn from(old: ItemV1) -> ItemV2 {
        ItemV2 {
            cents: old.cents.into(),
        }
    }
}

#[derive(Persist)]
#[persist(version = 3, from = ItemV2, with = named)]
struct Item {
    cents: u64,
    name: String,
}

fn named(old: ItemV2, heap: Heap) -> Item {
    Item {
        cents: old.cents,
        name: String::from_in(&format!("item of {}", old.cents), heap),
    }
}

type In<T> = (
    HashMap<u64, T>,
    BTreeMap<u8, Vec<T>>,
    VecDeque<Option<Box<T>>>,
    [T; 2],
);

fn fill<T>(heap: Heap, make: impl Fn(u32) -> T) -> In<T> {
    (
        HashMap::from_iter_in((0..100).map(|k| (u64::from(k), make(k))), heap),
        BTreeMap::from_iter_in(
            (0..9).map(|k| (k, Vec::from_iter_in((0..u32::from(k)).map(&make), heap))),
            heap,
        ),
        VecDeque::from_iter_in(
            (0..50).map(|k| (k % 2 == 0).then(|| Box::new_in(make(k), heap))),
            heap,
        ),
        [make(1), make(2)],
    )
}

#[test]
fn an_old_layout_migrates_wherever_it_is() {
    let dir = Dir::new();
    drop(
        dir.open()
            .root("items", |heap| fill(heap, |cents| ItemV1 { cents }))
            .unwrap(),
    );
    {
        let region = dir.open();
        let items = region
            .root("items", |_| -> In<Item> { panic!("it is there") })
            .unwrap();
        let good = |item: &Item, cents: u64| item.cents == cents && item.name == format!("item of {cents}");
        assert!((0..100).all(|k| good(&items.0[&k], k)));
        assert!(items.1.iter().all(|(k, v)| v.len() == usize::from(*k)));
        assert!(
            items
                .1
                .values()
                .flat_map(|v| v.iter().enumerate())
                .all(|(k, item)| good(item, k as u64))
        );
        assert!(
            items
                .2
                .iter()
                .enumerate()
                .all(|(k, one)| one.is_some() == (k % 2 == 0))
        );
        assert!(good(&items.3[0], 1) && good(&items.3[1], 2));
        let report = region.heap().unwrap().check();
        assert!(report.is_sound(), "{report:?}");
    }
    let region = dir.open();
    assert!(matches!(
        region.root("items", |heap| fill(heap, |cents| ItemV1 { cents })),
        Err(Error::Root(RootError::Layout { .. }))
    ));
    assert_eq!(
        region
            .root("items", |_| -> In<Item> { panic!() })
            .unwrap()
            .0
            .len(),
        100
    );
}

#[test]
fn threads_change_their_own_roots() {
    let dir = Dir::new();
    {
        let region = Region::options()
            .every(Duration::from_millis(1))
            .open(dir.file())
            .unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let region = &region;
                scope.spawn(move || {
                    let make = BTreeMap::<u64, String>::new_in;
                    let mut own = region.root(&format!("root {thread}"), make).unwrap();
                    let heap = region.heap().unwrap();
                    for k in 0..3000 {
                        region.update(|_| {
                            own.insert(k % 500, String::from_in(&format!("{thread} {k}"), heap));
                            if k % 3 == 0 {
                                own.remove(&(k / 2));
                            }
                        });
                    }
                });
            }
        });
        let report = region.heap().unwrap().check();
        assert!(report.is_sound() && report.roots.len() == 4, "{report:?}");
    }
    let region = dir.open();
    let report = region.heap().unwrap().check();
    assert!(report.is_sound() && report.roots.len() == 4, "{report:?}");
}

#[test]
fn roots_made_in_different_epochs_are_all_there_again() {
    const ROOTS: u64 = 40;
    let dir = Dir::new();
    let region = dir.open();
    for number in 0..ROOTS {
        region.root(&format!("root {number}"), |_| number).unwrap();
        region.checkpoint().unwrap();
    }
    region.close().unwrap();
    let region = dir.open();
    for number in 0..ROOTS {
        let root = region.root(&format!("root {number}"), |_| 0u64).unwrap();
        assert_eq!(*root, number);
    }
}

#[test]
fn roots_come_and_go_while_others_are_changed() {
    let dir = Dir::new();
    let region = Region::options()
        .every(Duration::from_millis(1))
        .open(dir.file())
        .unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let region = &region;
            scope.spawn(move || {
                for round in 0..60 {
                    let name = format!("root {thread}");
                    let mut own = region.root(&name, BTreeMap::<u32, Vec<u32>>::new_in).unwrap();
                    let heap = region.heap().unwrap();
                    for k in 0..50 {
                        region.update(|_| own.insert(k, Vec::from_iter_in(0..k, heap)));
                    }
                    assert_eq!(own.len(), 50);
                    if round % 2 == 0 {
                        region.update(|_| Root::remove(own)).unwrap();
                    } else {
                        drop(own);
                        region.remove_root(&name).unwrap();
                    }
                }
            });
        }
    });
    let report = region.heap().unwrap().check();
    assert!(report.is_sound() && report.roots.is_empty(), "{report:?}");
    assert_eq!(report.stats.used_blocks, 2);
}
