//! A red-black tree in simulated memory (Cormen et al., Introduction to Algorithms, chapter 13).
//!
//! ```text
//! head   | root u64 | 0 ... | end 64 |              the end stands for every child that is not there
//! node   | key u64 | value u64 | left u64 | right u64 | parent u64 | is red u64 | 0 16 |
//! ```

use super::{Contents, Map, SEARCH};
use crate::op::LINE_BYTES;
use crate::space::{Port, Space};
use crate::workload::layout::{Layout, peek, poke};
use crate::workload::pool::Pool;

const VALUE: u64 = 8;
const LEFT: u64 = 16;
const RIGHT: u64 = 24;
const PARENT: u64 = 32;
const RED: u64 = 40;

pub(in crate::workload) struct RedBlack {
    root: u64,
    end: u64,
    nodes: Pool,
}

/// The child on the other side.
fn opposite(side: u64) -> u64 {
    LEFT + RIGHT - side
}

fn get(port: &mut Port<'_>, node: u64, field: u64) -> u64 {
    port.follow(node + field)
}

fn set(port: &mut Port<'_>, node: u64, field: u64, value: u64) {
    port.store(node + field, value);
}

impl RedBlack {
    pub(in crate::workload) fn new(layout: &mut Layout, keys: u64) -> RedBlack {
        let root = layout.region(2 * LINE_BYTES);
        RedBlack {
            root,
            end: root + LINE_BYTES,
            nodes: Pool::new(layout, keys, LINE_BYTES),
        }
    }

    /// The node of a key, or the end; and the last node on the way.
    pub(in crate::workload) fn find(&self, port: &mut Port<'_>, key: u64) -> (u64, u64) {
        let mut parent = self.end;
        let mut node: u64 = port.load(self.root);
        while node != self.end {
            port.work(SEARCH);
            let here = get(port, node, 0);
            if here == key {
                break;
            }
            parent = node;
            node = get(port, node, if key < here { LEFT } else { RIGHT });
        }
        (node, parent)
    }

    /// `new` takes the place of `old` below its parent.
    fn replace(&self, port: &mut Port<'_>, old: u64, new: u64) {
        let parent = get(port, old, PARENT);
        if parent == self.end {
            port.store(self.root, new);
        } else if get(port, parent, LEFT) == old {
            set(port, parent, LEFT, new);
        } else {
            set(port, parent, RIGHT, new);
        }
        set(port, new, PARENT, parent);
    }

    /// The node goes down to `side`, and its other child takes its place.
    fn rotate(&self, port: &mut Port<'_>, node: u64, side: u64) {
        let up = get(port, node, opposite(side));
        let between = get(port, up, side);
        set(port, node, opposite(side), between);
        if between != self.end {
            set(port, between, PARENT, node);
        }
        self.replace(port, node, up);
        set(port, up, side, node);
        set(port, node, PARENT, up);
    }

    /// The side of its parent that a node is on.
    fn side(port: &mut Port<'_>, node: u64, parent: u64) -> u64 {
        if get(port, parent, LEFT) == node {
            LEFT
        } else {
            RIGHT
        }
    }

    fn blacken(port: &mut Port<'_>, node: u64) {
        if get(port, node, RED) == 1 {
            set(port, node, RED, 0);
        }
    }

    /// A new node below the last on the way to its key ([`Self::find`]).
    pub(in crate::workload) fn insert(&self, port: &mut Port<'_>, parent: u64, key: u64, value: u64) {
        let node = self.nodes.take(port).expect("room for every key");
        let fields = [key, value, self.end, self.end, parent, 1];
        let bytes: Vec<u8> = fields.iter().flat_map(|field| field.to_le_bytes()).collect();
        port.store_bytes(node, &bytes);
        if parent == self.end {
            port.store(self.root, node);
        } else {
            let side = if key < get(port, parent, 0) { LEFT } else { RIGHT };
            set(port, parent, side, node);
        }
        self.after_insert(port, node);
    }

    fn after_insert(&self, port: &mut Port<'_>, mut node: u64) {
        loop {
            port.work(SEARCH);
            let parent = get(port, node, PARENT);
            if get(port, parent, RED) == 0 {
                break;
            }
            let above = get(port, parent, PARENT);
            let side = Self::side(port, parent, above);
            let uncle = get(port, above, opposite(side));
            if get(port, uncle, RED) == 1 {
                set(port, parent, RED, 0);
                set(port, uncle, RED, 0);
                set(port, above, RED, 1);
                node = above;
                continue;
            }
            let mut parent = parent;
            if get(port, parent, opposite(side)) == node {
                self.rotate(port, parent, side);
                parent = node;
            }
            set(port, parent, RED, 0);
            set(port, above, RED, 1);
            self.rotate(port, above, opposite(side));
            break;
        }
        let root = port.load(self.root);
        Self::blacken(port, root);
    }

    /// The value of a node.
    pub(in crate::workload) fn value(&self, port: &mut Port<'_>, node: u64) -> u64 {
        get(port, node, VALUE)
    }

    /// The value of a key.
    pub(in crate::workload) fn get(&self, port: &mut Port<'_>, key: u64) -> Option<u64> {
        let (node, _) = self.find(port, key);
        (!self.is_end(node)).then(|| self.value(port, node))
    }

    /// Whether this stands for a node that is not there.
    pub(in crate::workload) fn is_end(&self, node: u64) -> bool {
        node == self.end
    }

    /// Takes a node out.
    pub(in crate::workload) fn remove(&self, port: &mut Port<'_>, node: u64) {
        let (left, right) = (get(port, node, LEFT), get(port, node, RIGHT));
        let mut was_red = get(port, node, RED);
        let child = if left == self.end || right == self.end {
            let child = if left == self.end { right } else { left };
            self.replace(port, node, child);
            child
        } else {
            let next = self.least(port, right);
            let child = get(port, next, RIGHT);
            let red = std::mem::replace(&mut was_red, get(port, next, RED));
            if next == right {
                set(port, child, PARENT, next);
            } else {
                self.replace(port, next, child);
                set(port, next, RIGHT, right);
                set(port, right, PARENT, next);
            }
            self.replace(port, node, next);
            set(port, next, LEFT, left);
            set(port, left, PARENT, next);
            set(port, next, RED, red);
            child
        };
        if was_red == 0 {
            self.after_remove(port, child);
        }
        self.nodes.give(port, node);
    }

    fn least(&self, port: &mut Port<'_>, mut node: u64) -> u64 {
        loop {
            port.work(SEARCH);
            let left = get(port, node, LEFT);
            if left == self.end {
                return node;
            }
            node = left;
        }
    }

    /// The paths through `node` have one black node less than others.
    fn after_remove(&self, port: &mut Port<'_>, mut node: u64) {
        while node != port.load::<u64>(self.root) && get(port, node, RED) == 0 {
            port.work(SEARCH);
            let parent = get(port, node, PARENT);
            let side = Self::side(port, node, parent);
            let mut other = get(port, parent, opposite(side));
            if get(port, other, RED) == 1 {
                set(port, other, RED, 0);
                set(port, parent, RED, 1);
                self.rotate(port, parent, side);
                other = get(port, parent, opposite(side));
            }
            let near = get(port, other, side);
            let far = get(port, other, opposite(side));
            let (near_red, far_red) = (get(port, near, RED), get(port, far, RED));
            if near_red == 0 && far_red == 0 {
                set(port, other, RED, 1);
                node = parent;
                continue;
            }
            if far_red == 0 {
                set(port, near, RED, 0);
                set(port, other, RED, 1);
                self.rotate(port, other, opposite(side));
                other = near;
            }
            let red = get(port, parent, RED);
            set(port, other, RED, red);
            set(port, parent, RED, 0);
            let far = get(port, other, opposite(side));
            set(port, far, RED, 0);
            self.rotate(port, parent, side);
            return;
        }
        Self::blacken(port, node);
    }

    /// An empty tree gets these keys, which are in order, outside the simulation: as low as a tree can be, its nodes
    /// anywhere in memory.
    pub(in crate::workload) fn fill(&self, space: &mut Space, entries: &[(u64, u64)], seed: u64) {
        let mut nodes: Vec<u64> = entries.iter().map(|_| self.nodes.fill(space)).collect();
        fastrand::Rng::with_seed(seed).shuffle(&mut nodes);
        let levels = (entries.len() as u64 + 1).next_power_of_two().trailing_zeros();
        let whole: Vec<(u64, (u64, u64))> = nodes.into_iter().zip(entries.iter().copied()).collect();
        let root = self.fill_below(space, &whole, self.end, levels);
        poke(space, self.root, root);
    }

    /// The middle is the node, what is before and after it its subtrees. Nodes of the last level are red, so that all paths
    /// have as many black ones.
    fn fill_below(&self, space: &mut Space, all: &[(u64, (u64, u64))], parent: u64, levels: u32) -> u64 {
        let middle = all.len() / 2;
        let Some(&(node, (key, value))) = all.get(middle) else {
            return self.end;
        };
        let left = self.fill_below(space, &all[..middle], node, levels - 1);
        let right = self.fill_below(space, &all[middle + 1..], node, levels - 1);
        let is_red = u64::from(levels == 1 && parent != self.end);
        for (field, number) in [
            (0, key),
            (VALUE, value),
            (LEFT, left),
            (RIGHT, right),
            (PARENT, parent),
            (RED, is_red),
        ] {
            poke(space, node + field, number);
        }
        node
    }

    /// Keys and values, in order.
    ///
    /// # Errors
    /// An invariant of the tree does not hold.
    pub(in crate::workload) fn contents(&self, space: &Space) -> Result<Contents, String> {
        let mut found = Contents::new();
        self.walk(space, peek(space, self.root), (self.end, 0), &mut found)?;
        Ok(found)
    }

    /// Adds what is below a node, and returns the black nodes of each path there.
    fn walk(&self, space: &Space, node: u64, above: (u64, u64), found: &mut Contents) -> Result<u64, String> {
        if node == self.end {
            return Ok(1);
        }
        let field = |field| peek::<u64>(space, node + field);
        let (parent, parent_red) = above;
        let (key, red) = (field(0), field(RED));
        if field(PARENT) != parent || red > 1 || red + parent_red > 1 {
            return Err(format!("the node of key {key}: its parent or color is wrong"));
        }
        if found.len() as u64 >= self.nodes.capacity() {
            return Err("a circle of nodes".into());
        }
        let left = self.walk(space, field(LEFT), (node, red), found)?;
        if found.last().is_some_and(|&(before, _)| before >= key) {
            return Err(format!("key {key} is out of order"));
        }
        found.push((key, field(VALUE)));
        let right = self.walk(space, field(RIGHT), (node, red), found)?;
        match left == right {
            true => Ok(left + 1 - red),
            false => Err(format!("below key {key} are {left} and {right} black nodes")),
        }
    }
}

impl Map for RedBlack {
    fn create(&self, port: &mut Port<'_>) {
        port.store(self.root, self.end);
    }

    fn toggle(&self, port: &mut Port<'_>, key: u64, value: u64) {
        match self.find(port, key) {
            (node, parent) if node == self.end => self.insert(port, parent, key, value),
            (node, _) => self.remove(port, node),
        }
    }

    fn contents(&self, space: &Space) -> Result<Contents, String> {
        RedBlack::contents(self, space)
    }
}
