//! Every variant of SPS on few strings: each run checks its strings itself; here it is checked that the instructions a
//! variant is named for are in the program and were executed.

use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_twinpage-bench");

fn bench(words: &[&str]) -> Value {
    let out = Command::new(PROGRAM)
        .args([
            "versions",
            "--json",
            "--repeat",
            "1",
            "--strings",
            "500",
            "--swaps",
            "3000",
            "--repeat-arrays",
            "2",
            "--planes-mib",
            "4",
            "--open-mib",
            "4",
        ])
        .args(words)
        .output()
        .expect("the benchmark starts");
    let notes = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{notes}");
    eprintln!("{notes}");
    serde_json::from_slice(&out.stdout).expect("one JSON document")
}

#[test]
fn every_variant_does_what_it_is_named_for() {
    let report = bench(&[]);
    let rows: BTreeMap<&str, &Value> = report["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| (row["engine"].as_str().expect("a name"), row))
        .collect();
    let number = |name: &str, field: &str| rows[name][field].as_f64().unwrap_or(0.0);
    // A log entry is nine cache lines; a swap writes two strings of four lines, two numbers, and the word. Past the
    // caches, numbers are drained before strings, and strings before they are handed over.
    for (name, write_backs, fences) in [
        ("dl", 0.0, 0.0),
        ("l", 0.0, 0.0),
        ("l-ckpt", 0.0, 0.0),
        ("lcm", 9.0, 1.0),
        ("lcs", 9.0, 1.0),
        ("icm", 11.0, 2.0),
        ("ics", 11.0, 2.0),
        ("im", 0.0, 2.0),
        ("bare", 11.0, 2.0),
        ("lns-nt", 9.0, 1.0),
        ("lnm-nt", 9.0, 1.0),
        ("inm-nt", 11.0, 4.0),
        ("ins-nt", 11.0, 4.0),
        ("msync", 0.0, 2.0),
    ] {
        let found = (number(name, "write_backs"), number(name, "fences"));
        let near = |found: f64, wanted: f64| (found - wanted).abs() < 0.02;
        assert!(
            near(found.0, write_backs) && near(found.1, fences),
            "{name}: {found:?}"
        );
    }
    for name in ["tcm", "tcs", "ts", "tnm-nt", "tns-nt"] {
        let threshold = number(name, "threshold");
        assert!((threshold / 0.6 - 1.0).abs() < 0.05, "{name}: {threshold}");
        assert_eq!(
            rows[name]["version_waits"], 0,
            "{name}: three versions do not wait"
        );
        // Two for each hand-over, and where strings go past the caches two for each swap.
        let drains = if name.ends_with("-nt") { 2.0 } else { 0.0 };
        let fences = number(name, "fences") - drains;
        assert!((fences / 2.0 - threshold).abs() < 0.01, "{name}: {fences}");
    }
    for name in ["tnm-nt", "tns-nt"] {
        // The strings and numbers of each swap, the word of each hand-over.
        let sent = 10.0 + number(name, "threshold");
        assert!((number(name, "write_backs") - sent).abs() < 0.02, "{name}");
        assert_eq!(rows[name]["write_back"], "non-temporal");
    }
    for name in ["region-sections", "region16ms", "l", "tcs"] {
        assert!(
            number(name, "ops_per_s") > 0.0 && rows[name]["checked"] == true,
            "{name}"
        );
    }
    assert!(number("tcs", "over_lcs") > 0.0 && number("lcs", "over_l") > 0.0);
    let ratios = report["ratios"].as_array().expect("ratios");
    let is_there = |of: &str, over: &str| {
        let found = ratios.iter().find(|row| row["of"] == of && row["over"] == over);
        found.is_some_and(|row| row["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0))
    };
    for (of, over) in [
        ("l", "dl"),
        ("l", "lcm"),
        ("lcs", "lcm"),
        ("tcs", "lcs"),
        ("tns-nt", "lns-nt"),
    ] {
        assert!(is_there(of, over), "{of} over {over}");
    }
    for (part, names) in [
        ("planes", &["planes-memory", "planes-clwb", "planes-disk"][..]),
        ("opens", &["planes", "versions"]),
    ] {
        let rows = report[part].as_array().expect("rows");
        let found: Vec<&str> = rows.iter().filter_map(|row| row["engine"].as_str()).collect();
        assert_eq!(found, names);
        assert!(rows.iter().all(|row| row["checked"] == true && row["runs"] == 2));
    }
}

#[test]
fn the_instructions_are_in_the_program() {
    let Ok(out) = Command::new("objdump")
        .args(["-d", "--no-show-raw-insn", "-M", "intel", PROGRAM])
        .output()
    else {
        return eprintln!("SKIPPED: there is no objdump");
    };
    let listing = String::from_utf8_lossy(&out.stdout);
    const ALL: [&str; 7] = [
        "clwb",
        "clflushopt",
        "clflush",
        "sfence",
        "mfence",
        "movntdq",
        "movnti",
    ];
    for instruction in ALL {
        let begin = format!("<twinpage_{instruction}>:");
        let code = listing
            .split_once(&begin)
            .unwrap_or_else(|| panic!("no {begin}"))
            .1;
        let code = code.split("\n\n").next().expect("a function ends");
        let all: Vec<&str> = ALL
            .into_iter()
            .filter(|name| code.split_whitespace().any(|word| word == *name))
            .collect();
        assert_eq!(all, [instruction], "{code}");
    }
}
