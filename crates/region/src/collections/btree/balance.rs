//! Entries put into a tree and taken out, at the end of a path; the tree stays balanced.
//!
//! * Every leaf is as far from the root: a tree grows and shrinks at its root only.
//! * A full node that gets an entry is split around its middle entry, which goes to the node above.
//! * A node left with too few takes an entry from one beside it, or becomes one with it (`node.rs`).
//! * All the memory an insertion needs is taken before anything changes; a removal needs none.

use super::BTreeMap;
use super::node::{LEAST, Leaf, MOST, Node};
use super::search::{DEEPEST, Path};
use crate::heap::{HeapError, RawHeap};

impl<'r, K, V> BTreeMap<'r, K, V> {
    /// Puts an entry where a search for its key ended: at a leaf. Returns where it is then, or nothing
    /// changed.
    pub(super) fn try_insert_at(
        &mut self,
        mut path: Path<K, V>,
        key: K,
        value: V,
    ) -> Result<Path<K, V>, HeapError> {
        if self.root().is_some() && path.at(0).0.len() < MOST {
            let (leaf, index) = path.at(0);
            // SAFETY: there is room.
            unsafe { leaf.insert(index, key, value, None) };
            self.length += 1;
        } else {
            let mut spare = Spare::new(self, &path)?;
            self.insert_at(&mut path, key, value, &mut spare);
        }
        Ok(path)
    }

    /// As [`BTreeMap::try_insert_at`], with the nodes it needs.
    pub(super) fn insert_at(&mut self, path: &mut Path<K, V>, key: K, value: V, spare: &mut Spare<K, V>) {
        if self.root().is_none() {
            let leaf = spare.take(0);
            // SAFETY: the leaf is empty.
            unsafe { leaf.insert(0, key, value, None) };
            (self.root, self.height) = (leaf.at, 0);
            path.set(leaf, 0);
        } else {
            self.split_up(path, key, value, spare);
        }
        self.length += 1;
    }

    /// Puts an entry into a leaf: splits it if it is full, and those above it that are full too. `path` then
    /// leads to the entry, in its lowest step only.
    fn split_up(&mut self, path: &mut Path<K, V>, key: K, value: V, spare: &mut Spare<K, V>) {
        self.split_from(0, path, (key, value, None), spare);
    }

    /// The same from a level on, with the child that is behind the entry.
    pub(super) fn split_from(
        &mut self,
        mut level: usize,
        path: &mut Path<K, V>,
        mut carried: (K, V, Option<Node<K, V>>),
        spare: &mut Spare<K, V>,
    ) {
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

    /// Takes the entry a path leads to out. The path then leads to an edge of a leaf: where the entry was, or, if
    /// the entry before it took its place, before that one, which is said.
    pub(super) fn remove_at(&mut self, path: &mut Path<K, V>) -> ((K, V), bool) {
        let (node, index) = path.entry();
        let (removed, is_replaced) = if node.height == 0 {
            // SAFETY: the entry is there.
            (unsafe { node.remove(index) }, false)
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
                (node.replace(index, entry), true)
            }
        };
        path.level = 0;
        self.length -= 1;
        self.mend_up(path);
        (removed, is_replaced)
    }

    /// Mends the nodes of a path, from a leaf that lost an entry. The path leads to the same edge then.
    fn mend_up(&mut self, path: &mut Path<K, V>) {
        for level in 0..self.height {
            let (node, index) = path.at(level);
            if node.len() >= LEAST {
                return;
            }
            let (above, child) = path.at(level + 1);
            // SAFETY: `child` is the child of this path. What is freed has no entries.
            unsafe {
                let mended = above.mend(child);
                path.set(mended.now, index + mended.shift);
                if mended.now.at != node.at {
                    path.set(above, child - 1);
                }
                if let Some(freed) = mended.freed {
                    freed.free(self.heap.raw());
                }
            }
        }
        self.lower();
    }

    /// Takes roots without entries away.
    pub(super) fn lower(&mut self) {
        while let Some(root) = self.root()
            && root.len() == 0
        {
            (self.root, self.height) = match root.height {
                0 => (std::ptr::null_mut(), 0),
                _ => (root.child(0).at, root.height - 1),
            };
            // SAFETY: the root has no entries, and its child, if any, is the root now.
            unsafe { root.free(self.heap.raw()) };
        }
    }

    /// Moves all that is behind the edge a path leads to into a map of its own. Nothing changes on an error.
    pub(super) fn try_split_at(&mut self, path: &Path<K, V>) -> Result<BTreeMap<'r, K, V>, HeapError> {
        let mut rest = BTreeMap::new_in(self.heap);
        let Some(root) = self.root() else { return Ok(rest) };
        let mut spare = Spare::levels(root.height, self.heap.raw())?;
        let mut below = None;
        for level in 0..=root.height {
            let ((node, index), new) = (path.at(level), spare.take(level));
            // SAFETY: the new node is empty; the child before its entries is what was split off below.
            unsafe { node.move_tail(index, new, below) };
            below = Some(new);
            (rest.root, rest.height) = (new.at, level);
        }
        self.mend_border(true);
        rest.mend_border(false);
        rest.length = rest.root().map_or(0, Node::count);
        self.length -= rest.length;
        Ok(rest)
    }

    /// Mends a tree of which only the nodes along one border may have too few entries.
    pub(super) fn mend_border(&mut self, is_last: bool) {
        self.lower();
        let Some(mut node) = self.root() else { return };
        while node.height > 0 {
            // SAFETY: the node has an entry, so two children: a root that has none was taken away, and every other
            // node of the border was given one more than it needs, so that it may lose one here.
            let (child, freed) = unsafe { node.fill(if is_last { node.len() } else { 0 }) };
            if let Some(freed) = freed {
                // SAFETY: it has no entries any more.
                unsafe { freed.free(self.heap.raw()) };
            }
            node = child;
        }
        self.lower();
    }
}

/// Nodes for a change, taken before anything changes; what is not used is freed.
pub(super) struct Spare<K, V> {
    nodes: [*mut Leaf<K, V>; DEEPEST],
    heap: RawHeap,
}

impl<K, V> Spare<K, V> {
    /// What an insertion at a path needs: a node for each full one from the leaf up, and one for a new root if all
    /// are full.
    pub(super) fn new(map: &BTreeMap<'_, K, V>, path: &Path<K, V>) -> Result<Self, HeapError> {
        let mut spare = Spare {
            nodes: [std::ptr::null_mut(); DEEPEST],
            heap: map.heap.raw(),
        };
        let levels = map.root().map_or(0, |root| root.height + 1);
        for level in 0..levels {
            if path.at(level).0.len() < MOST {
                return Ok(spare);
            }
            spare.nodes[level] = Node::try_new(level, map.heap.raw())?.at;
        }
        spare.nodes[levels] = Node::try_new(levels, map.heap.raw())?.at;
        Ok(spare)
    }

    /// One for each level of a map, and for a new root.
    pub(super) fn all(map: &BTreeMap<'_, K, V>) -> Result<Self, HeapError> {
        Spare::levels(map.height + 1, map.heap.raw())
    }

    /// One for each level up to `height`.
    pub(super) fn levels(height: usize, heap: RawHeap) -> Result<Self, HeapError> {
        let mut spare = Spare {
            nodes: [std::ptr::null_mut(); DEEPEST],
            heap,
        };
        for level in 0..=height {
            spare.nodes[level] = Node::try_new(level, heap)?.at;
        }
        Ok(spare)
    }

    pub(super) fn take(&mut self, level: usize) -> Node<K, V> {
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
