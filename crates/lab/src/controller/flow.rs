//! The controller in time: requests to both memories, and what follows when they are done.

use super::epoch::Capture;
use super::fill::Fill;
use super::frames::{Found, Frames};
use super::lookup::{Lookup, Placement};
use super::nvm::{Action, Entry, Nvm};
use super::stream::{Item, Stream};
use super::timed::Timed;
use crate::device::{Class, Device, Kind, NOBODY};
use crate::numbered::Numbered;
use crate::space::Space;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use twinpage_core::any::AnyScheme;
use twinpage_core::medium::{Cause, Path};
use twinpage_core::{Error, PageId, Scheme};

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
    /// With so many lines waiting to be written to NVM, no page is evicted.
    pub write_buffer_lines: u64,
    /// Whether pages are prepared for the scheme when they get dirty in DRAM (DPC 4.4.3).
    pub pre_allocate: bool,
}

/// What NVM lines are written for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// A page left the DRAM cache.
    Eviction,
    /// A page got dirty and was prepared for it.
    PreAllocation,
    /// The pages of a checkpoint.
    Checkpoint,
    /// The commit: context and metadata.
    Commit,
}

/// What a line came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The DRAM cache.
    Dram,
    /// NVM: the page was not cached.
    Nvm,
}

/// A line that was asked for is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// What the asker called it.
    pub token: u32,
    /// When.
    pub at: u64,
    /// From where.
    pub source: Source,
}

/// What happened so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Lines asked for by the caches, and written back by them.
    pub reads: u64,
    /// Lines written back.
    pub writes: u64,
    /// Requests of either kind that found their page in DRAM.
    pub hits: u64,
    /// Requests of either kind that brought in a page.
    pub misses: u64,
    /// Dirty pages evicted.
    pub evictions: u64,
    /// Pages given to the scheme with some dirty lines, evicted or at a checkpoint.
    pub pages_written: u64,
    /// Their dirty lines: the others were clean.
    pub dirty_lines: u64,
    /// Pages prepared when they got dirty.
    pub prepared: u64,
    /// Of these, how many found no room (pre-allocation failures).
    pub prepare_failures: u64,
    /// Lines of DRAM copied aside because the checkpoint still needed them.
    pub kept_lines: u64,
    /// NVM lines read.
    pub nvm_reads: u64,
    /// NVM lines written, by [`Why`].
    pub nvm_writes: [u64; 4],
    /// The same lines, by what the scheme wrote them for: [`Cause::ALL`].
    pub nvm_causes: [u64; Cause::ALL.len()],
}

impl Counts {
    /// What happened since `before`.
    #[must_use]
    pub fn since(&self, before: &Counts) -> Counts {
        Counts {
            reads: self.reads - before.reads,
            writes: self.writes - before.writes,
            hits: self.hits - before.hits,
            misses: self.misses - before.misses,
            evictions: self.evictions - before.evictions,
            pages_written: self.pages_written - before.pages_written,
            dirty_lines: self.dirty_lines - before.dirty_lines,
            prepared: self.prepared - before.prepared,
            prepare_failures: self.prepare_failures - before.prepare_failures,
            kept_lines: self.kept_lines - before.kept_lines,
            nvm_reads: self.nvm_reads - before.nvm_reads,
            nvm_writes: std::array::from_fn(|why| self.nvm_writes[why] - before.nvm_writes[why]),
            nvm_causes: std::array::from_fn(|cause| self.nvm_causes[cause] - before.nvm_causes[cause]),
        }
    }
}

/// What a finished group of requests was for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Part {
    Line(u32),
    FillHead(u32),
    FillRest(u32),
    Stream(u64, Entry),
    Call(u32, Entry),
    Flush,
    #[default]
    Nothing,
}

#[derive(Clone, Copy, Debug, Default)]
struct Group {
    left: u32,
    latest: u64,
    part: Part,
}

/// The group of requests that nobody waits for.
const NO_GROUP: u32 = u32::MAX;

/// Groups that are done, by when, and in the order it became known.
type Events = BinaryHeap<Reverse<(u64, u64, u32)>>;

/// What waits for a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum After {
    Nothing,
    Fill(u32),
    Commit,
}

#[derive(Debug)]
struct Call {
    entries: VecDeque<Entry>,
    in_flight: usize,
    after: After,
    not_before: u64,
    /// Its fences wait for the stream up to here.
    mark: u64,
}

/// What ends every commit: all that was written is durable.
const FENCE: Entry = Entry {
    action: Action::Fence,
    at: 0,
    lines: 0,
    cause: Cause::Data,
    path: Path::Critical,
};

/// The memory controller.
pub struct Controller {
    pub(super) setting: Setting,
    dram: Timed,
    nvm_device: Timed,
    pub(super) nvm: Nvm,
    pub(super) scheme: AnyScheme<Nvm>,
    pub(super) frames: Frames,
    pub(super) lookup: Lookup,
    pub(super) stream: Stream,
    pub(super) fills: Numbered<Fill>,
    /// Fills that wait for a frame, or for room to evict.
    pub(super) held_fills: VecDeque<u32>,
    pub(super) capture: Capture,
    groups: Numbered<Group>,
    calls: BTreeMap<u32, Call>,
    next_call: u32,
    /// Calls at a fence that waits for the stream.
    fenced: Vec<u32>,
    events: Events,
    sequence: u64,
    pub(super) now: u64,
    pub(super) log: Vec<Entry>,
    /// Lines that came, for the machine to take.
    pub answers: Vec<Answer>,
    /// The scheme asked for a checkpoint: it has no room left.
    pub wants_checkpoint: bool,
    /// DRAM writes of a flush that are not done.
    pub(super) flushing: u32,
    /// What happened.
    pub counts: Counts,
    /// What went wrong in the scheme: the run is over.
    pub failed: Option<Error>,
}

impl Controller {
    /// An empty DRAM cache over a scheme whose medium is `nvm`, for a memory of `pages` pages.
    #[must_use]
    pub fn new(setting: Setting, scheme: AnyScheme<Nvm>, nvm: Nvm, pages: u64) -> Controller {
        Controller {
            dram: Timed::new(&setting.dram),
            nvm_device: Timed::new(&setting.nvm),
            frames: Frames::new(setting.dram_bytes, pages, !nvm.remembers()),
            lookup: Lookup::new(setting.placement, setting.cached_entries),
            stream: Stream::new(128),
            fills: Numbered::default(),
            held_fills: VecDeque::new(),
            capture: Capture::new(setting.dram_bytes),
            groups: Numbered::default(),
            calls: BTreeMap::new(),
            next_call: 0,
            fenced: Vec::new(),
            events: BinaryHeap::new(),
            sequence: 0,
            now: 0,
            log: Vec::new(),
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
    pub fn scheme(&self) -> &AnyScheme<Nvm> {
        &self.scheme
    }

    /// The medium of the scheme.
    #[must_use]
    pub fn nvm(&self) -> &Nvm {
        &self.nvm
    }

    /// DRAM reads for entries of the scheme's table.
    #[must_use]
    pub fn table_reads(&self) -> u64 {
        self.lookup.dram_reads
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
                    Part::Line(token),
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
                self.write_frame(frame, line, at, space, Part::Nothing);
                self.prepare(page, frame, line, at);
            }
            _ => self.miss(page, line, None, at),
        }
    }

    /// The line's bytes go to its frame, and its time to the DRAM.
    pub(super) fn write_frame(&mut self, frame: u32, line: u64, at: u64, space: &Space, part: Part) {
        self.frames.put_line(frame, line, space.at(line * 64, 64));
        let begin = at + self.setting.cpt_fs;
        self.push_dram(part, Kind::Write, Class::Demand, address(frame, line), 1, begin);
    }

    /// A line of the page in `frame` got dirty: the first one has the scheme prepare for it.
    pub(super) fn prepare(&mut self, page: u64, frame: u32, line: u64, at: u64) {
        let bit = 1 << (line % 64);
        self.keep_line(frame, bit, at);
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
        let room = self.scheme.expect(PageId(page));
        let failures = self.settle(room);
        self.counts.prepare_failures += u64::from(failures);
        self.dispatch(at, Why::PreAllocation, None, After::Nothing);
    }

    /// Whether the scheme asks for a checkpoint; an error ends the run.
    pub(super) fn settle(&mut self, room: Result<twinpage_core::Room, Error>) -> bool {
        match room {
            Ok(twinpage_core::Room::Plenty) => false,
            Ok(twinpage_core::Room::Commit) => {
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
    /// nobody has to wait.
    pub(super) fn dispatch(&mut self, at: u64, why: Why, source: Option<(u32, u32)>, after: After) -> bool {
        let mut log = std::mem::take(&mut self.log);
        self.nvm.take_log(&mut log);
        let mut entries = VecDeque::new();
        let mut source = source;
        for entry in &log {
            match entry.action {
                Action::Read => self.counts.nvm_reads += entry.lines,
                Action::Write(_) => {
                    self.counts.nvm_writes[why as usize] += entry.lines;
                    self.counts.nvm_causes[entry.cause as usize] += entry.lines;
                }
                Action::Fence | Action::Touch => {}
            }
            // Behind a critical access even a background one waits for the fences before it.
            match entry.path {
                Path::Background if entries.is_empty() => self.stream.push(Item {
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
        if entries.is_empty() && after != After::Commit {
            return false;
        }
        let id = self.next_call;
        self.next_call += 1;
        let fence = |entry: &Entry| entry.action == Action::Fence && entry.path == Path::Critical;
        if after == After::Commit && !entries.iter().any(fence) {
            entries.push_back(FENCE);
        }
        let call = Call {
            entries,
            in_flight: 0,
            after,
            not_before: at,
            mark: self.stream.end(),
        };
        self.calls.insert(id, call);
        self.pump_call(id);
        true
    }

    /// DRAM reads `lines` lines of a frame that go to NVM.
    fn read_frame(&mut self, frame: u32, lines: u32, at: u64) {
        self.push_dram(
            Part::Nothing,
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
                Part::Stream(number, item.entry),
                &item.entry,
                Class::Background,
                at,
            );
        }
    }

    /// One access of the scheme, to the memory it concerns.
    fn push_entry(&mut self, part: Part, entry: &Entry, class: Class, at: u64) {
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

    fn pump_call(&mut self, id: u32) {
        let Some(mut call) = self.calls.remove(&id) else {
            return;
        };
        while let Some(entry) = call.entries.front().copied() {
            if entry.path == Path::Background {
                let not_before = call.not_before;
                self.stream.push(Item {
                    entry,
                    not_before,
                    source: None,
                });
                call.mark = self.stream.end();
            } else if entry.action == Action::Fence {
                if call.in_flight > 0 {
                    break;
                }
                let older = self.calls.keys().next().is_some_and(|&other| other < id);
                if older || !self.stream.is_past(call.mark) {
                    self.fenced.push(id);
                    break;
                }
            } else {
                call.in_flight += 1;
                let at = call.not_before.max(self.now);
                self.push_entry(Part::Call(id, entry), &entry, Class::Demand, at);
            }
            call.entries.pop_front();
        }
        self.pump_stream();
        if call.entries.is_empty() && call.in_flight == 0 {
            self.finish_call(call.after);
            self.pump_fenced();
        } else {
            self.calls.insert(id, call);
        }
    }

    fn pump_fenced(&mut self) {
        for id in std::mem::take(&mut self.fenced) {
            self.pump_call(id);
        }
    }

    fn finish_call(&mut self, after: After) {
        match after {
            After::Nothing => {}
            After::Fill(fill) => self.begin_fill(fill),
            After::Commit => self.committed(),
        }
    }

    pub(super) fn push_dram(&mut self, part: Part, kind: Kind, class: Class, at: u64, lines: u64, time: u64) {
        let group = self.group(part);
        self.push_dram_for(group, kind, class, at, lines, time);
    }

    pub(super) fn push_nvm(&mut self, part: Part, kind: Kind, class: Class, at: u64, lines: u64, time: u64) {
        let group = self.group(part);
        self.push_nvm_for(group, kind, class, at, lines, time);
    }

    /// One more request of a group, to DRAM.
    pub(super) fn push_dram_for(
        &mut self,
        group: u32,
        kind: Kind,
        class: Class,
        at: u64,
        lines: u64,
        time: u64,
    ) {
        let requests = self.dram.push(name(group), kind, class, at, lines, time);
        self.expect_requests(group, requests);
    }

    /// One more request of a group, to NVM.
    pub(super) fn push_nvm_for(
        &mut self,
        group: u32,
        kind: Kind,
        class: Class,
        at: u64,
        lines: u64,
        time: u64,
    ) {
        let requests = self.nvm_device.push(name(group), kind, class, at, lines, time);
        self.expect_requests(group, requests);
    }

    fn expect_requests(&mut self, group: u32, requests: u32) {
        if group != NO_GROUP {
            self.groups[group].left += requests;
        }
    }

    /// Whether nothing was asked for the group.
    pub(super) fn is_empty_group(&self, group: u32) -> bool {
        self.groups[group].left == 0
    }

    /// Has `part` happen at a time.
    pub(super) fn later(&mut self, part: Part, at: u64) {
        let group = self.group(part);
        self.schedule(group, at);
    }

    pub(super) fn group(&mut self, part: Part) -> u32 {
        if matches!(part, Part::Nothing) {
            return NO_GROUP;
        }
        let group = self.groups.take();
        self.groups[group] = Group {
            left: 0,
            latest: 0,
            part,
        };
        group
    }

    pub(super) fn schedule(&mut self, group: u32, at: u64) {
        self.events.push(Reverse((at, self.sequence, group)));
        self.sequence += 1;
    }

    /// Nothing happens before this time; `u64::MAX` if nothing is under way.
    #[must_use]
    pub fn next_event(&self) -> u64 {
        let event = self.events.peek().map_or(u64::MAX, |Reverse((at, ..))| *at);
        event.min(self.dram.bound()).min(self.nvm_device.bound())
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
            } else if let Some(Reverse((_, _, group))) = self.events.pop() {
                self.groups.give_back(group);
                self.happen(self.groups[group].part, space);
                return true;
            }
        }
    }

    /// DRAM works up to a time.
    fn work_dram(&mut self, until: u64) {
        let Controller {
            dram,
            groups,
            events,
            sequence,
            ..
        } = self;
        dram.run_until(until, |name, at| note(name as u32, at, groups, events, sequence));
    }

    /// NVM works up to a time.
    fn work_nvm(&mut self, until: u64) {
        let Controller {
            nvm_device,
            groups,
            events,
            sequence,
            ..
        } = self;
        nvm_device.run_until(until, |name, at| note(name as u32, at, groups, events, sequence));
    }

    fn happen(&mut self, part: Part, space: &Space) {
        match part {
            Part::Line(token) => {
                let at = self.now;
                self.answers.push(Answer {
                    token,
                    at,
                    source: Source::Dram,
                });
            }
            Part::FillHead(fill) => self.head_came(fill, space),
            Part::FillRest(fill) => self.rest_came(fill, space),
            Part::Stream(number, entry) => {
                self.stream.done(number, &entry);
                self.mark_durable(&entry);
                self.pump_stream();
                self.pump_fenced();
                self.proceed();
                self.release_fills();
            }
            Part::Call(id, entry) => {
                self.mark_durable(&entry);
                if let Some(call) = self.calls.get_mut(&id) {
                    call.in_flight -= 1;
                }
                self.pump_call(id);
            }
            Part::Flush => self.flushing -= 1,
            Part::Nothing => {}
        }
    }

    fn mark_durable(&mut self, entry: &Entry) {
        if let Action::Write(write) = entry.action {
            self.nvm.durable(write);
        }
    }

    /// Whether nothing is under way that somebody waits for.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.fills.is_unused() && self.calls.is_empty() && self.flushing == 0
    }
}

/// A request is done: its group is when it was the last.
#[inline]
fn note(number: u32, at: u64, groups: &mut Numbered<Group>, events: &mut Events, sequence: &mut u64) {
    let group = &mut groups[number];
    group.left -= 1;
    group.latest = group.latest.max(at);
    if group.left == 0 {
        events.push(Reverse((group.latest, *sequence, number)));
        *sequence += 1;
    }
}

/// What a group's requests are called.
fn name(group: u32) -> u64 {
    match group {
        NO_GROUP => NOBODY,
        group => group.into(),
    }
}

/// Where a line lies in DRAM.
pub(super) fn address(frame: u32, line: u64) -> u64 {
    u64::from(frame) * crate::op::PAGE_BYTES + line % 64 * 64
}
