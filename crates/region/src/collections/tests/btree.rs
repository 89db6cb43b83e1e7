use super::{Census, Counted, Watched, cases, panics};
use crate::collections::btree::Entry;
use crate::collections::{BTreeMap, BTreeSet, Box};
use crate::heap::Heap;
use crate::window::Window;
use proptest::prelude::*;
use std::collections::btree_map;
use std::ops::Bound;

#[derive(Clone, Debug)]
enum Op {
    Insert(u16, u32),
    Remove(u16),
    RemoveRun(u16, u16),
    Get(u16),
    Change(u16, u32),
    Entry(u16, u32),
    EntryRemove(u16),
    ChangeAll(u32),
    Retain(u32),
    Extend(std::vec::Vec<(u16, u32)>),
    Run(u16, u16),
    Range(u16, u16, u8, u8),
    RangeMut(u16, u16, u32),
    Pop(bool),
    IntoIter(usize, usize),
    SplitOff(u16),
    Append(std::vec::Vec<(u16, u32)>),
    CloneIt,
    Clear,
}

fn op() -> impl Strategy<Value = Op> {
    let (key, value) = (|| 0_u16..500, || 0_u32..50);
    prop_oneof![
        10 => (key(), value()).prop_map(|(k, v)| Op::Insert(k, v)),
        6 => key().prop_map(Op::Remove),
        3 => (key(), 0_u16..200).prop_map(|(k, n)| Op::RemoveRun(k, n)),
        3 => key().prop_map(Op::Get),
        2 => (key(), value()).prop_map(|(k, v)| Op::Change(k, v)),
        3 => (key(), value()).prop_map(|(k, v)| Op::Entry(k, v)),
        2 => key().prop_map(Op::EntryRemove),
        1 => value().prop_map(Op::ChangeAll),
        1 => value().prop_map(Op::Retain),
        3 => prop::collection::vec((key(), value()), 0..100).prop_map(Op::Extend),
        3 => (key(), 0_u16..300).prop_map(|(k, n)| Op::Run(k, n)),
        4 => (key(), key(), 0_u8..3, 0_u8..3).prop_map(|(a, b, c, d)| Op::Range(a, b, c, d)),
        1 => (key(), key(), value()).prop_map(|(a, b, v)| Op::RangeMut(a, b, v)),
        2 => any::<bool>().prop_map(Op::Pop),
        1 => (0_usize..20, 0_usize..20).prop_map(|(a, b)| Op::IntoIter(a, b)),
        1 => key().prop_map(Op::SplitOff),
        1 => prop::collection::vec((key(), value()), 0..100).prop_map(Op::Append),
        1 => Just(Op::CloneIt),
        1 => Just(Op::Clear),
    ]
}

type Theirs<K, V> = std::collections::BTreeMap<K, V>;

trait Part: Ord + Clone + std::fmt::Debug {}
impl<T: Ord + Clone + std::fmt::Debug> Part for T {}

fn run<K: Part, V: Part>(ops: &[Op], key: impl Fn(u16, &Census) -> K, value: impl Fn(u32, &Census) -> V) {
    let (mut watched, census) = (Watched::new(), Census::default());
    let heap = watched.heap;
    {
        let mut ours = Box::new_in(BTreeMap::<K, V>::new_in(heap), heap);
        let mut theirs = Theirs::<K, V>::new();
        for op in ops {
            step(
                op,
                &mut ours,
                &mut theirs,
                |k| key(k, &census),
                |v| value(v, &census),
            );
            assert_eq!(ours.len(), theirs.len());
            assert!(ours.iter().eq(theirs.iter()), "after {op:?}: {ours:?} {theirs:?}");
            assert!(ours.iter().rev().eq(theirs.iter().rev()), "after {op:?}");
            watched.check();
        }
    }
    assert_eq!(census.alive(), 0);
    watched.assert_empty();
}

fn step<K: Part, V: Part>(
    op: &Op,
    ours: &mut Box<BTreeMap<K, V>>,
    theirs: &mut Theirs<K, V>,
    key: impl Fn(u16) -> K,
    value: impl Fn(u32) -> V,
) {
    let heap = ours.heap();
    match op {
        Op::Insert(k, v) => assert_eq!(ours.insert(key(*k), value(*v)), theirs.insert(key(*k), value(*v))),
        Op::Remove(k) => assert_eq!(ours.remove_entry(&key(*k)), theirs.remove_entry(&key(*k))),
        Op::RemoveRun(k, n) => {
            for k in *k..k + n {
                assert_eq!(ours.remove(&key(k)), theirs.remove(&key(k)));
            }
        }
        Op::Get(k) => {
            assert_eq!(ours.get_key_value(&key(*k)), theirs.get_key_value(&key(*k)));
            assert_eq!(ours.first_key_value(), theirs.first_key_value());
            assert_eq!(ours.last_key_value(), theirs.last_key_value());
        }
        Op::Change(k, v) => {
            assert_eq!(ours.get_mut(&key(*k)), theirs.get_mut(&key(*k)));
            ours.get_mut(&key(*k))
                .into_iter()
                .for_each(|one| *one = value(*v));
            theirs
                .get_mut(&key(*k))
                .into_iter()
                .for_each(|one| *one = value(*v));
        }
        Op::Entry(k, v) => {
            *ours
                .entry(key(*k))
                .and_modify(|one| *one = value(1))
                .or_insert_with_key(|_| value(2)) = value(*v);
            *theirs
                .entry(key(*k))
                .and_modify(|one| *one = value(1))
                .or_insert_with_key(|_| value(2)) = value(*v);
        }
        Op::EntryRemove(k) => match (ours.entry(key(*k)), theirs.entry(key(*k))) {
            (Entry::Occupied(mine), btree_map::Entry::Occupied(yours)) => {
                assert_eq!((mine.key(), mine.get()), (yours.key(), yours.get()));
                assert_eq!(mine.remove_entry(), yours.remove_entry());
            }
            (Entry::Vacant(mine), btree_map::Entry::Vacant(yours)) => {
                assert_eq!(mine.into_key(), yours.into_key())
            }
            (mine, yours) => panic!("{mine:?} {yours:?}"),
        },
        Op::ChangeAll(v) => {
            ours.values_mut().for_each(|one| *one = value(*v));
            theirs.values_mut().for_each(|one| *one = value(*v));
        }
        Op::Retain(v) => {
            let limit = value(*v);
            ours.retain(|_, one| *one < limit);
            theirs.retain(|_, one| *one < limit);
        }
        Op::Extend(all) => {
            ours.extend(all.iter().map(|(k, v)| (key(*k), value(*v))));
            theirs.extend(all.iter().map(|(k, v)| (key(*k), value(*v))));
        }
        Op::Run(k, n) => {
            ours.extend((*k..k + n).map(|k| (key(k), value(3))));
            theirs.extend((*k..k + n).map(|k| (key(k), value(3))));
        }
        Op::Range(a, b, c, d) => {
            let (a, b) = (key(*a).min(key(*b)), key(*a).max(key(*b)));
            let bound = |key: K, kind: u8| match kind {
                0 => Bound::Unbounded,
                1 => Bound::Included(key),
                _ => Bound::Excluded(key),
            };
            if a != b || (*c, *d) != (2, 2) {
                let range = (bound(a, *c), bound(b, *d));
                assert!(ours.range(range.clone()).eq(theirs.range(range.clone())));
                assert!(
                    ours.range(range.clone())
                        .rev()
                        .eq(theirs.range(range.clone()).rev())
                );
                let (mut mine, mut yours) = (ours.range(range.clone()), theirs.range(range));
                for turn in 0..50 {
                    match turn % 3 {
                        0 => assert_eq!(mine.next_back(), yours.next_back()),
                        _ => assert_eq!(mine.next(), yours.next()),
                    }
                }
            }
        }
        Op::RangeMut(a, b, v) => {
            let (a, b) = (key(*a).min(key(*b)), key(*a).max(key(*b)));
            ours.range_mut(&a..=&b).for_each(|(_, one)| *one = value(*v));
            theirs.range_mut(&a..=&b).for_each(|(_, one)| *one = value(*v));
        }
        Op::Pop(first) => match first {
            true => assert_eq!(ours.pop_first(), theirs.pop_first()),
            false => assert_eq!(ours.pop_last(), theirs.pop_last()),
        },
        Op::IntoIter(front, back) => {
            let (old, yours) = (
                std::mem::replace(&mut **ours, BTreeMap::new_in(heap)),
                std::mem::take(theirs),
            );
            let (mut old, mut yours) = (old.into_iter(), yours.into_iter());
            for _ in 0..*front {
                assert_eq!(old.next(), yours.next());
            }
            for _ in 0..*back {
                assert_eq!(old.next_back(), yours.next_back());
            }
            assert_eq!(old.len(), yours.len());
        }
        Op::SplitOff(k) => {
            let (rest, yours) = (ours.split_off(&key(*k)), theirs.split_off(&key(*k)));
            assert!(rest.iter().eq(yours.iter()));
        }
        Op::Append(all) => {
            let mut more = BTreeMap::from_iter_in(all.iter().map(|(k, v)| (key(*k), value(*v))), heap);
            ours.append(&mut more);
            assert!(more.is_empty());
            theirs.append(&mut all.iter().map(|(k, v)| (key(*k), value(*v))).collect());
        }
        Op::CloneIt => {
            let clone = BTreeMap::clone(ours);
            assert_eq!(clone, **ours);
            **ours = clone;
        }
        Op::Clear => (ours.clear(), theirs.clear()).0,
    }
}

proptest! {
    #![proptest_config(cases(60))]
    #[test]
    fn as_std_with_numbers(ops in prop::collection::vec(op(), 1..100)) {
        run(&ops, |k, _| k, |v, _| v);
    }
    #[test]
    fn as_std_with_large_values(ops in prop::collection::vec(op(), 1..50)) {
        run(&ops, |k, _| [u64::from(k); 9], |v, _| [u64::from(v); 30]);
    }
    #[test]
    fn as_std_with_nothing(ops in prop::collection::vec(op(), 1..50)) {
        run(&ops, |k, _| k, |_, _| ());
        run(&ops, |_, _| (), |_, _| ());
    }
    #[test]
    fn as_std_with_drops_counted(ops in prop::collection::vec(op(), 1..40)) {
        run(&ops, |k, c| c.make(u64::from(k) + 1), |v, c| c.make(u64::from(v) + 1000));
    }
    #[test]
    fn sets_as_std(a in prop::collection::vec(0_u8..60, 0..60), b in prop::collection::vec(0_u8..60, 0..60)) {
        let mut watched = Watched::new();
        {
            let heap = watched.heap;
            let (mut ours, other) = (BTreeSet::from_iter_in(a.clone(), heap), BTreeSet::from_iter_in(b.clone(), heap));
            let (mut yours, theirs): (std::collections::BTreeSet<_>, std::collections::BTreeSet<_>) =
                (a.into_iter().collect(), b.clone().into_iter().collect());
            assert!(ours.union(&other).eq(yours.union(&theirs)));
            assert!(ours.intersection(&other).eq(yours.intersection(&theirs)));
            assert!(ours.difference(&other).eq(yours.difference(&theirs)));
            assert!(ours.symmetric_difference(&other).eq(yours.symmetric_difference(&theirs)));
            assert_eq!(ours.is_subset(&other), yours.is_subset(&theirs));
            assert_eq!(ours.is_disjoint(&other), yours.is_disjoint(&theirs));
            for value in b {
                assert_eq!(ours.remove(&value), yours.remove(&value));
                assert_eq!(ours.insert(value / 2), yours.insert(value / 2));
                assert_eq!((ours.first(), ours.last()), (yours.first(), yours.last()));
                assert!(ours.range(value..).eq(yours.range(value..)));
            }
            ours.retain(|v| v % 3 == 0);
            yours.retain(|v| v % 3 == 0);
            assert!(ours.into_iter().eq(yours));
        }
        watched.check();
        watched.assert_empty();
    }
}

#[test]
fn a_panic_in_a_drop_or_a_comparison_loses_nothing_twice() {
    type Map = BTreeMap<'static, Counted, Counted>;
    type Change = fn(&mut Map, &Census);
    let changes: [Change; 7] = [
        |m, _| m.clear(),
        |m, _| m.retain(|k, _| k.id % 2 == 0),
        |m, _| drop(m.clone()),
        |m, c| drop(m.insert(c.make(5), c.make(77))),
        |m, c| drop(m.remove(&c.make(5))),
        |m, c| assert!(m.range(c.make(5)..).next().is_some()),
        |m, _| {
            drop(
                std::mem::replace(m, BTreeMap::new_in(m.heap()))
                    .into_iter()
                    .nth(1),
            )
        },
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let (mut watched, census) = (Watched::new(), Census::default());
        let mut map = BTreeMap::new_in(watched.heap);
        for id in 1..=30 {
            map.insert(census.make(id), census.make(id + 100));
        }
        census.panic_at(5);
        panics(|| change(&mut map, &census));
        census.panic_at(0);
        watched.check();
        assert!(map.iter().all(|(k, v)| k.id + 100 == v.id));
        drop(map);
        // A panic while all are dropped leaks the others.
        assert!(census.alive() <= 60, "change {number} leaves {}", census.alive());
        watched.assert_empty();
    }
}

#[test]
fn no_memory_for_a_split_changes_nothing() {
    let mut watched = Watched::new();
    watched.window.place().set_bound(crate::zone::STEP);
    let mut map = BTreeMap::<u64, [u64; 200]>::new_in(watched.heap);
    let full = (0..)
        .find(|&key| map.try_insert(key, [key; 200]).is_err())
        .unwrap();
    assert_eq!(map.len() as u64, full);
    assert!(map.iter().all(|(key, value)| *value == [*key; 200]));
    watched.check();
    panics(|| assert!(map.insert(full, [0; 200]).is_none()));
    assert_eq!(map.remove(&3), Some([3; 200]));
    drop(map);
    watched.assert_empty();
}

/// Trees of all sizes behind each other, and sorted entries with some out of order among them.
#[test]
fn whole_trees_and_sorted_entries_are_put_behind_each_other() {
    let sizes = match cfg!(miri) {
        true => &[0, 1, 12, 70][..],
        false => &[
            0, 1, 2, 5, 6, 11, 12, 13, 40, 71, 72, 73, 143, 144, 500, 863, 864, 2000,
        ],
    };
    let mut watched = Watched::new();
    let census = Census::default();
    for &(mut before) in sizes {
        for &behind in sizes {
            let heap = watched.heap;
            let all = |range: std::ops::Range<u64>| range.map(|n| (n, census.make(n + 1)));
            let mut left = Box::new_in(BTreeMap::from_iter_in(all(0..before), heap), heap);
            // Grown one by one, its nodes are half as full.
            let mut right = Box::new_in(BTreeMap::new_in(heap), heap);
            all(before..before + behind).for_each(|(n, value)| drop(right.insert(n, value)));
            if behind % 2 == 0 {
                left.append(&mut right);
            } else {
                right.append(&mut left);
                std::mem::swap(&mut left, &mut right);
            }
            assert!(right.is_empty() && left.len() as u64 == before + behind);
            assert!(
                left.iter()
                    .map(|(&n, value)| (n, value.id))
                    .eq((0..before + behind).map(|n| (n, n + 1)))
            );
            left.assert_shape();
            let rest = left.split_off(&(behind / 2));
            left.assert_shape();
            rest.assert_shape();
            drop(rest);
            while before > 0 && left.len() as u64 > before / 2 {
                before -= 1;
                left.pop_first();
            }
            left.assert_shape();
            watched.check();
        }
    }
    assert_eq!(census.alive(), 0);
    watched.assert_empty();
}

#[test]
fn nearly_sorted_entries_fill_a_tree() {
    let mut watched = Watched::new();
    let seed = twinpage_campaign::seed();
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..if cfg!(miri) { 3 } else { 60 } {
        let heap = watched.heap;
        let (mut ours, mut theirs) = (
            Box::new_in(BTreeMap::new_in(heap), heap),
            std::collections::BTreeMap::new(),
        );
        for _ in 0..3 {
            let start = theirs.last_key_value().map_or(0, |(&n, _)| n);
            let mut entries = std::vec::Vec::<(u64, u64)>::new();
            for n in 0..random.u64(..600) {
                let out_of_order = random.u32(..30) < round % 4;
                let key = if out_of_order {
                    random.u64(..start + n + 1)
                } else {
                    start + n
                };
                entries.push((key, random.u64(..)));
            }
            ours.extend(entries.iter().copied());
            theirs.extend(entries);
            assert!(ours.iter().eq(&theirs), "seed {seed}");
            ours.assert_shape();
            watched.check();
        }
        // What panics amid it leaves a tree.
        panics(|| {
            ours.extend(
                (0..)
                    .map(|n| (1 << 40 | n, n))
                    .inspect(|(_, n)| assert!(*n < 100)),
            )
        });
        assert_eq!(ours.len(), theirs.len() + 100);
        ours.assert_shape();
        watched.check();
    }
    watched.assert_empty();
}

#[test]
fn a_range_that_ends_before_it_begins_is_as_in_std() {
    use std::ops::Bound::{Excluded, Included};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    let back = (Included(4), Included(2));
    let window = Window::volatile().unwrap();
    // SAFETY: nothing of a region or of another heap is in sight.
    let heap = unsafe { Heap::create(&window, 1) }.unwrap();
    let fill = || [(1_u8, 1_u8), (5, 5)];
    let mut theirs = std::collections::BTreeMap::from(fill());
    let mut ours = BTreeMap::from_iter_in(fill(), heap);
    assert_eq!(theirs.extract_if(back, |_, _| true).count(), 0);
    assert_eq!(ours.extract_if(back, |_, _| true).count(), 0);
    let none = (Excluded(1), Excluded(1));
    assert_eq!(ours.extract_if(none, |_, _| true).count(), 0);
    let mut set = BTreeSet::from_iter_in([1_u8, 5], heap);
    assert_eq!(set.extract_if(back, |_| true).count(), 0);
    assert_eq!((ours.len(), set.len()), (2, 2));
    assert!(catch_unwind(AssertUnwindSafe(|| theirs.range(back).count())).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| ours.range(back).count())).is_err());
    let mut empty = BTreeMap::<u8, u8>::new_in(heap);
    assert_eq!(std::collections::BTreeMap::<u8, u8>::new().range(back).count(), 0);
    assert_eq!((empty.range(back).count(), empty.range_mut(none).count()), (0, 0));
}
