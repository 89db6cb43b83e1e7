//! Entries put into a tree and taken out, at the end of a path; the tree stays balanced.
//!
//! * Every leaf is as far from the root: a tree grows and shrinks at its root only.
//! * A full node that gets an entry is split around its middle entry, which goes to the node above.
//! * A node left with too few takes an entry from one beside it, or becomes one with it (`node.rs`).
//! * All the memory an insertion needs is taken before anything changes; a removal needs none.

use super::map::BTreeMap;
use super::node::{LEAST, Leaf, MOST, Node};
use super::search::{DEEPEST, Path};
use crate::heap::{Heap, HeapError};

impl<K, V> BTreeMap<K, V> {
    /// Puts an entry where a search for its key ended: at a leaf. Returns where it is then, or nothing
    /// changed.
    pub(super) fn try_insert_at(
        &mut self,
        mut path: Path<K, V>,
        key: K,
        value: V,
    ) -> Result<Path<K, V>, HeapError> {
        let Some(root) = self.root() else {
            let leaf = Node::try_new(0, self.heap)?;
            // SAFETY: the leaf is empty.
            unsafe { leaf.insert(0, key, value, None) };
            (self.root, self.height, self.length) = (leaf.at, 0, 1);
            path.set(leaf, 0);
            return Ok(path);
        };
        let (leaf, index) = path.at(0);
        if leaf.len() < MOST {
            // SAFETY: there is room.
            unsafe { leaf.insert(index, key, value, None) };
        } else {
            let mut spare = Spare::new(self, &path, root)?;
            self.split_up(&mut path, key, value, &mut spare);
        }
        self.length += 1;
        Ok(path)
    }

    /// Puts an entry into a full leaf: splits it, and those above it that are full too. `path` then leads
    /// to the entry, in its lowest step only.
    fn split_up(&mut self, path: &mut Path<K, V>, key: K, value: V, spare: &mut Spare<K, V>) {
        let (mut carried, mut level) = ((key, value, None), 0);
        loop {
            let (node, index) = path.at(level);
            let (key, value, child) = carried;
            if node.len() < MOST {
                // SAFETY: there is room; the child belongs behind the entry that was between the halves.
                unsafe { node.insert(index, key, value, child) };
                return;
            }
            let upper = spare.take(level);
            // SAFETY: the node is full, the other new. Each half then has room.
            let between = unsafe {
                let between = node.split(upper);
                let (half, place) = if index <= LEAST {
                    (node, index)
                } else {
                    (upper, index - LEAST - 1)
                };
                half.insert(place, key, value, child);
                if level == 0 {
                    path.set(half, place);
                }
                between
            };
            if level == self.height {
                let root = spare.take(level + 1);
                // SAFETY: the new root is empty.
                unsafe { root.set_root(node, between, upper) };
                (self.root, self.height) = (root.at, root.height);
                return;
            }
            carried = (between.0, between.1, Some(upper));
            level += 1;
        }
    }

    /// Takes the entry a path leads to out.
    pub(super) fn remove_at(&mut self, mut path: Path<K, V>) -> (K, V) {
        let (node, index) = path.entry();
        let removed = if node.height == 0 {
            // SAFETY: the entry is there.
            unsafe { node.remove(index) }
        } else {
            // The last entry before it, which is in a leaf, takes its place.
            let mut below = node.child(index);
            while below.height > 0 {
                path.set(below, below.len());
                below = below.child(below.len());
            }
            let last = below.len() - 1;
            path.set(below, last);
            // SAFETY: both entries are there.
            unsafe {
                let entry = below.remove(last);
                node.replace(index, entry)
            }
        };
        self.length -= 1;
        self.mend_up(&path);
        removed
    }

    /// Makes the nodes of a path right again, from a leaf that lost an entry.
    fn mend_up(&mut self, path: &Path<K, V>) {
        for level in 0..self.height {
            if path.at(level).0.len() >= LEAST {
                return;
            }
            let (above, index) = path.at(level + 1);
            // SAFETY: `index` is the child of this path. What is freed has no entries.
            unsafe {
                if let Some(gone) = above.mend(index) {
                    gone.free(self.heap);
                }
            }
        }
        let root = Node {
            at: self.root,
            height: self.height,
        };
        if root.len() == 0 {
            (self.root, self.height) = match root.height {
                0 => (std::ptr::null_mut(), 0),
                _ => (root.child(0).at, root.height - 1),
            };
            // SAFETY: the root has no entries, and its child, if any, is the root now.
            unsafe { root.free(self.heap) };
        }
    }
}

/// Nodes for a split, taken before anything changes; what is not used is freed.
struct Spare<K, V> {
    nodes: [*mut Leaf<K, V>; DEEPEST],
    heap: Heap,
}

impl<K, V> Spare<K, V> {
    /// One for each full node from the leaf up, and one for a new root if all are full.
    fn new(map: &BTreeMap<K, V>, path: &Path<K, V>, root: Node<K, V>) -> Result<Self, HeapError> {
        let mut spare = Spare {
            nodes: [std::ptr::null_mut(); DEEPEST],
            heap: map.heap,
        };
        for level in 0..=root.height {
            if path.at(level).0.len() < MOST {
                return Ok(spare);
            }
            spare.nodes[level] = Node::try_new(level, map.heap)?.at;
        }
        spare.nodes[root.height + 1] = Node::try_new(root.height + 1, map.heap)?.at;
        Ok(spare)
    }

    fn take(&mut self, level: usize) -> Node<K, V> {
        let at = std::mem::replace(&mut self.nodes[level], std::ptr::null_mut());
        assert!(!at.is_null(), "a node was taken for each that splits");
        Node { at, height: level }
    }
}

impl<K, V> Drop for Spare<K, V> {
    fn drop(&mut self) {
        for (height, &at) in self.nodes.iter().enumerate().filter(|(_, at)| !at.is_null()) {
            // SAFETY: the node was not used.
            unsafe { Node { at, height }.free(self.heap) };
        }
    }
}
