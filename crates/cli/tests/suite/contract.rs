//! What scripts may rely on: exit codes, signals, help with examples, JSON that parses.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use twinpage_campaign::{either, seed};

use crate::support::ordinary::OrdinaryUser;
use crate::support::process::{family, name_of, send, twinpage};
use crate::support::program::compile;
use crate::support::state::{COUNTING, Killed, on_state, wait_until};
use crate::support::{chance, say};

fn run(words: &[&str]) -> Output {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let mut command = twinpage();
    command
        .args(["run", "--state"])
        .arg(scratch.path().join("state"))
        .arg("--")
        .args(words);
    command.output().expect("twinpage starts")
}

/// An exit status as a shell shows it.
fn shell_code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().expect("a code or a signal"))
}

fn json(out: &Output) -> Value {
    let text = String::from_utf8_lossy(&out.stdout);
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("not one JSON document: {e}:\n{text}"))
}

#[test]
fn exit_codes_pass_through() {
    for code in [0, 1, 3, 77, 125, 126, 127, 255] {
        let out = run(&["bash", "-c", &format!("echo said; exit {code}")]);
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{stderr}");
        assert_eq!(out.stdout, b"said\n", "{stderr}");
    }
}

#[test]
fn a_program_that_dies_by_a_signal() {
    for signal in ["TERM", "INT", "HUP", "ABRT", "SEGV", "KILL", "USR1"] {
        let words = ["-c", &format!("echo said; kill -{signal} $$; echo not said")];
        let alone = Command::new("env")
            .args(["--default-signal", "bash"])
            .args(words)
            .output();
        let alone = alone.expect("bash");
        let out = run(&["bash", words[0], words[1]]);
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert_eq!(
            shell_code(out.status),
            shell_code(alone.status),
            "SIG{signal}: {stderr}"
        );
        assert_eq!(out.stdout, b"said\n", "SIG{signal}: {stderr}");
    }
}

#[test]
fn signals_to_twinpage_reach_the_program() {
    for signal in ["TERM", "INT", "HUP", "USR1", "WINCH"] {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let out = scratch.path().join("out");
        let script = format!("trap 'echo got {signal}; exit 9' {signal}; echo ready; while :; do :; done");
        let mut command = twinpage();
        command
            .args(["run", "--every", "5ms", "--on-term", "forward", "--state"])
            .arg(scratch.path().join("state"));
        command
            .args(["--", "bash", "-c", &script])
            .stdout(fs::File::create(&out).expect("a file"));
        let mut child = command.spawn().expect("twinpage starts");
        wait_until("the program is ready", || {
            fs::read(&out).is_ok_and(|bytes| bytes == b"ready\n")
        });
        let sent = Command::new("kill")
            .args([&format!("-{signal}"), &child.id().to_string()])
            .status();
        assert!(sent.is_ok_and(|status| status.success()), "kill");
        assert_eq!(
            child.wait().expect("wait for twinpage").code(),
            Some(9),
            "SIG{signal}"
        );
        assert_eq!(
            fs::read_to_string(&out).expect("the output"),
            format!("ready\ngot {signal}\n")
        );
    }
}

#[test]
fn a_killed_program_has_not_finished() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (state, out) = (scratch.path().join("state"), scratch.path().join("out"));
    let script = "echo ready; for ((i = 0; i < 400000; i++)); do :; done; echo done; exit 3";
    let mut command = twinpage();
    command.args(["run", "--every", "5ms", "--state"]).arg(&state);
    command
        .args(["--", "bash", "-c", script])
        .stdout(fs::File::create(&out).expect("a file"))
        .stderr(Stdio::piped());
    let child = command.spawn().expect("twinpage starts");
    wait_until("the program is ready", || {
        fs::read(&out).is_ok_and(|bytes| bytes == b"ready\n")
    });
    for pid in family(child.id() as i32) {
        if name_of(pid) == "bash" {
            kill_process(Pid::from_raw(pid).expect("a process"), Signal::KILL).expect("kill");
        }
    }
    let run = child.wait_with_output().expect("wait for twinpage");
    let stderr = String::from_utf8_lossy(&run.stderr);
    assert_eq!(shell_code(run.status), 137, "{stderr}");
    assert!(stderr.contains("twinpage resume"), "{stderr}");
    let resumed = twinpage().arg("resume").arg(&state).output().expect("twinpage");
    assert_eq!(resumed.status.code(), Some(3), "it goes on");
    assert_eq!(resumed.stdout, b"done\n");
}

/// A kill comes between any two of twinpage's looks at the program, which then fail.
#[test]
fn a_kill_at_any_instant_is_told_as_one() {
    let seed = seed();
    say(&format!(
        "kills at any instant: TWINPAGE_SEED={seed} repeats the instants"
    ));
    let mut chance = chance(seed, "kills at any instant");
    for round in 0..either(20, 400) {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let mut command = twinpage();
        command.args(["run", "--every", "1ms", "--state"]);
        command.arg(scratch.path().join("state"));
        command.args(["--", "bash", "-c", "echo $$; while :; do :; done"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("twinpage starts");
        let mut said = BufReader::new(child.stdout.take().expect("a pipe"));
        said.read_line(&mut String::new()).expect("its output");
        let family = family(child.id() as i32);
        let program = family.into_iter().find(|&pid| name_of(pid) == "bash");
        thread::sleep(Duration::from_micros(chance.u64(0..20_000)));
        send(program.expect("bash runs"), Signal::KILL);
        let run = child.wait_with_output().expect("wait for twinpage");
        let stderr = String::from_utf8_lossy(&run.stderr);
        assert_eq!(shell_code(run.status), 137, "round {round}: {stderr}");
    }
}

#[test]
fn an_ignored_signal_stays_ignored() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let mut command = Command::new("env");
    command.args([
        "--default-signal",
        "--ignore-signal=HUP",
        env!("CARGO_BIN_EXE_twinpage"),
        "run",
        "--state",
    ]);
    command.arg(scratch.path().join("state"));
    command.args(["--", "bash", "-c", "kill -HUP $$; echo alive; kill -TERM $$"]);
    let out = command.output().expect("twinpage starts");
    assert_eq!(out.stdout, b"alive\n", "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(shell_code(out.status), 128 + 15);
}

#[test]
fn standard_input_reaches_the_program() {
    use std::io::Write;
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let text: String = (0..20_000).map(|i| format!("line {i}\n")).collect();
    let script = "n=0; while read -r _ i; do n=$((n + i)); done; echo $n";
    let mut command = twinpage();
    command
        .args(["run", "--state"])
        .arg(scratch.path().join("state"))
        .args(["--", "bash", "-c", script]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("twinpage starts");
    child
        .stdin
        .take()
        .expect("its stdin")
        .write_all(text.as_bytes())
        .expect("write to it");
    let out = child.wait_with_output().expect("wait for twinpage");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "199990000\n");
}

#[test]
fn a_script_with_an_interpreter_line() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let script = scratch.path().join("script");
    fs::write(&script, "#!/usr/bin/env bash\necho \"$0 $1\"\n").expect("a script");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("make it executable");
    let name = script.display().to_string();
    let out = run(&[&name, "argument"]);
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert_eq!(
        String::from_utf8_lossy(&out.stdout),
        format!("{name} argument\n"),
        "{stderr}"
    );
}

#[test]
fn the_environment_and_the_directory_are_the_users() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let mut command = twinpage();
    command.args(["run", "--state"]).arg(scratch.path().join("state"));
    command
        .args(["--", "bash", "-c", "echo $PWD $MARK"])
        .env("MARK", "a mark")
        .current_dir("/usr");
    let out = command.output().expect("twinpage starts");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "/usr a mark\n");
}

#[test]
fn every_subcommand_has_help_with_an_example() {
    let help = twinpage().arg("--help").output().expect("twinpage starts");
    let text = String::from_utf8_lossy(&help.stdout).into_owned();
    assert!(help.status.success() && text.contains("twinpage"), "{text}");
    for subcommand in [
        "run", "resume", "prove", "list", "stop", "clean", "info", "check", "stats", "backup", "bench",
    ] {
        assert!(
            text.contains(subcommand),
            "{subcommand} is not in the help:\n{text}"
        );
        let out = twinpage()
            .args([subcommand, "--help"])
            .output()
            .expect("twinpage starts");
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let example = text.lines().any(|line| {
            line.trim_start()
                .trim_start_matches("$ ")
                .starts_with("twinpage ")
        });
        assert!(
            out.status.success() && example,
            "{subcommand} --help has no example:\n{text}"
        );
    }
}

#[test]
fn explain_lists_what_is_supported() {
    let out = twinpage()
        .args(["run", "--explain"])
        .output()
        .expect("twinpage starts");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    for word in ["threads", "io_uring", "fork", "socket", "shmget"] {
        assert!(text.contains(word), "{word} is not explained:\n{text}");
    }
}

#[test]
fn info_and_check_speak_json() {
    let killed = Killed::midway();
    let state = killed.path("state");
    for subcommand in ["info", "check"] {
        let out = on_state(&[subcommand, "--json"], &state);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let value = json(&out);
        for field in ["kind", "version", "geometry", "epoch", "pool"] {
            assert!(
                value.get(field).is_some(),
                "{subcommand} --json has no {field}: {value}"
            );
        }
        assert!(value["epoch"].as_u64().is_some_and(|epoch| epoch > 0), "{value}");
    }
}

#[test]
fn run_and_resume_write_statistics() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let stats = scratch.path().join("stats.json");
    let mut command = twinpage();
    command
        .args(["run", "--every", "10ms", "--stats"])
        .arg(&stats)
        .arg("--state")
        .arg(scratch.path().join("state"));
    command.args([
        "--",
        "bash",
        "-c",
        "for ((i = 0; i < 100000; i++)); do :; done; echo done",
    ]);
    let out = command.output().expect("twinpage starts");
    assert_eq!(out.stdout, b"done\n", "{}", String::from_utf8_lossy(&out.stderr));
    let value: Value =
        serde_json::from_str(&fs::read_to_string(&stats).expect("the statistics")).expect("JSON");
    for field in ["epochs", "pages", "lines", "bytes_written"] {
        assert!(value[field].as_u64().is_some_and(|n| n > 0), "{field}: {value}");
    }
    for field in ["p50", "p99", "max"] {
        assert!(
            value["stop_us"][field].as_f64().is_some_and(|us| us > 0.0),
            "stop_us.{field}: {value}"
        );
    }
}

/// Runs `c_many` with so many descriptors: how many were looked at, and in how many epochs.
fn looked_at_of_many(mode: &str, many: u64) -> Option<(u64, u64)> {
    let binary = compile("c_many.c", &["-pthread"])?;
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let stats = scratch.path().join("stats.json");
    let mut command = twinpage();
    command
        .args(["run", "--every", "4ms", "--stats"])
        .arg(&stats)
        .arg("--state")
        .arg(scratch.path().join("state"))
        .args(["--", &binary, mode, &many.to_string()])
        .current_dir(scratch.path());
    let out = command.output().expect("twinpage starts");
    assert_eq!(out.stdout, b"done\n", "{}", String::from_utf8_lossy(&out.stderr));
    let value: Value =
        serde_json::from_str(&fs::read_to_string(&stats).expect("the statistics")).expect("JSON");
    let [looked_at, epochs] = ["descriptors", "epochs"].map(|field| value[field].as_u64().unwrap_or(0));
    assert!(epochs > 4, "{value}");
    Some((looked_at, epochs))
}

/// A stop looks at what calls changed, not at all that is open.
#[test]
fn a_stop_looks_at_descriptors_that_changed() {
    let many = either(2000, 10_000);
    if let Some((looked_at, epochs)) = looked_at_of_many("still", many) {
        // So many are open. Then each of 300 rounds touches three numbers at most, and sleeps.
        assert!(
            (many..many + 1000).contains(&looked_at),
            "{looked_at} in {epochs} epochs"
        );
    }
}

/// Nor at all that processes have which compute.
#[test]
fn a_stop_of_a_tree_looks_at_descriptors_that_changed() {
    let many = either(2000, 10_000);
    if let Some((looked_at, epochs)) = looked_at_of_many("busy", many) {
        // Those of three processes, perhaps once more as each is new, and a few of each stop.
        assert!(
            looked_at < 6 * many + 20 * epochs,
            "{looked_at} in {epochs} epochs"
        );
    }
}

#[test]
fn prove_says_what_it_proved() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let script = "for ((i = 1; i <= 20; i++)); do for ((j = 0; j < 15000; j++)); do :; done; echo $i >>log; echo $i; done";
    let mut command = twinpage();
    command.args([
        "prove", "--json", "--kills", "5", "--seed", "7", "--", "bash", "-c", script,
    ]);
    let out = command
        .current_dir(scratch.path())
        .output()
        .expect("twinpage starts");
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{stderr}");
    let value = json(&out);
    assert_eq!(value["identical"], Value::Bool(true), "{value}");
    assert_eq!(value["seed"], 7, "{value}");
    assert!(value["kills"].as_u64().is_some_and(|kills| kills >= 5), "{value}");
    for field in ["resumes", "stop_us", "restore_ms", "lost_ms"] {
        assert!(value.get(field).is_some(), "{field}: {value}");
    }
}

#[test]
fn prove_fails_for_a_program_that_is_never_the_same() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let script =
        "for ((i = 1; i <= 8; i++)); do for ((j = 0; j < 15000; j++)); do :; done; echo $EPOCHREALTIME; done";
    let mut command = twinpage();
    command
        .args(["prove", "--json", "--kills", "2", "--", "bash", "-c", script])
        .current_dir(scratch.path());
    let out = command.output().expect("twinpage starts");
    assert!(
        !out.status.success(),
        "a program that prints the time is called identical"
    );
    assert_eq!(json(&out)["identical"], Value::Bool(false));
}

/// What becomes of `twinpage run WORDS` by an ordinary user, in a directory of its own. `None`: there is no such user here.
fn run_by_ordinary_user(test: &str, words: &[&str]) -> Option<Output> {
    Some(run_by(&OrdinaryUser::of(test)?, words))
}

fn run_by(user: &OrdinaryUser, words: &[&str]) -> Output {
    let home = tempfile::tempdir().expect("a scratch directory");
    user.give(home.path());
    let mut command = user.twinpage();
    command.args(["run", "--state", "state"]).args(words);
    command.current_dir(home.path()).output().expect("setpriv")
}

#[test]
fn a_user_without_privileges() {
    let words = ["--every", "5ms", "--", "bash", "-c", COUNTING];
    let Some(out) = run_by_ordinary_user("a user without privileges", &words) else {
        return;
    };
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{stderr}");
    assert_eq!(
        out.stdout,
        (1..=12).map(|i| format!("{i}\n")).collect::<String>().as_bytes(),
        "{stderr}"
    );
}

#[test]
fn a_file_of_an_ordinary_user_goes_to_no_other() {
    let script =
        "touch f && chown $(id -u) f && chgrp $(id -g) f && for by in chown chgrp; do LC_ALL=C $by 0 f; done";
    let words = ["--", "sh", "-c", script];
    let Some(out) = run_by_ordinary_user("a file of an ordinary user goes to no other", &words) else {
        return;
    };
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert_eq!(
        stderr.matches("f': Operation not permitted").count(),
        2,
        "{stderr}"
    );
}

/// From a directory with the sticky bit, as /tmp, a user removes no file of another: the kernel says so. From others he
/// does, and a file that cannot be kept is refused by name: the program goes on.
#[test]
fn what_a_sticky_directory_protects_stays() {
    if !rustix::process::geteuid().is_root() {
        return say(
            "SKIPPED: what a sticky directory protects stays: the tests are no other user than the program",
        );
    }
    let Some(user) = OrdinaryUser::numbered("what a sticky directory protects stays", 12_345) else {
        return;
    };
    let shared = tempfile::tempdir().expect("a scratch directory");
    let theirs = shared.path().join("theirs");
    for (bits, refused) in [(0o1777, 2), (0o777, 0)] {
        fs::set_permissions(shared.path(), fs::Permissions::from_mode(bits)).expect("chmod");
        fs::write(&theirs, "theirs").expect("a file of root");
        let script = format!(
            "LC_ALL=C rm -f {0}; echo mine > mine; LC_ALL=C mv -f mine {0}; echo on",
            theirs.display()
        );
        let out = run_by(&user, &["--", "sh", "-c", &script]);
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.stdout, b"on\n", "{stderr}");
        assert!(out.status.success(), "{stderr}");
        assert_eq!(
            stderr.matches("': Operation not permitted").count(),
            refused,
            "{stderr}"
        );
    }
}

/// Runs a command line in a terminal of its own and types into it when `ready` was printed.
fn in_a_terminal(line: &str, keys: &[u8]) -> (ExitStatus, String) {
    use std::io::Write;
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let seen = scratch.path().join("seen");
    let mut command = Command::new("script");
    command
        .args(["-qefc", line])
        .arg(&seen)
        .current_dir(scratch.path());
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("script, of bsdutils");
    let shown = || String::from_utf8_lossy(&fs::read(&seen).unwrap_or_default()).replace('\r', "");
    wait_until("the program is ready", || shown().contains("ready\n"));
    child
        .stdin
        .as_mut()
        .expect("its stdin")
        .write_all(keys)
        .expect("type");
    let status = child.wait().expect("wait for script");
    (status, shown())
}

#[test]
fn control_c_in_a_terminal() {
    let script =
        "trap 'echo interrupted; exit 9' INT; [ -t 0 ] && [ -t 1 ] && echo ready; while :; do :; done";
    let line = format!(
        "env --default-signal {} run --every 5ms --state state -- bash -c \"{script}\"",
        env!("CARGO_BIN_EXE_twinpage")
    );
    let (status, shown) = in_a_terminal(&line, b"\x03");
    assert_eq!(status.code(), Some(9), "{shown}");
    assert!(
        shown.contains("ready\n") && shown.contains("interrupted\n"),
        "{shown}"
    );
}

#[test]
fn typing_in_a_terminal() {
    let script = "echo ready; read -r line; echo got $line; exit 4";
    let line = format!(
        "{} run --every 5ms --state state -- bash -c '{script}'",
        env!("CARGO_BIN_EXE_twinpage")
    );
    let (status, shown) = in_a_terminal(&line, b"some words\n");
    assert_eq!(status.code(), Some(4), "{shown}");
    assert!(shown.contains("got some words\n"), "{shown}");
}

/// The programs that `make install`, the README's line, puts side by side.
fn installed() -> Vec<String> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let readme = fs::read_to_string(format!("{root}/README.md")).expect("the README");
    assert!(
        readme.contains("\nmake install "),
        "the README installs otherwise"
    );
    let made = Command::new("make")
        .args(["-n", "install"])
        .current_dir(root)
        .output();
    let made = String::from_utf8(made.expect("make starts").stdout).expect("text");
    let paths = made
        .lines()
        .filter_map(|line| line.strip_prefix("cargo install ")?.split("--path ").nth(1));
    let programs = paths.flat_map(|path| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["metadata", "--format-version", "1", "--no-deps", "--offline"]);
        let manifest = format!("{root}/{}/Cargo.toml", path.trim());
        let metadata = json(
            &cargo
                .args(["--manifest-path", &manifest])
                .output()
                .expect("cargo starts"),
        );
        let manifest = fs::canonicalize(manifest).expect("a package");
        let packages = metadata["packages"].as_array().expect("packages").iter();
        let own = packages.filter(|package| package["manifest_path"] == manifest.to_str().expect("text"));
        let targets = own.flat_map(|package| package["targets"].as_array().expect("targets").clone());
        let programs = targets.filter(|target| target["kind"][0] == "bin");
        programs
            .map(|target| target["name"].as_str().expect("a name").to_owned())
            .collect::<Vec<_>>()
    });
    programs.collect()
}

#[test]
fn what_the_readme_installs_runs_every_benchmark() {
    let installed = installed();
    assert!(installed.iter().any(|name| name == "twinpage"), "{installed:?}");
    let place = tempfile::tempdir().expect("a place");
    let command = place.path().join("twinpage");
    fs::copy(env!("CARGO_BIN_EXE_twinpage"), &command).expect("a copy of the command");
    for what in ["region", "sections", "versions", "objects"] {
        let bench = |asked: &str| {
            Command::new(&command)
                .args(["bench", what, asked])
                .output()
                .expect("it starts")
        };
        let alone = bench("--engine");
        let said = String::from_utf8_lossy(&alone.stderr).into_owned();
        assert!(
            alone.status.code() == Some(125) && said.contains("make install"),
            "{what}: {said}"
        );
        // The name of the program is the command's: any other would not be found beside it.
        for program in installed.iter().filter(|name| *name != "twinpage") {
            let beside = place.path().join(program);
            std::os::unix::fs::symlink("/bin/echo", &beside).expect("a program beside it");
            let started = bench("--engine");
            fs::remove_file(&beside).expect("a link");
            assert_eq!(
                String::from_utf8_lossy(&started.stdout),
                format!("{what} --engine\n")
            );
        }
    }
    assert_eq!(installed.len(), 2, "{installed:?}");
}
