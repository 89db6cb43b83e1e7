//! Sections and the stores beside them, on little data: results are checked by the benchmark.

use serde_json::Value;
use std::process::Command;
use twinpage_core::SchemeKind;

const PEERS: [&str; 5] = ["lmdb", "rocksdb", "sqlite", "redb", "pmemobj"];

fn bench(words: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_twinpage-bench"));
    command.args(["sections", "--json", "--repeat", "1", "--seconds", "0.02"]);
    command.args(["--scale", "0.002"]);
    let out = command.args(words).output().expect("the benchmark starts");
    let notes = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{notes}");
    serde_json::from_slice(&out.stdout).expect("one JSON document")
}

/// The rows with these values, each with something done and checked.
fn rows<'a>(report: &'a Value, having: &[(&str, Value)]) -> Vec<&'a Value> {
    let rows = report["rows"].as_array().expect("rows").iter();
    let rows: Vec<_> = rows
        .filter(|row| having.iter().all(|(name, value)| row[name] == *value))
        .collect();
    for row in &rows {
        assert!(row["operations"].as_u64() > Some(0), "{row}");
        assert_eq!(row["checked"], true, "{row}");
    }
    rows
}

fn is_absent(report: &Value, engine: &str) -> bool {
    let absent = report["absent"].as_array().expect("a list");
    absent.iter().any(|one| one["engine"] == engine)
}

#[test]
fn beside_peers_in_memory() {
    let report = bench(&["--medium", "/dev/shm", "--threads", "1,2", "--scheme", "chosen"]);
    for workload in ["hash-rand", "btree-rand", "sps", "tatp"] {
        for threads in [1, 2] {
            let setting = [("workload", workload.into()), ("threads", threads.into())];
            let of = |engine: &str, durability: &str| {
                let own = [("engine", engine.into()), ("durability", durability.into())];
                rows(&report, &[&setting[..], &own].concat())
            };
            for engine in PEERS.iter().filter(|engine| !is_absent(&report, engine)) {
                let peer = of(engine, "each operation");
                assert_eq!(peer.len(), 1, "{engine}, {workload}");
                assert!(peer[0]["latency_us_p50"].as_f64() > Some(0.0), "{}", peer[0]);
                assert_eq!(of(engine, "16ms"), [&Value::Null; 0], "{engine}, {workload}");
            }
            let [each, grouped] = ["each operation", "16ms"].map(|durability| of("twinpage", durability));
            assert_eq!((each.len(), grouped.len()), (1, 1), "{workload}");
            let number = |row: &Value, name: &str| row[name].as_f64().expect(name);
            assert!(number(each[0], "latency_us_p99") >= number(each[0], "latency_us_p50"));
            assert!(grouped[0]["latency_us_p50"].is_null());
            // Two for a commit, shared by the threads, and now and then a snapshot.
            let fences = number(each[0], "fences_per_section");
            assert!((0.9..2.3).contains(&fences), "{}", each[0]);
            assert!(
                number(grouped[0], "fences_per_section") < fences,
                "{}",
                grouped[0]
            );
            assert!(each[0]["flushes_per_section"].is_null());
            assert!(number(each[0], "bytes_per_changed_line_byte") > 1.0);
        }
    }
}

#[test]
fn on_every_scheme_on_a_disk() {
    let disk = env!("CARGO_TARGET_TMPDIR");
    let words = ["--medium", disk, "--workload", "tatp", "--threads", "2"];
    let report = bench(
        &[
            &words[..],
            &["--engine", "twinpage,sqlite", "--scheme", "chosen,all"],
        ]
        .concat(),
    );
    let each = ("durability", Value::from("each operation"));
    for scheme in SchemeKind::ALL.map(|kind| Value::from(kind.name())) {
        let found = rows(&report, &[("scheme", scheme.clone()), each.clone()]);
        assert_eq!(found.len(), 1, "{scheme}");
        assert!(
            found[0]["flushes_per_section"].as_f64() > Some(0.0),
            "{}",
            found[0]
        );
        assert!(found[0]["fences_per_section"].is_null());
    }
    assert!(is_absent(&report, "sqlite") || !rows(&report, &[("engine", "sqlite".into()), each]).is_empty());
}

#[test]
fn a_workload_that_takes_a_structure_twice_is_refused() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_twinpage-bench"));
    let out = command
        .args(["sections", "--workload", "tpcc"])
        .output()
        .expect("it starts");
    assert!(!out.status.success());
    let told = String::from_utf8_lossy(&out.stderr);
    assert!(told.contains("tpcc") && told.contains("btree-zipf"), "{told}");
}
