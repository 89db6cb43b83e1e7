//! `twinpage classify` on the objects of a small crate.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const SCORES: &str = "
pub struct Scores { rows: Vec<Row>, changes: u64 }

impl Scores {
    pub fn add_all(&mut self, by: i64) {
        for row in &mut self.rows {
            row.add(by);
        }
    }

    pub fn sum(&self, row: usize) -> i64 {
        self.rows[row].sum()
    }

    pub fn report(&self) {
        crate::output::show(self.changes);
    }
}
";
const ROW: &str = "
pub struct Row { cells: Vec<i64> }

impl Row {
    pub fn add(&mut self, by: i64) {
        self.cells.iter_mut().for_each(|cell| *cell += by);
    }

    pub fn sum(&self) -> i64 {
        self.cells.iter().sum()
    }
}
";
const OUTPUT: &str = "
pub fn show(changes: u64) {
    println!(\"{changes}\");
}
";

fn classify(directory: &Path, arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_twinpage"));
    let Output {
        status,
        stdout,
        stderr,
    } = command
        .arg("classify")
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

fn a_crate() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in [("scores.rs", SCORES), ("row.rs", ROW), ("output.rs", OUTPUT)] {
        fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

#[test]
fn a_directory_is_followed_through() {
    let directory = a_crate();
    let (code, stdout, stderr) = classify(directory.path(), &["."]);
    assert_eq!((code, &*stderr), (0, ""));
    let expected = "\
Row: 1 deferrable, 1 instant
  deferrable  add
  instant     sum
      ./row.rs:9:26: it returns `i64`, and its caller waits for that
          leave it so: it takes `&self`, and such methods run beside one another

Scores: 1 deferrable, 2 instant
  deferrable  add_all
  instant     sum
      ./scores.rs:11:38: it returns `i64`, and its caller waits for that
          leave it so: it takes `&self`, and such methods run beside one another
  instant     report
      ./scores.rs:16:9: `crate::output::show`: `println!` writes to the program's output (./output.rs:3:5)
          do it in the caller, and give the method its result as an argument
";
    assert_eq!(stdout, expected);
}

#[test]
fn what_is_not_given_makes_instant() {
    let directory = a_crate();
    let (code, stdout, _) = classify(directory.path(), &["--json", "scores.rs"]);
    assert_eq!(code, 0);
    let said: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(said["objects"][0]["instant"], 3, "{said}");
    let add_all = &said["methods"][0];
    assert_eq!(
        (&add_all["name"], &add_all["class"]),
        (&"add_all".into(), &"instant".into())
    );
    let reasons = add_all["reasons"].as_array().unwrap();
    for why in [
        "the field `rows`: the source of `Row` is not given",
        "the source of `.add()` is not given",
    ] {
        assert!(reasons.iter().any(|reason| reason["why"] == why), "{why}: {said}");
    }
    assert_eq!(reasons[0]["at"]["line"], 6);
}

#[test]
fn bad_input_is_named() {
    let directory = a_crate();
    fs::write(directory.path().join("broken.rs"), "fn a( {").unwrap();
    for (argument, named) in [("none.rs", "none.rs"), ("broken.rs", "broken.rs:1:")] {
        let (code, stdout, stderr) = classify(directory.path(), &[argument]);
        assert_eq!((code, &*stdout), (125, ""));
        assert!(stderr.contains(named), "{stderr}");
    }
}
