//! How to get at a file that is about to change: by the program's descriptor, or by a name.

use super::error::{Doing, Result};
use super::path_at::{self, Found};
use super::seen;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{CWD, OFlags, Stat};
use rustix::io::Errno;
use std::path::PathBuf;
use twinpage_os::name;

/// A file that is about to change.
pub(super) enum Reach<'a> {
    /// A duplicate of the program's descriptor.
    Open(BorrowedFd<'a>),
    /// A name that is there.
    Named(&'a Found),
}

/// A descriptor of our own.
pub(super) struct Own {
    pub(super) fd: OwnedFd,
    /// It is open for reading.
    pub(super) readable: bool,
    /// It is an open file of its own: its offset is shared with no other process.
    pub(super) is_ours: bool,
}

impl Reach<'_> {
    /// Opens the file again.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn open(&self) -> Result<Own, Errno> {
        match self {
            Reach::Open(fd) => open_again(*fd),
            Reach::Named(found) => {
                let fd = path_at::reopen(&found.parent.fd, found.last.as_ref(), OFlags::NOFOLLOW)?;
                Ok(Own {
                    fd,
                    readable: true,
                    is_ours: true,
                })
            }
        }
    }

    /// Its absolute name.
    ///
    /// # Errors
    /// As [`path_at::name_of`].
    pub(super) fn name(&self, stat: &Stat) -> Result<PathBuf> {
        match self {
            Reach::Open(fd) => path_at::name_of(fd, stat),
            Reach::Named(found) => Ok(found.path.clone()),
        }
    }

    /// The directory it is in, to sync its file system with, when the file cannot be opened.
    pub(super) fn around(&self, stat: &Stat) -> Option<OwnedFd> {
        let Reach::Named(found) = self else { return None };
        let same_system = seen::stat(&found.parent.fd).is_ok_and(|dir| dir.st_dev == stat.st_dev);
        if found.parent.readable && same_system {
            duplicate(&found.parent.fd).ok()
        } else {
            None
        }
    }
}

/// Opens the file behind the program's descriptor again; its own one if need be.
fn open_again(fd: BorrowedFd<'_>) -> Result<Own, Errno> {
    match path_at::reopen(CWD, &name::of_open(fd), OFlags::empty()) {
        Ok(fd) => Ok(Own {
            fd,
            readable: true,
            is_ours: true,
        }),
        Err(Errno::ACCESS) => {
            // It lost its read permission since the program opened it.
            let readable = rustix::fs::fcntl_getfl(fd)?.contains(OFlags::RDWR);
            rustix::io::fcntl_dupfd_cloexec(fd, 3).map(|fd| Own {
                fd,
                readable,
                is_ours: false,
            })
        }
        Err(error) => Err(error),
    }
}

/// A duplicate of one of our own descriptors.
///
/// # Errors
/// [`super::Error::Io`].
pub(super) fn duplicate(fd: &OwnedFd) -> Result<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(fd, 3).doing("duplicate the descriptor of", name::of_open(fd))
}
