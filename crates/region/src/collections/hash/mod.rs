//! Hash maps and sets.

mod entry;
mod hasher;
mod iter;
mod map;
mod more;
mod set;
pub(crate) mod table;

pub use entry::{Entry, OccupiedEntry, VacantEntry};
pub use iter::{Drain, IntoIter, IntoKeys, IntoValues, Iter, IterMut, Keys, Values, ValuesMut};
pub use more::{EntryRef, ExtractIf, VacantEntryRef};
pub use set::HashSet;

use crate::heap::Brand;
use table::Table;

/// Keys and their values, as [`std::collections::HashMap`], in a region.
///
/// The hash is fixed and fast; its seed comes from the heap's, so that the keys that collide in one
/// region are not those of another. A key's `Hash` and `Eq` must mean the same in every build that opens
/// the region.
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::HashMap;
///
/// let mut stock = HashMap::new_in(heap);
/// stock.insert(17, "apples");
/// stock.insert(4, "pears");
/// *stock.entry(17).or_insert("none") = "plums";
/// assert_eq!(stock.get(&17), Some(&"plums"));
/// assert_eq!(stock.remove(&4), Some("pears"));
/// assert_eq!(stock.len(), 1);
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[repr(transparent)]
pub struct HashMap<'r, K, V> {
    table: Table<(K, V)>,
    brand: Brand<'r>,
}
