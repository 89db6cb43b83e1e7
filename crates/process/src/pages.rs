//! Where each page of a program's memory lives in the page space of the store.
//!
//! ```text
//! addresses   ... [ 256 KiB chunk ][ 256 KiB chunk ] ...      sparse, 47 bits
//!                        │               │
//! page space      [ chunk id 3 ]   [ chunk id 0 ]         dense, given out on demand
//! ```
//!
//! * A chunk of 64 system pages has one place of its own, and parts of others where pages are shared; the table is small
//!   (24 bytes a place).
//! * `stored` says which system pages the checkpoint holds: a page that is not stored is empty (or
//!   still the file's). The table is part of every context, so it changes with the checkpoint.
//! * The memories of several processes share the page space. A place belongs to one of them, or is shared and written no
//!   more ([`places`]): pages that a process has from its maker are stored once. One that is written moves to a place of
//!   its memory's own.
//! * `heat` guesses how often a page is written, so that pages dirty in most epochs stay writable:
//!   a look costs less than a fault.

mod places;
#[cfg(test)]
mod tests;

use crate::error::{Error, Result};
use places::Places;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use twinpage_core::{Geometry, LineMask, PageId, Piece};
use twinpage_os::tracker::PAGE;

/// Bytes of addresses a chunk covers.
pub const CHUNK_BYTES: u64 = 256 << 10;
/// System pages in a chunk.
pub const CHUNK_PAGES: usize = (CHUNK_BYTES / PAGE) as usize;

/// A page is hot from this heat on; each epoch that wrote it adds one, each look in vain takes one
/// away. So a page stays hot that is written in more than every other epoch, and the heat it can
/// gain bounds how many looks in vain a page that went quiet costs.
const HOT: u8 = 3;
const HOTTEST: u8 = 8;

/// A chunk with fewer hot pages than this is treated as if it had none: protecting its few other
/// written pages one by one would cost more than the faults saved.
const WORTHWHILE: u16 = 3;

/// A bit for each system page of a chunk.
pub type Bits = [u64; CHUNK_PAGES / 64];

const NO_PAGES: Bits = [0; CHUNK_PAGES / 64];

/// One chunk of addresses and its places.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// Where pages go that are written; none before the first.
    own: Option<u32>,
    /// The pages stored there.
    stored: Bits,
    /// Pages that are stored in shared places.
    shared: Vec<Shared>,
    /// Pages that were left writable at the last scan: that they look written says nothing.
    left: Bits,
    heat: Box<[u8; CHUNK_PAGES]>,
    hot: u16,
}

/// Pages of a chunk in a place that is shared.
#[derive(Clone, Copy, Debug)]
struct Shared {
    id: u32,
    stored: Bits,
}

impl Chunk {
    fn new() -> Chunk {
        Chunk {
            own: None,
            stored: NO_PAGES,
            shared: Vec::new(),
            left: NO_PAGES,
            heat: Box::new([0; CHUNK_PAGES]),
            hot: 0,
        }
    }

    /// Whether enough of its pages are hot for those to be left writable.
    #[must_use]
    pub fn leaves_pages_writable(&self) -> bool {
        self.hot >= WORTHWHILE
    }

    /// Whether the page is left writable.
    #[must_use]
    pub fn is_hot(&self, index: usize) -> bool {
        self.heat[index] >= HOT
    }

    fn is_empty(&self) -> bool {
        self.stored == NO_PAGES && self.shared.is_empty()
    }

    /// The place that has a page stored.
    fn place_of(&self, index: usize) -> Option<u32> {
        if is_set(&self.stored, index) {
            return self.own;
        }
        let mut shared = self.shared.iter();
        shared
            .find(|part| is_set(&part.stored, index))
            .map(|part| part.id)
    }

    fn is_stored(&self, index: usize) -> bool {
        self.place_of(index).is_some()
    }

    /// The place for pages that are written: the one there is, one that nothing else uses any more, or a free one.
    fn own_place(&mut self, number: u64, places: &Places) -> u32 {
        if let Some(id) = self.own {
            return id;
        }
        let alone = self
            .shared
            .iter()
            .position(|part| places.reclaim(part.id, &part.stored));
        let id = match alone.map(|at| self.shared.swap_remove(at)) {
            Some(part) => {
                self.stored = part.stored;
                part.id
            }
            None => places.give(number),
        };
        self.own = Some(id);
        id
    }

    /// More pages are stored in a shared place.
    fn show(&mut self, part: Shared) {
        match self.shared.iter_mut().find(|known| known.id == part.id) {
            Some(known) => (known.stored.iter_mut().zip(part.stored)).for_each(|(word, more)| *word |= more),
            None => self.shared.push(part),
        }
    }

    /// A page is stored in a shared place no longer. The place, if it was.
    fn leave_shared(&mut self, index: usize) -> Option<u32> {
        let at = (self.shared.iter()).position(|part| is_set(&part.stored, index))?;
        let part = &mut self.shared[at];
        set(&mut part.stored, index, false);
        let id = part.id;
        if part.stored == NO_PAGES {
            self.shared.swap_remove(at);
        }
        Some(id)
    }

    /// Its places, with the pages that are stored in each.
    fn parts(&self) -> impl Iterator<Item = Shared> {
        let own = self.own.map(|id| Shared {
            id,
            stored: self.stored,
        });
        let own = own.filter(|own| own.stored != NO_PAGES);
        own.into_iter().chain(self.shared.iter().copied())
    }

    /// The page is left writable, or not any more. True when it was.
    pub fn leave_writable(&mut self, index: usize, leave: bool) -> bool {
        let was = is_set(&self.left, index);
        set(&mut self.left, index, leave);
        was
    }

    /// The page was found written: it grows warm, and is not left writable any more. True when it was, so that it must be
    /// compared. A page that was hot or left writable is judged by comparing it.
    pub fn find_written(&mut self, index: usize) -> bool {
        let was_hot = self.is_hot(index);
        let was_left = self.leave_writable(index, false);
        if !was_hot && !was_left {
            self.warm(index);
        }
        was_left
    }

    fn warm(&mut self, index: usize) {
        let heat = &mut self.heat[index];
        self.hot += u16::from(*heat == HOT - 1);
        *heat = (*heat + 1).min(HOTTEST);
    }

    /// The page was looked at in vain.
    fn cool(&mut self, index: usize) {
        let heat = &mut self.heat[index];
        let was_hot = *heat >= HOT;
        *heat = heat.saturating_sub(1);
        self.hot -= u16::from(was_hot && *heat < HOT);
    }
}

/// Sets a page's bit.
pub fn set(bits: &mut Bits, index: usize, value: bool) {
    let (word, bit) = (&mut bits[index / 64], 1 << (index % 64));
    if value { *word |= bit } else { *word &= !bit }
}

/// A page's bit.
#[must_use]
pub fn is_set(bits: &Bits, index: usize) -> bool {
    bits[index / 64] >> (index % 64) & 1 == 1
}

/// The table of chunks.
#[derive(Debug)]
pub struct Pages {
    geometry: Geometry,
    chunks: BTreeMap<u64, Chunk>,
    places: Places,
    /// Set when the table in the context is out of date.
    changed: bool,
    table: Vec<u8>,
}

/// Chunks in all the addresses of a process.
const MOST_CHUNKS: u64 = (1 << 47) / CHUNK_BYTES;

/// Bytes of one place in the table: number, id, bitmap.
const ROW_BYTES: usize = 16 + CHUNK_PAGES / 8;

impl Pages {
    /// An empty table for a store of this geometry.
    ///
    /// # Errors
    /// When a page of the store does not divide a chunk.
    pub fn new(geometry: Geometry) -> Result<Pages> {
        if !CHUNK_BYTES.is_multiple_of(geometry.page_bytes() as u64) {
            return Err(Error::Internal(format!(
                "a {}-byte page does not divide a chunk",
                geometry.page_bytes()
            )));
        }
        Ok(Pages {
            geometry,
            chunks: BTreeMap::new(),
            places: Places::default(),
            changed: true,
            table: Vec::new(),
        })
    }

    /// The geometry of the store.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// An empty table beside this one: for the memory of another process, in the same store.
    #[must_use]
    pub fn beside(&self) -> Pages {
        Pages {
            geometry: self.geometry,
            chunks: BTreeMap::new(),
            places: self.places.clone(),
            changed: true,
            table: Vec::new(),
        }
    }

    fn pages_of(&self, id: u32) -> Range<u64> {
        let each = CHUNK_BYTES / self.geometry.page_bytes() as u64;
        u64::from(id) * each..u64::from(id + 1) * each
    }

    /// The chunk of an address, made if there is none.
    pub fn chunk(&mut self, address: u64) -> &mut Chunk {
        self.chunks
            .entry(address / CHUNK_BYTES)
            .or_insert_with(Chunk::new)
    }

    /// The chunks, by address.
    pub fn chunks(&self) -> impl Iterator<Item = (u64, &Chunk)> {
        self.chunks
            .iter()
            .map(|(number, chunk)| (number * CHUNK_BYTES, chunk))
    }

    /// Where the system page at `address` is written in the store. It is stored from now on. A page of the store that
    /// holds nothing more, as it was shared, is added to `discarded`.
    pub fn piece(&mut self, address: u64, compare: bool, discarded: &mut Vec<Range<PageId>>) -> Piece {
        let (number, index) = (address / CHUNK_BYTES, page_index(address));
        let chunk = self.chunks.entry(number).or_insert_with(Chunk::new);
        let id = chunk.own_place(number, &self.places);
        if !is_set(&chunk.stored, index) {
            set(&mut chunk.stored, index, true);
            self.changed = true;
            if let Some(shared) = chunk.leave_shared(index) {
                self.leave(shared, index, discarded);
            }
        }
        self.place(id, index, compare)
    }

    /// A page is stored in a shared place no longer.
    fn leave(&self, id: u32, index: usize, discarded: &mut Vec<Range<PageId>>) {
        let each = self.system_pages();
        let first = index / each * each;
        if self.places.leave(id, index, first..first + each) {
            discard(self.pages_of(id).start + (first / each) as u64, discarded);
        }
    }

    /// System pages in a page of the store.
    fn system_pages(&self) -> usize {
        (self.geometry.page_bytes() as u64 / PAGE).max(1) as usize
    }

    /// Whether anything of the chunk at `base` is stored.
    #[must_use]
    pub fn has_any(&self, base: u64) -> bool {
        let chunk = self.chunks.get(&(base / CHUNK_BYTES));
        chunk.is_some_and(|chunk| !chunk.is_empty())
    }

    /// `other` holds the `same` at these pages of the chunk at `base`. Those of them that are stored here, and not there yet,
    /// are stored in one place for both from now on; they are given.
    pub fn share(&mut self, other: &mut Pages, base: u64, same: &Bits) -> Bits {
        let number = base / CHUNK_BYTES;
        let Some(chunk) = self.chunks.get_mut(&number) else {
            return NO_PAGES;
        };
        let theirs = other.chunks.entry(number).or_insert_with(Chunk::new);
        let wanted = |part: &Shared| -> Bits {
            std::array::from_fn(|word| {
                let there = theirs.parts().fold(0, |bits, part| bits | part.stored[word]);
                part.stored[word] & same[word] & !there
            })
        };
        let found: Vec<Shared> = (chunk.parts())
            .map(|part| Shared {
                stored: wanted(&part),
                ..part
            })
            .filter(|part| part.stored != NO_PAGES)
            .collect();
        let mut all = NO_PAGES;
        for part in &found {
            if chunk.own == Some(part.id) {
                let stored = std::mem::replace(&mut chunk.stored, NO_PAGES);
                self.places.share(part.id, &stored);
                chunk.own = None;
                chunk.shared.push(Shared { stored, ..*part });
            }
            self.places.share(part.id, &part.stored);
            all.iter_mut()
                .zip(part.stored)
                .for_each(|(all, word)| *all |= word);
        }
        other.changed |= !found.is_empty();
        found.into_iter().for_each(|part| theirs.show(part));
        all
    }

    fn place(&self, id: u32, index: usize, compare: bool) -> Piece {
        let line = self.geometry.line_bytes() as u64;
        let at = index as u64 * PAGE;
        let page = self.pages_of(id).start + at / self.geometry.page_bytes() as u64;
        let first = at % self.geometry.page_bytes() as u64 / line;
        let lines = (PAGE / line).max(1);
        Piece {
            page: PageId(page),
            held: LineMask::run(first as usize, lines as usize),
            compare,
        }
    }

    /// Pages of `range` for which `gone` says so are stored no longer. Whole pages of the store that
    /// empty are added to `discarded`; chunks that empty are free again.
    pub fn forget(
        &mut self,
        range: Range<u64>,
        discarded: &mut Vec<Range<PageId>>,
        gone: impl Fn(u64) -> bool,
    ) {
        let numbers = range.start / CHUNK_BYTES..range.end.div_ceil(CHUNK_BYTES);
        let touched: Vec<u64> = self.chunks.range(numbers).map(|(number, _)| *number).collect();
        for number in touched {
            let base = number * CHUNK_BYTES;
            let chunk = self.chunks.get_mut(&number).expect("listed above");
            let (before, mut left) = (chunk.stored, Vec::new());
            for index in 0..CHUNK_PAGES {
                let address = base + index as u64 * PAGE;
                if range.contains(&address) && chunk.is_stored(index) && gone(address) {
                    match chunk.leave_shared(index) {
                        Some(id) => left.push((id, index)),
                        None => set(&mut chunk.stored, index, false),
                    }
                    chunk.leave_writable(index, false);
                    chunk.hot -= u16::from(chunk.heat[index] >= HOT);
                    chunk.heat[index] = 0;
                }
            }
            let (own, after, is_empty) = (chunk.own, chunk.stored, chunk.is_empty());
            let had = after != before || !left.is_empty();
            self.changed |= had;
            if after == NO_PAGES {
                chunk.own = None;
            }
            if let Some(id) = own {
                self.discard_emptied(id, &before, &after, discarded);
                if after == NO_PAGES {
                    self.places.take_back(id);
                }
            }
            for (id, index) in left {
                self.leave(id, index, discarded);
            }
            if is_empty && had {
                self.chunks.remove(&number);
            }
        }
    }

    /// Pages of the store, in a place of this memory's own, that held something before and hold nothing after.
    fn discard_emptied(&self, id: u32, before: &Bits, after: &Bits, discarded: &mut Vec<Range<PageId>>) {
        let system_pages = self.system_pages();
        let any = |bits: &Bits, from: usize| (from..from + system_pages).any(|index| is_set(bits, index));
        for (page, from) in self.pages_of(id).zip((0..CHUNK_PAGES).step_by(system_pages)) {
            if any(before, from) && !any(after, from) {
                discard(page, discarded);
            }
        }
    }

    /// The system page of a piece; `None` when its chunk is gone by now, or another process's.
    #[must_use]
    pub fn address(&self, piece: Piece) -> Option<u64> {
        let each = CHUNK_BYTES / self.geometry.page_bytes() as u64;
        let id = piece.page.0 / each;
        let number = self.places.number(id)?;
        let chunk = self.chunks.get(&number)?;
        let inside = piece.page.0 % each * self.geometry.page_bytes() as u64
            + u64::from(piece.held.0.trailing_zeros()) * self.geometry.line_bytes() as u64;
        let index = page_index(inside);
        let is_in = |part: &Shared| u64::from(part.id) == id && is_set(&part.stored, index);
        let known = chunk.own.map(u64::from) == Some(id) || chunk.shared.iter().any(is_in);
        known.then_some(number * CHUNK_BYTES + inside)
    }

    /// A hot piece was compared: it had changed, or not. Whether it is of this memory.
    pub fn learn(&mut self, piece: Piece, changed: bool) -> bool {
        let Some(address) = self.address(piece) else {
            return false;
        };
        let Some(chunk) = self.chunks.get_mut(&(address / CHUNK_BYTES)) else {
            return false;
        };
        let index = page_index(address);
        match changed {
            true if chunk.is_hot(index) => {
                chunk.warm(index);
            }
            true => {}
            false => chunk.cool(index),
        }
        true
    }

    /// Runs of stored pages, by address: what restore fills.
    pub fn stored_runs(&self) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (base, chunk) in self.chunks() {
            for index in (0..CHUNK_PAGES).filter(|index| chunk.is_stored(*index)) {
                let address = base + index as u64 * PAGE;
                match runs.last_mut() {
                    Some(last) if last.end == address => last.end += PAGE,
                    _ => runs.push(address..address + PAGE),
                }
            }
        }
        runs
    }

    /// Where a stored page lives.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<Piece> {
        let chunk = self.chunks.get(&(address / CHUNK_BYTES))?;
        let index = page_index(address);
        chunk.place_of(index).map(|id| self.place(id, index, false))
    }

    /// The table, for the context. Kept until it changes.
    pub fn table(&mut self) -> &[u8] {
        if std::mem::take(&mut self.changed) {
            self.table = self.rows();
        }
        &self.table
    }

    fn rows(&self) -> Vec<u8> {
        let chunks = self.chunks.iter();
        let mut rows: Vec<(u64, Shared)> = chunks
            .flat_map(|(number, chunk)| chunk.parts().map(|part| (*number, part)))
            .collect();
        rows.sort_by_key(|(_, part)| part.id); // a new chunk moves no row
        let mut table = Vec::with_capacity(rows.len() * ROW_BYTES);
        for (number, part) in rows {
            table.extend_from_slice(&number.to_le_bytes());
            table.extend_from_slice(&u64::from(part.id).to_le_bytes());
            for word in part.stored {
                table.extend_from_slice(&word.to_le_bytes());
            }
        }
        table
    }

    /// The table as it was in a context.
    ///
    /// # Errors
    /// When the bytes are no table.
    pub fn from_table(geometry: Geometry, table: &[u8]) -> Result<Pages> {
        let mut all = Pages::from_tables(geometry, &[table])?;
        all.pop()
            .ok_or_else(|| Error::Internal("a table gives no pages".into()))
    }

    /// The tables of several processes, as they were in a context. A place that several have is shared.
    ///
    /// # Errors
    /// As [`Pages::from_table`]; and when two chunks of addresses claim one place.
    pub fn from_tables(geometry: Geometry, tables: &[&[u8]]) -> Result<Vec<Pages>> {
        let first = Pages::new(geometry)?;
        let mut all: Vec<Pages> = tables.iter().map(|_| first.beside()).collect();
        let mut owners: HashMap<u32, (u64, usize)> = HashMap::new();
        for (pages, table) in all.iter_mut().zip(tables) {
            pages.read_table(table, &mut owners)?;
        }
        let end = owners.keys().max().map_or(0, |highest| *highest as usize + 1);
        let mut numbers = vec![0; end];
        owners
            .iter()
            .for_each(|(id, (number, _))| numbers[*id as usize] = *number);
        first.places.restore(numbers, |id| !owners.contains_key(&id));
        for pages in &mut all {
            pages.find_own(|id| owners.get(&id).is_some_and(|(_, users)| *users == 1));
        }
        Ok(all)
    }

    /// Reads a table into shared parts of chunks; `owners` says which chunk of addresses a place has, and in how many
    /// tables it stands.
    fn read_table(&mut self, table: &[u8], owners: &mut HashMap<u32, (u64, usize)>) -> Result<()> {
        let damaged = |why: &str| Error::Damaged(format!("page table in the context: {why}"));
        if !table.len().is_multiple_of(ROW_BYTES) {
            return Err(damaged("its length is no whole number of rows"));
        }
        let mut next = 0;
        for row in table.chunks_exact(ROW_BYTES) {
            let word =
                |index: usize| u64::from_le_bytes(row[index * 8..][..8].try_into().expect("eight bytes"));
            let (number, id) = (word(0), word(1));
            let stored: Bits = std::array::from_fn(|index| word(2 + index));
            // Rows stand in the order of their ids; a table of N rows that had M chunks at most.
            let in_order = id >= next && id < MOST_CHUNKS;
            if !in_order || number >= u64::MAX / CHUNK_BYTES || stored == NO_PAGES {
                return Err(damaged("a row is out of order or empty"));
            }
            next = id + 1;
            let id = id as u32;
            let (claimed, users) = owners.entry(id).or_insert((number, 0));
            *users += 1;
            let chunk = self.chunks.entry(number).or_insert_with(Chunk::new);
            let twice = chunk
                .parts()
                .any(|part| part.stored.iter().zip(stored).any(|(a, b)| a & b != 0));
            if *claimed != number || twice {
                return Err(damaged("a chunk stands twice"));
            }
            chunk.shared.push(Shared { id, stored });
        }
        Ok(())
    }

    /// Of the parts that were read, makes those of one place own that no other memory has; the others are shared.
    fn find_own(&mut self, is_alone: impl Fn(u32) -> bool) {
        for chunk in self.chunks.values_mut() {
            if let Some(at) = chunk.shared.iter().position(|part| is_alone(part.id)) {
                let own = chunk.shared.swap_remove(at);
                (chunk.own, chunk.stored) = (Some(own.id), own.stored);
            }
            for part in &chunk.shared {
                self.places.share(part.id, &part.stored);
            }
        }
    }
}

/// Adds a page of the store to those that hold nothing more.
fn discard(page: u64, discarded: &mut Vec<Range<PageId>>) {
    match discarded.last_mut() {
        Some(last) if last.end == PageId(page) => last.end = PageId(page + 1),
        _ => discarded.push(PageId(page)..PageId(page + 1)),
    }
}

/// The place of an address's page in its chunk.
#[must_use]
pub fn page_index(address: u64) -> usize {
    (address % CHUNK_BYTES / PAGE) as usize
}
