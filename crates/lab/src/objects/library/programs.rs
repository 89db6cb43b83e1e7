//! The four programs of 4.3, with the functions that the paper says are deferrable and instant.
//!
//! * Data is real: matrices are multiplied, shortest paths found, weights changed, blocks queued.
//! * The paper gives no sizes. They are named here, and where a size has an origin it is said.
//! * What a thread computes outside its objects is instructions alone.

use super::structures::Structure;
use super::{Call, Class, Objects, Step};
use crate::op::LINE_BYTES;
use crate::space::{Plain, Port};

/// One of the four.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Application {
    /// Restricted Boltzmann machines.
    Rbm,
    /// Linpack's matrix multiplication.
    Linpack,
    /// Compression of a file by blocks.
    Pbzip2,
    /// Shortest paths by Floyd and Warshall.
    Floyd,
}

impl Application {
    /// All of them, as 4.3 orders them.
    pub const ALL: [Application; 4] = [
        Application::Rbm,
        Application::Linpack,
        Application::Pbzip2,
        Application::Floyd,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Application::Rbm => "RBM",
            Application::Linpack => "Linpack",
            Application::Pbzip2 => "Pbzip2",
            Application::Floyd => "Floyd-Warshall",
        }
    }

    /// The program, for a number of threads; an element costs `element` instructions.
    #[must_use]
    pub fn objects(self, threads: usize, element: u32) -> Box<dyn Objects> {
        match self {
            Application::Rbm => Box::new(Rbm::new(threads, element)),
            Application::Linpack => Box::new(Linpack::new(threads, element)),
            Application::Pbzip2 => Box::new(Pbzip2::new(threads, element)),
            Application::Floyd => Box::new(Floyd::new(threads, element)),
        }
    }
}

/// The rows of a matrix that a thread has: they are shared out evenly.
fn rows_of(thread: usize, threads: usize, rows: u64) -> std::ops::Range<u64> {
    let from = |thread: usize| rows * thread as u64 / threads as u64;
    from(thread)..from(thread + 1)
}

fn instant(function: u16, argument: u64) -> Call {
    Call {
        object: 0,
        function,
        argument,
        class: Class::Instant,
        is_apart: true,
        before: 0,
    }
}

/// Each thread trains on its own part of the data, an object of its own: Train is deferrable, the barrier after it instant
/// (4.3.1).
pub struct Rbm {
    threads: usize,
    element: u32,
    is_trained: Vec<bool>,
    iterations: Vec<u64>,
}

impl Rbm {
    /// Visible units: images of 16 by 16 (open: Hinton's digits of the US post office).
    const VISIBLE: u64 = 256;
    /// Hidden units (open).
    const HIDDEN: u64 = 64;
    /// Images that an iteration trains on (Hinton's practical guide: 10 to 100).
    const BATCH: u64 = 10;
    /// Images of a thread (open).
    const IMAGES: u64 = 100;
    /// Of an iteration of contrastive divergence: up, down, up again, and the change of the weights.
    const PASSES: u64 = 4;
    const WEIGHTS: u64 = Self::VISIBLE * Self::HIDDEN * 4;

    /// For a number of threads; a weight costs `element` instructions.
    #[must_use]
    pub fn new(threads: usize, element: u32) -> Rbm {
        Rbm {
            threads,
            element,
            is_trained: vec![false; threads],
            iterations: vec![0; threads],
        }
    }
}

impl Objects for Rbm {
    fn name(&self) -> &'static str {
        Application::Rbm.name()
    }

    fn count(&self) -> usize {
        self.threads
    }

    fn bytes(&self) -> u64 {
        Rbm::WEIGHTS + Rbm::IMAGES * Rbm::VISIBLE
    }

    fn next(&mut self, thread: usize) -> Step {
        let call = |function, argument, class| {
            Step::Call(Call {
                object: thread,
                function,
                argument,
                class,
                is_apart: false,
                before: 0,
            })
        };
        let iteration = self.iterations[thread];
        // Train, then the barrier's function, then the wait itself.
        match (self.is_trained[thread], iteration % 2) {
            (false, 0) => {
                self.is_trained[thread] = true;
                call(0, iteration / 2, Class::Deferrable)
            }
            (true, 0) => {
                self.iterations[thread] += 1;
                call(1, 0, Class::Instant)
            }
            _ => {
                self.is_trained[thread] = false;
                self.iterations[thread] += 1;
                Step::Barrier
            }
        }
    }

    fn run(&self, call: &Call, at: u64, port: &mut Port<'_>) -> u64 {
        if call.function == 1 {
            return 0;
        }
        let images = at + Rbm::WEIGHTS;
        let first = call.argument * Rbm::BATCH % Rbm::IMAGES * Rbm::VISIBLE;
        let mut seen = vec![0; (Rbm::BATCH * Rbm::VISIBLE) as usize];
        port.load_bytes(images + first, &mut seen);
        for pass in 1..=Rbm::PASSES {
            for place in (0..Rbm::WEIGHTS).step_by(LINE_BYTES as usize) {
                let mut line = [0; LINE_BYTES as usize];
                port.work(self.element * Rbm::BATCH as u32 * LINE_BYTES as u32 / 4);
                port.load_bytes(at + place, &mut line);
                if pass == Rbm::PASSES {
                    for weight in line.chunks_exact_mut(4) {
                        (u32::get(weight).wrapping_add(call.argument as u32 + 1)).put(weight);
                    }
                    port.store_bytes(at + place, &line);
                }
            }
        }
        0
    }
}

/// Threads multiply two matrices again and again, each the rows that it has: the multiplication is instant (4.3.2).
pub struct Linpack {
    threads: usize,
    element: u32,
    products: Vec<u64>,
}

impl Linpack {
    /// Rows and columns (Linpack's own size in 1988).
    const ROWS: u64 = 100;
    /// Rows that are multiplied while a row of the other matrix is in registers.
    const TOGETHER: u64 = 4;
    const ROW: u64 = Self::ROWS * 8;
    const MATRIX: u64 = Self::ROWS * Self::ROW;

    /// For a number of threads; an element costs `element` instructions.
    #[must_use]
    pub fn new(threads: usize, element: u32) -> Linpack {
        Linpack {
            threads,
            element,
            products: vec![0; threads],
        }
    }

    fn row(at: u64, port: &mut Port<'_>) -> Vec<f64> {
        let mut bytes = vec![0; Linpack::ROW as usize];
        port.load_bytes(at, &mut bytes);
        bytes.chunks_exact(8).map(f64::get).collect()
    }

    /// Some rows of the product, times a factor.
    fn rows(&self, rows: std::ops::Range<u64>, factor: f64, at: u64, port: &mut Port<'_>) {
        let [other, product] = [1, 2].map(|matrix| at + matrix * Linpack::MATRIX);
        let count = rows.end - rows.start;
        let mine: Vec<Vec<f64>> = rows
            .clone()
            .map(|row| Linpack::row(at + row * Linpack::ROW, port))
            .collect();
        let mut sums = vec![[0.0; Linpack::ROWS as usize]; count as usize];
        for middle in 0..Linpack::ROWS {
            let row = Linpack::row(other + middle * Linpack::ROW, port);
            port.work(self.element * (count * Linpack::ROWS) as u32);
            for (sums, mine) in sums.iter_mut().zip(&mine) {
                let by = mine[middle as usize] * factor;
                for (sum, element) in sums.iter_mut().zip(&row) {
                    *sum += by * element;
                }
            }
        }
        for (row, sums) in rows.zip(&sums) {
            let bytes: Vec<u8> = sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
            port.store_bytes(product + row * Linpack::ROW, &bytes);
        }
    }
}

impl Objects for Linpack {
    fn name(&self) -> &'static str {
        Application::Linpack.name()
    }

    fn bytes(&self) -> u64 {
        3 * Linpack::MATRIX
    }

    fn fill(&self, bytes: &mut [u8]) {
        let elements = bytes[..2 * Linpack::MATRIX as usize].chunks_exact_mut(8);
        for (number, element) in elements.enumerate() {
            ((number % 17) as f64).put(element);
        }
    }

    fn next(&mut self, thread: usize) -> Step {
        let product = &mut self.products[thread];
        *product += 1;
        Step::Call(instant(0, *product << 8 | thread as u64))
    }

    fn run(&self, call: &Call, at: u64, port: &mut Port<'_>) -> u64 {
        let (thread, factor) = ((call.argument & 0xff) as usize, (call.argument >> 8) as f64);
        let rows = rows_of(thread, self.threads, Linpack::ROWS);
        for first in rows.clone().step_by(Linpack::TOGETHER as usize) {
            self.rows(first..(first + Linpack::TOGETHER).min(rows.end), factor, at, port);
        }
        0
    }
}

/// Threads compress blocks. Each puts the block it has finished into a queue of the library, and takes the one that is to
/// be written out next (4.3.3). The file itself is not read or written: both versions do the same there.
pub struct Pbzip2 {
    element: u32,
    blocks: Vec<u64>,
}

impl Pbzip2 {
    /// Bytes of a block: bzip2's largest.
    const BLOCK: u32 = 900_000;
    /// Instructions to compress a byte (open: some 10 MB/s on a core).
    const COMPRESSED: u32 = 100;

    /// For a number of threads; an element of the queue costs `element` instructions.
    #[must_use]
    pub fn new(threads: usize, element: u32) -> Pbzip2 {
        Pbzip2 {
            element,
            blocks: vec![0; threads],
        }
    }
}

impl Objects for Pbzip2 {
    fn name(&self) -> &'static str {
        Application::Pbzip2.name()
    }

    fn bytes(&self) -> u64 {
        Structure::Queue.bytes()
    }

    fn next(&mut self, thread: usize) -> Step {
        let calls = &mut self.blocks[thread];
        *calls += 1;
        // en_queue after a block has been compressed, then de_queue.
        let is_put = *calls % 2 == 1;
        Step::Call(Call {
            object: 0,
            function: if is_put { 1 } else { 2 },
            argument: *calls << 8 | thread as u64,
            class: if is_put { Class::Deferrable } else { Class::Instant },
            is_apart: false,
            before: if is_put {
                Pbzip2::BLOCK * Pbzip2::COMPRESSED
            } else {
                0
            },
        })
    }

    fn run(&self, call: &Call, at: u64, port: &mut Port<'_>) -> u64 {
        Structure::Queue.run(call.function, call.argument, self.element, at, port)
    }
}

/// Shortest paths in a graph: for each vertex, threads look whether paths are shorter through it, each in its rows. This is
/// instant, and after it all wait for one another (4.3.4).
pub struct Floyd {
    threads: usize,
    element: u32,
    vertices: Vec<(u64, bool)>,
}

impl Floyd {
    /// Vertices (open).
    const VERTICES: u64 = 512;
    const ROW: u64 = Self::VERTICES * 4;
    /// No edge. Two of them are still a number.
    const FAR: u32 = 1 << 30;

    /// For a number of threads; an element costs `element` instructions.
    #[must_use]
    pub fn new(threads: usize, element: u32) -> Floyd {
        Floyd {
            threads,
            element,
            vertices: vec![(0, false); threads],
        }
    }
}

impl Objects for Floyd {
    fn name(&self) -> &'static str {
        Application::Floyd.name()
    }

    fn bytes(&self) -> u64 {
        Floyd::VERTICES * Floyd::ROW
    }

    fn fill(&self, bytes: &mut [u8]) {
        let mut random = fastrand::Rng::with_seed(1);
        for (number, weight) in bytes.chunks_exact_mut(4).enumerate() {
            let (from, to) = (number as u64 / Floyd::VERTICES, number as u64 % Floyd::VERTICES);
            let is_edge = random.u32(..16) == 0;
            let drawn = random.u32(1..1000);
            let long = if is_edge { drawn } else { Floyd::FAR };
            (if from == to { 0 } else { long }).put(weight);
        }
    }

    fn next(&mut self, thread: usize) -> Step {
        let (vertex, has_looked) = &mut self.vertices[thread];
        if std::mem::take(has_looked) {
            return Step::Barrier;
        }
        *has_looked = true;
        let through = *vertex % Floyd::VERTICES;
        *vertex += 1;
        Step::Call(instant(0, through << 8 | thread as u64))
    }

    fn run(&self, call: &Call, at: u64, port: &mut Port<'_>) -> u64 {
        let (thread, through) = ((call.argument & 0xff) as usize, call.argument >> 8);
        let mut beyond = vec![0; Floyd::ROW as usize];
        port.load_bytes(at + through * Floyd::ROW, &mut beyond);
        for row in rows_of(thread, self.threads, Floyd::VERTICES) {
            let row = at + row * Floyd::ROW;
            let there: u32 = port.load(row + through * 4);
            for (place, beyond) in (0..Floyd::ROW)
                .step_by(LINE_BYTES as usize)
                .zip(beyond.chunks_exact(LINE_BYTES as usize))
            {
                let mut line = [0; LINE_BYTES as usize];
                port.work(self.element * LINE_BYTES as u32 / 4);
                port.load_bytes(row + place, &mut line);
                let old = line;
                for (weight, beyond) in line.chunks_exact_mut(4).zip(beyond.chunks_exact(4)) {
                    let long = there + u32::get(beyond);
                    (u32::get(weight).min(long)).put(weight);
                }
                if line != old {
                    port.store_bytes(row + place, &line);
                }
            }
        }
        0
    }
}
