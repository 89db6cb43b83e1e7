//! `twinpage lab eval simpo`: its artifacts, what their rows say, and which sentences hold.

use std::collections::BTreeSet;
use twinpage_campaign::either;
use twinpage_lab::eval::simpo::{ARTIFACTS, Evaluation, Origin, Row, evaluate};
use twinpage_lab::eval::{Document, StudyRequest, Verdict};
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

#[test]
fn every_artifact_has_rows_and_every_row_its_origin() {
    let all = quick(&[]);
    let found: BTreeSet<&str> = all.rows.iter().map(|row| row.row.artifact).collect();
    for (artifact, title) in ARTIFACTS {
        assert!(artifact == "claims" || found.contains(artifact), "{artifact}");
        assert_eq!(all.title(artifact), title);
    }
    for row in &all.rows {
        let expected = match row.row.artifact {
            "table3" | "table4" | "table7" => Origin::Counted,
            "measured" => Origin::Measured,
            _ => Origin::Simulated,
        };
        assert_eq!(row.origin, expected, "{:?}", row.row);
        assert!(row.row.ours.is_finite(), "{:?}", row.row);
    }
    // Every number that the text gives for what is simulated stands beside one of ours.
    let said = all
        .rows
        .iter()
        .filter(|row| row.row.paper.is_some() && row.origin == Origin::Simulated);
    // A platform on which nothing misses has no misses to save.
    assert!((24..=27).contains(&said.count()));
    assert!(all.claims.len() > 25);
    let undecided = all
        .claims
        .iter()
        .filter(|claim| claim.verdict == Verdict::CannotBeSaid);
    for claim in undecided {
        assert_eq!(claim.numbers, "not simulated", "{claim:?}");
    }
    // What a program's recovery takes is what its parts take.
    let shares = all.rows.iter().filter(|row| row.row.artifact == "fig22");
    let (whole, parts): (Vec<_>, Vec<_>) = shares.partition(|row| row.row.series == "recovery");
    let sum = |rows: &[&Row]| rows.iter().map(|row| row.row.ours).sum::<f64>();
    assert_eq!((whole.len(), parts.len()), (4, 12));
    assert!((sum(&whole) - sum(&parts)).abs() < 1e-9);
    let page = all.html().unwrap();
    assert!(page.contains("id=fig10") && page.contains("id=fig17") && page.contains("id=fig22"));
    assert!(page.contains("id=claims") && page.contains("Left out"));
    let json = serde_json::to_value(&all).unwrap();
    assert!(json["rows"][0]["origin"].is_string() && json["rows"][0].get("paper").is_some());
    // It is the same each time.
    let again = quick(either(&["fig10", "fig22", "table4"], &[]));
    let is_again = |row: &&Row| again.rows.iter().any(|one| one.row.artifact == row.row.artifact);
    let first: Vec<_> = all.rows.iter().filter(is_again).collect();
    let text = |rows| serde_json::to_string::<Vec<&Row>>(rows).unwrap();
    assert_eq!(text(&first), text(&again.rows.iter().collect()));
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
