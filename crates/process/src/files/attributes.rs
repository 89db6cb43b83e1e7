//! Extended attributes of files: xattr(7).

use rustix::fd::AsFd;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

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
    let mut value = vec![0; LONGEST];
    names(&list[..len])
        .map(|name| {
            let len = rustix::fs::fgetxattr(&file, name, &mut value[..])?;
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
