//! Every operation by itself, and the orders of operations that are easy to get wrong. Each is
//! rolled back in one go, and again with the rollback killed before every single step it takes.

use crate::tree::Tree;
use crate::{MakeStage, Stage, killed_here};
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags};
use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use twinpage_process::files::{
    Change, Durability, Error, Ident, New, OpenFile, Options, PathAt, Recorded, Recorder, Target, rollback,
    rollback_watched,
};

/// A program at work: each method records a change and makes it.
struct Work<'a> {
    root: &'a Path,
    recorder: &'a mut Recorder,
    /// Changes that needed a record.
    saved: u32,
}

impl<'a> Work<'a> {
    fn new(stage: &'a Stage, recorder: &'a mut Recorder) -> Work<'a> {
        Work {
            root: &stage.root,
            recorder,
            saved: 0,
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn record(&mut self, change: Change<'_>) {
        let recorded = self.recorder.record(&change).unwrap();
        assert_ne!(recorded, Recorded::NotTracked, "{change:?}");
        self.saved += u32::from(recorded == Recorded::Saved);
    }

    fn open(&mut self, name: &str, flags: OFlags) -> File {
        let path = self.at(name);
        self.record(Change::Open {
            place: PathAt::absolute(&path),
            flags,
        });
        rustix::fs::open(&path, flags, Mode::from_raw_mode(0o640))
            .unwrap()
            .into()
    }

    fn write(&mut self, file: &File, bytes: &[u8]) {
        self.record(Change::Write {
            fd: file.as_fd(),
            at: None,
            len: bytes.len() as u64,
        });
        (&*file).write_all(bytes).unwrap();
    }

    fn write_at(&mut self, file: &File, at: u64, bytes: &[u8]) {
        self.record(Change::Write {
            fd: file.as_fd(),
            at: Some(at),
            len: bytes.len() as u64,
        });
        file.write_all_at(bytes, at).unwrap();
    }

    fn put(&mut self, name: &str, bytes: &[u8]) {
        let file = self.open(name, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC);
        self.write(&file, bytes);
    }

    fn truncate(&mut self, name: &str, len: u64) {
        let path = self.at(name);
        let target = Target::Named {
            place: PathAt::absolute(&path),
            follow: true,
        };
        self.record(Change::SetLen { target, len });
        OpenOptions::new()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(len)
            .unwrap();
    }

    fn allocate(&mut self, name: &str, mode: FallocateFlags, at: u64, len: u64) {
        let file = self.open(name, OFlags::RDWR);
        self.record(Change::Allocate {
            fd: file.as_fd(),
            mode: mode.bits(),
            at,
            len,
        });
        match rustix::fs::fallocate(&file, mode, at, len) {
            Err(rustix::io::Errno::OPNOTSUPP) => println!("NOTE: {mode:?} is not supported here"),
            done => done.unwrap(),
        }
    }

    fn mkdir(&mut self, name: &str) {
        let path = self.at(name);
        self.record(Change::Create {
            place: PathAt::absolute(&path),
            new: New::Thing,
        });
        std::fs::create_dir(path).unwrap();
    }

    fn symlink(&mut self, target: &str, name: &str) {
        let path = self.at(name);
        self.record(Change::Create {
            place: PathAt::absolute(&path),
            new: New::Thing,
        });
        std::os::unix::fs::symlink(target, path).unwrap();
    }

    fn link(&mut self, from: &str, to: &str) {
        let (from, to) = (self.at(from), self.at(to));
        self.record(Change::Create {
            place: PathAt::absolute(&to),
            new: New::Link,
        });
        let old = Target::Named {
            place: PathAt::absolute(&from),
            follow: false,
        };
        self.recorder.note_link(old, PathAt::absolute(&to)).unwrap();
        std::fs::hard_link(from, to).unwrap();
    }

    fn unlink(&mut self, name: &str) {
        let path = self.at(name);
        self.record(Change::Unlink {
            place: PathAt::absolute(&path),
            still_open: false,
        });
        std::fs::remove_file(path).unwrap();
    }

    fn unlink_open(&mut self, name: &str) {
        let path = self.at(name);
        self.record(Change::Unlink {
            place: PathAt::absolute(&path),
            still_open: true,
        });
        std::fs::remove_file(path).unwrap();
    }

    /// A write to a file that may have no name any more.
    fn write_nameless(&mut self, file: &File, at: u64, bytes: &[u8]) {
        let change = Change::Write {
            fd: file.as_fd(),
            at: Some(at),
            len: bytes.len() as u64,
        };
        self.recorder.record(&change).unwrap();
        file.write_all_at(bytes, at).unwrap();
    }

    fn set_attribute(&mut self, name: &str, attribute: &str, value: Option<&[u8]>) {
        let path = self.at(name);
        let target = Target::Named {
            place: PathAt::absolute(&path),
            follow: true,
        };
        self.record(Change::ExtendedAttribute {
            target,
            name: attribute.as_ref(),
        });
        let flags = rustix::fs::XattrFlags::empty();
        let set = match value {
            Some(value) => rustix::fs::setxattr(&path, attribute, value, flags),
            None => rustix::fs::removexattr(&path, attribute),
        };
        match set {
            Err(rustix::io::Errno::OPNOTSUPP) => println!("NOTE: {attribute} is not supported here"),
            set => set.unwrap(),
        }
    }

    fn rmdir(&mut self, name: &str) {
        let path = self.at(name);
        self.record(Change::Rmdir {
            place: PathAt::absolute(&path),
        });
        std::fs::remove_dir(path).unwrap();
    }

    fn rename(&mut self, from: &str, to: &str) {
        self.rename_with(from, to, RenameFlags::empty());
    }

    fn rename_with(&mut self, from: &str, to: &str, flags: RenameFlags) {
        let (old, new) = (self.at(from), self.at(to));
        let (from, to) = (PathAt::absolute(&old), PathAt::absolute(&new));
        self.record(Change::Rename {
            from,
            to,
            flags: flags.bits(),
            still_open: false,
        });
        rustix::fs::renameat_with(CWD, &old, CWD, &new, flags).unwrap();
    }

    fn attributes(&mut self, name: &str, follow: bool) -> PathBuf {
        let path = self.at(name);
        let target = Target::Named {
            place: PathAt::absolute(&path),
            follow,
        };
        self.record(Change::Attributes { target });
        path
    }

    fn chmod(&mut self, name: &str, mode: u32) {
        let path = self.attributes(name, true);
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    fn next_epoch(&mut self, epoch: u64, durable: u64) {
        self.recorder
            .begin_epoch(epoch, durable, [])
            .unwrap()
            .sync_before_commit()
            .unwrap();
    }
}

fn setup(root: &Path) {
    for dir in ["d", "d/e", "f", "empty"] {
        std::fs::create_dir(root.join(dir)).unwrap();
    }
    for (name, len) in [
        ("a", 10_000),
        ("b", 5_000),
        ("big", 2_500_000),
        ("d/a", 1),
        ("d/x", 300),
        ("f/x", 9_000),
    ] {
        let bytes: Vec<u8> = (0..len).map(|at: u32| (at / 3) as u8).collect();
        std::fs::write(root.join(name), bytes).unwrap();
    }
    std::fs::write(root.join("none"), "").unwrap();
    std::os::unix::fs::symlink("d/a", root.join("link")).unwrap();
    std::os::unix::fs::symlink("d/new", root.join("dangling")).unwrap();
    std::fs::hard_link(root.join("b"), root.join("d/b")).unwrap();
    for (name, kind) in [("fifo", FileType::Fifo), ("socket", FileType::Socket)] {
        rustix::fs::mknodat(CWD, root.join(name), kind, Mode::from_raw_mode(0o640), 0).unwrap();
    }
    let flags = rustix::fs::XattrFlags::empty();
    for name in ["f/x", "empty"] {
        let _ = rustix::fs::setxattr(root.join(name), "user.old", b"a value", flags); // where there are any
    }
    inheritance(root);
    let time = rustix::fs::Timespec {
        tv_sec: 1_000_000_000,
        tv_nsec: 123_456_789,
    };
    let times = rustix::fs::Timestamps {
        last_access: time,
        last_modification: time,
    };
    for name in ["a", "b", "big", "d", "empty", "f", "fifo", "link", "socket", "."] {
        rustix::fs::utimensat(CWD, root.join(name), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

/// A directory that gives what is made in it an access control list: some of that have it, and some have not.
fn inheritance(root: &Path) {
    const DEFAULT: &str = "system.posix_acl_default";
    let entry = |tag: u16, rights: u16, who: u32| {
        [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &who.to_le_bytes()].concat()
    };
    let (version, none) = (2_u32.to_le_bytes().to_vec(), u32::MAX);
    let entries = [
        version,
        entry(1, 7, none),  // the owner
        entry(2, 7, 1234),  // a user
        entry(4, 5, none),  // the group
        entry(16, 7, none), // the most for all but the owner
        entry(32, 5, none), // others
    ];
    let gives = root.join("gives");
    std::fs::create_dir(&gives).unwrap();
    match rustix::fs::setxattr(
        &gives,
        DEFAULT,
        &entries.concat(),
        rustix::fs::XattrFlags::empty(),
    ) {
        Err(rustix::io::Errno::OPNOTSUPP) => println!("NOTE: {DEFAULT} is not supported here"),
        set => set.unwrap(),
    }
    for name in ["has", "plain", "has/deep"] {
        std::fs::create_dir(gives.join(name)).unwrap();
    }
    for name in ["has/file", "file"] {
        std::fs::write(gives.join(name), name).unwrap();
    }
    rustix::fs::mknodat(
        CWD,
        gives.join("fifo"),
        FileType::Fifo,
        Mode::from_raw_mode(0o640),
        0,
    )
    .unwrap();
    for name in ["plain", "file", "fifo"] {
        for list in [DEFAULT, "system.posix_acl_access"] {
            let _ = rustix::fs::removexattr(gives.join(name), list); // only directories have the first
        }
    }
}

/// Does `work` on a fresh tree, then stops the rollback before step `kill`, then rolls back. Says
/// whether the rollback got as far as that step.
fn once(stage: &Stage, durability: Durability, work: &dyn Fn(&mut Work<'_>), kill: u64) -> bool {
    setup(&stage.root);
    let before = Tree::of(&stage.root);
    let mut recorder = Recorder::create(&stage.state, Options::new(durability), 0).unwrap();
    work(&mut Work::new(stage, &mut recorder));
    drop(recorder);
    let mut left = kill;
    let killed = rollback_watched(&stage.state, 0, &[], &[], &mut |what| {
        left = left.checked_sub(1).ok_or_else(|| killed_here(what))?;
        Ok(())
    });
    let reached = killed.is_err();
    if !matches!(killed, Ok(_) | Err(Error::Poisoned(_))) {
        killed.unwrap();
    }
    rollback(&stage.state, 0, &[], &[]).unwrap_or_else(|error| panic!("killed before step {kill}: {error}"));
    let differences = before.differences(&Tree::of(&stage.root));
    assert!(
        differences.is_empty(),
        "{durability:?}, killed before step {kill}:\n{differences}"
    );
    reached
}

/// `work` comes back, on one file system and two, under both durabilities, and with the rollback
/// killed before every step.
fn comes_back(work: &dyn Fn(&mut Work<'_>)) {
    let stages: [MakeStage; 3] = [Stage::new, Stage::apart, Stage::in_memory];
    let mut steps = 0;
    for stage in stages {
        while once(&stage(), Durability::Memory, work, steps) {
            steps += 1;
        }
        once(&stage(), Durability::Disk, work, steps / 2);
        steps = 0;
    }
}

#[test]
fn overwrites_come_back() {
    comes_back(&|work| {
        let file = work.open("a", OFlags::WRONLY);
        work.write(&file, b"over the start");
        work.write_at(&file, 9_990, b"over the end and behind it");
        work.write_at(&file, 20_000, b"far behind");
        work.write_at(&file, 5, b"again");
    });
}

#[test]
fn a_large_overwrite_comes_back() {
    comes_back(&|work| {
        let file = work.open("big", OFlags::RDWR);
        work.write_at(&file, 1_000, &vec![7; 2_400_000]);
    });
}

#[test]
fn appends_come_back() {
    comes_back(&|work| {
        let mut file = work.open("a", OFlags::WRONLY);
        file.seek(SeekFrom::End(0)).unwrap();
        work.write(&file, b"behind");
        let file = work.open("d/a", OFlags::WRONLY | OFlags::APPEND);
        work.write(&file, b"one");
        work.write(&file, b"two");
        let file = work.open("none", OFlags::WRONLY | OFlags::APPEND);
        work.write(&file, b"first");
    });
}

#[test]
fn lengths_come_back() {
    comes_back(&|work| {
        work.truncate("a", 100);
        work.truncate("a", 50_000);
        let file = work.open("a", OFlags::RDWR);
        work.write_at(&file, 50, &[1; 200]);
        work.truncate("b", 9_000);
        work.truncate("big", 0);
        work.truncate("none", 0);
        drop(work.open("d/x", OFlags::WRONLY | OFlags::TRUNC));
    });
}

#[test]
fn allocations_come_back() {
    comes_back(&|work| {
        work.allocate("a", FallocateFlags::empty(), 5_000, 20_000);
        work.allocate("b", FallocateFlags::KEEP_SIZE, 5_000, 20_000);
        work.allocate(
            "big",
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            10_000,
            1_200_000,
        );
        work.allocate("f/x", FallocateFlags::ZERO_RANGE, 8_000, 5_000);
    });
}

#[test]
fn new_things_go_away() {
    comes_back(&|work| {
        work.put("new", b"content");
        work.mkdir("newdir");
        work.put("newdir/file", b"more");
        work.mkdir("newdir/dir");
        work.symlink("a", "newlink");
        work.link("a", "hard");
        let file = work.open("dangling", OFlags::WRONLY | OFlags::CREATE);
        work.write(&file, b"through a link");
    });
}

#[test]
fn removed_things_come_back() {
    comes_back(&|work| {
        work.unlink("a");
        work.unlink("link");
        work.rmdir("empty");
        work.put("a", b"another");
        work.mkdir("link");
        work.put("empty", b"a file now");
        work.unlink("empty");
    });
}

#[test]
fn removed_named_pipes_and_sockets_come_back() {
    comes_back(&|work| {
        work.unlink("fifo");
        work.put("fifo", b"a file in its place");
        work.rename("a", "socket");
        work.unlink("socket");
    });
}

#[test]
fn changed_then_removed_comes_back() {
    comes_back(&|work| {
        let file = work.open("a", OFlags::RDWR);
        work.write_at(&file, 5, b"changed");
        work.chmod("a", 0o600);
        drop(file);
        work.rename("a", "d/moved");
        let file = work.open("d/moved", OFlags::RDWR);
        work.write_at(&file, 5_000, b"changed");
        drop(file);
        work.unlink("d/moved");
    });
}

#[test]
fn renames_come_back() {
    comes_back(&|work| {
        work.rename("a", "z");
        work.rename("z", "d/x");
        work.rename("d", "dd");
        work.rename("dd/e", "empty");
        work.rename("link", "a");
        work.rename_with("f/x", "f/y", RenameFlags::NOREPLACE);
        work.rename_with("f", "dd", RenameFlags::EXCHANGE);
        work.rename_with("none", "f", RenameFlags::EXCHANGE);
    });
}

#[test]
fn the_usual_way_to_save_comes_back() {
    comes_back(&|work| {
        for round in 0..3 {
            work.put("a.tmp", &[round; 3_000]);
            work.rename("a.tmp", "a");
        }
    });
}

/// What an epoch brings forth moves among the names that it brings forth: one record a name.
#[test]
fn what_was_born_moves_and_comes_back() {
    comes_back(&|work| {
        work.put("fresh", b"1");
        let before = work.saved;
        for round in 0..3 {
            work.rename("fresh", "d/kept");
            work.put("fresh", &[round; 3_000]);
            work.chmod("d/kept", 0o600);
        }
        assert_eq!(work.saved, before + 1);
        let file = work.open("d/kept", OFlags::RDWR);
        work.rename("d/kept", "fresh");
        work.write_at(&file, 1, b"through a name of before");
        work.link("fresh", "d/other");
        work.rename("fresh", "d/kept");
        work.rename("d/other", "third");
        work.symlink("a", "way");
        work.rename("way", "fresh");
        // Old files come under the names, and go again.
        work.rename("a", "way");
        work.rename("way", "d/kept");
        work.put("way", b"2");
        work.rename("way", "f/x");
        work.put("a", b"3");
        work.rename("a", "way");
        work.rename("d", "dd");
        work.rename("way", "d");
    });
}

#[test]
fn attributes_come_back() {
    comes_back(&|work| {
        work.chmod("a", 0o400);
        work.chmod("d", 0o711);
        let path = work.attributes("link", false);
        let time = rustix::fs::Timespec {
            tv_sec: 7,
            tv_nsec: 7,
        };
        let times = rustix::fs::Timestamps {
            last_access: time,
            last_modification: time,
        };
        rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        if rustix::process::geteuid().is_root() {
            let path = work.attributes("b", true);
            rustix::fs::chownat(
                CWD,
                path,
                Some(rustix::fs::Uid::from_raw(7)),
                None,
                AtFlags::empty(),
            )
            .unwrap();
        }
        let path = work.attributes("f/x", true);
        rustix::fs::utimensat(CWD, path, &times, AtFlags::empty()).unwrap();
    });
}

#[test]
fn a_set_user_id_file_keeps_its_mode() {
    comes_back(&|work| {
        work.chmod("a", 0o4755);
        work.next_epoch(1, 0);
        let file = work.open("a", OFlags::WRONLY | OFlags::APPEND);
        work.write(&file, b"clears the bit when not root");
        work.chmod("a", 0o700);
    });
}

#[test]
fn two_epochs_come_back() {
    comes_back(&|work| {
        let file = work.open("a", OFlags::RDWR);
        work.write_at(&file, 0, b"first");
        work.put("new", b"first");
        work.unlink("d/x");
        work.next_epoch(1, 0);
        work.write_at(&file, 0, b"second");
        let new = work.open("new", OFlags::RDWR);
        work.write_at(&new, 2, b"second");
        work.rename("new", "d/x");
        work.unlink("d/x");
        work.rmdir("empty");
    });
}

#[test]
fn an_epoch_captured_again_comes_back() {
    comes_back(&|work| {
        let file = work.open("a", OFlags::RDWR);
        work.write_at(&file, 0, b"first");
        work.next_epoch(1, 0);
        work.write_at(&file, 0, b"second");
        work.unlink("d/x");
        work.next_epoch(1, 0);
        work.write_at(&file, 0, b"third");
        work.put("d/x", b"again");
    });
}

/// A directory that was born and removed held an old file for a while.
#[test]
fn a_passing_directory_comes_back() {
    comes_back(&|work| {
        work.mkdir("passing");
        work.rename("a", "passing/a");
        work.rename("passing/a", "a2");
        work.rmdir("passing");
        work.mkdir("replaced");
        work.rename("b", "replaced/b");
        work.rename("replaced/b", "b2");
        work.rename("empty", "replaced");
    });
}

/// Undoing needs every state in between, also those of names that were born.
#[test]
fn a_directory_that_comes_and_goes_comes_back() {
    comes_back(&|work| {
        for _ in 0..3 {
            work.mkdir("passing");
            work.chmod("passing", 0o700);
            work.rmdir("passing");
            work.put("passing", b"a file");
            work.unlink("passing");
        }
    });
}

/// What is made again in a directory that is made again goes before it.
#[test]
fn a_directory_that_comes_and_goes_with_its_files_comes_back() {
    comes_back(&|work| {
        for _ in 0..3 {
            work.mkdir("passing");
            work.mkdir("passing/deep");
            work.put("passing/deep/file", b"a file");
            work.unlink("passing/deep/file");
            work.rmdir("passing/deep");
            work.rmdir("passing");
        }
        work.mkdir("passing");
        work.mkdir("passing/deep");
        work.put("passing/deep/file", b"which stays");
    });
}

/// Only the owner may write there, and for a while not even he.
#[test]
fn directories_that_lock_and_unlock_come_back() {
    comes_back(&|work| {
        work.mkdir("born");
        for (dir, round) in [("born", 0), ("d", 1), ("born", 2), ("d", 3)] {
            work.chmod(dir, 0o700);
            work.put(&format!("{dir}/{round}"), b"new");
            work.chmod(dir, 0o500);
        }
    });
}

/// A name that was born names something old after a link: its content must be saved.
#[test]
fn a_link_in_the_place_of_a_born_file_comes_back() {
    comes_back(&|work| {
        work.put("name", b"born");
        work.unlink("name");
        work.link("f/x", "name");
        let file = work.open("name", OFlags::RDWR);
        work.write_at(&file, 0, b"old after all");
    });
}

/// A born name below a directory names something old when another directory takes its place.
#[test]
fn removed_directories_come_back_with_their_extended_attributes_and_no_others() {
    comes_back(&|work| {
        work.rmdir("empty");
        work.rmdir("gives/plain");
        work.rmdir("gives/has/deep");
        work.unlink("gives/has/file");
        work.rmdir("gives/has");
        work.unlink("gives/file");
        work.unlink("gives/fifo");
        work.rmdir("gives");
    });
}

#[test]
fn replaced_directories_come_back_with_their_extended_attributes() {
    comes_back(&|work| {
        work.rename("gives/plain", "gives/has/deep");
        work.rename("gives/has/deep", "empty");
        work.unlink("gives/has/file");
        work.rename("empty", "gives/has");
    });
}

#[test]
fn an_exchanged_directory_comes_back() {
    comes_back(&|work| {
        work.unlink("d/x");
        work.put("d/x", b"born");
        work.rename("d", "dd");
        work.rename("f", "d");
        let file = work.open("d/x", OFlags::RDWR);
        work.write_at(&file, 0, b"old after all");
        drop(file);
        work.unlink("d/x");
    });
}

/// A mode that forbids writing came after the program opened the file.
#[test]
fn a_file_that_became_read_only_comes_back() {
    comes_back(&|work| {
        let file = work.open("a", OFlags::RDWR);
        work.chmod("a", 0o000);
        work.write_at(&file, 0, b"still written");
    });
}

#[test]
fn extended_attributes_come_back() {
    comes_back(&|work| {
        work.set_attribute("a", "user.new", Some(b"one"));
        work.set_attribute("a", "user.new", Some(b"two"));
        work.set_attribute("f/x", "user.old", Some(b"another value"));
        work.set_attribute("f/x", "user.old", None);
        work.set_attribute("d", "user.directory", Some(b"one"));
        work.unlink("f/x");
        work.put("born", b"new");
        work.set_attribute("born", "user.born", Some(b""));
    });
}

#[test]
fn ranges_taken_out_and_put_in_come_back() {
    comes_back(&|work| {
        work.allocate("big", FallocateFlags::COLLAPSE_RANGE, 8192, 65536);
        work.allocate("big", FallocateFlags::INSERT_RANGE, 4096, 8192);
        let file = work.open("big", OFlags::RDWR);
        work.write_at(&file, 0, b"in front");
        work.write_at(&file, 100_000, b"in what moved");
    });
}

/// Only data is saved: 4 GiB of hole cost a few records.
#[test]
fn a_large_sparse_file_comes_back_with_its_holes() {
    let stage = Stage::new();
    let path = stage.root.join("sparse");
    let file = OpenOptions::new()
        .create_new(true)
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let marks: [(u64, &[u8]); 3] = [(0, b"first"), (1 << 31, b"middle"), ((1 << 32) - 4, b"last")];
    for (at, bytes) in marks {
        file.write_all_at(bytes, at).unwrap();
    }
    file.sync_all().unwrap();
    let blocks = std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap());
    let options = Options {
        bytes_max: 1 << 20,
        ..Options::new(Durability::Memory)
    };
    let mut recorder = Recorder::create(&stage.state, options, 0).unwrap();
    let mut work = Work::new(&stage, &mut recorder);
    work.allocate(
        "sparse",
        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        1 << 20,
        3 << 30,
    );
    work.truncate("sparse", 100);
    work.write_at(&file, 1 << 30, b"where nothing was");
    drop(recorder);
    rollback(&stage.state, 0, &[], &[]).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 1 << 32);
    for (at, bytes) in marks {
        let mut read = vec![0; bytes.len()];
        file.read_exact_at(&mut read, at).unwrap();
        assert_eq!(read, bytes, "at {at}");
    }
    let mut hole = [1; 32];
    file.read_exact_at(&mut hole, 1 << 30).unwrap();
    assert_eq!(hole, [0; 32]);
    file.sync_all().unwrap();
    assert_eq!(
        std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap()),
        blocks
    );
}

/// Removed while open, it is written all the same: until a checkpoint knows it without its name, the rollback
/// gives it the name back, and the content it had.
#[test]
fn a_file_written_after_it_was_removed_comes_back() {
    comes_back(&|work| {
        let file = work.open("a", OFlags::RDWR);
        work.unlink_open("a");
        work.write_nameless(&file, 0, b"written without a name");
        work.write_nameless(&file, 1 << 20, b"and longer");
        work.put("a", b"another under the same name");
        let other = work.open("a", OFlags::RDWR);
        work.unlink_open("a");
        work.write_nameless(&other, 3, b"and that one too");
        work.put("a", b"a third");
    });
}

#[test]
fn a_file_written_after_it_was_replaced_comes_back() {
    comes_back(&|work| {
        let old = work.open("a", OFlags::RDWR);
        work.put("new", b"new");
        work.rename("new", "a");
        work.write_nameless(&old, 0, b"the replaced one");
        work.put("newer", b"newer");
        work.rename("newer", "a");
    });
}

/// Its other name is known because the program gave it, before or after it opened the file.
#[test]
fn a_file_written_through_the_name_it_was_opened_by_and_lost_comes_back() {
    comes_back(&|work| {
        work.link("a", "second");
        let file = work.open("a", OFlags::RDWR);
        work.unlink_open("a");
        work.write_at(&file, 0, b"through the lost name");
        work.chmod("second", 0o600);
        work.unlink_open("second");
        work.write_nameless(&file, 2, b"through none");
    });
}

#[test]
fn a_file_emptied_through_names_of_all_kinds_comes_back() {
    let stage = Stage::new();
    setup(&stage.root);
    let before = Tree::of(&stage.root);
    let mut recorder = Recorder::create(&stage.state, Options::new(Durability::Memory), 0).unwrap();
    let dir = File::open(stage.root.join("d/e")).unwrap();
    let names = ["../a", "../../a", "../../link", "./../../b"];
    for name in names.map(Path::new) {
        let change = Change::Open {
            place: PathAt::at(dir.as_fd(), name),
            flags: OFlags::WRONLY | OFlags::TRUNC,
        };
        recorder.record(&change).unwrap();
        let flags = OFlags::WRONLY | OFlags::TRUNC;
        rustix::fs::openat(&dir, name, flags, Mode::empty()).unwrap();
    }
    drop(recorder);
    rollback(&stage.state, 0, &[], &[]).unwrap();
    assert_eq!(before.differences(&Tree::of(&stage.root)), "");
}

#[test]
fn a_file_open_only_for_writing_is_saved() {
    let stage = Stage::new();
    setup(&stage.root);
    let before = Tree::of(&stage.root);
    let mut recorder = Recorder::create(&stage.state, Options::new(Durability::Memory), 0).unwrap();
    let file = OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_CLOEXEC)
        .open(stage.root.join("a"))
        .unwrap();
    let mut work = Work::new(&stage, &mut recorder);
    work.write(&file, b"write-only");
    drop(recorder);
    rollback(&stage.state, 0, &[], &[]).unwrap();
    assert_eq!(before.differences(&Tree::of(&stage.root)), "");
}

/// Takes the inode number `number`, which was freed near `name`, and all that the file system gives out before it, for
/// files in `away`; leaves no trace where `name` is.
fn take_number(name: &Path, number: u64, away: &Path) {
    let dir = name.parent().unwrap();
    let stat = rustix::fs::stat(dir).unwrap();
    // A file system that gives no number out twice needs none of it.
    for _ in 0..500 {
        let taker = dir.join("taker");
        File::create(&taker).unwrap();
        let ino = rustix::fs::stat(&taker).unwrap().st_ino;
        std::fs::rename(taker, away.join(ino.to_string())).unwrap();
        if ino == number {
            break;
        }
    }
    let time = rustix::fs::Timespec {
        tv_sec: stat.st_mtime,
        tv_nsec: stat.st_mtime_nsec.cast_signed(),
    };
    let times = rustix::fs::Timestamps {
        last_access: time,
        last_modification: time,
    };
    rustix::fs::utimensat(CWD, dir, &times, AtFlags::empty()).unwrap();
}

/// Between two checkpoints a program may be killed often: each rollback finds the files that the last lists.
#[test]
fn an_open_file_made_again_is_found_by_every_rollback_to_its_checkpoint() {
    let stage = Stage::apart();
    setup(&stage.root);
    let before = Tree::of(&stage.root);
    let path = stage.root.join("a");
    let stat = rustix::fs::stat(&path).unwrap();
    let listed = [OpenFile {
        path: path.clone(),
        file: Ident::from(&stat),
        size: stat.st_size as u64,
        mtime: (stat.st_mtime, stat.st_mtime_nsec as u32),
    }];
    let away = tempfile::tempdir_in(stage.root.parent().unwrap()).unwrap();
    let mut numbers = HashSet::new();
    for life in 0..8 {
        let mut recorder = Recorder::create(&stage.state, Options::new(Durability::Memory), 1).unwrap();
        let mut work = Work::new(&stage, &mut recorder);
        let file = work.open("a", OFlags::RDWR);
        work.write_at(&file, 7, b"other bytes");
        let number = rustix::fs::fstat(&file).unwrap().st_ino;
        work.unlink_open("a");
        drop(file);
        work.unlink("big");
        work.put("a", b"another of the name");
        drop(recorder);
        // Whatever held the file is gone: another gets its number, and the file that comes back a new one.
        take_number(&path, number, away.path());
        let mut left: u32 = 3 * life;
        let _ = rollback_watched(&stage.state, 1, &listed, &[], &mut |what| {
            left = left.checked_sub(1).ok_or_else(|| killed_here(what))?;
            Ok(())
        });
        let done = rollback(&stage.state, 1, &listed, &[]).unwrap();
        assert_eq!(before.differences(&Tree::of(&stage.root)), "", "life {life}");
        let now = Ident::from(&rustix::fs::stat(&path).unwrap());
        assert!(
            done.moved.contains(&(listed[0].file, now)),
            "life {life}: {:?}",
            done.moved
        );
        numbers.insert(now.ino);
    }
    assert!(
        numbers.len() > 1,
        "the file had the same inode number in all lives"
    );
}

/// What an abandoned epoch changed belongs to the checkpoint when the epoch is captured again, though its records
/// are names and a rollback is killed before any of its steps.
#[test]
fn an_epoch_that_was_captured_again_stays() {
    let killed = |kill: u64| {
        let stage = Stage::new();
        setup(&stage.root);
        let options = Options {
            names_in_order: Some(true),
            ..Options::new(Durability::Disk)
        };
        let mut recorder = Recorder::create(&stage.state, options, 0).unwrap();
        let abandoned = recorder.begin_epoch(1, 0, []).unwrap();
        Work::new(&stage, &mut recorder).unlink("a");
        recorder.begin_epoch(1, 0, []).unwrap().take_over(abandoned);
        let captured = Tree::of(&stage.root);
        let mut work = Work::new(&stage, &mut recorder);
        work.put("a", b"of the next epoch");
        work.unlink("b");
        drop(recorder);
        let mut left = kill;
        let first = rollback_watched(&stage.state, 1, &[], &[], &mut |what| {
            left = left.checked_sub(1).ok_or_else(|| killed_here(what))?;
            Ok(())
        });
        rollback(&stage.state, 1, &[], &[])
            .unwrap_or_else(|error| panic!("killed before step {kill}: {error}"));
        let differences = captured.differences(&Tree::of(&stage.root));
        assert_eq!(differences, "", "killed before step {kill}");
        first.is_err()
    };
    let steps = (0..).take_while(|kill| killed(*kill)).count();
    assert!(steps > 5, "{steps} steps");
}
