//! The end of an epoch: what the caches and DRAM hold goes to the scheme, and the scheme commits.
//!
//! Three ways, by who waits:
//! * **stall** (DPC 4.5.2): the cores wait until the commit is durable.
//! * **overlap in the scheme** (ThyNVM): the scheme begins the commit and proceeds as NVM has time.
//! * **overlap here**: the epoch is captured as it stands, its writes and its commit stream to NVM while
//!   the cores go on. Until the commit is durable no page dirty in the new epoch is evicted and none is
//!   prepared, so the scheme's two versions are enough; a DRAM line the checkpoint still needs is
//!   copied aside before it is written.

use super::Controller;
use super::call::Continuation;
use super::counts::Purpose;
use super::frames::{Found, address};
use super::lookup::{BACKUP_BITS, Backup, VECTOR_BITS};
use super::requests::Completion;
use crate::device::{Class, Kind};
use crate::space::Space;
use twinpage_core::medium::{Cause, Path};
use twinpage_core::{LineMask, Medium, PageId, PageLines};

/// What a checkpoint in flight still needs.
#[derive(Debug)]
pub struct Capture {
    /// For each frame the lines that are not on their way to NVM yet.
    lines: Vec<u64>,
    in_flight: bool,
    /// The scheme keeps both epochs apart by itself.
    by_scheme: bool,
    /// The scheme has no more to do for it.
    over: bool,
    /// The scheme goes on when the stream is past this.
    mark: u64,
    committed: Option<u64>,
    /// Pages to prepare when it is over.
    pub(super) expected: Vec<u64>,
}

impl Capture {
    pub(super) fn new(dram_bytes: u64) -> Capture {
        Capture {
            lines: vec![0; (dram_bytes / crate::op::PAGE_BYTES) as usize],
            in_flight: false,
            by_scheme: false,
            over: false,
            mark: 0,
            committed: None,
            expected: Vec::new(),
        }
    }

    /// Whether writes of the new epoch must not reach the scheme yet.
    pub(super) fn holds_writes(&self) -> bool {
        self.in_flight && !self.by_scheme
    }

    pub(super) fn may_evict(&self, frame: u32, dirty: u64) -> bool {
        self.lines[frame as usize] == 0 && (dirty == 0 || !self.holds_writes())
    }

    pub(super) fn flushed(&mut self, frame: u32) {
        self.lines[frame as usize] = 0;
    }
}

impl Controller {
    /// A dirty line of the caches goes to its DRAM page. False if the page is not there.
    pub fn flush_line(&mut self, line: u64, space: &Space) -> bool {
        let Found::Here(frame) = self.frames.find(line / 64) else {
            return false;
        };
        self.flushing += 1;
        self.counts.writes += 1;
        self.counts.hits += 1;
        self.write_frame(frame, line, self.now, space, Completion::Flush);
        self.prepare(line / 64, frame, line, self.now);
        true
    }

    /// Whether lines that were flushed are still on their way to DRAM.
    #[must_use]
    pub fn is_flushing(&self) -> bool {
        self.flushing > 0
    }

    /// Every dirty page of DRAM goes to the scheme, and is clean from now on. With `keep`, its lines
    /// are needed until they are on their way.
    pub fn write_pages(&mut self, keep: bool) {
        for frame in self.frames.dirty() {
            let state = *self.frames.frame(frame);
            let dirty = LineMask(state.dirty);
            let count = dirty.count() as u32;
            self.count_lines(state.page, state.dirty);
            let at = self.now + self.entry_cost(state.page, false);
            self.write_page(frame, PageId(state.page), dirty);
            self.frames.frame_mut(frame).dirty = 0;
            if keep {
                self.capture.lines[frame as usize] = state.dirty;
            }
            self.dispatch(
                at,
                Purpose::Checkpoint,
                Some((frame, count)),
                Continuation::Nothing,
            );
        }
    }

    /// Lines of a page that is not in DRAM go to the scheme straight from the caches.
    pub fn write_direct(&mut self, page: u64, lines: u64, space: &Space) {
        let bytes = space.at(page * crate::op::PAGE_BYTES, crate::op::PAGE_BYTES as usize);
        let at = self.now + self.entry_cost(page, false);
        self.count_lines(page, lines);
        self.counts.writes += u64::from(lines.count_ones());
        let whole = PageLines::from(PageId(page), 0, bytes, 64);
        let room = self.scheme.write(whole.only(LineMask(lines)));
        self.wants_commit(room);
        self.dispatch(at, Purpose::Checkpoint, None, Continuation::Nothing);
    }

    /// Ends the epoch. [`Controller::take_committed`] says when it is durable.
    pub fn commit(&mut self, context: &[u8], by_scheme: bool) {
        self.capture.in_flight = true;
        self.capture.by_scheme = by_scheme;
        self.capture.over = false;
        self.wants_checkpoint = false;
        self.count_epoch();
        self.back_up_table();
        let done = match by_scheme {
            true => self.scheme.begin(context),
            false => self.scheme.commit(context),
        };
        if let Err(error) = done {
            self.failed.get_or_insert(error);
        }
        let after = if by_scheme {
            Continuation::Nothing
        } else {
            Continuation::Commit
        };
        self.dispatch(self.now, Purpose::Commit, None, after);
        self.capture.mark = self.stream.end();
        self.proceed();
    }

    /// The scheme goes on with the checkpoint it began, as the stream has run dry.
    pub(super) fn proceed(&mut self) {
        let goes_on = |capture: &Capture| capture.in_flight && capture.by_scheme && !capture.over;
        while goes_on(&self.capture) && self.stream.is_past(self.capture.mark) {
            match self.scheme.proceed(64) {
                Ok(over) => {
                    self.capture.over = over;
                    let after = if over {
                        Continuation::Commit
                    } else {
                        Continuation::Nothing
                    };
                    self.dispatch(self.now, Purpose::Commit, None, after);
                    self.capture.mark = self.stream.end();
                }
                Err(error) => {
                    self.failed.get_or_insert(error);
                    return;
                }
            }
        }
    }

    /// The commit is durable.
    pub(super) fn committed(&mut self) {
        self.capture.in_flight = false;
        self.capture.committed = Some(self.now);
        self.replenish();
        for page in std::mem::take(&mut self.capture.expected) {
            self.expect(page, self.now);
        }
        self.release_fills();
    }

    /// Refills the pool of derivative pages in the background of the next epoch (DPC 4.4.2, 4.4.3).
    fn replenish(&mut self) {
        let Some(wanted) = self.scheme.shortage() else {
            return;
        };
        if let Err(error) = self.scheme.reclaim(wanted) {
            self.failed.get_or_insert(error);
        }
        self.dispatch(self.now, Purpose::PreAllocation, None, Continuation::Nothing);
    }

    /// Writes the whole table beside its last version (DPC 4.5.2, step 3), where that is how it is kept. One without an
    /// entry takes no write.
    fn back_up_table(&mut self) {
        let is_whole = self.setting.backup == Backup::Whole;
        if let (true, Some(entries @ 1..)) = (is_whole, self.scheme.table_entries()) {
            self.nvm.hint(Cause::Snapshot, Path::Critical);
            self.nvm.write_standby((entries * BACKUP_BITS).div_ceil(8));
            let lines = (entries * VECTOR_BITS).div_ceil(8 * 64);
            self.lookup.dram_reads += lines;
            let at = self.setting.dram_bytes;
            self.push_dram(
                Completion::Nothing,
                Kind::Read,
                Class::Background,
                at,
                lines,
                self.now,
            );
        }
    }

    /// When the commit became durable, told once.
    pub fn take_committed(&mut self) -> Option<u64> {
        self.capture.committed.take()
    }

    /// Whether a checkpoint is in flight.
    #[must_use]
    pub fn is_committing(&self) -> bool {
        self.capture.in_flight
    }

    /// The line is about to change: if the checkpoint still needs it, it is copied aside.
    pub(super) fn keep_line(&mut self, frame: u32, bit: u64, at: u64) {
        let needed = &mut self.capture.lines[frame as usize];
        if *needed & bit != 0 {
            *needed &= !bit;
            self.counts.kept_lines += 1;
            let line = u64::from(bit.trailing_zeros());
            self.push_dram(
                Completion::Nothing,
                Kind::Read,
                Class::Demand,
                address(frame, line),
                1,
                at,
            );
            self.push_dram(
                Completion::Nothing,
                Kind::Write,
                Class::Background,
                address(frame, line),
                1,
                at,
            );
        }
    }
}
