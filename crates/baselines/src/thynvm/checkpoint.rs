//! The end of an epoch: the tables as they are become the next checkpoint, written while stores go on.
//!
//! ```text
//! begin      states change; what is in DRAM is set apart; the tables are copied
//! proceed    lines that waited, to slots and HOME; pages, each to the place that does not hold its checkpoint
//!            journal with both tables, fence, record, fence
//! landed     old slots and frames are free, loans are repaid, pages change their grain
//! ```

use super::{FRAMES, Heat, Hybrid, SLOTS, State, lines_of};
use crate::fault::Fault;
use crate::page_table::Prepared;
use crate::store::StoreLayout;
use std::collections::BTreeMap;
use std::sync::Arc;
use twinpage_core::error::{Error, Result};
use twinpage_core::geometry::{LINES_PER_PAGE, LineMask};
use twinpage_core::medium::{Cause, Medium, Path};
use twinpage_core::metered::Metered;
use twinpage_core::scheme::Epoch;

/// A line being copied from DRAM.
#[derive(Debug)]
pub(super) struct Waiting {
    /// To a slot, or home.
    slot: Option<u32>,
    pub(super) data: Box<[u8]>,
}

/// A page being copied from DRAM.
#[derive(Debug)]
struct Leaving {
    /// To a frame, or home.
    frame: Option<u32>,
    data: Arc<Vec<u8>>,
    changed: LineMask,
}

/// The checkpoint being written.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) blocks: BTreeMap<u64, Waiting>,
    pages: BTreeMap<u64, Leaving>,
    /// Where every page goes that is written.
    frames: BTreeMap<u64, Option<u32>>,
    prepared: Prepared,
    /// Slots and frames that are free once it is durable.
    release: (Vec<u32>, Vec<u32>),
    /// Lines that may leave the block table once it is durable.
    settled: Vec<u64>,
    /// Stores of its epoch, by page and grain.
    pub(super) heat: BTreeMap<u64, Heat>,
    pub(super) stores: BTreeMap<u64, u32>,
}

impl Hybrid {
    pub(super) fn begin_checkpoint<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
        context: &[u8],
    ) -> Result<Epoch> {
        self.finish_commit(medium, layout)?;
        medium.waits(Path::Critical);
        self.overflow.post_homes(medium, layout)?;
        let mut release = std::mem::take(&mut self.retired);
        let (blocks, settled) = self.flip_blocks(&mut release.0);
        let pages = self.freeze_pages(layout, &mut release);
        let frames: BTreeMap<_, _> = pages
            .iter()
            .map(|(&page, leaving)| (page, leaving.frame))
            .collect();
        let section = self.encode(&frames);
        let stores = self.pages.iter_mut();
        let stores = stores
            .map(|(&number, page)| (number, std::mem::take(&mut page.stores)))
            .collect();
        let prepared = layout.table.prepare(context, section, self.overflow.entries());
        self.flight = Some(Flight {
            blocks,
            pages,
            frames,
            prepared,
            release,
            settled,
            heat: std::mem::take(&mut self.heat),
            stores,
        });
        Ok(layout.table.record.epoch + 1)
    }

    /// The states of all entries in the next checkpoint: clean, or free.
    fn flip_blocks(&mut self, release: &mut Vec<u32>) -> (BTreeMap<u64, Waiting>, Vec<u64>) {
        let (mut waiting, mut settled, mut free) = (BTreeMap::new(), Vec::new(), Vec::new());
        for (&key, block) in &mut self.blocks {
            match block.state {
                State::Clean | State::Loan => continue,
                State::Dirty => {}
                State::PreDirty => {
                    block.slot = self.slots.take(u32::MAX);
                    if let Some(data) = block.data.take() {
                        let slot = block.slot;
                        waiting.insert(key, Waiting { slot, data });
                    }
                }
                State::Hidden | State::PreHidden => {
                    if let Some(data) = block.data.take() {
                        waiting.insert(key, Waiting { slot: None, data });
                    }
                    release.extend(block.slot);
                    free.push(key);
                    continue;
                }
            }
            block.state = State::Clean;
            settled.push(key);
        }
        for key in free {
            self.blocks.remove(&key);
        }
        (waiting, settled)
    }

    /// Sets apart every page that changed, and decides where it goes.
    fn freeze_pages(
        &mut self,
        layout: &StoreLayout,
        release: &mut (Vec<u32>, Vec<u32>),
    ) -> BTreeMap<u64, Leaving> {
        let mut leaving = BTreeMap::new();
        for (&number, page) in &mut self.pages {
            if page.changed.is_empty() {
                continue;
            }
            let frame = match page.frame {
                Some(_) => None,
                None if layout.faulty(Fault::PageInPlace) => None,
                None => self.frames.take(u32::MAX),
            };
            // The whole page is in one place then, and none of its lines in the block table.
            let keys: Vec<u64> = self.blocks.range(lines_of(number)).map(|(&key, _)| key).collect();
            for key in keys {
                self.evictable.remove(&key);
                release
                    .0
                    .extend(self.blocks.remove(&key).and_then(|block| block.slot));
            }
            page.frozen = true;
            let changed = std::mem::take(&mut page.changed);
            let data = Arc::clone(&page.data);
            leaving.insert(number, Leaving { frame, data, changed });
        }
        leaving
    }

    /// Waits for the checkpoint in flight, if there is one.
    pub(super) fn finish_commit<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
    ) -> Result<()> {
        if self.flight.is_some() {
            medium.waits(Path::Critical);
            self.write_checkpoint(medium, layout, u64::MAX)?;
        }
        Ok(())
    }

    pub(super) fn write_checkpoint<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
        lines: u64,
    ) -> Result<bool> {
        let Some(mut flight) = self.flight.take() else {
            return Ok(true);
        };
        let written = flight.write(medium, layout, lines);
        match written {
            Ok(true) => {}
            other => {
                self.flight = Some(flight);
                return other;
            }
        }
        if let Err(error) = layout.publish(medium, &flight.prepared) {
            self.flight = Some(flight);
            return Err(error);
        }
        self.landed(medium, layout, flight)?;
        Ok(true)
    }

    /// The checkpoint is durable.
    fn landed<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
        mut flight: Flight,
    ) -> Result<()> {
        for (number, frame) in std::mem::take(&mut flight.frames) {
            if let Some(page) = self.pages.get_mut(&number) {
                flight.release.1.extend(std::mem::replace(&mut page.frame, frame));
                page.frozen = false;
            }
        }
        self.slots.free.append(&mut flight.release.0);
        self.frames.free.append(&mut flight.release.1);
        let clean = |key: &u64| {
            let block = self.blocks.get(key);
            block.is_some_and(|block| block.state == State::Clean && block.data.is_none())
        };
        self.evictable
            .extend(flight.settled.iter().copied().filter(clean));
        self.repay(medium);
        self.overflow.committed(medium, layout)?;
        match self.switch(medium, layout, &flight) {
            // Pages stay at the grain they have.
            Err(Error::Full { .. }) => Ok(()),
            other => other.map_err(Error::poisoned),
        }
    }

    /// Loans go to their pages.
    fn repay<M: Medium>(&mut self, medium: &Metered<M>) {
        let loans = self.blocks.iter().filter(|(_, block)| block.data.is_some());
        let keys: Vec<u64> = loans
            .map(|(&key, _)| key)
            .filter(|key| self.pages.contains_key(&(key >> 6)))
            .collect();
        for key in keys {
            self.repay_one(medium, key);
        }
    }

    /// A line that waits in DRAM joins its page, which is in the page table.
    pub(super) fn repay_one<M: Medium>(&mut self, medium: &Metered<M>, key: u64) {
        let (Some(block), Some(page)) = (self.blocks.get_mut(&key), self.pages.get_mut(&(key >> 6))) else {
            return;
        };
        let Some(data) = block.data.take() else { return };
        let line = (key & 63) as usize;
        medium.accessed(2 * data.len());
        Arc::make_mut(&mut page.data)[line * data.len()..][..data.len()].copy_from_slice(&data);
        page.changed = page.changed | LineMask::run(line, 1);
        match block.slot {
            None => drop(self.blocks.remove(&key)),
            Some(_) => {
                block.state = State::Clean;
                self.evictable.insert(key);
            }
        }
    }
}

impl Flight {
    /// Writes about that many lines. True when all are written.
    fn write<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
        mut lines: u64,
    ) -> Result<bool> {
        while let Some((&key, Waiting { slot, data })) = self.blocks.first_key_value() {
            if lines == 0 {
                return Ok(false);
            }
            medium.on(Cause::Data);
            medium.accessed(data.len());
            match slot {
                Some(slot) => {
                    let at = u64::from(*slot) * data.len() as u64;
                    layout.streams.write(medium, SLOTS, at, data)?;
                }
                None => layout.write_home(medium, key >> 6, (key & 63) as usize, data)?,
            }
            self.blocks.pop_first();
            lines -= 1;
        }
        while let Some((&page, leaving)) = self.pages.first_key_value() {
            if lines == 0 {
                return Ok(false);
            }
            leaving.write(medium, layout, page)?;
            self.pages.pop_first();
            lines = lines.saturating_sub(LINES_PER_PAGE as u64);
        }
        Ok(true)
    }
}

impl Leaving {
    /// Posts the whole page.
    fn write<M: Medium>(&self, medium: &mut Metered<M>, layout: &mut StoreLayout, page: u64) -> Result<()> {
        let line_bytes = layout.line_bytes();
        for (cause, lines) in [(Cause::Data, self.changed), (Cause::Copy, !self.changed)] {
            medium.on(cause);
            for run in lines.runs() {
                let bytes = &self.data[run.start * line_bytes..run.end * line_bytes];
                medium.accessed(bytes.len());
                match self.frame {
                    Some(frame) => {
                        let at = layout.line(frame.into(), run.start);
                        layout.streams.write(medium, FRAMES, at, bytes)?;
                    }
                    None => layout.write_home(medium, page, run.start, bytes)?,
                }
            }
        }
        Ok(())
    }
}
