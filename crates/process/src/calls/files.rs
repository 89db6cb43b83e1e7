//! Calls that change files: what they destroy is recorded before they run.
//!
//! * Where the kernel will refuse a call itself, it is let run, and nothing is recorded.
//! * What the recorder refuses, the program sees refused. For what it has no room for, the thread waits until a
//!   checkpoint has emptied the undo log. Any other error of it ends the run.
//! * What would not be there after a resume, as a device or a named pipe, is refused when it is opened.

use super::within::Sender;
use super::{Decision, Start, Stopped, do_without, fail, not_there};
use crate::credentials;
use crate::descriptors::{self, DescriptorKind};
use crate::error::{Error, Result};
use crate::files::{self, Change, Ident, New, PathAt, Recorded, Recorder, Refusal, Target};
use crate::kernel::Settings;
use crate::message;
use crate::netlink::is_netlink;
use crate::objects::Objects;
use crate::program::{Program, Until};
use crate::ptys;
use rustix::fs::{AtFlags, FileType, OFlags, Stat};
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;
use twinpage_os::name;
use twinpage_os::remote::Process;

/// Records what `change` destroys. A refusal of the recorder becomes one of the call.
fn record(objects: &mut Objects, files: &mut Recorder, change: &Change<'_>) -> Result<Decision> {
    note_objects(objects, change);
    match files.record(change) {
        Ok(Recorded::Saved | Recorded::Covered | Recorded::NotTracked) => Ok(Decision::Run),
        Err(files::Error::Refused(refusal)) => Ok(fail(errno_of(&refusal), refusal.to_string())),
        Err(error @ files::Error::Full { by_bound, .. }) => Ok(Decision::Unkeepable {
            by_bound,
            why: error.to_string(),
        }),
        Err(error) => Err(error.into()),
    }
}

/// What a change may do to a file whose content the checkpoint holds is looked at again.
fn note_objects(objects: &mut Objects, change: &Change<'_>) {
    if objects.is_empty() {
        return;
    }
    let found = match *change {
        Change::Write { fd, at, len } => rustix::fs::fstat(fd).map(|stat| {
            // Behind the old end everything is looked at anyway.
            let at = at.unwrap_or_else(|| rustix::fs::tell(fd).unwrap_or(0));
            (stat, at..at.saturating_add(len))
        }),
        Change::SetLen { target, len } => stat_of(target).map(|stat| (stat, len..u64::MAX)),
        Change::Allocate { fd, at, .. } => rustix::fs::fstat(fd).map(|stat| (stat, at..u64::MAX)),
        Change::Open { place, flags } if flags.contains(OFlags::TRUNC) => {
            stat_of(Target::Named { place, follow: true }).map(|stat| (stat, 0..u64::MAX))
        }
        _ => return,
    };
    if let Ok((stat, range)) = found {
        objects.changed(Ident::from(&stat), range);
    }
}

/// openat2(2): the name begins at the directory it is given with.
const RESOLVE_IN_ROOT: u64 = 0x10;

/// How long a change waits for a checkpoint that makes room.
const PATIENCE: Duration = Duration::from_secs(60);

impl Program {
    /// What becomes of a call that destroys what there is no room to keep. The program is not to see a full disk that is
    /// its state's and not its own, so the thread stands until the undo log is empty. What finds no room even then is a
    /// change beyond the log's bound, or the disk is full of other things; the same is taken for sure where no checkpoint
    /// comes, which may wait for the end of the very process that makes the call.
    pub(super) fn without_room(&mut self, call: &Stopped, by_bound: bool, why: String) -> Result<Decision> {
        let stood = self.may_pass(call.tid, &call.made) || self.tried_for(call.tid, &call.made) > PATIENCE;
        if !self.may_stand() || stood && by_bound {
            return Ok(Decision::Unkeepable { by_bound, why });
        }
        if stood && !self.goes_on_when_full {
            return Err(Error::no_room(why));
        }
        if stood {
            self.notes.say(&format!(
                "{why}; until there is room, the program waits in {}",
                call.name
            ));
        }
        Ok(Decision::Stand(Until::Keepable))
    }

    /// Records what `change` destroys. A refusal of the recorder becomes one of the call.
    pub(super) fn record(&mut self, change: &Change<'_>) -> Result<Decision> {
        record(&mut self.objects, &mut self.files, change)
    }

    pub(super) fn before_open(&mut self, call: &Stopped) -> Result<Decision> {
        if self.caller.is_none() {
            self.descriptors.give(0);
        }
        let Some((dirfd, path, flags)) = self.opening(call) else {
            return Ok(Decision::Run);
        };
        let makes = flags.intersects(OFlags::CREATE | OFlags::TRUNC);
        // A name that begins at another root would be taken for another file's.
        if call.name == "openat2" && makes && self.begins_at_other_root(call) {
            return Ok(not_there(libc::ENOSYS));
        }
        let Some((start, path)) = self.named((dirfd, path)) else {
            return Ok(Decision::Run);
        };
        if path.starts_with("/proc") {
            self.give_processors_back(); // `status` lists them
            if path == Path::new("/proc/sysvipc/shm") {
                return Ok(not_there(libc::ENOENT)); // the kernel's: shmctl(2) lists the tree's own
            }
            if let Some(group) = self.group_as_known(&path, flags) {
                return self.show_group(call.tid, group, flags);
            }
        }
        let there = rustix::fs::statat(&start, &path, AtFlags::empty()).ok();
        if let Some(fd) = self.descriptor_named(&path) {
            return self.before_opening_again(fd, flags, there.as_ref());
        }
        let refused = there.and_then(|stat| self.refuse_special(start.as_fd(), &path, &stat));
        if let Some(refused) = refused {
            return Ok(refused);
        }
        if flags.contains(OFlags::TRUNC) {
            self.before_truncate(start.as_fd(), &path);
        }
        let place = place(&start, &path);
        if !makes || there.is_some_and(|stat| !self.files.is_tracked_at(place, &stat)) {
            return Ok(Decision::Run);
        }
        self.record(&Change::Open { place, flags })
    }

    /// Where a call that opens a file looks for it, by which name, and how it opens it.
    pub(super) fn opening(&self, call: &Stopped) -> Option<(i32, u64, OFlags)> {
        let [first, second, third, ..] = call.arguments;
        let (dirfd, path, flags) = match call.name {
            "open" => (libc::AT_FDCWD, first, second),
            "creat" => (
                libc::AT_FDCWD,
                first,
                (libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC) as u64,
            ),
            "openat2" => (call.int(0), second, self.caller().read_u64(third).ok()?),
            _ => (call.int(0), second, third),
        };
        Some((dirfd, path, OFlags::from_bits_retain(flags as u32)))
    }

    /// `resolve` of a struct open_how: openat2(2).
    pub(super) fn begins_at_other_root(&self, call: &Stopped) -> bool {
        let resolve = self.caller().read_u64(call.arguments[2] + 16);
        resolve.is_ok_and(|resolve| resolve & RESOLVE_IN_ROOT != 0)
    }

    /// What is behind one of the caller's descriptors is opened once more.
    fn before_opening_again(&mut self, fd: i32, flags: OFlags, there: Option<&Stat>) -> Result<Decision> {
        let is_file =
            there.is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
        if !is_file || !flags.contains(OFlags::TRUNC) {
            return Ok(Decision::Run);
        }
        self.before_truncate_of(fd);
        self.with_fd(fd, |file| Change::SetLen {
            target: Target::Open(file),
            len: 0,
        })
    }

    pub(super) fn before_write(&mut self, call: &Stopped) -> Result<Decision> {
        let a = call.arguments;
        let offset = |at: u64| (at != u64::MAX).then_some(at);
        let (fd, at, len) = match call.name {
            "write" => (call.int(0), None, Some(a[2])),
            "writev" => (call.int(0), None, self.listed_bytes(a[1], a[2])),
            "pwrite64" => (call.int(0), Some(a[3]), Some(a[2])),
            "pwritev" => (call.int(0), Some(a[3]), self.listed_bytes(a[1], a[2])),
            "pwritev2" => (call.int(0), offset(a[3]), self.listed_bytes(a[1], a[2])),
            "sendfile" => (call.int(0), None, Some(a[3])),
            _ => (
                call.int(2),
                if a[3] == 0 {
                    None
                } else {
                    self.caller().read_u64(a[3]).ok()
                },
                Some(a[4]),
            ),
        };
        let Some(len) = len else {
            return Ok(Decision::Run);
        };
        let is_first = self.caller.is_none();
        if self.writes_durably(call, fd) {
            let decision = self.stands_until_durable(call);
            if decision != Decision::Run {
                return Ok(decision);
            }
        }
        if is_first && self.goes_freely(fd) {
            return Ok(Decision::Run);
        }
        if let Some(decision) = self.before_next_reply(call) {
            return Ok(decision);
        }
        if let Some(fd) = self.descriptors.known_file(fd).filter(|_| is_first) {
            return record(&mut self.objects, &mut self.files, &Change::Write { fd, at, len });
        }
        let Ok(fd) = self.caller().duplicate_fd(fd) else {
            return Ok(Decision::Run);
        };
        let Ok(stat) = rustix::fs::fstat(&fd) else {
            return Ok(Decision::Run); // the kernel will refuse it
        };
        let is_regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let is_socket = FileType::from_raw_mode(stat.st_mode) == FileType::Socket;
        let sender = is_socket.then(|| self.sender(fd.as_fd(), stat.st_ino)).flatten();
        if let Some(sender) = sender
            && self.is_held(call, fd.as_fd(), sender)
        {
            return Ok(self.before_reply(call, fd, sender));
        }
        if sender.is_some_and(Sender::may_be_netlink) && is_netlink(fd.as_fd()) {
            return Ok(self.before_question(call));
        }
        if !is_regular {
            self.before_typing(&fd, &stat);
            let empty = call.name != "sendfile" && self.sends_empty_message(&fd, len);
            return Ok(if empty {
                super::pairs::empty_message()
            } else {
                Decision::Run
            });
        }
        if !self.files.is_tracked(&fd, &stat)? {
            return Ok(self.before_setting(&fd));
        }
        self.record(&Change::Write {
            fd: fd.as_fd(),
            at,
            len,
        })
    }

    /// Whether the program's bytes go through a descriptor with nothing to look at first: no file is changed, and no reply
    /// is held.
    pub(super) fn goes_freely(&self, fd: i32) -> bool {
        match self.descriptors.known(fd).map(|known| &known.kind) {
            Some(DescriptorKind::Pipe { .. } | DescriptorKind::Fifo { .. } | DescriptorKind::Event) => true,
            Some(DescriptorKind::Connection(_)) => self.sockets.holds().is_none(),
            _ => false,
        }
    }

    /// A write to a file of `/proc` or `/sys` sets something: what can be read again is.
    fn before_setting(&mut self, fd: &OwnedFd) -> Decision {
        let link = std::fs::read_link(name::of_open(fd)).unwrap_or_default();
        let own = link.strip_prefix(format!("/proc/{}", self.caller().pid())).ok();
        let name = own.and_then(Path::file_name).and_then(OsStr::to_str);
        match name {
            Some("mem" | "clear_refs") => {} // memory, and marks that nothing here relies on
            Some("comm" | "timerslack_ns") => self.renew_threads(),
            Some(Settings::OOM_SCORE_ADJ | Settings::COREDUMP_FILTER | Settings::AUTOGROUP | "oom_adj") => {
                let caller = self.caller.as_ref().map(Process::pid);
                self.members.renew_settings(caller);
                match caller {
                    None => self.stale.settings = true,
                    Some(pid) if name == Some(Settings::AUTOGROUP) => {
                        self.descendants
                            .is_unfit(pid, "write (to its scheduling group in /proc)");
                    }
                    Some(_) => {}
                }
            }
            _ => {
                return fail(
                    libc::EACCES,
                    format!(
                        "what {} sets is not captured; set it before the run",
                        link.display()
                    ),
                );
            }
        }
        Decision::Run
    }

    /// Bytes of the buffers of a list.
    pub(super) fn listed_bytes(&self, at: u64, count: u64) -> Option<u64> {
        Some(message::len(&self.buffers(at, count)?) as u64)
    }

    pub(super) fn before_change(&mut self, call: &Stopped) -> Result<Decision> {
        let a = call.arguments;
        self.before_change_of_length(call);
        match call.name {
            "ftruncate" => self.with_fd(call.int(0), |fd| Change::SetLen {
                target: Target::Open(fd),
                len: a[1],
            }),
            "truncate" => self.with_place(libc::AT_FDCWD, a[0], |place| Change::SetLen {
                target: Target::Named { place, follow: true },
                len: a[1],
            }),
            "fallocate" => self.with_fd(call.int(0), |fd| Change::Allocate {
                fd,
                mode: a[1] as u32,
                at: a[2],
                len: a[3],
            }),
            "mknod" => {
                self.note_fifo(libc::AT_FDCWD, a[0], a[1]);
                self.with_place(libc::AT_FDCWD, a[0], new_thing)
            }
            "mknodat" => {
                self.note_fifo(call.int(0), a[1], a[2]);
                self.with_place(call.int(0), a[1], new_thing)
            }
            "mkdir" => self.with_place(libc::AT_FDCWD, a[0], new_thing),
            "mkdirat" => self.with_place(call.int(0), a[1], new_thing),
            "symlink" => self.with_place(libc::AT_FDCWD, a[1], new_thing),
            "symlinkat" => self.with_place(call.int(1), a[2], new_thing),
            "link" => self.before_link((libc::AT_FDCWD, a[0]), (libc::AT_FDCWD, a[1]), 0),
            "linkat" => self.before_link((call.int(0), a[1]), (call.int(2), a[3]), call.int(4)),
            "unlink" => self.before_remove(libc::AT_FDCWD, a[0], false),
            "rmdir" => self.before_remove(libc::AT_FDCWD, a[0], true),
            "unlinkat" => self.before_remove(call.int(0), a[1], call.int(2) & libc::AT_REMOVEDIR != 0),
            "rename" => self.before_rename((libc::AT_FDCWD, a[0]), (libc::AT_FDCWD, a[1]), 0),
            "renameat" => self.before_rename((call.int(0), a[1]), (call.int(2), a[3]), 0),
            "renameat2" => self.before_rename((call.int(0), a[1]), (call.int(2), a[3]), a[4] as u32),
            "setxattr" | "removexattr" => self.before_extended(call, true),
            "lsetxattr" | "lremovexattr" => self.before_extended(call, false),
            "fsetxattr" | "fremovexattr" => match self.text(a[1]) {
                Some(name) => {
                    let name = name.into_os_string();
                    match self.caller().duplicate_fd(call.int(0)) {
                        Ok(fd) => self.record(&Change::ExtendedAttribute {
                            target: Target::Open(fd.as_fd()),
                            name: &name,
                        }),
                        Err(_) => Ok(Decision::Run), // the kernel will refuse it
                    }
                }
                None => Ok(Decision::Run),
            },
            _ => self.before_attributes(call),
        }
    }

    /// An extended attribute of a named file is set or removed.
    fn before_extended(&mut self, call: &Stopped, follow: bool) -> Result<Decision> {
        let names = (
            self.named((libc::AT_FDCWD, call.arguments[0])),
            self.text(call.arguments[1]),
        );
        let (Some((start, path)), Some(name)) = names else {
            return Ok(Decision::Run);
        };
        self.record(&Change::ExtendedAttribute {
            target: Target::Named {
                place: place(&start, &path),
                follow,
            },
            name: name.as_os_str(),
        })
    }

    fn before_attributes(&mut self, call: &Stopped) -> Result<Decision> {
        if !can_own(call) {
            return Ok(do_without(
                libc::EPERM, // as alone; the kernel knows nothing of such an owner, and would say EINVAL
                "without privileges a file can be given to the user and the first group of who runs twinpage alone",
            ));
        }
        let a = call.arguments;
        let (dirfd, path, flags) = match call.name {
            "fchmod" | "fchown" => (call.int(0), 0, 0),
            "lchown" => (libc::AT_FDCWD, a[0], libc::AT_SYMLINK_NOFOLLOW),
            "chmod" | "chown" | "utime" | "utimes" => (libc::AT_FDCWD, a[0], 0),
            "fchmodat2" | "utimensat" => (call.int(0), a[1], call.int(3)),
            "fchownat" => (call.int(0), a[1], call.int(4)),
            _ => (call.int(0), a[1], 0), // fchmodat, futimesat
        };
        if path == 0 {
            return self.with_fd(dirfd, |fd| Change::Attributes {
                target: Target::Open(fd),
            });
        }
        let Some((start, path)) = self.named((dirfd, path)) else {
            return Ok(Decision::Run); // the kernel will refuse it
        };
        let target = match path.as_os_str().is_empty() && flags & libc::AT_EMPTY_PATH != 0 {
            true => Target::Open(start.as_fd()),
            false => Target::Named {
                place: place(&start, &path),
                follow: flags & libc::AT_SYMLINK_NOFOLLOW == 0,
            },
        };
        self.record(&Change::Attributes { target })
    }

    fn before_remove(&mut self, dirfd: i32, path: u64, directory: bool) -> Result<Decision> {
        let Some((start, path)) = self.named((dirfd, path)) else {
            return Ok(Decision::Run);
        };
        let there = entry(&start, &path);
        let still_open = !directory && there.is_some_and(|stat| self.is_open_by_another_name(&stat));
        if let Some(stat) = there {
            self.descriptors.touch_name(&stat);
        }
        let place = place(&start, &path);
        // A directory in use can be made again without a name: it is empty.
        self.stale.directory |= directory;
        self.record(&if directory {
            Change::Rmdir { place }
        } else {
            Change::Unlink { place, still_open }
        })
    }

    fn before_link(&mut self, from: (i32, u64), to: (i32, u64), flags: i32) -> Result<Decision> {
        let (Some((from_start, from)), Some((to_start, to))) = (self.named(from), self.named(to)) else {
            return Ok(Decision::Run); // the kernel will refuse it
        };
        let decision = self.record(&Change::Create {
            place: place(&to_start, &to),
            new: New::Link,
        })?;
        if decision == Decision::Run {
            let follow = flags & libc::AT_SYMLINK_FOLLOW != 0;
            let target = if from.as_os_str().is_empty() {
                Target::Open(from_start.as_fd()) // AT_EMPTY_PATH
            } else {
                Target::Named {
                    place: place(&from_start, &from),
                    follow,
                }
            };
            // A descriptor of a file without a name changes its meaning.
            if let Ok(stat) = stat_of(target) {
                self.descriptors.touch_file(Ident::from(&stat));
            }
            self.files.note_link(target, place(&to_start, &to))?;
        }
        Ok(decision)
    }

    fn before_rename(&mut self, from: (i32, u64), to: (i32, u64), flags: u32) -> Result<Decision> {
        let (Some((from_start, from)), Some((to_start, to))) = (self.named(from), self.named(to)) else {
            return Ok(Decision::Run); // the kernel will refuse it
        };
        let (moved, replaced) = (entry(&from_start, &from), entry(&to_start, &to));
        let still_open = replaced.is_some_and(|stat| self.is_open_by_another_name(&stat));
        for stat in moved.iter().chain(&replaced) {
            self.touch_moved(stat);
        }
        self.stale.directory = true;
        self.record(&Change::Rename {
            from: place(&from_start, &from),
            to: place(&to_start, &to),
            flags,
            still_open,
        })
    }

    fn with_fd(
        &mut self,
        fd: i32,
        change: impl for<'a> FnOnce(BorrowedFd<'a>) -> Change<'a>,
    ) -> Result<Decision> {
        match self.caller().duplicate_fd(fd) {
            Ok(fd) => self.record(&change(fd.as_fd())),
            Err(_) => Ok(Decision::Run), // the kernel will refuse it
        }
    }

    fn with_place(
        &mut self,
        dirfd: i32,
        path: u64,
        change: impl for<'a> FnOnce(PathAt<'a>) -> Change<'a>,
    ) -> Result<Decision> {
        match self.named((dirfd, path)) {
            Some((start, path)) => self.record(&change(place(&start, &path))),
            None => Ok(Decision::Run), // the kernel will refuse it
        }
    }

    /// Whether the program or a descendant has open a file that has several names. One that loses its only name needs no
    /// other, so that the processes need not be asked.
    fn is_open_by_another_name(&mut self, stat: &Stat) -> bool {
        if stat.st_nlink <= 1 {
            return false;
        }
        let file = Ident::from(stat);
        if self.objects.find(file).is_some() {
            return true; // mapped, perhaps
        }
        self.has_open(file)
    }

    /// The same, of a file that is never mapped.
    pub(super) fn has_open(&self, file: Ident) -> bool {
        let mut living = self.descendants.living().into_iter();
        self.descriptors.has_open(&self.process, file) || living.any(|pid| descriptors::is_open_in(pid, file))
    }

    /// A name moves, with all names below it: descriptors are listed by name.
    fn touch_moved(&mut self, stat: &Stat) {
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            self.descriptors.touch_all();
        } else {
            self.descriptors.touch_name(stat);
        }
    }
}

/// What a name names; a symbolic link itself.
fn entry(start: &Start, path: &Path) -> Option<Stat> {
    rustix::fs::statat(start, path, AtFlags::SYMLINK_NOFOLLOW).ok()
}

fn stat_of(target: Target<'_>) -> rustix::io::Result<Stat> {
    match target {
        Target::Open(fd) => rustix::fs::fstat(fd),
        Target::Named { place, .. } => {
            let start = place.dir.unwrap_or(rustix::fs::CWD);
            rustix::fs::statat(start, place.name, rustix::fs::AtFlags::empty())
        }
    }
}

fn new_thing(place: PathAt<'_>) -> Change<'_> {
    Change::Create {
        place,
        new: New::Thing,
    }
}

fn place<'a>(start: &'a Start, path: &'a Path) -> PathAt<'a> {
    PathAt::at(start.as_fd(), path)
}

/// Whether the owner that a call gives a file, if it does, can be one.
fn can_own(call: &Stopped) -> bool {
    let first = match call.name {
        "chown" | "lchown" | "fchown" => 1,
        "fchownat" => 2,
        _ => return true,
    };
    let [user, group] = [0, 1].map(|next| call.arguments[first + next] as u32);
    credentials::can_own(user, group)
}

/// The error a refusal of the recorder is seen as.
fn errno_of(refusal: &Refusal) -> i32 {
    match refusal {
        Refusal::StillOpen { .. } => libc::EBUSY,
        Refusal::TooLong { .. } => libc::ENAMETOOLONG,
        _ => libc::EOPNOTSUPP,
    }
}

impl Program {
    /// A named pipe is about to be made, which is then the program's own.
    fn note_fifo(&mut self, dirfd: i32, path: u64, mode: u64) {
        let Some((start, path)) = self.named((dirfd, path)) else {
            return;
        };
        let is_fifo = mode as u32 & libc::S_IFMT == libc::S_IFIFO;
        if let Some(path) = is_fifo.then(|| whole_name(start.as_fd(), &path)).flatten() {
            self.fixed_changed |= self.fifos.insert(path);
        }
    }

    /// Devices, sockets and named pipes of others are refused when they are opened, not when they are found.
    fn refuse_special(&self, start: BorrowedFd<'_>, path: &Path, stat: &Stat) -> Option<Decision> {
        const CONTROLLING: (u32, u32) = (5, 0);
        let device = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
        let is_own = device == CONTROLLING || self.streams.identify(stat.st_dev, stat.st_ino).is_some();
        let why = match FileType::from_raw_mode(stat.st_mode) {
            // The program's terminal. Without one the kernel says so, as to any other program.
            FileType::CharacterDevice if is_own => return None,
            FileType::CharacterDevice if descriptors::is_stateless_device(stat.st_rdev) => {
                return None;
            }
            FileType::CharacterDevice if ptys::makes_masters(stat) => return None,
            FileType::CharacterDevice
                if ptys::named(stat).is_some_and(|number| self.has_terminal(number)) =>
            {
                return None;
            }
            FileType::CharacterDevice | FileType::BlockDevice => "devices keep state of their own",
            FileType::Fifo if whole_name(start, path).is_some_and(|name| self.fifos.contains(&name)) => {
                return None;
            }
            FileType::Fifo => "a named pipe that the program did not make leads to another program",
            _ => return None,
        };
        Some(fail(
            libc::EACCES,
            format!(
                "{}: {why}; use files, or standard input and output",
                path.display()
            ),
        ))
    }
}

/// The absolute name of an entry of a directory, there or not.
fn whole_name(start: BorrowedFd<'_>, path: &Path) -> Option<PathBuf> {
    let path = name::of_open(start).join(path);
    Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?))
}
