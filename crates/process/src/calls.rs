//! What to do when a watched call is about to run: let it, or refuse it by name.
//!
//! * The calling thread is stopped at the entry of its call; its arguments cannot change any more,
//!   except those in memory other threads write.
//! * What a call may change is marked to be looked at again; what a file held is recorded first.
//! * The program sees an ordinary error; the user reads once which call it was and what to do.

use crate::error::{Error, Result};
use crate::files::{self, Change, New, Place, Recorded, Refusal as FileRefusal, Target};
use crate::program::Program;
use crate::syscalls::{self, Policy, THREAD_FLAGS, Watch};
use rustix::fs::OFlags;
use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use twinpage_os::seccomp;
use twinpage_os::trace::{self, Registers, Tid};
use twinpage_os::tracker::PAGE;

/// What becomes of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision {
    /// It runs.
    Run,
    /// It fails with this error; `why` is told to the user, once for each call.
    Fail {
        /// The error the program sees.
        errno: i32,
        /// What to tell; `None` for probes that programs make in passing.
        why: Option<String>,
    },
}

fn fail(errno: i32, why: impl Into<String>) -> Decision {
    Decision::Fail {
        errno,
        why: Some(why.into()),
    }
}

/// As an older kernel would answer: programs ask, and go on without.
const fn not_there(errno: i32) -> Decision {
    Decision::Fail { errno, why: None }
}

/// A stopped call and its arguments.
struct Stopped {
    tid: Tid,
    name: &'static str,
    arguments: [u64; 6],
}

impl Stopped {
    /// The argument as the kernel takes an int.
    fn int(&self, index: usize) -> i32 {
        self.arguments[index] as i32
    }
}

impl Program {
    /// Answers the call that thread `tid` is about to make.
    ///
    /// # Errors
    /// When the thread is gone or the file it changes cannot be kept.
    pub fn answer(&mut self, tid: Tid) -> Result<()> {
        let gone = |source| Error::target("cannot look at a system call", source);
        let mut registers = trace::registers(tid).map_err(gone)?;
        let (name, decision) = match trace::event_message(tid).map_err(gone)? {
            seccomp::FOREIGN => {
                let why = "32-bit system calls of a 64-bit program are not captured; use the 64-bit ones";
                ("int 0x80", fail(libc::ENOSYS, why))
            }
            _ => self.decide(tid, registers.orig_rax as i64, &registers)?,
        };
        if let Decision::Fail { errno, why } = decision {
            registers.orig_rax = u64::MAX; // skip it
            registers.rax = -i64::from(errno) as u64;
            trace::set_registers(tid, &registers).map_err(gone)?;
            if let Some(mut why) = why {
                if matches!(name, "clone" | "clone3" | "fork" | "vfork") {
                    why.push_str(&self.script_hint());
                }
                self.notes.refused(name, &why);
            }
        }
        Ok(())
    }

    fn decide(&mut self, tid: Tid, number: i64, registers: &Registers) -> Result<(&'static str, Decision)> {
        let Some(call) = syscalls::call(number) else {
            let why = format!(
                "system call {number} is not known to this version; the program may go on without it"
            );
            return Ok(("an unknown call", fail(libc::ENOSYS, why)));
        };
        let r = registers;
        let arguments = [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9];
        let stopped = Stopped {
            tid,
            name: call.name,
            arguments,
        };
        let decision = match call.policy {
            Policy::Free => Decision::Run,
            Policy::Refused(refusal) => fail(refusal.errno, refusal.why),
            Policy::Watched(watch) | Policy::FreeWhen(_, watch) => self.watch(watch, &stopped)?,
        };
        Ok((call.name, decision))
    }

    fn watch(&mut self, watch: Watch, call: &Stopped) -> Result<Decision> {
        match watch {
            Watch::Actions => self.stale.actions = true,
            Watch::Thread => self.renew_thread(call.tid),
            Watch::Break => self.stale.brk = true,
            Watch::Umask => self.stale.umask = true,
            Watch::Directory => self.stale.directory = true,
            Watch::IntervalTimers => self.stale.interval_timers = true,
            Watch::Timers => self.stale.timers = true,
            Watch::Limits => {
                self.stale.limits = true;
                self.renew_threads();
            }
            Watch::Membarrier => self.stale.membarrier = true,
            Watch::Kill => self.kills_itself = true,
            Watch::Wait => self.waits.begin(call.tid),
            Watch::Descriptors => self.stale.descriptors = true,
            Watch::Close => self.before_close(call),
            Watch::Open => return self.before_open(call),
            Watch::Write => return self.before_write(call),
            Watch::Change => return self.before_change(call),
            Watch::Advise => return Ok(self.before_advise(call)),
            Watch::Map => return self.before_map(call),
            Watch::Clone => return self.before_clone(call),
            Watch::Exec => return Ok(self.before_exec(call)),
            Watch::Control => return Ok(self.before_control(call)),
        }
        Ok(Decision::Run)
    }

    fn before_close(&mut self, call: &Stopped) {
        self.stale.descriptors = true;
        let (first, last) = match call.name {
            "close" => (call.int(0), call.int(0)),
            "close_range" => (
                call.int(0),
                i32::try_from(call.arguments[1] as u32).unwrap_or(i32::MAX),
            ),
            _ => (call.int(1), call.int(1)), // dup2 and dup3 close their target
        };
        self.descriptors.release(first, last);
    }

    fn before_advise(&mut self, call: &Stopped) -> Decision {
        const GUARD_INSTALL: i32 = 102;
        const GUARD_REMOVE: i32 = 103;
        let [address, length, ..] = call.arguments;
        let end = address
            .saturating_add(length)
            .checked_next_multiple_of(PAGE)
            .unwrap_or(u64::MAX);
        match call.int(2) {
            libc::MADV_DONTNEED | libc::MADV_DONTNEED_LOCKED => {
                self.memory.may_drop(address..end);
                Decision::Run
            }
            libc::MADV_REMOVE | libc::MADV_HWPOISON | libc::MADV_SOFT_OFFLINE => fail(
                libc::EINVAL,
                "this advice reaches beyond the program's own memory",
            ),
            GUARD_INSTALL | GUARD_REMOVE => not_there(libc::EINVAL),
            advice if self.memory.advise(address..end, advice) => Decision::Run,
            advice => fail(
                libc::EINVAL,
                format!("advice {advice} is not known, so what it changes cannot be captured"),
            ),
        }
    }

    fn before_map(&mut self, call: &Stopped) -> Result<Decision> {
        let (protection, flags) = (call.int(2), call.int(3));
        let kind = flags & libc::MAP_TYPE;
        if flags & libc::MAP_HUGETLB != 0 {
            return Ok(fail(
                libc::ENOMEM,
                "huge page mappings are not captured; the program can use ordinary pages",
            ));
        }
        if flags & libc::MAP_GROWSDOWN != 0 {
            return Ok(fail(
                libc::EINVAL,
                "a mapping that grows down is not captured; map it whole",
            ));
        }
        if kind == libc::MAP_PRIVATE {
            return Ok(Decision::Run);
        }
        if flags & libc::MAP_ANONYMOUS != 0 || kind != libc::MAP_SHARED && kind != libc::MAP_SHARED_VALIDATE {
            return Ok(fail(
                libc::EINVAL,
                "shared memory is not captured yet; map it MAP_PRIVATE",
            ));
        }
        let Ok(fd) = self.process.duplicate_fd(call.int(4)) else {
            return Ok(Decision::Run);
        };
        if protection & libc::PROT_WRITE != 0 {
            let why = "a shared writable mapping changes the file behind the checkpoint's back; map it MAP_PRIVATE or write with write()";
            return Ok(fail(libc::EACCES, why));
        }
        if !crate::descriptors::is_regular(&fd) {
            return Ok(fail(libc::ENODEV, "device memory cannot be captured"));
        }
        Ok(Decision::Run)
    }

    fn before_clone(&mut self, call: &Stopped) -> Result<Decision> {
        let flags = if call.name == "clone3" {
            let look = |source| Error::target("cannot read the arguments of clone3", source);
            self.process.read_u64(call.arguments[0]).map_err(look)?
        } else {
            call.arguments[0]
        };
        let storage = libc::CLONE_SETTLS
            | libc::CLONE_PARENT_SETTID
            | libc::CLONE_CHILD_CLEARTID
            | libc::CLONE_CHILD_SETTID
            | libc::CLONE_DETACHED;
        if flags & !(storage as u64) == THREAD_FLAGS {
            return Ok(Decision::Run);
        }
        Ok(fail(syscalls::NO_CHILDREN, syscalls::CHILDREN))
    }

    fn before_exec(&mut self, call: &Stopped) -> Decision {
        let (dirfd, at) = match call.name {
            "execveat" => (call.int(0), 1),
            _ => (libc::AT_FDCWD, 0),
        };
        let (Some(name), Some(start)) = (self.text(call.arguments[at]), self.start(dirfd)) else {
            return Decision::Run; // the kernel will refuse it
        };
        let start = PathBuf::from(format!("/proc/self/fd/{}", start.as_raw_fd()));
        let path = if name.as_os_str().is_empty() {
            start // AT_EMPTY_PATH
        } else {
            start.join(name)
        };
        // A program that looks along PATH by trying expects to hear what is not there.
        let is_program = path.is_file() && rustix::fs::access(&path, rustix::fs::Access::EXEC_OK).is_ok();
        if !is_program {
            return Decision::Run;
        }
        match crate::launch::check_program(&path) {
            Ok(()) => {
                self.stale.descriptors = true;
                Decision::Run
            }
            Err(Error::Unsupported(why)) => fail(libc::EPERM, why),
            Err(_) => Decision::Run, // the kernel will say what is wrong with it
        }
    }

    fn before_control(&mut self, call: &Stopped) -> Decision {
        match call.name {
            "fcntl" => self.before_fcntl(call),
            "ioctl" => self.before_ioctl(call),
            "prctl" => match call.int(0) {
                libc::PR_SET_NAME => {
                    self.renew_thread(call.tid);
                    Decision::Run
                }
                libc::PR_SET_PDEATHSIG => Decision::Run, // a checkpointed program dies with its tracer anyway
                option => fail(
                    libc::EINVAL,
                    format!("prctl option {option} is not captured; the program can go on without it"),
                ),
            },
            "arch_prctl" => match call.int(0) {
                0x1001..=0x1004 => Decision::Run, // segment bases are registers
                0x1023 | 0x1025 => fail(
                    libc::EINVAL,
                    "larger register files (AMX) are not captured; the program can go on without",
                ),
                _ => not_there(libc::EINVAL),
            },
            _ => fail(
                libc::EINVAL,
                "this option is not captured; the program can go on without it",
            ),
        }
    }

    fn before_fcntl(&mut self, call: &Stopped) -> Decision {
        match call.int(1) {
            libc::F_SETFL if call.int(2) & libc::O_ASYNC != 0 => {
                fail(libc::EINVAL, "signal-driven input is not captured; poll instead")
            }
            libc::F_DUPFD
            | libc::F_DUPFD_CLOEXEC
            | libc::F_SETFD
            | libc::F_SETFL
            | libc::F_SETPIPE_SZ
            | libc::F_SETLK
            | libc::F_SETLKW
            | libc::F_OFD_SETLK
            | libc::F_OFD_SETLKW => {
                self.stale.descriptors = true;
                Decision::Run
            }
            command => fail(
                libc::EINVAL,
                format!("fcntl command {command} is not captured; the program can go on without it"),
            ),
        }
    }

    fn before_ioctl(&mut self, call: &Stopped) -> Decision {
        match call.arguments[1] as u32 as u64 {
            libc::FIOCLEX | libc::FIONCLEX | libc::FIONBIO => {
                self.stale.descriptors = true;
                Decision::Run
            }
            request => fail(
                libc::ENOTTY,
                format!("ioctl {request:#x} is not known, so what it changes cannot be captured"),
            ),
        }
    }

    /// Which script it is that wants a child, when the program is a shell: people name scripts and
    /// often do not know that they do. Empty for other programs.
    fn script_hint(&self) -> String {
        const SHELLS: [&str; 7] = ["sh", "bash", "dash", "zsh", "ksh", "mksh", "busybox"];
        let pid = self.process.pid();
        let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let is_shell = program
            .file_name()
            .is_some_and(|name| SHELLS.iter().any(|shell| name == *shell));
        if !is_shell {
            return String::new();
        }
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let script = match line.split(|byte| *byte == 0).nth(1) {
            Some(word) if !word.is_empty() && !word.starts_with(b"-") => {
                format!(", running {}", String::from_utf8_lossy(word))
            }
            _ => String::new(),
        };
        format!(
            " (this is a shell{script}: it can use its builtins only; if all it does is start a program, run that program instead)"
        )
    }

    /// A string of the program's memory.
    fn text(&self, address: u64) -> Option<PathBuf> {
        let mut bytes = Vec::new();
        while bytes.len() < libc::PATH_MAX as usize {
            let at = address + bytes.len() as u64;
            let mut piece = vec![0; (4096 - at % 4096).min(256) as usize];
            self.process.read(at, &mut piece).ok()?;
            if let Some(end) = piece.iter().position(|byte| *byte == 0) {
                bytes.extend_from_slice(&piece[..end]);
                return Some(PathBuf::from(OsString::from_vec(bytes)));
            }
            bytes.extend_from_slice(&piece);
        }
        None
    }

    fn directory(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/cwd", self.process.pid()))
    }

    /// The directory that a name given with descriptor `fd` starts from.
    fn start(&self, fd: i32) -> Option<OwnedFd> {
        if fd == libc::AT_FDCWD {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            return rustix::fs::open(self.directory(), flags, rustix::fs::Mode::empty()).ok();
        }
        self.process.duplicate_fd(fd).ok()
    }

    /// Records what `change` destroys. A refusal of the recorder becomes one of the call.
    fn record(&mut self, change: &Change<'_>) -> Result<Decision> {
        match self.files.record(change) {
            Ok(Recorded::Saved | Recorded::Covered | Recorded::NotTracked) => Ok(Decision::Run),
            Err(files::Error::Refused(refusal)) => Ok(fail(errno_of(&refusal), refusal.to_string())),
            Err(files::Error::Full { .. }) => Ok(fail(
                libc::ENOSPC,
                "there is no room to keep what the change destroys; make room, or checkpoint more often with --every",
            )),
            Err(error) => Err(error.into()),
        }
    }

    fn before_open(&mut self, call: &Stopped) -> Result<Decision> {
        self.stale.descriptors = true;
        let (dirfd, path, flags) = match call.name {
            "open" => (libc::AT_FDCWD, call.arguments[0], call.arguments[1]),
            "creat" => (
                libc::AT_FDCWD,
                call.arguments[0],
                (libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC) as u64,
            ),
            "openat2" => {
                let Ok(flags) = self.process.read_u64(call.arguments[2]) else {
                    return Ok(Decision::Run);
                };
                (call.int(0), call.arguments[1], flags)
            }
            _ => (call.int(0), call.arguments[1], call.arguments[2]),
        };
        let (Some(path), Some(start)) = (self.text(path), self.start(dirfd)) else {
            return Ok(Decision::Run);
        };
        let flags = OFlags::from_bits_retain(flags as u32);
        if flags.contains(OFlags::TMPFILE) {
            return Ok(fail(
                libc::EOPNOTSUPP,
                "a file without a name (O_TMPFILE) cannot be opened again; use a named temporary file",
            ));
        }
        if let Some(refused) = refuse_special(start.as_fd(), &path, self.streams.terminal().is_some()) {
            return Ok(refused);
        }
        if !flags.intersects(OFlags::CREATE | OFlags::TRUNC) {
            return Ok(Decision::Run);
        }
        self.record(&Change::Open {
            place: place(&start, &path),
            flags,
        })
    }

    fn before_write(&mut self, call: &Stopped) -> Result<Decision> {
        let a = call.arguments;
        let offset = |at: u64| (at != u64::MAX).then_some(at);
        let (fd, at, len) = match call.name {
            "write" => (call.int(0), None, Some(a[2])),
            "writev" => (call.int(0), None, self.vector_bytes(a[1], a[2])),
            "pwrite64" => (call.int(0), Some(a[3]), Some(a[2])),
            "pwritev" => (call.int(0), Some(a[3]), self.vector_bytes(a[1], a[2])),
            "pwritev2" => (call.int(0), offset(a[3]), self.vector_bytes(a[1], a[2])),
            "sendfile" => (call.int(0), None, Some(a[3])),
            _ => (
                call.int(2),
                if a[3] == 0 {
                    None
                } else {
                    self.process.read_u64(a[3]).ok()
                },
                Some(a[4]),
            ),
        };
        let (Some(len), Ok(fd)) = (len, self.process.duplicate_fd(fd)) else {
            return Ok(Decision::Run);
        };
        if !crate::descriptors::is_regular(&fd) {
            return Ok(Decision::Run);
        }
        self.record(&Change::Write {
            fd: fd.as_fd(),
            at,
            len,
        })
    }

    /// Bytes of the `count` buffers listed at `address`.
    fn vector_bytes(&self, address: u64, count: u64) -> Option<u64> {
        let mut bytes = vec![0; usize::try_from(count.min(1024)).ok()? * 16];
        self.process.read(address, &mut bytes).ok()?;
        let lengths = bytes
            .chunks_exact(16)
            .map(|vector| u64::from_le_bytes(vector[8..].try_into().expect("eight bytes")));
        Some(lengths.fold(0, u64::saturating_add))
    }

    fn before_change(&mut self, call: &Stopped) -> Result<Decision> {
        let a = call.arguments;
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
            "mkdir" | "mknod" => self.with_place(libc::AT_FDCWD, a[0], new_thing),
            "mkdirat" | "mknodat" => self.with_place(call.int(0), a[1], new_thing),
            "symlink" => self.with_place(libc::AT_FDCWD, a[1], new_thing),
            "symlinkat" => self.with_place(call.int(1), a[2], new_thing),
            "link" => self.with_place(libc::AT_FDCWD, a[1], |place| Change::Create {
                place,
                new: New::Link,
            }),
            "linkat" => self.with_place(call.int(2), a[3], |place| Change::Create {
                place,
                new: New::Link,
            }),
            "unlink" => self.before_remove(libc::AT_FDCWD, a[0], false),
            "rmdir" => self.before_remove(libc::AT_FDCWD, a[0], true),
            "unlinkat" => self.before_remove(call.int(0), a[1], call.int(2) & libc::AT_REMOVEDIR != 0),
            "rename" => self.before_rename((libc::AT_FDCWD, a[0]), (libc::AT_FDCWD, a[1]), 0),
            "renameat" => self.before_rename((call.int(0), a[1]), (call.int(2), a[3]), 0),
            "renameat2" => self.before_rename((call.int(0), a[1]), (call.int(2), a[3]), a[4] as u32),
            _ => self.before_attributes(call),
        }
    }

    fn before_attributes(&mut self, call: &Stopped) -> Result<Decision> {
        let a = call.arguments;
        fn named(follow: bool) -> impl for<'a> FnOnce(Place<'a>) -> Change<'a> {
            move |place| Change::Attributes {
                target: Target::Named { place, follow },
            }
        }
        match call.name {
            "fchmod" | "fchown" => self.with_fd(call.int(0), |fd| Change::Attributes {
                target: Target::Open(fd),
            }),
            "lchown" => self.with_place(libc::AT_FDCWD, a[0], named(false)),
            "chmod" | "chown" | "utime" | "utimes" => self.with_place(libc::AT_FDCWD, a[0], named(true)),
            "utimensat" | "futimesat" if a[1] == 0 => self.with_fd(call.int(0), |fd| Change::Attributes {
                target: Target::Open(fd),
            }),
            _ => {
                let flags = match call.name {
                    "fchmodat2" | "utimensat" => call.int(3),
                    "fchownat" => call.int(4),
                    _ => 0,
                };
                if flags & libc::AT_EMPTY_PATH != 0 {
                    return self.with_fd(call.int(0), |fd| Change::Attributes {
                        target: Target::Open(fd),
                    });
                }
                self.with_place(call.int(0), a[1], named(flags & libc::AT_SYMLINK_NOFOLLOW == 0))
            }
        }
    }

    fn before_remove(&mut self, dirfd: i32, path: u64, directory: bool) -> Result<Decision> {
        let (Some(path), Some(start)) = (self.text(path), self.start(dirfd)) else {
            return Ok(Decision::Run);
        };
        let still_open = self.is_open(start.as_fd(), &path);
        let place = place(&start, &path);
        self.record(&if directory {
            Change::Rmdir { place, still_open }
        } else {
            Change::Unlink { place, still_open }
        })
    }

    fn before_rename(&mut self, from: (i32, u64), to: (i32, u64), flags: u32) -> Result<Decision> {
        let names = (
            self.text(from.1),
            self.start(from.0),
            self.text(to.1),
            self.start(to.0),
        );
        let (Some(from), Some(from_start), Some(to), Some(to_start)) = names else {
            return Ok(Decision::Run);
        };
        let still_open = self.is_open(to_start.as_fd(), &to);
        self.stale.descriptors = true; // open files are listed by name
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
        match self.process.duplicate_fd(fd) {
            Ok(fd) => self.record(&change(fd.as_fd())),
            Err(_) => Ok(Decision::Run), // the kernel will refuse it
        }
    }

    fn with_place(
        &mut self,
        dirfd: i32,
        path: u64,
        change: impl for<'a> FnOnce(Place<'a>) -> Change<'a>,
    ) -> Result<Decision> {
        match (self.text(path), self.start(dirfd)) {
            (Some(path), Some(start)) => self.record(&change(place(&start, &path))),
            _ => Ok(Decision::Run), // the kernel will refuse it
        }
    }

    /// Whether the program has the named file open.
    fn is_open(&self, start: BorrowedFd<'_>, path: &Path) -> bool {
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        let Ok(stat) = rustix::fs::statat(start, path, flags) else {
            return false;
        };
        let pid = self.process.pid();
        let open = std::fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten()
            .flatten();
        let mut files = open.filter_map(|entry| rustix::fs::stat(entry.path()).ok());
        files.any(|file| (file.st_dev, file.st_ino) == (stat.st_dev, stat.st_ino))
    }
}

fn new_thing(place: Place<'_>) -> Change<'_> {
    Change::Create {
        place,
        new: New::Thing,
    }
}

fn place<'a>(start: &'a OwnedFd, path: &'a Path) -> Place<'a> {
    Place::at(start.as_fd(), path)
}

/// The error a refusal of the recorder is seen as.
fn errno_of(refusal: &FileRefusal) -> i32 {
    match refusal {
        FileRefusal::StillOpen { .. } => libc::EBUSY,
        _ => libc::EOPNOTSUPP,
    }
}

/// Devices, sockets and named pipes are refused when they are opened, not when they are found.
fn refuse_special(start: BorrowedFd<'_>, path: &Path, has_terminal: bool) -> Option<Decision> {
    use rustix::fs::FileType;
    const OWN_TERMINAL: (u32, u32) = (5, 0);
    let stat = rustix::fs::statat(start, path, rustix::fs::AtFlags::empty()).ok()?;
    let device = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    let why = match FileType::from_raw_mode(stat.st_mode) {
        // Without a terminal the kernel says so, as to any other program.
        FileType::CharacterDevice if device == OWN_TERMINAL && !has_terminal => return None,
        FileType::CharacterDevice if crate::descriptors::is_stateless_device(stat.st_rdev) => return None,
        FileType::CharacterDevice | FileType::BlockDevice => "devices keep state of their own",
        FileType::Fifo => "a named pipe leads to another program",
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
