//! Going through the entries of a map, in no order that means anything.

use super::HashMap;
use super::entry::value_mut;
use super::table::{self, Slots, Table};
use crate::heap::Brand;
use std::iter::FusedIterator;
use std::marker::PhantomData;

/// The entries of a map: [`HashMap::iter`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::HashMap;
///
/// let stock = HashMap::from_iter_in([("apples", 3), ("pears", 5)], heap);
/// assert_eq!(stock.iter().map(|(_, amount)| amount).sum::<i32>(), 8);
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Iter<'a, K, V> {
    pub(super) table: &'a Table<(K, V)>,
    pub(super) slots: Slots,
}

/// The entries of a map, with values to change: [`HashMap::iter_mut`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::HashMap;
///
/// let mut stock = HashMap::from_iter_in([("apples", 3), ("pears", 5)], heap);
/// stock.iter_mut().for_each(|(_, amount)| *amount *= 2);
/// assert_eq!(stock["pears"], 10);
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct IterMut<'a, K, V> {
    pub(super) table: *mut Table<(K, V)>,
    pub(super) slots: Slots,
    pub(super) borrowed: PhantomData<&'a mut (K, V)>,
}

// SAFETY: it hands out keys and values, each once.
unsafe impl<K: Sync, V: Send> Send for IterMut<'_, K, V> {}
// SAFETY: nothing can be had from a shared one.
unsafe impl<K: Sync, V: Sync> Sync for IterMut<'_, K, V> {}
// SAFETY: it hands out shared keys and values.
unsafe impl<K: Sync, V: Sync> Send for Iter<'_, K, V> {}
// SAFETY: a shared iterator can be copied, and hands out shared keys and values.
unsafe impl<K: Sync, V: Sync> Sync for Iter<'_, K, V> {}

/// The entries of a map, moved out: [`HashMap::into_iter`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::HashMap;
///
/// let stock = HashMap::from_iter_in([("apples", 3), ("pears", 5)], heap);
/// let mut all: Vec<_> = stock.into_iter().collect();
/// all.sort();
/// assert_eq!(all, [("apples", 3), ("pears", 5)]);
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct IntoIter<'r, K, V>(table::IntoEntries<(K, V)>, Brand<'r>);
/// The entries of a map, taken out: [`HashMap::drain`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::HashMap;
///
/// let mut stock = HashMap::from_iter_in([("apples", 3), ("pears", 5)], heap);
/// assert_eq!(stock.drain().count(), 2);
/// assert!(stock.is_empty());
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Drain<'a, K, V>(pub(super) table::Drain<'a, (K, V)>);
/// The keys of a map: [`HashMap::keys`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::HashMap;
///
/// let stock = HashMap::from_iter_in([("apples", 3), ("pears", 5)], heap);
/// assert!(stock.keys().any(|&name| name == "pears"));
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Keys<'a, K, V>(pub(super) Iter<'a, K, V>);
/// The values of a map: [`HashMap::values`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::HashMap;
///
/// let stock = HashMap::from_iter_in([("apples", 3), ("pears", 5)], heap);
/// assert_eq!(stock.values().max(), Some(&5));
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Values<'a, K, V>(pub(super) Iter<'a, K, V>);
/// The values of a map, to change: [`HashMap::values_mut`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::HashMap;
///
/// let mut stock = HashMap::from_iter_in([("apples", 3), ("pears", 5)], heap);
/// stock.values_mut().for_each(|amount| *amount += 1);
/// assert_eq!(stock["apples"], 4);
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ValuesMut<'a, K, V>(pub(super) IterMut<'a, K, V>);
/// The keys of a map, moved out: [`HashMap::into_keys`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::HashMap;
///
/// let stock = HashMap::from_iter_in([("apples", 3), ("pears", 5)], heap);
/// let mut names: Vec<_> = stock.into_keys().collect();
/// names.sort();
/// assert_eq!(names, ["apples", "pears"]);
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct IntoKeys<'r, K, V>(pub(super) IntoIter<'r, K, V>);
/// The values of a map, moved out: [`HashMap::into_values`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::HashMap;
///
/// let stock = HashMap::from_iter_in([("apples", 3), ("pears", 5)], heap);
/// assert_eq!(stock.into_values().sum::<i32>(), 8);
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct IntoValues<'r, K, V>(pub(super) IntoIter<'r, K, V>);

impl<'a, K, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);
    #[inline]
    fn next(&mut self) -> Option<(&'a K, &'a V)> {
        let (key, value) = self.table.get(self.slots.next()?);
        Some((key, value))
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.slots.size_hint()
    }
}

impl<'a, K, V> Iterator for IterMut<'a, K, V> {
    type Item = (&'a K, &'a mut V);
    #[inline]
    fn next(&mut self) -> Option<(&'a K, &'a mut V)> {
        let slot = self.slots.next()?;
        // SAFETY: each slot has an entry and comes once; the map is borrowed alone for `'a`.
        unsafe {
            let entry = (*self.table).entry(slot);
            Some((&(*entry).0, value_mut(entry)))
        }
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.slots.size_hint()
    }
}

macro_rules! iterators {
    ($([$($generics:tt)*] $name:ty, $item:ty, $map:expr;)*) => {$(
        impl<$($generics)*> Iterator for $name {
            type Item = $item;
            #[inline]
            fn next(&mut self) -> Option<$item> {
                self.0.next().map($map)
            }
            fn size_hint(&self) -> (usize, Option<usize>) {
                self.0.size_hint()
            }
        }
        impl<$($generics)*> ExactSizeIterator for $name {}
        impl<$($generics)*> FusedIterator for $name {}
    )*};
}

iterators! {
    ['r, K, V] IntoIter<'r, K, V>, (K, V), |entry| entry;
    ['a, K, V] Drain<'a, K, V>, (K, V), |entry| entry;
    ['a, K, V] Keys<'a, K, V>, &'a K, |(key, _)| key;
    ['a, K, V] Values<'a, K, V>, &'a V, |(_, value)| value;
    ['a, K, V] ValuesMut<'a, K, V>, &'a mut V, |(_, value)| value;
    ['r, K, V] IntoKeys<'r, K, V>, K, |(key, _)| key;
    ['r, K, V] IntoValues<'r, K, V>, V, |(_, value)| value;
}

impl<K, V> ExactSizeIterator for Iter<'_, K, V> {}
impl<K, V> FusedIterator for Iter<'_, K, V> {}
impl<K, V> ExactSizeIterator for IterMut<'_, K, V> {}
impl<K, V> FusedIterator for IterMut<'_, K, V> {}

impl<K, V> Clone for Iter<'_, K, V> {
    fn clone(&self) -> Self {
        Iter {
            table: self.table,
            slots: self.slots.clone(),
        }
    }
}

impl<'r, K, V> IntoIterator for HashMap<'r, K, V> {
    type Item = (K, V);
    type IntoIter = IntoIter<'r, K, V>;
    fn into_iter(self) -> IntoIter<'r, K, V> {
        IntoIter(self.table.into_entries(), PhantomData)
    }
}

impl<'a, 'r, K, V> IntoIterator for &'a HashMap<'r, K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Iter<'a, K, V>;
    fn into_iter(self) -> Iter<'a, K, V> {
        self.iter()
    }
}

impl<'a, 'r, K, V> IntoIterator for &'a mut HashMap<'r, K, V> {
    type Item = (&'a K, &'a mut V);
    type IntoIter = IterMut<'a, K, V>;
    fn into_iter(self) -> IterMut<'a, K, V> {
        self.iter_mut()
    }
}
