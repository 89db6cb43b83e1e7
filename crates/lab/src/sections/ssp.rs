//! Shadow sub-paging (SSP 3, 4).
//!
//! * A page that a TLB has, has a second physical page. The current bit of a line says which holds its newest version, the
//!   committed bit which holds the one of whole sections.
//! * The first store of a section to a line flips its current bit: the committed version is never overwritten.
//! * Data is durable before the journal says so (Figure 2).
//! * A page that no TLB has and no section writes is consolidated: the side with fewer committed lines is copied.
//! * A section of more pages than the write-set buffer holds is taken back and begins again with an undo log: its stores go
//!   to the committed side, each behind its entry. What its first attempt wrote is on the other side, where nothing reads it.

use super::config::Setting;
use super::design::{Area, Counts, Design, Out, page};
use super::logs::{append, logs};
use super::lru::Lru;
use super::step::{self, Record, Step};
use crate::op::{Kind, Op, PAGE_BYTES};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Lines of a page.
const LINES: u64 = 64;
/// Bytes of a record of the journal: "128 bits of metadata for each modified page" (3.3).
const RECORD_BYTES: u64 = 16;
/// Entries of the persistent SSP cache in a line: two page numbers and a bitmap each.
const ENTRIES_A_LINE: u64 = 2;
/// Pages beyond the SSP cache's size that it can grow by.
const GROWTH: u64 = 1 << 16;

/// A page in the SSP cache.
#[derive(Clone, Debug)]
struct Entry {
    slot: u64,
    p0: u64,
    p1: u64,
    committed: u64,
    current: u64,
    /// TLBs that have it.
    tlbs: u32,
    /// Cores that have a section under way that wrote it.
    writers: u32,
    is_queued: bool,
    is_consolidating: bool,
}

impl Entry {
    fn is_idle(&self) -> bool {
        self.tlbs == 0 && self.writers == 0 && !self.is_consolidating
    }

    /// The physical line, on the side that `bits` say.
    fn line(&self, bits: u64, number: u32) -> u64 {
        let side = if bits >> number & 1 == 0 { self.p0 } else { self.p1 };
        side * LINES + u64::from(number)
    }

    fn record(&self, number: u64, moved: Option<u64>) -> step::Page {
        step::Page {
            number,
            p0: self.p0,
            p1: self.p1,
            moved,
        }
    }
}

pub(super) struct Ssp {
    setting: Setting,
    entries: BTreeMap<u64, Entry>,
    /// Original pages that are not where they were at first, of pages without an entry.
    homes: BTreeMap<u64, u64>,
    /// Slots without an entry, and their second pages.
    free: Vec<(u64, u64)>,
    slots: u64,
    first_extra: u64,
    /// The slots that lie in the last cache.
    near: Lru,
    /// Each core's write-set buffer: pages, and the updated bits of their lines.
    updated: Vec<BTreeMap<u64, u64>>,
    /// Whether the section of a core is on the fall-back path: updated lines are then those that its log has.
    falls_back: Vec<bool>,
    logs: Vec<Area>,
    /// Those of the section whose last steps the machine is doing.
    ending: Vec<BTreeMap<u64, u64>>,
    queue: VecDeque<u64>,
    consolidating: BTreeSet<u64>,
    journal: Area,
    /// Bytes of the journal that no checkpoint covers, and the slots they are of.
    uncovered: u64,
    changed: BTreeSet<u64>,
    /// The persistent SSP cache, and behind it the journal's tail.
    kept: u64,
}

impl Ssp {
    /// For a program of `pages` pages.
    pub(super) fn new(setting: &Setting, pages: u64) -> Ssp {
        let slots = (setting.cores * setting.tlb_entries + setting.spare_slots) as u64;
        let first = (pages + slots + GROWTH) * LINES;
        let journal = Area::new(first, setting.journal_bytes, setting.log_stride);
        let kept = journal.end();
        Ssp {
            falls_back: vec![false; setting.cores],
            logs: logs(setting, kept + 1 + GROWTH),
            setting: *setting,
            entries: BTreeMap::new(),
            homes: BTreeMap::new(),
            free: (0..slots).rev().map(|slot| (slot, pages + slot)).collect(),
            slots,
            first_extra: pages,
            near: Lru::new(setting.near_entries),
            updated: vec![BTreeMap::new(); setting.cores],
            ending: vec![BTreeMap::new(); setting.cores],
            queue: VecDeque::new(),
            consolidating: BTreeSet::new(),
            kept,
            journal,
            uncovered: 0,
            changed: BTreeSet::new(),
        }
    }

    /// A slot for a page: a free one, that of a page that is consolidated and not used, or a new one.
    fn slot(&mut self, counts: &mut Counts) -> (u64, u64) {
        if let Some(free) = self.free.pop() {
            return free;
        }
        let mut idle = self.entries.iter();
        // A queued page may have been used since, and be consolidated by its own sections; the queue still names it.
        let idle = idle.find(|(_, entry)| entry.committed == 0 && entry.is_idle() && !entry.is_queued);
        if let Some(number) = idle.map(|(&number, _)| number) {
            let gone = self.entries.remove(&number).expect("just found");
            self.homes.insert(number, gone.p0);
            return (gone.slot, gone.p1);
        }
        assert!(self.slots < GROWTH, "the SSP cache cannot grow any more");
        counts.slots_added += 1;
        counts.last_added = counts.sections;
        self.slots += 1;
        (self.slots - 1, self.first_extra + self.slots - 1)
    }

    fn entry(&mut self, number: u64) -> &mut Entry {
        self.entries
            .get_mut(&number)
            .expect("a page in a TLB or write set has an entry")
    }

    /// Nothing uses the page any more, perhaps.
    fn released(&mut self, number: u64) {
        let entry = self.entry(number);
        if entry.is_idle() && entry.committed != 0 && !entry.is_queued {
            entry.is_queued = true;
            self.queue.push_back(number);
        }
    }

    fn to_physical(&self, op: &Op) -> Op {
        let (number, line) = page(op.at);
        let entry = &self.entries[&number];
        let at = entry.line(entry.current, line) * (PAGE_BYTES / LINES) + op.at % (PAGE_BYTES / LINES);
        Op { at, ..*op }
    }

    /// The pages of one transaction go to the journal.
    fn commit(&mut self, pages: Vec<step::Page>, out: &mut Out) {
        let bytes = pages.len() as u64 * RECORD_BYTES;
        self.uncovered += bytes;
        for page in &pages {
            let slot = self.entry(page.number).slot;
            self.changed.insert(slot);
        }
        let lines: Vec<u64> = self.journal.append(bytes).collect();
        let Some((last, before)) = lines.split_last() else {
            return;
        };
        out.counts.log_writes += lines.len() as u64;
        out.steps
            .extend(before.iter().map(|&line| Step::Append(line, Vec::new())));
        out.steps.push(Step::Append(*last, vec![Record::Pages(pages)]));
    }

    /// The final state of each changed entry goes to the persistent SSP cache; then the journal's tail moves.
    fn checkpoint(&mut self, out: &mut Out) {
        let lines: BTreeSet<u64> = std::mem::take(&mut self.changed)
            .into_iter()
            .map(|slot| slot / ENTRIES_A_LINE)
            .collect();
        out.counts.checkpoint_writes += lines.len() as u64 + 1;
        out.steps
            .extend(lines.iter().map(|line| Step::Keep(self.kept + 1 + line)));
        out.steps
            .extend([Step::Fence, Step::Keep(self.kept), Step::Fence]);
        self.uncovered = 0;
    }

    /// Lines of a sub-page.
    fn sub_page(&self) -> u32 {
        self.setting.sub_page_lines
    }

    /// Sub-pages of these lines, which are whole ones.
    fn sub_pages(&self, bits: u64) -> u64 {
        u64::from(bits.count_ones() / self.sub_page())
    }

    /// The first store of a section to a sub-page: its lines are the other page's from here on. Returns them.
    fn flip(&mut self, number: u64, line: u32, out: &mut Out) -> u64 {
        let lines = self.sub_page();
        let first = line / lines * lines;
        let new = u64::MAX >> (64 - lines) << first;
        let entry = self.entry(number);
        let before = entry.current;
        entry.current ^= new;
        for line in first..first + lines {
            let (old, new) = (entry.line(before, line), entry.line(!before, line));
            out.steps.push(Step::Remap(old, new));
        }
        out.counts.flips += 1;
        if self.setting.flip_fs > 0 {
            out.steps.push(Step::Wait(self.setting.flip_fs));
        }
        if self.setting.interrupt_fs > 0 {
            out.shoots = Some(number);
        }
        new
    }

    /// On the fall-back path, the first store to a line: it is in the log as it was, and durable there. The handler is
    /// software. Returns the line.
    fn log(&mut self, core: usize, op: &Op, out: &mut Out) -> u64 {
        let at = self.to_physical(op);
        out.steps.push(Step::Own(Op {
            kind: Kind::Load,
            work: self.setting.handler_work,
            ..at
        }));
        let log = &mut self.logs[core];
        log.align();
        let record = Record::Old(super::design::line(at.at));
        append(log, self.setting.undo_entry_bytes, vec![record], out);
        out.steps.push(Step::Fence);
        1 << page(op.at).1
    }

    /// Whether a page is consolidated only when slots are short, and they are not: fewer than half of the spare ones.
    fn may_wait(&self) -> bool {
        let gives_slot = |entry: &&Entry| entry.committed == 0 && entry.is_idle() && !entry.is_queued;
        let free = || self.free.len() + self.entries.values().filter(gives_slot).count();
        self.setting.lazy && free() > self.setting.spare_slots / 2
    }

    /// The lesser side of a page is copied to the other. Returns what the journal is to say of it.
    fn consolidate(&mut self, number: u64, out: &mut Out) -> step::Page {
        let entry = self.entry(number);
        entry.is_consolidating = true;
        let on_p1 = entry.committed.count_ones();
        let moves_to_p0 = on_p1 <= 32;
        let lesser = if moves_to_p0 {
            entry.committed
        } else {
            !entry.committed
        };
        for line in (0..64).filter(|line| lesser >> line & 1 == 1) {
            out.steps.push(Step::Copy(
                entry.line(entry.committed, line),
                entry.line(!entry.committed, line),
            ));
        }
        if !moves_to_p0 {
            std::mem::swap(&mut entry.p0, &mut entry.p1);
        }
        (entry.committed, entry.current) = (0, 0);
        let record = entry.record(number, None);
        out.counts.consolidations += 1;
        out.counts.consolidation_writes += u64::from(lesser.count_ones());
        self.consolidating.insert(number);
        record
    }
}

impl Design for Ssp {
    fn is_ready(&self, pages: &BTreeSet<u64>) -> bool {
        self.consolidating.is_disjoint(pages)
    }

    fn translate(&mut self, number: u64, gone: Option<u64>, out: &mut Out) {
        if !self.entries.contains_key(&number) {
            let (slot, p1) = self.slot(&mut out.counts);
            let p0 = self.homes.remove(&number).unwrap_or(number);
            let entry = Entry {
                slot,
                p0,
                p1,
                committed: 0,
                current: 0,
                tlbs: 0,
                writers: 0,
                is_queued: false,
                is_consolidating: false,
            };
            self.entries.insert(number, entry);
        }
        let entry = self.entry(number);
        entry.tlbs += 1;
        // A page without an entry takes a slot: the slot's line is what is fetched.
        let slot = entry.slot;
        let (is_near, _) = self.near.touch(slot);
        out.counts.far_entries += u64::from(!is_near);
        let cost = if is_near {
            self.setting.near_fs
        } else {
            self.setting.far_fs
        };
        out.steps.push(Step::Wait(cost));
        if let Some(gone) = gone {
            self.entry(gone).tlbs -= 1;
            self.released(gone);
        }
    }

    fn load(&mut self, op: &Op, out: &mut Out) {
        out.steps.push(Step::Own(self.to_physical(op)));
    }

    fn store(&mut self, core: usize, op: &Op, out: &mut Out) -> bool {
        let (number, line) = page(op.at);
        let known = self.updated[core].get(&number).copied();
        let is_full = self.updated[core].len() >= self.setting.write_set_pages;
        if known.is_none() && is_full && !self.falls_back[core] {
            return false;
        }
        let updated = known.unwrap_or(0);
        if updated >> line & 1 == 0 {
            self.entry(number).writers += u32::from(known.is_none());
            let new = match self.falls_back[core] {
                true => self.log(core, op, out),
                false => self.flip(number, line, out),
            };
            self.updated[core].insert(number, updated | new);
        }
        out.steps.push(Step::Own(self.to_physical(op)));
        true
    }

    fn fall_back(&mut self, core: usize, out: &mut Out) {
        for (number, bits) in std::mem::take(&mut self.updated[core]) {
            out.counts.flips += self.sub_pages(bits);
            let entry = self.entry(number);
            entry.current ^= bits;
            entry.writers -= 1;
            self.released(number);
        }
        self.falls_back[core] = true;
    }

    fn shot_down(&mut self, number: u64) {
        // Its writer keeps it from being consolidated.
        self.entry(number).tlbs -= 1;
    }

    fn end(&mut self, core: usize, out: &mut Out) {
        let updated = std::mem::take(&mut self.updated[core]);
        let falls_back = std::mem::take(&mut self.falls_back[core]);
        let mut pages = Vec::new();
        for (&number, &bits) in &updated {
            let entry = self.entry(number);
            for line in (0..64).filter(|line| bits >> line & 1 == 1) {
                out.counts.data_writes += 1;
                out.steps.push(Step::WriteBack(entry.line(entry.current, line)));
            }
            if !falls_back {
                entry.committed ^= bits;
                pages.push(entry.record(number, Some(bits)));
            }
        }
        out.steps.push(Step::Fence);
        if falls_back {
            let log = &mut self.logs[core];
            log.align();
            let entries = updated.values().map(|bits| bits.count_ones() as usize).sum();
            append(log, 8, vec![Record::End(entries)], out);
        }
        self.commit(pages, out);
        out.steps.push(Step::Fence);
        self.ending[core] = updated;
    }

    fn done(&mut self, core: usize, _: &mut Out) {
        if core == self.setting.cores {
            for number in std::mem::take(&mut self.consolidating) {
                self.entry(number).is_consolidating = false;
            }
            return;
        }
        for number in std::mem::take(&mut self.ending[core]).into_keys() {
            self.entry(number).writers -= 1;
            self.released(number);
        }
    }

    fn background(&mut self, out: &mut Out) {
        if self.uncovered > self.setting.journal_bytes / 2 {
            return self.checkpoint(out);
        }
        if self.queue.is_empty() || self.may_wait() {
            return;
        }
        // What the queue has (4.1.2), as far as there are slots for it, is done in one round: its copies overlap, and two
        // fences do for all.
        let mut records = Vec::new();
        while records.len() < self.setting.spare_slots.max(1) {
            let Some(number) = self.queue.pop_front() else {
                break;
            };
            let entry = self.entry(number);
            entry.is_queued = false;
            if entry.is_idle() && entry.committed != 0 {
                records.push(self.consolidate(number, out));
            }
        }
        if !records.is_empty() {
            out.steps.push(Step::Fence);
            self.commit(records, out);
            out.steps.push(Step::Fence);
        }
    }

    fn queued(&self) -> u64 {
        self.queue.len() as u64
    }
}
