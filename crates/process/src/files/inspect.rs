//! Looking at an undo log without changing it: `twinpage info` and `twinpage check`.

use super::error::{Doing, Result};
use super::format::Kept;
use super::journal::Journal;
use super::keep::kept_ident;
use super::log::log_path;
use super::progress::progress_path;
use super::records::Records;
use super::{Durability, Epoch, named};
use std::io::ErrorKind;
use std::path::Path;
use twinpage_core::Damage;

/// What there is to undo.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Summary {
    /// What records survive: `memory` (the end of the program) or `disk` (of the machine).
    pub durability: &'static str,
    /// Records, dead ones too. Of a running recorder: since it began.
    pub records: u64,
    /// The newest epoch that changes were recorded for; 0 when there are none.
    pub newest_epoch: Epoch,
    /// Bytes of the records (and, of a running recorder, of copies of removed files).
    pub undo_bytes: u64,
    /// Removed or replaced files that are kept.
    pub kept_files: u64,
    /// Their bytes.
    pub kept_bytes: u64,
    /// A rollback was begun and not finished: resume, and it will be.
    pub rollback_begun: bool,
}

impl Summary {
    pub(super) fn of_journal(journal: &Journal) -> Summary {
        Summary {
            durability: name(journal.durability),
            records: journal.records(),
            newest_epoch: journal.tag(),
            undo_bytes: journal.bytes(),
            kept_files: journal.kept_files() as u64,
            kept_bytes: journal.held_bytes(),
            rollback_begun: false,
        }
    }
}

fn name(durability: Durability) -> &'static str {
    match durability {
        Durability::Memory => "memory",
        Durability::Disk => "disk",
    }
}

/// What there is to undo in the state directory `dir`.
///
/// # Errors
/// [`Error::Io`], [`Error::Foreign`].
pub fn describe(dir: &Path) -> Result<Summary> {
    let records = Records::open(dir, Epoch::MAX)?;
    let (mut kept_files, mut kept_bytes) = (0, 0);
    let kept = dir.join("kept");
    for entry in std::fs::read_dir(&kept).doing("list", &kept)? {
        let entry = entry.doing("list", &kept)?;
        if named::is_record(&entry.file_name()) {
            continue;
        }
        let stat = match entry.metadata() {
            // Of a state in use: it is not needed any more.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            found => found.doing("look at", entry.path())?,
        };
        kept_files += 1;
        kept_bytes += stat.len();
    }
    let entries = || records.all().map(|found| found.entry);
    Ok(Summary {
        durability: name(records.durability()),
        records: entries().count() as u64,
        newest_epoch: entries().map(|entry| entry.tag).max().unwrap_or(0),
        undo_bytes: entries().map(|entry| entry.length).sum(),
        kept_files,
        kept_bytes,
        rollback_begun: progress_path(dir).exists(),
    })
}

/// Reads everything that a rollback to epoch `durable` would need, verifies every checksum, and
/// lists what is not as it was written. Empty when all is well.
///
/// # Errors
/// [`Error::Io`] when reading itself fails, [`Error::Foreign`].
pub fn check(dir: &Path, durable: Epoch) -> Result<Vec<Damage>> {
    let records = Records::open(dir, durable)?;
    let mut damage: Vec<_> = records
        .damage()
        .map(|(path, at, why)| Damage {
            what: path.display().to_string(),
            at,
            why: why.to_owned(),
        })
        .collect();
    if progress_path(dir).exists() {
        // Kept files are on their way back.
        return Ok(damage);
    }
    let keep = dir.join("kept");
    for record in records.live(durable) {
        let entry = &record.entry;
        let found = kept_ident(&keep, entry.seq);
        let right = match entry.kept {
            Kept::Nothing | Kept::Directory | Kept::Name => true,
            Kept::Link => found == Some(entry.kept_file),
            Kept::Copy => found.is_some(),
        };
        if !right {
            let why = format!(
                "the file it keeps, kept/{:016x}, is missing or another",
                entry.seq
            );
            damage.push(Damage {
                what: record.path().display().to_string(),
                at: entry.at,
                why,
            });
        }
    }
    Ok(damage)
}

/// The newest epoch with live records when the checkpoint is of epoch `durable`; `None` when there
/// are none, or no log at all. A rollback that was begun counts.
///
/// # Errors
/// [`Error::Damaged`], [`Error::Foreign`], [`Error::Io`].
pub(super) fn newest(dir: &Path, durable: Epoch) -> Result<Option<Epoch>> {
    let missing = |index| match std::fs::metadata(log_path(dir, index)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        found => found.map(|_| false).doing("look at", log_path(dir, index)),
    };
    if missing(0)? && missing(1)? {
        return Ok(None);
    }
    if progress_path(dir).exists() {
        return Ok(Some(durable + 1));
    }
    let records = Records::open(dir, durable)?;
    records.expect_whole()?;
    Ok(records.live(durable).iter().map(|found| found.entry.tag).max())
}
