//! Community detection by label propagation, as GraphChi computes it: a vertex takes the label that most of
//! its neighbours have, of equally many the least, sweep after sweep.
//!
//! An edge holds the label of each end, twice, for even and odd sweeps: a sweep reads what the one
//! before wrote, and the result is compared with the same computed on ordinary vectors. Labels are counted
//! in a hash table of the core, in simulated memory.
//!
//! ```text
//! data of an edge (16 bytes)  | source's, even u32 | target's, even u32 | source's, odd u32 | target's, odd u32 |
//! slot of a table (16 bytes)  | stamp u32 | label u32 | count u32 | 0 |     of another stamp: empty
//! ```

use super::graph::{Graph, Vertex};
use super::layout::{Layout, Records, peek, poke};
use super::sweep::{Done, Edge, Program, each_data};
use crate::space::{Port, Space};

pub(super) struct Community {
    /// A table for each core, with room for the largest hub.
    tables: Vec<Records>,
}

/// The label that leads, and how many have it.
#[derive(Clone, Copy, Default)]
pub(super) struct Leader {
    label: u32,
    count: u32,
}

impl Leader {
    fn hear(&mut self, label: u32, count: u32) {
        if count > self.count || count == self.count && label < self.label {
            *self = Leader { label, count };
        }
    }
}

impl Program for Community {
    const NAME: &'static str = "community";
    const DATA_BYTES: u64 = 16;
    const BOTH_WAYS: bool = true;
    type Gathered = Leader;

    fn place(graph: &Graph, layout: &mut Layout, cores: usize) -> Self {
        let mut degrees = vec![0u64; graph.size.vertices as usize];
        for (source, target) in graph.edges() {
            degrees[source as usize] += 1;
            degrees[target as usize] += 1;
        }
        let largest = degrees.into_iter().max().unwrap_or(0);
        let slots = (2 * largest).next_power_of_two();
        Community {
            tables: (0..cores).map(|_| layout.records(slots, 16)).collect(),
        }
    }

    fn fill(&self, graph: &Graph, space: &mut Space) {
        for v in 0..graph.size.vertices {
            let vertex = graph.peek(space, v);
            poke(space, vertex.value(), v);
            for i in 0..vertex.in_count {
                let data = super::graph::peek_pointer(space, vertex.in_edges, i);
                poke(space, data + 4, v);
            }
        }
        each_data(graph, space, |space, source, data| poke(space, data, source));
    }

    #[inline]
    fn gather(&self, port: &mut Port<'_>, leader: &mut Leader, edge: Edge) {
        // The other end's label: of an in-edge, the source's.
        let other = if edge.inward { 0 } else { 4 };
        let label: u32 = port.follow(edge.data + u64::from(edge.sweep % 2 * 8) + other);
        let table = &self.tables[edge.core];
        // Small updates use a small, cached part of the table.
        let mask = (2 * edge.degree).next_power_of_two() - 1;
        let mut slot = label.wrapping_mul(0x9e37_79b1) >> 7 & mask;
        port.work(4);
        let count = loop {
            let at = table.at(slot.into());
            port.work(3);
            if port.load::<u32>(at) != edge.stamp {
                port.store(at, edge.stamp);
                port.store(at + 4, label);
                break 1;
            }
            if port.load::<u32>(at + 4) == label {
                break port.load::<u32>(at + 8) + 1;
            }
            slot = (slot + 1) & mask;
        };
        port.store(table.at(slot.into()) + 8, count);
        port.work(3);
        leader.hear(label, count);
    }

    fn apply(&self, port: &mut Port<'_>, leader: Leader, vertex: &Vertex, edge: Edge) -> (u32, Option<u32>) {
        port.work(2);
        match edge.degree {
            0 => (port.load(vertex.value()), None),
            _ => (leader.label, Some(leader.label)),
        }
    }

    #[inline]
    fn scatter(&self, port: &mut Port<'_>, label: u32, edge: Edge) {
        let own = if edge.inward { 4 } else { 0 };
        port.store(edge.data + u64::from((edge.sweep + 1) % 2 * 8) + own, label);
    }

    fn is_done(&self, _: u32, _: u64) -> bool {
        false
    }

    fn check(&self, graph: &Graph, space: &Space, done: &Done<'_>) -> Result<(), String> {
        let neighbours = Neighbours::new(graph);
        let mut labels: Vec<u32> = (0..graph.size.vertices).collect();
        let mut before = labels.clone();
        for _ in 0..=done.sweeps {
            before.clone_from(&labels);
            let mut heard = Vec::new();
            for (v, label) in labels.iter_mut().enumerate() {
                heard.clear();
                heard.extend(neighbours.of(v).iter().map(|&other| before[other as usize]));
                heard.sort_unstable();
                let runs = heard.chunk_by(|one, other| one == other);
                // The longest run, of equally long the first: labels are sorted.
                if let Some(run) = runs.reduce(|best, run| if run.len() > best.len() { run } else { best }) {
                    *label = run[0];
                }
            }
        }
        for v in 0..graph.size.vertices {
            let found: u32 = peek(space, graph.peek(space, v).value());
            let expected = if (done.is_ahead)(v) {
                labels[v as usize]
            } else {
                before[v as usize]
            };
            if found != expected {
                return Err(format!(
                    "after {} sweeps vertex {v} has label {found}, not {expected}",
                    done.sweeps
                ));
            }
        }
        Ok(())
    }
}

/// Who is beside whom, on ordinary vectors.
struct Neighbours {
    first: Vec<u32>,
    others: Vec<u32>,
}

impl Neighbours {
    fn new(graph: &Graph) -> Neighbours {
        let count = graph.size.vertices as usize;
        let edges: Vec<_> = graph.edges().collect();
        let mut first = vec![0; count + 1];
        for &(source, target) in &edges {
            first[source as usize + 1] += 1;
            first[target as usize + 1] += 1;
        }
        for v in 0..count {
            first[v + 1] += first[v];
        }
        let mut next = first.clone();
        let mut others = vec![0; 2 * graph.size.edges as usize];
        for (source, target) in edges {
            for (one, other) in [(source, target), (target, source)] {
                others[next[one as usize] as usize] = other;
                next[one as usize] += 1;
            }
        }
        Neighbours { first, others }
    }

    fn of(&self, v: usize) -> &[u32] {
        &self.others[self.first[v] as usize..self.first[v + 1] as usize]
    }
}
