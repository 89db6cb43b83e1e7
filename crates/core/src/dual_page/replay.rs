//! The records of a journal, applied to the mapping one after the other.
//!
//! * A record is applied as a whole or not at all: one that does not fit the mapping is damage.
//! * Which extents and derivative pages are taken is asked of [`Space`] before they are.

use super::journal::{self, Change, ContextMark, Redo};
use super::map::{Entry, EntryIndex, Extent, Flags, Key, Life, MAX_EXTENTS, Table};
use super::slots::Slots;
use super::space::{Role, Space};
use super::sums::{Sums, line_of};
use super::superblock::{Superblock, Switch, read_mark};
use crate::error::{Error, Result};
use crate::geometry::LineMask;
use crate::medium::{Medium, Offset, bytes, read_array};
use crate::scheme::Epoch;

/// The mapping while records are applied to it.
pub(super) struct Replay {
    pub(super) superblock: Superblock,
    pub(super) switch: Switch,
    pub(super) space: Space,
    pub(super) table: Table,
    pub(super) context: ContextMark,
    pub(super) redo: Vec<(Key, Redo)>,
    pub(super) sums: Option<Sums>,
    pub(super) sequence: u64,
    pub(super) epoch: Epoch,
    /// The lines of the last record, if it is unfenced.
    pub(super) unfenced: Option<Vec<(Key, LineMask)>>,
    /// The first record whose payload is a part of the checkpoint.
    pub(super) payload_at: Option<Offset>,
    /// The last three records that have a mark of their own: those without a payload.
    pub(super) marked: [u64; 3],
}

impl Replay {
    /// The extents of base pages the snapshot names.
    pub(super) fn occupy_bases(&mut self) -> Result<()> {
        let at = Slots::slot_bytes(&self.superblock, self.switch.slot).start;
        for &Extent {
            logical, physical, ..
        } in self.table.extents()
        {
            if !self.space.occupy(physical.into(), Role::Base) {
                let why = format!("extent {physical} of pages {logical} is taken or not on the medium");
                return Err(Error::damaged("snapshot", at, why));
            }
        }
        Ok(())
    }

    /// Applies every record up to number `last`, and says where the next one goes.
    pub(super) fn run(&mut self, medium: &impl Medium, last: u64) -> Result<Offset> {
        let slot = Slots::slot_bytes(&self.superblock, self.switch.slot);
        let start = (slot.start + self.switch.snapshot_len).next_multiple_of(journal::ALIGN as u64);
        let Some(len) = slot.end.checked_sub(start) else {
            return Ok(slot.end);
        };
        let journal = bytes(medium, start, len as usize)?;
        let (generation, seed) = (self.switch.generation, self.superblock.seed());
        let mut at = 0;
        while let Some((stamp, len)) = journal::find(&journal[at..], generation, seed) {
            let place = start + at as u64;
            if stamp.sequence > last {
                break;
            }
            if stamp.sequence != self.sequence + 1 || stamp.epoch.wrapping_sub(self.epoch) > 1 {
                let why = format!(
                    "record {} of epoch {}, expected {}",
                    stamp.sequence,
                    stamp.epoch,
                    self.sequence + 1
                );
                return Err(Error::damaged("journal record", place, why));
            }
            let change = journal::decode(&journal[at..at + len]);
            let has_payload = change.as_ref().is_ok_and(|change| !change.payload.is_empty());
            change
                .and_then(|change| Ok(self.apply(change)?))
                .map_err(|why| Error::damaged("journal record", place, why))?;
            match has_payload {
                true => self.payload_at = self.payload_at.or(Some(place)),
                false => {
                    self.payload_at = self.payload_at.filter(|_| stamp.epoch == self.epoch);
                    self.marked = [self.marked[1], self.marked[2], stamp.sequence];
                }
            }
            (self.sequence, self.epoch) = (stamp.sequence, stamp.epoch);
            at += len;
        }
        let rest = (at + journal::ALIGN).min(journal.len());
        let later = journal::find_later(&journal[rest..], generation, seed, self.sequence);
        if let Some((stamp, next)) = later {
            let (record, next) = (stamp.sequence, start + (rest + next) as u64);
            let why = format!("it is invalid, but record {record} follows at byte {next}");
            return Err(Error::damaged("journal record", start + at as u64, why));
        }
        Ok(start + at as u64)
    }

    /// Applies one record.
    fn apply(&mut self, change: Change) -> Result<(), &'static str> {
        if !self.superblock.payloads && !change.payload.is_empty() {
            return Err("a payload in a store without");
        }
        let mut emptied = Vec::new();
        self.redo_is_home();
        for key in change.home.keys() {
            let place = self
                .place(key, Life::Present)
                .ok_or("it brings home a page that is not there")?;
            let (base, cpbv) = (self.table.base(place), self.table[place].cpbv);
            let frame = self.table[place].consolidate();
            let frame = frame.ok_or("it brings home a page that is at home")?;
            if let Some(sums) = &mut self.sums {
                for run in cpbv.runs() {
                    let [from, to] = [frame.number(), base].map(|page| line_of(page, run.start));
                    sums.copied(from, to, run.len());
                }
            }
        }
        for key in change.deaths.keys() {
            let place = self
                .place(key, Life::Present)
                .ok_or("it discards a page that is not there")?;
            self.table.set_in_checkpoint(place, false);
            self.table[place].set(Flags::NEWEST, false);
            self.table[place].consolidate();
            let logical = self.table.logical(key);
            if emptied.last() != Some(&logical) {
                emptied.push(logical);
            }
        }
        for &(logical, physical) in &change.claims {
            if logical >= MAX_EXTENTS || self.table.contains(logical) {
                return Err("it claims an extent of pages twice");
            }
            if !self.space.occupy(physical.into(), Role::Base) {
                return Err("it claims an extent that is taken or not on the medium");
            }
            self.table.insert(logical, physical, false);
            emptied.push(logical);
        }
        for key in change.births.keys() {
            let place = self
                .place(key, Life::Absent)
                .ok_or("a page is born that is there, or has no place")?;
            self.table.set_in_checkpoint(place, true);
            self.table[place].set(Flags::NEWEST, true);
        }
        for &(key, frame) in &change.frames {
            let entry = self
                .present(key)
                .ok_or("a derivative page of a page that is not there")?;
            if entry.frame.replace(frame).is_some() {
                return Err("a second derivative page");
            }
        }
        for &(key, lines) in &change.flips {
            let entry = self.present(key).ok_or("lines of a page that is not there")?;
            entry.frame.ok_or("lines of a page without a derivative page")?;
            entry.cpbv ^= lines;
        }
        self.apply_sums(&change)?;
        for logical in emptied {
            if let Some(physical) = self.table.remove_empty(logical) {
                self.space.vacate(physical);
            }
        }
        self.unfenced = change.unfenced.then(|| {
            let births = change.births.keys().map(|key| (key, LineMask::ALL));
            births.chain(change.flips.iter().copied()).collect()
        });
        (self.context, self.redo) = (change.context, change.redo);
        Ok(())
    }

    /// The lines that the record before left in the fall-back went home, with their checksums, before this one was
    /// written.
    fn redo_is_home(&mut self) {
        let Some(sums) = &mut self.sums else { return };
        for (key, redo) in &self.redo {
            let Some(place) = self.table.find(*key) else {
                continue;
            };
            let base = self.table.base(place);
            for (line, &from) in redo.lines.runs().flatten().zip(&redo.places) {
                sums.copied(from, line_of(base, line), 1);
            }
        }
    }

    /// The checksums of a record whose other sections were applied.
    fn apply_sums(&mut self, change: &Change) -> Result<(), &'static str> {
        const COUNT: &str = "checksums of more or fewer pages than it changes";
        const LINES: &str = "a checksum of a line that it does not change";
        let Some(sums) = &mut self.sums else {
            return match change.sums.len() {
                0 => Ok(()),
                _ => Err("checksums in a store without"),
            };
        };
        let mut pages = change.sums.pages();
        for key in change.births.keys() {
            let (mask, found) = pages.next().ok_or(COUNT)?;
            let base = self.table.find(key).map_or(0, |place| self.table.base(place));
            sums.zeroed(base);
            for (line, &sum) in mask.runs().flatten().zip(found) {
                sums.restore(line_of(base, line), sum);
            }
        }
        for &(key, lines) in &change.flips {
            let (mask, found) = pages.next().ok_or(COUNT)?;
            let Some(place) = self.table.find(key).filter(|_| (mask & !lines).is_empty()) else {
                return Err(LINES);
            };
            let (entry, base, mut found) = (&self.table[place], self.table.base(place), found.iter());
            for line in lines.runs().flatten() {
                let home = match entry.frame {
                    Some(frame) if entry.cpbv.has(line) => frame.number(),
                    _ => base,
                };
                let sum = if mask.has(line) { found.next() } else { None };
                sums.restore(line_of(home, line), sum.copied().unwrap_or(0));
            }
        }
        for (_, redo) in &change.redo {
            let (mask, found) = pages.next().ok_or(COUNT)?;
            redo.restore_sums(sums, mask, found).ok_or(LINES)?;
        }
        pages.next().map_or(Ok(()), |_| Err(COUNT))
    }

    fn place(&self, key: Key, life: Life) -> Option<EntryIndex> {
        self.table
            .find(key)
            .filter(|&place| self.table[place].life() == life)
    }

    fn present(&mut self, key: Key) -> Option<&mut Entry> {
        self.place(key, Life::Present).map(|place| &mut self.table[place])
    }

    /// The journal ends where the mark says, or one record later; two, if there is no fence between them. Those with a
    /// payload do not count. A mark that is not as it was `before` all else was read is that of a store in use, which has
    /// gone on: it is of a later journal. Says what the mark says.
    pub(super) fn check_mark(&self, medium: &impl Medium, before: [u8; 8]) -> Result<u64> {
        let at = self.superblock.mark_at();
        let found = read_array(medium, at)?;
        let Some(mark) = read_mark(found, self.superblock.seed()) else {
            return Err(Error::damaged("mark", at, "its check does not fit"));
        };
        let is_last = self.marked[2] == self.sequence;
        let least = self.marked[usize::from(self.unfenced.is_none() || !is_last)];
        if found == before && !(least..=self.sequence).contains(&mark) {
            let why = format!(
                "it says record {mark} was durable, but the journal ends with {}",
                self.sequence
            );
            return Err(Error::damaged("mark", at, why));
        }
        Ok(mark)
    }
}
