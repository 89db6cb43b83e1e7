//! State directories to try things on: made by killing a program midway, copied for each trial.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use super::process::{Victim, kill, twinpage};

/// A killed program's state, and the output an undisturbed run would have had.
pub(crate) struct Killed {
    pub(crate) scratch: tempfile::TempDir,
    pub(crate) stdout: Vec<u8>,
}

/// Counts for a while in bash and prints as it goes; its output is known beforehand.
pub(crate) const COUNTING: &str =
    "for ((i = 1; i <= 12; i++)); do for ((j = 0; j < 20000; j++)); do :; done; echo $i; done";

impl Killed {
    /// Runs a counting program, and kills it when it has printed some lines.
    pub(crate) fn midway() -> Self {
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
            .args(["--", "bash", "-c", COUNTING])
            .stdout(out)
            .stderr(Stdio::null());
        let mut child = command.spawn().expect("twinpage starts");
        while fs::read(killed.path("out")).expect("the output").len() < 6 {
            let early = child.try_wait().expect("wait for twinpage");
            assert!(
                early.is_none(),
                "the program ended before it could be killed: {early:?}"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        kill(&mut child, Victim::Tree, &mut fastrand::Rng::with_seed(1));
        killed
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

/// Runs one subcommand on a state directory.
pub(crate) fn on_state(subcommand: &[&str], state: &Path) -> Output {
    twinpage()
        .args(subcommand)
        .arg(state)
        .output()
        .expect("twinpage starts")
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
pub(crate) fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let from = Instant::now();
    while !holds() {
        assert!(
            from.elapsed() < Duration::from_secs(600),
            "waited in vain until {what}"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}
