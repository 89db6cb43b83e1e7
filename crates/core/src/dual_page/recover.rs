//! The checkpoint, found again from the bytes alone.
//!
//! ```text
//! superblock -> switch records -> the valid slot: snapshot, then records one after the other -> mark
//!            -> owner of each extent -> context -> the fall-back's lines copied home
//! ```
//!
//! * Nothing is believed: every checksum is verified, every extent and derivative page must lie inside
//!   the medium and belong to one alone, and no length is trusted before it is compared with the medium's.
//! * A torn record at the end is what a crash leaves, and is not there. A bad record before a good one,
//!   or a journal that ends before the mark says, is damage.
//! * An unfenced record at the end that the mark does not name is torn unless its lines have the checksums in it.
//! * Nothing is written unless all is well; then only lines of the fall-back are, and doing it twice
//!   does no harm.

use super::DualPage;
use super::fault::Fault;
use super::journal::{ContextMark, Redo};
use super::map::{Flags, Key, Life, Table};
use super::pool::Pool;
use super::replay::Replay;
use super::slots::Slots;
use super::snapshot;
use super::space::{Role, Space};
use super::sums::Sums;
use super::superblock::{BLOCK, Superblock, Switch};
use crate::error::{Error, Result};
use crate::geometry::LineMask;
use crate::medium::{Medium, bytes, read_array};
use crate::scheme::{Epoch, Recovered, Scheme};
use crc32c::{crc32c, crc32c_append};

/// The content of the medium, verified.
pub(super) struct Loaded {
    pub(super) slots: Slots,
    pub(super) table: Table,
    pub(super) space: Space,
    pub(super) pool: Pool,
    pub(super) context: ContextMark,
    /// The lines that the last record leaves in the fall-back, and the extents that hold them.
    pub(super) redo: Vec<(Key, Redo)>,
    pub(super) redo_extents: Vec<u32>,
    pub(super) sums: Option<Sums>,
    pub(super) epoch: Epoch,
    /// The lines of the last record, if it is unfenced and may be torn.
    pub(super) unfenced: Option<Vec<(Key, LineMask)>>,
}

impl Loaded {
    /// Whether the lines of a record that is valid by them are as its checksums say.
    fn has_its_lines(&self, medium: &impl Medium) -> Result<bool> {
        let (Some(pages), Some(sums)) = (&self.unfenced, &self.sums) else {
            return Ok(true);
        };
        let geometry = self.slots.superblock.geometry;
        for &(key, lines) in pages {
            let Some(place) = self.table.find(key) else {
                continue;
            };
            let (entry, base) = (&self.table[place], self.table.base(place));
            let homes = [
                (base, lines & !entry.cpbv),
                (
                    entry.frame.map_or(base, |frame| frame.number()),
                    lines & entry.cpbv,
                ),
            ];
            for (home, lines) in homes {
                for run in lines.runs() {
                    let at = home * geometry.page_bytes() as u64 + (run.start * geometry.line_bytes()) as u64;
                    let found = bytes(medium, at, run.len() * geometry.line_bytes())?;
                    if !sums.wrong(at, &found).is_empty() {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }
}

/// Reads all there is but pages, and of them the lines that the last record must have to be valid.
pub(super) fn load(medium: &impl Medium, fault: Option<Fault>) -> Result<Loaded> {
    let loaded = load_until(medium, u64::MAX)?;
    if fault == Some(Fault::TrustUnfenced) || loaded.has_its_lines(medium)? {
        return Ok(loaded);
    }
    // The record before it is durable, as it was when this one was written.
    let mut loaded = load_until(medium, loaded.slots.sequence - 1)?;
    loaded.slots.incomplete = true;
    Ok(loaded)
}

/// As [`load`], up to record `last` of the journal.
fn load_until(medium: &impl Medium, last: u64) -> Result<Loaded> {
    let superblock = read_superblock(medium)?;
    let seed = superblock.seed();
    let mark_before = read_array(medium, superblock.mark_at())?;
    let geometry = superblock.geometry;
    let mut space = Space::new(geometry, medium.len());
    let (switch, other) = read_switches(medium, &superblock)?;
    let at = superblock.switch_at(switch.generation);
    for extent in switch.slot.extents() {
        if !space.occupy(extent.into(), Role::Slot) {
            let why = format!("slot extent {extent}, the medium has {} extents", space.extents());
            return Err(Error::damaged("switch record", at, why));
        }
    }
    let mut replay = Replay {
        superblock,
        switch,
        space,
        ..read_snapshot(medium, &superblock, &switch)?
    };
    replay.occupy_bases()?;
    let tail = replay.run(medium, last)?;
    let mark = replay.check_mark(medium, mark_before)?;
    let (epoch, sequence) = (replay.epoch, replay.sequence);
    // Every record was found to be the next one, of the same epoch as the one before or the next.
    assert!(
        epoch >= switch.epoch && epoch - switch.epoch <= sequence - switch.sequence,
        "epoch {epoch} after record {sequence}, from epoch {} after record {}",
        switch.epoch,
        switch.sequence
    );
    let slot = Slots::slot_bytes(&superblock, switch.slot);
    assert!(
        (slot.start..=slot.end).contains(&tail),
        "the journal ends at byte {tail}, outside its slot {slot:?}"
    );
    let redo_extents = find_redo(&superblock, &replay.table, &replay.redo, &mut replay.space)?;
    let pool = find_pool(&superblock, &replay.table, &mut replay.space)?;
    let next = Slots::generation_after(&switch, other.map(|other| other.generation), sequence);
    let spare = other.map(|other| other.slot).filter(|slot| {
        // One past the last extent there can be has none to look at.
        slot.extents().len() == slot.count as usize
            && slot
                .extents()
                .all(|extent| replay.space.role(extent.into()) == Some(Role::Free))
    });
    for extent in spare.iter().flat_map(|slot| slot.extents()) {
        replay.space.occupy(extent.into(), Role::Slot);
    }
    let unmarked = mark != sequence;
    let slots = Slots {
        superblock,
        seed,
        switch,
        next,
        spare,
        tail,
        sequence,
        torn: true,
        incomplete: false,
        unmarked,
        lags: false,
        payload_at: replay.payload_at,
        fenced: 0,
    };
    Ok(Loaded {
        slots,
        table: replay.table,
        space: replay.space,
        pool,
        context: replay.context,
        redo: replay.redo,
        redo_extents,
        sums: replay.sums,
        epoch,
        unfenced: replay.unfenced.filter(|_| unmarked),
    })
}

fn read_superblock(medium: &impl Medium) -> Result<Superblock> {
    if medium.len() < BLOCK as u64 {
        return Err(Error::Foreign(format!(
            "{} bytes are too few for a superblock",
            medium.len()
        )));
    }
    let superblock = Superblock::decode(&read_array(medium, 0)?)?;
    let extent = superblock.geometry.extent_bytes() as u64;
    if medium.len() < extent {
        let why = format!("{} bytes are left of the first extent of {extent}", medium.len());
        return Err(Error::damaged("medium", medium.len(), why));
    }
    Ok(superblock)
}

/// The valid switch record, and the other if there is one.
fn read_switches(medium: &impl Medium, superblock: &Superblock) -> Result<(Switch, Option<Switch>)> {
    let seed = superblock.seed();
    let mut found = Vec::new();
    for index in 0..2 {
        let record = Switch::decode(&read_array(medium, superblock.switch_at(index))?, seed);
        found.extend(record.filter(|switch| switch.generation % 2 == index));
    }
    found.sort_unstable_by_key(|switch| switch.generation);
    let Some(switch) = found.pop() else {
        return Err(Error::damaged(
            "switch record",
            superblock.switch_at(0),
            "neither of the two is valid",
        ));
    };
    if !switch.is_possible() {
        let Switch {
            generation,
            sequence,
            epoch,
            ..
        } = switch;
        let why = format!("generation {generation}, record {sequence}, epoch {epoch}: no store gets there");
        return Err(Error::damaged(
            "switch record",
            superblock.switch_at(generation),
            why,
        ));
    }
    let end = Slots::slot_bytes(superblock, switch.slot).end;
    let len = end - Slots::slot_bytes(superblock, switch.slot).start;
    if end > medium.len() || switch.snapshot_len > len {
        let why = format!(
            "a slot that ends at byte {end} of {}, with a snapshot of {} bytes",
            medium.len(),
            switch.snapshot_len
        );
        return Err(Error::damaged(
            "switch record",
            superblock.switch_at(switch.generation),
            why,
        ));
    }
    Ok((switch, found.pop()))
}

fn read_snapshot(medium: &impl Medium, superblock: &Superblock, switch: &Switch) -> Result<Replay> {
    let at = Slots::slot_bytes(superblock, switch.slot).start;
    let bytes = bytes(medium, at, switch.snapshot_len as usize)?;
    let crc = crc32c_append(superblock.seed(), &bytes);
    if crc != switch.snapshot_crc {
        let why = format!(
            "checksum {crc:08x}, its switch record says {:08x}",
            switch.snapshot_crc
        );
        return Err(Error::damaged("snapshot", at, why));
    }
    let space = Space::new(superblock.geometry, medium.len());
    let decoded = snapshot::decode(&bytes, superblock.geometry, space.extents(), superblock.checksums);
    let (table, rest) = decoded.map_err(|why| Error::damaged("snapshot", at, why))?;
    Ok(Replay {
        superblock: *superblock,
        switch: *switch,
        space,
        table,
        context: rest.context,
        redo: rest.redo,
        sums: rest.sums,
        sequence: switch.sequence,
        epoch: switch.epoch,
        unfenced: None,
        payload_at: None,
        marked: [2, 1, 0].map(|before| switch.sequence.saturating_sub(before)),
    })
}

/// The owner of each derivative page.
fn find_pool(superblock: &Superblock, table: &Table, space: &mut Space) -> Result<Pool> {
    let pages = superblock.geometry.extent_pages();
    let mut pool = Pool::new(pages, superblock.pool_pages);
    for extent in table.in_order() {
        for (index, entry) in extent.entries.iter().enumerate() {
            let Some(frame) = entry.frame else { continue };
            let (home, key) = (frame.number() / pages, Key(extent.logical * pages + index as u64));
            if space.role(home) == Some(Role::Free) {
                space.occupy(home, pool.next_role());
                pool.add(home as u32);
            }
            let ours = match space.role(home) {
                Some(Role::Pool(index)) => pool.adopt(index, frame, key),
                _ => false,
            };
            if !ours {
                let at = frame.number() * superblock.geometry.page_bytes() as u64;
                let why = format!(
                    "of page {}: it is taken, one too many, or not on the medium",
                    key.0
                );
                return Err(Error::damaged("derivative page", at, why));
            }
        }
    }
    while pool.is_limited() && pool.may_grow() {
        let Some(extent) = space.claim_free(pool.next_role()) else {
            break;
        };
        pool.add(extent);
    }
    Ok(pool)
}

/// The extents of the fall-back's lines.
fn find_redo(
    superblock: &Superblock,
    table: &Table,
    redo: &[(Key, Redo)],
    space: &mut Space,
) -> Result<Vec<u32>> {
    let line = superblock.geometry.line_bytes() as u64;
    let mut extents = Vec::new();
    for (key, redo) in redo {
        let entry = table.entry(*key);
        let fits = entry.life() == Life::Present && entry.frame.is_none();
        for place in &redo.places {
            let extent = space.extent_of(place.saturating_mul(line));
            if space.occupy(extent, Role::Fallback) {
                extents.push(extent as u32);
            }
            if !fits || space.role(extent) != Some(Role::Fallback) {
                let why = format!("of page {}: it is taken or not on the medium", key.0);
                return Err(Error::damaged("fall-back line", place.saturating_mul(line), why));
            }
        }
    }
    Ok(extents)
}

impl<M: Medium> DualPage<M> {
    /// The checkpoint on `medium`. `fault` is planted from the start, for tests.
    /// [`DualPage::recover`], making a mistake from the start.
    #[doc(hidden)]
    pub fn recover_with(medium: M, fault: Option<Fault>) -> Result<(DualPage<M>, Recovered)> {
        let loaded = load(&medium, fault)?;
        let epoch = loaded.epoch;
        let (mut store, redo) = DualPage::assemble(medium, loaded);
        store.fault = fault;
        for (key, redo) in redo {
            if let Some(place) = store.table.find(key) {
                store.table[place].set(Flags::FALLBACK, true);
                store.fallback.pages.insert(key, redo);
            }
        }
        let context = store.read_context()?;
        if store.faulty(Fault::ForgetRedo) {
            store.fallback.pages.clear();
        }
        store.try_redo()?;
        Ok((store, Recovered { epoch, context }))
    }

    /// The context of the last commit, verified.
    pub(super) fn read_context(&self) -> Result<Vec<u8>> {
        let (page_bytes, line) = (self.geometry().page_bytes(), self.geometry().line_bytes());
        let ContextMark { len, crc } = self.context;
        let at = Slots::slot_bytes(&self.slots.superblock, self.slots.switch.slot).start;
        let pages = len.div_ceil(page_bytes as u64);
        // Before anything is allocated: every page of the context is there.
        if let Some(page) = (0..pages).find(|&page| self.table.entry(Key(page)).life() != Life::Present) {
            return Err(Error::damaged(
                "context",
                at,
                format!("its page {page} of {pages} is missing"),
            ));
        }
        let mut context = Vec::new();
        for page in 0..pages {
            let from = context.len();
            let rest = ((len - from as u64) as usize).min(page_bytes);
            context.resize(from + rest.next_multiple_of(line), 0);
            self.read_key(Key(page), 0, &mut context[from..])?;
        }
        context.truncate(len as usize);
        let found = crc32c(&context);
        if found != crc {
            return Err(Error::damaged(
                "context",
                at,
                format!("checksum {found:08x}, its commit says {crc:08x}"),
            ));
        }
        Ok(context)
    }
}
