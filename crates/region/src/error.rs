//! What can go wrong with a region. Each error names the thing and the way out.

/// The result of every operation on a region.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a region.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Something else lies where the region must be mapped: its pointers are only good there.
    #[error(
        "the addresses {base:#x} to {end:#x} of the region are in use in this process; close the region that \
         has them, or open this one in another process"
    )]
    Taken {
        /// The first address.
        base: usize,
        /// One past the last.
        end: usize,
    },
    /// Every window of the zone is in use.
    #[error("no room for one more region: all {windows} windows are in use in this process")]
    NoWindow {
        /// How many there are.
        windows: usize,
    },
    /// The region would grow past its bound.
    #[error(
        "the region is at its bound: {needed} bytes are needed and {bound} are allowed; open it with a larger bound"
    )]
    Bound {
        /// Bytes the region would have.
        needed: usize,
        /// Bytes it may have.
        bound: usize,
    },
    /// The system refused.
    #[error("{what}: {source}")]
    System {
        /// What was attempted.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The store below the region failed.
    #[error(transparent)]
    Store(#[from] twinpage_core::Error),
    /// A value given by the caller is impossible.
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    pub(crate) fn system(what: impl Into<String>, source: impl Into<std::io::Error>) -> Error {
        Error::System {
            what: what.into(),
            source: source.into(),
        }
    }
}
