//! The system's edge: media on files and memory, write tracking, tracing, namespaces.
//!
//! All the unsafe system calls of twinpage live here: the crate denies unsafe code, and a file that
//! needs it says so in its first lines. Each public function names the manual page it rests on.
//! Linux on x86-64 only.

#![deny(unsafe_code)]

pub mod inject;
pub mod remote;
pub mod seccomp;
pub mod spawn;
pub mod trace;
pub mod tracker;
