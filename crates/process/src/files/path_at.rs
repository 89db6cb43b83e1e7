//! Finding what a name or a descriptor means, without changing anything.

use super::error::{Doing, Refusal, Result};
use super::opened::{OpenDirectory, Opened};
use super::seen::{LONGEST, directory_above, kind, link_of, stat, will_fail};
use super::{Ident, PathAt};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Symbolic links followed before a name is given up, as in the kernel (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// What a name means: an entry of a directory, there or not.
pub(super) struct Found {
    /// The directory.
    pub(super) parent: Arc<OpenDirectory>,
    /// The name in the directory.
    pub(super) last: OsString,
    /// The absolute name, without symbolic links on the way.
    pub(super) path: PathBuf,
    /// What is there; a symbolic link only when it was not to be followed.
    pub(super) stat: Option<Stat>,
}

/// The absolute name of the file behind a descriptor, checked to be its name.
///
/// # Errors
/// [`Refusal::NoName`] when it has none, or none that can be seen from here.
pub(super) fn name_of(fd: impl AsFd, stat: &Stat) -> Result<PathBuf> {
    let path = link_of(fd)?;
    let same = path.is_absolute()
        && rustix::fs::statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|named| Ident::from(&named) == Ident::from(stat));
    if same {
        Ok(path)
    } else {
        Err(Refusal::NoName(path).into())
    }
}

/// Finds what `place` means. `None` when the system call will fail: a directory on the way is
/// missing, is none, or may not be entered.
///
/// # Errors
/// [`Error::Io`] when it cannot be found out.
pub(super) fn find(opened: &mut Opened, place: PathAt<'_>, follow: bool) -> Result<Option<Found>> {
    let mut base: Option<Arc<OpenDirectory>> = None;
    let mut name = place.name.as_os_str().to_owned();
    for _ in 0..LINKS_MAX {
        let base_fd = base.as_ref().map(|base| base.fd.as_fd());
        let start = base_fd.or(place.dir).unwrap_or(CWD);
        let Some(found) = entry(opened, start, &name)? else {
            return Ok(None);
        };
        let is_link = found
            .stat
            .as_ref()
            .is_some_and(|stat| kind(stat) == FileType::Symlink);
        if !is_link {
            return Ok(Some(found));
        }
        if !follow {
            // A slash behind a link asks for what it points to; the calls that come here then fail.
            return Ok((!name.as_bytes().ends_with(b"/")).then_some(found));
        }
        let target = rustix::fs::readlinkat(&found.parent.fd, &found.last, Vec::new())
            .doing("read the link", &found.path)?;
        name = OsString::from_vec(target.into_bytes());
        base = Some(found.parent);
    }
    Ok(None)
}

/// The entry that `name` is, seen from the directory `start`; its last part is not followed.
fn entry(opened: &mut Opened, start: BorrowedFd<'_>, name: &OsStr) -> Result<Option<Found>> {
    let (above, last) = split(name);
    if matches!(last, b"" | b"." | b"..") {
        return directory_itself(opened, start, name);
    }
    let above: &Path = OsStr::from_bytes(above).as_ref();
    let Some(parent) = opened.find(start, above)? else {
        return Ok(None);
    };
    let last = OsStr::from_bytes(last).to_owned();
    let path = parent.path.join(&last);
    if path.as_os_str().len() > LONGEST {
        return Err(Refusal::TooLong(directory_above(&parent.fd)).into());
    }
    let stat = match rustix::fs::statat(&parent.fd, &last, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Some(stat),
        Err(Errno::NOENT) if stat(&parent.fd)?.st_nlink > 0 => None,
        Err(error) if will_fail(error) => return Ok(None),
        Err(error) => return Err(error).doing("look at", &path),
    };
    Ok(Some(Found {
        parent,
        last,
        path,
        stat,
    }))
}

/// A name that ends in `.`, `..` or `/` is a directory by another name: its own entry is found instead.
fn directory_itself(opened: &mut Opened, start: BorrowedFd<'_>, name: &OsStr) -> Result<Option<Found>> {
    if name.is_empty() {
        return Ok(None);
    }
    let Some(parent) = OpenDirectory::open(start, name.as_ref())? else {
        return Ok(None);
    };
    let path = parent.path.clone();
    if path == Path::new("/") {
        let stat = Some(stat(&parent.fd)?);
        return Ok(Some(Found {
            parent,
            last: ".".into(),
            path,
            stat,
        }));
    }
    entry(opened, CWD, path.as_os_str())
}

/// The name without its last part, and its last part. Slashes at the end do not count.
fn split(name: &OsStr) -> (&[u8], &[u8]) {
    let bytes = name.as_bytes();
    let end = bytes
        .iter()
        .rposition(|&byte| byte != b'/')
        .map_or(0, |last| last + 1);
    let start = bytes[..end]
        .iter()
        .rposition(|&byte| byte == b'/')
        .map_or(0, |slash| slash + 1);
    let above = if start == 0 {
        b".".as_slice()
    } else {
        &bytes[..start]
    };
    (above, &bytes[start..end])
}

/// Opens a second description of a file, for reading it and for syncing it: the program's own must
/// not be held longer than the program does, for its locks (flock(2)).
///
/// # Errors
/// The system's, [`Errno::ACCESS`] when the file may not be read.
pub(super) fn reopen(dir: impl AsFd, name: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    match rustix::fs::openat(&dir, name, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => rustix::fs::openat(&dir, name, flags, Mode::empty()),
        opened => opened,
    }
}

/// Makes a file durable that cannot be opened (a symbolic link, or its mode forbids it): its whole file
/// system, through the directory it is in.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn sync_around(path: &Path) -> Result<()> {
    let dir = path.parent().unwrap_or(path);
    match rustix::fs::open(
        dir,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    ) {
        Ok(dir) => rustix::fs::syncfs(dir).doing("sync the file system of", path),
        Err(_) => {
            rustix::fs::sync();
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_split_as_the_kernel_reads_them() {
        for (name, above, last) in [
            ("a", ".", "a"),
            ("a/b", "a/", "b"),
            ("/a", "/", "a"),
            ("a//b//", "a//", "b"),
            ("/", ".", ""),
            ("", ".", ""),
            ("..", ".", ".."),
            ("a/.", "a/", "."),
        ] {
            let got = split(OsStr::new(name));
            assert_eq!(got, (above.as_bytes(), last.as_bytes()), "{name:?}");
        }
    }

    #[test]
    fn links_on_the_way_and_at_the_end_are_followed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("d")).unwrap();
        std::fs::write(root.join("d/f"), "x").unwrap();
        std::os::unix::fs::symlink("d", root.join("way")).unwrap();
        std::os::unix::fs::symlink("way/f", root.join("end")).unwrap();
        std::os::unix::fs::symlink("d/none", root.join("dangling")).unwrap();
        std::os::unix::fs::symlink("round", root.join("round")).unwrap();
        let at = |name: &str, follow| {
            find(&mut Opened::default(), PathAt::absolute(&root.join(name)), follow)
                .unwrap()
                .map(|found| {
                    (
                        found.path.strip_prefix(&root).unwrap().to_owned(),
                        found.stat.is_some(),
                    )
                })
        };
        assert_eq!(at("way/f", true), Some(("d/f".into(), true)));
        assert_eq!(at("end", true), Some(("d/f".into(), true)));
        assert_eq!(at("end", false), Some(("end".into(), true)));
        assert_eq!(at("dangling", true), Some(("d/none".into(), false)));
        assert_eq!(at("d/../way/.", true), Some(("d".into(), true)));
        assert_eq!(at("nowhere/f", true), None);
        assert_eq!(at("d/f/g", true), None);
        assert_eq!(at("round", true), None);
    }
}
