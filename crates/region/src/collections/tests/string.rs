use super::{Watched, cases};
use crate::collections::{Box, String};
use proptest::prelude::*;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[derive(Clone, Debug)]
enum Op {
    Push(char),
    PushStr(std::string::String),
    Pop,
    Insert(usize, char),
    InsertStr(usize, std::string::String),
    Remove(usize),
    Truncate(usize),
    Retain,
    SplitOff(usize),
    ReplaceRange(usize, usize, std::string::String),
    Upper,
    Clear,
    Write(u32),
}

fn op() -> impl Strategy<Value = Op> {
    let (text, at) = (|| "[aé€𝄞]{0,20}", || any::<usize>());
    prop_oneof![
        3 => any::<char>().prop_map(Op::Push),
        4 => text().prop_map(Op::PushStr),
        2 => Just(Op::Pop),
        2 => (at(), any::<char>()).prop_map(|(a, c)| Op::Insert(a, c)),
        2 => (at(), text()).prop_map(|(a, t)| Op::InsertStr(a, t)),
        2 => at().prop_map(Op::Remove),
        1 => at().prop_map(Op::Truncate),
        1 => Just(Op::Retain),
        1 => at().prop_map(Op::SplitOff),
        2 => (at(), at(), text()).prop_map(|(a, b, t)| Op::ReplaceRange(a, b, t)),
        1 => Just(Op::Upper),
        1 => Just(Op::Clear),
        1 => any::<u32>().prop_map(Op::Write),
    ]
}

fn step(op: &Op, ours: &mut Box<String>, theirs: &mut std::string::String) {
    let bounds: std::vec::Vec<usize> = (0..=theirs.len())
        .filter(|&i| theirs.is_char_boundary(i))
        .collect();
    let bound = |at: usize| bounds[at % bounds.len()];
    match op {
        Op::Push(c) => (ours.push(*c), theirs.push(*c)).0,
        Op::PushStr(t) => (ours.push_str(t), theirs.push_str(t)).0,
        Op::Pop => assert_eq!(ours.pop(), theirs.pop()),
        Op::Insert(at, c) => (ours.insert(bound(*at), *c), theirs.insert(bound(*at), *c)).0,
        Op::InsertStr(at, t) => (ours.insert_str(bound(*at), t), theirs.insert_str(bound(*at), t)).0,
        Op::Remove(at) if bound(*at) < theirs.len() => {
            assert_eq!(ours.remove(bound(*at)), theirs.remove(bound(*at)));
        }
        Op::Remove(_) => {}
        Op::Truncate(n) => (ours.truncate(bound(*n)), theirs.truncate(bound(*n))).0,
        Op::Retain => (ours.retain(|c| c != 'é'), theirs.retain(|c| c != 'é')).0,
        Op::SplitOff(at) => assert_eq!(ours.split_off(bound(*at)), theirs.split_off(bound(*at))),
        Op::ReplaceRange(a, b, t) => {
            let (a, b) = (bound(*a).min(bound(*b)), bound(*a).max(bound(*b)));
            ours.replace_range(a..b, t);
            theirs.replace_range(a..b, t);
        }
        Op::Upper => (ours.make_ascii_uppercase(), theirs.make_ascii_uppercase()).0,
        Op::Clear => (ours.clear(), theirs.clear()).0,
        Op::Write(n) => {
            write!(**ours, "{n}").unwrap();
            write!(theirs, "{n}").unwrap();
        }
    }
}

proptest! {
    #![proptest_config(cases(60))]
    #[test]
    fn as_std(ops in prop::collection::vec(op(), 1..60)) {
        let mut watched = Watched::new();
        {
            let mut ours = Box::new_in(String::new_in(watched.heap), watched.heap);
            let mut theirs = std::string::String::new();
            for op in &ops {
                step(op, &mut ours, &mut theirs);
                assert_eq!(**ours, theirs, "after {op:?}");
                watched.check();
            }
            assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
        }
        watched.assert_empty();
    }
}

#[test]
fn bytes_that_are_no_text_are_refused() {
    let watched = Watched::new();
    let bytes = |b: &[u8]| crate::collections::Vec::from_iter_in(b.iter().copied(), watched.heap);
    assert!(String::from_utf8(bytes(&[0xff])).is_err());
    assert_eq!(String::from_utf8(bytes("né".as_bytes())).unwrap(), "né");
}

#[test]
fn a_place_that_cuts_a_character_of_a_long_text_is_told_in_few_words() {
    let watched = Watched::new();
    let cut: [fn(&mut String<'_>); 5] = [
        |text| text.insert_str(1, "x"),
        |text| text.truncate(1),
        |text| drop(text.split_off(1)),
        |text| text.replace_range(0..1, "x"),
        |text| drop(text.drain(1..2)),
    ];
    for cut in cut {
        let mut text = String::from_in(&"é".repeat(100_000), watched.heap);
        let panic = catch_unwind(AssertUnwindSafe(|| cut(&mut text))).unwrap_err();
        let said = panic.downcast::<std::string::String>().unwrap();
        assert!(said.contains("'é'") && said.len() < 1000, "{said:.1000}");
        assert_eq!(text.len(), 200_000);
    }
}
