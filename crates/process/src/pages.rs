//! Where each page of a program's memory lives in the page space of the store.
//!
//! ```text
//! addresses   ... [ 256 KiB chunk ][ 256 KiB chunk ] ...      sparse, 47 bits
//!                        │               │
//! page space      [ chunk id 3 ]   [ chunk id 0 ]         dense, given out on demand
//! ```
//!
//! * A chunk of 64 system pages has one place; the table is small (24 bytes a chunk).
//! * `stored` says which system pages the checkpoint holds: a page that is not stored is empty (or
//!   still the file's). The table is part of every context, so it changes with the checkpoint.
//! * The memories of several processes share the page space: a place belongs to one of them ([`Places`]).
//! * `heat` guesses how often a page is written, so that pages dirty in most epochs stay writable:
//!   a look costs less than a fault.

use crate::error::{Error, Result};
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
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
type Bits = [u64; CHUNK_PAGES / 64];

/// One chunk of addresses and its place.
#[derive(Clone, Debug)]
pub struct Chunk {
    id: u32,
    stored: Bits,
    /// Pages that were left writable at the last scan: that they look written says nothing.
    left: Bits,
    heat: Box<[u8; CHUNK_PAGES]>,
    hot: u16,
}

impl Chunk {
    fn new(id: u32) -> Chunk {
        Chunk {
            id,
            stored: [0; CHUNK_PAGES / 64],
            left: [0; CHUNK_PAGES / 64],
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
        self.stored == [0; CHUNK_PAGES / 64]
    }

    fn set_stored(&mut self, index: usize, stored: bool) {
        set(&mut self.stored, index, stored);
    }

    fn is_stored(&self, index: usize) -> bool {
        is_set(&self.stored, index)
    }

    /// The page is left writable, or not any more. True when it was.
    pub fn leave_writable(&mut self, index: usize, leave: bool) -> bool {
        let was = is_set(&self.left, index);
        set(&mut self.left, index, leave);
        was
    }

    /// The page was found written.
    pub fn warm(&mut self, index: usize) {
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

fn set(bits: &mut Bits, index: usize, value: bool) {
    let (word, bit) = (&mut bits[index / 64], 1 << (index % 64));
    if value { *word |= bit } else { *word &= !bit }
}

fn is_set(bits: &Bits, index: usize) -> bool {
    bits[index / 64] >> (index % 64) & 1 == 1
}

/// The places of a store, given out to all that keep pages in it.
#[derive(Clone, Debug, Default)]
struct Places(Arc<Mutex<Given>>);

#[derive(Debug, Default)]
struct Given {
    free: Vec<u32>,
    /// Which chunk of addresses each id was last given to.
    numbers: Vec<u64>,
}

impl Places {
    fn given(&self) -> MutexGuard<'_, Given> {
        self.0.lock().expect("no panic holds it")
    }

    fn give(&self, number: u64) -> u32 {
        let mut given = self.given();
        let id = given.free.pop().unwrap_or(given.numbers.len() as u32);
        if id as usize == given.numbers.len() {
            given.numbers.push(number);
        }
        given.numbers[id as usize] = number;
        id
    }

    fn take_back(&self, id: u32) {
        self.given().free.push(id);
    }

    fn number(&self, id: u64) -> Option<u64> {
        self.given().numbers.get(id as usize).copied()
    }
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

/// Bytes of one chunk in the table: number, id, padding, bitmap.
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
        let number = address / CHUNK_BYTES;
        let (places, changed) = (&self.places, &mut self.changed);
        self.chunks.entry(number).or_insert_with(|| {
            *changed = true;
            Chunk::new(places.give(number))
        })
    }

    /// The chunks, by address.
    pub fn chunks(&self) -> impl Iterator<Item = (u64, &Chunk)> {
        self.chunks
            .iter()
            .map(|(number, chunk)| (number * CHUNK_BYTES, chunk))
    }

    /// Where the system page at `address` lives in the store. It is stored from now on.
    pub fn piece(&mut self, address: u64, compare: bool) -> Piece {
        let index = page_index(address);
        let chunk = self.chunk(address);
        let id = chunk.id;
        let known = chunk.is_stored(index);
        chunk.set_stored(index, true);
        self.changed |= !known;
        self.place(id, index, compare)
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
            let before = chunk.stored;
            for index in 0..CHUNK_PAGES {
                let address = base + index as u64 * PAGE;
                if range.contains(&address) && chunk.is_stored(index) && gone(address) {
                    chunk.set_stored(index, false);
                    chunk.leave_writable(index, false);
                    chunk.hot -= u16::from(chunk.heat[index] >= HOT);
                    chunk.heat[index] = 0;
                }
            }
            let (id, after) = (chunk.id, chunk.stored);
            if after == before {
                continue;
            }
            self.changed = true;
            self.discard_emptied(id, &before, &after, discarded);
            if after.iter().all(|word| *word == 0) {
                self.chunks.remove(&number);
                self.places.take_back(id);
            }
        }
    }

    /// Pages of the store, in chunk `id`, that held something before and hold nothing after.
    fn discard_emptied(&self, id: u32, before: &Bits, after: &Bits, discarded: &mut Vec<Range<PageId>>) {
        let system_pages = (self.geometry.page_bytes() as u64 / PAGE).max(1) as usize;
        let any = |bits: &Bits, from: usize| {
            (from..from + system_pages).any(|index| bits[index / 64] >> (index % 64) & 1 == 1)
        };
        for (page, from) in self.pages_of(id).zip((0..CHUNK_PAGES).step_by(system_pages)) {
            if any(before, from) && !any(after, from) {
                match discarded.last_mut() {
                    Some(last) if last.end == PageId(page) => last.end = PageId(page + 1),
                    _ => discarded.push(PageId(page)..PageId(page + 1)),
                }
            }
        }
    }

    /// The system page of a piece; `None` when its chunk is gone by now, or another process's.
    #[must_use]
    pub fn address(&self, piece: Piece) -> Option<u64> {
        let each = CHUNK_BYTES / self.geometry.page_bytes() as u64;
        let id = piece.page.0 / each;
        let number = self.places.number(id)?;
        let own = self.chunks.get(&number)?;
        if u64::from(own.id) != id {
            return None;
        }
        let inside = piece.page.0 % each * self.geometry.page_bytes() as u64
            + u64::from(piece.held.0.trailing_zeros()) * self.geometry.line_bytes() as u64;
        Some(number * CHUNK_BYTES + inside)
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
        chunk.is_stored(index).then(|| self.place(chunk.id, index, false))
    }

    /// The table, for the context. Kept until it changes.
    pub fn table(&mut self) -> &[u8] {
        if std::mem::take(&mut self.changed) {
            self.table.clear();
            let mut rows: Vec<_> = self.chunks.iter().collect();
            rows.sort_by_key(|(_, chunk)| chunk.id); // a new chunk moves no row
            for (number, chunk) in rows {
                self.table.extend_from_slice(&number.to_le_bytes());
                self.table.extend_from_slice(&u64::from(chunk.id).to_le_bytes());
                for word in chunk.stored {
                    self.table.extend_from_slice(&word.to_le_bytes());
                }
            }
        }
        &self.table
    }

    /// The table as it was in a context.
    ///
    /// # Errors
    /// When two chunks claim one place, or the bytes are no table.
    pub fn from_table(geometry: Geometry, table: &[u8]) -> Result<Pages> {
        let mut all = Pages::from_tables(geometry, &[table])?;
        all.pop()
            .ok_or_else(|| Error::Internal("a table gives no pages".into()))
    }

    /// The tables of several processes, as they were in a context.
    ///
    /// # Errors
    /// As [`Pages::from_table`].
    pub fn from_tables(geometry: Geometry, tables: &[&[u8]]) -> Result<Vec<Pages>> {
        let first = Pages::new(geometry)?;
        let mut all: Vec<Pages> = tables.iter().map(|_| first.beside()).collect();
        let (mut taken, mut numbers) = (HashSet::new(), Vec::new());
        for (pages, table) in all.iter_mut().zip(tables) {
            pages.read_table(table, &mut taken, &mut numbers)?;
        }
        let free = (0..numbers.len() as u32).filter(|id| !taken.contains(id));
        *first.places.given() = Given {
            free: free.collect(),
            numbers,
        };
        Ok(all)
    }

    fn read_table(&mut self, table: &[u8], taken: &mut HashSet<u32>, numbers: &mut Vec<u64>) -> Result<()> {
        let damaged = |why: &str| Error::Damaged(format!("page table in the context: {why}"));
        if !table.len().is_multiple_of(ROW_BYTES) {
            return Err(damaged("its length is no whole number of rows"));
        }
        let mut next = 0;
        for row in table.chunks_exact(ROW_BYTES) {
            let word =
                |index: usize| u64::from_le_bytes(row[index * 8..][..8].try_into().expect("eight bytes"));
            let (number, id) = (word(0), word(1));
            let mut chunk = Chunk::new(id as u32);
            chunk.stored = std::array::from_fn(|index| word(2 + index));
            // Rows stand in the order of their ids; a table of N rows that had M chunks at most.
            let in_order = id >= next && id < MOST_CHUNKS;
            if !in_order || number >= u64::MAX / CHUNK_BYTES || chunk.is_empty() {
                return Err(damaged("a row is out of order or empty"));
            }
            next = id + 1;
            if numbers.len() <= id as usize {
                numbers.resize(id as usize + 1, 0);
            }
            numbers[id as usize] = number;
            if !taken.insert(id as u32) || self.chunks.insert(number, chunk).is_some() {
                return Err(damaged("a chunk stands twice"));
            }
        }
        Ok(())
    }
}

/// The place of an address's page in its chunk.
#[must_use]
pub fn page_index(address: u64) -> usize {
    (address % CHUNK_BYTES / PAGE) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_survives_its_context() {
        for geometry in [Geometry::MEMORY, Geometry::DISK] {
            let mut pages = Pages::new(geometry).unwrap();
            let addresses = [0x40_0000, 0x40_1000, 0x7fff_0000_0000, 0x5555_5540_3000];
            let pieces: Vec<_> = addresses
                .iter()
                .map(|address| pages.piece(*address, true))
                .collect();
            let copy = Pages::from_table(geometry, pages.table()).unwrap();
            for (address, piece) in addresses.iter().zip(pieces) {
                assert_eq!(
                    copy.find(*address),
                    Some(Piece {
                        compare: false,
                        ..piece
                    })
                );
            }
            assert_eq!(copy.find(0x40_2000), None);
            assert_eq!(copy.stored_runs().len(), 3);
        }
    }

    #[test]
    fn pages_of_several_memories_are_kept_apart() {
        let mut one = Pages::new(Geometry::MEMORY).unwrap();
        let mut other = one.beside();
        let pieces = [&mut one, &mut other].map(|pages| pages.piece(0x40_0000, true));
        assert_ne!(pieces[0].page, pieces[1].page);
        assert_eq!(
            (one.address(pieces[1]), other.address(pieces[1])),
            (None, Some(0x40_0000))
        );
        let tables = [one.table().to_vec(), other.table().to_vec()];
        let both = |tables: [&[u8]; 2]| Pages::from_tables(Geometry::MEMORY, &tables);
        let mut again = both([&tables[0], &tables[1]]).unwrap();
        assert_eq!(again[1].find(0x40_0000).unwrap().page, pieces[1].page);
        let fresh = again[0].piece(0x80_0000, true);
        assert!(pieces.iter().all(|piece| piece.page != fresh.page));
        assert!(both([&tables[0], &tables[0]]).is_err(), "a place of two memories");
        other.forget(0..u64::MAX, &mut Vec::new(), |_| true);
        assert_eq!(
            one.piece(0x80_0000, true).page,
            pieces[1].page,
            "its place is free again"
        );
    }

    #[test]
    fn emptied_pages_are_discarded_and_chunks_reused() {
        let mut pages = Pages::new(Geometry::MEMORY).unwrap();
        pages.piece(0x40_0000, true);
        let kept = pages.piece(0x60_0000, true);
        let mut discarded = Vec::new();
        pages.forget(0x40_0000..0x60_0000, &mut discarded, |_| true);
        assert_eq!(discarded, [PageId(0)..PageId(1)]);
        assert_eq!(
            pages.find(0x60_0000),
            Some(Piece {
                compare: false,
                ..kept
            })
        );
        assert_eq!(pages.piece(0x80_0000, true).page, PageId(0));
    }

    #[test]
    fn a_damaged_table_is_refused() {
        let mut pages = Pages::new(Geometry::MEMORY).unwrap();
        pages.piece(0x40_0000, true);
        let table = pages.table().to_vec();
        assert!(Pages::from_table(Geometry::MEMORY, &table[1..]).is_err());
        let twice = [table.clone(), table].concat();
        assert!(Pages::from_table(Geometry::MEMORY, &twice).is_err());
    }

    #[test]
    fn heat_rises_and_falls() {
        let mut chunk = Chunk::new(0);
        for _ in 0..HOT {
            assert!(!chunk.is_hot(7));
            chunk.warm(7);
        }
        assert!(chunk.is_hot(7) && chunk.hot == 1);
        (0..20).for_each(|_| chunk.warm(7));
        (0..HOTTEST - HOT).for_each(|_| chunk.cool(7));
        assert!(chunk.is_hot(7) && chunk.hot == 1);
        chunk.cool(7);
        assert!(!chunk.is_hot(7) && chunk.hot == 0);
    }
}
