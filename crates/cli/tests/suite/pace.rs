//! The pace that follows limits, with real programs: limits bound what is written, output does not wait for a long
//! interval, and what was chosen is told.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::support::process::twinpage;
use crate::support::program::compile;
use crate::support::state::{on_state, wait_until};

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
    let pace = || {
        let out = on_state(&["info", "--json"], &state);
        let told: Value = serde_json::from_slice(&out.stdout).unwrap_or_default();
        told["pace"].clone()
    };
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

#[test]
fn a_person_is_answered() {
    let Some(binary) = compile("sleepers.c", &["-pthread"]) else {
        return;
    };
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let mut command = twinpage();
    command
        .args(["run", "--lose-at-most", "60min", "--state"])
        .arg(scratch.path().join("state"));
    command
        .args(["--", &binary, "hear"])
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
    for round in 0..20 {
        writeln!(input, "line {round}").expect("the program hears");
        heard(&format!("line {round}\n"));
    }
    drop(input);
    heard("end\n");
    assert!(child.wait().expect("wait for twinpage").success());
}
