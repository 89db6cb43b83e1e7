//! What twinpage's own file descriptors 0, 1 and 2 are.

use super::error::{Error, Result};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::io;
use twinpage_os::{name, remote};

/// The real standard streams: where input comes from and output goes to in the end.
#[derive(Debug)]
pub struct RealStreams {
    pub(super) fds: [Option<OwnedFd>; 3],
    /// These are duplicates of this process's own descriptors 0, 1 and 2.
    pub(super) own: bool,
}

/// What a file descriptor is, as far as relaying matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// /dev/null and its like: holding back changes nothing.
    Memory,
    Regular,
    Pipe,
    Terminal,
    /// A socket, a device.
    Other,
}

/// Above the range a program's own descriptors usually have, dup(2).
const LOWEST: i32 = 100;
/// A limit of open files that leaves room above.
const ENOUGH: u64 = 128;

fn not_duplicated(n: usize, error: Errno) -> Error {
    let limit = remote::limit(0, libc::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft);
    match error {
        Errno::INVAL | Errno::MFILE if limit < ENOUGH => Error::FewDescriptors {
            limit,
            needed: ENOUGH,
        },
        error => Error::io(format!("duplicate file descriptor {n}"), error),
    }
}

impl RealStreams {
    /// This process's own standard streams. Closed ones stay closed for the program.
    ///
    /// # Errors
    /// [`Error::Io`] when there are no descriptors left.
    pub fn current() -> Result<RealStreams> {
        let mut fds = [None, None, None];
        for (n, fd) in fds.iter_mut().enumerate() {
            let Ok(own) = twinpage_os::spawn::borrow(n as i32) else {
                continue;
            };
            let own = rustix::io::fcntl_dupfd_cloexec(own, LOWEST);
            *fd = Some(own.map_err(|error| not_duplicated(n, error))?);
        }
        Ok(RealStreams { fds, own: true })
    }

    /// Other descriptors in the place of 0, 1 and 2.
    #[must_use]
    pub fn new(fds: [Option<OwnedFd>; 3]) -> RealStreams {
        RealStreams { fds, own: false }
    }

    /// What stream `n` is; `None` when it is closed.
    pub(super) fn kind(&self, n: usize) -> Result<Option<Kind>> {
        self.fds[n].as_ref().map(|fd| kind(fd.as_fd())).transpose()
    }

    /// Whether streams `a` and `b` are one: what is written to both must keep its order.
    pub(super) fn same(&self, a: usize, b: usize) -> Result<bool> {
        let (Some(a), Some(b)) = (&self.fds[a], &self.fds[b]) else {
            return Ok(false);
        };
        let (left, right) = (stat(a.as_fd())?, stat(b.as_fd())?);
        if (left.st_dev, left.st_ino) != (right.st_dev, right.st_ino) {
            // A terminal has many names (/dev/tty, /dev/pts/3) and one device number.
            let terminals = kind(a.as_fd())? == Kind::Terminal && kind(b.as_fd())? == Kind::Terminal;
            return Ok(terminals && left.st_rdev == right.st_rdev);
        }
        if kind(a.as_fd())? != Kind::Regular {
            return Ok(true);
        }
        // Two separate opens of one file overwrite each other, unless both append.
        Ok(same_open_file(a.as_fd(), b.as_fd()) || (appends(a.as_fd())? && appends(b.as_fd())?))
    }
}

pub(super) fn kind(fd: BorrowedFd<'_>) -> Result<Kind> {
    let stat = stat(fd)?;
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile | FileType::Directory => Kind::Regular,
        FileType::Fifo => Kind::Pipe,
        // Major number 1: null, zero, full, random; see the kernel's list of devices.
        FileType::CharacterDevice if rustix::fs::major(stat.st_rdev) == 1 => Kind::Memory,
        FileType::CharacterDevice if rustix::termios::isatty(fd) => Kind::Terminal,
        _ => Kind::Other,
    })
}

pub(super) fn stat(fd: BorrowedFd<'_>) -> Result<Stat> {
    rustix::fs::fstat(fd).map_err(|e| Error::io(format!("look at file descriptor {}", fd.as_raw_fd()), e))
}

/// Whether writes go to the end of the file, whatever its offset.
pub(super) fn appends(fd: BorrowedFd<'_>) -> Result<bool> {
    let flags = rustix::fs::fcntl_getfl(fd)
        .map_err(|e| Error::io(format!("look at file descriptor {}", fd.as_raw_fd()), e))?;
    Ok(flags.contains(OFlags::APPEND))
}

/// Whether two descriptors share one open file, kcmp(2). Where the kernel will not say: whether they
/// look alike (the same flags and offset).
fn same_open_file(a: BorrowedFd<'_>, b: BorrowedFd<'_>) -> bool {
    let me = std::process::id() as i32;
    twinpage_os::remote::same_open_file(me, a.as_raw_fd(), b.as_raw_fd()).unwrap_or_else(|_| {
        let look = |fd| (rustix::fs::fcntl_getfl(fd).ok(), rustix::fs::tell(fd).ok());
        look(a) == look(b)
    })
}

/// A second open of what `fd` is, with a file offset and flags of its own, proc(5). Others share the
/// flags of the first: making that one non-blocking would surprise them.
pub(super) fn reopen(fd: BorrowedFd<'_>, flags: OFlags) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(
        name::of_open(fd),
        flags | OFlags::NOCTTY | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, OpenOptions};

    fn outside(a: File, b: File) -> RealStreams {
        RealStreams::new([None, Some(a.into()), Some(b.into())])
    }

    #[test]
    fn knows_one_open_file_from_two() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let a = File::create(&path).unwrap();
        assert!(outside(a.try_clone().unwrap(), a).same(1, 2).unwrap());
        let (a, b) = (File::create(&path).unwrap(), File::create(&path).unwrap());
        assert!(!outside(a, b).same(1, 2).unwrap());
        let append = || OpenOptions::new().append(true).open(&path).unwrap();
        assert!(outside(append(), append()).same(1, 2).unwrap());
        let (_r, w) = rustix::pipe::pipe().unwrap();
        let again = reopen(w.as_fd(), OFlags::WRONLY | OFlags::NONBLOCK).unwrap();
        assert!(RealStreams::new([None, Some(w), Some(again)]).same(1, 2).unwrap());
    }

    #[test]
    fn knows_what_holding_back_cannot_change() {
        let null = File::open("/dev/null").unwrap();
        assert_eq!(kind(null.as_fd()).unwrap(), Kind::Memory);
        let (r, _w) = rustix::pipe::pipe().unwrap();
        assert_eq!(kind(r.as_fd()).unwrap(), Kind::Pipe);
        assert_eq!(RealStreams::new([None, None, None]).kind(1).unwrap(), None);
    }
}
