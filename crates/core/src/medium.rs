//! Where bytes stay.
//!
//! The promise, and all a scheme may rely on:
//!
//! * Writes are posted. When `fence` returns, every earlier write is durable; before that, any
//!   subset of them may be, each torn at most at [`Medium::atom`].
//! * A read sees every earlier write, durable or not.
//! * Bytes gained by `grow` read as zero until written.
//! * After a failed write or fence the medium is poisoned: it refuses every later write and fence.
//!   Running out of room ([`crate::Error::Full`]) is no failure of earlier writes.

use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::geometry::{LineMask, PageLines};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// A place on a medium, in bytes from its start.
pub type Offset = u64;

/// What an access is for: a field of [`Traffic`](crate::scheme::Traffic) each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Newest versions of lines, at the place they were given.
    Data,
    /// The context of a commit.
    Context,
    /// Changes of the mapping, and the records that commit.
    Journal,
    /// Whole tables of the mapping, and the records that switch to them.
    Snapshot,
    /// Lines copied home to free a derivative page.
    Reclaim,
    /// Lines that go through a fall-back.
    Fallback,
    /// Records of a log (undo, redo, packed lines), the lines in them too.
    Log,
    /// Lines copied unchanged because the grain is coarser than what changed.
    Copy,
    /// Lines moved from one place to another to make room, or to change the grain.
    Migration,
    /// Lines written home a second time, after the commit that made them durable.
    WriteBack,
}

impl Cause {
    /// All there are.
    pub const ALL: [Cause; 10] = [
        Cause::Data,
        Cause::Context,
        Cause::Journal,
        Cause::Snapshot,
        Cause::Reclaim,
        Cause::Fallback,
        Cause::Log,
        Cause::Copy,
        Cause::Migration,
        Cause::WriteBack,
    ];
}

/// The waiter of an access.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Path {
    /// The call that causes it: it is answered when the access is done, and a fence when everything is durable.
    Critical,
    /// No caller: the call is answered at once, and the access waits its turn. A fence on this path only
    /// orders what follows it on this path after what came before it.
    Background,
}

/// The part of a fence that waits for a device, and needs nothing of the medium: others read it meanwhile.
pub trait Flush: Send + Sync {
    /// Returns when all that was handed over before is durable.
    ///
    /// # Errors
    /// That of the system.
    fn flush(&self) -> io::Result<()>;
}

/// Where bytes stay: a file, memory, a simulated device, a crash recorder.
pub trait Medium {
    /// The purpose and the waiter of the accesses that follow, until the next hint. It
    /// changes no promise: a medium that keeps time takes its time accordingly, others need not listen.
    fn hint(&self, cause: Cause, path: Path) {
        let _ = (cause, path);
    }

    /// A number of bytes of the scheme's own volatile memory (a DRAM cache of pages, say) were read or
    /// written, for what the last hint said. For media that keep time.
    fn accessed(&self, bytes: usize) {
        let _ = bytes;
    }

    /// Bytes the medium holds now.
    fn len(&self) -> u64;

    /// Whether it holds none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes the medium at least `len` bytes long. The new bytes read as zero.
    ///
    /// # Errors
    /// [`crate::Error::Full`] when it cannot grow so far; its content is untouched.
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

    /// Posts the writes of those `chosen` of some lines, to the page that begins at `page_at`: one call for
    /// many, where what a medium does before a write counts.
    ///
    /// # Errors
    /// As [`Medium::write`].
    fn write_lines(&mut self, page_at: Offset, chosen: LineMask, from: &PageLines<'_>) -> Result<()> {
        chosen.runs().try_for_each(|run| {
            let at = page_at + (run.start * from.line_bytes) as u64;
            self.write(at, from.run(run))
        })
    }

    /// The bytes are no longer needed: a medium that can gives their space back. They then read as
    /// zero or as they were.
    ///
    /// # Errors
    /// [`crate::Error::Io`] poisons the medium.
    fn discard(&mut self, range: Range<Offset>) -> Result<()> {
        let _ = range;
        Ok(())
    }

    /// Hands every earlier write to the system: the end of this process does not lose it, though that of the machine
    /// may. Nothing to do where writes do not wait in the process.
    ///
    /// # Errors
    /// As [`Medium::write`].
    fn hand_over(&mut self) -> Result<()> {
        Ok(())
    }

    /// Returns when every earlier write and growth is durable.
    ///
    /// # Errors
    /// [`crate::Error::Io`] poisons the medium.
    fn fence(&mut self) -> Result<()>;

    /// As [`Medium::fence`], up to where it only waits: what waits is returned, and its outcome is given to
    /// [`Medium::end_fence`]. In between the medium is read and not changed. Without an answer the fence is over.
    ///
    /// # Errors
    /// As [`Medium::fence`].
    fn begin_fence(&mut self) -> Result<Option<Arc<dyn Flush>>> {
        self.fence().map(|()| None)
    }

    /// The wait that [`Medium::begin_fence`] left to its caller is over.
    ///
    /// # Errors
    /// [`crate::Error::Io`] poisons the medium.
    fn end_fence(&mut self, flushed: io::Result<()>) -> Result<()> {
        flushed.map_err(|source| Error::Io {
            what: "flush the medium".into(),
            at: 0,
            source,
        })
    }

    /// The largest aligned write that cannot tear: 8 bytes for memory, a sector for a disk.
    fn atom(&self) -> usize;
}

/// A copy of bytes of the medium.
pub(crate) fn bytes(medium: &impl Medium, at: Offset, len: usize) -> Result<Buffer> {
    let mut bytes = Buffer::default();
    medium.read(at, bytes.append(len))?;
    Ok(bytes)
}

/// An array of bytes of the medium.
pub(crate) fn read_array<const N: usize>(medium: &impl Medium, at: Offset) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    medium.read(at, &mut bytes)?;
    Ok(bytes)
}
