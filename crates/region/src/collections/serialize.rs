//! Serialization with `serde`, behind the feature of that name.
//!
//! Collections are serialized as those of `std`. They are deserialized through [`Heap::seed`], which says
//! where they shall live; a type of the program's own that holds some needs no more than a derived
//! `Deserialize`. The heap is kept for the thread while the seed is at work: without one there is an error.

use super::{BTreeMap, BTreeSet, Box, HashMap, HashSet, String, Vec, VecDeque};
use crate::heap::{Heap, RawHeap};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use std::cell::Cell;
use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;

thread_local! {
    static HEAP: Cell<Option<RawHeap>> = const { Cell::new(None) };
}

/// Deserializes a `T` whose collections are on a heap: [`Heap::seed`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # let window = Window::volatile()?;
/// # let heap = Heap::create(&window, 1)?;
/// use serde::de::DeserializeSeed;
/// use twinpage::collections::BTreeMap;
///
/// let json = serde_json::json!({ "apples": 3, "pears": 5 });
/// // SAFETY: what is deserialized goes into the map and nowhere else.
/// let stock = unsafe { heap.seed::<BTreeMap<String, u32>>() }.deserialize(json)?;
/// assert_eq!(stock["pears"], 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Seed<T> {
    heap: RawHeap,
    of: PhantomData<T>,
}

impl Heap<'_> {
    /// What deserializes a `T` whose collections are on this heap. Inside an update, as any change.
    ///
    /// ```
    /// # use twinpage::{Heap, window::Window};
    /// # let window = Window::volatile()?;
    /// # let heap = Heap::create(&window, 1)?;
    /// use serde::de::DeserializeSeed;
    /// use twinpage::collections::{String, Vec};
    ///
    /// let mut json = serde_json::Deserializer::from_str(r#"["a", "b"]"#);
    /// // SAFETY: what is deserialized goes into the vector and nowhere else.
    /// let words = unsafe { heap.seed::<Vec<String>>() }.deserialize(&mut json)?;
    /// assert_eq!(words, ["a", "b"]);
    /// assert_eq!(serde_json::to_string(&words)?, r#"["a","b"]"#);
    /// # Ok::<(), std::boxed::Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Safety
    /// The `Deserialize` of `T` and of all it holds puts every collection it makes into its value, and none
    /// elsewhere: a collection that is deserialized gets any brand it is asked for. All that are derived do.
    #[must_use]
    pub unsafe fn seed<T>(self) -> Seed<T> {
        Seed {
            heap: self.raw(),
            of: PhantomData,
        }
    }
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for Seed<T> {
    type Value = T;
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<T, D::Error> {
        /// Puts back what was there, also after a panic.
        struct Before(Option<RawHeap>);
        impl Drop for Before {
            fn drop(&mut self) {
                HEAP.set(self.0);
            }
        }
        let _before = Before(HEAP.replace(Some(self.heap)));
        T::deserialize(from)
    }
}

fn heap<'r, E: Error>() -> Result<Heap<'r>, E> {
    let found = HEAP.get();
    // SAFETY: whoever called `seed` said that what gets the brand stays where that is good.
    found
        .map(|raw| unsafe { Heap::branded(raw) })
        .ok_or_else(|| E::custom("a collection of a region is deserialized through `heap.seed()`"))
}

/// Puts what a sequence or map holds into a collection.
struct Fill<C, F>(C, F);

macro_rules! sequences {
    ($($type:ident [$($bound:tt)*] $add:expr;)*) => {$(
        impl<T: Serialize> Serialize for $type<'_, T> {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_seq(self)
            }
        }
        impl<'de, 'r, T: Deserialize<'de> + $($bound)*> Deserialize<'de> for $type<'r, T> {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let add: fn(&mut Self, T) = $add;
                from.deserialize_seq(Fill($type::new_in(heap()?), add))
            }
        }
        impl<'de, 'r, T: Deserialize<'de>> Visitor<'de> for Fill<$type<'r, T>, fn(&mut $type<'r, T>, T)> {
            type Value = $type<'r, T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a sequence")
            }
            fn visit_seq<A: SeqAccess<'de>>(mut self, mut values: A) -> Result<$type<'r, T>, A::Error> {
                while let Some(value) = values.next_element()? {
                    (self.1)(&mut self.0, value);
                }
                Ok(self.0)
            }
        }
    )*};
}

sequences! {
    Vec [] |all, one| all.push(one);
    VecDeque [] |all, one| all.push_back(one);
    HashSet [Hash + Eq] |all, one| { all.insert(one); };
    BTreeSet [Ord] |all, one| { all.insert(one); };
}

macro_rules! maps {
    ($($type:ident [$($bound:tt)*];)*) => {$(
        impl<'r, K: Serialize, V: Serialize> Serialize for $type<'r, K, V> {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_map(self)
            }
        }
        impl<'de, 'r, K: Deserialize<'de> + $($bound)*, V: Deserialize<'de>> Deserialize<'de> for $type<'r, K, V> {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                from.deserialize_map(Fill($type::new_in(heap()?), ()))
            }
        }
        impl<'de, 'r, K: Deserialize<'de> + $($bound)*, V: Deserialize<'de>> Visitor<'de> for Fill<$type<'r, K, V>, ()> {
            type Value = $type<'r, K, V>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }
            fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<$type<'r, K, V>, A::Error> {
                while let Some((key, value)) = entries.next_entry()? {
                    self.0.insert(key, value);
                }
                Ok(self.0)
            }
        }
    )*};
}

maps! {
    HashMap [Hash + Eq];
    BTreeMap [Ord];
}

impl Serialize for String<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self)
    }
}

impl<'de> Deserialize<'de> for String<'_> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_str(Fill(heap::<D::Error>()?, ()))
    }
}

impl<'r> Visitor<'_> for Fill<Heap<'r>, ()> {
    type Value = String<'r>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<String<'r>, E> {
        Ok(String::from_in(text, self.0))
    }
}

impl<T: Serialize> Serialize for Box<'_, T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        T::serialize(self, to)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Box<'_, T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let heap = heap()?;
        Ok(Box::new_in(T::deserialize(from)?, heap))
    }
}
