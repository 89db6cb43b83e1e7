//! The contract of a design, and what is counted.

use super::step::Step;
use crate::op::{LINE_BYTES, Op, PAGE_BYTES};
use std::collections::BTreeSet;

/// A design by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Name {
    /// Hardware undo logging: each entry is durable before its store.
    UndoLog,
    /// Hardware redo logging (DHTM): data is written back while the program goes on.
    RedoLog,
    /// Shadow sub-paging.
    Ssp,
}

impl Name {
    /// The name as the figures write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Name::UndoLog => "undo-log",
            Name::RedoLog => "redo-log",
            Name::Ssp => "ssp",
        }
    }

    /// The design of that name.
    ///
    /// # Errors
    /// There is none.
    pub fn find(name: &str) -> Result<Name, String> {
        let found = Name::ALL.into_iter().find(|design| design.name() == name);
        found.ok_or_else(|| {
            let names = Name::ALL.map(Name::name).join(", ");
            format!("no design is called {name}; there are {names}")
        })
    }

    /// All of them, as the paper's figures order them.
    pub const ALL: [Name; 3] = [Name::UndoLog, Name::RedoLog, Name::Ssp];
}

/// What was done, by the steps that were made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Counts {
    /// Sections.
    pub sections: u64,
    /// Lines they wrote, each once a section.
    pub lines: u64,
    /// Pages they wrote, each once a section.
    pub pages: u64,
    /// The most pages of a section.
    pub most_pages: u64,
    /// Pages that a TLB did not have.
    pub tlb_misses: u64,
    /// Flip-current-bit messages.
    pub flips: u64,
    /// Fetches of an entry of the SSP cache that did not find it in the last cache.
    pub far_entries: u64,
    /// Pages consolidated.
    pub consolidations: u64,
    /// Slots above the SSP cache's size.
    pub slots_added: u64,
    /// Sections that had been made when the last of them was added.
    pub last_added: u64,
    /// Pages that wait for consolidation at the end.
    pub queued: u64,
    /// Sections that were begun again on the fall-back path.
    pub fallbacks: u64,
    /// Lines written back by sections.
    pub data_writes: u64,
    /// Lines of logs and journals written.
    pub log_writes: u64,
    /// Lines copied by consolidation.
    pub consolidation_writes: u64,
    /// Lines written by checkpoints of the journal.
    pub checkpoint_writes: u64,
}

impl Counts {
    /// What was done since `before`; the most pages and those that wait as they are.
    pub(super) fn since(&self, before: &Counts) -> Counts {
        Counts {
            sections: self.sections - before.sections,
            lines: self.lines - before.lines,
            pages: self.pages - before.pages,
            most_pages: self.most_pages,
            tlb_misses: self.tlb_misses - before.tlb_misses,
            flips: self.flips - before.flips,
            far_entries: self.far_entries - before.far_entries,
            consolidations: self.consolidations - before.consolidations,
            slots_added: self.slots_added - before.slots_added,
            last_added: self.last_added.saturating_sub(before.sections),
            queued: self.queued,
            fallbacks: self.fallbacks - before.fallbacks,
            data_writes: self.data_writes - before.data_writes,
            log_writes: self.log_writes - before.log_writes,
            consolidation_writes: self.consolidation_writes - before.consolidation_writes,
            checkpoint_writes: self.checkpoint_writes - before.checkpoint_writes,
        }
    }

    /// Lines written, of all kinds.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.data_writes + self.log_writes + self.consolidation_writes + self.checkpoint_writes
    }
}

/// What turns sections into steps.
pub(super) trait Design: Send {
    /// Whether the core may use these pages now.
    fn is_ready(&self, _pages: &BTreeSet<u64>) -> bool {
        true
    }

    /// A page came into a core's TLB, and another one left it.
    fn translate(&mut self, _page: u64, _gone: Option<u64>, _out: &mut Out) {}

    /// A load or anything else that writes nothing.
    fn load(&mut self, op: &Op, out: &mut Out) {
        out.steps.push(Step::Own(*op));
    }

    /// An atomic store. False if the section is larger than the design can hold: nothing was done.
    #[must_use]
    fn store(&mut self, core: usize, op: &Op, out: &mut Out) -> bool;

    /// What the section did is taken back; it begins again, and may be of any size.
    fn fall_back(&mut self, _core: usize, _out: &mut Out) {
        unreachable!("a design that holds every section")
    }

    /// A page left a core's TLB because another core said so.
    fn shot_down(&mut self, _page: u64) {}

    /// The section's stores are over; it is acknowledged after these steps.
    fn end(&mut self, core: usize, out: &mut Out);

    /// The section is acknowledged; the core goes on after these steps.
    fn after(&mut self, _core: usize, _out: &mut Out) {}

    /// The machine has done the last steps of the core.
    fn done(&mut self, _core: usize, _out: &mut Out) {}

    /// What is to do in the background, if anything is.
    fn background(&mut self, _out: &mut Out) {}

    /// Pages that wait for it.
    fn queued(&self) -> u64 {
        0
    }
}

/// The steps of a batch, and what is counted.
#[derive(Default)]
pub(super) struct Out {
    pub(super) steps: Vec<Step>,
    /// The page whose entry other TLBs have to drop.
    pub(super) shoots: Option<u64>,
    pub(super) counts: Counts,
}

/// The line of a byte.
pub(super) fn line(at: u64) -> u64 {
    at / LINE_BYTES
}

/// The page of a byte, and the line's number in it.
pub(super) fn page(at: u64) -> (u64, u32) {
    (at / PAGE_BYTES, (at % PAGE_BYTES / LINE_BYTES) as u32)
}

/// An area of lines that is written from its first line to its last, and again.
#[derive(Clone, Debug)]
pub(super) struct Area {
    first: u64,
    bytes: u64,
    stride: u64,
    at: u64,
}

impl Area {
    /// From this line on. A line lies `stride` lines after the one before, if that divides their number.
    pub(super) fn new(first: u64, bytes: u64, stride: u64) -> Area {
        let lines = bytes / LINE_BYTES;
        Area {
            first,
            bytes: lines * LINE_BYTES,
            stride: if lines.is_multiple_of(stride) { stride } else { 1 },
            at: 0,
        }
    }

    /// The line after it.
    pub(super) fn end(&self) -> u64 {
        self.first + self.bytes / LINE_BYTES
    }

    /// The lines of the next `bytes` bytes.
    pub(super) fn append(&mut self, bytes: u64) -> impl Iterator<Item = u64> + use<> {
        let (first, stride, lines) = (self.first, self.stride, self.bytes / LINE_BYTES);
        let from = self.at / LINE_BYTES;
        let until = (self.at + bytes).div_ceil(LINE_BYTES);
        self.at = (self.at + bytes) % self.bytes;
        (from..until).map(move |line| {
            let at = line % lines * stride;
            first + at % lines + at / lines
        })
    }

    /// Goes on at the start of a line.
    pub(super) fn align(&mut self) {
        self.at = self.at.next_multiple_of(LINE_BYTES) % self.bytes;
    }
}
