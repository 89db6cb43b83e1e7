use super::{Census, Watched, cases, panics};
use crate::collections::{Box, VecDeque};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    PushBack(u32),
    PushFront(u32),
    PopBack,
    PopFront,
    Insert(usize, u32),
    Remove(usize),
    SwapRemove(usize, bool),
    Set(usize, u32),
    SetAll(u32),
    SetRange(usize, usize, u32),
    Extend(std::vec::Vec<u32>),
    Append(std::vec::Vec<u32>),
    Truncate(usize),
    Resize(usize, u32),
    Rotate(usize, bool),
    Retain(u32),
    SplitOff(usize),
    Drain(usize, usize, usize),
    MakeContiguous,
    ShrinkToFit,
    Reserve(usize),
    IntoIter(usize, usize),
    CloneIt,
    Clear,
}

fn op() -> impl Strategy<Value = Op> {
    let (at, value) = (any::<usize>, || 0_u32..50);
    let some = || prop::collection::vec(0_u32..50, 0..30);
    prop_oneof![
        8 => value().prop_map(Op::PushBack),
        8 => value().prop_map(Op::PushFront),
        4 => Just(Op::PopBack),
        6 => Just(Op::PopFront),
        3 => (at(), value()).prop_map(|(a, v)| Op::Insert(a, v)),
        3 => at().prop_map(Op::Remove),
        2 => (at(), any::<bool>()).prop_map(|(a, b)| Op::SwapRemove(a, b)),
        3 => (at(), value()).prop_map(|(a, v)| Op::Set(a, v)),
        1 => value().prop_map(Op::SetAll),
        1 => (at(), at(), value()).prop_map(|(a, b, v)| Op::SetRange(a, b, v)),
        3 => some().prop_map(Op::Extend),
        1 => some().prop_map(Op::Append),
        1 => at().prop_map(Op::Truncate),
        1 => (0_usize..100, value()).prop_map(|(n, v)| Op::Resize(n, v)),
        1 => (at(), any::<bool>()).prop_map(|(a, b)| Op::Rotate(a, b)),
        1 => value().prop_map(Op::Retain),
        1 => at().prop_map(Op::SplitOff),
        1 => (at(), at(), 0_usize..5).prop_map(|(a, b, n)| Op::Drain(a, b, n)),
        1 => Just(Op::MakeContiguous),
        1 => Just(Op::ShrinkToFit),
        1 => (0_usize..100).prop_map(Op::Reserve),
        1 => (0_usize..5, 0_usize..5).prop_map(|(a, b)| Op::IntoIter(a, b)),
        1 => Just(Op::CloneIt),
        1 => Just(Op::Clear),
    ]
}

type Theirs<T> = std::collections::VecDeque<T>;

fn run<T: Ord + Clone + std::fmt::Debug>(ops: &[Op], make: impl Fn(u32, &Census) -> T) {
    let (mut watched, census) = (Watched::new(), Census::default());
    let heap = watched.heap;
    {
        let mut ours = Box::new_in(VecDeque::<T>::new_in(heap), heap);
        let mut theirs = Theirs::<T>::new();
        for op in ops {
            step(op, &mut ours, &mut theirs, |v| make(v, &census));
            assert_eq!(*ours, theirs, "after {op:?}");
            assert_eq!((ours.front(), ours.back()), (theirs.front(), theirs.back()));
            watched.check();
        }
    }
    assert_eq!(census.alive(), 0);
    watched.assert_empty();
}

fn step<T: Ord + Clone + std::fmt::Debug>(
    op: &Op,
    ours: &mut Box<VecDeque<T>>,
    theirs: &mut Theirs<T>,
    make: impl Fn(u32) -> T,
) {
    let heap = ours.heap();
    let (len, within) = (theirs.len(), |at: usize| at.checked_rem(theirs.len()));
    let upto = |at: usize| at % (len + 1);
    let span = |a: usize, b: usize| upto(a).min(upto(b))..upto(a).max(upto(b));
    let all = |numbers: &[u32]| numbers.iter().map(|&n| make(n)).collect::<std::vec::Vec<T>>();
    match op {
        Op::PushBack(v) => (ours.push_back(make(*v)), theirs.push_back(make(*v))).0,
        Op::PushFront(v) => (ours.push_front(make(*v)), theirs.push_front(make(*v))).0,
        Op::PopBack => assert_eq!(ours.pop_back(), theirs.pop_back()),
        Op::PopFront => assert_eq!(ours.pop_front(), theirs.pop_front()),
        Op::Insert(at, v) => {
            (
                ours.insert(upto(*at), make(*v)),
                theirs.insert(upto(*at), make(*v)),
            )
                .0
        }
        Op::Remove(at) => assert_eq!(ours.remove(upto(*at)), theirs.remove(upto(*at))),
        Op::SwapRemove(at, true) => {
            assert_eq!(
                ours.swap_remove_back(upto(*at)),
                theirs.swap_remove_back(upto(*at))
            );
        }
        Op::SwapRemove(at, false) => {
            assert_eq!(
                ours.swap_remove_front(upto(*at)),
                theirs.swap_remove_front(upto(*at))
            );
        }
        Op::Set(at, v) => {
            if let Some(at) = within(*at) {
                ours[at] = make(*v);
                theirs[at] = make(*v);
            }
        }
        Op::SetAll(v) => {
            ours.iter_mut().for_each(|one| *one = make(*v));
            theirs.iter_mut().for_each(|one| *one = make(*v));
        }
        Op::SetRange(a, b, v) => {
            ours.range_mut(span(*a, *b)).for_each(|one| *one = make(*v));
            theirs.range_mut(span(*a, *b)).for_each(|one| *one = make(*v));
            assert!(ours.range(span(*a, *b)).eq(theirs.range(span(*a, *b))));
        }
        Op::Extend(v) => (ours.extend(all(v)), theirs.extend(all(v))).0,
        Op::Append(v) => {
            ours.append(&mut VecDeque::from_iter_in(all(v), heap));
            theirs.append(&mut all(v).into());
        }
        Op::Truncate(n) => (ours.truncate(upto(*n)), theirs.truncate(upto(*n))).0,
        Op::Resize(n, v) => (ours.resize(*n, make(*v)), theirs.resize(*n, make(*v))).0,
        Op::Rotate(n, true) => (ours.rotate_left(upto(*n)), theirs.rotate_left(upto(*n))).0,
        Op::Rotate(n, false) => (ours.rotate_right(upto(*n)), theirs.rotate_right(upto(*n))).0,
        Op::Retain(v) => {
            let limit = make(*v);
            ours.retain(|one| *one < limit);
            theirs.retain(|one| *one < limit);
        }
        Op::SplitOff(at) => assert_eq!(ours.split_off(upto(*at)), theirs.split_off(upto(*at))),
        Op::Drain(a, b, n) => {
            let (mine, yours) = (ours.drain(span(*a, *b)), theirs.drain(span(*a, *b)));
            assert!(mine.take(*n).eq(yours.take(*n)));
        }
        Op::MakeContiguous => assert_eq!(ours.make_contiguous(), theirs.make_contiguous()),
        Op::ShrinkToFit => ours.shrink_to_fit(),
        Op::Reserve(n) => ours.reserve(*n),
        Op::IntoIter(front, back) => {
            let (old, yours) = (
                std::mem::replace(&mut **ours, VecDeque::new_in(heap)),
                std::mem::take(theirs),
            );
            let (mut old, mut yours) = (old.into_iter(), yours.into_iter());
            for _ in 0..*front {
                assert_eq!(old.next(), yours.next());
            }
            for _ in 0..*back {
                assert_eq!(old.next_back(), yours.next_back());
            }
        }
        Op::CloneIt => **ours = VecDeque::clone(ours),
        Op::Clear => (ours.clear(), theirs.clear()).0,
    }
}

proptest! {
    #![proptest_config(cases(60))]
    #[test]
    fn as_std_with_numbers(ops in prop::collection::vec(op(), 1..100)) {
        run(&ops, |v, _| v);
    }
    #[test]
    fn as_std_with_large_values(ops in prop::collection::vec(op(), 1..50)) {
        run(&ops, |v, _| [u64::from(v); 30]);
    }
    #[test]
    fn as_std_with_nothing(ops in prop::collection::vec(op(), 1..50)) {
        run(&ops, |_, _| ());
    }
    #[test]
    fn as_std_with_drops_counted(ops in prop::collection::vec(op(), 1..50)) {
        run(&ops, |v, c| c.make(u64::from(v) + 1));
    }
}

#[test]
fn a_panic_in_a_drop_loses_nothing_twice() {
    type Change = fn(&mut VecDeque<super::Counted>);
    let changes: [Change; 4] = [
        |r| r.clear(),
        |r| r.truncate(2),
        |r| r.retain(|one| one.id % 2 == 0),
        |r| drop(r.drain(2..8)),
    ];
    for change in changes {
        let (mut watched, census) = (Watched::new(), Census::default());
        let mut ring = VecDeque::from_iter_in((4..=10).map(|id| census.make(id)), watched.heap);
        (1..=3).rev().for_each(|id| ring.push_front(census.make(id)));
        census.panic_at(5);
        panics(|| change(&mut ring));
        census.panic_at(0);
        watched.check();
        drop(ring);
        assert_eq!(census.alive(), 0);
        watched.assert_empty();
    }
}
