//! A program that does nothing costs nothing: while no thread of it runs, no checkpoint is made and no byte is
//! written. What wakes it, and what was printed, typed or due meanwhile, is as it would be alone.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use twinpage_campaign::{either, seed};

use crate::support::process::{Victim, family, kill, name_of, twinpage};
use crate::support::program::{compile, python_with};
use crate::support::state::{info, on_state, wait_until};
use crate::support::{chance, skip};

/// The interval; the tests wait for many of them.
const EVERY: Duration = Duration::from_millis(5);

/// Where bytes written are counted: a temporary directory may lie in memory.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory")
}

fn run(state: &Path, program: &[&str]) -> std::process::Command {
    let mut command = twinpage();
    command.args(["run", "--every", "5ms", "--state"]).arg(state);
    command.arg("--").args(program).stderr(Stdio::inherit());
    command
}

/// The number of the last checkpoint, while the program runs.
pub(crate) fn epoch(state: &Path) -> u64 {
    info(state)["epoch"].as_u64().unwrap_or(0)
}

/// Bytes that a twinpage and its tracer had written, proc_pid_io(5). `None` where that may not be seen.
pub(crate) fn written(child: &Child) -> Option<u64> {
    let below = family(child.id() as i32);
    let ours = below.into_iter().filter(|pid| name_of(*pid) == "twinpage");
    let bytes = ours.map(|pid| {
        let io = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
        let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "))?;
        line.parse::<u64>().ok()
    });
    bytes.sum()
}

/// Waits until no checkpoint is made over many intervals. The program must have gone to sleep.
fn until_at_rest(state: &Path) -> u64 {
    wait_until("the program is at rest", || {
        let before = epoch(state);
        std::thread::sleep(EVERY * 60);
        before > 0 && epoch(state) == before
    });
    epoch(state)
}

/// Over many intervals no checkpoint is made and no byte written; then the program is killed.
fn costs_nothing(name: &str, program: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let scratch = scratch();
    let state = scratch.path().join("state");
    let mut child = run(&state, program)
        .stdout(Stdio::null())
        .spawn()
        .expect("twinpage starts");
    let resting = until_at_rest(&state);
    let before = written(&child);
    std::thread::sleep(EVERY * 200);
    let after = written(&child);
    assert_eq!(epoch(&state), resting, "{name}: a checkpoint of nothing");
    if before.is_none() {
        skip(name, "a readable /proc/PID/io", "nothing: run as root");
    }
    assert_eq!(before, after, "{name}: bytes were written");
    kill(&mut child, Victim::Tree, &mut chance(seed(), name));
    (scratch, state)
}

#[test]
fn a_program_that_sleeps_writes_nothing() {
    let (_scratch, state) = costs_nothing("sleep", &["sleep", "600"]);
    // Resumed, it sleeps on, and costs nothing either.
    let mut child = twinpage();
    child.args(["resume", "--every", "5ms"]).arg(&state);
    let mut child = child.spawn().expect("twinpage starts");
    until_at_rest(&state);
    kill(&mut child, Victim::Tree, &mut chance(seed(), "sleep again"));
}

/// At the default pace too: over more than the longest interval no checkpoint, no byte, and hardly any processor time.
#[test]
fn at_the_default_pace_a_program_that_sleeps_costs_nothing() {
    const LONGEST: Duration = Duration::from_secs(10);
    let scratch = scratch();
    let state = scratch.path().join("state");
    let mut command = twinpage();
    command.args(["run", "--state"]).arg(&state);
    let mut child = command
        .args(["--", "sleep", "600"])
        .spawn()
        .expect("twinpage starts");
    until_at_rest(&state);
    let look = || (epoch(&state), written(&child), processor_time(&child));
    let (before, from) = (look(), Instant::now());
    std::thread::sleep(LONGEST + Duration::from_secs(either(2, 50)));
    let (after, window) = (look(), from.elapsed());
    assert_eq!(
        (before.0, before.1),
        (after.0, after.1),
        "a checkpoint, or bytes, of nothing"
    );
    let share = (after.2 - before.2).as_secs_f64() / window.as_secs_f64();
    assert!(
        share < 0.01,
        "{:.2}% of a processor for a program that sleeps",
        share * 100.0
    );
    kill(&mut child, Victim::Tree, &mut chance(seed(), "default pace"));
}

/// What a twinpage and its tracer took, proc_pid_stat(5).
fn processor_time(child: &Child) -> Duration {
    const TICK: Duration = Duration::from_millis(10); // of all Linux on x86-64
    let below = family(child.id() as i32);
    let ours = below.into_iter().filter(|pid| name_of(*pid) == "twinpage");
    let ticks = ours.map(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
        let behind_name = stat.rsplit(')').next().expect("fields");
        let fields: Vec<&str> = behind_name.split_whitespace().collect();
        let number = |index: usize| fields[index].parse::<u32>().expect("ticks");
        number(11) + number(12)
    });
    TICK * ticks.sum()
}

/// Nor does a tree of them, in its first life and in its second.
#[test]
fn processes_that_sleep_write_nothing() {
    let (_scratch, state) = costs_nothing("a pipeline", &["sh", "-c", "(sleep 600; echo) | cat"]);
    let mut child = twinpage();
    child.args(["resume", "--every", "5ms"]).arg(&state);
    let mut child = child.spawn().expect("twinpage starts");
    until_at_rest(&state);
    kill(&mut child, Victim::Tree, &mut chance(seed(), "sleep again"));
}

/// How long the program did nothing since its last checkpoint.
fn rested_s(state: &Path) -> f64 {
    info(state)["program"]["rested_s"].as_f64().unwrap_or(0.0)
}

/// Its clock goes on from where it was killed, not from a checkpoint long before: half of the sleep was over then.
#[test]
fn a_kill_takes_no_rest_back() {
    let Some(binary) = compile("c_rest.c", &[]) else {
        return;
    };
    if fs::metadata("/dev/shm").is_err() {
        return skip("rest", "/dev/shm", "a system with shared memory");
    }
    for seconds in [4, 16, 64] {
        let scratch = scratch();
        let state = scratch.path().join("state");
        let out = fs::File::create(scratch.path().join("out")).expect("a file");
        let mut child = run(&state, &[&binary, &seconds.to_string()]);
        let mut child = child.stdout(out).spawn().expect("twinpage starts");
        let half = f64::from(seconds) / 2.0;
        let mut rested = 0.0;
        while rested < half && child.try_wait().expect("wait for twinpage").is_none() {
            std::thread::sleep(EVERY * 4);
            rested = rested_s(&state);
        }
        kill(&mut child, Victim::Tree, &mut chance(seed(), "rest"));
        if rested < half {
            continue; // it was awake before it had rested for so long: a machine under load
        }
        assert!(rested_s(&state) >= rested);
        let resumed = on_state(&["resume"], &state);
        assert!(
            resumed.status.success(),
            "{}",
            String::from_utf8_lossy(&resumed.stderr)
        );
        let told = fs::read_to_string(scratch.path().join("out")).expect("the output");
        let told = [told, String::from_utf8_lossy(&resumed.stdout).into_owned()].concat();
        let times: Vec<f64> = (told.split_whitespace())
            .map(|ms| ms.parse::<f64>().expect("milliseconds") / 1000.0)
            .collect();
        assert_eq!(times.len(), 2, "{told}");
        for time in times {
            assert!(time > rested - 0.01, "{time} s, after a rest of {rested} s");
        }
        return;
    }
    panic!("no rest on this machine was long enough");
}

#[test]
fn nor_do_threads_that_wait_in_many_ways() {
    let Some(binary) = compile("sleepers.c", &["-pthread"]) else {
        return;
    };
    costs_nothing("sleepers", &[&binary, "all"]);
}

#[test]
fn nor_does_a_program_that_was_busy_before() {
    let Some(binary) = compile("sleepers.c", &["-pthread"]) else {
        return;
    };
    costs_nothing("spent", &[&binary, "spent"]);
}

#[test]
fn timers_ring_and_input_arrives_after_a_rest() {
    let Some(binary) = compile("sleepers.c", &["-pthread"]) else {
        return;
    };
    let scratch = scratch();
    let state = scratch.path().join("state");
    let mut child = run(&state, &[&binary, "hear"]);
    let mut child = child
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("twinpage starts");
    let mut input = child.stdin.take().expect("a pipe");
    let mut output = child.stdout.take().expect("a pipe");
    let mut heard = |words: &str| {
        let mut bytes = vec![0; words.len()];
        output.read_exact(&mut bytes).expect("the program speaks");
        assert_eq!(String::from_utf8_lossy(&bytes), words);
    };
    heard("ready\n");
    for round in 0..3 {
        until_at_rest(&state);
        writeln!(input, "line {round}").expect("the program hears");
        heard(&format!("line {round}\n"));
    }
    until_at_rest(&state);
    writeln!(input, "timer").expect("the program hears");
    // It waits for its timer for a second, in which there are rests, and says so.
    heard("rang\n");
    drop(input);
    heard("end\n");
    assert!(child.wait().expect("wait for twinpage").success());
}

#[test]
fn a_killed_sleeper_has_all_it_did_before() {
    let Some(python) = python_with("time") else {
        skip("a killed sleeper", "python3", "python3");
        return;
    };
    let scratch = scratch();
    let (state, out) = (scratch.path().join("state"), scratch.path().join("out"));
    let script = "import os, time\nprint('before', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.7)\nprint('after', flush=True)";
    let append = || {
        fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(&out)
            .expect("a file")
    };
    let mut child = run(&state, &[&python, "-c", script]);
    let mut child = child
        .current_dir(&scratch)
        .stdout(append())
        .spawn()
        .expect("twinpage starts");
    wait_until("it printed", || {
        fs::read(&out).is_ok_and(|bytes| bytes == b"before\n")
    });
    kill(&mut child, Victim::Tree, &mut chance(seed(), "killed sleeper"));
    fs::write(scratch.path().join("go"), "").expect("a file");
    let mut resume = twinpage();
    let ended = resume.arg("resume").arg(&state).stdout(append()).status();
    assert!(ended.expect("twinpage starts").success());
    assert_eq!(fs::read_to_string(&out).expect("the output"), "before\nafter\n");
}
