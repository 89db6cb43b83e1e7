//! The tutorial, `docs/own-scheme.md`: what it says of this crate holds, and its commands run.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn said(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {errors}"))
}

#[test]
fn a_scheme_of_ones_own_is_verified_evaluated_and_crashed() {
    let lab = |words: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_own-scheme"))
            .args(words)
            .output()
            .expect("it starts")
    };

    let output = lab(&["verify", "--scheme", "whole-pages", "--runs", "1", "--json"]);
    let verified = said(&output);
    assert!(
        output.status.success() && verified["broken"].is_null(),
        "{verified}"
    );
    let rows = verified["rows"].as_array().unwrap();
    assert!(
        rows.iter().all(|row| row["images"].as_u64() > Some(100)),
        "{verified}"
    );
    assert!(
        rows.iter().any(|row| row["abandoned"].as_u64() > Some(0)),
        "{verified}"
    );

    // Its mistake is found, and found again by the seed that is told.
    let output = lab(&["verify", "--scheme", "whole-pages-hasty", "--json"]);
    let broken = said(&output)["broken"].take();
    assert_eq!(output.status.code(), Some(1), "{broken}");
    let seed = broken["seed"].to_string();
    let again = lab(&[
        "verify",
        "--scheme",
        "whole-pages-hasty",
        "--runs",
        "1",
        "--seed",
        &seed,
        "--json",
    ]);
    assert_eq!(said(&again)["broken"], broken);

    // One more bar in the paper's figure.
    let request = [
        "eval",
        "dpc",
        "--quick",
        "--smaller",
        "256",
        "--instructions",
        "2000000",
    ];
    let figure = ["--artifact", "fig9a", "--with", "whole-pages", "--json"];
    let evaluation = said(&lab(&[&request[..], &figure].concat()));
    let rows = evaluation["rows"].as_array().unwrap();
    let bars: Vec<&Value> = rows.iter().filter(|row| row["series"] == "whole-pages").collect();
    assert!(bars.iter().any(|row| row["workload"] == "tatp"), "{evaluation}");
    assert!(
        bars.iter().all(|row| row["ours"].as_f64() > Some(0.0)),
        "{evaluation}"
    );

    // Its workload, with its power cut.
    let run = [
        "run",
        "--workload",
        "journal",
        "--smaller",
        "64",
        "--instructions",
        "4000000",
    ];
    let crash = ["--scheme", "whole-pages", "--crash-at", "300us", "--json"];
    let report = said(&lab(&[&run[..], &crash].concat()));
    assert_eq!(
        (&report["scheme"], &report["workload"]),
        (&"whole-pages".into(), &"journal".into())
    );
    assert_eq!(report["recovery"]["consistent"], true, "{report}");
    assert!(report["recovery"]["batches"].as_u64() > Some(0), "{report}");

    every_command_of_the_tutorial();

    let unknown = lab(&["verify", "--scheme", "half-pages"]);
    let text = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(
        text.contains("dual-page") && text.contains("whole-pages"),
        "{text}"
    );
}

/// Runs what the page says, in a folder with the crate's machine. What stands behind a command is about it.
fn every_command_of_the_tutorial() {
    let tutorial = include_str!("../../../docs/own-scheme.md");
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    for file in ["memory.toml", "machine.toml"] {
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        std::fs::copy(own, folder.join(file)).unwrap();
    }
    let lines = tutorial
        .lines()
        .filter_map(|line| line.strip_prefix("cargo run --release -- "));
    let mut printed = Vec::new();
    for line in lines {
        let (words, about) = line.split_once("  ").unwrap_or((line, ""));
        let output = Command::new(env!("CARGO_BIN_EXE_own-scheme"))
            .args(words.split_whitespace())
            .current_dir(folder)
            .output()
            .expect("it starts");
        let expected = i32::from(about.contains("exit code 1"));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(expected), "{words}: {errors}");
        printed.push((words, output));
    }
    assert!(printed.len() >= 8, "{} commands", printed.len());
    for file in ["dpc.json", "dpc-fig9a.svg", "dpc-fig9b.svg"] {
        assert!(folder.join("results").join(file).is_file(), "{file}");
    }
    // The device of one's own is the one that is simulated: its writes take 40 cycles of 2.5 ns.
    let resolved = printed.iter().find(|(words, _)| words.contains("--print-config"));
    let machine = said(&resolved.expect("the tutorial prints a machine").1);
    let memory = &machine["plan"]["controller"]["nvm"];
    assert_eq!(
        (&memory["name"], &memory["channels"]),
        (&"mine".into(), &2.into())
    );
    assert_eq!(memory["timing"]["write_pulse"], 40);
}
