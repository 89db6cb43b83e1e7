//! The commit that a report names is that of the sources its program was built from.

#[path = "../built_from.rs"]
mod built_from;

use built_from::{commit, moves};
use std::path::Path;
use std::process::Command;

fn git(folder: &Path, arguments: &[&str]) {
    let output = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(["-c", "user.name=a test", "-c", "user.email=test@localhost"])
        .args(arguments)
        .output()
        .expect("git is there");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn sources_that_are_not_the_commits_are_dirty() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    assert_eq!(
        (commit(here, &["src"]), moves(here)),
        (None, None),
        "no repository"
    );
    git(here, &["init", "-q"]);
    std::fs::create_dir(here.join("src")).unwrap();
    let write = |file: &str, text: &str| std::fs::write(here.join(file), text).unwrap();
    write("src/lib.rs", "one");
    write("notes", "one");
    git(here, &["add", "."]);
    git(here, &["commit", "-qm", "one"]);
    let first = commit(here, &["src"]).unwrap();
    assert!(
        first.len() == 40 && first.chars().all(|digit| digit.is_ascii_hexdigit()),
        "{first}"
    );
    // What is not among the sources has no part in what is built.
    write("notes", "two");
    assert_eq!(commit(here, &["src"]).unwrap(), first);
    write("src/lib.rs", "two");
    assert_eq!(commit(here, &["src"]).unwrap(), format!("{first}-dirty"));
    let log = moves(here).unwrap();
    let before = std::fs::read(&log).unwrap();
    git(here, &["commit", "-qam", "two"]);
    let second = commit(here, &["src"]).unwrap();
    assert!(second != first && !second.contains("dirty"), "{second}");
    assert_ne!(
        std::fs::read(&log).unwrap(),
        before,
        "a build hears of the commit"
    );
    // A new file is compiled as well.
    write("src/more.rs", "");
    assert_eq!(commit(here, &["src"]).unwrap(), format!("{second}-dirty"));
}
