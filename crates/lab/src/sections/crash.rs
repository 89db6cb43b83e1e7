//! A memory that loses power between two steps, and what each design recovers.
//!
//! * A line's content is a number. A write that no fence of its core has waited for is durable or not, each by itself; so
//!   is a dirty line in a cache, unless the design holds it back. Redo entries of a section are there together.
//! * A line of a log is written whole: one that is durable brings what earlier writes put into it, of whichever core.
//! * Recovery sees durable lines and durable records alone.
//! * SSP's journal is replayed whole: its checkpoints (`Step::Keep`) cost time here, and are not crashed.

use super::design::Name;
use super::step::{Page, Record, Step};
use crate::op::{Kind, LINE_BYTES, PAGE_BYTES};
use std::collections::{BTreeMap, BTreeSet};

/// A record with the content it was written with.
#[derive(Clone, Debug)]
enum Written {
    Old(u64, u64),
    New(u64, u64),
    End(usize),
    Pages(Vec<Page>),
}

/// What a write puts into durable memory.
#[derive(Clone, Debug)]
enum Write {
    Line(u64, u64),
    /// A line of a log or journal, and the records that are complete with it.
    Records(u64, Vec<Written>),
}

/// Memory and caches.
#[derive(Clone, Debug)]
pub struct Memory {
    design: Name,
    /// Lines whose cached content is newer than any write-back.
    dirty: BTreeMap<u64, u64>,
    /// Lines that memory or the writes under way hold.
    below: BTreeMap<u64, u64>,
    /// Writes that no fence covers: the core, and what.
    under_way: Vec<(usize, Write)>,
    durable: BTreeMap<u64, u64>,
    /// Records, in the order in which they became durable; each with its core.
    log: Vec<(usize, Written)>,
    /// Lines that a redo log's section has written and its log does not hold.
    held: BTreeSet<u64>,
}

impl Memory {
    /// Every line is 0.
    #[must_use]
    pub fn new(design: Name) -> Memory {
        Memory {
            design,
            dirty: BTreeMap::new(),
            below: BTreeMap::new(),
            under_way: Vec::new(),
            durable: BTreeMap::new(),
            log: Vec::new(),
            held: BTreeSet::new(),
        }
    }

    /// What a load of a physical line gives.
    #[must_use]
    pub fn load(&self, line: u64) -> u64 {
        let cached = self.dirty.get(&line).or_else(|| self.below.get(&line));
        cached.copied().unwrap_or(0)
    }

    fn write(&mut self, core: usize, line: u64, value: u64) {
        self.below.insert(line, value);
        self.under_way.push((core, Write::Line(line, value)));
    }

    /// A core does a step; its stores write `value`.
    pub fn step(&mut self, core: usize, step: &Step, value: u64) {
        match step {
            Step::Own(op) if op.kind == Kind::Store => {
                let line = op.at / LINE_BYTES;
                self.dirty.insert(line, value);
                if self.design == Name::RedoLog {
                    self.held.insert(line);
                }
            }
            Step::Remap(old, new) => {
                let value = self.load(*old);
                self.dirty.remove(old);
                self.dirty.insert(*new, value);
            }
            Step::WriteBack(line) => {
                if let Some(value) = self.dirty.remove(line) {
                    self.write(core, *line, value);
                }
            }
            Step::Append(line, records) => {
                let written = records.iter().map(|record| self.written(record)).collect();
                self.under_way.push((core, Write::Records(*line, written)));
            }
            Step::Copy(from, to) => {
                self.dirty.remove(to);
                self.write(core, *to, self.load(*from));
            }
            Step::Fence => self.fence(core),
            Step::Own(_) | Step::Keep(_) | Step::Wait(_) | Step::Acknowledge => {}
        }
    }

    fn written(&self, record: &Record) -> Written {
        match record {
            Record::Old(line) => Written::Old(*line, self.load(*line)),
            Record::New(line) => Written::New(*line, self.load(*line)),
            Record::End(entries) => Written::End(*entries),
            Record::Pages(pages) => Written::Pages(pages.clone()),
        }
    }

    fn fence(&mut self, core: usize) {
        let under_way = std::mem::take(&mut self.under_way);
        let own = under_way.iter().map(|(owner, _)| *owner == core).collect();
        for ((owner, write), is_kept) in kept(under_way, own) {
            match is_kept {
                true => self.keep(owner, write),
                false => self.under_way.push((owner, write)),
            }
        }
    }

    fn keep(&mut self, core: usize, write: Write) {
        match write {
            Write::Line(line, value) => {
                self.durable.insert(line, value);
            }
            Write::Records(_, records) => {
                for record in &records {
                    if let Written::New(line, _) = record {
                        self.held.remove(line);
                    }
                }
                self.log.extend(records.into_iter().map(|record| (core, record)));
            }
        }
    }

    /// Power fails. `survives` says of each write under way, and of each dirty line, whether it is durable.
    #[must_use]
    pub fn crash(mut self, mut survives: impl FnMut() -> bool) -> Recovered {
        let under_way = std::mem::take(&mut self.under_way);
        let own = under_way.iter().map(|_| survives()).collect();
        for ((core, write), is_kept) in kept(under_way, own) {
            if is_kept {
                self.keep(core, write);
            }
        }
        for (line, value) in std::mem::take(&mut self.dirty) {
            if !self.held.contains(&line) && survives() {
                self.durable.insert(line, value);
            }
        }
        let mut pages = BTreeMap::new();
        let mut lines = self.durable;
        match self.design {
            Name::UndoLog => undo(&mut lines, &self.log),
            Name::RedoLog => redo(&mut lines, &self.log),
            Name::Ssp => {
                // Of sections on the fall-back path.
                undo(&mut lines, &self.log);
                replay(&mut pages, &self.log);
            }
        }
        Recovered { lines, pages }
    }
}

/// Writes, and whether each is durable: by itself, or with a later one of its line.
fn kept(writes: Vec<(usize, Write)>, mut own: Vec<bool>) -> impl Iterator<Item = ((usize, Write), bool)> {
    let mut lines = BTreeSet::new();
    for ((_, write), own) in writes.iter().zip(&mut own).rev() {
        if let Write::Records(line, _) = write {
            *own |= lines.contains(line);
            if *own {
                lines.insert(*line);
            }
        }
    }
    writes.into_iter().zip(own)
}

/// Takes back the last section of each core, if it has no end.
fn undo(lines: &mut BTreeMap<u64, u64>, log: &[(usize, Written)]) {
    let mut ended = BTreeSet::new();
    for (core, record) in log.iter().rev() {
        match *record {
            Written::Old(line, value) if !ended.contains(core) => {
                lines.insert(line, value);
            }
            Written::End(_) => {
                ended.insert(*core);
            }
            _ => {}
        }
    }
}

/// Does every section again whose end is there with all its entries. Its records became durable together.
fn redo(lines: &mut BTreeMap<u64, u64>, log: &[(usize, Written)]) {
    let mut section = Vec::new();
    for (_, record) in log {
        match *record {
            Written::New(line, value) => section.push((line, value)),
            Written::End(entries) => {
                if section.len() == entries {
                    lines.extend(section.iter().copied());
                }
                section.clear();
            }
            _ => {}
        }
    }
}

/// Applies the records of SSP's journal to its pages.
fn replay(pages: &mut BTreeMap<u64, Mapped>, log: &[(usize, Written)]) {
    let records = log.iter().flat_map(|(_, record)| match record {
        Written::Pages(pages) => pages.as_slice(),
        _ => &[],
    });
    for page in records {
        let before = pages.get(&page.number).map_or(0, |mapped| mapped.committed);
        let mapped = Mapped {
            p0: page.p0,
            p1: page.p1,
            committed: page.moved.map_or(0, |moved| before ^ moved),
        };
        pages.insert(page.number, mapped);
    }
}

/// A page's two physical pages, and of each line whether the second holds its committed version.
#[derive(Clone, Copy, Debug)]
struct Mapped {
    p0: u64,
    p1: u64,
    committed: u64,
}

/// Memory after recovery.
#[derive(Clone, Debug)]
pub struct Recovered {
    lines: BTreeMap<u64, u64>,
    pages: BTreeMap<u64, Mapped>,
}

impl Recovered {
    /// What a load of a virtual line gives.
    #[must_use]
    pub fn load(&self, line: u64) -> u64 {
        let lines = PAGE_BYTES / LINE_BYTES;
        let physical = match self.pages.get(&(line / lines)) {
            None => line,
            Some(page) if page.committed >> (line % lines) & 1 == 0 => page.p0 * lines + line % lines,
            Some(page) => page.p1 * lines + line % lines,
        };
        self.lines.get(&physical).copied().unwrap_or(0)
    }
}
