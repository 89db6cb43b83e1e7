//! A resumed program runs while its memory comes back: killed meanwhile, it loses nothing.

use std::fs::{self, File, OpenOptions};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use twinpage_campaign::{either, seed};
use twinpage_os::trace;

use crate::support::campaign::oracle;
use crate::support::process::{Victim, ended_before, kill, send, twinpage};
use crate::support::program::{compile, named};
use crate::support::state::{info, on_state, wait_until};
use crate::support::{chance, say};

pub(crate) fn run(state: &Path, line: &[String], out: &Path) -> Child {
    let mut command = twinpage();
    command.args(["run", "--every", "16ms", "--state"]).arg(state);
    command.arg("--").args(line);
    command.stdout(File::create(out).expect("the output file"));
    command.spawn().expect("twinpage starts")
}

pub(crate) fn resume(state: &Path, out: &Path) -> Child {
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
        let ended = match kills < either(12, 120) || early == 0 {
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

/// The first traced process below a `twinpage run` or `resume`, as soon as there is one.
fn first_traced(child: &Child) -> i32 {
    let children = |pid: u32| {
        let file = format!("/proc/{pid}/task/{pid}/children");
        let text = fs::read_to_string(file).unwrap_or_default();
        text.split_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .collect::<Vec<u32>>()
    };
    loop {
        let below = children(child.id()).into_iter().flat_map(children);
        if let Some(traced) = below.map(|pid| pid as i32).find(|pid| trace::is_traced(*pid)) {
            return traced;
        }
    }
}

/// A program is killed soon after each resume: the earliest kill comes when its process exists and has none of its memory.
/// With `suspended` it is asked to end just before. It ends with the line "end" once there is a file `go` in its directory.
fn killed_again_and_again(name: &str, suspended: bool, line: impl Fn(&Path) -> Vec<String>) {
    let (seed, scratch) = (seed(), tempfile::tempdir().expect("a scratch directory"));
    let mut chance = chance(seed, name);
    let (state, out) = (scratch.path().join("state"), scratch.path().join("out"));
    let mut child = run(&state, &line(scratch.path()), &out);
    wait_until("there is a checkpoint", || {
        info(&state)["epoch"].as_u64() > Some(1)
    });
    kill(&mut child, Victim::Tree, &mut chance);
    for round in 0..either(30, 300) {
        let mut child = resume(&state, &out);
        let traced = first_traced(&child);
        let later = [0, chance.u64(0..100), chance.u64(0..20_000)][chance.usize(0..3)];
        std::thread::sleep(Duration::from_micros(later));
        if suspended {
            send(child.id() as i32, Signal::TERM);
            std::thread::sleep(Duration::from_micros(chance.u64(0..20_000)));
        }
        send(traced, Signal::KILL);
        wait_until("it is noticed that the program was killed", || {
            child.try_wait().expect("wait for twinpage").is_some()
        });
        let status = child.wait().expect("wait for twinpage");
        // twinpage ends as its program did, or by what suspended it.
        let is_expected = |signal| signal == Signal::KILL || suspended && signal == Signal::TERM;
        let signal = status.signal().and_then(Signal::from_named_raw);
        assert!(
            signal.is_some_and(is_expected),
            "round {round}; TWINPAGE_SEED={seed}: {status}"
        );
    }
    fs::write(scratch.path().join("go"), "").expect("a file");
    let status = resume(&state, &out).wait().expect("wait for twinpage");
    let printed = fs::read_to_string(&out).expect("the output");
    assert_eq!(
        (status.code(), printed.as_str()),
        (Some(0), "end\n"),
        "TWINPAGE_SEED={seed}"
    );
}

#[test]
fn a_program_is_killed_while_its_process_is_made() {
    killed_again_and_again("killed while it is made", false, |directory| {
        let go = directory.join("go");
        let script = format!("until [ -e {} ]; do sleep 0.01; done; echo end", go.display());
        ["sh", "-c", &script].map(String::from).into()
    });
}

/// All its threads but the first make calls all the time. The first is told of as dead after all others: nothing may wait
/// for it alone.
fn many_threads_are_killed(name: &str, suspended: bool) {
    if let Some(binary) = compile("callers.c", &["-pthread"]) {
        killed_again_and_again(name, suspended, |directory| {
            vec![binary.clone(), directory.display().to_string()]
        });
    }
}

#[test]
fn a_program_of_many_threads_is_killed_while_its_process_is_made() {
    many_threads_are_killed("threads are killed", false);
}

#[test]
fn a_program_of_many_threads_is_killed_while_it_is_suspended() {
    many_threads_are_killed("threads are killed in a suspension", true);
}

/// A program is killed while it is begun: it is told that it was killed, whatever twinpage was about to do with it.
#[test]
fn a_program_is_killed_before_its_first_checkpoint() {
    let (seed, scratch) = (seed(), tempfile::tempdir().expect("a scratch directory"));
    let mut chance = chance(seed, "killed while it is begun");
    for round in 0..either(30, 300) {
        let mut command = twinpage();
        command.args(["run", "--every", "5ms", "--state"]);
        command.arg(scratch.path().join(round.to_string()));
        command.args(["--", "sleep", "1000"]).stderr(Stdio::piped());
        let child = command.spawn().expect("twinpage starts");
        let traced = first_traced(&child);
        let later = [0, chance.u64(0..100), chance.u64(0..20_000)][chance.usize(0..3)];
        std::thread::sleep(Duration::from_micros(later));
        send(traced, Signal::KILL);
        let out = child.wait_with_output().expect("wait for twinpage");
        let said = String::from_utf8_lossy(&out.stderr);
        let repeat = format!("round {round}; TWINPAGE_SEED={seed}: {said}");
        assert!(said.contains("killed") && !said.contains("os error"), "{repeat}");
        let killed = Some(Signal::KILL.as_raw());
        assert!(
            out.status.code() == Some(125) || out.status.signal() == killed,
            "{repeat}"
        );
    }
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
