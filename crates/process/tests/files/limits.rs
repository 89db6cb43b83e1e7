//! What is refused, what is bounded, what costs nothing, and what is synced.

use crate::Stage;
use crate::program::sizes;
use crate::tree::Tree;
use rustix::fd::AsFd;
use rustix::fs::OFlags;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use twinpage_process::files::{
    Change, Durability, Error, New, OpenFile, Options, PathAt, Recorded, Recorder, Refusal, Result, rollback,
};

fn recorder(stage: &Stage) -> Recorder {
    Recorder::create(&stage.state, Options::new(Durability::Memory), 0).unwrap()
}

fn open(path: &Path) -> File {
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .unwrap()
}

fn write(recorder: &mut Recorder, file: &File, at: Option<u64>, len: u64) -> Result<Recorded> {
    recorder.record(&Change::Write {
        fd: file.as_fd(),
        at,
        len,
    })
}

#[test]
fn bytes_are_saved_once_an_epoch() {
    let stage = Stage::new();
    let path = stage.root.join("a");
    std::fs::write(&path, vec![1; 100_000]).unwrap();
    let mut recorder = recorder(&stage);
    let file = open(&path);
    assert_eq!(
        write(&mut recorder, &file, Some(8_000), 1_000).unwrap(),
        Recorded::Saved
    );
    assert_eq!(
        write(&mut recorder, &file, Some(8_100), 800).unwrap(),
        Recorded::Covered
    );
    assert_eq!(
        write(&mut recorder, &file, Some(200_000), 800).unwrap(),
        Recorded::Covered
    );
    assert_eq!(
        write(&mut recorder, &file, Some(50_000), 1).unwrap(),
        Recorded::Saved
    );
    let once = recorder.describe();
    assert_eq!(once.records, 2);
    recorder.begin_epoch(1, 0, []).unwrap();
    assert_eq!(
        write(&mut recorder, &file, Some(8_100), 800).unwrap(),
        Recorded::Saved
    );
    // Epoch 1 is durable when 2 is captured: the first log is used again.
    recorder.begin_epoch(2, 1, []).unwrap();
    assert_eq!(
        write(&mut recorder, &file, Some(0), 100_000).unwrap(),
        Recorded::Saved
    );
    assert!(recorder.describe().undo_bytes < 110_000);
}

#[test]
fn appends_to_listed_files_cost_no_record() {
    for durability in [Durability::Memory, Durability::Disk] {
        let stage = Stage::new();
        let path = stage.root.join("log");
        let mut recorder = Recorder::create(&stage.state, Options::new(durability), 0).unwrap();
        let open_change = Change::Open {
            place: PathAt::absolute(&path),
            flags: OFlags::CREATE | OFlags::RDWR,
        };
        recorder.record(&open_change).unwrap();
        let mut file = open(&path);
        let mut lens = vec![0];
        let mut append = |recorder: &mut Recorder| {
            assert_eq!(write(recorder, &file, None, 8192).unwrap(), Recorded::Covered);
            file.write_all(&[9; 8192]).unwrap();
        };
        append(&mut recorder);
        let list = || vec![OpenFile::of(File::open(&path).unwrap().as_fd()).unwrap().unwrap()];
        let mut lists = vec![Vec::new()];
        for epoch in 1..6 {
            lists.push(list());
            let open = sizes(lists.last().unwrap());
            recorder
                .begin_epoch(epoch, epoch - 1, open)
                .unwrap()
                .sync_before_commit()
                .unwrap();
            lens.push(std::fs::metadata(&path).unwrap().len());
            // Listed by 1 only, which is not durable: undoing its creation removes it. Later the checkpoints list it.
            append(&mut recorder);
            append(&mut recorder);
        }
        assert_eq!(recorder.describe().records, 1, "its creation");
        drop(recorder);
        let done = rollback(&stage.state, 4, &lists[4], &[]).unwrap();
        assert_eq!((done.records, done.files_cut), (0, 1));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), lens[4]);
        assert_eq!(list(), lists[4]);
    }
}

/// Epoch 1 lists the file, but only epoch 0 is durable when the crash comes.
#[test]
fn a_file_listed_by_an_epoch_that_is_lost_is_cut_too() {
    let stage = Stage::new();
    let path = stage.root.join("a");
    std::fs::write(&path, "before").unwrap();
    let tree = Tree::of(&stage.root);
    let mut recorder = recorder(&stage);
    let file = open(&path);
    let list = OpenFile::of(file.as_fd()).unwrap().unwrap();
    recorder.begin_epoch(1, 0, sizes(&[list])).unwrap();
    write(&mut recorder, &file, Some(6), 100).unwrap();
    file.write_all_at(&[5; 100], 6).unwrap();
    drop(recorder);
    rollback(&stage.state, 0, &[], &[]).unwrap();
    assert_eq!(tree.differences(&Tree::of(&stage.root)), "");
}

/// What was recorded before epoch 1 takes back what was added after it as well, as long as that one is not durable.
#[test]
fn a_file_recorded_in_an_epoch_that_is_lost_needs_no_record_to_grow() {
    for is_new in [false, true] {
        let stage = Stage::new();
        let path = stage.root.join("a");
        if !is_new {
            std::fs::write(&path, "before").unwrap();
        }
        let tree = Tree::of(&stage.root);
        let mut recorder = recorder(&stage);
        let open_change = Change::Open {
            place: PathAt::absolute(&path),
            flags: OFlags::CREATE | OFlags::RDWR,
        };
        recorder.record(&open_change).unwrap();
        let file = open(&path);
        for (epoch, at) in [(1, 6), (2, 106), (3, 206)] {
            let expected = if epoch == 1 && !is_new {
                Recorded::Saved
            } else {
                Recorded::Covered
            };
            assert_eq!(write(&mut recorder, &file, Some(at), 100).unwrap(), expected);
            file.write_all_at(&[5; 100], at).unwrap();
            if epoch == 3 {
                break; // epoch 1 is not durable: its capture is repeated
            }
            let list = OpenFile::of(file.as_fd()).unwrap().unwrap();
            recorder.begin_epoch(1, 0, sizes(&[list])).unwrap();
        }
        drop(recorder);
        rollback(&stage.state, 0, &[], &[]).unwrap();
        assert_eq!(tree.differences(&Tree::of(&stage.root)), "");
    }
}

/// A file that may grow is made durable with an epoch in which it did, and no other.
#[test]
fn a_file_that_did_not_grow_is_not_synced() {
    let stage = Stage::new();
    let path = stage.root.join("log");
    std::fs::write(&path, "before").unwrap();
    let mut recorder = Recorder::create(&stage.state, Options::new(Durability::Disk), 0).unwrap();
    let mut file = File::options().append(true).open(&path).unwrap();
    let mut synced = Vec::new();
    recorder.note_growth(file.as_fd()).unwrap();
    for epoch in 1..6 {
        if epoch % 2 == 0 {
            file.write_all(b"more").unwrap();
        }
        recorder.note_growth(file.as_fd()).unwrap();
        let list = OpenFile::of(file.as_fd()).unwrap().unwrap();
        let changed = recorder.begin_epoch(epoch, epoch - 1, sizes(&[list])).unwrap();
        synced.push(changed.len());
        recorder.expect_growth(file.as_fd()).unwrap();
    }
    assert_eq!(synced, [1, 1, 0, 1, 0]);
}

#[test]
fn a_full_log_refuses_the_change_and_a_checkpoint_makes_room() {
    let stage = Stage::new();
    let path = stage.root.join("a");
    std::fs::write(&path, vec![1; 300_000]).unwrap();
    let tree = Tree::of(&stage.root);
    let options = Options {
        bytes_max: 200_000,
        pressure_bytes: 50_000,
        ..Options::new(Durability::Memory)
    };
    let mut recorder = Recorder::create(&stage.state, options, 0).unwrap();
    let file = open(&path);
    assert!(!recorder.pressure());
    write(&mut recorder, &file, Some(0), 100_000).unwrap();
    file.write_all_at(&[2; 100_000], 0).unwrap();
    assert!(recorder.pressure());
    let error = write(&mut recorder, &file, Some(100_000), 200_000).unwrap_err();
    assert!(matches!(error, Error::Full { .. }), "{error}");
    // Nothing of the refused change counts.
    assert_eq!(recorder.describe().records, 1);
    write(&mut recorder, &file, Some(100_000), 50_000).unwrap();
    file.write_all_at(&[3; 50_000], 100_000).unwrap();
    recorder.begin_epoch(1, 0, []).unwrap();
    recorder.begin_epoch(2, 1, []).unwrap();
    let second = Tree::of(&stage.root);
    write(&mut recorder, &file, Some(150_000), 1_000).unwrap();
    recorder.begin_epoch(3, 2, []).unwrap();
    write(&mut recorder, &file, Some(0), 150_000).unwrap();
    file.write_all_at(&[4; 150_000], 0).unwrap();
    drop(recorder);
    rollback(&stage.state, 2, &[], &[]).unwrap();
    assert_eq!(second.differences(&Tree::of(&stage.root)), "");
    assert_ne!(tree.differences(&second), "");
}

const FULL: &str = "TWINPAGE_FILES_FULL";

/// A limit on the size of files stands for a full disk: the system says no in the middle of a record.
#[test]
fn a_full_disk_refuses_the_change() {
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "limits::on_a_full_disk", "--nocapture"])
        .env(FULL, "1")
        .status()
        .unwrap();
    assert!(status.success());
}

/// The process with the limit. As a test of its own it does nothing.
#[test]
fn on_a_full_disk() {
    if std::env::var_os(FULL).is_none() {
        return;
    }
    let stage = Stage::new();
    let path = stage.root.join("a");
    std::fs::write(&path, vec![1; 4_000_000]).unwrap();
    // SAFETY: ignoring a signal runs no code of ours.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let limit = rustix::process::Rlimit {
        current: Some(1 << 20),
        maximum: None,
    };
    rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).unwrap();
    let mut recorder = recorder(&stage);
    let file = open(&path);
    write(&mut recorder, &file, Some(0), 5_000).unwrap();
    let error = write(&mut recorder, &file, Some(8_192), 3_000_000).unwrap_err();
    assert!(matches!(error, Error::Full { .. }), "{error}");
    write(&mut recorder, &file, Some(8_192), 5_000).unwrap();
    file.write_all_at(&[3; 13_192], 0).unwrap();
    drop(recorder);
    rollback(&stage.state, 0, &[], &[]).unwrap();
    assert!(std::fs::read(&path).unwrap().iter().all(|&byte| byte == 1));
}

fn refusal(recorder: &mut Recorder, change: Change<'_>) -> Refusal {
    match recorder.record(&change) {
        Err(Error::Refused(refusal)) => refusal,
        other => panic!("{change:?}: {other:?}"),
    }
}

#[test]
fn what_cannot_be_undone_is_refused_by_name() {
    let stage = Stage::new();
    let (path, other) = (stage.root.join("a"), stage.root.join("b"));
    std::fs::write(&path, "a").unwrap();
    std::fs::write(&other, "b").unwrap();
    std::fs::hard_link(&path, stage.root.join("made before the run")).unwrap();
    let mut recorder = recorder(&stage);
    let file = open(&path);
    let (a, b) = (PathAt::absolute(&path), PathAt::absolute(&other));
    let fd = file.as_fd();
    let refused = refusal(
        &mut recorder,
        Change::Unlink {
            place: a,
            still_open: true,
        },
    );
    assert_eq!(refused, Refusal::StillOpen(path.clone()));
    let change = Change::Rename {
        from: b,
        to: a,
        flags: 0,
        still_open: true,
    };
    assert_eq!(refusal(&mut recorder, change), Refusal::StillOpen(path.clone()));
    let change = Change::Rename {
        from: b,
        to: a,
        flags: 4,
        still_open: false,
    };
    assert_eq!(
        refusal(&mut recorder, change),
        Refusal::RenameFlags {
            path: other.clone(),
            flags: 4
        }
    );
    let change = Change::Allocate {
        fd,
        mode: 0x4000,
        at: 0,
        len: 4096,
    };
    assert_eq!(
        refusal(&mut recorder, change),
        Refusal::UnknownMode {
            path: path.clone(),
            mode: 0x4000
        }
    );
    let (inside, outside) = (stage.state.join("new"), stage.root.join("new"));
    for (from, to) in [(&path, &inside), (&stage.state, &outside)] {
        let (from, to) = (PathAt::absolute(from), PathAt::absolute(to));
        let change = Change::Rename {
            from,
            to,
            flags: 0,
            still_open: false,
        };
        assert!(matches!(refusal(&mut recorder, change), Refusal::OwnState(_)));
    }
    let own = open(&stage.state.join("undo.0"));
    let refused = refusal(
        &mut recorder,
        Change::Write {
            fd: own.as_fd(),
            at: Some(0),
            len: 1,
        },
    );
    assert_eq!(refused, Refusal::OwnState(stage.state.join("undo.0")));
    assert_eq!(recorder.describe().records, 0);
}

#[test]
fn kept_copies_that_would_not_be_the_same_are_refused() {
    let stage = Stage::apart();
    if !stage.is_apart() {
        return;
    }
    let path = stage.root.join("a");
    std::fs::write(&path, "a").unwrap();
    let mut recorder = recorder(&stage);
    let change = Change::Unlink {
        place: PathAt::absolute(&path),
        still_open: false,
    };
    std::fs::hard_link(&path, stage.root.join("b")).unwrap();
    assert_eq!(
        refusal(&mut recorder, change),
        Refusal::LinkedElsewhere(path.clone())
    );
    std::fs::remove_file(stage.root.join("b")).unwrap();
    assert_eq!(recorder.record(&change).unwrap(), Recorded::Saved);
    assert_eq!(std::fs::read_dir(stage.state.join("kept")).unwrap().count(), 1);
}

#[test]
fn what_is_no_file_is_not_tracked() {
    let stage = Stage::new();
    let mut recorder = recorder(&stage);
    let (pipe, _other) = rustix::pipe::pipe().unwrap();
    let null = File::options().write(true).open("/dev/null").unwrap();
    let proc = File::options().write(true).open("/proc/self/comm").unwrap();
    let deleted = open(&stage.root.join("deleted"));
    std::fs::remove_file(stage.root.join("deleted")).unwrap();
    for fd in [pipe.as_fd(), null.as_fd(), proc.as_fd(), deleted.as_fd()] {
        let recorded = recorder
            .record(&Change::Write {
                fd,
                at: None,
                len: 10,
            })
            .unwrap();
        assert_eq!(recorded, Recorded::NotTracked);
    }
    for path in ["/dev/null", "/proc/self/comm"] {
        let place = PathAt::absolute(Path::new(path));
        let change = Change::Open {
            place,
            flags: OFlags::WRONLY | OFlags::TRUNC | OFlags::CREATE,
        };
        assert_eq!(recorder.record(&change).unwrap(), Recorded::NotTracked, "{path}");
    }
    assert_eq!(recorder.describe().records, 0);
}

#[test]
fn epochs_out_of_order_are_named() {
    let stage = Stage::new();
    let mut recorder = recorder(&stage);
    let order = |result: Result<_>| matches!(result, Err(Error::Order { .. }));
    assert!(order(recorder.begin_epoch(2, 0, [])));
    assert!(order(recorder.begin_epoch(1, 1, [])));
    recorder.begin_epoch(1, 0, []).unwrap();
    recorder.begin_epoch(1, 0, []).unwrap();
    recorder.begin_epoch(2, 1, []).unwrap();
    assert!(order(recorder.begin_epoch(3, 0, [])));
    assert!(order(recorder.begin_epoch(1, 1, [])));
    recorder.begin_epoch(3, 1, []).unwrap();
}

#[test]
fn what_an_epoch_changed_is_handed_over_to_be_synced() {
    let stage = Stage::new();
    let mut recorder = Recorder::create(&stage.state, Options::new(Durability::Disk), 0).unwrap();
    let path = stage.root.join("a");
    recorder
        .record(&Change::Create {
            place: PathAt::absolute(&path),
            new: New::Thing,
        })
        .unwrap();
    let file = open(&path);
    write(&mut recorder, &file, Some(0), 10).unwrap();
    write(&mut recorder, &file, Some(10), 10).unwrap();
    let mut changed = recorder.begin_epoch(1, 0, []).unwrap();
    assert_eq!(changed.len(), 2, "the file and its directory");
    let mut handed = std::thread::spawn(move || {
        changed.sync_before_commit().unwrap();
        changed
    })
    .join()
    .unwrap();
    handed.sync_before_commit().unwrap();
    let mut next = recorder.begin_epoch(2, 1, []).unwrap();
    assert!(next.is_empty());
    next.take_over(handed);
    assert_eq!(next.len(), 2);
}

/// More files than descriptors are worth: their file system is synced as a whole.
#[test]
fn many_files_need_few_descriptors() {
    let stage = Stage::new();
    let mut recorder = Recorder::create(&stage.state, Options::new(Durability::Disk), 0).unwrap();
    for name in 0..600 {
        let path = stage.root.join(name.to_string());
        recorder
            .record(&Change::Create {
                place: PathAt::absolute(&path),
                new: New::Thing,
            })
            .unwrap();
        let file = open(&path);
        write(&mut recorder, &file, Some(0), 10).unwrap();
        if name > 400 {
            break;
        }
    }
    let mut changed = recorder.begin_epoch(1, 0, []).unwrap();
    assert!(changed.len() <= 257 && !changed.is_empty());
    changed.sync_before_commit().unwrap();
}

/// The state directory's link to a removed file goes away with a commit, in another thread: what was seen of the
/// file before still counts it.
#[test]
fn a_removed_file_is_nameless_before_and_after_its_link_goes() {
    let stage = Stage::new();
    let path = stage.root.join("a");
    std::fs::write(&path, b"content").unwrap();
    let mut recorder = recorder(&stage);
    let file = open(&path);
    let unlink = Change::Unlink {
        place: PathAt::absolute(&path),
        still_open: true,
    };
    assert_eq!(recorder.record(&unlink).unwrap(), Recorded::Saved);
    std::fs::remove_file(&path).unwrap();
    recorder.begin_epoch(1, 0, []).unwrap();
    let mut second = recorder.begin_epoch(2, 1, []).unwrap();
    let seen = rustix::fs::fstat(&file).unwrap();
    assert_eq!(seen.st_nlink, 1);
    assert_eq!(recorder.name_of(file.as_fd(), &seen).unwrap(), None);
    second.sync_before_commit().unwrap();
    assert_eq!(rustix::fs::fstat(&file).unwrap().st_nlink, 0);
    assert_eq!(recorder.name_of(file.as_fd(), &seen).unwrap(), None);
}
