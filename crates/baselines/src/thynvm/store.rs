//! A store: which way a newer version of a line goes, by the state of its entry.

use super::{Block, Hybrid, PAGE_LIMIT, SLOTS, State, lines_of};
use crate::fault::Fault;
use crate::store::StoreLayout;
use std::sync::Arc;
use twinpage_core::error::{Error, Result};
use twinpage_core::geometry::{LineMask, PageLines};
use twinpage_core::medium::{Cause, Medium, Path};
use twinpage_core::metered::Metered;
use twinpage_core::scheme::Pressure;

/// Where a line went.
enum Went {
    Well,
    /// No entry is to be had.
    Nowhere,
}

impl Hybrid {
    pub(super) fn write_lines<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
        newer: PageLines<'_>,
    ) -> Result<Pressure> {
        let (page, lines) = (newer.page.0, newer.changed);
        if page >= PAGE_LIMIT {
            return Err(Error::Invalid(format!(
                "page {page}: the tables name {PAGE_LIMIT} pages"
            )));
        }
        if self.flight.is_none() {
            self.overflow.post_homes(medium, layout)?;
        }
        self.count(page, lines);
        medium.on(Cause::Data);
        let mut nowhere = LineMask::NONE;
        for line in lines.runs().flatten() {
            let one = LineMask::run(line, 1);
            let logged = self.flight.is_none() && !(self.overflow.has(page) & one).is_empty();
            if logged {
                nowhere = nowhere | one;
                continue;
            }
            if let Went::Nowhere = self.store(medium, layout, newer, line)? {
                // What waits for the checkpoint in flight need not once it is durable.
                self.finish_commit(medium, layout)?;
                medium.waits(Path::Background);
                // A page of many stores need not wait for the end of the epoch to change its grain.
                if self
                    .heat
                    .get(&page)
                    .is_some_and(|heat| self.may_enter(layout, page, heat))
                {
                    medium.on(Cause::Migration);
                    self.enter(medium, layout, page)?;
                    medium.on(Cause::Data);
                }
                if let Went::Nowhere = self.store(medium, layout, newer, line)? {
                    nowhere = nowhere | one;
                }
            }
        }
        if nowhere.is_empty() {
            return Ok(Pressure::None);
        }
        self.overflows += nowhere.count() as u64;
        self.overflow
            .write(medium, layout, newer.only(nowhere), Cause::Fallback)?;
        Ok(Pressure::Commit)
    }

    /// Counts stores, for the grain of the page.
    fn count(&mut self, page: u64, lines: LineMask) {
        let stores = lines.count() as u32;
        if let Some(page) = self.pages.get_mut(&page) {
            page.stores += stores;
            return;
        }
        let heat = self.heat.entry(page).or_default();
        heat.stores += stores;
        heat.lines = heat.lines | lines;
    }

    fn store<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
        newer: PageLines<'_>,
        line: usize,
    ) -> Result<Went> {
        let (page, bytes) = (newer.page.0, newer.line(line));
        let key = page << 6 | line as u64;
        if let Some(cached) = self.pages.get_mut(&page) {
            if !cached.frozen {
                medium.accessed(bytes.len());
                let data = Arc::make_mut(&mut cached.data);
                data[line * bytes.len()..][..bytes.len()].copy_from_slice(bytes);
                cached.changed = cached.changed | LineMask::run(line, 1);
                return Ok(Went::Well);
            }
            return self.wait(medium, layout, key, State::Loan, bytes);
        }
        let in_flight = self.flight.is_some();
        let state = self.blocks.get(&key).map(|block| block.state);
        match state {
            None if in_flight => self.wait(medium, layout, key, State::PreDirty, bytes),
            Some(State::Clean) if in_flight && !layout.faulty(Fault::HideEarly) => {
                self.wait(medium, layout, key, State::PreHidden, bytes)
            }
            Some(state @ (State::PreDirty | State::PreHidden)) if in_flight => {
                self.wait(medium, layout, key, state, bytes)
            }
            None | Some(State::PreDirty | State::Dirty) => self.write_slot(medium, layout, key, bytes),
            // The page of a loan is in the page table until its loans are repaid.
            Some(State::Clean | State::PreHidden | State::Hidden | State::Loan) => {
                layout.write_home(medium, page, line, bytes)?;
                self.evictable.remove(&key);
                if let Some(block) = self.blocks.get_mut(&key) {
                    block.state = State::Hidden;
                    block.data = None;
                }
                Ok(Went::Well)
            }
        }
    }

    /// Keeps a line in DRAM while a checkpoint is written.
    fn wait<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
        key: u64,
        state: State,
        bytes: &[u8],
    ) -> Result<Went> {
        if !self.blocks.contains_key(&key) && !self.make_room(medium, layout)? {
            return Ok(Went::Nowhere);
        }
        medium.on(Cause::Data);
        medium.accessed(bytes.len());
        self.evictable.remove(&key);
        let block = self.blocks.entry(key).or_insert(Block {
            state,
            slot: None,
            data: None,
        });
        block.state = state;
        block.data = Some(bytes.into());
        Ok(Went::Well)
    }

    /// Writes a line whose checkpoint is at HOME to a slot.
    fn write_slot<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
        key: u64,
        bytes: &[u8],
    ) -> Result<Went> {
        if !self.blocks.contains_key(&key) && !self.make_room(medium, layout)? {
            return Ok(Went::Nowhere);
        }
        let had = self.blocks.get(&key).and_then(|block| block.slot);
        let Some(slot) = had.or_else(|| self.slots.take(2 * self.tables.blocks)) else {
            // One that waits can wait longer.
            return match self.blocks.contains_key(&key) {
                true => self.wait(medium, layout, key, State::PreDirty, bytes),
                false => Ok(Went::Nowhere),
            };
        };
        self.blocks.insert(
            key,
            Block {
                state: State::Dirty,
                slot: Some(slot),
                data: None,
            },
        );
        medium.on(Cause::Data);
        layout
            .streams
            .write(medium, SLOTS, u64::from(slot) * bytes.len() as u64, bytes)?;
        Ok(Went::Well)
    }

    /// An entry for one more line: one that is clean is copied home and leaves. No access waits for that
    /// (DPC 5.2): its slot keeps the checkpoint until the next is durable. False if none can.
    fn make_room<M: Medium>(&mut self, medium: &mut Metered<M>, layout: &mut StoreLayout) -> Result<bool> {
        if self.blocks.len() < self.tables.blocks as usize {
            return Ok(true);
        }
        let next = self.evictable.range(self.hand..).next();
        let Some(&key) = next.or_else(|| self.evictable.first()) else {
            return Ok(false);
        };
        let Some(slot) = self.blocks.get(&key).and_then(|block| block.slot) else {
            return Ok(false);
        };
        let mut bytes = vec![0; layout.line_bytes()];
        medium.on(Cause::Migration);
        let at = u64::from(slot) * bytes.len() as u64;
        layout.streams.read(medium, SLOTS, at, &mut bytes)?;
        if !layout.faulty(Fault::EvictWithoutCopy) {
            layout.write_home(medium, key >> 6, (key & 63) as usize, &bytes)?;
        }
        self.evictable.remove(&key);
        self.blocks.remove(&key);
        match layout.faulty(Fault::ReleaseEarly) {
            true => self.slots.free.push(slot),
            false => self.retired.0.push(slot),
        }
        self.hand = key + 1;
        self.evictions += 1;
        Ok(true)
    }

    /// Nothing of the page is in a table any more. No checkpoint is in flight.
    pub(super) fn forget(&mut self, page: u64) {
        let keys: Vec<u64> = self.blocks.range(lines_of(page)).map(|(&key, _)| key).collect();
        for key in keys {
            self.evictable.remove(&key);
            let Some(Block { state, slot, .. }) = self.blocks.remove(&key) else {
                continue;
            };
            match state {
                State::Dirty => self.slots.free.extend(slot),
                _ => self.retired.0.extend(slot),
            }
        }
        if let Some(page) = self.pages.remove(&page) {
            self.retired.1.extend(page.frame);
        }
        self.heat.remove(&page);
    }
}
