//! Random runs: epochs captured, made durable late, abandoned and captured again; a crash anywhere;
//! a rollback that is killed again and again; then the next life.

use crate::program::{Program, Random, sizes};
use crate::tree::Tree;
use crate::{MakeStage, Stage, killed_here};
use twinpage_process::files::{
    Durability, EpochFiles, Error, OpenFile, Options, Recorder, check, describe, rollback_watched,
};

/// A captured epoch.
struct Capture {
    tree: Tree,
    open: Vec<OpenFile>,
}

/// A program, its recorder, and every epoch that a crash may lead back to.
struct Run<'a> {
    stage: &'a Stage,
    program: Program,
    recorder: Recorder,
    durable: u64,
    captured: u64,
    /// The captures of epochs `durable` to `captured`.
    captures: Vec<Capture>,
    in_flight: Vec<EpochFiles>,
}

impl Run<'_> {
    fn begin(stage: &Stage, random: Random, options: Options, durable: u64) -> Run<'_> {
        let program = Program::new(&stage.root, random);
        let recorder = Recorder::create(&stage.state, options, durable).unwrap();
        let captures = vec![Capture {
            tree: Tree::of(&stage.root),
            open: Vec::new(),
        }];
        Run {
            stage,
            program,
            recorder,
            durable,
            captured: durable,
            captures,
            in_flight: Vec::new(),
        }
    }

    fn capture(&mut self) {
        let abandon = self.captured > self.durable && self.program.random.chance(4);
        if abandon {
            self.captures.pop();
            self.captured -= 1;
        }
        self.captured += 1;
        let (open, tree) = (
            self.program.open_files(&self.recorder),
            Tree::of(&self.stage.root),
        );
        let mut files = self
            .recorder
            .begin_epoch(self.captured, self.durable, sizes(&open))
            .unwrap();
        if abandon {
            files.take_over(self.in_flight.pop().unwrap());
        }
        self.captures.push(Capture { tree, open });
        self.in_flight.push(files);
    }

    fn make_durable(&mut self) {
        if self.captured > self.durable {
            self.in_flight.remove(0).sync_before_commit().unwrap();
            self.captures.remove(0);
            self.durable += 1;
        }
    }

    fn go(&mut self, steps: u64) {
        for _ in 0..steps {
            match self.program.random.below(24) {
                0 | 1 => self.capture(),
                2 | 3 => self.make_durable(),
                4 if self.captured > self.durable + 1 => self.make_durable(),
                // What belongs to an epoch is synced before it is durable; a crash may come between.
                5 if self.captured > self.durable => self.in_flight[0].sync_before_commit().unwrap(),
                _ => self.program.step(&mut self.recorder),
            }
        }
    }
}

/// Rolls back, killed after 0, 1, 2... of its steps until it comes through.
fn rollback_killed(stage: &Stage, durable: u64, open: &[OpenFile], random: &mut Random) -> u64 {
    let mut kills = 0;
    loop {
        let mut left = if random.chance(4) {
            u64::MAX
        } else {
            random.below(kills / 4 + 3)
        };
        let killed = rollback_watched(&stage.state, durable, open, &[], &mut |what| {
            left = left.checked_sub(1).ok_or_else(|| killed_here(what))?;
            Ok(())
        });
        match killed {
            Ok(_) => return kills,
            Err(Error::Poisoned(_)) => kills += 1,
            Err(error) => panic!("{error}"),
        }
    }
}

fn lives(stage: MakeStage, name: &str, options: Options, seeds: u64, kill_rollback: bool) {
    let seed = twinpage_campaign::seed();
    let seeds = std::env::var("TWINPAGE_ROUNDS").map_or(seeds, |text| text.parse().unwrap());
    let (mut done, mut refused, mut kills, mut records) = (0, 0, 0, 0);
    for round in 0..seeds {
        let seed = seed + round;
        let mut random = Random(seed);
        let stage = stage();
        Program::seed_tree(&stage.root, &mut random);
        let mut durable = random.below(3);
        for life in 0..4 {
            let mut run = Run::begin(&stage, Random(random.next()), options, durable);
            run.go(random.below(150));
            durable = run.durable;
            let Run {
                mut program,
                recorder,
                captures,
                ..
            } = run;
            records += recorder.describe().records;
            drop(recorder);
            program.close_all();
            (done, refused) = (done + program.done, refused + program.refused);
            assert_eq!(
                check(&stage.state, durable).unwrap(),
                [],
                "seed {seed} life {life}"
            );
            let target = &captures[0];
            if kill_rollback {
                kills += rollback_killed(&stage, durable, &target.open, &mut random);
            } else {
                rollback_watched(&stage.state, durable, &target.open, &[], &mut |_| Ok(())).unwrap();
            }
            let differences = target.tree.differences(&Tree::of(&stage.root));
            assert!(
                differences.is_empty(),
                "seed {seed} life {life}, epoch {durable}:\n{differences}"
            );
            let left = describe(&stage.state).unwrap();
            assert_eq!(
                (left.records, left.kept_files, left.rollback_begun),
                (0, 0, false)
            );
        }
    }
    println!("{name}: {done} changes, {refused} refused, {records} records, {kills} rollbacks killed");
    assert!(done > 0 && records > 0);
}

#[test]
fn random_runs_come_back() {
    lives(
        Stage::new,
        "random_runs_come_back",
        Options::new(Durability::Memory),
        60,
        false,
    );
}

#[test]
fn random_runs_come_back_from_killed_rollbacks() {
    let name = "random_runs_come_back_from_killed_rollbacks";
    lives(Stage::new, name, Options::new(Durability::Memory), 60, true);
}

#[test]
fn random_runs_come_back_with_kept_files_on_another_file_system() {
    let name = "random_runs_come_back_with_kept_files_on_another_file_system";
    lives(Stage::apart, name, Options::new(Durability::Memory), 60, true);
}

#[test]
fn random_runs_in_memory_come_back() {
    let name = "random_runs_in_memory_come_back";
    lives(
        Stage::in_memory,
        name,
        Options::new(Durability::Memory),
        100,
        true,
    );
}

#[test]
fn random_runs_come_back_under_disk_durability() {
    let name = "random_runs_come_back_under_disk_durability";
    for names_in_order in [false, true] {
        let options = Options {
            names_in_order: Some(names_in_order),
            ..Options::new(Durability::Disk)
        };
        lives(Stage::new, name, options, 30, true);
    }
}
