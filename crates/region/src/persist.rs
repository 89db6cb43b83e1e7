//! What may live in a region, and what it looks like there.
//!
//! * A type that is [`Persist`] means the same bytes in the next life of the program: it holds no
//!   address outside the region, no handle of the system, and nothing that changes behind a shared
//!   reference (a write must be marked before it is made).
//! * Each type describes itself: names, offsets, sizes, nested types ([`Description`]). A root is
//!   opened with the description it was made with, or migrates ([`Persist::Previous`]).
//! * A description says enough to walk what it describes without the type: that is how a check finds
//!   leaks and damage without running any code of the type on bytes it cannot trust.
//!
//! ```
//! use twinpage::Persist;
//! use twinpage::persist::Description;
//!
//! #[derive(Persist)]
//! struct Order {
//!     id: u64,
//!     price: Option<u32>,
//! }
//! let text = Description::of::<Order>().to_string();
//! assert!(text.starts_with("Order: 16 bytes\n"), "{text}");
//! ```

mod describe;
mod in_region;
mod name;
mod niche;
mod plain;

pub use crate::description::{BadDescription, Description, Field, Kind, Type, Variant};
pub use describe::{FieldOffset, Types};
#[doc(hidden)]
pub use in_region::{FieldInRegion, IsRefused, MustBe};
pub use name::Name;
pub use twinpage_macros::Persist;

use crate::heap::Heap;

/// A type that may live in a region. Derived: `#[derive(Persist)]`.
///
/// A type that owns memory of its region has the region's brand, a lifetime `'r`: `String<'r>`, `Vec<'r, T>`. Then it
/// stands for a family of types, one for each brand, and is named by its `'static` form: `Vec<'static, u64>` is
/// [`Persist`], and `Vec<'r, u64>` is what it is in a region ([`Persist::In`]).
///
/// What is refused, and why, is said where it is used:
///
/// ```compile_fail
/// use twinpage::Persist;
///
/// #[derive(Persist)]
/// struct Session {
///     log: std::fs::File, // a file handle (`File`) cannot live in a region
/// }
/// ```
///
/// A changed type migrates when its root is opened: as the root's own type, and at any depth as what an `Option`, an
/// array, a tuple, or a `Box`, `Vec` or `VecDeque` of a region holds, or as the value of a map. Other places have limits:
///
/// * A field of a derived struct or enum does not migrate by itself, even if its type is a parameter. The struct or enum
///   has changed with it, and needs a version and a `from` of its own.
/// * The members of a tuple go back together, each to what it was before. One in which a member that has changed once is
///   still as it was, and another is not, is opened as such a tuple first.
/// * Keys of maps, and values of sets and of a [`BinaryHeap`](crate::collections::BinaryHeap), keep their type: another
///   type may hash and order otherwise, and two keys may become one. Such a root is opened with the type it was made with,
///   and collected into another.
///
/// ```
/// use twinpage::Persist;
///
/// #[derive(Persist)]
/// #[persist(name = "Order")] // the name it had when it was the only one
/// struct OrderV1 {
///     price: u32,
/// }
///
/// #[derive(Persist)]
/// #[persist(version = 2, from = OrderV1)]
/// struct Order {
///     price: u64,
/// }
///
/// impl From<OrderV1> for Order {
///     fn from(old: OrderV1) -> Order {
///         Order { price: old.price.into() }
///     }
/// }
/// ```
///
/// # Safety
/// * `In<'r>` is this type but for the brand, so that a pointer to one is a pointer to the other, and has the brand
///   wherever it owns memory of the region.
/// * All it can reach lies in itself or in blocks of the region's heap that it owns and that its
///   [`Persist::layout`] tells of; every bit pattern it was given stays valid in any later process on
///   the same target.
/// * Nothing in it changes through a shared reference.
/// * [`Persist::layout`] is exact.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot live in a region",
    label = "not `Persist`",
    note = "a type of your own: `#[derive(Persist)]` on it",
    note = "collections that live in a region are in `twinpage::collections`"
)]
pub unsafe trait Persist: Sized + 'static {
    /// The type as it is in a region with brand `'r`; `Self` for what has no brand.
    type In<'r>;

    /// The type a value of this one may have been before; `Self` when there is none.
    type Previous: Persist;

    /// The number of this layout among those of the same name.
    const VERSION: u32 = 1;

    /// The name to show and to record, with that of each parameter.
    fn name() -> Name;

    /// How it is laid out. Asks `types` for every type it holds.
    fn layout(types: &mut Types) -> Kind;

    /// A value of the previous type, made into one of this. `heap` is where both live.
    fn migrate<'r>(old: Of<'r, Self::Previous>, heap: Heap<'r>) -> Self::In<'r>;
}

/// A type as it is in a region with brand `'r`.
///
/// ```
/// use twinpage::collections::{String, Vec};
/// use twinpage::persist::Of;
///
/// fn count<'r>(names: &Of<'r, Vec<'static, String<'static>>>) -> usize {
///     let names: &Vec<'r, String<'r>> = names; // that is what it is
///     names.len()
/// }
/// ```
pub type Of<'r, T> = <T as Persist>::In<'r>;

/// A type with a value that a root begins with: 0, nothing, no entries. `#[derive(Persist)]` derives it for structs
/// where every field has one.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use twinpage::collections::String;
/// use twinpage::{Persist, Region};
///
/// #[derive(Persist)]
/// struct Account<'r> {
///     owner: String<'r>,
///     cents: u64,
/// }
/// let region = Region::open("accounts.twin")?;
/// let account = region.root::<Account>("account")?;
/// assert!(region.read(|v| account.get(v).owner.is_empty() && account.get(v).cents == 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no empty value that a root could begin with",
    label = "say with `root_with` what it begins with"
)]
pub trait Empty: Persist {
    /// That value.
    fn empty<'r>(heap: Heap<'r>) -> Self::In<'r>;
}

// SAFETY: the address of the region's own heap, which is the same in all its lives.
unsafe impl Persist for Heap<'static> {
    type In<'r> = Heap<'r>;
    type Previous = Self;
    fn name() -> Name {
        Name::new("Heap")
    }
    fn layout(_: &mut Types) -> Kind {
        Kind::Heap
    }
    fn migrate<'r>(old: Heap<'r>, _: Heap<'r>) -> Heap<'r> {
        old
    }
}
