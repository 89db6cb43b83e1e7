//! `twinpage bench trees`, as a user calls it.

use serde_json::Value;
use std::process::{Command, Output};

fn trees(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_twinpage"))
        .args(["bench", "trees"])
        .args(arguments)
        .output()
        .expect("the command starts")
}

/// The rows of one short run, by measure and way.
fn rows(measures: &str) -> (Vec<Value>, Vec<Value>) {
    let arguments = ["--only", measures, "--repeat", "1", "--seconds", "0.5", "--json"];
    let output = trees(&arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let list = |name: &str| report[name].as_array().unwrap().clone();
    (list("rows"), list("left_out"))
}

#[test]
fn trees_are_measured_beside_themselves() {
    let (rows, _) = rows("sleepers,children");
    let found: Vec<_> = rows
        .iter()
        .map(|row| (row["measure"].as_str().unwrap(), row["way"].as_str().unwrap()))
        .collect();
    let asked = [
        ("sleepers", "16ms-memory"),
        ("children", "default"),
        ("children", "16ms-memory"),
    ];
    assert_eq!(found, asked);
    for row in &rows {
        let number = |name: &str| row[name].as_f64().unwrap();
        assert!(number("over_base") > 0.0 && number("stop_us_p50") > 0.0, "{row}");
        let ratio = row["measured"]["median"].as_f64().unwrap() / row["base"]["median"].as_f64().unwrap();
        assert!((number("over_base") - ratio).abs() < 1e-9, "{row}");
    }
}

#[test]
fn servers_and_a_terminal_are_measured() {
    let (rows, left_out) = rows("redis,memcached,latency,tmux");
    for missing in &left_out {
        eprintln!("SKIPPED a part of servers_and_a_terminal_are_measured: no {missing} here");
    }
    for row in &rows {
        assert!(row["measured"]["median"].as_f64() > Some(0.0), "{row}");
        let resume = row["measure"] == "tmux";
        assert_eq!(row["over_base"].is_null(), resume, "{row}");
    }
    let there = |name: &str| rows.iter().any(|row| row["measure"] == name);
    let told = |name: &str| left_out.iter().any(|left| left == name);
    for name in ["redis", "memcached", "latency", "tmux"] {
        assert!(there(name) != told(name), "{name} is in the report once");
    }
}

#[test]
fn an_unknown_measure_is_refused_with_those_there_are() {
    let output = trees(&["--only", "emacs"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("emacs") && said.contains("memcached"), "{said}");
}
