//! Threads with names: a deterministic program that is killed and started again ends as one that was not disturbed.
//!
//! A kill is a real one. `TWINPAGE_LONG` makes it many; the seed that is printed repeats the choices of a failure.

// The methods of an object are public: its handle is for others.
#![allow(unreachable_pub)]

use crate::support::{again, folders, when_free};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;
use twinpage::collections::Vec as List;
use twinpage::{Error, Persist, Region, Update, thread};

const ROLE: &str = "TWINPAGE_TEST_THREADS";
const FILE: &str = "TWINPAGE_TEST_REGION";
const WORKERS: u64 = 4;
const STEPS: u64 = 60;

#[derive(Persist)]
struct Row {
    calls: u64,
    hash: u64,
}

#[derive(Persist)]
struct Work<'r> {
    rows: List<'r, Row>,
    total: u64,
}

fn mixed(hash: u64, number: u64) -> u64 {
    (hash ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(9)
}

#[twinpage::object]
impl<'r> Work<'r> {
    fn new_in(u: &Update<'r>, rows: u64) -> Work<'r> {
        let row = |_| Row { calls: 0, hash: 0 };
        Work {
            rows: u.collect((0..rows).map(row)),
            total: 0,
        }
    }

    #[lane(rows)]
    pub fn add(row: &mut Row, number: u64) {
        row.calls += 1;
        row.hash = mixed(row.hash, number);
    }

    pub fn add_to_total(&mut self, number: u64) {
        self.total = self.total.wrapping_add(number);
    }

    #[instant]
    #[lane(rows)]
    pub fn bump(row: &mut Row, number: u64) -> (u64, String) {
        row.calls += 1;
        row.hash = mixed(row.hash, number);
        (row.hash, format!("{} calls", row.calls))
    }

    pub fn refuse(&mut self, number: u64) -> u64 {
        self.total = self.total.wrapping_add(number);
        panic!("{number} is refused")
    }

    pub fn row(&self, row: usize) -> (u64, u64) {
        (self.rows[row].calls, self.rows[row].hash)
    }

    pub fn all(&self) -> (Vec<(u64, u64)>, u64) {
        (
            self.rows.iter().map(|row| (row.calls, row.hash)).collect(),
            self.total,
        )
    }
}

fn open(path: &Path) -> (Region, WorkHandle) {
    let region = when_free(|| Region::options().every(Duration::from_millis(2)).open(path));
    let work = region
        .object::<Work>("work", |u| Work::new_in(u, WORKERS))
        .unwrap();
    (region, work)
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).unwrap();
}

/// What a worker does: what it calls next hangs on what its instant calls returned.
fn work(handle: &WorkHandle, worker: u64) {
    let (lane, mut number) = (worker as usize, worker);
    for step in 0..STEPS {
        for more in 0..number % 7 {
            handle.add(lane, number.wrapping_add(more));
            handle.add_to_total(more);
        }
        match number % 3 {
            0 => number = handle.bump(lane, step).unwrap().0,
            1 => number = mixed(handle.row(lane).unwrap().1, step),
            _ => match handle.refuse(step) {
                Err(Error::Panicked { why, .. }) => number = mixed(number, why.len() as u64),
                other => panic!("{other:?}"),
            },
        }
        say(&format!("step {step} of worker {worker}"));
    }
}

/// The object after all workers, one after the other: they share nothing but a sum.
fn expected() -> (Vec<(u64, u64)>, u64) {
    let (mut rows, mut total) = (Vec::new(), 0_u64);
    for worker in 0..WORKERS {
        let (mut calls, mut hash, mut number) = (0, 0, worker);
        for step in 0..STEPS {
            for more in 0..number % 7 {
                (calls, hash) = (calls + 1, mixed(hash, number.wrapping_add(more)));
                total = total.wrapping_add(more);
            }
            match number % 3 {
                0 => {
                    (calls, hash) = (calls + 1, mixed(hash, step));
                    number = hash;
                }
                1 => number = mixed(hash, step),
                _ => {
                    total = total.wrapping_add(step);
                    number = mixed(number, format!("{step} is refused").len() as u64);
                }
            }
        }
        rows.push((calls, hash));
    }
    (rows, total)
}

/// The program: from its beginning to its end, whatever of it happened already.
fn program(path: &Path) {
    std::panic::set_hook(Box::new(|_| ()));
    let (_region, handle) = open(path);
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let handle = handle.clone();
            thread::spawn(format!("worker-{worker}"), move || work(&handle, worker))
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
    thread::named("main", || handle.sync().unwrap());
    say("ended");
    std::thread::park();
}

fn child(test: &str, path: &Path) -> Child {
    again(module_path!(), test)
        .env(ROLE, "program")
        .env(FILE, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn role() -> Option<PathBuf> {
    std::env::var_os(ROLE)?;
    Some(std::env::var_os(FILE)?.into())
}

/// Runs the program until it ends or has said that many lines, and kills it. Whether it had ended.
fn life(test: &str, path: &Path, lines: u64) -> bool {
    let mut child = child(test, path);
    let mut said = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let mut has_ended = false;
    for _ in 0..lines {
        let line = said.next().expect("the program failed");
        has_ended = line.ends_with("ended");
        if has_ended {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    has_ended
}

#[test]
fn a_program_that_is_killed_and_started_again_ends_as_an_undisturbed_one() {
    const NAME: &str = "a_program_that_is_killed_and_started_again_ends_as_an_undisturbed_one";
    if let Some(path) = role() {
        return program(&path);
    }
    let rounds = twinpage_campaign::either(2, 300);
    let mut random = twinpage_campaign::random();
    let expected = expected();
    for folder in folders() {
        let undisturbed = folder.path().join("undisturbed.twin");
        assert!(life(NAME, &undisturbed, u64::MAX));
        assert_eq!(open(&undisturbed).1.all().unwrap(), expected);
        for round in 0..rounds {
            let path = folder.path().join(format!("{round}.twin"));
            let mut lives = 1;
            // Steps that survived are said again, and the harness says some lines of its own.
            while !life(NAME, &path, random.u64(4..WORKERS * STEPS * 3 / 2)) || lives < 3 {
                lives += 1;
            }
            let (region, handle) = open(&path);
            assert_eq!(handle.all().unwrap(), expected, "round {round}, {lives} lives");
            assert!(region.check().unwrap().is_sound());
            // A close ends the run: nothing is kept of its threads.
            region.close().unwrap();
            let (_region, handle) = open(&path);
            let total = expected.1;
            thread::named("worker-0", || handle.add_to_total(1));
            assert_eq!(handle.all().unwrap().1, total.wrapping_add(1));
        }
    }
}

#[test]
fn a_program_that_goes_another_way_is_refused() {
    const NAME: &str = "a_program_that_goes_another_way_is_refused";
    if let Some(path) = role() {
        let (_region, handle) = open(&path);
        thread::named("worker", || {
            handle.add(1, 7);
            handle.bump(1, 8).unwrap();
        });
        say("ended");
        std::thread::park();
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("work.twin");
    assert!(life(NAME, &path, u64::MAX));
    let (_region, handle) = open(&path);
    let first = thread::named("worker", || {
        handle.add(1, 7);
        handle.bump(1, 8).unwrap()
    });
    assert_eq!(first, (mixed(mixed(0, 7), 8), "2 calls".to_owned()));
    assert_eq!(handle.row(1).unwrap().0, 2, "they were not made again");
    // The thread goes on in the same life; another one is new.
    thread::named("worker", || assert_eq!(handle.bump(1, 9).unwrap().1, "3 calls"));
    thread::named("other", || assert_eq!(handle.bump(1, 9).unwrap().1, "4 calls"));
    drop((handle, _region));

    assert!(life(NAME, &folder.path().join("other.twin"), u64::MAX));
    let (_region, handle) = open(&folder.path().join("other.twin"));
    let refused = thread::named("worker", || {
        handle.add(1, 70);
        handle.bump(1, 8).unwrap();
        handle.bump(1, 9).unwrap_err().to_string()
    });
    assert!(
        refused.contains("\"worker\"") && refused.contains("not deterministic"),
        "{refused}"
    );
    assert_eq!(handle.row(1).unwrap().0, 2);
}

#[test]
fn a_name_is_of_one_thread_at_a_time() {
    let twice = std::panic::catch_unwind(|| thread::named("one", || thread::named("one", || ())));
    let why = *twice.unwrap_err().downcast::<String>().unwrap();
    assert!(why.contains("\"one\" runs already"), "{why}");
    thread::named("one", || ());
    assert!(thread::spawn("two\nlines", || ()).join().is_err());
}
