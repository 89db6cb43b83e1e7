//! What a core does: one operation, sixteen bytes.
//!
//! * An operation is `work` instructions that touch no memory, then the operation itself (one
//!   instruction).
//! * A load or store lies in one 64-byte line; longer ones are several operations.
//! * Operations of a core are in program order; between cores only the order of batches counts.

/// Bytes in a line of the machine.
pub const LINE_BYTES: u64 = 64;
/// Bytes in a page of the machine.
pub const PAGE_BYTES: u64 = 4096;

/// Loads that a core remembers for those that follow their pointers.
pub const RECENT: u8 = 8;

/// What an operation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Reads `bytes` at `at`.
    Load,
    /// Writes `bytes` at `at`.
    Store,
    /// Asks for the line at `at` to be written back; it stays in the caches (`clwb`).
    Persist,
    /// The same, and the line leaves the caches (`clflushopt`).
    FlushOpt,
    /// The same, one after the other in program order (`clflush`).
    Flush,
    /// Writes `bytes` at `at` past the caches (`movntdq`).
    Stream,
    /// Waits for earlier stores, write-backs and streams (`sfence`).
    Fence,
    /// Waits for earlier loads too (`mfence`).
    FullFence,
    /// Writes `at` bytes to a file on a disk, and waits until they are durable (`write`, `fdatasync`).
    Disk,
    /// Line `at >> 32` is from here on called line `at & 0xffff_ffff`: a cached copy gets the other tag and is dirty, and
    /// one that no cache has is fetched by its old name first (SSP 4.1.1). Only the machine with its memory on the bus
    /// does this.
    Remap,
    /// The core waits `at` femtoseconds, for a table that is not simulated line by line. Only the machine with its
    /// memory on the bus does this.
    Wait,
    /// Takes the lock in the line at `at`: an atomic access, and what waiting for it costs. Like the next two, only the
    /// machine with its memory on the bus does this.
    Lock,
    /// Gives the lock back.
    Unlock,
    /// Reads and writes the number at `at` in one access: earlier stores are in the caches before.
    Atomic,
    /// A transaction or request ends here: its latency counts from the one before on this core, and
    /// its durability from here to the checkpoint that covers it. `at` is free.
    Commit,
    /// Only the `work`.
    Work,
}

/// One operation of one core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Op {
    /// The first byte.
    pub at: u64,
    /// Instructions before it that touch no memory.
    pub work: u32,
    /// Bytes touched: 1 to 64 for a load, store or stream, within one line.
    pub bytes: u8,
    /// What it is.
    pub kind: Kind,
    /// Of a load: its address comes from what the load that many before it on this core read (a pointer was followed; 1 is
    /// the last), so the two cannot overlap. 0, and more than [`RECENT`]: from none.
    pub behind: u8,
}

const _: () = assert!(size_of::<Op>() == 16);

impl Op {
    /// Instructions it stands for: its work, and itself.
    #[must_use]
    pub fn instructions(&self) -> u64 {
        u64::from(self.work) + u64::from(self.kind != Kind::Work)
    }
}
