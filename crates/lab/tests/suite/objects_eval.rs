//! `twinpage lab eval simpo`: its artifacts, what their rows say, and which sentences hold.

use twinpage_lab::eval::simpo::{ARTIFACTS, Evaluation, evaluate};
use twinpage_lab::eval::{Document, StudyRequest};
use twinpage_lab::provenance::Provenance;

fn quick(artifacts: &[&str]) -> Evaluation {
    let asked = StudyRequest {
        artifacts: artifacts.iter().map(|name| (*name).to_owned()).collect(),
        set: Vec::new(),
        smaller: 64,
        seed: 1,
        jobs: None,
        provenance: Provenance::default(),
    };
    evaluate(&asked, &|_, _, _| {}).unwrap()
}

/// Their rows are looked at where the command is run, in the tests of `twinpage`.
#[test]
fn every_artifact_has_its_title() {
    let some = quick(&["table4"]);
    for (artifact, title) in ARTIFACTS {
        assert_eq!(some.title(artifact), title);
    }
}

#[test]
fn classes_are_found_in_the_sources() {
    let all = quick(&["table3", "table4", "table7"]);
    assert!(all.runs.is_empty());
    let of = |artifact: &str| -> Vec<_> {
        let rows = all.rows.iter().filter(|row| row.row.artifact == artifact);
        rows.map(|row| (row.row.paper.unwrap(), row.row.ours)).collect()
    };
    assert_eq!(of("table3").len(), 23);
    assert!(
        of("table3").iter().all(|(paper, ours)| paper == ours),
        "{:?}",
        all.rows
    );
    assert_eq!(of("table4").len(), 8);
    assert!(
        of("table7").iter().all(|(paper, ours)| paper == ours),
        "{:?}",
        of("table7")
    );
}

#[test]
fn an_artifact_that_is_not_there_is_named() {
    let asked = StudyRequest {
        artifacts: vec!["fig99".into()],
        set: Vec::new(),
        smaller: 64,
        seed: 1,
        jobs: None,
        provenance: Provenance::default(),
    };
    let why = evaluate(&asked, &|_, _, _| {}).unwrap_err();
    assert!(why.contains("fig99") && why.contains("fig10"), "{why}");
}
