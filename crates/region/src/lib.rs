//! Ordinary data structures in a region that survives.
//!
//! A region lives in a window of addresses that is the same in every life of it ([`window`]). What a
//! program writes there, inside an update, is marked line by line ([`marks`]); a checkpoint makes the
//! marked lines durable all at once or not at all.
//!
//! The crate is `crates/region` of its repository, and of the edition of 2024:
//!
//! ```toml
//! [package]
//! name = "orders"
//! edition = "2024"
//!
//! [dependencies]
//! twinpage = { path = "twinpage/crates/region" } # where the repository is
//! ```
//!
//! ```
//! use std::time::Duration;
//! use twinpage::collections::{HashMap, String};
//! use twinpage::{Persist, Region};
//!
//! #[derive(Persist)]
//! struct Order<'r> {
//!     customer: String<'r>,
//!     pieces: u32,
//! }
//!
//! # fn main() -> twinpage::Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # std::env::set_current_dir(folder.path()).unwrap();
//! let region = Region::options().every(Duration::from_millis(16)).open("orders.twin")?;
//! let mut orders = region.root::<HashMap<u64, Order>>("orders")?; // empty at first
//! region.update(|u| {
//!     let order = Order { customer: u.string("Ada"), pieces: 3 };
//!     orders.get_mut(u).insert(7, order);
//! }); // no epoch is cut inside an update
//! region.durable()?; // wait until what was done so far is on the medium
//! # drop((orders, region));
//!
//! // The next life of the program:
//! let region = Region::open("orders.twin")?;
//! let orders = region.root::<HashMap<u64, Order>>("orders")?;
//! assert_eq!(region.read(|v| orders.get(v)[&7].pieces), 3);
//! # assert_eq!(region.read(|v| orders.get(v)[&7].customer == "Ada"), true);
//! # Ok(())
//! # }
//! ```
//!
//! What owns memory of a region has the region's brand in its type, the lifetime `'r`: a value belongs to its region,
//! and to the update or the reading it was reached in. So no value and no reference leaves [`Region::update`] or
//! [`Region::read`], none gets into another region, and none is on a stack when a checkpoint is cut. What is
//! acknowledged to the world should wait for its epoch: [`Region::ticket`].
//!
//! A region can also be changed by failure-atomic sections, each all or nothing and durable when it returns:
//! [`Region::atomic`].
//!
//! Linux on x86-64 only.

#![cfg_attr(any(miri, twinpage_plain), allow(unused_variables))]

extern crate self as twinpage; // what the derive macros write is good in here too

mod address;
mod atomic;
mod backup;
pub mod check;
pub mod collections;
pub mod control_socket;
mod copy;
mod description;
mod epochs;
pub mod error;
mod gate;
mod handle;
pub mod heap;
mod held_locks;
pub mod inspect;
mod lock;
pub mod marks;
mod next_level;
pub mod objects;
mod open;
pub mod options;
mod paging;
pub mod persist;
mod prefetch;
mod reader;
mod refused;
pub mod region;
mod residence;
pub mod root;
mod root_entry;
mod root_table;
mod sections;
mod shared;
pub mod statistics;
mod store;
pub mod superblock;
mod timer;
pub mod window;
#[cfg_attr(any(miri, twinpage_plain), path = "zone/plain.rs")]
mod zone;

pub use atomic::Section;
pub use epochs::Ticket;
pub use error::{Error, Result};
pub use handle::Handle;
pub use heap::{Brand, Heap};
pub use objects::{object, thread};
pub use options::{Consolidation, Options};
pub use paging::Paging;
pub use persist::{Empty, Persist};
pub use reader::{ReadRoot, Reader};
pub use region::{Region, Update, View};
pub use root::{Root, RootError, RootInfo};
pub use shared::{Locked, LockedToRead, Shared};
pub use statistics::Statistics;
pub use twinpage_core::{SchemeKind, Stores};
pub use twinpage_os::Durability;
/// Arrays whose versions lie on the medium itself, in files of their own.
pub use twinpage_versions as versions;
pub use twinpage_versions::{Planes, Versions};

/// The example of the README compiles; `tests/examples.rs` runs it.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
