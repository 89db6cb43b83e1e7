//! What is kept of a root in the region: an entry of the table of the roots, which is a vector of them.

use crate::collections::String;
use crate::persist::Persist;

/// One root, as it is kept in the region.
#[derive(Persist)]
#[repr(C)]
pub(crate) struct RootEntry<'r> {
    pub(crate) name: String<'r>,
    /// The text of the description of its type.
    pub(crate) layout: String<'r>,
    /// Its address, and the size and alignment of its block.
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    pub(crate) align: u64,
}

const _: () = assert!(size_of::<RootEntry<'static>>() == 88);
