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

/// Calls of a process that has the region open are seen by another, across checkpoints; until a time, and to the end.
#[test]
fn calls_are_followed_as_they_are_made() {
    use std::io::{BufRead, BufReader};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scores.twin");
    let region = Region::open(&path).unwrap();
    let scores = region
        .object::<Scores>("scores", |u| Scores {
            rows: u.collect([0_i64; 9]),
        })
        .unwrap();
    scores.add(0, 100);
    scores.sync().unwrap();
    let mut follower = Command::new(env!("CARGO_BIN_EXE_twinpage"));
    follower
        .arg("log")
        .arg(&path)
        .args(["--follow", "--json"])
        .stdout(std::process::Stdio::piped());
    let mut follower = follower.spawn().unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let first = next();
    assert_eq!(first["arguments"], json!({ "by": 100 }));
    for by in 1..=30 {
        scores.add(by % 9, by as i64);
        scores.sync().unwrap();
        if by % 7 == 0 {
            region.checkpoint().unwrap(); // takes them from the log that a recovery reads
        }
    }
    for by in 1..=30 {
        let call = next();
        assert_eq!(call["arguments"], json!({ "by": by }));
        assert!(call["unix_ms"].as_u64() >= first["unix_ms"].as_u64());
    }
    let (ended, shown) = log(&path, &["--until", "2h"]);
    assert_eq!(
        (ended, &*shown),
        (true, "no calls since the last checkpoint until then\n")
    );
    let (_, shown) = log(&path, &["--until", "2100-01-01T00:00:00Z"]);
    assert!(shown.contains("scores.add(rows[3], by: 30)"), "{shown}");
    region.close().unwrap();
    assert!(lines.next().is_none());
    assert!(follower.wait().unwrap().success());
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
        .filter_map(|line| line.split("  thread ").nth(1)?.split_once("    "))
        .map(|(_, call)| call)
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

/// A call that is taken out of the log is told, not run, and the others are.
#[test]
fn a_call_is_taken_out_of_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scores.twin");
    let region = Region::open(&path).unwrap();
    let make = |region: &Region| {
        let scores = region.object::<Scores>("scores", |u| Scores {
            rows: u.collect([0_i64; 9]),
        });
        scores.unwrap()
    };
    let scores = make(&region);
    (1..4).for_each(|by| scores.add(1, by));
    scores.sync().unwrap();
    let (ended, why) = log(&path, &["--withdraw", "8"]);
    assert!(!ended && why.contains("in use"), "{why}");
    // As a crash leaves it.
    let crashed = folder.path().join("crashed.twin");
    std::fs::copy(&path, &crashed).unwrap();
    std::fs::copy(
        folder.path().join("scores.twin.log"),
        folder.path().join("crashed.twin.log"),
    )
    .unwrap();
    region.close().unwrap();
    let (_, shown) = log(&crashed, &["--json"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let second = shown["operations"][1]["position"].to_string();
    let (ended, told) = log(&crashed, &["--withdraw", &second]);
    assert!(
        ended && told.contains("scores.add(rows[1], by: 2)") && told.contains("\n2 of the calls"),
        "{told}"
    );
    let (ended, why) = log(&crashed, &["--withdraw", &second]);
    assert!(!ended && why.contains("no call at position"), "{why}");
    let region = Region::open(&crashed).unwrap();
    assert_eq!(make(&region).take(1).unwrap(), 1 + 3);
}

/// Calls that are kept are listed after a close, and a copy of the past is made from them.
#[test]
fn a_region_goes_back_to_a_call_and_to_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let (path, keeps) = (folder.path().join("scores.twin"), folder.path().join("kept"));
    let make = |region: &Region| {
        let scores = region.object::<Scores>("scores", |u| Scores {
            rows: u.collect([0_i64; 9]),
        });
        scores.unwrap()
    };
    let region = Region::options().keep_calls(&keeps, 1 << 20).open(&path).unwrap();
    let scores = make(&region);
    for by in 1..6 {
        scores.add(1, by);
    }
    region.close().unwrap();
    let keeps = keeps.to_str().unwrap();
    let (_, shown) = log(&path, &["--kept", keeps, "--json"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["operations"].as_array().unwrap().len(), 5);
    let third = shown["operations"][2]["position"].to_string();
    let (ended, told) = log(&path, &["--kept", keeps, "--until", &third]);
    assert!(ended && told.lines().count() == 3, "{told}");
    for (until, expected) in [(&*third, 1 + 2 + 3), ("2100-01-01T00:00:00Z", 1 + 2 + 3 + 4 + 5)] {
        let copy = folder.path().join("past.twin");
        let into = copy.to_str().unwrap();
        let (ended, told) = log(&path, &["--kept", keeps, "--until", until, "--into", into]);
        assert!(
            ended && told.contains("calls that run when its objects are opened"),
            "{told}"
        );
        let (ended, why) = log(&path, &["--kept", keeps, "--until", until, "--into", into]);
        assert!(!ended && why.contains("a new file"), "{why}");
        let region = Region::open(&copy).unwrap();
        assert_eq!(make(&region).take(1).unwrap(), expected);
        region.close().unwrap();
        std::fs::remove_file(&copy).unwrap();
    }
    let (ended, why) = log(&path, &["--kept", keeps, "--until", "7", "--into", "past.twin"]);
    assert!(!ended && why.contains("no call at position 7"), "{why}");
}

/// What objects a region has, with their sizes and who holds them: in use, closed, and after one was freed.
#[test]
fn info_lists_objects() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scores.twin");
    let look = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_twinpage"));
        let ended = command.arg("info").arg(&path).args(arguments).output().unwrap();
        assert!(ended.status.success(), "{ended:?}");
        String::from_utf8(ended.stdout).unwrap()
    };
    let objects = || serde_json::from_str::<Value>(&look(&["--json"])).unwrap()["objects"].clone();
    let make = |region: &Region| {
        let scores = region.object::<Scores>("scores", |u| Scores {
            rows: u.collect([0_i64; 9]),
        });
        scores.unwrap()
    };
    let region = Region::open(&path).unwrap();
    assert_eq!(objects(), json!([]));
    let scores = make(&region);
    let shared = twinpage::objects::share::<Scores>(&path, "scores").unwrap();
    shared.add_named("four".into(), None);
    assert_eq!(shared.take(4).unwrap(), 1);
    let found = &objects()[0];
    assert_eq!(
        (
            &found["id"],
            &found["name"],
            &found["type_name"],
            &found["blocks"]
        ),
        (&json!(1), &json!("scores"), &json!("Scores"), &json!(2))
    );
    assert!(found["bytes"].as_u64() > Some(9 * 8), "{found}");
    let process = std::process::id().to_string();
    let holders = found["holders"].as_array().unwrap();
    assert!(
        holders.len() == 2
            && holders
                .iter()
                .all(|holder| holder.as_str().unwrap().contains(&process)),
        "{found}"
    );
    assert!(
        look(&[]).contains("\"scores\", number 1, a Scores: 2 blocks"),
        "{}",
        look(&[])
    );
    drop((scores, shared));
    region.close().unwrap();
    assert_eq!(objects()[0]["holders"], json!([]));
    let region = Region::open(&path).unwrap();
    region.free_object("scores").unwrap();
    make(&region);
    region.close().unwrap();
    assert_eq!(objects()[0]["id"], json!(2), "another one");
}

/// Objects that are away, and a second file that is damaged or gone.
#[test]
fn info_and_check_look_into_the_next_level() {
    let folder = tempfile::tempdir().unwrap();
    let (path, level) = (folder.path().join("scores.twin"), folder.path().join("level"));
    let look = |command: &str, arguments: &[&str]| {
        let mut twinpage = Command::new(env!("CARGO_BIN_EXE_twinpage"));
        let ended = twinpage.arg(command).arg(&path).args(arguments).output().unwrap();
        (
            ended.status.code(),
            String::from_utf8([ended.stdout, ended.stderr].concat()).unwrap(),
        )
    };
    let region = Region::options().next_level(&level).first_level(1);
    let region = region.open(&path).unwrap();
    for name in ["cold", "warm"] {
        let make = region.object::<Scores>(name, |u| Scores {
            rows: u.collect([7_i64; 9000]),
        });
        assert_eq!(make.unwrap().take(1).unwrap(), 7);
    }
    region.close().unwrap();

    let (_, told) = look("info", &["--json"]);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["next_level"]["objects"], json!(1));
    let [cold, warm] = [0, 1].map(|object| told["objects"][object]["next_level_bytes"].as_u64());
    assert!(cold > Some(60_000) && warm == Some(0), "{told}");
    let (_, told) = look("info", &[]);
    assert!(
        told.contains("level: 1 object, ") && told.contains("of it in the next level"),
        "{told}"
    );
    assert!(matches!(look("check", &[]), (Some(0), _)));

    let whole = std::fs::read(&level).unwrap();
    let mut flipped = whole.clone();
    let seven = whole.windows(8).position(|bytes| bytes == 7_i64.to_le_bytes());
    flipped[seven.unwrap()] = 8;
    std::fs::write(&level, flipped).unwrap();
    let (code, told) = look("check", &[]);
    assert!(code == Some(1) && told.contains("damaged next level"), "{told}");
    std::fs::remove_file(&level).unwrap();
    let (code, told) = look("check", &[]);
    assert!(code == Some(1) && told.contains("put it back"), "{told}");
}
