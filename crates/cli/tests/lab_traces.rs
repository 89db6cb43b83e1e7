//! `twinpage lab record`, `convert`, `workloads` and `eval`, as a user calls them.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};
use twinpage_lab::eval::simpo::ARTIFACTS;
use twinpage_lab::trace::can_record;

fn lab(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_twinpage"))
        .arg("lab")
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("the command starts")
}

fn json(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {said}"))
}

fn refused(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    said
}

/// Recorded, rewritten, measured and run: the numbers of records agree all along.
#[test]
fn a_program_is_recorded_and_its_trace_used() {
    if !can_record() {
        assert!(
            std::env::var_os("CI").is_none(),
            "CI needs qemu-user: apt install qemu-user"
        );
        eprintln!("SKIPPED: qemu-user is not installed (apt install qemu-user)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let record = [
        "record", "--json", "--skip", "1000", "--limit", "60000", "--out", "a.trace", "--", "ls", "/",
    ];
    let recorded = json(&lab(folder, &record));
    assert!(recorded["records"].as_u64() > Some(10_000), "{recorded}");
    assert!(refused(&lab(folder, &record)).contains("a.trace is there already"));

    let again = json(&lab(
        folder,
        &["convert", "a.trace", "--out", "b.trace", "--json"],
    ));
    assert_eq!(
        (&again["from"], &again["records"]),
        (&"native".into(), &recorded["records"])
    );
    let short = [
        "convert", "a.trace", "--to", "dramsim3", "--out", "a.trc", "--limit", "500", "--json",
    ];
    assert_eq!(json(&lab(folder, &short))["records"], 500);
    let text = std::fs::read_to_string(folder.join("a.trc")).unwrap();
    assert_eq!(text.lines().count(), 500);

    let measure = [
        "workloads",
        "--measure",
        "--json",
        "--warm-up",
        "0",
        "trace:b.trace",
    ];
    let measured = json(&lab(folder, &measure));
    assert!(
        measured["rows"][0]["ours"]["loads"].as_u64() > Some(10_000),
        "{measured}"
    );

    let run = [
        "run",
        "--scheme",
        "dual-page",
        "--workload",
        "trace:b.trace",
        "--smaller",
        "64",
        "--warm-up",
        "0",
        "--json",
    ];
    assert_eq!(json(&lab(folder, &run))["ended"], "programs");
}

#[test]
fn workloads_are_listed_with_what_the_paper_says() {
    let folder = tempfile::tempdir().unwrap();
    let listed = json(&lab(folder.path(), &["workloads", "--json"]));
    let rows = listed["rows"].as_array().unwrap();
    let tatp = rows.iter().find(|row| row["workload"] == "tatp").unwrap();
    assert_eq!(tatp["paper"]["miss_percent"], 56.72);
    assert!(refused(&lab(folder.path(), &["workloads", "tatb"])).contains("tatp"));
}

/// A file that is no trace, or is damaged, is refused with where; nothing is left behind.
#[test]
fn what_is_no_trace_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("words"), "these are no accesses\n").unwrap();
    std::fs::write(folder.join("half.trc"), "0x1000 READ 0\n0x2000 WRI").unwrap();
    for (file, from) in [("words", None), ("half.trc", Some("dramsim3")), ("none", None)] {
        let mut arguments = vec!["convert", file, "--out", "out.trace"];
        arguments.extend(from.iter().flat_map(|from| ["--from", from]));
        let said = refused(&lab(folder, &arguments));
        assert!(said.contains(file), "{said}");
        assert!(!folder.join("out.trace").exists());
    }
    let run = [
        "run",
        "--scheme",
        "dual-page",
        "--smaller",
        "64",
        "--workload",
        "trace:words",
    ];
    assert!(refused(&lab(folder, &run)).contains("words"));
}

#[test]
fn an_evaluation_writes_its_report_and_says_what_it_leaves_out() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let quick = [
        "eval",
        "dpc",
        "--quick",
        "--artifact",
        "table3",
        "fig1",
        "--out",
        "out",
        "--json",
    ];
    let output = lab(folder, &quick);
    let said = json(&output);
    assert_eq!(said["left_out"].as_array().map(Vec::len), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("SPEC1"));
    for file in ["dpc.json", "dpc.html", "dpc-table3.svg", "dpc-fig1.svg"] {
        assert!(folder.join("out").join(file).is_file(), "{file}");
    }
    let lost = ["eval", "dpc", "--quick", "--traces", "nowhere"];
    assert!(refused(&lab(folder, &lost)).contains("make traces"));
}

/// The command of docs/lab.md.
#[test]
fn programs_that_persist_by_themselves_are_evaluated() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let said = json(&lab(
        folder,
        &["eval", "mss", "--quick", "--out", "out", "--json"],
    ));
    let rows = said["rows"].as_array().unwrap();
    let artifacts: BTreeSet<&str> = rows.iter().filter_map(|row| row["artifact"].as_str()).collect();
    for artifact in ["fig1", "fig2", "fig4a", "fig4b", "fig4c", "fig5", "fig6", "fig7"] {
        assert!(artifacts.contains(artifact), "{artifact}");
        let figure = std::fs::read_to_string(folder.join(format!("out/mss-{artifact}.svg"))).unwrap();
        assert!(figure.starts_with("<svg"), "{artifact}");
    }
    let page = std::fs::read_to_string(folder.join("out/mss.html")).unwrap();
    assert!(page.contains("id=fig7") && page.contains("lab eval mss --quick"));
    assert!(folder.join("out/mss.json").is_file());
    let refusal = refused(&lab(folder, &["eval", "mss", "--quick", "--artifact", "fig3"]));
    assert!(refusal.contains("fig4a"), "{refusal}");
}

/// Every artifact has rows, every row its origin, every sentence its verdict.
fn numbers_and_sentences_of_objects(said: &Value) {
    let rows = said["rows"].as_array().unwrap();
    for (artifact, _) in ARTIFACTS.iter().filter(|(name, _)| *name != "claims") {
        let expected = match *artifact {
            "table3" | "table4" | "table7" => "counted",
            "measured" => "measured",
            _ => "simulated",
        };
        let mut of = rows.iter().filter(|row| row["artifact"] == *artifact).peekable();
        assert!(of.peek().is_some(), "{artifact}");
        assert!(
            of.all(|row| row["origin"] == expected && row["ours"].is_f64()),
            "{artifact}"
        );
    }
    // Every number that the text gives for what is simulated stands beside one of ours. A platform on which nothing
    // misses has no misses to save.
    let is_given = |row: &&Value| row["paper"].is_f64() && row["origin"] == "simulated";
    assert!((30..=33).contains(&rows.iter().filter(is_given).count()));
    let claims = said["claims"].as_array().unwrap();
    assert!(claims.len() > 25);
    for claim in claims.iter().filter(|claim| claim["verdict"] == "cannot be said") {
        assert_eq!(claim["numbers"], "not simulated", "{claim}");
    }
    // The time of a program's recovery is that of its parts.
    let shares = rows.iter().filter(|row| row["artifact"] == "fig22");
    let (whole, parts): (Vec<_>, Vec<_>) = shares.partition(|row| row["series"] == "recovery");
    let sum = |rows: &[&Value]| rows.iter().filter_map(|row| row["ours"].as_f64()).sum::<f64>();
    assert_eq!((whole.len(), parts.len()), (5, 15));
    assert!((sum(&whole) - sum(&parts)).abs() < 1e-9);
}

/// The command of docs/lab.md.
#[test]
fn persistent_objects_are_evaluated() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let quick = ["eval", "simpo", "--quick", "--out", "out", "--json"];
    let said = json(&lab(folder, &quick));
    let rows = said["rows"].as_array().unwrap();
    numbers_and_sentences_of_objects(&said);
    for artifact in ["fig10", "fig17", "fig18", "fig22", "fig23", "table4", "measured"] {
        assert!(folder.join(format!("out/simpo-{artifact}.svg")).is_file());
    }
    let page = std::fs::read_to_string(folder.join("out/simpo.html")).unwrap();
    for shown in [
        "id=fig10",
        "id=fig16",
        "id=fig17",
        "id=fig22",
        "id=fig24",
        "id=claims",
        "Left out",
    ] {
        assert!(page.contains(shown), "{shown}");
    }
    assert!(page.contains("lab eval simpo --quick"));
    for (option, expected) in [
        (["--instructions", "2"], "--instructions is for dpc and twins"),
        (["--seed", "2"], "--seed is not for simpo"),
        (["--set", "nvm.channels=3"], "nvm.channels=3: `channels` of [nvm]"),
    ] {
        let refusal = refused(&lab(folder, &[&["eval", "simpo"][..], &option].concat()));
        assert!(refusal.contains(expected), "{refusal}");
    }
    // It is the same each time, also of some artifacts alone.
    let some = ["fig10", "fig22", "table4"];
    let again = [&quick[..3], &["--artifact"], &some, &["--json"]].concat();
    let rows_of = |artifacts: &[&str]| {
        let is_of = |row: &&Value| {
            row["artifact"]
                .as_str()
                .is_some_and(|name| artifacts.contains(&name))
        };
        Value::Array(rows.iter().filter(is_of).cloned().collect())
    };
    assert_eq!(json(&lab(folder, &again))["rows"], rows_of(&some));
    // Fewer channels of its NVM are another machine, on which the same runs take longer.
    let one = [
        "eval",
        "simpo",
        "--quick",
        "--artifact",
        "fig10",
        "--set",
        "nvm.channels=1",
        "--json",
    ];
    let one = json(&lab(folder, &one));
    assert_ne!(one["config_hash"], said["config_hash"]);
    assert_ne!(one["rows"], rows_of(&["fig10"]));
}

/// The command of docs/lab.md.
#[test]
fn failure_atomic_sections_are_evaluated() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // All of it is in the tests of the lab, which have the sentences, too.
    const ARTIFACTS: [&str; 5] = ["--artifact", "fig5a", "fig5b", "fig6", "fig7a"];
    let words = ["eval", "ssp", "--quick", "--out", "out", "--json"];
    let said = json(&lab(folder, &[&words[..], &ARTIFACTS].concat()));
    let rows = said["rows"].as_array().unwrap();
    // Seven programs with three designs; a number of the paper only where its text has one.
    for &artifact in &ARTIFACTS[1..] {
        let of = rows.iter().filter(|row| row["artifact"] == artifact);
        let bars = of.filter(|row| {
            ["undo-log", "redo-log", "ssp"]
                .iter()
                .any(|design| row["series"] == *design)
        });
        let bars: Vec<&Value> = bars.collect();
        assert_eq!(bars.len(), 21, "{artifact}");
        assert!(
            bars.iter()
                .all(|row| row["paper"].is_null() && row["ours"].as_f64() > Some(0.0))
        );
        let figure = std::fs::read_to_string(folder.join(format!("out/ssp-{artifact}.svg"))).unwrap();
        assert!(figure.starts_with("<svg"), "{artifact}");
    }
    let average = rows.iter().find(|row| {
        row["artifact"] == "fig5a" && row["series"] == "ssp over undo-log" && row["workload"] == "average"
    });
    let average = average.unwrap();
    assert_eq!(average["paper"], 1.9);
    assert!(average["plus_minus"].is_number());
    let page = std::fs::read_to_string(folder.join("out/ssp.html")).unwrap();
    assert!(page.contains("id=fig5a") && page.contains("id=fig7a"));
    let refusal = refused(&lab(folder, &["eval", "ssp", "--quick", "--artifact", "fig3"]));
    assert!(refusal.contains("fig5a"), "{refusal}");
    let refusal = refused(&lab(folder, &["eval", "ssp", "--smaller", "3"]));
    assert!(refusal.contains("power of two"), "{refusal}");
}
