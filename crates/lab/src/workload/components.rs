//! Connected components, as GraphChi computes them: the least label spreads along the edges, in both
//! directions, until a sweep changes nothing.
//!
//! An edge holds one label, and both ends write it. Labels only fall, so whatever the order, a label
//! is always that of some vertex of the same component, and at the end the least: that is checked with
//! a union-find.

use super::graph::{Graph, Vertex};
use super::layout::{Layout, peek, poke};
use super::sweep::{Done, Edge, Program, each_data};
use crate::space::{Port, Space};

pub(super) struct Components;

/// The complement of a label, so that what is gathered begins with none and grows.
fn complement(label: u32) -> u32 {
    u32::MAX - label
}

impl Program for Components {
    const NAME: &'static str = "components";
    const DATA_BYTES: u64 = 4;
    const BOTH_WAYS: bool = true;
    /// The complement of the least label.
    type Gathered = u32;

    fn place(_: &Graph, _: &mut Layout, _: usize) -> Self {
        Components
    }

    fn fill(&self, graph: &Graph, space: &mut Space) {
        for v in 0..graph.size.vertices {
            let value = graph.peek(space, v).value();
            poke(space, value, v);
        }
        // The source has written last: an edge's target learns of it, and it of the target later.
        each_data(graph, space, |space, source, data| poke(space, data, source));
    }

    #[inline]
    fn gather(&self, port: &mut Port<'_>, least: &mut u32, edge: Edge) {
        port.work(1);
        *least = complement(port.follow(edge.data)).max(*least);
    }

    fn apply(&self, port: &mut Port<'_>, least: u32, vertex: &Vertex, edge: Edge) -> (u32, Option<u32>) {
        port.work(3);
        let own: u32 = port.load(vertex.value());
        let label = complement(least).min(own);
        // In the first sweep every vertex tells its label.
        (label, (label < own || edge.sweep == 0).then_some(label))
    }

    #[inline]
    fn scatter(&self, port: &mut Port<'_>, label: u32, edge: Edge) {
        // A lower label that came meanwhile stays: the vertex will gather it in the sweep after.
        port.work(2);
        if port.follow::<u32>(edge.data) > label {
            port.store(edge.data, label);
        }
    }

    fn is_done(&self, _: u32, scattered: u64) -> bool {
        scattered == 0
    }

    fn check(&self, graph: &Graph, space: &Space, done: &Done<'_>) -> Result<(), String> {
        let mut parents: Vec<u32> = (0..graph.size.vertices).collect();
        for (source, target) in graph.edges() {
            let (one, other) = (root(&mut parents, source), root(&mut parents, target));
            // The lower becomes the root, so that a root is its component's least.
            parents[one.max(other) as usize] = one.min(other);
        }
        for v in 0..graph.size.vertices {
            let label: u32 = peek(space, graph.peek(space, v).value());
            let least = root(&mut parents, v);
            let right = if done.ended {
                label == least
            } else {
                label <= v && root(&mut parents, label) == least
            };
            if !right {
                let ended = if done.ended { "at the end" } else { "on the way" };
                return Err(format!(
                    "{ended} vertex {v} has label {label}; its component's is {least}"
                ));
            }
        }
        Ok(())
    }
}

fn root(parents: &mut [u32], mut v: u32) -> u32 {
    while parents[v as usize] != v {
        parents[v as usize] = parents[parents[v as usize] as usize];
        v = parents[v as usize];
    }
    v
}
