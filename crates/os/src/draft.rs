//! A file that is made under a hidden name beside its own, and gets its own when it is whole: a crash
//! in between leaves nothing under the name.

use crate::folder::folder_of;
use crate::health::refused;
use crate::lock::{Lock, LockError};
use crate::name;
use std::ffi::OsStr;
use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use twinpage_core::{Error, Result};

/// Hexadecimal digits of the random number in a hidden name.
const DIGITS: usize = 16;
/// The most bytes of a name: path_resolution(7).
const NAME_BYTES: usize = 255;
const TAIL: &str = ".new";

/// A file in the making. It is removed when dropped without a name.
#[derive(Debug)]
pub struct Draft {
    path: PathBuf,
    /// Keeps others from taking the file for one that a crash left.
    lock: Option<Lock>,
}

impl Draft {
    /// Makes a file that will be `path`: `make` does, under a hidden name like `.orders.twin.0123456789abcdef.new`, which has
    /// the beginning of a name that is too long for that. It is locked then. What crashes left of earlier ones is removed.
    ///
    /// # Errors
    /// [`Error::Invalid`] when `path` names no file; those of `make`, and of [`Lock::take`].
    pub fn make<T, E: From<Error> + From<LockError>>(
        path: &Path,
        mut make: impl FnMut(&Path) -> Result<T, E>,
    ) -> Result<(Draft, T), E> {
        loop {
            let mut draft = Draft::of(path)?;
            let made = make(&draft.path)?;
            match Lock::take(&draft.path) {
                Ok(lock) if lock.is_still_named() => {
                    draft.lock = Some(lock);
                    return Ok((draft, made));
                }
                // Before it was locked, another took it for one that a crash left.
                Ok(_) | Err(LockError::Held { .. }) => {}
                Err(LockError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn of(path: &Path) -> Result<Draft> {
        remove_stale(path);
        let (head, tail) =
            parts(path).ok_or_else(|| Error::Invalid(format!("{} names no file", path.display())))?;
        let random = RandomState::new().hash_one(0);
        Ok(Draft {
            path: path.with_file_name(format!("{head}{random:0DIGITS$x}{tail}")),
            lock: None,
        })
    }

    /// Where the file is, until it has its name.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The lock, for the life of the file after it has its name.
    pub fn take_lock(&mut self) -> Option<Lock> {
        self.lock.take()
    }

    /// Gives the file its name, durably; false when there is such a file by now.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn name(&self, name: &Path) -> Result<bool> {
        name::give(&self.path, name).map_err(|e| refused("naming", name, 0, e))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // It is not there any more when it was named.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// What stands before and behind the number. Of a name that would be too long with it, the beginning.
fn parts(path: &Path) -> Option<(String, &'static str)> {
    let name = path.file_name()?.to_string_lossy();
    let room = NAME_BYTES - "..".len() - DIGITS - TAIL.len();
    let name = &name[..name.floor_char_boundary(room)];
    Some((format!(".{name}."), TAIL))
}

/// Removes what crashes left of files of this name in the making. Those still in the making are locked.
fn remove_stale(path: &Path) {
    let (Some((head, tail)), Ok(files)) = (parts(path), std::fs::read_dir(folder_of(path))) else {
        return;
    };
    let is_draft = |name: &OsStr| {
        let random = (name.to_str()).and_then(|name| name.strip_prefix(&head)?.strip_suffix(tail));
        random.is_some_and(|random| {
            random.len() == DIGITS
                && random
                    .bytes()
                    .all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
        })
    };
    for file in files.flatten().filter(|file| is_draft(&file.file_name())) {
        // A process that just made it, and is about to lock it, notices.
        if let Ok(_lock) = Lock::take(file.path()) {
            // One that cannot be removed does no harm.
            let _ = std::fs::remove_file(file.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[derive(Debug, thiserror::Error)]
    enum Failed {
        #[error(transparent)]
        Made(#[from] Error),
        #[error(transparent)]
        Locked(#[from] LockError),
    }

    #[test]
    fn only_what_a_crash_left_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let path = folder.path().join(name);
            File::create_new(&path).unwrap();
            path
        };
        let [left, held] =
            ["0123456789abcdef", "fedcba9876543210"].map(|n| make(&format!(".x.twin.{n}.new")));
        let others = [
            "notes",
            "0123456789abcde",
            "0123456789ABCDEF",
            "0123456789abcdef0",
            "",
        ]
        .map(|n| make(&format!(".x.twin.{n}.new")));
        let _lock = Lock::take(&held).unwrap();
        Draft::of(&folder.path().join("x.twin")).unwrap();
        assert!(!left.exists() && held.exists());
        for other in others {
            assert!(other.exists(), "{other:?} is a user's own");
        }
    }

    #[test]
    fn the_longest_names_there_are_have_drafts() {
        let folder = tempfile::tempdir().unwrap();
        for length in [232, 233, 234, 254, 255] {
            for letter in ["x", "ä", "x\u{1f980}"] {
                let mut name = letter.repeat(length / letter.len());
                name.push_str(&"y".repeat(length - name.len()));
                let path = folder.path().join(&name);
                let make = |at: &Path| Ok::<_, Failed>(File::create_new(at).unwrap());
                let (draft, _) = Draft::make(&path, make).unwrap();
                assert!(draft.name(&path).unwrap() && path.exists());
            }
        }
    }

    #[test]
    fn one_that_is_removed_before_it_is_locked_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.twin");
        let mut made = 0;
        let make = |at: &Path| -> Result<(), Failed> {
            File::create_new(at).unwrap();
            made += 1;
            if made == 1 {
                remove_stale(&path); // as another does that makes the same file
            }
            Ok(())
        };
        let (draft, ()) = Draft::make(&path, make).unwrap();
        remove_stale(&path);
        assert!(draft.path().exists(), "it is locked");
        assert!(draft.name(&path).unwrap() && path.exists());
        drop(draft);
        assert_eq!(made, 2);
    }
}
