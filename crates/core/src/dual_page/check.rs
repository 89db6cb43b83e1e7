//! Everything on the medium, read again and compared with memory.
//!
//! * Superblock, switch records, snapshot, journal, mark and context are verified by their checksums,
//!   extents and derivative pages by their owners: the same code as recovery.
//! * The mapping found must be the one in memory.
//! * Every page is read, and its lines verified where they have checksums, so that a place the system cannot
//!   read is found, and a bit that flipped.

use super::DualPage;
use super::map::{Entry, Extent, Flags, Key, Life, Table};
use super::recover::{Loaded, load};
use super::sums::line_of;
use crate::error::{Error, Result};
use crate::geometry::{LINES_PER_PAGE, LineMask};
use crate::medium::Medium;
use crate::scheme::{Damage, Scheme};

/// Of one kind this number is looked for: one more than is listed.
const MOST: usize = Damage::MOST + 1;

impl<M: Medium> DualPage<M> {
    pub(super) fn list_damage(&self) -> Result<Vec<Damage>> {
        let loaded = match load(&self.medium, None) {
            Ok(loaded) => loaded,
            Err(error) => return Ok(vec![damage_of(error)?]),
        };
        let mut damage = Vec::new();
        if (loaded.epoch, loaded.slots.sequence) != (self.epoch, self.slots.sequence) {
            let why = format!("epoch {} on the medium, {} in memory", loaded.epoch, self.epoch);
            damage.push(Damage::new("journal", loaded.slots.tail, why));
        }
        self.compare(&loaded.table, &mut damage);
        self.compare_sums(&loaded, &mut damage);
        // A commit that found no room may have begun to write the next context.
        if let Some(error) = (!self.shell.is_lost())
            .then(|| self.read_context().err())
            .flatten()
        {
            damage.push(damage_of(error)?);
        }
        self.read_all(&mut damage)?;
        Ok(Damage::cut(damage))
    }

    /// Where the checkpoint in memory is not the one on the medium.
    fn compare(&self, found: &Table, damage: &mut Vec<Damage>) {
        let differ = self
            .different(found, &self.table)
            .chain(self.different(&self.table, found));
        for (key, physical) in differ.take(MOST) {
            let why = format!("page {} is mapped otherwise in memory", key.0);
            let at = self.space.offset(physical);
            damage.push(Damage::new("page table entry", at, why));
        }
    }

    /// Where checksums of the checkpoint in memory are not those on the medium. Lines that the last record leaves in the
    /// fall-back are home by now, which the medium does not say yet.
    fn compare_sums(&self, loaded: &Loaded, damage: &mut Vec<Damage>) {
        let (Some(found), Some(known)) = (&loaded.sums, &self.sums) else {
            return;
        };
        let at_home = |key: Key| loaded.redo.iter().all(|&(page, _)| page != key);
        let pages = self.geometry().extent_pages();
        for extent in self.table.in_order() {
            let keys = (extent.logical * pages..).map(Key).zip(&extent.entries);
            let bases = u64::from(extent.physical) * pages..;
            let there =
                |&((key, entry), _): &((Key, &Entry), u64)| entry.is(Flags::CHECKPOINT) && at_home(key);
            for ((key, entry), base) in keys.zip(bases).filter(there) {
                let home = |line| match entry.frame {
                    Some(frame) if entry.cpbv.has(line) => line_of(frame.number(), line),
                    _ => line_of(base, line),
                };
                let mut lines = (0..LINES_PER_PAGE).map(home);
                let differs = lines.find(|&line| found.get(line) != known.get(line));
                if let Some(line) = differs.filter(|_| damage.len() < MOST) {
                    damage.push(Damage::new(
                        "checksum of a line",
                        line * self.geometry().line_bytes() as u64,
                        format!("of {}: it is otherwise in memory", self.name(key)),
                    ));
                }
            }
        }
    }

    /// Pages of the checkpoint of `one` that are not so in `other`.
    fn different<'a>(&'a self, one: &'a Table, other: &'a Table) -> impl Iterator<Item = (Key, u32)> + 'a {
        let pages = self.geometry().extent_pages();
        one.in_order().into_iter().flat_map(move |extent: &Extent| {
            let present = extent
                .entries
                .iter()
                .enumerate()
                .filter(|(_, entry)| entry.is(Flags::CHECKPOINT));
            present.filter_map(move |(index, entry)| {
                let key = Key(extent.logical * pages + index as u64);
                let twin = other.find(key).filter(|&place| {
                    let twin = &other[place];
                    let homes = (twin.cpbv, twin.recorded_frame()) == (entry.cpbv, entry.recorded_frame());
                    twin.is(Flags::CHECKPOINT) && homes && other.extent(place).physical == extent.physical
                });
                twin.is_none().then_some((key, extent.physical))
            })
        })
    }

    /// Reads every page; of an epoch that found no room, the pages that it did not begin to write.
    fn read_all(&self, damage: &mut Vec<Damage>) -> Result<()> {
        let mut page = vec![0; self.geometry().page_bytes()];
        for extent in self.table.in_order() {
            let first = extent.logical * self.geometry().extent_pages();
            for (key, entry) in (first..).map(Key).zip(&extent.entries) {
                let lines = match entry.life() {
                    Life::Present if self.shell.is_lost() => !entry.dbv,
                    Life::Born if self.shell.is_lost() => LineMask::NONE,
                    _ => LineMask::ALL,
                };
                if let Err(error) = self.read_lines(key, 0, lines, &mut page) {
                    damage.push(damage_of(error)?);
                    if damage.len() >= MOST {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }
}

/// Damage as an entry of a list; other errors are the caller's.
fn damage_of(error: Error) -> Result<Damage> {
    match error {
        Error::Damaged { what, at, why } => Ok(Damage::new(what, at, why)),
        Error::Foreign(why) => Ok(Damage::new("superblock", 0, why)),
        Error::Io { what, at, source } => Ok(Damage::new(what, at, source.to_string())),
        other => Err(other),
    }
}
