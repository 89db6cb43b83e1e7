//! Keeps a second program out of a directory or a file: `flock(2)`.
//!
//! * The lock ends when the process that took it drops it, and with the last copy of its descriptor: never later than
//!   the programs that have one. Nothing stale can stay behind, and nothing is written, so a read-only place can be
//!   locked.
//! * A child made by `fork` has such a copy, until it executes another program. What it drops ends no lock of its parent.

use crate::name::of_open;
use crate::proc_file;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, major, minor, open};
use rustix::io::Errno;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A lock, held until dropped: of one owner, or of any number of readers.
#[derive(Debug)]
pub struct Lock {
    held: OwnedFd,
    /// The process that took it.
    taker: u32,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A child that another thread just made would keep it for a moment more.
        if self.taker == std::process::id() {
            let _ = flock(&self.held, FlockOperation::Unlock); // else it ends as the descriptor is closed
        }
    }
}

/// Why there is no lock.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another program has it.
    #[error("{} is in use by {holder}; wait for it to end, or end it", path.display())]
    Held {
        /// The locked file.
        path: PathBuf,
        /// Its holder.
        holder: Holder,
    },
    /// The system refused.
    #[error("locking {}: {source}", path.display())]
    Io {
        /// What should have been locked.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

/// The holder of a lock, as far as it can be told from here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The process; none when it is in another PID namespace or on another machine.
    pub pid: Option<u32>,
    /// The name of its program.
    pub name: Option<String>,
    /// Whether it only reads: it has the lock for a moment, and others may read beside it.
    pub reads: bool,
}

impl Holder {
    /// Whether it is ending, or gone already: what is left of it keeps the lock for a moment.
    #[must_use]
    pub fn is_dying(&self) -> bool {
        let Some(pid) = self.pid else { return false };
        proc_file::text(format!("/proc/{pid}/status")).map_or(true, |status| is_dying(&status))
    }

    /// How long its end is worth waiting for, where it has the lock for a moment only: a dying program, as freeing much
    /// memory takes time; one that is not known from here, most likely what a killed twinpage left in its namespace,
    /// which dies after it; and a reader.
    #[must_use]
    pub fn patience(&self) -> Duration {
        Duration::from_secs(match self {
            holder if holder.is_dying() => 30,
            Holder { pid: None, .. } | Holder { reads: true, .. } => 10,
            _ => 0,
        })
    }
}

/// Whether the process of a `/proc/PID/status` is dead or has SIGKILL waiting: `proc_pid_status(5)`.
fn is_dying(status: &str) -> bool {
    const SIGKILL: u64 = 1 << 8;
    let is_dead = proc_file::field(status, "State").is_some_and(|state| state.starts_with(['Z', 'X']));
    let mut waiting = ["SigPnd", "ShdPnd"].into_iter();
    is_dead || waiting.any(|name| proc_file::mask(status, name).is_some_and(|mask| mask & SIGKILL != 0))
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.name, self.pid) {
            (Some(name), Some(pid)) => write!(f, "{name} (process {pid})"),
            (None, Some(pid)) => write!(f, "process {pid}"),
            _ => write!(f, "another program"),
        }
    }
}

impl Lock {
    /// Takes the lock on a directory or a file that is there, without waiting, for one owner alone.
    ///
    /// # Errors
    /// [`LockError::Held`] names the holder; [`LockError::Io`].
    pub fn take(path: impl AsRef<Path>) -> Result<Lock, LockError> {
        Lock::with(path.as_ref(), FlockOperation::NonBlockingLockExclusive)
    }

    /// Takes the lock as a reader, beside other readers.
    ///
    /// # Errors
    /// As [`Lock::take`].
    pub fn to_read(path: impl AsRef<Path>) -> Result<Lock, LockError> {
        Lock::with(path.as_ref(), FlockOperation::NonBlockingLockShared)
    }

    /// Whether the locked file has a name: whoever had the lock before may have removed it.
    pub(crate) fn is_still_named(&self) -> bool {
        fstat(&self.held).is_ok_and(|stat| stat.st_nlink > 0)
    }

    /// The locked file, whatever its own name leads to by now.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        of_open(&self.held)
    }

    /// As [`Lock::take`], but waits a while for readers.
    ///
    /// # Errors
    /// As [`Lock::take`].
    pub fn behind_readers(path: impl AsRef<Path>) -> Result<Lock, LockError> {
        let only_readers = |holder: &Holder| match holder.reads {
            true => holder.patience(),
            false => Duration::ZERO,
        };
        Lock::waiting(|| Lock::take(&path), only_readers)
    }

    /// Takes a lock by `take` again and again, as long as its holder is worth `patience`.
    ///
    /// # Errors
    /// As `take`.
    pub fn waiting(
        take: impl Fn() -> Result<Lock, LockError>,
        patience: impl Fn(&Holder) -> Duration,
    ) -> Result<Lock, LockError> {
        let began = Instant::now();
        loop {
            match take() {
                Err(LockError::Held { holder, .. }) if began.elapsed() < patience(&holder) => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                done => return done,
            }
        }
    }

    fn with(path: &Path, operation: FlockOperation) -> Result<Lock, LockError> {
        let io = |e: Errno| LockError::Io {
            path: path.to_owned(),
            source: e.into(),
        };
        // Without NONBLOCK, opening a named pipe would wait for its other end.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = open(path, flags, Mode::empty()).map_err(io)?;
        match flock(&fd, operation) {
            Ok(()) => Ok(Lock {
                held: fd,
                taker: std::process::id(),
            }),
            Err(Errno::WOULDBLOCK) => Err(LockError::Held {
                path: path.to_owned(),
                holder: holder(&fd),
            }),
            Err(e) => Err(io(e)),
        }
    }
}

/// The holder of a lock on the file behind `fd`: `proc_locks(5)`.
fn holder(fd: impl AsFd) -> Holder {
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let pid = fstat(&fd).ok().and_then(|stat| {
        let file = format!(
            "{:02x}:{:02x}:{}",
            major(stat.st_dev),
            minor(stat.st_dev),
            stat.st_ino
        );
        locks.lines().find_map(|line| holder_in(line, &file))
    });
    // Asked of the lock itself: /proc/locks does not show what other containers hold.
    let reads = flock(&fd, FlockOperation::NonBlockingLockShared).is_ok();
    let name = pid.and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).ok());
    Holder {
        pid,
        name: name.map(|name| name.trim_end().to_owned()),
        reads,
    }
}

/// The process in a line like `1: FLOCK  ADVISORY  WRITE 4321 fe:00:1234 0 EOF`, if it is about `file`.
/// Lines with `->` are of waiters.
fn holder_in(line: &str, file: &str) -> Option<u32> {
    let mut fields = line.split_whitespace().skip(1);
    if fields.next()? != "FLOCK" {
        return None;
    }
    let pid = fields.nth(2)?;
    (fields.next()? == file).then(|| pid.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_taker_is_told_who_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, b"").unwrap();
        for path in [folder.path(), &file] {
            let lock = Lock::take(path).unwrap();
            let error = Lock::take(path).unwrap_err();
            let LockError::Held { holder, .. } = &error else {
                panic!("{error}")
            };
            assert!(
                holder.pid.is_none_or(|pid| pid == std::process::id()),
                "{holder:?}"
            );
            assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
            drop(lock);
            Lock::take(path).unwrap();
        }
    }

    #[test]
    fn a_lock_ends_though_a_child_has_a_copy_and_not_by_the_childs_drop() {
        let folder = tempfile::tempdir().unwrap();
        let lock = Lock::take(folder.path()).unwrap();
        let copy = |taker| Lock {
            held: lock.held.try_clone().unwrap(),
            taker,
        };
        drop(copy(0)); // as a child does
        assert!(Lock::take(folder.path()).is_err());
        let childs = copy(0);
        drop(lock);
        Lock::take(folder.path()).unwrap();
        drop(childs);
    }

    #[test]
    fn readers_share_and_keep_an_owner_out() {
        let folder = tempfile::tempdir().unwrap();
        let reads = |taken: Result<Lock, LockError>| match taken.unwrap_err() {
            LockError::Held { holder, .. } => holder.reads,
            error => panic!("{error}"),
        };
        let readers = [(); 2].map(|()| Lock::to_read(folder.path()).unwrap());
        assert!(reads(Lock::take(folder.path())));
        drop(readers);
        let _owner = Lock::take(folder.path()).unwrap();
        assert!(!reads(Lock::take(folder.path())));
        assert!(!reads(Lock::to_read(folder.path())));
    }

    #[test]
    fn what_is_not_there_cannot_be_locked() {
        let error = Lock::take("/nowhere/at/all").unwrap_err();
        assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
    }

    #[test]
    fn who_is_dying() {
        let status = |state: &str, shared: &str| {
            format!("Name:\tx\nState:\t{state}\nSigPnd:\t0000000000000000\nShdPnd:\t{shared}\n")
        };
        assert!(!is_dying(&status("S (sleeping)", "0000000000004000")));
        assert!(is_dying(&status("S (sleeping)", "0000000000004100")));
        assert!(is_dying(&status("Z (zombie)", "0000000000000000")));
        let holder = |pid| Holder {
            pid,
            name: None,
            reads: false,
        };
        assert!(!holder(Some(std::process::id())).is_dying() && !holder(None).is_dying());
        assert!(holder(Some(u32::MAX)).is_dying());
    }

    #[test]
    fn lines_of_proc_locks() {
        let line = "12: FLOCK  ADVISORY  WRITE 4321 fe:00:1234 0 EOF";
        assert_eq!(holder_in(line, "fe:00:1234"), Some(4321));
        assert_eq!(holder_in(line, "fe:00:123"), None);
        assert_eq!(
            holder_in(
                "12: -> FLOCK  ADVISORY  WRITE 4321 fe:00:1234 0 EOF",
                "fe:00:1234"
            ),
            None
        );
        assert_eq!(
            holder_in("12: POSIX  ADVISORY  WRITE 4321 fe:00:1234 0 EOF", "fe:00:1234"),
            None
        );
        assert_eq!(holder_in("", "fe:00:1234"), None);
    }
}
