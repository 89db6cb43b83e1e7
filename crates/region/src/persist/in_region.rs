//! Whether a field of a type in a region is what the field's type is there: `#[derive(Persist)]` asks for each.
//!
//! A type `struct S<'r> { names: Vec<'static, u64>, .. }` would be the same in all regions, and could be made with a
//! vector of none of them.

use super::Persist;
use std::marker::PhantomData;

/// A field of a type in a region: a pointer, since what one points to has no type but its own. Beside it the type that
/// the field is said to have, named by its `'static` form.
#[doc(hidden)]
pub struct FieldInRegion<Field, Family>(pub *mut Field, pub PhantomData<Family>);

impl<T: ?Sized, U: ?Sized> FieldInRegion<PhantomData<T>, PhantomData<U>> {
    /// It holds nothing, and is said to, so whatever both name is no memory of any region. This one is taken before
    /// [`MustBe::must_be`].
    pub fn must_be<'r: 'r>(self) {}
}

/// All other fields.
#[doc(hidden)]
pub trait MustBe: Sized {
    /// The field's type.
    type Field;
    /// The type it is said to have.
    type Family: Persist;

    /// Compiles if that is what `Family` is in the region.
    fn must_be<'r: 'r>(self)
    where
        Self::Family: Persist<In<'r> = Self::Field>,
    {
    }
}

impl<Field, Family: Persist> MustBe for FieldInRegion<Field, Family> {
    type Field = Field;
    type Family = Family;
}

/// A field whose type is not [`Persist`]: its description refuses it, and once is enough. The method of a reference is
/// taken where [`MustBe::must_be`] is not to be had.
#[doc(hidden)]
pub trait IsRefused: Sized {
    /// Compiles.
    fn must_be<'r: 'r>(self) {}
}

impl<Field, Family> IsRefused for &FieldInRegion<Field, Family> {}
