//! Failure-atomic sections (SSP): counts against small cases that are computed by hand, time on the machine, crashes
//! between any two steps, and faults that the crashes find.

use std::collections::BTreeMap;
use twinpage_lab::bus::Machine;
use twinpage_lab::config::Described;
use twinpage_lab::op::Op;
use twinpage_lab::sections::config::Setting;
use twinpage_lab::sections::crash::Memory;
use twinpage_lab::sections::step::{Record, Step};
use twinpage_lab::sections::{Config, Counts, Name, Sections};
use twinpage_lab::workload::swaps::Swaps;
use twinpage_lab::workload::{Progress, Workload};
use twinpage_lab::{Kind, Port, Space};

/// Sections of one core, each a list of lines to write.
struct Script(Vec<Vec<u64>>, usize);

impl Workload for Script {
    fn name(&self) -> &str {
        "a script"
    }

    fn footprint_bytes(&self) -> u64 {
        256 * 4096
    }

    fn fill(&self, _: &mut Space) {}

    fn run(&mut self, core: usize, port: &mut Port<'_>) -> Progress {
        let Some(lines) = self.0.get(self.1).filter(|_| core == 0) else {
            return Progress::Done;
        };
        for &line in lines {
            port.store(line * 64, self.1 as u64);
        }
        port.commit();
        self.1 += 1;
        Progress::More
    }

    fn check(&self, _: &Space) -> Result<(), String> {
        Ok(())
    }
}

fn ssp() -> Config {
    Config::find("ssp").unwrap()
}

/// One core's steps, with the background's after each section, and the counts.
fn steps(name: Name, setting: &Setting, sections: &[&[u64]]) -> (Vec<(usize, Step)>, Counts) {
    let mut script = Script(sections.iter().map(|lines| lines.to_vec()).collect(), 0);
    let mut space = Space::new(script.footprint_bytes());
    let mut program = Sections::new(name, setting, &mut script);
    let mut all = Vec::new();
    let mut is_over = false;
    while !is_over {
        // The background works once more after the last section.
        for core in [0, setting.cores] {
            let (progress, steps) = program.steps(core, &mut space);
            is_over |= progress == Progress::Done;
            all.extend(steps.into_iter().map(|step| (core, step)));
        }
    }
    program.check(&space).unwrap();
    (all, program.counts())
}

#[test]
fn a_small_case_is_counted_as_by_hand() {
    // Two pages, then one; line 1 is written twice in a section.
    let sections: &[&[u64]] = &[&[1, 2, 65, 1], &[1]];
    let setting = ssp().setting;
    let [undo, redo, ssp] = Name::ALL.map(|name| steps(name, &setting, sections).1);
    for counts in [undo, redo, ssp] {
        assert_eq!(
            (counts.sections, counts.lines, counts.pages, counts.most_pages),
            (2, 4, 3, 2)
        );
        assert_eq!((counts.data_writes, counts.tlb_misses), (4, 2));
        assert_eq!((counts.consolidations, counts.consolidation_writes), (0, 0));
    }
    // An entry of two lines for each line, an end of one for each section.
    assert_eq!(undo.log_writes, 4 * 2 + 2);
    // 3 entries of 72 bytes and 8 bytes: 224 bytes, four lines; one and 8 bytes: 80 bytes, two lines.
    assert_eq!(redo.log_writes, 4 + 2);
    // 32 bytes of records, then 16: each section flushes the line it writes.
    assert_eq!(ssp.log_writes, 2);
    assert_eq!((ssp.flips, ssp.far_entries), (4, 2));
}

#[test]
fn a_line_alternates_between_its_two_pages() {
    let (steps, _) = steps(Name::Ssp, &ssp().setting, &[&[3], &[3, 3], &[3]]);
    let remaps: Vec<_> = steps
        .iter()
        .filter_map(|(_, step)| match step {
            Step::Remap(old, new) => Some((*old, *new)),
            _ => None,
        })
        .collect();
    let extra = 256 * 64 + 3;
    assert_eq!(remaps, [(3, extra), (extra, 3), (3, extra)]);
}

#[test]
fn the_lesser_side_is_copied_when_the_last_tlb_gives_the_page_up() {
    let setting = Setting {
        tlb_entries: 1,
        ..ssp().setting
    };
    let copies = |written: u64| {
        let first: Vec<u64> = (0..written).collect();
        let (steps, counts) = steps(Name::Ssp, &setting, &[&first, &[64]]);
        assert_eq!(counts.consolidations, 1);
        let copies = steps.iter().filter_map(|(core, step)| match step {
            Step::Copy(from, to) => Some((*core, *from, *to)),
            _ => None,
        });
        copies.collect::<Vec<_>>()
    };
    let (background, second) = (setting.cores, 256 * 64);
    // Three lines in the second page: they go back to the first.
    let few = (0..3).map(|line| (background, second + line, line));
    assert_eq!(copies(3), few.collect::<Vec<_>>());
    // 62 lines there: the other two follow them.
    let many = (62..64).map(|line| (background, line, second + line));
    assert_eq!(copies(62), many.collect::<Vec<_>>());
}

/// The attempt is taken back: nothing of it is committed by the journal. Then each line is logged before its store.
#[test]
fn a_section_larger_than_the_write_set_buffer_falls_back() {
    let setting = ssp().setting;
    let large: Vec<u64> = (0..=setting.write_set_pages as u64)
        .map(|page| page * 64)
        .collect();
    let (steps, counts) = steps(Name::Ssp, &setting, &[&large, &[0]]);
    let lines = large.len() as u64;
    assert_eq!(
        (counts.fallbacks, counts.sections, counts.lines),
        (1, 2, lines + 1)
    );
    // 64 flips and 64 back, then one of the section after it; an entry of two lines each, an end, and a record.
    assert_eq!(counts.flips, 2 * (lines - 1) + 1);
    assert_eq!(counts.log_writes, 2 * lines + 1 + 1);
    assert_eq!(counts.data_writes, lines + 1);
    let records: Vec<_> = steps
        .iter()
        .filter_map(|(_, step)| match step {
            Step::Append(_, records) => Some(records.as_slice()),
            _ => None,
        })
        .flatten()
        .collect();
    let old = large.iter().map(|line| Record::Old(*line));
    let expected: Vec<Record> = old.chain([Record::End(large.len())]).collect();
    assert!(
        expected.iter().eq(records[..expected.len()].iter().copied()),
        "{records:?}"
    );
    let last = records.last().unwrap();
    assert!(matches!(last, Record::Pages(pages) if pages.len() == 1 && pages[0].moved == Some(1)));
}

/// A store to one line of a sub-page moves all of its lines, and the section writes them all back.
#[test]
fn a_sub_page_moves_as_a_whole() {
    let setting = Setting {
        sub_page_lines: 4,
        ..ssp().setting
    };
    let (steps, counts) = steps(Name::Ssp, &setting, &[&[5, 6], &[66]]);
    assert_eq!((counts.lines, counts.flips, counts.data_writes), (3, 2, 8));
    let moved = steps.iter().filter_map(|(_, step)| match step {
        Step::Remap(old, new) => Some((*old, *new)),
        _ => None,
    });
    let [first, second] = [256 * 64, 257 * 64];
    let expected = (4..8).map(|line| (line, first + line));
    let expected = expected.chain((64..68).map(|line| (line, second + line - 64)));
    assert_eq!(moved.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}

/// Each first store makes other cores drop the page and costs them time; the page is walked again.
#[test]
fn a_shoot_down_costs_the_other_cores() {
    let plain = ssp().setting;
    let shooting = Setting {
        flip_fs: 2_000_000_000,
        interrupt_fs: 1_000_000_000,
        ..plain
    };
    let run = |setting: &Setting| {
        let mut swaps = Swaps::new(1 << 12, 4, 1);
        let mut space = Space::new(swaps.footprint_bytes());
        swaps.fill(&mut space);
        let mut program = Sections::new(Name::Ssp, setting, &mut swaps);
        let mut waited = 0;
        for turn in 0..400 {
            let (_, steps) = program.steps(turn % 4, &mut space);
            let waits = steps.iter().filter(|step| **step == Step::Wait(1_000_000_000));
            waited += waits.count();
            waited += usize::from(matches!(steps.first(), Some(Step::Wait(fs)) if *fs > 1_000_000_000));
        }
        program.check(&space).unwrap();
        (program.counts(), waited)
    };
    let ((plain, none), (shooting, waited)) = (run(&plain), run(&shooting));
    assert_eq!(none, 0);
    assert!(waited > 300, "{waited}");
    assert!(
        shooting.tlb_misses > 10 * plain.tlb_misses,
        "{shooting:?} {plain:?}"
    );
}

/// With slots to spare nothing is consolidated; without, as much as is needed.
#[test]
fn lazy_consolidation_waits_until_slots_are_short() {
    let setting = Setting {
        cores: 1,
        tlb_entries: 2,
        spare_slots: 64,
        ..ssp().setting
    };
    let consolidations = |pages: u64, lazy: bool| {
        let sections: Vec<Vec<u64>> = (0..2 * pages).map(|number| vec![number % pages * 64]).collect();
        let sections: Vec<&[u64]> = sections.iter().map(Vec::as_slice).collect();
        let (_, counts) = steps(Name::Ssp, &Setting { lazy, ..setting }, &sections);
        assert_eq!(counts.slots_added, 0, "{pages} pages");
        counts.consolidations
    };
    assert!(consolidations(20, false) > 20);
    assert_eq!(consolidations(20, true), 0);
    let (eager, lazy) = (consolidations(200, false), consolidations(200, true));
    assert!(0 < lazy && lazy < eager, "{lazy} {eager}");
}

/// A page is queued for consolidation, used again so that all its lines are back in the first page, and left: it keeps its
/// slot as long as the queue names it.
#[test]
fn a_queued_page_keeps_its_slot() {
    let setting = Setting {
        cores: 1,
        tlb_entries: 1,
        spare_slots: 1,
        ..ssp().setting
    };
    let sections = [0, 64, 0, 64, 128, 192].map(|line| vec![line]).to_vec();
    let number = sections.len();
    let mut script = Script(sections, 0);
    let mut space = Space::new(script.footprint_bytes());
    let mut program = Sections::new(Name::Ssp, &setting, &mut script);
    for _ in 0..number {
        assert_eq!(program.steps(0, &mut space).0, Progress::More);
    }
    while program.steps(1, &mut space).0 == Progress::More {}
    program.check(&space).unwrap();
    assert!(program.counts().consolidations > 0);
}

/// A page without an entry takes a slot, and slots lie in the last cache: however many pages there are, only the first use
/// of a slot fetches it from memory.
#[test]
fn slots_of_the_ssp_cache_are_far_once() {
    let setting = Setting {
        cores: 1,
        tlb_entries: 2,
        spare_slots: 4,
        near_entries: 16,
        ..ssp().setting
    };
    let far = |near_entries: usize| {
        let sections: Vec<Vec<u64>> = (0..300).map(|number| vec![number % 100 * 64]).collect();
        let sections: Vec<&[u64]> = sections.iter().map(Vec::as_slice).collect();
        let (_, counts) = steps(
            Name::Ssp,
            &Setting {
                near_entries,
                ..setting
            },
            &sections,
        );
        assert_eq!((counts.tlb_misses, counts.slots_added), (300, 0));
        counts.far_entries
    };
    assert!(far(16) <= 6, "{} slots", far(16));
    assert!(far(1) > 100, "a last cache with room for one: {}", far(1));
}

/// What every line holds after whole sections: the number of the last that wrote it.
fn after(sections: &[&[u64]], whole: usize) -> BTreeMap<u64, u64> {
    let numbered = sections[..whole].iter().zip(1..);
    numbered
        .flat_map(|(lines, number)| lines.iter().map(move |&line| (line, number)))
        .collect()
}

/// Crashes between any two steps, several times each: whole sections are there, all that were acknowledged. `Err` says
/// where they are not.
fn crash_everywhere(
    name: Name,
    steps: &[(usize, Step)],
    sections: &[&[u64]],
    seed: u64,
) -> Result<(), String> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut memory = Memory::new(name);
    let mut acknowledged = 0;
    for (place, (core, step)) in steps.iter().enumerate() {
        memory.step(*core, step, acknowledged as u64 + 1);
        acknowledged += usize::from(*step == Step::Acknowledge);
        for chance in [0.0, 0.3, 0.5, 0.7, 1.0] {
            let found = memory.clone().crash(|| random.f64() < chance);
            let is = |whole: usize| {
                let expected = after(sections, whole);
                (0..256 * 64).all(|line| found.load(line) == expected.get(&line).copied().unwrap_or(0))
            };
            if !is(acknowledged) && (acknowledged == sections.len() || !is(acknowledged + 1)) {
                return Err(format!(
                    "{name:?}, seed {seed}: after step {place}, {step:?}, not whole sections ({acknowledged} acknowledged)"
                ));
            }
        }
    }
    Ok(())
}

/// Sections over few pages, and a TLB so small that pages are consolidated again and again.
fn random_sections(seed: u64) -> (Setting, Vec<Vec<u64>>) {
    let mut random = fastrand::Rng::with_seed(seed);
    let setting = Setting {
        tlb_entries: 2,
        journal_bytes: 4096,
        ..ssp().setting
    };
    let mut section = || {
        let lines = random.usize(1..12);
        (0..lines)
            .map(|_| random.u64(..5) * 64 + random.u64(..4))
            .collect()
    };
    (setting, (0..20).map(|_| section()).collect())
}

#[test]
fn whole_sections_survive_a_crash_anywhere() {
    let seed = fastrand::u64(..);
    let (setting, sections) = random_sections(seed);
    let sections: Vec<&[u64]> = sections.iter().map(Vec::as_slice).collect();
    let small = Setting {
        write_set_pages: 2,
        ..setting
    };
    let large = Setting {
        sub_page_lines: 4,
        ..setting
    };
    let lazy = Setting {
        lazy: true,
        spare_slots: 1,
        cores: 1,
        ..setting
    };
    for (variant, falls_back) in [(small, true), (large, false), (lazy, false)] {
        let (steps, counts) = steps(Name::Ssp, &variant, &sections);
        assert_eq!(counts.fallbacks > 0, falls_back, "seed {seed}");
        crash_everywhere(Name::Ssp, &steps, &sections, seed).unwrap();
    }
    for name in Name::ALL {
        let (steps, counts) = steps(name, &setting, &sections);
        assert_eq!(counts.consolidations > 0, name == Name::Ssp, "seed {seed}");
        crash_everywhere(name, &steps, &sections, seed).unwrap();
    }
}

/// The crashes find a fault in the steps, in one of some random programs at least.
fn is_found(name: Name, fault: impl Fn(&mut Vec<(usize, Step)>)) {
    is_found_with(name, 64, fault);
}

/// The same, with a write-set buffer of that many pages.
fn is_found_with(name: Name, write_set_pages: usize, fault: impl Fn(&mut Vec<(usize, Step)>)) {
    let is_found = (0..10).any(|seed| {
        let (setting, sections) = random_sections(seed);
        let setting = Setting {
            write_set_pages,
            ..setting
        };
        let sections: Vec<&[u64]> = sections.iter().map(Vec::as_slice).collect();
        let (mut steps, _) = steps(name, &setting, &sections);
        fault(&mut steps);
        crash_everywhere(name, &steps, &sections, seed).is_err()
    });
    assert!(is_found, "{name:?}");
}

/// Takes out each fence right before such a step; there is one at least.
fn remove_fences_before(steps: &mut Vec<(usize, Step)>, is_such: impl Fn(&Step) -> bool) {
    let fences: Vec<usize> = (1..steps.len())
        .filter(|&place| steps[place - 1].1 == Step::Fence && is_such(&steps[place].1))
        .map(|place| place - 1)
        .collect();
    assert!(!fences.is_empty());
    let from_the_end = fences.into_iter().rev();
    from_the_end.for_each(|place| drop(steps.remove(place)));
}

#[test]
fn metadata_before_data_is_found() {
    // Figure 2's order the other way round: the fence between data and journal is not there.
    is_found(Name::Ssp, |steps| {
        let journal = |step: &Step| matches!(step, Step::Append(_, records) if !records.is_empty());
        remove_fences_before(steps, journal);
    });
}

#[test]
fn a_line_left_out_is_found() {
    for name in [Name::UndoLog, Name::Ssp] {
        is_found(name, |steps| {
            let place = steps
                .iter()
                .position(|(_, step)| matches!(step, Step::WriteBack(_)));
            steps.remove(place.unwrap());
        });
    }
    is_found(Name::RedoLog, |steps| {
        let records = steps.iter_mut().find_map(|(_, step)| match step {
            Step::Append(_, records) if records.len() > 2 => Some(records),
            _ => None,
        });
        let records = records.unwrap();
        records.remove(0);
        let last = records.len() - 1;
        records[last] = Record::End(last);
    });
}

#[test]
fn a_line_that_is_not_copied_at_consolidation_is_found() {
    is_found(Name::Ssp, |steps| {
        let place = steps.iter().position(|(_, step)| matches!(step, Step::Copy(..)));
        steps.remove(place.unwrap());
    });
}

#[test]
fn a_store_before_its_undo_entry_is_durable_is_found() {
    is_found(Name::UndoLog, |steps| {
        let is_store = |step: &Step| matches!(step, Step::Own(op) if op.kind == Kind::Store);
        remove_fences_before(steps, is_store);
    });
}

#[test]
fn a_fall_back_store_before_its_entry_is_durable_is_found() {
    is_found_with(Name::Ssp, 1, |steps| {
        let is_store = |step: &Step| matches!(step, Step::Own(op) if op.kind == Kind::Store);
        remove_fences_before(steps, is_store);
    });
}

/// Swaps on the machine: what the machine counted, and what the design did.
fn swaps(name: Name, config: &Config, threads: usize) -> (twinpage_lab::bus::Counts, Counts) {
    let mut workload = Swaps::new(1 << 16, threads, 1);
    let mut program = Sections::new(name, &config.setting, &mut workload);
    let mut machine = Machine::new(config.hardware.clone(), None, &mut program);
    let counts = machine.run(200, 2000).unwrap();
    machine.check().unwrap();
    drop(machine);
    (counts, program.counts())
}

#[test]
fn designs_take_time_on_the_machine() {
    let config = ssp();
    for threads in [1, 4] {
        let [undo, redo, ssp] = Name::ALL.map(|name| swaps(name, &config, threads));
        for (machine, design) in [undo, redo, ssp] {
            assert_eq!(machine.transactions, 2000);
            // The machine writes what the design says, but for what was under way at either end.
            let writes = design.data_writes
                + design.log_writes
                + design.consolidation_writes
                + design.checkpoint_writes;
            let each = writes as f64 / design.sections as f64;
            let counted = machine.writes as f64 / 2000.0;
            assert!((counted / each - 1.0).abs() < 0.1, "{each} {counted}");
        }
        // A swap waits for its two log entries and its data with an undo log; with a redo log for its entries alone.
        assert!(undo.0.time_fs > redo.0.time_fs, "{threads} threads");
        assert!(ssp.1.consolidations > 0);
        assert_eq!(ssp.1.flips, ssp.1.lines);
        assert!(ssp.1.log_writes < redo.1.log_writes && redo.1.log_writes < undo.1.log_writes);
    }
}

#[test]
fn a_smaller_tlb_consolidates_more() {
    let large = ssp();
    let mut small = large.clone();
    small.setting.tlb_entries = 8;
    let [large, small] = [large, small].map(|config| {
        let mut config = config;
        config.hardware.durable = twinpage_lab::bus::config::DurableIn::Queue;
        swaps(Name::Ssp, &config, 1).1
    });
    let share = |counts: &Counts| counts.consolidation_writes as f64 / counts.data_writes as f64;
    assert!(
        share(&small) > share(&large),
        "{} {}",
        share(&small),
        share(&large)
    );
}

/// A line of a log is written whole: when a core waits for its own entry, those of others in the line are durable too.
#[test]
fn a_durable_line_of_a_log_brings_what_is_in_it() {
    let mut memory = Memory::new(Name::RedoLog);
    for core in 0..2 {
        let line = core as u64 + 1;
        let store = Op {
            at: line * 64,
            work: 0,
            bytes: 8,
            kind: Kind::Store,
            behind: 0,
        };
        memory.step(core, &Step::Own(store), 7);
        let records = vec![Record::New(line), Record::End(1)];
        memory.step(core, &Step::Append(100, records), 7);
    }
    let first = |memory: &Memory| memory.clone().crash(|| false).load(1);
    assert_eq!(first(&memory), 0);
    memory.step(1, &Step::Fence, 7);
    assert_eq!(first(&memory), 7);
}
