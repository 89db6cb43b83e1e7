//! Copy-on-write at page grain (DPC 2.2 and 5.1.2, "CoW"): the first write of a page in an epoch
//! goes to another frame, and the whole page with it; later ones follow it there. The frame of the
//! checkpoint is free once another commit is durable.
//!
//! * The word of a page in the book is its frame plus one. Frames are the pages of stream 4.
//! * A frame of the checkpoint is never written, and not used again before it is none.
//! * Lines that did not change are taken from the span that is written, or copied.
//!
//! Volatile state: the map, unbounded; for each page written in the epoch its number and its frame,
//! 36 bits each, and a bit that says it was copied.

use super::extent_map::Stream;
use super::fault::Fault;
use super::page_table::damaged;
use super::store::{LineStore, Store, StoreLayout};
use std::collections::HashSet;
use twinpage_core::SchemeKind;
use twinpage_core::error::Result;
use twinpage_core::geometry::{Geometry, LineMask, PageLines};
use twinpage_core::medium::{Cause, Medium};
use twinpage_core::metered::Metered;
use twinpage_core::scheme::Pressure;

/// Bits a page of the map costs: two page numbers of a 48-bit address space, and one for the state.
pub const BITS_PER_PAGE: u64 = 36 + 36 + 1;

/// Bits of the map after an epoch that wrote that many pages.
#[must_use]
pub fn metadata_bits(pages: u64) -> u64 {
    pages * BITS_PER_PAGE
}

/// A store that copies pages on their first write. See the [module](self).
pub type CopyOnWrite<M> = Store<M, Copies>;

impl<M: Medium> CopyOnWrite<M> {
    /// A new store on `medium`, whatever was there before; a random `id` if none is given.
    ///
    /// # Errors
    /// [`twinpage_core::Error::Full`] when not even an empty store fits.
    pub fn create(medium: M, geometry: Geometry, id: Option<u64>) -> Result<CopyOnWrite<M>> {
        Store::create_with(medium, geometry, id, [0; 2])
    }
}

/// Which frames are whose.
#[derive(Debug, Default)]
pub struct Copies {
    /// Pages whose frame is of this epoch.
    fresh: HashSet<u64>,
    /// Free frames, and the first that was never used.
    free: Vec<u64>,
    end: u64,
    /// Frames of the checkpoint that the next one does without.
    retired: Vec<u64>,
}

impl Copies {
    fn take(&mut self) -> u64 {
        self.free.pop().unwrap_or_else(|| {
            self.end += 1;
            self.end - 1
        })
    }

    /// The frame has no user but the checkpoint, if the page was not written in this epoch.
    fn release(&mut self, layout: &StoreLayout, page: u64, frame: u64) {
        if self.fresh.remove(&page) || layout.faulty(Fault::FreeEarly) {
            self.free.push(frame);
        } else {
            self.retired.push(frame);
        }
    }

    /// The first write of a page in the epoch.
    fn copy<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
        newer: PageLines<'_>,
    ) -> Result<()> {
        let old = layout.table.get(newer.page.0);
        let line_bytes = layout.line_bytes();
        let mut page = vec![0; layout.geometry().page_bytes()];
        medium.on(Cause::Copy);
        if old != 0 {
            for run in (!newer.held).runs() {
                let into = &mut page[run.start * line_bytes..run.end * line_bytes];
                let at = layout.line(old - 1, run.start);
                layout.streams.read(medium, Stream::OWN, at, into)?;
            }
        }
        for run in newer.held.runs() {
            page[run.start * line_bytes..run.end * line_bytes].copy_from_slice(newer.run(run));
        }
        let frame = self.take();
        self.fill(medium, layout, frame, &page, newer.changed)?;
        if old != 0 {
            self.release(layout, newer.page.0, old - 1);
        }
        self.fresh.insert(newer.page.0);
        layout.table.set(newer.page.0, frame + 1);
        Ok(())
    }

    /// Posts a whole page to a frame: what changed, and what is copied.
    fn fill<M: Medium>(
        &self,
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
        frame: u64,
        page: &[u8],
        changed: LineMask,
    ) -> Result<()> {
        let line_bytes = layout.line_bytes();
        for (cause, lines) in [(Cause::Copy, !changed), (Cause::Data, changed)] {
            medium.on(cause);
            for run in lines.runs() {
                let bytes = &page[run.start * line_bytes..run.end * line_bytes];
                let at = layout.line(frame, run.start);
                layout.streams.write(medium, Stream::OWN, at, bytes)?;
            }
        }
        Ok(())
    }
}

impl LineStore for Copies {
    const KIND: SchemeKind = SchemeKind::CopyOnWrite;
    const HOMES: bool = false;
    const WRITES_FIRST: Option<Cause> = Some(Cause::Copy);

    fn load<M: Medium>(_: &mut Metered<M>, layout: &mut StoreLayout, _: &[u8]) -> Result<Copies> {
        let mut used = HashSet::new();
        for (page, word) in layout.table.words() {
            let there = layout.streams.at(Stream::OWN, layout.line(word - 1, 0));
            if there.is_none() || !used.insert(word - 1) {
                let why = format!(
                    "page {page} has frame {}, which is no frame or another's",
                    word - 1
                );
                return Err(damaged("table", there.unwrap_or(0), why));
            }
        }
        let end = used.iter().max().map_or(0, |&last| last + 1);
        let mut free: Vec<u64> = (0..end).filter(|frame| !used.contains(frame)).collect();
        free.reverse();
        Ok(Copies {
            free,
            end,
            ..Copies::default()
        })
    }

    fn read<M: Medium>(
        &self,
        medium: &Metered<M>,
        layout: &StoreLayout,
        page: u64,
        first: usize,
        into: &mut [u8],
    ) -> Result<()> {
        match layout.table.get(page) {
            0 => into.fill(0),
            word => {
                let at = layout.line(word - 1, first);
                layout.streams.read(medium, Stream::OWN, at, into)?;
            }
        }
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
        let frame = layout.table.get(page).checked_sub(1)?;
        layout
            .streams
            .view(medium, Stream::OWN, layout.line(frame, first), len)
    }

    fn write<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
        newer: PageLines<'_>,
    ) -> Result<Pressure> {
        let word = layout.table.get(newer.page.0);
        let there = self.fresh.contains(&newer.page.0) || word != 0 && layout.faulty(Fault::SkipCopy);
        if !there {
            self.copy(medium, layout, newer)?;
            return Ok(Pressure::None);
        }
        medium.on(Cause::Data);
        for run in newer.changed.runs() {
            let at = layout.line(word - 1, run.start);
            layout.streams.write(medium, Stream::OWN, at, newer.run(run))?;
        }
        Ok(Pressure::None)
    }

    fn discard(&mut self, layout: &mut StoreLayout, page: u64) {
        if let Some(frame) = layout.table.get(page).checked_sub(1) {
            self.release(layout, page, frame);
        }
    }

    fn commit<M: Medium>(
        &mut self,
        medium: &mut Metered<M>,
        layout: &mut StoreLayout,
        context: &[u8],
    ) -> Result<()> {
        let epoch = layout.table.prepare(context, Vec::new(), 0);
        layout.publish(medium, &epoch)?;
        self.fresh.clear();
        self.free.append(&mut self.retired);
        Ok(())
    }
}
