//! Persistent objects: their calls, their lanes, their threads, the copies that follow, how they are freed and move to
//! the next level, what a power cut leaves of all that, and what is refused.

mod calls;
mod followers;
mod freed;
mod kept;
mod lanes;
mod levels;
mod recorded;
mod refused;
mod sharing;
mod structures;
#[path = "../support/mod.rs"]
mod support;
mod threads;
