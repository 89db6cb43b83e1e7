//! Approximate nearest neighbours on a kd-tree, after ANN (Arya and Mount): each core runs its own copy.
//!
//! Data sets of points in 16 dimensions are taken one after another: a tree is built, then queries are
//! answered by priority search: cells are visited by their distance from the query until the next is
//! farther than the k-th nearest found, shortened by `EPSILON`. Points, their order, the tree, the heap
//! of cells, the nearest and the answers are all in simulated memory.
//!
//! ```text
//! node 32     | dimension u32 | cut f32 | low f32 | high f32 | left u32 | right u32 | first u32 | count u32 |
//!             low and high: the cell's bounds in that dimension; count 0: not a leaf
//! part 160    | first u32 | end u32 | node u32 | 20 | the cell: 16 low f32, 16 high f32 |     still to be split
//! ```
//!
//! Check: answers are at most `1 + EPSILON` times as far as the true nearest, found by looking at all
//! points; distances are those of the points named; the order is a permutation.

use super::layout::{Array, Layout, Records, peek};
use super::points::{Heap, Nearest, Partition, Points, keyed, unkeyed};
use super::{Progress, Workload};
use crate::space::{Port, Space};

const BATCH: usize = 256;
const DIMENSIONS: u32 = 16;
const LEAF: u32 = 8;
const NEAREST: u64 = 8;
const EPSILON: f32 = 0.5;
/// Points looked at to choose a cut.
const SAMPLE: u32 = 32;
/// Points of a data set at most, and queries to each.
const SET: u64 = 65_536;
const QUERIES: u32 = 1024;

pub(super) struct Ann {
    instances: Vec<Instance>,
    footprint: u64,
}

/// One copy of the program.
struct Instance {
    sets: Vec<Set>,
    stack: Records,
    heap: Array<u64>,
    round: u64,
    phase: Phase,
}

struct Set {
    points: Points,
    order: Array<u32>,
    nodes: Records,
    answers: Records,
}

enum Phase {
    /// Begins a data set: puts the points in their first order.
    Order { next: u32 },
    /// Builds: parts on the stack, nodes made.
    Split { parts: u64, nodes: u32 },
    /// In the middle of a split.
    Partition {
        parts: u64,
        nodes: u32,
        part: Part,
        dimension: u32,
        cut: f32,
        partition: Partition,
    },
    /// Answers.
    Ask { query: u32, search: Option<Search> },
}

#[derive(Clone)]
struct Part {
    first: u32,
    end: u32,
    node: u32,
    cell: [[f32; DIMENSIONS as usize]; 2],
}

struct Search {
    query: Vec<f32>,
    heap: Heap,
}

impl Ann {
    pub(super) fn new(bytes: u64, cores: usize, seed: u64) -> Ann {
        let mut layout = Layout::default();
        let point = 64 + 4 + 2 * 32 / 4; // its coordinates, its place, its share of nodes
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
                    order: layout.array(count),
                    nodes: layout.records(count, 32),
                    answers: layout.records(queries, 8 * NEAREST),
                };
                Instance {
                    sets: (0..sets).map(set).collect(),
                    stack: layout.records(128, 160),
                    heap: layout.array(count),
                    round: 0,
                    phase: Phase::Order { next: 0 },
                }
            })
            .collect();
        Ann {
            instances,
            footprint: layout.bytes(),
        }
    }
}

impl Set {
    /// A query no point of the set is.
    fn query(&self, round: u64, query: u32) -> Vec<f32> {
        self.points.draw(1 << 63 | round << 32 | u64::from(query))
    }

    fn answer(&self, query: u32) -> Nearest {
        Nearest {
            at: self.answers.at(query.into()),
            count: NEAREST,
        }
    }

    /// The dimension in which a sample is spread most, and the middle of it there.
    fn choose(&self, port: &mut Port<'_>, part: &Part) -> (u32, f32) {
        let count = part.end - part.first;
        let sampled = count.min(SAMPLE);
        let mut low = [f32::INFINITY; DIMENSIONS as usize];
        let mut high = [f32::NEG_INFINITY; DIMENSIONS as usize];
        let mut sums = [0.0; DIMENSIONS as usize];
        let mut bytes = [0; 4 * DIMENSIONS as usize];
        for i in 0..sampled {
            let place = part.first + (u64::from(i) * u64::from(count) / u64::from(sampled)) as u32;
            let point = self.order.load(port, place.into());
            port.load_bytes(self.points.at(point, 0), &mut bytes);
            port.work(3 * DIMENSIONS / 4 + 4); // least, greatest, sum, four at a time
            for (d, bytes) in bytes.as_chunks::<4>().0.iter().enumerate() {
                let coordinate = f32::from_le_bytes(*bytes);
                low[d] = low[d].min(coordinate);
                high[d] = high[d].max(coordinate);
                sums[d] += coordinate;
            }
        }
        port.work(3 * DIMENSIONS);
        let spread = |d: &usize| high[*d] - low[*d];
        let widest = (0..DIMENSIONS as usize).max_by(|one, other| spread(one).total_cmp(&spread(other)));
        let widest = widest.unwrap_or(0);
        (widest as u32, sums[widest] / sampled as f32)
    }
}

/// Writes a part to the stack.
fn push(port: &mut Port<'_>, at: u64, part: &Part) {
    port.store(at, part.first);
    port.store(at + 4, part.end);
    port.store(at + 8, part.node);
    let cell: Vec<u8> = part
        .cell
        .iter()
        .flatten()
        .flat_map(|bound| bound.to_le_bytes())
        .collect();
    port.store_bytes(at + 32, &cell);
}

fn pop(port: &mut Port<'_>, at: u64) -> Part {
    let mut bytes = [0; 8 * DIMENSIONS as usize];
    let (first, end, node) = (port.load(at), port.load(at + 4), port.load(at + 8));
    port.load_bytes(at + 32, &mut bytes);
    let mut cell = [[0.0; DIMENSIONS as usize]; 2];
    for (bound, bytes) in cell.iter_mut().flatten().zip(bytes.as_chunks::<4>().0) {
        *bound = f32::from_le_bytes(*bytes);
    }
    Part {
        first,
        end,
        node,
        cell,
    }
}

impl Instance {
    fn set(&self) -> &Set {
        &self.sets[(self.round % self.sets.len() as u64) as usize]
    }

    /// One step; what comes after it.
    fn step(&mut self, port: &mut Port<'_>, phase: Phase) -> Phase {
        match phase {
            Phase::Order { next } => self.order(port, next),
            Phase::Split { parts: 0, .. } => Phase::Ask {
                query: 0,
                search: None,
            },
            Phase::Split { parts, nodes } => self.split(port, parts, nodes),
            Phase::Partition {
                parts,
                nodes,
                part,
                dimension,
                cut,
                mut partition,
            } => {
                let set = self.set();
                match partition.advance(port, &set.points, &set.order, BATCH) {
                    false => Phase::Partition {
                        parts,
                        nodes,
                        part,
                        dimension,
                        cut,
                        partition,
                    },
                    true => self.divide(port, parts, nodes, &part, dimension, cut, partition.middle),
                }
            }
            Phase::Ask { query, search } => self.ask(port, query, search),
        }
    }

    fn order(&mut self, port: &mut Port<'_>, mut next: u32) -> Phase {
        let set = self.set();
        while next < set.points.count && port.batched() < BATCH {
            set.order.store(port, next.into(), next);
            port.work(2);
            next += 1;
        }
        if next < set.points.count {
            return Phase::Order { next };
        }
        let whole = Part {
            first: 0,
            end: set.points.count,
            node: 0,
            cell: [
                [f32::NEG_INFINITY; DIMENSIONS as usize],
                [f32::INFINITY; DIMENSIONS as usize],
            ],
        };
        push(port, self.stack.at(0), &whole);
        Phase::Split { parts: 1, nodes: 1 }
    }

    fn split(&mut self, port: &mut Port<'_>, parts: u64, nodes: u32) -> Phase {
        let part = pop(port, self.stack.at(parts - 1));
        let parts = parts - 1;
        let set = self.set();
        let count = part.end - part.first;
        port.work(10);
        if count <= LEAF {
            let node = set.nodes.at(part.node.into());
            port.store(node + 24, part.first);
            port.store(node + 28, count);
            return Phase::Split { parts, nodes };
        }
        let (dimension, cut) = set.choose(port, &part);
        let partition = Partition::new(part.first..part.end, dimension, cut);
        Phase::Partition {
            parts,
            nodes,
            part,
            dimension,
            cut,
            partition,
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the state of a paused split")]
    fn divide(
        &mut self,
        port: &mut Port<'_>,
        parts: u64,
        nodes: u32,
        part: &Part,
        dimension: u32,
        cut: f32,
        middle: u32,
    ) -> Phase {
        let set = self.set();
        let d = dimension as usize;
        let (mut left, mut right) = (part.clone(), part.clone());
        (left.node, right.node) = (nodes, nodes + 1);
        if middle == part.first || middle == part.end {
            // Equal points: any halves are right, and the cell stays as it is for both.
            (left.end, right.first) = ((part.first + part.end) / 2, (part.first + part.end) / 2);
        } else {
            (left.end, right.first) = (middle, middle);
            (left.cell[1][d], right.cell[0][d]) = (cut, cut);
        }
        let cut = if left.cell[1][d] == right.cell[0][d] {
            cut
        } else {
            f32::NAN
        };
        let node = set.nodes.at(part.node.into());
        port.store(node, dimension);
        port.store(node + 4, cut);
        port.store(node + 8, part.cell[0][d]);
        port.store(node + 12, part.cell[1][d]);
        port.store(node + 16, left.node);
        port.store(node + 20, right.node);
        port.store(node + 28, 0u32);
        // The larger first, so that the stack stays as deep as the logarithm of the points.
        let (one, other) = if left.end - left.first > right.end - right.first {
            (left, right)
        } else {
            (right, left)
        };
        push(port, self.stack.at(parts), &one);
        push(port, self.stack.at(parts + 1), &other);
        Phase::Split {
            parts: parts + 2,
            nodes: nodes + 2,
        }
    }

    fn ask(&mut self, port: &mut Port<'_>, query: u32, search: Option<Search>) -> Phase {
        let set = self.set();
        let (answer, round) = (set.answer(query), self.round);
        let mut search = search.unwrap_or_else(|| {
            answer.clear(port);
            let mut heap = Heap {
                keys: self.heap,
                capacity: set.points.count,
                len: 0,
            };
            heap.push(port, keyed(0.0, 0));
            Search {
                query: set.query(round, query),
                heap,
            }
        });
        while let Some(cell) = search.heap.pop(port) {
            let (distance, node) = unkeyed(cell);
            let (farthest, _) = unkeyed(answer.farthest(port));
            port.work(4);
            if distance * (1.0 + EPSILON) * (1.0 + EPSILON) > farthest {
                break; // also of NaN, which unused places hold: then this is false
            }
            search.descend(port, set, answer, distance, node);
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
        Phase::Order { next: 0 }
    }
}

impl Search {
    /// Goes down to the leaf nearest to the query, leaving the other sides for later.
    fn descend(&mut self, port: &mut Port<'_>, set: &Set, answer: Nearest, mut distance: f32, mut node: u32) {
        loop {
            let at = set.nodes.at(node.into());
            let count: u32 = port.follow(at + 28);
            if count > 0 {
                let first: u32 = port.load(at + 24);
                for place in first..first + count {
                    let point = set.order.load(port, place.into());
                    let distance = set.points.distance(port, point, &self.query);
                    answer.add(port, keyed(distance, point));
                }
                return;
            }
            let dimension: u32 = port.load(at);
            let (cut, low, high): (f32, f32, f32) =
                (port.load(at + 4), port.load(at + 8), port.load(at + 12));
            let (left, right): (u32, u32) = (port.load(at + 16), port.load(at + 20));
            let q = self.query[dimension as usize];
            port.work(12);
            if cut.is_nan() {
                self.heap.push(port, keyed(distance, right));
                node = left;
                continue;
            }
            // The other side's cell is farther in this dimension by what the cut is, and no longer by what
            // the cell was.
            let beyond = (low - q).max(q - high).max(0.0);
            let other = (distance - beyond * beyond + (cut - q) * (cut - q)).max(distance);
            let far;
            (node, far) = if q < cut { (left, right) } else { (right, left) };
            self.heap.push(port, keyed(other, far));
            distance = distance.max(0.0);
        }
    }
}

impl Workload for Ann {
    fn name(&self) -> &str {
        "ann"
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
            let phase = std::mem::replace(&mut instance.phase, Phase::Order { next: 0 });
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
        // A step of a partition swaps whole: the order is a permutation at any time but the first.
        if !matches!(self.phase, Phase::Order { .. }) {
            let set = self.set();
            let mut seen = vec![false; set.points.count as usize];
            for place in 0..set.points.count {
                let point: u32 = peek(space, set.order.at(place.into()));
                match seen.get_mut(point as usize) {
                    Some(seen) if !*seen => *seen = true,
                    _ => {
                        return Err(format!(
                            "place {place} of the order has point {point}, again or not there"
                        ));
                    }
                }
            }
        }
        let answered = match self.phase {
            Phase::Ask { query, .. } => query,
            _ => 0,
        };
        // Some of the answers, the last among them.
        for query in (0..answered).rev().step_by(1 + answered as usize / 8) {
            check_answer(self.set(), space, self.round, query)?;
        }
        if self.round > 0 && answered == 0 {
            let sets = self.sets.len() as u64;
            let before = &self.sets[((self.round - 1) % sets) as usize];
            check_answer(before, space, self.round - 1, before.answers.len() as u32 - 1)?;
        }
        Ok(())
    }
}

fn check_answer(set: &Set, space: &Space, round: u64, query: u32) -> Result<(), String> {
    let wanted = set.query(round, query);
    let found = set.answer(query).peek(space);
    let truth = set.points.nearest(space, &wanted, NEAREST as usize);
    for (rank, (&(distance, point), nearest)) in found.iter().zip(truth).enumerate() {
        let named = point < set.points.count && set.points.peek_distance(space, point, &wanted) == distance;
        // Rounding of the distances to cells, over a path of the tree.
        let bound = nearest * (1.0 + EPSILON) * (1.0 + EPSILON) * 1.0001;
        if !named || distance > bound {
            return Err(format!(
                "query {query}: number {rank} is point {point} at {distance}, the true one at {nearest}"
            ));
        }
    }
    Ok(())
}
