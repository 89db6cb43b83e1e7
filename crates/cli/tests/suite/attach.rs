//! A detached program goes on while terminals come and go, and after kills.

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::support::process::{twinpage, with_argument};
use crate::support::sink::terminal;
use crate::support::state::wait_until;

/// Answers each line with its number in the whole session; ends with code 7 when told.
const COUNTS: &str =
    "n=0; while read -r line; do n=$((n+1)); test \"$line\" = end && exit 7; echo \"$n: $line.\"; done";

/// The key that leaves.
const LEAVE: &str = "\x1c";

/// A person at a terminal of their own that shows a detached program.
struct Person {
    attach: Child,
    keyboard: OwnedFd,
    seen: Arc<Mutex<Vec<u8>>>,
    eye: JoinHandle<()>,
}

impl Person {
    fn at(state: &Path) -> Person {
        Person::at_size(state, 90)
    }

    fn at_size(state: &Path, columns: u16) -> Person {
        let (master, slave) = terminal();
        let size = Winsize {
            ws_row: 30,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&slave, size).expect("a size");
        let end = || Stdio::from(slave.try_clone().expect("another end"));
        let mut command = twinpage();
        command.arg("attach").arg(state);
        let attach = command.stdin(end()).stdout(end()).stderr(end()).spawn();
        let keyboard = master.try_clone().expect("another end");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let shown = Arc::clone(&seen);
        let eye = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // A terminal of which all ends are closed tells an error.
            while let Ok(count @ 1..) = rustix::io::read(&master, &mut bytes) {
                shown
                    .lock()
                    .expect("the screen")
                    .extend_from_slice(&bytes[..count]);
            }
        });
        Person {
            attach: attach.expect("twinpage starts"),
            keyboard,
            seen,
            eye,
        }
    }

    /// A person who sees the end of much that is printed: one whose terminal takes too little meanwhile is let go, and
    /// attaches again.
    fn at_the_end_of(state: &Path, text: &str) -> Person {
        loop {
            let mut person = Person::at(state);
            let mut is_attached = true;
            wait_until(&format!("{text:?} is shown"), || {
                is_attached = person.attach.try_wait().expect("look at attach").is_none();
                !is_attached || person.screen().contains(text)
            });
            if is_attached {
                return person;
            }
            person.ends();
        }
    }

    fn types(&self, keys: &str) {
        rustix::io::write(self.keyboard.as_fd(), keys.as_bytes()).expect("type");
    }

    fn sees(&self, text: &str) {
        wait_until(&format!("{text:?} is shown"), || self.screen().contains(text));
    }

    fn screen(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().expect("the screen")).into_owned()
    }

    /// The exit code of `attach`, and all that was shown.
    fn ends(mut self) -> (Option<i32>, String) {
        let status = self.attach.wait().expect("wait for attach");
        let screen = Arc::clone(&self.seen);
        self.eye.join().expect("all that was shown");
        let shown = screen.lock().expect("the screen");
        (status.code(), String::from_utf8_lossy(&shown).into_owned())
    }
}

fn detached(subcommand: &[&str], state: &Path, rest: &[&str]) -> Output {
    let mut command = twinpage();
    command.args(subcommand).args(["--detach", "--every", "20ms"]);
    match rest {
        [] => command.arg(state),
        rest => command.arg("--state").arg(state).arg("--").args(rest),
    };
    command.stdin(Stdio::null()).output().expect("twinpage starts")
}

fn stderr_of(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

fn begin(state: &Path) {
    let out = detached(&["run"], state, &["sh", "-c", COUNTS]);
    let stderr = stderr_of(&out);
    assert_eq!(out.status.code(), Some(0), "{stderr}");
    assert!(
        stderr.contains(&format!("twinpage attach {}", state.display())),
        "{stderr}"
    );
}

/// The keeper of a state, and the processes of twinpage that descend from it.
fn processes(state: &Path) -> Vec<i32> {
    let mut all = with_argument(&state.display().to_string());
    let attached = with_argument("attach");
    all.retain(|pid| !attached.contains(pid));
    all
}

fn kill(pid: i32) {
    // One that ended with another is no loss.
    let _ = kill_process(Pid::from_raw(pid).expect("a process"), Signal::KILL);
}

fn status(state: &Path) -> String {
    let out = twinpage()
        .args(["list", "--json"])
        .arg(state)
        .output()
        .expect("twinpage starts");
    let list: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap_or_default(); // nothing is there yet
    list["states"][0]["status"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn a_state() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let state = dir.path().join("state");
    (dir, state)
}

#[test]
fn terminals_come_and_go_while_the_program_goes_on() {
    let (_dir, state) = a_state();
    begin(&state);
    let first = Person::at(&state);
    first.types("one\n");
    first.sees("1: one.");
    first.types(&format!("two\n{LEAVE}not typed"));
    let (code, shown) = first.ends();
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("it goes on"), "{shown}");
    // What was printed with no terminal attached is shown to the next.
    let (second, third) = (Person::at(&state), Person::at(&state));
    second.sees("1: one.");
    second.sees("2: two.");
    second.types("three\n");
    second.sees("3: three.");
    third.sees("3: three.");
    second.types("end\n");
    for (code, shown) in [second.ends(), third.ends()] {
        assert_eq!(code, Some(7), "{shown}");
        assert!(!shown.contains("not typed"), "{shown}");
    }
    assert!(!state.join("attach").exists(), "the socket is left");
}

#[test]
fn a_terminal_that_is_closed_or_stands_still_holds_up_nobody() {
    let (_dir, state) = a_state();
    let out = detached(
        &["run"],
        &state,
        &[
            "sh",
            "-c",
            "read -r go; seq 2000000; read -r more; echo \"more: $more\"",
        ],
    );
    assert_eq!(out.status.code(), Some(0), "{}", stderr_of(&out));
    let mut still = Person::at(&state);
    still.types("go\n");
    wait_until("the first numbers are shown", || {
        still.screen().contains("100\r\n")
    });
    let pid = Pid::from_raw(still.attach.id() as i32).expect("a process");
    kill_process(pid, Signal::STOP).expect("stop it");
    let other = Person::at_the_end_of(&state, "2000000\r\n");
    kill_process(pid, Signal::KILL).expect("kill it");
    still.attach.wait().expect("wait for attach");
    other.types("work\n");
    other.sees("more: work");
    assert_eq!(other.ends().0, Some(0));
}

#[test]
fn a_detached_program_survives_its_keeper_and_a_kill_of_all() {
    let (_dir, state) = a_state();
    begin(&state);
    let person = Person::at(&state);
    person.types("one\n");
    person.sees("1: one.");
    kill(keeper(&processes(&state)));
    let (code, shown) = person.ends();
    assert_eq!(code, Some(125), "{shown}");
    assert!(shown.contains("twinpage resume --detach"), "{shown}");
    wait_until("the program is suspended", || status(&state) == "resumable");
    let out = detached(&["resume"], &state, &[]);
    assert_eq!(out.status.code(), Some(0), "{}", stderr_of(&out));
    let person = Person::at(&state);
    person.types("two\n");
    person.sees("2: two.");
    let all = processes(&state);
    kill(keeper(&all)); // first: it takes its socket away when the others end
    all.into_iter().for_each(kill);
    person.ends();
    wait_until("all are gone", || processes(&state).is_empty());
    assert!(state.join("attach").exists(), "the socket that a kill leaves");
    let out = detached(&["resume"], &state, &[]);
    assert_eq!(out.status.code(), Some(0), "{}", stderr_of(&out));
    let person = Person::at(&state);
    person.types("three\n");
    person.sees("3: three.");
    person.types("end\n");
    assert_eq!(person.ends().0, Some(7));
}

/// The process whose parent is not among them.
fn keeper(all: &[i32]) -> i32 {
    *all.iter().find(|pid| !is_of(**pid, all)).expect("a keeper")
}

/// Whether a process has its parent among `all`.
fn is_of(pid: i32, all: &[i32]) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let parent = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1));
    parent
        .and_then(|parent| parent.parse().ok())
        .is_some_and(|parent: i32| all.contains(&parent))
}

#[test]
fn what_cannot_be_attached_to_is_told() {
    let (dir, state) = a_state();
    let attach = |state: &Path| {
        let out = twinpage().arg("attach").arg(state).stdin(Stdio::null()).output();
        let out = out.expect("twinpage starts");
        assert_eq!(out.status.code(), Some(125));
        stderr_of(&out)
    };
    assert!(attach(&state).contains("attach from one"));
    let told = |state: &Path| {
        let (code, shown) = Person::at(state).ends();
        assert_eq!(code, Some(125), "{shown}");
        shown
    };
    assert!(told(&state).contains("cannot open"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_twinpage"));
    command
        .args(["run", "--every", "20ms", "--state"])
        .arg(&state)
        .args(["--", "cat"]);
    let mut run = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("twinpage starts");
    wait_until("it runs", || status(&state) == "running");
    assert!(told(&state).contains("twinpage stop"));
    drop(run.stdin.take().map(|mut keys| keys.write_all(b"bye\n")));
    assert!(run.wait().expect("wait for twinpage").success());
    // What ends before it can be seen is told to who began it.
    let ends = |rest: &[&str]| detached(&["run"], &dir.path().join(rest[0]), rest);
    let out = ends(&["echo", "done at once"]);
    // It may have been seen running.
    assert_eq!(out.status.code(), Some(0), "{}", stderr_of(&out));
    let out = ends(&["no-such-program"]);
    assert_eq!(out.status.code(), Some(125));
    assert!(stderr_of(&out).contains("no such program"));
    std::fs::write(dir.path().join("file"), "in the way").expect("a file");
    let out = detached(&["run"], &dir.path().join("file"), &["echo", "no"]);
    assert_eq!(out.status.code(), Some(125), "{}", stderr_of(&out));
    assert!(stderr_of(&out).contains("file"), "{}", stderr_of(&out));
}

/// An editor draws its screen for each terminal that is attached.
#[test]
fn a_whole_screen_is_drawn_for_each_terminal() {
    const DRAWS: &str = r#"
import os, signal, sys, termios, tty
tty.setraw(0)
drawn = 0
def draw(*_):
    global drawn
    drawn += 1
    size = os.get_terminal_size()
    os.write(1, b'\x1b[H\x1b[2Jscreen of %d columns' % size.columns)
signal.signal(signal.SIGWINCH, draw)
os.write(1, b'before\r\n\x1b[?1049h')
draw()
while os.read(0, 1) != b'q': pass
os.write(1, b'\x1b[?1049lafter\r\n')
"#;
    let (_dir, state) = a_state();
    let Some(python) = crate::support::program::python_with("termios") else {
        return;
    };
    let out = detached(&["run"], &state, &[&python, "-c", DRAWS]);
    assert_eq!(out.status.code(), Some(0), "{}", stderr_of(&out));
    let first = Person::at(&state); // perhaps before it has the screen
    first.sees("screen of 90 columns");
    first.types(LEAVE);
    assert_eq!(first.ends().0, Some(0));
    for columns in [80, 80, 100] {
        let person = Person::at_size(&state, columns);
        person.sees(&format!("screen of {columns} columns"));
        person.types(LEAVE);
        let (code, shown) = person.ends();
        assert_eq!(code, Some(0), "{shown}");
        assert!(
            shown.contains("\x1b[?1049l"),
            "the person's screen is not given back"
        );
    }
    let person = Person::at(&state);
    person.types("q");
    person.sees("after");
    assert_eq!(person.ends().0, Some(0));
}
