//! Writes that need no look: of a program of one process, none of whose descriptors leads to a file that a write may
//! destroy a part of.
//!
//! A stop for each write(2) costs more than most writes, and what goes to a pipe, a terminal or, where replies are not held,
//! over a connection needs none. So the filter of a program lets it write until it is about to get a descriptor whose
//! writes are looked at, or a child, whose descriptors are not followed here.
//!
//! * The full filter is added before the call that needs it runs, of all threads at once, and stays: seccomp(2),
//!   `SECCOMP_FILTER_FLAG_TSYNC`.
//! * What is not known to be harmless needs it.
//! * A file that only grows is written freely too: `growing.rs`.
//! * A thread's name may be written (pthread_setname_np(3)): the names are read again at each stop until its file is closed.

use super::growing::{Opening, may_write};
use super::within::{FAMILY_BYTES, path_of};
use super::{Caller, Decision, Stopped};
use crate::descriptors;
use crate::error::{Error, Result};
use crate::files;
use crate::program::{FreeWrites, Program};
use crate::sockets::{Protocol, protocol};
use crate::syscalls::{self, Watch};
use rustix::fs::{AtFlags, FileType, Stat, major, minor, statat};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use twinpage_os::seccomp::Filter;
use twinpage_os::trace::Tid;

impl Program {
    /// It runs under a filter that lets it write. It comes under the full one now if it has a descriptor whose writes are
    /// looked at. What a `resumed` program has open is its own; what a new one has, others may have as well.
    ///
    /// # Errors
    /// When it cannot be looked at or steered.
    pub(crate) fn write_freely_until_needed(&mut self, tid: Tid, resumed: bool) -> Result<()> {
        self.free_writes = Some(FreeWrites::default());
        let written = self.looked_at()?;
        let only_grow = resumed && self.can_only_grow(&written)?;
        match written.is_empty() || only_grow && self.grow_again(tid, &written)? {
            true => Ok(()),
            false => self.watch_writes(tid),
        }
    }

    /// Before a call of a program that writes freely: it is begun again, under the full filter, if that is needed from
    /// then on.
    pub(super) fn ends_free_writes(&mut self, watch: Watch, call: &Stopped) -> Result<Option<Decision>> {
        let Some(free) = self.free_writes.as_mut().filter(|_| call.by == Caller::First) else {
            return Ok(None);
        };
        match watch {
            Watch::Close => self.may_close_name(call),
            Watch::Actions if call.int(0) == libc::SIGCHLD => free.is_parent = true,
            _ => {}
        }
        let needs = match watch {
            Watch::Open => match self.about_to_open(call) {
                Opening::Harmless => false,
                Opening::Grows { seeks } => return self.begins_to_grow(call, seeks),
                Opening::LookedAt => true,
            },
            _ => self.needs_full_filter(watch, call) || self.ends_growth(watch, call)?,
        };
        if !needs {
            return Ok(None);
        }
        self.watch_writes(call.tid)?;
        Ok(Some(Decision::Again))
    }

    /// What a call opens. The name of a thread of its own, proc_pid_comm(5), is counted.
    fn about_to_open(&mut self, call: &Stopped) -> Opening {
        let Some((dirfd, path, flags)) = self.opening(call) else {
            return Opening::Harmless; // the kernel will refuse it
        };
        if !may_write(flags) {
            return Opening::Harmless;
        }
        let Some((start, path)) = self.named((dirfd, path)) else {
            return Opening::Harmless; // the same
        };
        if call.name == "openat2" && self.begins_at_other_root(call) {
            return Opening::LookedAt;
        }
        if is_name(&path) {
            if let Some(free) = &mut self.free_writes {
                free.open_names += 1;
            }
            return Opening::Harmless;
        }
        match statat(&start, &path, AtFlags::empty()) {
            Ok(stat) if !is_looked_at(&stat) => Opening::Harmless,
            Ok(stat) => self.opens_to_grow((&start, &path), flags, Some(&stat)),
            Err(Errno::NOENT) => self.opens_to_grow((&start, &path), flags, None),
            Err(_) => Opening::LookedAt,
        }
    }

    fn may_close_name(&mut self, call: &Stopped) {
        if self.free_writes.as_ref().is_none_or(|free| free.open_names == 0) {
            return;
        }
        let Ok(ours) = self.process.duplicate_fd(call.int(0)) else {
            return; // the kernel will refuse it
        };
        let writes = rustix::fs::fcntl_getfl(&ours).is_ok_and(may_write);
        if writes && files::link_of(&ours).is_ok_and(|path| is_name(&path)) {
            if let Some(free) = &mut self.free_writes {
                free.open_names -= 1;
            }
            self.renew_threads();
        }
    }

    /// All its writes stop from now on.
    ///
    /// # Errors
    /// As [`Program::write_freely_until_needed`].
    fn watch_writes(&mut self, tid: Tid) -> Result<()> {
        self.note_growth_of_all()?;
        let free = self.free_writes.take();
        if free.is_some_and(|free| free.open_names > 0) {
            self.renew_threads(); // from now on they are when one is written
        }
        self.add_filter(
            &syscalls::filter(&syscalls::free_calls(self.sockets.replies))?,
            tid,
        )
    }

    pub(super) fn add_filter(&self, filter: &Filter, tid: Tid) -> Result<()> {
        let installed = filter.install_in(&self.process, tid);
        installed.map_err(|source| Error::target("cannot add a filter of system calls", source))
    }

    /// Whether the call makes a descriptor whose writes are looked at, or a process.
    fn needs_full_filter(&self, watch: Watch, call: &Stopped) -> bool {
        match watch {
            Watch::Clone => self
                .clone_flags(call)
                .is_none_or(|flags| flags & libc::CLONE_THREAD as u64 == 0),
            Watch::Pair => true,
            Watch::Control => call.name == "memfd_create",
            Watch::RealStreams => self.makes_special_socket(call),
            _ => false,
        }
    }

    /// Ours of the descriptors whose writes are looked at, with their numbers.
    fn looked_at(&self) -> Result<Vec<(i32, OwnedFd)>> {
        let look = |source| Error::target("cannot look at the program's descriptors", source);
        let mut found = Vec::new();
        for fd in descriptors::numbers(self.process.thread())? {
            let ours = self.process.duplicate_fd(fd).map_err(look)?;
            let flags = rustix::fs::fcntl_getfl(&ours).map_err(|error| look(error.into()))?;
            let stat = rustix::fs::fstat(&ours).map_err(|error| look(error.into()))?;
            let is_free = || self.sockets.holds().is_none() && protocol(ours.as_fd()) == Some(Protocol::Tcp);
            if may_write(flags) && is_looked_at(&stat) && !is_free() {
                found.push((fd, ours));
            }
        }
        Ok(found)
    }

    /// Sockets other than those of TCP: messages of their own, descriptors and credentials may be sent over them. A Unix
    /// stream can send when it is connected or bound. Where replies are held, all of them.
    fn makes_special_socket(&self, call: &Stopped) -> bool {
        const STREAM: i32 = libc::SOCK_STREAM;
        match call.name {
            "socket" => match (call.int(0), call.int(1) & 0xf, call.int(2)) {
                (libc::AF_INET | libc::AF_INET6, STREAM, 0 | libc::IPPROTO_TCP) => {
                    self.sockets.holds().is_some()
                }
                (libc::AF_UNIX, STREAM, _) => false,
                _ => true,
            },
            "connect" => self.unix_path(call).is_some_and(|path| self.may_connect(&path)),
            "bind" => self.unix_path(call).is_some(),
            _ => false,
        }
    }

    /// The C library tries the cache of the name service, which is rarely there. Where replies are held, it is not to appear
    /// unseen meanwhile.
    fn may_connect(&self, path: &Path) -> bool {
        if path.as_os_str().is_empty() || self.sockets.holds().is_some() {
            return true;
        }
        let start = self.start(libc::AT_FDCWD, path);
        start.is_none_or(|start| statat(&start, path, AtFlags::empty()).err() != Some(Errno::NOENT))
    }

    /// The name in an address of a Unix socket; empty of one without a name in the file system.
    fn unix_path(&self, call: &Stopped) -> Option<PathBuf> {
        let address = self.address_given(call)?;
        let family = u16::from_ne_bytes(*address.first_chunk()?);
        (i32::from(family) == libc::AF_UNIX).then(|| path_of(&address[FAMILY_BYTES..]).to_owned())
    }
}

/// Whether a path is the name of a thread, and leads through no link: `/proc/PID/comm`, `/proc/PID/task/TID/comm`.
fn is_name(path: &Path) -> bool {
    let Some(path) = path.strip_prefix("/proc").ok().and_then(Path::to_str) else {
        return false;
    };
    let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
    match path.split('/').collect::<Vec<_>>()[..] {
        [pid, "comm"] => is_number(pid),
        [pid, "task", tid, "comm"] => is_number(pid) && is_number(tid),
        _ => false,
    }
}

/// Whether writes to such a file, or messages over such a socket, are looked at. Nothing is kept of pipes, terminals and
/// what has no name (eventfd(2)).
fn is_looked_at(stat: &Stat) -> bool {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Fifo | FileType::Unknown => false,
        FileType::CharacterDevice => match (major(stat.st_rdev), minor(stat.st_rdev)) {
            (5, 2) => true,              // /dev/ptmx: writes are keys for another process, pts(4)
            (1, _) => false,             // null(4), zero, full(4), random(4)
            (5 | 136..=143, _) => false, // tty(4), pts(4)
            _ => true,
        },
        _ => true,
    }
}
