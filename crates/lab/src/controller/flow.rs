//! The controller in time: requests to both memories, and what follows when they are done.

use super::Controller;
use super::call::{Calls, Continuation};
use super::counts::{Counts, Purpose, Written};
use super::epoch::Capture;
use super::fill::Growth;
use super::frames::{Found, Frames, address};
use super::lookup::{Backup, Lookup, Placement};
use super::nvm::{Action, Entry, Nvm};
use super::requests::{Answer, Completion, Groups, Source};
use super::stream::{Item, Stream};
use super::timed::Timed;
use crate::device::{Class, Device, Kind};
use crate::slab::Slab;
use crate::space::Space;
use std::collections::VecDeque;
use twinpage_core::medium::{Cause, Path};
use twinpage_core::{Error, PageId, Simulated};

/// How a controller is set up.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Setting {
    /// The DRAM cache's device and bytes.
    pub dram: Device,
    /// Bytes of the DRAM cache.
    pub dram_bytes: u64,
    /// The NVM's device.
    pub nvm: Device,
    /// Looking up the cache page table, in femtoseconds.
    pub cpt_fs: u64,
    /// Looking up the scheme's table.
    pub table_fs: u64,
    /// Where the scheme's table lies.
    pub placement: Placement,
    /// Entries cached in the controller.
    pub cached_entries: usize,
    /// With that many lines waiting to be written to NVM, no page is evicted.
    pub write_buffer_lines: u64,
    /// How a commit makes the table durable.
    pub backup: Backup,
    /// Whether what ThyNVM's tables hold has DRAM of its own; otherwise the cache has so much less.
    pub tables_beside: bool,
    /// When an undo log lets an eviction go on.
    pub undo: Order,
    /// When copy-on-write does.
    #[serde(skip_serializing_if = "Order::is_posted")]
    pub copies: Order,
    /// When a page overlay grows.
    #[serde(skip_serializing_if = "Growth::is_by_eviction")]
    pub overlays: Growth,
    /// Whether pages are prepared for the scheme when they get dirty in DRAM (DPC 4.4.3).
    pub pre_allocate: bool,
}

/// When a scheme that writes something first (an undo log, copy-on-write) lets a dirty page leave its frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// When that is in NVM (Twins V-A2: "copies old data to log area first"; "copies data to new page and redirects further
    /// memory access requests").
    Before,
    /// At once: all of it waits in the controller, in order.
    Posted,
}

impl Order {
    fn is_posted(&self) -> bool {
        *self == Order::Posted
    }
}

impl Controller {
    /// An empty DRAM cache over a scheme whose medium is `nvm`, for a memory of `pages` pages.
    #[must_use]
    pub fn new(setting: Setting, scheme: Box<dyn Simulated>, nvm: Nvm, pages: u64) -> Controller {
        Controller {
            dram: Timed::new(&setting.dram),
            nvm_device: Timed::new(&setting.nvm),
            frames: Frames::new(setting.dram_bytes, pages, !nvm.remembers()),
            lookup: Lookup::new(setting.placement, setting.cached_entries),
            stream: Stream::new(128),
            fills: Slab::default(),
            held_fills: VecDeque::new(),
            capture: Capture::new(setting.dram_bytes),
            written: Written::new(pages),
            groups: Groups::default(),
            calls: Calls::default(),
            now: 0,
            log: Vec::new(),
            pieces: Vec::new(),
            answers: Vec::new(),
            wants_checkpoint: false,
            flushing: 0,
            counts: Counts::default(),
            failed: None,
            setting,
            scheme,
            nvm,
        }
    }

    /// Now.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// The scheme.
    #[must_use]
    pub fn scheme(&self) -> &dyn Simulated {
        &*self.scheme
    }

    /// The medium of the scheme.
    #[must_use]
    pub fn nvm(&self) -> &Nvm {
        &self.nvm
    }

    /// DRAM reads and writes of entries of the scheme's table.
    #[must_use]
    pub fn table_accesses(&self) -> [u64; 2] {
        [self.lookup.dram_reads, self.lookup.dram_writes]
    }

    /// Joules used by DRAM and NVM until now.
    #[must_use]
    pub fn energy_j(&mut self) -> [f64; 2] {
        self.work_dram(self.now);
        self.work_nvm(self.now);
        [&self.dram, &self.nvm_device].map(|memory| memory.energy_j(self.now))
    }

    /// The caches ask for a line.
    pub fn read(&mut self, token: u32, line: u64, at: u64) {
        let at = at.max(self.now);
        self.counts.reads += 1;
        let page = line / 64;
        match self.frames.find(page) {
            Found::Here(frame) => {
                self.counts.hits += 1;
                self.frames.used_now(frame);
                let begin = at + self.setting.cpt_fs;
                self.push_dram(
                    Completion::Line(token),
                    Kind::Read,
                    Class::Demand,
                    address(frame, line),
                    1,
                    begin,
                );
            }
            _ => self.miss(page, line, Some(token), at),
        }
    }

    /// The caches write a line back. Its bytes are the space's.
    pub fn write(&mut self, line: u64, at: u64, space: &Space) {
        let at = at.max(self.now);
        self.counts.writes += 1;
        let page = line / 64;
        match self.frames.find(page) {
            Found::Here(frame) => {
                self.counts.hits += 1;
                self.frames.used_now(frame);
                self.write_frame(frame, line, at, space, Completion::Nothing);
                self.prepare(page, frame, line, at);
            }
            _ => self.miss(page, line, None, at),
        }
    }

    /// The line's bytes go to its frame, and its time to the DRAM.
    pub(super) fn write_frame(&mut self, frame: u32, line: u64, at: u64, space: &Space, part: Completion) {
        self.frames.put_line(frame, line, space.at(line * 64, 64));
        let begin = at + self.setting.cpt_fs;
        self.push_dram(part, Kind::Write, Class::Demand, address(frame, line), 1, begin);
    }

    /// A line of the page in `frame` got dirty: the first one has the scheme prepare for it.
    pub(super) fn prepare(&mut self, page: u64, frame: u32, line: u64, at: u64) {
        let bit = 1 << (line % 64);
        self.keep_line(frame, bit, at);
        if self.writes_through() {
            self.write_through(page, frame, bit, at);
            return;
        }
        let state = self.frames.frame_mut(frame);
        let first = state.dirty == 0;
        state.dirty |= bit;
        if first && self.setting.pre_allocate {
            self.expect(page, at);
        }
    }

    /// Has the scheme prepare for writes to the page, unless the checkpoint in flight forbids it now.
    pub(super) fn expect(&mut self, page: u64, at: u64) {
        if self.capture.holds_writes() {
            self.capture.expected.push(page);
            return;
        }
        self.counts.prepared += 1;
        let room = self.scheme.preallocate(PageId(page));
        let failures = self.wants_commit(room);
        self.counts.prepare_failures += u64::from(failures);
        self.dispatch(at, Purpose::PreAllocation, None, Continuation::Nothing);
    }

    /// Whether the scheme asks for a checkpoint; an error ends the run.
    pub(super) fn wants_commit(&mut self, room: Result<twinpage_core::Pressure, Error>) -> bool {
        match room {
            Ok(twinpage_core::Pressure::None) => false,
            Ok(twinpage_core::Pressure::Commit) => {
                self.wants_checkpoint = true;
                true
            }
            Err(error) => {
                self.failed.get_or_insert(error);
                false
            }
        }
    }

    /// Times what the scheme just did. Says whether `after` will be done when its call is; otherwise
    /// none has to wait.
    pub(super) fn dispatch(
        &mut self,
        at: u64,
        purpose: Purpose,
        source: Option<(u32, u32)>,
        after: Continuation,
    ) -> bool {
        let mut log = std::mem::take(&mut self.log);
        self.nvm.take_log(&mut log);
        let mut entries = VecDeque::new();
        let mut source = source;
        let first = self.scheme.writes_first().filter(|cause| {
            let order = match cause {
                Cause::Copy => self.setting.copies,
                _ => self.setting.undo,
            };
            purpose == Purpose::Eviction && order == Order::Before
        });
        let waits = self.calls.wait();
        for entry in &mut log {
            if first == Some(entry.cause) {
                entry.path = Path::Critical;
            }
            match entry.action {
                Action::Read => self.counts.nvm_reads += entry.lines,
                Action::Write(_) => {
                    self.counts.nvm_writes[purpose as usize] += entry.lines;
                    self.counts.nvm_causes[entry.cause as usize] += entry.lines;
                }
                Action::Fence | Action::Touch => {}
            }
            // Behind a critical access, and behind an older call's fence, even a background one waits.
            match entry.path {
                Path::Background if entries.is_empty() && !waits => self.stream.push(Item {
                    entry: *entry,
                    not_before: at,
                    source: source.take(),
                }),
                _ => entries.push_back(*entry),
            }
        }
        self.log = log;
        if let Some((frame, lines)) = source {
            self.read_frame(frame, lines, at);
            self.capture.flushed(frame);
        }
        self.pump_stream();
        if entries.is_empty() && after != Continuation::Commit {
            return false;
        }
        self.call(entries, at, after);
        true
    }

    /// DRAM reads `lines` lines of a frame that go to NVM.
    fn read_frame(&mut self, frame: u32, lines: u32, at: u64) {
        self.push_dram(
            Completion::Nothing,
            Kind::Read,
            Class::Background,
            address(frame, 0),
            u64::from(lines),
            at,
        );
    }

    /// Lets the stream go on.
    pub(super) fn pump_stream(&mut self) {
        while let Some((number, item)) = self.stream.next() {
            let at = item.not_before.max(self.now);
            if let Some((frame, lines)) = item.source {
                self.read_frame(frame, lines, at);
                self.capture.flushed(frame);
            }
            self.push_entry(
                Completion::Stream(number, item.entry),
                &item.entry,
                Class::Background,
                at,
            );
        }
    }

    /// One access of the scheme, to the memory it concerns.
    pub(super) fn push_entry(&mut self, part: Completion, entry: &Entry, class: Class, at: u64) {
        match entry.action {
            Action::Read => self.push_nvm(part, Kind::Read, class, entry.at, entry.lines, at),
            Action::Write(write) => {
                self.nvm.issued(write);
                self.push_nvm(part, Kind::Write, class, entry.at, entry.lines, at);
            }
            Action::Touch => self.push_dram(part, Kind::Write, class, 0, entry.lines.max(1), at),
            Action::Fence => unreachable!("fences are waited for, not pushed"),
        }
    }

    /// Nothing happens before this time; `u64::MAX` if nothing is under way.
    #[must_use]
    pub fn next_event(&self) -> u64 {
        let done = self.groups.next_done();
        done.min(self.dram.bound()).min(self.nvm_device.bound())
    }

    /// Everything up to `until` happens.
    pub fn advance(&mut self, until: u64, space: &Space) {
        while self.step(until, space) {}
        self.now = self.now.max(until);
    }

    /// The next thing happens, if it does by `until`.
    pub fn step(&mut self, until: u64, space: &Space) -> bool {
        loop {
            let next = self.next_event();
            if next > until || next == u64::MAX {
                return false;
            }
            self.now = self.now.max(next);
            if self.dram.bound() == next {
                self.work_dram(next);
            } else if self.nvm_device.bound() == next {
                self.work_nvm(next);
            } else if let Some(part) = self.groups.take_done() {
                self.happen(part, space);
                return true;
            }
        }
    }

    fn happen(&mut self, part: Completion, space: &Space) {
        match part {
            Completion::Line(token) => {
                let at = self.now;
                self.answers.push(Answer {
                    token,
                    at,
                    source: Source::Dram,
                });
            }
            Completion::FillHead(fill) => self.head_came(fill, space),
            Completion::FillRest(fill) => self.rest_came(fill, space),
            Completion::Stream(number, entry) => {
                self.stream.done(number, &entry);
                self.mark_durable(&entry);
                self.pump_stream();
                self.pump_fenced();
                self.proceed();
                self.release_fills();
            }
            Completion::Call(id, entry) => {
                self.mark_durable(&entry);
                self.call_access_done(id);
            }
            Completion::Flush => self.flushing -= 1,
            Completion::Nothing => {}
        }
    }

    fn mark_durable(&mut self, entry: &Entry) {
        if let Action::Write(write) = entry.action {
            self.nvm.durable(write);
        }
    }

    /// Whether nothing is under way that is waited for.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.fills.is_unused() && self.calls.is_empty() && self.flushing == 0
    }
}
