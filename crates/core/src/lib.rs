//! The heart of twinpage: how written lines become a checkpoint, all at once or not at all.
//!
//! Every page has two homes on a medium, its base page and a derivative page. One bit a line says
//! which home holds the checkpoint; a new version goes to the other; a commit flips bits.
//!
//! Three roles. Only these things cross between them:
//!
//! * a [`Source`] says which lines changed and what they hold (a program's memory, a region, a
//!   simulated machine);
//! * a [`Scheme`] makes them durable all at once ([`dual_page`], [`packed`] over it for small changes
//!   on a disk);
//! * a [`Medium`] is where bytes stay (a file, memory, a crash recorder).
//!
//! The [`engine`] joins them. [`crash`] proves them: it stops a run at every write and fence and
//! recovers. This crate knows no operating system and no simulator.
//!
//! ```
//! use twinpage_core::crash::Image; // a medium that is plain memory
//! use twinpage_core::dual_page::{DualPage, Options};
//! use twinpage_core::{Geometry, LineMask, PageId, PageLines, Scheme};
//!
//! # fn main() -> twinpage_core::Result<()> {
//! let mut store = DualPage::create(Image::new(8), &Options::new(Geometry::MEMORY))?;
//! let page = PageLines::from(PageId(7), 0, &[1; 4096], 64);
//! store.write(page)?;
//! store.commit(b"registers")?;
//! store.write(PageLines::from(PageId(7), 3, &[2; 64], 64))?; // line 3, in no checkpoint yet
//!
//! let (store, found) = DualPage::recover(store.into_medium())?; // as after a crash
//! assert_eq!((found.epoch, &found.context[..]), (1, &b"registers"[..]));
//! assert_eq!(store.diff(&page)?, LineMask::NONE);
//! # Ok(())
//! # }
//! ```
//!
//! Reading order: [`geometry`], [`scheme`], `dual_page/map.rs`; then the rest follows.

#![forbid(unsafe_code)]

pub mod buffer;
pub mod compare;
pub mod crash;
pub mod dual_page;
pub mod engine;
pub mod error;
pub mod geometry;
pub mod kind;
pub mod medium;
pub mod metered;
pub mod operation_log;
pub mod packed;
pub mod poison;
pub mod product;
pub mod record;
pub mod report;
pub mod scheme;
pub mod shell;
pub mod source;

pub use buffer::Buffer;
pub use engine::{Engine, Witness};
pub use error::{Error, Result};
pub use geometry::{Geometry, LineMask, PageId, PageLines};
pub use kind::SchemeKind;
pub use medium::{Cause, Flush, Medium, Offset, Path};
pub use poison::Poison;
pub use product::{ProductScheme, Setup, Stores};
pub use scheme::{
    Commit, Damage, Epoch, Idle, Info, LogInfo, PoolInfo, Pressure, Recovered, Scheme, Simulated, Traffic,
};
pub use source::{Capture, Later, Outcome, Piece, Source};
