//! The six structures of SIMPO's Table 3 beside those of `std`: call by call, and after a kill at any instant.

use crate::support::{again, folders, when_free};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;
use twinpage::Region;
use twinpage::objects::structures::{
    Array, ArrayHandle, Graph, GraphHandle, PriorityQueue, PriorityQueueHandle, Queue, QueueHandle, Stack,
    StackHandle, Tree, TreeHandle,
};

const FILE: &str = "TWINPAGE_TEST_STRUCTURES";
const SEED: &str = "TWINPAGE_SEED";
const LENGTH: usize = 20;
const ROOM: usize = 12;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Call {
    Increase(i64),
    Zero,
    Set(usize, i64),
    Get(usize),
    Enqueue(i64),
    TryEnqueue(i64),
    Clear,
    Dequeue,
    IsEmpty,
    IsFull,
    PushHeap(i64),
    PopHeap,
    Len,
    HeapIsEmpty,
    Push(i64),
    Pop,
    Peek,
    StackIsEmpty,
    Insert(i64),
    Delete(i64),
    Balance,
    Contains(i64),
    Join(u64, u64, i64),
    Remove(u64, u64),
    Adjacent(u64, u64),
    EdgesOf(u64),
}

fn draw(chance: &mut fastrand::Rng) -> Call {
    let (number, place) = (chance.i64(-40..40), chance.usize(..LENGTH + 2));
    let (from, to) = (chance.u64(..6), chance.u64(..6));
    match chance.u8(..30) {
        0 => Call::Increase(number),
        1 if number > 30 => Call::Zero,
        1 | 2 => Call::Set(place, number),
        3 => Call::Get(place),
        4..=6 => Call::Enqueue(number),
        7 => Call::TryEnqueue(number),
        8 if number > 30 => Call::Clear,
        8 | 9 => Call::Dequeue,
        10 if number < 0 => Call::IsEmpty,
        10 => Call::IsFull,
        11..=13 => Call::PushHeap(number),
        14 | 15 => Call::PopHeap,
        16 if number < -20 => Call::Len,
        16 if number < 0 => Call::HeapIsEmpty,
        16..=18 => Call::Push(number),
        19 => Call::Pop,
        20 if number < 0 => Call::Peek,
        20 => Call::StackIsEmpty,
        21..=23 => Call::Insert(number),
        24 if number > 20 => Call::Balance,
        24 | 25 => Call::Delete(number),
        26 => Call::Contains(number),
        27 => Call::Join(from, to, number),
        28 if number > 10 => Call::Remove(from, to),
        28 => Call::Adjacent(from, to),
        _ => Call::EdgesOf(from),
    }
}

/// Of `std`, one of each.
#[derive(Default)]
struct Model {
    array: Vec<i64>,
    queue: VecDeque<i64>,
    heap: BinaryHeap<i64>,
    stack: Vec<i64>,
    tree: BTreeSet<i64>,
    graph: BTreeMap<(u64, u64), i64>,
}

type Edges = Vec<(u64, i64)>;

fn edges_of(graph: &BTreeMap<(u64, u64), i64>, from: u64) -> Edges {
    let edges = graph.range((from, 0)..=(from, u64::MAX));
    edges.map(|((_, to), weight)| (*to, *weight)).collect()
}

impl Model {
    fn new() -> Model {
        Model {
            array: vec![0; LENGTH],
            ..Model::default()
        }
    }

    /// What an instant call answers, printed; nothing for a deferrable one.
    fn call(&mut self, call: Call) -> String {
        let mut answer = String::new();
        let mut tell = |what: &dyn std::fmt::Debug| answer = format!("{what:?}");
        match call {
            Call::Increase(by) => self.array.iter_mut().for_each(|element| *element += by),
            Call::Zero => self.array.fill(0),
            Call::Set(place, value) => {
                if let Some(element) = self.array.get_mut(place) {
                    *element = value;
                }
            }
            Call::Get(place) => tell(&self.array.get(place).copied()),
            Call::Enqueue(value) if self.queue.len() < ROOM => self.queue.push_back(value),
            Call::Enqueue(_) => {}
            Call::TryEnqueue(value) => {
                let fits = self.queue.len() < ROOM;
                self.queue.extend(fits.then_some(value));
                tell(&fits);
            }
            Call::Clear => self.queue.clear(),
            Call::Dequeue => tell(&self.queue.pop_front()),
            Call::IsEmpty => tell(&self.queue.is_empty()),
            Call::IsFull => tell(&(self.queue.len() == ROOM)),
            Call::PushHeap(value) => self.heap.push(value),
            Call::PopHeap => tell(&self.heap.pop()),
            Call::Len => tell(&self.heap.len()),
            Call::HeapIsEmpty => tell(&self.heap.is_empty()),
            Call::Push(value) => self.stack.push(value),
            Call::Pop => tell(&self.stack.pop()),
            Call::Peek => tell(&self.stack.last().copied()),
            Call::StackIsEmpty => tell(&self.stack.is_empty()),
            Call::Insert(value) => drop(self.tree.insert(value)),
            Call::Delete(value) => drop(self.tree.remove(&value)),
            Call::Balance => {}
            Call::Contains(value) => tell(&self.tree.contains(&value)),
            Call::Join(from, to, weight) => drop(self.graph.insert((from, to), weight)),
            Call::Remove(from, to) => drop(self.graph.remove(&(from, to))),
            Call::Adjacent(from, to) => tell(&self.graph.get(&(from, to)).copied()),
            Call::EdgesOf(from) => tell(&edges_of(&self.graph, from)),
        }
        answer
    }

    fn all(&self) -> String {
        let mut heap = self.heap.clone().into_sorted_vec();
        heap.reverse();
        let tree: Vec<i64> = self.tree.iter().copied().collect();
        let graph: Vec<Edges> = (0..6).map(|from| edges_of(&self.graph, from)).collect();
        format!("{:?} {heap:?} {tree:?} {graph:?}", self.array)
    }
}

/// Of a region, one of each.
struct Objects {
    array: ArrayHandle,
    queue: QueueHandle,
    heap: PriorityQueueHandle,
    stack: StackHandle,
    tree: TreeHandle,
    graph: GraphHandle,
}

impl Objects {
    // The functions by themselves are for one lifetime each, and do not fit.
    #[allow(clippy::redundant_closure)]
    fn open(region: &Region) -> Objects {
        Objects {
            array: region
                .object::<Array>("array", |u| Array::new_in(u, LENGTH))
                .unwrap(),
            queue: region
                .object::<Queue>("queue", |u| Queue::new_in(u, ROOM))
                .unwrap(),
            heap: region
                .object::<PriorityQueue>("heap", |u| PriorityQueue::new_in(u))
                .unwrap(),
            stack: region.object::<Stack>("stack", |u| Stack::new_in(u)).unwrap(),
            tree: region.object::<Tree>("tree", |u| Tree::new_in(u)).unwrap(),
            graph: region.object::<Graph>("graph", |u| Graph::new_in(u)).unwrap(),
        }
    }

    fn call(&self, call: Call) -> String {
        let mut answer = String::new();
        let mut tell = |what: &dyn std::fmt::Debug| answer = format!("{what:?}");
        match call {
            Call::Increase(by) => self.array.increase_all(by),
            Call::Zero => self.array.zero(),
            Call::Set(place, value) => self.array.set(place, value),
            Call::Get(place) => tell(&self.array.get(place).unwrap()),
            Call::Enqueue(value) => self.queue.enqueue(value),
            Call::TryEnqueue(value) => tell(&self.queue.try_enqueue(value).unwrap()),
            Call::Clear => self.queue.clear(),
            Call::Dequeue => tell(&self.queue.dequeue().unwrap()),
            Call::IsEmpty => tell(&self.queue.is_empty().unwrap()),
            Call::IsFull => tell(&self.queue.is_full().unwrap()),
            Call::PushHeap(value) => self.heap.push(value),
            Call::PopHeap => tell(&self.heap.pop().unwrap()),
            Call::Len => tell(&self.heap.len().unwrap()),
            Call::HeapIsEmpty => tell(&self.heap.is_empty().unwrap()),
            Call::Push(value) => self.stack.push(value),
            Call::Pop => tell(&self.stack.pop().unwrap()),
            Call::Peek => tell(&self.stack.peek().unwrap()),
            Call::StackIsEmpty => tell(&self.stack.is_empty().unwrap()),
            Call::Insert(value) => self.tree.insert(value),
            Call::Delete(value) => self.tree.delete(value),
            Call::Balance => self.tree.balance(),
            Call::Contains(value) => tell(&self.tree.contains(value).unwrap()),
            Call::Join(from, to, weight) => self.graph.join(from, to, weight),
            Call::Remove(from, to) => self.graph.remove(from, to),
            Call::Adjacent(from, to) => tell(&self.graph.adjacent(from, to).unwrap()),
            Call::EdgesOf(from) => tell(&self.graph.edges_of(from).unwrap()),
        }
        answer
    }

    fn all(&self) -> String {
        let graph: Vec<Edges> = (0..6).map(|from| self.graph.edges_of(from).unwrap()).collect();
        format!(
            "{:?} {:?} {:?} {graph:?}",
            self.array.all().unwrap(),
            self.heap.all().unwrap(),
            self.tree.all().unwrap()
        )
    }

    /// Everything that is in the queue and on the stack, taken out.
    fn drained(&self) -> (Vec<i64>, Vec<i64>) {
        let queue = std::iter::from_fn(|| self.queue.dequeue().unwrap());
        let queue = queue.collect();
        let stack = std::iter::from_fn(|| self.stack.pop().unwrap());
        (queue, stack.collect())
    }
}

fn open(path: &Path) -> Region {
    when_free(|| Region::open(path))
}

#[test]
fn they_do_as_those_of_std() {
    let seed = twinpage_campaign::seed();
    for folder in folders() {
        let path = folder.path().join("six.twin");
        let (mut chance, mut model) = (fastrand::Rng::with_seed(seed), Model::new());
        for _ in 0..3 {
            let region = open(&path);
            let objects = Objects::open(&region);
            for _ in 0..2000 {
                let call = draw(&mut chance);
                assert_eq!(objects.call(call), model.call(call), "{call:?}; {SEED}={seed}");
                if call == Call::Balance {
                    let least = (model.tree.len() + 1).next_power_of_two().ilog2();
                    assert_eq!(objects.tree.height().unwrap(), least as usize, "{SEED}={seed}");
                }
            }
            assert_eq!(objects.all(), model.all(), "{SEED}={seed}");
            assert!(region.check().unwrap().is_sound());
            region.close().unwrap();
        }
    }
}

/// Calls as the seed draws them, one after the other. The answer to each instant call is told.
fn call_for_ever(path: &Path, seed: u64) {
    let region = open(path);
    let objects = Objects::open(&region);
    let mut chance = fastrand::Rng::with_seed(seed);
    let mut out = std::io::stdout().lock();
    for number in 0_u64.. {
        if !objects.call(draw(&mut chance)).is_empty() {
            writeln!(out, "after {number}").unwrap();
        }
    }
}

#[test]
fn after_a_kill_they_have_every_call_up_to_one_behind_the_last_answer() {
    const NAME: &str = "after_a_kill_they_have_every_call_up_to_one_behind_the_last_answer";
    let seed = twinpage_campaign::seed();
    if let Some(path) = std::env::var_os(FILE) {
        return call_for_ever(path.as_ref(), seed);
    }
    let long = twinpage_campaign::is_long();
    let mut kills = fastrand::Rng::with_seed(seed);
    for round in 0..if long { 100 } else { 6 } {
        let seed = seed + round;
        for folder in folders() {
            let path = folder.path().join("six.twin");
            let mut child = again(module_path!(), NAME)
                .env(FILE, &path)
                .env(SEED, seed.to_string())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut told = BufReader::new(child.stdout.take().unwrap()).lines();
            let answers = kills.usize(1..200);
            let mut last = None;
            for line in told.by_ref().map_while(Result::ok) {
                last = line
                    .strip_prefix("after ")
                    .map(|number| number.parse().unwrap())
                    .or(last);
                if last.is_some_and(|last: usize| last > answers) {
                    break;
                }
            }
            child.kill().unwrap();
            for line in told.map_while(Result::ok) {
                last = line
                    .strip_prefix("after ")
                    .and_then(|number| number.parse().ok())
                    .or(last);
            }
            child.wait().unwrap();
            holds_a_prefix(&path, seed, last.expect("it answered"));
        }
    }
}

fn holds_a_prefix(path: &Path, seed: u64, answered: usize) {
    const MOST_BEHIND: usize = 3000;
    let region = open(path);
    let objects = Objects::open(&region);
    let (all, (queue, stack)) = (objects.all(), objects.drained());
    let (mut chance, mut model) = (fastrand::Rng::with_seed(seed), Model::new());
    (0..=answered).for_each(|_| drop(model.call(draw(&mut chance))));
    for _ in 0..MOST_BEHIND {
        let on_stack = model.stack.iter().rev().copied();
        if model.all() == all && model.queue == queue && on_stack.eq(stack.iter().copied()) {
            return;
        }
        model.call(draw(&mut chance));
    }
    panic!("no call behind number {answered} leaves what is there: {all}; {SEED}={seed}");
}
