//! Keys and their values in order: a B-tree.
//!
//! ```text
//! 0      8        16       24     32
//! | root | height | length | heap |     root: a node, 0 when the map is empty (`node.rs`)
//! ```

use super::entry::{Entry, OccupiedEntry, VacantEntry};
use super::iter::{IntoIter, IntoKeys, IntoValues, Iter, IterMut, Keys, Range, RangeMut, Values, ValuesMut};
use super::node::{LEAST, Leaf, MOST, Node};
use crate::heap::{Heap, HeapError};
use crate::marks::touch_value;
use crate::persist::{Kind, Persist, Types};
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::{Bound, Index, RangeBounds};

/// Levels of a tree at most: nodes have 6 children or more, and a region 2^39 bytes.
const DEEPEST: usize = 20;

/// Keys and their values in the order of the keys, as [`std::collections::BTreeMap`], in a region.
///
/// A key's `Ord` must mean the same in every build that opens the region.
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # let window = Window::volatile()?;
/// # let heap = Heap::create(window.place(), 1)?;
/// use twinpage::collections::BTreeMap;
///
/// let mut prices = BTreeMap::new_in(heap);
/// prices.extend([(30, "c"), (10, "a"), (20, "b")]);
/// assert_eq!(prices.first_key_value(), Some((&10, &"a")));
/// assert!(prices.range(15..).map(|(price, _)| *price).eq([20, 30]));
/// *prices.entry(20).or_insert("") = "B";
/// assert_eq!(prices.remove(&20), Some("B"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[repr(C)]
pub struct BTreeMap<K, V> {
    root: *mut Leaf<K, V>,
    height: usize,
    length: usize,
    heap: Heap,
    owned: PhantomData<(K, V)>,
}

// SAFETY: it owns its entries.
unsafe impl<K: Send, V: Send> Send for BTreeMap<K, V> {}
// SAFETY: as above.
unsafe impl<K: Sync, V: Sync> Sync for BTreeMap<K, V> {}

const _: () = assert!(size_of::<BTreeMap<u64, u64>>() == 32);

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

impl<K, V> BTreeMap<K, V> {
    /// An empty map. It takes no memory yet.
    #[must_use]
    pub const fn new_in(heap: Heap) -> BTreeMap<K, V> {
        BTreeMap {
            root: std::ptr::null_mut(),
            height: 0,
            length: 0,
            heap,
            owned: PhantomData,
        }
    }

    /// The heap it takes its memory from.
    #[must_use]
    pub fn heap(&self) -> Heap {
        self.heap
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(super) fn root(&self) -> Option<Node<K, V>> {
        (!self.root.is_null()).then_some(Node {
            at: self.root,
            height: self.height,
        })
    }

    /// Drops all entries.
    pub fn clear(&mut self) {
        drop(std::mem::replace(self, BTreeMap::new_in(self.heap)));
    }

    /// The entries in order.
    #[must_use]
    pub fn iter(&self) -> Iter<'_, K, V> {
        Iter::new(self)
    }

    /// The entries in order, with values to change. Each is marked as written when it is reached.
    pub fn iter_mut(&mut self) -> IterMut<'_, K, V> {
        IterMut::new(self)
    }

    /// The keys in order.
    #[must_use]
    pub fn keys(&self) -> Keys<'_, K, V> {
        Keys(self.iter())
    }

    /// The values in the order of their keys.
    #[must_use]
    pub fn values(&self) -> Values<'_, K, V> {
        Values(self.iter())
    }

    /// The values, to change. Each is marked as written when it is reached.
    pub fn values_mut(&mut self) -> ValuesMut<'_, K, V> {
        ValuesMut(self.iter_mut())
    }

    /// The keys in order, moved out.
    #[must_use]
    pub fn into_keys(self) -> IntoKeys<K, V> {
        IntoKeys(self.into_iter())
    }

    /// The values in the order of their keys, moved out.
    #[must_use]
    pub fn into_values(self) -> IntoValues<K, V> {
        IntoValues(self.into_iter())
    }

    /// The first entry.
    #[must_use]
    pub fn first_key_value(&self) -> Option<(&K, &V)> {
        self.iter().next()
    }

    /// The last entry.
    #[must_use]
    pub fn last_key_value(&self) -> Option<(&K, &V)> {
        self.iter().next_back()
    }

    /// The path to the first or the last entry.
    fn path_to_end(&self, last: bool) -> Option<Path<K, V>> {
        let (mut node, mut path) = (self.root()?, Path::new());
        while node.height > 0 {
            let index = if last { node.len() } else { 0 };
            path.set(node, index);
            node = node.child(index);
        }
        path.set(node, if last { node.len() - 1 } else { 0 });
        Some(path)
    }

    /// The place of the first entry, to change it or take it out.
    pub fn first_entry(&mut self) -> Option<OccupiedEntry<'_, K, V>> {
        let path = self.path_to_end(false)?;
        Some(OccupiedEntry { map: self, path })
    }

    /// The place of the last entry, to change it or take it out.
    pub fn last_entry(&mut self) -> Option<OccupiedEntry<'_, K, V>> {
        let path = self.path_to_end(true)?;
        Some(OccupiedEntry { map: self, path })
    }

    /// The first entry, taken out.
    pub fn pop_first(&mut self) -> Option<(K, V)> {
        let path = self.path_to_end(false)?;
        Some(self.remove_at(path))
    }

    /// The last entry, taken out.
    pub fn pop_last(&mut self) -> Option<(K, V)> {
        let path = self.path_to_end(true)?;
        Some(self.remove_at(path))
    }

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

impl<K: Ord, V> BTreeMap<K, V> {
    /// The entries of an iterator.
    #[track_caller]
    pub fn from_iter_in(entries: impl IntoIterator<Item = (K, V)>, heap: Heap) -> BTreeMap<K, V> {
        let mut map = BTreeMap::new_in(heap);
        map.extend(entries);
        map
    }

    /// Where a key is, without a path.
    #[inline]
    fn find<Q>(&self, key: &Q) -> Option<(Node<K, V>, usize)>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let (node, index, found) = self.seek(key)?;
        found.then_some((node, index))
    }

    /// Where a key is, or where in a leaf it would be put, without a path; `None`: there is no node.
    #[inline]
    fn seek<Q>(&self, key: &Q) -> Option<(Node<K, V>, usize, bool)>
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
        }
    }

    /// The path to the leaf edge where a range begins or ends: before all keys that `is_after`.
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
        }
    }

    /// The value of a key.
    #[must_use]
    #[inline]
    pub fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let (node, index) = self.find(key)?;
        // SAFETY: the entry is there.
        Some(unsafe { &*node.value(index) })
    }

    /// A key as it is kept, and its value.
    #[must_use]
    pub fn get_key_value<Q>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let (node, index) = self.find(key)?;
        // SAFETY: the entry is there.
        Some(unsafe { (&*node.key(index), &*node.value(index)) })
    }

    /// The value of a key, to change. Only it is marked as written.
    #[inline]
    pub fn get_mut<Q>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let (node, index) = self.find(key)?;
        touch_value(node.value(index));
        // SAFETY: the entry is there, and the map borrowed alone.
        Some(unsafe { &mut *node.value(index) })
    }

    /// Whether the key is there.
    #[must_use]
    #[inline]
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.find(key).is_some()
    }

    /// Sets the value of a key. Returns the value it had; the key is kept as it was then.
    ///
    /// # Panics
    /// When there is no memory.
    #[inline]
    #[track_caller]
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.try_insert(key, value) {
            Ok(old) => old,
            Err(error) => panic!("{error}"),
        }
    }

    /// As [`BTreeMap::insert`].
    ///
    /// # Errors
    /// [`HeapError`] when there is no memory; nothing has changed then, and the entry is dropped.
    pub fn try_insert(&mut self, key: K, value: V) -> Result<Option<V>, HeapError> {
        match self.seek(&key) {
            Some((node, index, true)) => {
                touch_value(node.value(index));
                // SAFETY: the entry is there, and the map borrowed alone.
                Ok(Some(std::mem::replace(unsafe { &mut *node.value(index) }, value)))
            }
            Some((leaf, index, false)) if leaf.len() < MOST => {
                // SAFETY: there is room.
                unsafe { leaf.insert(index, key, value, None) };
                self.length += 1;
                Ok(None)
            }
            // A leaf that splits changes those above it: only then their path is needed.
            _ => {
                let path = self.path_to(&key).0;
                self.try_insert_at(path, key, value)?;
                Ok(None)
            }
        }
    }

    /// The key's place, there or not.
    #[inline]
    pub fn entry(&mut self, key: K) -> Entry<'_, K, V> {
        match self.path_to(&key) {
            (path, true) => Entry::Occupied(OccupiedEntry { map: self, path }),
            (path, false) => Entry::Vacant(VacantEntry { map: self, path, key }),
        }
    }

    /// Takes a key's value out.
    #[inline]
    pub fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        Some(self.remove_entry(key)?.1)
    }

    /// Takes a key and its value out.
    pub fn remove_entry<Q>(&mut self, key: &Q) -> Option<(K, V)>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        match self.seek(key)? {
            (_, _, false) => None,
            (leaf, index, true) if leaf.height == 0 && leaf.len() > LEAST => {
                self.length -= 1;
                // SAFETY: the entry is there.
                Some(unsafe { leaf.remove(index) })
            }
            _ => {
                let path = self.path_to(key).0;
                Some(self.remove_at(path))
            }
        }
    }

    /// The entries of a range of keys, in order.
    ///
    /// # Panics
    /// When the range begins after its end, or is `(Excluded(k), Excluded(k))`.
    #[track_caller]
    pub fn range<Q>(&self, range: impl RangeBounds<Q>) -> Range<'_, K, V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let [front, back] = self.edges(&range);
        Range::new(self, front, back)
    }

    /// The entries of a range of keys, with values to change. Each is marked when it is reached.
    ///
    /// # Panics
    /// As [`BTreeMap::range`].
    #[track_caller]
    pub fn range_mut<Q>(&mut self, range: impl RangeBounds<Q>) -> RangeMut<'_, K, V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let [front, back] = self.edges(&range);
        RangeMut::new(self, front, back)
    }

    #[track_caller]
    fn edges<Q>(&self, range: &impl RangeBounds<Q>) -> [Option<Path<K, V>>; 2]
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        use Bound::{Excluded, Included, Unbounded};
        match (range.start_bound(), range.end_bound()) {
            (Excluded(start), Excluded(end)) if start == end => {
                panic!("range start and end are equal and excluded in BTreeMap")
            }
            (Included(start) | Excluded(start), Included(end) | Excluded(end)) if start > end => {
                panic!("range start is greater than range end in BTreeMap")
            }
            _ => {}
        }
        let front = match range.start_bound() {
            Included(key) => Some(self.edge(key, false)),
            Excluded(key) => Some(self.edge(key, true)),
            Unbounded => None,
        };
        let back = match range.end_bound() {
            Included(key) => Some(self.edge(key, true)),
            Excluded(key) => Some(self.edge(key, false)),
            Unbounded => None,
        };
        [front, back]
    }

    /// Keeps the entries `keep` says yes to. All values are marked as written: it may change them.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        let mut gone = std::vec::Vec::new();
        for (key, value) in self.iter_mut() {
            if !keep(key, value) {
                // SAFETY: the copy is only compared with, and only while the key itself is there.
                gone.push(ManuallyDrop::new(unsafe { std::ptr::from_ref(key).read() }));
            }
        }
        for key in gone {
            drop(self.remove_entry(&*key));
        }
    }

    /// Moves all entries of another map to this one.
    ///
    /// # Panics
    /// When there is no memory.
    #[track_caller]
    pub fn append(&mut self, other: &mut BTreeMap<K, V>) {
        self.extend(std::mem::replace(other, BTreeMap::new_in(other.heap)));
    }

    /// The entries from `key` on, in a map of their own on the same heap.
    ///
    /// # Panics
    /// When there is no memory.
    #[track_caller]
    pub fn split_off<Q>(&mut self, key: &Q) -> BTreeMap<K, V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let mut rest = BTreeMap::new_in(self.heap);
        while self
            .last_key_value()
            .is_some_and(|(last, _)| last.borrow() >= key)
        {
            rest.extend(self.pop_last());
        }
        rest
    }
}

/// The first entry of a node that is not before a key, and whether it is that key's.
#[inline]
fn search<K, V, Q>(node: Node<K, V>, key: &Q) -> (usize, bool)
where
    K: Borrow<Q>,
    Q: Ord + ?Sized,
{
    // SAFETY: so many keys are there.
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

impl<K, V> Drop for BTreeMap<K, V> {
    fn drop(&mut self) {
        // SAFETY: the map is not used any more.
        drop(IntoIter::new(unsafe { std::ptr::from_mut(self).read() }));
    }
}

impl<K: Ord, V> Extend<(K, V)> for BTreeMap<K, V> {
    #[track_caller]
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        for (key, value) in entries {
            self.insert(key, value);
        }
    }
}

impl<'a, K: Ord + Copy, V: Copy> Extend<(&'a K, &'a V)> for BTreeMap<K, V> {
    fn extend<I: IntoIterator<Item = (&'a K, &'a V)>>(&mut self, entries: I) {
        self.extend(entries.into_iter().map(|(&key, &value)| (key, value)));
    }
}

impl<K, V> IntoIterator for BTreeMap<K, V> {
    type Item = (K, V);
    type IntoIter = IntoIter<K, V>;
    fn into_iter(self) -> IntoIter<K, V> {
        IntoIter::new(self)
    }
}

impl<'a, K, V> IntoIterator for &'a BTreeMap<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Iter<'a, K, V>;
    fn into_iter(self) -> Iter<'a, K, V> {
        self.iter()
    }
}

impl<'a, K, V> IntoIterator for &'a mut BTreeMap<K, V> {
    type Item = (&'a K, &'a mut V);
    type IntoIter = IterMut<'a, K, V>;
    fn into_iter(self) -> IterMut<'a, K, V> {
        self.iter_mut()
    }
}

impl<K, Q, V> Index<&Q> for BTreeMap<K, V>
where
    K: Ord + Borrow<Q>,
    Q: Ord + ?Sized,
{
    type Output = V;
    #[track_caller]
    fn index(&self, key: &Q) -> &V {
        self.get(key).expect("no entry found for key")
    }
}

impl<K: Ord + Clone, V: Clone> Clone for BTreeMap<K, V> {
    /// A clone on the same heap.
    fn clone(&self) -> BTreeMap<K, V> {
        BTreeMap::from_iter_in(
            self.iter().map(|(key, value)| (key.clone(), value.clone())),
            self.heap,
        )
    }
}

impl<K: PartialEq, V: PartialEq> PartialEq for BTreeMap<K, V> {
    fn eq(&self, other: &BTreeMap<K, V>) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl<K: Eq, V: Eq> Eq for BTreeMap<K, V> {}

impl<K: PartialOrd, V: PartialOrd> PartialOrd for BTreeMap<K, V> {
    fn partial_cmp(&self, other: &BTreeMap<K, V>) -> Option<Ordering> {
        self.iter().partial_cmp(other.iter())
    }
}

impl<K: Ord, V: Ord> Ord for BTreeMap<K, V> {
    fn cmp(&self, other: &BTreeMap<K, V>) -> Ordering {
        self.iter().cmp(other.iter())
    }
}

impl<K: Hash, V: Hash> Hash for BTreeMap<K, V> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.len().hash(state);
        self.iter().for_each(|entry| entry.hash(state));
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for BTreeMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

// SAFETY: it owns its nodes, and its entries may live in a region.
unsafe impl<K: Persist + Ord, V: Persist> Persist for BTreeMap<K, V> {
    type Previous = BTreeMap<K, V::Previous>;
    fn name() -> String {
        format!("BTreeMap<{}, {}>", K::name(), V::name())
    }
    fn layout(types: &mut Types) -> Kind {
        Kind::Tree {
            key: types.of::<K>(),
            value: types.of::<V>(),
        }
    }
    fn migrate(old: Self::Previous, heap: Heap) -> Self {
        BTreeMap::from_iter_in(
            old.into_iter().map(|(key, value)| (key, V::migrate(value, heap))),
            heap,
        )
    }
}
