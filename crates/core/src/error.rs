//! What can go wrong below a checkpoint. Each error names the thing and the way out.

use crate::medium::Offset;

/// The result of every operation in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a medium or of a scheme. A store that returned [`Error::Poisoned`] once returns it
/// for every later write, fence and commit.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused a read or a write. The checkpoint is whole; the store is poisoned if it was a write.
    #[error("{what} at byte {at}: {source}")]
    Io {
        /// What was attempted, naming the file.
        what: String,
        /// Where on the medium, in bytes.
        at: Offset,
        /// What the system said.
        source: std::io::Error,
    },

    /// No room for `needed` more bytes. The epoch in progress can be abandoned; the checkpoint is whole.
    #[error("{what} is full: {needed} more bytes are needed; free some space and try again")]
    Full {
        /// Which medium.
        what: String,
        /// How many bytes did not fit.
        needed: u64,
    },

    /// Bytes on the medium are not what was written there.
    #[error("damaged {what} at byte {at}: {why}")]
    Damaged {
        /// Which structure: superblock, switch, snapshot, journal record, context.
        what: &'static str,
        /// Where on the medium, in bytes.
        at: Offset,
        /// What was expected and what was found.
        why: String,
    },

    /// The medium was written by another version of the format, or is something else altogether.
    #[error("not a store this build can read: {0}")]
    Foreign(String),

    /// A write or a flush failed earlier, so nothing after it may be called durable.
    #[error(
        "the store is poisoned since an earlier failure ({0}); the last durable checkpoint is whole: resume from it"
    )]
    Poisoned(String),

    /// A value given by the caller is impossible.
    #[error("{0}")]
    Invalid(String),
}
