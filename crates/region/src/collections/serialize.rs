//! Serialization with `serde`, behind the feature of that name.
//!
//! Collections are serialized as those of `std`. They are deserialized through [`Heap::seed`], which says where they
//! shall live: a value gets the brand of that heap and no other, so `serde`'s `Deserialize`, which has no place for a
//! brand, is not theirs; [`DeserializeIn`] is. `#[derive(Persist)]` derives it for `#[persist(deserialize)]`.

use super::{BTreeMap, BTreeSet, BinaryHeap, Box, HashMap, HashSet, String, Vec, VecDeque};
use crate::heap::Heap;
use crate::persist::{Of, Persist};
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde::ser::{Serialize, Serializer};
use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::num::{Saturating, Wrapping};

/// For what the derive writes.
#[doc(hidden)]
pub use serde;

/// A type of which values are deserialized onto a heap: the collections, plain values, and what is derived.
///
/// ```
/// # use twinpage::{Heap, Persist, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use serde::de::DeserializeSeed;
/// use twinpage::collections::{String, Vec};
///
/// #[derive(Persist)]
/// #[persist(deserialize)]
/// struct Order<'r> {
///     customer: String<'r>,
///     pieces: u32,
/// }
/// let json = serde_json::json!([{ "customer": "Ada", "pieces": 3 }]);
/// let orders: Vec<Order> = heap.seed::<Vec<Order>>().deserialize(json)?;
/// assert_eq!((orders[0].customer.as_str(), orders[0].pieces), ("Ada", 3));
/// # Ok::<_, serde_json::Error>(())
/// # })??;
/// # Ok::<(), std::boxed::Box<dyn std::error::Error>>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not deserialized onto a heap",
    label = "no `DeserializeIn`",
    note = "a type of your own: `#[derive(Persist)]` and `#[persist(deserialize)]` on it"
)]
pub trait DeserializeIn<'de>: Persist {
    /// A value from `from`, on `heap`.
    ///
    /// # Errors
    /// The deserializer's.
    fn deserialize_in<'r, D: Deserializer<'de>>(from: D, heap: Heap<'r>) -> Result<Of<'r, Self>, D::Error>;
}

/// Deserializes a `T` onto a heap: [`Heap::seed`].
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use serde::de::DeserializeSeed;
/// use twinpage::collections::{BTreeMap, String};
///
/// let json = serde_json::json!({ "apples": 3, "pears": 5 });
/// let stock = heap.seed::<BTreeMap<String, u32>>().deserialize(json)?;
/// assert_eq!(stock["pears"], 5);
/// # Ok::<_, serde_json::Error>(())
/// # })??;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Seed<'r, T> {
    heap: Heap<'r>,
    of: PhantomData<T>,
}

impl<'r> Heap<'r> {
    /// What deserializes a `T` onto this heap. Inside an update, as any change.
    ///
    /// ```
    /// # use twinpage::{Heap, window::Window};
    /// # Window::volatile()?.with_heap(1, |heap| {
    /// use serde::de::DeserializeSeed;
    /// use twinpage::collections::{String, Vec};
    ///
    /// let mut json = serde_json::Deserializer::from_str(r#"["a", "b"]"#);
    /// let words = heap.seed::<Vec<String>>().deserialize(&mut json)?;
    /// assert_eq!(words, ["a", "b"]);
    /// assert_eq!(serde_json::to_string(&words)?, r#"["a","b"]"#);
    /// # Ok::<_, serde_json::Error>(())
    /// # })??;
    /// # Ok::<(), std::boxed::Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn seed<T: Persist>(self) -> Seed<'r, T> {
        Seed {
            heap: self,
            of: PhantomData,
        }
    }
}

impl<'de, 'r, T: DeserializeIn<'de>> DeserializeSeed<'de> for Seed<'r, T> {
    type Value = Of<'r, T>;
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Of<'r, T>, D::Error> {
        T::deserialize_in(from, self.heap)
    }
}

macro_rules! plain {
    ($($type:ty),*) => {$(
        impl<'de> DeserializeIn<'de> for $type {
            fn deserialize_in<'r, D: Deserializer<'de>>(from: D, _: Heap<'r>) -> Result<$type, D::Error> {
                Deserialize::deserialize(from)
            }
        }
    )*};
}

plain!(
    u8,
    u16,
    u32,
    u64,
    u128,
    usize,
    i8,
    i16,
    i32,
    i64,
    i128,
    isize,
    f32,
    f64,
    bool,
    char,
    ()
);
plain!(
    std::num::NonZeroU8,
    std::num::NonZeroU16,
    std::num::NonZeroU32,
    std::num::NonZeroU64,
    std::num::NonZeroU128,
    std::num::NonZeroUsize
);
plain!(
    std::num::NonZeroI8,
    std::num::NonZeroI16,
    std::num::NonZeroI32,
    std::num::NonZeroI64,
    std::num::NonZeroI128,
    std::num::NonZeroIsize
);

impl<'de, T: ?Sized + 'static> DeserializeIn<'de> for PhantomData<T> {
    fn deserialize_in<'r, D: Deserializer<'de>>(from: D, _: Heap<'r>) -> Result<Self, D::Error> {
        Deserialize::deserialize(from)
    }
}

macro_rules! around {
    ($($type:ident),*) => {$(
        impl<'de, T: DeserializeIn<'de>> DeserializeIn<'de> for $type<T> {
            fn deserialize_in<'r, D: Deserializer<'de>>(from: D, heap: Heap<'r>) -> Result<Of<'r, Self>, D::Error> {
                T::deserialize_in(from, heap).map($type)
            }
        }
    )*};
}

around!(Wrapping, Saturating);

/// What a value is made of: by what, and on which heap.
struct Made<'r, T>(Heap<'r>, PhantomData<T>);

impl<'r, T> Made<'r, T> {
    fn new(heap: Heap<'r>) -> Self {
        Made(heap, PhantomData)
    }
}

impl<'de, T: DeserializeIn<'de>> DeserializeIn<'de> for Option<T> {
    fn deserialize_in<'r, D: Deserializer<'de>>(from: D, heap: Heap<'r>) -> Result<Of<'r, Self>, D::Error> {
        from.deserialize_option(Made::<Option<T>>::new(heap))
    }
}

impl<'de, 'r, T: DeserializeIn<'de>> Visitor<'de> for Made<'r, Option<T>> {
    type Value = Option<Of<'r, T>>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value or nothing")
    }
    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        T::deserialize_in(from, self.0).map(Some)
    }
}

impl<'de, T: DeserializeIn<'de>, const N: usize> DeserializeIn<'de> for [T; N] {
    fn deserialize_in<'r, D: Deserializer<'de>>(from: D, heap: Heap<'r>) -> Result<Of<'r, Self>, D::Error> {
        from.deserialize_tuple(N, Made::<[T; N]>::new(heap))
    }
}

impl<'de, 'r, T: DeserializeIn<'de>, const N: usize> Visitor<'de> for Made<'r, [T; N]> {
    type Value = [Of<'r, T>; N];
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an array of {N}")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Self::Value, A::Error> {
        let mut all = std::vec::Vec::with_capacity(N);
        for index in 0..N {
            all.push(element(&mut values, self.0.seed::<T>(), index, &self)?);
        }
        all.try_into()
            .map_err(|_| A::Error::custom("an array of another length"))
    }
}

/// The next of a sequence, which must have one.
#[doc(hidden)]
pub fn element<'de, 'r, T: DeserializeIn<'de>, A: SeqAccess<'de>>(
    values: &mut A,
    seed: Seed<'r, T>,
    index: usize,
    expected: &dyn serde::de::Expected,
) -> Result<Of<'r, T>, A::Error> {
    let value = values.next_element_seed(seed)?;
    value.ok_or_else(|| A::Error::invalid_length(index, expected))
}

macro_rules! tuple {
    ($count:literal: $($type:ident $index:tt),*) => {
        impl<'de, $($type: DeserializeIn<'de>),*> DeserializeIn<'de> for ($($type,)*) {
            fn deserialize_in<'r, X: Deserializer<'de>>(from: X, heap: Heap<'r>) -> Result<Of<'r, Self>, X::Error> {
                from.deserialize_tuple($count, Made::<($($type,)*)>::new(heap))
            }
        }
        impl<'de, 'r, $($type: DeserializeIn<'de>),*> Visitor<'de> for Made<'r, ($($type,)*)> {
            type Value = ($(Of<'r, $type>,)*);
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!("a tuple of ", $count))
            }
            fn visit_seq<X: SeqAccess<'de>>(self, mut values: X) -> Result<Self::Value, X::Error> {
                Ok(($(element(&mut values, self.0.seed::<$type>(), $index, &self)?,)*))
            }
        }
    };
}

tuple!(1: A 0);
tuple!(2: A 0, B 1);
tuple!(3: A 0, B 1, C 2);
tuple!(4: A 0, B 1, C 2, D 3);
tuple!(5: A 0, B 1, C 2, D 3, E 4);
tuple!(6: A 0, B 1, C 2, D 3, E 4, F 5);
tuple!(7: A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuple!(8: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
tuple!(9: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8);
tuple!(10: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9);
tuple!(11: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10);
tuple!(12: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11);

/// A field's number by its name, or none for a name that is not one of these.
#[doc(hidden)]
pub struct FieldName(pub &'static [&'static str]);

impl<'de> DeserializeSeed<'de> for FieldName {
    type Value = Option<usize>;
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Option<usize>, D::Error> {
        from.deserialize_identifier(self)
    }
}

impl Visitor<'_> for FieldName {
    type Value = Option<usize>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }
    fn visit_str<E: Error>(self, name: &str) -> Result<Option<usize>, E> {
        Ok(self.0.iter().position(|&field| field == name))
    }
    fn visit_bytes<E: Error>(self, name: &[u8]) -> Result<Option<usize>, E> {
        Ok(self.0.iter().position(|field| field.as_bytes() == name))
    }
    fn visit_u64<E: Error>(self, number: u64) -> Result<Option<usize>, E> {
        Ok(usize::try_from(number)
            .ok()
            .filter(|&number| number < self.0.len()))
    }
}

/// The value of a field that is not there: nothing, if its type has that, and else an error.
#[doc(hidden)]
pub fn absent<'de, 'r, T: DeserializeIn<'de>, E: Error>(
    name: &'static str,
    heap: Heap<'r>,
) -> Result<Of<'r, T>, E> {
    struct Absent<E>(&'static str, PhantomData<E>);
    impl<'de, E: Error> Deserializer<'de> for Absent<E> {
        type Error = E;
        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, E> {
            Err(E::missing_field(self.0))
        }
        fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
            visitor.visit_none()
        }
        serde::forward_to_deserialize_any! {
            bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
            newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
        }
    }
    T::deserialize_in(Absent(name, PhantomData), heap)
}

macro_rules! sequences {
    ($($type:ident [$($bound:ident)*] $add:ident;)*) => {$(
        impl<T: Serialize> Serialize for $type<'_, T> {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_seq(self)
            }
        }
        impl<'de, T: DeserializeIn<'de>> DeserializeIn<'de> for $type<'static, T>
        where
            $(for<'a> T::In<'a>: $bound,)*
        {
            fn deserialize_in<'r, D: Deserializer<'de>>(from: D, heap: Heap<'r>) -> Result<Of<'r, Self>, D::Error> {
                from.deserialize_seq(Made::<$type<'static, T>>::new(heap))
            }
        }
        impl<'de, 'r, T: DeserializeIn<'de>> Visitor<'de> for Made<'r, $type<'static, T>>
        where
            $(for<'a> T::In<'a>: $bound,)*
        {
            type Value = $type<'r, T::In<'r>>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a sequence")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Self::Value, A::Error> {
                let mut all = $type::new_in(self.0);
                while let Some(value) = values.next_element_seed(self.0.seed::<T>())? {
                    all.$add(value);
                }
                Ok(all)
            }
        }
    )*};
}

sequences! {
    Vec [] push;
    VecDeque [] push_back;
    HashSet [Hash Eq] insert;
    BTreeSet [Ord] insert;
    BinaryHeap [Ord] push;
}

macro_rules! maps {
    ($($type:ident [$($bound:ident)*];)*) => {$(
        impl<'r, K: Serialize, V: Serialize> Serialize for $type<'r, K, V> {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_map(self)
            }
        }
        impl<'de, K: DeserializeIn<'de>, V: DeserializeIn<'de>> DeserializeIn<'de> for $type<'static, K, V>
        where
            $(for<'a> K::In<'a>: $bound,)*
        {
            fn deserialize_in<'r, D: Deserializer<'de>>(from: D, heap: Heap<'r>) -> Result<Of<'r, Self>, D::Error> {
                from.deserialize_map(Made::<$type<'static, K, V>>::new(heap))
            }
        }
        impl<'de, 'r, K: DeserializeIn<'de>, V: DeserializeIn<'de>> Visitor<'de> for Made<'r, $type<'static, K, V>>
        where
            $(for<'a> K::In<'a>: $bound,)*
        {
            type Value = $type<'r, K::In<'r>, V::In<'r>>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
                let mut all = $type::new_in(self.0);
                let (key, value) = (|| self.0.seed::<K>(), || self.0.seed::<V>());
                while let Some((key, value)) = entries.next_entry_seed(key(), value())? {
                    all.insert(key, value);
                }
                Ok(all)
            }
        }
    )*};
}

maps! {
    HashMap [Hash Eq];
    BTreeMap [Ord];
}

impl Serialize for String<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self)
    }
}

impl<'de> DeserializeIn<'de> for String<'static> {
    fn deserialize_in<'r, D: Deserializer<'de>>(from: D, heap: Heap<'r>) -> Result<String<'r>, D::Error> {
        from.deserialize_str(Made::<String<'static>>::new(heap))
    }
}

impl<'r> Visitor<'_> for Made<'r, String<'static>> {
    type Value = String<'r>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<String<'r>, E> {
        Ok(String::from_in(text, self.0))
    }
    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<String<'r>, E> {
        let text =
            std::str::from_utf8(bytes).map_err(|_| E::invalid_value(Unexpected::Bytes(bytes), &self))?;
        self.visit_str(text)
    }
}

impl<T: Serialize> Serialize for Box<'_, T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        T::serialize(self, to)
    }
}

impl<'de, T: DeserializeIn<'de>> DeserializeIn<'de> for Box<'static, T> {
    fn deserialize_in<'r, D: Deserializer<'de>>(from: D, heap: Heap<'r>) -> Result<Of<'r, Self>, D::Error> {
        Ok(Box::new_in(T::deserialize_in(from, heap)?, heap))
    }
}

impl<T: Serialize> Serialize for Box<'_, [T]> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self)
    }
}

impl<'de, T: DeserializeIn<'de>> DeserializeIn<'de> for Box<'static, [T]> {
    fn deserialize_in<'r, D: Deserializer<'de>>(from: D, heap: Heap<'r>) -> Result<Of<'r, Self>, D::Error> {
        Vec::<T>::deserialize_in(from, heap).map(Vec::into_boxed_slice)
    }
}

impl Serialize for Box<'_, str> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self)
    }
}

impl<'de> DeserializeIn<'de> for Box<'static, str> {
    fn deserialize_in<'r, D: Deserializer<'de>>(from: D, heap: Heap<'r>) -> Result<Box<'r, str>, D::Error> {
        String::deserialize_in(from, heap).map(String::into_boxed_str)
    }
}
