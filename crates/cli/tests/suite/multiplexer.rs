//! A tmux session with an editor, a Python prompt, a half-typed line and a shell in the middle of a pipeline, which is
//! killed again and again: its screens are as they were.
//!
//! Another tmux, outside, types and looks. What it sees is held until the checkpoint that covers it is durable, so no kill
//! takes it back.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::process::{twinpage, with_argument};
use crate::support::program::{python_with, which};
use crate::support::skip;
use crate::support::state::wait_until;

const KILLS: u32 = 10;

/// The windows, in their order.
const SHELL: u32 = 0;
const EDITOR: u32 = 1;
const PYTHON: u32 = 2;
const CAT: u32 = 3;
const PIPELINE: u32 = 4;

/// A session in the background.
struct Session {
    directory: tempfile::TempDir,
}

impl Session {
    fn begin(python: &str, editor: &str) -> Session {
        let directory = tempfile::tempdir().expect("a directory");
        let session = Session { directory };
        let edited = session.path("edited").display().to_string();
        let socket = session.path("socket").display().to_string();
        let mut command = twinpage();
        command.args(["run", "--detach", "--every", "50ms", "--state"]);
        command
            .arg(session.path("state"))
            .args(["--", "tmux", "-S", &socket]);
        command.args(["-f", "/dev/null", "new-session", "-x", "90", "-y", "25", "sh"]);
        command.args([";", "new-window", &format!("{editor} -u NONE -n {edited}")]);
        command.args([";", "new-window", &format!("{python} -q")]);
        command.args([";", "new-window", "cat"]);
        command.args([";", "new-window", "bash --norc --noprofile"]);
        let environment = [("TERM", "xterm"), ("LC_ALL", "C.UTF-8")];
        let begun = command.envs(environment).output().expect("twinpage starts");
        let said = String::from_utf8_lossy(&begun.stderr);
        assert!(begun.status.success(), "{said}");
        session
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// What tmux outside says; `None` when there is no session.
    fn tmux(&self, words: &[&str]) -> Option<String> {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(self.path("socket")).args(words);
        let done = command.stdin(Stdio::null()).output().expect("tmux starts");
        done.status
            .success()
            .then(|| String::from_utf8_lossy(&done.stdout).into_owned())
    }

    fn types(&self, window: u32, keys: &[&str]) {
        let target = format!(":{window}");
        let typed = self.tmux(&[&["send-keys", "-t", &target], keys].concat());
        assert!(typed.is_some(), "{keys:?} were typed");
    }

    fn screen(&self, window: u32) -> String {
        let target = format!(":{window}");
        self.tmux(&["capture-pane", "-p", "-t", &target])
            .unwrap_or_default()
    }

    fn shows(&self, window: u32, text: &str) {
        wait_until(&format!("window {window} shows {text:?}"), || {
            self.screen(window).contains(text)
        });
    }

    /// Kills all of it, as a machine that dies does, and brings it back.
    fn die_and_come_back(&self) {
        let state = self.path("state");
        let processes = || of(&state);
        for pid in processes() {
            // One that ended with another is no loss.
            let _ = kill_process(Pid::from_raw(pid).expect("a process"), Signal::KILL);
        }
        wait_until("nothing is left", || {
            processes().is_empty() && with_argument(&self.path("socket").display().to_string()).is_empty()
        });
        let mut command = twinpage();
        command
            .args(["resume", "--detach", "--every", "50ms"])
            .arg(&state);
        let back = command.output().expect("twinpage starts");
        assert!(back.status.success(), "{}", String::from_utf8_lossy(&back.stderr));
        wait_until("the session is there", || self.tmux(&["list-windows"]).is_some());
    }
}

/// The processes of twinpage that work in a state.
fn of(state: &Path) -> Vec<i32> {
    with_argument(&state.display().to_string())
}

#[test]
fn a_tmux_session_is_killed_ten_times() {
    let editor = ["vim", "vi"].into_iter().find(|name| which(name).is_some());
    let (Some(_), Some(editor)) = (which("tmux"), editor) else {
        return skip("a session of tmux", "tmux or vi", "tmux vim-tiny");
    };
    let Some(python) = python_with("sys") else {
        return;
    };
    let session = Session::begin(&python, editor);
    wait_until("the last window has a prompt", || {
        !session.screen(PIPELINE).trim().is_empty()
    });
    session.shows(PYTHON, ">>>");
    let pipeline = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo $i; done | while read -r n; do t=$((t+n)); echo $t; done | tail -n 1 | sed s/^/sum=/";
    session.types(PIPELINE, &[pipeline, "Enter"]);
    session.types(SHELL, &["total=0", "Enter"]);
    session.types(PYTHON, &["x = 1", "Enter"]);
    let (mut total, mut x) = (0, 1);
    for round in 0..KILLS {
        total += round;
        x = x * 3 + 1;
        session.types(SHELL, &[&format!("total=$((total + {round})); echo is=$total=")]);
        session.types(SHELL, &["Enter"]);
        session.types(EDITOR, &["o", &format!("round {round}"), "Escape"]);
        session.types(PYTHON, &["x = x * 3 + 1; print('x', x)", "Enter"]);
        session.types(CAT, &["-l", &format!("{round} and ")]);
        session.shows(SHELL, &format!("is={total}="));
        session.shows(EDITOR, &format!("round {round}"));
        session.shows(PYTHON, &format!("x {x}"));
        session.shows(CAT, &format!("{round} and"));
        let screens = [SHELL, EDITOR, PYTHON, CAT].map(|window| session.screen(window));
        session.die_and_come_back();
        if round % 3 == 0 {
            session.die_and_come_back(); // with nothing typed in between
        }
        let now = [SHELL, EDITOR, PYTHON, CAT].map(|window| session.screen(window));
        assert_eq!(now, screens, "after kill {round}");
    }
    session.types(CAT, &["the end", "Enter"]);
    let line: String = (0..KILLS).map(|round| format!("{round} and ")).collect();
    wait_until("the line that was typed over all kills comes back", || {
        let screen = session.screen(CAT);
        screen
            .lines()
            .filter(|shown| *shown == format!("{line}the end"))
            .count()
            == 2
    });
    session.shows(PIPELINE, "sum=4501500");
    session.types(EDITOR, &[":wq", "Enter"]);
    for (window, keys) in [(SHELL, "exit"), (PYTHON, "exit()"), (PIPELINE, "exit")] {
        session.types(window, &[keys, "Enter"]);
    }
    session.types(CAT, &["C-d"]);
    wait_until("it ends", || of(&session.path("state")).is_empty());
    let edited = std::fs::read_to_string(session.path("edited")).expect("what was edited");
    let expected: String = (0..KILLS).map(|round| format!("round {round}\n")).collect();
    assert_eq!(edited.trim_start_matches('\n'), expected);
}
