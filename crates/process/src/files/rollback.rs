//! The rollback: the program's files as they were at the last durable checkpoint.
//!
//! ```text
//!   undo.0, undo.1, kept/*.record -> live records, newest first -> undo each -> make again -> cut -> empty all
//!                                                     |
//!                                                     undo.progress: how far
//! ```
//!
//! * What a record's undo changes is safe before `undo.progress` says that it is undone, and names
//!   are undone one at a time: a second run meets at most one change of names half undone.
//! * Undoing bytes and attributes sets them to fixed values, so doing it twice does no harm as long
//!   as the names are the same; a run of such records is one step of progress.
//! * A file that is gone then, and whose content the store has, is made again. Open files are cut to their lengths.

use super::error::Result;
use super::keep::Keep;
use super::log::Log;
use super::progress::Progress;
use super::records::Records;
use super::undo::Undo;
use super::{Durability, Epoch, Ident, OpenFile, StoredFile};
use std::path::{Path, PathBuf};
use twinpage_os::messages;

/// What a rollback did.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct RolledBack {
    /// Records undone, by this run of the rollback.
    pub records: u64,
    /// Open files that were longer than the checkpoint lists, and were cut.
    pub files_cut: u64,
    /// Files that had to be made again: what they were, and what they are now.
    pub moved: Vec<(Ident, Ident)>,
    /// Those of them that were gone. Their content is in the store, and not yet in them.
    pub empty: Vec<PathBuf>,
}

impl RolledBack {
    /// Tells of files that were gone.
    pub fn tell(&self) {
        for path in &self.empty {
            let path = path.display();
            messages::tell(&format!(
                "{path} was gone: it is made again, as it was at the checkpoint"
            ));
        }
    }
}

/// Puts the program's files back to the checkpoint of epoch `durable`, whose context lists `open`, and whose store has
/// the content of `stored`. Empties the logs. May be killed anywhere and run again.
///
/// # Errors
/// [`Error::Damaged`](super::Error::Damaged) and [`Error::Foreign`](super::Error::Foreign) before anything is changed; [`Error::Changed`] when
/// another program was at the files; [`Error::Io`]. It can be run again when the cause is gone.
pub fn rollback(dir: &Path, durable: Epoch, open: &[OpenFile], stored: &[StoredFile]) -> Result<RolledBack> {
    rollback_watched(dir, durable, open, stored, &mut |_| Ok(()))
}

/// [`rollback()`], telling `watch` what comes before every change it makes. An error of `watch` stops
/// it there, as a kill would.
///
/// # Errors
/// As [`rollback()`], and those of `watch`.
pub fn rollback_watched(
    dir: &Path,
    durable: Epoch,
    open: &[OpenFile],
    stored: &[StoredFile],
    watch: &mut dyn FnMut(&'static str) -> Result<()>,
) -> Result<RolledBack> {
    let records = Records::open(dir, durable)?;
    records.expect_whole()?;
    let durability = records.durability();
    let sync = durability == Durability::Disk;
    let keep = Keep::open(dir, durability)?;
    let progress = Progress::open(dir, durable, sync)?;
    let undone = progress.undone;
    let mut undo = Undo::new(&keep, progress, sync, watch);
    let mut done = RolledBack::default();
    for found in records.live(durable) {
        if found.entry.seq >= undone {
            continue;
        }
        undo.record(&mut found.load()?)?;
        done.records += 1;
    }
    undo.flush()?;
    for file in stored {
        if undo.make_stored_again(file)? {
            done.empty.push(file.path.clone());
        }
    }
    done.files_cut = undo.cut(open)?;
    done.moved = undo.moved();
    finish(dir, durability, &keep, undo)?;
    Ok(done)
}

/// Forgets all records in a copy of a state whose program stands at its checkpoint.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn forget(dir: &Path, durable: bool) -> Result<()> {
    let durability = if durable {
        Durability::Disk
    } else {
        Durability::Memory
    };
    Keep::open(dir, durability)?.clear()?;
    for index in 0..2 {
        Log::create(dir, index, durability)?;
    }
    Ok(())
}

/// Empties `kept/`, then the logs, then forgets the progress: in this order, so that a second run finds nothing to
/// do. A log may say of records that are names that they are dead ([`Kind::Again`](super::format::Kind::Again)):
/// it goes after them.
fn finish(dir: &Path, durability: Durability, keep: &Keep, mut undo: Undo<'_>) -> Result<()> {
    undo.step("empty the directory of kept files")?;
    keep.clear()?;
    for index in 0..2 {
        undo.step("empty an undo log")?;
        Log::create(dir, index, durability)?;
    }
    undo.step("forget the progress")?;
    undo.finish()
}
