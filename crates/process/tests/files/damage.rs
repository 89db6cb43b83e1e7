//! Logs that are torn, cut, flipped, missing, or from somewhere else.

use crate::tree::Tree;
use crate::{Stage, killed_here};
use rustix::fd::AsFd;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use twinpage_process::files::{
    Change, Durability, Error, New, Options, PathAt, Recorder, check, describe, rollback, rollback_watched,
};

/// With all records in the logs.
fn recorder(stage: &Stage, durability: Durability) -> Recorder {
    with_names(stage, durability, false)
}

fn with_names(stage: &Stage, durability: Durability, names_in_order: bool) -> Recorder {
    let options = Options {
        names_in_order: Some(names_in_order),
        ..Options::new(durability)
    };
    Recorder::create(&stage.state, options, 0).unwrap()
}

fn overwrite(recorder: &mut Recorder, path: &Path, at: u64, bytes: &[u8]) {
    let file = File::options().write(true).open(path).unwrap();
    record_overwrite(recorder, &file, at, bytes.len() as u64);
    file.write_all_at(bytes, at).unwrap();
}

fn record_overwrite(recorder: &mut Recorder, file: &File, at: u64, len: u64) {
    recorder
        .record(&Change::Write {
            fd: file.as_fd(),
            at: Some(at),
            len,
        })
        .unwrap();
}

fn unlink(recorder: &mut Recorder, path: &Path) {
    recorder
        .record(&Change::Unlink {
            place: PathAt::absolute(path),
            still_open: false,
        })
        .unwrap();
    std::fs::remove_file(path).unwrap();
}

fn create(recorder: &mut Recorder, path: &Path) {
    recorder
        .record(&Change::Create {
            place: PathAt::absolute(path),
            new: New::Thing,
        })
        .unwrap();
    std::fs::create_dir(path).unwrap();
}

/// A program killed in epoch 1 after a few changes; which log they are in.
fn crashed(durability: Durability) -> (Stage, PathBuf, Tree) {
    crashed_in("", durability, false)
}

/// What it changes is in a folder of that name.
fn crashed_in(folder: &str, durability: Durability, names_in_order: bool) -> (Stage, PathBuf, Tree) {
    let stage = Stage::new();
    let folder = stage.root.join(folder);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("a"), "the old content of a").unwrap();
    std::fs::write(folder.join("b"), "the old content of b").unwrap();
    let before = Tree::of(&stage.root);
    let mut recorder = with_names(&stage, durability, names_in_order);
    overwrite(&mut recorder, &folder.join("a"), 4, b"new");
    unlink(&mut recorder, &folder.join("b"));
    create(&mut recorder, &folder.join("c"));
    let log = stage.state.join("undo.1");
    (stage, log, before)
}

#[test]
fn every_flipped_byte_is_found_and_nothing_is_touched() {
    for durability in [Durability::Memory, Durability::Disk] {
        let (stage, log, before) = crashed(durability);
        let good = std::fs::read(&log).unwrap();
        let crashed = Tree::of(&stage.root);
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            std::fs::write(&log, &bad).unwrap();
            let found = match check(&stage.state, 0) {
                Ok(damage) => damage.iter().any(|damage| damage.what.ends_with("undo.1")),
                Err(error) => panic!("byte {at}: {error}"),
            };
            assert!(
                found,
                "{durability:?}: byte {at} of {} flipped and not found",
                good.len()
            );
            let error = rollback(&stage.state, 0, &[], &[]).unwrap_err();
            assert!(
                matches!(&error, Error::Damaged { file, .. } if *file == log),
                "byte {at}: {error}"
            );
        }
        assert_eq!(crashed.differences(&Tree::of(&stage.root)), "");
        std::fs::write(&log, &good).unwrap();
        rollback(&stage.state, 0, &[], &[]).unwrap();
        assert_eq!(before.differences(&Tree::of(&stage.root)), "");
    }
}

/// Their names, in order.
fn records_that_are_names(stage: &Stage) -> Vec<PathBuf> {
    let kept = std::fs::read_dir(stage.state.join("kept")).unwrap();
    let names = kept.map(|entry| entry.unwrap().path());
    let records = names.filter(|path| path.extension().is_some_and(|ending| ending == "record"));
    let mut records: Vec<PathBuf> = records.collect();
    records.sort();
    records
}

fn expect_damage(stage: &Stage, path: &Path, how: &str) {
    let damage = check(&stage.state, 0).unwrap();
    assert_eq!(damage.len(), 1, "{how}");
    assert_eq!(damage[0].what, path.display().to_string());
    let error = rollback(&stage.state, 0, &[], &[]).unwrap_err();
    assert!(
        matches!(&error, Error::Damaged { file, .. } if file == path),
        "{how}: {error}"
    );
}

#[test]
fn every_flipped_letter_of_a_record_that_is_a_name_is_found() {
    let (stage, _, before) = crashed_in("", Durability::Disk, true);
    let names = records_that_are_names(&stage);
    assert_eq!(names.len(), 2, "a removed file and a new directory");
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let expect = |good: &Path, bad: &str| {
        let bad = good.with_file_name(bad);
        std::fs::rename(good, &bad).unwrap();
        expect_damage(&stage, &bad, &bad.display().to_string());
        std::fs::rename(&bad, good).unwrap();
    };
    for good in &names {
        let own = name(good);
        assert!(std::fs::symlink_metadata(good).unwrap().is_file());
        for at in 0..own.len() {
            let other = if own.as_bytes()[at] == b'0' { "f" } else { "0" };
            let mut bad = own.clone();
            bad.replace_range(at..=at, other);
            expect(good, &bad);
        }
        let whole = own.len() - ".record".len();
        for len in 17..own.len() {
            expect(good, &own[..len]);
            expect(good, &format!("{}.record", &own[..len.min(whole - 1)]));
        }
    }
    // One record under the number of another.
    let [first, second] = [&names[0], &names[1]].map(|path| name(path));
    expect(&names[0], &format!("{}{}", &first[..16], &second[16..]));
    rollback(&stage.state, 0, &[], &[]).unwrap();
    assert_eq!(before.differences(&Tree::of(&stage.root)), "");
    assert!(records_that_are_names(&stage).is_empty());
}

/// A record that is too long for a name is in a symbolic link.
#[test]
fn every_flipped_digit_of_a_record_in_a_link_is_found() {
    let (stage, _, before) = crashed_in(&"long".repeat(50), Durability::Disk, true);
    let links = records_that_are_names(&stage);
    assert_eq!(links.len(), 2, "a removed file and a new directory");
    let put = |path: &Path, target: &str| {
        std::fs::remove_file(path).unwrap();
        std::os::unix::fs::symlink(target, path).unwrap();
    };
    let target = |path: &Path| {
        let target = std::fs::read_link(path).unwrap();
        target.into_os_string().into_string().unwrap()
    };
    let goods = [&links[0], &links[1]].map(|path| target(path));
    for (path, good) in links.iter().zip(&goods) {
        for at in (0..good.len()).step_by(3) {
            let other = if good.as_bytes()[at] == b'0' { "f" } else { "0" };
            let mut bad = good.clone();
            bad.replace_range(at..=at, other);
            put(path, &bad);
            expect_damage(&stage, path, &format!("digit {at}"));
        }
        for bad in [&good[..good.len() - 2], &good[..9], "elsewhere"] {
            put(path, bad);
            expect_damage(&stage, path, bad);
        }
        put(path, good);
    }
    // One record under the number of another.
    put(&links[0], &goods[1]);
    expect_damage(&stage, &links[0], "exchanged");
    put(&links[0], &goods[0]);
    rollback(&stage.state, 0, &[], &[]).unwrap();
    assert_eq!(before.differences(&Tree::of(&stage.root)), "");
    assert!(records_that_are_names(&stage).is_empty());
}

/// After a power cut the logs may know more than the names: those of a change that did not get there are not missed.
#[test]
fn a_change_that_is_lost_with_its_record_is_not_missed() {
    let (stage, _, before) = crashed_in("", Durability::Disk, true);
    let mut records = records_that_are_names(&stage);
    // The newest change of names, and what a power cut leaves of it: nothing.
    let newest = records.pop().unwrap();
    std::fs::remove_file(newest).unwrap();
    std::fs::remove_dir(stage.root.join("c")).unwrap();
    assert_eq!(check(&stage.state, 0).unwrap(), []);
    rollback(&stage.state, 0, &[], &[]).unwrap();
    assert_eq!(before.differences(&Tree::of(&stage.root)), "");
}

/// A refused change leaves no record behind, wherever records are.
#[test]
fn a_record_of_a_refused_change_is_taken_back() {
    let stage = Stage::new();
    std::fs::write(stage.root.join("a"), "a").unwrap();
    std::fs::write(stage.root.join("b"), "b").unwrap();
    let mut recorder = with_names(&stage, Durability::Disk, true);
    // Records are other names of it, and a directory has none.
    std::fs::create_dir(stage.state.join("kept/records")).unwrap();
    let refused = recorder.record(&Change::Unlink {
        place: PathAt::absolute(&stage.root.join("a")),
        still_open: false,
    });
    assert!(refused.is_err());
    assert!(!stage.state.join("kept/0000000000000001").exists());
}

#[test]
fn a_log_cut_at_any_length_is_found() {
    let (stage, log, _) = crashed(Durability::Memory);
    let good = std::fs::read(&log).unwrap();
    for len in 0..good.len() {
        std::fs::write(&log, &good[..len]).unwrap();
        assert_eq!(check(&stage.state, 0).unwrap().len(), 1, "cut at {len}");
        assert!(
            matches!(rollback(&stage.state, 0, &[], &[]), Err(Error::Damaged { .. })),
            "cut at {len}"
        );
    }
}

/// The record of a change that never happened is torn: the others are undone, it is not missed.
#[test]
fn a_torn_last_record_is_ignored() {
    for durability in [Durability::Memory, Durability::Disk] {
        let (stage, log, before) = crashed(durability);
        let good = std::fs::read(&log).unwrap();
        rollback(&stage.state, 0, &[], &[]).unwrap();
        // Again, to the byte, and with one more record, whose mark and tail did not get there.
        let mut recorder = recorder(&stage, durability);
        overwrite(&mut recorder, &stage.root.join("a"), 4, b"new");
        unlink(&mut recorder, &stage.root.join("b"));
        create(&mut recorder, &stage.root.join("c"));
        let header = std::fs::read(&log).unwrap()[..64].to_vec();
        let whole = std::fs::read(&log).unwrap().len();
        assert_eq!(whole, good.len());
        recorder
            .record(&Change::Create {
                place: PathAt::absolute(&stage.root.join("d")),
                new: New::Thing,
            })
            .unwrap();
        drop(recorder);
        let longer = std::fs::read(&log).unwrap();
        assert!(longer.len() > whole);
        let kept = std::fs::read_dir(stage.state.join("kept")).unwrap().count();
        assert_eq!(kept, 1);
        for len in whole..=longer.len() {
            let mut torn = longer[..len].to_vec();
            torn[..64].copy_from_slice(&header);
            std::fs::write(&log, &torn).unwrap();
            assert_eq!(check(&stage.state, 0).unwrap(), [], "torn at {len}");
            // A sector of zeros or of noise in the record that was not synced.
            for noise in [0, 0xa5] {
                torn.resize(longer.len() + 512, noise);
                std::fs::write(&log, &torn).unwrap();
                assert_eq!(check(&stage.state, 0).unwrap(), [], "torn at {len}");
            }
        }
        rollback(&stage.state, 0, &[], &[]).unwrap();
        assert_eq!(before.differences(&Tree::of(&stage.root)), "");
    }
}

/// After a power cut a header that was rewritten but not synced may be the old one, above new bytes.
#[test]
fn an_old_header_above_new_records_is_no_damage() {
    let stage = Stage::new();
    std::fs::write(stage.root.join("a"), vec![1; 4000]).unwrap();
    let mut recorder = recorder(&stage, Durability::Disk);
    overwrite(&mut recorder, &stage.root.join("a"), 0, &[2; 4000]);
    recorder
        .begin_epoch(1, 0, [])
        .unwrap()
        .sync_before_commit()
        .unwrap();
    let log = stage.state.join("undo.1");
    let old = std::fs::read(&log).unwrap();
    overwrite(&mut recorder, &stage.root.join("a"), 0, &[3; 4000]);
    recorder
        .begin_epoch(2, 1, [])
        .unwrap()
        .sync_before_commit()
        .unwrap();
    let tree = Tree::of(&stage.root);
    // Epoch 2 is durable. The first record towards 3 is being written to the disk when the power goes.
    let file = File::options().write(true).open(stage.root.join("a")).unwrap();
    record_overwrite(&mut recorder, &file, 0, 100);
    drop((recorder, file));
    let new = std::fs::read(&log).unwrap();
    assert_ne!(new[..64], old[..64]);
    for sectors in 0..=new.len() / 512 {
        let mut torn = new.clone();
        torn[..64].copy_from_slice(&old[..64]);
        let from = (sectors * 512).max(64);
        torn[from..].copy_from_slice(&old[from..]);
        std::fs::write(&log, &torn).unwrap();
        assert_eq!(
            check(&stage.state, 2).unwrap(),
            [],
            "{sectors} sectors were written"
        );
    }
    rollback(&stage.state, 2, &[], &[]).unwrap();
    assert_eq!(tree.differences(&Tree::of(&stage.root)), "");
}

#[test]
fn a_missing_kept_file_is_found() {
    let (stage, _, _) = crashed(Durability::Memory);
    let kept = std::fs::read_dir(stage.state.join("kept"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    std::fs::remove_file(kept).unwrap();
    let damage = check(&stage.state, 0).unwrap();
    assert_eq!(damage.len(), 1);
    assert!(damage[0].why.contains("kept/"), "{}", damage[0].why);
    let error = rollback(&stage.state, 0, &[], &[]).unwrap_err();
    assert!(error.to_string().contains("kept"), "{error}");
}

#[test]
fn another_version_and_a_missing_log_are_named() {
    let (stage, log, _) = crashed(Durability::Memory);
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[8] = 4;
    let crc = crc32c::crc32c(&bytes[..60]);
    bytes[60..64].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&log, &bytes).unwrap();
    for error in [
        rollback(&stage.state, 0, &[], &[]).unwrap_err(),
        check(&stage.state, 0).unwrap_err(),
        describe(&stage.state).unwrap_err(),
    ] {
        assert!(
            matches!(&error, Error::Foreign { file, .. } if *file == log),
            "{error}"
        );
    }
    std::fs::remove_file(&log).unwrap();
    let error = rollback(&stage.state, 0, &[], &[]).unwrap_err();
    assert!(error.to_string().contains("undo.1"), "{error}");
}

#[test]
fn a_rollback_comes_before_the_next_run_and_is_finished_as_begun() {
    let (stage, _, before) = crashed(Durability::Memory);
    let options = Options::new(Durability::Memory);
    let error = Recorder::create(&stage.state, options, 0).err().unwrap();
    assert!(
        matches!(
            error,
            Error::NotRolledBack {
                tag: 1,
                durable: 0,
                ..
            }
        ),
        "{error}"
    );
    let mut left = 5;
    let killed = rollback_watched(&stage.state, 0, &[], &[], &mut |what| {
        left -= 1;
        if left == 0 { Err(killed_here(what)) } else { Ok(()) }
    });
    assert!(killed.is_err());
    assert!(describe(&stage.state).unwrap().rollback_begun);
    assert!(matches!(
        rollback(&stage.state, 1, &[], &[]),
        Err(Error::Order { given: 1, .. })
    ));
    let error = Recorder::create(&stage.state, options, 0).err().unwrap();
    assert!(matches!(error, Error::NotRolledBack { .. }), "{error}");
    rollback(&stage.state, 0, &[], &[]).unwrap();
    assert_eq!(before.differences(&Tree::of(&stage.root)), "");
    Recorder::create(&stage.state, options, 0).unwrap();
}

/// The last progress entry may be torn, an earlier one may not be wrong.
#[test]
fn damaged_progress_is_found_and_torn_progress_is_not_missed() {
    let (stage, _, before) = crashed(Durability::Memory);
    let killed = rollback_watched(&stage.state, 0, &[], &[], &mut |what| match what {
        "put bytes back" => Err(killed_here(what)),
        _ => Ok(()),
    });
    assert!(killed.is_err());
    let path = stage.state.join("undo.progress");
    let good = std::fs::read(&path).unwrap();
    assert_eq!(good.len(), 64 + 2 * 64);
    for at in 0..good.len() - 64 {
        let mut bad = good.clone();
        bad[at] ^= 4;
        std::fs::write(&path, &bad).unwrap();
        let error = rollback(&stage.state, 0, &[], &[]).unwrap_err();
        assert!(
            matches!(&error, Error::Damaged { file, .. } if *file == path),
            "byte {at}: {error}"
        );
    }
    std::fs::write(&path, &good[..good.len() - 10]).unwrap();
    rollback(&stage.state, 0, &[], &[]).unwrap();
    assert_eq!(before.differences(&Tree::of(&stage.root)), "");
}

#[test]
fn what_another_program_did_is_named() {
    let (stage, _, _) = crashed(Durability::Memory);
    std::fs::write(stage.root.join("b"), "someone else's").unwrap();
    let error = rollback(&stage.state, 0, &[], &[]).unwrap_err();
    assert!(
        matches!(&error, Error::Changed { path, .. } if *path == stage.root.join("b")),
        "{error}"
    );
    std::fs::remove_file(stage.root.join("b")).unwrap();
    std::fs::rename(stage.root.join("a"), stage.root.join("away")).unwrap();
    let error = rollback(&stage.state, 0, &[], &[]).unwrap_err();
    assert!(
        matches!(&error, Error::Changed { path, .. } if *path == stage.root.join("a")),
        "{error}"
    );
    std::fs::rename(stage.root.join("away"), stage.root.join("a")).unwrap();
    rollback(&stage.state, 0, &[], &[]).unwrap();
}
