//! `twinpage lab sections`, as a user calls it.

use crate::{json, lab};
use std::process::Output;

fn sections(arguments: &[&str]) -> Output {
    lab(&[&["sections", "--smaller", "256"], arguments].concat())
}

#[test]
fn a_power_cut_leaves_whole_sections() {
    for design in ["undo-log", "redo-log", "ssp"] {
        for program in ["rbtree-zipf", "vacation"] {
            let run = [
                "--design",
                design,
                "--program",
                program,
                "--threads",
                "4",
                "--json",
            ];
            let output = sections(&[&run[..], &["--crash-at", "30us"]].concat());
            assert!(output.status.success(), "{output:?}");
            let said = json(&output);
            let recovery = &said["recovery"];
            assert_eq!(recovery["consistent"], true, "{said}");
            assert!(recovery["acknowledged"].as_u64() > Some(100), "{said}");
            assert!(recovery["lines"].as_u64() > Some(100), "{said}");
            assert_eq!(
                json(&sections(&[&run[..], &["--crash-at", "30us"]].concat())),
                said
            );
            let whole = json(&sections(&run));
            assert!(whole["recovery"].is_null() && whole["config_hash"] == said["config_hash"]);
            assert!(whole["machine"]["transactions"].as_u64() > said["machine"]["transactions"].as_u64());
        }
    }
}

#[test]
fn people_read_what_was_recovered() {
    let run = ["--design", "ssp", "--program", "sps", "--crash-at", "10us"];
    let output = sections(&run);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(
        said.contains("whole sections, all that were acknowledged"),
        "{said}"
    );
}

/// A program goes on without end where nothing says how long it is.
#[test]
fn a_power_cut_after_the_end_is_told() {
    let output = sections(&["--design", "ssp", "--program", "sps", "--crash-at", "1s"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(
        said.contains("the run ended before the power failed, after "),
        "{said}"
    );
}

/// The command of docs/lab.md: a value on the line, and a file that says only how its machine differs.
#[test]
fn a_machine_may_differ_in_one_value() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    std::fs::write(&file, "base = \"ssp\"\n[tlb]\nentries = 8\n").unwrap();
    let run = ["--design", "ssp", "--program", "rbtree-rand", "--json"];
    let with = |more: &[&str]| json(&sections(&[&run[..], more].concat()));
    let (whole, small) = (with(&[]), with(&["--set", "tlb.entries=8"]));
    let misses = |said: &serde_json::Value| said["design"]["tlb_misses"].as_u64().unwrap();
    assert!(2 * misses(&small) > 3 * misses(&whole), "{small} {whole}");
    assert_eq!(with(&["--config", file.to_str().unwrap()]), small);
}

#[test]
fn wrong_names_are_told() {
    for (run, says) in [
        (["--design", "log", "--program", "sps"], "undo-log, redo-log, ssp"),
        (["--design", "ssp", "--program", "tatp"], "btree-rand"),
    ] {
        let output = sections(&run);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(says), "{said}");
    }
}
