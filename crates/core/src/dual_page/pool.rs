//! The derivative page pool (DPC 4.4): which derivative pages exist, their owners, and which to reclaim.
//!
//! * A derivative page belongs to one page of the table, or is free.
//! * The lowest free one is handed out first, so that the pool stays dense and its end empties.
//! * A derivative page that the checkpoint needs is freed only when a durable record says it is free:
//!   the caller of [`Pool::free`] makes sure of that.
//! * Reclaim picks clean pages, those not cached and not written lately first: a clock goes round the
//!   pool, and every look takes some heat off a page.

use super::map::{Entry, Flags, Frame, Key, Table};
use super::space::{Role, Space};
use crate::error::Result;
use crate::medium::Medium;
use crate::scheme::PoolInfo;

const FREE: u64 = u64::MAX;

/// One extent of derivative pages.
#[derive(Debug)]
struct PoolExtent {
    physical: u32,
    used: u32,
    /// No page before this one is free.
    lowest: u32,
    /// The key each page belongs to, or [`FREE`].
    owners: Box<[u64]>,
}

/// The pool. It knows which derivative pages are free; the page table knows their content.
#[derive(Debug)]
pub(super) struct Pool {
    extent_pages: u64,
    /// Derivative pages there may be.
    limit: u64,
    extents: Vec<PoolExtent>,
    used: u64,
    /// No extent before this one has a free page.
    lowest: usize,
    /// Extents without a used page.
    empty: usize,
    /// Where the clock stands.
    hand: u64,
    /// Handed out since the last commit: the expected need of the next epoch.
    pub(super) demand: u64,
    pub(super) reclaimed: u64,
    pub(super) failures: u64,
}

impl Pool {
    pub(super) fn new(extent_pages: u64, limit: u64) -> Pool {
        Pool {
            extent_pages,
            limit,
            extents: Vec::new(),
            used: 0,
            lowest: 0,
            empty: 0,
            hand: 0,
            demand: 0,
            reclaimed: 0,
            failures: 0,
        }
    }

    pub(super) fn info(&self) -> PoolInfo {
        PoolInfo {
            pages: (self.extents.len() as u64 * self.extent_pages).min(self.limit),
            used: self.used,
            reclaimed: self.reclaimed,
            failures: self.failures,
        }
    }

    /// Whether the pool has a limit to live within.
    pub(super) fn is_limited(&self) -> bool {
        self.limit != u64::MAX
    }

    /// Free derivative pages, those not claimed yet but within the limit included.
    pub(super) fn room(&self) -> u64 {
        self.limit - self.used
    }

    /// Whether another extent may be claimed.
    pub(super) fn may_grow(&self) -> bool {
        (self.extents.len() as u64).saturating_mul(self.extent_pages) < self.limit
    }

    /// The role the next extent will have.
    pub(super) fn next_role(&self) -> Role {
        Role::Pool(self.extents.len() as u32)
    }

    /// An extent claimed with [`Pool::next_role`], all free.
    pub(super) fn add(&mut self, physical: u32) {
        let owners = vec![FREE; self.extent_pages as usize].into();
        self.extents.push(PoolExtent {
            physical,
            used: 0,
            lowest: 0,
            owners,
        });
        self.empty += 1;
        self.lowest = self.lowest.min(self.extents.len() - 1);
    }

    /// The lowest free derivative page, for `owner`.
    pub(super) fn take(&mut self, owner: Key) -> Option<Frame> {
        if self.used >= self.limit {
            return None;
        }
        while self.extents.get(self.lowest)?.used as u64 == self.extent_pages {
            self.lowest += 1;
        }
        let extent = &mut self.extents[self.lowest];
        let from = extent.lowest as usize;
        let page = from + extent.owners[from..].iter().position(|&owner| owner == FREE)?;
        let number = u64::from(extent.physical) * self.extent_pages + page as u64;
        extent.lowest = page as u32 + 1;
        self.demand += 1;
        self.own(self.lowest, page, owner);
        Frame::new(number)
    }

    /// Recovery: the derivative page belongs to `owner`. False if it lies in no extent of the pool,
    /// belongs to another, or is one more than there may be.
    pub(super) fn adopt(&mut self, extent: u32, frame: Frame, owner: Key) -> bool {
        let page = (frame.number() % self.extent_pages) as usize;
        let free = self
            .extents
            .get(extent as usize)
            .is_some_and(|extent| extent.owners[page] == FREE);
        let fits = free && self.used < self.limit;
        if fits {
            self.own(extent as usize, page, owner);
        }
        fits
    }

    fn own(&mut self, extent: usize, page: usize, owner: Key) {
        let extent = &mut self.extents[extent];
        assert_eq!(extent.owners[page], FREE, "a derivative page is handed out twice");
        extent.owners[page] = owner.0;
        self.empty -= usize::from(extent.used == 0);
        extent.used += 1;
        self.used += 1;
    }

    /// The derivative page is free from now on: no durable record names it.
    pub(super) fn free(&mut self, frame: Frame, space: &Space) {
        let Some(Role::Pool(index)) = space.role(frame.number() / self.extent_pages) else {
            panic!("{frame:?} is not in the pool");
        };
        let page = (frame.number() % self.extent_pages) as usize;
        let extent = &mut self.extents[index as usize];
        assert_ne!(extent.owners[page], FREE, "{frame:?} is freed twice");
        extent.owners[page] = FREE;
        extent.lowest = extent.lowest.min(page as u32);
        extent.used -= 1;
        self.used -= 1;
        self.empty += usize::from(extent.used == 0);
        self.lowest = self.lowest.min(index as usize);
    }

    /// Up to `wanted` clean pages that have a derivative page, the coldest the clock finds; cached
    /// ones only when there are no others (DPC 4.4.2).
    pub(super) fn victims(&mut self, wanted: u64, table: &mut Table) -> Vec<Key> {
        let mut chosen: Vec<Key> = Vec::new();
        let cold = |entry: &Entry| entry.heat == 0 && !entry.is(Flags::CACHED);
        let uncached = |entry: &Entry| !entry.is(Flags::CACHED);
        self.sweep(wanted, table, &mut chosen, cold);
        self.sweep(wanted, table, &mut chosen, uncached);
        self.sweep(wanted, table, &mut chosen, |_| true);
        for &key in &chosen {
            if let Some(place) = table.find(key) {
                table[place].set(Flags::RECLAIMING, false);
            }
        }
        chosen
    }

    /// Once round the pool, or until there are enough. The chosen are flagged meanwhile.
    fn sweep(
        &mut self,
        wanted: u64,
        table: &mut Table,
        chosen: &mut Vec<Key>,
        fits: impl Fn(&Entry) -> bool,
    ) {
        let all = self.extents.len() as u64 * self.extent_pages;
        for _ in 0..all {
            if chosen.len() as u64 >= wanted {
                return;
            }
            self.hand = (self.hand + 1) % all;
            let extent = &self.extents[(self.hand / self.extent_pages) as usize];
            let owner = extent.owners[(self.hand % self.extent_pages) as usize];
            let Some(place) = Some(Key(owner))
                .filter(|_| owner != FREE)
                .and_then(|key| table.find(key))
            else {
                continue;
            };
            let entry = &mut table[place];
            if entry.is_clean() && !entry.is(Flags::RECLAIMING) && fits(entry) {
                entry.set(Flags::RECLAIMING, true);
                chosen.push(Key(owner));
            }
            entry.heat = entry.heat.saturating_sub(1);
        }
    }

    /// Extents without a used page that are kept while the store is in use: a quarter of the others, one at least.
    pub(super) fn spare_extents(&self) -> usize {
        (self.extents.len() - self.empty).div_ceil(4).max(1)
    }

    /// Whether it takes at most an eighth of the space of that many pages, or a single extent.
    pub(super) fn is_small(&self, pages: u64) -> bool {
        let extents = self.extents.len() as u64;
        extents <= 1 || extents * self.extent_pages <= pages / 8
    }

    /// The owners of the last extent with a used page, if all of them are clean.
    pub(super) fn last_owners(&self, table: &Table) -> Vec<Key> {
        let Some(last) = self.extents.iter().rev().find(|extent| extent.used > 0) else {
            return Vec::new();
        };
        let is_clean = |key: Key| table.find(key).is_some_and(|place| table[place].is_clean());
        let used = last.owners.iter().filter(|&&owner| owner != FREE);
        let owners: Vec<Key> = used.map(|&owner| Key(owner)).collect();
        match owners.iter().all(|&key| is_clean(key)) {
            true => owners,
            false => Vec::new(),
        }
    }

    /// Gives back extents without a used page, all but `keep` of them. A pool with a limit keeps all.
    ///
    /// # Errors
    /// As [`Medium::discard`].
    pub(super) fn give_back(
        &mut self,
        keep: usize,
        space: &mut Space,
        medium: &mut impl Medium,
    ) -> Result<()> {
        if self.is_limited() || self.empty <= keep {
            return Ok(());
        }
        let mut index = self.extents.len();
        while self.empty > keep && index > 0 {
            index -= 1;
            if self.extents[index].used == 0 {
                let gone = self.extents.swap_remove(index);
                self.empty -= 1;
                if let Some(moved) = self.extents.get(index) {
                    space.set_role(moved.physical, Role::Pool(index as u32));
                }
                space.release(medium, gone.physical)?;
            }
        }
        self.lowest = 0;
        self.hand = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::Image;
    use crate::geometry::{Geometry, LineMask};

    const PAGES: u64 = 4;

    fn pool(limit: u64) -> (Pool, Space, Image, Table) {
        let geometry = Geometry::new(64, 4096 * PAGES as u32).unwrap();
        let mut medium = Image::new(8);
        medium.grow(geometry.extent_bytes() as u64).unwrap();
        let space = Space::new(geometry, medium.len());
        (Pool::new(PAGES, limit), space, medium, Table::new(PAGES))
    }

    fn grow(pool: &mut Pool, space: &mut Space, medium: &mut Image) {
        let (extent, _) = space.claim(medium, pool.next_role()).unwrap();
        pool.add(extent);
    }

    /// Pages 0 to 7, all present and clean, with derivative pages; as hot and cached as told.
    fn settled(heat: impl Fn(u64) -> u8, cached: impl Fn(u64) -> bool) -> (Pool, Table) {
        let (mut pool, mut space, mut medium, mut table) = pool(8);
        for logical in 0..2 {
            grow(&mut pool, &mut space, &mut medium);
            let (base, _) = space.claim(&mut medium, Role::Base).unwrap();
            table.insert(logical, base, false);
        }
        for key in (0..8).map(Key) {
            let place = table.find(key).unwrap();
            table.set_in_checkpoint(place, true);
            let entry = &mut table[place];
            entry.set(Flags::NEWEST, true);
            entry.set(Flags::CACHED, cached(key.0));
            entry.heat = heat(key.0);
            entry.cpbv = LineMask(1);
            entry.frame = pool.take(key);
        }
        (pool, table)
    }

    #[test]
    fn the_lowest_is_handed_out_first_and_the_limit_holds() {
        let (mut pool, mut space, mut medium, _) = pool(6);
        assert_eq!(pool.take(Key(0)), None);
        grow(&mut pool, &mut space, &mut medium);
        grow(&mut pool, &mut space, &mut medium);
        assert!(!pool.may_grow());
        let frames: Vec<_> = (0..6).map(|key| pool.take(Key(key)).unwrap()).collect();
        assert!(frames.is_sorted());
        assert_eq!((pool.take(Key(6)), pool.room()), (None, 0));
        pool.free(frames[3], &space);
        pool.free(frames[1], &space);
        assert_eq!(pool.take(Key(9)), Some(frames[1]));
        assert_eq!(pool.take(Key(9)), Some(frames[3]));
    }

    #[test]
    fn the_cold_and_uncached_go_first() {
        let (mut pool, mut table) = settled(|key| if key < 3 { 2 } else { 0 }, |key| key >= 6);
        let mut chosen = pool.victims(3, &mut table);
        chosen.sort_unstable();
        assert_eq!(chosen, [3, 4, 5].map(Key), "cold ones first");
        let mut chosen = pool.victims(6, &mut table);
        chosen.sort_unstable();
        assert_eq!(chosen, [0, 1, 2, 3, 4, 5].map(Key), "then warm ones");
        assert_eq!(pool.victims(99, &mut table).len(), 8, "cached ones last");
    }

    #[test]
    fn dirty_pages_stay() {
        let (mut pool, mut table) = settled(|_| 0, |_| false);
        for key in [2, 5].map(Key) {
            let place = table.find(key).unwrap();
            table[place].dbv = LineMask(8);
        }
        let chosen = pool.victims(99, &mut table);
        assert_eq!(chosen.len(), 6);
        assert!(!chosen.contains(&Key(2)) && !chosen.contains(&Key(5)));
    }

    #[test]
    fn empty_extents_go_back() {
        let (mut pool, mut space, mut medium, _) = pool(u64::MAX);
        for _ in 0..5 {
            grow(&mut pool, &mut space, &mut medium);
        }
        let frames: Vec<_> = (0..20).map(|key| pool.take(Key(key)).unwrap()).collect();
        for &frame in &frames[4..] {
            pool.free(frame, &space);
        }
        pool.give_back(pool.spare_extents(), &mut space, &mut medium)
            .unwrap();
        assert_eq!((pool.info().pages, pool.info().used), (8, 4));
        pool.free(frames[0], &space);
        assert_eq!(pool.take(Key(1)), Some(frames[0]));
    }
}
