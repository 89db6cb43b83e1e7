//! The test programs alone: a program that does not print the same twice cannot be an oracle.

use std::process::{Command, Output, Stdio};
use twinpage_campaign::either;

use crate::support::program::{PROGRAMS, Program};
use crate::support::say;
use crate::support::tree::{Tree, bytes_difference, difference, snapshot};

/// The number of programs that run at once.
const AT_ONCE: usize = 4;

fn run_alone(line: &[String]) -> (Output, Tree) {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let mut command = Command::new(&line[0]);
    command
        .args(&line[1..])
        .current_dir(dir.path())
        .stdin(Stdio::null());
    let out = command.output().unwrap_or_else(|e| panic!("{}: {e}", line[0]));
    let tree = snapshot(dir.path());
    (out, tree)
}

fn same_each_time(program: &Program, rounds: u32, times: usize) {
    let Some(line) = program.command(rounds) else {
        return;
    };
    let (first, files) = run_alone(&line);
    let words = String::from_utf8_lossy(&first.stderr);
    assert!(
        first.status.success(),
        "{} ends with {}: {words}",
        program.file,
        first.status
    );
    assert!(
        first.stdout.ends_with(b"\n") && first.stdout.len() > 20,
        "{} prints nothing",
        program.file
    );
    for _ in 1..times {
        let (again, files_again) = run_alone(&line);
        let words = String::from_utf8_lossy(&again.stderr);
        assert!(
            again.status.success(),
            "{} ends with {}: {words}",
            program.file,
            again.status
        );
        let same = first.stdout == again.stdout;
        assert!(
            same,
            "{} prints otherwise: {}",
            program.file,
            bytes_difference(&first.stdout, &again.stdout)
        );
        if let Some(what) = difference(&files, &files_again) {
            panic!("{} leaves other files: {what}", program.file);
        }
    }
}

#[test]
fn programs_print_the_same_every_time() {
    let times = either(2, 10);
    let same = |program: &Program| {
        same_each_time(program, either(program.rounds.div_ceil(8), program.rounds), times);
    };
    std::thread::scope(|scope| {
        for part in PROGRAMS.chunks(PROGRAMS.len().div_ceil(AT_ONCE)) {
            scope.spawn(move || part.iter().for_each(same));
        }
    });
    say(&format!(
        "{} programs print the same {times} times",
        PROGRAMS.len()
    ));
}
