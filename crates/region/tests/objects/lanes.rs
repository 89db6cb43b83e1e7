//! Lanes on several threads, and readings beside one another: what overlaps and what does not, and that an object is what
//! its log makes of it one call after the other, however it was run and whenever it was killed.
//!
//! A kill is a real one. `TWINPAGE_LONG` makes it many; the seed that is printed repeats the choices of a failure.

// The methods of an object are public: its handle is for others.
#![allow(unreachable_pub)]

use crate::support::{again, folders, when_free};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use twinpage::collections::{String as Text, Vec as List};
use twinpage::objects::{Follow, Operation, follow};
use twinpage::{Error, Heap, Persist, Region, Update};

const ROLE: &str = "TWINPAGE_TEST_LANES";
const FILE: &str = "TWINPAGE_TEST_REGION";
const SEED: &str = "TWINPAGE_TEST_SEED";
const LANES: usize = 60;

/// Lanes that run now, the most at a time, and whether one ran beside a call that touches all.
static LANES_NOW: AtomicU64 = AtomicU64::new(0);
static MOST: AtomicU64 = AtomicU64::new(0);
static ALL_NOW: AtomicU64 = AtomicU64::new(0);
static WRONG: AtomicBool = AtomicBool::new(false);
static READING: AtomicU64 = AtomicU64::new(0);

#[derive(Persist)]
struct Row<'r> {
    calls: u64,
    hash: u64,
    words: List<'r, Text<'r>>,
}

fn mixed(hash: u64, number: u64) -> u64 {
    (hash ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(7)
}

/// Keeps a processor busy.
fn work(micros: u64) {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_micros(micros) {
        std::hint::spin_loop();
    }
}

#[derive(Persist)]
struct Table<'r> {
    rows: List<'r, Row<'r>>,
    counts: [u64; 4],
    order: u64,
}

#[twinpage::object]
impl<'r> Table<'r> {
    fn new_in(u: &Update<'r>, rows: usize) -> Table<'r> {
        let heap = u.heap();
        let row = |_| Row {
            calls: 0,
            hash: 0,
            words: List::new_in(heap),
        };
        Table {
            rows: u.collect((0..rows).map(row)),
            counts: [0; 4],
            order: 0,
        }
    }

    #[lane(rows)]
    pub fn add(row: &mut Row<'r>, heap: Heap<'r>, number: u64) {
        row.calls += 1;
        row.hash = mixed(row.hash, number);
        match number % 5 {
            0 => drop(row.words.pop()),
            _ => row
                .words
                .push(Text::from_in(&"x".repeat(number as usize % 90), heap)),
        }
    }

    #[lane(counts)]
    pub fn count(count: &mut u64, by: u64) {
        *count = mixed(*count, by);
    }

    pub fn add_all(&mut self, number: u64) {
        for row in &mut *self.rows {
            row.calls += 1;
            row.hash = mixed(row.hash, number);
        }
        self.order = mixed(self.order, number);
    }

    #[instant]
    #[lane(rows)]
    pub fn bump(row: &mut Row<'r>, number: u64) -> u64 {
        row.calls += 1;
        row.hash = mixed(row.hash, number);
        row.hash
    }

    #[deferrable]
    #[lane(rows)]
    pub fn slow(row: &mut Row<'r>, micros: u64) {
        let now = LANES_NOW.fetch_add(1, SeqCst) + 1;
        MOST.fetch_max(now, SeqCst);
        WRONG.fetch_or(ALL_NOW.load(SeqCst) != 0, SeqCst);
        work(micros);
        row.calls += 1;
        row.hash = mixed(row.hash, row.calls);
        LANES_NOW.fetch_sub(1, SeqCst);
    }

    #[deferrable]
    pub fn slow_all(&mut self, micros: u64) {
        ALL_NOW.fetch_add(1, SeqCst);
        WRONG.fetch_or(LANES_NOW.load(SeqCst) != 0, SeqCst);
        work(micros);
        self.order = mixed(self.order, self.rows.iter().map(|row| row.calls).sum());
        WRONG.fetch_or(LANES_NOW.load(SeqCst) != 0, SeqCst);
        ALL_NOW.fetch_sub(1, SeqCst);
    }

    #[lane(rows)]
    pub fn spoil(row: &mut Row<'r>) {
        work(50);
        row.calls += 100;
        panic!("spoilt after {} calls", row.calls);
    }

    /// Waits for a second one.
    pub fn meet(&self) -> u64 {
        READING.fetch_add(1, SeqCst);
        while READING.load(SeqCst) < 2 {
            std::thread::yield_now();
        }
        self.order
    }

    pub fn all(&self) -> Seen {
        let rows = self.rows.iter().map(|row| {
            let words = row.words.iter().map(|word| word.len()).collect();
            (row.calls, row.hash, words)
        });
        (rows.collect(), self.counts, self.order)
    }
}

type Seen = (Vec<(u64, u64, Vec<usize>)>, [u64; 4], u64);

/// The object as the calls of its log make it, one after the other.
#[derive(Clone, PartialEq, Debug)]
struct Model(Seen);

impl Model {
    fn new() -> Model {
        Model((vec![(0, 0, Vec::new()); LANES], [0; 4], 0))
    }

    fn run(&mut self, method: &str, lane: Option<u64>, number: u64) {
        let (rows, counts, order) = &mut self.0;
        let lane = lane.map_or(0, |lane| lane as usize);
        match method {
            "add" => {
                let (calls, hash, words) = &mut rows[lane];
                (*calls, *hash) = (*calls + 1, mixed(*hash, number));
                match number % 5 {
                    0 => drop(words.pop()),
                    _ => words.push(number as usize % 90),
                }
            }
            "bump" => {
                let (calls, hash, _) = &mut rows[lane];
                (*calls, *hash) = (*calls + 1, mixed(*hash, number));
            }
            "count" => counts[lane] = mixed(counts[lane], number),
            "add_all" => {
                for (calls, hash, _) in rows {
                    (*calls, *hash) = (*calls + 1, mixed(*hash, number));
                }
                *order = mixed(*order, number);
            }
            "slow" => {
                let (calls, hash, _) = &mut rows[lane];
                *calls += 1;
                *hash = mixed(*hash, *calls);
            }
            other => panic!("{other} is in the log"),
        }
    }

    fn run_logged(&mut self, operation: &Operation) {
        let number = operation.arguments[0].1.as_u64().unwrap();
        self.run(&operation.method, operation.lane, number);
    }
}

fn open(path: &Path, threads: usize) -> Region {
    let every = Duration::from_millis(3);
    when_free(|| Region::options().every(every).server_threads(threads).open(path))
}

fn table(region: &Region) -> TableHandle {
    region
        .object::<Table>("table", |u| Table::new_in(u, LANES))
        .unwrap()
}

#[test]
fn lanes_run_beside_one_another_and_never_beside_a_call_that_touches_all() {
    const NAME: &str = "lanes_run_beside_one_another_and_never_beside_a_call_that_touches_all";
    // A process of its own: others count, too.
    let Some(path) = role() else {
        let folder = tempfile::tempdir().unwrap();
        let ended = child(NAME, &folder.path().join("table.twin"), 0).wait().unwrap();
        assert!(ended.success(), "{ended}");
        return;
    };
    let region = open(&path, 3);
    let handle = table(&region);
    let mut model = Model::new();
    // As long as it takes: threads may have to wait for a processor.
    for round in 0.. {
        for lane in 0..20 {
            handle.slow(lane, 40);
            model.run("slow", Some(lane as u64), 40);
        }
        handle.slow_all(20);
        let calls = model.0.0.iter().map(|row| row.0).sum();
        model.0.2 = mixed(model.0.2, calls);
        handle.sync().unwrap();
        if MOST.load(SeqCst) > 1 && round > 20 {
            break;
        }
    }
    assert!(!WRONG.load(SeqCst), "a lane ran beside a call that touches all");
    assert!(handle.all().unwrap() == model.0);
}

#[test]
fn lanes_on_any_number_of_threads_are_as_one_call_after_the_other() {
    let mut random = twinpage_campaign::random();
    for folder in folders() {
        for threads in [1, 2, 4] {
            let path = folder.path().join(format!("table{threads}.twin"));
            let region = open(&path, threads);
            let (handle, mut model) = (table(&region), Model::new());
            for _ in 0..40 {
                // Long enough that they are shared out.
                for _ in 0..random.usize(1..120) {
                    let (lane, number) = (random.usize(0..LANES), random.u64(0..1000));
                    match random.u8(0..40) {
                        0 => {
                            handle.add_all(number);
                            model.run("add_all", None, number);
                        }
                        1..10 => {
                            handle.count(lane % 4, number);
                            model.run("count", Some(lane as u64 % 4), number);
                        }
                        10..20 => {
                            handle.slow(lane, 10);
                            model.run("slow", Some(lane as u64), 10);
                        }
                        _ => {
                            handle.add(lane, number);
                            model.run("add", Some(lane as u64), number);
                        }
                    }
                }
                let (lane, number) = (random.usize(0..LANES), random.u64(..));
                model.run("bump", Some(lane as u64), number);
                assert_eq!(handle.bump(lane, number).unwrap(), model.0.0[lane].1);
            }
            assert!(handle.all().unwrap() == model.0, "{threads} threads");
            assert!(region.check().unwrap().is_sound());
            region.close().unwrap();
            let region = open(&path, 1);
            assert!(
                table(&region).all().unwrap() == model.0,
                "{threads} threads, opened again"
            );
        }
    }
}

#[test]
fn a_panic_on_a_lane_ends_that_call_alone_and_the_first_in_the_log_is_told() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let region = open(&folder.path().join("table.twin"), 4);
    let handle = table(&region);
    // The calls take long: later ones are shared out.
    for _ in 0..3 {
        (0..40).for_each(|lane| handle.slow(lane, 50));
        handle.sync().unwrap();
    }
    for lane in 0..40 {
        handle.spoil(lane);
        handle.slow(lane, 50);
    }
    handle.slow(LANES, 1);
    match handle.sync() {
        Err(Error::Panicked { method, why, .. }) => {
            assert_eq!(
                (&method[..], &why[..]),
                ("spoil(rows[lane])", "spoilt after 103 calls")
            );
        }
        other => panic!("{other:?}"),
    }
    handle.sync().unwrap();
    let (rows, ..) = handle.all().unwrap();
    assert!(rows[..40].iter().all(|row| row.0 == 104));
    handle.slow(LANES, 1);
    let missing = handle.sync().unwrap_err().to_string();
    assert!(missing.contains("the len is 60 but the index is 60"), "{missing}");
}

/// Each waits inside the method until the other is there, too.
#[test]
fn calls_that_change_nothing_run_beside_one_another() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let region = open(&folder.path().join("table.twin"), 1);
    let handle = table(&region);
    handle.add_all(7);
    std::thread::scope(|scope| {
        let met: Vec<_> = (0..2).map(|_| scope.spawn(|| handle.meet().unwrap())).collect();
        for met in met {
            assert_eq!(met.join().unwrap(), mixed(0, 7));
        }
    });
}

/// Another process, for a test.
fn child(test: &str, path: &Path, seed: u64) -> Child {
    again(module_path!(), test)
        .env(ROLE, "child")
        .env(FILE, path)
        .env(SEED, seed.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The file of the process this is, if it is another.
fn role() -> Option<PathBuf> {
    std::env::var_os(ROLE)?;
    Some(std::env::var_os(FILE)?.into())
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).unwrap();
}

/// Calls of as many threads as there are lanes, less than the log holds, until it is killed.
fn call_from_many_threads(path: &Path) {
    let seed: u64 = std::env::var(SEED).unwrap().parse().unwrap();
    let region = open(path, 4);
    let handle = table(&region);
    say("ready");
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..LANES {
            let handle = handle.clone();
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed ^ thread as u64);
                for _ in 0..1500 {
                    let (lane, number) = (random.usize(0..LANES), random.u64(0..1000));
                    match random.u8(0..60) {
                        0 => handle.add_all(number),
                        1..4 => handle.slow(lane, 20),
                        4..10 => handle.count(lane % 4, number),
                        10..13 => {
                            handle.bump(lane, number).unwrap();
                            say(&format!("acknowledged {thread}"));
                        }
                        13 => drop(handle.all().unwrap()),
                        _ => handle.add(lane, number),
                    }
                }
                std::thread::park();
            });
        }
    });
}

/// Runs what the log has by now on the model. Says how many instant calls there were.
fn read_on(following: &mut Follow, model: &mut Model) -> u64 {
    let news = following.news().unwrap();
    assert!(!news.missed, "the log was written over before it was read");
    let mut bumps = 0;
    for operation in &news.operations {
        model.run_logged(operation);
        bumps += u64::from(operation.method == "bump");
    }
    bumps
}

#[test]
fn killed_with_sixty_threads_an_object_is_what_its_log_makes_of_it_call_by_call() {
    const NAME: &str = "killed_with_sixty_threads_an_object_is_what_its_log_makes_of_it_call_by_call";
    if let Some(path) = role() {
        return call_from_many_threads(&path);
    }
    let kills = twinpage_campaign::either(4, 500);
    let mut random = twinpage_campaign::random();
    for folder in folders() {
        let (mut path, mut model) = (PathBuf::new(), Model::new());
        for kill in 0..kills {
            // A table grows with its calls, and so does the time that a look at all of it takes.
            if kill % 25 == 0 {
                path = folder.path().join(format!("table from kill {kill}.twin"));
                model = Model::new();
            }
            let mut child = child(NAME, &path, random.u64(..));
            let mut lines = BufReader::new(child.stdout.take().unwrap())
                .lines()
                .map_while(Result::ok);
            assert!(lines.any(|line| line.ends_with("ready")), "the child ended");
            let mut following = follow(&path).unwrap();
            writeln!(child.stdin.as_mut().unwrap(), "go").unwrap();
            let (mut acknowledged, mut logged) = (0, 0);
            for _ in 0..random.u64(1..800) {
                assert!(lines.next().expect("the child ended").contains("acknowledged"));
                acknowledged += 1;
                if acknowledged % 50 == 0 {
                    logged += read_on(&mut following, &mut model);
                }
            }
            child.kill().unwrap();
            child.wait().unwrap();
            acknowledged += lines.count() as u64;
            logged += read_on(&mut following, &mut model);
            assert!(
                logged >= acknowledged,
                "kill {kill}: {logged} of {acknowledged} instant calls"
            );
            let region = open(&path, 1 + kill % 3);
            assert!(table(&region).all().unwrap() == model.0, "kill {kill}");
            assert!(region.check().unwrap().is_sound());
        }
    }
}
