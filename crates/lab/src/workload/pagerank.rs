//! PageRank, as GraphChi computes it: ranks flow along the edges, sweep after sweep, without end.
//!
//! An edge holds the share of its source's rank twice, for even and odd sweeps: a sweep reads what the one
//! before wrote. So the result does not depend on which core updates what when, and is compared bit
//! by bit with the same sums done on ordinary vectors.

use super::graph::{Graph, Vertex};
use super::layout::{Layout, peek, poke};
use super::sweep::{Done, Edge, Program, each_data};
use crate::space::{Port, Space};

const DAMPING: f32 = 0.85;

pub(super) struct PageRank;

/// What a vertex gives to each of its out-edges.
fn share(rank: f32, out_count: u32) -> f32 {
    if out_count == 0 {
        0.0
    } else {
        rank / out_count as f32
    }
}

impl Program for PageRank {
    const NAME: &'static str = "pagerank";
    const DATA_BYTES: u64 = 8;
    const BOTH_WAYS: bool = false;
    /// The sum of the shares.
    type Gathered = f32;

    fn place(_: &Graph, _: &mut Layout, _: usize) -> Self {
        PageRank
    }

    fn fill(&self, graph: &Graph, space: &mut Space) {
        for v in 0..graph.size.vertices {
            let value = graph.peek(space, v).value();
            poke(space, value, 1f32);
        }
        each_data(graph, space, |space, source, data| {
            let first = share(1.0, graph.peek(space, source).out_count);
            poke(space, data, first);
        });
    }

    #[inline]
    fn gather(&self, port: &mut Port<'_>, sum: &mut f32, edge: Edge) {
        port.work(1);
        *sum += port.follow::<f32>(edge.data + u64::from(edge.sweep % 2 * 4));
    }

    fn apply(&self, port: &mut Port<'_>, sum: f32, vertex: &Vertex, _: Edge) -> (u32, Option<u32>) {
        let rank = (1.0 - DAMPING) + DAMPING * sum;
        port.work(5);
        let told = (vertex.out_count > 0).then(|| share(rank, vertex.out_count).to_bits());
        (rank.to_bits(), told)
    }

    #[inline]
    fn scatter(&self, port: &mut Port<'_>, share: u32, edge: Edge) {
        port.store(edge.data + u64::from((edge.sweep + 1) % 2 * 4), share);
    }

    fn is_done(&self, _: u32, _: u64) -> bool {
        false
    }

    fn check(&self, graph: &Graph, space: &Space, done: &Done<'_>) -> Result<(), String> {
        let count = graph.size.vertices as usize;
        let edges: Vec<_> = graph.edges().collect();
        let mut outs = vec![0; count];
        for &(source, _) in &edges {
            outs[source as usize] += 1;
        }
        let mut before = vec![1f32; count];
        let mut ranks = before.clone();
        for _ in 0..=done.sweeps {
            before.clone_from(&ranks);
            let shares: Vec<f32> = before
                .iter()
                .zip(&outs)
                .map(|(&rank, &out)| share(rank, out))
                .collect();
            let mut sums = vec![0f32; count];
            for &(source, target) in &edges {
                sums[target as usize] += shares[source as usize];
            }
            ranks = sums.iter().map(|sum| (1.0 - DAMPING) + DAMPING * sum).collect();
        }
        for v in 0..graph.size.vertices {
            let found: f32 = peek(space, graph.peek(space, v).value());
            let expected = if (done.is_ahead)(v) {
                ranks[v as usize]
            } else {
                before[v as usize]
            };
            if found.to_bits() != expected.to_bits() {
                return Err(format!(
                    "after {} sweeps vertex {v} has rank {found}, not {expected}",
                    done.sweeps
                ));
            }
        }
        Ok(())
    }
}
