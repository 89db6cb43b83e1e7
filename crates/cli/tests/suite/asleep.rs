//! Of a tree that works, the processes that sleep are left alone at its checkpoints, and go on after a kill. Also where
//! they sleep in memory that others write to.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use twinpage_campaign::seed;

use crate::support::chance;
use crate::support::process::{Victim, family, kill, name_of, twinpage};
use crate::support::program::compile;
use crate::support::state::{info, wait_until};

/// A shell that works until a file is there, beside sleepers.
const SCRIPT: &str = "for i in 1 2 3 4 5 6; do sleep 100000 & all=\"$all $!\"; done
    n=0; until [ -e go ]; do n=$((n + 1)); done; kill $all; echo end";

/// The same beside readers of a pipe in which nothing comes.
const READERS: &str =
    "mkfifo nothing; exec 9<>nothing; for i in 1 2 3 4 5 6; do cat <&9 & all=\"$all $!\"; done
    n=0; until [ -e go ]; do n=$((n + 1)); done; kill $all; echo end";

fn begin(work: &Path, words: &[&str], program: &[&str]) -> Child {
    let mut command = twinpage();
    command.args(words).arg(work.join("state")).args(program);
    command.current_dir(work).stdout(Stdio::piped());
    command.spawn().expect("twinpage starts")
}

fn epoch(work: &Path) -> u64 {
    info(&work.join("state"))["epoch"].as_u64().unwrap_or(0)
}

/// How often each sleeper was given a processor: the third number of proc_pid_schedstat(5).
fn turns(child: &Child, name: &str) -> Vec<u64> {
    let below = family(child.id() as i32);
    let sleepers = below.into_iter().filter(|pid| name_of(*pid) == name);
    let turns = sleepers.filter_map(|pid| {
        let counts = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
        counts.split_ascii_whitespace().nth(2)?.parse().ok()
    });
    turns.collect()
}

/// Over ten checkpoints, no sleeper is given a processor.
fn are_left_alone(work: &Path, child: &Child, name: &str) {
    let asleep = std::cell::Cell::new((0, Vec::new()));
    wait_until("no sleeper runs over ten checkpoints", || {
        let now = (epoch(work), turns(child, name));
        let (then, before) = asleep.take();
        let still = now.1.len() == 6 && now.1 == before;
        let over = still && now.0 >= then + 10;
        asleep.set(if still { (then, before) } else { now });
        over
    });
}

#[test]
fn sleepers_are_left_alone_and_go_on_after_a_kill() {
    are_left_alone_and_go_on("sleep", &["--", "sh", "-c", SCRIPT]);
}

#[test]
fn sleepers_in_shared_memory_are_left_alone_and_go_on_after_a_kill() {
    if let Some(program) = compile("shared_sleepers.c", &["-pthread"]) {
        are_left_alone_and_go_on("sleep", &["--", &program, "go"]);
    }
}

#[test]
fn readers_are_left_alone_and_go_on_after_a_kill() {
    are_left_alone_and_go_on("cat", &["--", "sh", "-c", READERS]);
}

fn are_left_alone_and_go_on(name: &str, program: &[&str]) {
    let work = tempfile::tempdir().expect("a scratch directory");
    let mut chance = chance(seed(), "asleep");
    let run = ["run", "--every", "20ms", "--durability", "memory", "--state"];
    let mut child = begin(work.path(), &run, program);
    are_left_alone(work.path(), &child, name);
    kill(&mut child, Victim::Tree, &mut chance);
    let child = begin(work.path(), &["resume"], &[]);
    wait_until("the sleepers are there again", || turns(&child, name).len() == 6);
    fs::write(work.path().join("go"), "").expect("a file");
    let out = child.wait_with_output().expect("it ends");
    assert!(out.status.success(), "{}", out.status);
    assert_eq!(String::from_utf8_lossy(&out.stdout), "end\n");
}
