//! A call is taken out of a log: the way out where it cannot be run, and so its object cannot be opened.
//!
//! * The call was logged before it ran, and is run again at each opening: one that ends the program (`panic = "abort"`, a
//!   stack that overflows) or never returns does so each time.
//! * The log is changed in a copy, which then takes its name: a crash leaves the one or the other.

use super::file::log_path;
use super::listing::{Operation, operation};
use crate::error::{Error, Result};
use crate::inspect::inspect;
use std::fs::{self, File};
use std::path::Path;
use twinpage_core::Poison;
use twinpage_core::operation_log::{Found, Log};
use twinpage_os::folder::sync_folder_of;
use twinpage_os::{Access, AnyMedium, Durability};

/// A call that was taken out of a log: [`withdraw`].
///
/// ```
/// use twinpage::objects::Withdrawn;
///
/// fn tell(withdrawn: &Withdrawn) -> String {
///     format!("{} is not run, and {} others are", withdrawn.operation, withdrawn.left)
/// }
/// ```
#[derive(Clone, Debug, serde::Serialize)]
pub struct Withdrawn {
    /// The call.
    pub operation: Operation,
    /// How many calls are in the log still.
    pub left: usize,
}

/// Takes the call at `position` out of the operation log of the region in the file `path`, which no program has open: it is
/// never run. [`operations`](super::operations) tells the positions.
///
/// It is for a call that cannot be run, so that its object cannot be opened: one that ends the program or never returns. The
/// object is without it from then on, which its other calls may not expect. A thread with a name that made it takes another
/// way than before, and is refused until the region was closed.
///
/// # Errors
/// [`Error::Invalid`] for a region in use, and when there is no such call; as [`operations`](super::operations).
pub fn withdraw(path: impl AsRef<Path>, position: u64) -> Result<Withdrawn> {
    let path = path.as_ref();
    let inspection = inspect(path)?; // the region is not opened by others before it is dropped
    if let Some(holder) = &inspection.in_use {
        return Err(Error::Invalid(format!(
            "{} is in use by {holder}: its log can be changed when that has ended",
            path.display()
        )));
    }
    let place = inspection
        .superblock
        .map(|superblock| superblock.log)
        .unwrap_or_default();
    let none = || {
        Error::Invalid(format!(
            "no call at position {position} waits to be run: `twinpage log {}` lists those that do",
            path.display()
        ))
    };
    if place.id == 0 {
        return Err(none());
    }
    let log = log_path(path);
    let mut name = log.file_name().unwrap_or_default().to_owned();
    name.push(".changed");
    let copy = log.with_file_name(name);
    let failed = |source| Error::system(format!("changing {}", log.display()), source);
    fs::copy(&log, &copy).map_err(failed)?;
    let done = take_out(&copy, (place.id, place.start), position, inspection.durability);
    match done {
        Ok(Some(withdrawn)) => {
            fs::rename(&copy, &log).map_err(failed)?;
            sync_folder_of(&log).map_err(failed)?;
            Ok(withdrawn)
        }
        other => {
            // One that cannot be removed is written over by the next.
            let _ = fs::remove_file(&copy);
            other?.ok_or_else(none)
        }
    }
}

fn take_out(
    copy: &Path,
    (id, start): (u64, u64),
    position: u64,
    durability: Durability,
) -> Result<Option<Withdrawn>> {
    let medium = AnyMedium::open(copy, durability, Access::ReadWrite)?;
    let (mut log, found): (_, Found) = Log::open(medium, id, start, Poison::default())?;
    let entry = log.take_out(&found, position)?;
    let synced = File::open(copy).and_then(|file| file.sync_all());
    synced.map_err(|source| Error::system(format!("changing {}", copy.display()), source))?;
    Ok(entry.map(|entry| Withdrawn {
        operation: operation(&found.definitions, entry),
        left: found.entries.len() - 1,
    }))
}
