//! Sections on the machine whose power fails: every program, design and number of threads; and faults that the check finds.

use twinpage_campaign::either;
use twinpage_lab::config::Described;
use twinpage_lab::eval::ssp::single::{Single, programs};
use twinpage_lab::sections::power::{Fault, PowerCut, Recovery};
use twinpage_lab::sections::step::{Record, Step};
use twinpage_lab::sections::{Config, Name};
use twinpage_lab::workload::maps::{Maps, Program, Structure};
use twinpage_lab::{Kind, Workload};

const MICROSECOND_FS: u64 = 1_000_000_000;

fn ssp() -> Config {
    Config::find("ssp").unwrap()
}

#[test]
fn every_program_on_every_design_recovers_whole_sections() {
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut under_way, mut survived) = (0, 0);
    for program in programs() {
        for design in Name::ALL {
            let mut settings = vec![(1, false), (4, false), (4, true)];
            random.shuffle(&mut settings);
            settings.truncate(either(1, 3));
            for (threads, shared) in settings {
                let single = Single {
                    machine: "ssp".into(),
                    set: Vec::new(),
                    design,
                    program: program.into(),
                    threads,
                    shared: shared && program != "sps",
                    smaller: 64,
                    seed: random.u64(..),
                    crash_fs: Some(random.u64(1..60) * MICROSECOND_FS),
                };
                let report = single.run().unwrap_or_else(|why| panic!("seed {seed}: {why}"));
                let recovery = report.recovery.unwrap();
                assert!(recovery.consistent, "seed {seed}, {}: {recovery:?}", report.name);
                assert!(
                    recovery.acknowledged > 0 && recovery.lines > 0,
                    "seed {seed}: {recovery:?}"
                );
                under_way += recovery.under_way;
                survived += recovery.survived;
            }
        }
    }
    // The crashes hit sections, and what is left of one is now all of it, now nothing.
    assert!(
        survived > 0 && survived < 5 * under_way,
        "{survived} of {under_way}, seed {seed}"
    );
}

/// A red-black tree of four threads with a small TLB, whose power fails.
fn cut(design: Name, after_fs: u64, seed: u64, fault: Option<Fault>) -> Recovery {
    let mut config = ssp();
    config.setting.tlb_entries = 3;
    let program = Program {
        structure: Structure::RedBlack,
        node_bytes: 1024,
        zipf: false,
        keys: 4000,
        threads: 4,
        shared: false,
    };
    let mut workload: Box<dyn Workload> = Box::new(Maps::new(program, seed));
    let cut = PowerCut {
        design,
        hardware: &config.hardware,
        setting: &config.setting,
        warm_up: 20,
        sections: u64::MAX,
        after_fs,
        seed,
        fault,
    };
    cut.run(&mut *workload).unwrap().recovery
}

/// The check finds a fault in one of some runs at least, and nothing in the same runs without it.
fn is_found(design: Name, fault: Fault) {
    let runs = (0..30).map(|seed| (seed, (5 + seed) * MICROSECOND_FS));
    let mut found = 0;
    for (seed, after_fs) in runs {
        let whole = cut(design, after_fs, seed, None);
        assert!(whole.consistent, "{design:?}, seed {seed}: {whole:?}");
        found += usize::from(!cut(design, after_fs, seed, Some(fault)).consistent);
    }
    assert!(found > 0, "{design:?}");
}

/// Takes out each fence right before such a step.
fn remove_fences_before(steps: &mut Vec<Step>, is_such: impl Fn(&Step) -> bool) {
    let mut place = steps.len();
    while place > 1 {
        place -= 1;
        if is_such(&steps[place]) && steps[place - 1] == Step::Fence {
            steps.remove(place - 1);
        }
    }
}

fn is_record(step: &Step) -> bool {
    matches!(step, Step::Append(_, records) if !records.is_empty())
}

#[test]
fn a_journal_before_its_data_is_found() {
    is_found(Name::Ssp, |steps| remove_fences_before(steps, is_record));
}

#[test]
fn a_store_before_its_undo_entry_is_found() {
    is_found(Name::UndoLog, |steps| {
        remove_fences_before(
            steps,
            |step| matches!(step, Step::Own(op) if op.kind == Kind::Store),
        );
    });
}

#[test]
fn an_acknowledgement_before_the_redo_log_is_durable_is_found() {
    is_found(Name::RedoLog, |steps| {
        remove_fences_before(steps, |step| *step == Step::Acknowledge);
    });
}

#[test]
fn a_line_that_is_not_written_back_is_found() {
    is_found(Name::UndoLog, |steps| {
        let last = steps.iter().rposition(|step| matches!(step, Step::WriteBack(_)));
        last.map(|place| steps.remove(place));
    });
}

#[test]
fn a_record_that_is_not_in_the_redo_log_is_found() {
    is_found(Name::RedoLog, |steps| {
        for step in steps {
            if let Step::Append(_, records) = step
                && let [Record::New(_), .., Record::End(_)] = records[..]
            {
                records.remove(0);
                let last = records.len() - 1;
                records[last] = Record::End(last);
            }
        }
    });
}
