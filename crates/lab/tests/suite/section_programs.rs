//! The programs of SSP's Table 3 on the designs: crashes between steps of one and of four threads, and what the machine's
//! sizes do to them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use twinpage_lab::bus::Machine;
use twinpage_lab::config::Described;
use twinpage_lab::sections::crash::Memory;
use twinpage_lab::sections::step::Step;
use twinpage_lab::sections::{Config, Counts, Name, Sections, Setting};
use twinpage_lab::workload::maps::{Maps, Program, Structure};
use twinpage_lab::workload::memcached::Memcached;
use twinpage_lab::workload::swaps::Swaps;
use twinpage_lab::workload::turns::Outside;
use twinpage_lab::workload::vacation::Vacation;
use twinpage_lab::workload::{Progress, Workload, next};
use twinpage_lab::{Kind, Port, Space};

const PROGRAMS: [&str; 9] = [
    "btree-rand",
    "rbtree-rand",
    "hash-rand",
    "sps",
    "btree-zipf",
    "rbtree-zipf",
    "hash-zipf",
    "memcached",
    "vacation",
];

fn made(name: &str, size: u64, threads: usize, seed: u64) -> Box<dyn Workload> {
    let (structure, keys) = name.split_once('-').unwrap_or((name, ""));
    let structure = match structure {
        "sps" => return Box::new(Swaps::new(size, threads, seed)),
        "memcached" => return Box::new(Memcached::new(size, threads, Outside::Behind(3), 0, seed)),
        "vacation" => return Box::new(Vacation::new(size, threads, Outside::Within(3), 0, seed)),
        "btree" => Structure::BTree,
        "rbtree" => Structure::RedBlack,
        _ => Structure::Hash,
    };
    let program = Program {
        structure,
        node_bytes: 1024,
        zipf: keys == "zipf",
        keys: size,
        threads,
        shared: false,
    };
    Box::new(Maps::new(program, seed))
}

/// A section: its core, and the lines it writes.
type Section = (usize, BTreeSet<u64>);

/// A program that tells which lines each section writes. It computes on a space of its own.
struct Watched {
    inner: Box<dyn Workload>,
    own: Space,
    sections: Arc<Mutex<Vec<Section>>>,
    most: usize,
}

impl Workload for Watched {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn footprint_bytes(&self) -> u64 {
        self.inner.footprint_bytes()
    }

    fn fill(&self, _: &mut Space) {}

    fn run(&mut self, core: usize, port: &mut Port<'_>) -> Progress {
        let mut sections = self.sections.lock().unwrap();
        if sections.len() == self.most {
            return Progress::Done;
        }
        let mut ops = Vec::new();
        let progress = next(&mut *self.inner, core, &mut self.own, &mut ops);
        if progress != Progress::More {
            return progress;
        }
        let mut lines = BTreeSet::new();
        for op in &ops {
            let bytes = op.bytes as usize;
            match op.kind {
                Kind::Load => port.load_bytes(op.at, &mut vec![0; bytes]),
                Kind::Store => {
                    lines.insert(op.at / 64);
                    port.store_bytes(op.at, &vec![0; bytes]);
                }
                Kind::Commit => port.commit(),
                _ => port.work(op.work),
            }
        }
        if ops.iter().any(|op| op.kind == Kind::Commit) {
            sections.push((core, lines));
        }
        Progress::More
    }

    fn check(&self, _: &Space) -> Result<(), String> {
        self.inner.check(&self.own)
    }
}

/// Runs sections, one step of a random core at a time, and crashes now and then. Returns the crashes.
fn crash(name: &str, design: Name, setting: &Setting, threads: usize, seed: u64) -> usize {
    let place = format!("{name}, {design:?}, {threads} threads, seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let inner = made(name, 4000, threads, seed);
    let mut own = Space::new(inner.footprint_bytes());
    inner.fill(&mut own);
    let sections = Arc::new(Mutex::new(Vec::new()));
    let mut watched = Watched {
        inner,
        own,
        sections: Arc::clone(&sections),
        most: 60,
    };
    let mut space = Space::new(watched.footprint_bytes());
    let mut program = Sections::new(design, setting, &mut watched);
    let mut memory = Memory::new(design);
    let mut steps: Vec<VecDeque<Step>> = vec![VecDeque::new(); setting.cores + 1];
    // The sections of each core that are acknowledged, and the one under way: numbers from 1.
    let mut acknowledged = BTreeSet::new();
    let mut under_way = vec![None; setting.cores + 1];
    let mut crashes = 0;
    let mut idle = 0;
    while idle < 1000 {
        let core = if random.u8(..5) == 0 {
            setting.cores
        } else {
            random.usize(..threads)
        };
        if steps[core].is_empty() {
            let (_, new) = program.steps(core, &mut space);
            steps[core].extend(new);
            let all = sections.lock().unwrap();
            let last = all.iter().rposition(|(of, _)| *of == core);
            under_way[core] = last
                .map(|place| place + 1)
                .filter(|number| !acknowledged.contains(number));
        }
        let Some(step) = steps[core].pop_front() else {
            idle += 1;
            continue;
        };
        idle = 0;
        memory.step(core, &step, under_way[core].unwrap_or(0) as u64);
        if step == Step::Acknowledge {
            acknowledged.extend(under_way[core].take());
        }
        if random.u8(..20) == 0 {
            crashes += 1;
            let chance = [0.0, 0.5, 1.0][random.usize(..3)];
            let found = memory.clone().crash(|| random.f64() < chance);
            let all = sections.lock().unwrap();
            let mut expected: BTreeMap<u64, u64> = BTreeMap::new();
            for &number in &acknowledged {
                expected.extend(all[number - 1].1.iter().map(|&line| (line, number as u64)));
            }
            // A section under way is there with all its lines, or with none.
            for number in under_way.iter().flatten() {
                let lines = &all[number - 1].1;
                let there = lines
                    .iter()
                    .filter(|line| found.load(**line) == *number as u64)
                    .count();
                assert!(
                    [0, lines.len()].contains(&there),
                    "{place}: {there} lines of section {number}"
                );
                if there > 0 {
                    expected.extend(lines.iter().map(|&line| (line, *number as u64)));
                }
            }
            for (line, number) in expected {
                assert_eq!(found.load(line), number, "{place}: line {line}");
            }
        }
    }
    program.check(&space).unwrap();
    assert_eq!(program.counts().sections, 60, "{place}");
    crashes
}

#[test]
fn every_program_survives_crashes_with_every_design() {
    let seed = fastrand::u64(..);
    let setting = Setting {
        tlb_entries: 3,
        journal_bytes: 4096,
        ..Config::find("ssp").unwrap().setting
    };
    for name in PROGRAMS {
        for design in Name::ALL {
            for threads in [1, 4] {
                let crashes = crash(name, design, &setting, threads, seed);
                assert!(crashes > 20, "{name}: {crashes} crashes");
            }
            if design == Name::Ssp {
                // Most sections fall back, sub-pages are four lines.
                let other = Setting {
                    write_set_pages: 1,
                    sub_page_lines: 4,
                    ..setting
                };
                crash(name, design, &other, 4, seed);
            }
        }
    }
}

/// Sections a second of a program, and what the design did.
fn run(config: &Config, name: &str, design: Name) -> (f64, Counts) {
    let mut workload = made(name, 1 << 18, 1, 1);
    let mut program = Sections::new(design, &config.setting, &mut *workload).after(1000);
    let mut machine = Machine::new(config.hardware.clone(), None, &mut program);
    let counts = machine.run(1000, 1000).unwrap();
    machine.check().unwrap();
    drop(machine);
    (counts.per_second(), program.counts())
}

#[test]
fn a_smaller_tlb_consolidates_more_in_every_program() {
    let large = Config::find("ssp").unwrap();
    let mut small = large.clone();
    small.setting.tlb_entries = 8;
    for name in PROGRAMS {
        let share = |config| {
            let (_, counts) = run(config, name, Name::Ssp);
            counts.consolidation_writes as f64 / counts.writes() as f64
        };
        let (small, large) = (share(&small), share(&large));
        assert!(small > large, "{name}: {small} {large}");
    }
}

#[test]
fn a_slow_ssp_cache_hurts_swaps_more_than_a_tree_under_zipf() {
    let with = |cycles: u64| {
        let mut config = Config::find("ssp").unwrap();
        let fs = cycles * config.hardware.shape.cycle_fs;
        (config.setting.near_fs, config.setting.far_fs) = (fs, fs);
        config
    };
    let lost = |name| {
        let [fast, slow] = [20, 180].map(|cycles| run(&with(cycles), name, Name::Ssp).0);
        1.0 - slow / fast
    };
    let (swaps, tree) = (lost("sps"), lost("btree-zipf"));
    assert!(swaps > tree + 0.01, "{swaps} {tree}");
}

#[test]
fn code_between_sections_puts_a_redo_log_ahead_where_nvram_is_as_fast_as_dram() {
    let mut config = Config::find("ssp").unwrap();
    let memory = &mut config.hardware.memory;
    memory.timing.write_pulse = config.study.dram_fs.div_ceil(memory.cycle_fs);
    let [redo, ssp] = [Name::RedoLog, Name::Ssp].map(|design| {
        let mut workload = made("rbtree-rand", 1 << 15, 1, 1);
        let program = Sections::new(design, &config.setting, &mut *workload);
        let mut program = program.apart(5000);
        let mut machine = Machine::new(config.hardware.clone(), None, &mut program);
        let counts = machine.run(3000, 2000).unwrap();
        machine.check().unwrap();
        counts.per_second()
    });
    assert!(redo > ssp, "{redo} {ssp}");
}
