//! Six structures as persistent objects: those of SIMPO's Table 3, with its functions, each of the class that the table
//! gives it. They hold whole numbers and grow with what is put in.
//!
//! * What returns nothing is deferrable: it is logged, and nothing is flushed for it. What answers is instant.
//! * Where a deferrable function cannot do its work (there is no such place, the queue is full), it does nothing; the
//!   instant one beside it (`try_enqueue`, `len`) tells.
//!
//! ```
//! # let folder = tempfile::tempdir()?;
//! # std::env::set_current_dir(folder.path())?;
//! use twinpage::Region;
//! use twinpage::objects::structures::Queue;
//!
//! let region = Region::open("jobs.twin")?;
//! let jobs = region.object::<Queue>("jobs", |u| Queue::new_in(u, 1000))?;
//! jobs.enqueue(7); // logged, not run
//! jobs.enqueue(8);
//! assert_eq!(jobs.dequeue()?, Some(7)); // one flush: all three are durable
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::collections::{BTreeMap, BinaryHeap, Vec as List, VecDeque};
use crate::region::Update;
use std::ops::Bound;
use twinpage_macros::Persist;

/// Numbers by place.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// use twinpage::objects::structures::Array;
///
/// let region = twinpage::Region::open(folder.path().join("points.twin"))?;
/// let points = region.object::<Array>("points", |u| Array::new_in(u, 500))?;
/// points.increase_all(3); // logged, not run
/// assert_eq!(points.get(7)?, Some(3)); // it waits for what was logged
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Persist, Debug)]
pub struct Array<'r> {
    elements: List<'r, i64>,
}

#[twinpage_macros::object]
impl<'r> Array<'r> {
    /// `length` zeros.
    pub fn new_in(u: &Update<'r>, length: usize) -> Array<'r> {
        Array {
            elements: u.collect(std::iter::repeat_n(0, length)),
        }
    }

    /// Adds to every element; beyond the range of `i64` it goes on from the other end.
    pub fn increase_all(&mut self, by: i64) {
        for element in &mut self.elements {
            *element = element.wrapping_add(by);
        }
    }

    /// Makes every element 0.
    pub fn zero(&mut self) {
        self.elements.fill(0);
    }

    /// Puts a number in a place; nothing where there is no such place.
    pub fn set(&mut self, place: usize, value: i64) {
        if let Some(element) = self.elements.get_mut(place) {
            *element = value;
        }
    }

    /// The number in a place; `None` where there is no such place.
    pub fn get(&self, place: usize) -> Option<i64> {
        self.elements.get(place).copied()
    }

    /// All elements, to be printed, as it may be.
    pub fn all(&self) -> Vec<i64> {
        self.elements.to_vec()
    }
}

/// First in, first out.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// use twinpage::objects::structures::Queue;
///
/// let region = twinpage::Region::open(folder.path().join("jobs.twin"))?;
/// let jobs = region.object::<Queue>("jobs", |u| Queue::new_in(u, 2))?;
/// jobs.enqueue(7);
/// jobs.enqueue(8);
/// assert!(!jobs.try_enqueue(9)?, "it is full");
/// assert_eq!(jobs.dequeue()?, Some(7));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Persist, Debug)]
pub struct Queue<'r> {
    elements: VecDeque<'r, i64>,
    room: usize,
}

#[twinpage_macros::object]
impl<'r> Queue<'r> {
    /// An empty one, for `room` numbers at most.
    pub fn new_in(u: &Update<'r>, room: usize) -> Queue<'r> {
        Queue {
            elements: VecDeque::new_in(u.heap()),
            room,
        }
    }

    /// Puts one in; a full queue stays as it is.
    pub fn enqueue(&mut self, value: i64) {
        if self.elements.len() < self.room {
            self.elements.push_back(value);
        }
    }

    /// The same; whether there was room.
    pub fn try_enqueue(&mut self, value: i64) -> bool {
        let fits = self.elements.len() < self.room;
        self.enqueue(value);
        fits
    }

    /// Takes all out.
    pub fn clear(&mut self) {
        self.elements.clear();
    }

    /// Takes the oldest out.
    pub fn dequeue(&mut self) -> Option<i64> {
        self.elements.pop_front()
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }

    /// Whether there is no room.
    pub fn is_full(&self) -> bool {
        self.elements.len() >= self.room
    }
}

/// The greatest comes first.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// use twinpage::objects::structures::PriorityQueue;
///
/// let region = twinpage::Region::open(folder.path().join("bids.twin"))?;
/// let bids = region.object::<PriorityQueue>("bids", |u| PriorityQueue::new_in(u))?;
/// bids.push(3);
/// bids.push(5);
/// assert_eq!(bids.pop()?, Some(5));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Persist, Debug)]
pub struct PriorityQueue<'r> {
    elements: BinaryHeap<'r, i64>,
}

#[twinpage_macros::object]
impl<'r> PriorityQueue<'r> {
    /// An empty one.
    pub fn new_in(u: &Update<'r>) -> PriorityQueue<'r> {
        PriorityQueue {
            elements: BinaryHeap::new_in(u.heap()),
        }
    }

    /// Puts one in.
    pub fn push(&mut self, value: i64) {
        self.elements.push(value);
    }

    /// Takes the greatest out.
    pub fn pop(&mut self) -> Option<i64> {
        self.elements.pop()
    }

    /// How many are in it.
    pub fn len(&self) -> usize {
        self.elements.len()
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }

    /// All of them, the greatest first, to be printed, as it may be.
    pub fn all(&self) -> Vec<i64> {
        let mut all = self.elements.as_slice().to_vec();
        all.sort_unstable_by(|one, other| other.cmp(one));
        all
    }
}

/// Last in, first out.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// use twinpage::objects::structures::Stack;
///
/// let region = twinpage::Region::open(folder.path().join("steps.twin"))?;
/// let steps = region.object::<Stack>("steps", |u| Stack::new_in(u))?;
/// steps.push(1);
/// steps.push(2);
/// assert_eq!(steps.pop()?, Some(2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Persist, Debug)]
pub struct Stack<'r> {
    elements: List<'r, i64>,
}

#[twinpage_macros::object]
impl<'r> Stack<'r> {
    /// An empty one.
    pub fn new_in(u: &Update<'r>) -> Stack<'r> {
        Stack {
            elements: List::new_in(u.heap()),
        }
    }

    /// Puts one on top.
    pub fn push(&mut self, value: i64) {
        self.elements.push(value);
    }

    /// Takes the top off.
    pub fn pop(&mut self) -> Option<i64> {
        self.elements.pop()
    }

    /// The top.
    pub fn peek(&self) -> Option<i64> {
        self.elements.last().copied()
    }

    /// Whether nothing is on it.
    pub fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }
}

/// A place of a tree. Places below have numbers; [`NOWHERE`]: there is none.
#[derive(Persist, Clone, Copy, Debug)]
struct Node {
    value: i64,
    less: usize,
    more: usize,
}

const NOWHERE: usize = usize::MAX;

/// A search tree of different numbers, as high as the order in which they come makes it, until it is balanced.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// use twinpage::objects::structures::Tree;
///
/// let region = twinpage::Region::open(folder.path().join("keys.twin"))?;
/// let keys = region.object::<Tree>("keys", |u| Tree::new_in(u))?;
/// (1..=7).for_each(|key| keys.insert(key));
/// keys.balance();
/// assert_eq!((keys.height()?, keys.contains(4)?), (3, true));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Persist, Debug)]
pub struct Tree<'r> {
    nodes: List<'r, Node>,
    root: usize,
    /// The first place that is free again; the next one is its `less`.
    free: usize,
    count: usize,
}

#[twinpage_macros::object]
impl<'r> Tree<'r> {
    /// An empty one.
    pub fn new_in(u: &Update<'r>) -> Tree<'r> {
        Tree {
            nodes: List::new_in(u.heap()),
            root: NOWHERE,
            free: NOWHERE,
            count: 0,
        }
    }

    /// Puts a number in, once.
    pub fn insert(&mut self, value: i64) {
        let (parent, found) = self.find(value);
        if found != NOWHERE {
            return;
        }
        let node = Node {
            value,
            less: NOWHERE,
            more: NOWHERE,
        };
        let place = self.free;
        let place = if place == NOWHERE {
            self.nodes.push(node);
            self.nodes.len() - 1
        } else {
            self.free = self.nodes[place].less;
            self.nodes[place] = node;
            place
        };
        self.hang(parent, value, place);
        self.count += 1;
    }

    /// Takes a number out.
    pub fn delete(&mut self, value: i64) {
        let (parent, found) = self.find(value);
        if found == NOWHERE {
            return;
        }
        let Node { less, more, .. } = self.nodes[found];
        if less == NOWHERE || more == NOWHERE {
            let below = if less == NOWHERE { more } else { less };
            self.hang(parent, value, below);
            self.release(found);
            return;
        }
        // The next greater number takes its place.
        let (mut above, mut next) = (found, more);
        while self.nodes[next].less != NOWHERE {
            (above, next) = (next, self.nodes[next].less);
        }
        let Node { value, more, .. } = self.nodes[next];
        self.nodes[found].value = value;
        if above == found {
            self.nodes[found].more = more;
        } else {
            self.nodes[above].less = more;
        }
        self.release(next);
    }

    /// Makes it as low as it can be.
    pub fn balance(&mut self) {
        let places = self.in_order();
        // Ranges of `places`, and where their middle is to be hung: below, and whether as the greater.
        let mut parts = vec![(0, places.len(), NOWHERE, false)];
        self.root = NOWHERE;
        while let Some((from, to, parent, is_more)) = parts.pop() {
            let middle = from + (to - from) / 2;
            let place = if from == to { NOWHERE } else { places[middle] };
            match parent {
                NOWHERE => self.root = place,
                parent if is_more => self.nodes[parent].more = place,
                parent => self.nodes[parent].less = place,
            }
            if place != NOWHERE {
                parts.push((from, middle, place, false));
                parts.push((middle + 1, to, place, true));
            }
        }
    }

    /// Whether a number is in it.
    pub fn contains(&self, value: i64) -> bool {
        self.find(value).1 != NOWHERE
    }

    /// How many numbers are on the longest way from the top.
    pub fn height(&self) -> usize {
        let mut level: Vec<usize> = Vec::from([self.root]);
        let mut height = 0;
        loop {
            level.retain(|place| *place != NOWHERE);
            if level.is_empty() {
                return height;
            }
            height += 1;
            level = level
                .iter()
                .flat_map(|place| [self.nodes[*place].less, self.nodes[*place].more])
                .collect();
        }
    }

    /// All numbers, the least first.
    pub fn all(&self) -> Vec<i64> {
        let places = self.in_order();
        places.iter().map(|place| self.nodes[*place].value).collect()
    }

    /// The place of a number, and the one above it; `NOWHERE` where there is none.
    fn find(&self, value: i64) -> (usize, usize) {
        let (mut parent, mut at) = (NOWHERE, self.root);
        while at != NOWHERE && self.nodes[at].value != value {
            let Node {
                less,
                more,
                value: here,
            } = self.nodes[at];
            (parent, at) = (at, if value < here { less } else { more });
        }
        (parent, at)
    }

    /// Hangs a place below `parent`, or at the top, where `value` belongs.
    fn hang(&mut self, parent: usize, value: i64, place: usize) {
        match parent {
            NOWHERE => self.root = place,
            parent if value < self.nodes[parent].value => self.nodes[parent].less = place,
            parent => self.nodes[parent].more = place,
        }
    }

    fn release(&mut self, place: usize) {
        self.nodes[place].less = self.free;
        self.free = place;
        self.count -= 1;
    }

    /// All places that hold numbers, the least first.
    fn in_order(&self) -> Vec<usize> {
        let (mut places, mut above) = (Vec::with_capacity(self.count), Vec::new());
        let mut at = self.root;
        loop {
            while at != NOWHERE {
                above.push(at);
                at = self.nodes[at].less;
            }
            let Some(place) = above.pop() else {
                return places;
            };
            places.push(place);
            at = self.nodes[place].more;
        }
    }
}

/// Edges with weights between numbered vertices, each from one to another.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// use twinpage::objects::structures::Graph;
///
/// let region = twinpage::Region::open(folder.path().join("roads.twin"))?;
/// let roads = region.object::<Graph>("roads", |u| Graph::new_in(u))?;
/// roads.join(1, 2, 40);
/// assert_eq!(roads.edges_of(1)?, [(2, 40)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Persist, Debug)]
pub struct Graph<'r> {
    weights: BTreeMap<'r, (u64, u64), i64>,
}

#[twinpage_macros::object]
impl<'r> Graph<'r> {
    /// One without edges.
    pub fn new_in(u: &Update<'r>) -> Graph<'r> {
        Graph {
            weights: BTreeMap::new_in(u.heap()),
        }
    }

    /// Joins two vertices by an edge of this weight, which replaces another.
    pub fn join(&mut self, from: u64, to: u64, weight: i64) {
        self.weights.insert((from, to), weight);
    }

    /// Takes the edge away.
    pub fn remove(&mut self, from: u64, to: u64) {
        self.weights.remove(&(from, to));
    }

    /// The weight of the edge from one vertex to another, if there is one.
    pub fn adjacent(&self, from: u64, to: u64) -> Option<i64> {
        self.weights.get(&(from, to)).copied()
    }

    /// Edges from a vertex: where each leads, and its weight.
    pub fn edges_of(&self, from: u64) -> Vec<(u64, i64)> {
        let range = (Bound::Included((from, 0)), Bound::Included((from, u64::MAX)));
        let edges = self.weights.range(range);
        edges.map(|((_, to), weight)| (*to, *weight)).collect()
    }
}
