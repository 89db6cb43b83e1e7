//! Whole programs that survive: stop, capture, restore.
//!
//! An unmodified program runs under a tracer. Every few milliseconds all its threads stand still for
//! as long as it takes to copy what changed; then they go on while the copy is compared with the last
//! checkpoint, written, and committed by the core's engine. After a kill the program is put together
//! again from the last commit, in the same process id, at the same addresses.
//!
//! Reading order: [`run`], [`session`], [`program`], [`memory`]; then [`syscalls`] and [`calls`] (what
//! a program may do, and what is done about it), [`context`] (what is kept beside pages), and
//! [`restore`]. [`files`] rolls the program's own files back; [`stdio`] holds its output.
//!
//! Linux on x86-64, kernel 6.7 or later.

#![forbid(unsafe_code)]

pub mod advice;
pub mod attach;
pub mod calls;
pub mod check;
pub mod clocks;
mod command_line;
pub mod context;
pub mod copies;
mod copy;
pub mod credentials;
pub mod datagrams;
pub mod descendants;
pub mod descriptors;
pub mod error;
pub mod files;
pub mod fork;
mod going_back;
pub mod inspect;
pub mod interrupted;
pub mod ipc;
pub mod kernel;
pub mod launch;
pub mod layout;
pub mod limits;
pub mod loopback;
pub mod machine;
pub mod memory;
mod message;
pub mod netlink;
pub mod notes;
pub mod objects;
pub mod older;
pub mod outbox;
pub mod pace;
pub mod pages;
pub mod pairs;
mod path_bytes;
pub mod program;
pub mod ptys;
pub mod rested;
pub mod restore;
pub mod resume;
pub mod run;
pub mod scan;
pub mod segments;
pub mod session;
pub mod shim;
pub mod sockets;
pub mod state;
pub mod statistics;
pub mod stdio;
pub mod syscalls;
pub mod threads;
pub mod timers;
pub mod unix_sockets;

pub use error::{Error, Result};
