//! Whether a field of a type in a region is what the field's type is there: `#[derive(Persist)]` asks for each.
//!
//! A type `struct S<'r> { names: Vec<'static, u64>, .. }` would be the same in all regions, and could be made with a
//! vector of none of them.

use super::Persist;
use std::marker::PhantomData;

/// A field of a type in a region: a pointer, since what one points to has no type but its own.
#[doc(hidden)]
pub struct FieldInRegion<Field>(pub *mut Field);

impl<T: ?Sized> FieldInRegion<PhantomData<T>> {
    /// It holds nothing, so whatever it names is no memory of any region. This one is taken before [`MustBe::must_be`].
    pub fn must_be<'r: 'r, Family>(self) {}
}

/// All other fields.
#[doc(hidden)]
pub trait MustBe: Sized {
    /// The field's type.
    type Field;

    /// Compiles if that is what `Family` is in the region.
    fn must_be<'r: 'r, Family: Persist<In<'r> = Self::Field>>(self) {}
}

impl<Field> MustBe for FieldInRegion<Field> {
    type Field = Field;
}
