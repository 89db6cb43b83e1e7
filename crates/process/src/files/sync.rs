//! The files an epoch changed, to be made durable before it is committed.
//!
//! The recorder, in the thread that stops the program, collects them; an [`EpochFiles`] carries them
//! to the thread that commits.

use super::Ident;
use super::error::{Doing, Result};
use super::journal::Dead;
use super::keep::Keep;
use super::path_at;
use super::seen;
use rustix::fd::{AsFd, OwnedFd};
use std::collections::HashMap;
use std::sync::Arc;
use twinpage_os::name;

/// What one epoch changed. Made by [`super::Recorder::begin_epoch`], used in any thread.
#[derive(Default)]
pub struct EpochFiles {
    /// Files, and whether more than their content is to be synced.
    pub(super) files: Vec<(OwnedFd, bool)>,
    /// Directories with new, renamed or removed names.
    pub(super) dirs: Vec<OwnedFd>,
    /// File systems with more changed files than were worth a descriptor each, by device.
    pub(super) whole: HashMap<u64, OwnedFd>,
    /// Something changed that no descriptor could be had for.
    pub(super) everything: bool,
    /// Kept files and records that no rollback will ask for.
    pub(super) dead: Dead,
    pub(super) keep: Option<Arc<Keep>>,
}

impl EpochFiles {
    /// Makes everything the epoch changed durable, and drops kept files that are dead. To be called
    /// before the commit of the epoch; what the program changes meanwhile does no harm.
    ///
    /// # Errors
    /// [`super::Error::Io`] naming the file that could not be synced: the epoch must not be committed.
    pub fn sync_before_commit(&mut self) -> Result<()> {
        if let Some(keep) = &self.keep {
            for seq in self.dead.kept.drain(..) {
                keep.forget(seq)?;
            }
            for name in self.dead.records.drain(..) {
                keep.forget_name(&name)?;
            }
        }
        if self.everything {
            rustix::fs::sync();
            return Ok(());
        }
        for (file, all) in &self.files {
            // Its names are gone, and with them what a rollback would need of it: one that is still open is in the
            // checkpoint itself.
            if rustix::fs::fstat(file).is_ok_and(|stat| stat.st_nlink == 0) {
                continue;
            }
            let synced = if *all {
                rustix::fs::fsync(file)
            } else {
                rustix::fs::fdatasync(file)
            };
            synced.doing("sync", shown(file))?;
        }
        for dir in &self.dirs {
            rustix::fs::fsync(dir).doing("sync the directory", shown(dir))?;
        }
        for file in self.whole.values() {
            rustix::fs::syncfs(file).doing("sync the file system of", shown(file))?;
        }
        Ok(())
    }

    /// Takes over what an earlier epoch changed that was abandoned: it is part of this one now.
    pub fn take_over(&mut self, abandoned: EpochFiles) {
        self.files.extend(abandoned.files);
        self.dirs.extend(abandoned.dirs);
        self.whole.extend(abandoned.whole);
        self.everything |= abandoned.everything;
        self.dead.kept.extend(abandoned.dead.kept);
        self.dead.records.extend(abandoned.dead.records);
        self.keep = self.keep.take().or(abandoned.keep);
    }

    /// How many files and directories will be synced one by one.
    #[must_use]
    pub fn len(&self) -> usize {
        self.files.len() + self.dirs.len()
    }

    /// Whether there is nothing to sync and nothing to drop.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && self.whole.is_empty() && !self.everything && self.dead.is_empty()
    }
}

impl std::fmt::Debug for EpochFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (files, dirs, dead) = (self.files.len(), self.dirs.len(), self.dead.kept.len());
        write!(
            f,
            "EpochFiles({files} files, {dirs} directories, {} whole, {dead} dead)",
            self.whole.len()
        )
    }
}

/// The name of a file in an error; only asked for when one is made.
fn shown(fd: &OwnedFd) -> std::path::PathBuf {
    let stat = seen::stat(fd.as_fd());
    stat.and_then(|stat| path_at::name_of(fd, &stat))
        .unwrap_or_else(|_| name::of_open(fd))
}

/// The directories an epoch changed, while it is recorded.
pub(super) type Directories = HashMap<Ident, OwnedFd>;
