//! What a region that keeps the calls of its objects does for it: see [`super::kept`].

use super::kept::{Calls, Kept, first_after};
use crate::error::{Error, Result};
use crate::inspect::inspect;
use crate::options::KeptCalls;
use crate::region::Inner;
use crate::superblock::LogPosition;
use std::fs;
use twinpage_core::Medium;
use twinpage_core::operation_log::{Log, read};

/// Of the ring, so many bytes of calls are kept at once.
const AT_ONCE: u64 = 8;

#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) kept: Kept,
    most: u64,
    /// Calls before this position are kept.
    end: u64,
    /// From where on the log has the others.
    from: u64,
    /// Why a base has to be made, if it has.
    pub(super) wants_base: bool,
}

impl Keeper {
    /// Goes on with what the folder has, of a region whose last checkpoint is at a place in its log.
    pub(super) fn open<M: Medium>(
        wanted: &KeptCalls,
        known: LogPosition,
        log: &mut Log<M>,
        inner: &Inner,
        last_object: u64,
    ) -> Result<Keeper> {
        let (folder, most) = (&wanted.folder, wanted.most);
        fs::create_dir_all(folder).map_err(|e| Error::system(format!("making {}", folder.display()), e))?;
        let kept = Kept::look(folder)?;
        let is_older = kept.end().is_some_and(|end| end > known.start);
        if is_older || !is_of(&kept, inner)? {
            return Err(Error::Invalid(format!(
                "{} keeps calls of another region, or of a later time of this one: keep them in another folder",
                folder.display()
            )));
        }
        let first = if known.id == 0 { log.end() } else { known.start };
        let mut keeper = Keeper {
            end: known.start,
            from: first,
            most,
            wants_base: true,
            kept,
        };
        let (Some(end), Some(base)) = (keeper.kept.calls_end(), keeper.kept.bases.last()) else {
            return Ok(keeper);
        };
        let has_all = base.last_object == last_object;
        if end < known.start {
            // What the checkpoint holds since, the log still has, if it was not written over by a program that kept nothing.
            let from = first_after(end, known.start);
            let rest = read(log.medium(), log.id(), from);
            if known.id == 0 || !rest.is_ok_and(|rest| rest.end == log.end()) {
                return Ok(keeper);
            }
            log.hold(from);
            (keeper.end, keeper.from) = (end, from);
        }
        keeper.wants_base = !has_all;
        Ok(keeper)
    }

    /// Whether so much was logged since that it should be kept now.
    pub(super) fn is_due(&self, start: u64, ring: u64) -> bool {
        start.saturating_sub(self.from) >= ring / AT_ONCE
    }

    /// Keeps the calls before `end`, where a group begins or the log ends. Says up to where the log may write over them.
    pub(super) fn keep<M: Medium>(&mut self, log: &Log<M>, end: u64) -> Result<u64> {
        if end <= self.from {
            return Ok(self.from);
        }
        let found = read(log.medium(), log.id(), self.from)?;
        let mut entries = found.entries;
        entries.retain(|entry| entry.position < end);
        let calls = Calls {
            definitions: found.definitions,
            entries,
        };
        if !calls.entries.is_empty() {
            self.kept.add(self.end, end, &calls)?;
        }
        (self.end, self.from) = (end, end);
        let base = self.kept.bases.last().map_or(0, |base| base.start);
        self.wants_base |= self.kept.bytes_after(base) > self.most / 2;
        Ok(end)
    }
}

/// Whether the last base is of this region, as far as that can be told.
fn is_of(kept: &Kept, inner: &Inner) -> Result<bool> {
    let Some(base) = kept.bases.last() else {
        return Ok(true);
    };
    let superblock = inspect(&base.path)?.superblock;
    Ok(superblock.is_some_and(|superblock| superblock.base == inner.place().base().addr() as u64))
}

impl Keeper {
    /// Looks at what there is with a new base, and removes what is too much.
    pub(super) fn base_was_made(&mut self) -> Result<()> {
        self.kept = Kept::look(&self.kept.folder)?;
        self.kept.trim(self.most)
    }
}
