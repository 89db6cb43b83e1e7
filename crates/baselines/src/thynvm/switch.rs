//! Pages that change their grain, when the checkpoint of an epoch is durable: those with many stores
//! go to the page table, those with few leave it.
//!
//! * One of many stores enters before, while no checkpoint is in flight, when the block table has no
//!   entry for the next of its lines.
//! * A page that enters is read into DRAM; its lines stay in the block table, where its checkpoint
//!   is, until a checkpoint writes the whole page.
//! * A page that leaves has its checkpoint copied home first, if that is in a frame.

use super::checkpoint::Flight;
use super::{Heat, Hybrid, Page, Switching, lines_of};
use crate::store::StoreLayout;
use twinpage_core::error::Result;
use twinpage_core::medium::{Cause, Medium, Path};
use twinpage_core::metered::Metered;

/// Stores an epoch that make a page enter, and fewer than which make it leave.
const PAPER: (u32, u32) = (22, 16);
/// Lines written that make a page enter: a third of 64.
const CODE_ENTER: usize = 22;
/// Stores fewer than which make it leave: 0.67 a line.
const CODE_LEAVE: u32 = 43;

impl Hybrid {
    pub(super) fn switch<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
        flight: &Flight,
    ) -> Result<()> {
        medium.waits(Path::Background);
        medium.on(Cause::Migration);
        self.leave(medium, layout, flight)?;
        let most = match self.tables.switching {
            Switching::Paper => usize::MAX,
            Switching::Code => (self.tables.pages as usize / 16).max(1),
        };
        let mut entered = 0;
        for (&page, heat) in &flight.heat {
            // It may have entered meanwhile.
            let is_in = self.pages.contains_key(&page);
            if !is_in && entered < most && self.may_enter(layout, page, heat) {
                self.enter(medium, layout, page)?;
                entered += 1;
            }
        }
        Ok(())
    }

    /// Pages of few stores go back to the grain of lines.
    fn leave<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
        flight: &Flight,
    ) -> Result<()> {
        let few = match self.tables.switching {
            Switching::Paper => PAPER.1,
            Switching::Code => CODE_LEAVE,
        };
        let cold = |number: u64, page: &Page| {
            let stores = flight.stores.get(&number).copied();
            page.changed.is_empty() && stores.is_some_and(|stores| stores < few)
        };
        let pages: Vec<u64> = self
            .pages
            .iter()
            .filter(|&(&number, page)| cold(number, page))
            .map(|(&number, _)| number)
            .collect();
        for number in pages {
            if let Some(frame) = self.pages[&number].frame {
                let data = self.pages[&number].data.clone();
                medium.accessed(data.len());
                layout.write_home(medium, number, 0, &data)?;
                self.retired.1.push(frame);
            }
            self.pages.remove(&number);
        }
        Ok(())
    }

    /// Whether a page has many stores, and there is room for it in the page table.
    pub(super) fn may_enter(&self, layout: &StoreLayout, page: u64, heat: &Heat) -> bool {
        let enough = match self.tables.switching {
            Switching::Paper => heat.stores >= PAPER.0,
            Switching::Code => heat.lines.count() >= CODE_ENTER,
        };
        let room = self.pages.len() < self.tables.pages as usize;
        enough && room && layout.table.get(page) != 0 && self.overflow.has(page).is_empty()
    }

    /// A page of many stores goes to the page table, with what of it waits in DRAM.
    pub(super) fn enter<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
        page: u64,
    ) -> Result<()> {
        let mut data = vec![0; layout.geometry().page_bytes()];
        self.read_lines(medium, layout, page, 0, &mut data)?;
        medium.accessed(data.len());
        self.pages.insert(page, Page::of(data, None));
        let keys: Vec<u64> = self.blocks.range(lines_of(page)).map(|(&key, _)| key).collect();
        for key in keys {
            self.repay_one(medium, key);
        }
        if let (Some(heat), Some(page)) = (self.heat.remove(&page), self.pages.get_mut(&page)) {
            page.stores = heat.stores;
        }
        Ok(())
    }
}
