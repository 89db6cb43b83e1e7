//! Files that only grow: written without a stop.
//!
//! Bytes behind the end of a file destroy nothing: a checkpoint lists the length of each open file, and a
//! rollback cuts it there. So a program that writes freely goes on to do so while each file that it has open for writing
//! is one that it can only add to.
//!
//! * Such a file is open at its end, by one open file: new or empty, or opened with `O_APPEND`. None of it is mapped.
//! * Seeks of its descriptor stop, unless it appends wherever its offset is. The descriptor's number is known before it is
//!   given to a program of one thread. The filter stays, and children inherit it: a shell writes no such file.
//! * What can have a write destroy something, or have the file lose its name or be known by another, needs the full filter
//!   first.
//! * What a rollback needs to know of the file is recorded before it can grow: when it is opened, and when an epoch begins.
//!   What makes it durable with an epoch is noted when it is closed, when the program ends, and at a checkpoint.

use super::{Decision, Start, Stopped};
use crate::descriptors;
use crate::error::{Error, Result};
use crate::files::{Change, Ident, PathAt, SET_ID, Target};
use crate::program::Program;
use crate::sockets::Replies;
use crate::syscalls::{self, Watch};
use rustix::fs::{AtFlags, FileType, OFlags, Stat};
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use twinpage_os::trace::Tid;

/// What a program that writes freely is about to open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Opening {
    /// Nothing whose writes are looked at.
    Harmless,
    /// A file that can only grow.
    Grows {
        /// The number it will be open at, if its seeks are to stop.
        seeks: Option<i32>,
    },
    /// Something whose writes are looked at.
    LookedAt,
}

/// Numbers that are looked at for one that is free.
const MOST_NUMBERS: i32 = 64;

impl Program {
    /// What the name of a regular file is opened as; `there` describes it.
    pub(super) fn opens_to_grow(
        &mut self,
        (start, path): (&Start, &Path),
        flags: OFlags,
        there: Option<&Stat>,
    ) -> Opening {
        let appends = flags.contains(OFlags::APPEND);
        let is_alone = self.main_thread_lives() && !self.descriptors.may_be_apart();
        let is_nameless = flags.contains(OFlags::TMPFILE);
        if is_nameless || path.starts_with("/proc") || self.waits_for_writes(flags) || !is_alone {
            return Opening::LookedAt;
        }
        match there {
            None if !flags.contains(OFlags::CREATE) => return Opening::Harmless, // the kernel will refuse it
            Some(_) if flags.contains(OFlags::CREATE | OFlags::EXCL) => return Opening::Harmless, // the same
            None => {}
            Some(stat) => {
                let is_at_end = appends || flags.contains(OFlags::TRUNC) || stat.st_size == 0;
                let place = PathAt::at(start.as_fd(), path);
                if !is_at_end || !self.can_grow(stat) || !self.files.is_tracked_at(place, stat) {
                    return Opening::LookedAt;
                }
                if self.grows() && self.has_open(Ident::from(stat)) {
                    return Opening::LookedAt;
                }
            }
        }
        if appends {
            return Opening::Grows { seeks: None };
        }
        let writes_only = flags & OFlags::ACCMODE == OFlags::WRONLY; // reading moves the offset too
        let is_parent = self.free_writes.as_ref().is_some_and(|free| free.is_parent);
        match self.next_number() {
            Some(number) if writes_only && !is_parent => Opening::Grows { seeks: Some(number) },
            _ => Opening::LookedAt,
        }
    }

    /// The call may run once the seeks of this number stop; it is begun again under the filter that has them stop.
    pub(super) fn begins_to_grow(&mut self, call: &Stopped, seeks: Option<i32>) -> Result<Option<Decision>> {
        if let Some(number) = seeks
            && self.has_seeks_stop(number, call.tid)?
        {
            return Ok(Some(Decision::Again));
        }
        self.lets_grow();
        // One that is emptied is recorded as any other. The length of one that is there is to be known.
        let kept = self
            .opening(call)
            .filter(|(.., flags)| !flags.contains(OFlags::TRUNC));
        let Some((start, path)) = kept.and_then(|(dirfd, path, _)| self.named((dirfd, path))) else {
            return Ok(None);
        };
        let place = PathAt::at(start.as_fd(), &path);
        let recorded = self.record(&Change::SetLen {
            target: Target::Named { place, follow: true },
            len: u64::MAX,
        })?;
        Ok((recorded != Decision::Run).then_some(recorded))
    }

    fn lets_grow(&mut self) {
        if let Some(free) = &mut self.free_writes {
            free.grows = true;
        }
    }

    /// Whether it has files open that only grow.
    pub(crate) fn grows(&self) -> bool {
        self.free_writes.as_ref().is_some_and(|free| free.grows)
    }

    /// Whether a call needs the full filter, because a file that only grew may do more after it. If it closes such a file,
    /// the file is noted.
    pub(super) fn ends_growth(&mut self, watch: Watch, call: &Stopped) -> Result<bool> {
        if !self.grows() {
            return Ok(false);
        }
        Ok(match watch {
            Watch::Close => match call.name {
                "close" => {
                    self.note_growth(call.int(0))?;
                    false
                }
                "close_range" => true,
                _ => {
                    self.note_growth(call.int(1))?;
                    self.moves_end(call.int(0))
                }
            },
            Watch::Descriptors if call.name == "dup" => self.moves_end(call.int(0)),
            Watch::Control if call.name == "fcntl" => match call.int(1) {
                libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => self.moves_end(call.int(0)),
                libc::F_SETFL => call.int(2) & libc::O_APPEND == 0 && self.appends(call.int(0)) == Some(true),
                _ => false,
            },
            Watch::Seek => self.moves_end(call.int(0)),
            Watch::Write => {
                let to = if call.name == "copy_file_range" { 2 } else { 0 };
                self.growing(call.int(to)).is_some()
            }
            Watch::Change => self.changes_growing(call),
            Watch::Map => self.maps_file(call),
            Watch::Exec | Watch::Kill => {
                self.note_growth_of_all()?; // what the kernel closes is not told of
                false
            }
            _ => false,
        })
    }

    /// Whether it may change which bytes of a growing file are its last, its name, or what writing does beside adding to it.
    fn changes_growing(&mut self, call: &Stopped) -> bool {
        let a = call.arguments;
        match call.name {
            "mkdir" | "mkdirat" | "rmdir" | "mknod" | "mknodat" | "symlink" | "symlinkat" | "chown"
            | "lchown" | "fchown" | "fchownat" | "utime" | "utimes" | "futimesat" | "utimensat" => false,
            "chmod" | "fchmod" => a[1] as u32 & SET_ID != 0,
            "fchmodat" | "fchmodat2" => a[2] as u32 & SET_ID != 0,
            "ftruncate" | "fallocate" => self.growing(call.int(0)).is_some(),
            "unlink" => self.may_be_growing((libc::AT_FDCWD, a[0])),
            "unlinkat" => call.int(2) & libc::AT_REMOVEDIR == 0 && self.may_be_growing((call.int(0), a[1])),
            "rename" => {
                self.may_be_growing((libc::AT_FDCWD, a[0])) || self.may_be_growing((libc::AT_FDCWD, a[1]))
            }
            "renameat" | "renameat2" => {
                self.may_be_growing((call.int(0), a[1])) || self.may_be_growing((call.int(2), a[3]))
            }
            _ => true,
        }
    }

    /// Whether what a name names, a link itself, is open, or a directory with what is open below it.
    fn may_be_growing(&mut self, name: (i32, u64)) -> bool {
        let Some((start, path)) = self.named(name) else {
            return false; // the kernel will refuse it
        };
        let there = rustix::fs::statat(&start, &path, AtFlags::SYMLINK_NOFOLLOW);
        there.is_ok_and(|stat| match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => self.has_open(Ident::from(&stat)),
            kind => kind == FileType::Directory,
        })
    }

    /// Whether a file with content is mapped for all that have it.
    fn maps_file(&self, call: &Stopped) -> bool {
        let mapped = self.process.duplicate_fd(call.int(4));
        mapped.is_ok_and(|file| descriptors::is_regular(&file))
    }

    /// Whether the offset of a descriptor says where a growing file is written.
    fn moves_end(&self, fd: i32) -> bool {
        self.appends(fd) == Some(false)
    }

    /// Whether a growing file is written at its end wherever the offset of a descriptor is; `None` of any other.
    fn appends(&self, fd: i32) -> Option<bool> {
        let flags = rustix::fs::fcntl_getfl(self.growing(fd)?);
        Some(flags.is_ok_and(|flags| flags.contains(OFlags::APPEND)))
    }

    /// Ours of a descriptor of a growing file. While files only grow, all that are open for writing do.
    fn growing(&self, fd: i32) -> Option<OwnedFd> {
        let ours = self.process.duplicate_fd(fd).ok()?;
        let is_written = rustix::fs::fcntl_getfl(&ours).is_ok_and(may_write);
        (is_written && descriptors::is_regular(&ours)).then_some(ours)
    }

    /// A descriptor goes away, which may be of a growing file: that becomes durable with the epoch.
    fn note_growth(&mut self, fd: i32) -> Result<()> {
        match self.growing(fd) {
            Some(ours) => Ok(self.files.note_growth(ours.as_fd()).map(drop)?),
            None => Ok(()),
        }
    }

    /// The same of all descriptors.
    pub(crate) fn note_growth_of_all(&mut self) -> Result<()> {
        if !self.grows() {
            return Ok(());
        }
        let mut numbers = descriptors::numbers(self.process.thread())?.into_iter();
        numbers.try_for_each(|fd| self.note_growth(fd))
    }

    /// Whether all that a resumed program has open for writing are files that can only grow.
    pub(super) fn can_only_grow(&mut self, written: &[(i32, OwnedFd)]) -> Result<bool> {
        let look =
            |error: rustix::io::Errno| Error::target("cannot look at a file of the program", error.into());
        let mut seen = HashSet::new();
        for (_, ours) in written {
            let stat = rustix::fs::fstat(ours).map_err(look)?;
            let flags = rustix::fs::fcntl_getfl(ours).map_err(look)?;
            if !seen.insert(Ident::from(&stat)) || !self.can_grow(&stat) {
                return Ok(false);
            }
            let is_at_end = || rustix::fs::tell(ours).is_ok_and(|at| at == stat.st_size as u64);
            let adds =
                flags.contains(OFlags::APPEND) || flags & OFlags::ACCMODE == OFlags::WRONLY && is_at_end();
            if !adds
                || self.waits_for_writes(flags)
                || stat.st_nlink == 0
                || !self.files.is_tracked(ours, &stat)?
            {
                return Ok(false);
            }
        }
        Ok(!self.descriptors.may_be_apart())
    }

    /// They grow as before the resume. Whether what is to be known of them found room.
    pub(super) fn grow_again(&mut self, tid: Tid, written: &[(i32, OwnedFd)]) -> Result<bool> {
        for (fd, ours) in written {
            if self.files.note_growth(ours.as_fd()).is_err() {
                return Ok(false); // told when it is written
            }
            let flags = rustix::fs::fcntl_getfl(ours).unwrap_or(OFlags::empty());
            if !flags.contains(OFlags::APPEND) {
                self.has_seeks_stop(*fd, tid)?;
            }
        }
        self.lets_grow();
        Ok(true)
    }

    /// Whether a write through such a descriptor returns when it is durable, and a checkpoint comes before.
    fn waits_for_writes(&self, flags: OFlags) -> bool {
        self.sockets.replies == Replies::Synced && flags.intersects(OFlags::DSYNC | OFlags::SYNC)
    }

    /// A regular file, as far as its own state says whether it can be one that only grows.
    fn can_grow(&self, stat: &Stat) -> bool {
        FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && stat.st_mode & SET_ID == 0
            && self.objects.find(Ident::from(stat)).is_none()
    }

    /// Has the seeks of this number stop. Whether they did not before.
    fn has_seeks_stop(&mut self, number: i32, tid: Tid) -> Result<bool> {
        let is_new = (self.free_writes.as_mut()).is_some_and(|free| free.seeks.insert(number));
        if is_new {
            self.add_filter(&syscalls::watching(&syscalls::seeks(number))?, tid)?;
        }
        Ok(is_new)
    }

    /// The number that the next descriptor of a program of one thread gets.
    fn next_number(&self) -> Option<i32> {
        if self.threads.len() > 1 {
            return None;
        }
        let is_free = |fd: &i32| {
            self.descriptors.known(*fd).is_none()
                && (self.process.duplicate_fd(*fd))
                    .is_err_and(|error: io::Error| error.raw_os_error() == Some(libc::EBADF))
        };
        (0..MOST_NUMBERS).find(is_free)
    }
}

/// Whether bytes can be written through a descriptor that is opened so.
pub(super) fn may_write(flags: OFlags) -> bool {
    flags.intersects(OFlags::WRONLY | OFlags::RDWR) && !flags.contains(OFlags::PATH)
}
