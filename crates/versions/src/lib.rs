//! Arrays whose versions lie on the medium itself (MSS, "Exploring Memory-Style Storage", HotPower 2014): no log, no
//! copy, no mapping. For data larger than memory, or rewritten whole in every step.
//!
//! [`Versions`]: each element has two or three versions in place; random updates of a few. [`Planes`]: the
//! whole array has; kernels that rewrite all of it in every step. Where 1% of the data changes between two
//! checkpoints a region (`twinpage::Region`) writes less; where all of it changes, planes do.
//!
//! * An update, or a step, is there whole after any crash, or not at all: one word says up to which all is durable.
//! * The program's stores are the write. A thread of its own makes them durable (Algorithms 1 and 2).
//! * One writer; any readers of the last durable version, in any process ([`Reader`], [`PlanesReader`]).
//!
//! ```text
//! look, reader           files as others see them
//! elements, planes       what a program calls
//! opened, ticket         what those two have in common
//! options                how a file is made and opened
//! persistence, handover  how updates become durable; pace: when they are handed over
//! recover, seal          what a crash left of it
//! words, format          where everything lies
//! ```
//!
//! Linux on x86-64 only.

#![deny(unsafe_code)]

mod copy;
mod elements;
mod error;
mod fault;
mod format;
mod handover;
#[cfg(test)]
mod handover_tests;
mod look;
mod opened;
mod options;
mod pace;
mod persistence;
mod planes;
mod reader;
mod recover;
mod seal;
mod statistics;
mod sync;
mod ticket;
mod value;
mod words;

pub use elements::{Update, Versions};
pub use error::{Error, Result};
pub use format::{Header, Kind, VERSION};
pub use look::{Look, is_array, look};
pub use options::Options;
pub use pace::Pace;
pub use planes::Planes;
pub use reader::{Moved, PlanesReader, Reader, View};
pub use statistics::Statistics;
pub use ticket::Ticket;
pub use value::Value;
pub use zerocopy;

#[doc(hidden)]
pub use fault::Planted;
#[cfg(any(test, feature = "faults"))]
pub use persistence::Stepper;
