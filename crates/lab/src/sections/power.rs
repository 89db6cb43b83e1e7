//! A timed run of sections whose power fails, and what is recovered (`twinpage lab sections --crash-at`).
//!
//! * What the machine has done of a core's steps is done to a [`Memory`] as well; what no fence has waited for is durable
//!   or not.
//! * A core's batch is done to it as a whole when the core asks for the next one: programs hold their locks as long, so
//!   until then no other core touches these lines.
//! * The oracle knows sections by number: every line holds that of the last acknowledged section that wrote it. A section
//!   that is not acknowledged is there with all its lines, or with none.

use super::config::Setting;
use super::crash::{Memory, Recovered};
use super::design::{self, Name};
use super::program::Sections;
use super::step::Step;
use crate::bus::{Counts, Hardware, Machine};
use crate::op::{Kind, LINE_BYTES, Op};
use crate::quantity::FS_PER_NS;
use crate::space::{Port, Space};
use crate::workload::{Progress, Workload};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What may be left of what no fence has waited for: the chance of each write.
const CHANCES: [f64; 5] = [0.0, 0.3, 0.5, 0.7, 1.0];

/// A change of a batch's steps, for a test of the check.
pub type Fault = fn(&mut Vec<Step>);

/// A run, and when its power fails.
pub struct PowerCut<'c> {
    /// What makes sections atomic.
    pub design: Name,
    /// On which machine.
    pub hardware: &'c Hardware,
    /// How the design is set up.
    pub setting: &'c Setting,
    /// Sections before time is counted.
    pub warm_up: u64,
    /// Sections of the run, before whose end the power fails.
    pub sections: u64,
    /// When the power fails, in femtoseconds after them.
    pub after_fs: u64,
    /// What survives of writes under way follows from it.
    pub seed: u64,
    /// A fault in the steps.
    pub fault: Option<Fault>,
}

/// What recovery found, and whether it is right.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Recovery {
    /// When the power failed, in nanoseconds of the machine's time.
    pub at_ns: u64,
    /// Sections that were acknowledged.
    pub acknowledged: u64,
    /// Sections that had begun and were not.
    pub under_way: u64,
    /// Memories the crash may have left, each recovered and compared.
    pub images: u64,
    /// Lines compared in each.
    pub lines: u64,
    /// Of the sections under way, those that were there, in all images together.
    pub survived: u64,
    /// Whether all is as it should be.
    pub consistent: bool,
    /// If not, what.
    pub why: Option<String>,
}

/// What came of it: counts are of the time after the warm-up.
#[derive(Clone, Debug)]
pub struct Cut {
    /// What the machine counted.
    pub machine: Counts,
    /// What the design did.
    pub design: design::Counts,
    /// What was recovered.
    pub recovery: Recovery,
}

impl PowerCut<'_> {
    /// Runs the program until the power fails, recovers, and compares.
    ///
    /// # Errors
    /// The program ends before, or what it computed is wrong.
    pub fn run(&self, workload: &mut dyn Workload) -> Result<Cut, String> {
        let cores = self.setting.cores + 1;
        let oracle = Arc::new(Mutex::new(Oracle::new(cores)));
        let mut told = Told {
            workload,
            oracle: Arc::clone(&oracle),
        };
        let mut watched = Watched {
            sections: Sections::new(self.design, self.setting, &mut told).after(self.warm_up),
            memory: Memory::new(self.design),
            batches: vec![Vec::new(); cores],
            oracle: Arc::clone(&oracle),
            fault: self.fault,
        };
        let mut machine = Machine::new(self.hardware.clone(), None, &mut watched);
        let (counts, done) = machine.run_to_crash(self.warm_up, self.sections, self.after_fs)?;
        let at_ns = machine.crash_fs() / FS_PER_NS;
        machine.check()?;
        drop(machine);
        for (core, ops) in done.into_iter().enumerate() {
            watched.is_at(core, ops);
        }
        let oracle = lock(&oracle);
        let mut recovery = Recovery {
            at_ns,
            acknowledged: oracle.acknowledged,
            under_way: oracle.open.iter().filter(|sections| !sections.is_empty()).count() as u64,
            images: 0,
            lines: 0,
            survived: 0,
            consistent: false,
            why: None,
        };
        let checked = self.recover(&watched.memory, &oracle, &mut recovery);
        recovery.consistent = checked.is_ok();
        recovery.why = checked.err();
        Ok(Cut {
            machine: counts,
            design: watched.sections.counts(),
            recovery,
        })
    }

    fn recover(&self, memory: &Memory, oracle: &Oracle, recovery: &mut Recovery) -> Result<(), String> {
        let mut random = fastrand::Rng::with_seed(self.seed ^ recovery.at_ns);
        for chance in CHANCES {
            let found = memory.clone().crash(|| random.f64() < chance);
            recovery.images += 1;
            let (lines, survived) = oracle.check(&found)?;
            recovery.lines = lines;
            recovery.survived += survived;
        }
        Ok(())
    }
}

/// What memory is to hold.
struct Oracle {
    /// Of each core its sections that are not acknowledged, the oldest first: number, and lines they write.
    open: Vec<VecDeque<(u64, BTreeSet<u64>)>>,
    /// Of each line the last acknowledged section that wrote it.
    lines: BTreeMap<u64, u64>,
    sections: u64,
    acknowledged: u64,
}

impl Oracle {
    fn new(cores: usize) -> Oracle {
        Oracle {
            open: vec![VecDeque::new(); cores],
            lines: BTreeMap::new(),
            sections: 0,
            acknowledged: 0,
        }
    }

    /// A core's next section writes these lines.
    fn begins(&mut self, core: usize, lines: BTreeSet<u64>) {
        self.sections += 1;
        self.open[core].push_back((self.sections, lines));
    }

    /// The section that a core works at; the background works at none.
    fn section(&self, core: usize) -> u64 {
        self.open[core].front().map_or(0, |(number, _)| *number)
    }

    /// A core's section is acknowledged.
    fn acknowledge(&mut self, core: usize) {
        if let Some((number, lines)) = self.open[core].pop_front() {
            self.acknowledged += 1;
            self.lines.extend(lines.into_iter().map(|line| (line, number)));
        }
    }

    /// Compares all lines; says how many, and how many sections are there that were not acknowledged.
    fn check(&self, found: &Recovered) -> Result<(u64, u64), String> {
        let (mut expected, mut survived) = (self.lines.clone(), 0);
        for (number, lines) in self.open.iter().flatten() {
            let there = lines.iter().filter(|line| found.load(**line) == *number).count();
            if there > 0 {
                survived += 1;
                if there < lines.len() {
                    let all = lines.len();
                    return Err(format!("{there} of {all} lines of section {number} are there"));
                }
            }
            for &line in lines {
                let of = expected.entry(line).or_default();
                *of = if there > 0 { *number } else { *of };
            }
        }
        for (&line, &number) in &expected {
            let is = found.load(line);
            if is != number {
                return Err(format!("line {line:#x} is of section {is}, and was of {number}"));
            }
        }
        Ok((expected.len() as u64, survived))
    }
}

fn lock(oracle: &Mutex<Oracle>) -> MutexGuard<'_, Oracle> {
    oracle.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The program, whose sections are told to the oracle.
struct Told<'w> {
    workload: &'w mut dyn Workload,
    oracle: Arc<Mutex<Oracle>>,
}

impl Told<'_> {
    fn tell(&self, core: usize, ops: &[Op]) {
        let mut oracle = lock(&self.oracle);
        let mut lines = BTreeSet::new();
        for op in ops {
            match op.kind {
                Kind::Store => drop(lines.insert(op.at / LINE_BYTES)),
                Kind::Commit => oracle.begins(core, std::mem::take(&mut lines)),
                _ => {}
            }
        }
    }
}

impl Workload for Told<'_> {
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
        let before = port.batched();
        let progress = self.workload.run(core, port);
        let (_, ops) = port.parts();
        self.tell(core, &ops[before..]);
        progress
    }

    fn check(&self, space: &Space) -> Result<(), String> {
        self.workload.check(space)
    }
}

/// The sections, whose steps are done to memory.
struct Watched<'w> {
    sections: Sections<'w>,
    memory: Memory,
    /// Of each core the steps of the batch it is in.
    batches: Vec<Vec<Step>>,
    oracle: Arc<Mutex<Oracle>>,
    fault: Option<Fault>,
}

impl Watched<'_> {
    /// Does the steps that are complete once a core has done the first `ops` operations of its batch.
    fn is_at(&mut self, core: usize, mut ops: usize) {
        let mut lowered = Vec::new();
        for step in std::mem::take(&mut self.batches[core]) {
            lowered.clear();
            step.lower(&mut lowered);
            if lowered.len() > ops {
                return;
            }
            ops -= lowered.len();
            let section = lock(&self.oracle).section(core);
            self.memory.step(core, &step, section);
            if step == Step::Acknowledge {
                lock(&self.oracle).acknowledge(core);
            }
        }
    }
}

impl Workload for Watched<'_> {
    fn name(&self) -> &str {
        self.sections.name()
    }

    fn footprint_bytes(&self) -> u64 {
        self.sections.footprint_bytes()
    }

    fn fill(&self, space: &mut Space) {
        self.sections.fill(space);
    }

    fn run(&mut self, core: usize, port: &mut Port<'_>) -> Progress {
        if core < self.batches.len() {
            self.is_at(core, usize::MAX);
        }
        let (space, batch) = port.parts();
        let (progress, mut steps) = self.sections.steps(core, space);
        if let Some(fault) = self.fault {
            fault(&mut steps);
        }
        steps.iter().for_each(|step| step.lower(batch));
        if core < self.batches.len() {
            self.batches[core] = steps;
        }
        progress
    }

    fn check(&self, space: &Space) -> Result<(), String> {
        self.sections.check(space)
    }
}
