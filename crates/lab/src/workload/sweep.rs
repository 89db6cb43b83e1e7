//! Vertex programs: sweeps over all vertices of a graph, shared by the cores.
//!
//! * An update gathers from the data of the vertex' edges, applies, and scatters to the data of its
//!   edges, as in GraphChi's `update(vertex)`.
//! * Cores take chunks of 64 vertices from a shared counter; a sweep begins when the last has ended.
//! * A hub's update may be cut at any edge by the end of a batch, so programs whose result would
//!   depend on that read what the sweep before wrote.
//!
//! Instructions, as in the inner loops of compiled code: gathering takes an addition to the edge
//! pointer, a comparison, a branch and the operation itself beside its two loads; scattering the first
//! three beside its load and store; a vertex about ten.

use super::graph::{Graph, Size, Vertex, peek_pointer, pointer};
use super::layout::{Array, Layout};
use super::{Progress, Workload};
use crate::space::{Port, Space};

const BATCH: usize = 256;
/// Vertices a core takes at a time.
const CHUNK: u32 = 64;

/// What a vertex program does.
pub(super) trait Program: Send + 'static {
    /// The name it is chosen by.
    const NAME: &'static str;
    /// Bytes of data at each edge.
    const DATA_BYTES: u64;
    /// Whether both ends of an edge gather from it and scatter to it; else the target gathers and
    /// the source scatters.
    const BOTH_WAYS: bool;
    /// What is gathered.
    type Gathered: Copy + Default + Send;

    /// Memory of its own, beside the graph.
    fn place(graph: &Graph, layout: &mut Layout, cores: usize) -> Self;
    /// Values and data before the first sweep.
    fn fill(&self, graph: &Graph, space: &mut Space);
    /// Looks at the data of one edge.
    fn gather(&self, port: &mut Port<'_>, gathered: &mut Self::Gathered, edge: Edge);
    /// The new value, and what is scattered, if anything.
    fn apply(
        &self,
        port: &mut Port<'_>,
        gathered: Self::Gathered,
        vertex: &Vertex,
        edge: Edge,
    ) -> (u32, Option<u32>);
    /// Writes to the data of one edge.
    fn scatter(&self, port: &mut Port<'_>, told: u32, edge: Edge);
    /// Whether no more sweeps are to be made after one that scattered that many vertices.
    fn is_done(&self, sweeps: u32, scattered: u64) -> bool;
    /// Checks the values, given those sweeps and who is ahead.
    fn check(&self, graph: &Graph, space: &Space, done: &Done<'_>) -> Result<(), String>;
}

/// Which edge of which update.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    /// Where its data is.
    pub(super) data: u64,
    /// Whether it is an in-edge of the vertex that is updated.
    pub(super) inward: bool,
    /// Which sweep, from 0.
    pub(super) sweep: u32,
    /// Which core.
    pub(super) core: usize,
    /// A number no other update of this core has.
    pub(super) stamp: u32,
    /// Edges of the vertex that is updated.
    pub(super) degree: u32,
}

/// How far a run is.
pub(super) struct Done<'a> {
    /// Whole sweeps.
    pub(super) sweeps: u32,
    /// Whether this vertex has its value of the sweep after.
    pub(super) is_ahead: &'a dyn Fn(u32) -> bool,
    /// Whether the program has ended.
    pub(super) ended: bool,
}

/// A vertex program as a workload.
pub(super) struct Sweep<P: Program> {
    graph: Graph,
    program: P,
    /// The counter from which chunks are taken.
    counter: Array<u32>,
    footprint: u64,
    next: u32,
    busy: usize,
    sweeps: u32,
    scattered: u64,
    ended: bool,
    walks: Vec<Walk<P>>,
}

/// Where a core is.
struct Walk<P: Program> {
    chunk: std::ops::Range<u32>,
    update: Option<Update<P>>,
    stamp: u32,
}

struct Update<P: Program> {
    vertex: Vertex,
    phase: Phase,
    next_edge: u32,
    gathered: P::Gathered,
    told: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Gather,
    Scatter,
}

impl<P: Program> Sweep<P> {
    pub(super) fn new(bytes: u64, cores: usize, seed: u64) -> Sweep<P> {
        let mut layout = Layout::default();
        let size = Size::of_bytes(bytes, P::DATA_BYTES);
        let graph = Graph::new(&mut layout, size, P::DATA_BYTES, seed);
        let program = P::place(&graph, &mut layout, cores);
        let counter = layout.array(1);
        let walk = |_| Walk {
            chunk: 0..0,
            update: None,
            stamp: 0,
        };
        Sweep {
            graph,
            program,
            counter,
            footprint: layout.bytes(),
            next: 0,
            busy: 0,
            sweeps: 0,
            scattered: 0,
            ended: false,
            walks: (0..cores).map(walk).collect(),
        }
    }

    /// Begins the core's next update; none when it must wait, or all is done.
    fn begin(&mut self, core: usize, port: &mut Port<'_>) -> Option<Update<P>> {
        let walk = &mut self.walks[core];
        if walk.chunk.is_empty() {
            if std::mem::take(&mut walk.chunk).end > 0 {
                self.busy -= 1;
            }
            if self.next == self.graph.size.vertices {
                if self.busy > 0 || self.ended {
                    return None;
                }
                self.sweeps += 1;
                self.ended = self
                    .program
                    .is_done(self.sweeps, std::mem::take(&mut self.scattered));
                if self.ended {
                    return None;
                }
                self.next = 0;
                self.counter.store(port, 0, 0);
            }
            port.work(4);
            let begin = self.counter.load(port, 0);
            let end = (begin + CHUNK).min(self.graph.size.vertices);
            self.counter.store(port, 0, end);
            walk.chunk = begin..end;
            self.next = end;
            self.busy += 1;
        }
        let v = walk.chunk.next()?;
        walk.stamp += 1;
        port.work(5);
        Some(Update {
            vertex: self.graph.vertex(port, v),
            phase: Phase::Gather,
            next_edge: 0,
            gathered: P::Gathered::default(),
            told: 0,
        })
    }

    /// Goes on with an update until the batch is full; whether it ended.
    fn advance(&mut self, core: usize, update: &mut Update<P>, port: &mut Port<'_>) -> bool {
        let program = &self.program;
        let Update {
            vertex,
            phase,
            next_edge,
            gathered,
            told,
        } = update;
        let mut edge = Edge {
            data: 0,
            inward: false,
            sweep: self.sweeps,
            core,
            stamp: self.walks[core].stamp,
            degree: vertex.in_count + vertex.out_count,
        };
        if *phase == Phase::Gather {
            while let Some((edges, i, inward)) = slot(vertex, *next_edge, P::BOTH_WAYS, true) {
                if port.batched() >= BATCH {
                    return false;
                }
                edge.data = pointer(port, edges, i);
                edge.inward = inward;
                program.gather(port, gathered, edge);
                port.work(3);
                *next_edge += 1;
            }
            let (value, scattered) = program.apply(port, *gathered, vertex, edge);
            port.store(vertex.value(), value);
            let Some(scattered) = scattered else {
                return true;
            };
            (*phase, *next_edge, *told) = (Phase::Scatter, 0, scattered);
            self.scattered += 1;
        }
        while let Some((edges, i, inward)) = slot(vertex, *next_edge, P::BOTH_WAYS, false) {
            if port.batched() >= BATCH {
                return false;
            }
            edge.data = pointer(port, edges, i);
            edge.inward = inward;
            program.scatter(port, *told, edge);
            port.work(3);
            *next_edge += 1;
        }
        true
    }

    /// Whether the vertex has its value of the sweep that is going on.
    fn is_ahead(&self, v: u32) -> bool {
        if self.ended || v >= self.next {
            return false;
        }
        !self.walks.iter().any(|walk| {
            let current = walk
                .update
                .as_ref()
                .filter(|update| update.phase == Phase::Gather);
            walk.chunk.contains(&v) || current.is_some_and(|_| v + 1 == walk.chunk.start)
        })
    }
}

/// Edge number `i` of those that are gathered from, or scattered to.
#[inline]
fn slot(vertex: &Vertex, i: u32, both: bool, gather: bool) -> Option<(u64, u32, bool)> {
    let ins = if both || gather { vertex.in_count } else { 0 };
    let outs = if both || !gather { vertex.out_count } else { 0 };
    if i < ins {
        Some((vertex.in_edges, i, true))
    } else if i - ins < outs {
        Some((vertex.out_edges, i - ins, false))
    } else {
        None
    }
}

impl<P: Program> Workload for Sweep<P> {
    fn name(&self) -> &str {
        P::NAME
    }

    fn footprint_bytes(&self) -> u64 {
        self.footprint
    }

    fn fill(&self, space: &mut Space) {
        self.graph.fill(space);
        self.program.fill(&self.graph, space);
    }

    fn run(&mut self, core: usize, port: &mut Port<'_>) -> Progress {
        while port.batched() < BATCH {
            let update = self.walks[core].update.take();
            let Some(mut update) = update.or_else(|| self.begin(core, port)) else {
                return match self.ended {
                    true => Progress::Done,
                    false if port.batched() > 0 => Progress::More,
                    false => Progress::Waiting,
                };
            };
            if !self.advance(core, &mut update, port) {
                self.walks[core].update = Some(update);
            }
        }
        Progress::More
    }

    fn check(&self, space: &Space) -> Result<(), String> {
        let done = Done {
            sweeps: self.sweeps,
            is_ahead: &|v| self.is_ahead(v),
            ended: self.ended,
        };
        self.program.check(&self.graph, space, &done)
    }
}

/// Every edge's data, in the order of the sources, outside the simulation.
pub(super) fn each_data(graph: &Graph, space: &mut Space, mut deed: impl FnMut(&mut Space, u32, u64)) {
    for v in 0..graph.size.vertices {
        let vertex = graph.peek(space, v);
        for i in 0..vertex.out_count {
            let data = peek_pointer(space, vertex.out_edges, i);
            deed(space, v, data);
        }
    }
}
