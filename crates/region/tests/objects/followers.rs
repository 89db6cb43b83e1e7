//! A copy of a region follows the calls of another process, is killed and goes on, and takes over when that is killed.
//!
//! Its seed repeats the choices of a failure; `TWINPAGE_LONG` makes it many rounds.

use crate::recorded::{record, survives_cuts};
use crate::support::{again, folders, name, on_small_disk, talking, when_free};
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout};
use std::time::Duration;
use twinpage::collections::Vec as List;
use twinpage::objects::Follower;
use twinpage::{Heap, Options, Persist, Region, Update};

const ROLE: &str = "TWINPAGE_TEST_ROLE";
const FOLDER: &str = "TWINPAGE_TEST_FOLDER";
/// What a leader calls before it pauses: less than a log holds, however slow its follower is.
const CALLS: u64 = 60_000;
const ROWS: u64 = 5;
const DISK: usize = 64 << 20;

#[derive(Persist)]
struct Ledger<'r> {
    sums: List<'r, u64>,
    /// The calls so far, in an order that matters.
    hash: u64,
    notes: List<'r, twinpage::collections::String<'r>>,
}

#[twinpage::object]
#[allow(unreachable_pub)]
impl<'r> Ledger<'r> {
    fn new_in(u: &Update<'r>, rows: u64) -> Ledger<'r> {
        Ledger {
            sums: u.collect((0..rows).map(|_| 0)),
            hash: 0,
            notes: List::new_in(u.heap()),
        }
    }
    pub fn add(&mut self, heap: Heap<'r>, number: u64) {
        self.sums[(number % ROWS) as usize] += number;
        self.hash = (self.hash ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        if number.is_multiple_of(100) {
            self.notes
                .push(twinpage::collections::String::from_in("a hundred more", heap));
        }
    }
    pub fn bump(&mut self, number: u64) -> u64 {
        self.hash = (self.hash ^ number).rotate_left(9);
        self.hash
    }
    pub fn all(&self) -> (Vec<u64>, u64, usize) {
        (self.sums.iter().copied().collect(), self.hash, self.notes.len())
    }
}

/// An object whose methods take no memory.
#[derive(Persist)]
struct Fixed {
    sums: [u64; 8],
    hash: u64,
}

#[twinpage::object]
#[allow(unreachable_pub)]
impl Fixed {
    #[lane(sums)]
    pub fn add(sum: &mut u64, number: u64) {
        *sum = sum.rotate_left(7) ^ number;
    }
    pub fn mix(&mut self, number: u64) {
        self.hash =
            (self.hash ^ number ^ self.sums[(number % 8) as usize]).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    pub fn bump(&mut self, number: u64) -> u64 {
        self.hash = (self.hash ^ number).rotate_left(9);
        self.hash
    }
    /// Its bytes, as they are in the region.
    pub fn bytes(&self) -> Vec<u8> {
        let at = std::ptr::from_ref(self).cast::<u8>();
        // SAFETY: an object of numbers has no padding, and nothing writes to it while a method of it runs.
        unsafe { std::slice::from_raw_parts(at, size_of::<Fixed>()) }.to_vec()
    }
}

fn fixed(region: &Region) -> FixedHandle {
    let make = |_: &Update<'_>| Fixed {
        sums: [0; 8],
        hash: 0,
    };
    region.object::<Fixed>("fixed", make).unwrap()
}

/// Makes calls of which the last is acknowledged, says the object's bytes, and waits to be told to go on.
fn lead_in_steps(folder: &Path) {
    let region = open(&folder.join("leader.twin"));
    let fixed = fixed(&region);
    region.backup(folder.join("copy.twin")).unwrap();
    say("begun");
    let mut random = twinpage_campaign::random();
    for step in 0.. {
        for _ in 0..random.u64(0..300) {
            match random.bool() {
                true => fixed.add(random.usize(0..8), random.u64(..)),
                false => fixed.mix(random.u64(..)),
            }
        }
        fixed.bump(step).unwrap();
        say(&format!("bytes {:?}", fixed.bytes().unwrap()));
        if std::io::stdin().read_line(&mut String::new()).unwrap() == 0 {
            return; // the follower has gone
        }
    }
}

/// The copy is stopped at each commit that was acknowledged to the leader's caller.
#[test]
fn a_copy_has_the_leaders_bytes_at_each_acknowledged_commit() {
    const NAME: &str = "a_copy_has_the_leaders_bytes_at_each_acknowledged_commit";
    if let Some(folder) = std::env::var_os(FOLDER) {
        return lead_in_steps(&PathBuf::from(folder));
    }
    for folder in folders() {
        let mut command = again(module_path!(), NAME);
        let command = command.env(FOLDER, folder.path());
        let (mut leader, mut said) = talking(command.stdin(std::process::Stdio::piped()));
        let mut go_on = leader.stdin.take().unwrap();
        assert!(said.any(|line| line.unwrap().ends_with("begun")));
        let region = open(&folder.path().join("copy.twin"));
        let mut follower = region.follow(folder.path().join("leader.twin")).unwrap();
        let copy = fixed(&region);
        for step in 0..twinpage_campaign::either(60, 3000) {
            let mut lines = said.by_ref().map_while(Result::ok);
            let line = lines.find(|line| line.starts_with("bytes ")).unwrap();
            assert!(follower.catch_up().unwrap() > 0);
            assert_eq!(line, format!("bytes {:?}", copy.bytes().unwrap()), "step {step}");
            writeln!(go_on).unwrap();
        }
        kill(leader);
    }
}

fn options() -> Options {
    Region::options().every(Duration::from_millis(3))
}

fn open(path: &Path) -> Region {
    when_free(|| options().open(path))
}

/// After a power cut, and one that took what was flushed as well: a page that cannot be read is an error of the opening.
/// Touched unread, it would end all tests at once (SIGBUS).
fn open_after_cut(path: &Path) -> Region {
    when_free(|| options().checked().open(path))
}

fn ledger(region: &Region) -> LedgerHandle {
    region
        .object::<Ledger>("ledger", |u| Ledger::new_in(u, ROWS))
        .unwrap()
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).unwrap();
}

/// Makes the region, a copy of it, and calls; says each that was acknowledged.
fn lead(folder: &Path) {
    let region = open(&folder.join("leader.twin"));
    let ledger = ledger(&region);
    ledger.add(1);
    ledger.sync().unwrap();
    region.backup(folder.join("copy.twin")).unwrap();
    say("acknowledged 1");
    for number in 2..CALLS {
        ledger.add(number);
        if number % 37 == 0 {
            ledger.bump(number).unwrap();
            say(&format!("acknowledged {number}"));
        }
    }
    say("done");
    std::thread::park();
}

fn following(folder: &Path) -> (Region, Follower, LedgerHandle) {
    followed_by(open(&folder.join("copy.twin")), folder)
}

fn followed_by(region: Region, folder: &Path) -> (Region, Follower, LedgerHandle) {
    let follower = region.follow(folder.join("leader.twin")).unwrap();
    let ledger = ledger(&region);
    (region, follower, ledger)
}

/// Follows, and says how far it is.
fn trail(folder: &Path) {
    let (_region, mut follower, _) = following(folder);
    loop {
        say(&format!("ran {}", follower.catch_up().unwrap()));
    }
}

/// Another process in a role, and what it says.
fn process(test: &str, role: &str, folder: &Path) -> (Child, std::io::Lines<BufReader<ChildStdout>>) {
    talking(again(module_path!(), test).env(ROLE, role).env(FOLDER, folder))
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The object after the calls up to some number, at least `least`: which number that is.
fn replayed(all: &(Vec<u64>, u64, usize), least: u64) -> u64 {
    let (mut sums, mut hash, mut notes) = (vec![0; ROWS as usize], 0_u64, 0);
    for number in 1..CALLS {
        sums[(number % ROWS) as usize] += number;
        hash = (hash ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        notes += usize::from(number.is_multiple_of(100));
        if number >= least && (&sums, &hash, &notes) == (&all.0, &all.1, &all.2) {
            return number;
        }
        if number % 37 == 0 {
            hash = (hash ^ number).rotate_left(9);
            if number >= least && (&sums, &hash, &notes) == (&all.0, &all.1, &all.2) {
                return number;
            }
        }
    }
    panic!("no sequence of the calls, at least {least} of them, ends in {all:?}");
}

/// A leader that calls, and starts another process that follows it, and that it waits for now and then.
fn lead_with_follower(test: &str, folder: &Path) {
    let region = open(&folder.join("leader.twin"));
    let ledger = ledger(&region);
    ledger.add(1);
    ledger.sync().unwrap();
    region.backup(folder.join("copy.twin")).unwrap();
    let (follower, mut ran) = process(test, "follow", folder);
    say("acknowledged 1");
    for number in 2..37 * twinpage_campaign::either(20, 200) {
        ledger.add(number);
        if number % 37 == 0 {
            ledger.bump(number).unwrap();
            say(&format!("acknowledged {number}"));
            assert!(ran.any(|line| line.unwrap() == "ran"), "the follower ended");
        }
    }
    kill(follower);
    std::mem::forget(region); // closing ends the log, and the copy may be behind
}

/// The log that the copy was to follow has ended with calls that it has not run.
#[test]
fn a_copy_that_missed_the_end_of_a_log_is_refused() {
    const NAME: &str = "a_copy_that_missed_the_end_of_a_log_is_refused";
    if let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) {
        for life in 1..3 {
            let region = open(&folder.join("leader.twin"));
            let ledger = ledger(&region);
            ledger.bump(life).unwrap();
            if life == 1 {
                region.backup(folder.join("copy.twin")).unwrap();
                ledger.bump(7).unwrap();
                drop(ledger);
                region.close().unwrap();
            } else {
                say("ready");
                std::thread::park();
            }
        }
    }
    for folder in folders() {
        let (leader, mut said) = process(NAME, "", folder.path());
        assert!(said.any(|line| line.unwrap() == "ready"));
        let region = open(&folder.path().join("copy.twin"));
        let mut follower = region.follow(folder.path().join("leader.twin")).unwrap();
        let _ledger = ledger(&region);
        let error = follower.catch_up().unwrap_err();
        assert!(error.to_string().contains("the region was closed"), "{error}");
        assert!(!follower.take_over().unwrap(), "the leader lives");
        kill(leader);
        assert!(
            follower.take_over().is_err(),
            "it has not all that was acknowledged"
        );
    }
}

/// After a power cut: opens the leader, which has all that was acknowledged, and says what it has.
fn lead_after_cut(folder: &Path, acknowledged: u64) {
    let region = open_after_cut(&folder.join("leader.twin"));
    let all = ledger(&region).all().unwrap();
    replayed(&all, acknowledged);
    say(&format!("has {all:?}"));
    std::thread::park();
}

/// The leader has all that was acknowledged, and the copy nothing that the leader has not: it comes to the same.
#[test]
fn a_power_cut_at_any_instant_loses_neither_leader_nor_copy() {
    const NAME: &str = "a_power_cut_at_any_instant_loses_neither_leader_nor_copy";
    if let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) {
        let role = std::env::var(ROLE).unwrap_or_default();
        return match role.as_str() {
            "" => lead_with_follower(NAME, &folder),
            "follow" => {
                let (_region, mut follower, _) = following(&folder);
                loop {
                    if follower.catch_up().unwrap() > 0 {
                        say("ran");
                    }
                }
            }
            acknowledged => lead_after_cut(&folder, acknowledged.parse().unwrap()),
        };
    }
    let folder = tempfile::tempdir().unwrap();
    let test = name(module_path!(), NAME);
    let Some(run) = record(&test, folder.path(), (FOLDER, folder.path().as_os_str())) else {
        return;
    };
    let files = ["copy.twin", "leader.twin", "leader.twin.log"];
    survives_cuts(
        &run,
        &files,
        twinpage_campaign::either(30, 1000),
        |folder, last| {
            let (leader, mut said) = process(NAME, &last.unwrap_or(1).to_string(), folder.path());
            let has = said
                .by_ref()
                .map_while(Result::ok)
                .find(|line| line.starts_with("has "));
            let has = has.unwrap();
            let copy = open_after_cut(&folder.path().join("copy.twin"));
            let (copy, mut follower, ledger) = followed_by(copy, folder.path());
            follower.catch_up().unwrap();
            assert_eq!(format!("has {:?}", ledger.all().unwrap()), has);
            drop(follower);
            copy.close().unwrap();
            kill(leader);
        },
    );
}

#[test]
fn a_copy_follows_is_killed_goes_on_and_takes_over() {
    const NAME: &str = "a_copy_follows_is_killed_goes_on_and_takes_over";
    if let (Ok(role), Some(folder)) = (std::env::var(ROLE), std::env::var_os(FOLDER).map(PathBuf::from)) {
        return if role == "lead" {
            lead(&folder)
        } else {
            trail(&folder)
        };
    }
    let rounds = twinpage_campaign::either(3, 60);
    let mut random = twinpage_campaign::random();
    for round in 0..2 * rounds {
        let folder = &folders()[round % 2];
        let (leader, mut said) = process(NAME, "lead", folder.path());
        let mut acknowledged = 0;
        let mut note = |line: &str| {
            let number = line
                .strip_prefix("acknowledged ")
                .and_then(|number| number.parse().ok());
            acknowledged = number.unwrap_or(acknowledged);
            number.is_some()
        };
        while !note(&said.next().unwrap().unwrap()) {}
        // A follower that is killed at some instant.
        let (trailing, mut ran) = process(NAME, "follow", folder.path());
        let mut wanted = random.usize(1..60);
        while wanted > 0 {
            wanted -= usize::from(ran.next().unwrap().unwrap().starts_with("ran "));
        }
        kill(trailing);
        // Another goes on, while the leader calls.
        let (region, mut follower, ledger) = following(folder.path());
        assert!(!follower.take_over().unwrap(), "the leader lives");
        for _ in 0..random.usize(1..200) {
            if !note(&said.next().unwrap().unwrap()) {
                break;
            }
            follower.catch_up().unwrap();
        }
        kill(leader);
        said.map_while(Result::ok).for_each(|line| {
            note(&line);
        });
        while !follower.take_over().unwrap() {
            std::thread::sleep(Duration::from_millis(1)); // its last thread is about to end
        }
        let all = ledger.all().unwrap();
        let number = replayed(&all, acknowledged);
        drop(follower);
        region.close().unwrap();

        // The leader, opened again, has the same content; the copy works without it.
        let path = folder.path().join("leader.twin");
        let again = open(&path);
        assert_eq!(
            self::ledger(&again).all().unwrap(),
            all,
            "round {round}, after call {number}"
        );
        drop(again);
        let region = open(&folder.path().join("copy.twin"));
        let ledger = self::ledger(&region);
        ledger.add(5);
        let (sums, ..) = ledger.all().unwrap();
        assert_eq!(sums[0], all.0[0] + 5);
        let report = region.check().unwrap();
        assert!(
            report.damage.is_empty() && report.leaked_blocks == 0,
            "{report:?}"
        );
        region.close().unwrap();
    }
}

#[test]
fn what_cannot_be_followed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [leader, copy] = ["leader.twin", "copy.twin"].map(|name| folder.path().join(name));
    let region = open(&leader);
    let handle = ledger(&region);
    handle.add(1);
    handle.sync().unwrap();
    let why = region.follow(&leader).unwrap_err().to_string();
    assert!(why.contains("no fresh backup"), "{why}");
    region.backup(&copy).unwrap();
    region.close().unwrap();

    let region = open(&copy);
    let mut follower = region.follow(&leader).unwrap();
    let handle = ledger(&region);
    assert_eq!(follower.catch_up().unwrap(), 0);
    let why = handle.bump(1).unwrap_err().to_string();
    assert!(why.contains("follows another"), "{why}");
    drop(follower);
    region.close().unwrap();
    // It still follows, also when `follow` is not called.
    let region = open(&copy);
    let why = ledger(&region).bump(1).unwrap_err().to_string();
    assert!(why.contains("follows another"), "{why}");
    region.close().unwrap();

    // The leader went on without a follower, and closed: its calls are gone with its log.
    let region = open(&leader);
    ledger(&region).bump(7).unwrap();
    region.close().unwrap();
    let region = open(&copy);
    let mut follower = region.follow(&leader).unwrap();
    let _handle = ledger(&region);
    let why = follower.catch_up().unwrap_err().to_string();
    assert!(why.contains("begin again with a new backup"), "{why}");
}

/// A leader that made some calls, each step acknowledged, and was killed; a copy that has run those of the first step.
fn led_in_steps(
    test: &str,
    folder: &Path,
    steps: usize,
    mut after: impl FnMut(usize),
) -> (Region, Follower, FixedHandle) {
    let mut command = again(module_path!(), test);
    let command = command.env(FOLDER, folder).env_remove(ROLE);
    let (mut leader, mut said) = talking(command.stdin(std::process::Stdio::piped()));
    let mut go_on = leader.stdin.take().unwrap();
    let mut wait_for = |what: &str| assert!(said.any(|line| line.unwrap().contains(what)));
    wait_for("begun");
    let region = open(&folder.join("copy.twin"));
    let mut follower = region.follow(folder.join("leader.twin")).unwrap();
    let copy = fixed(&region);
    for step in 0..steps {
        wait_for("bytes ");
        if step == 0 {
            assert!(follower.catch_up().unwrap() > 0);
        }
        after(step);
        writeln!(go_on).unwrap();
    }
    wait_for("bytes ");
    kill(leader);
    (region, follower, copy)
}

/// What is damaged ends no log in silence: calls behind it were acknowledged.
#[test]
fn a_damaged_log_is_not_taken_over_from() {
    const NAME: &str = "a_damaged_log_is_not_taken_over_from";
    if let Some(folder) = std::env::var_os(FOLDER) {
        return lead_in_steps(&PathBuf::from(folder));
    }
    for folder in folders() {
        let log = folder.path().join("leader.twin.log");
        let mut read = Vec::new();
        let (_region, mut follower, copy) = led_in_steps(NAME, folder.path(), 2, |_| {
            read.push(std::fs::read(&log).unwrap());
        });
        // The first byte of the second step's calls, which are not followed yet.
        let mut damaged = std::fs::read(&log).unwrap();
        let at = (0..damaged.len()).find(|&at| read[0][at] != read[1][at]).unwrap();
        damaged[at] ^= 1;
        std::fs::write(&log, &damaged).unwrap();
        let refused = loop {
            match follower.take_over() {
                Ok(false) => std::thread::yield_now(), // its last thread is about to end
                other => break other.unwrap_err().to_string(),
            }
        };
        assert!(refused.contains("leader.twin.log"), "{refused}");
        assert!(copy.bump(1).is_err(), "it has not all that was acknowledged");
        damaged[at] ^= 1;
        std::fs::write(&log, &damaged).unwrap();
        assert!(follower.take_over().unwrap());
        copy.bump(1).unwrap();
    }
}

/// A take-over that finds no room has not happened, and is made up for.
#[test]
fn a_copy_without_room_takes_over_when_there_is_room_again() {
    const NAME: &str = "a_copy_without_room_takes_over_when_there_is_room_again";
    if let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) {
        return match std::env::var_os(ROLE) {
            Some(_) => take_over_without_room(NAME),
            None => lead_in_steps(&folder),
        };
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = again(module_path!(), NAME);
    on_small_disk(command.env(ROLE, "copy").env(FOLDER, "disk"), folder.path(), DISK);
}

fn take_over_without_room(test: &str) {
    let folder = Path::new("disk");
    // The leader is this program again, without the role.
    let (region, mut follower, copy) = led_in_steps(test, folder, 1, |_| ());
    let filler = folder.join("filler");
    std::fs::write(&filler, vec![1; DISK]).unwrap_err();
    let mut bytes = region.root::<List<u8>>("bytes").unwrap();
    region.update(|u| bytes.get_mut(u).resize(DISK / 4, 7));
    for _ in 0..2 {
        let refused = loop {
            match follower.take_over() {
                Ok(false) => std::thread::yield_now(),
                other => break other.unwrap_err(),
            }
        };
        assert!(matches!(refused, twinpage::Error::Full(_)), "{refused}");
        assert!(copy.bump(1).is_err());
    }
    std::fs::remove_file(filler).unwrap();
    assert!(follower.take_over().unwrap());
    copy.bump(1).unwrap();
    assert!(matches!(
        Region::open(folder.join("leader.twin")),
        Err(twinpage::Error::Locked(_))
    ));
}
