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
pub use map::HashMap;
pub use more::{EntryRef, ExtractIf, VacantEntryRef};
pub use set::HashSet;
