//! One key's place in a map, there or not: the entry API.

use super::HashMap;
use super::table::Slot;
use crate::collections::make::DefaultIn;
use crate::marks::mark_value;
use std::fmt;

/// A key's place in a [`HashMap`]: [`HashMap::entry`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::hash::{Entry, HashMap};
///
/// let mut stock = HashMap::from_iter_in([("apples", 3), ("pears", 5)], heap);
/// match stock.entry("pears") {
///     Entry::Occupied(mut entry) => *entry.get_mut() += 1,
///     Entry::Vacant(entry) => *entry.insert(0) += 1,
/// }
/// *stock.entry("plums").or_default() += 1;
/// assert_eq!((stock["pears"], stock["plums"]), (6, 1));
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub enum Entry<'a, 'r, K, V> {
    /// The key is there.
    Occupied(OccupiedEntry<'a, 'r, K, V>),
    /// It is not.
    Vacant(VacantEntry<'a, 'r, K, V>),
}

/// The place of a key that is there.
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::hash::{Entry, HashMap};
///
/// let mut stock = HashMap::from_iter_in([("apples", 3), ("pears", 5)], heap);
/// if let Entry::Occupied(mut entry) = stock.entry("pears") {
///     assert_eq!((*entry.key(), entry.insert(2)), ("pears", 5));
///     assert_eq!(entry.remove(), 2);
/// }
/// assert_eq!(stock.len(), 1);
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct OccupiedEntry<'a, 'r, K, V> {
    pub(super) map: &'a mut HashMap<'r, K, V>,
    pub(super) slot: Slot,
}

/// The place of a key that is not there.
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::hash::{Entry, HashMap};
///
/// let mut stock = HashMap::from_iter_in([("apples", 3), ("pears", 5)], heap);
/// if let Entry::Vacant(entry) = stock.entry("plums") {
///     assert_eq!(*entry.key(), "plums");
///     entry.insert(8);
/// }
/// assert_eq!(stock["plums"], 8);
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct VacantEntry<'a, 'r, K, V> {
    pub(super) map: &'a mut HashMap<'r, K, V>,
    pub(super) slot: Slot,
    pub(super) hash: u64,
    pub(super) key: K,
}

impl<'a, 'r, K, V> Entry<'a, 'r, K, V> {
    /// The value, put there if there was none.
    #[inline]
    pub fn or_insert(self, value: V) -> &'a mut V {
        self.or_insert_with(|| value)
    }

    /// The value, made if there was none.
    #[inline]
    pub fn or_insert_with(self, value: impl FnOnce() -> V) -> &'a mut V {
        match self {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(value()),
        }
    }

    /// The value, made from the key if there was none.
    pub fn or_insert_with_key(self, value: impl FnOnce(&K) -> V) -> &'a mut V {
        match self {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let value = value(entry.key());
                entry.insert(value)
            }
        }
    }

    /// The value, or the default of its type ([`DefaultIn`]): an empty collection, too.
    pub fn or_default(self) -> &'a mut V
    where
        V: DefaultIn<'r>,
    {
        match self {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let value = V::default_in(entry.map.heap());
                entry.insert(value)
            }
        }
    }

    /// The key.
    pub fn key(&self) -> &K {
        match self {
            Entry::Occupied(entry) => entry.key(),
            Entry::Vacant(entry) => entry.key(),
        }
    }

    /// Changes the value if there is one.
    #[must_use]
    pub fn and_modify(mut self, change: impl FnOnce(&mut V)) -> Entry<'a, 'r, K, V> {
        if let Entry::Occupied(entry) = &mut self {
            change(entry.get_mut());
        }
        self
    }

    /// Sets the value.
    pub fn insert_entry(self, value: V) -> OccupiedEntry<'a, 'r, K, V> {
        match self {
            Entry::Occupied(mut entry) => {
                entry.insert(value);
                entry
            }
            Entry::Vacant(entry) => entry.insert_entry(value),
        }
    }
}

impl<'a, 'r, K, V> OccupiedEntry<'a, 'r, K, V> {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &K {
        &self.map.table.get(self.slot).0
    }

    /// The value.
    #[must_use]
    pub fn get(&self) -> &V {
        &self.map.table.get(self.slot).1
    }

    /// The value, to change.
    pub fn get_mut(&mut self) -> &mut V {
        // SAFETY: the slot has an entry, and the map is borrowed alone for as long as the value.
        unsafe { value_mut(self.map.table.entry(self.slot)) }
    }

    /// The value, to change for as long as the map is borrowed.
    #[must_use]
    #[inline]
    pub fn into_mut(self) -> &'a mut V {
        // SAFETY: the slot has an entry, and the map stays borrowed mutably for `'a`.
        unsafe { value_mut(self.map.table.entry(self.slot)) }
    }

    /// Sets the value, and returns the one there was.
    pub fn insert(&mut self, value: V) -> V {
        std::mem::replace(self.get_mut(), value)
    }

    /// Takes key and value out.
    #[must_use]
    pub fn remove_entry(self) -> (K, V) {
        self.map.table.take(self.slot)
    }

    /// Takes the value out.
    pub fn remove(self) -> V {
        self.remove_entry().1
    }
}

impl<'a, 'r, K, V> VacantEntry<'a, 'r, K, V> {
    /// The key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// The key back.
    pub fn into_key(self) -> K {
        self.key
    }

    /// Puts a value there.
    #[inline]
    pub fn insert(self, value: V) -> &'a mut V {
        let entry = self.insert_entry(value);
        let place = entry.map.table.entry(entry.slot);
        // SAFETY: the slot has an entry, marked as it was put there, and the map is borrowed alone for as long.
        unsafe { &mut (*place).1 }
    }

    /// Puts a value there.
    #[inline]
    pub fn insert_entry(self, value: V) -> OccupiedEntry<'a, 'r, K, V> {
        let VacantEntry { map, slot, hash, key } = self;
        map.table.put(slot, hash, (key, value));
        OccupiedEntry { map, slot }
    }
}

/// The value of an entry, marked.
///
/// # Safety
/// There is an entry, without another user for as long.
#[inline]
pub(super) unsafe fn value_mut<'a, K, V>(entry: *mut (K, V)) -> &'a mut V {
    // SAFETY: this function's own contract.
    let value = unsafe { &raw mut (*entry).1 };
    mark_value(value);
    // SAFETY: this function's own contract.
    unsafe { &mut *value }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Entry<'_, '_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Entry::Occupied(entry) => f
                .debug_tuple("Occupied")
                .field(&entry.key())
                .field(&entry.get())
                .finish(),
            Entry::Vacant(entry) => f.debug_tuple("Vacant").field(entry.key()).finish(),
        }
    }
}
