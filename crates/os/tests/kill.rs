//! Writers killed at any instant. A child of this test writes, tells what it wrote, and is killed.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use twinpage_core::Medium;
use twinpage_os::{Access, AnyMedium, Durability};

/// Tells the child which medium to write.
const STORE: &str = "TWINPAGE_TEST_STORE";
/// Where the numbers lie: on pages of their own, far apart.
const FIRST: u64 = 0;
const SECOND: u64 = 3 << 20;

/// Writes numbers from 1 on, always to the first place before the second, and tells each.
fn write_until_killed(path: &Path, durability: Durability) -> ! {
    let mut medium = AnyMedium::create(path, durability).unwrap();
    medium.grow(4 << 20).unwrap();
    let mut out = std::io::stdout().lock();
    for number in 1_u64.. {
        medium.write(FIRST, &number.to_le_bytes()).unwrap();
        medium.fence().unwrap();
        medium.write(SECOND, &number.to_le_bytes()).unwrap();
        medium.fence().unwrap();
        writeln!(out, "\nnumber {number}").unwrap();
    }
    unreachable!("numbers end after centuries")
}

/// Kills the child named `test` after it told some numbers; returns the last it told and the two it left.
fn killed_after(lines: u64, test: &str, durability: Durability) -> (u64, u64, u64) {
    let shm = Path::new("/dev/shm");
    let folder = match durability {
        Durability::Memory if shm.is_dir() => tempfile::tempdir_in(shm),
        _ => tempfile::tempdir(),
    };
    let path = folder.as_ref().unwrap().path().join("store");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(STORE, &path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = 0;
    let mut output = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    while told < lines {
        let line = output.next().expect("the child goes on until it is killed");
        told = line
            .strip_prefix("number ")
            .map_or(told, |number| number.parse().unwrap());
    }
    child.kill().unwrap();
    // What was still in the pipe was told before the death, too. A torn last line does not count.
    let rest: Vec<String> = output.collect();
    let whole = rest
        .iter()
        .rev()
        .skip(1)
        .find_map(|line| line.strip_prefix("number ")?.parse().ok());
    child.wait().unwrap();
    let medium = AnyMedium::open(&path, durability, Access::ReadOnly).unwrap();
    let number = |at| {
        let mut word = [0; 8];
        medium.read(at, &mut word).unwrap();
        u64::from_le_bytes(word)
    };
    (whole.unwrap_or(told), number(FIRST), number(SECOND))
}

fn what_was_told_is_there(test: &str, durability: Durability) {
    if let Some(path) = std::env::var_os(STORE) {
        write_until_killed(Path::new(&path), durability);
    }
    for lines in [1, 2, 5, 30, 200] {
        let (told, first, second) = killed_after(lines, test, durability);
        assert!(
            told <= second && second <= first && first <= second + 1,
            "{told} told, {first} {second}"
        );
    }
}

#[test]
fn a_file_holds_what_was_fenced() {
    what_was_told_is_there("a_file_holds_what_was_fenced", Durability::Disk);
}

#[test]
fn memory_holds_every_store_in_order() {
    what_was_told_is_there("memory_holds_every_store_in_order", Durability::Memory);
}
