//! Older checkpoints: `run --keep`, `resume --at`. Memory and open files go back together, and the newest stays.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use twinpage_campaign::seed;

use crate::support::chance;
use crate::support::process::{Victim, kill, twinpage};
use crate::support::state::{info, on_state, refused_in_order, wait_until};

/// Counts into a file that it holds open, until it is told to end; then says how far it came.
const COUNTING: &str =
    "exec 3>data; i=0; while :; do i=$((i + 1)); echo $i >&3; [ -e go ] && break; done; echo $i; exit 0";

/// A program in a directory of its own.
struct Counter {
    scratch: tempfile::TempDir,
}

impl Counter {
    fn new() -> Counter {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        Counter { scratch }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn state(&self) -> PathBuf {
        self.path("state")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = twinpage();
        command.args(words).current_dir(self.scratch.path());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn start(&self, keep: &str, durability: &str) -> Child {
        let mut command = self.command(&[
            "run",
            "--every",
            "5ms",
            "--keep",
            keep,
            "--durability",
            durability,
        ]);
        command.args(["--state", "state", "--", "bash", "-c", COUNTING]);
        command.spawn().expect("twinpage starts")
    }

    fn resume(&self, words: &[&str]) -> Output {
        let words = [&["resume", "state"], words].concat();
        self.command(&words).output().expect("twinpage starts")
    }

    /// Resumes it to its end. Memory and file agree: says how far it came.
    fn finish(&self, words: &[&str]) -> u64 {
        fs::write(self.path("go"), "").expect("a file");
        let out = self.resume(words);
        fs::remove_file(self.path("go")).expect("it is there");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let text = String::from_utf8(out.stdout).expect("text");
        let last = text
            .trim()
            .parse()
            .unwrap_or_else(|_| panic!("one number: {text:?}"));
        assert!(
            self.data() == (1..=last).collect::<Vec<u64>>(),
            "the file is not that of {last}"
        );
        last
    }

    fn data(&self) -> Vec<u64> {
        let text = fs::read_to_string(self.path("data")).expect("its file");
        text.lines().map(|line| line.parse().expect("a number")).collect()
    }

    /// Number and whether it was left, of each older checkpoint.
    fn older(&self) -> Vec<(u64, bool)> {
        older(&self.state()).unwrap_or_default()
    }

    fn kill(&self, child: &mut Child) {
        kill(child, Victim::Tree, &mut chance(seed(), "older"));
    }
}

fn older(state: &Path) -> Option<Vec<(u64, bool)>> {
    let each = |one: &serde_json::Value| Some((one["number"].as_u64()?, one["left"].as_bool()?));
    info(state)["older"].as_array()?.iter().map(each).collect()
}

fn numbers(older: &[(u64, bool)], left: bool) -> Vec<u64> {
    let these = older.iter().filter(|(_, is_left)| *is_left == left);
    these.map(|(number, _)| *number).collect()
}

fn memory_and_files_go_back(durability: &str) {
    let counter = Counter::new();
    let mut child = counter.start("3@20ms", durability);
    wait_until("five were kept", || {
        counter.older().last().is_some_and(|(number, _)| *number >= 5)
    });
    counter.kill(&mut child);
    let kept = counter.older();
    assert!(numbers(&kept, true).is_empty(), "{kept:?}");
    let regular = numbers(&kept, false);
    assert!(
        (3..=4).contains(&regular.len()),
        "three, or one more where the kill kept it: {kept:?}"
    );

    let oldest = counter.finish(&["--at", &regular[0].to_string()]);
    let left = numbers(&counter.older(), true);
    assert_eq!(left.len(), 1, "where it was is kept");
    let second = counter.finish(&["--at", &regular[1].to_string()]);
    let newest = counter.finish(&["--at", &left[0].to_string()]);
    let again = counter.finish(&["--at", &regular[0].to_string()]);
    // On a machine that has no time for it the program may do nothing between two checkpoints, but not between all.
    let in_order = oldest <= second && second <= newest && oldest < newest;
    assert!(in_order, "{oldest}, {second}, {newest}");
    assert_eq!(again, oldest, "the same one twice");
    let there = counter.older();
    let is_there = |number: &u64| there.iter().any(|(there, _)| there == number);
    assert!(
        regular.iter().all(is_there),
        "going back drops none: {regular:?}, {there:?}"
    );

    let list = on_state(&["list", "--json"], &counter.state());
    let list: serde_json::Value = serde_json::from_slice(&list.stdout).expect("JSON");
    assert!(
        list["states"][0]["older"][0]["bytes"].as_u64() > Some(0),
        "{list}"
    );
}

#[test]
fn memory_and_open_files_go_back_and_the_newest_stays() {
    memory_and_files_go_back("disk");
}

#[test]
fn the_same_in_memory() {
    memory_and_files_go_back("memory");
}

#[test]
fn killed_while_one_is_kept_or_gone_back_to() {
    let mut chance = chance(seed(), "older kills");
    let counter = Counter::new();
    let mut child = counter.start("2@1ms", "memory");
    wait_until("one was kept", || !counter.older().is_empty());
    std::thread::sleep(Duration::from_millis(chance.u64(0..60)));
    counter.kill(&mut child);
    // A life may be too short to keep one more, but loses none of the two.
    let mut before = 1;
    for life in 0..6 {
        let kept = counter.older();
        assert!(kept.len() >= before, "life {life} of {before}: {kept:?}");
        before = kept.len().min(2);
        for (number, _) in &kept {
            let state = counter
                .state()
                .join("older")
                .join(number.to_string())
                .join("state");
            let out = on_state(&["check"], &state);
            assert!(
                out.status.success(),
                "{number}: {}",
                String::from_utf8_lossy(&out.stderr)
            );
        }
        let (number, _) = kept[chance.usize(0..kept.len())];
        let at = number.to_string();
        let mut back = counter.command(&[
            "resume", "state", "--every", "5ms", "--keep", "2@1ms", "--at", &at,
        ]);
        let mut child = back.spawn().expect("twinpage starts");
        std::thread::sleep(Duration::from_millis(chance.u64(0..120)));
        counter.kill(&mut child);
        // One that was cut short on its way back says so, and the next resume finishes it.
        let mut on = counter.command(&["resume", "state", "--every", "5ms", "--keep", "2@1ms"]);
        let mut child = on.spawn().expect("twinpage starts");
        wait_until("it can be looked at", || older(&counter.state()).is_some());
        std::thread::sleep(Duration::from_millis(chance.u64(0..120)));
        counter.kill(&mut child);
        if older(&counter.state()).is_none() {
            counter.finish(&[]); // killed again on its way
            return;
        }
    }
    counter.finish(&[]);
}

/// A state holds sockets of the process that keeps its terminal, and may hold named pipes: they are not copied.
#[test]
fn checkpoints_of_a_detached_program_are_kept() {
    let counter = Counter::new();
    let mut command = counter.command(&["run", "--detach", "--every", "5ms", "--keep", "2@20ms"]);
    command.args(["--state", "state", "--", "bash", "-c", COUNTING]);
    assert!(command.status().expect("twinpage starts").success());
    wait_until("checkpoints are kept", || counter.older().len() >= 2);
    let stopped = counter
        .command(&["stop", "state"])
        .output()
        .expect("twinpage starts");
    assert!(
        stopped.status.success(),
        "{}",
        String::from_utf8_lossy(&stopped.stderr)
    );
    let pipe = counter.state().join("gone.fifo");
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, rustix::fs::Mode::RUSR, 0).expect("a named pipe");
    let forked = counter
        .command(&["fork", "state", "second"])
        .output()
        .expect("twinpage starts");
    assert!(
        forked.status.success(),
        "{}",
        String::from_utf8_lossy(&forked.stderr)
    );
    let checked = counter
        .command(&["check", "second"])
        .output()
        .expect("twinpage starts");
    assert!(
        checked.status.success(),
        "{}",
        String::from_utf8_lossy(&checked.stdout)
    );
}

#[test]
fn what_cannot_be_gone_back_to_is_told_and_changes_nothing() {
    let counter = Counter::new();
    let mut child = counter.start("2@20ms", "memory");
    wait_until("two were kept", || counter.older().len() >= 2);
    counter.kill(&mut child);
    let kept = counter.older();
    for (at, why) in [
        ("9999", "kept are"),
        ("1h", "kept are"),
        ("soon", "expected a number"),
    ] {
        let out = counter.resume(&["--at", at]);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success() && said.contains(why), "{said}");
    }
    fs::rename(counter.path("data"), counter.path("away")).expect("a rename");
    fs::write(counter.path("data"), "another").expect("a file");
    let said = refused_in_order("another file", &counter.resume(&["--at", &kept[0].0.to_string()]));
    assert!(said.contains("data") && said.contains("another file"), "{said}");
    fs::rename(counter.path("away"), counter.path("data")).expect("a rename");
    assert_eq!(counter.older(), kept);
    counter.finish(&[]);
}

/// Damages what is told of kept checkpoint `number`.
fn damage_about(state: &Path, number: u64) -> PathBuf {
    let about = state.join("older").join(number.to_string()).join("about");
    let text = fs::read_to_string(&about).expect("it is there");
    fs::write(&about, text.replace("\"epoch\"", "\"epoxh\"")).expect("room for it");
    about
}

/// A counter that finished, with two older checkpoints at least.
fn finished_with_older(durability: &str) -> Counter {
    let counter = Counter::new();
    let mut child = counter.start("2@20ms", durability);
    wait_until("two were kept", || counter.older().len() >= 2);
    counter.kill(&mut child);
    counter.finish(&[]);
    counter
}

#[test]
fn a_state_whose_older_checkpoints_cannot_be_read_is_not_removed() {
    let counter = finished_with_older("memory");
    let kept = counter.older();
    let about = damage_about(&counter.state(), kept[0].0);
    let out = on_state(&["list", "--json"], &counter.state());
    let list: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let state = &list["states"][0];
    assert!(state["older"].is_null(), "not known: {state}");
    let why = state["why"].as_str().expect("a reason");
    assert!(why.contains(&about.display().to_string()), "{why}");
    let out = on_state(&["clean"], &counter.state());
    assert!(out.status.success(), "{out:?}");
    for (number, _) in kept {
        let copy = counter.state().join("older").join(number.to_string());
        assert!(copy.join("state/kind").exists(), "{number} is gone");
    }
}

#[test]
fn damage_of_an_older_checkpoint_is_found_and_nobody_goes_back_to_it() {
    let counter = finished_with_older("disk");
    let kept = counter.older();
    let check = |code: i32| {
        let out = on_state(&["check"], &counter.state());
        assert_eq!(out.status.code(), Some(code), "{out:?}");
        String::from_utf8(out.stdout).expect("text")
    };
    check(0);
    let [first, last] = [kept[0].0, kept[kept.len() - 1].0];
    let store = path_of_older(&counter, first).join("store");
    let whole = fs::read(&store).expect("a store");
    let mut flipped = whole.clone();
    flipped.iter_mut().step_by(4096).for_each(|byte| *byte ^= 1);
    fs::write(&store, flipped).expect("room for it");
    let said = check(1);
    assert!(said.contains(&format!("damaged older {first}: ")), "{said}");
    let said = refused_in_order("damaged", &counter.resume(&["--at", &first.to_string()]));
    assert!(said.contains(&format!("older {first}")), "{said}");
    assert_eq!(counter.older(), kept, "nothing has changed");
    fs::write(&store, whole).expect("room for it");
    check(0);
    damage_about(&counter.state(), last);
    let said = check(1);
    assert!(said.contains("about"), "{said}");
}

fn path_of_older(counter: &Counter, number: u64) -> PathBuf {
    counter
        .state()
        .join("older")
        .join(number.to_string())
        .join("state")
}
