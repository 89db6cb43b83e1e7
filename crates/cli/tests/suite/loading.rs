//! A resumed program runs while its memory comes back: killed meanwhile, it loses nothing.

use std::fs::{self, File, OpenOptions};
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use serde_json::Value;
use twinpage_campaign::{either, seed};

use crate::support::campaign::oracle;
use crate::support::process::{Victim, ended_before, kill, twinpage};
use crate::support::program::named;
use crate::support::state::{on_state, wait_until};
use crate::support::{chance, say};

fn info(state: &Path) -> Value {
    let out = on_state(&["info", "--json"], state);
    serde_json::from_slice(&out.stdout).unwrap_or_default()
}

fn run(state: &Path, line: &[String], out: &Path) -> Child {
    let mut command = twinpage();
    command.args(["run", "--every", "16ms", "--state"]).arg(state);
    command.arg("--").args(line);
    command.stdout(File::create(out).expect("the output file"));
    command.spawn().expect("twinpage starts")
}

fn resume(state: &Path, out: &Path) -> Child {
    let out = OpenOptions::new()
        .append(true)
        .open(out)
        .expect("the output file");
    let mut command = twinpage();
    command.args(["resume", "--every", "16ms"]).arg(state).stdout(out);
    command.spawn().expect("twinpage starts")
}

#[test]
fn a_program_is_killed_while_its_memory_comes_back() {
    let program = named("c_loading.c");
    let Some(line) = program.command(program.rounds) else {
        return;
    };
    let (seed, oracle) = (seed(), oracle(&line, None));
    let mut chance = chance(seed, program.file);
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (state, out) = (scratch.path().join("state"), scratch.path().join("out"));
    let printed = || fs::read(&out).expect("the output").len();
    let mut child = run(&state, &line, &out);
    while printed() == 0 {
        assert!(ended_before(&mut child, Instant::now() + Duration::from_millis(1)).is_none());
    }
    kill(&mut child, Victim::Tree, &mut chance);
    let mut child = resume(&state, &out);
    wait_until("all memory is there", || !info(&state)["loaded"].is_null());
    kill(&mut child, Victim::Tree, &mut chance);
    let took = Duration::from_secs_f64(info(&state)["loaded"]["ms"].as_f64().expect("a time") / 1e3);
    let (mut kills, mut early) = (0, 0);
    let status = loop {
        let mut child = resume(&state, &out);
        // From before its process is there until it has printed some lines.
        let time = took.mul_f64(chance.f64() * 1.5);
        let ended = match kills < either(12, 120) {
            true => ended_before(&mut child, Instant::now() + time),
            false => Some(child.wait().expect("wait for twinpage")),
        };
        if let Some(status) = ended {
            break status;
        }
        let victims = [Victim::Tree, Victim::Tool, Victim::Program];
        kill(&mut child, victims[chance.usize(0..victims.len())], &mut chance);
        kills += 1;
        let loaded = &info(&state)["loaded"];
        early += u32::from(!loaded.is_null() && loaded["waited"].is_null());
    };
    assert!(status.success(), "{status}; TWINPAGE_SEED={seed}");
    let printed = fs::read(&out).expect("the output");
    assert!(
        printed == oracle.stdout,
        "it printed something else; TWINPAGE_SEED={seed}"
    );
    let loaded = &info(&state)["loaded"];
    assert!(
        early > 0 || !loaded.is_null() && loaded["waited"].is_null(),
        "it never ran before its memory was there: {loaded}; TWINPAGE_SEED={seed}"
    );
    say(&format!(
        "{kills} kills, {early} of them after it ran early; TWINPAGE_SEED={seed}"
    ));
}

#[test]
fn why_a_program_waits_for_its_memory_is_told() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let cases = [
        (
            &["sleep", "1000"][..],
            "all its threads are in system calls, which wait for its memory",
        ),
        (&["sh", "-c", "sleep 1000; :"], "the program has descendants"),
    ];
    for (at, (words, why)) in cases.iter().enumerate() {
        let state = scratch.path().join(at.to_string());
        let out = scratch.path().join("out");
        let line: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let mut child = run(&state, &line, &out);
        wait_until("there is a checkpoint of all of it", || {
            let info = info(&state);
            info["program"]["processes"] == (at + 1) && info["epoch"].as_u64() > Some(1)
        });
        kill(&mut child, Victim::Tree, &mut fastrand::Rng::with_seed(1));
        let mut child = resume(&state, &out);
        wait_until("it is said how its memory came back", || {
            !info(&state)["loaded"].is_null()
        });
        assert_eq!(info(&state)["loaded"]["waited"], *why);
        let told = on_state(&["info"], &state);
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        assert!(told.contains(why), "{told}");
        kill(&mut child, Victim::Tree, &mut fastrand::Rng::with_seed(1));
    }
}
