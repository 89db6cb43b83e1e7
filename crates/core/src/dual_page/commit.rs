//! The end of an epoch: everything written becomes the checkpoint, or is forgotten.
//!
//! ```text
//! lines, context, copies home      posted
//! fence                            they are durable; left out where the record is valid by their checksums
//! one journal record               or a snapshot and, after another fence, the switch record
//! fence                            the commit is durable
//! mark, copies from the fall-back  posted
//! ```
//!
//! The states of a commit, and what a crash in each leaves:
//!
//! | state | on the medium | goes on to | recovery finds |
//! | --- | --- | --- | --- |
//! | written | lines posted | fence: covered | the checkpoint before |
//! | covered | lines durable, or unfenced | record posted: torn | the checkpoint before |
//! | torn | the record, any part of it | fence: durable | one of the two |
//! | durable | the record | bits flip, mark posted: settled | the new checkpoint |
//! | settled | the mark, copies from the fall-back | the next epoch | the new checkpoint |
//! | lost | no room, before torn | abandoned: the epoch before | the checkpoint before |
//! | poisoned | a write or a fence failed | nothing | one of the two |
//!
//! A switch to the other slot passes through them twice: the snapshot is to the switch record what the lines are to
//! a record of the journal.
//!
//! * A record is unfenced where all it speaks of is lines with checksums in it, few enough for recovery to read them,
//!   on a medium that did not grow since the last fence: one fence makes such a commit.
//! * Nothing the checkpoint needs is overwritten or freed before the commit is durable.
//! * A failure before the record is written leaves the epoch to be abandoned; after it, the commit
//!   is durable, and a failure of what follows poisons the store for the next caller.
//! * A commit with a payload (`payload.rs`) writes no lines and no mark: one write and one fence.
//! * The cost is that of the pages touched, not of the table; a snapshot pays for the whole table
//!   once a journal that is several times as long.

use super::fault::Fault;
use super::journal::{self, ContextMark, Stamp};
use super::map::{Extent, Flags, Key, Life};
use super::slots::{ERASED, Slots};
use super::snapshot::{self, Version};
use super::space::Role;
use super::sums::line_of;
use super::superblock::{Slot, Switch};
use super::{Cause, DualPage};
use crate::error::{Error, Result};
use crate::geometry::{LINES_PER_PAGE, LineMask};
use crate::medium::{Flush, Medium};
use crate::scheme::{Epoch, Scheme};
use std::sync::Arc;

/// Lines of an unfenced record at most: recovery reads them.
const UNFENCED_LINES: usize = 1024;

/// What the next fence makes durable.
#[derive(Clone, Copy, Debug)]
enum Posted {
    /// A record of this many bytes at the end of the journal. Planted faults take it for durable.
    Record {
        len: u64,
        fenced: bool,
        has_payload: bool,
        version: Version,
    },
    /// A snapshot in the other slot is durable, with the records that follow it, and this names it.
    Switch { switch: Switch, followers: Followers },
}

impl Posted {
    /// Whether it is taken for durable without a fence: a planted fault.
    fn is_fenced(self) -> bool {
        matches!(self, Posted::Record { fenced: true, .. })
    }
}

/// Records that follow a new snapshot.
#[derive(Clone, Copy, Debug)]
struct Followers {
    count: u64,
    len: u64,
}

/// A commit whose last fence has begun.
#[derive(Debug)]
pub(super) struct Flying {
    posted: Posted,
    mark: ContextMark,
    /// Pages on their way home.
    home: Vec<Key>,
}

impl<M: Medium> DualPage<M> {
    /// Posts everything written as a commit with `context`, up to the wait for it: of that nothing is left where the
    /// medium has no use for it.
    pub(super) fn post_newest(&mut self, context: &[u8]) -> Result<Option<Arc<dyn Flush>>> {
        let mark = self.set_context(context)?;
        let home = match self.defers_reclaim {
            true => Vec::new(),
            false => match self.find_shortage() {
                0 => Vec::new(),
                wanted => self.reclaim_pages(wanted)?,
            },
        };
        self.gather(mark, &home);
        let posted = self.post_change(self.epoch + 1, Version::Newest);
        let begun = posted.and_then(|posted| Ok((posted, self.begin_wait(posted)?)));
        match begun {
            Ok((posted, flush)) => {
                self.flying = Some(Flying { posted, mark, home });
                Ok(flush)
            }
            Err(error) => {
                self.abort_reclaim(&home);
                Err(error)
            }
        }
    }

    /// Posts a commit of nothing but a payload, up to the wait for it: one write.
    pub(super) fn post_payload(&mut self, payload: &[u8]) -> Result<Option<Arc<dyn Flush>>> {
        self.change.clear();
        self.change.context = self.context;
        self.change.payload.extend_from_slice(payload);
        let posted = self.post_change(self.epoch + 1, Version::Newest)?;
        let flush = self.begin_wait(posted)?;
        let (mark, home) = (self.context, Vec::new());
        self.flying = Some(Flying { posted, mark, home });
        Ok(flush)
    }

    /// The posted commit becomes the checkpoint, if its wait ended well.
    pub(super) fn adopt_newest(&mut self, waited: Result<()>) -> Result<Epoch> {
        let flying = self.flying.take();
        let Flying { posted, mark, home } =
            flying.ok_or_else(|| Error::Invalid("no commit has begun: begin one first".into()))?;
        if let Err(error) = waited {
            self.abort_reclaim(&home);
            return Err(error);
        }
        self.change_is_durable(posted);
        self.epoch += 1;
        self.context = mark;
        self.finish_reclaim(&home);
        let adopted = self.adopt();
        self.poison_if(adopted);
        Ok(self.epoch)
    }

    /// Collects the changes of the epoch.
    fn gather(&mut self, context: ContextMark, home: &[Key]) {
        self.touched.sort_unstable_by_key(|&(key, _)| key);
        let DualPage {
            change,
            table,
            touched,
            fallback,
            ..
        } = self;
        change.clear();
        change.context = context;
        home.iter().for_each(|&key| change.home.push(key));
        for &(key, place) in touched.iter() {
            let entry = &table[place];
            match entry.life() {
                Life::Absent => {}
                Life::Dead => change.deaths.push(key),
                Life::Born => {
                    let Extent {
                        logical,
                        physical,
                        present,
                        ..
                    } = *table.extent(place);
                    if present == 0 && change.claims.last().is_none_or(|&(last, _)| last != logical) {
                        change.claims.push((logical, physical));
                    }
                    change.births.push(key);
                }
                Life::Present if entry.is(Flags::FALLBACK) || entry.dbv.is_empty() => {}
                Life::Present => {
                    if let Some(frame) = entry.frame.filter(|_| entry.is(Flags::FRESH)) {
                        change.frames.push((key, frame));
                    }
                    change.flips.push((key, entry.dbv));
                }
            }
        }
        change.redo = fallback.list();
        if self.faulty(Fault::ForgetEntry) {
            self.change.flips.pop();
        }
        self.gather_sums();
    }

    /// Collects the checksums of the lines that the epoch changed.
    fn gather_sums(&mut self) {
        let old = self.faulty(Fault::OldSum);
        let (Some(sums), change, table) = (&self.sums, &mut self.change, &self.table) else {
            return;
        };
        for place in change.births.keys().filter_map(|key| table.find(key)) {
            let base = table.base(place);
            let line = |line| (line, sums.get(line_of(base, line)));
            change.sums.push((0..LINES_PER_PAGE).map(line));
        }
        for &(key, lines) in &change.flips {
            let Some(place) = table.find(key) else { continue };
            let (entry, base) = (&table[place], table.base(place));
            let derivative = match old {
                true => entry.cpbv,
                false => entry.newest(),
            };
            let home = |line| match entry.frame {
                Some(frame) if derivative.has(line) => frame.number(),
                _ => base,
            };
            let line = |line| (line, sums.get(line_of(home(line), line)));
            change.sums.push(lines.runs().flatten().map(line));
        }
        for (_, redo) in &change.redo {
            change.sums.push(redo.sums(sums));
        }
    }

    /// Makes `self.change` durable, and every line posted before. What the fall-back of the last
    /// commit held is home after this.
    pub(super) fn persist(&mut self, epoch: Epoch, version: Version) -> Result<()> {
        let posted = self.post_change(epoch, version)?;
        if !posted.is_fenced() {
            self.fence()?;
        }
        self.change_is_durable(posted);
        Ok(())
    }

    /// Posts `self.change`. The next fence makes it durable.
    fn post_change(&mut self, epoch: Epoch, version: Version) -> Result<Posted> {
        let stamp = Stamp {
            generation: self.slots.switch.generation,
            sequence: self.slots.sequence + 1,
            epoch,
        };
        if version == Version::Checkpoint {
            self.change.context = self.context;
        }
        if self.faulty(Fault::MarkEarly) {
            self.slots.sequence += 1;
            self.post_mark()?;
            self.slots.sequence -= 1;
        }
        let mut bytes = std::mem::take(&mut self.record);
        self.change.unfenced = self.needs_no_fence();
        let next = self.epoch + u64::from(version == Version::Newest);
        assert_eq!(
            stamp.epoch, next,
            "a record is of the next epoch, or mends the last"
        );
        let whole = journal::encode(&self.change, stamp, self.slots.seed, &mut bytes).is_some();
        let posted = match whole && self.slots.fits(bytes.len()) {
            true => self.append(&bytes, version),
            false if !self.change.payload.is_empty() => Err(Error::Invalid(format!(
                "a payload of {} bytes: the journal has no room for it",
                self.change.payload.len()
            ))),
            false => self.switch(stamp, version, &mut bytes),
        };
        self.record = bytes;
        posted
    }

    /// Begins the fence that makes what was posted durable. Of the wait nothing is left where the medium has no use
    /// for it.
    fn begin_wait(&mut self, posted: Posted) -> Result<Option<Arc<dyn Flush>>> {
        if posted.is_fenced() {
            return Ok(None);
        }
        self.medium.on(Cause::Journal);
        self.medium.begin_fence()
    }

    /// The fence after what was posted is over.
    fn change_is_durable(&mut self, posted: Posted) {
        match posted {
            Posted::Record {
                len,
                fenced,
                has_payload,
                version,
            } => {
                if !fenced {
                    self.slots.fenced = self.medium.len();
                }
                self.slots.torn = false;
                self.slots.payload_at = match (has_payload, version) {
                    (true, _) => self.slots.payload_at.or(Some(self.slots.tail)),
                    (false, Version::Checkpoint) => self.slots.payload_at,
                    (false, Version::Newest) => None,
                };
                self.slots.tail += len;
            }
            Posted::Switch { switch, followers } => {
                self.slots.fenced = self.medium.len();
                self.slots.switched(switch);
                self.slots.payload_at = (followers.count > 0).then_some(self.slots.tail);
                self.slots.tail += followers.len;
                self.slots.sequence += followers.count;
            }
        }
        self.slots.sequence += 1;
        let marked = self.after_record(matches!(
            posted,
            Posted::Record {
                has_payload: true,
                ..
            }
        ));
        self.poison_if(marked);
    }

    /// Posts a record at the end of the journal.
    fn append(&mut self, record: &[u8], version: Version) -> Result<Posted> {
        self.erase_torn()?;
        // Where the file system has no room for what waits, it says so here: nothing of the record is there yet.
        self.medium.hand_over()?;
        let early = self.faulty(Fault::ReuseEarly) && version == Version::Checkpoint;
        if !self.change.unfenced && !early && !self.faulty(Fault::SkipDataFence) {
            self.fence()?;
        }
        assert!(
            self.slots.fits(record.len()) && self.slots.tail.is_multiple_of(journal::ALIGN as u64),
            "a record of {} bytes at {} leaves its journal",
            record.len(),
            self.slots.tail
        );
        // Torn unless it is written whole and durable.
        self.slots.torn = true;
        let has_payload = !self.change.payload.is_empty();
        let cause = if has_payload { Cause::Log } else { Cause::Journal };
        self.post(self.slots.tail, record, cause)?;
        Ok(Posted::Record {
            len: record.len() as u64,
            fenced: early || self.faulty(Fault::SkipRecordFence),
            has_payload,
            version,
        })
    }

    /// Whether the record of `self.change` is valid by the checksums in it, without a fence before it.
    fn needs_no_fence(&self) -> bool {
        let change = &self.change;
        let (home, redo) = (!change.home.is_empty(), !change.redo.is_empty());
        let copies = home || redo || !self.fallback.retired.is_empty();
        let grew = !change.claims.is_empty() || self.medium.len() != self.slots.fenced;
        let others = grew || self.slots.torn || copies && !self.faulty(Fault::UnfencedCopies);
        self.slots.superblock.unfenced && !others && change.lines() <= UNFENCED_LINES
    }

    /// Writes the table, with the change in it, to the other slot and posts the switch to it.
    fn switch(&mut self, stamp: Stamp, version: Version, bytes: &mut Vec<u8>) -> Result<Posted> {
        snapshot::encode(
            &self.table,
            version,
            self.change.context,
            &self.change.redo,
            self.sums.as_ref(),
            bytes,
        );
        let (followers, count) = match version {
            Version::Checkpoint => self.followers(stamp)?,
            Version::Newest => (Vec::new(), 0),
        };
        let followers_at = bytes.len().next_multiple_of(journal::ALIGN);
        let slot = self.slot_for((followers_at + followers.len()) as u64)?;
        let (valid, place) = (self.slots.bytes(self.slots.switch.slot), self.slots.bytes(slot));
        assert!(
            place.end <= valid.start || valid.end <= place.start,
            "a snapshot over the valid slot: {place:?} and {valid:?}"
        );
        assert!(
            (followers_at + followers.len()) as u64 <= place.end - place.start,
            "a snapshot of {} bytes in {place:?}",
            bytes.len()
        );
        if !self.faulty(Fault::LeaveSwitch) {
            self.post(self.slots.next_switch_at(), &ERASED, Cause::Snapshot)?;
        }
        self.post(place.start, bytes, Cause::Snapshot)?;
        if !followers.is_empty() {
            self.post(place.start + followers_at as u64, &followers, Cause::Snapshot)?;
        }
        if self.slots.payload_at.is_some() {
            // It is several records behind, and may be one behind the snapshot.
            self.post_mark()?;
        }
        self.medium.hand_over()?; // as before a record
        let switch = Switch {
            generation: self.slots.next,
            slot,
            snapshot_crc: crc32c::crc32c_append(self.slots.seed, bytes),
            snapshot_len: bytes.len() as u64,
            sequence: stamp.sequence,
            epoch: stamp.epoch - count,
        };
        if !self.faulty(Fault::SwitchEarly) {
            self.fence()?;
        }
        self.post(
            self.slots.next_switch_at(),
            &switch.encode(self.slots.seed),
            Cause::Snapshot,
        )?;
        let len = followers.len() as u64;
        let followers = Followers { count, len };
        Ok(Posted::Switch { switch, followers })
    }

    /// A slot for a snapshot of `len` bytes: the spare one, another where that does not suit, and
    /// the spare one all the same where there is no room for another.
    fn slot_for(&mut self, len: u64) -> Result<Slot> {
        if let Some(slot) = self.slots.spare_suits(len) {
            return Ok(slot);
        }
        let count = Slots::extents_for(&self.slots.superblock, len);
        match self.space.claim_run(&mut self.medium, count, Role::Slot) {
            Ok(first) => {
                let slot = Slot { first, count };
                if let Some(old) = self.slots.spare.replace(slot) {
                    for extent in old.extents() {
                        self.space.release(&mut self.medium, extent)?;
                    }
                }
                Ok(slot)
            }
            Err(full @ Error::Full { .. }) => self.slots.spare_holds(len).ok_or(full),
            Err(error) => Err(error),
        }
    }

    /// After a record is durable: the mark follows, but for one with a payload, and the last commit's fall-back buffer is
    /// free.
    fn after_record(&mut self, has_payload: bool) -> Result<()> {
        self.slots.lags |= has_payload;
        if !has_payload {
            match self.post_mark() {
                // The next epoch begins with it.
                Ok(()) | Err(Error::Full { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        for extent in std::mem::take(&mut self.fallback.retired) {
            self.space.release(&mut self.medium, extent)?;
        }
        Ok(())
    }

    /// Posts the mark of the last durable record. Handed over, so that only the end of the machine can lose it: where
    /// it is lost, damage to lines of an unfenced record cannot be told from a crash.
    pub(super) fn post_mark(&mut self) -> Result<()> {
        let (at, mark) = self.slots.mark();
        self.slots.unmarked = true;
        self.post(at, &mark, Cause::Journal)?;
        self.medium.hand_over()?;
        (self.slots.unmarked, self.slots.lags) = (false, false);
        Ok(())
    }

    /// Posts what makes a torn record at the tail invalid for good.
    pub(super) fn erase_torn(&mut self) -> Result<()> {
        if self.slots.torn && self.slots.fits(ERASED.len()) && !self.faulty(Fault::LeaveTorn) {
            self.post(self.slots.tail, &ERASED, Cause::Journal)?;
        }
        if self.slots.torn {
            self.slots.fenced = 0;
        }
        self.slots.torn = false;
        Ok(())
    }

    /// The commit is durable: its bits flip, and pages without a use are free.
    fn adopt(&mut self) -> Result<()> {
        self.exhausted = false;
        let touched = std::mem::take(&mut self.touched);
        let mut emptied = std::mem::take(&mut self.claimed);
        for &(key, place) in &touched {
            match self.table[place].life() {
                Life::Absent => {}
                Life::Born => self.table.set_in_checkpoint(place, true),
                // In the fall-back: one home, as before.
                Life::Present if self.table[place].is(Flags::FALLBACK) => {
                    self.table[place].dbv = LineMask::NONE;
                }
                Life::Present => {
                    let entry = &mut self.table[place];
                    let recorded = !entry.dbv.is_empty();
                    entry.commit();
                    assert!(
                        entry.frame.is_some() || entry.cpbv.is_empty(),
                        "{key:?} has its checkpoint on a derivative page and has none"
                    );
                    entry.set(Flags::FRESH, entry.is(Flags::FRESH) && !recorded);
                }
                Life::Dead => {
                    self.table.set_in_checkpoint(place, false);
                    let frame = self.table[place].consolidate();
                    frame
                        .into_iter()
                        .for_each(|frame| self.pool.free(frame, &self.space));
                    let logical = self.table.logical(key);
                    if emptied.last() != Some(&logical) {
                        emptied.push(logical);
                    }
                }
            }
            self.table[place].set(Flags::TOUCHED, false);
        }
        self.touched = touched;
        self.touched.clear();
        self.release_empty(emptied)?;
        self.trim_pool()?;
        self.try_redo()
    }

    /// Copies the fall-back's lines home. Where there is no room for that (a hole in a file on a full
    /// disk) they stay in the buffer, which the last record names, and the next epoch begins with it.
    pub(super) fn try_redo(&mut self) -> Result<()> {
        match self.finish_redo() {
            Err(Error::Full { .. }) => {
                self.redo_pending = true;
                Ok(())
            }
            other => other,
        }
    }

    /// Copies the fall-back's lines home. The last record names them until the next one is durable.
    pub(super) fn finish_redo(&mut self) -> Result<()> {
        if self.fallback.is_empty() {
            self.redo_pending = false;
            return Ok(());
        }
        let line = self.geometry().line_bytes();
        for (key, redo) in self.fallback.list() {
            let Some(place) = self.table.find(key) else {
                continue;
            };
            let base = self.table.base(place);
            for (from, run) in redo.runs(LineMask::ALL, line) {
                self.copy(from, self.at(base, run.start), run.len() * line, Cause::Fallback)?;
            }
            self.table[place].set(Flags::FALLBACK, false);
        }
        self.fallback.retire();
        self.redo_pending = false;
        if self.faulty(Fault::FreeBufferEarly) {
            for extent in std::mem::take(&mut self.fallback.retired) {
                self.space.release(&mut self.medium, extent)?;
            }
        }
        Ok(())
    }

    /// Gives back those of the extents that no version needs.
    fn release_empty(&mut self, mut logical: Vec<u64>) -> Result<()> {
        for logical in logical.drain(..) {
            if let Some(extent) = self.table.remove_empty(logical) {
                self.space.release(&mut self.medium, extent)?;
            }
        }
        self.claimed = logical;
        Ok(())
    }

    /// Forgets everything written since the last commit.
    pub(super) fn forget_newest(&mut self) -> Result<()> {
        self.exhausted = false;
        self.written_context.forget();
        let touched = std::mem::take(&mut self.touched);
        for &(_, place) in &touched {
            let entry = &mut self.table[place];
            entry.set(Flags::NEWEST, entry.is(Flags::CHECKPOINT));
            entry.dbv = LineMask::NONE;
            entry.set(Flags::FALLBACK, false);
            entry.set(Flags::TOUCHED, false);
            if entry.is(Flags::FRESH) {
                let frame = entry.consolidate();
                frame
                    .into_iter()
                    .for_each(|frame| self.pool.free(frame, &self.space));
            }
        }
        self.touched = touched;
        self.touched.clear();
        // While the last commit's lines are not home there is no epoch that could have added any.
        if !self.redo_pending {
            for extent in self.fallback.abandon() {
                self.space.release(&mut self.medium, extent)?;
            }
        }
        let claimed = std::mem::take(&mut self.claimed);
        self.release_empty(claimed)
    }
}
