//! A person's ways: what runs and what can be resumed is listed; a program is stopped and goes on; asked to end, it
//! is suspended; what has finished goes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use twinpage_campaign::seed;

use rustix::fs::inotify;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use twinpage_os::Lock;

use crate::rest::epoch;
use crate::support::process::{Victim, family, kill, name_of, twinpage};
use crate::support::program::{compile, python_with};
use crate::support::state::{info, refused_in_order, wait_until};
use crate::support::{chance, skip};
use twinpage_campaign::either;

/// Counts in bash, in rounds, until a file is there; then it says how far it came.
const UNTIL_TOLD: &str =
    "i=0; echo ready; while ! [ -e go ]; do i=$((i + 1)); done; echo \"went on\"; exit 6";

/// A home with a user's states, and a working directory.
struct Home {
    scratch: tempfile::TempDir,
}

impl Home {
    fn new() -> Home {
        Home {
            scratch: tempfile::tempdir().expect("a scratch directory"),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn twinpage(&self) -> Command {
        let mut command = twinpage();
        command
            .env_remove("XDG_STATE_HOME")
            .env("HOME", self.scratch.path());
        command.current_dir(self.scratch.path());
        command
    }

    fn append(&self, name: &str) -> Stdio {
        let file = fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(self.path(name));
        file.expect("a file").into()
    }

    /// Runs the counting program until it is ready.
    fn started(&self, options: &[&str]) -> Child {
        let mut command = self.twinpage();
        command.args(["run", "--every", "5ms"]).args(options);
        command.args(["--", "bash", "-c", UNTIL_TOLD]);
        command.stdout(self.append("out")).stderr(self.append("err"));
        let child = command.spawn().expect("twinpage starts");
        wait_until("the program is ready", || self.read("out") == "ready\n");
        child
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn json(&self, words: &[&str]) -> Value {
        let out = self
            .twinpage()
            .args(words)
            .arg("--json")
            .output()
            .expect("twinpage starts");
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{words:?}: {stderr}");
        serde_json::from_slice(&out.stdout).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// The status of each of the user's states, by name.
    fn listed(&self) -> Vec<(String, String)> {
        let told = self.json(&["list"]);
        let states = told["states"].as_array().expect("a list");
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let name = |state: &Value| text(&state["state"]).rsplit('/').next().map(str::to_owned);
        (states.iter())
            .map(|state| (name(state).expect("a name"), text(&state["status"])))
            .collect()
    }

    /// The program goes on in `state` and finishes.
    fn goes_on(&self, state: &Path) {
        fs::write(self.path("go"), "").expect("a file");
        let mut resume = self.twinpage();
        resume.arg("resume").arg(state).stdout(self.append("out"));
        let status = resume.status().expect("twinpage starts");
        assert_eq!(status.code(), Some(6), "{}", self.read("err"));
        // A terminal ends lines with a carriage return.
        assert_eq!(self.read("out").replace('\r', ""), "ready\nwent on\n");
    }
}

fn code(child: &mut Child) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    let status = child.wait().expect("wait for twinpage");
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().expect("a code or a signal"))
}

/// Each process is told of each resume by the signal that its user chose, if it handles it: the program, or one that a shell
/// started.
#[test]
fn a_signal_tells_of_a_resume() {
    let Some(python) = python_with("signal") else {
        return skip("a signal at a resume", "python3", "python3");
    };
    for (handles, by_shell) in [(true, false), (true, true), (false, true)] {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let (state, seen) = (scratch.path().join("state"), scratch.path().join("out"));
        let handler = if handles {
            "signal.signal(signal.SIGUSR1, told)"
        } else {
            ""
        };
        let program = format!(
            "import signal, time\ndef told(*_): print('resumed', flush=True)\n{handler}\nprint('begins', flush=True)\n\
             while True: time.sleep(0.005)"
        );
        let script = match by_shell {
            true => "\"$0\" -c \"$1\"; exit",
            false => "exec \"$0\" -c \"$1\"",
        };
        let out = || {
            let file = fs::OpenOptions::new().append(true).create(true).open(&seen);
            file.expect("a file")
        };
        let mut command = twinpage();
        command.args(["run", "--every", "10ms", "--resume-signal", "USR1", "--state"]);
        command
            .arg(&state)
            .args(["--", "sh", "-c", script, &python, &program])
            .stdout(out());
        let mut child = command.spawn().expect("twinpage starts");
        let printed = || fs::read_to_string(&seen).expect("what it printed");
        wait_until("it begins", || printed().contains("begins"));
        for life in 1..=3 {
            kill(&mut child, Victim::Tree, &mut chance(seed(), "resume signal"));
            let messages = scratch.path().join("messages");
            let mut command = twinpage();
            command
                .args(["resume", "--every", "10ms", "--messages"])
                .arg(&messages);
            command.arg(&state).stdout(out());
            child = command.spawn().expect("twinpage starts");
            let said = || fs::read_to_string(&messages).unwrap_or_default();
            if handles {
                wait_until("it is told", || printed().matches("resumed").count() == life);
            } else {
                wait_until("its user is told", || said().contains("--resume-signal"));
            }
        }
        kill(&mut child, Victim::Tree, &mut chance(seed(), "resume signal"));
        assert_eq!(printed().matches("begins").count(), 1);
    }
}

/// A signal that waits for a program as it goes on does not end a call that blocks it: it is handled after the call.
#[test]
fn a_signal_does_not_end_a_call_that_blocks_it() {
    let Some(program) = compile("masks.c", &[]) else {
        return; // said
    };
    let lives = either(8, 40);
    for script in ["exec \"$0\"", "\"$0\"; exit"] {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let (state, seen) = (scratch.path().join("state"), scratch.path().join("out"));
        let start = |command: &mut Command| {
            let file = fs::OpenOptions::new().append(true).create(true).open(&seen);
            command
                .stdout(file.expect("a file"))
                .spawn()
                .expect("twinpage starts")
        };
        let mut command = twinpage();
        let command = command.args(["run", "--every", "10ms", "--resume-signal", "USR1", "--state"]);
        let mut child = start(command.arg(&state).args(["--", "sh", "-c", script, &program]));
        let mut chance = chance(seed(), "a signal that a call blocks");
        for life in 0..lives {
            let told = format!(", told {life}\n");
            let rounds = chance.usize(1..4);
            wait_until("it was told, and goes on", || {
                let ended = child.try_wait().expect("wait for twinpage");
                assert!(ended.is_none(), "life {life}: a call ended early: {ended:?}");
                let printed = fs::read_to_string(&seen).expect("what it printed");
                printed.matches(&told).count() >= rounds
            });
            kill(&mut child, Victim::Tree, &mut chance);
            let mut command = twinpage();
            child = start(command.args(["resume", "--every", "10ms"]).arg(&state));
        }
        kill(&mut child, Victim::Tree, &mut chance);
    }
}

#[test]
fn a_program_is_listed_stopped_and_goes_on() {
    let home = Home::new();
    assert_eq!(home.listed(), []);
    let mut child = home.started(&[]);
    let own = home.path(".local/state/twinpage/bash-1");
    assert_eq!(home.listed(), [("bash-1".into(), "running".into())]);
    let one = &home.json(&["list"])["states"][0];
    assert!(one["bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{one}");
    assert!(one["age_s"].as_f64().is_some(), "{one}");
    assert_eq!(one["command"][2], UNTIL_TOLD);

    let stopped = home.json(&["stop", &own.display().to_string()]);
    assert_eq!(
        (&stopped["stopped"], &stopped["status"]),
        (&true.into(), &"resumable".into())
    );
    assert_eq!(code(&mut child), 128 + 15);
    assert!(
        home.read("err").contains("twinpage resume"),
        "{}",
        home.read("err")
    );
    assert_eq!(home.listed(), [("bash-1".into(), "resumable".into())]);
    // Nothing that can be resumed is cleaned away.
    assert_eq!(home.json(&["clean"])["states"], Value::Array(vec![]));
    let again = home.json(&["stop", &own.display().to_string()]);
    assert_eq!(
        (&again["stopped"], &again["status"]),
        (&false.into(), &"resumable".into())
    );

    home.goes_on(&own);
    assert_eq!(home.listed(), [], "a finished program's state goes by itself");
    assert!(!own.exists());
}

#[test]
fn asked_to_end_a_program_is_suspended() {
    for (signal, number) in [(Signal::TERM, 15), (Signal::HUP, 1)] {
        // The signal reaches twinpage alone, as from a shell, or all its processes, as from a system that shuts down.
        for all in [false, true] {
            let home = Home::new();
            let state = home.path("state");
            let mut child = home.started(&["--state", "state"]);
            let pids = if all {
                family(child.id() as i32)
            } else {
                vec![child.id() as i32]
            };
            for pid in pids {
                let _ = kill_process(Pid::from_raw(pid).expect("an id"), signal);
            }
            assert_eq!(code(&mut child), 128 + number, "{}", home.read("err"));
            assert!(
                home.read("err").contains("suspended; go on with"),
                "{}",
                home.read("err")
            );
            assert_eq!(home.json(&["info", "state"])["program"]["finished"], false);
            home.goes_on(&state);
            assert!(state.exists(), "a state that was named stays");
        }
    }
}

/// From the first instant of a resume: twinpage has the state before it can suspend the program.
#[test]
fn a_program_is_stopped_while_it_is_made_again() {
    let home = Home::new();
    let mut child = home.started(&["--state", "state"]);
    home.json(&["stop", "state"]);
    assert_eq!(code(&mut child), 128 + 15, "{}", home.read("err"));
    for pause in 0..40 {
        let mut resume = home.twinpage();
        resume.args(["resume", "state"]);
        resume.stdout(home.append("out")).stderr(home.append("err"));
        let mut child = resume.spawn().expect("twinpage starts");
        std::thread::sleep(Duration::from_millis(pause));
        while child.try_wait().expect("twinpage is ours").is_none() {
            home.json(&["stop", "state"]);
        }
    }
    home.goes_on(&home.path("state"));
}

/// A program that has ended takes no signals, while what it printed still waits for a reader.
#[test]
fn twinpage_ends_of_a_signal_where_the_program_has_ended() {
    use std::os::unix::process::ExitStatusExt;
    let home = Home::new();
    let mut run = home.twinpage();
    run.args(["run", "--state", "state", "--", "seq", "50000"]);
    let mut child = run.stdout(Stdio::piped()).spawn().expect("twinpage starts");
    wait_until("the program has ended", || {
        info(&home.path("state"))["program"]["finished"] == true
    });
    kill(&mut child, Victim::Tree, &mut chance(seed(), "ended"));
    let mut resume = home.twinpage();
    resume.args(["resume", "state"]).stdout(Stdio::piped());
    let mut child = resume.spawn().expect("twinpage starts");
    let mut outside = child.stdout.take().expect("a pipe");
    wait_until("the pipe is full", || {
        rustix::io::ioctl_fionread(&outside).is_ok_and(|bytes| bytes > 60_000)
    });
    kill_process(Pid::from_child(&child), Signal::TERM).expect("a signal");
    std::io::copy(&mut outside, &mut std::io::sink()).expect("what it printed until then");
    let status = child.wait().expect("wait for twinpage");
    assert_eq!(status.signal(), Some(15), "{status:?}");
}

/// By choice: else it is the program's.
#[test]
fn an_interrupt_suspends_a_program_where_its_user_wants_that() {
    let home = Home::new();
    let mut child = home.started(&["--state", "state", "--on-interrupt", "suspend"]);
    let twinpage = Pid::from_child(&child);
    kill_process(twinpage, Signal::INT).expect("a signal");
    assert_eq!(code(&mut child), 128 + 2, "{}", home.read("err"));
    assert!(
        home.read("err").contains("suspended; go on with"),
        "{}",
        home.read("err")
    );
    home.goes_on(&home.path("state"));

    let home = Home::new();
    let mut child = home.started(&["--state", "state"]);
    kill_process(Pid::from_child(&child), Signal::INT).expect("a signal");
    assert_eq!(code(&mut child), 128 + 2, "{}", home.read("err"));
    assert!(!home.read("err").contains("suspended"), "{}", home.read("err"));
    assert_eq!(home.json(&["info", "state"])["program"]["finished"], true);
}

/// Typed at the program's terminal, when it or another process of the job is in the foreground; but not at a terminal
/// that the program made.
#[test]
fn a_typed_interrupt_suspends_it_too() {
    const SESSION: &str = r#"
import os, pty, sys
typed, command = sys.argv[1].encode().decode('unicode_escape').encode(), sys.argv[2:]
pid, terminal = pty.fork()
if pid == 0: os.execvp(command[0], command)
shown = b''
while b'ready' not in shown: shown += os.read(terminal, 4096)
os.write(terminal, typed)
try:
    while True: shown += os.read(terminal, 4096)
except OSError: pass
status = os.waitpid(pid, 0)[1]
print(os.waitstatus_to_exitcode(status))
sys.stderr.buffer.write(shown)
"#;
    let Some(python) = python_with("pty") else {
        return;
    };
    let child = format!("bash -c '{UNTIL_TOLD}'; exit $?");
    let inner = "import os, pty\npid, fd = pty.fork()\nif pid == 0:\n    os.execvp('sleep', ['sleep', '600'])\n\
                 import time; time.sleep(0.3); print('ready', flush=True); os.write(fd, b'\\x03')\n\
                 print('ended', os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)";
    let programs: [(&str, &[&str]); 3] = [
        ("\\x03", &["bash", "-c", UNTIL_TOLD]),
        ("\\x03", &["bash", "-c", &child]),
        ("", &[&python, "-c", inner]),
    ];
    for (typed, program) in programs {
        let home = Home::new();
        let mut session = Command::new(&python);
        session.args(["-c", SESSION, typed, env!("CARGO_BIN_EXE_twinpage")]);
        session.args([
            "run",
            "--every",
            "5ms",
            "--state",
            "state",
            "--on-interrupt",
            "suspend",
            "--",
        ]);
        let out = session.args(program).current_dir(home.path(".")).output();
        let out = out.expect("a session");
        let (code, shown) = (
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr),
        );
        if typed.is_empty() {
            assert_eq!(code.trim(), "0", "{shown}");
            assert!(
                shown.contains("ended -2"),
                "the process at the other terminal: {shown}"
            );
            continue;
        }
        assert_eq!(code.trim(), "-2", "{shown}");
        fs::write(home.path("out"), "ready\n").expect("a file"); // as it was shown
        assert_eq!(
            home.json(&["list", "state"])["states"][0]["status"],
            "resumable",
            "{shown}"
        );
        home.goes_on(&home.path("state"));
    }
}

#[test]
fn a_program_at_a_terminal_is_suspended_when_it_is_asked_to_end_or_the_terminal_goes() {
    // The program is the leader of a session on a pseudo-terminal of its own. Once it counts, twinpage is asked to end,
    // or the terminal is closed. Where twinpage does not end, neither does this.
    const SESSION: &str = r#"
import os, pty, signal, sys
how, command = sys.argv[1], sys.argv[2:]
pid, terminal = pty.fork()
if pid == 0: os.execvp(command[0], command)
shown = b''
while b'ready' not in shown: shown += os.read(terminal, 4096)
if how == 'TERM': os.kill(pid, signal.SIGTERM)
else: os.close(terminal)
os.waitpid(pid, 0)
"#;
    let Some(python) = python_with("pty") else {
        return;
    };
    for how in ["TERM", "terminal"] {
        let home = Home::new();
        let mut session = Command::new(&python);
        session
            .args(["-c", SESSION, how, env!("CARGO_BIN_EXE_twinpage")])
            .args([
                "run", "--every", "5ms", "--state", "state", "--", "bash", "-c", UNTIL_TOLD,
            ]);
        let ended = session.current_dir(home.path(".")).status();
        assert!(ended.expect("a session").success());
        fs::write(home.path("out"), "ready\n").expect("a file"); // as it was shown
        assert_eq!(
            home.json(&["list", "state"])["states"][0]["status"],
            "resumable",
            "{how}"
        );
        home.goes_on(&home.path("state"));
    }
}

#[test]
fn a_signal_of_its_own_ends_a_program_all_the_same() {
    let home = Home::new();
    let mut command = home.twinpage();
    command.args([
        "run",
        "--state",
        "state",
        "--",
        "bash",
        "-c",
        "kill -TERM $$; echo alive",
    ]);
    let mut child = command
        .stdout(home.append("out"))
        .spawn()
        .expect("twinpage starts");
    assert_eq!(code(&mut child), 128 + 15);
    assert_eq!(home.read("out"), "");
    assert_eq!(home.json(&["info", "state"])["program"]["finished"], true);
}

#[test]
fn a_sleeping_program_is_suspended_too() {
    let home = Home::new();
    let mut command = home.twinpage();
    command.args(["run", "--every", "5ms", "--state", "state", "--", "sleep", "600"]);
    let mut child = command
        .stderr(home.append("err"))
        .spawn()
        .expect("twinpage starts");
    wait_until("it sleeps", || {
        home.path("state/kind").exists() && {
            let below = family(child.id() as i32);
            below.iter().any(|pid| name_of(*pid) == "sleep")
        }
    });
    std::thread::sleep(std::time::Duration::from_millis(300)); // a rest, most likely
    let stopped = home.json(&["stop", "state"]);
    assert_eq!(
        (&stopped["stopped"], &stopped["status"]),
        (&true.into(), &"resumable".into())
    );
    assert_eq!(code(&mut child), 128 + 15);
}

#[test]
fn what_has_finished_is_cleaned_away_and_nothing_else() {
    let home = Home::new();
    let run = |words: &[&str]| {
        let mut command = home.twinpage();
        command
            .arg("run")
            .args(words)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.status().expect("twinpage starts")
    };
    assert!(run(&["--keep-state", "--", "true"]).success());
    assert!(run(&["--", "true"]).success());
    let mut killed = home.started(&["--keep-state"]);
    kill(&mut killed, Victim::Tree, &mut chance(seed(), "clean"));
    fs::create_dir(home.path(".local/state/twinpage/stranger")).expect("a directory");
    fs::write(home.path(".local/state/twinpage/stranger/file"), "x").expect("a file");
    let left = |name: &str, status: &str| (name.to_owned(), status.to_owned());
    assert_eq!(
        home.listed(),
        [left("bash-1", "resumable"), left("true-1", "finished")]
    );
    let would = home.json(&["clean", "--dry-run"]);
    assert_eq!(would["states"].as_array().map(Vec::len), Some(1));
    assert_eq!(home.listed().len(), 2, "a rehearsal");
    home.json(&["clean"]);
    assert_eq!(home.listed(), [left("bash-1", "resumable")]);
    assert!(home.path(".local/state/twinpage/stranger/file").exists());
    let named = home.path(".local/state/twinpage/bash-1");
    let kept = home
        .twinpage()
        .arg("clean")
        .arg(&named)
        .output()
        .expect("twinpage starts");
    let said = String::from_utf8_lossy(&kept.stdout);
    assert!(
        said.contains("bash-1 (resumable): only what has finished is removed"),
        "{kept:?}"
    );
    // A named state is cleaned when it is named.
    assert!(run(&["--state", "mine", "--", "true"]).success());
    assert_eq!(home.json(&["clean"])["states"], Value::Array(vec![]));
    home.json(&["clean", "mine"]);
    assert!(!home.path("mine").exists());
}

#[test]
fn what_cannot_be_removed_is_told_and_the_rest_goes() {
    let home = Home::new();
    for name in ["a", "b", "c"] {
        let mut command = home.twinpage();
        command.args(["run", "--state", name, "--", "true"]);
        assert!(command.status().expect("twinpage starts").success());
    }
    // One is read all the time; another is until it was seen that its removal waits.
    let _reader = Lock::to_read(home.path("a")).expect("a lock");
    let reader = Lock::to_read(home.path("b")).expect("a lock");
    let looks = inotify::init(inotify::CreateFlags::NONBLOCK).expect("a watch");
    inotify::add_watch(&looks, home.path("b"), inotify::WatchFlags::OPEN).expect("a watch");
    let mut command = home.twinpage();
    command.args(["clean", "--json", "a", "b", "c"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("twinpage starts");
    let (mut opened, mut buffer) = (0, [std::mem::MaybeUninit::uninit(); 4096]);
    wait_until("it waits for the reader", || {
        let mut news = inotify::Reader::new(&looks, &mut buffer);
        while news.next().is_ok() {
            opened += 1;
        }
        opened > 30 || child.try_wait().expect("wait for twinpage").is_some()
    });
    drop(reader);
    let out = child.wait_with_output().expect("wait for twinpage");
    assert_eq!(out.status.code(), Some(125), "one is left");
    let told: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let removed: Vec<&str> = (told["states"].as_array().expect("a list").iter())
        .filter_map(|state| state["state"].as_str())
        .collect();
    assert_eq!(removed, ["b", "c"], "{told}");
    assert_eq!(told["failed"][0]["state"], "a", "{told}");
    let why = told["failed"][0]["why"].as_str().expect("a reason");
    assert!(why.contains("in use"), "{why}");
    let there = ["a", "b", "c"].map(|name| home.path(name).exists());
    assert_eq!(there, [true, false, false]);
}

#[test]
fn only_damage_is_called_so() {
    let home = Home::new();
    let mut child = home.started(&["--state", "state"]);
    kill(&mut child, Victim::Tree, &mut chance(seed(), "damage"));
    let listed = || {
        let told = home.json(&["list", "state"]);
        let state = &told["states"][0];
        let text = |name: &str| state[name].as_str().unwrap_or_default().to_owned();
        (text("status"), text("why"))
    };
    let kind = fs::read_to_string(home.path("state/kind")).expect("the kind");
    let of_version_9 = kind.replace("\"version\":2", "\"version\":9");
    assert_ne!(kind, of_version_9);
    fs::write(home.path("state/kind"), of_version_9).expect("room for it");
    let (status, why) = listed();
    assert!(
        status == "unknown" && why.contains("version 9"),
        "{status}: {why}"
    );
    fs::write(home.path("state/kind"), &kind).expect("room for it");

    fs::write(home.path("state/going-back"), "1").expect("room for it");
    let (status, why) = listed();
    assert!(
        status == "unknown" && why.contains("cut short"),
        "{status}: {why}"
    );
    fs::remove_file(home.path("state/going-back")).expect("it is there");

    let store = fs::read(home.path("state/store")).expect("the store");
    fs::write(home.path("state/store"), vec![b'x'; store.len()]).expect("room for it");
    assert_eq!(listed().0, "damaged");
    // Its bytes move while it is written.
    let lock = Lock::take(home.path("state")).expect("a lock");
    assert_eq!(listed().0, "running");
    drop(lock);
    fs::write(home.path("state/store"), store).expect("room for it");
    assert_eq!(listed(), ("resumable".into(), String::new()));
}

#[test]
fn a_state_that_is_removed_while_its_program_runs_is_missed() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let state = scratch.path().join("state");
    let mut command = twinpage();
    command.args(["run", "--every", "5ms", "--state"]).arg(&state);
    command
        .args(["--", "sh", "-c", "while :; do :; done"])
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("twinpage starts");
    let told = BufReader::new(child.stderr.take().expect("its messages"));
    wait_until("a checkpoint is there", || epoch(&state) > 0);
    wait_until("it is removed", || fs::remove_dir_all(&state).is_ok()); // files are made meanwhile
    let mut told = told.lines().map(|line| line.expect("a message"));
    let missed =
        |line: &String| line.contains("there is no state at ") && line.contains("a kill loses the program");
    assert!(told.any(|line| missed(&line)), "nothing is told");
    child.kill().expect("kill twinpage");
    child.wait().expect("wait for twinpage");
}

#[test]
fn what_is_no_twinpage_is_named_and_not_waited_for() {
    let home = Home::new();
    let mut child = home.started(&["--state", "state"]);
    kill(&mut child, Victim::Tree, &mut chance(seed(), "holder"));
    let lock = Lock::take(home.path("state")).expect("a lock");
    let out = home.twinpage().args(["stop", "state"]).output();
    let said = refused_in_order("in use by another", &out.expect("twinpage starts"));
    assert!(
        said.contains(&format!("process {}", std::process::id())),
        "{said}"
    );
    assert!(said.contains("cannot be suspended"), "{said}");
    drop(lock);
    assert_eq!(home.json(&["stop", "state"])["status"], "resumable");
}

#[test]
fn the_names_of_a_new_state_are_durable() {
    if Command::new("strace").arg("-V").output().is_err() {
        return skip("syncs of a new state", "strace", "strace");
    }
    let home = Home::new();
    let top = home.path(".").canonicalize().expect("it is there");
    // Directories that are synced, as the system saw it.
    let synced = |words: &[&str]| {
        let mut command = Command::new("strace");
        command.args([
            "-y",
            "-e",
            "trace=fsync",
            "-o",
            "calls",
            env!("CARGO_BIN_EXE_twinpage"),
            "run",
        ]);
        command.args(words).args(["--", "true"]).current_dir(&top);
        command.env_remove("XDG_STATE_HOME").env("HOME", &top);
        let status = command.stderr(Stdio::null()).status().expect("strace");
        assert!(status.success(), "{words:?}");
        let path = |call: &str| Some(PathBuf::from(call.split_once('<')?.1.split_once('>')?.0));
        home.read("calls").lines().filter_map(path).collect::<Vec<_>>()
    };
    let named = synced(&["--state", "a/b/state"]);
    for above in ["a/b", "a", ""] {
        assert!(
            named.contains(&top.join(above)),
            "{above:?} is not synced: {named:?}"
        );
    }
    let own = synced(&[]);
    for above in [".local/state/twinpage", ".local/state", ".local", ""] {
        assert!(own.contains(&top.join(above)), "{above:?} is not synced: {own:?}");
    }
}
