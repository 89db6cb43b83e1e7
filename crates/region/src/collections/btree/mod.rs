//! Maps and sets in order: B-trees.
//!
//! ```text
//! 0      8        16       24     32
//! | root | height | length | heap |     root: a node, 0 when the map is empty (`node.rs`)
//! ```

mod balance;
mod bulk;
mod entry;
mod iter;
mod map;
mod more;
pub(crate) mod node;
mod search;
mod set;
mod traits;

pub use entry::{Entry, OccupiedEntry, VacantEntry};
pub use iter::{IntoIter, IntoKeys, IntoValues, Iter, IterMut, Keys, Range, RangeMut, Values, ValuesMut};
pub use more::{EntryRef, ExtractIf, VacantEntryRef};
pub use set::BTreeSet;

use crate::heap::Heap;
use node::Leaf;
use std::marker::PhantomData;

/// Keys and their values in the order of the keys, as [`std::collections::BTreeMap`], in a region.
///
/// A key's `Ord` must mean the same in every build that opens the region.
///
/// ```
/// # use twinpage::{Heap, window::Window};
/// # Window::volatile()?.with_heap(1, |heap| {
/// use twinpage::collections::BTreeMap;
///
/// let mut prices = BTreeMap::new_in(heap);
/// prices.extend([(30, "c"), (10, "a"), (20, "b")]);
/// assert_eq!(prices.first_key_value(), Some((&10, &"a")));
/// assert!(prices.range(15..).map(|(price, _)| *price).eq([20, 30]));
/// *prices.entry(20).or_insert("") = "B";
/// assert_eq!(prices.remove(&20), Some("B"));
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[repr(C)]
pub struct BTreeMap<'r, K, V> {
    root: *mut Leaf<K, V>,
    height: usize,
    length: usize,
    heap: Heap<'r>,
    owned: PhantomData<(K, V)>,
}

// SAFETY: it owns its entries.
unsafe impl<'r, K: Send, V: Send> Send for BTreeMap<'r, K, V> {}
// SAFETY: a shared map gives access to its entries by shared references only.
unsafe impl<'r, K: Sync, V: Sync> Sync for BTreeMap<'r, K, V> {}

const _: () = assert!(size_of::<BTreeMap<'_, u64, u64>>() == 32);
