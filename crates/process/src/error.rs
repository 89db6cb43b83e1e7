//! What can go wrong with a whole program. One line each: what, and what to do.

use std::io;
use std::path::PathBuf;

/// The result of everything in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of `run`, `resume` and their kin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store said so.
    #[error(transparent)]
    Store(#[from] twinpage_core::Error),

    /// What the program does to its own files could not be kept.
    #[error(transparent)]
    Files(#[from] crate::files::Error),

    /// A standard stream could not be relayed.
    #[error(transparent)]
    Streams(#[from] crate::stdio::Error),

    /// A file of the state directory, or of the program, could not be used.
    #[error("{what} {path}: {source}", path = .path.display())]
    File {
        /// What was attempted.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },

    /// The program could not be looked at or steered.
    #[error("{what}: {source}")]
    Target {
        /// What was attempted.
        what: String,
        /// What the system said.
        source: io::Error,
    },

    /// The program was killed: nothing is left to checkpoint.
    #[error("the program was killed; twinpage resume goes on from its last checkpoint")]
    Killed,

    /// The program does, or is, something that cannot be captured.
    #[error("{0}")]
    Unsupported(String),

    /// One of the program's processes does, or is, something that cannot be captured: a checkpoint waits until that is
    /// gone.
    #[error("{0}")]
    NotYet(String),

    /// The program got something that cannot be captured while it ran, and was ended.
    #[error(
        "{0}; the program was stopped, its last checkpoint is whole (--on-uncapturable warn lets it go on without checkpoints)"
    )]
    Uncapturable(String),

    /// This machine cannot do what is needed, and the way out.
    #[error("{0}")]
    Machine(String),

    /// The state directory is damaged.
    #[error("damaged state: {0}")]
    Damaged(String),

    /// The state directory cannot be used, and why.
    #[error("{0}")]
    State(String),

    /// A fault of twinpage itself.
    #[error("internal error, please report it: {0}")]
    Internal(String),
}

impl Error {
    /// The program could not be looked at or steered.
    pub fn target(what: impl Into<String>, source: io::Error) -> Error {
        Error::Target {
            what: what.into(),
            source,
        }
    }

    /// The state has no room for something that the program did, and the run ends.
    pub(crate) fn no_room(cause: impl std::fmt::Display) -> Error {
        Error::State(format!(
            "{cause}; the last checkpoint is whole: make room, then twinpage resume"
        ))
    }

    /// A file could not be used.
    pub fn file(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Error {
        let path = path.into();
        move |source| Error::File { what, path, source }
    }

    /// Whether the limit of open files is the cause.
    #[must_use]
    pub fn lacks_files(&self) -> bool {
        let (Error::Target { source, .. } | Error::File { source, .. }) = self else {
            return false;
        };
        lacks_files(source)
    }

    /// Whether the state has no room for something that a checkpoint needs beside memory. The next may find some.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Error::Files(error) => matches!(error, crate::files::Error::Full { .. }),
            Error::Streams(error) => error.is_full(),
            _ => false,
        }
    }

    /// Whether an error of a restore means that the program was killed: a program that has not run cannot exit.
    #[must_use]
    pub fn is_kill(&self) -> bool {
        match self {
            Error::Killed => true,
            Error::Target { source, .. } => source.raw_os_error() == Some(libc::ESRCH),
            _ => false,
        }
    }
}

/// Whether the limit of open files is reached, of twinpage or of the whole system.
pub(crate) fn lacks_files(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}
