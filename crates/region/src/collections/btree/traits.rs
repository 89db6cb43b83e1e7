//! What maps have as `std`'s do: growing from iterators, going through, cloning, comparing, printing.

use super::iter::{IntoIter, Iter, IterMut};
use super::map::BTreeMap;
use crate::heap::Heap;
use crate::persist::{Kind, Persist, Types};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

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

impl<K: Ord + Clone, V: Clone> Clone for BTreeMap<K, V> {
    /// A clone on the same heap.
    fn clone(&self) -> BTreeMap<K, V> {
        BTreeMap::from_iter_in(
            self.iter().map(|(key, value)| (key.clone(), value.clone())),
            self.heap(),
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
