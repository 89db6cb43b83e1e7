//! Files whose content the checkpoint holds, and that are gone: they are made again, however often the rollback is killed.

use crate::{Stage, killed_here};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use twinpage_process::files::{
    Durability, Ident, OpenFile, Options, Recorder, StoredFile, rollback, rollback_watched,
};

const LEN: u64 = 10_000;

/// What a checkpoint lists of the file, open for writing and mapped.
fn listed(path: &Path) -> (OpenFile, StoredFile) {
    let stat = rustix::fs::stat(path).unwrap();
    let (file, mtime) = (Ident::from(&stat), (1_000_000_000, 7));
    let open = OpenFile {
        path: path.to_owned(),
        file,
        size: LEN,
        mtime,
    };
    let stored = StoredFile {
        path: path.to_owned(),
        file,
        size: LEN,
        mode: 0o100_640,
        owner: (stat.st_uid, stat.st_gid),
        mtime,
    };
    (open, stored)
}

/// A state at epoch 1, and in a directory of its own the file.
fn staged(stage: Stage) -> (Stage, PathBuf) {
    drop(Recorder::create(&stage.state, Options::new(Durability::Disk), 1).unwrap());
    let path = stage.root.join("of/its/own/file");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, [1; LEN as usize]).unwrap();
    (stage, path)
}

fn check(path: &Path) {
    let metadata = fs::metadata(path).unwrap();
    assert_eq!((metadata.len(), metadata.mode()), (LEN, 0o100_640));
    assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (1_000_000_000, 7));
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    let above = fs::metadata(path.parent().unwrap()).unwrap();
    assert_eq!(above.permissions().mode(), 0o40_755);
    let names = |at: &Path| fs::read_dir(at).unwrap().count();
    assert!(
        path.ancestors().skip(1).take(4).all(|above| names(above) == 1),
        "something was left"
    );
}

#[test]
fn a_file_that_is_gone_is_made_again_with_its_directories() {
    let killed = |kill: u64| {
        let (stage, path) = staged(Stage::new());
        let (open, stored) = listed(&path);
        let (open, stored) = ([open], [stored]);
        // Each life finds the file that the one before made, and loses it again.
        for life in 0..3 {
            fs::remove_dir_all(stage.root.join("of")).unwrap();
            let mut left = kill;
            let _ = rollback_watched(&stage.state, 1, &open, &stored, &mut |step| {
                left = left.checked_sub(1).ok_or_else(|| killed_here(step))?;
                Ok(())
            });
            let done = rollback(&stage.state, 1, &open, &stored)
                .unwrap_or_else(|error| panic!("life {life}, killed before step {kill}: {error}"));
            check(&path);
            let now = Ident::from(&rustix::fs::stat(&path).unwrap());
            assert!(
                done.moved.contains(&(open[0].file, now)),
                "life {life}, step {kill}"
            );
            let again = rollback(&stage.state, 1, &open, &stored).unwrap();
            assert!(again.moved.contains(&(open[0].file, now)) && again.empty.is_empty());
        }
        let mut steps = 0;
        fs::remove_file(&path).unwrap();
        rollback_watched(&stage.state, 1, &open, &stored, &mut |_| {
            steps += 1;
            Ok(())
        })
        .unwrap();
        kill < steps + 3
    };
    assert!((0..).take_while(|kill| killed(*kill)).count() > 5);
}

#[test]
fn what_has_its_name_now_and_other_file_systems_are_left_alone() {
    let (stage, path) = staged(Stage::in_memory()); // where inode numbers are not used again
    let (open, stored) = listed(&path);
    fs::remove_file(&path).unwrap();
    fs::write(&path, "another").unwrap();
    let error = rollback(
        &stage.state,
        1,
        std::slice::from_ref(&open),
        std::slice::from_ref(&stored),
    );
    assert!(error.unwrap_err().to_string().contains("another file"));
    assert_eq!(fs::read(&path).unwrap(), b"another");

    fs::remove_dir_all(stage.root.join("of")).unwrap();
    let elsewhere = StoredFile {
        file: Ident {
            dev: stored.file.dev + 1,
            ..stored.file
        },
        ..stored
    };
    let done = rollback(&stage.state, 1, &[], &[elsewhere]).unwrap();
    assert!(done.empty.is_empty() && !stage.root.join("of").exists());
    let error = rollback(&stage.state, 1, &[open], &[]).unwrap_err();
    assert!(error.to_string().contains("it is gone"), "{error}");
}
