//! Directories that names led to of late.
//!
//! To open a directory and to ask for its path takes longer than all else that a change of a name needs. Whether both are
//! still right is seen by a look or two.
//!
//! * A directory is given for a name only if the name leads there now, and its path too.
//! * At most [`MOST`] are open, none from one epoch to the next: a file system can be unmounted that the program has left.

use super::Ident;
use super::error::{Doing, Result};
use super::seen::{is_directory, link_of, stat, will_fail};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MOST: usize = 64;

/// An open directory.
pub(super) struct OpenDirectory {
    /// Opened with `O_PATH` when it cannot be read.
    pub(super) fd: OwnedFd,
    /// Whether it is open for reading, and can be synced.
    pub(super) readable: bool,
    /// Its absolute name, without symbolic links on the way.
    pub(super) path: PathBuf,
    file: Ident,
}

/// The directories, by the directory that the name starts from (none of an absolute name) and the name.
#[derive(Default)]
pub(super) struct Opened(HashMap<(Ident, PathBuf), Arc<OpenDirectory>>);

impl Opened {
    /// The directory that `name` is, seen from `start`; `None` when the program's call will not find it either.
    ///
    /// # Errors
    /// [`Error::Io`](super::Error::Io).
    pub(super) fn find(&mut self, start: BorrowedFd<'_>, name: &Path) -> Result<Option<Arc<OpenDirectory>>> {
        let from = if name.is_absolute() {
            Some(Ident::NONE)
        } else {
            rustix::fs::fstat(start).ok().map(|stat| Ident::from(&stat))
        };
        let Some(from) = from else {
            return OpenDirectory::open(start, name); // twinpage's own directory, which has no descriptor
        };
        let key = (from, name.to_owned());
        if let Some(known) = self.0.get(&key).filter(|known| known.is_at(start, name)) {
            return Ok(Some(known.clone()));
        }
        let found = OpenDirectory::open(start, name)?;
        if self.0.len() >= MOST {
            self.0.clear();
        }
        match &found {
            Some(directory) => drop(self.0.insert(key, directory.clone())),
            None => drop(self.0.remove(&key)),
        }
        Ok(found)
    }

    /// Closes all.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl OpenDirectory {
    /// Opens a directory for reading, or with `O_PATH` when it may not be read; `None` as of [`Opened::find`].
    ///
    /// # Errors
    /// [`Error::Io`](super::Error::Io).
    pub(super) fn open(start: BorrowedFd<'_>, name: &Path) -> Result<Option<Arc<OpenDirectory>>> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(start, name, flags | OFlags::RDONLY, Mode::empty());
        let (opened, readable) = match opened {
            Err(Errno::ACCESS) => {
                let opened = rustix::fs::openat(start, name, flags | OFlags::PATH, Mode::empty());
                (opened, false)
            }
            opened => (opened, true),
        };
        let fd = match opened {
            Err(error) if will_fail(error) => return Ok(None),
            opened => opened.doing("open the directory", name)?,
        };
        Ok(Some(Arc::new(OpenDirectory {
            path: link_of(&fd)?,
            file: Ident::from(&stat(&fd)?),
            fd,
            readable,
        })))
    }

    /// Whether that name, and its own, lead to it now.
    fn is_at(&self, start: BorrowedFd<'_>, name: &Path) -> bool {
        let is_it = |found: rustix::io::Result<Stat>| {
            found.is_ok_and(|found| is_directory(&found) && Ident::from(&found) == self.file)
        };
        is_it(rustix::fs::statat(start, name, AtFlags::empty()))
            && (name == self.path || is_it(rustix::fs::statat(CWD, &self.path, AtFlags::SYMLINK_NOFOLLOW)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_directory_is_found_where_it_is_now() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let [a, b, way] = ["a", "b", "way"].map(|name| root.join(name));
        fs::create_dir(&a).unwrap();
        std::os::unix::fs::symlink("a", &way).unwrap();
        let mut opened = Opened::default();
        let path = |opened: &mut Opened, name: &Path| {
            let found = opened.find(CWD, name).unwrap();
            found.map(|directory| directory.path.clone())
        };
        for _ in 0..2 {
            assert_eq!(path(&mut opened, &a).as_ref(), Some(&a));
            assert_eq!(path(&mut opened, &way).as_ref(), Some(&a));
        }
        fs::rename(&a, &b).unwrap();
        assert_eq!(path(&mut opened, &a), None);
        assert_eq!(path(&mut opened, &way), None);
        // The old name leads there by a link.
        std::os::unix::fs::symlink("b", &a).unwrap();
        assert_eq!(path(&mut opened, &a).as_ref(), Some(&b));
        assert_eq!(path(&mut opened, &way).as_ref(), Some(&b));
        // Another one is there.
        fs::remove_file(&a).unwrap();
        fs::create_dir(&a).unwrap();
        assert_eq!(path(&mut opened, &way).as_ref(), Some(&a));
        assert_eq!(path(&mut opened, &b).as_ref(), Some(&b));
        // Above it a name changes: the one that it is given with leads there as before.
        let start = fs::File::open(&root).unwrap();
        use std::os::fd::AsFd;
        let inner = |opened: &mut Opened| {
            opened
                .find(start.as_fd(), Path::new("b"))
                .unwrap()
                .unwrap()
                .path
                .clone()
        };
        assert_eq!(inner(&mut opened), b);
        let moved = root.with_extension("moved");
        fs::rename(&root, &moved).unwrap();
        assert_eq!(inner(&mut opened), moved.join("b"));
        fs::rename(&moved, &root).unwrap();
    }

    #[test]
    fn few_are_open() {
        let dir = tempfile::tempdir().unwrap();
        let mut opened = Opened::default();
        for n in 0..3 * MOST {
            let name = dir.path().join(n.to_string());
            fs::create_dir(&name).unwrap();
            opened.find(CWD, &name).unwrap().unwrap();
            assert!(opened.0.len() <= MOST);
        }
    }
}
