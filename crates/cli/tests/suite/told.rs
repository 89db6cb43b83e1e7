//! What cannot be captured is told at once, by the clock: the program is ended, or goes on without
//! checkpoints until it can be captured again, as the user chose. A program that a signal stopped is stopped
//! after a resume. And one that was killed is seen to be gone, whatever was done in it just then.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use twinpage_campaign::{either, seed};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::chance;
use crate::support::process::{Victim, family, kill, name_of, twinpage};
use crate::support::program::{compile, python_with};
use crate::support::state::{info, wait_until};

/// A directory with what a life of a program writes to.
struct Place {
    scratch: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        fs::create_dir(scratch.path().join("work")).expect("a working directory");
        Place { scratch }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.path(name)).unwrap_or_default()).into_owned()
    }

    fn life(&self, words: &[&str], program: &[&str]) -> Child {
        let append = |name: &str| {
            let file = fs::OpenOptions::new()
                .append(true)
                .create(true)
                .open(self.path(name));
            Stdio::from(file.expect("a file for what is printed"))
        };
        let mut command = twinpage();
        command
            .args(words)
            .arg(self.path("state"))
            .args(program)
            .current_dir(self.path("work"))
            .stdout(append("stdout"))
            .stderr(append("stderr"));
        command.spawn().expect("twinpage starts")
    }

    /// Until the file holds the words, or the life ends, whose status is then returned.
    fn until_said(&self, child: &mut Child, file: &str, words: &str) -> Option<ExitStatus> {
        loop {
            if self.read(file).contains(words) {
                return None;
            }
            if let Some(status) = child.try_wait().expect("wait for twinpage") {
                return Some(status);
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }
}

/// The program, with a file open that others remove; it has said that it is ready.
fn with_a_removed_file(place: &Place, options: &[&str]) -> Option<Child> {
    let binary = compile("uncapturable.c", &[])?;
    fs::write(place.path("work/held"), "x").expect("a file");
    let words = [&["run", "--every", "5ms"], options, &["--state"]].concat();
    let mut child = place.life(&words, &["--", &binary, "held"]);
    assert_eq!(place.until_said(&mut child, "stdout", "ready"), None);
    fs::remove_file(place.path("work/held")).expect("remove the file");
    Some(child)
}

#[test]
fn what_cannot_be_captured_ends_the_program_at_once() {
    let place = Place::new();
    let Some(mut child) = with_a_removed_file(&place, &[]) else {
        return;
    };
    // Nothing else ends it for two minutes, and then with another code.
    let status = child.wait().expect("wait for twinpage");
    let stderr = place.read("stderr");
    assert_eq!(status.code(), Some(125), "{stderr}");
    assert!(
        stderr.contains("held") && stderr.contains("cannot be") && stderr.contains("--on-uncapturable"),
        "{stderr}"
    );
    assert_eq!(place.read("stdout"), "ready\n");
    // The checkpoint before is whole: with the file put back it could go on.
    let mut look = twinpage();
    let checked = look.arg("check").arg(place.path("state")).stdout(Stdio::null());
    assert!(checked.status().expect("twinpage starts").success());
}

#[test]
fn or_it_goes_on_without_checkpoints_until_it_can_be_captured() {
    let place = Place::new();
    let Some(mut child) = with_a_removed_file(&place, &["--on-uncapturable", "warn"]) else {
        return;
    };
    let told = "goes on without new checkpoints";
    assert_eq!(
        place.until_said(&mut child, "stderr", told),
        None,
        "{}",
        place.read("stderr")
    );
    fs::write(place.path("work/close"), "").expect("a file");
    let again = place.until_said(&mut child, "stderr", "checkpoints are made again");
    assert_eq!(again, None, "{}", place.read("stderr"));
    assert_eq!(place.until_said(&mut child, "stdout", "closed"), None);
    kill(&mut child, Victim::Tree, &mut chance(seed(), "told"));
    fs::write(place.path("work/end"), "").expect("a file");
    let status = place.life(&["resume"], &[]).wait().expect("wait for twinpage");
    assert_eq!(status.code(), Some(7), "{}", place.read("stderr"));
    assert_eq!(place.read("stdout"), "ready\nclosed\nend\n");
    assert_eq!(place.read("stderr").matches(told).count(), 1, "said once");
}

/// Suspended while no checkpoint can be made: its user hears that, and how much is lost.
#[test]
fn a_suspension_without_a_checkpoint_is_told() {
    let place = Place::new();
    let Some(mut child) = with_a_removed_file(&place, &["--on-uncapturable", "warn"]) else {
        return;
    };
    let told = "goes on without new checkpoints";
    assert_eq!(place.until_said(&mut child, "stderr", told), None);
    let mut stop = twinpage();
    let stopped = stop.arg("stop").arg(place.path("state")).stdout(Stdio::null());
    let stopped = stopped.status().expect("twinpage starts");
    child.wait().expect("wait for twinpage");
    let stderr = place.read("stderr");
    assert!(stopped.success(), "{stderr}");
    let lost = stderr.split_once("no checkpoint could be made: a resume does the last ");
    let seconds = lost.and_then(|(_, rest)| rest.split_once("s again")?.0.parse::<f64>().ok());
    assert!(seconds.is_some_and(|seconds| seconds >= 1.0), "{stderr}");
}

/// Where no absolute name leads, a change is refused as the kernel does, and the program goes on; none may work there.
#[test]
fn a_name_that_is_too_long_is_told() {
    let Some(binary) = compile("deep.c", &[]) else {
        return;
    };
    let place = Place::new();
    let mut make = Command::new(&binary);
    make.arg("make").current_dir(place.path("work"));
    assert!(make.status().expect("it starts").success());
    let run = |mode: &str| {
        let _ = fs::remove_dir_all(place.path("state")); // of the run before
        place
            .life(&["run", "--every", "100ms", "--state"], &["--", &binary, mode])
            .wait()
    };
    let status = run("change").expect("wait for twinpage");
    let stderr = place.read("stderr");
    assert_eq!(status.code(), Some(0), "{stderr}");
    assert_eq!(place.read("stdout").matches(": File name too long\n").count(), 4);
    assert_eq!(
        stderr.matches("longer than 4095 bytes").count(),
        2,
        "once a call: {stderr}"
    );
    let status = run("stay").expect("wait for twinpage");
    let stderr = place.read("stderr");
    assert_eq!(status.code(), Some(125), "{stderr}");
    assert!(
        stderr.contains("the working directory lies deep below"),
        "{stderr}"
    );
    assert!(stderr.contains("--on-uncapturable"), "{stderr}");
}

/// What a shell ends up as that does something and then becomes twinpage, which runs `program`.
fn after_in_shell(before: &str, program: &str) -> (Option<i32>, String) {
    let place = Place::new();
    let tool = twinpage();
    let words: Vec<_> = std::iter::once(tool.get_program())
        .chain(tool.get_args())
        .collect();
    let tool = words.join(std::ffi::OsStr::new(" "));
    let tool = tool.to_string_lossy();
    let script = format!(
        "{before}; exec {tool} run --state {} -- {program}",
        place.path("state").display()
    );
    let out = Command::new("sh")
        .args(["-c", &script])
        .output()
        .expect("a shell");
    (
        out.status.code(),
        String::from_utf8_lossy(&out.stderr).into_owned(),
    )
}

#[test]
fn a_limit_of_too_few_descriptors_is_named() {
    for limit in ["40", "101"] {
        let (code, stderr) = after_in_shell(&format!("ulimit -n {limit}"), "true");
        assert_eq!(code, Some(125), "{stderr}");
        assert!(stderr.contains(&format!("open files is {limit}")), "{stderr}");
        assert!(stderr.contains("ulimit -n 128"), "{stderr}");
    }
    let (code, stderr) = after_in_shell("ulimit -n 128", "true");
    assert_eq!(code, Some(0), "{stderr}");
}

/// As a shell gives a program its `<(...)`.
#[test]
fn an_inherited_descriptor_that_is_not_handed_on_is_told_once() {
    let (code, stderr) = after_in_shell("mkfifo given; exec 7<>given 8<>given", "cat /dev/fd/7");
    assert_eq!(code, Some(1), "{stderr}");
    let told: Vec<&str> = (stderr.lines())
        .filter(|line| line.contains("not handed to the program"))
        .collect();
    assert_eq!(told.len(), 1, "{stderr}");
    assert!(
        told[0].contains("descriptor 7 (") && told[0].contains("/given)"),
        "{stderr}"
    );
}

/// What a program prints to the name of its own output, which is one of the process that asks.
#[test]
fn a_program_opens_its_own_output_by_name() {
    let place = Place::new();
    let script = "echo one > /dev/stdout; echo two > /proc/self/fd/1; echo three >> /dev/fd/1; echo four > /dev/stderr";
    let mut child = place.life(&["run", "--state"], &["--", "sh", "-c", script]);
    assert!(
        child.wait().expect("wait for twinpage").success(),
        "{}",
        place.read("stderr")
    );
    assert_eq!(place.read("stdout"), "one\ntwo\nthree\n");
    assert!(
        place.read("stderr").contains("four\n"),
        "{}",
        place.read("stderr")
    );
    assert!(
        !place.read("stderr").contains("refused"),
        "{}",
        place.read("stderr")
    );
}

/// A thread is named by the first fifteen bytes of its file, which may end inside a letter.
#[test]
fn a_program_has_a_name_that_is_cut_inside_a_letter() {
    let place = Place::new();
    let name = place
        .path("work/\u{440}\u{430}\u{441}\u{447}\u{451}\u{442}-\u{43c}\u{43e}\u{434}\u{435}\u{43b}\u{438}");
    fs::copy("/bin/sleep", &name).expect("a program");
    let name = name.to_string_lossy().into_owned();
    let mut child = place.life(&["run", "--every", "5ms", "--state"], &["--", &name, "0.3"]);
    assert!(
        child.wait().expect("wait for twinpage").success(),
        "{}",
        place.read("stderr")
    );
}

/// The process of that name below a twinpage, and its state's letter in proc_pid_stat(5).
fn program_below(child: &Child, name: &str) -> Option<(i32, char)> {
    let below = family(child.id() as i32);
    let pid = below.into_iter().find(|pid| name_of(*pid) == name)?;
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    Some((pid, stat[stat.rfind(')')? + 2..].chars().next()?))
}

#[test]
fn a_program_that_was_stopped_stays_stopped() {
    let Some(binary) = compile("uncapturable.c", &[]) else {
        return;
    };
    let place = Place::new();
    fs::write(place.path("work/held"), "x").expect("a file");
    let words = ["run", "--every", "5ms", "--state"];
    let mut child = place.life(&words, &["--", &binary, "held"]);
    assert_eq!(place.until_said(&mut child, "stdout", "ready"), None);
    let send = |child: &Child, signal| {
        let (pid, _) = program_below(child, "uncapturable").expect("the program");
        kill_process(Pid::from_raw(pid).expect("an id"), signal).expect("kill");
    };
    let is = |child: &Child, letters: &str| {
        wait_until("the program is stopped, or is not", || {
            program_below(child, "uncapturable").is_some_and(|(_, state)| letters.contains(state))
        });
    };
    send(&child, Signal::STOP);
    is(&child, "tT");
    // Checkpoints of it come every few milliseconds; what they are of shows only in the next life.
    std::thread::sleep(std::time::Duration::from_millis(100));
    kill(&mut child, Victim::Tree, &mut chance(seed(), "stopped"));
    for name in ["close", "end"] {
        fs::write(place.path("work").join(name), "").expect("a file");
    }
    let mut child = place.life(&["resume"], &[]);
    is(&child, "tT");
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert_eq!(
        child.try_wait().expect("wait for twinpage"),
        None,
        "{}",
        place.read("stderr")
    );
    assert_eq!(place.read("stdout"), "ready\n", "it went on by itself");
    send(&child, Signal::CONT);
    let status = child.wait().expect("wait for twinpage");
    assert_eq!(status.code(), Some(7), "{}", place.read("stderr"));
    assert_eq!(place.read("stdout"), "ready\nclosed\nend\n");
}

/// The kill may come while a call is made in the program, which is told of its end then; its child stands still.
#[test]
fn a_killed_program_with_a_child_is_gone() {
    let Some(binary) = compile("grows.c", &[]) else {
        return;
    };
    let mut chance = chance(seed(), "grows");
    for _ in 0..either(25, 400) {
        let place = Place::new();
        let mut child = place.life(&["run", "--every", "200us", "--state"], &["--", &binary]);
        assert_eq!(place.until_said(&mut child, "stdout", "ready"), None);
        std::thread::sleep(std::time::Duration::from_micros(chance.u64(..20_000)));
        let programs = family(child.id() as i32).into_iter();
        let first = programs.filter(|pid| name_of(*pid) == "grows").min();
        let first = Pid::from_raw(first.expect("the program")).expect("a process");
        kill_process(first, Signal::KILL).expect("it lives");
        let status = child.wait().expect("wait for twinpage");
        assert!(!status.success(), "{status}: {}", place.read("stderr"));
    }
}

/// Clients of servers set the options of TCP on a Unix socket as well: it has none, and the kernel says so.
#[test]
fn an_option_that_a_unix_socket_lacks_is_refused_by_the_kernel_without_a_word() {
    const SCRIPT: &str = "import socket
try: socket.socketpair()[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
except OSError as error: print(error)";
    let Some(python) = python_with("socket") else {
        return;
    };
    let alone = Command::new(&python).args(["-c", SCRIPT]).output();
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let mut command = twinpage();
    command.args(["run", "--state"]).arg(scratch.path().join("state"));
    let out = command.args(["--", &python, "-c", SCRIPT]).output();
    let [alone, out] = [alone, out].map(|output| output.expect("it starts"));
    assert_eq!((out.stdout, out.stderr), (alone.stdout, alone.stderr));
}

/// Name servers ask for larger buffers than the system gives, and go on with ordinary ones at EPERM alone.
#[test]
fn buffers_beyond_the_limit_of_the_system_are_refused_as_to_a_user_without_that_right() {
    const SCRIPT: &str = "import errno, socket
kinds = [(socket.AF_INET, socket.SOCK_DGRAM), (socket.AF_INET, socket.SOCK_STREAM), (socket.AF_UNIX, socket.SOCK_DGRAM)]
for kind in kinds:
    for option in (32, 33):  # SO_SNDBUFFORCE, SO_RCVBUFFORCE
        try: socket.socket(*kind).setsockopt(socket.SOL_SOCKET, option, 1 << 20)
        except OSError as error: print(errno.errorcode[error.errno])";
    let Some(python) = python_with("socket") else {
        return;
    };
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let state = scratch.path().join("state");
    let mut command = twinpage();
    command.args(["run", "--state"]).arg(&state);
    let out = command.args(["--", &python, "-c", SCRIPT]).output();
    let out = out.expect("it starts");
    let [stdout, stderr] = [&out.stdout, &out.stderr].map(|text| String::from_utf8_lossy(text));
    assert_eq!((&*stdout, &*stderr), ("EPERM\n".repeat(6).as_str(), ""));
    assert_eq!(
        info(&state)["refused"].as_array().map(Vec::len),
        Some(2),
        "both options are listed"
    );
}

/// Also as a user without rights, and on a machine with one node: twinpage answers them.
#[test]
fn where_memory_lies_is_left_to_the_system_without_a_word() {
    let Some(binary) = compile("c_placed.c", &[]) else {
        return;
    };
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let mut command = twinpage();
    command
        .args(["run", "--every", "4ms", "--state"])
        .arg(scratch.path().join("state"));
    let out = command.args(["--", &binary]).output().expect("twinpage starts");
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert_eq!(
        (&out.stdout[..], &*stderr),
        (&b"placed\n"[..], ""),
        "{}",
        out.status
    );
}
