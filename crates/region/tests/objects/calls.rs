//! Persistent objects: what is deferred and what is not, what a kill leaves, and what is refused.
//!
//! A kill is a real one, of a child that says what was acknowledged to it. `TWINPAGE_LONG` makes it many.

// The methods of an object are public: its handle is for others.
#![allow(unreachable_pub)]

use crate::support::{again, flushes, folders, name, when_free};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;
use twinpage::collections::Vec as List;
use twinpage::{Error, Heap, Persist, Region, Update};

const ROLE: &str = "TWINPAGE_TEST_OBJECTS";
const FILE: &str = "TWINPAGE_TEST_REGION";
const THREADS: usize = 4;

/// What the methods called [`Rows::slow`] wait for.
static GATE: (Mutex<bool>, Condvar) = (Mutex::new(true), Condvar::new());
static SLOW: AtomicU64 = AtomicU64::new(0);

fn set_gate(open: bool) {
    *GATE.0.lock().unwrap() = open;
    GATE.1.notify_all();
}

#[derive(Persist)]
struct Row {
    calls: u64,
    hash: u64,
}

impl Row {
    fn mix(&mut self, number: u64) {
        self.calls += 1;
        self.hash = (self.hash ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[derive(Persist)]
struct Rows<'r> {
    rows: List<'r, Row>,
    names: List<'r, twinpage::collections::String<'r>>,
}

#[twinpage::object]
impl<'r> Rows<'r> {
    fn new_in(u: &Update<'r>, rows: usize) -> Rows<'r> {
        let row = |_| Row { calls: 0, hash: 0 };
        Rows {
            rows: u.collect((0..rows).map(row)),
            names: List::new_in(u.heap()),
        }
    }

    /// A lane.
    #[lane(rows)]
    pub fn add(row: &mut Row, number: u64) {
        row.mix(number);
    }

    /// All of it.
    pub fn add_all(&mut self, number: u64) {
        self.rows.iter_mut().for_each(|row| row.mix(number));
    }

    pub fn name(&mut self, heap: Heap<'r>, name: String, times: Option<u8>) {
        for _ in 0..times.unwrap_or(1) {
            self.names
                .push(twinpage::collections::String::from_in(&name, heap));
        }
    }

    #[deferrable]
    pub fn slow(&mut self) {
        SLOW.fetch_add(1, Ordering::SeqCst);
        let closed = GATE.0.lock().unwrap();
        drop(GATE.1.wait_while(closed, |open| !*open).unwrap());
        self.rows[0].calls += 1;
    }

    #[deferrable]
    pub fn add_slowly(&mut self, row: usize, number: u64) {
        SLOW.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(10));
        self.rows[row].mix(number);
    }

    pub fn spoil(&mut self, row: usize) {
        self.rows[row].calls += 100;
        panic!("row {row} is spoilt");
    }

    /// Changes and answers.
    pub fn bump(&mut self, row: usize, number: u64) -> u64 {
        self.rows[row].mix(number);
        self.rows[row].calls
    }

    #[lane(rows)]
    pub fn bump_lane(row: &mut Row) -> u64 {
        row.calls += 1;
        row.calls
    }

    // The same as `&mut self`, which the macro must see.
    #[instant]
    #[expect(clippy::needless_arbitrary_self_type)]
    pub fn clear(self: &mut Self) {
        self.names.clear();
    }

    pub fn row(&self, row: usize) -> (u64, u64) {
        (self.rows[row].calls, self.rows[row].hash)
    }

    pub fn names(&self) -> Vec<String> {
        self.names.iter().map(|name| name.as_str().to_owned()).collect()
    }
}

fn open(path: &Path) -> Region {
    when_free(|| Region::open(path))
}

fn rows(region: &Region) -> RowsHandle {
    region
        .object::<Rows>("rows", |u| Rows::new_in(u, THREADS))
        .unwrap()
}

fn log_of(path: &Path) -> std::path::PathBuf {
    path.with_file_name(format!("{}.log", path.file_name().unwrap().to_str().unwrap()))
}

/// Another process, in a role.
fn child(test: &str, role: &str, path: &Path) -> Child {
    again(module_path!(), test)
        .env(ROLE, role)
        .env(FILE, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The role this process was started for, and its file.
fn role() -> Option<(String, std::path::PathBuf)> {
    Some((std::env::var(ROLE).ok()?, std::env::var_os(FILE)?.into()))
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").unwrap();
    out.flush().unwrap();
}

/// Lets a child run until it says a line, and kills it.
fn kill_after(mut child: Child, line: &str) {
    let said = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    assert!(
        said.into_iter().any(|said| said.ends_with(line)),
        "the child never said {line:?}"
    );
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn calls_run_in_order_and_survive_a_close() {
    for folder in folders() {
        let path = folder.path().join("rows.twin");
        let region = open(&path);
        let handle = rows(&region);
        handle.add(2, 7);
        handle.add_all(9);
        handle.name("Ada".to_owned(), Some(2));
        assert_eq!(handle.bump(2, 1).unwrap(), 3);
        assert_eq!(handle.bump_lane(2).unwrap(), 4);
        let mut expected = Row { calls: 0, hash: 0 };
        [7, 9, 1].iter().for_each(|&number| expected.mix(number));
        assert_eq!(handle.row(2).unwrap(), (4, expected.hash));
        handle.name("Grace".to_owned(), None);
        assert!(log_of(&path).exists());
        // What waits is run by the close.
        region.close().unwrap();
        assert!(!log_of(&path).exists(), "a clean close leaves no log");
        assert!(matches!(handle.row(2), Err(Error::Invalid(why)) if why.contains("closed")));

        let region = open(&path);
        let handle = rows(&region);
        assert_eq!(handle.row(2).unwrap(), (4, expected.hash));
        assert_eq!(handle.names().unwrap(), ["Ada", "Ada", "Grace"]);
        handle.clear().unwrap();
        assert!(handle.names().unwrap().is_empty());
        assert!(region.check().unwrap().is_sound());
    }
}

#[test]
fn deferrable_calls_return_before_any_of_them_runs() {
    const NAME: &str = "deferrable_calls_return_before_any_of_them_runs";
    // A process of its own: other tests run methods that wait at the gate, too.
    let Some((_, path)) = role() else {
        let folder = tempfile::tempdir().unwrap();
        let ended = child(NAME, "gate", &folder.path().join("rows.twin"))
            .wait()
            .unwrap();
        assert!(ended.success(), "{ended}");
        return;
    };
    let region = open(&path);
    let handle = rows(&region);
    set_gate(false);
    (0..1000).for_each(|_| handle.slow());
    // They have all returned, and none can have run: the gate is closed.
    if SLOW.load(Ordering::SeqCst) != 0 {
        // Not a panic: what waits at the gate would never end.
        std::process::exit(3);
    }
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| handle.row(0).unwrap());
        while SLOW.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        let is_early = waiting.is_finished();
        set_gate(true);
        assert!(!is_early, "an instant call waits for those before it");
        assert_eq!(waiting.join().unwrap().0, 1000);
    });
    assert_eq!(SLOW.load(Ordering::SeqCst), 1000);
}

#[test]
fn a_thousand_deferrable_calls_and_an_instant_one_make_one_flush() {
    const NAME: &str = "a_thousand_deferrable_calls_and_an_instant_one_make_one_flush";
    if let Some((_, path)) = role() {
        let region = open(&path);
        let handle = rows(&region);
        handle.sync().unwrap();
        say("from here");
        (0..1000).for_each(|number| handle.add(1, number));
        handle.bump(1, 7).unwrap();
        say("to here");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rows.twin");
    let Some(flushes) = flushes(
        &name(module_path!(), NAME),
        &[(ROLE, "count".as_ref()), (FILE, file.as_os_str())],
    ) else {
        return;
    };
    // The thousandth call makes a checkpoint due, which comes after the answer is durable.
    let of_log = flushes
        .first()
        .map(|line| line.split("sync(").nth(1).unwrap_or_default());
    let same = flushes
        .iter()
        .filter(|line| line.split("sync(").nth(1) == of_log)
        .count();
    assert_eq!(same, 1, "{flushes:?}");
}

#[test]
fn what_was_committed_is_run_though_the_process_died_before_it_was() {
    const NAME: &str = "what_was_committed_is_run_though_the_process_died_before_it_was";
    if let Some((_, path)) = role() {
        let region = open(&path);
        let handle = rows(&region);
        handle.add_all(5);
        handle.sync().unwrap();
        set_gate(false);
        handle.slow();
        handle.add(3, 6);
        std::thread::scope(|scope| {
            scope.spawn(|| handle.bump(3, 7));
            while SLOW.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            // The group is durable, and the first call of it is running.
            say("killed here");
        });
        return;
    }
    for folder in folders() {
        let path = folder.path().join("rows.twin");
        kill_after(child(NAME, "die", &path), "killed here");
        let region = open(&path);
        let handle = rows(&region);
        let mut expected = Row { calls: 0, hash: 0 };
        [5, 6, 7].iter().for_each(|&number| expected.mix(number));
        assert_eq!(handle.row(3).unwrap(), (3, expected.hash));
        assert_eq!(handle.row(0).unwrap().0, 2);
        drop((handle, region));
        // The close left nothing to run a second time.
        let region = open(&path);
        assert_eq!(rows(&region).row(3).unwrap(), (3, expected.hash));
    }
}

/// A checkpoint in the middle of a group has some of its calls; the position beside the object says which.
#[test]
fn a_checkpoint_between_two_calls_of_a_group_runs_none_twice() {
    const NAME: &str = "a_checkpoint_between_two_calls_of_a_group_runs_none_twice";
    const CALLS: u64 = 100;
    if let Some((_, path)) = role() {
        let region = when_free(|| Region::options().every(Duration::from_millis(1)).open(&path));
        let handle = rows(&region);
        set_gate(false);
        (0..CALLS).for_each(|number| handle.add(2, number));
        handle.slow();
        // Each waits for a moment, so that the timer's checkpoint comes between two of them.
        (0..CALLS).for_each(|number| handle.add_slowly(2, CALLS + number));
        std::thread::scope(|scope| {
            scope.spawn(|| handle.sync());
            while SLOW.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            let before = region.epoch();
            set_gate(true);
            while region.epoch() < before + 2 {
                std::thread::yield_now();
            }
            assert!(SLOW.load(Ordering::SeqCst) < CALLS, "the group has not ended");
            say("killed here");
            std::thread::park();
        });
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.twin");
    kill_after(child(NAME, "cut", &path), "killed here");
    let region = open(&path);
    let mut expected = Row { calls: 0, hash: 0 };
    (0..2 * CALLS).for_each(|number| expected.mix(number));
    assert_eq!(rows(&region).row(2).unwrap(), (2 * CALLS, expected.hash));
}

/// The child of the test below: threads that call, each on a row of its own, and say what was acknowledged.
fn call_for_ever(path: &Path) {
    let region = when_free(|| Region::options().every(Duration::from_millis(3)).open(path));
    let handle = rows(&region);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let handle = handle.clone();
            scope.spawn(move || {
                let mut number = handle.row(thread).unwrap().0;
                for round in 0_u64.. {
                    for _ in 0..round % 90 {
                        handle.add(thread, number);
                        number += 1;
                    }
                    match round % 3 {
                        0 => number = handle.bump(thread, number).unwrap(),
                        1 => assert_eq!(handle.row(thread).unwrap().0, number),
                        _ => handle.sync().unwrap(),
                    }
                    say(&format!("{thread} {number}"));
                }
            });
        }
    });
}

#[test]
fn killed_at_any_instant_an_object_is_as_its_calls_one_after_the_other() {
    const NAME: &str = "killed_at_any_instant_an_object_is_as_its_calls_one_after_the_other";
    if let Some((role, path)) = role() {
        if role == "open" {
            let region = open(&path);
            rows(&region).row(0).unwrap();
            say("opened");
            std::thread::park();
        }
        return call_for_ever(&path);
    }
    let kills = twinpage_campaign::either(6, 300);
    let mut random = twinpage_campaign::random();
    for folder in folders() {
        let path = folder.path().join("rows.twin");
        let mut acknowledged = [0; THREADS];
        for kill in 0..kills {
            let mut child = child(NAME, "call", &path);
            let mut lines = BufReader::new(child.stdout.take().unwrap())
                .lines()
                .map_while(Result::ok);
            let mut note = |line: String| {
                let said = line.split_once(' ').and_then(|(thread, number)| {
                    Some((thread.parse::<usize>().ok()?, number.parse::<u64>().ok()?))
                });
                if let Some((thread, number)) = said {
                    acknowledged[thread] = number.max(acknowledged[thread]);
                }
                said.is_some()
            };
            let mut wanted = random.usize(1..200);
            while wanted > 0 {
                wanted -= usize::from(note(lines.next().expect("the child ended")));
            }
            child.kill().unwrap();
            child.wait().unwrap();
            lines.for_each(|line| {
                let _ = note(line);
            });
            let region = open(&path);
            let handle = rows(&region);
            for (thread, acknowledged) in acknowledged.iter().enumerate() {
                let (calls, hash) = handle.row(thread).unwrap();
                assert!(
                    calls >= *acknowledged,
                    "kill {kill}: {calls} of {acknowledged} calls"
                );
                let mut expected = Row { calls: 0, hash: 0 };
                (0..calls).for_each(|number| expected.mix(number));
                assert_eq!(hash, expected.hash, "kill {kill}, thread {thread}");
            }
            assert!(region.check().unwrap().is_sound());
            drop(handle);
            // The next life finds what a close leaves, or what another kill does.
            match kill % 2 {
                0 => region.close().unwrap(),
                _ => {
                    drop(region);
                    kill_after(self::child(NAME, "open", &path), "opened");
                }
            }
        }
    }
}

#[test]
fn a_panic_is_named_and_comes_again_when_the_call_is_run_again() {
    const NAME: &str = "a_panic_is_named_and_comes_again_when_the_call_is_run_again";
    if let Some((_, path)) = role() {
        let region = open(&path);
        let handle = rows(&region);
        handle.spoil(1);
        handle.add(1, 3);
        assert_eq!(
            handle.row(1).unwrap().0,
            101,
            "what it did stays done, and the calls go on"
        );
        match handle.sync() {
            Err(Error::Panicked { object, method, why }) => {
                assert_eq!(
                    (&object[..], &method[..], &why[..]),
                    ("rows", "spoil(row: usize)", "row 1 is spoilt")
                );
            }
            other => panic!("{other:?}"),
        }
        handle.sync().unwrap();
        let missing = handle.bump(THREADS, 0).unwrap_err();
        assert!(matches!(missing, Error::Panicked { .. }), "{missing}");
        say("killed here");
        std::thread::park();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.twin");
    kill_after(child(NAME, "panic", &path), "killed here");
    let region = open(&path);
    let handle = rows(&region);
    assert_eq!(handle.row(1).unwrap().0, 101);
    match handle.sync() {
        Err(Error::Panicked { method, why, .. }) => {
            assert_eq!((&method[..], &why[..]), ("spoil(row: usize)", "row 1 is spoilt"));
        }
        other => panic!("{other:?}"),
    }
    handle.sync().unwrap();
}

/// A build that has no `add_all`, and another `add`.
mod later {
    use super::{Persist, Row, Update};
    use twinpage::collections::Vec as List;

    #[derive(Persist)]
    #[persist(was = "objects::calls::Rows")]
    pub(super) struct Rows<'r> {
        rows: List<'r, Row>,
        names: List<'r, twinpage::collections::String<'r>>,
    }

    pub(super) fn none<'r>(_: &Update<'r>) -> Rows<'r> {
        unreachable!("it is there")
    }

    #[twinpage::object]
    impl Rows<'_> {
        #[lane(rows)]
        pub fn add(row: &mut Row, number: u32) {
            row.mix(number.into());
        }
        pub fn names(&self) -> usize {
            self.names.len()
        }
    }
}

#[test]
fn calls_that_this_build_cannot_run_are_refused_by_name() {
    const NAME: &str = "calls_that_this_build_cannot_run_are_refused_by_name";
    if let Some((role, path)) = role() {
        let region = open(&path);
        let handle = rows(&region);
        set_gate(false);
        handle.slow();
        match &role[..] {
            "add" => handle.add(1, 3),
            _ => handle.add_all(3),
        }
        std::thread::scope(|scope| {
            scope.spawn(|| handle.sync());
            while SLOW.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            say("killed here");
        });
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for role in ["add", "add_all"] {
        let path = folder.path().join(role);
        kill_after(child(NAME, role, &path), "killed here");
        let region = open(&path);
        let refused = region
            .object::<later::Rows>("rows", later::none)
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("`slow()`, and this build has no such method"),
            "{refused}"
        );
        // What would leave calls behind is refused.
        let copy = region.backup(folder.path().join("copy")).unwrap_err().to_string();
        assert!(copy.contains("open the region's objects first"), "{copy}");
        region.close().unwrap();
        assert!(log_of(&path).exists(), "the calls are still needed");
        let sections = when_free_error(|| Region::options().sections().open(&path));
        assert!(sections.contains("operation log"), "{sections}");
        // The build that made them runs them.
        let region = open(&path);
        let handle = rows(&region);
        assert_eq!(handle.row(1).unwrap().0, 1);
        region.close().unwrap();
        let region = open(&path);
        let later = region.object::<later::Rows>("rows", later::none).unwrap();
        assert_eq!(later.names().unwrap(), 0);
    }
}

/// More than there is room for before the ring of their log.
#[test]
fn hundreds_of_objects_survive_a_kill() {
    const NAME: &str = "hundreds_of_objects_survive_a_kill";
    const OBJECTS: usize = 400;
    let object = |region: &Region, number: usize| {
        let made = region.object::<Rows>(&format!("rows {number}"), |u| Rows::new_in(u, 1));
        made.unwrap()
    };
    if let Some((_, path)) = role() {
        let region = open(&path);
        let handles: Vec<RowsHandle> = (0..OBJECTS).map(|number| object(&region, number)).collect();
        for (number, handle) in handles.iter().enumerate() {
            handle.add(0, number as u64);
        }
        handles[0].sync().unwrap();
        say("killed here");
        std::thread::park();
        return;
    }
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("rows.twin");
    kill_after(child(NAME, "leave", &path), "killed here");
    let region = open(&path);
    for number in 0..OBJECTS {
        let mut expected = Row { calls: 0, hash: 0 };
        expected.mix(number as u64);
        let found = object(&region, number).row(0).unwrap();
        assert_eq!(found, (expected.calls, expected.hash), "object {number}");
    }
}

/// The error of opening a region, once it is free.
fn when_free_error(open: impl Fn() -> Result<Region, Error>) -> String {
    loop {
        match open() {
            Err(Error::Locked(_) | Error::Taken { .. }) => std::thread::yield_now(),
            other => return other.unwrap_err().to_string(),
        }
    }
}

#[test]
fn a_log_that_is_missing_cut_or_of_another_region_is_refused() {
    const NAME: &str = "a_log_that_is_missing_cut_or_of_another_region_is_refused";
    if let Some((_, path)) = role() {
        let region = open(&path);
        let handle = rows(&region);
        handle.add_all(3);
        handle.sync().unwrap();
        say("killed here");
        std::thread::park();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let [path, other] = ["rows.twin", "other.twin"].map(|name| folder.path().join(name));
    for path in [&path, &other] {
        kill_after(child(NAME, "leave", path), "killed here");
    }
    let refused = || {
        let region = open(&path);
        let refused = region
            .object::<Rows>("rows", |u| Rows::new_in(u, THREADS))
            .unwrap_err();
        refused.to_string()
    };
    let (log, aside) = (log_of(&path), folder.path().join("aside"));
    std::fs::rename(&log, &aside).unwrap();
    assert!(refused().contains("put it back beside the region"));
    std::fs::copy(log_of(&other), &log).unwrap();
    assert!(refused().contains("of another store"));
    std::fs::copy(&aside, &log).unwrap();
    std::fs::File::options()
        .write(true)
        .open(&log)
        .unwrap()
        .set_len(100_000)
        .unwrap();
    assert!(refused().contains("it is cut"));
    std::fs::write(&log, vec![7; 100_000]).unwrap();
    assert!(refused().contains("no operation log"));
    std::fs::rename(&aside, &log).unwrap();
    assert_eq!(rows(&open(&path)).row(0).unwrap().0, 1);
}

#[test]
fn a_backup_has_all_calls_and_goes_on_without_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let [path, copy] = ["rows.twin", "copy.twin"].map(|name| folder.path().join(name));
    let region = open(&path);
    let handle = rows(&region);
    (0..10).for_each(|number| handle.add(1, number));
    region.backup(&copy).unwrap();
    handle.add(1, 10);
    drop((handle, region));
    for calls in [10, 11] {
        let region = open(&copy);
        let handle = rows(&region);
        assert_eq!(handle.row(1).unwrap().0, calls);
        handle.add(1, 10);
    }
}

#[test]
fn what_an_object_cannot_be_asked_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.twin");
    let region = open(&path);
    let handle = rows(&region);
    let inside = region.update(|_| handle.bump(0, 1)).unwrap_err().to_string();
    assert!(inside.contains("make it after the update"), "{inside}");
    region.update(|_| handle.add(0, 1)); // it only waits
    assert_eq!(handle.row(0).unwrap().0, 1);
    let long = std::panic::catch_unwind(|| handle.name("x".repeat(1 << 20), None));
    assert!(
        long.unwrap_err()
            .downcast_ref::<String>()
            .unwrap()
            .contains("arguments of 1048")
    );
    assert!(handle.names().unwrap().is_empty());
    let twice = region.object::<Rows>("rows", |u| Rows::new_in(u, 1)).unwrap_err();
    assert!(matches!(twice, Error::Root(_)), "{twice}");
    let twice = twice.to_string();
    assert!(
        twice.contains("object \"rows\" is open") && twice.contains("clone the handle"),
        "{twice}"
    );
    let sections = Region::options()
        .sections()
        .open(folder.path().join("sections"))
        .unwrap();
    let refused = sections
        .object::<Rows>("rows", |u| Rows::new_in(u, 1))
        .unwrap_err();
    assert!(refused.to_string().contains("without `sections`"));
}

/// Deferrable calls alone, more than the ring holds: each full group is run.
#[test]
fn deferrable_calls_are_run_when_the_log_is_full() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("rows.twin");
    let region = open(&path);
    let handle = rows(&region);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                handle.row(1).unwrap();
            }
        });
        (0..400_000).for_each(|number| handle.add(1, number));
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(handle.row(1).unwrap().0, 400_000);
    assert!(std::fs::metadata(log_of(&path)).unwrap().len() < 10 << 20);
}

/// More threads than processors, with calls that wait for the turn and calls that wait for an answer.
#[test]
fn instant_calls_of_many_threads_get_each_its_own_answer() {
    const CALLS: u64 = 2000;
    for folder in folders() {
        let region = open(&folder.path().join("rows.twin"));
        let handle = rows(&region);
        let calls = if folder.path().starts_with("/dev/shm") {
            CALLS
        } else {
            CALLS / 20
        };
        let answers = Mutex::new(vec![Vec::new(); THREADS]);
        std::thread::scope(|scope| {
            for thread in 0..2 * THREADS {
                let (handle, answers) = (handle.clone(), &answers);
                scope.spawn(move || {
                    let row = thread % THREADS;
                    let (mut own, mut last) = (Vec::new(), 0);
                    for call in 0..calls {
                        let answer = handle.bump(row, call).unwrap();
                        assert!(answer > last, "{answer} after {last}");
                        own.push(answer);
                        last = answer;
                        if call % 64 == 0 {
                            handle.add(row, call);
                            last = handle.row(row).unwrap().0;
                            assert!(last > answer, "{last} after {answer} and one more");
                            handle.sync().unwrap();
                        }
                    }
                    answers.lock().unwrap()[row].extend(own);
                });
            }
        });
        let added = 2 * calls.div_ceil(64);
        for (row, answers) in answers.into_inner().unwrap().into_iter().enumerate() {
            assert_eq!(handle.row(row).unwrap().0, 2 * calls + added);
            let different: std::collections::BTreeSet<u64> = answers.iter().copied().collect();
            assert_eq!(different.len(), answers.len(), "two calls had the same answer");
        }
    }
}
