//! What the user is told and shown: the default state directory, messages on a terminal, and a screen that is
//! drawn again after a resume.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::rest::epoch;
use crate::support::process::{family, name_of, twinpage};
use crate::support::program::python_with;
use crate::support::skip;
use crate::support::state::wait_until;

const TWINPAGE: &str = env!("CARGO_BIN_EXE_twinpage");

fn stderr_of(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = directory.read_dir().into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn runs_with_one_process_id_have_states_of_their_own() {
    let home = tempfile::tempdir().expect("a home");
    let in_container = || {
        // Every run is process 1 of a namespace, as in a container.
        let mut command = Command::new("unshare");
        let user: &[&str] = if rustix::process::getuid().is_root() {
            &[]
        } else {
            &["-r"]
        };
        command.args(user).args(["--pid", "--fork", "--mount-proc"]);
        command.arg(TWINPAGE).args(["run", "--keep-state", "--", "true"]);
        let out = command.env("XDG_STATE_HOME", home.path()).output();
        out.expect("unshare, of util-linux")
    };
    let first = in_container();
    if stderr_of(&first).starts_with("unshare") {
        return skip(
            "two runs with one process id",
            "a namespace",
            "nothing: it is forbidden here",
        );
    }
    for (number, out) in [(1, first), (2, in_container())] {
        let stderr = stderr_of(&out);
        assert_eq!(out.status.code(), Some(0), "{stderr}");
        let state = home.path().join(format!("twinpage/true-{number}"));
        assert!(
            stderr.contains(&format!("twinpage resume {}", state.display())),
            "{stderr}"
        );
        let looked = twinpage()
            .arg("info")
            .arg(&state)
            .output()
            .expect("twinpage starts");
        assert!(looked.status.success(), "{}", stderr_of(&looked));
    }
}

#[test]
fn a_program_that_is_not_there_is_told_first() {
    let home = tempfile::tempdir().expect("a home");
    let mut command = twinpage();
    command
        .args(["run", "--", "no-such-program"])
        .env("XDG_STATE_HOME", home.path());
    let out = command.output().expect("twinpage starts");
    let stderr = stderr_of(&out);
    assert_eq!(
        (out.status.code(), stderr.lines().count()),
        (Some(125), 1),
        "{stderr}"
    );
    assert!(stderr.contains("no such program"), "{stderr}");
    assert!(names(home.path()).is_empty(), "something was left");
}

/// A terminal of its own with a command line in it.
struct Screen {
    script: Child,
    _keyboard: Option<ChildStdin>,
    seen: PathBuf,
}

impl Screen {
    fn with(line: &str, directory: &Path) -> Screen {
        let seen = directory.join("seen");
        let _ = fs::remove_file(&seen);
        let mut command = Command::new("script");
        command.args(["-qefc", line]).arg(&seen).current_dir(directory);
        // Its input stays open, as at a keyboard that is not touched.
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let mut script = command.spawn().expect("script, of bsdutils");
        Screen {
            _keyboard: script.stdin.take(),
            script,
            seen,
        }
    }

    /// What was shown so far, byte for byte, but for the first and last line, which are script's own.
    fn shown(&self) -> String {
        let shown = String::from_utf8_lossy(&fs::read(&self.seen).unwrap_or_default()).into_owned();
        let own = shown.split("\nScript done").next().unwrap_or_default();
        own.split_inclusive('\n').skip(1).collect()
    }

    /// Kills the twinpage in it, and says what was shown until then.
    fn killed(self) -> String {
        let mut tree = family(self.script.id() as i32);
        tree.retain(|pid| name_of(*pid) == "twinpage");
        for pid in tree {
            // One that ended with another is no loss.
            let _ = kill_process(Pid::from_raw(pid).expect("a process"), Signal::KILL);
        }
        self.end().1
    }

    fn end(mut self) -> (Option<i32>, String) {
        let status = self.script.wait().expect("wait for script");
        (status.code(), self.shown())
    }
}

#[test]
fn a_message_breaks_no_screen() {
    let Some(python) = python_with("termios") else {
        return;
    };
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = scratch.path().join("screen.py");
    let text = "import socket, sys, termios, tty\n\
                def ask():\n    try: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n    except OSError: pass\n\
                def say(text): sys.stdout.write(text); sys.stdout.flush()\n\
                if sys.argv[1] == 'screen': before = termios.tcgetattr(0); tty.setraw(0)\n\
                say('one '); ask(); say('two\\r\\n')\n\
                if sys.argv[1] == 'screen': termios.tcsetattr(0, termios.TCSADRAIN, before)\n";
    fs::write(&program, text).expect("a program");
    let shown = |how: &str| {
        let run = format!(
            "{TWINPAGE} run --replies none --state {how} -- {python} {} {how}",
            program.display()
        );
        Screen::with(&run, scratch.path()).end().1
    };
    let screen = shown("screen");
    assert!(
        screen.contains("one two\r\n"),
        "in the midst of a screen: {screen:?}"
    );
    let (_, after) = screen.split_once("two\r\n").expect("it was said");
    assert!(after.contains("twinpage: refused "), "and never: {screen:?}");
    let lines = shown("lines");
    assert!(lines.contains("twinpage: refused "), "{lines:?}");
    assert_eq!(
        lines.matches('\n').count(),
        lines.matches("\r\n").count(),
        "{lines:?}"
    );
}

/// Of the program, of a child in its process group, and of the job in the foreground of a shell. As many do, it draws only
/// where the size changed, and in the end it has the old one.
#[test]
fn a_screen_is_drawn_again_after_a_resume() {
    let drawing = "import os,signal,tty\n\
        tty.setcbreak(0)\n\
        sizes = [os.get_terminal_size(0)]\n\
        def draw(*_):\n\
        \u{20}   now = os.get_terminal_size(0)\n\
        \u{20}   if now == sizes[-1]: return\n\
        \u{20}   sizes.append(now)\n\
        \u{20}   print('drawn', flush=True)\n\
        \u{20}   if now == sizes[0]: os._exit(7)\n\
        signal.signal(signal.SIGWINCH, draw)\n\
        print('ready', flush=True)\n\
        while True: pass\n";
    let jobs = "python3 -c 'import time; time.sleep(1000)' & python3 drawing.py; kill $!; exit 7";
    for (script, words) in [
        ("", "python3 drawing.py"),
        ("python3 drawing.py; exit $?", "sh script"),
        (jobs, "bash -m script"),
    ] {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        fs::write(scratch.path().join("drawing.py"), drawing).expect("a program");
        fs::write(scratch.path().join("script"), script).expect("a script");
        let line = format!("exec {TWINPAGE} run --every 5ms --state state -- {words}");
        let first = Screen::with(&line, scratch.path());
        wait_until("the program is ready", || first.shown().contains("ready\r\n"));
        let seen = epoch(&scratch.path().join("state"));
        wait_until("a checkpoint holds it", || {
            epoch(&scratch.path().join("state")) > seen
        });
        let shown = first.killed();
        assert!(!shown.contains("drawn"), "{words}: {shown:?}");
        let again = Screen::with(&format!("exec {TWINPAGE} resume state"), scratch.path());
        let (code, shown) = again.end();
        assert_eq!(code, Some(7), "{words}: {shown:?}");
        assert!(shown.contains("drawn\r"), "{words}: {shown:?}"); // how lines end is the modes' doing
    }
}

/// A signal that a traced program ignores wakes its threads all the same, so none is sent.
#[test]
fn a_terminal_keeps_its_size_where_no_program_notices_another() {
    let program = "import os,signal,time,tty\n\
        tty.setcbreak(0)\n\
        size = os.get_terminal_size(0)\n\
        until = []\n\
        signal.signal(signal.SIGUSR1, lambda *_: until.append(time.monotonic() + 0.2))\n\
        print('ready', flush=True)\n\
        while not until or time.monotonic() < until[0]:\n\
        \u{20}   if os.get_terminal_size(0) != size: os._exit(8)\n\
        os._exit(7)\n";
    let scratch = tempfile::tempdir().expect("a scratch directory");
    fs::write(scratch.path().join("watching.py"), program).expect("a program");
    let state = scratch.path().join("state");
    let run =
        format!("exec {TWINPAGE} run --every 5ms --resume-signal USR1 --state state -- python3 watching.py");
    let first = Screen::with(&run, scratch.path());
    wait_until("the program is ready", || first.shown().contains("ready\r\n"));
    let seen = epoch(&state);
    wait_until("a checkpoint holds it", || epoch(&state) > seen);
    first.killed();
    let (code, shown) = Screen::with(&format!("exec {TWINPAGE} resume state"), scratch.path()).end();
    assert_eq!(code, Some(7), "{shown:?}");
}

#[test]
fn a_program_that_executes_another_after_a_resume_keeps_its_terminal() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let waiting = "echo ready; while [ ! -e go ]; do :; done; exec echo still here";
    let line = format!("exec {TWINPAGE} run --every 5ms --state state -- bash -c '{waiting}'");
    let first = Screen::with(&line, scratch.path());
    wait_until("the program is ready", || first.shown().contains("ready\r\n"));
    let shown = first.killed();
    assert!(!shown.contains("still here"), "{shown:?}");
    fs::write(scratch.path().join("go"), "").expect("a file");
    let again = Screen::with(&format!("exec {TWINPAGE} resume state"), scratch.path());
    let (code, shown) = again.end();
    assert_eq!(code, Some(0), "{shown:?}");
    assert!(shown.contains("still here\r\n"), "{shown:?}");
}

/// A program opens its terminal by both of its names; a resume is on another terminal.
#[test]
fn a_terminal_is_opened_by_name() {
    let Some(python) = python_with("termios") else {
        return skip("a terminal opened by name", "python3", "python3");
    };
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let text = "import os, termios, time\n\
                one = os.open('/dev/tty', os.O_RDWR)\n\
                other = os.open(os.ttyname(0), os.O_RDWR)\n\
                modes = termios.tcgetattr(one)\n\
                modes[3] &= ~termios.ECHO\n\
                termios.tcsetattr(one, termios.TCSANOW, modes)\n\
                for number in range(8):\n\
                \u{20}   os.write(one if number % 2 else other, b'line %d\\n' % number)\n\
                \u{20}   assert not termios.tcgetattr(other)[3] & termios.ECHO\n\
                \u{20}   assert os.get_terminal_size(one) == os.get_terminal_size(other)\n\
                \u{20}   while number == 4 and not os.path.exists('go'): time.sleep(0.01)\n\
                print('end')\n";
    fs::write(scratch.path().join("program.py"), text).expect("a program");
    let run = format!("{TWINPAGE} run --every 10ms --state state -- {python} program.py");
    let first = Screen::with(&run, scratch.path());
    wait_until("five lines are shown", || first.shown().contains("line 4"));
    let shown = first.killed();
    fs::write(scratch.path().join("go"), "").expect("a file");
    let second = Screen::with(&format!("{TWINPAGE} resume state"), scratch.path());
    let (code, after) = second.end();
    let lines = |text: &str| -> Vec<String> {
        let lines = text
            .lines()
            .map(str::trim)
            .filter(|line| line.starts_with("line") || *line == "end");
        lines.map(str::to_owned).collect()
    };
    let all = [lines(&shown), lines(&after)].concat();
    let mut expected: Vec<String> = (0..8).map(|number| format!("line {number}")).collect();
    expected.push("end".into());
    assert_eq!((code, all), (Some(0), expected), "{shown}{after}");
}
