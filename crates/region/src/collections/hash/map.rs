//! Keys and their values: a [`Table`] of pairs.

use super::HashMap;
use super::entry::{Entry, OccupiedEntry, VacantEntry, value_mut};
use super::hasher::Fold;
use super::iter::{Drain, IntoKeys, IntoValues, Iter, IterMut, Keys, Values, ValuesMut};
use super::table::{self, Found, Table};
use crate::heap::{Heap, HeapError};
use crate::marks::mark_value;
use crate::persist::{Empty, Kind, Name, Of, Persist, Types};
use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::ops::Index;

impl<'r, K, V> HashMap<'r, K, V> {
    /// An empty map. It takes no memory yet.
    #[must_use]
    pub const fn new_in(heap: Heap<'r>) -> HashMap<'r, K, V> {
        HashMap {
            table: Table::new_in(heap.raw()),
            brand: PhantomData,
        }
    }

    /// The heap it takes its memory from.
    #[must_use]
    pub fn heap(&self) -> Heap<'r> {
        // SAFETY: the map has the brand of its heap.
        unsafe { Heap::branded(self.table.heap()) }
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many entries there is room for.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.table.capacity()
    }

    /// Drops all entries. The room stays.
    pub fn clear(&mut self) {
        self.table.clear();
    }

    /// The entries, in no order that means anything.
    #[must_use]
    pub fn iter(&self) -> Iter<'_, K, V> {
        Iter {
            table: &self.table,
            slots: self.table.slots(),
        }
    }

    /// The entries, with values to change. Each is marked as written when it is reached.
    pub fn iter_mut(&mut self) -> IterMut<'_, K, V> {
        let slots = self.table.slots();
        IterMut {
            table: &raw mut self.table,
            slots,
            borrowed: PhantomData,
        }
    }

    /// The keys.
    #[must_use]
    pub fn keys(&self) -> Keys<'_, K, V> {
        Keys(self.iter())
    }

    /// The values.
    #[must_use]
    pub fn values(&self) -> Values<'_, K, V> {
        Values(self.iter())
    }

    /// The values, to change. Each is marked as written when it is reached.
    pub fn values_mut(&mut self) -> ValuesMut<'_, K, V> {
        ValuesMut(self.iter_mut())
    }

    /// The keys, moved out.
    #[must_use]
    pub fn into_keys(self) -> IntoKeys<'r, K, V> {
        IntoKeys(self.into_iter())
    }

    /// The values, moved out.
    #[must_use]
    pub fn into_values(self) -> IntoValues<'r, K, V> {
        IntoValues(self.into_iter())
    }

    /// All entries, taken out. The room stays.
    pub fn drain(&mut self) -> Drain<'_, K, V> {
        Drain(self.table.drain())
    }

    /// Keeps the entries `keep` says yes to. All values are marked as written: it may change them.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        self.table.retain(|entry| {
            // SAFETY: the entry is there, without another user.
            unsafe { keep(&(*entry).0, value_mut(entry)) }
        });
    }
}

impl<'r, K: Hash + Eq, V> HashMap<'r, K, V> {
    /// An empty map with room for `capacity` entries.
    ///
    /// # Panics
    /// When there is no memory.
    #[must_use]
    #[track_caller]
    pub fn with_capacity_in(capacity: usize, heap: Heap<'r>) -> HashMap<'r, K, V> {
        let mut map = HashMap::new_in(heap);
        map.reserve(capacity);
        map
    }

    /// The entries of an iterator.
    #[track_caller]
    pub fn from_iter_in(entries: impl IntoIterator<Item = (K, V)>, heap: Heap<'r>) -> HashMap<'r, K, V> {
        let mut map = HashMap::new_in(heap);
        map.extend(entries);
        map
    }

    /// Makes room for `additional` more entries.
    ///
    /// # Panics
    /// When there is no memory.
    #[track_caller]
    pub fn reserve(&mut self, additional: usize) {
        self.table.reserve(additional, hash_entry);
    }

    /// As [`HashMap::reserve`].
    ///
    /// # Errors
    /// [`HeapError`] when there is no memory; nothing has changed then.
    pub fn try_reserve(&mut self, additional: usize) -> Result<(), HeapError> {
        self.table.try_reserve(additional, hash_entry)
    }

    /// Gives back the room there is too much.
    pub fn shrink_to_fit(&mut self) {
        self.shrink_to(0);
    }

    /// Gives back the room past `capacity` entries, or past those there are.
    pub fn shrink_to(&mut self, capacity: usize) {
        self.table.shrink_to(capacity, hash_entry);
    }

    #[inline]
    pub(super) fn find<Q>(&self, key: &Q) -> Option<table::Slot>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = hash(key, self.table.hasher());
        self.table.find(hash, |entry| entry.0.borrow() == key)
    }

    /// The value of a key.
    #[must_use]
    #[inline]
    pub fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        Some(&self.table.get(self.find(key)?).1)
    }

    /// A key as it is kept, and its value.
    #[must_use]
    pub fn get_key_value<Q>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let (key, value) = self.table.get(self.find(key)?);
        Some((key, value))
    }

    /// The value of a key, to change. Only it is marked as written.
    #[inline]
    pub fn get_mut<Q>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let slot = self.find(key)?;
        // SAFETY: the slot has an entry, and the map is borrowed alone for as long as the value.
        Some(unsafe { value_mut(self.table.entry(slot)) })
    }

    /// Whether the key is there.
    #[must_use]
    #[inline]
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
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
        self.table.reserve_one(hash_entry);
        let hash = hash(&key, self.table.hasher());
        match self.table.find_or_free(hash, |entry| entry.0 == key, hash_entry) {
            // SAFETY: the slot has an entry.
            Found::Here(slot) => Some(std::mem::replace(
                unsafe { value_mut(self.table.entry(slot)) },
                value,
            )),
            Found::Free(slot) => {
                self.table.put(slot, hash, (key, value));
                None
            }
        }
    }

    /// Puts a key in place of the one that is equal, which is returned; or gives it back.
    pub(super) fn replace_key(&mut self, key: K) -> Result<K, K> {
        let Some(slot) = self.find(&key) else {
            return Err(key);
        };
        let entry = self.table.entry(slot);
        // SAFETY: the slot has an entry, and the map is borrowed alone.
        unsafe {
            mark_value(&raw const (*entry).0);
            Ok(std::mem::replace(&mut (*entry).0, key))
        }
    }

    /// Takes a key's value out.
    #[inline]
    pub fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        Some(self.remove_entry(key)?.1)
    }

    /// Takes a key and its value out.
    #[inline]
    pub fn remove_entry<Q>(&mut self, key: &Q) -> Option<(K, V)>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let slot = self.find(key)?;
        Some(self.table.take(slot))
    }

    /// The key's place, there or not.
    ///
    /// # Panics
    /// When there is no memory for one more entry.
    #[inline]
    #[track_caller]
    pub fn entry(&mut self, key: K) -> Entry<'_, 'r, K, V> {
        self.table.reserve_one(hash_entry);
        let hash = hash(&key, self.table.hasher());
        match self.table.find_or_free(hash, |entry| entry.0 == key, hash_entry) {
            Found::Here(slot) => Entry::Occupied(OccupiedEntry { map: self, slot }),
            Found::Free(slot) => Entry::Vacant(VacantEntry {
                map: self,
                slot,
                hash,
                key,
            }),
        }
    }
}

#[inline]
pub(super) fn hash<Q: Hash + ?Sized>(key: &Q, mut state: Fold) -> u64 {
    key.hash(&mut state);
    state.finish()
}

#[inline]
pub(super) fn hash_entry<K: Hash, V>(entry: &(K, V), state: Fold) -> u64 {
    hash(&entry.0, state)
}

impl<'r, K: Hash + Eq, V> Extend<(K, V)> for HashMap<'r, K, V> {
    #[track_caller]
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        let entries = entries.into_iter();
        let least = entries.size_hint().0;
        // Of many, half may be there already.
        let expected = if self.is_empty() { least } else { least.div_ceil(2) };
        self.table.expect(expected, hash_entry);
        for (key, value) in entries {
            self.insert(key, value);
        }
    }
}

impl<'a, 'r, K: Hash + Eq + Copy, V: Copy> Extend<(&'a K, &'a V)> for HashMap<'r, K, V> {
    fn extend<I: IntoIterator<Item = (&'a K, &'a V)>>(&mut self, entries: I) {
        self.extend(entries.into_iter().map(|(&key, &value)| (key, value)));
    }
}

impl<'r, K, Q, V> Index<&Q> for HashMap<'r, K, V>
where
    K: Hash + Eq + Borrow<Q>,
    Q: Hash + Eq + ?Sized,
{
    type Output = V;
    #[track_caller]
    fn index(&self, key: &Q) -> &V {
        self.get(key).expect("no entry found for key")
    }
}

impl<'r, K: Hash + Eq + Clone, V: Clone> Clone for HashMap<'r, K, V> {
    /// A clone on the same heap.
    fn clone(&self) -> HashMap<'r, K, V> {
        HashMap {
            table: self.table.clone_with(Clone::clone, hash_entry),
            brand: PhantomData,
        }
    }
}

impl<'r, K: Hash + Eq, V: PartialEq> PartialEq for HashMap<'r, K, V> {
    fn eq(&self, other: &HashMap<'r, K, V>) -> bool {
        self.len() == other.len()
            && self
                .iter()
                .all(|(key, value)| other.get(key).is_some_and(|v| value == v))
    }
}

impl<'r, K: Hash + Eq, V: Eq> Eq for HashMap<'r, K, V> {}

impl<'r, K: fmt::Debug, V: fmt::Debug> fmt::Debug for HashMap<'r, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

// SAFETY: it owns its block, its entries may live in a region, and the hash is fixed.
unsafe impl<K: Persist, V: Persist> Persist for HashMap<'static, K, V>
where
    for<'r> K::In<'r>: Hash + Eq,
{
    type In<'r> = HashMap<'r, K::In<'r>, V::In<'r>>;
    type Previous = HashMap<'static, K, V::Previous>;
    fn name() -> Name {
        Name::new("HashMap").with([K::name(), V::name()])
    }
    fn layout(types: &mut Types) -> Kind {
        Kind::Hash {
            of: types.of::<(K, V)>(),
            hash: Fold::witness(),
        }
    }
    fn migrate<'r>(
        old: HashMap<'r, K::In<'r>, Of<'r, V::Previous>>,
        heap: Heap<'r>,
    ) -> HashMap<'r, K::In<'r>, V::In<'r>> {
        HashMap::from_iter_in(
            old.into_iter().map(|(key, value)| (key, V::migrate(value, heap))),
            heap,
        )
    }
}

impl<K: Persist, V: Persist> Empty for HashMap<'static, K, V>
where
    for<'r> K::In<'r>: Hash + Eq,
{
    fn empty<'r>(heap: Heap<'r>) -> HashMap<'r, K::In<'r>, V::In<'r>> {
        HashMap::new_in(heap)
    }
}
