//! The macros of [`twinpage`](https://docs.rs/twinpage).

#![forbid(unsafe_code)]

mod brand;
mod deserialize;
mod object;
mod persist;

use proc_macro::TokenStream;

/// Says that a type may live in a region, and what it looks like there.
///
/// Every field must be `Persist` itself. Fields of an enum need a layout that is fixed: an enum with
/// fields says `#[repr(u8)]` (or another integer).
///
/// | attribute | |
/// | --- | --- |
/// | `#[persist(version = 2)]` | the number of the layout, 1 unless said; higher than that of `from` |
/// | `#[persist(from = V1)]` | a root (or an element of one) made with `V1` becomes this type when it is opened, by `From<V1>`; a type with a brand is named with it, `from = V1<'r>` |
/// | `#[persist(with = path)]` | by this function instead: `fn(V1, Heap) -> Self` |
/// | `#[persist(name = "Order")]` | the name to record, when the type is called otherwise now |
/// | `#[persist(default)]` | a struct with a brand has a default that is made on a heap (`DefaultIn`), so that `or_default()` makes one |
/// | `#[persist(deserialize)]` | values are deserialized onto a heap (`Heap::seed`, with the feature `serde`): structs with a brand field by field, types without one by their own `Deserialize` |
/// | `#[persist(was = "shop::Order")]` | the path (or name, in this module) the type had; any number of them |
///
/// ```
/// use twinpage::{Heap, Persist, collections::String};
///
/// #[derive(Persist)]
/// #[persist(name = "Item")]
/// struct ItemV1 {
///     cents: u32,
/// }
///
/// #[derive(Persist)]
/// #[persist(version = 2, from = ItemV1, with = named)]
/// struct Item<'r> {
///     cents: u64,
///     name: String<'r>,
///     state: State,
/// }
///
/// #[derive(Persist)]
/// #[repr(u8)]
/// enum State {
///     Free,
///     Sold { to: u64 },
/// }
///
/// fn named(old: ItemV1, heap: Heap<'_>) -> Item<'_> {
///     let name = String::from_in("unnamed", heap);
///     Item { cents: old.cents.into(), name, state: State::Free }
/// }
/// ```
#[proc_macro_derive(Persist, attributes(persist))]
pub fn derive_persist(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    persist::expand(&input)
        .unwrap_or_else(|e| e.write_errors())
        .into()
}

/// Makes a persistent object of an `impl` block: its public methods become operations that are logged.
///
/// See `Region::object` of twinpage.
///
/// ```
/// use twinpage::Persist;
///
/// #[derive(Persist)]
/// struct Counter {
///     value: u64,
/// }
///
/// #[twinpage::object]
/// impl Counter {
///     pub fn add(&mut self, by: u64) { // deferrable
///         self.value += by;
///     }
///     pub fn value(&self) -> u64 { // instant
///         self.value
///     }
/// }
///
/// fn count(counter: &CounterHandle) -> twinpage::Result<u64> {
///     counter.add(3);
///     counter.value()
/// }
/// ```
#[proc_macro_attribute]
pub fn object(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let item = syn::parse_macro_input!(item as syn::ItemImpl);
    object::expand(attribute.into(), item)
        .unwrap_or_else(|error| error.to_compile_error())
        .into()
}
