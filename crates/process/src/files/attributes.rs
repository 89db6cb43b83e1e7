//! Extended attributes of files: xattr(7).

use rustix::fd::{AsFd, AsRawFd};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The longest list of names, and the longest value: `XATTR_LIST_MAX`, `XATTR_SIZE_MAX`.
pub(super) const LONGEST: usize = 1 << 16;

/// Those that the system's own security modules give to every file: they give them to a copy too.
const GIVEN: [&[u8]; 4] = [
    b"security.selinux",
    b"security.ima",
    b"security.evm",
    b"security.SMACK64",
];

/// Names and values.
pub type Attributes = Vec<(OsString, Vec<u8>)>;

/// The names in a list as the kernel gives it.
pub(super) fn names(list: &[u8]) -> impl Iterator<Item = &OsStr> {
    let names = list.split(|&byte| byte == 0);
    names
        .filter(|name| !name.is_empty() && !GIVEN.contains(name))
        .map(OsStr::from_bytes)
}

/// All attributes of an open file; none where the file system has none.
///
/// # Errors
/// The system's.
pub(crate) fn read_all(file: impl AsFd) -> Result<Attributes, Errno> {
    // Most files have none: that is one call without a buffer.
    let len = match rustix::fs::flistxattr_query(&file) {
        Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        len => len?,
    };
    let mut list = vec![0; len];
    let len = rustix::fs::flistxattr(&file, &mut list[..])?;
    values(&list[..len], |name, value| {
        rustix::fs::fgetxattr(&file, name, value)
    })
}

/// All attributes of what `name` is in `dir`; none where the file system has none.
///
/// # Errors
/// The system's.
pub(super) fn read_all_of(dir: impl AsFd, name: &Path) -> Result<Attributes, Errno> {
    let path = path_in(dir, name);
    let get = |name: &OsStr, value: &mut [u8]| rustix::fs::lgetxattr(&path, name, value);
    values(&list(&path)?, get)
}

/// Takes from what was just made in `dir` what it has of that directory: access control lists.
///
/// # Errors
/// The system's.
pub(super) fn disinherit(dir: impl AsFd, name: &Path) -> Result<(), Errno> {
    let path = path_in(dir, name);
    let list = list(&path)?;
    names(&list).try_for_each(|name| rustix::fs::lremovexattr(&path, name))
}

fn path_in(dir: impl AsFd, name: &Path) -> PathBuf {
    let dir = dir.as_fd().as_raw_fd();
    Path::new("/proc/self/fd").join(dir.to_string()).join(name)
}

fn list(path: &Path) -> Result<Vec<u8>, Errno> {
    let len = match rustix::fs::llistxattr_query(path) {
        Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        len => len?,
    };
    let mut list = vec![0; len];
    let len = rustix::fs::llistxattr(path, &mut list[..])?;
    list.truncate(len);
    Ok(list)
}

fn values(list: &[u8], get: impl Fn(&OsStr, &mut [u8]) -> Result<usize, Errno>) -> Result<Attributes, Errno> {
    let mut value = vec![0; LONGEST];
    names(list)
        .map(|name| {
            let len = get(name, &mut value[..])?;
            Ok((name.to_owned(), value[..len].to_vec()))
        })
        .collect()
}

/// Sets attributes of an open file.
///
/// # Errors
/// The system's.
pub(crate) fn write_all(file: impl AsFd, attributes: &Attributes) -> Result<(), Errno> {
    attributes
        .iter()
        .try_for_each(|(name, value)| rustix::fs::fsetxattr(&file, name, value, XattrFlags::empty()))
}
