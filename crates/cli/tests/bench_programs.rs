//! `twinpage bench programs`, as a user calls it.

use serde_json::Value;
use std::process::{Command, Output};

fn programs(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_twinpage"))
        .args(["bench", "programs"])
        .args(arguments)
        .output()
        .expect("the command starts")
}

#[test]
fn a_program_is_measured_beside_itself() {
    let arguments = [
        "--only",
        "asyncio",
        "--repeat",
        "1",
        "--mode",
        "16ms-memory",
        "--json",
    ];
    let output = programs(&arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("asyncio is not installed") {
        return eprintln!("SKIPPED a_program_is_measured_beside_itself: no python here");
    }
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let row = &report["rows"][0];
    assert_eq!(
        (row["program"].as_str(), row["identical"].as_bool()),
        (Some("asyncio"), Some(true))
    );
    assert!(row["checkpoints"].as_u64() > Some(1), "{row}");
    assert!(row["bytes_written"].as_u64() > Some(1 << 20), "{row}");
    assert_eq!(report["medians"][0]["programs"], 1);
}

#[test]
fn a_program_is_proved_and_the_proof_is_json() {
    let output = programs(&[
        "--only",
        "asyncio",
        "--kills",
        "1",
        "--mode",
        "default,16ms-memory",
        "--json",
    ]);
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("asyncio is not installed") {
        return eprintln!("SKIPPED a_program_is_proved_and_the_proof_is_json: no python here");
    }
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for (index, mode) in ["default", "16ms-memory"].into_iter().enumerate() {
        let proof = &report["proofs"][index];
        assert_eq!(
            (proof["program"].as_str(), proof["mode"].as_str()),
            (Some("asyncio"), Some(mode))
        );
        assert_eq!(proof["identical"], true, "{proof}");
        assert_eq!(proof["found"]["kills"], 1, "{proof}");
        assert!(proof["found"]["seed"].is_u64(), "{proof}");
    }
    assert!(
        report["machine"].is_object() || report["machine"].is_string(),
        "{report}"
    );
}

#[test]
fn a_job_is_proved_and_counted() {
    let output = programs(&[
        "--jobs",
        "--only",
        "bash-pipelines",
        "--kills",
        "1",
        "--mode",
        "16ms-memory",
    ]);
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("bash-pipelines is not installed") {
        return eprintln!("SKIPPED a_job_is_proved_and_counted: no bash here");
    }
    assert!(output.status.success(), "{said}");
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("1 of 1 are the same"), "{shown}");
}

#[test]
fn an_unknown_program_is_refused_with_those_there_are() {
    let output = programs(&["--only", "emacs"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("emacs") && said.contains("sqlite"), "{said}");
}
