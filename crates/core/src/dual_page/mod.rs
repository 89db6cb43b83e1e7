//! The dual-page scheme: every page has two homes, two bits a line say which holds what (DPC).
//!
//! Reading order: `map.rs` is the idea; `lines.rs` is the mapping at work; `commit.rs` ends an epoch;
//! `pool.rs` and `reclaim.rs` are derivative pages and where they come from; `fallback.rs` is what
//! happens when there are none; `journal.rs`, `snapshot.rs`, `slots.rs` and `superblock.rs` make the
//! mapping durable; `recover.rs` finds it again and `check.rs` compares. `sums.rs` are the checksums of lines.
//!
//! The medium is one growing sequence of equal extents (`space.rs`):
//!
//! ```text
//! | superblock | slot: snapshot, journal | slot | base | base | pool | base | fall-back | ...
//!   switch records, mark                           logical extent -> physical, on demand
//! ```
//!
//! Invariants, each kept where it is named:
//! * No byte the checkpoint needs is written before another checkpoint is durable (`map.rs`).
//! * A record is written when all it speaks of is durable, or is valid only if its lines are as their checksums in
//!   it say (`slots.rs`, `commit.rs`).
//! * One write makes a commit: a record, or a switch record (`slots.rs`).
//! * Nothing is used again before the record that lets it go is durable (`reclaim.rs`, `fallback.rs`).
//! * After a failed write or fence nothing is called durable (this file).

mod check;
pub(crate) mod codec;
mod commit;
mod context;
mod fallback;
mod fault;
mod journal;
mod lines;
mod map;
mod payload;
mod pool;
mod reclaim;
mod recover;
mod replay;
mod scheme;
mod slots;
mod snapshot;
mod space;
mod sums;
mod superblock;

#[cfg(any(test, feature = "faults"))]
pub use fault::Fault;
#[cfg(not(any(test, feature = "faults")))]
use fault::Fault;

use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::geometry::{Geometry, LineMask, PageLines};
use crate::medium::{Cause, Medium, Offset};
use crate::metered::Metered;
use crate::scheme::{Commit, Epoch, Recovered};
use crate::shell::Shell;
use fallback::Fallback;
use journal::{Change, ContextMark, Redo};
use map::{CONTEXT_EXTENTS, EntryIndex, Key, MAX_EXTENTS, Table};
use pool::Pool;
use recover::Loaded;
use slots::Slots;
use snapshot::Version;
use space::{Role, Space};
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Mutex;
use sums::Sums;
use superblock::{BLOCK, JOURNAL_LIMIT, Slot, Superblock, Switch};

/// How many derivative pages there may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoolLimit {
    /// As many as are needed; space is given back. For files.
    Grow,
    /// This number, set apart when the store is made. For media of a fixed size.
    Pages(u64),
    /// This number of thousandths of the medium's pages. DPC has 37.
    PerMille(u32),
}

/// Bits a page of the derivative page table costs in the controller: the base page's number in a
/// 48-bit address space, and whether the entry is valid (DPC Tables 2 and 3).
pub const BITS_PER_PAGE: u64 = 36 + 1;

/// Bits of the table in the controller for a number of derivative pages (DPC 5.5.1). The two bits a line
/// are in DRAM but for one entry.
#[must_use]
pub fn metadata_bits(derivative_pages: u64) -> u64 {
    derivative_pages * BITS_PER_PAGE
}

/// How a store is made. None of it can be changed later.
#[derive(Clone, Debug)]
pub struct Options {
    /// How the medium is cut.
    pub geometry: Geometry,
    /// How many derivative pages there may be.
    pub pool: PoolLimit,
    /// Bytes a journal has at least. A longer one makes snapshots rarer and recovery longer.
    pub journal_bytes: u64,
    /// Whether every line of a page has a checksum, verified when it is read and by
    /// [`Scheme::check`](crate::Scheme::check). It takes four bytes a line in memory, in the record of the commit that
    /// writes the line and in snapshots. If not said, where lines on the medium are of 4096 bytes or more.
    pub checksums: Option<bool>,
    /// Tells the store from others that were on the same medium; a random number if not given.
    pub id: Option<u64>,
}

impl Options {
    /// A growing pool, a journal of a mebibyte, and checksums where lines are those of a disk: 4096 bytes or more.
    #[must_use]
    pub fn new(geometry: Geometry) -> Options {
        Options {
            geometry,
            pool: PoolLimit::Grow,
            journal_bytes: 1 << 20,
            checksums: None,
            id: None,
        }
    }

    /// The same with checksums of lines, or without.
    #[must_use]
    pub fn checksums(self, checksums: bool) -> Options {
        let checksums = Some(checksums);
        Options { checksums, ..self }
    }

    /// The same with this pool.
    #[must_use]
    pub fn pool(self, pool: PoolLimit) -> Options {
        Options { pool, ..self }
    }

    /// The same with a journal of at least this number of bytes.
    #[must_use]
    pub fn journal_bytes(self, journal_bytes: u64) -> Options {
        Options {
            journal_bytes,
            ..self
        }
    }

    /// The same with this id, for runs that must repeat byte for byte.
    #[must_use]
    pub fn id(self, id: u64) -> Options {
        Options { id: Some(id), ..self }
    }
}

/// Pages one past the last there can be.
fn page_limit(geometry: Geometry) -> u64 {
    (MAX_EXTENTS - CONTEXT_EXTENTS) * geometry.extent_pages()
}

/// The longest context, in bytes.
fn context_limit(geometry: Geometry) -> u64 {
    CONTEXT_EXTENTS * geometry.extent_bytes() as u64
}

/// The scheme, on its medium. See the [module](self).
#[derive(Debug)]
pub struct DualPage<M> {
    medium: Metered<M>,
    shell: Shell,
    table: Table,
    space: Space,
    pool: Pool,
    slots: Slots,
    fallback: Fallback,
    /// Checksums of lines, in a store that has them.
    sums: Option<Sums>,
    context: ContextMark,
    written_context: context::WrittenContext,
    epoch: Epoch,
    /// Pages with something to look at when the epoch ends, and their entries, which stay where they are until then.
    touched: Vec<(Key, EntryIndex)>,
    /// Logical extents claimed in this epoch.
    claimed: Vec<u64>,
    /// No derivative page can be had before the epoch ends.
    exhausted: bool,
    /// A commit leaves the refilling of a limited pool to the owner.
    defers_reclaim: bool,
    /// The commit whose last fence has begun.
    flying: Option<commit::Flying>,
    /// Lines of the last commit are in the fall-back still: there was no room to copy them home.
    redo_pending: bool,
    fault: Option<Fault>,
    // Buffers, kept to be used again.
    change: Change,
    record: Vec<u8>,
    /// Behind a lock so that several readers can share the scheme while they restore.
    scratch: Mutex<Buffer>,
}

impl<M: Medium> DualPage<M> {
    /// A new store on `medium`, whatever was there before. It has no checkpoint yet: epoch 0, no
    /// pages, an empty context. Durable when it returns; after a crash before that there is no store.
    ///
    /// # Errors
    /// [`Error::Full`] when not even an empty store fits, [`Error::Invalid`] for options that make no sense.
    pub fn create(mut medium: M, options: &Options) -> Result<DualPage<M>> {
        if options.journal_bytes > JOURNAL_LIMIT {
            let asked = options.journal_bytes;
            return Err(Error::Invalid(format!(
                "a journal of {asked} bytes: at most {JOURNAL_LIMIT}"
            )));
        }
        let checksums = options.checksums.unwrap_or(sums::are_default(options.geometry));
        let superblock = Superblock {
            geometry: options.geometry,
            id: options
                .id
                .unwrap_or_else(|| RandomState::new().build_hasher().finish()),
            pool_pages: pool_pages(&medium, options)?,
            journal_bytes: options.journal_bytes,
            checksums,
            unfenced: checksums,
            payloads: checksums,
        };
        if medium.len() >= BLOCK as u64 {
            medium.write(0, &[0; BLOCK])?;
            medium.fence()?;
        }
        medium.grow(options.geometry.extent_bytes() as u64)?;
        let mut space = Space::new(options.geometry, medium.len());
        let mut pool = Pool::new(options.geometry.extent_pages(), superblock.pool_pages);
        let slots = create_slots(&mut medium, &mut space, superblock)?;
        while pool.is_limited() && pool.may_grow() {
            let (extent, _) = space.claim(&mut medium, pool.next_role())?;
            pool.add(extent);
        }
        medium.fence()?;
        medium.write(0, &superblock.encode())?;
        medium.fence()?;
        let sums = superblock
            .checksums
            .then(|| Sums::new(options.geometry, space.extents()));
        let nothing = Loaded {
            slots,
            table: Table::new(options.geometry.extent_pages()),
            space,
            pool,
            context: ContextMark::default(),
            redo: Vec::new(),
            redo_extents: Vec::new(),
            sums,
            epoch: 0,
            unfenced: None,
        };
        Ok(DualPage::assemble(medium, nothing).0)
    }

    /// The scheme that is on the medium, and the lines still in its fall-back.
    fn assemble(medium: M, loaded: Loaded) -> (DualPage<M>, Vec<(Key, Redo)>) {
        let geometry = loaded.slots.superblock.geometry;
        let store = DualPage {
            medium: Metered::new(medium),
            shell: Shell::new(geometry, page_limit(geometry), context_limit(geometry)),
            table: loaded.table,
            space: loaded.space,
            pool: loaded.pool,
            slots: loaded.slots,
            fallback: Fallback::in_extents(loaded.redo_extents),
            sums: loaded.sums,
            context: loaded.context,
            written_context: context::WrittenContext::default(),
            epoch: loaded.epoch,
            touched: Vec::new(),
            claimed: Vec::new(),
            exhausted: false,
            defers_reclaim: false,
            flying: None,
            redo_pending: false,
            fault: None,
            change: Change::default(),
            record: Vec::new(),
            scratch: Mutex::default(),
        };
        (store, loaded.redo)
    }

    /// The checkpoint on `medium`, exactly as its last durable commit left it.
    ///
    /// # Errors
    /// [`Error::Damaged`] and [`Error::Foreign`] name the fault and its place; nothing is written then.
    pub fn recover(medium: M) -> Result<(DualPage<M>, Recovered)> {
        DualPage::recover_with(medium, None)
    }

    /// The medium.
    pub fn medium(&self) -> &M {
        self.medium.inner()
    }

    /// The medium, and an end to the scheme. Writes without a commit are forgotten.
    pub fn into_medium(self) -> M {
        self.medium.into_inner()
    }

    /// Posts a write and counts it.
    fn post(&mut self, at: Offset, bytes: &[u8], cause: Cause) -> Result<()> {
        self.medium.on(cause);
        self.medium.write(at, bytes)
    }

    /// The lines at byte `at` were written: they have a checksum from here on.
    fn sum(&mut self, at: Offset, bytes: &[u8]) {
        if !self.faulty(Fault::ForgetSum)
            && let Some(sums) = &mut self.sums
        {
            sums.wrote(at, bytes);
        }
    }

    /// As [`DualPage::post`], of those `chosen` of some lines, to page `number` of the medium.
    fn post_lines(
        &mut self,
        number: u64,
        chosen: LineMask,
        lines: &PageLines<'_>,
        cause: Cause,
    ) -> Result<()> {
        self.medium.on(cause);
        self.medium.write_lines(self.at(number, 0), chosen, lines)?;
        if self.sums.is_some() {
            for run in chosen.runs() {
                self.sum(self.at(number, run.start), lines.run(run));
            }
        }
        Ok(())
    }

    /// Everything posted is durable.
    fn fence(&mut self) -> Result<()> {
        self.medium.on(Cause::Journal);
        self.medium.fence()?;
        self.slots.fenced = self.medium.len();
        Ok(())
    }

    /// A failure after the commit was durable: the next caller is told.
    fn poison_if(&mut self, result: Result<()>) {
        if let Err(error) = result {
            self.shell.poison().set(&error);
        }
    }

    /// What recovery, or the last commit, left to do.
    #[cold]
    fn make_up(&mut self) -> Result<()> {
        assert!(
            self.flying.is_none(),
            "a commit that has begun ends before anything else"
        );
        if self.redo_pending {
            self.finish_redo()?;
        }
        if self.slots.torn {
            self.erase_torn()?;
        }
        if std::mem::take(&mut self.slots.incomplete) && !self.faulty(Fault::CompleteLater) {
            self.fence()?;
        }
        if self.slots.unmarked || self.slots.lags {
            self.post_mark()?;
        }
        Ok(())
    }
}

/// The limit of the derivative page pool, from the superblock.
fn pool_pages(medium: &impl Medium, options: &Options) -> Result<u64> {
    match options.pool {
        PoolLimit::Grow => Ok(u64::MAX),
        PoolLimit::Pages(pages) => Ok(pages),
        PoolLimit::PerMille(share) => match medium.len() / options.geometry.page_bytes() as u64 {
            0 => Err(Error::Invalid(
                "a share of a medium that is empty: say how many pages".into(),
            )),
            pages => Ok((pages * u64::from(share)).div_ceil(1000)),
        },
    }
}

/// Both slots, the first of them with a snapshot of nothing, and the mark. Posted.
fn create_slots(medium: &mut impl Medium, space: &mut Space, superblock: Superblock) -> Result<Slots> {
    let mut snapshot = Vec::new();
    let table = Table::new(superblock.geometry.extent_pages());
    snapshot::encode(
        &table,
        Version::Checkpoint,
        ContextMark::default(),
        &[],
        None,
        &mut snapshot,
    );
    let count = Slots::extents_for(&superblock, snapshot.len() as u64);
    let slot = Slot {
        first: space.claim_run(medium, count, Role::Slot)?,
        count,
    };
    let spare = Slot {
        first: space.claim_run(medium, count, Role::Slot)?,
        count,
    };
    let seed = superblock.seed();
    let switch = Switch {
        generation: 1,
        slot,
        snapshot_crc: crc32c::crc32c_append(seed, &snapshot),
        snapshot_len: snapshot.len() as u64,
        sequence: 0,
        epoch: 0,
    };
    let mut slots = Slots {
        superblock,
        seed,
        switch,
        next: switch.generation + 1,
        spare: None,
        tail: 0,
        sequence: 0,
        torn: false,
        incomplete: false,
        unmarked: false,
        lags: false,
        payload_at: None,
        fenced: 0,
    };
    slots.switched(switch);
    slots.spare = Some(spare);
    medium.write(Slots::slot_bytes(&superblock, slot).start, &snapshot)?;
    medium.write(superblock.switch_at(0), &[0; BLOCK])?;
    medium.write(superblock.switch_at(1), &switch.encode(seed))?;
    let (at, mark) = slots.mark();
    medium.write(at, &mark)?;
    Ok(slots)
}
