//! The dual page as its callers see it: a scheme. Its mechanism is in the other files.

use super::DualPage;
use super::map::Flags;
use crate::error::Result;
use crate::geometry::{LineMask, PageId, PageLines};
use crate::medium::{Cause, Medium, Offset, Path};
use crate::scheme::{Commit, Damage, Epoch, Idle, Info, Pressure, Scheme, Simulated, TableEntry, Traffic};
use crate::shell::{self, Mechanism, Shell};
use std::io;
use std::ops::Range;

impl<M: Medium> Mechanism for DualPage<M> {
    fn shell(&self) -> &Shell {
        &self.shell
    }

    fn shell_mut(&mut self) -> &mut Shell {
        &mut self.shell
    }

    #[inline]
    fn prepare(&mut self, path: Path) -> Result<()> {
        self.medium.waits(path);
        let lags = self.slots.lags && path == Path::Background;
        match self.redo_pending || self.slots.torn || self.slots.unmarked || lags {
            true => self.make_up(),
            false => Ok(()),
        }
    }

    fn read_newest(&self, page: PageId, first: usize, into: &mut [u8]) -> Result<()> {
        self.read_key(self.key(page), first, into)
    }

    fn view_newest(&self, page: PageId, first: usize, len: usize) -> Option<&[u8]> {
        self.view_key(self.key(page), first, len)
    }

    fn newest_place(&self, page: PageId, line: usize) -> Option<Offset> {
        self.place_of(self.key(page), line)
    }

    fn has_page(&self, page: PageId) -> bool {
        self.table.key(page).and_then(|key| self.newest(key)).is_some()
    }

    fn diff_newest(&self, page: PageId, first: usize, bytes: &[u8]) -> Result<LineMask> {
        self.diff_key(self.key(page), first, bytes)
    }

    #[inline]
    fn write_newest(&mut self, lines: PageLines<'_>) -> Result<Pressure> {
        self.write_key(self.key(lines.page), &lines, Cause::Data)
    }

    fn discard_pages(&mut self, pages: Range<PageId>) -> Result<()> {
        self.discard_keys(self.table.keys(pages));
        Ok(())
    }

    fn commit_epoch(&mut self, context: &[u8]) -> Result<Epoch> {
        let waited = match self.post_newest(context)? {
            Some(flush) => self.medium.end_fence(flush.flush()),
            None => Ok(()),
        };
        self.adopt_newest(waited)
    }

    fn payload_room(&self) -> usize {
        self.payload_limit()
    }

    fn begin_payload(&mut self, payload: &[u8]) -> Result<Commit> {
        shell::guarded(self, Path::Critical, |store| store.start_payload(payload))
    }

    fn end_payload(&mut self, flushed: io::Result<()>) -> Result<Epoch> {
        self.end_commit(flushed)
    }

    fn payloads(&self) -> Result<Vec<Vec<u8>>> {
        let payloads = self.read_payloads()?.into_iter();
        Ok(payloads.map(|(_, payload)| payload).collect())
    }

    fn forget_epoch(&mut self) -> Result<()> {
        self.forget_newest()
    }

    fn last_epoch(&self) -> Epoch {
        self.epoch
    }

    fn written(&self) -> Traffic {
        self.medium.traffic()
    }

    fn describe(&self) -> Info {
        let geometry = self.geometry();
        Info {
            scheme: "dual-page",
            version: self.slots.superblock.version(),
            checksums: self.sums.is_some(),
            geometry,
            epoch: self.epoch,
            pages: self.table.pages() - self.context.len.div_ceil(geometry.page_bytes() as u64),
            medium_bytes: self.medium.len(),
            context_bytes: self.context.len,
            pool: self.pool.info(),
            log: None,
            traffic: self.medium.traffic(),
            poison: self.shell.poison().clone(),
        }
    }

    fn find_damage(&self) -> Result<Vec<Damage>> {
        self.list_damage()
    }
}

impl<M: Medium> Idle for DualPage<M> {
    fn begin_commit(&mut self, context: &[u8]) -> Result<Commit> {
        shell::guarded_context(self, context, |store| match store.post_newest(context)? {
            Some(flush) => Ok(Commit::Flushing(flush)),
            None => store.adopt_newest(Ok(())).map(Commit::Durable),
        })
    }

    fn end_commit(&mut self, flushed: io::Result<()>) -> Result<Epoch> {
        shell::waited(self, |store| {
            let waited = store.medium.end_fence(flushed);
            store.adopt_newest(waited)
        })
    }

    fn traffic(&self) -> Traffic {
        self.written()
    }

    fn give_back(&mut self) -> Result<bool> {
        shell::guarded(self, Path::Background, DualPage::empty_last_extent)
    }
}

impl<M: Medium> Simulated for DualPage<M> {
    fn preallocate(&mut self, page: PageId) -> Result<Pressure> {
        shell::guarded_page(self, page, |store| store.make_ready(store.key(page)))
    }

    fn defer_reclaim(&mut self) {
        self.defers_reclaim = true;
    }

    fn shortage(&mut self) -> Option<u64> {
        Some(self.find_shortage())
    }

    fn reclaim(&mut self, pages: u64) -> Result<u64> {
        shell::guarded(self, Path::Background, |store| {
            let freed = store.free_pages(pages)?;
            store.trim_pool()?;
            Ok(freed)
        })
    }

    fn set_cached(&mut self, page: PageId, cached: bool) {
        if let Some(place) = self.table.key(page).and_then(|key| self.table.find(key)) {
            self.table[place].set(Flags::CACHED, cached);
        }
    }

    fn table_entry(&self, page: PageId) -> TableEntry {
        let entry = self.table.key(page).map(|key| self.table.entry(key));
        match entry.is_some_and(|entry| entry.frame.is_some()) {
            true => TableEntry::Mapped,
            false => TableEntry::Unmapped,
        }
    }

    fn table_entries(&self) -> Option<u64> {
        Some(self.pool.info().pages)
    }
}
