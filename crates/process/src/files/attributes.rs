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
    let length = rustix::fs::flistxattr_query(&file);
    let names = list(length, |names| rustix::fs::flistxattr(&file, names))?;
    values(&names, |name, value| rustix::fs::fgetxattr(&file, name, value))
}

/// All attributes of what `name` is in `dir`; none where the file system has none.
///
/// # Errors
/// The system's.
pub(super) fn read_all_of(dir: impl AsFd, name: &Path) -> Result<Attributes, Errno> {
    let path = path_in(dir, name);
    let get = |name: &OsStr, value: &mut [u8]| rustix::fs::lgetxattr(&path, name, value);
    values(&list_of(&path)?, get)
}

/// Takes from what was just made in `dir` what it has of that directory: access control lists.
///
/// # Errors
/// The system's.
pub(super) fn disinherit(dir: impl AsFd, name: &Path) -> Result<(), Errno> {
    let path = path_in(dir, name);
    let list = list_of(&path)?;
    names(&list).try_for_each(|name| rustix::fs::lremovexattr(&path, name))
}

fn path_in(dir: impl AsFd, name: &Path) -> PathBuf {
    let dir = dir.as_fd().as_raw_fd();
    Path::new("/proc/self/fd").join(dir.to_string()).join(name)
}

fn list_of(path: &Path) -> Result<Vec<u8>, Errno> {
    list(rustix::fs::llistxattr_query(path), |names| {
        rustix::fs::llistxattr(path, names)
    })
}

/// The names that `fill` gives, of this length. Most files have none: that is one call without a buffer.
fn list(
    length: Result<usize, Errno>,
    fill: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
) -> Result<Vec<u8>, Errno> {
    let length = match length {
        Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        length => length?,
    };
    let mut names = vec![0; length];
    let length = fill(&mut names)?;
    names.truncate(length);
    Ok(names)
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
