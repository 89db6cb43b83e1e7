//! Sessions of tmux and of screen, which are killed again and again: with an editor, a Python prompt, a half-typed line and
//! a shell in the middle of a pipeline. Their screens are as they were.
//!
//! Another tmux or screen, outside, types and looks. What it sees is held until the checkpoint that covers it is durable, so no kill
//! takes it back.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::rest::epoch;
use crate::support::process::{twinpage, with_argument};
use crate::support::program::{python_with, which};
use crate::support::state::{info, on_state, wait_until};
use crate::support::{may_change_users, say, skip};

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

    /// A session of one shell, begun by a client with these words more, which may have ended when this returns.
    fn of_a_shell(words: &[&str]) -> Session {
        let directory = tempfile::tempdir().expect("a directory");
        let session = Session { directory };
        let mut command = twinpage();
        command.args(["run", "--detach", "--every", "50ms", "--state"]);
        command.arg(session.path("state")).args(["--", "tmux", "-S"]);
        command
            .arg(session.path("socket"))
            .args(["-f", "/dev/null", "new-session"]);
        command
            .args(words)
            .args(["-x", "90", "-y", "25", "bash --norc --noprofile"]);
        let environment = [("TERM", "xterm"), ("LC_ALL", "C.UTF-8")];
        let begun = command.envs(environment).output().expect("twinpage starts");
        let said = String::from_utf8_lossy(&begun.stderr);
        assert!(begun.status.success(), "{said}");
        wait_until("the shell has a prompt", || session.has_prompt(SHELL));
        session
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The answer of tmux, run outside the session.
    ///
    /// # Errors
    /// The message of tmux, as when there is no session.
    fn ask(&self, words: &[&str]) -> Result<String, String> {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(self.path("socket")).args(words);
        let done = command.stdin(Stdio::null()).output().expect("tmux starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if done.status.success() {
            return Ok(text(&done.stdout));
        }
        Err(format!("{}: {}", done.status, text(&done.stderr)))
    }

    fn types(&self, window: u32, keys: &[&str]) {
        let target = format!(":{window}");
        let typed = self.ask(&[&["send-keys", "-t", &target], keys].concat());
        typed.unwrap_or_else(|error| panic!("{keys:?} in window {window}: {error}\n{}", self.info()));
    }

    /// The text of a window.
    ///
    /// # Errors
    /// As [`Self::ask`].
    fn screen(&self, window: u32) -> Result<String, String> {
        let target = format!(":{window}");
        self.ask(&["capture-pane", "-p", "-t", &target])
    }

    /// The texts of the windows that are compared over kills.
    fn screens(&self) -> [String; 4] {
        [SHELL, EDITOR, PYTHON, CAT].map(|window| {
            let screen = self.screen(window);
            screen.unwrap_or_else(|error| panic!("window {window}: {error}\n{}", self.info()))
        })
    }

    fn has_prompt(&self, window: u32) -> bool {
        self.screen(window).is_ok_and(|screen| !screen.trim().is_empty())
    }

    fn shows(&self, window: u32, text: &str) {
        wait_until(&format!("window {window} shows {text:?}"), || {
            self.screen(window).is_ok_and(|screen| screen.contains(text))
        });
    }

    /// State and processes of the session, for the message of a failed test.
    fn info(&self) -> String {
        let info = on_state(&["info"], &self.path("state"));
        let running = of(&self.path("state"));
        format!("{}running: {running:?}", String::from_utf8_lossy(&info.stdout))
    }

    fn die_and_come_back(&self) {
        die_and_come_back(&self.path("state"), &self.path("socket").display().to_string());
        wait_until("the session is there", || self.ask(&["list-windows"]).is_ok());
    }
}

/// Kills all of a session, as a machine that dies does, and brings it back. Its processes have `argument`.
fn die_and_come_back(state: &Path, argument: &str) {
    for pid in of(state) {
        // One that ended with another is no loss.
        let _ = kill_process(Pid::from_raw(pid).expect("a process"), Signal::KILL);
    }
    wait_until("nothing is left", || {
        of(state).is_empty() && with_argument(argument).is_empty()
    });
    let mut command = twinpage();
    command.args(["resume", "--detach", "--every", "50ms"]).arg(state);
    let back = command.output().expect("twinpage starts");
    assert!(back.status.success(), "{}", String::from_utf8_lossy(&back.stderr));
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
    wait_until("the last window has a prompt", || session.has_prompt(PIPELINE));
    session.shows(PYTHON, ">>>");
    let pipeline = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo $i; done | while read -r n; do t=$((t+n)); echo $t; done | tail -n 1 | sed s/^/sum=/";
    session.types(PIPELINE, &[pipeline, "Enter"]);
    session.types(SHELL, &["total=0", "Enter"]);
    session.types(PYTHON, &["x = 1", "Enter"]);
    let (mut total, mut x) = (0, 1);
    for round in 0..KILLS {
        total += round;
        x = x * 3 + 1;
        session.types(
            SHELL,
            &[&format!("total=$((total + {round})); echo is=$((total))=")],
        );
        session.types(SHELL, &["Enter"]);
        session.types(EDITOR, &["o", &format!("round {round}"), "Escape"]);
        session.types(PYTHON, &["x = x * 3 + 1; print('x', x)", "Enter"]);
        session.types(CAT, &["-l", &format!("{round} and ")]);
        session.shows(SHELL, &format!("is={total}="));
        session.shows(EDITOR, &format!("round {round}"));
        session.shows(PYTHON, &format!("x {x}"));
        session.shows(CAT, &format!("{round} and"));
        let screens = session.screens();
        session.die_and_come_back();
        if round % 3 == 0 {
            session.die_and_come_back(); // with nothing typed in between
        }
        assert_eq!(session.screens(), screens, "after kill {round}");
    }
    session.types(CAT, &["the end", "Enter"]);
    let line: String = (0..KILLS).map(|round| format!("{round} and ")).collect();
    wait_until("the line that was typed over all kills comes back", || {
        let screen = session.screen(CAT).unwrap_or_default();
        let lines = screen.lines();
        lines.filter(|shown| *shown == format!("{line}the end")).count() == 2
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

/// A session whose client has left, by its key or from the beginning: the process that was started has ended.
#[test]
fn a_tmux_session_without_a_client_is_killed() {
    if which("tmux").is_none() {
        return skip("a session of tmux without a client", "tmux", "tmux");
    }
    for words in [&["-d"][..], &[]] {
        let session = Session::of_a_shell(words);
        if words.is_empty() {
            session.ask(&["detach-client", "-s", "0"]).expect("it leaves");
        }
        let has_left = || info(&session.path("state"))["program"]["ended"]["exit"] == 0;
        let mut total = 0;
        for round in 1..=3 {
            wait_until("a checkpoint without the client", has_left);
            total = total * 10 + round;
            session.types(
                SHELL,
                &[&format!("total=$((total * 10 + {round})); echo is=$((total))=")],
            );
            session.types(SHELL, &["Enter"]);
            session.shows(SHELL, &format!("is={total}="));
            session.types(SHELL, &["-l", "echo half "]);
            session.shows(SHELL, "echo half");
            let screen = session.screen(SHELL);
            session.die_and_come_back();
            assert_eq!(session.screen(SHELL), screen, "after kill {round}");
            session.types(SHELL, &["typed", "Enter"]);
            session.shows(SHELL, "half typed");
        }
        session.types(SHELL, &["exit", "Enter"]);
        wait_until("it ends", || of(&session.path("state")).is_empty());
    }
}

/// Its terminals are in packet mode, ioctl_tty(2).
#[test]
fn a_screen_session_is_killed_three_times() {
    const NAME: &str = "twinpage-of-a-test";
    if which("screen").is_none() {
        return skip("a session of screen", "screen", "screen");
    }
    if rustix::process::geteuid().is_root() && !may_change_users() {
        return say("SKIPPED: a session of screen: as this root it may not give a terminal to the group tty");
    }
    let scratch = tempfile::tempdir().expect("a directory");
    let path = |name: &str| scratch.path().join(name);
    let sockets = path("sockets");
    std::fs::create_dir(&sockets).expect("a directory");
    std::fs::set_permissions(&sockets, PermissionsExt::from_mode(0o700)).expect("rights");
    let environment = |command: &mut Command| {
        command
            .env("SCREENDIR", &sockets)
            .envs([("TERM", "xterm"), ("LC_ALL", "C.UTF-8")]);
    };
    let asks = |words: &[&str]| {
        let mut command = Command::new("screen");
        environment(command.args(["-S", NAME, "-X"]).args(words));
        command
            .stdin(Stdio::null())
            .output()
            .is_ok_and(|done| done.status.success())
    };
    let shows = |text: &str| {
        wait_until(&format!("the screen shows {text:?}"), || {
            let shown = path("shown");
            asks(&["hardcopy", &shown.display().to_string()])
                && std::fs::read_to_string(&shown).is_ok_and(|shown| shown.contains(text))
        });
    };
    let mut command = twinpage();
    command
        .args(["run", "--detach", "--every", "50ms", "--state"])
        .arg(path("state"));
    environment(command.args(["--", "screen", "-c", "/dev/null", "-S", NAME, "sh"]));
    let begun = command.output().expect("twinpage starts");
    assert!(
        begun.status.success(),
        "{}",
        String::from_utf8_lossy(&begun.stderr)
    );
    wait_until("the session answers", || asks(&["stuff", "total=0\\n"]));
    for round in 1..=3 {
        wait_until("it takes a line", || {
            asks(&[
                "stuff",
                &format!("total=$((total * 10 + {round})); echo is=$((total))=\\n"),
            ])
        });
        let total: String = (1..=round).map(|digit| digit.to_string()).collect();
        shows(&format!("is={total}="));
        // A file that screen writes may be seen before its checkpoint is durable.
        let seen = epoch(&path("state"));
        wait_until("checkpoints hold it", || {
            shows(&format!("is={total}="));
            epoch(&path("state")) >= seen + 2
        });
        die_and_come_back(&path("state"), NAME);
        shows(&format!("is={total}="));
    }
    assert!(asks(&["stuff", "exit\\n"]));
    wait_until("it ends", || of(&path("state")).is_empty());
}
