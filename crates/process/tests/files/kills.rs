//! Real kills: another process changes files and records them, is killed at any instant, and what it
//! left is rolled back and compared with what it wrote down at its last durable epoch.

use crate::Stage;
use crate::program::{Program, Random, sizes};
use crate::tree::Tree;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use twinpage_process::files::{Durability, OpenFile, Options, Recorder, check, rollback};

const CHILD: &str = "TWINPAGE_FILES_CHILD";

/// Writes a file that is whole or not there, as far as a kill can tell.
fn write_whole(path: &Path, text: &str) {
    let fresh = path.with_extension("new");
    std::fs::write(&fresh, text).unwrap();
    std::fs::rename(fresh, path).unwrap();
}

/// The process that is killed. As a test of its own it does nothing.
#[test]
fn child() {
    let Ok(given) = std::env::var(CHILD) else { return };
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
    let mut given = given.split('\n');
    let mut next = || given.next().unwrap();
    let (root, state, oracle) = (Path::new(next()), Path::new(next()), Path::new(next()));
    let (mut durable, seed): (u64, u64) = (next().parse().unwrap(), next().parse().unwrap());
    let durability = match next() {
        "disk" => Durability::Disk,
        _ => Durability::Memory,
    };
    let options = Options {
        names_in_order: Some(true),
        ..Options::new(durability)
    };
    let mut program = Program::new(root, Random(seed));
    let mut recorder = Recorder::create(state, options, durable).unwrap();
    // What a kill must not hit half done is done: the parent may kill from here on.
    std::io::stderr().write_all(b"ready\n").unwrap();
    loop {
        for _ in 0..program.random.below(30) {
            program.step(&mut recorder);
        }
        let open = program.open_files(&recorder);
        let tree = Tree::of(root).to_text();
        let mut changed = recorder.begin_epoch(durable + 1, durable, sizes(&open)).unwrap();
        for _ in 0..program.random.below(30) {
            program.step(&mut recorder);
        }
        changed.sync_before_commit().unwrap();
        durable += 1;
        let open = serde_json::to_string(&open).unwrap();
        write_whole(&oracle.join("durable"), &format!("{durable}\n{open}\n{tree}"));
    }
}

/// What the child wrote down last.
fn read_oracle(oracle: &Path) -> (u64, Vec<OpenFile>, String) {
    let text = std::fs::read_to_string(oracle.join("durable")).unwrap();
    let mut parts = text.splitn(3, '\n');
    let mut next = || parts.next().unwrap();
    (
        next().parse().unwrap(),
        serde_json::from_str(next()).unwrap(),
        next().to_owned(),
    )
}

#[test]
fn a_killed_process_comes_back() {
    let in_memory = [Stage::new(), Stage::apart(), Stage::in_memory()].map(|stage| (stage, "memory"));
    for (stage, durability) in in_memory.into_iter().chain([(Stage::new(), "disk")]) {
        let seed = twinpage_campaign::seed();
        let mut random = Random(seed);
        let oracle = tempfile::tempdir().unwrap();
        Program::seed_tree(&stage.root, &mut random);
        write_whole(
            &oracle.path().join("durable"),
            &format!("0\n[]\n{}", Tree::of(&stage.root).to_text()),
        );
        let (mut durable, mut records) = (0, 0);
        for life in 0..20 {
            kill_one(&stage, oracle.path(), durable, durability, &mut random);
            let (epoch, open, tree) = read_oracle(oracle.path());
            assert!(epoch >= durable);
            durable = epoch;
            assert_eq!(
                check(&stage.state, durable).unwrap(),
                [],
                "seed {seed} life {life}"
            );
            records += rollback(&stage.state, durable, &open, &[]).unwrap().records;
            assert_eq!(
                Tree::of(&stage.root).to_text(),
                tree,
                "seed {seed} life {life} epoch {durable}"
            );
        }
        println!("20 kills, {durable} durable epochs, {records} records undone");
        assert!(durable > 0);
    }
}

/// Runs the child from epoch `durable` on and kills it.
fn kill_one(stage: &Stage, oracle: &Path, durable: u64, durability: &str, random: &mut Random) {
    let paths = [stage.root.as_path(), &stage.state, oracle].map(|path| path.to_str().unwrap().to_owned());
    let given = format!("{}\n{durable}\n{}\n{durability}", paths.join("\n"), random.next());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kills::child", "--nocapture"])
        .env(CHILD, given)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    stderr.read_line(&mut said).unwrap();
    assert_eq!(said, "ready\n");
    std::thread::sleep(Duration::from_micros(random.below(30_000)));
    child.kill().unwrap();
    let status = child.wait().unwrap();
    assert!(!status.success());
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut stderr, &mut rest).unwrap();
    assert_eq!(rest, "", "the child failed before it was killed");
}
