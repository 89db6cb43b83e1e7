//! What a descriptor is, as the kernel says, and which of its errors the program's own call will meet.

use super::error::{Doing, Error, Refusal, Result};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
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
/// [`Error::Io`]; [`Refusal::TooLong`].
pub(crate) fn link_of(fd: impl AsFd) -> Result<PathBuf> {
    let fd = fd.as_fd();
    let proc = name::of_open(fd);
    match rustix::fs::readlinkat(CWD, &proc, Vec::new()) {
        Err(Errno::NAMETOOLONG) => Err(Refusal::TooLong(directory_above(fd)).into()),
        link => Ok(OsString::from_vec(link.doing("read the link", &proc)?.into_bytes()).into()),
    }
}

/// The longest name that the kernel takes or tells: limits.h(0p), `PATH_MAX` without the zero byte.
pub(super) const LONGEST: usize = libc::PATH_MAX as usize - 1;

/// The same of what a link of `/proc` leads to.
pub(crate) fn directory_above_link(link: &Path) -> PathBuf {
    let opened = rustix::fs::open(link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    opened.map_or_else(|_| PathBuf::from("/"), directory_above)
}

/// A directory above one whose name is too long, by a name that a line of text has room for. The root, where it is a file.
pub(super) fn directory_above(fd: impl AsFd) -> PathBuf {
    const SHOWN: usize = 200;
    let up = |fd: BorrowedFd<'_>| rustix::fs::openat(fd, "..", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let name = |fd: &OwnedFd| rustix::fs::readlinkat(CWD, name::of_open(fd), Vec::new()).ok();
    let mut above = up(fd.as_fd());
    while let Ok(directory) = above {
        match name(&directory) {
            Some(name) if name.as_bytes().len() <= SHOWN => {
                return OsString::from_vec(name.into_bytes()).into();
            }
            _ => above = up(directory.as_fd()),
        }
    }
    PathBuf::from("/")
}

/// Whether the program's own call will meet the same error and change nothing.
pub(super) fn will_fail(error: Errno) -> bool {
    matches!(
        error,
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS | Errno::NAMETOOLONG
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The system takes no such name, so the directories are made and removed one by one.
    #[test]
    fn a_name_that_is_too_long_is_refused_with_a_directory_above() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let open = |at: &OwnedFd, name: &str| {
            rustix::fs::openat(at, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap()
        };
        let part = "a".repeat(250);
        let mut at = vec![OwnedFd::from(std::fs::File::open(&root).unwrap())];
        for _ in 0..LONGEST / part.len() + 1 {
            let last = &at[at.len() - 1];
            assert!(link_of(last).unwrap().starts_with(&root));
            rustix::fs::mkdirat(last, &part, Mode::RWXU).unwrap();
            at.push(open(last, &part));
        }
        let refused = link_of(&at[at.len() - 1]).unwrap_err();
        assert!(
            matches!(&refused, Error::Refused(Refusal::TooLong(above)) if *above == root),
            "{refused}"
        );
        while let Some(above) = at.pop().and(at.last()) {
            rustix::fs::unlinkat(above, &part, rustix::fs::AtFlags::REMOVEDIR).unwrap();
        }
    }
}
