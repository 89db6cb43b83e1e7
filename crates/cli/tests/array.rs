//! The command on versioned arrays: in use, at rest, damaged.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use twinpage::{Planes, Versions};

fn twinpage(arguments: &[&str], paths: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_twinpage"))
        .args(arguments)
        .args(paths)
        .output()
        .unwrap()
}

fn json(arguments: &[&str], paths: &[&Path], code: i32) -> Value {
    let out = twinpage(arguments, paths);
    assert_eq!(out.status.code(), Some(code), "{out:?}");
    serde_json::from_slice(&out.stdout).unwrap()
}

#[test]
fn an_array_is_looked_at_checked_and_copied() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let (path, copy) = (file("strings.twin"), file("copy.twin"));
    let mut strings = Versions::<[u8; 64], 3>::open(&path, 500, |index| [index as u8; 64]).unwrap();
    strings.update(|update| update.swap(3, 4));
    strings.durable().unwrap();

    // In use.
    let info = json(&["info", "--json"], &[&path], 0);
    assert_eq!((&info["kind"], &info["version"]), (&"array".into(), &1.into()));
    assert!(info["in_use"].is_string(), "{info}");
    assert_eq!(info["durable"], 2);
    assert_eq!(info["array"]["type_name"], "[u8; 64]");
    let out = twinpage(&["check"], &[&path]);
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        out.status.code() == Some(125) && told.contains("in use by"),
        "{out:?}"
    );
    strings.backup(file("live.twin")).unwrap();
    drop(strings);

    // At rest.
    let info = json(&["info", "--json"], &[&path], 0);
    assert_eq!((&info["in_use"], &info["under_way"]), (&Value::Null, &0.into()));
    assert!(
        json(&["check", "--json"], &[&path], 0)["damage"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    assert_eq!(json(&["backup", "--json"], &[&path, &copy], 0)["durable"], 2);
    let out = twinpage(&["backup"], &[&path, &copy]);
    assert!(String::from_utf8_lossy(&out.stderr).contains("exists"), "{out:?}");
    for copy in [copy, file("live.twin")] {
        let copy = Versions::<[u8; 64], 3>::open(copy, 500, |_| unreachable!()).unwrap();
        assert_eq!((copy.get(3)[0], copy.get(4)[0]), (4, 3));
    }
    let text = String::from_utf8(twinpage(&["info"], &[&path]).stdout).unwrap();
    assert!(
        text.contains("500 elements of type [u8; 64]") && text.contains("update 2"),
        "{text}"
    );

    // Damaged: a number, then the word.
    for (at, what) in [(8192 + 32 * 7 + 3, "numbers"), (4098, "durable word")] {
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[at] ^= 0x10;
        std::fs::write(&path, &bytes).unwrap();
        let damage = json(&["check", "--json"], &[&path], 1)["damage"][0].clone();
        assert_eq!(damage["what"], what, "{damage}");
    }
}

#[test]
fn planes_are_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("field.twin");
    let mut field = Planes::<f64, 3>::open(&path, 1000).unwrap();
    for _ in 0..7 {
        field.step(|old, new| new.copy_from_slice(old)).unwrap();
    }
    field.durable().unwrap();
    assert_eq!(json(&["info", "--json"], &[&path], 0)["durable"], 7);
    drop(field);
    let info = json(&["info", "--json"], &[&path], 0);
    assert_eq!(
        (&info["array"]["kind"], &info["durable"]),
        (&"planes".into(), &7.into())
    );
    assert!(info["plane"].as_u64() < Some(3));
    assert!(
        json(&["check", "--json"], &[&path], 0)["damage"]
            .as_array()
            .unwrap()
            .is_empty()
    );
}
