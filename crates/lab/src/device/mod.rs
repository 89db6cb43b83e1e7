//! A memory: banks and rows behind a channel, in cycles of its own clock.
//!
//! Reading order: `spec.rs` is what a device file says; `timing.rs` the constraints it means;
//! `bank.rs` the banks that obey them; `request.rs` is a request, `arrivals.rs` those that have not come, `queue.rs` those
//! that wait; `channel.rs` the order of service, `choice.rs` the command that goes next, `scheduler.rs` how it is found; `memory.rs` cuts addresses
//! into channels; `energy.rs` counts joules.
//!
//! * Event-driven: a cycle in which nothing can be issued costs nothing.
//! * Deterministic: the order of service depends on arrival and address alone.
//! * A request is a run of consecutive lines of one row buffer; a run of one line is the ordinary case.

mod arrivals;
pub mod bank;
pub mod channel;
mod choice;
pub mod energy;
pub mod memory;
mod queue;
mod request;
mod scheduler;
pub mod spec;
pub mod timing;

pub use memory::Memory;
pub use request::{Class, Done, Kind, UNTOLD};
pub use spec::Device;
