//! The file of a region's operation log: `scores.twin.log` beside `scores.twin`.

use crate::error::{Error, Result};
use crate::region::Region;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use twinpage_core::operation_log::{Found, Log, header};
use twinpage_core::{Medium, Poison};
use twinpage_os::{Access, AnyMedium, Draft, Durability};

/// Bytes of the ring of a new log.
pub(super) const RING: u64 = 8 << 20;
/// Bytes of calls that can wait to be run.
pub(super) const ROOM: u64 = 1 << 20;
/// A new log begins so far after the place of the one before that no object's position is past it.
pub(super) const APART: u64 = 1 << 32;

/// The log of the region in the file `path`.
pub(super) fn log_path(path: &Path) -> PathBuf {
    let path = twinpage_os::name::resolved(path);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".log");
    path.with_file_name(name)
}

/// Where a region's log is, and what it must outlive.
#[derive(Clone, Debug)]
pub(super) struct LogFile {
    pub(super) region: PathBuf,
    pub(super) path: PathBuf,
    durability: Durability,
}

pub(super) fn random() -> u64 {
    RandomState::new().hash_one(0)
}

impl LogFile {
    pub(super) fn of(region: &Region) -> Result<LogFile> {
        let why = "objects need a region in a file of its own, beside which their log lies";
        let (path, durability) = region.file.as_ref().ok_or_else(|| Error::Invalid(why.into()))?;
        Ok(LogFile::beside(path, *durability))
    }

    /// That of a region in the making.
    pub(super) fn beside(region: &Path, durability: Durability) -> LogFile {
        LogFile {
            region: region.to_owned(),
            path: log_path(region),
            durability,
        }
    }

    /// Whether a flush must reach what outlives the machine.
    pub(super) fn outlives_the_machine(&self) -> bool {
        self.durability.outlives_machine()
    }

    /// A new log whose first record has the position `start`. What a close that was cut short left goes.
    pub(super) fn create(&self, start: u64, poison: Poison) -> Result<Log<AnyMedium>> {
        self.create_with(start, RING, poison)
    }

    /// One with a ring of at least so many bytes.
    pub(super) fn create_with(&self, start: u64, ring: u64, poison: Poison) -> Result<Log<AnyMedium>> {
        self.remove_leftover()?;
        let make = |at: &Path| Ok::<_, Error>(AnyMedium::create(at, self.durability)?);
        let (draft, mut medium) = Draft::make(&self.path, make)?;
        medium.rename(&self.path);
        // 0 is no log.
        let log = Log::create(medium, random() | 1, ring, start, poison)?;
        match draft.name(&self.path)? {
            true => Ok(log),
            false => Err(self.error("another process made it just now: open the region again")),
        }
    }

    /// Removes a log that no checkpoint names.
    fn remove_leftover(&self) -> Result<()> {
        if !self.path.exists() {
            return Ok(());
        }
        let medium = AnyMedium::open(&self.path, self.durability, Access::ReadOnly)?;
        if medium.is_empty() || header(&medium).is_err() {
            return Err(self.error("something else has the name that the log must have: move it away"));
        }
        self.remove()
    }

    /// The log `id`, and what is in it from `start` on.
    pub(super) fn open(&self, id: u64, start: u64, poison: Poison) -> Result<(Log<AnyMedium>, Found)> {
        if !self.path.exists() {
            return Err(self.error(
                "it is not there, and calls since the last checkpoint are in it: put it back beside the region",
            ));
        }
        let medium = AnyMedium::open(&self.path, self.durability, Access::ReadWrite)?;
        Ok(Log::open(medium, id, start, poison)?)
    }

    pub(super) fn remove(&self) -> Result<()> {
        let removing = || format!("removing {}", self.path.display());
        std::fs::remove_file(&self.path).map_err(|e| Error::system(removing(), e))
    }

    pub(super) fn error(&self, why: impl Into<String>) -> Error {
        Error::Log {
            file: self.path.clone(),
            why: why.into(),
        }
    }
}
