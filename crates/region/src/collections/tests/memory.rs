//! When there is no memory, what a collection had is still there, and nothing is half done.

use super::{Watched, panics};
use crate::collections::{BTreeMap, BTreeSet, HashMap, HashSet, String, Vec, VecDeque};
use crate::heap::Heap;

/// Enough for what the tests begin with, and a whole number of steps of every window.
const BOUND: usize = 2 << 20;

/// A heap with a bound, and with no block left when `full` is called.
struct Scarce {
    fill: std::vec::Vec<Vec<'static, u8>>,
    watched: Watched,
}

impl Scarce {
    fn new() -> Scarce {
        let watched = Watched::new();
        watched.window.place().set_bound(BOUND);
        let fill = std::vec::Vec::new();
        Scarce { watched, fill }
    }

    fn heap(&self) -> Heap<'static> {
        self.watched.heap
    }

    /// Takes all the memory there is.
    fn full(&mut self) {
        let large = (12..20).rev().map(|power| 1 << power);
        let small = (1..128)
            .rev()
            .map(|few| few * 512)
            .chain((1..32).rev().map(|few| few * 16));
        for bytes in large.chain(small).chain([8]) {
            loop {
                let mut block = Vec::<u8>::new_in(self.watched.heap);
                if block.try_reserve_exact(bytes).is_err() {
                    break;
                }
                self.fill.push(block);
            }
        }
    }

    fn end(mut self) {
        self.watched.check();
        self.fill.clear();
        self.watched.check();
        self.watched.assert_empty();
    }
}

#[test]
fn texts_keep_what_they_had() {
    let mut scarce = Scarce::new();
    let mut text = String::from_in(&"größe ".repeat(500), scarce.heap());
    text.shrink_to_fit();
    scarce.full();
    let before = text.to_string();
    let long = "x".repeat(1000);
    panics(|| text.replace_range(4..7, &long));
    panics(|| text.insert_str(7, &long));
    panics(|| text.push_str(&long));
    panics(|| drop(text.split_off(8)));
    assert_eq!(text, before);
    text.replace_range(0..4, "GrO");
    assert!(text.starts_with("GrOße größe"));
    drop(text);
    scarce.end();
}

#[test]
fn rows_keep_what_they_had() {
    let mut scarce = Scarce::new();
    let mut list: Vec<u64> = Vec::from_iter_in(0..500, scarce.heap());
    let mut other: Vec<u64> = Vec::from_iter_in(500..900, scarce.heap());
    let mut ring: VecDeque<u64> = VecDeque::from_iter_in(0..500, scarce.heap());
    let mut other_ring: VecDeque<u64> = VecDeque::from_iter_in(500..900, scarce.heap());
    list.shrink_to_fit();
    ring.shrink_to_fit();
    scarce.full();
    panics(|| list.append(&mut other));
    panics(|| drop(list.split_off(3)));
    panics(|| list.insert(3, 7));
    panics(|| ring.append(&mut other_ring));
    panics(|| drop(ring.split_off(3)));
    panics(|| ring.insert(3, 7));
    assert!(list.iter().copied().eq(0..500) && other.iter().copied().eq(500..900));
    assert!(ring.iter().copied().eq(0..500) && other_ring.iter().copied().eq(500..900));
    drop((list, other, ring, other_ring));
    scarce.end();
}

#[test]
fn tables_keep_what_they_had() {
    let mut scarce = Scarce::new();
    let mut map: HashMap<u64, u64> = HashMap::from_iter_in((0..200).map(|n| (n, n)), scarce.heap());
    let mut set: HashSet<u64> = HashSet::from_iter_in(0..200, scarce.heap());
    scarce.full();
    panics(|| map.extend((200..10_000).map(|n| (n, n))));
    panics(|| set.extend(200..10_000));
    panics(|| drop(map.clone()));
    assert!((0..200).all(|n| map[&n] == n && set.contains(&n)));
    assert!((0..200).all(|n| set.replace(n) == Some(n)));
    drop((map, set));
    scarce.end();
}

#[test]
fn trees_keep_what_they_had() {
    let mut scarce = Scarce::new();
    let heap = scarce.heap();
    let numbers = |count: u64, odd: u64| (0..count).map(move |n| (n * 2 + odd, n));
    let mut map: BTreeMap<u64, u64> = BTreeMap::from_iter_in(numbers(1000, 0), heap);
    let mut set: BTreeSet<u64> = BTreeSet::from_iter_in(0..500, heap);
    scarce.full();
    panics(|| drop(map.split_off(&100)));
    assert!(map.iter().map(|(key, n)| (*key, *n)).eq(numbers(1000, 0)));
    assert!((0..500).all(|n| set.replace(n) == Some(n)));
    // What was moved is here, the rest there: nothing is in neither.
    let plenty = Watched::new();
    let mut more: BTreeMap<u64, u64> = BTreeMap::from_iter_in(numbers(5000, 1), plenty.heap);
    panics(|| map.append(&mut more));
    assert!(!more.is_empty());
    let all: std::collections::BTreeMap<u64, u64> =
        map.iter().chain(&more).map(|(key, n)| (*key, *n)).collect();
    assert!(
        all.into_iter().eq(numbers(5000, 1)
            .chain(numbers(1000, 0))
            .collect::<std::collections::BTreeMap<_, _>>())
    );
    assert_eq!(map.len() + more.len(), 6000);
    drop((map, more, set));
    plenty.assert_empty();
    drop(plenty);
    scarce.end();
}
