//! Serialization with `serde`, behind the feature of that name.
//!
//! Collections are serialized as those of `std`. They are deserialized through [`Heap::seed`], which says
//! where they shall live; a type of the program's own that holds some needs no more than a derived
//! `Deserialize`. The heap is kept for the thread while the seed is at work: without one there is an error.

use super::{BTreeMap, BTreeSet, Box, HashMap, HashSet, String, Vec, VecDeque};
use crate::heap::Heap;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use std::cell::Cell;
use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;

thread_local! {
    static HEAP: Cell<Option<Heap>> = const { Cell::new(None) };
}

/// Deserializes a `T` whose collections are on a heap: [`Heap::seed`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # let window = Window::volatile()?;
/// # let heap = Heap::create(window.place(), 1)?;
/// use serde::de::DeserializeSeed;
/// use twinpage::collections::BTreeMap;
///
/// let json = serde_json::json!({ "apples": 3, "pears": 5 });
/// let stock = heap.seed::<BTreeMap<String, u32>>().deserialize(json)?;
/// assert_eq!(stock["pears"], 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Seed<T> {
    heap: Heap,
    of: PhantomData<T>,
}

impl Heap {
    /// What deserializes a `T` whose collections are on this heap. Inside an update, as any change.
    ///
    /// ```
    /// # use twinpage::{Heap, window::Window};
    /// # let window = Window::volatile()?;
    /// # let heap = Heap::create(window.place(), 1)?;
    /// use serde::de::DeserializeSeed;
    /// use twinpage::collections::{String, Vec};
    ///
    /// let mut json = serde_json::Deserializer::from_str(r#"["a", "b"]"#);
    /// let words = heap.seed::<Vec<String>>().deserialize(&mut json)?;
    /// assert_eq!(words, ["a", "b"]);
    /// assert_eq!(serde_json::to_string(&words)?, r#"["a","b"]"#);
    /// # Ok::<(), std::boxed::Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn seed<T>(self) -> Seed<T> {
        Seed {
            heap: self,
            of: PhantomData,
        }
    }
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for Seed<T> {
    type Value = T;
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<T, D::Error> {
        /// Puts back what was there, also after a panic.
        struct Before(Option<Heap>);
        impl Drop for Before {
            fn drop(&mut self) {
                HEAP.set(self.0);
            }
        }
        let _before = Before(HEAP.replace(Some(self.heap)));
        T::deserialize(from)
    }
}

fn heap<E: Error>() -> Result<Heap, E> {
    HEAP.get()
        .ok_or_else(|| E::custom("a collection of a region is deserialized through `heap.seed()`"))
}

/// Puts what a sequence or map holds into a collection.
struct Fill<C, F>(C, F);

macro_rules! sequences {
    ($($type:ident [$($bound:tt)*] $add:expr;)*) => {$(
        impl<T: Serialize> Serialize for $type<T> {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_seq(self)
            }
        }
        impl<'de, T: Deserialize<'de> + $($bound)*> Deserialize<'de> for $type<T> {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let add: fn(&mut Self, T) = $add;
                from.deserialize_seq(Fill($type::new_in(heap()?), add))
            }
        }
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fill<$type<T>, fn(&mut $type<T>, T)> {
            type Value = $type<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a sequence")
            }
            fn visit_seq<A: SeqAccess<'de>>(mut self, mut values: A) -> Result<$type<T>, A::Error> {
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
        impl<K: Serialize, V: Serialize> Serialize for $type<K, V> {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_map(self)
            }
        }
        impl<'de, K: Deserialize<'de> + $($bound)*, V: Deserialize<'de>> Deserialize<'de> for $type<K, V> {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                from.deserialize_map(Fill($type::new_in(heap()?), ()))
            }
        }
        impl<'de, K: Deserialize<'de> + $($bound)*, V: Deserialize<'de>> Visitor<'de> for Fill<$type<K, V>, ()> {
            type Value = $type<K, V>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }
            fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<$type<K, V>, A::Error> {
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

impl Serialize for String {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self)
    }
}

impl<'de> Deserialize<'de> for String {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_str(Fill(heap::<D::Error>()?, ()))
    }
}

impl Visitor<'_> for Fill<Heap, ()> {
    type Value = String;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        Ok(String::from_in(text, self.0))
    }
}

impl<T: Serialize> Serialize for Box<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        T::serialize(self, to)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Box<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let heap = heap()?;
        Ok(Box::new_in(T::deserialize(from)?, heap))
    }
}
