//! Ordinary data structures in a region that survives.
//!
//! A region lives in a window of addresses that is the same in every life of it ([`window`]). What a
//! program writes there, inside an update, is marked line by line ([`marks`]); a checkpoint makes the
//! marked lines durable all at once or not at all.
//!
//! Linux on x86-64 only.

extern crate self as twinpage; // what the derive macros write is good in here too

mod backup;
pub mod collections;
mod epochs;
pub mod error;
mod gate;
pub mod heap;
pub mod live;
pub mod look;
pub mod marks;
pub mod options;
mod paging;
pub mod persist;
pub mod region;
pub mod root;
pub mod statistics;
mod store;
pub mod superblock;
pub mod window;

pub use epochs::Ticket;
pub use error::{Error, Result};
pub use heap::Heap;
pub use options::Options;
pub use paging::Paging;
pub use persist::Persist;
pub use region::{Region, Update};
pub use root::{Root, RootError, RootInfo};
pub use statistics::Statistics;
pub use twinpage_core::SchemeKind;
pub use twinpage_os::Durability;
