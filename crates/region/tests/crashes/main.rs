//! A process that is killed, a medium that fails, a disk that is full: what was durable is there.

mod failures;
mod full_disk;
mod kills;
mod leaks;
mod readers;
#[path = "../support/mod.rs"]
mod support;
