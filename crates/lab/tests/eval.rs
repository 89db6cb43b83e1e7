//! A paper's evaluation, repeated small.

use twinpage_lab::eval::{ARTIFACTS, Evaluation, Paper, Request, evaluate};

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
    // The text gives two numbers: TATP's and TPC-C's with all of the table in DRAM.
    assert_eq!(one.rows.iter().filter(|row| row.paper.is_some()).count(), 2);
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
        7
    );
    assert!("dcp".parse::<Paper>().is_err());
}
