//! Every number that a run says is explained in `docs/lab.md`.

use serde_json::Value;
use std::collections::BTreeSet;
use twinpage_core::medium::Cause;
use twinpage_lab::bus::Counts;
use twinpage_lab::config::Described;
use twinpage_lab::config::machine::Config;
use twinpage_lab::experiment::Experiment;
use twinpage_lab::schemes::SchemeName;

/// Names of fields, at any depth.
fn names(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                into.insert(name.clone());
                names(value, into);
            }
        }
        Value::Array(all) => all.iter().for_each(|one| names(one, into)),
        _ => {}
    }
}

#[test]
fn every_number_is_explained() {
    let text = include_str!("../../../../docs/lab.md");
    let begin = text.find("## Every number of a run").unwrap();
    let end = begin + text[begin..].find("## The papers' evaluation").unwrap();
    let explained: BTreeSet<&str> = text[begin..end].split('`').skip(1).step_by(2).collect();
    let report = Experiment {
        config: Config::find("dpc").unwrap().smaller(64).unwrap(),
        scheme: SchemeName::DUAL_PAGE,
        workload: "uniform".into(),
        scale: 1.0 / 256.0,
        seed: 1,
        crash_fs: Some(2_000_000_000_000),
    }
    .run()
    .unwrap();
    assert!(report.recovery.is_some());
    let mut said = BTreeSet::new();
    for value in [
        serde_json::to_value(&report).unwrap(),
        serde_json::to_value(Counts::default()).unwrap(),
        serde_json::to_value(twinpage_lab::sections::Counts::default()).unwrap(),
        serde_json::to_value(Cause::ALL).unwrap(),
    ] {
        names(&value, &mut said);
    }
    said.extend(
        Cause::ALL.map(|cause| match serde_json::to_value(cause).unwrap() {
            Value::String(name) => name,
            other => panic!("{other} is no name"),
        }),
    );
    let missing: Vec<&String> = said
        .iter()
        .filter(|name| !explained.contains(name.as_str()))
        .collect();
    assert!(
        said.len() > 80 && missing.is_empty(),
        "docs/lab.md does not explain {missing:?}"
    );
}
