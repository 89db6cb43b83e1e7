//! Values that are there or not: a map without values.

use super::HashMap;
use super::iter;
use crate::heap::{Heap, HeapError};
use crate::persist::{Empty, Kind, Name, Persist, Types};
use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;

/// Values that are there or not, as [`std::collections::HashSet`], in a region.
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::HashSet;
///
/// let mut seen = HashSet::new_in(heap);
/// assert!(seen.insert("a") && seen.insert("b") && !seen.insert("a"));
/// assert!(seen.contains("b"));
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[repr(transparent)]
pub struct HashSet<'r, T> {
    pub(super) map: HashMap<'r, T, ()>,
}

impl<'r, T> HashSet<'r, T> {
    /// An empty set. It takes no memory yet.
    #[must_use]
    pub const fn new_in(heap: Heap<'r>) -> HashSet<'r, T> {
        HashSet {
            map: HashMap::new_in(heap),
        }
    }

    /// The heap it takes its memory from.
    #[must_use]
    pub fn heap(&self) -> Heap<'r> {
        self.map.heap()
    }

    /// How many values there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// How many values there is room for.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.map.capacity()
    }

    /// Drops all values. The room stays.
    pub fn clear(&mut self) {
        self.map.clear();
    }

    /// The values, in no order that means anything.
    #[must_use]
    pub fn iter(&self) -> iter::Keys<'_, T, ()> {
        self.map.keys()
    }

    /// All values, taken out. The room stays.
    pub fn drain(&mut self) -> impl ExactSizeIterator<Item = T> + '_ {
        self.map.drain().map(|(value, ())| value)
    }

    /// Keeps the values `keep` says yes to.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.map.retain(|value, ()| keep(value));
    }
}

impl<'r, T: Hash + Eq> HashSet<'r, T> {
    /// An empty set with room for `capacity` values.
    ///
    /// # Panics
    /// When there is no memory.
    #[must_use]
    #[track_caller]
    pub fn with_capacity_in(capacity: usize, heap: Heap<'r>) -> HashSet<'r, T> {
        HashSet {
            map: HashMap::with_capacity_in(capacity, heap),
        }
    }

    /// The values of an iterator.
    #[track_caller]
    pub fn from_iter_in(values: impl IntoIterator<Item = T>, heap: Heap<'r>) -> HashSet<'r, T> {
        let mut set = HashSet::new_in(heap);
        set.extend(values);
        set
    }

    /// Makes room for `additional` more values.
    ///
    /// # Panics
    /// When there is no memory.
    #[track_caller]
    pub fn reserve(&mut self, additional: usize) {
        self.map.reserve(additional);
    }

    /// As [`HashSet::reserve`].
    ///
    /// # Errors
    /// [`HeapError`] when there is no memory; nothing has changed then.
    pub fn try_reserve(&mut self, additional: usize) -> Result<(), HeapError> {
        self.map.try_reserve(additional)
    }

    /// Gives back the room there is too much.
    pub fn shrink_to_fit(&mut self) {
        self.map.shrink_to_fit();
    }

    /// Gives back the room past `capacity` values, or past those there are.
    pub fn shrink_to(&mut self, capacity: usize) {
        self.map.shrink_to(capacity);
    }

    /// Whether the value is there.
    #[must_use]
    #[inline]
    pub fn contains<Q>(&self, value: &Q) -> bool
    where
        T: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.map.contains_key(value)
    }

    /// The value as it is kept.
    #[must_use]
    pub fn get<Q>(&self, value: &Q) -> Option<&T>
    where
        T: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.map.get_key_value(value).map(|(value, ())| value)
    }

    /// Puts a value in. Returns whether it is new.
    ///
    /// # Panics
    /// When there is no memory.
    #[inline]
    #[track_caller]
    pub fn insert(&mut self, value: T) -> bool {
        self.map.insert(value, ()).is_none()
    }

    /// Puts a value in, in place of one that is equal, which is returned.
    ///
    /// # Panics
    /// When there is no memory.
    #[track_caller]
    pub fn replace(&mut self, value: T) -> Option<T> {
        match self.map.replace_key(value) {
            Ok(old) => Some(old),
            Err(value) => {
                self.insert(value);
                None
            }
        }
    }

    /// Removes a value. Returns whether it was there.
    #[inline]
    pub fn remove<Q>(&mut self, value: &Q) -> bool
    where
        T: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.map.remove(value).is_some()
    }

    /// Takes a value out.
    pub fn take<Q>(&mut self, value: &Q) -> Option<T>
    where
        T: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.map.remove_entry(value).map(|(value, ())| value)
    }

    /// The values of this set that are not in the other.
    pub fn difference<'a>(&'a self, other: &'a HashSet<'r, T>) -> impl Iterator<Item = &'a T> {
        self.iter().filter(|value| !other.contains(value))
    }

    /// The values that are in one of the sets, not in both.
    pub fn symmetric_difference<'a>(&'a self, other: &'a HashSet<'r, T>) -> impl Iterator<Item = &'a T> {
        self.difference(other).chain(other.difference(self))
    }

    /// The values that are in both sets.
    pub fn intersection<'a>(&'a self, other: &'a HashSet<'r, T>) -> impl Iterator<Item = &'a T> {
        let (small, large) = if self.len() <= other.len() {
            (self, other)
        } else {
            (other, self)
        };
        small.iter().filter(|value| large.contains(value))
    }

    /// The values that are in any of the two sets.
    pub fn union<'a>(&'a self, other: &'a HashSet<'r, T>) -> impl Iterator<Item = &'a T> {
        self.iter().chain(other.difference(self))
    }

    /// Whether no value is in both.
    #[must_use]
    pub fn is_disjoint(&self, other: &HashSet<'r, T>) -> bool {
        self.intersection(other).next().is_none()
    }

    /// Whether all values are in the other.
    #[must_use]
    pub fn is_subset(&self, other: &HashSet<'r, T>) -> bool {
        self.len() <= other.len() && self.iter().all(|value| other.contains(value))
    }

    /// Whether all values of the other are in this.
    #[must_use]
    pub fn is_superset(&self, other: &HashSet<'r, T>) -> bool {
        other.is_subset(self)
    }
}

impl<'r, T: Hash + Eq> Extend<T> for HashSet<'r, T> {
    #[track_caller]
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        self.map.extend(values.into_iter().map(|value| (value, ())));
    }
}

impl<'a, 'r, T: Hash + Eq + Copy> Extend<&'a T> for HashSet<'r, T> {
    #[track_caller]
    fn extend<I: IntoIterator<Item = &'a T>>(&mut self, values: I) {
        self.extend(values.into_iter().copied());
    }
}

impl<'r, T> IntoIterator for HashSet<'r, T> {
    type Item = T;
    type IntoIter = iter::IntoKeys<'r, T, ()>;
    fn into_iter(self) -> iter::IntoKeys<'r, T, ()> {
        self.map.into_keys()
    }
}

impl<'a, 'r, T> IntoIterator for &'a HashSet<'r, T> {
    type Item = &'a T;
    type IntoIter = iter::Keys<'a, T, ()>;
    fn into_iter(self) -> iter::Keys<'a, T, ()> {
        self.iter()
    }
}

impl<'r, T: Hash + Eq + Clone> Clone for HashSet<'r, T> {
    /// A clone on the same heap.
    fn clone(&self) -> HashSet<'r, T> {
        HashSet {
            map: self.map.clone(),
        }
    }
}

impl<'r, T: Hash + Eq> PartialEq for HashSet<'r, T> {
    fn eq(&self, other: &HashSet<'r, T>) -> bool {
        self.map == other.map
    }
}

impl<'r, T: Hash + Eq> Eq for HashSet<'r, T> {}

impl<'r, T: fmt::Debug> fmt::Debug for HashSet<'r, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self).finish()
    }
}

// SAFETY: it is a map from `T` to nothing, and a map may live in a region.
unsafe impl<T: Persist> Persist for HashSet<'static, T>
where
    for<'r> T::In<'r>: Hash + Eq,
{
    type In<'r> = HashSet<'r, T::In<'r>>;
    type Previous = Self;
    fn name() -> Name {
        Name::new("HashSet").with([T::name()])
    }
    fn layout(types: &mut Types) -> Kind {
        <HashMap<'static, T, ()>>::layout(types)
    }
    fn migrate<'r>(old: HashSet<'r, T::In<'r>>, _: Heap<'r>) -> HashSet<'r, T::In<'r>> {
        old
    }
}

impl<T: Persist> Empty for HashSet<'static, T>
where
    for<'r> T::In<'r>: Hash + Eq,
{
    fn empty<'r>(heap: Heap<'r>) -> HashSet<'r, T::In<'r>> {
        HashSet::new_in(heap)
    }
}
