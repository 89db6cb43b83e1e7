//! Why a trace was refused, and where.

use std::fmt;
use std::io;

/// What reading a trace yields.
pub type Result<T> = std::result::Result<T, Error>;

/// Where in a trace. Both count what is in the trace after decompression.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Position {
    /// A line of text, from 1.
    Line(u64),
    /// An offset in bytes, from 0.
    Byte(u64),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Position::Line(line) => write!(f, "line {line}"),
            Position::Byte(byte) => write!(f, "byte {byte}"),
        }
    }
}

/// A trace that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be opened, read or decompressed.
    #[error("{name}: {why}")]
    Io {
        /// The file.
        name: String,
        /// What the system said.
        why: io::Error,
    },
    /// Something in it is not what it should be.
    #[error("{name}, {place}: {what}")]
    Refused {
        /// The file.
        name: String,
        /// Where in it.
        place: Position,
        /// What is wrong.
        what: String,
    },
    /// The form can be neither told nor used as asked.
    #[error("{name}: {what}")]
    Form {
        /// The file.
        name: String,
        /// What is wrong, and the way out.
        what: String,
    },
}
