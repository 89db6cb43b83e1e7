//! The entries of a tree in order, from both ends.
//!
//! A position is an edge of a leaf: between two entries that follow each other there is exactly one. So
//! what is left between two edges is nothing when they are the same.

use super::BTreeMap;
use super::node::Node;
use super::search::Path;
use crate::heap::marking::drop_values;
use crate::marks::mark_value;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

/// What is between two edges of a tree.
struct Edges<K, V> {
    /// The height of the tree; without entries nothing else counts.
    height: usize,
    front: Path<K, V>,
    back: Path<K, V>,
    is_empty: bool,
}

impl<K, V> Clone for Edges<K, V> {
    fn clone(&self) -> Self {
        Edges {
            height: self.height,
            front: self.front.clone(),
            back: self.back.clone(),
            is_empty: self.is_empty,
        }
    }
}

impl<K, V> Edges<K, V> {
    /// From an edge, or the first, to another, or the last.
    fn new(map: &BTreeMap<'_, K, V>, front: Option<Path<K, V>>, back: Option<Path<K, V>>) -> Self {
        let outer = |last| map.edge_at_end(last).unwrap_or_else(Path::new);
        Edges {
            height: map.height,
            front: front.unwrap_or_else(|| outer(false)),
            back: back.unwrap_or_else(|| outer(true)),
            is_empty: map.is_empty(),
        }
    }

    fn is_done(&self) -> bool {
        self.is_empty || {
            let ((front, a), (back, b)) = (self.front.at(0), self.back.at(0));
            front.at == back.at && a == b
        }
    }

    #[inline]
    fn next(&mut self) -> Option<(Node<K, V>, usize)> {
        match self.is_done() {
            true => None,
            false => self.front.next(self.height),
        }
    }

    fn next_back(&mut self) -> Option<(Node<K, V>, usize)> {
        match self.is_done() {
            true => None,
            false => self.back.next_back(self.height),
        }
    }
}

/// A value, marked.
unsafe fn value_mut<'a, K, V>(node: Node<K, V>, index: usize) -> &'a mut V {
    mark_value(node.value(index));
    // SAFETY: callers pass an entry of a map that is borrowed mutably for `'a`, each entry once.
    unsafe { &mut *node.value(index) }
}

/// A range of a map: [`BTreeMap::range`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::BTreeMap;
///
/// let prices = BTreeMap::from_iter_in([(3, "c"), (1, "a"), (2, "b")], heap);
/// assert!(prices.range(2..).eq([(&2, &"b"), (&3, &"c")]));
/// assert_eq!(prices.range(..3).next_back(), Some((&2, &"b")));
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Range<'a, K, V> {
    edges: Edges<K, V>,
    borrowed: PhantomData<&'a (K, V)>,
}

/// A range of a map, with values to change: [`BTreeMap::range_mut`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::BTreeMap;
///
/// let mut prices = BTreeMap::from_iter_in([(3, "c"), (1, "a"), (2, "b")], heap);
/// prices.range_mut(2..).for_each(|(_, name)| *name = "z");
/// assert!(prices.values().eq(&["a", "z", "z"]));
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RangeMut<'a, K, V> {
    edges: Edges<K, V>,
    borrowed: PhantomData<(&'a K, &'a mut V)>,
}

// SAFETY: they stand for what they borrow.
unsafe impl<K: Sync, V: Sync> Send for Range<'_, K, V> {}
// SAFETY: a shared range hands out shared keys and values.
unsafe impl<K: Sync, V: Sync> Sync for Range<'_, K, V> {}
// SAFETY: it hands out each value once, as a mutable borrow of the map would.
unsafe impl<K: Sync, V: Send> Send for RangeMut<'_, K, V> {}
// SAFETY: a shared range of values to change hands out nothing.
unsafe impl<K: Sync, V: Sync> Sync for RangeMut<'_, K, V> {}

impl<'a, K, V> Range<'a, K, V> {
    pub(super) fn new(
        map: &'a BTreeMap<'_, K, V>,
        front: Option<Path<K, V>>,
        back: Option<Path<K, V>>,
    ) -> Self {
        Range {
            edges: Edges::new(map, front, back),
            borrowed: PhantomData,
        }
    }
}

impl<'a, K, V> RangeMut<'a, K, V> {
    pub(super) fn new(
        map: &'a mut BTreeMap<'_, K, V>,
        front: Option<Path<K, V>>,
        back: Option<Path<K, V>>,
    ) -> Self {
        RangeMut {
            edges: Edges::new(map, front, back),
            borrowed: PhantomData,
        }
    }
}

impl<K, V> Clone for Range<'_, K, V> {
    fn clone(&self) -> Self {
        Range {
            edges: self.edges.clone(),
            borrowed: PhantomData,
        }
    }
}

impl<'a, K, V> Iterator for Range<'a, K, V> {
    type Item = (&'a K, &'a V);
    #[inline]
    fn next(&mut self) -> Option<(&'a K, &'a V)> {
        let (node, index) = self.edges.next()?;
        // SAFETY: the entry is there, and the map borrowed.
        Some(unsafe { (&*node.key(index), &*node.value(index)) })
    }
}

impl<'a, K, V> DoubleEndedIterator for Range<'a, K, V> {
    fn next_back(&mut self) -> Option<(&'a K, &'a V)> {
        let (node, index) = self.edges.next_back()?;
        // SAFETY: the entry is there, and the map borrowed.
        Some(unsafe { (&*node.key(index), &*node.value(index)) })
    }
}

impl<'a, K, V> Iterator for RangeMut<'a, K, V> {
    type Item = (&'a K, &'a mut V);
    #[inline]
    fn next(&mut self) -> Option<(&'a K, &'a mut V)> {
        let (node, index) = self.edges.next()?;
        // SAFETY: the entry is there and comes once, and the map is borrowed alone.
        Some(unsafe { (&*node.key(index), value_mut(node, index)) })
    }
}

impl<'a, K, V> DoubleEndedIterator for RangeMut<'a, K, V> {
    fn next_back(&mut self) -> Option<(&'a K, &'a mut V)> {
        let (node, index) = self.edges.next_back()?;
        // SAFETY: the entry is there and comes once, and the map is borrowed mutably.
        Some(unsafe { (&*node.key(index), value_mut(node, index)) })
    }
}

impl<K, V> FusedIterator for Range<'_, K, V> {}
impl<K, V> FusedIterator for RangeMut<'_, K, V> {}

/// The entries of a map: [`BTreeMap::iter`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::BTreeMap;
///
/// let prices = BTreeMap::from_iter_in([(3, "c"), (1, "a"), (2, "b")], heap);
/// let mut entries = prices.iter();
/// assert_eq!((entries.next(), entries.len()), (Some((&1, &"a")), 2));
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Iter<'a, K, V> {
    range: Range<'a, K, V>,
    left: usize,
}

/// The entries of a map, with values to change: [`BTreeMap::iter_mut`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::BTreeMap;
///
/// let mut prices = BTreeMap::from_iter_in([(3, "c"), (1, "a"), (2, "b")], heap);
/// prices.iter_mut().rev().take(2).for_each(|(_, name)| *name = "z");
/// assert!(prices.values().eq(&["a", "z", "z"]));
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct IterMut<'a, K, V> {
    range: RangeMut<'a, K, V>,
    left: usize,
}

impl<'a, K, V> Iter<'a, K, V> {
    pub(super) fn new(map: &'a BTreeMap<'_, K, V>) -> Self {
        Iter {
            range: Range::new(map, None, None),
            left: map.len(),
        }
    }
}

impl<'a, K, V> IterMut<'a, K, V> {
    pub(super) fn new(map: &'a mut BTreeMap<'_, K, V>) -> Self {
        let left = map.len();
        IterMut {
            range: RangeMut::new(map, None, None),
            left,
        }
    }
}

impl<K, V> Clone for Iter<'_, K, V> {
    fn clone(&self) -> Self {
        Iter {
            range: self.range.clone(),
            left: self.left,
        }
    }
}

/// The entries of a map, moved out: [`BTreeMap::into_iter`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::BTreeMap;
///
/// let prices = BTreeMap::from_iter_in([(3, "c"), (1, "a"), (2, "b")], heap);
/// let mut entries = prices.into_iter();
/// assert_eq!((entries.next(), entries.next_back()), (Some((1, "a")), Some((3, "c"))));
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct IntoIter<'r, K, V> {
    map: ManuallyDrop<BTreeMap<'r, K, V>>,
    edges: Edges<K, V>,
    left: usize,
}

// SAFETY: it owns its entries.
unsafe impl<'r, K: Send, V: Send> Send for IntoIter<'r, K, V> {}
// SAFETY: a shared one hands out nothing but the map's own shared references.
unsafe impl<'r, K: Sync, V: Sync> Sync for IntoIter<'r, K, V> {}

impl<'r, K, V> IntoIter<'r, K, V> {
    pub(super) fn new(map: BTreeMap<'r, K, V>) -> Self {
        let (edges, left) = (Edges::new(&map, None, None), map.len());
        IntoIter {
            map: ManuallyDrop::new(map),
            edges,
            left,
        }
    }
}

impl<'r, K, V> Drop for IntoIter<'r, K, V> {
    fn drop(&mut self) {
        /// Frees the nodes also when an entry's drop panics.
        struct Nodes<'a, 'r, K, V>(&'a BTreeMap<'r, K, V>);
        impl<K, V> Drop for Nodes<'_, '_, K, V> {
            fn drop(&mut self) {
                if let Some(root) = self.0.root() {
                    // SAFETY: the entries are gone, and the map is never used or dropped.
                    unsafe { root.free_all(self.0.heap.raw()) };
                }
            }
        }
        let _nodes = Nodes(&self.map);
        if std::mem::needs_drop::<(K, V)>() {
            while let Some((node, index)) = self.edges.next() {
                // SAFETY: the entry is still there, and comes once.
                unsafe {
                    drop_values(node.key(index), 1);
                    drop_values(node.value(index), 1);
                }
            }
        }
    }
}

/// The keys of a map: [`BTreeMap::keys`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::BTreeMap;
///
/// let prices = BTreeMap::from_iter_in([(3, "c"), (1, "a"), (2, "b")], heap);
/// assert!(prices.keys().eq(&[1, 2, 3]));
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Keys<'a, K, V>(pub(super) Iter<'a, K, V>);
/// The values of a map: [`BTreeMap::values`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::BTreeMap;
///
/// let prices = BTreeMap::from_iter_in([(3, "c"), (1, "a"), (2, "b")], heap);
/// assert!(prices.values().rev().eq(&["c", "b", "a"]));
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Values<'a, K, V>(pub(super) Iter<'a, K, V>);
/// The values of a map, to change: [`BTreeMap::values_mut`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::BTreeMap;
///
/// let mut prices = BTreeMap::from_iter_in([(3, "c"), (1, "a"), (2, "b")], heap);
/// prices.values_mut().for_each(|name| *name = "z");
/// assert_eq!(prices[&2], "z");
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ValuesMut<'a, K, V>(pub(super) IterMut<'a, K, V>);
/// The keys of a map, moved out: [`BTreeMap::into_keys`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::BTreeMap;
///
/// let prices = BTreeMap::from_iter_in([(3, "c"), (1, "a"), (2, "b")], heap);
/// assert!(prices.into_keys().eq([1, 2, 3]));
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct IntoKeys<'r, K, V>(pub(super) IntoIter<'r, K, V>);
/// The values of a map, moved out: [`BTreeMap::into_values`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::BTreeMap;
///
/// let prices = BTreeMap::from_iter_in([(3, "c"), (1, "a"), (2, "b")], heap);
/// assert!(prices.into_values().eq(["a", "b", "c"]));
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct IntoValues<'r, K, V>(pub(super) IntoIter<'r, K, V>);

/// An entry, moved out.
fn read<K, V>((node, index): (Node<K, V>, usize)) -> (K, V) {
    // SAFETY: only an owning iterator calls it, for each entry once.
    unsafe { (node.key(index).read(), node.value(index).read()) }
}

macro_rules! counted {
    ($([$($generics:tt)*] $name:ty, $item:ty, |$this:ident| $next:expr, $next_back:expr;)*) => {$(
        impl<$($generics)*> Iterator for $name {
            type Item = $item;
            #[inline]
            fn next(&mut self) -> Option<$item> {
                let $this = self;
                let found = $next;
                $this.left -= usize::from(found.is_some());
                found
            }
            fn size_hint(&self) -> (usize, Option<usize>) {
                (self.left, Some(self.left))
            }
        }
        impl<$($generics)*> DoubleEndedIterator for $name {
            fn next_back(&mut self) -> Option<$item> {
                let $this = self;
                let found = $next_back;
                $this.left -= usize::from(found.is_some());
                found
            }
        }
        impl<$($generics)*> ExactSizeIterator for $name {}
        impl<$($generics)*> FusedIterator for $name {}
    )*};
}

counted! {
    ['a, K, V] Iter<'a, K, V>, (&'a K, &'a V), |this| this.range.next(), this.range.next_back();
    ['a, K, V] IterMut<'a, K, V>, (&'a K, &'a mut V), |this| this.range.next(), this.range.next_back();
    ['r, K, V] IntoIter<'r, K, V>, (K, V), |this| this.edges.next().map(read), this.edges.next_back().map(read);
}

macro_rules! mapped {
    ($([$($generics:tt)*] $name:ty, $item:ty, $map:expr;)*) => {$(
        impl<$($generics)*> Iterator for $name {
            type Item = $item;
            #[inline]
            fn next(&mut self) -> Option<$item> {
                self.0.next().map($map)
            }
            fn size_hint(&self) -> (usize, Option<usize>) {
                self.0.size_hint()
            }
        }
        impl<$($generics)*> DoubleEndedIterator for $name {
            fn next_back(&mut self) -> Option<$item> {
                self.0.next_back().map($map)
            }
        }
        impl<$($generics)*> ExactSizeIterator for $name {}
        impl<$($generics)*> FusedIterator for $name {}
    )*};
}

mapped! {
    ['a, K, V] Keys<'a, K, V>, &'a K, |(key, _)| key;
    ['a, K, V] Values<'a, K, V>, &'a V, |(_, value)| value;
    ['a, K, V] ValuesMut<'a, K, V>, &'a mut V, |(_, value)| value;
    ['r, K, V] IntoKeys<'r, K, V>, K, |(key, _)| key;
    ['r, K, V] IntoValues<'r, K, V>, V, |(_, value)| value;
}
