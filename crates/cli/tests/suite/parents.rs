//! A process of a tree is killed from outside while a checkpoint is made. The checkpoint holds it with its children, or
//! as one that was killed, and never alive without its children.

use rustix::process::Signal;
use std::fs;
use std::time::Duration;
use twinpage_campaign::{either, seed};

use crate::support::process::{Victim, family, kill, name_of, send};
use crate::support::program::compile;
use crate::support::{chance, say};
use crate::trees::Life;

/// Living processes: the first, the parent of one that ended, and 24 others, which make a checkpoint take longer.
const PROCESSES: u64 = 26;

#[test]
fn a_parent_is_killed_during_a_checkpoint() {
    let Some(program) = compile("parent.c", &[]) else {
        return;
    };
    let seed = seed();
    let mut chance = chance(seed, "a parent is killed");
    let (mut alive, mut killed) = (0, 0);
    for turn in 0..either(12, 150) {
        let mut life = Life::begin(&format!("exec {program} go"));
        life.until_checkpoint_of(PROCESSES);
        std::thread::sleep(Duration::from_micros(chance.u64(0..40_000)));
        let below = family(life.child().id() as i32);
        let parent = below.into_iter().find(|pid| name_of(*pid) == "parent");
        send(parent.expect("the process with a child"), Signal::KILL);
        std::thread::sleep(Duration::from_micros(chance.u64(0..40_000)));
        kill(life.child(), Victim::Tool, &mut chance);
        fs::write(life.path("work/go"), "").expect("a file");
        life.start(&["resume"], &[]);
        let (code, life) = life.end();
        match (code, life.read("out").as_str()) {
            (Some(0), "has its child\n") => alive += 1,
            (Some(0), "killed\n") => killed += 1,
            other => panic!(
                "turn {turn}, TWINPAGE_SEED={seed}: {other:?}\n{}",
                life.read("err")
            ),
        }
    }
    say(&format!(
        "a parent is killed: {alive} times before the checkpoint, {killed} times after; TWINPAGE_SEED={seed}"
    ));
}
