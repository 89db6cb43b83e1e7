//! Pages come from NVM into the DRAM cache, and dirty ones go back (DPC 4.5.1).
//!
//! * The line somebody waits for comes first; the others follow.
//! * A victim is written back before its frame is used: at once where the scheme posts the write,
//!   when its call is answered where it does not.

use super::flow::{After, Answer, Controller, Part, Source, Why};
use super::nvm::{Action, Entry};
use crate::device::{Class, Kind};
use crate::space::Space;
use twinpage_core::any::AnyScheme;
use twinpage_core::medium::{Cause, Path};
use twinpage_core::{LineMask, Medium, PageId, Scheme, Span};

/// A page on its way into DRAM.
#[derive(Debug)]
pub(super) struct Fill {
    frame: Option<u32>,
    /// The line that comes first.
    head: u64,
    head_came: bool,
    /// Groups of its other lines that have not come.
    pending: u32,
    /// Reads and writes of lines that wait: a write has no token.
    waiters: Vec<(u64, Option<u32>)>,
}

/// How many of the oldest frames are looked at for one that can go.
const SEARCH: usize = 256;

impl Controller {
    /// The page is not in DRAM, or not whole yet.
    pub(super) fn miss(&mut self, page: u64, line: u64, token: Option<u32>, at: u64) {
        if let Some(fill) = self.fills.get_mut(&page) {
            self.counts.hits += 1;
            match token {
                Some(token) if fill.head_came && fill.head == line => {
                    self.answers.push(Answer {
                        token,
                        at,
                        source: Source::Dram,
                    });
                }
                _ => fill.waiters.push((line, token)),
            }
            return;
        }
        self.counts.misses += 1;
        let fill = Fill {
            frame: None,
            head: line,
            head_came: false,
            pending: 0,
            waiters: vec![(line, token)],
        };
        self.fills.insert(page, fill);
        if !self.start_fill(page) {
            self.held_fills.push_back(page);
        }
    }

    /// Finds a frame and empties it. False if the fill must wait.
    fn start_fill(&mut self, page: u64) -> bool {
        let Some(frame) = self.frames.fresh().or_else(|| self.victim()) else {
            return false;
        };
        let old = *self.frames.frame(frame);
        if old.dirty != 0 && self.stream.lines >= self.setting.write_buffer_lines {
            return false;
        }
        if old.is_used() {
            self.frames.take(frame);
        }
        self.frames.put(frame, page);
        self.frames.frame_mut(frame).filling = true;
        if let Some(fill) = self.fills.get_mut(&page) {
            fill.frame = Some(frame);
        }
        if !(old.is_used() && self.evict(frame, old.page, old.dirty, page)) {
            self.begin_fill(page);
        }
        true
    }

    /// Fills that waited may go now.
    pub(super) fn release_fills(&mut self) {
        while let Some(page) = self.held_fills.pop_front() {
            if !self.start_fill(page) {
                self.held_fills.push_front(page);
                return;
            }
        }
    }

    /// The frame to empty: the least recently used that can go.
    fn victim(&self) -> Option<u32> {
        let can_go = |&frame: &u32| {
            let state = self.frames.frame(frame);
            !state.filling && self.capture.may_evict(frame, state.dirty)
        };
        self.frames.oldest_first().take(SEARCH).find(can_go)
    }

    /// The page `old` leaves its frame, which holds its bytes until the fill begins. Says whether the
    /// fill must wait for a call, which begins it.
    fn evict(&mut self, frame: u32, old: u64, dirty: u64, for_page: u64) -> bool {
        if let AnyScheme::DualPage(store) = &mut self.scheme {
            store.set_cached(PageId(old), false);
        }
        if dirty == 0 {
            return false;
        }
        let count = u64::from(dirty.count_ones());
        self.counts.evictions += 1;
        self.count_lines(count);
        let at = self.now + self.entry_cost(old, false) + self.page_read_fs(count);
        self.write_page(frame, PageId(old), LineMask(dirty));
        self.dispatch(
            at,
            Why::Eviction,
            Some((frame, count as u32)),
            After::Fill(for_page),
        )
    }

    /// A page was written with so many dirty lines.
    pub(super) fn count_lines(&mut self, dirty: u64) {
        self.counts.pages_written += 1;
        self.counts.dirty_lines += dirty;
    }

    /// The scheme takes the dirty lines of a frame.
    pub(super) fn write_page(&mut self, frame: u32, page: PageId, dirty: LineMask) {
        let span = Span {
            page,
            first: 0,
            bytes: self.frames.bytes(frame),
        };
        let room = self.scheme.write(span, dirty);
        self.settle(room);
    }

    /// Femtoseconds to find the page's entry in the scheme's table.
    pub(super) fn entry_cost(&mut self, page: u64, reading: bool) -> u64 {
        let mapped = match &self.scheme {
            AnyScheme::InPlace(_) => return 0,
            AnyScheme::DualPage(store) => store.has_derivative(PageId(page)),
            #[allow(unreachable_patterns, reason = "more schemes may come")]
            _ => return self.setting.table_fs,
        };
        let cost = self.lookup.access(page, mapped, reading);
        if cost.dram_read {
            // The table lies past the frames.
            let at = self.setting.dram_bytes + page % (1 << 16) * 64;
            self.push_dram(Part::Nothing, Kind::Read, Class::Demand, at, 1, self.now);
        }
        let wait = if cost.wait { self.page_read_fs(1) } else { 0 };
        self.setting.table_fs + wait
    }

    /// Femtoseconds for DRAM to open a row and read so many lines of it.
    pub(super) fn page_read_fs(&self, lines: u64) -> u64 {
        let timing = &self.setting.dram.timing;
        (timing.rcd + timing.cl + timing.burst * lines) * self.setting.dram.cycle_fs
    }

    /// The frame is empty: the page's lines are read.
    pub(super) fn begin_fill(&mut self, page: u64) {
        let Some(&Fill {
            frame: Some(frame),
            head,
            ..
        }) = self.fills.get(&page)
        else {
            return;
        };
        let at = self.now + self.setting.cpt_fs + self.entry_cost(page, true);
        self.nvm.hint(Cause::Data, Path::Critical);
        let mut log = std::mem::take(&mut self.log);
        let read = self.scheme.read(PageId(page), 0, self.frames.bytes_mut(frame));
        if let Err(error) = read {
            self.failed.get_or_insert(error);
        }
        if let AnyScheme::DualPage(store) = &mut self.scheme {
            store.set_cached(PageId(page), true);
        }
        self.nvm.take_log(&mut log);
        self.read_lines(page, head, &log, at);
        self.log = log;
    }

    /// Times the reads of a page: the head's line by itself, and first.
    fn read_lines(&mut self, page: u64, head: u64, log: &[Entry], at: u64) {
        let offset = head % 64;
        let total: u64 = log.iter().map(|entry| entry.lines).sum();
        let mut line = if total == 64 { 0 } else { offset };
        let mut runs: Vec<(Action, u64, u64)> = Vec::with_capacity(log.len() + 1);
        let mut first = None;
        for entry in log {
            let here = line..line + entry.lines;
            line += entry.lines;
            if entry.action == Action::Read && first.is_none() && here.contains(&offset) {
                let before = offset - here.start;
                first = Some(entry.at + before * 64);
                runs.push((entry.action, entry.at, before));
                runs.push((
                    entry.action,
                    entry.at + (before + 1) * 64,
                    entry.lines - before - 1,
                ));
            } else {
                runs.push((entry.action, entry.at, entry.lines));
            }
        }
        self.counts.nvm_reads += log
            .iter()
            .filter(|entry| entry.action == Action::Read)
            .map(|entry| entry.lines)
            .sum::<u64>();
        match first {
            Some(first) => self.push_nvm(Part::FillHead(page), Kind::Read, Class::Demand, first, 1, at),
            None => self.later(Part::FillHead(page), at),
        }
        let mut pending = 0;
        for (action, address, lines) in runs {
            if lines > 0 {
                pending += 1;
                match action {
                    Action::Read => self.push_nvm(
                        Part::FillRest(page),
                        Kind::Read,
                        Class::Demand,
                        address,
                        lines,
                        at,
                    ),
                    _ => self.push_dram(
                        Part::FillRest(page),
                        Kind::Read,
                        Class::Demand,
                        address,
                        lines,
                        at,
                    ),
                }
            }
        }
        if pending == 0 {
            self.later(Part::FillRest(page), at);
            pending = 1;
        }
        if let Some(fill) = self.fills.get_mut(&page) {
            fill.pending = pending;
        }
    }

    pub(super) fn head_came(&mut self, page: u64, space: &Space) {
        let Some(fill) = self.fills.get_mut(&page) else {
            return;
        };
        fill.head_came = true;
        let (at, head) = (self.now, fill.head);
        let answers = &mut self.answers;
        fill.waiters.retain(|&(line, token)| match token {
            Some(token) if line == head => {
                answers.push(Answer {
                    token,
                    at,
                    source: Source::Nvm,
                });
                false
            }
            _ => true,
        });
        self.finish_fill(page, space);
    }

    pub(super) fn rest_came(&mut self, page: u64, space: &Space) {
        let Some(fill) = self.fills.get_mut(&page) else {
            return;
        };
        fill.pending -= 1;
        self.finish_fill(page, space);
    }

    /// The page is whole: those who waited go on.
    fn finish_fill(&mut self, page: u64, space: &Space) {
        let whole = self
            .fills
            .get(&page)
            .is_some_and(|fill| fill.head_came && fill.pending == 0);
        let Some(fill) = whole.then(|| self.fills.remove(&page)).flatten() else {
            return;
        };
        let Some(frame) = fill.frame else { return };
        let at = self.now;
        self.frames.frame_mut(frame).filling = false;
        self.push_dram(
            Part::Nothing,
            Kind::Write,
            Class::Background,
            super::flow::address(frame, 0),
            64,
            at,
        );
        for (line, token) in fill.waiters {
            match token {
                Some(token) => self.answers.push(Answer {
                    token,
                    at,
                    source: Source::Nvm,
                }),
                None => {
                    self.write_frame(frame, line, at, space, Part::Nothing);
                    self.prepare(page, frame, line, at);
                }
            }
        }
        self.release_fills();
    }
}
