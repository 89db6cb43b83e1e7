//! Persistent objects where calls cannot be run: no room on the medium, a log full of calls of other objects, types
//! that have changed.

#![allow(unreachable_pub)]

use crate::support::{again, folders, on_small_disk, when_free};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use twinpage::collections::Vec as List;
use twinpage::objects::{operations, share, withdraw};
use twinpage::{Error, Persist, Region, Update};

const FILE: &str = "TWINPAGE_TEST_REGION";
const DISK_BYTES: usize = 24 << 20;
const LONG: usize = 256 << 10;

static BEGUN: AtomicBool = AtomicBool::new(false);

/// What an earlier build passed.
#[derive(Serialize, Deserialize)]
pub struct Note(u8);

/// What serde writes without saying which it is.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
pub enum Either {
    Number(u64),
    Text(String),
}

/// What serde leaves out where there is nothing.
#[derive(Serialize, Deserialize)]
pub struct Sparse {
    #[serde(skip_serializing_if = "Option::is_none")]
    more: Option<u64>,
    calls: u64,
}

#[derive(Persist)]
#[persist(was = "objects::refused::later::Pile")]
struct Pile<'r> {
    calls: u64,
    bytes: List<'r, u64>,
}

#[twinpage::object]
impl<'r> Pile<'r> {
    fn of_calls(u: &Update<'r>, calls: u64) -> Pile<'r> {
        Pile {
            calls,
            bytes: List::new_in(u.heap()),
        }
    }
    pub fn grow(&mut self, bytes: usize) -> u64 {
        self.bytes.resize(bytes / 8, 7);
        self.calls
    }
    pub fn add(&mut self, _long: Vec<u8>) -> u64 {
        self.calls += 1;
        self.calls
    }
    pub fn later(&mut self, _long: Vec<u8>) {
        self.calls += 1000;
    }
    pub fn note(&mut self, note: Note) {
        self.calls += u64::from(note.0);
    }
    pub fn either(&mut self, either: Either) {
        self.calls += match either {
            Either::Number(number) => number,
            Either::Text(text) => text.len() as u64,
        };
    }
    pub fn sparse(&mut self, sparse: Sparse) -> u64 {
        self.calls += sparse.calls + sparse.more.unwrap_or(0);
        self.calls
    }
    /// As a panic does in a program that does not unwind.
    #[deferrable]
    pub fn abort(&mut self) {
        self.calls += 1;
        std::process::abort();
    }
    /// Begins, and never ends.
    #[deferrable]
    pub fn hang(&mut self) {
        BEGUN.store(true, Ordering::SeqCst);
        std::thread::park();
    }
    pub fn calls(&self) -> u64 {
        self.calls
    }
}

mod later {
    use super::{Deserialize, List, Persist, Serialize};

    /// With another field.
    #[derive(Serialize, Deserialize)]
    pub struct Note(String);

    #[derive(Persist)]
    #[persist(was = "objects::refused::Pile")]
    pub(super) struct Pile<'r> {
        calls: u64,
        bytes: List<'r, u64>,
    }

    #[twinpage::object]
    impl Pile<'_> {
        pub fn note(&mut self, note: Note) {
            self.calls += note.0.len() as u64;
            self.bytes.clear();
        }
    }
}

fn pile(region: &Region, name: &str) -> Result<PileHandle, Error> {
    region.object::<Pile>(name, |u| Pile::of_calls(u, 0))
}

/// A child of a test, whose region is in `path`.
fn child(test: &str, path: &Path) -> Command {
    let mut command = again(module_path!(), test);
    command.env(FILE, path);
    command
}

/// The region's file, in a child.
fn file() -> Option<PathBuf> {
    Some(std::env::var_os(FILE)?.into())
}

/// Runs the child of a test until it says that calls are in the log and not in a checkpoint, and kills it.
fn leave_calls(test: &str, path: &Path) {
    let mut child = child(test, path).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(
        lines.any(|line| line.unwrap().ends_with("killed here")),
        "the child ended"
    );
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Makes what was appended durable, and says so while the first call of it, `hang`, runs.
fn hang(handle: &PileHandle) {
    std::thread::scope(|scope| {
        scope.spawn(|| handle.sync());
        while !BEGUN.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        println!("\nkilled here");
    });
}

#[test]
fn an_instant_call_that_finds_no_room_fails_and_does_not_run_later() {
    const NAME: &str = "an_instant_call_that_finds_no_room_fails_and_does_not_run_later";
    if let Some(path) = file() {
        return find_no_room(&path);
    }
    let folder = tempfile::tempdir().unwrap();
    on_small_disk(
        &child(NAME, Path::new("disk/pile.twin")),
        folder.path(),
        DISK_BYTES,
    );
}

fn find_no_room(path: &Path) {
    let region = when_free(|| Region::open(path));
    let handle = pile(&region, "pile").unwrap();
    // More than the file can ever hold.
    handle.grow(2 * DISK_BYTES).unwrap();
    assert!(matches!(region.checkpoint(), Err(Error::Full(_))));
    let mut calls = 0;
    let refused = loop {
        match handle.add(vec![7; LONG]) {
            Ok(counted) => {
                calls += 1;
                assert_eq!(counted, calls);
            }
            Err(error) => break error,
        }
    };
    assert!(calls >= 16, "the log has room for {calls} calls only");
    let refused = refused.to_string();
    assert!(refused.contains("full"), "{refused}");
    // One waits in the group behind it, and each that is refused is another that must not run.
    handle.later(vec![7; LONG]);
    for _ in 0..3 {
        handle.add(vec![7; LONG]).unwrap_err();
    }
    // Less memory in use is no help: the call that says so needs room, too.
    handle.grow(0).unwrap_err();
    give_more_room();
    assert_eq!(handle.add(vec![7; LONG]).unwrap(), calls + 1001);
    region.close().unwrap();
    let region = when_free(|| Region::open(path));
    assert_eq!(pile(&region, "pile").unwrap().calls().unwrap(), calls + 1001);
}

/// The disk is given more room.
fn give_more_room() {
    let size = format!("remount,size={}", 8 * DISK_BYTES);
    let done = Command::new("mount")
        .args(["-o", &size, "disk"])
        .status()
        .unwrap();
    assert!(done.success());
}

#[test]
fn a_log_full_of_calls_of_other_objects_names_them_and_goes_on_when_they_are_opened() {
    const NAME: &str = "a_log_full_of_calls_of_other_objects_names_them_and_goes_on_when_they_are_opened";
    if let Some(path) = file() {
        let region = when_free(|| Region::open(&path));
        let (first, second) = (pile(&region, "first").unwrap(), pile(&region, "second").unwrap());
        second.hang();
        (0..3).for_each(|_| first.later(Vec::new()));
        return hang(&first);
    }
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("pile.twin");
    leave_calls(NAME, &path);
    let region = when_free(|| Region::open(&path));
    let third = pile(&region, "third").unwrap();
    let refused = loop {
        if let Err(error) = third.add(vec![7; LONG]) {
            break error.to_string();
        }
    };
    assert!(refused.contains("open \"first\", \"second\""), "{refused}");
    let (before, first) = (third.calls(), pile(&region, "first"));
    assert!(before.is_err());
    // Its calls were run when it was opened; `second`'s first would hang.
    let first = first.unwrap();
    let refused = first.calls().unwrap_err().to_string();
    assert!(refused.contains("open \"second\""), "{refused}");
    drop((first, third));
    region.close().unwrap_err();
    // What was left is still refused or run, not forgotten.
    let region = when_free(|| Region::open(&path));
    assert_eq!(pile(&region, "first").unwrap().calls().unwrap(), 3000);
}

#[test]
fn calls_whose_arguments_have_another_type_now_are_refused_by_name() {
    const NAME: &str = "calls_whose_arguments_have_another_type_now_are_refused_by_name";
    if let Some(path) = file() {
        let region = when_free(|| Region::open(&path));
        let (handle, other) = (pile(&region, "pile").unwrap(), pile(&region, "other").unwrap());
        other.hang();
        handle.note(Note(200));
        return hang(&handle);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pile.twin");
    leave_calls(NAME, &path);
    let region = when_free(|| Region::open(&path));
    let refused = region
        .object::<later::Pile>("pile", |_| unreachable!("it is there"))
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("the object \"pile\" to `note(note: Note)` cannot be read"),
        "{refused}"
    );
    // The build that made them runs them.
    assert_eq!(pile(&region, "pile").unwrap().calls().unwrap(), 200);
}

#[test]
fn calls_whose_arguments_cannot_be_read_again_are_refused_when_they_are_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pile.twin");
    let region = when_free(|| Region::open(&path));
    let handle = pile(&region, "pile").unwrap();
    let shared = share::<Pile>(&path, "pile").unwrap();
    let names = |why: &str, signature: &str| {
        assert!(
            why.contains("the object \"pile\"") && why.contains(signature) && why.contains("untagged"),
            "{why}"
        );
    };
    for either in [Either::Number(7), Either::Text("seven".to_owned())] {
        let call = std::panic::AssertUnwindSafe(|| handle.either(either));
        let why = std::panic::catch_unwind(call).unwrap_err();
        names(why.downcast_ref::<String>().unwrap(), "`either(either: Either)`");
    }
    let nothing = || Sparse { more: None, calls: 3 };
    for handle in [&handle, &shared] {
        let why = handle.sparse(nothing()).unwrap_err().to_string();
        names(&why, "`sparse(sparse: Sparse) -> u64`");
    }
    let some = Sparse {
        more: Some(1),
        calls: 3,
    };
    assert_eq!(handle.sparse(some).unwrap(), 4);
    // Nothing of the others is in the log.
    let logged = operations(&path).unwrap().operations;
    let methods: Vec<_> = logged.iter().map(|operation| &*operation.method).collect();
    assert_eq!(methods, ["sparse"]);
}

#[test]
fn a_call_that_ends_each_opening_is_taken_out_of_the_log() {
    const NAME: &str = "a_call_that_ends_each_opening_is_taken_out_of_the_log";
    if let Some(path) = file() {
        let region = when_free(|| Region::open(&path));
        let handle = pile(&region, "pile").unwrap();
        handle.note(Note(3));
        handle.abort();
        handle.note(Note(40));
        handle.sync().unwrap();
        unreachable!("it has ended");
    }
    for folder in folders() {
        let path = folder.path().join("pile.twin");
        let life = || {
            child(NAME, &path)
                .stderr(Stdio::null())
                .status()
                .unwrap()
                .signal()
        };
        assert_eq!(life(), Some(libc::SIGABRT));
        let logged = operations(&path).unwrap().operations;
        assert_eq!(logged.len(), 3);
        // It comes again when the object is opened, before anything else is called.
        assert_eq!(life(), Some(libc::SIGABRT));
        assert_eq!(operations(&path).unwrap().operations.len(), 3);

        let ends = logged.iter().find(|call| call.method == "abort").unwrap();
        let why = withdraw(&path, ends.position + 8).unwrap_err().to_string();
        assert!(why.contains("no call at position"), "{why}");
        let withdrawn = withdraw(&path, ends.position).unwrap();
        assert_eq!((&*withdrawn.operation.method, withdrawn.left), ("abort", 2));
        let region = when_free(|| Region::open(&path));
        let why = withdraw(&path, ends.position).unwrap_err().to_string();
        assert!(why.contains("in use"), "{why}");
        let handle = pile(&region, "pile").unwrap();
        assert_eq!(handle.calls().unwrap(), 43);
        region.close().unwrap();
        let why = withdraw(&path, ends.position).unwrap_err().to_string();
        assert!(why.contains("no call at position"), "{why}");
    }
}
