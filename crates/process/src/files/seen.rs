//! What a descriptor is, as the kernel says, and which of its errors the program's own call will meet.

use super::error::{Doing, Error, Result};
use rustix::fd::{AsFd, AsRawFd};
use rustix::fs::{CWD, FileType, Stat};
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use twinpage_os::name;

/// What `fstat` says.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn stat(fd: impl AsFd) -> Result<Stat> {
    let fd = fd.as_fd();
    rustix::fs::fstat(fd).map_err(|error| Error::Io {
        doing: "look at",
        path: link_of(fd).unwrap_or_else(|_| format!("descriptor {}", fd.as_raw_fd()).into()),
        source: error.into(),
    })
}

/// Its type.
pub(super) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Writing clears these bits of a mode, set-user-ID and set-group-ID: write(2). Only a record restores them.
pub(crate) const SET_ID: u32 = 0o6000;

/// Whether it is a regular file.
pub(super) fn is_regular(stat: &Stat) -> bool {
    kind(stat) == FileType::RegularFile
}

/// Whether it is a directory.
pub(super) fn is_directory(stat: &Stat) -> bool {
    kind(stat) == FileType::Directory
}

/// The kernel's name for the file behind a descriptor, with its mark if that was removed.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn link_of(fd: impl AsFd) -> Result<PathBuf> {
    let proc = name::of_open(fd);
    let link = rustix::fs::readlinkat(CWD, &proc, Vec::new()).doing("read the link", &proc)?;
    Ok(OsString::from_vec(link.into_bytes()).into())
}

/// Whether the program's own call will meet the same error and change nothing.
pub(super) fn will_fail(error: Errno) -> bool {
    matches!(
        error,
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS | Errno::NAMETOOLONG
    )
}
