//! What packed lines are to their caller: a scheme of small lines. What happens inside is in the other files.

use super::Packed;
use super::fault::Fault;
use super::layout::{self, ROOT, SHEET};
use super::payload::Flight;
use crate::compare::differing_from_newest;
use crate::error::{Error, Result};
use crate::geometry::{LineMask, PageId, PageLines};
use crate::medium::{Offset, Path};
use crate::scheme::{
    Commit, Damage, Epoch, FoldHints, Idle, Info, LogInfo, Pressure, Scheme, Simulated, Traffic,
};
use crate::shell::{self, Mechanism, Shell};
use std::io;
use std::ops::Range;
use std::sync::PoisonError;

impl<S: Mechanism> Mechanism for Packed<S> {
    fn shell(&self) -> &Shell {
        &self.shell
    }

    fn shell_mut(&mut self) -> &mut Shell {
        &mut self.shell
    }

    #[inline]
    fn prepare(&mut self, _: Path) -> Result<()> {
        Ok(())
    }

    fn read_newest(&self, page: PageId, first: usize, into: &mut [u8]) -> Result<()> {
        self.read_page(page.0, first, into)
    }

    fn view_newest(&self, page: PageId, first: usize, len: usize) -> Option<&[u8]> {
        let (page, line) = (page.0, self.layout.line_bytes());
        let own = self.presence.has(page) && self.waiting.get(page).is_none();
        if !own || !(self.index.lines(page) & LineMask::run(first, len / line)).is_empty() {
            return None;
        }
        let (sheet, place) = self.layout.page(page);
        let whole = self.below.view(sheet, place, self.layout.page_bytes())?;
        Some(&whole[first * line..first * line + len])
    }

    fn newest_place(&self, page: PageId, line: usize) -> Option<Offset> {
        let number = page.0;
        if !self.presence.has(number) || self.waiting.get(number).is_some() {
            return None;
        }
        let in_log = self.index.slots(number, LineMask::run(line, 1)).next();
        let (sheet, place, within) = match in_log.map(|(_, slot)| u64::from(slot)) {
            Some(slot) => {
                let (sheet, place) = self.root.log(slot / SHEET);
                (sheet, place, slot % SHEET)
            }
            None => {
                let (sheet, place) = self.layout.page(number);
                (sheet, place, line as u64)
            }
        };
        Some(self.below.newest_place(sheet, place)? + within * self.layout.line_bytes() as u64)
    }

    fn has_page(&self, page: PageId) -> bool {
        self.presence.has(page.0)
    }

    /// Lines of a damaged page differ: writing it whole mends it.
    fn diff_newest(&self, page: PageId, first: usize, bytes: &[u8]) -> Result<LineMask> {
        let differ = differing_from_newest(self, page, first, bytes, || {
            self.scratch.lock().unwrap_or_else(PoisonError::into_inner)
        });
        match differ {
            Err(Error::Damaged { .. }) => Ok(LineMask::run(first, bytes.len() / self.layout.line_bytes())),
            differ => differ,
        }
    }

    #[inline]
    fn write_newest(&mut self, lines: PageLines<'_>) -> Result<Pressure> {
        self.open = true;
        if lines.changed == lines.held || self.is_better_whole(&lines) {
            return self.write_held(lines);
        }
        lines.changed.runs().try_fold(Pressure::None, |room, run| {
            let wrote = self.write_held(lines.part(run))?;
            Ok(room.or(wrote))
        })
    }

    fn discard_pages(&mut self, pages: Range<PageId>) -> Result<()> {
        self.drop_range(pages.start.0..pages.end.0);
        Ok(())
    }

    fn commit_epoch(&mut self, context: &[u8]) -> Result<Epoch> {
        if let Some(epoch) = self.commit_small(context)? {
            return Ok(epoch);
        }
        let root = self.post_newest(context)?;
        let epoch = self.below.commit(&self.context)?;
        self.adopt_newest(root);
        Ok(epoch)
    }

    fn forget_epoch(&mut self) -> Result<()> {
        self.below.abandon();
        self.flying = None;
        let reloaded = match self.open && !self.faulty(Fault::KeepIndex) {
            true => self.reload(),
            false => Ok(()),
        };
        self.drops.clear();
        self.wanted.clear();
        self.appended = 0;
        self.open = false;
        reloaded
    }

    fn last_epoch(&self) -> Epoch {
        self.below.epoch()
    }

    fn written(&self) -> Traffic {
        let mut all = self.below.written();
        all.data_bytes -= self.placed.total_bytes();
        [all, self.placed].into_iter().sum()
    }

    fn describe(&self) -> Info {
        let below = self.below.info();
        let page = self.layout.page_bytes() as u64;
        Info {
            scheme: "packed",
            version: layout::VERSION,
            geometry: self.layout.geometry,
            pages: self.root.pages,
            context_bytes: below.context_bytes.saturating_sub(ROOT as u64),
            log: Some(LogInfo {
                limit_bytes: self.root.lines() * page,
                used_bytes: (self.head - self.tail) * page,
                live_bytes: self.index.live * self.layout.line_bytes() as u64,
                pages: self.index.pages().len() as u64,
                index_bytes: self.index.bytes(),
            }),
            traffic: self.written(),
            ..below
        }
    }

    fn find_damage(&self) -> Result<Vec<Damage>> {
        self.list_damage()
    }

    fn find_wishes(&mut self) -> Result<FoldHints> {
        self.find_wanted()?;
        Ok(FoldHints {
            pages: self.wanted.iter().copied().map(PageId).collect(),
            whole_from: self.tuning.whole_lines,
        })
    }
}

impl<S: Mechanism + Idle> Idle for Packed<S> {
    fn begin_commit(&mut self, context: &[u8]) -> Result<Commit> {
        shell::guarded_context(self, context, |store| {
            let (commit, flight) = match store.begin_small(context)? {
                Some(commit) => (commit, Flight::Small),
                None => {
                    let root = store.post_newest(context)?;
                    (store.below.begin_commit(&store.context)?, Flight::Whole(root))
                }
            };
            match commit {
                Commit::Durable(_) => store.adopt(flight),
                Commit::Flushing(_) => store.flying = Some(flight),
            }
            Ok(commit)
        })
    }

    fn end_commit(&mut self, flushed: io::Result<()>) -> Result<Epoch> {
        shell::waited(self, |store| {
            let flight = store.flying.take();
            let epoch = match flight {
                Some(Flight::Small) => store.below.end_payload(flushed)?,
                _ => store.below.end_commit(flushed)?,
            };
            flight.into_iter().for_each(|flight| store.adopt(flight));
            Ok(epoch)
        })
    }

    fn traffic(&self) -> Traffic {
        self.written()
    }

    fn give_back(&mut self) -> Result<bool> {
        shell::guarded(self, Path::Background, |store| store.below.give_back())
    }
}

impl<S: Mechanism + Simulated> Simulated for Packed<S> {
    fn preallocate(&mut self, page: PageId) -> Result<Pressure> {
        shell::guarded_page(self, page, |store| {
            store.below.preallocate(store.layout.page(page.0).0)
        })
    }

    fn reclaim(&mut self, pages: u64) -> Result<u64> {
        shell::guarded(self, Path::Background, |store| store.below.reclaim(pages))
    }
}
