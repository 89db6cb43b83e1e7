//! Shadow sub-paging (SSP 3, 4).
//!
//! * A page that a TLB has, has a second physical page. The current bit of a line says which holds its newest version, the
//!   committed bit which holds the one of whole sections.
//! * The first store of a section to a line flips its current bit: the committed version is never overwritten.
//! * Data is durable before the journal says so (Figure 2).
//! * A page that no TLB has and no section writes is consolidated: the side with fewer committed lines is copied.

use super::config::Setting;
use super::design::{Area, Counts, Design, Out, page};
use super::lru::Lru;
use super::step::{self, Record, Step};
use crate::op::{Op, PAGE_BYTES};
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
    /// What of the SSP cache lies in the last cache.
    near: Lru,
    /// Each core's write-set buffer: pages, and the updated bits of their lines.
    updated: Vec<BTreeMap<u64, u64>>,
    /// Those of the section whose last steps the machine is doing.
    ending: Vec<BTreeMap<u64, u64>>,
    queue: VecDeque<u64>,
    consolidating: Option<u64>,
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
        let journal = Area::new((pages + slots + GROWTH) * LINES, setting.journal_bytes);
        Ssp {
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
            consolidating: None,
            kept: journal.end(),
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

    /// The lesser side of a page is copied to the other.
    fn consolidate(&mut self, number: u64, out: &mut Out) {
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
        out.steps.push(Step::Fence);
        self.commit(vec![record], out);
        out.steps.push(Step::Fence);
        self.consolidating = Some(number);
    }
}

impl Design for Ssp {
    fn is_ready(&self, pages: &BTreeSet<u64>) -> bool {
        self.consolidating.is_none_or(|number| !pages.contains(&number))
    }

    fn translate(&mut self, number: u64, gone: Option<u64>, out: &mut Out) {
        let (is_near, _) = self.near.touch(number);
        out.counts.far_entries += u64::from(!is_near);
        let cost = if is_near {
            self.setting.near_fs
        } else {
            self.setting.far_fs
        };
        out.steps.push(Step::Wait(cost));
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
        self.entry(number).tlbs += 1;
        if let Some(gone) = gone {
            self.entry(gone).tlbs -= 1;
            self.released(gone);
        }
    }

    fn load(&mut self, op: &Op, out: &mut Out) {
        out.steps.push(Step::Own(self.to_physical(op)));
    }

    fn store(&mut self, core: usize, op: &Op, out: &mut Out) {
        let (number, line) = page(op.at);
        let updated = self.updated[core].entry(number).or_default();
        let is_first_of_page = *updated == 0;
        if *updated >> line & 1 == 0 {
            *updated |= 1 << line;
            let flip = self.setting.flip_fs;
            let entry = self.entry(number);
            entry.writers += u32::from(is_first_of_page);
            let old = entry.line(entry.current, line);
            entry.current ^= 1 << line;
            out.steps.push(Step::Remap(old, entry.line(entry.current, line)));
            out.counts.flips += 1;
            if flip > 0 {
                out.steps.push(Step::Wait(flip));
            }
        }
        out.steps.push(Step::Own(self.to_physical(op)));
    }

    fn end(&mut self, core: usize, out: &mut Out) -> Result<(), String> {
        let updated = std::mem::take(&mut self.updated[core]);
        if updated.len() > self.setting.write_set_pages {
            return Err(format!(
                "a section wrote {} pages, and the write-set buffer holds {}: the fall-back path is not simulated",
                updated.len(),
                self.setting.write_set_pages
            ));
        }
        let mut pages = Vec::new();
        for (&number, &bits) in &updated {
            let entry = self.entry(number);
            for line in (0..64).filter(|line| bits >> line & 1 == 1) {
                out.counts.data_writes += 1;
                out.steps.push(Step::WriteBack(entry.line(entry.current, line)));
            }
            entry.committed ^= bits;
            pages.push(entry.record(number, Some(bits)));
        }
        out.steps.push(Step::Fence);
        self.commit(pages, out);
        out.steps.push(Step::Fence);
        self.ending[core] = updated;
        Ok(())
    }

    fn done(&mut self, core: usize, _: &mut Out) {
        if core == self.setting.cores {
            if let Some(number) = self.consolidating.take() {
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
        while let Some(number) = self.queue.pop_front() {
            let entry = self.entry(number);
            entry.is_queued = false;
            if entry.is_idle() && entry.committed != 0 {
                return self.consolidate(number, out);
            }
        }
    }
}
