//! Objects go back to each call that is kept: compared with the calls one after the other, through kills, closes, objects
//! that come later, and programs that keep nothing.
//!
//! The seed that is printed repeats the choices of a failure; `TWINPAGE_LONG` makes it many rounds.

// The methods of an object are public: its handle is for others.
#![allow(unreachable_pub)]

use crate::support::{again, folders, talking, when_free};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};
use twinpage::objects::{Operation, Until, go_back, kept};
use twinpage::{Error, Persist, Region};

const FOLDER: &str = "TWINPAGE_TEST_FOLDER";
const LIFE: &str = "TWINPAGE_TEST_LIFE";
/// Bytes to be kept: all there are.
const ALL: u64 = 1 << 30;

#[derive(Persist)]
struct Pile {
    calls: u64,
    hash: u64,
}

fn mixed(hash: u64, number: u64, long: usize) -> u64 {
    (hash ^ number)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(9)
        .wrapping_add(long as u64)
}

#[twinpage::object]
impl Pile {
    pub fn add(&mut self, number: u64, text: String) {
        self.hash = mixed(self.hash, number, text.len());
        self.calls += 1;
    }
    pub fn state(&self) -> (u64, u64) {
        (self.calls, self.hash)
    }
}

fn open(folder: &Path) -> Region {
    when_free(|| {
        let options = Region::options().every(Duration::from_millis(2));
        let options = options.keep_calls(folder.join("kept"), ALL);
        options.open(folder.join("pile.twin"))
    })
}

fn pile(region: &Region, name: &str) -> PileHandle {
    region
        .object::<Pile>(name, |_| Pile { calls: 0, hash: 0 })
        .unwrap()
}

fn text(random: &mut fastrand::Rng) -> String {
    "text ".repeat(random.usize(0..400))
}

/// A life of a program: it calls until it is killed or has made so many calls.
fn live(folder: &Path, life: u64) {
    let mut random = fastrand::Rng::with_seed(life);
    let region = open(folder);
    let names = ["first", "second"];
    let piles: Vec<_> = names[..if life < 2 { 1 } else { 2 }]
        .iter()
        .map(|name| pile(&region, name))
        .collect();
    println!("begun");
    for step in 0..2000 {
        let pile = &piles[random.usize(0..piles.len())];
        let (calls, _) = pile.state().unwrap();
        pile.add(calls, text(&mut random));
        if step % 10 == 0 {
            pile.sync().unwrap();
            println!("{step}");
            std::io::stdout().flush().unwrap();
        }
    }
    drop(piles);
    region.close().unwrap();
}

/// The object after these calls.
fn replayed(operations: &[Operation], name: &str) -> (u64, u64) {
    let of_object = operations.iter().filter(|operation| operation.object == name);
    of_object.fold((0, 0), |(calls, hash), operation| {
        let number = operation.arguments[0].1.as_u64().unwrap();
        let long = operation.arguments[1].1.as_str().unwrap().len();
        assert_eq!(number, calls, "a call is missing or there twice: {operation}");
        (calls + 1, mixed(hash, number, long))
    })
}

/// The objects of a copy of the past are as these calls leave them.
fn assert_past(copy: &Path, operations: &[Operation]) {
    let region = when_free(|| Region::open(copy));
    let piles = ["first", "second"].map(|name| (name, pile(&region, name)));
    for (name, pile) in &piles {
        assert_eq!(pile.state().unwrap(), replayed(operations, name), "{name}");
    }
    assert!(region.check().unwrap().is_sound());
    // It is a region like any other.
    let (_, pile) = &piles[0];
    let (calls, _) = pile.state().unwrap();
    pile.add(calls, String::new());
    assert_eq!(pile.state().unwrap().0, calls + 1);
    region.close().unwrap();
}

#[test]
fn objects_go_back_to_any_call_through_kills_and_closes() {
    const NAME: &str = "objects_go_back_to_any_call_through_kills_and_closes";
    if let (Some(folder), Ok(life)) = (std::env::var_os(FOLDER), std::env::var(LIFE)) {
        return live(&PathBuf::from(folder), life.parse().unwrap());
    }
    let mut random = twinpage_campaign::random();
    for folder in folders() {
        let folder = folder.path();
        let (path, keeps) = (folder.join("pile.twin"), folder.join("kept"));
        let files = || std::fs::read_dir(&keeps).map_or(0, Iterator::count);
        let mut life = 0;
        while life < twinpage_campaign::either(4, 40_u64) || files() <= 6 {
            let mut child = again(module_path!(), NAME);
            let (mut child, said) = talking(child.env(FOLDER, folder).env(LIFE, life.to_string()));
            let lines = random.usize(2..150);
            if life == 1 || random.bool() {
                said.for_each(drop); // it closes the region
            } else {
                said.take(lines).for_each(drop);
                child.kill().unwrap();
            }
            child.wait().unwrap();
            life += 1;
        }
        let operations = when_free(|| kept(&path, &keeps)).operations;
        assert!(operations.len() > 500);
        let last = operations.len() - 1;
        let some = std::iter::repeat_with(|| random.usize(0..=last)).take(twinpage_campaign::either(4, 60));
        for at in [0, last].into_iter().chain(some.collect::<Vec<_>>()) {
            let copy = folder.join(format!("past-{at}.twin"));
            let past = go_back(&path, &keeps, Until::Call(operations[at].position), &copy).unwrap();
            assert!(past.calls <= at + 1);
            assert_past(&copy, &operations[..=at]);
            std::fs::remove_file(&copy).unwrap();
            // By the time of a call.
            let ms = operations[at].unix_ms.unwrap();
            let until = Until::Time(UNIX_EPOCH + Duration::from_millis(ms));
            go_back(&path, &keeps, until, &copy).unwrap();
            let later = operations
                .iter()
                .position(|operation| operation.unix_ms > Some(ms));
            assert_past(&copy, &operations[..later.unwrap_or(last + 1)]);
            std::fs::remove_file(&copy).unwrap();
        }
        // The region itself is as its calls say.
        let region = open(folder);
        for name in ["first", "second"] {
            assert_eq!(pile(&region, name).state().unwrap(), replayed(&operations, name));
        }
    }
}

#[test]
fn what_is_not_kept_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (path, keeps, copy) = (
        folder.join("pile.twin"),
        folder.join("kept"),
        folder.join("past.twin"),
    );
    let call = |region: Region, count: u64| {
        let pile = pile(&region, "first");
        let (calls, _) = pile.state().unwrap();
        (calls..calls + count).for_each(|number| pile.add(number, String::new()));
        region.close().unwrap();
    };
    call(open(folder), 5);
    call(when_free(|| Region::open(&path)), 3);
    call(open(folder), 2);
    let operations = kept(&path, &keeps).unwrap().operations;
    assert_eq!(operations.len(), 7, "{operations:#?}");
    let back = |until| go_back(&path, &keeps, until, &copy);
    // Before the calls that were not kept, and after them.
    for (at, calls) in [(4, 5), (5, 9), (6, 10)] {
        back(Until::Call(operations[at].position)).unwrap();
        let region = when_free(|| Region::open(&copy));
        assert_eq!(pile(&region, "first").state().unwrap().0, calls);
        region.close().unwrap();
        let why = back(Until::Call(operations[at].position))
            .unwrap_err()
            .to_string();
        assert!(why.contains("the past goes into a new file"), "{why}");
        std::fs::remove_file(&copy).unwrap();
    }
    let why = back(Until::Call(7)).unwrap_err().to_string();
    assert!(why.contains("no call at position 7 is kept"), "{why}");
    let why = back(Until::Time(UNIX_EPOCH)).unwrap_err().to_string();
    assert!(why.contains("nothing is kept so far back"), "{why}");
    // A folder of a later time.
    back(Until::Call(operations[2].position)).unwrap();
    let older = Region::options().keep_calls(&keeps, ALL);
    let region = when_free(|| older.clone().open(&copy));
    let why = region
        .object::<Pile>("first", |_| unreachable!())
        .unwrap_err()
        .to_string();
    assert!(why.contains("of a later time of this one"), "{why}");
    drop(region);
    std::fs::remove_file(&copy).unwrap();
    let _ = std::fs::remove_file(folder.join("past.twin.log"));
    // A file that is damaged, and one that is missing.
    let mut files: Vec<_> = std::fs::read_dir(&keeps)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "zst"));
    files.sort();
    let whole = std::fs::read(&files[1]).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    std::fs::write(&files[1], flipped).unwrap();
    let error = back(Until::Call(operations[6].position)).unwrap_err();
    assert!(
        matches!(&error, Error::Log { file, why } if *file == files[1] && why.contains("damaged")),
        "{error}"
    );
}

/// A folder takes about as many bytes as it may, and what it still has can be gone back to.
#[test]
fn the_oldest_calls_go_where_there_is_no_room() {
    const MOST: u64 = 3 << 20;
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let (path, keeps) = (folder.path().join("pile.twin"), folder.path().join("kept"));
    let options = Region::options().keep_calls(&keeps, MOST);
    let region = when_free(|| options.clone().open(&path));
    let handle = pile(&region, "first");
    let mut random = twinpage_campaign::random();
    for number in 0..25_000 {
        // What cannot be made smaller.
        let text = std::iter::repeat_with(|| random.char('\u{20}'..'\u{7f}')).take(400);
        handle.add(number, text.collect());
    }
    handle.sync().unwrap();
    let bytes: u64 = std::fs::read_dir(&keeps)
        .unwrap()
        .map(|file| std::os::unix::fs::MetadataExt::blocks(&file.unwrap().metadata().unwrap()) * 512)
        .sum();
    // A base, and what was called before the next one.
    assert!(bytes < 4 * MOST, "{bytes} bytes");
    let operations = kept(&path, &keeps).unwrap().operations;
    assert!(operations.len() < 24_000, "{} calls", operations.len());
    let copy = folder.path().join("past.twin");
    let middle = &operations[operations.len() - 10];
    go_back(&path, &keeps, Until::Call(middle.position), &copy).unwrap();
    drop(handle);
    region.close().unwrap();
    let region = when_free(|| Region::open(&copy));
    assert_eq!(pile(&region, "first").state().unwrap().0, 25_000 - 9);
}
