//! How written lines become the checkpoint, all or nothing.
//!
//! A scheme owns its medium. Between two commits it holds two versions of each written line, the
//! checkpoint and the newest (DPC 3.1), and shares one where they agree.

use crate::error::{Error, Result};
use crate::geometry::{Geometry, LineMask, PageId, PageLines};
use crate::medium::{Cause, Flush, Offset};
use crate::poison::Poison;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The number of a commit; the first is 1, and 0 means there is none yet.
pub type Epoch = u64;

/// Whether more can be written before a commit (DPC 4.4.2: an allocation failure asks for a checkpoint).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Pressure {
    /// Go on.
    None,
    /// The pool is used up by pages of this epoch. Writing more works, by the slower fall-back; a
    /// commit now makes the pages clean and reclaimable.
    Commit,
}

impl Pressure {
    /// Both together: a commit is wanted where one of them wants it.
    pub fn or(self, other: Pressure) -> Pressure {
        match self {
            Pressure::None => other,
            Pressure::Commit => Pressure::Commit,
        }
    }
}

/// What recovery found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovered {
    /// The last durable commit.
    pub epoch: Epoch,
    /// The caller's own state of that commit: registers, roots, cursors.
    pub context: Vec<u8>,
}

/// Bytes written to the medium since the scheme was opened, by [`Cause`]. Their sum over the changed
/// bytes is the write amplification. The fields stand in the order of the causes.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    Debug,
    Default,
    serde::Serialize,
    serde::Deserialize,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
)]
#[repr(C)]
#[serde(default)]
pub struct Traffic {
    /// Lines of pages.
    pub data_bytes: u64,
    /// Lines of the context.
    pub context_bytes: u64,
    /// Journal records: changes of the mapping.
    pub journal_bytes: u64,
    /// Snapshots of the mapping, and switch records.
    pub snapshot_bytes: u64,
    /// Lines copied home to free a derivative page.
    pub reclaim_bytes: u64,
    /// Lines that went through the fall-back, both times they were written.
    pub fallback_bytes: u64,
    /// Records of a log (undo, redo, packed lines), the lines in them too.
    pub log_bytes: u64,
    /// Lines copied unchanged because the grain is coarser than what changed.
    pub copy_bytes: u64,
    /// Lines moved to make room or to change the grain.
    pub migration_bytes: u64,
    /// Lines written home after the commit that made them durable.
    pub write_back_bytes: u64,
}

impl Traffic {
    /// The counter of a cause.
    #[must_use]
    pub fn of(&self, cause: Cause) -> u64 {
        let counters: &[u64; Cause::ALL.len()] = zerocopy::transmute_ref!(self);
        counters[cause as usize]
    }

    /// Adds `bytes` to the counter of a cause.
    pub fn add(&mut self, cause: Cause, bytes: usize) {
        self.counters()[cause as usize] += bytes as u64;
    }

    /// Everything written.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        Cause::ALL.iter().map(|&cause| self.of(cause)).sum()
    }

    /// The counters, by cause.
    fn counters(&mut self) -> &mut [u64; Cause::ALL.len()] {
        zerocopy::transmute_mut!(self)
    }

    fn each(mut self, mut other: Traffic, combine: impl Fn(u64, u64) -> u64) -> Traffic {
        for (counter, other) in self.counters().iter_mut().zip(other.counters()) {
            *counter = combine(*counter, *other);
        }
        self
    }
}

impl std::iter::Sum for Traffic {
    fn sum<I: Iterator<Item = Traffic>>(all: I) -> Traffic {
        all.fold(Traffic::default(), |sum, more| sum.each(more, |a, b| a + b))
    }
}

impl std::ops::Sub for Traffic {
    type Output = Traffic;
    /// The traffic between two looks.
    fn sub(self, before: Traffic) -> Traffic {
        self.each(before, |now, before| now - before)
    }
}

/// The derivative page pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
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

/// The log of packed lines ([`crate::packed`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct LogInfo {
    /// Bytes the log may take.
    pub limit_bytes: u64,
    /// Bytes of it in use.
    pub used_bytes: u64,
    /// Of them, lines that are the newest version of theirs.
    pub live_bytes: u64,
    /// Pages that have lines in the log.
    pub pages: u64,
    /// Memory of the index that finds them.
    pub index_bytes: u64,
}

/// What a scheme says of itself.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Info {
    /// The name of the scheme: `dual-page`, `packed`, `in-place`.
    pub scheme: &'static str,
    /// The version of the format on the medium.
    pub version: u32,
    /// Whether every line has a checksum, verified when it is read and by [`Scheme::check`].
    pub checksums: bool,
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
    /// The log of packed lines, for the scheme that has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<LogInfo>,
    /// Bytes written since open.
    pub traffic: Traffic,
    /// The flag that says nothing is durable any more: the store's own, not a copy of its state.
    #[serde(skip)]
    pub poison: Poison,
}

/// One thing that is not as it was written.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Damage {
    /// Which structure.
    pub what: String,
    /// Where on the medium, in bytes.
    pub at: Offset,
    /// The expected and the found value.
    pub why: String,
}

impl Damage {
    /// This finding.
    pub(crate) fn new(what: impl Into<String>, at: Offset, why: impl Into<String>) -> Damage {
        let (what, why) = (what.into(), why.into());
        Damage { what, at, why }
    }

    /// At most this number of findings is listed.
    pub(crate) const MOST: usize = 16;

    /// A list that says so where it goes on past [`Damage::MOST`].
    pub(crate) fn cut(mut list: Vec<Damage>) -> Vec<Damage> {
        if let Some(next) = list.get(Damage::MOST) {
            let other = Damage {
                what: "other places".into(),
                at: next.at,
                why: format!("only the first {} findings are listed", Damage::MOST),
            };
            list.truncate(Damage::MOST);
            list.push(other);
        }
        list
    }
}

/// Pages of which a scheme would rather be given all lines than those that changed: it is going to write them
/// whole, and would have to read the other lines first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoldHints {
    /// Pages that the next commit had better have, ascending.
    pub pages: Vec<PageId>,
    /// And every page with at least as many changed lines.
    pub whole_from: u32,
}

impl Default for FoldHints {
    /// None.
    fn default() -> FoldHints {
        FoldHints {
            pages: Vec::new(),
            whole_from: u32::MAX,
        }
    }
}

/// How written lines become the checkpoint, all or nothing.
pub trait Scheme {
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

    /// Which of the held lines differ from the newest version.
    ///
    /// # Errors
    /// [`crate::Error::Io`].
    fn diff(&self, lines: &PageLines<'_>) -> Result<LineMask>;

    /// Newer versions of the changed lines, in no checkpoint yet.
    ///
    /// # Errors
    /// [`crate::Error::Full`] leaves the epoch to be abandoned; any other error but
    /// [`crate::Error::Invalid`] poisons the store.
    fn write(&mut self, lines: PageLines<'_>) -> Result<Pressure>;

    /// Pages of which the next commit had better have all lines. A source that has them in memory captures them
    /// whole; nothing is amiss where it cannot. To be asked between two epochs.
    ///
    /// # Errors
    /// As [`Scheme::commit`].
    fn fold_hints(&mut self) -> Result<FoldHints> {
        Ok(FoldHints::default())
    }

    /// The pages hold nothing from the next commit on.
    ///
    /// # Errors
    /// As [`Scheme::write`].
    fn discard(&mut self, pages: Range<PageId>) -> Result<()>;

    /// Everything written becomes the checkpoint, with `context`. Durable when it returns.
    ///
    /// # Errors
    /// As [`Scheme::write`].
    fn commit(&mut self, context: &[u8]) -> Result<Epoch>;

    /// Forgets everything that is not durable: all writes since the last commit, and an epoch
    /// begun that has not become durable. The newest version is the checkpoint again.
    fn abandon(&mut self);

    /// The last durable commit.
    fn epoch(&self) -> Epoch;

    /// What an owner, a person or a script may want to know. Cheap enough to be asked before and after each commit.
    fn info(&self) -> Info;

    /// Reads everything there is and verifies every checksum. Empty when all is well.
    ///
    /// # Errors
    /// [`crate::Error::Io`] when reading itself fails.
    fn check(&self) -> Result<Vec<Damage>>;
}

/// How far a commit came.
pub enum Commit {
    /// It is the checkpoint.
    Durable(Epoch),
    /// All of it is handed over, and this is to be waited for.
    Flushing(Arc<dyn Flush>),
}

/// What a scheme leaves to the time that its owner chooses.
pub trait Idle: Scheme {
    /// As [`Scheme::commit`], up to its last wait for a device. Whoever has the answer waits, and gives the outcome to
    /// [`Idle::end_commit`]; in between the scheme is read and asked, nothing else.
    ///
    /// # Errors
    /// As [`Scheme::commit`].
    fn begin_commit(&mut self, context: &[u8]) -> Result<Commit> {
        self.commit(context).map(Commit::Durable)
    }

    /// The wait that [`Idle::begin_commit`] asked for is over.
    ///
    /// # Errors
    /// As [`Scheme::commit`]; [`crate::Error::Invalid`] when no commit has begun.
    fn end_commit(&mut self, flushed: io::Result<()>) -> Result<Epoch> {
        let _ = flushed;
        Err(Error::Invalid("no commit has begun: begin one first".into()))
    }

    /// The traffic of [`Scheme::info`] alone: it is asked for twice a commit.
    fn traffic(&self) -> Traffic {
        self.info().traffic
    }

    /// Brings some pages that the checkpoint has in two homes to one, and gives the space of the other back to the
    /// medium: whether another step may find more. A step is about as long as a commit of an extent. The checkpoint
    /// stays as it is, and so does what was written since.
    ///
    /// # Errors
    /// As [`Scheme::commit`].
    fn give_back(&mut self) -> Result<bool> {
        Ok(false)
    }
}

/// The tables with which a scheme's controller finds a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TableEntry {
    /// No table: a page is where it is.
    None,
    /// A table in the controller itself.
    Controller,
    /// A table in DRAM, with an entry for the page.
    Mapped,
    /// A table in DRAM, without an entry for the page.
    Unmapped,
}

/// What only a simulated machine asks of a scheme: the work of a controller, off and on its critical path.
pub trait Simulated: Idle {
    /// The page will be written soon: allocates its derivative page off the critical path (DPC 4.4.3).
    ///
    /// # Errors
    /// As [`Scheme::write`].
    fn preallocate(&mut self, page: PageId) -> Result<Pressure> {
        let _ = page;
        Ok(Pressure::None)
    }

    /// Ends the epoch without waiting for it: later writes belong to the next one,
    /// while [`Simulated::proceed`] makes this one durable (ThyNVM 3.2: checkpointing overlaps with
    /// execution). One begun before is durable first. Says which epoch this one is. A scheme that
    /// cannot overlap commits here and now.
    ///
    /// # Errors
    /// As [`Scheme::commit`].
    fn begin(&mut self, context: &[u8]) -> Result<Epoch> {
        self.commit(context)
    }

    /// Works on the epoch begun: writes about `lines` lines of it. True when nothing is left to do
    /// and [`Scheme::epoch`] is the epoch begun.
    ///
    /// # Errors
    /// As [`Scheme::commit`].
    fn proceed(&mut self, lines: u64) -> Result<bool> {
        let _ = lines;
        Ok(true)
    }

    /// From now on a commit does not refill a limited pool: the owner calls [`Simulated::reclaim`] when
    /// nothing waits for it (DPC 4.4.3).
    fn defer_reclaim(&mut self) {}

    /// Pages to reclaim so that a limited pool has as many derivative pages free as were handed out since the
    /// last time; `None` from a scheme without a pool.
    fn shortage(&mut self) -> Option<u64> {
        None
    }

    /// Frees up to `pages` derivative pages of clean pages: their lines are copied home. Durable when it returns.
    /// Says how many were freed.
    ///
    /// # Errors
    /// As [`Scheme::commit`].
    fn reclaim(&mut self, pages: u64) -> Result<u64> {
        let _ = pages;
        Ok(0)
    }

    /// Whether the owner keeps the page where it is quickly written again (DPC: cached in DRAM).
    /// Reclaim takes such pages last. Forgotten when the page is discarded or the store closed.
    fn set_cached(&mut self, page: PageId, cached: bool) {
        let _ = (page, cached);
    }

    /// How the controller finds the page.
    fn table_entry(&self, page: PageId) -> TableEntry {
        let _ = page;
        TableEntry::Controller
    }

    /// Entries of the table in DRAM, where there is one.
    fn table_entries(&self) -> Option<u64> {
        None
    }

    /// Bytes of DRAM that the scheme's own pages and lines take now, where it keeps some there.
    fn dram_bytes(&self) -> Option<u64> {
        None
    }

    /// The cause of the writes that go before what a program wrote, where there are some: an undo log's entries, or the
    /// rest of a page that is copied.
    fn writes_first(&self) -> Option<Cause> {
        None
    }

    /// Whether a page that is written again in an epoch may have to move for it (page overlays).
    fn grows(&self) -> bool {
        false
    }
}

/// The methods of [`Scheme`], each asked of the store that `$each!(self, store => ...)` finds.
#[macro_export]
macro_rules! forward_scheme {
    ($each:ident) => {
        fn geometry(&self) -> Geometry {
            $each!(self, store => store.geometry())
        }
        fn read(&self, page: PageId, first: usize, into: &mut [u8]) -> Result<()> {
            $each!(self, store => store.read(page, first, into))
        }
        fn view(&self, page: PageId, first: usize, len: usize) -> Option<&[u8]> {
            $each!(self, store => store.view(page, first, len))
        }
        fn is_present(&self, page: PageId) -> bool {
            $each!(self, store => store.is_present(page))
        }
        fn diff(&self, lines: &PageLines<'_>) -> Result<LineMask> {
            $each!(self, store => store.diff(lines))
        }
        #[inline]
        fn write(&mut self, lines: PageLines<'_>) -> Result<Pressure> {
            $each!(self, store => store.write(lines))
        }
        fn fold_hints(&mut self) -> Result<FoldHints> {
            $each!(self, store => store.fold_hints())
        }
        fn discard(&mut self, pages: Range<PageId>) -> Result<()> {
            $each!(self, store => store.discard(pages))
        }
        fn commit(&mut self, context: &[u8]) -> Result<Epoch> {
            $each!(self, store => store.commit(context))
        }
        fn abandon(&mut self) {
            $each!(self, store => store.abandon());
        }
        fn epoch(&self) -> Epoch {
            $each!(self, store => store.epoch())
        }
        fn info(&self) -> Info {
            $each!(self, store => store.info())
        }
        fn check(&self) -> Result<Vec<Damage>> {
            $each!(self, store => store.check())
        }
    };
}
#[doc(inline)]
pub use forward_scheme;
