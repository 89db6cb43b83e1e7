//! Every engine that is installed, on every workload, on little data: results are checked by the benchmark.

use serde_json::Value;
use std::process::Command;

const WORKLOADS: [&str; 8] = [
    "sps",
    "hash-rand",
    "hash-zipf",
    "btree-rand",
    "btree-zipf",
    "tatp",
    "tpcc",
    "sweep",
];
const STORES: [&str; 4] = ["lmdb", "rocksdb", "sqlite", "redb"];

fn bench(words: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_twinpage-bench"));
    command.args(["region", "--json", "--repeat", "1", "--scale", "0.002"]);
    let out = command.args(words).output().expect("the benchmark starts");
    let notes = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{notes}");
    eprintln!("{notes}");
    serde_json::from_slice(&out.stdout).expect("one JSON document")
}

/// Whether an engine said that it is not there.
fn is_absent(report: &Value, engine: &str, workload: &str) -> bool {
    let absent = report["absent"].as_array().expect("a list");
    absent
        .iter()
        .any(|one| one["engine"] == engine && one["workload"] == workload)
}

/// Every workload has a row for each engine that is there, with something done and checked.
fn expect_rows(report: &Value, workloads: &[&str], engines: &[&str], durability: &[&str]) {
    let rows = report["rows"].as_array().expect("rows");
    for workload in workloads {
        let there = |engine: &&&str| !is_absent(report, engine, workload);
        for engine in engines.iter().filter(there) {
            for durable in durability {
                let row = rows.iter().find(|row| {
                    row["workload"] == *workload && row["engine"] == *engine && row["durability"] == *durable
                });
                let row = row.unwrap_or_else(|| panic!("no row of {engine}, {workload}, {durable}"));
                assert!(row["operations"].as_u64() > Some(0), "{row}");
                assert!(row["ops_per_s"].as_f64() > Some(0.0), "{row}");
                assert!(row["over_native"].as_f64() > Some(0.0), "{row}");
                assert_eq!(row["checked"], true, "{row}");
            }
        }
    }
}

#[test]
fn in_memory() {
    let report = bench(&["--medium", "/dev/shm", "--seconds", "0.02"]);
    let engines = [&STORES[..], &["pmemobj", "twinpage"]].concat();
    // Where the packages are installed on purpose, all must be there.
    if std::env::var_os("CI").is_some() {
        for engine in &engines {
            assert!(!is_absent(&report, engine, "tpcc"), "{}", report["absent"]);
        }
    }
    expect_rows(&report, &WORKLOADS, &engines, &["16ms", "each operation"]);
    expect_rows(&report, &WORKLOADS, &["native"], &["none"]);
    assert!(report["media"][0]["sequential_bytes_per_s"].as_f64() > Some(0.0));
    let rows = report["rows"].as_array().expect("rows");
    let open = rows.iter().find(|row| row["workload"] == "open").expect("a row");
    assert!(
        open["open_ms"].as_f64() > Some(0.0) && open["checked"] == true,
        "{open}"
    );
    assert!(report["machine"]["processors"].as_u64() > Some(0));
}

#[test]
fn on_a_disk_with_two_threads() {
    let workloads = ["hash-rand", "tpcc"];
    let disk = env!("CARGO_TARGET_TMPDIR");
    let report = bench(&[
        "--workload",
        "hash-rand,tpcc",
        "--medium",
        disk,
        "--seconds",
        "0.05",
        "--threads",
        "2",
    ]);
    let engines = [&STORES[..], &["twinpage"]].concat();
    expect_rows(&report, &workloads, &engines, &["16ms", "each operation"]);
    assert!(!is_absent(&report, "twinpage", "tpcc"));
}

#[test]
fn with_every_scheme() {
    let report = bench(&[
        "--workload",
        "hash-zipf,open",
        "--engine",
        "twinpage",
        "--scheme",
        "all",
        "--medium",
        env!("CARGO_TARGET_TMPDIR"),
        "--seconds",
        "0.02",
    ]);
    // What has no protection cannot be opened after a kill.
    let absent = report["absent"].as_array().expect("a list");
    let absent: Vec<_> = absent
        .iter()
        .map(|one| (&one["scheme"], &one["workload"]))
        .collect();
    assert_eq!(
        absent,
        [(&serde_json::json!("in-place"), &serde_json::json!("open"))]
    );
    let rows = report["rows"].as_array().expect("rows");
    for scheme in twinpage_core::SchemeKind::ALL {
        let own = rows.iter().filter(|row| row["scheme"] == scheme.name());
        let kinds: Vec<_> = own.map(|row| (&row["workload"], &row["durability"])).collect();
        let mut expected = vec!["hash-zipf", "hash-zipf"];
        if scheme != twinpage_core::SchemeKind::InPlace {
            expected.push("open");
        }
        let workloads: Vec<_> = kinds.iter().map(|kind| kind.0).collect();
        assert_eq!(workloads, expected, "{scheme}");
        assert_eq!(kinds[1].1, "each operation", "{scheme}");
    }
}

#[test]
fn with_checksums_beside_without() {
    let report = bench(&[
        "--workload",
        "hash-rand,open",
        "--engine",
        "twinpage",
        "--checksums",
        "off,on",
        "--medium",
        "/dev/shm",
        "--seconds",
        "0.05",
        "--every",
        "10ms",
    ]);
    let rows = report["rows"].as_array().expect("rows");
    for workload in ["hash-rand", "open"] {
        for checksums in [false, true] {
            let mut own = rows.iter().filter(|row| row["checksums"] == checksums);
            let row = own.find(|row| row["workload"] == workload);
            assert_eq!(row.expect("a row")["checked"], true, "{workload}, {checksums}");
        }
    }
}

#[test]
fn a_mistaken_option_is_named() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_twinpage-bench"));
    let out = command
        .args(["region", "--workload", "none-such"])
        .output()
        .expect("it starts");
    assert!(!out.status.success());
    assert!(String::from_utf8_lossy(&out.stderr).contains("none-such"));
}
