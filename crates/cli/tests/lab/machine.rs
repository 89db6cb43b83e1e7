//! `twinpage lab run` and `lab memory`, as a user calls them.

use crate::{json, lab};
use serde_json::Value;
use std::process::Command;

const RUN: [&str; 10] = [
    "run",
    "--workload",
    "echo",
    "--smaller",
    "64",
    "--warm-up",
    "20000",
    "--instructions",
    "200000",
    "--json",
];

#[test]
fn a_run_says_what_it_promises() {
    for scheme in ["dual-page", "in-place"] {
        let output = lab(&[&RUN[..], &["--scheme", scheme]].concat());
        assert!(output.status.success(), "{output:?}");
        let said = json(&output);
        assert_eq!(
            (&said["scheme"], &said["workload"]),
            (&scheme.into(), &"echo".into())
        );
        assert_eq!(said["config_hash"].as_str().map(str::len), Some(16));
        for path in [
            "/instructions",
            "/time_ns",
            "/stall_ns/checkpoint",
            "/nvm_writes/total",
            "/nvm_writes/commit",
            "/wear/p99",
            "/energy_j/nvm",
            "/latency_ns/transaction/p99",
            "/latency_ns/durable/p50",
        ] {
            assert!(
                said.pointer(path).is_some_and(Value::is_number),
                "{path} of {said}"
            );
        }
        assert_eq!(said["checkpoints"].as_u64() > Some(0), scheme == "dual-page");
        let epochs = said["epochs"].as_array().map(Vec::as_slice).unwrap_or_default();
        assert!(!epochs.is_empty() && epochs[0]["time_ns"].as_u64() <= said["time_ns"].as_u64());
    }
}

#[test]
fn a_crash_recovers_a_checkpoint_and_says_so() {
    for overlap in [&[][..], &["--overlap"]] {
        let output = lab(&[
            &RUN[..],
            &["--scheme", "dual-page", "--crash-at", "1.7ms"],
            overlap,
        ]
        .concat());
        assert!(output.status.success(), "{output:?}");
        let said = json(&output);
        assert_eq!(said["ended"], "crash");
        assert_eq!(said["recovery"]["consistent"], true);
        assert!(said["recovery"]["epoch"].as_u64() > Some(1));
    }
}

/// Values of the machine are set and swept, and all runs are one table.
#[test]
fn a_sweep_is_one_table() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out").display().to_string();
    let asked = [
        "--scheme",
        "dual-page",
        "undo-log",
        "--set",
        "table.backup=journal",
    ];
    let swept = ["--sweep", "nvm.channels=1,2", "--out", &out];
    let said = json(&lab(&[&RUN[..], &asked, &swept].concat()));
    let times: Vec<u64> = said["points"]
        .as_array()
        .unwrap()
        .iter()
        .map(|point| point["time_ns"].as_u64().unwrap())
        .collect();
    assert!(times.len() == 4 && times[2] < times[0], "{times:?}");
    let read = |name: &str| std::fs::read_to_string(folder.path().join("out").join(name)).unwrap();
    assert_eq!(read("sweep.csv").lines().count(), 5);
    assert!(read("sweep.svg").starts_with("<svg") && read("sweep.json").contains("\"command\""));
    let one = ["--scheme", "dual-page", "--epochs", &out];
    assert!(
        !lab(&[&RUN[..], &one].concat()).status.success(),
        "a folder is no file"
    );
    let path = folder.path().join("epochs.csv").display().to_string();
    let one = [
        "--scheme",
        "dual-page",
        "--set",
        "table.backup=journal",
        "--epochs",
        &path,
    ];
    let run = json(&lab(&[&RUN[..], &one].concat()));
    assert_eq!(run["time_ns"].as_u64(), Some(times[0]));
    let lines = std::fs::read_to_string(&path).unwrap().lines().count() as u64;
    assert_eq!(Some(lines - 1), run["checkpoints"].as_u64());
    let refused = lab(&[&RUN[..], &["--scheme", "dual-page", "--set", "nvm.chanels=2"]].concat());
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("chanels"),
        "{refused:?}"
    );
}

/// Two processes each do a part of an evaluation at the same time; a third puts them together, and runs nothing.
#[test]
fn two_processes_do_one_evaluation() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().display().to_string();
    let asked = [
        "eval",
        "twins",
        "--artifact",
        "fig7a",
        "--quick",
        "--instructions",
        "20000",
        "--json",
    ];
    let kept = ["--runs", &runs];
    let part = |only: &str| {
        Command::new(env!("CARGO_BIN_EXE_twinpage"))
            .arg("lab")
            .args(asked)
            .args(kept)
            .args(["--only", only])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("the command starts")
    };
    let parts = ["undo-log/*", "copy-on-write/*"].map(part);
    for part in parts {
        let said = json(&part.wait_with_output().unwrap());
        assert_eq!(
            (said["done"].as_u64(), said["runs"].as_u64()),
            (Some(9), Some(36))
        );
    }
    let count = || std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(count(), 18);
    let merged = json(&lab(&[&asked[..], &kept].concat()));
    assert_eq!(count(), 36);
    let whole = json(&lab(&asked));
    assert_eq!(merged["rows"], whole["rows"]);
    assert!(
        whole["command"]
            .as_str()
            .unwrap()
            .starts_with("twinpage lab eval twins")
    );
}

#[test]
fn a_memory_alone_meets_its_closed_forms() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("requests.csv");
    let lines: Vec<String> = (0..999)
        .map(|n| format!("{},0,{}", n * 1000, n * 64 * 2048))
        .collect();
    std::fs::write(&trace, lines.join("\n") + "\n").unwrap();
    let trace = trace.to_str().unwrap();
    for (device, ns) in [("ddr3-1600k", 46.25), ("pcm", 137.5)] {
        let output = lab(&["memory", "--trace", trace, "--config", device, "--json"]);
        assert!(output.status.success(), "{output:?}");
        let said = json(&output);
        assert_eq!(
            (&said["requests"], &said["read_ns"]["p50"]),
            (&999.into(), &ns.into())
        );
        assert!(said["requests_per_cpu_s"].is_number() && said["gb_per_s"].is_number());
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("machine.toml");
    std::fs::write(&file, "name = \"mine\"\nsource = \"me\"\ncpus = 4\n").unwrap();
    let file = file.to_str().unwrap();
    for (arguments, expected) in [
        (
            &["run", "--scheme", "dual", "--workload", "echo"][..],
            "dual-page",
        ),
        (
            &[
                "run",
                "--scheme",
                "dual-page",
                "--workload",
                "ekko",
                "--smaller",
                "64",
            ],
            "nstore",
        ),
        (
            &[
                "run",
                "--scheme",
                "dual-page",
                "--workload",
                "echo",
                "--config",
                file,
            ],
            "line 3",
        ),
        (
            &[
                "run",
                "--scheme",
                "dual-page",
                "--workload",
                "echo",
                "--config",
                "none.toml",
            ],
            "twins",
        ),
        (
            &[
                "run",
                "--scheme",
                "dual-page",
                "--workload",
                "echo",
                "--smaller",
                "3",
            ],
            "power of two",
        ),
        (
            &[
                "run",
                "--scheme",
                "dual-page",
                "--workload",
                "echo",
                "--crash-at",
                "5",
            ],
            "unit",
        ),
        (
            &[&RUN[..], &["--scheme", "dual-page", "--crash-at", "100s"]].concat(),
            "the run ended before",
        ),
        (
            &[
                "memory",
                "--trace",
                file,
                "--form",
                "csv",
                "--config",
                "ddr3-1600k",
            ],
            "line 1",
        ),
        (&["memory", "--trace", file, "--config", "ddr5"], "ddr3-1600k"),
        (
            &[&RUN[..7], &["--scheme", "in-place", "--instructions", "0"]].concat(),
            "1..",
        ),
        (
            &[&RUN[..], &["--scheme", "in-place", "--out", "results"]].concat(),
            "several runs",
        ),
        (
            &[
                "eval", "twins", "--quick", "--runs", "runs", "--only", "*/tatp", "--out", "results",
            ],
            "cannot be used with",
        ),
        (
            &["eval", "twins", "--quick", "--artifact", "fig7a", "--out", file],
            "machine.toml: ",
        ),
    ] {
        let output = lab(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains(expected),
            "{arguments:?}: {said}"
        );
        assert!(output.stdout.is_empty() && !said.contains("panicked"), "{said}");
    }
}

#[test]
fn the_simulator_measures_itself() {
    let output = Command::new(env!("CARGO_BIN_EXE_twinpage"))
        .args(["bench", "lab", "--repeat", "1", "--smaller", "64"])
        .args(["--instructions", "100000", "--json"])
        .output()
        .expect("the command starts");
    assert!(output.status.success(), "{output:?}");
    let said = json(&output);
    let rows = said["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 5);
    for row in rows {
        assert!(row["per_cpu_s"].as_f64() > Some(0.0), "{row}");
    }
    assert_eq!(rows[0]["ramulator_per_cpu_s"], 339_000.0);
    assert!(rows[2]["page_misses"].as_f64() < rows[4]["page_misses"].as_f64());
}
