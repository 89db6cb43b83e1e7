//! What a checkpointed program writes to its own files: rolled back to the checkpoint on resume.
//!
//! A program's memory and its files must not disagree after a resume. So before a system call
//! changes a file, a [`Recorder`] keeps what the change destroys: the overwritten bytes, the old
//! length, the file that is removed or replaced. [`rollback()`] puts it all back.
//!
//! ```text
//!   epoch n captured                    epoch n+1 captured
//!   |  changes tagged n+1 -> one log    |  changes tagged n+2 -> the other log
//!   |  n becomes durable in here        |  n+1 becomes durable: the first log is dead
//! ```
//!
//! What always holds:
//!
//! * A change happens only after its record is safe: written ([`Durability::Memory`]), or on the medium before the
//!   change can be ([`Durability::Disk`], `safety.rs`).
//! * A record is dead when the epoch it is tagged with is durable, and only then is its room reused.
//! * Records are undone newest first; a rollback that is killed anywhere and run again ends the same.
//! * Within an epoch a byte of a file is saved once, before its first change.
//! * A file that grows at its end needs no record when every checkpoint that a resume may use lists
//!   its length ([`OpenFile`]); the rollback cuts it there.
//! * What cannot be undone is refused by name ([`Refusal`]), never left out silently.
//!
//! What the caller sees to:
//!
//! * [`Recorder::record`] is called before the change, and again after [`Recorder::begin_epoch`] for
//!   a call that has not run yet: it then belongs to the new epoch.
//! * While a change is recorded no other thread is inside a call that moves the same offset or
//!   changes the same names. (One that writes bytes already recorded may be.)
//! * Other programs leave the files alone between a crash and the resume; where the rollback sees
//!   that they did not, it stops with [`Error::Changed`].
//!
//! Restored are names, contents, holes, lengths, modes, owners, extended attributes and the times of the last
//! write (of files and of the directories they are in). Not restored are inode change times and the inode
//! numbers of what had to be made again ([`RolledBack::moved`]).
//!
//! Reading order: [`Change`], `recorder.rs`, `data.rs`, `names.rs`, `safety.rs`, `rollback.rs`; the bytes are in
//! `format.rs` and `docs/undo.md`.

mod attributes;
mod data;
mod error;
pub(crate) mod extents;
mod format;
mod inspect;
mod journal;
mod keep;
mod links;
mod log;
mod named;
mod names;
mod opened;
mod options;
mod path_at;
mod progress;
mod ranges;
mod reach;
mod recorder;
mod records;
mod rollback;
mod safety;
mod seen;
mod sync;
mod undo;
mod whole;

pub use error::{Error, Refusal, Result};
pub use inspect::{Summary, check, describe};
pub use links::Linked;
pub use options::Options;
pub(crate) use recorder::is_pseudo;
pub(crate) use rollback::forget;
pub use rollback::{RolledBack, rollback, rollback_watched};
pub(crate) use seen::{SET_ID, directory_above_link, link_of};
pub use sync::EpochFiles;
pub use twinpage_core::Epoch;

pub use attributes::Attributes;
pub(crate) use attributes::{read_all, write_all};
pub(crate) use extents::{next_data, write_all_at, write_zeros};
pub(crate) use ranges::Ranges;

use journal::Journal;
use links::Links;
use opened::Opened;
use recorder::{Listed, System, Tracked};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{OFlags, Stat};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use sync::Directories;

/// Records what a program's changes to its files destroy. See the [module](self).
pub struct Recorder {
    journal: Journal,
    options: Options,
    /// The newest epoch known to be durable.
    durable: Epoch,
    round: u64,
    files: HashMap<Ident, Tracked>,
    spare: Vec<Ranges>,
    created: BTreeSet<PathBuf>,
    /// Lost their last name in this epoch, and are there only as long as something holds them.
    nameless: HashSet<Ident>,
    listed: HashMap<Ident, Listed>,
    links: Links,
    systems: Vec<System>,
    dirs: Directories,
    opened: Opened,
    whole: HashMap<u64, OwnedFd>,
    /// Files changed otherwise than by what was recorded.
    others: Vec<OwnedFd>,
    everything: bool,
}

/// What a checkpoint must survive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// The end of the program and of twinpage: nothing is synced.
    Memory,
    /// The end of the machine: records are synced before the change, files before the commit.
    Disk,
}

/// Which file, whatever its names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct Ident {
    /// The device number of its file system.
    pub dev: u64,
    /// Its inode number.
    pub ino: u64,
}

impl Ident {
    /// No file.
    const NONE: Ident = Ident { dev: 0, ino: 0 };
}

impl From<&Stat> for Ident {
    fn from(stat: &Stat) -> Ident {
        Ident {
            dev: stat.st_dev,
            ino: stat.st_ino,
        }
    }
}

/// A file the program had open for writing at a checkpoint, to be kept in its context.
///
/// Files open for reading only must not be listed: the rollback cuts what is longer than listed.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct OpenFile {
    /// Its absolute path at the checkpoint.
    #[serde(with = "crate::path_bytes")]
    pub path: PathBuf,
    /// Which file it was.
    pub file: Ident,
    /// Its length in bytes.
    pub size: u64,
    /// When it was last written: seconds and nanoseconds since 1970.
    pub mtime: (i64, u32),
}

/// A file whose whole content a checkpoint holds in the store. One that is gone can be made again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredFile {
    /// Its absolute path at the checkpoint.
    pub path: PathBuf,
    /// Which file it was.
    pub file: Ident,
    /// Its length in bytes.
    pub size: u64,
    /// Its type and permissions.
    pub mode: u32,
    /// Its owner and group.
    pub owner: (u32, u32),
    /// When it was last written: seconds and nanoseconds since 1970.
    pub mtime: (i64, u32),
}

impl OpenFile {
    /// What a checkpoint lists of the file behind a descriptor; `None` for what is not a regular
    /// file with a name.
    ///
    /// # Errors
    /// [`Error::Io`] when the descriptor cannot be looked at, [`Refusal::NoName`] when its name
    /// cannot be seen from here.
    pub fn of(fd: BorrowedFd<'_>) -> Result<Option<OpenFile>> {
        let stat = seen::stat(fd)?;
        if !seen::is_regular(&stat) || stat.st_nlink == 0 {
            return Ok(None);
        }
        Ok(Some(OpenFile::named(path_at::name_of(fd, &stat)?, &stat)))
    }
}

/// A name as the tracer found it: relative to a directory, or absolute.
///
/// It is looked up from this process, so `/proc/self`, `/dev/fd` and `/dev/stdout` are the caller's to
/// translate first, and the program must see the same mounts.
#[derive(Clone, Copy, Debug)]
pub struct PathAt<'a> {
    /// The directory a relative name starts from: the program's working directory, or the one its
    /// call names. `None` for absolute names.
    pub dir: Option<BorrowedFd<'a>>,
    /// The name. Symbolic links on the way are followed, as the kernel will.
    pub name: &'a Path,
}

impl<'a> PathAt<'a> {
    /// An absolute name.
    #[must_use]
    pub fn absolute(name: &'a Path) -> PathAt<'a> {
        PathAt { dir: None, name }
    }

    /// A name in a directory.
    #[must_use]
    pub fn at(dir: BorrowedFd<'a>, name: &'a Path) -> PathAt<'a> {
        PathAt { dir: Some(dir), name }
    }
}

/// A file by descriptor or by name.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// A duplicate of the program's descriptor. One opened with `O_PATH` will do.
    Open(BorrowedFd<'a>),
    /// A name.
    Named {
        /// The name.
        place: PathAt<'a>,
        /// Whether a symbolic link at its end is followed (`chmod`), or itself meant (`lchown`).
        follow: bool,
    },
}

/// What comes to be under a new name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum New {
    /// Something that was not there before: a file, directory, symbolic link, FIFO or socket.
    Thing,
    /// Another name of a file that exists (`link`).
    Link,
}

/// A change a system call is about to make.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Change<'a> {
    /// `write`, `pwrite`, `writev`, and the target of `copy_file_range`, `sendfile`, `splice` and
    /// `FICLONERANGE`. Needs no open mode: the descriptor may be write-only.
    Write {
        /// A duplicate of the program's descriptor, sharing its offset.
        fd: BorrowedFd<'a>,
        /// Where; `None` at the descriptor's offset (at the end under `O_APPEND`).
        at: Option<u64>,
        /// The most bytes it can write.
        len: u64,
    },
    /// `truncate`, `ftruncate`.
    SetLen {
        /// The file.
        target: Target<'a>,
        /// Its new length in bytes.
        len: u64,
    },
    /// `fallocate`.
    Allocate {
        /// A duplicate of the program's descriptor.
        fd: BorrowedFd<'a>,
        /// Its mode, as given to the call.
        mode: u32,
        /// The first byte.
        at: u64,
        /// How many bytes.
        len: u64,
    },
    /// `open`, `openat`, `openat2`, `creat`: makes the file or empties it, as its flags say.
    Open {
        /// The name.
        place: PathAt<'a>,
        /// The flags of the call.
        flags: OFlags,
    },
    /// `mknod`, `mkdir`, `symlink`, `link`.
    Create {
        /// The new name.
        place: PathAt<'a>,
        /// What it will name.
        new: New,
    },
    /// `unlink`, and `unlinkat` without `AT_REMOVEDIR`.
    Unlink {
        /// The name.
        place: PathAt<'a>,
        /// The program has the file open. When it has another name that is not known, that is refused:
        /// see [`Refusal::StillOpen`].
        still_open: bool,
    },
    /// `rmdir`, and `unlinkat` with `AT_REMOVEDIR`.
    Rmdir {
        /// The name.
        place: PathAt<'a>,
    },
    /// `rename`, `renameat`, `renameat2`.
    Rename {
        /// The old name.
        from: PathAt<'a>,
        /// The new name.
        to: PathAt<'a>,
        /// The flags of `renameat2`, as given to the call.
        flags: u32,
        /// The program has open what the new name names now, as for [`Change::Unlink`].
        still_open: bool,
    },
    /// `chmod`, `chown`, `utimensat` and their kin.
    Attributes {
        /// The file.
        target: Target<'a>,
    },
    /// `setxattr`, `removexattr` and their kin.
    ExtendedAttribute {
        /// The file.
        target: Target<'a>,
        /// Which attribute.
        name: &'a OsStr,
    },
}

/// What recording a change came to. In every case the change may go ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recorded {
    /// A record was written.
    Saved,
    /// Nothing to save: an earlier record or the checkpoint covers it, or the call will fail.
    Covered,
    /// Not a regular file, directory or symbolic link, or one of a pseudo file system.
    NotTracked,
}
