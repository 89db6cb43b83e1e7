//! Values that are made on a heap: by default, from an iterator, from what is borrowed. `std`'s traits for it have no
//! place for a heap.

use super::{BTreeMap, BTreeSet, BinaryHeap, Box, HashMap, HashSet, String, Vec, VecDeque};
use crate::heap::Heap;
use std::hash::Hash;

/// A value to begin with, made on a heap: [`Default`], and an empty collection.
///
/// `or_default()` of a map's entry asks for it. A struct of your own that owns memory of its region has it by
/// `#[derive(Persist)]` and `#[persist(default)]`, where all its fields do.
///
/// ```
/// # use twinpage::{Heap, Persist, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::{HashMap, String, Vec};
///
/// #[derive(Persist)]
/// #[persist(default)]
/// struct Shelf<'r> {
///     label: Option<String<'r>>,
///     titles: Vec<'r, String<'r>>,
/// }
/// let mut shelves = HashMap::<u32, Shelf>::new_in(heap);
/// shelves.entry(7).or_default().titles.push(String::from_in("Emma", heap));
/// assert_eq!((shelves[&7].titles.len(), shelves[&7].label.is_none()), (1, true));
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no default that could be made on a heap",
    label = "no `DefaultIn`",
    note = "a type without a brand: `#[derive(Default)]`; a struct with one: `#[persist(default)]` beside `#[derive(Persist)]`"
)]
pub trait DefaultIn<'r> {
    /// That value.
    fn default_in(heap: Heap<'r>) -> Self;
}

impl<'r, T: Default> DefaultIn<'r> for T {
    fn default_in(_: Heap<'r>) -> T {
        T::default()
    }
}

/// A collection made from an iterator, on a heap: what `u.collect(..)` makes.
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::{FromIteratorIn, Vec};
///
/// fn all<'r, C: FromIteratorIn<'r, u8>>(heap: Heap<'r>) -> C {
///     C::from_iterator_in(0..3, heap)
/// }
/// assert_eq!(all::<Vec<u8>>(heap), [0, 1, 2]);
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait FromIteratorIn<'r, A>: Sized {
    /// The values of an iterator.
    fn from_iterator_in(values: impl IntoIterator<Item = A>, heap: Heap<'r>) -> Self;
}

/// What can be collected into a `C`: every iterator over what a `C` is made of.
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::{CollectInto, String};
///
/// let word: String = "olleh".chars().rev().collect_into_in(heap);
/// assert_eq!(word, "hello");
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait CollectInto<'r, C> {
    /// The collection.
    fn collect_into_in(self, heap: Heap<'r>) -> C;
}

impl<'r, I: IntoIterator, C: FromIteratorIn<'r, I::Item>> CollectInto<'r, C> for I {
    #[track_caller]
    fn collect_into_in(self, heap: Heap<'r>) -> C {
        C::from_iterator_in(self, heap)
    }
}

/// What a key is made from when it is not there yet: `str` for a `String`, a slice for a `Vec`, and what can be
/// cloned. [`HashMap::entry_ref`] asks for it.
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::{CloneIn, String};
///
/// let word: String = "word".clone_in(heap);
/// assert_eq!(word, "word");
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait CloneIn<'r, K> {
    /// The key, on a heap.
    fn clone_in(&self, heap: Heap<'r>) -> K;
}

impl<'r, K: Clone> CloneIn<'r, K> for K {
    fn clone_in(&self, _: Heap<'r>) -> K {
        self.clone()
    }
}

impl<'r> CloneIn<'r, String<'r>> for str {
    #[track_caller]
    fn clone_in(&self, heap: Heap<'r>) -> String<'r> {
        String::from_in(self, heap)
    }
}

impl<'r, T: Clone> CloneIn<'r, Vec<'r, T>> for [T] {
    #[track_caller]
    fn clone_in(&self, heap: Heap<'r>) -> Vec<'r, T> {
        let mut vec = Vec::with_capacity_in(self.len(), heap);
        vec.extend_from_slice(self);
        vec
    }
}

/// What a borrowed key's place in a map can do: the same for both kinds.
macro_rules! entry_ref {
    () => {
        /// The value, put there with its key if there was none.
        #[inline]
        #[track_caller]
        pub fn or_insert(self, value: V) -> &'a mut V {
            self.or_insert_with(|| value)
        }

        /// The value, made and put there with its key if there was none.
        #[inline]
        #[track_caller]
        pub fn or_insert_with(self, value: impl FnOnce() -> V) -> &'a mut V {
            match self {
                EntryRef::Occupied(entry) => entry.into_mut(),
                EntryRef::Vacant(entry) => entry.insert(value()),
            }
        }

        /// The value, or the default of its type.
        #[inline]
        #[track_caller]
        pub fn or_default(self) -> &'a mut V
        where
            V: DefaultIn<'r>,
        {
            match self {
                EntryRef::Occupied(entry) => entry.into_mut(),
                EntryRef::Vacant(entry) => {
                    let value = V::default_in(entry.map.heap());
                    entry.insert(value)
                }
            }
        }

        /// Changes the value if there is one.
        #[must_use]
        pub fn and_modify(mut self, change: impl FnOnce(&mut V)) -> Self {
            if let EntryRef::Occupied(entry) = &mut self {
                change(entry.get_mut());
            }
            self
        }
    };
}

pub(super) use entry_ref;

macro_rules! collections {
    ($([$($generics:tt)*] $type:ty, $item:ty;)*) => {$(
        impl<'r, $($generics)*> DefaultIn<'r> for $type {
            fn default_in(heap: Heap<'r>) -> Self {
                Self::new_in(heap)
            }
        }
        impl<'r, $($generics)*> FromIteratorIn<'r, $item> for $type {
            #[track_caller]
            fn from_iterator_in(values: impl IntoIterator<Item = $item>, heap: Heap<'r>) -> Self {
                Self::from_iter_in(values, heap)
            }
        }
    )*};
}

collections! {
    [T] Vec<'r, T>, T;
    [T] VecDeque<'r, T>, T;
    [T: Ord] BinaryHeap<'r, T>, T;
    [T: Hash + Eq] HashSet<'r, T>, T;
    [T: Ord] BTreeSet<'r, T>, T;
    [K: Hash + Eq, V] HashMap<'r, K, V>, (K, V);
    [K: Ord, V] BTreeMap<'r, K, V>, (K, V);
}

impl<'r> DefaultIn<'r> for String<'r> {
    fn default_in(heap: Heap<'r>) -> String<'r> {
        String::new_in(heap)
    }
}

impl<'r, T: DefaultIn<'r>> DefaultIn<'r> for Box<'r, T> {
    #[track_caller]
    fn default_in(heap: Heap<'r>) -> Box<'r, T> {
        Box::new_in(T::default_in(heap), heap)
    }
}

impl<'r, T> FromIteratorIn<'r, T> for Box<'r, [T]> {
    #[track_caller]
    fn from_iterator_in(values: impl IntoIterator<Item = T>, heap: Heap<'r>) -> Box<'r, [T]> {
        Vec::from_iter_in(values, heap).into_boxed_slice()
    }
}

impl<'r, A> FromIteratorIn<'r, A> for String<'r>
where
    String<'r>: Extend<A>,
{
    #[track_caller]
    fn from_iterator_in(values: impl IntoIterator<Item = A>, heap: Heap<'r>) -> String<'r> {
        let mut text = String::new_in(heap);
        text.extend(values);
        text
    }
}
