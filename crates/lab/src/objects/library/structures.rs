//! The six structures of Table 3, each in an array of fixed size: what `programs/objects/structures.rs` does, as accesses.
//!
//! * Sizes and algorithms are those of that source; a test compares every result with it.
//! * Each thread calls the functions of its structure at random, all equally often, with random arguments (4.2).
//! * Instructions are charged for each element that a function looks at.

use super::{Call, Class, Objects, Step};
use crate::op::LINE_BYTES;
use crate::space::{Plain, Port};

/// Room of a structure, and vertices of a graph, as in the source.
const ROOM: u64 = 256;
const VERTICES: u64 = 32;
/// A structure's elements come after a line with its counts.
const ELEMENTS: u64 = LINE_BYTES;
/// Bytes of an element, and of a node: its value, the places below, each one more than it is.
const ELEMENT: u64 = 8;
const NODE: u64 = 32;
/// Values that are put in: twice as many as there is room, so that some are found and some are not.
const VALUES: u64 = 2 * ROOM;
/// Instructions to print an element (open).
const PRINTED: u32 = 40;
/// What a function that finds nothing returns.
pub(super) const NOTHING: u64 = u64::MAX;

/// One of the six.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Structure {
    /// Numbers by place.
    Array,
    /// First in, first out.
    Queue,
    /// The least comes first.
    Heap,
    /// Last in, first out.
    Stack,
    /// A search tree.
    Tree,
    /// Weights between vertices.
    Graph,
}

use Class::{Deferrable, Instant};

impl Structure {
    /// All of them, as Table 3 orders them.
    pub const ALL: [Structure; 6] = [
        Structure::Array,
        Structure::Queue,
        Structure::Heap,
        Structure::Stack,
        Structure::Tree,
        Structure::Graph,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Structure::Array => "Array",
            Structure::Queue => "Queue",
            Structure::Heap => "Heap",
            Structure::Stack => "Stack",
            Structure::Tree => "Tree",
            Structure::Graph => "Graph",
        }
    }

    /// Its functions, as Table 3 has them.
    #[must_use]
    pub fn functions(self) -> &'static [(&'static str, Class)] {
        match self {
            Structure::Array => &[
                ("increase_all", Deferrable),
                ("zero", Deferrable),
                ("print_all", Instant),
            ],
            Structure::Queue => &[
                ("clear_queue", Deferrable),
                ("en_queue", Deferrable),
                ("de_queue", Instant),
                ("is_empty", Instant),
                ("is_full", Instant),
            ],
            Structure::Heap => &[
                ("en_heap", Deferrable),
                ("de_heap", Instant),
                ("get_num_elements", Instant),
                ("print_all", Instant),
            ],
            Structure::Stack => &[
                ("push", Deferrable),
                ("pop", Instant),
                ("peek", Instant),
                ("is_empty", Instant),
            ],
            Structure::Tree => &[
                ("insert_element", Deferrable),
                ("balance", Deferrable),
                ("delete_element", Deferrable),
                ("search_element", Instant),
            ],
            Structure::Graph => &[
                ("joinwt", Deferrable),
                ("removewt", Deferrable),
                ("adjacent", Instant),
            ],
        }
    }

    /// Bytes of it.
    #[must_use]
    pub fn bytes(self) -> u64 {
        match self {
            Structure::Tree => ELEMENTS + ROOM * NODE,
            Structure::Graph => VERTICES * VERTICES * 4,
            _ => ELEMENTS + ROOM * ELEMENT,
        }
    }

    /// Runs a function on the structure at `at`, where an element costs `element` instructions, and gives its result.
    ///
    /// # Panics
    /// It has no such function.
    pub fn run(self, function: u16, argument: u64, element: u32, at: u64, port: &mut Port<'_>) -> u64 {
        let mut place = At { at, element, port };
        let (name, _) = self.functions()[usize::from(function)];
        match (self, name) {
            (Structure::Array, "increase_all") => place.increase_all(argument),
            (Structure::Array, "zero") => place.zero(),
            (Structure::Array, _) => place.print(ROOM),
            (Structure::Queue, "clear_queue") => place.clear_queue(),
            (Structure::Queue, "en_queue") => place.en_queue(argument),
            (Structure::Queue, "de_queue") => return place.de_queue(),
            (Structure::Queue, "is_empty") => return u64::from(place.word(8) == 0),
            (Structure::Queue, _) => return u64::from(place.word(8) == ROOM),
            (Structure::Heap, "en_heap") => place.en_heap(argument),
            (Structure::Heap, "de_heap") => return place.de_heap(),
            (Structure::Heap, "get_num_elements") => return place.word(0),
            (Structure::Heap, _) => {
                let count = place.word(0);
                place.print(count);
            }
            (Structure::Stack, "push") => place.push(argument),
            (Structure::Stack, "pop") => return place.pop(),
            (Structure::Stack, "peek") => return place.peek(),
            (Structure::Stack, _) => return u64::from(place.word(0) == 0),
            (Structure::Tree, "insert_element") => place.insert(argument),
            (Structure::Tree, "balance") => place.balance(),
            (Structure::Tree, "delete_element") => place.delete(argument),
            (Structure::Tree, _) => return place.search(argument),
            (Structure::Graph, "joinwt") => place.set_weight(argument, (argument >> 32) as u32 | 1),
            (Structure::Graph, "removewt") => place.set_weight(argument, 0),
            (Structure::Graph, _) => return place.weight(argument),
        }
        0
    }
}

/// A structure where it lies.
struct At<'a, 'p> {
    at: u64,
    element: u32,
    port: &'a mut Port<'p>,
}

impl At<'_, '_> {
    /// A word of the counts.
    fn word(&mut self, offset: u64) -> u64 {
        self.port.load(self.at + offset)
    }

    fn set_word(&mut self, offset: u64, value: u64) {
        self.port.store(self.at + offset, value);
    }

    fn place(&self, number: u64) -> u64 {
        self.at + ELEMENTS + number * ELEMENT
    }

    fn get(&mut self, number: u64) -> u64 {
        self.port.work(self.element);
        self.port.load(self.place(number))
    }

    fn set(&mut self, number: u64, value: u64) {
        self.port.store(self.place(number), value);
    }

    fn increase_all(&mut self, by: u64) {
        for number in (0..ROOM).step_by(8) {
            let mut line = [0; LINE_BYTES as usize];
            self.port.work(8 * self.element);
            self.port.load_bytes(self.place(number), &mut line);
            for element in line.chunks_exact_mut(8) {
                u64::get(element).wrapping_add(by).put(element);
            }
            self.port.store_bytes(self.place(number), &line);
        }
    }

    fn zero(&mut self) {
        for number in (0..ROOM).step_by(8) {
            self.port
                .store_bytes(self.place(number), &[0; LINE_BYTES as usize]);
        }
    }

    fn print(&mut self, count: u64) {
        for number in (0..count).step_by(8) {
            let mut line = [0; LINE_BYTES as usize];
            self.port.load_bytes(self.place(number), &mut line);
            self.port.work((count - number).min(8) as u32 * PRINTED);
        }
    }

    fn clear_queue(&mut self) {
        self.set_word(0, 0);
        self.set_word(8, 0);
    }

    fn en_queue(&mut self, value: u64) {
        let (first, count) = (self.word(0), self.word(8));
        self.port.work(self.element);
        if count < ROOM {
            self.set((first + count) % ROOM, value);
            self.set_word(8, count + 1);
        }
    }

    fn de_queue(&mut self) -> u64 {
        let (first, count) = (self.word(0), self.word(8));
        if count == 0 {
            return NOTHING;
        }
        let value = self.get(first);
        self.set_word(0, (first + 1) % ROOM);
        self.set_word(8, count - 1);
        value
    }

    fn en_heap(&mut self, value: u64) {
        let count = self.word(0);
        if count == ROOM {
            return;
        }
        let mut place = count;
        self.set_word(0, count + 1);
        while place > 0 {
            let above = (place - 1) / 2;
            let other = self.get(above);
            if other <= value {
                break;
            }
            self.set(place, other);
            place = above;
        }
        self.set(place, value);
    }

    fn de_heap(&mut self) -> u64 {
        let count = self.word(0);
        if count == 0 {
            return NOTHING;
        }
        let (least, count) = (self.get(0), count - 1);
        let last = self.get(count);
        self.set_word(0, count);
        let mut place = 0;
        loop {
            let mut child = 2 * place + 1;
            if child >= count {
                break;
            }
            let mut value = self.get(child);
            if child + 1 < count {
                let other = self.get(child + 1);
                if other < value {
                    (child, value) = (child + 1, other);
                }
            }
            if last <= value {
                break;
            }
            self.set(place, value);
            place = child;
        }
        self.set(place, last);
        least
    }

    fn push(&mut self, value: u64) {
        let count = self.word(0);
        self.port.work(self.element);
        if count < ROOM {
            self.set(count, value);
            self.set_word(0, count + 1);
        }
    }

    fn peek(&mut self) -> u64 {
        match self.word(0) {
            0 => NOTHING,
            count => self.get(count - 1),
        }
    }

    fn pop(&mut self) -> u64 {
        let top = self.peek();
        if top != NOTHING {
            let count = self.word(0);
            self.set_word(0, count - 1);
        }
        top
    }

    fn node(&self, number: u64) -> u64 {
        self.at + ELEMENTS + number * NODE
    }

    /// A node's value, and where the node below for another value is kept.
    fn below(&mut self, number: u64, value: u64) -> (u64, u64) {
        self.port.work(self.element);
        let found: u64 = self.port.follow(self.node(number));
        (found, self.node(number) + if value < found { 8 } else { 16 })
    }

    fn insert(&mut self, value: u64) {
        let count = self.word(0);
        if count == ROOM {
            return;
        }
        let mut link = self.at + 8;
        loop {
            let at: u64 = self.port.follow(link);
            if at == 0 {
                break;
            }
            let (found, next) = self.below(at - 1, value);
            if found == value {
                return;
            }
            link = next;
        }
        let node = self.node(count);
        for (offset, word) in [(0, value), (8, 0), (16, 0)] {
            self.port.store(node + offset, word);
        }
        self.port.store(link, count + 1);
        self.set_word(0, count + 1);
    }

    fn search(&mut self, value: u64) -> u64 {
        let mut at: u64 = self.port.follow(self.at + 8);
        while at != 0 {
            let (found, next) = self.below(at - 1, value);
            if found == value {
                return 1;
            }
            at = self.port.follow(next);
        }
        0
    }

    /// Takes all values out.
    fn values(&mut self) -> Vec<u64> {
        let count = self.word(0);
        let values = (0..count).map(|number| {
            self.port.work(self.element);
            self.port.load(self.node(number))
        });
        let values = values.collect();
        self.set_word(0, 0);
        self.set_word(8, 0);
        values
    }

    fn balance(&mut self) {
        let mut values = self.values();
        values.sort_unstable();
        let count = values.len() as u32;
        // A comparison for each value and halving.
        self.port
            .work(count * self.element * count.checked_ilog2().unwrap_or(0));
        let mut parts = vec![(0, values.len())];
        while let Some((from, to)) = parts.pop() {
            if from < to {
                let middle = (from + to) / 2;
                self.insert(values[middle]);
                parts.push((from, middle));
                parts.push((middle + 1, to));
            }
        }
    }

    fn delete(&mut self, value: u64) {
        for other in self.values() {
            if other != value {
                self.insert(other);
            }
        }
    }

    fn edge(&self, argument: u64) -> u64 {
        let [from, to] = [argument & 0xffff, argument >> 16 & 0xffff].map(|vertex| vertex % VERTICES);
        self.at + (from * VERTICES + to) * 4
    }

    fn set_weight(&mut self, argument: u64, weight: u32) {
        self.port.work(self.element);
        self.port.store(self.edge(argument), weight);
    }

    fn weight(&mut self, argument: u64) -> u64 {
        self.port.work(self.element);
        match self.port.load::<u32>(self.edge(argument)) {
            0 => NOTHING,
            weight => weight.into(),
        }
    }
}

/// Threads that call the functions of a structure at random.
pub struct Structures {
    structure: Structure,
    element: u32,
    random: Vec<fastrand::Rng>,
}

impl Structures {
    /// For a number of threads; an element costs `element` instructions.
    #[must_use]
    pub fn new(structure: Structure, threads: usize, element: u32) -> Structures {
        let random = |thread| fastrand::Rng::with_seed(thread as u64);
        Structures {
            structure,
            element,
            random: (0..threads).map(random).collect(),
        }
    }
}

impl Objects for Structures {
    fn name(&self) -> &'static str {
        self.structure.name()
    }

    fn bytes(&self) -> u64 {
        self.structure.bytes()
    }

    fn next(&mut self, thread: usize) -> Step {
        let random = &mut self.random[thread];
        let functions = self.structure.functions();
        let function = random.usize(..functions.len());
        let argument = match self.structure {
            Structure::Graph => random.u64(..),
            _ => random.u64(..VALUES),
        };
        Step::Call(Call {
            object: 0,
            function: function as u16,
            argument,
            class: functions[function].1,
            is_apart: false,
            before: 0,
        })
    }

    fn run(&self, call: &Call, at: u64, port: &mut Port<'_>) -> u64 {
        self.structure
            .run(call.function, call.argument, self.element, at, port)
    }
}
