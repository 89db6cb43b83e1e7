//! What can go wrong below a checkpoint. Each error names the thing and the way out.

use std::io;
use std::sync::Arc;

/// The result of every operation in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a medium or of a scheme. A store that returned [`Error::Poisoned`] once returns it
/// for every later write, fence and commit.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused a read or a write. The checkpoint is whole; the store is poisoned if it was a write.
    #[error("{what}{}: {source}", if *at == 0 { String::new() } else { format!(" at byte {at}") })]
    Io {
        /// The attempted operation, naming the file.
        what: String,
        /// Where on the medium, in bytes; 0 also where no byte is meant.
        at: u64,
        /// The system's error.
        source: io::Error,
    },

    /// No room for `needed` more bytes. The epoch in progress can be abandoned; the checkpoint is whole.
    #[error("{what} is full: {needed} more bytes are needed; free some space and try again")]
    Full {
        /// Which medium.
        what: String,
        /// How many bytes did not fit.
        needed: u64,
    },

    /// Bytes on the medium differ from those written there.
    #[error("damaged {what} at byte {at}: {why}")]
    Damaged {
        /// Which structure: superblock, switch, snapshot, journal record, context.
        what: &'static str,
        /// Where on the medium, in bytes.
        at: u64,
        /// The expected and the found value.
        why: String,
    },

    /// The medium was written by another version of the format, or is something else altogether.
    #[error("not a store this build can read: {0}")]
    Foreign(String),

    /// A write or a flush failed earlier, so nothing after it may be called durable.
    #[error(
        "the store is poisoned since an earlier failure ({0}); the last durable checkpoint is whole: resume from it"
    )]
    Poisoned(Arc<Error>),

    /// A value given by the caller is impossible.
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    /// That a structure on the medium is not as it was written.
    #[cold]
    pub fn damaged(what: &'static str, at: u64, why: impl Into<String>) -> Error {
        let why = why.into();
        Error::Damaged { what, at, why }
    }

    /// What an operation after this failure answers. A store that was poisoned before keeps its first cause.
    #[must_use]
    pub fn poisoned(cause: Error) -> Error {
        match cause {
            Error::Poisoned(_) => cause,
            cause => Error::Poisoned(Arc::new(cause)),
        }
    }
}

impl Clone for Error {
    /// The same error: the system's keeps its number, or else its kind and its text.
    fn clone(&self) -> Error {
        match self {
            Error::Io { what, at, source } => Error::Io {
                what: what.clone(),
                at: *at,
                source: match source.raw_os_error() {
                    Some(number) => io::Error::from_raw_os_error(number),
                    None => io::Error::new(source.kind(), source.to_string()),
                },
            },
            Error::Full { what, needed } => Error::Full {
                what: what.clone(),
                needed: *needed,
            },
            Error::Damaged { what, at, why } => Error::Damaged {
                what,
                at: *at,
                why: why.clone(),
            },
            Error::Foreign(why) => Error::Foreign(why.clone()),
            Error::Poisoned(cause) => Error::Poisoned(cause.clone()),
            Error::Invalid(why) => Error::Invalid(why.clone()),
        }
    }
}
