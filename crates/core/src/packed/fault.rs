//! Mistakes made on purpose, to show that the crash explorer finds them. None of this is compiled
//! in but for tests: without the `faults` feature no fault can be planted.

use super::Packed;

/// A mistake in the scheme.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[allow(unreachable_pub)] // reachable with the feature `faults`
pub enum Fault {
    /// A page written whole leaves its strips in the log.
    ForgetDrop,
    /// A discarded page leaves its strips in the log.
    KeepDiscarded,
    /// The ring goes over a batch without folding its pages.
    ForgetFold,
    /// A page is folded without its strips.
    FoldOld,
    /// The commit carries the root of the one before.
    OldRoot,
    /// Pages that came or went are not told to the map.
    ForgetMap,
    /// Dropped pages are applied after the strips of their batch.
    DropLate,
    /// What an abandoned epoch did to the index stays.
    KeepIndex,
    /// The other lines of a new page hold the old bytes of its place.
    NoZeroFill,
    /// Recovery takes the oldest strip for the newest.
    OldestWins,
    /// A payload leaves a page out.
    ForgetLine,
    /// A payload leaves a changed context out.
    ForgetContext,
    /// What waits is taken for placed once it is durable as a payload.
    ForgetWaiting,
}

impl<S> Packed<S> {
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
