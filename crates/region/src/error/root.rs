//! Why a root cannot be had.

use super::HeapError;
use crate::description::Description;

/// Why there is no such root.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use twinpage::{Error, Region, RootError};
///
/// let region = Region::open("counts.twin")?;
/// let count = region.root::<u64>("count")?;
/// let second = region.root::<u64>("count").unwrap_err();
/// assert!(matches!(second, Error::Root(RootError::InUse { name }) if name == "count"));
/// drop(count);
/// let other_type = region.root::<i32>("count").unwrap_err();
/// assert!(matches!(other_type, Error::Root(RootError::Layout { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RootError {
    /// Its [`Root`] is still there.
    #[error("root {name:?} is in use: there is one `Root` of a name at a time; drop the other first")]
    InUse {
        /// The root.
        name: String,
    },
    /// It is an object, which is open already.
    #[error(
        "the object {name:?} is open already, and stays so until the region is closed: clone the handle that \
         `Region::object` gave"
    )]
    Opened {
        /// The object.
        name: String,
    },
    /// It was made with another type, or with another layout of the type.
    #[error("{}", other_layout(name, stored, asked))]
    Layout {
        /// The root.
        name: String,
        /// What is in the region.
        stored: Box<Description>,
        /// What it was to be opened as.
        asked: Box<Description>,
    },
    /// The description of its type could not be read again. Nothing of the root is made.
    #[error(
        "root {name:?} cannot be made: {why}; put a part of the type into a `Box` or a `Vec`, which begin anew"
    )]
    Type {
        /// The root.
        name: String,
        /// What is wrong with the type.
        why: String,
    },
    /// There is none of that name.
    #[error("there is no root {name:?}")]
    Missing {
        /// The root.
        name: String,
    },
    /// The heap has no memory, or is damaged.
    #[error(transparent)]
    Heap(#[from] HeapError),
}

fn other_layout(name: &str, stored: &Description, asked: &Description) -> String {
    let moved = stored.moved(asked);
    let Some((was, is)) = moved.last() else {
        return format!(
            "root {name:?} was made as\n\n{stored}\nand cannot be opened as\n\n{asked}\nOpen it with the type it was made \
             with, or give the new type `#[persist(version = .., from = ..)]`. Keys of maps, and values of sets and of a \
             `BinaryHeap`, keep their type: open the root with the one it was made with, and collect it into another"
        );
    };
    format!(
        "root {name:?} was made with the type `{was}` and cannot be opened as `{is}`, which has the same layout but is \
         another type. If it is the same one, moved or renamed, let it say so: `#[persist(was = \"{was}\")]`"
    )
}
