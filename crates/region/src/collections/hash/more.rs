//! Taking some entries out as they are asked for, several values at once, and keys that are made only where they are
//! put.

use super::HashMap;
use super::entry::{OccupiedEntry, value_mut};
use super::map::{hash, hash_entry};
use super::set::HashSet;
use super::table::{Found, Slot, Slots, Table};
use crate::collections::make::{CloneIn, DefaultIn};
use std::borrow::Borrow;
use std::hash::Hash;
use std::iter::FusedIterator;

impl<'r, K, V> HashMap<'r, K, V> {
    /// Takes the entries that `take` says yes to out, one when each is asked for. What was not asked for stays. Each
    /// value it looks at is marked as written: it may change it.
    pub fn extract_if<F: FnMut(&K, &mut V) -> bool>(&mut self, take: F) -> ExtractIf<'_, K, V, F> {
        ExtractIf {
            slots: self.table.slots(),
            table: &mut self.table,
            take,
        }
    }
}

impl<'r, T> HashSet<'r, T> {
    /// Takes the values that `take` says yes to out, one when each is asked for. What was not asked for stays.
    pub fn extract_if(&mut self, mut take: impl FnMut(&T) -> bool) -> impl Iterator<Item = T> {
        let taken = self.map.extract_if(move |value, ()| take(value));
        taken.map(|(value, ())| value)
    }
}

impl<'r, K: Hash + Eq, V> HashMap<'r, K, V> {
    /// The values of several keys at once, to change. Only they are marked as written.
    ///
    /// # Panics
    /// When two keys are the same entry's.
    #[track_caller]
    pub fn get_disjoint_mut<Q, const N: usize>(&mut self, keys: [&Q; N]) -> [Option<&mut V>; N]
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let found = keys.map(|key| self.find(key).map(|slot| self.table.entry(slot)));
        for (index, entry) in found.iter().enumerate() {
            let is_there_twice = entry.is_some() && found[..index].contains(entry);
            assert!(!is_there_twice, "two of the keys are the same entry's");
        }
        // SAFETY: the slots have entries, no two the same, and the map is borrowed alone for as long.
        found.map(|entry| entry.map(|entry| unsafe { value_mut(entry) }))
    }

    /// The place of a key, there or not, which is made (`String` from `str`) only where it is put.
    ///
    /// # Panics
    /// When there is no memory for one more entry.
    #[inline]
    #[track_caller]
    pub fn entry_ref<'q, Q>(&mut self, key: &'q Q) -> EntryRef<'_, 'r, 'q, K, V, Q>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.table.reserve_one(hash_entry);
        let hash = hash(key, self.table.hasher());
        match self
            .table
            .find_or_free(hash, |entry| entry.0.borrow() == key, hash_entry)
        {
            Found::Here(slot) => EntryRef::Occupied(OccupiedEntry { map: self, slot }),
            Found::Free(slot) => EntryRef::Vacant(VacantEntryRef {
                map: self,
                slot,
                hash,
                key,
            }),
        }
    }
}

/// Entries taken out of a map if a function says so: [`HashMap::extract_if`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::HashMap;
///
/// let mut stock = HashMap::from_iter_in([("apples", 3), ("pears", 5)], heap);
/// assert!(stock.extract_if(|_, amount| *amount > 4).eq([("pears", 5)]));
/// assert_eq!(stock.len(), 1);
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ExtractIf<'a, K, V, F> {
    table: &'a mut Table<(K, V)>,
    slots: Slots,
    take: F,
}

impl<K, V, F: FnMut(&K, &mut V) -> bool> Iterator for ExtractIf<'_, K, V, F> {
    type Item = (K, V);
    fn next(&mut self) -> Option<(K, V)> {
        loop {
            let slot = self.slots.next()?;
            let entry = self.table.entry(slot);
            // SAFETY: the entry is there, without another user.
            if unsafe { (self.take)(&(*entry).0, value_mut(entry)) } {
                return Some(self.table.take(slot));
            }
        }
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, self.slots.size_hint().1)
    }
}

impl<K, V, F: FnMut(&K, &mut V) -> bool> FusedIterator for ExtractIf<'_, K, V, F> {}

/// A borrowed key's place in a [`HashMap`]: [`HashMap::entry_ref`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::{HashMap, String};
///
/// let mut words = HashMap::<String, u32>::new_in(heap);
/// for word in "to be or not to be".split(' ') {
///     *words.entry_ref(word).or_default() += 1; // no memory for a word that is there
/// }
/// assert_eq!((words.len(), words["be"]), (4, 2));
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub enum EntryRef<'a, 'r, 'q, K, V, Q: ?Sized> {
    /// The key is there.
    Occupied(OccupiedEntry<'a, 'r, K, V>),
    /// It is not.
    Vacant(VacantEntryRef<'a, 'r, 'q, K, V, Q>),
}

/// The place of a borrowed key that is not there.
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::hash::{EntryRef, HashMap};
/// use twinpage::collections::String;
///
/// let mut words = HashMap::<String, u32>::new_in(heap);
/// if let EntryRef::Vacant(entry) = words.entry_ref("be") {
///     assert_eq!(entry.key(), "be");
///     entry.insert(2);
/// }
/// assert_eq!(words["be"], 2);
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct VacantEntryRef<'a, 'r, 'q, K, V, Q: ?Sized> {
    map: &'a mut HashMap<'r, K, V>,
    slot: Slot,
    hash: u64,
    key: &'q Q,
}

impl<'a, 'r, 'q, K, V, Q: ?Sized> EntryRef<'a, 'r, 'q, K, V, Q>
where
    Q: CloneIn<'r, K>,
{
    crate::collections::make::entry_ref!();
}

impl<'a, 'r, 'q, K, V, Q: ?Sized> VacantEntryRef<'a, 'r, 'q, K, V, Q> {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &'q Q {
        self.key
    }

    /// Makes the key and puts a value there.
    ///
    /// # Panics
    /// When there is no memory for the key.
    #[inline]
    #[track_caller]
    pub fn insert(self, value: V) -> &'a mut V
    where
        Q: CloneIn<'r, K>,
    {
        let VacantEntryRef { map, slot, hash, key } = self;
        let key = key.clone_in(map.heap());
        map.table.put(slot, hash, (key, value));
        // SAFETY: the slot has an entry, marked as it was put there, and the map is borrowed alone for as long.
        unsafe { &mut (*map.table.entry(slot)).1 }
    }
}
