//! A B+-tree in simulated memory: keys and values in leaves, which are chained; entries of a node are sorted and moved
//! within it.
//!
//! ```text
//! head   | root u64 | levels above the leaves u64 |
//! node   | keys u64 | next leaf u64 | key u64 ... | value or child u64 ... |
//! ```
//! An inner node has one child more than it has keys; a key is not larger than any below the child after it.

use super::{Contents, Map, SEARCH};
use crate::space::{Port, Space};
use crate::workload::layout::{Layout, peek};
use crate::workload::pool::Pool;

/// Bytes of the largest node.
const LARGEST: u64 = super::NODES[super::NODES.len() - 1];

const NEXT: u64 = 8;
const KEYS: u64 = 16;

pub(super) struct BPlus<const NODE: u64> {
    head: u64,
    nodes: Pool,
}

/// Two children of a node and the key between them.
struct Pair {
    parent: u64,
    place: u64,
    left: u64,
    right: u64,
}

impl<const NODE: u64> BPlus<NODE> {
    /// Keys of a full node.
    const MOST: u64 = (NODE - 24) / 16;
    /// Keys of any node but the root, at least.
    const LEAST: u64 = Self::MOST / 2 - 1;
    const VALUES: u64 = NODE / 2;

    fn key_at(node: u64, place: u64) -> u64 {
        node + KEYS + place * 8
    }

    fn value_at(node: u64, place: u64) -> u64 {
        node + Self::VALUES + place * 8
    }

    fn count(port: &mut Port<'_>, node: u64) -> u64 {
        port.follow(node)
    }

    /// Moves words, also to where they overlap.
    fn copy(port: &mut Port<'_>, from: u64, to: u64, words: u64) {
        if words > 0 {
            let mut bytes = [0; LARGEST as usize];
            let bytes = &mut bytes[..words as usize * 8];
            port.load_bytes(from, bytes);
            port.store_bytes(to, bytes);
        }
    }

    /// Makes room in an array of `len` words, and puts a word there.
    fn insert_word(port: &mut Port<'_>, at: u64, after: u64, word: u64) {
        Self::copy(port, at, at + 8, after);
        port.store(at, word);
    }

    /// Puts a key and what belongs to it at a place; in an inner node, `shift` is 1: the child right of the key.
    fn insert_at(port: &mut Port<'_>, node: u64, place: u64, key: u64, value: u64, shift: u64) {
        let keys = Self::count(port, node);
        Self::insert_word(port, Self::key_at(node, place), keys - place, key);
        Self::insert_word(port, Self::value_at(node, place + shift), keys - place, value);
        port.store(node, keys + 1);
    }

    /// Takes out what [`Self::insert_at`] puts there. Returns the keys left.
    fn remove_at(port: &mut Port<'_>, node: u64, place: u64, shift: u64) -> u64 {
        let left = Self::count(port, node) - 1;
        Self::copy(
            port,
            Self::key_at(node, place + 1),
            Self::key_at(node, place),
            left - place,
        );
        let value = Self::value_at(node, place + shift);
        Self::copy(port, value + 8, value, left - place);
        port.store(node, left);
        left
    }

    pub(super) fn new(layout: &mut Layout, keys: u64) -> Self {
        BPlus {
            head: layout.region(16),
            nodes: Pool::new(layout, keys / Self::LEAST * 2 + 8, NODE),
        }
    }

    /// The first place of a node whose key is above `key`; or not below it, if `or_equal`.
    fn place(port: &mut Port<'_>, node: u64, key: u64, or_equal: bool) -> u64 {
        let (mut low, mut high) = (0, Self::count(port, node));
        while low < high {
            port.work(SEARCH);
            let middle = (low + high) / 2;
            let here: u64 = port.load(Self::key_at(node, middle));
            match here > key || or_equal && here == key {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        low
    }

    /// The leaf for a key, and the inner nodes above with the child that leads there, the root first.
    fn descend(&self, port: &mut Port<'_>, key: u64) -> (u64, Vec<(u64, u64)>) {
        let mut node: u64 = port.load(self.head);
        let levels: u64 = port.load(self.head + 8);
        let mut path = Vec::new();
        for _ in 0..levels {
            let place = Self::place(port, node, key, false);
            path.push((node, place));
            node = port.follow(Self::value_at(node, place));
        }
        (node, path)
    }

    fn node(&self, port: &mut Port<'_>) -> u64 {
        self.nodes.take(port).expect("room for every key")
    }

    fn insert(&self, port: &mut Port<'_>, leaf: u64, place: u64, path: Vec<(u64, u64)>, entry: (u64, u64)) {
        let Some(mut up) = self.insert_or_split(port, leaf, place, entry, 0) else {
            return;
        };
        for &(node, place) in path.iter().rev() {
            match self.insert_or_split(port, node, place, up, 1) {
                Some(more) => up = more,
                None => return,
            }
        }
        let root = self.node(port);
        let left: u64 = port.load(self.head);
        port.store(Self::key_at(root, 0), up.0);
        port.store(Self::value_at(root, 0), left);
        port.store(Self::value_at(root, 1), up.1);
        port.store(root, 1u64);
        let levels: u64 = port.load(self.head + 8);
        port.store(self.head, root);
        port.store(self.head + 8, levels + 1);
    }

    /// Puts an entry into a node. A full one gives its upper half to a new node: the key between them, and that node.
    fn insert_or_split(
        &self,
        port: &mut Port<'_>,
        node: u64,
        place: u64,
        (key, value): (u64, u64),
        shift: u64,
    ) -> Option<(u64, u64)> {
        if Self::count(port, node) < Self::MOST {
            Self::insert_at(port, node, place, key, value, shift);
            return None;
        }
        let right = self.node(port);
        let half = Self::MOST / 2;
        // Of an inner node the middle key goes up, and is in neither.
        let first = half + shift;
        let moved = Self::MOST - first;
        Self::copy(port, Self::key_at(node, first), Self::key_at(right, 0), moved);
        Self::copy(
            port,
            Self::value_at(node, first),
            Self::value_at(right, 0),
            moved + shift,
        );
        port.store(right, moved);
        if shift == 0 {
            let next: u64 = port.load(node + NEXT);
            port.store(right + NEXT, next);
            port.store(node + NEXT, right);
        }
        let middle: u64 = port.load(Self::key_at(node, half));
        port.store(node, half);
        match place <= half {
            true => Self::insert_at(port, node, place, key, value, shift),
            false => Self::insert_at(port, right, place - first, key, value, shift),
        }
        // The entry may be the first of the right leaf only by being above the middle key.
        Some((middle, right))
    }

    fn remove(&self, port: &mut Port<'_>, leaf: u64, place: u64, mut path: Vec<(u64, u64)>) {
        let mut left = Self::remove_at(port, leaf, place, 0);
        let mut node = leaf;
        let mut shift = 0;
        while left < Self::LEAST {
            let Some((parent, child)) = path.pop() else {
                return self.shrink(port, node, left, shift);
            };
            let place = child.saturating_sub(1);
            let pair = Pair {
                parent,
                place,
                left: port.follow(Self::value_at(parent, place)),
                right: port.follow(Self::value_at(parent, place + 1)),
            };
            let sibling = if pair.left == node { pair.right } else { pair.left };
            if Self::count(port, sibling) > Self::LEAST {
                return Self::borrow(port, &pair, pair.left == node, shift);
            }
            left = self.merge(port, &pair, shift);
            (node, shift) = (parent, 1);
        }
    }

    /// A root without keys gives way to its one child.
    fn shrink(&self, port: &mut Port<'_>, root: u64, keys: u64, shift: u64) {
        if keys == 0 && shift == 1 {
            let child: u64 = port.follow(Self::value_at(root, 0));
            let levels: u64 = port.load(self.head + 8);
            port.store(self.head, child);
            port.store(self.head + 8, levels - 1);
            self.nodes.give(port, root);
        }
    }

    /// One entry moves from a node to its sibling.
    fn borrow(port: &mut Port<'_>, pair: &Pair, to_left: bool, shift: u64) {
        let &Pair {
            parent,
            place,
            left,
            right,
        } = pair;
        let between = Self::key_at(parent, place);
        let (left_keys, right_keys) = (Self::count(port, left), Self::count(port, right));
        let down: u64 = port.load(between);
        if to_left {
            let first: u64 = port.load(Self::key_at(right, 0));
            let value: u64 = port.load(Self::value_at(right, 0));
            port.store(
                Self::key_at(left, left_keys),
                if shift == 1 { down } else { first },
            );
            port.store(Self::value_at(left, left_keys + shift), value);
            port.store(left, left_keys + 1);
            Self::copy(
                port,
                Self::key_at(right, 1),
                Self::key_at(right, 0),
                right_keys - 1,
            );
            Self::copy(
                port,
                Self::value_at(right, 1),
                Self::value_at(right, 0),
                right_keys - 1 + shift,
            );
            port.store(right, right_keys - 1);
            let up = match shift {
                1 => first,
                _ => port.load(Self::key_at(right, 0)),
            };
            port.store(between, up);
        } else {
            let last: u64 = port.load(Self::key_at(left, left_keys - 1));
            let value: u64 = port.load(Self::value_at(left, left_keys - 1 + shift));
            Self::insert_word(
                port,
                Self::key_at(right, 0),
                right_keys,
                if shift == 1 { down } else { last },
            );
            Self::insert_word(port, Self::value_at(right, 0), right_keys + shift, value);
            port.store(right, right_keys + 1);
            port.store(left, left_keys - 1);
            port.store(between, last);
        }
    }

    /// The right node's entries go to the left one. Returns the keys left in the parent.
    fn merge(&self, port: &mut Port<'_>, pair: &Pair, shift: u64) -> u64 {
        let &Pair {
            parent,
            place,
            left,
            right,
        } = pair;
        let (left_keys, right_keys) = (Self::count(port, left), Self::count(port, right));
        if shift == 1 {
            let down: u64 = port.load(Self::key_at(parent, place));
            port.store(Self::key_at(left, left_keys), down);
        } else {
            let next: u64 = port.load(right + NEXT);
            port.store(left + NEXT, next);
        }
        let first = left_keys + shift;
        Self::copy(
            port,
            Self::key_at(right, 0),
            Self::key_at(left, first),
            right_keys,
        );
        Self::copy(
            port,
            Self::value_at(right, 0),
            Self::value_at(left, first),
            right_keys + shift,
        );
        port.store(left, first + right_keys);
        self.nodes.give(port, right);
        Self::remove_at(port, parent, place, 1)
    }

    /// Adds what is below a node; its leaves go to `leaves`.
    fn walk(
        &self,
        space: &Space,
        node: u64,
        levels: u64,
        found: &mut Contents,
        leaves: &mut Vec<u64>,
    ) -> Result<(), String> {
        let is_root = peek::<u64>(space, self.head) == node;
        let keys: u64 = peek(space, node);
        if keys > Self::MOST || keys < Self::LEAST && !is_root {
            return Err(format!("a node of {keys} keys"));
        }
        let key = |place: u64| peek::<u64>(space, Self::key_at(node, place));
        let value = |place: u64| peek::<u64>(space, Self::value_at(node, place));
        let mut add = |found: &mut Contents, bound: Option<u64>, place: u64| {
            let before = found.len();
            match levels {
                0 => found.push((key(place), value(place))),
                _ => self.walk(space, value(place), levels - 1, found, leaves)?,
            }
            let new = &found[before..];
            let is_above = before == 0 || found[before - 1].0 < new[0].0;
            match is_above && bound.is_none_or(|bound| bound <= new[0].0) {
                true => Ok(()),
                false => Err(format!("key {} is out of order", new[0].0)),
            }
        };
        for place in 0..keys {
            let bound = (levels > 0 && place > 0).then(|| key(place - 1));
            add(found, bound, place)?;
            if levels > 0 && found.last().is_some_and(|&(last, _)| last >= key(place)) {
                return Err(format!("key {} is below the wrong child", key(place)));
            }
        }
        match levels {
            0 => leaves.push(node),
            _ => add(found, Some(key(keys - 1)), keys)?,
        }
        Ok(())
    }
}

impl<const NODE: u64> Map for BPlus<NODE> {
    fn create(&self, port: &mut Port<'_>) {
        let root = self.node(port);
        port.store(root, 0u64);
        port.store(root + NEXT, 0u64);
        port.store(self.head, root);
    }

    fn toggle(&self, port: &mut Port<'_>, key: u64, value: u64) {
        let (leaf, path) = self.descend(port, key);
        let place = Self::place(port, leaf, key, true);
        let is_there = place < Self::count(port, leaf) && port.load::<u64>(Self::key_at(leaf, place)) == key;
        match is_there {
            true => self.remove(port, leaf, place, path),
            false => self.insert(port, leaf, place, path, (key, value)),
        }
    }

    fn contents(&self, space: &Space) -> Result<Contents, String> {
        let (mut found, mut leaves) = (Contents::new(), Vec::new());
        let levels: u64 = peek(space, self.head + 8);
        self.walk(space, peek(space, self.head), levels, &mut found, &mut leaves)?;
        let next = leaves.iter().skip(1).copied().chain([0]);
        match leaves
            .iter()
            .zip(next)
            .all(|(&leaf, next)| peek::<u64>(space, leaf + NEXT) == next)
        {
            true => Ok(found),
            false => Err("the leaves are not chained in order".into()),
        }
    }
}
