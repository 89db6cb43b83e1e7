//! Keeps a second program out of a directory or a file: `flock(2)`.
//!
//! * The lock ends with the last copy of its descriptor, so never later than the programs that have
//!   one; nothing stale can stay behind, and nothing is written, so a read-only place can be locked.
//! * A child made by `fork` that goes on without `exec` has such a copy.

use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, major, minor, open};
use rustix::io::Errno;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// An exclusive lock, held until dropped.
#[derive(Debug)]
pub struct Lock {
    _held: OwnedFd,
}

/// Why there is no lock.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another program has it.
    #[error("{} is in use by {holder}; wait for it to end, or end it", path.display())]
    Held {
        /// What is locked.
        path: PathBuf,
        /// Who has it.
        holder: Holder,
    },
    /// The system refused.
    #[error("locking {}: {source}", path.display())]
    Io {
        /// What should have been locked.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Who has a lock, as far as it can be told from here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The process; none when it is in another PID namespace or on another machine.
    pub pid: Option<u32>,
    /// The name of its program.
    pub name: Option<String>,
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
    /// Takes the lock on a directory or a file that is there, without waiting.
    ///
    /// # Errors
    /// [`LockError::Held`] names who has it; [`LockError::Io`].
    pub fn take(path: impl AsRef<Path>) -> Result<Lock, LockError> {
        let path = path.as_ref();
        let io = |e: Errno| LockError::Io {
            path: path.to_owned(),
            source: e.into(),
        };
        // Without NONBLOCK, opening a named pipe would wait for its other end.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = open(path, flags, Mode::empty()).map_err(io)?;
        match flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Lock { _held: fd }),
            Err(Errno::WOULDBLOCK) => Err(LockError::Held {
                path: path.to_owned(),
                holder: holder(&fd),
            }),
            Err(e) => Err(io(e)),
        }
    }
}

/// Who has a lock on the file behind `fd`: `proc_locks(5)`.
fn holder(fd: impl AsFd) -> Holder {
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let pid = fstat(fd).ok().and_then(|stat| {
        let file = format!(
            "{:02x}:{:02x}:{}",
            major(stat.st_dev),
            minor(stat.st_dev),
            stat.st_ino
        );
        locks.lines().find_map(|line| holder_in(line, &file))
    });
    let name = pid.and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).ok());
    Holder {
        pid,
        name: name.map(|name| name.trim_end().to_owned()),
    }
}

/// The process in a line like `1: FLOCK  ADVISORY  WRITE 4321 fe:00:1234 0 EOF`, if it is about `file`.
/// Lines with `->` are of those who wait.
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
    fn what_is_not_there_cannot_be_locked() {
        let error = Lock::take("/nowhere/at/all").unwrap_err();
        assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
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
