//! `twinpage fork`: two programs from one checkpoint. Each goes on as the one would have, and knows nothing of the
//! other.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use twinpage_campaign::seed;

use crate::support::chance;
use crate::support::process::{Victim, kill, twinpage};
use crate::support::state::{Killed, info, on_state, refused_in_order, wait_until};

fn fork(state: &Path, new: &Path) -> Output {
    let mut command = twinpage();
    command.arg("fork").arg(state).arg(new);
    command.output().expect("twinpage starts")
}

fn told(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

/// Runs a bash program with a state until `ready` is there, and kills it.
fn killed(folder: &Path, program: &str) {
    let mut command = twinpage();
    command.args([
        "run", "--every", "5ms", "--state", "state", "--", "bash", "-c", program,
    ]);
    command
        .current_dir(folder)
        .stdout(Stdio::piped()) // a stream: the null device would be the program's own file
        .stderr(Stdio::null());
    let mut child = command.spawn().expect("twinpage starts");
    wait_until("the program is ready", || folder.join("ready").exists());
    let epoch = || info(&folder.join("state"))["epoch"].as_u64();
    let ready = epoch().unwrap_or_default();
    wait_until("there are two more checkpoints", || {
        epoch() > Some(ready + 1) || child.try_wait().is_ok_and(|ended| ended.is_some())
    });
    kill(&mut child, Victim::Tree, &mut chance(seed(), "fork"));
}

fn resume(state: &Path, folder: &Path) -> Output {
    let mut command: Command = twinpage();
    command.arg("resume").arg(state).current_dir(folder);
    command.output().expect("twinpage starts")
}

#[test]
fn both_go_on_from_the_same_instant() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let folder = scratch.path();
    killed(
        folder,
        "x=$RANDOM$RANDOM; echo >ready; until [ -e go ]; do :; done; read -r word <go; echo $x $word",
    );
    let (state, other) = (folder.join("state"), folder.join("other"));
    let out = fork(&state, &other);
    assert!(out.status.success(), "{}", told(&out));
    assert!(
        told(&out).contains(&format!("twinpage resume {}", other.display())),
        "{}",
        told(&out)
    );
    let say = |state: &Path, word: &str| {
        fs::write(folder.join("go"), format!("{word}\n")).expect("a file");
        let out = resume(state, folder);
        assert!(out.status.success(), "{}", told(&out));
        String::from_utf8(out.stdout).expect("text")
    };
    let (second, first) = (say(&other, "right"), say(&state, "left"));
    let (x, word) = first.split_once(' ').expect("two words");
    assert_eq!((word, second), ("left\n", format!("{x} right\n")));
}

#[test]
fn what_is_held_and_what_waits_goes_with_both() {
    let killed = Killed::with_full_streams();
    let other = killed.path("other");
    let out = fork(&killed.path("state"), &other);
    assert!(out.status.success(), "{}", told(&out));
    for state in [other, killed.path("state")] {
        assert_eq!(on_state(&["check"], &state).status.code(), Some(0));
        let out = on_state(&["resume"], &state);
        assert!(out.status.success(), "{}", told(&out));
        assert!(
            killed.whole(&out.stdout) == killed.stdout,
            "{} prints something else",
            state.display()
        );
    }
}

#[test]
fn files_are_rolled_back_once() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let folder = scratch.path();
    killed(
        folder,
        "i=0; while [ $i -lt 3000 ]; do i=$((i + 1)); echo $i >>data; [ $i = 300 ] && echo >ready; done; exit 0",
    );
    let (state, other) = (folder.join("state"), folder.join("other"));
    let out = fork(&state, &other);
    assert!(out.status.success(), "{}", told(&out));
    let at_checkpoint = fs::read(folder.join("data")).expect("its file");
    let wanted: String = (1..=3000).map(|i| format!("{i}\n")).collect();
    assert!(
        wanted.as_bytes().starts_with(&at_checkpoint),
        "as at the checkpoint"
    );
    for state in [other, state] {
        fs::write(folder.join("data"), &at_checkpoint).expect("room"); // it is closed between the lines
        let out = resume(&state, folder);
        assert!(out.status.success(), "{}", told(&out));
        assert_eq!(fs::read_to_string(folder.join("data")).expect("its file"), wanted);
    }
}

#[test]
fn what_cannot_be_forked_is_told_and_leaves_nothing() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let folder = scratch.path();
    let (state, other) = (folder.join("state"), folder.join("other"));
    let refused = |what: &str, state: &Path, new: &Path, why: &str| {
        let said = refused_in_order(what, &fork(state, new));
        assert!(said.contains(why), "{what}: {said}");
    };
    refused("no state", folder, &other, "holds no state");
    let mut command = twinpage();
    command.args(["run", "--state", "state", "--", "sleep", "600"]);
    let mut child = command.current_dir(folder).spawn().expect("twinpage starts");
    wait_until("it has a checkpoint", || {
        info(&state)["program"]["threads"].is_number()
    });
    refused("in use", &state, &other, "in use");
    kill(&mut child, Victim::Tree, &mut chance(seed(), "fork"));
    let kept = fs::read_dir(&state).expect("a state").count();
    refused("within itself", &state, &state.join("other"), "lies in the state");
    assert_eq!(fs::read_dir(&state).expect("a state").count(), kept);
    fs::create_dir(&other).expect("a directory");
    refused("there already", &state, &other, "exists already");
    fs::remove_dir(&other).expect("remove it");
    refused("no place", &state, &folder.join("nowhere/other"), "nowhere");
    let mut command = twinpage();
    command.args(["run", "--state", "finished", "--", "true"]);
    assert!(
        command
            .current_dir(folder)
            .status()
            .expect("twinpage starts")
            .success()
    );
    refused("finished", &folder.join("finished"), &other, "has finished");
    let mut names: Vec<_> = fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["finished", "state"]);
}
