//! A paper's evaluation, repeated small.

use std::process::{Command, Stdio};
use twinpage_lab::eval::{ARTIFACTS, Evaluation, Paper, Request, evaluate};
use twinpage_lab::trace::{Window, can_record, record};

fn request(paper: Paper, artifacts: &[&str]) -> Request {
    Request {
        paper,
        artifacts: artifacts.iter().map(|&name| name.into()).collect(),
        smaller: 64,
        quick: true,
        instructions: None,
        traces: None,
        sweep: Vec::new(),
        seed: 1,
    }
}

fn on_threads(count: usize, request: &Request) -> Evaluation {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(count)
        .build()
        .unwrap();
    pool.install(|| evaluate(request, &|_, _, _| ())).unwrap()
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let request = request(Paper::Dpc, &["fig12"]);
    let one = on_threads(1, &request);
    assert_eq!(one.rows, on_threads(3, &request).rows);
    assert_eq!(one.runs, 14);
    let all = |series: &str| {
        one.rows
            .iter()
            .find(|row| row.series == series && row.workload == "average")
            .unwrap()
            .ours
    };
    assert!((all("all in the controller") - 1.0).abs() < 1e-9);
    // The text gives three numbers: TATP's and TPC-C's with all of the table in DRAM, and the optimized worst.
    assert_eq!(one.rows.iter().filter(|row| row.paper.is_some()).count(), 3);
}

#[test]
fn every_row_is_whole_and_the_report_shows_it() {
    let evaluation = on_threads(2, &request(Paper::Dpc, &["table3", "table5", "fig1"]));
    for row in &evaluation.rows {
        println!(
            "{} {} {}: {:?} {}",
            row.artifact, row.series, row.workload, row.paper, row.ours
        );
        assert!(row.ours.is_finite() && !row.unit.is_empty());
        let far = row
            .paper
            .is_some_and(|paper| (row.ours / paper - 1.0).abs() > 0.15);
        assert_eq!(row.note.is_some(), far, "{row:?}");
    }
    let html = evaluation.html().unwrap();
    for artifact in ["table3", "table5", "fig1"] {
        assert!(evaluation.figure(artifact).unwrap().starts_with("<svg"));
        assert!(html.contains(&format!("<h2 id={artifact}>")));
    }
    let metadata: Vec<_> = evaluation
        .rows
        .iter()
        .filter(|row| row.artifact == "table3")
        .collect();
    assert!(metadata.len() == 3 && metadata.iter().all(|row| row.paper == Some(row.ours)));
}

/// Each open choice is made by itself, and moves what it should.
#[test]
fn what_is_open_is_varied() {
    let mut request = request(Paper::Twins, &["sensitivity"]);
    request.instructions = Some(200_000);
    request.sweep = vec!["echo".into()];
    let evaluation = on_threads(2, &request);
    let time = |setting: &str| {
        let of = |row: &&twinpage_lab::eval::Row| row.series == setting && row.workload == "dual page";
        evaluation.rows.iter().find(of).unwrap().ours
    };
    assert!((time("as it is") - 1.0).abs() < 1e-9);
    assert!(time("NVM of 4 channels") < time("NVM of 2 channels"));
    assert!(time("NVM of 2 channels") < 1.0 && time("NVM reads half as fast") > 1.0);
    assert_eq!(evaluation.runs, 4 * 21);
    let notes = evaluation.rows.iter().filter(|row| row.note.is_some());
    assert_eq!(notes.count(), 4 * 20);
    let unknown = Request {
        sweep: vec!["ekko".into()],
        ..request
    };
    assert!(evaluate(&unknown, &|_, _, _| ()).unwrap_err().contains("nstore"));
}

/// What stands in for `gamess`, `h264ref` and `povray`, and so for a whole mix: a program of the system, recorded here.
#[test]
fn a_mix_of_recorded_programs_is_played_and_the_others_are_named() {
    if !can_record() {
        assert!(
            std::env::var_os("CI").is_none(),
            "CI needs qemu-user: apt install qemu-user"
        );
        eprintln!("SKIPPED: qemu-user is not installed (apt install qemu-user)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut request = request(Paper::Twins, &["fig7a", "table2"]);
    request.instructions = Some(300_000);
    let without = evaluate(&request, &|_, _, _| ()).unwrap();
    assert_eq!(without.left_out.len(), 9, "{:?}", without.left_out);
    assert!(without.workloads.contains(&"echo".into()));

    let window = Window {
        skip: 0,
        limit: 700_000,
    };
    let mut trace = Vec::new();
    let mut program = Command::new("sort");
    program.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/workload/tpcc.rs"));
    let quiet = [Stdio::null(), Stdio::null()];
    record(&program, quiet, &window, &mut trace, |_| {}).unwrap();
    for name in ["ergo", "povray", "x264"] {
        std::fs::write(folder.path().join(format!("{name}.trace")), &trace).unwrap();
    }
    request.traces = Some(folder.path().to_owned());
    let with = evaluate(&request, &|_, _, _| ()).unwrap();
    assert_eq!(with.workloads, ["WD1", "gamess", "h264ref", "povray"]);
    assert_eq!(with.left_out.len(), 7);
    assert!(with.left_out[0].contains("bzip2.trace"), "{:?}", with.left_out);
    let mine = with
        .rows
        .iter()
        .filter(|row| row.workload == "WD1" && row.ours > 0.1);
    assert_eq!(mine.count(), 4 + 2);
    let mut said = with.rows.iter().filter(|row| row.artifact == "table2");
    let said = said.find(|row| row.series == "footprint").unwrap().paper;
    assert_eq!(said, Some(34.0 / request.smaller as f64));
    assert!(with.html().unwrap().contains("Left out"));

    // A mix is over with its first program: what comes of it is refused, not shown.
    let window = Window {
        skip: 0,
        limit: 60_000,
    };
    let mut short = Vec::new();
    record(
        &program,
        [Stdio::null(), Stdio::null()],
        &window,
        &mut short,
        |_| {},
    )
    .unwrap();
    std::fs::write(folder.path().join("povray.trace"), &short).unwrap();
    let refused = evaluate(&request, &|_, _, _| ()).unwrap_err();
    assert!(
        refused.contains("WD1: the run ended by its programs"),
        "{refused}"
    );
    std::fs::write(folder.path().join("povray.trace"), &trace).unwrap();

    // Figure 2 is of programs by themselves.
    let alone = Request {
        artifacts: vec!["fig2".into()],
        ..request.clone()
    };
    let alone = evaluate(&alone, &|_, _, _| ()).unwrap();
    let names: Vec<_> = alone.rows.iter().map(|row| &row.workload[..]).collect();
    assert_eq!(names, ["gamess", "h264ref", "povray", "average"]);

    std::fs::write(folder.path().join("x264.trace"), &trace[..trace.len() / 2]).unwrap();
    let damaged = evaluate(&request, &|_, _, _| ()).unwrap_err();
    assert!(damaged.contains("WD1") && damaged.contains("x264"), "{damaged}");
}

#[test]
fn an_unknown_artifact_is_refused_with_those_there_are() {
    let refused = evaluate(&request(Paper::Dpc, &["fig7a"]), &|_, _, _| ()).unwrap_err();
    assert!(
        refused.contains("fig9a") && refused.contains("fig7a"),
        "{refused}"
    );
    assert_eq!(
        ARTIFACTS
            .iter()
            .filter(|artifact| artifact.1 == Paper::Twins)
            .count(),
        8
    );
    assert!("dcp".parse::<Paper>().is_err());
}
