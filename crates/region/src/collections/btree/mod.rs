//! Maps and sets in order.

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
pub use map::BTreeMap;
pub use more::{EntryRef, ExtractIf, VacantEntryRef};
pub use set::BTreeSet;
