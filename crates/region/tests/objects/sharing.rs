//! Objects that other processes share: their calls, their ends, the end of the process that has the region open, and what
//! is sent that is no call.

// The methods of an object are public: its handle is for others.
#![allow(unreachable_pub)]

use crate::support::{again, talking, when_free};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout};
use std::time::{Duration, Instant};
use twinpage::collections::{String as Text, Vec as List};
use twinpage::objects::{operations, share};
use twinpage::{Error, Heap, Persist, Region, Update, control_socket};

const ROLE: &str = "TWINPAGE_TEST_SHARING";
const FILE: &str = "TWINPAGE_TEST_REGION";

#[derive(Persist)]
struct Account<'r> {
    rows: List<'r, u64>,
    notes: List<'r, Text<'r>>,
}

#[twinpage::object]
impl<'r> Account<'r> {
    fn new_in(u: &Update<'r>, rows: u64) -> Account<'r> {
        Account {
            rows: u.collect((0..rows).map(|_| 0)),
            notes: List::new_in(u.heap()),
        }
    }
    #[lane(rows)]
    pub fn add(row: &mut u64, by: u64) {
        *row += by;
    }
    pub fn note(&mut self, heap: Heap<'r>, text: String) {
        self.notes.push(Text::from_in(&text, heap));
    }
    pub fn bump(&mut self, row: usize) -> u64 {
        self.rows[row] += 1;
        self.rows[row]
    }
    pub fn rows(&self) -> Vec<u64> {
        self.rows.to_vec()
    }
    pub fn notes(&self) -> Vec<String> {
        self.notes.iter().map(|note| note.as_str().to_owned()).collect()
    }
}

mod other {
    use super::*;

    #[derive(Persist)]
    pub(super) struct Account {
        value: u64,
    }

    #[twinpage::object]
    impl Account {
        pub fn add(&mut self, by: u64) {
            self.value += by;
        }
    }
}

fn open(path: &Path) -> Region {
    when_free(|| Region::open(path))
}

fn account(region: &Region) -> AccountHandle {
    let account = region.object::<Account>("account", |u| Account::new_in(u, 3));
    account.unwrap()
}

fn shared(path: &Path) -> AccountHandle {
    share::<Account>(path, "account").unwrap()
}

/// Frees the object once those that shared it are seen to have gone.
fn free(region: &Region) {
    loop {
        match region.free_object("account") {
            Err(Error::Invalid(why)) if why.contains("shared by") => std::thread::yield_now(),
            other => return other.unwrap(),
        }
    }
}

/// Another process, in a role.
fn child(test: &str, role: &str, path: &Path) -> (Child, std::io::Lines<BufReader<ChildStdout>>) {
    talking(again(module_path!(), test).env(ROLE, role).env(FILE, path))
}

fn role() -> Option<PathBuf> {
    std::env::var_os(ROLE)?;
    Some(std::env::var_os(FILE)?.into())
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).unwrap();
}

#[test]
fn a_shared_object_takes_calls_as_its_own_process_makes_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("account.twin");
    let region = open(&path);
    let (own, theirs) = (account(&region), shared(&path));
    for number in 0..100 {
        theirs.add(1, 5);
        theirs.note(format!("note {number}"));
    }
    assert_eq!(theirs.bump(1).unwrap(), 501);
    assert_eq!(own.rows().unwrap(), [0, 501, 0]);
    assert_eq!(theirs.notes().unwrap().len(), 100);
    own.add(0, 2);
    assert_eq!(theirs.rows().unwrap(), [2, 501, 0]);
    // A panic is told as at home: at once, or by `sync`.
    let panicked = theirs.bump(9).unwrap_err();
    assert!(
        matches!(&panicked, Error::Panicked { object, method, .. } if object == "account" && method.starts_with("bump(")),
        "{panicked}"
    );
    theirs.add(9, 1);
    assert!(matches!(theirs.sync(), Err(Error::Panicked { .. })));
    theirs.sync().unwrap();
    // What is too long is told by the next call that answers, which is not made.
    theirs.note("x".repeat(1 << 20));
    theirs.add(2, 1); // not made either
    let long = theirs.bump(2).unwrap_err().to_string();
    assert!(long.contains("arguments of 1048"), "{long}");
    assert_eq!(theirs.bump(2).unwrap(), 1);
    // Several threads of one handle, and of another.
    std::thread::scope(|threads| {
        for handle in [theirs.clone(), theirs.clone(), shared(&path), own.clone()] {
            threads.spawn(move || (0..50).for_each(|_| assert!(handle.bump(2).unwrap() > 1)));
        }
    });
    assert_eq!(own.rows().unwrap(), [2, 501, 201]);
    let named = twinpage::thread::named("worker", || theirs.bump(0))
        .unwrap_err()
        .to_string();
    assert!(named.contains("a thread with a name"), "{named}");

    let held = region.free_object("account").unwrap_err().to_string();
    assert!(
        held.contains(&format!("shared by the processes [{}", std::process::id())),
        "{held}"
    );
    drop(theirs);
    free(&region);
    assert!(region.check().unwrap().is_sound());
    region.close().unwrap();
}

#[test]
fn what_cannot_be_shared_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("account.twin");
    let refused = |name: &str| share::<Account>(&path, name).unwrap_err().to_string();
    assert!(refused("account").contains("account.twin"));
    let region = open(&path);
    assert!(refused("account").contains("has no objects open"));
    let own = account(&region);
    assert!(refused("other").contains("no object \"other\" open"));
    let other = share::<other::Account>(&path, "account").unwrap_err().to_string();
    assert!(
        other.contains("add(by: u64)") && other.contains("the same build"),
        "{other}"
    );
    let theirs = shared(&path);
    own.bump(0).unwrap();
    region.close().unwrap();
    let closed = theirs.bump(0).unwrap_err().to_string();
    assert!(closed.contains("has ended or closed it"), "{closed}");
    theirs.add(0, 1); // in silence
    assert!(theirs.sync().is_err());
    // A process that another test begins may have the socket until it runs its own program.
    while !refused("account").contains("no program that can be asked") {
        std::thread::yield_now();
    }
}

#[test]
fn processes_that_share_an_object_are_killed_and_hold_nothing_then() {
    const NAME: &str = "processes_that_share_an_object_are_killed_and_hold_nothing_then";
    if let Some(path) = role() {
        let theirs = shared(&path);
        loop {
            theirs.add(1, 1);
            say(&theirs.bump(0).unwrap().to_string());
        }
    }
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("account.twin");
    let region = open(&path);
    let own = account(&region);
    let mut random = fastrand::Rng::new();
    for _ in 0..4 {
        let children = [child(NAME, "share", &path), child(NAME, "share", &path)];
        std::thread::sleep(Duration::from_millis(random.u64(5..40)));
        let mut acknowledged = 0;
        for (mut child, said) in children {
            // The first line is of a call that was made.
            let mut said = said
                .map_while(Result::ok)
                .filter_map(|line| line.parse::<u64>().ok());
            acknowledged = acknowledged.max(said.next().unwrap());
            child.kill().unwrap();
            child.wait().unwrap();
            acknowledged = said.fold(acknowledged, u64::max);
        }
        assert!(own.rows().unwrap()[0] >= acknowledged);
    }
    free(&region);
    assert!(region.check().unwrap().is_sound());
    region.close().unwrap();
}

#[test]
fn the_process_that_has_the_region_open_is_killed_and_what_it_answered_is_kept() {
    const NAME: &str = "the_process_that_has_the_region_open_is_killed_and_what_it_answered_is_kept";
    if let Some(path) = role() {
        let region = open(&path);
        let _own = account(&region);
        say("open");
        loop {
            std::thread::park();
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("account.twin");
    let (mut holder, mut said) = child(NAME, "hold", &path);
    assert!(said.any(|line| line.unwrap() == "open"));
    let theirs = shared(&path);
    theirs.add(1, 7);
    let told = when_free(|| twinpage::objects::list(&path));
    let holders = told[0].holders.join(", ");
    assert!(
        holders.contains(&holder.id().to_string())
            && holders.contains(&format!("process {}", std::process::id())),
        "{holders}"
    );
    for _ in 0..10 {
        theirs.bump(0).unwrap();
    }
    holder.kill().unwrap();
    holder.wait().unwrap();
    let ended = theirs.bump(0).unwrap_err().to_string();
    assert!(ended.contains("share it again"), "{ended}");
    let region = open(&path);
    assert_eq!(account(&region).rows().unwrap(), [10, 7, 0]);
    region.close().unwrap();
}

/// The socket of a region.
fn address(path: &Path) -> SocketAddr {
    let found = std::fs::metadata(path).unwrap();
    let name = format!("twinpage-region-{:x}-{:x}", found.dev(), found.ino());
    SocketAddr::from_abstract_name(name.as_bytes()).unwrap()
}

/// A connection on which the request to share was answered.
fn connect(path: &Path) -> UnixStream {
    let mut stream = UnixStream::connect_addr(&address(path)).unwrap();
    let functions = <Account<'static> as twinpage::objects::Object>::FUNCTIONS;
    let functions: Vec<_> = functions.iter().map(|function| function.signature).collect();
    let request = format!("{{\"ask\":\"share\",\"object\":\"account\",\"functions\":{functions:?}}}\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    BufReader::new(&stream).read_line(&mut answer).unwrap();
    assert!(answer.contains("\"id\""), "{answer}");
    stream
}

/// Sends frames, ends, and says how much was answered.
fn send(path: &Path, frames: &[Vec<u8>]) -> Vec<u8> {
    let mut stream = connect(path);
    for frame in frames {
        let whole = [&(frame.len() as u32).to_le_bytes()[..], frame].concat();
        if stream.write_all(&whole).is_err() {
            break; // it was let go
        }
    }
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answered = Vec::new();
    let _ = stream.read_to_end(&mut answered);
    answered
}

/// A call as it is sent: what is asked (0 deferrable, 1 instant, 2 one that reads), function, lane, arguments.
fn call(asked: u8, function: u16, lane: Option<u64>, arguments: &[u8]) -> Vec<u8> {
    postcard::to_stdvec(&(asked, function, lane, arguments)).unwrap()
}

/// A byte now and then, for as long as they are taken: how long that is.
fn asks_slowly(stream: &UnixStream) -> Duration {
    let began = Instant::now();
    while (&*stream).write_all(b" ").is_ok() && began.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(50));
    }
    began.elapsed()
}

#[test]
fn a_request_has_one_deadline_and_a_close_does_not_wait_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("account.twin");
    let region = open(&path);
    let slow = UnixStream::connect_addr(&address(&path)).unwrap();
    let asked = std::thread::spawn(move || asks_slowly(&slow));
    control_socket::statistics(&path).unwrap(); // after the other, which has a few seconds
    assert!(asked.join().unwrap() < Duration::from_secs(20));
    let slow = UnixStream::connect_addr(&address(&path)).unwrap();
    let asked = std::thread::spawn(move || asks_slowly(&slow));
    std::thread::sleep(Duration::from_millis(200));
    let began = Instant::now();
    region.close().unwrap();
    assert!(
        began.elapsed() < Duration::from_millis(1500),
        "{:?}",
        began.elapsed()
    );
    asked.join().unwrap();
}

/// A process of the same user that says what is not so, as one in another container may.
#[test]
fn a_backup_that_is_not_there_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("account.twin");
    let to = folder.path().join("copy.twin");
    open(&path).close().unwrap();
    let other = std::os::unix::net::UnixListener::bind_addr(&address(&path)).unwrap();
    let region = open(&path); // nobody can ask about it, and all else is as ever
    let answered = std::thread::spawn(move || {
        let (mut stream, _) = other.accept().unwrap();
        let mut request = String::new();
        BufReader::new(&stream).read_line(&mut request).unwrap();
        stream.write_all(b"{\"epoch\": 17}\n").unwrap();
    });
    let why = control_socket::backup(&path, &to).unwrap_err().to_string();
    assert!(why.contains("no file is") && why.contains("copy.twin"), "{why}");
    answered.join().unwrap();
    region.close().unwrap();
}

#[test]
fn what_is_no_call_is_refused_and_never_logged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("account.twin");
    let region = open(&path);
    let own = account(&region);
    own.bump(0).unwrap();
    region.checkpoint().unwrap();
    let sync = vec![3];
    for (what, frame) in [
        ("no such function", call(0, 99, None, &[1])),
        ("one to be waited for", call(0, 2, None, &[1])),
        ("one not to be waited for", call(1, 1, None, &[1, b'x'])),
        ("no lane", call(0, 0, None, &[1])),
        ("a lane", call(1, 2, Some(1), &[1])),
        ("no arguments", call(0, 0, Some(1), &[])),
        ("too many", call(0, 0, Some(1), &[1, 1])),
        ("text that is none", call(0, 1, None, &[2, 255, 255])),
        ("one that changes, as one that reads", call(2, 2, None, &[1])),
    ] {
        let answered = send(&path, &[frame, sync.clone()]);
        let text = String::from_utf8_lossy(&answered);
        let is_told = ["no method", "the call has", "cannot be read", "no operation"]
            .iter()
            .any(|why| text.contains(why));
        assert!(is_told, "{what}: {text:?}");
    }
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..100 {
        let frames: Vec<_> = (0..3)
            .map(|_| (0..random.usize(..30)).map(|_| random.u8(..)).collect::<Vec<_>>())
            .filter(|frame| frame.first().is_none_or(|&first| first > 2)) // no call by chance
            .collect();
        send(&path, &frames);
    }
    assert_eq!(
        send(&path, &[call(0, 0, Some(1), &[9]), sync]).len(),
        6,
        "a call that is one"
    );
    let logged = operations(&path).unwrap().operations;
    let logged: Vec<_> = logged.iter().map(ToString::to_string).collect();
    assert_eq!(logged, ["account.add(rows[1], by: 9)"]);
    assert_eq!(own.rows().unwrap(), [1, 9, 0]);
    region.close().unwrap();
}
