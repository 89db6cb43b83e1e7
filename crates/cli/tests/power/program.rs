//! A whole program under `twinpage run`: it counts, what it prints depends on all it ever did, and it changes files
//! that it compares with its memory.

use super::guest::say;
use super::names::Folder;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use twinpage_core::crash::Random;

/// Tells this program to count.
pub(crate) const COUNT: &str = "count";

/// Words that each step reads and changes a few of.
const WORDS: usize = 1 << 17;

/// Memory in which each step leaves its mark.
struct Counter {
    words: Vec<u64>,
    steps: u64,
    digest: u64,
}

impl Counter {
    fn new() -> Counter {
        Counter {
            words: vec![0; WORDS],
            steps: 0,
            digest: 0,
        }
    }

    /// One step, and what to print of it: a digest of all steps so far.
    fn step(&mut self) -> String {
        self.steps += 1;
        let mut random = Random::new(self.steps);
        for _ in 0..200 {
            let word = &mut self.words[random.below(WORDS as u64) as usize];
            *word = Random::new(*word ^ self.digest).number();
            self.digest = *word;
        }
        format!("{} {:x}\n", self.steps, self.digest)
    }
}

/// Counts until it is killed, and keeps files in `folder`.
pub(crate) fn count(folder: PathBuf) -> ! {
    let (mut counter, mut folder) = (Counter::new(), Folder::new(folder));
    loop {
        folder.step(counter.steps);
        if let Some(wrong) = folder.look() {
            println!("after step {}: {wrong}", counter.steps);
            std::process::exit(1);
        }
        if std::io::stdout().write_all(counter.step().as_bytes()).is_err() {
            std::process::exit(1);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// In the guest: runs or resumes it, its output in a file beside its state, and verifies that file.
pub(crate) fn run(folder: &Path) {
    let (state, printed) = (folder.join("state"), folder.join("printed"));
    let output = File::options()
        .create(true)
        .append(true)
        .open(&printed)
        .expect("a file to print to");
    let before = output.metadata().expect("its length").len();
    let mut command = Command::new("/twinpage");
    if state.join("kind").exists() {
        command.args(["resume", "--every", "16ms"]).arg(state);
    } else {
        command
            .args(["run", "--every", "16ms"])
            .arg("--state")
            .arg(state)
            .args(["--", "/init", COUNT])
            .arg(folder.join("files"));
    }
    let command = command.stdin(Stdio::null()).stdout(output);
    let mut child = command.spawn().expect("the command starts");
    // What the power cut took from the end of the file is printed again before anything new.
    while printed.metadata().is_ok_and(|file| file.len() <= before) {
        wait(&mut child);
    }
    follow(folder, before, &mut child);
}

/// New lines after which a record must have been a name: the file system keeps their order.
const NAMED_BY: u64 = 30;

/// Compares the file with what an undisturbed run prints, as it grows, and says what is new in it.
fn follow(folder: &Path, before: u64, child: &mut Child) {
    let mut file = BufReader::new(File::open(folder.join("printed")).expect("the file printed to"));
    let (mut counter, mut line, mut read) = (Counter::new(), String::new(), 0);
    let (mut new, mut seen) = (0, false);
    loop {
        read += file.read_line(&mut line).expect("text") as u64;
        if !line.ends_with('\n') {
            wait(child);
            continue;
        }
        let expected = counter.step();
        if line != expected {
            return say(&format!(
                "broken: {line:?} was printed, {expected:?} was expected"
            ));
        }
        if read > before {
            new += 1;
            seen |= has_record(&folder.join("state/kept"));
            if new == NAMED_BY && !seen {
                return say("broken: no record was a name");
            }
            say(&format!("step {}", counter.steps));
        }
        line.clear();
    }
}

/// Whether a record is a name now.
fn has_record(kept: &Path) -> bool {
    let mut names = std::fs::read_dir(kept).expect("kept files").flatten();
    names.any(|name| name.path().extension().is_some_and(|ending| ending == "record"))
}

/// A moment, in which the program may not end.
fn wait(child: &mut Child) {
    if let Some(status) = child.try_wait().expect("a child") {
        panic!("the program ended: {status}");
    }
    std::thread::sleep(Duration::from_millis(2));
}
