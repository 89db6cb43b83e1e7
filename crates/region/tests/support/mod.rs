//! What the tests share.

#![allow(dead_code)]

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use twinpage::window::Place;
use twinpage::{Error, Region};

/// One directory in memory, one on a disk.
pub(crate) fn folders() -> [TempDir; 2] {
    [
        tempfile::tempdir_in("/dev/shm").unwrap(),
        tempfile::tempdir().unwrap(),
    ]
}

/// Opens a region of another process. It is tried again while a killed process still holds the lock, a writer overtakes
/// the reader, or another test of this process has a region at the same addresses.
pub(crate) fn when_free<T>(open: impl Fn() -> Result<T, Error>) -> T {
    loop {
        match open() {
            Err(Error::Locked(_) | Error::Taken { .. } | Error::Overtaken { .. }) => std::thread::yield_now(),
            other => return other.unwrap(),
        }
    }
}

/// The full name of a test for the test harness: the path of its module in this binary, and its own name.
pub(crate) fn name(module: &str, test: &str) -> String {
    match module.split_once("::") {
        Some((_, inside)) => format!("{inside}::{test}"),
        None => test.to_owned(),
    }
}

/// This program once more, to run one test of a module in a process of its own.
pub(crate) fn again(module: &str, test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &name(module, test), "--nocapture"]);
    command
}

/// Starts a process and gives the lines that it prints.
pub(crate) fn talking(command: &mut Command) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, said)
}

/// Starts a process that prints `begun` and then the number of each step it has done, and kills it that long after it
/// began. The last number that it printed.
pub(crate) fn killed_after(command: &mut Command, time: Duration) -> Option<u64> {
    let (mut child, mut said) = talking(command);
    let begun = said.by_ref().map_while(Result::ok).any(|line| line == "begun");
    assert!(begun, "the child ended by itself");
    std::thread::sleep(time);
    child.kill().unwrap();
    child.wait().unwrap();
    let steps = said.map_while(Result::ok).filter_map(|line| line.parse().ok());
    steps.last()
}

/// The longest time until a kill, in microseconds: twice as long each time while no step was done, as on a slow machine.
pub(crate) fn longest(usual: u64, steps: u64, kill: u64) -> u64 {
    usual << if steps == 0 { kill.min(16) } else { 0 }
}

/// Runs a command in a mount namespace of its own, with a file system of so few bytes at `disk` in `folder`, and fails
/// if it does. Where there are no such namespaces it is skipped, said loudly.
pub(crate) fn on_small_disk(command: &Command, folder: &Path, bytes: usize) {
    let script = format!("mkdir disk && mount -t tmpfs -o size={bytes} tmpfs disk || exit 90; exec \"$@\"");
    let done = Command::new("unshare")
        .args(["-rm", "sh", "-c", &script, "sh"])
        .arg(command.get_program())
        .args(command.get_args())
        .envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .current_dir(folder)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    if done.status.code() == Some(90) || said.starts_with("unshare:") {
        println!("SKIPPED: no mount namespaces on this machine: {said}");
        return;
    }
    assert!(
        done.status.success(),
        "{said}\n{}",
        String::from_utf8_lossy(&done.stdout)
    );
}

/// The flushes that a test makes, as [`written`] has them.
pub(crate) fn flushes(test: &str, variables: &[(&str, &OsStr)]) -> Option<Vec<String>> {
    let calls = written(test, variables)?.into_iter();
    Some(calls.filter(|call| call.contains("sync(")).collect())
}

/// The flushes and the writes at a place that a test makes between the lines "from here" and "to here" of its output,
/// when it is run with these variables by itself, as the system saw them. `None`, said loudly, without strace(1).
pub(crate) fn written(test: &str, variables: &[(&str, &OsStr)]) -> Option<Vec<String>> {
    let calls = "trace=fdatasync,fsync,msync,write,pwrite64,pwritev,pwritev2,io_uring_enter";
    let trace = traced(test, variables, &["-e", calls])?;
    let counted = trace
        .lines()
        .skip_while(|line| !line.contains("from here"))
        .take_while(|line| !line.contains("to here"));
    Some(
        counted
            .filter(|line| !line.contains(" write(") && line.contains('('))
            .map(str::to_owned)
            .collect(),
    )
}

/// Runs one test of this binary alone, under strace(1) with these options, and returns the trace. `None`, with a message,
/// where strace is missing.
pub(crate) fn traced(test: &str, variables: &[(&str, &OsStr)], options: &[&str]) -> Option<String> {
    if Command::new("strace").arg("-V").output().is_err() {
        eprintln!("SKIPPED: {test}: there is no strace");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let ended = Command::new("strace")
        .arg("-f")
        .args(options)
        .arg("-o")
        .arg(&trace)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .envs(variables.iter().copied())
        .env("ASAN_OPTIONS", "detect_leaks=0") // a sanitizer cannot look for leaks in a process that is traced
        .output()
        .unwrap();
    assert!(ended.status.success(), "{ended:?}");
    Some(std::fs::read_to_string(trace).unwrap())
}

/// A region as plain bytes.
#[derive(Clone, Copy)]
pub(crate) struct Bytes<'r> {
    region: &'r Region,
    place: Place,
}

impl<'r> Bytes<'r> {
    pub(crate) fn of(region: &'r Region) -> Bytes<'r> {
        Bytes {
            region,
            place: region.place(),
        }
    }

    /// Makes that many bytes usable.
    pub(crate) fn grow(&self, bytes: usize) {
        self.region.update(|_| self.place.grow(bytes).unwrap());
    }

    /// An update that fills bytes.
    pub(crate) fn fill(&self, offset: usize, bytes: usize, value: u8) {
        self.region.update(|_| self.write(offset, bytes, value));
    }

    /// Inside an update: fills bytes.
    pub(crate) fn write(&self, offset: usize, bytes: usize, value: u8) {
        assert!(offset + bytes <= self.place.bytes());
        let at = self.place.base().wrapping_add(offset);
        // SAFETY: usable bytes that only this test knows of.
        unsafe {
            self.place.touch(offset..offset + bytes);
            at.write_bytes(value, bytes);
        }
    }

    /// Whether the bytes all are `value`.
    pub(crate) fn are(&self, offset: usize, bytes: usize, value: u8) -> bool {
        assert!(offset + bytes <= self.place.bytes());
        // SAFETY: as above, and they do not change while the test looks.
        let found = unsafe { std::slice::from_raw_parts(self.place.base().wrapping_add(offset), bytes) };
        found.iter().all(|&byte| byte == value)
    }

    /// A word, as it is now.
    pub(crate) fn word(&self, offset: usize) -> u64 {
        let at = self.place.base().wrapping_add(offset).cast::<u64>();
        assert!(offset + 8 <= self.place.bytes());
        // SAFETY: usable and aligned by the tests; volatile since other threads may write.
        unsafe { at.read_volatile() }
    }

    /// Inside an update: sets a word.
    pub(crate) fn set_word(&self, offset: usize, value: u64) {
        let at = self.place.base().wrapping_add(offset).cast::<u64>();
        assert!(offset + 8 <= self.place.bytes());
        // SAFETY: as above; each test thread has its own words.
        unsafe {
            self.place.touch(offset..offset + 8);
            at.write_volatile(value);
        }
    }
}
