//! How the record of a change is made safe before the change: as dear as the change asks for, and no dearer.
//!
//! | what changes | the record | costs |
//! | --- | --- | --- |
//! | a file in memory (tmpfs), or anything under durability `memory` | is written | a write |
//! | names in the file system of the state, which keeps them in order | is a name itself (`named.rs`) | a name |
//! | anything else | is synced | a flush of the medium |
//!
//! A synced record may be on the medium after a power cut though names that changed before it are not. It calls its
//! file by the name it has by then, so names of old files that changed are made durable before it
//! ([`Journal::settle_names`](super::journal::Journal::settle_names)).

use super::Recorder;
use super::path_at::Found;
use super::{Durability, named};
use rustix::fs::StatFs;

/// What makes the records of a change safe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Safety {
    /// They are written: what they are about does not outlive the machine.
    Written,
    /// They are names, durable before the change is.
    Named,
    /// They are synced.
    Synced,
}

/// Whether all of the file system is gone when the machine is (statfs(2)).
pub(super) fn is_in_memory(system: &StatFs) -> bool {
    const TMPFS: u32 = 0x0102_1994;
    const RAMFS: u32 = 0x8584_58f6;
    matches!(system.f_type as u32, TMPFS | RAMFS)
}

impl Recorder {
    /// What makes the record of a change to a file safe, on the file system `dev`, which was seen.
    pub(super) fn safety_of_content(&self, dev: u64) -> Safety {
        if self.journal.durability == Durability::Memory || self.is_in_memory(dev) {
            Safety::Written
        } else {
            Safety::Synced
        }
    }

    /// The same of a change of these names, in a directory or two of one file system that was seen.
    pub(super) fn safety_of_names(&self, names: &[&Found], dev: u64) -> Safety {
        let paths = names.iter().map(|name| name.path.as_path());
        let is_named = self.journal.order_kept_on == Some(dev)
            && names.iter().all(|name| name.parent.readable)
            && named::fits(paths);
        match self.safety_of_content(dev) {
            Safety::Synced if is_named => Safety::Named,
            safety => safety,
        }
    }
}
