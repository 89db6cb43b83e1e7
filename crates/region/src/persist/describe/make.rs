//! How a description of a type is made.

use crate::description::{Field, Type, Variant};
use crate::persist::niche::{self, Spare};
use crate::persist::{Name, Persist};
use std::any::TypeId;
use std::collections::HashMap;

/// The types described so far.
///
/// ```
/// use twinpage::persist::Types;
///
/// let mut types = Types::default();
/// let number = types.of::<u64>();
/// assert_eq!(types.of::<u64>(), number); // described once
/// assert_eq!(types.field::<u64>("amount", 8).of, number);
/// ```
#[derive(Default)]
pub struct Types {
    numbers: HashMap<TypeId, u32>,
    types: Vec<Option<Type>>,
    names: Vec<Name>,
}

impl Types {
    /// The number of `T`, described if it was not yet.
    pub fn of<T: Persist>(&mut self) -> u32 {
        if let Some(&number) = self.numbers.get(&TypeId::of::<T>()) {
            return number;
        }
        let number = self.types.len() as u32;
        self.numbers.insert(TypeId::of::<T>(), number);
        self.types.push(None); // kept for it while what it holds is described
        let (name, path) = (T::name().to_string(), T::name().path());
        self.names.push(T::name());
        self.types[number as usize] = Some(Type {
            path: if path == name { String::new() } else { path },
            name,
            version: T::VERSION,
            bytes: size_of::<T>() as u64,
            align: align_of::<T>() as u64,
            kind: T::layout(self),
        });
        number
    }

    /// All types, and their names with all that they were.
    pub(super) fn described(self) -> (Vec<Type>, Vec<Name>) {
        (self.types.into_iter().flatten().collect(), self.names)
    }

    /// Where a type that was described may have values to spare.
    pub(in crate::persist) fn spares(&self, number: u32) -> Vec<Spare> {
        niche::spares(&self.types, number)
    }

    /// A field of type `T` at byte `at`.
    pub fn field<T: Persist>(&mut self, name: &str, at: usize) -> Field {
        Field {
            name: name.into(),
            at: at as u64,
            of: self.of::<T>(),
        }
    }
}

impl Variant {
    /// A variant with fields; `tag` is an integer.
    #[must_use]
    pub fn new<T: Copy>(name: &str, tag: &T, fields: Vec<Field>) -> Variant {
        Variant {
            name: name.into(),
            tag: bytes_of(tag),
            fields,
        }
    }

    /// A variant of an enum without fields, which is all tag.
    #[must_use]
    pub fn unit<T>(name: &str, value: &T) -> Variant {
        Variant {
            name: name.into(),
            tag: bytes_of(value),
            fields: Vec::new(),
        }
    }
}

/// The bytes of an integer, or of a value of an enum without fields, as a number.
fn bytes_of<T>(value: &T) -> u64 {
    assert!(size_of::<T>() <= 8, "a tag has at most 8 bytes");
    let mut bytes = [0; 8];
    // SAFETY: the value has that many bytes, and none is padding: it is all tag.
    unsafe {
        std::ptr::copy_nonoverlapping(
            std::ptr::from_ref(value).cast::<u8>(),
            bytes.as_mut_ptr(),
            size_of::<T>(),
        );
    }
    u64::from_le_bytes(bytes)
}

/// Where fields lie that follow each other as in C.
///
/// ```
/// use twinpage::persist::{FieldOffset, Types};
///
/// // The fields of a variant, as in C: after a tag of one byte, a `u8` and a `u32`.
/// let (mut types, mut place) = (Types::default(), FieldOffset::after::<u8>());
/// assert_eq!(place.next::<u8>(&mut types, "first").at, 1);
/// assert_eq!(place.next::<u32>(&mut types, "second").at, 4);
/// ```
pub struct FieldOffset {
    end: usize,
}

impl FieldOffset {
    /// After a `T` at byte 0.
    #[must_use]
    pub fn after<T>() -> FieldOffset {
        FieldOffset { end: size_of::<T>() }
    }

    /// The next field, a `T`.
    pub fn next<T: Persist>(&mut self, types: &mut Types, name: &str) -> Field {
        let at = self.end.next_multiple_of(align_of::<T>());
        self.end = at + size_of::<T>();
        types.field::<T>(name, at)
    }
}
