//! Mistakes made on purpose, to show that the crash explorer finds them. None of this is compiled
//! in but for tests: without the `faults` feature no fault can be planted.

/// A mistake in a scheme.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[allow(unreachable_pub)] // reachable with the feature `faults`
pub enum Fault {
    /// Any scheme: a record is written without a fence after what it speaks of.
    SkipDataFence,
    /// Any scheme: a commit is reported durable without a fence after its record.
    SkipRecordFence,
    /// Any scheme: the mark runs ahead of the record it speaks of.
    MarkEarly,
    /// Any scheme: a torn record is left as it is, for the next one to complete by chance.
    LeaveTorn,
    /// Any scheme: the first write of a page leaves what was there before.
    NoZeroFill,
    /// Any scheme: a read begins at the first line of its page.
    ReadFromFirst,
    /// Any scheme: a view is of the first lines of its page.
    ViewFirst,
    /// Any scheme: lines that differ are not found.
    Overlook,
    /// Undo logs: lines are written in place before their old versions are durable in the log.
    SkipLogFence,
    /// Undo logs: one line in eight is not logged.
    ForgetLine,
    /// Undo logs: a line is logged again at its second write, with what the first one wrote.
    LogTwice,
    /// Redo log, DudeTM: lines of a commit stay in the log and are forgotten.
    LeaveInLog,
    /// Redo log, DudeTM: both epochs, or groups of epochs, use one log.
    OneLog,
    /// Copy-on-write: later writes of a page go to the checkpoint's frame.
    SkipCopy,
    /// Copy-on-write: the checkpoint's frame is used again before the commit.
    FreeEarly,
    /// Page overlays: lines do not move along to the larger segment.
    ForgetMove,
    /// Page overlays: metadata is not written at the commit.
    ForgetMetadata,
    /// Page overlays: lines of a commit stay in their segments and are forgotten.
    LeaveInOverlay,
    /// ThyNVM: a line is hidden at HOME while the checkpoint that makes room there is being written.
    HideEarly,
    /// ThyNVM: the slot of an entry that leaves the table is free at once, not with the next checkpoint.
    ReleaseEarly,
    /// ThyNVM: a page is written over its checkpoint.
    PageInPlace,
    /// ThyNVM: an entry leaves the table and its line is not copied home.
    EvictWithoutCopy,
}
