//! Mistakes made on purpose, to show that the crash explorer finds them. None of this is compiled
//! in but for tests: without the `faults` feature no fault can be planted.

use super::DualPage;

/// A mistake in the scheme.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[allow(unreachable_pub)] // reachable with the feature `faults`
pub enum Fault {
    /// A record is written without a fence after the lines it speaks of.
    SkipDataFence,
    /// A commit is reported durable without a fence after its record.
    SkipRecordFence,
    /// The switch record is written before the snapshot is durable.
    SwitchEarly,
    /// A reclaimed derivative page is used again before the record that frees it is durable.
    ReuseEarly,
    /// An extent of derivative pages is given back before the record that frees them is durable.
    GiveBackEarly,
    /// A commit leaves one page out of its record.
    ForgetEntry,
    /// A line is written over its checkpoint as well as to its other home.
    WriteBothHomes,
    /// The first write of a page leaves the old bytes in the rest of its base.
    NoZeroFill,
    /// A page's derivative page is freed when the page is discarded, not when that is durable.
    FreeAtDiscard,
    /// Recovery does not copy the fall-back's lines home.
    ForgetRedo,
    /// The fall-back's extents are used again before the lines are home for sure.
    FreeBufferEarly,
    /// A torn record is left as it is, for the next one to complete by chance.
    LeaveTorn,
    /// The same for a torn switch record.
    LeaveSwitch,
    /// The mark runs ahead of the record it speaks of.
    MarkEarly,
    /// A line is written and keeps the checksum of the line before it.
    ForgetSum,
    /// A record carries the checksums of the homes that its lines left.
    OldSum,
    /// A line is copied home and its checksum is not.
    LeaveSum,
    /// Recovery takes an unfenced record without a look at its lines.
    TrustUnfenced,
    /// The erasing of an unfenced record that misses lines is not fenced.
    CompleteLater,
    /// A record is unfenced though copies it speaks of have no checksum in it.
    UnfencedCopies,
    /// A snapshot of a reclaim is written without the payloads that are a part of the checkpoint.
    DropPayloads,
}

impl<M> DualPage<M> {
    /// Whether `fault` was planted.
    pub(super) fn faulty(&self, fault: Fault) -> bool {
        cfg!(any(test, feature = "faults")) && self.fault == Some(fault)
    }

    /// Makes this mistake from now on.
    #[cfg(any(test, feature = "faults"))]
    pub fn plant(&mut self, fault: Fault) {
        self.fault = Some(fault);
    }
}
