//! No block leaks, whatever the instant a program is killed at: each life finds as many as the first one made.
//!
//! `TWINPAGE_LONG` makes it hundreds of kills.

use crate::support::{again, folders, when_free};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use twinpage::collections::{BTreeMap, Box, HashMap, String, Vec, VecDeque};
use twinpage::{Persist, Region, Update};

const PATH: &str = "TWINPAGE_TEST_LEAKS";
const NAMES: u64 = 3000;

/// Its blocks are as many after each change as before.
#[derive(Persist)]
struct Churned<'r> {
    names: HashMap<'r, u64, String<'r>>,
    sorted: BTreeMap<'r, u64, Vec<'r, u8>>,
    boxes: Vec<'r, Box<'r, u64>>,
    waiting: VecDeque<'r, String<'r>>,
}

fn text<'r>(u: &Update<'r>, random: &mut fastrand::Rng) -> String<'r> {
    u.string(&"x".repeat(random.usize(1..200)))
}

fn make<'r>(u: &Update<'r>) -> Churned<'r> {
    let mut random = fastrand::Rng::new();
    let mut all = Churned {
        names: u.empty::<HashMap<u64, String>>(),
        sorted: u.empty::<BTreeMap<u64, Vec<u8>>>(),
        boxes: u.empty::<Vec<Box<u64>>>(),
        waiting: u.empty::<VecDeque<String>>(),
    };
    for number in 0..NAMES {
        all.names.insert(number, text(u, &mut random));
        all.sorted.insert(number, text(u, &mut random).into_bytes());
        all.boxes.push(u.boxed(number));
        all.waiting.push_back(text(u, &mut random));
    }
    all
}

/// Replaces, takes out and puts back, clears and fills, with panics in between.
fn change<'r>(u: &Update<'r>, all: &mut Churned<'r>, random: &mut fastrand::Rng) {
    let number = random.u64(..NAMES);
    match random.u8(..9) {
        0 => drop(all.names.insert(number, text(u, random))),
        1 => {
            let taken = all.names.remove(&number).unwrap();
            all.names.insert(number, taken);
        }
        2 => *all.sorted.get_mut(&number).unwrap() = text(u, random).into_bytes(),
        3 => {
            let last = all.boxes.pop().unwrap();
            all.boxes.insert(number as usize, last);
        }
        4 => {
            let _ = std::mem::replace(&mut all.boxes[number as usize], u.boxed(7));
        }
        5 => {
            drop(all.waiting.pop_front());
            all.waiting.push_back(text(u, random));
        }
        6 => {
            let kept = text(u, random);
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let _lost = text(u, &mut fastrand::Rng::new());
                std::panic::resume_unwind(std::boxed::Box::new(()));
            }));
            assert!(panicked.is_err());
            all.waiting[number as usize] = kept;
        }
        7 => {
            let all: std::vec::Vec<_> = all.boxes.drain(..10).collect();
            drop(all);
        }
        _ => {}
    }
    while all.boxes.len() < NAMES as usize {
        all.boxes.push(u.boxed(number));
    }
}

fn open(path: &Path) -> Region {
    when_free(|| Region::options().every(Duration::from_micros(500)).open(path))
}

/// Changes until it is killed.
fn child(path: &Path) {
    let region = open(path);
    let mut all = region.root_with::<Churned>("all", make).unwrap();
    region.durable().unwrap();
    println!("begun");
    let mut random = fastrand::Rng::new();
    loop {
        region.update(|u| (0..random.u8(1..20)).for_each(|_| change(u, all.get_mut(u), &mut random)));
    }
}

#[test]
fn no_kill_leaks_a_block() {
    if let Ok(path) = std::env::var(PATH) {
        return child(Path::new(&path));
    }
    let kills = twinpage_campaign::either(12, 400);
    let seed = twinpage_campaign::seed();
    let mut random = fastrand::Rng::with_seed(seed);
    for folder in folders() {
        let path = folder.path().join("churned");
        let mut first = None;
        for kill in 0..kills {
            let mut child = again(module_path!(), "no_kill_leaks_a_block")
                .env(PATH, &path)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let said = BufReader::new(child.stdout.take().unwrap()).lines();
            let begun = said.map_while(Result::ok).any(|line| line == "begun");
            assert!(begun, "seed {seed}, kill {kill}: the child ended by itself");
            std::thread::sleep(Duration::from_micros(random.u64(..20_000)));
            child.kill().unwrap();
            child.wait().unwrap();
            let region = open(&path);
            let report = region.check().unwrap();
            assert!(report.is_sound(), "seed {seed}, kill {kill}: {report:?}");
            let leaked = (report.leaked_blocks, report.leaked_bytes);
            assert_eq!(leaked, (0, 0), "seed {seed}, kill {kill}: {:?}", report.leaks);
            let blocks = report.stats.used_blocks;
            assert_eq!(*first.get_or_insert(blocks), blocks, "seed {seed}, kill {kill}");
        }
    }
}
