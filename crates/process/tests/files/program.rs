//! A program that changes its files at random, every change recorded before it happens.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use twinpage_process::files::{Change, Error, Ident, New, OpenFile, PathAt, Recorded, Recorder, Target};

/// Random numbers that a seed repeats (SplitMix64).
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }

    pub(crate) fn bytes(&mut self, len: u64) -> Vec<u8> {
        let byte = self.next() as u8;
        (0..len).map(|at| byte.wrapping_add((at / 7) as u8)).collect()
    }
}

/// Whether a call failed does not matter: the recorder must cope with both.
fn done<T>(_: T) {}

/// Whether a change is of an open file that has no name: its content is not the recorder's.
fn is_nameless(recorder: &Recorder, change: &Change<'_>) -> bool {
    match change {
        Change::Write { fd, .. }
        | Change::Allocate { fd, .. }
        | Change::SetLen {
            target: Target::Open(fd),
            ..
        } => {
            let stat = rustix::fs::fstat(fd).unwrap();
            recorder.name_of(*fd, &stat).unwrap().is_none()
        }
        _ => false,
    }
}

/// The program: a few open files, a small tree, many changes.
pub(crate) struct Program {
    pub root: PathBuf,
    pub random: Random,
    open: Vec<(OwnedFd, bool)>,
    /// How many directories and names it uses: in a small world they meet more often.
    world: (u64, u64),
    /// Changes that were refused by name.
    pub refused: u64,
    /// Changes that happened.
    pub done: u64,
}

/// Where below the root the program works.
const WORK: &str = "work";
/// Files are shorter than this.
const LEN_MAX: u64 = 150_000;

impl Program {
    pub(crate) fn new(root: &Path, mut random: Random) -> Program {
        let world = (1 + random.below(10), 1 + random.below(6));
        Program {
            root: root.join(WORK),
            random,
            open: Vec::new(),
            world,
            refused: 0,
            done: 0,
        }
    }

    /// A tree to start from. A symbolic link that leads one up must not lead out of it.
    pub(crate) fn seed_tree(root: &Path, random: &mut Random) {
        let root = &root.join(WORK);
        std::fs::create_dir(root).unwrap();
        for dir in ["d", "d/e", "f"] {
            std::fs::create_dir(root.join(dir)).unwrap();
        }
        for name in ["a", "b", "d/a", "d/c", "d/e/b", "f/a"] {
            let len = random.below(LEN_MAX);
            std::fs::write(root.join(name), random.bytes(len)).unwrap();
        }
        std::os::unix::fs::symlink("d/a", root.join("c")).unwrap();
        std::os::unix::fs::symlink("../b", root.join("f/b")).unwrap();
        std::fs::hard_link(root.join("a"), root.join("f/c")).unwrap();
    }

    /// What a checkpoint would list.
    pub(crate) fn open_files(&self, recorder: &Recorder) -> Vec<OpenFile> {
        self.open
            .iter()
            .filter_map(|(fd, _)| recorder.open_file(fd.as_fd(), None).unwrap())
            .collect()
    }

    /// Closes everything, as the end of the program does.
    pub(crate) fn close_all(&mut self) {
        self.open.clear();
    }

    fn name(&mut self) -> PathBuf {
        let dirs = ["", "", "", "d", "d/e", "f", "d/../f", "a", "g", "f/d"];
        let names = ["a", "b", "c", "d", "e", "g"];
        let dir = dirs[self.random.below(self.world.0) as usize];
        self.root
            .join(dir)
            .join(names[self.random.below(self.world.1) as usize])
    }

    fn is_open(&self, path: &Path) -> bool {
        let Ok(meta) = std::fs::symlink_metadata(path) else {
            return false;
        };
        let ident = (meta.dev(), meta.ino());
        self.open.iter().any(|(fd, _)| {
            let stat = rustix::fs::fstat(fd).unwrap();
            (stat.st_dev, stat.st_ino) == ident
        })
    }

    /// Records a change and, if it may go ahead (and the call does not fail by chance), makes it.
    fn change(&mut self, recorder: &mut Recorder, change: &Change<'_>, then: impl FnOnce()) {
        match recorder.record(change) {
            Ok(recorded) => {
                assert!(
                    recorded != Recorded::NotTracked || is_nameless(recorder, change),
                    "{change:?}"
                );
                if !self.random.chance(12) {
                    then();
                    self.done += 1;
                }
            }
            Err(Error::Refused(_)) => self.refused += 1,
            Err(error) => panic!("{change:?}: {error}"),
        }
    }

    /// One change.
    pub(crate) fn step(&mut self, recorder: &mut Recorder) {
        match self.random.below(20) {
            0..=2 => self.open_file(recorder),
            3 if !self.open.is_empty() => {
                let at = self.random.below(self.open.len() as u64) as usize;
                self.open.swap_remove(at);
            }
            4..=9 if !self.open.is_empty() => self.change_content(recorder),
            10 | 11 => self.create(recorder),
            12 | 13 => self.remove(recorder),
            14..=16 => self.rename(recorder),
            17 if self.random.chance(2) => self.extended_attribute(recorder),
            17 => self.attributes(recorder),
            18 => {
                let path = self.name();
                let len = self.random.below(LEN_MAX);
                let target = Target::Named {
                    place: PathAt::absolute(&path),
                    follow: true,
                };
                if path.is_file() {
                    self.change(recorder, &Change::SetLen { target, len }, || {
                        let file = std::fs::OpenOptions::new().write(true).open(&path);
                        let _ = file.and_then(|file| file.set_len(len));
                    });
                }
            }
            _ => {
                let path = self.name();
                self.read(&path);
            }
        }
    }

    fn read(&self, path: &Path) {
        let _ = std::fs::read(path);
    }

    fn open_file(&mut self, recorder: &mut Recorder) {
        let path = self.name();
        let mut flags = OFlags::CLOEXEC;
        flags |= if self.random.chance(3) {
            OFlags::WRONLY
        } else {
            OFlags::RDWR
        };
        for (flag, one_in) in [
            (OFlags::CREATE, 2),
            (OFlags::TRUNC, 3),
            (OFlags::APPEND, 3),
            (OFlags::EXCL, 8),
            (OFlags::NOFOLLOW, 8),
        ] {
            if self.random.chance(one_in) {
                flags |= flag;
            }
        }
        if flags.contains(OFlags::EXCL) {
            flags |= OFlags::CREATE;
        }
        if path.is_dir() || self.open.len() > 5 {
            return;
        }
        let mut opened = None;
        let change = Change::Open {
            place: PathAt::absolute(&path),
            flags,
        };
        self.change(recorder, &change, || {
            opened = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o644)).ok();
        });
        if let Some(fd) = opened {
            self.open.push((fd, flags.contains(OFlags::APPEND)));
        }
    }

    fn change_content(&mut self, recorder: &mut Recorder) {
        let index = self.random.below(self.open.len() as u64) as usize;
        let (fd, append) = (
            self.open[index].0.as_fd().try_clone_to_owned().unwrap(),
            self.open[index].1,
        );
        let at = self.random.below(LEN_MAX);
        let len = if self.random.chance(3) {
            self.random.below(60_000)
        } else {
            self.random.below(300)
        };
        let bytes = self.random.bytes(len);
        match self.random.below(10) {
            0..=3 => {
                let change = Change::Write {
                    fd: fd.as_fd(),
                    at: None,
                    len,
                };
                self.change(recorder, &change, || done(rustix::io::write(&fd, &bytes)));
            }
            4..=6 if !append => {
                let change = Change::Write {
                    fd: fd.as_fd(),
                    at: Some(at),
                    len,
                };
                self.change(recorder, &change, || done(rustix::io::pwrite(&fd, &bytes, at)));
            }
            7 => done(rustix::fs::seek(&fd, rustix::fs::SeekFrom::Start(at))),
            8 => {
                let change = Change::SetLen {
                    target: Target::Open(fd.as_fd()),
                    len: at,
                };
                self.change(recorder, &change, || done(rustix::fs::ftruncate(&fd, at)));
            }
            _ => self.allocate(recorder, &fd, at, len + 1),
        }
    }

    fn allocate(&mut self, recorder: &mut Recorder, fd: &OwnedFd, at: u64, len: u64) {
        let modes = [
            FallocateFlags::empty(),
            FallocateFlags::KEEP_SIZE,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            FallocateFlags::ZERO_RANGE,
            FallocateFlags::COLLAPSE_RANGE,
            FallocateFlags::INSERT_RANGE,
        ];
        let mode = modes[self.random.below(modes.len() as u64) as usize];
        let (mut at, mut len) = (at, len);
        if mode.intersects(FallocateFlags::COLLAPSE_RANGE | FallocateFlags::INSERT_RANGE) {
            (at, len) = (at & !0xfff, len.next_multiple_of(4096)); // else the kernel refuses
        }
        let change = Change::Allocate {
            fd: fd.as_fd(),
            mode: mode.bits(),
            at,
            len,
        };
        self.change(recorder, &change, || {
            done(rustix::fs::fallocate(fd, mode, at, len))
        });
    }

    fn create(&mut self, recorder: &mut Recorder) {
        let (path, other) = (self.name(), self.name());
        let place = PathAt::absolute(&path);
        match self.random.below(4) {
            0 => self.change(
                recorder,
                &Change::Create {
                    place,
                    new: New::Thing,
                },
                || {
                    let _ = std::fs::create_dir(&path);
                },
            ),
            1 => self.change(
                recorder,
                &Change::Create {
                    place,
                    new: New::Thing,
                },
                || {
                    let _ = std::os::unix::fs::symlink("d/a", &path);
                },
            ),
            2 => {
                let old = Target::Named {
                    place: PathAt::absolute(&other),
                    follow: false,
                };
                recorder.note_link(old, place).unwrap();
                let new = New::Link;
                self.change(recorder, &Change::Create { place, new }, || {
                    let _ = std::fs::hard_link(&other, &path);
                });
            }
            _ => self.change(
                recorder,
                &Change::Create {
                    place,
                    new: New::Thing,
                },
                || {
                    let _ = rustix::fs::mknodat(CWD, &path, rustix::fs::FileType::RegularFile, Mode::RWXU, 0);
                },
            ),
        }
    }

    fn remove(&mut self, recorder: &mut Recorder) {
        let path = self.name();
        let (place, still_open) = (PathAt::absolute(&path), self.is_open(&path));
        if path.is_dir() && !path.is_symlink() {
            let change = Change::Rmdir { place };
            self.change(recorder, &change, || done(std::fs::remove_dir(&path)));
        } else {
            let change = Change::Unlink { place, still_open };
            self.change(recorder, &change, || done(std::fs::remove_file(&path)));
        }
    }

    fn rename(&mut self, recorder: &mut Recorder) {
        let (from, to) = (self.name(), self.name());
        let flags = match self.random.below(6) {
            0 => RenameFlags::NOREPLACE,
            1 => RenameFlags::EXCHANGE,
            _ => RenameFlags::empty(),
        };
        let change = Change::Rename {
            from: PathAt::absolute(&from),
            to: PathAt::absolute(&to),
            flags: flags.bits(),
            still_open: self.is_open(&to),
        };
        self.change(recorder, &change, || {
            let _ = rustix::fs::renameat_with(CWD, &from, CWD, &to, flags);
        });
    }

    fn extended_attribute(&mut self, recorder: &mut Recorder) {
        let path = self.name();
        let name = ["user.a", "user.b"][self.random.below(2) as usize];
        let len = self.random.below(200);
        let value = self.random.chance(3).then(|| self.random.bytes(len));
        let target = Target::Named {
            place: PathAt::absolute(&path),
            follow: true,
        };
        let attribute = Change::ExtendedAttribute {
            target,
            name: name.as_ref(),
        };
        self.change(recorder, &attribute, || match value {
            Some(value) => {
                let flags = rustix::fs::XattrFlags::empty();
                done(rustix::fs::setxattr(&path, name, &value, flags));
            }
            None => done(rustix::fs::removexattr(&path, name)),
        });
    }

    fn attributes(&mut self, recorder: &mut Recorder) {
        let path = self.name();
        let follow = self.random.chance(2);
        let flags = if follow {
            AtFlags::empty()
        } else {
            AtFlags::SYMLINK_NOFOLLOW
        };
        let change = Change::Attributes {
            target: Target::Named {
                place: PathAt::absolute(&path),
                follow,
            },
        };
        let mode = Mode::from_raw_mode(0o600 | (self.random.next() as u32 & 0o177));
        let owner = rustix::fs::Uid::from_raw(self.random.below(5) as u32);
        let secs = self.random.below(1 << 30) as i64;
        let root = rustix::process::geteuid().is_root();
        let what = self.random.below(3);
        self.change(recorder, &change, || match what {
            0 if follow => done(rustix::fs::chmodat(CWD, &path, mode | Mode::XUSR, flags)),
            1 if root => done(rustix::fs::chownat(CWD, &path, Some(owner), None, flags)),
            _ => {
                let time = rustix::fs::Timespec {
                    tv_sec: secs,
                    tv_nsec: 5,
                };
                let times = rustix::fs::Timestamps {
                    last_access: time,
                    last_modification: time,
                };
                let _ = rustix::fs::utimensat(CWD, &path, &times, flags);
            }
        });
    }
}

/// The lengths that `begin_epoch` wants.
pub(crate) fn sizes(open: &[OpenFile]) -> Vec<(Ident, u64)> {
    open.iter().map(|file| (file.file, file.size)).collect()
}
