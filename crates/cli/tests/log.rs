//! `twinpage log` of regions: in use, killed and closed.

use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use twinpage::collections::Vec as List;
use twinpage::{Persist, Region};

#[derive(Persist)]
struct Scores<'r> {
    rows: List<'r, i64>,
}

#[twinpage::object]
#[allow(unreachable_pub)]
impl Scores<'_> {
    #[lane(rows)]
    pub fn add(row: &mut i64, by: i64) {
        *row += by;
    }
    pub fn add_named(&mut self, name: String, by: Option<i64>) {
        self.rows[name.len()] += by.unwrap_or(1);
    }
    pub fn take(&mut self, row: usize) -> i64 {
        std::mem::take(&mut self.rows[row])
    }
}

fn log(path: &Path, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_twinpage"));
    let ended = command.arg("log").arg(path).args(arguments).output().unwrap();
    let told = [ended.stdout, ended.stderr].concat();
    (ended.status.success(), String::from_utf8(told).unwrap())
}

#[test]
fn the_calls_since_the_last_checkpoint_are_shown_with_their_arguments() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scores.twin");
    let region = Region::open(&path).unwrap();
    let scores = region
        .object::<Scores>("scores", |u| Scores {
            rows: u.collect([0_i64; 9]),
        })
        .unwrap();
    scores.add(3, 40);
    region.checkpoint().unwrap();
    scores.add(7, 1);
    scores.add_named("Ada".to_owned(), None);
    assert_eq!(scores.take(3).unwrap(), 41);

    let (ended, shown) = log(&path, &[]);
    assert!(ended, "{shown}");
    let calls: Vec<&str> = shown
        .lines()
        .filter_map(|line| line.split("thread 1    ").nth(1))
        .collect();
    let expected = [
        "scores.add(rows[7], by: 1)",
        r#"scores.add_named(name: "Ada", by: null)"#,
        "scores.take(row: 3)",
    ];
    assert_eq!(calls, expected, "{shown}");

    let (_, shown) = log(&path, &["--json"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let add = &shown["operations"][0];
    assert_eq!(
        (&add["lane"], &add["method"], &add["arguments"]),
        (&json!(7), &json!("add"), &json!({ "by": 1 }))
    );
    assert_eq!(shown["operations"].as_array().unwrap().len(), 3);

    region.close().unwrap();
    assert_eq!(
        log(&path, &[]),
        (true, "no calls since the last checkpoint\n".to_owned())
    );
    let (ended, shown) = log(&folder.path().join("nowhere"), &[]);
    assert!(!ended && shown.contains("nowhere"), "{shown}");
}
