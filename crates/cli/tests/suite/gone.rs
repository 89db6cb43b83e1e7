//! Files that are gone when a program is resumed.

use std::fs;
use std::process::Command;

use twinpage_campaign::{either, seed};

use crate::support::chance;
use crate::support::process::{Victim, kill, twinpage};
use crate::support::program::{named, python_with};
use crate::support::skip;
use crate::support::state::wait_until;
use crate::trees::Life;

/// The program is told to end, and prints `expected` first. What twinpage said of it all is returned.
fn goes_on_to_print(life: Life, expected: &str, case: &str) -> String {
    life.until_checkpoint_of(1);
    fs::write(life.path("go"), "").expect("a file");
    let (code, life) = life.end();
    let err = life.read("err");
    assert_eq!(
        (code, life.read("out").as_str()),
        (Some(0), expected),
        "{case}: {err}"
    );
    err
}

/// A file that is mapped shared, all of it, comes back with what the checkpoint has of it, with the directories that it
/// was in, and with the lock on it.
#[test]
fn a_mapped_file_that_is_gone_is_made_again() {
    let Some(python) = python_with("mmap") else {
        return skip("a mapped file that is gone", "python3", "python3");
    };
    let program = "import fcntl, mmap, os, time
os.makedirs('counters/own')
name = 'counters/own/' + str(os.getpid())
file = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
os.ftruncate(file, 10000)
fcntl.flock(file, fcntl.LOCK_EX)
shared = mmap.mmap(file, 10000)
count = 0
while not os.path.exists('../go'):
    count += 1
    shared[count % 10000] = count // 10000 + 1 & 255
    if count == 1: open('begun', 'w')
    time.sleep(0.0001)
def expected(at): return (count - at) // 10000 + 1 & 255 if 0 < at <= count or count >= 10000 else 0
right = all(shared[at] == expected(at) for at in range(10000))
there = os.stat(name)
other = os.open(name, os.O_RDONLY)
try: fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB); locked = False
except OSError: locked = True
print(right, locked, there.st_ino == os.fstat(file).st_ino, oct(there.st_mode), open(name, 'rb').read() == shared[:])";
    let mut life = Life::begin(&format!("exec {python} -c \"{program}\""));
    let seed = seed();
    let mut chance = chance(seed, "a mapped file that is gone");
    wait_until("it has begun", || life.path("work/begun").exists());
    let mut told = String::new();
    let victims = [Victim::Tool, Victim::Tree].repeat(either(2, 10));
    for (round, victim) in victims.into_iter().enumerate() {
        life.until_checkpoint_of(1);
        kill(life.child(), victim, &mut chance);
        let lost = ["work/counters", "work/counters/own"][chance.usize(..2)];
        fs::remove_dir_all(life.path(lost)).expect("the file was there");
        if round == 1 {
            let (state, second) = (life.path("state"), life.path("second"));
            let fork = twinpage().arg("fork").args([state, second]).output();
            told = String::from_utf8_lossy(&fork.expect("twinpage starts").stderr).into_owned();
        }
        life.start(&["resume", "--every", "20ms"], &[]);
    }
    let err = goes_on_to_print(
        life,
        "True True True 0o100600 True\n",
        &format!("TWINPAGE_SEED={seed}"),
    );
    assert_eq!(
        (told + &err).matches("was gone: it is made again").count(),
        either(4, 20),
        "{err}"
    );
}

/// Others remove the name of a file that is open, and have another one for it, as a second run has that keeps what its
/// program removed.
#[test]
fn a_file_goes_on_whose_other_name_only_others_know() {
    let Some(python) = python_with("mmap") else {
        return skip("a file with a name that others know", "python3", "python3");
    };
    let program = "import mmap, os, sys, time
file = os.open('shared', os.O_RDWR | os.O_CREAT, 0o600)
os.ftruncate(file, 10000)
count, shared, right, expected = 0, None, True, bytearray(10000)
while not os.path.exists('../go'):
    count += 1
    if sys.argv[1] == 'mapped' and not shared and os.path.exists('../removed'): shared = mmap.mmap(file, 10000)
    expected[count % 10000] = count & 255
    if shared: shared[count % 10000] = count & 255
    else: os.pwrite(file, bytes([count & 255]), count % 10000)
    right = right and (count % 100 or os.pread(file, 10000, 0) == expected)
    if count == 1: open('begun', 'w')
    time.sleep(0.0001)
print(bool(right), os.pread(file, 10000, 0) == expected)";
    for way in ["mapped", "written"] {
        let mut life = Life::begin(&format!("exec {python} -c \"{program}\" {way}"));
        let seed = seed();
        let mut chance = chance(seed, way);
        wait_until("it has begun", || life.path("work/begun").exists());
        life.until_checkpoint_of(1);
        fs::hard_link(life.path("work/shared"), life.path("other")).expect("another name");
        fs::remove_file(life.path("work/shared")).expect("it had that name");
        fs::write(life.path("removed"), "").expect("a file");
        life.until_checkpoint_of(1); // at this one it is seen
        for victim in [Victim::Tool, Victim::Tree].repeat(either(2, 10)) {
            life.until_checkpoint_of(1);
            kill(life.child(), victim, &mut chance);
            life.start(&["resume", "--every", "20ms"], &[]);
        }
        goes_on_to_print(life, "True True\n", &format!("{way}; TWINPAGE_SEED={seed}"));
    }
}

/// What a Java program tells of itself in a file (`hsperfdata`) is removed by every other that begins while it is killed.
#[test]
fn java_goes_on_though_another_removed_its_file() {
    let Some(line) = named("Collections.java").command(either(40, 100)) else {
        return; // which was said
    };
    let java = |words: &[String]| {
        let output = Command::new(&line[0]).args(words).output();
        output.expect("java runs")
    };
    let alone = String::from_utf8_lossy(&java(&line[1..]).stdout).into_owned();
    let mut life = Life::begin(&format!("exec {}", line.join(" ")));
    let mut chance = chance(seed(), "Java's file");
    wait_until("a round", || life.read("out").contains("round 3 "));
    life.until_checkpoint_of(1);
    kill(life.child(), Victim::Tree, &mut chance);
    assert!(java(&["-version".to_owned()]).status.success());
    life.start(&["resume"], &[]);
    let (code, life) = life.end();
    let err = life.read("err");
    assert_eq!((code, life.read("out")), (Some(0), alone), "{err}");
    assert!(err.contains("was gone: it is made again"), "{err}");
}
