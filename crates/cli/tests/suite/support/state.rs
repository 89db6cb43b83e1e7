//! State directories to try things on: made by killing a program midway, copied for each trial.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use twinpage_core::dual_page::{DualPage, Options};
use twinpage_core::{Geometry, PageId, PageLines, ProductScheme, Scheme, SchemeKind};
use twinpage_os::{Access, AnyMedium, Durability};

use super::process::{Victim, kill, twinpage};

/// A killed program's state, and the output an undisturbed run would have had.
pub(crate) struct Killed {
    pub(crate) scratch: tempfile::TempDir,
    pub(crate) stdout: Vec<u8>,
}

macro_rules! counting {
    () => {
        "for ((i = 1; i <= 12; i++)); do for ((j = 0; j < (i < 6 ? 20000 : 2000); j++)); do :; done; echo $i; done"
    };
}

/// Counts for a while in bash and prints as it goes, from the sixth line on faster; its output is known beforehand.
pub(crate) const COUNTING: &str = counting!();

/// The same of three processes.
const COUNTING_IN_A_PIPELINE: &str = concat!(counting!(), " | while read -r i; do echo $i; done");

impl Killed {
    /// Runs a counting program, and kills it when it has printed some lines.
    pub(crate) fn midway() -> Self {
        Self::midway_of(COUNTING)
    }

    /// The same with a tree of processes.
    pub(crate) fn midway_in_a_tree() -> Self {
        Self::midway_of(COUNTING_IN_A_PIPELINE)
    }

    /// On a busy machine the kill may come when the program has ended: then once more.
    fn midway_of(script: &str) -> Self {
        loop {
            let killed = Self::killed_in(script);
            let info = info(&killed.path("state"));
            if info["program"]["finished"] == false {
                return killed;
            }
        }
    }

    fn killed_in(script: &str) -> Self {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let stdout = (1..=12)
            .map(|i| format!("{i}\n"))
            .collect::<String>()
            .into_bytes();
        let killed = Self { scratch, stdout };
        let out = fs::File::create(killed.path("out")).expect("the output file");
        let mut command = twinpage();
        command
            .args(["run", "--every", "10ms", "--state"])
            .arg(killed.path("state"));
        command
            .args(["--", "bash", "-c", script])
            .stdout(out)
            .stderr(Stdio::null());
        let mut child = command.spawn().expect("twinpage starts");
        let printed = || fs::read(killed.path("out")).expect("the output").len();
        while printed() < 6 {
            let early = child.try_wait().expect("wait for twinpage");
            assert!(
                early.is_none() || printed() >= 6,
                "the program did not run: {early:?}"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        kill(&mut child, Victim::Tree, &mut fastrand::Rng::with_seed(1));
        killed
    }

    /// Input of [`Killed::with_full_streams`] that comes after a checkpoint.
    pub(crate) const GIVEN_LAST_BYTES: usize = 20 * 487;

    /// Kills a program that prints more than the outside takes, and is given more than it reads: most of both is
    /// kept in the state. When `go` is there it reads on, to the end.
    pub(crate) fn with_full_streams() -> Self {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let line = |i: usize| format!("{i:05} {}\n", "words ".repeat(80));
        let given_last = 380..400;
        assert_eq!(line(0).len() * given_last.len(), Self::GIVEN_LAST_BYTES);
        let stdout = (0..400).map(line).collect::<String>().into_bytes();
        let killed = Self { scratch, stdout };
        let (state, go, has_printed) = (killed.path("state"), killed.path("go"), killed.path("printed"));
        let program = format!(
            "for ((i = 0; i < 240; i++)); do read -r line; echo \"$line \"; done; > '{}'; until [ -e '{}' ]; do :; done; \
             while read -r line; do echo \"$line \"; done",
            has_printed.display(),
            go.display()
        );
        let mut command = twinpage();
        command.args(["run", "--every", "200ms", "--state"]).arg(&state);
        command.args(["--", "bash", "-c", &program]).stderr(Stdio::null());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("twinpage starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        let mut give = |lines: std::ops::Range<usize>| {
            let lines: String = lines.map(line).collect();
            stdin.write_all(lines.as_bytes()).expect("the program reads");
        };
        give(0..380);
        wait_until("the program has printed", || has_printed.exists());
        let all = 240 * line(0).len() as u64;
        wait_until("all output is in the log", || {
            fs::metadata(state.join("output-1.0000000000000000")).is_ok_and(|log| log.len() == all)
        });
        // A checkpoint may be in progress that began before; the second from here holds all output.
        let mut first = None;
        wait_until("a checkpoint holds output and input", || {
            let now = info(&state)["epoch"].as_u64();
            first = first.or(now);
            now.zip(first).is_some_and(|(now, first)| now >= first + 2)
        });
        // Mostly after the last checkpoint.
        give(given_last);
        // After a kill between a read and its checksum, damage of its bytes is not noticed: docs/format.md, `input-flight`.
        let given = killed.stdout.len() as u32;
        wait_until("all input is in the log, with its checksum", || {
            let flight = fs::read(state.join("input-flight")).expect("a page");
            let summed = flight[4080..].chunks(8).map(|word| word[..4].to_vec());
            summed.eq([given.to_le_bytes(), given.to_le_bytes()])
        });
        kill(&mut child, Victim::Tree, &mut fastrand::Rng::with_seed(1));
        let mut printed = Vec::new();
        let mut outside = child.stdout.take().expect("a pipe");
        outside.read_to_end(&mut printed).expect("what was printed");
        fs::write(killed.path("out"), printed).expect("room for it");
        fs::write(go, "").expect("a file");
        killed
    }

    /// The files of the state, by their paths in it.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let (state, mut folders, mut files) = (self.path("state"), vec![self.path("state")], vec![]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder of the state") {
                let entry = entry.expect("an entry");
                if entry.file_type().expect("its type").is_dir() {
                    folders.push(entry.path());
                } else {
                    files.push(entry.path().strip_prefix(&state).expect("inside").to_owned());
                }
            }
        }
        files.sort();
        files
    }

    /// A file or directory beside the state.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Another copy of the state; holes stay holes.
    pub(crate) fn copy(&self, name: &str) -> PathBuf {
        let to = self.path(name);
        let _ = fs::remove_dir_all(&to);
        let mut copy = Command::new("cp");
        let done = copy
            .args(["-a", "--sparse=always"])
            .arg(self.path("state"))
            .arg(&to)
            .status();
        assert!(done.is_ok_and(|status| status.success()), "cannot copy the state");
        to
    }

    /// What the program printed before it was killed, and after.
    pub(crate) fn whole(&self, after: &[u8]) -> Vec<u8> {
        let mut all = fs::read(self.path("out")).expect("the output");
        all.extend_from_slice(after);
        all
    }
}

/// Makes of a state on a disk the form that earlier builds gave it: version 1, each system page a line of 4 KiB at its
/// own place. Nothing else of it changes, nor do epochs. One of that form, or without a checkpoint, stays as it is.
pub(crate) fn to_form_of_earlier_builds(state: &Path) {
    const PAGE: usize = 4096;
    let (path, made) = (state.join("store"), state.join("store.made"));
    let packed = AnyMedium::open(&path, Durability::Disk, Access::ReadOnly).expect("the store");
    let (packed, found) = ProductScheme::recover(packed).expect("a whole store");
    if packed.info().scheme != SchemeKind::Packed.name() {
        return;
    }
    // In memory, so that no commit waits for the disk.
    let medium = AnyMedium::create(&made, Durability::Memory).expect("a file");
    let mut store = DualPage::create(medium, &Options::new(Geometry::DISK)).expect("a store");
    for _ in 1..found.epoch {
        store.commit(b"").expect("a commit");
    }
    let (mut left, mut bytes) = (packed.info().pages, [0; PAGE]);
    let mut pages = (0..).map(PageId);
    while left > 0 {
        let page = (pages.find(|page| packed.is_present(*page))).expect("pages have no end");
        packed.read(page, 0, &mut bytes).expect("a page");
        let lines = PageLines::from(PageId(page.0 / 64), page.0 as usize % 64, &bytes, PAGE);
        let _ = store.write(lines).expect("room");
        left -= 1;
    }
    assert_eq!(store.commit(&found.context).expect("a commit"), found.epoch);
    drop((store, packed));
    fs::rename(made, path).expect("a rename");
    let kind = fs::read_to_string(state.join("kind")).expect("the kind");
    let earlier = kind.replace("\"version\":2", "\"version\":1");
    assert_ne!(kind, earlier, "a state with packed lines is of version 2: {kind}");
    fs::write(state.join("kind"), earlier).expect("room for it");
}

/// Runs one subcommand on a state directory.
pub(crate) fn on_state(subcommand: &[&str], state: &Path) -> Output {
    twinpage()
        .args(subcommand)
        .arg(state)
        .output()
        .expect("twinpage starts")
}

/// `info --json` of a state; null where it fails.
pub(crate) fn info(state: &Path) -> Value {
    let out = on_state(&["info", "--json"], state);
    serde_json::from_slice(&out.stdout).unwrap_or_default()
}

/// That a command failed in good order: one line that says what is wrong, no panic, no crash.
pub(crate) fn refused_in_order(what: &str, out: &Output) -> String {
    let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
    let code = out
        .status
        .code()
        .unwrap_or_else(|| panic!("{what}: ended by {}:\n{stderr}", out.status));
    assert!(code != 0 && code != 101, "{what}: exit code {code}:\n{stderr}");
    assert!(!stderr.contains("panicked"), "{what}: a panic:\n{stderr}");
    assert!(
        stderr.starts_with("twinpage"),
        "{what}: does not say who speaks:\n{stderr}"
    );
    assert_eq!(
        stderr.trim_end().lines().count(),
        1,
        "{what}: not one line:\n{stderr}"
    );
    stderr
}

/// Waits until a condition holds.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let from = Instant::now();
    while !holds() {
        assert!(
            from.elapsed() < Duration::from_secs(600),
            "waited in vain until {what}"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}
