//! What takes parts out, puts others in their place, makes keys where they are put: against `std`, marks watched.

use super::{Census, Counted, Watched};
use crate::collections::{
    BTreeMap, BTreeSet, BinaryHeap, Box, HashMap, HashSet, PeekMut, String, Vec, VecDeque,
};
use std::io::{Read, Write};

/// Rounds of random steps on a collection in a box, which is watched; `step` is given a number to draw from.
fn watched<C>(
    new: impl Fn(crate::heap::Heap<'static>) -> C,
    mut step: impl FnMut(&mut C, &mut fastrand::Rng),
) {
    let seed = twinpage_campaign::seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut watched = Watched::new();
    let steps = if cfg!(miri) { 20 } else { 400 };
    {
        let mut all = Box::new_in(new(watched.heap), watched.heap);
        for _ in 0..steps {
            step(&mut all, &mut random);
            watched.check();
        }
    }
    watched.check();
    watched.assert_empty();
}

fn range(random: &mut fastrand::Rng, length: usize) -> std::ops::Range<usize> {
    let (a, b) = (random.usize(..=length), random.usize(..=length));
    a.min(b)..a.max(b)
}

#[test]
fn a_vector_as_std() {
    let census = Census::default();
    let mut theirs = std::vec::Vec::<Counted>::new();
    watched(Vec::new_in, |ours: &mut Vec<'_, Counted>, random| {
        let make = |n: u64| census.make(n % 50 + 1);
        let part = range(random, theirs.len());
        let takes = random.usize(..8);
        match random.u8(..6) {
            0 => {
                let (mut a, mut b) = (0, 0);
                let taken = ours
                    .extract_if(part.clone(), |_| {
                        a += 1;
                        a % 3 == 0
                    })
                    .take(takes);
                let taken: std::vec::Vec<_> = taken.collect();
                assert_eq!(
                    taken,
                    theirs
                        .extract_if(part, |_| {
                            b += 1;
                            b % 3 == 0
                        })
                        .take(takes)
                        .collect::<std::vec::Vec<_>>()
                );
            }
            1 => {
                let count = random.u64(..20);
                let taken: std::vec::Vec<_> = ours
                    .splice(part.clone(), (0..count).map(make))
                    .take(takes)
                    .collect();
                assert_eq!(
                    taken,
                    theirs
                        .splice(part, (0..count).map(make))
                        .take(takes)
                        .collect::<std::vec::Vec<_>>()
                );
            }
            2 => {
                // An iterator that cannot say how many come.
                let values = || (0..30).map(make).filter(|value| value.id % 4 == 0);
                let taken = ours.splice(part.clone(), values()).next_back();
                assert_eq!(taken, theirs.splice(part, values()).next_back());
            }
            3 if theirs.len() > 1 => {
                let (a, b) = (random.usize(..theirs.len()), random.usize(..theirs.len()));
                match ours.get_disjoint_mut([a, b]) {
                    Ok([x, y]) => std::mem::swap(x, y),
                    Err(_) => assert_eq!(a, b),
                }
                theirs.swap(a, b);
                assert!(ours.get_disjoint_mut([a, theirs.len()]).is_err());
            }
            4 => {
                let heap = ours.heap();
                let boxed = std::mem::replace(ours, Vec::new_in(heap)).into_boxed_slice();
                assert_eq!(
                    (boxed.len(), boxed.clone()[..] == theirs[..]),
                    (theirs.len(), true)
                );
                *ours = boxed.into_vec(heap);
                assert_eq!(ours.capacity(), theirs.len());
            }
            _ => (ours.push(make(7)), theirs.push(make(7))).0,
        }
        assert_eq!(*ours, theirs);
        if theirs.len() > 300 {
            (ours.clear(), theirs.clear()).0
        }
    });
    drop(theirs);
    assert_eq!(census.alive(), 0);
}

#[test]
fn boxes_of_slices_and_text() {
    let census = Census::default();
    watched(
        |heap| {
            (
                Vec::<u64>::new_in(heap).into_boxed_slice(),
                Box::from_text_in("", heap),
            )
        },
        |(numbers, text): &mut (Box<'_, [u64]>, Box<'_, str>), random| {
            let heap = text
                .clone()
                .into_string(Vec::<u8>::new_in(heap_of(numbers, text)).heap())
                .heap();
            if let Some(at) = numbers.len().checked_sub(1) {
                numbers[at / 2] += 1;
                *numbers.get_mut(at).unwrap() += 1;
            }
            let was = numbers.to_vec();
            *numbers =
                Vec::from_iter_in(was.iter().copied().chain(0..random.u64(..3)), heap).into_boxed_slice();
            assert_eq!(numbers[..was.len()], was);
            text.make_ascii_uppercase();
            let mut string = std::mem::replace(text, Box::from_text_in("", heap)).into_string(heap);
            string.push_str("aé");
            *text = string.into_boxed_str();
            assert!(text.ends_with("aé") && text.clone() == *text);
            let counted = Vec::from_iter_in((1..4).map(|n| census.make(n)), heap).into_boxed_slice();
            assert_eq!((counted.clone().len(), census.alive() >= 3), (3, true));
            let units = Vec::from_iter_in([(), ()], heap).into_boxed_slice();
            assert_eq!(units.clone().into_vec(heap), [(), ()]);
        },
    );
    assert_eq!(census.alive(), 0);
}

/// The heap that a value lies in.
fn heap_of<'r>(numbers: &Box<'r, [u64]>, _: &Box<'r, str>) -> crate::heap::Heap<'r> {
    // SAFETY: the box itself is in a block of the heap of its brand.
    unsafe { crate::heap::Heap::branded(crate::heap::RawHeap::of(std::ptr::NonNull::from_ref(numbers))) }
}

#[test]
fn a_text_as_std() {
    let mut theirs = std::string::String::new();
    watched(String::new_in, |ours: &mut String<'_>, random| {
        let mut part = range(random, theirs.len());
        part.start = theirs.floor_char_boundary(part.start);
        part.end = theirs.floor_char_boundary(part.end);
        match random.u8(..6) {
            0 => {
                let (mut a, mut b) = (ours.drain(part.clone()), theirs.drain(part));
                assert_eq!(
                    (a.next(), a.next_back(), a.as_str()),
                    (b.next(), b.next_back(), b.as_str())
                );
            }
            1 if theirs.len() < 500 => {
                ours.extend_from_within(part.clone());
                theirs.extend_from_within(part);
            }
            2 => {
                let bytes: std::vec::Vec<u8> = theirs.bytes().skip(part.start + 1).take(9).collect();
                let text = String::from_utf8_lossy_in(&bytes, ours.heap());
                assert_eq!(text, std::string::String::from_utf8_lossy(&bytes));
                let checked = String::from_utf8(Vec::from_iter_in(bytes.iter().copied(), ours.heap()));
                let expected = std::string::String::from_utf8(bytes);
                match (checked, expected) {
                    (Ok(ours), Ok(theirs)) => assert_eq!(ours, theirs),
                    (Err(ours), Err(theirs)) => {
                        assert_eq!(ours.utf8_error(), theirs.utf8_error());
                        assert_eq!(ours.into_bytes(), theirs.into_bytes());
                    }
                    other => panic!("{other:?}"),
                }
            }
            3 => {
                let units: std::vec::Vec<u16> = theirs.encode_utf16().skip(part.start % 7).collect();
                let expected = std::string::String::from_utf16(&units);
                match String::from_utf16_in(&units, ours.heap()) {
                    Ok(text) => assert_eq!(text, expected.unwrap()),
                    Err(_) => assert!(expected.is_err()),
                }
            }
            4 => (ours.shrink_to(part.end), theirs.shrink_to(part.end)).0,
            _ => (ours.push_str("xé𝄞"), theirs.push_str("xé𝄞")).0,
        }
        assert_eq!(ours.as_str(), theirs);
    });
}

#[test]
fn a_ring_as_std() {
    let mut theirs = std::collections::VecDeque::<u8>::new();
    watched(VecDeque::new_in, |ours: &mut VecDeque<'_, u8>, random| {
        let value = random.u8(..30);
        match random.u8(..9) {
            0 => {
                ours.make_contiguous().sort();
                theirs.make_contiguous().sort();
                let by = random.usize(..=theirs.len());
                ours.rotate_left(by);
                theirs.rotate_left(by);
                ours.rotate_right(by);
                theirs.rotate_right(by);
            }
            1 => {
                ours.retain_mut(|n| {
                    *n ^= 1;
                    *n % 5 != 0
                });
                theirs.retain_mut(|n| {
                    *n ^= 1;
                    *n % 5 != 0
                });
            }
            2 => assert_eq!(
                ours.pop_front_if(|n| *n % 2 == 0),
                theirs.pop_front_if(|n| *n % 2 == 0)
            ),
            3 => assert_eq!(
                ours.pop_back_if(|n| *n % 2 == 0),
                theirs.pop_back_if(|n| *n % 2 == 0)
            ),
            4 => (ours.shrink_to(40), theirs.shrink_to(40)).0,
            5 => ours.reserve_exact(usize::from(value)),
            6 => {
                let (mut a, mut b) = ([0; 9], [0; 9]);
                // How many come at once follows from where they lie.
                let count = theirs.len().min(9);
                ours.read_exact(&mut a[..count]).unwrap();
                theirs.read_exact(&mut b[..count]).unwrap();
                assert_eq!(a, b);
            }
            7 => {
                ours.write_all(&[value, 3, 9]).unwrap();
                theirs.write_all(&[value, 3, 9]).unwrap();
            }
            _ => (ours.push_front(value), theirs.push_front(value)).0,
        }
        assert!(ours.iter().eq(&theirs));
        let mut sorted = theirs.clone();
        sorted.make_contiguous().sort();
        let mut ring = VecDeque::from_iter_in(sorted.iter().copied(), ours.heap());
        for _ in 0..random.u8(..5) {
            let Some(back) = ring.pop_back() else { break };
            ring.push_front(back);
            ring.rotate_left(1);
        }
        assert_eq!(ring.binary_search(&value).is_ok(), sorted.contains(&value));
        assert_eq!(
            ring.partition_point(|n| *n < value),
            sorted.partition_point(|n| *n < value)
        );
        let key = |n: &u8| u32::from(*n);
        assert_eq!(
            ring.binary_search_by_key(&u32::from(value), key).is_ok(),
            sorted.contains(&value)
        );
    });
}

#[test]
fn a_queue_as_std() {
    let mut theirs = std::collections::BinaryHeap::<u16>::new();
    watched(BinaryHeap::new_in, |ours: &mut BinaryHeap<'_, u16>, random| {
        let value = random.u16(..99);
        match random.u8(..9) {
            0 => assert_eq!(ours.pop(), theirs.pop()),
            1 => {
                if let (Some(mut a), Some(mut b)) = (ours.peek_mut(), theirs.peek_mut()) {
                    assert_eq!(*a, *b);
                    (*a, *b) = (value, value);
                }
            }
            2 => {
                let taken = ours.peek_mut().map(|mut top| {
                    *top = value;
                    PeekMut::pop(top)
                });
                let expected = theirs.peek_mut().map(|mut top| {
                    *top = value;
                    std::collections::binary_heap::PeekMut::pop(top)
                });
                assert_eq!(taken, expected);
            }
            3 => {
                (
                    ours.retain(|n| n % 7 != value % 7),
                    theirs.retain(|n| n % 7 != value % 7),
                )
                    .0
            }
            4 => {
                let mut other = BinaryHeap::from_iter_in((0..value).map(|n| n * 31 % 99), ours.heap());
                ours.append(&mut other);
                theirs.extend((0..value).map(|n| n * 31 % 99));
                assert!(other.is_empty());
            }
            5 if theirs.len() > 200 => {
                let mut all: std::vec::Vec<_> = ours.drain().collect();
                all.sort();
                assert_eq!(all, std::mem::take(&mut theirs).into_sorted_vec());
            }
            6 => (ours.extend([value, 4]), theirs.extend([value, 4])).0,
            _ => (ours.push(value), theirs.push(value)).0,
        }
        assert_eq!((ours.peek(), ours.len()), (theirs.peek(), theirs.len()));
        assert_eq!(ours.clone().into_sorted_vec(), theirs.clone().into_sorted_vec());
    });
}

#[test]
fn maps_as_std() {
    type Both<'r> = (HashMap<'r, String<'r>, u32>, BTreeMap<'r, String<'r>, u32>);
    let mut theirs = std::collections::BTreeMap::<std::string::String, u32>::new();
    watched(
        |heap| (HashMap::new_in(heap), BTreeMap::new_in(heap)),
        |(hash, tree): &mut Both<'_>, random| {
            let key = |n: u64| format!("key {:02}", n % 80);
            let (one, other) = (key(random.u64(..)), key(random.u64(..)));
            let heap = tree.heap();
            match random.u8(..7) {
                0 => {
                    let takes = random.usize(..9);
                    let (mut a, mut b) = (one.clone().min(other.clone()), one.clone().max(other.clone()));
                    let bounds = (String::from_in(&a, heap), String::from_in(&b, heap));
                    let taken = tree.extract_if(bounds.0..bounds.1, |_, n| {
                        *n += 1;
                        *n % 3 == 0
                    });
                    let taken: std::vec::Vec<_> =
                        taken.take(takes).map(|(k, n)| (k.to_string(), n)).collect();
                    let mut expected = std::vec::Vec::new();
                    if takes > 0 {
                        for (k, n) in theirs.range_mut(std::mem::take(&mut a)..std::mem::take(&mut b)) {
                            *n += 1;
                            if *n % 3 == 0 {
                                expected.push((k.clone(), *n));
                            }
                            if expected.len() == takes {
                                break;
                            }
                        }
                    }
                    expected.iter().for_each(|(k, _)| _ = theirs.remove(k));
                    assert_eq!(taken, expected);
                    hash.clear();
                    hash.extend(theirs.iter().map(|(k, n)| (String::from_in(k, heap), *n)));
                }
                1 => {
                    let mut taken: std::vec::Vec<_> = hash
                        .extract_if(|_, n| {
                            *n ^= 1;
                            *n % 4 == 0
                        })
                        .collect();
                    taken.sort();
                    let all = tree.extract_if(.., |_, n| {
                        *n ^= 1;
                        *n % 4 == 0
                    });
                    assert!(
                        taken
                            .iter()
                            .map(|(k, n)| (k, *n))
                            .eq(all.collect::<std::vec::Vec<_>>().iter().map(|(k, n)| (k, *n)))
                    );
                    theirs.values_mut().for_each(|n| *n ^= 1);
                    theirs.retain(|_, n| *n % 4 != 0);
                }
                2 => {
                    *hash.entry_ref(one.as_str()).and_modify(|n| *n += 5).or_insert(9) += 1;
                    *tree.entry_ref(one.as_str()).and_modify(|n| *n += 5).or_insert(9) += 1;
                    *theirs.entry(one.clone()).and_modify(|n| *n += 5).or_insert(9) += 1;
                }
                3 if one != other => {
                    let [a, b] = hash.get_disjoint_mut([one.as_str(), other.as_str()]);
                    if let (Some(a), Some(b)) = (a, b) {
                        std::mem::swap(a, b);
                        let (x, y) = (theirs[&one], theirs[&other]);
                        theirs.insert(one.clone(), y);
                        theirs.insert(other.clone(), x);
                        *tree.get_mut(one.as_str()).unwrap() = y;
                        *tree.get_mut(other.as_str()).unwrap() = x;
                    }
                }
                _ => {
                    *hash.entry_ref(one.as_str()).or_default() += 2;
                    *tree.entry(String::from_in(&one, heap)).or_default() += 2;
                    *theirs.entry(one.clone()).or_default() += 2;
                }
            }
            assert!(
                tree.iter()
                    .map(|(k, n)| (k.as_str(), *n))
                    .eq(theirs.iter().map(|(k, n)| (k.as_str(), *n)))
            );
            assert_eq!(hash.len(), theirs.len());
            assert!(theirs.iter().all(|(k, n)| hash.get(k.as_str()) == Some(n)));
        },
    );
}

#[test]
fn sets_as_std() {
    watched(
        |heap| (HashSet::<u32>::new_in(heap), BTreeSet::<u32>::new_in(heap)),
        |(hash, tree), random| {
            hash.extend((0..20).map(|_| random.u32(..200)));
            tree.extend(hash.iter());
            let (from, by) = (random.u32(..200), random.u32(2..5));
            let mut all: std::vec::Vec<_> = hash.extract_if(|n| *n >= from && n % by == 0).collect();
            all.sort();
            assert!(tree.extract_if(from.., |n| n % by == 0).eq(all));
            assert_eq!(
                (hash.len(), tree.iter().all(|n| hash.contains(n))),
                (tree.len(), true)
            );
            hash.shrink_to(tree.len());
        },
    );
}

#[test]
fn two_keys_of_one_entry_are_refused() {
    let watched = Watched::new();
    let mut map = HashMap::from_iter_in([(1, 1), (2, 2)], watched.heap);
    super::panics(|| _ = map.get_disjoint_mut([&1, &2, &1]));
    assert_eq!(map.get_disjoint_mut([&1, &9, &8]), [Some(&mut 1), None, None]);
}

#[test]
fn bytes_are_written() {
    let mut watched = Watched::new();
    {
        let mut bytes = Box::new_in(Vec::new_in(watched.heap), watched.heap);
        write!(bytes, "{:>5}", 42).unwrap();
        assert_eq!(**bytes, *b"   42");
        watched.check();
    }
    watched.assert_empty();
}

/// A queue of values that take memory where they are dropped: what a tree's last node was is not looked at then.
#[test]
fn a_tree_is_emptied_by_what_takes_memory_meanwhile() {
    struct Loud<'r>(String<'r>);
    impl Drop for Loud<'_> {
        fn drop(&mut self) {
            let mut more = Vec::<u16>::with_capacity_in(90, self.0.heap());
            more.extend(std::iter::repeat_n(7, 90));
        }
    }
    let watched = Watched::new();
    let heap = watched.heap;
    let loud = |n: u8| (n, Loud(String::from_in("loud", heap)));
    let mut map = BTreeMap::from_iter_in((0..3).map(loud), heap);
    map.retain(|_, _| false);
    assert!(map.is_empty());
    map.extend((0..40).map(loud));
    map.extract_if(.., |_, _| true).for_each(drop);
    assert!(map.is_empty() && map.iter().next().is_none());
    drop(map);
    watched.assert_empty();
}

/// Drops that write into their own value: nothing of that is unmarked, whatever the value lies in.
#[test]
fn what_a_drop_writes_into_its_value_is_marked() {
    struct Log<'r, const N: usize>(Vec<'r, u64>, [u64; N]);
    impl<const N: usize> Drop for Log<'_, N> {
        fn drop(&mut self) {
            self.0.clear();
            self.1[N - 1] += 1;
        }
    }
    fn all<T: 'static>(make: impl Fn(crate::heap::Heap<'static>) -> T) {
        let mut watched = Watched::new();
        let heap = watched.heap;
        let ten = || (0..10).map(|_| make(heap));
        let mut lists = Vec::from_iter_in((0..6).map(|_| Vec::from_iter_in(ten(), heap)), heap);
        let mut rings = Vec::from_iter_in([VecDeque::from_iter_in(ten(), heap)], heap);
        let mut boxes = Vec::from_iter_in(ten().map(|one| Box::new_in(one, heap)), heap);
        let slice = Vec::from_iter_in(ten(), heap).into_boxed_slice();
        let mut tables: [_; 4] = std::array::from_fn(|_| HashMap::from_iter_in((0..10).zip(ten()), heap));
        let mut trees: [_; 2] = std::array::from_fn(|_| BTreeMap::from_iter_in((0..10).zip(ten()), heap));
        watched.check();
        lists[0].clear();
        watched.check();
        lists[1].truncate(3);
        watched.check();
        lists[2].retain(|_| false);
        watched.check();
        drop(lists[3].drain(2..7));
        watched.check();
        drop(std::mem::replace(&mut lists[4], Vec::new_in(heap)).into_iter());
        watched.check();
        rings[0].truncate(4);
        watched.check();
        rings.clear();
        watched.check();
        boxes.clear();
        watched.check();
        drop(slice);
        watched.check();
        tables[0].clear();
        watched.check();
        tables[1].retain(|_, _| false);
        watched.check();
        drop(std::mem::replace(&mut tables[2], HashMap::new_in(heap)).into_iter());
        watched.check();
        drop(tables);
        watched.check();
        trees[0].clear();
        watched.check();
        drop(trees);
        watched.check();
        drop(lists);
        watched.check();
        drop((rings, boxes));
        watched.assert_empty();
    }
    all(|heap| Log(Vec::from_iter_in([7], heap), [7]));
    all(|heap| Log(Vec::from_iter_in([7], heap), [7; 90]));
    all(|heap| VecDeque::from_iter_in([7_u8], heap));
}

/// The heaps of two windows may have one lifetime: a block is freed where it is.
#[test]
fn what_was_boxed_goes_back_to_its_own_heap() {
    let (one, other) = (Watched::new(), Watched::new());
    let numbers = Vec::from_iter_in([1_u64, 2], other.heap).into_boxed_slice();
    let text = Box::from_text_in("text", other.heap);
    let (numbers, text) = (numbers.into_vec(one.heap), text.into_string(one.heap));
    assert!(numbers.heap() == other.heap && text.heap() == other.heap);
    drop((numbers, text));
    let none = Vec::<u64>::new_in(other.heap).into_boxed_slice();
    assert!(none.into_vec(one.heap).heap() == one.heap);
    one.assert_empty();
    other.assert_empty();
}

/// As `std`: in order, though the values left are others than those that were wanted.
#[test]
fn a_heap_is_in_order_after_a_panic() {
    let watched = Watched::new();
    let in_order = |mut queue: BinaryHeap<'static, u64>| {
        assert!(std::iter::from_fn(|| queue.pop()).is_sorted_by(|a, b| a >= b));
    };
    let mut queue = BinaryHeap::from_iter_in(0..100, watched.heap);
    super::panics(|| {
        queue.retain(|&number| {
            assert!(number > 40);
            number % 3 == 0
        });
    });
    in_order(queue);
    let mut queue = BinaryHeap::from_iter_in(0..10, watched.heap);
    super::panics(|| {
        queue.extend((10..100).inspect(|number| assert!(*number < 60)));
    });
    assert!(queue.len() >= 10);
    in_order(queue);
    watched.assert_empty();
}

/// Bytes at the front of a ring leave it where they are: no other is written for it.
#[test]
fn reading_a_ring_writes_no_byte_of_it() {
    let mut watched = Watched::new();
    let mut ring = VecDeque::with_capacity_in(1000, watched.heap);
    ring.extend(std::iter::repeat_n(0_u8, 600));
    let mut into = [0; 800];
    assert_eq!(ring.read(&mut into[..500]).unwrap(), 500);
    ring.extend((0..800).map(|number| number as u8)); // around the end
    watched.check();
    let blocks = watched.heap.stats();
    let at = ring.as_slices().0.as_ptr();
    assert_eq!(ring.read(&mut into[..50]).unwrap(), 50);
    assert_eq!(ring.as_slices().0.as_ptr().addr(), at.addr() + 50);
    assert_eq!(watched.heap.stats().used_blocks, blocks.used_blocks);
    assert_eq!(ring.read(&mut into).unwrap(), 800, "both parts at once");
    let numbers = |range: std::ops::Range<i32>| range.map(|number| number as u8);
    assert!(into[50..].iter().copied().eq(numbers(0..750)));
    drop(ring.drain(..20));
    assert!(ring.iter().copied().eq(numbers(770..800)));
    drop(ring);
    watched.assert_empty();
}
