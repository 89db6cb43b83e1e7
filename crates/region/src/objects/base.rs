//! Makes bases, copies of the region in the folder where it keeps calls: see [`super::kept`].

use super::Objects;
use super::kept::Kept;
use crate::error::{Error, Result};
use crate::inspect::inspect;
use crate::region::Inner;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use twinpage_os::folder::sync_folder_of;

impl Objects {
    /// Makes a base, if one is wanted and can be made.
    pub(super) fn make_base(&self) -> Result<()> {
        if !self.keeps() {
            return Ok(());
        }
        let wanted = self.with_server(|server| {
            let keeper = server.keeper.as_mut().filter(|_| server.left.is_empty())?;
            let wanted = std::mem::take(&mut keeper.wants_base);
            let last_object = server.table.last(&server.inner);
            wanted.then(|| (server.inner.clone(), keeper.kept.clone(), last_object))
        });
        let Some((inner, kept, last_object)) = wanted.flatten() else {
            return Ok(());
        };
        let made = copy(&inner, &kept).and_then(|start| {
            // Calls that were run meanwhile may be in it.
            let end = self.with_server(|server| server.log.end()).unwrap_or(u64::MAX);
            give_name(&kept, kept.base_path(start, end, last_object))
        });
        self.with_server(|server| {
            let keeper = server.keeper.as_mut();
            keeper.map_or(Ok(()), |keeper| match made {
                Ok(()) => keeper.base_was_made(),
                Err(error) => {
                    keeper.wants_base = true;
                    Err(error)
                }
            })
        })
        .unwrap_or(Ok(()))
    }
}

/// Where a base is in the making.
fn draft(kept: &Kept) -> PathBuf {
    kept.folder.join("base.new")
}

/// Copies the region. Says up to where the copy has all calls.
fn copy(inner: &Inner, kept: &Kept) -> Result<u64> {
    let new = draft(kept);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(unmade(kept, error)),
        _ => {} // of a crash
    }
    inner.checkpoint()?;
    inner.backup(&new)?;
    let superblock = inspect(&new)?.superblock;
    superblock
        .map(|superblock| superblock.log.start)
        .ok_or_else(|| Error::Invalid(format!("{} has no checkpoint", new.display())))
}

fn give_name(kept: &Kept, name: PathBuf) -> Result<()> {
    let given = fs::rename(draft(kept), &name).and_then(|()| sync_folder_of(&name));
    given.map_err(|source| unmade(kept, source))
}

fn unmade(kept: &Kept, source: std::io::Error) -> Error {
    Error::system(format!("making a base in {}", kept.folder.display()), source)
}
