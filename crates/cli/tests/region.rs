//! The command on regions: one that this test has open, and the same closed.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;
use twinpage::Region;
use twinpage::collections::{HashMap, Vec};

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

fn refused(arguments: &[&str], paths: &[&Path]) -> String {
    let out = twinpage(arguments, paths);
    assert_eq!(out.status.code(), Some(125), "{out:?}");
    String::from_utf8(out.stderr).unwrap()
}

#[test]
fn a_region_is_looked_at_checked_and_copied() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let path = file("orders.twin");
    let region = Region::options()
        .every(Duration::from_millis(5))
        .open(&path)
        .unwrap();
    let mut orders = region.root::<HashMap<u64, u64>>("orders").unwrap();
    for id in 0..5000 {
        region.update(|u| orders.get_mut(u).insert(id, id * id));
    }
    region.durable().unwrap();

    // In use.
    let info = json(&["info", "--json"], &[&path], 0);
    assert_eq!((&info["kind"], &info["version"]), (&"region".into(), &1.into()));
    assert!(
        info["in_use"].is_string() && info["epoch"].as_u64() > Some(0),
        "{info}"
    );
    assert!(info["geometry"].is_object() && info["pool"].is_object());
    let text = String::from_utf8(twinpage(&["info"], &[&path]).stdout).unwrap();
    assert!(text.contains("format version 1\n"), "{text}");
    let stats = json(&["stats", "--json"], &[&path], 0);
    assert!(stats["statistics"]["epochs"].as_u64() > Some(0), "{stats}");
    assert!(
        stats["statistics"]["stop_us"]["p99"].as_f64() > Some(0.0),
        "{stats}"
    );
    let copy = file("copy.twin");
    let backup = json(&["backup", "--json"], &[&path, &copy], 0);
    assert_eq!(backup["live"], true);
    assert!(refused(&["backup"], &[&path, &copy]).contains("exists"));
    assert!(refused(&["check"], &[&path]).contains("in use"));
    for command in ["info", "stats"] {
        let out = twinpage(&[command], &[&path]);
        assert!(out.status.success() && out.stdout.len() > 50, "{out:?}");
    }

    // Closed.
    drop(orders);
    region.close().unwrap();
    for region in [&path, &copy] {
        let check = json(&["check", "--json"], &[region], 0);
        assert_eq!(check["damage"], Value::Array(vec![]), "{check}");
        assert_eq!(check["heap"]["roots"][0]["name"], "orders");
        assert_eq!(check["heap"]["leaked_blocks"], 0);
        assert!(json(&["info", "--json"], &[region], 0)["in_use"].is_null());
        let text = twinpage(&["check"], &[region]).stdout;
        assert!(String::from_utf8(text).unwrap().contains("root \"orders\""));
    }
    let second = file("second.twin");
    assert_eq!(json(&["backup", "--json"], &[&copy, &second], 0)["live"], false);
    assert!(refused(&["stats"], &[&path]).contains("twinpage info"));
    let missing = refused(&["stats"], &[&file("missing.twin")]);
    assert!(
        missing.contains("missing.twin") && !missing.contains("info"),
        "{missing}"
    );
    let region = Region::open(&second).unwrap();
    let orders = region.root::<HashMap<u64, u64>>("orders").unwrap();
    region.read(|v| {
        let orders = orders.get(v);
        assert!(orders.len() == 5000 && (0..5000).all(|id| orders.get(&id) == Some(&(id * id))));
    });
    drop(orders);
    region.close().unwrap();

    // Damaged, and something else.
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&copy, &whole[..whole.len() / 2]).unwrap();
    let check = json(&["check", "--json"], &[&copy], 1);
    assert_eq!(check["damage"].as_array().unwrap().len(), 1, "{check}");
    std::fs::write(&copy, b"nonsense").unwrap();
    assert!(refused(&["check"], &[&copy]).contains("not a store"));
    assert!(refused(&["info"], &[&copy]).contains("not a store"));
    assert!(refused(&["backup"], &[&copy, &file("third")]).contains("not a store"));
    assert!(refused(&["info"], &[&file("missing")]).contains("missing"));
    assert!(!file("third").exists());
}

/// Whatever the bytes, every command says what it finds in its own words: no panic, no signal, no hang.
#[test]
fn no_damage_makes_a_command_fall_over() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let (good, bad) = (folder.path().join("good"), folder.path().join("bad"));
    let region = Region::open(&good).unwrap();
    let mut lists = region.root::<HashMap<u64, Vec<u64>>>("lists").unwrap();
    for id in 0..100 {
        region.update(|u| {
            let mut list = Vec::new_in(u.heap());
            list.extend(0..id);
            lists.get_mut(u).insert(id, list);
        });
    }
    drop(lists);
    region.close().unwrap();
    let whole = std::fs::read(&good).unwrap();
    let used: std::vec::Vec<usize> = (0..whole.len()).filter(|&at| whole[at] != 0).collect();
    let tries = twinpage_campaign::either(12, 500);
    let seed = twinpage_campaign::seed();
    let mut random = fastrand::Rng::with_seed(seed);
    for turn in 0..tries {
        let mut bytes = whole.clone();
        for _ in 0..random.usize(1..4) {
            // The superblock and the switch records, the heap's header, or anything.
            let at = match turn % 3 {
                0 => random.usize(..64),
                1 => used[random.usize(..used.len().min(400))],
                _ => used[random.usize(..used.len())],
            };
            bytes[at] ^= 1 << random.u8(..8);
        }
        if turn % 4 == 3 {
            bytes.truncate(random.usize(..whole.len()));
        }
        std::fs::write(&bad, &bytes).unwrap();
        let copy = folder.path().join("copy");
        let commands: [(&str, &[&Path]); 4] = [
            ("info", &[&bad]),
            ("check", &[&bad]),
            ("stats", &[&bad]),
            ("backup", &[&bad, &copy]),
        ];
        for (command, files) in commands {
            let done = Command::new(env!("CARGO_BIN_EXE_twinpage"))
                .arg(command)
                .args(files)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&done.stderr);
            let code = done
                .status
                .code()
                .unwrap_or_else(|| panic!("{command}: {}, {said}", done.status));
            assert!(
                [0, 1, 125].contains(&code) && !said.contains("panicked"),
                "{command}: {code}, {said}"
            );
            assert!(
                code == 0 || !said.is_empty() || !done.stdout.is_empty(),
                "{command}: nothing is said"
            );
            assert!(
                code == 0 || command == "check" || said.starts_with("twinpage"),
                "{command}: {said}"
            );
        }
        let _ = std::fs::remove_file(copy);
        assert!(std::fs::read(&bad).unwrap() == bytes, "the file was changed");
    }
}
