//! Taking some entries out as they are asked for, and keys that are made only where they are put.

use super::BTreeMap;
use super::entry::OccupiedEntry;
use super::search::Path;
use super::set::BTreeSet;
use crate::collections::make::{CloneIn, DefaultIn};
use std::borrow::Borrow;
use std::iter::FusedIterator;
use std::ops::{Bound, RangeBounds};

impl<'r, K: Ord, V> BTreeMap<'r, K, V> {
    /// Takes the entries of a range of keys that `take` says yes to out, one when each is asked for. What was not
    /// asked for stays. Each value it looks at is marked as written: it may change it. A range that ends before it
    /// begins has no entries.
    pub fn extract_if<R, F>(&mut self, range: R, take: F) -> ExtractIf<'_, 'r, K, V, R, F>
    where
        R: RangeBounds<K>,
        F: FnMut(&K, &mut V) -> bool,
    {
        let edge = match self.is_empty() {
            true => None,
            false => self
                .front_edge(range.start_bound())
                .or_else(|| self.edge_at_end(false)),
        };
        ExtractIf {
            map: self,
            edge,
            range,
            take,
        }
    }

    /// The place of a key, there or not, which is made (`String` from `str`) only where it is put.
    #[inline]
    pub fn entry_ref<'q, Q>(&mut self, key: &'q Q) -> EntryRef<'_, 'r, 'q, K, V, Q>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        match self.path_to(key) {
            (path, true) => EntryRef::Occupied(OccupiedEntry { map: self, path }),
            (path, false) => EntryRef::Vacant(VacantEntryRef { map: self, path, key }),
        }
    }
}

impl<'r, T: Ord> BTreeSet<'r, T> {
    /// Takes the values of a range that `take` says yes to out, one when each is asked for. What was not asked for
    /// stays. A range that ends before it begins has no values.
    pub fn extract_if(
        &mut self,
        range: impl RangeBounds<T>,
        mut take: impl FnMut(&T) -> bool,
    ) -> impl Iterator<Item = T> {
        let taken = self.map.extract_if(range, move |value, ()| take(value));
        taken.map(|(value, ())| value)
    }
}

/// Entries taken out of a map if a function says so: [`BTreeMap::extract_if`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::BTreeMap;
///
/// let mut squares = BTreeMap::from_iter_in((0..9).map(|n| (n, n * n)), heap);
/// assert!(squares.extract_if(2..6, |n, _| n % 2 == 0).eq([(2, 4), (4, 16)]));
/// assert_eq!(squares.len(), 7);
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ExtractIf<'a, 'r, K, V, R, F> {
    map: &'a mut BTreeMap<'r, K, V>,
    /// Before what was not looked at; none at the end of the range.
    edge: Option<Path<K, V>>,
    range: R,
    take: F,
}

impl<K: Ord, V, R, F> Iterator for ExtractIf<'_, '_, K, V, R, F>
where
    R: RangeBounds<K>,
    F: FnMut(&K, &mut V) -> bool,
{
    type Item = (K, V);
    fn next(&mut self) -> Option<(K, V)> {
        let end = self.range.end_bound();
        let is_past = |key: &K| match end {
            Bound::Included(last) => key > last,
            Bound::Excluded(end) => key >= end,
            Bound::Unbounded => false,
        };
        self.map.take_next(&mut self.edge, is_past, &mut self.take)
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.map.len()))
    }
}

impl<K: Ord, V, R, F> FusedIterator for ExtractIf<'_, '_, K, V, R, F>
where
    R: RangeBounds<K>,
    F: FnMut(&K, &mut V) -> bool,
{
}

/// A borrowed key's place in a [`BTreeMap`]: [`BTreeMap::entry_ref`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::{BTreeMap, String};
///
/// let mut words = BTreeMap::<String, u32>::new_in(heap);
/// for word in "to be or not to be".split(' ') {
///     *words.entry_ref(word).or_default() += 1; // no memory for a word that is there
/// }
/// assert!(words.iter().map(|(word, count)| (word.as_str(), *count)).eq([("be", 2), ("not", 1), ("or", 1), ("to", 2)]));
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
/// use twinpage::collections::btree::{BTreeMap, EntryRef};
/// use twinpage::collections::String;
///
/// let mut words = BTreeMap::<String, u32>::new_in(heap);
/// if let EntryRef::Vacant(entry) = words.entry_ref("be") {
///     assert_eq!(entry.key(), "be");
///     entry.insert(2);
/// }
/// assert_eq!(words["be"], 2);
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct VacantEntryRef<'a, 'r, 'q, K, V, Q: ?Sized> {
    map: &'a mut BTreeMap<'r, K, V>,
    path: Path<K, V>,
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
    /// When there is no memory.
    #[inline]
    #[track_caller]
    pub fn insert(self, value: V) -> &'a mut V
    where
        Q: CloneIn<'r, K>,
    {
        let VacantEntryRef { map, path, key } = self;
        let key = key.clone_in(map.heap());
        super::entry::VacantEntry { map, path, key }.insert(value)
    }
}
