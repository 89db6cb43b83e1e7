//! A program that writes without a stop: see `calls/free_writes.rs` and `calls/growing.rs`.

use std::collections::BTreeSet;

/// What there is to know of a program while its writes do not stop.
#[derive(Debug, Default)]
pub(crate) struct FreeWrites {
    /// How many names of threads it has open; of one that could not be opened too many.
    pub(crate) open_names: usize,
    /// It may have files open for writing, which only grow.
    pub(crate) grows: bool,
    /// It asked to be told of the ends of children: it is about to have some, whose seeks would stop as well.
    pub(crate) is_parent: bool,
    /// The numbers of descriptors whose seeks stop.
    pub(crate) seeks: BTreeSet<i32>,
}
