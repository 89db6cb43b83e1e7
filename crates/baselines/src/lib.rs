//! What the dual page is measured against: the schemes of DPC 5.1.2 and 5.3, on the same road.
//!
//! [`in_place`] protects nothing. The others share one [`store`](Store), whose streams, book and commit
//! are the same for all: reading order `streams.rs`, `table.rs`, `store.rs`, then a scheme each. [`AnyScheme`] is
//! any of them, or a scheme of the products, and [`AllSchemes`] serves a region with them. The lab and the benchmarks
//! link this crate; no product does.
//!
//! ```text
//! | header, records, mark | directory | extents of streams: home, table, journals, the scheme's own
//! ```

#![forbid(unsafe_code)]

pub mod any;
pub mod copy_on_write;
pub mod dude_tm;
mod extent_map;
mod fault;
pub mod in_place;
mod log;
pub mod page_overlay;
mod page_table;
pub mod redo_log;
mod store;
pub mod thynvm;
pub mod undo_log;

pub use any::{AllSchemes, AnyScheme, Setup, overlaps, pool_pages, reads_data};
pub use copy_on_write::CopyOnWrite;
pub use dude_tm::DudeTm;
#[cfg(any(test, feature = "faults"))]
pub use fault::Fault;
pub use in_place::InPlace;
pub use page_overlay::PageOverlay;
pub use redo_log::RedoLog;
pub use store::{LineStore, Store, StoreLayout};
pub use thynvm::{Switching, Tables, ThyNvm};
pub use twinpage_core::SchemeKind;
pub use undo_log::{Nvml, UndoLog};
