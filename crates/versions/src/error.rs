//! What can go wrong with an array. Each error names the file and the way out.

use std::path::PathBuf;
use std::sync::Arc;

/// The result of every operation on an array.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of an array.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file is open for writing elsewhere.
    #[error(transparent)]
    Locked(#[from] twinpage_os::LockError),
    /// The medium failed, or the file is not what it should be.
    #[error(transparent)]
    Store(#[from] twinpage_core::Error),
    /// A flush failed, so nothing later is called durable. The array can still be read.
    #[error(
        "{}: nothing is durable since a failure ({cause}); what was durable before is whole: open the file again",
        path.display()
    )]
    Poisoned {
        /// The file.
        path: PathBuf,
        /// What failed.
        cause: Arc<twinpage_core::Error>,
    },
    /// The array was closed before.
    #[error("{} was closed before update {number} was durable; open it and see how far it is", path.display())]
    Closed {
        /// The file.
        path: PathBuf,
        /// What was waited for.
        number: u64,
    },
    /// The file holds another array than the one asked for.
    #[error("{} holds {found}, and {wanted} was asked for; open it as what it is, or use another file", path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// What is in it.
        found: String,
        /// What was asked for.
        wanted: String,
    },
    /// No file has so many bytes.
    #[error("{}: no file has room for {wanted}; ask for fewer", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// What was asked for.
        wanted: String,
    },
    /// A reader found no durable version that stood still.
    #[error("{}: the writer replaced what was being read, {attempts} times; read less at once", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
        /// How often it was tried.
        attempts: u32,
    },
}
