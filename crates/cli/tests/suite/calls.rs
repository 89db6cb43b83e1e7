//! Calls that a stop could cut: the program sees nothing of it, neither at a stop nor at a resume.

use std::fs::OpenOptions;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use twinpage_campaign::{either, seed};

use crate::support::campaign::oracle;
use crate::support::process::{Victim, ended_before, family, kill, name_of, twinpage};
use crate::support::program::named;
use crate::support::state::wait_until;
use crate::support::tree::bytes_difference;
use crate::support::{chance, say, skip};

#[test]
fn no_call_sees_a_stop() {
    stops_all_the_time("c_calls.c", either(3, 40));
}

/// Of terminals: how many bytes and how long a read waits for is as it was set.
#[test]
fn no_call_of_a_terminal_sees_a_stop() {
    stops_all_the_time("c_ttys.c", either(1, 10));
}

/// Locks, semaphores, queues, named pipes, futexes until a moment, several messages at once.
#[test]
fn no_call_that_waits_for_others_sees_a_stop() {
    stops_all_the_time("c_held.c", either(2, 30));
}

/// Nor does one of a process that the program made, to which signals come that it ignores.
#[test]
fn no_call_of_a_descendant_sees_a_stop() {
    for (name, rounds) in [
        ("c_calls.c", either(2, 20)),
        ("c_ttys.c", 1),
        ("c_held.c", either(1, 10)),
    ] {
        let Some(line) = named(name).command(rounds) else {
            return;
        };
        let shell = ["sh", "-c", "\"$0\" \"$@\"; exit $?"].map(String::from);
        runs_as_alone(&[&shell[..], &line].concat());
    }
}

/// A thread may have ended, and be told of, before the event of its making.
#[test]
fn threads_that_end_at_once_keep_nothing_waiting() {
    stops_all_the_time("c_brief.c", either(600, 6000));
}

/// A program does the same with a stop every 0.2 ms as alone.
fn stops_all_the_time(name: &str, rounds: u32) {
    if let Some(line) = named(name).command(rounds) {
        runs_as_alone(&line);
    }
}

fn runs_as_alone(line: &[String]) {
    let alone = oracle(line, None);
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let mut command = twinpage();
    command
        .args(["run", "--every", "200us", "--durability", "memory", "--state"])
        .arg(scratch.path().join("state"));
    command.arg("--").args(line).current_dir(scratch.path());
    let out = command.output().expect("twinpage starts");
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status, alone.status, "{stderr}");
    assert!(
        out.stdout == alone.stdout,
        "{}: {stderr}",
        bytes_difference(&alone.stdout, &out.stdout)
    );
}

/// A program that makes one call after another shares a processor with the tracer meanwhile, and has its own again when
/// it pauses.
#[test]
fn calls_in_a_row_share_a_processor_and_a_pause_gives_it_back() {
    let everywhere = processors(None).expect("the processors of this process");
    if everywhere < 2 {
        return skip("a shared processor", "a second processor", "a machine with two");
    }
    let Some(line) = named("c_processors.c").command(10) else {
        return;
    };
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let mut command = twinpage();
    command
        .args(["run", "--every", "5ms", "--state"])
        .arg(scratch.path().join("state"));
    command.arg("--").args(&line).current_dir(scratch.path());
    let mut child = command.stdout(Stdio::null()).spawn().expect("twinpage starts");
    let mut seen = Vec::new();
    while child.try_wait().expect("wait for twinpage").is_none() {
        let program = family(child.id() as i32)
            .into_iter()
            .find(|pid| name_of(*pid) == "c_processors");
        seen.extend(program.and_then(|pid| processors(Some(pid))));
    }
    assert!(child.wait().expect("wait for twinpage").success());
    assert!(seen.contains(&1), "never on one processor: {seen:?}");
    // It pauses before it ends.
    assert!(seen.ends_with(&[everywhere; 5]), "not given back: {seen:?}");
}

/// How many processors a process may run on; `None` when it is gone.
fn processors(pid: Option<i32>) -> Option<u32> {
    let pid = pid.map(|pid| rustix::process::Pid::from_raw(pid).expect("a process id"));
    rustix::thread::sched_getaffinity(pid).ok().map(|set| set.count())
}

/// Killed four times while all its threads wait for four seconds: a wait that began again as a whole would
/// last seven, one that was forgotten less than four.
#[test]
fn a_wait_goes_on_for_what_is_left() {
    const NAME: &str = "c_waits.c";
    let program = named(NAME);
    let Some(line) = program.command(program.rounds) else {
        return;
    };
    let seed = seed();
    let mut chance = chance(seed, NAME);
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (state, out) = (scratch.path().join("state"), scratch.path().join("out"));
    let mut first = twinpage();
    first.args(["run", "--every", "5ms", "--state"]).arg(&state);
    first.arg("--").args(&line);
    let mut life = start(first, &out);
    wait_until("all wait", || {
        std::fs::read(&out).is_ok_and(|said| !said.is_empty())
    });
    for _ in 0..4 {
        let some_ms = chance.u64(850..1000);
        let ended = ended_before(&mut life, Instant::now() + Duration::from_millis(some_ms));
        assert!(
            ended.is_none(),
            "it ended too early: {ended:?}; TWINPAGE_SEED={seed}"
        );
        kill(&mut life, Victim::Tree, &mut chance);
        let mut resume = twinpage();
        resume.args(["resume", "--every", "5ms"]).arg(&state);
        life = start(resume, &out);
    }
    let status = life.wait().expect("wait for twinpage");
    assert!(status.success(), "{status}; TWINPAGE_SEED={seed}");
    let said = std::fs::read_to_string(&out).expect("the output");
    assert_eq!(
        said.matches("in time").count(),
        said.lines().count() - 1,
        "{said}"
    );
    say(&format!(
        "{NAME}: 4 kills, every wait in time; TWINPAGE_SEED={seed}"
    ));
}

fn start(mut command: std::process::Command, out: &Path) -> Child {
    let out = OpenOptions::new().create(true).append(true).open(out);
    command
        .stdout(out.expect("the output"))
        .spawn()
        .expect("twinpage starts")
}
