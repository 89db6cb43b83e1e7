//! Power-law graphs, and how an engine like GraphChi keeps them in memory.
//!
//! Edges are drawn by R-MAT (Chakrabarti et al., 2004) with the Graph500 probabilities 0.57, 0.19, 0.19,
//! 0.05; vertices keep the numbers it gives them, so hubs come first, as in crawled graphs.
//!
//! ```text
//! vertex (32 bytes)  | in-edges u64 | out-edges u64 | in count u32 | out count u32 | value u32 | 0 |
//! edge (16 bytes)    | vertex at the other end u32 | 0 | where the edge's data is u64 |
//! data of an edge    one place for both ends, in the order of the source: a vertex' own out-edges
//!                    lie side by side, its in-edges anywhere
//! ```
//!
//! A vertex talks to its neighbours only through the data of its edges (GraphChi's model): it reads its
//! in-edges' data through pointers and writes its out-edges'.

use super::layout::{Layout, Records, peek, poke};
use crate::space::{Port, Space};

pub(super) const VERTEX_BYTES: u64 = 32;
pub(super) const EDGE_BYTES: u64 = 16;

/// How large a graph is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) vertices: u32,
    pub(super) edges: u32,
}

impl Size {
    /// About `bytes` in memory, with 16 edges to a vertex, as Graph500 has it.
    pub(super) fn of_bytes(bytes: u64, data_bytes: u64) -> Size {
        let vertices = bytes / (VERTEX_BYTES + 16 * (2 * EDGE_BYTES + data_bytes));
        let vertices = vertices.clamp(16, 1 << 27) as u32;
        Size {
            vertices,
            edges: vertices * 16,
        }
    }
}

/// The edges of an R-MAT graph, in the order they are drawn; the same seed draws the same.
pub(super) struct Draw {
    random: fastrand::Rng,
    /// For sixteen random bits, two levels of the recursion: two bits of the source, two of the target.
    quadrants: Vec<u8>,
    size: Size,
    levels: u32,
}

impl Draw {
    pub(super) fn new(size: Size, seed: u64) -> Draw {
        let weights = [0.57, 0.19, 0.19, 0.05];
        let mut quadrants = Vec::with_capacity(1 << 16);
        let mut reached = 0.0;
        for pair in 0..16 {
            reached += weights[pair >> 2] * weights[pair & 3];
            let (high, low) = (pair >> 2, pair & 3);
            let source = (high >> 1) << 1 | low >> 1;
            let target = (high & 1) << 1 | low & 1;
            quadrants.resize(
                (reached * 65536.0_f64).round() as usize,
                (source << 2 | target) as u8,
            );
        }
        quadrants.resize(1 << 16, 0);
        Draw {
            random: fastrand::Rng::with_seed(seed),
            quadrants,
            size,
            levels: size.vertices.next_power_of_two().trailing_zeros(),
        }
    }

    fn edge(&mut self) -> (u32, u32) {
        loop {
            let (mut source, mut target) = (0, 0);
            let mut bits = 0;
            for level in 0..self.levels.div_ceil(2) {
                if level % 4 == 0 {
                    bits = self.random.u64(..);
                }
                let both = self.quadrants[(bits & 0xffff) as usize];
                bits >>= 16;
                source = source << 2 | u32::from(both >> 2);
                target = target << 2 | u32::from(both & 3);
            }
            if self.levels % 2 == 1 {
                (source, target) = (source >> 1, target >> 1);
            }
            if source < self.size.vertices && target < self.size.vertices {
                return (source, target);
            }
        }
    }
}

impl Iterator for Draw {
    type Item = (u32, u32);

    fn next(&mut self) -> Option<(u32, u32)> {
        Some(self.edge())
    }
}

/// Where the parts of a graph lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Graph {
    pub(super) size: Size,
    seed: u64,
    vertices: Records,
    in_edges: Records,
    out_edges: Records,
    data: Records,
}

/// One vertex, as read from memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vertex {
    at: u64,
    pub(super) in_edges: u64,
    pub(super) out_edges: u64,
    pub(super) in_count: u32,
    pub(super) out_count: u32,
}

impl Vertex {
    /// Where its value is.
    pub(super) fn value(&self) -> u64 {
        self.at + 24
    }
}

impl Graph {
    pub(super) fn new(layout: &mut Layout, size: Size, data_bytes: u64, seed: u64) -> Graph {
        let edges = u64::from(size.edges);
        Graph {
            size,
            seed,
            vertices: layout.records(size.vertices.into(), VERTEX_BYTES),
            in_edges: layout.records(edges, EDGE_BYTES),
            out_edges: layout.records(edges, EDGE_BYTES),
            data: layout.records(edges, data_bytes),
        }
    }

    /// The edges again, as they were drawn.
    pub(super) fn edges(&self) -> impl Iterator<Item = (u32, u32)> {
        Draw::new(self.size, self.seed).take(self.size.edges as usize)
    }

    /// Writes the structure; values of vertices and data of edges stay zero.
    pub(super) fn fill(&self, space: &mut Space) {
        let count = self.size.vertices as usize;
        let (mut ins, mut outs) = (vec![0u32; count], vec![0u32; count]);
        let edges: Vec<_> = self.edges().collect();
        for &(source, target) in &edges {
            outs[source as usize] += 1;
            ins[target as usize] += 1;
        }
        let (mut first_in, mut first_out) = (0, 0);
        for v in 0..count {
            let at = self.vertices.at(v as u64);
            let (in_count, out_count) = (ins[v], outs[v]);
            poke(space, at, self.in_edges.at(0) + u64::from(first_in) * EDGE_BYTES);
            poke(
                space,
                at + 8,
                self.out_edges.at(0) + u64::from(first_out) * EDGE_BYTES,
            );
            poke(space, at + 16, in_count);
            poke(space, at + 20, out_count);
            (ins[v], outs[v]) = (first_in, first_out);
            first_in += in_count;
            first_out += out_count;
        }
        for (source, target) in edges {
            let (to, from) = (&mut ins[target as usize], &mut outs[source as usize]);
            let data = self.data.at((*from).into());
            for (edge, other) in [
                (self.out_edges.at((*from).into()), target),
                (self.in_edges.at((*to).into()), source),
            ] {
                poke(space, edge, other);
                poke(space, edge + 8, data);
            }
            *to += 1;
            *from += 1;
        }
    }

    /// Reads a vertex: five loads of one object.
    #[inline]
    pub(super) fn vertex(&self, port: &mut Port<'_>, v: u32) -> Vertex {
        let at = self.vertices.at(v.into());
        port.work(3);
        Vertex {
            at,
            in_edges: port.load(at),
            out_edges: port.load(at + 8),
            in_count: port.load(at + 16),
            out_count: port.load(at + 20),
        }
    }

    /// The same, outside the simulation.
    pub(super) fn peek(&self, space: &Space, v: u32) -> Vertex {
        let at = self.vertices.at(v.into());
        Vertex {
            at,
            in_edges: peek(space, at),
            out_edges: peek(space, at + 8),
            in_count: peek(space, at + 16),
            out_count: peek(space, at + 20),
        }
    }
}

/// Where the data of edge `i` from `edges` on is: one load of the pointer.
#[inline]
pub(super) fn pointer(port: &mut Port<'_>, edges: u64, i: u32) -> u64 {
    port.load(edges + u64::from(i) * EDGE_BYTES + 8)
}

/// The same, outside the simulation.
pub(super) fn peek_pointer(space: &Space, edges: u64, i: u32) -> u64 {
    peek(space, edges + u64::from(i) * EDGE_BYTES + 8)
}
