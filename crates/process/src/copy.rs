//! Copies of files and of state directories.
//!
//! * Bytes are shared where the file system can (ioctl_ficlone(2)), and holes stay holes.
//! * A file that exists is never replaced.

use crate::error::{Error, Result};
use crate::files::extents;
use rustix::io::Errno;
use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

/// The directory of a state that holds its older checkpoints.
pub(crate) const OLDER: &str = "older";

pub(crate) fn sync(path: &Path) -> Result<()> {
    let synced = File::open(path).and_then(|file| file.sync_all());
    synced.map_err(Error::file("cannot sync", path))
}

/// What is in a directory.
pub(crate) fn entries(directory: &Path) -> Result<Vec<fs::DirEntry>> {
    let entries = fs::read_dir(directory).and_then(Iterator::collect);
    entries.map_err(Error::file("cannot list", directory))
}

/// Copies all but the older checkpoints.
pub(crate) fn copy_directory(from: &Path, to: &Path, durable: bool) -> Result<()> {
    let made = fs::DirBuilder::new().mode(0o700).create(to);
    made.map_err(Error::file("cannot make the directory", to))?;
    for entry in entries(from)? {
        let (path, new) = (entry.path(), to.join(entry.file_name()));
        if entry.file_name() == OLDER {
            continue;
        }
        let kind = entry.file_type().map_err(Error::file("cannot look at", &path))?;
        if kind.is_dir() {
            copy_directory(&path, &new, durable)?;
        } else if kind.is_symlink() {
            let copied = fs::read_link(&path).and_then(|target| std::os::unix::fs::symlink(target, &new));
            copied.map_err(Error::file("cannot copy", &path))?;
        } else if kind.is_file() {
            // Sockets and named pipes in a state are of the process that runs it.
            copy_file(&path, &new).map_err(Error::file("cannot copy", &path))?;
            if durable {
                sync(&new)?;
            }
        }
    }
    if durable { sync(to) } else { Ok(()) }
}

pub(crate) fn copy_file(from: &Path, to: &Path) -> std::io::Result<()> {
    let (from, to) = (File::open(from)?, File::create_new(to)?);
    let mode = from.metadata()?.permissions().mode();
    to.set_permissions(fs::Permissions::from_mode(mode))?; // the program's own file is executed
    copy_content(&from, &to)
}

/// Fills the empty file `to`.
pub(crate) fn copy_content(from: &File, to: &File) -> std::io::Result<()> {
    if rustix::fs::ioctl_ficlone(to, from).is_ok() {
        return Ok(());
    }
    let meta = from.metadata()?;
    to.set_len(meta.len())?;
    let mut at = 0;
    while at < meta.len()
        && let Some(data) = extents::next_data(from, at..meta.len())?
    {
        let (mut read_at, mut write_at) = (data.start, data.start);
        while read_at < data.end {
            let left = usize::try_from(data.end - read_at).unwrap_or(usize::MAX);
            let copied = rustix::fs::copy_file_range(from, Some(&mut read_at), to, Some(&mut write_at), left);
            match copied {
                Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                Ok(_) | Err(Errno::INTR) => {}
                // Two file systems, of which one does not know how.
                Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {
                    copy_bytes(from, to, read_at..data.end)?;
                    read_at = data.end;
                }
                Err(error) => return Err(error.into()),
            }
        }
        at = data.end;
    }
    Ok(())
}

fn copy_bytes(from: &File, to: &File, range: std::ops::Range<u64>) -> std::io::Result<()> {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; (range.end - range.start).min(1 << 20) as usize];
    let mut at = range.start;
    while at < range.end {
        let piece = (range.end - at).min(bytes.len() as u64) as usize;
        from.read_exact_at(&mut bytes[..piece], at)?;
        to.write_all_at(&bytes[..piece], at)?;
        at += piece as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileExt, MetadataExt};

    #[test]
    fn a_copy_has_the_bytes_the_holes_and_the_mode() {
        let dir = tempfile::tempdir().unwrap();
        let [from, to] = ["from", "to"].map(|name| dir.path().join(name));
        let file = File::create(&from).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o750)).unwrap();
        file.write_all_at(b"first", 0).unwrap();
        file.write_all_at(&[7; 70_000], 3 << 30).unwrap();
        file.set_len(4 << 30).unwrap();
        copy_file(&from, &to).unwrap();
        let copy = File::open(&to).unwrap();
        let meta = copy.metadata().unwrap();
        assert_eq!((meta.len(), meta.mode() & 0o777), (4 << 30, 0o750));
        assert!(meta.blocks() * 512 < 1 << 20, "{} blocks", meta.blocks());
        let mut bytes = [0; 70_000];
        copy.read_exact_at(&mut bytes, 3 << 30).unwrap();
        assert_eq!(bytes, [7; 70_000]);
        copy.read_exact_at(&mut bytes[..6], 0).unwrap();
        assert_eq!(&bytes[..6], b"first\0");
        copy_bytes(
            &File::open(&from).unwrap(),
            &File::create(dir.path().join("plain")).unwrap(),
            0..5,
        )
        .unwrap();
        assert_eq!(fs::read(dir.path().join("plain")).unwrap(), b"first");
        assert!(copy_file(&from, &to).is_err(), "what is there is not replaced");
    }
}
