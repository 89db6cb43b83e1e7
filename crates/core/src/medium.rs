//! Where bytes stay.
//!
//! The promise, and all a scheme may rely on:
//!
//! * Writes are posted. When `fence` returns, every earlier write is durable; before that, any
//!   subset of them may be, each torn at most at [`Medium::atom`].
//! * A read sees every earlier write, durable or not.
//! * Bytes gained by `grow` read as zero until written.
//! * After a failed write or fence the medium is poisoned: it refuses every later write and fence.
//!   Running out of room ([`crate::Error::Full`]) is not a failure of what was written before.

use crate::error::Result;
use std::ops::Range;

/// A place on a medium, in bytes from its start.
pub type Offset = u64;

/// Where bytes stay: a file, memory, a simulated device, a crash recorder.
pub trait Medium {
    /// Bytes the medium holds now.
    fn len(&self) -> u64;

    /// Whether it holds none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes the medium at least `len` bytes long. The new bytes read as zero.
    ///
    /// # Errors
    /// [`crate::Error::Full`] when it cannot grow so far; what it holds is untouched.
    fn grow(&mut self, len: u64) -> Result<()>;

    /// Fills `into` from `at`.
    ///
    /// # Errors
    /// [`crate::Error::Io`] when the bytes cannot be read or lie past the end.
    fn read(&self, at: Offset, into: &mut [u8]) -> Result<()>;

    /// The bytes themselves, where the medium is memory; `None` where they must be read.
    fn view(&self, at: Offset, len: usize) -> Option<&[u8]> {
        let _ = (at, len);
        None
    }

    /// Posts a write. It lies inside [`Medium::len`].
    ///
    /// # Errors
    /// [`crate::Error::Full`] when there is no room for bytes never written before (a sparse file);
    /// [`crate::Error::Io`] poisons the medium.
    fn write(&mut self, at: Offset, bytes: &[u8]) -> Result<()>;

    /// The bytes are no longer needed: a medium that can gives their space back. They then read as
    /// zero or as they were.
    ///
    /// # Errors
    /// [`crate::Error::Io`] poisons the medium.
    fn discard(&mut self, range: Range<Offset>) -> Result<()> {
        let _ = range;
        Ok(())
    }

    /// Returns when every earlier write and growth is durable.
    ///
    /// # Errors
    /// [`crate::Error::Io`] poisons the medium.
    fn fence(&mut self) -> Result<()>;

    /// The largest aligned write that cannot tear: 8 bytes for memory, a sector for a disk.
    fn atom(&self) -> usize;
}
