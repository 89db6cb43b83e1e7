//! Safe code that does its worst: keys whose comparisons and hashes lie or panic, iterators that are forgotten.
//!
//! Whatever they do, no collection uses a value that is gone, drops one twice, counts what it does not have or
//! damages its heap; and where nothing was forgotten and no drop panicked, none is left. Under Miri too (`make miri`).

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::BTreeSet as Alive;
use std::hash::{Hash, Hasher};
use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};
use twinpage::Heap;
use twinpage::collections::{
    BTreeMap, BTreeSet, BinaryHeap, Box, HashMap, HashSet, String, Vec, VecDeque, btree, hash,
};
use twinpage::window::Window;

thread_local! {
    static RANDOM: RefCell<fastrand::Rng> = const { RefCell::new(fastrand::Rng::with_seed(0)) };
    static MANNER: Cell<Manner> = const { Cell::new(Manner::HONEST) };
    static ALIVE: RefCell<Alive<u64>> = const { RefCell::new(Alive::new()) };
    static MADE: Cell<u64> = const { Cell::new(0) };
}

/// How often, of 1000 times, an answer is a lie or a panic.
#[derive(Clone, Copy)]
struct Manner {
    lies: u64,
    panics: u64,
}

impl Manner {
    const HONEST: Manner = Manner { lies: 0, panics: 0 };
    const ALL: [Manner; 4] = [
        Manner { lies: 300, panics: 0 },
        Manner { lies: 20, panics: 0 },
        Manner { lies: 0, panics: 20 },
        Manner {
            lies: 100,
            panics: 10,
        },
    ];
}

fn random(below: u64) -> u64 {
    RANDOM.with_borrow_mut(|random| random.u64(..below))
}

/// Whether this answer is a lie.
fn lies() -> bool {
    let Manner { lies, panics } = MANNER.get();
    if panics > 0 && !std::thread::panicking() && random(1000) < panics {
        std::panic::resume_unwind(std::boxed::Box::new("on purpose"));
    }
    lies > 0 && random(1000) < lies
}

/// A key that is known while it lives, with a block of its own.
struct Liar<'r> {
    key: u64,
    number: u64,
    body: Box<'r, u64>,
}

impl<'r> Liar<'r> {
    fn new(key: u64, mut body: Box<'r, u64>) -> Liar<'r> {
        let number = MADE.replace(MADE.get() + 1);
        ALIVE.with_borrow_mut(|alive| alive.insert(number));
        *body = number;
        Liar { key, number, body }
    }

    fn any(heap: Heap<'r>) -> Liar<'r> {
        Liar::new(random(60), Box::new_in(0, heap))
    }

    /// It is alive, and has what is its own.
    fn is_well(&self) {
        assert_eq!(*self.body, self.number, "another value's block");
        let lives = ALIVE.with_borrow(|alive| alive.contains(&self.number));
        assert!(lives, "used after it was dropped");
    }
}

impl Drop for Liar<'_> {
    fn drop(&mut self) {
        let lived = ALIVE.with_borrow_mut(|alive| alive.remove(&self.number));
        if !lived {
            eprintln!("dropped twice");
            std::process::abort();
        }
        assert_eq!(*self.body, self.number, "another value's block");
    }
}

impl Clone for Liar<'_> {
    fn clone(&self) -> Self {
        self.is_well();
        lies();
        Liar::new(self.key, self.body.clone())
    }
}

impl Hash for Liar<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.is_well();
        state.write_u64(if lies() { random(4) } else { self.key });
    }
}

impl PartialEq for Liar<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.is_well();
        other.is_well();
        if lies() {
            random(2) == 0
        } else {
            self.key == other.key
        }
    }
}

impl Eq for Liar<'_> {}

impl PartialOrd for Liar<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Liar<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.is_well();
        other.is_well();
        match lies() {
            true => [Ordering::Less, Ordering::Equal, Ordering::Greater][random(3) as usize],
            false => self.key.cmp(&other.key),
        }
    }
}

/// Goes on with `rest` of an iterator for a few steps, then drops or forgets it. Says whether it forgot.
fn some_of<I: Iterator>(mut rest: I, mut well: impl FnMut(&I::Item)) -> bool {
    for _ in 0..random(4) {
        rest.next().iter().for_each(&mut well);
    }
    let forgets = random(2) == 0;
    if forgets {
        forget(rest);
    }
    forgets
}

/// Calls `attack` with empty heaps, in every manner.
fn everywhere(attack: impl for<'r> Fn(Heap<'r>, Manner) -> bool) {
    let rounds = match (cfg!(miri), twinpage_campaign::is_long()) {
        (true, _) => 1,
        (_, false) => 12,
        (_, true) => 200,
    };
    let seed = twinpage_campaign::seed();
    for round in 0..rounds {
        for manner in Manner::ALL {
            RANDOM.set(fastrand::Rng::with_seed(seed.wrapping_add(round)));
            let window = Window::volatile().unwrap();
            // SAFETY: nothing of a region or of another heap is in sight.
            let heap = unsafe { Heap::create(&window, 1) }.unwrap();
            let forgot = attack(heap, manner);
            let left = ALIVE.take().len();
            assert!(forgot || left == 0, "{left} values were not dropped");
            assert!(forgot || heap.stats().used_blocks == 0);
        }
    }
}

/// Random sequences of operations on `all`; `step` says whether something was forgotten, `look` goes through all of
/// it and returns how many values it met.
fn attack<'r, C>(
    (heap, manner): (Heap<'r>, Manner),
    mut all: C,
    step: fn(&mut C, Heap<'r>) -> bool,
    look: fn(&C) -> usize,
    len: fn(&C) -> usize,
) -> bool {
    let steps = match (cfg!(miri), twinpage_campaign::is_long()) {
        (true, _) => 60,
        (_, false) => 1500,
        (_, true) => 5000,
    };
    let mut forgot = false;
    for _ in 0..steps {
        MANNER.set(manner);
        let done = catch_unwind(AssertUnwindSafe(|| step(&mut all, heap)));
        MANNER.set(Manner::HONEST);
        match done {
            Ok(done) => forgot |= done,
            Err(why) => {
                let text = why.downcast_ref::<std::string::String>().map(|text| &text[..]);
                let text = text.or(why.downcast_ref::<&str>().copied()).unwrap_or_default();
                // What `std` and ours say to a comparison that contradicts itself.
                let told = ["on purpose", "range", "total order", "same entry"];
                assert!(told.iter().any(|one| text.contains(one)), "{text}");
            }
        }
        assert_eq!(look(&all), len(&all));
    }
    let report = heap.check();
    assert!(report.damage.is_empty(), "{:?}", report.damage);
    forgot
}

fn well(liar: &Liar<'_>) -> usize {
    liar.is_well();
    1
}

#[test]
fn a_hash_map() {
    type Map<'r> = HashMap<'r, Liar<'r>, Liar<'r>>;
    fn step<'r>(map: &mut Map<'r>, heap: Heap<'r>) -> bool {
        let any = || Liar::any(heap);
        match random(20) {
            0 => drop(map.remove(&any())),
            1 => drop(map.remove_entry(&any())),
            2 if random(20) == 0 => map.retain(|_, value| value.key % 3 != random(3)),
            3 if random(9) == 0 => map.shrink_to_fit(),
            4 => drop(map.entry(any()).or_insert_with(any).clone()),
            5 => match map.entry(any()) {
                hash::Entry::Occupied(entry) => drop(entry.remove_entry()),
                hash::Entry::Vacant(entry) => drop(entry.into_key()),
            },
            6 if random(20) == 0 => {
                return some_of(map.drain(), |(key, value)| (key.is_well(), value.is_well()).0);
            }
            7 => return some_of(map.iter_mut(), |(key, value)| (key.is_well(), value.is_well()).0),
            8 if random(20) == 0 => {
                let old = std::mem::replace(map, HashMap::new_in(heap));
                return some_of(old.into_iter(), |(key, value)| (key.is_well(), value.is_well()).0);
            }
            9 if random(20) == 0 => *map = map.clone(),
            10 => map.extend((0..random(9)).map(|_| (any(), any()))),
            11 => map.get_mut(&any()).iter().for_each(|value| value.is_well()),
            12 if random(50) == 0 => map.clear(),
            17 => {
                let taken = map.extract_if(|key, value| (key.is_well(), value.key % 3 == random(3)).1);
                return some_of(taken, |(key, value)| (key.is_well(), value.is_well()).0);
            }
            18 => drop(map.entry_ref(&any()).or_insert_with(any).clone()),
            19 => {
                // Two keys may be the same entry's, or be said to be; that is refused.
                let both = [any(), any()];
                let found = map.get_disjoint_mut(both.each_ref());
                found.into_iter().flatten().for_each(|value| value.key += 1);
            }
            _ => drop(map.insert(any(), any())),
        }
        if map.len() > 400 {
            map.clear();
        }
        false
    }
    everywhere(|heap, manner| {
        attack(
            (heap, manner),
            Map::new_in(heap),
            step,
            |map| map.iter().map(|(key, value)| well(key).min(well(value))).sum(),
            Map::len,
        )
    });
}

/// Words of a value so large that a table of a few hundred has a directory; fewer where a region is small.
const ROOM: usize = if cfg!(miri) { 512 } else { 2048 };

#[derive(Clone)]
struct Wide<'r> {
    liar: Liar<'r>,
    _room: [u64; ROOM],
}

#[test]
fn a_hash_map_of_many_segments() {
    type Map<'r> = HashMap<'r, Liar<'r>, Wide<'r>>;
    fn step<'r>(map: &mut Map<'r>, heap: Heap<'r>) -> bool {
        let key = || Liar::new(random(500), Box::new_in(0, heap));
        let _room = [7; ROOM];
        let value = || Wide { liar: key(), _room };
        let all = |(key, value): &(Liar<'r>, Wide<'r>)| (key.is_well(), value.liar.is_well()).0;
        match random(60) {
            0 => map.retain(|_, value| value.liar.key % 5 != random(5)),
            1 => map.shrink_to_fit(),
            2 => return some_of(map.drain(), all),
            3 => {
                let old = std::mem::replace(map, HashMap::new_in(heap));
                return some_of(old.into_iter(), all);
            }
            4 => *map = map.clone(),
            5 => {
                let taken = map.extract_if(|key, value| (key.is_well(), value.liar.key % 3 == random(3)).1);
                return some_of(taken, all);
            }
            6 => map.reserve(random(300) as usize),
            7..15 => drop(map.remove(&key())),
            15..20 => drop(map.entry(key()).or_insert_with(value).liar.clone()),
            _ => map.extend((0..random(9)).map(|_| (key(), value()))),
        }
        if map.len() > 300 {
            map.clear();
        }
        false
    }
    everywhere(|heap, manner| {
        attack(
            (heap, manner),
            Map::new_in(heap),
            step,
            |map| {
                map.iter()
                    .map(|(key, value)| well(key).min(well(&value.liar)))
                    .sum()
            },
            Map::len,
        )
    });
}

#[test]
fn a_hash_set() {
    type Set<'r> = HashSet<'r, Liar<'r>>;
    fn step<'r>(set: &mut Set<'r>, heap: Heap<'r>) -> bool {
        let any = || Liar::any(heap);
        match random(10) {
            0 => drop(set.take(&any())),
            1 => drop(set.replace(any())),
            2 if random(20) == 0 => set.retain(|value| value.key % 3 != random(3)),
            3 if random(10) == 0 => return some_of(set.drain(), |value| value.is_well()),
            4 if random(20) == 0 => {
                let old = std::mem::replace(set, HashSet::new_in(heap));
                return some_of(old.into_iter(), |value| value.is_well());
            }
            5 => _ = set.remove(&any()),
            _ => _ = set.insert(any()),
        }
        false
    }
    everywhere(|heap, manner| {
        attack(
            (heap, manner),
            Set::new_in(heap),
            step,
            |set| set.iter().map(well).sum(),
            Set::len,
        )
    });
}

#[test]
fn a_tree_map() {
    type Map<'r> = BTreeMap<'r, Liar<'r>, Liar<'r>>;
    fn step<'r>(map: &mut Map<'r>, heap: Heap<'r>) -> bool {
        let any = || Liar::any(heap);
        let both = |(key, value): &(&Liar<'_>, &mut Liar<'_>)| (key.is_well(), value.is_well()).0;
        match random(25) {
            0 => drop(map.remove(&any())),
            1 => drop(map.remove_entry(&any())),
            2 if random(9) == 0 => map.retain(|_, value| value.key % 3 != random(3)),
            3 => drop((map.pop_first(), map.pop_last())),
            4 => drop(map.entry(any()).or_insert_with(any).clone()),
            5 => match map.entry(any()) {
                btree::Entry::Occupied(entry) => drop(entry.remove_entry()),
                btree::Entry::Vacant(entry) => drop(entry.into_key()),
            },
            6 => assert!(map.range(any()..any()).map(|(key, _)| well(key)).sum::<usize>() <= map.len()),
            7 => assert!(map.range(any()..).rev().map(|(key, _)| well(key)).sum::<usize>() <= map.len()),
            8 => {
                let length = map.len();
                let mut range = map.range_mut(any()..=any());
                let (mut front, mut back) = (std::vec::Vec::new(), std::vec::Vec::new());
                for _ in 0..random(100) {
                    front.extend(range.next().map(|(_, value)| value));
                    back.extend(range.next_back().map(|(_, value)| value));
                }
                assert!(front.len() + back.len() <= length, "an entry came twice");
                front.into_iter().chain(back).for_each(|value| value.key += 1);
            }
            9 => {
                let mut rest = map.split_off(&any());
                match random(3) {
                    0 => map.append(&mut rest),
                    1 => rest.append(map),
                    _ => map.extend(rest),
                }
            }
            10 => return some_of(map.iter_mut(), both),
            11 if random(9) == 0 => {
                let old = std::mem::replace(map, BTreeMap::new_in(heap));
                return some_of(old.into_iter(), |(key, value)| (key.is_well(), value.is_well()).0);
            }
            12 if random(9) == 0 => *map = map.clone(),
            13 => map.extend((0..random(30)).map(|_| (any(), any()))),
            14 => map.get_mut(&any()).iter().for_each(|value| value.is_well()),
            15 if random(50) == 0 => map.clear(),
            16 => drop(map.try_insert(any(), any()).unwrap()),
            22 => {
                let taken = map.extract_if(any()..any(), |key, value| {
                    (key.is_well(), value.key % 3 == random(3)).1
                });
                return some_of(taken, |(key, value)| (key.is_well(), value.is_well()).0);
            }
            23 => drop(map.entry_ref(&any()).or_insert_with(any).clone()),
            24 if random(9) == 0 => {
                let taken = map.extract_if(.., |_, _| random(9) > 0);
                return some_of(taken, |(key, value)| (key.is_well(), value.is_well()).0);
            }
            17 => drop(map.first_entry().map(|entry| entry.remove())),
            _ => drop(map.insert(any(), any())),
        }
        if map.len() > 2000 {
            map.clear();
        }
        false
    }
    everywhere(|heap, manner| {
        attack(
            (heap, manner),
            Map::new_in(heap),
            step,
            |map| {
                let backwards = map.iter().rev().count();
                let all: usize = map.iter().map(|(key, value)| well(key).min(well(value))).sum();
                assert_eq!(all, backwards);
                all
            },
            Map::len,
        )
    });
}

#[test]
fn a_tree_set() {
    type Set<'r> = BTreeSet<'r, Liar<'r>>;
    fn step<'r>(set: &mut Set<'r>, heap: Heap<'r>) -> bool {
        let any = || Liar::any(heap);
        match random(12) {
            0 => drop(set.take(&any())),
            1 => drop(set.replace(any())),
            2 if random(9) == 0 => set.retain(|value| value.key % 3 != random(3)),
            3 => {
                let other: Set<'r> = BTreeSet::from_iter_in((0..random(20)).map(|_| any()), heap);
                let met = set.union(&other).chain(set.symmetric_difference(&other));
                assert!(met.map(well).sum::<usize>() <= 2 * (set.len() + other.len()));
                let met = set.intersection(&other).chain(set.difference(&other));
                assert!(met.map(well).sum::<usize>() <= 2 * set.len());
            }
            4 => {
                let mut rest = set.split_off(&any());
                set.append(&mut rest);
            }
            5 if random(20) == 0 => {
                let old = std::mem::replace(set, BTreeSet::new_in(heap));
                return some_of(old.into_iter(), |value| value.is_well());
            }
            6 => drop((set.pop_first(), set.pop_last())),
            _ => _ = set.insert(any()),
        }
        false
    }
    everywhere(|heap, manner| {
        attack(
            (heap, manner),
            Set::new_in(heap),
            step,
            |set| set.iter().map(well).sum(),
            Set::len,
        )
    });
}

#[test]
fn a_vector() {
    type List<'r> = Vec<'r, Liar<'r>>;
    fn step<'r>(list: &mut List<'r>, heap: Heap<'r>) -> bool {
        let any = || Liar::any(heap);
        let at = |list: &List<'_>| random(list.len() as u64 + 1) as usize;
        match random(22) {
            0 => drop(list.pop()),
            1 => list.truncate(at(list)),
            2 => list.retain(|value| value.key % 3 != random(3)),
            3 => list.sort(),
            4 => list.dedup(),
            5 => _ = list.binary_search(&any()),
            6 => {
                let (a, b) = (at(list), at(list));
                return some_of(list.drain(a.min(b)..a.max(b)), |value| value.is_well());
            }
            7 if random(9) == 0 => {
                let old = std::mem::replace(list, Vec::new_in(heap));
                return some_of(old.into_iter(), |value| value.is_well());
            }
            8 => {
                let mut rest = list.split_off(at(list));
                list.append(&mut rest);
            }
            9 => list.insert(at(list), any()),
            10 if random(9) == 0 => *list = list.clone(),
            11 => list.extend((0..random(9)).map(|_| any())),
            12 => list.resize(at(list) + 3, any()),
            13 if !list.is_empty() => drop(list.swap_remove(random(list.len() as u64) as usize)),
            14 => list.extend_from_within(..at(list).min(10)),
            15 => list.sort_unstable(),
            18 => {
                let (a, b) = (at(list), at(list));
                let taken = list.extract_if(a.min(b)..a.max(b), |value| (value.is_well(), lies()).1);
                return some_of(taken, |value| value.is_well());
            }
            19 => {
                let (a, b) = (at(list), at(list));
                let values = (0..random(9))
                    .filter(|_| random(5) > 0)
                    .map(|_| (lies(), any()).1);
                return some_of(list.splice(a.min(b)..a.max(b), values), |value| value.is_well());
            }
            20 => {
                if let Ok([one, other]) = list.get_disjoint_mut([0, at(list)]) {
                    std::mem::swap(one, other);
                }
            }
            21 if random(9) == 0 => {
                let boxed = std::mem::replace(list, Vec::new_in(heap)).into_boxed_slice();
                *list = boxed.clone().into_vec(heap);
            }
            _ => list.push(any()),
        }
        if list.len() > 400 {
            list.clear();
        }
        false
    }
    everywhere(|heap, manner| {
        attack(
            (heap, manner),
            List::new_in(heap),
            step,
            |list| list.iter().map(well).sum(),
            List::len,
        )
    });
}

#[test]
fn a_ring() {
    type Ring<'r> = VecDeque<'r, Liar<'r>>;
    fn step<'r>(ring: &mut Ring<'r>, heap: Heap<'r>) -> bool {
        let any = || Liar::any(heap);
        let at = |ring: &Ring<'_>| random(ring.len() as u64 + 1) as usize;
        match random(19) {
            0 => drop(ring.pop_front()),
            1 => drop(ring.pop_back()),
            2 => ring.truncate(at(ring)),
            3 => ring.retain(|value| value.key % 3 != random(3)),
            4 => ring.make_contiguous().sort(),
            5 => ring.rotate_left(at(ring)),
            6 => {
                let (a, b) = (at(ring), at(ring));
                return some_of(ring.drain(a.min(b)..a.max(b)), |value| value.is_well());
            }
            7 if random(9) == 0 => {
                let old = std::mem::replace(ring, VecDeque::new_in(heap));
                return some_of(old.into_iter(), |value| value.is_well());
            }
            8 => {
                let mut rest = ring.split_off(at(ring));
                ring.append(&mut rest);
            }
            9 => ring.insert(at(ring), any()),
            10 if random(9) == 0 => *ring = ring.clone(),
            11 => ring.extend((0..random(9)).map(|_| any())),
            12 => ring.resize(at(ring) + 3, any()),
            13 => _ = ring.contains(&any()),
            14 => ring.push_front(any()),
            16 => ring.retain_mut(|value| (value.is_well(), lies()).1),
            17 => _ = ring.binary_search(&any()),
            18 => drop(ring.pop_front_if(|value| (value.is_well(), lies()).1)),
            _ => ring.push_back(any()),
        }
        if ring.len() > 400 {
            ring.clear();
        }
        false
    }
    everywhere(|heap, manner| {
        attack(
            (heap, manner),
            Ring::new_in(heap),
            step,
            |ring| ring.iter().map(well).sum(),
            Ring::len,
        )
    });
}

#[test]
fn a_queue() {
    type Queue<'r> = BinaryHeap<'r, Liar<'r>>;
    fn step<'r>(queue: &mut Queue<'r>, heap: Heap<'r>) -> bool {
        let any = || Liar::any(heap);
        match random(12) {
            0 | 1 => drop(queue.pop()),
            2 => queue.retain(|value| value.key % 3 != random(3)),
            3 => {
                if let Some(mut top) = queue.peek_mut() {
                    top.key = random(60);
                    match random(3) {
                        0 => forget(top),
                        1 => drop(twinpage::collections::PeekMut::pop(top)),
                        _ => {}
                    }
                }
            }
            4 => {
                let mut other: Queue<'r> = BinaryHeap::from_iter_in((0..random(30)).map(|_| any()), heap);
                queue.append(&mut other);
            }
            5 if random(9) == 0 => return some_of(queue.drain(), |value| value.is_well()),
            6 if random(9) == 0 => {
                let old = std::mem::replace(queue, BinaryHeap::new_in(heap));
                *queue = old.into_sorted_vec().into();
            }
            7 => queue.extend((0..random(9)).map(|_| any())),
            _ => queue.push(any()),
        }
        if queue.len() > 400 {
            queue.clear();
        }
        false
    }
    everywhere(|heap, manner| {
        attack(
            (heap, manner),
            Queue::new_in(heap),
            step,
            |queue| queue.iter().map(well).sum(),
            Queue::len,
        )
    });
}

/// What a drain had not handed out yet is still there when the drain is forgotten, and what it had handed out is
/// not: no text is in two places.
#[test]
fn what_a_forgotten_drain_handed_out_is_no_longer_there() {
    let window = Window::volatile().unwrap();
    // SAFETY: nothing of a region or of another heap is in sight.
    let heap = unsafe { Heap::create(&window, 1) }.unwrap();
    let text = |n: u64| String::from_in(&format!("text {n} of its own"), heap);
    let mut map: HashMap<u64, String> = HashMap::from_iter_in((0..40).map(|n| (n, text(n))), heap);
    let mut drain = map.drain();
    let taken = [drain.next().unwrap(), drain.next().unwrap()];
    forget(drain);
    assert_eq!(map.len(), 38);
    assert!(taken.iter().all(|(n, _)| !map.contains_key(n)));
    map.extend((100..200).map(|n| (n, text(n))));
    assert!(
        map.iter()
            .chain(taken.iter().map(|(n, text)| (n, text)))
            .all(|(n, found)| *found == *text(*n))
    );
    let mut set: HashSet<String> = HashSet::from_iter_in((0..40).map(text), heap);
    let mut drain = set.drain();
    let first = drain.next().unwrap();
    forget(drain);
    assert!(!set.contains(first.as_str()) && set.len() == 39);
    drop((map, set, taken, first));
    assert!(heap.check().is_sound());
    assert_eq!(heap.stats().used_blocks, 0);
}

/// A heap is not made a second time under its users.
#[test]
fn a_heap_is_made_once() {
    let window = Window::volatile().unwrap();
    // SAFETY: nothing of a region or of another heap is in sight.
    let heap = unsafe { Heap::create(&window, 1) }.unwrap();
    let list = Vec::from_iter_in(0..100_u64, heap);
    // SAFETY: nothing of a region or of another heap is in sight.
    let again = unsafe { Heap::create(&window, 2) }.unwrap_err();
    assert!(matches!(again, twinpage::heap::HeapError::Exists), "{again}");
    // SAFETY: the same.
    let opened = unsafe { Heap::open(&window) }.unwrap();
    assert!(list.iter().copied().eq(0..100) && heap == opened);
}
