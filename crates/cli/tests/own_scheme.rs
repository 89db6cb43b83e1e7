//! A scheme and a workload in a crate outside the workspace (`examples/own-scheme`), built as a user builds it.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Builds a copy of the example that names the crates by where they are, with the workspace's versions of all
/// others, which are built already.
fn built(folder: &Path) -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap();
    let example = workspace.join("examples/own-scheme");
    std::fs::create_dir(folder.join("src")).unwrap();
    for source in [
        "src/main.rs",
        "src/journal.rs",
        "src/whole_pages.rs",
        "memory.toml",
        "machine.toml",
    ] {
        std::fs::copy(example.join(source), folder.join(source)).unwrap();
    }
    std::fs::copy(workspace.join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    let manifest = std::fs::read_to_string(example.join("Cargo.toml")).unwrap();
    let here = workspace.to_str().expect("a path of text");
    std::fs::write(folder.join("Cargo.toml"), manifest.replace("../..", here)).unwrap();
    let release = Path::new(env!("CARGO_BIN_EXE_twinpage")).parent().unwrap();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        // The lab alone takes a minute to compile, and this one runs for seconds.
        .args(["--config", "profile.release.package.twinpage-lab.opt-level=1"])
        .args(["build", "--release", "--offline", "--manifest-path"])
        .arg(folder.join("Cargo.toml"))
        .env("CARGO_TARGET_DIR", release.parent().unwrap())
        .output()
        .expect("cargo starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    release.parent().unwrap().join("release/own-scheme")
}

fn said(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {errors}"))
}

#[test]
fn a_scheme_of_ones_own_is_verified_evaluated_and_crashed() {
    let scratch = tempfile::tempdir().unwrap();
    let command = built(scratch.path());
    let lab = |words: &[&str]| Command::new(&command).args(words).output().expect("it starts");

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

    every_command_of_the_tutorial(&command, scratch.path());

    let unknown = lab(&["verify", "--scheme", "half-pages"]);
    let text = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(
        text.contains("dual-page") && text.contains("whole-pages"),
        "{text}"
    );
}

/// Runs what `docs/own-scheme.md` says, in the folder of the crate. What stands behind a command is about it.
fn every_command_of_the_tutorial(command: &Path, folder: &Path) {
    let tutorial = include_str!("../../../docs/own-scheme.md");
    let lines = tutorial
        .lines()
        .filter_map(|line| line.strip_prefix("cargo run --release -- "));
    let mut printed = Vec::new();
    for line in lines {
        let (words, about) = line.split_once("  ").unwrap_or((line, ""));
        let output = Command::new(command)
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

#[test]
fn a_scheme_that_protects_nothing_is_not_verified() {
    let twinpage = |scheme: &str| {
        let words = ["lab", "verify", "--runs", "1", "--json", "--scheme", scheme];
        Command::new(env!("CARGO_BIN_EXE_twinpage"))
            .args(words)
            .output()
            .expect("it starts")
    };
    let output = twinpage("in-place");
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output)["broken"]["promise"].is_string());
    let output = twinpage("undo-log");
    assert!(
        output.status.success() && said(&output)["broken"].is_null(),
        "{output:?}"
    );
}
