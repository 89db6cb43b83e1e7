//! Roots: found again with what they held, of the type they were made with, or refused.

use std::path::PathBuf;
use std::time::Duration;
use twinpage::collections::{BTreeMap, BTreeSet, Box, HashMap, HashSet, String, Vec, VecDeque};
use twinpage::{Error, Heap, Persist, Region, Root, RootError, Update};

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

/// Its own bytes are marked by the first update after a cut, and no more until the next.
#[test]
fn a_root_changed_in_every_epoch_is_in_every_checkpoint() {
    for epochs in 1..5 {
        let dir = Dir::new();
        let died = std::panic::catch_unwind(|| {
            let region = dir.open();
            let mut count = region.root::<u64>("count").unwrap();
            for epoch in 1..=epochs {
                region.update(|u| *count.get_mut(u) = 100 * epoch);
                region.update(|u| *count.get_mut(u) += epoch);
                region.checkpoint().unwrap();
            }
            region.update(|u| *count.get_mut(u) = 7);
            panic!("no last checkpoint");
        });
        assert!(died.is_err());
        let region = dir.open();
        let count = region.root::<u64>("count").unwrap();
        assert_eq!(region.read(|v| *count.get(v)), 101 * epochs);
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
        let mut orders = region.root::<HashMap<u64, Order>>("orders").unwrap();
        for id in 0..1000 {
            region.update(|u| orders.get_mut(u).insert(id, order(id)));
        }
        region.durable().unwrap();
    }
    let region = dir.open();
    let orders = region
        .root_with::<HashMap<u64, Order>>("orders", |_| panic!("it is there"))
        .unwrap();
    region.read(|v| {
        assert_eq!(orders.get(v).len(), 1000);
        assert!((0..1000).all(|id| orders.get(v).get(&id) == Some(&order(id))));
    });
    assert!(region.check().unwrap().is_sound());
}

/// One of everything, each inside another.
#[derive(Persist)]
struct Everything<'r> {
    names: Vec<'r, String<'r>>,
    by_name: BTreeMap<'r, u32, Vec<'r, u16>>,
    seen: HashSet<'r, u64>,
    sorted: BTreeSet<'r, [u8; 3]>,
    queue: VecDeque<'r, Option<String<'r>>>,
    list: Option<Box<'r, Node<'r>>>,
    shape: Shape<'r>,
    flags: (bool, char, Option<Option<bool>>),
}

#[derive(Persist)]
struct Node<'r> {
    value: u32,
    next: Option<Box<'r, Node<'r>>>,
}

#[derive(Persist)]
#[repr(u8)]
enum Shape<'r> {
    #[allow(dead_code)] // described
    Dot,
    Named {
        name: String<'r>,
        corners: Vec<'r, (f64, f64)>,
    },
}

fn everything<'r>(update: &Update<'r>) -> Everything<'r> {
    let heap = update.heap();
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

fn verify(all: &Everything<'_>) {
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

trait AsNode<'r> {
    fn as_deref_node(&self) -> Option<&Node<'r>>;
}

impl<'r> AsNode<'r> for Option<Box<'r, Node<'r>>> {
    fn as_deref_node(&self) -> Option<&Node<'r>> {
        self.as_ref().map(|node| &**node)
    }
}

#[test]
fn everything_inside_everything_survives_and_is_walked() {
    let dir = Dir::new();
    let blocks = {
        let region = dir.open();
        let all = region.root_with::<Everything>("all", everything).unwrap();
        region.read(|v| verify(all.get(v)));
        let report = region.check().unwrap();
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
        .root_with::<Everything>("all", |_| panic!("it is there"))
        .unwrap();
    region.read(|v| verify(all.get(v)));
    region.update(|u| {
        let all = all.get_mut(u);
        all.names.truncate(100);
        all.list.as_mut().unwrap().next = None;
    });
    let report = region.check().unwrap();
    assert!(report.is_sound(), "{report:?}");
    assert!(report.roots[0].blocks < blocks - 290, "{report:?}");
    let roots = region.roots().unwrap();
    assert_eq!(
        (roots.len(), roots[0].name.as_str(), roots[0].open),
        (1, "all", true)
    );
    drop(all);
    region.remove_root("all").unwrap();
    let report = region.check().unwrap();
    assert!(report.is_sound() && report.roots.is_empty(), "{report:?}");
    assert!(matches!(
        region.remove_root("all"),
        Err(Error::Root(RootError::Missing { .. }))
    ));
    let again: Root<u64> = region.root_with("all", |_| 5).unwrap();
    assert_eq!(region.read(|v| *again.get(v)), 5);
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
                    .root_with::<Vec<u64>>(&name, |u| Vec::from_iter_in([round, k], u.heap()))
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
        let report = region.check().unwrap();
        assert!(report.is_sound(), "{report:?}");
    }
}

#[test]
fn there_is_one_root_of_a_name_at_a_time() {
    let dir = Dir::new();
    let region = dir.open();
    let number = |root: &Root<u64>| region.read(|v| *root.get(v));
    let first = region.root_with::<u64>("n", |_| 1).unwrap();
    assert!(matches!(
        region.root::<u64>("n"),
        Err(Error::Root(RootError::InUse { .. }))
    ));
    assert!(matches!(
        region.remove_root("n"),
        Err(Error::Root(RootError::InUse { .. }))
    ));
    let other = region.root_with::<u64>("m", |_| 2).unwrap();
    drop(first);
    let mut first = region.root_with::<u64>("n", |_| 7).unwrap();
    assert_eq!((number(&first), number(&other)), (1, 2));
    region.update(|u| *first.get_mut(u) += 5);
    assert_eq!(number(&first), 6);
    region.update(|u| first.remove(u)).unwrap();
    assert_eq!(region.roots().unwrap().len(), 1);
    assert_eq!(number(&region.root_with::<u64>("n", |_| 9).unwrap()), 9);
}

/// A root is of one region: in an update or a reading of another it says so, before it is looked at.
#[test]
fn a_root_is_used_with_its_own_region_only() {
    let (dir, other) = (Dir::new(), Dir::new());
    let (region, other) = (dir.open(), other.open());
    let mut numbers = region.root::<Vec<u64>>("numbers").unwrap();
    let mut refused = |attempt: &mut dyn FnMut(&mut Root<Vec<'static, u64>>)| {
        let attempt = std::panic::AssertUnwindSafe(|| attempt(&mut numbers));
        let told = *std::panic::catch_unwind(attempt)
            .unwrap_err()
            .downcast::<std::string::String>()
            .unwrap();
        assert!(told.contains("another region"), "{told}");
    };
    refused(&mut |numbers| other.update(|u| numbers.get_mut(u).push(4)));
    refused(&mut |numbers| region.update(|_| other.update(|u| numbers.get_mut(u).clear())));
    refused(&mut |numbers| assert!(other.read(|v| numbers.get(v).is_empty())));
    region.update(|u| numbers.get_mut(u).push(4));
    assert_eq!(region.read(|v| numbers.get(v).to_vec()), [4]);
}

#[test]
fn a_panic_while_it_is_made_leaves_no_root() {
    let dir = Dir::new();
    let region = dir.open();
    let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        region.root_with::<Vec<u8>>("n", |u| {
            panic!("{}", Vec::<u8>::from_iter_in([1], u.heap()).len())
        })
    }));
    assert!(made.is_err());
    assert!(region.roots().unwrap().is_empty());
    assert!(region.root::<Vec<u8>>("n").is_ok());
    assert!(region.check().unwrap().is_sound());
}

#[test]
fn a_root_outlives_the_region_it_is_of() {
    let dir = Dir::new();
    let region = dir.open();
    let numbers = region
        .root_with::<Vec<i32>>("numbers", |u| Vec::from_iter_in(0..1000, u.heap()))
        .unwrap();
    drop(region);
    assert_eq!(numbers.name(), "numbers");
    drop(numbers);
    let region = dir.open();
    let numbers = region.root::<Vec<i32>>("numbers").unwrap();
    assert_eq!(region.read(|v| numbers.get(v).len()), 1000);
}

#[test]
fn another_type_is_refused_and_both_are_shown() {
    let dir = Dir::new();
    let region = dir.open();
    drop(region.root::<HashMap<u64, Order>>("orders").unwrap());
    #[derive(Persist, Debug)]
    #[persist(name = "Order")]
    struct Changed {
        _price: u32,
        _amount: u32,
    }
    let error = region
        .root::<HashMap<u64, Changed>>("orders")
        .unwrap_err()
        .to_string();
    for part in [
        "root \"orders\"",
        "price, u64 (8 bytes)",
        "_price, u32 (4 bytes)",
        "#[persist(version",
        "Keys of maps",
    ] {
        assert!(error.contains(part), "{error}");
    }
    assert!(region.root::<HashMap<u32, Order>>("orders").is_err());
    assert!(region.root::<HashMap<u64, Order>>("orders").is_ok());
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
struct Item<'r> {
    cents: u64,
    name: String<'r>,
}

fn named(old: ItemV2, heap: Heap<'_>) -> Item<'_> {
    Item {
        cents: old.cents,
        name: String::from_in(&format!("item of {}", old.cents), heap),
    }
}

type In<'r, T> = (
    HashMap<'r, u64, T>,
    BTreeMap<'r, u8, Vec<'r, T>>,
    VecDeque<'r, Option<Box<'r, T>>>,
    [T; 2],
);

fn fill<'r, T>(heap: Heap<'r>, make: impl Fn(u32) -> T) -> In<'r, T> {
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
            .root_with::<In<ItemV1>>("items", |u| fill(u.heap(), |cents| ItemV1 { cents }))
            .unwrap(),
    );
    {
        let region = dir.open();
        let items = region
            .root_with::<In<Item>>("items", |_| panic!("it is there"))
            .unwrap();
        region.read(|v| verify_items(items.get(v)));
        let report = region.check().unwrap();
        assert!(report.is_sound(), "{report:?}");
    }
    let region = dir.open();
    assert!(matches!(
        region.root_with::<In<ItemV1>>("items", |u| fill(u.heap(), |cents| ItemV1 { cents })),
        Err(Error::Root(RootError::Layout { .. }))
    ));
    let items = region.root_with::<In<Item>>("items", |_| panic!()).unwrap();
    assert_eq!(region.read(|v| items.get(v).0.len()), 100);
}

fn verify_items(items: &In<'_, Item<'_>>) {
    let good = |item: &Item<'_>, cents: u64| item.cents == cents && item.name == format!("item of {cents}");
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
                    let name = format!("root {thread}");
                    let mut own = region.root::<BTreeMap<u64, String>>(&name).unwrap();
                    for k in 0..3000 {
                        region.update(|u| {
                            let own = own.get_mut(u);
                            own.insert(k % 500, u.string(&format!("{thread} {k}")));
                            if k % 3 == 0 {
                                own.remove(&(k / 2));
                            }
                        });
                    }
                });
            }
        });
        let report = region.check().unwrap();
        assert!(report.is_sound() && report.roots.len() == 4, "{report:?}");
    }
    let region = dir.open();
    let report = region.check().unwrap();
    assert!(report.is_sound() && report.roots.len() == 4, "{report:?}");
}

#[test]
fn roots_made_in_different_epochs_are_all_there_again() {
    const ROOTS: u64 = 40;
    let dir = Dir::new();
    let region = dir.open();
    for number in 0..ROOTS {
        region
            .root_with::<u64>(&format!("root {number}"), |_| number)
            .unwrap();
        region.checkpoint().unwrap();
    }
    region.close().unwrap();
    let region = dir.open();
    for number in 0..ROOTS {
        let root = region.root::<u64>(&format!("root {number}")).unwrap();
        assert_eq!(region.read(|v| *root.get(v)), number);
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
                    let mut own = region.root::<BTreeMap<u32, Vec<u32>>>(&name).unwrap();
                    for k in 0..50 {
                        region.update(|u| drop(own.get_mut(u).insert(k, Vec::from_iter_in(0..k, u.heap()))));
                    }
                    assert_eq!(region.read(|v| own.get(v).len()), 50);
                    if round % 2 == 0 {
                        region.update(|u| own.remove(u)).unwrap();
                    } else {
                        drop(own);
                        region.remove_root(&name).unwrap();
                    }
                }
            });
        }
    });
    let report = region.check().unwrap();
    assert!(report.is_sound() && report.roots.is_empty(), "{report:?}");
    assert_eq!(report.stats.used_blocks, 2);
}

/// Takes all memory of the region's heap, in blocks of every size.
fn fill_up(region: &Region) -> Root<Vec<'static, Vec<'static, u8>>> {
    let mut filler = region.root::<Vec<Vec<u8>>>("filler").unwrap();
    region.update(|u| {
        let blocks = filler.get_mut(u);
        blocks.reserve(1 << 17);
        for bytes in std::iter::once(1 << 20).chain((1..=256).rev().map(|n| n * 16)) {
            let mut block = u.empty::<Vec<u8>>();
            while block.try_reserve_exact(bytes).is_ok() {
                blocks.push(std::mem::replace(&mut block, u.empty::<Vec<u8>>()));
            }
        }
    });
    filler
}

/// As `Named`, before it had a second field.
#[derive(Persist, PartialEq, Debug)]
#[persist(version = 1, name = "Named")]
struct NamedV1 {
    number: u64,
}

#[derive(Persist, PartialEq, Debug)]
#[persist(version = 2, from = NamedV1, with = second_field)]
struct Named {
    number: u64,
    second: [u64; 40],
}

fn second_field(old: NamedV1, _: Heap<'_>) -> Named {
    let number = old.number;
    let second = [number; 40];
    Named { number, second }
}

#[test]
fn without_memory_no_root_is_made_or_changed() {
    let dir = Dir::new();
    let open = || Region::options().bound(48 << 20).open(dir.file()).unwrap();
    {
        let region = open();
        region
            .root_with::<NamedV1>("named", |_| NamedV1 { number: 5 })
            .unwrap();
        let long = "long name ".repeat(100);
        let mut filler = fill_up(&region);
        let full = region.root::<u64>(&long).unwrap_err();
        assert!(matches!(full, Error::Root(RootError::Heap(_))), "{full}");
        let full = region.root::<Named>("named").unwrap_err();
        assert!(matches!(full, Error::Root(RootError::Heap(_))), "{full}");
        let names: std::vec::Vec<_> = region
            .roots()
            .unwrap()
            .into_iter()
            .map(|root| root.name)
            .collect();
        assert_eq!(names, ["named", "filler"]);
        region.update(|u| filler.get_mut(u).clear());
        region.root::<u64>(&long).unwrap();
        drop(filler);
        region.close().unwrap();
    }
    let region = open();
    let named = region.root::<Named>("named").unwrap();
    let second = [5; 40];
    region.read(|v| assert_eq!(*named.get(v), Named { number: 5, second }));
    assert!(region.check().unwrap().is_sound());
}

/// A `Drop` that panics is the program's: the block of the root is freed all the same.
#[test]
fn a_root_whose_drop_panics_leaks_no_block() {
    #[derive(Persist)]
    struct Loud {
        number: u64,
    }
    impl Drop for Loud {
        fn drop(&mut self) {
            assert!(self.number != 7, "on purpose");
        }
    }
    let dir = Dir::new();
    let region = dir.open();
    let loud = region.root_with::<Loud>("loud", |_| Loud { number: 7 }).unwrap();
    let removed = std::panic::AssertUnwindSafe(|| region.update(|u| loud.remove(u)));
    assert!(std::panic::catch_unwind(removed).is_err());
    let report = region.check().unwrap();
    assert!(report.is_sound() && region.roots().unwrap().is_empty());
    assert_eq!(report.leaked_blocks, 0, "{:?}", report.leaks);
}

/// Whatever was made can be opened again and removed.
#[test]
fn a_type_nested_too_deep_is_refused_before_anything_is_made() {
    type T4<T> = ((((T, u8), u8), u8), u8);
    type T20<T> = T4<T4<T4<T4<T4<T>>>>>;
    type T96<T> = T20<T20<T20<T20<T4<T4<T4<T4<T>>>>>>>>;
    type Deepest = T96<(((u8, u8), u8), u8)>; // 100 types one in the other
    let dir = Dir::new();
    let region = dir.open();
    let refused = region.root_with::<(Deepest, u8)>("deep", |_| panic!("made for nothing"));
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("more than 100 types one in the other"),
        "{refused}"
    );
    assert!(refused.contains("`Box`"), "{refused}");
    assert!(region.roots().unwrap().is_empty());
    drop(region.root::<Deepest>("deep").unwrap());
    drop(region.root::<Option<Box<(Deepest, u8)>>>("boxed").err());
    assert!(region.root::<Deepest>("deep").is_ok());
    region.remove_root("deep").unwrap();
}

/// A program may call a type as an integer is called.
#[test]
fn the_tag_of_an_enum_is_the_integer_and_no_type_of_that_name() {
    #[allow(non_camel_case_types)]
    type u8 = u64;
    #[derive(Persist, PartialEq, Debug)]
    #[repr(u8)]
    enum Shape {
        Square(u16, u16),
        Point,
    }
    let _: u8 = 1 << 40;
    let dir = Dir::new();
    let region = dir.open();
    let shape = region
        .root_with::<Shape>("shape", |_| Shape::Square(1, 2))
        .unwrap();
    drop(shape);
    let shape = region.root_with::<Shape>("shape", |_| Shape::Point).unwrap();
    assert!(region.read(|v| shape.get(v) == &Shape::Square(1, 2)));
}
