//! Hash maps and sets.

mod entry;
mod hasher;
mod map;
mod set;
pub(crate) mod table;

pub use entry::{Entry, OccupiedEntry, VacantEntry};
pub use map::{Drain, HashMap, IntoIter, IntoKeys, IntoValues, Iter, IterMut, Keys, Values, ValuesMut};
pub use set::HashSet;
