//! The pace that follows limits, with real programs: limits bound what is written, output does not wait for a long
//! interval, and what was chosen is told.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::rest::{epoch, written};
use crate::support::process::{Victim, family, kill, name_of, twinpage};
use crate::support::program::compile;
use crate::support::skip;
use crate::support::state::{info, on_state, wait_until};

/// A program that writes to a thousand pages again and again for two seconds.
fn busy(binary: &str, options: &[&str], scratch: &Path) -> Child {
    let mut command = twinpage();
    command
        .arg("run")
        .args(options)
        .arg("--state")
        .arg(scratch.join("state"));
    command.arg("--stats").arg(scratch.join("stats"));
    command.args(["--", binary, "busy"]).stdout(Stdio::null());
    command.spawn().expect("twinpage starts")
}

fn stats(scratch: &Path) -> Value {
    let text = fs::read_to_string(scratch.join("stats")).expect("the statistics");
    serde_json::from_str(&text).expect("JSON")
}

/// The messages so far that have these words.
fn lines_with(messages: &Path, words: &str) -> Vec<String> {
    let said = fs::read_to_string(messages).unwrap_or_default();
    let found = said.lines().filter(|line| line.contains(words));
    found.map(str::to_owned).collect()
}

#[test]
fn a_write_rate_is_kept() {
    let Some(binary) = compile("sleepers.c", &["-pthread"]) else {
        return;
    };
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let mut child = busy(&binary, &["--write-rate", "1kB/s"], scratch.path());
    assert!(child.wait().expect("wait for twinpage").success());
    let found = stats(scratch.path());
    let (epochs, run_s) = (&found["epochs"], &found["pace"]["run_s"]);
    let (epochs, run_s) = (
        epochs.as_u64().expect("a number"),
        run_s.as_f64().expect("seconds"),
    );
    // The first, one that shows what they cost, the last; a line of each of a thousand pages is then worth a minute.
    assert!(epochs as f64 <= 4.0 + run_s / 20.0, "{found:#}");
    assert!(
        found["pace"]["slowdown"]
            .as_f64()
            .is_some_and(|share| share > 0.0),
        "{found:#}"
    );
    // Where bytes cost nothing, there are many more.
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let mut child = busy(&binary, &["--every", "16ms"], scratch.path());
    assert!(child.wait().expect("wait for twinpage").success());
    let fixed = stats(scratch.path());
    assert!(fixed["epochs"].as_u64() > Some(epochs), "{fixed:#}");
    assert!(fixed["pace"]["every_ms"].is_number(), "{fixed:#}");
}

#[test]
fn what_was_chosen_is_told_while_it_runs() {
    let Some(binary) = compile("sleepers.c", &["-pthread"]) else {
        return;
    };
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let state = scratch.path().join("state");
    let mut child = busy(
        &binary,
        &["--slowdown", "1%", "--write-rate", "1kB/s"],
        scratch.path(),
    );
    let pace = || info(&state)["pace"].clone();
    wait_until("a pace is chosen", || pace()["why"] == "write-rate");
    let told = pace();
    for field in ["every_ms", "run_s", "slowdown", "bytes_per_hour", "would_lose_ms"] {
        assert!(told[field].is_number(), "{field}: {told}");
    }
    let text = on_state(&["info"], &state).stdout;
    let text = String::from_utf8_lossy(&text);
    assert!(
        text.contains("as the write rate allows") && text.contains("an hour"),
        "{text}"
    );
    assert!(child.wait().expect("wait for twinpage").success());
}

/// A byte changes in each of a thousand pages: their lines are written, and not the pages.
#[test]
fn scattered_changes_are_written_by_lines() {
    let Some(binary) = compile("sleepers.c", &["-pthread"]) else {
        return;
    };
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let state = scratch.path().join("state");
    let mut command = twinpage();
    command.args(["run", "--every", "16ms", "--state"]).arg(&state);
    command.args(["--", &binary, "lines"]);
    let mut child = command.spawn().expect("twinpage starts");
    let told = || {
        let told = info(&state);
        let is_new = told["epoch"].as_u64().unwrap_or(0) == 0;
        assert!(is_new || told["scheme"] == "packed", "{told}");
        ["epochs", "changed_bytes", "bytes_written", "lines"]
            .map(|field| told["statistics"][field].as_u64().unwrap_or(0))
    };
    // What is told is a few epochs old: what the system had written is asked between two looks.
    let after = |epochs: u64| {
        wait_until("there are more checkpoints", || told()[0] >= epochs);
        told()
    };
    let first = after(10);
    let system = written(&child);
    let some = after(first[0] + 20);
    let system = written(&child).zip(system).map(|(now, before)| now - before);
    let last = after(some[0] + 10);
    kill(&mut child, Victim::Tree, &mut fastrand::Rng::with_seed(1));
    let [epochs, changed, bytes, lines] = std::array::from_fn(|field| last[field] - first[field]);
    assert!(lines >= epochs * 100, "{lines} lines in {epochs} epochs");
    assert!(
        bytes < changed * 3 / 2,
        "{bytes} bytes for {changed} in {epochs} epochs"
    );
    match system {
        // Its other files are small beside the store, which is filled with whole pages.
        Some(system) => assert!(system < 2 * bytes, "the system wrote {system} bytes, we {bytes}"),
        None => eprintln!("SKIPPED: what the system had written may not be seen"),
    }
}

/// Of a program that works meanwhile, and whose checkpoints come seldom: an answer brings the next one near.
#[test]
fn a_person_is_answered() {
    let Some(binary) = compile("sleepers.c", &["-pthread"]) else {
        return;
    };
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let state = scratch.path().join("state");
    let mut command = twinpage();
    let limits = [
        "--slowdown",
        "1.5%",
        "--write-rate",
        "1GB/s",
        "--lose-at-most",
        "60min",
    ];
    command.arg("run").args(limits).arg("--state").arg(&state);
    command
        .args(["--", &binary, "answer"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().expect("twinpage starts");
    let mut input = child.stdin.take().expect("a pipe");
    let mut output = child.stdout.take().expect("a pipe");
    let mut heard = |words: &str| {
        let mut bytes = vec![0; words.len()];
        output.read_exact(&mut bytes).expect("the program speaks");
        assert_eq!(String::from_utf8_lossy(&bytes), words);
    };
    heard("ready\n");
    let every_ms = || {
        let told = info(&state);
        (told["pace"]["run_s"].as_f64() > Some(6.0))
            .then(|| told["pace"]["every_ms"].as_f64().expect("an interval"))
    };
    wait_until("the pace is known, and something was spared", || {
        every_ms().is_some()
    });
    // Of five: another program may be on the processors when one is typed.
    let mut shares = [0; 5].map(|_| {
        std::thread::sleep(Duration::from_secs(2)); // what an early one takes is spared again
        let every_ms = every_ms().expect("an interval");
        let typed = Instant::now();
        writeln!(input, "a line").expect("the program hears");
        heard("a line\n");
        typed.elapsed().as_secs_f64() * 1e3 / every_ms
    });
    shares.sort_by(f64::total_cmp);
    assert!(
        shares[2] < 0.5,
        "waits, in intervals of the checkpoints: {shares:.2?}"
    );
    drop(input);
    heard("end\n");
    assert!(child.wait().expect("wait for twinpage").success());
}

/// In figures that can be read.
#[test]
fn a_limit_that_cannot_be_kept_is_told_once() {
    let Some(binary) = compile("sleepers.c", &["-pthread"]) else {
        return;
    };
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (state, messages) = (scratch.path().join("state"), scratch.path().join("messages"));
    let mut command = twinpage();
    command.args([
        "run",
        "--lose-at-most",
        "5ms",
        "--durability",
        "memory",
        "--messages",
    ]);
    command.arg(&messages).arg("--state").arg(&state);
    let mut child = command
        .args(["--", &binary, "lines"])
        .spawn()
        .expect("twinpage starts");
    let told = || lines_with(&messages, "can be lost");
    wait_until("it is told", || !told().is_empty());
    let from = epoch(&state);
    wait_until("there are more checkpoints", || epoch(&state) > from + 10);
    kill(&mut child, Victim::Tree, &mut fastrand::Rng::with_seed(1));
    let told = told();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains("--lose-at-most 5ms") && !told[0].contains(" 0.0s"),
        "{told:?}"
    );
}

/// Slow by strace(1), in the process that writes. The program goes on meanwhile, and is there after a kill.
#[test]
fn a_disk_that_cannot_follow_is_told_of() {
    let Some(binary) = compile("sleepers.c", &["-pthread"]) else {
        return;
    };
    if Command::new("strace").arg("-V").output().is_err() {
        return skip("a slow disk", "strace", "strace");
    }
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (state, messages) = (scratch.path().join("state"), scratch.path().join("messages"));
    let mut command = twinpage();
    command
        .args(["run", "--every", "16ms", "--messages"])
        .arg(&messages);
    command.arg("--state").arg(&state).args(["--", &binary, "lines"]);
    let mut child = command.spawn().expect("twinpage starts");
    wait_until("there are checkpoints", || epoch(&state) > 2);
    let mut slower = Command::new("strace");
    slower.args(["-qq", "-f", "-o", "/dev/null", "-e", "trace=fdatasync"]);
    slower.args(["-e", "inject=fdatasync:delay_enter=700000"]);
    for pid in family(child.id() as i32) {
        if name_of(pid) == "twinpage" {
            slower.args(["-p", &pid.to_string()]);
        }
    }
    let mut slower = slower.stderr(Stdio::null()).spawn().expect("strace starts");
    let told = || lines_with(&messages, "the disk cannot follow");
    wait_until("it is told", || !told().is_empty());
    let from = epoch(&state);
    wait_until("there are more checkpoints", || epoch(&state) > from + 2);
    assert_eq!(told().len(), 1, "{:?}", told());
    kill(&mut child, Victim::Tree, &mut fastrand::Rng::with_seed(1));
    slower.wait().expect("strace ends with its process");
    let from = epoch(&state);
    let mut child = twinpage()
        .arg("resume")
        .arg(&state)
        .spawn()
        .expect("twinpage starts");
    wait_until("there are more checkpoints", || epoch(&state) > from + 2);
    kill(&mut child, Victim::Tree, &mut fastrand::Rng::with_seed(1));
}

/// Limits choose a pace, and a fixed one needs none.
#[test]
fn limits_beside_a_fixed_pace_are_refused() {
    for limit in [
        ["--slowdown", "1%"],
        ["--write-rate", "1MB/s"],
        ["--lose-at-most", "1s"],
    ] {
        let mut command = twinpage();
        command.args(["run", "--every", "16ms"]).args(limit);
        let out = command.args(["--", "true"]).output().expect("twinpage starts");
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(125), "{stderr}");
        assert!(
            stderr.contains(limit[0]) && stderr.contains("--every 16ms") && stderr.contains("leave one"),
            "{stderr}"
        );
    }
}
