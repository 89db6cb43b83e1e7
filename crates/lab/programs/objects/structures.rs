//! The six structures of SIMPO's Table 3, each in an array of fixed size, with the functions that the table has.

/// Room of each.
pub const ROOM: usize = 256;
/// Vertices of a graph.
pub const VERTICES: usize = 32;

/// Numbers by place.
#[derive(Clone)]
pub struct Array {
    elements: [i64; ROOM],
}

impl Default for Array {
    fn default() -> Array {
        Array { elements: [0; ROOM] }
    }
}

impl Array {
    /// Adds to every element.
    pub fn increase_all(&mut self, by: i64) {
        for element in &mut self.elements {
            *element += by;
        }
    }

    /// Every element is 0.
    pub fn zero(&mut self) {
        self.elements.fill(0);
    }

    /// Writes the elements to the program's output.
    pub fn print_all(&self) {
        println!("{:?}", self.elements);
    }
}

/// First in, first out.
#[derive(Clone)]
pub struct Queue {
    elements: [i64; ROOM],
    first: usize,
    count: usize,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue {
            elements: [0; ROOM],
            first: 0,
            count: 0,
        }
    }
}

impl Queue {
    /// Takes all out.
    pub fn clear_queue(&mut self) {
        self.first = 0;
        self.count = 0;
    }

    /// Puts one in; a full queue stays as it is.
    pub fn en_queue(&mut self, value: i64) {
        if self.count < ROOM {
            self.elements[(self.first + self.count) % ROOM] = value;
            self.count += 1;
        }
    }

    /// Takes the oldest out.
    pub fn de_queue(&mut self) -> Option<i64> {
        if self.count == 0 {
            return None;
        }
        let value = self.elements[self.first];
        self.first = (self.first + 1) % ROOM;
        self.count -= 1;
        Some(value)
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether there is no room.
    pub fn is_full(&self) -> bool {
        self.count == ROOM
    }
}

/// The least comes first.
#[derive(Clone)]
pub struct Heap {
    elements: [i64; ROOM],
    count: usize,
}

impl Default for Heap {
    fn default() -> Heap {
        Heap {
            elements: [0; ROOM],
            count: 0,
        }
    }
}

impl Heap {
    /// Puts one in; a full heap stays as it is.
    pub fn en_heap(&mut self, value: i64) {
        if self.count == ROOM {
            return;
        }
        let mut place = self.count;
        self.elements[place] = value;
        self.count += 1;
        while place > 0 && self.elements[(place - 1) / 2] > self.elements[place] {
            self.elements.swap(place, (place - 1) / 2);
            place = (place - 1) / 2;
        }
    }

    /// Takes the least out.
    pub fn de_heap(&mut self) -> Option<i64> {
        if self.count == 0 {
            return None;
        }
        let least = self.elements[0];
        self.count -= 1;
        self.elements[0] = self.elements[self.count];
        let mut place = 0;
        loop {
            let mut child = 2 * place + 1;
            if child >= self.count {
                return Some(least);
            }
            if child + 1 < self.count && self.elements[child + 1] < self.elements[child] {
                child += 1;
            }
            if self.elements[place] <= self.elements[child] {
                return Some(least);
            }
            self.elements.swap(place, child);
            place = child;
        }
    }

    /// How many are in it.
    pub fn get_num_elements(&self) -> usize {
        self.count
    }

    /// Writes the elements to the program's output.
    pub fn print_all(&self) {
        println!("{:?}", &self.elements[..self.count]);
    }
}

/// Last in, first out.
#[derive(Clone)]
pub struct Stack {
    elements: [i64; ROOM],
    count: usize,
}

impl Default for Stack {
    fn default() -> Stack {
        Stack {
            elements: [0; ROOM],
            count: 0,
        }
    }
}

impl Stack {
    /// Puts one on top; a full stack stays as it is.
    pub fn push(&mut self, value: i64) {
        if self.count < ROOM {
            self.elements[self.count] = value;
            self.count += 1;
        }
    }

    /// Takes the top off.
    pub fn pop(&mut self) -> Option<i64> {
        if self.count == 0 {
            return None;
        }
        self.count -= 1;
        Some(self.elements[self.count])
    }

    /// The top.
    pub fn peek(&self) -> Option<i64> {
        match self.count {
            0 => None,
            count => Some(self.elements[count - 1]),
        }
    }

    /// Whether nothing is on it.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// A place in a tree: its value, and the places below.
#[derive(Clone, Copy, Default)]
struct Node {
    value: i64,
    less: Option<usize>,
    more: Option<usize>,
}

/// A search tree.
#[derive(Clone)]
pub struct Tree {
    nodes: [Node; ROOM],
    count: usize,
    root: Option<usize>,
}

impl Default for Tree {
    fn default() -> Tree {
        Tree {
            nodes: [Node::default(); ROOM],
            count: 0,
            root: None,
        }
    }
}

impl Tree {
    /// Puts a value in, once; a full tree stays as it is.
    pub fn insert_element(&mut self, value: i64) {
        if self.count == ROOM {
            return;
        }
        let node = Node {
            value,
            ..Node::default()
        };
        let Some(mut at) = self.root else {
            self.nodes[self.count] = node;
            self.root = Some(self.count);
            self.count += 1;
            return;
        };
        loop {
            if self.nodes[at].value == value {
                return;
            }
            let is_less = value < self.nodes[at].value;
            let below = if is_less {
                self.nodes[at].less
            } else {
                self.nodes[at].more
            };
            let Some(below) = below else {
                self.nodes[self.count] = node;
                if is_less {
                    self.nodes[at].less = Some(self.count);
                } else {
                    self.nodes[at].more = Some(self.count);
                }
                self.count += 1;
                return;
            };
            at = below;
        }
    }

    /// Makes it as low as it can be.
    pub fn balance(&mut self) {
        let mut values = Vec::new();
        for node in &self.nodes[..self.count] {
            values.push(node.value);
        }
        values.sort();
        self.count = 0;
        self.root = None;
        let mut parts = vec![(0, values.len())];
        while let Some((from, to)) = parts.pop() {
            if from < to {
                let middle = (from + to) / 2;
                self.insert_element(values[middle]);
                parts.push((from, middle));
                parts.push((middle + 1, to));
            }
        }
    }

    /// Takes a value out.
    pub fn delete_element(&mut self, value: i64) {
        let mut values = Vec::new();
        for node in &self.nodes[..self.count] {
            values.push(node.value);
        }
        self.count = 0;
        self.root = None;
        for other in values {
            if other != value {
                self.insert_element(other);
            }
        }
    }

    /// Whether a value is in it.
    pub fn search_element(&self, value: i64) -> bool {
        let mut at = self.root;
        while let Some(place) = at {
            let node = self.nodes[place];
            if node.value == value {
                return true;
            }
            at = if value < node.value { node.less } else { node.more };
        }
        false
    }
}

/// Weights between vertices.
#[derive(Clone)]
pub struct Graph {
    weights: [[u32; VERTICES]; VERTICES],
}

impl Default for Graph {
    fn default() -> Graph {
        Graph {
            weights: [[0; VERTICES]; VERTICES],
        }
    }
}

impl Graph {
    /// Joins two vertices by an edge of a weight.
    pub fn joinwt(&mut self, from: usize, to: usize, weight: u32) {
        self.weights[from % VERTICES][to % VERTICES] = weight;
    }

    /// Takes the edge away.
    pub fn removewt(&mut self, from: usize, to: usize) {
        self.weights[from % VERTICES][to % VERTICES] = 0;
    }

    /// The weight of the edge between two vertices, if there is one.
    pub fn adjacent(&self, from: usize, to: usize) -> Option<u32> {
        match self.weights[from % VERTICES][to % VERTICES] {
            0 => None,
            weight => Some(weight),
        }
    }
}
