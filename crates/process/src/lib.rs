//! Whole programs that survive: stop, capture, restore.

pub mod descriptors;
pub mod error;
pub mod kernel;
pub mod layout;
pub mod pages;
pub mod syscalls;
pub mod threads;
