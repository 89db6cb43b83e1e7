//! What can go wrong between a program and the outside.

use std::io;
use std::path::PathBuf;

/// The result of every operation on standard streams.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the standard streams of a checkpointed program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused something.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was attempted, naming the file.
        what: String,
        /// What the system said.
        source: io::Error,
    },

    /// The system gives this process too few descriptors.
    #[error(
        "the limit of open files is {limit}, and twinpage needs at least {needed}: raise it (ulimit -n {needed})"
    )]
    FewDescriptors {
        /// The limit.
        limit: u64,
        /// How many are needed.
        needed: u64,
    },

    /// A log in the state directory is not as it was written.
    #[error("damaged {}: {why}", what.display())]
    Damaged {
        /// The log.
        what: PathBuf,
        /// What was expected and what was found.
        why: String,
    },

    /// The context does not fit these streams.
    #[error("the checkpoint's standard streams make no sense: {0}")]
    Context(String),

    /// What the program printed cannot be written outside. It is kept in the state directory.
    #[error("cannot write to {stream}: {source}; what was printed is kept: make room and resume")]
    RealStreams {
        /// `stdout` or `stderr`.
        stream: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl Error {
    /// Whether the disk of the state has no room for what was printed or typed.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, Error::Io { source, .. }
            if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
    }

    pub(super) fn io(what: impl Into<String>, source: impl Into<io::Error>) -> Error {
        Error::Io {
            what: what.into(),
            source: source.into(),
        }
    }
}
