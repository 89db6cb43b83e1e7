//! Schemes of one's own: a copy of `examples/own-scheme`, built as a user builds it; and one that protects nothing.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Builds a copy of the example outside the workspace, which names the crates by where they are.
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
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--release", "--offline", "--manifest-path"])
        .arg(folder.join("Cargo.toml"))
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .output()
        .expect("cargo starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    folder.join("target/release/own-scheme")
}

fn said(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {errors}"))
}

/// Compiles the lab again, which takes minutes. The crate's own test, `tests/tutorial.rs`, covers its behaviour.
#[test]
fn a_copy_outside_the_workspace_is_a_lab_of_its_own() {
    if !twinpage_campaign::is_long() {
        println!("SKIPPED: building a copy of the example takes minutes; TWINPAGE_LONG=1 does it");
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let output = Command::new(built(scratch.path()))
        .args(["verify", "--scheme", "whole-pages", "--runs", "1", "--json"])
        .output()
        .expect("it starts");
    assert!(
        output.status.success() && said(&output)["broken"].is_null(),
        "{output:?}"
    );
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
    let output = twinpage("redo-log");
    assert!(
        output.status.success() && said(&output)["broken"].is_null(),
        "{output:?}"
    );
}
