//! A region in a second file: of its last checkpoint while it goes on, or of what is in memory now.
//!
//! A backup never stops the program. It copies the store's pages while epochs go on, notes which
//! pages those epochs change, and copies those again, until they are few; the last of them are copied
//! while no checkpoint is made. Updates go on all the time.

use crate::address::PAGE;
use crate::control_socket::Answers;
use crate::copy::Copy;
use crate::error::{Error, Result};
use crate::region::{Inner, Region};
use crate::superblock::Superblock;
use serde_json::{Value, json};
use std::path::Path;
use twinpage_core::Epoch;

/// Changed pages that may be left for when no checkpoint is made.
const FEW: usize = 1024;
/// How often changed pages are copied again before that, however many they are.
const ROUNDS: usize = 4;

impl Region {
    /// Copies the region, as of a checkpoint that covers all that was done so far, to the new file
    /// `path`, which is then a region like any other (to be opened in another process, or when this
    /// one is closed: it has the same addresses). Says of which epoch it is.
    ///
    /// The program goes on meanwhile. Checkpoints are held back only while the last few pages are
    /// copied.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is such a file; those of [`Region::checkpoint`], and of the
    /// file's medium. There is no file then.
    pub fn backup(&self, path: impl AsRef<Path>) -> Result<Epoch> {
        self.outside_update("a backup")?;
        self.sync_attached()?;
        self.inner.checkpoint()?;
        self.inner.backup(path.as_ref())
    }

    /// Writes what is in memory now to the new file `path`, which is then a region like any other:
    /// for when this one's medium failed. Updates wait until it is done.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is such a file, or inside an update; those of the file's medium.
    pub fn save_as(&self, path: impl AsRef<Path>) -> Result<()> {
        self.outside_update("saving a region")?;
        self.inner.save_as(path.as_ref())
    }
}

impl Answers for Inner {
    fn told(&self) -> Value {
        json!({ "info": self.store().info(), "statistics": self.statistics() })
    }

    fn checkpoint(&self) -> Result<Epoch> {
        Inner::checkpoint(self)
    }

    fn copy_to(&self, path: &Path) -> Result<Epoch> {
        self.backup(path)
    }
}

impl Inner {
    pub(crate) fn backup(&self, path: &Path) -> Result<Epoch> {
        self.progress().check_log_was_run()?;
        let mut copy = Copy::begin(path)?;
        let watching = self.progress().watch();
        // With the engine at rest: from here on every epoch tells what it changes.
        let (_, superblock) = {
            let _idle = self.checkpoints();
            watching.start();
            self.last_superblock()?
        };
        copy.pages(self.store(), 0..superblock.bytes as usize / PAGE)?;
        for _ in 0..ROUNDS {
            let changed = watching.watch.take();
            let few = changed.len() <= FEW;
            copy.some(self.store(), &changed)?;
            if few {
                break;
            }
        }
        let _idle = self.checkpoints();
        copy.some(self.store(), &watching.watch.take())?;
        let (epoch, superblock) = self.last_superblock()?;
        copy.end(&superblock, path)?;
        Ok(epoch)
    }

    fn last_superblock(&self) -> Result<(Epoch, Superblock)> {
        let (epoch, superblock) = self.progress().last();
        let none = || Error::Invalid("the region has no checkpoint yet: call `Region::durable` first".into());
        Ok((epoch, superblock.ok_or_else(none)?))
    }

    fn save_as(&self, path: &Path) -> Result<()> {
        let mut copy = Copy::begin(path)?;
        let place = self.place();
        let _idle = self.checkpoints();
        let closed = place.close_gate(self.patience, |_| ());
        let _closed = closed.map_err(|busy| busy.error())?;
        debug_assert!(!place.is_inside());
        let bytes = place.bytes();
        for page in 0..bytes / PAGE {
            let at = place.base().wrapping_add(page * PAGE);
            // SAFETY: a usable page, which is not written while the gate is closed.
            copy.page(page, unsafe { std::slice::from_raw_parts(at, PAGE) })?;
        }
        let superblock = Superblock::now(place.base().addr(), bytes, place.bound()).at(self.progress().log());
        copy.end(&superblock, path)
    }
}
