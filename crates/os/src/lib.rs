//! The system's edge: media on files and memory, write tracking, tracing, namespaces.
//!
//! All the unsafe system calls of twinpage live here: the crate denies unsafe code, and a file that
//! needs it says so in its first lines. Each public function names the manual page it rests on.
//! Linux on x86-64 only.
//!
//! Media: [`FileMedium`] (a file on a disk), [`MemoryMedium`] (a file in memory), [`DaxMedium`] (a file
//! on persistent memory), [`AnyMedium`] (any of them, chosen at run time). [`Lock`] keeps a second
//! program out.

#![deny(unsafe_code)]

pub mod any;
pub mod barrier;
mod batch;
#[cfg(any(test, feature = "faults"))]
pub mod cache;
mod copied;
pub mod copier;
pub mod cpuid;
pub mod dax;
mod diag;
pub mod direct;
mod draft;
pub mod family;
#[cfg(any(test, feature = "faults"))]
pub mod faulty;
pub mod file;
pub mod flush;
pub mod folder;
mod health;
pub mod inject;
pub mod ipc;
pub mod lock;
pub mod mapped;
mod mapping;
pub mod memory;
pub mod messages;
pub mod missing;
#[cfg(any(test, feature = "faults"))]
pub mod modelled;
pub mod name;
pub mod namespaces;
pub mod notice;
pub mod proc_file;
pub mod remote;
pub mod reserve;
pub mod reset;
pub mod seccomp;
pub mod shared_page;
pub mod siginfo;
pub mod signals;
pub mod socket;
mod space;
pub mod spawn;
pub mod stat;
pub mod tcp;
pub mod terminal;
pub mod ticker;
pub mod trace;
pub mod tracker;
pub mod udp;
pub mod unix_sockets;
pub mod user_signals;
pub mod xsave;

pub use any::{AnyMedium, Durability};
pub use copied::CopiedFile;
pub use dax::DaxMedium;
pub use direct::{Direct, DirectFile};
pub use draft::Draft;
pub use file::FileMedium;
pub use health::Access;
pub use lock::{Holder, Lock, LockError};
pub use memory::MemoryMedium;
pub use missing::Missing;
pub use reserve::Reserved;
