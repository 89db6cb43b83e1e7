//! Where things are in a tree: from the root down to a key, to where it would be put, or to an end.
//!
//! * A look-up needs no path; a change of the tree's shape, and an iterator, keep one.
//! * A path has a step for each level from the root to where it leads: an entry, or an edge of a leaf, which
//!   is before an entry or after the last. A step that was not set is never looked at.
//! * It is right until the tree changes shape.

use super::BTreeMap;
use super::node::{Leaf, Node};
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::mem::MaybeUninit;
use std::ops::{Bound, RangeBounds};

/// Levels of a tree at most: nodes have 6 children or more, and a region 2^39 bytes.
pub(super) const DEEPEST: usize = 20;

/// A place in a tree: from the leaf up, the nodes and in each the entry or child.
pub(super) struct Path<K, V> {
    nodes: [MaybeUninit<(*mut Leaf<K, V>, u32)>; DEEPEST],
    /// The level of the entry the path leads to.
    pub(super) level: usize,
}

impl<K, V> Path<K, V> {
    pub(super) fn new() -> Self {
        Path {
            nodes: [MaybeUninit::uninit(); DEEPEST],
            level: 0,
        }
    }

    #[inline]
    pub(super) fn set(&mut self, node: Node<K, V>, index: usize) {
        self.nodes[node.height] = MaybeUninit::new((node.at, index as u32));
    }

    /// The node at a level that was set.
    #[inline]
    pub(super) fn at(&self, level: usize) -> (Node<K, V>, usize) {
        // SAFETY: a path is followed from the root to its level or to a leaf, and set at each.
        let (at, index) = unsafe { self.nodes[level].assume_init() };
        (Node { at, height: level }, index as usize)
    }

    /// From the edge it leads to, to the one behind the next entry, which is returned.
    #[inline]
    pub(super) fn next(&mut self, height: usize) -> Option<(Node<K, V>, usize)> {
        for level in 0..=height {
            let (node, index) = self.at(level);
            if index < node.len() {
                self.set(node, index + 1);
                if level > 0 {
                    self.descend(node.child(index + 1), false);
                }
                // The leaf after the one it goes on in comes from memory meanwhile: a scan of all takes 0.9 of the time.
                if level == 1 && index + 2 <= node.len() {
                    node.child(index + 2).fetch();
                }
                return Some((node, index));
            }
        }
        None
    }

    /// From the edge it leads to, to the one before the last entry, which is returned.
    pub(super) fn next_back(&mut self, height: usize) -> Option<(Node<K, V>, usize)> {
        for level in 0..=height {
            let (node, index) = self.at(level);
            if index > 0 {
                self.set(node, index - 1);
                if level > 0 {
                    self.descend(node.child(index - 1), true);
                }
                return Some((node, index - 1));
            }
        }
        None
    }

    /// Goes on to the first or last edge below a node.
    fn descend(&mut self, mut node: Node<K, V>, last: bool) {
        loop {
            let index = if last { node.len() } else { 0 };
            self.set(node, index);
            if node.height == 0 {
                return;
            }
            node = node.child(index);
        }
    }

    /// The entry.
    #[inline]
    pub(super) fn entry(&self) -> (Node<K, V>, usize) {
        self.at(self.level)
    }
}

impl<K, V> Clone for Path<K, V> {
    fn clone(&self) -> Self {
        Path {
            nodes: self.nodes,
            level: self.level,
        }
    }
}

impl<'r, K, V> BTreeMap<'r, K, V> {
    /// The path to the first or the last entry.
    pub(super) fn path_to_end(&self, last: bool) -> Option<Path<K, V>> {
        let (mut node, mut path) = (self.root()?, Path::new());
        while node.height > 0 {
            let index = if last { node.len() } else { 0 };
            path.set(node, index);
            node = node.child(index);
        }
        path.set(node, if last { node.len() - 1 } else { 0 });
        Some(path)
    }

    /// The path to the first or the last edge.
    pub(super) fn edge_at_end(&self, last: bool) -> Option<Path<K, V>> {
        let mut path = Path::new();
        path.descend(self.root()?, last);
        Some(path)
    }
}

impl<'r, K: Ord, V> BTreeMap<'r, K, V> {
    /// Where a key is, without a path.
    #[inline]
    pub(super) fn find<Q>(&self, key: &Q) -> Option<(Node<K, V>, usize)>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let (node, index, found) = self.seek(key)?;
        found.then_some((node, index))
    }

    /// Where a key is, or where in a leaf it would be put, without a path; `None`: there is no node.
    #[inline]
    pub(super) fn seek<Q>(&self, key: &Q) -> Option<(Node<K, V>, usize, bool)>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let mut node = self.root()?;
        loop {
            let (index, found) = search(node, key);
            if found || node.height == 0 {
                return Some((node, index, found));
            }
            node = node.child(index);
            node.fetch();
        }
    }

    /// The path to a key: to its entry, or to where it would be put in a leaf.
    #[inline]
    pub(super) fn path_to<Q>(&self, key: &Q) -> (Path<K, V>, bool)
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let mut path = Path::new();
        let Some(mut node) = self.root() else {
            return (path, false);
        };
        loop {
            let (index, found) = search(node, key);
            path.set(node, index);
            if found || node.height == 0 {
                path.level = node.height;
                return (path, found);
            }
            node = node.child(index);
            node.fetch();
        }
    }

    /// The path to the leaf edge where a range begins or ends: before a key, or behind it if it
    /// is there and `after_equal`.
    pub(super) fn edge<Q>(&self, key: &Q, after_equal: bool) -> Path<K, V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let mut path = Path::new();
        let Some(mut node) = self.root() else {
            return path;
        };
        loop {
            let (index, found) = search(node, key);
            let index = index + usize::from(found && after_equal);
            path.set(node, index);
            if node.height == 0 {
                return path;
            }
            node = node.child(index);
            node.fetch();
        }
    }

    /// The leaf edge where a range of keys begins; `None`: at the start of the tree.
    pub(super) fn front_edge<Q>(&self, start: Bound<&Q>) -> Option<Path<K, V>>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        match start {
            Bound::Included(key) => Some(self.edge(key, false)),
            Bound::Excluded(key) => Some(self.edge(key, true)),
            Bound::Unbounded => None,
        }
    }

    /// The leaf edges where a range of keys begins and ends; `None`: at the end of the tree.
    #[track_caller]
    pub(super) fn edges<Q>(&self, range: &impl RangeBounds<Q>) -> [Option<Path<K, V>>; 2]
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        use Bound::{Excluded, Included, Unbounded};
        if self.root().is_none() {
            return [None, None]; // as the standard library's: any range of nothing is nothing
        }
        match (range.start_bound(), range.end_bound()) {
            (Excluded(start), Excluded(end)) if start == end => {
                panic!("range start and end are equal and excluded")
            }
            (Included(start) | Excluded(start), Included(end) | Excluded(end)) if start > end => {
                panic!("range start is greater than range end")
            }
            _ => {}
        }
        let front = self.front_edge(range.start_bound());
        let back = match range.end_bound() {
            Included(key) => Some(self.edge(key, true)),
            Excluded(key) => Some(self.edge(key, false)),
            Unbounded => None,
        };
        if let (Some(front), Some(back)) = (&front, &back)
            && (0..=self.height)
                .rev()
                .map(|level| front.at(level).1.cmp(&back.at(level).1))
                .find(|order| order.is_ne())
                .is_some_and(Ordering::is_gt)
        {
            panic!("the range ends before it begins: the `Ord` of the keys contradicts itself")
        }
        [front, back]
    }
}

/// The first entry of a node that is not before a key, and whether it is that key's.
#[inline]
fn search<K, V, Q>(node: Node<K, V>, key: &Q) -> (usize, bool)
where
    K: Borrow<Q>,
    Q: Ord + ?Sized,
{
    // SAFETY: that many keys are there.
    let keys = unsafe { std::slice::from_raw_parts(node.key(0), node.len()) };
    for (index, one) in keys.iter().enumerate() {
        match key.cmp(one.borrow()) {
            Ordering::Greater => {}
            Ordering::Equal => return (index, true),
            Ordering::Less => return (index, false),
        }
    }
    (keys.len(), false)
}
