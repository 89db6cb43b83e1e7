//! Whether a medium may still be written, and the errors it answers with. Both media share it.
//!
//! * Once poisoned, always poisoned: only opening the file again, which reads what really stayed, helps.
//! * Running out of room does not poison.

use std::io;
use std::path::{Path, PathBuf};
use twinpage_core::{Error, Offset, Poison, Result};

/// How a medium is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// For going on: every operation works.
    ReadWrite,
    /// For looking: the file is never changed. A write is kept in memory, where only the writer sees it
    /// (recovery may have to finish what a crash left); growing, giving back and fencing are refused.
    ReadOnly,
}

/// The path of a medium, and why it may not be written any more.
#[derive(Debug)]
pub(crate) struct Health {
    path: PathBuf,
    access: Access,
    poison: Poison,
}

impl Health {
    pub(crate) fn new(path: &Path, access: Access) -> Health {
        Health {
            path: path.to_owned(),
            access,
            poison: Poison::default(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file is spoken of by this name from now on.
    pub(crate) fn rename(&mut self, path: &Path) {
        path.clone_into(&mut self.path);
    }

    /// Whether the file may be changed at all.
    pub(crate) fn is_read_only(&self) -> bool {
        self.access == Access::ReadOnly
    }

    /// Refuses what a poisoned medium must not do.
    pub(crate) fn sound(&self) -> Result<()> {
        self.poison.check()
    }

    /// Refuses what a poisoned or read-only medium must not do.
    pub(crate) fn writable(&self) -> Result<()> {
        self.sound()?;
        if self.is_read_only() {
            let path = self.path.display();
            return Err(Error::Invalid(format!(
                "{path} was opened for looking only; open it for writing"
            )));
        }
        Ok(())
    }

    /// Refuses a range that does not lie inside `len`. Returns its end.
    pub(crate) fn inside(&self, at: Offset, bytes: usize, len: u64) -> Result<u64> {
        match at.checked_add(bytes as u64) {
            Some(end) if end <= len => Ok(end),
            _ => {
                let why = format!("{bytes} bytes from here do not lie in its {len} bytes");
                let source = io::Error::new(io::ErrorKind::UnexpectedEof, why);
                Err(refused("reaching into", &self.path, at, source))
            }
        }
    }

    /// The error of a failed change: `Full` when only room is missing, otherwise the end of this medium.
    pub(crate) fn failed(&mut self, what: &str, at: Offset, needed: u64, source: io::Error) -> Error {
        match full(&self.path, needed, &source) {
            Some(full) => full,
            None => self.poisoned(what, at, source),
        }
    }

    /// Poisons, and returns the error that says why.
    pub(crate) fn poisoned(&mut self, what: &str, at: Offset, source: io::Error) -> Error {
        let error = refused(what, &self.path, at, source);
        self.poison.set(&error);
        error
    }
}

/// `Error::Io` naming the deed and the file.
pub(crate) fn refused(what: &str, path: &Path, at: Offset, source: io::Error) -> Error {
    Error::Io {
        what: format!("{what} {}", path.display()),
        at,
        source,
    }
}

/// `Error::Full` when `source` says that there is no room: on the disk, in the quota, or under the
/// limit of file sizes (see `write(2)`).
pub(crate) fn full(path: &Path, needed: u64, source: &io::Error) -> Option<Error> {
    let path = path.display();
    let what = match source.raw_os_error()? {
        libc::ENOSPC => format!("the file system of {path}"),
        libc::EDQUOT => format!("the disk quota for {path}"),
        libc::EFBIG => format!("the file size limit (ulimit -f) for {path}"),
        _ => return None,
    };
    Some(Error::Full { what, needed })
}
