//! A workload whose sections a design makes atomic.

use super::config::Setting;
use super::design::{Counts, Design, Name, Out, line, page};
use super::logs::{Redo, Undo};
use super::lru::Lru;
use super::ssp::Ssp;
use super::step::Step;
use crate::op::{Kind, Op, PAGE_BYTES};
use crate::space::{Port, Space};
use crate::workload::{Progress, Workload, next};
use std::collections::{BTreeSet, VecDeque};

/// A workload on a design. Batches of the workload are whole sections.
pub struct Sections<'w> {
    workload: &'w mut dyn Workload,
    setting: Setting,
    design: Box<dyn Design>,
    tlbs: Vec<Lru>,
    /// A batch that waits for a page.
    held: Vec<Option<Vec<Op>>>,
    out: Out,
    /// What was done in the warm-up, and how many sections that has.
    before: Counts,
    warm_up: u64,
    /// What was done since, up to some numbers of sections; and those of them that are still to come.
    parts: Vec<Counts>,
    marks: VecDeque<u64>,
    /// Instructions before a section, beside the program's own.
    between: u32,
    /// Of each core, what other cores' shoot-downs cost it since its last batch.
    interrupted_fs: Vec<u64>,
    failed: Option<String>,
}

impl<'w> Sections<'w> {
    /// The workload, with sections as the design makes them.
    pub fn new(name: Name, setting: &Setting, workload: &'w mut dyn Workload) -> Sections<'w> {
        let pages = workload.footprint_bytes().div_ceil(PAGE_BYTES);
        let lines = pages * (PAGE_BYTES / 64);
        Sections {
            design: match name {
                Name::UndoLog => Box::new(Undo::new(setting, lines)),
                Name::RedoLog => Box::new(Redo::new(setting, lines)),
                Name::Ssp => Box::new(Ssp::new(setting, pages)),
            },
            workload,
            tlbs: vec![Lru::new(setting.tlb_entries); setting.cores],
            held: vec![None; setting.cores],
            setting: *setting,
            out: Out::default(),
            before: Counts::default(),
            warm_up: 0,
            parts: Vec::new(),
            marks: VecDeque::new(),
            between: 0,
            interrupted_fs: vec![0; setting.cores],
            failed: None,
        }
    }

    /// The same, with its first sections not counted.
    #[must_use]
    pub fn after(self, warm_up: u64) -> Sections<'w> {
        Sections { warm_up, ..self }
    }

    /// The same; what is done is noted at the end of each of so many equal parts of the sections after the warm-up.
    #[must_use]
    pub fn in_parts(self, sections: u64, parts: u64) -> Sections<'w> {
        let ends = (1..=parts).map(|part| self.warm_up + sections * part / parts);
        Sections {
            marks: ends.collect(),
            ..self
        }
    }

    /// The same, with more instructions between two sections.
    #[must_use]
    pub fn apart(self, instructions: u32) -> Sections<'w> {
        Sections {
            between: instructions,
            ..self
        }
    }

    /// What was done, since the warm-up.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            queued: self.design.queued(),
            ..self.out.counts.since(&self.before)
        }
    }

    /// What was done from the warm-up to the end of each part that is over.
    #[must_use]
    pub fn parts(&self) -> &[Counts] {
        &self.parts
    }

    /// The next steps of a core; those of the core after the program's are the background's. The steps that the core
    /// was given before are done.
    pub fn steps(&mut self, core: usize, space: &mut Space) -> (Progress, Vec<Step>) {
        self.design.done(core, &mut self.out);
        let progress = match core {
            core if core < self.setting.cores => self.program(core, space),
            core if core == self.setting.cores => {
                self.design.background(&mut self.out);
                match self.out.steps.is_empty() {
                    true => Progress::Waiting,
                    false => Progress::More,
                }
            }
            _ => Progress::Done,
        };
        (progress, std::mem::take(&mut self.out.steps))
    }

    fn program(&mut self, core: usize, space: &mut Space) -> Progress {
        if self.failed.is_some() {
            return Progress::Done;
        }
        let ops = match self.held[core].take() {
            Some(ops) => ops,
            None => {
                let mut ops = Vec::new();
                let progress = next(self.workload, core, space, &mut ops);
                if progress != Progress::More {
                    return progress;
                }
                ops
            }
        };
        let accesses = ops.iter().filter(|op| is_access(op));
        let pages: BTreeSet<u64> = accesses.map(|op| page(op.at).0).collect();
        if !self.design.is_ready(&pages) {
            self.held[core] = Some(ops);
            return Progress::Waiting;
        }
        if let Err(why) = self.translate(core, &ops) {
            self.failed = Some(why);
            return Progress::Done;
        }
        Progress::More
    }

    fn translate(&mut self, core: usize, ops: &[Op]) -> Result<(), String> {
        let mut lines = BTreeSet::new();
        self.begin(core, ops);
        // Where the section under way begins, and where it is.
        let (mut first, mut place) = (0, 0);
        while let Some(op) = ops.get(place) {
            let op = &Op {
                work: if place == 0 { 0 } else { op.work },
                ..*op
            };
            place += 1;
            if is_access(op) {
                self.look_up(core, page(op.at).0);
            }
            match op.kind {
                Kind::Store => {
                    lines.insert(line(op.at));
                    if !self.design.store(core, op, &mut self.out) {
                        self.out.counts.fallbacks += 1;
                        self.design.fall_back(core, &mut self.out);
                        lines.clear();
                        place = first;
                    }
                    self.shoot_down(core);
                }
                Kind::Commit => {
                    self.design.end(core, &mut self.out);
                    self.out.steps.push(Step::Acknowledge);
                    self.design.after(core, &mut self.out);
                    self.ended(&std::mem::take(&mut lines));
                    first = place;
                }
                Kind::Load => self.design.load(op, &mut self.out),
                Kind::Work => self.out.steps.push(Step::Own(*op)),
                _ => {
                    return Err(format!(
                        "{:?} in a section, which persists by its end alone",
                        op.kind
                    ));
                }
            }
        }
        match lines.is_empty() {
            true => Ok(()),
            false => Err("a batch with stores after its last section".into()),
        }
    }

    /// What comes before the first access is not of the section; then it begins. Its beginning and its end are full
    /// barriers (3.1). A batch of code alone has no section.
    fn begin(&mut self, core: usize, ops: &[Op]) {
        let interrupted_fs = std::mem::take(&mut self.interrupted_fs[core]);
        if interrupted_fs > 0 {
            self.out.steps.push(Step::Wait(interrupted_fs));
        }
        let work = self.between + ops.first().map_or(0, |op| op.work);
        if work > 0 {
            self.out.steps.push(Step::Own(Op {
                at: 0,
                work,
                bytes: 0,
                kind: Kind::Work,
                behind: 0,
            }));
        }
        if ops.iter().any(|op| op.kind != Kind::Work) {
            self.out.steps.push(Step::Fence);
        }
    }

    /// Other TLBs drop the page that a store has another place for now; their cores are interrupted.
    fn shoot_down(&mut self, core: usize) {
        let Some(page) = self.out.shoots.take() else {
            return;
        };
        for (other, tlb) in self.tlbs.iter_mut().enumerate() {
            if other != core {
                self.interrupted_fs[other] += self.setting.interrupt_fs;
                if tlb.remove(page) {
                    self.design.shot_down(page);
                }
            }
        }
    }

    fn look_up(&mut self, core: usize, page: u64) {
        let (is_there, gone) = self.tlbs[core].touch(page);
        if !is_there {
            self.out.counts.tlb_misses += 1;
            self.out.steps.push(Step::Wait(self.setting.walk_fs));
            self.design.translate(page, gone, &mut self.out);
        }
    }

    fn ended(&mut self, lines: &BTreeSet<u64>) {
        let pages: BTreeSet<u64> = lines.iter().map(|line| line / (PAGE_BYTES / 64)).collect();
        let counts = &mut self.out.counts;
        counts.sections += 1;
        counts.lines += lines.len() as u64;
        counts.pages += pages.len() as u64;
        counts.most_pages = counts.most_pages.max(pages.len() as u64);
        if counts.sections == self.warm_up {
            self.before = *counts;
            counts.most_pages = 0;
        }
        while self.marks.front().is_some_and(|end| *end <= counts.sections) {
            self.marks.pop_front();
            self.parts.push(counts.since(&self.before));
        }
    }
}

fn is_access(op: &Op) -> bool {
    matches!(op.kind, Kind::Load | Kind::Store)
}

impl Workload for Sections<'_> {
    fn name(&self) -> &str {
        self.workload.name()
    }

    fn footprint_bytes(&self) -> u64 {
        self.workload.footprint_bytes()
    }

    fn fill(&self, space: &mut Space) {
        self.workload.fill(space);
    }

    fn run(&mut self, core: usize, port: &mut Port<'_>) -> Progress {
        let (space, batch) = port.parts();
        let (progress, steps) = self.steps(core, space);
        steps.iter().for_each(|step| step.lower(batch));
        progress
    }

    fn check(&self, space: &Space) -> Result<(), String> {
        match &self.failed {
            Some(why) => Err(why.clone()),
            None => self.workload.check(space),
        }
    }
}
