//! What the hand-over stands on. A test of its schedules (`tests/schedules.rs`) puts a model in its place.

pub(crate) use std::sync::atomic::{AtomicU8, Ordering};
