//! What can go wrong with a region. Each error names the thing and the way out.

mod heap;
mod root;

pub use heap::HeapError;
pub use root::RootError;

/// The result of every operation on a region.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use twinpage::Region;
///
/// fn visit(region: &Region) -> twinpage::Result<u64> {
///     let mut visits = region.root::<u64>("visits")?;
///     region.update(|u| *visits.get_mut(u) += 1);
///     region.durable()?;
///     Ok(region.read(|v| *visits.get(v)))
/// }
/// assert_eq!(visit(&Region::open("visits.twin")?)?, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a region.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use twinpage::{Error, Region};
///
/// std::fs::write("letter.txt", "Dear Ada".repeat(1000))?;
/// match Region::open("letter.txt") {
///     Err(Error::Store(error)) => println!("{error}"), // what is wrong with the file, and where
///     other => panic!("{other:?}"),
/// }
/// let region = Region::open("counts.twin")?;
/// assert!(matches!(Region::open("counts.twin"), Err(Error::Locked(_))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
    /// As many regions are open as a process can have, or other mappings lie where the rest would be.
    #[error(
        "no room for one more region: a process can have {windows} open at once, and all their addresses are in use; \
         close one, or open this one in another process"
    )]
    NoWindow {
        /// How many fit into a process.
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
    /// The file is not a region this build can open here.
    #[error("not a region this build can open: {0}")]
    Foreign(String),
    /// The region is not as it was written.
    #[error("damaged region: {0}")]
    Damaged(String),
    /// The region is open elsewhere.
    #[error(transparent)]
    Locked(#[from] twinpage_os::LockError),
    /// A checkpoint waited for an update that did not end. Nothing is lost: the next one makes up for it.
    #[error(
        "no checkpoint within {waited:?}: an update is still running in {inside}, and {waiting} waits for it to end; \
         if that update waits for a lock held here, release the lock before asking for a checkpoint; else ask again, \
         or open the region with more patience (Options::patience)"
    )]
    Busy {
        /// The threads whose updates did not end.
        inside: String,
        /// The thread that waits for a checkpoint.
        waiting: String,
        /// How long it was waited for.
        waited: std::time::Duration,
    },
    /// While the checkpoint was copied, the process that writes made the next one, again and again.
    #[error(
        "{path} was overtaken {attempts} times: its checkpoints follow each other faster than one can be copied, and the \
         process that has it open gave no copy ({why}); try again, or let it make checkpoints less often"
    )]
    Overtaken {
        /// The region's file.
        path: std::path::PathBuf,
        /// How often it was copied.
        attempts: u32,
        /// Why there is no copy of the process that has it open.
        why: String,
    },
    /// The last checkpoint found no room. Nothing is lost: the next one makes up for it.
    #[error("the last checkpoint was not made: {0}")]
    Full(String),
    /// A section was undone: it was aborted, or a section inside it failed.
    #[error("the section was undone: it was aborted, or a section inside it failed")]
    Aborted,
    /// The medium had no room for what a section changed, so it was undone, and what later sections made of it.
    #[error("the section was undone, since the medium has no room for it: {0}")]
    Undone(String),
    /// A write or a flush failed, so nothing later may be called durable. The data is still here.
    #[error(
        "nothing is durable since a failure ({0}); the last durable checkpoint is whole; \
         save what is in memory elsewhere with save_as"
    )]
    Poisoned(std::sync::Arc<twinpage_core::Error>),
    /// The store below the region failed.
    #[error(transparent)]
    Store(#[from] twinpage_core::Error),
    /// A versioned array failed.
    #[error(transparent)]
    Versions(#[from] twinpage_versions::Error),
    /// A root cannot be had.
    #[error(transparent)]
    Root(#[from] RootError),
    /// A method of an object panicked. What it did until then stays done, here and whenever its call is run again.
    #[error(
        "the method `{method}` of the object {object:?} panicked: {why}; what it did until then stays done"
    )]
    Panicked {
        /// The object.
        object: String,
        /// The method, with its signature.
        method: String,
        /// What the panic said.
        why: String,
    },
    /// The object was freed ([`Region::free_object`](crate::Region::free_object)): the call was not run.
    #[error(
        "the object {object:?} was freed, so the call was not run; `Region::object` makes one anew, with handles of its own"
    )]
    Freed {
        /// The object.
        object: String,
    },
    /// Calls in the operation log cannot be run again. They stay there.
    #[error("the operation log {}: {why}", file.display())]
    Log {
        /// The log's file.
        file: std::path::PathBuf,
        /// Which calls, why, and the way out.
        why: String,
    },
    /// The next level of the region cannot be used. The region and the file stay as they are.
    #[error("the next level {}: {why}", file.display())]
    NextLevel {
        /// The level's file.
        file: std::path::PathBuf,
        /// What is wrong with it, and the way out.
        why: String,
    },
    /// A value given by the caller is impossible.
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    /// The same, of this file: what reads a medium does not know its name.
    pub(crate) fn in_file(self, file: &std::path::Path) -> Error {
        use twinpage_core::Error as Below;
        let named = |why| format!("{}: {why}", file.display());
        match self {
            Error::Foreign(why) => Error::Foreign(named(why)),
            Error::Damaged(why) => Error::Damaged(named(why)),
            Error::Store(Below::Foreign(why)) => Error::Store(Below::Foreign(named(why))),
            Error::Store(Below::Damaged { what, at, why }) => {
                Error::Store(Below::damaged(what, at, named(why)))
            }
            other => other,
        }
    }

    pub(crate) fn system(what: impl Into<String>, source: impl Into<std::io::Error>) -> Error {
        Error::System {
            what: what.into(),
            source: source.into(),
        }
    }
}
