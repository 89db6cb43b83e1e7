use super::{Census, Watched, cases, panics};
use crate::collections::{Box, Vec};
use proptest::prelude::*;
use twinpage_core::buffer::Buffer;

#[derive(Clone, Debug)]
enum Op {
    Push(u32),
    Pop,
    Insert(usize, u32),
    Remove(usize),
    SwapRemove(usize),
    Swap(usize, usize),
    Truncate(usize),
    Extend(std::vec::Vec<u32>),
    ExtendFromSlice(std::vec::Vec<u32>),
    ExtendFromWithin(usize, usize),
    Set(usize, u32),
    SetAll(u32),
    Sort,
    Retain(u32),
    RetainMut(u32),
    Dedup,
    DedupByKey,
    Drain(usize, usize, usize),
    SplitOff(usize),
    Resize(usize, u32),
    Append(std::vec::Vec<u32>),
    ShrinkToFit,
    Reserve(usize),
    CloneIt,
    IntoIter(usize, usize),
    Clear,
}

fn op() -> impl Strategy<Value = Op> {
    let at = || any::<prop::sample::Index>().prop_map(|i| i.index(1 << 20));
    let some = || prop::collection::vec(0_u32..50, 0..30);
    let value = || 0_u32..50;
    prop_oneof![
        8 => value().prop_map(Op::Push),
        2 => Just(Op::Pop),
        3 => (at(), value()).prop_map(|(a, v)| Op::Insert(a, v)),
        2 => at().prop_map(Op::Remove),
        2 => at().prop_map(Op::SwapRemove),
        2 => (at(), at()).prop_map(|(a, b)| Op::Swap(a, b)),
        1 => at().prop_map(Op::Truncate),
        3 => some().prop_map(Op::Extend),
        2 => some().prop_map(Op::ExtendFromSlice),
        1 => (at(), at()).prop_map(|(a, b)| Op::ExtendFromWithin(a, b)),
        3 => (at(), value()).prop_map(|(a, v)| Op::Set(a, v)),
        1 => value().prop_map(Op::SetAll),
        1 => Just(Op::Sort),
        1 => value().prop_map(Op::Retain),
        1 => value().prop_map(Op::RetainMut),
        1 => Just(Op::Dedup),
        1 => Just(Op::DedupByKey),
        1 => (at(), at(), 0_usize..10).prop_map(|(a, b, n)| Op::Drain(a, b, n)),
        1 => at().prop_map(Op::SplitOff),
        1 => (0_usize..200, value()).prop_map(|(n, v)| Op::Resize(n, v)),
        1 => some().prop_map(Op::Append),
        1 => Just(Op::ShrinkToFit),
        1 => (0_usize..300).prop_map(Op::Reserve),
        1 => Just(Op::CloneIt),
        1 => (0_usize..5, 0_usize..5).prop_map(|(a, b)| Op::IntoIter(a, b)),
        1 => Just(Op::Clear),
    ]
}

/// A value made from a number, so that the same operations run on small, large and empty ones.
trait Value: Clone + PartialEq + Ord + std::fmt::Debug {
    fn make(number: u32, census: &Census) -> Self;
}

impl Value for u32 {
    fn make(number: u32, _: &Census) -> u32 {
        number
    }
}

impl Value for () {
    fn make(_: u32, _: &Census) {}
}

impl Value for [u64; 40] {
    fn make(number: u32, _: &Census) -> [u64; 40] {
        [u64::from(number); 40]
    }
}

impl Value for super::Counted {
    fn make(number: u32, census: &Census) -> super::Counted {
        census.make(u64::from(number) + 1)
    }
}

fn run<T: Value>(ops: &[Op]) {
    let (mut watched, census) = (Watched::new(), Census::default());
    let heap = watched.heap;
    {
        let mut ours = Box::new_in(Vec::<T>::new_in(heap), heap);
        let mut theirs = std::vec::Vec::<T>::new();
        for op in ops {
            step(op, &mut ours, &mut theirs, &census);
            assert_eq!(*ours, theirs, "after {op:?}");
            watched.check();
        }
    }
    assert_eq!(census.alive(), 0);
    watched.assert_empty();
    watched.check();
}

fn step<T: Value>(op: &Op, ours: &mut Box<Vec<T>>, theirs: &mut std::vec::Vec<T>, census: &Census) {
    let heap = ours.heap();
    let make = |number: u32| T::make(number, census);
    let all = |numbers: &[u32]| numbers.iter().map(|&n| make(n)).collect::<std::vec::Vec<T>>();
    let (len, within) = (theirs.len(), |at: usize| at.checked_rem(theirs.len()));
    let upto = |at: usize| at % (len + 1);
    match op {
        Op::Push(v) => (ours.push(make(*v)), theirs.push(make(*v))).0,
        Op::Pop => assert_eq!(ours.pop(), theirs.pop()),
        Op::Insert(at, v) => {
            (
                ours.insert(upto(*at), make(*v)),
                theirs.insert(upto(*at), make(*v)),
            )
                .0
        }
        Op::Remove(at) => {
            if let Some(at) = within(*at) {
                assert_eq!(ours.remove(at), theirs.remove(at));
            }
        }
        Op::SwapRemove(at) => {
            if let Some(at) = within(*at) {
                assert_eq!(ours.swap_remove(at), theirs.swap_remove(at));
            }
        }
        Op::Swap(a, b) => {
            if let (Some(a), Some(b)) = (within(*a), within(*b)) {
                ours.swap(a, b);
                theirs.swap(a, b);
            }
        }
        Op::Truncate(n) => (ours.truncate(upto(*n)), theirs.truncate(upto(*n))).0,
        Op::Extend(v) => (ours.extend(all(v)), theirs.extend(all(v))).0,
        Op::ExtendFromSlice(v) => (ours.extend_from_slice(&all(v)), theirs.extend_from_slice(&all(v))).0,
        Op::ExtendFromWithin(a, b) if len < 500 => {
            let (a, b) = (upto(*a).min(upto(*b)), upto(*a).max(upto(*b)));
            ours.extend_from_within(a..b);
            theirs.extend_from_within(a..b);
        }
        Op::ExtendFromWithin(..) => {}
        Op::Set(at, v) => {
            if let Some(at) = within(*at) {
                ours[at] = make(*v);
                *theirs.get_mut(at).unwrap() = make(*v);
                assert_eq!(ours.get_mut(at), theirs.get_mut(at));
                assert_eq!(ours.first_mut(), theirs.first_mut());
                assert_eq!(ours.last_mut(), theirs.last_mut());
            }
        }
        Op::SetAll(v) => {
            ours.iter_mut().for_each(|one| *one = make(*v));
            theirs.iter_mut().for_each(|one| *one = make(*v));
        }
        Op::Sort => (ours.sort(), theirs.sort()).0,
        Op::Retain(v) => {
            let limit = make(*v);
            ours.retain(|one| *one < limit);
            theirs.retain(|one| *one < limit);
        }
        Op::RetainMut(v) => {
            let (limit, other) = (make(*v), make(7));
            let test = |one: &mut T| {
                let keep = *one < limit;
                *one = other.clone();
                keep
            };
            ours.retain_mut(test);
            theirs.retain_mut(test);
        }
        Op::Dedup => (ours.dedup(), theirs.dedup()).0,
        Op::DedupByKey => {
            let middle = make(25);
            ours.dedup_by_key(|one| *one < middle);
            theirs.dedup_by_key(|one| *one < middle);
        }
        Op::Drain(a, b, n) => {
            let (a, b) = (upto(*a).min(upto(*b)), upto(*a).max(upto(*b)));
            let (mut mine, mut yours) = (ours.drain(a..b), theirs.drain(a..b));
            for step in 0..*n {
                match step % 3 {
                    0 => assert_eq!(mine.next_back(), yours.next_back()),
                    _ => assert_eq!(mine.next(), yours.next()),
                }
            }
            assert_eq!(mine.len(), yours.len());
        }
        Op::SplitOff(at) => assert_eq!(ours.split_off(upto(*at)), theirs.split_off(upto(*at))),
        Op::Resize(n, v) => (ours.resize(*n, make(*v)), theirs.resize(*n, make(*v))).0,
        Op::Append(v) => {
            let mut more = Vec::from_iter_in(all(v), heap);
            ours.append(&mut more);
            assert!(more.is_empty());
            theirs.append(&mut all(v));
        }
        Op::ShrinkToFit => {
            ours.shrink_to_fit();
            assert!(size_of::<T>() == 0 || ours.capacity() == len);
        }
        Op::Reserve(n) => {
            ours.reserve(*n);
            assert!(ours.capacity() >= len + n);
        }
        Op::CloneIt => **ours = Vec::clone(ours),
        Op::IntoIter(front, back) => {
            let (old, yours) = (
                std::mem::replace(&mut **ours, Vec::new_in(heap)),
                std::mem::take(theirs),
            );
            let (mut old, mut yours) = (old.into_iter(), yours.into_iter());
            for _ in 0..*front {
                assert_eq!(old.next(), yours.next());
            }
            for _ in 0..*back {
                assert_eq!(old.next_back(), yours.next_back());
            }
            assert_eq!(old.as_slice(), yours.as_slice());
        }
        Op::Clear => (ours.clear(), theirs.clear()).0,
    }
}

proptest! {
    #![proptest_config(cases(60))]
    #[test]
    fn as_std_with_numbers(ops in prop::collection::vec(op(), 1..60)) {
        run::<u32>(&ops);
    }
    #[test]
    fn as_std_with_large_values(ops in prop::collection::vec(op(), 1..60)) {
        run::<[u64; 40]>(&ops);
    }
    #[test]
    fn as_std_with_nothing(ops in prop::collection::vec(op(), 1..60)) {
        run::<()>(&ops);
    }
    #[test]
    fn as_std_with_drops_counted(ops in prop::collection::vec(op(), 1..60)) {
        run::<super::Counted>(&ops);
    }
}

#[test]
fn a_panic_in_a_drop_or_a_test_loses_nothing_twice() {
    type Change = fn(&mut Vec<super::Counted>);
    let changes: [Change; 9] = [
        |v| v.clear(),
        |v| v.truncate(2),
        |v| drop(v.drain(2..7)),
        |v| v.retain(|one| one.id % 2 == 0),
        |v| v.dedup_by_key(|one| one.id / 3),
        |v| v.dedup(),
        |v| drop(v.clone()),
        |v| drop(std::mem::replace(v, Vec::new_in(v.heap()))),
        |v| drop(std::mem::replace(v, Vec::new_in(v.heap())).into_iter().nth(2)),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let (mut watched, census) = (Watched::new(), Census::default());
        let mut vec = Vec::from_iter_in((1..=10).map(|id| census.make(id)), watched.heap);
        census.panic_at(5);
        panics(|| change(&mut vec));
        watched.check();
        assert!(vec.iter().all(|one| (1..=10).contains(&one.id)));
        census.panic_at(0);
        drop(vec);
        assert_eq!(census.alive(), 0, "change {number}");
        watched.assert_empty();
    }
}

#[test]
fn only_what_is_changed_is_marked() {
    let mut watched = Watched::new();
    let mut vec = Vec::from_iter_in(0..100_000_u64, watched.heap);
    watched.check();
    vec.swap(10, 90_000);
    vec[50_000] = 1;
    *vec.get_mut(70_000).unwrap() = 1;
    vec[20_000..20_008].fill(3);
    let (place, mut lines, mut buffer) = (watched.window.place(), 0, Buffer::default());
    let mut frozen = crate::marks::cut(place);
    while let Some((_, marked)) = frozen.next_page(&mut buffer) {
        lines += marked.count_ones();
    }
    assert_eq!(lines, 5);
}

#[test]
fn a_bound_is_an_error_first() {
    let watched = Watched::new();
    watched.window.place().set_bound(crate::zone::STEP);
    let mut vec = Vec::<u64>::from_iter_in([1, 2, 3], watched.heap);
    assert!(vec.try_reserve(1 << 20).is_err());
    assert!(vec.try_reserve(usize::MAX).is_err());
    panics(|| vec.reserve(1 << 20));
    assert_eq!(vec, [1, 2, 3]);
    vec.push(4);
}
