//! Objects that are freed: their memory, their calls, their handles, and what a kill leaves at any instant.
//!
//! `TWINPAGE_LONG` makes it many kills.

// The methods of an object are public: its handle is for others.
#![allow(unreachable_pub)]

use crate::support::{again, folders, killed_after, longest, talking, when_free};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use twinpage::collections::{HashMap, String as Text, Vec as List};
use twinpage::objects::list;
use twinpage::{Error, Heap, Persist, Region, Update};

const FILE: &str = "TWINPAGE_TEST_FREED";
const FROM: &str = "TWINPAGE_TEST_FROM";

/// It owns blocks of many sizes.
#[derive(Persist)]
struct Pile<'r> {
    numbers: List<'r, u64>,
    names: HashMap<'r, u64, Text<'r>>,
}

#[twinpage::object]
impl<'r> Pile<'r> {
    fn new_in(u: &Update<'r>, numbers: u64) -> Pile<'r> {
        Pile {
            numbers: u.collect(0..numbers),
            names: u.empty::<HashMap<u64, Text>>(),
        }
    }

    pub fn add(&mut self, heap: Heap<'r>, number: u64) {
        self.numbers.push(number);
        let name = "x".repeat(number as usize % 700);
        self.names.insert(number, Text::from_in(&name, heap));
    }

    pub fn bump(&mut self, heap: Heap<'r>, number: u64) -> usize {
        self.add(heap, number);
        self.numbers.len()
    }

    pub fn all(&self) -> Vec<u64> {
        self.numbers.to_vec()
    }
}

fn open(path: &Path) -> Region {
    when_free(|| Region::open(path))
}

fn pile(region: &Region, name: &str) -> PileHandle {
    region.object::<Pile>(name, |u| Pile::new_in(u, 0)).unwrap()
}

fn is_freed<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::Freed { object }) if object == "pile")
}

/// Blocks in use, with the region sound.
fn blocks(region: &Region) -> u64 {
    let report = region.check().unwrap();
    assert!(report.is_sound(), "{report:?}");
    report.stats.used_blocks
}

#[test]
fn a_freed_object_is_gone_with_its_memory_and_the_next_of_its_name_is_another() {
    for folder in folders() {
        let path = folder.path().join("piles.twin");
        let region = open(&path);
        let kept = pile(&region, "kept");
        drop(pile(&region, "pile"));
        region.free_object("pile").unwrap();
        let before = blocks(&region);
        let handle = pile(&region, "pile");
        (0..3000).for_each(|number| handle.add(number));
        assert_eq!(handle.bump(7).unwrap(), 3001);
        handle.add(8); // waits, and goes with the object
        assert!(blocks(&region) > before);
        region.free_object("pile").unwrap();
        assert_eq!(blocks(&region), before);
        assert!(is_freed(handle.bump(1)) && is_freed(handle.all()));
        let panic = std::panic::catch_unwind(|| handle.add(1)).unwrap_err();
        let said = panic.downcast_ref::<String>().unwrap();
        assert!(said.contains("\"pile\" was freed"), "{said}");
        let again = region.free_object("pile").unwrap_err().to_string();
        assert!(again.contains("there is no object \"pile\""), "{again}");

        let next = pile(&region, "pile");
        assert_eq!(next.bump(9).unwrap(), 1);
        assert!(
            is_freed(handle.bump(1)),
            "an old handle does not reach the new object"
        );
        assert_eq!(next.all().unwrap(), [9]);
        kept.bump(5).unwrap();
        region.close().unwrap();
        let told = when_free(|| list(&path));
        let told: Vec<_> = told.iter().map(|object| (&*object.name, object.id)).collect();
        assert_eq!(told, [("kept", Some(1)), ("pile", Some(4))]);
    }
}

#[test]
fn an_object_that_is_not_open_is_freed_and_a_root_that_is_none_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("piles.twin");
    let region = open(&path);
    let handle = pile(&region, "pile");
    (0..500).for_each(|number| handle.add(number));
    region.close().unwrap();
    assert_eq!(when_free(|| list(&path))[0].holders, Vec::<String>::new());

    let region = open(&path);
    drop(region.root_with::<u64>("number", |_| 7).unwrap());
    let refused = region.free_object("number").unwrap_err().to_string();
    assert!(refused.contains("there is no object \"number\""), "{refused}");
    let inside = region.update(|_| region.free_object("pile")).unwrap_err();
    assert!(inside.to_string().contains("after the update"), "{inside}");
    region.free_object("pile").unwrap();
    assert!(region.check().unwrap().is_sound());
    let roots = region.roots().unwrap();
    let names: Vec<_> = roots.iter().map(|root| &*root.name).collect();
    assert_eq!(names, ["table of objects", "number"]);
    region.close().unwrap();
    assert!(when_free(|| list(&path)).is_empty());
}

/// What builds left that had no table: objects without numbers, and half an object, where they were killed.
#[test]
fn what_earlier_builds_left_is_mended_at_the_next_opening() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("piles.twin");
    let region = open(&path);
    let handle = pile(&region, "pile");
    handle.bump(1).unwrap();
    region.close().unwrap();

    let region = open(&path);
    region.remove_root("table of objects").unwrap();
    drop(region.root::<u64>("half: position in the operation log").unwrap());
    drop(region.root::<u64>("half: threads").unwrap());
    region.close().unwrap();
    let told = when_free(|| list(&path));
    assert_eq!((told.len(), told[0].id, &*told[0].type_name), (1, None, "Pile"));

    let region = open(&path);
    assert_eq!(pile(&region, "pile").bump(2).unwrap(), 2);
    let roots = region.roots().unwrap();
    assert!(
        !roots.iter().any(|root| root.name.starts_with("half")),
        "{roots:?}"
    );
    assert!(region.check().unwrap().is_sound());
    region.close().unwrap();
    assert_eq!(when_free(|| list(&path))[0].id, Some(1));
}

#[test]
fn one_object_too_many_for_the_log_is_not_made_and_is_after_a_close() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("piles.twin");
    let region = open(&path);
    drop(pile(&region, "kept"));
    let make = |region: &Region| region.object::<Pile>("pile", |u| Pile::new_in(u, 3));
    let before = blocks(&region);
    let mut made = 0;
    let refused = loop {
        match make(&region) {
            Ok(_) => region.free_object("pile").unwrap(),
            Err(error) => break error.to_string(),
        }
        made += 1;
    };
    assert!(
        refused.contains("close the region, which begins a new log"),
        "{refused}"
    );
    assert!(made > 400, "{made}");
    assert_eq!(blocks(&region), before);
    region.close().unwrap();
    let region = open(&path);
    assert_eq!(make(&region).unwrap().all().unwrap(), [0, 1, 2]);
    region.close().unwrap();
}

/// What there is after so many steps of a script in which each step is acknowledged: names and numbers.
fn state_after(steps: u64) -> BTreeMap<String, Vec<u64>> {
    let mut all = BTreeMap::new();
    (0..steps).for_each(|step| {
        let name = format!("pile {}", step % 3);
        match step / 3 % 6 {
            0 => drop(all.insert(name, Vec::new())),
            5 => drop(all.remove(&name)),
            _ => all.get_mut(&name).unwrap().push(step),
        }
    });
    all
}

/// Makes a step of the script. It is durable when this returns.
fn make_step(region: &Region, handles: &mut BTreeMap<String, PileHandle>, step: u64) {
    let name = format!("pile {}", step % 3);
    match step / 3 % 6 {
        0 => drop(handles.insert(name.clone(), pile(region, &name))),
        5 => {
            handles.remove(&name);
            region.free_object(&name).unwrap();
        }
        _ => {
            let handle = handles.entry(name.clone());
            let handle = handle.or_insert_with(|| pile(region, &name));
            handle.bump(step).unwrap();
        }
    }
}

/// What there is, each object opened. Nothing is leaked before or after that.
fn found(region: &Region) -> BTreeMap<String, Vec<u64>> {
    blocks(region);
    let roots = region.roots().unwrap();
    let names = roots.iter().map(|root| &*root.name);
    let piles = names.filter(|name| name.starts_with("pile") && !name.contains(':'));
    let all = piles.map(|name| (name.to_owned(), pile(region, name).all().unwrap()));
    let all = all.collect();
    blocks(region);
    all
}

/// The files as they are after each step, which is what a kill there leaves.
#[test]
fn after_a_kill_between_any_two_steps_an_object_is_there_or_not() {
    /// Three objects are made, called and freed, and two are made anew.
    const STEPS: u64 = 20;
    for folder in folders() {
        let path = folder.path().join("piles.twin");
        let region = open(&path);
        let mut handles = BTreeMap::new();
        let copy = |step: u64| folder.path().join(format!("after {step}.twin"));
        let log = |path: &Path| PathBuf::from(format!("{}.log", path.display()));
        for step in 0..STEPS {
            make_step(&region, &mut handles, step);
            std::fs::copy(&path, copy(step)).unwrap();
            std::fs::copy(log(&path), log(&copy(step))).unwrap();
        }
        drop(handles);
        region.close().unwrap();
        for step in 0..STEPS {
            let region = open(&copy(step));
            assert_eq!(found(&region), state_after(step + 1), "after step {step}");
            assert!(region.free_object("none").is_err()); // the log is looked at also where no object is left
            region.close().unwrap();
            assert!(
                !log(&copy(step)).exists(),
                "after step {step} calls are left over"
            );
        }
    }
}

/// The log keeps calls of an object that was freed as long as calls of others before them wait.
#[test]
fn calls_of_a_freed_object_are_dropped_though_others_wait_in_the_log() {
    const NAME: &str = "calls_of_a_freed_object_are_dropped_though_others_wait_in_the_log";
    if let (Ok(path), Ok(life)) = (std::env::var(FILE), std::env::var(FROM)) {
        let region = open(Path::new(&path));
        let bump = |name: &str, number| pile(&region, name).bump(number).unwrap();
        if life == "first" {
            bump("pile", 1);
            bump("gone", 1);
            bump("other", 2);
        } else {
            bump("pile", 3);
            region.free_object("pile").unwrap();
            bump("gone", 4);
            region.free_object("gone").unwrap();
            bump("pile", 5);
        }
        println!("to be killed");
        loop {
            std::thread::park();
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("piles.twin");
    for life in ["first", "second"] {
        let (mut child, mut said) = talking(again(module_path!(), NAME).env(FILE, &path).env(FROM, life));
        assert!(said.any(|line| line.unwrap() == "to be killed"), "{life}");
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let logged = when_free(|| twinpage::objects::operations(&path)).operations;
    let numbers = logged.iter().map(|call| call.arguments[0].1.as_u64().unwrap());
    assert_eq!(
        numbers.collect::<Vec<_>>(),
        [2, 3, 4, 5],
        "those of the freed are there"
    );
    let region = open(&path);
    assert_eq!(pile(&region, "other").all().unwrap(), [2]);
    assert_eq!(pile(&region, "pile").all().unwrap(), [5]);
    region.close().unwrap();
    assert!(
        !Path::new(&format!("{}.log", path.display())).exists(),
        "no call is waited with"
    );
}

/// Makes steps until it is killed, from one on, beside a thread that calls an object all the time.
fn go_on(path: &Path, from: u64) {
    let region = Region::options()
        .every(Duration::from_micros(700))
        .open(path)
        .unwrap();
    let busy = pile(&region, "busy");
    std::thread::spawn(move || {
        loop {
            busy.add(7);
            busy.bump(1).unwrap();
        }
    });
    let mut handles = BTreeMap::new();
    println!("begun");
    // The log has room for the objects of so many, until it is closed.
    for step in from..from + 2000 {
        make_step(&region, &mut handles, step);
        println!("{step}");
    }
    loop {
        std::thread::park();
    }
}

#[test]
fn killed_at_any_instant_all_of_an_object_is_there_or_nothing() {
    const NAME: &str = "killed_at_any_instant_all_of_an_object_is_there_or_nothing";
    if let (Ok(path), Ok(from)) = (std::env::var(FILE), std::env::var(FROM)) {
        return go_on(Path::new(&path), from.parse().unwrap());
    }
    let kills = twinpage_campaign::either(12, 500);
    let seed = twinpage_campaign::seed();
    let mut random = fastrand::Rng::with_seed(seed);
    for folder in folders() {
        let (path, mut steps) = (folder.path().join("piles.twin"), 0);
        for kill in 0..kills {
            let mut command = again(module_path!(), NAME);
            let command = command.env(FILE, &path).env(FROM, steps.to_string());
            let time = random.u64(..longest(30_000, steps, kill));
            let last = killed_after(command, Duration::from_micros(time));
            steps = last.map_or(steps, |step| step + 1);
            let region = open(&path);
            let found = found(&region);
            steps += u64::from(found != state_after(steps));
            assert_eq!(found, state_after(steps), "seed {seed}, kill {kill}");
            drop(pile(&region, "busy"));
            region.close().unwrap();
        }
        assert!(steps > 0, "seed {seed}");
    }
}

#[test]
fn calls_of_other_threads_are_run_before_the_freeing_or_refused() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("piles.twin");
    let region = open(&path);
    for round in 0..20 {
        let (handle, run) = (pile(&region, "pile"), AtomicU64::new(0));
        std::thread::scope(|threads| {
            for _ in 0..3 {
                threads.spawn(|| {
                    loop {
                        match handle.bump(1) {
                            Ok(_) => run.fetch_add(1, Ordering::Relaxed),
                            error => return assert!(is_freed(error), "round {round}"),
                        };
                    }
                });
            }
            while run.load(Ordering::Relaxed) < 10 {
                std::thread::yield_now();
            }
            region.free_object("pile").unwrap();
            let next = pile(&region, "pile");
            next.bump(3).unwrap();
            assert_eq!(next.all().unwrap(), [3], "round {round}");
            region.free_object("pile").unwrap();
        });
    }
    assert!(region.check().unwrap().is_sound());
    region.close().unwrap();
}

#[test]
fn a_copy_does_not_take_an_object_that_was_made_anew_for_the_old_one() {
    const NAME: &str = "a_copy_does_not_take_an_object_that_was_made_anew_for_the_old_one";
    if let Ok(path) = std::env::var(FILE) {
        let region = open(Path::new(&path));
        let handle = pile(&region, "pile");
        handle.bump(1).unwrap();
        region
            .backup(Path::new(&path).with_file_name("copy.twin"))
            .unwrap();
        handle.bump(2).unwrap();
        region.free_object("pile").unwrap();
        pile(&region, "pile").bump(3).unwrap();
        println!("leader is ready");
        std::io::stdout().flush().unwrap();
        std::thread::park();
    }
    let folder = tempfile::tempdir().unwrap();
    let [leader, copy] = ["leader.twin", "copy.twin"].map(|name| folder.path().join(name));
    let (mut child, mut said) = talking(again(module_path!(), NAME).env(FILE, &leader));
    assert!(said.any(|line| line.unwrap() == "leader is ready"));
    let region = open(&copy);
    let mut follower = region.follow(&leader).unwrap();
    let handle = pile(&region, "pile");
    let refused = follower.catch_up().unwrap_err().to_string();
    assert!(refused.contains("made after the copy"), "{refused}");
    let refused = region
        .object::<Pile>("other", |u| Pile::new_in(u, 0))
        .unwrap_err()
        .to_string();
    assert!(refused.contains("made after the copy"), "{refused}");
    let refused = region.free_object("pile").unwrap_err().to_string();
    assert!(refused.contains("follows another"), "{refused}");
    assert_eq!(handle.all().unwrap(), [1]);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[derive(Persist)]
struct Loud {
    number: u64,
}

#[twinpage::object]
impl Loud {
    pub fn set(&mut self, number: u64) {
        self.number = number;
    }
}

impl Drop for Loud {
    fn drop(&mut self) {
        assert!(self.number != 7, "on purpose");
    }
}

/// Numbers are given once, also where the `Drop` of an object panics.
#[test]
fn an_object_whose_drop_panics_is_gone_with_its_number() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("loud.twin");
    let region = open(&path);
    region.object::<Loud>("loud", |_| Loud { number: 7 }).unwrap();
    let freed = std::panic::AssertUnwindSafe(|| region.free_object("loud"));
    assert!(std::panic::catch_unwind(freed).is_err());
    region.object::<Loud>("loud", |_| Loud { number: 0 }).unwrap();
    region.close().unwrap();
    assert_eq!(when_free(|| list(&path))[0].id, Some(2));
}
