//! What can go wrong between a program and its files. Each error names the file and the way out.

use crate::layout::is_marked_gone;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The result of every operation of this module.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the undo log. Unless it says poisoned, what was recorded before is whole and the
/// recorder can be used further; the change that was asked about must not go ahead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused something.
    #[error("cannot {doing} {path}: {source}", path = path.display())]
    Io {
        /// What was attempted.
        doing: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },

    /// No room to keep what the change would destroy.
    #[error("{what} is full: {needed} more bytes are needed")]
    Full {
        /// The undo log, or the directory of kept files, or the bound the user set.
        what: String,
        /// How many bytes did not fit.
        needed: u64,
        /// It is a bound of the recorder, and not the disk's.
        by_bound: bool,
    },

    /// Bytes are not what was written there.
    #[error("damaged {file} at byte {at}: {why}; the files the program wrote cannot be rolled back", file = file.display())]
    Damaged {
        /// Which file.
        file: PathBuf,
        /// Where, in bytes from its start.
        at: u64,
        /// What was expected and what was found.
        why: String,
    },

    /// Written by another version, or something else altogether.
    #[error("{file} is not an undo log this build can read: {why}", file = file.display())]
    Foreign {
        /// Which file.
        file: PathBuf,
        /// What was found.
        why: String,
    },

    /// The change cannot be undone, so it must not happen under a checkpoint.
    #[error(transparent)]
    Refused(#[from] Refusal),

    /// Another program changed a file between the checkpoint and the rollback.
    #[error(
        "{path} was changed by another program: {why}; put it back, or start the program afresh",
        path = path.display()
    )]
    Changed {
        /// Which file.
        path: PathBuf,
        /// What was expected and what was found.
        why: String,
    },

    /// The caller gave epochs out of order.
    #[error("epoch {given} out of order: {why}")]
    Order {
        /// The epoch that was given.
        given: u64,
        /// What was expected.
        why: String,
    },

    /// The log holds changes that no checkpoint covers.
    #[error(
        "{dir} holds changes of epoch {tag}, newer than the checkpoint of epoch {durable}: roll back first",
        dir = dir.display()
    )]
    NotRolledBack {
        /// The state directory.
        dir: PathBuf,
        /// The newest epoch in the log.
        tag: u64,
        /// The epoch the caller wants to go on from.
        durable: u64,
    },

    /// A write or a flush of the log failed earlier, so nothing after it can be undone for sure.
    #[error("the undo log is poisoned since an earlier failure ({0}); resume from the last checkpoint")]
    Poisoned(Arc<twinpage_core::Error>),
}

impl Error {
    /// A file has lost the name that it was opened by.
    pub(super) fn is_of_removed_name(&self) -> bool {
        matches!(self, Error::Refused(Refusal::NoName(path)) if is_marked_gone(path))
    }
}

/// Why a change cannot be undone. The names are stable: `--explain` lists them.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The file would live on by a name that is not known here, and a resumed program could not open it again.
    #[error(
        "{path} is removed or replaced while the program has it open, and has another name that the program did not \
         give it (find / -samefile {path} lists them): remove that name before the run, or run on a copy of the file",
        path = .0.display()
    )]
    StillOpen(PathBuf),

    /// A mode of `fallocate` that this build does not know.
    #[error("fallocate of {path} with the unknown mode {mode:#x}", path = path.display())]
    UnknownMode {
        /// Which file.
        path: PathBuf,
        /// The mode.
        mode: u32,
    },

    /// A flag of `renameat2` that this build does not undo (`RENAME_WHITEOUT`, and those yet to come).
    #[error("rename of {path} with the flags {flags:#x}: only NOREPLACE and EXCHANGE can be undone", path = path.display())]
    RenameFlags {
        /// What is renamed.
        path: PathBuf,
        /// The flags.
        flags: u32,
    },

    /// What is removed has extended attributes, and would lose them: a symbolic link, or a copy of a file that the
    /// system gives them to no other process.
    #[error("{path} has extended attributes and is removed: they would be lost; remove them before the run", path = .0.display())]
    LosesAttributes(PathBuf),

    /// What is overwritten cannot be read, so it cannot be kept.
    #[error("{path} is overwritten and cannot be read: give its owner read permission", path = .0.display())]
    Unreadable(PathBuf),

    /// The file has several names and lies on another file system than the state directory: a copy would cut them apart.
    #[error("{path} has other hard links and is removed: put the state directory (--state) on the same file system", path = .0.display())]
    LinkedElsewhere(PathBuf),

    /// A device is replaced and cannot be kept.
    #[error("{path} is a device and is replaced: remove it before the run, or put the state directory (--state) on the same file system", path = .0.display())]
    SpecialReplaced(PathBuf),

    /// The copy that would be kept cannot be given to the owner of the file.
    #[error("{path} belongs to another user and is removed: it could not be given back; remove it before the run", path = .0.display())]
    ForeignOwner(PathBuf),

    /// The file is reached through a name that is no longer, or not visibly, its own.
    #[error("the program writes a file that has no name here ({path}): its name was removed, or lies in another mount namespace", path = .0.display())]
    NoName(PathBuf),

    /// The absolute name is longer than the kernel takes and tells (`PATH_MAX`). Here is a directory above it.
    #[error(
        "a name deep below {path}, which is longer than 4095 bytes from the root: what is changed there could not be \
         rolled back; work in a directory nearer to the root, or with shorter names",
        path = .0.display()
    )]
    TooLong(PathBuf),

    /// The program changes its own checkpoint.
    #[error("{path} lies in the state directory of this very run: let the program write elsewhere", path = .0.display())]
    OwnState(PathBuf),
}

/// Names what was attempted when a system call fails.
pub(super) trait Doing<T> {
    /// The value, or an [`Error::Io`] that says what was attempted on which file.
    fn doing(self, doing: &'static str, path: impl AsRef<Path>) -> Result<T>;
}

impl<T, E: Into<io::Error>> Doing<T> for std::result::Result<T, E> {
    fn doing(self, doing: &'static str, path: impl AsRef<Path>) -> Result<T> {
        self.map_err(|error| Error::Io {
            doing,
            path: path.as_ref().to_owned(),
            source: error.into(),
        })
    }
}
