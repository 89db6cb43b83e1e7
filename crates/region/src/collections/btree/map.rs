//! Keys and their values in order: a B-tree.

use super::BTreeMap;
use super::balance::Spare;
use super::bulk::Filling;
use super::entry::{Entry, OccupiedEntry, VacantEntry};
use super::iter::{IntoIter, IntoKeys, IntoValues, Iter, IterMut, Keys, Range, RangeMut, Values, ValuesMut};
use super::node::{LEAST, MOST, Node};
use super::search::Path;
use crate::heap::{Heap, HeapError};
use crate::marks::mark_value;
use std::borrow::Borrow;
use std::marker::PhantomData;
use std::ops::{Index, RangeBounds};

impl<'r, K, V> BTreeMap<'r, K, V> {
    /// An empty map. It takes no memory yet.
    #[must_use]
    pub const fn new_in(heap: Heap<'r>) -> BTreeMap<'r, K, V> {
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
    pub fn heap(&self) -> Heap<'r> {
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
    pub fn into_keys(self) -> IntoKeys<'r, K, V> {
        IntoKeys(self.into_iter())
    }

    /// The values in the order of their keys, moved out.
    #[must_use]
    pub fn into_values(self) -> IntoValues<'r, K, V> {
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

    /// The place of the first entry, to change it or take it out.
    pub fn first_entry(&mut self) -> Option<OccupiedEntry<'_, 'r, K, V>> {
        let path = self.path_to_end(false)?;
        Some(OccupiedEntry { map: self, path })
    }

    /// The place of the last entry, to change it or take it out.
    pub fn last_entry(&mut self) -> Option<OccupiedEntry<'_, 'r, K, V>> {
        let path = self.path_to_end(true)?;
        Some(OccupiedEntry { map: self, path })
    }

    /// The first entry, taken out.
    pub fn pop_first(&mut self) -> Option<(K, V)> {
        let mut path = self.path_to_end(false)?;
        Some(self.remove_at(&mut path).0)
    }

    /// The last entry, taken out.
    pub fn pop_last(&mut self) -> Option<(K, V)> {
        let mut path = self.path_to_end(true)?;
        Some(self.remove_at(&mut path).0)
    }
}

impl<'r, K: Ord, V> BTreeMap<'r, K, V> {
    /// The entries of an iterator.
    #[track_caller]
    pub fn from_iter_in(entries: impl IntoIterator<Item = (K, V)>, heap: Heap<'r>) -> BTreeMap<'r, K, V> {
        let mut map = BTreeMap::new_in(heap);
        map.put_all(entries);
        map
    }

    /// Those that come in order at the end are put there without a search, and fill their nodes.
    #[track_caller]
    pub(super) fn put_all(&mut self, entries: impl IntoIterator<Item = (K, V)>) {
        let mut filling = Filling::new(self);
        for (key, value) in entries {
            if let Err(error) = filling.add(key, value) {
                drop(filling);
                panic!("{error}");
            }
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
        mark_value(node.value(index));
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
                mark_value(node.value(index));
                // SAFETY: the entry is there, and the map borrowed alone.
                Ok(Some(std::mem::replace(unsafe { &mut *node.value(index) }, value)))
            }
            Some((leaf, index, false)) if leaf.len() < MOST => {
                // SAFETY: there is room.
                unsafe { leaf.insert(index, key, value, None) };
                self.length += 1;
                Ok(None)
            }
            // A leaf that splits changes those above it: only then their path is needed. The second search is
            // believed alone: an `Ord` that is none may answer otherwise than in the first.
            _ => match self.entry(key) {
                Entry::Occupied(mut entry) => Ok(Some(entry.insert(value))),
                Entry::Vacant(entry) => entry.try_insert(value).map(|_| None),
            },
        }
    }

    /// The key's place, there or not.
    #[inline]
    pub fn entry(&mut self, key: K) -> Entry<'_, 'r, K, V> {
        match self.path_to(&key) {
            (path, true) => Entry::Occupied(OccupiedEntry { map: self, path }),
            (path, false) => Entry::Vacant(VacantEntry { map: self, path, key }),
        }
    }

    /// Puts a key in place of the one that is equal, which is returned; or gives it back.
    pub(super) fn replace_key(&mut self, key: K) -> Result<K, K> {
        let Some((node, index)) = self.find(&key) else {
            return Err(key);
        };
        mark_value(node.key(index));
        // SAFETY: the entry is there, and the map borrowed alone.
        Ok(std::mem::replace(unsafe { &mut *node.key(index) }, key))
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
            // As in `try_insert`, the second search is believed alone.
            _ => {
                let (mut path, found) = self.path_to(key);
                found.then(|| self.remove_at(&mut path).0)
            }
        }
    }

    /// The entries of a range of keys, in order.
    ///
    /// # Panics
    /// When the range begins after its end, or is `(Excluded(k), Excluded(k))`, unless nothing was ever put into the map.
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

    /// Keeps the entries `keep` says yes to. All values are marked as written: it may change them.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        let mut edge = self.edge_at_end(false);
        while let Some(removed) = self.take_next(&mut edge, |_| false, |key, value| !keep(key, value)) {
            drop(removed);
        }
    }

    /// Takes out the next entry behind an edge that `take` says yes to, before the first key that `is_past` the end. The
    /// edge is where to go on: none at the end, and after a panic.
    pub(super) fn take_next(
        &mut self,
        edge: &mut Option<Path<K, V>>,
        is_past: impl Fn(&K) -> bool,
        mut take: impl FnMut(&K, &mut V) -> bool,
    ) -> Option<(K, V)> {
        let mut path = edge.take()?;
        loop {
            let (node, index) = path.next(self.height)?;
            // SAFETY: the entry is there, and the map borrowed alone.
            let key = unsafe { &*node.key(index) };
            if is_past(key) {
                return None;
            }
            mark_value(node.value(index));
            // SAFETY: as above; the key is another place than the value.
            if !take(key, unsafe { &mut *node.value(index) }) {
                continue;
            }
            path.set(node, index);
            path.level = node.height;
            let (removed, is_replaced) = self.remove_at(&mut path);
            // The last entry went with its node.
            if !self.is_empty() {
                if is_replaced {
                    // The entry that took its place was looked at before.
                    path.next(self.height);
                }
                *edge = Some(path);
            }
            return Some(removed);
        }
    }

    /// Moves all entries of another map to this one.
    ///
    /// # Panics
    /// When there is no memory: what was not moved until then is still in the other map.
    #[track_caller]
    pub fn append(&mut self, other: &mut BTreeMap<'r, K, V>) {
        if self.is_empty() && self.heap == other.heap {
            return std::mem::swap(self, other);
        }
        // Each pair is compared once: with an `Ord` that lies they are in no order, as before.
        let is_before = |a: &Self, b: &Self| {
            let (last, first) = (a.last_key_value(), b.first_key_value());
            last.zip(first)
                .is_some_and(|((last, _), (first, _))| last < first)
        };
        if self.heap == other.heap && !other.is_empty() {
            let joined = if is_before(self, other) {
                self.try_join(other)
            } else if is_before(other, self) {
                let joined = other.try_join(self);
                std::mem::swap(self, other);
                joined
            } else {
                return self.merge(other);
            };
            return joined.unwrap_or_else(|error| panic!("{error}"));
        }
        self.merge(other);
    }

    #[track_caller]
    fn merge(&mut self, other: &mut BTreeMap<'r, K, V>) {
        while let Some(mut first) = other.path_to_end(false) {
            let (node, index) = first.entry();
            // SAFETY: the entry is there.
            let (mut path, found) = self.path_to(unsafe { &*node.key(index) });
            if found {
                let ((_, value), _) = other.remove_at(&mut first);
                OccupiedEntry { map: self, path }.insert(value);
                continue;
            }
            match Spare::new(self, &path) {
                Ok(mut spare) => {
                    let ((key, value), _) = other.remove_at(&mut first);
                    self.insert_at(&mut path, key, value, &mut spare);
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// The entries from `key` on, in a map of their own on the same heap.
    ///
    /// # Panics
    /// When there is no memory; nothing has changed then.
    #[track_caller]
    pub fn split_off<Q>(&mut self, key: &Q) -> BTreeMap<'r, K, V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let path = self.edge(key, false);
        match self.try_split_at(&path) {
            Ok(rest) => rest,
            Err(error) => panic!("{error}"),
        }
    }
}

impl<'r, K, V> Drop for BTreeMap<'r, K, V> {
    fn drop(&mut self) {
        // SAFETY: the map is not used any more.
        drop(IntoIter::new(unsafe { std::ptr::from_mut(self).read() }));
    }
}

impl<'r, K, Q, V> Index<&Q> for BTreeMap<'r, K, V>
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
