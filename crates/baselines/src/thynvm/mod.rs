//! ThyNVM (its sections 3 and 4, as DPC 2.3 and 5.1.2 have it): two grains of mapping, and a
//! checkpoint that is written while the next epoch runs.
//!
//! ```text
//! HOME          every line and page at its own address; Checkpoint Region B      (stream 0)
//! blocks        a slot for a line: Region A of the block table, BTT              (stream 6)
//! pages         a frame for a page: Region A of the page table, PTT              (stream 7)
//! DRAM          pages of the PTT; lines that wait while a checkpoint is written
//! ```
//!
//! A line of the block table (`store.rs`), by what it holds where:
//!
//! | state | checkpoint | newest | a store makes it | while a checkpoint is written |
//! | --- | --- | --- | --- | --- |
//! | free: no entry | HOME | HOME | dirty | pre-dirty |
//! | dirty | HOME | slot | dirty | there is none |
//! | clean | slot | slot | hidden | pre-hidden |
//! | hidden | slot | HOME | hidden | there is none |
//! | pre-dirty | HOME | DRAM | dirty | pre-dirty |
//! | pre-hidden | slot | DRAM | hidden | pre-hidden |
//! | loan: of a page that is being written | the page's | DRAM | the page's | loan |
//!
//! * The end of an epoch (`checkpoint.rs`) makes dirty and pre-dirty clean, hidden and pre-hidden free.
//! * A page of the PTT is written whole, by turns to HOME and to its frame.
//! * Nothing the last durable checkpoint needs is written or given away before the next is durable.
//! * A line that finds no entry, because the table is full of lines that cannot leave it, asks for a
//!   checkpoint and goes to an overflow log (`log.rs`), so that any epoch is atomic however large.
//! * Pages move between the grains when a checkpoint is durable (`switch.rs`).
//!
//! What differs from the paper: an entry that leaves the table while a checkpoint is written is one
//! that was clean before it, so that no swap is needed; and recovery reads the pages of the PTT.
//!
//! Volatile state: both tables ([`metadata_bits`]), a page of DRAM for each entry of the PTT, a line
//! for each of the BTT.

mod checkpoint;
mod store;
mod switch;

use super::extent_map::Stream;
use super::log::Log;
use super::page_table::damaged;
use super::store::{LineStore, Store, StoreLayout};
use checkpoint::Flight;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use twinpage_core::SchemeKind;
use twinpage_core::error::{Error, Result};
use twinpage_core::geometry::{Geometry, LineMask, PageLines};
use twinpage_core::medium::Medium;
use twinpage_core::metered::Metered;
use twinpage_core::scheme::{Epoch, PoolInfo, Pressure};

/// Slots for lines.
const SLOTS: Stream = Stream(6);
/// Frames for pages.
const FRAMES: Stream = Stream(7);
/// Pages a table entry can name.
const PAGE_LIMIT: u64 = 1 << 36;
/// A page without a frame, in the tables on the medium.
const NO_FRAME: u64 = (1 << 28) - 1;

/// When a page changes its grain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Switching {
    /// The paper's: to the page table at 22 stores an epoch, back below 16.
    #[default]
    Paper,
    /// The published code's: at a third of the lines written, back below 0.67 writes a line, and no
    /// more than a sixteenth of the page table an epoch.
    Code,
}

/// How large the tables are, and when a page changes its grain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Tables {
    /// Entries of the block table.
    pub blocks: u32,
    /// Entries of the page table, each with a page of DRAM.
    pub pages: u32,
    /// When a page changes its grain.
    pub switching: Switching,
}

impl Default for Tables {
    /// The paper's: 2048 and 4096 entries.
    fn default() -> Tables {
        Tables {
            blocks: 2048,
            pages: 4096,
            switching: Switching::Paper,
        }
    }
}

impl Tables {
    /// DPC's (5.1.2): a block table of the size of a derivative page table for 76,800 pages, at 37
    /// bits a page and 42 bits a line (Table 3). The page table is given besides; the paper does not
    /// say how large: an entry for each page of its 256 MB of DRAM, as in ThyNVM itself.
    #[must_use]
    pub fn dpc() -> Tables {
        Tables {
            blocks: (76_800 * 37 / BLOCK_INDEX_BITS) as u32,
            pages: (256 << 20) / 4096,
            switching: Switching::Paper,
        }
    }
}

/// Bits of a line's number in the block table (DPC Table 3).
pub const BLOCK_INDEX_BITS: u64 = 42;
/// Bits of a page's number in the page table.
pub const PAGE_INDEX_BITS: u64 = 36;
/// Bits of an entry besides: version 2, visible region 2, checkpoint region 1, stores 6.
pub const STATE_BITS: u64 = 2 + 2 + 1 + 6;

/// Bits of both tables.
#[must_use]
pub fn metadata_bits(tables: &Tables) -> u64 {
    u64::from(tables.blocks) * (BLOCK_INDEX_BITS + STATE_BITS)
        + u64::from(tables.pages) * (PAGE_INDEX_BITS + STATE_BITS)
}

/// A store under ThyNVM. See the [module](self).
pub type ThyNvm<M> = Store<M, Hybrid>;

impl<M: Medium> ThyNvm<M> {
    /// A new store on `medium`, whatever was there before; a random `id` if none is given.
    ///
    /// # Errors
    /// [`Error::Full`] when not even an empty store fits, [`Error::Invalid`] for tables without an entry.
    pub fn create(medium: M, geometry: Geometry, tables: &Tables, id: Option<u64>) -> Result<ThyNvm<M>> {
        let Tables { blocks, pages, .. } = *tables;
        if !(1..=1 << 20).contains(&blocks) || !(1..=1 << 24).contains(&pages) {
            return Err(Error::Invalid(format!(
                "tables of {blocks} lines and {pages} pages: expected 1 to 1048576 and 1 to 16777216"
            )));
        }
        let sizes = u64::from(pages) << 32 | u64::from(blocks);
        let code = u64::from(tables.switching == Switching::Code);
        Store::create_with(medium, geometry, id, [sizes, code])
    }
}

/// What an entry of the block table is. See the [module](self).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Dirty,
    Clean,
    Hidden,
    PreDirty,
    PreHidden,
    Loan,
}

/// An entry of the block table.
#[derive(Debug)]
struct Block {
    state: State,
    /// Where the line is in region A, for states that have a place there.
    slot: Option<u32>,
    /// The newest version, while it waits in DRAM.
    data: Option<Box<[u8]>>,
}

/// An entry of the page table.
#[derive(Debug)]
struct Page {
    /// The newest version but for loans.
    data: Arc<Vec<u8>>,
    /// Where its checkpoint is: in a frame of region A, or at HOME and in the block table.
    frame: Option<u32>,
    /// Lines written since the last checkpoint.
    changed: LineMask,
    /// Stores in this epoch.
    stores: u32,
    /// The page is being written: stores are loans.
    frozen: bool,
}

/// Numbers given out and taken back.
#[derive(Debug, Default)]
struct Numbers {
    free: Vec<u32>,
    end: u32,
}

impl Numbers {
    /// All but those in use.
    fn without(used: &BTreeSet<u32>) -> Numbers {
        let end = used.last().map_or(0, |last| last + 1);
        let free = (0..end).rev().filter(|number| !used.contains(number)).collect();
        Numbers { free, end }
    }

    /// A number below `limit`.
    fn take(&mut self, limit: u32) -> Option<u32> {
        self.free.pop().or_else(|| {
            let number = self.end;
            (number < limit).then(|| self.end += 1)?;
            Some(number)
        })
    }
}

/// Stores to a page at the grain of lines, in an epoch.
#[derive(Clone, Copy, Default, Debug)]
struct Heat {
    stores: u32,
    lines: LineMask,
}

/// The tables and all that waits in DRAM.
#[derive(Debug)]
pub struct Hybrid {
    tables: Tables,
    /// By line: page times 64 plus line.
    blocks: BTreeMap<u64, Block>,
    pages: BTreeMap<u64, Page>,
    /// Lines that may leave the block table.
    evictable: BTreeSet<u64>,
    hand: u64,
    slots: Numbers,
    frames: Numbers,
    /// Slots and frames that are free when the next checkpoint is durable.
    retired: (Vec<u32>, Vec<u32>),
    heat: BTreeMap<u64, Heat>,
    overflow: Log,
    flight: Option<Flight>,
    /// Stores that found no entry, and entries that left the table for others.
    overflows: u64,
    evictions: u64,
}

/// The lines of a page, in the block table.
fn lines_of(page: u64) -> std::ops::Range<u64> {
    page << 6..(page + 1) << 6
}

impl Hybrid {
    /// The tables as the journal has them.
    fn decode<M: Medium>(&mut self, medium: &Metered<M>, layout: &StoreLayout, section: &[u8]) -> Result<()> {
        let words = section.as_chunks::<8>().0;
        let mut words = words.iter().map(|bytes| u64::from_le_bytes(*bytes));
        let count = words.next().unwrap_or(0) as usize;
        let bad = |why: String| damaged("table", 0, why);
        let (mut slots, mut frames) = (BTreeSet::new(), BTreeSet::new());
        for word in words.by_ref().take(count) {
            let (line, slot) = (word >> 22, (word & ((1 << 22) - 1)) as u32);
            let there = layout
                .streams
                .at(SLOTS, u64::from(slot) * layout.line_bytes() as u64);
            if there.is_none() || !slots.insert(slot) {
                return Err(bad(format!(
                    "line {line} has slot {slot}, which is none or another's"
                )));
            }
            let block = Block {
                state: State::Clean,
                slot: Some(slot),
                data: None,
            };
            self.blocks.insert(line, block);
            self.evictable.insert(line);
        }
        let mut pages = Vec::new();
        for word in words {
            let (page, frame) = (word >> 28, word & NO_FRAME);
            let frame = (frame != NO_FRAME).then_some(frame as u32);
            let lost = frame.is_some_and(|frame| {
                let there = layout.streams.at(FRAMES, layout.line(frame.into(), 0));
                there.is_none() || !frames.insert(frame)
            });
            if lost {
                return Err(bad(format!(
                    "page {page} has frame {frame:?}, which is none or another's"
                )));
            }
            pages.push((page, frame));
        }
        self.slots = Numbers::without(&slots);
        self.frames = Numbers::without(&frames);
        for (page, frame) in pages {
            let mut data = vec![0; layout.geometry().page_bytes()];
            match frame {
                Some(frame) => {
                    let at = layout.line(frame.into(), 0);
                    layout.streams.read(medium, FRAMES, at, &mut data)?;
                }
                None => self.read_lines(medium, layout, page, 0, &mut data)?,
            }
            self.pages.insert(page, Page::of(data, frame));
        }
        Ok(())
    }

    /// The tables as they are when the epoch ends: 8 bytes an entry.
    fn encode(&self, frames: &BTreeMap<u64, Option<u32>>) -> Vec<u8> {
        let mut section = (self.blocks.len() as u64).to_le_bytes().to_vec();
        for (line, block) in &self.blocks {
            let word = line << 22 | u64::from(block.slot.unwrap_or_default());
            section.extend(word.to_le_bytes());
        }
        for (number, page) in &self.pages {
            let frame = frames.get(number).copied().unwrap_or(page.frame);
            let word = number << 28 | frame.map_or(NO_FRAME, u64::from);
            section.extend(word.to_le_bytes());
        }
        section
    }

    /// Reads lines of a page that is not in the page table.
    fn read_lines<M: Medium>(
        &self,
        medium: &Metered<M>,
        layout: &StoreLayout,
        page: u64,
        first: usize,
        into: &mut [u8],
    ) -> Result<()> {
        let line_bytes = layout.line_bytes();
        layout.read_home(medium, page, first, into)?;
        self.overflow.read(medium, layout, page, first, into)?;
        let range = self.range(page, first, into.len() / line_bytes);
        let place = |line: u64| {
            let start = ((line & 63) as usize - first) * line_bytes;
            start..start + line_bytes
        };
        for (&line, block) in self.blocks.range(range.clone()) {
            if let (State::Dirty | State::Clean | State::PreHidden, Some(slot)) = (block.state, block.slot) {
                let at = u64::from(slot) * line_bytes as u64;
                layout.streams.read(medium, SLOTS, at, &mut into[place(line)])?;
            }
        }
        if let Some(flight) = &self.flight {
            for (&line, waiting) in flight.blocks.range(range.clone()) {
                medium.accessed(line_bytes);
                into[place(line)].copy_from_slice(&waiting.data);
            }
        }
        self.read_waiting(medium, range, place, into);
        Ok(())
    }

    /// Replaces lines by those that wait in DRAM.
    fn read_waiting<M: Medium>(
        &self,
        medium: &Metered<M>,
        range: std::ops::Range<u64>,
        place: impl Fn(u64) -> std::ops::Range<usize>,
        into: &mut [u8],
    ) {
        for (&line, block) in self.blocks.range(range) {
            if let Some(data) = &block.data {
                medium.accessed(data.len());
                into[place(line)].copy_from_slice(data);
            }
        }
    }

    fn range(&self, page: u64, first: usize, count: usize) -> std::ops::Range<u64> {
        let start = page << 6 | first as u64;
        start..start + count as u64
    }
}

impl Page {
    fn of(data: Vec<u8>, frame: Option<u32>) -> Page {
        Page {
            data: Arc::new(data),
            frame,
            changed: LineMask::NONE,
            stores: 0,
            frozen: false,
        }
    }
}

impl LineStore for Hybrid {
    const KIND: SchemeKind = SchemeKind::ThyNvm;

    fn load<M: Medium>(medium: &mut Metered<M>, layout: &mut StoreLayout, section: &[u8]) -> Result<Hybrid> {
        layout.homes_are_there()?;
        let [sizes, code] = layout.header.params;
        let tables = Tables {
            blocks: sizes as u32,
            pages: (sizes >> 32) as u32,
            switching: if code == 0 {
                Switching::Paper
            } else {
                Switching::Code
            },
        };
        let entries = layout.table.record.own;
        let mut hybrid = Hybrid {
            tables,
            blocks: BTreeMap::new(),
            pages: BTreeMap::new(),
            evictable: BTreeSet::new(),
            hand: 0,
            slots: Numbers::default(),
            frames: Numbers::default(),
            retired: Default::default(),
            heat: BTreeMap::new(),
            overflow: Log::load(medium, layout, entries)?,
            flight: None,
            overflows: 0,
            evictions: 0,
        };
        hybrid.decode(medium, layout, section)?;
        Ok(hybrid)
    }

    fn read<M: Medium>(
        &self,
        medium: &Metered<M>,
        layout: &StoreLayout,
        page: u64,
        first: usize,
        into: &mut [u8],
    ) -> Result<()> {
        let Some(cached) = self.pages.get(&page) else {
            return self.read_lines(medium, layout, page, first, into);
        };
        let line_bytes = layout.line_bytes();
        medium.accessed(into.len());
        into.copy_from_slice(&cached.data[first * line_bytes..][..into.len()]);
        let place = |line: u64| {
            let start = ((line & 63) as usize - first) * line_bytes;
            start..start + line_bytes
        };
        let range = self.range(page, first, into.len() / line_bytes);
        self.read_waiting(medium, range, place, into);
        Ok(())
    }

    fn view<'a, M: Medium>(
        &'a self,
        medium: &'a Metered<M>,
        layout: &'a StoreLayout,
        page: u64,
        first: usize,
        len: usize,
    ) -> Option<&'a [u8]> {
        let line_bytes = layout.line_bytes();
        let range = self.range(page, first, len / line_bytes);
        let mut blocks = self.blocks.range(range.clone());
        if let Some(cached) = self.pages.get(&page) {
            let waiting = blocks.any(|(_, block)| block.data.is_some());
            return (!waiting).then(|| &cached.data[first * line_bytes..][..len]);
        }
        let flight = self.flight.as_ref();
        let waiting = flight.is_some_and(|flight| flight.blocks.range(range).next().is_some());
        if blocks.next().is_some() || waiting || !self.overflow.has(page).is_empty() {
            return None;
        }
        layout
            .streams
            .view(medium, Stream::HOME, layout.line(page, first), len)
    }

    fn write<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
        newer: PageLines<'_>,
    ) -> Result<Pressure> {
        self.write_lines(medium, layout, newer)
    }

    fn discard(&mut self, _: &mut StoreLayout, page: u64) {
        self.forget(page);
    }

    fn commit<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
        context: &[u8],
    ) -> Result<()> {
        self.begin(medium, layout, context)?;
        self.proceed(medium, layout, u64::MAX).map(drop)
    }

    fn begin<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
        context: &[u8],
    ) -> Result<Epoch> {
        self.begin_checkpoint(medium, layout, context)
    }

    fn proceed<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
        lines: u64,
    ) -> Result<bool> {
        self.write_checkpoint(medium, layout, lines)
    }

    /// Entries of the block table; those that left it for others, and stores that found no entry.
    /// A page for each entry of the page table, a line for each of the block table.
    fn dram_bytes(&self, geometry: Geometry) -> Option<u64> {
        let pages = self.pages.len() * geometry.page_bytes();
        Some((pages + self.blocks.len() * geometry.line_bytes()) as u64)
    }

    fn pool(&self) -> PoolInfo {
        PoolInfo {
            pages: self.tables.blocks.into(),
            used: self.blocks.len() as u64,
            reclaimed: self.evictions,
            failures: self.overflows,
        }
    }
}
