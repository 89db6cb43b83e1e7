//! Approximate nearest neighbours on a forest of randomised kd-trees, after FLANN (Muja and Lowe): each core
//! runs its own copy.
//!
//! Data sets of points in 128 dimensions (as SIFT features have) are taken one after another: four
//! trees are built, each cutting at the mean of one of the five dimensions of greatest variance, drawn at
//! random; then queries are answered, the best branches of all trees first, until `CHECKS` points were
//! looked at. Which points a query has seen is stamped in simulated memory, where all the rest is too.
//!
//! ```text
//! node 32    | dimension u32 | cut f32 | left u32 | right u32 | first u32 | count u32 | 8 |     count 0: no leaf
//! part 16    | first u32 | end u32 | node u32 | 0 |                                            still to be split
//! ```
//!
//! Check: each tree's order is a permutation; answers are sorted, of different points, at the distances they
//! say; and most of them are the true nearest, found by looking at all points.

use super::layout::{Array, Layout, Records, peek};
use super::points::{Heap, Nearest, Partition, Points, keyed, unkeyed};
use super::table::scramble;
use super::{Progress, Workload};
use crate::space::{Port, Space};

const BATCH: usize = 256;
const DIMENSIONS: u32 = 128;
const TREES: usize = 4;
const LEAF: u32 = 4;
const NEAREST: u64 = 4;
/// Points looked at for a query.
const CHECKS: u32 = 256;
/// Points looked at to choose a cut.
const SAMPLE: u32 = 16;
/// Dimensions among which one is drawn.
const TOP: usize = 5;
/// Points of a data set at most, and queries to each.
const SET: u64 = 16_384;
const QUERIES: u32 = 512;

pub(super) struct Flann {
    instances: Vec<Instance>,
    footprint: u64,
}

struct Instance {
    sets: Vec<Set>,
    stack: Records,
    heap: Array<u64>,
    stamps: Array<u32>,
    stamp: u32,
    round: u64,
    phase: Phase,
}

struct Set {
    points: Points,
    orders: Vec<Array<u32>>,
    nodes: Vec<Records>,
    answers: Records,
}

enum Phase {
    Order {
        tree: usize,
        next: u32,
    },
    Split {
        tree: usize,
        parts: u64,
        nodes: u32,
    },
    Partition {
        tree: usize,
        parts: u64,
        nodes: u32,
        part: Part,
        cut: Cut,
        partition: Partition,
    },
    Ask {
        query: u32,
        search: Option<Search>,
    },
}

#[derive(Clone, Copy)]
struct Part {
    first: u32,
    end: u32,
    node: u32,
}

#[derive(Clone, Copy)]
struct Cut {
    dimension: u32,
    at: f32,
}

struct Search {
    query: Vec<f32>,
    heap: Heap,
    checks: u32,
}

impl Flann {
    pub(super) fn new(bytes: u64, cores: usize, seed: u64) -> Flann {
        let mut layout = Layout::default();
        let point = 512 + TREES as u64 * (4 + 32);
        let share = bytes / cores as u64;
        let count = (share / point).clamp(64, SET);
        let queries = u64::from(QUERIES).min(count / 16).max(4);
        let sets = (share / (count * point)).max(1);
        let instances = (0..cores as u64)
            .map(|core| {
                let set = |number| Set {
                    points: Points {
                        coordinates: layout.records(count, 4 * u64::from(DIMENSIONS)),
                        count: count as u32,
                        dimensions: DIMENSIONS,
                        seed: seed ^ core << 32 ^ number,
                    },
                    orders: (0..TREES).map(|_| layout.array(count)).collect(),
                    nodes: (0..TREES).map(|_| layout.records(2 * count, 32)).collect(),
                    answers: layout.records(queries, 8 * NEAREST),
                };
                Instance {
                    sets: (0..sets).map(set).collect(),
                    stack: layout.records(128, 16),
                    heap: layout.array(u64::from(CHECKS) * 64),
                    stamps: layout.array(count),
                    stamp: 0,
                    round: 0,
                    phase: Phase::Order { tree: 0, next: 0 },
                }
            })
            .collect();
        Flann {
            instances,
            footprint: layout.bytes(),
        }
    }
}

impl Set {
    fn query(&self, round: u64, query: u32) -> Vec<f32> {
        self.points.draw(1 << 63 | round << 32 | u64::from(query))
    }

    fn answer(&self, query: u32) -> Nearest {
        Nearest {
            at: self.answers.at(query.into()),
            count: NEAREST,
        }
    }

    /// One of the dimensions in which a sample varies most, and its mean there.
    fn choose(&self, port: &mut Port<'_>, tree: usize, part: &Part) -> Cut {
        let count = part.end - part.first;
        let sampled = count.min(SAMPLE);
        let mut sums = [0.0; DIMENSIONS as usize];
        let mut squares = sums;
        let mut bytes = [0; 4 * DIMENSIONS as usize];
        for i in 0..sampled {
            let point = self.orders[tree].load(port, u64::from(part.first + i * (count / sampled)));
            port.load_bytes(self.points.at(point, 0), &mut bytes);
            port.work(3 * DIMENSIONS / 4 + 4); // sum, square, sum of squares, four at a time
            for (d, bytes) in bytes.as_chunks::<4>().0.iter().enumerate() {
                let coordinate = f32::from_le_bytes(*bytes);
                sums[d] += coordinate;
                squares[d] += coordinate * coordinate;
            }
        }
        port.work(5 * DIMENSIONS); // variances, and the five greatest
        let sampled = sampled as f32;
        let variance = |d: usize| squares[d] / sampled - (sums[d] / sampled) * (sums[d] / sampled);
        let mut top: Vec<usize> = (0..DIMENSIONS as usize).collect();
        top.select_nth_unstable_by(TOP, |&one, &other| variance(other).total_cmp(&variance(one)));
        top[..TOP].sort_unstable();
        let drawn = scramble(self.points.seed ^ tree as u64, part.node.into()) as usize % TOP;
        Cut {
            dimension: top[drawn] as u32,
            at: sums[top[drawn]] / sampled,
        }
    }
}

fn push(port: &mut Port<'_>, at: u64, part: Part) {
    port.store(at, part.first);
    port.store(at + 4, part.end);
    port.store(at + 8, part.node);
}

impl Instance {
    fn set(&self) -> &Set {
        &self.sets[(self.round % self.sets.len() as u64) as usize]
    }

    fn step(&mut self, port: &mut Port<'_>, phase: Phase) -> Phase {
        match phase {
            Phase::Order { tree: TREES, .. } => Phase::Ask {
                query: 0,
                search: None,
            },
            Phase::Order { tree, next } => self.order(port, tree, next),
            Phase::Split { tree, parts: 0, .. } => Phase::Order {
                tree: tree + 1,
                next: 0,
            },
            Phase::Split { tree, parts, nodes } => self.split(port, tree, parts, nodes),
            Phase::Partition {
                tree,
                parts,
                nodes,
                part,
                cut,
                mut partition,
            } => {
                let set = self.set();
                match partition.advance(port, &set.points, &set.orders[tree], BATCH) {
                    false => Phase::Partition {
                        tree,
                        parts,
                        nodes,
                        part,
                        cut,
                        partition,
                    },
                    true => {
                        let parts = self.divide(port, tree, (parts, nodes), part, cut, partition.middle);
                        Phase::Split {
                            tree,
                            parts,
                            nodes: nodes + 2,
                        }
                    }
                }
            }
            Phase::Ask { query, search } => self.ask(port, query, search),
        }
    }

    fn order(&mut self, port: &mut Port<'_>, tree: usize, mut next: u32) -> Phase {
        let set = self.set();
        while next < set.points.count && port.batched() < BATCH {
            set.orders[tree].store(port, next.into(), next);
            port.work(2);
            next += 1;
        }
        if next < set.points.count {
            return Phase::Order { tree, next };
        }
        let whole = Part {
            first: 0,
            end: set.points.count,
            node: 0,
        };
        push(port, self.stack.at(0), whole);
        Phase::Split {
            tree,
            parts: 1,
            nodes: 1,
        }
    }

    fn split(&mut self, port: &mut Port<'_>, tree: usize, parts: u64, nodes: u32) -> Phase {
        let at = self.stack.at(parts - 1);
        let part = Part {
            first: port.load(at),
            end: port.load(at + 4),
            node: port.load(at + 8),
        };
        let parts = parts - 1;
        let set = self.set();
        let count = part.end - part.first;
        port.work(10);
        if count <= LEAF {
            let node = set.nodes[tree].at(part.node.into());
            port.store(node + 16, part.first);
            port.store(node + 20, count);
            return Phase::Split { tree, parts, nodes };
        }
        let cut = set.choose(port, tree, &part);
        let partition = Partition::new(part.first..part.end, cut.dimension, cut.at);
        Phase::Partition {
            tree,
            parts,
            nodes,
            part,
            cut,
            partition,
        }
    }

    /// Makes the node of a part and leaves its halves on the stack; how many parts are there then.
    fn divide(
        &mut self,
        port: &mut Port<'_>,
        tree: usize,
        (parts, nodes): (u64, u32),
        part: Part,
        cut: Cut,
        middle: u32,
    ) -> u64 {
        let node = self.set().nodes[tree].at(part.node.into());
        // Equal points: any halves are right.
        let is_cut = middle != part.first && middle != part.end;
        let middle = if is_cut {
            middle
        } else {
            (part.first + part.end) / 2
        };
        let left = Part {
            end: middle,
            node: nodes,
            ..part
        };
        let right = Part {
            first: middle,
            node: nodes + 1,
            ..part
        };
        port.store(node, cut.dimension);
        port.store(node + 4, cut.at);
        port.store(node + 8, left.node);
        port.store(node + 12, right.node);
        port.store(node + 20, 0u32);
        // The larger first, so that the stack stays as deep as the logarithm of the points.
        let larger_left = left.end - left.first > right.end - right.first;
        let (one, other) = if larger_left { (left, right) } else { (right, left) };
        push(port, self.stack.at(parts), one);
        push(port, self.stack.at(parts + 1), other);
        parts + 2
    }

    fn ask(&mut self, port: &mut Port<'_>, query: u32, search: Option<Search>) -> Phase {
        let set = &self.sets[(self.round % self.sets.len() as u64) as usize];
        let (answer, round) = (set.answer(query), self.round);
        let mut search = match search {
            Some(search) => search,
            None => {
                answer.clear(port);
                self.stamp += 1;
                let mut heap = Heap {
                    keys: self.heap,
                    capacity: CHECKS * 64,
                    len: 0,
                };
                for tree in 0..TREES as u32 {
                    heap.push(port, keyed(0.0, tree));
                }
                let query = set.query(round, query);
                Search {
                    query,
                    heap,
                    checks: 0,
                }
            }
        };
        while search.checks < CHECKS {
            let Some(branch) = search.heap.pop(port) else {
                break;
            };
            search.descend(port, set, answer, branch, (&self.stamps, self.stamp));
            if port.batched() >= BATCH {
                return Phase::Ask {
                    query,
                    search: Some(search),
                };
            }
        }
        port.commit();
        if u64::from(query) + 1 < set.answers.len() {
            return Phase::Ask {
                query: query + 1,
                search: None,
            };
        }
        self.round += 1;
        Phase::Order { tree: 0, next: 0 }
    }
}

impl Search {
    /// Goes down a branch (a node, and its tree in the low bits) to a leaf, leaving the other sides for later.
    fn descend(
        &mut self,
        port: &mut Port<'_>,
        set: &Set,
        answer: Nearest,
        branch: u64,
        (stamps, stamp): (&Array<u32>, u32),
    ) {
        let (distance, branch) = unkeyed(branch);
        let (tree, mut node) = (branch as usize % TREES, branch / TREES as u32);
        loop {
            let at = set.nodes[tree].at(node.into());
            let count: u32 = port.follow(at + 20);
            if count > 0 {
                let first: u32 = port.load(at + 16);
                for place in first..first + count {
                    let point = set.orders[tree].load(port, place.into());
                    port.work(2);
                    if port.follow::<u32>(stamps.at(point.into())) == stamp {
                        continue;
                    }
                    stamps.store(port, point.into(), stamp);
                    let distance = set.points.distance(port, point, &self.query);
                    answer.add(port, keyed(distance, point));
                    self.checks += 1;
                }
                return;
            }
            let dimension: u32 = port.load(at);
            let cut: f32 = port.load(at + 4);
            let (left, right): (u32, u32) = (port.load(at + 8), port.load(at + 12));
            let away = self.query[dimension as usize] - cut;
            port.work(10);
            let far;
            (node, far) = if away < 0.0 { (left, right) } else { (right, left) };
            self.heap.push(
                port,
                keyed(distance + away * away, far * TREES as u32 + tree as u32),
            );
        }
    }
}

impl Workload for Flann {
    fn name(&self) -> &str {
        "flann"
    }

    fn footprint_bytes(&self) -> u64 {
        self.footprint
    }

    fn fill(&self, space: &mut Space) {
        for set in self.instances.iter().flat_map(|instance| &instance.sets) {
            set.points.fill(space);
        }
    }

    fn run(&mut self, core: usize, port: &mut Port<'_>) -> Progress {
        let instance = &mut self.instances[core];
        while port.batched() < BATCH {
            let phase = std::mem::replace(&mut instance.phase, Phase::Order { tree: 0, next: 0 });
            instance.phase = instance.step(port, phase);
        }
        Progress::More
    }

    fn check(&self, space: &Space) -> Result<(), String> {
        for (core, instance) in self.instances.iter().enumerate() {
            instance
                .check(space)
                .map_err(|why| format!("core {core}, data set {}: {why}", instance.round))?;
        }
        Ok(())
    }
}

impl Instance {
    fn check(&self, space: &Space) -> Result<(), String> {
        let set = self.set();
        let ordered = match self.phase {
            Phase::Order { tree, .. } => tree,
            Phase::Split { tree, .. } | Phase::Partition { tree, .. } => tree + 1,
            Phase::Ask { .. } => TREES,
        };
        for (tree, order) in set.orders[..ordered].iter().enumerate() {
            let mut places: Vec<u32> = (0..set.points.count)
                .map(|i| peek(space, order.at(i.into())))
                .collect();
            places.sort_unstable();
            if places.iter().zip(0..).any(|(&point, number)| point != number) {
                return Err(format!("the order of tree {tree} lacks a point"));
            }
        }
        match self.phase {
            Phase::Ask { query, .. } => check_answers(set, space, self.round, query),
            _ if self.round > 0 => {
                let before = &self.sets[((self.round - 1) % self.sets.len() as u64) as usize];
                check_answers(before, space, self.round - 1, before.answers.len() as u32)
            }
            _ => Ok(()),
        }
    }
}

/// Some of the answers, the last among them.
fn check_answers(set: &Set, space: &Space, round: u64, answered: u32) -> Result<(), String> {
    let (mut right, mut asked) = (0, 0);
    for query in (0..answered).rev().step_by(1 + answered as usize / 16) {
        let wanted = set.query(round, query);
        let found = set.answer(query).peek(space);
        let sorted = found.is_sorted_by(|one, next| keyed(one.0, one.1) < keyed(next.0, next.1));
        let named = found.iter().all(|&(distance, point)| {
            point < set.points.count && set.points.peek_distance(space, point, &wanted) == distance
        });
        if !sorted || !named {
            return Err(format!(
                "query {query} is answered {found:?}, which are no distances of points, sorted"
            ));
        }
        let truth = set.points.nearest(space, &wanted, NEAREST as usize);
        right += found
            .iter()
            .zip(&truth)
            .filter(|(found, truth)| found.0 <= **truth)
            .count();
        asked += truth.len();
    }
    match 2 * right >= asked {
        true => Ok(()),
        false => Err(format!("of {asked} nearest only {right} were found")),
    }
}
