//! The cost of an epoch, for its source and for measurements.

use crate::scheme::{Epoch, Traffic};

/// What one epoch cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Report {
    /// The commit.
    pub epoch: Epoch,
    /// Microseconds in the source's capture (the stop is inside).
    pub capture_us: u64,
    /// Captured pieces, and their bytes.
    pub pieces: u64,
    /// Bytes captured.
    pub captured_bytes: u64,
    /// Lines that were written: those that differ, where the source asked to compare.
    pub lines: u64,
    /// Whether the scheme ran out of pool and took its slower path ([`Pressure::Commit`](crate::Pressure::Commit)).
    pub fallback: bool,
    /// Microseconds comparing and writing lines, in the background.
    pub write_us: u64,
    /// Microseconds in [`Witness::before_commit`](crate::Witness::before_commit).
    pub witness_us: u64,
    /// Microseconds in the scheme's commit.
    pub commit_us: u64,
    /// Bytes written to the medium, by cause.
    pub traffic: Traffic,
}
