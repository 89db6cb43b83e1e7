//! Whole programs that survive: stop, capture, restore.

pub mod context;
pub mod descriptors;
pub mod error;
pub mod kernel;
pub mod layout;
pub mod machine;
pub mod memory;
pub mod pages;
pub mod syscalls;
pub mod threads;
