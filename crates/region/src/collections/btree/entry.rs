//! One key's place in a map, there or not: the entry API.

use super::BTreeMap;
use super::search::Path;
use crate::collections::make::DefaultIn;
use crate::heap::HeapError;
use crate::marks::mark_value;
use std::fmt;

/// A key's place in a [`BTreeMap`]: [`BTreeMap::entry`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::btree::{Entry, BTreeMap};
///
/// let mut stock = BTreeMap::from_iter_in([("apples", 3), ("pears", 5)], heap);
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
/// use twinpage::collections::btree::{Entry, BTreeMap};
///
/// let mut stock = BTreeMap::from_iter_in([("apples", 3), ("pears", 5)], heap);
/// if let Entry::Occupied(mut entry) = stock.entry("pears") {
///     assert_eq!((*entry.key(), entry.insert(2)), ("pears", 5));
///     assert_eq!(entry.remove(), 2);
/// }
/// assert_eq!(stock.len(), 1);
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct OccupiedEntry<'a, 'r, K, V> {
    pub(super) map: &'a mut BTreeMap<'r, K, V>,
    pub(super) path: Path<K, V>,
}

/// The place of a key that is not there.
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::btree::{Entry, BTreeMap};
///
/// let mut stock = BTreeMap::from_iter_in([("apples", 3), ("pears", 5)], heap);
/// if let Entry::Vacant(entry) = stock.entry("plums") {
///     assert_eq!(*entry.key(), "plums");
///     entry.insert(8);
/// }
/// assert_eq!(stock["plums"], 8);
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct VacantEntry<'a, 'r, K, V> {
    pub(super) map: &'a mut BTreeMap<'r, K, V>,
    pub(super) path: Path<K, V>,
    pub(super) key: K,
}

impl<'a, 'r, K, V> Entry<'a, 'r, K, V> {
    /// The value, put there if there was none.
    pub fn or_insert(self, value: V) -> &'a mut V {
        self.or_insert_with(|| value)
    }

    /// The value, made if there was none.
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
}

impl<'a, 'r, K, V> OccupiedEntry<'a, 'r, K, V> {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &K {
        let (node, index) = self.path.entry();
        // SAFETY: the entry is there, and the map borrowed.
        unsafe { &*node.key(index) }
    }

    /// The value.
    #[must_use]
    pub fn get(&self) -> &V {
        let (node, index) = self.path.entry();
        // SAFETY: the entry is there, and the map borrowed.
        unsafe { &*node.value(index) }
    }

    /// The value, to change.
    pub fn get_mut(&mut self) -> &mut V {
        // SAFETY: the entry is there, and the map borrowed mutably.
        unsafe { value_mut(&self.path) }
    }

    /// The value, to change for as long as the map is borrowed.
    #[must_use]
    pub fn into_mut(self) -> &'a mut V {
        // SAFETY: the entry is there, and the map stays borrowed mutably for `'a`.
        unsafe { value_mut(&self.path) }
    }

    /// Sets the value, and returns the one there was.
    pub fn insert(&mut self, value: V) -> V {
        std::mem::replace(self.get_mut(), value)
    }

    /// Takes key and value out.
    #[must_use]
    pub fn remove_entry(mut self) -> (K, V) {
        self.map.remove_at(&mut self.path).0
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
    ///
    /// # Panics
    /// When there is no memory.
    #[track_caller]
    pub fn insert(self, value: V) -> &'a mut V {
        match self.try_insert(value) {
            Ok(value) => value,
            Err(error) => panic!("{error}"),
        }
    }

    pub(super) fn try_insert(self, value: V) -> Result<&'a mut V, HeapError> {
        let (node, index) = self.map.try_insert_at(self.path, self.key, value)?.entry();
        // SAFETY: the entry is there now, marked as it was put there, and the map borrowed alone.
        Ok(unsafe { &mut *node.value(index) })
    }
}

/// The value at the end of a path, marked.
unsafe fn value_mut<'a, K, V>(path: &Path<K, V>) -> &'a mut V {
    let (node, index) = path.entry();
    mark_value(node.value(index));
    // SAFETY: callers pass the path of an entry of a map that is borrowed mutably for `'a`.
    unsafe { &mut *node.value(index) }
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
