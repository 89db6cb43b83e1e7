//! Ordinary data structures in a region that survives.
//!
//! A region lives in a window of addresses that is the same in every life of it ([`window`]). What a
//! program writes there, inside an update, is marked line by line ([`marks`]); a checkpoint makes the
//! marked lines durable all at once or not at all.
//!
//! ```
//! use std::time::Duration;
//! use twinpage::Persist;
//! use twinpage::collections::HashMap;
//!
//! #[derive(Persist)]
//! struct Order {
//!     item: u64,
//!     amount: u64,
//! }
//!
//! # fn main() -> twinpage::Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # std::env::set_current_dir(folder.path()).unwrap();
//! # let (id, order) = (7, Order { item: 1, amount: 2 });
//! let region = twinpage::Region::options().every(Duration::from_millis(16)).open("orders.twin")?;
//! let mut orders = region.root("orders", |heap| HashMap::<u64, Order>::new_in(heap))?;
//! region.update(|_| orders.insert(id, order)); // no epoch is cut inside an update
//! region.durable()?; // wait until what was done so far is on the medium
//! # drop((orders, region));
//!
//! // The next life of the program:
//! let region = twinpage::Region::open("orders.twin")?;
//! let orders = region.root("orders", |heap| HashMap::<u64, Order>::new_in(heap))?;
//! assert_eq!(orders[&7].amount, 2);
//! # assert_eq!(orders[&7].item, 1);
//! # Ok(())
//! # }
//! ```
//!
//! Reading needs no update. Writing does: a `&mut` to a root outside an update panics, and a `&mut` must
//! not leave the update it was made in. What is acknowledged to the world should wait for its epoch:
//! [`Region::ticket`].
//!
//! Linux on x86-64 only.

#![cfg_attr(any(miri, twinpage_plain), allow(unused_variables))]

extern crate self as twinpage; // what the derive macros write is good in here too

mod ahead;
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
/// Arrays whose versions lie on the medium itself, in files of their own.
pub use twinpage_versions as versions;
pub use twinpage_versions::{Planes, Versions};

/// The example of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
