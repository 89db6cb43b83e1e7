//! The mapping: two homes a page, two bits a line (DPC 3.2; Twins' Divide and Merge; SSP's committed,
//! current and updated bitmaps). Everything else in this folder serves it.
//!
//! ```text
//!                  line 0   line 1   line 2   line 3
//! base page        [ckpt]   [ckpt]   [    ]   [new ]
//! derivative page  [    ]   [new ]   [ckpt]   [ckpt]
//! CPBV               0        0        1        1      which home holds the checkpoint
//! DBV                0        1        0        1      written in this epoch
//!
//! read             CPBV xor DBV    the newest version
//! write            not CPBV        the other home, so the checkpoint is never touched; DBV |= line
//! commit           CPBV ^= DBV, DBV = 0
//! abandon          DBV = 0
//!
//!     (CPBV, DBV):  (0,0) --write--> (0,1) --commit--> (1,0) --write--> (1,1) --commit--> (0,0)
//! ```
//!
//! Around it, the life of a page. The checkpoint and the newest version may disagree on whether the
//! page exists at all:
//!
//! ```text
//!                 write                            commit
//!      absent ------------> born ------------------------------------> present
//!        ^  ^  <-----------'  discard, abandon                          |   ^
//!        |  '---- commit ---- dead <------------------ discard ---------'   |
//!        |                     '------ write (all lines), abandon ----------'
//!   page in checkpoint:  no (absent, born)      yes (present, dead)
//! ```
//!
//! Invariants:
//! * A home that holds a line of the checkpoint is not written to.
//! * A page without a derivative page, and a page that is born, has CPBV = 0: all of it is in its base.
//! * A page that is born is written to its base: no checkpoint is there.
//! * A page that is dead keeps both homes until its death is durable.
//! * An extent of base pages is claimed exactly while a page of it is in the checkpoint, or born.

use crate::geometry::{LineMask, PageId};
use std::num::NonZeroU32;
use std::ops::{Index, IndexMut, Range};

/// Logical extents set apart for the context, before those of the page space.
pub(super) const CONTEXT_EXTENTS: u64 = 1 << 10;
/// Logical extents in all: 128 TiB of 2 MiB extents.
pub(super) const MAX_EXTENTS: u64 = 1 << 26;

/// A page of the table: first those of the context, then those of the page space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Key(pub(super) u64);

/// A derivative page, by its number on the medium: it lies at byte `number * page_bytes`. Never
/// zero, for the superblock is there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Frame(NonZeroU32);

impl Frame {
    /// Page `number` of the medium, if it can be a derivative page at all.
    pub(super) fn new(number: u64) -> Option<Frame> {
        u32::try_from(number).ok().and_then(NonZeroU32::new).map(Frame)
    }

    /// The page of the medium.
    pub(super) fn number(self) -> u64 {
        self.0.get().into()
    }
}

/// An entry of the page table without its two masks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Flags(u16);

impl Flags {
    /// In the checkpoint.
    pub(super) const CHECKPOINT: Flags = Flags(1);
    /// In the newest version.
    pub(super) const NEWEST: Flags = Flags(1 << 1);
    /// In the list of pages to look at when the epoch ends.
    pub(super) const TOUCHED: Flags = Flags(1 << 2);
    /// The derivative page is not recorded on the medium yet.
    pub(super) const FRESH: Flags = Flags(1 << 3);
    /// The dirty lines are in the fall-back buffer, not in a derivative page.
    pub(super) const FALLBACK: Flags = Flags(1 << 4);
    /// The owner keeps the page in a faster place and will write it soon (DPC: cached in DRAM).
    pub(super) const CACHED: Flags = Flags(1 << 5);
    /// The base page was never written since the medium grew over it: it reads as zero.
    pub(super) const VIRGIN: Flags = Flags(1 << 6);
    /// The derivative lines were copied home; the record that says so is being written.
    pub(super) const RECLAIMING: Flags = Flags(1 << 7);
}

/// Where a page is in its life: in the checkpoint, in the newest version, in both or in none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Life {
    Absent,
    Born,
    Present,
    Dead,
}

/// How recently written a page is taken to be when it is written; a look of the clock takes one off.
pub(super) const HOT: u8 = 2;

/// One page of the derivative page table (DPC 4.3).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Entry {
    /// Checkpoint position: the lines whose checkpoint is in the derivative page.
    pub(super) cpbv: LineMask,
    /// The lines written in this epoch.
    pub(super) dbv: LineMask,
    /// The derivative page, while there is one.
    pub(super) frame: Option<Frame>,
    flags: Flags,
    /// How recently the page was written, for the clock that picks pages to reclaim.
    pub(super) heat: u8,
}

const _: () = assert!(size_of::<Entry>() == 24, "the table is meant to be compact");

impl Entry {
    /// Of every line, whether its newest version is in the derivative page.
    pub(super) fn newest(&self) -> LineMask {
        self.cpbv ^ self.dbv
    }

    /// Of every line, whether a write goes to the derivative page.
    pub(super) fn target(&self) -> LineMask {
        !self.cpbv
    }

    /// The bits flip, no data moves.
    pub(super) fn commit(&mut self) {
        self.cpbv ^= self.dbv;
        self.dbv = LineMask::NONE;
    }

    pub(super) fn is(&self, flag: Flags) -> bool {
        self.flags.0 & flag.0 != 0
    }

    pub(super) fn set(&mut self, flag: Flags, on: bool) {
        self.flags.0 = if on {
            self.flags.0 | flag.0
        } else {
            self.flags.0 & !flag.0
        };
    }

    pub(super) fn life(&self) -> Life {
        match (self.is(Flags::CHECKPOINT), self.is(Flags::NEWEST)) {
            (false, false) => Life::Absent,
            (false, true) => Life::Born,
            (true, true) => Life::Present,
            (true, false) => Life::Dead,
        }
    }

    /// Whether its derivative lines may be copied home: both versions agree.
    pub(super) fn is_clean(&self) -> bool {
        self.life() == Life::Present && self.dbv.is_empty() && !self.is(Flags::FALLBACK)
    }

    /// The derivative page the medium knows of.
    pub(super) fn recorded_frame(&self) -> Option<Frame> {
        self.frame.filter(|_| !self.is(Flags::FRESH))
    }

    /// Back to one home, its base, with all lines there.
    pub(super) fn consolidate(&mut self) -> Option<Frame> {
        self.cpbv = LineMask::NONE;
        self.set(Flags::FRESH, false);
        self.frame.take()
    }
}

/// An extent of base pages, and the pages in it.
#[derive(Debug)]
pub(super) struct Extent {
    /// Its place among the keys.
    pub(super) logical: u64,
    /// Its place on the medium.
    pub(super) physical: u32,
    /// Pages of it in the checkpoint.
    pub(super) present: u32,
    /// The pages.
    pub(super) entries: Box<[Entry]>,
}

/// Where an entry is. Good until an extent is removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct EntryIndex {
    extent: u32,
    entry: u32,
}

const LEAF: usize = 512;
const NOWHERE: u32 = u32::MAX;

/// Every page, found in two steps: a leaf of 512 logical extents, then the extent.
#[derive(Debug)]
pub(super) struct Table {
    extent_pages: u64,
    /// Its logarithm, if it is a power of two, as it mostly is: a division takes as long as all the rest of a look-up.
    extent_bits: Option<u32>,
    leaves: Vec<Option<Box<[u32; LEAF]>>>,
    extents: Vec<Extent>,
    pages: u64,
}

impl Table {
    pub(super) fn new(extent_pages: u64) -> Table {
        Table {
            extent_pages,
            extent_bits: extent_pages
                .is_power_of_two()
                .then(|| extent_pages.trailing_zeros()),
            leaves: Vec::new(),
            extents: Vec::new(),
            pages: 0,
        }
    }

    /// The key of a page of the page space, if the table reaches so far.
    pub(super) fn key(&self, page: PageId) -> Option<Key> {
        let key = page.0.checked_add(CONTEXT_EXTENTS * self.extent_pages)?;
        (key < MAX_EXTENTS * self.extent_pages).then_some(Key(key))
    }

    /// Keys of the context, before those of the page space.
    pub(super) fn context_keys(&self) -> u64 {
        CONTEXT_EXTENTS * self.extent_pages
    }

    /// The keys of these pages, as far as the table reaches.
    pub(super) fn keys(&self, pages: Range<PageId>) -> Range<Key> {
        let end = Key(MAX_EXTENTS * self.extent_pages);
        let key = |page| self.key(page).unwrap_or(end);
        key(pages.start)..key(pages.end)
    }

    /// The logical extent of a page.
    #[inline]
    pub(super) fn logical(&self, key: Key) -> u64 {
        match self.extent_bits {
            Some(bits) => key.0 >> bits,
            None => key.0 / self.extent_pages,
        }
    }

    /// Pages in the checkpoint.
    pub(super) fn pages(&self) -> u64 {
        self.pages
    }

    fn slot(&self, logical: u64) -> Option<usize> {
        let leaf = self.leaves.get(usize::try_from(logical).ok()? / LEAF)?.as_ref()?;
        let slot = leaf[logical as usize % LEAF];
        (slot != NOWHERE).then_some(slot as usize)
    }

    /// Where the page is, if its extent is claimed.
    pub(super) fn find(&self, key: Key) -> Option<EntryIndex> {
        let logical = self.logical(key);
        Some(EntryIndex {
            extent: self.slot(logical)? as u32,
            entry: (key.0 - logical * self.extent_pages) as u32,
        })
    }

    /// The entry of a page; an absent one where there is none.
    pub(super) fn entry(&self, key: Key) -> Entry {
        self.find(key).map_or(Entry::default(), |place| self[place])
    }

    /// The base page, by its number on the medium.
    pub(super) fn base(&self, place: EntryIndex) -> u64 {
        u64::from(self.extents[place.extent as usize].physical) * self.extent_pages + u64::from(place.entry)
    }

    /// The extent the entry is in.
    pub(super) fn extent(&self, place: EntryIndex) -> &Extent {
        &self.extents[place.extent as usize]
    }

    /// The extents, in no order.
    pub(super) fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// The extents and where their entries begin, by logical number.
    pub(super) fn in_order(&self) -> Vec<&Extent> {
        let mut order: Vec<_> = self.extents.iter().collect();
        order.sort_unstable_by_key(|extent| extent.logical);
        order
    }

    /// A claimed extent; its base pages read as zero if `virgin`. The caller knows that neither
    /// number is taken.
    pub(super) fn insert(&mut self, logical: u64, physical: u32, virgin: bool) {
        assert!(
            logical < MAX_EXTENTS && self.slot(logical).is_none(),
            "extent {logical} is claimed twice"
        );
        let mut entry = Entry::default();
        entry.set(Flags::VIRGIN, virgin);
        let entries = vec![entry; self.extent_pages as usize].into();
        self.point(logical, self.extents.len() as u32);
        self.extents.push(Extent {
            logical,
            physical,
            present: 0,
            entries,
        });
    }

    /// Whether a logical extent is claimed.
    pub(super) fn contains(&self, logical: u64) -> bool {
        self.slot(logical).is_some()
    }

    /// Forgets an extent that no version needs, and says where it was.
    pub(super) fn remove_empty(&mut self, logical: u64) -> Option<u32> {
        let slot = self.slot(logical)?;
        if self.extents[slot].present > 0 {
            return None;
        }
        let extent = self.extents.swap_remove(slot);
        assert!(
            extent.entries.iter().all(|entry| entry.life() == Life::Absent),
            "extent {logical} is given back with pages in it"
        );
        self.point(logical, NOWHERE);
        if let Some(moved) = self.extents.get(slot) {
            self.point(moved.logical, slot as u32);
        }
        Some(extent.physical)
    }

    fn point(&mut self, logical: u64, slot: u32) {
        let leaf = logical as usize / LEAF;
        if leaf >= self.leaves.len() {
            self.leaves.resize(leaf + 1, None);
        }
        self.leaves[leaf].get_or_insert_with(|| Box::new([NOWHERE; LEAF]))[logical as usize % LEAF] = slot;
    }

    /// The page enters the checkpoint, or leaves it.
    pub(super) fn set_in_checkpoint(&mut self, place: EntryIndex, there: bool) {
        assert_ne!(
            self[place].is(Flags::CHECKPOINT),
            there,
            "{place:?} enters or leaves the checkpoint twice"
        );
        self[place].set(Flags::CHECKPOINT, there);
        let present = &mut self.extents[place.extent as usize].present;
        if there {
            *present += 1;
            self.pages += 1;
        } else {
            *present -= 1;
            self.pages -= 1;
        }
    }

    /// The claimed parts of a range of pages, as places and their keys.
    pub(super) fn places(&self, keys: Range<Key>) -> impl Iterator<Item = (Key, EntryIndex)> + use<> {
        let pages = self.extent_pages;
        let (first, last) = (
            keys.start.0 / pages,
            keys.end.0.div_ceil(pages).max(keys.start.0 / pages),
        );
        self.claimed(first..last)
            .into_iter()
            .flat_map(move |(logical, extent)| {
                let start = keys.start.0.max(logical * pages);
                let end = keys.end.0.min((logical + 1) * pages);
                (start..end).map(move |key| {
                    (
                        Key(key),
                        EntryIndex {
                            extent,
                            entry: (key % pages) as u32,
                        },
                    )
                })
            })
    }

    /// The claimed ones of a range of logical extents, in order, with where they are kept.
    fn claimed(&self, logical: Range<u64>) -> Vec<(u64, u32)> {
        let leaves =
            logical.start as usize / LEAF..(logical.end as usize).div_ceil(LEAF).min(self.leaves.len());
        let mut found = Vec::new();
        for index in leaves {
            let Some(leaf) = &self.leaves[index] else { continue };
            let numbered = leaf
                .iter()
                .enumerate()
                .map(|(k, &slot)| ((index * LEAF + k) as u64, slot));
            found.extend(numbered.filter(|(number, slot)| *slot != NOWHERE && logical.contains(number)));
        }
        found
    }
}

impl Index<EntryIndex> for Table {
    type Output = Entry;
    fn index(&self, place: EntryIndex) -> &Entry {
        &self.extents[place.extent as usize].entries[place.entry as usize]
    }
}

impl IndexMut<EntryIndex> for Table {
    fn index_mut(&mut self, place: EntryIndex) -> &mut Entry {
        &mut self.extents[place.extent as usize].entries[place.entry as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_round_its_four_states() {
        let (mut entry, line) = (Entry::default(), LineMask(1));
        for home in [false, true, false, true] {
            assert_eq!(
                (entry.cpbv & line == line, entry.newest() & line == line),
                (home, home)
            );
            assert_eq!(entry.target() & line == line, !home, "the other home");
            entry.dbv = entry.dbv | line;
            assert_eq!(
                (entry.cpbv & line == line, entry.newest() & line == line),
                (home, !home)
            );
            let mut abandoned = entry;
            abandoned.dbv = LineMask::NONE;
            assert_eq!(abandoned.newest(), entry.cpbv);
            entry.commit();
        }
        assert_eq!((entry.cpbv, entry.dbv), (LineMask::NONE, LineMask::NONE));
    }

    #[test]
    fn the_picture_of_the_module() {
        let mut entry = Entry {
            cpbv: LineMask(0b1100),
            dbv: LineMask(0b1010),
            ..Entry::default()
        };
        assert_eq!(entry.newest(), LineMask(0b0110));
        entry.commit();
        assert_eq!((entry.cpbv, entry.dbv), (LineMask(0b0110), LineMask::NONE));
    }

    #[test]
    fn a_page_is_in_either_version_or_both() {
        let mut entry = Entry::default();
        let states = [
            (false, false, Life::Absent),
            (false, true, Life::Born),
            (true, true, Life::Present),
            (true, false, Life::Dead),
        ];
        for (checkpoint, newest, life) in states {
            entry.set(Flags::CHECKPOINT, checkpoint);
            entry.set(Flags::NEWEST, newest);
            assert_eq!((entry.life(), entry.is_clean()), (life, life == Life::Present));
        }
    }

    #[test]
    fn extents_come_and_go() {
        let mut table = Table::new(8);
        let far = MAX_EXTENTS - 1;
        for (physical, logical) in [0, 511, 512, 70_000, far].into_iter().enumerate() {
            table.insert(logical, physical as u32 + 10, false);
        }
        let place = table.find(Key(512 * 8 + 3)).unwrap();
        assert_eq!(
            (table.base(place), table.extent(place).logical),
            (12 * 8 + 3, 512)
        );
        assert_eq!(table.find(Key(513 * 8)), None);
        assert_eq!(table.remove_empty(0), Some(10));
        assert_eq!(
            table.base(table.find(Key(far * 8)).unwrap()),
            14 * 8,
            "moved, and still found"
        );
        assert_eq!((table.remove_empty(0), table.contains(0)), (None, false));
        let place = table.find(Key(511 * 8)).unwrap();
        table.set_in_checkpoint(place, true);
        assert_eq!((table.remove_empty(511), table.pages()), (None, 1));
        assert_eq!(
            table.in_order().iter().map(|e| e.logical).collect::<Vec<_>>(),
            [511, 512, 70_000, far]
        );
    }

    #[test]
    fn a_range_finds_what_is_claimed() {
        let mut table = Table::new(4);
        [2, 3, 600]
            .into_iter()
            .for_each(|logical| table.insert(logical, logical as u32, false));
        let keys = |range: Range<u64>| {
            let places = table.places(Key(range.start)..Key(range.end));
            places.map(|(key, _)| key.0).collect::<Vec<_>>()
        };
        assert_eq!(keys(0..u64::MAX), (8..16).chain(2400..2404).collect::<Vec<_>>());
        assert_eq!(keys(9..13), [9, 10, 11, 12]);
        assert_eq!(keys(15..2401), [15, 2400]);
        assert_eq!((keys(13..13), keys(100..200)), (vec![], vec![]));
        for (key, place) in table.places(Key(0)..Key(u64::MAX)) {
            assert_eq!(table.find(key), Some(place));
        }
    }

    #[test]
    fn the_page_space_has_an_end() {
        let table = Table::new(4);
        let last = PageId((MAX_EXTENTS - CONTEXT_EXTENTS) * 4 - 1);
        assert_eq!(table.key(last), Some(Key(MAX_EXTENTS * 4 - 1)));
        assert_eq!(
            (table.key(PageId(last.0 + 1)), table.key(PageId(u64::MAX))),
            (None, None)
        );
        assert_eq!(table.keys(PageId(5)..PageId(u64::MAX)).end, Key(MAX_EXTENTS * 4));
    }
}
