//! Trees whose first process has ended, and what it made lives on: background jobs, daemons. They have checkpoints, and
//! are killed and resumed like others; the exit code is that of the first process.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use twinpage_campaign::{either, seed};
use twinpage_os::user_signals;

use crate::support::chance;
use crate::support::process::{Victim, kill, with_argument};
use crate::support::program::{python_with, which};
use crate::support::skip;
use crate::support::state::{info, wait_until};
use crate::trees::Life;

/// Whether the last checkpoint has this number of processes, and the first one is none of them.
fn is_outlived(life: &Life, processes: u64) -> bool {
    let info = info(&life.path("state")); // null while there is none
    let program = &info["program"];
    program["ended"].is_object()
        && program["finished"] == false
        && program["processes"].as_u64() == Some(processes)
}

fn goes_on(life: &mut Life, processes: u64) {
    life.start(&["resume", "--every", "20ms"], &[]);
    wait_until("the tree is there", || is_outlived(life, processes));
}

#[test]
fn orphans_belong_to_the_program_until_they_end() {
    let (code, life) = Life::begin("(sleep 0.3; echo late >> log; echo later) & echo early; exit 3").end();
    assert_eq!(
        (code, life.read("out").as_str()),
        (Some(3), "early\nlater\n"),
        "{}",
        life.read("err")
    );
    assert_eq!(life.read("work/log"), "late\n");
}

/// A job that ignores the hangup, a pipeline in the group of the shell that has ended, and a session of its own with a
/// child: whatever is killed, each goes on where it was.
#[test]
fn background_jobs_go_on_after_kills() {
    let seed = seed();
    let mut chance = chance(seed, "background jobs");
    let counts = "count() { i=0; until [ -e ../go ]; do i=$((i + 1)); echo $i >> $1; sleep 0.01; done; }";
    let script = format!(
        "nohup sh -c '{counts}; count one' > one.out 2>&1 &
         {counts}; (count two; echo two) | sed s/^/piped:/ &
         setsid sh -c '{counts}; (count four; echo four) & count three; wait; echo three' &
         until [ -e one ] && [ -e two ] && [ -e three ] && [ -e four ]; do sleep 0.01; done; echo early; exit 3"
    );
    let mut life = Life::begin(&script);
    // The job; the two of the pipeline; the two of the session; and what they sleep in.
    let has_all = |life: &Life| (5..=10).any(|processes| is_outlived(life, processes));
    for victim in [Victim::Tool, Victim::Tree].repeat(either(2, 10)) {
        wait_until("a checkpoint of what lives on", || has_all(&life));
        let counted = fs::read_to_string(life.path("work/one")).expect("what was counted");
        wait_until("it goes on", || life.read("work/one").len() > counted.len() + 10);
        kill(life.child(), victim, &mut chance);
        life.start(&["resume", "--every", "20ms"], &[]);
    }
    wait_until("a checkpoint after the last resume", || has_all(&life));
    fs::write(life.path("go"), "").expect("a file");
    let (code, life) = life.end();
    let (out, err) = (life.read("out"), life.read("err"));
    let mut lines: Vec<&str> = out.lines().collect();
    lines[1..].sort_unstable();
    assert_eq!(
        (code, lines),
        (Some(3), vec!["early", "four", "piped:two", "three"]),
        "TWINPAGE_SEED={seed}: {err}"
    );
    for name in ["one", "two", "three", "four"] {
        let counted = life.read(&format!("work/{name}"));
        let count = counted.lines().count();
        let expected: String = (1..=count).map(|number| format!("{number}\n")).collect();
        assert_eq!(counted, expected, "TWINPAGE_SEED={seed}: {name}");
    }
    assert!(!err.contains("no checkpoint"), "{err}");
}

/// A daemon in the making: each process ends once it has made the next one, which has what it had in memory, a pipe with
/// bytes in it, and shared memory.
#[test]
fn a_daemon_has_what_it_had_from_those_that_ended() {
    let Some(python) = python_with("mmap") else {
        return skip("a daemon", "python3", "python3");
    };
    let program = "import mmap, os, time
known = [n * n for n in range(100000)]
shared = mmap.mmap(-1, 1 << 16)
shared[:6] = b'shared'
out, into = os.pipe()
os.write(into, b'in a pipe')
def leaves(word, at, code):
    shared[at:at + 5] = word
    os._exit(code)
if os.fork(): leaves(b' once', 6, 4)
os.setsid()
if os.fork(): leaves(b' more', 11, 5)
open('pid', 'w').write(str(os.getpid()))
while os.getppid() != 1 or not os.path.exists('../go'): time.sleep(0.01)
own = os.getpid(), os.getppid(), os.getsid(0)
print(open('pid').read() == str(own[0]), own[1], own[2] < own[0])
print(known[-1], shared[:16].decode(), os.read(out, 100).decode())";
    let mut life = Life::begin(&format!("exec {python} -c \"{program}\""));
    let mut chance = chance(seed(), "a daemon");
    for _ in 0..3 {
        wait_until("a checkpoint of the daemon", || is_outlived(&life, 1));
        kill(life.child(), Victim::Tool, &mut chance);
        goes_on(&mut life, 1);
    }
    fs::write(life.path("go"), "").expect("a file");
    let (code, life) = life.end();
    assert_eq!(
        (code, life.read("out").as_str()),
        (Some(4), "True 1 True\n9999800001 shared once more in a pipe\n"),
        "{}",
        life.read("err")
    );
}

/// One of many processes that the program left behind makes more of them, and all end when they are told to.
#[test]
fn those_that_live_on_make_others() {
    if which("seq").is_none() {
        return skip("processes that live on", "seq", "coreutils");
    }
    let script =
        "(until [ -e ../go ]; do [ $(seq 1 50 | grep -c 1) = 14 ] || echo wrong; done; echo end) & exit 0";
    let mut life = Life::begin(script);
    let mut chance = chance(seed(), "others");
    for _ in 0..either(4, 20) {
        wait_until("a checkpoint of what lives on", || {
            (1..=5).any(|processes| is_outlived(&life, processes))
        });
        let epoch = life.info()["epoch"].as_u64();
        wait_until("it works", || life.info()["epoch"].as_u64() > epoch);
        kill(life.child(), Victim::Tree, &mut chance);
        life.start(&["resume", "--every", "5ms"], &[]);
    }
    fs::write(life.path("go"), "").expect("a file");
    let (code, life) = life.end();
    let end = (code, life.read("out"));
    assert_eq!(end, (Some(0), "end\n".into()), "{}", life.read("err"));
}

/// Asked to end, it is suspended; told to by the keyboard, it ends.
#[test]
fn those_that_live_on_are_told_suspended_and_ended() {
    let name = format!("99{}", 100_000 + std::process::id());
    let mut life = Life::begin(&format!("sleep {name} & echo early"));
    life.until_told("the program ended, and ");
    let err = life.read("err");
    assert!(err.contains(&format!("(sleep {name})")), "{err}");
    let send = |life: &mut Life, signal| {
        kill_process(Pid::from_child(life.child()), signal).expect("twinpage runs");
    };
    send(&mut life, Signal::TERM);
    let (code, mut life) = life.end();
    let err = life.read("err");
    assert!(code.is_none() && err.contains("suspended"), "{code:?}: {err}");
    assert!(with_argument(&name).is_empty(), "it lives on");
    goes_on(&mut life, 1);
    wait_until("it is there", || with_argument(&name).len() == 1);
    // Before it takes signals, one ends it alone.
    let twinpage = life.child().id();
    wait_until("signals are taken", || user_signals::can_be_suspended(twinpage));
    send(&mut life, Signal::INT);
    let (code, life) = life.end();
    let err = life.read("err");
    assert_eq!((code, life.read("out").as_str()), (Some(0), "early\n"), "{err}");
    assert!(with_argument(&name).is_empty(), "it lives on");
    assert_eq!(life.info()["program"]["finished"], true);
}
