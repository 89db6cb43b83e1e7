//! Pages come from NVM into the DRAM cache, and dirty ones go back (DPC 4.5.1).
//!
//! * The line that is waited for comes first; the others follow.
//! * A victim is written back before its frame is used: at once where the scheme posts the write,
//!   when its call is answered where it does not.

use super::Controller;
use super::call::Continuation;
use super::counts::Purpose;
use super::frames::{Found, address};
use super::nvm::{Action, Entry};
use super::requests::{Answer, Completion, Source};
use crate::device::{Class, Kind};
use crate::space::Space;
use twinpage_core::medium::{Cause, Path};
use twinpage_core::scheme::TableEntry;
use twinpage_core::{LineMask, Medium, PageId, PageLines};

/// A page on its way into DRAM.
#[derive(Debug, Default)]
pub(super) struct Fill {
    page: u64,
    frame: u32,
    /// The line that comes first.
    head: u64,
    head_came: bool,
    rest_came: bool,
    /// Reads and writes of lines that wait: a write has no token.
    waiters: Vec<(u64, Option<u32>)>,
}

impl Fill {
    /// Of another page. The one before is not waited for.
    fn begin(&mut self, page: u64, head: u64) {
        self.page = page;
        self.head = head;
        self.head_came = false;
        self.rest_came = false;
    }
}

/// When a page overlay grows: what has to move to a larger segment is in the critical path of that (DPC 5.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Growth {
    /// When DRAM gives the page up or the epoch ends, by all lines that got dirty until then: at once of the right size.
    #[default]
    Eviction,
    /// With each line that the caches write back, which goes on to its overlay.
    WriteBack,
}

impl Growth {
    pub(super) fn is_by_eviction(&self) -> bool {
        *self == Growth::Eviction
    }
}

/// How many of the oldest frames are looked at for one that can go.
const SEARCH: usize = 256;

impl Controller {
    /// The page is not in DRAM, or not whole yet.
    pub(super) fn miss(&mut self, page: u64, line: u64, token: Option<u32>, at: u64) {
        if let Found::Coming(fill) = self.frames.find(page) {
            self.counts.hits += 1;
            let fill = &mut self.fills[fill];
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
        let fill = self.fills.take();
        self.fills[fill].begin(page, line);
        self.fills[fill].waiters.push((line, token));
        self.frames.comes(page, fill);
        if !self.start_fill(fill) {
            self.held_fills.push_back(fill);
        }
    }

    /// Finds a frame and empties it. False if the fill must wait.
    fn start_fill(&mut self, fill: u32) -> bool {
        self.make_way();
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
        self.fills[fill].frame = frame;
        self.frames.put(frame, self.fills[fill].page);
        if !(old.is_used() && self.evict(frame, old.page, old.dirty, Continuation::Fill(fill))) {
            self.begin_fill(fill);
        }
        true
    }

    /// Gives up frames for what the scheme's tables hold in DRAM, as far as their pages can go.
    fn make_way(&mut self) {
        let Some(bytes) = self.scheme.dram_bytes() else {
            return;
        };
        if self.setting.tables_beside {
            return;
        }
        let frames = bytes.div_ceil(crate::op::PAGE_BYTES);
        self.frames.reserve(frames as u32);
        while self.frames.is_over() && self.stream.lines < self.setting.write_buffer_lines {
            let Some(frame) = self.victim() else { return };
            let old = *self.frames.frame(frame);
            self.frames.take(frame);
            self.evict(frame, old.page, old.dirty, Continuation::Nothing);
            self.frames.give_up(frame);
        }
    }

    /// Fills that waited may go now.
    pub(super) fn release_fills(&mut self) {
        while let Some(&fill) = self.held_fills.front() {
            if !self.start_fill(fill) {
                return;
            }
            self.held_fills.pop_front();
        }
    }

    /// The frame to empty: the least recently used that can go.
    fn victim(&self) -> Option<u32> {
        let can_go = |&frame: &u32| {
            let state = self.frames.frame(frame);
            !state.is_filling() && self.capture.may_evict(frame, state.dirty)
        };
        self.frames.oldest_first().take(SEARCH).find(can_go)
    }

    /// The page `old` leaves its frame, which holds its bytes until a fill begins. Says whether `after` must
    /// wait for a call, which does it.
    fn evict(&mut self, frame: u32, old: u64, dirty: u64, after: Continuation) -> bool {
        self.scheme.set_cached(PageId(old), false);
        if dirty == 0 {
            return false;
        }
        let count = u64::from(dirty.count_ones());
        self.counts.evictions += 1;
        self.count_lines(old, dirty);
        let at = self.now + self.entry_cost(old, false) + self.page_read_fs(count);
        self.write_page(frame, PageId(old), LineMask(dirty));
        self.dispatch(at, Purpose::Eviction, Some((frame, count as u32)), after)
    }

    /// Whether lines that come to DRAM go on to the scheme. While a checkpoint in flight forbids it they stay dirty.
    pub(super) fn writes_through(&self) -> bool {
        self.setting.overlays == Growth::WriteBack && self.scheme.grows() && !self.capture.holds_writes()
    }

    /// A line that came to DRAM goes on to the scheme.
    pub(super) fn write_through(&mut self, page: u64, frame: u32, line: u64, at: u64) {
        self.count_lines(page, line);
        let at = at + self.entry_cost(page, false);
        self.write_page(frame, PageId(page), LineMask(line));
        self.dispatch(at, Purpose::Eviction, None, Continuation::Nothing);
    }

    /// These lines of a page were dirty and are written.
    pub(super) fn count_lines(&mut self, page: u64, dirty: u64) {
        self.counts.pages_written += 1;
        self.counts.dirty_lines += u64::from(dirty.count_ones());
        self.written.add(page, dirty);
    }

    /// The epoch is over: its pages are counted, each once however often it was written.
    pub(super) fn count_epoch(&mut self) {
        let [pages, lines] = self.written.take();
        self.counts.epoch_pages += pages;
        self.counts.epoch_lines += lines;
    }

    /// The scheme takes the dirty lines of a frame.
    pub(super) fn write_page(&mut self, frame: u32, page: PageId, dirty: LineMask) {
        let whole = PageLines::from(page, 0, self.frames.bytes(frame), 64);
        let room = self.scheme.write(whole.only(dirty));
        self.wants_commit(room);
    }

    /// Femtoseconds to find the page's entry in the scheme's table.
    pub(super) fn entry_cost(&mut self, page: u64, reading: bool) -> u64 {
        let mapped = match self.scheme.table_entry(PageId(page)) {
            TableEntry::None => return 0,
            TableEntry::Controller => return self.setting.table_fs,
            TableEntry::Mapped => true,
            TableEntry::Unmapped => false,
        };
        let cost = self.lookup.access(page, mapped, reading);
        if cost.dram_read {
            // The table lies past the frames.
            let at = self.setting.dram_bytes + page % (1 << 16) * 64;
            self.push_dram(Completion::Nothing, Kind::Read, Class::Demand, at, 1, self.now);
        }
        if !reading && self.lookup.update() {
            let at = self.setting.dram_bytes + page % (1 << 16) * 64;
            self.push_dram(
                Completion::Nothing,
                Kind::Write,
                Class::Background,
                at,
                1,
                self.now,
            );
        }
        let wait = if cost.wait { self.page_read_fs(1) } else { 0 };
        self.setting.table_fs + wait
    }

    /// Femtoseconds for DRAM to open a row and read that many lines of it.
    pub(super) fn page_read_fs(&self, lines: u64) -> u64 {
        let timing = &self.setting.dram.timing;
        (timing.rcd + timing.cl + timing.burst * lines) * self.setting.dram.cycle_fs
    }

    /// The frame is empty: the page's lines are read.
    pub(super) fn begin_fill(&mut self, fill: u32) {
        let Fill { page, frame, .. } = self.fills[fill];
        let at = self.now + self.setting.cpt_fs + self.entry_cost(page, true);
        self.nvm.hint(Cause::Data, Path::Critical);
        let mut log = std::mem::take(&mut self.log);
        self.nvm.read_blindly(true);
        let read = self.scheme.read(PageId(page), 0, self.frames.bytes_mut(frame));
        self.nvm.read_blindly(false);
        if let Err(error) = read {
            self.failed.get_or_insert(error);
        }
        self.scheme.set_cached(PageId(page), true);
        self.nvm.take_log(&mut log);
        self.read_lines(fill, &log, at);
        self.log = log;
    }

    /// Times the reads of a page: the head's line by itself, and first.
    fn read_lines(&mut self, fill: u32, log: &[Entry], at: u64) {
        let offset = self.fills[fill].head % 64;
        let total: u64 = log.iter().map(|entry| entry.lines).sum();
        let start = if total == 64 { 0 } else { offset };
        let mut head = None;
        let mut line = start;
        for (number, entry) in log.iter().enumerate() {
            let here = line..line + entry.lines;
            line += entry.lines;
            if entry.action == Action::Read {
                self.counts.nvm_reads += entry.lines;
                if head.is_none() && here.contains(&offset) {
                    head = Some((number, offset - here.start));
                }
            }
        }
        match head {
            Some((number, before)) => {
                let at_head = log[number].at + before * 64;
                self.push_nvm(
                    Completion::FillHead(fill),
                    Kind::Read,
                    Class::Demand,
                    at_head,
                    1,
                    at,
                );
            }
            None => self.later(Completion::FillHead(fill), at),
        }
        let rest = self.groups.begin(Completion::FillRest(fill));
        let mut pieces = std::mem::take(&mut self.pieces);
        for (number, entry) in log.iter().enumerate() {
            let mut want = |from: u64, lines: u64| match entry.action {
                _ if lines == 0 => {}
                Action::Read => pieces.push((from, lines)),
                _ => self.push_dram_for(rest, Kind::Read, Class::Demand, from, lines, at),
            };
            match head {
                Some((split, before)) if split == number => {
                    let after = before + 1;
                    want(entry.at, before);
                    want(entry.at + after * 64, entry.lines - after);
                }
                _ => want(entry.at, entry.lines),
            }
        }
        self.read_nvm_for(rest, &pieces, at);
        pieces.clear();
        self.pieces = pieces;
        if self.groups.is_empty(rest) {
            self.groups.schedule(rest, at);
        }
    }

    pub(super) fn head_came(&mut self, number: u32, space: &Space) {
        let fill = &mut self.fills[number];
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
        if fill.rest_came {
            self.finish_fill(number, space);
        }
    }

    pub(super) fn rest_came(&mut self, number: u32, space: &Space) {
        let fill = &mut self.fills[number];
        fill.rest_came = true;
        if fill.head_came {
            self.finish_fill(number, space);
        }
    }

    /// The page is whole: those who waited go on.
    fn finish_fill(&mut self, number: u32, space: &Space) {
        let Fill { page, frame, .. } = self.fills[number];
        let mut waiters = std::mem::take(&mut self.fills[number].waiters);
        self.fills.give_back(number);
        let at = self.now;
        self.frames.came(frame);
        let to = address(frame, 0);
        self.push_dram(Completion::Nothing, Kind::Write, Class::Background, to, 64, at);
        for (line, token) in waiters.drain(..) {
            match token {
                Some(token) => self.answers.push(Answer {
                    token,
                    at,
                    source: Source::Nvm,
                }),
                None => {
                    self.write_frame(frame, line, at, space, Completion::Nothing);
                    self.prepare(page, frame, line, at);
                }
            }
        }
        self.fills[number].waiters = waiters;
        self.release_fills();
    }
}
