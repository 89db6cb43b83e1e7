//! The types of the language and of `std` that may live in a region as they are.

use super::{Empty, Kind, Name, Of, Persist, Types, niche};
use crate::heap::Heap;
use std::marker::PhantomData;
use std::mem::offset_of;
use std::num::{
    NonZeroI8, NonZeroI16, NonZeroI32, NonZeroI64, NonZeroI128, NonZeroIsize, NonZeroU8, NonZeroU16,
    NonZeroU32, NonZeroU64, NonZeroU128, NonZeroUsize, Saturating, Wrapping,
};

macro_rules! plain {
    ($($type:ty),*) => {$(
        // SAFETY: bytes that point nowhere and mean the same in every process of the target.
        unsafe impl Persist for $type {
            type In<'r> = Self;
            type Previous = Self;
            fn name() -> Name {
                Name::new(stringify!($type))
            }
            fn layout(_: &mut Types) -> Kind {
                Kind::Plain
            }
            fn migrate<'r>(old: Self, _: Heap<'r>) -> Self {
                old
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
    NonZeroU8,
    NonZeroU16,
    NonZeroU32,
    NonZeroU64,
    NonZeroU128,
    NonZeroUsize
);
plain!(
    NonZeroI8,
    NonZeroI16,
    NonZeroI32,
    NonZeroI64,
    NonZeroI128,
    NonZeroIsize
);

// SAFETY: it holds nothing.
unsafe impl<T: ?Sized + 'static> Persist for PhantomData<T> {
    type In<'r> = Self;
    type Previous = Self;
    fn name() -> Name {
        Name::new("PhantomData")
    }
    fn layout(_: &mut Types) -> Kind {
        Kind::Plain
    }
    fn migrate<'r>(old: Self, _: Heap<'r>) -> Self {
        old
    }
}

macro_rules! around {
    ($($type:ident),*) => {$(
        // SAFETY: `repr(transparent)` around a type that may.
        unsafe impl<T: Persist> Persist for $type<T> {
            type In<'r> = $type<T::In<'r>>;
            type Previous = $type<T::Previous>;
            fn name() -> Name {
                Name::new(stringify!($type)).with([T::name()])
            }
            fn layout(types: &mut Types) -> Kind {
                Kind::Struct(vec![types.field::<T>("0", 0)])
            }
            fn migrate<'r>(old: $type<Of<'r, T::Previous>>, heap: Heap<'r>) -> $type<T::In<'r>> {
                $type(T::migrate(old.0, heap))
            }
        }

        impl<T: Empty> Empty for $type<T> {
            fn empty<'r>(heap: Heap<'r>) -> $type<T::In<'r>> {
                $type(T::empty(heap))
            }
        }
    )*};
}

around!(Wrapping, Saturating);

macro_rules! tuple {
    ($($type:ident $index:tt),*) => {
        // SAFETY: each element may, and each is described.
        unsafe impl<$($type: Persist),*> Persist for ($($type,)*) {
            type In<'r> = ($($type::In<'r>,)*);
            type Previous = ($($type::Previous,)*);
            fn name() -> Name {
                Name::new("(").list([$($type::name()),*]).then(")")
            }
            fn layout(types: &mut Types) -> Kind {
                Kind::Struct(vec![$(types.field::<$type>(stringify!($index), offset_of!(Self, $index))),*])
            }
            fn migrate<'r>(old: Of<'r, Self::Previous>, heap: Heap<'r>) -> Self::In<'r> {
                ($($type::migrate(old.$index, heap),)*)
            }
        }

        impl<$($type: Empty),*> Empty for ($($type,)*) {
            fn empty<'r>(heap: Heap<'r>) -> Self::In<'r> {
                ($($type::empty(heap),)*)
            }
        }
    };
}

tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11);

// SAFETY: each element may.
unsafe impl<T: Persist, const N: usize> Persist for [T; N] {
    type In<'r> = [T::In<'r>; N];
    type Previous = [T::Previous; N];
    fn name() -> Name {
        Name::new("[").list([T::name()]).then(&format!("; {N}]"))
    }
    fn layout(types: &mut Types) -> Kind {
        Kind::Array {
            of: types.of::<T>(),
            count: N as u64,
        }
    }
    fn migrate<'r>(old: [Of<'r, T::Previous>; N], heap: Heap<'r>) -> [T::In<'r>; N] {
        old.map(|one| T::migrate(one, heap))
    }
}

// SAFETY: the value may, and which bytes say that there is none was tried out.
unsafe impl<T: Persist> Persist for Option<T> {
    type In<'r> = Option<T::In<'r>>;
    type Previous = Option<T::Previous>;
    fn name() -> Name {
        Name::new("Option").with([T::name()])
    }
    fn layout(types: &mut Types) -> Kind {
        let none: Option<T> = None;
        let at = none.as_slice().as_ptr().addr() - (&raw const none).addr();
        let of = types.of::<T>();
        let (none_at, none) = niche::none_bytes::<T>(&types.spares(of));
        Kind::Option {
            of,
            at: at as u64,
            none_at: none_at as u64,
            none,
        }
    }
    fn migrate<'r>(old: Option<Of<'r, T::Previous>>, heap: Heap<'r>) -> Option<T::In<'r>> {
        old.map(|one| T::migrate(one, heap))
    }
}

macro_rules! empty {
    ($($type:ty = $value:expr),*) => {$(
        impl Empty for $type {
            fn empty<'r>(_: Heap<'r>) -> Self {
                $value
            }
        }
    )*};
}

empty!(u8 = 0, u16 = 0, u32 = 0, u64 = 0, u128 = 0, usize = 0);
empty!(i8 = 0, i16 = 0, i32 = 0, i64 = 0, i128 = 0, isize = 0);
empty!(f32 = 0.0, f64 = 0.0, bool = false, char = '\0', () = ());

impl<T: ?Sized + 'static> Empty for PhantomData<T> {
    fn empty<'r>(_: Heap<'r>) -> Self {
        PhantomData
    }
}

impl<T: Empty, const N: usize> Empty for [T; N] {
    fn empty<'r>(heap: Heap<'r>) -> [T::In<'r>; N] {
        std::array::from_fn(|_| T::empty(heap))
    }
}

impl<T: Persist> Empty for Option<T> {
    fn empty<'r>(_: Heap<'r>) -> Option<T::In<'r>> {
        None
    }
}
