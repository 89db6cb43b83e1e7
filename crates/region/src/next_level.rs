//! The next level: a second file, on a larger and slower device, for pages that have no room in the region's own.
//!
//! ```text
//! region's file   | pages that the store has | commit: which map of the level counts |
//!                                                              |
//! next level      | header | page | page | page |  map  <------'
//! ```
//!
//! * Each page of a checkpoint is in one of the two files: in the level if the map of the last commit lists it, else in
//!   the store.
//! * A move changes no byte of the checkpoint, only where it lies. **To the level**: the page and a
//!   map that lists it are written there and flushed; then one commit of the region's store gives the page up and names
//!   that map.
//!   **Back**: one commit of the store has the page again and names a map without it. So a kill at any instant finds
//!   each page once, and what the program does meanwhile does not matter.
//! * All reads of the store go through the level ([`Leveled`]): those of the pager, of checks, copies and other processes.
//! * A page of the level that the program writes comes back whole with the checkpoint that has what was written.
//! * What no durable map names is free: room that a crash left is found by that, and used again.

mod format;
mod leveled;
mod open;

pub(crate) use leveled::Leveled;
pub(crate) use open::{Owner, Wanted};

use crate::lock::lock;
use crate::superblock::{LevelMap, Superblock};
use crc32c::crc32c_append;
use format::{Held, Map, sum_of};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use twinpage_core::{Capture, Damage, Error, Medium, PageId, Result, Witness};
use twinpage_os::{AnyMedium, Lock};

/// Bytes that the file grows by.
const STEP_BYTES: u64 = 1 << 20;

/// The next level of a region.
pub(crate) struct NextLevel {
    file: PathBuf,
    id: u64,
    page_bytes: usize,
    /// Bytes of pages that the region's own file should have at most.
    limit: Option<u64>,
    /// Whether there are objects in it.
    is_used: AtomicBool,
    state: Mutex<State>,
    _lock: Option<Lock>,
}

struct State {
    medium: AnyMedium,
    /// The map that the last commit names, and what is in it.
    named: LevelMap,
    map: Map,
    /// Its objects, and how many pages each has.
    objects: BTreeMap<u64, u64>,
    /// Slots that the map or the commit under way needs; none before `first_free` is free.
    used: BTreeSet<u32>,
    first_free: u32,
    /// Pages that the commit under way brings here, and those that it takes away.
    coming: Map,
    leaving: BTreeSet<PageId>,
    /// The map that it names.
    next: Option<(LevelMap, Map)>,
    /// Objects that were freed since the last cut, and before it in an epoch that is not durable.
    freed: BTreeSet<u64>,
    freed_before: BTreeSet<u64>,
    /// Why the commit under way cannot be made.
    failed: Option<Error>,
}

impl fmt::Debug for NextLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "next level {}", self.file.display())
    }
}

impl NextLevel {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    pub(crate) fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// What the next commit names, if it moves nothing.
    pub(crate) fn named(&self) -> LevelMap {
        self.lock().named
    }

    /// Whether nothing is in the level. A look that costs nothing.
    pub(crate) fn is_empty(&self) -> bool {
        !self.is_used.load(Ordering::Relaxed)
    }

    /// That all pages of an object can be read.
    pub(crate) fn verify(&self, object: u64) -> Result<()> {
        let mut pages = self.pages_of(object).into_iter();
        pages.try_for_each(|page| self.verify_page(page))
    }

    /// That a page can be read.
    pub(crate) fn verify_page(&self, page: PageId) -> Result<()> {
        let state = self.lock();
        let held = state.held(page);
        held.map_or(Ok(()), |held| self.content(&state.medium, page, held).map(drop))
    }

    /// Whether the level has the page. The store may have it again already.
    pub(crate) fn has(&self, page: PageId) -> bool {
        self.lock().held(page).is_some()
    }

    pub(crate) fn has_object(&self, object: u64) -> bool {
        !self.is_empty() && self.lock().objects.contains_key(&object)
    }

    /// All pages.
    pub(crate) fn pages(&self) -> impl Iterator<Item = PageId> + use<> {
        let pages: Vec<PageId> = self.lock().map.keys().copied().collect();
        pages.into_iter()
    }

    /// The pages of an object.
    pub(crate) fn pages_of(&self, object: u64) -> Vec<PageId> {
        let state = self.lock();
        let of_it = state.map.iter().filter(|(_, held)| held.object == object);
        match state.objects.contains_key(&object) {
            true => of_it.map(|(page, _)| *page).collect(),
            false => Vec::new(),
        }
    }

    /// The objects that are here, each with its bytes.
    pub(crate) fn objects(&self) -> BTreeMap<u64, u64> {
        let state = self.lock();
        let bytes = |pages: u64| pages * self.page_bytes as u64;
        let all = state.objects.iter();
        all.map(|(object, pages)| (*object, bytes(*pages))).collect()
    }

    /// Some bytes of a page; `None` where the level does not have it.
    pub(crate) fn read(&self, page: PageId, from: usize, into: &mut [u8]) -> Option<Result<()>> {
        let state = self.lock();
        let held = state.held(page)?;
        let content = self.content(&state.medium, page, held);
        Some(content.map(|content| into.copy_from_slice(&content[from..from + into.len()])))
    }

    /// A page, verified.
    fn content(&self, medium: &AnyMedium, page: PageId, held: Held) -> Result<Vec<u8>> {
        let (at, mut content) = (self.place(held.slot), vec![0; self.page_bytes]);
        if at + self.page_bytes as u64 > medium.len() {
            return Err(self.damaged(at, format!("it is cut: page {} is not there", page.0)));
        }
        medium.read(at, &mut content)?;
        let found = sum_of(self.id, page, &content);
        match found == held.sum {
            true => Ok(content),
            false => Err(self.damaged(
                at,
                format!(
                    "page {} of object {} has checksum {found:08x}, expected {:08x}",
                    page.0, held.object, held.sum
                ),
            )),
        }
    }

    fn place(&self, slot: u32) -> u64 {
        u64::from(slot) * self.page_bytes as u64
    }

    /// The error of damage names this file: callers know only the region's.
    fn damaged(&self, at: u64, why: String) -> Error {
        Error::Damaged {
            what: "next level",
            at,
            why: format!("{}: {why}; put a whole copy of it back", self.file.display()),
        }
    }

    /// Reads a page: what is not as it was written.
    pub(crate) fn check(&self, page: PageId) -> Option<Damage> {
        let error = self.verify_page(page).err()?;
        let (at, why) = match error {
            Error::Damaged { at, why, .. } => (at, why),
            other => (0, other.to_string()),
        };
        let what = "next level".to_owned();
        Some(Damage { what, at, why })
    }
}

/// What a move and a checkpoint do. One at a time is under way, until it has landed or is lost.
impl NextLevel {
    /// Writes a page of an object that the next commit brings here.
    pub(crate) fn take_in(&self, object: u64, page: PageId, content: &[u8]) -> Result<()> {
        let mut state = self.lock();
        let (slot, sum) = (state.take_slots(1), sum_of(self.id, page, content));
        self.write(&mut state.medium, slot, content)?;
        state.coming.insert(page, Held { object, slot, sum });
        Ok(())
    }

    /// The content of a page that the commit under way takes back; `None` where there is nothing to take back. What
    /// cannot be read fails the commit.
    pub(crate) fn take_back(&self, page: PageId) -> Option<Vec<u8>> {
        let mut state = self.lock();
        let held = *state.map.get(&page)?;
        if !state.leaving.insert(page) {
            return None;
        }
        let content = self.content(&state.medium, page, held);
        content.map_err(|error| state.failed = Some(error)).ok()
    }

    /// A cut: what these pages and freed objects have here is not needed any more.
    pub(crate) fn cut(&self, discarded: &[Range<PageId>]) {
        let state = &mut *self.lock();
        state.freed_before.append(&mut state.freed);
        for pages in discarded {
            let gone = state.map.range(pages.clone());
            state.leaving.extend(gone.map(|(page, _)| *page));
        }
        // No update runs meanwhile, so that all pages are looked at only where they have to be.
        if !state.freed_before.is_empty() {
            let freed = &state.freed_before;
            let gone = state.map.iter().filter(|(_, held)| freed.contains(&held.object));
            state.leaving.extend(gone.map(|(page, _)| *page));
        }
    }

    /// An object is freed by the update under way.
    pub(crate) fn free(&self, object: u64) {
        self.lock().freed.insert(object);
    }

    /// Writes the map that the commit under way names, and makes it durable with the pages that come; `None` where
    /// nothing moves.
    fn name_map(&self) -> Result<Option<LevelMap>> {
        let state = &mut *self.lock();
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        if state.leaving.is_empty() && state.coming.is_empty() {
            return Ok(None);
        }
        let mut map = state.map.clone();
        map.retain(|page, _| !state.leaving.contains(page));
        map.extend(&state.coming);
        let named = match map.is_empty() {
            true => LevelMap {
                id: self.id,
                ..LevelMap::default()
            },
            false => self.write_map(state, &map)?,
        };
        state.next = Some((named, map));
        Ok(Some(named))
    }

    fn write_map(&self, state: &mut State, map: &Map) -> Result<LevelMap> {
        let bytes = format::encode(self.id, map);
        let slot = state.take_slots(bytes.len().div_ceil(self.page_bytes) as u32);
        self.write(&mut state.medium, slot, &bytes)?;
        state.medium.fence()?;
        Ok(LevelMap {
            id: self.id,
            at: self.place(slot),
            bytes: bytes.len() as u64,
            sum: crc32c_append(0, &bytes),
        })
    }

    fn write(&self, medium: &mut AnyMedium, slot: u32, bytes: &[u8]) -> Result<()> {
        let at = self.place(slot);
        let end = (at + bytes.len() as u64).next_multiple_of(self.page_bytes as u64);
        if end > medium.len() {
            medium.grow(end.next_multiple_of(STEP_BYTES))?;
        }
        medium.write(at, bytes)
    }

    /// The commit under way is durable.
    pub(crate) fn landed(&self) {
        let state = &mut *self.lock();
        state.freed_before.clear();
        // Nearly always nothing moved, and all is as it was.
        if let Some((named, map)) = state.next.take() {
            (state.named, state.map) = (named, map);
            state.settle(self.page_bytes);
            self.is_used.store(!state.map.is_empty(), Ordering::Relaxed);
        }
    }

    /// It was not made.
    pub(crate) fn lost(&self) {
        let state = &mut *self.lock();
        state.next = None;
        state.freed.append(&mut state.freed_before);
        state.settle(self.page_bytes);
    }

    /// Why the last commit was not made, if it was for the level.
    pub(crate) fn take_failure(&self) -> Option<Error> {
        self.lock().failed.take()
    }
}

impl State {
    fn new(medium: AnyMedium, named: LevelMap, map: Map, page_bytes: usize) -> State {
        let mut state = State {
            medium,
            named,
            map,
            objects: BTreeMap::new(),
            used: BTreeSet::new(),
            first_free: 1,
            coming: Map::new(),
            leaving: BTreeSet::new(),
            next: None,
            freed: BTreeSet::new(),
            freed_before: BTreeSet::new(),
            failed: None,
        };
        state.settle(page_bytes);
        state
    }

    fn held(&self, page: PageId) -> Option<Held> {
        self.map.get(&page).or_else(|| self.coming.get(&page)).copied()
    }

    /// Nothing is under way: what the map does not need is free.
    fn settle(&mut self, page_bytes: usize) {
        (self.coming, self.leaving) = (Map::new(), BTreeSet::new());
        let first = (self.named.at / page_bytes as u64) as u32;
        let of_map = first..first + self.named.bytes.div_ceil(page_bytes as u64) as u32;
        let pages = self.map.values().map(|held| held.slot);
        self.used = std::iter::once(0).chain(of_map).chain(pages).collect();
        self.first_free = 1;
        self.objects.clear();
        for held in self.map.values() {
            *self.objects.entry(held.object).or_default() += 1;
        }
    }

    /// Takes `count` free slots in a row, and returns the first.
    fn take_slots(&mut self, count: u32) -> u32 {
        while self.used.contains(&self.first_free) {
            self.first_free += 1;
        }
        let mut first = self.first_free;
        for &slot in self.used.range(first..) {
            if slot - first >= count {
                break;
            }
            first = slot + 1;
        }
        self.used.extend(first..first + count);
        first
    }
}

/// Gives each commit of a region the map of its next level, if it has one.
pub(crate) struct Upkeep(pub(crate) Option<std::sync::Arc<NextLevel>>);

impl Witness for Upkeep {
    /// A map that cannot be written loses the epoch, and nothing else: the next one tries again.
    fn before_commit(&mut self, capture: &mut Capture) -> Result<()> {
        let Some(next) = &self.0 else { return Ok(()) };
        let named = next.name_map().map_err(|error| {
            let what = error.to_string();
            next.lock().failed = Some(error);
            Error::Full { what, needed: 0 }
        })?;
        if let Some(named) = named {
            let invalid = |error: crate::error::Error| Error::Invalid(error.to_string());
            let superblock = Superblock::decode(&capture.context).map_err(invalid)?;
            capture.context = superblock.over(named).encode();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_slots_are_found_first_and_together() {
        let folder = tempfile::tempdir().unwrap();
        let medium = AnyMedium::create(folder.path().join("level"), twinpage_os::Durability::Disk).unwrap();
        let held = |slot| Held {
            object: 1,
            slot,
            sum: 0,
        };
        let map = Map::from([(PageId(0), held(2)), (PageId(1), held(5))]);
        let named = LevelMap {
            id: 1,
            at: 7 * 4096,
            bytes: 5000,
            sum: 0,
        };
        let mut state = State::new(medium, named, map, 4096);
        assert_eq!(state.take_slots(2), 3);
        assert_eq!([1, 1, 1].map(|count| state.take_slots(count)), [1, 6, 9]);
        assert_eq!(state.take_slots(2), 10);
        state.settle(4096);
        assert_eq!(state.take_slots(3), 9);
        assert_eq!(state.take_slots(1), 1);
    }
}
