//! A file that is made under a hidden name beside its own, and gets its own when it is whole: a crash
//! in between leaves nothing under the name.

use crate::health::refused;
use crate::lock::{Lock, LockError};
use crate::name;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use twinpage_core::{Error, Result};

/// A file in the making. It is removed when dropped without a name.
#[derive(Debug)]
pub struct Draft {
    path: PathBuf,
    /// Keeps others from taking the file for one that a crash left.
    lock: Option<Lock>,
}

impl Draft {
    /// Chooses the hidden name for a file that will be `path`, like `.orders.twin.1a2b.new`, and removes what
    /// crashes left of earlier ones. The caller makes the file.
    ///
    /// # Errors
    /// [`Error::Invalid`] when `path` names no file.
    pub fn of(path: &Path) -> Result<Draft> {
        remove_stale(path);
        let (head, tail) =
            parts(path).ok_or_else(|| Error::Invalid(format!("{} names no file", path.display())))?;
        let random = RandomState::new().hash_one(0);
        Ok(Draft {
            path: path.with_file_name(format!("{head}{random:016x}{tail}")),
            lock: None,
        })
    }

    /// Where the file is to be made.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Locks the file, which is there by now.
    ///
    /// # Errors
    /// As [`Lock::take`].
    pub fn lock(&mut self) -> Result<(), LockError> {
        self.lock = Some(Lock::take(&self.path)?);
        Ok(())
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

fn parts(path: &Path) -> Option<(String, &'static str)> {
    Some((format!(".{}.", path.file_name()?.to_string_lossy()), ".new"))
}

/// Removes what crashes left of files of this name in the making. Those still in the making are locked.
fn remove_stale(path: &Path) {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let (Some((head, tail)), Ok(files)) = (parts(path), std::fs::read_dir(folder.unwrap_or(Path::new("."))))
    else {
        return;
    };
    for file in files.flatten() {
        let name = file.file_name();
        let is_draft = name
            .to_str()
            .is_some_and(|name| name.starts_with(&head) && name.ends_with(tail));
        if is_draft && Lock::take(file.path()).is_ok() {
            // One that cannot be removed does no harm.
            let _ = std::fs::remove_file(file.path());
        }
    }
}
