//! A B+ tree in transactions.
//!
//! * A node has at most 15 keys; leaves hold the values, inner nodes the first key of each child but the first.
//! * Nodes are split when full and never merged: a little faster than a tree that merges.
//! * A node is put into the undo log whole before it changes.

use super::{Holds, Pmemobj};
use crate::engine::{Name, Plain, Result};
use std::marker::PhantomData;

const KEYS: usize = 15;

/// In the pool.
#[repr(C)]
struct Head {
    root: u64,
    entries: u64,
}

/// In the pool.
#[repr(C)]
struct Node<V: Copy> {
    is_leaf: u32,
    keys: u32,
    key: [u64; KEYS],
    rest: Rest<V>,
}

#[repr(C)]
union Rest<V: Copy> {
    values: [V; KEYS],
    children: [u64; KEYS + 1],
}

pub(crate) struct Tree<V> {
    head: *mut Head,
    holds: Holds<V>,
}

// SAFETY: what it points to lives as long as the pool, and only the thread that holds it changes it.
unsafe impl<V: Send> Send for Tree<V> {}

impl<V: Plain> Node<V> {
    fn keys(&self) -> &[u64] {
        &self.key[..self.keys as usize]
    }

    fn is_full(&self) -> bool {
        self.keys as usize == KEYS
    }

    /// Which child a key is below.
    fn child(&self, key: u64) -> usize {
        self.keys().iter().take_while(|&&first| first <= key).count()
    }

    /// Makes room at `at` among the keys, and at `at + by` among what goes with them.
    fn open_gap(&mut self, at: usize, by: usize) {
        let len = self.keys as usize;
        self.key.copy_within(at..len, at + 1);
        // SAFETY: a leaf has `len` values and an inner node `len + 1` children; neither is full here.
        unsafe {
            if self.is_leaf == 1 {
                self.rest.values.copy_within(at..len, at + 1);
            } else {
                self.rest.children.copy_within(at + by..=len, at + by + 1);
            }
        }
        self.keys += 1;
    }
}

impl<V: Plain> Tree<V> {
    pub(super) fn open(store: &Pmemobj, name: Name) -> Result<Tree<V>> {
        let head = store.table(name, || {
            let head: *mut Head = store.allocate(size_of::<Head>(), true)?;
            let root = Self::node(store, true)?;
            // SAFETY: just allocated.
            unsafe { (*head).root = store.offset(root) };
            Ok(head)
        })?;
        let holds = PhantomData;
        Ok(Tree { head, holds })
    }

    fn node(store: &Pmemobj, is_leaf: bool) -> Result<*mut Node<V>> {
        let node: *mut Node<V> = store.allocate(size_of::<Node<V>>(), true)?;
        // SAFETY: just allocated, all zero.
        unsafe { (*node).is_leaf = is_leaf.into() };
        Ok(node)
    }

    fn root(&self, store: &Pmemobj) -> *mut Node<V> {
        // SAFETY: the head is live and holds the offset of a live node.
        store.at(unsafe { (*self.head).root })
    }

    /// The leaf a key belongs in, and where it is there or would be.
    fn leaf(&self, store: &Pmemobj, key: u64) -> (*mut Node<V>, Result<usize, usize>) {
        let mut at = self.root(store);
        // SAFETY: children of live inner nodes are live nodes; only this thread changes them.
        unsafe {
            while (*at).is_leaf == 0 {
                at = store.at((*at).rest.children[(*at).child(key)]);
            }
            (at, (*at).keys().binary_search(&key))
        }
    }

    pub(super) fn find(&self, store: &Pmemobj, key: u64) -> Option<*mut V> {
        let (leaf, found) = self.leaf(store, key);
        // SAFETY: as above; the index is of a key of this leaf.
        found
            .ok()
            .map(|at| unsafe { (&raw mut (*leaf).rest.values).cast::<V>().add(at) })
    }

    fn count(&mut self, store: &Pmemobj, by: i64) -> Result<()> {
        store.add(self.head)?;
        // SAFETY: the head is live, and in the log.
        unsafe { (*self.head).entries = (*self.head).entries.wrapping_add_signed(by) };
        Ok(())
    }

    /// Splits the full child `index` of a node that is not full and in the log.
    fn split(store: &Pmemobj, parent: *mut Node<V>, index: usize) -> Result<()> {
        // SAFETY: live nodes that only this thread changes; each is new or in the log.
        unsafe {
            let left: *mut Node<V> = store.at((*parent).rest.children[index]);
            let is_leaf = (*left).is_leaf == 1;
            let right = Self::node(store, is_leaf)?;
            store.add(left)?;
            let (left, right_node, parent) = (&mut *left, &mut *right, &mut *parent);
            let kept = if is_leaf { KEYS / 2 + 1 } else { KEYS / 2 };
            let first = left.key[kept];
            // An inner node's middle key goes up; a leaf's first stays with its value.
            let moved = if is_leaf { kept } else { kept + 1 };
            right_node.key[..KEYS - moved].copy_from_slice(&left.key[moved..]);
            if is_leaf {
                right_node.rest.values[..KEYS - moved].copy_from_slice(&left.rest.values[moved..]);
            } else {
                right_node.rest.children[..=KEYS - moved].copy_from_slice(&left.rest.children[moved..]);
            }
            right_node.keys = (KEYS - moved) as u32;
            left.keys = kept as u32;
            parent.open_gap(index, 1);
            parent.key[index] = first;
            parent.rest.children[index + 1] = store.offset(right);
        }
        Ok(())
    }

    /// A key that is not there. Full nodes on the way are split, so that a split always has room above it.
    pub(super) fn insert(&mut self, store: &Pmemobj, key: u64, value: &V) -> Result<()> {
        let mut at = self.root(store);
        // SAFETY: live nodes that only this thread changes; each is new or put into the log before it changes.
        unsafe {
            if (*at).is_full() {
                let above = Self::node(store, false)?;
                (*above).rest.children[0] = store.offset(at);
                store.add(self.head)?;
                (*self.head).root = store.offset(above);
                Self::split(store, above, 0)?;
                at = above;
            }
            while (*at).is_leaf == 0 {
                let below: *mut Node<V> = store.at((*at).rest.children[(*at).child(key)]);
                if (*below).is_full() {
                    store.add(at)?;
                    Self::split(store, at, (*at).child(key))?;
                }
                at = store.at((*at).rest.children[(*at).child(key)]);
            }
            store.add(at)?;
            let leaf = &mut *at;
            let place = leaf.keys().partition_point(|&there| there < key);
            leaf.open_gap(place, 0);
            leaf.key[place] = key;
            leaf.rest.values[place] = *value;
        }
        self.count(store, 1)
    }

    pub(super) fn remove(&mut self, store: &Pmemobj, key: u64) -> Result<bool> {
        let (leaf, Ok(at)) = self.leaf(store, key) else {
            return Ok(false);
        };
        store.add(leaf)?;
        // SAFETY: a live leaf, in the log, that only this thread changes.
        unsafe {
            let leaf = &mut *leaf;
            let len = leaf.keys as usize;
            leaf.key.copy_within(at + 1..len, at);
            leaf.rest.values.copy_within(at + 1..len, at);
            leaf.keys -= 1;
        }
        self.count(store, -1)?;
        Ok(true)
    }
}
