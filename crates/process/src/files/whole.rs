//! Files and directories of the state, read and made as a whole.

use super::error::{Doing, Error, Result};
use super::format::Header;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::path::Path;
use zerocopy::IntoBytes;

/// Reads until `into` is full or the file ends; says how many bytes were there.
pub(super) fn read_at(file: &OwnedFd, into: &mut [u8], at: u64) -> io::Result<usize> {
    let mut got = 0;
    while got < into.len() {
        match rustix::io::pread(file, &mut into[got..], at + got as u64) {
            Ok(0) => break,
            Ok(read) => got += read,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(got)
}

/// Makes a file that holds a header and what follows it, under its name only when it does.
///
/// # Errors
/// [`Error::Io`], [`Error::Full`].
pub(super) fn make_whole(path: &Path, header: Header, rest: &[u8], sync: bool) -> Result<()> {
    let fresh = path.with_extension("new");
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let file = rustix::fs::open(&fresh, flags, Mode::RUSR | Mode::WUSR).doing("make", &fresh)?;
    let header = header.sealed();
    let bytes = [header.as_bytes(), rest].concat();
    let written = rustix::io::pwrite(&file, &bytes, 0).doing("write to", &fresh)?;
    if written < bytes.len() {
        return Err(Error::Full {
            what: format!("the disk of {}", fresh.display()),
            needed: bytes.len() as u64,
            by_bound: false,
        });
    }
    if sync {
        rustix::fs::fsync(&file).doing("sync", &fresh)?;
    }
    rustix::fs::rename(&fresh, path).doing("put in place", path)
}

/// Makes the names in a directory durable.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn sync_directory(dir: &Path) -> Result<()> {
    let file = std::fs::File::open(dir).doing("open the directory", dir)?;
    rustix::fs::fsync(file).doing("sync the directory", dir)
}
