//! Faults that tests plant.

/// A mistake made on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// The durable word is stored before the fence that must precede it.
    WordBeforeFence,
    /// A version is used again while a durable state needs it.
    ReusedTooEarly,
    /// Recovery leaves the numbers of updates that were not durable.
    NumberNotErased,
    /// A range is written back while it is being written.
    FlushedWhileWritten,
    /// The number of an update that panicked stays.
    PanickedNumberStays,
    /// Recovery believes a seal whatever its plane holds.
    SealBelieved,
}
