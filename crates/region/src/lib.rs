//! Ordinary data structures in a region that survives.
//!
//! A region lives in a window of addresses that is the same in every life of it ([`window`]). What a
//! program writes there, inside an update, is marked line by line ([`marks`]); a checkpoint makes the
//! marked lines durable all at once or not at all.
//!
//! Linux on x86-64 only.

pub mod error;
pub mod marks;
pub mod window;

pub use error::{Error, Result};
