//! What an array did since it was opened.

use twinpage_os::direct::Counts;

/// Counts since the array was opened.
#[derive(Clone, Copy, PartialEq, Debug, Default, serde::Serialize)]
pub struct Statistics {
    /// Updates, or steps, done.
    pub updates: u64,
    /// How often something was made durable.
    pub persists: u64,
    /// `persists` for each of `updates`: the persistence threshold reached.
    pub threshold: f64,
    /// Updates, or steps, that waited because no version or plane was free.
    pub version_waits: u64,
    /// Updates that waited because the pace owed too many hand-overs.
    pub pace_waits: u64,
    /// Bytes copied to make a new version of a value or a plane that was then changed in part.
    pub copied_bytes: u64,
    /// Values changed again in place, before they were handed over.
    pub in_place: u64,
    /// The last update, or step, that is durable.
    pub durable: u64,
    /// Instructions and calls of the persistence side.
    #[serde(flatten)]
    pub medium: Counts,
}
