//! Whole trees and sorted entries put behind each other: nodes are moved, and filled, not searched.
//!
//! * Two trees of which one is behind the other become one along a border: the lower one is a child of a node of the
//!   higher, with its first entry, or the other's last, between.
//! * Entries that come in order fill the last leaf; a full one is followed by an empty one. Until that ends, the nodes
//!   of the last border may have too few entries; then they are mended ([`Filling`]).

use super::BTreeMap;
use super::balance::Spare;
use super::node::{LEAST, MOST, Node};
use super::search::Path;
use crate::heap::HeapError;

impl<'r, K, V> BTreeMap<'r, K, V> {
    /// Moves all entries of another map of the same heap behind those of this. Nothing changes on an error.
    pub(super) fn try_join(&mut self, other: &mut BTreeMap<'r, K, V>) -> Result<(), HeapError> {
        debug_assert!(self.heap == other.heap);
        let (Some(left), Some(right)) = (self.root(), other.root()) else {
            if self.root().is_none() {
                std::mem::swap(self, other);
            }
            return Ok(());
        };
        // The entry between is taken from the lower tree, which may be empty then, or lower.
        if left.height >= right.height {
            let mut spare = Spare::all(self)?;
            let mut first = other.path_to_end(false).expect("it has a root");
            let (entry, _) = other.remove_at(&mut first);
            let rest = other.take_all();
            self.put_beside(rest, entry, true, &mut spare);
        } else {
            let mut spare = Spare::all(other)?;
            let mut last = self.path_to_end(true).expect("it has a root");
            let (entry, _) = self.remove_at(&mut last);
            let rest = self.take_all();
            other.put_beside(rest, entry, false, &mut spare);
            std::mem::swap(self, other);
        }
        Ok(())
    }

    /// The path to the first or last edge.
    fn border(&self, last: bool) -> Path<K, V> {
        self.edge_at_end(last).expect("it has a root")
    }

    fn take_all(&mut self) -> BTreeMap<'r, K, V> {
        std::mem::replace(self, BTreeMap::new_in(self.heap))
    }

    /// Puts an entry, and behind it all of another tree that is not higher, at the end; or before all.
    fn put_beside(
        &mut self,
        mut rest: BTreeMap<'r, K, V>,
        (key, value): (K, V),
        at_end: bool,
        spare: &mut Spare<K, V>,
    ) {
        let mut path = self.border(at_end);
        let Some(child) = rest.root() else {
            return self.insert_at(&mut path, key, value, spare);
        };
        self.length += 1 + std::mem::take(&mut rest.length);
        (rest.root, rest.height) = (std::ptr::null_mut(), 0);
        if child.height == self.height {
            let (own, root) = (path.at(self.height).0, spare.take(self.height + 1));
            let [left, right] = if at_end { [own, child] } else { [child, own] };
            // SAFETY: the new root is empty.
            unsafe { root.set_root(left, (key, value), right) };
            (self.root, self.height) = (root.at, root.height);
            let few = if left.len() < LEAST { Some(0) } else { None };
            let few = few.or((right.len() < LEAST).then_some(1));
            if let Some(few) = few {
                // SAFETY: one of the two has `LEAST` entries, or both become one.
                unsafe { self.fill(root, few) };
            }
            return self.lower();
        }
        let (above, _) = path.at(child.height + 1);
        let behind = match at_end {
            true => child,
            false => {
                let first = above.child(0);
                above.set_child(0, child);
                first
            }
        };
        self.split_from(child.height + 1, &mut path, (key, value, Some(behind)), spare);
        if child.len() < LEAST {
            // Its parent may be another one now, on the same border.
            let path = self.border(at_end);
            let (above, index) = path.at(child.height + 1);
            // SAFETY: the neighbour is a node of the higher tree, and no root: it has `LEAST` entries. The parent has
            // one more than it needs.
            unsafe { self.fill(above, index) };
        }
        self.lower();
    }

    /// # Safety
    /// As [`Node::fill`].
    unsafe fn fill(&self, above: Node<K, V>, index: usize) {
        // SAFETY: this function's own contract.
        if let (_, Some(freed)) = unsafe { above.fill(index) } {
            // SAFETY: it has no entries any more.
            unsafe { freed.free(self.heap.raw()) };
        }
    }
}

/// A map that is filled at its end with entries in order. Dropped, it is a tree like any other.
pub(super) struct Filling<'a, 'r, K, V> {
    map: &'a mut BTreeMap<'r, K, V>,
    /// None before it is known.
    last: Option<Last<K, V>>,
    is_even: bool,
}

/// The last edge of a map, and where its last entry is.
struct Last<K, V> {
    edge: Path<K, V>,
    node: Node<K, V>,
    index: usize,
}

impl<'a, 'r, K: Ord, V> Filling<'a, 'r, K, V> {
    pub(super) fn new(map: &'a mut BTreeMap<'r, K, V>) -> Self {
        Filling {
            map,
            last: None,
            is_even: true,
        }
    }

    /// Adds an entry: at the end if it belongs there, else where it does.
    pub(super) fn add(&mut self, key: K, value: V) -> Result<(), HeapError> {
        if self.last.is_none()
            && let Some(edge) = self.map.edge_at_end(true)
        {
            let (node, length) = edge.at(0);
            let index = length - 1;
            self.last = Some(Last { edge, node, index });
        }
        // SAFETY: the last entry is there.
        let belongs = matches!(&self.last, Some(last) if key > *unsafe { &*last.node.key(last.index) });
        if !belongs {
            self.end();
            return self.map.try_insert(key, value).map(drop);
        }
        self.push(key, value)
    }

    fn push(&mut self, key: K, value: V) -> Result<(), HeapError> {
        let Some(Last {
            edge: path,
            node,
            index,
        }) = &mut self.last
        else {
            unreachable!("there is an entry")
        };
        let (leaf, length) = path.at(0);
        if length < MOST {
            // SAFETY: there is room at the end.
            unsafe { leaf.insert(length, key, value, None) };
            path.set(leaf, length + 1);
            (*node, *index) = (leaf, length);
            self.map.length += 1;
            return Ok(());
        }
        let (height, map) = (self.map.height, &mut *self.map);
        let full = (1..=height)
            .take_while(|&level| path.at(level).0.len() == MOST)
            .count();
        let level = full + 1; // of the node that gets the entry: a new root, if it is above all
        let mut spare = Spare::levels(if level > height { level } else { full }, map.heap.raw())?;
        let mut below = spare.take(0);
        path.set(below, 0);
        for level in 1..level {
            let new = spare.take(level);
            new.set_child(0, below);
            path.set(new, 0);
            below = new;
        }
        let above = match level > height {
            true => {
                let root = spare.take(level);
                // SAFETY: the new root is empty.
                unsafe { root.set_root(Node { at: map.root, height }, (key, value), below) };
                (map.root, map.height) = (root.at, level);
                root
            }
            false => {
                let above = path.at(level).0;
                // SAFETY: there is room at the end.
                unsafe { above.insert(above.len(), key, value, Some(below)) };
                above
            }
        };
        path.set(above, above.len());
        (*node, *index) = (above, above.len() - 1);
        map.length += 1;
        self.is_even = false;
        Ok(())
    }
}

impl<K, V> Filling<'_, '_, K, V> {
    /// The last border is mended.
    fn end(&mut self) {
        self.last = None;
        if !std::mem::replace(&mut self.is_even, true) {
            self.map.mend_border(true);
        }
    }
}

impl<K, V> Drop for Filling<'_, '_, K, V> {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
impl<V> BTreeMap<'_, u64, V> {
    /// Every node but the root has from 5 to 11 entries, and all are in order.
    pub(in crate::collections) fn assert_shape(&self) {
        fn below<V>(node: Node<u64, V>, least: usize) -> usize {
            assert!((least..=MOST).contains(&node.len()), "{} entries", node.len());
            let children = if node.height == 0 { 0 } else { node.len() + 1 };
            node.len()
                + (0..children)
                    .map(|child| below(node.child(child), LEAST))
                    .sum::<usize>()
        }
        assert_eq!(self.root().map_or(0, |root| below(root, 1)), self.length);
        assert!(self.keys().is_sorted_by(|a, b| a < b));
    }
}
