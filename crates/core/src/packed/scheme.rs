//! What packed lines are to their caller: a scheme of small lines. What happens inside is in the other files.

use super::Packed;
use super::fault::Fault;
use super::layout::{self, ROOT, SHEET};
use crate::buffer::Buffer;
use crate::compare::differing_from_newest;
use crate::error::Result;
use crate::geometry::{Geometry, LineMask, Lines, PageId, Span};
use crate::medium::Offset;
use crate::scheme::{Damage, Epoch, Info, LogInfo, Recovered, Room, Scheme, Traffic, Wishes};
use std::ops::Range;

impl<S: Scheme> Scheme for Packed<S> {
    type Medium = S::Medium;

    fn recover(medium: S::Medium) -> Result<(Packed<S>, Recovered)> {
        let (below, found) = S::recover(medium)?;
        Packed::over(below, found)
    }

    fn geometry(&self) -> Geometry {
        self.layout.geometry
    }

    fn read(&self, page: PageId, first: usize, into: &mut [u8]) -> Result<()> {
        let (page, _) = self.lines(page, first, into.len())?;
        self.read_newest(page, first, into)
    }

    fn view(&self, page: PageId, first: usize, len: usize) -> Option<&[u8]> {
        let (page, lines) = self.lines(page, first, len).ok()?;
        let own = self.presence.has(page) && self.waiting.get(page).is_none();
        if !own || !(self.index.lines(page) & lines).is_empty() {
            return None;
        }
        let (sheet, place) = self.layout.page(page);
        let whole = self.below.view(sheet, place, self.layout.page_bytes())?;
        let start = first * self.layout.line_bytes();
        Some(&whole[start..start + len])
    }

    fn place(&self, page: PageId, line: usize) -> Option<Offset> {
        let (number, lines) = self.lines(page, line, self.layout.line_bytes()).ok()?;
        if !self.presence.has(number) || self.waiting.get(number).is_some() {
            return None;
        }
        let in_log = self.index.slots(number, lines).next();
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
        Some(self.below.place(sheet, place)? + within * self.layout.line_bytes() as u64)
    }

    fn is_present(&self, page: PageId) -> bool {
        self.presence.has(page.0)
    }

    fn diff(&self, span: Span<'_>) -> Result<LineMask> {
        self.lines(span.page, span.first, span.bytes.len())?;
        differing_from_newest(self, span, Box::<Buffer>::default)
    }

    fn write(&mut self, span: Span<'_>, lines: LineMask) -> Result<Room> {
        let (page, held) = self.lines(span.page, span.first, span.bytes.len())?;
        span.must_hold(held, lines)?;
        if lines.is_empty() {
            return Ok(Room::Plenty);
        }
        let line_bytes = self.layout.line_bytes();
        let written = self.ready().and_then(|()| {
            lines.runs().try_fold(Room::Plenty, |room, run| {
                let bytes =
                    &span.bytes[(run.start - span.first) * line_bytes..(run.end - span.first) * line_bytes];
                let lines = Lines {
                    mask: LineMask::run(run.start, run.len()),
                    line_bytes,
                    bytes,
                };
                let wrote = self.write_newest(page, lines)?;
                Ok(if room == Room::Commit { room } else { wrote })
            })
        });
        self.settle(written)
    }

    fn write_lines(&mut self, page: PageId, lines: Lines<'_>) -> Result<Room> {
        let (page, _) = self.lines(page, 0, 0)?;
        if lines.mask.is_empty() {
            return Ok(Room::Plenty);
        }
        let written = self.ready().and_then(|()| self.write_newest(page, lines));
        self.settle(written)
    }

    fn wishes(&mut self) -> Result<Wishes> {
        let wanted = self.ready().and_then(|()| self.find_wanted());
        self.settle(wanted)?;
        Ok(Wishes {
            pages: self.wanted.iter().copied().map(PageId).collect(),
            whole_from: self.tuning.whole_lines,
        })
    }

    fn expect(&mut self, page: PageId) -> Result<Room> {
        let (page, _) = self.lines(page, 0, 0)?;
        let room = self
            .ready()
            .and_then(|()| self.below.expect(self.layout.page(page).0));
        self.settle(room)
    }

    fn discard(&mut self, pages: Range<PageId>) -> Result<()> {
        self.ready()?;
        let limit = self.layout.page_limit();
        self.discard_pages(pages.start.0.min(limit)..pages.end.0.min(limit));
        Ok(())
    }

    fn commit(&mut self, context: &[u8]) -> Result<Epoch> {
        let epoch = self.ready().and_then(|()| self.commit_epoch(context));
        self.settle(epoch)
    }

    fn abandon(&mut self) {
        self.below.abandon();
        if self.open && !self.faulty(Fault::KeepIndex) {
            let reloaded = self.reload();
            if let Err(error) = reloaded {
                self.poisoned.get_or_insert_with(|| error.to_string());
            }
        }
        self.waiting.clear();
        self.drops.clear();
        self.wanted.clear();
        self.appended = 0;
        self.open = false;
        self.lost = false;
    }

    fn epoch(&self) -> Epoch {
        self.below.epoch()
    }

    fn traffic(&self) -> Traffic {
        let mut all = self.below.traffic();
        all.data_bytes -= self.placed.total_bytes();
        [all, self.placed].into_iter().sum()
    }

    fn consolidate(&mut self, pages: u64) -> Result<u64> {
        let done = self.ready().and_then(|()| self.below.consolidate(pages));
        self.settle(done)
    }

    fn info(&self) -> Info {
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
            traffic: self.traffic(),
            ..below
        }
    }

    fn check(&self) -> Result<Vec<Damage>> {
        self.find_damage()
    }
}
