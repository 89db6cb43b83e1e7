//! How written lines become the checkpoint, all or nothing.
//!
//! A scheme owns its medium. Between two commits it holds two versions of what was written, the
//! checkpoint and the newest (DPC 3.1), and shares one where they agree.

use crate::error::Result;
use crate::geometry::{Geometry, LineMask, PageId, Span};
use crate::medium::{Medium, Offset};
use std::ops::Range;

/// The number of a commit; the first is 1, and 0 means there is none yet.
pub type Epoch = u64;

/// Whether more can be written before a commit (DPC 4.4.2: an allocation failure asks for a checkpoint).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Room {
    /// Go on.
    Plenty,
    /// The pool is used up by pages of this epoch. Writing more works, by the slower fall-back; a
    /// commit now makes the pages clean and reclaimable.
    Commit,
}

/// What recovery found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovered {
    /// The last durable commit.
    pub epoch: Epoch,
    /// What was committed with it: registers, roots, cursors.
    pub context: Vec<u8>,
}

/// Bytes written to the medium since the scheme was opened, by cause. Their sum over the changed
/// bytes is the write amplification.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Traffic {
    /// Lines of pages.
    pub data_bytes: u64,
    /// Lines of the context.
    pub context_bytes: u64,
    /// Journal records.
    pub journal_bytes: u64,
    /// Snapshots of the mapping, and switch records.
    pub snapshot_bytes: u64,
    /// Lines copied home to free a derivative page.
    pub reclaim_bytes: u64,
    /// Lines that went through the fall-back, both times they were written.
    pub fallback_bytes: u64,
}

impl std::iter::Sum for Traffic {
    fn sum<I: Iterator<Item = Traffic>>(all: I) -> Traffic {
        all.fold(Traffic::default(), |sum, more| Traffic {
            data_bytes: sum.data_bytes + more.data_bytes,
            context_bytes: sum.context_bytes + more.context_bytes,
            journal_bytes: sum.journal_bytes + more.journal_bytes,
            snapshot_bytes: sum.snapshot_bytes + more.snapshot_bytes,
            reclaim_bytes: sum.reclaim_bytes + more.reclaim_bytes,
            fallback_bytes: sum.fallback_bytes + more.fallback_bytes,
        })
    }
}

impl std::ops::Sub for Traffic {
    type Output = Traffic;
    /// What was written between two looks.
    fn sub(self, before: Traffic) -> Traffic {
        Traffic {
            data_bytes: self.data_bytes - before.data_bytes,
            context_bytes: self.context_bytes - before.context_bytes,
            journal_bytes: self.journal_bytes - before.journal_bytes,
            snapshot_bytes: self.snapshot_bytes - before.snapshot_bytes,
            reclaim_bytes: self.reclaim_bytes - before.reclaim_bytes,
            fallback_bytes: self.fallback_bytes - before.fallback_bytes,
        }
    }
}

impl Traffic {
    /// Everything written.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.data_bytes
            + self.context_bytes
            + self.journal_bytes
            + self.snapshot_bytes
            + self.reclaim_bytes
            + self.fallback_bytes
    }
}

/// The derivative page pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct PoolInfo {
    /// Derivative pages that exist.
    pub pages: u64,
    /// Of them, how many hold lines.
    pub used: u64,
    /// Derivative pages freed by copying their lines home, since open.
    pub reclaimed: u64,
    /// Allocations that found no free and no clean page, since open (DPC 4.4.2).
    pub failures: u64,
}

/// What a scheme says of itself.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Info {
    /// The name of the scheme: `dual-page`, `in-place`.
    pub scheme: &'static str,
    /// The version of the format on the medium.
    pub version: u32,
    /// How the medium is cut.
    pub geometry: Geometry,
    /// The last durable commit.
    pub epoch: Epoch,
    /// Pages that hold something.
    pub pages: u64,
    /// Bytes of the medium.
    pub medium_bytes: u64,
    /// Bytes of the context of the last commit.
    pub context_bytes: u64,
    /// The derivative page pool; empty for schemes without one.
    pub pool: PoolInfo,
    /// Bytes written since open.
    pub traffic: Traffic,
}

/// One thing that is not as it was written.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Damage {
    /// Which structure.
    pub what: String,
    /// Where on the medium, in bytes.
    pub at: Offset,
    /// What was expected and what was found.
    pub why: String,
}

/// How written lines become the checkpoint, all or nothing.
pub trait Scheme: Sized {
    /// Where the bytes stay.
    type Medium: Medium;

    /// The checkpoint on `medium`, exactly as its last durable commit left it.
    ///
    /// # Errors
    /// [`crate::Error::Damaged`] and [`crate::Error::Foreign`] say what is wrong and where; nothing is written then.
    fn recover(medium: Self::Medium) -> Result<(Self, Recovered)>;

    /// How the medium is cut.
    fn geometry(&self) -> Geometry;

    /// The newest version of the lines from `first` on, as many as `into` holds. Pages never
    /// written, or discarded, read as zero.
    ///
    /// # Errors
    /// [`crate::Error::Io`].
    fn read(&self, page: PageId, first: usize, into: &mut [u8]) -> Result<()>;

    /// The newest version in place, where the medium is memory and the lines lie together in one home.
    fn view(&self, page: PageId, first: usize, len: usize) -> Option<&[u8]> {
        let _ = (page, first, len);
        None
    }

    /// Whether the page holds anything (was written and not discarded since).
    fn is_present(&self, page: PageId) -> bool;

    /// The lines of `span` that differ from the newest version.
    ///
    /// # Errors
    /// [`crate::Error::Io`].
    fn diff(&self, span: Span<'_>) -> Result<LineMask>;

    /// Newer versions of `lines` of `span`, in no checkpoint yet.
    ///
    /// # Errors
    /// [`crate::Error::Full`] leaves the epoch to be abandoned; any other error poisons the store.
    fn write(&mut self, span: Span<'_>, lines: LineMask) -> Result<Room>;

    /// The pages will be written soon: allocates what they need off the critical path (DPC 4.4.3).
    ///
    /// # Errors
    /// As [`Scheme::write`].
    fn expect(&mut self, page: PageId) -> Result<Room> {
        let _ = page;
        Ok(Room::Plenty)
    }

    /// The pages hold nothing from the next commit on.
    ///
    /// # Errors
    /// As [`Scheme::write`].
    fn discard(&mut self, pages: Range<PageId>) -> Result<()>;

    /// Everything written becomes the checkpoint, with `context`. Durable when it returns.
    ///
    /// # Errors
    /// [`crate::Error::Full`] leaves the epoch to be abandoned; any other error poisons the store.
    fn commit(&mut self, context: &[u8]) -> Result<Epoch>;

    /// Forgets everything written since the last commit. The newest version is the checkpoint again.
    fn abandon(&mut self);

    /// The last durable commit.
    fn epoch(&self) -> Epoch;

    /// Bytes written to the medium since the scheme was opened.
    fn traffic(&self) -> Traffic {
        self.info().traffic
    }

    /// Idle-time work on at most `pages` pages, such as copying derivative lines home. Durable
    /// when it returns. Says how many pages it did.
    ///
    /// # Errors
    /// As [`Scheme::commit`].
    fn consolidate(&mut self, pages: u64) -> Result<u64> {
        let _ = pages;
        Ok(0)
    }

    /// What a person or a script may want to know.
    fn info(&self) -> Info;

    /// Reads everything there is and verifies every checksum. Empty when all is well.
    ///
    /// # Errors
    /// [`crate::Error::Io`] when reading itself fails.
    fn check(&self) -> Result<Vec<Damage>>;
}
