//! SSP's evaluation as `twinpage lab eval ssp --quick` does it.

use std::collections::BTreeSet;
use twinpage_campaign::is_long;
use twinpage_lab::eval::ssp::{ARTIFACTS, Evaluation, evaluate};
use twinpage_lab::eval::{Document, StudyRequest, Verdict};
use twinpage_lab::provenance::Provenance;

fn quick(artifacts: &[&str]) -> Evaluation {
    let asked = StudyRequest {
        artifacts: artifacts.iter().map(|name| (*name).into()).collect(),
        set: Vec::new(),
        smaller: 256,
        seed: 1,
        jobs: None,
        provenance: Provenance::default(),
    };
    evaluate(&asked, &|_, _, _| ()).unwrap()
}

#[test]
fn every_artifact_has_rows_and_every_sentence_a_verdict() {
    // What is open takes half of the runs.
    let named = ARTIFACTS.iter().map(|(name, _)| *name);
    let named: Vec<&str> = named.filter(|name| is_long() || *name != "open").collect();
    let evaluation = quick(&named);
    for artifact in named.iter().filter(|name| **name != "claims") {
        assert!(
            evaluation.rows.iter().any(|row| row.artifact == *artifact),
            "{artifact}"
        );
    }
    assert!(evaluation.rows.iter().all(|row| row.ours.is_finite()));
    // What happens once in a run, or in none, is not known any better or worse.
    let single = [
        "most pages",
        "queued at the end",
        "added to the SSP cache",
        "added until",
    ];
    for row in &evaluation.rows {
        let has_none = row.artifact == "cost" || single.iter().any(|name| row.series.starts_with(name));
        assert_eq!(row.plus_minus.is_none(), has_none, "{row:?}");
        assert!(
            row.plus_minus
                .is_none_or(|width| width >= 0.0 && width.is_finite()),
            "{row:?}"
        );
    }
    assert!(evaluation.html().unwrap().contains("vacation"));
    for (artifact, series) in [("table4", 2), ("table5", 2), ("real", 6)] {
        let said: BTreeSet<_> = evaluation
            .rows
            .iter()
            .filter(|row| row.artifact == artifact)
            .inspect(|row| {
                println!(
                    "{} {} {}: {:?} {:.3} {:?}",
                    row.artifact, row.series, row.workload, row.paper, row.ours, row.note
                )
            })
            .filter(|row| row.workload == "memcached" && !row.series.contains(": "))
            .map(|row| row.series.clone())
            .collect();
        assert_eq!(said.len(), series, "{artifact}: {said:?}");
    }
    for claim in &evaluation.claims {
        println!("{} {}: {}", claim.verdict, claim.sentence, claim.numbers);
        assert!(!claim.numbers.is_empty());
        let is_real = claim.place == "5.4";
        assert!(
            !is_real || claim.verdict != Verdict::CannotBeSaid,
            "{}",
            claim.sentence
        );
    }
    for verdict in [Verdict::Holds, Verdict::DoesNotHold, Verdict::Arithmetic] {
        assert!(
            evaluation.claims.iter().any(|claim| claim.verdict == verdict),
            "{verdict}"
        );
    }
    assert_eq!(
        evaluation
            .claims
            .iter()
            .filter(|claim| claim.place == "5.4")
            .count(),
        7
    );
}

/// More code outside a program's data leaves less for the designs to differ by.
#[test]
fn code_outside_the_data_brings_the_designs_together() {
    let evaluation = quick(&["table4"]);
    for workload in ["memcached", "vacation"] {
        let over = |choice: &str| {
            let series = format!("ssp over undo-log: {choice}");
            let row = evaluation
                .rows
                .iter()
                .find(|row| row.workload == workload && row.series == series);
            row.unwrap().ours
        };
        let [none, much] = ["no code outside the data", "2500 instructions for each access"].map(over);
        assert!(none > much && much > 0.98, "{workload}: {none} {much}");
    }
}
