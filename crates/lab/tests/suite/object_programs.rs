//! The programs whose functions are classified for SIMPO's Tables 3 and 4 do what they are for.
#![allow(
    unreachable_pub,
    reason = "they are written as a crate of their own would have them"
)]

#[path = "../../programs/objects/bayes.rs"]
mod bayes;
#[path = "../../programs/objects/components.rs"]
mod components;
#[path = "../../programs/objects/filtering.rs"]
mod filtering;
#[path = "../../programs/objects/grep.rs"]
mod grep;
#[path = "../../programs/objects/kmeans.rs"]
mod kmeans;
#[path = "../../programs/objects/pagerank.rs"]
mod pagerank;
#[path = "../../programs/objects/sort.rs"]
mod sort;
#[path = "../../programs/objects/structures.rs"]
pub(crate) mod structures;
#[path = "../../programs/objects/wordcount.rs"]
mod wordcount;

use std::collections::{BTreeMap, VecDeque};

const TEXT: [&str; 4] = ["the cat and the dog", "a bird", "The dog sleeps", "and a cat"];

#[test]
fn words_are_counted() {
    let mut program = wordcount::WordCount::default();
    TEXT.iter().for_each(|line| program.read((*line).to_owned()));
    program.split();
    program.pair();
    program.reduce();
    let mut expected = BTreeMap::new();
    for word in TEXT.join(" ").to_lowercase().split(' ') {
        *expected.entry(word.to_owned()).or_insert(0) += 1;
    }
    assert_eq!(program.counts(), expected.into_iter().collect::<Vec<_>>());
}

#[test]
fn lines_are_sorted_and_found() {
    let mut program = sort::Sort::default();
    TEXT.iter().for_each(|line| program.read((*line).to_owned()));
    program.key();
    program.sort();
    assert_eq!(
        program.lines(),
        ["The dog sleeps", "a bird", "and a cat", "the cat and the dog"]
    );
    let mut program = grep::Grep::default();
    TEXT.iter().for_each(|line| program.read((*line).to_owned()));
    program.filter("dog".into());
    assert_eq!(program.count(), 2);
    assert_eq!(program.matching(), ["the cat and the dog", "The dog sleeps"]);
}

#[test]
fn ranks_go_to_those_who_are_linked_to() {
    let mut program = pagerank::PageRank::default();
    // All link to page 0, which links to page 1.
    (1..6).for_each(|page| program.link(page, 0));
    program.link(0, 1);
    for _ in 0..150 {
        program.join();
        program.contribute();
        program.reduce();
        program.damp();
    }
    let ranks: BTreeMap<u64, f64> = program.ranks().into_iter().collect();
    assert!((ranks.values().sum::<f64>() - 6.0).abs() < 1e-6, "{ranks:?}");
    assert!((ranks[&0] - (0.15 + 0.85 * (ranks[&1] + 4.0 * 0.15))).abs() < 1e-6);
    assert!((ranks[&1] - (0.15 + 0.85 * ranks[&0])).abs() < 1e-6);
}

#[test]
fn centres_lie_in_the_middle_of_their_points() {
    let mut program = kmeans::Kmeans::default();
    for (x, y) in [(0.0, 0.0), (2.0, 0.0), (100.0, 0.0), (102.0, 2.0)] {
        program.read(x, y);
    }
    program.start(2);
    loop {
        program.assign();
        program.reduce();
        program.average();
        if program.moved() == 0.0 {
            break;
        }
    }
    assert_eq!(program.centres(), [[1.0, 0.0], [101.0, 1.0]]);
}

#[test]
fn vertices_that_hang_together_are_of_one_component() {
    let mut program = components::Components::default();
    for (one, other) in [(5, 4), (4, 3), (9, 8), (3, 7)] {
        program.edge(one, other);
    }
    loop {
        program.send();
        if !program.receive() {
            break;
        }
    }
    assert_eq!(
        program.components(),
        [(3, 3), (4, 3), (5, 3), (7, 3), (8, 8), (9, 8)]
    );
}

#[test]
fn documents_are_of_the_class_of_their_words() {
    let mut program = bayes::Bayes::default();
    for (class, text) in [
        (1, "ball goal team"),
        (1, "team match goal"),
        (2, "vote law party"),
        (2, "law court"),
    ] {
        program.read(class, text.into());
    }
    program.count_classes();
    program.count_words();
    program.weigh_classes();
    program.weigh_words();
    assert_eq!(program.classify("Goal of the team".into()), Some(1));
    assert_eq!(program.classify("a new law".into()), Some(2));
    assert!((program.accuracy() - 1.0).abs() < 1e-9);
}

#[test]
fn what_others_like_is_recommended() {
    let mut program = filtering::Filtering::default();
    for (user, item, rating) in [
        (1, 10, 5.0),
        (1, 11, 5.0),
        (1, 12, 1.0),
        (2, 10, 4.0),
        (2, 11, 5.0),
        (2, 12, 2.0),
        (3, 10, 5.0),
        (3, 12, 1.0),
    ] {
        program.rate(user, item, rating);
    }
    program.average();
    program.multiply();
    program.normalize();
    assert_eq!(program.recommend(3, 1), [11]);
    assert!(program.predict(3, 11) > program.predict(3, 12));
    assert!(program.error() < 2.0, "{}", program.error());
}

#[test]
fn structures_do_what_their_models_do() {
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut queue, mut stack, mut heap, mut tree) = (
        structures::Queue::default(),
        structures::Stack::default(),
        structures::Heap::default(),
        structures::Tree::default(),
    );
    let (mut fifo, mut lifo, mut sorted) = (VecDeque::new(), Vec::new(), Vec::new());
    let mut set = std::collections::BTreeSet::new();
    for _ in 0..5000 {
        let value = random.i64(0..100);
        match random.u8(..6) {
            0 if random.u8(..50) == 0 => {
                queue.clear_queue();
                fifo.clear();
            }
            0..=2 => {
                if !queue.is_full() {
                    queue.en_queue(value);
                    fifo.push_back(value);
                }
                if lifo.len() < structures::ROOM {
                    stack.push(value);
                    lifo.push(value);
                }
                if heap.get_num_elements() < structures::ROOM {
                    heap.en_heap(value);
                    sorted.push(value);
                    sorted.sort_unstable_by(|one, other| other.cmp(one));
                }
                tree.insert_element(value);
                set.insert(value);
            }
            3 => {
                tree.delete_element(value);
                set.remove(&value);
            }
            4 if random.u8(..20) == 0 => tree.balance(),
            _ => {
                assert_eq!(queue.de_queue(), fifo.pop_front(), "seed {seed}");
                assert_eq!(stack.peek(), lifo.last().copied(), "seed {seed}");
                assert_eq!(stack.pop(), lifo.pop(), "seed {seed}");
                assert_eq!(heap.de_heap(), sorted.pop(), "seed {seed}");
            }
        }
        assert_eq!(tree.search_element(value), set.contains(&value), "seed {seed}");
        assert_eq!(
            (queue.is_empty(), stack.is_empty()),
            (fifo.is_empty(), lifo.is_empty())
        );
    }
    let mut graph = structures::Graph::default();
    graph.joinwt(1, 2, 7);
    assert_eq!((graph.adjacent(1, 2), graph.adjacent(2, 1)), (Some(7), None));
    graph.removewt(1, 2);
    assert_eq!(graph.adjacent(1, 2), None);
    let mut array = structures::Array::default();
    array.increase_all(2);
    array.print_all();
    array.zero();
    heap.print_all();
}
