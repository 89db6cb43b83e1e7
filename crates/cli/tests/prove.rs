//! `prove`, `info` and `check` on small programs of bash builtins.

use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Counts for a while, says how far it is, and keeps a file. `$1` times.
const COUNTING: &str = "for ((i = 1; i <= $1; i++)); do for ((j = 0; j < 6000; j++)); do :; done; \
                        echo $i; echo $i >>log; echo odd >&2; done; exit 3";

fn twinpage() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_twinpage"));
    command.stdin(Stdio::null());
    command
}

fn output(command: &mut Command) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("twinpage starts");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    let stderr = text(stderr);
    assert!(!stderr.contains("panicked"), "{stderr}");
    (status.code().unwrap_or(-1), text(stdout), stderr)
}

fn prove(scratch: &Path, words: &[&str]) -> (i32, String, String) {
    let mut command = twinpage();
    // Without them, bash asks the name service by a socket, which is refused: that explains no difference.
    command.env_remove("HOME").env_remove("SHELL");
    command.args(["prove", "--durability", "memory", "--scratch"]);
    output(command.arg(scratch).args(words))
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}:\n{text}"))
}

fn names(directory: &Path) -> Vec<String> {
    let entries = directory.read_dir().expect("a directory");
    entries
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect()
}

#[test]
fn a_program_that_survives() {
    let scratch = tempfile::tempdir().unwrap();
    let words = [
        "--kills", "4", "--seed", "9", "--json", "--", "bash", "-c", COUNTING, "bash", "16",
    ];
    let (code, stdout, stderr) = prove(scratch.path(), &words);
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(stderr.contains("--seed 9"), "{stderr}");
    let said = json(&stdout);
    assert_eq!(said["identical"], true);
    assert_eq!((&said["kills"], &said["seed"]), (&4.into(), &9.into()), "{said}");
    assert_eq!(said["ended"]["exit"], 3);
    assert_eq!(
        (&said["files"], &said["stdout_bytes"]),
        (&1.into(), &39.into()),
        "{said}"
    );
    assert!(said["resumes"].as_u64() >= Some(4), "{said}");
    for (field, part) in [("stop_us", "p99"), ("restore_ms", "p50"), ("lost_ms", "max")] {
        assert!(said[field][part].as_f64() > Some(0.0), "{field}: {said}");
    }
    assert!(names(scratch.path()).is_empty(), "something was left");
}

/// At the pace that run chooses by itself: a run of some seconds, for some checkpoints.
#[test]
fn a_program_that_survives_at_the_default_pace() {
    let scratch = tempfile::tempdir().unwrap();
    let words = [
        "--kills", "2", "--every", "auto", "--json", "--", "bash", "-c", COUNTING, "bash", "60",
    ];
    let (code, stdout, stderr) = prove(scratch.path(), &words);
    assert_eq!(code, 0, "{stdout}{stderr}");
    let said = json(&stdout);
    assert_eq!(
        (&said["identical"], &said["kills"]),
        (&true.into(), &2.into()),
        "{said}"
    );
}

#[test]
fn programs_that_do_not() {
    if Command::new("strace").arg("-V").output().is_err() {
        return println!("SKIPPED: programs that differ: strace is missing; install strace");
    }
    let scratch = tempfile::tempdir().unwrap();
    let traces =
        "for ((j = 0; j < 20000; j++)); do :; done; strace -o /dev/null true 2>&- && echo traced; echo done";
    let words = ["--kills", "1", "--json", "--keep", "--", "bash", "-c", traces];
    let (code, stdout, _) = prove(scratch.path(), &words);
    let said = json(&stdout);
    assert_eq!(
        (code, &said["identical"], &said["repeatable"]),
        (1, &false.into(), &true.into())
    );
    // No kill is needed to see it.
    assert_eq!((&said["cause"], &said["kills"]), (&"refusal".into(), &0.into()));
    let refused = said["refused"].as_array().expect("a list");
    assert!(
        refused
            .iter()
            .any(|call| call.as_str().unwrap().starts_with("ptrace: ")),
        "{said}"
    );
    assert_eq!(said["difference"]["what"], "stdout");
    assert_eq!(names(scratch.path()).len(), 1, "--keep keeps");

    let time =
        "for ((i = 0; i < 4; i++)); do for ((j = 0; j < 9000; j++)); do :; done; echo $EPOCHREALTIME; done";
    let (code, stdout, _) = prove(scratch.path(), &["--kills", "1", "--", "bash", "-c", time]);
    assert_eq!(code, 1);
    assert!(stdout.starts_with("DIFFERENT: stdout, line 1"), "{stdout}");
    assert!(stdout.contains("Two undisturbed runs differ as well"), "{stdout}");

    // Under twinpage the program's parent is the first process there is, as it sees it.
    let notices = "for ((j = 0; j < 9000; j++)); do :; done; [ $PPID = 1 ] && echo traced; exit 0";
    let (code, stdout, _) = prove(scratch.path(), &["--kills", "1", "--", "bash", "-c", notices]);
    assert_eq!(code, 1);
    assert!(
        stdout.starts_with("DIFFERENT without any kill: stdout") && stdout.contains("No call was refused"),
        "{stdout}"
    );
}

#[test]
fn a_program_that_ends_only_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let hangs = "[ $PPID = 1 ] && while :; do :; done; exit 0";
    let words = ["--timeout", "2s", "--json", "--", "bash", "-c", hangs];
    let (code, stdout, stderr) = prove(scratch.path(), &words);
    let said = json(&stdout);
    assert_eq!(
        (code, &said["difference"]["what"]),
        (1, &"time".into()),
        "{stderr}"
    );
    let words = ["--timeout", "100ms", "--", "bash", "-c", "while :; do :; done"];
    let (code, _, stderr) = prove(scratch.path(), &words);
    assert!(code == 125 && stderr.contains("--timeout"), "{stderr}");
    assert!(names(scratch.path()).is_empty(), "something was left");
}

#[test]
fn a_program_has_the_signals_it_was_given() {
    let scratch = tempfile::tempdir().unwrap();
    // Long enough to be killed while it counts, also where twinpage is slow to start.
    let script = "for ((j = 0; j < 150000; j++)); do :; done; \
                  while read -r name bits; do [[ $name == Sig[BI][lg][kn]: ]] && echo $name $bits; done \
                  </proc/self/status; kill -TERM $$; echo it survived";
    let mut command = Command::new("env");
    command.args(["--default-signal", "--block-signal=USR1", "--ignore-signal=USR2"]);
    command.arg(env!("CARGO_BIN_EXE_twinpage"));
    command.args([
        "prove",
        "--durability",
        "memory",
        "--kills",
        "2",
        "--json",
        "--keep",
    ]);
    command.arg("--scratch");
    command.arg(scratch.path()).args(["--", "bash", "-c", script]);
    let (code, stdout, stderr) = output(command.stdin(Stdio::null()));
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert_eq!(json(&stdout)["ended"]["signal"], 15);
    let kept = scratch.path().join(&names(scratch.path())[0]);
    let printed = fs::read_to_string(kept.join("undisturbed/stdout")).unwrap();
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines[0], format!("SigBlk: {:016x}", 1 << 9), "{printed}");
    assert_eq!(lines.len(), 2, "{printed}");
}

#[test]
fn nothing_runs_on_when_a_proof_is_killed() {
    let scratch = tempfile::tempdir().unwrap();
    // A child in a session of its own, which no signal to the program or its group reaches.
    let script = "setsid bash -c 'echo $$ >child; while :; do :; done' & while :; do :; done";
    let mut command = twinpage();
    command.args(["prove", "--scratch"]).arg(scratch.path());
    command.args(["--", "bash", "-c", script]).stderr(Stdio::null());
    let mut proof = command.spawn().expect("twinpage starts");
    let child = loop {
        let name = names(scratch.path()).pop().unwrap_or_default();
        let text = fs::read_to_string(scratch.path().join(name).join("work/child"));
        match text {
            Ok(text) if text.ends_with('\n') => break text,
            _ => std::thread::sleep(std::time::Duration::from_millis(1)),
        }
    };
    proof.kill().unwrap();
    proof.wait().unwrap();
    while Path::new("/proc").join(child.trim()).exists() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn what_cannot_be_told() {
    let scratch = tempfile::tempdir().unwrap();
    for (words, why) in [
        (&["--", "true"][..], "ends too soon"),
        (&["--", "/no/such/program"], "no such program"),
        (&["--kills", "0", "--", "true"], "--kills"),
    ] {
        let (code, stdout, stderr) = prove(scratch.path(), words);
        assert!(
            code != 0 && code != 1 && stderr.contains(why),
            "{words:?}: {code} {stderr}"
        );
        assert!(stdout.is_empty(), "{stdout}");
    }
    assert!(names(scratch.path()).is_empty(), "something was left");
}

#[test]
fn a_proof_that_is_cut_short_leaves_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let mut command = twinpage();
    command.args(["prove", "--scratch"]).arg(scratch.path());
    command.args(["--", "bash", "-c", "echo begun >begun; while :; do :; done"]);
    let mut child = command.stderr(Stdio::null()).spawn().expect("twinpage starts");
    let begun = |dir: &Path| {
        names(dir)
            .first()
            .is_some_and(|name| dir.join(name).join("work/begun").exists())
    };
    while !begun(scratch.path()) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
    assert!(names(scratch.path()).is_empty(), "something was left");
}

#[test]
fn inputs_are_found() {
    let scratch = tempfile::tempdir().unwrap();
    let here = tempfile::tempdir().unwrap();
    fs::write(
        here.path().join("script"),
        "while read -r line; do for ((j = 0; j < 900; j++)); do :; done; echo \"$line\"; done",
    )
    .unwrap();
    let lines: String = (0..200).map(|n| format!("line {n}\n")).collect();
    fs::write(here.path().join("lines"), &lines).unwrap();
    let mut command = twinpage();
    command
        .args(["prove", "--kills", "3", "--json", "--scratch"])
        .arg(scratch.path());
    command.args(["--", "bash", "script"]).current_dir(here.path());
    command.stdin(fs::File::open(here.path().join("lines")).unwrap());
    let (code, stdout, stderr) = output(&mut command);
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert_eq!(json(&stdout)["stdout_bytes"], lines.len());
}

// ---- info and check ----

/// A state of a program that was killed after it printed something.
fn killed(directory: &Path) -> PathBuf {
    let (state, out) = (directory.join("state"), directory.join("out"));
    let mut command = twinpage();
    command
        .args(["run", "--every", "5ms", "--durability", "memory", "--state"])
        .arg(&state);
    command
        .args(["--", "bash", "-c", COUNTING, "bash", "1000"])
        .current_dir(directory);
    command
        .stdout(fs::File::create(&out).unwrap())
        .stderr(Stdio::null());
    let mut child = command.spawn().expect("twinpage starts");
    while fs::metadata(&out).unwrap().len() == 0 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let (code, stdout, stderr) = output(twinpage().arg("info").arg(&state));
    assert!(
        code == 0 && stdout.contains("in use by twinpage"),
        "{stdout}{stderr}"
    );
    child.kill().unwrap();
    child.wait().unwrap();
    state
}

fn look(subcommand: &str, state: &Path) -> (i32, Value, String) {
    let (code, stdout, stderr) = output(twinpage().args([subcommand, "--json"]).arg(state));
    (
        code,
        if stdout.is_empty() {
            Value::Null
        } else {
            json(&stdout)
        },
        stderr,
    )
}

#[test]
fn what_is_in_a_state() {
    let here = tempfile::tempdir().unwrap();
    let state = killed(here.path());
    // What was killed may need a moment to be gone; check waits for it.
    let (code, checked, stderr) = look("check", &state);
    assert_eq!(
        (code, &checked["damage"]),
        (0, &Value::Array(Vec::new())),
        "{stderr}"
    );
    let (code, said, stderr) = look("info", &state);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(
        (&said["kind"], &said["version"]),
        (&"twinpage program".into(), &1.into())
    );
    assert_eq!(
        (&said["durability"], &said["in_use"]),
        (&"memory".into(), &Value::Null)
    );
    assert_eq!(said["geometry"]["line_bytes"], 64);
    assert!(
        said["epoch"].as_u64() > Some(0) && said["pool"]["pages"].is_u64(),
        "{said}"
    );
    let program = &said["program"];
    assert_eq!(program["threads"], 1);
    let pid = program["pid"].as_u64().expect("a number");
    assert!((300..30_300).contains(&pid), "{pid}");
    assert_eq!(
        (&program["command"][0], &program["finished"]),
        (&"bash".into(), &false.into())
    );
    assert!(program["stored_pages"].as_u64() > Some(50), "{said}");
    assert!(
        said["statistics"]["stop_us"]["max"].as_f64() > Some(0.0),
        "{said}"
    );
    let (_, text, _) = output(twinpage().arg("info").arg(&state));
    assert!(
        text.contains("twinpage resume") && text.contains("epoch"),
        "{text}"
    );
}

#[test]
fn a_finished_program() {
    let here = tempfile::tempdir().unwrap();
    let state = here.path().join("state");
    let mut command = twinpage();
    command
        .args(["run", "--state"])
        .arg(&state)
        .current_dir(here.path());
    output(command.args(["--", "bash", "-c", COUNTING, "bash", "2"]));
    let (_, said, _) = look("info", &state);
    assert_eq!(
        (&said["program"]["finished"], &said["program"]["ended"]["exit"]),
        (&true.into(), &3.into())
    );
    assert_eq!(look("check", &state).0, 0);
    let (code, stdout, stderr) = output(twinpage().arg("resume").arg(&state));
    assert!(
        code == 3 && stdout.is_empty() && stderr.contains("finished"),
        "{stderr}"
    );
}

#[test]
fn damage_is_listed_and_strangers_are_not_called_damaged() {
    let here = tempfile::tempdir().unwrap();
    let state = killed(here.path());
    assert_eq!(look("check", &state).0, 0);
    let flip = |name: &str, at: usize| {
        let mut bytes = fs::read(state.join(name)).unwrap();
        bytes[at] ^= 0x20;
        fs::write(state.join(name), bytes).unwrap();
    };
    let cut = |name: &str| fs::write(state.join(name), b"").unwrap();
    for name in ["kind", "store", "undo.0", "output-0.0000000000000000"] {
        let path = state.join(name);
        let whole = fs::read(&path).unwrap();
        let mut harm: Vec<Box<dyn Fn()>> = vec![
            Box::new(|| cut(name)),
            Box::new(|| fs::remove_file(&path).unwrap()),
        ];
        if name != "output-0.0000000000000000" {
            harm.push(Box::new(|| flip(name, 2)));
        }
        for (number, harm) in harm.iter().enumerate() {
            harm();
            let (code, said, stderr) = look("check", &state);
            if name == "kind" && number == 1 {
                assert!(code == 125 && stderr.contains("holds no state"), "{stderr}");
            } else if name.starts_with("output") && code == 0 {
                // All of it was outside already, for good: it is no longer needed.
            } else {
                assert_eq!(code, 1, "{name} {number}: {stderr}");
                assert!(said["damage"][0]["why"].is_string(), "{said}");
                assert_eq!(stderr, "");
            }
            fs::write(&path, &whole).unwrap();
        }
    }
    assert_eq!(look("check", &state).0, 0);
    for stranger in [
        here.path().join("missing"),
        here.path().join("out"),
        here.path().to_owned(),
    ] {
        for subcommand in ["info", "check"] {
            let (code, said, stderr) = look(subcommand, &stranger);
            assert_eq!((code, said), (125, Value::Null), "{stderr}");
            assert_eq!(stderr.lines().count(), 1, "{stderr}");
        }
    }
}

// ---- shims ----

#[test]
fn a_version_managers_shim_is_seen_through() {
    let here = tempfile::tempdir().unwrap();
    let script = |name: &str, text: &str| {
        let path = here.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    };
    let manager = script(
        "libexec/pyenv",
        "#!/bin/bash\n[ $1 = which ] && exec echo /bin/bash\n(:) ; exec /bin/bash \"${@:3}\"\n",
    );
    let shim = script(
        "shims/shell",
        &format!(
            "#!/bin/bash\nset -e\nexec \"{}\" exec \"${{0##*/}}\" \"$@\"\n",
            manager.display()
        ),
    );
    let user = script("user", "#!/usr/bin/env shell\necho seen through, $1 $BASH\n");
    let path = format!("{}:/usr/bin:/bin", shim.parent().unwrap().display());
    for (number, words) in [
        vec!["shell", user.to_str().unwrap(), "one"],
        vec![user.to_str().unwrap(), "one"],
    ]
    .iter()
    .enumerate()
    {
        let mut command = twinpage();
        command
            .args(["run", "--state"])
            .arg(here.path().join(format!("state{number}")));
        let (code, stdout, stderr) = output(command.arg("--").args(words).env("PATH", &path));
        assert_eq!(
            (code, stdout.as_str()),
            (0, "seen through, one /bin/bash\n"),
            "{stderr}"
        );
        assert!(
            stderr.contains("pyenv") && stderr.contains("/bin/bash"),
            "{stderr}"
        );
    }
}
