use super::{Census, Counted, Watched, cases, panics};
use crate::collections::hash::Entry;
use crate::collections::hash::table::directory::PLACES;
use crate::collections::{Box, HashMap, HashSet};
use proptest::prelude::*;
use std::collections::hash_map;
use twinpage_core::buffer::Buffer;

#[derive(Clone, Debug)]
enum Op {
    Insert(u16, u32),
    Remove(u16),
    Get(u16),
    Change(u16, u32),
    Entry(u16, u32),
    EntryRemove(u16),
    EntryModify(u16, u32),
    ChangeAll(u32),
    Retain(u32),
    Extend(std::vec::Vec<(u16, u32)>),
    Drain(usize),
    IntoIter(usize),
    CloneIt,
    Reserve(usize),
    ShrinkToFit,
    Clear,
}

fn op() -> impl Strategy<Value = Op> {
    // Few keys, so that they meet.
    let (key, value) = (|| 0_u16..200, || 0_u32..50);
    prop_oneof![
        12 => (key(), value()).prop_map(|(k, v)| Op::Insert(k, v)),
        8 => key().prop_map(Op::Remove),
        3 => key().prop_map(Op::Get),
        3 => (key(), value()).prop_map(|(k, v)| Op::Change(k, v)),
        3 => (key(), value()).prop_map(|(k, v)| Op::Entry(k, v)),
        2 => key().prop_map(Op::EntryRemove),
        2 => (key(), value()).prop_map(|(k, v)| Op::EntryModify(k, v)),
        1 => value().prop_map(Op::ChangeAll),
        1 => value().prop_map(Op::Retain),
        2 => prop::collection::vec((key(), value()), 0..60).prop_map(Op::Extend),
        1 => (0_usize..20).prop_map(Op::Drain),
        1 => (0_usize..20).prop_map(Op::IntoIter),
        1 => Just(Op::CloneIt),
        1 => (0_usize..200).prop_map(Op::Reserve),
        1 => Just(Op::ShrinkToFit),
        1 => Just(Op::Clear),
    ]
}

type Theirs<K, V> = std::collections::HashMap<K, V>;

fn run<K, V>(ops: &[Op], key: impl Fn(u16, &Census) -> K, value: impl Fn(u32, &Census) -> V)
where
    K: std::hash::Hash + Eq + Ord + Clone + std::fmt::Debug,
    V: PartialEq + PartialOrd + Clone + std::fmt::Debug,
{
    let (mut watched, census) = (Watched::new(), Census::default());
    let heap = watched.heap;
    {
        let mut ours = Box::new_in(HashMap::<K, V>::new_in(heap), heap);
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
            assert!(
                ours.iter().all(|(k, v)| theirs.get(k) == Some(v)),
                "{ours:?} {theirs:?}"
            );
            assert_eq!(ours.iter().count(), theirs.len());
            assert!(theirs.keys().all(|k| ours.contains_key(k)));
            watched.check();
        }
    }
    assert_eq!(census.alive(), 0);
    watched.assert_empty();
}

fn step<K, V>(
    op: &Op,
    ours: &mut Box<HashMap<K, V>>,
    theirs: &mut Theirs<K, V>,
    key: impl Fn(u16) -> K,
    value: impl Fn(u32) -> V,
) where
    K: std::hash::Hash + Eq + Ord + Clone + std::fmt::Debug,
    V: PartialEq + PartialOrd + Clone + std::fmt::Debug,
{
    let heap = ours.heap();
    match op {
        Op::Insert(k, v) => assert_eq!(ours.insert(key(*k), value(*v)), theirs.insert(key(*k), value(*v))),
        Op::Remove(k) => assert_eq!(ours.remove_entry(&key(*k)), theirs.remove_entry(&key(*k))),
        Op::Get(k) => assert_eq!(ours.get_key_value(&key(*k)), theirs.get_key_value(&key(*k))),
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
            let (mine, yours) = (ours.entry(key(*k)), theirs.entry(key(*k)));
            assert_eq!(mine.or_insert(value(*v)), yours.or_insert(value(*v)));
        }
        Op::EntryRemove(k) => match (ours.entry(key(*k)), theirs.entry(key(*k))) {
            (Entry::Occupied(mine), hash_map::Entry::Occupied(yours)) => {
                assert_eq!(mine.remove_entry(), yours.remove_entry());
            }
            (Entry::Vacant(mine), hash_map::Entry::Vacant(yours)) => {
                assert_eq!(mine.into_key(), yours.into_key())
            }
            (mine, yours) => panic!("{mine:?} {yours:?}"),
        },
        Op::EntryModify(k, v) => {
            *ours
                .entry(key(*k))
                .and_modify(|one| *one = value(1))
                .or_insert_with_key(|_| value(*v)) = value(*v);
            *theirs
                .entry(key(*k))
                .and_modify(|one| *one = value(1))
                .or_insert_with_key(|_| value(*v)) = value(*v);
        }
        Op::ChangeAll(v) => {
            ours.values_mut().for_each(|one| *one = value(*v));
            theirs.iter_mut().for_each(|(_, one)| *one = value(*v));
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
        Op::Drain(n) => {
            let all = theirs.len();
            let mut drain = ours.drain();
            assert_eq!(drain.len(), all);
            for (k, v) in drain.by_ref().take(*n) {
                assert_eq!(theirs.remove(&k), Some(v));
            }
            drop(drain);
            theirs.clear();
            assert!(ours.is_empty());
        }
        Op::IntoIter(n) => {
            let old = std::mem::replace(&mut **ours, HashMap::new_in(heap));
            assert!(
                old.into_iter()
                    .take(*n)
                    .all(|(k, v)| theirs.remove(&k) == Some(v))
            );
            theirs.clear();
        }
        Op::CloneIt => {
            let clone = HashMap::clone(ours);
            assert_eq!(clone, **ours);
            **ours = clone;
        }
        Op::Reserve(n) => {
            ours.reserve(*n);
            assert!(ours.capacity() >= ours.len() + n);
        }
        Op::ShrinkToFit => ours.shrink_to_fit(),
        Op::Clear => (ours.clear(), theirs.clear()).0,
    }
}

proptest! {
    #![proptest_config(cases(60))]
    /// Most of these tables have a directory, of small segments.
    #[test]
    fn as_std_in_segments(ops in prop::collection::vec(op(), 1..100), places in prop::sample::select(vec![16, 32])) {
        PLACES.set(Some(places));
        run(&ops, |k, _| k, |v, _| v);
        run(&ops, |k, c| c.make(u64::from(k) + 1), |v, c| c.make(u64::from(v) + 1000));
        // What collides in a segment makes it larger.
        run(&ops, |k, _| Same(k), |v, _| v);
        run(&ops, |k, _| Few(k), |v, _| [u64::from(v); 20]);
        PLACES.set(None);
    }
    #[test]
    fn as_std_with_numbers(ops in prop::collection::vec(op(), 1..100)) {
        run(&ops, |k, _| k, |v, _| v);
    }
    #[test]
    fn as_std_with_large_values(ops in prop::collection::vec(op(), 1..60)) {
        run(&ops, |k, _| u64::from(k) << 40, |v, _| [u64::from(v); 30]);
    }
    #[test]
    fn as_std_with_nothing(ops in prop::collection::vec(op(), 1..60)) {
        run(&ops, |_, _| (), |_, _| ());
    }
    #[test]
    fn as_std_with_drops_counted(ops in prop::collection::vec(op(), 1..60)) {
        run(&ops, |k, c| c.make(u64::from(k) + 1), |v, c| c.make(u64::from(v) + 1000));
    }
    /// All keys collide: what is deleted must not hide what is not.
    #[test]
    fn as_std_when_all_collide(ops in prop::collection::vec(op(), 1..60)) {
        run(&ops, |k, _| Same(k), |v, _| v);
    }
    #[test]
    fn sets_as_std(a in prop::collection::vec(0_u8..60, 0..60), b in prop::collection::vec(0_u8..60, 0..60)) {
        let mut watched = Watched::new();
        {
            let heap = watched.heap;
            let (mut ours, other) = (HashSet::from_iter_in(a.clone(), heap), HashSet::from_iter_in(b.clone(), heap));
            let (mut yours, other_of_std): (std::collections::HashSet<_>, std::collections::HashSet<_>) =
                (a.into_iter().collect(), b.clone().into_iter().collect());
            let sorted = |mut v: std::vec::Vec<u8>| { v.sort_unstable(); v };
            assert_eq!(sorted(ours.union(&other).copied().collect()), sorted(yours.union(&other_of_std).copied().collect()));
            assert_eq!(sorted(ours.intersection(&other).copied().collect()), sorted(yours.intersection(&other_of_std).copied().collect()));
            assert_eq!(sorted(ours.difference(&other).copied().collect()), sorted(yours.difference(&other_of_std).copied().collect()));
            assert_eq!(sorted(ours.symmetric_difference(&other).copied().collect()), sorted(yours.symmetric_difference(&other_of_std).copied().collect()));
            assert_eq!(ours.is_subset(&other), yours.is_subset(&other_of_std));
            assert_eq!(ours.is_superset(&other), yours.is_superset(&other_of_std));
            assert_eq!(ours.is_disjoint(&other), yours.is_disjoint(&other_of_std));
            for value in b {
                assert_eq!(ours.remove(&value), yours.remove(&value));
                assert_eq!(ours.insert(value / 2), yours.insert(value / 2));
                assert_eq!(ours.replace(value / 2), yours.replace(value / 2));
                assert_eq!(ours.get(&value), yours.get(&value));
            }
            ours.retain(|v| v % 3 == 0);
            yours.retain(|v| v % 3 == 0);
            assert_eq!(sorted(ours.drain().collect()), sorted(yours.drain().collect()));
        }
        watched.check();
        watched.assert_empty();
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Same(u16);

impl std::hash::Hash for Same {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_u8(0);
    }
}

/// Eight hashes for all.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Few(u16);

impl std::hash::Hash for Few {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_u16(self.0 % 8);
    }
}

#[test]
fn a_panic_in_a_drop_a_hash_or_a_comparison_loses_nothing_twice() {
    type Map = HashMap<'static, Counted, Counted>;
    type Change = fn(&mut Map, &Census);
    let changes: [Change; 10] = [
        |m, _| m.clear(),
        |m, _| drop(m.drain()),
        |m, _| m.retain(|k, _| k.id % 2 == 0),
        |m, _| drop(m.clone()),
        |m, _| m.reserve(1000),
        |m, _| m.shrink_to_fit(),
        |m, c| drop(m.insert(c.make(5), c.make(77))),
        |m, c| drop(m.remove(&c.make(5))),
        |m, _| drop(std::mem::replace(m, HashMap::new_in(m.heap()))),
        |m, _| drop(std::mem::replace(m, HashMap::new_in(m.heap())).into_iter().nth(1)),
    ];
    let numbered = (0..).zip(changes).map(|(number, change)| (number, change, None));
    let in_segments = (0..)
        .zip(changes)
        .map(|(number, change)| (number, change, Some(16)));
    for (number, change, places) in numbered.chain(in_segments) {
        PLACES.set(places);
        let (mut watched, census) = (Watched::new(), Census::default());
        let mut map = HashMap::with_capacity_in(100, watched.heap);
        for id in 1..=10 {
            map.insert(census.make(id), census.make(id + 100));
        }
        census.panic_at(5);
        panics(|| change(&mut map, &census));
        census.panic_at(0);
        watched.check();
        assert!(
            map.iter()
                .all(|(k, v)| k.id + 100 == v.id && (1..=10).contains(&k.id))
        );
        for id in 1..=10 {
            map.insert(census.make(id), census.make(id + 100));
        }
        assert_eq!(map.len(), 10);
        drop(map);
        // A panic while all are dropped leaks the others, as with `std`'s map.
        assert!(census.alive() <= 20, "change {number} leaves {}", census.alive());
        watched.assert_empty();
    }
}

/// A table of earlier builds is one segment, however large: it is read, changed, and divided when it grows.
#[test]
fn a_table_of_one_large_segment_goes_on() {
    let mut watched = Watched::new();
    PLACES.set(Some(1 << 20));
    let mut map = HashMap::<u64, u64>::from_iter_in((0..5000).map(|key| (key, key)), watched.heap);
    PLACES.set(Some(64));
    for key in 0..20_000 {
        assert_eq!(map.get(&key), (key < 5000).then_some(&key));
        if key % 7 == 0 {
            map.remove(&key);
        }
        map.insert(key, key);
    }
    watched.check();
    assert!(map.len() == 20_000 && map.iter().count() == 20_000);
    assert!((0..20_000).all(|key| map[&key] == key));
    map.clear();
    assert_eq!(map.iter().count(), 0);
    drop(map);
    PLACES.set(None);
    watched.assert_empty();
}

/// The memory ends while a segment is split: what was there is there.
#[test]
fn without_memory_a_segment_stays() {
    let mut watched = Watched::new();
    PLACES.set(Some(64));
    watched.window.place().set_bound(4 << 20);
    let mut map = HashMap::<u64, [u64; 20]>::new_in(watched.heap);
    let mut key = 0;
    let full = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        loop {
            map.insert(key, [key; 20]);
            key += 1;
        }
    }));
    assert!(full.is_err() && key > 1000);
    watched.check();
    assert!(map.len() as u64 == key && (0..key).all(|key| map[&key] == [key; 20]));
    assert!(map.try_reserve(100_000).is_err());
    watched.check();
    assert!((0..key).all(|key| map[&key] == [key; 20]));
    drop(map);
    PLACES.set(None);
    watched.assert_empty();
}

#[test]
fn an_insertion_writes_few_lines() {
    let mut watched = Watched::new();
    let mut map = HashMap::<u64, u64>::with_capacity_in(100_000, watched.heap);
    map.extend((0..50_000).map(|key| (key, key)));
    watched.check();
    let inserted = 300;
    map.extend((0..inserted).map(|key| (key + 1_000_000, key)));
    let mut buffer = Buffer::default();
    let (mut frozen, mut lines) = (crate::marks::cut(watched.window.place()), 0);
    while let Some((_, marked)) = frozen.next_page(&mut buffer) {
        lines += u64::from(marked.count_ones());
    }
    assert!(lines <= 2 * inserted, "{lines} lines for {inserted} insertions");
}
