//! What maps have as `std`'s do: growing from iterators, going through, cloning, comparing, printing.

use super::BTreeMap;
use super::iter::{IntoIter, Iter, IterMut};
use crate::heap::Heap;
use crate::persist::{Empty, Kind, Name, Of, Persist, Types};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

impl<'r, K: Ord, V> Extend<(K, V)> for BTreeMap<'r, K, V> {
    #[track_caller]
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        self.put_all(entries);
    }
}

impl<'a, 'r, K: Ord + Copy, V: Copy> Extend<(&'a K, &'a V)> for BTreeMap<'r, K, V> {
    fn extend<I: IntoIterator<Item = (&'a K, &'a V)>>(&mut self, entries: I) {
        self.extend(entries.into_iter().map(|(&key, &value)| (key, value)));
    }
}

impl<'r, K, V> IntoIterator for BTreeMap<'r, K, V> {
    type Item = (K, V);
    type IntoIter = IntoIter<'r, K, V>;
    fn into_iter(self) -> IntoIter<'r, K, V> {
        IntoIter::new(self)
    }
}

impl<'a, 'r, K, V> IntoIterator for &'a BTreeMap<'r, K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Iter<'a, K, V>;
    fn into_iter(self) -> Iter<'a, K, V> {
        self.iter()
    }
}

impl<'a, 'r, K, V> IntoIterator for &'a mut BTreeMap<'r, K, V> {
    type Item = (&'a K, &'a mut V);
    type IntoIter = IterMut<'a, K, V>;
    fn into_iter(self) -> IterMut<'a, K, V> {
        self.iter_mut()
    }
}

impl<'r, K: Ord + Clone, V: Clone> Clone for BTreeMap<'r, K, V> {
    /// A clone on the same heap.
    fn clone(&self) -> BTreeMap<'r, K, V> {
        BTreeMap::from_iter_in(
            self.iter().map(|(key, value)| (key.clone(), value.clone())),
            self.heap(),
        )
    }
}

impl<'r, K: PartialEq, V: PartialEq> PartialEq for BTreeMap<'r, K, V> {
    fn eq(&self, other: &BTreeMap<'r, K, V>) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl<'r, K: Eq, V: Eq> Eq for BTreeMap<'r, K, V> {}

impl<'r, K: PartialOrd, V: PartialOrd> PartialOrd for BTreeMap<'r, K, V> {
    fn partial_cmp(&self, other: &BTreeMap<'r, K, V>) -> Option<Ordering> {
        self.iter().partial_cmp(other.iter())
    }
}

impl<'r, K: Ord, V: Ord> Ord for BTreeMap<'r, K, V> {
    fn cmp(&self, other: &BTreeMap<'r, K, V>) -> Ordering {
        self.iter().cmp(other.iter())
    }
}

impl<'r, K: Hash, V: Hash> Hash for BTreeMap<'r, K, V> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.len().hash(state);
        self.iter().for_each(|entry| entry.hash(state));
    }
}

impl<'r, K: fmt::Debug, V: fmt::Debug> fmt::Debug for BTreeMap<'r, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

// SAFETY: it owns its nodes, and its entries may live in a region.
unsafe impl<K: Persist, V: Persist> Persist for BTreeMap<'static, K, V>
where
    for<'r> K::In<'r>: Ord,
{
    type In<'r> = BTreeMap<'r, K::In<'r>, V::In<'r>>;
    type Previous = BTreeMap<'static, K, V::Previous>;
    fn name() -> Name {
        Name::new("BTreeMap").with([K::name(), V::name()])
    }
    fn layout(types: &mut Types) -> Kind {
        Kind::Tree {
            key: types.of::<K>(),
            value: types.of::<V>(),
        }
    }
    fn migrate<'r>(
        old: BTreeMap<'r, K::In<'r>, Of<'r, V::Previous>>,
        heap: Heap<'r>,
    ) -> BTreeMap<'r, K::In<'r>, V::In<'r>> {
        BTreeMap::from_iter_in(
            old.into_iter().map(|(key, value)| (key, V::migrate(value, heap))),
            heap,
        )
    }
}

impl<K: Persist, V: Persist> Empty for BTreeMap<'static, K, V>
where
    for<'r> K::In<'r>: Ord,
{
    fn empty<'r>(heap: Heap<'r>) -> BTreeMap<'r, K::In<'r>, V::In<'r>> {
        BTreeMap::new_in(heap)
    }
}
