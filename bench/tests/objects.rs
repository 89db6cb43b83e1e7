//! `twinpage bench objects`, quickly: each run compares its store, opened again, with the calls it counted.

use serde_json::Value;
use std::process::Command;

#[test]
fn every_variant_runs_and_is_compared() {
    let out = Command::new(env!("CARGO_BIN_EXE_twinpage-bench"))
        .args(["objects", "--json", "--repeat", "1", "--seconds", "0.02"])
        .args([
            "--threads",
            "2",
            "--instant-threads",
            "3",
            "--items",
            "500",
            "--calls",
            "9000",
            "--line-delay",
            "14",
        ])
        .output()
        .expect("the benchmark starts");
    let notes = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{notes}");
    eprintln!("{notes}");
    let report: Value = serde_json::from_slice(&out.stdout).expect("one JSON document");
    let rows = report["rows"].as_array().expect("rows");
    let named = |workload: &str, engine: &str| {
        let is = |row: &&Value| row["workload"] == workload && row["engine"] == engine;
        let found = rows.iter().find(is);
        found.unwrap_or_else(|| panic!("no row of {engine}, {workload}"))
    };
    // A disk may be a memory file here, too.
    for engine in [
        "native",
        "nvram",
        "grouped",
        "grouped-cow",
        "hybrid",
        "cow",
        "fc",
        "m-server",
        "simpo-all",
        "simpo",
    ] {
        for workload in ["all-inc", "row-inc"] {
            let row = named(workload, engine);
            assert!(row["checked"] == true && row["threads"] == 2, "{row}");
            assert!(
                row["ops_per_s"].as_f64().is_some_and(|speed| speed > 0.0),
                "{row}"
            );
        }
    }
    for engine in ["simpo-all", "redb"] {
        let row = named("instant", engine);
        assert!(row["checked"] == true && row["threads"] == 3, "{row}");
    }
    for (workload, engines) in [
        ("stock-get", &["native", "simpo"][..]),
        ("stock-put", &["native", "simpo", "simpo-all"]),
    ] {
        for engine in engines {
            assert!(named(workload, engine)["checked"] == true);
        }
    }
    // A head of 24 bytes and two of arguments, in units of 8; and the mark of a group.
    let append = named("append", "simpo");
    assert_eq!(append["bytes_logged"], 32.24);
    assert_eq!(append["bytes_logged_alone"], 56.0);
    assert!(
        append["append_ns"].as_f64().is_some_and(|time| time > 1.0),
        "{append}"
    );
    let ratios = report["ratios"].as_array().expect("ratios");
    let best = ratios
        .iter()
        .find(|row| row["workload"] == "instant")
        .expect("a peer");
    assert!(best["of"] == "simpo-all" && best["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0));
    let recovery = named("recovery", "simpo");
    for field in ["object_ms", "program_ms", "object_share", "program_share"] {
        assert!(
            recovery[field].as_f64().is_some_and(|found| found > 0.0),
            "{field}: {recovery}"
        );
    }
    // On slower memory there are all variants of ours.
    let slower: Vec<&Value> = rows
        .iter()
        .filter(|row| row["medium"] == "slower memory")
        .collect();
    let is_there = |engine: &str| slower.iter().any(|row| row["engine"] == engine);
    assert!(
        is_there("nvram") && is_there("simpo") && !is_there("redb"),
        "{slower:?}"
    );
    // Where the library is installed it is run.
    let absent = report["absent"].as_array().expect("peers that are not there");
    if !absent.iter().any(|peer| peer["engine"] == "berkeley-db") {
        for workload in ["instant", "stock-get", "stock-put"] {
            assert!(named(workload, "berkeley-db")["checked"] == true);
        }
    }
}
