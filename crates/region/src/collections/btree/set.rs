//! Values in order: a map without values.

use super::{BTreeMap, IntoKeys, Keys};
use crate::heap::Heap;
use crate::persist::{Empty, Kind, Name, Persist, Types};
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::iter::Peekable;
use std::ops::RangeBounds;

/// Values in order, as [`std::collections::BTreeSet`], in a region.
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::BTreeSet;
///
/// let mut seen = BTreeSet::new_in(heap);
/// assert!(seen.insert("a") && seen.insert("b") && !seen.insert("a"));
/// assert!(seen.contains("b"));
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[repr(transparent)]
pub struct BTreeSet<'r, T> {
    pub(super) map: BTreeMap<'r, T, ()>,
}

impl<'r, T> BTreeSet<'r, T> {
    /// An empty set. It takes no memory yet.
    #[must_use]
    pub const fn new_in(heap: Heap<'r>) -> BTreeSet<'r, T> {
        BTreeSet {
            map: BTreeMap::new_in(heap),
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

    /// Drops all values.
    pub fn clear(&mut self) {
        self.map.clear();
    }

    /// The values, in order.
    #[must_use]
    pub fn iter(&self) -> Keys<'_, T, ()> {
        self.map.keys()
    }
}

impl<'r, T: Ord> BTreeSet<'r, T> {
    /// The values of an iterator.
    #[track_caller]
    pub fn from_iter_in(values: impl IntoIterator<Item = T>, heap: Heap<'r>) -> BTreeSet<'r, T> {
        let mut set = BTreeSet::new_in(heap);
        set.extend(values);
        set
    }

    /// Keeps the values `keep` says yes to.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.map.retain(|value, ()| keep(value));
    }

    /// The first value.
    #[must_use]
    pub fn first(&self) -> Option<&T> {
        self.iter().next()
    }

    /// The last value.
    #[must_use]
    pub fn last(&self) -> Option<&T> {
        self.iter().next_back()
    }

    /// The first value, taken out.
    pub fn pop_first(&mut self) -> Option<T> {
        self.map.pop_first().map(|(value, ())| value)
    }

    /// The last value, taken out.
    pub fn pop_last(&mut self) -> Option<T> {
        self.map.pop_last().map(|(value, ())| value)
    }

    /// The values of a range, in order.
    ///
    /// # Panics
    /// As [`BTreeMap::range`].
    #[track_caller]
    pub fn range<Q>(&self, range: impl RangeBounds<Q>) -> impl DoubleEndedIterator<Item = &T>
    where
        T: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.map.range(range).map(|(value, ())| value)
    }

    /// Moves all values of another set to this one.
    ///
    /// # Panics
    /// When there is no memory.
    #[track_caller]
    pub fn append(&mut self, other: &mut BTreeSet<'r, T>) {
        self.map.append(&mut other.map);
    }

    /// The values from `value` on, in a set of their own on the same heap.
    ///
    /// # Panics
    /// When there is no memory.
    #[track_caller]
    pub fn split_off<Q>(&mut self, value: &Q) -> BTreeSet<'r, T>
    where
        T: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        BTreeSet {
            map: self.map.split_off(value),
        }
    }

    /// Whether the value is there.
    #[must_use]
    #[inline]
    pub fn contains<Q>(&self, value: &Q) -> bool
    where
        T: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.map.contains_key(value)
    }

    /// The value as it is kept.
    #[must_use]
    pub fn get<Q>(&self, value: &Q) -> Option<&T>
    where
        T: Borrow<Q>,
        Q: Ord + ?Sized,
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
        Q: Ord + ?Sized,
    {
        self.map.remove(value).is_some()
    }

    /// Takes a value out.
    pub fn take<Q>(&mut self, value: &Q) -> Option<T>
    where
        T: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.map.remove_entry(value).map(|(value, ())| value)
    }

    /// The values of this set that are not in the other, in order.
    pub fn difference<'a>(&'a self, other: &'a BTreeSet<'r, T>) -> impl Iterator<Item = &'a T> {
        self.iter().filter(|value| !other.contains(value))
    }

    /// The values that are in one of the sets, not in both, in order.
    pub fn symmetric_difference<'a>(&'a self, other: &'a BTreeSet<'r, T>) -> impl Iterator<Item = &'a T> {
        Merged {
            left: self.iter().peekable(),
            right: other.iter().peekable(),
            both: false,
        }
    }

    /// The values that are in both sets, in order.
    pub fn intersection<'a>(&'a self, other: &'a BTreeSet<'r, T>) -> impl Iterator<Item = &'a T> {
        self.iter().filter(|value| other.contains(value))
    }

    /// The values that are in any of the two sets, in order.
    pub fn union<'a>(&'a self, other: &'a BTreeSet<'r, T>) -> impl Iterator<Item = &'a T> {
        Merged {
            left: self.iter().peekable(),
            right: other.iter().peekable(),
            both: true,
        }
    }

    /// Whether no value is in both.
    #[must_use]
    pub fn is_disjoint(&self, other: &BTreeSet<'r, T>) -> bool {
        self.intersection(other).next().is_none()
    }

    /// Whether all values are in the other.
    #[must_use]
    pub fn is_subset(&self, other: &BTreeSet<'r, T>) -> bool {
        self.len() <= other.len() && self.iter().all(|value| other.contains(value))
    }

    /// Whether all values of the other are in this.
    #[must_use]
    pub fn is_superset(&self, other: &BTreeSet<'r, T>) -> bool {
        other.is_subset(self)
    }
}

/// Two sets in order, with or without what is in both.
struct Merged<'a, T> {
    left: Peekable<Keys<'a, T, ()>>,
    right: Peekable<Keys<'a, T, ()>>,
    both: bool,
}

impl<'a, T: Ord> Iterator for Merged<'a, T> {
    type Item = &'a T;
    fn next(&mut self) -> Option<&'a T> {
        loop {
            let order = match (self.left.peek(), self.right.peek()) {
                (Some(left), Some(right)) => left.cmp(right),
                (Some(_), None) => Ordering::Less,
                (None, _) => Ordering::Greater,
            };
            match order {
                Ordering::Less => return self.left.next(),
                Ordering::Greater => return self.right.next(),
                Ordering::Equal => {
                    self.right.next();
                    let value = self.left.next();
                    if self.both {
                        return value;
                    }
                }
            }
        }
    }
}

impl<'r, T: Ord> Extend<T> for BTreeSet<'r, T> {
    #[track_caller]
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        self.map.extend(values.into_iter().map(|value| (value, ())));
    }
}

impl<'a, 'r, T: Ord + Copy> Extend<&'a T> for BTreeSet<'r, T> {
    #[track_caller]
    fn extend<I: IntoIterator<Item = &'a T>>(&mut self, values: I) {
        self.extend(values.into_iter().copied());
    }
}

impl<'r, T> IntoIterator for BTreeSet<'r, T> {
    type Item = T;
    type IntoIter = IntoKeys<'r, T, ()>;
    fn into_iter(self) -> IntoKeys<'r, T, ()> {
        self.map.into_keys()
    }
}

impl<'a, 'r, T> IntoIterator for &'a BTreeSet<'r, T> {
    type Item = &'a T;
    type IntoIter = Keys<'a, T, ()>;
    fn into_iter(self) -> Keys<'a, T, ()> {
        self.iter()
    }
}

impl<'r, T: Ord + Clone> Clone for BTreeSet<'r, T> {
    /// A clone on the same heap.
    fn clone(&self) -> BTreeSet<'r, T> {
        BTreeSet {
            map: self.map.clone(),
        }
    }
}

impl<'r, T: PartialEq> PartialEq for BTreeSet<'r, T> {
    fn eq(&self, other: &BTreeSet<'r, T>) -> bool {
        self.map == other.map
    }
}

impl<'r, T: Eq> Eq for BTreeSet<'r, T> {}

impl<'r, T: PartialOrd> PartialOrd for BTreeSet<'r, T> {
    fn partial_cmp(&self, other: &BTreeSet<'r, T>) -> Option<Ordering> {
        self.iter().partial_cmp(other.iter())
    }
}

impl<'r, T: Ord> Ord for BTreeSet<'r, T> {
    fn cmp(&self, other: &BTreeSet<'r, T>) -> Ordering {
        self.iter().cmp(other.iter())
    }
}

impl<'r, T: Hash> Hash for BTreeSet<'r, T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.map.hash(state);
    }
}

impl<'r, T: fmt::Debug> fmt::Debug for BTreeSet<'r, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self).finish()
    }
}

// SAFETY: it is a map from `T` to nothing, and a map may live in a region.
unsafe impl<T: Persist> Persist for BTreeSet<'static, T>
where
    for<'r> T::In<'r>: Ord,
{
    type In<'r> = BTreeSet<'r, T::In<'r>>;
    type Previous = Self;
    fn name() -> Name {
        Name::new("BTreeSet").with([T::name()])
    }
    fn layout(types: &mut Types) -> Kind {
        <BTreeMap<'static, T, ()>>::layout(types)
    }
    fn migrate<'r>(old: BTreeSet<'r, T::In<'r>>, _: Heap<'r>) -> BTreeSet<'r, T::In<'r>> {
        old
    }
}

impl<T: Persist> Empty for BTreeSet<'static, T>
where
    for<'r> T::In<'r>: Ord,
{
    fn empty<'r>(heap: Heap<'r>) -> BTreeSet<'r, T::In<'r>> {
        BTreeSet::new_in(heap)
    }
}
